"""What vjp rules add to a graph, asked once for all nodes that are alike.

A rule sees avals, numbers and attributes, and no contents.  So for nodes of one primitive that have the same of these, it adds the same
nodes of other values: a loop that was unrolled has as many as it had steps.  The nodes that a rule has added are kept, by what it was
given, and added again under other names.  What adds more than nodes (a constant), or reads what it was not given, is asked each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracejit.core.op import REGISTRY, Op, VjpContext
from tracejit.ir.graph import Literal, Node
from tracejit.ir.tracer import Tracer, TracingInterpreter

__all__ = ["PullBacks"]

_ACC: Final = REGISTRY["acc"]
Fit = Callable[[Node, VjpContext, tuple[Any, ...]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Added:
    """nodes: those that a rule has added; values in operands are numbers, of what it was given and then of what was added in order.  avals:
    those of the outputs of each node.  results: the values of the cotangents, with their avals; None where there is none."""

    nodes: tuple[tuple[Op, tuple[Any, ...], tuple[tuple[str, Hashable], ...]], ...]
    avals: tuple[tuple[Any, ...], ...]
    results: tuple[tuple[int, Any, bool] | None, ...]


class PullBacks:
    """The rules of one backward graph."""

    def __init__(self, interpreter: TracingInterpreter) -> None:
        self._interpreter = interpreter
        self._known: dict[Any, _Added | None] = {}  # None of what was met once, or has to be asked each time
        self._asked: set[Any] = set()

    def of(self, node: Node, context: VjpContext, arriving: Sequence[Tracer | None], fit: Fit) -> tuple[Any, ...]:
        """The cotangents of the operands of `node`.  fit: makes them of the answer of the rule."""
        rule = node.op.vjp_rule
        assert rule is not None

        def asked() -> tuple[Any, ...]:
            answer = rule(context, *arriving)
            return fit(node, context, answer if isinstance(answer, tuple) else (answer,))

        about = node.op, node.attributes, context.needs, context.avals
        cotangents = [y for x in (*context.accumulated, *arriving) for y in (x if isinstance(x, tuple) else (x, None))]
        return self._once(about, (*context.inputs, *context.outputs, *cotangents), node.line, asked)

    def sum(self, previous: Tracer | None, d: Tracer, line: str) -> Tracer:
        """What cotangents have come to with another one."""
        (total,) = self._once((), (previous, d), line, lambda: (_ACC.of(previous, d),))
        return total  # type: ignore[no-any-return]

    def _once(
        self, about: tuple[Hashable, ...], operands: Sequence[Any], line: str, action: Callable[[], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """What `action` makes of operands; it is the same for all that is equal `about` them, and for operands of one kind."""
        given: dict[int, int] = {}
        kinds: list[Any] = []
        for x in operands:
            if isinstance(x, Tracer):
                kinds += (type(x), x.aval, x.weak, given.setdefault(x.id, len(given)))
            else:
                kinds.append(None if x is None else Literal(x))
        key = about, tuple(kinds)
        known = self._known.get(key)
        if known is not None:
            return self._again(known, list(given), line)
        builder = self._interpreter.builder
        before, constants = len(builder.nodes), len(builder.constants)
        result = action()
        if key not in self._asked:
            self._asked.add(key)
        elif len(builder.constants) == constants:
            self._known[key] = self._added(builder.nodes[before:], given, result)
        return result

    def _added(self, nodes: Sequence[Node], given: dict[int, int], result: Sequence[Any]) -> _Added | None:
        number = dict(given)
        avals = self._interpreter.builder.avals
        for node in nodes:
            if any(type(x) is int and x not in number for x in node.operands):
                return None
            for v in node.outputs:
                number[v] = len(number)
        if not all(x is None or (type(x) is Tracer and x.id in number) for x in result):
            return None
        return _Added(
            tuple([(n.op, tuple([number[x] if type(x) is int else x for x in n.operands]), n.attributes) for n in nodes]),
            tuple([tuple([avals[v] for v in n.outputs]) for n in nodes]),
            tuple([None if x is None else (number[x.id], x.aval, x.weak) for x in result]),
        )

    def _again(self, added: _Added, values: list[int], line: str) -> tuple[Any, ...]:
        builder = self._interpreter.builder
        nodes, known = builder.nodes, builder.avals
        for (op, operands, attributes), avals in zip(added.nodes, added.avals, strict=True):
            outputs = tuple(range(builder.unused_id, builder.unused_id + len(avals)))
            builder.unused_id += len(avals)
            known.update(zip(outputs, avals, strict=True))
            nodes.append(Node(op, tuple([values[x] if type(x) is int else x for x in operands]), attributes, outputs, line))
            values += outputs
        interpreter = self._interpreter
        return tuple([None if x is None else Tracer(interpreter, values[x[0]], x[1], x[2]) for x in added.results])
