"""Functions as SciPy's methods call them: arrays of float64 in, floats and arrays out.

Where the value or the gradient is not finite (NaN, infinite), a method gets a value worse than all it has seen, by as
much as these lie apart, and a gradient of zeros: line searches and trust regions then step back, where NaN would end up
in their arithmetic.  At the first point there is nowhere to step back to: that is an error.

Must not know: which method calls.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tracejit.core.progress import Progress
from tracejit.core.tree import map_leaves
from tracejit.optimize.derivatives import (
    compiled,
    hessian,
    hessian_product,
    jacobian,
    residuals,
    value,
    value_and_gradient,
)  # fmt: skip
from tracejit.optimize.layout import Array, Layout, call
from tracejit.tensor import from_numpy

__all__ = ["Objective", "Residuals", "check_args"]

ROUNDING_OF_DOUBLE: Final = 1e-8
ROUNDING_OF_SINGLE: Final = 1e-3
"""How far two values of one point may lie apart, relative to them: the first call is an eager one, which sums in another order."""


def check_args(args: Any, function: str) -> tuple[Any, ...]:
    """`args` as a tuple.  Raises TypeError for anything but a tuple."""
    if not isinstance(args, tuple):
        raise TypeError(f"{function}(): expected args to be a tuple, got {type(args).__name__}; write args=(x,) for one argument")
    return args


class Objective:
    """A function that returns one number, over vectors.

    `points_not_finite` counts the evaluations whose value or gradient was not finite."""

    def __init__(self, f: Callable[..., Any], layout: Layout, args: tuple[Any, ...], function: str, progress: Progress) -> None:
        self._f, self._layout, self._args, self._function, self._progress = f, layout, args, function, progress
        self.points_not_finite = 0
        self._least, self._greatest = math.inf, -math.inf
        self._latest: tuple[Array, float] | None = None
        self._first: tuple[Array, float] | None = None
        self._rounding = ROUNDING_OF_DOUBLE

    def start(self, vector: Array, with_gradient: bool) -> None:
        """Evaluate at the first point.  Raises ValueError where that is not finite."""
        number, gradient = self._evaluated(vector, with_gradient)
        if not math.isfinite(number):
            raise ValueError(f"{self._function}(): f is {number} at the first point; begin at one where it is finite")
        if not np.isfinite(gradient).all():
            places = np.split(gradient, np.cumsum(self._layout.sizes)[:-1])
            paths = [p for p, g in zip(self._layout.paths, places, strict=True) if not np.isfinite(g).all()]
            raise ValueError(
                f"{self._function}(): f is {number} at the first point, but its gradient is not finite for "
                f"{', '.join(paths)}; begin at a point where it is"
            )
        self._first = vector.copy(), number
        self._least = self._greatest = number

    def _evaluated(self, vector: Array, with_gradient: bool) -> tuple[float, Array]:
        """The value and the gradient, one zero where it is not asked for."""
        x = from_numpy(np.array(vector, np.float64))
        if with_gradient:
            number, gradient = compiled(value_and_gradient, self._f)(self._f, self._layout, x, self._args)
            slope = gradient.numpy()
        else:
            number, slope = compiled(value, self._f)(self._f, self._layout, x, self._args), np.zeros(1)
        if number.dtype.itemsize < np.dtype(np.float64).itemsize:
            self._rounding = ROUNDING_OF_SINGLE
        return float(number.item()), slope

    def at(self, vector: Array, with_gradient: bool) -> tuple[float, Array]:
        """The value and the gradient at a point as they are, finite or not."""
        return self._evaluated(vector, with_gradient)

    def latest(self, vector: Array) -> float:
        """The value at a point, without an evaluation if it is the latest one."""
        if self._latest is not None and np.array_equal(self._latest[0], vector):
            return self._latest[1]
        return self.value(vector)

    def value(self, vector: Array) -> float:
        """The value at a point, for a method that takes no gradient."""
        return self._reported(vector, False)[0]

    def value_and_gradient(self, vector: Array) -> tuple[float, Array]:
        """The value and the gradient at a point."""
        return self._reported(vector, True)

    def _reported(self, vector: Array, with_gradient: bool) -> tuple[float, Array]:
        number, gradient = self._evaluated(vector, with_gradient)
        if self._first is not None:
            self._compare_with_first(vector, number)
        if math.isfinite(number) and np.isfinite(gradient).all():
            self._least, self._greatest = min(self._least, number), max(self._greatest, number)
        else:
            self.points_not_finite += 1
            number = self._greatest + (self._greatest - self._least) + max(1.0, abs(self._greatest))
            gradient = np.zeros_like(gradient)
        self._latest = vector.copy(), number
        self._progress.step(f"f = {number:.6g}")
        return number, gradient

    def _compare_with_first(self, vector: Array, number: float) -> None:
        """Warn where the first point has another value the second time: methods rely on it that it has not."""
        assert self._first is not None
        first, before = self._first
        if np.array_equal(first, vector):
            if not abs(number - before) <= self._rounding * max(abs(before), 1.0):
                warnings.warn(
                    f"{self._function}(): f gave {before} and then {number} for the same parameters; it must not depend on "
                    "random numbers or on earlier calls (for a Module with Dropout or BatchNorm call eval() first)",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._first = None

    def hessian_product(self, vector: Array, direction: Array) -> Array:
        """The Hessian at a point times a vector.  Raises FloatingPointError where that is not finite."""
        x, p = from_numpy(np.array(vector, np.float64)), from_numpy(np.array(direction, np.float64))
        product = compiled(hessian_product, self._f)(self._f, self._layout, x, self._args, p).numpy()
        return self._finite(product, "product of the Hessian")

    def hessian(self, vector: Array) -> Array:
        """The Hessian at a point.  Raises FloatingPointError where that is not finite."""
        x = from_numpy(np.array(vector, np.float64))
        found = self._finite(compiled(hessian, self._f)(self._f, self._layout, x, self._args).numpy(), "Hessian")
        return (found + found.T) / 2

    def _finite(self, array: Array, what: str) -> Array:
        if not np.isfinite(array).all():
            raise FloatingPointError(
                f"{self._function}(): the {what} is not finite at a point where f and its gradient are; a method without "
                "second derivatives, such as 'L-BFGS-B', does not need it"
            )
        return array


class Residuals:
    """A function that returns several numbers, over vectors; `name` says what is evaluated in errors."""

    def __init__(
        self,
        f: Callable[..., Any],
        layout: Layout,
        args: tuple[Any, ...],
        name: str,
        progress: Progress | None = None,
    ) -> None:
        self._f, self._layout, self._args, self._name, self._progress = f, layout, args, name, progress

    def start(self, vector: Array) -> int:
        """Evaluate at the first point; returns how many numbers there are.  Raises ValueError where one is not finite."""
        found = self.value(vector)
        if not np.isfinite(found).all():
            bad = np.flatnonzero(~np.isfinite(found))
            raise ValueError(
                f"{self._name} is not finite at the first point: {len(bad)} of {found.size} numbers, the first is number "
                f"{bad[0]} ({found[bad[0]]}); begin at a point where all are"
            )
        return int(found.size)

    def value(self, vector: Array) -> Array:
        """The numbers at a point, in one dimension."""
        x = from_numpy(np.array(vector, np.float64))
        found: Array = compiled(residuals, self._f)(self._f, self._layout, x, self._args).numpy()
        if self._progress is not None:
            self._progress.step(f"|f| = {np.linalg.norm(found):.6g}")
        return found

    def jacobian(self, vector: Array) -> Array:
        """Their derivatives: a row for each of them."""
        x = from_numpy(np.array(vector, np.float64))
        found: Array = compiled(jacobian, self._f)(self._f, self._layout, x, self._args).numpy()
        return found

    def tree(self, vector: Array) -> Any:
        """What the function returns at a point, in its own structure."""
        return map_leaves(lambda y: y.detach(), call(self._f, self._layout, from_numpy(vector.copy()), self._args))
