"""Random draws of Python and NumPy: `random.random()`, `np.random.rand()`, `rng.normal(size=3)`.

The prologue draws, in the order of the run.  The result is a number of the prologue, an array from outside, or items picked from
a sequence.  If the entry then does not serve the call (a guard on a drawn number fails, or the program takes an exit), it
restores the states of the generators, so that the eager call, or another entry, draws the same.  A generator from outside is a
constant of the entry: a call that uses another one misses.  A generator that the call creates is created by the prologue of each
call.  Seeding is handled like a draw.

Threads that draw from one generator at the same time may get the same draws, because restoring a state undoes draws of others.
"""

from __future__ import annotations

import random
from collections import deque
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.defects import does_as_python
from tracejit.capture.handlers.attempts import attempt
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise, is_symbolic
from tracejit.capture.policies import PRIMITIVE_TYPES, is_a
from tracejit.replay.ir import Constant, Expr, ListOf, Name, tuple_of
from tracejit.tensor import Size

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["GeneratorHandlers", "draws"]

_GENERATORS: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState)
_DRAWS = frozenset(
    {
        "random", "uniform", "triangular", "gauss", "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate",
        "betavariate", "paretovariate", "weibullvariate", "binomialvariate", "randint", "randrange", "getrandbits", "_randbelow",
        "_randbelow_with_getrandbits", "rand", "randn", "random_sample", "ranf", "sample", "random_integers", "integers", "normal",
        "standard_normal", "standard_exponential", "standard_gamma", "standard_cauchy", "standard_t", "beta", "binomial", "chisquare",
        "dirichlet", "exponential", "f", "gamma", "geometric", "gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries",
        "multinomial", "multivariate_normal", "negative_binomial", "pareto", "poisson", "power", "rayleigh", "vonmises", "wald", "weibull",
        "zipf", "permutation", "choice", "choices", "shuffle", "seed",
    }
)  # fmt: skip
"""Methods that return their draw and change nothing but the generator; and `shuffle`."""
_OF_NUMPY: frozenset[Any] = frozenset({np.random.seed, np.random.ranf, np.random.sample})
"""Functions that draw from NumPy's global generator and are no methods of it."""
_CONSTRUCTORS = frozenset(map(id, (random.Random, np.random.RandomState, np.random.default_rng)))
_MOST = 256
"""A list from outside of at most so many items is shuffled by the prologue."""
_OF_SEQUENCES = frozenset({"choice", "choices", "sample"})
"""Methods of random.Random that pick items of a sequence.  If the prologue has the sequence, it picks, and the items are read
from its result; else the Python code of the method is instrumented."""


def draws(function: Any) -> bool:
    """Whether `function` is a method of random.Random that is written in Python and draws."""
    return function.__name__ in _DRAWS and vars(random.Random).get(function.__name__) is function


