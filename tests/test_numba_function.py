"""Compiled functions called by code under numba.njit (tracejit/ffi/numba_function.py)."""

from __future__ import annotations

import copy
import gc
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.errors import TypingError

import tracejit
from tracejit import nn
from tracejit.ffi import invoke
from tracejit.ffi.errors import ArgumentShapeError, NoCompiledPathError, OverlappingMemoryError
from tracejit.func import value_and_grad

F = nn.functional


@numba.njit
def call1(function: Any, x: Any) -> Any:
    return function(x)


@numba.njit
def call2(function: Any, x: Any, y: Any) -> Any:
    return function(x, y)


def density(weights: Any) -> Any:
    def log_density(x: Any) -> Any:
        return -(F.softplus(x * weights) + 0.5 * x * x).sum()

    return log_density


def exported_density(n: int = 5) -> tuple[Any, Any, Any]:
    weights = tracejit.linspace(-1, 1, n, dtype=tracejit.float64)
    compiled = tracejit.compile(value_and_grad(density(weights)))
    return compiled, compiled.njit(np.zeros(n)), weights


def same(result: Any, expected: Any) -> bool:
    """Whether what Numba's code got is, to the bit, what the compiled function returns."""
    if isinstance(expected, tuple):
        return isinstance(result, tuple) and len(result) == len(expected) and all(map(same, result, expected))
    if isinstance(expected, tracejit.Tensor):
        expected = expected.detach().numpy()
        if expected.ndim:
            fits = result.dtype == expected.dtype and result.shape == expected.shape
            return fits and np.ascontiguousarray(result).tobytes() == np.ascontiguousarray(expected).tobytes()
        return np.asarray(result, expected.dtype).tobytes() == expected.tobytes()
    return type(result) is type(expected) and (result == expected or result is None)


def newton(x: Any) -> Any:
    """Square roots by Newton's method: a loop whose trip count depends on values."""
    root = x.clone()
    while (root * root - x).abs().max() > 1e-9:
        root = 0.5 * (root + x / root)
    return root


