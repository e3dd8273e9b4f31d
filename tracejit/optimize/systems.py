"""`least_squares` and `root`: those of scipy.optimize over tensors, structures of tensors and Modules, with compiled
Jacobians.

Must not know: how derivatives are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.core.progress import Progress
from tracejit.optimize.feasible import limits
from tracejit.optimize.layout import Array, Layout
from tracejit.optimize.objective import Residuals, check_args
from tracejit.optimize.results import OptimizeResult
from tracejit.tensor import from_numpy

__all__ = ["least_squares", "root"]

optimize: Any = lazy_module("scipy.optimize")

ROOT_WITH_JACOBIAN: Final = {"hybr", "lm"}


def least_squares(
    residuals: Callable[..., Any],
    params: Any,
    method: str = "trf",
    *,
    args: tuple[Any, ...] = (),
    bounds: Any = None,
    loss: str | Callable[..., Any] = "linear",
    f_scale: float = 1.0,
    quiet: bool = False,
    **options: Any,
) -> OptimizeResult:
    """Minimize half the sum of the squares of what residuals(params, *args) returns, by scipy.optimize.least_squares.

    residuals: returns a tensor, or a structure of tensors, of m numbers in all.  Called and compiled as the function of
    `minimize`.
    params, args, bounds, quiet: as for `minimize`.  method: 'trf', 'dogbox' or 'lm'.  loss, f_scale, options (ftol,
    xtol, gtol, x_scale, max_nfev, tr_solver ...): SciPy's.  The Jacobian, m x n for n numbers in params, is computed by
    one compiled function.

    Returns an OptimizeResult whose fun is what residuals returned at the solution and whose jac is the Jacobian as
    SciPy returns it: with a loss other than 'linear' it is scaled.  `result.scipy.cost` is the value that was
    minimized.

    Raises what `minimize` raises for params, args and bounds; ValueError where a residual is not finite at the first
    point, and what SciPy raises, such as for method 'lm' with fewer residuals than parameters.

    Source: SciPy's documentation of scipy.optimize.least_squares."""
    layout = Layout(params, "least_squares")
    given = check_args(args, "least_squares")
    pair = limits(bounds, params, layout, "least_squares")
    start = layout.vector(params)
    if pair is not None:
        start = np.clip(start, *pair)
        options["bounds"] = pair
    with Progress("least_squares", unit="evaluation", quiet=quiet) as progress:
        numbers = Residuals(residuals, layout, given, "least_squares(): residuals", progress)
        numbers.start(start)
        found = optimize.least_squares(
            numbers.value, start, numbers.jacobian, method=method, loss=loss, f_scale=f_scale, **options
        )
    return _result(found, layout, numbers, found.jac, np.asarray(found.fun), residuals, given)


def root(
    f: Callable[..., Any],
    params: Any,
    method: str = "hybr",
    *,
    args: tuple[Any, ...] = (),
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> OptimizeResult:
    """Find params at which all numbers that f(params, *args) returns are zero, by scipy.optimize.root.

    f: returns a tensor, or a structure of tensors, with as many numbers as params hold (method 'lm' allows more).
    Called and compiled as the function of `minimize`.
    params, args, quiet: as for `minimize`.  method, tol, options: SciPy's; 'hybr' and 'lm' are given the Jacobian, the
    others take none.

    Returns an OptimizeResult whose fun is what f returned at the solution and whose jac is the Jacobian there.

    Raises what `minimize` raises for params and args; ValueError where f is not finite at the first point or returns
    another count of numbers.

    Source: SciPy's documentation of scipy.optimize.root."""
    layout = Layout(params, "root")
    given = check_args(args, "root")
    start = layout.vector(params)
    with Progress("root", unit="evaluation", quiet=quiet) as progress:
        numbers = Residuals(f, layout, given, "root(): f", progress)
        count = numbers.start(start)
        name = method.lower()
        if count < layout.size or (count > layout.size and name != "lm"):
            raise ValueError(
                f"root(): f returned {count} numbers for {layout.size} parameters; it must return as many (or "
                "more, with method='lm'); least_squares() takes any count"
            )
        jacobian = numbers.jacobian if name in ROOT_WITH_JACOBIAN else None
        found = optimize.root(
            numbers.value, start, method=method, jac=jacobian, tol=tol, options=None if options is None else dict(options)
        )
    vector = np.asarray(found.x, np.float64)
    matrix = numbers.jacobian(vector) if np.isfinite(vector).all() else np.full((count, layout.size), np.nan)
    return _result(found, layout, numbers, matrix, np.asarray(found.fun), f, given)


def _result(
    found: Any, layout: Layout, numbers: Residuals, jacobian: Any, values: Array, f: Callable[..., Any], args: tuple[Any, ...]
) -> OptimizeResult:
    success, message = bool(found.success), str(found.message)
    if not (np.isfinite(found.x).all() and np.isfinite(values).all()):
        success = False
        message += " (the solution, or what the function returns there, is not finite)"
    return OptimizeResult(
        x=layout.answer(np.asarray(found.x, np.float64)),
        fun=numbers.tree(np.asarray(found.x, np.float64)),
        jac=from_numpy(np.array(jacobian, np.float64)),
        success=success,
        status=int(found.get("status", 0)),
        message=message,
        nit=found.get("nit"),
        nfev=found.get("nfev"),
        njev=found.get("njev"),
        nhev=None,
        scipy=found,
    )
