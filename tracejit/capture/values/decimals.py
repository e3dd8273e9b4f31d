"""`decimal.Decimal`: what it computes and how it is written depends on the thread's decimal context, in which it leaves flags."""

from __future__ import annotations

import decimal

from tracejit.capture.values.model import ALL_OPERATORS, ValueModel

__all__ = ["MODELS"]

_EXACT = decimal.Context()
_SIGNALS = tuple(_EXACT.flags)


def _digits(value: decimal.Decimal) -> tuple[str] | None:
    """Sign, digits and exponent: 1.0 and 1.00 are equal, and are written otherwise.  NaN is found in containers by its identity."""
    return None if value.is_nan() else (_EXACT.to_sci_string(value),)


def decimal_context() -> tuple[object, ...]:
    """The precision, the rounding, the limits, and which signals were raised or raise errors."""
    c = decimal.getcontext()
    flags, traps = c.flags, c.traps
    return (c.prec, c.rounding, c.Emin, c.Emax, c.capitals, c.clamp, *[(flags[signal], traps[signal]) for signal in _SIGNALS])


MODELS = (
    ValueModel(
        decimal.Decimal,
        _digits,
        ALL_OPERATORS - {"&", "|", "^", "invert"},
        environment=decimal_context,
        is_constructed=True,
    ),
)
