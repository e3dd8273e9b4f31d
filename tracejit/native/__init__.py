"""LLVM text to machine code in this process: compiling, caching in files, linking.

Must not know: Python objects, programs, what the text computes.
Start reading: machine_code.py, then object_cache.py.
"""