def scanned(x: Any) -> Any:
    state = tracejit.zeros(3, dtype=tracejit.float64)
    for row in x:
        state = tracejit.tanh(state + row)
    return state


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "an elementwise chain": (lambda x: (x * 2 + 1).exp().tanh(), (np.linspace(-1, 1, 7),)),
    "a reduction": (lambda x: x.sum(0), (np.arange(12.0).reshape(3, 4),)),
    "a product": (lambda x, y: x @ y, (np.arange(12.0).reshape(3, 4), np.ones((4, 5)))),
    "a number": (lambda x, s: x * s + s, (np.arange(4.0), 2.5)),
    "a tensor without dimensions": (lambda x: x * x + 1, (np.array(3.0),)),
    "float32": (lambda x: F.softmax(x, -1), (np.arange(6, dtype=np.float32).reshape(2, 3),)),
    "integers and bools": (lambda x: (x // 2, x > 2), (np.arange(6),)),
    "positions": (lambda x, i: x[i], (np.arange(6.0), np.array([4, 0, 4]))),
    "a convolution": (lambda x, w: F.conv1d(x, w, padding=1), (np.ones((1, 2, 8)), np.ones((3, 2, 3)))),
    "a solution": (lambda a, b: tracejit.linalg.solve(a, b), (np.eye(3) * 2 + 0.1, np.arange(3.0))),
    "a view": (lambda x: x[1:, ::2].T, (np.arange(12.0).reshape(3, 4),)),
    "the same result twice": (lambda x: (y := x + 1, y, (x.clone(), y.T)), (np.ones((2, 2)),)),
    "numbers that leave and constants": (lambda x: (x.sum().item(), None, 3, 2.5, True, x * 2), (np.arange(3.0),)),
    "a loop with a trip count of its values": (newton, (np.array([2.0, 3.0, 10.0]),)),
    "a loop over rows": (scanned, (np.arange(12.0).reshape(4, 3) / 10,)),
    "no elements": (lambda x: x * 2, (np.ones((0, 3)),)),
    "a gradient": (value_and_grad(lambda x: (x.sin() * x).sum()), (np.linspace(0, 2, 9),)),
    "a Hessian": (tracejit.func.hessian(lambda x: (x.exp() * x.flip(0)).sum()), (np.array([0.1, 0.2, 0.3]),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbas_code_gets_what_the_compiled_function_returns(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    compiled = tracejit.compile(function)
    exported = compiled.njit(*arguments)
    tensors = [tracejit.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
    for _ in range(3):
        expected = compiled(*tensors)
    assert compiled.stats.compiled_calls >= 1
    passed = [a.item() if isinstance(a, np.ndarray) and not a.ndim else a for a in arguments]
    result = (call1 if len(passed) == 1 else call2)(exported, *passed)
    assert same(result, expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), st.floats(-3, 3), st.sampled_from([np.float32, np.float64]))
def test_values_of_any_size_equal_those_of_the_compiled_function(n: int, scale: float, dtype: Any) -> None:
    compiled = tracejit.compile(lambda x, s: ((x * s).tanh().sum(), x.exp() - s))
    x = np.linspace(-1, 1, n).astype(dtype)
    exported = compiled.njit(x, 1.0)
    expected = [compiled(tracejit.from_numpy(x), scale) for _ in range(3)][-1]
    assert same(call2(exported, x, scale), expected)


def test_a_call_sees_what_is_written_to_a_parameter_in_place() -> None:
    compiled, exported, weights = exported_density()
    x = np.linspace(0, 1, 5)
    before = call1(exported, x)
    with tracejit.no_grad():
        weights.mul_(3)
    after = call1(exported, x)
    assert after[0] != before[0]
    assert same(after, compiled(tracejit.from_numpy(x)))


def test_results_are_written_to_out_and_nothing_else_is_made() -> None:
    _, exported, _ = exported_density()
    gradient = np.full(5, np.nan)

    @numba.njit
    def call(function: Any, x: Any, out: Any) -> Any:
        value, same = function(x, out=out)
        return value, same

    value, returned = call(exported, np.ones(5), gradient)
    expected = call1(exported, np.ones(5))
    assert value == expected[0]
    assert np.array_equal(gradient, expected[1])
    assert np.array_equal(returned, gradient)
    assert exported(np.ones(5), out=gradient)[1] is gradient


def test_out_is_a_tuple_where_several_results_are_arrays() -> None:
    exported = tracejit.compile(lambda x: (x + 1, x.sum(), x * 2)).njit(np.ones(3))
    one, two = np.empty(3), np.empty(3)

    @numba.njit
    def call(function: Any, x: Any, one: Any, two: Any) -> Any:
        return function(x, out=(one, two))

    result = call(exported, np.arange(3.0), one, two)
    assert np.array_equal(one, [1, 2, 3])
    assert result[1] == 3
    assert np.array_equal(two, [0, 2, 4])


def test_arguments_may_be_passed_by_name() -> None:
    exported = tracejit.compile(lambda x, scale: x * scale).njit(np.ones(2), 1.0)

    @numba.njit
    def call(function: Any, x: Any) -> Any:
        return function(scale=3.0, x=x)

    assert np.array_equal(call(exported, np.ones(2)), [3, 3])


def test_a_global_is_a_constant_of_the_caller_and_lives_as_long_as_its_code() -> None:
    exported = tracejit.compile(lambda x: x + 41).njit(np.ones(2))

    @numba.njit
    def call(x: Any) -> Any:
        return exported(x)

    call(np.ones(2))
    exported = None
    gc.collect()
    assert np.array_equal(call(np.ones(2)), [42, 42])


# ---- branches and errors


def branching(x: Any) -> Any:
    if x.sum() > 0:
        return x.exp().sum()
    return (x * x).sum()


def test_each_call_takes_the_path_of_its_values() -> None:
    compiled = tracejit.compile(branching)
    exported = compiled.njit(np.ones(3), more=[(-np.ones(3),)])
    for x in (np.ones(3), -np.ones(3), np.array([1.0, 2.0, -4.0])):
        assert same(call1(exported, x), branching(tracejit.from_numpy(x)))


def test_paths_that_the_function_has_recorded_before_serve_calls_too() -> None:
    compiled = tracejit.compile(branching)
    for _ in range(3):
        compiled(-tracejit.ones(3, dtype=tracejit.float64))
    exported = compiled.njit(np.ones(3))
    assert call1(exported, -np.ones(3)) == 3


def test_a_branch_without_a_path_raises_with_the_users_line() -> None:
    exported = tracejit.compile(branching).njit(np.ones(3))
    with pytest.raises(NoCompiledPathError, match=r"test_numba_function\.py:\d+") as caught:
        call1(exported, -np.ones(3))
    assert "branching.njit(..., more=[(...)])" in str(caught.value)
    line = int(str(caught.value).split("test_numba_function.py:")[1].split()[0].rstrip(","))
    assert Path(__file__).read_text().splitlines()[line - 1] == "    if x.sum() > 0:"
    assert call1(exported, np.ones(3)) > 0  # the next call is served


def test_what_eager_mode_refuses_raises_with_the_users_line() -> None:
    exported = tracejit.compile(lambda x, i: x[i]).njit(np.arange(5.0), np.array([0, 1]))
    with pytest.raises(NoCompiledPathError, match=r"test_numba_function\.py:\d+"):
        call2(exported, np.arange(5.0), np.array([0, 5]))
    singular = tracejit.compile(lambda a: tracejit.linalg.inv(a)).njit(np.eye(2))
    with pytest.raises(NoCompiledPathError, match=r"test_numba_function\.py:\d+"):
        call1(singular, np.zeros((2, 2)))


def test_numbas_code_can_catch_the_error() -> None:
    exported = tracejit.compile(branching).njit(np.ones(3))

    @numba.njit
    def call(function: Any, x: Any) -> Any:
        try:
            return function(x)
        except Exception:
            return -1.0

    assert call(exported, -np.ones(3)) == -1
    assert call(exported, np.ones(3)) > 0


def test_other_sizes_and_strides_raise_with_both() -> None:
    _, exported, _ = exported_density()
    with pytest.raises(ArgumentShapeError, match=r"argument x: expected \[5\], got \[4\]"):
        call1(exported, np.ones(4))
    with pytest.raises(ArgumentShapeError, match=r"expected strides \[8\] \(row-major\), got \[16\] bytes"):
        call1(exported, np.ones((5, 2))[:, 0])
    with pytest.raises(ArgumentShapeError, match=r"out for result 1: expected \[5\], got \[6\]"):
        exported(np.ones(5), out=np.empty(6))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.ones(5, np.float32),), r"argument x must be an array float64\[5\], got array\(float32"),
        ((np.ones((5, 1)),), r"argument x must be an array float64\[5\], got array\(float64, 2d"),
        ((1.0,), r"argument x must be an array float64\[5\], got float64"),
        ((np.ones(5), None, 3), "takes 1 arguments and perhaps out, got 3"),
        ((), "takes 1 arguments and perhaps out, got 0"),
    ],
)
def test_other_types_raise_when_numba_compiles_the_caller(arguments: tuple[Any, ...], said: str) -> None:
    _, exported, _ = exported_density()
    with pytest.raises(TypingError, match=said):
        exported(*arguments)


def test_callers_in_files_are_of_one_layout_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    _, exported, _ = exported_density(2)
    key = exported._numba_type_.key
    monkeypatch.setattr(invoke, "LAYOUT", invoke.LAYOUT + 1)
    assert exported._numba_type_.key != key


@pytest.mark.parametrize(
    ("example", "number"),
    [(np.array(3), 2.7), (np.array(3, np.uint8), 300), (np.array(True), 0.5), (np.array(3), np.uint64(2**63))],
)
def test_integers_and_bools_take_no_numbers_that_lose_something(example: Any, number: Any) -> None:
    exported = tracejit.compile(lambda x: x * 2).njit(example)
    with pytest.raises(TypingError, match="argument x must be a number"):
        exported(number)
    assert exported(example.item() if example.dtype != np.uint8 else np.uint8(3)) == example.item() * 2


def test_out_may_have_any_layout_that_its_strides_fit() -> None:
    exported = tracejit.compile(lambda x: x * 2).njit(np.ones(3))
    columns = np.zeros((3, 1))
    assert exported(np.arange(3.0), out=columns[:, 0]).tolist() == [0, 2, 4]
    assert columns[:, 0].tolist() == [0, 2, 4]


def test_a_function_without_arguments_and_one_with_a_parameter_named_out_are_called() -> None:
    weights = tracejit.arange(3, dtype=tracejit.float64)
    exported = tracejit.compile(lambda: weights * 2).njit()
    out = np.empty(3)
    assert exported(out=out) is out and out.tolist() == [0, 2, 4]
    named = tracejit.compile(lambda out: out * 2).njit(np.ones(2))
    assert named(np.ones(2)).tolist() == [2, 2]


def test_calls_that_raise_are_counted_since_prange_drops_errors() -> None:
    exported = tracejit.compile(branching).njit(np.ones(3))
    for failures, sign in enumerate((1, -1, -1)):
        if sign < 0:
            with pytest.raises(NoCompiledPathError):
                call1(exported, sign * np.ones(3))
        else:
            call1(exported, np.ones(3))
        assert exported.failures == failures
    with pytest.raises(ArgumentShapeError):
        call1(exported, np.ones(4))
    assert exported.failures == 3


def test_a_number_takes_no_text_and_an_unknown_name_is_refused() -> None:
    exported = tracejit.compile(lambda x, s: x * s).njit(np.ones(2), 1.0)
    with pytest.raises(TypingError, match=r"argument s must be a number \(float\)"):
        exported(np.ones(2), "a")
    with pytest.raises(TypingError, match=r"argument s must be a number \(float\), got complex128"):
        exported(np.ones(2), 1j)

    @numba.njit
    def call(function: Any, x: Any) -> Any:
        return function(x, t=1.0)

    with pytest.raises(TypingError, match="unexpected argument 't'"):
        call(exported, np.ones(2))


def test_out_that_the_call_reads_is_refused() -> None:
    _, exported, weights = exported_density()
    x = np.ones(5)
    for out in (x, weights.numpy()):
        with pytest.raises(OverlappingMemoryError, match="out for result 1"):
            exported(x, out=out)
    two = tracejit.compile(lambda x: (x + 1, x * 2)).njit(np.ones(3))
    memory = np.empty(4)
    with pytest.raises(OverlappingMemoryError, match="out for result 1"):
        two(np.ones(3), out=(memory[:3], memory[1:]))


# ---- threads, and code that Numba keeps


def large(n: int = 3000) -> Any:
    """A program whose frames are too large for the stack."""
    exported = tracejit.compile(lambda x: (x[:, None] * x[None, :60]).tanh().cumsum(0).sum(1)).njit(np.ones(n))
    assert exported._program._memory.descriptor[invoke.FRAMES]
    return exported


@pytest.mark.parametrize("make", [lambda: exported_density(5)[1], lambda: large(3000)])
def test_threads_call_at_the_same_time_without_the_gil(make: Any) -> None:
    exported = make()
    n = exported._program.arguments[0].shape[0]
    has_value = len(exported._program.results) == 2

    @numba.njit(nogil=True)
    def sums(function: Any, x: Any, calls: int) -> Any:
        total = np.zeros(calls)
        for k in range(calls):
            total[k] = (function(x * k)[1] if has_value else function(x * k)).sum()
        return total

    inputs = [np.linspace(0, 1, n) * (t + 1) for t in range(6)]
    expected = [sums(exported, x, 30) for x in inputs]
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda t=t: found.update({t: sums(exported, inputs[t], 30)})) for t in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[t], expected[t]) for t in range(6))


