"""Programs with host steps: machine segments with NumPy or SciPy evaluations between them.

A node without a nest (kind OPAQUE and the rare others) is evaluated on arrays by its op.  The graph is cut at those nodes into stages:
stage s holds what needs the results of s rounds of host steps.  Every stage is a program of its own; what a later one needs is an output
of it.  The first one is given all tensor inputs, so that its check is that of the whole: a call whose arrays are not the recorded ones
never comes to a host step.  Guards leave from the stage that can decide them; user storage is written by the last stage only, which
comes after all host steps.

A host step that raises, or whose result has another shape or dtype than the recorded one, is the node's exit: the eager rerun raises
again where the user sees it, or goes on with the other size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import DType
from tracejit.core.floating import quietly
from tracejit.core.op import Effect, Kind
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.interpreter import NodeFailed, PreparedNode
from tracejit.lowering.exits import exit_codes
from tracejit.lowering.lower import lower
from tracejit.lowering.lowered import Lowered
from tracejit.lowering.special import is_host
from tracejit.runtime.exits import exit_number
from tracejit.runtime.slab import offsets
from tracejit.runtime.source import Module, Printed

__all__ = ["HostProgram"]


@dataclass(frozen=True, slots=True)
class _Segment:
    """A machine program: inputs (tensor ids, scalar ids), outputs; None for a stage with nothing to compute."""

    program: Any
    tensors: tuple[int, ...]
    scalars: tuple[int, ...]
    outputs: tuple[int, ...]


class HostProgram(Printed):
    """See runtime/program.py."""

    def __init__(
        self,
        graph: Graph,
        layouts: Mapping[int, tuple[int, ...]],
        slab_inputs: tuple[int, ...],
        slab_outputs: tuple[int, ...],
        raises: bool,
        compile_segment: Callable[[Lowered], Any],
    ) -> None:
        self.graph = graph
        self.raises = raises
        self.slab_inputs = slab_inputs
        self.residuals = slab_outputs
        changed = {t for t, v in graph.writes if t != v}
        self.overwritten = [v for v in slab_outputs if v in changed]  # whose contents from before are kept for the backward pass
        self.tensors = [v for v in graph.inputs if isinstance(graph.avals[v], Aval) and v not in slab_inputs]
        self.advances = _advances(graph, self.tensors)
        self.scalars = [v for v in graph.inputs if isinstance(graph.avals[v], ScalarAval)]
        self.codes = exit_codes(graph)
        self.layouts = {v: s for v, s in layouts.items() if v in self.tensors}
        self.stages = _stages(graph)
        self.segments: list[_Segment] = []
        self.host_steps: list[list[Node]] = []
        known = set(graph.inputs) | set(graph.constants)
        for s, (machine, host) in enumerate(self.stages):
            self.segments.append(self._segment(machine, s, known, compile_segment))
            known.update(o for n in (*machine, *host) for o in n.outputs)
            self.host_steps.append(host)
        here = _Here(self)
        exec(compile(_text_of(self, "run", here), "<tracejit program>", "exec"), here.scope)
        self._between: Callable[[Any, Any], tuple[Any, ...] | int] = here.scope["run"]
        self.machine_calls = sum(s.program is not None for s in self.segments)
        self.seconds = sum(s.program.seconds for s in self.segments if s.program is not None)

    def _segment(self, machine: list[Node], stage: int, known: set[int], compile_segment: Callable[[Lowered], Any]) -> _Segment:
        """known: the values that there are before this stage."""
        graph, first, last = self.graph, stage == 0, stage == len(self.stages) - 1
        made = {o for n in machine for o in n.outputs}
        wanted = {v for v in graph.outputs if isinstance(v, int)}
        for k, (later, host) in enumerate(self.stages):
            if k >= stage:
                wanted.update(o for n in host for o in n.operands if isinstance(o, int))
            if k > stage:
                wanted.update(o for n in later for o in n.operands if isinstance(o, int))
        wanted.update(v for _, v in graph.writes)
        outputs = tuple(sorted(wanted & made))
        writes = graph.writes if last else ()
        used = {o for n in machine for o in n.operands if isinstance(o, int)} | {v for pair in writes for v in pair}
        if first:
            used.update(self.tensors)
        inputs = tuple(v for v in sorted(used) if v in known and v not in graph.constants)
        tensors = tuple(v for v in inputs if isinstance(graph.avals[v], Aval))
        leaves = any(n.may_exit for n in machine)
        if not outputs and not writes and not leaves and not (first and tensors):
            return _Segment(None, (), (), ())
        part = Graph(
            inputs, graph.avals, tuple(machine), outputs, {v: a for v, a in graph.constants.items() if v in used}, writes
        )
        own = {v: s for v, s in self.layouts.items() if v in inputs}
        written = {t for t, v in graph.writes if t != v} if first else ()
        program = compile_segment(lower(part, own, codes=self.codes, written=written))
        return _Segment(program, tensors, tuple(v for v in inputs if v not in tensors), outputs)

    def run(self, arrays: Any, scalars: Any) -> tuple[Any, ...] | int:
        """As `Program.run`.  Draws stand beside steps of the host, between which other threads may draw: generators are moved on at once by
        all that the call will draw, and back again where it comes to nothing, unless somebody else has drawn meanwhile.  What the call sets
        them to, they have in the end."""
        if not self.advances:
            return quietly(self._between, arrays, scalars)  # type: ignore[no-any-return]
        states = [_moved(arrays[a.position], a.drawn) for a in self.advances]
        own = list(arrays)
        for a, state in zip(self.advances, states, strict=True):
            own[a.position] = np.array(state)
        result: tuple[Any, ...] | int = 0
        try:
            result = quietly(self._between, own, scalars)
        finally:
            for a, state in zip(self.advances, states, strict=True):
                if isinstance(result, int):
                    _move_back(arrays[a.position], state, a.drawn)
                elif a.is_set:
                    arrays[a.position][:] = own[a.position]
        return result

    def print(self, module: Module, name: str) -> None:
        """The segments, and a function that calls them and what stands between them."""
        module.put(name, _text_of(self, name, _OfModule(self, module, name)))

    def describe(self) -> str:
        """Segments and the host steps between them."""
        lines: list[str] = []
        for segment, host in zip(self.segments, self.host_steps, strict=True):
            if segment.program is not None:
                lines.append(segment.program.describe())
            lines.extend(f"host step: {node.op.name} {node.line}".rstrip() for node in host)
        return "\n".join(lines)


def _named(value: int) -> str:
    return f"v{value}"


def _listed(names: Iterable[str]) -> str:
    """Names, or other expressions, as the elements of a tuple, or as targets."""
    return "".join([f"{name}, " for name in names])


def _text_of(program: HostProgram, name: str, names: _Here | _OfModule) -> str:
    """The function that runs a program.  A segment returns the tuple of its outputs or the number of an exit."""
    graph, avals = program.graph, program.graph.avals
    tensors: dict[int, Aval] = {v: aval for v, aval in avals.items() if isinstance(aval, Aval)}
    lines = names.head()
    slab_avals = [tensors[v] for v in program.slab_inputs]
    for v, at, aval in zip(program.slab_inputs, offsets(slab_avals)[0], slab_avals, strict=True):
        lines.append(f"{_named(v)} = slab[{at} : {at + aval.nbytes}].view({names.dtype(aval.dtype)}).reshape({aval.shape})")
    lines += [f"before_{_named(v)} = {_named(v)}.copy()" for v in program.overwritten]
    for k, (segment, host) in enumerate(zip(program.segments, program.host_steps, strict=True)):
        if segment.program is not None:
            lines += [f"found = {names.segment(k, segment)}", "if isinstance(found, int):", "    return found"]
            lines += [f"{_listed(map(_named, segment.outputs))}= found"] if segment.outputs else []
        for node in host:
            lines += names.host_step(node, list(map(names.operand, node.operands)))
    lines += [f"{_named(v)} = {_named(v)}.copy()" for v in graph.constants if v in graph.outputs]  # the caller's own
    count = len(graph.outputs) - len(program.residuals)
    results = [names.operand(o) for o in graph.outputs[:count]]
    if program.residuals:
        saved = [f"before_{_named(v)}" if v in program.overwritten else _named(v) for v in program.residuals]
        where, total = offsets([tensors[v] for v in program.residuals])
        lines.append(f"slab = np.empty({total}, np.uint8)")
        for at, v, text in zip(where, program.residuals, saved, strict=True):
            lines.append(f"slab[{at} : {at + tensors[v].nbytes}] = np.ascontiguousarray({text}).reshape(-1).view(np.uint8)")
        results.append("slab")
    lines.append(f"return ({_listed(results)})")
    return "\n    ".join([f"def {name}({', '.join(names.parameters)}):", *lines]) + "\n"


class _Here:
    """What the function calls that runs a program in this process.  scope: the function's globals."""

    parameters = ("arrays", "scalars")

    def __init__(self, program: HostProgram) -> None:
        self._program = program
        self.scope: dict[str, Any] = {"np": np}

    def head(self) -> list[str]:
        program = self._program
        self.scope.update({f"constant_{_named(v)}": np.asarray(array) for v, array in program.graph.constants.items()})
        tensors, numbers = [_named(v) for v in program.tensors], [_named(v) for v in program.scalars]
        tensors += ["slab"] * bool(program.slab_inputs)
        return [
            f"{_listed(tensors)}*_ = arrays",
            *[f"{_listed(numbers)}= scalars"] * bool(numbers),
            *[f"{_named(v)} = constant_{_named(v)}" for v in program.graph.constants],
        ]

    def _in_scope(self, value: Any) -> str:
        name = f"value{len(self.scope)}"
        self.scope[name] = value
        return name

    def dtype(self, dtype: DType) -> str:
        return self._in_scope(dtype.numpy)

    def operand(self, operand: Operand) -> str:
        return _named(operand) if isinstance(operand, int) else self._in_scope(None if operand is None else operand.value)

    def segment(self, k: int, segment: _Segment) -> str:
        tensors, numbers = (_listed(map(_named, of)) for of in (segment.tensors, segment.scalars))
        return f"{self._in_scope(segment.program.run)}(({tensors}), ({numbers}))"

    def host_step(self, node: Node, operands: list[str]) -> list[str]:
        step = self._in_scope(_HostStep(node, self._program).run)
        outputs = _listed(map(_named, node.outputs))
        lines = [f"found = {step}({', '.join(operands)})", "if isinstance(found, int):", "    return found"]
        return [*lines, f"{outputs}= found"] if outputs else lines


