"""How exact compiled elementary functions are: `python -m benchmarks.accuracy [--points N] [--write docs/accuracy.md]`.

Every function is compiled as a user's would be and evaluated at N points per range, over the whole range where its result is neither
zero nor infinite and around its zeros.  float32 results are compared with NumPy's or SciPy's float64 values, float64 results with the C
library's long double functions (64 bits of mantissa); where those do not exist (erf) the reference is mpmath, at fewer points.
The error is |result - exact| in units in the last place of the exact value.  Special values are compared one by one with the reference's:
NaN, infinities and signed zeros must be equal, other results within LIMIT units (of a composition: finite).

A second table is of products of square matrices of standard normal numbers, tracejit's and NumPy's, against products in a wider type
(of some rows: NumPy has no fast products of long doubles).  The error is the Euclidean norm of result - exact over that of exact, in
units of the dtype's eps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
from scipy import special
from threadpoolctl import threadpool_info

import tracejit
from tracejit import functional

__all__ = [
    "FUNCTIONS",
    "LIMIT",
    "SIZES",
    "Function",
    "ProductRow",
    "Row",
    "main",
    "measure",
    "measure_product",
    "product_error",
    "worst_error",
]

Array = np.ndarray[Any, Any]
LIMIT = 2.5
"""Units in the last place that a primitive may be off."""

SIZES = (64, 128, 256, 512, 1024, 2048)
"""Of products."""

_MPMATH_POINTS = 20_000
_EXACT_ROWS = 32


@dataclass(frozen=True)
class Function:
    """compiled: the function on Tensors.  exact: the reference on arrays of a wider type.  ranges: (low, high) by dtype name; points are
    spread evenly over a range that contains 0, else evenly by exponent.  built_on: how it is composed of primitives, each rounded (so
    that its own error may exceed LIMIT); empty for a primitive.  slow: mpmath's function, the reference of float64.
    two: it has a second operand."""

    name: str
    compiled: Callable[..., Any]
    exact: Callable[..., Any]
    ranges: Mapping[str, tuple[tuple[float, float], ...]]
    built_on: str = ""
    slow: Callable[[Any], Any] | None = None
    two: bool = False


def _both(*ranges: tuple[float, float]) -> dict[str, tuple[tuple[float, float], ...]]:
    return {"float32": ranges, "float64": ranges}


def _sigmoid(x: Array) -> Array:
    e = np.exp(-abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


_TINY = {"float32": (1e-37, 1e-3), "float64": (1e-300, 1e-3)}
_POSITIVE = {"float32": ((1.2e-38, 3.4e38), (0.5, 2.0)), "float64": ((2.3e-308, 1.7e308), (0.5, 2.0))}
_AROUND = {
    "float32": ((-1.0, 1.0), _TINY["float32"], (-80.0, 80.0)),
    "float64": ((-1.0, 1.0), _TINY["float64"], (-700.0, 700.0)),
}

FUNCTIONS: tuple[Function, ...] = (
    Function("exp", tracejit.exp, np.exp, {"float32": ((-87.0, 88.0), (-1.0, 1.0)), "float64": ((-708.0, 709.0), (-1.0, 1.0))}),
    Function(
        "exp2", tracejit.exp2, np.exp2, {"float32": ((-126.0, 127.0), (-1.0, 1.0)), "float64": ((-1022.0, 1023.0), (-1.0, 1.0))}
    ),
    Function("expm1", tracejit.expm1, np.expm1, _AROUND),
    Function("log", tracejit.log, np.log, _POSITIVE),
    Function("log1p", tracejit.log1p, np.log1p, {k: ((-0.999, 1.0), _TINY[k], v[0]) for k, v in _POSITIVE.items()}),
    Function("log2", tracejit.log2, np.log2, _POSITIVE),
    Function("log10", tracejit.log10, np.log10, _POSITIVE),
    Function("tanh", tracejit.tanh, np.tanh, {k: ((-1.0, 1.0), _TINY[k], (-20.0, 20.0)) for k in _TINY}),
    Function(
        "sigmoid",
        tracejit.sigmoid,
        _sigmoid,
        {"float32": ((-86.0, 86.0), (-1.0, 1.0)), "float64": ((-700.0, 700.0), (-1.0, 1.0))},
    ),
    Function("erf", tracejit.erf, special.erf, {k: ((-1.0, 1.0), _TINY[k], (-6.0, 6.0)) for k in _TINY}, slow=mpmath.erf),
    Function("erfc", tracejit.erfc, special.erfc, {k: ((-1.0, 1.0), v, (-6.0, 9.0)) for k, v in _TINY.items()}, slow=mpmath.erfc),
    Function("sin", tracejit.sin, np.sin, _both((-3.2, 3.2), (-1e4, 1e4), (1e-3, 1e6))),
    Function("cos", tracejit.cos, np.cos, _both((-3.2, 3.2), (-1e4, 1e4), (1e-3, 1e6))),
    Function("tan", tracejit.tan, np.tan, _both((-3.2, 3.2), (-1e4, 1e4), (1e-3, 1e6))),
    Function("sinh", tracejit.sinh, np.sinh, {k: ((-2.0, 2.0), v[1], v[2]) for k, v in _AROUND.items()}),
    Function("cosh", tracejit.cosh, np.cosh, {k: ((-2.0, 2.0), v[2]) for k, v in _AROUND.items()}),
    Function("asin", tracejit.asin, np.arcsin, {k: ((-1.0, 1.0), v) for k, v in _TINY.items()}),
    Function("acos", tracejit.acos, np.arccos, {k: ((-1.0, 1.0), v) for k, v in _TINY.items()}),
    Function("atan", tracejit.atan, np.arctan, {k: ((-2.0, 2.0), v, (1e-3, 1e6)) for k, v in _TINY.items()}),
    Function("asinh", tracejit.asinh, np.arcsinh, {k: ((-10.0, 10.0), v, (1e-3, 1e30)) for k, v in _TINY.items()}),
    Function("acosh", tracejit.acosh, np.arccosh, _both((1.0, 2.0), (1.0, 1e30))),
    Function("atanh", tracejit.atanh, np.arctanh, {k: ((-0.999, 0.999), v) for k, v in _TINY.items()}),
    Function("atan2", tracejit.atan2, np.arctan2, _both((1e-3, 1e3), (-10.0, 10.0)), two=True),
    Function("pow", tracejit.pow, np.power, _both((1e-3, 1e3), (0.9, 1.1)), two=True),
    Function("sqrt", tracejit.sqrt, np.sqrt, _POSITIVE),
    Function("rsqrt", tracejit.rsqrt, lambda x: 1 / np.sqrt(x), _POSITIVE),
    Function(
        "gelu",
        functional.gelu,
        lambda x: x * (special.erfc(-x * 0.7071067811865475244) / 2),
        _both((-1.0, 8.0), (1e-3, 1e6)),
        "x * (1 + erf(x / sqrt(2))) / 2",
        lambda x: x * mpmath.ncdf(x),
    ),
    Function("silu", functional.silu, lambda x: x * _sigmoid(x), _both((-80.0, 80.0), (-1.0, 1.0)), "x * sigmoid(x)"),
    Function("softplus", functional.softplus, _softplus, _both((-80.0, 19.0), (-1.0, 1.0)), "log1p(exp(x))"),
)


@dataclass(frozen=True)
class Row:
    """What was measured: the greatest error in units in the last place, the argument where it was found, the number of points, and the
    special values whose result is wrong."""

    function: Function
    dtype: str
    error: float
    where: float
    points: int
    wrong: tuple[str, ...]


def worst_error(actual: Array, exact: Array) -> tuple[float, int]:
    """(greatest |actual - exact| in units in the last place of actual's dtype at the exact value, its position).  Exact values that are
    subnormal are measured in the smallest subnormal; those not representable are left out."""
    information = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(exact)[1] - 1, information.minexp)
        unit = np.ldexp(np.ones_like(exact), exponent + information.machep)
        error = np.abs(actual.astype(exact.dtype) - exact) / unit
    error = np.where(np.isfinite(exact) & (np.abs(exact) <= float(information.max)), error, 0)
    position = int(np.argmax(error))
    return float(error[position]), position


def _points(low: float, high: float, count: int, dtype: np.dtype[Any], random: np.random.Generator) -> Array:
    if low > 0 and high / low > 10:
        return np.exp(random.uniform(np.log(low), np.log(high), count)).astype(dtype)
    return random.uniform(low, high, count).astype(dtype)


def _specials(dtype: np.dtype[Any]) -> Array:
    f = np.finfo(dtype)
    positive = [0.0, f.smallest_subnormal, f.smallest_normal, f.eps, 0.5, 1.0, 2.0, 10.0, f.max, np.inf, np.nan]
    return np.array([*positive, *(-p for p in positive)], dtype)


def _exact(function: Function, operands: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    if dtype == np.float64 and function.slow is not None:
        with mpmath.workprec(120):
            values = [function.slow(mpmath.mpf(float(x))) for x in operands[0]]
            # A long double is the sum of two doubles.
            return np.array([np.longdouble(float(v)) + np.longdouble(float(v - mpmath.mpf(float(v)))) for v in values])
    wide = np.float64 if dtype == np.float32 else np.longdouble
    result: Array = function.exact(*(x.astype(wide) for x in operands))
    return result


def _wrong_specials(function: Function, run: Callable[..., Any], dtype: np.dtype[Any]) -> tuple[str, ...]:
    values = _specials(dtype)
    operands = [a.ravel() for a in np.meshgrid(values, values)] if function.two else [values]
    actual = run(*(tracejit.tensor(x) for x in operands)).numpy()
    with np.errstate(all="ignore"):
        # The reference is rounded to the dtype first: what overflows there is infinite.
        wide = np.float64 if dtype == np.float32 or function.slow is not None else np.longdouble
        exact = function.exact(*(x.astype(wide) for x in operands)).astype(dtype)
        close = np.abs(actual - exact) <= LIMIT * np.spacing(np.maximum(np.abs(exact), np.finfo(dtype).tiny))
        same = np.where(np.isfinite(exact) & (exact != 0), close, (actual == exact) & (np.signbit(actual) == np.signbit(exact)))
        same |= np.isnan(actual) & np.isnan(exact)
        if function.built_on:
            same |= np.isfinite(actual) & np.isfinite(exact)
    return tuple(", ".join(f"{float(x[k]):g}" for x in operands) for k in np.flatnonzero(~same))


def measure(function: Function, dtype: str, points: int) -> Row:
    """Evaluate one function in one dtype at `points` points of every range and at all special values."""
    kind = np.dtype(dtype)
    random = np.random.default_rng(7)
    run: Any = tracejit.compile(lambda *operands: function.compiled(*operands))
    worst, where, total = 0.0, 0.0, 0
    slow = dtype == "float64" and function.slow is not None
    count = min(points, _MPMATH_POINTS) if slow else points
    for low, high in function.ranges[dtype]:
        operands = [_points(low, high, count, kind, random)]
        if function.two:
            operands.append(random.uniform(-10, 10, count).astype(kind))
        tensors = [tracejit.tensor(x) for x in operands]
        run(*tensors)  # the first call is an eager one
        actual = run(*tensors).numpy()
        with np.errstate(all="ignore"):
            error, position = worst_error(actual, _exact(function, operands, kind))
        if error > worst:
            worst, where = error, float(operands[0][position])
        total += count
    wrong = _wrong_specials(function, _replayed(run, function, kind), kind)
    if run.stats.compiled_calls == 0:
        raise RuntimeError(f"{function.name} did not run compiled: {run.explain()}")
    return Row(function, dtype, worst, where, total, wrong)


def _replayed(run: Callable[..., Any], function: Function, dtype: np.dtype[Any]) -> Callable[..., Any]:
    """`run` after the first call with the shape of the special values, which is eager."""
    size = _specials(dtype).size ** (2 if function.two else 1)
    run(*[tracejit.tensor(np.ones(size, dtype))] * (2 if function.two else 1))
    return run


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| function | dtype | max error (ulp) | at | points | special values | computed as |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for r in rows:
        wrong = "all right" if not r.wrong else f"{len(r.wrong)} differ: {'; '.join(r.wrong[:4])}"
        cells = [r.function.name, r.dtype, f"{r.error:.2f}", f"{r.where:.6g}", f"{r.points:,}", wrong]
        lines.append(f"| {' | '.join(cells)} | {r.function.built_on or 'primitive'} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class ProductRow:
    """Errors of a product of two square matrices of this size: tracejit's and NumPy's."""

    size: int
    dtype: str
    own: float
    numpy: float


def product_error(result: Array, a: Array, b: Array) -> float:
    """The relative error of a @ b in the Euclidean norm, in units of eps, by some of its rows."""
    wide: Any = np.float64 if result.dtype == np.float32 else np.longdouble
    rows = np.unique(np.linspace(0, a.shape[0] - 1, _EXACT_ROWS, dtype=np.int64))
    exact = a[rows].astype(wide) @ b.astype(wide)
    off = np.sqrt(((result[rows] - exact) ** 2).sum() / (exact**2).sum())
    return float(off / np.finfo(result.dtype).eps)


def measure_product(size: int, dtype: str) -> ProductRow:
    """Compute one product by tracejit and by NumPy."""
    random = np.random.default_rng(size)
    a, b = (random.standard_normal((size, size)).astype(dtype) for _ in range(2))
    own = tracejit.matmul(tracejit.tensor(a), tracejit.tensor(b)).numpy()
    return ProductRow(size, dtype, product_error(own, a, b), product_error(np.matmul(a, b), a, b))


def product_table(rows: Sequence[ProductRow]) -> str:
    """The rows as a Markdown table."""
    lines = ["| product | dtype | error (eps) | NumPy's |", "| --- | --- | ---: | ---: |"]
    lines += [f"| {r.size} x {r.size} x {r.size} | {r.dtype} | {r.own:.2f} | {r.numpy:.2f} |" for r in rows]
    return "\n".join(lines)


_PAGE = """# Accuracy of elementary functions and products

Printed by `python -m benchmarks.accuracy`; {points:,} random points per range (fewer where the reference is mpmath). The error is
|result - exact| in units in the last place of the exact value; {limit} is the limit that a primitive is held to. "Special values" are
signed zeros, subnormals, the smallest and greatest numbers, infinities and NaN. Compositions round at every step: where their terms
cancel or the result is far smaller than they are, the error in units in the last place grows; eager mode and PyTorch compute them by
the same formula.

{table}

## Products of matrices

Operands are standard normal numbers. The error is the Euclidean norm of result - exact over that of exact, in units of the dtype's eps
(1.2e-7, 2.2e-16); exact is a product in float64, or in long double. Sums are added up in stretches of up to 384 terms
(`llvm/packed_products.py`) where the processor's vectors have 512 bits; elsewhere products are NumPy's. NumPy computes by {blas}.

{products}
"""


def _blas() -> str:
    """What NumPy's products are computed by, and its kernels."""
    found = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    return ", ".join(f"{pool['internal_api']} {pool['version']} ({pool.get('architecture')})" for pool in found) or "another BLAS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a primitive exceeds LIMIT or a special value is wrong."""
    parser = argparse.ArgumentParser(description="Accuracy of compiled elementary functions.")
    parser.add_argument("--points", type=int, default=1_000_000, help="points per range")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    options = parser.parse_args(arguments)
    rows = [measure(f, dtype, options.points) for f in FUNCTIONS for dtype in ("float32", "float64")]
    products = [measure_product(size, dtype) for dtype in ("float32", "float64") for size in SIZES]
    page = _PAGE.format(points=options.points, limit=LIMIT, table=table(rows), products=product_table(products), blas=_blas())
    if options.write is not None:
        options.write.write_text(page)
    print(page)
    return int(any(r.wrong or (r.error > LIMIT and not r.function.built_on) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
