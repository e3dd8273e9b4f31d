"""State that changes between calls: of instances, classes, functions, modules and of the process.  See capture_programs.py."""

from __future__ import annotations

import abc
import builtins
import collections
import contextvars
import decimal
import enum
import functools
import math
import operator
import os
import sys
import threading
import types
import warnings
import weakref

import numpy as np
from registered_programs import Box, program, with_change, x

import tracejit as T

GLOBAL = 2.0
TABLE = {"k": 2.0}


# -- places that are empty, filled, replaced
@program()
def empty_slot_is_filled():
    class Slots:
        __slots__ = ("k",)

    slots = Slots()

    def fn(a):
        return a * getattr(slots, "k", 2.0), hasattr(slots, "k")

    return fn, with_change(lambda: setattr(slots, "k", 5.0), lambda: delattr(slots, "k")), None


@program()
def empty_slot_is_filled_by_the_call():
    class Slots:
        __slots__ = ("k",)

    slots = Slots()

    def fn(a):
        try:
            return a * slots.k
        except AttributeError as error:
            slots.k = 3.0
            return a, str(error)

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], lambda: slots.k


@program()
def empty_slot_with_a_fallback():
    class Slots:
        __slots__ = ("k", "n")

        def __getattr__(self, name):
            return self.n

    slots = Slots()
    slots.n = 4.0

    def fn(a):
        return a * slots.k

    return fn, with_change(lambda: setattr(slots, "n", 5.0), lambda: setattr(slots, "k", 6.0)), None


@program()
def attribute_that_is_deleted_from_the_instance():
    class Owner:
        k = 2.0

    owner = Owner()
    owner.k = 3.0

    def fn(a):
        return a * owner.k

    return fn, with_change(lambda: owner.__dict__.pop("k", None), lambda: setattr(owner, "k", 7.0)), None


@program()
def attribute_dictionary_is_replaced():
    box = Box(k=2.0)

    def fn(a):
        return a * box.k

    return fn, with_change(lambda: setattr(box, "__dict__", {"k": box.k + 1}), lambda: box.__dict__.update(k=9.0)), None


@program()
def attributes_shared_by_instances():
    class Shared:
        state = {"k": 2.0}  # noqa: RUF012

        def __init__(self):
            self.__dict__ = self.state

    one, other = Shared(), Shared()

    def fn(a):
        one.k += 1.0
        return a * other.k

    return fn, [lambda f: f(x(1))] * 2, lambda: (one.k, other.k)


@program()
def attributes_by_computed_names():
    box = Box(w0=1.0, w1=2.0, w2=3.0)

    def fn(a, n):
        for i in range(n):
            a = a * getattr(box, f"w{i}") + getattr(box, f"missing{i}", 0.5)
            setattr(box, f"w{i}", i + 1.0)
        return a

    return (
        fn,
        [lambda f: f(x(1), 2), lambda f: setattr(box, "missing1", 2.0), lambda f: f(x(1), 2), lambda f: f(x(1), 3)],
        lambda: box,
    )


@program()
def dictionary_of_an_instance_as_a_dictionary():
    box = Box(k=2.0)

    def fn(a):
        state = box.__dict__
        state["n"] = state.get("n", 0) + 1
        y = a * state["k"] + sum(v for v in state.values())
        del box.n
        return y, sorted(state)

    return fn, with_change(lambda: setattr(box, "k", 3.0), lambda: setattr(box, "extra", 1.0)), lambda: box


@program()
def attribute_read_after_the_same_was_set_in_the_dictionary():
    box = Box(k=2.0)

    def fn(a, s):
        box.__dict__["k"] = s
        y = a * box.k
        box.k = s + 1
        return y + box.__dict__["k"]

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 5.0)], lambda: box.k


@program()
def one_list_behind_two_names():
    items = [1.0]
    left, right = Box(items=items), Box(items=items)

    def fn(a):
        left.items[0] = left.items[0] + 1.0
        return a * right.items[0]

    def separate(f):
        right.items = [50.0]
        return f(x(1))

    return fn, [lambda f: f(x(1)), lambda f: setattr(right, "items", left.items), separate], lambda: (left, right)


