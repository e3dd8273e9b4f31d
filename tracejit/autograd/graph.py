"""What programs see of the tape: nodes, edges, and hooks on what nodes save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit.autograd.saved import SavedTensor, active_hooks
from tracejit.autograd.tape import FREED, Node, OpNode, Storage, edge_of, is_tensor, make_tensor
from tracejit.core.interpreter import Interpreter, pushed, state

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


class _PackedOpNode(OpNode):
    """An applied primitive whose saved values were handed to hooks: in their places are SavedTensors."""

    __slots__ = ()

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        if self.freed:
            raise RuntimeError(FREED)
        inputs, outputs = self.inputs, self.outputs
        given = [x.unpack(self) if isinstance(x, SavedTensor) else x for x in inputs]
        made = [x.unpack(self) if isinstance(x, SavedTensor) else x for x in outputs]
        try:
            self.inputs = tuple([x._array if is_tensor(x) else x for x in given])
            self.outputs = tuple([x._array if is_tensor(x) else x for x in made])
            self.saved = [(x, x._version) for x in given if is_tensor(x)]
            self.storages = [(x._storage or Storage(), x._version) for x in made if is_tensor(x)]
            return super().backward(cotangents, tensors)
        finally:
            self.inputs, self.outputs, self.saved, self.storages = inputs, outputs, (), ()

    def release(self) -> None:
        self.freed = True
        self.inputs = self.outputs = ()


class _Packing(Interpreter):
    """The interpreter below, with what nodes save handed to the hooks that are active."""

    def __init__(self) -> None:
        self._below = state.top

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        result = self._below.bind(op, operands, attributes)
        node = getattr(result[0] if isinstance(result, tuple) else result, "_node", None)
        if type(node) is OpNode and (node.saved or node.storages):
            _pack(node)
        return result

    def note(self, event: str, *details: Any) -> None:
        self._below.note(event, *details)


def _pack(node: OpNode) -> None:
    """Hand what a node has saved to the hooks."""
    tensors = iter([tensor for tensor, _ in node.saved])
    inputs = [SavedTensor(next(tensors), None) if isinstance(a, np.ndarray) else a for a in node.inputs]
    outputs = [SavedTensor(make_tensor(a, None, None), i) if isinstance(a, np.ndarray) else a for i, a in enumerate(node.outputs)]
    node.inputs, node.outputs, node.saved, node.storages = tuple(inputs), tuple(outputs), (), ()
    node.__class__ = _PackedOpNode


class saved_tensors_hooks:  # noqa: N801  (PyTorch's name)
    """`with saved_tensors_hooks(pack, unpack):` what is put on the tape inside saves pack(tensor) in place of each tensor, and the backward
    pass gets unpack of that.  Compiled functions run eagerly inside."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self._packing = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        state.top.note("saved tensor hooks")
        active_hooks.hooks.append(self._packing)
        self._entered = pushed(_Packing())
        self._entered.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._entered.__exit__(*exception)
        active_hooks.hooks.pop()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """saved_tensors_hooks that do nothing: everything is on the CPU."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda x: x, lambda x: x)
