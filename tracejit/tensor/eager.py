"""The eager interpreter: operations evaluated by NumPy as they come, with a tape.

The base of every thread's interpreter stack, installed when this module is imported.  It promotes, evaluates, links views to
their storage, and puts a node on the tape where a gradient may be wanted.

An operation that was evaluated some times has a step (core/kernels.py): one call from Tensors to a Tensor, in machine code, for the
operands that need nothing else.  It is asked first; where it answers None, and on machines that have none, what follows is done in Python.
Dispatch cost is a budget: below 0.3 us with a step, below 2 us over the NumPy call without; hence the spelled-out construction of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np
import scipy

from tracejit.autograd import tape
from tracejit.autograd.tape import NOTHING_SAVED, OpNode, Storage, class_of, edge_of, mark_written, move_retained, next_sequence
from tracejit.autograd.views import ViewWriteNode
from tracejit.core.dtypes import FLOATING_KINDS
from tracejit.core.floating import QUIET, called_quietly, hand_over, write_errors
from tracejit.core.heap import keep_freed_memory
from tracejit.core.interpreter import Interpreter, set_base, state
from tracejit.core.interrupts import is_foreign
from tracejit.core.kernels import CHOICE, MANY, Fused, Owners, choice, fused_step, reduced_rows, step, view
from tracejit.core.numbers import PLAIN, plain_number
from tracejit.core.op import Op, Promotion
from tracejit.core.overlap import refuse_overlap
from tracejit.core.products import is_small
from tracejit.core.promotion import is_settled, promote, with_tensor
from tracejit.core.symbolic import shape_of
from tracejit.ops.movement.views import detach
from tracejit.tensor.base import Tensor, refresh, refuse_leaf, storage_of, wrap
from tracejit.tensor.rebinding import rebound
from tracejit.tensor.sharing import tensor_on

__all__ = ["EagerInterpreter"]

ndarray = np.ndarray
_new = object.__new__
_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_LARGEST = np.iinfo(np.int64).max


class EagerInterpreter(Interpreter):
    """Evaluates with NumPy at once, and puts a node on the tape where a gradient may be wanted."""

    def share_array(self, array: Any, canonical: Any) -> Tensor:
        return tensor_on(array, canonical)

    def draw(self, generator: Any, op: Op, attributes: Mapping[str, Any], count: int) -> Tensor:
        return wrap(op.evaluate(generator._advance(count), **attributes))

    def bind(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        if op.step is not None:
            out = op.step(*operands)
            if out is not None:
                if out._requires_grad:
                    _record_step(op, operands, attributes, out)
                return out
        elif op.until_step:
            _count_to_step(op)
        if op.is_plain and op.ufunc is not None and len(operands) == 2:
            out = _of_two(op, operands, attributes)
            if out is not None:
                return out
        elif op.is_view:
            return _view(op, operands, attributes)
        elif op.writes:
            return _write(op, operands)
        elif len(operands) == 1 and (op.is_plain or op.is_unary):
            (x,) = operands
            if isinstance(x, Tensor):
                if x._base is not None:
                    refresh(x)
                a = x._array
                dtype = a.dtype
                if dtype is _F32 or dtype is _F64 or (op.is_unary and a.itemsize != 2):
                    if op.is_plain and (ufunc := op.ufunc) is not None:
                        out = wrap(called_quietly(state.run_quietly, ufunc, a))
                    elif op.reduces and 0 < a.size < (MANY if op.rows else _LARGEST):
                        out = wrap(
                            called_quietly(state.run_quietly, op.ufunc, a, attributes["dims"], dtype, None, attributes["keepdim"])
                        )
                    else:
                        out = wrap(_evaluate(op, operands, (a,), attributes))
                    if (
                        x._requires_grad
                        and state.grad_enabled
                        and op.vjp_rule is not None
                        and out._array.dtype.kind in FLOATING_KINDS
                    ):
                        _record_unary(op, x, a, attributes, out)
                    return out
        return self._general(op, operands, attributes)

    def stepped(self, op: Op, operands: tuple[Any, ...]) -> Tensor | None:
        assert op.step is not None
        out: Tensor | None = op.step(*operands)
        if out is not None and out._requires_grad:
            _record_step(op, operands, {}, out)
        return out

    def _general(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        arrays: list[Any] = []
        requires = small = False
        for x in operands:
            if isinstance(x, Tensor):
                if x._base is not None:
                    refresh(x)
                array = x._array
                arrays.append(array)
                if array.itemsize == 2:
                    small = True
                if x._requires_grad:
                    requires = True
            elif type(x) in PLAIN:
                arrays.append(x)
            elif x is None:
                if op.keeps_dtype:
                    raise _refusal(op, operands)
                arrays.append(x)
            else:
                return self.bind(op, _with_plain_numbers(op, operands), attributes)
        if op.keeps_dtype and not is_settled(op, arrays):
            promoted = promote(op, with_tensor(op, operands))
            if promoted is not operands:
                operands = promoted
                arrays = [x._array if isinstance(x, Tensor) else x for x in operands]
                small = True
            if small and (reduced := op.reduced(operands)) is not None:
                return op.in_float32(operands, attributes, reduced)
        elif small and op.computes and (reduced := op.reduced(operands)) is not None:
            return op.in_float32(operands, attributes, reduced)
        try:
            if op.is_checked:
                _check(op, operands, arrays, attributes)
            outs = _evaluate(op, operands, arrays, attributes)
        except AttributeError as error:  # asked of a number, or of None
            if is_foreign(error) or isinstance(error.obj, Tensor | ndarray):
                raise
            raise _refusal(op, operands) from None
        if op.multiple:
            outputs = tuple([wrap(a) for a in outs])
        else:
            out = wrap(outs)
            if not requires:
                return out
            if len(operands) == 1:
                if state.grad_enabled and op.vjp_rule is not None and out._array.dtype.kind in FLOATING_KINDS:
                    _record_unary(op, operands[0], arrays[0], attributes, out)
                return out
            outputs = (out,)
        if requires and state.grad_enabled and op.vjp_rule is not None:
            _record(op, operands, arrays, attributes, outputs)
        return outputs if op.multiple else outputs[0]


def _of_two(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Tensor | None:
    """What a ufunc makes of two tensors of one dtype, or of one and a number, where nothing is to be promoted; None for other operands."""
    dtype = None
    arrays: list[Any] = []
    for x in operands:
        if isinstance(x, Tensor):
            if x._base is not None:
                refresh(x)
            array = x._array
            if dtype is not None and array.dtype is not dtype:
                return None
            dtype = array.dtype
            arrays.append(array)
        elif (kind := type(x)) is int or kind is float:
            arrays.append(x)
        else:
            return None
    if not (dtype is _F32 or dtype is _F64 or (dtype is _I64 and op.is_ufunc and float not in map(type, arrays))):
        return None
    try:
        out = wrap(called_quietly(state.run_quietly, op.ufunc, *arrays))
    except ValueError as error:
        raise _shape_error(op, operands, attributes, error) from None
    (x, y), (a, b) = operands, arrays
    needs = a is not x and x._requires_grad, b is not y and y._requires_grad
    if op.vjp_rule is not None and any(needs) and state.grad_enabled:
        _record_binary(op, operands, a, b, attributes, needs, out)
    return out


_MOST_FITTING = 4096
_fitting: set[Any] = set()


def _check(op: Op, operands: tuple[Any, ...], arrays: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Raises what the shape rule raises.  Shapes, dtypes and attributes that it let pass are remembered, unless sizes are symbolic."""
    key = None
    if not shape_of:
        described: list[Any] = [op, *attributes.values()]
        for x in arrays:
            if type(x) is ndarray:
                described += (x.shape, x.dtype)
            elif x is None:
                described.append(None)
            else:
                break  # a number: 1, 1.0 and True are equal
        else:
            key = tuple(described)
            if key in _fitting:
                return
    op.infer(*[x._aval if isinstance(x, Tensor) else x for x in operands], **attributes)
    if key is not None:
        if len(_fitting) >= _MOST_FITTING:
            _fitting.clear()
        _fitting.add(key)


