"""`Function`: operations whose forward and backward passes are written in the program.

The context that forward and backward share is the node on the tape, as in PyTorch (`y.grad_fn.saved_tensors`).  forward runs outside the
tape; backward runs on it only if the gradient is to be differentiated again.  A recording cannot hold such a node: its backward pass is
Python code of the program, so a compiled function that applies one runs eagerly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.autograd.anomaly import anomaly_interpreter
from tracejit.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad
from tracejit.autograd.saved import SavedTensor
from tracejit.autograd.tape import FREED, Node, edge_of, is_tensor, make_tensor, next_sequence
from tracejit.core.interpreter import state
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.views import detach

__all__ = ["Function", "FunctionCtx", "FunctionNode", "InplaceFunction", "NestedIOFunction", "once_differentiable"]


class FunctionNode(Node):
    """The context of one application: what forward leaves for backward, and the position on the tape.

    Programs set attributes of their own on it."""

    needs_input_grad: tuple[bool, ...]
    materialize_grads = True

    def __init__(self, function: type[Function], inputs: tuple[Any, ...]) -> None:
        tensors = [is_tensor(x) for x in inputs]
        self.needs_input_grad = state.top.built(tuple([t and x.requires_grad for x, t in zip(inputs, tensors, strict=True)]))
        super().__init__(tuple([edge_of(x) if need else None for x, need in zip(inputs, self.needs_input_grad, strict=True)]))
        self._function = function
        self._inputs = [(tuple(x.shape), x.dtype) if t else None for x, t in zip(inputs, tensors, strict=True)]
        self._outputs: list[tuple[tuple[int, ...], Any] | None] = []
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[SavedTensor] = []
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self.freed = False

    # ---- what forward may do ----------------------------------------------------------------------------------------
    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs, outputs or other tensors (or None) for backward; a change of their contents before it is noticed there."""
        if any(t is not None and not is_tensor(t) for t in tensors):
            raise TypeError("save_for_backward can only save variables, but got " + ", ".join(type(t).__name__ for t in tensors))
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Accepted for its name: there is no forward mode."""

    def mark_dirty(self, *tensors: Any) -> None:
        """Say that these inputs were changed in place; each must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say that these outputs have no gradients."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, or None, for outputs without a gradient."""
        self.materialize_grads = bool(value)

    # ---- what backward may read -------------------------------------------------------------------------------------
    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What save_for_backward was given.  Raises RuntimeError where it was freed, or changed in place."""
        if self.freed:
            raise RuntimeError(FREED)
        if self._to_save:  # still in forward
            return self._to_save
        return tuple([saved.unpack(self) for saved in self._saved])

    saved_variables = saved_tensors

    def name(self) -> str:
        return f"{self._function.__name__}Backward"

    # ---- the tape's side --------------------------------------------------------------------------------------------
    def finish(self, outputs: tuple[Any, ...]) -> None:
        """Forward is done: note what the outputs are, and keep what is to be kept."""
        self.count = len(outputs)
        self.sequence = next_sequence()
        self._outputs = [(tuple(y.shape), y.dtype) if is_tensor(y) else None for y in outputs]
        position = {id(y): i for i, y in enumerate(outputs)}
        self._saved = [SavedTensor(t, position.get(id(t))) for t in self._to_save]
        self._to_save = ()
        self._dirty = self._non_differentiable = ()

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        given = [self._cotangent(i, g, tensors) for i, g in enumerate(cotangents)]
        with enable_grad() if tensors and state.grad_enabled else no_grad():
            result = state.top.call_method(self._function, "backward", self, *given)
        gradients = list(result) if isinstance(result, tuple) else [result]
        expected = len(self._inputs)
        while len(gradients) > expected and gradients[-1] is None:
            gradients.pop()
        if len(gradients) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got {len(gradients)})"
            )
        return [self._gradient(i, g, tensors) for i, g in enumerate(gradients)]

    def _cotangent(self, i: int, g: Any, tensors: bool) -> Any:
        meta = self._outputs[i]
        if g is not None:
            return g if tensors else make_tensor(g, None, None)
        if meta is None or not self.materialize_grads:
            return None
        return full(0, shape=meta[0], dtype=meta[1])

    def _gradient(self, i: int, g: Any, tensors: bool) -> Any:
        """The gradient that backward gave for input i, with the input's shape and dtype."""
        meta = self._inputs[i]
        if g is None:
            return None
        if not is_tensor(g):
            raise TypeError(f"function {self.name()}: expected Variable or None at position {i} (got {g.__class__.__name__})")
        if meta is None:
            raise RuntimeError(
                f"function {self.name()} returned a gradient different than None at position {i + 1}, but the corresponding forward input "
                "was not a Variable"
            )
        if not self.needs[i]:
            return None
        shape, dtype = meta
        if tuple(g.shape) != shape:
            if not _expands(shape, tuple(g.shape)):
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got {list(g.shape)} but expected shape compatible "
                    f"with {list(shape)}"
                )
            g = sum_to(g, shape)
        if g.dtype is not dtype:
            g = cast(g, dtype=dtype)
        return g if tensors else g._array.view()  # a view: the program may hold the array itself

    def release(self) -> None:
        if self._saved:
            self.freed = True
            self._saved = []


