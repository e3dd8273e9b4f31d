"""The contents of tuples, lists, dictionaries and objects that the call has made, by their places.

Loops compare all that steps find (snapshots.py), replace what steps that do not run would have left (skipped_steps.py), and have
the program compute the numbers that steps change (carried_numbers.py).  In a named tuple or an attribute Python has the plain
value of a symbolic number, and effects.py the number; here the number is the content."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracejit.capture.handlers.stand_ins import plain_value
from tracejit.capture.policies import (
    builtin_base,
    has_plain_state,
    instance_dictionary,
    is_empty,
    is_library_module,
    module_of,
    slots_of,
)

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "DICTIONARIES",
    "SEQUENCES",
    "Attribute",
    "Path",
    "children_of",
    "is_tuple",
    "items_of",
    "paths_in",
    "rebuilt_tuple",
    "store_along",
    "store_at",
]

SEQUENCES: Final = (list, deque)
DICTIONARIES: Final = (dict, OrderedDict, defaultdict)
_MOST: Final = 4096
"""Containers that are walked through; there are no paths where there are more."""

Path = tuple[Any, ...]
"""A variable, and the places that lead inside."""


class Attribute(NamedTuple):
    """The place of an attribute; slot: its descriptor, None where it is in the dictionary."""

    name: str
    slot: Any


_PLACES: Final = (int, str, Attribute)


def is_tuple(x: Any) -> bool:
    """Whether `x` is a tuple, or a named tuple without other attributes."""
    cls = type(x)
    if cls is tuple:
        return True
    if builtin_base(cls) is not tuple or instance_dictionary(x) or _of_class(cls, "__del__") is not None:
        return False
    return type(names := _of_class(cls, "_fields")) is tuple and len(names) == tuple.__len__(x)


def _of_class(cls: type, name: str) -> Any:
    """An attribute of a class or of a base, without asking its metaclass."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def items_of(recorder: Recorder, x: tuple[Any, ...]) -> list[Any]:
    """The items of a tuple, as the program finds them."""
    stored_values = recorder.effects.stored
    return [stored_values.get((id(x), k), y) for k, y in enumerate(tuple.__iter__(x))]


def rebuilt_tuple(recorder: Recorder, x: tuple[Any, ...], items: list[Any]) -> Any:
    """A tuple of the class of `x` with other items."""
    return recorder.mark_created(tuple(items)) if type(x) is tuple else recorder.contents.record_of(type(x), items)


def children_of(recorder: Recorder, x: Any) -> list[tuple[Any, Any]] | None:
    """(place, content) of a list, a dictionary, or an instance of a class in Python, whose places are Attributes.  None of
    anything else: also of instances with a `__del__`, and of classes of the library."""
    cls = type(x)
    if cls in SEQUENCES:
        return list(enumerate(x))
    if cls in DICTIONARIES:
        return list(x.items())
    if not has_plain_state(cls) or _of_class(cls, "__del__") is not None:
        return None
    if any(is_library_module(module_of(base)) for base in cls.__mro__):
        return None
    instance, stored_values = instance_dictionary(x), recorder.effects.stored
    if instance is None:
        instance = {}
    elif type(instance) is not dict:  # in which others may look, as in any container
        return None
    found: list[tuple[Any, Any]] = [
        (Attribute(name, None), stored_values.get((id(instance), name), value)) for name, value in instance.items()
    ]
    slots = slots_of(cls)
    if len({name for name, _ in slots}) < len(slots):  # some hide others, whose numbers go by the same name
        return None
    for name, slot in slots:
        if not is_empty(slot, x):
            found.append((Attribute(name, slot), stored_values.get((id(x), name), slot.__get__(x))))
    return found


def store_at(recorder: Recorder, x: Any, place: Any, value: Any) -> None:
    """Put another value in a place of a list, a dictionary or an instance."""
    if type(x) in (*SEQUENCES, *DICTIONARIES):
        x[place] = value
        return
    name, slot = place
    if slot is None:
        instance_dictionary(x)[name] = plain_value(value)  # type: ignore[index]
    else:
        slot.__set__(x, plain_value(value))
    recorder.effects.note_attribute(x, name, value)


def paths_in(recorder: Recorder, variables: Mapping[str, Any], others: Iterable[Any]) -> list[tuple[Path, Any]]:
    """(path, content) of all places inside of what variables lead to; but not inside of objects from outside, of lists to which
    code only appends (reached_lists.py), or of what was walked through already, not at keys of dictionaries that are objects,
    which code of the program compares, and not inside of tuples that stand in two places: a tuple that is made anew would be
    another one in each.  others: what else may lead to tuples."""
    waiting: list[tuple[Path, Any, tuple[int, ...]]] = [((), value, ()) for value in others]
    waiting += [((name,), value, ()) for name, value in variables.items()]
    seen: dict[int, Any] = {}
    met: Counter[int] = Counter()  # tuples
    found: list[tuple[Path, Any, tuple[int, ...]]] = []
    while waiting:
        path, value, inside = waiting.pop()
        if recorder.is_opaque(value):
            continue
        is_immutable = is_tuple(value)
        if is_immutable:
            met[id(value)] += 1
            inside = (*inside, id(value))
        parts = list(enumerate(items_of(recorder, value))) if is_immutable else children_of(recorder, value)
        if parts is None or id(value) in seen:
            continue
        if len(seen) == _MOST:
            return []
        seen[id(value)] = value
        for place, part in parts:
            inner_path = (*path, place) if path and type(place) in _PLACES else ()
            waiting.append((inner_path, part, inside))
            if inner_path:
                found.append((inner_path, part, inside))
    return [(path, part) for path, part, inside in found if all(met[k] == 1 for k in inside)]


def store_along(recorder: Recorder, value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Put `new` at the end of a path inside of `value`.  Returns `value`, or the tuple that takes its place."""
    if not path:
        return new
    if is_tuple(value):
        items = items_of(recorder, value)
        before, items[path[0]] = items[path[0]], store_along(recorder, items[path[0]], path[1:], new)
        return value if items[path[0]] is before else rebuilt_tuple(recorder, value, items)
    (before,) = [part for place, part in children_of(recorder, value) or () if type(place) is type(path[0]) and place == path[0]]
    if (after := store_along(recorder, before, path[1:], new)) is not before:
        store_at(recorder, value, path[0], after)
    return value
