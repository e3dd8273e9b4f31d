"""The Builder's functions of floats: the elementary ones, which mathlib defines, and those left to the C library.

Part of the Builder (`codegen/expr.py`), apart only for its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracejit.codegen.expr import Expr
    from tracejit.core.dtypes import DType

__all__ = ["ELEMENTARY", "LIBM_UNARY", "Functions"]

# Functions that mathlib defines in terms of the other operations (vectorised, within 2.5 ulp).
ELEMENTARY: Final = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "pow")
# Functions of one argument that are left to the C library, one lane at a time.
LIBM_UNARY: Final = ("tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erfc", "lgamma", "tgamma", "cbrt")


class Functions:
    """Builder methods of functions.  All take floats of one dtype (pow integers too) and raise TypeError otherwise."""

    __slots__ = ()

    def _apply(
        self, operation: str, operands: tuple[Any, ...], allowed: str, result: DType | None = None, attribute: str | None = None
    ) -> Expr:
        raise NotImplementedError(type(self).__name__)

    def _where(self, condition: Expr, name: str, x: Expr, usual: Expr) -> Expr:
        raise NotImplementedError(type(self).__name__)

    def div(self, x: Any, y: Any) -> Expr:
        raise NotImplementedError(type(self).__name__)

    def sqrt(self, x: Expr) -> Expr:
        raise NotImplementedError(type(self).__name__)

    def exp(self, x: Expr) -> Expr:
        return self._apply("exp", (x,), "f")

    def exp2(self, x: Expr) -> Expr:
        return self._apply("exp2", (x,), "f")

    def expm1(self, x: Expr) -> Expr:
        return self._apply("expm1", (x,), "f")

    def log(self, x: Expr) -> Expr:
        return self._apply("log", (x,), "f")

    def log2(self, x: Expr) -> Expr:
        return self._apply("log2", (x,), "f")

    def log10(self, x: Expr) -> Expr:
        return self._apply("log10", (x,), "f")

    def log1p(self, x: Expr) -> Expr:
        return self._apply("log1p", (x,), "f")

    def sin(self, x: Expr) -> Expr:
        return self._apply("sin", (x,), "f")

    def cos(self, x: Expr) -> Expr:
        return self._apply("cos", (x,), "f")

    def tanh(self, x: Expr) -> Expr:
        return self._apply("tanh", (x,), "f")

    def sigmoid(self, x: Expr) -> Expr:
        """1 / (1 + exp(-x))."""
        return self._apply("sigmoid", (x,), "f")

    def erf(self, x: Expr) -> Expr:
        return self._apply("erf", (x,), "f")

    def pow(self, x: Any, y: Any) -> Expr:
        """x ** y.  Integers wrap; a negative integer exponent gives the integer part of the quotient (0 for |x| > 1, and for x = 0)."""
        return self._apply("pow", (x, y), "if")

    def rsqrt(self, x: Expr) -> Expr:
        """1 / sqrt(x), two roundings."""
        return self.div(1.0, self.sqrt(x))

    def libm(self, name: str, *operands: Any) -> Expr:
        """A function of the C library, one lane at a time: for the rare ones."""
        return self._apply("libm", operands, "f", attribute=name)

    def libm_where(self, condition: Expr, name: str, x: Expr, usual: Expr) -> Expr:
        """select(condition, libm(name, x), usual), the function being called only where some lane needs it."""
        return self._where(condition, name, x, usual)

    def tan(self, x: Expr) -> Expr:
        return self.libm("tan", x)

    def sinh(self, x: Expr) -> Expr:
        return self.libm("sinh", x)

    def cosh(self, x: Expr) -> Expr:
        return self.libm("cosh", x)

    def asin(self, x: Expr) -> Expr:
        return self.libm("asin", x)

    def acos(self, x: Expr) -> Expr:
        return self.libm("acos", x)

    def atan(self, x: Expr) -> Expr:
        return self.libm("atan", x)

    def asinh(self, x: Expr) -> Expr:
        return self.libm("asinh", x)

    def acosh(self, x: Expr) -> Expr:
        return self.libm("acosh", x)

    def atanh(self, x: Expr) -> Expr:
        return self.libm("atanh", x)

    def atan2(self, x: Any, y: Any) -> Expr:
        return self.libm("atan2", x, y)
