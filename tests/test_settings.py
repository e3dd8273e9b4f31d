"""Settings of the library that a compiled function changes or reads: after each call they are what an eager call leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T

Action = Callable[[], Any]

# name -> what the function does, what can be seen of it, how it is put back
SETTINGS: dict[str, tuple[Action, Action, Action]] = {
    "deterministic algorithms": (
        lambda: T.use_deterministic_algorithms(True),
        T.are_deterministic_algorithms_enabled,
        lambda: T.use_deterministic_algorithms(False),
    ),
    "precision of products": (
        lambda: T.set_float32_matmul_precision("high"),
        T.get_float32_matmul_precision,
        lambda: T.set_float32_matmul_precision("highest"),
    ),
    "default dtype": (lambda: T.set_default_dtype(T.float64), T.get_default_dtype, lambda: T.set_default_dtype(T.float32)),
    "default tensor type": (
        lambda: T.set_default_tensor_type("DoubleTensor"),
        T.get_default_dtype,
        lambda: T.set_default_dtype(T.float32),
    ),
    "how tensors print": (
        lambda: T.set_printoptions(precision=2),
        lambda: repr(T.tensor(1.23456)),
        lambda: T.set_printoptions(profile="default"),
    ),
    "threads": (lambda: T.set_num_threads(1), T.get_num_threads, lambda: T.set_num_threads(2)),
    "grad mode": (lambda: T.set_grad_enabled(False), T.is_grad_enabled, lambda: T.set_grad_enabled(True)),
    "a switch of a library": (
        lambda: setattr(T.backends.cudnn, "benchmark", True),
        lambda: T.backends.cudnn.benchmark,
        lambda: setattr(T.backends.cudnn, "benchmark", False),
    ),
}
FOLLOWED = ("deterministic algorithms", "precision of products", "grad mode", "a switch of a library")


@pytest.mark.parametrize("name", SETTINGS)
def test_each_call_changes_a_setting_as_an_eager_one(name: str) -> None:
    change, look, back = SETTINGS[name]

    def fn(x: T.Tensor) -> Any:
        y = x * 2
        change()
        return y

    compiled = T.compile(fn)
    before = T.get_num_threads()
    try:
        seen = []
        for function in (fn, *[compiled] * 4):
            back()
            assert function(T.ones(2)).tolist() == [2.0, 2.0]
            seen.append(look())
        assert seen == [seen[0]] * 5
        back()
        assert look() != seen[0]
    finally:
        back()
        T.set_num_threads(before)
    if name in FOLLOWED:
        assert compiled.stats.compiled_calls == 3, compiled.explain()


def test_a_setting_that_is_read_is_that_of_the_call() -> None:
    compiled = T.compile(lambda x: (x + 1, T.are_deterministic_algorithms_enabled(), T.get_float32_matmul_precision()))
    try:
        for i in range(8):
            T.use_deterministic_algorithms(i % 2 == 0)
            T.set_float32_matmul_precision(("highest", "medium")[i % 4 > 1])
            assert compiled(T.ones(2))[1:] == (i % 2 == 0, ("highest", "medium")[i % 4 > 1])
    finally:
        T.use_deterministic_algorithms(False)
        T.set_float32_matmul_precision("highest")
    assert compiled.stats.traces == 4 and compiled.stats.compiled_calls == 4
