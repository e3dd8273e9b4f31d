"""as_strided: views with strides of one's own, made of slices, reshapes and windows; beside torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit

# shape of the tensor, size, stride, storage_offset
CASES: list[tuple[Any, Any, Any, int | None]] = [
    ((60,), (3, 4), (7, 2), None), ((60,), (3, 4), (1, 2), 5), ((5, 12), (), (), None), ((5, 12), (4,), (13,), 3),
    ((60,), (2, 3, 4), (20, 5, 1), 0), ((60,), (3, 2), (0, 5), None), ((60,), (2, 1, 3), (9, 100, 2), 1), ((60,), (0, 3), (1, 1), None),
    ((60,), (4, 3), (1, 1), 2), ((3, 4, 5), (5, 3), (1, 20), None), ((60,), (5, 5), (8, 1), 20), ((60,), (1, 1), (3, 3), 59),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "size", "stride", "offset"), CASES)
def test_values_and_gradients_are_those_of_torch(shape: Any, size: Any, stride: Any, offset: Any) -> None:
    torch, found = pytest.importorskip("torch"), []
    for library in (tracejit, torch):
        x = library.tensor(np.arange(60.0).reshape(shape), requires_grad=True)
        y = x.as_strided(size, stride, offset)
        (y * library.tensor(np.cos(np.arange(y.numel())).reshape(size))).sum().backward()
        moving = [step for n, step in zip(y.shape, y.stride(), strict=True) if n > 1]
        found.append((y.detach().numpy(), x.grad.numpy(), np.array(moving if y.numel() else [])))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs)


def test_a_view_that_does_not_lie_over_itself_is_written_through() -> None:
    x = tracejit.zeros(2, 3, 3)
    x.as_strided((2, 3), (9, 4)).copy_(tracejit.ones(2, 3) * 5)
    assert x.tolist() == [(np.eye(3) * 5).tolist()] * 2
    y = tracejit.zeros(12)
    tracejit.as_strided(y, (3, 2), (4, 1), 2).fill_(1.0)
    assert y.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]
    compiled = tracejit.compile(lambda v: tracejit.as_strided(v * 2, (3, 3), (1, 1)))
    for _ in range(3):
        assert compiled(tracejit.arange(5.0)).tolist() == [[0, 2, 4], [2, 4, 6], [4, 6, 8]]


def test_positions_outside_and_tensors_that_are_not_contiguous_are_errors() -> None:
    x = tracejit.ones(3, 4)
    for arguments, what in (
        (((3,), (6,)), "elements 0 to 12 of 12"), (((2,), (1,), 11), "elements 11 to 12 of 12"), (((3,), (2, 1)), "mismatch in length"),
        (((3,), (-1,)), "must not be negative"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=what):
            x.as_strided(*arguments)
    with pytest.raises(RuntimeError, match="contiguous"):
        x.T.as_strided((2,), (1,))
    with pytest.raises(RuntimeError, match="elements -3 to"):
        tracejit.arange(6.0)[3:].as_strided((2,), (1,), 0)
