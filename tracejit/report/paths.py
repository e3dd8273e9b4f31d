"""The recorded paths of a function as a tree: each under an earlier one, with what tells the two apart.

A path that was recorded after an exit hangs under the path that was left; any other under the earlier path from which it differs in the
values of fewest facts (capture/recording/facts.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracejit.capture.recording.facts import Fact
from tracejit.report.guards import exit_failure

__all__ = ["PathNode", "path_tree"]

_COMPARED = 64  # earlier paths with which one is compared
_VALUES = ("value", "size", "outcome")  # kinds of facts that are about the value of a thing
_Table = dict[tuple[str, str, str], Fact]


@dataclass(slots=True)
class PathNode:
    """A path.  number: among the paths.  what, where, there, here: what tells it from the path above: its name, the user's "file:line"
    ("" if there is none), the value in the path above, and the one in this path; all "" for the first path."""

    number: int
    path: Any
    what: str = ""
    where: str = ""
    there: str = ""
    here: str = ""
    below: list[PathNode] = field(default_factory=list)


def path_tree(paths: Sequence[Any]) -> list[PathNode]:
    """The roots of the tree."""
    nodes = [PathNode(k, path) for k, path in enumerate(paths)]
    number = {id(path): k for k, path in enumerate(paths)}
    exits: dict[int, tuple[int, int]] = {}  # path -> (earlier path, exit that leads to it)
    for k, path in enumerate(paths):
        for code, bridge in path.bridges.items():
            there = number.get(id(bridge), -1)
            if code and there > k:
                exits.setdefault(there, (k, code))
    tables = [_table(path.recording.facts) for path in paths]
    roots: list[PathNode] = []
    for k, node in enumerate(nodes):
        if k in exits:
            parent, code = exits[k]
            node.what, node.where, node.there, node.here, _ = exit_failure(paths[parent].executable.graph, code)
            nodes[parent].below.append(node)
        elif (nearest := _nearest(tables, k)) is not None:
            parent, before, fact = nearest
            node.what, node.where, node.there, node.here = fact.name, fact.where, before.value, fact.value
            nodes[parent].below.append(node)
        else:
            roots.append(node)
    return roots


def _table(facts: Iterable[Fact]) -> _Table:
    """The facts by what they are about."""
    return {("value" if fact.kind in _VALUES else fact.kind, fact.name, fact.where): fact for fact in facts}


def _nearest(tables: Sequence[_Table], k: int) -> tuple[int, Fact, Fact] | None:
    """(earlier path that differs from path `k` in fewest things, the first of these there, the same here); None if there is none."""
    found: tuple[int, Fact, Fact] | None = None
    fewest = 0
    for j in range(max(0, k - _COMPARED), k):
        differences = _differences(tables[j], tables[k])
        if differences and (found is None or len(differences) < fewest):
            found, fewest = (j, *differences[0]), len(differences)
    return found


def _differences(there: _Table, here: _Table) -> list[tuple[Fact, Fact]]:
    """(fact of one path, fact of the other) where they are about the same thing and differ.  Where one path asks for a value and the other
    for a type alone, the latter is told as "another" of its type."""
    found = [(there[key], fact) for key, fact in here.items() if key in there and there[key].value != fact.value]
    for (kind, name, where), fact in here.items():
        other = {"value": "type", "type": "value"}.get(kind, "")
        before = there.get((other, name, where))
        if before is not None and (kind, name, where) not in there and (other, name, where) not in here:
            pair = before, fact
            found.append(tuple([x._replace(value=f"another {x.value}") if x.kind == "type" else x for x in pair]))  # type: ignore[arg-type]
    return found
