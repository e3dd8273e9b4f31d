"""What the compiler must know of a combination is declared with it: no rendering knows a name, and one block is enough for a new one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from nest_runner import assert_renderings_agree
from test_llvm_nests import COUNTS, b, values
from test_operations_own_their_rules import asked, decisions, sources

import tracejit
from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.op import REGISTRY, Op
from tracejit.loops.combinations import COMBINATIONS, Combination
from tracejit.loops.expressions import Expr, Load, Var
from tracejit.loops.language import Axis, Buffer, Index, Nest, Reduce, Size, Store
from tracejit.ops.declare import reduction

FLOATS, INTEGERS = (dtypes.float32, dtypes.float64), (dtypes.uint8, dtypes.int32, dtypes.int64)


def decided_by_combination(name: str, source: str) -> list[str]:
    """Where it depends on the name of a combination what is done."""
    tree = ast.parse(source)
    guarded_by_value = [(d, part) for d in decisions(tree) for part in asked(d)]
    return [
        f"{name}:{part.lineno}: {ast.unparse(decision)}"
        for decision, part in guarded_by_value
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in COMBINATIONS
    ]


def test_neither_lowering_nor_a_rendering_decides_anything_by_the_name_of_a_combination() -> None:
    found = [f for name, source in sources(("loops", "lowering", "llvm")) for f in decided_by_combination(name, source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("source", ["if combine == 'sum': pass", "x = {'max': 'ogt'}[c]", "if c in ('argmax', 'argmin'): pass"])
def test_a_decision_by_the_name_of_a_combination_is_found(source: str) -> None:
    assert decided_by_combination("a.py", source)


def test_every_primitive_that_reduces_names_a_combination() -> None:
    assert {op.reducer for op in REGISTRY.values()} - {None} <= set(COMBINATIONS)


def test_a_combination_is_declared_once() -> None:
    with pytest.raises(ValueError, match="'sum' is declared twice"):
        Combination("sum", lambda dtype: 0, b.add)


@pytest.mark.parametrize("traits", [{"beyond": b.gt, "wide": True}, {"adds": True}, {"position": True}])
def test_traits_that_no_rendering_has_together_are_refused(traits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'own': additions are wide"):
        Combination("own", lambda dtype: 0, b.maximum, **traits)
    assert "own" not in COMBINATIONS


def _log_sum(x: Expr, y: Expr) -> Expr:
    top = b.maximum(x, y)
    return b.select(b.eq(x, y), top + np.log(2.0), top + b.log1p(b.exp(-abs(x - y))))


def _farther(x: Expr, y: Expr) -> Expr:
    return b.select(abs(x) >= abs(y), x, y)


def _least_magnitude(x: Expr, y: Expr) -> Expr:
    return b.minimum(abs(x), abs(y))


@pytest.fixture
def own() -> Iterator[None]:
    """Combinations, a block each."""
    before = set(COMBINATIONS)
    Combination("parity", lambda dtype: 0, b.bit_xor)
    Combination("log_sum", lambda dtype: -np.inf, _log_sum, wide=True)
    Combination("farthest", lambda dtype: 0, _farther)
    Combination("nearest", lambda dtype: np.inf, _least_magnitude)
    Combination("lowest", lambda dtype: np.inf, b.minimum, beyond=lambda x, y: b.gt(y, x))
    Combination("place_of_lowest", lambda dtype: np.inf, b.minimum, beyond=lambda x, y: b.gt(y, x), position=True)
    Combination("total", lambda dtype: 0, b.add, wide=True, adds=True)
    yield
    for name in set(COMBINATIONS) - before:
        del COMBINATIONS[name]


NUMPY: dict[str, tuple[tuple[DType, ...], Callable[[Any], Any]]] = {
    "parity": ((*INTEGERS, dtypes.bool_), np.bitwise_xor.reduce),
    "log_sum": (FLOATS, lambda x: np.logaddexp.reduce(x.astype(np.float64))),
    "farthest": (FLOATS, lambda x: x[np.abs(x).argmax()]),
    "nearest": (FLOATS, lambda x: np.abs(x).min()),
    "lowest": (FLOATS, np.min),
    "place_of_lowest": (FLOATS, np.argmin),
    "total": (FLOATS, lambda x: x.sum(dtype=np.longdouble)),
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, (allowed, _) in NUMPY.items() for dtype in allowed])
def test_a_new_combination_is_rendered_from_its_block_alone(name: str, dtype: DType, own: None) -> None:
    X, i, n = Buffer("x", dtype), Axis("i"), Size("n")
    result = Var("result", dtypes.int64 if COMBINATIONS[name].position else dtype)
    out = Buffer("out", result.dtype)
    reduce = Reduce(i, n, ((result, name, Load(X, Index(((i, 1),)))),))
    nest = Nest(f"own_{name}", (X, out), (n,), (), (reduce, Store(out, Index(), result)))
    generator = np.random.default_rng(7)
    for count in [*COUNTS, 600]:
        x = generator.normal(0, 1, max(count, 1)) if dtype.is_floating_point else values(dtype, max(count, 1), count)
        x = x.astype(dtype.numpy)
        found = assert_renderings_agree(nest, (x, np.zeros(1, out.dtype.numpy)), (count,))[1]
        if count:
            tolerance = 1e-6 if dtype is dtypes.float32 else 1e-13
            np.testing.assert_allclose(found[0], NUMPY[name][1](x[:count]), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["lowest", "place_of_lowest"])
def test_a_new_extreme_passes_nan_on_and_finds_the_first_one(name: str, dtype: DType, own: None) -> None:
    X, i = Buffer("x", dtype), Axis("i")
    result = Var("result", dtypes.int64 if COMBINATIONS[name].position else dtype)
    out = Buffer("out", result.dtype)
    reduce = Reduce(i, 70, ((result, name, Load(X, Index(((i, 1),)))),))
    nest = Nest(f"own_{name}", (X, out), (), (), (reduce, Store(out, Index(), result)))
    for positions in ([], [69], [3, 40], [64]):
        x = np.random.default_rng(1).integers(-2, 3, 70).astype(dtype.numpy)  # ties
        x[positions] = np.nan
        found = assert_renderings_agree(nest, (x, np.zeros(1, out.dtype.numpy)))[1]
        np.testing.assert_array_equal(found[0], NUMPY[name][1](x))


@pytest.fixture
def primitives(own: None) -> Iterator[dict[str, Op]]:
    """Primitives that reduce by them."""
    before = set(REGISTRY)
    evaluated = {"parity": np.bitwise_xor.reduce, "log_sum": np.logaddexp.reduce, "total": np.add.reduce}
    traits = frozenset({"not differentiable"})
    yield {name: reduction(name, name=f"own_{name}", ufunc=f, traits=traits)(lambda: None) for name, f in evaluated.items()}
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)], ids=["columns", "rows", "all"])
@pytest.mark.parametrize("shape", [(6, 50), (1500, 2000)], ids=["small", "in chunks"])
@pytest.mark.parametrize("name", ["parity", "log_sum", "total"])
def test_programs_reduce_by_a_new_combination(
    name: str, shape: tuple[int, int], dims: tuple[int, ...], primitives: dict[str, Op]
) -> None:
    generator = np.random.default_rng(3)
    integers = name == "parity"
    x = generator.integers(0, 1 << 40, shape) if integers else generator.standard_normal(shape)

    def function(x: Any) -> Any:
        return primitives[name](x * 3, dims=dims, keepdim=False) + 1

    compiled = tracejit.compile(function)
    for _ in range(2):
        found, expected = compiled(tracejit.tensor(x)).numpy(), function(tracejit.tensor(x)).numpy()
        if integers:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert compiled.stats.compiled_calls >= 1, compiled.explain()
