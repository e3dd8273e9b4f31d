"""Iteration, unpacking and context managers.

Python itself iterates over containers, once their content is guarded.  Iterators of user code are advanced through the
recorder.  An iterator from outside stops the recording, because it cannot be replayed.
"""

from __future__ import annotations

import array
import collections
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat, takewhile
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from tracejit.capture.defects import CONSUMED, isolated_call, isolated_context
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain_value, stand_in_iterator
from tracejit.capture.handlers.symbols import concretise, is_symbolic
from tracejit.capture.policies import DICT_VIEWS, builtin_base, is_a, is_library_module, is_user_instance
from tracejit.capture.syntax.convert import is_instrumented
from tracejit.capture.tracebacks import without_handlers
from tracejit.capture.value_kinds import STAND_INS, Kind, by_kind, kind_of
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["IterationHandlers", "RecordedContext", "UnpackPattern"]

UnpackPattern = tuple[Any, ...] | None
"""How a value is unpacked, as `target_pattern` of capture/syntax/expressions.py gives it: None for not at all; else the pattern
of each part, `...` for the starred one.  () stands for all elements, as in `f(*a)`."""

_Iterators = type[Iterator[Any]]
_OF_LISTS: _Iterators = type(iter([]))
_OF_CONSTANTS: tuple[_Iterators, ...] = (type(iter(())), type(iter(range(0))))
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, collections.deque, array.array)
_LISTED = 1 << 17
"""At most so many elements of `enumerate` and `zip` are created before the first step of a loop.  A loop over more may end long
before the last one."""


def _has_parts(pattern: tuple[Any, ...]) -> bool:
    """Whether some elements are unpacked themselves, as in `a, (b, c) = value`."""
    return any(type(part) is tuple for part in pattern)


class _UnpackedPart:
    """An element that is unpacked itself and has an `__iter__` of its own, which is called when Python comes to the element."""

    __slots__ = ("_pattern", "_unpack", "_value")

    def __init__(self, unpack: Callable[[Any, UnpackPattern], Any], value: Any, pattern: UnpackPattern) -> None:
        self._unpack, self._value, self._pattern = unpack, value, pattern

    def __iter__(self) -> Iterator[Any]:
        return iter(self._unpack(self._value, self._pattern))


