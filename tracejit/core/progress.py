"""A bar for work that takes long, drawn by tqdm where that is installed.

A `Progress` costs a look at the clock for each step until its work has taken `DELAY` seconds; only then tqdm is
imported and a bar is drawn, on standard error.  Where tqdm is not installed, `quiet` is set, or `config.progress` is
False, nothing is drawn.

Must not know: what the work is.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Final

from tracejit.config import config
from tracejit.core.lazy import lazy_module

__all__ = ["DELAY", "Progress"]

DELAY: Final = 0.5
"""Seconds that work takes before its bar is drawn: what is shorter needs none."""

_TICK: Final = 0.5  # seconds between two looks of the thread of a bar that goes on between steps

_tqdm: Any = lazy_module("tqdm")


class Progress:
    """Counts the steps of some work and shows them; a context manager, whose end removes the bar.

    `total` is the number of steps, None where nobody knows it; `unit` is the name of one.  `between_steps` is for work of
    few long steps: on a terminal a thread draws the bar, so that it comes in time and its clock goes on while a step
    runs.  Elsewhere such work draws nothing."""

    def __init__(
        self, description: str, *, total: int | None = None, unit: str = "step", quiet: bool = False, between_steps: bool = False
    ) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._quiet = quiet or not config.progress or (between_steps and not _on_terminal())
        self._begin = time.perf_counter()
        self._count = 0
        self._bar: Any = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True) if between_steps and not self._quiet else None

    def step(self, figure: str = "") -> None:
        """One more step is done; `figure` is shown beside the bar, such as the loss."""
        self._count += 1
        if not self._quiet and time.perf_counter() - self._begin >= DELAY:
            self._draw(figure)

    def _draw(self, figure: str = "") -> None:
        with self._lock:
            if self._bar is None and not self._quiet:
                self._bar = self._new_bar()
                self._quiet = self._bar is None
            if self._bar is not None:
                self._bar.set_postfix_str(figure, refresh=False)
                self._bar.update(self._count - self._bar.n)

    def _tick(self) -> None:
        """Draw the bar after `DELAY`, then again and again until the work is done."""
        while not self._done.wait(DELAY if self._bar is None else _TICK):
            self._draw()
            if self._bar is None:
                return
            self._bar.refresh()

    def _new_bar(self) -> Any:
        try:
            make = _tqdm.tqdm
        except ImportError:
            return None
        return make(desc=self._description, total=self._total, unit=self._unit, leave=False)

    def close(self) -> None:
        """Remove the bar; it can be called twice."""
        self._done.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Progress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
