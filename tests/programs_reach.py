"""Objects reached otherwise than by an attribute of a name: bound methods, C functions, descriptors, classes.  See capture_programs.py."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import random
import types

from registered_programs import program, x

import tracejit as T


class Scale:
    """Something with a number and a count."""

    def __init__(self, k=2.0):
        self.k = k
        self.n = 0

    def times(self, a):
        self.n += 1
        return a * self.k

    def __call__(self, a):
        return self.times(a)


def with_change(change, *before):
    """Calls of f(x(1, 2)), then `change`, then calls again."""

    def changed(f):
        change()
        return f(x(1, 2))

    return [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), changed, lambda f: f(x(5, 6))]


def kept(reach):
    """A program that calls what `reach(bound method)` keeps; the object's number and count are observed."""

    def maker():
        scale = Scale()
        fn = reach(scale.times)
        return fn, with_change(lambda: setattr(scale, "k", scale.k + 1)), lambda: (scale.k, scale.n)

    return maker


KEEPERS = {
    "a_global": lambda m: lambda a: m(a),
    "a_list": lambda m: (lambda kept: lambda a: kept[0](a))([m]),
    "a_tuple": lambda m: (lambda kept: lambda a: kept[0](a))((m,)),
    "a_dict": lambda m: (lambda kept: lambda a: kept["m"](a))({"m": m}),
    "a_dict_read_by_get": lambda m: (lambda kept: lambda a: kept.get("m")(a))({"m": m}),
    "an_ordered_dict": lambda m: (lambda kept: lambda a: [f(a) for f in kept.values()][0])(collections.OrderedDict(m=m)),
    "a_default_argument": lambda m: lambda a, kept=m: kept(a),
    "a_keyword_default": lambda m: (lambda: [f for f in [lambda a, *, kept=m: kept(a)]][0])(),
    "an_attribute": lambda m: (lambda kept: lambda a: kept.m(a))(types.SimpleNamespace(m=m)),
    "an_instance": lambda m: (lambda kept: lambda a: kept.m(a))(instance(m=m)),
    "a_slot": lambda m: (lambda kept: lambda a: kept.m(a))(slotted(m)),
    "a_class": lambda m: (lambda kept: lambda a: kept.m(a))(type("Kept", (), {"m": m})),
    "a_static_method": lambda m: (lambda kept: lambda a: kept.m(a))(type("Kept", (), {"m": staticmethod(m)})()),
    "a_partial": lambda m: (lambda kept: lambda a: kept(a))(functools.partial(m)),
    "a_partial_with_its_argument": lambda m: (lambda kept: lambda a: a + kept())(functools.partial(m, x(1, 1))),
    "a_partial_of_a_partial": lambda m: (lambda kept: lambda a: kept(a))(functools.partial(functools.partial(m))),
    "a_namedtuple": lambda m: (lambda kept: lambda a: kept.m(a))(collections.namedtuple("Kept", "m")(m)),
    "a_method_of_a_method": lambda m: (lambda kept: lambda a: kept.__call__(a))(m),
    "a_nested_closure": lambda m: (lambda: (lambda: lambda a: m(a))())(),
    "map": lambda m: lambda a: sum(map(m, [a, a])),
    "a_comprehension": lambda m: (lambda kept: lambda a: sum(f(a) for f in kept))([m, m]),
    "reduce": lambda m: lambda a: functools.reduce(lambda total, v: total + m(v), [a, a], a),
    "a_wrapper": lambda m: functools.wraps(Scale.times)(lambda a: m(a)),
    "dispatch_by_name": lambda m: (lambda owner: lambda a: getattr(owner, "times")(a))(m.__self__),  # noqa: B009
    "its_function_and_its_owner": lambda m: lambda a: m.__func__(m.__self__, a),
    "a_callable_object": lambda m: (lambda kept: lambda a: kept[0](a))([m.__self__]),
    "a_module": lambda m: (lambda kept: lambda a: kept.m(a))(module(m=m)),
    "a_property": lambda m: (lambda kept: lambda a: kept.m(a))(type("Kept", (), {"m": property(lambda self: m)})()),
    "a_method_made_by_hand": lambda m: (lambda kept: lambda a: kept(a))(types.MethodType(Scale.times, m.__self__)),
}


