"""Values and derivatives of functions over vectors, by compiled functions.

Each function here has one compiled function for each source of `f`, which serves all functions made from that source:
what they close over is data of the call.  Nothing of `f` is kept alive but its code.  Where `f` cannot be recorded, the
call runs eagerly.

Rows and columns of Jacobians are the steps of a loop, which is one loop of the program: its size does not grow with
theirs. A column costs a pass forward and a pass back more than a row; so the columns are taken where they are fewer
than half the rows.

Arguments: `f(params, *args)`, its Layout, the vector (float64, one dimension).  All results are detached, of float64.
Must not know: SciPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracejit.compiled.compile import compile
from tracejit.core.dtypes import float64
from tracejit.func import grad, jvp, value_and_grad, vjp
from tracejit.ops.public.creation import eye
from tracejit.ops.public.movement import stack
from tracejit.optimize.layout import Layout, call, flat
from tracejit.tensor import Tensor

__all__ = [
    "compiled", "gradient_of", "hessian", "hessian_product", "jacobian", "jacobian_of", "residuals", "scalar", "value",
    "value_and_gradient",
]  # fmt: skip

Function = Callable[..., Any]
SOURCES = 64
"""For how many sources of functions compiled functions are kept."""


def compiled(derivative: Function, f: Function) -> Function:
    """The compiled function of one of the functions of this package that takes `f` first."""
    inner = getattr(f, "__wrapped__", f)
    source: Any = getattr(getattr(inner, "__func__", inner), "__code__", None) or type(inner)
    return _compiled(derivative, source)


@functools.lru_cache(maxsize=SOURCES)
def _compiled(derivative: Function, source: Any) -> Function:
    def run(*arguments: Any) -> Any:
        return derivative(*arguments)

    run.__name__ = run.__qualname__ = derivative.__name__
    return compile(run)


def scalar(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The value of f as a tensor without dimensions.  Raises TypeError where it is no tensor, or not of one element."""
    found = call(f, layout, vector, args)
    if not isinstance(found, Tensor):
        raise TypeError(f"f must return a Tensor of one element, got {type(found).__name__}; a structure is for least_squares()")
    if found.numel() != 1:
        raise TypeError(f"f must return a Tensor of one element, got shape {tuple(found.shape)}; reduce it, as with .sum()")
    return found.reshape(())


def value(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The value of a function that returns one number."""
    return scalar(f, layout, vector, args).detach()


def _differentiable(f: Function, layout: Layout, args: Any) -> Function:
    def of_vector(vector: Any) -> Any:
        found = scalar(f, layout, vector, args)
        if not found.requires_grad:
            raise RuntimeError(
                "the value of f does not depend on params by tensor operations: was it detached, or computed by "
                "NumPy? A method that takes no gradient, such as 'Nelder-Mead', needs none"
            )
        return found

    return of_vector


def value_and_gradient(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The value of a function that returns one number, and its gradient."""
    number, gradient = value_and_grad(_differentiable(f, layout, args))(vector)
    return number.detach(), gradient.detach()


def hessian_product(f: Function, layout: Layout, vector: Any, args: Any, direction: Any) -> Any:
    """The Hessian of a function that returns one number, times a vector: the gradient of (gradient * direction).

    Source: B. A. Pearlmutter, Fast Exact Multiplication by the Hessian, Neural Computation 6 (1994), 147-160; here in
    reverse mode twice."""
    gradient = grad(_differentiable(f, layout, args))
    return vjp(gradient, vector)[1](direction)[0].detach()


def gradient_of(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The gradient as a function whose own derivatives exist."""
    return grad(_differentiable(f, layout, args))(vector)


def hessian(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The second derivatives of a function that returns one number: a matrix, symmetric but for rounding."""
    return jacobian_of(lambda v: gradient_of(f, layout, v, args), vector).detach()


def residuals(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The numbers that a function returns, in one dimension."""
    return flat(call(f, layout, vector, args), "f").detach()


def jacobian(f: Function, layout: Layout, vector: Any, args: Any) -> Any:
    """The derivatives of the numbers that a function returns: a row for each of them."""
    return jacobian_of(lambda v: flat(call(f, layout, v, args), "f"), vector).detach()


def jacobian_of(function: Function, vector: Any) -> Any:
    """The Jacobian of a function from vector to vector; differentiable itself."""
    found, back = vjp(function, vector)
    rows, columns = found.numel(), vector.numel()
    lines = []
    if 2 * columns < rows:
        for direction in eye(columns, dtype=float64):
            lines.append(jvp(function, (vector,), (direction,))[1])
        return stack(lines, 1)
    for direction in eye(rows, dtype=float64):
        lines.append(back(direction)[0])
    return stack(lines)
