"""Functions of `operator`, `heapq`, `bisect`, `collections`, `itertools`, `re` and `copy` that look into their arguments.

Other handlers do what such a function does: they read an item as an item and an attribute as an attribute.  Functions of heaps
and sorted lists are called once the content of the list is guarded; their changes of a list from outside are effects.
"""

from __future__ import annotations

import _heapq
import bisect
import collections
import contextvars
import copy
import copyreg
import heapq
import itertools
import operator
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tracejit.capture.handlers.base import ABSENT, CallHandler, Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain, plain_value
from tracejit.capture.handlers.symbols import ObjectIdentity, concretise, is_symbolic
from tracejit.capture.handlers.texts import is_open
from tracejit.capture.policies import PRIMITIVE_TYPES, has_plain_state, instance_dictionary, is_a
from tracejit.replay.ir import Name, tuple_of
from tracejit.tensor import Tensor

__all__ = ["GETTERS", "StandardCallHandlers"]

GETTERS: tuple[type, ...] = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_IN_ORDER = frozenset(
    {
        heapq.heappush, heapq.heappop, heapq.heapify, heapq.heapreplace, heapq.heappushpop, bisect.bisect_left, bisect.bisect_right,
        bisect.insort_left, bisect.insort_right,
        *(getattr(_heapq, name) for name in ("_heapify_max", "_heappop_max", "_heapreplace_max") if hasattr(_heapq, name)),
    }
)  # fmt: skip
"""Functions of sorted lists and of heaps."""
_REDUCED_BY_CONTENTS: tuple[type, ...] = (collections.OrderedDict, collections.defaultdict, collections.deque)
_BISECTING = (bisect.bisect_left, bisect.bisect_right)
_WARNING = sys.version_info >= (3, 13)
_EXPRESSIONS: dict[Any, int] = {
    **dict.fromkeys((re.match, re.fullmatch, re.search, re.findall, re.finditer), 3),
    re.compile: 2, re.split: 2 if _WARNING else 4, re.sub: 3 if _WARNING else 5, re.subn: 3 if _WARNING else 5,
}  # fmt: skip
"""Function of `re` -> the number of positional arguments that it accepts without a warning."""


_CLOCKS = frozenset(
    {
        time.time, time.perf_counter, time.monotonic, time.process_time, time.thread_time, time.time_ns, time.perf_counter_ns,
        time.monotonic_ns, time.process_time_ns, time.thread_time_ns,
    }
)  # fmt: skip


_HEAPING = {heapq.heappush: 2, heapq.heappop: 1}
"""Functions of a heap that can be deferred -> the number of their arguments."""
_LARGEST = 1000
"""Heaps of more items are not inspected in each call."""


def heap_kind(items: list[Any]) -> type | None:
    """The kind of the items of a heap: int for numbers, tuple for tuples of numbers, whose comparisons cannot raise; bool for
    other items or too many of them; None if there are none."""
    if not items:
        return None
    if len(items) <= _LARGEST:
        if all(type(item) in (int, float) for item in items):
            return int
        if all(type(item) is tuple and all(type(part) in (int, float) for part in item) for item in items):
            return tuple
    return bool


