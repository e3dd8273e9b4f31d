"""A recorded graph made callable: its forward program, its backward programs on demand, and Tensors around arrays.

`Executable.call(tensors, scalars)` is what the generated entry of a recording calls: it runs the forward program, advances the content
versions of what the program wrote, wraps the outputs, and puts one node on the tape if gradients may be wanted later.  It returns
MISS where the machine code found an array it was not made for, an Exit where a guard inside did not hold; then nothing was changed.

The forward and the backward programs are the only users of `passes`, `codegen` and `runtime` above them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracejit.autograd import api as autograd
from tracejit.autograd.compiled import CompiledNode, ConsumedNode, Mask
from tracejit.autograd.tape import Storage, changed_in_place, next_sequence
from tracejit.capture.entry import Alias, Recording, TensorOutput
from tracejit.capture.reasons import Reason, make
from tracejit.core.aval import Aval
from tracejit.core.interpreter import bind, state
from tracejit.core.op import Kind
from tracejit.ir.graph import Literal
from tracejit.ops.movement.views import detach
from tracejit.passes.partition import Partition, partition
from tracejit.passes.pipeline import optimise, prepare
from tracejit.runtime.program import build
from tracejit.tensor import Tensor

__all__ = ["Executable", "Exit", "UnsupportedProgram"]


class Exit:
    """A guard inside the program, or the check of data that an operation makes, failed: exit `number` (from 1) was taken."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class UnsupportedProgram(Exception):
    """A recording that no program can stand for; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Executable:
    """The programs of one recording.  Raises UnsupportedProgram."""

    def __init__(self, name: str, recording: Recording, backend: str, miss: Any, count: Callable[[int], None]) -> None:
        assert recording.graph is not None
        self.name = name
        self.recording = recording
        self.inputs = recording.tensor_inputs
        self.backend = backend
        self._count = count
        # Outputs that are views of other memory are made again as views, outside the program.
        self._computed = tuple([i for i, facts in enumerate(recording.outputs) if facts.alias is None])
        self.outputs = tuple([recording.outputs[i] for i in self._computed])
        self._layouts = {facts.value: facts.strides for facts in self.inputs}
        for written in recording.written_inputs:
            facts = self.inputs[written.index]
            if (written.requires_grad, written.is_leaf) != (facts.requires_grad, facts.is_leaf):
                raise UnsupportedProgram(make("differentiable_write", f"of shape {list(facts.shape)}"))
        raw = replace(recording.graph, outputs=tuple([facts.value for facts in self.outputs]))
        self.pure = prepare(raw)
        self.partition: Partition | None = None
        self._backward: dict[Mask, tuple[Any, tuple[int, ...]]] = {}
        wanted = {facts.value for facts in self.inputs if facts.requires_grad}
        self._wanted: Mask = tuple([v in wanted for v in self.pure.inputs])
        self._differentiable: Mask = tuple(
            [facts.requires_grad and not facts.is_leaf and not facts.consumed for facts in self.outputs]
        )
        if any(self._differentiable) and wanted:
            self.partition = partition(self.pure, self._wanted, self._differentiable)
            self.graph = optimise(self.partition.forward)
            residuals = tuple([v for v in self.graph.outputs[len(self.outputs) :] if type(v) is int])
            self.program = build(self.graph, self._layouts, slab_outputs=residuals, backend=backend)
        else:
            self.graph = optimise(self.pure)
            self.program = build(self.graph, self._layouts, backend=backend)
        self.call: Callable[[tuple[Any, ...], tuple[Any, ...]], Any] = self._generate(miss)

    # -- the forward call
    def _generate(self, miss: Any) -> Callable[[tuple[Any, ...], tuple[Any, ...]], Any]:
        """Straight-line Python around `program.run`: everything static is decided here."""
        names = [f"t{i}" for i in range(len(self.inputs))]
        namespace: dict[str, Any] = {
            "run": self.program.run, "MISS": miss, "exits": _Exits(), "new": object.__new__, "Tensor": Tensor, "Storage": Storage,
            "CompiledNode": CompiledNode, "plan": self, "state": state, "next_sequence": next_sequence, "consumed": ConsumedNode,
            "fresh": _fresh, "count": self._count,
        }  # fmt: skip
        lines = ["def call(tensors, scalars):"]
        if names:
            lines.append(f"    {', '.join(names)}, = tensors")
        arrays = "".join(f"{n}._array, " for n in names)
        lines += [
            f"    arrays = ({arrays})",
            "    results = run(arrays, scalars)",
            "    if results.__class__ is int:",
            "        return exits[results] if results else MISS",
            f"    count({self.program.machine_calls})",
        ]
        position = {facts.value: i for i, facts in enumerate(self.inputs)}
        for target, _ in self.graph.writes:
            t = names[position[target]]
            lines += [f"    s = {t}._storage", "    if s is None:", f"        s = {t}._storage = Storage()", "    s.version += 1"]
        outs = [f"o{i}" for i in range(len(self.outputs))]
        for i, o in enumerate(outs):
            requires = self.outputs[i].requires_grad and not (self.partition and self._differentiable[i])
            lines += [
                f"    {o} = new(Tensor)", f"    {o}._array = results[{i}]", f"    {o}._requires_grad = {requires}",
                f"    {o}._node = None", f"    {o}._index = 0", f"    {o}._storage = None", f"    {o}._base = None",
                f"    {o}._grad = None", f"    {o}._hooks = None",
            ]  # fmt: skip
            if self.outputs[i].consumed and self.outputs[i].requires_grad:
                lines.append(f"    {o}._node = consumed(())")
        if self.partition is not None:
            lines += self._node_lines(names, outs, position)
        lines.append(f"    return ({''.join(o + ', ' for o in self._with_views(outs, namespace, lines))})")
        exec(compile("\n".join(lines), f"<program {self.name}>", "exec"), namespace)
        return namespace["call"]  # type: ignore[no-any-return]

    def _with_views(self, outs: list[str], namespace: dict[str, Any], lines: list[str]) -> list[str]:
        """The names of all outputs in the order of the recording; those that share memory are made as views of its owner."""
        scalars = {facts.value: i for i, facts in enumerate(self.recording.scalar_inputs)}
        names: dict[int, str] = dict(zip(self._computed, outs, strict=True))
        for i, facts in enumerate(self.recording.outputs):
            if facts.alias is not None:
                owner = f"t{facts.alias.index}" if facts.alias.kind == "input" else names[facts.alias.index]
                namespace[f"view{i}"] = _view_maker(facts, facts.alias, scalars)
                lines.append(f"    w{i} = view{i}({owner}, scalars)")
                names[i] = f"w{i}"
        return [names[i] for i in range(len(self.recording.outputs))]

    def _node_lines(self, names: list[str], outs: list[str], position: Mapping[int, int]) -> list[str]:
        """The node of the tape, its edges, and the versions of what eager would have saved."""
        split = self.partition
        assert split is not None
        edges, needs = [], []
        for i, facts in enumerate(self.inputs):
            needs.append(facts.requires_grad)
            if not facts.requires_grad:
                edges.append("None")
            else:
                edges.append(f"({names[i]}, 0)" if facts.is_leaf else f"({names[i]}._node, {names[i]}._index)")
        lines = [
            "    n = new(CompiledNode)", f"    n.edges = ({''.join(e + ', ' for e in edges)})", f"    n.needs = {tuple(needs)}",
            f"    n.count = {len(outs)}", "    n.hooks = None", "    n.sequence = next_sequence()", "    n.plan = plan",
            "    n.tensors = tensors", "    n.arrays = arrays", "    n.scalars = scalars",
            f"    n.slab = {'results[-1]' if split.residuals else '()'}",
        ]  # fmt: skip
        for i, o in enumerate(outs):
            if self._differentiable[i]:
                lines += [f"    {o}._requires_grad = True", f"    {o}._node = n", f"    {o}._index = {i}"]
        saved = []
        for value in sorted(split.saved_inputs | split.saved_writes):
            t = names[position[value]]
            lines += [f"    s{t} = {t}._storage or fresh({t})"]
            saved.append(f"(s{t}, s{t}.version, 'an operand', {t}._array.shape)")
        for i in sorted(split.saved_outputs):
            lines += [f"    so{i} = o{i}._storage = Storage()"]
            saved.append(f"(so{i}, 0, 'the result', o{i}._array.shape)")
        lines.append(f"    n.saved = [{', '.join(saved)}]")
        return lines

    # -- the backward pass (DifferentiablePlan)
    def run_backward(
        self, present: Mask, arrays: tuple[Any, ...], scalars: tuple[Any, ...], cotangents: list[Any], slab: Any
    ) -> Sequence[Any]:
        split = self.partition
        assert split is not None
        if split.stale:  # the program itself overwrote what eager mode's tape had saved
            node = split.stale[0]
            shape = next(a.shape for v in node.outputs if isinstance(a := split.graph.avals[v], Aval))
            raise changed_in_place(node.op.name, "a saved value", shape, 1, 0)
        program, picks = self._backward.get(present) or self._build_backward(present)
        direct = [arrays[i] for i in picks]
        if split.residuals:
            given = (*direct, *cotangents, slab)
        else:
            given = (*direct, *cotangents)
        numbers = scalars if self._backward_scalars is None else tuple([scalars[i] for i in self._backward_scalars])
        results = program.run(given, numbers)
        if isinstance(results, int):
            raise RuntimeError(
                f"backward() of the compiled program {self.name}: its check {results} failed. This is a defect of tracejit; "
                "please report it with fn.graph(), and use the function without compile meanwhile"
            )
        self._count(program.machine_calls)
        answers = iter(results)
        return [next(answers) if facts.requires_grad else None for facts in self.inputs]

    def _build_backward(self, present: Mask) -> tuple[Any, tuple[int, ...]]:
        split = self.partition
        assert split is not None
        graph = optimise(split.backward(present, self._wanted))
        position = {facts.value: i for i, facts in enumerate(self.inputs)}
        program = build(graph, self._layouts, slab_inputs=split.residuals, backend=self.backend)
        picks = tuple([position[v] for v in split.direct_inputs if v in position])
        self._backward[present] = program, picks
        return program, picks

    def backward_programs(self) -> list[tuple[Mask, tuple[Any, tuple[int, ...]]]]:
        """(mask of cotangents, (program, positions of direct inputs)) of the backward programs made so far."""
        return list(self._backward.items())

    @property
    def _backward_scalars(self) -> tuple[int, ...] | None:
        """Positions, among the scalars, of those that backward reads."""
        assert self.partition is not None
        numbers = [v for v in self.pure.inputs if not isinstance(self.pure.avals[v], Aval)]
        return tuple([i for i, v in enumerate(numbers) if v in self.partition.direct_inputs])

    def run_again(self, tensors: tuple[Any, ...], scalars: tuple[Any, ...], cotangents: Sequence[Any]) -> Sequence[Any]:
        given = iter(tensors)
        numbers = iter(scalars)
        values: dict[int, Any] = {}
        for v in self.pure.inputs:
            values[v] = next(given) if isinstance(self.pure.avals[v], Aval) else next(numbers)
        previous = state.grad_enabled
        try:
            outputs = self._replay(values)
        finally:
            state.grad_enabled = previous
        pairs = [
            (o, g)
            for o, g, d in zip(outputs, cotangents, self._differentiable, strict=True)
            if d and g is not None and o.requires_grad
        ]
        wanted = [t for t, facts in zip(tensors, self.inputs, strict=True) if facts.requires_grad]
        state.grad_enabled = True
        try:
            grads = autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)
        finally:
            state.grad_enabled = previous
        answers = iter(grads)
        return [next(answers) if facts.requires_grad else None for facts in self.inputs]

    def _replay(self, values: dict[int, Any]) -> list[Any]:
        """The pure graph through the door; gradients flow where they did in eager."""
        graph = self.pure
        for v, array in graph.constants.items():
            tensor = Tensor(np.array(array))
            values[v] = tensor
        marked = graph.requires_grad
        for node in graph.nodes:
            if node.op.kind is Kind.GUARD:
                continue
            state.grad_enabled = any(v in marked for v in node.outputs)
            operands = tuple(
                [values[x] if type(x) is int else x.value if isinstance(x, Literal) else None for x in node.operands]
            )
            result = bind(node.op, operands, node.attrs)
            if node.op.multiple:
                values.update(zip(node.outputs, result, strict=True))
            else:
                values[node.outputs[0]] = result
        return [values[v] if type(v) is int else None for v in graph.outputs]


class _Exits(dict[int, Exit]):
    """Exit objects by number."""

    def __missing__(self, number: int) -> Exit:
        known = self[number] = Exit(number)
        return known


def _view_maker(facts: TensorOutput, alias: Alias, scalars: Mapping[int, int]) -> Callable[[Any, tuple[Any, ...]], Any]:
    """A function that makes an aliasing output from the tensor that owns its memory, on the tape where eager had it there."""

    def make(owner: Any, numbers: tuple[Any, ...]) -> Any:
        previous, state.grad_enabled = state.grad_enabled, facts.requires_grad
        try:
            out = owner
            for op, operands, attributes in alias.views:
                rest = [numbers[scalars[x]] if type(x) is int else x.value if isinstance(x, Literal) else None for x in operands]
                out = bind(op, (out, *rest), attributes)
            return detach(owner) if out is owner else out
        finally:
            state.grad_enabled = previous

    return make


def _fresh(tensor: Tensor) -> Storage:
    storage = tensor._storage = Storage()
    return storage
