"""NumPy's universal functions of tensors: `numpy.exp(t)`, `array * t` and `numpy.float64(2) * t` are operations of the library.

NumPy asks the operand that defines `__array_ufunc__`.  So where one is a tensor the result is a tensor, with its position on the tape, and
arrays among the operands are copied into tensors, as tensor() does.  What has no counterpart here is computed by NumPy, and only
where no gradient would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core.dtypes import promote_types
from tracejit.core.interpreter import state
from tracejit.core.numbers import plain_number
from tracejit.ops.public import FUNCTIONS
from tracejit.tensor.base import Tensor
from tracejit.tensor.construction import tensor

__all__ = ["applied", "array_ufunc", "array_wrap"]

_RENAMED = {
    "equal": "eq", "fabs": "abs", "float_power": "pow", "power": "pow", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "rint": "round", "mod": "remainder",
    "radians": "deg2rad", "degrees": "rad2deg",
}  # fmt: skip


_functions: dict[str, Callable[..., Any] | None] = {}


def _function(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The public function that does what `ufunc` does; None if there is none."""
    name = ufunc.__name__
    if name not in _functions:
        own = getattr(np, name, None) is ufunc or name in ("divide", "matmul")
        _functions[name] = FUNCTIONS.get(_RENAMED.get(name, name)) if own else None
    return _functions[name]


def applied(function: Callable[..., Any], *operands: Any) -> Any:
    """`function` of operands with tensors in the place of arrays; a product's are brought to one dtype, as NumPy does."""
    tensors = [tensor(x) if isinstance(x, np.ndarray) else x for x in operands]
    if function is FUNCTIONS["matmul"] and all(isinstance(x, Tensor) for x in tensors):
        dtype = promote_types(*[x.dtype for x in tensors])
        tensors = [x.to(dtype) for x in tensors]
    return function(*tensors)


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
    """What NumPy calls for `ufunc` of operands among which there is a tensor."""
    function = _function(ufunc) if method == "__call__" and not keywords else None
    if function is None:
        return _computed_by_numpy(ufunc, method, inputs, keywords)
    if not all(isinstance(x, Tensor | np.ndarray) or plain_number(x) is not None for x in inputs):
        return NotImplemented
    return applied(function, *inputs)


def _computed_by_numpy(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What NumPy makes of the arrays: tensors again, or `out=`.  Raises RuntimeError where a gradient is wanted."""
    outs = keywords.pop("out", ())
    for x in (*inputs, *outs):
        if isinstance(x, Tensor) and x.requires_grad and state.grad_enabled:
            raise RuntimeError(
                f"numpy.{ufunc.__name__}(): this form of it knows no gradients, and a tensor among its operands requires grad; "
                "use detach(), or a function of tracejit"
            )
    if outs:
        keywords["out"] = tuple([x.detach().numpy() if isinstance(x, Tensor) else x for x in outs])
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in inputs]
    result = getattr(ufunc, method)(*arrays, **keywords)
    if outs:
        return outs[0] if len(outs) == 1 else outs
    if isinstance(result, tuple):
        return tuple(map(_tensor, result))
    return _tensor(result)


def _tensor(result: Any) -> Any:
    return tensor(result) if isinstance(result, np.ndarray | np.generic) else result


def array_wrap(self: Tensor, array: np.ndarray[Any, Any], context: Any = None, return_scalar: bool = False) -> Any:
    """What functions of NumPy's that take a tensor for an array make of their result: a tensor again."""
    return _tensor(array)
