"""Symbolic sizes of a recording (core/symbolic.py): sizes that may differ in later calls.

The library computes with `SymInt`s: `shape_of` gives shapes of them, attributes and literals of the graph hold them.  User code
gets a `SymbolicNumber` for each, because C code would read an int without a guard.  Its definition in the prologue is a constant
that an instance of the recording replaces by its own size.  A comparison of such numbers becomes a relation of the environment
and no guard: a path for one size need not check it.

Without an environment, as in the first recording of a function, all methods here do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tracejit.capture.call_sites import user_line
from tracejit.capture.defects import isolated_question
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise, is_symbolic
from tracejit.capture.recording.journal import Topic
from tracejit.core.shapes import element_strides, fills_memory
from tracejit.core.symbolic import SYMBOLIC, ShapeEnv, SymInt, has_symbols, python_type, shape_of, strides_of, without_symbols
from tracejit.replay.ir import Arithmetic, Compare, Constant, Expr, Name, Unary
from tracejit.tensor import Tensor
from tracejit.tensor.size import Size

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["SizeHandlers"]

Dimension = tuple[int, int]
"""A size that may be symbolic.  (k, d): dimension d of tensor k among the arguments; for a tensor of rank r that has gaps in
memory, (k, r + d) is the stride of dimension d.  (number of tensors + k, 0): integer k among the arguments."""


class SizeHandlers(Handlers):
    """Translates between SymInts, which the library computes with, and SymbolicNumbers, which user code computes with."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.env: ShapeEnv | None = None
        self.inputs: dict[int, tuple[int, ...]] = {}  # id of an argument -> its symbolic shape
        self.strides: dict[int, tuple[int, ...]] = {}  # id of an argument with gaps in memory -> its strides, in elements
        self._tensors: list[Tensor] = []  # the arguments, and the tensors in them
        # Number of an integer among the arguments that user code has not read yet -> its symbol.
        self._awaited: dict[int, SymInt] = journal.dictionary(Topic.READS)
        self._symbols: dict[Name, Any] = journal.dictionary()  # a variable of the prologue -> its symbolic number
        self._names: dict[tuple[type, int], Name] = journal.dictionary()  # the inverse, for numbers that the library has returned
        # A variable computed from sizes and from other numbers -> (operator, operands).
        self._mixed: dict[Name, tuple[str, Any, Any]] = journal.dictionary()

    # -- from start to end
    def begin(
        self, tensors: list[Tensor], names: list[str], integers: Sequence[tuple[int, str]], dimensions: Collection[Dimension]
    ) -> None:
        """Make these `dimensions` of the tensors and integers that arguments lead to variables of a new environment.

        names: what user code calls the tensors.  integers: (value, name) of each, symbolic once it is read."""
        env = self.env = ShapeEnv()
        env.locate = user_line
        self._tensors = tensors  # kept alive while their ids are in tables, whatever the call does to containers
        for k, (tensor, name) in enumerate(zip(tensors, names, strict=True)):
            array, own = tensor._array, {d for i, d in dimensions if i == k}
            shape, rank = list(array.shape), array.ndim
            for d in range(rank):
                if d in own:
                    shape[d] = env.size(shape[d], f"{name}.shape[{d}]")
            if not SYMBOLIC.isdisjoint(map(type, shape)):
                self.inputs[id(tensor)] = tuple(shape)
            if not fills_memory(array):
                strides = enumerate(element_strides(array))
                self.strides[id(tensor)] = tuple(
                    [env.size(n, f"{name}.stride({d})") if rank + d in own else n for d, n in strides]
                )
        for k, (n, name) in enumerate(integers):
            if (len(tensors) + k, 0) in dimensions:
                self._awaited[k] = env.size(n, name)
        env.__enter__()
        shape_of.append(isolated_question(self.recorder, self._shape))
        strides_of.append(isolated_question(self.recorder, self._strides))
        for k, number in enumerate(self.recorder.integers):
            if number is not None:
                self.begin_number(k, number)
        for tensor, name in zip(tensors, names, strict=True):
            if id(tensor) in self.strides:
                self._require_separate(name, self.inputs.get(id(tensor), tensor._array.shape), self.strides[id(tensor)])

    def _require_separate(self, name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Require by relations that no two elements of an argument share memory, except along dimensions of stride 0.  Then for
        all sizes of this recording the same holds about writes to it and about the order of its dimensions in memory."""
        reach = 0
        for d in sorted(range(len(strides)), key=lambda d: abs(without_symbols(strides[d]))):
            if strides[d] != 0 and shape[d] != 1:
                if not abs(strides[d]) > reach:
                    self.give_up(f"elements of {name} have the same memory")
                reach = reach + abs(strides[d]) * (shape[d] - 1)

    def begin_number(self, position: int, number: SymbolicNumber) -> None:
        """Make `number`, integer `position` among the arguments, a symbolic size if it is to be one.  It was just read."""
        symbol = self._awaited.pop(position, None)
        if symbol is not None:
            self.recorder.miss_if(number._name.differs(symbol))
            self.define(number._name, symbol)

    def give_up(self, problem: str) -> None:
        """Note that the recording holds for the sizes of this call alone.  problem: why, for a reader."""
        if self.env is not None:
            self.env.problem = self.env.problem or problem

    def end(self) -> None:
        """Leave the environment: nothing is noted any more."""
        if self.env is not None:
            variable = [x for x in self._tensors if id(x) in self.inputs or has_symbols(self.strides.get(id(x), ()))]
            sources = [self.recorder.tensors.get(id(x)) for x in variable]
            are_seen = all(source is not None and (source.used or source.inspected) for source in sources)
            self.env.is_guarded = are_seen and not self._awaited
            self.env.__exit__()
            shape_of.clear()
            strides_of.clear()

    def paused(self) -> AbstractContextManager[None]:
        """While it is entered, nothing guards sizes: what runs decides nothing."""
        return nullcontext() if self.env is None else self.env.paused()

    @property
    def are_noted(self) -> bool:
        """Whether there is an environment in which relations are being noted."""
        return self.env is not None and self.env.is_noting

    def _shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        return self.recorder.interpreter.symbolic_shape(tensor) if self.are_noted else None

    def _strides(self, tensor: Tensor, exact: bool = True) -> tuple[int, ...] | None:
        program = self.recorder.interpreter
        if not self.are_noted or (not exact and program.is_row_major(tensor)):
            return None
        return program.symbolic_strides(tensor, exact=exact)

    def tables_of_names(self) -> tuple[Any, ...]:
        """Tables of the journal that say which variables of the prologue stand for sizes."""
        return self._symbols, self._names, self._mixed

    def pin(self, tensor: Tensor) -> None:
        """Fix the sizes of a tensor whose contents become Python objects: their number is then a part of the recording."""
        if self.are_noted and (shape := self._shape(tensor)) is not None:
            for size in shape:
                int(size)

    # -- from the library to user code
    def from_library(self, value: Any) -> Any:
        """`value`, a result of the library, for user code: symbolic numbers in place of SymInts and SymFloats."""
        if not self.are_noted:
            return without_symbols(value)
        kind = type(value)
        if kind in SYMBOLIC:
            return self._number(value) if value.env is self.env else without_symbols(value)
        if kind is Size:
            if SYMBOLIC.isdisjoint(map(type, value)):
                return value
            shape = self.recorder.mark_created(tuple.__new__(Size, map(without_symbols, value)))
            for k, size in enumerate(value):
                if type(size) in SYMBOLIC:
                    self.recorder.effects.remember((id(shape), k), self._number(size))
            return shape
        if kind is tuple:
            parts = tuple(map(self.from_library, value))
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else self.recorder.mark_created(parts)
        if kind is list:
            for k, part in enumerate(value):
                if (other := self.from_library(part)) is not part:
                    value[k] = other
        return value

    def has_name(self, value: Any) -> bool:
        """Whether a variable of the prologue already stands for `value`, or it is a plain number."""
        return type(value) not in SYMBOLIC or (type(value), value.number) in self._names

    def _number(self, symbol: Any) -> SymbolicNumber:
        recorder, key = self.recorder, (type(symbol), symbol.number)
        name = self._names.get(key)
        if name is None:  # one definition for each number: further steps of a loop add none
            name = self._names[key] = recorder.define(Constant(symbol))
            self._symbols[name] = symbol
        return SymbolicNumber(recorder, name, without_symbols(symbol))

    # -- from user code to the library
    def symbol(self, value: Any, concretise_others: bool = False) -> int | float | None:
        """The SymInt or SymFloat of a number of user code that was computed from sizes alone; a plain number if it is the same
        for all sizes (`n - n`); None for other values.

        concretise_others: also for an integer computed from sizes and other numbers, which are then guarded by their values."""
        if not is_symbolic(value) or value._post_program is not None or not self.are_noted:
            return None
        result = self._symbols.get(value._name)
        if result is None and concretise_others and type(value._value) is int and value._name in self._mixed:
            assert self.env is not None
            symbol, *operands = self._mixed[value._name]
            parts = [concretise(x) if (part := self.symbol(x, concretise_others)) is None else part for x in operands]
            computed = self.env.compute(symbol, *parts)
            if python_type(computed) is int:
                result = self._symbols[value._name] = computed
        return result

    def is_size(self, number: SymbolicNumber) -> bool:
        """Whether a number is a symbolic size, or was computed from such sizes alone."""
        return number._name in self._symbols

    def note_computed(self, number: SymbolicNumber, symbol: str, left: Any, right: Any) -> None:
        """Note that `number` is left <symbol> right, if it depends on a size and on other numbers."""
        if not self._symbols or symbol not in _ARITHMETIC or number._name in self._symbols:
            return
        if any(is_symbolic(x) and (x._name in self._symbols or x._name in self._mixed) for x in (left, right)):
            self._mixed[number._name] = symbol, left, right

    def for_library(self, value: Any) -> Any:
        """`value`, an argument of the library, with SymInts and SymFloats in place of the symbolic numbers of sizes, also in
        containers of this run."""
        if not self._symbols or not self.are_noted:
            return value
        kind = type(value)
        if kind is SymbolicNumber:
            symbol = self.symbol(value, concretise_others=True)
            return value if symbol is None else symbol
        if kind is Size and id(value) in self.recorder.effects.stored_by_container:
            stored = self.recorder.effects.stored
            sizes = [self.for_library(stored.get((id(value), k), v)) for k, v in enumerate(value)]
            return self.recorder.mark_created(tuple.__new__(Size, sizes))
        if kind is slice:
            bounds = (value.start, value.stop, value.step)
            parts = tuple(map(self.for_library, bounds))
            return value if _same(parts, bounds) else slice(*parts)
        if kind in (tuple, list) and not self.recorder.is_outside(value):
            parts = tuple(map(self.for_library, value))
            return value if _same(parts, value) else self.recorder.mark_created(kind(parts))
        return value

    # -- arithmetic of user code
    def computed(self, expression: Expr) -> Any:
        """The value of an expression of the prologue that is computed from sizes alone, as a symbolic number or a plain one that
        is the same for all sizes; else None."""
        if not self._symbols or not self.are_noted:
            return None
        assert self.env is not None
        if type(expression) is Arithmetic and expression.symbol in _ARITHMETIC:
            operands: tuple[Any, ...] = (self._value_of(expression.left), self._value_of(expression.right))
            name = expression.symbol
        elif type(expression) is Arithmetic and expression.symbol in _SHIFTS:
            value, bits = self._value_of(expression.left), self._value_of(expression.right)
            if type(value) is not SymInt or type(bits) is not int or bits < 0:
                return None
            operands, name = (value, 1 << bits), _SHIFTS[expression.symbol]
        elif type(expression) is Unary and expression.symbol == "-":
            operands, name = (self._value_of(expression.value),), "-x"
        else:
            return None
        if SYMBOLIC.isdisjoint(map(type, operands)) or any(x is _UNKNOWN for x in operands):
            return None
        result = self.env.compute(name, *operands)
        return result if python_type(result) in (int, float) else None

    def computed_by(self, function: Any, arguments: Sequence[Any]) -> Any:
        """function(*arguments), for a function of numbers whose arguments are sizes and plain numbers; else None."""
        name = _FUNCTIONS.get(function)
        if name is None or not self._symbols or not self.are_noted or (name not in ("max", "min") and len(arguments) != 1):
            return None
        operands = [self.symbol(x) if is_symbolic(x) else x for x in arguments]
        if not any(map(is_symbolic, arguments)) or not all(python_type(x) in (int, float) for x in operands):
            return None
        if name in ("max", "min") and not all(python_type(x) is int for x in operands):
            return None  # the result might be an int or a float
        assert self.env is not None
        return self.from_library(self.env.compute(name, *operands))

    def _value_of(self, expression: Expr) -> Any:
        """The value of a constant, or of a variable that stands for a size; `_UNKNOWN` for other expressions."""
        if type(expression) is Constant:
            return expression.value if type(expression.value) in (bool, int, float) else _UNKNOWN
        return self._symbols.get(expression, _UNKNOWN) if type(expression) is Name else _UNKNOWN

    def define(self, variable: Name, symbol: Any) -> None:
        """Note that a variable of the prologue stands for `symbol`."""
        self._symbols[variable] = symbol

    def is_size_relation(self, condition: Expr, outcome: bool) -> bool:
        """Whether `condition` depends on sizes alone.  If so, it becomes a relation of the environment, not a guard."""
        if not self._symbols or not self.are_noted:
            return False
        assert self.env is not None
        if type(condition) is Compare:
            left, right = self._value_of(condition.left), self._value_of(condition.right)
            if left is _UNKNOWN or right is _UNKNOWN or SYMBOLIC.isdisjoint(map(type, (left, right))):
                return False
            symbol = "==" if condition.symbol == "!=" else condition.symbol
            holds = self.env.compare(symbol, left, right) is not (condition.symbol == "!=")
        elif (number := self._value_of(condition)) is not _UNKNOWN and type(number) in SYMBOLIC:
            holds = not self.env.compare("==", number, 0)
        else:
            return False
        assert holds is outcome, f"{condition} was {outcome} and is {holds}"
        return True

    def same(self, left: Any, right: Any) -> bool | None:
        """Whether two shapes are equal, as relations; None if they are no tuples of sizes, or nothing in them is symbolic."""
        if not self._symbols or not self.are_noted:
            return None
        left, right = self.for_library(left), self.for_library(right)
        parts = (*left, *right)
        if SYMBOLIC.isdisjoint(map(type, parts)) or not all(type(part) is int or type(part) in SYMBOLIC for part in parts):
            return None
        for shape in (left, right):
            self.recorder.contents.read_content(shape)
        return tuple(left) == tuple(right)

    def concretises(self, number: SymbolicNumber) -> bool:
        """Whether a number is computed from sizes alone.  If so, the environment notes its value as a relation."""
        symbol = self.symbol(number)
        if symbol is None:
            return False
        if type(symbol) in SYMBOLIC:
            symbol.env.concretise(symbol)  # type: ignore[union-attr]
        return True


class _Unknown:
    """The type of `_UNKNOWN`, which marks an expression that is no number of sizes."""


_UNKNOWN = _Unknown()
_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**"))
_SHIFTS = {">>": "//", "<<": "*"}
"""Shift -> the operator that gives the same with a power of two."""
_FUNCTIONS: dict[Any, str] = {
    math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", int: "trunc", float: "float", round: "round", max: "max", min: "min",
}  # fmt: skip


def _same(left: Any, right: Any) -> bool:
    """Whether two sequences of one length hold the same objects."""
    return all(a is b for a, b in zip(left, right, strict=True))
