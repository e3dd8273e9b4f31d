"""tracejit.testing: `assert_close`, PyTorch's comparison for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.core.dtypes import default_dtype, promote_types
from tracejit.core.missing import missing_names
from tracejit.functions import isclose
from tracejit.tensor import Tensor, as_tensor

__all__ = ["assert_allclose", "assert_close"]

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere, and shapes and dtypes agree.

    Sequences and mappings are compared member by member.  rtol and atol are given both or not at all: then they follow from the dtypes.
    msg is the text of the error, or makes it of the one there would be.  Raises TypeError for what cannot be compared.

    >>> assert_close(as_tensor([1.0, 2.0]), as_tensor([1.0, 2.0 + 1e-7]))"""
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and atol={atol}")
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_dtype": check_dtype}
    options |= {"check_stride": check_stride, "allow_subclasses": allow_subclasses}
    found = _difference(actual, expected, "", options)
    if found is not None:
        raise AssertionError(found if msg is None else msg if isinstance(msg, str) else msg(found))


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True
) -> None:
    """The older form of assert_close(): dtypes need not agree."""
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False)


def _difference(actual: Any, expected: Any, where: str, options: dict[str, Any]) -> str | None:
    """What is not close, in words; None where all is."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"The keys of the mappings do not match:{where} {sorted(map(repr, set(actual) ^ set(expected)))}"
        pairs = [(actual[key], expected[key], f"{where}[{key!r}]") for key in actual]
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch:{where} {len(actual)} != {len(expected)}"
        pairs = [(a, e, f"{where}[{i}]") for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    elif actual is None or expected is None:
        return None if actual is expected else f"None mismatch:{where} {actual!r} is not {expected!r}"
    else:
        return _difference_of_leaves(actual, expected, where, options)
    return next((found for pair in pairs if (found := _difference(*pair, options)) is not None), None)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _difference_of_leaves(actual: Any, expected: Any, where: str, options: dict[str, Any]) -> str | None:
    for value in (actual, expected):
        if not isinstance(value, Tensor | np.ndarray | np.generic | bool | int | float):
            raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}")
    if not options["allow_subclasses"] and type(actual) is not type(expected):
        raise TypeError(
            f"expected one type, got {type(actual).__name__} and {type(expected).__name__}; pass allow_subclasses=True"
        )
    numbers = not (hasattr(actual, "shape") or hasattr(expected, "shape"))
    a, e = (as_tensor(value).detach() for value in (actual, expected))
    where = f" (item{where})" if where else ""
    if a.shape != e.shape:
        return f"The values for attribute 'shape' do not match: {a.shape} != {e.shape}.{where}"
    if options["check_dtype"] and a.dtype is not e.dtype and not numbers:
        return f"The values for attribute 'dtype' do not match: {a.dtype} != {e.dtype}.{where}"
    if options["check_stride"] and a.stride() != e.stride():
        return f"The values for attribute 'stride()' do not match: {a.stride()} != {e.stride()}.{where}"
    rtol, atol = options["rtol"], options["atol"]
    if rtol is None:
        rtol, atol = (max(limits) for limits in zip(_tolerances(a.dtype), _tolerances(e.dtype), strict=True))
    common = promote_types(a.dtype, e.dtype)
    a, e = a.to(common), e.to(common)
    close = isclose(a, e, rtol=rtol, atol=atol, equal_nan=options["equal_nan"])
    if bool(close.all()):
        return None
    wide = a.double() if common.is_floating_point else a.to(default_dtype())
    distance = (wide - e.to(wide.dtype)).abs().numpy()
    wrong = int((~close).sum())
    with np.errstate(all="ignore"):
        relative = distance / np.abs(e.numpy().astype(np.float64))
    if numbers or a.ndim == 0:
        return (
            f"Scalars are not close!{where}\n\nExpected {e.item()} but got {a.item()}.\n"
            f"Absolute difference: {distance.item()} (up to {atol} allowed)\nRelative difference: {relative.item()} (up to {rtol} allowed)"
        )
    return (
        f"Tensor-likes are not close!{where}\n\nMismatched elements: {wrong} / {a.numel()} ({100 * wrong / a.numel():.1f}%)\n"
        f"Greatest absolute difference: {distance.max()} at index {_index_of_most(distance)} (up to {atol} allowed)\n"
        f"Greatest relative difference: {relative.max()} at index {_index_of_most(relative)} (up to {rtol} allowed)"
    )


def _tolerances(dtype: Any) -> tuple[float, float]:
    return _TOLERANCES.get(dtype.name, (0.0, 0.0))


def _index_of_most(array: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(array.argmax()), array.shape))


__getattr__ = missing_names(__name__)
