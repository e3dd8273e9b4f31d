"""llvm/lapack.py: what LAPACK computes for programs, without Python, against eager mode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.graph_programs import f64, op
from tracejit.core import kernels
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.tracer import trace
from tracejit.llvm import driver, lapack, lapack_library
from tracejit.runtime.host import HostProgram
from tracejit.runtime.program import build

Function = Callable[..., Any]


def matrices(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    """Random ones near four times the identity."""
    array = np.random.default_rng(seed).normal(size=shape) + 4.0 * np.eye(*shape[-2:])
    return T.from_numpy(array.astype(dtype))


def numbers(*shape: int, seed: int = 1, dtype: Any = np.float64) -> Any:
    return T.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def agrees(function: Function, *arguments: Any, calls: int = 3, on_host: bool = False) -> None:
    """Eager and compiled calls give the same bits, and the program has no step of the host, if not on_host."""
    compiled = T.compile(function, wait=True)
    expected = function(*arguments)
    for _ in range(calls):
        found = compiled(*arguments)
        for one, other in zip(parts(found), parts(expected), strict=True):
            assert one.shape == other.shape
            assert one.dtype is other.dtype
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert compiled.stats.compiled_calls >= calls - 1, compiled.explain()
    programs = [executable.program for executable in compiled.stats.executables]
    assert on_host or not any(isinstance(program, HostProgram) for program in programs), compiled.explain(verbose=True)


SIZES = [1, 2, 3, 7, 33, 70]
FUNCTIONS: dict[str, Function] = {
    "solve": lambda a, b: T.linalg.solve(a, b),
    "upper triangle": lambda a, b: T.linalg.solve_triangular(a, b, upper=True),
    "lower triangle": lambda a, b: T.linalg.solve_triangular(a, b, upper=False),
    "upper triangle with ones": lambda a, b: T.linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    "lower triangle with ones": lambda a, b: T.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
    "inv": lambda a, b: T.linalg.inv(a),
    "det": lambda a, b: T.linalg.det(a),
    "slogdet": lambda a, b: tuple(T.linalg.slogdet(a)),
    "qr": lambda a, b: (*T.linalg.qr(a), *T.linalg.qr(b), *T.linalg.qr(b.mT)),
    "eigh": lambda a, b: tuple(T.linalg.eigh(a)),
    "svd": lambda a, b: (*T.linalg.svd(a), *T.linalg.svd(b, full_matrices=False), *T.linalg.svd(b.mT, full_matrices=False)),
    "cholesky": lambda a, b: T.linalg.cholesky(a + a.mT + 50 * T.eye(a.shape[-1], dtype=a.dtype)),
}
"""Of matrices `a`, and `b` with as many rows."""
on_each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@on_each_function
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_have_the_bits_of_eager_mode(function: Function, dtype: Any) -> None:
    for n in SIZES:
        agrees(function, matrices(n, n, dtype=dtype), numbers(n, 1, dtype=dtype))
        agrees(function, matrices(n, n, dtype=dtype), numbers(n, 3, dtype=dtype))


def test_a_system_may_have_a_vector() -> None:
    agrees(T.linalg.solve, matrices(3, 3), numbers(3))
    agrees(T.linalg.solve, matrices(2, 3, 3), numbers(2, 3))


@pytest.mark.parametrize("dtype", [T.float16, T.bfloat16])
def test_reduced_dtypes_are_computed_in_float32(dtype: Any) -> None:
    agrees(lambda a, b: T.linalg.solve(a, b), matrices(3, 3).to(dtype), numbers(3, 2).to(dtype))


LAYOUTS: dict[str, Function] = {
    "rows apart": lambda a: a[::2, :3],
    "transposed": lambda a: a[:3, :3].T,
    "backwards": lambda a: a.flip(0)[:3, :3],
    "one number": lambda a: a[0, 0].expand(3, 3) + T.eye(3, dtype=a.dtype),
    "columns apart": lambda a: a[:3, ::2],
}


@on_each_function
def test_matrices_may_lie_in_any_way(function: Function) -> None:
    for layout in LAYOUTS.values():
        agrees(function, layout(matrices(6, 6))[:3, :3], numbers(2, 3).T)
        agrees(lambda a, b, layout=layout: function(layout(a)[:3, :3], b.T), matrices(6, 6), numbers(2, 3))


BATCHES = [
    ((2,), (2,)),
    ((2, 3), (2, 3)),
    ((), (4,)),
    ((4,), ()),
    ((2, 1), (3,)),
    ((1, 3), (2, 1)),
    ((0,), (1,)),
    ((2, 1, 2), (3, 1)),
]


@on_each_function
@pytest.mark.parametrize(("left", "right"), BATCHES, ids=str)
def test_batches_broadcast(left: tuple[int, ...], right: tuple[int, ...], function: Function) -> None:
    a, b = matrices(*left, 3, 3), numbers(*right, 3, 2)
    agrees(function, a, b, on_host=0 in left)
    agrees(lambda a, b: function(a.mT, b.flip(0)), a, b, on_host=0 in left)


@on_each_function
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0)])
def test_matrices_of_no_elements_are_left_to_numpy(shape: tuple[int, ...], function: Function) -> None:
    agrees(function, T.zeros(*shape), T.zeros(0, 2), on_host=True)


@on_each_function
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0])
def test_special_values_come_out_as_in_eager_mode(special: float, function: Function) -> None:
    for k in range(4):
        for which in range(2):
            given = matrices(3, 3), numbers(3, 2)
            given[which].view(-1)[k] = special
            try:
                function(*given)
            except T.linalg.LinAlgError as error:
                compiled = T.compile(function, wait=True)
                compiled(matrices(3, 3), numbers(3, 2))
                with pytest.raises(T.linalg.LinAlgError) as raised:
                    compiled(*given)
                assert str(raised.value) == str(error)
            else:
                agrees(function, *given)


# -- errors
def test_a_singular_matrix_raises_the_error_of_eager_mode_and_nothing_is_done() -> None:
    def function(seen: Any, a: Any, b: Any) -> Any:
        seen.add_(1)
        return T.linalg.solve(a, b) * seen

    compiled = T.compile(function, wait=True)
    for k in range(8):
        a, seen, other = matrices(2, 3, 3, seed=k), T.zeros(()), T.zeros(())
        if k % 2:
            a[1] = 0
        outcomes = []
        for f, counter in ((function, other), (compiled, seen)):
            try:
                outcomes.append(f(counter, a, numbers(3, 2)).tolist())
            except T.linalg.LinAlgError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert isinstance(outcomes[0], str) == bool(k % 2)
        assert seen.item() == other.item() == 1
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


@pytest.mark.filterwarnings("ignore::tracejit.compiler.PerformanceWarning")
def test_an_error_that_the_function_handles_is_a_path() -> None:
    def function(a: Any, b: Any) -> Any:
        try:
            return T.linalg.solve(a, b)
        except T.linalg.LinAlgError:
            return b * 2

    compiled = T.compile(function, wait=True)
    for k in range(10):
        a = matrices(3, 3, seed=k) * float(k % 2)
        np.testing.assert_array_equal(compiled(a, numbers(3)).numpy(), function(a, numbers(3)).numpy())
    assert compiled.stats.compiled_calls >= 4, compiled.explain()


# -- gradients
@on_each_function
def test_gradients_are_those_of_eager_mode(function: Function) -> None:
    def loss(a: Any, b: Any) -> Any:
        result = function(a * 2, b)
        return (result[1] if isinstance(result, tuple) else result).sin().sum() + (a.sum() + b.sum()) * 0

    def gradients(f: Function) -> list[Any]:
        leaves = [matrices(2, 3, 3).requires_grad_(), numbers(3, 2).requires_grad_()]
        f(*leaves).backward()
        return [x.grad.numpy() for x in leaves]

    compiled = T.compile(loss, wait=True)
    inside = T.compile(lambda a, b: T.autograd.grad(loss(a, b), [a, b]), wait=True)
    for _ in range(4):
        leaves = [matrices(2, 3, 3).requires_grad_(), numbers(3, 2).requires_grad_()]
        for found in (gradients(compiled), [x.numpy() for x in inside(*leaves)]):
            for one, other in zip(found, gradients(loss), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls >= 3 <= inside.stats.compiled_calls


def test_an_error_of_a_backward_pass_is_raised_there() -> None:
    def function(a: Any) -> Any:
        return T.linalg.slogdet(a)[0] + T.linalg.slogdet(a)[1] * 0.5  # whose gradient has the inverse

    compiled = T.compile(function, wait=True)
    for f in (function, *[compiled] * 6):
        singular, sound = T.zeros(3, 3).requires_grad_(), matrices(3, 3).requires_grad_()
        loss = f(singular)
        assert loss.item() == -np.inf
        with pytest.raises(T.linalg.LinAlgError, match=r"^linalg.inv\(\): Singular matrix; the input has shape \[3, 3\]$"):
            loss.backward()
        f(sound).backward()
        np.testing.assert_allclose(sound.grad.numpy(), 0.5 * np.linalg.inv(sound.detach().numpy()).T, rtol=1e-9)
    assert compiled.stats.compiled_calls >= 10, compiled.explain()


# -- in loops
def until_small(x: Any, a: Any, b: Any) -> Any:
    """Each step solves a system; whether it is halved first depends on data."""
    steps = 0
    while x.abs().max() > 1e-3:
        if x.sum() > 0:
            x = T.linalg.solve(a, x)
        else:
            x = T.linalg.cholesky(a @ a.T) @ x * 0.01 + T.linalg.inv(a) @ b * 1e-5
        steps += 1
    return x, steps


def test_a_loop_whose_steps_branch_solves_systems_without_python() -> None:
    compiled = T.compile(until_small, wait=True)
    for k in range(14):
        given = numbers(3, seed=k) * 10.0**20, matrices(3, 3, seed=k), numbers(3, seed=k + 100)
        expected, found = until_small(*given), compiled(*given)
        np.testing.assert_allclose(found[0].numpy(), expected[0].numpy(), rtol=1e-9)
        assert found[1] == expected[1]
    assert not compiled.reasons and compiled.stats.compiled_calls >= 6, compiled.explain()
    assert "loop while a condition holds" in compiled.explain(verbose=True)


def test_a_step_is_given_the_identity_where_it_does_not_come_to_the_system() -> None:
    def function(x: Any, a: Any, n: int) -> Any:
        taken = 0
        for _ in range(n):
            if x.sum() > 0:
                x = T.linalg.solve(a, x) * 0.5 - 1
                a = a * 0  # singular, until a step that solves no system
                taken += 1
            else:
                x = x + 0.3
                a = a + 1
                a = a.tril()
        return x, a, taken

    compiled = T.compile(function, wait=True)
    for k in range(12):
        given = numbers(2, seed=k), matrices(2, 2, seed=k), 600
        expected, found = function(*given), compiled(*given)
        assert found[2] == expected[2] > 10
        for one, other in zip(found[:2], expected[:2], strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9)
    assert not compiled.reasons and compiled.stats.compiled_calls >= 6, compiled.explain()


def test_a_step_of_a_loop_that_meets_a_singular_matrix_raises_as_in_eager_mode() -> None:
    def function(x: Any, a: Any, change: Any, n: int) -> Any:
        for _ in range(n):
            a = a + change
            x = T.linalg.solve(a, x) if x.sum() > 0 else x * -0.5 + 0.01
        return x

    compiled, outcomes = T.compile(function, wait=True), set()
    for k in range(16):
        change = T.zeros(2, 2, dtype=T.float64)
        change[0, 0] = -(2.0**-8) * (k % 2)  # which is exact: after 512 steps the matrix is singular
        given = numbers(2, seed=k), T.eye(2, dtype=T.float64) * 2, change, 600
        found = []
        for f in (function, compiled):
            try:
                found.append(f(*given).tolist())
            except T.linalg.LinAlgError as error:
                found.append(str(error))
        assert str(found[0]) == str(found[1]) if isinstance(found[0], str) else np.allclose(found[0], found[1], rtol=1e-9)
        outcomes.add(type(found[0]))
    assert outcomes == {str, list}
    assert compiled.stats.compiled_calls >= 4, compiled.explain()


# -- in programs
@on_each_function
def test_sizes_may_be_symbolic(function: Function) -> None:
    compiled = T.compile(function, wait=True, dynamic=True)
    for n in (4, 5, 9, 3, 1, 2, 40, 41, 42, 17, 18):
        given = matrices(n, n, seed=n), numbers(n, 4)
        for one, other in zip(parts(compiled(*given)), parts(function(*given)), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert compiled.stats.compiled_calls >= 4, compiled.explain()


def test_scipys_lapack_serves_where_numpys_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack_library, "library", lapack_library.of_scipy)
    monkeypatch.setitem(kernels._kernels, (kernels.TRIANGULAR_SYSTEMS, T.float64), None)
    monkeypatch.setattr(lapack, "_linked", lapack._linked.__wrapped__)
    monkeypatch.setattr(driver, "_known", OrderedDict())
    assert lapack_library.library().integer == "i32"
    for function in FUNCTIONS.values():
        for n in (1, 3, 40):
            given = matrices(2, n, n, seed=n), numbers(n, 2)
            compiled = T.compile(function, wait=True)
            for _ in range(3):
                for one, other in zip(parts(compiled(*given)), parts(function(*given)), strict=True):
                    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-7, atol=1e-9)
            assert compiled.stats.compiled_calls == 2


@pytest.mark.parametrize("backend", ["reference", "numba", "interpret"])
def test_other_backends_have_numpy_solve(backend: str) -> None:
    for function in FUNCTIONS.values():
        compiled = T.compile(function, wait=True, backend=backend)
        for k in range(3):
            given = matrices(2, 3, 3, seed=k), numbers(3, 2)
            for one, other in zip(parts(compiled(*given)), parts(function(*given)), strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9)
    compiled = T.compile(lambda a, b: T.linalg.solve(a, b) * 2, wait=True, backend=backend)
    compiled(matrices(2, 3, 3), numbers(3, 2))
    with pytest.raises(T.linalg.LinAlgError, match="Singular"):
        compiled(T.zeros(2, 3, 3, dtype=T.float64), numbers(3, 2))


def test_a_printed_program_has_numpy_solve() -> None:
    graph = trace(lambda a, b: op("inv", op("solve", a, b)), [f64(2, 3, 3), f64(3, 3)])
    program, scope = build(graph, {}), dict[str, Any]()
    exec(program.source(), scope)
    a, b = matrices(2, 3, 3).numpy(), matrices(3, 3, seed=5).numpy()
    np.testing.assert_allclose(scope["run"](a, b)[0], program.run((a, b), ())[0], rtol=1e-9)
    assert scope["run"](a, b * 0) == program.run((a, b * 0), ()) == 2


def test_what_lapack_computes_names_its_routine() -> None:
    named = {each for each in REGISTRY.values() if each.routine is not None}
    assert {each for each in REGISTRY.values() if each.kind is Kind.LAPACK} == {
        each for each in named if each.kind is not Kind.COMPOSITE
    }
    assert all(each.routine in ("forward", "input", "weight") for each in named if each.kind is Kind.COMPOSITE)


_PROCESS = """
import numpy as np, tracejit as T
from tracejit.ir.tracer import trace
from tracejit.llvm import driver
from tracejit.native import object_cache
f = T.compile(lambda a, b: T.linalg.solve(a + 1, b), wait=True)
a, b = T.eye(3) * 2, T.ones(3, 2)
for _ in range(3):
    assert f(a, b).tolist() == T.linalg.solve(a + 1, b).tolist()
print(driver.compilations(), object_cache.counts.misses)
"""


def test_a_second_process_finds_the_machine_code_of_the_first(tmp_path: Path) -> None:
    environment = {**os.environ, "TRACEJIT_CACHE_DIR": str(tmp_path), "TRACEJIT_CACHE": "1"}
    command = [sys.executable, "-c", _PROCESS]
    found = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)
    ]
    assert int(found[0][0]) > 0 < int(found[0][1])
    assert found[1] == ["0", "0"]
