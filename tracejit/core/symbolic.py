"""Symbolic sizes: integers that remember how they were computed from the sizes of arguments.

A `SymInt` has a value in this run and an expression over variables.  There is a variable for each dimension of an argument that
may have another size in another call.  Arithmetic with a SymInt gives another one (`SymFloat` for quotients).  A comparison gives
a plain bool and notes the relation in the `ShapeEnv`.  Whoever needs the number itself calls `concretise`, which notes that the
expression has this value. So what was computed under an environment holds for all values of the variables for which its relations
hold.  PyTorch's ShapeEnv (torch.fx.experimental.symbolic_shapes) is the same idea.

A symbolic number is no int and no float (core/recorded_number.py).  C code that needs one (NumPy, `range`, a list's index) calls
`__index__` or `__float__`, and these concretise: nothing takes the number out of it without a note.  The evaluation of arrays
needs numbers and decides nothing by them: it runs while the environment is paused.  Code of the library that needs a number and
decides nothing by it calls `without_symbols`.

A dictionary or set that finds an equal number notes that; one that finds none notes nothing.  So a table with sizes as keys must
be a cache: its user gives the same result where an equal key is not found.

Notes are taken in the thread that has entered the environment, while it is not paused; elsewhere a symbolic number behaves as the
plain one.  This module knows no tensors; a recorder enters in `shape_of` and `strides_of` what gives their symbolic shapes and
strides."""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from tracejit.core.recorded_number import ARITHMETIC, COMPARISONS, RecordedNumber, with_operators

__all__ = [
    "BINARY",
    "LARGEST",
    "SYMBOLIC",
    "ShapeEnv",
    "SymFloat",
    "SymInt",
    "active",
    "by_origin",
    "cached",
    "called",
    "concretise_sizes",
    "has_symbols",
    "python_type",
    "shape_of",
    "strides_of",
    "text_of",
    "without_symbols",
]

P = ParamSpec("P")
R = TypeVar("R")

