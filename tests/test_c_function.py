"""Compiled functions as C functions (tracejit/ffi/c_function.py)."""

from __future__ import annotations

import copy
import ctypes
import gc
import threading
from typing import Any

import numba
import numpy as np
import pytest
from scipy import LowLevelCallable, integrate, ndimage

import tracejit
from tracejit.ffi.errors import CannotExportError
from tracejit.func import grad_and_value

DOUBLE = ctypes.POINTER(ctypes.c_double)


def pointer(array: Any) -> Any:
    return array.ctypes.data_as(DOUBLE)


def test_a_function_of_numbers_integrates_under_quad() -> None:
    function = tracejit.compile(lambda x: tracejit.exp(-x * x)).cfunc(np.array(0.5))
    assert function.signature == "double (double x)"
    found, _ = integrate.quad(LowLevelCallable(function.ctypes), 0, 1)
    assert found == pytest.approx(integrate.quad(lambda x: np.exp(-x * x), 0, 1)[0], rel=1e-15)


def test_a_function_of_an_array_integrates_under_nquad() -> None:
    compiled = tracejit.compile(lambda x: tracejit.exp(-(x * x).sum()))
    function = compiled.cfunc(np.zeros(2), prototype="double (int n, double *x, void *user_data)")
    found, _ = integrate.nquad(LowLevelCallable(function.ctypes), [[0, 1], [0, 1]])
    assert found == pytest.approx(integrate.quad(lambda x: np.exp(-x * x), 0, 1)[0] ** 2, rel=1e-14)


def test_a_function_of_a_window_filters_an_image() -> None:
    prototype = "int (double *window, intptr_t n, double *result, void *user_data)"
    function = tracejit.compile(lambda window: window.amax() - window.amin()).cfunc(np.zeros(9), prototype=prototype, success=1)
    image = np.random.default_rng(0).random((20, 30))
    found = ndimage.generic_filter(image, LowLevelCallable(function.ctypes), size=3)
    assert np.array_equal(found, ndimage.generic_filter(image, np.ptp, size=3))
    with pytest.raises(RuntimeError):  # the window has another size
        ndimage.generic_filter(image, LowLevelCallable(function.ctypes), size=5)


def test_parameters_with_names_of_arguments_are_these() -> None:
    """The right side of a differential equation, as LSODA's wrappers want it: the state's derivative stands before the parameters."""
    compiled = tracejit.compile(lambda t, u, p: p * u * (1 - u) + t)
    function = compiled.cfunc(
        np.array(0.0), np.zeros(3), np.zeros(3), prototype="void (double t, double *u, double *du, double *p)"
    )
    u, p, du = np.arange(3.0), np.array([1.0, 2.0, 3.0]), np.empty(3)
    function.ctypes(0.5, pointer(u), pointer(du), pointer(p))
    assert np.array_equal(du, p * u * (1 - u) + 0.5)


def test_a_log_density_has_the_signature_that_samplers_take() -> None:
    compiled = tracejit.compile(grad_and_value(lambda x: -0.5 * (x * x).sum()))
    prototype = "int (size_t dim, const double *x, double *grad, double *logp, const void *user)"
    function = compiled.cfunc(np.zeros(3), prototype=prototype)
    x, gradient, value = np.array([1.0, 2.0, 3.0]), np.empty(3), np.empty(1)
    assert function.ctypes(3, pointer(x), pointer(gradient), pointer(value), None) == 0
    assert np.array_equal(gradient, -x)
    assert value[0] == -7
    assert function.ctypes(2, pointer(x), pointer(gradient), pointer(value), None) == 1


