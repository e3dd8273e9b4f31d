"""backward() and autograd.grad: the two ways to start a backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tracejit.autograd.compiled import CompiledNode
from tracejit.autograd.engine import GradientSink, hooks_after, run_backward
from tracejit.autograd.tape import Node, edge_of, is_tensor, mark_written, wanted_edge
from tracejit.core.floating import is_refusal, quietly
from tracejit.core.interpreter import state
from tracejit.core.overlap import refuse_overlap
from tracejit.ops.creation import full
from tracejit.ops.public.movement import stack

__all__ = ["backward", "grad", "install"]

_ARRAYS = (np.ndarray, np.generic)  # a union made at each call takes longer than the question
_WRAP: list[Callable[[Any], Any]] = []


def install(wrap: Callable[[Any], Any]) -> None:
    """Tell how to make a Tensor of an array; called once by tensor/methods.py."""
    _WRAP[:] = [wrap]


def new_tensor(array: np.ndarray[Any, Any]) -> Any:
    """A Tensor that owns `array`."""
    return _WRAP[0](array)


def _roots(name: str, tensors: Sequence[Any], gradients: Sequence[Any] | None) -> tuple[list[tuple[Any, int]], list[Any]]:
    if gradients is not None and len(gradients) != len(tensors):
        raise RuntimeError(f"{name}(): got {len(tensors)} tensors and {len(gradients)} gradients")
    edges, cotangents = [], []
    for i, x in enumerate(tensors):
        g = None if gradients is None else gradients[i]
        if not x.requires_grad:
            raise RuntimeError(f"{name}(): element {i} of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if x.numel() != 1:
                raise RuntimeError(
                    f"{name}(): grad can be implicitly created only for scalar outputs; element {i} has shape {list(x.shape)}; pass it"
                )
            g = ones_like(x)
        elif g._sizes != x._sizes:
            raise RuntimeError(f"{name}(): mismatch in shape: gradient {i} has shape {list(g.shape)}, the tensor {list(x.shape)}")
        elif g.dtype is not x.dtype:
            raise RuntimeError(
                f"{name}(): gradient {i} has dtype {g.dtype.name}, the tensor {x.dtype.name}; convert it with .to()"
            )
        edges.append(edge_of(x))
        cotangents.append(g)
    return edges, cotangents


def ones_like(x: Any) -> Any:
    """The implicit cotangent of a scalar."""
    if state.top is state.base:
        array = np.empty(x._array.shape, x._array.dtype)
        array.fill(1)
        return _WRAP[0](array)
    return full(1.0, shape=tuple(x.shape), dtype=x.dtype)


_ones: dict[Any, np.ndarray[Any, Any]] = {}


def _program(root: Any) -> CompiledNode | None:
    """The node of the compiled program that made `root`, where a backward pass from it alone may be one call (`plan.call`)."""
    node = getattr(root, "_node", None)
    if node.__class__ is not CompiledNode or root._base is not None or state.top is not state.base:
        return None
    return node if root._requires_grad else None  # type: ignore[no-any-return]


def _cotangent(root: Any, gradient: Any) -> np.ndarray[Any, Any] | None:
    """The array of the cotangent of `root`: of `gradient`, or the implicit one.  None where that is to be checked, or an error.  Nobody
    may write to it."""
    array: np.ndarray[Any, Any] = root._array
    if gradient is not None:
        given: np.ndarray[Any, Any] | None = getattr(gradient, "_array", None)
        fits = given is not None and given.shape == array.shape and given.dtype == array.dtype and given.flags.c_contiguous
        return given if fits else None
    if array.ndim:
        return np.ones(array.shape, array.dtype) if array.size == 1 else None
    one = _ones.get(array.dtype)
    if one is None:
        one = np.ones((), array.dtype)
        one.flags.writeable = False
        _ones[array.dtype] = one
    return one


def _to_leaves(root: Any, node: CompiledNode, gradient: Any, retain: bool) -> bool:
    """backward() of an output of a compiled program, in one call.  False where the engine must do it, or tell what is wrong: then nothing
    was done.  While calls are timed, another function is in the place of this one, which calls it (compiled/profile.py); likewise
    `_gradients`, and that of CompiledNode."""
    cotangent = _cotangent(root, gradient)
    if cotangent is None:
        return False
    plan, key = node.plan, root._index
    call = plan.calls.get(key) or plan.call(node, key)
    try:
        done: bool = call(node, (cotangent,), retain)
    except RuntimeError as error:
        if not is_refusal(error):
            raise
        return False  # nothing was done
    return done


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Accumulate the gradients of `tensors` in the `.grad` of the leaves they depend on (or of `inputs` only, which may be results: they
    retain their gradients from then on).

    grad_tensors: cotangents of the same shapes; may be None for scalars.  Raises RuntimeError for tensors without a graph, for a graph
    whose saved values were freed, and for saved values changed in place."""
    alone = None if create_graph or inputs is not None else _program(tensors)
    if alone is not None and _to_leaves(tensors, alone, grad_tensors, bool(retain_graph)):
        return
    outputs = _as_tuple(tensors)
    gradients = None if grad_tensors is None else _as_tuple(grad_tensors)
    edges, cotangents = _roots("backward", outputs, gradients)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is not None:
        chosen = {id(x): x for x in _as_tuple(inputs)}.values()
        if not chosen:
            raise RuntimeError("backward(): inputs must not be empty")
        for i, x in enumerate(chosen):
            if not x.requires_grad:
                raise RuntimeError(f"backward(): element {i} of inputs does not require grad")
        leaves = [x for x in chosen if x.is_leaf]
        for x in chosen:
            if not x.is_leaf:  # as PyTorch does: the pass, and later ones, add to its `.grad`
                x.retain_grad()
        sink = GradientSink(None, [wanted_edge(x) for x in chosen])
        run_backward(edges, cotangents, sink, retain_graph=retain, create_graph=create_graph, wrap=_WRAP[0])
        for leaf, index in map(wanted_edge, leaves):
            g = sink.received.get((id(leaf), index))
            if g is not None:
                quietly(accumulate, leaf, g, sink.handed, create_graph)
                for hook in hooks_after(leaf):
                    hook(leaf)
        return
    sink = GradientSink(functools.partial(accumulate, create_graph=True) if create_graph else accumulate)
    run_backward(edges, cotangents, sink, retain_graph=retain, create_graph=create_graph, wrap=_WRAP[0])


