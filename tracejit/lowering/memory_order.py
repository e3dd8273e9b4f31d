"""The order of the units of a program where much memory is alive, and which of them run twice or slice by slice.

`MemoryOrder(...).run()` changes a list of units in three steps.

* Units that end the lives of more than they make come as early as what they read allows.
* Some units are done twice rather than their results kept (rematerialise.py).
* A nest and the product beside it are done slice by slice, so that what is between them is there one slice at a time.

The results of a program have the same bits in any order.  Programs that never have much alive stay as they are.  Where the program is to
need less still (`config.memory_limit`), `save_more()` does more of it twice, each time at the step where most is alive: first what costs
little, then products, too, then whatever may be done again.

Must not know: addresses, and how steps are made of units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import has_symbols, without_symbols
from tracejit.ir.graph import Node
from tracejit.lowering.costs import operation_cost
from tracejit.lowering.divide import NestPart
from tracejit.lowering.elements import Scratch
from tracejit.lowering.memory import aligned
from tracejit.lowering.products import plan_product
from tracejit.lowering.rematerialise import LEAST_PEAK, Work, most_alive, repetitions
from tracejit.lowering.schedule import Scheduled
from tracejit.lowering.special import slice_nest
from tracejit.lowering.unit import Slices, Unit
from tracejit.lowering.values import Values

__all__ = ["MemoryOrder"]

REMATERIALISATIONS = 3
"""Times at most that units are done again for the sake of memory, each time that of the step where most is alive."""
ENOUGH_LESS = 0.9
"""They are if at most this part of it is alive then."""
SLICED_BYTES = 1 << 20
"""A smaller value is made whole before it is read."""
BYTES_MOVED, OPERATIONS, PRODUCT_OPERATIONS = 8, 32, 512
"""So many bytes that a unit moves, or operations on elements, or of a product, cost as much as one byte that is kept."""
MOST_ROUNDS = 100
"""Times that `save_more()` does something."""


@dataclass(frozen=True, slots=True)
class _Effort:
    """What is done for memory.  least_peak: bytes; a program that never has more alive stays as it is.  enough_less: more of it is done
    twice if at most this part of what was alive is alive then.  cheaper: costs are divided by it.  near, least_bytes: see `repetitions`.
    products: whether these may be done twice."""

    least_peak: int
    enough_less: float
    cheaper: int = 1
    near: int | None = None
    least_bytes: int | None = None
    products: bool = False


_GREATER_EFFORTS: Final = (
    _Effort(0, 0.999),
    _Effort(0, 0.999, 8, least_bytes=1 << 12, products=True),
    _Effort(0, 0.9999, 1 << 30, near=1, least_bytes=0, products=True),
)


class MemoryOrder:
    """Units, and what they have become.

    units: in an order in which they can run.  first_free: the number of those up to the last exit.  accumulated: products to whose memory
    others add.  writes: (input, its new contents).  lasting: roots of values that are there when the program is over, or that are written
    somewhere at its end.  nest_parts: the nests that do what a scheduled one does.

    again: what a repeated unit makes, known by a number that no value has -> the value."""

    def __init__(
        self,
        values: Values,
        units: Sequence[Unit],
        first_free: int,
        accumulated: Mapping[int, int],
        writes: Sequence[tuple[int, int]],
        lasting: AbstractSet[int],
        nest_parts: Callable[[Scheduled], tuple[NestPart, ...]],
    ) -> None:
        self.values = values
        self.units = list(units)
        self.first_free = first_free
        self.accumulated = accumulated
        self.writes = writes
        self.lasting = lasting
        self.nest_parts = nest_parts
        self.again: dict[int, int] = {}
        self._whole = self.units, first_free  # before anything is done slice by slice
        self._effort = self._rounds = 0

    def run(self) -> None:
        """Change `units`, `first_free` and `again`."""
        self._bring_forward()
        self._rematerialise()
        self._whole = self.units, self.first_free
        self._slice()

    def save_more(self) -> bool:
        """Do more units twice, so that less is alive where most is; False, and nothing is changed, where that is no longer possible."""
        sliced = self.units, self.first_free
        self.units, self.first_free = self._whole
        while self._effort < len(_GREATER_EFFORTS) and self._rounds < MOST_ROUNDS:
            self._rounds += 1
            if self._rematerialise_once(_GREATER_EFFORTS[self._effort]):
                self._whole = self.units, self.first_free
                self._slice()
                return True
            self._effort += 1
        self.units, self.first_free = sliced
        return False

    def nbytes(self, root: int) -> int:
        """Of a value that has memory of its own, or of what a repeated unit makes."""
        return self.values.nbytes(self.again.get(root, root))

    def _sizes(self) -> dict[int, int]:
        """Bytes of the values whose memory is free when nothing reads them any more, and no other value's."""
        # Whatever is decided by them is right for all sizes, so these need not be noted.
        values, other = self.values, {*self.lasting, *self.accumulated, *self.accumulated.values()}
        made = {v for u in self.units for v in u.writes if (v in values.producer or v in self.again) and v not in other}
        return {v: aligned(without_symbols(self.nbytes(v))) for v in made}

    def _bring_forward(self) -> None:
        """Do units that end the lives of more than they make as soon as what they read is there: gradients of weights above all, even
        before an exit that needs what comes before them."""
        sizes = self._sizes()
        if most_alive([Work(u.reads, u.writes) for u in self.units], sizes)[0] < LEAST_PEAK:
            return
        written = {v for _, v in self.writes}
        last_reader = {v: k for k, u in enumerate(self.units) for v in u.reads}
        made: dict[int, int] = {}  # value -> the position at which it is made by now
        order: list[tuple[int, bool, int]] = []
        for k, u in enumerate(self.units):
            needed = [made[v] for v in u.reads if v in made]
            ended = sum(sizes.get(v, 0) for v in u.reads if last_reader[v] == k)
            is_computed = u.nest is not None or u.product is not None or bool(u.convolution)
            is_free = not u.exits and is_computed and written.isdisjoint(u.writes)
            moves = is_free and ended > sum(sizes.get(v, 0) for v in u.writes)
            position = max([0, *needed]) if moves else k
            order.append((position, moves, k))
            # What needs nothing (zeros to which a product adds) is made just before its first reader.
            needs_nothing = not u.reads and not u.exits and u.nest is not None
            made.update(dict.fromkeys(u.writes, 0 if needs_nothing else position))
        first_reader = {v: order[k] for k, u in reversed(list(enumerate(self.units))) for v in u.reads}
        for k, u in enumerate(self.units):
            if not u.reads and not u.exits and u.nest is not None and u.writes:
                readers = [first_reader[v] for v in u.writes if v in first_reader]
                if readers and min(readers)[1]:
                    position, moves, _ = min(readers)
                    order[k] = position, moves, k
        self.units = [self.units[k] for _, _, k in sorted(order)]
        self.first_free = 1 + max((k for k, u in enumerate(self.units) if u.exits), default=-1)

    def _rematerialise(self) -> None:
        """Do units a second time before later ones that read what they make, where that takes less memory (rematerialise.py)."""
        for _ in range(REMATERIALISATIONS):
            if not self._rematerialise_once(_Effort(LEAST_PEAK, ENOUGH_LESS)):
                return

    def _rematerialise_once(self, effort: _Effort) -> bool:
        """Whether there is less alive then."""
        values, units = self.values, self.units
        shared = {*self.accumulated, *self.accumulated.values()}
        sizes = self._sizes()
        works = [Work(u.reads, u.writes, self._cost_again(u, shared, effort)) for u in units]
        most, _ = most_alive(works, sizes)
        if most < effort.least_peak:
            return False
        fresh = max(values.avals, default=0) + 1 + len(self.again)
        found, instead = repetitions(works, sizes, fresh, effort.near, effort.least_bytes)
        copies: dict[int, list[Unit]] = {}
        for k, repetition in enumerate(found):
            unit = units[repetition.step]
            read = instead[len(units) + k]
            again = replace(
                unit,
                label=unit.label if unit.label.endswith(" again") else f"{unit.label} again",
                reads=frozenset(read.get(v, v) for v in unit.reads),
                writes=frozenset(repetition.names.values()),
                instead=_renamed(unit.instead, {**read, **repetition.names}),
            )
            copies.setdefault(repetition.before, []).append(again)
            for v, name in repetition.names.items():
                sizes[name] = sizes.get(v, aligned(without_symbols(self.nbytes(v))))
        renamed = [
            replace(u, reads=frozenset(instead[k].get(v, v) for v in u.reads), instead=_renamed(u.instead, instead[k]))
            if k in instead
            else u
            for k, u in enumerate(units)
        ]
        changed = [each for k, u in enumerate(renamed) for each in (*copies.get(k, ()), u)]
        less, _ = most_alive([Work(u.reads, u.writes) for u in changed], sizes)
        if less > effort.enough_less * most:
            return False
        for repetition in found:
            self.again.update({name: self.again.get(v, v) for v, name in repetition.names.items()})
        self.first_free += sum(len(made) for before, made in copies.items() if before < self.first_free)
        self.units = changed
        return True

    def _slice(self) -> None:
        """Do a nest and the product that reads what it makes, or makes what it reads, slice by slice where that saves much memory."""
        readers = Counter(v for u in self.units for v in u.reads)
        readers.update(self.lasting)
        units: list[Unit] = []
        skipped = 0  # of the units up to the last exit, those that are part of the one before
        for k, u in enumerate(self.units):
            both = self._sliced(units[-1], u, readers) if units and k != self.first_free else None
            if both is None:
                units.append(u)
            else:
                units[-1] = both
                skipped += k < self.first_free
        self.units, self.first_free = units, self.first_free - skipped

    def _sliced(self, one: Unit, other: Unit, readers: Mapping[int, int]) -> Unit | None:
        """Two neighbours as one unit, if they may be done slice by slice.  readers: how often each value is read, or needed at the end."""
        nest, product = (one, other) if one.nest is not None else (other, one)
        if len(one.writes) != 1:
            return None
        (v,) = one.writes
        if v not in other.reads or readers[v] > 1 or nest.nest is None or product.product is None or len(nest.nodes) != 1:
            return None
        values, node, matmul = self.values, nest.nodes[0], product.product
        if v in self.accumulated or nest.exits or nest.scratch or len(nest.reads) != 1:
            return None
        nbytes, own = self.nbytes(v), self.again.get(v, v)
        shape = values.shape(node.outputs[0])
        if (
            not shape
            or has_symbols((nbytes, *shape))
            or nbytes < SLICED_BYTES
            or any(r in product.reads for r in nest.reads - {v})
        ):
            return None
        x, y, *_ = matmul.operands
        left, right, result = values.strided[x], values.strided[y], values.strided[matmul.outputs[0]]  # type: ignore[index]
        comes_first, count, itemsize = nest is one, shape[0], values.aval(own).dtype.itemsize
        batch = _gemm_batch(self.values, matmul)
        whole = right if comes_first else result
        if not batch or count < 2 or batch[0][0] % count or whole.root != own or whole.offset or left.root == own:
            return None
        per = batch[0][0] // count
        steps = [per * stride for stride in batch[0][1:]]
        if steps[1 if comes_first else 2] * count * itemsize != nbytes or (not comes_first and right.root == own):
            return None
        done = slice_nest(values, node, "slice")
        if done is None:
            return None
        written, read = values.strided[node.outputs[0]], values.strided[node.operands[0]]  # type: ignore[index]
        mine, its = (written, read) if comes_first else (read, written)
        if mine.root != own or mine.strides[0] * count * itemsize != nbytes:
            return None
        moving = {its.root: its.strides[0] * itemsize}
        for layout, step in ((left, steps[0]), (result, steps[2]) if comes_first else (right, steps[1])):
            if moving.setdefault(layout.root, step * itemsize) != step * itemsize:
                return None
        names = {**one.instead, **other.instead}
        if any(
            each.get(root, root) != names.get(root, root)
            for root in moving
            for each, u in ((one.instead, one), (other.instead, other))
            if root in u.reads
        ):
            return None
        rest = batch[1:] if per == 1 else ((per, *batch[0][1:]), *batch[1:])
        slices = Slices(count, own, self.nest_parts(done), comes_first, tuple(moving.items()), matmul, rest)  # type: ignore[arg-type]
        return Unit(
            f"{one.label}, {other.label}, {count} slices",
            (one.reads | other.reads) - {v},
            other.writes,
            slices=slices,
            scratch=[Scratch(values.aval(own).dtype, nbytes // itemsize // count)],
            read_bytes=one.read_bytes + other.read_bytes,
            nodes=(*one.nodes, *other.nodes),
            instead={root: name for root, name in names.items() if root != own},
        )

    def _cost_again(self, u: Unit, shared: AbstractSet[int], effort: _Effort) -> int | None:
        """Of doing a unit again, in bytes kept instead; None where that may not be, as another unit writes to its memory."""
        is_product = u.product is not None and effort.products
        if (u.nest is None and not is_product) or u.exits or u.scratch or shared & (u.reads | u.writes):
            return None
        if any(node.op.effect not in (Effect.PURE, Effect.VIEW) or node.op.kind is Kind.GUARD for node in u.nodes):
            return None
        values = self.values
        cost = sum(without_symbols(self.nbytes(v)) for v in (*u.reads, *u.writes)) // BYTES_MOVED
        elementwise = [n for n in u.nodes if n.op.kind is Kind.ELEMENTWISE]
        cost += (
            sum(operation_cost(values, n) * without_symbols(values.aval(n.outputs[0]).size) for n in elementwise) // OPERATIONS
        )
        if u.product is not None:
            inner, out = values.shape(u.product.operands[0])[-1], values.aval(u.product.outputs[0])  # type: ignore[arg-type]
            cost += 2 * without_symbols(inner) * without_symbols(out.size) // PRODUCT_OPERATIONS
        return cost // effort.cheaper


def _gemm_batch(values: Values, node: Node) -> tuple[tuple[int, int, int, int], ...]:
    """The batch of a product, as `plan_product` says it."""
    x, y = node.operands[:2]
    a, b = values.strided[x], values.strided[y]  # type: ignore[index]
    return plan_product(values.shape(x), a.strides, values.shape(y), b.strides, values.shape(node.outputs[0])).batch  # type: ignore[arg-type, return-value]


def _renamed(instead: Mapping[int, int], names: Mapping[int, int]) -> dict[int, int]:
    """names: of what is read; instead: what a value is called in the unit by now."""
    known = {v: names.get(name, name) for v, name in instead.items()}
    return {**{v: name for v, name in names.items() if v not in instead.values()}, **known}
