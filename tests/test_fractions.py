"""Values of a class written in Python need no model: a `fractions.Fraction` is followed, and its parts are numbers like others."""

import copy
import math
import numbers
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import tracejit

x = tracejit.tensor([1.0, 2.0, 3.0])
SAMPLES = [Fraction(n, d) for n, d in ((1, 2), (1, 3), (-7, 5), (0, 1), (5, 1), (2**80, 3), (-3, 2**70), (1, 7))]
EXPRESSIONS = (
    "float(f) * x", "float(f * 2 + 1) * x", "f + other", "f - other", "f * other", "f / (other or 1)", "f // (other or 1)",
    "f % (other or 1)", "f ** 2", "abs(f)", "-f", "round(f)", "int(f)", "math.floor(f)", "math.ceil(f)", "str(f)", "repr(f)", "f'{f}'",
    "hash(f)", "bool(f)", "f == other", "f < other", "f == n", "n < f", "f * n", "n - f", "n * 0.5 + f", "f.numerator * x",
    "f.limit_denominator(7)", "Fraction(n, 7)", "Fraction(f)", "max(f, other)", "sorted([f, other])", "sum([f, other])",
    "f.as_integer_ratio()", "copy.deepcopy(f)", "f in (other, n)", "isinstance(f, numbers.Rational)", "x.sum().item() * f",
    "Fraction(x.sum().item()) + f",
)  # fmt: skip
NAMES = {"Fraction": Fraction, "math": math, "numbers": numbers, "copy": copy}


def function(expression: str) -> Callable[..., Any]:
    names: dict[str, Any] = dict(NAMES)
    source = f"def fn(x, f, other, n):\n    return {expression}\n"
    exec(source, names)
    names["source"] = source
    return names["fn"]  # type: ignore[no-any-return]


def shown(value: Any) -> str:
    return repr((type(value), value))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_compiled_calls_give_what_eager_ones_give(expression: str) -> None:
    fn = function(expression)
    compiled = tracejit.compile(fn, source=fn.__globals__["source"])
    for i, f in enumerate(SAMPLES + SAMPLES[::-1]):
        arguments = x, f, SAMPLES[i * 3 % len(SAMPLES)], i
        assert shown(compiled(*arguments)) == shown(fn(*arguments))
    assert compiled.stats.compiled_calls


@pytest.mark.parametrize(
    "expression",
    ["x * float(f)", "f.numerator * x", "-f", "f ** 2", "int(f * f) * x", "f * 2", "n * f", "f + n", "Fraction(n, 7)"],
)
def test_fractions_that_differ_share_a_recording(expression: str) -> None:
    fn = function(expression)
    compiled = tracejit.compile(fn, source=fn.__globals__["source"])
    for i in range(8):
        arguments = x, Fraction(2 * i + 1, 3**i if i % 2 else 3), Fraction(1), 7 * i + 1
        assert shown(compiled(*arguments)) == shown(fn(*arguments))
    assert compiled.stats.traces <= 2, compiled.explain()


def test_numbers_stay_numbers_in_methods_of_the_program() -> None:
    class Length:
        def __init__(self, metres: Any) -> None:
            self.metres = metres

        def __add__(self, other: Any) -> Any:
            return self.metres + other

        def __rsub__(self, other: Any) -> Any:
            return other - self.metres

        def __eq__(self, other: object) -> bool:
            return bool(self.metres == other)

        def __float__(self) -> Any:
            return self.metres

    def fn(x: Any, n: Any) -> Any:
        length = Length(n * 0.5)
        return x * (length + n), x * (n - length), x * float(length), length == -1, length != n

    compiled = tracejit.compile(fn)
    for n in range(1, 9):
        assert shown(compiled(x, n)) == shown(fn(x, n))
    assert compiled.stats.traces == 1


@pytest.mark.parametrize("expression", ["n + length", "length * n", "n < length"])
def test_operators_that_no_method_knows_raise_what_eager_raises(expression: str) -> None:
    fn = function(expression.replace("length", "f"))
    compiled = tracejit.compile(fn, source=fn.__globals__["source"])
    for n in range(4):
        with pytest.raises(TypeError) as expected:
            fn(x, object, None, n)
        with pytest.raises(TypeError) as actual:
            compiled(x, object, None, n)
        assert str(actual.value) == str(expected.value)
