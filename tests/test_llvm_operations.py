"""Operations in machine code that share work or choose it lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from nest_runner import assert_renderings_agree, assert_same_bits
from test_llvm_nests import FLOATS, b, elementwise, pairs

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.reductions import Emitter
from tracejit.loops.expressions import Expr, Load
from tracejit.loops.language import Axis, Buffer, Index
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target


def test_erf_and_its_derivative_share_the_exponential() -> None:
    axis, x = Axis("i"), Buffer("x", dtypes.float32)
    load = Load(x, Index(((axis, 1),)))

    def exponentials(*expressions: Expr) -> int:
        nest, _ = elementwise(list(expressions), (x,), axis, 0)
        target = Target(512, masked=False, scales=True)
        return Emitter(rewritten(nest, target), "nest", target).text().count("@llvm.ldexp")

    derivative = b.exp((-load) * load)
    assert exponentials(b.log(derivative + load), b.log(load)) == 1
    assert exponentials(b.log(b.erf(load)), derivative) == 1
    assert exponentials(b.log(b.erf(load)), b.exp(-(load * load))) == 2


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_powers_of_two_scale_with_one_rounding(dtype: DType) -> None:
    axis, integer = Axis("i"), {4: dtypes.int32, 8: dtypes.int64}[dtype.itemsize]
    x, k = Buffer("x", dtype), Buffer("k", integer)
    at = Index(((axis, 1),))
    digits, least = {4: (24, -126), 8: (53, -1022)}[dtype.itemsize]
    exponents = np.arange(least - digits - 2, 4 - least, dtype=integer.numpy)
    mantissas = np.random.default_rng(8).uniform(0.5, 2, exponents.size).astype(dtype.numpy)
    nest, outputs = elementwise([b.ldexp(Load(x, at), Load(k, at))], (x, k), axis, exponents.size)
    *_, result = assert_renderings_agree(nest, (mantissas, exponents, *outputs), (exponents.size,))
    assert np.isinf(result[-1]) and result[0] == 0 and 0 < result[digits] < np.finfo(dtype.numpy).tiny
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, np.ldexp(mantissas, exponents))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_a_division_made_only_where_it_is_needed_has_the_bits_of_one_made_everywhere(dtype: DType) -> None:
    axis, x, y = Axis("i"), Buffer("x", dtype), Buffer("y", dtype)
    a, c = (Load(p, Index(((axis, 1),))) for p in (x, y))
    for condition in (b.lt(a, -1e30), b.lt(a, c), b.eq(a, a)):
        nest, outputs = elementwise([b.div_where(condition, a, c, a * c)], (x, y), axis, 700)
        left, right = pairs(dtype, 700)
        *_, result = assert_renderings_agree(nest, (left, right, *outputs), (700,))
        with np.errstate(all="ignore"):
            needed = {"lt": left < (-1e30 if condition.operands[1] is not c else right), "eq": left == left}[condition.operation]
            assert_same_bits(result, np.where(needed, left / right, left * right), condition.operation)
