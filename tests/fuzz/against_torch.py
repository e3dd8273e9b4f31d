"""Eager against PyTorch: the same text with torch in the place of tracejit.

Compared is what both have: structure, shapes, dtypes, requires_grad, numbers, gradients, and which error is raised, not its text.
PyTorch's roundings are its own, so the spread that explains a difference of numbers is taken wider.
"""

from __future__ import annotations

import re
from types import CodeType
from typing import Any

import tracejit
from tests.fuzz.compare import Difference, compare
from tests.fuzz.noise import rounding_noise
from tests.fuzz.run import EAGER, Program, run

REFUSED = re.compile(r"outcome >\w+")  # torch raises where tracejit has an answer: it may offer more
ALIKE = ({"TypeError", "AttributeError"}, {"RuntimeError", "NotImplementedError"})

__all__ = ["check_torch", "comparable"]


def comparable(program: Program) -> bool:
    """Whether torch has all that a program uses."""
    import torch

    holders = {"T.linalg": torch.linalg, "T": torch, "F": torch.nn.functional, "": torch.Tensor}
    for use in program.uses:
        prefix, _, name = use.rpartition(".")
        if prefix == "op" or not hasattr(holders[prefix], name):
            return False
    return program.for_torch


def check_torch(program: Program) -> Difference | None:
    """The first difference between eager and torch, of one round of calls."""
    import torch

    code = program.code()
    ours = _once(program, code, tracejit)
    theirs = _once(program, code, torch)

    def noisy(seed: int) -> Any:
        with rounding_noise(seed, scale=8.0, everything=True):
            return _once(program, code, tracejit)

    difference = compare(ours, theirs, noisy)[0]
    return None if difference is None or REFUSED.fullmatch(difference.signature) or _same_refusal(difference) else difference


def _same_refusal(difference: Difference) -> bool:
    """Whether both raise, and for the same reason."""
    pair = {difference.eager.strip("'"), difference.other.strip("'")}
    return any(pair <= refusals for refusals in ALIKE)


def _once(program: Program, code: CodeType, framework: Any) -> Any:
    return run(program, code, EAGER, rounds=1, framework=framework, for_torch=True).seen
