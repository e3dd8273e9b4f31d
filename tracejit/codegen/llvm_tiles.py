"""Transposed accesses in LLVM IR: loops over tiles that are turned over in registers.

A vector loop that steps through memory in strides, where a loop around it goes on to the neighbouring element, would gather
every vector from as many cache lines as it has lanes, and use each line again only after the whole inner loop.  Both loops are
therefore cut into groups of LANES iterations; what a tile loads this way is loaded in vectors along the outer axis, transposed by
log2(lanes) rounds of exchanges between rows, and kept on the stack, where the inner loop finds its vectors.  What is left over at the
ends of both loops runs as ever.

Iterations change places, so a nest has tiles only if whatever it stores is touched by one iteration alone, at one place (what
accumulates may meet in one place from several).  Every
element is computed as before, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.codegen.expr import Load, topological
from tracejit.codegen.llvm import effects, memory_type
from tracejit.codegen.llvm_loops import Condition, Frame, Run, Target, Value
from tracejit.codegen.llvm_operations import vector
from tracejit.codegen.llvm_strides import StrideEmitter
from tracejit.codegen.loops import SMALL_STRIDES, Axis, Buffer, Extent, For, Index, Let, Nest, Statement, Store
from tracejit.core import dtypes

__all__ = ["TileEmitter"]

MOST: Final = 4  # tiles at a time: what they keep on the stack must stay in the nearest cache


@dataclass(frozen=True, slots=True)
class _Place:
    """An access."""

    buffer: Buffer
    index: Index


@dataclass(frozen=True, slots=True)
class _Plan:
    """Loops that run in tiles: `outer` and `inner` (of vectors) are cut, `between` lie between them; `first` names what the inner loop
    needs; `places` are transposed."""

    outer: For
    between: tuple[For, ...]
    inner: For
    first: tuple[Statement, ...]
    places: tuple[_Place, ...]


@dataclass(frozen=True, slots=True)
class _Tile:
    """Where a transposed access finds its vectors: `lanes` rows of as many elements."""

    place: _Place
    memory: str
    lanes: int


def _stride(index: Index, axis: Axis) -> Extent:
    return next((stride for a, stride in index.terms if a is axis), 0)


def _accesses(statements: Sequence[Statement]) -> tuple[list[_Place], list[_Place]]:
    """(loads, stores) of Lets and Stores."""
    roots = [s.value for s in statements if isinstance(s, Let | Store)]
    loads = [_Place(e.buffer, e.index) for e in topological(roots) if isinstance(e, Load)]
    return loads, [_Place(s.buffer, s.index) for s in statements if isinstance(s, Store)]


def plan(outer: For) -> _Plan | None:
    """How a loop runs in tiles, if it contains accesses that are transposed with respect to it and its iterations may change places."""
    chain: list[For] = [outer]
    first: list[Statement] = []
    while not chain[-1].vector:
        if not chain[-1].body:
            return None
        *lets, last = chain[-1].body
        if not isinstance(last, For) or not all(isinstance(s, Let) for s in lets):
            return None
        first.extend(lets)
        chain.append(last)
    inner = chain[-1]
    if (
        len(chain) == 1
        or outer.extent in (0, 1)
        or inner.extent in (0, 1)
        or not all(isinstance(s, Let) or (isinstance(s, Store) and not s.accumulate) for s in inner.body)
    ):
        return None
    loads, stores = _accesses([*first, *inner.body])
    for place in stores:
        if place.index.dynamic is not None or any(p.buffer is place.buffer and p.index != place.index for p in (*loads, *stores)):
            return None
        if any(_stride(place.index, loop.axis) == 0 and loop.extent != 1 for loop in chain):
            return None

    def transposed(loop: For) -> tuple[_Place, ...]:
        found = [
            p
            for p in dict.fromkeys(loads)
            if p.index.dynamic is None
            and _stride(p.index, loop.axis) == 1
            and _stride(p.index, inner.axis) not in (0, 1, -1, *SMALL_STRIDES)
        ]
        return tuple(found[:MOST])

    if any(transposed(loop) for loop in chain[1:-1]) or not transposed(outer):
        return None
    return _Plan(outer, tuple(chain[1:-1]), inner, tuple(first), transposed(outer))


class TileEmitter(StrideEmitter):
    """A StrideEmitter that knows tiles."""

    def __init__(self, nest: Nest, symbol: str, target: Target) -> None:
        super().__init__(nest, symbol, target)
        self.transposed: dict[_Place, tuple[_Tile, Frame]] = {}  # now on the stack; the frame of the tile's first row

    def _for(self, s: For) -> None:
        found = None if s.vector else plan(s)
        if found is None:
            super()._for(s)
        else:
            self._in_tiles(found)

    def _in_tiles(self, p: _Plan) -> None:
        done, extent = effects(p.outer.body), p.outer.extent
        lanes = min(self._lanes_of(p.inner), *(self.target.lanes(max(place.buffer.dtype.itemsize, 4)) for place in p.places))
        tiles = tuple(_Tile(place, self._reserve(place.buffer, lanes), lanes) for place in p.places)
        block = self.enter(Axis("block"), extent, done)
        full, n = self.full_groups(extent, lanes), self.extent(extent)
        parts = []
        if full != "0":
            some: Condition = None if isinstance(extent, int) else ("sgt", full, "0")
            parts.append(self._part(block, lanes, "0", full, some, lambda: self._between(p, p.between, tiles, block)))
        if full != n:
            some = None if isinstance(extent, int) else ("slt", full, n)
            block.axis = p.outer.axis  # the rest goes row by row
            parts.append(self._part(block, 1, full, n, some, lambda: self.statements(p.outer.body)))
        self.leave(block, parts, extent)

    def _part(self, frame: Frame, step: int, start: str, stop: str, condition: Condition, body: Callable[[], None]) -> Run:
        """A part of a loop without lanes."""
        return self.run(frame, 1, start, stop, condition, False, None, (), (), _without_values(body), step)

    def _between(self, p: _Plan, loops: tuple[For, ...], tiles: tuple[_Tile, ...], block: Frame) -> None:
        """The loops between the two that are cut, then the groups of the inner one."""
        done = effects(p.inner.body)
        if loops:
            loop, *rest = loops
            self.loop(loop.axis, loop.extent, 1, done, lambda: self._between(p, tuple(rest), tiles, block))
            return
        extent, lanes = p.inner.extent, tiles[0].lanes
        group = self.enter(Axis("group"), extent, done)
        full, n = self.full_groups(extent, lanes), self.extent(extent)
        columns = _without_values(lambda: self.statements(p.inner.body))

        def whole() -> None:
            for tile in tiles:
                self._transpose(p, tile, block, group)
                self.transposed[tile.place] = tile, block
            self._rows(p, lanes, block, lambda inner: self.run(inner, lanes, group.index, n, None, True, None, (), (), columns))
            self.transposed.clear()

        def partial() -> None:
            count, mask = (lanes, n) if self.target.masked else (1, None)
            self._rows(
                p,
                lanes,
                block,
                lambda inner: self.run(inner, count, group.index, n, None, mask is not None, mask, (), (), columns),
            )

        parts = []
        if full != "0":
            some: Condition = None if isinstance(extent, int) else ("sgt", full, "0")
            parts.append(self._part(group, lanes, "0", full, some, whole))
        if full != n:
            some = None if isinstance(extent, int) else ("slt", full, n)
            parts.append(self._part(group, lanes, full, n, some, partial))
        self.leave(group, parts, extent)

    def _rows(self, p: _Plan, rows: int, block: Frame, columns: Callable[[Frame], Run]) -> None:
        """The rows of a tile, each with its part of the inner loop."""
        done = effects(p.inner.body)
        stop = self.integer(self.frames.index(block) + 1, f"add nuw nsw i64 {block.index}, {rows}").text

        def row() -> None:
            self.statements(p.first)
            inner = self.enter(p.inner.axis, rows, done)
            self.leave(inner, [columns(inner)], rows)

        frame = self.enter(p.outer.axis, rows, done)
        self.leave(frame, [self._part(frame, 1, block.index, stop, None, row)], rows)

    # --- memory

    def _reserve(self, buffer: Buffer, lanes: int) -> str:
        """A tile on the stack."""
        name = self.code.name()
        self.reserved.append(f"{name} = alloca [{lanes * lanes} x {memory_type(buffer.dtype)}], align 64")
        return name

    def _transpose(self, p: _Plan, tile: _Tile, block: Frame, group: Frame) -> None:
        """Fill a tile: vectors along the outer axis are its columns, what is stored are its rows."""
        code, buffer, index, lanes = self.code, tile.place.buffer, tile.place.index, tile.lanes
        element = memory_type(buffer.dtype)
        kind = vector(element, lanes)
        axes = {id(p.outer.axis): block.axis, id(p.inner.axis): group.axis}
        pointer, _ = self.address(buffer, Index(tuple((axes.get(id(a), a), s) for a, s in index.terms), index.offset))
        step = self.extent(_stride(index, p.inner.axis))
        rows, place = [], pointer.text
        for k in range(lanes):
            place = code.op(f"getelementptr {element}, ptr {place}, i64 {step}") if k else place
            rows.append(code.op(f"load {kind}, ptr {place}, align {buffer.dtype.itemsize}"))
        distance = 1
        while distance < lanes:
            lows = [i if not i & distance else lanes + i - distance for i in range(lanes)]
            highs = [i + distance if not i & distance else lanes + i for i in range(lanes)]
            for k in range(lanes):
                if not k & distance:
                    low, high = rows[k], rows[k + distance]
                    rows[k], rows[k + distance] = (self._exchange(kind, low, high, order) for order in (lows, highs))
            distance *= 2
        for k, text in enumerate(rows):
            to = code.op(f"getelementptr {element}, ptr {tile.memory}, i64 {k * lanes}")
            code.lines.append(f"store {kind} {text}, ptr {to}, align {lanes * buffer.dtype.itemsize}")

    def _exchange(self, kind: str, x: str, y: str, order: Sequence[int]) -> str:
        lanes = ", ".join(f"i32 {i}" for i in order)
        return self.code.op(f"shufflevector {kind} {x}, {kind} {y}, <{len(order)} x i32> <{lanes}>")

    def _load(self, e: Load) -> Value:
        found = self.transposed.get(_Place(e.buffer, e.index)) if self.transposed else None
        if found is None:
            return super()._load(e)
        tile, block = found
        dtype, row = e.buffer.dtype, self.frames[-2]  # the innermost frame is a row of the tile
        offset = self.integer(self.depth - 1, f"sub nuw nsw i64 {row.index}, {block.index}")
        offset = self._scaled(offset, tile.lanes)
        pointer = self._advance(Value(tile.memory, dtypes.int64, 1, 0), offset, memory_type(dtype))
        return self.number(
            self.depth, dtype, tile.lanes, ("tile", pointer.text), lambda: self._load_text(dtype, pointer, 1, tile.lanes)
        )


def _without_values(body: Callable[[], None]) -> Callable[[Sequence[str]], Sequence[str]]:
    """The body of a loop that carries nothing round."""

    def run(carried: Sequence[str]) -> Sequence[str]:
        body()
        return carried

    return run
