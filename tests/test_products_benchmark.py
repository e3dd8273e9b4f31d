"""The benchmark of products: its rows, what counts as a right result, and its smallest run."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from benchmarks import products
from benchmarks.products import Case


def test_rows_are_squares_transpositions_and_products_of_few_rows_and_columns() -> None:
    found = products.cases([64, 512])
    assert Case(64, 64, 64) in found and Case(512, 512, 512, (True, True)) in found
    assert {min(case.m, case.n) for case in found} == {1, 3, 8, 64, 512}
    assert products.cases([64]) == [Case(64, 64, 64)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_a_result_is_wrong_where_an_element_is_off_by_more_than_rounding(dtype: str, turned: tuple[bool, bool]) -> None:
    case = Case(5, 7, 9, turned)
    a, b = case.operands(dtype)
    result = (a.T if turned[0] else a) @ (b.T if turned[1] else b)
    assert products.within_bound(case, result)
    result[3, 2] += 300 * np.finfo(result.dtype).eps
    assert not products.within_bound(case, result)


def test_a_process_is_limited_to_its_threads_and_told_the_kernels_of_openblas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    found = products.surroundings(2)
    assert found["OPENBLAS_NUM_THREADS"] == found["TRACEJIT_NUM_THREADS"] == "2"
    assert found["OPENBLAS_CORETYPE"] == "Prescott"  # what was asked for stays


def test_the_smallest_run_prints_a_row_for_each_dtype(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCHMARK_PRODUCTS_HERE", "1")
    assert products.main(["--sizes", "64", "--sides", "eager,compiled,numpy", "--threads", "1", "--seconds", "0.001"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("64 x 64")]
    assert [line[6] for line in lines] == ["float32", "float64"]
    assert all(float(figure) > 0 for line in lines for figure in line[7:])
    assert [len(line) for line in lines] == [11, 11]


def test_each_number_of_threads_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def run(command: list[str], env: dict[str, str], check: bool) -> subprocess.CompletedProcess[str]:
        started.append((command[-1], env["OPENBLAS_NUM_THREADS"], env["BENCHMARK_PRODUCTS_HERE"]))
        return subprocess.CompletedProcess(command, int(command[-1] == "2"))

    monkeypatch.setattr(products.subprocess, "run", run)
    assert products.main(["--sizes", "64", "--threads", "1,2"]) == 1  # a wrong result in one of them
    assert started == [("1", "1", "1"), ("2", "2", "1")]