@program()
def outside_object_stored_in_another_and_read_back():
    inner, outer = Box(k=2.0), Box()

    def fn(a):
        outer.inner = inner
        outer.inner.k += 1.0
        return a * inner.k, outer.inner is inner

    return fn, with_change(lambda: setattr(inner, "k", 10.0)), lambda: (inner.k, outer.inner is inner)


@program()
def made_object_changed_after_it_was_stored():
    outer = Box(items=[])

    def fn(a):
        fresh = Box(values=[1.0])
        outer.last = fresh
        outer.items.append(fresh.values)
        fresh.values.append(2.0)
        outer.last.values.append(a * 2)
        fresh.k = 5.0
        return a

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], lambda: (outer, outer.last.values is outer.items[-1])


@program()
def one_made_object_in_two_places():
    box = Box()

    def fn(a):
        shared = [a * 2]
        box.left, box.right = {"s": shared}, (shared, 1)
        return shared

    def check(f):
        result = f(x(1))
        return result is box.left["s"] is box.right[0], result

    return fn, [check, check], None


@program()
def result_kept_and_changed_by_the_caller():
    box = Box(items=[])

    def fn(a):
        box.items = [a, 1.0]
        return box.items

    def change(f):
        items = f(x(1))
        items.append("caller")
        return box.items is items, items

    return fn, [change, change], lambda: box.items


# -- classes
@program()
def method_replaced_in_the_class():
    class Owner:
        def scaled(self, a):
            return a * 2

    owner = Owner()

    def fn(a):
        return owner.scaled(a)

    return (
        fn,
        with_change(lambda: setattr(Owner, "scaled", lambda self, a: a * 3), lambda: setattr(owner, "scaled", lambda a: a * 4)),
        None,
    )


@program()
def method_replaced_in_a_base_class():
    class Base:
        def scaled(self, a):
            return a * 2

    class Owner(Base):
        pass

    owner = Owner()

    def fn(a):
        return owner.scaled(a)

    def define():
        Owner.scaled = lambda self, a: a * 5

    def remove():
        del Owner.scaled

    return fn, with_change(lambda: setattr(Base, "scaled", lambda self, a: a * 3), define, remove), None


@program()
def code_of_a_function_replaced():
    def helper(a):
        return a * 2

    def other(a):
        return a * 7

    def fn(a):
        return helper(a)

    return fn, with_change(lambda: setattr(helper, "__code__", other.__code__)), None


@program()
def defaults_of_a_function_replaced():
    def helper(a, k=2.0, *, m=1.0):
        return a * k + m

    def fn(a):
        return helper(a)

    def keyword():
        helper.__kwdefaults__ = {"m": 5.0}

    def in_place():
        helper.__kwdefaults__["m"] += 1.0

    return fn, with_change(lambda: setattr(helper, "__defaults__", (3.0,)), keyword, in_place), None


@program()
def defaults_of_the_function_itself_replaced():
    def fn(a, k=2.0):
        return a * k

    return fn, with_change(lambda: setattr(fn, "__defaults__", (fn.__defaults__[0] + 1,))), None


@program()
def list_in_a_default_argument():
    def fn(a, seen=[]):  # noqa: B006
        seen.append(1.0)
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: fn.__defaults__


@program()
def dictionary_in_a_default_argument_as_a_cache():
    def scale(n, known={}):  # noqa: B006
        if n not in known:
            known[n] = n * 2.0
        return known[n]

    def fn(a, n):
        return a * scale(n)

    return fn, [lambda f: f(x(1), 1), lambda f: f(x(1), 2), lambda f: scale.__defaults__[0].clear()], lambda: scale.__defaults__


@program()
def variable_of_a_closure_is_rebound_outside():
    k = 2.0

    def fn(a):
        return a * k

    def change():
        nonlocal k
        k = k + 1 if isinstance(k, float) else 2.0

    def other_type():
        nonlocal k
        k = 3

    return fn, with_change(change, other_type, change), None


@program()
def variable_of_a_closure_is_deleted_and_made_again():
    k = 2.0

    def fn(a):
        try:
            return a * k
        except NameError as error:
            return a, type(error).__name__, error.name

    def remove():
        nonlocal k
        del k

    def make():
        nonlocal k
        k = 5.0

    return fn, with_change(remove, make), None


