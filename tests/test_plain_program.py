"""Exported programs: what is refused, what paths are exported, and the frames of their calls (tracejit/ffi/plain_program.py)."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import nn
from tracejit.ffi.errors import CannotExportError

seen: list[Any] = []
outside = tracejit.ones(3, dtype=tracejit.float64)


def changes_outside(x: Any) -> Any:
    outside.mul_(1.0)
    return x + outside


def appends(x: Any) -> Any:
    seen.append(1)
    return x * 2


def prints(x: Any) -> Any:
    print("called")
    return x * 2


def backward(x: Any) -> Any:
    weight = nn.Parameter(tracejit.ones(3, dtype=tracejit.float64))
    (x * weight).sum().backward()
    return weight.grad * 1


constants = np.arange(3.0)

REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "an argument that no tensor uses": (lambda x: x, (np.ones(3),), r"it returns args\[0\].*its clone\(\)"),
    "a clock": (lambda x: x * time.perf_counter(), (np.ones(3),), r"Python calls .* in each call; pass its value"),
    "an element of an array of NumPy": (
        lambda x: x * constants[1],
        (np.ones(3),),
        "each call reads a number out of an array of NumPy",
    ),
    "a number of an array of NumPy": (lambda x: x * float(constants.sum()), (np.ones(3),), "array of NumPy"),
    "an integer without 64 bits": (lambda x: (x * 2, 2**70), (np.ones(3),), "has no 64 bits"),
    "a list": (lambda x: [x * 2], (np.ones(3),), "makes an object, that needs Python"),
    "a dictionary": (lambda x: {"a": x * 2}, (np.ones(3),), "makes an object, that needs Python"),
    "nothing": (lambda x: None, (np.ones(3),), "it returns no tensor, but None"),
    "an array": (lambda x: (x * 2).numpy(), (np.ones(3),), "needs Python"),
    "random draws": (lambda x: x + tracejit.rand(3), (np.ones(3),), r"it draws random numbers at .*test_plain_program\.py:\d+"),
    "a write to an argument": (
        lambda x: x.add_(1) * 2,
        (np.ones(3),),
        r"it writes to tensors that it has not made \(of shape \[3\]\)",
    ),
    "a write outside": (changes_outside, (np.ones(3),), "it writes to tensors that it has not made"),
    "an effect": (appends, (np.ones(3),), r"effect.*seen|effect.*append"),
    "output": (prints, (np.ones(3),), "needs Python"),
    "a number that decides": (lambda x, n: x * n if n > 2 else x, (np.ones(3), 3.0), "the value of argument n decides"),
    "a number that Python computes with": (
        lambda x, s: x * (s * s + 1),
        (np.ones(3), 3.0),
        r"Python computes a number from arguments \(\(args\[1\] \* args\[1\]\) \+ 1\)",
    ),
    "a number in place of a position": (
        lambda x, s: x * [1.0, 2.0, 3.0][int(s)],
        (np.ones(3), 2.0),
        "argument s decides|from arguments",
    ),
    "an exponent": (lambda x, s: x**s, (np.ones(3), 2.0), "argument s decides|from arguments"),
    "a maximum of numbers": (lambda x, s: x * max(s, 1.0), (np.ones(3), 2.0), "argument s decides|from arguments"),
    "a host operation": (
        lambda x: x.sort()[0] * 1,
        (np.ones(300),),
        r"is computed by NumPy or SciPy, in Python: \w+ at .*:\d+|computed by NumPy",
    ),
    "half precision": (
        lambda x: x * 2,
        (np.ones(3, np.float16),),
        "argument x is tracejit.float16, which neither Numba nor C has",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_python_is_refused_with_the_reason(name: str) -> None:
    function, arguments, said = REFUSED[name]
    with pytest.raises(CannotExportError, match=said):
        tracejit.compile(function).njit(*arguments)


def test_a_call_that_is_not_compiled_is_refused_with_the_reason_of_explain() -> None:
    with pytest.raises(CannotExportError, match=r"the call is not one compiled program: .*NumPy's svd\(\) of them"):
        tracejit.compile(lambda x: x * float(np.linalg.svd(x.numpy()[None])[1][0])).njit(np.ones(3))


def test_a_function_that_runs_eagerly_is_not_exported() -> None:
    with tracejit.config.override(enabled=False), pytest.raises(CannotExportError, match="not one compiled program"):
        tracejit.compile(lambda x: x * 2).njit(np.ones(3))


@pytest.mark.parametrize("example", ["text", None, [1.0], {"a": 1}, object()])
def test_an_example_that_is_no_array_or_number_is_refused(example: Any) -> None:
    with pytest.raises(TypeError, match=r"example argument 1 must be an array, a Tensor, a float or an int, got"):
        tracejit.compile(lambda x, y: x).njit(np.ones(3), example)


def test_more_examples_must_be_like_the_first() -> None:
    with pytest.raises(TypeError, match="examples in `more` must be like"):
        tracejit.compile(lambda x: x * 2).njit(np.ones(3), more=[(np.ones(4),)])


def test_paths_that_return_different_things_are_refused() -> None:
    def shapes(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x[:2] * 2

    with pytest.raises(CannotExportError, match=r"its paths return different things: float64\[3\] and float64\[2\]"):
        tracejit.compile(shapes).njit(np.ones(3), more=[(-np.ones(3),)])


def test_the_examples_are_not_changed_and_may_be_tensors_of_any_strides() -> None:
    x = np.arange(6.0).reshape(2, 3).T
    exported = tracejit.compile(lambda x: x * 2).njit(tracejit.from_numpy(x).requires_grad_())
    assert np.array_equal(exported(np.ascontiguousarray(x)), 2 * x)


def test_arguments_bound_beforehand_are_fixed() -> None:
    exported = tracejit.compile(functools.partial(lambda n, x: x * n if n > 2 else x, 3)).njit(np.ones(3))
    assert exported(np.ones(3)).tolist() == [3, 3, 3]


def test_a_module_is_exported() -> None:
    network = nn.Linear(3, 2).double()
    compiled = tracejit.compile(network)
    exported = compiled.njit(np.ones((1, 3)))
    x = np.random.default_rng(0).random((1, 3))
    assert exported._program.parameters == ("input",)
    assert np.array_equal(exported(x), [compiled(tracejit.from_numpy(x)) for _ in range(3)][-1].detach().numpy())


def test_numbers_from_outside_are_those_of_the_export() -> None:
    scale = 2.0
    compiled = tracejit.compile(lambda x: x * scale)
    exported = compiled.njit(np.ones(2))
    scale = 5.0
    assert exported(np.ones(2)).tolist() == [2, 2]
    assert compiled(tracejit.ones(2)).tolist() == [5, 5]


def test_sizes_that_are_symbolic_for_the_function_are_fixed_for_the_export() -> None:
    compiled = tracejit.compile(lambda x: x.cumsum(0).tanh())
    for n in (3, 4, 5, 6):
        for _ in range(2):
            compiled(tracejit.ones(n, dtype=tracejit.float64))
    exported = compiled.njit(np.ones(7))
    assert np.array_equal(exported(np.ones(7)), np.tanh(np.arange(1.0, 8)))


def test_a_loop_in_an_exported_program_asks_nothing_of_python() -> None:
    def settle(x: Any) -> Any:
        while x.abs().max() > 1e-3:
            x = x * 0.5
        return x

    exported = tracejit.compile(settle).njit(np.ones(3))
    assert not exported._program._memory._owners[2][0].text.count("tracejit_interrupted")
    assert exported(np.ones(3)).max() <= 1e-3


def test_integers_that_only_compute_are_arguments() -> None:
    exported = tracejit.compile(lambda x, n: x * n + n).njit(np.ones(2), 3)
    assert exported(np.ones(2), 5).tolist() == [10, 10]


def test_an_argument_that_is_returned_is_a_copy() -> None:
    exported = tracejit.compile(lambda x, y: (x, x * y)).njit(np.ones(2), np.ones(2))
    x = np.arange(2.0)
    same, product = exported(x, x)
    assert np.array_equal(same, x) and not np.shares_memory(same, x)
    assert product.tolist() == [0, 1]


def test_item_of_one_element_is_a_number_of_python() -> None:
    exported = tracejit.compile(lambda x: (x[:1].item(), x.sum(0, keepdim=True).item(), x.float()[0].item())).njit(np.ones(3))
    found = exported(np.array([0.1, 1.0, 2.0]))
    assert found == (0.1, 3.1, float(np.float32(0.1)))
    assert [type(x) for x in found] == [float] * 3


def test_paths_whose_constants_only_compare_equal_are_different() -> None:
    for function in (
        lambda x: (x * 2, 1) if x.sum() > 0 else (x * 3, True),
        lambda x: (x * 2, 0.0) if x.sum() > 0 else (x * 3, -0.0),
    ):
        with pytest.raises(CannotExportError, match="return different things"):
            tracejit.compile(function).njit(np.ones(2), more=[(-np.ones(2),)])


def test_numbers_that_have_no_literal_are_constants_of_results() -> None:
    exported = tracejit.compile(lambda x: (x * 2, 1e999, -1e999)).njit(np.ones(2))
    assert str(exported(np.ones(2))[1:]) == "(inf, -inf)"


def test_recorded_paths_that_cannot_be_exported_are_left_out() -> None:
    def partly(x: Any) -> Any:
        return x * 2 if x[0] > 0 else x.sort()[0]

    compiled = tracejit.compile(partly)
    for _ in range(3):
        compiled(-tracejit.ones(3, dtype=tracejit.float64))
    assert compiled.njit(np.ones(3))(np.ones(3)).tolist() == [2, 2, 2]


def test_threads_export_at_the_same_time() -> None:
    found: dict[int, Any] = {}

    def export(k: int) -> None:
        found[k] = tracejit.compile(lambda x: x * k).cfunc(np.array(1.0)).ctypes(2.0)

    threads = [threading.Thread(target=export, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: 2.0 * k for k in range(8)}


def test_scalars_of_numpy_are_examples_without_dimensions() -> None:
    assert tracejit.compile(lambda x: x * 2).njit(np.float64(1))(3.0) == 6
