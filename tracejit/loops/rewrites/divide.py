"""Chunks: large nests cut into nests that several threads may run.

`divide(nest, sizes, spaces, late)` gives the nests that do the work of one, in order: each large loop of its body as a nest whose chunks
are independent, and what lies between as nests that one thread runs; None where that is not worth it, or iterations depend on each other.

Chunk k of a loop is the same nest on a range of the loop: its buffers begin where the range begins, its scratch is its own.  What
all iterations accumulate in memory is accumulated by every chunk in memory of its own, and the parts are then combined in the order
of the chunks; so are the parts of a reduction.  Numbers that one part names and another one needs pass through memory.

Invariants: where a loop is cut follows from the nest and its sizes, never from the number of threads, so results do not depend on that;
a loop is cut only if no chunk writes what another one reads or writes, which is concluded from the indices.  A wrong cost costs time only.
Unlike the rewrites of the pipeline this one knows sizes and tells the order of reductions; so it comes before all renderings, which then
agree.  Knows loops and their costs; not machine code, and not where memory lies (lowering/divide.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tracejit.core.dtypes import DType
from tracejit.core.symbolic import SYMBOLIC
from tracejit.loops.combinations import COMBINATIONS, Combination
from tracejit.loops.expressions import Apply, AxisValue, Expr, Load, ScalarParam, SizeValue, Var, builder, topological
from tracejit.loops.language import (
    BLOCK,
    LANES,
    Axis,
    Buffer,
    Exit,
    Extent,
    For,
    Index,
    Let,
    Nest,
    Reduce,
    Scalar,
    Size,
    Statement,
    Store,
    flatten,
)
from tracejit.loops.weights import total_weight

__all__ = ["Chunks", "Divided", "divide"]

# Costs are in units of an addition of one element, of which vector code does about 40 in a nanosecond (float32, 512 bits).  Measured on
# two cores: a nest of 10 us is 1.4 times as fast in chunks if the other thread is still watching, and 5 us slower if it must be woken.
WORTH: Final = 2_000_000  # a loop that costs less than this, some 50 us, is not cut
CHUNK: Final = 300_000  # what a chunk costs at least: some 8 us, against 0.1 for taking it
MOST: Final = 128  # chunks
ACCESS: Final = 4  # a load or a store
ONE_BY_ONE: Final = 8  # an element in a loop without vectors, against one with
DEAREST: Final = 2_000  # nothing costs more for one element: a loop of few iterations need not be looked at
SHARE: Final = 8  # memory of the chunks' own has at most one element for so many iterations
CACHE_LINE: Final = 64  # bytes: chunks that write to one line wait for each other


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """How a nest is called for each range of `length` of `extent` iterations, in any order or at once: the k-th time with its number of
    iterations as `many`, the number of the first one as `first` (None where it is not asked for), and every buffer of `advances` beginning
    so many elements times k further."""

    extent: int
    length: int
    many: Size
    first: Size | None
    advances: Mapping[Buffer, int]


@dataclass(frozen=True, slots=True, eq=False)
class Divided:
    """Nests that together do what one does.  sizes: the values of all their sizes.  memory: for every buffer the one of the whole nest that
    it is, or the number of elements of memory that the nests share besides, its contents undefined before the first one."""

    parts: tuple[tuple[Nest, Chunks | None], ...]
    sizes: Mapping[Size, int]
    memory: Mapping[Buffer, Buffer | int]


def divide(
    nest: Nest, sizes: Mapping[Size, int], spaces: Mapping[Buffer, int], late: Mapping[Buffer, tuple[Combination, int]]
) -> Divided | None:
    """The nests that do what `nest` does; None if it had better stay whole.  spaces: the elements of its temporaries.  late: buffers that
    iterations accumulate in, with the combination and how many elements."""
    divider = _Divider(nest, sizes, spaces, late)
    cheap = SYMBOLIC.isdisjoint(map(type, sizes.values()))  # else it would be a relation that decides nothing
    if cheap and not any(divider.iterations(s) * DEAREST >= WORTH for s in nest.body):
        return None
    cuts = [divider.cut(s) for s in nest.body]
    return divider.assemble(cuts) if any(cuts) else None


def _expressions(s: Statement) -> list[Expr]:
    """The expressions of one statement, those of statements inside it left out."""
    if isinstance(s, Let):
        return [s.value]
    if isinstance(s, Store):
        return [s.value] if s.index.dynamic is None else [s.value, s.index.dynamic]
    if isinstance(s, Exit):
        return [s.condition]
    return [value for _, _, value in s.items] if isinstance(s, Reduce) else []


def _every(statements: Sequence[Statement]) -> list[Expr]:
    """Every Expr of a tree of statements."""
    return topological(e for s in flatten(statements) for e in _expressions(s))


@dataclass(slots=True, eq=False)
class _Cut:
    """How one loop is cut.  own: buffers of which every chunk has its own copy, and their elements; late: those of them that are combined
    afterwards, with the combination."""

    loop: For | Reduce
    extent: int
    length: int
    own: dict[Buffer, int]
    late: dict[Buffer, tuple[Combination, int]]

    @property
    def count(self) -> int:
        return -(-self.extent // self.length)


class _Divider:
    def __init__(
        self,
        nest: Nest,
        sizes: Mapping[Size, int],
        spaces: Mapping[Buffer, int],
        late: Mapping[Buffer, tuple[Combination, int]],
    ) -> None:
        self.nest = nest
        self.late = late
        self.spaces = spaces
        self.sizes = dict(sizes)
        self.memory: dict[Buffer, Buffer | int] = {b: b for b in (*nest.buffers, *nest.temporaries)}
        self.names = 0

    # --- sizes and costs

    def number(self, n: Extent) -> int:
        return self.sizes[n] if isinstance(n, Size) else n

    def iterations(self, s: Statement) -> int:
        """How often the innermost statements run."""
        if isinstance(s, For | Reduce):
            return self.number(s.extent) * max((self.iterations(b) for b in s.body), default=1)
        return 1

    def cost(self, s: Statement) -> int:
        roots = _expressions(s)
        own = total_weight(roots) + ACCESS * (isinstance(s, Store) + sum(isinstance(e, Load) for e in topological(roots)))
        if not isinstance(s, For | Reduce):
            return own
        innermost = not any(isinstance(b, For | Reduce) for b in s.body)
        slow = ONE_BY_ONE if innermost and isinstance(s, For) and not s.vector else 1
        return self.number(s.extent) * slow * (own + sum(self.cost(b) for b in s.body))

    # --- whether and where to cut

    def cut(self, s: Statement) -> _Cut | None:
        """How to cut a statement of the nest's body; None if it is not worth it or not allowed."""
        if not isinstance(s, For | Reduce):
            return None
        cost, extent = self.cost(s), self.number(s.extent)
        if cost < WORTH or extent < 2 or (isinstance(s, Reduce) and any(COMBINATIONS[c].position for _, c, _ in s.items)):
            return None
        own = self._own(s)
        if own is None:
            return None
        late = {b: (self.late[b][0], n) for b, n in own.items() if b in self.late}
        memory = sum(own.values())
        chunks = min(cost // CHUNK, MOST, extent)
        if memory:
            chunks = min(chunks, self.iterations(s) // (SHARE * memory))
        if chunks < 2:
            return None
        length = -(-extent // chunks)
        if isinstance(s, Reduce) or s.vector:
            length = -(-length // BLOCK) * BLOCK  # whole blocks of whole vectors, all but the last
        elif length > LANES and any(isinstance(e, Load) and self.stride(e.index, s.axis) == 1 for e in _every([s])):
            length = -(-length // LANES) * LANES  # whole tiles, if what is read across is turned over in tiles
        made = _Cut(s, extent, length, own, late)
        return made if made.count > 1 else None

    def _own(self, s: For | Reduce) -> dict[Buffer, int] | None:
        """The buffers that every chunk of a loop needs for itself, with their elements; None if its iterations are not independent."""
        inside = [s, *flatten(s.body)]
        extents = {id(b.axis): self.number(b.extent) for b in inside if isinstance(b, For | Reduce)}
        stores: dict[Buffer, list[Index]] = {}
        for b in inside:
            if isinstance(b, Store):
                stores.setdefault(b.buffer, []).append(b.index)
        loads: dict[Buffer, list[Index]] = {}
        for e in _every([s]):
            if isinstance(e, Load) and e.buffer in stores:
                loads.setdefault(e.buffer, []).append(e.index)
        own: dict[Buffer, int] = {}
        for buffer, written in stores.items():
            accesses = [*written, *loads.get(buffer, ())]
            if any(index.dynamic is not None for index in written):
                return None
            if all(self.stride(index, s.axis) == 0 for index in accesses):
                elements = self._elements(s, buffer)
                if elements is None:
                    return None
                own[buffer] = elements
            elif not (self._one_element(accesses, extents) or self._apart(accesses, extents, s.axis)):
                return None
        return own

    def _elements(self, s: For | Reduce, buffer: Buffer) -> int | None:
        """The size of a buffer that may be private to chunks: an accumulator's, or that of scratch which only this loop uses."""
        if buffer in self.late:
            return self.late[buffer][1]
        if buffer not in self.spaces:
            return None
        others = [b for b in self.nest.body if b is not s]
        if any(isinstance(b, Store) and b.buffer is buffer for b in flatten(others)):
            return None
        if any(isinstance(e, Load) and e.buffer is buffer for e in _every(others)):
            return None
        return self.spaces[buffer]

    def stride(self, index: Index, axis: Axis) -> int:
        return sum(self.number(stride) for a, stride in index.terms if a is axis)

    def _apart(self, accesses: Sequence[Index], extents: Mapping[int, int], axis: Axis) -> bool:
        """Whether what an iteration of an axis reaches ends before the next one's begins."""
        lows, highs, steps = [], [], set()
        for index in accesses:
            if index.dynamic is not None:
                return False
            reach = [self.number(stride) * (extents[id(a)] - 1) for a, stride in index.terms if a is not axis]
            lows.append(self.number(index.offset) + sum(min(r, 0) for r in reach))
            highs.append(self.number(index.offset) + sum(max(r, 0) for r in reach))
            steps.add(self.stride(index, axis))
        return len(steps) == 1 and max(highs) - min(lows) < abs(steps.pop())

    def _one_element(self, accesses: Sequence[Index], extents: Mapping[int, int]) -> bool:
        """Whether all accesses of an iteration are to one element, and those of different iterations to different ones."""
        elements = set()
        for index in accesses:
            if index.dynamic is not None:
                return False
            terms = [(id(a), self.number(stride)) for a, stride in index.terms if self.number(stride) and extents[id(a)] != 1]
            elements.add((self.number(index.offset), tuple(sorted(terms))))
        if len(elements) != 1:
            return False
        ((_, element),) = elements
        reach = 0  # how far apart the elements of the axes so far may be
        for axis, stride in sorted(element, key=lambda term: abs(term[1])):
            if abs(stride) <= reach:
                return False
            reach += abs(stride) * (extents[axis] - 1)
        return True

    # --- making the parts

    def assemble(self, cuts: Sequence[_Cut | None]) -> Divided:
        """The parts of the nest, given the cut of each statement of its body."""
        groups: list[tuple[list[Statement], _Chunks | None]] = [([], None)]
        for s, cut in zip(self.nest.body, cuts, strict=True):
            if cut is None:
                groups[-1][0].append(s)
                continue
            chunks = _Chunks(self, cut)
            groups.append((chunks.statements(), chunks))
            groups.append((chunks.combination(), None))
        groups = [group for group in groups if group[0]]
        self._pass_numbers([statements for statements, _ in groups])
        parts = tuple(self._part(f"{self.nest.name}_{k}", *group) for k, group in enumerate(groups))
        return Divided(parts, self.sizes, self.memory)

    def buffer(self, dtype: DType, memory: Buffer | int) -> Buffer:
        """A new parameter: a buffer of the whole nest, or so many elements of new memory."""
        self.names += 1
        made = Buffer(f"q{self.names}", dtype)
        self.memory[made] = memory
        return made

    def size(self, value: int) -> Size:
        self.names += 1
        made = Size(f"c{self.names}")
        self.sizes[made] = value
        return made

    def _pass_numbers(self, groups: Sequence[list[Statement]]) -> None:
        """Let what a group names and later ones use pass through memory."""
        named: dict[int, int] = {}
        for k, statements in enumerate(groups):
            for s in statements:
                if isinstance(s, Let):
                    named[id(s.var)] = k
                elif isinstance(s, Reduce):
                    named |= {id(var): k for var, _, _ in s.items}
        memory: dict[int, Buffer] = {}
        used = [{id(e): e for e in _every(statements) if isinstance(e, Var)} for statements in groups]
        for k, variables in enumerate(used):
            for key, var in variables.items():
                home = named.get(key, k)
                if home == k:
                    continue
                if key not in memory:
                    memory[key] = self.buffer(var.dtype, 1)
                    groups[home].append(Store(memory[key], Index(), var))
                groups[k].insert(0, Let(var, Load(memory[key], Index())))

    def _part(self, name: str, statements: Sequence[Statement], chunks: _Chunks | None) -> tuple[Nest, Chunks | None]:
        used = _parameters(statements)
        buffers = [b for b in self.memory if b in used]
        temporaries = [b for b in buffers if self.memory[b] not in self.nest.buffers]
        nest = Nest(
            name,
            tuple(b for b in buffers if b not in temporaries),
            tuple(s for s in self.sizes if s in used),
            tuple(s for s in self.nest.scalars if s in used),
            tuple(statements),
            tuple(temporaries),
        )
        if chunks is None:
            return nest, None
        return nest, Chunks(chunks.cut.extent, chunks.cut.length, chunks.many, chunks.first, chunks.advances)


def _parameters(statements: Sequence[Statement]) -> set[Buffer | Size | Scalar]:
    """The parameters that statements use."""
    used: set[Buffer | Size | Scalar] = set()

    def sizes_of(index: Index) -> None:
        used.update(n for n in (index.offset, index.dynamic_stride, *(n for _, n in index.terms)) if isinstance(n, Size))

    for s in flatten(statements):
        if isinstance(s, For | Reduce):
            used.update([s.extent] if isinstance(s.extent, Size) else [])
        elif isinstance(s, Store):
            used.add(s.buffer)
            sizes_of(s.index)
        elif isinstance(s, Exit):
            used.update([s.code] if isinstance(s.code, Scalar) else [])
    for e in _every(statements):
        if isinstance(e, Load):
            used.add(e.buffer)
            sizes_of(e.index)
        elif isinstance(e, ScalarParam):
            used.add(e.scalar)
        elif isinstance(e, SizeValue):
            used.add(e.size)
    return used


class _Chunks:
    """The statements of a loop that is cut.  many, first, advances: as in `Chunks`."""

    def __init__(self, divider: _Divider, cut: _Cut) -> None:
        self.divider = divider
        self.cut = cut
        self.many = divider.size(cut.extent)
        self.first: Size | None = None
        self.advances: dict[Buffer, int] = {}
        self.copies: dict[tuple[Buffer, int], Buffer] = {}  # (buffer, elements from one iteration to the next) -> parameter
        self.results: list[tuple[Var, str, Buffer]] = []  # of a Reduce: its name, the combination, the chunks' parts
        self.known: dict[int, Expr] = {}
        self.alive: list[Expr] = []  # whose ids are keys

    def _private(self, dtype: DType, elements: int) -> Buffer:
        """Memory of each chunk's own, on cache lines of its own."""
        line = CACHE_LINE // dtype.itemsize
        apart = -(-elements // line) * line
        made = self.divider.buffer(dtype, apart * self.cut.count)
        self.advances[made] = apart
        return made

    def _buffer(self, buffer: Buffer, index: Index) -> Buffer:
        """The parameter that stands for a buffer at an access."""
        own = self.cut.own.get(buffer)
        stride = 0 if own is not None else self.divider.stride(index, self.cut.loop.axis)
        made = self.copies.get((buffer, stride))
        if made is None:
            if own is not None:
                made = self._private(buffer.dtype, own)
            else:
                first = not any(b is buffer for b, _ in self.copies)
                made = buffer if first else self.divider.buffer(buffer.dtype, buffer)
                self.advances[made] = stride * self.cut.length
            self.copies[buffer, stride] = made
        return made

    def _index(self, index: Index) -> Index:
        return index if index.dynamic is None else replace(index, dynamic=self._expression(index.dynamic))

    def _expression(self, root: Expr) -> Expr:
        """An expression as it is in a chunk."""
        known = self.known
        for e in topological([root]):
            if id(e) in known:
                continue
            made = e
            if isinstance(e, Load):
                made = Load(self._buffer(e.buffer, e.index), self._index(e.index))
            elif isinstance(e, AxisValue) and e.axis is self.cut.loop.axis:
                if self.first is None:
                    self.first = self.divider.size(0)
                made = builder.add(e, SizeValue(self.first))
            elif isinstance(e, Apply) and any(known[id(o)] is not o for o in e.operands):
                made = Apply(e.operation, tuple(known[id(o)] for o in e.operands), e.dtype, e.attribute)
            known[id(e)] = made
            self.alive.append(e)
        return known[id(root)]

    def _statements(self, statements: Iterable[Statement]) -> tuple[Statement, ...]:
        return tuple(self._statement(s) for s in statements)

    def _statement(self, s: Statement) -> Statement:
        if isinstance(s, Let):
            return Let(s.var, self._expression(s.value))
        if isinstance(s, Store):
            value = self._expression(s.value)
            return Store(self._buffer(s.buffer, s.index), self._index(s.index), value, s.accumulate)
        if isinstance(s, Exit):
            return Exit(self._expression(s.condition), s.code)
        if isinstance(s, For):
            return For(s.axis, s.extent, self._statements(s.body), s.vector)
        assert isinstance(s, Reduce), "a plain nest"
        items = tuple((var, c, self._expression(value)) for var, c, value in s.items)
        return Reduce(s.axis, s.extent, items, self._statements(s.body))

    def statements(self) -> list[Statement]:
        """What a chunk does."""
        loop = self._statement(replace(self.cut.loop, extent=self.many))
        clears: list[Statement] = []
        for buffer, (combination, elements) in self.cut.late.items():
            empty = builder.const(combination.empty(buffer.dtype), buffer.dtype)
            clears.append(_over(elements, partial(_stored, self.copies[buffer, 0], empty)))
        if not isinstance(loop, Reduce):
            return [*clears, loop]
        parts: list[Statement] = []
        items = []
        for var, c, value in loop.items:
            dtype = COMBINATIONS[c].total(value.dtype)
            part = Var(var.name, dtype)
            memory = self._private(dtype, 1)
            items.append((part, c, value))
            parts.append(Store(memory, Index(), part))
            self.results.append((var, c, memory))
        return [*clears, replace(loop, items=tuple(items)), *parts]

    def combination(self) -> list[Statement]:
        """What follows all chunks."""
        made: list[Statement] = []
        if not (self.cut.late or self.results):
            return made
        chunk, chunks = Axis("k"), self.divider.size(self.cut.count)  # which other sizes have more of, or fewer
        for buffer, (combination, elements) in self.cut.late.items():
            own = self.copies[buffer, 0]

            def add(index: Index, buffer: Buffer = buffer, how: Combination = combination, own: Buffer = own) -> Statement:
                return how.into(buffer, index, Load(own, Index((*index.terms, (chunk, self.advances[own])))))

            made.append(For(chunk, chunks, (_over(elements, add),)))
        if self.results:
            items = tuple((var, c, Load(own, Index(((chunk, self.advances[own]),)))) for var, c, own in self.results)
            made.append(Reduce(chunk, chunks, items))
        return made


def _stored(buffer: Buffer, value: Expr, index: Index) -> Statement:
    return Store(buffer, index, value)


def _over(elements: int, statement: Callable[[Index], Statement]) -> Statement:
    """A statement for each element of an accumulator."""
    if elements == 1:
        return statement(Index())
    axis = Axis("j")
    return For(axis, elements, (statement(Index(((axis, 1),))),), vector=True)
