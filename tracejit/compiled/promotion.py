"""Promotion: the entry of a path that has served many calls becomes machine code, and exits that many calls take get side traces.

Both are compiled in a thread, for which a call waits `CompileWait` seconds.  Until compiling has ended, and if it fails, calls
are served as before.  The thread writes to the entry, to the traces that it creates, and to the SERVE slot
(`PathTable.mark_stale`).  The next call that comes to Python does everything else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tracejit.compiled.diagnostics import Diagnostics
from tracejit.compiled.dispatch import SERVE
from tracejit.compiled.options import CompileWait
from tracejit.compiled.path_table import PathTable
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.compiled.side_trace import Trace
from tracejit.config import config
from tracejit.core.uninterrupted import start_work
from tracejit.cpython.functions import Untranslatable
from tracejit.report.debug import report_defect

__all__ = ["Promoter"]


class Promoter:
    """Promotes the paths of one table."""

    __slots__ = ("_diagnostics", "_lost", "_table", "_wait")

    def __init__(self, table: PathTable, diagnostics: Diagnostics, wait: CompileWait) -> None:
        self._table, self._diagnostics, self._wait = table, diagnostics, wait
        self._lost: list[RecordedPath] = []  # entries whose translation was lost by a fork

    def clear(self) -> None:
        """Reset to the state before the first call."""
        self._lost.clear()

    def promote(self, path: RecordedPath) -> None:
        """Have an entry translated to machine code, and with it those of other paths that have served as many calls: while some are
        machine code and some are not, a call may be looked for twice.  Called at the beginning of a call; nothing of the call has been
        done yet, so it may be interrupted here."""
        others = [
            other for other in self._table.paths if other is not path and other.body.promotes and other.uses >= path.hot_calls
        ]
        for each in (path, *others):
            if not each.begin_translation():
                continue
            work = start_work(partial(self._translate, each), self._wait(), partial(self._lose, each))
            if not work.finished:
                continue
            self._table.refresh()
            if (error := work.outcome().error) is not None:
                report_defect(self._diagnostics.name, "translate the Python around", error)

    def _translate(self, path: RecordedPath) -> None:
        """Make an entry machine code, or note in it why that is impossible.  Raises defects.  Runs in the thread."""
        try:
            translated = path.translate()
        except Untranslatable as error:
            path.keep_interpreted(f"what cannot be translated is {error}")
        except Exception as error:
            path.keep_interpreted(f"the translation failed: {type(error).__name__}: {error}")
            raise
        else:
            if path.become(*translated):
                self._table.mark_stale()

    def _lose(self, path: RecordedPath) -> None:
        """Called in a forked child, which does not have the thread: lets the next call have the entry translated again."""
        if path.lose_translation():
            self._lost.append(path)
            self._table.mark_stale()

    def serve_stale(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call in the state STALE: some entry has become machine code that the slots do not have yet, or has to be
        translated again."""
        while self._lost:
            self.promote(self._lost.pop())
        self._table.refresh()
        return self._table.slots[SERVE](args, kwargs)

    def add_side_trace(self, trace: Trace, number: int, bridge: RecordedPath) -> None:
        """Have a side trace compiled from exit `number` of a trace to `bridge`, unless there are too many."""
        if sum([len(path.traces) - 1 for path in self._table.paths]) >= config.max_entries:
            return
        key = number, bridge
        trace.sides[key] = None
        work = start_work(lambda: self._compile_side_trace(trace, number, bridge), self._wait(), lambda: trace.forget(key))
        if work.finished and (error := work.outcome().error) is not None:
            report_defect(self._diagnostics.name, "compile a side trace", error)

    def _compile_side_trace(self, trace: Trace, number: int, bridge: RecordedPath) -> None:
        try:
            side = bridge.side_trace(trace, number)
        except Exception as error:
            trace.sides[number, bridge] = f"compiling it failed: {type(error).__name__}: {error}"
            raise
        trace.sides[number, bridge] = side
        if isinstance(side, Trace):
            bridge.add_side_trace(side)