def instance(**attributes):
    made = type("Instance", (), {})()
    made.__dict__.update(attributes)
    return made


def slotted(m):
    made = type("Slotted", (), {"__slots__": ("m",)})()
    made.m = m
    return made


def module(**names):
    made = types.ModuleType("kept")
    vars(made).update(names)
    return made


for _name, _reach in KEEPERS.items():
    _maker = kept(_reach)
    _maker.__name__ = f"bound_method_in_{_name}"
    program()(_maker)


# -- methods of C objects kept in variables
@program()
def append_kept_in_a_variable():
    log = []
    append = log.append

    def fn(a):
        append(1)
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: log


@program()
def get_kept_in_a_variable():
    table = {"a": 1.0}
    get = table.get

    def fn(a):
        return a * get("a") + get("b", 0.0)

    return fn, with_change(lambda: table.update(a=table["a"] + 1, b=3.0)), None


@program()
def setdefault_and_pop_kept_in_a_tuple():
    table = {"n": 1.0}
    methods = (table.setdefault, table.pop)

    def fn(a):
        y = a * methods[0]("n", 5.0)
        methods[1]("n")
        return y

    return fn, [lambda f: f(x(1))] * 3, lambda: table


@program()
def extend_and_pop_of_a_list_in_a_dict_of_methods():
    items = [1.0, 2.0]
    methods = {"extend": items.extend, "pop": items.pop}

    def fn(a):
        y = a * methods["pop"](0)
        methods["extend"]([3.0])
        return y

    return fn, [lambda f: f(x(1))] * 3, lambda: items


@program()
def add_of_a_set_kept_in_a_default():
    seen = set()

    def fn(a, add=seen.add):
        add("called")
        return a + 1

    def clear(f):
        seen.clear()
        return f(x(1))

    return fn, [lambda f: f(x(1)), clear], lambda: seen


@program()
def getitem_of_a_list_kept_in_a_variable():
    items = [1.0, 2.0]
    first = items.__getitem__

    def fn(a):
        return a * first(0)

    return fn, with_change(lambda: items.__setitem__(0, items[0] + 1)), None


@program()
def another_list_behind_the_same_name():
    box = {"append": [].append}
    lists = []

    def fn(a):
        box["append"](2.0)
        return a * 2

    def swap(f):
        lists.append([])
        box["append"] = lists[-1].append
        return f(x(1))

    return fn, [lambda f: f(x(1)), swap, swap], lambda: lists


@program()
def another_object_behind_the_same_method():
    first, second = Scale(2.0), Scale(3.0)
    box = {"m": first.times}

    def fn(a):
        return box["m"](a)

    return fn, with_change(lambda: box.update(m=second.times)), lambda: (first.n, second.n)


# -- attributes that something else than the instance holds
class Stateful:
    """A descriptor with a state of its own."""

    def __init__(self, value):
        self.value = value

    def __get__(self, owner, cls=None):
        return self.value


class StatefulData(Stateful):
    def __set__(self, owner, value):
        self.value = value


@program()
def state_of_a_descriptor():
    class Owner:
        k = Stateful(2.0)

    owner, descriptor = Owner(), Owner.__dict__["k"]

    def fn(a):
        return a * owner.k

    return fn, with_change(lambda: setattr(descriptor, "value", descriptor.value + 1)), None


@program()
def state_of_a_data_descriptor_set_inside():
    class Owner:
        k = StatefulData(2.0)

    owner = Owner()

    def fn(a):
        owner.k = owner.k + 1
        return a * owner.k

    return fn, [lambda f: f(x(1))] * 3, lambda: Owner.__dict__["k"].value


