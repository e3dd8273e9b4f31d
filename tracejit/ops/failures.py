"""Where factorisations of matrices fail, as numbers and not as errors: what LAPACK calls info, 0 for each matrix that it can factorise.

Whether one fails is decided by the routine that computes the factor (ops/decompositions.py), so that what is found to be sound here does
not raise there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from tracejit.core.aval import Aval
from tracejit.core.dtypes import int32
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Kind
from tracejit.core.products import on_one_thread
from tracejit.ops.declare import custom
from tracejit.ops.decompositions import require_square, well_conditioned
from tracejit.ops.samples import Samples, cases, floats

__all__ = ["cholesky_info", "lu_info"]


def _rule(x: Aval) -> Aval:
    require_square("linalg", x)
    return Aval(x.shape[:-2], int32)


def _samples() -> Samples:
    zero_row = well_conditioned(2, 2, 2)
    zero_row[0, 1] = 0.0
    return cases((np.eye(3),), (-np.eye(3),), (zero_row,), (floats(0, 2, 2),))


def _works(function: Callable[[Any], Any], x: Any) -> bool:
    try:
        on_one_thread(function, x)
    except np.linalg.LinAlgError as error:
        if is_foreign(error):
            raise
        return False
    return True


def _info(x: Any, function: Callable[[Any], Any], where: Callable[[Any], int]) -> Any:
    """0 for matrices that a function of NumPy's takes; for others the position that `where` finds, or their size where it finds none."""
    out = np.zeros(x.shape[:-2], np.int32)
    if not _works(function, x):
        for i in np.ndindex(*out.shape):
            if not _works(function, x[i]):
                out[i] = where(x[i]) or x.shape[-1]
    return out


@custom(Kind.OPAQUE, _rule, traits=("checked", "not differentiable"), samples=_samples())
def cholesky_info(x: Any) -> Any:
    """The order of the first leading minor of symmetric matrices that is not positive, 0 where there is none."""
    return _info(x, np.linalg.cholesky, lambda a: int(scipy.linalg.lapack.dpotrf(a, lower=True)[1]))


@custom(Kind.OPAQUE, _rule, traits=("checked", "not differentiable"), samples=_samples())
def lu_info(x: Any) -> Any:
    """The position of the first pivot of matrices that is zero, from 1; 0 where there is none."""
    return _info(x, np.linalg.inv, lambda a: int(scipy.linalg.lapack.dgetrf(a)[2]))
