"""Nest -> functions for Numba: the rendering that runs with NumPy and Numba alone.

`render(nest, shifted)` gives the source of one function like that of `loops/python.py`, of which it is another set of patterns, and the
names that it uses; `definitions(names)` what they stand for, in an order in which they can be executed after `HEADER`; `load(nest)`
compiles it when it is first called.  The functions take 1-D NumPy arrays of the very dtypes of the buffers (of uint16 for float16 and
bfloat16), each followed by the element that index 0 means if it is among the `shifted` ones, those that the nest may reach back
from (`bounds.reaching_back`), then ints, then numbers of the scalars' dtypes (float32 for reduced ones).

Invariants: no fast-math; every intermediate value has the dtype that its expression has, which Numba by itself would not keep for
integers.  A name of `definitions` has one meaning for ever: equal functions are compiled once in a process."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.locks import lock_held_over_forks
from tracejit.loops import numba_library, python
from tracejit.loops.combinations import COMBINATIONS, Combination
from tracejit.loops.expressions import ELEMENTARY, Apply, Expr, Var, builder
from tracejit.loops.language import BLOCK, LANES, Buffer, Index, Nest, Scalar
from tracejit.math import libm, scipy_functions
from tracejit.math.functions import complete, expand

__all__ = ["HEADER", "Rendered", "definitions", "load", "render"]

HEADER: Final = f"""\
from __future__ import annotations

import ctypes

import numpy as np
from numba import njit
from numba.extending import get_cython_function_address, intrinsic
from numpy import bool_, float16, float32, float64, inf, int8, int16, int32, int64, nan, uint8, uint16, uint32, uint64

LANES, BLOCK = {LANES}, {BLOCK}
"""
_DECORATOR: Final = '@njit(error_model="numpy")\n'
_FMA: Final = '''\
@intrinsic
def fma(typing_context, x, y, z):
    """x * y + z, rounded once."""
    return x(x, y, z), lambda context, builder, signature, values: builder.fma(*values)
'''
_OF_NUMPY: Final = {
    "abs": "abs",
    "isnan": "np.isnan",
    "isinf": "np.isinf",
    "signbit": "np.signbit",
    "copysign": "np.copysign",
} | {name: f"np.{name}" for name in ("sqrt", "floor", "ceil", "trunc", "rint")}
_ON_BOOLS: Final = {"add": "|", "maximum": "|", "bit_or": "|", "mul": "&", "minimum": "&", "bit_and": "&", "bit_xor": "^"}
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A function and the names of `definitions` that it uses."""

    name: str
    text: str
    needs: tuple[str, ...]


_DEFINITIONS: dict[str, Rendered] = {"fma": Rendered("fma", _FMA, ())}


