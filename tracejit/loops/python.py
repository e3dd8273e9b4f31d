"""Nest -> plain Python: the rendering that people read and that tests run un-jitted.

`render(nest)` gives the source of one function of 1-D NumPy arrays (buffers, then temporaries), ints (sizes) and NumPy scalars; it
returns 0, or the code of the exit that was taken.  `load(nest)` makes it callable.  It works on NumPy scalars, so that float32 stays
float32 and integers wrap, and each operation is the one of `loops/evaluate.py`.  `Lanes` spells out the order of reductions that
llvm/reductions.py emits.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops import evaluate
from tracejit.loops.combinations import COMBINATIONS, Rule, definition
from tracejit.loops.expressions import (
    ELEMENTARY,
    Apply,
    AxisValue,
    Const,
    Expr,
    Load,
    ScalarParam,
    SizeValue,
    Var,
    children,
    topological,
)
from tracejit.loops.language import (
    BLOCK,
    LANES,
    Buffer,
    Exit,
    Extent,
    For,
    Index,
    Interleaved,
    Let,
    Nest,
    Reduce,
    Scalar,
    Size,
    Statement,
    Store,
    chain,
)

__all__ = ["INFIX", "PREFIX", "Lanes", "Renderer", "load", "render", "type_name"]

INFIX: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
}
PREFIX: Final = {"neg": "-", "bit_not": "~"}


class Lanes:
    """The accumulators of one reduction over `count` elements: element i belongs to lane i % LANES.

    Elements of full groups of LANES are summed per lane in the value's dtype within blocks of BLOCK elements; at the end of a block each
    lane's sum is added to the lane's float64 total, for float64 values keeping the error of the addition.  Elements after the last
    full group are added to the totals directly.  Other combinations work on the lanes' totals throughout.  At the end lane k is combined
    with lane k + half, until one is left.
    """

    def __init__(self, combine: str, dtype: DType, count: int) -> None:
        self.combination = COMBINATIONS[combine]
        self.dtype = dtype
        self.full = count // LANES * LANES
        self.total_dtype = self.combination.total(dtype)
        self.combined = _function(self.combination.combine, self.total_dtype)
        beyond = self.combination.beyond
        self.beyond = None if beyond is None else _function(beyond, self.total_dtype)
        self.totals = [self.total_dtype.numpy.type(self.combination.empty(self.total_dtype)) for _ in range(LANES)]
        self.errors = [np.float64(0.0)] * LANES
        self.block = [dtype.numpy.type(0)] * LANES
        self.positions = [0] * LANES
        self.summing = self.combination.in_blocks(dtype)

    def take(self, i: int, value: Any) -> None:
        """Element i of the reduced axis."""
        lane = i % LANES
        if self.summing:
            if i >= self.full:
                self._fold(lane, value)
                return
            self.block[lane] = self.block[lane] + value
            if i + 1 == self.full or (i + 1) % BLOCK == 0:
                for k in range(LANES):
                    self._fold(k, self.block[k])
                self.block = [self.dtype.numpy.type(0)] * LANES
        elif self.combination.position:
            if self._beats(value, self.totals[lane]):
                self.totals[lane], self.positions[lane] = value, i
        else:
            self.totals[lane] = self.combined(self.totals[lane], evaluate.cast(value, self.total_dtype))

    def _fold(self, lane: int, value: Any) -> None:
        total, wide = self.totals[lane], np.float64(value)
        new = total + wide
        if self.dtype is dtypes.float64:
            seen = new - total
            self.errors[lane] = self.errors[lane] + ((total - (new - seen)) + (wide - seen))
        self.totals[lane] = new

    def _beats(self, new: Any, old: Any) -> bool:
        assert self.beyond is not None
        return bool(self.beyond(new, old) or (np.isnan(new) and not np.isnan(old)))

    def result(self) -> Any:
        """The combination of all lanes (or the position of the extreme), before it is rounded to the result's dtype."""
        values, positions = list(self.totals), list(self.positions)
        if self.summing and self.dtype is dtypes.float64:
            corrected = [t + e for t, e in zip(self.totals, self.errors, strict=True)]
            values = [t if np.isnan(e) else c for t, c, e in zip(self.totals, corrected, self.errors, strict=True)]
        half = LANES // 2
        while half:
            for k in range(half):
                if self.combination.position:
                    new, old = values[k + half], values[k]
                    equal = new == old or (np.isnan(new) and np.isnan(old))
                    if self._beats(new, old) or (equal and positions[k + half] < positions[k]):
                        values[k], positions[k] = new, positions[k + half]
                else:
                    values[k] = self.combined(values[k], values[k + half])
            half //= 2
        return np.int64(positions[0]) if self.combination.position else values[0]


