"""Which nests are the same, and steps that do the same to one set of memory after another.

An optimizer's update is the same nest for every parameter.  `Nests.known(nest)` gives equal nests one object, found by their *form*: all
that a rendering depends on, names of parameters included, names of axes and variables left out.  `group_alike_units` brings steps that call
the same nest next to each other where nothing forbids it, `merge_runs` makes one `NestRun` of neighbours: a loop over a table, so that
neither the text of a program nor the time to compile it grows with the number of tensors.

Symbolic sizes that are equal by chance stay two: parameters of nests are told apart by the expression of a number (`symbolic.by_origin`).

Knows steps and nests; not what they compute, and not how they are rendered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tracejit.core.symbolic import by_origin
from tracejit.loops.expressions import Apply, AxisValue, Const, Expr, Load, ScalarParam, SizeValue, Var, children
from tracejit.loops.language import Axis, Exit, For, Index, Interleaved, Let, Nest, Reduce, Statement, Store
from tracejit.lowering.divide import NestPart, nest_parts
from tracejit.lowering.schedule import Scheduled
from tracejit.lowering.steps import NestCall, NestRun, NumberSlot, ProgramStep

__all__ = ["Nests", "form", "group_alike_units", "merge_runs"]

U = TypeVar("U")
_About = TypeVar("_About")


def form(nest: Nest) -> Hashable:
    """Equal for two nests if and only if one may be called in the place of the other."""
    return _Form(nest).tokens()


class _Form:
    """Numbers the axes and expressions of a nest in the order of their appearance."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.axes: dict[int, int] = {}
        self.numbers: dict[int, int] = {}  # by id of an Expr
        self.found: list[Hashable] = []

    def tokens(self) -> tuple[Hashable, ...]:
        nest = self.nest
        self.statements(nest.body)
        return nest.buffers, nest.temporaries, nest.sizes, nest.scalars, tuple(self.found)

    def statements(self, statements: Sequence[Statement]) -> None:
        for s in statements:
            if isinstance(s, Let):
                self.bind(s.var, self.value(s.value))
            elif isinstance(s, Store):
                value = self.value(s.value)
                self.found.append(("store", s.buffer, self.index(s.index), value, s.accumulate))
            elif isinstance(s, Exit):
                self.found.append(("exit", self.value(s.condition), s.code))
            elif isinstance(s, Interleaved):
                self.found.append(("interleaved", len(s.stores)))
                self.statements(s.stores)
            elif isinstance(s, For):
                self.found.append(("for", self.axis(s.axis), s.extent, s.vector, s.lanes))
                if s.tiles is not None:
                    self.found.append((s.tiles.edge, tuple([(b, self.index(i)) for b, i in s.tiles.accesses])))
                self.statements(s.body)
                self.found.append("end")
            else:
                self.reduce(s)

    def reduce(self, s: Reduce) -> None:
        self.found.append(("reduce", self.axis(s.axis), s.extent))
        self.statements(s.body)
        for var, combination, value in s.items:
            self.found.append((combination, self.value(value), var.dtype))
        for var, _, _ in s.items:
            self.bind(var, -1)
        self.found.append("end")

    def bind(self, var: Var, value: int) -> None:
        """A variable has a number of its own: where it stands decides when its value is computed."""
        self.found.append(("let", value))
        self.numbers[id(var)] = len(self.numbers)

    def axis(self, axis: Axis) -> int:
        return self.axes.setdefault(id(axis), len(self.axes))

    def index(self, index: Index) -> Hashable:
        dynamic = None if index.dynamic is None else self.value(index.dynamic)
        terms = tuple([(self.axis(a), stride) for a, stride in index.terms])
        return terms, index.offset, dynamic, index.dynamic_stride

    def value(self, root: Expr) -> int:
        """The number of an expression; what it is made of comes first, without recursion over the depth of the DAG."""
        numbers, stack = self.numbers, [root]
        while stack:
            e = stack[-1]
            waiting = [] if id(e) in numbers else [c for c in children(e) if id(c) not in numbers]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if id(e) not in numbers:
                self.found.append(self.leaf_or_apply(e))
                numbers[id(e)] = len(numbers)
        return numbers[id(root)]

    def leaf_or_apply(self, e: Expr) -> Hashable:
        if isinstance(e, Apply):
            return e.operation, e.attribute, e.dtype, *[self.numbers[id(o)] for o in e.operands]
        if isinstance(e, Const):
            return "const", e.dtype, e.value.tobytes()
        if isinstance(e, Load):
            return "load", e.buffer, self.index(e.index)
        if isinstance(e, ScalarParam):
            return e.scalar
        if isinstance(e, SizeValue):
            return "size", e.size
        if isinstance(e, AxisValue):
            return "axis", self.axis(e.axis)
        assert isinstance(e, Var), e
        raise ValueError(f"nest {self.nest.name}: the variable {e.name!r} is used before a Let or Reduce names it")


