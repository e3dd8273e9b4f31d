"""Values as something that can be compared: types, dtypes, bits, structure."""

from __future__ import annotations

import enum
import math

import tracejit as T

__all__ = ["facts", "rounded"]


def rounded(value):
    """A number by type and value, but for the last digits of a float: machine code may round elsewhere (docs/equality.md)."""
    if type(value) is float and math.isfinite(value):
        return f"{value:.5g}" if value else repr(value)
    return repr(value)


def facts(value, number=rounded, depth=8):
    """A value, and what it leads to, as tuples, lists and texts; number: what is seen of a number."""

    def of(part):
        return facts(part, number, depth - 1)

    kind = type(value).__name__
    if isinstance(value, T.Tensor):
        elements = [number(v) for v in value.detach().reshape(-1).tolist()]
        own = sorted((name, of(attribute)) for name, attribute in value.__dict__.items())
        return (
            kind,
            tuple(value.shape),
            tuple(value.stride()),
            str(value.dtype),
            value.requires_grad,
            value.is_leaf,
            elements,
            own,
        )
    if isinstance(value, enum.Enum) or not depth:
        return repr(value)
    if isinstance(value, dict):
        return kind, [(of(k), of(v)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return kind, sorted(map(repr, value))
    if isinstance(value, (list, tuple)):
        return kind, [of(v) for v in value]
    if isinstance(value, (int, float, str, bool, bytes, complex, type(None))):
        return kind, number(value)
    return (kind, of(vars(value))) if hasattr(value, "__dict__") else kind