def _converter(dtype: DType) -> Callable[[Any], Any]:
    """The function that a rendering calls by the dtype's name: of a Python number, a constant; of a NumPy scalar, astype."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return evaluate.cast(value, dtype)
        return dtype.numpy.type(np.float32(value) if dtype.is_reduced else value)

    return convert


def _bitcast(value: Any, dtype: str) -> Any:
    return value.view(dtype)


def _libm(name: str, *operands: Any) -> Any:
    return evaluate.apply("libm", name, dtypes.from_numpy_dtype(operands[0].dtype), *operands)


def _libm_where(name: str, condition: Any, x: Any, usual: Any) -> Any:
    return evaluate.apply("libm_where", name, dtypes.from_numpy_dtype(x.dtype), condition, x, usual)


def _elementary_where(name: str, condition: Any, *operands: Any) -> Any:
    dtype = dtypes.from_numpy_dtype(operands[-1].dtype)
    return evaluate.apply("elementary_where", name, dtype, condition, *operands)


def _operation(name: str) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        return evaluate.apply(name, None, dtypes.from_numpy_dtype(operands[-1].dtype), *operands)

    return call


def namespace(names: Sequence[str]) -> dict[str, Any]:
    """The globals of a rendering that uses operations `names`."""
    found: dict[str, Any] = {d.name if d is not dtypes.bool_ else "bool_": _converter(d) for d in dtypes.ALL}
    found.update({name: _operation(name) for name in names})
    found.update(Lanes=_lanes, bitcast=_bitcast, nan=float("nan"), inf=float("inf"))
    found.update(libm=_libm, libm_where=_libm_where, elementary_where=_elementary_where, groups=_groups, some=np.any)
    return found


def _groups(extent: int, lanes: int) -> Iterator[Any]:
    """The numbers of a loop's iterations, so many at a time."""
    return (np.arange(first, min(first + lanes, extent)) for first in range(0, extent, lanes))


def _lanes(combine: str, dtype: str, count: int) -> Lanes:
    return Lanes(combine, dtypes.from_numpy_dtype(dtype), count)


def type_name(dtype: DType) -> str:
    """What a dtype is called in sources."""
    return "bool_" if dtype is dtypes.bool_ else dtype.name


