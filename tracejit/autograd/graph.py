"""What programs see of the tape: nodes, edges, and hooks on what nodes save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tracejit.autograd.saved import active_hooks
from tracejit.autograd.tape import Node, edge_of
from tracejit.core.interpreter import state

__all__ = ["GradientEdge", "Node", "get_gradient_edge", "save_on_cpu", "saved_tensors_hooks"]


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor goes: output `output_nr` of `node`, or a leaf itself."""

    node: Any
    output_nr: int


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The edge of a tensor that requires gradients.  Raises RuntimeError for any other."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*edge_of(tensor))


class saved_tensors_hooks:  # noqa: N801  (PyTorch's name)
    """`with saved_tensors_hooks(pack, unpack):` a Function applied inside saves pack(tensor) in place of what it is told to save, and
    backward gets unpack of that.

    Primitives keep the arrays they were given, without a copy: there is nothing that packing could save or change, and the hooks are not
    called for them."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self._packing = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        state.top.note("saved tensor hooks")
        active_hooks.hooks.append(self._packing)

    def __exit__(self, *exception: object) -> None:
        active_hooks.hooks.pop()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """saved_tensors_hooks that do nothing: everything is on the CPU."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda x: x, lambda x: x)
