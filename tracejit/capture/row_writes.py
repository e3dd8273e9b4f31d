"""Rows of a tensor that the steps of a loop write one by one, `out[t] = h`, and may read there again.

A row that a step before has written, `out[t - 1]`, is what that step wrote: a value that is carried on.  One that is still to be written,
`out[t + 1]`, is what the tensor had there when the loop began: a slice of that.  This step's own row is such a slice, too, until it is
written, and what was written from then on.  So all that the steps do to the tensor is to give it rows, which a loop can collect.

Rows are read like that where nothing that looks at them requires grad: else operations save what is then written to, and a backward pass
refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from tracejit.capture.loop_steps import LoopStep, StepNode, StepValue
from tracejit.core.op import Effect, Kind

__all__ = ["RowBefore", "WrittenRows"]

_MOST_BEFORE: Final = 4
"""How many steps before it has been written a row may be read."""


class RowBefore(NamedTuple):
    """A row that a step before has written, where the first step that is left out finds it: at `position` of `base`.  kind: its aval, and
    whether it requires grad."""

    base: StepValue
    dim: int
    position: Any
    kind: tuple[Any, bool]


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of `base` that steps write.  views: places of views of `base` -> how many steps before they have been written; writes: the
    nodes that write this step's, in their order."""

    base: StepValue
    views: Mapping[StepValue, int]
    writes: Sequence[int]


class WrittenRows:
    """A step in which rows are values.

    step: that step, in which a tensor whose rows are written is written to once.  rows: writes -> the nodes that are views of what they
    write to.  before: what is carried on besides; it comes after the tensors that the step begins with.  done: nodes that are not to be
    done any more."""

    def __init__(
        self,
        step: LoopStep,
        elements: int,
        numbers: Sequence[int],
        moving: Mapping[int, int],
        kinds: Mapping[StepValue, tuple[Any, bool]],
    ) -> None:
        """elements: how many of the tensors that the step begins with it is not to leave.  numbers: of the first value that each node
        makes.  moving: nodes that are views at places that move with the steps, and how far.  kinds: of values: their avals, and whether
        they require grad."""
        self.step = step
        self.rows: dict[int, int] = {}
        self.before: list[RowBefore] = []
        self.done: set[int] = set()
        self._numbers, self._moving, self._kinds = numbers, moving, kinds
        self._begins = elements + len(step.left)
        self._views: dict[StepValue, int] = {("made", numbers[i]): i for i in moving}
        kept = [place for k, place in enumerate(step.left, elements) if place != ("given", k)]
        self._kept = {*kept, *[place for items in step.appended for place in items]}
        for base in dict.fromkeys(
            [step.nodes[self._views[a.operands[0]]].operands[0] for a in step.nodes if self._writes_a_row(a)]
        ):
            row = self._row(base)
            if row is not None:
                self._make_values(row)

    def _writes_a_row(self, a: StepNode) -> bool:
        return a.node.op.kind is Kind.WRITE and a.operands[0] in self._views

    def _result_of(self, node: int) -> StepValue:
        return "made", self._numbers[node]

    def _row(self, base: StepValue) -> _Row | None:
        """How steps write and read rows of a tensor; None where they do anything else with it."""
        nodes = self.step.nodes
        views = {place: i for place, i in self._views.items() if nodes[i].operands[0] == base}
        writes = [i for i, a in enumerate(nodes) if a.node.op.kind is Kind.WRITE and a.operands[0] in views]
        written = views[nodes[writes[-1]].operands[0]]
        before = {place: self._steps_between(i, written) for place, i in views.items()}
        uses = Counter([x for a in nodes for x in a.operands if type(x) is tuple])
        if uses[base] > len(views) or not self._kept.isdisjoint({base, *views, *map(self._result_of, writes)}):
            return None
        known = {place: steps for place, steps in before.items() if steps is not None}
        if len(known) < len(before):
            return None
        row = _Row(base, known, writes)
        is_read = any(uses[x] for x in map(self._result_of, writes)) or sum(uses[x] for x in views) > 1
        return row if not is_read or self._may_be_read(row) else None

    def _steps_between(self, view: int, written: int) -> int | None:
        """How many steps before one row another has been written; None where they do not lie alike."""
        one, other, distance = self.step.nodes[view], self.step.nodes[written], self._moving[written]
        if one.node.attributes != other.node.attributes or self._moving[view] != distance:
            return None
        apart: Any = other.position - one.position  # type: ignore[operator]
        return apart // distance if type(apart) is int and apart % distance == 0 and apart // distance <= _MOST_BEFORE else None

    def _may_be_read(self, row: _Row) -> bool:
        """Whether rows are only computed with, and nothing saves them; this step's own one has no other views."""
        made = {*map(self._result_of, row.writes)}
        for i, a in enumerate(self.step.nodes):
            rows = {x for x in a.operands if x in row.views or x in made}
            if not rows:
                continue
            own = any(x in made or not row.views[x] for x in rows)
            if i in row.writes:
                if row.views[a.operands[0]] or self._kinds.get(a.operands[1]) != a.kind[0]:
                    return False
            elif not (a.node.op.effect is Effect.PURE or (a.node.op.effect is Effect.VIEW and not own)):
                return False
            if any(requires for _, requires in a.kind):
                return False
        return row.base[0] == "given" and not self._kinds[row.base][1]

    def _make_values(self, row: _Row) -> None:
        steps, first, nodes = self.step.nodes, self._begins + len(self.before), []
        now: StepValue | None = None  # what this step's row has been given
        written: set[StepValue] = set()

        def value(x: Any) -> Any:
            if row.views.get(x, 0) > 0:
                return "given", first + row.views[x] - 1
            return now if x in written or (x in row.views and not row.views[x] and now is not None) else x

        for i, a in enumerate(steps):
            if i in row.writes:
                now = value(a.operands[1]) if type(a.operands[1]) is tuple else None
                written.add(self._result_of(i))
                nodes.append(a if now is None else replace(a, operands=(a.operands[0], now)))
            else:
                nodes.append(replace(a, operands=tuple([value(x) if type(x) is tuple else x for x in a.operands])))
        last = row.writes[-1]
        view = self._views[steps[last].operands[0]]
        self.rows[last] = view
        self.done.update(row.writes[:-1], [self._views[x] for x, before in row.views.items() if before > 0])
        at, distance, dim = steps[view].position, self._moving[view], steps[view].node.attrs["dim"]
        left = list(self.step.left)
        for before in range(1, max(row.views.values()) + 1):
            assert at is not None and now is not None
            left.append(now if before == 1 else ("given", first + before - 2))
            self.before.append(RowBefore(row.base, dim, at + distance * (1 - before), steps[view].kind[0]))
        self.step = LoopStep(nodes, left, self.step.appended)
