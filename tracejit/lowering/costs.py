"""What computing one element of a node costs, in units of an addition.

The numbers come from the scalar lowering itself, so no table of primitives is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind, Op
from tracejit.core.symbolic import cached
from tracejit.ir.graph import Literal, Node, Operand
from tracejit.loops.expressions import Expr, Var, builder
from tracejit.loops.weights import total_weight
from tracejit.lowering.values import Values

__all__ = ["CHEAP_LOAD", "EXPENSIVE", "LONG_CHAIN", "AvalsOf", "compute_dtype", "operation_cost", "row_cost"]

EXPENSIVE: Final = 8  # from here on a value is kept rather than computed again
LONG_CHAIN: Final = 6  # from here on a value and all it is computed from are kept, where a row of them fits into near memory
CHEAP_LOAD: Final = 3  # from here on a value that lies in memory anyway is loaded rather than computed again


@dataclass(frozen=True, slots=True)
class AvalsOf:
    """The avals of a graph, for costs of its nodes."""

    avals: Mapping[int, Aval | ScalarAval]

    def aval(self, v: int) -> Aval:
        """The aval of a tensor."""
        aval = self.avals[v]
        assert isinstance(aval, Aval)
        return aval

    def is_tensor(self, x: Operand) -> bool:
        return type(x) is int and isinstance(self.avals[x], Aval)


def compute_dtype(values: Values | AvalsOf, node: Node) -> DType:
    """The dtype that Python scalars beside tensors take in an elementwise node."""
    skip = 1 if "condition first" in node.op.traits else 0
    for o in node.operands[skip:]:
        if values.is_tensor(o):
            return values.aval(o).dtype  # type: ignore[arg-type]
    return values.aval(node.outputs[0]).dtype


def operation_cost(values: Values | AvalsOf, node: Node) -> int:
    """The cost of one element, operands excluded."""
    if node.op.kind is not Kind.ELEMENTWISE:
        return 0 if node.op.kind in (Kind.CREATION, Kind.MOVEMENT) else 2
    dtype = compute_dtype(values, node)
    kinds: tuple[Literal | DType | None, ...] = tuple(
        o if o is None or isinstance(o, Literal) else values.aval(o).dtype if values.is_tensor(o) else dtype
        for o in node.operands
    )
    return _lowered_cost(node.op, kinds, node.attributes, dtype)


@cached(maxsize=4096)
def _lowered_cost(
    op: Op, kinds: tuple[Literal | DType | None, ...], attributes: tuple[tuple[str, Any], ...], dtype: DType
) -> int:
    """The cost of what an operation is lowered to, for operands of these kinds."""
    operands: list[Expr | None] = []
    for kind in kinds:
        if kind is None or isinstance(kind, DType):
            operands.append(None if kind is None else Var("x", kind))
        else:
            operands.append(builder.const(kind.value, dtype))
    assert op.lowering is not None
    return total_weight([op.lowering(builder, *operands, **dict(attributes))])


def row_cost(values: Values, number: int, again: Callable[[int], bool], at_hand: Container[int], row: int) -> int:
    """The cost of one element of a node and of what it is computed from, as far as `again` says so; a load costs as much as an addition.

    at_hand: nodes whose elements only need loading.  Operands of fewer than `row` elements cost nothing: a row has one of them."""
    cost, stack, seen = 0, [number], set()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n in at_hand:
            cost += 1
            continue
        cost += operation_cost(values, values.nodes[n])
        for o in values.nodes[n].operands:
            if values.is_tensor(o):
                source = values.producer.get(values.root(o), -1)  # type: ignore[arg-type]
                if source >= 0 and again(source):
                    stack.append(source)
                elif values.aval(o).size >= row:  # type: ignore[arg-type]
                    cost += 1
    return cost
