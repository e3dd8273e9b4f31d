"""Arguments by the other names that PyTorch takes: NumPy's (`axis`, `keepdims`, `x`), `out=`, `device` and `layout`.

A public function is written with one name for each argument.  What takes a dimension, a dtype or the like is registered behind an entry
that translates keywords; a call without keywords only passes through it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np

from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import DType, as_dtype
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.library_warnings import warn

__all__ = ["entry_of", "of_tensors", "require_tensors", "write_out"]

F = TypeVar("F", bound=Callable[..., Any])
_OTHER_NAMES: Final = {
    "axis": ("dim", "dims"), "keepdims": ("keepdim",), "x": ("input",), "a": ("input",), "x1": ("input",), "self": ("input",),
    "x2": ("other",), "axis0": ("dim0",), "axis1": ("dim1",), "split_size": ("split_size_or_sections",), "input2": ("L",),
    "indices": ("indices_or_sections",), "sections": ("indices_or_sections",), "tensor_indices_or_sections": ("indices_or_sections",),
    "element": ("elements",), "test_element": ("test_elements",),
}  # fmt: skip
_TENSORS: Final = frozenset(("input", "self", "x1", "A", "elements", "indices"))
"""Names of first arguments that are tensors, and nothing else."""
_WITHOUT_MEANING: Final = ("device", "layout", "pin_memory", "memory_format", "requires_grad")


def write_out(name: str, out: Any, value: Any) -> Any:
    """`out` with the contents of `value`, as `out=` asks for; resized, with a warning, where it has another shape.

    Raises RuntimeError where a gradient would be lost."""
    if isinstance(value, tuple):
        for target, part in zip(out, value, strict=True):
            write_out(name, target, part)
        return out
    if state.grad_enabled and (value.requires_grad or out.requires_grad):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation; use no_grad()")
    if out._sizes != value._sizes:
        if out.numel():
            warn(
                f"{name}(): out has shape {list(out.shape)} and is resized to that of the result, {list(value.shape)}; pass one of "
                "that shape, or an empty one"
            )
        out.resize_(value._sizes)
    if value.dtype.category > out.dtype.category:
        raise RuntimeError(f"{name}(): result type {value.dtype.name} can't be cast to the desired output type {out.dtype.name}")
    return out.copy_(value)


def entry_of(body: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`body` behind an entry that knows the other names of its arguments."""
    code = inspect.unwrap(body).__code__
    names = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else None
    first = code.co_varnames[0] if code.co_varnames else ""

    def entry(*args: Any, **named: Any) -> Any:
        try:
            if not named:
                return body(*args)
            out = named.pop("out", None) if "out" not in names else None
            args, named = _translated(name, names, rest, args, named)
            value = body(*args, **named)
        except Exception as error:  # of what is no tensor, perhaps
            if not is_foreign(error):
                if first in _TENSORS and (isinstance(error, AttributeError | TypeError) or not _begins_with_number(args)):
                    _check_input(name, first, args, named)
                _check_asked(name, code.co_varnames, args, named, error)
                _check_named(name, args, named, error)
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
        elif key in _WITHOUT_MEANING and not _matters(name, key, value):
            continue
        else:
            wanted = next((n for n in _OTHER_NAMES.get(key, ()) if n in names), key)
            if wanted in named and wanted != key:
                raise TypeError(f"{name}(): got both {wanted} and {key}, which mean the same")
            result[wanted] = value
    return args, result


def of_tensors(function: F) -> F:
    """A function whose first argument is a tensor: where it raises for what is none, it raises TypeError, as PyTorch does."""
    name, code = function.__name__, inspect.unwrap(function).__code__
    first = code.co_varnames[0]

    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except Exception as error:
            if not is_foreign(error):
                _check_input(name, first, args, named)
                _check_asked(name, code.co_varnames, args, named, error)
                _check_named(name, args, named, error)
            raise

    return cast(F, checked)


def _is_tensor(x: Any) -> bool:
    return type(getattr(x, "dtype", None)) is DType


def _check_input(name: str, key: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raises TypeError, as PyTorch does, where the first argument should be a tensor and is none, nor parts of complex numbers."""
    if args or key in named:
        given = args[0] if args else named[key]
        if not (_is_tensor(given) or (isinstance(given, tuple | list) and given and all(map(_is_tensor, given)))):
            where = " (position 1)" if args else ""
            raise TypeError(_message(name, "input" if key == "self" else key, where, given)) from None


def _begins_with_number(args: tuple[Any, ...]) -> bool:
    """Whether the first operand is a number, as elementwise functions take it: an error need not be about it."""
    return bool(args) and isinstance(args[0], bool | int | float)


def _message(name: str, argument: str, where: str, given: Any) -> str:
    remedy = "from_numpy()" if isinstance(given, np.ndarray) else "tensor()"
    return f"{name}(): argument '{argument}'{where} must be Tensor, not {given.__class__.__name__}; use {remedy}"


def _check_asked(name: str, names: tuple[str, ...], args: tuple[Any, ...], named: dict[str, Any], error: Exception) -> None:
    """Raises TypeError where what was asked for something that tensors have is an argument, or an element of one, and is no tensor."""
    if not isinstance(error, AttributeError) or _is_tensor(asked := error.obj):
        return
    for i, (key, value) in enumerate([*zip(names, args, strict=False), *named.items()]):
        if value is asked or getattr(value, "dtype", None) is asked:
            raise TypeError(_message(name, key, f" (position {i + 1})" if i < len(args) else "", value)) from None
        if isinstance(value, str | tuple | list) and any(x is asked for x in value):
            raise TypeError(
                f"{name}(): expected Tensor as each element of argument '{key}', but got {asked.__class__.__name__}; use tensor()"
            ) from None


def _check_named(name: str, args: tuple[Any, ...], named: dict[str, Any], error: Exception) -> None:
    """Raises TypeError in the name of the function where Python or NumPy refused what it was given, which is no tensor."""
    if isinstance(error, AttributeError):
        is_refusal = not _is_tensor(error.obj) and not all(map(_is_tensor, args))
    else:
        is_refusal = isinstance(error, TypeError) and "()" not in str(error)
    if is_refusal:
        kinds = ", ".join([*(x.__class__.__name__ for x in args), *(f"{key}={x.__class__.__name__}" for key, x in named.items())])
        raise TypeError(f"{name}(): cannot take ({kinds}): {error}") from None


def require_tensors(name: str, **arguments: Any) -> None:
    """Raises TypeError for what is no tensor, as PyTorch does."""
    for position, (argument, value) in enumerate(arguments.items()):
        if not _is_tensor(value):
            raise TypeError(_message(name, argument, f" (position {position + 1})", value)) from None


def _matters(name: str, key: str, value: Any) -> bool:
    """Whether an argument about where a tensor lies asks for something that a tensor of this library is not."""
    if key == "device":
        require_cpu(name, value)
    return key == "requires_grad"
