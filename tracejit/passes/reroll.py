"""Loops that Python has unrolled become loops again.

A large graph in which nodes repeat (same operations, attributes, avals, in the same order) is searched for stretches whose operands repeat,
too: in each step an operand is made in the same step, or so many steps before by the same node (carried), or is the same throughout
(shared), or comes from outside, another one in each step: a slice of one tensor, or values that are stacked for it.  Such a stretch is one
`loop` (ir/loop.py), which does what the steps did, in their order, so results keep their bits.  Short periods come first, so loops in loops
are found from the inside.

Slices (slices.py) are no nodes of the sequence: they are made where something outside loops reads one.  The steps before those whose
operands repeat stay as they are, and so do the ones after.

Products of steps are then taken out of loops (hoist.py), so that they run faster than what was unrolled, too.

In a graph of LARGE nodes or more, what differs from step to step may also be tensors that are copied into one, up to MOST_STACKED bytes, or
Python numbers, which become a table.  Larger tensors, weights of layers say, keep the steps unrolled, with a line in the graph's history
that `explain(verbose=True)` shows.  So do shapes that differ from step to step, and functions of the host.  A guard in a step leaves the
loop there, and its exit knows the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count as naturals
from typing import Any, Final, NamedTuple

import numpy as np

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import REGISTRY, Effect, Kind, Op, Promotion
from tracejit.core.symbolic import text_of
from tracejit.ir.builder import GraphBuilder, next_id, rebuild
from tracejit.ir.graph import Body, Graph, Literal, Node, Operand, likeness, numbered
from tracejit.ir.loop import loop
from tracejit.passes.join import sums_in_one
from tracejit.passes.own_slices import own_slices
from tracejit.passes.periods import stretches
from tracejit.passes.slices import Slice, moved_to_front, unbound_slices

__all__ = ["reroll"]

FEWEST_NODES: Final = 100
"""Of a graph that is searched."""
LARGE: Final = 500
"""Nodes of a graph that takes so long to compile that copying some operands is the smaller evil."""
FEWEST_STEPS: Final = 8
FEWEST_SAVED: Final = 64
"""Nodes that a loop does away with."""
MOST_STACKED: Final = 1 << 16
"""Bytes that may then be copied so that a loop has the values of its steps in one tensor."""
_SWEEPS: Final = 16
_MOST_SHIFTS: Final = 3
_REFUSED: Final = (Kind.WRITE, Kind.OPAQUE)
_MOVING: Final = (Kind.VIEW, Kind.MOVEMENT, Kind.CREATION)

StepOutput = tuple[int, int]  # (node of a step, its output)
Slot = tuple[int, int]  # (node of a step, its operand)


def reroll(graph: Graph, always: bool = False) -> Graph:
    """The graph with loops; or with a line in its history, where a loop would have to copy too much; or `graph` itself, where nothing
    repeats, or where it is small and `always` is not asked for."""
    if len(graph.nodes) < FEWEST_NODES and not always:
        return graph
    sequence = _Sequence(sums_in_one(own_slices(graph)))
    for _ in range(_SWEEPS):
        if not sequence.fold():
            break
    if sequence.folded:
        return sequence.graph()
    return replace(graph, history=(*graph.history, text_of("reroll: ", sequence.unrolled[1]))) if sequence.unrolled else graph


class _ColumnKind(Enum):
    """What an operand is in each step."""

    MADE = auto()  # steps ago, node of a step, its output
    SLICE = auto()  # base, dimension
    SAME = auto()  # the operand
    NUMBER = auto()
    OTHER = auto()


class _Column(NamedTuple):
    """The values that one operand has, step by step.  `what` is the same for all of them: a kind, and what is said there; `at`: where a
    slice is taken."""

    what: tuple[Any, ...]
    at: int = 0


@dataclass(slots=True)
class _UnrolledSteps:
    """A stretch of `count` steps of `period` nodes from `begin` on.  columns: (node of a step, its operand) -> what that is in the first
    step; strides: how much further a slice is in the next one."""

    begin: int
    period: int
    count: int
    columns: dict[Slot, _Column] = field(default_factory=dict)
    strides: dict[Slot, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.begin + self.period * self.count


class _Sequence:
    """The nodes of a graph, but for slices of what many slices are taken of."""

    def __init__(self, graph: Graph) -> None:
        self.original = graph
        self.is_large = len(graph.nodes) >= LARGE
        self.builder = GraphBuilder(next_id(graph))
        self.builder.avals = dict(graph.avals)
        self.folded = False
        self.unrolled: tuple[int, str] | None = None  # (nodes of the longest stretch that stays, why)
        self.collected: set[Operand] = set()  # values that are slices of what loops give
        self.nodes, self.slices = unbound_slices(self.builder, graph.nodes, FEWEST_STEPS)
        self.made: dict[int, tuple[int, int]] = {}  # of the nodes at the beginning of a sweep, as are the readers
        self.readers: dict[int, list[int]] = {}

    # -- a sweep
    def fold(self) -> bool:
        """Replace the stretches of the shortest period that makes loops; False where there is none."""
        self.made, self.readers = {}, {}
        numbers: dict[Any, int] = {}  # of labels
        found = [numbers.setdefault(label, len(numbers)) for label in self._labels()]
        exact = np.array(found)
        if self._fold_any(exact):
            return True
        if len(self.nodes) < LARGE:
            return False
        some = dict(zip(found, self.nodes, strict=True))  # a node of each label
        merged: dict[Any, int] = {}
        others = [merged.setdefault(_without_numbers(some[k], label), k) for label, k in numbers.items()]
        return len(merged) < len(others) and self._fold_any(np.array(others)[exact])

    def _fold_any(self, labels: np.ndarray[Any, Any]) -> bool:
        """The same where nodes that may be the same step's have the same label."""
        for period, found in stretches(labels, FEWEST_STEPS):
            if not self.made:
                self.made = {v: (i, k) for i, node in enumerate(self.nodes) for k, v in enumerate(node.outputs)}
                self.readers = self._all_readers()
            folded = [self._folded(begin, end, period) for begin, end in reversed(found)]
            if any(folded):
                self.folded = True
                return True
        return False

    def _labels(self) -> list[Any]:
        """For each node what nodes that may be the same step's of two steps have in common."""
        kinds = numbered(self.builder.avals)
        is_like_none: dict[Op, bool] = {}
        labels: list[Any] = []
        for node in self.nodes:
            op = node.op
            if op not in is_like_none:
                is_like_none[op] = _cannot_be_in_loop(op)
            is_own = is_like_none[op] or (op.may_exit and self._is_empty(node))
            labels.append(id(node) if is_own else likeness(node, kinds, kinds))
        return labels

    def _is_empty(self, node: Node) -> bool:
        """Whether a node that may exit checks indices that no loop over elements would look at."""
        return any(0 in self.builder.aval(v).shape for v in node.outputs)

    def _all_readers(self) -> dict[int, list[int]]:
        """Where values are read; what the graph gives is read after all nodes."""
        found: dict[int, list[int]] = {}
        slices = self.slices
        ends = (*self.original.outputs, *[v for _, v in self.original.writes])
        for i, operands in enumerate((*[node.operands for node in self.nodes], ends)):
            for x in operands:
                if type(x) is int:
                    found.setdefault(x, []).append(i)
                    while x in slices:
                        x = slices[x].base
                        found.setdefault(x, []).append(i)
        return found

    def _folded(self, begin: int, end: int, period: int) -> bool:
        found = (self._fold(begin + s, (end - begin - s) // period, period) for s in self._shifts(begin, end, period))
        return any(found)

    def _fold(self, begin: int, count: int, period: int) -> bool:
        """Replace what repeats itself among so many steps: around the middle, then before and after that."""
        if count < FEWEST_STEPS:
            return False
        steps = self._repeating(_UnrolledSteps(begin, period, count))
        first = last = count // 2
        if steps is not None:
            first = (steps.begin - begin) // period
            last = first + steps.count
        found = self._fold(begin + last * period, count - last, period)  # the later ones first, since positions move
        nodes = self._loop(steps) if steps is not None and self._pays(steps) else None
        if steps is not None and nodes is not None:
            self.nodes[steps.begin : steps.end] = nodes
            found = True
        return self._fold(begin, first, period) or found

    def _shifts(self, begin: int, end: int, period: int) -> list[int]:
        """Where steps may begin: a few positions that the fewest values cross."""
        middle = begin + (end - begin) // period // 2 * period
        crossing = [0] * period
        for i in range(middle, middle + period):
            for v in self.nodes[i].outputs:
                last = max((at for at in self.readers.get(v, ()) if at < end), default=i)
                for at in range(i + 1, min(last, i + period) + 1):
                    crossing[(at - begin) % period] += 1
        return [s for s in range(period) if crossing[s] == min(crossing)][:_MOST_SHIFTS]

    def _pays(self, steps: _UnrolledSteps) -> bool:
        body = self.nodes[steps.begin : steps.begin + steps.period]
        return (steps.count - 1) * steps.period >= FEWEST_SAVED and any(node.op.kind not in _MOVING for node in body)

    # -- what operands of steps are
    def _column(self, steps: _UnrolledSteps, t: int, node: int, k: int) -> _Column | None:
        """What an operand is in step t; None for what no loop can give it."""
        begin, end = steps.begin, steps.begin + steps.period * steps.count
        i = begin + t * steps.period + node
        x = self.nodes[i].operands[k]
        if type(x) is int:
            known = self.slices.get(x)
            if known is not None:
                root = known.base
                while root in self.slices:
                    root = self.slices[root].base
                at = self.made.get(root, (-1, 0))[0]
                return None if begin <= at < end else _Column((_ColumnKind.SLICE, known.base, known.dim), known.index)
            at, output = self.made.get(x, (-1, 0))
            if begin <= at < end:
                made, position = divmod(at - begin, steps.period)
                return _Column((_ColumnKind.MADE, t - made, position, output))
        before, after = i - steps.period, i + steps.period
        is_same = (before >= begin and self.nodes[before].operands[k] == x) or (
            after < end and self.nodes[after].operands[k] == x
        )
        return _Column((_ColumnKind.SAME, x) if is_same else (_ColumnKind.OTHER,) if type(x) is int else (_ColumnKind.NUMBER,))

    def _repeating(self, steps: _UnrolledSteps) -> _UnrolledSteps | None:
        """The steps around the middle one in which all operands are what they are there; None where these are few."""
        first, last, middle = 0, steps.count, steps.count // 2
        found = _UnrolledSteps(steps.begin, steps.period, steps.count)
        for node in range(steps.period):
            for k in range(len(self.nodes[steps.begin + node].operands)):
                if last - first < FEWEST_STEPS:
                    return None
                reference, following = self._column(steps, middle, node, k), self._column(steps, middle + 1, node, k)
                if reference is None or following is None or not self._may_be(reference, steps, node, k):
                    return None
                stride = following.at - reference.at

                def same(t: int, node: int = node, k: int = k, like: _Column = reference, stride: int = stride) -> bool:
                    return self._column(steps, t, node, k) == _Column(like.what, like.at + stride * (t - middle))

                first = next((t + 1 for t in range(middle, first - 1, -1) if not same(t)), first)
                last = next((t for t in range(middle, last) if not same(t)), last)
                found.columns[node, k], found.strides[node, k] = reference, stride
        for key, column in found.columns.items():
            found.columns[key] = _Column(column.what, column.at - found.strides[key] * (middle - first))
        found.begin, found.count = steps.begin + first * steps.period, last - first
        return found if found.count >= FEWEST_STEPS else None

    def _may_be(self, column: _Column, steps: _UnrolledSteps, node: int, k: int) -> bool:
        """Whether a loop may be given such a column: not if too much had to be copied for it."""
        x = self.nodes[steps.begin + node].operands[k]
        if column.what[0] is not _ColumnKind.OTHER or type(x) is not int:
            return True
        aval = self.builder.avals[x]
        if isinstance(aval, Aval) and self.is_large and aval.nbytes * steps.count <= MOST_STACKED:
            return True
        found, maker = steps.count * steps.period, self.nodes[steps.begin + node]
        if self.unrolled is None or found > self.unrolled[0]:
            head = (
                f"{steps.count} steps of {steps.period} nodes stay unrolled: {maker.op.name} at {maker.line or '?'} has another "
            )
            self.unrolled = found, text_of(head, *_aval_text(aval), " in each")
        return False

    # -- the loop
    def _loop(self, steps: _UnrolledSteps) -> list[Node] | None:
        """The nodes that stand for the steps: the loop, after what makes its operands.  None where too much would be copied, or where
        nothing comes of them."""
        self.builder.nodes = []
        body = _Body(self, steps)
        operands = body.operands()
        if operands is None or not (body.carried or body.collected):
            return None  # guards of one value, again and again, are no loop
        count, carried = steps.count, len(body.carried)
        attributes = {"carried": carried, "sliced": len(body.sliced), "count": count, "reverse": body.reverse}
        made = self.builder.add(loop(0), tuple(operands), {"body": Body(body.graph()), **attributes})
        ends = list(made[:carried])
        for i, (position, ago) in enumerate(body.carried):
            if ago == 1 and position not in body.collected:
                ends[i] = self._value(steps, count - 1, position)
        for stack, position in zip(made[carried:], body.collected, strict=True):
            for t in range(count):
                v = self._value(steps, t, position)
                self.slices[v] = Slice(stack, 0, count - 1 - t if body.reverse else t)
                self.collected.add(v)
        node = self.builder.nodes.pop()
        return [*self.builder.nodes, replace(node, outputs=(*ends, *made[carried:]))]

    def _value(self, steps: _UnrolledSteps, t: int, position: StepOutput) -> int:
        return self.nodes[steps.begin + t * steps.period + position[0]].outputs[position[1]]

    # -- the end
    def graph(self) -> Graph:
        """The graph of what there is now, with the slices that something reads."""
        nodes: list[Node] = []
        there: set[int] = set()

        def have(x: Operand) -> None:
            if type(x) is int and x in self.slices and x not in there:
                there.add(x)
                have(self.slices[x].base)
                nodes.append(self.slices[x].node(x))

        for node in self.nodes:
            for x in node.operands:
                have(x)
            nodes.append(node)
        outputs = list(self.original.outputs)
        for i, x in enumerate(outputs):
            have(x)
            if x in self.collected:  # an output has memory of its own
                self.builder.nodes = nodes
                (outputs[i],) = self.builder.add(REGISTRY["clone"], (x,), {})
        for _, v in self.original.writes:
            have(v)
        constants = {**self.original.constants, **self.builder.constants}
        return rebuild(replace(self.original, constants=constants), nodes, avals=self.builder.avals, outputs=tuple(outputs))


def _cannot_be_in_loop(op: Op) -> bool:
    """Whether no loop may have such nodes."""
    is_pure = op.effect in (Effect.PURE, Effect.VIEW) or op.kind is Kind.RANDOM  # a draw is a function of the state
    return op.kind in _REFUSED or not is_pure or "dynamic shape" in op.traits


def _aval_text(aval: Any) -> list[Any]:
    """An aval as a reader knows it, its sizes apart: nobody asks for them."""
    if not isinstance(aval, Aval):
        return [str(aval)]
    sizes = [part for size in aval.shape for part in (", ", size)]
    return [aval.dtype.name, "[", *sizes[1:], "]"]


def _without_numbers(node: Node, label: Any) -> Any:
    """The label of a node where Python numbers may be other ones in each step."""
    if type(label) is not tuple or Literal not in map(type, node.operands) or not _takes_tensors_of_numbers(node):
        return label
    op, operands, *others = label
    return op, tuple([type(x.value) if type(x) is Literal else x for x in operands]), *others


def _takes_tensors_of_numbers(node: Node) -> bool:
    """Whether the node gives the same bits for a number and for a tensor of it."""
    is_exact = "exact" in node.op.traits and "rounds numbers" not in node.op.traits
    return is_exact and node.op.kind is Kind.ELEMENTWISE and node.op.promotion is not Promotion.NONE


class _Body:
    """The body of a loop, from the first of its steps: what is carried, sliced, shared and collected."""

    def __init__(self, sequence: _Sequence, steps: _UnrolledSteps) -> None:
        self.sequence = sequence
        self.steps = steps
        self.nodes = sequence.nodes[steps.begin : steps.begin + steps.period]
        depths: dict[StepOutput, int] = {}
        for column in steps.columns.values():
            if column.what[0] == _ColumnKind.MADE and column.what[1]:
                _, ago, node, output = column.what
                depths[node, output] = max(depths.get((node, output), 0), ago)
        used = self._used_afterwards()
        last = steps.count - 1
        self.collected = [position for position, when in used.items() if when != {last}]
        self.carried = [(position, ago + 1) for position, depth in depths.items() for ago in range(depth)]
        self.kept = [position for position, when in used.items() if when == {last} and position not in depths]  # of the last step
        self.carried += [(position, 1) for position in self.kept]
        strides = [
            steps.strides[k] for k, column in steps.columns.items() if column.what[0] == _ColumnKind.SLICE and steps.strides[k]
        ]
        self.reverse = bool(strides) and strides[0] < 0
        self.sliced: list[Slot] = []  # columns, by one of the operands that they are
        self.shared: list[int] = []
        self.inputs: dict[Slot, tuple[str, int]] = {}
        known: dict[Any, int] = {}
        for k, column in steps.columns.items():
            x = self._operand(0, k)
            if column.what[0] == _ColumnKind.MADE or (column.what[0] == _ColumnKind.SAME and type(x) is not int):
                continue
            if column.what[0] == _ColumnKind.SAME or (column.what[0] == _ColumnKind.SLICE and not steps.strides[k]):
                assert type(x) is int
                if x not in self.shared:
                    self.shared.append(x)
                self.inputs[k] = ("shared", self.shared.index(x))
                continue
            key = (*column, steps.strides[k]) if column.what[0] == _ColumnKind.SLICE else (self._aval(k), *self._column(k))
            if key not in known:
                known[key] = len(self.sliced)
                self.sliced.append(k)
            self.inputs[k] = ("sliced", known[key])

    def _operand(self, t: int, k: Slot) -> Operand:
        return self.sequence.nodes[self.steps.begin + t * self.steps.period + k[0]].operands[k[1]]

    def _column(self, k: Slot) -> list[Operand]:
        return [self._operand(t, k) for t in range(self.steps.count)]

    def _used_afterwards(self) -> dict[StepOutput, set[int]]:
        """The steps whose value of a position is read outside."""
        steps, sequence = self.steps, self.sequence
        found: dict[StepOutput, set[int]] = {}
        for t in range(steps.count):
            for i in range(steps.period):
                at = steps.begin + t * steps.period + i
                for k, v in enumerate(sequence.nodes[at].outputs):
                    if any(not steps.begin <= reader < steps.end for reader in sequence.readers.get(v, ())):
                        found.setdefault((i, k), set()).add(t)
        return found

    def operands(self) -> list[int] | None:
        """What the loop is given; the nodes that make it are appended.  None where too much would be copied."""
        builder, steps, sequence = self.sequence.builder, self.steps, self.sequence
        entered = []
        for position, ago in self.carried:
            if position in self.kept:
                aval = builder.aval(self.nodes[position[0]].outputs[position[1]])
                entered.append(builder.add(REGISTRY["full"], (Literal(0),), {"shape": aval.shape, "dtype": aval.dtype})[0])
            else:
                entered.append(sequence.nodes[steps.begin - ago * steps.period + position[0]].outputs[position[1]])
        sliced = [self._in_one(k) for k in self.sliced]
        return None if None in sliced else [*entered, *[v for v in sliced if v is not None], *self.shared]

    def _in_one(self, k: Slot) -> int | None:
        """One tensor that has the values of a column as its slices, in the order in which the loop counts."""
        builder, steps = self.sequence.builder, self.steps
        column, stride = steps.columns[k], steps.strides[k]
        if column.what[0] == _ColumnKind.SLICE:
            _, base, dim = column.what
            first = column.at
            final = first + stride * (steps.count - 1)
            low, high = min(first, final), max(first, final)
            if (low, high + 1, abs(stride)) != (0, builder.aval(base).shape[dim], 1):
                attributes = {"dim": dim, "start": low, "stop": high + 1, "step": abs(stride)}
                (base,) = builder.add(REGISTRY["slice"], (base,), attributes)
            base = moved_to_front(builder, base, dim)
            if (stride < 0) != self.reverse:
                (base,) = builder.add(REGISTRY["flip"], (base,), {"dims": (0,)})
            return base
        values = self._column(k)
        if column.what[0] == _ColumnKind.NUMBER:
            return self._table(k, values)
        aval = self._aval(k)
        if not isinstance(aval, Aval) or len(self.carried) == len(self.kept):  # steps that need no other one run side by side
            return None
        rows = [builder.add(REGISTRY["reshape"], (v,), {"shape": (1, *aval.shape)})[0] for v in dict.fromkeys(values)]
        row = dict(zip(dict.fromkeys(values), rows, strict=True))
        order = values[::-1] if self.reverse else values
        return builder.add(REGISTRY["cat"], tuple([row[v] for v in order]), {"dim": 0})[0]

    def _table(self, k: Slot, numbers: Sequence[Operand]) -> int | None:
        """Numbers that differ from step to step, as a tensor; None for those that the dtype does not have."""
        dtype = self._number_aval(k).dtype
        values = [x.value for x in numbers if isinstance(x, Literal)]
        if not dtype.is_floating_point and any(not np.can_cast(np.min_scalar_type(v), dtype.numpy) for v in values):
            return None
        return self.sequence.builder.constant(np.array(values[::-1] if self.reverse else values, dtype.numpy))

    def _number_aval(self, k: Slot) -> Aval:
        """What a number becomes beside the tensors of its node."""
        avals = self.sequence.builder.avals
        beside = (avals[x] for x in self.nodes[k[0]].operands if type(x) is int)
        return Aval((), next(a for a in beside if isinstance(a, Aval)).dtype)

    def _aval(self, k: Slot) -> Aval | ScalarAval:
        x = self._operand(0, k)
        return self.sequence.builder.avals[x] if type(x) is int else self._number_aval(k)

    def graph(self) -> Graph:
        """The body, its values numbered from 0: equal for loops that do the same."""
        numbers = naturals()
        avals = self.sequence.builder.avals
        carried = {key: next(numbers) for key in self.carried}
        sliced = [next(numbers) for _ in self.sliced]
        shared = [next(numbers) for _ in self.shared]
        inputs = [*carried.values(), *sliced, *shared]
        types = {carried[position, ago]: avals[self.nodes[position[0]].outputs[position[1]]] for position, ago in self.carried}
        types.update({n: self._aval(k) for n, k in zip(sliced, self.sliced, strict=True)})
        types.update({n: avals[v] for n, v in zip(shared, self.shared, strict=True)})
        given: Mapping[str, Sequence[int]] = {"sliced": sliced, "shared": shared}
        own: dict[StepOutput, int] = {}
        nodes = []
        for i, node in enumerate(self.nodes):
            operands: list[Operand] = []
            for k, x in enumerate(node.operands):
                column = self.steps.columns[i, k]
                if column.what[0] == _ColumnKind.MADE:
                    _, ago, at, output = column.what
                    operands.append(carried[(at, output), ago] if ago else own[at, output])
                elif (i, k) in self.inputs:
                    kind, number = self.inputs[i, k]
                    operands.append(given[kind][number])
                else:
                    operands.append(x)
            outputs = tuple([next(numbers) for _ in node.outputs])
            own.update({(i, k): v for k, v in enumerate(outputs)})
            types.update({n: avals[v] for n, v in zip(outputs, node.outputs, strict=True)})
            nodes.append(Node(node.op, tuple(operands), node.attributes, outputs, node.line))
        on = [own[position] if ago == 1 else carried[position, ago - 1] for position, ago in self.carried]
        return Graph(tuple(inputs), types, tuple(nodes), (*on, *[own[position] for position in self.collected]))
