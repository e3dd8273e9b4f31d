"""Derivatives of functions as functions: vjp, jvp, jacobian, hessian, and their products with vectors.

There is no forward mode: a jvp is the vjp of a vjp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.autograd.api import grad
from tracejit.autograd.grad_mode import enable_grad
from tracejit.autograd.tape import is_tensor
from tracejit.ops.creation import full
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, reshape
from tracejit.ops.public.movement import stack

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]


def _tensors(name: str, what: str, values: Any) -> tuple[bool, tuple[Any, ...]]:
    """(whether it was a tuple, tensors).  Raises TypeError for anything else."""
    several = isinstance(values, tuple | list)
    found = tuple(values) if several else (values,)
    for i, value in enumerate(found):
        if not is_tensor(value):
            where = f" at index {i}" if several else ""
            raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the value{where} has type "
                            f"{type(value)}.")  # fmt: skip
    return several, found


def _inputs(values: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """The points to differentiate at: results of the caller's tensors if the derivative is to depend on them, new leaves otherwise."""
    return tuple([_linked(x) if create_graph and x.requires_grad else detach(x).requires_grad_() for x in values])


def _linked(x: Any) -> Any:
    """The same contents at a position on the tape of their own."""
    return clone(x)


def _zeros(x: Any) -> Any:
    return full(0, shape=tuple(x.shape), dtype=x.dtype)


def _filled(gradients: tuple[Any, ...], like: tuple[Any, ...], name: str, strict: bool) -> tuple[Any, ...]:
    """Gradients, with zeros for None; raises RuntimeError instead if strict."""
    if strict and any(g is None for g in gradients):
        i = next(i for i, g in enumerate(gradients) if g is None)
        raise RuntimeError(
            f"{name}: the output of the user-provided function is independent of input {i}. This is not allowed in strict mode."
        )
    return tuple([_zeros(x) if g is None else g for g, x in zip(gradients, like, strict=True)])


def _gradients(outputs: tuple[Any, ...], inputs: tuple[Any, ...], cotangents: Any, create_graph: bool) -> tuple[Any, ...]:
    """grad() of those outputs that depend on something; None for inputs that play no part."""
    pairs = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return grad(
        [y for y, _ in pairs], inputs, [v for _, v in pairs], create_graph=create_graph, retain_graph=True, allow_unused=True
    )


def _cotangents(name: str, v: Any, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    if v is None:
        if len(outputs) != 1 or outputs[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if the user-provided function returns a single Tensor with a single element ({name})."
            )
        return (full(1, shape=tuple(outputs[0].shape), dtype=outputs[0].dtype),)
    _, found = _tensors(name, "v", v)
    if [tuple(x.shape) for x in found] != [tuple(y.shape) for y in outputs]:
        raise RuntimeError(
            f"{name}: v has invalid sizes: should be {[list(y.shape) for y in outputs]} but got {[list(x.shape) for x in found]}."
        )
    return found


def _given_back(several: bool, values: tuple[Any, ...], create_graph: bool) -> Any:
    found = values if create_graph else tuple([detach(x) for x in values])
    return found if several else found[0]


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), v times its Jacobian); v has the shapes of the outputs."""
    with enable_grad():
        several, given = _tensors("vjp", "inputs", inputs)
        points = _inputs(given, create_graph)
        many, outputs = _tensors("vjp", "outputs of the user-provided function", func(*points))
        gradients = _gradients(outputs, points, _cotangents("vjp", v, outputs), create_graph)
        products = _filled(gradients, points, "vjp", strict)
    return _given_back(many, outputs, create_graph), _given_back(several, products, create_graph)


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(*inputs), its Jacobian times v); v has the shapes of the inputs."""
    with enable_grad():
        _, given = _tensors("jvp", "inputs", inputs)
        points = _inputs(given, create_graph)
        directions = _cotangents("jvp", v, points)
        many, outputs = _tensors("jvp", "outputs of the user-provided function", func(*points))
        dummies = tuple([_zeros(y).requires_grad_() for y in outputs])
        first = _filled(_gradients(outputs, points, dummies, True), points, "jvp", strict)
        products = _filled(_gradients(first, dummies, directions, create_graph), outputs, "jvp", strict)
    return _given_back(many, outputs, create_graph), _given_back(many, products, create_graph)


def _rows(y: Any, points: tuple[Any, ...], create_graph: bool, strict: bool, name: str) -> list[Any]:
    """For each input the Jacobian of one output: its shape followed by the input's."""
    count = y.numel()
    flat = y.reshape(count)
    columns: list[list[Any]] = [[] for _ in points]
    for i in range(count):
        gradients = _gradients((flat[i],), points, (full(1, shape=(), dtype=y.dtype),), create_graph)
        for column, g in zip(columns, _filled(gradients, points, name, strict), strict=True):
            column.append(g)
    return [
        reshape(stack(column), shape=(*y.shape, *x.shape)) if column else full(0, shape=(*y.shape, *x.shape), dtype=x.dtype)
        for column, x in zip(columns, points, strict=True)
    ]


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of func at inputs: for each output and input a tensor of the output's shape followed by the input's.

    Tuples of outputs or inputs give tuples.  vectorize and strategy say how PyTorch goes about it, and change nothing here."""
    with enable_grad():
        several, given = _tensors("jacobian", "inputs", inputs)
        points = _inputs(given, create_graph)
        many, outputs = _tensors("jacobian", "outputs of the user-provided function", func(*points))
        rows = [tuple(_rows(y, points, create_graph, strict, "jacobian")) for y in outputs]
    found = tuple([_given_back(several, row, create_graph) for row in rows])
    return found if many else found[0]


def _scalar(name: str, func: Function) -> Function:
    """func, which must return one number."""

    def checked(*points: Any) -> Any:
        many, (y, *others) = _tensors(name, "outputs of the user-provided function", func(*points))
        if many or others:
            raise RuntimeError(f"The function given to {name} should return a single Tensor")
        if y.numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
        return y.reshape(())

    return checked


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function of one number: a tensor, or a tuple of tuples for a tuple of inputs."""
    several, _ = _tensors("hessian", "inputs", inputs)
    scalar = _scalar("hessian", func)

    def gradient(*points: Any) -> Any:
        found = _filled(_gradients((scalar(*points),), points, (None,), True), points, "hessian", strict)
        return found if several else found[0]

    return jacobian(gradient, inputs, create_graph, strict)


def _second_order(name: str, func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool) -> Any:
    several, given = _tensors(name, "inputs", inputs)
    scalar = _scalar(name, func)
    with enable_grad():
        points = _inputs(given, create_graph)
        directions = _cotangents(name, v, points)
        y = scalar(*points)
        first = _filled(_gradients((y,), points, (None,), True), points, name, strict)
        products = _filled(_gradients(first, points, directions, create_graph), points, name, strict)
    return _given_back(False, (y,), create_graph), _given_back(several, products, create_graph)


def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v times its Hessian)."""
    return _second_order("vhp", func, inputs, v, create_graph, strict)


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), its Hessian times v); the Hessian being symmetric, the same as vhp."""
    return _second_order("hvp", func, inputs, v, create_graph, strict)
