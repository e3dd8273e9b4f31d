"""Shadow mode: compares compiled calls with eager ones while the user's code runs.

Every n-th call of a compiled function that a recorded path would serve runs eagerly and is recorded; the caller gets the eager
result.  The path's program runs before that, on copies of the arrays, and commits nothing.  A difference is reported with the
first operation that differs and the user's line.  There are four kinds:

* *path*: eager mode did other operations or had other effects than the recording, so a guard is missing.
* *meaning*: the recorded operations, evaluated one by one (ir/interpreter.py), do not give what eager mode gave.
* *code*: they do, but the compiled program does not.  The first wrong operation is found by compiling parts of the graph.
* *gradient*: the compiled backward pass does not give what its operations give, for artificial cotangents.

This module must not know how paths guard, nor how programs are compiled.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracejit.capture.recording.entry import Recording, calling
from tracejit.compiled.compile import CompiledFunction
from tracejit.compiled.dispatch import compared
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.core.aval import Aval
from tracejit.core.dtypes import FLOATING_KINDS
from tracejit.core.interpreter import ask_always
from tracejit.ir.graph import Graph, Node, Operand
from tracejit.ir.interpreter import GuardFailed, SizeChanged, interpret
from tracejit.passes.pipeline import optimise, prepare
from tracejit.runtime.program import build

__all__ = ["Difference", "shadow"]

Array = np.ndarray[Any, Any]
_TOLERANCE = {"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2), "float32": (1e-4, 1e-5), "float64": (1e-8, 1e-10)}
"""(relative, absolute) difference that is allowed: sums of many terms may differ so much."""
_NO_FAULT = ("profiler_active", "interrupted")  # reasons of the eager recording that say nothing about the path


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a compiled call and the eager one.

    kind: "path", "meaning", "code" or "gradient" (see the module).  operation, where: the first operation that differs and the
    user's "file:line"; "" if there is none.  detail: the compiled and the eager value."""

    function: str
    kind: str
    operation: str
    where: str
    detail: str

    def __str__(self) -> str:
        where = f" at {self.operation} ({self.where})" if self.operation else ""
        return f"{self.function}: the compiled call differs from the eager one{where}: {self.detail} [{self.kind}]"


