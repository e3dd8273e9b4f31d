"""`CompiledFunction.cfunc`: a compiled function as a pointer to a C function, for libraries that call back.

The C function has a *prototype*, written as in C: `int (const double *x, double *value)`.  It binds parameters to
what the compiled function takes and returns (`_bound`), so most signatures that libraries ask for can be written
down: those of SciPy's LowLevelCallable, of ODE solvers, of samplers. The machine code stores addresses and numbers in
words on its stack and calls `invoke` (invoke.py).  It holds no GIL and may be called by any thread.

C has no exceptions.  Where no compiled path serves a call, or a size differs, the function returns its failure
status; one that returns a number returns NaN; one that returns nothing sets its floating-point results to NaN.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.cpython.linking import link
from tracejit.ffi.errors import CannotExportError
from tracejit.ffi.invoke import invoke_function
from tracejit.ffi.plain_program import ArrayValue, NumberValue, PlainProgram, Structure
from tracejit.tensor import Tensor
from tracejit.tensor.construction import from_numpy

__all__ = ["CFunction"]

_SYMBOL: Final = "tracejit_c_function"
_INTEGERS: Final[dict[str, Any]] = {
    "int": ctypes.c_int, "int32_t": ctypes.c_int32, "long": ctypes.c_long, "int64_t": ctypes.c_int64, "intptr_t": ctypes.c_ssize_t,
    "ssize_t": ctypes.c_ssize_t, "npy_intp": ctypes.c_ssize_t, "size_t": ctypes.c_size_t,
}  # fmt: skip
_FLOATS: Final[dict[str, Any]] = {"double": ctypes.c_double, "float": ctypes.c_float}
_ELEMENTS: Final[dict[DType, tuple[str, Any]]] = {
    dtypes.float64: ("double", ctypes.c_double), dtypes.float32: ("float", ctypes.c_float), dtypes.int64: ("int64_t", ctypes.c_int64),
    dtypes.int32: ("int32_t", ctypes.c_int32), dtypes.int16: ("int16_t", ctypes.c_int16), dtypes.int8: ("int8_t", ctypes.c_int8),
    dtypes.uint8: ("uint8_t", ctypes.c_uint8), dtypes.bool_: ("bool", ctypes.c_bool),
}  # fmt: skip
_MOST_ERRORS: Final = 10
_STATUS: Final = ("int", "int64_t")
"""What a C function may return as its status."""
_C_TYPES: Final = {**_INTEGERS, **_FLOATS, **dict(_ELEMENTS.values())}


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a prototype: its type without `*`, and its name, "" if there is none."""

    kind: str
    is_pointer: bool
    name: str

    def __str__(self) -> str:
        return f"{self.kind} *{self.name}" if self.is_pointer else f"{self.kind} {self.name}".rstrip()

    @property
    def ctype(self) -> Any:
        if not self.is_pointer:
            return _C_TYPES[self.kind]
        return ctypes.c_void_p if self.kind == "void" else ctypes.POINTER(_C_TYPES[self.kind])

    @property
    def llvm(self) -> str:
        if self.is_pointer:
            return "ptr"
        return self.kind if self.kind in _FLOATS else f"i{8 * ctypes.sizeof(_C_TYPES[self.kind])}"


@dataclass(frozen=True, slots=True)
class _Prototype:
    result: str
    parameters: tuple[_Parameter, ...]

    def __str__(self) -> str:
        return f"{self.result} ({', '.join(map(str, self.parameters)) or 'void'})"


class CFunction:
    """A compiled function that C code calls; `CompiledFunction.cfunc` makes it.

    address: the function pointer.  errors: the first ten errors that the fallback has
    raised.  signature: the prototype.
    ctypes: the function for ctypes, which scipy.LowLevelCallable takes, too.  The pointer is valid as long as this
    object lives."""

    def __init__(
        self, program: PlainProgram, prototype: str | None, success: int, fallback: Callable[..., Any] | None = None
    ) -> None:
        """fallback: what is called, in Python, where no compiled path serves a call."""
        success = int(success)
        parsed = _natural(program) if prototype is None else _parsed(program.name, prototype)
        bound = _bound(program, parsed)
        text = _text(program, parsed, bound, success, fallback is not None)
        result = None if parsed.result == "void" else _C_TYPES[parsed.result]
        kind = ctypes.CFUNCTYPE(result, *[p.ctype for p in parsed.parameters])
        self.errors: list[Exception] = []
        imports = {"tracejit_descriptor": program.address}
        if fallback is not None:
            self._fallback = kind(_Fallback(program, parsed, bound, success, fallback, self.errors))
            imports["tracejit_fallback"] = ctypes.cast(self._fallback, ctypes.c_void_p).value or 0
        invoke, invoke_owner = invoke_function()
        self._program = program
        self.signature = str(parsed)
        imports["tracejit_invoke"] = invoke
        self.address, owner = link(text, _SYMBOL, computes=True, imports=imports)
        self._owners = owner, invoke_owner
        function: Any = kind(self.address)
        self.ctypes = function
        function.owner = self._owners, program, getattr(self, "_fallback", None)  # whoever has the function keeps its code

    def __repr__(self) -> str:
        return f"<{self._program.name}: {self.signature} at {self.address:#x}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it is an address in this process; call cfunc() again in the other"
        )


