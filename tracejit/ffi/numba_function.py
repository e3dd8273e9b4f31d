"""`CompiledFunction.njit`: a compiled function as a value that code under `numba.njit` calls.

Numba sees an instance as one word, the address of the program's descriptor, and its type, which says what it takes
and returns.  The type is equal for programs of one signature, and an argument of this type is data: a function under
`njit(cache=True)` that takes one is kept in Numba's files and serves other programs and later processes.  A global or
closure of such a function is a constant, as Numba treats all globals; its address is known to this process only, so
Numba does not keep the caller in files (and warns).

A call stores addresses and numbers in words on its stack, and calls `invoke` (invoke.py) by the address in the
descriptor.  Source of Python for this is written for each type and compiled by Numba into the caller.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core import types as numba_types
from numba.core.errors import TypingError
from numba.core.imputils import lower_constant
from numba.core.typing.templates import signature
from numba.extending import NativeValue, intrinsic, lower_builtin, models, register_model, unbox
from numba.np.numpy_support import as_dtype, from_dtype

from tracejit.ffi import invoke
from tracejit.ffi.errors import ArgumentShapeError, NoCompiledPathError, OverlappingMemoryError
from tracejit.ffi.plain_program import ArrayValue, FixedValue, NumberValue, PlainProgram, Structure, structure_text

types: Any = numba_types  # its stubs know a part of it

__all__ = ["NjitFunction", "NjitFunctionType"]


_NUMBERS: Final = (types.Integer, types.Float, types.Boolean)


class NjitFunction:
    """A compiled function for code under `numba.njit`; `CompiledFunction.njit` makes it, and tells how it is called.

    It can be called from Python, too, with arrays and numbers, and gives what it gives to Numba's code.  It keeps
    alive what the program reads. Instances cannot be pickled: they are addresses in this process."""

    def __init__(self, program: PlainProgram) -> None:
        self._program = program
        self._descriptor = program.address
        self._numba_type_ = NjitFunctionType(
            program.parameters, program.arguments, program.results, program.structure
        )  # for numba.typeof

    @property
    def __name__(self) -> str:
        return self._program.name

    @property
    def failures(self) -> int:
        """How many calls have raised in Numba's code: in `prange` Numba drops errors, and what the call was to write is
        not written."""
        return self._program.failures

    def __call__(self, *args: Any, out: Any = None) -> Any:
        return _caller(len(args), out is not None)(self, *args, *(() if out is None else (out,)))

    def __repr__(self) -> str:
        return f"<{self._program.name}: {self._numba_type_.described}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled or copied: it is an address in this process; call njit() again in the other")


_callers: dict[tuple[int, bool], Any] = {}


def _caller(count: int, has_out: bool) -> Any:
    """A function under njit that calls its first argument with the others."""
    found = _callers.get((count, has_out))
    if found is None:
        names = [f"x{k}" for k in range(count)]
        parameters = ", ".join(["function", *names, *["out"] * has_out])
        given = ", ".join([*names, *["out=out"] * has_out])
        found = _callers[count, has_out] = numba.njit(
            _function(f"def call({parameters}):\n    return function({given})\n", {}), nogil=True
        )
    return found


def _function(text: str, namespace: dict[str, Any]) -> Any:
    exec(compile(text, "<tracejit.ffi>", "exec"), namespace)
    return namespace["call"]


class NjitFunctionType(numba_types.Callable):
    """Numba's type of NjitFunctions: what they take and return."""

    def __init__(
        self,
        parameters: tuple[str, ...],
        arguments: tuple[ArrayValue | NumberValue, ...],
        results: tuple[ArrayValue, ...],
        structure: Structure,
    ) -> None:
        self.parameters, self.arguments, self.results, self.structure = parameters, arguments, results, structure
        takes = ", ".join(f"{p}: {a}" for p, a in zip(parameters, arguments, strict=True))
        self.described = f"({takes}) -> {structure_text(structure, results)}"
        super().__init__(f"tracejit.NjitFunction{self.described}")

    @property
    def key(self) -> Any:
        return invoke.LAYOUT, self.described

    @property
    def arrays(self) -> list[int]:
        """The numbers of results that are arrays: those that `out` may hold."""
        return [k for k, result in enumerate(self.results) if result.shape]

    def result_type(self, out: Sequence[Any] = ()) -> Any:
        """What a call returns.  out: the types of arrays for the results that are arrays."""
        return self._result_type(self.structure, dict(zip(self.arrays, out, strict=False)))

    def _result_type(self, part: Structure, out: Mapping[int, Any]) -> Any:
        if isinstance(part, tuple):
            return types.Tuple([self._result_type(p, out) for p in part])
        if isinstance(part, FixedValue):
            return numba.typeof(part.value)
        result = self.results[part]
        scalar = from_dtype(np.dtype(result.dtype.numpy))
        if result.is_python:
            return {types.Float: types.float64, types.Integer: types.int64}.get(type(scalar), scalar)
        return out.get(part, types.Array(scalar, len(result.shape), "C")) if result.shape else scalar

    # -- Numba's protocol of callable types
    def get_call_type(self, context: Any, args: Sequence[Any], kws: Any) -> Any:
        """The signature of a call with arguments of these types.  Raises TypingError where they do not fit."""
        given = dict(zip((*self.parameters, "out"), args, strict=False))
        for name, kind in dict(kws).items():
            if name in given or name not in (*self.parameters, "out"):
                raise TypingError(f"{self.described}: unexpected argument {name!r}")
            given[name] = kind
        missing = [name for name in self.parameters if name not in given]
        if missing or len(args) > len(self.parameters) + 1:
            raise TypingError(
                f"{self.described}: takes {len(self.parameters)} arguments and perhaps out, got {len(args) + len(kws)}"
            )
        taken: list[Any] = []
        for name, value in zip(self.parameters, self.arguments, strict=True):
            taken.append(self._argument_type(name, value, given[name]))
        out = given.get("out", types.Omitted(None))
        taken.append(self._out_type(out))
        result = signature(self.result_type(_parts(out)), *taken, recvr=self)
        return result.replace(pysig=self._pysig)

    def _argument_type(self, name: str, value: ArrayValue | NumberValue, given: Any) -> Any:
        if isinstance(value, NumberValue):
            wanted = types.float64 if value.kind is float else types.int64
            if not isinstance(given, _NUMBERS) or (value.kind is int and not isinstance(given, types.Integer)):
                raise TypingError(f"{self.described}: argument {name} must be a number ({value}), got {given}")
            return wanted
        if not value.shape:
            fits = isinstance(given, _NUMBERS) and (
                value.dtype.is_floating_point or np.can_cast(as_dtype(given), value.dtype.numpy, "safe")
            )
            if not fits:
                raise TypingError(f"{self.described}: argument {name} must be a number ({value}), got {given}")
            return from_dtype(np.dtype(value.dtype.numpy))
        self._check_array(f"argument {name}", value, given)
        return given

    def _out_type(self, out: Any) -> Any:
        if isinstance(out, types.Omitted | types.NoneType):
            return out
        arrays, parts = self.arrays, _parts(out)
        if len(parts) != len(arrays):
            raise TypingError(
                f"{self.described}: out must have an array for each result that is an array, in their order ({len(arrays)}), got {out}"
            )
        for number, part in zip(arrays, parts, strict=True):
            self._check_array(f"out for result {number}", self.results[number], part)
            if not part.mutable:
                raise TypingError(f"{self.described}: out for result {number} is read-only")
        return out

    def _check_array(self, what: str, value: ArrayValue, given: Any) -> None:
        is_array = isinstance(given, types.Array) and given.aligned
        if not is_array or as_dtype(given.dtype) != value.dtype.numpy or given.ndim != len(value.shape):
            raise TypingError(f"{self.described}: {what} must be an array {value}, got {given}")

    def get_call_signatures(self) -> Any:
        return [signature(self.result_type(), *[types.pyobject] * len(self.arguments))], False

    def get_impl_key(self, sig: Any) -> Any:
        return NjitFunctionType

    @cached_property
    def _pysig(self) -> Any:
        names = ", ".join([*self.parameters, "out=None"])
        return numba.core.utils.pysignature(_function(f"def call({names}): pass", {}))


