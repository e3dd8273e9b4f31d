"""What programs call: derived from the tables of public functions and methods, nn.functional, linalg, and the registry's samples.

An operation is a name, a style of calling it, and the signature that tells by its parameters' names what to pass (`arguments.py`).  A
function that is added to the library appears here by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tracejit
from tracejit import Tensor, linalg
from tracejit.core.op import REGISTRY, Effect, Op
from tracejit.nn import functional
from tracejit.ops.public import FUNCTIONS, IN_PLACE, METHODS

__all__ = ["Operation", "operations", "primitives"]

# Not drawn: what has no value that could be compared (vectors of a decomposition have a choice of signs), takes dtypes or devices,
# changes the library's state, is random state itself, or reads memory in ways that few arguments fit.
_LEFT_OUT = """as_strided imag view_as_real
empty empty_like new_empty initial_seed seed set_rng_state get_rng_state manual_seed random_ bernoulli_ broadcast_shapes
__rdiv__ where_ svd can_cast result_type cuda cpu type new set_ resize_ resize_as_ apply_
pin_memory"""
LEFT_OUT = frozenset(_LEFT_OUT.split())
OWN_METHODS = (
    "detach",
    "copy_",
    "fill_",
    "zero_",
    "item",
    "tolist",
    "size",
    "stride",
    "dim",
    "numel",
    "is_contiguous",
    "element_size",
)
_RANDOM = """rand randn randint randperm rand_like randn_like randint_like normal bernoulli uniform_ normal_ exponential_ dropout
dropout1d dropout2d dropout3d alpha_dropout"""
RANDOM = frozenset(_RANDOM.split())


@dataclass(frozen=True)
class Operation:
    """Something to call.  style: "function" (`prefix` and name), "method", or "in place"."""

    name: str
    style: str
    prefix: str
    parameters: tuple[inspect.Parameter, ...]

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.prefix or '.'}{self.name}"

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return self.name in RANDOM


def _operation(name: str, style: str, prefix: str, function: Callable[..., Any]) -> Operation:
    parameters = tuple(inspect.signature(function).parameters.values())
    return Operation(name, style, prefix, parameters)


@cache
def operations() -> tuple[Operation, ...]:
    """Everything public that takes tensors or makes them."""
    found = [_operation(n, "function", "T.", f) for n, f in FUNCTIONS.items() if n not in LEFT_OUT]
    found += [_operation(n, "method", "", f) for n, f in METHODS.items() if n not in LEFT_OUT]
    found += [_operation(n, "in place", "", f) for n, f in IN_PLACE.items() if n not in LEFT_OUT]
    found += [_operation(n, "method", "", getattr(Tensor, n)) for n in OWN_METHODS]
    for module, prefix in ((functional, "F."), (linalg, "T.linalg.")):
        for name in module.__all__ if hasattr(module, "__all__") else dir(module):
            function = getattr(module, name)
            if callable(function) and not isinstance(function, type) and not name.startswith("_"):
                found.append(_operation(name, "function", prefix, function))
    return tuple(found)


@dataclass(frozen=True)
class PrimitiveCase:
    """A primitive with the shapes, dtypes and attributes of one of its samples."""

    name: str
    operands: tuple[Any, ...]  # arrays, numbers
    attributes: dict[str, Any]


@cache
def primitives() -> tuple[PrimitiveCase, ...]:
    """Every sample of every primitive that a function may call."""
    found = []
    for name, op in sorted(REGISTRY.items()):
        if op.samples is None or op.effect is not Effect.PURE or not _is_plain(op):
            continue
        for operands, attributes in op.samples():
            if all(isinstance(x, np.ndarray | int | float) for x in operands) and all(
                isinstance(v, int | float | str | tuple | type(None) | tracejit.dtype) for v in attributes.values()
            ):
                found.append(PrimitiveCase(name, tuple(operands), dict(attributes)))
    return tuple(found)


def _is_plain(op: Op) -> bool:
    return not {"dynamic shape", "straight through"} & op.traits
