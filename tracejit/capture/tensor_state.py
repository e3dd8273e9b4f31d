"""What a recording knows of the state of tensors beside their contents: which value each stands for, whether it requires grad, what memory
it is bound to, its hooks, and operations with a backward pass of their own.

A value id stands for one version of one tensor object.  Code of the program that a backward pass inside the call runs is followed like any
other; what a backward pass after the call would have to know of it is for finish.py to refuse.
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
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Node
from tracejit.tensor import Tensor
from tracejit.tensor.contents import is_data_of

__all__ = ["StateRecorder"]

_CONTENTS = ("_array", "_base", "_index", "_node", "_requires_grad", "_storage")
_OF_VIEWS = ("_chain", "_seen")
"""What a tensor consists of, and what views have beside that."""
_BECOMING_VIEWS = frozenset({"unsqueeze_", "squeeze_", "transpose_", "t_", "swapaxes_", "swapdims_"})
"""Methods after which a tensor is what a view of it was, on the same memory."""


@dataclass(slots=True)
class _WrittenCache:
    """What nodes have made and written to: so many of them have been looked at, the last of them being `last`.

    makers: the node of each value.  roots: of views and versions, the values that own their memory.  written: those of what was written
    to."""

    nodes: int = 0
    last: Node | None = None
    makers: dict[int, Node] = field(default_factory=dict)
    roots: dict[Any, Any] = field(default_factory=dict)
    written: set[Any] = field(default_factory=set)


def _lies_alike(tensor: Tensor, view: Tensor) -> bool:
    """Whether a tensor and a view of all of it have the same elements in the same order, without gaps."""
    return tensor._base is None and tensor._array.flags.c_contiguous and view._array.flags.c_contiguous


class StateRecorder(Interpreter):
    """The values of tensors, and changes of their state.

    own_backward: the name of an operation of the program's own, where there was one.  hooked: whether a tensor of the call has got a hook.
    backward_ran: whether there was a backward pass: hooks on leaves would have to run then."""

    own_backward = Variable("")
    hooked = Variable(False)
    backward_ran = Variable(False)

    def __init__(self, recorder: Recorder, first_sequence: int) -> None:
        """first_sequence: nodes of the tape before it were made outside."""
        self.recorder = recorder
        journal = self.journal = recorder.journal
        self.nodes: list[Node] = journal.nodes
        self.avals: dict[int, Aval | ScalarAval] = {}
        self.inputs: dict[int, Tensor] = journal.dictionary(Topic.READS)  # value id -> outside tensor
        self.requires_grad: set[int] = set()
        self.values: dict[int, int] = {}  # id of a tensor -> its latest value id
        # Tensors that are recorded where somebody needs them, by id, and what makes them.
        self.deferred_tensors: dict[int, tuple[Tensor, Callable[[], Tensor]]] = journal.dictionary()
        recorder.values, recorder.deferred = self.values, self.deferred_tensors
        self.evaluated: dict[int, bool] = {}  # first value id of what an operation made -> the grad mode that it was evaluated in
        self.sized: set[int] = set()  # values in whose shapes there are symbolic sizes
        self.defined: dict[int, Tensor] = {}  # value id -> the tensor it stands for; they live as long as the recording
        self._by_tape: dict[tuple[int, int], int] = {}
        self.first_sequence = first_sequence
        self.states: set[int] = journal.set()  # ids of tensors that are states of generators
        self.uncounted: set[int] = journal.set()  # versions of which the tensors do not know: what was written through .data
        self.switched: dict[int, tuple[Tensor, int, int]] = (
            journal.dictionary()
        )  # outside leaves whose requires_grad was changed; value ids before and after
        self._makers = _WrittenCache()
        # Outside tensors whose .data was assigned, the value that each was before, if it was any, and how many nodes there were.
        self.rebound: dict[int, tuple[Tensor, int | None, int]] = journal.dictionary()
        self.hooks_read: set[int] = journal.set()  # outside leaves whose hooks have run, and are guarded
        # Nodes from outside at which gradients that were asked for have arrived: hooks there would have to run.
        self.reached: set[Any] = journal.set()
        self.gradients = 0  # how many backward passes there were, and tensors of the call that became leaves
        self.leaves: list[int] = []  # the values that these tensors had, and those of the call whose `.grad` was set
        self.earlier_graph = EarlierGraph(recorder)
        self.last_backward = 0  # how many nodes were there when the last backward pass began

    # -- values
    def _fresh(self, aval: Aval | ScalarAval) -> int:
        value = len(self.avals)
        self.avals[value] = aval
        return value

    def forget(self) -> None:
        """The recording has stopped: it does not keep the tensors of the run alive.  Who has them may tell when they go."""
        outside = self.recorder.tensors
        for value, tensor in list(self.defined.items()):
            if id(tensor) not in outside:
                del self.defined[value]
                self.values.pop(id(tensor), None)

    def truncate(self, mark: Mark) -> None:
        """Take the operations since a mark back.  What was read of the outside since then stays."""
        gone = {v for node in self.nodes[mark.nodes :] for v in node.outputs}
        self.journal.truncate(mark)
        self.last_backward = min(self.last_backward, mark.nodes)
        for v in gone:
            tensor = self.defined.pop(v)
            if self.values.get(id(tensor)) == v:
                del self.values[id(tensor)]
            self.recorder.keep.append(tensor)
        self.requires_grad -= gone
        self._by_tape = {place: v for place, v in self._by_tape.items() if v not in gone}
        if gone == {*range(len(self.avals) - len(gone), len(self.avals))}:  # else something from outside is newer
            for v in gone:
                del self.avals[v]
                self.sized.discard(v)
                self.evaluated.pop(v, None)

    def symbolic_shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """The shape of a tensor in which there are symbolic sizes; None for others."""
        value = self.values.get(id(tensor))
        if value is None and tensor._node is not None:
            value = self._by_tape.get((id(tensor._node), tensor._index))
        if value is None:
            return self.recorder.sizes.inputs.get(id(tensor))
        return self.avals[value].shape if value in self.sized else None  # type: ignore[union-attr]

    def _define(self, tensor: Tensor, contents: Tensor | None = None, shape: tuple[int, ...] | None = None) -> int:
        """A value for a tensor.  contents: whose metadata it is about to get.  shape: one with symbolic sizes."""
        known = tensor if contents is None else contents
        sizes = self.recorder.sizes
        if shape is None and sizes.env is not None and sizes.are_noted:
            shape = self.symbolic_shape(known)
        array = known._array
        dtype = FROM_NUMPY[array.dtype]
        value = len(self.avals)
        if shape is None:
            self.avals[value] = aval_of(array.shape, dtype)
        else:
            self.avals[value] = Aval(shape, dtype)
            self.sized.add(value)
        self.values[id(tensor)] = value
        self.defined[value] = tensor
        if tensor.requires_grad:
            self.requires_grad.add(value)
        node = tensor._node
        if node is not None:
            self._by_tape[id(node), tensor._index] = value
            self.recorder.keep.append(node)
        return value

    def value_of(self, tensor: Tensor) -> int | None:
        """The value id of a tensor; None for one of unknown origin."""
        if self.deferred_tensors:
            self.demand(tensor)
        value = self.values.get(id(tensor))
        if value is None:
            source = self.recorder.tensors.get(id(tensor))
            if source is not None:
                source.used = True
                value = self._define(tensor)
                self.inputs[value] = tensor
            elif tensor._node is not None:  # a saved output that the tape made a tensor again
                value = self._by_tape.get((id(tensor._node), tensor._index))
        return value

    # -- tensors that nobody may need
    def deferred(self, make: Callable[[], Tensor]) -> Tensor:
        if self.recorder.stopped:
            return make()
        tensor = self.recorder.unwatched(make)
        self.deferred_tensors[id(tensor)] = tensor, make
        return tensor  # type: ignore[no-any-return]

    def demand(self, tensor: Any) -> None:
        """Something looks at a tensor, or computes with it: if it was deferred, it is recorded here."""
        found = self.deferred_tensors.get(id(tensor))
        if found is not None:
            self.replace(tensor, found[1])

    def replace(self, tensor: Tensor, make: Callable[[], Tensor]) -> None:
        """A tensor of the call is from now on what make() makes, which has the same contents."""
        self.deferred_tensors.pop(id(tensor), None)
        top, state.top = state.top, self
        try:
            made = self.recorder.containers.native(make)
        finally:
            state.top = top
        self.recorder.keep.append(made)
        self.become(tensor, made)
        self.values[id(tensor)] = value = self.values[id(made)]
        self.defined[value] = tensor

    @staticmethod
    def become(tensor: Tensor, made: Tensor) -> None:
        """Give a tensor of the call the contents of another one, its memory and its place on the tape."""
        for name in _CONTENTS if made._base is None else (*_CONTENTS, *_OF_VIEWS):
            setattr(tensor, name, getattr(made, name))

    # -- changes
    def _become_leaf(self, tensor: Tensor, requires: bool) -> None:
        """A tensor of the program's own begins, or ends, to be a leaf that requires grad.  What it was computed from gets no gradient
        by way of it: from here on it is a value of its own."""
        value = self.values[id(tensor)]
        made = self.producer(value)
        if made is None or made.op.kind is not Kind.CREATION:
            self.nodes.append(Node(REGISTRY["detach"], (value,), (), (self._define(tensor),), user_line()))
        if requires:
            self.requires_grad.add(self.values[id(tensor)])
        else:
            self.requires_grad.discard(self.values[id(tensor)])

    def _switch(self, tensor: Tensor) -> None:
        """An outside leaf begins, or ends, to require grad: a value of its own, until it is as it was."""
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
        """`tensor` is about to be bound to the memory of `data`: a leaf that is detached from it, and has its memory."""
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
        self.nodes.append(Node(REGISTRY["detach"], (value,), (), (self._define(tensor, data),), user_line()))
        recorder.keep.append(tensor)
        if outside:
            self.rebound.setdefault(id(tensor), (tensor, former, len(self.nodes)))
            recorder.effects.note_store((id(tensor), "data"), DataStore(tensor, data))

    def _begin_leaf(self, tensor: Tensor, data: Tensor) -> None:
        """`tensor`, which the call has made, is bound to the memory of `data`."""
        value, recorder = self.value_of(data), self.recorder
        if value is None or recorder.is_outside(tensor) or type(data._storage) is DataStorage:
            recorder.stop("tensor_origin", f"a {type(tensor).__name__} is made of it")
            return
        self.nodes.append(Node(REGISTRY["detach"], (value,), (), (self._define(tensor),), user_line()))
        recorder.keep.append(tensor)

    def _becomes_view(self, tensor: Tensor, view: Tensor) -> bool:
        """A tensor of the call is about to be what a view of it is: a value of its own from now on.  False for others, where something else
        has its memory, and where the elements come to lie in another order."""
        before, value, recorder = self.values.get(id(tensor)), self.value_of(view), self.recorder
        if before is None or value is None or recorder.is_outside(tensor) or tensor.requires_grad:
            return False
        known = self._looked_through()
        own = known.roots.get(before, before)
        views = [v for v, root in known.roots.items() if root == own and known.makers[v].op.kind is Kind.VIEW]
        is_shared = any(number._late.source is tensor for number in recorder.arrays.left.values())
        if is_shared or any(self.defined[v] is not view for v in views) or not _lies_alike(tensor, view):
            return False
        self.nodes.append(Node(REGISTRY["clone"], (value,), (), (self._define(tensor, view),), user_line()))
        recorder.keep.append(tensor)
        return True

    def _root(self, value: int | None) -> int | None:
        """The value that owns the memory of this one."""
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
        known = self._looked_through()
        return known.roots.get(value, value) in known.written

    def writes_outside(self) -> bool:
        """Whether the call has written to memory from outside, but for the states of generators."""
        return bool(self._written_tensors())

    def writes_to(self, array: Any) -> bool:
        """Whether the call has written to the memory of an array from outside."""
        return any(np.may_share_memory(tensor._array, array) for tensor in self._written_tensors())

    def _looked_through(self) -> _WrittenCache:
        known = self._makers
        if known.nodes and (len(self.nodes) < known.nodes or self.nodes[known.nodes - 1] is not known.last):
            known = self._makers = _WrittenCache()
        for node in self.nodes[known.nodes :]:
            known.makers.update(dict.fromkeys(node.outputs, node))
            if node.op.kind in (Kind.VIEW, Kind.WRITE):
                own = known.roots.get(node.operands[0], node.operands[0])
                known.roots.update(dict.fromkeys(node.outputs, own))
                if node.op.kind is Kind.WRITE:
                    known.written.add(own)
            known.nodes, known.last = known.nodes + 1, node
        return known

    def producer(self, value: int) -> Node | None:
        """The node that made a value; None for inputs."""
        return self._looked_through().makers.get(value)

    def _written_tensors(self) -> list[Tensor]:
        """The tensors from outside whose memory the call has written to, but for the states of generators."""
        tensors = [self.inputs.get(own) for own in self._looked_through().written]
        return [tensor for tensor in tensors if tensor is not None and id(tensor) not in self.states]

    # -- code of the program that the library calls
    def call(self, function: Any, *arguments: Any) -> Any:
        recorder = self.recorder
        return (
            function(*arguments)
            if recorder.stopped
            else recorder.contents.concrete_contents(recorder.calls.call(function, arguments, {}))
        )

    def built(self, value: Any) -> Any:
        return value if self.recorder.stopped else self.recorder.mark_created(value)

    def call_method(self, owner: Any, name: str, *arguments: Any) -> Any:
        recorder = self.recorder
        if recorder.stopped:
            return state.base.call_method(owner, name, *map(plain, arguments))
        given = tuple([a if isinstance(a, Tensor) else recorder.mark_created(a) for a in arguments])
        return recorder.contents.concrete_contents(recorder.calls.call(recorder.attributes.get_attribute(owner, name), given, {}))

    def _place(self, node: Any, outputs: tuple[Any, ...]) -> None:
        """`outputs` have got their places at a node with a backward pass of its own."""
        for index, output in enumerate(outputs):
            value = self.values.get(id(output))
            if isinstance(output, Tensor) and value is not None:
                self._by_tape[id(node), index] = value  # also of one without a gradient, which the node may have saved
                if output._node is node:
                    self.requires_grad.add(value)
        self.recorder.keep.append(node)

    def _read_hooks(self, leaf: Tensor) -> None:
        """The hooks of a leaf are about to run: it has the same in every call."""
        source = self.recorder.tensors.get(id(leaf))
        if source is not None:
            self.recorder.read(leaf._hooks, source.variable.get("_hooks"))
            self.recorder.contents.read_content(leaf._hooks)
            self.hooks_read.add(id(leaf))

    # -- everything else
    def note(self, event: str, *details: Any) -> None:
        recorder = self.recorder
        if recorder.stopped:
            return
        if event == "backward":
            through, reached, _, boundary = details
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
            self._place(*details)
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