def _parts(out: Any) -> list[Any]:
    """The types of the arrays in `out`."""
    if isinstance(out, types.Omitted | types.NoneType):
        return []
    return list(out) if isinstance(out, types.BaseTuple) else [out]


@register_model(NjitFunctionType)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    """The address of a descriptor."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64))


@unbox(NjitFunctionType)
def _unbox(kind: Any, value: Any, context: Any) -> Any:
    """The address of a function that is passed as an argument."""
    address = context.pyapi.object_getattr_string(value, "_descriptor")
    number = context.pyapi.long_as_longlong(address)
    context.pyapi.decref(address)
    return NativeValue(number, is_error=cgutils.is_not_null(context.builder, context.pyapi.err_occurred()))


_constants: list[NjitFunction] = []
"""Functions whose addresses are in machine code, which nobody tells when it goes."""


@lower_constant(NjitFunctionType)
def _constant(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """The address of a function that is a global or in a closure."""
    _constants.append(value)
    return builder.ptrtoint(context.add_dynamic_addr(builder, value._descriptor, info="tracejit"), ir.IntType(64))


# -- the call in machine code
@lower_builtin(NjitFunctionType, types.VarArg(types.Any))
def _call(context: Any, builder: Any, sig: Any, args: Sequence[Any]) -> Any:
    """A call.  args: the descriptor, the arguments, and out."""
    kind, taken, given = sig.args[0], list(sig.args[1:]), list(args[1:])
    if isinstance(taken[-1], types.Omitted | types.NoneType):
        del taken[-1], given[-1]
    text = _text_of_call(kind, taken)
    implementation = _function(text, dict(_NAMESPACE))
    return context.compile_internal(builder, implementation, signature(sig.return_type, types.int64, *taken), [args[0], *given])


def _text_of_call(kind: NjitFunctionType, taken: Sequence[Any]) -> str:
    """Python that stores the arguments, calls the program and returns its results.  taken: the types of arguments,
    perhaps of out."""
    count, results = len(kind.arguments), kind.results
    has_out = len(taken) > count
    several = has_out and isinstance(taken[count], types.BaseTuple)
    lines: list[str] = []
    for k, (value, given) in enumerate(zip(kind.arguments, taken, strict=False)):
        if isinstance(value, ArrayValue) and value.shape:
            lines += _checks(f"x{k}", k, value, given)
    for place, k in enumerate(kind.arrays):
        result, name = results[k], f"r{k}"
        if not has_out:
            lines.append(f"{name} = np.empty({result.shape}, np.{np.dtype(result.dtype.numpy).name})")
            continue
        lines.append(f"{name} = out[{place}]" if several else f"{name} = out")
        lines += _checks(name, count + k, result, taken[count][place] if several else taken[count])
    if has_out:
        lines += _overlap_checks(kind)
    every: list[Any] = [*kind.arguments, *results]
    behind = itertools.count(len(every) + 1)
    scalars = {k: next(behind) for k, value in enumerate(every) if isinstance(value, ArrayValue) and not value.shape}
    total = len(every) + 1 + len(scalars)
    lines += [f"address = stack_words({total})", f"words = carray(pointer(address), ({total},), np.int64)"]
    for k, value in enumerate(every):
        name = f"x{k}" if k < count else f"r{k - count}"
        if k in scalars:
            lines.append(f"words[{k}] = address + {8 * scalars[k]}")
            lines += [f"{_scalar(scalars[k], value)} = {name}"] if k < count else []
        else:
            stored = f"{name}.ctypes.data" if isinstance(value, ArrayValue) else f"bits({name})" if value.kind is float else name
            lines.append(f"words[{k}] = {stored}")
    lines.append("status = invoke(descriptor, address)")
    lines += _failing("status != 0", "NoCompiledPathError", [f"words[{len(every)}]", "status"])
    for k, at in scalars.items():
        if k >= count:
            kind_of_python = {"f": "np.float64", "i": "np.int64", "u": "np.int64", "b": "np.bool_"}[
                np.dtype(every[k].dtype.numpy).kind
            ]
            number = _scalar(at, every[k])
            lines.append(f"r{k - count} = " + (f"{kind_of_python}({number})" if every[k].is_python else number))
    lines.append(f"return {_returned(kind.structure)}")
    names = ", ".join(["descriptor", *[f"x{k}" for k in range(count)], *(["out"] if has_out else [])])
    return f"def call({names}):\n" + "".join(f"    {line}\n" for line in lines)


def _scalar(word: int, value: ArrayValue) -> str:
    """The number in a word of the stack, as an element of its dtype."""
    return f"carray(pointer(address + {8 * word}), (1,), np.{np.dtype(value.dtype.numpy).name})[0]"


def _checks(name: str, position: int, value: ArrayValue, given: Any) -> list[str]:
    """That an array has the sizes, and the strides where its type does not say so."""
    rank = len(value.shape)
    found = [f"{name}.shape[{d}]" for d in range(rank)]
    wanted = list(value.shape)
    if given.layout != "C":
        found += [f"{name}.strides[{d}]" for d in range(rank)]
        wanted += value.strides
    if not found:
        return []
    differs = " or ".join(f"{x} != {n}" for x, n in zip(found, wanted, strict=True))
    return _failing(differs, "ArgumentShapeError", [str(position), *found])


def _failing(condition: str, error: str, found: Sequence[str]) -> list[str]:
    """If a condition holds, write integers to the failure record and raise an error of this class."""
    stores = [f"word(descriptor, {invoke.PROGRAM_ID})", str(len(found)), *found]
    return [
        f"if {condition}:",
        "    count_failure(descriptor)",
        f"    record = carray(pointer(word(descriptor, {invoke.FAILURE})), ({len(stores)},), np.int64)",
        *[f"    record[{k}] = {value}" for k, value in enumerate(stores)],
        f"    raise {error}",
    ]


def _overlap_checks(kind: NjitFunctionType) -> list[str]:
    """That no result is written to memory that the call reads, or writes another result to."""
    arguments = [(f"x{k}", a.nbytes) for k, a in enumerate(kind.arguments) if isinstance(a, ArrayValue) and a.shape]
    lines: list[str] = []
    for place, k in enumerate(kind.arrays):
        others = [*arguments, *[(f"r{j}", kind.results[j].nbytes) for j in kind.arrays[:place]]]
        nbytes = kind.results[k].nbytes
        tests = [f"overlap(r{k}.ctypes.data, {nbytes}, {name}.ctypes.data, {size})" for name, size in others]
        tests.append(f"is_read(descriptor, r{k}.ctypes.data, {nbytes})")
        lines += _failing(" or ".join(tests), "OverlappingMemoryError", [str(k)])
    return lines


def _returned(part: Structure) -> str:
    if isinstance(part, tuple):
        return f"({''.join(f'{_returned(p)}, ' for p in part)})"
    return repr(part.value) if isinstance(part, FixedValue) else f"r{part}"


@intrinsic
def _stack_words(context: Any, count: Any) -> Any:
    """The address of so many words on the stack."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), count.literal_value))
        return builder.ptrtoint(words, ir.IntType(64))

    return types.int64(count), lower


