"""What is wrong raises an error of PyTorch's type, and a message that says something."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import tracejit

PROGRAMS = [
    line
    for line in Path(__file__).with_name("torch_errors.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def _error(program: str, library: Any) -> Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = eval(program, {"torch": library})
        except Exception as error:
            return error
    raise AssertionError(f"{program} gives {value!r}")


@pytest.mark.parametrize("program", PROGRAMS)
def test_errors_have_the_types_of_pytorchs(program: str) -> None:
    torch = pytest.importorskip("torch")
    torch.distributions.Distribution.set_default_validate_args(True)  # its compiler turns that off for all of the process
    ours, theirs = (_error(program, library) for library in (tracejit, torch))
    assert type(ours).__name__ == type(theirs).__name__.lstrip("_")
    assert str(ours)


@pytest.mark.parametrize("name", ["sum", "softmax", "argmax", "flatten", "cat", "permute", "relu"])
@pytest.mark.parametrize("given", [3, "text", None])
def test_functions_of_what_is_no_tensor_say_so(name: str, given: Any) -> None:
    arguments = {"softmax": (0,), "permute": (0,)}.get(name, ())
    if name == "relu" and given == 3:
        assert tracejit.relu(given).item() == 3  # a number is an operand of elementwise functions
        return
    with pytest.raises(TypeError, match=name if name != "cat" else ""):
        getattr(tracejit, name)(given, *arguments)
