"""Replay: what a call does besides its program, as data; a small typed language, its verifier and its rendering as Python.

capture/ and compiled/ write guards, numbers, the run of the program, new tensors and effects as nodes.  Python (python.py),
machine code (cpython/functions.py) and the check by words of memory (capture/recording/structure.py) are all made from these
nodes, never from each other.

Must not know: tensors, how a program is run.
Start reading: ir.py, then verify.py (the rules for all functions).
"""