@pytest.mark.parametrize(
    ("prototype", "order"),
    [
        ("int64_t (size_t n, size_t m, double *x, double *y, void *)", "nmxy"),
        ("int64_t (size_t n, double *x, size_t m, double *y)", "nxmy"),
        ("int64_t (double *x, size_t n, double *y, size_t m)", "xnym"),
        ("int64_t (double *x, double *y, size_t n, size_t m)", "xynm"),
    ],
)
def test_sizes_beside_each_other_count_pointers_in_order(prototype: str, order: str) -> None:
    function = tracejit.compile(lambda x: tracejit.cat([x, x])).cfunc(np.zeros(3), prototype=prototype)
    x, y = np.arange(3.0), np.empty(6)
    given = {"x": pointer(x), "y": pointer(y), "n": 3, "m": 6}
    rest = (None,) * prototype.count("void")
    assert function.ctypes(*map(given.__getitem__, order), *rest) == 0
    assert y.tolist() == [0, 1, 2, 0, 1, 2]
    for wrong in ({"n": 6}, {"m": 3}):
        assert function.ctypes(*map({**given, **wrong}.__getitem__, order), *rest) == 1


def test_without_a_prototype_arguments_come_first_and_results_last() -> None:
    function = tracejit.compile(lambda x, s: (x * s, x.sum())).cfunc(np.ones(2, np.float32), 2.0)
    assert function.signature == "int (float *x, double s, float *result0, float *result1)"
    x, out, total = np.array([1, 2], np.float32), np.empty(2, np.float32), np.empty(1, np.float32)
    single = ctypes.POINTER(ctypes.c_float)
    assert function.ctypes(*(a.ctypes.data_as(single) if isinstance(a, np.ndarray) else a for a in (x, 3.0, out, total))) == 0
    assert out.tolist() == [3, 6]
    assert total[0] == 3


def test_numbas_code_calls_the_address() -> None:
    function = tracejit.compile(lambda x: x * x).cfunc(np.array(1.0))
    called = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(function.address)

    @numba.njit
    def total(n: int) -> float:
        found = 0.0
        for k in range(n):
            found += called(float(k))
        return found

    assert total(10) == 285


def branching(x: Any) -> Any:
    return x.log() if x > 0 else x * 0


def test_a_call_that_no_path_serves_fails_as_the_prototype_allows() -> None:
    compiled = tracejit.compile(branching)
    returns = compiled.cfunc(np.array(1.0))
    assert returns.ctypes(1.0) == 0
    assert np.isnan(returns.ctypes(-1.0))
    status = compiled.cfunc(np.array(1.0), prototype="int (double x, double *result)")
    result = np.zeros(1)
    assert (status.ctypes(1.0, pointer(result)), status.ctypes(-1.0, pointer(result))) == (0, 1)
    nothing = compiled.cfunc(np.array(1.0), prototype="void (double x, double *result)")
    nothing.ctypes(-1.0, pointer(result))
    assert np.isnan(result[0])
    both = compiled.cfunc(np.array(1.0), more=[(np.array(-1.0),)])
    assert (both.ctypes(-1.0), both.ctypes(1.0)) == (0, 0)


def test_a_fallback_serves_what_no_compiled_path_serves_in_python() -> None:
    compiled = tracejit.compile(branching)
    for prototype in (None, "int (double x, double *result)", "void (double x, double *result)"):
        function = compiled.cfunc(np.array(1.0), prototype=prototype, fallback=True)
        result = np.full(1, np.nan)
        returned = function.ctypes(*((-2.0,) if prototype is None else (-2.0, pointer(result))))
        assert (returned if prototype is None else result[0]) == 0
        assert not function.errors


def test_what_a_fallback_raises_is_kept_and_the_call_fails() -> None:
    def refuses(x: Any) -> Any:
        if x.sum() < 0:
            raise ArithmeticError("negative")
        return x * 2, x.sum()

    compiled = tracejit.compile(refuses)
    function = compiled.cfunc(np.ones(3), fallback=True)
    x, out, total = -np.ones(3), np.zeros(3), np.zeros(1)
    assert function.ctypes(pointer(x), pointer(out), pointer(total)) == 1
    assert [type(error) for error in function.errors] == [ArithmeticError]
    nothing = compiled.cfunc(np.ones(3), prototype="void (double *x, double *y, double *z)", fallback=True)
    nothing.ctypes(pointer(x), pointer(out), pointer(total))
    assert np.isnan(out).all() and np.isnan(total[0])


