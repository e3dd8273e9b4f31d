"""The recording being made: what is known of outside values, and the statements of the prologue that check and compute them.

`Recorder` is what the handlers (attributes.py, calls.py ...) stand around: each has it, and finds the others by it.  Invariants:

* Every expression is guarded once, where it is first read; statements are in the order of the run, so an expression only uses
  variables defined above it.
* After `stop` the run goes on eagerly: handlers still do what Python does, and what they add to the recording is not used.

It must not know how values are used: that is the handlers' business.
"""

from __future__ import annotations

import array
import builtins
import collections
import functools
import math
import sys
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from tracejit.capture import reasons
from tracejit.capture.branches import Branches
from tracejit.capture.call_sites import user_line
from tracejit.capture.defects import RAISED, Performed, does_as_python, note_raised
from tracejit.capture.handlers.array_stores import ArrayStoreHandlers
from tracejit.capture.handlers.attributes import AttributeHandlers
from tracejit.capture.handlers.base import ABSENT, Handler, TensorSource
from tracejit.capture.handlers.builtin_calls import BuiltinCallHandlers
from tracejit.capture.handlers.calls import CallHandlers
from tracejit.capture.handlers.classes import ClassHandlers
from tracejit.capture.handlers.container_methods import ContainerMethodHandlers
from tracejit.capture.handlers.containers import ContainerHandlers
from tracejit.capture.handlers.contents import ContentHandlers
from tracejit.capture.handlers.effects import EffectHandlers
from tracejit.capture.handlers.environment_reads import EnvironmentReadHandlers
from tracejit.capture.handlers.escapes import without_stand_ins
from tracejit.capture.handlers.extracted_numbers import ExtractedNumberHandlers
from tracejit.capture.handlers.generators import GeneratorHandlers
from tracejit.capture.handlers.identities import IdentityHandlers
from tracejit.capture.handlers.in_program import InProgramHandlers
from tracejit.capture.handlers.iteration import IterationHandlers
from tracejit.capture.handlers.locking import LockHandlers
from tracejit.capture.handlers.number_calls import NumberCallHandlers
from tracejit.capture.handlers.operators import OperatorHandlers
from tracejit.capture.handlers.origins import CONTAINER_TYPES, Origins
from tracejit.capture.handlers.outside_calls import OutsideCallHandlers
from tracejit.capture.handlers.post_program import RecordingProtocol
from tracejit.capture.handlers.printing import PrintingHandlers
from tracejit.capture.handlers.ragged import RaggedHandlers
from tracejit.capture.handlers.sequences import SequenceHandlers
from tracejit.capture.handlers.sizes import SizeHandlers
from tracejit.capture.handlers.standard_calls import StandardCallHandlers
from tracejit.capture.handlers.symbols import SymbolicNumber, concrete, stored
from tracejit.capture.handlers.texts import TextHandlers
from tracejit.capture.handlers.type_calls import TypeCallHandlers
from tracejit.capture.policies import (
    C_CALLABLES,
    IDENTITY_TYPES,
    PRIMITIVE_TYPES,
    bound_to,
    builtin_base,
    has_plain_state,
    is_a,
)
from tracejit.capture.reasons import Reason
from tracejit.capture.recording.entry import MISS
from tracejit.capture.recording.facts import Facts, shown
from tracejit.capture.recording.journal import Topic
from tracejit.capture.stacked_items import unstack
from tracejit.core.dtypes import default_dtype
from tracejit.core.interpreter import state
from tracejit.replay.ir import Constant, Define, Expr, Miss, Name, Not, Statement, Unary
from tracejit.tensor import Tensor
from tracejit.tensor.base import share

__all__ = ["Recorder"]

_PATHS: tuple[type, ...] = (slice, MethodType, functools.partial, SimpleNamespace, array.array)
_BITS = 2048
"""Integers with more are not written down: Python limits the length of numbers in texts."""