class _HostStep:
    """A host step of a program that runs in this process."""

    __slots__ = ("_node", "_program", "_types")

    def __init__(self, node: Node, program: HostProgram) -> None:
        avals = program.graph.avals
        self._node, self._program = PreparedNode.of(node, avals), program
        self._types = [avals[v].dtype.numpy for v in node.outputs]  # type: ignore[union-attr]

    def run(self, *operands: Any) -> list[Any] | int:
        """The outputs, which nobody else has; the exit's number if the step does not go on as it was recorded."""
        try:
            arrays = self._node.arrays(operands)
        except NodeFailed as failure:
            return exit_number(self._program.codes, failure, self._program.raises)
        return [np.array(array, dtype, order="C", copy=True) for array, dtype in zip(arrays, self._types, strict=True)]


class _OfModule:
    """What the function calls that runs a program in the printed module."""

    def __init__(self, program: HostProgram, module: Module, name: str) -> None:
        self._program, self._module, self._name = program, module, name
        self.parameters = [*map(_named, program.tensors), *["slab"] * bool(program.slab_inputs), *map(_named, program.scalars)]

    def head(self) -> list[str]:
        lines = []
        for v, array in self._program.graph.constants.items():
            name, dtype = f"{self._name}_{_named(v)}", self.dtype(self._program.graph.avals[v].dtype)  # type: ignore[union-attr]
            self._module.constant(name, array)
            lines.append(f"{_named(v)} = {name}.view({dtype}).reshape({np.shape(array)})")
        return lines

    def dtype(self, dtype: DType) -> str:
        return self._module.dtype(dtype)

    def operand(self, operand: Operand) -> str:
        return _named(operand) if isinstance(operand, int) else repr(operand.value) if isinstance(operand, Literal) else "None"

    def segment(self, k: int, segment: _Segment) -> str:
        segment.program.print(self._module, f"{self._name}_part{k}")
        return f"{self._name}_part{k}({', '.join(map(_named, (*segment.tensors, *segment.scalars)))})"

    def host_step(self, node: Node, operands: list[str]) -> list[str]:
        operands = [*operands, *[f"{n}={value!r}" for n, value in node.attrs.items()]]
        call, avals = f"{self._module.host(node)}({', '.join(operands)})", self._program.graph.avals
        return [
            f"{_listed(map(_named, node.outputs))}= {call if node.op.multiple else f'({call},)'}",
            *[f"{_named(v)} = np.array({_named(v)}, {self.dtype(avals[v].dtype)}, order='C')" for v in node.outputs],  # type: ignore[union-attr]
        ]


