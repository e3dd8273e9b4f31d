"""backward(), gradient hooks and retained gradients of a tensor, and the drawing of its graph."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from tracejit.autograd import api
from tracejit.autograd.drawing import draw
from tracejit.autograd.tape import AFTER, AT_END, RETAIN, edge_of, handed_early
from tracejit.core.drawing import Drawing
from tracejit.core.interpreter import state
from tracejit.tensor.base import Tensor
from tracejit.tensor.rebinding import rebound

_handle_ids = itertools.count()


def backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Accumulate the gradients of this tensor in the `.grad` of the leaves it depends on; see autograd.backward."""
    api.backward(self, gradient, retain_graph, create_graph, inputs)


def graph(self: Tensor, names: Mapping[str, Any] | None = None) -> Drawing:
    """A drawing of how this tensor was computed, as far as gradients go back: `.svg(path)` gives a picture, `.dot()` text of Graphviz's
    language.  There is a box for each operation, an ellipse for each leaf; a call of a compiled function is one box.

    names: name -> leaf, such as `dict(model.named_parameters())`; other leaves are told by dtype and shape.  Raises RuntimeError for a
    tensor that does not require grad."""
    state.top.note("graph()", self)
    return draw(self, names)


def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Call `hook(gradient)` when the gradient of this tensor is computed; a returned tensor replaces it.  The handle removes it."""
    if not self.requires_grad:
        raise RuntimeError("register_hook(): cannot register a hook on a tensor that doesn't require gradient")
    state.top.note("hook registered", self)
    hooks, key = _hooks_of(self), next(_handle_ids)
    hooks[key] = hook
    return RemovableHandle(hooks, key)


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Call `hook(tensor)` after a backward pass has added to the `.grad` of this leaf.  The handle removes it.

    Raises RuntimeError for a tensor that is no leaf, or has no gradient."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    state.top.note("hook registered", self)
    hooks, key = _hooks_of(self), AFTER - next(_handle_ids)
    hooks[key] = hook
    return RemovableHandle(hooks, key)


def register_end_of_pass_hook(leaf: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Call `hook(leaf)` at the end of a backward pass that has added to the `.grad` of this leaf; once, where several leaves have the
    same hook.  What waits for the gradient of the leaf itself is then called as soon as that is complete."""
    state.top.note("hook registered", leaf)
    hooks, key = _hooks_of(leaf), AT_END - next(_handle_ids)
    hooks[key] = hook
    handed_early[id(leaf)] = leaf
    return RemovableHandle(hooks, key)


def _hooks_of(tensor: Tensor) -> dict[int, Callable[[Any], Any]]:
    """What is called with the gradient of `tensor`."""
    if tensor.grad_fn is None:
        if tensor._hooks is None:
            tensor._hooks = {}
            rebound()
        return tensor._hooks
    node, index = edge_of(tensor)
    if node.hooks is None:
        node.hooks = {}
    hooks: dict[int, Callable[[Any], Any]] = node.hooks.setdefault(index, {})
    return hooks


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this non-leaf, as it is after its hooks, in `.grad` after backward().  Raises RuntimeError where it has none."""
    if not self.requires_grad:
        raise RuntimeError("retain_grad(): cannot be called on a tensor that doesn't require gradient")
    if self.grad_fn is None:
        return
    reference = weakref.ref(self)

    def keep(gradient: Tensor) -> None:
        tensor = reference()
        if tensor is not None:
            previous = tensor._grad
            tensor._grad = gradient.clone() if previous is None else previous + gradient

    state.top.note("hook registered", self)
    _hooks_of(self)[RETAIN] = keep


class RemovableHandle:
    """What register_hook returns; `remove()` takes the hook away."""

    __slots__ = ("_hooks", "_key")

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        """Take the hook away; harmless when done twice."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()
