"""`minimize`: scipy.optimize.minimize over tensors, structures of tensors and Modules, with compiled derivatives.

Must not know: how derivatives are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.core.progress import Progress
from tracejit.optimize.feasible import constraints_over, limits
from tracejit.optimize.layout import Array, Layout
from tracejit.optimize.objective import Objective, check_args
from tracejit.optimize.results import IntermediateResult, OptimizeResult

__all__ = ["minimize"]

optimize: Any = lazy_module("scipy.optimize")

WITHOUT_GRADIENT: Final = {"nelder-mead", "powell", "cobyla", "cobyqa"}
WITH_HESSIAN_PRODUCTS: Final = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
WITH_HESSIAN: Final = {"dogleg", "trust-exact"}
STOPPED: Final = 99
"""The status of a result whose callback raised StopIteration, as SciPy has it."""


def minimize(
    f: Callable[..., Any],
    params: Any,
    method: str | Callable[..., Any] | None = None,
    *,
    args: tuple[Any, ...] = (),
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable[[IntermediateResult], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> OptimizeResult:
    """Minimize f(params, *args), which returns a tensor of one element, from `params` on, by scipy.optimize.minimize.

    f: called with tensors in the structure of params; for a Module with the Module itself.  It is compiled, with its
    derivatives, once for each source of a function, and runs eagerly where it cannot be.  The same parameters must give
    the same value.
    params: a floating-point tensor, a tuple, list or dictionary of them (or of such structures), or a Module, whose
    parameters with requires_grad are minimized over.  Tensors are not changed; a Module has the solution in its
    parameters at the end, and what it had before if an exception ends the search.
    method: one of SciPy's names, or a callable as SciPy takes it; None: BFGS, L-BFGS-B with bounds, SLSQP with
    constraints.  Gradients, Hessian products (Newton-CG, trust-ncg, trust-krylov, trust-constr) or the Hessian (dogleg,
    trust-exact) are passed to those that take them.
    bounds: in the structure of params (for a Module a dictionary by name) a tuple (lower, upper) for a tensor, each a
    number, a tensor or array that broadcasts to its shape, or None; or a list of such tuples, one for each element;
    None, or a key left out, is without bounds.  Or a scipy.optimize.Bounds over the vector.
    constraints: SciPy's dictionaries or NonlinearConstraints, whose functions take params and return tensors (their
    Jacobians are computed; a 'jac' is ignored), or LinearConstraints over the vector: all elements in order, each
    tensor row by row, as float64.
    tol, options: SciPy's.
    callback: called with an IntermediateResult after each iteration; StopIteration ends the search.
    quiet: no bar after half a second of work (drawn where tqdm is installed).

    Where f or its gradient is not finite, the method is given a value worse than all before, and steps back.
    SciPy computes in float64.  With float32 parameters, differences between values are rounding once they are near 1e-7
    of the value: methods then stop early, some with success False.

    Raises TypeError where params, bounds, constraints or what f returns are of the wrong kind; ValueError where f is
    not finite at the first point, bounds do not fit, or SciPy does not know the method; RuntimeError where f does not
    depend on params; FloatingPointError where second derivatives are not finite.  Warns (RuntimeWarning) where f gives
    two values at the first point.

    Source: SciPy's documentation of scipy.optimize.minimize."""
    layout = Layout(params, "minimize")
    start = layout.vector(params)
    name = _name(method, bounds, constraints)
    pair = limits(bounds, params, layout, "minimize")
    with Progress("minimize", unit="evaluation", quiet=quiet) as progress:
        objective = Objective(f, layout, check_args(args, "minimize"), "minimize", progress)
        with_gradient = name not in WITHOUT_GRADIENT
        given: dict[str, Any] = {"jac": True} if with_gradient else {}
        if name in WITH_HESSIAN_PRODUCTS:
            given["hessp"] = objective.hessian_product
        elif name in WITH_HESSIAN:
            given["hess"] = objective.hessian
        if pair is not None:
            given["bounds"] = optimize.Bounds(*pair)
            start = np.clip(start, *pair)
        objective.start(start, with_gradient)
        if _any(constraints):
            given["constraints"] = constraints_over(constraints, layout, start, "minimize")
        steps = None if callback is None else _Steps(callback, layout, objective)
        before = layout.vector(params)
        try:
            found = _solved(
                objective, start, name if isinstance(method, str) else method, with_gradient, steps, tol, options, given
            )
        except BaseException:
            if steps is not None and layout.module is not None:
                layout.write(before)
            raise
    return _result(found, layout, objective, with_gradient)


def _any(constraints: Any) -> bool:
    return not (isinstance(constraints, tuple | list) and not constraints)


def _name(method: Any, bounds: Any, constraints: Any) -> str:
    """The method in lower case, as SciPy chooses it where none is given."""
    if isinstance(method, str):
        return method.lower()
    if method is not None:
        return ""
    return "slsqp" if _any(constraints) else "l-bfgs-b" if bounds is not None else "bfgs"


class _Steps:
    """SciPy's callback, which calls the user's.  SciPy passes a result to a parameter of this name, or the vector
    alone."""

    def __init__(self, callback: Callable[[IntermediateResult], Any], layout: Layout, objective: Objective) -> None:
        self._callback, self._layout, self._objective = callback, layout, objective
        self.count = 0
        self.stopped_at: Array | None = None

    def __call__(self, intermediate_result: Any) -> None:
        vector = np.array(getattr(intermediate_result, "x", intermediate_result), np.float64)
        value = getattr(intermediate_result, "fun", None)
        self.count += 1
        number = self._objective.latest(vector) if value is None else float(np.asarray(value).reshape(-1)[0])
        try:
            self._callback(IntermediateResult(self._layout.answer(vector), number, self.count))
        except StopIteration:
            self.stopped_at = vector
            raise


def _solved(
    objective: Objective,
    start: Array,
    method: Any,
    with_gradient: bool,
    steps: _Steps | None,
    tol: float | None,
    options: Mapping[str, Any] | None,
    given: dict[str, Any],
) -> Any:
    function = objective.value_and_gradient if with_gradient else objective.value
    own = None if options is None else dict(options)
    try:
        return optimize.minimize(function, start, method=method, tol=tol, callback=steps, options=own, **given)
    except StopIteration:  # some methods do not look for it
        if steps is None or steps.stopped_at is None:
            raise
        return optimize.OptimizeResult(
            x=steps.stopped_at, fun=objective.latest(steps.stopped_at), success=False, status=STOPPED, nit=steps.count,
            message="`callback` raised `StopIteration`.",
        )  # fmt: skip


def _result(found: Any, layout: Layout, objective: Objective, with_gradient: bool) -> OptimizeResult:
    """The result, with value and gradient at the solution: some methods return those of another point."""
    vector = np.asarray(found.x, np.float64)
    message = str(found.get("message", ""))
    number, gradient = objective.at(vector, with_gradient)
    if objective.points_not_finite:
        message += f" (f or its gradient was not finite at {objective.points_not_finite} points)"
    return OptimizeResult(
        x=layout.answer(vector),
        fun=number,
        jac=layout.tree(gradient) if with_gradient else None,
        success=bool(found.get("success", False)) and math.isfinite(number),
        status=int(found.get("status", 0)),
        message=message,
        nit=_count(found, "nit"),
        nfev=_count(found, "nfev"),
        njev=_count(found, "njev"),
        nhev=_count(found, "nhev"),
        scipy=found,
    )


def _count(found: Any, name: str) -> int | None:
    value = found.get(name)
    return None if value is None else int(value)
