"""Python's arithmetic on post-program numbers, as operations of the program: for numbers that decide something or that tensors
are computed with.

The results have Python's bits: the same operations in the same order.  Powers and the functions of `math` are those of the C
library that Python calls.  A result of None says that the program cannot compute the number.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
from functools import partial
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise, is_symbolic
from tracejit.core.array_constant import ArrayConstant
from tracejit.core.dtypes import FROM_NUMPY, float64, int64
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import REGISTRY
from tracejit.math import libm
from tracejit.replay.ir import And, Not
from tracejit.tensor import Tensor

__all__ = ["CHOOSING", "SHORT", "TO_INTEGERS", "WORD", "InProgramHandlers"]

_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_OF_INTEGERS = {
    **_OPERATIONS, "//": "floor_divide", "%": "remainder", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor",
    "<<": "bitwise_left_shift", ">>": "bitwise_right_shift",
}  # fmt: skip
WORD = 62
"""The program computes integers of at most so many bits, and a sign, without overflow."""
SHORT = 31
"""The product of two integers of at most so many bits has at most WORD bits."""
CHOOSING = (builtins.min, builtins.max)
_MOST = 64
"""The program computes sums of at most so many numbers."""
_CARRIES = sys.version_info >= (3, 12)
"""Whether `sum` of floats carries the rounding errors along (compensated summation)."""
TO_INTEGERS: dict[Any, str] = {
    builtins.int: "trunc", math.trunc: "trunc", math.floor: "floor", math.ceil: "ceil", builtins.round: "rint",
}  # fmt: skip
"""Function that converts a float to an integer -> the operation that rounds in the same way."""
_OF_NUMPY: dict[Any, str] = {
    np.sqrt: "sqrt", np.absolute: "abs", np.fabs: "abs", np.negative: "neg", builtins.abs: "abs", operator.neg: "neg",
    np.isnan: "isnan", np.isfinite: "isfinite", np.isinf: "isinf",
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div", operator.add: "add", operator.sub: "sub",
    operator.mul: "mul", operator.truediv: "div", operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge",
    operator.eq: "eq", operator.ne: "ne",
}  # fmt: skip
"""Function of NumPy or Python -> the operation that gives the same bits in float64."""
_HASHED: tuple[type, ...] = (np.ufunc, BuiltinFunctionType)
"""Types of the keys of `_OF_NUMPY`.  Functions of other types need not be hashable."""
_OF_C: dict[Any, str] = {
    getattr(math, name): name
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "asinh", "erf", "erfc", "cbrt",
    )
    if hasattr(math, name)
}  # fmt: skip
"""Function of `math` -> its name in the C library."""
_TRIED: tuple[list[tuple[float, ...]], ...] = (
    [(k / 97,) for k in range(1, 97)], [(k / 7, j / 11 - 3) for k in range(1, 40) for j in range(1, 60, 7)],
)  # fmt: skip
"""Arguments for which the C library is compared with `math`: of functions, and of powers."""
_UNARY = {builtins.abs: "abs", math.fabs: "abs", operator.neg: "neg"}


class InProgramHandlers(Handlers):
    """Computes post-program numbers as tensors of the program."""

    def element_in_program(self, tensor: Tensor, index: int) -> Tensor:
        """The element of a tensor at `index` in memory order."""
        flat = self.recorder.interpreter.bind(REGISTRY["reshape"], (tensor,), {"shape": (tensor._array.size,)})
        element: Tensor = self.recorder.interpreter.bind(REGISTRY["select"], (flat, index), {"dim": 0})
        return element

    def elements_as_tensor(self, numbers: list[Any]) -> Tensor | None:
        """A tensor float64 or int64 of numbers that are all elements of one tensor's `tolist()`; None for others."""
        elements = [number._post_program.tensor_element if is_post_program(number) else None for number in numbers]
        if (
            not elements
            or elements[0] is None
            or any(element is None or element[0] is not elements[0][0] for element in elements)
        ):
            return None
        source, bind = elements[0][0], self.recorder.interpreter.bind
        at = [element[1] for element in elements if element is not None]
        flat = bind(REGISTRY["reshape"], (source,), {"shape": (source._array.size,)})
        if at == list(range(at[0], at[0] + len(at))):
            part = bind(REGISTRY["slice"], (flat,), {"dim": 0, "start": at[0], "stop": at[0] + len(at), "step": 1})
            return bind(REGISTRY["clone"], (part,), {})  # type: ignore[no-any-return]
        index = bind(REGISTRY["constant"], (), {"array": ArrayConstant(np.array(at, np.int64))})
        return bind(REGISTRY["index_select"], (flat, index), {"dim": 0})  # type: ignore[no-any-return]

    def item_in_program(self, items: tuple[Any, ...], position: SymbolicNumber) -> Any:
        """items[position]; None if an item is no float or int of at most WORD bits, or the program does not have `position`."""
        index = self._operand(position)
        if index is None or type(items[0]) is str or any(type(v) is int and v.bit_length() > WORD for v in items):
            return None
        bind, ops = self.recorder.interpreter.bind, REGISTRY
        numbers = np.asarray(items, np.float64 if type(items[0]) is float else np.int64)
        table = bind(ops["constant"], (), {"array": ArrayConstant(numbers)})
        index = bind(ops["reshape"], (index,), {"shape": (1,)})
        if position._value < 0:
            index = bind(ops["add"], (index, len(items)), {})
        item = bind(ops["index_select"], (table, index), {"dim": 0})
        return bind(ops["reshape"], (item,), {"shape": ()})

    def comparable(self, left: Any, right: Any) -> tuple[Any, Any] | None:
        """Operands whose comparison in the program has the outcome of `left` compared with `right` in Python, which compares the
        exact values; None if there are none."""
        kinds = _kind(left), _kind(right)
        if kinds[0] is kinds[1] is float or kinds[0] is kinds[1] is int:
            a, b = self._operand(left), self._operand(right)
            if any(type(x) is int and x.bit_length() > 63 for x in (a, b)):
                return None
        elif is_post_program(left) and (like := _as_like(left, right)) is not None:
            a, b = self._operand(left), like
        elif is_post_program(right) and (like := _as_like(right, left)) is not None:
            a, b = like, self._operand(right)
        elif {*kinds} == {int, float} and all(type(plain(x)) is float or self._is_short(x) for x in (left, right)):
            a, b = self._operand(left), self._operand(right)
            if a is not None and b is not None:
                a, b = self._as_float(a), self._as_float(b)
        else:
            return None
        return None if a is None or b is None else (a, b)

    def _operand(self, number: Any) -> Any:
        """The tensor of a post-program number, int64 for a bool of NumPy, or None; any other number unchanged."""
        if not is_post_program(number):
            return number
        tensor = number._post_program.program_tensor()
        is_truth = tensor is not None and type(number._value) is np.bool_
        return self.recorder.interpreter.bind(REGISTRY["cast"], (tensor,), {"dtype": int64}) if is_truth else tensor

    def arithmetic_in_program(self, symbol: str, left: Any, right: Any, value: Any, bits: int) -> Any:
        """left <symbol> right.  value: the result in this run.  bits: the most bits that it can have."""
        a, b = self._operand(left), self._operand(right)
        operations = _OF_INTEGERS if type(value) is int else _OPERATIONS
        if symbol not in operations or a is None or b is None or (symbol in ("<<", ">>") and plain(right) > SHORT):
            return None
        if type(value) is int:
            fits = symbol != "/" and (bits <= WORD or (self._is_short(left) and self._is_short(right)))
            return self._computed(operations[symbol], a, b) if fits else None
        return self._computed(_OPERATIONS[symbol], self._as_float(a), self._as_float(b))

    def _is_short(self, number: Any) -> bool:
        """Whether a number has at most SHORT bits, as positions and counts do.  If so, that is guarded."""
        if not isinstance(plain(number), int) or plain(number).bit_length() > SHORT:
            return False
        if is_post_program(number) and number._post_program.max_bits > SHORT:
            self.recorder.extracted_numbers.guard_comparison(">", number, -(2**SHORT), True)
            self.recorder.extracted_numbers.guard_comparison("<", number, 2**SHORT, True)
            number._post_program.max_bits = SHORT
        elif is_symbolic(number) and not is_post_program(number):
            name = number._name
            self.recorder.miss_if(Not(And((name.compared(">", -(2**SHORT)), name.compared("<", 2**SHORT)))))
        return True

    def power_in_program(self, left: Any, right: Any, value: Any) -> Any:
        """left ** right of floats."""
        a, b = self._operand(left), self._operand(right)
        if a is None or b is None or type(value) is not float:
            is_square = type(value) is int and not is_symbolic(right) and right == 2 and isinstance(a, Tensor)
            return self._computed("mul", a, a) if is_square and self._is_short(left) else None
        a = self._as_float(a)
        if not is_symbolic(right) and right == 2:
            return self._computed("mul", a, a)
        if not is_symbolic(right) and right == 0.5:
            return self._computed("sqrt", a)
        return self._c_function("pow", a, self._as_float(b))

    def total_in_program(self, numbers: list[Any], bits: int) -> Any:
        """sum(numbers[1:], numbers[0]) of ints, or of floats in Python's order, compensated from Python 3.12 on."""
        start, *rest = numbers
        operands = list(map(self._operand, rest))
        kinds = {type(plain(number)) for number in rest}
        if (
            len(kinds) != 1
            or type(start) is not int
            or start
            or len(rest) > _MOST
            or any(operand is None for operand in operands)
        ):
            return None
        if kinds == {int}:
            return None if bits > WORD else functools.reduce(partial(self._computed, "add"), operands)
        first = operands[0]
        if not isinstance(first, Tensor):  # two numbers would be added in the default dtype
            first = self.recorder.interpreter.bind(REGISTRY["full"], (first,), {"shape": (), "dtype": float64})
        total, error = self._computed("add", self._as_float(first), 0.0), None
        for x in operands[1:]:
            before, total = total, self._computed("add", total, x)
            if _CARRIES:
                larger = self._computed("ge", self._computed("abs", before), self._magnitude(x))
                lost = [self._computed("add", self._computed("sub", a, total), b) for a, b in ((before, x), (x, before))]
                lost_here = self._computed("where", larger, *lost)
                error = lost_here if error is None else self._computed("add", error, lost_here)
        if error is None:
            return total
        counts = self._computed("isfinite", error)
        return self._computed("where", counts, self._computed("add", total, error), total)

    def _magnitude(self, number: Any) -> Any:
        return self._computed("abs", number) if isinstance(number, Tensor) else abs(number)

    def function_in_program(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """function(*arguments): a function of one number, or min or max of floats or of ints."""
        if len(arguments) == 1:
            return self._conversion(function, arguments[0])
        operands = list(map(self._operand, arguments))
        if function not in CHOOSING or any(operand is None for operand in operands):
            return None
        kinds = {type(plain(number)) for number in arguments}
        if kinds != {float} and (kinds != {int} or any(plain(x).bit_length() > WORD for x in arguments)):
            return None
        best, symbol = operands[0], "lt" if function is builtins.min else "gt"
        for operand in operands[1:]:  # of equal operands the first is the result, as in Python
            if isinstance(operand, Tensor) or isinstance(best, Tensor):
                best = self._computed("where", self._computed(symbol, operand, best), operand, best)
            elif is_symbolic(operand) or is_symbolic(best):
                return None
            else:
                best = function(best, operand)
        return best

    def numpy_in_program(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """A function or operator of NumPy or Python on numbers with which NumPy computes in float64."""
        name = _OF_NUMPY.get(function) if type(function) in _HASHED else None
        if name is None or not all(map(_is_double, arguments)):
            return None
        operands = [self._as_float(self._operand(number)) for number in arguments]
        return None if any(operand is None for operand in operands) else self._computed(name, *operands)

    def _conversion(self, function: Any, number: Any) -> Any:
        tensor = self._operand(number)
        if tensor is None or not isinstance(tensor, Tensor):
            return None
        if function in _UNARY and (type(plain(number)) is float or self._is_short(number)):
            return self._computed(_UNARY[function], tensor)
        if function is math.sqrt:
            return self._computed("sqrt", self._as_float(tensor))
        if function in _OF_C:
            return self._c_function(_OF_C[function], self._as_float(tensor))
        if function in TO_INTEGERS and type(plain(number)) is int:
            return tensor
        if function in TO_INTEGERS and number._post_program is not None and type(plain(number)) is float:
            if abs(plain(number)) >= 2.0**WORD:
                return None
            whole = self._computed(TO_INTEGERS[function], tensor)
            return self.recorder.interpreter.bind(REGISTRY["cast"], (whole,), {"dtype": int64})
        return self._as_float(tensor) if function is builtins.float else None

    def _c_function(self, name: str, *operands: Any) -> Any:
        """The function of the C library; None if a test does not show that Python's function has the same results."""
        if not self.recorder.unwatched(lambda: _is_of_c(name)):
            return None
        tensors = [
            x
            if isinstance(x, Tensor)
            else self.recorder.interpreter.bind(REGISTRY["full"], (x,), {"shape": (), "dtype": float64})
            for x in operands
        ]
        return self.recorder.interpreter.bind(REGISTRY["c_function"], tuple(tensors), {"name": name})

    def _as_float(self, x: Any) -> Any:
        """`x` as a float: rounded once, as Python converts ints in arithmetic with floats."""
        if isinstance(x, Tensor):
            return (
                x
                if FROM_NUMPY[x._array.dtype] is float64
                else self.recorder.interpreter.bind(REGISTRY["cast"], (x,), {"dtype": float64})
            )
        return float(x) if type(x) is int else x

    def _computed(self, name: str, *operands: Any) -> Any:
        return self.recorder.interpreter.bind(REGISTRY[name], operands, {})

    def as_operand(self, number: Any, dtype: Any) -> Any:
        """A post-program number as a 0-d tensor of a floating-point dtype, rounded as NumPy rounds Python's numbers, and marked as
        one that the tape does not save.  If the program cannot compute it: its value, guarded."""
        tensor = number._post_program.program_tensor()
        if tensor is None:
            return concretise(number)
        tensor, bind = self._as_float(tensor), self.recorder.interpreter.bind
        if tensor._array.ndim:
            tensor = bind(REGISTRY["reshape"], (tensor,), {"shape": ()})
        return bind(REGISTRY["extracted_number"], (tensor,), {"dtype": dtype})

    def is_position(self, number: Any) -> bool:
        """Whether a post-program number is an int that the program can compute."""
        return type(number._value) is int and number._post_program.program_tensor() is not None

    def as_position(self, number: Any) -> Tensor:
        """A number for which `is_position` holds, as a 0-d tensor int64."""
        tensor = number._post_program.program_tensor()
        return (
            tensor if tensor._array.ndim == 0 else self.recorder.interpreter.bind(REGISTRY["reshape"], (tensor,), {"shape": ()})
        )  # type: ignore[no-any-return]


@functools.cache
def _is_of_c(name: str) -> bool:
    """Whether Python's function of this name has the same results as the C library's for the arguments in `_TRIED`."""
    compute = getattr(math, name)
    try:
        return all(libm.call(name, *map(np.float64, args)) == compute(*args) for args in _TRIED[name == "pow"])
    except (ValueError, AttributeError, OSError) as error:  # the library or the function is missing
        if is_foreign(error):
            raise
        return False


def _kind(number: Any) -> type:
    """The Python type as which a number is compared: a float64 of NumPy as a float, a bool of NumPy as an int."""
    value = plain(number)
    return float if type(value) is np.float64 else int if type(value) is np.bool_ else type(value)


def _is_double(number: Any) -> bool:
    """Whether NumPy computes with a number in float64 exactly: a float, or an int that a float can hold."""
    value = plain(number)
    return isinstance(value, float) or (type(number) is int and abs(number) <= 2**53)


def _as_like(number: Any, other: Any) -> Any:
    """`other` converted to the type of the post-program number `number`, so that the program can compare them; None if the
    conversion is not exact."""
    if _kind(number) is float:
        return float(other) if type(other) is int and abs(other) <= 2**53 else None
    return int(other) if type(other) is float and other == other and abs(other) < 2.0**62 and other == int(other) else None
