"""Checks that Python code which an entry runs after the program reads what it read in the recorded call.

The entry runs the program as a whole, and then NumPy's computations and calls of opaque code, which the function had interleaved.
So memory that these read must not be written by the program at a later point of the function; if it is, the recording stops.
"""

from __future__ import annotations

import math
from typing import Any

from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.recording.entry import WrittenInput
from tracejit.capture.tensors import RecordingInterpreter
from tracejit.core.op import Kind
from tracejit.ir.graph import Node
from tracejit.replay.ir import tuple_of
from tracejit.tensor import Tensor
from tracejit.tensor.sharing import is_shared

__all__ = ["Views", "check_arrays", "check_calls", "check_outside_arrays"]


_VIEW, _WRITE = Kind.VIEW, Kind.WRITE  # members of an enumeration take 0.1 us to find on Python 3.11


class Views:
    """Leads from values to the values that own their memory.  writes: (position, node) of the nodes that write, in order."""

    def __init__(self, nodes: list[Node]) -> None:
        self.writes: list[tuple[int, Node]] = []
        self._producers: dict[int, Node] = {}
        self._first: dict[int, int] = {}  # the result of a write -> the first version of what is written
        self._roots: dict[int, tuple[int, tuple[Node, ...]]] = {}  # cached results of `root`
        for position, node in enumerate(nodes):
            kind = node.op.kind
            if kind is _VIEW:
                self._producers.update(dict.fromkeys(node.outputs, node))
            elif kind is _WRITE:
                self.writes.append((position, node))
                target = node.operands[0]
                assert isinstance(target, int)
                self._first.update(dict.fromkeys(node.outputs, self._first.get(target, target)))

    def root(self, value: int) -> tuple[int, tuple[Node, ...]]:
        """(the first version of the value that owns the memory; the view nodes that lead from it to `value`)."""
        cached = self._roots.get(value)
        if cached is None:
            cached = self._roots[value] = self._root(value)
        return cached

    def _root(self, value: int) -> tuple[int, tuple[Node, ...]]:
        chain: list[Node] = []
        while True:
            value = self._first.get(value, value)
            node = self._producers.get(value)
            if node is None:
                return value, tuple(reversed(chain))
            chain.append(node)
            source = node.operands[0]
            assert isinstance(source, int)
            value = source

    def written(self, first: int = 0, last: float = math.inf) -> set[int]:
        """The roots of what the nodes at positions from `first` up to `last` (exclusive) write."""
        return {self.root(node.outputs[0])[0] for position, node in self.writes if first <= position < last}


def check_arrays(recorder: Recorder, interpreter: RecordingInterpreter, views: Views) -> None:
    """Stop the recording if an array from which NumPy computes after the program is changed after that point of the function."""
    if recorder.arrays.reads_after_program and interpreter.writes_outside():
        recorder.stop("read_after_change", "the memory that an array has")
    looked_at = [
        (number._post_program.nodes_before, number)
        for number in recorder.extracted_numbers.post_program_numbers
        if number._post_program.nodes_before >= 0
    ]
    for position, number in (*looked_at, *recorder.outside_calls.passed_arrays) if views.writes else ():
        for tensor in _sources(number):
            value = interpreter.value_of(tensor)
            if value is None:
                continue
            if views.root(value)[0] in views.written(position):
                recorder.stop("tensor_contents", "an array of a tensor that is changed later on")


def check_calls(recorder: Recorder, views: Views, inputs: list[int]) -> None:
    """Stop the recording if a call that is deferred until after the program may read tensors that are written after it, or may
    raise before inputs are written."""
    recorder.outside_calls.check_given()
    recorder.locking.check_locks()
    for position, code, detail in recorder.outside_calls.reading_calls:
        if views.written(position):
            recorder.stop(code, f"{detail} of tensors that are changed afterwards")
    for position, code, detail in recorder.outside_calls.raising_calls:
        if not views.written(position).isdisjoint(inputs):
            recorder.stop(code, f"{detail}, which may raise before tensors are changed,")


def check_outside_arrays(
    recorder: Recorder, interpreter: RecordingInterpreter, inputs: list[int], written: list[WrittenInput]
) -> None:
    """Check that tensors do not share memory with arrays from outside, which are read and written after the program: the program
    must neither write what is read nor read what is written.  Stops the recording if they do; adds guards for later calls."""
    tensors = [interpreter.inputs[value] for value in inputs]
    changed = tensors if recorder.arrays.array_stores else [tensors[fact.index] for fact in written]
    for array in (*recorder.arrays.outside_arrays, *recorder.arrays.read_after_writes) if changed else ():
        if is_shared(array, changed):
            recorder.stop("overlapping_inputs", f"an ndarray of shape {list(array.shape)} and a tensor")
            return
        variables = tuple_of(*[recorder.tensors[id(tensor)].variable for tensor in changed])
        recorder.miss_if(recorder.constant(is_shared).call(recorder.sources[id(array)], variables))


def _sources(number: Any) -> list[Tensor]:
    """The tensors whose memory NumPy reads to compute a post-program number."""
    definition = number._post_program
    if definition.shares_source:
        return [definition.source]
    return [source for part in definition.parts if is_post_program(part) for source in _sources(part)]
