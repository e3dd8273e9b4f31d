"""Python's operators on values without contents: each is the primitive of that name, bound by the interpreter of the value.

Must not know: which interpreters there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.core.dtypes import DType, bool_
from tracejit.core.interpreter import Abstract
from tracejit.core.op import REGISTRY

__all__ = ["AbstractOperand"]


def _binary(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    def forward(self: Any, other: Any) -> Any:
        return self.interpreter.bind(REGISTRY[name], (self, other), {})

    def reflected(self: Any, other: Any) -> Any:
        return self.interpreter.bind(REGISTRY[name], (other, self), {})

    return forward, reflected


class AbstractOperand(Abstract):
    """A value with operators, a `shape` and a `dtype`."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy arrays leave binary operators to the methods below

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError(type(self).__name__)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """As of tensors (tensor/base.py)."""
        return self.shape

    @property
    def dtype(self) -> DType:
        raise NotImplementedError(type(self).__name__)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth value of {self!r} is not known while a graph is being built; select with where() instead of branching"
        )

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")
    __pow__, __rpow__ = _binary("pow")
    __matmul__, __rmatmul__ = _binary("matmul")
    __lt__ = _binary("lt")[0]
    __le__ = _binary("le")[0]
    __gt__ = _binary("gt")[0]
    __ge__ = _binary("ge")[0]
    __eq__ = _binary("eq")[0]
    __ne__ = _binary("ne")[0]
    __hash__ = object.__hash__

    def _logic(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Truth values have logical operators, integers bitwise ones; of two operands, a bool beside an integer is promoted."""
        bits = any(isinstance(x, AbstractOperand) and x.dtype is not bool_ for x in operands) or any(
            type(x) is int for x in operands
        )
        return self.interpreter.bind(REGISTRY[("bitwise_" if bits else "logical_") + name], operands, {})

    def __and__(self, other: Any) -> Any:
        return self._logic("and", (self, other))

    def __rand__(self, other: Any) -> Any:
        return self._logic("and", (other, self))

    def __or__(self, other: Any) -> Any:
        return self._logic("or", (self, other))

    def __ror__(self, other: Any) -> Any:
        return self._logic("or", (other, self))

    def __xor__(self, other: Any) -> Any:
        return self._logic("xor", (self, other))

    def __rxor__(self, other: Any) -> Any:
        return self._logic("xor", (other, self))

    def __neg__(self) -> Any:
        return self.interpreter.bind(REGISTRY["neg"], (self,), {})

    def __invert__(self) -> Any:
        return self._logic("not", (self,))