class _Renderer(python.Renderer):
    """Patterns of Numba."""

    reserved: ClassVar[frozenset[str]] = python.Renderer.reserved.union(
        dir(numba_library),
        dir(builtins),
        ("np", "ctypes", "njit", "intrinsic", "inf", "nan", "uint16", "uint32", "uint64", "BLOCK"),
    )

    def __init__(self, name: str, shifted: Collection[Buffer] = ()) -> None:
        super().__init__(name)
        self.needs: dict[str, None] = {}
        self.named: list[Var] = []  # whose ids are keys of names
        self.first = self.lane = ""  # of the reduction that is being written: its group of lanes, and one of them
        self.starts = {buffer: self.fresh(f"{buffer.name}_start") for buffer in sorted(shifted, key=lambda b: b.name)}

    def fresh(self, hint: str) -> str:
        """Names of functions of the module begin with an underscore; no other does."""
        return super().fresh(hint.lstrip("_"))

    def rendered(self, text: str) -> Rendered:
        return Rendered(self.name, _DECORATOR + text, tuple(self.needs))

    def need(self, name: str, make: Callable[[], Rendered]) -> str:
        """A name that `definitions` defines."""
        if name not in _DEFINITIONS:
            _DEFINITIONS[name] = make()
        self.needs[name] = None
        return name

    def call(self, name: str, *x: str) -> str:
        """A call of a function of the library."""
        return f"{self.need(name, lambda: _library_function(name))}({', '.join(x)})"

    # --- patterns

    def arguments(self) -> Iterable[str]:
        for parameter, name in self.parameters.items():
            yield name
            if parameter in self.starts:
                yield self.starts[parameter]  # type: ignore[index]

    def element(self, buffer: Buffer, index: Index) -> str:
        return f"{self.parameters[buffer]}[{self.index(index, self.starts.get(buffer, ''))}]"

    def constant(self, value: Any, dtype: DType) -> str:
        if dtype is dtypes.bool_:
            return repr(bool(value))
        return (
            self.call(f"narrow_{dtype.name}", f"float32({float(value)!r})")
            if dtype.is_reduced
            else super().constant(value, dtype)
        )

    def scalar(self, scalar: Scalar) -> str:
        name = self.parameters[scalar]
        return self.call(f"narrow_{scalar.dtype.name}", name) if scalar.dtype.is_reduced else name

    def cast(self, x: str, source: DType, target: DType) -> str:
        if source.is_reduced:
            return self.cast(self.call(f"widen_{source.name}", x), dtypes.float32, target)
        if target.is_reduced:
            return self.call(f"narrow_{target.name}", self.cast(x, source, dtypes.float32))
        if source is target:
            return x
        if target is dtypes.bool_:
            return f"({x} != 0)"
        if source.is_floating_point and target.category == dtypes.INTEGER:
            wide = dtypes.int64 if target is dtypes.int64 else dtypes.int32
            return self.cast(self.call(f"truncated_{wide.name}", x), wide, target)
        return f"{target.name}({x})"

    def applied(self, e: Apply, x: Sequence[str]) -> str:
        source = e.operands[-1].dtype
        if e.operation == "bitcast":
            return x[0] if source.is_reduced and e.dtype.is_reduced else f"{_stored(source)}({x[0]}).view({_stored(e.dtype)})"
        if e.operation == "libm":
            return self.libm(e.attribute or "", source, x)
        if e.operation in ("libm_where", "elementary_where", "div_where"):
            condition, *operands, usual = x
            if e.operation == "div_where":
                rare = f"{operands[0]} / {operands[1]}"
            elif e.operation == "libm_where":
                rare = self.libm(e.attribute or "", source, operands)
            else:
                rare = self.elementary(f"_complete_{e.attribute}", e.dtype, operands, lambda *p: complete(e.attribute or "", *p))
            return f"({rare} if {condition} else {usual})"
        if e.operation in ELEMENTARY and e.dtype.is_floating_point:
            return self.elementary(f"_{e.operation}", e.dtype, x, lambda *p: expand(Apply(e.operation, p, e.dtype)))
        return super().applied(e, x) if e.operation != "ldexp" else self.call(f"ldexp_{e.dtype.name}", *x)

    def operation(self, name: str, dtype: DType, x: Sequence[str]) -> str:
        integer = dtype.category == dtypes.INTEGER
        if name == "select":
            return f"({x[1]} if {x[0]} else {x[2]})"
        if dtype is dtypes.bool_ and name in _ON_BOOLS:
            return f"({x[0]} {_ON_BOOLS[name]} {x[1]})"
        if name == "bit_not" and dtype is dtypes.bool_:
            return f"(not {x[0]})"
        if name == "fma":
            return f"{self.need('fma', lambda: _DEFINITIONS['fma'])}({', '.join(x)})"
        if dtype is dtypes.int64 and name in ("add", "sub", "mul"):
            return self.call(name, *x)
        if name in ("shl", "shr"):
            return self.call(name, *x, str(8 * dtype.itemsize))
        if name in ("floor_divide", "remainder") and not integer:
            return self.call(f"float_{name}", *x)
        if name == "fmod" and not integer:
            return f"np.fmod({', '.join(x)})"
        if name in _OF_NUMPY:
            text = f"{_OF_NUMPY[name]}({', '.join(x)})"
        elif name in python.INFIX or name in python.PREFIX:
            text = super().operation(name, dtype, x)
        else:
            return self.call("integer_power" if name == "pow" else name, *x)
        return f"{dtype.name}({text})" if integer and name not in _COMPARISONS else text

    def libm(self, name: str, dtype: DType, x: Sequence[str]) -> str:
        function = self.need(f"_libm_{name}_{dtype.name}", lambda: _c_function(name, dtype, len(x)))
        return f"{function}({', '.join([*x, *map(str, libm.further_arguments(name))])})"

    def elementary(self, name: str, dtype: DType, x: Sequence[str], define: Callable[..., Expr | None]) -> str:
        return f"{self.defined(name, dtype, len(x), define)}({', '.join(x)})"

    def defined(self, name: str, dtype: DType, arity: int, define: Callable[..., Expr | None]) -> str:
        """The name of a function that computes an expression of its operands."""
        full = f"{name}_{dtype.name}"
        return self.need(full, lambda: _defined(full, dtype, arity, define))

    def accumulate(self, target: str, dtype: DType, value: str) -> None:
        self.line(f"{target} = {self.operation('add', dtype, (target, value))}")

    # --- reductions

    def lanes(self, name: str, combine: str, dtype: DType, extent: str) -> None:
        combination = COMBINATIONS[combine]
        total = combination.total(dtype)
        if combination.in_blocks(dtype):
            self.line(f"{name} = np.zeros(LANES, {dtype.name})")
            self.line(f"{name}_totals = np.zeros(LANES)")
            if dtype is dtypes.float64:
                self.line(f"{name}_errors = np.zeros(LANES)")
            return
        self.line(f"{name} = np.zeros(LANES, {python.type_name(total)})")
        if combination.empty(total):
            self.line(f"{name}[:] = {self.constant(combination.empty(total), total)}")
        if combination.position:
            self.line(f"{name}_positions = np.zeros(LANES, int64)")

    def over(self, axis: str, extent: str) -> None:
        """By groups, a lane after the other.  The last group, where it is no full one, is a block of its own: that adds its elements to the
        totals as they are."""
        self.first, self.lane = self.fresh("first"), self.fresh("lane")
        self.line(f"for {self.first} in range(0, {extent}, LANES):")
        self.line(f"    for {self.lane} in range(min(LANES, {extent} - {self.first})):")
        self.line(f"        {axis} = {self.first} + {self.lane}")
        self.indent += 2

    def take(self, name: str, combine: str, dtype: DType, axis: str, value: Expr) -> None:
        target, combination = f"{name}[{self.lane}]", COMBINATIONS[combine]
        if combination.in_blocks(dtype):
            self.line(f"{target} += {self.expression(value)}")
        elif combination.position:
            text, found = self.expression(value), self.fresh("value")
            self.line(f"{found} = {text}")
            self.line(f"if {self.call('beats', found, target, self.beyond(combination, dtype))}:")
            self.line(f"    {target} = {found}")
            self.line(f"    {name}_positions[{self.lane}] = {axis}")
        else:
            self.combine(target, combination, builder.cast(value, combination.total(dtype)))

    def taken_all(self, items: Sequence[tuple[str, str, DType]], extent: str) -> None:
        sums = [(name, dtype) for name, combine, dtype in items if COMBINATIONS[combine].in_blocks(dtype)]
        if sums:
            self.line(f"    if ({self.first} + LANES) % BLOCK == 0 or {self.first} + 2 * LANES > {extent}:")
        for name, dtype in sums:
            exact = (f"{name}_errors",) if dtype is dtypes.float64 else ()
            self.line(f"        {self.call('add_block_exactly' if exact else 'add_block', name, f'{name}_totals', *exact)}")

    def beyond(self, combination: Combination, dtype: DType) -> str:
        """The function that compares for an extreme."""
        assert combination.beyond is not None
        return self.defined(f"_{combination.name}_beyond", dtype, 2, combination.beyond)

    def combine(self, target: str, combination: Combination, value: Expr) -> None:
        total = self.written(target, value.dtype)
        self.line(f"{target} = {self.expression(combination.combine(total, value))}")

    def written(self, text: str, dtype: DType) -> Var:
        """A value that has a text already."""
        var = Var(text, dtype)
        self.named.append(var)
        self.names[id(var)] = text
        return var

    def result(self, name: str, combine: str, dtype: DType, target: DType) -> str:
        combination = COMBINATIONS[combine]
        total = combination.total(dtype)
        if combination.in_blocks(dtype):
            if dtype is dtypes.float64:
                return self.cast(self.call("corrected_sum", f"{name}_totals", f"{name}_errors"), total, target)
            return self.cast(self.call("sum_of_lanes", f"{name}_totals"), total, target)
        if combination.position:
            found = self.call("extreme_position", name, f"{name}_positions", self.beyond(combination, dtype))
            return self.cast(found, dtypes.int64, target)
        half, k = self.fresh("half"), self.fresh("k")
        self.line(f"for {half} in (8, 4, 2, 1):")
        self.line(f"    for {k} in range({half}):")
        self.indent += 2
        self.combine(f"{name}[{k}]", combination, self.written(f"{name}[{k} + {half}]", total))
        self.indent -= 2
        return self.cast(f"{name}[0]", total, target)