@program()
def global_is_rebound_deleted_and_made_again():
    def fn(a):
        try:
            return a * GLOBAL
        except NameError as error:
            return a, str(error)

    def remove():
        globals().pop("GLOBAL", None)

    return fn, with_change(remove, lambda: globals().update(GLOBAL=5), lambda: globals().update(GLOBAL=2.0)), None


@program()
def global_hides_a_builtin_for_a_while():
    def fn(a):
        return a * len([1.0, 2.0])

    return fn, with_change(lambda: globals().update(len=lambda v: 10.0), lambda: globals().pop("len")), None


@program()
def builtin_replaced_for_a_while():
    original = builtins.abs

    def fn(a):
        return a * abs(-3.0)

    return fn, with_change(lambda: setattr(builtins, "abs", lambda v: 10.0), lambda: setattr(builtins, "abs", original)), None


@program()
def base_class_is_exchanged():
    class One:
        def scaled(self, a):
            return a * 2

    class Two:
        def scaled(self, a):
            return a * 3

    class Owner(One):
        pass

    owner = Owner()

    def fn(a):
        return owner.scaled(a), isinstance(owner, One), issubclass(Owner, (Two, int))

    return fn, with_change(lambda: setattr(Owner, "__bases__", (Two,))), None


@program()
def class_of_an_instance_is_exchanged_by_the_call():
    class One:
        k = 2.0

    class Two(One):
        k = 3.0

    owner = One()

    def fn(a):
        return a * owner.k * type(owner).k

    return fn, with_change(lambda: setattr(owner, "__class__", Two), lambda: setattr(owner, "__class__", One)), None


@program()
def class_registered_with_an_abstract_one():
    class Scaling(abc.ABC):  # noqa: B024
        pass

    class Owner:
        pass

    owner = Owner()

    def fn(a):
        return a * (2.0 if isinstance(owner, Scaling) else 3.0)

    return fn, with_change(lambda: Scaling.register(Owner)), None


@program()
def property_takes_the_place_of_an_attribute():
    class Owner:
        pass

    owner = Owner()
    owner.k = 2.0

    def fn(a):
        return a * owner.k

    def plain():
        del Owner.k

    return fn, with_change(lambda: setattr(Owner, "k", property(lambda self: 10.0)), plain), None


@program()
def getter_of_a_property_reads_state():
    class Owner:
        @property
        def k(self):
            return self._k * GLOBAL

        @k.setter
        def k(self, value):
            self._k = value
            self.sets = getattr(self, "sets", 0) + 1

        @k.deleter
        def k(self):
            self._k = 0.5

    owner = Owner()
    owner.k = 2.0

    def fn(a):
        y = a * owner.k
        owner.k = owner._k + 1.0
        return y

    return fn, [lambda f: f(x(1)), lambda f: f(x(1)), lambda f: delattr(owner, "k")], lambda: vars(owner)


@program()
def class_attribute_found_then_hidden_by_the_instance():
    class Owner:
        items = [1.0]  # noqa: RUF012

    one, other = Owner(), Owner()

    def fn(a):
        one.items = [*one.items, 2.0]
        return a * len(one.items) * len(other.items)

    return fn, [lambda f: f(x(1)), lambda f: one.__dict__.clear()], lambda: (Owner.items, one.__dict__)


@program()
def class_attribute_list_changed_in_place():
    class Owner:
        items = [1.0]  # noqa: RUF012

    def fn(a):
        Owner.items[0] += 1.0
        return a * Owner().items[0]

    return fn, [lambda f: f(x(1))] * 2, lambda: Owner.items


@program()
def attribute_of_a_class_is_set():
    class Registry:
        n = 0

    def fn(a):
        Registry.n += 1
        return a * Registry.n

    return fn, [lambda f: f(x(1))] * 3, lambda: Registry.n


@program()
def counter_of_a_class():
    class Owner:
        made = 0

        def __init__(self):
            Owner.made += 1

    def fn(a):
        Owner()
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: Owner.made


@program()
def counter_of_a_function():
    def helper(a):
        helper.calls += 1
        return a * 2

    helper.calls = 0

    def fn(a):
        return helper(a)

    return fn, [lambda f: f(x(1))] * 2, lambda: helper.calls


