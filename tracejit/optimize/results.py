"""What the functions of this package return and raise, with parameters in the structure in which they were given.

Must not know: how anything is solved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["IntermediateResult", "NotConvergedError", "OptimizeResult"]


class NotConvergedError(RuntimeError):
    """The solver stopped before it found what implicit_root or implicit_minimum asked for; the message has the solver's
    own."""


@dataclass(frozen=True, eq=False)
class OptimizeResult:
    """What `minimize`, `least_squares` and `root` found.

    x: the solution, in the structure of params; for a Module the Module itself, to which the solution has been written.
    fun: for `minimize` the value, a float; for `least_squares` and `root` what f returned at x, a tensor or a structure
    of tensors.
    jac: for `minimize` the gradient in the structure of params (for a Module a dictionary by name), None for a method
    that takes none; for the others the Jacobian, a tensor of float64: a row for each number that f returns, a column
    for each of the parameters'.
    success: whether SciPy's method says that it converged, and what it found is finite.
    message: why it ended.  status: the method's number for that.
    nit: iterations, None where the method does not count them.  nfev, njev, nhev: evaluations of the value, of first
    and of second derivatives, as the method counts them; None where it does not.
    scipy: the result as SciPy returned it, over the vector: it has what is special to a method."""

    x: Any
    fun: Any
    jac: Any
    success: bool
    status: int
    message: str
    nit: int | None
    nfev: int | None
    njev: int | None
    nhev: int | None
    scipy: Any


@dataclass(frozen=True, eq=False)
class IntermediateResult:
    """What the callback of `minimize` gets after each iteration.

    x: the parameters in their structure; for a Module the Module, to which they have been written.  fun: the value, a
    float.
    nit: the number of the iteration, from 1."""

    x: Any
    fun: float
    nit: int