@program()
def state_of_a_descriptor_of_a_class():
    class Owner:
        k = Stateful(2.0)

    descriptor = Owner.__dict__["k"]

    def fn(a):
        return a * Owner.k

    return fn, with_change(lambda: setattr(descriptor, "value", descriptor.value + 1)), None


@program()
def descriptor_removed_from_the_class():
    class Owner:
        k = StatefulData(40.0)

    owner = Owner()
    owner.__dict__["k"] = 1.0

    def remove(f):
        if "k" in vars(Owner):
            del Owner.k
        return f(x(1))

    def fn(a):
        return a * owner.k

    return fn, [lambda f: f(x(1)), remove, lambda f: f(x(2))], None


@program()
def descriptor_put_into_the_class():
    class Owner:
        pass

    owner = Owner()
    owner.k = 1.0

    def put(f):
        Owner.k = StatefulData(5.0)
        return f(x(1))

    def fn(a):
        return a * owner.k

    return fn, [lambda f: f(x(1)), put, lambda f: f(x(2))], None


@program()
def descriptor_replaced_by_another_object_of_its_class():
    class Owner:
        k = Stateful(2.0)

    owner = Owner()

    def fn(a):
        return a * owner.k

    return fn, with_change(lambda: setattr(Owner, "k", Stateful(7.0))), None


@program()
def attribute_of_a_metaclass():
    class Meta(type):
        k = 2.0
        box = Scale()

    class Owner(metaclass=Meta):
        pass

    def fn(a):
        return a * Owner.k * Owner.box.k

    def change():
        Meta.k = 3.0
        Meta.box.k += 1

    return fn, with_change(change), None


@program()
def property_and_method_of_a_metaclass():
    class Meta(type):
        @property
        def k(cls):
            return cls.base * 2

        def shifted(cls, a):
            return a + cls.base

    class Owner(metaclass=Meta):
        base = 1.0

    def fn(a):
        return Owner.shifted(a * Owner.k)

    return fn, with_change(lambda: setattr(Owner, "base", Owner.base + 1)), None


@program()
def attribute_of_a_metaclass_hidden_by_the_class():
    class Meta(type):
        k = 2.0

    class Owner(metaclass=Meta):
        pass

    def fn(a):
        return a * Owner.k

    return fn, with_change(lambda: setattr(Owner, "k", 5.0)), None


@program()
def data_of_super():
    box = Scale()

    class Base:
        config = box

    class Child(Base):
        config = None

        def scaled(self, a):
            return a * super().config.k

    child = Child()

    def fn(a):
        return child.scaled(a)

    return fn, with_change(lambda: setattr(box, "k", box.k + 1)), None


@program()
def data_of_super_replaced():
    class Base:
        k = 2.0

    class Child(Base):
        def scaled(self, a):
            return a * super().k

    child = Child()

    def fn(a):
        return child.scaled(a)

    return fn, with_change(lambda: setattr(Base, "k", Base.k + 1)), None


@program()
def property_class_method_and_descriptor_by_super():
    class Base:
        base = 2.0
        held = Stateful(3.0)

        @property
        def k(self):
            return self.base + 1

        @classmethod
        def shift(cls):
            return cls.base

    class Child(Base):
        def scaled(self, a):
            return a * super().k + super().shift() + super().held

        @classmethod
        def shift(cls):
            return super().shift() + 100.0

    child = Child()

    def fn(a):
        return child.scaled(a) + Child.shift()

    return fn, with_change(lambda: setattr(Base, "base", Base.base + 1)), None


@program()
def explicit_super():
    class Base:
        def scaled(self, a):
            return a * self.k

    class Child(Base):
        k = 2.0

        def scaled(self, a):
            return super(Child, self).scaled(a) + 1

    child = Child()

    def fn(a):
        return child.scaled(a)

    return fn, with_change(lambda: setattr(child, "k", child.k + 1)), None


