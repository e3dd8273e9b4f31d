"""Tensors: construction, views and memory, in-place changes, conversions, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.core import library_warnings


def test_python_floats_become_the_default_dtype_and_integers_int64() -> None:
    assert T.tensor([1.0, 2.0]).dtype is T.float32
    assert T.tensor([1, 2]).dtype is T.int64
    assert T.tensor([True]).dtype is T.bool
    assert T.tensor(np.zeros(2)).dtype is T.float64
    assert T.tensor([1, 2], dtype=T.float64).dtype is T.float64


def test_default_dtype_can_be_changed_and_only_to_a_floating_point_one() -> None:
    T.set_default_dtype(T.float64)
    try:
        assert T.tensor([1.0]).dtype is T.float64
        assert T.zeros(2).dtype is T.float64
    finally:
        T.set_default_dtype(T.float32)
    with pytest.raises(TypeError, match="float32 or float64"):
        T.set_default_dtype(T.int64)


@pytest.mark.parametrize("bad", [np.zeros(2, complex), np.array(["a"]), np.zeros(2, np.longdouble), np.zeros(2, object)])
def test_contents_that_no_tensor_holds_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(TypeError):
        T.tensor(bad)


def test_tensor_copies_and_from_numpy_shares() -> None:
    array = np.zeros(3, np.float32)
    copied, shared = T.tensor(array), T.from_numpy(array)
    array[0] = 5
    assert copied.tolist() == [0, 0, 0]
    assert shared.tolist() == [5, 0, 0]
    shared.add_(1)
    assert array.tolist() == [6, 1, 1]


WRITES = {
    "add_": lambda x: x.add_(1),
    "+=": lambda x: x.__iadd__(1),
    "an item": lambda x: x.__setitem__(0, 5),
    "a mask": lambda x: x.__setitem__(x > 0, 5),
    "a view": lambda x: x.view(3, 1).t()[0].zero_(),
    "out=": lambda x: T.add(x, 1, out=x),
    "copy_": lambda x: x.detach().copy_(T.ones(3, dtype=T.float64)),
    "index_add_": lambda x: x.index_add_(0, T.tensor([0]), T.ones(1, dtype=T.float64)),
    "uniform_": lambda x: x.uniform_(),
    "an optimizer": lambda x: step_of(x.requires_grad_()),
}


def step_of(parameter: T.Tensor) -> None:
    (parameter * 2).sum().backward()
    T.optim.SGD([parameter], lr=0.1).step()


@pytest.fixture
def read_only() -> np.ndarray[Any, Any]:
    array = np.array([1.0, 2.0, 3.0])
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.filterwarnings("ignore:from_numpy")
def test_tensors_on_read_only_memory_are_read_and_not_written(name: str, compiled: bool, read_only: np.ndarray[Any, Any]) -> None:
    write = T.compile(WRITES[name]) if compiled else WRITES[name]
    for _ in range(3 if compiled else 0):  # recorded with what can be written to
        write(T.from_numpy(read_only.copy()))
    x = T.from_numpy(read_only)
    version = x._version
    with pytest.raises(RuntimeError, match="read-only array, which from_numpy"):
        write(x)
    assert x.tolist() == read_only.tolist() == [1.0, 2.0, 3.0] and x._version == version
    assert (x * 2).sum().item() == 12.0 and np.shares_memory(x.detach().numpy(), read_only)
    write(x.detach().clone())


@pytest.mark.filterwarnings("ignore:from_numpy")
def test_compiled_functions_make_tensors_of_read_only_memory(read_only: np.ndarray[Any, Any]) -> None:
    double = T.compile(lambda array: T.from_numpy(array) * 2)
    for array in (read_only, read_only, read_only.copy(), read_only, read_only + 1):
        assert double(array).tolist() == (array * 2).tolist()
    assert double.stats.compiled_calls >= 3 and not double.reasons


def test_the_warning_of_read_only_memory_comes_once(read_only: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_warnings, "_said", set())
    with pytest.warns(UserWarning, match=r"from_numpy\(\): the array is read-only, and so is the tensor") as told:
        T.from_numpy(read_only), T.from_numpy(read_only)
    assert len(told) == 1 and told[0].filename == __file__


def test_views_share_memory_with_their_base() -> None:
    x = T.zeros(2, 3)
    for view in (x[0], x.t(), x[:, 1:], x.reshape(6), x.view(3, 2), x.unsqueeze(0), x.permute(1, 0), x.diagonal(), x.detach()):
        before = x.sum().item()
        view.add_(1)
        assert x.sum().item() > before


def test_reshape_of_a_transposed_tensor_copies_and_view_refuses() -> None:
    x = T.arange(6).reshape(2, 3).t()
    flat = x.reshape(6)
    flat.zero_()
    assert x.sum().item() == 15
    with pytest.raises(RuntimeError, match="not compatible"):
        x.view(6)


def test_an_expanded_tensor_cannot_be_written_to() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        T.zeros(1).expand(3).add_(1)


def test_in_place_operations_keep_dtype_and_shape() -> None:
    x = T.tensor([1, 2])
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.add_(0.5)
    with pytest.raises(RuntimeError, match="does not fit"):
        T.zeros(2).add_(T.zeros(3, 2))
    assert x.tolist() == [1, 2]


def test_item_needs_one_element() -> None:
    assert T.tensor([[3.5]]).item() == 3.5
    with pytest.raises(RuntimeError, match="2 elements"):
        T.zeros(2).item()


def test_truth_of_many_elements_is_ambiguous() -> None:
    assert T.tensor([1.0])
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(T.zeros(2))


def test_operators_give_way_to_unknown_operands() -> None:
    class Other:
        def __radd__(self, x: object) -> str:
            return "mine"

    assert T.zeros(1) + Other() == "mine"
    with pytest.raises(TypeError):
        T.zeros(1) + "text"
    with pytest.raises(TypeError, match="from_numpy"):
        T.add(T.zeros(1), np.zeros(1))


def test_promotion_follows_torch_for_dimensions_and_scalars() -> None:
    i, f, d = T.tensor([1]), T.tensor([1.0]), T.tensor([1.0], dtype=T.float64)
    assert (i + 1).dtype is T.int64
    assert (i + 1.5).dtype is T.float32
    assert (i / 2).dtype is T.float32
    assert (i + f).dtype is T.float32
    assert (f + d).dtype is T.float64
    assert (f + d[0]).dtype is T.float32
    assert (T.tensor([True]) + 1).dtype is T.int64
    assert (T.tensor([1], dtype=T.uint8) + T.tensor([1], dtype=T.int8)).dtype is T.int16


def test_integer_arithmetic_wraps() -> None:
    x = T.tensor([127], dtype=T.int8)
    assert (x + x).tolist() == [-2]
    assert (-T.tensor([1], dtype=T.uint8)).tolist() == [255]


def test_scalar_zero_keeps_its_sign() -> None:
    assert np.signbit((T.tensor([-0.0]) * 0.0).numpy())[0]
    assert np.signbit((T.tensor([0.0]) * -0.0).numpy())[0]


def test_no_floating_point_warnings_whatever_numpy_is_set_to() -> None:
    with np.errstate(all="raise"):
        assert (T.tensor([1.0]) / 0.0).item() == float("inf")
        assert T.tensor([-1.0]).log().isnan().item()


def test_indexing_reads_and_writes_like_numpy() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    mask = array % 3 == 0
    keys = [
        0, -1, (slice(None), 0, [1, 1]),
        slice(1, None), (0, 1), (slice(None), 2), (Ellipsis, 1), (None, 1), ([0, 1], [1, 2]), (slice(None), [2, 0]),
        ([0, 1], slice(None), [2, 3]), (slice(0, 2), slice(None, None, 2), slice(1, 4, 2)), mask, (1, mask[1]),
    ]  # fmt: skip
    for key in keys:
        tensor_key = (
            T.tensor(key)
            if isinstance(key, np.ndarray)
            else tuple(T.tensor(k) if isinstance(k, np.ndarray) else k for k in key)
            if isinstance(key, tuple)
            else key
        )
        got = T.tensor(array)[tensor_key]
        np.testing.assert_array_equal(got.numpy(), array[key])
        changed, expected = T.tensor(array), array.copy()
        changed[tensor_key] = 7.0
        expected[key] = 7.0
        np.testing.assert_array_equal(changed.numpy(), expected)


def test_index_errors_name_index_and_size() -> None:
    x = T.zeros(2, 3)
    with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 2"):
        x[2]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="out of bounds"):
        x[[5]]
    with pytest.raises(ValueError, match="positive"):
        x[::-1]


def test_numpy_is_refused_while_gradients_are_required() -> None:
    with pytest.raises(RuntimeError, match="detach"):
        T.zeros(1, requires_grad=True).numpy()


def test_equality_is_elementwise_and_identity_hashes() -> None:
    a, b = T.tensor([1.0]), T.tensor([1.0])
    assert (a == b).item() is True
    assert len({a, b, a}) == 2
    assert (a == None) is False  # noqa: E711


def test_leaves_can_be_copied_and_pickled() -> None:
    x = T.tensor([1.0, 2.0], requires_grad=True)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.tolist() == [1, 2]
        assert y.requires_grad
        with T.no_grad():
            y.zero_()
    assert x.tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="leaf"):
        copy.deepcopy(x * 2)


def test_representation_shows_dtype_and_gradient_state() -> None:
    assert repr(T.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert "dtype=tracejit.float64" in repr(T.tensor([1.0], dtype=T.float64))
    assert "requires_grad=True" in repr(T.tensor([1.0], requires_grad=True))
    assert "grad_fn=<MulBackward0>" in repr(T.tensor([1.0], requires_grad=True) * 2)


def test_every_public_function_is_a_name_of_the_package() -> None:
    from tracejit import functions
    from tracejit.ops.public import FUNCTIONS

    assert {n for n in vars(functions) if not n.startswith("_")} - {"Any", "Callable", "Final", "annotations"} == set(FUNCTIONS)
    for name, function in FUNCTIONS.items():
        assert getattr(T, name) is function
    assert set(T.__all__) <= set(vars(T))


def test_creation_functions_have_torch_shapes_and_dtypes() -> None:
    assert T.zeros(2, 3).shape == (2, 3)
    assert T.ones((2, 3)).sum().item() == 6
    assert T.full((2,), 3).dtype is T.int64
    assert T.arange(5).tolist() == [0, 1, 2, 3, 4]
    assert T.arange(1, 2, 0.5).tolist() == [1, 1.5]
    assert T.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert T.eye(2).tolist() == [[1, 0], [0, 1]]
    assert T.zeros_like(T.tensor([1])).dtype is T.int64
    with pytest.raises(RuntimeError, match="negative"):
        T.zeros(-1)
    with pytest.raises(TypeError, match="integer"):
        T.zeros(1.5)
