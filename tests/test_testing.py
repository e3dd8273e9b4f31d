"""assert_close says what is not close, as PyTorch's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.testing import assert_allclose, assert_close

CLOSE: list[tuple[Any, Any, dict[str, Any]]] = [
    (T.ones(2), T.ones(2) + 1e-7, {}),
    (1.0, 1.0 + 1e-9, {}),
    ([1, {"a": T.ones(1)}], [1, {"a": T.ones(1)}], {}),
    (np.ones(2), T.ones(2, dtype=T.float64), {}),
    (T.tensor([float("nan")]), T.tensor([float("nan")]), {"equal_nan": True}),
    (T.ones(2), T.ones(2).double(), {"check_dtype": False}),
    (T.ones(2), T.ones(2) * 1.05, {"rtol": 0.1, "atol": 0.0}),
    (T.ones(2).half(), T.ones(2).half() * 1.001, {}),
    (None, None, {}),
]
FAR: list[tuple[Any, Any, dict[str, Any], str]] = [
    (T.ones(2), T.zeros(2), {}, r"Mismatched elements: 2 / 2 \(100.0%\)"),
    (T.tensor([1.0, 3.0]), T.tensor([1.0, 2.0]), {}, r"Greatest absolute difference: 1.0 at index \(1,\)"),
    (1.0, 2.0, {}, "Expected 2.0 but got 1.0"),
    (T.tensor([1, 2]), T.tensor([1, 3]), {}, "Tensor-likes are not close"),
    (T.ones(2), T.ones(3), {}, "'shape' do not match"),
    (T.ones(2), T.ones(2).double(), {}, "'dtype' do not match"),
    (T.ones(2, 3).t(), T.ones(3, 2), {"check_stride": True}, "stride"),
    ([1, 2], [1], {}, "length of the sequences mismatch"),
    ({"a": 1}, {"b": 1}, {}, "keys of the mappings"),
    ([1.0, {"x": 2.0}], [1.0, {"x": 3.0}], {}, r"item\[1\]\['x'\]"),
    (None, T.ones(1), {}, "None mismatch"),
    (T.tensor([float("nan")]), T.tensor([float("nan")]), {}, "not close"),
]


@pytest.mark.parametrize(("actual", "expected", "options"), CLOSE)
def test_what_is_close_passes(actual: Any, expected: Any, options: dict[str, Any]) -> None:
    assert_close(actual, expected, **options)


@pytest.mark.parametrize(("actual", "expected", "options", "text"), FAR)
def test_what_is_not_close_is_said(actual: Any, expected: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        assert_close(actual, expected, **options)


@pytest.mark.parametrize("case", range(len(CLOSE) + len(FAR)))
def test_pytorch_judges_alike(case: int) -> None:
    torch = pytest.importorskip("torch")
    actual, expected, options = [*CLOSE, *[far[:3] for far in FAR]][case]

    def converted(value: Any) -> Any:
        if isinstance(value, T.Tensor):
            return torch.as_strided(
                torch.tensor(value.contiguous().numpy().reshape(-1)), value.shape, value.contiguous().stride()
            )
        if isinstance(value, np.ndarray):
            return torch.tensor(value)
        if isinstance(value, list):
            return [converted(member) for member in value]
        return {key: converted(member) for key, member in value.items()} if isinstance(value, dict) else value

    if "check_stride" in options:
        actual, expected = torch.ones(2, 3).t(), torch.ones(3, 2)
    if case < len(CLOSE):
        torch.testing.assert_close(converted(actual), converted(expected), **options)
    else:
        with pytest.raises(AssertionError):
            torch.testing.assert_close(converted(actual), converted(expected), **options)


def test_the_text_of_the_error_can_be_chosen_and_other_things_are_type_errors() -> None:
    with pytest.raises(AssertionError, match=r"^mine$"):
        assert_close(1.0, 2.0, msg="mine")
    with pytest.raises(AssertionError, match=r"^in a: Scalars"):
        assert_close(1.0, 2.0, msg=lambda text: "in a: " + text)
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(object(), 1.0)
    with pytest.raises(ValueError, match="both be specified"):
        assert_close(1.0, 1.0, rtol=0.1)
    assert_allclose(T.ones(2), T.ones(2).double())
