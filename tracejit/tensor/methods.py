"""Operators, in-place forms and the methods derived from the tables of ops/public, installed on Tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.autograd import api
from tracejit.core.interpreter import state
from tracejit.core.op import REGISTRY, Op
from tracejit.ops.public import IN_PLACE, METHODS
from tracejit.ops.public.indexing import getitem
from tracejit.tensor.base import Tensor, wrap
from tracejit.tensor.construction import tensor
from tracejit.tensor.dlpack import dlpack, dlpack_device
from tracejit.tensor.hooks import backward, graph, register_hook, register_post_accumulate_grad_hook, retain_grad
from tracejit.tensor.shell import shell
from tracejit.tensor.storage import storage, untyped_storage
from tracejit.tensor.ufuncs import applied, array_ufunc, array_wrap
from tracejit.tensor.writing import copy_, fill_, fill_diagonal_, in_place, set_item, zero_

__all__ = ["install"]

_OPERANDS = (Tensor, float, int, np.generic)
ndarray = np.ndarray
_NO_ATTRIBUTES: dict[str, Any] = {}


def _operator(name: str, function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    """A binary operator that gives way (NotImplemented) to operands it does not know.  An array is copied into a tensor."""

    def forward(self: Tensor, other: Any) -> Any:
        if isinstance(other, _OPERANDS):
            return function(self, other)
        return applied(function, self, other) if isinstance(other, ndarray) else NotImplemented

    def backward(self: Tensor, other: Any) -> Any:
        if isinstance(other, _OPERANDS):
            return function(other, self)
        return applied(function, other, self) if isinstance(other, ndarray) else NotImplemented

    method = backward if reflected else forward
    method.__name__ = name
    method.__doc__ = f"The operator {name}."
    return method


def _primitive_operator(name: str, op: Op, reflected: bool) -> Callable[..., Any]:
    """As `_operator`, for operators that are one primitive: the hot path of eager code."""

    def forward(self: Tensor, other: Any) -> Any:
        if isinstance(other, _OPERANDS):
            return state.top.bind(op, (self, other), _NO_ATTRIBUTES)
        return state.top.bind(op, (self, tensor(other)), _NO_ATTRIBUTES) if isinstance(other, ndarray) else NotImplemented

    def backward(self: Tensor, other: Any) -> Any:
        if isinstance(other, _OPERANDS):
            return state.top.bind(op, (other, self), _NO_ATTRIBUTES)
        return state.top.bind(op, (tensor(other), self), _NO_ATTRIBUTES) if isinstance(other, ndarray) else NotImplemented

    method = backward if reflected else forward
    method.__name__ = name
    method.__doc__ = f"The operator {name}."
    return method


def _in_place_operator(method: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place form as an operator: of an array it leaves (NotImplemented) a new tensor to the plain operator, as PyTorch does."""

    def operator(self: Tensor, other: Any) -> Any:
        return method(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    operator.__name__ = operator.__qualname__ = method.__name__
    operator.__doc__ = method.__doc__
    return operator


def _invert(self: Tensor) -> Any:
    """The operator __invert__.  Raises TypeError for floats, as an operator does; bitwise_not() raises NotImplementedError."""
    if self.dtype.is_floating_point:
        raise TypeError(f"~: expected a tensor of integers or bools, got {self.dtype}; convert with .long() or .bool() first")
    return state.top.bind(REGISTRY["bitwise_not"], (self,), _NO_ATTRIBUTES)


def install() -> None:
    """Give Tensor its derived methods and operators, and the module where programs find it."""
    Tensor.__module__ = "tracejit"
    for name, function in METHODS.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, function)
    for name, function in IN_PLACE.items():
        setattr(Tensor, name, in_place(function))
    for name, member in shell.items():
        setattr(Tensor, name, member)
    hooks = (backward, graph, register_hook, register_post_accumulate_grad_hook, retain_grad)
    for function in (*hooks, copy_, fill_, fill_diagonal_, zero_):
        setattr(Tensor, function.__name__, function)
    primitives = {
        "add": "add", "sub": "sub", "mul": "mul", "truediv": "div",
        "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    }  # fmt: skip
    for operator, name in primitives.items():
        setattr(Tensor, f"__{operator}__", _primitive_operator(f"__{operator}__", REGISTRY[name], False))
        if operator in ("add", "mul"):  # the order makes no difference, and a tensor on the left is the faster one
            setattr(Tensor, f"__r{operator}__", _primitive_operator(f"__r{operator}__", REGISTRY[name], False))
        elif operator in ("sub", "truediv"):
            setattr(Tensor, f"__r{operator}__", _primitive_operator(f"__r{operator}__", REGISTRY[name], True))
    functions = {
        "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "floordiv": "floor_divide",
        "mod": "remainder", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
    }  # fmt: skip
    for operator, name in functions.items():
        if name in METHODS:
            setattr(Tensor, f"__{operator}__", _operator(f"__{operator}__", METHODS[name], False))
            setattr(Tensor, f"__r{operator}__", _operator(f"__r{operator}__", METHODS[name], True))
    for operator, name in {**primitives, **functions}.items():
        if name + "_" in IN_PLACE and operator not in ("eq", "ne", "lt", "le", "gt", "ge"):
            setattr(Tensor, f"__i{operator}__", _in_place_operator(Tensor.__dict__[name + "_"]))
    for operator, name in {"neg": "neg", "abs": "abs", "pos": "positive"}.items():
        if name in METHODS:
            setattr(Tensor, f"__{operator}__", METHODS[name])
    setattr(Tensor, "__invert__", _invert)  # noqa: B010
    setattr(Tensor, "__setitem__", set_item)  # noqa: B010  (a type checker takes an assignment for a redefinition)
    setattr(Tensor, "__dlpack__", dlpack)  # noqa: B010
    setattr(Tensor, "__dlpack_device__", dlpack_device)  # noqa: B010
    setattr(Tensor, "__array_wrap__", array_wrap)  # noqa: B010
    setattr(Tensor, "__array_ufunc__", array_ufunc)  # noqa: B010
    setattr(Tensor, "__getitem__", getitem)  # noqa: B010
    setattr(Tensor, "storage", storage)  # noqa: B010
    setattr(Tensor, "untyped_storage", untyped_storage)  # noqa: B010


install()
api.install(wrap)
