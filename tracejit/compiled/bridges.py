"""Bridges: links from a path that did not serve a call to the path that does.

A path *misses* a call if a guard before its program fails, and leaves it by *exit* k if a guard inside the program fails;
nothing has been changed in either case.  A bridge from there leads to the path that served the last such call, which may exit in
turn and have a bridge of its own.  Calls follow bridges between machine code without Python, except for every 32nd or so, which
accounts for the others (RecordedPath.link).  If there is no bridge, all candidates are tried (path_table.py).  A call that none of them
serves is recorded, or runs eagerly (recording_driver.py).  If all were tried in vain after an exit, and there is no room for
another path, they are tried again only after more and more calls (RecordedPath.note_vain_search).
"""

from __future__ import annotations

from typing import Any

from tracejit.capture.recording.entry import INTERRUPTED, Exit
from tracejit.compiled.path_table import PathTable
from tracejit.compiled.promotion import Promoter
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.compiled.recording_driver import Miss, RecordingDriver
from tracejit.compiled.tier_policy import TierPolicy
from tracejit.cpython.size_table import Shapes
from tracejit.report.stats import Stats

__all__ = ["BridgeLinker"]


class BridgeLinker:
    """Follows and creates the bridges between the paths of one table."""

    __slots__ = ("_driver", "_policy", "_promoter", "_stats", "_table")

    def __init__(self, table: PathTable, policy: TierPolicy, promoter: Promoter, driver: RecordingDriver, stats: Stats) -> None:
        self._table, self._policy, self._promoter, self._driver, self._stats = table, policy, promoter, driver, stats

    def serve_after_exit(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: int,
        first: RecordedPath | None = None,
        counter: list[int] | None = None,
    ) -> Any:
        """The FALLBACK slot: the result of a call that a path has missed (number 0) or left by exit `number`; or UNSERVED.

        first: the path, default: the first of the table.  counter: `executable.counter` of the path that was left, which is
        another one if machine code has followed bridges."""
        table, driver = self._table, self._driver
        if number == INTERRUPTED.number or (driver.pending is not None and driver.install_finished()):
            return table.serve(args, kwargs)
        first, paths = first or table.first, table.paths
        if counter is not None and (first is None or first.executable.counter is not counter):
            first = next((path for path in paths if path.executable.counter is counter), None)
            number = 0 if first is None else number
        tried = [first]
        sizes = None if number else table.sizes_of(args, kwargs)
        if first is not None and sizes in table.by_sizes:
            first.bridges[0] = table.by_sizes[sizes][0]
        exited = first if number else None
        cost = 0 if first is None else first.effort if number else 1
        last = first
        while last is not None and (bridge := last.bridges.get(number)) is not None and bridge not in tried:
            result = bridge.serve(args, kwargs)
            if result.__class__ is not Exit:
                self._link_bridge(last, number, bridge)
                self._record_bridge_hit(bridge, exited, 0, cost, sizes)
                return result
            tried.append(bridge)
            if not result.number:
                cost += 1
                break
            self._link_bridge(last, number, bridge)
            cost += bridge.effort
            exited = last = bridge
            number = result.number
        if exited is None or not exited.skips_search():
            sizes = table.sizes_of(args, kwargs) if sizes is None else sizes
            for path in table.candidates(sizes):
                if path in tried:
                    continue
                result = path.serve(args, kwargs)
                if result.__class__ is not Exit:
                    self._record_bridge_hit(path, exited, number, cost, sizes)
                    return result
                cost += path.effort if result.number else 1 if path.machine is not None else 2
                if exited is None and result.number:
                    exited, number = path, result.number
        return driver.record_call(args, kwargs, Miss(paths, exited, number, cost))

    def _record_bridge_hit(
        self,
        path: RecordedPath,
        exited: RecordedPath | None,
        number: int,
        cost: int,
        sizes: Shapes | None,
    ) -> None:
        """Note that `path` has served a call of these sizes that the first one did not.  exited, number: the path that the call has
        left last, and the exit that gets a bridge to `path`; 0: it has one."""
        table = self._table
        if exited is not None:
            if number:
                self._link_bridge(exited, number, path)
                exited.unbridged[1] = 0
            self._stats.bridges += 1
        else:
            if table.first is not None:
                table.first.bridges[0] = path
            if sizes in table.by_sizes:
                table.set_first_for(sizes, path)
            table.set_first(path)
        if self._policy.accounts.charge(cost):
            self._policy.close_window()

    def _link_bridge(self, path: RecordedPath, number: int, bridge: RecordedPath) -> None:
        """Let calls go from exit `number` of `path` to `bridge`.  Also accounts for the calls that have done so without Python,
        has side traces compiled, and makes `bridge` the first path if most calls exit to it."""
        calls = path.link(number, bridge)
        if not calls:
            return
        for trace in path.missing_side_traces(number, bridge):
            self._promoter.add_side_trace(trace, number, bridge)
        self._stats.bridges += calls
        self._policy.accounts.charge(path.effort, calls)
        if path.mostly_exits(calls):
            table = self._table
            if table.by_sizes.get(path.sizes, (None,))[0] is path:
                table.set_first_for(path.sizes, bridge)
            if table.first is path:
                table.set_first(bridge)
