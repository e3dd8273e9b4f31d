"""Loops in tiles in LLVM IR (loops/rewrites/tile.py decides which): what is read across is turned over in registers.

What a tile reads is loaded in vectors along the outer axis, transposed by log2(lanes) rounds of exchanges between rows, and kept on the
stack, where the inner loop finds its vectors.  What is left over at the ends of both loops runs as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracejit.core import dtypes
from tracejit.llvm.loops import Condition, LoopPart, OpenLoop, Value
from tracejit.llvm.nests import effects, memory_type
from tracejit.llvm.operations import vector
from tracejit.llvm.strides import StrideEmitter
from tracejit.loops.expressions import Load
from tracejit.loops.language import Axis, Buffer, For, Index, Let, Nest, Tiles, chain
from tracejit.loops.target import Target

__all__ = ["TileEmitter"]

BufferAccess = tuple[Buffer, Index]


@dataclass(frozen=True, slots=True)
class _TiledLoops:
    """Loops that run in tiles: `outer` and `inner` (of vectors) are cut, `between` lie between them; `first` names what the inner loop
    needs."""

    outer: For
    between: tuple[For, ...]
    inner: For
    first: tuple[Let, ...]


@dataclass(frozen=True, slots=True)
class _Tile:
    """Where a transposed access finds its vectors: `lanes` rows of as many elements."""

    access: BufferAccess
    memory: str
    lanes: int


class TileEmitter(StrideEmitter):
    """A StrideEmitter that knows tiles."""

    def __init__(self, nest: Nest, symbol: str, target: Target) -> None:
        super().__init__(nest, symbol, target)
        self.transposed: dict[BufferAccess, tuple[_Tile, OpenLoop]] = {}  # now on the stack; the frame of the tile's first row

    def _for(self, s: For) -> None:
        if s.tiles is None:
            super()._for(s)
            return
        (outer, *between, inner), first = chain(s)
        self._in_tiles(_TiledLoops(outer, tuple(between), inner, first), s.tiles)

    def _in_tiles(self, p: _TiledLoops, cut: Tiles) -> None:
        done, extent, lanes = effects(p.outer.body), p.outer.extent, cut.edge
        tiles = tuple(_Tile(access, self._reserve(access[0], lanes), lanes) for access in cut.accesses)
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

    def _part(
        self, frame: OpenLoop, step: int, start: str, stop: str, condition: Condition, body: Callable[[], None]
    ) -> LoopPart:
        """A part of a loop without lanes."""
        return self.run(frame, 1, start, stop, condition, False, None, (), (), _without_values(body), step)

    def _between(self, p: _TiledLoops, loops: tuple[For, ...], tiles: tuple[_Tile, ...], block: OpenLoop) -> None:
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
                self.transposed[tile.access] = tile, block
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

    def _rows(self, p: _TiledLoops, rows: int, block: OpenLoop, columns: Callable[[OpenLoop], LoopPart]) -> None:
        """The rows of a tile, each with its part of the inner loop."""
        done = effects(p.inner.body)
        stop = self.integer(self.open_loops.index(block) + 1, f"add nuw nsw i64 {block.index}, {rows}").text

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

    def _transpose(self, p: _TiledLoops, tile: _Tile, block: OpenLoop, group: OpenLoop) -> None:
        """Fill a tile: vectors along the outer axis are its columns, what is stored are its rows."""
        code, (buffer, index), lanes = self.code, tile.access, tile.lanes
        element = memory_type(buffer.dtype)
        kind = vector(element, lanes)
        axes = {id(p.outer.axis): block.axis, id(p.inner.axis): group.axis}
        pointer, _ = self.address(buffer, Index(tuple((axes.get(id(a), a), s) for a, s in index.terms), index.offset))
        step = self.extent(dict(index.terms)[p.inner.axis])
        rows, access = [], pointer.text
        for k in range(lanes):
            access = code.op(f"getelementptr {element}, ptr {access}, i64 {step}") if k else access
            rows.append(code.op(f"load {kind}, ptr {access}, align {buffer.dtype.itemsize}"))
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
        found = self.transposed.get((e.buffer, e.index)) if self.transposed else None
        if found is None:
            return super()._load(e)
        tile, block = found
        dtype, row = e.buffer.dtype, self.open_loops[-2]  # the innermost frame is a row of the tile
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
