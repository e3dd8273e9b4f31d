"""Where LLVM text goes: loops, their parts, and the hoisting of what does not vary with them.

Every value lives at a *depth*, the number of loops it varies with; it is emitted in the block before the outermost loop that it does
not vary with, so that the text needs no optimiser to be fast.  What has been emitted is found again: by key (`memo`), by Expr
(`ids`), loads by address (`loads`).  A store makes loads of its buffer stale; the end of a loop forgets what varied with it.

Loops run their full groups of lanes first, then the remainder: on a machine with cheap masked accesses as one more group under a
mask, otherwise one element at a time.  Both give the same bits as one element at a time throughout.

This module knows blocks, phis and values; not what loops compute (nests.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.operations import Code, lane_type, splat_constant, value_type
from tracejit.loops.language import Axis, Buffer, Extent, Size
from tracejit.loops.target import Target

__all__ = ["Body", "Condition", "Effects", "LoopEmitter", "LoopPart", "OpenLoop", "Value"]


class Value(NamedTuple):
    """An SSA name or constant; `depth`: how many of the current loops it varies with."""

    text: str
    dtype: DType
    lanes: int
    depth: int


class Effects(NamedTuple):
    """What a loop does beside computing: the buffers it stores to, and whether it may leave the nest."""

    stores: frozenset[Buffer]
    exits: bool


@dataclass(slots=True)
class OpenLoop:
    """A loop being emitted: `before` is the block that its invariants go to, `index` the scalar loop variable (the first lane's)."""

    axis: Axis
    effects: Effects
    may_be_empty: bool  # may have no iteration
    before: list[str]
    block: str
    known: tuple[dict[Any, Any], ...]  # what had been emitted when the loop was opened
    index: str = ""
    lanes: int = 1
    mask: str | None = None


@dataclass(slots=True)
class LoopPart:
    """One pass over part of an axis.  `carried` are (type, initial, phi name, result) of values that go round."""

    head: str
    exit: str
    start: str
    stop: str
    step: int
    index: str
    condition: str | None  # i1 that must hold to enter; None: always entered
    once: bool
    kinds: Sequence[str]
    initial: Sequence[str]
    phis: list[str] = field(default_factory=list)
    results: Sequence[str] = ()
    merged: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    latch: str = ""


Body = Callable[[Sequence[str]], Sequence[str]]  # from the values that go round to their new ones
Condition = tuple[str, str, str] | None  # (predicate, x, y) of int64, that must hold to enter


class LoopEmitter:
    """The state of emission, and loops.  `open_loops` are the loops around the current point, outermost first."""

    def __init__(self, target: Target, sizes: Sequence[Size]) -> None:
        self.target = target
        self.code = Code(scales=target.scales)
        self.open_loops: list[OpenLoop] = []
        self.memo: dict[tuple[Any, ...], Value] = {}
        self.ids: dict[int, tuple[Value, frozenset[Buffer]]] = {}  # with the stored-to buffers that the value was computed from
        self.loads: dict[tuple[Any, ...], tuple[Value, Buffer]] = {}
        self.sizes: dict[Size, str] = {s: f"%n{i}" for i, s in enumerate(sizes)}

    def extent(self, n: Extent) -> str:
        return self.sizes[n] if isinstance(n, Size) else str(n)

    # --- where things go

    @property
    def depth(self) -> int:
        return len(self.open_loops)

    def hoisted(self, depth: int, emit: Callable[[], str]) -> str:
        """Run `emit` with the insertion point for values of `depth`."""
        code = self.code
        if depth == len(self.open_loops):
            return emit()
        frame = self.open_loops[depth]
        lines, block = code.lines, code.block
        code.lines, code.block = frame.before, frame.block
        result = emit()
        frame.block = code.block
        code.lines, code.block = lines, block
        return result

    def number(self, depth: int, dtype: DType, lanes: int, key: tuple[Any, ...], emit: Callable[[], str]) -> Value:
        """The value of an operation known by `key`: found, or emitted at `depth`."""
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = Value(self.hoisted(depth, emit), dtype, lanes, depth)
        return found

    def integer(self, depth: int, text: str) -> Value:
        """An int64 instruction at `depth`."""
        return self.number(depth, dtypes.int64, 1, (text,), lambda: self.code.op(text))

    def forget(self, depth: int) -> None:
        """Drop everything that varies with loop number `depth` or deeper ones."""
        self.memo = {k: v for k, v in self.memo.items() if v.depth <= depth}
        self.ids = {k: v for k, v in self.ids.items() if v[0].depth <= depth}
        self.loads = {k: v for k, v in self.loads.items() if v[0].depth <= depth}

    def invalidate(self, buffers: frozenset[Buffer]) -> None:
        """Memory of `buffers` changes: what was computed from their old contents is not found again (Lets keep their values)."""
        self.loads = {k: v for k, v in self.loads.items() if v[1] not in buffers}
        self.ids = {k: v for k, v in self.ids.items() if not (v[1] & buffers)}

    def splat(self, v: Value, lanes: int) -> Value:
        """The value in `lanes` lanes."""
        if v.lanes == lanes:
            return v
        assert v.lanes == 1, (v, lanes)
        element, kind = lane_type(v.dtype), value_type(v.dtype, lanes)
        if not v.text.startswith("%"):
            return v._replace(text=splat_constant(v.text, element, lanes), lanes=lanes)

        def emit() -> str:
            one = self.code.op(f"insertelement {kind} poison, {element} {v.text}, i64 0")
            return self.code.op(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

        depth = max(v.depth, self.depth - 1)
        return self.number(depth, v.dtype, lanes, ("splat", v.text, lanes), emit)

    # --- loops

    def loop(self, axis: Axis, extent: Extent, lanes: int, effects: Effects, body: Callable[[], None]) -> None:
        """Emit `for axis in range(extent)`: groups of `lanes`, then the remainder."""
        if extent == 0:
            return

        def without_values(carried: Sequence[str]) -> Sequence[str]:
            body()
            return carried

        frame = self.enter(axis, extent, effects)
        if lanes == 1:
            runs = [self.run(frame, 1, "0", self.extent(extent), None, extent == 1, None, (), (), without_values)]
        else:
            runs = self.parts(frame, extent, lanes, (), (), without_values)
        self.leave(frame, runs, extent)

    def parts(
        self,
        frame: OpenLoop,
        extent: Extent,
        lanes: int,
        kinds: Sequence[str],
        initial: Sequence[str],
        body: Body,
        grouped: Callable[[str, Condition, Sequence[str]], LoopPart] | None = None,
    ) -> list[LoopPart]:
        """The parts of a loop in lanes: full groups (emitted by `grouped` if given), then the remainder."""
        n, full = self.extent(extent), self.full_groups(extent, lanes)
        static = isinstance(extent, int)
        runs: list[LoopPart] = []
        if full != "0":
            condition = None if static else ("sgt", full, "0")
            if grouped is not None:
                runs.append(grouped(full, condition, initial))
            else:
                runs.append(self.run(frame, lanes, "0", full, condition, full == str(lanes), None, kinds, initial, body))
            initial = runs[-1].merged
        if full != n:
            condition = None if static else ("slt", full, n)
            # A single element has no use for lanes; and LLVM 22 stores its neighbour too if the mask is known to have one lane and
            # the value is truncated (x86, masked store to scalar store).
            single = isinstance(extent, int) and extent % lanes == 1
            if self.target.masked and not single:
                runs.append(self.run(frame, lanes, full, n, condition, True, n, kinds, initial, body))
            else:
                runs.append(self.run(frame, 1, full, n, condition, single, None, kinds, initial, body))
        return runs

    def full_groups(self, extent: Extent, lanes: int) -> str:
        """The number of elements in full groups."""
        if isinstance(extent, int):
            return str(extent // lanes * lanes)
        return self.integer(self.depth - 1, f"and i64 {self.extent(extent)}, -{lanes}").text

    def enter(self, axis: Axis, extent: Extent, effects: Effects) -> OpenLoop:
        """Open a loop.  What was read from the buffers it stores to must be read again inside."""
        label = self.code.label("before")
        self.invalidate(effects.stores)
        known = (dict(self.memo), dict(self.ids), dict(self.loads))
        frame = OpenLoop(axis, effects, not isinstance(extent, int), [f"{label}:"], label, known)
        self.open_loops.append(frame)
        return frame

    def run(
        self,
        frame: OpenLoop,
        lanes: int,
        start: str,
        stop: str,
        condition: Condition,
        once: bool,
        mask_stop: str | None,
        kinds: Sequence[str],
        initial: Sequence[str],
        body: Body,
        step: int = 0,
    ) -> LoopPart:
        """Emit the body once, as one part of the frame's axis, in steps of `lanes` unless `step` is given."""
        code = self.code
        entered = None
        if condition is not None:
            predicate, x, y = condition
            entered = self.integer(self.depth - 1, f"icmp {predicate} i64 {x}, {y}").text
        run = LoopPart(
            code.label("head"),
            code.label("exit"),
            start,
            stop,
            step or lanes,
            start if once else code.name(),
            entered,
            once,
            kinds,
            initial,
        )
        run.phis = list(initial) if once else [code.name() for _ in kinds]
        outer_lines, outer_block = code.lines, code.block
        code.lines, code.block = run.body, run.head
        frame.index, frame.lanes, frame.mask = run.index, lanes, None
        if mask_stop is not None:
            frame.mask = code.call(
                f"llvm.get.active.lane.mask.v{lanes}i1.i64", f"<{lanes} x i1>", ("i64", run.index), ("i64", mask_stop)
            )
        run.results = list(body(run.phis))
        run.latch = code.block
        code.lines, code.block = outer_lines, outer_block
        run.merged = list(run.results) if entered is None else [code.name() for _ in kinds]
        self.forget(self.depth - 1)
        return run

    def leave(self, frame: OpenLoop, runs: Sequence[LoopPart], extent: Extent) -> Sequence[str]:
        """Close the loop: write its parts one after another; returns the values that leave it."""
        kinds, initial, results = runs[0].kinds, runs[0].initial, runs[-1].merged
        code = self.code
        self.open_loops.pop()
        may_be_empty = frame.may_be_empty
        outside, end, label = code.block, code.label("end"), frame.before[0][:-1]
        if may_be_empty:
            positive = code.op(f"icmp sgt i64 {self.extent(extent)}, 0")
            code.lines.append(f"br i1 {positive}, label %{label}, label %{end}")
        else:
            code.lines.append(f"br label %{label}")
        code.lines.extend(frame.before)
        code.block = frame.block
        for run in runs:
            self.write(run)
        code.lines.append(f"br label %{end}")
        last = code.block
        code.begin(end)
        self.invalidate(frame.effects.stores)
        if not may_be_empty:
            return results
        self.memo, self.ids, self.loads = frame.known  # what was emitted behind the check is not there if the loop is empty
        return [
            code.op(f"phi {kind} [ {first}, %{outside} ], [ {result}, %{last} ]")
            for kind, first, result in zip(kinds, initial, results, strict=True)
        ]

    def write(self, run: LoopPart) -> None:
        code, before = self.code, self.code.block
        if run.condition is None:
            code.lines.append(f"br label %{run.head}")
        else:
            code.lines.append(f"br i1 {run.condition}, label %{run.head}, label %{run.exit}")
        code.begin(run.head)
        if run.once:
            code.lines.extend(run.body)
            code.lines.append(f"br label %{run.exit}")
        else:
            following, more = code.name(), code.name()
            code.lines.append(f"{run.index} = phi i64 [ {run.start}, %{before} ], [ {following}, %{run.latch} ]")
            for kind, first, phi, result in zip(run.kinds, run.initial, run.phis, run.results, strict=True):
                code.lines.append(f"{phi} = phi {kind} [ {first}, %{before} ], [ {result}, %{run.latch} ]")
            code.lines.extend(run.body)
            code.lines.append(f"{following} = add nuw nsw i64 {run.index}, {run.step}")
            code.lines.append(f"{more} = icmp slt i64 {following}, {run.stop}")
            code.lines.append(f"br i1 {more}, label %{run.head}, label %{run.exit}")
        code.begin(run.exit)
        if run.condition is not None:
            for kind, first, result, merged in zip(run.kinds, run.initial, run.results, run.merged, strict=True):
                code.lines.append(f"{merged} = phi {kind} [ {first}, %{before} ], [ {result}, %{run.latch} ]")
