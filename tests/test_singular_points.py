"""Gradients where a derivative jumps, or is not finite, are PyTorch's: zeros, equal values, ends of the domain, infinities."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import tracejit

torch = pytest.importorskip("torch")

ENDS: Final = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 6.0, np.inf, -np.inf, 1e-30, 1e30, -1e30])
FIRST, SECOND = (grid.ravel().copy() for grid in np.meshgrid(ENDS, ENDS))
ROWS: Final = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0], [3.0, 3.0, 0.0], [-1.0, 0.0, 1.0]])
CALLS: Final[dict[str, tuple[tuple[np.ndarray, ...], tuple[Any, ...]]]] = {
    "ends": ((ENDS,), ()),
    "pairs of ends": ((FIRST, SECOND), ()),
    **{f"rows, {arguments}": ((ROWS,), arguments) for arguments in ((), (1,), (0,), (-1, True), (2, 1), (0.5,))},
    "equal rows": ((ROWS, ROWS.copy()), ()),
    "rows and zeros": ((ROWS, np.zeros_like(ROWS)), ()),
    "zeros, a square": ((np.zeros((3, 3)),), ()),
    "three rows": ((ROWS, ROWS.copy(), ROWS.copy()), ()),
}
DRAWING: Final = (
    "bernoulli",
    "dropout",
    "gumbel",
    "rrelu",
    "normal",
    "multinomial",
    "rand",
    "poisson",
    "lowrank",
    "compile",
    "vmap",
)
DIFFERENT: Final = {
    "complex": "complex numbers are pairs of tensors", "polar": "complex numbers are pairs of tensors",
    "copysign": "of an infinite magnitude the slope is 1 here and NaN there",
    "digamma": "at its poles the slope is infinite here, and a large number there",
    "psi": "at its poles the slope is infinite here, and a large number there",
    "kthvalue": "of equal values another one may be chosen",
    "mode": "of equal values another one may be chosen",
    "logdet": "a singular matrix raises LinAlgError", "slogdet": "a singular matrix raises LinAlgError",
    "lu": "a singular matrix raises LinAlgError", "lu_factor_ex": "a singular matrix raises LinAlgError",
    "qr": "a singular matrix raises LinAlgError",
    "cholesky_ex": "what has no factor has no gradient", "inv_ex": "what has no inverse has no gradient",
    "nextafter": "there is no derivative",
    "prod": "beside several zeros and infinities the product of the others is NaN",
    "vander": "powers of infinities are multiplied in another order",
    "multilabel_soft_margin_loss": "of an infinite target the terms are added in another order",
    "softplus": "of beta = 0 nothing is defined",
    "DoubleTensor": "no function", "Tensor": "no function",
    "lerp": "of infinite weights the ends are added in another order",
    "l1_loss": "of infinities that are the same the difference is NaN, which has a slope of NaN here and of 0 there",
    "adaptive_avg_pool2d": "of a vector of rows there is no image here",
}  # fmt: skip
"""What differs, by name, and why."""


def functions() -> Iterator[Any]:
    for path in ("", "nn.functional", "special", "linalg"):
        theirs, ours = torch, tracejit
        for part in path.split(".") if path else ():
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        for name in dir(theirs):
            if name.startswith("_") or name.endswith("_") or any(word in name for word in DRAWING) or name in DIFFERENT:
                continue
            wanted, given = getattr(theirs, name), getattr(ours, name, None)
            if path == "" and not hasattr(tracejit.functions, name):
                continue  # what makes tensors, or sets how others are computed
            if callable(wanted) and callable(given) and not inspect.isclass(given):
                yield pytest.param(wanted, given, id=f"{path}.{name}".lstrip("."))


def gradients(library: Any, function: Callable[..., Any], arrays: tuple[np.ndarray, ...], arguments: tuple[Any, ...]) -> Any:
    """The gradients with respect to the arrays, zeros for none; None where the result has none."""
    given = [library.tensor(array, requires_grad=True) for array in arrays]
    result = function(*given, *arguments)
    outputs = [y for y in (result if isinstance(result, tuple | list) else [result]) if getattr(y, "requires_grad", False)]
    if not outputs:
        return None
    found = library.autograd.grad(outputs, given, [library.ones_like(y) for y in outputs], allow_unused=True)
    return [np.zeros_like(a) if g is None else g.numpy() for a, g in zip(arrays, found, strict=True)]


@pytest.mark.parametrize(("wanted", "given"), functions())
def test_gradients_at_singular_points_are_those_of_torch(wanted: Callable[..., Any], given: Callable[..., Any]) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for call, (arrays, arguments) in CALLS.items():
            try:
                expected = gradients(torch, wanted, arrays, arguments)
            except Exception:  # of the wrong shapes, or not differentiable
                continue
            if expected is None:
                continue
            actual = gradients(tracejit, given, arrays, arguments)
            assert actual is not None, call
            for position, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=f"{call}, gradient {position}")


NAN: Final = float("nan")
SPECIAL: Final = [NAN, -np.inf, np.inf, -1.0, 0.0, -0.0, 1.0, 2.0]
LIMITS: Final = [NAN, 0.0, 0.0, NAN, 1.0, 1.0, -1.0, NAN]
LIMITING: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "min": lambda t, x, limits: x.clamp(min=NAN),
    "max": lambda t, x, limits: t.clamp(x, max=NAN),
    "NaN and a number": lambda t, x, limits: x.clip(NAN, 1.0),
    "a number and NaN": lambda t, x, limits: x.clamp(-1.0, NAN),
    "clamp_min": lambda t, x, limits: t.clamp_min(x, NAN),
    "clamp_max": lambda t, x, limits: x.clamp_max(NAN),
    "in place": lambda t, x, limits: (x * 1).clamp_(min=NAN),
    "numbers": lambda t, x, limits: x.clamp(-1, 1),
    "infinities": lambda t, x, limits: x.clamp(-np.inf, np.inf),
    "a tensor below": lambda t, x, limits: t.clamp(x, min=limits),
    "a tensor above": lambda t, x, limits: t.clamp_max(x, limits),
    "tensors": lambda t, x, limits: t.clamp(x, limits, limits + 1),
    "finite tensors": lambda t, x, limits: t.clamp(x, limits.nan_to_num() - 2, limits.nan_to_num() + 2),
}


@pytest.mark.parametrize("name", LIMITING)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limits_of_nan_give_nan_and_no_gradient_eager_and_compiled(name: str, dtype: str) -> None:
    def results(t: Any, function: Callable[..., Any]) -> list[Any]:
        x = t.tensor(SPECIAL, dtype=getattr(t, dtype), requires_grad=True)
        y = function(x, t.tensor(LIMITS, dtype=getattr(t, dtype)))
        y.sum().backward()
        return [y.detach().numpy(), x.grad.numpy()]

    wanted = results(torch, lambda x, limits: LIMITING[name](torch, x, limits))
    compiled = tracejit.compile(lambda x, limits: LIMITING[name](tracejit, x, limits), wait=True)
    for function in (lambda x, limits: LIMITING[name](tracejit, x, limits), compiled, compiled, compiled):
        for ours, theirs in zip(results(tracejit, function), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert compiled.stats.compiled_calls == 2


def test_a_limit_that_becomes_nan_is_nan_in_a_compiled_call() -> None:
    class Limits:
        low, high = -1.0, 1.0

    compiled = tracejit.compile(
        lambda x: (x.clamp(min=Limits.low), x.clamp(max=Limits.high), x.clamp(Limits.low, Limits.high)), wait=True
    )
    x = tracejit.tensor([-2.0, 0.0, 2.0])
    for Limits.low, Limits.high in ((-1.0, 1.0), (-0.5, 0.5), (NAN, 0.5), (-0.5, NAN), (0.0, 1.0)):
        for ours, theirs in zip(
            compiled(x), (x.clamp(min=Limits.low), x.clamp(max=Limits.high), x.clamp(Limits.low, Limits.high)), strict=True
        ):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
