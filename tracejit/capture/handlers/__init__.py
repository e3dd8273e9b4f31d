"""What the steps of instrumented code do: as Python does them, and so that each later call can do them again.

One handler for each concept of Python, around the one recorder (recorder.py), by which they find each other.
* Python's steps: attributes, containers (with contents, sequences, ends, container_methods), operators, iteration, patterns,
  calls, builtin_calls, type_calls, number_calls, standard_calls, classes.
* Numbers and texts that leave the program: leaving (with late, in_program), texts, identities.
* NumPy's arrays: arrays (after the program), early_arrays (before it), array_stores (from outside, written).
* The world: effects (changes outside, in order), printing, readings, generators (random numbers), locking, outside_calls (calls
  of which nothing is known).
* What outlives the call leads to plain values: escapes.  Symbolic sizes: sizes.  Sizes that depend on data: ragged.

Must not know: how a recording becomes an entry (../recording/), what the graph becomes.
Start reading: base.py, recorder.py, then operators.py (a short handler).
"""
