"""`range`."""

from __future__ import annotations

from tracejit.capture.values.model import ALL_OPERATORS, ValueModel

__all__ = ["MODELS"]


def _bounds(value: range) -> tuple[object, ...] | None:
    """They are what the range was given: a bool is one that its text shows."""
    bounds = value.start, value.stop, value.step
    return bounds if all(type(bound) is int for bound in bounds) else None


MODELS = (ValueModel(range, _bounds, ALL_OPERATORS),)
