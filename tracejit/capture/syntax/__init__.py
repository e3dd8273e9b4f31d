"""From source text to instrumented code: where a function's text is found, and how each step of it becomes a call of a handler.

Must not know: tensors, guards, recordings.  Only code objects and syntax trees come in and go out.
Start reading: convert.py, then expressions.py and rewrite.py.
"""