@program()
def state_of_an_enum_member():
    class Kind(enum.Enum):
        A = 1
        B = 2

        def __init__(self, number):
            self.scale = 2.0

    def fn(a, kind):
        return a * kind.scale * Kind.A.scale + kind.value

    def change(f):
        Kind.A.scale += 1
        return f(x(1), Kind.A)

    return fn, [lambda f: f(x(1), Kind.A), lambda f: f(x(1), Kind.B), change, lambda f: f(x(1), Kind.B)], None


@program()
def enum_members_by_value_name_and_iteration():
    class Kind(enum.Enum):
        A = 1
        B = 2

        def __init__(self, number):
            self.scale = 2.0

    def fn(a, number, name):
        return a * Kind(number).scale + Kind[name].scale + sum(kind.scale for kind in Kind)

    def change(f):
        Kind.B.scale += 1
        return f(x(1), 2, "A")

    return fn, [lambda f: f(x(1), 1, "B"), lambda f: f(x(1), 2, "A"), change], None


@program()
def attribute_of_a_methods_function():
    class Owner:
        def method(self):
            pass

    Owner.method.config = Scale()
    owner = Owner()

    def fn(a):
        return a * owner.method.config.k * Owner.method.config.k

    return fn, with_change(lambda: setattr(Owner.method.config, "k", Owner.method.config.k + 1)), None


@program()
def attribute_of_a_function():
    def helper(a):
        return a * helper.k

    helper.k = 2.0

    def fn(a):
        return helper(a) + (1.0 if hasattr(helper, "extra") else 0.0)

    def change():
        helper.k += 1
        helper.extra = True

    return fn, with_change(change), None


@program()
def attribute_missing_from_a_module():
    names = types.ModuleType("names")

    def fn(a):
        return a * getattr(names, "factor", 1.0)

    return fn, with_change(lambda: setattr(names, "factor", 8.0)), None


@program()
def getattr_of_a_module_appears():
    names = types.ModuleType("names")

    def fn(a):
        return a * getattr(names, "factor", 1.0)

    return fn, with_change(lambda: setattr(names, "__getattr__", lambda name: 8.0)), None


@program()
def getattr_of_a_module_with_a_state():
    names = types.ModuleType("names")
    box = Scale()
    names.__getattr__ = lambda name: box.k

    def fn(a):
        return a * names.factor

    return fn, with_change(lambda: setattr(box, "k", box.k + 1)), None


@program()
def name_of_a_class_is_changed():
    class Owner:
        pass

    def fn(a):
        return a * len(Owner.__name__), f"{Owner.__qualname__} {Owner.__module__}"

    def change():
        Owner.__name__ += "longer"
        Owner.__qualname__ += "longer"

    return fn, with_change(change), None


@program()
def bases_of_a_class_are_changed():
    class One:
        k = 2.0

    class Two:
        k = 3.0

    class Owner(One):
        pass

    owner = Owner()

    def fn(a):
        return a * owner.k

    return fn, with_change(lambda: setattr(Owner, "__bases__", (Two,))), None


@program()
def class_of_an_object_is_changed():
    class One:
        k = 2.0

        def scaled(self, a):
            return a * self.k

    class Two(One):
        k = 3.0

    owner = One()

    def fn(a):
        return owner.scaled(a)

    return fn, with_change(lambda: setattr(owner, "__class__", Two)), None


@program()
def call_of_an_object_replaced_in_its_class():
    class Owner:
        def __call__(self, a):
            return a * 2

    owner = Owner()

    def fn(a):
        return owner(a)

    return fn, with_change(lambda: setattr(Owner, "__call__", lambda self, a: a * 7)), None


@program()
def getattribute_appears_in_a_class():
    class Owner:
        k = 2.0

    owner = Owner()

    def fn(a):
        return a * owner.k

    return fn, with_change(lambda: setattr(Owner, "__getattribute__", lambda self, name: 9.0)), None


def counting_owner():
    """A class, one of its objects, and a function that changes and reads it."""

    class Owner:
        k = 2.0

        def __init__(self):
            self.n, self.m = 0, 1.0

    owner = Owner()

    def fn(a):
        owner.n = owner.n + 1
        return a * owner.k * owner.m

    return Owner, owner, fn


