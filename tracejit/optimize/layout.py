"""Parameters as one vector of float64, and back.

A `Layout` says which tensors make a vector and how: those in a structure of tuples, lists and dictionaries, in the
order of `core.tree.flatten`, or the parameters of a Module that require gradients, in the order of `named_parameters`.
Each is laid out row by row. A tensor keeps its dtype: the vector's numbers are rounded to it when a function is called.

Always holds: `parts` is differentiable with respect to the vector, and compiled functions read only tuples of a Layout.
Must not know: SciPy, and what is computed of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.dtypes import float64
from tracejit.core.tree import flatten, unflatten
from tracejit.nn.functional_call import replaced_members
from tracejit.nn.module import Module
from tracejit.ops.public.movement import cat
from tracejit.tensor import Tensor, from_numpy

__all__ = ["Array", "Layout", "call", "flat", "parts"]

Array = np.ndarray[Any, np.dtype[np.float64]]


class Layout:
    """Where the elements of parameters lie in a vector.

    `params` is a tensor, a tuple, list or dictionary of tensors (or of such structures), or a Module; `function` is
    named in errors.
    Raises TypeError for a leaf that is no floating-point tensor, ValueError where there is no element."""

    def __init__(self, params: Any, function: str) -> None:
        self.module: Module | None = params if isinstance(params, Module) else None
        tree = _trained(params) if isinstance(params, Module) else params
        leaves, self.structure = flatten(tree)
        self.paths = tuple(_paths(tree, "params"))
        for path, leaf in zip(self.paths, leaves, strict=True):
            if not isinstance(leaf, Tensor) or not leaf.dtype.is_floating_point:
                what = f"a Tensor of dtype {leaf.dtype}" if isinstance(leaf, Tensor) else type(leaf).__name__
                raise TypeError(
                    f"{function}(): expected {path} to be a floating-point Tensor, got {what}; params is a tensor, a tuple, "
                    "list or dictionary of tensors, or a Module: tracejit.tensor(value, dtype=tracejit.float64) makes a tensor"
                )
        self.names = tuple(tree) if isinstance(params, Module) else ()
        self.shapes = tuple([tuple(leaf.shape) for leaf in leaves])
        self.dtypes = tuple([leaf.dtype for leaf in leaves])
        self.sizes = tuple([leaf.numel() for leaf in leaves])
        self.size = sum(self.sizes)
        if not self.size:
            what = "the Module has no parameter that requires a gradient" if self.module is not None else "got no element"
            raise ValueError(f"{function}(): expected params to hold at least one number: {what}")
        self._leaves = leaves if self.module is not None else []

    def vector(self, params: Any) -> Array:
        """Parameters of this layout (a Module or structure) as a new vector of float64."""
        tree = _trained(params) if isinstance(params, Module) else params
        return np.concatenate([np.asarray(x.detach().numpy(), np.float64).reshape(-1) for x in flatten(tree)[0]])

    def tree(self, vector: Array) -> Any:
        """The tensors that a vector stands for, in the structure of the parameters; for a Module a dictionary by
        name."""
        with no_grad():
            return unflatten(self.structure, [x.clone() for x in parts(self, from_numpy(np.array(vector, np.float64)))])

    def write(self, vector: Array) -> None:
        """Write a vector to the parameters of the Module, in place."""
        with no_grad():
            for own, new in zip(self._leaves, parts(self, from_numpy(np.array(vector, np.float64))), strict=True):
                own.copy_(new)

    def answer(self, vector: Array) -> Any:
        """What a result holds as `x`: the Module, with this vector written to it, or new tensors in the structure of
        the parameters."""
        if self.module is None:
            return self.tree(vector)
        self.write(vector)
        return self.module


def _trained(module: Module) -> dict[str, Any]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _paths(value: Any, path: str) -> Iterator[str]:
    """The expressions of the leaves, in the order of `flatten`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, f"{path}[{key!r}]")
    elif isinstance(value, tuple | list):
        for i, inner in enumerate(value):
            yield from _paths(inner, f"{path}[{i}]")
    else:
        yield path


def parts(layout: Layout, vector: Any) -> list[Any]:
    """The tensors that a vector, a tensor of float64, consists of, each in its shape and dtype."""
    pieces = vector.split(list(layout.sizes))
    return [piece.reshape(shape).to(dtype) for piece, shape, dtype in zip(pieces, layout.shapes, layout.dtypes, strict=True)]


def call(f: Callable[..., Any], layout: Layout, vector: Any, args: Sequence[Any]) -> Any:
    """f(params, *args) with the parameters that a vector stands for."""
    tensors = parts(layout, vector)
    if layout.module is None:
        return f(unflatten(layout.structure, tensors), *args)
    with replaced_members(layout.module, dict(zip(layout.names, tensors, strict=True))):
        return f(layout.module, *args)


def flat(value: Any, what: str) -> Any:
    """A tensor, or a structure of tensors, as one tensor of float64 with one dimension.  Raises TypeError for other
    leaves."""
    leaves = flatten(value)[0]
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{what} must return tensors, or a structure of tensors, got {type(leaf).__name__}")
    return cat([leaf.reshape(-1).to(float64) for leaf in leaves])
