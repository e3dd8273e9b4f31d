"""Groups that recur are scheduled once.

Equal layers of a network, and their backward passes, have equal groups: the same operations, at the same positions of the same spaces, on
values of the same sizes and layouts.  What differs is which nodes and values these are.  So `Schedules` describes a group by its form
(`fuse.Growth`) and by what else `schedule` reads of it, with values numbered in the order in which it mentions them; where a group has the
description of an earlier one, the nest is that one's, on other memory.

A group that may leave by an exit is scheduled for itself: its nest names the exit.  Knows what `schedule` depends on; not how it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tracejit.lowering.elements import Scratch
from tracejit.lowering.fuse import Group
from tracejit.lowering.schedule import Argument, Scheduled, schedule
from tracejit.lowering.special import special
from tracejit.lowering.values import Values

__all__ = ["Schedules"]


class Schedules:
    """The nests of the groups of one graph.  stored, inlined, exit_code: as `schedule` is given them."""

    def __init__(self, values: Values, stored: frozenset[int], inlined: frozenset[int], exit_code: Callable[[int], int]) -> None:
        self._values = values
        self._stored = stored
        self._inlined = inlined
        self._exit_code = exit_code
        self._known: dict[Hashable, tuple[Scheduled, Sequence[int]]] = {}

    def scheduled(self, group: Group, name: str) -> tuple[Scheduled, Scheduled]:
        """What `schedule`, or `special`, makes of a group, and what it made of the first one that this is like, itself or an earlier one:
        the nest has the name of that."""
        description, mentioned = self._described(group)
        found = self._known.get(description)
        if found is not None:
            first, before = found
            return _renamed(first, dict(zip(before, mentioned, strict=True))), first
        if group.is_nest:
            done = schedule(self._values, group, self._stored, self._inlined, self._exit_code, name)
        else:
            done = special(self._values, group.first, self._exit_code, name)
        if not done.exits:
            self._known[description] = done, mentioned
        return done, done

    def _described(self, group: Group) -> tuple[Hashable, list[int]]:
        """All that the nest of a group depends on, and the values that it mentions, in the order in which they are met.

        Which operations its members are, and which of them they read, by way of which views, tells the form.  What is left is what comes
        from elsewhere: of what is in memory the layout, and inlined nodes with what they read."""
        values, members, inlined, stored = self._values, group.members, self._inlined, self._stored
        nodes, producer, strided, kinds = values.nodes, values.producer, values.strided, values.kinds
        numbers, rank = list(members), dict[int, int]()
        found: list[Hashable] = [group.form]
        for number in numbers:  # it grows
            node = nodes[number]
            found.append(number in stored)
            for v in node.outputs:
                rank.setdefault(v, len(rank))
            for o in node.operands:
                if type(o) is not int:
                    continue
                layout = strided.get(o)
                root = o if layout is None else layout.root
                source = producer.get(root, -1)
                if source in members:
                    continue
                found.append(rank.setdefault(root, len(rank)))
                if layout is not None and source not in inlined:
                    found += kinds[root], layout.offset, layout.strides
                    continue
                found.append(None)
                if layout is not None and source not in numbers:
                    numbers.append(source)
        if len(numbers) > len(members):
            found += [values.alike[number] for number in numbers[len(members) :]]
            found += map(numbers.index, sorted(numbers))
        found += map(rank.__getitem__, sorted(rank))  # what comes first in memory may depend on the order of values
        return tuple(found), list(rank)


def _renamed(done: Scheduled, other: Mapping[int, int]) -> Scheduled:
    """The same nest on other values, and on scratch memory of its own."""
    scratch = {a.root: Scratch(a.root.dtype, a.root.count) for a in done.buffers if isinstance(a.root, Scratch)}
    buffers = [Argument(scratch[a.root] if isinstance(a.root, Scratch) else other[a.root], a.offset) for a in done.buffers]
    return Scheduled(
        done.nest,
        tuple(buffers),
        done.sizes,
        tuple([other[v] for v in done.scalars]),
        frozenset([other[v] for v in done.reads]),
        frozenset([other[v] for v in done.writes]),
        done.exits,
        {other[v]: frozenset([other[w] for w in given]) for v, given in done.in_place.items()},
        done.late,
    )
