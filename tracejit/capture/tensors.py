"""The interpreter of a recording: evaluates operations eagerly and appends them to the raw graph.

The graph has views and writes in the order of the run.  A value id stands for one version of one tensor object: a write gives its
target a new id.  A Python value that is taken out of a tensor (`bool(x > 0)`) becomes a guard node.  Reads and writes of `.grad`
of leaves from outside go through the recorder, like any other read or effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, compress, repeat, starmap
from operator import attrgetter, itemgetter
from types import CodeType
from typing import Any

import numpy as np

from tracejit.autograd.tape import DataStorage, OpNode
from tracejit.autograd.views import Chain, ViewWriteNode, is_undone_by_operations
from tracejit.capture import library_loops, while_loops
from tracejit.capture.call_sites import user_line
from tracejit.capture.defects import RAISED, isolate_interpreter
from tracejit.capture.found_places import KnownPlaces
from tracejit.capture.handlers.effects import GradStore, GradUse
from tracejit.capture.handlers.post_program import MOST_ELEMENTS, is_post_program
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise, is_symbolic, is_symbolic_bool
from tracejit.capture.path_tree import LoopRecord
from tracejit.capture.recording.journal import Variable
from tracejit.capture.tensor_state import StateRecorder
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import ALL, FROM_NUMPY, INTEGER, DType, float32, float64, int64
from tracejit.core.interpreter import Interpreter, state
from tracejit.core.interrupts import is_foreign
from tracejit.core.numbers import settled
from tracejit.core.op import REGISTRY, Effect, Kind, Op
from tracejit.core.promotion import is_settled, promote, with_tensor
from tracejit.core.shapes import element_strides, equal, filled_strides, product
from tracejit.core.symbolic import SYMBOLIC, SymInt, has_symbols, without_symbols
from tracejit.ir.graph import Literal, Node, Operand, operand_aval
from tracejit.ir.interpreter import StepFailed
from tracejit.ir.layouts import Strided, strided_view
from tracejit.ops.creation import ArrayConstant
from tracejit.ops.indexing import row_indices
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, select
from tracejit.ops.public.random import default_generator
from tracejit.replay.ir import And, Name, Not
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap
from tracejit.tensor.contents import is_data_of

__all__ = ["NodeObserver", "RecordingInterpreter"]

_OWN_CODE = "own code"
_STATIC_SCALARS = "static scalars"
"""Trait of primitives whose scalar operands decide which code is generated: their values are guarded, not passed to the
program."""
_INTEGERS = frozenset(d.name for d in ALL if not d.is_floating_point)
_BOUNDS: dict[str, tuple[int, int]] = {
    "bool": (-(2**63), 2**63 - 1),
    "float16": (-(2**24), 2**24),  # converted by way of float32, which has all integers up to these exactly
    "bfloat16": (-(2**24), 2**24),
    "float32": (-(2**53), 2**53),  # NumPy converts by way of float64: larger integers would be rounded twice
    "float64": (-(2**63), 2**63 - 1),
    **{d.name: (int(np.iinfo(d.numpy).min), int(np.iinfo(d.numpy).max)) for d in ALL if d.category == INTEGER},
}
_ANY_INTEGER = _BOUNDS["int64"]
_EXACT = _BOUNDS["float16"][1]
"""Integers up to this one are numbers of every floating-point dtype that is computed in."""
_NUMBERS_OF_RECORDINGS = frozenset((SymbolicNumber, *SYMBOLIC))
_TENSORS = frozenset({Tensor})
_PLAIN = frozenset({Tensor, float, int, bool, type(None)})
_SIMPLE = frozenset({int, bool, float, str, type(None), DType})
_F32, _F64 = float32.numpy, float64.numpy
_RANDOM, _VIEW = Effect.RANDOM, Kind.VIEW  # members of an enumeration take 0.1 us to find on Python 3.11

NodeObserver = Callable[[Node, tuple[Tensor, ...]], None]
"""Called with each node that is appended and the tensors that it gives."""


class RecordingInterpreter(StateRecorder):
    """Evaluates operations by the eager interpreter and appends them to the graph."""

    _wrote = Variable(False)

    def __init__(self, recorder: Recorder, first_sequence: int, observer: NodeObserver | None = None) -> None:
        """first_sequence: see StateRecorder.  observer: called with each operation that is appended."""
        super().__init__(recorder, first_sequence)
        self._watch = observer
        self.scalars: dict[Name, int] = {}  # prologue variable -> value id
        self.numbers: dict[int, SymbolicNumber] = {}  # value id -> the number that it stands for
        self.path_trees: dict[int, LoopRecord] = {}  # the first value that a loop of paths gives -> what it stands for
        self.loop_constants: set[int] = set()  # values that are made for such loops alone
        self.loops_around: list[Any] = []  # the runs of such loops in progress, the outermost one first
        # By codes of functions and lines of loops in them, what was known when the loop first ran (LoopRun._divide).
        self.divided_before: dict[tuple[Any, int], bool | None] = {}
        self.asked_for_grad = False  # whether something may depend on which tensors require grad
        # In a step of one: what tensors held before the step was the first to write to them, or draw from them, by ids.
        self.contents_before: dict[int, np.ndarray[Any, Any]] | None = None
        self.places_found: dict[CodeType, KnownPlaces] = {}  # by codes of steps of branching loops
        self.before_write: Callable[[Tensor], None] | None = None  # is told of these before the write
        self.path_nodes = 0  # operations of the bodies that have been made of paths
        # code of a step -> tensors from before it that it has written to, each with the variable of the step that holds it, or ""
        self.written_in_steps: dict[Any, list[tuple[str, Tensor]]] = {}
        self.left_out = 0  # number of skipped steps of loops (loop_recogniser.py)
        self.remarks: list[str] = []  # why loops did not become loop nodes (while_loops.py, loop_recogniser.py)
        recorder.interpreter = self
        # (position, view that it selects, version of the view's memory), for views at symbolic positions.
        self._moving: list[tuple[SymbolicNumber, Tensor, int]] = []
        # (value, exact) -> the node that defines it, and its strides.
        self._cached_strides: dict[tuple[int | None, bool], tuple[Node, tuple[int, ...] | None]] = {}
        self._patched: list[tuple[Any, str, tuple[Any, ...]]] = []
        self._patched_writes: list[tuple[Any, str, tuple[Any, ...]]] = []
        self._has_plain_writes = False  # whether some writes through views stay on the tape with plain numbers
        has_inputs = map(attrgetter("inputs"), map(itemgetter(0), self._patched))
        self.restoring = chain(starmap(setattr, compress(self._patched, has_inputs)), starmap(setattr, self._patched_writes))
        """An iterator; exhausting it after the recording gives the tape its plain numbers back.  It is made of C functions alone,
        so that no signal handler can interrupt it."""
        self._guard = REGISTRY["guard"]

    # -- operands
    def _scalar(self, number: SymbolicNumber, bounds: tuple[int, int]) -> Operand:
        """A symbolic number as an operand of an operation that takes integers within `bounds`.  The program gets it as an input
        and the entry guards its bounds; a number outside the bounds is guarded by its value."""
        if (symbol := self.recorder.sizes.symbol(number)) is not None:
            return self._literal(symbol, bounds)
        if type(number._value) is int:
            low, high = bounds
            if not low <= number._value <= high:
                return self._literal(concretise(number), bounds)
            self.recorder.miss_if(Not(And((number._name.compared(">=", low), number._name.compared("<=", high)))))
        value = self.scalars.get(number._name)
        if value is None:
            value = self.scalars[number._name] = self._fresh(ScalarAval(type(number._value)))
            self.numbers[value] = number
        return value

    def _literal(self, value: int | float, bounds: tuple[int, int]) -> Operand:
        if isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
            self.recorder.stop("number_range", f"{value}, expected {bounds[0]} to {bounds[1]}")
        return Literal(value)

    def _operand(self, op: Op, operand: Any, bounds: tuple[int, int]) -> Operand:
        if isinstance(operand, Tensor):
            value = self.value_of(operand)
            if value is None:
                self.recorder.stop("tensor_origin", f"operand of {op.name}")
            return value
        if is_post_program(operand):
            return self.value_of(self.recorder.in_program.as_position(operand))
        if is_symbolic_bool(operand):
            return self._literal(concretise(operand), bounds)
        if is_symbolic(operand):
            return self._scalar(operand, bounds)
        if operand is None:
            return None
        if isinstance(operand, (bool, int, float)):
            return self._literal(operand, bounds)
        self.recorder.stop("tensor_origin", f"{type(operand).__name__} operand of {op.name}")
        return None

    # -- operations
    def bind(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        recorder = self.recorder
        if op.writes:
            self._before_write(operands[0])
        if recorder.stopped:
            return state.base.bind(op, tuple(map(plain, operands)), {k: _attribute(v) for k, v in attributes.items()})
        if attributes:
            attributes = {k: _attribute(v) for k, v in attributes.items()}
        if (settled_operands := self._fast_path_operands(op, operands)) is not None:
            return self._evaluated(op, operands, *settled_operands, attributes)
        post_program_values: dict[int, int] = {}  # id of a post-program number -> the value that stands for it
        kinds = set(map(type, operands))
        # The usual case, in which all that concerns numbers is skipped.
        all_tensors = kinds <= _TENSORS or all(map(issubclass, kinds, repeat(Tensor)))
        all_plain = all_tensors or kinds <= _PLAIN  # no symbolic numbers and no numbers of NumPy
        if not all_plain:
            if any(map(is_post_program, operands)):
                operands = tuple([recorder.extracted_numbers.for_tensor_work(x) if is_post_program(x) else x for x in operands])
                if (
                    "uniform" in op.traits
                    and is_post_program(operands[0])
                    and (result := self._full_of_post_program(operands[0], attributes)) is not None
                ):
                    return result
                operands, post_program_values = self._with_post_program_values(op, operands)
            operands = tuple(map(settled, operands))
        recordable = all_plain or all(x is None or isinstance(x, (Tensor, int, float)) for x in operands)
        if recordable:  # else the eager interpreter raises
            if op.keeps_dtype and not is_settled(op, [x._array if isinstance(x, Tensor) else x for x in operands]):
                operands = promote(op, with_tensor(op, operands))
            is_float32 = all_tensors and operands and operands[0]._array.dtype is _F32  # which is no reduced dtype
            if not is_float32 and (reduced := op.reduced(operands)) is not None:
                return op.in_float32(operands, attributes, reduced)
        if _STATIC_SCALARS in op.traits:
            operands = tuple([x if id(x) in post_program_values else concretise(x) for x in operands])
        recorded: tuple[Operand, ...] = ()
        if recordable:
            has_integers = not all_tensors and any(map(_is_integer, operands))
            bounds = _integer_bounds(op, operands, attributes) if has_integers else _ANY_INTEGER
            values = self.values
            recorded = tuple(
                [
                    v
                    if (v := values.get(id(x))) is not None or (v := post_program_values.get(id(x))) is not None
                    else self._operand(op, x, bounds)
                    for x in operands
                ]
            )
        return self._evaluated(op, operands, operands if all_plain else tuple(map(plain, operands)), recorded, attributes)

    def _fast_path_operands(self, op: Op, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Operand, ...]] | None:
        """A fast path for operands that need no conversion and no promotion: the operands for the eager interpreter, and those of
        the node.  They are tensors, all float32 or all float64, floats, float numbers of the prologue, and small integers.  None for
        other operands."""
        if op.keeps_dtype and not op.is_plain:
            return None
        value_by_id, dtype, has_numbers = self.values.get, None, False
        recorded: list[Any] = []
        others: list[int] = []  # positions of tensors that have no value id yet, and of numbers of the prologue
        for x in operands:
            value = value_by_id(id(x))  # a value id if x is a tensor: `values` only has ids of tensors that are alive
            if value is not None:
                if dtype is None:
                    dtype = x._array.dtype
                elif x._array.dtype is not dtype:
                    return None
                recorded.append(value)
            elif x is None:
                recorded.append(None)
            elif type(x) is float or (type(x) is int and op.is_plain and -_EXACT <= x <= _EXACT):
                recorded.append(Literal(x))
            elif type(x) is SymbolicNumber and x._post_program is None and type(x._value) is float:
                has_numbers = True
                others.append(len(recorded))
                recorded.append(x)
            elif isinstance(x, Tensor) and (dtype is None or x._array.dtype is dtype):
                dtype = x._array.dtype
                others.append(len(recorded))
                recorded.append(x)
            else:
                return None
        if not (dtype is _F32 or dtype is _F64) or (has_numbers and _STATIC_SCALARS in op.traits):
            return None
        for k in others:
            recorded[k] = self._operand(op, recorded[k], _ANY_INTEGER)
        return tuple(map(plain, operands)) if has_numbers else operands, tuple(recorded)

    def _evaluated(
        self,
        op: Op,
        operands: tuple[Any, ...],
        given: tuple[Any, ...],
        recorded: tuple[Operand, ...],
        attributes: Mapping[str, Any],
    ) -> Any:
        """The eager interpreter's result of an operation, which is appended to the graph.  given: the operands without stand-ins.
        recorded: the operands of the node."""
        recorder, base, has_own_code = self.recorder, state.base, _OWN_CODE in op.traits
        env = recorder.sizes.env
        is_plain_write = op.writes and self._is_plain_write(op, operands)
        if op.writes and self.contents_before is not None:
            self.note_contents(self._owner_of_memory(operands[0]))
        recorder.native_depth += 1
        try:
            state.top = base  # operations of signal handlers and finalizers that run meanwhile are not recorded
            if env is not None:
                env.pause()
            if has_own_code:
                result = recorder.unwatched(partial(base.bind, op, given, attributes))
            else:
                result = base.bind(op, given, attributes)
        except Exception as error:
            if env is not None:
                env.resume()
                env = None
            if type(error) is not StepFailed:  # for which the recorder of a loop node runs the steps again, one by one
                self._failed(op, operands, attributes)
                recorder.performed.append((RAISED, id(error)))
            raise
        finally:
            if env is not None:
                env.resume()
            state.top = self
            recorder.native_depth -= 1
        if op.writes or op.effect is _RANDOM:
            recorder.performed.append((op, result))
        if not recorder.stopped:
            node = self._append(
                op,
                operands,
                recorded,
                tuple(sorted(attributes.items())) if attributes else (),
                result,
                recorder.line or self._line(),
            )
            if not has_own_code:
                self.evaluated[node.outputs[0]] = state.grad_enabled
            if given is not operands:
                self._save_symbols(op, operands, result)
            if is_plain_write:
                self.requires_grad.discard(node.outputs[0])
        return result

    def _owner_of_memory(self, x: Tensor) -> Tensor:
        """The tensor that `x` is a view of, for a view that the step of a branching loop has made; `x.data` is one of `x`."""
        changes, value = self.recorder.effects.step_changes, self.values.get(id(x), -1)
        makers, owner = self._written_cache().makers, x if x._base is None else x._base
        while changes is not None and value >= changes.first_value and (maker := makers.get(value)) is not None:
            if maker.op.kind not in (Kind.VIEW, Kind.WRITE):
                break
            value: Any = maker.operands[0]  # type: ignore[no-redef]
            owner = self.defined.get(value, owner)
        return owner

    def note_contents(self, x: Tensor) -> None:
        """Note what a tensor holds before a step writes to it."""
        if self.contents_before is not None and id(x) not in self.contents_before:
            self.contents_before[id(x)] = x._array.copy()
            if self.before_write is not None:
                self.before_write(x)

    @staticmethod
    def _is_plain_write(op: Op, operands: Sequence[Any]) -> bool:
        return op.writes and not (state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in operands))

    def _with_post_program_values(self, op: Op, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[int, int]]:
        """(the operands, where a post-program number without a value in the graph is replaced by its value, which is guarded; id of
        a post-program number -> the value that stands for it in the graph).

        Such a value is a tensor of the program, in elementwise primitives that one NumPy function evaluates, since that treats a
        number and a tensor alike.  The tape gets the number itself, as in eager mode.  Positions of views stay symbolic."""
        if "position operand" in (op.region or op).traits:
            known = [concretise(x) if is_post_program(x) and not self.recorder.in_program.is_position(x) else x for x in operands]
            return tuple(known), {}
        promoted = operands[1:] if "condition first" in op.traits else operands
        dtypes = {FROM_NUMPY[x._array.dtype] for x in promoted if isinstance(x, Tensor)}
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        if not ((op.is_plain and op.ufunc) or "condition first" in op.traits) or dtype not in (float32, float64):
            return tuple([concretise(x) if is_post_program(x) else x for x in operands]), {}
        values: dict[int, int] = {}
        for x in operands:
            if is_post_program(x) and isinstance(tensor := self.recorder.in_program.as_operand(x, dtype), Tensor):
                values[id(x)] = self.values[id(tensor)]
        return tuple([x if id(x) in values else concretise(x) if is_post_program(x) else x for x in operands]), values

    def _full_of_post_program(self, number: Any, attributes: Mapping[str, Any]) -> Any:
        """`full(shape, number)` for a post-program number; None if its value has to be guarded."""
        dtype = attributes["dtype"]
        value = None
        if dtype in (float32, float64):
            value = self.recorder.in_program.as_operand(number, dtype)
        elif dtype is int64 and type(number._value) is int:
            value = number._post_program.program_tensor()
            value = None if value is None else self.bind(REGISTRY["reshape"], (value,), {"shape": ()})
        if not isinstance(value, Tensor):
            return None
        value = self.bind(REGISTRY["expand"], (value,), {"shape": attributes["shape"]}) if attributes["shape"] else value
        return self.bind(REGISTRY["clone"], (value,), {})

    def _failed(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> None:
        """An operation has raised.  User code may catch the error, and then the recording continues if every later call raises
        it, too: if the metadata of the operands, which are guarded, cause the error.  If contents do, the recording stops."""
        for operand in operands:
            concretise(operand)
        try:
            op.infer(*[x._aval if isinstance(x, Tensor) else plain(x) for x in operands], **attributes)
        except Exception as error:
            if is_foreign(error):
                raise
            return
        self.recorder.stop("tensor_contents", f"an error of {op.name}() that depends on them")

    def _before_write(self, target: Any) -> None:
        if isinstance(target, Tensor):
            self.recorder.ragged.before_write(target)
            self.recorder.stop_for_aliases(target)

    def _line(self) -> str:
        """The user's line ("file:line") that an operation comes from."""
        recorder = self.recorder
        if recorder.line is None:
            return user_line()
        if not recorder.line:
            recorder.line = user_line()
        return recorder.line

    def evaluating(self, action: Callable[[], Any]) -> Any:
        """The result of `action`, which runs no user code.  Restores grad mode."""
        grad_enabled = state.grad_enabled
        try:
            return self.recorder.unwatched(action)
        finally:
            state.grad_enabled = grad_enabled

    def rows(self, tensor: Tensor) -> list[Tensor]:
        """`list(tensor)`, with a cheap recording of all rows but the first."""
        if (
            self.recorder.sizes.are_noted
            or len(tensor._array) < 2
            or type(tensor).__iter__ is not Tensor.__iter__
            or state.top is not self
        ):
            return list(tensor)
        first, grad_enabled = select.of(tensor, 0, dim=0), state.grad_enabled
        if self.recorder.stopped:
            return list(tensor)
        others = self.evaluating(lambda: self._other_rows(tensor, self.nodes[-1], grad_enabled))
        return [first, *others]

    def _other_rows(self, tensor: Tensor, node: Node, grad_enabled: bool) -> list[Tensor]:
        """The rows of a tensor except the first, which `node` has selected."""
        state.grad_enabled = grad_enabled
        bind, attributes, (value, _) = state.base.bind, node.attrs, node.operands
        rows = []
        for k in range(1, len(tensor._array)):
            row = bind(select, (tensor, k), attributes)
            self._append(select, (tensor, k), (value, Literal(k)), node.attributes, row, node.line)
            self.evaluated[self.nodes[-1].outputs[0]] = grad_enabled
            rows.append(row)
        return rows

    def copied(self, value: int) -> Tensor:
        """A new tensor with the contents of a value to which nothing has been written."""
        copy = wrap(self.defined[value]._array.copy())
        self._append_same(clone, value, copy)
        return copy

    def _append(
        self,
        op: Op,
        operands: Sequence[Any],
        recorded: tuple[Operand, ...],
        attributes: tuple[tuple[str, Any], ...],
        result: Any,
        line: str,
    ) -> Node:
        """Append a node for an operation that has been evaluated.  operands: as user code gave them, for the tape.  recorded,
        attributes, line: those of the node.  result: of the operation."""
        outputs: tuple[Tensor, ...] = result if op.multiple else (result,)
        sizes = self.recorder.sizes
        has_symbols = sizes.env is not None and sizes.are_noted
        shapes = self._symbolic_shapes(op, recorded, attributes, outputs) if has_symbols else None
        if shapes is None and not op.multiple:
            values: tuple[int, ...] = (self._define(result),)
        else:
            values = tuple(map(self._define, outputs, repeat(None), shapes or repeat(None)))
        node = Node(op, recorded, attributes, values, line)
        self.nodes.append(node)
        tape_node = next((x._node for x in outputs if x._node is not None), None)
        if op.multiple and tape_node is not None:
            # The node of the tape may also have saved outputs that do not require grad, such as positions and masks.
            self._by_tape.update([((id(tape_node), k), v) for k, v in enumerate(values) if outputs[k]._node is None])
        if shapes is not None:
            self._set_symbolic_shapes(op, recorded, values, tape_node)
        if "dynamic shape" in op.traits and op is not row_indices:
            self.recorder.branch([x._array.shape for x in outputs])
        if self._watch is not None:
            self._watch(node, outputs)
        if op.writes:
            self._wrote = True
            if type(outputs[0]._storage) is DataStorage:
                self.uncounted.add(node.outputs[0])
            if outputs[0]._base is not None:
                base_node = outputs[0]._base._node
                if base_node is not None:
                    self.recorder.keep.append(base_node)
                if isinstance(base_node, ViewWriteNode) and not self._is_plain_write(op, operands):
                    self._save_write(base_node, *recorded)  # type: ignore[arg-type]
        return node

    def _symbolic_shapes(
        self, op: Op, recorded: tuple[Operand, ...], attributes: tuple[tuple[str, Any], ...], outputs: tuple[Tensor, ...]
    ) -> list[tuple[int, ...] | None] | None:
        """The shape of each output, by the shape rule: None for an output without symbolic sizes.  None for all if no operand or
        attribute has symbolic sizes, or the rule fails."""
        if not any(type(x) is int and x in self.sized for x in recorded) and not any(
            has_symbols(value) for _, value in attributes
        ):
            return None
        if op is row_indices:
            return None
        sizes = self.recorder.sizes
        plain_operands = [Literal(without_symbols(x.value)) if isinstance(x, Literal) else x for x in recorded]
        infer = partial(op.infer_tuple, [operand_aval(x, self.avals) for x in plain_operands], dict(attributes))
        try:
            inferred = self.recorder.unwatched(infer) if _OWN_CODE in op.traits else infer()
        except Exception as error:
            if is_foreign(error):
                raise
            sizes.give_up(f"the shape rule of {op.name} raises {type(error).__name__}: {error}")
            return None
        shapes: list[tuple[int, ...] | None] = []
        for aval, out in zip(inferred, outputs, strict=True):
            if tuple(map(without_symbols, aval.shape)) != out._array.shape:
                sizes.give_up(f"the shape of {op.name} depends on data")
                return None
            is_of_sizes = has_symbols(aval.shape)
            shapes.append(aval.shape if is_of_sizes else None)
            if is_of_sizes:  # guard which sizes are 0, 1 or more: NumPy treats strides of sizes below 2 in another way
                for size in aval.shape:
                    bool(size > 1 or size == 1)
        if "reshapes" in op.traits and type(recorded[0]) is int:  # guard the number of elements, which its rule leaves to NumPy
            equal(product(self.avals[recorded[0]].shape), product(inferred[0].shape))  # type: ignore[union-attr]
        return shapes

    def _set_symbolic_shapes(self, op: Op, recorded: tuple[Operand, ...], values: tuple[int, ...], node: Any) -> None:
        """Put symbolic shapes into a node of the tape, for a recorded backward pass that reads them."""
        if not isinstance(node, OpNode) or node.op is not op or len(node.needs) != len(recorded):
            return
        node.out_meta = self._shape_of_value(values[0]), node.out_meta[1]
        if node.meta is not None:
            node.meta = tuple(
                [
                    (self._shape_of_value(x), m[1]) if m is not None and type(x) is int else m
                    for x, m in zip(recorded, node.meta, strict=True)
                ]
            )

    def _shape_of_value(self, value: int) -> tuple[int, ...]:
        return self.avals[value].shape  # type: ignore[union-attr]

    def is_row_major(self, tensor: Tensor) -> bool:
        """Whether a tensor is row-major in memory of its own, for all values of its symbolic sizes."""
        value = self.values.get(id(tensor))
        maker = None if value is None else self.producer(value)
        is_own = id(tensor) not in self.recorder.sizes.strides if maker is None else maker.op.kind not in (Kind.VIEW, Kind.WRITE)
        return is_own and tensor._array.flags.c_contiguous

    def symbolic_strides(self, tensor: Tensor, value: int | None = None, exact: bool = True) -> tuple[int, ...] | None:
        """The strides of a tensor in elements, as functions of symbolic sizes; None if they are unknown, and then the recording
        gives its symbolic sizes up.  They are known of tensors that fill their memory, of arguments, and of views of these.

        value: an earlier version of the tensor.  exact: whether strides of dimensions of one element have to be right, too."""
        value = self.values.get(id(tensor)) if value is None else value
        maker = None if value is None else self.producer(value)
        key = value, exact
        if maker is None or self._cached_strides.get(key, (None,))[0] is not maker:
            strides = self._derived_strides(tensor, value, maker, exact)
            if maker is None:
                return strides
            self._cached_strides[key] = maker, strides
        return self._cached_strides[key][1]

    def _derived_strides(self, tensor: Tensor, value: int | None, maker: Node | None, exact: bool) -> tuple[int, ...] | None:
        array = tensor._array
        shape = self.symbolic_shape(tensor) if value is None else self._shape_of_value(value)
        strides = element_strides(array)
        result = filled_strides(array.shape, strides, array.shape if shape is None else shape)
        if result is None and (value is None or value in self.inputs):
            result = self.recorder.sizes.strides.get(id(tensor), None if has_symbols(shape) else strides)

        def is_right(some: tuple[int, ...]) -> bool:
            seen = zip(map(without_symbols, some), strides, array.shape, strict=True)
            return all(a == b or (n == 1 and not exact) for a, b, n in seen)

        if maker is not None and maker.op.kind is Kind.WRITE and type(maker.operands[0]) is int:
            return self.symbolic_strides(tensor, maker.operands[0], exact)
        if maker is not None and maker.op.kind is Kind.VIEW and type(maker.operands[0]) is int:
            # A view may fill a block of memory by chance (with this step, up to this end): its base and its operands decide.
            base = self.symbolic_strides(self.defined[maker.operands[0]], maker.operands[0], exact)
            before, after = self._shape_of_value(maker.operands[0]), self._shape_of_value(maker.outputs[0])
            if base is not None:
                whole = Strided(maker.operands[0], 0, base)
                layouts = [strided_view(maker, whole, before, after, unseen) for unseen in (False, True)]
                right = [layout for layout in layouts if layout is not None and is_right(layout.strides)]
                result = right[-1].strides if right else result
        if result is None or not is_right(result):
            self.recorder.sizes.give_up(f"how a tensor of shape {list(array.shape)} lies in memory may depend on sizes")
            return None
        return result

    def note(self, event: str, *details: Any) -> None:
        if event == "gradient arrived":
            if not self.recorder.stopped and (hindrance := self.recorder.branches.note_gradient(self._leaf(details[0]))):
                self.recorder.stop("branching_loop", hindrance)
            return
        gradients = self.gradients
        if event == "backward" and self._wrote and self._has_plain_places(details[0]):
            for number, view, version in self._moving:
                if self.uncounted or view._version != version:
                    concretise(number)
        super().note(event, *details)
        is_same = event == "data assigned" and is_data_of(details[1], details[0])  # as after `x.data -= 1`
        if self.gradients == gradients and not is_same:  # backward passes are counted there
            self.journal.note()

    def _has_plain_places(self, through: Iterable[Any]) -> bool:
        """Whether some of these nodes of the tape have plain numbers in place of symbolic ones: the tape has replayed views after
        a write to their memory."""
        recorded_nodes = {node for node, _ in self._by_tape}
        return (
            bool(self.uncounted)
            or self._has_plain_writes
            or any(
                isinstance(node, OpNode)
                and node.op.kind is Kind.VIEW
                and node.sequence >= self.first_sequence
                and id(node) not in recorded_nodes
                for node in through
            )
        )

    def _save_symbols(self, op: Op, operands: Sequence[Any], result: Any, has_numbers: bool = False) -> None:
        """Put symbolic operands, and tensors that stand for numbers, into the node of the tape until the recording ends, so that a
        recorded backward pass uses them.  has_numbers: whether there are such tensors."""
        if not has_numbers and _NUMBERS_OF_RECORDINGS.isdisjoint(map(type, operands)):
            return
        output: Tensor = result[0] if op.multiple else result
        if op.kind is _VIEW:
            self._moving += [(x, output, output._version) for x in operands if is_symbolic(x)]
        node: Any = output._node
        saved = getattr(node, "inputs", ())
        if len(saved) == len(operands):
            node.inputs = tuple(
                [
                    x if type(x) in _NUMBERS_OF_RECORDINGS or (isinstance(x, Tensor) and type(y) in (int, float)) else y
                    for x, y in zip(operands, saved, strict=True)
                ]
            )
            self._patched.append((node, "inputs", saved))

    def _save_write(self, node: ViewWriteNode, target: int, value: int) -> None:
        """Put symbolic numbers into the tape's node of a write through a view: the positions of the views and the shape of the
        written value.  target, value: value ids of the view and of what is written."""
        views = self._views_of(target)
        if views is None or [op for op, *_ in views] != [op for op, *_ in node.chain] or not is_undone_by_operations(node.chain):
            self._has_plain_writes = True
            return
        self._patched_writes += [(node, "chain", node.chain), (node, "value_shape", node.value_shape)]
        node.chain = views
        if value in self.sized:
            node.value_shape = self._shape_of_value(value)

    def _views_of(self, value: int) -> Chain | None:
        """The views that lead from the tensor that owns the memory to this view; None if one has a position that is not a number
        of the recording."""
        steps: list[Any] = []
        maker = self.producer(value)
        while maker is not None and maker.op.kind in (Kind.VIEW, Kind.WRITE):
            base, *others = maker.operands
            if maker.op.kind is Kind.VIEW and maker.op is not detach:
                if any(type(x) is int and x not in self.numbers for x in others):
                    return None
                numbers = [x.value if isinstance(x, Literal) else self.numbers[x] if type(x) is int else x for x in others]
                steps.append((maker.op, tuple(numbers), maker.attrs))
            maker = self.producer(base)  # type: ignore[arg-type]
        return tuple(steps[::-1])

    def run_scan(
        self, step: Any, carried: list[Any], sliced: list[Any], count: int, reverse: bool, shared: list[Any] | None = None
    ) -> Any:
        own = step if shared is None else lambda on, slices: step(on, slices, shared)
        return library_loops.record_scan(self, own, carried, sliced, count, reverse)

    def run_while_loop(self, condition: Any, step: Any, carried: list[Any]) -> Any:
        return while_loops.record_while_loop(self, condition, step, carried)

    # -- Python values of tensors
    def take(self, tensor: Tensor) -> Any:
        value = state.base.take(tensor)
        if not self.recorder.stopped:
            operand = self.value_of(tensor)
            if operand is None:
                self.recorder.stop("tensor_origin", "its value is read")
            else:
                expected = (("expected", Literal(value)),)
                self.nodes.append(Node(self._guard, (operand,), expected, (), user_line()))
                self.recorder.branch(value)
        return value

    def take_number(self, tensor: Tensor) -> Any:
        """`tensor.item()`: a post-program number (handlers/extracted_numbers.py)."""
        value = state.base.take(tensor)
        recorder = self.recorder
        if recorder.stopped:
            return value
        operand = self.value_of(tensor)
        if operand is None or type(value) is bool:
            return self.take(tensor)
        return recorder.extracted_numbers.define_element(
            self._kept(operand, tensor, float64 if type(value) is float else int64), value
        )

    def take_numbers(self, tensor: Tensor) -> Any:
        self.recorder.sizes.pin(tensor)
        array, recorder = tensor._array, self.recorder
        operand = None if recorder.stopped or array.dtype.kind == "b" or array.size > MOST_ELEMENTS else self.value_of(tensor)
        if operand is None:
            return self.take_list(tensor).tolist()
        return recorder.extracted_numbers.define_elements(
            self._kept(operand, tensor, int64 if array.dtype.kind in "iu" else float64)
        )

    def varying_slice(self, tensor: Tensor, dim: int, start: Any, stop: Any, length: Any = None) -> tuple[Any, Any] | None:
        return self.recorder.containers.varying_slice(tensor, dim, start, stop, length)

    def take_array(self, tensor: Tensor) -> Any:
        self.recorder.sizes.pin(tensor)
        array, recorder = state.base.take_array(tensor), self.recorder
        if recorder.stopped:
            return array
        if self.value_of(tensor) is None:
            recorder.stop("tensor_origin", "its array is used")
            return array
        return recorder.arrays.define_array(tensor, array)

    def share_array(self, array: Any, canonical: Any) -> Any:
        recorder = self.recorder
        if recorder.stopped or not recorder.arrays.forget_contents(array):
            recorder.stop("tensor_state", "a tensor on the memory of an array")
            return state.base.share_array(array, canonical)
        tensor = state.base.share_array(array, canonical)
        self._append(REGISTRY["constant"], (), (), (("array", ArrayConstant(array.copy())),), tensor, self._line())
        return tensor

    def warn(self, message: str) -> None:
        if self.recorder.stopped:
            state.base.warn(message)
        else:
            self.recorder.printing.warned(message)

    def copy_of_contents(self, tensor: Tensor) -> Tensor | None:
        """A copy of a tensor that no user code sees, so that later writes do not reach it.  None if the tensor's origin is
        unknown: the recording stops."""
        operand = self.value_of(tensor)
        if operand is None:
            self.recorder.stop("tensor_origin", "it is read")
            return None
        return self._kept(operand, tensor, FROM_NUMPY[tensor._array.dtype])

    def _kept(self, operand: int, tensor: Tensor, dtype: DType) -> Tensor:
        same = FROM_NUMPY[tensor._array.dtype] is dtype
        copy = wrap(tensor._array.astype(dtype.numpy))
        op, attributes = (REGISTRY["clone"], ()) if same else (REGISTRY["cast"], (("dtype", dtype),))
        self.evaluated[self._append_same(op, operand, copy, attributes=attributes)] = False
        return copy

    def take_list(self, tensor: Tensor) -> Any:
        self.recorder.sizes.pin(tensor)
        self.recorder.stop("tensor_contents", f"shape {list(tensor._array.shape)}")
        return state.base.take_list(tensor)

    # -- gradients of leaves
    def _leaf(self, tensor: Tensor) -> Tensor:
        """The leaf that a tensor stands for in a step of a loop, where passes leave gradients; `tensor` itself if it stands for none."""
        leaf: Tensor = self.recorder.stands_for(tensor)
        return leaf if leaf is not tensor and tensor.is_leaf else tensor

    def read_grad(self, tensor: Tensor) -> Any:
        recorder, tensor = self.recorder, self._leaf(tensor)
        value = state.base.read_grad(tensor)
        self._note_grad(GradUse(tensor, value, is_read=True))
        if recorder.stopped or (id(tensor), "_grad") in recorder.effects.written:
            return value
        source = recorder.tensors.get(id(tensor))
        return value if source is None else recorder.read(value, source.variable.get("_grad"))

    def write_grad(self, tensor: Tensor, value: Any) -> None:
        tensor = self._leaf(tensor)
        self._note_grad(GradUse(tensor, tensor._grad, is_stored=True))
        state.base.write_grad(tensor, value)
        recorder = self.recorder
        if recorder.stopped:
            return
        source = recorder.tensors.get(id(tensor))
        if source is not None:
            recorder.effects.note_store((id(tensor), "_grad"), GradStore(tensor, value))
        elif id(tensor) not in self.values:
            recorder.stop("outside_graph", "a leaf that was not read in the call")
        elif not self._is_from_before_step(tensor):
            self.leaves.append(self.values[id(tensor)])

    def _is_from_before_step(self, tensor: Tensor) -> bool:
        """Whether a tensor of the call was there before the step of a branching loop that runs."""
        changes = self.recorder.effects.step_changes
        return changes is not None and self.defined_before(tensor, changes.first_value)

    def defined_before(self, tensor: Tensor, first: int) -> bool:
        """Whether a tensor of the call was there before values with numbers from `first` on."""
        value: Any = self.values.get(id(tensor), first)
        makers = self._written_cache().makers
        while value >= first and (maker := makers.get(value)) is not None and maker.op.kind is Kind.WRITE:
            value = maker.operands[0]
        return bool(value < first)

    def _note_grad(self, use: GradUse) -> None:
        """Note what a step of a branching loop does with the gradient of a leaf."""
        if (changes := self.recorder.effects.step_changes) is not None:
            changes.note_grad(use)

    # -- random numbers
    def draw(self, generator: Any, op: Op, attributes: Mapping[str, Any], count: int) -> Any:
        self.use_generator(generator)
        recorder, tensor = self.recorder, generator.state()
        value = None if recorder.stopped else self.value_of(tensor)
        attributes = {k: _attribute(v) for k, v in attributes.items()}
        recorder.native_depth += 1
        try:
            state.top = state.base
            with recorder.sizes.paused():
                result = state.base.draw(generator, op, attributes, without_symbols(count))
        finally:
            state.top = self
            recorder.native_depth -= 1
        recorder.performed.append((op, result))
        if recorder.stopped or value is None:
            return result
        self._append(op, (tensor,), (value,), tuple(sorted(attributes.items())), result, self._line())
        moved = self._fresh(Aval((2,), int64))
        self.nodes.append(Node(REGISTRY["random_advance"], (value,), (("count", count),), (moved,), user_line()))
        self.nodes.append(Node(REGISTRY["write"], (value, moved), (), (self._define(tensor),), user_line()))
        self.evaluated.update([(node.outputs[0], state.grad_enabled) for node in self.nodes[-3:]])
        if self._watch is not None:
            for node in self.nodes[-2:]:
                self._watch(node, (tensor,))  # the new state of the generator
        return result

    def generators_drawn_from(self) -> list[Tensor]:
        """The states of generators from outside from which the call has drawn so far."""
        return [source.tensor for number, source in self.recorder.tensors.items() if number in self.states]

    def leave_generators(self, moves: Sequence[tuple[str, np.ndarray[Any, Any], Tensor, Tensor]]) -> bool:
        """Assign new states to generators, and record it.  moves: (line, state before, tensor of the state, new state) of each.
        If a generator is no longer in its state before, since other code has drawn from it, returns False and changes nothing."""
        if not all(np.array_equal(tensor._array, before) for _, before, tensor, _ in moves):
            return False
        for line, _, tensor, after in moves:
            tensor._array[:] = after._array
            operands = self.values[id(tensor)], self.values[id(after)]
            self.nodes.append(Node(REGISTRY["write"], operands, (), (self._define(tensor),), line))
        return True

    def require(self, tensor: Tensor, value: bool | int | float) -> None:
        """Append a guard on the single element of a tensor, which is no branch of the program's."""
        expected = (("expected", Literal(value)),)
        self.nodes.append(Node(self._guard, (self.values[id(tensor)],), expected, (), self._line()))

    def make_state(self, generator: Any, op: Any, attributes: Mapping[str, Any]) -> Any:
        """The state of a new generator; recorded if the call has created the generator, which begins in the same state in each
        call."""
        recorder = self.recorder
        begins_here = not recorder.stopped and generator is not default_generator and not recorder.is_outside(generator)
        return (self if begins_here else state.base).bind(op, (), attributes)

    def use_generator(self, generator: Any) -> None:
        """Read the state of a generator from outside as a tensor, before a draw; a generator that the call has created is refused
        unless its state was recorded (`make_state`)."""
        recorder, state = self.recorder, generator.state()
        self.states.add(id(state))
        self.note_contents(state)
        if recorder.stopped or (id(state) in self.values and id(state) not in recorder.tensors):
            return
        path, constant = recorder.sources.get(id(generator)), recorder.constant(default_generator)
        if generator is default_generator and path is not None and path != constant:
            recorder.miss_if(path.is_not(constant))  # the default generator may be passed as an argument
        if id(state) in recorder.tensors:
            return
        if generator is default_generator and not recorder.is_outside(generator):
            recorder.register(generator, recorder.constant(generator))
        if recorder.is_outside(generator):
            recorder.read(state, recorder.sources[id(generator)].get("_state"))
        else:
            recorder.stop("random_operation", "a generator that the call has made")