@program()
def getattribute_appears_in_the_class_of_an_object_that_the_call_changes():
    Owner, owner, fn = counting_owner()
    log = []

    def getattribute(self, name):
        log.append(name)
        return object.__getattribute__(self, name)

    return fn, with_change(lambda: setattr(Owner, "__getattribute__", getattribute)), lambda: (list(log), owner.n)


@program()
def getattribute_answers_numbers_for_an_object_that_the_call_changes():
    Owner, owner, fn = counting_owner()
    return fn, with_change(lambda: setattr(Owner, "__getattribute__", lambda self, name: 9)), None


@program()
def a_property_appears_in_the_class_of_an_object_that_the_call_changes():
    Owner, owner, fn = counting_owner()
    log = []
    return (
        fn,
        with_change(lambda: setattr(Owner, "m", property(lambda self: log.append("m") or 3.0))),
        lambda: (list(log), owner.n),
    )


@program()
def getattr_appears_in_a_class():
    class Owner:
        pass

    owner = Owner()

    def fn(a):
        return a * getattr(owner, "k", 2.0)

    return fn, with_change(lambda: setattr(Owner, "__getattr__", lambda self, name: 9.0)), None


@program()
def error_of_a_property_leads_to_getattr():
    class Owner:
        def __init__(self):
            self.n = 3.0

        @property
        def k(self):
            raise AttributeError("not yet")

        def __getattr__(self, name):
            return self.__dict__["n"] if name == "k" else 0.0

    owner = Owner()

    def fn(a):
        return a * owner.k

    return fn, with_change(lambda: setattr(owner, "n", owner.n + 1)), None


@program()
def property_with_a_function_of_c_code():
    class Owner:
        k = property(operator.attrgetter("_k"))

    owner = Owner()
    owner._k = 2.0

    def fn(a):
        return a * owner._k

    return fn, with_change(lambda: setattr(owner, "_k", owner._k + 1)), None


@program()
def weak_state_of_cached_property():
    class Owner:
        n = 2.0

        @functools.cached_property
        def k(self):
            return self.n * 2

    owner = Owner()
    owner.k

    def fn(a):
        return a * owner.k

    def forget():
        del owner.k
        Owner.n += 1
        owner.k

    return fn, with_change(forget), None


# -- objects of C code
@program()
def gauss_keeps_every_second_number():
    def fn(a, generator):
        return a * generator.gauss_next

    def go(f):
        generator = random.Random(3)
        generator.gauss(0, 1)
        return f(x(1), generator), f(x(2), generator)

    return fn, [go, go], None


@program()
def gauss_draws():
    generator = random.Random(0)
    gauss = generator.gauss

    def fn(a):
        return a * gauss(0, 1)

    return fn, [lambda f: f(x(1))] * 3, lambda: generator.random()


@program()
def elements_of_a_deque():
    box = Scale()
    items = collections.deque([box])

    def fn(a):
        return a * [item.k for item in items][0]

    return fn, with_change(lambda: setattr(box, "k", box.k + 1)), None


@program()
def item_of_a_deque():
    items = collections.deque([2.0])

    def fn(a):
        return a * items[0]

    return fn, with_change(lambda: items.appendleft(items[0] + 1)), None


@program()
def namespace_that_holds_a_result():
    box = types.SimpleNamespace()

    def fn(a):
        box.y = a * 2
        return box.y

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], lambda: box.y


@program()
def exception_that_holds_a_result():
    error = ValueError("kept")

    def fn(a):
        error.y = a * 2
        return error.y

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], lambda: error.y


@program()
def namespace_that_counts():
    box = types.SimpleNamespace(n=0, inner=types.SimpleNamespace(k=2.0))

    def fn(a):
        box.n += 1
        box.inner.k = box.inner.k + 1
        return a * box.n * box.inner.k

    return fn, [lambda f: f(x(1))] * 3, lambda: box