class _Advance(NamedTuple):
    """position: of a generator's state among the tensor inputs.  drawn: how far a call draws from it.  is_set: whether the call leaves it
    anywhere else than so far on."""

    position: int
    drawn: int
    is_set: bool


def _advances(graph: Graph, tensors: list[int]) -> list[_Advance]:
    """The states of generators that a call draws from."""
    states = _passed_on(graph, tensors)
    counts: dict[int, int] = {}
    for root, count in states.values():
        counts[root] = max(counts.get(root, 0), count)
    left = dict(graph.writes)
    return [_Advance(tensors.index(root), n, states.get(left.get(root, root)) != (root, n)) for root, n in counts.items() if n]


def _passed_on(graph: Graph, states: Sequence[int]) -> dict[int, tuple[int, int]]:
    """What becomes of states of generators: a value -> (which of `states` it is, how far on)."""
    found = {value: (value, 0) for value in states}
    for node in graph.nodes:
        if node.op.kind is Kind.RANDOM and node.op.effect is not Effect.RANDOM:
            known = found.get(node.operands[0])  # type: ignore[arg-type]
            if known is not None:
                found[node.outputs[0]] = known[0], known[1] + node.attrs["count"]
        elif node.op.kind is Kind.LOOP and "count" in node.attrs:
            body, carried = node.attrs["body"].graph, node.attrs["carried"]
            inside = _passed_on(body, body.inputs[:carried])
            ends = node.outputs[len(node.outputs) - len(body.outputs) :]
            for k in range(carried):
                known, step = found.get(node.operands[k]), inside.get(body.outputs[k])  # type: ignore[arg-type]
                if known is not None and step is not None and step[0] == body.inputs[k]:
                    found[ends[k]] = known[0], known[1] + step[1] * node.attrs["count"]
    return found


