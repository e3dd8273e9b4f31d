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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.codegen.driver import MISMATCH, compile_program
from tracejit.codegen.lower import Lowered, lower
from tracejit.codegen.steps import GemmCall, NestCall
from tracejit.codegen.values import Values, is_host
from tracejit.ir.graph import Graph
from tracejit.runtime.frame import Frame
from tracejit.runtime.host import HostProgram
from tracejit.runtime.interpret import InterpretedProgram
from tracejit.runtime.reference import ReferenceRunner

__all__ = ["BACKENDS", "Program", "build"]

BACKENDS = ("llvm", "reference", "interpret")
Runner = Callable[[Any, Any], "tuple[Any, ...] | int"]


class Program:
    """A compiled graph.  `run(arrays, scalars)` runs it; `machine_calls` is how many calls into machine code one run makes."""

    __slots__ = ("_keep", "lowered", "machine_calls", "run", "seconds")

    def __init__(self, lowered: Lowered, backend: str) -> None:
        self.lowered = lowered
        self.machine_calls = 1
        constants = tuple((slot, _constant(array)) for slot, array in lowered.constants)
        if backend == "reference":
            runner = ReferenceRunner(lowered, constants)
            self.seconds = 0.0
            self._keep: Any = constants, runner
            self.run: Runner = _generate(lowered, runner.template, runner.call, constants)
        else:
            compiled = compile_program(lowered.spec)
            self.seconds = compiled.seconds
            self._keep = constants, compiled
            self.run = _generate(lowered, compiled.template, compiled.run, constants)

    def source(self) -> str:
        """The nests as plain Python."""
        return ReferenceRunner(self.lowered, ()).source()

    def describe(self) -> str:
        """One line per step: what it computes, bytes read and written."""
        nests = sum(isinstance(s, NestCall) for s in self.lowered.spec.steps)
        products = sum(isinstance(s, GemmCall) for s in self.lowered.spec.steps)
        head = f"{nests} nests, {products} products, arena of {self.lowered.arena_bytes} bytes"
        return "\n".join((head, *self.lowered.text))


def build(
    graph: Graph,
    layouts: Mapping[int, tuple[int, ...]],
    slab_inputs: Sequence[int] = (),
    slab_outputs: Sequence[int] = (),
    backend: str = "llvm",
) -> Program | HostProgram | InterpretedProgram:
    """A runnable program for a functional graph.

    layouts: strides in elements of the tensor inputs.  slab_inputs, slab_outputs: see codegen/lower.py.  Raises ValueError for an
    unknown backend."""
    if backend not in BACKENDS:
        raise ValueError(f"build(): unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    if backend == "interpret":
        return InterpretedProgram(graph, layouts, tuple(slab_inputs), tuple(slab_outputs))
    values = Values(graph, {v: s for v, s in layouts.items() if v not in slab_inputs})
    if any(is_host(values, node) for node in values.nodes):
        return HostProgram(graph, layouts, tuple(slab_inputs), tuple(slab_outputs), lambda lowered: Program(lowered, backend))
    return Program(lower(graph, layouts, slab_inputs, slab_outputs), backend)


def _constant(array: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).reshape(np.shape(array))


def _generate(lowered: Lowered, template: np.ndarray[Any, Any], call: Callable[[int], int], constants: Sequence[tuple[int, Any]]) -> Runner:
    """Write and execute the `run` function of a program."""
    environment: dict[str, Any] = {"call": call, "empty": np.empty, "Frame": Frame, "free": []}
    environment["new"] = lambda: Frame(template, lowered.arena_slot, lowered.arena_bytes, constants)
    lines = [
        "def run(arrays, scalars):",
        "    try:",
        "        frame = pop()",
        "    except IndexError:",
        "        frame = new()",
    ]
    environment["pop"] = environment["free"].pop
    environment["push"] = environment["free"].append
    fresh = []
    for k, aval in enumerate(lowered.fresh):
        environment[f"shape{k}"] = aval.shape
        environment[f"dtype{k}"] = aval.dtype.numpy
        lines.append(f"    o{k} = empty(shape{k}, dtype{k})")
        fresh.append(f"o{k}")
    names = {lowered.arrays + k: f"o{k}" for k in range(len(fresh))}
    if lowered.slab_size is not None:
        environment["slab_size"] = lowered.slab_size
        environment["uint8"] = np.dtype(np.uint8)
        lines.append("    slab = empty(slab_size, uint8)")
        fresh.append("slab")
    lines.append(f"    bound = (*arrays, {', '.join(fresh)})" if fresh else "    bound = tuple(arrays)")
    lines.append("    integers = frame.integers")
    lines.append("    integers[0] = id(bound)")
    if lowered.scalars:
        lines.append("    floats = frame.floats")
        lines.append("    try:")
        for k, (slot, python_type) in enumerate(lowered.scalars):
            lines.append(f"        {'floats' if python_type is float else 'integers'}[{slot}] = scalars[{k}]")
        lines.append("    except ValueError:  # an integer that has no 64 bits")
        lines.append("        push(frame)")
        lines.append("        return 0")
    lines.append("    code = call(frame.address)")
    lines.append("    push(frame)")
    lines.append("    if code:")
    lines.append(f"        return 0 if code == {MISMATCH} else code")
    results = []
    for k, output in enumerate(lowered.outputs):
        if output.source == "fresh":
            results.append(names[output.number])
        elif output.source == "literal":
            environment[f"literal{k}"] = output.value
            results.append(f"literal{k}")
        else:
            results.append(f"{'arrays' if output.source == 'input' else 'scalars'}[{output.number}]")
    if lowered.slab_size is not None:
        results.append("slab")
    lines.append(f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})")
    code = "\n".join(lines)
    exec(compile(code, "<tracejit program>", "exec"), environment)
    run: Runner = environment["run"]
    return run
