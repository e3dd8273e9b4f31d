"""The tape's node for a compiled program: one node for everything the program did.

Its backward runs the backward program for the mask of cotangents that arrived, on the residual slab, the inputs that the
program reads directly and the cotangents.  When the result must itself be differentiable (create_graph=True, or a recording is
active) the pure graph is evaluated again through `bind` on the original inputs and differentiated there, so any order works.  That is
only right while all these inputs hold what they held: one that eager's tape would not have saved may have changed unnoticed by
`saved`, so the node knows its version too, and says so instead of computing with other numbers.

It must not know how programs are made: a `Program`-like plan is handed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tracejit.autograd.tape import FREED, Node, changed_in_place

__all__ = ["CompiledNode", "ConsumedNode", "DifferentiablePlan"]

Mask = tuple[bool, ...]


class DifferentiablePlan(Protocol):
    """What a CompiledNode asks of the program that made it."""

    name: str
    inputs: Sequence[Any]
    """Facts about the tensor inputs: `shape`."""
    kept: Sequence[int]
    """Positions of the tensor inputs whose storages a node knows as `storages`, and not in `saved`."""
    replayed: Sequence[int]
    """Positions of the tensor inputs that `run_again` reads and whose versions `saved` does not hold."""

    def run_backward(
        self, present: Mask, arrays: tuple[Any, ...], scalars: tuple[Any, ...], cotangents: list[Any], slab: Any
    ) -> Sequence[Any]:
        """Gradients (arrays or None) per tensor input."""

    def run_again(self, tensors: tuple[Any, ...], scalars: tuple[Any, ...], cotangents: Sequence[Any]) -> Sequence[Any]:
        """Gradients (Tensors or None) per tensor input, by evaluating the graph again through the door.

        Raises RuntimeError where the program itself overwrote an input that it would have to read."""


class CompiledNode(Node):
    """One call of a differentiable program.

    tensors: all tensor inputs.  arrays: their arrays at the time of the call.  Both in parts, tuples to be chained: those of
    parameters are shared by all calls.  versions: the same, of the inputs `plan.replayed`.  saved: (storage, version, what, shape) of
    everything eager would have saved; storages, storage_versions: the same in parts, of the inputs `plan.kept`.  slab: residuals, None
    once freed."""

    __slots__ = ("arrays", "plan", "saved", "scalars", "slab", "storage_versions", "storages", "tensors", "versions")

    arrays: tuple[tuple[Any, ...], ...]
    plan: DifferentiablePlan
    saved: list[tuple[Any, int, str, Any]]
    scalars: tuple[Any, ...]
    slab: Any
    storage_versions: tuple[tuple[int, ...], ...]
    storages: tuple[tuple[Any, ...], ...]
    tensors: tuple[tuple[Any, ...], ...]
    versions: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        return f"CompiledBackward[{self.plan.name}]"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        if self.slab is None:
            raise RuntimeError(FREED)
        for storage, version, what, shape in self.saved:
            if storage.version != version:
                raise changed_in_place(self.plan.name, what, shape, storage.version, version)
        kept = zip(self.plan.kept, _chained(self.storages), _chained(self.storage_versions), strict=True)
        for position, storage, version in kept:
            if storage.version != version:
                shape = self.plan.inputs[position].shape
                raise changed_in_place(self.plan.name, "an operand", shape, storage.version, version)
        if tensors:
            self._check_replayed()
            return self.plan.run_again(_chained(self.tensors), self.scalars, cotangents)
        present = tuple([g is not None for g in cotangents])
        given = [g if g.flags.c_contiguous else np.ascontiguousarray(g) for g in map(_as_array, cotangents) if g is not None]
        return self.plan.run_backward(present, _chained(self.arrays), self.scalars, given, self.slab)

    def _check_replayed(self) -> None:
        """Raises RuntimeError where the program cannot be evaluated again, because an input is not what it was."""
        tensors = _chained(self.tensors)
        for position, version in zip(self.plan.replayed, _chained(self.versions), strict=True):
            tensor = tensors[position]
            now = 0 if tensor._storage is None else tensor._storage.version
            if now != version:
                what = "an input (create_graph=True evaluates the compiled program again)"
                raise changed_in_place(self.plan.name, what, tensor.shape, now, version)
        for tensor, array in zip(tensors, _chained(self.arrays), strict=True):
            if tensor._array is not array and tensor._array.__array_interface__ != array.__array_interface__:
                raise RuntimeError(
                    f"backward() with create_graph=True: the memory of an input of {self.plan.name}, of shape {list(array.shape)}, was "
                    "replaced (`.data = ...`) after the forward pass; assign after backward()"
                )

    def release(self) -> None:
        self.slab = None
        self.tensors = self.arrays = self.scalars = self.versions = self.storages = self.storage_versions = ()
        self.saved = []


def _chained(parts: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(itertools.chain.from_iterable(parts))


def _as_array(g: Any) -> Any:
    return g if g is None or isinstance(g, np.ndarray) else np.asarray(g)


class ConsumedNode(Node):
    """The place of a tensor whose graph a backward pass inside the program has used up."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "CompiledBackward[freed]"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        raise RuntimeError(FREED)
