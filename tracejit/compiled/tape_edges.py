"""Statements of an entry that give tensors their positions on the tape: written inputs, tensors whose graph a backward pass inside
the call has freed, and output views.

Executable creates the node of the call itself, `n`.  An edge leads to a position on the tape, (node, index of its output).  All
edges are evaluated before any tensor gets a new position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from tracejit.capture.recording.entry import Alias, TensorInput, ViewPosition, WrittenInput
from tracejit.capture.recording.runs import Runs
from tracejit.core.interpreter import bind, state
from tracejit.ir.graph import Literal
from tracejit.ops.movement.views import detach
from tracejit.replay.ir import Constant, Define, Evaluate, Expr, Name, SetAttribute, Statement, tuple_of

__all__ = ["consumed", "edge", "edges_of_written_inputs", "new_object", "new_tensor", "view_maker"]

_NONE = Constant(None)
_DEFAULTS: dict[str, Expr] = {
    "_requires_grad": Constant(False), "_node": _NONE, "_index": Constant(0), "_storage": _NONE, "_base": _NONE, "_grad": _NONE,
    "_hooks": _NONE,
}  # fmt: skip
"""The slots of a new tensor, without `_array`."""


def edge(facts: TensorInput, tensor: Expr) -> Expr:
    """The edge to an input: where its gradient goes."""
    if facts.is_leaf:
        return tuple_of(tensor, 0)
    return tuple_of(tensor.get("_node"), tensor.get("_index"))


def consumed(
    node: str, suffix: str, reached: tuple[int, ...], inputs: Sequence[TensorInput], runs: Runs, environment: dict[str, Any]
) -> list[Statement]:
    """Statements that create `node`, a ConsumedNode with edges to the inputs at the positions `reached`."""
    environment[f"needs{suffix}"] = needs = tuple([k in reached for k in range(len(inputs))])
    edges = [edge(facts, facts.expression) if need else Constant(None) for facts, need in zip(inputs, needs, strict=True)]
    return new_object(
        node,
        "ConsumedNode",
        hooks=Constant(None),
        sequence=Name("next_sequence").call(),
        edges=runs.whole(edges, f"consumed{suffix}_"),
        needs=Name(f"needs{suffix}"),
    )


def new_object(name: str, cls: str, **attributes: Expr) -> list[Statement]:
    """Statements that create an instance of a class with slots.  cls: the name of the class in the entry's namespace."""
    variable = Name(name)
    return [
        Define(name, _new(cls)),
        *[SetAttribute(variable, attribute, value) for attribute, value in attributes.items()],
    ]


@cache
def _new(cls: str) -> Expr:
    return Name("new").call(Name(cls))


def new_tensor(name: str, array: Expr, **others: Expr) -> list[Statement]:
    """Statements that create a tensor around an array.  others: slots that differ from the defaults."""
    return new_object(name, "Tensor", _array=array, **(_DEFAULTS | others))


def edges_of_written_inputs(written: Sequence[WrittenInput], inputs: Sequence[TensorInput], first: int) -> list[Statement]:
    """Statements that give inputs with a differentiable write their new positions: outputs of `n` from number `first` on, or the
    node `used<position>` if their graph was freed inside the call."""
    changed = [fact for fact in written if fact.has_new_edge and fact.consumed is None]
    edges = [(fact, "n", first + k) for k, fact in enumerate(changed)]
    edges += [(fact, f"used{fact.index}", 0) for fact in written if fact.has_new_edge and fact.consumed is not None]
    before: list[Statement] = []
    after: list[Statement] = []
    for fact, node, index in edges:
        k, t = fact.index, inputs[fact.index].expression
        if inputs[k].requires_grad:
            before += [Define(f"former{k}", t.get("_node")), Define(f"position{k}", t.get("_index"))]
            moved = Name("move_retained").call(Name(f"former{k}"), Name(f"position{k}"), Name(node), index)
            after.append(Evaluate(moved))
        before += [SetAttribute(t, "_node", Name(node)), SetAttribute(t, "_index", Constant(index))]
        before.append(SetAttribute(t, "_requires_grad", Constant(True)))
    return [*before, Evaluate(Name("rebound").call()), *after] if edges else []


def view_maker(alias: Alias, scalars: Mapping[int, int], on_tape: bool) -> Callable[..., Any]:
    """A function that creates an output view: make(owner of the memory, the program's scalar inputs, *tensors with the positions
    that the program has computed).  scalars: value of a scalar input -> its position.  on_tape: whether the views are recorded on
    the tape."""

    def make(owner: Any, numbers: tuple[Any, ...], *positions: Any) -> Any:
        computed = iter(positions)

        def given(x: Any) -> Any:
            if isinstance(x, ViewPosition):
                return next(computed)._array.item()
            return numbers[scalars[x]] if type(x) is int else x.value if isinstance(x, Literal) else None

        previous = state.grad_enabled
        try:
            state.grad_enabled = on_tape
            out = owner
            for op, operands, attributes in alias.views:
                out = bind(op, (out, *map(given, operands)), attributes)
            return detach(owner) if out is owner else out
        finally:
            state.grad_enabled = previous

    return make