def _natural(program: PlainProgram) -> _Prototype:
    """The prototype where none is given: `double (double, ...)` of numbers alone, else a status, arguments, then
    results."""
    parameters = [
        _Parameter(_ELEMENTS[a.dtype][0], bool(a.shape), name)
        if isinstance(a, ArrayValue)
        else _Parameter("double" if a.kind is float else "int64_t", False, name)
        for name, a in zip(program.parameters, program.arguments, strict=True)
    ]
    if program.is_scalar and not any(p.is_pointer for p in parameters) and program.results[0].dtype.is_floating_point:
        return _Prototype(_ELEMENTS[program.results[0].dtype][0], tuple(parameters))
    results = [_Parameter(_ELEMENTS[r.dtype][0], True, f"result{k}") for k, r in enumerate(program.results)]
    return _Prototype("int", (*parameters, *results))


def _parsed(name: str, text: str) -> _Prototype:
    """A prototype from its text.  Raises ValueError for what it is not."""
    known = ", ".join(_C_TYPES)
    found = re.fullmatch(r"\s*(\w+)\s*(?:\w+\s*)?\((.*)\)\s*;?\s*", text, re.DOTALL)
    if found is None or found[1] not in ("void", *_STATUS, *_FLOATS):
        raise ValueError(
            f"{name}: expected a prototype such as 'int (const double *x, double *value)', which returns "
            f"{', '.join(('void', *_STATUS, *_FLOATS))}; got {text!r}"
        )
    parameters = []
    for part in [p.strip() for p in found[2].split(",")] if found[2].strip() not in ("", "void") else []:
        match = re.fullmatch(r"(?:const\s+)?(\w+)\s*(\*?)\s*(?:const\s+)?(\w*)", part)
        if match is None or (match[1] not in _C_TYPES and (match[1], match[2]) != ("void", "*")):
            raise ValueError(
                f"{name}: expected a parameter of one of the types {known}, a pointer to one, or void *; got {part!r}"
            )
        parameters.append(_Parameter(match[1], bool(match[2]), match[3]))
    return _Prototype(found[1], tuple(parameters))


@dataclass(frozen=True, slots=True)
class _Bound:
    """values: (parameter, position among arguments and results).  sizes: (parameter, the number of elements that it
    must be).  returned: the result that the C function returns."""

    values: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[int, int], ...]
    returned: int | None