class StandardCallHandlers(Handlers):
    """`itemgetter(0)(row)`, `heappush(heap, v)`, `chain.from_iterable(rows)` ..."""

    def call_getter(self, getter: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """getter(owner), for an itemgetter, attrgetter or methodcaller."""
        recorder = self.recorder
        if len(arguments) != 1 or keywords:
            return getter(*arguments, **keywords)  # raises Python's error
        make, parts = getter.__reduce__()
        options: dict[str, Any] = {}
        if make is not type(getter):  # a methodcaller with keywords reduces to a partial
            options, parts = make.keywords, (*make.args, *parts)
        if not all(recorder.knows_origin(part) for part in (*parts, *options.values())):
            recorder.stop("unknown_origin", f"what a {type(getter).__name__} holds")
        (owner,) = arguments
        if is_a(getter, operator.methodcaller):
            name, *rest = parts
            return recorder.calls.call(recorder.attributes.get_attribute(owner, name), tuple(rest), options)
        read = self._dotted_attribute if is_a(getter, operator.attrgetter) else recorder.containers.get_item
        values = tuple([recorder.require_known(read(owner, part)) for part in parts])
        return values[0] if len(values) == 1 else recorder.mark_created(values)

    def _dotted_attribute(self, owner: Any, names: str) -> Any:
        for name in names.split("."):
            owner = self.recorder.require_known(self.recorder.attributes.get_attribute(owner, name))
        return owner

    def _in_order(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function of heapq or bisect on plain values, except for the two cases that `_bisected` and `_heaped` handle."""
        recorder = self.recorder
        if function in _BISECTING and len(arguments) == 2 and not keywords and is_symbolic(arguments[1]):
            return self._bisected(function, *arguments)
        if function in _HEAPING and not keywords and self._is_open_heap(function, arguments):
            return self._heaped(function, *arguments)
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
        for value in (*arguments, *keywords.values()):
            recorder.contents.read_content(value, deep=True)
        owner: Any = arguments[0] if arguments else None
        if not is_a(owner, list) or recorder.containers.has_objects(*arguments) or callable(keywords.get("key")):
            recorder.stop("unknown_call", f"{function.__name__}() of objects")
            return function(*arguments, **keywords)
        before = list(list.__iter__(owner))
        result = recorder.containers.native(lambda: function(*arguments, **keywords))
        after = list(list.__iter__(owner))
        if recorder.is_outside(owner) and (len(before) != len(after) or any(map(operator.is_not, before, after))):
            recorder.containers.change(owner, "__setitem__", slice(None), recorder.mark_created(after))
        return recorder.require_known(result)

    def _is_open_heap(self, function: Any, arguments: tuple[Any, ...]) -> bool:
        """Whether `_heaped` can do the call: the heap is from outside, has numbers or tuples of numbers, and nothing but its
        length has been read, and the call pushes a post-program number or pops after such a push."""
        recorder = self.recorder
        if len(arguments) != _HEAPING[function] or type(arguments[0]) is not list or not recorder.is_outside(arguments[0]):
            return False
        owner, *items = arguments
        if (
            id(owner) in recorder.effects.content_guarded
            or recorder.sequences.is_written(owner)
            or not (items or id(owner) in recorder.contents.reordered)
        ):
            return False
        if items and not any(
            map(is_post_program, (part for item in items for part in (item if type(item) is tuple else (item,))))
        ):
            return False
        return heap_kind([*map(plain_value, items), *list.__iter__(owner)]) in (int, tuple)

    def _heaped(self, function: Any, owner: list[Any], *items: Any) -> Any:
        """heappush(owner, item) or heappop(owner), deferred: the positions of the items are known when the program has run."""
        recorder = self.recorder
        source, kind = recorder.sources[id(owner)], heap_kind([*map(plain_value, items), *list.__iter__(owner)])
        kind_then = recorder.constant(heap_kind).call(source)
        recorder.miss_if(tuple_of(None, recorder.constant(kind)).lacks(kind_then))
        ends = recorder.sequences.ends_of(owner)
        recorder.effects.note_change(owner)
        if not items:
            recorder.sequences.at_least(owner, 1 - ends.growth)
        recorder.contents.reordered.add(id(owner))
        result = function(owner, *map(plain_value, items))
        stand_in = (
            None if items else recorder.extracted_numbers.stand_in_for_result(result, "impure_call", f"{function.__name__}()")
        )
        recorder.effects.note_hit(FunctionCall(function, (owner, *items), {}, result=stand_in))
        if items:
            ends.push("append", list(items))
            return result
        ends.pop(left=False)
        return stand_in

    def _bisected(self, function: Any, values: Any, number: Any) -> int:
        """bisect_left or bisect_right of a symbolic number: each comparison of the search is guarded."""
        recorder = self.recorder
        low, high = 0, recorder.containers.length(values)
        while low < high:
            middle = (low + high) // 2
            item = recorder.containers.get_item(values, middle)
            if function is bisect.bisect_left:
                is_right = recorder.operators.truth(recorder.operators.binary("<", item, number))
            else:
                is_right = not recorder.operators.truth(recorder.operators.binary("<", number, item))
            low, high = (middle + 1, high) if is_right else (low, middle)
        return low

    def _count_elements(self, _: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """collections._count_elements(counts, values), the C code of Counter.update."""
        recorder = self.recorder
        counts, values = arguments
        for value in map(concretise, recorder.iteration.iterate(values)):
            count = recorder.containers.base_item(counts, value) if recorder.containers.base_contains(value, counts) else 0
            recorder.containers.set_base_item(recorder.operators.binary("+", count, 1), counts, value)

    def _from_iterable(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """itertools.chain.from_iterable"""
        if len(arguments) != 1 or keywords or not hasattr(type(arguments[0]), "__iter__"):
            return self.recorder.perform(lambda: function(*arguments, **keywords))  # raises Python's error
        return function(self.recorder.iteration.iterate(arguments[0], ()))

    def _of_expressions(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """re.sub, re.match ...  The cache of compiled expressions in `re` is no state of user code."""
        recorder = self.recorder
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
        if len(arguments) > _EXPRESSIONS[function]:
            recorder.stop("impure_call", f"a warning of {function.__name__}()")
        for value in (*arguments, *keywords.values()):
            recorder.contents.read_content(value, deep=True)
        arguments = tuple(map(recorder.calls.recorded_callback, arguments))  # the replacement may be a function
        keywords = {k: recorder.calls.recorded_callback(v) for k, v in keywords.items()}
        return recorder.mark_created(recorder.containers.native(lambda: function(*arguments, **keywords)))

    def _substituted(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """re.sub; the result is an open text if the text is open (texts.py)."""
        recorder = self.recorder
        pattern, *rest = arguments or (None,)
        of_text = not keywords and len(arguments) == 3 and is_open(rest[1]) and type(plain(rest[1])) is type(rest[0]) is str
        if of_text and (type(pattern) is str or (type(pattern) is re.Pattern and type(pattern.pattern) is str)):
            recorder.contents.read_content(pattern)
            return recorder.unwatched(lambda: recorder.texts.text_function(function, arguments))
        return self._of_expressions(function, arguments, keywords)

    def _path(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """os.path.join, basename or dirname; the result is an open text if some arguments are open."""
        recorder = self.recorder
        if not keywords and any(map(is_open, arguments)) and all(type(plain(a)) is str for a in arguments):
            return recorder.unwatched(lambda: recorder.texts.text_function(function, arguments))
        return recorder.calls.instrumented(function, arguments, keywords)

    def _deep_copy(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """copy.deepcopy.  A number, a text or an empty tuple is its own copy, and the library copies a tensor.  For other objects
        the Python code of `copy` is instrumented."""
        recorder = self.recorder
        if arguments and (is_symbolic(arguments[0]) or type(arguments[0]) in PRIMITIVE_TYPES):
            return arguments[0]
        if arguments and type(arguments[0]) is tuple and not arguments[0] and not recorder.is_outside(arguments[0]):
            return arguments[0]
        memo = arguments[1] if len(arguments) == 2 else {}
        if arguments and not keywords and is_a(arguments[0], Tensor) and type(memo) is dict and not recorder.is_outside(memo):
            tensor = arguments[0]
            if recorder.attributes.lookup(type(tensor), "__deepcopy__")[0] is Tensor.__dict__["__deepcopy__"]:
                return self._copied(tensor, memo)
        return recorder.calls.instrumented(function, arguments, keywords)

    def _copied(self, tensor: Tensor, memo: dict[Any, Any]) -> Tensor:
        """The deep copy of a tensor.  memo: the copies so far, by the identities of the originals as user code sees them."""
        identity = ObjectIdentity(tensor, self.recorder)
        if identity not in memo:
            self.recorder.inspect(tensor)
            copied = memo[identity] = self.recorder.containers.native(lambda: tensor.__deepcopy__({}))
            if copied._grad is not None:
                memo[ObjectIdentity(tensor._grad, self.recorder)] = copied._grad
        return memo[identity]  # type: ignore[no-any-return]

    def _variable_of_a_context(self, variable: Any, *default: Any) -> Any:
        """variable.get(*default), for a ContextVar from outside."""
        recorder = self.recorder
        get, absent = recorder.sources[id(variable)].get("get"), Name("ABSENT")
        try:
            value = variable.get(*(ABSENT for _ in default))
        except LookupError:
            recorder.miss_if(get.call(absent).is_not(absent))
            raise
        if value is not ABSENT:
            return recorder.read(value, get.call(*[absent for _ in default]), symbolic=True)
        recorder.miss_if(get.call(absent).is_not(absent))
        return default[0]

    def _property_with_function(self, name: str, owner: property, function: Any) -> Any:
        """owner.setter(function), getter or deleter: a copy of the property with another function."""
        return self.recorder.mark_created(getattr(owner, name)(function))

    def _reduced(self, owner: Any, _: Any) -> Any:
        """object.__reduce_ex__(owner): the class and the dictionary of the instance."""
        recorder = self.recorder
        state = recorder.attributes.get_attribute(owner, "__dict__")
        constructor = recorder.mark_fixed(copyreg.__newobj__)  # type: ignore[attr-defined]
        return recorder.mark_created(
            (constructor, (type(owner),), state if recorder.operators.truth(state) else None, None, None)
        )

    def _reduced_container(self, owner: Any, _: Any) -> Any:
        """owner.__reduce_ex__() of a container of `collections`: class, arguments, attributes and contents."""
        recorder, cls = self.recorder, type(owner)
        arguments: tuple[Any, ...] = ()
        if cls is collections.deque:
            limit = recorder.attributes.get_attribute(owner, "maxlen")
            arguments = () if limit is None else (recorder.mark_created(()), limit)
        elif cls is collections.defaultdict:
            factory = recorder.attributes.get_attribute(owner, "default_factory")
            arguments = () if factory is None else (factory,)
        dictionary = recorder.attributes.get_attribute(owner, "__dict__") if cls is collections.OrderedDict else None
        state = dictionary if dictionary is not None and recorder.operators.truth(dictionary) else None
        items = recorder.calls.call(recorder.attributes.get_attribute(owner, "items"), (), {}) if is_a(owner, dict) else owner
        contents = recorder.iteration.iterator(items)
        parts = (None, contents) if is_a(owner, dict) else (contents, None)
        return recorder.mark_created((cls, recorder.mark_created(arguments), state, *parts))

    def _reduces_as_usual(self, owner: Any) -> bool:
        """Whether `_reduced` does what Python does: the class overrides no part of the protocol and has no slots."""
        cls = type(owner)
        usual = all(
            self.recorder.attributes.lookup(cls, name)[0] is vars(object)[name]
            for name in ("__reduce__", "__reduce_ex__", "__getstate__")
        )
        has_extras = any(
            self.recorder.attributes.lookup(cls, name)[0] is not ABSENT
            for name in ("__getnewargs__", "__getnewargs_ex__", "__slots__")
        )
        return usual and not has_extras and has_plain_state(cls) and instance_dictionary(owner) is not None

    def standard_method(self, owner: Any, name: str) -> Callable[..., Any] | None:
        """The handler that this class has for the method `name` of `owner`, a method of C code; else None."""
        if is_a(owner, contextvars.ContextVar) and name == "get" and self.recorder.is_outside(owner):
            return self._variable_of_a_context
        if name == "__reduce_ex__" and type(owner) in _REDUCED_BY_CONTENTS:
            return self._reduced_container
        if type(owner) is property and name in ("getter", "setter", "deleter"):
            return partial(self._property_with_function, name)
        return self._reduced if name == "__reduce_ex__" and self._reduces_as_usual(owner) else None

    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler that this class has for a function; else None."""
        return self.in_table(_HANDLERS, function)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_IN_ORDER, StandardCallHandlers._in_order),
    collections._count_elements: StandardCallHandlers._count_elements,  # type: ignore[attr-defined]
    copy.deepcopy: StandardCallHandlers._deep_copy,
    **dict.fromkeys(_EXPRESSIONS, StandardCallHandlers._of_expressions),
    re.sub: StandardCallHandlers._substituted,
    **dict.fromkeys((os.path.join, os.path.basename, os.path.dirname), StandardCallHandlers._path),
    itertools.chain.from_iterable: StandardCallHandlers._from_iterable,
    **dict.fromkeys(_CLOCKS, lambda self, *call: self.recorder.extracted_numbers.read_clock(*call)),
}
