"""Two compilers that do not compile, to test the tests: every acceptance check must fail for both.

`always_eager` runs the function each time and claims, in its statistics, that it replayed a program.  `garbage_replays` runs it once and
then returns tensors of the right shapes and dtypes filled with wrong numbers, without any effect.  Both have the interface of
`tracejit.compile`.
"""

from __future__ import annotations

import functools
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np

import tracejit

__all__ = ["AlwaysEager", "GarbageReplays", "always_eager", "garbage_replays"]

FIELDS = (
    "calls",
    "compiled_calls",
    "eager_calls",
    "traces",
    "programs_compiled",
    "machine_calls",
    "guard_misses",
    "exits",
    "bridges",
)


class _Fake:
    """What both share: statistics that look as if each call but the first had been replayed, and the reports."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self.clear()

    def clear(self) -> None:
        self.stats = SimpleNamespace(**dict.fromkeys(FIELDS, 0))

    def explain(self) -> str:
        return "replayed"

    def graph(self) -> str:
        return "def program(x):\n    return x\n"

    def source(self) -> str:
        return "def kernel(x):\n    return x\n"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def _count(self) -> bool:
        """Count a call; whether it is the first."""
        self.stats.calls += 1
        if self.stats.calls == 1:
            self.stats.eager_calls = self.stats.traces = self.stats.programs_compiled = 1
            return True
        self.stats.compiled_calls += 1
        self.stats.machine_calls += 1
        return False


class AlwaysEager(_Fake):
    """Right results, by running the function on every call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return self.__wrapped__(*args, **kwargs)


class GarbageReplays(_Fake):
    """A right first call; then, without running anything, tensors that look like its result."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._count():
            self._pattern = self.__wrapped__(*args, **kwargs)
            return self._pattern
        return self._garbage(self._pattern)

    def _garbage(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._garbage(item) for item in value)
        if not isinstance(value, tracejit.Tensor):
            return value
        old = value.detach().numpy()
        numbers = np.random.default_rng(self.stats.calls).integers(2, 90, old.shape)
        wrong = ~old if old.dtype == np.bool_ else (old + numbers).astype(old.dtype)
        garbage = tracejit.tensor(wrong)
        return garbage.requires_grad_() if value.requires_grad else garbage


always_eager = AlwaysEager
garbage_replays = GarbageReplays
