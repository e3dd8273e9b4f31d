"""Full backward hooks of a module: what flows into its inputs and out of its outputs is seen at two positions on the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.autograd.function import Function
from tracejit.tensor import Tensor

__all__ = ["BackwardHooks"]


class _Mark(Function):
    """The identity of several tensors, whose backward pass asks `seen` for the gradients to hand on."""

    @staticmethod
    def forward(ctx: Any, seen: Callable[[tuple[Any, ...]], tuple[Any, ...]], *tensors: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        ctx.seen = seen
        return tuple([t.view_as(t) for t in tensors])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        return None, *ctx.seen(gradients)


def _replaced(name: str, old: tuple[Any, ...], new: Any) -> tuple[Any, ...]:
    """What a hook gave in place of gradients; None keeps them.  Raises RuntimeError for another number of them."""
    if new is None:
        return old
    found = tuple(new) if isinstance(new, tuple | list) else (new,)
    if len(found) != len(old):
        raise RuntimeError(f"Backward hook returned an invalid number of {name}, got {len(found)}, but expected {len(old)}")
    return found


class BackwardHooks:
    """The hooks for one call of a module: before, hook(module, grad_output); after, hook(module, grad_input, grad_output)."""

    def __init__(self, module: Any, before: list[Callable[..., Any]], after: list[Callable[..., Any]]) -> None:
        self._module = module
        self._before = before
        self._after = after
        self._outputs: tuple[Any, ...] = ()
        self._inputs_marked = False
        self._input_positions: list[int] = []
        self._input_count = 0

    def mark_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional arguments, those that are tensors at positions where their gradients are seen."""
        self._input_count = len(args)
        self._input_positions = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        tensors = [args[i] for i in self._input_positions]
        if not any(t.requires_grad for t in tensors):
            return args
        self._inputs_marked = True
        marked = list(args)
        for i, t in zip(self._input_positions, _Mark.apply(self._inputs_seen, *tensors), strict=True):
            marked[i] = t
        return tuple(marked)

    def mark_outputs(self, out: Any) -> Any:
        """The result, its tensors at positions where their gradients are seen."""
        several = isinstance(out, tuple | list)
        values = list(out) if several else [out]
        positions = [i for i, y in enumerate(values) if isinstance(y, Tensor) and y.requires_grad]
        if not positions:
            return out
        marked = _Mark.apply(
            lambda gradients: self._outputs_seen(gradients, positions, len(values)), *[values[i] for i in positions]
        )
        for i, y in zip(positions, marked, strict=True):
            values[i] = y
        return type(out)(values) if several and type(out) in (tuple, list) else values[0] if not several else type(out)(*values)

    def _outputs_seen(self, gradients: tuple[Any, ...], positions: list[int], count: int) -> tuple[Any, ...]:
        whole = [None] * count
        for i, g in zip(positions, gradients, strict=True):
            whole[i] = g
        outputs = tuple(whole)
        for hook in self._before:
            outputs = _replaced("grad_output", outputs, hook(self._module, outputs))
        self._outputs = outputs
        if not self._inputs_marked:
            self._call_after((None,) * self._input_count)
        return tuple([outputs[i] for i in positions])

    def _inputs_seen(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        whole: list[Any] = [None] * self._input_count
        for i, g in zip(self._input_positions, gradients, strict=True):
            whole[i] = g
        inputs = self._call_after(tuple(whole))
        return tuple([inputs[i] for i in self._input_positions])

    def _call_after(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self._after:
            inputs = _replaced("grad_input", inputs, hook(self._module, inputs, self._outputs))
        return inputs
