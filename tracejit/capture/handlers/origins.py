"""The origin of each object of a recording: outside, or created by this run.

An object in `sources` is outside: in each call its expression, evaluated in the prologue, reaches the object of that call.  An
object in `created` was created by this run.  An object with a state that is in neither has an origin that no guard covers:
`require_known` stops the recording before such an object gets into instrumented code.  So no handler can forget an origin.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Mapping
from types import CodeType, GeneratorType, MethodType, ModuleType, TracebackType
from typing import Any, Protocol

import numpy as np

from tracejit.capture.handlers.stand_ins import without_stand_ins
from tracejit.capture.handlers.symbols import MethodOf, ObjectIdentity, SuperProxy, SymbolicNumber
from tracejit.capture.policies import (
    DICT_VIEWS,
    IDENTITY_TYPES,
    PRIMITIVE_TYPES,
    bound_to,
    builtin_base,
    has_method,
    has_plain_state,
    is_a,
)
from tracejit.capture.recording.journal import Journal, Topic
from tracejit.capture.values import MODELS
from tracejit.core.dtypes import DType
from tracejit.core.symbolic import SYMBOLIC
from tracejit.replay.ir import Expr, Name
from tracejit.tensor import Tensor

__all__ = ["CONTAINER_TYPES", "Origins", "ReachedList"]

CONTAINER_TYPES: tuple[type, ...] = (
    list, dict, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict, collections.deque,
)  # fmt: skip
_STATELESS = frozenset(
    {
        *PRIMITIVE_TYPES, *SYMBOLIC, SymbolicNumber, ObjectIdentity, MethodOf, SuperProxy, CodeType, DType, *MODELS,
    }
)  # fmt: skip
"""Types of values that cannot change and refer to no other objects."""
_TRANSIENT: tuple[type, ...] = (BaseException, TracebackType, GeneratorType, *DICT_VIEWS)
"""Types of objects that Python creates as it runs.  They are not kept alive, because their deletion may be visible."""
_NOT_KEPT: tuple[type, ...] = (*_TRANSIENT, Tensor)
"""Types whose objects are not noted as created.  (`values` has the tensors.)"""
_KEPT = frozenset({MethodType, *CONTAINER_TYPES})
"""Types of most objects that are noted as created: a quick test."""
_WITHOUT_ELEMENTS = _STATELESS | {Tensor}
"""Types of most elements that are no containers: a quick test."""
_ANY_ORIGIN: tuple[type, ...] = (*_TRANSIENT, np.generic, np.dtype)
"""Types whose objects need no origin."""
_SHARED: tuple[type, ...] = (enum.Enum, type, ModuleType)
"""Types whose objects are the same object in each call, whatever expression reaches them."""


def _is_singleton(value: Any) -> bool:
    """Whether `value` is an empty tuple or frozenset, of which Python has one object each."""
    return (type(value) is tuple or type(value) is frozenset) and not value


class ReachedList(Protocol):
    """A list that is not as the program would see it: it lacks items, or has rows of tensors for them."""

    def add(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """A method that adds items is called.  Returns whether that is all there is to do."""
        ...

    def join(self, function: Any, others: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """function(the list, *others, **keywords), where that is known without making items of rows; else None."""
        ...

    def look(self) -> None:
        """See to it that code may look at the list, or change it."""
        ...


class Origins:
    """The tables of outside and created objects: the base class of `Recorder`."""

    stopped: bool
    values: Mapping[int, int]  # of the interpreter: id of a tensor of the program -> its value in the graph
    tensors: Mapping[int, Any]  # id of a tensor from outside -> its TensorSource
    deferred: Mapping[int, Any]  # of the interpreter, by id: tensors of the program that are recorded when they are first used

    def __init__(self) -> None:
        self.journal = Journal()
        self.sources: dict[int, Expr] = self.journal.dictionary(Topic.READS)
        self.keep: list[Any] = []  # objects that are in tables by their ids, kept alive until the recording ends
        self.has_released = False  # whether `keep` was cleared, so that ids identify nothing any more
        self.created: dict[int, Any] = {}
        # Lists that lack items, or have rows for them, by their ids: see the module docstring of reached_lists.py.
        self.reached: dict[int, ReachedList] = {}
        self.appended: list[list[Any]] = self.journal.list(Topic.INDEX)  # the lists that the program has appended to, in order

    def is_outside(self, value: Any) -> bool:
        """Whether `value` is from outside.  Who asks is about to look at it, or to change it."""
        if self.reached and id(value) in self.reached:
            self.reached[id(value)].look()
        return id(value) in self.sources and not self.has_released

    def is_opaque(self, value: Any) -> bool:
        """Whether a walk through what the call has made does not go into `value`: it is from outside, or one of `reached`.  Unlike
        `is_outside`, this is no look at the list."""
        return id(value) in self.reached or self.is_outside(value)

    def register(self, value: Any, expression: Expr) -> None:
        """Register `value` as an outside object that `expression` reaches.  No guard is added."""
        self.sources[id(value)] = expression
        self.keep.append(value)

    def mark_fixed(self, value: Any) -> Any:
        """Register `value` as a constant: each call for which the guards hold has this very object.  No effect if it has an
        origin.  Returns it."""
        if type(value) not in _STATELESS and not self._is_registered(value):
            self.register(value, self.constant(value))
        return value

    def mark_created(self, value: Any) -> Any:
        """Register `value`, and containers in it that have no origin, as created by this run.  Returns it.  Created containers
        may hold stand-ins until other code than user code looks into them or the recording ends."""
        if self.stopped:
            return without_stand_ins(value, nested=False)
        cls = type(value)
        if cls not in _KEPT and (cls in _STATELESS or issubclass(cls, _NOT_KEPT) or self._is_iterator(cls)):
            return value
        if self._is_registered(value) or _is_singleton(value):
            return value
        self.created[id(value)] = value
        if cls is MethodType:
            return value
        is_sequence = is_a(value, (list, tuple, set, frozenset, collections.deque))
        if is_sequence or is_a(value, dict):
            for element in builtin_base(cls).__iter__(value) if is_sequence else dict.values(value):
                if type(element) not in _WITHOUT_ELEMENTS and is_a(element, CONTAINER_TYPES):
                    self.mark_created(element)
        return value

    def is_created(self, value: Any) -> bool:
        """Whether this run has created `value`."""
        return id(value) in self.created or (id(value) in self.values and id(value) not in self.tensors)

    def _is_registered(self, value: Any) -> bool:
        return id(value) in self.sources or id(value) in self.created

    @staticmethod
    def _is_iterator(cls: type) -> bool:
        """Whether instances are iterators of C code.  (They are consumed where they were created.)"""
        return has_method(cls, "__next__") and not has_plain_state(cls)

    def require_known(self, value: Any) -> Any:
        """`value`, which instrumented code is about to get.  The recording stops if its origin is unknown."""
        key = id(value)
        if type(value) in _STATELESS or key in self.sources or key in self.created or key in self.values or self.stopped:
            return value
        if self.knows_origin(value):
            return value
        if is_a(value, Tensor):
            self.stop("tensor_origin", f"shape {list(value._array.shape)}")
        else:
            self.stop("unknown_origin", f"a {type(value).__module__}.{type(value).__qualname__}")
        return value

    def knows_origin(self, value: Any) -> bool:
        """Whether `value` has an origin, needs none, or consists of objects for which this holds."""
        return (
            type(value) in _STATELESS
            or self._is_registered(value)
            or id(value) in self.values
            or id(value) in self.deferred
            or self._needs_no_origin(value)
            or (is_a(value, Tensor) and self.is_saved_output(value))
        )

    def _needs_no_origin(self, value: Any) -> bool:
        cls: Any = type(value)
        if issubclass(cls, _ANY_ORIGIN) or self._is_iterator(cls) or _is_singleton(value):
            return True
        if issubclass(cls, _SHARED):
            self.mark_fixed(value)
            return True
        if cls is MethodType:
            return self.knows_origin(value.__func__) and self.knows_origin(value.__self__)
        if cls is slice:
            return all(map(self.knows_origin, (value.start, value.stop, value.step)))
        return is_a(value, IDENTITY_TYPES) and self.knows_origin(bound_to(value))

    # -- methods of the recorder
    def is_saved_output(self, tensor: Tensor) -> bool:
        """Whether `tensor` is a new object for a tensor of the program, which the tape made of a saved output."""
        raise NotImplementedError

    def stop(self, code: str, detail: str) -> None:
        raise NotImplementedError

    def constant(self, value: Any) -> Name:
        raise NotImplementedError
