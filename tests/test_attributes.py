"""Attributes of classes, functions and modules that a call changes, and names that cannot be written with a dot."""

from __future__ import annotations

import types
from collections import defaultdict, deque
from typing import ClassVar

import pytest

import tracejit as T
from tracejit.capture.handlers import attributes, builtin_calls, environment_reads, outside_calls, printing, standard_calls
from tracejit.capture.policies import is_changeable
from tracejit.config import override

CALLS = 10


class Counted:
    count, rate = 0, 0.5
    registry: ClassVar[dict] = {}
    log: ClassVar[list] = []

    def __init__(self):
        Counted.count += 1

    def stepped(self, x):
        type(self).rate += 1
        return x * self.rate

    @classmethod
    def bumped(cls, x):
        cls.count += 1
        return x * cls.count


class Derived(Counted):
    pass


class Asking(type):
    """A metaclass that notes what is stored."""

    stores: ClassVar[list] = []

    def __setattr__(cls, name, value):
        Asking.stores.append(name)
        type.__setattr__(cls, name, value)


class WithAsking(metaclass=Asking):
    n = 1


class Computing(type):
    @property
    def n(cls):
        return cls.kept

    @n.setter
    def n(cls, value):
        cls.kept = value * 2


class WithComputing(metaclass=Computing):
    kept = 1


class Slotted:
    __slots__ = ("a",)