class Nests:
    """The nests of a program, each once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Nest] = {}
        self._met: dict[int, tuple[Nest, Nest]] = {}  # nests by id, each with the first of its form
        self._whole: set[tuple[int, tuple[Hashable, ...]]] = set()  # nests (by id) and sizes that are not cut

    def known(self, nest: Nest) -> Nest:
        """The first nest of this form."""
        met = self._met.get(id(nest))
        if met is None:
            met = self._met[id(nest)] = nest, self._known.setdefault(form(nest), nest)
        return met[1]

    def nest_parts(self, done: Scheduled) -> tuple[NestPart, ...]:
        """The parts of a nest (divide.py).  One that was not worth cutting is not looked at again for other memory."""
        nest = self.known(done.nest)
        key = id(nest), tuple(map(by_origin, done.sizes))
        if key in self._whole:
            return (NestPart(nest, done.buffers, done.sizes, done.scalars),)
        parts = tuple([replace(part, nest=self.known(part.nest)) for part in nest_parts(done)])
        if parts[0].nest is nest and parts[0].division is None:
            self._whole.add(key)
        return parts


def group_alike_units(
    units: Sequence[U], kind: Callable[[U], Any], earliest: Callable[[U], int], note_run: Callable[[U, int], None]
) -> list[U]:
    """The units, each brought to the first run of its kind that it may stand in.  Kinds are compared by identity; None is like nothing.

    Runs have numbers, in their order.  earliest(unit): the number of the first run that it may be in; placed(unit, number): is told
    where each unit has come, in the order of the units.  Linear in the units, but for a search among the runs of a kind."""
    runs: list[list[U]] = []
    alike: dict[int, list[int]] = {}  # id of a kind -> the numbers of its runs
    for unit in units:
        own = kind(unit)
        mine = [] if own is None else alike.setdefault(id(own), [])
        at = bisect_left(mine, earliest(unit))
        if at == len(mine):
            mine.append(len(runs))
            runs.append([])
        runs[mine[at]].append(unit)
        note_run(unit, mine[at])
    return [unit for run in runs for unit in run]


def _alike(first: ProgramStep, second: ProgramStep) -> bool:
    """Whether two steps are calls that differ in nothing but what a table can hold."""
    if not (isinstance(first, NestCall) and isinstance(second, NestCall)) or first.nest is not second.nest:
        return False
    if first.division is not None or second.division is not None:
        return False
    numbers = zip(first.scalars, second.scalars, strict=True)
    return all(isinstance(a, NumberSlot) and isinstance(b, NumberSlot) and a.dtype is b.dtype for a, b in numbers) and all(
        isinstance(n, int) for call in (first, second) for n in (*call.sizes, *(a.offset for a in call.buffers))
    )


def merge_runs(
    steps: Sequence[ProgramStep], about: Sequence[_About], summary: Callable[[Sequence[int]], _About]
) -> tuple[list[ProgramStep], list[_About]]:
    """The steps and what is told about each, neighbours that are alike made one NestRun; summary: tells of such a run, from the numbers of
    its steps."""
    made: list[ProgramStep] = []
    told: list[_About] = []
    k = 0
    while k < len(steps):
        end = k + 1
        while end < len(steps) and _alike(steps[k], steps[end]):
            end += 1
        calls = tuple(s for s in steps[k:end] if isinstance(s, NestCall))
        if end - k > 1:
            made.append(NestRun(calls))
            told.append(summary(range(k, end)))
        else:
            made.append(steps[k])
            told.append(about[k])
        k = end
    return made, told
