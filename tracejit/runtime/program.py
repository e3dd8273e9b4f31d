"""Programs: a lowered graph that can be called.

`build(graph, layouts, ...)` makes a program for one of four backends, which share everything above the rendering of nests:

- "llvm": machine code (llvm/driver.py), a `Program`; the one that runs.  Where objects do not lie in memory as it expects, "numba" does.
- "numba": the same steps in Python, each nest compiled by Numba (runtime/rendered.py).
- "reference": the same, each nest rendered as plain Python and run without a compiler.
- "interpret": the oracle, the graph itself node by node (runtime/interpret.py).

`Program.run(arrays, scalars)` returns the tuple of outputs, 0 where some array is not what the program was made for, or the number
k >= 1 of the exit that was taken (or INTERRUPTED of llvm/driver.py).  It is a function of replay (replay/ir.py), rendered as Python: it
makes the fresh outputs, and calls machine code in a frame that has the address of the tuple of arrays and the numbers.  `arrays`
follow the graph's tensor inputs, then the slab; `scalars` its number inputs.  All arrays are checked before anything is computed, those
that the program does not read as well: that the call is the recorded one follows from them.  An output that is also an input, or listed
twice, is one array.  `Program.inline` makes a run part of an entry, so that a call is one function.

Invariants: user storage is written by no step before the last exit; arrays are bound by the tuple for the whole call; constants and
machine code live as long as the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tracejit.core import kernels
from tracejit.core.aval import Aval
from tracejit.core.interrupts import is_foreign
from tracejit.core.symbolic import SYMBOLIC, has_symbols
from tracejit.cpython.arrays import unknown_layout
from tracejit.cpython.eager_steps import make_choice, make_fused_step, make_step, make_view
from tracejit.cpython.frame_check import NO_KEY
from tracejit.ir.graph import Graph
from tracejit.llvm.arena import Arena
from tracejit.llvm.driver import MISMATCH, CompiledProgram, compile_program
from tracejit.llvm.eager_kernels import make_kernel
from tracejit.llvm.family import Member, SizeVariant
from tracejit.lowering.live import Inherited
from tracejit.lowering.lower import NeedsHost, lower
from tracejit.lowering.lowered import Lowered, Output, Traffic
from tracejit.passes.literals import as_inputs, literals, skeleton, with_sizes_given
from tracejit.replay import ir, python
from tracejit.runtime.frame import Frame
from tracejit.runtime.host import HostProgram
from tracejit.runtime.interpret import InterpretedProgram
from tracejit.runtime.rendered import RenderedProgram
from tracejit.runtime.source import LoweredProgram

__all__ = ["BACKENDS", "Fragment", "Program", "Remains", "build"]

kernels.install(make_kernel, kernels.StepMakers(make_step, make_fused_step, make_view, make_choice))
BACKENDS = ("llvm", "numba", "reference", "interpret")
Runner = Callable[[Any, Any], "tuple[Any, ...] | int"]


class Program(LoweredProgram):
    """Machine code of a graph.  `run(arrays, scalars)` runs it; `machine_calls` is how many calls into machine code one run makes;
    `inline` makes a run part of another function of replay."""

    __slots__ = ("_arena", "_code", "_compiled", "_of_sizes", "_run", "machine_calls", "seconds")

    def __init__(
        self,
        lowered: Lowered,
        compiled: CompiledProgram,
        arena: Arena,
        of_sizes: Callable[[], Lowered] | None = None,
    ) -> None:
        """of_sizes: tells all of `lowered`, where that is for calls alone (`Lowered.for_calls`)."""
        self._lowered, self._of_sizes = lowered, of_sizes
        self.machine_calls = 1
        self._compiled, self._arena = compiled, arena
        self.seconds = self._compiled.seconds
        constants = tuple((slot, _constant(array)) for slot, array in lowered.constants)
        new_frame = partial(Frame, self._compiled.template, arena, lowered.arena_slot, lowered.arena_bytes, constants)
        self._code = _Code(self._compiled.run, new_frame, lowered)
        self._run: Runner | None = None

    @classmethod
    def made(
        cls,
        lowered: Lowered,
        resident: Sequence[int] = (),
        variant: SizeVariant | None = None,
        arena: Arena | None = None,
    ) -> Program:
        """The program of a lowered graph, compiled."""
        lowered = replace(lowered, spec=replace(lowered.spec, resident=tuple(resident)))
        return cls(lowered, compile_program(lowered.spec, variant=variant), arena or Arena())

    def substituted(self, of: Callable[[Any], Any]) -> Program:
        """The program for other sizes, of one with symbolic sizes (core/symbolic.py): the same machine code with other data."""
        lowered = self.lowered
        return Program(lowered.for_calls(of), of(self._compiled), self._arena, lambda: of(lowered))

    @property
    def lowered(self) -> Lowered:
        of_sizes = self._of_sizes
        if of_sizes is not None:
            self._lowered, self._of_sizes = of_sizes(), None
        return self._lowered

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Where the outputs come from."""
        return self._lowered.outputs

    @property
    def traffic(self) -> Traffic:
        """What a call reads and writes."""
        return self._lowered.traffic

    @property
    def run(self) -> Runner:
        """`run(arrays, scalars)`: a function of its own, made when somebody asks for it."""
        made = self._run
        if made is None:
            made = self._run = self._run_function()
        return made

    def inline(
        self,
        arrays: Sequence[ir.Expr],
        numbers: Sequence[ir.Expr],
        held: tuple[ir.Expr, ir.Expr] | None = None,
        state: ir.Expr | None = None,
        marks: tuple[tuple[int, bool], ...] = (),
    ) -> Fragment:
        """One run on these operands, inside a larger function.  held: the key and the tuple of the resident arrays
        (`ProgramSpec.resident`); None where nothing is known about them.  state, marks: see `ir.RunProgram`."""
        lowered, literals = self._lowered, dict[str, Any]()
        literals["p_no_key"] = NO_KEY
        key, together = held or (ir.Name("p_no_key"), None)
        bound = lowered.spec.in_call(arrays, key, lambda given: together or ir.TupleOf(tuple(given)))
        fresh = [(f"p_o{k}", aval.shape, aval.dtype.numpy) for k, aval in enumerate(lowered.fresh)]
        if lowered.slab_size is not None:
            fresh.append(("p_slab", (lowered.slab_size,), np.dtype(np.uint8)))
        bound += [ir.Name(name) for name, _, _ in fresh]
        given = tuple([(slot, kind, number) for (slot, kind), number in zip(lowered.scalars, numbers, strict=True)])
        results: list[ir.Expr] = []
        for k, output in enumerate(lowered.outputs):
            if output.source == "fresh":
                results.append(ir.Name(fresh[output.number - lowered.arrays][0]))
            elif output.source == "literal":
                literals[f"p_literal{k}"] = output.value
                results.append(ir.Name(f"p_literal{k}"))
            else:
                results.append((arrays if output.source == "input" else numbers)[output.number])
        if lowered.slab_size is not None:
            results.append(ir.Name("p_slab"))
        self._code.draws = state is not None
        run = ir.RunProgram(self._code, tuple(fresh), tuple(bound), given, ir.Name("leave"), MISMATCH, state, marks)
        return Fragment(run, literals, tuple(results))

    def _run_function(self) -> Runner:
        arrays, numbers = [f"a{i}" for i in range(self._lowered.arrays)], [f"s{i}" for i in range(len(self._lowered.scalars))]
        fragment = self.inline([ir.Name(a) for a in arrays], [ir.Name(n) for n in numbers])
        unpacked = [
            ir.Unpack(tuple(names), ir.Name(given)) for names, given in ((arrays, "arrays"), (numbers, "scalars")) if names
        ]
        body = (*unpacked, fragment.run, ir.Return(ir.TupleOf(fragment.results)))
        function = ir.Function(("arrays", "scalars"), (), body, ir.Constant(0), catches=False)
        return python.load(function, "run", {**fragment.environment, "leave": _Codes()}, "program")

    def remains(self) -> Remains | None:
        """What machine code that runs this program (`inline`) leaves in its memory, which nobody else has from now on; None where there is
        none.  Not while it runs."""
        return self._code.remains(self._lowered.arena_bytes)

    def describe(self) -> str:
        data = self._compiled.data
        shared = f"machine code of other sizes: {data} sizes, strides and offsets are its data\n" if data else ""
        return shared + super().describe()

    def llvm(self) -> str:
        """The text that LLVM compiled."""
        return self._compiled.text


