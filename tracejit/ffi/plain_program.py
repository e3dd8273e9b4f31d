"""The recorded paths of a compiled function as machine code that takes addresses and numbers, and needs no Python.

`PlainProgram` is made of the paths that serve example arguments.  Each path's graph is optimised and lowered again,
without residuals for backward passes, to a program that takes the addresses of its arrays from its frame and compares
no Python objects.  Arrays of arguments have the sizes of the examples and are contiguous (row-major); so are results.

What is settled when a program is made, and holds for all its calls:

* Guards on values from outside, and on the types of arguments.  Arguments whose values the recording relied on are
  refused.
* Tensors from outside (parameters of a model) are read where they are in memory then: calls see what is written to
  them in place, as an optimizer does, but not a new tensor that is bound to the name.
* Numbers from outside have the values that they have then.

A path with effects (writes, prints, random draws) is refused: there is no Python that could do them.
"""

from __future__ import annotations

import itertools
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np

from tracejit.capture.recording.entry import MISS, Body, Recording
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind
from tracejit.core.shapes import contiguous
from tracejit.ffi import invoke
from tracejit.ffi.errors import CannotExportError, describe_with, failure_record, new_program_id
from tracejit.ir.graph import Graph, Node
from tracejit.llvm.driver import compile_program
from tracejit.lowering.exits import exit_codes, node_code
from tracejit.lowering.lower import NeedsHost, lower
from tracejit.lowering.memory import ALIGNMENT, aligned
from tracejit.lowering.special import is_host
from tracejit.ops.movement.copies import clone
from tracejit.passes.pipeline import optimise, prepare
from tracejit.replay.ir import (
    Attribute,
    Call,
    Constant,
    Define,
    Expr,
    Item,
    Length,
    Name,
    Statement,
    TupleOf,
    TypeOf,
    defined,
    names,
    renamed,
    walk,
)
from tracejit.runtime.frame import pointer
from tracejit.tensor import Tensor
from tracejit.tensor.construction import from_numpy

__all__ = [
    "ArrayValue",
    "FixedValue",
    "NumberValue",
    "PlainProgram",
    "ServedPath",
    "Structure",
    "example_tensors",
    "structure_text",
]

_FRAMES: Final = 64
"""How many calls may run at once: the bits of a word."""
_MOST_BYTES: Final = 1 << 26
"""Of all frames together, unless there are only two."""
_DTYPES: Final = (
    dtypes.bool_, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64,
)  # fmt: skip


class ServedPath(Protocol):
    """What is known of a recorded path (compiled/recorded_path.py)."""

    recording: Recording