def _stored(dtype: DType) -> str:
    return "uint16" if dtype.is_reduced else dtype.name


# --- definitions


@cache
def _library_function(name: str) -> Rendered:
    """A function of the library, with those that it calls."""
    function = getattr(numba_library, name)
    called = [n for n in function.__code__.co_names if inspect.isfunction(getattr(numba_library, n, None))]
    for other in called:
        _DEFINITIONS.setdefault(other, _library_function(other))
    plain = name in ("convolve", "expect", "memory", "elements")
    return Rendered(name, ("" if plain else _DECORATOR) + inspect.getsource(function), tuple(called))


def _c_function(name: str, dtype: DType, arity: int) -> Rendered:
    symbol, kind = libm.symbol(name, dtype), f"ctypes.c_{'float' if dtype is dtypes.float32 else 'double'}"
    function = f"_libm_{name}_{dtype.name}"
    if name.startswith(scipy_functions.PREFIX):
        taken = ", ".join([*[kind] * (1 + arity), "ctypes.c_int"])
        address = f"get_cython_function_address({scipy_functions.MODULE!r}, {scipy_functions.cython_function(name, dtype, arity).name!r})"
        return Rendered(function, f"{function} = ctypes.CFUNCTYPE({taken})({address})\n", ())
    lines = [f"{function} = ctypes.CDLL({libm.library_name()!r}).{symbol}"]
    lines += [f"{function}.restype, {function}.argtypes = {kind}, [{kind}] * {arity}", ""]
    return Rendered(function, "\n".join(lines), ())