def test_the_gil_is_free_while_it_runs() -> None:
    exported = large(3000)

    @numba.njit(nogil=True)
    def repeat(function: Any, x: Any, calls: int) -> Any:
        for _ in range(calls):
            function(x)

    x = np.ones(3000)
    repeat(exported, x, 1)
    worker = threading.Thread(target=repeat, args=(exported, x, 200))
    worker.start()
    turns = 0
    while worker.is_alive():
        turns += 1
    worker.join()
    assert turns > 100  # with the GIL held this thread would have had no turn


def test_prange_gives_what_a_loop_gives() -> None:
    _, exported, _ = exported_density()

    @numba.njit(parallel=True)
    def parallel(function: Any, rows: Any) -> Any:
        values = np.empty(rows.shape[0])
        for i in numba.prange(rows.shape[0]):
            values[i] = function(rows[i])[0]
        return values

    rows = np.random.default_rng(0).normal(size=(500, 5))
    assert np.array_equal(parallel(exported, rows), [call1(exported, row)[0] for row in rows])


CACHED = """
    import numba, numpy as np, sys, tracejit

    @numba.njit(cache=True)
    def call(function, x):
        return function(x)

    factor = float(sys.argv[1])
    exported = tracejit.compile(lambda x: x * factor).njit(np.ones(3))
    assert call(exported, np.ones(3)).tolist() == [factor] * 3
    try:
        call(exported, np.ones(2))
    except ValueError as error:
        assert "expected [3], got [2]" in str(error), error
    else:
        raise AssertionError
    print(sum(call.stats.cache_hits.values()))
"""


