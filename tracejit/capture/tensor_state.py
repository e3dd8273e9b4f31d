"""The state of tensors besides their contents, as a recording tracks it: the value id of each tensor, whether it requires grad,
the memory that it is bound to (`.data = `), its hooks, and user-defined operations with a backward pass of their own.

A value id stands for one version of one tensor object.  User code that runs in a backward pass inside the call (hooks, `backward`
of a Function) is followed like any other.  recording/finish.py refuses recordings for which a backward pass after the call would
have to run such code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit.autograd.tape import DataStorage
from tracejit.capture.call_sites import user_line
from tracejit.capture.earlier_graph import EarlierGraph
from tracejit.capture.handlers.effects import DataStore
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.recording.journal import Mark, Topic, Variable
from tracejit.core.aval import Aval, ScalarAval, aval_of
from tracejit.core.dtypes import FROM_NUMPY
from tracejit.core.interpreter import Interpreter, state
from tracejit.core.op import REGISTRY, Kind, Op
from tracejit.ir.graph import Node
from tracejit.tensor import Tensor
from tracejit.tensor.contents import is_data_of

__all__ = ["StateRecorder"]

_CONTENTS = ("_array", "_base", "_index", "_node", "_requires_grad", "_storage")
_OF_VIEWS = ("_chain", "_seen")
"""The attributes of a tensor, and the additional ones of a view."""
_BECOMING_VIEWS = frozenset({"unsqueeze_", "squeeze_", "transpose_", "t_", "swapaxes_", "swapdims_"})
"""Methods that turn a tensor into a view of itself, on the same memory."""


@dataclass(slots=True)
class _WrittenCache:
    """An index over the first `nodes` nodes of the graph, of which `last` is the last.

    makers: the node that defines each value.  roots: for views and for versions after writes, the value that owns the memory.
    written: the roots of values that have been written to."""

    nodes: int = 0
    last: Node | None = None
    makers: dict[int, Node] = field(default_factory=dict)
    roots: dict[Any, Any] = field(default_factory=dict)
    written: set[Any] = field(default_factory=set)


def _is_same_memory_in_order(tensor: Tensor, view: Tensor) -> bool:
    """Whether a tensor and a view of all its elements have them in the same order in memory, without gaps."""
    return tensor._base is None and tensor._array.flags.c_contiguous and view._array.flags.c_contiguous


class StateRecorder(Interpreter):
    """The part of the recording interpreter that tracks value ids of tensors and changes of their state.

    own_backward: the name of a user-defined Function that was applied, or "".  hooked: whether a hook was registered on a tensor
    of the call.  backward_ran: whether a backward pass has run: it would have to run hooks on leaves."""

    own_backward = Variable("")
    hooked = Variable(False)
    backward_ran = Variable(False)

    def __init__(self, recorder: Recorder, first_sequence: int) -> None:
        """first_sequence: nodes of the tape with a smaller sequence number are from outside."""
        self.recorder = recorder
        journal = self.journal = recorder.journal
        self.nodes: list[Node] = journal.nodes
        self.avals: dict[int, Aval | ScalarAval] = {}
        self.inputs: dict[int, Tensor] = journal.dictionary(Topic.READS)  # value id -> outside tensor
        self.requires_grad: set[int] = set()
        self.values: dict[int, int] = {}  # id of a tensor -> its latest value id
        # Tensors that are recorded when they are first used, by id, with the function that creates them.
        self.deferred_tensors: dict[int, tuple[Tensor, Callable[[], Tensor]]] = journal.dictionary()
        recorder.values, recorder.deferred = self.values, self.deferred_tensors
        self.evaluated: dict[int, bool] = {}  # first output of an evaluated node -> the grad mode of the evaluation
        self.sized: set[int] = set()  # values whose shapes have symbolic sizes
        self.defined: dict[int, Tensor] = {}  # value id -> its tensor, which is kept alive until the recording stops
        self._by_tape: dict[tuple[int, int], int] = {}  # (id of a node of the tape, index of its output) -> value id
        self.first_sequence = first_sequence
        self.states: set[int] = journal.set()  # ids of tensors that are states of generators
        self.uncounted: set[int] = journal.set()  # values of writes through `.data`, which do not change the tensor's version
        # Outside leaves whose requires_grad was changed; value ids before and after.
        self.switched: dict[int, tuple[Tensor, int, int]] = journal.dictionary()
        self._makers = _WrittenCache()
        # Outside tensors whose .data was assigned, the value id of each before (None: not read yet) and the number of nodes then.
        self.rebound: dict[int, tuple[Tensor, int | None, int]] = journal.dictionary()
        self.hooks_read: set[int] = journal.set()  # outside leaves whose hooks have run, and are guarded
        # Nodes of the tape from outside that a backward pass has sent gradients to: hooks there would have to run.
        self.reached: set[Any] = journal.set()
        self.gradients = 0  # number of backward passes, and of tensors of the call that became leaves or ended to be
        self.leaves: list[int] = []  # values of these tensors, and of tensors of the call whose `.grad` was set
        self.earlier_graph = EarlierGraph(recorder)
        self.last_backward = 0  # number of nodes when the last backward pass began

    # -- values
    def _fresh(self, aval: Aval | ScalarAval) -> int:
        value = len(self.avals)
        self.avals[value] = aval
        return value

    def forget(self) -> None:
        """Drop the tensors of the call, since the recording has stopped: user code may observe when they die."""
        outside = self.recorder.tensors
        for value, tensor in list(self.defined.items()):
            if id(tensor) not in outside:
                del self.defined[value]
                self.values.pop(id(tensor), None)

    def truncate(self, mark: Mark) -> None:
        """Remove the operations that were appended since a mark.  Reads from outside since then remain recorded."""
        removed = {v for node in self.nodes[mark.nodes :] for v in node.outputs}
        self.journal.truncate(mark)
        self.last_backward = min(self.last_backward, mark.nodes)
        for v in removed:
            tensor = self.defined.pop(v, None)
            if tensor is None:  # the state that a generator is about to get
                continue
            if self.values.get(id(tensor)) == v:
                del self.values[id(tensor)]
            self.recorder.keep.append(tensor)
        self.requires_grad -= removed
        self._by_tape = {edge: v for edge, v in self._by_tape.items() if v not in removed}
        if removed == {*range(len(self.avals) - len(removed), len(self.avals))}:  # else a value from outside has a later id
            for v in removed:
                del self.avals[v]
                self.sized.discard(v)
                self.evaluated.pop(v, None)

    def symbolic_shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """The shape of a tensor, if it has symbolic sizes; else None."""
        value = self.values.get(id(tensor))
        if value is None and tensor._node is not None:
            value = self._by_tape.get((id(tensor._node), tensor._index))
        if value is None:
            return self.recorder.sizes.inputs.get(id(tensor))
        return self.avals[value].shape if value in self.sized else None  # type: ignore[union-attr]

    def _define(self, tensor: Tensor, contents: Tensor | None = None, shape: tuple[int, ...] | None = None) -> int:
        """A new value id for a tensor.  contents: a tensor whose metadata it is about to get.  shape: its shape, if that has
        symbolic sizes."""
        described = tensor if contents is None else contents
        sizes = self.recorder.sizes
        if shape is None and sizes.env is not None and sizes.are_noted:
            shape = self.symbolic_shape(described)
        array = described._array
        dtype = FROM_NUMPY[array.dtype]
        value = len(self.avals)
        if shape is None:
            self.avals[value] = aval_of(array.shape, dtype)
        else:
            self.avals[value] = Aval(shape, dtype)
            self.sized.add(value)
        self.values[id(tensor)] = value
        self.defined[value] = tensor
        if tensor._requires_grad if tensor._base is None else tensor.requires_grad:
            self.requires_grad.add(value)
        node = tensor._node
        if node is not None:
            self._by_tape[id(node), tensor._index] = value
            self.recorder.keep.append(node)
        return value

    def _append_same(
        self,
        op: Op,
        value: int,
        tensor: Tensor,
        contents: Tensor | None = None,
        attributes: tuple[tuple[str, Any], ...] = (),
    ) -> int:
        """`tensor` is the result of an operation that keeps the shape of `value`, symbolic sizes among it: the new value.  contents: as in
        `_define`."""
        shape = self.avals[value].shape if value in self.sized else None  # type: ignore[union-attr]
        made = self._define(tensor, contents, shape)
        self.nodes.append(Node(op, (value,), attributes, (made,), user_line()))
        return made

    def value_of(self, tensor: Tensor) -> int | None:
        """The value id of a tensor; None if its origin is unknown.  A tensor from outside becomes an input of the graph."""
        if self.deferred_tensors:
            self.demand(tensor)
        value = self.values.get(id(tensor))
        if value is None:
            source = self.recorder.tensors.get(id(tensor))
            if source is not None:
                source.used = True
                value = self._define(tensor)
                self.inputs[value] = tensor
            elif tensor._node is not None:  # an output that the tape has saved and wrapped in a new tensor
                value = self._by_tape.get((id(tensor._node), tensor._index))
        return value

    # -- deferred tensors: recorded when they are first used
    def deferred(self, make: Callable[[], Tensor]) -> Tensor:
        if self.recorder.stopped:
            return make()
        with self.recorder.sizes.paused():  # it is recorded, with its guards on sizes, where it is used
            tensor = self.recorder.unwatched(make)
        self.deferred_tensors[id(tensor)] = tensor, make
        return tensor  # type: ignore[no-any-return]

    def demand(self, tensor: Any) -> None:
        """Called before a tensor is read or used as an operand: record it here if it is deferred."""
        entry = self.deferred_tensors.get(id(tensor))
        if entry is not None:
            self.replace(tensor, entry[1])

    def replace(self, tensor: Tensor, make: Callable[[], Tensor]) -> None:
        """Record `make()`, which has the contents of `tensor`, and let `tensor` stand for its result from now on."""
        self.deferred_tensors.pop(id(tensor), None)
        top, state.top = state.top, self
        try:
            other = self.recorder.containers.native(make)
        finally:
            state.top = top
        self.recorder.keep.append(other)
        self.become(tensor, other)
        self.values[id(tensor)] = value = self.values[id(other)]
        self.defined[value] = tensor

    @staticmethod
    def become(tensor: Tensor, other: Tensor) -> None:
        """Give a tensor of the call the memory and the position on the tape of another one."""
        for name in _CONTENTS if other._base is None else (*_CONTENTS, *_OF_VIEWS):
            setattr(tensor, name, getattr(other, name))

    # -- changes
    def _become_leaf(self, tensor: Tensor, requires: bool) -> None:
        """`tensor.requires_grad = requires` for a leaf: it gets a new value id by `detach`, so that no gradient flows to what it
        was computed from."""
        value = self.values[id(tensor)]
        maker = self.producer(value)
        if maker is None or maker.op.kind is not Kind.CREATION:
            self._append_same(REGISTRY["detach"], value, tensor)
        if requires:
            self.requires_grad.add(self.values[id(tensor)])
        else:
            self.requires_grad.discard(self.values[id(tensor)])

    def _switch(self, tensor: Tensor) -> None:
        """The user code flips `requires_grad` of an outside leaf.  The leaf gets a value id of its own; flipped back, it has the
        one before again."""
        recorder, before = self.recorder, self.value_of(tensor)
        assert before is not None
        recorder.inspect(tensor)
        recorder.keep.append(tensor)
        former = self.switched.get(id(tensor))
        if former is not None and former[2] == before:
            self.values[id(tensor)] = former[1]
            self.switched[id(tensor)] = tensor, before, former[1]
            return
        self._become_leaf(tensor, not tensor._requires_grad)
        self.switched[id(tensor)] = tensor, before, self.values[id(tensor)]

    def _assign_data(self, tensor: Tensor, data: Any) -> None:
        """`tensor.data = data`: `tensor` becomes a leaf, detached from `data`, on the memory of `data`."""
        recorder, before = self.recorder, tensor._array
        value = self.value_of(data) if isinstance(data, Tensor) else None
        outside = id(tensor) in recorder.tensors
        if value is None or not (outside or id(tensor) in self.values):
            recorder.stop("tensor_origin", "data that are assigned")
            return
        if is_data_of(data, tensor) and self._root(value) == self._root(self.value_of(tensor)):
            return
        same = (data._array.shape, data._array.strides, data._array.dtype) == (before.shape, before.strides, before.dtype)
        if not ((same or not outside) and tensor.is_leaf and tensor._base is None and type(data._storage) is not DataStorage):
            recorder.stop(
                "tensor_state", f".data = a tensor of shape {list(data._array.shape)}, for one of shape {list(before.shape)},"
            )
            return
        former = self.values.get(id(tensor))
        self._append_same(REGISTRY["detach"], value, tensor, data)
        recorder.keep.append(tensor)
        if outside:
            self.rebound.setdefault(id(tensor), (tensor, former, len(self.nodes)))
            recorder.effects.note_store((id(tensor), "data"), DataStore(tensor, data))

    def _begin_leaf(self, tensor: Tensor, data: Tensor) -> None:
        """The call has created `tensor`, a leaf on the memory of `data` (`Parameter(data)`)."""
        value, recorder = self.value_of(data), self.recorder
        if value is None or recorder.is_outside(tensor) or type(data._storage) is DataStorage:
            recorder.stop("tensor_origin", f"a {type(tensor).__name__} is made of it")
            return
        self._append_same(REGISTRY["detach"], value, tensor)
        recorder.keep.append(tensor)

    def _becomes_view(self, tensor: Tensor, view: Tensor) -> bool:
        """A tensor of the call is about to become `view`, a view of itself (`tensor.unsqueeze_(0)`): record it as a copy.

        Returns False, and records nothing, if that would be wrong: for a tensor from outside or one that requires grad, if other
        tensors or arrays share its memory, or if the order of its elements in memory changes."""
        before, value, recorder = self.values.get(id(tensor)), self.value_of(view), self.recorder
        if before is None or value is None or recorder.is_outside(tensor) or tensor.requires_grad:
            return False
        index = self._written_cache()
        own = index.roots.get(before, before)
        views = [v for v, root in index.roots.items() if root == own and index.makers[v].op.kind is Kind.VIEW]
        is_shared = any(number._post_program.source is tensor for number in recorder.arrays.epilogue_arrays.values())
        if is_shared or any(self.defined[v] is not view for v in views) or not _is_same_memory_in_order(tensor, view):
            return False
        self._append_same(REGISTRY["clone"], value, tensor, view)
        recorder.keep.append(tensor)
        return True

    def _root(self, value: int | None) -> int | None:
        """The value that owns the memory of `value`."""
        for node in reversed(self.nodes):
            if value in self.inputs:
                break
            if value in node.outputs:
                if node.op.kind not in (Kind.VIEW, Kind.WRITE):
                    break
                assert isinstance(node.operands[0], int)
                value = node.operands[0]
        return value

    def is_written(self, value: int) -> bool:
        """Whether the call has written to the memory of a value."""
        index = self._written_cache()
        return index.roots.get(value, value) in index.written

    def writes_outside(self) -> bool:
        """Whether the call has written to a tensor from outside, other than states of generators."""
        return bool(self._written_tensors())

    def writes_to(self, array: Any) -> bool:
        """Whether the call has written to the memory of an array from outside."""
        return any(np.may_share_memory(tensor._array, array) for tensor in self._written_tensors())

    def _written_cache(self) -> _WrittenCache:
        """The index over all nodes, brought up to date."""
        index = self._makers
        if index.nodes and (len(self.nodes) < index.nodes or self.nodes[index.nodes - 1] is not index.last):
            index = self._makers = _WrittenCache()
        for node in self.nodes[index.nodes :]:
            index.makers.update(dict.fromkeys(node.outputs, node))
            if node.op.kind in (Kind.VIEW, Kind.WRITE):
                own = index.roots.get(node.operands[0], node.operands[0])
                index.roots.update(dict.fromkeys(node.outputs, own))
                if node.op.kind is Kind.WRITE:
                    index.written.add(own)
            index.nodes, index.last = index.nodes + 1, node
        return index

    def producer(self, value: int) -> Node | None:
        """The node that defines a value; None for inputs."""
        return self._written_cache().makers.get(value)

    def _written_tensors(self) -> list[Tensor]:
        """The tensors from outside whose memory the call has written to, without states of generators."""
        tensors = [self.inputs.get(own) for own in self._written_cache().written]
        return [tensor for tensor in tensors if tensor is not None and id(tensor) not in self.states]

    # -- user code that the library calls
    def call(self, function: Any, *arguments: Any) -> Any:
        recorder = self.recorder
        return (
            function(*arguments)
            if recorder.stopped
            else recorder.contents.concretise_contents(recorder.calls.call(function, arguments, {}))
        )

    def built(self, value: Any) -> Any:
        return value if self.recorder.stopped else self.recorder.mark_created(value)

    def call_method(self, owner: Any, name: str, *arguments: Any) -> Any:
        recorder = self.recorder
        if recorder.stopped:
            return state.base.call_method(owner, name, *map(plain, arguments))
        given = tuple([a if isinstance(a, Tensor) else recorder.mark_created(a) for a in arguments])
        return recorder.contents.concretise_contents(
            recorder.calls.call(recorder.attributes.get_attribute(owner, name), given, {})
        )

    def _note_function_outputs(self, node: Any, outputs: tuple[Any, ...]) -> None:
        """The outputs of a user-defined Function have been placed at its node of the tape."""
        for index, output in enumerate(outputs):
            value = self.values.get(id(output))
            if isinstance(output, Tensor) and value is not None:
                self._by_tape[id(node), index] = value  # also for outputs without a gradient, which the node may have saved
                if output._node is node:
                    self.requires_grad.add(value)
        self.recorder.keep.append(node)

    def _read_hooks(self, leaf: Tensor) -> None:
        """The hooks of a leaf are about to run: guard that it has the same ones in later calls."""
        source = self.recorder.tensors.get(id(leaf))
        if source is not None:
            self.recorder.read(leaf._hooks, source.variable.get("_hooks"))
            self.recorder.contents.read_content(leaf._hooks)
            self.hooks_read.add(id(leaf))

    # -- events of the eager library
    def note(self, event: str, *details: Any) -> None:
        recorder = self.recorder
        if recorder.stopped:
            return
        if event == "backward":
            through, reached, _, boundary = details
            if (changes := recorder.effects.step_changes) is not None:
                changes.note_pass(through)
            self.gradients += 1
            self.backward_ran, self.last_backward = True, len(self.nodes)
            self.reached.update([node for node in reached if node.sequence < self.first_sequence])
            earlier = [node for node in through if node.sequence < self.first_sequence]
            if earlier and (boundary is None or not self.earlier_graph.may_be_entered(earlier)):
                recorder.stop("outside_graph", earlier[0].name())
            elif earlier:
                boundary.update(earlier)
        elif event == "backward left":
            self.earlier_graph.enter(*details)
        elif event == "loop expanded":
            maker = next((self.producer(v) for (node, _), v in self._by_tape.items() if node == id(details[0])), None)
            if maker is not None:  # else it is from outside, and so is the pass
                why = "it takes its steps to say what a hook sees, or how one result depends on another one"
                recorder.stop("outlined_loop", f"the loop at {maker.line}: {why}")
        elif event == "library state changed":
            recorder.stop("global_state", *details)
        elif event == "data assigned":
            self._assign_data(*details)
        elif event == "leaf begun":
            self._begin_leaf(*details)
        elif event == "own backward":
            self.own_backward = details[0].__name__
            recorder.attributes.lookup(details[0], "setup_context")
            if recorder.is_created(details[0]):
                recorder.mark_created(details[0]._node_class())
        elif event == "placed":
            self._note_function_outputs(*details)
        elif event == "hooks of a leaf run":
            self._read_hooks(*details)
        elif event == "hook registered" and id(details[0]) in self.values and id(details[0]) not in recorder.tensors:
            self.hooked = True
        elif (
            event == "requires_grad changed"
            and details[0]._base is None
            and (id(details[0]) in recorder.tensors or id(details[0]) in self.values)
        ):
            tensor = details[0]
            if id(tensor) in recorder.tensors:
                self._switch(tensor)
                return
            self.gradients += 1
            self.leaves.append(self.values[id(tensor)])
            recorder.keep.append(tensor)
            self._become_leaf(tensor, not tensor._requires_grad)
        elif not (event in _BECOMING_VIEWS and self._becomes_view(*details)):
            recorder.stop("tensor_state", event)