class Renderer:
    """Writes functions, line by line.  What is a pattern of one rendering (constants, conversions, operations, reductions) is a method of
    its own; these are those of plain Python, where names stand for functions of NumPy scalars.  `operations` are the names that the
    source calls."""

    reserved: ClassVar[frozenset[str]] = frozenset(
        {
            *evaluate.OPERATIONS,
            *ELEMENTARY,
            *(d.name for d in dtypes.ALL),
            "Lanes",
            "bitcast",
            "libm",
            "libm_where",
            "elementary_where",
        }
        | {"bool_", "groups", "range", "some", "nan", "inf"}
    )

    def __init__(self, name: str) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.width = 1  # lanes of the current loop: the axis of one with lanes is an array, and so is what is computed of it
        self.names: dict[int, str] = {}
        self.taken = set(self.reserved)
        self.operations: set[str] = set()
        self.name = self.fresh(name)
        self.parameters: dict[Buffer | Size | Scalar, str] = {}

    def fresh(self, hint: str) -> str:
        """A new identifier like `hint`."""
        base = re.sub(r"\W", "_", hint) or "v"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"_{base}"
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def nest(self, nest: Nest) -> str:
        """The function of a nest."""
        buffers = (*nest.buffers, *nest.temporaries)
        everything: tuple[Buffer | Size | Scalar, ...] = (*buffers, *nest.sizes, *nest.scalars)
        for parameter in everything:
            self.parameters[parameter] = self.fresh(parameter.name)
        self.statements(nest.body)
        self.line("return 0")
        types = ", ".join(f"{self.parameters[b]}: {b.dtype.name}[]" for b in buffers)
        return self.function(self.arguments(), f"# {types}" if types else "# no buffers")

    def arguments(self) -> Iterable[str]:
        """The names of the parameters."""
        return self.parameters.values()

    def function(self, parameters: Iterable[str], comment: str) -> str:
        """What was written, as a function."""
        return "\n".join([f"def {self.name}({', '.join(parameters)}):", f"    {comment}", *self.lines, ""])

    # --- expressions

    def extent(self, n: Extent) -> str:
        return self.parameters[n] if isinstance(n, Size) else str(n)

    def element(self, buffer: Buffer, index: Index) -> str:
        return f"{self.parameters[buffer]}[{self.index(index)}]"

    def index(self, index: Index, start: str = "") -> str:
        terms = [start] if start else []
        if index.offset != 0:
            terms.append(self.extent(index.offset))
        if index.dynamic is not None:
            target = self.names[id(index.dynamic)]
            terms.append(target if index.dynamic_stride == 1 else f"{target} * {self.extent(index.dynamic_stride)}")
        for axis, stride in index.terms:
            if stride == 0:
                continue
            terms.append(self.names[id(axis)] if stride == 1 else f"{self.names[id(axis)]} * {self.extent(stride)}")
        return " + ".join(terms) or "0"

    def expression(self, root: Expr) -> str:
        """Python text of an expression; what is used more than once gets a line of its own before."""
        order = topological([root])
        uses: dict[int, int] = {}
        for e in order:
            for c in children(e):
                uses[id(c)] = uses.get(id(c), 0) + 1
        local: list[int] = []
        for e in order:
            if isinstance(e, Var):
                if id(e) not in self.names:
                    raise ValueError(f"nest {self.name}: the variable {e.name!r} is used before a Let or Reduce names it")
                continue
            text = self.node(e)
            if e is not root and isinstance(e, Apply | Load) and (uses[id(e)] > 1 or len(text) > 100):
                name = self.fresh("t")
                self.line(f"{name} = {text}")
                text = name
            self.names[id(e)] = text
            local.append(id(e))
        result = self.names[id(root)]
        for key in local:
            del self.names[key]
        return result

    def node(self, e: Expr) -> str:
        if isinstance(e, Const):
            return self.constant(e.value.item(), e.dtype)
        if isinstance(e, Load):
            return self.element(e.buffer, e.index)
        if isinstance(e, ScalarParam):
            return self.scalar(e.scalar)
        if isinstance(e, SizeValue):
            return f"int64({self.parameters[e.size]})"
        if isinstance(e, AxisValue):
            return f"int64({self.names[id(e.axis)]})"
        assert isinstance(e, Apply), e
        return self.applied(e, [self.names[id(o)] for o in e.operands])

    def constant(self, value: Any, dtype: DType) -> str:
        return f"{type_name(dtype)}({value!r})"

    def scalar(self, scalar: Scalar) -> str:
        return self.parameters[scalar]

    def cast(self, x: str, source: DType, target: DType) -> str:
        return f"{type_name(target)}({x})"

    def applied(self, e: Apply, x: Sequence[str]) -> str:
        """An operation on operands that are written already."""
        if e.operation == "cast":
            return self.cast(x[0], e.operands[0].dtype, e.dtype)
        if e.operation == "bitcast":
            return f"bitcast({x[0]}, {e.dtype.name!r})"
        if e.operation in ("libm", "libm_where", "elementary_where"):
            return f"{e.operation}({e.attribute!r}, {', '.join(x)})"
        return self.operation(e.operation, e.operands[-1].dtype, x)

    def operation(self, name: str, dtype: DType, x: Sequence[str]) -> str:
        """An operation that its name and the dtype of its last operand tell."""
        if name in INFIX:
            return f"({x[0]} {INFIX[name]} {x[1]})"
        if name in PREFIX:
            return f"({PREFIX[name]}{x[0]})"
        self.operations.add(name)
        return f"{name}({', '.join(x)})"

    # --- statements

    def statements(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if isinstance(s, Let):
                text = self.expression(s.value)
                self.names[id(s.var)] = self.fresh(s.var.name)
                self.line(f"{self.names[id(s.var)]} = {text}")
            elif isinstance(s, Store):
                value = self.expression(s.value)
                if s.index.dynamic is not None:
                    self.names[id(s.index.dynamic)] = self.expression(s.index.dynamic)
                target = self.element(s.buffer, s.index)
                if s.accumulate:
                    self.accumulate(target, s.buffer.dtype, value)
                else:
                    self.line(f"{target} = {value}")
            elif isinstance(s, Exit):
                code = self.parameters[s.code] if isinstance(s.code, Scalar) else s.code
                condition = self.expression(s.condition)
                self.line(f"if some({condition}):" if self.width > 1 else f"if {condition}:")
                self.line(f"    return {code}")
            elif isinstance(s, Interleaved):
                self.statements(s.stores)
            elif isinstance(s, For):
                self.loop(s)
            else:
                self.reduce(s)

    def accumulate(self, target: str, dtype: DType, value: str) -> None:
        self.line(f"{target} += {value}")

    def loop(self, s: For) -> None:
        if s.tiles is not None:
            self.tiles(s, s.tiles.edge)
            return
        axis = self.names[id(s.axis)] = self.fresh(s.axis.name)
        extent = self.extent(s.extent)
        self.line(f"for {axis} in {f'groups({extent}, {s.lanes})' if s.lanes > 1 else f'range({extent})'}:")
        self.indent += 1
        self.width = s.lanes
        self.statements(s.body)
        if not s.body:
            self.line("pass")
        self.width = 1
        self.indent -= 1

    def tiles(self, s: For, edge: int) -> None:
        """The loops of a chain in the order of tiles."""
        (outer, *between, inner), lets = chain(s)
        rows, columns, indent = self.fresh("rows"), self.fresh("columns"), self.indent
        ranges = [(loop.axis, f"range({self.extent(loop.extent)})") for loop in between]
        for loop in (outer, *between):
            self.names[id(loop.axis)] = self.fresh(loop.axis.name)
        self.names[id(inner.axis)] = columns
        heads = [(rows, f"groups({self.extent(outer.extent)}, {edge})")]
        heads += [(self.names[id(axis)], values) for axis, values in ranges]
        heads += [(columns, f"groups({self.extent(inner.extent)}, {edge})"), (self.names[id(outer.axis)], rows)]
        for name, values in heads:
            self.line(f"for {name} in {values}:")
            self.indent += 1
        self.width = inner.lanes
        self.statements((*lets, *inner.body))
        self.width, self.indent = 1, indent

    def reduce(self, s: Reduce) -> None:
        extent = self.extent(s.extent)
        items = [(self.fresh(f"{var.name}_lanes"), combine, value.dtype) for var, combine, value in s.items]
        for item in items:
            self.lanes(*item, extent)
        axis = self.names[id(s.axis)] = self.fresh(s.axis.name)
        outside = self.indent
        self.over(axis, extent)
        self.statements(s.body)
        for (name, combine, dtype), (_, _, value) in zip(items, s.items, strict=True):
            self.take(name, combine, dtype, axis, value)
        self.indent = outside
        self.taken_all(items, extent)
        for item, (var, _, _) in zip(items, s.items, strict=True):
            result = self.result(*item, var.dtype)
            self.names[id(var)] = self.fresh(var.name)
            self.line(f"{self.names[id(var)]} = {result}")

    def over(self, axis: str, extent: str) -> None:
        """Begin the loop of a reduction."""
        self.line(f"for {axis} in range({extent}):")
        self.indent += 1

    def taken_all(self, items: Sequence[tuple[str, str, DType]], extent: str) -> None:
        """End it."""

    def lanes(self, name: str, combine: str, dtype: DType, extent: str) -> None:
        """Make accumulators for values of `dtype`."""
        self.line(f"{name} = Lanes({combine!r}, {dtype.name!r}, {extent})")

    def take(self, name: str, combine: str, dtype: DType, axis: str, value: Expr) -> None:
        """Give them the element that the loop is at."""
        self.line(f"{name}.take({axis}, {self.expression(value)})")

    def result(self, name: str, combine: str, dtype: DType, target: DType) -> str:
        """What they come to, rounded to `target`."""
        return f"{type_name(target)}({name}.result())"


def render(nest: Nest) -> str:
    """The Python source of a nest.  Equal sources mean equal functions."""
    return Renderer(nest.name).nest(nest)


def _defined(renderer: Renderer, source: str) -> Callable[..., Any]:
    """The function that a source of the renderer defines."""
    scope = namespace(sorted(renderer.operations))
    exec(compile(source, f"<nest {renderer.name}>", "exec"), scope)
    return scope[renderer.name]  # type: ignore[no-any-return]


@cache
def _function(rule: Rule, dtype: DType) -> Callable[[Any, Any], Any]:
    """A rule of a combination on NumPy scalars."""
    renderer, (*operands, root) = Renderer("rule"), definition(rule, dtype)
    for x in operands:
        renderer.names[id(x)] = renderer.fresh(x.name)
    renderer.line(f"return {renderer.expression(root)}")
    return _defined(renderer, renderer.function((renderer.names[id(x)] for x in operands), f"# {dtype.name}"))


def load(nest: Nest) -> Callable[..., int]:
    """The rendering as a function, run as it stands on NumPy arrays."""
    renderer = Renderer(nest.name)
    function = _defined(renderer, renderer.nest(nest))

    def run(*arguments: Any) -> int:
        with np.errstate(all="ignore"):
            return int(function(*arguments))

    return run
