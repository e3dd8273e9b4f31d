"""Compiled functions that are called without Python: from functions of Numba, and from C.

* plain_program.py: the recorded paths of a compiled function as machine code that takes addresses and numbers.
* invoke.py: what calls that code: it finds a free frame, and tries one path after the other.
* numba_function.py: `CompiledFunction.njit`, a value that functions under `numba.njit` call.
* c_function.py: `CompiledFunction.cfunc`, a function pointer.
* errors.py: what a call raises that no path serves.

Calls hold no GIL and touch no Python object.  So what a path needs of Python, guards and effects, is settled when the
function is exported: guards on values from outside hold then and are not checked again, as Numba treats globals; a
path with effects is refused. What depends on the arguments is checked by each call: dtype, rank and layout when Numba
compiles the caller, sizes in the call, and the values that decide branches by the exits of the program.

Numba is imported by numba_function.py, which is imported when somebody asks for such a function.

Must not know: how calls are recorded, and when; which path serves a call from Python.
Start reading: plain_program.py, then invoke.py.
"""

from tracejit.ffi.errors import ArgumentShapeError, CannotExportError, NoCompiledPathError, OverlappingMemoryError

__all__ = ["ArgumentShapeError", "CannotExportError", "NoCompiledPathError", "OverlappingMemoryError"]
