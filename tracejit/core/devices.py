"""Devices: the objects that programs name them with.  All tensors are on the CPU; other devices have names only."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["CPU", "device", "require_cpu"]

_TYPES: Final = ("cpu", "cuda", "xpu", "mps", "meta", "hpu", "xla", "mtia", "ipu", "vulkan", "maia", "privateuseone")


class device:  # noqa: N801  (PyTorch's name)
    """A device: its type, such as "cpu", and an index or None.  Made of "cuda:1", of a type and an index, or of another device.

    Raises RuntimeError for a type that PyTorch does not know."""

    __module__ = "tracejit"  # where programs find it
    __slots__ = ("index", "type")

    def __init__(self, type: Any, index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        elif isinstance(type, str):
            type, _, number = type.partition(":")
            if number:
                if not number.isdigit() or index is not None:
                    raise RuntimeError(f"device(): invalid device string {type + ':' + number!r}")
                index = int(number)
        else:
            raise TypeError(f"device(): expected a string, an index or a device, got {_name(type)}")
        if type not in _TYPES:
            raise RuntimeError(f"device(): expected one of {', '.join(_TYPES)} at the start of the device string, got {type!r}")
        self.type: Final[str] = type
        self.index: Final[int | None] = index

    def __repr__(self) -> str:
        return f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> Any:
        return device, (self.type, self.index)

    def __enter__(self) -> device:
        require_cpu("device", self)
        return self

    def __exit__(self, *exception: object) -> None:
        del exception


def _name(x: Any) -> str:
    return x.__class__.__name__


CPU: Final = device("cpu")
"""Where every tensor is."""


def require_cpu(name: str, where: Any) -> None:
    """Raises AssertionError for a CUDA device and RuntimeError for any other but the CPU, as a PyTorch without them does."""
    if where is None or where is CPU:
        return
    found = where if isinstance(where, device) else device(where)
    if found.type == "cuda":
        raise AssertionError(
            f"{name}(): device {str(found)!r} is not available: tracejit computes on the CPU only, not with CUDA enabled"
        )
    if found.type != "cpu":
        raise RuntimeError(f"{name}(): device {str(found)!r} is not available: tracejit computes on the CPU only")
