"""Executable: the programs of a recording (one forward program, backward programs on demand), and the statements that run them.

`Executable.body()` gives the part of an entry between guards and effects: it runs the program, advances the version counters of
the memory that the program has written, wraps the outputs in tensors, and puts one node on the tape if a backward pass may
follow.  It returns MISS if an array does not fit the machine code, an Exit if a guard inside the program fails; then nothing has
been changed.

In this layer and above, forward and backward programs are the only users of `passes` and `runtime`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from tracejit.autograd.compiled import NOTHING_FREED, Call, CompiledNode, ConsumedNode, Mask, Visit
from tracejit.autograd.tape import Storage, move_retained, next_sequence
from tracejit.capture.reasons import Reason, make
from tracejit.capture.recording.cell import marks
from tracejit.capture.recording.entry import INTERRUPTED, MISS, PROMOTE, Body, Exit, Recording, TensorOutput
from tracejit.capture.recording.runs import Runs
from tracejit.compiled import backward_call
from tracejit.compiled.eager_tape import EagerTape, sequence_offset
from tracejit.compiled.side_trace import Remainder
from tracejit.compiled.tape_edges import consumed, edge, edges_of_written_inputs, new_object, new_tensor, view_maker
from tracejit.core.aval import Aval
from tracejit.core.deferred import deferred
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.shapes import memory_order
from tracejit.core.substitution import Substitution
from tracejit.core.uninterrupted import Work, start_work, uninterrupted_result
from tracejit.ir.graph import Graph, Node, Operand
from tracejit.llvm.driver import INTERRUPTED as LEFT_FOR_SIGNAL
from tracejit.llvm.family import Family, Member
from tracejit.passes.backward import active_values, tape_values
from tracejit.passes.partition import Partition, partition
from tracejit.passes.pipeline import Observe, optimise, prepare
from tracejit.passes.residual_stacks import SlabContents, stack_residuals
from tracejit.replay.ir import (
    Constant,
    Define,
    Evaluate,
    Expr,
    Increment,
    Name,
    Notify,
    ReturnIf,
    SetAttribute,
    Starred,
    Statement,
    TupleOf,
    tuple_of,
)
from tracejit.runtime.layout import laid_out
from tracejit.runtime.program import Program, Remains, build
from tracejit.runtime.slab import unpack
from tracejit.tensor import Tensor
from tracejit.tensor.rebinding import rebound

__all__ = ["Executable", "ProgramObserver", "UnsupportedProgram"]


T = TypeVar("T")
_FORWARD = "forward"
_OF_SIZES: Final = ("pure", "partition", "in_slab", "graph", "_without_structure")
"""Attributes that depend on sizes: an instance (`Executable.at`) does not take them over."""


class UnsupportedProgram(Exception):
    """No program can replay the recording; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class ProgramObserver(Protocol):
    """An observer of what an Executable compiles and runs (report/debug.py).  role: "forward" or "backward for ..."."""

    def after_pass(self, role: str, name: str, graph: Graph) -> None:
        """Called after the pass `name`, with its result."""

    def built(self, role: str, program: Any) -> None:
        """Called when a program was compiled or taken from a cache."""

    def running(self, role: str, program: Any, arrays: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Called before a program runs on these arrays."""


class InstanceMaker(Protocol):
    """The owner of an Executable with symbolic sizes, from which instances are made (compiled/symbolic_paths.py)."""

    def backward(self, instance: Executable, present: Mask, mask: Mask) -> Program | None:
        """The backward program of an instance; None if it has to be compiled for the sizes of the instance alone."""


# The graph of a backward program, and the positions of its inputs that are read from the slab.
_Backward = tuple[Graph, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _PendingBackward:
    """A backward program that is being compiled in the background.  interpreted: what runs its graph meanwhile.  Each with the
    positions of its inputs."""

    work: Work[tuple[Any, tuple[int, ...]]]
    interpreted: tuple[Any, tuple[int, ...]]


class Executable:
    """The programs of one recording.  Creating it compiles the forward program, and raises UnsupportedProgram if there can be
    none."""

    def __init__(
        self,
        name: str,
        recording: Recording,
        backend: str,
        patience: Callable[[], float],
        observer: ProgramObserver | None = None,
        family: Family | None = None,
    ) -> None:
        """patience: gives how many seconds a backward pass waits for its program.  observer: of what it compiles and runs.  family: the
        programs of the function's other recordings, which share machine code."""
        assert recording.graph is not None
        self.name = name
        self.recording = recording
        self.inputs = recording.tensor_inputs
        self.backend = backend
        self._member = None if family is None else _member(family, recording)
        self._patience = patience
        self._watcher = observer
        observe = None if observer is None else partial(observer.after_pass, _FORWARD)
        # Calls served; exits; misses by arrays that did not fit; calls of machine code in backward passes.
        self.counter = [0, 0, 0, 0]
        self.exits_taken: dict[int, int] = {}  # number of an exit -> how often it was taken
        # Outputs that are views of other memory are not computed by the program: the entry creates the views again.
        self._computed = tuple([i for i, facts in enumerate(recording.outputs) if facts.alias is None])
        self.outputs = tuple([recording.outputs[i] for i in self._computed])
        self._layouts = {facts.value: facts.strides for facts in self.inputs}
        for written in recording.written_inputs:
            facts = self.inputs[written.index]
            if not written.has_new_edge and (written.requires_grad, written.is_leaf) != (facts.requires_grad, facts.is_leaf):
                raise UnsupportedProgram(make("differentiable_write", f"of shape {list(facts.shape)}"))
        # Written inputs whose new position on the tape is an output of the call's node.
        self._changed = tuple([w for w in recording.written_inputs if w.has_new_edge and w.consumed is None])
        # Output views whose position on the tape is an output of the call's node: all differentiable ones, if there is such a node
        # for other reasons, or if the gradient of one passes through another.
        linked = tuple([i for i, facts in enumerate(recording.outputs) if facts.alias is not None and _is_differentiable(facts)])
        joined = bool(self._changed) or any(map(_is_differentiable, self.outputs))
        self._maker: InstanceMaker | None = None
        self._general: Executable | None = None
        self._numbers: Substitution | None = None
        self._linked = linked if joined or (linked and self._depend(linked)) else ()
        self.pure = self._prepare(self._linked, observe)
        self.partition = None
        self._live: tuple[tuple[int, int], ...] = ()  # (residual, input whose contents it is), for writes through .data
        self.in_slab = SlabContents((), ())
        self._backward: dict[tuple[Mask, Mask], tuple[Any, tuple[int, ...]]] = {}
        self._pending_backward: dict[tuple[Mask, Mask], _PendingBackward] = {}  # being compiled in the background
        self._tape: EagerTape | None = None
        self._visits: dict[tuple[Mask, Mask | None], Visit] = {}
        self._leading: dict[Mask, frozenset[int]] = {}
        self.calls: dict[int | Mask, Call] = {}
        self.interpreted_for: dict[str, None] = {}  # why some of these calls are not machine code
        self._positions = {facts.value: i for i, facts in enumerate(self.inputs)}
        self.freed_by_all_outputs: frozenset[int] = frozenset()  # the nodes of eager's tape that a pass from all outputs frees
        without_result = len(self._linked) + len(self._changed)
        self._differentiable: Mask = (*map(_is_differentiable, self.outputs), *[True] * without_result)
        structural = frozenset(() if recording.structure is None else recording.structure.tensors)
        self._resident = resident = frozenset([facts.value for facts in self.inputs if facts.expression.name in structural])
        if any(self._differentiable):
            wanted = {facts.value for facts in self.inputs if facts.requires_grad}
            live = self._contents_behind_data()
            split = partition(
                self.pure, [v in wanted for v in self.pure.inputs], self._differentiable, without_result, live.keys()
            )
            self._live = tuple([(k, self._positions[live[v]]) for k, v in enumerate(split.residuals) if v in live])
            graph, self.in_slab = stack_residuals(optimise(split.forward, observe=observe), len(self.outputs))
            self.partition = split
            self.graph = self._in_memory_order(graph)
            residuals = tuple([v for v in self.graph.outputs[len(self.outputs) :] if type(v) is int])
            self.program = build(
                self.graph, self._layouts, slab_outputs=residuals, backend=backend, resident=resident, member=self._member
            )
        else:
            self.graph = self._in_memory_order(optimise(self.pure, observe=observe))
            self.program = build(self.graph, self._layouts, backend=backend, resident=resident, member=self._member)
        if observer is not None:
            observer.built(_FORWARD, self.program)
        self.kept: tuple[int, ...] = ()
        self.saved: tuple[int, ...] = ()
        self._backward_scalars: tuple[int, ...] = ()
        self._leaves: tuple[int, ...] = ()  # outputs that are leaves created in the call
        self._edges: tuple[int, ...] = ()  # for each edge of the tape's node, the value whose gradient goes there
        self._all: Mask = ()  # for each edge, whether a pass to all inputs gives a gradient for it
        if self.partition is not None:
            split = self.partition
            self.freed_by_all_outputs = split.visit(self._differentiable).savers
            numbers = [v for v in self.pure.inputs if not isinstance(self.pure.avals[v], Aval)]
            self._backward_scalars = tuple([i for i, v in enumerate(numbers) if v in split.direct_inputs])
            outputs = {leaf: i for i in range(len(self.outputs)) if (leaf := self._leaf(split, i)) is not None}
            leaves = [v for v in split.leaves if v in outputs]
            self._leaves = tuple([outputs[v] for v in leaves])
            self._edges = (*[facts.value for facts in self.inputs], *leaves)
            self._all = (*[facts.requires_grad for facts in self.inputs], *[True] * len(leaves))

    def _contents_behind_data(self) -> dict[int, int]:
        """The value that each input written through `.data` has at the end -> the input.  Raises UnsupportedProgram if the
        program does not compute that value itself."""
        uncounted = {self.inputs[fact.index].value for fact in self.recording.written_inputs if not fact.counted}
        written = [(value, target) for target, value in self.pure.writes if target in uncounted]
        contents = {value: target for value, target in written if type(value) is int}
        if len(contents) < len(written) or not contents.keys().isdisjoint((*self.pure.inputs, *self.pure.constants)):
            raise UnsupportedProgram(
                make("tensor_state", "a write of another tensor's contents through .data, before a backward pass,")
            )
        return contents

    def _refresh(self, arrays: Sequence[Any], slab: Any) -> None:
        """Copy the current contents of inputs that were written through `.data` into the slab: eager mode's tape reads their
        memory."""
        residuals = self.in_slab.residuals(unpack(self.in_slab.avals, slab))
        for k, position in self._live:
            np.copyto(residuals[k], arrays[position])

    def _shared_residuals(self, arrays: Sequence[Any], slab: Any) -> list[Any]:
        """The residuals in a slab; for inputs that were written through `.data` their own arrays, for a tape that reads these
        later."""
        residuals = self.in_slab.residuals(unpack(self.in_slab.avals, slab))
        for k, position in self._live:
            residuals[k] = arrays[position]
        return residuals

    # Instances derive these when they are first needed, which is seldom.
    @deferred
    def pure(self) -> Graph:
        """The pure graph: the operations of eager mode, without writes."""
        return self._substituted(lambda general: general.pure)

    @deferred
    def partition(self) -> Partition | None:
        """The pure graph, split into forward and backward; None if nothing is differentiable."""
        return self._substituted(lambda general: general.partition)

    @deferred
    def in_slab(self) -> SlabContents:
        """The residuals that the forward program saves for the backward ones."""
        return self._substituted(lambda general: general.in_slab)

    @deferred
    def graph(self) -> Graph:
        """The graph of the forward program."""
        return self._substituted(lambda general: general.graph)

    def _substituted(self, part: Callable[[Executable], T]) -> T:
        """A part of the executable of which this is an instance, with its symbolic sizes replaced by those of the instance."""
        assert self._general is not None and self._numbers is not None
        result: T = self._numbers.of(part(self._general))
        return result

    @property
    def _of_any_sizes(self) -> Executable:
        """The executable of which this is an instance, or itself.  It has everything that does not depend on sizes: which nodes
        passes enter, what is saved and what is written."""
        return self._general or self

    @deferred
    def _without_structure(self) -> Executable:
        """This executable as the plan of nodes that are made by entries without the recording's structure."""
        copy: Executable = object.__new__(Executable)
        copy.__dict__.update(self.__dict__)
        copy.calls = {}
        return copy

    @property
    def _split(self) -> Partition:
        split = self._of_any_sizes.partition
        assert split is not None
        return split

    @property
    def _is_split(self) -> bool:
        """Whether something is differentiable."""
        return self._of_any_sizes.partition is not None

    def at(self, recording: Recording, numbers: Substitution, maker: InstanceMaker) -> Executable:
        """An instance of this executable, which has symbolic sizes, for other sizes.

        recording: the recording for these sizes.  numbers: the values of the symbolic sizes.  maker: the owner of this
        executable, which makes backward programs of it."""
        instance: Executable = object.__new__(Executable)
        instance.__dict__.update(self.__dict__)
        instance.recording, instance.inputs, instance._maker = recording, recording.tensor_inputs, maker
        instance.outputs = tuple([recording.outputs[i] for i in self._computed])
        instance._layouts = {facts.value: facts.strides for facts in instance.inputs}
        instance._general, instance._numbers, instance.program = self, numbers, numbers.of(self.program)
        for name in _OF_SIZES:
            instance.__dict__.pop(name, None)
        instance.counter, instance.exits_taken, instance.calls, instance.interpreted_for = [0, 0, 0, 0], {}, {}, {}
        instance._backward, instance._pending_backward, instance._tape = {}, {}, None
        instance._visits, instance._leading = {}, {}
        return instance

    def _prepare(self, linked: Sequence[int], observe: Observe | None = None) -> Graph:
        """The pure graph.  Its outputs are the computed outputs, then the output views at the positions `linked`, then the
        written inputs with a new position on the tape."""
        recorded = self.recording
        assert recorded.graph is not None
        values = [facts.value for facts in (*self.outputs, *[recorded.outputs[i] for i in linked])]
        values += [fact.value for fact in self._changed]
        return prepare(replace(recorded.graph, outputs=tuple(values)), observe=observe)

    def _depend(self, linked: Sequence[int]) -> bool:
        """Whether the gradient of one of these output views passes through another."""
        graph = self._prepare(linked)
        values, shared = [v for v in graph.outputs[len(self.outputs) :] if type(v) is int], tape_values(graph)
        return any(w != v and w in active_values(graph, [shared.get(v, v)]) for v in values for w in values)

    def _leaf(self, split: Partition, i: int) -> int | None:
        """The value that output `i` had when it became a leaf that requires grad; None if it is no leaf created in the call."""
        value = split.tape_value(i) if self.outputs[i].requires_grad and self.outputs[i].is_leaf else None
        return value if value in split.leaves else None

    def _in_memory_order(self, graph: Graph) -> Graph:
        """The graph with outputs permuted to the order of dimensions in which eager mode has them in memory; `body` permutes the
        arrays back."""
        nodes, avals, outputs = list(graph.nodes), dict(graph.avals), list(graph.outputs)
        for i, facts in enumerate(self.outputs):
            value, order = outputs[i], memory_order(facts.shape, facts.strides)
            if type(value) is int and order is not None and order != tuple(range(len(order))):
                fresh = max(avals) + 1
                avals[fresh] = Aval(tuple([facts.shape[d] for d in order]), facts.dtype)
                nodes.append(Node(REGISTRY["permute"], (value,), (("dims", order),), (fresh,)))
                outputs[i] = fresh
        return replace(graph, nodes=tuple(nodes), avals=avals, outputs=tuple(outputs))

    @property
    def operations(self) -> int:
        """The number of nodes of the program's graph."""
        return len(self._of_any_sizes.graph.nodes)

    @property
    def machine_calls(self) -> int:
        """The number of calls of machine code so far, forward and backward."""
        served, exits, misfits, backward = self.counter
        return (served + exits + misfits) * self.program.machine_calls + backward

    @property
    def drawn_from(self) -> list[int]:
        """The values of the inputs that are states of generators from which the program draws."""
        drawn = _drawn_from(self._of_any_sizes.graph)
        return [facts.value for facts in self.inputs if facts.value in drawn]

    # -- the forward call
    def side_program(self, rest: Remainder) -> Any:
        """The program of a side trace, which computes the rest of this path."""
        residuals = tuple([v for v in rest.graph.outputs[len(self.outputs) :] if type(v) is int])
        program = build(
            rest.graph, self._layouts, slab_outputs=residuals, resident=self._resident, codes=rest.codes, inherited=rest.inherited
        )
        if self._watcher is not None:
            self._watcher.built(_FORWARD, program)
        return program

    def body(self, structured: bool = True, program: Any = None, memories: Sequence[Remains] = ()) -> Body:
        """The statements of a call, for `Recording.build_entry`: all that is known before the call is decided here.

        structured: whether the entry uses the recording's structure.  Without it, nodes store tensors and arrays in other parts,
        so they have another plan.  program, memories: the program of a side trace, and the memories that it inherits; default:
        the program of the whole path."""
        recording = self.recording if structured else replace(self.recording, structure=None)
        plan = self if recording.structure is self.recording.structure else self._without_structure
        structural = () if recording.structure is None else recording.structure.tensors
        tensors: list[Expr] = [facts.expression for facts in self.inputs]
        numbers = TupleOf(tuple([facts.expression for facts in recording.scalar_inputs]))
        environment: dict[str, Any] = {
            "leave": _ExitCodes(self.counter, self.exits_taken), "counter": self.counter, "new": object.__new__, "Tensor": Tensor,
            "Storage": Storage, "CompiledNode": CompiledNode, "plan": plan, "next_sequence": next_sequence, "ConsumedNode": ConsumedNode,
            "fresh": _fresh, "NOTHING_FREED": NOTHING_FREED, "move_retained": move_retained, "rebound": rebound,
            "needs": self._all,
        }  # fmt: skip
        statements: list[Statement] = []
        runs = Runs(tensors, structural)
        arrays: list[Expr] = [t.get("_array") for t in tensors]
        if self._is_split:  # they are used twice: the node of the tape stores them
            for i in runs.single:
                statements.append(Define(f"a{i}", arrays[i]))
                arrays[i] = Name(f"a{i}")
        if self._watcher is not None:
            environment["running"] = partial(self._watcher.running, _FORWARD, program or self.program)
            statements.append(Notify(Name("running").call(runs.items(arrays, "arrays"), numbers)))
        results = self._run(program or self.program, memories, arrays, runs, numbers, statements, environment)
        statements.append(Increment(Name("counter").at(0), 1))
        position = {facts.value: i for i, facts in enumerate(self.inputs)}
        uncounted = {facts.index for facts in recording.written_inputs if not facts.counted}
        written = sorted({position[target] for target, _ in self._of_any_sizes.graph.writes} - uncounted)
        if written:
            environment["mark_written"] = marks()
            statements += [Evaluate(Name("mark_written").call(part)) for part in runs.split(written, "written", _storage)]
        freed: list[tuple[str, Operand]] = []  # (node for a graph that was freed inside the call, the value whose position it is)
        for result, i, facts, differentiable in zip(results, self._computed, self.outputs, self._differentiable, strict=False):
            on_tape = self._is_split and differentiable
            layout = laid_out(facts.shape, facts.strides, facts.dtype)
            if layout is not None:
                environment[f"layout{i}"] = layout
                result = Name(f"layout{i}").call(result)
            node: Name | Constant = Constant(None)
            if facts.consumed is not None and facts.requires_grad and not on_tape:
                node = Name(f"freed{i}")
                freed.append((node.name, self.pure.outputs[self._computed.index(i)]))
                statements += consumed(node.name, f"{i}", facts.consumed, self.inputs, runs, environment)
            statements += new_tensor(
                f"out{i}",
                result,
                _requires_grad=Constant(facts.requires_grad),
                _node=node,
                _index=Constant(self._computed.index(i) if on_tape else 0),
            )
        for fact in recording.written_inputs:
            if fact.has_new_edge and fact.consumed is not None:
                name = f"used{fact.index}"
                freed.append((name, dict(self.pure.writes)[self.inputs[fact.index].value]))
                statements += consumed(name, f"_{name}", fact.consumed, self.inputs, runs, environment)
        if self._is_split:
            statements += plan._node(self._split, tensors, arrays, runs, numbers, results, position)
            statements += self._order(freed, environment)
        statements += edges_of_written_inputs(recording.written_inputs, self.inputs, len(self.outputs) + len(self._linked))
        scalars = {f.value: k for k, f in enumerate(recording.scalar_inputs)}
        # In the order in which eager mode creates them.
        for i, facts in sorted(enumerate(recording.outputs), key=lambda item: item[1].value):
            if facts.alias is not None:
                owner = tensors[facts.alias.index] if facts.alias.kind == "input" else Name(f"out{facts.alias.index}")
                has_new_edge, out = i in self._linked, Name(f"out{i}")
                environment[f"view{i}"] = view_maker(facts.alias, scalars, facts.requires_grad and not has_new_edge)
                computed = [Name(f"out{x.output}") for x in facts.alias.computed_positions]
                statements.append(Define(f"out{i}", Name(f"view{i}").call(owner, numbers, *computed)))
                if has_new_edge:
                    index = Constant(len(self.outputs) + self._linked.index(i))
                    statements += [SetAttribute(out, "_node", Name("n")), SetAttribute(out, "_index", index)]
                    statements.append(SetAttribute(out, "_requires_grad", Constant(True)))
        return Body(tuple(statements), environment, runs.cached, self.counter)

    def _run(
        self,
        program: Any,
        memories: Sequence[Remains],
        arrays: list[Expr],
        runs: Runs,
        numbers: TupleOf,
        statements: list[Statement],
        environment: dict[str, Any],
    ) -> Sequence[Expr]:
        """Append the statements that run the program.  Returns the expressions of its results."""
        if isinstance(program, Program):
            resident = runs.resident(lambda tensor: tensor.get("_array"))
            environment.update({f"memory{k}": remains.memory for k, remains in enumerate(memories)})
            fragment = program.inline(
                [*arrays, *[Name(f"memory{k}") for k in range(len(memories))]],
                numbers.elements,
                None if resident is None else (Name("key"), resident),
                arrays[self._positions[self.drawn_from[0]]] if len(self.drawn_from) == 1 else None,
                tuple([(remains.mark, remains.draws) for remains in memories]),
            )
            if self._watcher is None:
                statements.append(PROMOTE)
            statements.append(fragment.run)
            environment.update(fragment.environment)
            return fragment.results
        environment["run"] = program.run
        results = Name("results")
        statements.append(Define("results", Name("run").call(runs.items(arrays, "arrays"), numbers)))
        statements.append(ReturnIf(results.get("__class__").is_same(Name("int")), Name("leave").at(results)))
        count = len(self.outputs) + bool(self._split.residuals) if self._is_split else len(self.graph.outputs)
        return [results.at(k) for k in range(count)]

    def _node(
        self,
        split: Partition,
        tensors: list[Expr],
        arrays: list[Expr],
        runs: Runs,
        numbers: TupleOf,
        results: Sequence[Expr],
        position: Mapping[int, int],
    ) -> list[Statement]:
        """Statements that create the tape's node, with its edges and the storages of what eager mode would have saved."""
        none, node = Constant(None), Name("n")
        edges = [edge(facts, t) if facts.requires_grad else none for facts, t in zip(self.inputs, tensors, strict=True)]
        edge_tuple = runs.whole(edges, "edges")
        # The node does not store a written input whose new position is at this node, which would be a cycle.  No rule needs its
        # former contents: if one has saved them, the pass raises.
        changed = {fact.index for fact in self._changed}
        stored = [none if i in changed else t for i, t in enumerate(tensors)]
        if self._leaves:
            leaves = [tuple_of(Name(f"out{self._computed[i]}"), 0) for i in self._leaves]
            edge_tuple = TupleOf((Starred(edge_tuple), *leaves))
        statements = new_object(
            "n",
            "CompiledNode",
            edges=edge_tuple,
            needs=Name("needs"),
            count=Constant(len(self._differentiable)),
            hooks=none,
            sequence=Name("next_sequence").call(),
            plan=Name("plan"),
            freed=Name("NOTHING_FREED"),
            tensors=runs.parts(stored, "tensors"),
            arrays=runs.parts(arrays, "arrays"),
            scalars=numbers,
            slab=results[-1] if split.residuals else TupleOf(()),
        )
        for i, differentiable in zip(self._computed, self._differentiable, strict=False):
            if differentiable:
                statements.append(SetAttribute(Name(f"out{i}"), "_node", node))
        visit = split.visit(self._differentiable)
        positions = sorted([position[value] for value in visit.saved_inputs | visit.saved_writes])
        self.kept = tuple([i for i in positions if i not in runs.single])
        statements.append(SetAttribute(node, "storages", runs.chosen(self.kept, "storages", _storage)))
        others = [i for i in positions if i not in self.kept]
        saved = [_storage(tensors[i]) for i in others]
        outputs = sorted([i for i in visit.saved_outputs if i < len(self.outputs)])  # the others are output views
        for i in outputs:
            out, storage = Name(f"out{self._computed[i]}"), Name(f"sout{self._computed[i]}")
            statements += [Define(storage.name, Name("Storage").call()), SetAttribute(out, "_storage", storage)]
            saved.append(storage)
        statements.append(SetAttribute(node, "saved", TupleOf(tuple(saved))))
        self.saved = (*others, *[~i for i in outputs])
        return statements

    def _order(self, freed: Sequence[tuple[str, Operand]], environment: dict[str, Any]) -> list[Statement]:
        """Statements that give the nodes `freed` the sequence numbers that they have in eager mode, between those of the
        operations for which `n` stands."""
        if not freed:
            return []
        environment["add"] = operator.add
        positions: dict[Operand, int] = {v: position for position, step in enumerate(self.pure.nodes) for v in step.outputs}
        statements: list[Statement] = []
        for k, (name, value) in enumerate(freed, 1):
            # after the operation that computes the value; each gets another number
            offset = sequence_offset(self.pure, positions.get(value, -1) + k / (len(freed) + 1))
            sequence = Name("add").call(Name("n").get("sequence"), Constant(offset))
            statements.append(SetAttribute(Name(name), "sequence", sequence))
        return statements

    def arranged(self, results: Sequence[Any]) -> list[Any]:
        """The arrays of `outputs` among the results of a run, with the strides of eager mode."""
        layouts = [laid_out(facts.shape, facts.strides, facts.dtype) for facts in self.outputs]
        return [r if layout is None else layout(r) for r, layout in zip(results, layouts, strict=False)]

    def whole_backward(self) -> tuple[Graph, tuple[int, ...]]:
        """The backward graph from all outputs to all inputs, before optimisation; and the values that its first inputs stand for,
        which cotangents follow."""
        split = self.partition
        assert split is not None
        mask = self._mask(None)
        residuals, direct = split.reads(split.differentiable, mask)
        return split.backward(split.differentiable, mask), (*residuals, *direct)

    # -- the backward pass (DifferentiablePlan)
    def visit(self, present: Mask, wanted: Mask | None) -> Visit:
        cached = self._visits.get((present, wanted))
        if cached is None:
            visit = self._split.visit(present, None if wanted is None else self._mask(wanted))
            saved = [self._positions[v] for v in visit.saved_inputs | visit.saved_writes] + [~i for i in visit.saved_outputs]
            number = {v: i for i, v in enumerate(self._edges)}
            arrival = tuple([number[v] for v in visit.arrival if v in number])
            cached = self._visits[present, wanted] = Visit(visit.savers, frozenset(saved), bool(visit.stale), arrival)
        return cached

    def leading(self, wanted: Mask) -> frozenset[int]:
        cached = self._leading.get(wanted)
        if cached is None:
            cached = self._leading[wanted] = self._split.leading(self._mask(wanted))
        return cached

    def computed_from(self, i: int) -> frozenset[int]:
        return self._split.computed_from(i)

    def made_at(self, i: int) -> int:
        return self._split.made_at(i)

    def can_continue(self, freed: frozenset[int]) -> bool:
        return self._split.can_continue(freed)

    def tape(self, node: CompiledNode) -> tuple[tuple[Any, int] | None, ...]:
        if self._tape is None:
            assert self.partition is not None
            self._tape = EagerTape(self.partition, self._shared_residuals, self._edges, self._positions)
        return self._tape.make(node)

    def _mask(self, wanted: Mask | None) -> Mask:
        """The mask over inputs and leaves of the partition for a mask over the edges of the node; None: all edges."""
        values = {v for v, want in zip(self._edges, self._all if wanted is None else wanted, strict=True) if want}
        return tuple([v in values for v in (*self._of_any_sizes.pure.inputs, *self._split.leaves)])

    def run_backward(
        self,
        present: Mask,
        wanted: Mask | None,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        cotangents: list[Any],
        slab: Any,
    ) -> Sequence[Any]:
        program, picks = self.backward_program(present, wanted)
        given = [*[arrays[i] for i in picks], *cotangents]
        if self._split.reads(present, self._mask(wanted))[0]:
            if self._live:
                self._refresh(arrays, slab)
            given.append(slab)
        numbers = tuple([scalars[i] for i in self._backward_scalars])
        if self._watcher is not None:
            self._watcher.running(_backward_role(present), program, given, numbers)
        results = program.run(given, numbers)
        if isinstance(results, int):
            mask = self._mask(wanted)
            oracle, _ = self._with_operands(self.backward_graph(present, mask), present, mask, "interpret")
            oracle.run(given, numbers)  # raises what has made the program leave
            raise RuntimeError(
                f"backward() of the compiled program {self.name}: its check {results} failed. This is a defect of tracejit; "
                "please report it with fn.graph(), and use the function without compile meanwhile"
            )
        self.counter[3] += program.machine_calls
        chosen = self._all if wanted is None else wanted
        gradients = iter(self._existing(results, sum(chosen)))
        return [next(gradients) if want else None for want in chosen]

    @staticmethod
    def _existing(results: Sequence[Any], count: int) -> Sequence[Any]:
        """The first `count` results, gradients, without those that there are not, as the others say (`Partition.backward`)."""
        if len(results) == count:
            return results
        return [
            x if exists is None or exists.item() else None for x, exists in zip(results[:count], results[count:], strict=True)
        ]

    def call(self, node: CompiledNode, key: int | Mask) -> Call:
        if self._live or node.freed:
            return backward_call.never  # `node` no longer has what later nodes of this plan have
        to_leaves = isinstance(key, int)
        present = tuple([i == key for i in range(len(self._differentiable))]) if isinstance(key, int) else key
        visit = self.visit(present, None)
        passes_on = to_leaves and any(facts.requires_grad and not facts.is_leaf for facts in self.inputs)
        program, picks = (None, ()) if passes_on or visit.overwritten else self.backward_program(present, None)
        if program is not None and program is not self._backward.get((present, self._mask(None)), (None,))[0]:
            return backward_call.never  # until it is compiled
        self.calls[key] = backward_call.never
        if isinstance(program, Program) and self._watcher is None and not self._split.has_conditions(present, self._mask(None)):
            is_last = bool(visit.savers) and not self.can_continue(visit.savers)
            work = backward_call.Pass(
                program,
                picks,
                sum(present),
                bool(self._split.reads(present, self._mask(None))[0]),
                self._backward_scalars,
                self._all,
                self.freed_by_all_outputs if is_last else visit.savers,
                is_last,
                self.counter,
            )
            self.calls[key] = backward_call.make(
                work, node, to_leaves, partial(self.calls.__setitem__, key), self.interpreted_for.setdefault, self._patience
            )
        return self.calls[key]

    def backward_program(self, present: Mask, wanted: Mask | None) -> tuple[Any, tuple[int, ...]]:
        """(backward program, positions of the inputs that it reads).  While the program is compiled in the background, the graph
        is interpreted."""
        return self.build_backward(present, self._mask(wanted))

    def build_backward(self, present: Mask, mask: Mask) -> tuple[Any, tuple[int, ...]]:
        """`backward_program` for a mask over inputs and leaves of the partition."""
        built = self._backward.get((present, mask))
        if built is not None:
            return built
        pending = self._pending_backward.get((present, mask))
        if pending is None or pending.work.is_lost:
            work = start_work(lambda: self._built_backward(present, mask), self._patience())
            if work.behind:
                backward = uninterrupted_result(lambda: self.backward_graph(present, mask))  # the interpreter needs the graph now
                interpreted = self._with_operands(backward, present, mask, "interpret")
                self._pending_backward[present, mask] = pending = _PendingBackward(work, interpreted)
        else:
            work = pending.work
        if pending is not None and not work.finished:
            return pending.interpreted
        try:
            built = self._backward[present, mask] = work.outcome().result()
        finally:
            self._pending_backward.pop((present, mask), None)
        return built

    def warm_up(self, done: Callable[[], None]) -> None:
        """Compile the backward programs for all differentiable outputs together and for each alone; wait for those in the
        background.  done: called after each program."""
        count = len(self._differentiable)
        masks = {self._differentiable, *[tuple([i == k for i in range(count)]) for k in range(count) if self._differentiable[k]]}
        for present in masks if self._is_split else ():
            self.backward_program(present, None)
            done()
        for (present, mask), pending in list(self._pending_backward.items()):
            pending.work.wait_until(math.inf)
            self.build_backward(present, mask)
            done()

    def backward_graph(self, present: Mask, mask: Mask) -> tuple[Graph, tuple[int, ...]]:
        """The graph of a backward program, and the positions of its inputs that are in the slab."""
        split = self.partition
        assert split is not None
        graph, residuals = split.backward(present, mask), split.reads(present, mask)[0]
        if residuals:
            graph, residuals = self.in_slab.read_by(graph)
        observe = None if self._watcher is None else partial(self._watcher.after_pass, _backward_role(present))
        return optimise(graph, observe=observe, has_loops=self.in_slab.has_stacks), residuals

    def _built_backward(self, present: Mask, mask: Mask) -> tuple[Any, tuple[int, ...]]:
        program = None if self._maker is None else self._maker.backward(self, present, mask)
        if program is not None:
            return program, self._direct(present, mask)
        program, picks = self._with_operands(self.backward_graph(present, mask), present, mask, self.backend)
        if self._watcher is not None:
            self._watcher.built(_backward_role(present), program)
        return program, picks

    def _with_operands(self, backward: _Backward, present: Mask, mask: Mask, backend: str) -> tuple[Any, tuple[int, ...]]:
        graph, residuals = backward
        program = build(graph, self._layouts, slab_inputs=residuals, backend=backend, raises=True, member=self._member)
        return program, self._direct(present, mask)

    def _direct(self, present: Mask, mask: Mask) -> tuple[int, ...]:
        """The positions of the call's inputs that a backward program reads."""
        return tuple([self._positions[v] for v in self._split.reads(present, mask)[1] if v in self._positions])

    @property
    def awaits_backward(self) -> bool:
        """Whether backward programs are being compiled in the background."""
        return any(not pending.work.finished for pending in list(self._pending_backward.values()))

    def backward_errors(self) -> list[BaseException]:
        """The errors of backward programs that failed to compile in the background; the next pass that needs one raises its
        error."""
        finished = [pending.work for pending in list(self._pending_backward.values()) if pending.work.finished]
        return [error for work in finished if (error := work.outcome().error) is not None]

    def backward_programs(self) -> list[tuple[Mask, tuple[Any, tuple[int, ...]]]]:
        """(mask of cotangents, (program, positions of direct inputs)) of the backward programs compiled so far."""
        return [(present, built) for (present, _), built in self._backward.items()]

    def backward_graphs(self) -> list[tuple[Mask, Graph, Any]]:
        """(mask of cotangents, graph, program) of the backward programs compiled so far, for reports: graphs are made again."""
        return [(present, self.backward_graph(present, mask)[0], built[0]) for (present, mask), built in self._backward.items()]


def _backward_role(present: Mask) -> str:
    return f"backward for the cotangents {[i for i, is_present in enumerate(present) if is_present]}"


class _ExitCodes(dict[int, Any]):
    """code of a program -> what its entry returns: MISS if an array does not fit the program, INTERRUPTED, or the Exit of this
    number.  Counts them."""

    def __init__(self, counter: list[int], taken: dict[int, int]) -> None:
        super().__init__()
        self._counter = counter
        self._taken = taken
        self.exits: dict[int, Exit] = {}

    def __missing__(self, code: int) -> Any:
        if code == LEFT_FOR_SIGNAL:
            return INTERRUPTED
        if code <= 0:
            self._counter[2] += 1
            return MISS
        self._counter[1] += 1
        self._taken[code] = self._taken.get(code, 0) + 1
        existing = self.exits.get(code)
        return existing or self.exits.setdefault(code, Exit(code, self._counter))


def _is_differentiable(facts: TensorOutput) -> bool:
    """Whether gradients flow through an output into the program."""
    return facts.requires_grad and not facts.is_leaf and facts.consumed is None


def _storage(tensor: Expr) -> Expr:
    """The expression of a tensor's storage, which has its version counter; created if it has none."""
    return tensor.get("_storage").otherwise(Name("fresh").call(tensor))


def _drawn_from(graph: Graph) -> set[Operand]:
    """The values of generator states that draws read, also draws in loops."""
    states: set[Operand] = set()
    for node in graph.nodes:
        if node.op.kind is Kind.RANDOM:
            states.add(node.operands[0])
        elif node.op.kind is Kind.LOOP:
            body = node.attrs["body"].graph
            inside = _drawn_from(body)
            states.update(x for x, v in zip(node.operands, body.inputs, strict=True) if v in inside)
    return states


def _fresh(tensor: Tensor) -> Storage:
    storage = tensor._storage = Storage()
    return storage


def _member(family: Family, recording: Recording) -> Member:
    """The member of the function's family for a recording, with the sizes of its inputs that the user has marked as static."""
    inputs = enumerate(recording.tensor_inputs)
    static = [(i, d, facts.shape[d]) for i, facts in inputs for d, is_dynamic in facts.marks.items() if not is_dynamic]
    return Member(family, tuple(sorted(static)))