def test_a_caller_that_numba_keeps_serves_other_programs_in_later_processes(tmp_path: Path) -> None:
    hits = []
    script = tmp_path / "cached.py"
    script.write_text(textwrap.dedent(CACHED))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for factor in ("2", "3"):
        run = subprocess.run([sys.executable, script, factor], env=environment, check=True, capture_output=True, text=True)
        hits.append(run.stdout)
    assert hits == ["0\n", "1\n"]


def test_it_says_what_it_takes_and_cannot_be_copied() -> None:
    _, exported, _ = exported_density()
    assert repr(exported) == "<density.<locals>.log_density.njit(): (x: float64[5]) -> (float64[], float64[5])>"
    with pytest.raises(TypeError, match=r"call njit\(\) again"):
        copy.deepcopy(exported)


def test_the_function_has_a_gradient_from_a_module() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    compiled = tracejit.compile(value_and_grad(lambda x: network(x).sum()))
    exported = compiled.njit(np.ones((3, 4)))
    x = np.random.default_rng(1).normal(size=(3, 4))
    assert same(call1(exported, x), [compiled(tracejit.from_numpy(x)) for _ in range(3)][-1])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_gradient_is_that_of_torch() -> None:
    import torch

    weights = torch.linspace(-1, 1, 5, dtype=torch.float64)
    x = torch.linspace(0, 2, 5, dtype=torch.float64, requires_grad=True)
    value = -(torch.nn.functional.softplus(x * weights) + 0.5 * x * x).sum()
    value.backward()
    found = call1(exported_density()[1], x.detach().numpy())
    np.testing.assert_allclose(found[0], value.item(), rtol=1e-14)
    np.testing.assert_allclose(found[1], x.grad.numpy(), rtol=1e-13)
