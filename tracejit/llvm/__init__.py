"""Nests and programs as LLVM text, compiled, cached, loaded; products and convolutions by kernels
of its own or by BLAS, systems by LAPACK; the pool of threads.

A nest: nests.py on loops.py, operations.py and reductions.py.  A program: driver.py, one function of a frame's address, or
several that are called in turn where there are many steps, since LLVM takes more than proportionally long for long functions.
The text depends on no address and no metadata, so it is found again by its hash, in later processes too.

Must not know: graphs and primitives, tensors, guards.  Whether a loop may run in lanes or tiles is decided before, in
loops/rewrites/.
Start reading: driver.py, then nests.py.
"""