isolate_interpreter(
    RecordingInterpreter,
    frozenset(
        name
        for name, method in vars(Interpreter).items()
        if callable(method) and not name.startswith("_") and name != "stepped"  # which is called in eager mode alone
    ),
)


def _integer_bounds(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the greatest scalar integer for which a program, which has integers of 64 bits, gives the result of eager
    mode."""
    if Kind.VIEW in (op.kind, op.region and op.region.kind):  # the integer is a position
        return _ANY_INTEGER
    names = {FROM_NUMPY[x._array.dtype].name for x in operands if isinstance(x, Tensor)}
    if "dtype" in attributes:
        names.add(attributes["dtype"].name)
    lows, highs = zip(*[_BOUNDS[name] for name in names or ("int64",)], strict=True)
    low, high = max(lows), min(highs)
    if "no negative integers" in op.traits and names <= _INTEGERS:
        low = 0
    return low, high


def _is_integer(operand: Any) -> bool:
    return type(operand) in (int, SymInt) or (is_symbolic(operand) and type(operand._value) is int)


def _attribute(value: Any) -> Any:
    """An attribute with symbolic numbers replaced by their values, which are guarded."""
    if type(value) in _SIMPLE or (type(value) is tuple and _SIMPLE.issuperset(map(type, value))):  # the usual case
        return value
    if is_symbolic(value):
        return concretise(value)
    if isinstance(value, tuple):
        return tuple(map(_attribute, value)) if any(map(_holds_symbol, value)) else value
    return value


def _holds_symbol(value: Any) -> bool:
    return is_symbolic(value) or (isinstance(value, tuple) and any(map(_holds_symbol, value)))
