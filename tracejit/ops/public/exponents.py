"""Powers in float64, numbers taken apart into mantissa and exponent, neighbours of numbers, divisors; and what is asked of complex
numbers elsewhere, of real ones."""

from __future__ import annotations

import math
from typing import Any

from tracejit.core import dtypes
from tracejit.core.precision import rounds_once
from tracejit.core.promotion import common_dtype
from tracejit.ops import sorting
from tracejit.ops.composites import pointwise
from tracejit.ops.creation import full
from tracejit.ops.elementwise import comparison, exponents, mathematics, rounding
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import FUNCTIONS, derive_binary, public
from tracejit.ops.public.elementwise import as_floating, is_tensor
from tracejit.ops.public.keywords import require_tensors
from tracejit.ops.public.return_types import result_type

Frexp = result_type("frexp", "mantissa", "exponent")

derive_binary(exponents.nextafter)
derive_binary(exponents.gcd)
derive_binary(exponents.lcm)


@public(in_place=True)
def float_power(input: Any, exponent: Any) -> Any:
    """input ** exponent, computed in float64."""
    base, power = (cast(x, dtype=dtypes.float64) if is_tensor(x) else float(x) for x in (input, exponent))
    return mathematics.power(base, power)


@public()
@rounds_once
def logaddexp2(input: Any, other: Any) -> Any:
    """log2(2**input + 2**other) without overflow."""
    return mathematics.logaddexp(input * math.log(2.0), other * math.log(2.0)) / math.log(2.0)


@public(in_place=True)
def ldexp(input: Any, other: Any) -> Any:
    """input * 2**other."""
    return input * mathematics.power(2.0, other)


@public()
def frexp(input: Any) -> Any:
    """(mantissa, exponent) with input == mantissa * 2**exponent and 0.5 <= |mantissa| < 1; the exponent is int32."""
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"frexp(): expected a floating-point input, got {input.dtype.name}; convert it with .float()")
    exponent = exponents.exponent(detach(input))
    half = rounding.trunc(cast(exponent, dtype=input.dtype) * 0.5)  # 2**-exponent itself may overflow
    rest = cast(exponent, dtype=input.dtype) - half
    return Frexp(input * mathematics.exp2(-half) * mathematics.exp2(-rest), exponent)


@public(method=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each of `elements` is one of `test_elements`; whether it is none for `invert`."""
    target = common_dtype((elements, test_elements))
    values, tests = (
        cast(x, dtype=target) if is_tensor(x) else full(x, shape=(), dtype=target) for x in (elements, test_elements)
    )
    if not tests.numel():
        found = full(False, shape=values._sizes, dtype=dtypes.bool_)
    else:
        ordered = FUNCTIONS["sort"](FUNCTIONS["reshape"](detach(tests), (-1,))).values
        position = sorting.searchsorted(ordered, detach(values), right=False)
        nearest = FUNCTIONS["take"](ordered, FUNCTIONS["clamp_max"](position, ordered.shape[0] - 1))
        found = comparison.eq(nearest, values)
    return comparison.logical_not(found) if invert else found


@public()
def isreal(input: Any) -> Any:
    """Whether each element is a real number: all are."""
    return full(True, shape=input._sizes, dtype=dtypes.bool_)


@public()
def angle(input: Any) -> Any:
    """The angle of each number in the complex plane: pi for a negative one, 0 for the others, NaN for NaN."""
    return pointwise.angle(as_floating(input))


def _itself(name: str, text: str) -> None:
    def function(input: Any) -> Any:
        require_tensors(name, input=input)
        return input

    function.__name__ = name
    function.__doc__ = text
    public(name)(function)


_itself("conj", "The complex conjugate, which of a real tensor is the tensor itself.")
_itself("conj_physical", "The complex conjugate, which of a real tensor is the tensor itself.")
_itself("resolve_conj", "The tensor itself, which holds no postponed conjugation.")
_itself("resolve_neg", "The tensor itself, which holds no postponed negation.")


@public(method=False)
def real(input: Any) -> Any:
    """The real part: of a pair (real, imag) the first, of a real tensor the tensor itself."""
    if isinstance(input, tuple) and len(input) == 2:
        return input[0]
    require_tensors("real", input=input)
    return input


@public()
def is_conj(input: Any) -> bool:
    """False: there is no postponed conjugation."""
    require_tensors("is_conj", input=input)
    return False


@public()
def is_neg(input: Any) -> bool:
    """False: there is no postponed negation."""
    require_tensors("is_neg", input=input)
    return False
