"""A bar for work that takes long, drawn by tqdm where that is installed.

A `Progress` costs a look at the clock for each step until its work has taken `DELAY` seconds; only then tqdm is
imported and a bar is drawn, on standard error.  Where tqdm is not installed, or `quiet` is set, nothing is drawn.

Must not know: what the work is.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final

from tracejit.core.lazy import lazy_module

__all__ = ["DELAY", "Progress"]

DELAY: Final = 0.5
"""Seconds that work takes before its bar is drawn: what is shorter needs none."""

_tqdm: Any = lazy_module("tqdm")


class Progress:
    """Counts the steps of some work and shows them; a context manager, whose end removes the bar.

    `total` is the number of steps, None where nobody knows it; `unit` is the name of one."""

    def __init__(self, description: str, *, total: int | None = None, unit: str = "step", quiet: bool = False) -> None:
        self._description, self._total, self._unit, self._quiet = description, total, unit, quiet
        self._begin = time.perf_counter()
        self._count = 0
        self._bar: Any = None

    def step(self, figure: str = "") -> None:
        """One more step is done; `figure` is shown beside the bar, such as the loss."""
        self._count += 1
        if self._quiet or (self._bar is None and time.perf_counter() - self._begin < DELAY):
            return
        if self._bar is None:
            self._bar = self._new_bar()
            if self._bar is None:
                self._quiet = True
                return
        self._bar.set_postfix_str(figure, refresh=False)
        self._bar.update(self._count - self._bar.n)

    def _new_bar(self) -> Any:
        try:
            make = _tqdm.tqdm
        except ImportError:
            return None
        return make(desc=self._description, total=self._total, unit=self._unit, leave=False)

    def close(self) -> None:
        """Remove the bar; it can be called twice."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