@program()
def static_and_class_methods_exchanged():
    class Owner:
        k = 2.0

        @staticmethod
        def one(a):
            return a * 2

        @classmethod
        def two(cls, a):
            return a * cls.k

    def fn(a):
        return Owner.one(a) + Owner().two(a)

    return (
        fn,
        with_change(
            lambda: setattr(Owner, "one", staticmethod(lambda a: a * 5)),
            lambda: setattr(Owner, "two", classmethod(lambda cls, a: a * cls.k * 10)),
            lambda: setattr(Owner, "k", 7.0),
        ),
        None,
    )


@program()
def methods_of_tensors_and_modules_replaced():
    T.manual_seed(0)
    layer = T.nn.Linear(2, 2)
    relu, forward = T.Tensor.relu, T.nn.Linear.forward

    def fn(a):
        return layer(a).relu()

    return (
        fn,
        with_change(
            lambda: setattr(T.Tensor, "relu", lambda self: self * 0 + 7),
            lambda: setattr(T.Tensor, "relu", relu),
            lambda: setattr(T.nn.Linear, "forward", lambda self, a: a * 3),
            lambda: setattr(layer, "forward", lambda a: a * 4),
            lambda: (delattr(layer, "forward"), setattr(T.nn.Linear, "forward", forward)),
        ),
        None,
    )


@program()
def function_of_the_library_replaced_in_its_module():
    relu = T.nn.functional.relu

    def fn(a):
        return T.nn.functional.relu(a - 1.5)

    return (
        fn,
        with_change(lambda: setattr(T.nn.functional, "relu", lambda v: v * 5), lambda: setattr(T.nn.functional, "relu", relu)),
        None,
    )


@program()
def members_of_enumerations_with_state():
    class Mode(enum.Enum):
        FAST = "fast"
        SLOW = "slow"

        @property
        def factor(self):
            return FACTORS[self] if self in FACTORS else 1.0

    FACTORS = {Mode.FAST: 2.0}

    def fn(a, mode):
        return a * mode.factor if mode is not Mode.SLOW else a - mode.factor, mode.name, mode.value, mode == Mode.FAST

    return (
        fn,
        [
            lambda f: f(x(1), Mode.FAST),
            lambda f: f(x(1), Mode.SLOW),
            lambda f: FACTORS.update({Mode.FAST: FACTORS[Mode.FAST] + 1}),
            lambda f: f(x(1), Mode.FAST),
        ],
        None,
    )


@program()
def flags_combined():
    class Option(enum.Flag):
        ADD = enum.auto()
        SCALE = enum.auto()

    def fn(a, option):
        if Option.ADD in option:
            a = a + 1
        if option & Option.SCALE:
            a = a * 2
        return a, option == Option.ADD | Option.SCALE

    return fn, [lambda f, o=o: f(x(1), o) for o in (Option.ADD, Option.SCALE, Option.ADD | Option.SCALE, Option(0))], None


@program()
def integer_enumeration_as_a_number():
    class Size(enum.IntEnum):
        SMALL = 2
        LARGE = 3

    def fn(a, size):
        return a * size + size.value, [0.0] * size, size + 1, size > 2, {2: "s", 3: "l"}[size], f"{size.name}"

    return fn, [lambda f: f(x(1), Size.SMALL), lambda f: f(x(1), Size.LARGE)], None


# -- modules and the process
@program()
def attributes_of_a_module_change():
    module = types.ModuleType("settings")
    module.k = 2.0

    def fn(a):
        return a * module.k + getattr(module, "shift", 0.0)

    return (
        fn,
        with_change(lambda: setattr(module, "k", 3.0), lambda: setattr(module, "shift", 1.0), lambda: delattr(module, "shift")),
        None,
    )


@program()
def module_of_a_name_exchanged():
    def fn(a):
        import programs_state_settings

        return a * programs_state_settings.k

    def install(k):
        module = types.ModuleType("programs_state_settings")
        module.k = k
        sys.modules["programs_state_settings"] = module

    def go(k):
        def call(f):
            install(k)
            return f(x(1))

        return call

    return fn, [go(2.0), lambda f: f(x(1)), go(3.0)], None


@program()
def name_imported_from_a_module_that_changes():
    module = types.ModuleType("programs_state_names")
    sys.modules["programs_state_names"] = module
    module.k = 2.0

    def fn(a):
        from programs_state_names import k

        return a * k

    return fn, with_change(lambda: setattr(module, "k", 3.0), lambda: setattr(module, "k", T.tensor([5.0, 6.0]))), None


