"""tracejit.profiler: labels that programs give to parts of themselves.  There is no profiler of operations; Python's own see them."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from tracejit.core.missing import missing_names

__all__ = ["profile", "record_function"]


class record_function(contextlib.ContextDecorator):  # noqa: N801  (PyTorch's name)
    """A context, or a decorator, with a name that a profiler would show; nothing shows it."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def profile(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: operations are not timed."""
    raise NotImplementedError(
        "profiler.profile(): tracejit does not time operations; use cProfile, and the statistics and explain() of compiled functions"
    )


__getattr__ = missing_names(__name__)
