"""Pairs (real, imag) in the place of complex tensors: made, and taken apart, as torch does with complex ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit

A, B = np.random.default_rng(0).normal(size=(2, 3, 4))
FUNCTIONS: dict[str, Any] = {
    "complex": lambda t, a, b: t.complex(a, b[:1]),
    "polar": lambda t, a, b: t.polar(a.abs(), b),
    "view_as_complex": lambda t, a, b: t.view_as_complex(t.stack([a, b], -1)),
    "fft": lambda t, a, b: t.fft.fft(t.complex(a, b)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_and_gradients_are_those_of_torch(name: str) -> None:
    torch, found = pytest.importorskip("torch"), []
    for library in (tracejit, torch):
        a, b = (library.tensor(x, requires_grad=True) for x in (A, B))
        z = FUNCTIONS[name](library, a, b)
        whole = library.view_as_real(z)
        (whole * library.arange(1.0, whole.numel() + 1).reshape(whole.shape)).sum().backward()
        found.append([x.detach().numpy() for x in (library.real(z), library.imag(z), whole, a.grad, b.grad)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_parts_of_a_view_are_written_through() -> None:
    x = tracejit.zeros(2, 2)
    tracejit.view_as_complex(x).imag.fill_(1.0)
    assert x.tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_what_is_no_pair_and_parts_that_do_not_fit_are_errors() -> None:
    x = tracejit.ones(3)
    for use, what in (
        (lambda: tracejit.complex(x, x.double()), "one floating-point dtype"), (lambda: tracejit.complex(x.int(), x.int()), "float"),
        (lambda: tracejit.view_as_complex(x), "last dimension of size 2"), (lambda: tracejit.view_as_real(x), "only supported for complex"),
        (lambda: tracejit.imag(x), "non-complex dtypes"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=what):
            use()