def _moved(array: Any, count: int) -> Any:
    """The state that a generator had; it is moved on without a call in between."""
    seed, counter = array[0], array[1]
    array[1:] += count
    return np.array([seed, counter])


def _move_back(array: Any, state: Any, count: int) -> None:
    if array[1] == (state[1:] + count)[0]:
        array[1:] -= count


def _stages(graph: Graph) -> list[tuple[list[Node], list[Node]]]:
    """(machine nodes, host nodes) per stage, in program order.

    What has an effect outside (a custom_op, a collective) comes after all that may leave before it: a call whose recorded path is not
    the right one has done nothing that eager mode would not do.  What goes on by itself once it has begun (trait "begins") begins as
    soon as it can, and what is not needed for that is done after it."""
    stage: dict[int, int] = {}
    stages: list[tuple[list[Node], list[Node]]] = [([], [])]
    leaving = floor = 0
    for part in _parts(graph):
        for node in part:
            s = max((stage.get(o, 0) for o in node.operands if isinstance(o, int)), default=0)
            host = is_host(graph.avals, node)
            s = max(s, floor, leaving if _has_effect(node) else 0)
            if node.may_exit:
                leaving = max(leaving, s)
            while len(stages) <= s + host:
                stages.append(([], []))
            stages[s][int(host)].append(node)
            for o in node.outputs:
                stage[o] = s + host
        if part and "begins" in part[-1].op.traits:
            floor = stage[part[-1].outputs[0]]
    return stages


def _has_effect(node: Node) -> bool:
    """Whether it has an effect outside of the program."""
    return node.op.effect is Effect.RANDOM and node.op.kind is not Kind.RANDOM


def _parts(graph: Graph) -> list[list[Node]]:
    """The nodes in parts, each in program order: for each node that begins something what must be done before it, itself last, unless an
    earlier part has it; then all others."""
    makers = {o: k for k, node in enumerate(graph.nodes) for o in node.outputs}
    done: set[int] = set()
    parts = []
    for k, node in enumerate(graph.nodes):
        if "begins" not in node.op.traits:
            continue
        first = [i for i, before in enumerate(graph.nodes[:k]) if before.may_exit or _has_effect(before)]
        stack, own = [k, *first], set[int]()
        while stack:
            i = stack.pop()
            if i not in done and i not in own:
                own.add(i)
                stack += [makers[o] for o in graph.nodes[i].operands if isinstance(o, int) and o in makers]
        done |= own
        parts.append([graph.nodes[i] for i in sorted(own)])
    return [*parts, [node for i, node in enumerate(graph.nodes) if i not in done]]
