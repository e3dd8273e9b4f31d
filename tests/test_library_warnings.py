"""Warnings of the library: a compiled call gives those of an eager one, with the same position, and raises where filters make them
errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
import tracejit.functional as F


def autocast_of_a_device_that_is_not_there(x: T.Tensor) -> T.Tensor:
    with T.autocast("cuda"):
        return x + 1


def autocast_to_float32(x: T.Tensor) -> T.Tensor:
    with T.autocast("cpu", dtype=T.float32):
        return x + 1


WARNING: dict[str, Callable[[T.Tensor], Any]] = {
    "range": lambda x: T.range(0, 3) + x.sum(),
    "add with its factor in front": lambda x: T.add(x, 2, x),
    "method with its factor in front": lambda x: x.sub(2, x),
    "dropout2d of a matrix": lambda x: F.dropout2d(x),
    "dropout2d of three dimensions": lambda x: F.dropout2d(x[None]),
    "dropout3d of a matrix": lambda x: F.dropout3d(x),
    "a module": lambda x: T.nn.Dropout2d()(x),
    "volatile": lambda x: T.autograd.Variable(x, volatile=True) * 2,
    "autocast of a device that is not there": autocast_of_a_device_that_is_not_there,
    "autocast to float32": autocast_to_float32,
}
RESIZING: dict[str, Callable[[T.Tensor], Any]] = {"out of another shape": lambda x: T.add(x, x, out=T.zeros(5))}


def told(function: Callable[[T.Tensor], Any]) -> list[Any]:
    """What four calls warn of, and what a fifth one raises."""
    found: list[Any] = []
    T.manual_seed(0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(5):
            if i == 4:
                warnings.simplefilter("error")
            before = len(seen)
            try:
                result = function(T.ones(2, 3) * i).tolist()
            except UserWarning as error:
                result = repr(error)
            found.append((result, [(str(w.message), w.category, w.filename, w.lineno) for w in seen[before:]]))
    return found


@pytest.mark.parametrize("name", [*WARNING, *RESIZING])
def test_each_call_warns_as_an_eager_one(name: str) -> None:
    function = (WARNING | RESIZING)[name]
    compiled = T.compile(function)
    wanted = told(function)
    assert len(wanted[1][1]) == 1 and "Warning" in wanted[4][0]
    assert told(compiled) == wanted
    if name in WARNING:
        assert compiled.stats.compiled_calls == 3, compiled.explain()


def test_functions_that_a_recording_does_not_see_into_warn_at_the_door() -> None:
    root = Path(T.__file__).parent
    native = [*root.glob("ops/**/*.py"), *root.glob("functional/*.py"), *root.glob("tensor/*.py"), *root.glob("linalg*/*.py")]
    assert [path.name for path in native if "warnings.warn(" in path.read_text()] == []


def test_a_layer_that_is_compiled_by_itself_warns_at_the_line_that_calls_it() -> None:
    layer = T.nn.Dropout2d()
    compiled = T.compile(layer)
    wanted = told(lambda x: layer(x))
    found = told(lambda x: compiled(x))
    assert [w[:3] for _, seen in found for w in seen] == [w[:3] for _, seen in wanted for w in seen]
    lines = [line for _, seen in found for *_, line in seen]
    assert len(lines) == 4 and len(set(lines)) == 1
    assert compiled.stats.traces <= 3 and compiled.stats.compiled_calls >= 1
