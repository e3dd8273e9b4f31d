"""How a tensor prints: PyTorch's text, character for character but for the name of the library.

All elements of a tensor are printed alike: as integers with a dot where all are whole, with four digits, or in scientific notation where
the largest and smallest differ too much.  Of a tensor of more than `threshold` elements only the edges are shown.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core import dtypes

__all__ = ["remark", "set_printoptions", "shown"]


class _Options:
    """What set_printoptions() sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = _Options()
_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print: digits behind the point, from how many elements on only `edgeitems` at each edge are shown, the width of a line,
    and whether in scientific notation (None: where the numbers ask for it).  profile: "default", "short" or "full"."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions(): profile must be one of {', '.join(_PROFILES)}, got {profile!r}")
        _options.precision, _options.threshold, _options.edgeitems, _options.linewidth = _PROFILES[profile]
    if precision is not None:
        _options.precision = precision
    if threshold is not None:
        _options.threshold = threshold
    if edgeitems is not None:
        _options.edgeitems = edgeitems
    if linewidth is not None:
        _options.linewidth = linewidth
    _options.sci_mode = sci_mode


class _Formatter:
    """The common form of the elements of an array."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.floating = array.dtype.kind in dtypes.FLOATING_KINDS
        self.whole, self.scientific, self.width = True, False, 1
        if not self.floating:
            self.width = max((len(str(v)) for v in array.ravel().tolist()), default=1)
            return
        values = array[np.isfinite(array) & (array != 0)].astype(np.float64)
        if not values.size:
            return
        sizes = np.abs(values)
        low, high = float(sizes.min()), float(sizes.max())
        self.whole = bool((values == np.ceil(values)).all())
        self.scientific = high / low > 1000.0 or high > 1.0e8 or (not self.whole and low < 1.0e-4)
        if _options.sci_mode is not None:
            self.scientific = _options.sci_mode
        self.width = max(len(self.text(v)) for v in values.tolist())

    def text(self, value: Any) -> str:
        """One element, not padded."""
        if not self.floating:
            return str(value)
        if self.scientific:
            return f"{value:.{_options.precision}e}"
        if self.whole:
            return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        return f"{value:.{_options.precision}f}"

    def __call__(self, value: Any) -> str:
        return self.text(value).rjust(self.width)


def _edges(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements that are shown of a large array."""
    for dim, size in enumerate(array.shape):
        if size > 2 * _options.edgeitems:
            shown = [*range(_options.edgeitems), *range(size - _options.edgeitems, size)]
            array = array.take(shown, axis=dim)
    return array


def _lines(array: np.ndarray[Any, Any], indent: int, short: bool, form: _Formatter) -> str:
    """The nested brackets; lines behind the first begin `indent` characters further to the right."""
    if not array.ndim:
        return form(array.item())
    edge = _options.edgeitems
    short_here = short and array.shape[0] > 2 * edge
    rows = [*array[:edge], *array[len(array) - edge :]] if short_here else list(array)
    if array.ndim == 1:
        parts = [form(x.item()) for x in rows]
        if short_here:
            parts.insert(edge, " ...")
        per_line = max(1, (_options.linewidth - indent) // (form.width + 2))
        lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [_lines(row, indent + 1, short, form) for row in rows]
    if short_here:
        parts.insert(edge, "...")
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def remark(tensor: Any) -> str:
    """What the text of a tensor says of its gradient."""
    if tensor.grad_fn is not None:
        return f"grad_fn=<{tensor.grad_fn.name()}>"
    return "requires_grad=True" if tensor.requires_grad else ""


def shown(array: np.ndarray[Any, Any], kind: str, remark: str) -> str:
    """`tensor([...], dtype=..., requires_grad=True)`, of a tensor of the class `kind` that holds `array`: the dtype only where it is not
    the default one of its kind."""
    prefix = "tensor(" if kind in ("Tensor", "Parameter", "Buffer") else f"{kind}("
    short = array.size > _options.threshold
    body = _lines(array, len(prefix), short, _Formatter(_edges(array) if short else array)) if array.size else "[]"
    extra = []
    if array.size == 0 and array.ndim != 1:
        extra.append(f"size={tuple(array.shape)}")
    dtype = dtypes.FROM_NUMPY[array.dtype]
    usual = (dtypes.default_dtype(), *((dtypes.int64, dtypes.bool_) if array.size else ()))
    if dtype not in usual:
        extra.append(f"dtype={dtype!r}")
    if remark:
        extra.append(remark)
    text = prefix + body
    length = len(text) - text.rfind("\n") + 1
    for part in extra:
        if length + len(part) + 2 > _options.linewidth:
            text, length = f"{text},\n{' ' * len(prefix)}{part}", len(prefix) + len(part)
        else:
            text, length = f"{text}, {part}", length + len(part) + 2
    return ("Parameter containing:\n" if kind == "Parameter" else "") + text + ")"


def _name(node: Any) -> str:
    """The name of a node of the tape."""
    name = node.name
    return name() if callable(name) else name
