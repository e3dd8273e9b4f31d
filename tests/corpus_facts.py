"""Values as something that can be compared: types, dtypes, bits, structure."""

from __future__ import annotations

import enum
import math

import tracejit as T


def number(value):
    """A number by type and bits, but for the last digits of a float: machine code may round elsewhere (docs/equality.md)."""
    if type(value) is float and math.isfinite(value):
        return f"{value:.5g}" if value else repr(value)
    return repr(value)


def facts(value, depth=8):
    """A value, and what it leads to, as tuples, lists and texts."""
    if isinstance(value, T.Tensor):
        elements = [number(v) for v in value.detach().reshape(-1).tolist()]
        extra = sorted((k, facts(v, depth - 1)) for k, v in value.__dict__.items())
        return (
            "tensor",
            tuple(value.shape),
            tuple(value.stride()),
            str(value.dtype),
            value.requires_grad,
            value.is_leaf,
            elements,
            extra,
        )
    if isinstance(value, enum.Enum) or not depth:
        return repr(value)
    if isinstance(value, dict):
        return type(value).__name__, [(facts(k, depth - 1), facts(v, depth - 1)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(map(repr, value))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [facts(v, depth - 1) for v in value]
    if isinstance(value, (int, float, str, bool, bytes, complex, type(None))):
        return type(value).__name__, number(value)
    return (type(value).__name__, facts(vars(value), depth - 1)) if hasattr(value, "__dict__") else type(value).__name__