def _defined(name: str, dtype: DType, arity: int, define: Callable[..., Expr | None]) -> Rendered:
    """A function of operands of one dtype, from its definition in terms of operations."""
    renderer = _Renderer(name)
    renderer.name = name
    parameters = [Var(f"x{i}", dtype) for i in range(arity)]
    for p in parameters:
        renderer.names[id(p)] = renderer.fresh(p.name)
    definition = define(*parameters)
    assert definition is not None, name
    renderer.line(f"return {renderer.expression(definition)}")
    comment = f"# {dtype.name}"
    return renderer.rendered(renderer.function((renderer.names[id(p)] for p in parameters), comment))


def definitions(names: Iterable[str]) -> dict[str, str]:
    """The sources of `names` and of what they use, in the order in which they have to stand."""
    found: dict[str, str] = {}
    for name in names:
        rendered = _DEFINITIONS[name] if name in _DEFINITIONS else _library_function(name)
        found.update(definitions(rendered.needs))
        found[name] = rendered.text
    return found


# --- nests


def render(nest: Nest, shifted: frozenset[Buffer]) -> Rendered:
    """The source of a nest.  Equal sources mean equal functions."""
    renderer = _Renderer(nest.name, shifted)
    return renderer.rendered(renderer.nest(nest))


_lock = lock_held_over_forks()
_namespace: dict[str, Any] = {}
_loaded: dict[str, Callable[..., int]] = {}


def load(rendered: Rendered) -> Callable[..., int]:
    """What Numba makes of a source."""
    with _lock:
        found = _loaded.get(rendered.text)
        if found is None:
            for name, text in {"": HEADER, **definitions(rendered.needs)}.items():
                if name not in _namespace:
                    exec(compile(text, f"<numba {name}>", "exec"), _namespace)
                    _namespace.setdefault(name, None)
            exec(compile(rendered.text, f"<nest {rendered.name}>", "exec"), _namespace)
            found = _loaded[rendered.text] = _namespace.pop(rendered.name)
    return found
