"""Roots and minima that have a gradient with respect to what the function was given beside them.

Where F(x, a) = 0 and the matrix dF/dx has an inverse, the solution is a function x(a) near a, and dx/da = -(dF/dx)^-1
dF/da.  A backward pass with the cotangent g of x so needs one linear system, (dF/dx)^T u = g, and -(dF/da)^T u: no step
of the solver is differentiated. For a minimum F is the gradient of what is minimized, and dF/dx its Hessian.  Backward
passes are made of tensor operations at the solution, which is on the tape itself: so derivatives of any order exist.

Sources: S. G. Krantz and H. R. Parks, The Implicit Function Theorem, Birkhäuser 2003; for its use in
automatic differentiation M. Blondel et al., Efficient and Modular Implicit Differentiation, NeurIPS 2022,
arXiv:2105.15183.

Must not know: how the solution is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tracejit.autograd.function import Function
from tracejit.autograd.grad_mode import is_grad_enabled
from tracejit.core.tree import flatten, map_leaves, unflatten
from tracejit.func import vjp
from tracejit.linalg import solve
from tracejit.nn.module import Module
from tracejit.optimize.derivatives import compiled, gradient_of, jacobian_of
from tracejit.optimize.layout import Array, Layout, call, flat, parts
from tracejit.optimize.minimum import minimize
from tracejit.optimize.results import NotConvergedError, OptimizeResult
from tracejit.optimize.systems import root
from tracejit.tensor import Tensor, from_numpy

__all__ = ["implicit_minimum", "implicit_root"]

NEWTON_STEPS: Final = 8
"""How many Newton steps at most make a solver's answer as exact as rounding allows: derivatives are those at a root."""


def implicit_root(f: Callable[..., Any], x0: Any, *args: Any, method: str = "hybr", **options: Any) -> Any:
    """x with f(x, *args) = 0, found by `root` from x0 on, whose gradient with respect to tensors in args is that of the
    solution.

    f: returns a tensor, or a structure of tensors, with as many numbers as x holds.  It may read tensors that require
    gradients only through args.
    x0: a floating-point tensor, or a structure of them; the result has this structure.  No gradient goes to x0.
    args: anything; tensors in tuples, lists and dictionaries get gradients if they require them.  method, options:
    those of `root`.

    The result is improved by Newton steps, then put on the tape.  Derivatives of any order exist.  A backward pass
    costs one Jacobian with respect to x, n x n for n numbers, and one solution of a linear system.

    Raises NotConvergedError where `root` does not converge; RuntimeError where the Jacobian has no inverse at the
    solution (there it has no derivative), and where f reads a tensor that requires a gradient and is not in args; what
    `root` raises.

    Source: the implicit function theorem (Krantz and Parks, 2003), as in Blondel et al., arXiv:2105.15183."""
    return _solution("implicit_root", _of_root, lambda x, given: root(f, x, method, args=given, **options), f, x0, args)


def implicit_minimum(f: Callable[..., Any], x0: Any, *args: Any, method: str | None = None, **options: Any) -> Any:
    """x that minimizes f(x, *args), found by `minimize` from x0 on, whose gradient with respect to tensors in args is
    that of the minimum.

    f: returns a tensor of one element, and is twice differentiable near the minimum.  It may read tensors that require
    gradients only through args.  x0, args: as for `implicit_root`.  method, options: those of `minimize`, without
    bounds, constraints and callback.

    The result is improved by Newton steps, then put on the tape.  Derivatives of any order exist.  A backward pass
    costs one Hessian with respect to x, n x n for n numbers, and one solution of a linear system.

    Raises NotConvergedError where `minimize` does not converge; RuntimeError where the Hessian at the solution is not
    positive definite (there the minimum has no derivative), and where f reads a tensor that requires a gradient and is
    not in args; TypeError for bounds, constraints and callback; what `minimize` raises.

    Source: the implicit function theorem for the gradient of f (Krantz and Parks, 2003), as in Blondel et al.,
    arXiv:2105.15183."""
    for name in ("bounds", "constraints", "callback"):
        if name in options:
            raise TypeError(f"implicit_minimum(): {name} is not supported: at a bound the gradient of f need not be zero")
    return _solution("implicit_minimum", _of_minimum, lambda x, given: minimize(f, x, method, args=given, **options), f, x0, args)


# ---- the equation ---------------------------------------------------------------------------------------------------
def _of_root(f: Callable[..., Any], layout: Layout, vector: Any, args: Any) -> Any:
    return flat(call(f, layout, vector, args), "f")


def _of_minimum(f: Callable[..., Any], layout: Layout, vector: Any, args: Any) -> Any:
    return gradient_of(f, layout, vector, args)


Equation = Callable[[Callable[..., Any], Layout, Any, Any], Any]


def _jacobian(f: Callable[..., Any], equation: Equation, layout: Layout, vector: Any, args: Any) -> Any:
    """(what the equation gives, its Jacobian) at a vector."""
    matrix = jacobian_of(lambda v: equation(f, layout, v, args), vector)
    return equation(f, layout, vector, args).detach(), matrix.detach()


