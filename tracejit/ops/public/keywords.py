"""Arguments by the other names that PyTorch takes: NumPy's (`axis`, `keepdims`, `x`), `out=`, `device` and `layout`.

A public function is written with one name for each argument.  What takes a dimension, a dtype or the like is registered behind an entry
that translates keywords; a call without keywords only passes through it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import DType, as_dtype
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.warned import warn

__all__ = ["entry_of", "require_tensors", "write_out"]

_OTHER_NAMES: Final = {
    "axis": ("dim", "dims"), "keepdims": ("keepdim",), "x": ("input",), "a": ("input",), "x1": ("input",), "self": ("input",),
    "x2": ("other",), "axis0": ("dim0",), "axis1": ("dim1",), "split_size": ("split_size_or_sections",), "input2": ("L",),
    "indices": ("indices_or_sections",), "sections": ("indices_or_sections",), "tensor_indices_or_sections": ("indices_or_sections",),
    "element": ("elements",), "test_element": ("test_elements",),
}  # fmt: skip
_PLACES: Final = ("device", "layout", "pin_memory", "memory_format", "requires_grad")


def write_out(name: str, out: Any, value: Any) -> Any:
    """`out` with the contents of `value`, as `out=` asks for; resized, with a warning, where it has another shape.

    Raises RuntimeError where a gradient would be lost."""
    if isinstance(value, tuple):
        for target, part in zip(out, value, strict=True):
            write_out(name, target, part)
        return out
    if state.grad_enabled and (value.requires_grad or out.requires_grad):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation; use no_grad()")
    if tuple(out.shape) != tuple(value.shape):
        if out.numel():
            warn(
                f"{name}(): out has shape {list(out.shape)} and is resized to that of the result, {list(value.shape)}; pass one of "
                "that shape, or an empty one",
                stacklevel=3,
            )
        out.resize_(tuple(value.shape))
    if value.dtype.category > out.dtype.category:
        raise RuntimeError(f"{name}(): result type {value.dtype.name} can't be cast to the desired output type {out.dtype.name}")
    return out.copy_(value)


def entry_of(body: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`body` behind an entry that knows the other names of its arguments."""
    code = inspect.unwrap(body).__code__
    names = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else None

    def entry(*args: Any, **named: Any) -> Any:
        try:
            if not named:
                return body(*args)
            out = named.pop("out", None) if "out" not in names else None
            args, named = _translated(name, names, rest, args, named)
            value = body(*args, **named)
        except (AttributeError, TypeError) as error:  # of what is no tensor
            if is_foreign(error):
                raise
            _check_input(name, code.co_varnames, args, named)
            if isinstance(error, AttributeError):
                _check_asked(name, code.co_varnames, args, named, error.obj)
            raise
        return value if out is None else write_out(name, out, value)

    entry.__name__ = entry.__qualname__ = name
    entry.__doc__ = body.__doc__
    entry.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
    return entry


def _translated(
    name: str, names: frozenset[str], rest: str | None, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments under the names that the function has."""
    result = {}
    for key, value in named.items():
        if key == "dtype":
            value = value if value is None or type(value) is DType else as_dtype(value, name)
        if key in names:
            result[key] = value
        elif key == rest or (rest is not None and key in ("dims", "size", "shape")):
            args = (*args, value)
        elif key in _PLACES and not _matters(name, key, value):
            continue
        else:
            wanted = next((n for n in _OTHER_NAMES.get(key, ()) if n in names), key)
            if wanted in named and wanted != key:
                raise TypeError(f"{name}(): got both {wanted} and {key}, which mean the same")
            result[wanted] = value
    return args, result


def _check_input(name: str, names: tuple[str, ...], args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raises TypeError, as PyTorch does, where the first argument should be a tensor and is none."""
    if names[:1] in (("input",), ("self",)) and (args or names[0] in named):
        given = args[0] if args else named[names[0]]
        if not hasattr(given, "dtype"):
            place = " (position 1)" if args else ""
            raise TypeError(
                f"{name}(): argument 'input'{place} must be Tensor, not {given.__class__.__name__}; use tensor()"
            ) from None


def _check_asked(name: str, names: tuple[str, ...], args: tuple[Any, ...], named: dict[str, Any], asked: Any) -> None:
    """Raises TypeError where what was asked for something that tensors have is an argument, or an element of one, and is no tensor."""
    if hasattr(asked, "dtype"):
        return
    kind = asked.__class__.__name__
    for i, (key, value) in enumerate([*zip(names, args, strict=False), *named.items()]):
        if value is asked:
            place = f" (position {i + 1})" if i < len(args) else ""
            raise TypeError(f"{name}(): argument '{key}'{place} must be Tensor, not {kind}; use tensor()") from None
        if isinstance(value, str | tuple | list) and any(x is asked for x in value):
            raise TypeError(
                f"{name}(): expected Tensor as each element of argument '{key}', but got {kind}; use tensor()"
            ) from None


def require_tensors(name: str, **arguments: Any) -> None:
    """Raises TypeError for what is no tensor, as PyTorch does."""
    for position, (argument, value) in enumerate(arguments.items()):
        if not hasattr(value, "dtype"):
            raise TypeError(
                f"{name}(): argument '{argument}' (position {position + 1}) must be Tensor, not {value.__class__.__name__}; use tensor()"
            ) from None


def _matters(name: str, key: str, value: Any) -> bool:
    """Whether an argument about where a tensor lies asks for something that a tensor of this library is not."""
    if key == "device":
        require_cpu(name, value)
    return key == "requires_grad"
