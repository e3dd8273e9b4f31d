"""Match statements: a function of anything, and subjects for it."""

from __future__ import annotations

import collections
import collections.abc
from dataclasses import dataclass

MATCHING = {}


def matching(*subjects):
    def register(function):
        MATCHING[function.__name__] = function, subjects
        return function

    return register


@dataclass
class Point:
    x: object
    y: object = 0


class Slotted:
    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")

    def __init__(self, a, b=None):
        self.a = a
        if b is not None:
            self.b = b


class Asked:
    """Tells what it is asked for."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.asked.append(name)
        return len(self.asked)


class Meta(type):
    def __instancecheck__(cls, value):
        return value == 3 or type.__instancecheck__(cls, value)


class Three(metaclass=Meta):
    pass


class WrongNames:
    __match_args__ = ("x", 1)
    x = 1


class NoTuple:
    __match_args__ = ["x"]


class Twice:
    __match_args__ = ("x", "x")
    x = 1


class Row(collections.abc.Sequence):
    def __init__(self, *items):
        self.items, self.asked = items, []

    def __len__(self):
        self.asked.append("len")
        return len(self.items)

    def __getitem__(self, index):
        self.asked.append(index)
        return self.items[index]


class Table(collections.abc.Mapping):
    def __init__(self, **items):
        self.items_, self.asked = items, []

    def __len__(self):
        return len(self.items_)

    def __iter__(self):
        return iter(self.items_)

    def __getitem__(self, key):
        self.asked.append(key)
        return self.items_[key]


class Missing(dict):
    def __missing__(self, key):
        raise AssertionError("patterns do not ask for it")


Pair = collections.namedtuple("Pair", "first second")


class Names:
    one, two = 1, "two"
    inner = Point


class Colour:
    red = "red"


@matching(Point(1, 2), Point(0, 5), Point("a"), Point(Point(1, 2), 3), 5, None)
def by_attributes(v):
    match v:
        case Point(x=0, y=b):
            return "zero", b
        case Point(x=Point(x=a), y=b):
            return "nested", a, b
        case Point(x=int() as a, y=b):
            return "int", a, b
        case Point():
            return "point"
    return "none"


@matching(Point(1, 2), Slotted(1, 2), Slotted(1), Pair(3, 4), Asked(), "text")
def by_position(v):
    match v:
        case Point(a, b):
            return a, b
        case Pair(a, second=b):
            return "pair", a, b
        case Slotted(a, b):
            return "both", a, b
        case Slotted(a):
            return "one", a
        case Asked(p=p, q=3) | Asked(q=p):
            return p, v.asked
        case str(t):
            return t


@matching(1, 1.5, True, "s", b"s", bytearray(b"b"), [1], (1,), {1}, frozenset({1}), {"a": 1}, None, Three(), 3)
def by_builtin_class(v):
    match v:
        case Three():
            return "three"
        case bool(b):
            return "bool", b
        case int(n) | float(n):
            return "number", n
        case str() | bytes() | bytearray():
            return "text"
        case list(items) | tuple(items):
            return "items", items
        case dict(d):
            return "dict", d
        case set(s) | frozenset(s):
            return "set", sorted(s)
        case None:
            return None


@matching(Point(1), WrongNames(), NoTuple(), Twice(), 1)
def that_raise(v):
    try:
        match v:
            case Point(_, _, _):
                return "never"
    except TypeError as error:
        return str(error)
    try:
        match v:
            case WrongNames(_, _) | NoTuple(_) | Twice(_, _):
                return "never"
    except TypeError as error:
        return str(error)
    try:
        match v:
            case int(_, _):
                return "never"
    except TypeError as error:
        return str(error)


@matching(1, None)
def of_what_is_no_class(v):
    kind = by_position
    try:
        match v:
            case kind():
                return "never"
    except TypeError as error:
        return str(error)


@matching(Point(1, 1), Point(1, 2), 4)
def with_the_same_attribute_twice(v):
    try:
        match v:
            case Point(1, x=a):
                return a
    except TypeError as error:
        return str(error)
    return "no point"


@matching([], [1], (1, 2), [1, 2, 3], (1, 2, 3, 4), range(5), collections.deque([1, 2]), "ab", b"ab", {1, 2}, {1: 2}, None, 7)
def sequences(v):
    match v:
        case []:
            return "empty"
        case [a]:
            return a
        case (1, b):
            return "two", b
        case [a, *_, 4]:
            return "four", a
        case [a, *rest, _]:
            return a, rest
        case [*all]:
            return all
        case _:
            return "none"


@matching(Row(), Row(1), Row(1, 2), Row(1, 2, 3, 4), [0, [1, [2, 3]]], [[], [1]])
def sequences_of_the_program(v):
    found = None
    match v:
        case [_, *_] if len(v) == 1:
            found = "one"
        case [1, *_, last]:
            found = last
        case [_, [b, [*c]]]:
            found = b, c
        case [[], [*c]]:
            found = c
        case [*_]:
            found = "any"
    return found, getattr(v, "asked", None)


@matching(
    {},
    {"a": 1},
    {"a": 1, "b": 2},
    {"b": None, "c": [1]},
    Missing(a=1),
    Missing(z=1),
    Table(a=1, b=3),
    [("a", 1)],
    collections.OrderedDict(k=1),
)
def mappings(v):
    match v:
        case {"a": 1, "b": b, **rest}:
            return "both", b, rest
        case {"a": a}:
            return "a", a
        case {"b": None, **rest}:
            return rest
        case {"k": int(k)}:
            return k
        case {}:
            return "empty or other"
    return "no mapping"


@matching(1, "two", Point(1), "red", -1, 2j - 1, 1.0)
def dotted_names_and_values(v):
    match v:
        case Names.one:
            return "one"
        case Names.two | Colour.red:
            return "text"
        case Names.inner(x=x):
            return x
        case -1 | -1 + 2j:
            return "negative"
    return "other"


@matching((1, 2), (2, 1), (3, 3), (4, None))
def names_are_bound_when_all_has_matched(v):
    a = b = "before"
    found = []
    match v:
        case (a, 1):
            found.append("first")
        case (b, 2) if found.append((a, b)):
            found.append("second")
        case (a, b) if a == b:
            found.append(lambda: (a, b))
            return found[0]()
        case _:
            found.append("last")
    return found, a, b


@matching([1, [2, 3]], [1, 2], 3)
def names_that_nested_functions_read(v):
    match v:
        case [a, [*b]] | [a, b]:
            return (lambda: (a, b))()
        case other:
            return [other for _ in range(2)], [lambda: other][0]()


@matching(1, [2], Point(3))
def in_a_generator_and_a_loop(v):
    def found():
        for item in (v, [v], Point(v, v)):
            match item:
                case int(n) | [int(n)] | Point(int(n)):
                    yield n
                case [Point(x=n)]:
                    yield "inner", n
                    continue
                case _:
                    break
            yield "end"

    return list(found())
