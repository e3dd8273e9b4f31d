"""NumPy's arrays and universal functions together with tensors."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import tracejit

OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)


@pytest.mark.parametrize("function", OPERATORS, ids=lambda f: f.__name__)
def test_an_array_on_either_side_of_an_operator_gives_a_tensor_that_keeps_its_gradient(function: Any) -> None:
    array = np.array([1.5, 2.0, 3.0])
    for left in (False, True):
        x, y = (tracejit.tensor([2.0, 1.0, 3.0], dtype=tracejit.float64, requires_grad=True) for _ in range(2))
        out = function(array, x) if left else function(x, array)
        expected = function(tracejit.tensor(array), y) if left else function(y, tracejit.tensor(array))
        assert type(out) is tracejit.Tensor and out.requires_grad
        assert out.tolist() == expected.tolist()
        out.sum().backward()
        expected.sum().backward()
        assert x.grad is not None and y.grad is not None and x.grad.tolist() == y.grad.tolist()


def test_an_array_operand_is_copied_so_that_writing_to_it_later_changes_no_gradient() -> None:
    x, array = tracejit.ones(2, requires_grad=True), np.array([2.0, 3.0], np.float32)
    out = (x * array).sum()
    array[:] = 100.0
    out.backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 3.0]


def test_comparisons_and_bit_operations_with_arrays_on_the_left_give_tensors() -> None:
    x, array = tracejit.arange(3), np.array([1, 1, 1])
    for out, expected in (
        (array < x, [False, False, True]), (array == x, [False, True, False]), (array & x, [0, 1, 0]), (array << x, [1, 2, 4]),
        (array // (x + 1), [1, 0, 0]), (array % (x + 1), [0, 1, 1]),
    ):  # fmt: skip
        assert type(out) is tracejit.Tensor and out.tolist() == expected


def test_an_array_is_multiplied_as_a_matrix_with_a_tensor_of_another_dtype() -> None:
    x, array = tracejit.ones(2, 2, requires_grad=True), np.array([[1.0, 2.0], [3.0, 4.0]])
    for out in (array @ x, x @ array, np.matmul(array, x)):
        assert out.dtype is tracejit.float64 and out.requires_grad
    assert (array @ x).tolist() == [[3.0, 3.0], [7.0, 7.0]]


def test_universal_functions_of_tensors_are_operations_on_the_tape() -> None:
    x = tracejit.tensor([0.5, 1.0], requires_grad=True)
    np.exp(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == x.exp().tolist()
    for function in (np.sin, np.tanh, np.sqrt, np.negative, np.abs, np.log1p, np.square, np.reciprocal, np.floor, np.isnan):
        out = function(x)
        assert type(out) is tracejit.Tensor
        assert np.allclose(out.detach().numpy(), function(x.detach().numpy()))
    assert np.multiply(2.0, x).requires_grad and np.float64(2) * x.detach() is not None
    assert (np.float64(2) * x).dtype is tracejit.float32 and (np.float32(2) - x).requires_grad


def test_a_form_of_a_universal_function_without_gradient_is_refused_where_one_would_be_lost() -> None:
    x = tracejit.ones(3, requires_grad=True)
    for call in (lambda: np.add.reduce(x), lambda: np.exp(x, out=np.zeros(3)), lambda: np.spacing(x)):
        with pytest.raises(RuntimeError, match="requires grad"):
            call()
    with tracejit.no_grad():
        assert np.add.reduce(x).item() == 3.0
    y, out = x.detach(), np.zeros(3)
    assert np.exp(y, out=out) is out and out[0] == pytest.approx(np.e)
    assert np.add(y, 1.0, out=y) is y and y.tolist() == [2.0, 2.0, 2.0]


def test_in_place_operators_of_arrays_take_tensors() -> None:
    array = np.ones(2)
    array += tracejit.ones(2)
    assert type(array) is np.ndarray and array.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        array += tracejit.ones(2, requires_grad=True)


def test_a_compiled_function_of_universal_functions_and_arrays_equals_eager() -> None:
    array = np.array([1.0, 2.0])

    def unary(x: Any) -> Any:
        return np.exp(x) + np.float64(2) * x

    def captured(x: Any) -> Any:
        return array * x + x[np.array([1, 0])]

    def given(x: Any, a: Any) -> Any:
        return x * a

    for function, arguments in ((unary, ()), (captured, ()), (given, (array,))):
        compiled = tracejit.compile(function)
        for step in range(4):
            x = tracejit.tensor([0.5, 1.0 + step], dtype=tracejit.float64)
            assert compiled(x, *arguments).tolist() == function(x, *arguments).tolist()
            array += 1.0
