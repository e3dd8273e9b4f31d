"""A recording for other sizes than its own: what a call with these sizes would have recorded, without the call.

A recording that was made with symbolic sizes (core/symbolic.py) holds them wherever a number was computed of sizes: shapes, strides,
attributes, literals, constants of the prologue.  `SymbolicRecording.at` puts other numbers in their places, if all relations between sizes
hold that the recorded run has relied on.  It relies on the Fixed rules that the program's Python sees sizes only through the recorder, and
that the library asks the Dim API (core/shapes.py) about them; since C code might look at a number without a word, a symbolic recording has
to say first what the function has really done for another size (`explains`) before it is believed.

`env.relations` are guards of the recording: what was decided of sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracejit.capture.recording.entry import Alias, ExitPoint, Recording, ScalarInput, TensorInput, TensorOutput, WrittenInput
from tracejit.capture.recording.facts import Fact, SizeText
from tracejit.capture.recording.structure import Structure
from tracejit.core.aval import Aval
from tracejit.core.symbolic import SYMBOLIC, ShapeEnv
from tracejit.ir.graph import Body, Graph, Literal, Node
from tracejit.ir.verifier import VerificationError, verify
from tracejit.replay import ir

__all__ = ["SymbolicRecording"]

Shapes = tuple[tuple[int, ...], ...]


_HOLDERS = ("graph", "tensor_inputs", "scalar_inputs", "outputs", "written_inputs", "exits", "guards", "epilogue", "result", "structure", "facts")
"""What of a recording may hold sizes: all but the objects that its names stand for."""


class SymbolicRecording:
    """A recording with symbolic sizes, and for which arguments it stands.

    plain: the recording for its own sizes, as it would be without symbolic ones.  problem: why it stands for no others, if it does not."""

    def __init__(self, recording: Recording, shapes: Shapes, dynamic: Sequence[tuple[int, int]]) -> None:
        """shapes: of the tensors among the arguments.  dynamic: those of their dimensions that are variables, in the order of these."""
        assert recording.env is not None
        self.env: ShapeEnv = recording.env
        self.dynamic = tuple(dynamic)
        self.problem = self.env.problem
        self.is_trusted = False
        self._recording = replace(recording, env=None)
        self._static = _with(shapes, dynamic, None)
        self._own = self._sizes(shapes)
        values = self.env.values(self._own)
        changed = _Numbers(self.env, values).fields(self._recording, _HOLDERS)
        self._holders = tuple(changed)
        self.plain: Recording = replace(self._recording, **changed)

    def _sizes(self, shapes: Shapes) -> list[int]:
        return [shapes[k][d] for k, d in self.dynamic]

    def fits(self, shapes: Shapes) -> bool:
        """Whether such arguments differ from the recorded ones in variables alone.  Sizes of 0 and 1 are never those of variables."""
        if [len(s) for s in shapes] != [len(s) for s in self._static] or _with(shapes, self.dynamic, None) != self._static:
            return False
        return all(shapes[k][d] > 1 for k, d in self.dynamic)

    def differs(self, shapes: Shapes) -> bool:
        """Whether these are shapes that it may stand for, and every variable has another size than when it was recorded."""
        return self.fits(shapes) and all(a != b for a, b in zip(self._sizes(shapes), self._own, strict=True))

    def at(self, shapes: Shapes) -> Recording | None:
        """The recording for arguments of these shapes; None where it is not known what these would lead to."""
        if not self.fits(shapes):
            return None
        values = self.env.evaluated(self._sizes(shapes))
        if values is None or self.problem:
            return None
        made = replace(self._recording, **_Numbers(self.env, values).fields(self._recording, self._holders))
        assert made.graph is not None
        try:
            verify(made.graph)
        except VerificationError:
            return None  # what NumPy, and no rule of shapes, would have refused
        return made

    def explains(self, recording: Recording, shapes: Shapes) -> bool:
        """Whether this is what it says of these shapes.  A recording without symbolic sizes has other variables in its prologue."""
        made = self.at(shapes)
        return (
            made is not None
            and recording.graph is not None
            and made.graph is not None
            and made.graph.equals(recording.graph)
            and [_layout(x) for x in made.tensor_inputs] == [_layout(x) for x in recording.tensor_inputs]
            and made.outputs == recording.outputs
            and made.written_inputs == recording.written_inputs
        )


def _layout(x: Any) -> tuple[Any, ...]:
    return x.value, x.shape, x.dtype, x.strides, x.requires_grad, x.is_leaf


def _with(shapes: Shapes, dimensions: Sequence[tuple[int, int]], size: Any) -> list[list[Any]]:
    """The shapes with `size` in these dimensions."""
    found: list[list[Any]] = [list(shape) for shape in shapes]
    for k, d in dimensions:
        found[k][d] = size
    return found


_RECORDS = frozenset((Alias, ExitPoint, Fact, Graph, ScalarInput, Structure, TensorInput, TensorOutput, WrittenInput))


class _Numbers:
    """What holds symbolic numbers, with plain ones in their places; what holds none is the same object."""

    def __init__(self, env: ShapeEnv, values: list[Any]) -> None:
        self._env = env
        self._values = values
        self._known: dict[int, tuple[Any, Any]] = {}  # avals and the like, which many share

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in SYMBOLIC:
            assert value.env is self._env
            return self._values[value.number]
        if kind is tuple or kind is list:
            parts = [self.of(part) for part in value]
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else kind(parts)
        if isinstance(value, Mapping):
            items = [(key, self.of(item)) for key, item in value.items()]
            return value if all(item is value[key] for key, item in items) else dict(items)
        if kind is SizeText:
            return str(self.of(value.of))
        if kind is Aval:
            return self._aval(value)
        if kind is Literal:
            return Literal(self.of(value.value)) if type(value.value) in SYMBOLIC else value
        if kind is Node:
            return self._node(value)
        if kind is Body:
            graph = self.of(value.graph)
            return value if graph is value.graph else Body(graph)
        if isinstance(value, ir.Constant):
            number = self.of(value.value)
            return value if number is value.value else ir.Constant(number)
        if isinstance(value, ir.Node):
            parts = [self.of(part) for part in value[1:]]
            return value if all(a is b for a, b in zip(parts, value[1:], strict=True)) else kind(*parts)
        if kind in _RECORDS:
            changed = self.fields(value, [field.name for field in dataclasses.fields(value)])
            return replace(value, **changed) if changed else value
        return value

    def fields(self, value: Any, names: Iterable[str]) -> dict[str, Any]:
        """Of the fields of this name those that become other ones."""
        found = [(name, before, self.of(before)) for name in names for before in (getattr(value, name),)]
        return {name: after for name, before, after in found if after is not before}

    def _aval(self, aval: Aval) -> Aval:
        known = self._known.get(id(aval))
        if known is None:
            shape = self.of(aval.shape)
            known = self._known[id(aval)] = (aval, aval if shape is aval.shape else Aval(shape, aval.dtype))
        return known[1]  # type: ignore[no-any-return]

    def _node(self, node: Node) -> Node:
        operands, attributes = self.of(node.operands), self.of(node.attributes)
        if operands is node.operands and attributes is node.attributes:
            return node
        return Node(node.op, operands, attributes, node.outputs, node.line)
