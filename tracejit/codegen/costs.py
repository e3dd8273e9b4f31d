"""What computing one element of a node costs, in units of an addition.

The numbers come from the scalar lowering itself, so no table of primitives is needed.
"""

from __future__ import annotations

from typing import Any, Final

from tracejit.codegen.expr import Expr, Var, builder
from tracejit.codegen.values import Values
from tracejit.codegen.weights import total_weight
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind
from tracejit.ir.graph import Literal, Node

__all__ = ["CHEAP_LOAD", "EXPENSIVE", "compute_dtype", "operation_cost"]

EXPENSIVE: Final = 8  # from here on a value is kept rather than computed again
CHEAP_LOAD: Final = 3  # from here on a value that lies in memory anyway is loaded rather than computed again
_known: dict[tuple[Any, ...], int] = {}


def compute_dtype(values: Values, node: Node) -> DType:
    """The dtype that Python scalars beside tensors take in an elementwise node."""
    skip = 1 if "condition first" in node.op.traits else 0
    for o in node.operands[skip:]:
        if values.is_tensor(o):
            return values.aval(o).dtype  # type: ignore[arg-type]
    return values.aval(node.outputs[0]).dtype


def operation_cost(values: Values, node: Node) -> int:
    """The cost of one element, operands excluded."""
    if node.op.kind is not Kind.ELEMENTWISE:
        return 0 if node.op.kind in (Kind.CREATION, Kind.MOVEMENT) else 2
    dtype = compute_dtype(values, node)
    kinds: tuple[Literal | DType | None, ...] = tuple(
        o if o is None or isinstance(o, Literal) else values.aval(o).dtype if values.is_tensor(o) else dtype
        for o in node.operands
    )
    key = (node.op.name, kinds, node.attributes, dtype)
    cost = _known.get(key)
    if cost is None:
        operands: list[Expr | None] = []
        for kind in kinds:
            if kind is None or isinstance(kind, DType):
                operands.append(None if kind is None else Var("x", kind))
            else:
                operands.append(builder.const(kind.value, dtype))
        assert node.op.lowering is not None
        result = node.op.lowering(builder, *operands, **node.attrs)
        cost = _known[key] = total_weight([result])
    return cost
