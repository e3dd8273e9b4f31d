"""Replays raw recordings by their own meaning: each node through the door, in program order, on real tensors.

Slow, and independent of every pass and of code generation: with it capture is tested alone.  `Replayed` stands for a compiled
function; a replay whose guard node fails puts back what it wrote and is counted as an exit.
"""

from __future__ import annotations

import functools
from types import MethodType, SimpleNamespace

from tracejit.capture import MISS, calling, declare_inlined, record
from tracejit.capture.session import is_recording
from tracejit.core.interpreter import bind, state
from tracejit.core.op import Kind
from tracejit.ir.graph import Literal
from tracejit.tensor.base import storage_of


class Exit:
    """A guard node failed, an operation raised, or came to another size."""


def put_back(contents):
    """What inputs held before the call."""
    for tensor, array in contents:
        tensor._array[...] = array


def caller(recording):
    """call(tensors, scalars) for `Recording.build_entry`."""
    graph = recording.graph

    def call(tensors, scalars):
        for fact, tensor in zip(recording.tensor_inputs, tensors, strict=True):
            array = tensor._array
            strides = tuple(s // array.itemsize for s in array.strides)
            if array.shape != fact.shape or array.dtype != fact.dtype.numpy or strides != fact.strides:
                return Exit()
        values = dict(zip([f.value for f in recording.tensor_inputs], tensors, strict=True))
        values.update(zip([f.value for f in recording.scalar_inputs], scalars, strict=True))
        uncounted = [storage_of(tensors[w.index]) for w in recording.written_inputs if not w.counted]
        versions = [(storage, storage.version, storage.written) for storage in uncounted]
        before = [(tensors[w.index], tensors[w.index]._array.copy()) for w in recording.written_inputs]
        mode = state.grad_enabled
        try:
            for node in graph.nodes:
                operands = [values[x] if type(x) is int else x.value if isinstance(x, Literal) else x for x in node.operands]
                if node.op.kind is Kind.GUARD:
                    if Literal(operands[0].item()) != node.attrs["expected"]:
                        put_back(before)
                        return Exit()
                    continue
                state.grad_enabled = any(v in graph.requires_grad for v in node.outputs)
                if node.op.kind is Kind.WRITE and operands[0].is_leaf:  # a leaf is written to under no_grad only
                    state.grad_enabled = node.operands[1] in graph.requires_grad
                try:
                    results = bind(node.op, tuple(operands), node.attrs)
                except (ArithmeticError, LookupError, RuntimeError, ValueError):  # by the data: metadata are the recorded ones
                    put_back(before)
                    return Exit()
                for value, result in zip(node.outputs, results if node.op.multiple else (results,), strict=True):
                    if tuple(result.shape) != graph.avals[value].shape:  # it depends on the data
                        put_back(before)
                        return Exit()
                    values[value] = result
                    if value in graph.requires_grad and not result.requires_grad:  # a leaf of the program's own
                        result.requires_grad_()
        finally:
            state.grad_enabled = mode
        for storage, version, written in versions:  # what was written through .data
            storage.version, storage.written = version, written
        outputs = []
        for fact in recording.outputs:
            tensor = values[fact.value]
            assert tensor.shape == fact.shape and tensor.dtype is fact.dtype
            if fact.is_leaf and fact.requires_grad:
                tensor.requires_grad_()
            outputs.append(tensor)
        return tuple(outputs)

    return call


class Replayed:
    """A function that is recorded at its first call and replayed afterwards."""

    def __init__(self, function, limit=8):
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self.entries = []
        self.recordings = []
        self.reasons = []
        self.limit = limit
        self.stats = SimpleNamespace(calls=0, compiled_calls=0, eager_calls=0, traces=0, exits=0)

    def __get__(self, instance, owner=None):
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args, **kwargs):
        function = self.__wrapped__
        self.stats.calls += 1
        if is_recording():
            return function(*args, **kwargs)
        for entry in self.entries:
            result = entry(args, kwargs)
            if result is MISS:
                continue
            if isinstance(result, Exit):
                self.stats.exits += 1
                continue
            self.stats.compiled_calls += 1
            return result
        if len(self.entries) >= self.limit or len(self.reasons) > 30:
            self.stats.eager_calls += 1
            return function(*args, **kwargs)
        self.stats.traces += 1
        recording, result = record(function, args, kwargs)
        self.recordings.append(recording)
        if recording.reason is None:
            self.entries.append(recording.build_entry(calling(recording, caller(recording))))
        else:
            self.reasons.append(recording.reason)
            self.stats.eager_calls += 1
        return result


declare_inlined(Replayed)
