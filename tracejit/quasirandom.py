"""tracejit.quasirandom: sequences of points that fill a cube evenly.  They are SciPy's."""

from __future__ import annotations

import warnings
from typing import Any

from tracejit.core.dtypes import DType, default_dtype
from tracejit.core.lazy import lazy_module
from tracejit.core.missing import missing_names
from tracejit.functions import randint
from tracejit.tensor import Tensor, tensor

__all__ = ["SobolEngine"]

_qmc = lazy_module("scipy.stats.qmc")


class SobolEngine:
    """Points of a Sobol sequence in the unit cube of `dimension` dimensions (Joe and Kuo, Constructing Sobol sequences with better
    two-dimensional projections, 2008).

    scramble: the sequence is shuffled at random (Owen), by `seed`, or by the default generator.  Without it the points are PyTorch's, with
    it other ones of the same kind.  Raises ValueError for a dimension that is not between 1 and MAXDIM."""

    MAXDIM = 21201
    MAXBIT = 30

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        if scramble and seed is None:
            seed = int(randint(0, 2**31, (1,)))
        self.num_generated = 0
        self._sequence = _qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, rng=seed)

    def draw(self, n: int = 1, out: Any = None, dtype: DType | None = None) -> Tensor:
        """The next n points, (n, dimension); into `out` where it is given."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers of points that are no powers of 2
            drawn = self._sequence.random(n)
        points = tensor(drawn, dtype=dtype or default_dtype())
        self.num_generated += n
        if out is None:
            return points
        out.resize_(points.shape).copy_(points)
        return out

    def draw_base2(self, m: int, out: Any = None, dtype: DType | None = None) -> Tensor:
        """The next 2 ** m points.  Raises ValueError unless there is then a power of two of points."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                f"draw_base2(): {self.num_generated} points have been drawn, so 2 ** {m} more are {total}, which is no power of 2; "
                "use draw() or reset()"
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self._sequence.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass n points over."""
        self._sequence.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"


__getattr__ = missing_names(__name__)
