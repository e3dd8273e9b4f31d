"""The places on the tape that an entry gives: statements for inputs that the program has changed, for what a backward pass inside has
used up, and for results that are views.

The program's own node, `n`, is made by the Executable; edges are expressions, read before any tensor gets another place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracejit.capture.entry import Alias, TensorInput, WrittenInput
from tracejit.capture.runs import Runs
from tracejit.core.interpreter import bind, state
from tracejit.ir.graph import Literal
from tracejit.ops.movement.views import detach

__all__ = ["consumed", "edge", "places_of_inputs", "view_maker"]


def edge(facts: TensorInput, tensor: str) -> str:
    """The expression of the place where the gradient of an input goes."""
    return f"({tensor}, 0)" if facts.is_leaf else f"({tensor}._node, {tensor}._index)"


def consumed(
    node: str, suffix: str, reached: tuple[int, ...], inputs: Sequence[TensorInput], runs: Runs, environment: dict[str, Any]
) -> list[str]:
    """Statements that make `node`, which leads to the inputs at the positions `reached`, a ConsumedNode."""
    environment[f"needs{suffix}"] = needs = tuple([k in reached for k in range(len(inputs))])
    edges = [edge(facts, facts.expression) if need else "None" for facts, need in zip(inputs, needs, strict=True)]
    return [
        f"{node} = new(ConsumedNode)", f"{node}.hooks = None", f"{node}.sequence = next_sequence()",
        f"{node}.edges = {runs.whole(edges, f'consumed{suffix}_')}", f"{node}.needs = needs{suffix}",
    ]  # fmt: skip


def places_of_inputs(written: Sequence[WrittenInput], inputs: Sequence[TensorInput], first: int) -> list[str]:
    """Statements that give inputs that a differentiable write has changed their new places: outputs of `n` from number `first` on, or the
    node `used<position>` where their graph is used up."""
    changed = [fact for fact in written if fact.placed and fact.consumed is None]
    places = [(fact, "n", first + k) for k, fact in enumerate(changed)]
    places += [(fact, f"used{fact.index}", 0) for fact in written if fact.placed and fact.consumed is not None]
    before, after = [], []
    for fact, node, index in places:
        k, t = fact.index, inputs[fact.index].expression
        if inputs[k].requires_grad:
            before += [f"former{k} = {t}._node", f"position{k} = {t}._index"]
            after.append(f"move_retained(former{k}, position{k}, {node}, {index})")
        before += [f"{t}._node = {node}", f"{t}._index = {index}", f"{t}._requires_grad = True"]
    return [*before, "rebound()", *after] if places else []


def view_maker(alias: Alias, scalars: Mapping[int, int], on_tape: bool) -> Callable[[Any, tuple[Any, ...]], Any]:
    """A function that makes an aliasing output from the tensor that owns its memory."""

    def make(owner: Any, numbers: tuple[Any, ...]) -> Any:
        previous = state.grad_enabled
        try:
            state.grad_enabled = on_tape
            out = owner
            for op, operands, attributes in alias.views:
                rest = [numbers[scalars[x]] if type(x) is int else x.value if isinstance(x, Literal) else None for x in operands]
                out = bind(op, (out, *rest), attributes)
            return detach(owner) if out is owner else out
        finally:
            state.grad_enabled = previous

    return make
