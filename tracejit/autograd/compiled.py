"""The tape's node for a compiled program: one node for everything the program did.

In its place eager's tape has many nodes, and a backward pass enters some of them: those on the way from the outputs that have cotangents
to the leaves, or to the inputs asked for.  The plan knows which (`Visit`).  So a pass checks what those would check, and frees what
those would free: it is an error if it would enter one that an earlier pass has freed.  Memory goes when no output can go backward any
more.

Its backward runs the backward program for the mask of cotangents that arrived, on the residual slab, the inputs that the
program reads directly and the cotangents.  When the result must itself be differentiable (create_graph=True, or a recording is
active) the pure graph is evaluated again through `bind` on the original inputs and differentiated there, so any order works.  That is
only right while all these inputs hold what they held: one that eager's tape would not have saved may have changed unnoticed by
`saved`, so the node knows its version too, and says so instead of computing with other numbers.

It must not know how programs are made: a `Program`-like plan is handed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tracejit.autograd.tape import FREED, Node, changed_in_place

__all__ = ["Call", "CompiledNode", "ConsumedNode", "DifferentiablePlan", "Visit"]

Mask = tuple[bool, ...]
Call = Callable[["CompiledNode", Sequence[Any], bool], Any]
NOTHING_FREED: frozenset[int] = frozenset()


class Visit(NamedTuple):
    """What a backward pass meets on the tape that eager mode would have made.

    savers: the entered nodes that saved something, by number.  saved: what they saved, as keys of `CompiledNode.saved`.
    overwritten: the operation of an entered node whose saved values the program itself overwrote, and its shape."""

    savers: frozenset[int]
    saved: frozenset[int]
    overwritten: tuple[str, tuple[int, ...]] | None


class DifferentiablePlan(Protocol):
    """What a CompiledNode asks of the program that made it."""

    name: str
    inputs: Sequence[Any]
    """Facts about the tensor inputs: `shape`."""
    kept: Sequence[int]
    """What is in `CompiledNode.storages`: i for tensor input i, ~i for output i."""
    saved: Sequence[int]
    """The same for `CompiledNode.saved`."""
    outputs: Sequence[Any]
    """Facts about the outputs: `shape`."""
    replayed: Sequence[int]
    """Positions of the tensor inputs that `run_again` reads and eager's tape would not have saved."""

    calls: dict[int | Mask, Call]
    """What `call` has made."""
    everything: frozenset[int]
    """The savers that a pass from all outputs to everything enters."""

    def visit(self, present: Mask, wanted: Mask | None) -> Visit:
        """The pass from the outputs in `present` to everything (None), or to the tensor inputs in `wanted`."""

    def computed_from(self, i: int) -> frozenset[int]:
        """The other outputs whose gradients pass through output `i`."""

    def can_go_on(self, freed: frozenset[int]) -> bool:
        """Whether a pass to everything from some output enters nodes that saved something, none of them in `freed`."""

    def run_backward(
        self,
        present: Mask,
        wanted: Mask | None,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        cotangents: list[Any],
        slab: Any,
    ) -> Sequence[Any]:
        """Gradients (arrays or None) per tensor input; at least those in `wanted`."""

    def call(self, node: CompiledNode, key: int | Mask) -> Call:
        """`call(node, cotangents, retain)`, which does one of two things, or nothing: then it answers False.

        key an output: a backward pass from it to all leaves, which adds to their `.grad` and releases the node unless `retain`.  key a
        mask of present cotangents: it answers with the gradients, an array of its own or None for each edge."""

    def reads(self, present: Mask, wanted: Mask | None) -> frozenset[int]:
        """Positions of the tensor inputs whose arrays `run_backward` reads."""

    def run_again(
        self, wanted: Mask | None, tensors: tuple[Any, ...], scalars: tuple[Any, ...], cotangents: Sequence[Any]
    ) -> Sequence[Any]:
        """Gradients (Tensors or None) per tensor input in `wanted`, by evaluating the graph again through the door.

        Raises RuntimeError where the program itself overwrote an input that it would have to read."""


