"""Helpers on parameters as a whole: norms and clipping of gradients, conversion to and from one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.ops.public.creation import zeros
from tracejit.ops.public.movement import cat, stack
from tracejit.ops.public.norms import vector_norm
from tracejit.tensor import Tensor

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "vector_to_parameters",
]  # fmt: skip


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Any:
    """The norm of all tensors as if they were one vector.  Raises RuntimeError for NaN or infinity if asked to.  foreach says how PyTorch
    goes about it, and nothing here."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    norm_type = float(norm_type)
    norms = [vector_norm(t.flatten(), norm_type, (0,), False) for t in tensors]
    if not norms:
        return zeros(())
    total = norms[0] if len(norms) == 1 else vector_norm(stack(norms), norm_type, (0,), False)
    if error_if_nonfinite and bool((total - total) != 0):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped"
        )
    return total


def _with_gradients(parameters: Any) -> list[Any]:
    return [p for p in ([parameters] if isinstance(parameters, Tensor) else parameters) if p.grad is not None]


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Scale the gradients in place as if total_norm were their norm, so that it is at most max_norm."""
    with no_grad():
        factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for p in _with_gradients(parameters):
            p.grad.copy_(p.grad * factor)


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Any:
    """Scale the gradients in place so that their total norm is at most max_norm; returns the norm that they had."""
    tensors = _with_gradients(parameters)
    with no_grad():
        total = get_total_norm([p.grad for p in tensors], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(tensors, max_norm, total)
    return total


clip_grad_norm = clip_grad_norm_
"""The old name."""


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place."""
    tensors: list[Any] = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    with no_grad():
        for p in tensors:
            gradient = p.grad
            if gradient is not None:
                gradient.copy_(gradient.clamp(-clip_value, clip_value))


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All parameters, flattened, as one vector."""
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Copy the elements of a vector into the parameters, in order.  Raises RuntimeError unless it has as many as they have together."""
    tensors = list(parameters)
    wanted = sum(p.numel() for p in tensors)
    if vec.numel() != wanted:
        raise RuntimeError(f"vector_to_parameters(): expected a vector of {wanted} elements, got {vec.numel()}")
    start = 0
    with no_grad():
        for p in tensors:
            stop = start + p.numel()
            p.copy_(vec[start:stop].reshape(tuple(p.shape)))
            start = stop
