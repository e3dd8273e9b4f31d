"""From a fusion group to a nest: loops, phases, stores.

The loops of a group are its axes after collapsing (spaces.py).  Inside the outer loops, the inner axes are run through in *phases*:
phase k computes the reductions that need the results of k reductions before them (softmax: maximum, sum, quotient).  Every phase is one
pass, with all stores and reductions that belong to it.  A value of one phase that a later one needs is loaded if it was stored anyway,
kept in a scratch row if it is expensive, computed again if it is cheap.

Late reductions accumulate in memory: a floating sum that has no vector axis in float64 scratch, many rows in scratch, anything else
directly in place.  After the loops come their final stores and the epilogue (numbers made of late results).

The result (`Scheduled`) names memory by root values; addresses are given in lower.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind
from tracejit.core.shapes import contiguous, product
from tracejit.ir.graph import Literal
from tracejit.ir.layouts import ZERO, Positions, Strided, linear
from tracejit.loops.combinations import Combination
from tracejit.loops.expressions import Expr, Load, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Nest, Reduce, Statement, Store
from tracejit.lowering.costs import CHEAP_LOAD, EXPENSIVE, LONG_CHAIN, operation_cost, row_cost
from tracejit.lowering.elements import Elements, Scope, Scratch, Valued
from tracejit.lowering.fuse import EPILOGUE, INNER, LATE, OUTER, Group, Member
from tracejit.lowering.spaces import accesses, collapsed, in_memory_order
from tracejit.lowering.values import Values, combination, finds_position

__all__ = ["Argument", "Scheduled", "schedule"]

FEW_ROWS = 4  # the fewer numbers of rows there are for which programs are others, the more batches share one
MANY_ROWS = 32
SHORT_ROWS = 2048
NEAR_ROWS = range(64, 1 << 15)  # elements of a row that is long enough for scratch to pay and stays in near caches


class Argument(NamedTuple):
    """What a buffer parameter is bound to: memory of a root value, or scratch; `offset` in elements."""

    root: int | Scratch
    offset: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """A nest and its arguments in the order of its parameters.

    reads, writes: root values.  in_place: root values of stores -> root values whose memory may be given to the store because every
    access to it in the nest is at the stored element, before the store.  late: buffers that iterations accumulate in -> the combination,
    how many elements."""

    nest: Nest
    buffers: tuple[Argument, ...]
    sizes: tuple[int, ...]
    scalars: tuple[int, ...]
    reads: frozenset[int]
    writes: frozenset[int]
    exits: bool
    in_place: Mapping[int, frozenset[int]]
    late: Mapping[Buffer, tuple[Combination, int]] = field(default_factory=dict)


def schedule(
    values: Values, group: Group, stored: frozenset[int], inlined: frozenset[int], exit_code: Callable[[int], int], name: str
) -> Scheduled:
    """The nest of a group.  stored: node numbers whose output needs memory."""
    return _Nest(values, group, stored, inlined, exit_code).finish(name)


class _Nest(Elements):
    def __init__(
        self, values: Values, group: Group, stored: frozenset[int], inlined: frozenset[int], exit_code: Callable[[int], int]
    ) -> None:
        self.group = group = in_memory_order(values, group, stored, inlined)
        assert group.axes is not None
        self.stored = stored
        self.axes = group.axes
        strides, pinned, barriers = accesses(values, group, stored, inlined)
        runs = collapsed(group.axes, barriers, strides, pinned)
        placing = {a: (k, int(a == run[-1])) for k, run in enumerate(runs) for a in run}
        sizes = tuple(product(group.axes[a] for a in run) for run in runs)
        loops = tuple(Axis(f"i{k}") for k in range(len(runs)))
        super().__init__(values, group.members, inlined, placing, loops, group.axes, sizes, exit_code)
        if group.inner is None:
            self.outer = max(len(runs) - 1, 0)
        else:
            self.outer = next((k for k, run in enumerate(runs) if run[0] >= group.inner), len(runs))
        self.numbers = sorted(group.members)
        self.results: dict[int, Valued] = {}
        self.loadable: dict[int, tuple[int, Buffer, Index]] = {}  # number -> (phase from which on it lies in memory, where)
        self.keep: dict[int, int] = {}  # number -> phase in which it is computed and put into scratch
        self.accumulators: dict[int, tuple[Buffer, DType, bool]] = {}  # late reductions: memory, dtype, is it the output itself
        self.phase = -1
        self._plan()

    # --- what belongs to which phase

    def _plan(self) -> None:
        members = self.group.members
        self.ready: dict[int, int] = {}
        for n in self.numbers:
            ready = max((self.ready[p] for p in self._inputs(n)), default=0)
            self.ready[n] = ready + 1 if members[n].row else ready
        self.passes = {
            self.ready[n] - int(members[n].row)
            for n in self.numbers
            if members[n].reduced and members[n].level in (OUTER, LATE) and self._is_full(members[n])
        }
        last = max((self.ready[n] for n in self.numbers if members[n].level == INNER or self._is_full(members[n])), default=0)
        self.store_phase: dict[int, int] = {}
        for n in self.numbers:
            if members[n].level == INNER and self._must_run(n):
                self.store_phase[n] = min((p for p in self.passes if p >= self.ready[n]), default=max(last, self.ready[n]))
        self.passes.update(self.store_phase.values())
        self._plan_keeping()

    def _must_run(self, number: int) -> bool:
        """Whether the member does something besides giving a value to other members: a store or an exit."""
        node = self.values.nodes[number]
        return number in self.stored or node.op.may_exit or not node.outputs

    def _is_full(self, m: Member) -> bool:
        """Whether the member's iteration space includes the inner axes."""
        return any(self.placing[a][0] >= self.outer for p in m.at for a, _ in p.terms)

    def _inputs(self, number: int) -> list[int]:
        """Members that a member reads."""
        found = []
        for o in self.values.nodes[number].operands:
            if self.values.is_tensor(o):
                p = self.values.producer.get(self.values.root(o), -1)  # type: ignore[arg-type]
                if p in self.group.members:
                    found.append(p)
        return found

    def _roots(self, phase: int) -> list[int]:
        members = self.group.members
        roots = [n for n in self.numbers if self.store_phase.get(n) == phase]
        for n in self.numbers:
            m = members[n]
            if m.reduced and self._is_full(m) and self.ready[n] - int(m.row) == phase:
                roots.extend(self._inputs(n))
        return roots

    def _plan_keeping(self) -> None:
        """Decide which values cross from one phase to a later one through memory."""
        computed: dict[int, int] = {}  # number -> first phase that computes it
        row, members = product(self.sizes[self.outer :]), self.group.members
        for phase in sorted(self.passes):
            stack, seen = self._roots(phase), set()
            while stack:
                n = stack.pop()
                if n in seen or members[n].level != INNER or members[n].reduced:
                    continue
                seen.add(n)
                first = computed.get(n)
                if first is not None:
                    cost = operation_cost(self.values, self.values.nodes[n])
                    if self.store_phase.get(n, phase) < phase and n in self.stored and cost >= CHEAP_LOAD:
                        self.keep.setdefault(n, self.store_phase[n])
                        continue
                    if cost < EXPENSIVE and NEAR_ROWS.start <= row < NEAR_ROWS.stop:
                        again = row_cost(self.values, n, lambda p: p in members and members[p].level == INNER, self.keep, row)
                        cost = EXPENSIVE if again >= LONG_CHAIN else cost
                    if cost >= EXPENSIVE:
                        self.keep.setdefault(n, first)
                        continue
                stack.extend(self._inputs(n))
            for n in seen:
                computed.setdefault(n, phase)

    # --- values that have results or memory

    def member(self, number: int, at: Positions) -> Valued:
        m = self.group.members.get(number)
        if m is None:
            return super().member(number, at)
        if m.reduced:
            return self.results[number]
        if number in self.loadable and at == m.out:
            phase, buffer, index = self.loadable[number]
            if self.phase >= phase:
                key = ("kept", number)
                found = self._find(key)
                if found is None:
                    found = self.name(Load(buffer, index), len(self.scopes) - 1, "k"), len(self.scopes) - 1
                    self.scopes[-1].known[key] = found
                return found
        node = self.values.nodes[number]
        if node.op.kind is Kind.REDUCTION:  # over dimensions of size 1
            return self._trivial_reduction(number, at)
        found = super().member(number, at)
        stored_now = number in self.stored and self.store_phase.get(number) == self.phase
        if (
            at == m.out
            and self.keep.get(number) == self.phase
            and number not in self.loadable
            and not stored_now
            and found[1] > self.outer
        ):
            self._put_in_scratch(number, found)
        return found

    def _trivial_reduction(self, number: int, at: Positions) -> Valued:
        node = self.values.nodes[number]
        m = self.group.members[number]
        assert at == m.out, "a reduction over dimensions of size 1 is read at its own position"
        dtype = self.values.aval(node.outputs[0]).dtype
        if finds_position(node):
            return builder.const(0, dtype), 0
        value, depth = self.value(node.operands[0], m.at)  # type: ignore[arg-type]
        return builder.cast(value, dtype), depth

    def _put_in_scratch(self, number: int, found: Valued) -> None:
        """Store a value of the inner loops for later phases."""
        dtype = self.values.aval(self.values.nodes[number].outputs[0]).dtype
        inner = self.sizes[self.outer :]
        buffer = self.parameters.temporary(Scratch(dtype, product(inner)))
        terms = tuple(
            (self.loops[self.outer + k], self.parameters.size(s)) for k, s in enumerate(contiguous(inner)) if s and inner[k] != 1
        )
        index = Index(terms)
        self.scopes[-1].statements.append(Store(buffer, index, found[0]))
        self.loadable[number] = (self.phase + 1, buffer, index)

    # --- statements

    def _open(self, loop: int) -> None:
        self.scopes.append(Scope())

    def _close(self, loop: int, vector: bool = False) -> None:
        body = tuple(self.scopes.pop().statements)
        if body:
            self.scopes[-1].statements.append(For(self.loops[loop], self.parameters.size(self.sizes[loop]), body, vector))

    def _run(self, numbers: Sequence[int]) -> None:
        """Compute members and carry out what they do.  All stores come after all loads: a store may be given the memory that another
        member reads."""
        computed = []
        for n in numbers:
            if self.values.nodes[n].outputs:
                computed.append((n, self.member(n, self.group.members[n].out)[0]))
            else:
                self._guard(n)
        for n, value in computed:
            if n in self.stored:
                out = self.values.nodes[n].outputs[0]
                buffer, index, _ = self.location(self.values.strided[out], self.group.members[n].out, value.dtype)
                self.scopes[-1].statements.append(Store(buffer, index, value))
                if self.keep.get(n) == self.phase:
                    self.loadable[n] = (self.phase + 1, buffer, index)

    def _guard(self, number: int) -> None:
        """Leave unless the element is what was recorded: numbers by type and bits, bools by truth value; any NaN equals NaN."""
        node = self.values.nodes[number]
        operand, expected = node.operands[0], node.attrs["expected"]
        assert isinstance(operand, int) and isinstance(expected, Literal)
        value, depth = self.value(operand, tuple(ZERO for _ in self.values.shape(operand)))
        wanted = expected.value
        if isinstance(wanted, bool):
            truth = builder.cast(value, dtypes.bool_)
            fails = builder.logical_not(truth) if wanted else truth
        elif isinstance(wanted, float):
            wide = builder.cast(value, dtypes.float64)
            if wanted != wanted:
                fails = builder.logical_not(builder.isnan(wide))
            else:
                bits = int(np.float64(wanted).view(np.int64))
                fails = builder.ne(builder.bitcast(wide, dtypes.int64), bits)
        else:
            fails = builder.ne(builder.cast(value, dtypes.int64), wanted)
        self.scopes[depth].statements.append(Exit(fails, self.exit_code(number)))

    def _kept_layout(self, m: Member) -> Strided:
        """Row-major layout of a late reduction's result (its root is not used)."""
        shape = tuple(product(self.axes[a] for a, _ in p.terms) for p in m.out)
        return Strided(-1, 0, contiguous(shape))

    def _accumulator(self, number: int) -> None:
        """Choose and clear the memory of a late reduction."""
        node, m = self.values.nodes[number], self.group.members[number]
        out, aval = node.outputs[0], self.values.aval(node.outputs[0])
        dtype = aval.dtype
        across_vector = any(self.placing[a][0] >= self.outer for p in m.out for a, _ in p.terms)
        combined = combination(node)
        wide = dtypes.float64 if combined.in_blocks(dtype) and not across_vector else dtype
        # Scratch is aligned: sums that are added to many times are faster there, although they are copied in the end.
        near = NEAR_ROWS.start <= aval.size < NEAR_ROWS.stop
        often = near and product(self.axes[a] for a in m.reduced) >= (FEW_ROWS if aval.size < SHORT_ROWS else MANY_ROWS)
        direct = number in self.stored and wide is dtype and not often
        buffer = self.parameters.buffer(out, 0, dtype) if direct else self.parameters.temporary(Scratch(wide, aval.size))
        self.accumulators[number] = (buffer, wide, direct)
        clear = builder.const(combined.empty(wide), wide)
        self._over_result(m, lambda index: Store(buffer, index, clear))

    def _over_result(self, m: Member, statement: Callable[[Index], Statement]) -> None:
        """A statement for every element of a late result."""
        used = sorted({self.placing[a][0] for p in m.out for a, _ in p.terms})
        for loop in used:
            self._open(loop)
        index, _ = self.index(linear(m.out, self._kept_layout(m).strides))
        self.scopes[-1].statements.append(statement(index))
        for k, loop in enumerate(reversed(used)):
            self._close(loop, vector=k == 0)

    def _accumulate(self, number: int, value: Expr) -> None:
        """Combine a value with the late result at the position of the current iteration."""
        node, m = self.values.nodes[number], self.group.members[number]
        buffer, wide, _ = self.accumulators[number]
        index, _ = self.index(linear(m.out, self._kept_layout(m).strides))
        self.scopes[-1].statements.append(combination(node).into(buffer, index, builder.cast(value, wide)))

    # --- phases

    def _outer_actions(self, ready: int) -> None:
        """Stores, late reductions and checks in the outer loops that become possible after `ready` phases."""
        members = self.group.members
        now = [n for n in self.numbers if self.ready[n] == ready and members[n].level not in (INNER, EPILOGUE)]
        for n in now:
            if members[n].level == LATE and not self._is_full(members[n]):
                value, _ = self.value(self.values.nodes[n].operands[0], members[n].at)  # type: ignore[arg-type]
                self._accumulate(n, value)
        self._run([n for n in now if members[n].level != LATE and self._must_run(n)])

    def _run_phase(self, phase: int) -> None:
        self.phase = phase
        members, inner = self.group.members, range(self.outer, len(self.loops))
        reductions = [
            n
            for n in self.numbers
            if members[n].reduced and self._is_full(members[n]) and self.ready[n] - int(members[n].row) == phase
        ]
        combined = [n for n in reductions if any(self.placing[a][0] >= self.outer for a in members[n].reduced)]
        partial: dict[int, tuple[Buffer, DType]] = {}
        if len(inner) > 1:  # a reduction over several loops collects in scratch
            for n in combined:
                if members[n].row:
                    dtype, how = self._result_dtype(n), combination(self.values.nodes[n])
                    wide = dtypes.float64 if how.in_blocks(dtype) else dtype
                    buffer = self.parameters.temporary(Scratch(wide, 1))
                    partial[n] = buffer, wide
                    clear = builder.const(how.empty(wide), wide)
                    self.scopes[-1].statements.append(Store(buffer, Index(), clear))
        for loop in inner:
            self._open(loop)
        items = []
        for n in reductions:
            node = self.values.nodes[n]
            how = combination(node)
            value, _ = self.value(node.operands[0], members[n].at)  # type: ignore[arg-type]
            if how.truth:
                value = builder.cast(value, dtypes.bool_)
            if n not in combined:
                self._accumulate(n, value)
                continue
            dtype = value.dtype
            if how.position:  # as wide as a position needs
                dtype = dtypes.int32 if self.sizes[inner[-1]] < np.iinfo(np.int32).max else dtypes.int64
            if how.in_blocks(dtype) and (len(inner) > 1 or not members[n].row):
                dtype = dtypes.float64  # a part of a sum: not rounded yet
            result = self.fresh(dtype)
            items.append((n, (result, how.name, value)))
        self._run([n for n in self.numbers if self.store_phase.get(n) == phase])
        if items:
            body = tuple(self.scopes.pop().statements)
            loop = inner[-1]
            self.scopes[-1].statements.append(
                Reduce(self.loops[loop], self.parameters.size(self.sizes[loop]), tuple(item for _, item in items), body)
            )
            for n, (result, _, _) in items:
                if n in partial:
                    buffer, wide = partial[n]
                    store = combination(self.values.nodes[n]).into(buffer, Index(), builder.cast(result, wide))
                    self.scopes[-1].statements.append(store)
                elif members[n].row:
                    self.results[n] = self._settled(n, result)
                else:
                    self._accumulate(n, result)
        elif inner:
            self._close(inner[-1], vector=True)
        for loop in reversed(inner[:-1]):
            self._close(loop)
        for n, (buffer, _) in partial.items():
            self.results[n] = self._settled(n, self.name(Load(buffer, Index()), len(self.scopes) - 1))

    def _result_dtype(self, number: int) -> DType:
        return self.values.aval(self.values.nodes[number].outputs[0]).dtype

    def _settled(self, number: int, result: Expr) -> Valued:
        """A result of a reduction in the dtype of its value."""
        depth = len(self.scopes) - 1
        dtype = self._result_dtype(number)
        return (result if result.dtype is dtype else self.name(builder.cast(result, dtype), depth)), depth

    def _finish_late(self) -> None:
        """After the loops: results of late reductions that were not accumulated in place, then the numbers made of them."""
        for n, (buffer, _, direct) in self.accumulators.items():
            m, node = self.group.members[n], self.values.nodes[n]
            if n in self.stored and not direct:
                out = node.outputs[0]
                dtype = self._result_dtype(n)
                target = self.parameters.buffer(out, 0, dtype)
                self._over_result(m, _rounding(buffer, target, dtype))
        epilogue = [n for n in self.numbers if self.group.members[n].level == EPILOGUE]
        used = {p for n in epilogue for p in self._inputs(n)}
        for n, (buffer, _, _) in self.accumulators.items():
            if n in used:
                self.results[n] = self._settled(n, self.name(Load(buffer, Index()), 0))
        self._run([n for n in epilogue if self._must_run(n)])

    def finish(self, name: str) -> Scheduled:
        """Build the nest."""
        members = self.group.members
        for n in self.numbers:
            if members[n].level == LATE:
                self._accumulator(n)
        for loop in range(self.outer):
            self._open(loop)
        last = max([*self.passes, *self.ready.values()], default=0)
        for phase in range(last + 1):
            self.phase = phase - 1
            self._outer_actions(phase)
            if phase in self.passes:
                self._run_phase(phase)
        self.phase = last + 1
        for loop in reversed(range(self.outer)):
            self._close(loop)
        self._finish_late()
        return self._result(name)

    def _result(self, name: str) -> Scheduled:
        p = self.parameters
        body = tuple(self.scopes[0].statements)
        nest = Nest(name, tuple(p.buffers), tuple(p.sizes), tuple(p.scalars.values()), body, tuple(p.scratch.values()))
        stores: dict[str, list[Index]] = {}
        exits = _collect(body, stores)
        writes = {root: b for b, (root, _) in p.buffers.items() if b.name in stores}
        loaded = frozenset(self.reads)
        in_place = {}
        if len(self.passes) <= 1 and not self.accumulators:
            for root, b in writes.items():
                (index, *more) = stores[b.name]
                if not more and product(self.sizes) == self.values.aval(root).size:
                    in_place[root] = frozenset(r for r in loaded if self._same_element(r, b, index))
        arguments = [Argument(root, offset) for root, offset in p.buffers.values()]
        arguments += [Argument(scratch) for scratch in p.scratch]
        late = {}
        for n, (buffer, _, _) in self.accumulators.items():
            node = self.values.nodes[n]
            late[buffer] = combination(node), self.values.aval(node.outputs[0]).size
        return Scheduled(
            nest,
            tuple(arguments),
            tuple(p.sizes.values()),
            tuple(v for v, _ in p.scalars),
            loaded,
            frozenset(writes),
            exits,
            in_place,
            late,
        )

    def _same_element(self, root: int, target: Buffer, index: Index) -> bool:
        """Whether every load from `root` is of the element that the store writes, were the memory the same."""
        aval = self.values.aval(root)
        offsets = [offset for r, offset in self.parameters.buffers.values() if r == root]
        return (
            aval.dtype is target.dtype
            and len(offsets) == 1
            and offsets[0] == 0
            and all(i.dynamic is None and i.terms == index.terms for i in self.reads[root])
        )


def _rounding(source: Buffer, target: Buffer, dtype: DType) -> Callable[[Index], Statement]:
    return lambda index: Store(target, index, builder.cast(Load(source, index), dtype))


def _collect(statements: Sequence[Statement], stores: dict[str, list[Index]]) -> bool:
    """Gather the stores of a tree by buffer name; whether it can exit."""
    exits = False
    for s in statements:
        if isinstance(s, Store):
            stores.setdefault(s.buffer.name, []).append(s.index)
        elif isinstance(s, Exit):
            exits = True
        elif isinstance(s, For | Reduce):
            exits = _collect(s.body, stores) or exits
    return exits