def _expands(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `target`."""
    missing = len(target) - len(shape)
    return missing >= 0 and all(a in (1, b) for a, b in zip(shape, target[missing:], strict=True))


class _TwiceNode(Node):
    """The position on the tape of gradients that must not be differentiated again."""

    __slots__ = ()

    def name(self) -> str:
        return "DelayedError"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` that works outside the tape: differentiating its result raises RuntimeError."""

    @functools.wraps(function)
    def backward(ctx: Any, *cotangents: Any) -> Any:
        with no_grad():
            outputs = function(ctx, *cotangents)
        traced = [g for g in cotangents if is_tensor(g) and g.requires_grad]
        if not is_grad_enabled() or not traced:
            return outputs

        def not_differentiable_again(y: Any) -> Any:
            if not is_tensor(y) or not y.dtype.is_floating_point:
                return y
            return make_tensor(y._array, (_TwiceNode(tuple(map(edge_of, traced))), 0), y._storage)

        return tuple(map(not_differentiable_again, outputs)) if isinstance(outputs, tuple) else not_differentiable_again(outputs)

    return backward


FunctionCtx = FunctionNode
"""The name that programs annotate a context with."""


class Function:
    """An operation with a backward pass of its own: subclasses define static methods, and programs call `apply`.

    Either `forward(ctx, *inputs)`, or `forward(*inputs)` and `setup_context(ctx, inputs, output)`; and `backward(ctx, *gradients)`, which
    returns one gradient (or None) for each input."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The computation, outside the tape."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """What backward will need is put into `ctx` here, if forward does not take it."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the inputs, given those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode "
            "AD."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with static "
            "forward method."
        )

    @classmethod
    def _node_class(cls) -> type[FunctionNode]:
        """The class of this Function's nodes: its name is what programs see of it."""
        found: type[FunctionNode] | None = cls.__dict__.get("_backward_cls")
        if found is None:
            found = type(f"{cls.__name__}Backward", (FunctionNode,), {})
            cls._backward_cls = found  # type: ignore[attr-defined]
        return found

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Apply the operation to inputs of any type; tensors among them may get gradients."""
        state.top.note("own backward", cls)
        node = cls._node_class()(cls, args)
        recorded = state.grad_enabled and any(node.needs_input_grad)
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = state.top.call_method(cls, "forward", node, *args)
            else:
                result = state.top.call_method(cls, "forward", *args)
                state.top.call_method(cls, "setup_context", node, args, result)
        outputs = result if isinstance(result, tuple) else (result,)
        results = _with_edges(node, args, outputs, recorded)
        watched = anomaly_interpreter()
        if watched is not None:
            watched.made(node)
        return results if isinstance(result, tuple) else results[0]


Function.vjp = Function.backward  # type: ignore[attr-defined]


class InplaceFunction(Function):
    """Function, under the name of those that change inputs."""


class NestedIOFunction(Function):
    """Function, under the name of those that took nested inputs."""


def _with_edges(node: FunctionNode, inputs: tuple[Any, ...], outputs: tuple[Any, ...], recorded: bool) -> tuple[Any, ...]:
    """The outputs at their positions on the tape."""
    dirty, constant = {id(x) for x in node._dirty}, {id(y) for y in node._non_differentiable}
    if dirty - {id(y) for y in outputs}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified "
            "inplace must all be outputs of the Function."
        )
    given = {id(x) for x in inputs if is_tensor(x)}
    found: list[Any] = []
    for i, y in enumerate(outputs):
        if not is_tensor(y):
            found.append(y)
        elif id(y) in dirty:
            if recorded:
                y._put_on_tape(node, i, written=True)
            found.append(y)
        else:
            if id(y) in given or y._base is not None or y.requires_grad:
                y = detach(y)  # another tensor of the same memory: an input keeps its own position
            if recorded and id(outputs[i]) not in constant and y.dtype.is_floating_point:
                y._put_on_tape(node, i, written=False)
            found.append(y)
    if recorded:
        by_identity = {id(old): new for old, new in zip(outputs, found, strict=True) if id(old) not in given or id(old) in dirty}
        node._to_save = tuple([by_identity.get(id(t), t) for t in node._to_save])
        node.finish(tuple(found))
        state.top.note("placed", node, tuple(found))
    return tuple(found)
