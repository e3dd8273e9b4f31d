"""Functions of several operations that round once, and what autocast makes of them.

An operation of float16 or bfloat16 computes in float32 and rounds its result (core/op.py).  A function that is one kernel in PyTorch and
several operations here (softmax, a norm, a loss) does so as a whole: `rounds_once` gives it float32 and rounds what it returns.

`state.autocast` is the dtype of the innermost autocast of the thread, None outside: `lowered` marks functions whose tensors become that
(products), `in_float32` those that autocast keeps in float32 (losses).  Functions without a mark take what they are given.  The casts are
operations like any other.  This module knows no particular function.

Marks read the autocast of the thread and primitives do not, so backward passes are outside it.  A recording guards on it once there was
an autocast in the process; until then one word, `dtypes._without_autocast`, stands for it and for the default dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from tracejit.core.dtypes import DType, float32, float64
from tracejit.core.interpreter import state
from tracejit.core.op import REGISTRY

__all__ = ["autocast_operands", "in_float32", "like_first", "lowered", "rounds_once"]

F = TypeVar("F", bound=Callable[..., Any])
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def rounds_once(body: F) -> F:
    """Of tensors of one reduced dtype the function computes in float32, and rounds its results."""

    @functools.wraps(body)
    def entry(*args: Any, **named: Any) -> Any:
        array = getattr(args[0], "_array", None) if args else None
        if array is not None and ((dtype := array.dtype) is _F32 or dtype is _F64):  # decided fast: what follows is of them too
            return body(*args, **named)
        return _once(body, args, named)

    return entry  # type: ignore[return-value]


def lowered(body: F) -> F:
    """`rounds_once`, and under autocast the tensors become its dtype (float64 excepted, as in PyTorch)."""

    @functools.wraps(body)
    def entry(*args: Any, **named: Any) -> Any:
        lower = state.autocast
        if lower is None:
            array = getattr(args[0], "_array", None) if args else None
            if array is not None and ((dtype := array.dtype) is _F32 or dtype is _F64):
                return body(*args, **named)
            return _once(body, args, named)
        args, named = _mapped((args, named), lambda x: x if x.dtype is float64 else _cast(x, lower))
        return _once(body, args, named)

    return entry  # type: ignore[return-value]


def autocast_operands(*tensors: Any) -> tuple[Any, ...]:
    """The operands of a product under autocast: for functions of one primitive, which rounds once anyway."""
    return tuple([x if not _is_floating(x) or x.dtype is float64 else _cast(x, state.autocast) for x in tensors])


def in_float32(body: F) -> F:
    """`rounds_once`, but under autocast tensors of reduced dtypes become float32 and so do the results."""

    @functools.wraps(body)
    def entry(*args: Any, **named: Any) -> Any:
        if state.autocast is not None:
            args, named = _mapped((args, named), _wide)
            return body(*args, **named)
        array = getattr(args[0], "_array", None) if args else None
        if array is not None and ((dtype := array.dtype) is _F32 or dtype is _F64):
            return body(*args, **named)
        return _once(body, args, named)

    return entry  # type: ignore[return-value]


def like_first(*kept: str) -> Callable[[F], F]:
    """`rounds_once` where the result has the dtype of the first tensor, whatever that of the others (weights of norms).  Arguments of
    these names, which the function changes in place, are handed over as they are."""

    def decorate(body: F) -> F:
        names = body.__code__.co_varnames

        @functools.wraps(body)
        def entry(*args: Any, **named: Any) -> Any:
            array = getattr(args[0], "_array", None) if args else None
            if array is not None and ((dtype := array.dtype) is _F32 or dtype is _F64):
                return body(*args, **named)
            named = {**dict(zip(names, args, strict=False)), **named}
            reduced: DType = named[names[0]].dtype
            if not reduced.is_reduced:
                return body(**named)
            wide = {key: value if key in kept else _mapped(value, _wide) for key, value in named.items()}
            return _mapped(body(**wide), lambda x: _rounded(x, reduced))

        return entry  # type: ignore[return-value]

    return decorate


def _once(body: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    found = {x.dtype for x in _floating((args, named))}
    if len(found) != 1 or any(
        isinstance(x, DType) for x in (*args, *named.values())
    ):  # a dtype that is asked for is that of the result
        return body(*args, **named)
    (reduced,) = found
    if not reduced.is_reduced:
        return body(*args, **named)
    given = _inplace(body, args, named)
    if given is not None:
        args, named, target = given
        return target.copy_(_once(body, args, named))
    args, named = _mapped((args, named), _wide)
    return _mapped(body(*args, **named), lambda x: _rounded(x, reduced))


def _inplace(body: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any] | None:
    """The arguments of a function that is asked to write to its input, without that wish, and the input."""
    names = body.__code__.co_varnames[: body.__code__.co_argcount]
    if "inplace" not in names:
        return None
    given = {**dict(zip(names, args, strict=False)), **named}
    if not given.get("inplace"):
        return None
    return (), {**given, "inplace": False}, given[names[0]]


def _is_floating(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return type(dtype) is DType and dtype.is_floating_point


def _floating(x: Any) -> Iterator[Any]:
    """The floating-point tensors among arguments."""
    if type(x) in (tuple, list):
        for member in x:
            yield from _floating(member)
    elif type(x) is dict:
        yield from _floating(tuple(x.values()))
    elif _is_floating(x):
        yield x


def _mapped(x: Any, convert: Callable[[Any], Any]) -> Any:
    """Arguments or results with their floating-point tensors converted."""
    if type(x) in (tuple, list):
        return type(x)([_mapped(member, convert) for member in x])
    if type(x) is dict:
        return {key: _mapped(member, convert) for key, member in x.items()}
    return convert(x) if _is_floating(x) else x


def _cast(x: Any, dtype: DType) -> Any:
    return x if x.dtype is dtype else REGISTRY["cast"].of(x, dtype=dtype)


def _wide(x: Any) -> Any:
    return _cast(x, float32) if x.dtype.is_reduced else x


def _rounded(x: Any, reduced: DType) -> Any:
    return _cast(x, reduced) if x.dtype is float32 else x
