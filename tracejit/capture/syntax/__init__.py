"""Source text to instrumented code: finds the source of a function, and rewrites it so that each step calls an entry point.

Must not know: tensors, guards, recordings.  Inputs and results are code objects and syntax trees only.
Start reading: convert.py, then expressions.py and rewrite.py.
"""
