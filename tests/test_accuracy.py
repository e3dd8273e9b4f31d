"""The accuracy table: what it measures, and that the figures of docs/accuracy.md are reached again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy

BY_NAME = {f.name: f for f in accuracy.FUNCTIONS}


def test_an_error_is_measured_in_units_of_the_exact_value() -> None:
    exact = np.array([1.0, 2.0, 3.0])
    actual = exact.astype(np.float32)
    assert accuracy.worst_error(actual, exact) == (0.0, 0)
    actual[1] = np.nextafter(np.float32(2), np.float32(3))
    assert accuracy.worst_error(actual, exact) == (1.0, 1)


def test_an_error_of_a_subnormal_is_measured_in_the_smallest_one() -> None:
    smallest = np.finfo(np.float32).smallest_subnormal
    assert accuracy.worst_error(np.array([3 * smallest]), np.array([float(smallest)]))[0] == 2.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["exp", "erf", "pow", "silu"])
def test_functions_are_as_exact_as_the_table_says(name: str, dtype: str) -> None:
    row = accuracy.measure(BY_NAME[name], dtype, 2_000)
    assert row.wrong == ()
    assert 0 < row.error <= (accuracy.LIMIT if not row.function.built_on else 4)


def test_a_wrong_function_is_found() -> None:
    wrong = accuracy.Function("exp", lambda x: x * 1.0, np.exp, {"float32": ((-1.0, 1.0),)})
    row = accuracy.measure(wrong, "float32", 100)
    assert row.error > 1000 and "nan" not in row.wrong and "-inf" in row.wrong


def test_the_page_lists_every_function_in_both_dtypes() -> None:
    page = (Path(__file__).parent.parent / "docs" / "accuracy.md").read_text()
    for name in BY_NAME:
        assert f"| {name} | float32 |" in page and f"| {name} | float64 |" in page


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_as_exact_as_those_of_numpy(dtype: str) -> None:
    row = accuracy.measure_product(500, dtype)
    assert 0.5 < row.own <= 1.02 * row.numpy


def test_the_error_of_a_product_is_a_distance_in_units_of_eps() -> None:
    a, b = np.eye(3), np.arange(1.0, 10).reshape(3, 3)
    assert accuracy.product_error(b, a, b) == 0
    off = accuracy.product_error(b * (1 + 8 * np.finfo(np.float64).eps), a, b)
    assert 7.5 < off < 8.5


def test_the_page_lists_products_of_every_size_in_both_dtypes() -> None:
    page = (Path(__file__).parent.parent / "docs" / "accuracy.md").read_text()
    for n in accuracy.SIZES:
        assert f"| {n} x {n} x {n} | float32 |" in page and f"| {n} x {n} x {n} | float64 |" in page