class GeneratorHandlers(Handlers):
    """Handles draws, and creates generators.  known, by id: the generators from outside that were drawn from."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.known: dict[int, Any] = journal.dictionary()
        self._own: set[int] = journal.set()  # ids of the generators that each call creates

    def generator_method(self, owner: Any, name: str) -> Any:
        """The bound method `name` of a generator of NumPy; None for other objects and methods.  (NumPy's methods have a type of
        their own, of which the other handlers know nothing.)"""
        method = getattr(type(owner), name, None) if type(owner) in _GENERATORS[1:] and name in _DRAWS else None
        return None if method is None else self.recorder.mark_created(MethodType(self.recorder.mark_fixed(method), owner))

    def drawing(self, function: Any, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]] | None:
        """(generator, other arguments) of a call that draws from a generator; None for other calls."""
        if getattr(function, "__name__", "") not in _DRAWS:
            return None
        if type(function) is type(np.random.seed) and function in _OF_NUMPY:
            return self.recorder.mark_fixed(np.random.mtrand._rand), arguments
        owner = getattr(function, "__self__", None)
        if type(owner) in _GENERATORS and type(function) is not MethodType:
            return owner, arguments
        if (
            not arguments
            or type(arguments[0]) not in _GENERATORS
            or function is not getattr(type(arguments[0]), function.__name__, None)
        ):
            return None
        return arguments[0], arguments[1:]

    def drawn_by(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The draw, or the new generator, that a call of `function` gives; ABSENT for other functions."""
        if id(function) in _CONSTRUCTORS:
            return self._create(function, arguments, keywords)
        drawing = self.drawing(function, arguments)
        return ABSENT if drawing is None else self.draw_from(function, drawing[0], drawing[1], keywords)

    def draw_from(self, function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """owner.method(*arguments, **keywords), the method that `function` is; ABSENT if the Python code of the standard library
        has to be instrumented."""
        recorder = self.recorder
        name = function.__name__
        if type(owner) is random.Random and name in _OF_SEQUENCES:
            if not arguments or not self._is_known_in_prologue(arguments[0]):
                return ABSENT
        elif name == "shuffle":
            return self._shuffle(owner, arguments, keywords)
        source = self._source(owner, name)
        method = Constant(None) if source is None else source.get(name)
        expression, value = self._called(method, getattr(owner, name), arguments, keywords)
        if recorder.stopped:
            return value
        self._note(owner)
        picks = type(owner) is random.Random and name in _OF_SEQUENCES
        return self._picked(expression, value) if picks else self._drawn(expression, value)

    def _shuffle(self, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """owner.shuffle(x), for a list or an array of constants: the prologue of each call shuffles a copy, and the function
        reads the copy.  A list from outside gets its items when the program has run.  An array that the prologue has drawn is
        shuffled itself.  ABSENT for other sequences."""
        recorder = self.recorder
        shuffled: Any = arguments[0] if len(arguments) == 1 and not keywords else None
        is_array = type(shuffled) is np.ndarray
        sequence = self._array_to_shuffle(shuffled) if is_array else self._list_to_shuffle(shuffled)
        if recorder.stopped or sequence is None:
            return owner.shuffle(shuffled) if is_array else ABSENT
        source = self._source(owner, "shuffle")
        if source is None:
            return owner.shuffle(shuffled)
        self._note(owner)
        shuffle = source.get("shuffle")
        if recorder.arrays.may_be_shuffled(shuffled):
            result = recorder.define(recorder.constant(attempt).call(shuffle, sequence))
            recorder.miss_if(result.is_not(None))
            return recorder.perform(lambda: recorder.unwatched(lambda: owner.shuffle(shuffled)))
        expression = recorder.constant(attempt).call(recorder.constant(_shuffled), shuffle, sequence)
        if is_array:
            recorder.perform(lambda: recorder.unwatched(lambda: owner.shuffle(shuffled)))
            recorder.arrays.forget_contents(shuffled)
            del recorder.created[id(shuffled)]
            self._drawn(expression, shuffled)
        else:
            value = recorder.perform(lambda: recorder.unwatched(lambda: _shuffled(owner.shuffle, plain_copy(shuffled))))
            recorder.containers.replace_items(shuffled, self._picked(expression, value))
        return None

    def _array_to_shuffle(self, array: Any) -> Expr | None:
        """The expression of an array to shuffle in the prologue; None, with a reason, if the original is visible."""
        recorder = self.recorder
        if recorder.arrays.may_be_shuffled(array):
            return recorder.sources[id(array)]
        if recorder.arrays.is_unaliased(array):
            return recorder.constant(array.copy(order="K"))
        recorder.stop("container", "an ndarray that is shuffled")
        return None

    def _list_to_shuffle(self, value: Any) -> Expr | None:
        """The expression of a list to shuffle in the prologue, with its items of now; None if the prologue does not have them."""
        recorder = self.recorder
        if type(value) is not list or not recorder.is_outside(value):
            return ListOf(tuple(map(self._to_draw, value))) if type(value) is list and self._is_known_in_prologue(value) else None
        if len(value) <= _MOST and self._is_known_in_prologue(value):
            return recorder.sources[id(value)]
        if id(value) not in recorder.effects.content_guarded:
            return None
        items = list(recorder.contents.elements(value))
        are_numbers = all(type(plain(item)) in (int, float) and not is_post_program(item) for item in items)
        return ListOf(tuple(map(self._to_draw, items))) if are_numbers else None

    def _is_known_in_prologue(self, value: Any) -> bool:
        """Whether the prologue has the sequence `value`: a range, an unchanged one from outside, or one of numbers."""
        recorder = self.recorder
        if type(value) is range:
            return True
        if type(value) not in (list, tuple, deque):
            return False
        if recorder.is_outside(value):
            return not recorder.effects.changes(value)
        return type(value) is not deque and all(type(plain(v)) in (int, float) and not is_post_program(v) for v in value)

    def _source(self, owner: Any, name: str) -> Expr | None:
        """The expression of a generator that is a constant of the entry or that the prologue creates; None, with a reason, for
        other generators."""
        recorder = self.recorder
        source = recorder.sources.get(id(owner))
        if id(owner) not in self._own and (source is None or source != recorder.constant(owner)):
            recorder.stop("impure_call", f"{type(owner).__name__}.{name}() of a generator that the call has made")
            return None
        return source

    def _note(self, owner: Any) -> None:
        """Note that a generator is drawn from."""
        if id(owner) not in self._own:
            self.known[id(owner)] = owner

    def _create(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A new generator, which the prologue of each call creates."""
        recorder = self.recorder
        expression, generator = self._called(recorder.constant(function), function, arguments, keywords)
        if not recorder.stopped:
            variable = recorder.define(expression)
            recorder.miss_if(variable.type().is_not(recorder.constant(type(generator))))
            recorder.register(generator, variable)
            self._own.add(id(generator))
        return generator

    def _called(self, callee: Expr, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Expr, Any]:
        """(expression of a call in the prologue, its result now).  callee: the expression of `function`."""
        named = {k: self._to_draw(v) for k, v in keywords.items()}
        expression = self.recorder.constant(attempt).call(callee, *map(self._to_draw, arguments), **named)
        plain_arguments = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        value = self.recorder.environment_reads.computed_now(
            lambda: function(*plain_arguments[0], **plain_arguments[1]), (*arguments, *keywords.values())
        )
        return expression, value

    def _to_draw(self, value: Any) -> Expr:
        """The expression of an argument of a draw."""
        recorder = self.recorder
        if is_symbolic(value) and value._post_program is None:
            return value._name
        if type(value) is range:
            return Name("range").call(value.start, value.stop, value.step)
        if recorder.is_outside(value) and type(value) in (list, tuple, deque) and self._is_known_in_prologue(value):
            return recorder.sources[id(value)]
        value = concretise(value)
        if type(value) in (int, float):
            return recorder.number_expression(value)
        if type(value) not in PRIMITIVE_TYPES and not is_a(value, (type, np.dtype)):
            if type(value) not in (tuple, list, Size) or not all(type(plain(v)) in (int, float) for v in value):
                recorder.stop("impure_call", f"drawing with a {type(value).__name__}")
                return Constant(None)
            if recorder.is_outside(value):
                recorder.contents.read_content(value, deep=True)
            if type(value) is Size and id(value) in recorder.effects.stored_by_container:
                value = [recorder.effects.stored.get((id(value), k), v) for k, v in enumerate(value)]
            return tuple_of(*map(self._to_draw, value))
        return recorder.constant(value)

    def _drawn(self, expression: Expr, value: Any) -> Any:
        """`value`, the result of a draw: a symbolic number or an array from outside, defined in the prologue by `expression`."""
        recorder = self.recorder
        variable = recorder.define(expression)
        if type(value) in (int, float):
            recorder.miss_if(variable.type().is_not(Name(type(value).__name__)))
            return SymbolicNumber(self.recorder, variable, value)
        if type(value) is np.ndarray:
            recorder.miss_if(variable.type().is_not(recorder.constant(np.ndarray)))
            recorder.register(value, variable)
            recorder.arrays.is_drawn(value)
        elif is_a(value, np.generic) and value.dtype.kind in "iuf":
            recorder.miss_if(variable.type().is_not(recorder.constant(type(value))))
            return recorder.arrays.prologue_scalar(variable, value)
        elif is_a(value, np.generic) or type(value) in PRIMITIVE_TYPES:
            recorder.guard_value(value, variable)
        else:
            recorder.stop("impure_call", f"drawing a {type(value).__name__}")
        return value

    def _picked(self, expression: Expr, value: Any) -> Any:
        """`value`, an item of a sequence or a list of items, which the prologue of each call picks by `expression`."""
        recorder = self.recorder
        variable = recorder.define(expression)
        if type(value) is not list:
            return recorder.read(value, variable, symbolic=True, truths=True)
        recorder.miss_if(variable.type().is_not(Name("list")).otherwise(variable.length().differs(len(value))))
        items = [recorder.read(v, variable.at(i), symbolic=True, truths=True) for i, v in enumerate(value)]
        return recorder.mark_created(items)


@does_as_python
def _shuffled(shuffle: Any, sequence: Any) -> Any:
    """A shuffled copy of a list or array.  shuffle: the method of a generator."""
    copy = list(sequence) if type(sequence) is list else sequence.copy(order="K")
    shuffle(copy)
    return copy
