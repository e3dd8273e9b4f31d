"""Bridges: links from an entry that did not serve a call to the entry that does.

An entry *misses* a call if a guard before its program fails, and leaves it by *exit* k if a guard inside the program fails;
nothing has been changed in either case.  A bridge from there leads to the entry that served the last such call, which may exit in
turn and have a bridge of its own.  Calls follow bridges between machine code without Python, except for every 32nd or so, which
accounts for the others (Entry.link).  If there is no bridge, all candidates are tried (path_table.py).  A call that none of them
serves is recorded, or runs eagerly (recording_driver.py).  If all were tried in vain after an exit, and there is no room for
another path, they are tried again only after more and more calls (Entry.note_vain_search).
"""

from __future__ import annotations

from typing import Any

from tracejit.capture.recording.entry import INTERRUPTED, Exit
from tracejit.compiled.path_table import PathTable
from tracejit.compiled.promotion import Promoter
from tracejit.compiled.recorded_path import Entry
from tracejit.compiled.recording_driver import Miss, RecordingDriver
from tracejit.compiled.tier_policy import TierPolicy
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
        first: Entry | None = None,
        counter: list[int] | None = None,
    ) -> Any:
        """The FALLBACK slot: the result of a call that an entry has missed (number 0) or left by exit `number`; or UNSERVED.

        first: the entry, default: the first of the table.  counter: `executable.counter` of the entry that was left, which is
        another one if machine code has followed bridges."""
        table, driver = self._table, self._driver
        if number == INTERRUPTED.number or (driver.pending is not None and driver.install_finished()):
            return table.serve(args, kwargs)
        first, entries = first or table.first, table.entries
        if counter is not None and (first is None or first.executable.counter is not counter):
            first = next((entry for entry in entries if entry.executable.counter is counter), None)
            number = 0 if first is None else number
        tried = [first]
        exited = first if number else None
        cost = 0 if first is None else first.effort if number else 1
        last = first
        while last is not None and (bridge := last.bridges.get(number)) is not None and bridge not in tried:
            result = bridge.serve(args, kwargs)
            if result.__class__ is not Exit:
                self._link_bridge(last, number, bridge)
                self._record_bridge_hit(bridge, exited, 0, cost, args, kwargs)
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
            for entry in table.candidates(args, kwargs):
                if entry in tried:
                    continue
                result = entry.serve(args, kwargs)
                if result.__class__ is not Exit:
                    self._record_bridge_hit(entry, exited, number, cost, args, kwargs)
                    return result
                cost += entry.effort if result.number else 1 if entry.machine is not None else 2
                if exited is None and result.number:
                    exited, number = entry, result.number
        return driver.record_call(args, kwargs, Miss(entries, exited, number, cost))

    def _record_bridge_hit(
        self, entry: Entry, exited: Entry | None, number: int, cost: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Note that `entry` has served a call that the first one did not.  exited, number: the entry that the call has left last,
        and the exit that gets a bridge to `entry`; 0: it has one."""
        table = self._table
        if exited is not None:
            if number:
                self._link_bridge(exited, number, entry)
                exited.unbridged[1] = 0
            self._stats.bridges += 1
        else:
            if table.first is not None:
                table.first.bridges[0] = entry
            if len(table.by_sizes) > 1 and (sizes := table.symbolic.shapes(args, kwargs)) in table.by_sizes:
                table.set_first_for(sizes, entry)
            table.set_first(entry)
        if self._policy.accounts.charge(cost):
            self._policy.close_window()

    def _link_bridge(self, entry: Entry, number: int, bridge: Entry) -> None:
        """Let calls go from exit `number` of `entry` to `bridge`.  Also accounts for the calls that have done so without Python,
        has side traces compiled, and makes `bridge` the first entry if most calls exit to it."""
        calls = entry.link(number, bridge)
        if not calls:
            return
        for trace in entry.missing_side_traces(number, bridge):
            self._promoter.add_side_trace(trace, number, bridge)
        self._stats.bridges += calls
        self._policy.accounts.charge(entry.effort, calls)
        if entry.mostly_exits(calls):
            table = self._table
            if table.by_sizes.get(entry.sizes, (None,))[0] is entry:
                table.set_first_for(entry.sizes, bridge)
            if table.first is entry:
                table.set_first(bridge)
