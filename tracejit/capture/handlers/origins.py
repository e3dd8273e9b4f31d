"""Where objects are from: what an expression of the prologue reaches again, and what this run has made.

An object in `sources` is outside: its expression, evaluated in the prologue, reaches it again.  An object in `_made` is the run's own.
What is neither, and has a state, comes from somewhere that no guard knows of: it is not `require_known` into instrumented code, the
recording stops.  So no handler can forget where an object is from.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Mapping
from types import CodeType, GeneratorType, MethodType, ModuleType, TracebackType
from typing import Any

import numpy as np

from tracejit.capture.handlers.stand_ins import without_stand_ins
from tracejit.capture.handlers.symbols import MethodOf, ObjectIdentity, SuperProxy, SymbolicNumber
from tracejit.capture.policies import DICT_VIEWS, IDENTITY_TYPES, PRIMITIVE_TYPES, bound_to, builtin_base, has_plain_state, is_a
from tracejit.capture.recording.journal import Journal, Topic
from tracejit.capture.values import MODELS
from tracejit.core.dtypes import DType
from tracejit.core.symbolic import SYMBOLIC
from tracejit.replay.ir import Expr, Name
from tracejit.tensor import Tensor

__all__ = ["CONTAINER_TYPES", "Origins"]

CONTAINER_TYPES: tuple[type, ...] = (
    list, dict, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict, collections.deque,
)  # fmt: skip
_STATELESS = frozenset(
    {
        *PRIMITIVE_TYPES, *SYMBOLIC, SymbolicNumber, ObjectIdentity, MethodOf, SuperProxy, CodeType, DType, *MODELS,
    }
)  # fmt: skip
"""Types of values that cannot change, and lead nowhere."""
_PASSING: tuple[type, ...] = (BaseException, TracebackType, GeneratorType, *DICT_VIEWS)
"""Types of objects that Python itself makes as it goes along.  They are not kept: it matters when they go."""
_NOT_KEPT: tuple[type, ...] = (*_PASSING, Tensor)
_EXPLAINING: tuple[type, ...] = (*_PASSING, np.generic, np.dtype)
_SHARED: tuple[type, ...] = (enum.Enum, type, ModuleType)


def _is_shared(value: Any) -> bool:
    """Whether Python has one such object, whoever makes one."""
    return (type(value) is tuple or type(value) is frozenset) and not value


class Origins:
    """Which objects are known, and how."""

    stopped: bool
    values: Mapping[int, int]  # the interpreter's: ids of the tensors of the program
    tensors: Mapping[int, Any]
    deferred: Mapping[int, Any]  # the interpreter's: by id, tensors of the program that are recorded where somebody needs them

    def __init__(self) -> None:
        self.journal = Journal()
        self.sources: dict[int, Expr] = self.journal.dictionary(Topic.READS)
        self.keep: list[Any] = []  # whatever is known by its id lives as long as the recording
        self.has_released = False  # whether `keep` was given up, so that ids say nothing more
        self.created: dict[int, Any] = {}

    def is_outside(self, value: Any) -> bool:
        return id(value) in self.sources and not self.has_released

    def register(self, value: Any, expression: Expr) -> None:
        """`value` is an outside object that `expression` reaches; no guard is added."""
        self.sources[id(value)] = expression
        self.keep.append(value)

    def mark_fixed(self, value: Any) -> Any:
        """`value` is the very object that every call finds for which the guards so far hold, or what this run has made; returns it."""
        if type(value) not in _STATELESS and not self._is_known(value):
            self.register(value, self.constant(value))
        return value

    def mark_created(self, value: Any) -> Any:
        """`value` was made by this run, as were the containers in it of which nothing is known yet.  Returns it.  Containers may hold
        symbolic numbers, until something that is no code of the program looks into them, or the recording is over."""
        if self.stopped:
            return without_stand_ins(value, nested=False)
        cls = type(value)
        if cls in _STATELESS or issubclass(cls, _NOT_KEPT) or self._is_known(value) or self._is_iterator(cls):
            return value
        if _is_shared(value):
            return value
        self.created[id(value)] = value
        if is_a(value, (list, tuple, set, frozenset, collections.deque)):
            for element in builtin_base(cls).__iter__(value):
                if is_a(element, CONTAINER_TYPES):
                    self.mark_created(element)
        elif is_a(value, dict):
            for element in dict.values(value):
                if is_a(element, CONTAINER_TYPES):
                    self.mark_created(element)
        return value

    def is_created(self, value: Any) -> bool:
        """Whether this run made `value`."""
        return id(value) in self.created or (id(value) in self.values and id(value) not in self.tensors)

    def _is_known(self, value: Any) -> bool:
        return id(value) in self.sources or id(value) in self.created

    @staticmethod
    def _is_iterator(cls: type) -> bool:
        """Whether instances are iterators of C code, which are used up where they were made."""
        return hasattr(cls, "__next__") and not has_plain_state(cls)

    def require_known(self, value: Any) -> Any:
        """`value`, on its way into instrumented code: the recording stops if nobody has said where it is from."""
        if type(value) in _STATELESS or self.stopped or id(value) in self.values or self.knows_origin(value):
            return value
        if is_a(value, Tensor):
            self.stop("tensor_origin", f"shape {list(value._array.shape)}")
        else:
            self.stop("unknown_origin", f"a {type(value).__module__}.{type(value).__qualname__}")
        return value

    def knows_origin(self, value: Any) -> bool:
        known = self._is_known(value) or id(value) in self.values or id(value) in self.deferred
        return (
            type(value) in _STATELESS
            or known
            or self._explains_itself(value)
            or (is_a(value, Tensor) and self.is_saved_output(value))
        )

    def _explains_itself(self, value: Any) -> bool:
        cls: Any = type(value)
        if issubclass(cls, _EXPLAINING) or self._is_iterator(cls) or _is_shared(value):
            return True
        if issubclass(cls, _SHARED):  # of which there is one, whatever leads to it
            self.mark_fixed(value)
            return True
        if cls is MethodType:
            return self.knows_origin(value.__func__) and self.knows_origin(value.__self__)
        if cls is slice:
            return all(map(self.knows_origin, (value.start, value.stop, value.step)))
        return is_a(value, IDENTITY_TYPES) and self.knows_origin(bound_to(value))

    # -- what it asks of the rest of the recorder
    def is_saved_output(self, tensor: Tensor) -> bool:
        """Whether the tape has made a tensor of the program anew: an output that a node has saved."""
        raise NotImplementedError

    def stop(self, code: str, detail: str) -> None:
        raise NotImplementedError

    def constant(self, value: Any) -> Name:
        raise NotImplementedError
