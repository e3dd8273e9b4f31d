"""The eager interpreter: operations evaluated by NumPy as they come, with a tape.

The base of every thread's interpreter stack, installed when this module is imported.  It promotes, evaluates, links views to
their storage, and puts a node on the tape where a gradient may be wanted.  Dispatch cost is a budget: below 2 us over the
NumPy call; hence the spelled-out construction of Tensors here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.autograd import tape
from tracejit.autograd.tape import OpNode, edge_of
from tracejit.autograd.views import ViewWriteNode
from tracejit.core.interpreter import Interpreter, set_base, state
from tracejit.core.op import Effect, Op, Promotion
from tracejit.core.promotion import promote
from tracejit.ops.movement.views import detach
from tracejit.tensor import Tensor, refresh, storage_of, wrap

__all__ = ["EagerInterpreter"]

ndarray = np.ndarray
_new = object.__new__
_F32, _F64, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)


class EagerInterpreter(Interpreter):
    """Evaluates with NumPy at once, and puts a node on the tape where a gradient may be wanted."""

    def bind(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        arrays = []
        requires = False
        for x in operands:
            if isinstance(x, Tensor):
                if x._base is not None:
                    refresh(x)
                arrays.append(x._array)
                if x._requires_grad:
                    requires = True
            elif x is None or isinstance(x, float | int):
                arrays.append(x)
            else:
                arrays.append(_scalar(op, x, operands))
        if op.promotion is not Promotion.NONE and not _settled(op, arrays):
            promoted = promote(op, tuple(a if isinstance(a, int | float) and not isinstance(x, Tensor) else x for a, x in zip(arrays, operands, strict=True)))
            if promoted is not operands:
                operands = promoted
                arrays = [x._array if isinstance(x, Tensor) else x for x in operands]
        if op.effect is Effect.IN_PLACE:
            return _write(op, operands, attributes)
        if "checked" in op.traits:
            op.infer(*[x._aval if isinstance(x, Tensor) else x for x in operands], **attributes)
        thread = state
        try:
            outs = thread.quietly(op.evaluate, *arrays, **attributes)
        except ValueError as error:
            raise _shape_error(op, operands, attributes, error) from None
        if op.multiple:
            outputs = tuple([wrap(a) for a in outs])
        else:
            out = _new(Tensor)
            out._array = outs if type(outs) is ndarray else np.asarray(outs)
            out._requires_grad = False
            out._node = None
            out._index = 0
            out._storage = None
            out._base = None
            out._grad = None
            out._hooks = None
            if op.effect is Effect.VIEW:
                _link_view(op, out, operands, attributes)
            if not requires:
                return out
            outputs = (out,)
        if requires and thread.grad_enabled and op.vjp_rule is not None:
            _record(op, operands, arrays, attributes, outputs)
        return outputs if op.multiple else outputs[0]


def _settled(op: Op, arrays: list[Any]) -> bool:
    """Whether the operands plainly have the dtype computed in: the common cases, decided fast."""
    kinds = op.promotion
    if kinds is Promotion.BOOL or "condition first" in op.traits:
        return False
    target = None
    for a in arrays:
        if isinstance(a, ndarray):
            dtype = a.dtype
            if target is None:
                target = dtype
            elif dtype is not target:
                return False
    if target is _F32 or target is _F64:
        return True
    if target is None or kinds is Promotion.FLOAT or target is _BOOL:
        return False
    return all(isinstance(a, ndarray) or type(a) is int for a in arrays)


def _scalar(op: Op, x: Any, operands: tuple[Any, ...]) -> Any:
    """NumPy scalars count as Python numbers; anything else is an error."""
    if isinstance(x, np.generic):
        return x.item()
    position = next(i for i, y in enumerate(operands) if y is x)
    remedy = "; use tracejit.from_numpy()" if isinstance(x, ndarray) else "; use tracejit.tensor()" if isinstance(x, list | tuple) else ""
    raise TypeError(f"{op.name}(): expected argument {position} to be a Tensor or a number, got {type(x).__name__}{remedy}")


def _shape_error(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any], error: ValueError) -> Exception:
    """NumPy's ValueError about shapes as the RuntimeError that PyTorch raises, from the shape rule where it knows."""
    try:
        op.infer(*[x._aval if isinstance(x, Tensor) else x for x in operands], **attributes)
    except RuntimeError as known:
        return known
    return RuntimeError(f"{op.name}(): {error}")


def _link_view(op: Op, out: Tensor, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> None:
    source = operands[0]
    out._storage = storage_of(source)
    if op is detach:
        return
    base = source._base
    out._base = source if base is None else base
    step = (op, operands[1:], attributes)
    out._chain = (step,) if base is None else (*source._chain, step)
    out._seen = out._storage.version


def _record(op: Op, operands: tuple[Any, ...], arrays: list[Any], attributes: Mapping[str, Any], outputs: tuple[Tensor, ...]) -> None:
    needs = tuple([isinstance(x, Tensor) and x._requires_grad for x in operands])
    node = OpNode(op, operands, arrays, attributes, needs, tuple([t._array for t in outputs]))
    differentiable = False
    for i, out in enumerate(outputs):
        if out._array.dtype.kind == "f":
            out._node, out._index, out._requires_grad = node, i, True
            differentiable = True
    if node.storages is None:
        _, saved = op.saved_for(needs)
        node.storages = [(s := storage_of(outputs[i]), s.version)[:0] or (s, s.version) for i in saved] if differentiable else ()


def _write(op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Tensor:
    target, value = operands
    array = target._array
    grad = state.grad_enabled and (target._requires_grad or value._requires_grad)
    if grad and target._requires_grad and target._node is None and target._base is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation; use no_grad() or detach()")
    if grad and target._base is not None and target._base._requires_grad and target._base._node is None:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation; use no_grad() or detach()")
    if any(st == 0 and s > 1 for s, st in zip(array.shape, array.strides, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location; clone() the tensor first"
        )
    state.quietly(np.copyto, array, value._array)
    storage = storage_of(target)
    storage.version += 1
    if grad:
        base = target._base
        if base is None:
            node: tape.Node = OpNode(op, operands, (array, value._array), attributes, (target._requires_grad, value._requires_grad), (array,))
            target._node, target._index = node, 0
            target._requires_grad = True
        else:
            base._node, base._index = (
                ViewWriteNode(
                    edge_of(base) if base._requires_grad else None,
                    edge_of(value) if value._requires_grad else None,
                    target._chain,
                    (base._array.shape, base._array.dtype),
                    value._array.shape,
                ),
                0,
            )
            base._requires_grad = True
    if target._base is not None:
        refresh(target)
    return target  # type: ignore[no-any-return]


def _revive(array: Any, node: OpNode, position: int) -> Tensor:
    """The Tensor of a saved output, back on the tape."""
    out = wrap(array)
    out._node, out._index, out._requires_grad = node, position, True
    assert node.storages is not None
    out._storage = node.storages[0][0] if node.storages else None
    return out


tape._REVIVE.append(_revive)
set_base(EagerInterpreter())