def _as_tuple(values: Any) -> tuple[Any, ...]:
    """A tensor, or whatever gives tensors one by one (a list, a generator, a ParameterList), as a tuple of tensors."""
    return (values,) if is_tensor(values) or not isinstance(values, Iterable) else tuple(values)


def _gradients(root: Any, node: CompiledNode, wanted: tuple[Any, ...], gradient: Any, retain: bool) -> tuple[Any, ...] | None:
    """The gradients of `root`, an output of a compiled program, with respect to leaves that it was given.  None where the engine must find
    them, or tell what is wrong: then nothing was done."""
    cotangent = _cotangent(root, gradient)
    if cotangent is None or node.hooks:
        return None
    positions: dict[int, int] = {}
    for i, edge in enumerate(node.edges):
        if edge is not None:
            target = edge[0]
            if isinstance(target, Node) or target._hooks:
                return None
            positions[id(target)] = i
    mask, chosen = [False] * len(node.edges), []
    for x in wanted:
        position = positions.get(id(x))
        if position is None or mask[position] or x._node is not None or x._base is not None or not x._requires_grad:
            return None
        mask[position] = True
        chosen.append(position)
    plan, present = node.plan, tuple([i == root._index for i in range(node.count)])
    answers = (plan.calls.get(present) or plan.call(node, present))(node, (cotangent,), True)
    if answers is False:
        return None
    arrays = [answers[position] for position in chosen]
    if any(g is None for g in arrays):
        return None
    if not retain:
        node.free(plan.visit(present, tuple(mask)))
    return tuple([_WRAP[0](array) for array in arrays])


def accumulate(leaf: Any, g: Any, handed: dict[int, Any], create_graph: bool = False) -> None:
    """leaf.grad += g, where NumPy does not warn.  An array is taken over without a copy only if nobody else can hold it
    (`handed`: what was given out, by id).  Raises RuntimeError where elements of leaf.grad share memory."""
    if isinstance(g, _ARRAYS):
        previous = leaf._grad
        if previous is None:
            leaf._grad = _WRAP[0](_owned(g, handed))
        else:
            array = previous._array
            refuse_overlap(array)
            if previous._storage is not None:
                mark_written((previous._storage,))
            np.add(array, g, array)
        return
    top = state.top
    top.note("gradient arrived", leaf)
    previous = top.read_grad(leaf)
    if create_graph:
        top.write_grad(leaf, g.clone() if previous is None else previous + g)
    elif previous is None:
        top.write_grad(leaf, (g.detach() if g.requires_grad else g).clone())
    else:
        previous.add_(g)