@program()
def namespace_made_inside():
    def fn(a):
        box = types.SimpleNamespace(y=a * 2)
        box.z = box.y + 1
        return box

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program()
def callables_that_are_only_passed_on():
    def helper(value):
        return value

    def fn(a):
        table = {}
        table.update(helper=helper)
        largest = max([], default=helper)
        chosen = {}.get("none", helper)
        listed = [helper]
        listed.extend([helper])
        return a * 2, table["helper"] is helper, largest is helper, chosen is helper, listed[1] is helper

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def functions_called_by_c_code():
    scale = Scale(3.0)

    def fn(a, numbers):
        ordered = sorted(numbers, key=lambda v: -v * scale.k)
        largest = max(numbers, key=scale.times)
        total = functools.reduce(lambda p, q: p + q * scale.k, numbers, 0.0)
        return a * ordered[0] + largest + total + sum(filter(lambda v: v > scale.k, numbers))

    def change(f):
        scale.k = -scale.k
        return f(x(1), [1.0, 5.0, 2.0])

    return fn, [lambda f: f(x(1), [1.0, 5.0, 2.0]), change, lambda f: f(x(2), [7.0, 1.0])], lambda: scale.n


@program()
def methods_of_c_classes_called_through_the_class():
    items, table = [3.0], {"k": 2.0}

    def fn(a):
        y = a * dict.__getitem__(table, "k") * items[0] * list.__len__(items)
        list.__setitem__(items, 0, 4.0)
        dict.__setitem__(table, "k", 5.0)
        return y

    return fn, [lambda f: f(x(1))] * 3, lambda: (items, table)


@program()
def subclasses_of_immutable_types_made_inside():
    class Pair(tuple):
        def __new__(cls, *values):
            return tuple.__new__(cls, values)

        @property
        def left(self):
            return self[0]

    class Metres(float):
        def __new__(cls, value, unit="m"):
            made = super().__new__(cls, value)
            made.unit = unit
            return made

    class Key(str):
        def upper_first(self):
            return self[:1].upper() + self[1:]

    class Count(int):
        pass

    def fn(a, k):
        pair = Pair(k, 2.0)
        return a * pair.left * pair[1] * Metres(k), Metres(2.0, "cm").unit, Key("name").upper_first(), a * Count(3)

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], None


@program()
def namedtuple_methods():
    Pair = collections.namedtuple("Pair", "left right")
    pair = Pair(1.0, 2.0)

    def fn(a, k):
        return a * pair._replace(left=k).left + Pair._make([k, 4.0]).right + pair._asdict()["right"]

    return fn, [lambda f: f(x(1), 3.0), lambda f: f(x(1), 4.0)], None


@program()
def iterator_with_a_sentinel():
    def fn(a):
        numbers = iter([1, 2, 3])
        return a * sum(iter(lambda: next(numbers), 3))

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def the_same_tuple_or_another_one():
    def fn(a, p, q):
        return a * (2.0 if p is q else 3.0)

    pair, other = (1, 2), (1, int("2"))
    return fn, [lambda f: f(x(1), pair, pair), lambda f: f(x(1), pair, other), lambda f: f(x(1), other, other)], None


@program()
def fresh_callbacks_for_each_call():
    def fn(a, callback):
        return callback(a)

    return fn, [lambda f: f(x(1), lambda v: v * 2), lambda f: f(x(2), lambda v: v * 2)] * 2, None


@program()
def hook_that_is_a_bound_method():
    class Log:
        def __init__(self):
            self.seen = 0
            self.scale = 2.0

        def hook(self, module, inputs, output):
            self.seen += 1
            return output * self.scale

    log = Log()
    T.manual_seed(0)
    model = T.nn.Linear(2, 2)
    model.register_forward_hook(log.hook)

    def fn(a):
        return model(a)

    return fn, with_change(lambda: setattr(log, "scale", log.scale + 1)), lambda: log.seen