def _pulled(
    f: Callable[..., Any],
    equation: Equation,
    layout: Layout,
    structure: Any,
    others: Any,
    vector: Any,
    tensors: Any,
    cotangent: Any,
) -> Any:
    """The cotangents of `tensors`, given that of the solution; differentiable."""
    given = _arguments(structure, others, tensors)
    matrix = jacobian_of(lambda v: equation(f, layout, v, given), vector)
    weights = solve(matrix.mT, -cotangent)
    return vjp(lambda *inner: equation(f, layout, vector, _arguments(structure, others, inner)), *tensors)[1](weights)


def _arguments(structure: Any, others: Any, tensors: Any) -> Any:
    """The arguments in their structure: leaves that are None in `others` are the next of `tensors`."""
    rest = iter(tensors)
    return unflatten(structure, [next(rest) if is_tensor else other for is_tensor, other in others])


class Solution(Function):
    """A solution as a function of the tensors that the equation was given."""

    @staticmethod
    def forward(ctx: Any, vector: Any, problem: Any, *tensors: Any) -> Any:
        """The vector, which has been found already."""
        ctx.problem = problem
        found = vector.clone()
        ctx.save_for_backward(found, *tensors)
        return found

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """By the implicit function theorem."""
        vector, *tensors = ctx.saved_tensors
        f, equation, layout, structure, others = ctx.problem
        if is_grad_enabled():  # a graph of it is wanted
            found = _pulled(f, equation, layout, structure, others, vector, tuple(tensors), grad_outputs[0])
        else:
            constants = tuple([t.detach() for t in tensors])
            pulled = compiled(_pulled, f)
            found = pulled(f, equation, layout, structure, others, vector.detach(), constants, grad_outputs[0].detach())
        return (None, None, *found)


def _solution(
    name: str,
    equation: Equation,
    solver: Callable[..., OptimizeResult],
    f: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...],
) -> Any:
    if isinstance(x0, Module):
        raise TypeError(
            f"{name}(): expected x0 to be a tensor or a structure of tensors, got a Module; pass dict(module.named_parameters())"
        )
    layout = Layout(x0, name)
    constants = map_leaves(lambda x: x.detach() if isinstance(x, Tensor) else x, args)
    leaves, structure = flatten(args)
    wanted = [isinstance(x, Tensor) and x.dtype.is_floating_point for x in leaves]
    others = [(is_wanted, None if is_wanted else leaf) for is_wanted, leaf in zip(wanted, leaves, strict=True)]
    tensors = [x for x, is_wanted in zip(leaves, wanted, strict=True) if is_wanted]
    _check_closure(name, f, layout, x0, constants)
    found = solver(x0, constants)
    if not found.success:
        raise NotConvergedError(
            f"{name}(): the solver did not converge: {found.message}; begin nearer to the solution, or try another method"
        )
    needs_gradient = is_grad_enabled() and any(x.requires_grad for x in tensors)
    vector = from_numpy(_improved(name, f, equation, layout, np.asarray(found.scipy.x, np.float64), constants, needs_gradient))
    solution = Solution.apply(vector, (f, equation, layout, structure, others), *tensors)
    return unflatten(layout.structure, parts(layout, solution))


def _check_closure(name: str, f: Callable[..., Any], layout: Layout, x0: Any, constants: Any) -> None:
    """Raise RuntimeError where f, given constants alone, returns what requires a gradient."""
    found = call(f, layout, from_numpy(layout.vector(x0)), constants)
    if any(isinstance(y, Tensor) and y.requires_grad for y in flatten(found)[0]):
        raise RuntimeError(
            f"{name}(): f reads a tensor that requires a gradient and is not in args, so that it would get none; "
            "pass it as an argument, or detach it (parameters of a Module: dict(module.named_parameters()) with "
            "tracejit.func.functional_call)"
        )


def _improved(
    name: str, f: Callable[..., Any], equation: Equation, layout: Layout, vector: Array, args: Any, needs_gradient: bool
) -> Array:
    """The vector after Newton steps, as long as they bring the equation nearer to zero.

    Raises RuntimeError where a gradient is needed and there is none."""

    def at(point: Array) -> tuple[Array, Array]:
        value, matrix = compiled(_jacobian, f)(f, equation, layout, from_numpy(point.copy()), args)
        return value.numpy(), matrix.numpy()

    value, matrix = at(vector)
    for _ in range(NEWTON_STEPS):
        if not value.any() or not _is_regular(matrix):
            break
        nearer = vector - np.linalg.solve(matrix, value)
        new_value, new_matrix = at(nearer)
        if not np.linalg.norm(new_value) < np.linalg.norm(value):
            break
        vector, value, matrix = nearer, new_value, new_matrix
    if needs_gradient:
        if not _is_regular(matrix):
            raise RuntimeError(
                f"{name}(): the {'Jacobian' if equation is _of_root else 'Hessian'} of f with respect to x has no "
                "inverse at the solution "
                f"(shape {matrix.shape}, rank {_rank(matrix)}), so that the solution has no derivative there"
            )
        if equation is _of_minimum and (least := float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])) <= 0:
            raise RuntimeError(
                f"{name}(): the Hessian at the solution has the eigenvalue {least:.3g}, so that it is no minimum "
                "with a derivative; begin elsewhere"
            )
    return vector


def _rank(matrix: Array) -> int:
    return int(np.linalg.matrix_rank(matrix)) if np.isfinite(matrix).all() else 0


def _is_regular(matrix: Array) -> bool:
    return _rank(matrix) == len(matrix)
