"""Calls that make a tensor of data, in one form: `x.new_tensor(data)`, `asarray(data)` and a device that says nothing are calls of
`tensor`, `as_tensor` and `from_numpy` with a dtype and whether a gradient is required."""

from __future__ import annotations

from typing import Any, Final

from tracejit.capture.handlers.arrays import KINDS
from tracejit.capture.handlers.symbols import concrete
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
"""The functions, with the names of what may be positional."""
_DATA: Final = frozenset(("data", "array", "obj"))


def construction(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]] | None:
    """(function, data, keywords) of the call in this form; None for other functions, and for arguments that it has not, or refuses."""
    if function is new and len(arguments) == 2 and type(arguments[1]) in (list, tuple, *KINDS) and not keywords:
        function = new_tensor  # sizes are numbers
    names = _NAMES.get(function)
    if names is None or len(arguments) > len(names):
        return None
    given = {**dict(zip(names, arguments, strict=False)), **keywords}
    data = [given.pop(name) for name in names if name in _DATA and name in given]
    device, pinned, copied = (concrete(given.pop(name, None)) for name in ("device", "pin_memory", "copy"))
    if len(data) != 1 or not (device is None or device == CPU or device == "cpu") or pinned or copied not in (None, True):
        return None
    if function is new_tensor:
        owner = given.pop("self", None)
        if not is_a(owner, Tensor):
            return None
        function, given["dtype"] = tensor, owner.dtype if given.get("dtype") is None else given["dtype"]
    elif function is asarray:
        function = tensor if copied else as_tensor
    elif function is not tensor and "requires_grad" in given:
        return None
    options = {name: concrete(value) for name, value in given.items()}
    return (function, data[0], options) if options.keys() <= {"dtype", "requires_grad"} else None
