"""Convolutions of arrays: whichever way the windows are laid out, results and gradients are the same sums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit.core import convolutions
from tracejit.core.aval import Aval
from tracejit.core.dtypes import float32
from tracejit.ops.composites import convolution

F = T.nn.functional


def tensors(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [T.from_numpy(generator.normal(size=shape)).requires_grad_() for shape in shapes]


def results(x: Any, weight: Any, bias: Any, **arguments: Any) -> list[Any]:
    out = getattr(F, f"conv{x.ndim - 2}d")(x, weight, bias, **arguments)
    cotangent = T.arange(out.numel(), dtype=T.float64).reshape(out.shape) / 7 - 3
    return [out.detach(), *T.autograd.grad((out * cotangent).sum(), [x, weight, bias])]


@contextmanager
def kernels(wanted: bool) -> Iterator[None]:
    """With those of the processor, or as on one that has none."""
    convolutions.are_installed()  # asked once, for good
    with pytest.MonkeyPatch.context() as patch:
        if not wanted:
            patch.setattr(convolutions, "_kernels", None)
        yield


CASES = st.integers(1, 2).flatmap(
    lambda rank: st.tuples(
        st.lists(
            st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2), st.integers(1, 2)), min_size=rank, max_size=rank
        ),
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(1, 2),
    )
)


@settings(max_examples=60, deadline=None)
@given(CASES, st.integers(0, 100))
def test_both_layouts_give_the_same_results_and_gradients(case: Any, seed: int) -> None:
    spatial, batch, inputs, outputs, groups = case
    sizes = [max(size, gap * (kernel - 1) + 1 - 2 * padding) for size, kernel, padding, gap in spatial]
    sizes = [max(size, 1) for size in sizes]
    x, weight, bias = tensors(
        seed, (batch, inputs * groups, *sizes), (outputs * groups, inputs, *[s[1] for s in spatial]), (outputs * groups,)
    )
    arguments = {"padding": tuple(s[2] for s in spatial), "dilation": tuple(s[3] for s in spatial), "groups": groups}
    found = []
    choose = convolution._layout_of
    for kind in (convolution._Layout, convolution._Windows):

        def layout(shape: Any, weight_shape: Any, *a: Any, kind: Any = kind, **k: Any) -> Any:
            return kind(Aval(shape, float32), Aval(weight_shape, float32), *a, **k)

        convolution._layout_of = layout  # type: ignore[assignment]
        try:
            with kernels(False):
                found.append(results(x, weight, bias, **arguments))
        finally:
            convolution._layout_of = choose
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape and one.is_contiguous() and other.is_contiguous()
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, atol=1e-9)


WIDE = [
    ((3, 2, 5, 5), (4, 2, 5, 5), {}),
    ((3, 2, 9, 6), (4, 2, 3, 6), {}),
    ((3, 4, 6, 6), (4, 2, 5, 5), {"groups": 2}),
    ((2, 2, 7), (3, 2, 7), {"padding": 1}),
    ((2, 3, 8, 8), (2, 3, 3, 3), {"padding": 1, "dilation": 2}),
]


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize(("shape", "kernel", "arguments"), WIDE)
def test_kernels_as_wide_as_the_input_agree_with_torch_and_with_programs(
    shape: tuple[int, ...], kernel: tuple[int, ...], arguments: dict[str, Any], wanted: bool
) -> None:
    x, weight, bias = tensors(0, shape, kernel, (kernel[0],))
    with kernels(wanted):
        expected = results(x, weight, bias, **arguments)
        compiled = T.compile(lambda x, weight, bias: results(x, weight, bias, **arguments))
        for _ in range(3):
            for one, other in zip(compiled(x, weight, bias), expected, strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-11, atol=1e-10)
    torch = pytest.importorskip("torch")
    theirs = [torch.from_numpy(t.detach().numpy()).requires_grad_() for t in (x, weight, bias)]
    out = getattr(torch.nn.functional, f"conv{len(shape) - 2}d")(*theirs, **arguments)
    cotangent = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape) / 7 - 3
    for one, other in zip([out.detach(), *torch.autograd.grad((out * cotangent).sum(), theirs)], expected, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "shape", "weight", "message"),
    [
        ("conv_transpose2d", (1, 4, 3, 2), (4, 2, 2, 0), "kernel size should be greater than zero"),
        ("conv2d", (1, 4, 3, 2), (2, 4, 0, 1), "kernel size should be greater than zero"),
        ("conv_transpose2d", (4, 0, 1), (4, 0, 2, 1), "only zero batch or zero channel"),
        ("conv1d", (1, 4, 0), (2, 4, 1), "only zero batch or zero channel"),
        ("conv3d", (1, 1, 0, 2, 2), (2, 1, 1, 1, 1), "only zero batch or zero channel"),
    ],
)
def test_sizes_of_zero_are_refused_eagerly_and_compiled(name: str, shape: Any, weight: Any, message: str) -> None:
    function = getattr(T.nn.functional, name)
    for call in (function, T.compile(function)):
        with pytest.raises(RuntimeError, match=message):
            call(T.zeros(shape), T.zeros(weight))
