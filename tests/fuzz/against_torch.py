"""Eager against PyTorch: the same text with torch in the place of tracejit.

Compared is what both have: structure, shapes, dtypes, requires_grad, numbers, gradients, and which error is raised, not its text.
PyTorch's roundings are its own, so the spread that explains a difference of numbers is taken wider.

One thing PyTorch does not do as it documents: a view taken under no_grad says that it requires grad, as a leaf of its own that gradients
end in.  Here it does not, as its documentation of no_grad has it, so in comparisons PyTorch's are detached.
"""

from __future__ import annotations

import re
from types import CodeType
from typing import Any

import tracejit
from tests.fuzz.compare import ERROR, Difference, compare
from tests.fuzz.facts import Facts
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
    with _views_without_gradient():
        theirs = _once(program, code, torch)

    def noisy(seed: int) -> Any:
        with rounding_noise(seed, scale=8.0, everything=True):
            return _once(program, code, tracejit)

    for number, errors in enumerate(zip(map(_error, ours), map(_error, theirs), strict=True)):
        if all(errors):  # what a backward pass has done before it raises is left open
            ours, theirs = ours[:number], theirs[:number]
            if errors[0] != errors[1] and not any(set(errors) <= refusals for refusals in ALIKE):
                return Difference(number, "outcome", "outcome", *map(repr, errors))
            break

    difference = compare(ours, theirs, noisy)[0]
    return None if difference is None or REFUSED.fullmatch(difference.signature) or _same_refusal(difference) else difference


def _same_refusal(difference: Difference) -> bool:
    """Whether both raise, and for the same reason."""
    pair = {difference.eager.strip("'"), difference.other.strip("'")}
    return any(pair <= refusals for refusals in ALIKE)


def _error(seen: Facts) -> str:
    """The name of the error that a call raised, empty if it returned."""
    return next(iter(ERROR.findall(repr(seen.skeleton[0]))), "")


def _views_without_gradient() -> Any:
    """A mode in which views that PyTorch makes under no_grad do not require grad, sorting keeps the order of equals, and what it has
    deprecated, to write by an index into expanded tensors, is an error, as it is here."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    class Detaching(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if _writes_by_index(function, args) and 0 in args[0].stride() and args[0].numel():
                raise RuntimeError("an expanded tensor")
            if getattr(function, "__name__", "") in ("sort", "argsort"):  # ours are stable always
                kwargs.update(zip(("dim", "descending"), args[1:], strict=False), stable=True)
                args = args[:1]
            result = function(*args, **kwargs)
            return result if torch.is_grad_enabled() or isinstance(result, torch.Size) else tree_map(detached, result)

    def detached(value: Any) -> Any:
        is_view = isinstance(value, torch.Tensor) and value._base is not None
        return value.detach() if is_view and value.grad_fn is None and value._base.requires_grad else value

    return Detaching()


def _writes_by_index(function: Any, args: Any) -> bool:
    """Whether PyTorch calls this an index_put_, index_fill_ or masked_fill_."""
    name = getattr(function, "__name__", "")
    if name == "__setitem__":
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(key, list) or hasattr(key, "__array__") for key in keys)
    return name in ("index_put_", "index_fill_", "masked_fill_")


def _once(program: Program, code: CodeType, framework: Any) -> Any:
    return run(program, code, EAGER, rounds=1, framework=framework, for_torch=True).seen
