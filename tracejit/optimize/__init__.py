"""Minima, least squares and roots of functions of tensors by scipy.optimize, with compiled derivatives.

* layout.py: tensors, structures of tensors and Modules as one vector of float64, and back.
* derivatives.py: values, gradients, Hessian products, Hessians and Jacobians over such vectors, compiled.
* objective.py: a function as SciPy's methods call it: what is not finite, what differs from call to call.
* feasible.py: bounds and constraints, as SciPy takes them.
* minimum.py: `minimize`.  systems.py: `least_squares`, `root`.  results.py: what they return.
* implicit.py: `implicit_root`, `implicit_minimum`: solutions that have a gradient.

SciPy is imported when one of the functions is first called.

Must not know: how a function is recorded; what SciPy's methods do.
Start reading: minimum.py, then derivatives.py.
"""

from tracejit.optimize.implicit import implicit_minimum, implicit_root
from tracejit.optimize.minimum import minimize
from tracejit.optimize.results import IntermediateResult, NotConvergedError, OptimizeResult
from tracejit.optimize.systems import least_squares, root

__all__ = [
    "IntermediateResult", "NotConvergedError", "OptimizeResult", "implicit_minimum", "implicit_root", "least_squares",
    "minimize", "root",
]  # fmt: skip
