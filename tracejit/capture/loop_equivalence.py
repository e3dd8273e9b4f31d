"""Whether one `loop` node means for memory and for backward passes what its steps mean one by one.

A loop copies what it carries, its backward pass frees what it has saved at once, and it adds up the cotangents of each operand by
itself.  Where this could be told from the steps, in values, in bits of gradients, or in the errors that backward passes raise,
the steps are recorded one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.autograd.tape import edge_of
from tracejit.capture.loop_slices import SlicedInput
from tracejit.ir.graph import Graph
from tracejit.passes.backward import gradient_operands
from tracejit.passes.memory import memory_roots
from tracejit.passes.partition import extracted_numbers, saved_values
from tracejit.tensor import Tensor

__all__ = ["backward_is_indivisible", "carried_memory_is_disjoint", "cotangents_are_disjoint"]


def carried_memory_is_disjoint(body: Graph, entered: Sequence[Tensor]) -> bool:
    """Whether the steps carry different tensors, row-major and in memory that nothing else has, so that copies are as good."""
    carried, roots = body.inputs[: len(entered)], memory_roots(body)
    results = dict.fromkeys(body.outputs)
    memory = [roots.get(v, v) for v in results]  # type: ignore[arg-type]
    if (
        len({*body.outputs[: len(entered)]}) < len(entered)
        or len(set(memory)) < len(memory)
        or not all(x._array.flags.c_contiguous for x in entered)
    ):
        return False
    return all(v in carried or root not in body.inputs for v, root in zip(results, memory, strict=True))


def cotangents_are_disjoint(slices: Sequence[SlicedInput], shared: Sequence[Any]) -> bool:
    """Whether the cotangents of each operand are added up at a place of the tape that no other operand has, but for slices of one
    tensor that move alike: then cotangents that a loop adds as a whole arrive in the order in which its steps would have added
    them."""
    moving = {(id(x.base), x.dim, x.distance): x.base for x in slices}
    places = [edge_of(x) for x in (*moving.values(), *shared) if isinstance(x, Tensor) and x.requires_grad]
    return len({(id(target), k) for target, k in places}) == len(places)


def backward_is_indivisible(body: Graph, carried: int) -> bool:
    """Whether a backward pass through some steps is one through the loop.

    1. From any value that is carried on or collected, a pass reaches the same carried values in all steps but the last two.
    2. Of two passes, from such values, the second one meets something that the first one has freed, as it does where both go
       through the loop; or nothing is saved, neither by the steps nor by the loop."""
    marked, inputs = body.requires_grad, body.inputs
    nodes = [node for node in body.nodes if gradient_operands(node, marked) and not marked.isdisjoint(node.outputs)]
    # Value -> the carried values that gradients reach from it, as bits.
    reached = {v: 1 << k for k, v in enumerate(inputs[:carried])}
    for node in nodes:
        bits = 0
        for x in gradient_operands(node, marked):
            bits |= reached.get(x, 0)
        reached.update((v, bits) for v in node.outputs if v in marked)
    results = [reached.get(v, 0) if v in marked else 0 for v in body.outputs]  # type: ignore[arg-type]

    def one_step_back(places: int) -> int:
        bits = 0
        for k, there in enumerate(results[:carried]):
            bits |= there if places >> k & 1 else 0
        return bits

    numbers = extracted_numbers(body)
    savers = {k for k, node in enumerate(nodes) if saved_values(body, node, marked, numbers)}
    passes: list[set[int]] = []  # for each pass, which of these it meets
    for first, v in enumerate(body.outputs):
        if first < carried:
            if inputs[first] not in marked:
                continue
            crossed = one_step_back(one_step_back(1 << first))
            there = {*[body.outputs[k] for k in _bits(crossed or 1 << first)]}
        elif v in marked:
            crossed = results[first] | one_step_back(results[first])
            there = {v, *[body.outputs[k] for k in _bits(crossed)]}
        else:
            continue
        if one_step_back(crossed) & ~crossed or (first < carried and one_step_back(crossed) != crossed):
            return False
        met = set()
        for k in range(len(nodes) - 1, -1, -1):
            if not there.isdisjoint(nodes[k].outputs):
                met.add(k)
                there.update(gradient_operands(nodes[k], marked))
        passes.append(met & savers)
    return not (savers and any(a.isdisjoint(b) for k, a in enumerate(passes) for b in passes[: k + 1]))


def _bits(number: int) -> list[int]:
    return [k for k in range(number.bit_length()) if number >> k & 1]