_FIXED: Final = (type(None), bool, int, float)


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """An argument or a result that is a row-major array; one without dimensions is a number.  is_python: whether that is
    one of Python (`.item()`), with the precision of Python."""

    dtype: DType
    shape: tuple[int, ...]
    is_python: bool = False

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape))

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
        return tuple([s * self.dtype.itemsize for s in contiguous(self.shape)])

    def __str__(self) -> str:
        return f"{'number of ' * self.is_python}{self.dtype.name}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class NumberValue:
    """An argument that is a Python number of class `kind`: float or int."""

    kind: type

    def __str__(self) -> str:
        return self.kind.__name__


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A part of what is returned that is the same in each call: None, or a number.  Equal are those of one text: 1 and
    True, 0.0 and -0.0 are not, NaN is."""

    value: Any = field(compare=False)
    text: str

    @classmethod
    def of(cls, value: Any) -> FixedValue:
        return cls(value, repr(value))

    def __str__(self) -> str:
        return self.text


Structure = Any
"""What a function returns: an int, which is the number of a result; a FixedValue; or a tuple of these."""


def example_tensors(name: str, examples: Sequence[Any]) -> list[Any]:
    """Arguments for a call that is recorded: a new row-major tensor for each array or tensor, the numbers as they are.

    Raises TypeError for anything else."""
    given: list[Any] = []
    for position, example in enumerate(examples):
        if isinstance(example, Tensor):
            example = example.detach().numpy()
        if isinstance(example, np.ndarray | np.generic):
            given.append(from_numpy(np.array(example, order="C")))
        elif type(example) in (float, int):
            given.append(example)
        else:
            raise TypeError(
                f"{name}: example argument {position} must be an array, a Tensor, a float or an int, got "
                f"{type(example).__name__}; bind other arguments beforehand: compile(functools.partial(...))"
            )
    return given


class PlainProgram:
    """See the module's docstring.  `address` is that of its descriptor (invoke.py); `arguments`, `results` and
    `structure` say what it takes and returns."""

    def __init__(self, name: str, parameters: Sequence[str], paths: Sequence[ServedPath], examples: Sequence[Any]) -> None:
        """paths: the first is the one that the examples take.  examples: of `example_tensors`.

        Raises CannotExportError, which says why, for a path that needs Python, and for one that returns anything but
        tensors, their numbers, constants and tuples of these."""
        self.name, self.parameters = name, tuple(parameters)
        self.arguments = tuple([_argument(name, parameters[k], x) for k, x in enumerate(examples)])
        exported = [_ExportedPath(name, parameters, path.recording, examples) for path in paths]
        self.structure, self.results = exported[0].structure, exported[0].results
        for path in exported[1:]:
            if (path.structure, path.results) != (self.structure, self.results):
                raise CannotExportError(
                    f"{name}: its paths return different things: {structure_text(self.structure, self.results)} and "
                    f"{structure_text(path.structure, path.results)}"
                )
        self._exits = [path.exits for path in exported]
        program_id = new_program_id()
        self._memory = _Memory(program_id, exported)
        self.address = self._memory.address
        describe_with(program_id, self)

    @property
    def is_scalar(self) -> bool:
        """Whether it returns one number."""
        return self.structure == 0 and not self.results[0].shape

    @property
    def failures(self) -> int:
        """How many calls of Numba's code have failed."""
        return int(self._memory.descriptor[invoke.FAILURES])

    # -- texts of errors
    def describe_exit(self, path: int, number: int) -> str:
        """Why no path serves a call."""
        kind, line = self._exits[path].get(node_code(number) or number, ("", ""))
        where = f" at {line}" if line else ""
        if kind is Kind.GUARD:
            what = (
                f"the check{where} fails: a branch takes a way of which there is no compiled path, or a position is out of range"
            )
            remedy = f"pass an example that takes it, too: {self.name.removesuffix('()')}(..., more=[(...)])"
        else:
            what = f"{kind or 'an operation'}{where} fails, or has another size, for these values"
            remedy = "call the function itself with them to see the error"
        return f"{self.name}: {what}; {remedy}"

    def describe_shape(self, position: int, *found: int) -> str:
        """How an array differs from the example."""
        if position < len(self.arguments):
            which, value = f"argument {self.parameters[position]}", self.arguments[position]
        else:
            which, value = f"out for result {position - len(self.arguments)}", self.results[position - len(self.arguments)]
        assert isinstance(value, ArrayValue)
        rank = len(value.shape)
        sizes, strides = list(found[:rank]), list(found[rank:])
        what = f"expected {list(value.shape)}, got {sizes}"
        if strides and sizes == list(value.shape):
            what = f"expected strides {list(value.strides)} (row-major), got {strides} bytes; pass np.ascontiguousarray(...)"
        return f"{self.name}: {which}: {what}"

    def describe_overlap(self, result: int) -> str:
        """Which memory must be another."""
        return f"{self.name}: out for result {result} has memory that the call reads, or writes another result to; pass an array of its own"


def _argument(name: str, parameter: str, example: Any) -> ArrayValue | NumberValue:
    if not isinstance(example, Tensor):
        return NumberValue(type(example))
    return ArrayValue(_dtype(name, f"argument {parameter}", example.dtype), tuple(example.shape))


def _dtype(name: str, what: str, dtype: DType) -> DType:
    if dtype not in _DTYPES:
        raise CannotExportError(
            f"{name}: {what} is {dtype}, which neither Numba nor C has; use one of {', '.join(d.name for d in _DTYPES)}"
        )
    return dtype