def _evaluate(op: Op, operands: tuple[Any, ...], arrays: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What NumPy makes of the arrays of these operands, without floating-point warnings."""
    if op.is_quiet:
        try:
            return op.evaluate(*arrays, **attributes)
        except ValueError as error:
            raise _shape_error(op, operands, attributes, error) from None
    if op.evaluate is op.ufunc or (op.multiplies and is_small(*arrays)):
        try:
            return called_quietly(state.run_quietly, op.ufunc, *arrays)
        except ValueError as error:
            raise _shape_error(op, operands, attributes, error) from None
    if op.reduces and arrays[0].size:
        (a,) = arrays
        if op.rows is not None and (out := reduced_rows(op.rows, a, **attributes)) is not None:
            return out
        return called_quietly(state.run_quietly, op.ufunc, a, attributes["dims"], a.dtype, None, attributes["keepdim"])
    inside = copy_context()
    inside.run(write_errors, QUIET)
    before = inside.copy()
    try:
        return inside.run(op.evaluate, *arrays, **attributes)
    except ValueError as error:
        raise _shape_error(op, operands, attributes, error) from None
    finally:
        if inside != before:
            hand_over(before, inside)


_OWNERS = Owners(
    Tensor, "_array", "_base", "_seen", "_chain", "_requires_grad", ("_storage", Storage, "version"),
    (("_node", None), ("_index", 0), ("_storage", None), ("_base", None), ("_grad", None), ("_hooks", None)),
    (("version", 0), ("written", 0), ("exposed", False)), wrap,
)  # fmt: skip
"""Tensors, as steps know them."""


def _count_to_step(op: Op) -> None:
    """An operation is about to be evaluated that may have a step: make it if there were some before."""
    op.until_step = max(op.until_step - 1, 0)
    if not op.until_step:
        if _view_of is None:
            _make_view()
        if isinstance(op.loops, Fused):
            op.step = fused_step(_OWNERS, op.loops)
        elif op.loops == CHOICE:
            op.step = choice(_OWNERS)
        else:
            loops = getattr(scipy.special, op.loops) if isinstance(op.loops, str) else op.loops
            op.step = step(_OWNERS, loops, op.step_dtypes(), op.promotion is not Promotion.BOOL, op.most)


def _record_step(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any], out: Tensor) -> None:
    """Put the result of a step on the tape; it says so far that an operand requires gradients."""
    if not state.grad_enabled or op.vjp_rule is None:
        out._requires_grad = False
    elif len(operands) == 1:
        _record_unary(op, operands[0], operands[0]._array, attributes, out)
    elif not op.is_plain:
        out._requires_grad = False
        _record(op, operands, [x._array if isinstance(x, Tensor) else x for x in operands], attributes, (out,))
    else:
        x, y = operands
        a = x._array if isinstance(x, Tensor) else x
        b = y._array if isinstance(y, Tensor) else y
        _record_binary(op, operands, a, b, attributes, (a is not x and x._requires_grad, b is not y and y._requires_grad), out)


_ONE = (True,)


def _record_unary(op: Op, x: Tensor, a: Any, attributes: Mapping[str, Any], out: Tensor) -> None:
    """Put an operation of one tensor on the tape: `OpNode.__init__` spelled out, for speed."""
    node: OpNode = _new(OpNode)
    node.op = op
    node.attributes = attributes
    node.needs = _ONE
    node.hooks = None
    node.freed = False
    node.count = 1
    node.sequence = next_sequence()
    before = x._node
    node.edges = ((x, 0) if before is None else (before, x._index),)
    array = out._array
    node.out_meta = (array.shape, array.dtype)
    node.meta = None if op.is_plain else ((a.shape, a.dtype),)
    saved_inputs, saved_outputs = op.saved_plans.get(_ONE) or op.saved_for(_ONE)
    if saved_inputs:
        node.inputs = (a,)
        storage = x._storage
        node.saved = ((x, 0 if storage is None else storage.version),)
    else:
        node.inputs = NOTHING_SAVED
        node.saved = ()
    if saved_outputs:
        node.outputs = (array,)
        storage = storage_of(out)
        node.storages = ((storage, storage.version),)
    else:
        node.outputs = NOTHING_SAVED
        node.storages = ()
    out._node = node
    out._requires_grad = True


def _record_binary(
    op: Op, operands: tuple[Any, ...], a: Any, b: Any, attributes: Mapping[str, Any], needs: tuple[bool, bool], out: Tensor
) -> None:
    """Put an elementwise operation of two tensors, or of one and a number, on the tape: `OpNode.__init__` spelled out, for speed.  a, b:
    arrays of the tensors."""
    x, y = operands
    node: OpNode = _new(OpNode)
    node.op = op
    node.attributes = attributes
    node.needs = needs
    node.hooks = None
    node.freed = False
    node.count = 1
    node.sequence = next_sequence()
    first = second = None
    if needs[0]:
        before = x._node
        first = (x, 0) if before is None else (before, x._index)
    if needs[1]:
        before = y._node
        second = (y, 0) if before is None else (before, y._index)
    node.edges = (first, second)
    array = out._array
    shape = array.shape
    node.out_meta = (shape, array.dtype)
    left, right = a is not x, b is not y  # which of them are tensors
    if (left and a.shape != shape) or (right and b.shape != shape):
        node.meta = ((a.shape, a.dtype) if left else None, (b.shape, b.dtype) if right else None)
    else:
        node.meta = None
    saved_inputs, saved_outputs = op.saved_plans.get(needs) or op.saved_for(needs)
    zero, one = left and 0 in saved_inputs, right and 1 in saved_inputs
    node.inputs = (a if zero or not left else None, b if one or not right else None)
    if zero:
        storage = x._storage
        item = (x, 0 if storage is None else storage.version)
        if one:
            storage = y._storage
            node.saved = (item, (y, 0 if storage is None else storage.version))
        else:
            node.saved = (item,)
    elif one:
        storage = y._storage
        node.saved = ((y, 0 if storage is None else storage.version),)
    else:
        node.saved = ()
    if saved_outputs:
        node.outputs = (array,)
        storage = out._storage = Storage()
        node.storages = ((storage, 0),)
    else:
        node.outputs = NOTHING_SAVED
        node.storages = ()
    out._node = node
    out._requires_grad = True


def _with_plain_numbers(op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, with the numbers that they stand for in the place of NumPy's and of subclasses.  Raises TypeError for what is neither
    a tensor nor a number."""
    return tuple(
        [x if x is None or isinstance(x, Tensor) or type(x) in PLAIN else _number(op, i, x) for i, x in enumerate(operands)]
    )


def _number(op: Op, position: int, x: Any) -> Any:
    number = plain_number(x)
    if number is not None:
        return number
    remedy = (
        "; use tracejit.from_numpy()"
        if isinstance(x, ndarray)
        else "; use tracejit.tensor()"
        if isinstance(x, list | tuple)
        else ""
    )
    raise TypeError(f"{op.name}(): expected argument {position} to be a Tensor or a number, got {x.__class__.__name__}{remedy}")


def _refusal(op: Op, operands: tuple[Any, ...]) -> TypeError:
    """For the first operand that is no tensor, where one is wanted."""
    position, x = next((i, x) for i, x in enumerate(operands, 1) if not isinstance(x, Tensor))
    return TypeError(f"{op.name}(): argument {position} must be Tensor, not {x.__class__.__name__}")


def _shape_error(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any], error: ValueError) -> Exception:
    """NumPy's ValueError about shapes as the RuntimeError that PyTorch raises, from the shape rule where it knows."""
    if is_foreign(error):
        raise error
    try:
        op.infer(*[x._aval if isinstance(x, Tensor) else x for x in operands], **attributes)
    except RuntimeError as known:
        return known
    return RuntimeError(f"{op.name}(): {error}")