class Recorder(Origins):
    """Values from outside, guards, and the state shared by all handlers."""

    program: RecordingProtocol
    """The interpreter of the recording: it sets itself here."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False
        self.keeps_items = False  # lists that functions read one by one hold items that require grad as these have been made
        self.closing = False  # the call has returned; what still runs is not in its place
        self._functions: list[weakref.ref[FunctionType]] = []  # made by it: what they find may be in the result
        self.reason: Reason | None = None
        self.defect: Reason | None = None  # the reason, where the recorder itself has failed
        # What of the program's the innermost entry has had done: what it was, and its result; True where it may be done again (defects.py).
        self.performed: Performed = []
        self.native_depth = 0
        # The line of the program that runs native code, empty until somebody asks; None while it runs instrumented code, which moves on.
        self.line: str | None = None
        self.handled = sys.exception()  # around the call
        self.namespace: dict[str, Any] = {
            "MISS": MISS, "ABSENT": ABSENT, "state": state, "default_dtype": default_dtype, "copysign": math.copysign,
            "builtin_names": builtins.__dict__, "inf": math.inf, "OrderedDict": collections.OrderedDict,
            "defaultdict": collections.defaultdict, "deque": collections.deque, "share": share,
        }  # fmt: skip
        self.prologue: list[Statement | TensorSource] = self.journal.statements
        self.facts = Facts()
        self.branches = Branches()
        self.tensors: dict[int, TensorSource] = {}
        self.asked_for: set[Name] = self.journal.set()  # variables that are guarded by their values
        self.positions: set[Name] = self.journal.set()  # those that say where a slice is, in calls to come if not in this one
        # Integers that are arguments, or that these lead to, as the run has seen them so far; and what the program calls each.
        self.integers: list[SymbolicNumber | None] = self.journal.list(Topic.READS)
        self._integers_called: dict[str, int] = {}
        self.instance_reads: set[Expr] = set()  # expressions of attributes found in the dictionary of an instance
        self.compiled: set[str] = self.journal.set()  # names of constants that are the compiled function itself
        self.paths: list[Expr] = []  # objects that may be changed: they must stay distinct
        # The same of arrays, which are read and written in order, and so need it beside calls alone.
        self.array_paths: list[Expr] = self.journal.list()
        self.values = {}
        self.deferred = {}
        self._constants: dict[int, Name] = {}
        self._expressions: dict[Expr, Any] = {}  # what has been read -> the tuple that it was
        self._symbolic: dict[Expr, SymbolicNumber] = {}
        self._variables_of: dict[Expr, Name] = {}  # of computed numbers
        self._once: set[Hashable] = set()
        self.class_reads: dict[
            tuple[type, str], tuple[Any, Expr]
        ] = {}  # functions and the like in classes, and their expressions
        self.class_misses: dict[
            tuple[type, str], tuple[tuple[type, ...], list[Any], list[tuple[int, str]]]
        ] = {}  # what no class of an MRO has: the MRO, the dictionaries of its classes, and the places where it would be
        self.plain_classes: dict[
            type, tuple[type, ...]
        ] = {}  # those whose instances are looked at in Python's own way -> their MRO
        self._variables = 0
        self.sizes = SizeHandlers(self)
        self.in_program = InProgramHandlers(self)
        self.extracted_numbers = ExtractedNumberHandlers(self)
        self.texts = TextHandlers(self)
        self.identities = IdentityHandlers(self)
        self.arrays = ArrayStoreHandlers(self)
        self.effects = EffectHandlers(self)
        self.attributes = AttributeHandlers(self)
        self.contents = ContentHandlers(self)
        self.sequences = SequenceHandlers(self)
        self.containers = ContainerHandlers(self)
        self.container_methods = ContainerMethodHandlers(self)
        self.operators = OperatorHandlers(self)
        self.iteration = IterationHandlers(self)
        self.standard_calls = StandardCallHandlers(self)
        self.printing = PrintingHandlers(self)
        self.environment_reads = EnvironmentReadHandlers(self)
        self.outside_calls = OutsideCallHandlers(self)
        self.locking = LockHandlers(self)
        self.generators = GeneratorHandlers(self)
        self.number_calls = NumberCallHandlers(self)
        self.builtin_calls = BuiltinCallHandlers(self)
        self.type_calls = TypeCallHandlers(self)
        self.ragged = RaggedHandlers(self)
        self.calls = CallHandlers(self)
        self.classes = ClassHandlers(self)

    # -- stopping
    def stop(self, code: str, detail: str) -> None:
        """Give up: the run goes on eagerly, and the recording has a reason."""
        if not self.stopped:
            self.stopped = True
            self.sizes.end()
            self.reason = reasons.make(code, detail, user_line())
            self.ragged.end()
            self.release_stand_ins()

    def branch(self, outcome: Any, is_fixed: bool = False) -> None:
        """A value decides what the program does next; this ends the recording of a loop whose steps go different ways, once it is long.
        is_fixed: one from outside, which is none that Python or NumPy has drawn."""
        hindrance = self.branches.note(outcome, len(self.program.nodes), is_fixed)
        if hindrance:
            self.stop("branching_loop", hindrance)

    def release_stand_ins(self, *others: Any) -> None:
        """From now on what this run made, and what `others` lead to, is for anybody."""
        for value in self.created.values():
            if type(value) is list:
                unstack(value)
        self.without_stand_ins([*self.created.values(), *others])

    def without_stand_ins(self, result: Any, refused: Callable[[Any], None] | None = None) -> Any:
        """What the call gives for `result`, once it is over: it leads to plain values, as do functions that this run has made.
        refused: as for escapes.without_stand_ins()."""
        return without_stand_ins([result, *[function() for function in self._functions]], self.is_outside, refused)[0]

    def release_created(self) -> None:
        """The call has returned: what it made goes, unless the result or an effect has it.  Code that runs when it goes stops the
        recording, since it would have run earlier: a generator that was not used up, in a local list."""
        self._functions = [weakref.ref(value) for value in self.created.values() if type(value) is FunctionType]
        self.closing = True
        self.calls.release()
        self.created = dict.fromkeys(self.created)
        self.closing = False

    def release(self) -> None:
        """Nothing is recorded any more: whatever the recording kept alive may go, in its time."""
        self.created = dict.fromkeys(self.created)
        self.calls.release()
        self.effects.release()
        self.journal.release()
        self.keep.clear()
        self.has_released = True  # other objects may come to have the ids of those that go
        self.class_reads.clear()
        self.class_misses.clear()
        self.plain_classes.clear()
        self.namespace.clear()

    # -- who handles what
    def standard_call(self, function: Any) -> Handler | None:
        """The handler of a function of the standard library, to be called with the function and its arguments; None for others."""
        for handlers in (
            self.locking,
            self.standard_calls,
            self.classes,
            self.printing,
            self.environment_reads,
            self.outside_calls,
        ):
            handler = handlers.standard_call(function)
            if handler is not None:
                return handler
        return None

    def run(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call what the recording has stopped for, or what raises what is to be raised, with what stand-ins stand for."""
        given = tuple(map(stored, arguments)), {name: stored(value) for name, value in keywords.items()}
        return self.perform(lambda: function(*given[0], **given[1]))

    @does_as_python
    def perform(self, action: Callable[[], Any], is_repeatable: bool = False) -> Any:
        """What `action` gives, which does something of the program's: it is noted, or that it has raised.  is_repeatable: whether it may be
        done again, if it is a part of something else."""
        try:
            result = action()
        except Exception as error:
            note_raised(self, error, action)
            raise
        self.performed.append((action, result, True) if is_repeatable else (action, result))
        return result

    def caught(self, error: BaseException | None) -> None:
        """The program handles an error.  One that is no Exception most likely came from outside, in the middle of anything."""
        if error is not None and not isinstance(error, Exception):
            self.stop("interrupted", type(error).__name__)

    def unwatched(self, action: Callable[[], Any]) -> Any:
        """Do something that is no part of the program."""
        raise NotImplementedError

    def of_program(self, error: Exception) -> Exception:
        """An error that a handler is about to raise, since Python raises it there."""
        self.performed.append((RAISED, id(error)))
        return error

    # -- names and statements
    def constant(self, value: Any) -> Name:
        """The name of an object that the entry holds."""
        name = self._constants.get(id(value))
        if name is None:
            if self._is_local_definition(value):
                kind = "class" if is_a(value, type) else type(value).__name__
                self.stop("unbuildable", f"{kind} {getattr(value, '__name__', '')}".strip())
            name = self._constants[id(value)] = Name(f"c{len(self._constants)}")
            self.namespace[name.name] = value
            self.keep.append(value)
        return name

    def _is_local_definition(self, value: Any) -> bool:
        """Whether it is a definition that this run has made, which leads to what is in the variables around it: each call has another."""
        if type(value) in C_CALLABLES:
            value = getattr(value, "__self__", None)
        return id(value) in self.created and is_a(value, (type, FunctionType, property, staticmethod, classmethod))

    def variable(self) -> Name:
        """A new one, which somebody defines."""
        self._variables += 1
        return Name(f"v{self._variables}")

    def define(self, expression: Expr) -> Name:
        """A new variable, defined at this point of the prologue."""
        variable = self.variable()
        self.prologue.append(Define(variable.name, expression))
        return variable

    def first_time(self, *key: Hashable) -> bool:
        """True the first time it is asked about `key`."""
        asked = len(self._once)
        self._once.add(key)
        return len(self._once) > asked

    def miss_if(self, condition: Expr) -> None:
        """A guard: the entry misses where `condition` holds."""
        if self.first_time("guard", condition):
            self.prologue.append(Miss(condition))

    def read_again(self) -> None:
        """What has been read so far may be something else from here on: another read of it is one of its own."""
        for known in (
            self._expressions,
            self._symbolic,
            self._once,
            self._variables_of,
            self.class_reads,
            self.class_misses,
            self.plain_classes,
        ):
            known.clear()

    # -- symbolic numbers
    def define_number(self, expression: Expr, value: int | float, *, check_type: bool) -> SymbolicNumber:
        variable = self._variables_of.get(expression)
        if variable is None:
            symbol = self.sizes.computed(expression)
            variable = self._variables_of[expression] = self.define(expression if symbol is None else Constant(symbol))
            if symbol is not None:
                self.sizes.define(variable, symbol)
                check_type = False
        if check_type:
            self.miss_if(variable.type().is_not(Name(type(value).__name__)))
        return SymbolicNumber(self, variable, value)  # an object of its own: the program may ask whether it is another one

    def guard_outcome(self, condition: Expr, outcome: bool) -> None:
        self.sequences.note_guard(condition)
        if self.sizes.is_size_relation(condition, outcome):
            return
        if self.first_time("guard", missing := Not(condition) if outcome else condition):
            self.prologue.append(Miss(missing))
            self.branch(outcome, is_fixed=not self.generators.known)
            self.facts.note("outcome", "a comparison of numbers", str(outcome), user_line())

    def guard_number(self, number: SymbolicNumber) -> None:
        if number._late is not None:
            self.extracted_numbers.guard_post_program(number)
            return
        if self.sizes.concretises(number):
            return
        value = number._value
        self.asked_for.add(number._name)
        if self.first_time("number", number._name):
            self.prologue.append(Miss(self._differs(number._name, value)))
            self.facts.note("value", self.facts.numbers.get(number._name, "a number"), shown(value), user_line())

    def number_expression(self, value: int | float) -> Expr:
        written = math.isfinite(value) if isinstance(value, float) else value.bit_length() <= _BITS
        return Constant(value) if written else self.constant(value)

    def _differs(self, found: Expr, value: Any) -> Expr:
        """A condition that holds where `found`, known to be of the type of `value`, is another value."""
        if is_a(value, float):
            if value != value:
                return found.compared("==", found)
            if value == 0:
                sign = Name("copysign").call(1.0, found)
                return found.differs(0.0).otherwise(sign.differs(math.copysign(1.0, value)))
            if math.isinf(value):
                return found.differs(Name("inf") if value > 0 else Unary("-", Name("inf")))
            return found.differs(value)
        if is_a(value, complex):
            return Name("repr").call(found).differs(repr(value))
        return found.differs(self.number_expression(value) if is_a(value, int) else value)

    # -- reading outside values
    def read_handled(self) -> None:
        """The program asks what is being handled: the exception around the call is part of the answer."""
        if self.handled is not None:
            self.stop("impure_call", "asking for the exception that is handled around the call")
        self.namespace["handled"] = sys.exception
        self.miss_if(Name("handled").call().is_not(None))

    def raising(self, error: Any) -> Any:
        """`error` is about to be raised; returns it.  Python notes in an exception where it was raised, and what was handled then."""
        if is_a(error, type) and issubclass(error, BaseException):
            return self.calls.call(error, (), {})
        if self.is_outside(error) and is_a(error, BaseException):
            self.stop("raised_again", type(error).__qualname__)
        return error

    def read(
        self,
        value: Any,
        expression: Expr,
        *,
        called: str = "",
        symbolic: bool = False,
        truths: bool | None = None,
        by_identity: bool = False,
        argument: bool = False,
    ) -> Any:
        """`value` was read from outside as `expression`: guard it, and return it, or a symbolic number for it.  called: what the program
        calls it.  truths: whether it may be one of a truth value, too; None: of one that was another one before."""
        if self.stopped:
            return value
        if expression in self._expressions:
            number = self._symbolic.get(expression)
            if type(value) is tuple and not self.is_outside(value):  # which C code makes anew whenever it is asked
                value = self._expressions[expression]
            if number is None:
                return value if symbolic else self._looked_through(value)
            return number if symbolic else concrete(number)
        self._expressions[expression] = value if type(value) is tuple else None
        cls = type(value)
        if cls is bool and symbolic and truths is None and called and self.facts.earlier:
            truths = self.facts.has_varied(called, value, user_line())
        if symbolic and (cls is int or cls is float or (truths and cls is bool)) and value == value:
            return self._read_number(value, expression, called)
        if cls in PRIMITIVE_TYPES or is_a(value, np.generic):
            self.guard_value(value, expression)
            self.facts.note("value", called or cls.__name__, shown(value), user_line())
            return value
        known = self.sources.get(id(value))
        if known is not None:
            if known != expression:
                self.miss_if(expression.is_not(known))
            return value if symbolic else self._looked_through(value)
        if self.is_created(value):  # a place was written to in a way that nobody noticed
            self.stop("read_after_change", str(expression))
            return value
        self.keep.append(value)
        if called:
            self.facts.call(value, called)
        if by_identity or not self._has_path(value):
            name = self.constant(value)
            self.sources[id(value)] = name
            self.miss_if(expression.is_not(name))
            self.facts.note("object", called or cls.__name__, shown(value))
            return value
        self.facts.note("type", called or cls.__name__, cls.__qualname__)
        variable = self.sources[id(value)] = self.define(expression)
        if is_a(value, Tensor):
            source = self.tensors[id(value)] = TensorSource(value, variable, argument)
            self.prologue.append(source)
        elif cls is FunctionType:
            other = variable.get("__code__").is_not(self.constant(value.__code__))
            self.miss_if(variable.type().is_not(self.constant(cls)).otherwise(other))
            self.miss_if(variable.get("__globals__").is_not(self.constant(value.__globals__)))
            self.paths.append(variable)
        elif cls in (BuiltinFunctionType, MethodWrapperType):
            other = variable.get("__name__").differs(value.__name__)
            self.miss_if(variable.type().is_not(self.constant(cls)).otherwise(other))
        else:
            self.miss_if(variable.type().is_not(self.constant(cls)))
            if cls is np.ndarray:
                self.array_paths.append(variable)
            elif cls not in (tuple, frozenset, slice, MethodType, functools.partial):
                self.paths.append(variable)
        if symbolic and is_a(value, tuple):
            self.contents.read_elements(value)
            return value
        return self._looked_through(value)

    def _looked_through(self, value: Any) -> Any:
        """`value`, which something may look at that no handler sees."""
        if is_a(value, (tuple, frozenset)):
            self.contents.read_content(value)
        return value

    def _read_number(self, value: int | float, expression: Expr, called: str) -> SymbolicNumber:
        variable = self.define(expression)
        self.facts.numbers[variable] = called or "a number"
        self.facts.note("type", called or "a number", type(value).__name__)
        self.miss_if(variable.type().is_not(Name(type(value).__name__)))
        number = self._symbolic[expression] = SymbolicNumber(self, variable, value)
        place = self._integers_called.get(called)
        if place is not None and self.integers[place] is None and type(value) is int:
            self.integers[place] = number
            self.sizes.begin_number(place, number)
        return number

    def await_integers(self, places: Sequence[str]) -> None:
        """Integers that the program calls so may be sizes."""
        self.integers.extend([None] * len(places))
        self._integers_called = {called: k for k, called in reversed(list(enumerate(places)))}

    def has_integer(self, called: str) -> bool:
        """Whether an integer among the arguments, or in what they lead to, is called so."""
        return called in self._integers_called

    def _has_path(self, value: Any) -> bool:
        """Whether an equal fresh object at the same place would do."""
        cls: Any = type(value)
        if is_a(value, Tensor):
            return True
        if cls is frozenset and not all(type(element) in PRIMITIVE_TYPES and element == element for element in value):
            return False
        if cls is FunctionType:  # made anew by each call of whoever has its definition
            return "<" in value.__qualname__
        if cls is np.ndarray:
            return True
        if cls in (BuiltinFunctionType, MethodWrapperType):  # `items.append` kept in a variable
            return bound_to(value) is not None
        if is_a(value, (*IDENTITY_TYPES, BaseException)) or hasattr(cls, "__next__"):
            return False
        return cls in _PATHS or has_plain_state(cls) or builtin_base(cls) in CONTAINER_TYPES

    def guard_value(self, value: Any, expression: Expr) -> None:
        """A guard that `expression` is this simple value, by type and bits."""
        if value is None or is_a(value, bool) or value is Ellipsis or value is NotImplemented:
            self.miss_if(expression.is_not(value))
            return
        variable = self.define(expression)
        self.identities.note_place(value, variable)
        if is_a(value, np.generic):
            cls, other = self.constant(type(value)), Name("repr").call(variable).differs(repr(value))
        else:
            cls, other = Name(type(value).__name__), self._differs(variable, value)
        self.miss_if(variable.type().is_not(cls).otherwise(other))

    # -- tensors
    def is_saved_output(self, tensor: Tensor) -> bool:
        return self.program.value_of(tensor) is not None

    def outside_tensor(self, tensor: Tensor, expression: Expr) -> None:
        """A tensor that each call makes by `expression`, before the program, of something from outside."""
        variable = self.define(expression)
        self.register(tensor, variable)
        source = self.tensors[id(tensor)] = TensorSource(tensor, variable, False)
        self.prologue.append(source)

    def inspect(self, tensor: Any) -> None:
        """Python may have looked at the metadata of `tensor`."""
        self.program.demand(tensor)
        self.ragged.guard_size(tensor)
        source = self.tensors.get(id(tensor))
        if source is not None and not source.inspected:
            source.inspected = True
            self.journal.note(Topic.READS)

    def inspect_all(self, values: Iterable[Any]) -> None:
        """The same for every tensor in nested local containers."""
        for value in values:
            cls = type(value)
            if issubclass(cls, Tensor):
                self.inspect(value)
            elif issubclass(cls, (list, tuple)):
                self.inspect_all(value)
            elif issubclass(cls, dict):
                self.inspect_all(value.values())
