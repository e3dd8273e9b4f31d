"""`_foreach_*`: one operation for each tensor of a list, which optimizers written for PyTorch call.

A second operand is a list of as many tensors or numbers, a number, or a tensor without dimensions.  Results are a tuple of tensors; the
forms with a trailing underscore change the tensors in place and return the list.  There is one implementation, a loop over the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tracejit.ops.public import FUNCTIONS
from tracejit.ops.public.norms import vector_norm
from tracejit.tensor.base import Tensor

__all__ = ["FOREACH"]

_UNARY: Final = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign
    sin sinh sqrt tan tanh trunc
"""
_BINARY: Final = ("add", "clamp_max", "clamp_min", "div", "maximum", "minimum", "mul", "pow", "sub")
_OF_A_BOUND: Final = {"maximum": "clamp_min", "minimum": "clamp_max"}
_METHODS = vars(Tensor)

FOREACH: dict[str, Callable[..., Any]] = {}
"""The functions by name."""


def _checked(name: str, tensors: Any) -> Sequence[Any]:
    """Raises TypeError for what is no list of tensors, RuntimeError for an empty one."""
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"{name}(): argument 'self' must be a list or tuple of Tensors, got {tensors.__class__.__name__}")
    if not tensors:
        raise RuntimeError(f"{name}(): Tensor list must have at least one tensor.")
    return tensors


def _each(name: str, tensors: Sequence[Any], operand: Any) -> Sequence[Any]:
    """An operand for each tensor.  Raises RuntimeError for a list of another length, or a tensor with dimensions in place of a number."""
    if isinstance(operand, list | tuple):
        if len(operand) != len(tensors):
            raise RuntimeError(
                f"{name}(): Tensor lists must have the same number of tensors, got {len(tensors)} and {len(operand)}"
            )
        return operand
    if isinstance(operand, Tensor) and operand.ndim:
        raise RuntimeError(
            f"{name}(): scalar tensor expected to be 0 dim but it has {operand.ndim} dimensions and {operand.numel()} elements."
        )
    return [operand] * len(tensors)


def _register(name: str, function: Callable[..., Any], in_place: Callable[..., Any] | None = None) -> None:
    function.__name__ = function.__qualname__ = name
    FOREACH[name] = function
    if in_place is not None:
        in_place.__name__ = in_place.__qualname__ = name + "_"
        FOREACH[name + "_"] = in_place


def _unary(operation: str) -> None:
    name = f"_foreach_{operation}"

    def function(self: Any) -> Any:
        return tuple([_METHODS[operation](x) for x in _checked(name, self)])

    def in_place(self: Any) -> Any:
        for x in _checked(name + "_", self):
            _METHODS[operation + "_"](x)
        return self

    _register(name, function, in_place)


def _applied(operation: str, x: Any, operand: Any, options: dict[str, Any]) -> Any:
    if not isinstance(operand, Tensor):
        operation = _OF_A_BOUND.get(operation, operation)
    return FUNCTIONS[operation](x, operand, **options)


def _binary(operation: str) -> None:
    name = f"_foreach_{operation}"

    def function(self: Any, other: Any, **options: Any) -> Any:
        if operation == "pow" and not isinstance(self, list | tuple):  # a base for a list of exponents
            return tuple([FUNCTIONS["pow"](self, x) for x in _checked(name, other)])
        operands = _each(name, _checked(name, self), other)
        return tuple([_applied(operation, x, y, options) for x, y in zip(self, operands, strict=True)])

    def in_place(self: Any, other: Any, **options: Any) -> Any:
        operands = _each(name + "_", _checked(name + "_", self), other)
        for x, y in zip(self, operands, strict=True):
            if operation in _OF_A_BOUND:
                _METHODS["copy_"](x, _applied(operation, x, y, options))
            else:
                _METHODS[operation + "_"](x, y, **options)
        return self

    _register(name, function, in_place)


def _ternary(operation: str) -> None:
    """addcdiv, addcmul: self + value * (tensor1 / tensor2), or of the product; `value` may be `scalars`, a list or a tensor of them."""
    name = f"_foreach_{operation}"

    def operands(self: Any, tensor1: Any, tensor2: Any, value: Any, scalars: Any) -> Any:
        values = value if scalars is None else scalars
        if isinstance(values, Tensor) and values.ndim:
            values = values.tolist()
        first, second = _each(name, _checked(name, self), tensor1), _each(name, self, tensor2)
        return zip(self, first, second, _each(name, self, values), strict=True)

    def function(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        each = operands(self, tensor1, tensor2, value, scalars)
        return tuple([FUNCTIONS[operation](x, a, b, value=v) for x, a, b, v in each])

    def in_place(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        for x, a, b, v in operands(self, tensor1, tensor2, value, scalars):
            _METHODS[operation + "_"](x, a, b, value=v)
        return self

    _register(name, function, in_place)


def _lerp(self: Any, tensors1: Any, weight: Any) -> Any:
    """x + weight * (y - x) for each; weight is a number, or a list of numbers or tensors."""
    ends, weights = _each("_foreach_lerp", _checked("_foreach_lerp", self), tensors1), _each("_foreach_lerp", self, weight)
    return tuple([FUNCTIONS["lerp"](x, y, w) for x, y, w in zip(self, ends, weights, strict=True)])


def _lerp_in_place(self: Any, tensors1: Any, weight: Any) -> Any:
    for x, value in zip(self, _lerp(self, tensors1, weight), strict=True):
        _METHODS["copy_"](x, value)
    return self


def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    for x, source in zip(_checked("_foreach_copy_", self), _each("_foreach_copy_", self, src), strict=True):
        _METHODS["copy_"](x, source)
    return self


def _zero(self: Any) -> Any:
    for x in _checked("_foreach_zero_", self):
        _METHODS["zero_"](x)
    return self


def _norm(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    """The norm of each tensor, all of its elements as one vector."""
    return tuple([vector_norm(x, ord, dtype=dtype) for x in _checked("_foreach_norm", self)])


def _clone(self: Any) -> Any:
    return tuple([x.clone() for x in _checked("_foreach_clone", self)])


def _max(self: Any) -> Any:
    return tuple([x.max() for x in _checked("_foreach_max", self)])


def _mm(self: Any, mat2: Any) -> Any:
    return tuple([FUNCTIONS["mm"](x, y) for x, y in zip(_checked("_foreach_mm", self), mat2, strict=True)])


for _operation in _UNARY.split():
    _unary(_operation)
for _operation in _BINARY:
    _binary(_operation)
for _operation in ("addcdiv", "addcmul"):
    _ternary(_operation)
_register("_foreach_lerp", _lerp, _lerp_in_place)
_register("_foreach_copy_", _copy)
_register("_foreach_zero_", _zero)
_register("_foreach_norm", _norm)
_register("_foreach_clone", _clone)
_register("_foreach_max", _max)
_register("_foreach_mm", _mm)