@intrinsic
def _pointer(context: Any, address: Any) -> Any:
    """A pointer to an address."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), lower


@intrinsic
def _bits(context: Any, number: Any) -> Any:
    """The bits of a float64."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), lower


@intrinsic
def _word(context: Any, descriptor: Any, k: Any) -> Any:
    """Word k of a descriptor."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(words, [args[1]]))

    return types.int64(types.int64, types.int64), lower


@intrinsic
def _count_failure(context: Any, descriptor: Any) -> Any:
    """One more call has failed."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        words = builder.inttoptr(args[0], word.as_pointer())
        at = builder.gep(words, [ir.Constant(word, invoke.FAILURES)])
        builder.atomic_rmw("add", at, ir.Constant(word, 1), "monotonic")
        return context.get_dummy_value()

    return types.void(types.int64), lower


@intrinsic
def _invoke(context: Any, descriptor: Any, values: Any) -> Any:
    """Call the program: the exit by which it was left, 0 for none."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        words = builder.inttoptr(args[0], word.as_pointer())
        function = builder.load(builder.gep(words, [ir.Constant(word, invoke.INVOKE)]))
        kind = ir.FunctionType(word, [word, word])
        return builder.call(builder.inttoptr(function, kind.as_pointer()), args)

    return types.int64(types.int64, types.int64), lower


@numba.njit
def _overlap(begin: int, nbytes: int, other: int, other_bytes: int) -> bool:
    return begin < other + other_bytes and other < begin + nbytes


@numba.njit
def _is_read(descriptor: int, begin: int, nbytes: int) -> bool:
    """Whether the program reads some of this memory besides its arguments."""
    count = _word(descriptor, invoke.RANGE_COUNT)
    ranges = numba.carray(_pointer(_word(descriptor, invoke.RANGES)), (2 * count,), np.int64)
    read = False
    for k in range(count):
        read |= begin < ranges[2 * k + 1] and ranges[2 * k] < begin + nbytes
    return read


_NAMESPACE: Final = {
    "np": np,
    "inf": np.inf,
    "nan": np.nan,
    "carray": numba.carray,
    "stack_words": _stack_words,
    "pointer": _pointer,
    "bits": _bits,
    "word": _word,
    "invoke": _invoke,
    "count_failure": _count_failure,
    "overlap": _overlap,
    "is_read": _is_read,
    "NoCompiledPathError": NoCompiledPathError,
    "ArgumentShapeError": ArgumentShapeError,
    "OverlappingMemoryError": OverlappingMemoryError,
}
