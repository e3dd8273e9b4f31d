"""The elementary functions by name: the way in to all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tracejit.loops.expressions import Apply, Expr
from tracejit.math import circular, error_function, exponential, inverses, power

__all__ = ["complete", "expand"]

_DEFINITIONS: Final[dict[str, Callable[..., Expr]]] = {
    "acos": inverses.acos,
    "acosh": inverses.acosh,
    "asin": inverses.asin,
    "asinh": inverses.asinh,
    "atan": inverses.atan,
    "atan2": inverses.atan2,
    "atanh": inverses.atanh,
    "cos": circular.cos,
    "cosh": exponential.cosh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": exponential.log,
    "log10": exponential.log10,
    "log1p": exponential.log1p,
    "log2": exponential.log2,
    "pow": power.pow,
    "sigmoid": exponential.sigmoid,
    "sin": circular.sin,
    "sinh": exponential.sinh,
    "tan": circular.tan,
    "tanh": exponential.tanh,
}


# What `elementary_where` computes in lanes that the usual path of a definition leaves out
_COMPLETE: Final[dict[str, Callable[..., Expr]]] = {
    **{name: partial(exponential.complete_logarithm, name) for name in ("log", "log2", "log10")},
    "log1p": exponential.log1p_at_ends,
    "pow": power.complete_pow,
}


def complete(name: str, *operands: Expr) -> Expr:
    """The definition that `elementary_where` means by a name.  It contains no operation that `expand` defines."""
    return _COMPLETE[name](*operands)


def expand(e: Apply) -> Expr | None:
    """The definition of an elementary function of floats on the operands of `e`; None for any other operation."""
    definition = _DEFINITIONS.get(e.operation)
    return definition(*e.operands) if definition is not None and e.dtype.is_floating_point else None
