"""The language that loop nests are written in, what it means, a verifier, rewrites, and its renderings as Python and for Numba.

expressions.py (scalars), language.py (axes, buffers, statements), combinations.py (how reductions make one value of many); evaluate.py
(what each operation means), weights.py (what it costs); verify.py and bounds.py (what must hold of a nest).  Renderings: python.py, the
plain one; numba.py, the same with patterns of Numba, and numba_library.py, what Numba lacks; LLVM IR is rendered by llvm/.

Must not know: graphs and primitives, programs, LLVM.
Start reading: language.py (statements), expressions.py (scalars), python.py (the rendering that everything is compared with).
"""