def _bound(program: PlainProgram, prototype: _Prototype) -> _Bound:
    """What each parameter stands for.

    A parameter with the name of an argument is that argument.  Of the others, pointers are the arguments that are
    arrays, then the results, in order; numbers are the arguments that are numbers, or tensors without dimensions, in
    order.  An integer for which there is no such argument is the number of elements of the pointer beside it: of the
    one after it if an integer comes before all pointers, else of the one before it.  Several integers beside each
    other count as many pointers, in order.  `void *` is ignored.

    Raises CannotExportError if something is left over, or types differ."""
    values: list[ArrayValue | NumberValue] = [*program.arguments, *program.results]
    count, returns = len(program.arguments), prototype.result in _FLOATS
    names = {name: k for k, name in enumerate(program.parameters)}
    fixed = {i: names[p.name] for i, p in enumerate(prototype.parameters) if p.name in names}
    left = [k for k in range(len(values)) if k not in fixed.values()]
    returned = next((k for k in left if k >= count and not program.results[k - count].shape), None) if returns else None
    left = [k for k in left if k != returned]
    problems: list[str] = []
    if len(set(fixed.values())) < len(fixed):
        problems.append("two parameters have the name of one argument")
    if returns and returned is None:
        problems.append("no result is a number that it could return")
    bound: dict[int, int] = {}
    sizes: list[int] = []
    for i, parameter in enumerate(prototype.parameters):
        if parameter.is_pointer and parameter.kind == "void":
            continue
        position = fixed.get(i)
        if position is None:
            position = next((k for k in left if (k >= count or _is_array(values[k])) is parameter.is_pointer), None)
            if position is None or (not parameter.is_pointer and not _fits(parameter, values[position])):
                if parameter.kind in _INTEGERS and not parameter.is_pointer:
                    sizes.append(i)
                else:
                    problems.append(f"{parameter} stands for nothing")
                continue
            left.remove(position)
        if not _fits(parameter, values[position]):
            problems.append(f"{parameter} does not fit {_value_name(program, position)}, which is {values[position]}")
        bound[i] = position
    problems += [f"nothing stands for {_value_name(program, k)}, which is {values[k]}" for k in left]
    measured: list[tuple[int, int]] = []
    for i, pointer in _measured(prototype.parameters, sizes):
        value = None if pointer is None or pointer not in bound else values[bound[pointer]]
        if isinstance(value, ArrayValue):
            measured.append((i, value.nbytes // value.dtype.itemsize))
        else:
            problems.append(f"{prototype.parameters[i]} is the size of nothing")
    if returned is not None and _ELEMENTS[program.results[returned - count].dtype][0] != prototype.result:
        problems.append(f"it returns {prototype.result}, but {_value_name(program, returned)} is {values[returned]}")
    if problems:
        raise CannotExportError(f"{program.name}: {prototype} does not fit the function: {'; '.join(problems)}")
    return _Bound(tuple(bound.items()), tuple(measured), returned)


def _measured(parameters: Sequence[_Parameter], sizes: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """(a size, the pointer whose elements it counts) for each of `sizes`, which are positions of parameters."""
    pointers = [i for i, p in enumerate(parameters) if p.is_pointer and p.kind != "void"]
    stand_before = bool(sizes) and bool(pointers) and sizes[0] < pointers[0]
    for _, numbered in itertools.groupby(enumerate(sizes), lambda pair: pair[1] - pair[0]):
        run = [i for _, i in numbered]
        if stand_before:
            measured = [i for i in pointers if i > run[-1]][: len(run)]
        else:
            measured = [i for i in pointers if i < run[0]][-len(run) :]
        yield from zip(run, [*measured, *[None] * (len(run) - len(measured))], strict=True)


def _is_array(value: ArrayValue | NumberValue) -> bool:
    """Whether an argument has dimensions."""
    return isinstance(value, ArrayValue) and bool(value.shape)


def _fits(parameter: _Parameter, value: ArrayValue | NumberValue) -> bool:
    if isinstance(value, ArrayValue):
        return (parameter.is_pointer or not value.shape) and _C_TYPES[parameter.kind] is _ELEMENTS[value.dtype][1]
    return not parameter.is_pointer and parameter.kind in (_FLOATS if value.kind is float else _INTEGERS)


def _value_name(program: PlainProgram, position: int) -> str:
    count = len(program.arguments)
    return f"argument {program.parameters[position]}" if position < count else f"result {position - count}"


@dataclass(frozen=True, slots=True)
class _Fallback:
    """Serves calls that no compiled path serves, in Python: ctypes calls it with the GIL and the arguments of the C
    function."""

    program: PlainProgram
    prototype: _Prototype
    bound: _Bound
    success: int
    function: Callable[..., Any]
    errors: list[Exception]

    def __call__(self, *given: Any) -> Any:
        program, count = self.program, len(self.program.arguments)
        places = {position: given[i] for i, position in self.bound.values}
        try:
            tensors = [self._argument(value, places[k]) for k, value in enumerate(program.arguments)]
            results = list(_leaves(program.structure, self.function(*tensors)))
            found = [_checked(program, k, result) for k, result in enumerate(results)]
        except Exception as error:  # C has no exceptions
            if len(self.errors) < _MOST_ERRORS:
                self.errors.append(error.with_traceback(None))
            if self.prototype.result in _STATUS:
                return int(self.success != 1)
            found = [np.full(value.shape, np.nan) if value.dtype.is_floating_point else None for value in program.results]
        for k, array in enumerate(found):
            if array is not None and count + k != self.bound.returned:
                _array_at(places[count + k], program.results[k])[...] = array
        if self.bound.returned is not None:
            return float(found[self.bound.returned - count])
        return self.success if self.prototype.result in _STATUS else None

    def _argument(self, value: ArrayValue | NumberValue, given: Any) -> Any:
        if isinstance(value, NumberValue):
            return given
        return from_numpy(np.array(_array_at(given, value) if isinstance(given, ctypes._Pointer) else given, value.dtype.numpy))


def _checked(program: PlainProgram, k: int, result: Any) -> Any:
    """Result `k` of a call as the array that the program would have made.  Raises ValueError if it has another dtype
    or shape."""
    value = program.results[k]
    found = result.detach().numpy() if isinstance(result, Tensor) else np.asarray(result, value.dtype.numpy)
    if found.shape != value.shape or found.dtype != value.dtype.numpy:
        raise ValueError(f"{program.name}: result {k} must be {value}, got {found.dtype}{list(found.shape)}")
    return found


def _array_at(address: Any, value: ArrayValue) -> np.ndarray[Any, Any]:
    """The array at a pointer of ctypes."""
    return np.ctypeslib.as_array(address, value.shape) if value.shape else np.ctypeslib.as_array(address, (1,)).reshape(())


def _leaves(structure: Structure, result: Any) -> Iterator[Any]:
    """The results of a program in what its function has returned, in the order of their numbers."""
    if isinstance(structure, tuple):
        for part, returned in zip(structure, result, strict=True):
            yield from _leaves(part, returned)
    elif isinstance(structure, int):
        yield result


def _text(program: PlainProgram, prototype: _Prototype, bound: _Bound, success: int, has_fallback: bool) -> str:
    """The C function as LLVM text.  success: the status of a call that was served; failure is 1, or 0 if that is
    success."""
    parameters = prototype.parameters
    count = len(program.arguments)
    total = count + len(program.results)
    lines: list[str] = []

    def store(value: str, position: int) -> None:
        lines.append(f"  %at{position} = getelementptr i64, ptr %values, i64 {position}")
        lines.append(f"  store i64 {value}, ptr %at{position}")

    for i, size in bound.sizes:
        lines.append(f"  %fits{i} = icmp eq {parameters[i].llvm} %p{i}, {size}")
        lines.append(f"  br i1 %fits{i}, label %sized{i}, label %failed")
        lines.append(f"sized{i}:")
    for i, position in bound.values:
        parameter, word = parameters[i], f"%w{i}"
        if not parameter.is_pointer and position < count and isinstance(program.arguments[position], ArrayValue):
            lines += [
                f"  %m{i} = alloca i64",
                f"  store {parameter.llvm} %p{i}, ptr %m{i}",
                f"  {word} = ptrtoint ptr %m{i} to i64",
            ]
        elif parameter.is_pointer:
            lines.append(f"  {word} = ptrtoint ptr %p{i} to i64")
        elif parameter.kind in _FLOATS:
            wide = f"%p{i}"
            if parameter.kind == "float":
                wide = f"%d{i}"
                lines.append(f"  {wide} = fpext float %p{i} to double")
            lines.append(f"  {word} = bitcast double {wide} to i64")
        elif parameter.llvm == "i64":
            word = f"%p{i}"
        else:
            lines.append(f"  {word} = sext {parameter.llvm} %p{i} to i64")
        store(word, position)
    if bound.returned is not None:
        lines.append("  %scalar.word = ptrtoint ptr %scalar to i64")
        store("%scalar.word", bound.returned)
    given = ", ".join(f"{p.llvm} %p{i}" for i, p in enumerate(parameters))
    result = {"void": "void", "int": "i32", "int64_t": "i64"}.get(prototype.result, prototype.result)
    if prototype.result == "void":
        served, failed = ["  ret void"], [*_set_to_nan(program, bound), "  ret void"]
    elif prototype.result in _STATUS:
        served, failed = [f"  ret {result} {success}"], [f"  ret {result} {int(success != 1)}"]
    else:
        served = [f"  %returned = load {result}, ptr %scalar", f"  ret {result} %returned"]
        failed = [f"  ret {result} 0x7FF8000000000000"]
    body = "\n".join([*lines, "  br label %call"])
    unserved, declared = ["  br label %failed"], ""
    if has_fallback:
        kinds = ", ".join(p.llvm for p in parameters)
        declared = f"declare {result} @tracejit_fallback({kinds})"
        called = f"call {result} @tracejit_fallback({given})"
        unserved = [f"  {called}", "  ret void"] if result == "void" else [f"  %again = {called}", f"  ret {result} %again"]
    return f"""{declared}
declare i64 @tracejit_invoke(ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@tracejit_descriptor = external global i8
define {result} @{_SYMBOL}({given}) nounwind {{
entry:
  %values = alloca [{total + 1} x i64]
  %scalar = alloca i64
{body}
call:
  %status = call i64 @tracejit_invoke(ptr @tracejit_descriptor, ptr %values)
  %done = icmp eq i64 %status, 0
  br i1 %done, label %served, label %unserved
served:
{chr(10).join(served)}
unserved:
{chr(10).join(unserved)}
failed:
{chr(10).join(failed)}
}}
"""


def _set_to_nan(program: PlainProgram, bound: _Bound) -> list[str]:
    """Statements that set each floating-point result to NaN, by calls of memset: all bits set are a NaN."""
    lines, count = [], len(program.arguments)
    for i, position in bound.values:
        if position >= count and program.results[position - count].dtype.is_floating_point:
            lines.append(
                f"  call void @llvm.memset.p0.i64(ptr %p{i}, i8 -1, i64 {program.results[position - count].nbytes}, i1 false)"
            )
    return lines