def _owned(g: Any, handed: dict[int, Any]) -> np.ndarray[Any, Any]:
    """`g` as a row-major array that nobody else holds."""
    array = np.asarray(g)
    if array.base is not None or id(array) in handed or not _is_row_major(array):
        array = np.array(array, order="C")
    handed[id(array)] = array
    return array


def _is_row_major(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array has the strides of a new one, those that no element sees as well."""
    if not array.flags.c_contiguous:
        return False
    if 1 in array.shape or 0 in array.shape:
        step = array.itemsize
        for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
            if stride != step:
                return False
            step *= size or 1
    return True


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; `.grad` of no tensor is touched.

    materialize_grads: zeros instead of None.  is_grads_batched: `grad_outputs` have one more dimension in front, over which the results
    are stacked.  only_inputs has no effect, as in PyTorch.

    The results are row-major.  create_graph: they are themselves differentiable.
    allow_unused: None instead of an error for an input that plays no part."""
    out = _as_tuple(outputs)
    wanted = _as_tuple(inputs)
    if not wanted:
        raise RuntimeError("grad(): inputs must not be empty")
    gradients = None if grad_outputs is None else _as_tuple(grad_outputs)
    if materialize_grads:
        if allow_unused is False:
            raise ValueError("grad(): expected allow_unused to be True or not passed when materialize_grads=True")
        allow_unused = True
    if is_grads_batched or materialize_grads:
        how: dict[str, Any] = {"create_graph": create_graph, "allow_unused": allow_unused}
        each = (
            _batched(out, wanted, gradients, retain_graph, how)
            if is_grads_batched
            else grad(out, wanted, gradients, retain_graph, **how)
        )
        return tuple(
            [
                full(0, shape=tuple(x.shape), dtype=x.dtype) if g is None and materialize_grads else g
                for g, x in zip(each, wanted, strict=True)
            ]
        )
    alone = _program(out[0]) if len(out) == 1 and not create_graph and (gradients is None or len(gradients) == 1) else None
    if alone is not None:
        found = _gradients(out[0], alone, wanted, None if gradients is None else gradients[0], bool(retain_graph))
        if found is not None:
            return found
    edges, cotangents = _roots("grad", out, gradients)
    for i, x in enumerate(wanted):
        if not x.requires_grad:
            raise RuntimeError(f"grad(): input {i} does not require grad; call requires_grad_() on it before the computation")
    sink = GradientSink(None, map(wanted_edge, wanted))
    run_backward(
        edges,
        cotangents,
        sink,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        wrap=_WRAP[0],
    )
    results: list[Any] = []
    for i, (target, index) in enumerate(map(wanted_edge, wanted)):  # a node that was taken apart has other positions now
        g = sink.received.get((id(target), index))
        if g is None:
            if not allow_unused:
                raise RuntimeError(f"grad(): input {i} was not used in the graph; pass allow_unused=True to get None for it")
            results.append(None)
        elif isinstance(g, _ARRAYS):
            results.append(_WRAP[0](_owned(g, sink.handed)))
        elif create_graph:
            results.append(g.contiguous())
        else:  # while a recording is active
            results.append(g.detach().clone())
    return tuple(results)


def _batched(
    outputs: tuple[Any, ...], inputs: tuple[Any, ...], gradients: Any, retain_graph: bool | None, how: dict[str, Any]
) -> tuple[Any, ...]:
    """The results of a pass for each row of the gradients of the outputs, stacked."""
    present = [g for g in gradients or () if g is not None]
    if not present:
        raise RuntimeError("grad(): is_grads_batched=True needs grad_outputs, with one more dimension in front than the outputs")
    count = present[0].shape[0]
    keep = how["create_graph"] if retain_graph is None else retain_graph
    rows = [
        grad(outputs, inputs, [None if g is None else g[i] for g in gradients], keep or i + 1 < count, **how)
        for i in range(count)
    ]
    return tuple([None if column[0] is None else stack(column) for column in zip(*rows, strict=True)])
