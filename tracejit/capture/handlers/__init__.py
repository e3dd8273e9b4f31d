"""Handlers: what the steps of instrumented code do during a recording.

A handler does what Python does for a step, and records it so that each later call can do it again.  Each module below handles one
concept of Python.  All handlers share one recorder (recorder.py) and reach each other through it.  For a step whose meaning
depends on what a value is, a module has a table from kinds of values (../value_kinds.py) to methods, at its end: `_TRUTH`, `_ITEMS` ...
* Python's steps: attributes, containers (with contents, container_methods, sequences, sequence_ends), operators, iteration,
  patterns, calls, builtin_calls, type_calls, number_calls, standard_calls, classes.
* Numbers and texts that leave the program: extracted_numbers (with post_program, in_program), texts, identities.
* NumPy arrays: arrays (evaluated after the program), prologue_arrays (before it), array_stores (arrays from outside that are
  written).
* The outside world: effects (changes outside, in order), printing, environment_reads, generators (random numbers), locking,
  outside_calls (calls of opaque code).
* Values that escape hold no stand-ins: stand_ins.  Symbolic sizes: sizes.  Sizes that depend on data: ragged.

Must not know: how a recording becomes an entry (../recording/), what the graph becomes.
Start reading: base.py, recorder.py, then sequence_ends.py (a short handler) and the tables of operators.py.
"""