_PLAIN_POSITIONS = frozenset((int, Tensor))
_before_views = 32
_view_of: Any = None
"""kernels.view of tensors, made after so many views: None before, and where there is none."""


def _make_view() -> None:
    """Make tensors by machine code from now on, if that is possible."""
    global _view_of, wrap
    _view_of = view(_OWNERS)
    wrap = _view_of or wrap


def _view(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Tensor:
    """A view of the first operand, linked to its storage and to the root of the views that it is of."""
    x: Any = operands[0]
    rest = operands[1:] if len(operands) > 1 else ()
    if not isinstance(x, Tensor) or (rest and not _PLAIN_POSITIONS.issuperset(map(type, rest))):
        operands = _with_plain_numbers(op, operands)
        rest = operands[1:]
    array = x._array
    if op.is_checked:
        _check(op, operands, [y._array if isinstance(y, Tensor) else y for y in operands] if rest else (array,), attributes)
    try:
        if rest:
            seen = op.evaluate(array, *[y._array if isinstance(y, Tensor) else y for y in rest], **attributes)
        else:
            seen = op.evaluate(array, **attributes)
    except ValueError as error:
        raise _shape_error(op, operands, attributes, error) from None
    if type(seen) is not ndarray:
        seen = np.asarray(seen)
    out, make = None, _view_of
    if make is not None:
        out = make(x, seen) if op is detach else make(x, seen, (op, rest, attributes))
    if out is None:
        out = _linked(x, seen, None if op is detach else (op, rest, attributes))
    if out._requires_grad:
        if not state.grad_enabled or op.vjp_rule is None:
            out._requires_grad = False
        elif not rest:
            _record_unary(op, x, array, attributes, out)
        else:
            out._requires_grad = False
            _record(op, operands, [y._array if isinstance(y, Tensor) else y for y in operands], attributes, (out,))
    return out  # type: ignore[no-any-return]


def _linked(x: Tensor, array: Any, step: tuple[Any, ...] | None) -> Tensor:
    """What `view` makes.  Its `_requires_grad` is that of `x`."""
    global _before_views
    if _before_views:
        _before_views = max(_before_views - 1, 0)
        if not _before_views:
            _make_view()
    if x._base is not None:
        refresh(x)
    out, base, storage = wrap(array), x._base, storage_of(x)
    out._storage, out._requires_grad = storage, x._requires_grad
    if step is not None:
        if base is None:
            out._base, out._chain = x, (step,)
        else:
            out._base, out._chain = base, (*x._chain, step)
        out._seen = storage.version
    return out


def _record(
    op: Op, operands: tuple[Any, ...], arrays: list[Any], attributes: Mapping[str, Any], outputs: tuple[Tensor, ...]
) -> None:
    needs = tuple([isinstance(x, Tensor) and x._requires_grad for x in operands])
    if not any(t._array.dtype.kind in FLOATING_KINDS for t in outputs):
        return
    node = class_of(op)(op, operands, arrays, attributes, needs, tuple([t._array for t in outputs]))
    for i, out in enumerate(outputs):
        if out._array.dtype.kind in FLOATING_KINDS:
            out._node, out._index, out._requires_grad = node, i, True
    if node.storages is None:
        stores = [storage_of(outputs[i]) for i in op.saved_for(needs)[1]]
        node.storages = tuple([(s, s.version) for s in stores])


def _write(op: Op, operands: tuple[Any, ...]) -> Tensor:
    target, value = operands
    if target._base is not None:
        refresh(target)
    if value._base is not None:
        refresh(value)
    array, contents = target._array, value._array
    flags = array.flags
    if not flags.writeable:
        raise RuntimeError(
            f"in-place: the tensor of shape {list(target.shape)} shares the memory of a read-only array, which from_numpy() was given; "
            "write to a clone() of it"
        )
    grad = (target._requires_grad or value._requires_grad) and state.grad_enabled
    if grad:
        refuse_leaf(target)
    if not flags.c_contiguous and contents.ndim:  # one number may go anywhere
        refuse_overlap(array)
    base, node, owner = target._base, None, target
    mark_written((storage_of(target),))
    if grad:
        node = _written(op, target, value) if base is None else _written_through(target, value)
        owner = target if base is None else base
        move_retained(owner._node, owner._index, node)
        rebound()
    if node is not None:  # from here to the end of copyto, which converts nothing, nothing can come in between
        owner._node, owner._index, owner._requires_grad = node, 0, True
    np.copyto(array, contents)
    if grad:
        rebound()
    if base is not None:
        refresh(target)
    return target  # type: ignore[no-any-return]


def _written(op: Op, target: Tensor, value: Tensor) -> tape.Node:
    """Gradients go to the value alone: where what was there before gets some, the value is computed from it."""
    needs = (False, value._requires_grad)
    return OpNode(op, (target, value), (target._array, value._array), {}, needs, (target._array,))


def _written_through(view: Tensor, value: Tensor) -> tape.Node:
    base = view._base
    assert base is not None
    edge = edge_of(base) if base._requires_grad else None
    return ViewWriteNode(edge, edge_of(value) if value._requires_grad else None, view._chain, value._array.shape)


def _on_tape(array: Any, edge: tuple[tape.Node | None, int] | None, storage: Storage | None) -> Tensor:
    out = wrap(array)
    out._storage = storage
    if edge is not None:
        out._node, out._index = edge
        out._requires_grad = True
    return out


tape.install(_on_tape)
set_base(EagerInterpreter())
keep_freed_memory()
