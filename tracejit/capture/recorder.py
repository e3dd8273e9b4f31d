"""The recording being made: what is known of outside values, and the lines of the prologue that check and compute them.

`Recorder` is the base of the handlers (attributes.py, calls.py ...), which are mixed into one object in session.py.  Invariants:

* Every expression is guarded once, where it is first read; lines are in the order of the run, so an expression only uses
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
from collections.abc import Callable, Hashable, Iterable
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from tracejit.autograd.tape import edge_of
from tracejit.capture import reasons
from tracejit.capture.entry import MISS
from tracejit.capture.facts import Facts, shown
from tracejit.capture.origins import CONTAINER_TYPES, Origins
from tracejit.capture.places import user_line
from tracejit.capture.policies import (
    IDENTITY_TYPES,
    PRIMITIVE_TYPES,
    bound_to,
    builtin_base,
    has_plain_state,
    is_a,
)
from tracejit.capture.reasons import Reason
from tracejit.capture.symbols import SymbolicNumber, concrete, released, settle_closure
from tracejit.core.dtypes import default_dtype
from tracejit.core.interpreter import state
from tracejit.tensor import Tensor
from tracejit.tensor.base import share

__all__ = ["ABSENT", "Recorder", "Said", "TensorSource"]

ABSENT: Any = object()
"""Stands for "there is no such attribute"."""
_PATHS: tuple[type, ...] = (slice, MethodType, functools.partial, SimpleNamespace, array.array)
_BITS = 2048
"""Integers with more are not written down: Python limits the length of numbers in texts."""


class Said:
    """Something whose special method has been called: Python makes of what it `said` what it makes of any answer, errors included."""

    __slots__ = ("said",)

    def __init__(self, said: Any) -> None:
        self.said = concrete(said)

    def _say(self, *_: Any) -> Any:
        return self.said

    __len__ = __hash__ = __str__ = __repr__ = __format__ = __iter__ = _say

    @staticmethod
    def by(name: str, said: Any) -> Said:
        """What has said it by the method `name`, and has no other."""
        cls: Any = type("Said", (Said,), {"__slots__": (), name: Said._say})
        made: Said = cls(said)
        return made


class TensorSource:
    """An outside tensor: its variable in the prologue, and what later calls must find unchanged.

    `used`: it is an input of the program; `inspected`: Python looked at its metadata; `argument`: it is an argument of the call; `place`:
    where its gradient goes, before the call writes to it."""

    __slots__ = ("argument", "inspected", "is_leaf", "is_view", "place", "requires_grad", "tensor", "used", "variable")

    def __init__(self, tensor: Tensor, variable: str, argument: bool) -> None:
        self.tensor = tensor
        self.variable = variable
        self.argument = argument
        self.used = False
        self.inspected = False
        self.is_view = tensor._base is not None
        self.requires_grad = tensor.requires_grad
        self.is_leaf = tensor.is_leaf
        self.place = edge_of(tensor)


class Recorder(Origins):
    """Values from outside, guards, and the state shared by all handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = False
        self.closing = False  # the call has returned; what still runs is not in its place
        self._functions: list[weakref.ref[FunctionType]] = []  # made by it: what they find may be in the result
        self.reason: Reason | None = None
        self.native_depth = 0
        self.handled = sys.exception()  # around the call
        self.namespace: dict[str, Any] = {
            "MISS": MISS, "ABSENT": ABSENT, "state": state, "default_dtype": default_dtype, "copysign": math.copysign,
            "builtin_names": builtins.__dict__, "inf": math.inf, "OrderedDict": collections.OrderedDict,
            "defaultdict": collections.defaultdict, "deque": collections.deque, "share": share,
        }  # fmt: skip
        self.lines: list[str | TensorSource] = []
        self.facts = Facts()
        self.tensors: dict[int, TensorSource] = {}
        self.instance_reads: set[str] = set()  # expressions of attributes found in the dictionary of an instance
        self.compiled: set[str] = set()  # names of constants that are the compiled function itself
        self.paths: list[str] = []  # variables of objects that may be changed: they must stay distinct
        self.values = {}
        self._constants: dict[int, str] = {}
        self._expressions: dict[str, Any] = {}  # what has been read -> the tuple that it was
        self._symbolic: dict[str, SymbolicNumber] = {}
        self._variables_of: dict[str, str] = {}  # texts of computed numbers, and their variables
        self._once: set[Hashable] = set()
        self._variables = 0

    # -- stopping
    def stop(self, code: str, detail: str) -> None:
        """Give up: the run goes on eagerly, and the recording has a reason."""
        if not self.stopped:
            self.stopped = True
            self.reason = reasons.make(code, detail, user_line())
            self.settle_made()

    def settle_made(self) -> None:
        """From now on what this run made is for anybody."""
        self.settle_closures()
        for value in self._made.values():
            released(value, self.is_outside)

    def settle_closures(self) -> None:
        """From now on functions that this run made may run as they are."""
        for value in (*self._made.values(), *[function() for function in self._functions]):
            settle_closure(value)

    def let_go(self) -> None:
        """The call has returned: what it made goes, unless the result or an effect has it.  Code that runs when it goes stops the
        recording, since it would have run earlier: a generator that was not used up, in a local list."""
        self._functions = [weakref.ref(value) for value in self._made.values() if type(value) is FunctionType]
        self.closing = True
        self._made = dict.fromkeys(self._made)
        self.closing = False

    # -- names and lines
    def constant(self, value: Any) -> str:
        """The name of an object that the entry holds."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = f"c{len(self._constants)}"
            self.namespace[name] = value
            self.keep.append(value)
        return name

    def variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def first_time(self, *key: Hashable) -> bool:
        """True the first time it is asked about `key`."""
        if key in self._once:
            return False
        self._once.add(key)
        return True

    def miss_if(self, condition: str) -> None:
        """A guard: the entry misses where `condition` holds."""
        if self.first_time("guard", condition):
            self.lines.append(f"if {condition}: return MISS")

    def read_again(self) -> None:
        """What has been read so far may be something else from here on: another read of it is one of its own."""
        for known in (self._expressions, self._symbolic, self._once, self._variables_of):
            known.clear()

    # -- symbolic numbers (the Prologue protocol)
    def define_number(self, text: str, value: int | float, *, check_type: bool) -> SymbolicNumber:
        variable = self._variables_of.get(text)
        if variable is None:
            variable = self._variables_of[text] = self.variable()
            self.lines.append(f"{variable} = {text}")
        if check_type:
            self.miss_if(f"type({variable}) is not {type(value).__name__}")
        return SymbolicNumber(self, variable, value)  # an object of its own: the program may ask whether it is another one

    def guard_outcome(self, text: str, outcome: bool) -> None:
        if self.first_time("guard", condition := f"not ({text})" if outcome else text):
            self.lines.append(f"if {condition}: return MISS")
            self.facts.note("outcome", "a comparison of numbers", str(outcome), user_line())

    def guard_number(self, number: SymbolicNumber) -> None:
        value = number._value
        if self.first_time("number", number._text):
            self.lines.append(f"if {self._differs(number._text, value)}: return MISS")
            self.facts.note("value", self.facts.numbers.get(number._text, "a number"), shown(value), user_line())

    def number_text(self, value: int | float) -> str:
        if not math.isfinite(value) if isinstance(value, float) else value.bit_length() > _BITS:
            return self.constant(value)
        return f"({value!r})" if value < 0 or (value == 0 and math.copysign(1.0, value) < 0) else repr(value)

    def _differs(self, text: str, value: Any) -> str:
        """A condition that holds where `text`, known to be of the type of `value`, is another value."""
        if is_a(value, float):
            if value != value:
                return f"{text} == {text}"
            if value == 0:
                return f"{text} != 0.0 or copysign(1.0, {text}) != {math.copysign(1.0, value)}"
            if math.isinf(value):
                return f"{text} != {'' if value > 0 else '-'}inf"
            return f"{text} != {value!r}"
        if is_a(value, complex):
            return f"repr({text}) != {repr(value)!r}"
        if is_a(value, int):
            return f"{text} != {self.number_text(value)}"
        return f"{text} != {value!r}"

    # -- reading outside values
    def read_handled(self) -> None:
        """The program asks what is being handled: the exception around the call is part of the answer."""
        if self.handled is not None:
            self.stop("impure_call", "asking for the exception that is handled around the call")
        self.namespace["handled"] = sys.exception
        self.miss_if("handled() is not None")

    def raising(self, error: Any) -> Any:
        """`error` is about to be raised; returns it.  Python notes in an exception where it was raised, and what was handled then."""
        if is_a(error, type) and issubclass(error, BaseException):
            return self.call(error, (), {})
        if self.is_outside(error) and is_a(error, BaseException):
            self.stop("raised_again", type(error).__qualname__)
        return error

    def read(
        self,
        value: Any,
        expression: str,
        *,
        called: str = "",
        symbolic: bool = False,
        by_identity: bool = False,
        argument: bool = False,
    ) -> Any:
        """`value` was read from outside as `expression`: guard it, and return it, or a symbolic number for it.  called: what the program
        calls it."""
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
        if symbolic and (cls is int or cls is float) and value == value:
            return self._read_number(value, expression, called)
        if cls in PRIMITIVE_TYPES or is_a(value, np.generic):
            self.guard_value(value, expression)
            self.facts.note("value", called or cls.__name__, shown(value), user_line())
            return value
        known = self.sources.get(id(value))
        if known is not None:
            if known != expression:
                self.miss_if(f"{expression} is not {known}")
            return value if symbolic else self._looked_through(value)
        if self.is_made(value):  # a place was written to in a way that nobody noticed
            self.stop("read_after_change", expression)
            return value
        self.keep.append(value)
        if called:
            self.facts.call(value, called)
        if by_identity or not self._has_path(value):
            name = self.constant(value)
            self.sources[id(value)] = name
            self.miss_if(f"{expression} is not {name}")
            self.facts.note("object", called or cls.__name__, shown(value))
            return value
        self.facts.note("type", called or cls.__name__, cls.__qualname__)
        variable = self.variable()
        self.sources[id(value)] = variable
        self.lines.append(f"{variable} = {expression}")
        if is_a(value, Tensor):
            source = self.tensors[id(value)] = TensorSource(value, variable, argument)
            self.lines.append(source)
        elif cls is FunctionType:
            self.miss_if(
                f"type({variable}) is not {self.constant(cls)} or {variable}.__code__ is not {self.constant(value.__code__)}"
            )
            self.miss_if(f"{variable}.__globals__ is not {self.constant(value.__globals__)}")
            self.paths.append(variable)
        elif cls in (BuiltinFunctionType, MethodWrapperType):
            self.miss_if(f"type({variable}) is not {self.constant(cls)} or {variable}.__name__ != {value.__name__!r}")
        else:
            self.miss_if(f"type({variable}) is not {self.constant(cls)}")
            if cls not in (tuple, frozenset, slice, MethodType, functools.partial):
                self.paths.append(variable)
        if symbolic and is_a(value, tuple):
            self.read_elements(value)
            return value
        return self._looked_through(value)

    def _looked_through(self, value: Any) -> Any:
        """`value`, which something may look at that no handler sees."""
        if is_a(value, (tuple, frozenset)):
            self.read_content(value)
        return value

    def _read_number(self, value: int | float, expression: str, called: str) -> SymbolicNumber:
        variable = self.variable()
        self.facts.numbers[variable] = called or "a number"
        self.facts.note("type", called or "a number", type(value).__name__)
        self.lines.append(f"{variable} = {expression}")
        self.miss_if(f"type({variable}) is not {type(value).__name__}")
        number = self._symbolic[expression] = SymbolicNumber(self, variable, value)
        return number

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

    def guard_value(self, value: Any, expression: str) -> None:
        """A guard that `expression` is this simple value, by type and bits."""
        if value is None or is_a(value, bool) or value is Ellipsis or value is NotImplemented:
            self.miss_if(f"{expression} is not {value!r}")
            return
        variable = self.variable()
        self.lines.append(f"{variable} = {expression}")
        cls = self.constant(type(value)) if is_a(value, np.generic) else type(value).__name__
        if is_a(value, np.generic):
            self.miss_if(f"type({variable}) is not {cls} or repr({variable}) != {repr(value)!r}")
        else:
            self.miss_if(f"type({variable}) is not {cls} or {self._differs(variable, value)}")

    # -- tensors
    def outside_tensor(self, tensor: Tensor, expression: str) -> None:
        """A tensor that each call makes by `expression`, before the program, of something from outside."""
        variable = self.variable()
        self.lines.append(f"{variable} = {expression}")
        self.register(tensor, variable)
        source = self.tensors[id(tensor)] = TensorSource(tensor, variable, False)
        self.lines.append(source)

    def inspect(self, tensor: Any) -> None:
        """Python may have looked at the metadata of `tensor`."""
        source = self.tensors.get(id(tensor))
        if source is not None:
            source.inspected = True

    def inspect_all(self, values: Iterable[Any]) -> None:
        """The same for every tensor in nested local containers."""
        for value in values:
            if is_a(value, Tensor):
                self.inspect(value)
            elif is_a(value, (list, tuple)):
                self.inspect_all(value)
            elif is_a(value, dict):
                self.inspect_all(value.values())

    # -- what handlers call of each other
    def late_binary(self, symbol: str, left: Any, right: Any, value: Any) -> Any:
        raise NotImplementedError

    def late_function(self, function: Any, arguments: tuple[Any, ...], value: Any) -> Any:
        raise NotImplementedError

    def joined(self, parts: tuple[Any, ...], between: str = "") -> Any:
        raise NotImplementedError

    def late_outcome(self, symbol: str, left: Any, right: Any, outcome: bool) -> None:
        raise NotImplementedError

    def index_of(self, key: Any) -> Any:
        raise NotImplementedError

    def generator_method(self, owner: Any, name: str) -> Any:
        raise NotImplementedError

    def raises_again(self, function: Any, arguments: tuple[Any, ...], error: Exception) -> bool:
        raise NotImplementedError

    def late_comparison(self, symbol: str, left: Any, right: Any, outcome: bool) -> Any:
        raise NotImplementedError

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        raise NotImplementedError

    def instrumented(self, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        raise NotImplementedError

    def lookup(self, cls: type, name: str) -> tuple[Any, Any]:
        raise NotImplementedError

    def get_attribute(self, owner: Any, name: str) -> Any:
        raise NotImplementedError

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        raise NotImplementedError

    def plain_set_attribute(self, value: Any, owner: Any, name: str) -> None:
        raise NotImplementedError

    def delete_attribute(self, owner: Any, name: str) -> None:
        raise NotImplementedError

    def get_item(self, owner: Any, key: Any) -> Any:
        raise NotImplementedError

    def set_item(self, value: Any, owner: Any, key: Any) -> None:
        raise NotImplementedError

    def delete_item(self, owner: Any, key: Any) -> None:
        raise NotImplementedError

    def contains(self, element: Any, container: Any) -> bool:
        raise NotImplementedError

    def truth(self, value: Any) -> bool:
        raise NotImplementedError

    def length(self, value: Any) -> Any:
        raise NotImplementedError

    def iterate(self, value: Any, depth: int = 0) -> Any:
        raise NotImplementedError

    def iterator(self, value: Any) -> Any:
        raise NotImplementedError

    def mapping(self, value: Any) -> Any:
        raise NotImplementedError

    def binary(self, symbol: str, left: Any, right: Any, *, in_place: bool = False) -> Any:
        raise NotImplementedError

    def formatted(self, value: Any, conversion: int, specification: str) -> str:
        raise NotImplementedError

    def read_content(self, value: Any, *, deep: bool = False) -> None:
        raise NotImplementedError

    def read_elements(self, value: Any) -> None:
        raise NotImplementedError

    def for_place(self, value: Any) -> Any:
        raise NotImplementedError

    def settled(self, value: Any) -> Any:
        raise NotImplementedError

    def guarded_callback(self, value: Any) -> Any:
        raise NotImplementedError

    def passed_on(self, value: Any) -> Any:
        raise NotImplementedError

    def unwatched(self, action: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def caught(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def native(self, action: Callable[[], Any]) -> Any:
        raise NotImplementedError
