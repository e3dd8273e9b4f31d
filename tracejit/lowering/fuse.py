"""Which nodes become one nest.

A `Group` is an iteration space (a tuple of axes, none of size 1) and members with a position in it.  `inner` splits the axes: a reduction
over exactly the axes from `inner` on ends inside the nest, once per iteration of the outer axes, and may be used there again (softmax,
layer norm).  A reduction that crosses outer axes accumulates in memory and is complete only after the loops (bias gradients, totals):
it is *late*, and only numbers (*epilogue*) may use it in the same nest.

`group_nodes` goes over the nodes in program order and lets each join the groups of its producers, merging them where that is legal:
no path may leave a group and come back.  Groups that read the same memory over the same space are merged at the end.  What cannot
be a member stands alone.  Groups know positions, not memory; nothing is emitted here.

Equal layers have groups that grow in the same way: whether a node fits, and where, is found out once for those that are alike (`Growth`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tracejit.core.op import Kind
from tracejit.core.shapes import product, same
from tracejit.core.symbolic import by_origin, cached, has_symbols
from tracejit.ir.graph import Node, Operand
from tracejit.ir.layouts import ZERO, Position, Positions, beyond_view
from tracejit.lowering.costs import operation_cost
from tracejit.lowering.dependences import Dependences
from tracejit.lowering.values import (
    Values,
    finds_position,
    is_single,
    iteration_shape,
    nontrivial,
    operand_positions,
    reduced_dims,
)

__all__ = ["EPILOGUE", "INNER", "LATE", "OUTER", "Group", "Growth", "Member", "group_nodes"]

INNER, OUTER, LATE, EPILOGUE = "inner", "outer", "late", "epilogue"
LARGEST_GROUP = 160  # members; beyond that a nest has more streams than the machine likes
MOST_MOVING = (
    64  # members that say by a rule of their own where they read: elements are found from the last to the first, rule by rule
)
RECOMPUTE_BUDGET = 6  # cost of a chain that may be computed a second time at other positions
GROWTH = 16  # a space may become the outer loops of another one at least this many times larger
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """at: positions of the iteration space (a reduction's operand); out: positions of the output; reduced: axes combined."""

    at: Positions
    out: Positions
    reduced: frozenset[int]
    level: str
    row: bool = False  # a reduction whose result is used inside the nest


def _axes_of(positions: Positions) -> set[int]:
    return {a for p in positions for a, _ in p.terms}


class Growth:
    """What becomes of the groups of a program as nodes join them.

    Groups go by one number, their *form*, where nodes that are alike (`Values.alike`) have joined them in the same order, each reading the
    same ones of those before it; they differ in nothing but which nodes these are.  steps: (form, likeness of a node, positions in the
    group of the members that it reads) -> (the member that it is, `inner` of the group, its form) or None where it does not fit."""

    __slots__ = ("_forms", "steps")

    def __init__(self) -> None:
        self._forms: dict[Hashable, int] = {}
        self.steps: dict[tuple[int, int, tuple[int, ...]], tuple[Member, int | None, int] | None] = {}

    def form(self, *history: Hashable) -> int:
        """The form of groups with this history."""
        return self._forms.setdefault(history, len(self._forms))


class Group:
    """Members over one iteration space, or a single node that is no member (`axes` None).  turned: the axes are in the order of memory.
    number: what it goes by among the groups of a program.  form: the same for groups that are alike."""

    __slots__ = ("_growth", "_places", "axes", "form", "inner", "members", "number", "turned", "values")

    def __init__(self, values: Values, axes: Shape | None, growth: Growth, inner: int | None = None) -> None:
        self.values = values
        self.axes = axes
        self.inner = inner
        self.turned = False
        self.number = -1
        self.members: dict[int, Member] = {}
        self._places: dict[int, int] = {}  # of the members, in the order in which they have come
        self._growth = growth
        self.form = -1 if axes is None else growth.form(tuple(map(by_origin, axes)), inner)

    @property
    def is_nest(self) -> bool:
        return self.axes is not None

    def _is_full(self) -> bool:
        size = len(self.members)
        if size < MOST_MOVING or size >= LARGEST_GROUP:
            return size >= LARGEST_GROUP
        ops = [self.values.nodes[n].op for n in self.members]
        return sum(op.element is not None and op.kind is not Kind.VIEW for op in ops) >= MOST_MOVING

    @property
    def first(self) -> int:
        """The number of the first node: members come in the order of the program."""
        return next(iter(self.members))

    @property
    def last(self) -> int:
        """The number of the last node."""
        return next(reversed(self.members))

    # --- joining

    def add(self, number: int) -> bool:
        """Take node `number`, which comes after all members, in, if it fits.  A group that returned False is unchanged."""
        positions, steps = self._places, self._growth.steps
        step = self.form, self.values.alike[number], tuple([positions.get(p, -1) for p in self.values.reads[number]])
        if step not in steps:
            fit = self._fit(number)
            steps[step] = None if fit is None else (*fit, self._growth.form(step))
        found = steps[step]
        if found is None:
            return False
        self._take(number, *found)
        return True

    def begin(self, number: int, at: Positions, order: tuple[int, ...], turned: bool) -> bool:
        """Take in a first node at these positions, the dimensions of which are the axes in this order; False where it does not fit."""
        self.turned = turned
        is_reduction = self.values.nodes[number].op.kind is Kind.REDUCTION
        fit = self._reduction(number, at, INNER) if is_reduction else (Member(at, at, frozenset(), INNER), self.inner)
        if fit is not None:
            self._take(number, *fit, self._growth.form("begun", order, turned, self.values.alike[number]))
        return fit is not None

    def _take(self, number: int, member: Member, inner: int | None, form: int) -> None:
        self._places[number] = len(self.members)
        self.members[number] = member
        self.inner = inner
        self.form = form

    def _fit(self, number: int) -> tuple[Member, int | None] | None:
        """What member node `number` would be, and `inner` with it; None if it does not fit."""
        assert self.axes is not None
        if self._is_full():
            return None
        values, node = self.values, self.values.nodes[number]
        producers = self._producers(number)
        if any(m.level in (LATE, EPILOGUE) for m in producers):
            member = self._epilogue(number)
            return None if member is None else (member, self.inner)
        shape = iteration_shape(values, node)
        direct = self.members.get(values.producer.get(node.operands[0], -1)) if self.turned else None  # type: ignore[arg-type]
        first = () if direct is None or node.op.kind is not Kind.REDUCTION else (direct.out,)
        for at in chain(first, matches(shape, self.axes), self._followed(number, shape)):
            used = _axes_of(at)
            if len(used) == len(self.axes):
                level = INNER if self.inner is None or self.inner < len(self.axes) else OUTER
            elif self.inner is not None and used == set(range(self.inner)):
                level = OUTER
            else:
                continue
            if producers and not all(self._reachable(o, p, RECOMPUTE_BUDGET) for o, p in self._operands(number, at)):
                continue
            if node.op.kind is not Kind.REDUCTION:
                return Member(at, at, frozenset(), level), self.inner
            fit = self._reduction(number, at, level)
            if fit is not None:
                return fit
        return None

    def _operands(self, number: int, at: Positions) -> list[tuple[int, Positions]]:
        node = self.values.nodes[number]
        return [(node.operands[k], p) for k, p in operand_positions(self.values, node, at, object())[0]]  # type: ignore[misc]

    def _followed(self, number: int, shape: Shape) -> Iterator[Positions]:
        """Places of the node that follow from where an operand lies: matches() knows dimensions in order only, this knows transposes."""
        for o in self.values.nodes[number].operands:
            if self.values.is_tensor(o) and self.values.is_view(o) and self.values.shape(o) == shape:  # type: ignore[arg-type]
                at = self._forward(o)  # type: ignore[arg-type]
                if at is not None and all(p is not ZERO or s == 1 for p, s in zip(at, shape, strict=True)):
                    yield at

    def _forward(self, v: int) -> Positions | None:
        """Where the elements of v lie if it is a member, or a transpose or reshape by dimensions of size 1 of one."""
        member = self.members.get(self.values.producer.get(v, -1))
        if member is not None or not self.values.is_view(v):
            return None if member is None else member.out
        assert self.axes is not None
        node = self.values.nodes[self.values.producer[v]]
        base: int = node.operands[0]  # type: ignore[assignment]
        before = self._forward(base)
        if before is None:
            return None
        at = beyond_view(node, before, self.values.shape(base), self.values.shape(v), self.axes)
        return at if at is not None and all(p is ZERO or p in before for p in at) else None

    def _producers(self, number: int) -> list[Member]:
        """The members whose memory a node would read."""
        return [self.members[p] for p in self.values.sources[number] if p in self.members]

    def _epilogue(self, number: int) -> Member | None:
        """What a node is that reads numbers which are complete after the loops."""
        values, node = self.values, self.values.nodes[number]
        if node.op.kind not in (Kind.ELEMENTWISE, Kind.GUARD):
            return None
        read = [values.root(o) for o in node.operands if values.is_tensor(o)]  # type: ignore[arg-type]
        if not all(is_single(values.shape(v)) for v in (*node.outputs, *read)):
            return None
        if any(m.level not in (LATE, EPILOGUE) for m in self._producers(number)):
            return None
        at = tuple(ZERO for _ in iteration_shape(values, node))
        return Member(at, at, frozenset(), EPILOGUE)

    def _reachable(self, v: int, at: Positions, budget: int) -> bool:
        """Whether value v can be had at these positions: loaded, or as a member at its own position, or cheaply again."""
        values = self.values
        if values.producer.get(values.root(v), -1) not in self.members:
            return True
        assert self.axes is not None
        while values.is_view(v):
            below = values.operand_position(v, at, self.axes)
            if below is None:
                return False
            v, at = below
        number = values.producer[v]
        member = self.members[number]
        if member.out == at:
            return True
        node = values.nodes[number]
        if member.level in (LATE, EPILOGUE) or node.op.kind is Kind.REDUCTION or node.op.may_exit:
            return False
        budget -= operation_cost(values, node)
        return budget >= 0 and all(self._reachable(o, p, budget) for o, p in self._operands(number, at))

    def _reduction(self, number: int, at: Positions, level: str) -> tuple[Member, int | None] | None:
        """What member a reduction of elements at these positions would be, and `inner` with it."""
        assert self.axes is not None
        node = self.values.nodes[number]
        dims = reduced_dims(node)
        reduced = frozenset(_axes_of(tuple(at[d] for d in dims)))
        out = _output_positions(at, dims, node.attrs["keepdim"])
        if not reduced:
            return Member(at, out, reduced, level), self.inner
        arg = finds_position(node)
        if level == OUTER:
            return None if arg else (Member(at, out, reduced, LATE), self.inner)
        inner = self.inner
        if inner is None:
            inner = self.natural_split(reduced)
            if not all(self._fits(m.reduced, inner) for m in self.members.values()):
                return None
        elif not self._fits(reduced, inner):
            return None
        row = reduced == frozenset(range(inner, len(self.axes)))
        if arg and (not row or len(reduced) != 1):
            return None
        return Member(at, out, reduced, OUTER if row else LATE, row), inner

    def natural_split(self, reduced: frozenset[int]) -> int:
        """Where the inner axes begin if a reduction over these axes has its way."""
        assert self.axes is not None
        start = len(self.axes)
        while start - 1 in reduced:
            start -= 1
        return start if start < len(self.axes) else max(reduced) + 1

    def _fits(self, reduced: frozenset[int], inner: int) -> bool:
        """Whether a reduction combines all inner axes or none."""
        assert self.axes is not None
        axes = frozenset(range(inner, len(self.axes)))
        return not (reduced & axes) or reduced >= axes


def _output_positions(at: Positions, dims: tuple[int, ...], keepdim: bool) -> Positions:
    if keepdim:
        return tuple(ZERO if d in dims else p for d, p in enumerate(at))
    return tuple(p for d, p in enumerate(at) if d not in dims)


@cached(maxsize=4096)
def matches(shape: Shape, axes: Shape, limit: int = 6) -> tuple[Positions, ...]:
    """Ways to lay the dimensions of `shape` over the axes in order, each over a run of them; dimensions of size 1 stay at 0."""
    dims = [d for d, s in enumerate(shape) if s != 1]
    found: list[Positions] = []

    def extend(k: int, first: int, runs: tuple[tuple[int, int], ...]) -> None:
        if len(found) >= limit:
            return
        if k == len(dims):
            at = [ZERO] * len(shape)
            for d, (start, stop) in zip(dims, runs, strict=True):
                scale, terms = 1, []
                for a in range(stop - 1, start - 1, -1):
                    terms.append((a, scale))
                    scale *= axes[a]
                at[d] = Position(tuple(reversed(terms)))
            found.append(tuple(at))
            return
        size = shape[dims[k]]
        for start in range(first, len(axes)):
            stop, run = start, 1
            # Of symbolic sizes it is not asked which is larger: that would part sizes for nothing.
            while stop < len(axes) and (stop == start or has_symbols((run, size)) or run < size):
                run, stop = run * axes[stop], stop + 1
                if run == size:
                    extend(k + 1, stop, (*runs, (start, stop)))
                    break

    extend(0, 0, ())
    return tuple(found)


class _Grouping:
    """State of one run of `group_nodes`."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.home: dict[int, Group] = {}  # node number -> group
        self.groups: dict[Group, None] = {}
        self.dependences = Dependences()
        self.growth = Growth()
        # Anything but a reduction may need the values themselves.
        needs = [node for node in values.nodes if node.op.kind is not Kind.REDUCTION or finds_position(node)]
        self.stored: set[Operand] = {x for node in needs for x in node.operands if type(x) is int}
        self.stored.update(values.outputs)
        self.spaces: dict[int, tuple[Shape, Shape]] = {}  # by likeness of a node: its iteration space, and the axes of that

    def operand_groups(self, number: int) -> list[Group]:
        """The distinct groups that node `number` reads from, views looked through."""
        home, sources = self.home, self.values.sources[number]
        if len(sources) == 1:
            return [home[sources[0]]] if sources[0] in home else []
        return list(dict.fromkeys([home[p] for p in sources if p in home]))

    def merge(self, g: Group, h: Group) -> Group | None:
        """The group of both, installed; None if they do not fit."""
        if (
            g.turned
            or h.turned
            or len(g.members) + len(h.members) > LARGEST_GROUP
            or self.dependences.have_path_between(g.number, h.number)
        ):
            return None
        wide, narrow = (g, h) if len(g.axes or ()) >= len(h.axes or ()) else (h, g)
        assert wide.axes is not None and narrow.axes is not None
        if wide.axes != narrow.axes and not (wide.inner is not None and wide.axes[: wide.inner] == narrow.axes):
            return None
        numbers = sorted((*g.members, *h.members))
        splits: list[int | None] = [None] if wide.axes == narrow.axes else []
        splits += sorted({x.inner for x in (g, h) if x.inner is not None}, reverse=True)
        for inner in splits:
            merged = self.rebuilt(wide.axes, inner, numbers)
            if merged is not None:
                merged.number = self.dependences.merge(g.number, h.number)
                self.replace((g, h), merged)
                return merged
        return None

    def rebuilt(self, axes: Shape, inner: int | None, numbers: list[int]) -> Group | None:
        """A group of these nodes over these axes, if there is one."""
        group = Group(self.values, axes, self.growth, inner)
        return group if all(map(group.add, numbers)) else None

    def replace(self, old: tuple[Group, ...], new: Group) -> None:
        for group in old:
            del self.groups[group]
        self.install(new)

    def install(self, group: Group) -> None:
        """A group with a number of its own, and the home of its members."""
        self.groups[group] = None
        for n in group.members:
            self.home[n] = group

    def start_group(self, group: Group, read: Sequence[Group]) -> None:
        """A group of one node, which reads from these groups, begins."""
        group.number = self.dependences.new()
        self.install(group)
        self.dependences.add(group.number, [h.number for h in read])

    def join(self, g: Group, number: int, read: Sequence[Group]) -> Group | None:
        """Group g with the node, which reads from these groups, in it, installed; None if it does not fit."""
        needed = [h.number for h in read if h is not g]
        if needed and self.dependences.needs(needed, g.number):
            return None
        if g.add(number):
            self.home[number] = g
            self.dependences.add(g.number, needed)
            return g
        assert g.axes is not None
        for axes, inner in self.other_spaces(g, number):
            grown = self.rebuilt(axes, inner, [*sorted(g.members), number])
            if grown is not None:
                grown.number = g.number
                self.replace((g,), grown)
                self.dependences.add(g.number, needed)
                return grown
        return None

    def other_spaces(self, g: Group, number: int) -> Iterator[tuple[Shape, int]]:
        """(axes, inner) that a group might take on to let the node in: its space as outer loops of a larger one, or another split."""
        assert g.axes is not None
        node = self.values.nodes[number]
        shape = nontrivial(iteration_shape(self.values, node))
        rank = len(g.axes)
        plain = g.inner is None and all(m.level == INNER for m in g.members.values())
        if plain and len(shape) > rank > 0 and shape[:rank] == g.axes and product(shape[rank:]) >= GROWTH:
            yield shape, rank
        if node.op.kind is Kind.REDUCTION and g.inner is not None and same(shape, g.axes):
            (at,) = matches(iteration_shape(self.values, node), g.axes, 1)
            reduced = frozenset(_axes_of(tuple(at[d] for d in reduced_dims(node))))
            if reduced and g.natural_split(reduced) > g.inner:
                yield g.axes, g.natural_split(reduced)

    def seed(self, number: int) -> Group:
        """A group for a node."""
        node, alike = self.values.nodes[number], self.values.alike[number]
        if alike not in self.spaces:
            shape = iteration_shape(self.values, node)
            self.spaces[alike] = shape, nontrivial(shape)
        shape, axes = self.spaces[alike]
        group = Group(self.values, axes, self.growth)
        reduced = node.op.kind is Kind.ELEMENTWISE and node.outputs[0] not in self.stored  # and nothing else
        if finds_position(node):
            if not group.add(number):  # it becomes the innermost axis
                (dim,) = reduced_dims(node)
                return self._in_order(number, [*(d for d, s in enumerate(shape) if s != 1 and d != dim), dim])
        elif (node.op.kind is Kind.REDUCTION or reduced) and (order := self._memory_order(node, shape)):
            return self._in_order(number, order)
        if number not in group.members and not group.add(number):
            raise AssertionError(f"{node.op.name} does not fit its own iteration space {axes}")
        return group

    def _memory_order(self, node: Node, shape: Shape) -> list[int]:
        """The dimensions of inputs in the order of their memory; none where that is their own order."""
        natural = [d for d, s in enumerate(shape) if s != 1]
        orders = set()
        for o in node.operands:
            if not self.values.is_tensor(o):
                continue
            inside = self.values.root(o) in self.values.producer or self.values.shape(o) != shape  # type: ignore[arg-type]
            strides = (0,) if inside else self.values.strided[o].strides  # type: ignore[index]
            if 0 in strides:
                return []
            orders.add(tuple(sorted(natural, key=lambda d: -abs(strides[d]))))
        order = list(orders.pop()) if len(orders) == 1 else natural
        return [] if order == natural else order

    def _in_order(self, number: int, order: list[int]) -> Group:
        """A group for a node whose axes are its dimensions in another order."""
        node = self.values.nodes[number]
        shape = iteration_shape(self.values, node)
        order = [d for d in order if shape[d] != 1]
        group = Group(self.values, tuple(shape[d] for d in order), self.growth)
        at = tuple(Position(((order.index(d), 1),)) if s != 1 else ZERO for d, s in enumerate(shape))
        if not group.begin(number, at, tuple(order), not finds_position(node)):
            raise AssertionError(f"{node.op.name} of {shape} has no group of axes {order}")
        return group

    def add_to_group(self, number: int) -> None:
        read = self.operand_groups(number)
        if len(read) == 1 and read[0].axes is not None and read[0].add(number):
            self.home[number] = read[0]
            return
        candidates = [g for g in read if g.axes is not None]
        if len(candidates) > 1:
            candidates.sort(key=lambda g: (len(g.axes or ()), g.last), reverse=True)
        home = None
        for g in candidates:
            home = self.join(g, number, read)
            if home is not None:
                break
        if home is None:
            self.start_group(self.seed(number), read)
            return
        for g in candidates if len(candidates) > 1 else ():
            if g is not home and self.home[next(iter(g.members))] is g:
                home = self.merge(home, g) or home

    def merge_siblings(self) -> None:
        """Merge groups over the same space that read the same memory."""
        values, readers = self.values, dict[int, list[Group]]()
        nodes, strided = values.nodes, values.strided
        for g in self.groups:
            for n in g.members if g.is_nest else ():
                for o in nodes[n].operands:
                    layout = strided.get(o) if type(o) is int else None
                    if layout is None:
                        continue
                    found = readers.get(layout.root)
                    if found is None:
                        readers[layout.root] = [g]
                    elif found[-1] is not g:
                        found.append(g)
        for root, groups in readers.items():
            if len(groups) > 1 and not is_single(values.shape(root)):
                self.merge_readers(groups)

    def merge_readers(self, readers: Iterable[Group]) -> None:
        """Merge each of these groups with the first of those before it that it may be merged with."""
        seen: dict[Shape, list[Group]] = {}
        masks: dict[Shape, int] = {}
        for g in readers:
            g = self.home[next(iter(g.members))]
            axes: Shape = g.axes  # type: ignore[assignment]
            before, mask = seen.setdefault(axes, []), masks.get(axes, 0)
            if mask >> g.number & 1:
                continue
            free = mask & ~self.dependences.beyond(g.number)
            for k, h in enumerate(before) if free else ():
                if free >> h.number & 1 and (merged := self.merge(h, g)) is not None:
                    before[k] = merged
                    masks[axes] = mask & ~(1 << h.number) | 1 << merged.number
                    break
            else:
                before.append(g)
                masks[axes] = mask | 1 << g.number


def group_nodes(values: Values, inlined: frozenset[int] = frozenset()) -> list[Group]:
    """Groups in an order in which they can run.  Nodes in `inlined` belong to every group that uses them, and to none."""
    work = _Grouping(values)
    for number, fits in enumerate(values.members):
        if number in inlined or values.views[number]:
            continue
        if fits:
            work.add_to_group(number)
        else:
            alone = Group(values, None, work.growth)
            alone.members[number] = Member((), (), frozenset(), INNER)
            alone.form = work.growth.form("alone", values.alike[number])
            work.start_group(alone, work.operand_groups(number))
    work.merge_siblings()
    return _ordered(work)


def _ordered(work: _Grouping) -> list[Group]:
    """The groups, those that others need first.  Raises AssertionError where groups need each other."""
    done: set[int] = set()
    begun: set[int] = set()
    order: list[Group] = []
    stack = [(g, False) for g in sorted(work.groups, key=lambda g: g.first, reverse=True)]
    while stack:
        x, ready = stack.pop()
        if id(x) in done:
            continue
        if ready:
            done.add(id(x))
            order.append(x)
            continue
        if id(x) in begun:
            raise AssertionError(f"groups need each other: one of them has the nodes {sorted(x.members)}")
        begun.add(id(x))
        stack.append((x, True))
        for n in x.members:
            stack.extend([(h, False) for h in work.operand_groups(n) if h is not x and id(h) not in done])
    return order
