"""The reference meaning of expressions: each operation on NumPy scalars or arrays.

`OPERATIONS[name](*values)` is what the reference rendering calls; `evaluate(expr, environment)` walks a DAG.  Elementary functions
are evaluated through their definition in math/, so that compiled code must agree bit for bit.  Floating-point warnings are off:
kernels do not raise them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops.expressions import ELEMENTARY, Apply, Const, Expr, Var, topological
from tracejit.math import libm
from tracejit.math.functions import complete, expand

__all__ = ["OPERATIONS", "apply", "cast", "evaluate"]


def cast(x: Any, dtype: DType) -> Any:
    """astype.  A float that an integer cannot hold gives what x86 gives: the least int32 (int64 for int64), then narrowed.
    Reduced dtypes are converted by way of float32."""
    if x.dtype.itemsize == 2 and x.dtype.kind in dtypes.FLOATING_KINDS:
        x = x.astype(np.float32)
    if dtype.is_reduced:
        return x.astype(np.float32).astype(dtype.numpy)
    if x.dtype.kind != "f" or dtype.category != dtypes.INTEGER:
        return x.astype(dtype.numpy)
    wide = np.int64 if dtype is dtypes.int64 else np.int32
    limit = 2.0 ** (63 if wide is np.int64 else 31)
    truncated = np.trunc(x)
    inside = (truncated >= -limit) & (truncated < limit)
    return np.where(inside, np.where(inside, truncated, 0).astype(wide), np.iinfo(wide).min).astype(dtype.numpy)[()]


def _integer(x: Any) -> bool:
    return bool(x.dtype.kind in "iu")


def _fmod(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


def _shift_in_range(x: Any, y: Any) -> Any:
    return (y >= 0) & (y < 8 * x.dtype.itemsize)


def _shl(x: Any, y: Any) -> Any:
    inside = _shift_in_range(x, y)
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0).astype(y.dtype)), x.dtype.type(0))[()]


def _shr(x: Any, y: Any) -> Any:
    inside = _shift_in_range(x, y)
    return np.where(
        inside, np.right_shift(x, np.where(inside, y, 0).astype(y.dtype)), np.where(x < 0, x.dtype.type(0) - 1, 0).astype(x.dtype)
    )[()]


def _maximum(x: Any, y: Any) -> Any:
    return x | y if x.dtype == np.bool_ else np.where((x > y) | np.isnan(x), x, y)[()]


def _minimum(x: Any, y: Any) -> Any:
    return x & y if x.dtype == np.bool_ else np.where((x < y) | np.isnan(x), x, y)[()]


def _unsigned_minimum(x: Any, y: Any) -> Any:
    unsigned = f"u{x.dtype.itemsize}"
    return np.minimum(x.view(unsigned), y.view(unsigned)).view(x.dtype)


def _integer_power(x: Any, y: Any) -> Any:
    """Square and multiply; a negative exponent gives the integer part of 1 / x**-y, 0 for x = 0."""
    result = np.ones_like(x)
    base, exponent = x, y
    for _ in range(8 * x.dtype.itemsize):
        result = np.where(exponent & 1, result * base, result).astype(x.dtype)
        base = base * base
        exponent = exponent >> 1
    sign = np.where(y & 1, x, x * x)  # of 1 and -1
    return np.where(y < 0, np.where((x == 1) | (x == -1), sign, 0), result).astype(x.dtype)[()]


def _select(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)[()]


OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "div_where": lambda condition, x, y, usual: _select(condition, np.divide(x, y), usual),
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "fma": libm.fma,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": _fmod,
    "maximum": _maximum,
    "minimum": _minimum,
    "unsigned_minimum": _unsigned_minimum,
    "copysign": np.copysign,
    "ldexp": np.ldexp,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "signbit": np.signbit,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.invert,
    "shl": _shl,
    "shr": _shr,
    "select": _select,
    "pow": _integer_power,
}


@cache
def _definition(operation: str, dtype: DType, arity: int) -> tuple[tuple[Var, ...], Expr]:
    parameters = tuple(Var(f"x{i}", dtype) for i in range(arity))
    definition = expand(Apply(operation, parameters, dtype))
    assert definition is not None, operation
    return parameters, definition


@cache
def _complete(name: str, dtype: DType, arity: int) -> tuple[tuple[Var, ...], Expr]:
    parameters = tuple(Var(f"x{i}", dtype) for i in range(arity))
    return parameters, complete(name, *parameters)


def apply(operation: str, attribute: str | None, dtype: DType, *operands: Any) -> Any:
    """One operation; `dtype` is the dtype of the result."""
    if operation == "cast":
        return cast(operands[0], dtype)
    if operation == "bitcast":
        return operands[0].view(dtype.numpy)
    if operation == "libm":
        return libm.call(attribute or "", *operands)
    if operation == "libm_where":
        condition, x, usual = operands
        return _select(condition, libm.call(attribute or "", x), usual) if np.any(condition) else usual
    if operation == "elementary_where":
        condition, *arguments, usual = operands
        if not np.any(condition):
            return usual
        parameters, definition = _complete(attribute or "", dtype, len(arguments))
        return _select(condition, evaluate(definition, dict(zip(parameters, arguments, strict=True))), usual)
    if operation in ELEMENTARY and dtype.is_floating_point:
        parameters, definition = _definition(operation, dtype, len(operands))
        return evaluate(definition, dict(zip(parameters, operands, strict=True)))
    return OPERATIONS[operation](*operands)


def evaluate(expr: Expr, environment: Mapping[Expr, Any]) -> Any:
    """The value of `expr` where `environment` gives the value of its leaves (constants apart): NumPy scalars or arrays that broadcast.
    Raises KeyError for a leaf that has none."""
    values: dict[int, Any] = {id(leaf): value for leaf, value in environment.items()}
    with np.errstate(all="ignore"):
        for e in topological([expr]):
            if id(e) in values:
                continue
            if isinstance(e, Const):
                values[id(e)] = e.value
            elif isinstance(e, Apply):
                values[id(e)] = apply(e.operation, e.attribute, e.dtype, *(values[id(o)] for o in e.operands))
            else:
                raise KeyError(f"evaluate: the environment has no value for {e!r}")
    return values[id(expr)]