class CompiledNode(Node):
    """One call of a differentiable program.

    tensors: all tensor inputs.  arrays: their arrays at the time of the call.  Both in parts, tuples to be chained: those of
    parameters are shared by all calls.  storages: of everything that eager would have saved, and that parameters have; all calls share
    the tuple.  saved: the other storages of what eager would have saved.  None of them may be written to after the node was made.
    slab: residuals.  freed: the savers that earlier passes freed; passed: what the last pass did."""

    __slots__ = (
        "arrays", "freed", "passed", "plan", "saved", "scalars", "slab", "storages", "tensors",
    )  # fmt: skip
    is_selective = True

    arrays: tuple[tuple[Any, ...], ...]
    freed: frozenset[int]
    passed: tuple[Visit, bool]
    plan: DifferentiablePlan
    saved: tuple[Any, ...]
    scalars: tuple[Any, ...]
    slab: Any
    storages: tuple[Any, ...]
    tensors: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        return f"CompiledBackward[{self.plan.name}]"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        return self.backward_to(None, cotangents, tensors)

    def backward_to(self, wanted: Mask | None, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        plan = self.plan
        present = tuple([g is not None for g in cotangents])
        visit = plan.visit(present, wanted)
        if not tensors and self.freed is NOTHING_FREED:  # else there may be nothing left to make a call from
            given = [g if g.flags.c_contiguous else np.ascontiguousarray(g) for g in map(_as_array, cotangents) if g is not None]
            answers = (plan.calls.get(present) or plan.call(self, present))(self, given, True)
            if answers is not False:
                self.passed = visit, wanted is None
                return answers  # type: ignore[no-any-return]
        if not self.freed.isdisjoint(visit.savers) or (tensors and self.slab is None):
            raise RuntimeError(FREED)
        if visit.overwritten is not None:
            name, shape = visit.overwritten
            raise changed_in_place(name, "a saved value", shape, 1, 0)
        exact = self._check_saved(visit, present, wanted)
        self.passed = visit, wanted is None
        if tensors:
            self._check_replayed()
            return plan.run_again(wanted, _chained(self.tensors), self.scalars, cotangents)
        given = [g if g.flags.c_contiguous else np.ascontiguousarray(g) for g in map(_as_array, cotangents) if g is not None]
        return plan.run_backward(present, exact, _chained(self.arrays), self.scalars, given, self.slab)

    def check_watched(self, outputs: Iterable[int], cotangents: Sequence[Any]) -> None:
        for i in outputs:
            if any(cotangents[k] is not None for k in self.plan.computed_from(i)):
                raise RuntimeError(
                    f"backward(): the gradient of result {i} of the compiled {self.plan.name} is asked for (by a hook, retain_grad() or "
                    "grad()), and reaches it inside the compiled function too, by way of another result; compute that one outside, or "
                    "take the gradient inside the function"
                )

    def _check_saved(self, visit: Visit, present: Mask, wanted: Mask | None) -> Mask | None:
        """Raises RuntimeError where a value that the pass would find on eager's tape was changed in place.  Returns the inputs whose
        gradients can be computed from what is left: None for all."""
        plan, made = self.plan, self.sequence
        changed = [(key, storage) for key, storage in zip(plan.kept, self.storages, strict=True) if storage.written > made]
        changed += [(key, storage) for key, storage in zip(plan.saved, self.saved, strict=True) if storage.written > made]
        if not changed:
            return wanted if self.slab is None else None
        reads = plan.reads(present, wanted)
        for key, storage in changed:
            if key in visit.saved or key in reads:
                what, facts = ("an operand", plan.inputs[key]) if key >= 0 else ("the result", plan.outputs[~key])
                raise changed_in_place(plan.name, what, facts.shape, storage.version, None)
        return wanted

    def _check_replayed(self) -> None:
        """Raises RuntimeError where the program cannot be evaluated again, because an input is not what it was."""
        tensors = _chained(self.tensors)
        for position in self.plan.replayed:
            storage = tensors[position]._storage
            if storage is not None and storage.written > self.sequence:
                what = "an input (create_graph=True evaluates the compiled program again)"
                raise changed_in_place(self.plan.name, what, self.plan.inputs[position].shape, storage.version, None)
        for tensor, array in zip(tensors, _chained(self.arrays), strict=True):
            if tensor._array is not array and tensor._array.__array_interface__ != array.__array_interface__:
                raise RuntimeError(
                    f"backward() with create_graph=True: the memory of an input of {self.plan.name}, of shape {list(array.shape)}, was "
                    "replaced (`.data = ...`) after the forward pass; assign after backward()"
                )

    def release(self) -> None:
        visit, to_everything = self.passed
        self.freed |= visit.savers
        if visit.savers and not (self.plan.can_go_on(self.freed) if to_everything else self.plan.everything - self.freed):
            self.freed = self.plan.everything
            self.slab = None
            self.tensors = self.arrays = ()


def _chained(parts: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(itertools.chain.from_iterable(parts))


def _as_array(g: Any) -> Any:
    return g if g is None or isinstance(g, np.ndarray) else np.asarray(g)


class ConsumedNode(Node):
    """The place of a tensor whose graph a backward pass inside the program has used up.  Entries make it without `__init__`, and give it
    `hooks` and `sequence`."""

    __slots__ = ()
    count = 1
    edges = ()
    needs = ()

    @property
    def name(self) -> str:
        return "CompiledBackward[freed]"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        raise RuntimeError(FREED)
