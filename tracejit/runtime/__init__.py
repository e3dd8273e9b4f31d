"""Programs that can be called: a lowered graph with its machine code, its memory and what makes its results; one class for each
backend.

A program is given arrays and numbers, and answers with the outputs, or with the number of the exit that it took.  Then nothing
of the caller's was written.

Must not know: tensors and gradients, guards of Python, how a graph came about.
Start reading: program.py, then frame.py; source.py and rendered.py for programs as Python.
"""
