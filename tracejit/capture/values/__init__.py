"""Models of values: what a recording may rely on for objects of one type that nothing can change, such as `decimal.Decimal`.

One file for each kind of value, with a tuple MODELS; `MODELS` here has all of them by their exact types.  Handlers ask this table and name
no such type themselves: what tells two values apart (guards), which operators, methods and texts depend on nothing but the values, whether
calls may construct them, whether the entry may hold them as constants.  A type without a model goes by the policies (../policies.py).

Columns and tables of other packages can change.  Their models (array_likes.py) say what calls may read of them before the program.

Must not know: the recorder, guards, expressions.  Only types and values of Python come in and go out.
Start reading: model.py, then decimals.py.
"""

from typing import Any

from tracejit.capture.values import dates, decimals, ranges, regular_expressions, time_zones
from tracejit.capture.values.model import ValueModel

__all__ = ["MODELS", "ValueModel", "key_of"]

MODELS: dict[type, ValueModel] = {
    model.type: model for module in (dates, decimals, ranges, regular_expressions, time_zones) for model in module.MODELS
}


def key_of(value: Any) -> tuple[Any, ...] | None:
    """What tells a value from others of its type; None where nothing but its identity does, or its type has no model."""
    model = MODELS.get(type(value))
    return None if model is None or model.key is None else model.key(value)