@program()
def environment_variable():
    def fn(a):
        return a * float(os.getenv("PROGRAMS_STATE", "2.0"))

    return fn, with_change(lambda: os.environ.update(PROGRAMS_STATE="3.0"), lambda: os.environ.pop("PROGRAMS_STATE")), None


@program()
def variable_of_a_context():
    variable = contextvars.ContextVar("k", default=2.0)

    def fn(a):
        return a * variable.get()

    return fn, with_change(lambda: variable.set(3.0)), None


@program()
def storage_of_a_thread():
    local = threading.local()

    def fn(a):
        return a * getattr(local, "k", 2.0)

    def elsewhere():
        def run():
            local.k = 100.0

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    return fn, with_change(elsewhere, lambda: setattr(local, "k", 3.0), lambda: delattr(local, "k")), None


@program()
def weak_reference_to_an_object():
    box = Box(k=2.0)
    reference = weakref.ref(box)

    def fn(a):
        return a * reference().k

    return fn, with_change(lambda: setattr(box, "k", 3.0)), None


@program()
def cached_results_of_a_function():
    calls = []

    @functools.lru_cache
    def scale(n):
        calls.append(n)
        return n * 2.0

    def fn(a, n):
        return a * scale(n)

    return (
        fn,
        [lambda f: [f(x(1), 1), f(x(1), 1)], lambda f: f(x(1), 2), lambda f: [f(x(1), 1), scale.cache_clear()]],
        lambda: calls,
    )


@program()
def cached_property_filled_by_the_call():
    class Owner:
        made = []  # noqa: RUF012

        @functools.cached_property
        def k(self):
            self.made.append(1)
            return 2.0

    owner = Owner()

    def fn(a):
        return a * owner.k

    return fn, [lambda f: f(x(1)), lambda f: f(x(2)), lambda f: owner.__dict__.pop("k")], lambda: (Owner.made, owner.__dict__)


@program()
def attribute_made_on_first_use():
    class Owner:
        @property
        def k(self):
            if not hasattr(self, "_k"):
                self._k = [3.0]
            return self._k

    owner = Owner()

    def fn(a):
        return a * owner.k[0]

    return fn, [lambda f: f(x(1)), lambda f: f(x(2)), lambda f: vars(owner).clear()], lambda: vars(owner)


@program()
def default_dtype_and_grad_mode_around_calls():
    def fn(a):
        return a * T.ones(2), T.is_grad_enabled(), T.get_default_dtype()

    def double(f):
        T.set_default_dtype(T.float64)
        try:
            return f(x(1, 2))
        finally:
            T.set_default_dtype(T.float32)

    def without(f):
        with T.no_grad():
            return f(x(1, 2).requires_grad_() if T.is_grad_enabled() else x(1, 2))

    return fn, [lambda f: f(x(1, 2)), double, without, lambda f: f(x(1, 2))], None


@program()
def warning_with_its_place():
    def fn(a):
        warnings.warn("careful", stacklevel=1)
        return a * 2

    def caught(f):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = f(x(1))
        return y, [(os.path.basename(w.filename), w.lineno, str(w.message), w.category) for w in seen]

    return fn, [caught] * 2, None


@program()
def text_of_a_decimal_number():
    value, context = decimal.Decimal("2.5"), decimal.getcontext()

    def fn(a):
        return a * float(f"{value:.0f}"), str(value)

    def rounding(mode):
        context.rounding = mode

    return (
        fn,
        with_change(lambda: rounding(decimal.ROUND_UP), lambda: rounding(decimal.ROUND_HALF_EVEN)),
        None,
    )


@program()
def decimal_number_rounded():
    value, context = decimal.Decimal("2.345"), decimal.getcontext()

    def fn(a):
        return a * float(round(value, 2)) + float(abs(value))

    def rounding(mode):
        context.rounding = mode

    return (
        fn,
        with_change(lambda: rounding(decimal.ROUND_UP), lambda: rounding(decimal.ROUND_HALF_EVEN)),
        None,
    )


@program()
def random_numbers_of_numpy():
    def fn(a):
        return a * float(np.random.rand())  # noqa: NPY002

    return fn, [lambda f: np.random.seed(0), *[lambda f: f(x(1))] * 3], lambda: float(np.random.rand())  # noqa: NPY002


