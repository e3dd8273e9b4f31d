"""From a pure graph without host steps to the steps of a program and its memory.

`lower(graph, layouts, ...) -> Lowered`: values and layouts (values.py), groups (fuse.py), nests (schedule.py, special.py), BLAS calls
(products.py), an order of steps, the memory plan, the description of the frame that a runtime needs.

Order: whatever an exit needs comes first, so that a program leaves early; user storage is written last; where much memory is alive,
memory_order.py changes it.  A written input is updated by the nest that computes its new contents if that nest comes after every exit
and nothing later reads the old contents; otherwise the new contents are copied at the end, and those of a part of it always (regions.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tracejit.config import config
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import uint8
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.shapes import contiguous
from tracejit.core.symbolic import text_of, without_symbols
from tracejit.ir.graph import Graph, Literal, Node, Operand, all_nodes
from tracejit.ir.layouts import Strided, is_whole
from tracejit.ir.loop import leaves_by_step
from tracejit.loops.language import Nest
from tracejit.loops.verify import verify
from tracejit.lowering.convolutions import convolution_calls, convolution_steps
from tracejit.lowering.divide import NestPart
from tracejit.lowering.elements import Scratch, python_dtype
from tracejit.lowering.exits import exit_codes
from tracejit.lowering.fuse import group_nodes
from tracejit.lowering.inlining import inlined_nodes, stored_nodes
from tracejit.lowering.lapack import lapack_call, scratch_for
from tracejit.lowering.likeness import Nests, group_alike_units, merge_runs
from tracejit.lowering.live import NOTHING_LIVE, Inherited, LiveValues, ValueLocation, live
from tracejit.lowering.lowered import Lowered, Output, StepOrigin, Traffic
from tracejit.lowering.memory import Request, plan, slab_offsets
from tracejit.lowering.memory_order import MemoryOrder
from tracejit.lowering.peak import Peak, peak_of
from tracejit.lowering.products import plan_product
from tracejit.lowering.read_again import read_again
from tracejit.lowering.recurring import Schedules
from tracejit.lowering.regions import Moving, Region, partial_writes
from tracejit.lowering.schedule import Scheduled
from tracejit.lowering.special import check_nest, copy_nest, fill_nest, is_host, special
from tracejit.lowering.steps import (
    Address,
    ArraySpec,
    CopyCall,
    GemmCall,
    LoopCall,
    NestCall,
    NumberSlot,
    ProgramSpec,
    ProgramStep,
    array_slot,
    with_slots,
)
from tracejit.lowering.unit import Slices, Unit
from tracejit.lowering.values import Values
from tracejit.passes.copies import copies
from tracejit.passes.dce import dce
from tracejit.passes.pipeline import run_passes
from tracejit.passes.products import is_tiny, products

__all__ = ["NeedsHost", "lower"]


class _Placed(NamedTuple):
    """Where values are, and the parts of a `Lowered` that follow from it; `slots`: of a frame; written: whether some input is written."""

    specs: list[ArraySpec]
    arrays: int
    fresh: list[Aval]
    outputs: list[Output]
    slab_size: int | None
    arena_slot: int
    arena_bytes: int
    constants: list[tuple[int, Any]]
    numbers: dict[int, NumberSlot | int | float]
    slots: int
    written: bool


class NeedsHost(ValueError):
    """A graph has a node without a nest: it has to be split there."""


def lower(
    graph: Graph,
    layouts: Mapping[int, tuple[int, ...]],
    slab_inputs: Sequence[int] = (),
    slab_outputs: Sequence[int] = (),
    codes: Mapping[int, int] | None = None,
    written: Collection[int] = (),
    numbers: Mapping[int, int | float] | None = None,
    inherited: Sequence[Inherited] = (),
) -> Lowered:
    """Lower a functional graph whose nodes all have nests or BLAS calls.

    layouts: strides in elements of tensor inputs (row-major where absent).  slab_inputs: tensor inputs found in the slab.  slab_outputs:
    trailing outputs that go into a residual slab.  codes: exit numbers (`exit_codes(graph)` unless the graph is a part of another).
    written: inputs that a later part of the same program writes to: they are checked as if this one did.  numbers: the values of number
    inputs that are the same in each call.  inherited: tensor inputs found in memories of programs that have left.  Raises NeedsHost for a
    graph with a node that is evaluated on the host."""
    codes = exit_codes(graph) if codes is None else codes
    return _Lowering(graph, len(slab_outputs), layouts, tuple(slab_inputs), codes, written, numbers or {}, inherited).run()


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        kept: int,
        layouts: Mapping[int, tuple[int, ...]],
        slab_inputs: tuple[int, ...],
        codes: Mapping[int, int],
        written: Collection[int],
        numbers: Mapping[int, int | float],
        inherited: Sequence[Inherited],
    ) -> None:
        self.loops = {node.outputs[0]: codes[id(node)] for node in graph.nodes if node.op.kind is Kind.LOOP}
        self.stages = [graph]  # the graph given, and what has become of it
        for each in (dce, products, read_again, dce):
            graph = run_passes(graph, (each,))
            self.stages.append(graph)
        for node in graph.nodes:
            if is_host(graph.avals, node):
                raise NeedsHost(f"lower(): {node.op.name} has no nest; split the graph at it first")
        graph, self.regions = partial_writes(graph)
        self.stages.append(graph)
        count, targets = len(graph.outputs) - kept, [target for target, _ in graph.writes]
        regions = [region for region in self.regions if region is not None]
        locations = list({x: None for region in regions for x in region.positions if isinstance(graph.avals[x], Aval)})
        end = count + kept + len(locations)
        own = {v: s for v, s in layouts.items() if v not in slab_inputs}
        own |= {v: location.strides for memory in inherited for v, location in memory.locations.items()}
        together = replace(graph, outputs=(*graph.outputs, *locations, *[v for _, v in graph.writes]), writes=())
        strided: dict[int, Strided] = {}
        graph = run_passes(
            together, (partial(copies, layouts=own, kept=kept + len(locations), targets=targets, strided=strided),)
        )
        self.stages.append(graph)
        self.layouts, self.codes = layouts, codes
        self.written_later = written
        self.numbers = numbers
        self.values = values = Values(graph, strided)
        self.slab_inputs = slab_inputs
        self.inherited = inherited
        self.results = values.outputs[:count]
        self.residuals = [v for v in values.outputs[count : count + kept] if isinstance(v, int)]
        # tensors, in memory
        self.locations: dict[Any, Any] = dict(zip(locations, values.outputs[count + kept : end], strict=True))
        self.writes = [(t, v) for t, v in zip(targets, values.outputs[end:], strict=True) if isinstance(v, int)]
        self.homes: dict[int, Address] = {}
        self.accumulated: dict[int, int] = {}  # a product -> the value that takes over its memory and adds to it, in order
        self.owners: dict[int, int] = {}  # a product -> the last value that does
        self.units: list[Unit] = []
        self.again: dict[int, int] = {}  # what a repeated unit makes, known by a number that no value has -> the value
        self.instead: Mapping[int, int] = {}  # that of the unit whose steps are being made
        self.within: dict[int, Address] = {}  # where roots are within the loop over slices whose steps are being made
        self.saved: dict[int, int] = {}  # a position of the residual slab that is no value's -> its elements
        self.nests = Nests()
        self.requests: list[Request] = []  # of the arena
        self.arena_bytes = 0
        self.met_codes: list[int] = []  # exits of the unit that is being built

    # --- units

    def exit_code(self, number: int) -> int:
        code = self.codes[id(self.values.nodes[number])]
        self.met_codes.append(code)
        return code

    def _build_units(self) -> None:
        values = self.values
        self.inlined = inlined_nodes(values)
        groups = group_nodes(values, self.inlined)
        stored = stored_nodes(values, groups, self.inlined)
        schedules = Schedules(values, stored, self.inlined, self.exit_code)
        first_units: dict[int, Unit] = {}  # by id of what `schedules` keeps
        for k, group in enumerate(groups):
            node = None if group.is_nest else values.nodes[group.first]
            if node is not None and node.op.kind is Kind.LOOP:
                self._loop_unit(node)
                continue
            if node is not None and node.op.kind is Kind.CONTRACTION and values.aval(node.outputs[0]).dtype.is_floating_point:
                self._product_unit(node, k)
                continue
            if node is not None and node.op.kind is Kind.LAPACK:
                self._lapack_unit(node)
                continue
            if node is not None and node.op.kind is Kind.COMPOSITE:
                self._convolution_unit(node, k)
                continue
            done, first = schedules.scheduled(group, f"nest{k}")
            known = first_units.get(id(first))
            if known is None:
                label = ", ".join(values.nodes[n].op.name for n in group.members)
                operands = (o for n in group.members for o in values.nodes[n].operands)
                made = first_units[id(first)] = self._nest_unit(label, done, self._bytes_of(operands, done.reads))
            else:
                made = self._nest_unit(known.label, done, known.read_bytes)
            made.nodes = tuple([values.nodes[n] for n in group.members])
            self.units.append(made)
        for product, out in reversed(self.accumulated.items()):
            self.owners[product] = self._owner(out)
        self.destinations = list(map(self._destination, self.writes, self.regions))
        for step in (step for _, moving in self.destinations for step in moving):
            self.units.append(self._special_unit("check", check_nest(values, step, self.codes[id(step.node)], "check"), ()))
            self.units[-1].nodes = (step.node,)

    def _destination(self, write: tuple[int, int], region: Region | None) -> tuple[Strided, tuple[Moving, ...]]:
        """Where the contents of a write go."""
        layout = self.values.strided[write[0]]
        if region is None:
            return layout, ()
        layout, moving = region.layout(layout)
        return layout, tuple([replace(step, operand=self.locations.get(step.operand, step.operand)) for step in moving])

    def _nest_unit(self, label: str, done: Scheduled, read_bytes: int) -> Unit:
        parts = self._nest_parts(done)
        scratch = list(dict.fromkeys(a.root for part in parts for a in part.buffers if isinstance(a.root, Scratch)))
        codes, self.met_codes = tuple(self.met_codes), []
        return Unit(
            label, done.reads, done.writes, done.exits, codes, nest=done, nest_parts=parts, scratch=scratch, read_bytes=read_bytes
        )

    def _special_unit(self, label: str, done: Scheduled, operands: Iterable[Operand]) -> Unit:
        """The unit of a node that is no member of a group."""
        return self._nest_unit(label, done, self._bytes_of(operands, done.reads))

    def _nest_parts(self, done: Scheduled) -> tuple[NestPart, ...]:
        """The nests that do what a scheduled one does; where the library verifies itself, well formed and within their buffers."""
        parts = self.nests.nest_parts(done)
        for part in parts if config.verify else ():
            verify(part.nest)
            part.check_reach(self._extent)
        return parts

    def _extent(self, root: int | Scratch) -> tuple[int, int]:
        """The elements of the memory of a root value or scratch."""
        if isinstance(root, Scratch) or root in self.saved:
            return 0, root.count if isinstance(root, Scratch) else self.saved[root]
        return self.values.strided[root].extent(self.values.shape(root))

    def _bytes_of(self, operands: Iterable[Operand], roots: frozenset[int]) -> int:
        """Bytes that operands take in the memory of these roots: different views of one root together at most all of it."""
        parts: dict[int, dict[Strided, int]] = {}
        strided = self.values.strided
        for o in operands:
            if type(o) is int and (layout := strided.get(o)) is not None and layout.root in roots:
                parts.setdefault(layout.root, {})[layout] = self.values.nbytes(o)
        return sum([min(self.values.nbytes(root), sum(views.values())) for root, views in parts.items()])

    def _product_unit(self, node: Node, k: int) -> None:
        values, out = self.values, node.outputs[0]
        aval = values.aval(out)
        if aval.size == 0:
            return
        a, b, *added = node.operands
        inner = values.shape(a)[-1]  # type: ignore[arg-type]
        if not added and inner and is_tiny(values.shape(a), values.shape(b)):  # type: ignore[arg-type]
            number = values.producer[out]
            self.units.append(
                self._special_unit("tiny matmul", special(values, number, self.exit_code, f"nest{k}"), node.operands)
            )
            self.units[-1].nodes = (node,)
            return
        if not added and not inner:
            self.units.append(self._nest_unit("matmul of nothing", fill_nest(values, out, 0, f"nest{k}"), 0))
            self.units[-1].nodes = (node,)
            return
        reads = frozenset(values.root(o) for o in node.operands)  # type: ignore[arg-type]
        for total in added:
            self.accumulated[total] = out  # type: ignore[index]
        self.units.append(
            Unit("matmul", reads, frozenset((out,)), product=node, read_bytes=self._bytes_of(node.operands, reads), nodes=(node,))
        )

    def _convolution_unit(self, node: Node, k: int) -> None:
        values, out = self.values, node.outputs[0]
        clears, calls = convolution_calls(values, node)
        filled = self._nest_parts(fill_nest(values, out, 0, f"nest{k}")) if clears else ()
        reads = frozenset(values.root(o) for o in node.operands[:2])  # type: ignore[arg-type]
        self.units.append(
            Unit(
                node.op.name,
                reads,
                frozenset((out,)),
                nest_parts=filled,
                convolution=calls,
                read_bytes=self._bytes_of(node.operands, reads),
                nodes=(node,),
            )
        )

    def _lapack_unit(self, node: Node) -> None:
        reads = frozenset(self.values.root(o) for o in node.operands)  # type: ignore[arg-type]
        self.units.append(
            Unit(
                node.op.name,
                reads,
                frozenset(node.outputs),
                node.may_exit,
                (self.codes[id(node)],) if node.may_exit else (),
                lapack=node,
                scratch=[scratch_for(self.values, node)],
                read_bytes=self._bytes_of(node.operands, reads),
                nodes=(node,),
            )
        )

    def _loop_unit(self, node: Node) -> None:
        """The body is a program of its own: what it is given are its arrays, which are not the same in each step; what is carried it writes
        to.  Its slots are some of this program's."""
        values, attributes = self.values, node.attrs
        graph, carried, sliced = attributes["body"].graph, attributes["carried"], attributes.get("sliced", 0)
        strides = {v: values.strided[x].strides for v, x in zip(graph.inputs, node.operands, strict=True) if values.is_tensor(x)}  # type: ignore[index]
        for v in graph.inputs[carried : carried + sliced]:
            strides[v] = strides[v][1:]
        code = self.loops[node.outputs[0]]  # of whatever leaves in it
        codes = {id(inner): code for inner in all_nodes(graph)}
        body = lower(step_graph(graph, carried, len(node.outputs) - len(graph.outputs)), strides, codes=codes)
        exits = bool(body.live.steps) or "may not end" in node.op.traits  # an interrupt leaves it
        kept = len(node.outputs) - len(graph.outputs)
        for x, out in zip(node.operands[:carried], node.outputs[kept:], strict=False):
            self.accumulated[x] = out  # type: ignore[index]
        reads = frozenset(values.root(o) for o in node.operands if values.is_tensor(o))  # type: ignore[arg-type]
        self.units.append(
            Unit(
                text_of("loop of ", attributes["count"], " steps") if "count" in attributes else "loop while a condition holds",
                reads,
                frozenset(node.outputs),
                exits,
                (code,) if exits else (),
                loop=(node, body),
                scratch=[Scratch(uint8, body.arena_bytes)] if body.arena_bytes else [],
                read_bytes=self._bytes_of(node.operands, reads),
                nodes=(node,),
            )
        )

    # --- order and commits

    def _order(self) -> None:
        """Bring what exits need to the front, keeping the order otherwise."""
        made = {v: u for u in self.units for v in u.writes}
        early: set[int] = set()
        stack = [u for u in self.units if u.exits]
        while stack:
            u = stack.pop()
            if id(u) not in early:
                early.add(id(u))
                stack.extend(made[v] for v in u.reads if v in made)
        self.units.sort(key=lambda u: id(u) not in early)
        self.first_free = len(early)  # units from here on come after every exit

    def _gather(self) -> None:
        """Bring calls of the same nest together: a unit moves up past those that do not make what it reads and do not read an input whose
        new contents it makes.  Exits stay in their order, and nothing moves past one."""
        early, late = self.units[: self.first_free], self.units[self.first_free :]
        self.units = [*self._gathered(early), *self._gathered(late)]

    def _gathered(self, units: list[Unit]) -> list[Unit]:
        targets = {v: t for t, v in self.writes}
        made: dict[int, int] = {}  # value -> the number of the run that makes it
        read: dict[int, int] = {}  # value -> the number of the last run that reads it
        first, last = 0, -1  # runs: nothing comes before `first`

        def kind(u: Unit) -> Nest | None:
            return u.nest_parts[0].nest if len(u.nest_parts) == 1 and u.nest_parts[0].division is None else None

        def earliest(u: Unit) -> int:
            if u.exits:
                return max(last, 0)
            replaced = [read[targets[v]] for v in u.writes if targets.get(v) in read]
            return max([first, *[made[v] for v in u.reads if v in made], *replaced])

        def note_run(u: Unit, number: int) -> None:
            nonlocal first, last
            last = max(last, number)
            if u.exits:
                first = number
            made.update(dict.fromkeys(u.writes, number))
            for v in u.reads:
                if read.get(v, -1) < number:
                    read[v] = number

        return group_alike_units(units, kind, earliest, note_run)

    def _lasting(self) -> set[int]:
        """Roots of values that are there when the program is over, or that are written somewhere at its end."""
        values = self.values
        lasting = (*self.results, *self.residuals, *self.locations.values(), *[v for _, v in self.writes])
        return {values.root(x) for x in lasting if values.is_tensor(x)}  # type: ignore[arg-type]

    def _nbytes(self, root: int) -> int:
        """Of a value that has memory of its own, or of what a repeated unit makes."""
        return self.values.nbytes(self.again.get(root, root))

    def _commit(self, tensors: Mapping[int, int]) -> None:
        """Give written inputs their new contents: in place where that is safe, by copies at the end otherwise."""
        values = self.values
        kept = {values.root(v) for v in (*self.results, *self.residuals) if values.is_tensor(v)}  # type: ignore[arg-type]
        sources = Counter(values.root(v) for _, v in self.writes)
        made = {v: k for k, u in enumerate(self.units) for v in u.writes}
        last_read = {v: k for k, u in enumerate(self.units) for v in u.reads}
        kept.update(self.accumulated.values())  # their memory is written by more than one step
        for (target, v), region, (layout, moving) in zip(self.writes, self.regions, self.destinations, strict=True):
            if v == target:
                continue
            position = made.get(v)
            aval = values.aval(v)
            free = (
                region is None
                and position is not None
                and position >= self.first_free
                and v not in kept
                and sources[v] == 1
                and values.root(v) == v
                and values.strided[target].strides == contiguous(aval.shape)
                and last_read.get(target, -1) <= position
                and target not in sources
            )
            if free and position is not None:
                unit = self.units[position]
                others = target not in unit.reads
                same = unit.nest is not None and target in unit.nest.in_place.get(v, frozenset())
                if others or same:
                    self.homes[v] = Address(array_slot(tensors[target]))
                    continue
            read = [v, *[step.operand for step in moving if values.is_tensor(step.operand)]]
            copy = (layout, values.strided[v], aval)
            self.units.append(Unit("commit", frozenset(map(values.root, read)), frozenset(), copy=copy, moving=moving))

    # --- addresses

    def run(self) -> Lowered:
        values, graph = self.values, self.values.graph
        elsewhere = {*self.slab_inputs, *[v for memory in self.inherited for v in memory.locations]}
        tensors: dict[int, int] = {}
        scalars: list[int] = []
        for v in graph.inputs:
            if v in self.numbers:
                continue
            if isinstance(graph.avals[v], ScalarAval):
                scalars.append(v)
            elif v not in elsewhere:
                tensors[v] = len(tensors)
        self._build_units()
        self._order()
        self._gather()
        order = MemoryOrder(values, self.units, self.first_free, self.accumulated, self.writes, self._lasting(), self._nest_parts)
        order.run()
        placed = self._placed(order, tensors, scalars)
        limit, best = config.memory_limit, (without_symbols(placed.arena_bytes), order.units, order.first_free)
        while limit is not None and best[0] > limit and order.save_more():
            placed = self._placed(order, tensors, scalars)
            best = min(best, (without_symbols(placed.arena_bytes), order.units, order.first_free), key=lambda found: found[0])
        if order.units is not best[1]:
            order.units, order.first_free = best[1:]
            placed = self._placed(order, tensors, scalars)
        numbers, arena_slot = placed.numbers, placed.arena_slot
        steps: list[ProgramStep] = []
        about: list[tuple[str, StepOrigin]] = []  # each step
        units: list[int] = []  # the number of the unit of each step
        moved = list(map(self._moved, self.units))
        for k, u in enumerate(self.units):
            made = self._steps(u, numbers)
            steps.extend(made)
            main = next((i for i, s in enumerate(made) if isinstance(s, NestCall) and s.division is not None), 0)
            origins = [StepOrigin.of(u.nodes, *(moved[k] if i == main else (0, 0))) for i in range(len(made))]
            about += zip(self._describe(u, made, moved[k]), origins, strict=True)
            units += [k] * len(made)

        def together(run: Sequence[int]) -> tuple[str, StepOrigin]:
            own = [units[k] for k in run]
            given = [self.units[k] for k in own]
            read, written = sum(moved[k][0] for k in own), sum(moved[k][1] for k in own)
            origin = StepOrigin.of((node for u in given for node in u.nodes), read, written)
            return text_of(given[0].label, f", {len(given)} times: reads ", read, " bytes, writes ", written), origin

        steps, about = merge_runs(steps, about, together)
        disjoint = tuple(tensors.values()) if placed.written else ()
        return Lowered(
            ProgramSpec(tuple(placed.specs), tuple(steps), placed.slots, disjoint),
            placed.arrays,
            tuple(placed.fresh),
            placed.slab_size,
            arena_slot,
            placed.arena_bytes,
            tuple(placed.constants),
            tuple((numbers[v].index, graph.avals[v].python_type) for v in scalars),  # type: ignore[union-attr]
            tuple(placed.outputs),
            tuple([text for text, _ in about]),
            self._traffic(moved, placed.fresh),
            self._live(arena_slot),
            tuple([origin for _, origin in about]),
            self._peak(limit),
        )

    def _placed(self, order: MemoryOrder, tensors: Mapping[int, int], scalars: Sequence[int]) -> _Placed:
        """Homes for all values of the units of an order; tensors: inputs and their numbers among the arrays."""
        values, graph = self.values, self.values.graph
        self.units, self.first_free, self.again = list(order.units), order.first_free, order.again
        self.homes, self.saved = {}, {}
        written = {*self.written_later, *(t for t, v in self.writes if t != v)}
        specs = [ArraySpec.of(values.aval(v), values.strided[v].strides, v in written, v in self.layouts) for v in tensors]
        arrays = len(tensors)
        for v, k in tensors.items():
            self.homes[v] = Address(array_slot(k))
        if self.slab_inputs:
            where, size = slab_offsets([values.aval(v) for v in self.slab_inputs])
            specs.append(_bytes_spec(size))
            for v, at in zip(self.slab_inputs, where, strict=True):
                self.homes[v] = Address(array_slot(arrays), at)
            arrays += 1
        for memory in self.inherited:
            specs.append(_bytes_spec(memory.nbytes))
            self.homes.update({v: Address(array_slot(arrays), location.offset) for v, location in memory.locations.items()})
            arrays += 1
        fresh, outputs = self._outputs(tensors, scalars, arrays)
        specs.extend(ArraySpec.of(a, contiguous(a.shape), True) for a in fresh)
        slab_size = self._residual_slab(specs)
        self._commit(tensors)
        slot = array_slot(len(specs))
        arena_slot, slot = slot, slot + 1
        constants = []
        for v, array in values.constants.items():
            if any(v in u.reads for u in self.units):
                constants.append((slot, array))
                self.homes[v] = Address(slot)
                slot += 1
        for u in self.units:
            if u.slices is not None:
                u.base = slot
                slot += len(u.slices.moving)
            if u.loop is not None:
                u.base = slot
                slot += u.loop[1].spec.slots
                constants += [(u.base + own, array) for own, array in u.loop[1].constants]
        numbers: dict[int, NumberSlot | int | float] = dict(self.numbers)
        for v in scalars:
            python_type = graph.avals[v].python_type  # type: ignore[union-attr]
            numbers[v] = NumberSlot(slot, python_dtype(python_type))
            slot += 1
        arena_bytes = self._arena(arena_slot)
        return _Placed(specs, arrays, fresh, outputs, slab_size, arena_slot, arena_bytes, constants, numbers, slot, bool(written))

    def _outputs(self, tensors: Mapping[int, int], scalars: Sequence[int], arrays: int) -> tuple[list[Aval], list[Output]]:
        fresh: list[Aval] = []
        outputs: list[Output] = []
        seen: dict[int, Output] = {}
        for v in self.results:
            if v is None or isinstance(v, Literal):
                outputs.append(Output("literal", value=None if v is None else v.value))
                continue
            if v not in seen:
                if v in tensors:
                    seen[v] = Output("input", tensors[v])
                elif v in scalars:
                    seen[v] = Output("scalar", scalars.index(v))
                else:
                    seen[v] = Output("fresh", arrays + len(fresh))
                    self.homes[self.values.root(v)] = Address(array_slot(arrays + len(fresh)))
                    fresh.append(self.values.aval(v))
            outputs.append(seen[v])
        return fresh, outputs

    def _residual_slab(self, specs: list[ArraySpec]) -> int | None:
        """Homes of the residuals; those that have one already are copied."""
        if not self.residuals:
            return None
        values, avals = self.values, [self.values.aval(v) for v in self.residuals]
        where, size = slab_offsets(avals)
        slot = array_slot(len(specs))
        specs.append(_bytes_spec(size))
        for v, at, aval in zip(self.residuals, where, avals, strict=True):
            root = values.root(v)
            if root not in self.homes and root in values.producer and is_whole(values.strided[v], values.shape(v), values.avals):
                self.homes[root] = Address(slot, at)
                continue
            location = -1 - len(self.homes)  # a position of its own, known by a number that no value has
            self.homes[location] = Address(slot, at)
            self.saved[location] = aval.size
            copy = Strided(location, 0, contiguous(aval.shape)), values.strided[v], aval
            self.units.append(Unit("save", frozenset((root,)), frozenset(), copy=copy))
        return size

    def _arena(self, slot: int) -> int:
        """Homes in the arena for everything that has none yet."""
        life: dict[Any, list[int]] = {}
        for k, u in enumerate(self.units):
            for v in map(self._owner, (*u.reads, *u.writes)):
                if v not in self.homes:
                    life.setdefault(v, [k, k])[1] = k
            for s in u.scratch:
                life[s] = [k, k]
        requests = [
            Request(v, v.count * v.dtype.itemsize if isinstance(v, Scratch) else self._nbytes(v), first, last)
            for v, (first, last) in life.items()
        ]
        offsets, total = plan(requests)
        self.requests, self.arena_bytes = requests, total
        self.scratch_homes = {v: Address(slot, at) for v, at in offsets.items() if isinstance(v, Scratch)}
        self.homes.update({v: Address(slot, at) for v, at in offsets.items() if isinstance(v, int)})
        return total

    def _peak(self, limit: int | None) -> Peak:
        """The step at which most of the arena is in use, and by what."""
        owners = {s: u for u in self.units for s in u.scratch}

        def what(key: int | Scratch) -> tuple[str, Node | None, Peak | None]:
            if isinstance(key, Scratch):
                u = owners[key]
                return u.label, next(iter(u.nodes), None), None if u.loop is None else u.loop[1].peak
            number = self.values.producer.get(self.again.get(key, key))
            node = None if number is None else self.values.nodes[number]
            return "an input" if node is None else node.op.name, node, None

        return peak_of(self.requests, self.arena_bytes, [u.label for u in self.units], what, limit)

    def _live(self, slot: int) -> LiveValues:
        """What is in the arena at each exit."""
        last = max((k for k, u in enumerate(self.units) if u.codes), default=-1)
        if last < 0:
            return NOTHING_LIVE

        def extent(key: int | Scratch, nbytes: int) -> tuple[int, int] | None:
            home = self.scratch_homes[key] if isinstance(key, Scratch) else self.homes[self._owner(key)]
            assert isinstance(home.offset, int)
            return (home.offset, home.offset + nbytes) if home.slot == slot else None

        written: list[list[tuple[int, int]]] = []
        made: dict[int, tuple[int, int, int]] = {}
        for k, u in enumerate(self.units[: last + 1]):
            own = {v: extent(v, self._nbytes(v)) for v in u.writes}
            rows = [extent(s, s.count * s.dtype.itemsize) for s in u.scratch]
            written.append([location for location in (*own.values(), *rows) if location is not None])
            made.update({v: (k, *location) for v, location in own.items() if location is not None})
        homes: dict[int, list[tuple[int, ValueLocation]]] = {}
        lasting = set.intersection(*map(_defined, self.stages))  # a number that a pass drops may come again
        for v, layout in self.values.strided.items():
            if layout.root in made and v in lasting:
                offset = made[layout.root][1] + layout.offset * self.values.aval(v).dtype.itemsize
                homes.setdefault(layout.root, []).append((v, ValueLocation(offset, layout.strides)))
        return live({code: k for k, u in enumerate(self.units) for code in u.codes}, written, homes, made)

    # --- steps

    def _owner(self, root: int) -> int:
        """The value that has the memory of a root value in the end."""
        return self.owners.get(root, root)

    def _address(self, root: int | Scratch, elements: int, itemsize: int) -> Address:
        if isinstance(root, Scratch):
            home = self.scratch_homes[root]
        else:
            home = self.within.get(root) or self.homes[self._owner(self.instead.get(root, root))]
        assert isinstance(home.offset, int)
        return Address(home.slot, home.offset + elements * itemsize) if elements else home

    def _steps(self, u: Unit, numbers: Mapping[int, NumberSlot | int | float]) -> list[ProgramStep]:
        self.instead = u.instead
        if u.product is not None:
            return [self._gemm(u.product)]
        if u.slices is not None:
            return [self._slice_loop(u, u.slices, numbers)]
        if u.lapack is not None:
            code = u.codes[0] if u.codes else 0
            return [lapack_call(self.values, u.lapack, self.scratch_homes[u.scratch[0]], code, self._address)]
        if u.loop is not None:
            return [self._loop(*u.loop, u, numbers)]
        if u.copy is not None:
            target, source, aval = u.copy
            dense = contiguous(aval.shape)
            if target.strides == dense and source.strides == dense and not u.moving:
                size = aval.dtype.itemsize
                destination = self._address(target.root, target.offset, size)
                return [CopyCall(destination, self._address(source.root, source.offset, size), aval.nbytes)]
            u.nest_parts = self._nest_parts(copy_nest(self.values, target, source, aval.shape, aval.dtype, "copy", u.moving))
        steps: list[ProgramStep] = [self._nest_call(part, numbers) for part in u.nest_parts]
        return [*steps, *convolution_steps(self.values, u.nodes[0], u.convolution, self._address)] if u.convolution else steps

    def _loop(self, node: Node, body: Lowered, u: Unit, numbers: Mapping[int, NumberSlot | int | float]) -> LoopCall:
        values, attributes = self.values, node.attrs
        carried, sliced, reverse = attributes["carried"], attributes.get("sliced", 0), attributes.get("reverse", False)
        count: int | None = attributes.get("count")
        kept = len(node.outputs) - len(attributes["body"].graph.outputs)
        pointers: list[tuple[int, Address, int]] = []

        def put(layout: Strided, moves: bool, itemsize: int) -> None:
            """The array that comes next is this one, or, in each step, the next slice of it."""
            advance = layout.strides[0] if moves else 0
            first = layout.offset + (advance * (count - 1) if reverse and count is not None else 0)
            slot = u.base + array_slot(len(pointers))
            pointers.append((slot, self._address(layout.root, first, itemsize), (-advance if reverse else advance) * itemsize))

        tensors = [(k, x) for k, x in enumerate(node.operands) if values.is_tensor(x)]
        for k, x in tensors:
            put(values.strided[x], carried <= k < carried + sliced, values.aval(x).dtype.itemsize)  # type: ignore[index, arg-type]
        for out in (*node.outputs[:kept], *node.outputs[kept + carried :]):
            put(values.strided[out], True, values.aval(out).dtype.itemsize)
        if body.arena_bytes:
            pointers.append((u.base + body.arena_slot, self._address(u.scratch[0], 0, 1), 0))
        given = [x.value if isinstance(x, Literal) else numbers[x] for x in node.operands if not values.is_tensor(x)]  # type: ignore[union-attr, index]
        instead = {own: n for (own, _), n in zip(body.scalars, given, strict=True)}
        steps = [with_slots(step, lambda slot: u.base + slot, instead) for step in body.spec.steps]
        go = self._byte(node.operands[0]) if count is None else count
        return LoopCall(tuple(steps), go, tuple(pointers), leaves_by_step(node.op))

    def _slice_loop(self, u: Unit, slices: Slices, numbers: Mapping[int, NumberSlot | int | float]) -> LoopCall:
        pointers = [(u.base + k, self._address(root, 0, 1), advance) for k, (root, advance) in enumerate(slices.moving)]
        self.within = {root: Address(u.base + k) for k, (root, _) in enumerate(slices.moving)}
        self.within[slices.value] = self.scratch_homes[u.scratch[0]]
        nest = [self._nest_call(part, numbers) for part in slices.nest]
        product = replace(self._gemm(slices.product), batch=slices.batch)
        self.within = {}
        steps: list[ProgramStep] = [*nest, product] if slices.comes_first else [product, *nest]
        return LoopCall(tuple(steps), slices.count, tuple(pointers), leaves_by_step=False)

    def _byte(self, v: Operand) -> Address:
        """Where a truth value is."""
        assert isinstance(v, int)
        layout = self.values.strided[v]
        return self._address(layout.root, layout.offset, 1)

    def _nest_call(self, part: NestPart, numbers: Mapping[int, NumberSlot | int | float]) -> NestCall:
        nest = part.nest
        parameters = zip(part.buffers, (*nest.buffers, *nest.temporaries), strict=True)
        buffers = tuple([self._address(a.root, a.offset, b.dtype.itemsize) for a, b in parameters])
        return NestCall(nest, buffers, part.sizes, tuple([numbers[v] for v in part.scalars]), part.division)

    def _gemm(self, node: Node) -> GemmCall:
        values = self.values
        x, y, *added = node.operands
        assert isinstance(x, int) and isinstance(y, int)
        out = node.outputs[0]
        a, b, aval = values.strided[x], values.strided[y], values.aval(out)
        p = plan_product(values.shape(x), a.strides, values.shape(y), b.strides, aval.shape)
        size = aval.dtype.itemsize
        return GemmCall(
            aval.dtype,
            p.m,
            p.n,
            p.k,
            self._address(a.root, a.offset, size),
            p.a.leading,
            self._address(b.root, b.offset, size),
            p.b.leading,
            self._address(out, 0, size),
            max(p.n, 1),
            p.a.transposed,
            p.b.transposed,
            beta=1.0 if added else 0.0,
            batch=p.batch,
        )

    def _moved(self, u: Unit) -> tuple[int, int]:
        """(bytes read, bytes written) of a step."""
        if u.copy is not None:
            return u.copy[2].nbytes, u.copy[2].nbytes
        return u.read_bytes, sum(map(self._nbytes, u.writes))

    def _traffic(self, moved: Sequence[tuple[int, int]], fresh: Sequence[Aval]) -> Traffic:
        """moved: by each unit."""
        values = self.values
        used = {v for u in self.units for v in u.reads if v not in values.producer and v not in self.again}
        results = [*fresh, *(values.aval(v) for v in self.residuals), *(values.aval(v) for t, v in self.writes if t != v)]
        least = sum(values.aval(v).nbytes for v in used) + sum(a.nbytes for a in results)
        return Traffic(sum(r for r, _ in moved), sum(w for _, w in moved), least)

    def _describe(self, u: Unit, steps: Sequence[ProgramStep], moved: tuple[int, int]) -> list[str]:
        """A line for each step: what the unit computes, and the bytes it reads and writes; if it is in chunks, what else there is to do."""
        read, written = moved
        head = u.label, ": reads ", read, " bytes, writes ", written
        cuts = [s.division if isinstance(s, NestCall) else None for s in steps]
        if not any(cuts):
            further = [f"{u.label}: the next positions, zeros before"] * (len(steps) - 1)
            return [text_of(*head), *further]
        locations = ["after" if not any(cuts[k:]) else "between" if any(cuts[:k]) else "before" for k in range(len(cuts))]
        return [
            f"{location} the chunks" if c is None else text_of(*head, ", in ", c.count, " chunks")
            for c, location in zip(cuts, locations, strict=True)
        ]


def step_graph(body: Graph, carried: int, kept: int) -> Graph:
    """A loop's body as a program of one step: it writes to the first inputs what is carried on, and gives what the first `kept` of them
    were, then what is collected, each in memory of its own."""
    nodes, avals = list(body.nodes), dict(body.avals)
    taken: set[Operand] = {*body.inputs, *body.constants}
    outputs: list[int] = []
    for v in (*body.inputs[:kept], *body.outputs[carried:]):
        assert isinstance(v, int)
        if v in taken:
            fresh = max(avals) + 1
            avals[fresh] = avals[v]
            nodes.append(Node(REGISTRY["clone"], (v,), (), (fresh,)))
            v = fresh
        taken.add(v)
        outputs.append(v)
    writes = [(target, v) for target, v in zip(body.inputs, body.outputs[:carried], strict=False) if v != target]
    return replace(body, nodes=tuple(nodes), avals=avals, outputs=tuple(outputs), writes=tuple(writes))  # type: ignore[arg-type]


def _defined(graph: Graph) -> set[int]:
    """The values that nodes make."""
    return {v for node in graph.nodes for v in node.outputs}


def _bytes_spec(size: int) -> ArraySpec:
    return ArraySpec(uint8, (size,), (1,), True)
