"""Sizes that may be other ones in later calls: the symbolic shapes of a recording (core/symbolic.py).

The library computes with `SymInt`s: shapes of tensors say them (`shape_of`), attributes and literals of the graph hold them.  The
program gets a `SymbolicNumber` for each, since an int would reach C code unnoticed; it is defined in the prologue as a constant, which the
recording has for each size anew.  Comparisons of such numbers are relations of the environment instead of guards: a path for one size
need not ask.

Without an environment, as in the first recording of a function, all of this does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.capture.call_sites import user_line
from tracejit.capture.defects import guarded_question
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.symbols import SymbolicNumber, concrete, is_symbolic
from tracejit.capture.recording.journal import Topic
from tracejit.core.shapes import element_strides, fills_memory
from tracejit.core.symbolic import SYMBOLIC, ShapeEnv, SymInt, python_type, shape_of, strides_of, without_symbols
from tracejit.core.symbolic import is_symbolic as has_symbols
from tracejit.replay.ir import Arithmetic, Compare, Constant, Expr, Name, Unary
from tracejit.tensor import Tensor
from tracejit.tensor.size import Size

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["SizeHandlers"]

Dimension = tuple[int, int]
"""A dimension of a tensor among the arguments: the tensor's number, and its own; beyond the last one, the strides of one that has gaps in
memory.  Or (how many tensors there are and an integer's number among the arguments that are some, 0)."""


class SizeHandlers(Handlers):
    """Between SymInts, which the library has, and SymbolicNumbers, which the program has."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.env: ShapeEnv | None = None
        self.inputs: dict[int, tuple[int, ...]] = {}  # id of an argument -> its symbolic shape
        self.strides: dict[int, tuple[int, ...]] = {}  # of one that does not fill its memory -> its strides, in elements
        self._tensors: list[Tensor] = []  # the arguments, and what is in them
        self._awaited: dict[int, SymInt] = journal.dictionary(
            Topic.READS
        )  # integers among them, by number, that nothing has read yet
        self._symbols: dict[Name, Any] = journal.dictionary()  # a variable of the prologue -> what it stands for
        self._names: dict[tuple[type, int], Name] = journal.dictionary()  # the other way round, of what the library has answered
        self._mixed: dict[Name, tuple[str, Any, Any]] = (
            journal.dictionary()
        )  # how a variable is computed of sizes and of other numbers

    # -- from start to end
    def begin(
        self, tensors: list[Tensor], names: list[str], integers: Sequence[tuple[int, str]], dimensions: Collection[Dimension]
    ) -> None:
        """These dimensions of tensors that arguments lead to are variables from now on, and such integers, once the program reads them.
        integers: with what the program calls them."""
        env = self.env = ShapeEnv()
        env.locate = user_line
        self._tensors = tensors  # they live as long as their ids are asked for, whatever the call does to containers
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
        shape_of.append(guarded_question(self.recorder, self._shape))
        strides_of.append(guarded_question(self.recorder, self._strides))
        for k, number in enumerate(self.recorder.integers):
            if number is not None:
                self.begin_number(k, number)
        for tensor, name in zip(tensors, names, strict=True):
            if id(tensor) in self.strides:
                self._require_separate(name, self.inputs.get(id(tensor), tensor._array.shape), self.strides[id(tensor)])

    def _require_separate(self, name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
        """No two elements of an argument are in one place, but along dimensions that repeat them: so whether it can be written to, and in
        which order its dimensions lie in memory, is the same for all sizes that this recording stands for."""
        reach = 0
        for d in sorted(range(len(strides)), key=lambda d: abs(without_symbols(strides[d]))):
            if strides[d] != 0 and shape[d] != 1:
                if not abs(strides[d]) > reach:
                    self.give_up(f"elements of {name} have the same memory")
                reach = reach + abs(strides[d]) * (shape[d] - 1)

    def begin_number(self, place: int, number: SymbolicNumber) -> None:
        """The program has read one of the integers that may be variables."""
        symbol = self._awaited.pop(place, None)
        if symbol is not None:
            self.recorder.miss_if(number._name.differs(symbol))
            self.define(number._name, symbol)

    def give_up(self, problem: str) -> None:
        """What this recording is for one size cannot be told for others."""
        if self.env is not None:
            self.env.problem = self.env.problem or problem

    def end(self) -> None:
        """Notes are taken no more."""
        if self.env is not None:
            variable = [x for x in self._tensors if id(x) in self.inputs or has_symbols(self.strides.get(id(x), ()))]
            sources = [self.recorder.tensors.get(id(x)) for x in variable]
            are_seen = all(source is not None and (source.used or source.inspected) for source in sources)
            self.env.is_guarded = are_seen and not self._awaited
            self.env.__exit__()
            shape_of.clear()
            strides_of.clear()

    @property
    def are_noted(self) -> bool:
        """Whether there is an environment that takes notes."""
        return self.env is not None and self.env.is_noting

    def _shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        return self.recorder.program.symbolic_shape(tensor) if self.are_noted else None

    def _strides(self, tensor: Tensor, exact: bool = True) -> tuple[int, ...] | None:
        program = self.recorder.program
        if not self.are_noted or (not exact and program.is_row_major(tensor)):
            return None
        return program.symbolic_strides(tensor, exact=exact)

    def pin(self, tensor: Tensor) -> None:
        """The contents of a tensor leave the world of tensors: so many of them."""
        if self.are_noted and (shape := self._shape(tensor)) is not None:
            for size in shape:
                int(size)

    # -- to the program
    def from_library(self, value: Any) -> Any:
        """What the library has answered, as the program gets it."""
        if not self.are_noted:
            return without_symbols(value)
        kind = type(value)
        if kind in SYMBOLIC:
            return self._number(value) if value.env is self.env else without_symbols(value)
        if kind is Size:
            if SYMBOLIC.isdisjoint(map(type, value)):
                return value
            made = self.recorder.mark_created(tuple.__new__(Size, map(without_symbols, value)))
            for k, size in enumerate(value):
                if type(size) in SYMBOLIC:
                    self.recorder.effects.remember((id(made), k), self._number(size))
            return made
        if kind is tuple:
            parts = tuple(map(self.from_library, value))
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else self.recorder.mark_created(parts)
        if kind is list:
            for k, part in enumerate(value):
                if (other := self.from_library(part)) is not part:
                    value[k] = other
        return value

    def has_name(self, value: Any) -> bool:
        """Whether the recording has a name for a number already, or needs none."""
        return type(value) not in SYMBOLIC or (type(value), value.number) in self._names

    def _number(self, symbol: Any) -> SymbolicNumber:
        recorder, key = self.recorder, (type(symbol), symbol.number)
        name = self._names.get(key)
        if name is None:  # steps of a loop that ask again have nothing new
            name = self._names[key] = recorder.define(Constant(symbol))
            self._symbols[name] = symbol
        return SymbolicNumber(recorder, name, without_symbols(symbol))

    # -- from the program
    def symbol(self, value: Any, settling: bool = False) -> int | float | None:
        """What a number of the program's was computed of, if it was of sizes alone: a symbolic number, or a plain one if it comes to the
        same at all sizes (`n - n`).  settling: an integer that was computed of other numbers, too, is a size where these are guarded by
        their values."""
        if not is_symbolic(value) or value._late is not None or not self.are_noted:
            return None
        known = self._symbols.get(value._name)
        if known is None and settling and type(value._value) is int and value._name in self._mixed:
            assert self.env is not None
            symbol, *operands = self._mixed[value._name]
            parts = [concrete(x) if (part := self.symbol(x, settling)) is None else part for x in operands]
            found = self.env.compute(symbol, *parts)
            if python_type(found) is int:
                known = self._symbols[value._name] = found
        return known

    def is_size(self, number: SymbolicNumber) -> bool:
        """Whether a number is a variable, or was computed of some, and of nothing else."""
        return number._name in self._symbols

    def note_computed(self, made: SymbolicNumber, symbol: str, left: Any, right: Any) -> None:
        """A number was computed of others, of which some are sizes."""
        if not self._symbols or symbol not in _ARITHMETIC or made._name in self._symbols:
            return
        if any(is_symbolic(x) and (x._name in self._symbols or x._name in self._mixed) for x in (left, right)):
            self._mixed[made._name] = symbol, left, right

    def for_library(self, value: Any) -> Any:
        """An argument, with numbers in the place of those that stand for them in what the program has made."""
        if not self._symbols or not self.are_noted:
            return value
        kind = type(value)
        if kind is SymbolicNumber:
            symbol = self.symbol(value, settling=True)
            return value if symbol is None else symbol
        if kind is Size and id(value) in self.recorder.effects.numbered:
            stored = self.recorder.effects.stored
            sizes = [self.for_library(stored.get((id(value), k), v)) for k, v in enumerate(value)]
            return self.recorder.mark_created(tuple.__new__(Size, sizes))
        if kind is slice:
            parts = (value.start, value.stop, value.step)
            found = tuple(map(self.for_library, parts))
            return value if _same(found, parts) else slice(*found)
        if kind in (tuple, list) and not self.recorder.is_outside(value):
            found = tuple(map(self.for_library, value))
            return value if _same(found, value) else self.recorder.mark_created(kind(found))
        return value

    # -- what the program computes
    def computed(self, expression: Expr) -> Any:
        """The number that an expression of the prologue comes to, if all that it is computed of are sizes: symbolic, or the same at all
        sizes; else None."""
        if not self._symbols or not self.are_noted:
            return None
        assert self.env is not None
        if type(expression) is Arithmetic and expression.symbol in _ARITHMETIC:
            operands: tuple[Any, ...] = (self._known(expression.left), self._known(expression.right))
            name = expression.symbol
        elif type(expression) is Arithmetic and expression.symbol in _SHIFTS:
            value, bits = self._known(expression.left), self._known(expression.right)
            if type(value) is not SymInt or type(bits) is not int or bits < 0:
                return None
            operands, name = (value, 1 << bits), _SHIFTS[expression.symbol]
        elif type(expression) is Unary and expression.symbol == "-":
            operands, name = (self._known(expression.value),), "-x"
        else:
            return None
        if SYMBOLIC.isdisjoint(map(type, operands)) or any(x is _UNKNOWN for x in operands):
            return None
        found = self.env.compute(name, *operands)
        return found if python_type(found) in (int, float) else None

    def computed_by(self, function: Any, arguments: Sequence[Any]) -> Any:
        """What a function of numbers gives, if it is of sizes alone, and one of which another size has another value; else None."""
        name = _FUNCTIONS.get(function)
        if name is None or not self._symbols or not self.are_noted or (name not in ("max", "min") and len(arguments) != 1):
            return None
        operands = [self.symbol(x) if is_symbolic(x) else x for x in arguments]
        if not any(map(is_symbolic, arguments)) or not all(python_type(x) in (int, float) for x in operands):
            return None
        if name in ("max", "min") and not all(python_type(x) is int for x in operands):
            return None  # an int or a float, whichever it is
        assert self.env is not None
        return self.from_library(self.env.compute(name, *operands))

    def _known(self, expression: Expr) -> Any:
        if type(expression) is Constant:
            return expression.value if type(expression.value) in (bool, int, float) else _UNKNOWN
        return self._symbols.get(expression, _UNKNOWN) if type(expression) is Name else _UNKNOWN

    def define(self, variable: Name, symbol: Any) -> None:
        """A variable of the prologue stands for a number of sizes."""
        self._symbols[variable] = symbol

    def is_size_relation(self, condition: Expr, outcome: bool) -> bool:
        """Whether a guard that `condition` has this outcome is one on sizes alone; then it is a relation of the environment."""
        if not self._symbols or not self.are_noted:
            return False
        assert self.env is not None
        if type(condition) is Compare:
            left, right = self._known(condition.left), self._known(condition.right)
            if left is _UNKNOWN or right is _UNKNOWN or SYMBOLIC.isdisjoint(map(type, (left, right))):
                return False
            symbol = "==" if condition.symbol == "!=" else condition.symbol
            found = self.env.compare(symbol, left, right) is not (condition.symbol == "!=")
        elif (number := self._known(condition)) is not _UNKNOWN and type(number) in SYMBOLIC:
            found = not self.env.compare("==", number, 0)
        else:
            return False
        assert found is outcome, f"{condition} was {outcome} and is {found}"
        return True

    def same(self, left: Any, right: Any) -> bool | None:
        """Whether two shapes are the same; None for tuples that are none, or of which nothing is symbolic."""
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
        """Whether a number whose value is asked for is computed of sizes alone; then the environment holds it."""
        symbol = self.symbol(number)
        if symbol is None:
            return False
        if type(symbol) in SYMBOLIC:
            symbol.env.concretise(symbol)  # type: ignore[union-attr]
        return True


class _Unknown:
    """No number of sizes."""


_UNKNOWN = _Unknown()
_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**"))
_SHIFTS = {">>": "//", "<<": "*"}
"""What shifts are, of a power of two."""
_FUNCTIONS: dict[Any, str] = {
    math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", int: "trunc", float: "float", round: "round", max: "max", min: "min",
}  # fmt: skip


def _same(some: Any, others: Any) -> bool:
    return all(a is b for a, b in zip(some, others, strict=True))
