"""Bounds and constraints over parameters, as SciPy takes them: over the vector.

Must not know: what is minimized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.nn.module import Module
from tracejit.optimize.layout import Array, Layout
from tracejit.optimize.objective import Residuals
from tracejit.tensor import Tensor

__all__ = ["constraints_over", "limits"]

optimize: Any = lazy_module("scipy.optimize")


# ---- bounds ---------------------------------------------------------------------------------------------------------
def limits(bounds: Any, params: Any, layout: Layout, function: str) -> tuple[Array, Array] | None:
    """The lowest and the highest value of each number of the vector, None where there are no bounds.

    Raises TypeError and ValueError for bounds that do not fit the parameters."""
    if bounds is None:
        return None
    if isinstance(bounds, optimize.Bounds):
        low, high = (np.array(np.broadcast_to(np.asarray(b, np.float64), (layout.size,))) for b in (bounds.lb, bounds.ub))
    else:
        tree = dict.fromkeys(layout.names) if isinstance(params, Module) else params
        of_leaves = list(_of_leaves(bounds, tree, "bounds", function))
        pairs = [_pair(b, shape, path, function) for (b, path), shape in zip(of_leaves, layout.shapes, strict=True)]
        low, high = (np.concatenate([pair[i].reshape(-1) for pair in pairs]) for i in (0, 1))
    if not (low <= high).all():
        i = int(np.flatnonzero(~(low <= high))[0])
        path = layout.paths[int(np.searchsorted(np.cumsum(layout.sizes), i, side="right"))]
        raise ValueError(f"{function}(): the lower bound {low[i]} for {path} is above the upper bound {high[i]}")
    return low, high


def _of_leaves(bounds: Any, params: Any, path: str, function: str) -> Iterator[tuple[Any, str]]:
    """What bounds each leaf, and the expression that it stands for."""
    if isinstance(params, dict):
        if bounds is not None and not isinstance(bounds, dict):
            raise TypeError(f"{function}(): expected {path} to be a dictionary as params are, got {type(bounds).__name__}")
        given = bounds or {}
        unknown = [key for key in given if key not in params]
        if unknown:
            raise ValueError(f"{function}(): {path} has the key {unknown[0]!r}, which params have not: they have {list(params)}")
        for key, inner in params.items():
            yield from _of_leaves(given.get(key), inner, f"{path}[{key!r}]", function)
    elif isinstance(params, tuple | list):
        if bounds is not None and not (isinstance(bounds, tuple | list) and len(bounds) == len(params)):
            raise TypeError(
                f"{function}(): expected {path} to be a {type(params).__name__} of {len(params)} bounds, one for "
                f"each of params, got {bounds!r}"
            )
        for i, inner in enumerate(params):
            yield from _of_leaves(None if bounds is None else bounds[i], inner, f"{path}[{i}]", function)
    else:
        yield bounds, path


def _pair(bounds: Any, shape: tuple[int, ...], path: str, function: str) -> tuple[Array, Array]:
    """The lower and the upper bounds of the elements of one leaf."""
    size = int(np.prod(shape))
    if bounds is None:
        return np.full(size, -np.inf), np.full(size, np.inf)
    if isinstance(bounds, list):  # SciPy's form: a pair for each element
        if len(bounds) != size:
            raise ValueError(f"{function}(): {path} has {len(bounds)} pairs for {size} elements of shape {shape}")
        pairs = [_pair(b, (), f"{path}[{i}]", function) for i, b in enumerate(bounds)]
        return np.array([p[0][0] for p in pairs]), np.array([p[1][0] for p in pairs])
    if not (isinstance(bounds, tuple) and len(bounds) == 2):
        raise TypeError(
            f"{function}(): expected {path} to be a tuple (lower, upper), a list of such tuples, one for each "
            f"element, or None, got {bounds!r}"
        )
    sides: list[Array] = []
    for given, without in zip(bounds, (-np.inf, np.inf), strict=True):
        if isinstance(given, tuple | list):
            raise TypeError(
                f"{function}(): expected {path} to be (lower, upper) of numbers, tensors, arrays or None, got "
                f"{bounds!r}; a pair for each element is a list of tuples"
            )
        side = without if given is None else given.detach().numpy() if isinstance(given, Tensor) else given
        try:
            sides.append(np.array(np.broadcast_to(np.asarray(side, np.float64), shape)).reshape(-1))
        except ValueError:
            raise ValueError(f"{function}(): a bound of shape {np.shape(side)} in {path} does not fit shape {shape}") from None
    return sides[0], sides[1]


# ---- constraints ----------------------------------------------------------------------------------------------------
def constraints_over(constraints: Any, layout: Layout, start: Array, function: str) -> list[Any]:
    """SciPy's constraints whose functions take parameters, as ones whose functions take the vector, with Jacobians.

    Raises TypeError for what is no constraint of SciPy's."""
    several = constraints if isinstance(constraints, tuple | list) else (constraints,)
    return [_over_vector(c, layout, start, f"{function}(): constraint {i}") for i, c in enumerate(several)]


def _over_vector(constraint: Any, layout: Layout, start: Array, what: str) -> Any:
    if isinstance(constraint, optimize.LinearConstraint):
        return constraint
    if isinstance(constraint, optimize.NonlinearConstraint):
        fun, jac = _function(constraint.fun, (), layout, start, what)
        low, high = (b.detach().numpy() if isinstance(b, Tensor) else b for b in (constraint.lb, constraint.ub))
        return optimize.NonlinearConstraint(fun, low, high, jac, constraint.hess, constraint.keep_feasible)
    if isinstance(constraint, dict) and callable(constraint.get("fun")) and constraint.get("type") in ("eq", "ineq"):
        fun, jac = _function(constraint["fun"], tuple(constraint.get("args", ())), layout, start, what)
        return {"type": constraint["type"], "fun": fun, "jac": jac}
    raise TypeError(
        f"{what}: expected a scipy.optimize.NonlinearConstraint or LinearConstraint, or a dictionary with 'type' "
        f"('eq' or 'ineq') and 'fun', got {constraint!r}"
    )


def _function(
    f: Callable[..., Any], args: tuple[Any, ...], layout: Layout, start: Array, what: str
) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    numbers = Residuals(f, layout, args, what)
    numbers.start(start)
    return numbers.value, numbers.jacobian