class shadow:  # noqa: N801  (named like no_grad)
    """Compare every `every`-th call of each compiled function that a recorded path would serve with an eager call.

    It is in force at once, in all threads: as a context manager until the block ends, else until `end()`.  The caller of a
    compared call gets the eager result; such a call takes several times as long.

    `compared` counts the compared calls, `differences` lists the differences (`Difference`).

    report: called with each difference; default: gives a RuntimeWarning.
    rtol, atol: relative and absolute difference that is allowed between floating-point values; default: 1e-4 and 1e-5 in float32,
        1e-8 and 1e-10 in float64 (docs/equality.md says how close they should be).  All other values must be equal, including the
        states of generators.

    Raises TypeError for an `every` that is no int, ValueError for one below 1."""

    def __init__(
        self,
        every: int = 1,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        report: Callable[[Difference], None] | None = None,
    ) -> None:
        if type(every) is not int:
            raise TypeError(f"shadow(): expected every to be an int, got {type(every).__name__}")
        if every < 1:
            raise ValueError(f"shadow(): expected every to be at least 1, got {every}")
        self.every = every
        self.compared = 0
        self.differences: list[Difference] = []
        self._tolerance = rtol, atol
        self._report = report or _warn
        self._calls: WeakKeyDictionary[CompiledFunction[Any, Any], int] = WeakKeyDictionary()
        self._outer = compared[0]
        self._on = True
        compared[0] = self._call
        ask_always(1)

    def __enter__(self) -> shadow:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop comparing.  An enclosing shadow continues."""
        if self._on:
            self._on = False
            if compared[0] == self._call:
                compared[0] = self._outer
            ask_always(-1)

    def __repr__(self) -> str:
        return f"<shadow of every call number {self.every}: {self.compared} compared, {len(self.differences)} differ>"

    def _call(self, function: CompiledFunction[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls = self._calls[function] = self._calls.get(function, 0) + 1
        if self._on and calls % self.every == 0:
            for path in function.paths():
                answer = _path_answer(path, args, kwargs)
                if answer is not None:
                    return self._compare(function, path, answer, args, kwargs)
        return function.serve(args, kwargs)

    def _compare(
        self,
        function: CompiledFunction[Any, Any],
        path: RecordedPath,
        answer: _Answer,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        eager: dict[int, Array] = {}

        def observer(node: Node, outputs: Sequence[Any]) -> None:
            eager.update(zip(node.outputs, [t._array.copy() for t in outputs], strict=True))

        try:
            done = function.recorded(args, kwargs, observer, path.recording)
        except Exception as error:
            self._note(path, ("path", "", "", f"eager raises {type(error).__name__}: {error}"))
            raise
        if done is None:
            return function.serve(args, kwargs)
        recording, result = done
        self.compared += 1
        difference = self._difference(path, answer, recording, eager)
        if difference is not None:
            self._note(path, difference)
        return result

    def _note(self, path: RecordedPath, fields: tuple[str, str, str, str]) -> None:
        difference = Difference(path.executable.name, *fields)
        self.differences.append(difference)
        self._report(difference)

    def _difference(
        self, path: RecordedPath, answer: _Answer, recording: Recording, eager: dict[int, Array]
    ) -> tuple[str, str, str, str] | None:
        """(kind, operation, line, detail) of the first difference; None if there is none.  eager: contents of values in the eager
        call."""
        if recording.reason is not None:
            if recording.reason.code in _NO_FAULT:
                return None
            return "path", "", recording.reason.where, f"eager cannot be recorded: {recording.reason}"
        graph = recording.graph
        assert graph is not None
        divergence = _divergence(path.recording, recording)
        if divergence is not None:
            return divergence
        eager.update(zip([facts.value for facts in recording.tensor_inputs], answer.before, strict=True))
        wrong = next((v for v, array in answer.values if not self._close(array, eager[v])), None)
        if wrong is not None:
            given = dict(zip(graph.inputs, answer.ordered(graph, answer.before), strict=True))
            try:
                meaning = _reference_values(graph, given)
            except (GuardFailed, SizeChanged) as error:
                return "meaning", "guard", "", str(error)
            for node in graph.nodes:
                for v in node.outputs:
                    if not self._close(meaning[v], eager[v]):
                        return "meaning", node.op.name, node.line, _difference_of_arrays(meaning[v], eager[v])
            return ("code", *self._first_wrong(graph, given, meaning, wrong))
        return self._gradients(path, answer)

    def _gradients(self, path: RecordedPath, answer: _Answer) -> tuple[str, str, str, str] | None:
        """The first difference between the compiled backward pass and its operations, evaluated one by one."""
        plan, split = path.executable, path.executable.partition
        if split is None:
            return None
        backward, read = plan.whole_backward()
        inputs = answer.ordered(split.graph, answer.before)
        values = _reference_values(split.graph, dict(zip(split.graph.inputs, inputs, strict=True)))
        cotangents = [_arbitrary_cotangent(backward.avals[v]) for v in backward.inputs[len(read) :]]
        given = dict(zip(backward.inputs, [*[values[v] for v in read], *cotangents], strict=True))
        slab = answer.results[-1] if split.residuals else ()
        gradients = plan.run_backward(split.differentiable, None, tuple(answer.after), answer.scalars, cotangents, slab)
        meaning = _reference_values(backward, given)
        present = [g for g in gradients if g is not None]
        outputs = [v for v in backward.outputs if type(v) is int]
        for v, array in zip(outputs, present, strict=True):
            if not self._close(np.asarray(array), meaning[v]):
                return ("gradient", *self._first_wrong(backward, given, meaning, v))
        return None

    def _first_wrong(
        self, graph: Graph, given: Mapping[int, Any], meaning: Mapping[int, Any], wrong: int
    ) -> tuple[str, str, str]:
        """(operation, line, detail) of the first node whose value is wrong in a program that ends with this node, by bisection.
        wrong: a value that is wrong in the whole program."""
        nodes = [node for node in graph.nodes if node.outputs]
        last = next(i for i, node in enumerate(nodes) if wrong in node.outputs)
        low, high, detail = 0, last, ""
        while low <= high:
            middle = (low + high) // 2
            v = nodes[middle].outputs[0]
            array = _compiled(graph, v, given)
            if array is None or self._close(array, meaning[v]):
                low = middle + 1
            else:
                high, detail = middle - 1, _difference_of_arrays(array, meaning[v])
        node = nodes[min(low, last)]
        return node.op.name, node.line, detail or "only together with what follows"

    def _close(self, actual: Array, expected: Array) -> bool:
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            return False
        if actual.dtype.kind not in FLOATING_KINDS:
            return bool(np.array_equal(actual, expected))
        usual = _TOLERANCE[actual.dtype.name]
        relative, absolute = (b if a is None else a for a, b in zip(self._tolerance, usual, strict=True))
        return bool(np.allclose(actual, expected, relative, absolute, equal_nan=True))


def _warn(difference: Difference) -> None:
    warnings.warn(f"{difference}. This is a defect of tracejit; please report it", RuntimeWarning, stacklevel=6)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a path computes for a call.

    before: copies of the arrays of the inputs.  after: other copies, on which the program has run.  scalars: the scalar inputs.
    results: of the program.  values: (value, contents) of each result of the call and of each written input."""

    before: list[Array]
    after: list[Array]
    scalars: tuple[Any, ...]
    results: tuple[Any, ...]
    values: list[tuple[int, Array]]

    def ordered(self, graph: Graph, arrays: Sequence[Array]) -> list[Any]:
        """The inputs of a graph of the recording, arrays and numbers, in the order of the graph."""
        tensors, numbers = iter(arrays), iter(self.scalars)
        return [next(tensors if isinstance(graph.avals[v], Aval) else numbers) for v in graph.inputs]