class IterationHandlers(Handlers):
    """`for x in a`, `a, b = c`, `f(*a)`, `with a`."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.rows: set[int] = set()  # ids of private lists of the rows of a tensor, to which user code has no reference

    def iterate(self, value: Any, pattern: UnpackPattern = None) -> Any:
        """An iterable that Python's own loop may consume in place of `value`.  pattern: how its elements are unpacked."""
        return _ITERATED[kind_of(value)](self, value, pattern)

    def _iterate_plain(self, value: Any, pattern: UnpackPattern) -> Any:
        """By Python itself, which raises its error if there is nothing to iterate over."""
        return value

    def _iterate_stand_in(self, value: Any, pattern: UnpackPattern) -> Any:
        return self.iterate(concretise(value), pattern)

    def _iterate_tensor(self, value: Any, pattern: UnpackPattern) -> Any:
        recorder = self.recorder
        recorder.inspect(value)
        if not value.ndim:
            return value
        rows = recorder.mark_created(recorder.containers.native(lambda: recorder.interpreter.rows(value)))
        self.rows.add(id(rows))
        return rows

    def _iterate_array(self, value: Any, pattern: UnpackPattern) -> Any:
        recorder = self.recorder
        if not recorder.arrays.asks_array((value,)):
            return self._iterate_object(value, pattern)
        if recorder.is_outside(value) and value.ndim:
            concretise(recorder.containers.length(value))
        elements = recorder.arrays.array_elements(value)
        return value if elements is None else self.iterate(recorder.mark_created(elements), pattern)

    def _iterate_container(self, value: Any, pattern: UnpackPattern) -> Any:
        """By Python itself, once the content is guarded."""
        self.recorder.contents.check_order(value)
        values = self.recorder.contents.elements(value)
        return values if pattern is None else self._unpacked(values, pattern)

    def _iterate_object(self, value: Any, pattern: UnpackPattern) -> Any:
        """By its iterator, unless its class derives from a container and has none of its own."""
        recorder = self.recorder
        if (is_a(value, _CONTAINERS) and not self._has_own_iterator(value)) or recorder.contents.viewed(value) is not value:
            return self._iterate_container(value, pattern)
        if not (hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")):
            return value  # Python raises its error
        iterator = self.iterator(value)
        if is_user_instance(iterator):
            step = recorder.attributes.method(iterator, "__next__")
            if step is not None:
                iterator = stand_in_iterator(iterator, self._stepped(iterator, step))
        elif not (is_a(iterator, GeneratorType) and is_instrumented(iterator.gi_code)):
            iterator = self._elements(iterator)
        return iterator if pattern is None else self._unpacked(iterator, pattern)

    def fixed(self, value: Any, elements: Any, passing: bool) -> Sequence[Any] | None:
        """The elements of a loop over `value`, if nothing can change them during the loop; else None.

        elements: the iterable that the loop consumes.  passing: whether the loop has the only reference to `value`."""
        is_own_tuple = type(elements) is tuple and not self.recorder.is_outside(elements)
        if type(elements) is range:
            return elements if len(elements[: sys.maxsize]) < sys.maxsize else None  # a longer one has no len()
        if is_own_tuple or id(elements) in self.rows:
            return elements  # type: ignore[no-any-return]
        if passing and type(value) in (enumerate, zip) and 0 <= self._fixed_count(value) <= _LISTED:
            return [self.recorder.mark_created(element) for element in value]
        return None

    def _fixed_count(self, iterator: Any) -> int:
        """The number of elements that are left of an iterator, if nothing can change them; else -1."""
        cls = type(iterator)
        if cls in (enumerate, zip):
            _, parts, *rest = iterator.__reduce__()
            counts = [] if rest else list(map(self._fixed_count, parts[:1] if cls is enumerate else parts))
            return min(counts, default=-1)
        is_fixed = id(iterator.__reduce__()[1][0]) in self.rows if cls is _OF_LISTS else cls in _OF_CONSTANTS
        return operator.length_hint(iterator) if is_fixed else -1

    def _elements(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """The elements of an iterator of code that runs natively.  Tuples are new; other elements need an origin."""
        created, known = self.recorder.mark_created, self.recorder.require_known
        return self.converted(iterator, lambda element: known(created(element) if type(element) is tuple else element))

    def converted(self, values: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
        """An iterator over change(x) for x in `values`; once the recording has stopped, over the plain elements."""
        original = iter(values)
        return stand_in_iterator(original, self._converted(original, change))

    def _converted(self, original: Iterator[Any], change: Callable[[Any], Any]) -> Iterator[Any]:
        for element in original:
            if self.recorder.stopped:
                yield plain_value(element)
                continue
            changed = isolated_call(self.recorder, partial(change, element), partial(plain_value, element), change)
            self._note_consumed()
            yield changed

    def _note_consumed(self) -> None:
        """Note that an element was taken from an iterator, which cannot be repeated (defects.py)."""
        if not self.recorder.stopped:
            self.recorder.performed.append((CONSUMED, None))

    def _unpacked(self, values: Any, pattern: UnpackPattern) -> Iterator[Any]:
        return self.converted(values, lambda element: self.unpack(element, pattern))

    def _has_own_iterator(self, value: Any) -> bool:
        return is_user_instance(value) and self.recorder.attributes.method(value, "__iter__") is not None

    def _stepped(self, iterator: Any, step: Callable[[Any], Any]) -> Iterator[Any]:
        """The elements of an iterator of user code, whose `__next__` is `step`."""
        while True:
            try:
                if self.recorder.stopped:
                    value = next(iterator)
                else:
                    action = partial(self.recorder.calls.call, step, (iterator,), {})
                    value = isolated_call(self.recorder, action, partial(next, iterator), step)
                    self._note_consumed()
            except StopIteration:
                return
            yield value

    def iterator(self, value: Any) -> Any:
        """iter(value)."""
        recorder = self.recorder
        value = concretise(value)
        if is_user_instance(value) and not is_a(value, Tensor):
            method = recorder.attributes.method(value, "__iter__")
            if method is not None:
                return self._checked(recorder.calls.call(method, (value,), {}))
            if not is_a(value, _CONTAINERS):
                if hasattr(type(value), "__next__") and recorder.is_outside(value):
                    recorder.stop("external_iterator", f"a {type(value).__name__}")
                elif recorder.attributes.method(value, "__getitem__") is not None:
                    original = iter(value)
                    return stand_in_iterator(original, self._by_index(original, value))
                return iter(value)
        if is_a(value, Tensor):
            rows = self.iterate(value)
            return iter(rows if rows is value else recorder.mark_created(tuple(rows)))
        if is_a(value, (*_CONTAINERS, *DICT_VIEWS)):
            recorder.contents.check_order(value)
            return iter(recorder.contents.elements(value))
        if not is_a(value, (str, range, bytes)) and self._is_foreign(value):
            recorder.stop("external_iterator", f"a {type(value).__name__}")
        return iter(value)

    def _checked(self, iterator: Any) -> Any:
        """`iterator`, a result of `__iter__`; Python's TypeError if it is no iterator."""
        return (
            iterator if hasattr(type(iterator), "__next__") else self.recorder.perform(lambda: iter(SpecialMethodStub(iterator)))
        )

    def _is_foreign(self, value: Any) -> bool:
        """Whether `value` is an iterator from outside, or an iterable of C code of which nothing is known."""
        cls = type(value)
        is_inside = hasattr(cls, "__next__") and not self.recorder.is_outside(value)
        return not is_inside and (hasattr(cls, "__iter__") or hasattr(cls, "__getitem__"))

    def _by_index(self, original: Any, value: Any) -> Iterator[Any]:
        """Iteration by the sequence protocol: `value[0]`, `value[1]` ... until IndexError.  original: Python's iterator, which is
        kept at the same position for the case that the recording stops."""
        index = 0
        while not self.recorder.stopped:
            try:
                action, retry = partial(self.recorder.containers.get_item, value, index), partial(operator.getitem, value, index)
                element = isolated_call(self.recorder, action, retry, type(value).__getitem__)
                self._note_consumed()
            except IndexError:
                return
            index += 1
            original.__setstate__(index)
            yield element
        yield from original

    def advance(self, iterator: Any, *default: Any) -> Any:
        """next(iterator, default)."""
        recorder = self.recorder
        iterator = concretise(iterator)
        step = recorder.attributes.method(iterator, "__next__") if is_user_instance(iterator) else None
        if step is not None:
            try:
                return recorder.calls.call(step, (iterator,), {})
            except StopIteration:
                if default:
                    return default[0]
                raise
        if recorder.is_outside(iterator):
            recorder.stop("external_iterator", f"a {type(iterator).__name__}")
        return recorder.mark_created(recorder.perform(lambda: next(iterator, *default)))

    def unpack(self, value: Any, pattern: UnpackPattern) -> Any:
        """An iterable that Python's own assignment may unpack in place of `value`, as `pattern` says."""
        value = concretise(value)
        if pattern is None or is_a(value, (str, bytes, range)):
            return value
        if is_a(value, (list, tuple)) and not self._has_own_iterator(value):
            values = self.recorder.contents.elements(value)
            if _has_parts(pattern):
                values = tuple(values)
                before = pattern.index(...) if ... in pattern else len(pattern)
                after = pattern[before + 1 :]
                skipped = (None,) * (len(values) - before - len(after))
                values = list(map(self._part, values, (*pattern[:before], *skipped, *after)))
            return values if is_a(values, (list, tuple)) else tuple(values)
        values = self.iterate(value)
        if not _has_parts(pattern) or not hasattr(type(values), "__iter__") or is_a(values, Tensor):
            return values
        patterns = chain(takewhile(lambda part: part is not ..., pattern), repeat(None))  # the number of elements is not known
        return self.converted(values, lambda part: self._part(part, next(patterns)))

    def _part(self, value: Any, pattern: UnpackPattern) -> Any:
        """`value`, one element of an unpacked value, in a form that Python may unpack as `pattern` says."""
        if pattern is None or is_symbolic(value):
            return value
        if is_a(value, (list, tuple)) and not self._has_own_iterator(value):
            return self.unpack(value, pattern)
        return _UnpackedPart(self.unpack, value, pattern) if self._has_own_iterator(value) else value

    def mapping(self, value: Any, *, asks_items: bool = False) -> Any:
        """A mapping that C code may read in place of `value`, for `f(**value)` or `dict(value)`.

        C code reads a subclass of dict without calling its methods, unless it overrides `__iter__`.  asks_items: for the C code
        of OrderedDict, which calls them."""
        recorder = self.recorder
        value = concretise(value)
        if is_a(value, dict) and (not is_user_instance(value) or (not asks_items and self._is_merged_as_it_is(value))):
            recorder.contents.read_elements(value)
            if not recorder.effects.stored_by_container.get(id(value)):
                return value
            return {
                key: recorder.effects.stored.get((id(value), key), item) for key, item in builtin_base(type(value)).items(value)
            }
        if not hasattr(type(value), "keys"):
            return value  # Python raises its error
        keys = recorder.calls.call(recorder.attributes.get_attribute(value, "keys"), (), {})
        return {key: recorder.containers.get_item(value, key) for key in self.iterate(keys)}

    def _is_merged_as_it_is(self, value: Any) -> bool:
        return self.recorder.attributes.lookup(type(value), "__iter__")[0] is vars(dict)["__iter__"]

    def context(self, manager: Any) -> Any:
        """The context manager that a `with` statement enters in place of `manager`."""
        recorder = self.recorder
        special = recorder.locking.entered(manager) or recorder.outside_calls.entered(manager)
        if special is not None:
            return special
        manager = concretise(manager)
        cls = type(manager)
        if not (hasattr(cls, "__enter__") and hasattr(cls, "__exit__")):
            return manager  # Python raises its error
        if is_library_module(cls.__module__):
            return manager
        if is_user_instance(manager):
            recorder.effects.handles_in_blocks = True
            return RecordedContext(self.recorder, manager)
        recorder.stop("impure_call", f"with {cls.__name__}")
        return manager


_ITERATED = by_kind(
    IterationHandlers._iterate_object,
    {
        IterationHandlers._iterate_plain: (Kind.PLAIN, Kind.TEXT, Kind.MODELLED),
        IterationHandlers._iterate_stand_in: STAND_INS,
        IterationHandlers._iterate_container: (Kind.SET, Kind.MAPPING, Kind.SEQUENCE),
        IterationHandlers._iterate_array: (Kind.ARRAY_SUBCLASS, Kind.ARRAY),
        IterationHandlers._iterate_tensor: (Kind.TENSOR,),
    },
)


@isolated_context
class RecordedContext:
    """Enters and leaves a context manager of user code through the recorder."""

    __slots__ = ("_exit", "_manager", "_recorder")

    def __init__(self, recorder: Recorder, manager: Any) -> None:
        self._recorder = recorder
        self._manager = manager

    @property
    def manager(self) -> Any:
        return self._manager

    def __enter__(self) -> Any:
        recorder, manager = self._recorder, self._manager
        enter = recorder.attributes.method(manager, "__enter__")
        self._exit = recorder.attributes.method(manager, "__exit__")
        if enter is not None:
            return recorder.calls.call(enter, (manager,), {})
        return recorder.require_known(recorder.mark_created(recorder.perform(lambda: type(manager).__enter__(manager))))

    def __exit__(self, *exception: Any) -> bool:
        recorder, manager = self._recorder, self._manager
        if recorder.stopped:
            without_handlers(exception[1])
            return bool(type(manager).__exit__(manager, *exception))
        recorder.note_caught(exception[1])
        without_handlers(exception[1])
        if self._exit is not None:
            return recorder.operators.truth(recorder.calls.call(self._exit, (manager, *exception), {}))
        return bool(type(manager).__exit__(manager, *exception))
