"""How a module's parameters and buffers become others: of another dtype, or as a function says.  All are on the CPU, and stay there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.devices import device, require_cpu
from tracejit.core.dtypes import DType, as_dtype, bfloat16, float16, float32, float64
from tracejit.nn.parameter import Parameter
from tracejit.tensor import Tensor

__all__ = ["Conversions"]

S = TypeVar("S", bound="Conversions")


def _asked(arguments: tuple[Any, ...], named: dict[str, Any]) -> DType | None:
    """The dtype that the arguments of to() ask for.  Raises for other devices than the CPU and for dtypes that are not floating-point."""
    found: DType | None = None
    for value in (*arguments, named.pop("device", None), named.pop("dtype", None), named.pop("tensor", None)):
        if isinstance(value, Tensor):
            found = value.dtype
        elif isinstance(value, str | device):
            require_cpu("Module.to", value)
        elif isinstance(value, DType) or value is float:
            found = as_dtype(value, "Module.to")
        elif value is not None and not isinstance(value, bool):  # a bool is PyTorch's non_blocking
            raise TypeError(f"Module.to(): expected a floating-point dtype, a tensor or the device 'cpu', got {value!r}")
    unknown = set(named) - {"non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"Module.to() got an unexpected keyword argument {min(unknown)!r}")
    if found is not None and not found.is_floating_point:
        raise TypeError(f"Module.to() only accepts floating-point dtypes, got {found.name}")
    return found


class Conversions:
    """What converts the tensors of a module; `Module` gives parameters() and buffers()."""

    parameters: Callable[..., Any]
    buffers: Callable[..., Any]

    def _apply(self: S, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> S:
        """Replace the contents of parameters, their gradients and buffers, each once; the Parameter objects stay."""
        for tensor in [*self.parameters(recurse=recurse), *self.buffers(recurse=recurse)]:
            gradient = tensor.grad if isinstance(tensor, Parameter) else None
            tensor.grad = None
            with no_grad():
                tensor.data = fn(tensor.detach())
                if gradient is not None:
                    tensor.grad = fn(gradient)
        return self

    def to(self: S, *args: Any, **kwargs: Any) -> S:
        """Convert floating-point parameters and buffers to a dtype, or to that of a tensor, in place; a device must be the CPU.

        to(device, dtype), to(dtype), to(tensor), with `non_blocking` and `memory_format` without effect."""
        target = _asked(args, kwargs)
        if target is None:
            return self
        return self._apply(lambda t: t.to(target) if t.is_floating_point() else t)  # type: ignore[attr-defined]

    def float(self: S) -> S:
        """Convert floating-point parameters and buffers to float32."""
        return self.to(float32)

    def half(self: S) -> S:
        """Convert floating-point parameters and buffers to float16."""
        return self.to(float16)

    def bfloat16(self: S) -> S:
        """Convert floating-point parameters and buffers to bfloat16."""
        return self.to(bfloat16)

    def double(self: S) -> S:
        """Convert floating-point parameters and buffers to float64."""
        return self.to(float64)

    def type(self: S, dst_type: Any) -> S:
        """Convert all parameters and buffers to a dtype."""
        return self._apply(lambda t: t.type(dst_type))  # type: ignore[attr-defined]

    def cpu(self: S) -> S:
        """The module itself: it is on the CPU."""
        return self

    def cuda(self: S, device: Any = None) -> S:
        """Raises AssertionError: there is no CUDA.  A module without parameters and buffers is returned, as there is nothing to move."""
        if any(True for _ in (*self.parameters(), *self.buffers())):
            require_cpu("Module.cuda", "cuda")
        return self

    def share_memory(self: S) -> S:
        """The module itself.  Its memory is private: a process that is forked later has a copy of its own."""
        return self