@program()
def state_in_a_list_of_objects():
    boxes = [Box(k=float(i), items=[i]) for i in range(3)]

    def fn(a):
        for i, box in enumerate(boxes):
            a = a * box.k + box.items[0]
            box.k = i + 1.0
        return a

    return fn, [lambda f: f(x(1)), lambda f: f(x(1)), lambda f: boxes.reverse(), lambda f: f(x(1))], lambda: boxes


@program()
def state_in_nested_dictionaries():
    config = {"model": {"scale": 2.0, "layers": [{"k": 1.0}, {"k": 2.0}]}, "n": 1}

    def fn(a):
        for layer in config["model"]["layers"]:
            a = a * layer["k"] * config["model"]["scale"]
        config["n"] += 1
        return a + config["n"]

    return (
        fn,
        with_change(
            lambda: config["model"].update(scale=3.0),
            lambda: config["model"]["layers"].append({"k": 5.0}),
            lambda: config["model"]["layers"][0].update(k=4.0),
        ),
        lambda: config,
    )


@program()
def objects_that_refer_to_each_other():
    class Tree:
        def __init__(self, k, *children):
            self.k, self.children, self.parent = k, list(children), None
            for child in children:
                child.parent = self

        def total(self):
            return self.k + sum(child.total() for child in self.children)

    tree = Tree(1.0, Tree(2.0, Tree(3.0)), Tree(4.0))

    def fn(a):
        leaf = tree.children[0].children[0]
        leaf.parent.parent.k += 1.0
        return a * tree.total()

    return fn, with_change(lambda: tree.children[1].children.append(Tree(10.0)), lambda: tree.children.pop(0))[:2], lambda: tree.k


@program()
def attribute_that_is_a_function_exchanged():
    box = Box(act=lambda v: v * 2)

    def fn(a):
        return box.act(a)

    return (
        fn,
        with_change(
            lambda: setattr(box, "act", lambda v: v * 3),
            lambda: setattr(box, "act", T.relu),
            lambda: setattr(box, "act", operator.neg),
        ),
        None,
    )


@program()
def table_of_functions_exchanged():
    table = {"f": lambda v: v * 2, "g": abs}

    def fn(a, name):
        return table[name](a)

    def swap(f):
        table["f"], table["g"] = table["g"], table["f"]
        return f(x(-1), "f")

    return fn, [lambda f: f(x(-1), "f"), lambda f: f(x(-1), "g"), swap], None


@program()
def ordered_dictionary_is_reordered():
    table = collections.OrderedDict(p=1.0, q=2.0)

    def fn(a):
        for value in table.values():
            a = a * 3 + value
        return a

    def back():
        table.pop("r")
        table.move_to_end("q")

    return fn, with_change(lambda: table.move_to_end("p"), lambda: table.update(r=5.0), back), None


@program()
def simple_values_of_other_types_behind_a_name():
    box = Box(k=1)

    def fn(a):
        return a * box.k, type(box.k), box.k == 1

    return fn, with_change(*(lambda k=k: setattr(box, "k", k) for k in (1.0, True, np.float64(1.0), np.int64(1), 1))), None


@program()
def values_that_are_equal_but_not_the_same():
    box = Box(k=0.0)

    def fn(a):
        return a * 2, math.copysign(1.0, box.k), repr(box.k), box.k == 0

    return fn, with_change(*(lambda k=k: setattr(box, "k", k) for k in (-0.0, 0, False, 0.0, np.float32(-0.0)))), None


@program()
def texts_and_bytes_behind_a_name():
    box = Box(k="ab")

    def fn(a):
        return a * len(box.k), box.k[0], box.k == "ab", box.k in ("ab", b"ab")

    return (
        fn,
        with_change(lambda: setattr(box, "k", b"ab"), lambda: setattr(box, "k", "xyz"), lambda: setattr(box, "k", "ab")),
        None,
    )


@program()
def none_then_a_list_then_a_tensor():
    box = Box(k=None)

    def fn(a):
        if box.k is None:
            return a
        if isinstance(box.k, list):
            return a * len(box.k)
        return a * box.k

    return (
        fn,
        with_change(lambda: setattr(box, "k", [1, 2]), lambda: setattr(box, "k", x(3, 4)), lambda: setattr(box, "k", None)),
        None,
    )
