"""What programs written for TorchScript ask for leaves functions and modules what they are."""

from __future__ import annotations

import pytest

import tracejit as T
from tracejit import jit, nn


def test_functions_and_modules_stay_what_they_are() -> None:
    model = nn.Linear(2, 1)
    assert jit.script(model) is model and jit.trace(model, T.ones(1, 2)) is model
    assert jit.freeze(model) is model and not jit.is_scripting() and not jit.is_tracing()

    @jit.script
    def swish(x: T.Tensor) -> T.Tensor:
        if x.sum() > 0:
            return x * x.sigmoid()
        return -x

    @jit.ignore
    def first(x: T.Tensor) -> T.Tensor:
        return x

    @jit.ignore(drop=True)
    def second(x: T.Tensor) -> T.Tensor:
        return x

    x = T.tensor([1.0, 2.0])
    assert swish(-x).tolist() == [1.0, 2.0] and first(x) is x and second(x) is x
    compiled = T.compile(lambda x: swish(x) if not jit.is_scripting() else x)
    assert [compiled(x).tolist() for _ in range(3)] == [swish(x).tolist()] * 3
    assert compiled.stats.compiled_calls == 2
    assert jit.wait(jit.fork(first, x)) is x


def test_files_of_torchscript_are_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="does not write TorchScript"):
        jit.save(nn.Linear(1, 1), "model.pt")
    with pytest.raises(NotImplementedError, match="load_state_dict"):
        jit.load("model.pt")
    with pytest.raises(AttributeError, match="nearest names are script"):
        _ = jit.scripts
