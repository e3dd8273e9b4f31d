"""Answers of PyTorch where a program could get another one without noticing: each line is evaluated with both libraries."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit

torch = pytest.importorskip("torch")


def canonical(value: Any) -> Any:
    """Contents, dtype and shape of tensors; names of types; everything else as text."""
    if isinstance(value, tracejit.Tensor | torch.Tensor):
        numbers = np.asarray(value.detach().numpy())
        return ("tensor", str(value.dtype).split(".")[1], tuple(value.shape), bool(value.requires_grad), numbers.tolist())
    if type(value) in (tuple, list):
        return [canonical(v) for v in value]
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    return (type(value).__name__, repr(value).replace("tracejit", "torch"))


def answer(library: Any, program: str) -> Any:
    names = {"torch": library, "nn": library.nn, "F": library.nn.functional, "np": np, "copy": copy, "pickle": pickle}
    *statements, last = program.split("; ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for statement in statements:
                exec(statement, names)
            return canonical(eval(last, names))
        except Exception as error:
            return type(error).__name__


def programs(name: str) -> list[str]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(
    "program",
    programs("torch_answers.txt")
    + programs("torch_shell.txt")
    + programs("torch_older.txt")
    + programs("torch_containers.txt")
    + programs("torch_functions.txt"),
)
def test_a_program_gets_the_answer_that_pytorch_gives(program: str) -> None:
    expected, actual = answer(torch, program), answer(tracejit, program)
    assert repr(actual) == repr(expected)


def printed(library: Any, program: str) -> str:
    names = {"torch": library, "nn": library.nn, "F": library.nn.functional, "optim": library.optim, "np": np, "math": math}
    *statements, last = program.split("; ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for statement in statements:
                exec(statement, names)
            return repr(eval(last, names)).replace("tracejit", "torch")
        except Exception as error:
            return type(error).__name__


@pytest.mark.parametrize("program", programs("torch_printing.txt") + programs("torch_everyday.txt"))
def test_a_program_prints_what_it_prints_with_pytorch(program: str) -> None:
    assert printed(tracejit, program) == printed(torch, program)
