"""The normal form of calls that create a tensor from data.

`x.new_tensor(data)`, `asarray(data)` and calls with `device="cpu"` become calls of `tensor`, `as_tensor` or `from_numpy` with no
options but `dtype` and `requires_grad`."""

from __future__ import annotations

from typing import Any, Final

from tracejit.capture.handlers.arrays import KINDS
from tracejit.capture.handlers.symbols import concretise
from tracejit.capture.policies import is_a
from tracejit.core.devices import CPU
from tracejit.tensor import Tensor
from tracejit.tensor.construction import as_tensor, from_numpy, tensor
from tracejit.tensor.dlpack import asarray
from tracejit.tensor.shell import new, new_tensor

__all__ = ["construction"]


_NAMES: Final[dict[Any, tuple[str, ...]]] = {
    tensor: ("data",), as_tensor: ("data", "dtype", "device"), from_numpy: ("array",), asarray: ("obj",), new_tensor: ("self", "data"),
}  # fmt: skip
"""The functions, with the names of their positional parameters."""
_DATA: Final = frozenset(("data", "array", "obj"))


def construction(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]] | None:
    """(function, data, keywords) of a call in its normal form.

    None for other functions, for arguments that the normal form does not have, and for arguments that raise."""
    if function is new and len(arguments) == 2 and type(arguments[1]) in (list, tuple, *KINDS) and not keywords:
        function = new_tensor  # `x.new(data)`; `x.new(2, 3)` is given sizes
    names = _NAMES.get(function)
    if names is None or len(arguments) > len(names):
        return None
    values = {**dict(zip(names, arguments, strict=False)), **keywords}
    data = [values.pop(name) for name in names if name in _DATA and name in values]
    device, pin_memory, copy = (concretise(values.pop(name, None)) for name in ("device", "pin_memory", "copy"))
    if len(data) != 1 or not (device is None or device == CPU or device == "cpu") or pin_memory or copy not in (None, True):
        return None
    if function is new_tensor:
        owner = values.pop("self", None)
        if not is_a(owner, Tensor):
            return None
        function, values["dtype"] = tensor, owner.dtype if values.get("dtype") is None else values["dtype"]
    elif function is asarray:
        if hasattr(type(data[0]), "__dlpack__") and not is_a(data[0], (Tensor, *KINDS)):
            return None
        function = tensor if copy else as_tensor
    elif function is not tensor and "requires_grad" in values:
        return None
    options = {name: concretise(value) for name, value in values.items()}
    return (function, data[0], options) if options.keys() <= {"dtype", "requires_grad"} else None