BINARY: dict[str, Callable[[Any, Any], Any]] = {symbol: ARITHMETIC[symbol] for symbol in ("+", "-", "*", "/", "//", "%", "**")}
"""The operators of numbers that are expressions of sizes."""
_UNARY: dict[str, Callable[[Any], Any]] = {"-x": operator.neg, "abs": abs}
_ROUNDING: dict[str, Callable[[Any], Any]] = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}
_EXTREMES: dict[str, Callable[..., Any]] = {"max": max, "min": min}
_OPPOSITE: Final = {"==": "!=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MATHEMATICAL: dict[str, Callable[[Any], Any]] = {"sqrt": math.sqrt, "log1p": math.log1p}
_FUNCTIONS: dict[str, Callable[..., Any]] = {**BINARY, **_UNARY, **_ROUNDING, **_EXTREMES, **_MATHEMATICAL, "float": float}
_SMALLEST: Final = 2
"""The smallest size of a variable: 0 and 1 mean something else (an empty tensor, a dimension that broadcasts)."""
LARGEST: Final = 1 << 40
"""The largest size of a variable."""
_IN_A_ROW: Final = 16
"""The most terms of a sum that is written as `a + b + ...`; CPython's compiler nests each operand in the next one."""
_DEEPEST: Final = 2
"""The most `max` and `min` in one difference of which bounds are computed."""

shape_of: list[Callable[[Any], Any]] = []
"""While an environment is entered: what gives the symbolic shape of a tensor, or None for one that has none."""
strides_of: list[Callable[..., Any]] = []
"""While an environment is entered: what gives the symbolic strides of a tensor, in elements.  With `False` as a second argument,
only strides that matter for some element, and None for a tensor that is row-major for all sizes."""


Polynomial = tuple[tuple[tuple[int, ...], int], ...]
"""Sorted (monomial, coefficient) pairs; a monomial is the sorted numbers of its factors."""


_exist: Final = [False]
"""Whether there was an environment in this process: until then there are no symbolic numbers to look for."""


class ShapeEnv:
    """Expressions of symbolic sizes, and the relations between them that a run relied on.

    An expression is known by its number: `expressions[i]` is ("size", k) for variable k, ("constant", type, bits, value),
    ("polynomial", p) for sums and products of integers, in one normal form, or (operation, *numbers of its operands).  relations:
    (comparison, number, number, outcome) -> the line of the program that compared (`locate`); a relation that holds for all sizes
    from 2 on is left out.  names: of the variables, for a reader.  problem: why nothing of this holds for other sizes; empty
    where it does.  is_guarded: whether the call is guarded by all variables (it may never look at some of the tensors)."""

    def __init__(self) -> None:
        _exist[0] = True
        self.expressions: list[tuple[Any, ...]] = []
        self.relations: dict[tuple[str, int, int, bool], str] = {}
        self.locate: Callable[[], str] = str
        self.names: list[str] = []
        self.problem = ""
        self.is_guarded = True
        self.variables = 0
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._known_bounds: dict[Polynomial, tuple[int | None, int | None]] = {}
        self._instead: dict[int, Polynomial] = {}  # a variable -> what a relation says that it equals
        self._evaluates: tuple[tuple[int, int], Callable[[Sequence[int]], list[Any] | None]] = (0, 0), lambda sizes: []
        self._evaluated: tuple[tuple[Any, ...], list[Any] | None] = (), None  # the last question of `evaluated`, and its answer
        self._thread: int | None = None
        self._paused = 0

    # -- where notes are taken
    def __enter__(self) -> ShapeEnv:
        self._thread = threading.get_ident()
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread = None

    @property
    def is_noting(self) -> bool:
        """Whether what is done now is noted."""
        return not self._paused and self._thread == threading.get_ident()

    def pause(self) -> None:
        """Take no notes until `resume` is called as often as this was."""
        self._paused += 1

    def resume(self) -> None:
        self._paused -= 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take no notes while it is entered."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    # -- numbers
    def size(self, hint: int, name: str = "") -> SymInt:
        """A new variable, with this value in this run.  Callers make none for sizes of 0 and 1."""
        number = self._number(("size", self.variables))
        self.variables += 1
        self.names.append(name)
        return SymInt(hint, self, number)

    def _number(self, expression: tuple[Any, ...]) -> int:
        known = self._numbers.get(expression)
        if known is None:
            known = self._numbers[expression] = len(self.expressions)
            self.expressions.append(expression)
        return known

    def number_of(self, value: Any) -> int:
        """The expression of an operand: of a symbolic number of this environment, or of a plain one, by its type and bits."""
        if type(value) in SYMBOLIC and value.env is self:
            return value.number
        plain = without_symbols(value)
        return self._number(("constant", type(plain).__name__, plain.hex() if isinstance(plain, float) else plain, plain))

    def compute(self, name: str, *operands: Any) -> Any:
        """The result of an operation.  Raises what Python raises; the operands are concretised then, since they decide that."""
        try:
            result = _FUNCTIONS[name](*map(without_symbols, operands))
        except (ArithmeticError, ValueError):
            for operand in operands:
                self.concretise(operand)
            raise
        if name == "**" and type(result) in (int, float):  # of integers it is one or the other
            self.compare(">=", operands[1], 0)
            self.compare(">=", operands[0], 0)
        if name == "abs" and type(result) is int:
            return operands[0] if self.compare(">=", operands[0], 0) else self.compute("-x", operands[0])
        if name in _ROUNDING and isinstance(operands[0], int):
            return operands[0]
        if name in _EXTREMES:
            return self._extreme(name, result, operands)
        if name in ("//", "%") and (divided := self._divided(name, *operands)) is not None:
            return divided
        if type(result) is int:
            sum_or_product = self._combined(name, *operands)
            if sum_or_product is None:
                return SymInt(result, self, self._number((name, *map(self.number_of, operands))))
            if len(sum_or_product) <= 1 and not (sum_or_product and sum_or_product[0][0]):
                return result
            return SymInt(result, self, self._of_polynomial(sum_or_product))
        if type(result) is float:
            return SymFloat(result, self, self._number((name, *map(self.number_of, operands))))
        for operand in operands:
            self.concretise(operand)
        return result

    def compare(self, name: str, left: Any, right: Any) -> bool:
        """The outcome of a comparison."""
        outcome = COMPARISONS[name](without_symbols(left), without_symbols(right))
        difference = self._combined("-", left, right)
        difference = None if difference is None else self._in_fewer(difference)
        if difference is None or not self._is_certain(name, difference):
            self._note(name, self.number_of(left), self.number_of(right), outcome)
            if name == "==" and outcome and difference is not None:
                self._equate(difference)
        return outcome

    def _in_fewer(self, terms: Polynomial) -> Polynomial:
        """A polynomial with each variable replaced by what a relation says that it equals."""
        while self._instead:
            found = next((i for factors, _ in terms for i in factors if i in self._instead), None)
            if found is None:
                break
            terms = _replaced(terms, found, self._instead[found])
        return terms

    def _equate(self, difference: Polynomial) -> None:
        """Note what a variable equals, given that a difference is 0: of `n - 2*m - 6` that `n` is `2*m + 6`."""
        for k, (factors, coefficient) in enumerate(difference):
            others = (*difference[:k], *difference[k + 1 :])
            if (
                len(factors) == 1
                and all(x % coefficient == 0 for _, x in others)
                and self.expressions[factors[0]][0] == "size"
                and all(factors[0] not in rest for rest, _ in others)
            ):
                self._instead[factors[0]] = tuple([(rest, -x // coefficient) for rest, x in others])
                return

    def _note(self, name: str, left: int, right: int, outcome: bool) -> None:
        relation = (name, left, right, outcome)
        if relation not in self.relations:
            self.relations[relation] = self.locate()

    # -- sums and products of integers
    def _polynomial(self, value: Any) -> Polynomial | None:
        if type(value) is SymInt and value.env is self:
            expression = self.expressions[value.number]
            return expression[1] if expression[0] == "polynomial" else (((value.number,), 1),)  # type: ignore[no-any-return]
        if not isinstance(value, int):
            return None
        number = int(without_symbols(value))
        return (((), number),) if number else ()

    def _combined(self, name: str, *operands: Any) -> Polynomial | None:
        """A sum, difference, product or negation as a polynomial; None for anything else."""
        known = [self._polynomial(operand) for operand in operands]
        if name not in ("+", "-", "*", "-x") or None in known:
            return None
        first: Polynomial = known[0] or ()
        second: Polynomial = (known[1] or ()) if len(known) > 1 else ()
        if name == "*":
            return _product(first, second)
        return _sum(
            (*first, *second) if name == "+" else (*[(f, -x) for f, x in first],) if name == "-x" else _minus(first, second)
        )

    def _divided(self, name: str, left: Any, right: Any) -> Any:
        """A quotient or remainder that is known for all sizes: of a multiple of the divisor (`6*n // n`), or of a number that is
        less than any size (`1 // n`).  None for others."""
        whole, divisor = self._polynomial(left), self._polynomial(right)
        if whole is None or divisor is None:
            return None
        if whole in ((), divisor) and (self._bounds(divisor)[0] or 0) > 0:
            return 1 if whole and name == "//" else 0
        if len(divisor) != 1:
            return None
        if divisor[0][0] and (self._bounds(divisor)[0] or 0) < _SMALLEST:
            return None
        factors, coefficient = divisor[0]
        if not whole or (whole[0][0] == () and 0 < whole[0][1] < _SMALLEST and factors and coefficient > 0):
            return left if name == "%" else 0
        quotient = []
        for own, x in whole:
            rest = list(own)
            if x % coefficient or any(own.count(i) < factors.count(i) for i in factors):
                return None
            for i in factors:
                rest.remove(i)
            quotient.append((tuple(rest), x // coefficient))
        if name == "%":
            return 0
        result = without_symbols(left) // without_symbols(right)
        made = tuple(sorted(quotient, reverse=True))
        return result if made[0][0] == () else SymInt(result, self, self._of_polynomial(made))

    def _of_polynomial(self, polynomial: Polynomial) -> int:
        (factors, coefficient), *more = polynomial
        if not more and coefficient == 1 and len(factors) == 1:
            return factors[0]
        return self._number(("polynomial", polynomial))

    def _extreme(self, name: str, result: Any, operands: Sequence[Any]) -> Any:
        """The largest or the smallest of integers, without a relation that says which one it is.  Operands that are no integers
        are concretised."""
        if not all(python_type(x) is int for x in operands):
            for x in operands:
                self.concretise(x)
            return result
        numbers: set[int] = set()
        for number in map(self.number_of, operands):
            kind, *inside = self.expressions[number]
            numbers.update(inside if kind == name else (number,))
        kept = sorted(numbers)
        for i in sorted(numbers):  # one that is never alone the extreme goes
            others = [(self._terms(j), self._terms(i)) for j in kept if j != i]
            ahead = [self._bounds(_minus(a, b) if name == "max" else _minus(b, a))[0] for a, b in others]
            if any(low is not None and low >= 0 for low in ahead):
                kept.remove(i)
        if len(kept) > 1:
            return SymInt(result, self, self._number((name, *kept)))
        kind, *inside = self.expressions[kept[0]]
        return inside[-1] if kind == "constant" else SymInt(result, self, kept[0])

    def _terms(self, number: int) -> Polynomial:
        """An expression as a sum of products of others."""
        kind, *inside = self.expressions[number]
        if kind == "constant":
            return (((), inside[-1]),) if inside[-1] else ()
        return inside[0] if kind == "polynomial" else (((number,), 1),)

    def _is_certain(self, name: str, difference: Polynomial) -> bool:
        """Whether a comparison comes out the same for all sizes, as the difference of its operands shows."""
        low, high = self._bounds(difference)
        above, below = low is not None and low > 0, high is not None and high < 0
        if above or below or low == high == 0:
            return True
        return (low == 0 and name in ("<", ">=")) or (high == 0 and name in (">", "<="))

    def _bounds(self, terms: Polynomial) -> tuple[int | None, int | None]:
        """The least and the greatest value over all sizes; None where there is none or it is not known."""
        known = self._known_bounds.get(terms)
        if known is None:
            known = self._known_bounds[terms] = self._found_bounds(terms, 0)
        return known

    def _found_bounds(self, terms: Polynomial, depth: int) -> tuple[int | None, int | None]:
        """`_bounds`, of a constant and of what is monotonic in all sizes.  A maximum is replaced by each of its operands plus
        something that is not negative; expressions with negative numbers stand for that."""
        met = {i for factors, _ in terms for i in factors}
        extreme = next((i for i in sorted(met) if i >= 0 and self.expressions[i][0] in _EXTREMES), None)
        if extreme is not None:
            name, *operands = self.expressions[extreme]
            more = (((-1 - depth,), 1 if name == "max" else -1),)
            found: list[tuple[int | None, int | None]] = []
            if depth < _DEEPEST:
                found = [
                    self._found_bounds(_replaced(terms, extreme, _sum((*self._terms(j), *more))), depth + 1) for j in operands
                ]
            lows, highs = [x for x, _ in found if x is not None], [x for _, x in found if x is not None]
            return max(lows, default=None), min(highs, default=None)
        if any(i >= 0 and self.expressions[i][0] != "size" for i in met):
            return None, None
        for i in met:
            if i >= 0:
                terms = _replaced(terms, i, (((i,), 1), ((), _SMALLEST)))
        constant = sum([x for factors, x in terms if not factors])
        signs = {x > 0 for factors, x in terms if factors}
        return (None if False in signs else constant), (None if True in signs else constant)

    def concretise(self, value: Any) -> Any:
        """The plain number, which it has to be in all that this environment stands for."""
        if type(value) in SYMBOLIC:
            self.compare("==", value, without_symbols(value))
        return without_symbols(value)

    def call(self, function: Callable[..., Sequence[Any]], operands: Sequence[Any]) -> list[Any]:
        """The numbers that a pure function returns.  Their expression is the call itself, so nothing is noted of how they are
        computed."""
        results = function(*map(without_symbols, operands))
        call = self._number(("call", function, tuple(map(self.number_of, operands))))
        items = [(result, self._number(("item", call, k))) for k, result in enumerate(results)]
        for x, k in items:
            if type(x) not in (int, float):  # a truth value decides
                self._note("==", k, self.number_of(x), True)
        return [SymFloat(x, self, k) if type(x) is float else SymInt(x, self, k) if type(x) is int else x for x, k in items]

    # -- other sizes
    def values(self, sizes: Sequence[int]) -> list[Any]:
        """The value of each expression for these sizes, as Python computes it; of sizes of another environment, in terms of
        these."""
        values: list[Any] = []
        for name, *operands in self.expressions:
            if name == "size":
                values.append(sizes[operands[0]])
            elif name == "constant":
                values.append(operands[-1])
            elif name == "call":
                values.append(operands[0](*[values[i] for i in operands[1]]))
            elif name == "item":
                values.append(values[operands[0]][operands[1]])
            elif name == "polynomial":
                values.append(sum([x * math.prod([values[i] for i in factors]) for factors, x in operands[0]]))
            else:
                given = [values[i] for i in operands]
                symbol = next((x for x in given if active(x)), None)  # a float on its left would not ask it
                values.append(_FUNCTIONS[name](*given) if symbol is None else symbol.env.compute(name, *given))
        return values

    def evaluated(self, sizes: Sequence[int]) -> list[Any] | None:
        """`values`, of plain sizes; None where a relation does not hold, or something cannot be computed: also for want of
        stack."""
        known = len(self.expressions), len(self.relations)
        asked = (known, *sizes)
        found, evaluates = self._evaluated, self._evaluates  # other threads ask for other sizes
        if found[0] != asked:
            try:
                if evaluates[0] != known:
                    evaluates = self._evaluates = known, self._evaluation()
                found = self._evaluated = asked, evaluates[1](sizes)
            except (ArithmeticError, ValueError, RecursionError):
                return None
        return found[1]

    def _evaluation(self) -> Callable[[Sequence[int]], list[Any] | None]:
        """A function that evaluates.  A relation is asked as soon as its numbers are known: what takes long, as a plan of memory
        does, comes last."""
        due: dict[int, list[str]] = {}
        for name, a, b, outcome in self.relations:
            left = f"    if (v{a} {name} v{b}) is not {outcome}: return None"
            due.setdefault(max(a, b), []).append(left)
        lines, names = ["def evaluate(sizes):"], dict[str, Any]()
        for k, (name, *operands) in enumerate(self.expressions):
            if name == "size":
                text = f"sizes[{operands[0]}]"
            elif name == "item":
                text = f"v{operands[0]}[{operands[1]}]"
            elif name == "polynomial":
                terms = ["*".join([f"({x})", *[f"v{i}" for i in factors]]) for factors, x in operands[0]]
                text = " + ".join(terms) if len(terms) <= _IN_A_ROW else f"sum(({', '.join(terms)}))"
            elif name == "constant":
                text, names[f"c{k}"] = f"c{k}", operands[-1]
            else:
                function, given = operands if name == "call" else (_FUNCTIONS[name], operands)
                text, names[f"c{k}"] = f"c{k}({', '.join([f'v{i}' for i in given])})", function
            lines += [f"    v{k} = {text}", *due.get(k, ())]
        lines.append(f"    return [{', '.join([f'v{k}' for k in range(len(self.expressions))])}]")
        exec(compile("\n".join(lines), __file__, "exec"), names)  # the library's own code, for whoever watches what runs
        made: Callable[[Sequence[int]], list[Any] | None] = names["evaluate"]
        return made

    def pinned(self) -> frozenset[int]:
        """The variables that have one size in all that this stands for."""
        found = {k for relation in self.relations if (k := self._pinned_by(relation)) is not None}
        left = [(self.expressions[i][1], self._in_fewer(terms)) for i, terms in self._instead.items()]
        return frozenset(found | {k for k, terms in left if not any(factors for factors, _ in terms)})

    def _pinned_by(self, relation: tuple[str, int, int, bool]) -> int | None:
        """The variable that a relation `variable == constant` pins; None for other relations."""
        name, a, b, outcome = relation
        found = {self.expressions[i][0]: self.expressions[i] for i in (a, b)}
        return found["size"][1] if name == "==" and outcome and found.keys() == {"size", "constant"} else None

    # -- for a reader
    def text(self, number: int) -> str:
        """An expression as Python."""
        name, *operands = self.expressions[number]
        if name == "size":
            return self.names[operands[0]]
        if name == "constant":
            return repr(operands[-1])
        if name == "polynomial":
            terms = [
                "*".join([*([] if abs(x) == 1 and factors else [str(abs(x))]), *map(self.text, factors)])
                for factors, x in operands[0]
            ]
            signs = ["-" if x < 0 else "+" for _, x in operands[0]]
            text = "".join(f" {sign} {term}" for sign, term in zip(signs, terms, strict=True))
            return "(" + text.removeprefix(" + ").strip() + ")"
        if name == "call":
            return f"{type(operands[0]).__name__}({', '.join(map(self.text, operands[1]))})"
        if name == "item":
            return f"{self.text(operands[0])}[{operands[1]}]"
        parts = [self.text(i) for i in operands]
        if name == "-x":
            return f"-{parts[0]}"
        if name not in BINARY:
            return f"{name}({', '.join(parts)})"
        return "(" + f" {name} ".join(parts) + ")"

    def guards(self) -> list[str]:
        """The relations as Python, without those that compare with a bound of machine integers, which no size reaches."""
        return [self._said(*relation) for relation in self.relations if not any(map(self._is_far, relation[1:3]))]

    def _is_far(self, number: int) -> bool:
        kind, *inside = self.expressions[number]
        return kind == "constant" and abs(inside[-1]) > LARGEST

    def _said(self, name: str, left: int, right: int, outcome: bool) -> str:
        return f"{self.text(left)} {name if outcome else _OPPOSITE[name]} {self.text(right)}"

    def pins(self) -> list[str]:
        """The relations that pin variables to one size, with the lines that made them."""
        return [
            f"{self._said(*relation)}{f' at {line}' if line else ''}"
            for relation, line in self.relations.items()
            if self._pinned_by(relation) is not None
        ]


def _noting(one: Any, other: Any) -> ShapeEnv | None:
    """The environment that takes notes of an operation on two numbers.  A cache that outlives calls may hold numbers of an
    earlier environment as keys, which Python compares with those of this one: the earlier ones are plain numbers then."""
    if one.env.is_noting:
        return one.env  # type: ignore[no-any-return]
    return other.env if type(other) in SYMBOLIC and other.env.is_noting else None


def _sum(terms: Iterable[tuple[tuple[int, ...], int]]) -> Polynomial:
    """A sum of products in normal form."""
    total: dict[tuple[int, ...], int] = {}
    for factors, x in terms:
        total[factors] = total.get(factors, 0) + x
    return tuple(sorted([(factors, x) for factors, x in total.items() if x], reverse=True))


def _minus(first: Polynomial, second: Polynomial) -> Polynomial:
    return _sum((*first, *[(factors, -x) for factors, x in second]))


def _product(first: Polynomial, second: Polynomial) -> Polynomial:
    return _sum([(tuple(sorted((*a, *b))), x * y) for a, x in first for b, y in second])


def _replaced(terms: Polynomial, number: int, instead: Polynomial) -> Polynomial:
    """A polynomial with another one substituted for a factor."""
    made: list[tuple[tuple[int, ...], int]] = []
    for factors, x in terms:
        part: Polynomial = ((tuple([i for i in factors if i != number]), x),)
        for _ in range(factors.count(number)):
            part = _product(part, instead)
        made += part
    return _sum(made)


def _binary(symbol: str, swapped: bool) -> Callable[..., Any]:
    plain, is_followed = ARITHMETIC[symbol], symbol in BINARY

    def method(self: Any, other: Any, *modulus: Any) -> Any:
        if not is_followed or type(other) in _SEQUENCES or modulus:
            left, right = (other, self) if swapped else (self, other)
            given = [concretise_sizes(left), concretise_sizes(right)]
            return pow(*given, *map(concretise_sizes, modulus)) if modulus else plain(*given)
        if type(other) not in _NUMBERS:
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        env = _noting(self, other)
        return plain(without_symbols(left), without_symbols(right)) if env is None else env.compute(symbol, left, right)

    return method


def _unary(symbol: str) -> Callable[..., Any]:
    name = {"-": "-x", "abs": "abs"}.get(symbol)

    def method(self: Any) -> Any:
        if name is None:
            return self if symbol == "+" else ~concretise_sizes(self)
        return self.env.compute(name, self) if self.env.is_noting else _UNARY[name](self.value)

    return method


def _comparison(symbol: str) -> Callable[..., Any]:
    name, is_outcome = ("==", False) if symbol == "!=" else (symbol, True)

    def method(self: Any, other: Any) -> Any:
        if type(other) not in _NUMBERS:
            return NotImplemented
        env = _noting(self, other)
        if env is not None:
            return env.compare(name, self, other) is is_outcome
        return COMPARISONS[symbol](self.value, without_symbols(other))

    return method


@with_operators(_binary, _comparison, _unary)
class SymbolicScalar(RecordedNumber):
    """A number computed of sizes: its `value` in this run, and the `number` of its expression in `env`."""

    __slots__ = ("env", "number", "value")

    def __init__(self, value: Any, env: ShapeEnv, number: int) -> None:
        self.value = value
        self.env = env
        self.number = number

    def concretise(self) -> Any:
        return self.env.concretise(self) if self.env.is_noting else self.value

    def as_size(self) -> Any:
        return self

    def __hash__(self) -> int:  # who finds an equal one notes that
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other  # type: ignore[operator]

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self


if TYPE_CHECKING:  # it stands where numbers do, so annotations take it for one, too

    class SymInt(int):
        env: ShapeEnv
        number: int
        value: int

        def __init__(self, value: int, env: ShapeEnv, number: int) -> None: ...

    class SymFloat(float):
        env: ShapeEnv
        number: int
        value: float

        def __init__(self, value: float, env: ShapeEnv, number: int) -> None: ...

else:

    class SymInt(SymbolicScalar):
        """An integer computed of sizes."""

        __slots__ = ()
        __class__ = property(lambda self: int)

    class SymFloat(SymbolicScalar):
        """A float computed of sizes."""

        __slots__ = ()
        __class__ = property(lambda self: float)


SYMBOLIC: Final = frozenset((SymInt, SymFloat))
_SEQUENCES: Final = frozenset((tuple, list, str, bytes))
_NUMBERS: Final = frozenset((bool, int, float, SymInt, SymFloat))


for _cls, _base in ((SymInt, int), (SymFloat, float)):
    _cls.__name__ = _cls.__qualname__ = _base.__name__  # errors name the classes of what they refuse


def without_symbols(value: Any) -> Any:
    """The plain number of a symbolic one, without a note; anything else as it is."""
    return value.value if type(value) in SYMBOLIC else value


def concretise_sizes(value: Any) -> Any:
    """The plain number of a symbolic one; where notes are taken, it is noted to have this value.  Slices, tuples and lists with
    their elements concretised; anything else as it is.  For code that decides something by the number."""
    if not has_symbols(value):
        return value
    if type(value) in SYMBOLIC:
        return value.concretise()
    if type(value) is slice:
        return slice(concretise_sizes(value.start), concretise_sizes(value.stop), concretise_sizes(value.step))
    parts = [concretise_sizes(part) for part in value]
    return parts if isinstance(value, list) else tuple(parts)


def python_type(value: Any) -> type:
    """The Python type of a number; of a symbolic one that of its value."""
    kind = type(value)
    return int if kind is SymInt else float if kind is SymFloat else kind


def has_symbols(value: Any) -> bool:
    """Whether there is a symbolic number in a value, or among the elements of tuples, lists and slices."""
    if not _exist[0]:
        return False
    kind = type(value)
    if kind in SYMBOLIC:
        return True
    if kind is slice:
        return any(type(part) in SYMBOLIC for part in (value.start, value.stop, value.step))
    return isinstance(value, (tuple, list)) and any(map(has_symbols, value))


def active(value: Any) -> bool:
    """Whether this is a symbolic number of an environment that takes notes now."""
    return type(value) in SYMBOLIC and value.env.is_noting


def by_origin(value: Any) -> Hashable:
    """A key for a number in tables that must tell apart what has the same value by chance: two symbolic numbers with different
    expressions have different keys, and looking them up notes nothing."""
    return (type(value), value.number) if active(value) else value  # type: ignore[no-any-return]


def called(function: Callable[..., Sequence[Any]], *operands: Any) -> list[Any]:
    """`list(function(*operands))`.  Where some operands are symbolic, the results are symbolic numbers whose expression is this
    call.  The function is pure, and compares equal to another one that does the same."""
    first = next((x for x in operands if active(x)), None)
    return list(function(*operands)) if first is None else first.env.call(function, operands)


def cached(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`functools.lru_cache(maxsize)` for a pure function of numbers and tuples; calls with symbolic numbers bypass it."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        known = functools.lru_cache(maxsize)(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **kwargs) if _exist[0] and has_symbols(args) else known(*args, **kwargs)  # type: ignore[arg-type]

        return call

    return wrap


class SymText(str):
    """A text for a reader with symbolic numbers in it: the text of this run, and its `parts`, which give that of other sizes."""

    parts: tuple[Any, ...]

    def substituted(self, of: Callable[[Any], Any]) -> str:
        """The text with other numbers in the places of the symbolic ones."""
        return text_of(*map(of, self.parts))


def text_of(*parts: Any) -> str:
    """The concatenation of texts and numbers."""
    if _IN_TEXTS.isdisjoint(map(type, parts)):
        return "".join(map(str, parts))
    parts = tuple([piece for part in parts for piece in (part.parts if type(part) is SymText else (part,))])
    made = SymText("".join([str(without_symbols(part)) for part in parts]))
    made.parts = parts
    return made


_IN_TEXTS: Final = SYMBOLIC | {SymText}
