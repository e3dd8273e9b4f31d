"""Transformations of functions: grad, vjp, jvp, Jacobians, Hessians, vmap; calls of modules with other parameters.

They nest: a derivative is itself on the tape of whatever surrounds it.  There is no forward mode (jvp and jacfwd are made of reverse
passes), and vmap calls the function once for each element of the batch and stacks the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracejit.autograd.api import grad as gradients_of
from tracejit.autograd.grad_mode import enable_grad
from tracejit.autograd.tape import leads_elsewhere
from tracejit.control_flow import map as map_slices
from tracejit.core.tree import flatten, map_leaves, unflatten
from tracejit.nn.functional_call import functional_call, stack_module_state
from tracejit.ops.creation import full
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, reshape
from tracejit.ops.public.movement import stack
from tracejit.tensor import Tensor

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "value_and_grad",
    "vjp", "vmap",
]  # fmt: skip

Function = Callable[..., Any]


# ---- derivatives ----------------------------------------------------------------------------------------------------
def _point(x: Any, hidden: list[Any]) -> Any:
    """`x` as a variable of one transformation: a result of the surrounding variable, or a new leaf, which nobody else knows."""
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
        return x
    if x.requires_grad:
        return clone(x)
    leaf = detach(x).requires_grad_()
    hidden.append(leaf)
    return leaf


def _released(value: Any, hidden: list[Any]) -> Any:
    """Results without what only leads to this transformation's own variables: those depend on nothing outside."""

    def release(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.requires_grad or leads_elsewhere(x, hidden):
            return x
        return detach(x)

    return map_leaves(release, value)


def _numbers(argnums: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    return tuple([n % count for n in numbers])


def _with_points(name: str, args: tuple[Any, ...], numbers: tuple[int, ...], hidden: list[Any]) -> tuple[list[Any], list[Any]]:
    """The arguments with those at `numbers` made variables, and these variables.  Raises ValueError for what is no tensor among these."""
    for i in numbers:
        for x in flatten(args[i])[0]:
            if x is not None and not isinstance(x, Tensor):
                raise ValueError(
                    f"func.{name}(): expected argument {i} to be a Tensor, or to hold Tensors alone, got {x.__class__.__name__}; "
                    "use tensor()"
                )
    given = [map_leaves(lambda x: _point(x, hidden), a) if i in numbers else a for i, a in enumerate(args)]
    return given, [x for i in numbers for x in flatten(given[i])[0] if isinstance(x, Tensor)]


def _derivatives(outputs: list[Any], points: list[Any], cotangents: list[Any]) -> list[Any]:
    """The gradients of the outputs that depend on something, on the tape; zeros for what plays no part."""
    pairs = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    wanted = [x for x in points if x.requires_grad]
    values: list[Any] = [None] * len(wanted)
    if pairs and wanted:
        values = list(gradients_of([y for y, _ in pairs], wanted, [v for _, v in pairs], create_graph=True, allow_unused=True))
    found = []
    for x in points:
        g = values.pop(0) if x.requires_grad else None
        found.append(full(0, shape=tuple(x.shape), dtype=x.dtype) if g is None else g)
    return found


def _one_number(name: str, y: Any) -> Any:
    if not isinstance(y, Tensor):
        raise RuntimeError(f"Expected f given to {name}(f)(*args) to return a Tensor, got {type(y)}")
    if y.dim():
        raise RuntimeError(
            f"Expected f given to {name}(f)(*args) to return a scalar tensor. Got tensor with {y.dim()} dims. Maybe you wanted to use the "
            "vjp or jacrev APIs instead?"
        )
    return y


def grad_and_value(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """A function that returns (gradient, value) of `func`, which returns one number; with has_aux (number, anything)."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        hidden: list[Any] = []
        numbers = _numbers(argnums, len(args))
        with enable_grad():
            given, points = _with_points("grad", args, numbers, hidden)
            out = func(*given, **kwargs)
            if has_aux and not (isinstance(out, tuple) and len(out) == 2):
                raise RuntimeError(f"grad: the output of f should be a tuple: (output, aux) if has_aux is True, got {type(out)}")
            value, aux = out if has_aux else (out, None)
            _one_number("grad", value)
            values = iter(_derivatives([value], points, [full(1, shape=(), dtype=value.dtype)]))
        whole = tuple([map_leaves(lambda x: next(values) if isinstance(x, Tensor) else x, given[i]) for i in numbers])
        gradient = whole[0] if isinstance(argnums, int) else whole
        answer = (gradient, (value, aux)) if has_aux else (gradient, value)
        return _released(answer, hidden)

    return wrapper


def value_and_grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """A function that returns (value, gradient) of `func`, which returns one number; with has_aux ((value, aux), gradient).

    It is `grad_and_value` with its results the other way round, as JAX has it."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return value, gradient

    return wrapper


def grad(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """A function that returns the gradient of `func`, which returns one number; with has_aux (gradient, anything)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapper


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(func(*primals), a function of cotangents that returns a tuple of those of the primals).

    With has_aux func's second result comes third."""
    hidden: list[Any] = []
    with enable_grad():
        given, points = _with_points("vjp", primals, tuple(range(len(primals))), hidden)
        out = func(*given)
        value, aux = out if has_aux else (out, None)
        outputs, _ = flatten(value)

    def backward(*cotangents: Any) -> Any:
        seeds, _ = flatten(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(seeds) != len(outputs):
            raise RuntimeError(f"Expected {len(outputs)} cotangents, one for each output, got {len(seeds)}")
        with enable_grad():
            found = iter(_derivatives(outputs, points, seeds))
        whole = tuple([map_leaves(lambda x: next(found) if isinstance(x, Tensor) else x, g) for g in given])
        return _released(whole, hidden)

    result = (_released(value, hidden), backward)
    return (*result, _released(aux, hidden)) if has_aux else result


def jvp(
    func: Function, primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False, has_aux: bool = False
) -> Any:
    """(func(*primals), its derivative in the direction of the tangents); with has_aux func's second result comes third."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError(f"jvp: Expected primals and tangents to be tuples, got {type(primals)} and {type(tangents)}")
    hidden: list[Any] = []
    with enable_grad():
        given, points = _with_points("jvp", primals, tuple(range(len(primals))), hidden)
        out = func(*given)
        value, aux = out if has_aux else (out, None)
        outputs, structure = flatten(value)
        directions = [t for t in flatten(tangents)[0] if isinstance(t, Tensor)]
        if [tuple(t.shape) for t in directions] != [tuple(x.shape) for x in points]:
            raise RuntimeError("jvp: Expected tangents to have the structure and the shapes of primals")
        dummies = [full(0, shape=tuple(y.shape), dtype=y.dtype).requires_grad_() for y in outputs]
        hidden.extend(dummies)
        first = _derivatives(outputs, points, dummies)
        products = _derivatives(first, dummies, directions)
    result = (_released(value, hidden), _released(unflatten(structure, products), hidden))
    return (*result, _released(aux, hidden)) if has_aux else result


def jacrev(
    func: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Function:
    """A function that returns the Jacobian of `func`: for each output (outer structure) and argument a tensor of both shapes.

    chunk_size says how PyTorch goes about it, and changes nothing here."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        hidden: list[Any] = []
        numbers = _numbers(argnums, len(args))
        with enable_grad():
            given, points = _with_points("jacrev", args, numbers, hidden)
            out = func(*given, **kwargs)
            value, aux = out if has_aux else (out, None)
            outputs, structure = flatten(value)
            blocks = [_block(y, points) for y in outputs]

        def arranged(block: list[Any]) -> Any:
            rows = iter(block)
            whole = tuple([map_leaves(lambda x: next(rows) if isinstance(x, Tensor) else x, given[i]) for i in numbers])
            return whole[0] if isinstance(argnums, int) else whole

        found = _released(unflatten(structure, [arranged(block) for block in blocks]), hidden)
        return (found, _released(aux, hidden)) if has_aux else found

    return wrapper


def _block(y: Any, points: list[Any]) -> list[Any]:
    """For each point the Jacobian of one output."""
    count = y.numel()
    flat = y.reshape(count)
    rows = [_derivatives([flat[i]], points, [full(1, shape=(), dtype=y.dtype)]) for i in range(count)]
    return [
        reshape(stack(list(column)), shape=(*y.shape, *x.shape)) if count else full(0, shape=(*y.shape, *x.shape), dtype=x.dtype)
        for x, column in zip(points, zip(*rows, strict=True) if count else [()] * len(points), strict=True)
    ]


def jacfwd(func: Function, argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """The same numbers as jacrev: there is no forward mode."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Function, argnums: int | tuple[int, ...] = 0) -> Function:
    """A function that returns the second derivatives of `func`."""
    return jacrev(jacrev(func, argnums), argnums)


# ---- vmap -----------------------------------------------------------------------------------------------------------
def _dims(name: str, dims: Any, value: Any) -> list[Any]:
    """One dimension (or None) for each leaf of `value`; `dims` is a prefix of its structure."""
    if dims is None or isinstance(dims, int):
        return [dims if isinstance(x, Tensor) else None for x in flatten(value)[0]]
    if isinstance(dims, dict) and isinstance(value, dict):
        return [d for key in value for d in _dims(name, dims[key], value[key])]
    if isinstance(dims, tuple | list) and isinstance(value, tuple | list) and len(dims) == len(value):
        return [d for inner, v in zip(dims, value, strict=True) for d in _dims(name, inner, v)]
    raise ValueError(f"vmap(): {name} {dims!r} is not compatible with the structure of the values")


def vmap(
    func: Function, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Function:
    """A function that calls `func` for each element along the dimensions `in_dims` of its arguments, and stacks the results along out_dims.

    Keyword arguments are handed on as they are.  The calls are made one after the other: random numbers are different ones in each call,
    whatever `randomness` says."""
    name = getattr(func, "__name__", func)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten(list(args))
        dims = _dims("in_dims", in_dims if in_dims is None or isinstance(in_dims, int) else list(in_dims), list(args))
        sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError("vmap: at least one of the inputs has to have a dimension to map over")
        if any(size != sizes[0] for size in sizes):
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}"
            )
        if sizes[0] == 0:
            raise RuntimeError("vmap: Expected the mapped dimension to have at least one element, got 0")

        def element(slices: list[Any]) -> Any:
            rest = list(slices)
            given = [x if d is None else rest.pop(0) for x, d in zip(leaves, dims, strict=True)]
            found = func(*unflatten(structure, given), **kwargs)
            for x in flatten(found)[0]:
                if not isinstance(x, Tensor):
                    raise ValueError(f"vmap({name}): must only return Tensors, got type {type(x)}.")
            return found

        stacked = map_slices(element, [x.movedim(d, 0) for x, d in zip(leaves, dims, strict=True) if d is not None])
        columns, shape = flatten(stacked)
        out = _dims("out_dims", out_dims, stacked)
        return unflatten(shape, [x[0] if d is None else x.movedim(0, d) for x, d in zip(columns, out, strict=True)])

    return wrapper
