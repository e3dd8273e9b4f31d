"""The recorder: the state of the recording in progress.

It holds which outside values the call has read, and the statements of the prologue that check and compute them.  All handlers
(attributes.py, calls.py ...) share one `Recorder` and reach each other through it.  Invariants:

* Each expression is guarded once, where it is first read.  Statements are in the order of the run, so an expression only uses
  variables defined above it.
* After `stop` the run continues eagerly: handlers still do what Python does; what they add to the recording is not used.

It must not know how values are used: that is the handlers' part.
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
from tracejit.capture.handlers.base import ABSENT, CallHandler, TensorSource
from tracejit.capture.handlers.builtin_calls import BuiltinCallHandlers
from tracejit.capture.handlers.calls import CallHandlers
from tracejit.capture.handlers.classes import ClassHandlers
from tracejit.capture.handlers.container_methods import ContainerMethodHandlers
from tracejit.capture.handlers.containers import ContainerHandlers
from tracejit.capture.handlers.contents import ContentHandlers
from tracejit.capture.handlers.effects import EffectHandlers
from tracejit.capture.handlers.environment_reads import EnvironmentReadHandlers
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
from tracejit.capture.handlers.plain_values import PlainValueHandlers
from tracejit.capture.handlers.post_program import RecordingProtocol
from tracejit.capture.handlers.printing import PrintingHandlers
from tracejit.capture.handlers.ragged import RaggedHandlers
from tracejit.capture.handlers.sequences import SequenceHandlers
from tracejit.capture.handlers.sizes import SizeHandlers
from tracejit.capture.handlers.stand_ins import plain_value, without_stand_ins
from tracejit.capture.handlers.standard_calls import StandardCallHandlers
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise
from tracejit.capture.handlers.texts import TextHandlers
from tracejit.capture.handlers.type_calls import TypeCallHandlers
from tracejit.capture.policies import (
    C_CALLABLES,
    IDENTITY_TYPES,
    NUMPY_NUMBERS,
    PRIMITIVE_TYPES,
    bound_to,
    builtin_base,
    has_method,
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
"""Longer integers are constants of the entry, not literals in its source: Python limits the digits of a number in a text."""


class Recorder(Origins):
    """Values from outside, guards, and the state shared by all handlers."""

    interpreter: RecordingProtocol
    """The interpreter of the recording, which assigns itself here."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False
        self.closing = False  # the call has returned: code that runs now is a finalizer of an object that goes
        self._functions: list[weakref.ref[FunctionType]] = []  # that the run has created: the result may lead to their closures
        self.reason: Reason | None = None
        self.defect: Reason | None = None  # the reason, where the recorder itself has failed
        # Actions of the program that the innermost entry point has performed, with their results; True: may be repeated
        # (defects.py).
        self.performed: Performed = []
        self.native_depth = 0  # nested calls of the eager library in progress
        # The user's line that native code runs for: "" until it is asked for.  None in instrumented code, whose line changes.
        self.line: str | None = None
        self.handled = sys.exception()  # the exception that is being handled around the call
        self.namespace: dict[str, Any] = {
            "MISS": MISS, "ABSENT": ABSENT, "state": state, "default_dtype": default_dtype, "copysign": math.copysign,
            "builtin_names": builtins.__dict__, "inf": math.inf, "OrderedDict": collections.OrderedDict,
            "defaultdict": collections.defaultdict, "deque": collections.deque, "share": share,
        }  # fmt: skip
        self.prologue: list[Statement | TensorSource] = self.journal.statements
        self.facts = Facts()
        self.branches = Branches(self.unwatched)
        self.tensors: dict[int, TensorSource] = {}
        self.guarded_by_value: set[Name] = self.journal.set()  # variables that are guarded by their values
        # Of these, the positions of slices: guarded now, but once another call has another value they become numbers of the
        # program.
        self.positions: set[Name] = self.journal.set()
        # Integers among the arguments or in what these lead to, None until the run reads them; and the index of each by its name.
        self.integers: list[SymbolicNumber | None] = self.journal.list(Topic.READS)
        self._integers_called: dict[str, int] = {}
        self.instance_reads: set[Expr] = set()  # expressions of attributes found in the dictionary of an instance
        self.compiled: set[str] = self.journal.set()  # names of constants that are the compiled function itself
        self.distinct_objects: list[Expr] = []  # mutable: guards require that no two of them are one
        # The same of NumPy arrays: reads and writes of them are replayed in order, so guards require it only if an effect is a call.
        self.distinct_arrays: list[Expr] = self.journal.list()
        # id of a tensor that stands for another one in steps (branching_loops.py) -> (itself, that one)
        self.loop_stand_ins: dict[int, tuple[Any, Any]] = {}
        # Tensors that may be items of lists which hold copies of them (appended_items.py), each with the line of the loop.
        self.item_aliases: list[tuple[Tensor, str]] = self.journal.list(Topic.INDEX)
        # Lists that the call returns with rows in them (stacked_items.py).
        self.stacked_lists: list[list[Any]] = self.journal.list(Topic.INDEX)
        self.before_end: list[Callable[[], None]] = []  # what steps that run have to do where the recording stops
        self.values = {}
        self.deferred = {}
        self._constants: dict[int, Name] = {}
        self._expressions: dict[Expr, Any] = {}  # expressions that have been read -> the tuple that was read, None for others
        self._symbolic: dict[Expr, SymbolicNumber] = {}
        self._variables_of: dict[Expr, Name] = {}  # variables of computed numbers, by their definitions
        self._once: set[Hashable] = set()
        self._guarded: set[Expr] = set()  # the conditions of guards
        # Functions, descriptors, types and None in classes -> the value and its expression.
        self.class_reads: dict[tuple[type, str], tuple[Any, Expr]] = {}
        # Names that no class of an MRO has -> the MRO, the dictionaries of its classes, the places of the name in them.
        self.class_misses: dict[tuple[type, str], tuple[tuple[type, ...], list[Any], list[tuple[int, str]]]] = {}
        # Classes whose instances have Python's own attribute lookup -> their MRO.
        self.plain_classes: dict[type, tuple[type, ...]] = {}
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
        self.plain_values = PlainValueHandlers(self)
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
        """End the recording with a reason; the run continues eagerly.  Only the first reason counts."""
        if not self.stopped:
            self.stopped = True
            self.sizes.end()
            self.reason = reasons.make(code, detail, user_line())
            self.ragged.end()
            for action in reversed(self.before_end):
                action()
            self.release_stand_ins()

    def stop_for_aliases(self, written: Tensor | None) -> None:
        """Stop the recording if the call is about to write to what may be an item of a list that holds copies, or, where that is None, to
        show items of such a list."""
        for x, line in self.item_aliases if not self.stopped else ():
            if written is None or np.may_share_memory(x._array, written._array):
                self.stop("outlined_loop", f"the loop at {line}: something else changes or sees an item of a list")
                return

    def branch(self, outcome: Any, is_fixed: bool = False) -> None:
        """Note that a value has decided a branch.  The recording stops if it is long and a loop branches differently from step to
        step.  is_fixed: whether the value is from outside and is not a random number."""
        hindrance = self.branches.note(outcome, len(self.interpreter.nodes), is_fixed)
        if hindrance:
            self.stop("branching_loop", hindrance)

    def release_stand_ins(self, *others: Any) -> None:
        """Replace the stand-ins in what this run has created, and in what `others` lead to, by plain values."""
        for value in self.created.values():
            if type(value) is list:
                unstack(value, None)
        self.without_stand_ins([*self.created.values(), *others])

    def without_stand_ins(self, result: Any, refused: Callable[[Any], None] | None = None) -> Any:
        """`result` with no stand-ins in what it leads to.  They are also removed from functions that this run has created.
        refused: see stand_ins.without_stand_ins()."""
        for items in self.stacked_lists:
            unstack(items, None)
        return without_stand_ins([result, *[function() for function in self._functions]], self.is_outside, refused)[0]

    def release_created(self) -> None:
        """Release what the call has created, once it has returned; results and effects keep theirs.  If code of the program runs
        then (the `finally` of a generator in a local list that was not exhausted), the recording stops: without it, that code
        would have run earlier."""
        self.reached.clear()
        self.appended.clear()
        self._functions = [weakref.ref(value) for value in self.created.values() if type(value) is FunctionType]
        self.closing = True
        self.calls.release()
        self.created = dict.fromkeys(self.created)
        self.closing = False

    def release(self) -> None:
        """Release all that the recording keeps alive.  Nothing is recorded after this."""
        self.created = dict.fromkeys(self.created)
        self.calls.release()
        self.effects.release()
        self.journal.release()
        self.keep.clear()
        self.has_released = True  # from now on other objects may have the ids of the released ones
        self.class_reads.clear()
        self.class_misses.clear()
        self.plain_classes.clear()
        self.namespace.clear()

    # -- calls
    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of a function of the standard library, called with the function and its arguments; else None."""
        for handlers in (
            self.locking,
            self.standard_calls,
            self.classes,
            self.printing,
            self.environment_reads,
            self.outside_calls,
            self.arrays,
        ):
            handler = handlers.standard_call(function)
            if handler is not None:
                return handler
        return None

    def run(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call `function` itself with plain values: the recording has stopped, or the call is to raise Python's error."""
        plain = tuple(map(plain_value, arguments)), {name: plain_value(value) for name, value in keywords.items()}
        return self.perform(lambda: function(*plain[0], **plain[1]))

    @does_as_python
    def perform(self, action: Callable[[], Any], is_repeatable: bool = False) -> Any:
        """Do `action`, a step of the program, and note in `performed` that it was done or has raised (defects.py); returns its
        result.  is_repeatable: whether it may be done again as a part of a larger operation."""
        try:
            result = action()
        except Exception as error:
            note_raised(self, error, action)
            raise
        self.performed.append((action, result, True) if is_repeatable else (action, result))
        return result

    def note_caught(self, error: BaseException | None) -> None:
        """Note that the program handles `error`.  One that is no `Exception` (KeyboardInterrupt) stops the recording: most likely
        it came from outside, in the middle of a step."""
        if error is not None and not isinstance(error, Exception):
            self.stop("interrupted", type(error).__name__)

    def unwatched(self, action: Callable[[], Any]) -> Any:
        """The result of `action`, which is not a part of the program: its calls are not watched."""
        raise NotImplementedError

    def error_of_program(self, error: Exception) -> Exception:
        """Note that a handler raises `error` because Python raises it there, so that it is no defect; returns it."""
        self.performed.append((RAISED, id(error)))
        return error

    # -- names and statements
    def constant(self, value: Any) -> Name:
        """The name by which the entry refers to the object `value`.  A definition of this run stops the recording."""
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
        """Whether this run has defined `value`, a function or class: each call defines another one."""
        if type(value) in C_CALLABLES:
            value = getattr(value, "__self__", None)
        return id(value) in self.created and is_a(value, (type, FunctionType, property, staticmethod, classmethod))

    def variable(self) -> Name:
        """A new variable, which the caller has to define."""
        self._variables += 1
        return Name(f"v{self._variables}")

    def define(self, expression: Expr) -> Name:
        """A new variable, defined at this point of the prologue."""
        variable = self.variable()
        self.prologue.append(Define(variable.name, expression))
        return variable

    def first_time(self, *key: Hashable) -> bool:
        """Whether this is the first call with `key`."""
        before = len(self._once)
        self._once.add(key)
        return len(self._once) > before

    def stands_for(self, value: Any) -> Any:
        """The tensor, or tuple, that `value` stands for in a step of a loop; `value` itself if it stands for none."""
        return self.loop_stand_ins[id(value)][1] if id(value) in self.loop_stand_ins else value

    def real_object(self, value: Any) -> Any:
        """`value`, where code asks which object it is; where it stands for another tensor, that one, and the recording stops."""
        if id(value) not in self.loop_stand_ins:
            return value
        self.stop("object_identity", "which object a variable holds that steps of a loop assign to")
        return self.stands_for(value)

    def numbers_guarded(self) -> frozenset[Hashable]:
        """The numbers that are guarded so far, as keys of `first_time`."""
        return frozenset([key for key in self._once if key[0] == "number"])  # type: ignore[index]

    def keep_guarded(self, numbers: frozenset[Hashable]) -> None:
        """Forget which numbers have been guarded besides these: the guards have become those of a path of a loop."""
        self._once -= self.numbers_guarded() - numbers

    def miss_if(self, condition: Expr) -> bool:
        """Add a guard: the entry misses if `condition` holds.  Whether there was none before."""
        before = len(self._guarded)
        self._guarded.add(condition)
        is_new = len(self._guarded) > before
        if is_new:
            self.prologue.append(Miss(condition))
        return is_new

    def read_again(self) -> None:
        """Forget what has been read: from here on the same expressions may have other values, and are guarded again."""
        for table in (
            self._expressions,
            self._symbolic,
            self._once,
            self._guarded,
            self._variables_of,
            self.class_reads,
            self.class_misses,
            self.plain_classes,
        ):
            table.clear()

    # -- symbolic numbers
    def define_number(self, expression: Expr, value: int | float, *, check_type: bool) -> SymbolicNumber:
        """A symbolic number that the prologue computes by `expression`.  value: its value in this call.  check_type: whether the
        type of the result has to be guarded."""
        variable = self._variables_of.get(expression)
        if variable is None:
            symbol = self.sizes.computed(expression)
            variable = self._variables_of[expression] = self.define(expression if symbol is None else Constant(symbol))
            if symbol is not None:
                self.sizes.define(variable, symbol)
                check_type = False
        if check_type:
            self.miss_if(variable.type().is_not(Name(type(value).__name__)))
        return SymbolicNumber(self, variable, value)  # always a new object: the program may compare identities

    def guard_outcome(self, condition: Expr, outcome: bool) -> None:
        """Add a guard: `condition`, which the program has branched on, has this outcome."""
        self.sequences.note_guard(condition)
        if self.sizes.is_size_relation(condition, outcome):
            return
        if self.miss_if(Not(condition) if outcome else condition):
            self.branch(outcome, is_fixed=not self.generators.known)
            self.facts.note("outcome", "a comparison of numbers", str(outcome), user_line())

    def guard_number(self, number: SymbolicNumber) -> None:
        """Add a guard: `number` has the value that it has in this call."""
        if number._post_program is not None:
            self.extracted_numbers.guard_post_program(number)
            return
        if self.sizes.concretises(number):
            return
        value = number._value
        self.guarded_by_value.add(number._name)
        if self.first_time("number", number._name):
            self.prologue.append(Miss(self._differs(number._name, value)))
            self.facts.note("value", self.facts.numbers.get(number._name, "a number"), shown(value), user_line())

    def number_expression(self, value: int | float) -> Expr:
        """The expression of a plain number: a literal, or a constant of the entry if it has no literal."""
        has_literal = math.isfinite(value) if isinstance(value, float) else value.bit_length() <= _BITS
        return Constant(value) if has_literal else self.constant(value)

    def _differs(self, expression: Expr, value: Any) -> Expr:
        """The condition that `expression`, of the type of `value`, has other bits: 0.0 is not -0.0, NaN is NaN."""
        if is_a(value, float):
            if value != value:
                return expression.compared("==", expression)
            if value == 0:
                sign = Name("copysign").call(1.0, expression)
                return expression.differs(0.0).otherwise(sign.differs(math.copysign(1.0, value)))
            if math.isinf(value):
                return expression.differs(Name("inf") if value > 0 else Unary("-", Name("inf")))
            return expression.differs(value)
        if is_a(value, complex):
            return Name("repr").call(expression).differs(repr(value))
        return expression.differs(self.number_expression(value) if is_a(value, int) else value)

    # -- reading outside values
    def read_handled(self) -> None:
        """The program asks which exception is being handled (`sys.exception()`).  Guard that none is handled around the call."""
        if self.handled is not None:
            self.stop("impure_call", "asking for the exception that is handled around the call")
        self.namespace["handled"] = sys.exception
        self.miss_if(Name("handled").call().is_not(None))

    def exception_to_raise(self, error: Any) -> Any:
        """The exception to raise for `raise error`; a class is called.  An exception from outside stops the recording: raising it
        changes it, since Python stores the traceback and the context in it."""
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
        """Guard `value`, which was read from outside by `expression`; returns it, or a symbolic number for it.

        called: its name in the program, for facts.  symbolic: whether the caller takes a symbolic number in place of an int or
        float.  truths: whether also in place of a bool; None: only if an earlier recording has read another value there.
        by_identity: whether to guard that it is the same object, whatever its type.  argument: whether it is one of the call."""
        if self.stopped:
            return value
        if expression in self._expressions:
            number = self._symbolic.get(expression)
            if type(value) is tuple and not self.is_outside(value):  # C code creates a new tuple at each read
                value = self._expressions[expression]
            if number is None:
                return value if symbolic else self._with_content(value)
            return number if symbolic else concretise(number)
        self._expressions[expression] = value if type(value) is tuple else None
        cls = type(value)
        if cls is bool and symbolic and truths is None and called and self.facts.earlier:
            truths = self.facts.has_varied(called, value, user_line())
        if symbolic and (cls is int or cls is float or (truths and cls is bool)) and value == value:
            return self._read_number(value, expression, called)
        if symbolic and cls in NUMPY_NUMBERS and value == value:
            return self._read_numpy_number(value, expression, called)
        if cls in PRIMITIVE_TYPES or is_a(value, np.generic):
            self.guard_value(value, expression)
            self.facts.note("value", called or cls.__name__, shown(value), user_line())
            return value
        source_expression = self.sources.get(id(value))
        if source_expression is not None:
            if source_expression != expression:
                self.miss_if(expression.is_not(source_expression))
            return value if symbolic else self._with_content(value)
        if self.is_created(value):  # it was stored there by code that no handler has seen
            self.stop("read_after_change", str(expression))
            return value
        self.keep.append(value)
        if called:
            self.facts.name_object(value, called)
        if not by_identity and self.plain_values.read(value, expression, called):
            return value
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
            self.distinct_objects.append(variable)
        elif cls in (BuiltinFunctionType, MethodWrapperType):
            other = variable.get("__name__").differs(value.__name__)
            self.miss_if(variable.type().is_not(self.constant(cls)).otherwise(other))
        else:
            self.miss_if(variable.type().is_not(self.constant(cls)))
            if cls is np.ndarray:
                self.distinct_arrays.append(variable)
            elif cls not in (tuple, frozenset, slice, MethodType, functools.partial):
                self.distinct_objects.append(variable)
        if symbolic and is_a(value, tuple):
            self.contents.read_elements(value)
            return value
        return self._with_content(value)

    def _with_content(self, value: Any) -> Any:
        """`value`, with guards on its content if it is a tuple or frozenset: code that no handler sees may look into it."""
        if is_a(value, (tuple, frozenset)):
            self.contents.read_content(value)
        return value

    def _read_number(self, value: int | float, expression: Expr, called: str) -> SymbolicNumber:
        """A symbolic number for a number from outside, whose type alone is guarded."""
        variable = self.define(expression)
        self.facts.numbers[variable] = called or "a number"
        self.facts.note("type", called or "a number", type(value).__name__)
        self.miss_if(variable.type().is_not(Name(type(value).__name__)))
        number = self._symbolic[expression] = SymbolicNumber(self, variable, value)
        position = self._integers_called.get(called)
        if position is not None and self.integers[position] is None and type(value) is int:
            self.integers[position] = number
            self.sizes.begin_number(position, number)
        return number

    def _read_numpy_number(self, value: np.generic, expression: Expr, called: str) -> SymbolicNumber:
        """The same for a number of NumPy's, as iterating over an array gives one."""
        variable = self.define(expression)
        self.facts.note("type", called or "a number", type(value).__name__)
        self.miss_if(variable.type().is_not(self.constant(type(value))))
        number = self._symbolic[expression] = self.arrays.prologue_scalar(variable, value)
        return number

    def await_integers(self, positions: Sequence[str]) -> None:
        """Announce the integers of these names (`n`, `self.width`): one that the run reads may become a symbolic size."""
        self.integers.extend([None] * len(positions))
        self._integers_called = {called: k for k, called in reversed(list(enumerate(positions)))}

    def has_integer(self, called: str) -> bool:
        """Whether `called` names one of the integers of `await_integers`."""
        return called in self._integers_called

    def _has_path(self, value: Any) -> bool:
        """Whether `value` is guarded by the expression that reaches it, so that another object of its kind may be there in later
        calls.  If not, it is guarded by identity."""
        cls: Any = type(value)
        if is_a(value, Tensor):
            return True
        if cls is frozenset and not all(type(element) in PRIMITIVE_TYPES and element == element for element in value):
            return False
        if cls is FunctionType:  # a lambda or a local function: each run of its definition creates another
            return "<" in value.__qualname__
        if cls is np.ndarray:
            return True
        if cls in (BuiltinFunctionType, MethodWrapperType):  # a bound method in a variable: `push = items.append`
            return bound_to(value) is not None
        if is_a(value, (*IDENTITY_TYPES, BaseException)) or has_method(cls, "__next__"):
            return False
        return cls in _PATHS or has_plain_state(cls) or builtin_base(cls) in CONTAINER_TYPES

    def guard_value(self, value: Any, expression: Expr) -> None:
        """Add a guard: `expression` has the type and the bits of `value`, a plain value."""
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
        return self.interpreter.value_of(tensor) is not None

    def outside_tensor(self, tensor: Tensor, expression: Expr) -> None:
        """Register `tensor` as one from outside: the prologue of each call creates it by `expression`."""
        variable = self.define(expression)
        self.register(tensor, variable)
        source = self.tensors[id(tensor)] = TensorSource(tensor, variable, False)
        self.prologue.append(source)

    def inspect(self, tensor: Any) -> None:
        """Note that Python may have looked at the metadata of `tensor`, so that they are guarded."""
        self.interpreter.demand(tensor)
        self.ragged.guard_size(tensor)
        source = self.tensors.get(id(tensor))
        if source is not None and not source.inspected:
            source.inspected = True
            self.journal.note(Topic.READS)

    def inspect_all(self, values: Iterable[Any]) -> None:
        """Call `inspect` for all tensors in `values` and in containers nested in them."""
        for value in values:
            cls = type(value)
            if issubclass(cls, Tensor):
                self.inspect(value)
            elif issubclass(cls, (list, tuple)):
                self.inspect_all(value)
            elif issubclass(cls, dict):
                self.inspect_all(value.values())