class Layer(T.nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        Layer.calls += 1
        return x * self.scale + Layer.calls


module = types.ModuleType("counting")


counted, derived, layer = Counted(), Derived(), Layer()


def reset():
    Counted.count, Counted.rate, Counted.registry, Counted.log = 0, 0.5, {}, []
    for cls, name in ((Derived, "count"), (Derived, "rate"), (Counted, "last")):
        if name in vars(cls):
            delattr(cls, name)
    Asking.stores, WithAsking.n, WithComputing.kept, Layer.calls, module.n = [], 1, 1, 0, 0


def seen():
    own = {name: value for name, value in vars(Counted).items() if name in ("count", "rate", "registry", "log", "last")}
    derived = {name: value for name, value in vars(Derived).items() if not name.startswith("__")}
    return repr([own, derived, Asking.stores, WithAsking.n, WithComputing.kept, Layer.calls, module.n])


def counter_by_name(x, n):
    Counted.count += 1
    return x * Counted.count


def counter_by_type_of_an_instance(x, n):
    return counted.stepped(x)


def counter_of_a_derived_class(x, n):
    return derived.stepped(x), Counted.rate


def counter_in_a_class_method(x, n):
    return Counted.bumped(x), Derived.count


def counter_in_a_constructor(x, n):
    Counted()
    return x * Counted.count


def registry_and_log(x, n):
    Counted.registry["last"] = n
    Counted.log.append(n)
    return x * len(Counted.log) + Counted.registry["last"]


def late_numbers_and_tensors(x, n):
    Counted.last = x.sum().item()
    return Counted.last, Derived.last * 2


def store_found_through_an_instance(x, n):
    Counted.rate = n
    return x * derived.rate


def instance_before_class(x, n):
    made = Counted()
    made.rate = n
    Counted.rate = n + 1
    return x * made.rate + Counted.rate


def by_setattr(x, n):
    setattr(Counted, "count", n * 2)  # noqa: B010
    return x * getattr(Counted, "count")  # noqa: B009


def class_of_a_module(x, n):
    return layer(x)


def attribute_of_a_module(x, n):
    module.n += 1
    return x * module.n


def property_of_a_metaclass(x, n):
    WithComputing.n = n
    return x * WithComputing.n


def store_in_a_branch(x, n):
    Counted.count += 1
    return x * Counted.count if x.sum() > 6 else x


FUNCTIONS = {
    counter_by_name: 1,
    counter_by_type_of_an_instance: 1,
    counter_of_a_derived_class: 2,
    counter_in_a_class_method: 1,
    counter_in_a_constructor: 1,
    registry_and_log: 1,
    late_numbers_and_tensors: 1,
    store_found_through_an_instance: 1,
    instance_before_class: 1,
    by_setattr: 1,
    class_of_a_module: 1,
    attribute_of_a_module: 1,
    store_in_a_branch: 2,
}


def driven(f):
    reset()
    found = []
    for n in range(CALLS):
        result = f(T.tensor([1.0, 2.0]) * (n % 5), n)
        parts = result if type(result) is tuple else (result,)
        found.append(([part.tolist() if isinstance(part, T.Tensor) else part for part in parts], seen()))
        if n == 6:  # somebody else counts, too
            Counted.count += 5
            Counted.rate -= 1.25
    return found


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("f", [*FUNCTIONS, property_of_a_metaclass], ids=lambda f: f.__name__)
def test_what_is_stored_in_classes_and_modules_is_there_in_each_call(f, hot):
    expected = driven(f)
    with override(hot_calls=hot):
        compiled = T.compile(f)
        assert driven(compiled) == expected
    if f in FUNCTIONS:
        assert (compiled.stats.traces, compiled.stats.compiled_calls) == (FUNCTIONS[f], CALLS - FUNCTIONS[f]), compiled.explain()


@pytest.mark.parametrize("store", ["asking", "method", "special", "slot", "descriptor", "deleted"])
def test_stores_that_change_more_than_a_value_are_eager(store):
    reset()
    slotted, member = Slotted(), Slotted.a

    def f(x, n):
        if store == "asking":
            WithAsking.n = n
        elif store == "method":
            Counted.stepped_too = lambda self: n
        elif store == "special":
            Counted.__doc__ = f"{n}"
        elif store == "slot":
            Slotted.a = n
        elif store == "descriptor":
            Counted.last = property(lambda self: n)
        else:
            Counted.last = n
            del Counted.last
        return x * n

    try:
        compiled = T.compile(f)
        for n in range(4):
            assert compiled(T.ones(1), n).tolist() == [n]
            assert store != "slot" or slotted.a == n
        assert compiled.reasons and (compiled.stats.compiled_calls == 0 or store == "slot")  # which is none after the first call
        assert store != "asking" or (Asking.stores[1:], WithAsking.n) == (["n"] * 4, 3)
    finally:
        Slotted.a = member
        Counted.__doc__ = None
        reset()


def test_nothing_is_stored_by_a_call_that_raises_before_it():
    reset()

    def f(x):
        Counted.count += 1
        if x.sum() > 100:
            raise ValueError(Counted.count)
        Counted.count += 1
        return x * Counted.count

    compiled = T.compile(f)
    for _ in range(3):
        compiled(T.ones(2))
    with pytest.raises(ValueError, match="7"):
        compiled(T.ones(2) * 1000)
    assert Counted.count == 7


def test_a_method_that_takes_the_place_of_a_counter_is_found():
    class Changing:
        n = 1

    def f(x):
        Changing.n = 2
        return x * Changing.n

    compiled = T.compile(f)
    for _ in range(3):
        compiled(T.ones(1))
    Changing.n = property(lambda self: 5)
    assert compiled(T.ones(1)).tolist() == [2.0] and Changing.n == 2


def test_names_that_are_no_identifiers_are_read_and_stored():
    class Box:
        pass

    box = Box()
    setattr(box, "a b", 1)
    setattr(box, "class", 2)

    def f(x, n):
        read = getattr(box, "a b") + getattr(box, "class")
        setattr(box, "a b", n)
        setattr(Box, "x y", n)
        return x * read + getattr(box, "a b")

    compiled = T.compile(f)
    assert [compiled(T.ones(1), n).item() for n in range(4)] == [3.0, 3.0, 5.0, 7.0]
    assert compiled.stats.traces == 1 and getattr(Box, "x y") == 3


def test_a_class_that_gets_an_attribute_between_calls_is_another_one() -> None:
    class Scaled:
        def __init__(self) -> None:
            self.factor = 2.0

    class Deep(Scaled):
        pass

    scales = [Deep() for _ in range(3)]

    @T.compile
    def step(x):
        for scale in scales:
            x = x * scale.factor
        return x

    x = T.tensor([1.0, 3.0])
    for _ in range(CALLS):
        assert step(x).tolist() == [8.0, 24.0]
    assert step.stats.traces == 1 and step.stats.compiled_calls == CALLS - 1
    Scaled.factor = property(lambda self: 10.0)
    for _ in range(CALLS):
        assert step(x).tolist() == [1000.0, 3000.0]
    assert step.stats.traces == 2


def test_no_table_of_functions_has_a_method_of_a_container():
    tables = (
        builtin_calls._SPECIAL, outside_calls._HANDLERS, printing._HANDLERS, environment_reads._HANDLERS, standard_calls._HANDLERS,
    )  # fmt: skip
    owners = [getattr(function, "__self__", None) for table in tables for function in table]
    assert owners and not any(isinstance(owner, builtin_calls._CONTAINER_TYPES) for owner in owners)


@pytest.mark.parametrize("cls", [list, tuple, dict, set, frozenset, deque, defaultdict])
def test_methods_of_containers_are_those_that_python_finds(cls):
    found = {name: method for (owner, name), method in attributes._METHODS_OF_CONTAINERS.items() if owner is cls}
    assert found and all(getattr(cls, name) is method for name, method in found.items())
    assert not is_changeable(cls) and cls().__class__.__dictoffset__ == 0


class Kept: ...


class Fields(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def written_in_the_dictionary(x):
    kept = Kept()
    kept.n = x.shape[0]
    kept.__dict__["n"] = 5
    return kept.n, dict(vars(kept))


def counted_in_the_dictionary(x):
    kept = Kept()
    kept.n = x.sum().item()
    vars(kept)["n"] += 1
    kept.__dict__.update(m=kept.n * 2)
    return kept.n, kept.m


def taken_out_of_the_dictionary(x):
    kept = Kept()
    kept.n = kept.m = x.shape[0]
    found = vars(kept).pop("n")
    vars(kept)["n"] = 7
    kept.__dict__.setdefault("k", found)
    return kept.n, kept.m, kept.k, found


def stored_once_the_program_has_the_dictionary(x):
    kept = Kept()
    named = vars(kept)
    kept.n, kept.m = x.shape[0], x.sum().item()
    named["n"] += 1
    del kept.m
    return kept.n, dict(named), hasattr(kept, "m")


def items_as_attributes(x):
    fields = Fields(n=0)
    fields.n += x.shape[0]
    fields.m = 1
    del fields.m
    return dict(fields), fields.n


@pytest.mark.parametrize(
    "function",
    [
        written_in_the_dictionary, counted_in_the_dictionary, taken_out_of_the_dictionary,
        stored_once_the_program_has_the_dictionary, items_as_attributes,
    ],
)  # fmt: skip
def test_attributes_and_items_of_the_dictionary_are_one(function):
    compiled = T.compile(function)
    for length in (3, 4, 5, 6, 6):
        x = T.ones(length)
        assert compiled(x) == function(x)
    assert compiled.stats.compiled_calls and not compiled.reasons


def test_an_error_of_a_method_of_c_code_is_the_one_of_eager_mode():
    compiled = T.compile(lambda x: (Fields(n=0).nothing, x * 2))
    for _ in range(2):
        with pytest.raises(KeyError, match="nothing"):
            compiled(T.ones(2))
