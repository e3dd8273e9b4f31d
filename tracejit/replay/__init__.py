"""What a call does besides its program, as data: a small typed language, its verifier and its rendering as Python.

Guards, numbers, the run of the program, new tensors, effects: capture/ and compiled/ write them as nodes.  Python (python.py),
machine code (cpython/functions.py) and the check by words of memory (capture/recording/structure.py) are made of these nodes,
never of each other's text.

Must not know: tensors, how a program is run.
Start reading: ir.py, then verify.py (what must hold of every function).
"""
