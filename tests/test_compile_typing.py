"""What type checkers know of compiled functions: `python -m mypy` checks the types asserted here, the tests that they are true."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_type

import tracejit as T
from tracejit.report.stats import Stats

if TYPE_CHECKING:
    from mypy_extensions import Arg, DefaultArg


@T.compile
def scaled(x: T.Tensor, factor: float = 2.0) -> T.Tensor:
    return x * factor


@T.compile()
def total(x: T.Tensor) -> tuple[T.Tensor, int]:
    return x.sum(), x.ndim


class Model:
    def __init__(self) -> None:
        self.factor = 3.0

    @T.compile
    def step(self, x: T.Tensor) -> T.Tensor:
        return x * self.factor


def test_a_compiled_function_keeps_its_signature_and_offers_statistics() -> None:
    assert_type(scaled(T.ones(1)), T.Tensor)
    assert_type(scaled(T.ones(1), factor=3.0), T.Tensor)
    assert_type(total(T.ones(1)), tuple[T.Tensor, int])
    assert_type(scaled.stats, Stats)
    assert_type(scaled.explain(), str)
    assert scaled.stats.calls == 2 and "scaled" in scaled.explain(verbose=True)
    if TYPE_CHECKING:
        scaled("x")  # type: ignore[arg-type]
        scaled(T.ones(1), scale=1.0)  # type: ignore[call-arg]
        total()  # type: ignore[call-arg]
    signature: Callable[[Arg(T.Tensor, "x"), DefaultArg(float, "factor")], T.Tensor] = scaled
    assert signature is scaled


def test_a_compiled_method_is_bound_with_its_signature_and_statistics() -> None:
    model = Model()
    assert_type(model.step(T.ones(1)), T.Tensor)
    assert_type(model.step.stats, Stats)
    assert model.step(T.ones(1)).tolist() == [3.0] and model.step.stats.calls == Model.step.stats.calls == 2
    if TYPE_CHECKING:
        model.step(1)  # type: ignore[arg-type]


def test_a_module_is_compiled_as_a_callable_object() -> None:
    model = T.compile(T.nn.Linear(2, 1))
    assert_type(model.explain(), str)
    assert model(T.ones(2)).shape == (1,) and model.in_features == 2


def test_compiling_a_compiled_function_changes_nothing() -> None:
    again = T.compile(scaled)
    assert_type(again.stats, Stats)
    assert_type(again(T.ones(1)), T.Tensor)
    assert again is scaled
