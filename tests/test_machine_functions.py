"""cpython/functions.py: translated Python means what interpreted Python means, counts references, and says what it cannot translate."""

from __future__ import annotations

import gc
import sys
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from python_as_replay import statements

from tracejit.config import override
from tracejit.cpython import c_api, watchers
from tracejit.cpython.builtin_functions import FASTCALL, KEYWORDS, builtin_function
from tracejit.cpython.functions import Untranslatable, translate
from tracejit.cpython.linking import link
from tracejit.replay.ir import Function, Name
from tracejit.replay.python import load

pytestmark = pytest.mark.skipif(not c_api.supported(), reason="entries are interpreted on this Python")

MISS = object()


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self, first: Any = None, second: Any = None) -> None:
        self.first, self.second = first, second


class Plain:
    pass


class Other:
    __slots__ = ("a", "b", "c")

    second = "another"


class Hiding(Slotted):
    __slots__ = ()

    @property
    def first(self) -> Any:
        return "hidden"


def machine(body: str, **names: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function of a body of statements, interpreted and translated; both take positional arguments."""
    function = parsed(textwrap.dedent(body).strip("\n"))
    namespace = {"MISS": MISS, "Slotted": Slotted, "new": object.__new__, **names}
    interpreted = unverified(function, namespace)
    text, constants = translate(function, "tested", namespace, (Slotted, Hiding))
    address, owner = link(text, "tested", imports=watchers.symbols())
    return lambda *args: interpreted(args, {}), builtin_function("tested", address, FASTCALL | KEYWORDS, (*constants, *owner))


def unverified(function: Function, namespace: dict[str, Any]) -> Callable[..., Any]:
    """As Python; some of the functions below break rules that replay/verify.py knows."""
    with override(verify=False):
        return load(function, "entry", namespace, "test")


def parsed(body: str) -> Function:
    """Statements before a line `---` are guards."""
    guards, line, rest = body.rpartition("\n---\n")
    return Function(
        ("args", "kwargs"), statements(guards), statements(rest, "" if line else "MISS"), Name("MISS"), catches=bool(line)
    )


def outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def check(body: str, *calls: tuple[Any, ...], **names: Any) -> None:
    """Interpreted and translated agree on each call, and neither keeps a reference."""
    interpreted, translated = machine(body, **names)
    for args in calls:
        assert repr(outcome(interpreted, args)) == repr(outcome(translated, args))
        before = [sys.getrefcount(a) for a in (*args, *names.values())]
        for _ in range(50):
            outcome(translated, args)
        after = [sys.getrefcount(a) for a in (*args, *names.values())]
        assert all(abs(a - b) < 25 for a, b in zip(after, before, strict=True))  # others count references to small numbers, too


EXPRESSIONS = [
    "args[0] + args[1]",
    "args[0] - 1",
    "args[0] ** 2",
    "-args[0]",
    "args[0] * args[1] / 3",
    "args[0] // 2 % 5",
    "(args[0] << 1) + (args[0] >> 1)",
    "args[0] & 6 | args[1] ^ 3",
    "~args[0]",
    "+args[0]",
    "args[0] @ args[1]",
    "str(args[0])[1:]",
    "repr(args[1])[:2]",
    "(args[0], [args[1], args[0]], {})",
    "(args[0], *(args[1], 2), 3)",
    "len((args[0], args[1])) + 1",
    "(1 if args[0] else args[1])",
    "args[0] or args[1]",
    "abs(args[0])",
    "args[0].__class__.__name__",
    "max(args[0], args[1], 7)",
    "repr(args[0]).upper()",
    "type(args[0])",
    "(-1.5, -2, None, True)",
    "dict(a=args[0], b=args[1])",
    "dict((), a=args[0])",
    "sorted((args[0], 3), reverse=True)",
    "round(args[0], ndigits=1)",
    "max(args[0], wrong=args[1])",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_have_the_values_that_the_interpreter_finds(expression: str) -> None:
    check(f"return {expression}", (5, 7), (2.5, -1), (0, 4), (10**30, 3), ("text", 2))


CONDITIONS = [
    "args[0] is args[1]",
    "args[0] is not args[1]",
    "args[0] == args[1]",
    "args[0] != args[1]",
    "args[0] < args[1]",
    "args[0] >= 2",
    "not args[0] > args[1]",
    "-3 <= v <= 10",
    "args[0] in (1, 2, args[1])",
    "args[0] not in known",
    "args[0] in known or args[1] in known",
    "type(args[0]) is int and args[0] != 5",
    "len(known) != 2",
    "len(args) != 2",
    "len({id(args[0]), id(args[1]), id(known)}) != 3",
    "args[0]",
    "not args[1]",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_decide_as_the_interpreter_does(condition: str) -> None:
    shared = [1]
    calls = [
        (5, 7),
        (7, 7),
        (2.5, float("nan")),
        (float("nan"), 2.5),
        (1, True),
        (10**30, 10**30),
        (shared, shared),
        ("a", "b"),
        ("a", 3),
    ]
    check(f"v = args[0]\nif {condition}: return MISS\nreturn v", *calls, known={5: 1, "a": 2})


def test_guards_miss_on_the_errors_they_name_and_raise_others() -> None:
    body = """
    v = args[0]
    if v.first is not None: return MISS
    w = v.second[1]
    ---
    return w
    """
    broken = Plain()
    check(body, (Slotted(None, [1, 2]),), (Slotted(3, [1, 2]),), (Slotted(None, [1]),), (broken,), (Slotted(None, 5),))


def test_an_error_past_the_guards_is_raised() -> None:
    check("v = args[0]\n---\nreturn v.missing", (5,), (Slotted(),))


def test_an_error_that_comes_through_a_python_function_is_raised() -> None:
    """Guards call none that raises: it is a signal handler's."""

    def checked(number: Any) -> Any:
        if number < 0:
            raise LookupError(number)
        return 10 // number

    body = """
    v = ask(args[0])
    if v == 7: return MISS
    w = known[v]
    ---
    return w
    """
    check(body, (2,), (1,), (-1,), (0,), (3,), ask=checked, known={5: 1, 3: 2})
    assert outcome(machine(body, ask=checked, known={})[1], (-1,)) == (LookupError, "-1")
    assert outcome(machine(body, ask=checked, known={})[1], (2,)) is MISS


def test_slots_are_read_and_written_where_they_lie() -> None:
    body = """
    v = args[0]
    if type(v) is not Slotted: return MISS
    out = new(Slotted)
    out.first = v.second
    out.second = (v.first, out.first)
    v.second = v.first
    v.second = out.first
    return out.second
    """
    check(body, (Slotted(1, "two"),), (Hiding.__new__(Hiding),), (Plain(),))


def test_a_type_that_was_compared_under_a_condition_is_not_known_past_it() -> None:
    body = """
    v = args[0]
    if args[1]:
        w = 0
        if type(v) is not Slotted: return MISS
    return v.second
    """
    check(body.replace("w = 0", "args[1] + 0"), (Slotted(1, "two"), 1), (Other(), 0), (Other(), 1))


def test_an_object_lives_until_it_is_stored_whatever_runs_meanwhile() -> None:
    class Forgetful:
        def __getattr__(self, name: str) -> Any:
            source.first = None
            return target

    source, target = Slotted(), Slotted()

    def call(function: Callable[..., Any]) -> Any:
        source.first = [object() for _ in range(3)]
        function(source, Forgetful())
        stored = target.second
        return len(stored), sys.getrefcount(stored)

    body = "v = args[0]\nif type(v) is not Slotted: return MISS\nargs[1].owner.second = v.first"
    interpreted, translated = machine(body)
    assert call(interpreted) == call(translated) == (3, 3)


def test_an_empty_slot_raises_as_the_interpreter_does() -> None:
    check("v = args[0]\nif type(v) is not Slotted: return MISS\nreturn v.first", (object.__new__(Slotted),))


def test_what_hides_a_slot_in_a_subclass_is_seen() -> None:
    check("return (args[0].first, args[0].second)", (Slotted(1, 2),), (Hiding.__new__(Hiding),), (Plain(),))
    assert "first" not in c_api.slot_offsets(Hiding)


def test_a_lookup_in_a_constant_dictionary_notices_every_change() -> None:
    known: dict[str, Any] = {"name": 1}
    body = "v = known['name']\nif 'other' in known: return MISS\n---\nreturn v"
    interpreted, translated = machine(body, known=known)

    def agree(expected: Any) -> None:
        for _ in range(3):
            assert interpreted() == translated() == expected

    agree(1)
    known["name"] = 2
    agree(2)
    known["other"] = 1
    agree(MISS)
    del known["other"]
    agree(2)
    del known["name"]
    agree(MISS)
    known["name"] = []
    agree([])
    known.clear()
    agree(MISS)


def test_a_lookup_in_a_class_dictionary_notices_every_change() -> None:
    class Changing:
        kept = 1

    interpreted, translated = machine(
        "if names['kept'] is not one: return MISS\n---\nreturn one",
        names=Changing.__dict__,
        one=Changing.kept,
    )
    assert interpreted() is translated() is Changing.kept
    Changing.kept = 2
    assert interpreted() is translated() is MISS
    del Changing.kept
    assert interpreted() is translated() is MISS


def test_functions_are_asked_for_their_code_defaults_globals_and_cells() -> None:
    content = ["content"]

    def function(a: int = 3) -> Any:
        return content, a

    def other() -> None: ...

    body = """
    v = f.__closure__[0].cell_contents
    if f.__code__ is not code: return MISS
    if f.__globals__ is not names: return MISS
    ---
    return (v, f.__defaults__)
    """
    interpreted, translated = machine(body, f=function, code=function.__code__, names=globals())
    assert interpreted() == translated() == (["content"], (3,))
    function.__defaults__ = None
    assert interpreted() == translated() == (["content"], None)
    content = ["new"]
    assert interpreted() == translated() == (["new"], None)
    del content
    assert interpreted() is translated() is MISS
    content = []
    function.__code__ = (lambda a: (content, a)).__code__
    assert interpreted() is translated() is MISS
    assert type(other) is FunctionType


def test_the_order_of_bases_is_read_from_the_class() -> None:
    class Base: ...

    class Derived(Base): ...

    interpreted, translated = machine("if c.__mro__ is not mro: return MISS\nreturn c", c=Derived, mro=Derived.__mro__)
    assert interpreted() is translated() is Derived
    Derived.__bases__ = (Plain,)
    assert interpreted() is translated() is MISS


def test_variables_may_be_assigned_again_under_a_condition() -> None:
    body = """
    s = args[0].first
    if s is None:
        s = args[0].first = make()
    s = s + 1
    return (s, args[0].first)
    """
    check(body, (Slotted(None, 1),), (Slotted(4, 1),), make=lambda: 40)


def test_attributes_and_items_may_be_added_to() -> None:
    counter = [0, 10]
    interpreted, translated = machine("counter[1] += 2\nargs[0].first = args[0].first + 1\nreturn counter[1]", counter=counter)
    slotted = Slotted(10**20)
    assert (interpreted(slotted), translated(slotted), slotted.first) == (12, 14, 10**20 + 2)


def test_items_are_deleted() -> None:
    check("held = {}\nheld[args[0]] = 1\ndel held[args[1]]\nreturn held", (5, 5), (5, 7))


def test_unpacking_wants_as_many_items() -> None:
    body = "a, _, b = args[0]\nreturn (b, a)"
    interpreted, translated = machine(body)
    assert interpreted((1, 2, 3)) == translated((1, 2, 3)) == (3, 1)
    with pytest.raises(TypeError):
        translated((1, 2))


def test_many_objects_are_told_apart() -> None:
    names = [f"args[{i}]" for i in range(40)]
    body = f"if len({{{', '.join(f'id({n})' for n in names)}}}) != 40: return MISS\nreturn 1"
    objects = [object() for _ in names]
    check(body, tuple(objects), (*objects[:-1], objects[0]), (objects[1], *objects[1:]))


def test_what_a_function_owns_is_let_go_of_on_every_way_out() -> None:
    body = """
    v = args[0] + ["tail"]
    w = v.missing
    ---
    return w
    """
    _, translated = machine(body)
    marker = Slotted()
    gc.collect()
    before = sys.getrefcount(marker)
    for _ in range(100):
        assert translated([marker]) is MISS
        with pytest.raises(TypeError):
            translated(marker)
    assert sys.getrefcount(marker) == before


@pytest.mark.parametrize("body", ["return unknown_name", "if args[0]:\n    v = 1\nreturn v", "return args[0](key=1)"])
def test_what_it_does_not_know_is_refused(body: str) -> None:
    with pytest.raises(Untranslatable):
        machine(body)
