"""Programs: a lowered graph that can be called.

`build(graph, layouts, ...)` makes a `Program` for one of three backends, which share everything above the rendering of nests:

- "llvm": machine code (codegen/driver.py); the one that runs.
- "reference": the same steps, each nest rendered as plain Python and run without a compiler (runtime/reference.py).
- "interpret": the oracle, the graph itself node by node (runtime/interpret.py).

`Program.run(arrays, scalars)` returns the tuple of outputs, 0 where some array is not what the program was made for, or the number
k >= 1 of the exit that was taken.  For machine code it is a function generated for the program: straight-line Python that takes a frame,
makes the fresh outputs, writes the address of the tuple of arrays and the numbers into the frame, and calls.

Invariants: user storage is written by no step before the last exit; arrays are bound by the tuple for the whole call; constants and
machine code live as long as the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracejit.codegen.driver import MISMATCH, CompiledProgram, compile_program
from tracejit.codegen.frame_check import NO_KEY
from tracejit.codegen.lower import lower
from tracejit.codegen.lowered import Lowered
from tracejit.codegen.steps import GemmCall, NestCall, NestRun
from tracejit.codegen.straight_line import SENT, Run
from tracejit.codegen.values import Values, is_host
from tracejit.core.aval import Aval
from tracejit.ir.graph import Graph
from tracejit.runtime.frame import Frame
from tracejit.runtime.host import HostProgram
from tracejit.runtime.interpret import InterpretedProgram
from tracejit.runtime.reference import ReferenceRunner

__all__ = ["BACKENDS", "Fragment", "Program", "build"]

BACKENDS = ("llvm", "reference", "interpret")
Runner = Callable[[Any, Any], "tuple[Any, ...] | int"]


class Program:
    """A compiled graph.  `run(arrays, scalars)` runs it; `machine_calls` is how many calls into machine code one run makes; `inline` gives
    the statements of a run to a caller that generates code itself."""

    __slots__ = ("_constants", "_free", "_owner", "_runner", "_template", "lowered", "machine_calls", "run", "seconds")

    def __init__(self, lowered: Lowered, backend: str, resident: Sequence[int] = ()) -> None:
        lowered = replace(lowered, spec=replace(lowered.spec, resident=tuple(resident)))
        self.lowered = lowered
        self.machine_calls = 1
        self._constants = tuple((slot, _constant(array)) for slot, array in lowered.constants)
        self._free: list[Frame] = []
        self._owner: Any
        self._runner: Callable[..., int]
        if backend == "reference":
            reference = ReferenceRunner(lowered, self._constants)
            self.seconds = 0.0
            self._owner, self._template, self._runner = reference, reference.template, reference.call
        else:
            compiled = compile_program(lowered.spec)
            self.seconds = compiled.seconds
            self._owner, self._template, self._runner = compiled, compiled.template, compiled.run
        operands = [f"a{i}" for i in range(lowered.arrays)], [f"s{i}" for i in range(len(lowered.scalars))]
        self.run: Runner = _run_function(lowered, self.inline(*operands))

    def inline(self, arrays: Sequence[str], scalars: Sequence[str], held: tuple[str, str] | None = None) -> Fragment:
        """The statements of one run on operands given as expressions.  held: expressions of the key and of the tuple of the resident arrays
        (`ProgramSpec.resident`); None where nothing is known about them."""
        compiled = isinstance(self._owner, CompiledProgram)
        return _fragment(self.lowered, self._template, self._runner, self._constants, self._free, arrays, scalars, held, compiled)

    def source(self) -> str:
        """The nests as plain Python."""
        return ReferenceRunner(self.lowered, ()).source()

    def llvm(self) -> str:
        """The text that LLVM compiled; empty for the reference backend."""
        return self._owner.text if isinstance(self._owner, CompiledProgram) else ""

    def describe(self) -> str:
        """The program against the least memory traffic it needs, then one line per step: what it computes, bytes read and written."""
        nests = sum(isinstance(s, NestCall | NestRun) for s in self.lowered.spec.steps)
        products = sum(isinstance(s, GemmCall) for s in self.lowered.spec.steps)
        head = f"{nests} nests, {products} products, arena of {self.lowered.arena_bytes} bytes"
        t = self.lowered.traffic
        moved = (
            f"reads {t.read} bytes, writes {t.written}: {t.ratio:.2f} times the least ({t.least} bytes, inputs and outputs once)"
        )
        return "\n".join((head, moved, *self.lowered.text))


def build(
    graph: Graph,
    layouts: Mapping[int, tuple[int, ...]],
    slab_inputs: Sequence[int] = (),
    slab_outputs: Sequence[int] = (),
    backend: str = "llvm",
    resident: Collection[int] = (),
    raises: bool = False,
) -> Program | HostProgram | InterpretedProgram:
    """A runnable program for a functional graph.

    layouts: strides in elements of the tensor inputs.  slab_inputs, slab_outputs: see codegen/lower.py.  resident: tensor inputs whose
    arrays a caller may pass under a key; programs that are no single machine call have none.  raises: what a host step raises is raised
    and no exit, as in a backward pass, which nobody runs again eagerly.  Raises ValueError for an unknown backend."""
    if backend not in BACKENDS:
        raise ValueError(f"build(): unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    if backend == "interpret":
        return InterpretedProgram(graph, layouts, tuple(slab_inputs), tuple(slab_outputs), raises)
    values = Values(graph, {v: s for v, s in layouts.items() if v not in slab_inputs})
    if any(is_host(values, node) for node in values.nodes):
        return HostProgram(
            graph, layouts, tuple(slab_inputs), tuple(slab_outputs), raises, lambda lowered: Program(lowered, backend)
        )
    tensors = [v for v in graph.inputs if isinstance(graph.avals[v], Aval) and v not in slab_inputs]
    return Program(lower(graph, layouts, slab_inputs, slab_outputs), backend, [i for i, v in enumerate(tensors) if v in resident])


def _constant(array: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).reshape(np.shape(array))


@dataclass(frozen=True, slots=True)
class Fragment:
    """Straight-line statements that run a program inside a larger generated function: they define `results` (names), or leave by
    `return leave[code]` (a mapping from MISMATCH and exit numbers to what to return).  `environment` are the globals they need.
    `run` makes what stands for them in machine code, with a frame of its own; None where the program is none."""

    lines: tuple[str, ...]
    environment: dict[str, Any]
    results: tuple[str, ...]
    run: Callable[[], Run] | None


def _fragment(
    lowered: Lowered,
    template: np.ndarray[Any, Any],
    call: Callable[..., int],
    constants: Sequence[tuple[int, Any]],
    free: list[Frame],
    arrays: Sequence[str],
    scalars: Sequence[str],
    held: tuple[str, str] | None,
    compiled: bool,
) -> Fragment:
    """The statements of one run.  `arrays` and `scalars` are expressions of the operands; names that begin with p_ are used up."""
    environment: dict[str, Any] = {"p_call": call, "p_empty": np.empty, "p_pop": free.pop, "p_push": free.append}

    def new_frame() -> Frame:
        return Frame(template, lowered.arena_slot, lowered.arena_bytes, constants)

    environment["p_new"] = new_frame
    lines = ["try:", "    p_frame = p_pop()", "except IndexError as error:", f"    {SENT}: raise", "    p_frame = p_new()"]
    environment["p_no_key"] = NO_KEY
    key, together = held or ("p_no_key", None)
    bound = lowered.spec.in_call(arrays, key, lambda held: together or f"({''.join(f'{array}, ' for array in held)})")
    names = {}
    fresh: list[tuple[str, tuple[int, ...], np.dtype[Any]]] = []
    for k, aval in enumerate(lowered.fresh):
        fresh.append((f"p_o{k}", aval.shape, aval.dtype.numpy))
        environment[f"p_shape{k}"] = aval.shape
        environment[f"p_dtype{k}"] = aval.dtype.numpy
        lines.append(f"p_o{k} = p_empty(p_shape{k}, p_dtype{k})")
        names[lowered.arrays + k] = f"p_o{k}"
        bound.append(f"p_o{k}")
    if lowered.slab_size is not None:
        environment["p_slab_size"] = lowered.slab_size
        environment["p_uint8"] = np.dtype(np.uint8)
        fresh.append(("p_slab", (lowered.slab_size,), np.dtype(np.uint8)))
        lines.append("p_slab = p_empty(p_slab_size, p_uint8)")
        bound.append("p_slab")
    lines.append(f"p_bound = ({''.join(b + ', ' for b in bound)})")
    if lowered.scalars:
        lines += ["p_integers = p_frame.integers", "p_floats = p_frame.floats", "try:"]
        for k, (slot, python_type) in enumerate(lowered.scalars):
            lines.append(f"    {'p_floats' if python_type is float else 'p_integers'}[{slot}] = {scalars[k]}")
        lines += ["except ValueError as error:  # an integer that has no 64 bits", f"    {SENT}: raise"]
        lines += ["    p_push(p_frame)", f"    return leave[{MISMATCH}]"]
    lines += ["p_code = p_call(p_frame.address, id(p_bound))", "p_push(p_frame)", "if p_code:", "    return leave[p_code]"]
    results = []
    for k, output in enumerate(lowered.outputs):
        if output.source == "fresh":
            results.append(names[output.number])
        elif output.source == "literal":
            environment[f"p_literal{k}"] = output.value
            results.append(f"p_literal{k}")
        else:
            results.append((arrays if output.source == "input" else scalars)[output.number])
    if lowered.slab_size is not None:
        results.append("p_slab")
    numbers = tuple([(slot, python_type, scalars[k]) for k, (slot, python_type) in enumerate(lowered.scalars)])

    def run() -> Run:
        frame = new_frame()
        return Run(tuple(fresh), tuple(bound), numbers, "leave", MISMATCH, call(), frame.address, (frame, call))

    return Fragment(tuple(lines), environment, tuple(results), run if compiled else None)


class _Codes(dict[int, int]):
    """What `run` returns for a code of the machine program: 0 for a mismatch, else the exit's number."""

    def __missing__(self, code: int) -> int:
        return 0 if code == MISMATCH else code


def _run_function(lowered: Lowered, fragment: Fragment) -> Runner:
    """`run(arrays, scalars)` around a fragment whose operands are a0, a1 ... and s0, s1 ..."""
    lines = ["def run(arrays, scalars):"]
    if lowered.arrays:
        lines.append(f"    {''.join(f'a{i}, ' for i in range(lowered.arrays))}= arrays")
    if lowered.scalars:
        lines.append(f"    {''.join(f's{i}, ' for i in range(len(lowered.scalars)))}= scalars")
    lines += [f"    {line}" for line in fragment.lines]
    lines.append(f"    return ({''.join(r + ', ' for r in fragment.results)})")
    environment = {**fragment.environment, "leave": _Codes()}
    exec(compile("\n".join(lines), "<tracejit program>", "exec"), environment)
    run: Runner = environment["run"]
    return run
