"""The tuples with names that functions of several results return; they print as PyTorch's do."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from tracejit.core.naming import package_name

__all__ = ["result_type"]


def _text(self: Any) -> str:
    fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{package_name()}.return_types.{type(self).__name__}(\n{fields})"


def result_type(name: str, *fields: str) -> Any:
    """The class of what the function `name` returns."""
    kind: Any = namedtuple(name, fields, module=__name__)  # type: ignore[misc]
    setattr(kind, "__repr__", _text)  # noqa: B010  (a type checker takes an assignment for a redefinition)
    kind.__doc__ = f"What {name}() returns."
    globals()[name] = kind  # where pickle finds it
    return kind