def structure_text(structure: Structure, results: Sequence[ArrayValue]) -> str:
    """What a function returns, for people."""
    if isinstance(structure, tuple):
        return f"({', '.join(structure_text(part, results) for part in structure)})"
    return str(results[structure]) if isinstance(structure, int) else str(structure)


class _ExportedPath:
    """One path: its program, and which slots of a frame's table hold what.

    slots: of each argument and each result, -1 where the program does not use it.  fixed: (slot, word) for what is
    the same in each call.  ranges: the memory that is read besides arguments.  exits: node number -> (kind or
    operation, the user's line)."""

    def __init__(self, name: str, parameters: Sequence[str], recording: Recording, examples: Sequence[Any]) -> None:
        self._name, self._recording = name, recording
        _refuse_effects(name, recording)
        definitions = {
            s.name: s.value for s in (*recording.guards, *recording.epilogue) if isinstance(s, Define) and isinstance(s.name, str)
        }
        self._inputs_by_name = {facts.expression.name: facts for facts in recording.tensor_inputs}
        outputs: list[tuple[int, ArrayValue]] = []
        self.structure = self._structure(recording.result, definitions, outputs)
        if not outputs:
            raise CannotExportError(f"{name}: it returns no tensor, but {self.structure}")
        self.results = tuple([value for _, value in outputs])
        self._definitions = definitions
        self._direct = {s.name: k for s in recording.guards if (k := _position(s)) is not None}  # type: ignore[attr-defined]
        depends = self._arguments_of(parameters, examples)
        tensors, numbers = self._inputs(examples)

        graph = self._graph([v for v, _ in outputs])
        codes = exit_codes(graph)
        self.exits = {codes[id(node)]: (_exit_kind(node), node.line) for node in graph.nodes}
        layouts = {facts.value: facts.strides for facts in recording.tensor_inputs}
        try:
            lowered = lower(graph, layouts)
        except NeedsHost as error:
            on_host = next((f"{node.op.name} at {node.line}" for node in graph.nodes if is_host(graph.avals, node)), str(error))
            raise CannotExportError(f"{name}: an operation is computed by NumPy or SciPy, in Python: {on_host}") from None
        spec = replace(lowered.spec, arrays=(), disjoint=(), resident=(), interruptible=False)
        self.lowered, self.compiled = lowered, compile_program(spec)
        self.code: int = self.compiled.run()  # type: ignore[call-arg, misc]
        self.fixed: list[tuple[int, int]] = []
        self.ranges: list[tuple[int, int]] = []
        self.keep: list[Any] = []
        self.slots = [-1] * (len(examples) + len(outputs))
        self._place_tensors(tensors, examples, depends)
        self._place_numbers(graph, numbers, depends)
        for k, output in enumerate(lowered.outputs):
            assert output.source == "fresh", output
            self.slots[len(examples) + k] = 1 + output.number
        for slot, array in lowered.constants:
            self._fix_array(slot, np.array(array, order="C"))

    # -- what the function returns
    def _structure(self, result: Expr, definitions: Mapping[str, Expr], outputs: list[tuple[int, ArrayValue]]) -> Structure:
        """`result` with the numbers of results in place of expressions; `outputs` gets their values in the graph."""
        if isinstance(result, TupleOf):
            return tuple([self._structure(part, definitions, outputs) for part in result.elements])
        if isinstance(result, Constant) and type(result.value) in _FIXED:
            return self._fixed_value(result.value)
        found = _output(result)
        if found is not None:
            position, is_python = found
            facts = self._recording.outputs[position]
            shape = () if is_python else facts.shape
            return self._add_result(outputs, facts.value, facts.dtype, shape, is_python)
        if isinstance(result, Name):
            given = self._inputs_by_name.get(result.name)
            if given is not None:  # the caller gets a copy: results are arrays of their own
                return self._add_result(outputs, given.value, given.dtype, given.shape, False)
            if result.name in definitions:
                return self._structure(definitions[result.name], definitions, outputs)
            known = self._recording.namespace.get(result.name)
            if type(known) in _FIXED:
                return self._fixed_value(known)
        raise CannotExportError(
            f"{self._name}: it returns {result}, which only Python can make; return tensors that it computes, their numbers "
            "(.item()), constants, or tuples of these (for an argument itself: its clone())"
        )

    def _add_result(
        self, outputs: list[tuple[int, ArrayValue]], value: int, dtype: DType, shape: tuple[int, ...], is_python: bool
    ) -> int:
        outputs.append((value, ArrayValue(_dtype(self._name, f"result {len(outputs)}", dtype), shape, is_python)))
        return len(outputs) - 1

    def _fixed_value(self, value: Any) -> FixedValue:
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise CannotExportError(f"{self._name}: it returns {value}, which has no 64 bits")
        return FixedValue.of(value)

    # -- what it reads
    def _arguments_of(self, parameters: Sequence[str], examples: Sequence[Any]) -> dict[str, frozenset[int]]:
        """The positions of the arguments that a variable of the guards depends on.  Raises CannotExportError if a
        guard decides by the value of a number among them."""
        numbers = frozenset(k for k, example in enumerate(examples) if not isinstance(example, Tensor))
        depends: dict[str, frozenset[int]] = {}
        for statement in self._recording.guards:
            if (position := _position(statement)) is not None:
                depends[statement.name] = frozenset([position])  # type: ignore[attr-defined]
                continue
            used = _names_of_values(statement)
            found = frozenset(range(len(examples))) if "args" in used else frozenset()
            found = found.union(*[depends.get(name, frozenset()) for name in used])
            made = [name for node in walk(statement) if isinstance(node, Statement) for name in defined(node)]
            depends.update(dict.fromkeys(made, found))
            if not made and found & numbers and not _has_64_bits(statement):
                raise CannotExportError(
                    f"{self._name}: the value of argument {parameters[min(found & numbers)]} decides what is computed "
                    f"({statement}); pass a tensor without dimensions in its place, or bind it beforehand: "
                    "compile(functools.partial(...))"
                )
        return depends

    def _inputs(self, examples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The tensors and the numbers that the program takes in a call with the examples.  Raises CannotExportError for
        a number that each call reads anew: of a clock, or out of an array of NumPy."""
        recording = self._recording
        tensors = [facts.expression for facts in recording.tensor_inputs]
        numbers = [x.expression for x in recording.scalar_inputs]
        owners: list[tuple[Expr, Expr]] = []
        for number in numbers:
            whole = self._spelled_out(number)
            for node in walk(whole):
                if isinstance(node, Call) and not node.arguments and not isinstance(node.function, Attribute):
                    raise CannotExportError(f"{self._name}: Python calls {node} in each call; pass its value as an argument")
                read = [node.owner] if isinstance(node, Item | Attribute) else node.arguments if isinstance(node, Call) else ()
                owners += [(whole, part) for part in read]
        wanted = (*tensors, *numbers, *[owner for _, owner in owners])
        values = replace(recording, epilogue=(), result=TupleOf(wanted)).build_entry(Body((), {}))(tuple(examples), {})
        if values is MISS:
            raise CannotExportError(f"{self._name}: what it depends on has changed since it was recorded; call it again before")
        rest = values[len(tensors) + len(numbers) :]
        array = next((whole for (whole, _), value in zip(owners, rest, strict=True) if isinstance(value, np.ndarray)), None)
        if array is not None:
            raise CannotExportError(
                f"{self._name}: each call reads a number out of an array of NumPy ({array}); make the array a tensor"
            )
        return list(values[: len(tensors)]), list(values[len(tensors) : len(tensors) + len(numbers)])

    def _place_tensors(self, tensors: Sequence[Any], examples: Sequence[Any], depends: Mapping[str, frozenset[int]]) -> None:
        for number, (facts, tensor) in enumerate(zip(self._recording.tensor_inputs, tensors, strict=True)):
            position = next((k for k, example in enumerate(examples) if example is tensor), None)
            if position is not None:
                self.slots[position] = 1 + number
            elif depends.get(facts.expression.name):
                raise CannotExportError(f"{self._name}: Python finds a tensor that it reads by an argument ({facts.expression})")
            else:
                self._fix_array(1 + number, tensor._array)

    def _fix_array(self, slot: int, array: np.ndarray[Any, Any]) -> None:
        self.keep.append(array)
        low, high = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
        self.ranges.append((low, high))
        self.fixed.append((slot, pointer(array)))

    def _place_numbers(self, graph: Graph, numbers: Sequence[Any], depends: Mapping[str, frozenset[int]]) -> None:
        values = [v for v in graph.inputs if not isinstance(graph.avals[v], Aval)]
        places = dict(zip(values, self.lowered.scalars, strict=True))
        for given, number in zip(self._recording.scalar_inputs, numbers, strict=True):
            slot, kind = places[given.value]
            expression = given.expression
            arguments = frozenset().union(*[depends.get(name, frozenset()) for name in names(expression)])
            if not arguments:
                self.fixed.append((slot, _word(kind(number))))
            elif isinstance(expression, Name) and (position := self._direct.get(expression.name)) is not None:
                assert self.slots[position] < 0 and kind is type(number), (expression, kind, number)
                self.slots[position] = slot
            else:
                raise CannotExportError(
                    f"{self._name}: Python computes a number from arguments ({self._spelled_out(expression)}) before tensors do; "
                    "compute with tensors: pass an array without dimensions in place of a float"
                )

    def _spelled_out(self, expression: Expr) -> Expr:
        """An expression with the definitions of its variables in their places."""

        def meaning(name: Name) -> Expr:
            known = self._definitions.get(name.name)
            return name if known is None else self._spelled_out(known)

        whole: Expr = renamed(expression, meaning)
        return whole

    # -- what it computes
    def _graph(self, values: Sequence[int]) -> Graph:
        recorded = self._recording.graph
        assert recorded is not None
        graph = optimise(prepare(replace(recorded, outputs=tuple(values))))
        return _with_new_outputs(graph)


def _with_new_outputs(graph: Graph) -> Graph:
    """Each output is a value of its own that a node makes: copies of inputs, of constants and of outputs that are
    listed twice."""
    made, seen = {v for node in graph.nodes for v in node.outputs}, set[int]()
    nodes, avals, outputs = list(graph.nodes), dict(graph.avals), []
    numbers = itertools.count(max(avals, default=0) + 1)
    for value in graph.outputs:
        assert isinstance(value, int)
        if value not in made or value in seen:
            copy = next(numbers)
            nodes.append(Node(clone, (value,), (), (copy,)))
            avals[copy] = avals[value]
            value = copy
        seen.add(value)
        outputs.append(value)
    return replace(graph, nodes=tuple(nodes), avals=avals, outputs=tuple(outputs))


def _position(statement: Statement) -> int | None:
    """The position of the argument that a statement gives a variable."""
    if isinstance(statement, Define) and isinstance(statement.value, Item) and statement.value.owner == Name("args"):
        key = statement.value.key
        return key.value if isinstance(key, Constant) else None
    return None


def _names_of_values(node: Any) -> set[str]:
    """The names whose values matter to a statement, not only their types."""
    if isinstance(node, TypeOf | Constant | Length):
        return set()
    if isinstance(node, Name):
        return {node.name}
    return set().union(*map(_names_of_values, node)) if isinstance(node, tuple) else set()


def _has_64_bits(statement: Statement) -> bool:
    """Whether a guard says of one number that it has 64 bits, which all integers of Numba and C have."""
    constants = {node.value for node in walk(statement) if isinstance(node, Constant)}
    return constants == {-(2**63), 2**63 - 1} and len(names(statement)) == 1


def _exit_kind(node: Node) -> Any:
    return Kind.GUARD if node.op.kind is Kind.GUARD else node.op.name


def _output(result: Expr) -> tuple[int, bool] | None:
    """(the output that an expression gives, whether as a number of Python by `item()`)."""
    match result:
        case Name(name) if re.fullmatch(r"out\d+", name):
            return int(name[3:]), False
        case Call(Attribute(Attribute(Name(name), "_array"), "item"), (), ()) if re.fullmatch(r"out\d+", name):
            return int(name[3:]), True
    return None


def _refuse_effects(name: str, recording: Recording) -> None:
    graph = recording.graph
    assert graph is not None
    if recording.reason is not None:
        raise CannotExportError(f"{name}: {recording.reason}")
    drawn = next((node for node in graph.nodes if node.op.kind is Kind.RANDOM), None)
    if drawn is not None or recording.generators:
        where = f" at {drawn.line}" if drawn is not None else ""
        raise CannotExportError(f"{name}: it draws random numbers{where}; draw them in the caller and pass them as arguments")
    if recording.written_inputs:
        shapes = ", ".join(str(list(recording.tensor_inputs[w.index].shape)) for w in recording.written_inputs)
        raise CannotExportError(
            f"{name}: it writes to tensors that it has not made (of shape {shapes}); return the new values instead"
        )
    effect = next((s for s in recording.epilogue if not _is_pure(s)), None)
    if effect is not None or recording.opaque_calls or recording.locks:
        what = f"`{effect}`" if effect is not None else "; ".join(map(str, recording.opaque_calls)) or "it holds a lock"
        raise CannotExportError(
            f"{name}: it has an effect, or makes an object, that needs Python: {what}; return tensors or tuples of tensors"
        )


def _is_pure(statement: Statement) -> bool:
    return isinstance(statement, Define) and (
        isinstance(statement.value, Name | Constant | TupleOf) or _output(statement.value) is not None
    )


def _word(number: float | int) -> int:
    """The bits of a number."""
    return int(np.float64(number).view(np.int64)) if isinstance(number, float) else int(number)


_memories: weakref.WeakSet[_Memory] = weakref.WeakSet()


def _free_frames() -> None:
    """In a forked child: threads that were in a call are in the parent alone, and give nothing back here."""
    for memory in _memories:
        memory.free_frames()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_frames)


class _Memory:
    """The descriptor of a program, its rows of paths, their templates, and its frames; see invoke.py."""

    def __init__(self, program_id: int, paths: Sequence[_ExportedPath]) -> None:
        arena = max(aligned(path.lowered.arena_bytes) for path in paths)
        frame_bytes = arena + max(aligned(8 * len(path.compiled.template)) for path in paths)
        self._templates = [path.compiled.template.copy() for path in paths]
        for path, template in zip(paths, self._templates, strict=True):
            for slot, word in path.fixed:
                template[slot] = word
        rows = [
            [path.code, pointer(template), template.nbytes, path.lowered.arena_slot, *path.slots]
            for path, template in zip(paths, self._templates, strict=True)
        ]
        self._rows = np.array(rows, np.int64)
        self._ranges = np.array([bounds for path in paths for bounds in path.ranges], np.int64).reshape(-1, 2)
        address, owner = invoke.invoke_function()
        self.descriptor = words = np.zeros(invoke.WORDS, np.int64)
        words[invoke.INVOKE], words[invoke.PROGRAM_ID], words[invoke.FAILURE] = address, program_id, pointer(failure_record())
        words[invoke.PATHS], words[invoke.VALUES], words[invoke.PATH_TABLE] = len(paths), len(paths[0].slots), pointer(self._rows)
        words[invoke.RANGE_COUNT], words[invoke.RANGES] = len(self._ranges), pointer(self._ranges)
        words[invoke.FRAME_BYTES], words[invoke.TABLE_OFFSET] = frame_bytes, arena
        if frame_bytes > invoke.STACK:
            count = max(2, min(_FRAMES, _MOST_BYTES // frame_bytes))
            self._frames = np.empty(count * frame_bytes + ALIGNMENT, np.uint8)
            self._all_free = words[invoke.FREE] = np.array((1 << count) - 1, np.uint64).view(np.int64)
            words[invoke.FRAMES] = aligned(pointer(self._frames))
        self.address = pointer(words)
        _memories.add(self)
        self._owners = owner, [path.keep for path in paths], [path.compiled for path in paths]

    def free_frames(self) -> None:
        """Mark all frames as free."""
        if self.descriptor[invoke.FRAMES]:
            self.descriptor[invoke.FREE] = self._all_free
