"""Nests written loop by loop, and who writes them: `@builds(form)` before a builder.

A form is what primitives name in `Op.nest`, or the kind that implies one (core/op.py).  A builder(writer, values, node, code) appends the
loops of a node to a `Writer`; `code` is the exit for data that make it raise.  This module knows no form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind
from tracejit.core.shapes import product
from tracejit.ir.graph import Node
from tracejit.ir.layouts import Strided
from tracejit.loops.bounds import bounded
from tracejit.loops.expressions import Expr, Load, Var
from tracejit.loops.language import Axis, Buffer, For, Index, Nest, Statement, Store
from tracejit.lowering.elements import Parameters
from tracejit.lowering.regions import Moving
from tracejit.lowering.schedule import Argument, Scheduled
from tracejit.lowering.spaces import collapsed
from tracejit.lowering.values import Values

__all__ = ["BUILDERS", "Writer", "builds", "few_loops", "layouts_of", "spread"]

Shape = tuple[int, ...]
Form = str | Kind


@dataclass(slots=True, eq=False)
class Writer:
    """Statements of one nest, with its parameters."""

    values: Values
    parameters: Parameters = field(default_factory=Parameters)
    body: list[Statement] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    names: int = 0
    exits: bool = False

    def axis(self) -> Axis:
        self.names += 1
        return Axis(f"i{self.names}")

    def var(self, dtype: DType) -> Var:
        self.names += 1
        return Var(f"v{self.names}", dtype)

    def index(self, layout: Strided, axes: tuple[Axis, ...]) -> Index:
        size, stride = self.parameters.size, self.parameters.stride
        steps = zip(axes, layout.strides, strict=True)
        return Index(tuple((a, stride(s) if a is axes[-1] else size(s)) for a, s in steps if s))

    def buffer(self, layout: Strided, dtype: DType, write: bool = False) -> Buffer:
        (self.writes if write else self.reads).add(layout.root)
        return self.parameters.buffer(layout.root, layout.offset, dtype)

    def loops(
        self, shape: Shape, inner: Callable[[tuple[Axis, ...]], tuple[Statement, ...]], vector: bool = True
    ) -> Statement | None:
        """Nested loops over `shape`, the last one of vectors; None for no iterations."""
        if 0 in shape:
            return None
        axes = tuple(self.axis() for _ in shape)
        body = inner(axes)
        first = True
        for axis, s in zip(reversed(axes), reversed(shape), strict=True):
            body = (For(axis, self.parameters.size(s), body, vector and first),)
            first = False
        if len(body) == 1:
            return body[0]
        return For(self.axis(), 1, body)

    def over(self, shape: Shape, inner: Callable[[tuple[Axis, ...]], tuple[Statement, ...]], vector: bool = True) -> None:
        statement = self.loops(shape, inner, vector)
        if statement is not None:
            self.body.append(statement)

    def transfer(
        self, shape: Shape, target: Strided, source: Strided | Expr, dtype: DType, moving: Sequence[Moving] = ()
    ) -> None:
        """target[...] = source[...], over as few loops as the layouts allow.  moving: further positions in the target."""
        sizes, (layout, *sources) = few_loops(shape, [target] + ([source] if isinstance(source, Strided) else []))
        to = self.buffer(target, dtype, write=True)

        def store(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
            value = source
            if isinstance(value, Strided):
                value = Load(self.buffer(value, dtype), self.index(sources[0], axes))
            return (Store(to, Index(self.index(layout, axes).terms, 0, further), value),)

        further: Expr | None = None
        for step in moving:
            _, position = bounded(self.moving_position(step), self.parameters.number(step.size))
            part = position * self.parameters.number(step.stride)
            further = part if further is None else further + part
        self.over(sizes, store)

    def moving_position(self, moving: Moving) -> Expr:
        """A position that is a number of the call, or that the program has in memory."""
        if not self.values.is_tensor(moving.operand):
            return self.parameters.scalar(moving.operand, dtypes.int64)
        layout = self.values.strided[moving.operand]
        return Load(self.buffer(layout, dtypes.int64), Index())

    def finish(self, name: str) -> Scheduled:
        p = self.parameters
        nest = Nest(name, tuple(p.buffers), tuple(p.sizes), tuple(p.scalars.values()), tuple(self.body))
        arguments = tuple(Argument(root, offset) for root, offset in p.buffers.values())
        return Scheduled(
            nest,
            arguments,
            tuple(p.sizes.values()),
            tuple(v for v, _ in p.scalars),
            frozenset(self.reads),
            frozenset(self.writes),
            self.exits,
            {},
        )


def few_loops(shape: Shape, layouts: Sequence[Strided]) -> tuple[Shape, list[Strided]]:
    """As few loops as the layouts allow, and the layouts over these."""
    dims = [d for d, s in enumerate(shape) if s != 1]
    extents = [shape[d] for d in dims]
    runs = collapsed(extents, {0}, [dict(enumerate(layout.strides[d] for d in dims)) for layout in layouts], set())
    sizes = tuple(product(extents[a] for a in run) for run in runs)
    return sizes, [Strided(x.root, x.offset, tuple(x.strides[dims[run[-1]]] for run in runs)) for x in layouts]


def layouts_of(values: Values, node: Node) -> list[Strided]:
    return [values.strided[o] for o in node.operands if values.is_tensor(o)]  # type: ignore[index]


def spread(layout: Strided, shape: Shape, target: Shape) -> Strided:
    """The layout of a value of `shape` broadcast to `target`."""
    lead = len(target) - len(shape)
    return Strided(
        layout.root, layout.offset, (*(0,) * lead, *(0 if s == 1 else t for s, t in zip(shape, layout.strides, strict=True)))
    )


Build = Callable[[Writer, Values, Node, int], None]
BUILDERS: Final[dict[Form, Build]] = {}


def builds(form: Form) -> Callable[[Build], Build]:
    """Declare what writes the nests of a form."""

    def declare(build: Build) -> Build:
        BUILDERS[form] = build
        return build

    return declare