def test_a_fallback_of_an_array_writes_all_results() -> None:
    compiled = tracejit.compile(lambda x, s: (x * s, (x * x).sum()) if x[0] > 0 else (x - s, x.sum()))
    function = compiled.cfunc(np.ones(3), np.array(2.0), fallback=True)
    x, out, total = np.array([-1.0, 2.0, 3.0]), np.empty(3), np.empty(1)
    assert function.ctypes(pointer(x), 5.0, pointer(out), pointer(total)) == 0
    assert out.tolist() == [-6, -3, -2]
    assert total[0] == 4


@pytest.mark.parametrize(
    ("prototype", "said"),
    [
        ("double (double *x)", "no result is a number that it could return"),
        ("int (double *x)", "nothing stands for result 0"),
        ("int (double *x, double *y, double *z)", r"double \*z stands for nothing"),
        ("int (float *x, double *y)", r"float \*x does not fit argument x, which is float64\[3\]"),
        ("int (int *x, double *y)", r"int \*x does not fit argument x"),
        ("int (double *x, double *y, double s)", "double s stands for nothing"),
        ("int (double *x, double *x, double *y)", "two parameters have the name of one argument"),
    ],
)
def test_a_prototype_that_does_not_fit_is_refused_with_what_is_wrong(prototype: str, said: str) -> None:
    with pytest.raises(CannotExportError, match=said):
        tracejit.compile(lambda x: x * 2).cfunc(np.zeros(3), prototype=prototype)


@pytest.mark.parametrize("prototype", ["", "f(x)", "char (double)", "int double", "int (struct a)", "int (double **x)"])
def test_a_text_that_is_no_prototype_is_refused(prototype: str) -> None:
    with pytest.raises(ValueError, match="expected a p"):
        tracejit.compile(lambda x: x * 2).cfunc(np.zeros(3), prototype=prototype)


def test_threads_of_c_call_it_at_the_same_time() -> None:
    function = tracejit.compile(lambda x: (x.sin() * x).cumsum(0)[-1]).cfunc(np.zeros(2000), prototype="double (double *x)")
    inputs = [np.linspace(0, k, 2000) for k in range(6)]
    expected = [function.ctypes(pointer(x)) for x in inputs]
    found: dict[int, list[float]] = {}
    work = [
        threading.Thread(target=lambda k=k: found.update({k: [function.ctypes(pointer(inputs[k])) for _ in range(50)]}))
        for k in range(6)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert all(found[k] == [expected[k]] * 50 for k in range(6))


def test_it_says_its_prototype_and_cannot_be_copied() -> None:
    function = tracejit.compile(branching).cfunc(np.array(1.0))
    assert repr(function) == f"<branching.cfunc(): double (double x) at {function.address:#x}>"
    with pytest.raises(TypeError, match=r"call cfunc\(\) again"):
        copy.copy(function)


def test_the_function_of_ctypes_keeps_the_code_alive() -> None:
    called = tracejit.compile(lambda x: x * 2).cfunc(np.array(1.0)).ctypes
    gc.collect()
    tracejit.compile(lambda x: x * 3).cfunc(np.array(1.0))
    assert called(4.0) == 8


def test_a_fallback_that_raises_again_and_again_keeps_a_few_errors_without_tracebacks() -> None:
    def refuses(x: Any) -> Any:
        if x < 0:
            raise ArithmeticError("negative")
        return x * 2

    function = tracejit.compile(refuses).cfunc(np.array(1.0), fallback=True)
    assert all(np.isnan(function.ctypes(-1.0)) for _ in range(30))
    assert len(function.errors) == 10
    assert all(error.__traceback__ is None for error in function.errors)