def build(
    graph: Graph,
    layouts: Mapping[int, tuple[int, ...]],
    slab_inputs: Sequence[int] = (),
    slab_outputs: Sequence[int] = (),
    backend: str = "llvm",
    resident: Collection[int] = (),
    raises: bool = False,
    member: Member | None = None,
    codes: Mapping[int, int] | None = None,
    inherited: Sequence[Inherited] = (),
) -> Program | RenderedProgram | HostProgram | InterpretedProgram:
    """A runnable program for a functional graph.

    layouts: strides in elements of the tensor inputs.  slab_inputs, slab_outputs: see lowering/lower.py.  resident: tensor inputs whose
    arrays a caller may pass under a key; programs that are no single machine call have none.  raises: what a host step raises is raised
    and no exit, as in a backward pass, which nobody runs again eagerly.  member: of the family of the function's other programs.
    codes, inherited: see lowering/lower.py; the memories come last among the arrays.  Only machine code can have any: ValueError otherwise.

    Raises ValueError for an unknown backend, NeedsHost for a graph with symbolic sizes that needs host steps."""
    if backend not in BACKENDS:
        raise ValueError(f"build(): unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    if inherited and backend != "llvm":
        raise ValueError(f"build(): a program of the backend {backend} inherits no memory; only machine code does")
    if backend == "interpret":
        return InterpretedProgram(graph, layouts, tuple(slab_inputs), tuple(slab_outputs), raises)
    why = unknown_layout() if backend == "llvm" else ""
    if why and inherited:
        raise ValueError(f"build(): only machine code inherits memory, and there is none: {why}")
    if why:
        backend = "numba"

    like, segments = skeleton(graph), itertools.count()
    arena = None if member is None else member.family.arena

    def program_of(
        lowered: Lowered, resident: Sequence[int] = (), variant: SizeVariant | None = None
    ) -> Program | RenderedProgram:
        return Program.made(lowered, resident, variant, arena) if backend == "llvm" else RenderedProgram(lowered, backend, why)

    def segment(lowered: Lowered) -> Program | RenderedProgram:
        return program_of(lowered, variant=None if member is None else member.size_variant((like, next(segments))))

    variant = None if member is None or inherited else member.size_variant(like)
    general, numbers = graph, dict[int, int | float]()
    if variant is not None:
        graph_given = with_sizes_given(graph)
        found = literals(graph_given)
        symbolic = [position for position, number in found.items() if type(number) in SYMBOLIC]
        varying = () if symbolic else variant.literals(tuple(found.values()))
        general, numbers = as_inputs(graph_given, symbolic or [position for k, position in enumerate(found) if k in varying])
    try:
        lowered = lower(general, layouts, slab_inputs, slab_outputs, codes, numbers=numbers, inherited=inherited)
    except NeedsHost:
        if inherited or any(isinstance(aval, Aval) and has_symbols(aval.shape) for aval in graph.avals.values()):
            raise  # who asks for symbolic sizes can do without
        return HostProgram(graph, layouts, tuple(slab_inputs), tuple(slab_outputs), raises, segment)
    elsewhere = {*slab_inputs, *[v for memory in inherited for v in memory.locations]}
    tensors = [v for v in graph.inputs if isinstance(graph.avals[v], Aval) and v not in elsewhere]
    return program_of(lowered, [i for i, v in enumerate(tensors) if v in resident], variant)


def _constant(array: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).reshape(np.shape(array))


@dataclass(frozen=True, slots=True)
class Fragment:
    """A run inside a larger function: it defines what `results` refer to, or leaves by `leave[code]` (of the namespace: a mapping from
    MISMATCH and exit numbers to what to return).  `environment`: what else the namespace must have.  Names begin with p_."""

    run: ir.RunProgram
    environment: dict[str, Any]
    results: tuple[ir.Expr, ...]


@dataclass(frozen=True, slots=True)
class Remains:
    """What a program has left in its frame: `memory`, its arena as bytes, and the address of the frame's mark, which tells whose it is.
    draws: whether the mark has a generator's state.  owner: of both."""

    memory: np.ndarray[Any, Any]
    mark: int
    draws: bool
    owner: Frame


class _Code:
    """The code of a program (`ir.Runnable`): each caller has a frame of its own."""

    __slots__ = ("_call", "_frame", "_free", "_new_frame", "_numbers", "_remains", "draws")

    def __init__(self, call: Callable[..., int], new_frame: Callable[[], Frame], lowered: Lowered) -> None:
        self._call = call
        self._new_frame = new_frame
        self._free: list[Frame] = []
        self._frame: Frame | None = None  # of machine code
        self._remains: Remains | None = None
        self._numbers = lowered.scalars
        self.draws = False  # whether callers tell the generator's state

    def run(self, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> int:
        try:
            frame = self._free.pop()
        except IndexError as error:
            if is_foreign(error):
                raise
            frame = self._new_frame()
        try:
            for (slot, kind), number in zip(self._numbers, numbers, strict=True):
                (frame.floats if kind is float else frame.integers)[slot] = number
        except ValueError as error:  # an integer that has no 64 bits
            if is_foreign(error):
                raise
            code = MISMATCH
        else:
            code = self._call(frame.address, id(arrays))
        self._free.append(frame)
        return code

    def machine(self) -> ir.Machine:
        frame = self._frame = self._new_frame()
        self._remains = None
        return ir.Machine(self._call(), frame.address, frame.mark, (frame, self._call))

    def remains(self, nbytes: int) -> Remains | None:
        """The memory of the frame that machine code has, in which nobody else is from now on."""
        frame = self._frame
        if frame is not None and self._remains is None:
            frame.move(Arena(), nbytes)
            self._remains = Remains(frame.temporary(nbytes), frame.mark, self.draws, frame)
        return self._remains


class _Codes(dict[int, int]):
    """What `run` returns for a code of the machine program: 0 for a mismatch, else the code itself."""

    def __missing__(self, code: int) -> int:
        return 0 if code == MISMATCH else code