def _path_answer(path: RecordedPath, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Answer | None:
    """What `path` computes for a call, without effects; None if it does not serve the call."""
    given: list[Any] = []

    def note(tensors: tuple[Any, ...], scalars: tuple[Any, ...]) -> Any:
        given.extend((tensors, scalars))
        return given

    recording, plan = path.recording, path.executable
    recording.build_entry(calling(recording, note))(args, kwargs)
    if not given:
        return None
    before, after = ([_copy(t._array) for t in given[0]] for _ in range(2))
    results = plan.program.run(tuple(after), given[1])
    if isinstance(results, int):
        return None
    values = [(facts.value, np.asarray(array)) for facts, array in zip(plan.outputs, plan.arranged(results), strict=True)]
    values += [(facts.value, after[facts.index]) for facts in recording.written_inputs]
    return _Answer(before, after, given[1], results, values)


def _copy(array: Array) -> Array:
    """A copy of an array with the same strides, in memory of its own."""
    if not array.size:
        return array.copy(order="K")
    low, high = byte_bounds(array)
    first: int = array.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, bytearray(ctypes.string_at(low, high - low)), first - low, array.strides)


def _arbitrary_cotangent(aval: Any) -> Array:
    """A cotangent with values of both signs, none of them zero."""
    return (np.cos(np.arange(aval.size) * 0.7) + 0.01).reshape(aval.shape).astype(aval.dtype.numpy)


def _divergence(known: Recording, eager: Recording) -> tuple[str, str, str, str] | None:
    """The first difference between two recordings; None if they are of the same path."""
    assert known.graph is not None and eager.graph is not None
    mine, other = known.graph.nodes, eager.graph.nodes
    for a, b in zip(mine, other, strict=False):
        if (a.op, a.operands, a.attributes) != (b.op, b.operands, b.attributes):
            return "path", b.op.name, b.line, f"recorded was {_text(a)}, eager does {_text(b)}"
    if len(mine) != len(other):
        node = max(mine, other, key=len)[min(len(mine), len(other))]
        return "path", node.op.name, node.line, f"{_text(node)} is only {'recorded' if node in mine else 'done by eager'}"
    for what in ("epilogue", "outputs", "result"):
        if getattr(known, what) != getattr(eager, what):
            return "path", "", "", f"recorded was the {what} {getattr(known, what)}, eager has {getattr(eager, what)}"
    return None if known.graph.equals(eager.graph) else ("path", "", "", "the recorded graph is not that of the eager call")


def _text(node: Node) -> str:
    operands = [_operand(x) for x in node.operands] + [f"{k}={v}" for k, v in node.attributes]
    return f"{node.op.name}({', '.join(operands)})"


def _operand(x: Operand) -> str:
    return "None" if x is None else f"v{x}" if type(x) is int else repr(getattr(x, "value", x))


def _reference_values(graph: Graph, given: Mapping[int, Any]) -> dict[int, Any]:
    """The contents of all tensors of a graph, with each operation evaluated by itself.  given: contents of its inputs."""
    wanted = [v for v, aval in graph.avals.items() if isinstance(aval, Aval) and (v in given or _is_computed(graph, v))]
    pure = prepare(replace(graph, outputs=tuple(wanted)))
    inputs = [_copy(x) if isinstance(x, np.ndarray) else x for x in (given[v] for v in pure.inputs)]
    return dict(zip(wanted, map(np.asarray, interpret(pure, inputs)), strict=True))


def _is_computed(graph: Graph, v: int) -> bool:
    return v in graph.constants or any(v in node.outputs for node in graph.nodes)


def _compiled(graph: Graph, v: int, given: Mapping[int, Any]) -> Array | None:
    """The contents of one value of a graph, by a program that computes nothing else; None if the program leaves by an exit."""
    part = optimise(prepare(replace(graph, outputs=(v,), requires_grad=frozenset())))
    arrays = {x: _copy(given[x]) for x in part.inputs if isinstance(part.avals[x], Aval)}
    layouts = {x: tuple([s // a.itemsize for s in a.strides]) for x, a in arrays.items()}
    scalars = tuple([given[x] for x in part.inputs if x not in arrays])
    results = build(part, layouts).run(tuple(arrays.values()), scalars)
    return None if isinstance(results, int) else np.asarray(results[0])


def _difference_of_arrays(actual: Array, expected: Array) -> str:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)}, eager has {expected.dtype}{list(expected.shape)}"
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    with np.errstate(all="ignore"):
        distance = np.where(same, 0.0, np.abs(actual.astype(np.float64) - expected.astype(np.float64)))
    where = np.unravel_index(int(np.argmax(np.where(np.isnan(distance), np.inf, distance))), actual.shape)
    count = int((~same).sum())
    at = list(map(int, where))
    return (
        f"{count} of {actual.size} elements differ, most at {at}: {actual[where].item()!r}, eager has {expected[where].item()!r}"
    )
