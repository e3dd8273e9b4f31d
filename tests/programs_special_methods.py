"""Special methods of the program's classes: they answer, change, appear and vanish between calls.  See capture_programs.py."""

from __future__ import annotations

import collections
import functools
import numbers
import typing

from registered_programs import Box, program, with_change, x


def appearing(name, method, use, base=object):
    """A program that uses an object before, while and after its class has a special method."""

    def maker():
        class Owner(base):
            k = 2.0

        owner = Owner()

        def put():
            setattr(Owner, name, method)

        def remove():
            delattr(Owner, name)

        return use(owner), with_change(put, remove, put, remove), None

    return maker


APPEARING = {
    "len_decides_the_truth": ("__len__", lambda self: 0, lambda o: lambda a: a * (2.0 if o else 3.0)),
    "bool_decides_the_truth": ("__bool__", lambda self: False, lambda o: lambda a: a * (2.0 if o else 3.0)),
    "bool_under_not": ("__bool__", lambda self: False, lambda o: lambda a: a * (2.0 if not o else 3.0)),
    "bool_of_elements": ("__bool__", lambda self: False, lambda o: lambda a: a * len(list(filter(None, [o, 1, o])))),
    "bool_under_any": ("__bool__", lambda self: False, lambda o: lambda a: a * (2.0 if any([0, o]) else 3.0)),
    "eq_of_the_operator": ("__eq__", lambda self, other: True, lambda o: lambda a: a * (2.0 if o == 5 else 3.0)),
    "eq_behind_not_equal": ("__eq__", lambda self, other: True, lambda o: lambda a: a * (2.0 if o != 5 else 3.0)),
    "eq_of_an_element": ("__eq__", lambda self, other: True, lambda o: lambda a: a * (2.0 if 5 in [1, o] else 3.0)),
    "eq_of_a_tuple": ("__eq__", lambda self, other: True, lambda o: lambda a: a * (2.0 if (1, o) == (1, 5) else 3.0)),
    "eq_of_a_list_behind_count": ("__eq__", lambda self, other: True, lambda o: lambda a: a * [o, 5, o].count(5)),
    "call_of_an_object": ("__call__", lambda self: 1, lambda o: lambda a: a * (2.0 if callable(o) else 3.0)),
    "getattr_of_an_object": ("__getattr__", lambda self, name: 9.0, lambda o: lambda a: a * getattr(o, "n", 4.0)),
    "getattribute_of_an_object": ("__getattribute__", lambda self, name: 9.0, lambda o: lambda a: a * o.k),
    "contains_of_an_object": (
        "__contains__",
        lambda self, element: True,
        lambda o: lambda a: a * (2.0 if hasattr(type(o), "__contains__") and 1 in o else 3.0),
    ),
    "iter_of_an_object": (
        "__iter__",
        lambda self: iter([1.0, 2.0]),
        lambda o: lambda a: a * (sum(o) if hasattr(o, "__iter__") else 5.0),
    ),
    "setattr_of_an_object": (
        "__setattr__",
        lambda self, name, value: object.__setattr__(self, name, value + 1),
        lambda o: lambda a: (setattr(o, "n", 1.0), a * o.n)[1],
    ),
    "add_of_an_object": ("__radd__", lambda self, other: other * 7, lambda o: lambda a: a + o if hasattr(o, "__radd__") else a),
    "mul_before_the_tensors": (
        "__rmul__",
        lambda self, other: other * 7,
        lambda o: lambda a: a * o if hasattr(o, "__rmul__") else a,
    ),
    "index_of_an_object": (
        "__index__",
        lambda self: 1,
        lambda o: lambda a: a * ([5.0, 6.0][o] if hasattr(o, "__index__") else 4.0),
    ),
    "float_of_an_object": ("__float__", lambda self: 2.5, lambda o: lambda a: a * (float(o) if hasattr(o, "__float__") else 4.0)),
    "missing_of_a_dictionary": (
        "__missing__",
        lambda self, key: 5.0,
        lambda o: lambda a: a * (o["q"] if hasattr(o, "__missing__") else 4.0),
        dict,
    ),
    "getitem_of_a_dictionary": ("__getitem__", lambda self, key: 5.0, lambda o: lambda a: (o.update(q=2.0), a * o["q"])[1], dict),
    "len_of_a_list": ("__len__", lambda self: 5, lambda o: lambda a: a * len(o), list),
    "iter_of_a_list": ("__iter__", lambda self: iter([5.0]), lambda o: lambda a: a + sum(o) + len([*o]), list),
    "contains_of_a_list": ("__contains__", lambda self, element: True, lambda o: lambda a: a * (2.0 if 5 in o else 3.0), list),
    "eq_of_a_list": ("__eq__", lambda self, other: True, lambda o: lambda a: a * (2.0 if o == [1] else 3.0), list),
    "bool_of_a_list": ("__bool__", lambda self: True, lambda o: lambda a: a * (2.0 if o else 3.0), list),
    "add_of_a_float": ("__add__", lambda self, other: 100.0, lambda o: lambda a: a * (o + 1.0), float),
    "lt_of_an_integer": ("__lt__", lambda self, other: True, lambda o: lambda a: a * (2.0 if o < -5 else 3.0), int),
    "upper_of_a_text": ("upper", lambda self: "LONGER", lambda o: lambda a: a * len(o.upper()), str),
}
for _name, _parts in APPEARING.items():
    _maker = appearing(*_parts)
    _maker.__name__ = f"appearing_{_name}"
    program()(_maker)


# -- protocols followed to the end
@program()
def reflected_operators_of_subclasses_come_first():
    class Number:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return ("add", self.v)

        def __radd__(self, other):
            return ("radd", self.v)

        def __lt__(self, other):
            return ("lt", self.v)

        def __gt__(self, other):
            return ("gt", self.v)

    class Special(Number):
        def __radd__(self, other):
            return ("special radd", self.v)

        def __gt__(self, other):
            return ("special gt", self.v)

    class Same(Number):
        pass

    def fn(a, p, q):
        return a * 2, p + q, q + p, p < q, q < p, p + 1, 1 + p

    return (
        fn,
        [
            lambda f: f(x(1), Number(1.0), Special(2.0)),
            lambda f: f(x(1), Number(1.0), Same(2.0)),
            lambda f: f(x(1), Same(1.0), Special(3.0)),
        ],
        None,
    )


@program()
def in_place_operators_that_fall_back():
    class Total:
        def __init__(self, v):
            self.v = v

        def __iadd__(self, other):
            if other is None:
                return NotImplemented
            self.v += other
            return self

        def __add__(self, other):
            return Total(100.0)

    total = Total(1.0)

    def fn(a):
        local = total
        local += 2.0
        same = local is total
        local += None
        return a * local.v, same

    return fn, [lambda f: f(x(1)), lambda f: f(x(1))], lambda: total.v


@program()
def not_implemented_on_both_sides():
    class Silent:
        def __add__(self, other):
            return NotImplemented

        def __eq__(self, other):
            return NotImplemented

        __hash__ = None

    left, right = Silent(), Silent()

    def fn(a):
        try:
            left + right
        except TypeError as error:
            return a * 2, str(error), left == right, left != right, left == left  # noqa: PLR0124

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def comparisons_that_return_other_things():
    class Field:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return f"{self.name} = {other}"

        def __lt__(self, other):
            return []

        __hash__ = None

    field = Field("age")

    def fn(a, n):
        return a * n, field == n, field < n, 1 < n < 3, (field < 3) or "empty"

    return fn, [lambda f: f(x(1), 2), lambda f: f(x(1), 3)], None


@program()
def total_ordering_of_objects():
    @functools.total_ordering
    class Version:
        def __init__(self, *parts):
            self.parts = parts

        def __eq__(self, other):
            return self.parts == other.parts

        def __lt__(self, other):
            return self.parts < other.parts

        __hash__ = None

    versions = [Version(1, 2), Version(1, 0), Version(2, 1)]

    def fn(a):
        ordered = sorted(versions, reverse=True)
        return (
            a * ordered[0].parts[0] * max(versions).parts[1] * min(versions).parts[0],
            versions[0] >= versions[1],
            versions[0] != versions[2],
        )

    return fn, with_change(lambda: setattr(versions[1], "parts", (5, 7)), lambda: versions.reverse()), None


@program()
def sort_keys_and_stability():
    class Item:
        def __init__(self, name, rank):
            self.name, self.rank = name, rank

        def __lt__(self, other):
            return self.rank < other.rank

    items = [Item("p", 2), Item("q", 1), Item("r", 2), Item("s", 1)]

    def fn(a):
        names = [i.name for i in sorted(items)], [i.name for i in sorted(items, reverse=True)]
        local = list(items)
        local.sort(key=lambda i: (-i.rank, i.name))
        return a * local[0].rank, names, [i.name for i in local], [i.name for i in sorted(local, key=lambda i: i)]

    return fn, with_change(lambda: setattr(items[3], "rank", 5)), None


@program()
def container_methods_of_the_program():
    class Ring:
        def __init__(self, values):
            self.values, self.reads = values, 0

        def __getitem__(self, i):
            self.reads += 1
            if isinstance(i, slice):
                return [self[j] for j in range(*i.indices(len(self)))]
            return self.values[i % len(self.values)]

        def __setitem__(self, i, value):
            self.values[i % len(self.values)] = value

        def __delitem__(self, i):
            del self.values[i % len(self.values)]

        def __len__(self):
            return len(self.values)

        def __contains__(self, value):
            return value in self.values

        def __iter__(self):
            return iter(self.values)

        def __reversed__(self):
            return iter([0.0])

    ring = Ring([1.0, 2.0, 3.0])

    def fn(a):
        y = a * ring[7] + len(ring) + sum(ring) + (1.0 if 2.0 in ring else 0.0) + list(reversed(ring))[0]
        ring[4] = ring[0]
        p, q, r = ring
        return y * p + q + r, ring[0:2]

    def restore(f):
        ring.values[:] = [1.0, 2.0, 3.0]

    return fn, [lambda f: f(x(1)), lambda f: f(x(1)), restore], lambda: vars(ring)


@program()
def sequence_protocol_without_iter():
    class Old:
        def __init__(self, n):
            self.n = n

        def __getitem__(self, i):
            if i >= self.n:
                raise IndexError(i)
            return i * 2.0

    old = Old(3)

    def fn(a):
        first, *rest = old
        return a + sum(old), first, rest, list(old), [v for v in old]

    return fn, with_change(lambda: setattr(old, "n", 2), lambda: setattr(old, "n", 3)), None


@program()
def iterator_of_the_program_goes_on():
    class Count:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n <= 0:
                raise StopIteration
            self.n -= 1
            return float(self.n)

    def fn(a):
        count = Count(4)
        for v in count:
            if v < 3:
                break
        return a * next(count) + next(count, 9.0) + next(count, 9.0), list(count), v

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def attribute_protocol_in_all_its_parts():
    class Log:
        def __init__(self):
            object.__setattr__(self, "seen", [])
            object.__setattr__(self, "values", {"k": 2.0})

        def __getattribute__(self, name):
            if name not in ("seen", "values"):
                self.seen.append(("get", name))
            return object.__getattribute__(self, name)

        def __getattr__(self, name):
            self.seen.append(("missing", name))
            if name in self.values:
                return self.values[name]
            raise AttributeError(name)

        def __setattr__(self, name, value):
            self.seen.append(("set", name))
            self.values[name] = value

        def __delattr__(self, name):
            self.seen.append(("delete", name))
            del self.values[name]

    log = Log()

    def fn(a):
        log.m = 3.0
        y = a * log.k * log.m
        del log.m
        return y, hasattr(log, "m"), getattr(log, "z", None)

    return fn, with_change(lambda: log.values.update(k=5.0)), lambda: (log.seen, log.values)


@program()
def fallback_that_delegates():
    class Proxy:
        def __init__(self, target):
            self._target = target

        def __getattr__(self, name):
            return getattr(self._target, name)

        def __setattr__(self, name, value):
            if name.startswith("_"):
                object.__setattr__(self, name, value)
            else:
                setattr(self._target, name, value)

    target = Box(k=2.0, n=0)
    proxy = Proxy(target)

    def fn(a):
        proxy.n += 1
        return a * proxy.k + proxy.n

    return (
        fn,
        with_change(lambda: setattr(target, "k", 3.0), lambda: setattr(proxy, "_target", Box(k=7.0, n=5))),
        lambda: (target, proxy.n),
    )


@program()
def context_manager_that_counts_and_swallows():
    class Guarded:
        def __init__(self):
            self.entered, self.errors = 0, []

        def __enter__(self):
            self.entered += 1
            return self

        def __exit__(self, kind, error, traceback):
            self.errors.append(None if kind is None else (kind.__name__, error.args))
            return kind is ValueError

    guarded = Guarded()

    def fn(a, n):
        with guarded as g:
            if n == 1:
                raise ValueError("one")
            a = a * g.entered
        with guarded, guarded:
            a = a + 1
        return a

    return (
        fn,
        [
            lambda f: setattr(guarded, "entered", 0),
            lambda f: f(x(1), 0),
            lambda f: setattr(guarded, "entered", 0),
            lambda f: f(x(1), 1),
        ],
        lambda: (guarded.entered, guarded.errors),
    )


@program()
def calls_of_objects_with_all_kinds_of_arguments():
    class Layer:
        def __init__(self, k):
            self.k = k

        def __call__(self, a, /, *rest, scale=1.0, **options):
            return a * self.k * scale + sum(rest) + sum(options.values())

    layer = Layer(2.0)

    def fn(a, n):
        return layer(a) + layer(a, 1.0, n, scale=n) + layer(a, *[n, 2.0], **{"scale": 0.5, "z": n})

    return (
        fn,
        [lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0), lambda f: setattr(layer, "k", layer.k + 1), lambda f: f(x(1), 3.0)],
        None,
    )


@program()
def formatting_of_objects():
    class Money:
        def __init__(self, v):
            self.v = v

        def __format__(self, specification):
            return f"<{self.v:{specification or '.2f'}}>"

        def __str__(self):
            return f"{self.v} coins"

        def __repr__(self):
            return f"Money({self.v!r})"

    money = Money(2.5)

    def fn(a):
        return (
            a * len(str(money)),
            f"{money} {money:.1f} {money!s} {money!r:>14}",
            repr(money),
            format(money, ".3f"),
            [f"{m!r}" for m in [money]],
        )

    return fn, with_change(lambda: setattr(money, "v", 10.25)), None


@program()
def conversions_of_objects():
    class Number:
        def __init__(self, v):
            self.v = v

        def __int__(self):
            return int(self.v)

        def __float__(self):
            return float(self.v)

        def __index__(self):
            return int(self.v) + 1

        def __bool__(self):
            return self.v > 2

        def __complex__(self):
            return complex(self.v, 1.0)

        def __bytes__(self):
            return b"n" * int(self.v)

    number = Number(2.5)

    def fn(a):
        items = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        return (
            a * items[number],
            int(number),
            float(number),
            bool(number),
            complex(number),
            bytes(number),
            items[number:],
            list(range(number)),
        )

    return fn, with_change(lambda: setattr(number, "v", 1.5)), None


@program()
def numeric_functions_of_objects():
    class Number:
        def __init__(self, v):
            self.v = v

        def __abs__(self):
            return abs(self.v)

        def __neg__(self):
            return Number(-self.v)

        def __pos__(self):
            return self.v

        def __invert__(self):
            return self.v + 100.0

    number = Number(-2.5)

    def fn(a):
        return a * (-number).v + +number, ~number, -(-number).v

    return fn, with_change(lambda: setattr(number, "v", 1.5)), None


@program()
def subclass_of_dict_with_its_own_ways():
    class Config(dict):
        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

        def __missing__(self, key):
            return f"no {key}"

    config = Config(k=2.0, inner=Config(n=3.0))

    def fn(a):
        return (
            a * config.k * config.inner.n,
            config["zz"],
            config.get("zz"),
            getattr(config, "q", 1.0),
            "k" in config,
            len(config),
        )

    return (
        fn,
        with_change(
            lambda: config.update(k=4.0), lambda: config.inner.update(n=5.0), lambda: config.pop("k") and config.update(k=1.0)
        ),
        None,
    )


@program()
def subclass_of_list_with_its_own_ways():
    class Stack(list):
        def push(self, value):
            self.append(value)
            return self

        def append(self, value):
            super().append(value * 2)

        def __getitem__(self, i):
            return super().__getitem__(i) + 100.0

    def fn(a):
        stack = Stack([1.0]).push(2.0).push(3.0)
        return a * stack[0] + sum(stack), len(stack), list(stack), stack.pop()

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def user_dict_and_user_list():
    class Settings(collections.UserDict):
        def __getitem__(self, key):
            return super().__getitem__(key.lower())

    settings, items = Settings(k=2.0), collections.UserList([1.0, 2.0])

    def fn(a):
        return a * settings["K"] + sum(items) + len(settings), "k" in settings, list(settings), items[-1]

    return fn, with_change(lambda: settings.update(k=3.0), lambda: items.append(5.0)), None


@program()
def chain_map_of_dictionaries():
    base, over = {"k": 2.0, "n": 1.0}, {"k": 3.0}
    chain = collections.ChainMap(over, base)

    def fn(a):
        return a * chain["k"] + chain["n"] + chain.get("z", 0.5), sorted(chain), len(chain)

    return fn, with_change(lambda: over.pop("k"), lambda: base.update(k=7.0, z=1.0), lambda: over.update(k=9.0)), None


@program()
def mapping_of_the_program_unpacked():
    class Options:
        def __init__(self, **values):
            self.values = values

        def keys(self):
            return self.values.keys()

        def __getitem__(self, key):
            return self.values[key] + 1.0

    options = Options(k=1.0, m=2.0)

    def take(a, k, m):
        return a * k + m

    def fn(a):
        return take(a, **options), {**options, "z": 0.0}, dict(options)

    return fn, with_change(lambda: options.values.update(k=5.0)), None


@program()
def abstract_base_classes_of_collections():
    class Words(collections.abc.Sequence):
        def __init__(self, words):
            self.words = words

        def __len__(self):
            return len(self.words)

        def __getitem__(self, i):
            return self.words[i]

    words = Words(["p", "q", "p"])

    def fn(a):
        return (
            a * words.count("p") + words.index("q"),
            "q" in words,
            list(reversed(words)),
            isinstance(words, collections.abc.Iterable),
        )

    return fn, with_change(lambda: words.words.append("p"), lambda: words.words.pop()), None


@program()
def numbers_registered_as_numbers():
    class Half:
        def __float__(self):
            return 0.5

    def fn(a, n):
        kind = "real" if isinstance(n, numbers.Real) else "integral" if isinstance(n, numbers.Integral) else "other"
        return a * float(n), kind, isinstance(n, numbers.Number), issubclass(type(n), numbers.Complex)

    return fn, [lambda f: f(x(1), 2), lambda f: f(x(1), 2.0), lambda f: f(x(1), Half()), lambda f: f(x(1), True)], None


@program(reason="frame_access")
def attributes_that_a_protocol_asks_for():
    @typing.runtime_checkable
    class HasScale(typing.Protocol):
        scale: float

    box = Box()

    def fn(a):
        return a * (2.0 if isinstance(box, HasScale) else 3.0)

    return fn, with_change(lambda: setattr(box, "scale", 1.0), lambda: delattr(box, "scale")), None


@program()
def classes_that_decide_what_their_instances_are():
    class Meta(type):
        def __instancecheck__(cls, instance):
            return getattr(instance, "tag", None) in cls.tags

        def __subclasscheck__(cls, other):
            return other.__name__ in cls.tags

    class Tagged(metaclass=Meta):
        tags = ["p"]  # noqa: RUF012

    box = Box(tag="p")

    def fn(a):
        return a * (2.0 if isinstance(box, (int, Tagged)) else 3.0), issubclass(Box, Tagged)

    return (
        fn,
        with_change(
            lambda: setattr(box, "tag", "q"),
            lambda: Tagged.tags.append("Box"),
            lambda: (setattr(box, "tag", "p"), Tagged.tags.remove("Box")),
        ),
        None,
    )


@program()
def constructors_that_return_what_they_know():
    class Unit:
        known = {}  # noqa: RUF012

        def __new__(cls, name):
            if name not in cls.known:
                cls.known[name] = super().__new__(cls)
            return cls.known[name]

        def __init__(self, name):
            self.name = name
            self.uses = getattr(self, "uses", 0) + 1

    def fn(a, name):
        unit = Unit(name)
        return a * len(unit.name), unit is Unit(name)

    return (
        fn,
        [lambda f: f(x(1), "m"), lambda f: f(x(1), "cm"), lambda f: f(x(1), "m")],
        lambda: {k: v.uses for k, v in Unit.known.items()},
    )


@program()
def constructor_that_returns_another_type():
    class Wide:
        def __new__(cls, v):
            return [v, v] if v > 1 else super().__new__(cls)

        def __init__(self, v):
            self.v = v

    def fn(a, n):
        made = Wide(n)
        return a * (made[0] if isinstance(made, list) else made.v), type(made).__name__

    return fn, [lambda f: f(x(1), 1.0), lambda f: f(x(1), 2.0)], None


@program()
def hooks_of_subclasses_and_class_items():
    class Plugin:
        registry = []  # noqa: RUF012

        def __init_subclass__(cls, **options):
            Plugin.registry.append((cls.__name__, options))

    class First(Plugin, k=2.0):
        pass

    def fn(a):
        return a * dict(Plugin.registry)["First"]["k"], len(Plugin.registry)

    def another(f):
        class Second(Plugin, k=3.0):
            pass

        return f(x(1))

    return fn, [lambda f: f(x(1)), another], lambda: Plugin.registry


@program()
def descriptors_with_names_and_owners():
    class Typed:
        def __init__(self, default):
            self.default = default

        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner=None):
            return self if instance is None else instance.__dict__.get(self.name, self.default)

        def __set__(self, instance, value):
            if not isinstance(value, float):
                raise TypeError(f"{self.name}: float expected")
            instance.__dict__[self.name] = value

        def __delete__(self, instance):
            del instance.__dict__[self.name]

    class Owner:
        k = Typed(2.0)

    owner = Owner()

    def fn(a, n):
        try:
            owner.k = n
        except TypeError as error:
            return a * owner.k, str(error)
        y = a * owner.k
        if n > 5:
            del owner.k
        return y, owner.k, Owner.k.default

    return fn, [lambda f, n=n: f(x(1), n) for n in (3.0, 4, 7.0)], lambda: vars(owner)


@program()
def slots_in_a_hierarchy():
    class Base:
        __slots__ = ("k",)

    class Child(Base):
        __slots__ = ("n",)

        def __init__(self, k, n):
            self.k, self.n = k, n

    child = Child(2.0, 3)

    def fn(a):
        child.n += 1
        local = Child(child.k, 5)
        local.k = 7.0
        return a * child.k + local.k * local.n + child.n

    return fn, with_change(lambda: setattr(child, "k", 4.0)), lambda: (child.k, child.n)


@program()
def metaclass_that_makes_attributes():
    class Meta(type):
        def __getattr__(cls, name):
            if name.startswith("k"):
                return cls.table[name]
            raise AttributeError(name)

        def __call__(cls, *args):
            return super().__call__(*args)

    class Owner(metaclass=Meta):
        table = {"k1": 2.0}  # noqa: RUF012

    def fn(a):
        return a * Owner.k1 + getattr(Owner, "zz", 1.0)

    return fn, with_change(lambda: Owner.table.update(k1=5.0), lambda: setattr(Owner, "zz", 3.0)), None


@program()
def methods_called_through_the_class():
    class Owner:
        k = 2.0

        def scaled(self, a):
            return a * self.k

    owner, other = Owner(), Box(k=5.0)

    def fn(a):
        return Owner.scaled(owner, a) + Owner.scaled(other, a)

    return fn, with_change(lambda: setattr(owner, "k", 3.0), lambda: setattr(other, "k", 7.0)), None


@program()
def deep_hierarchy_with_cooperative_super():
    class Base:
        def run(self, a):
            return a + self.shift

    class Left(Base):
        def run(self, a):
            return super().run(a) * 2

    class Right(Base):
        def run(self, a):
            return super().run(a) * 3 + self.shift

    class Both(Left, Right):
        shift = 1.0

        def run(self, a):
            return super().run(a) - 1

    both = Both()

    def fn(a):
        return both.run(a)

    return (
        fn,
        with_change(
            lambda: setattr(Both, "shift", 2.0),
            lambda: setattr(Right, "run", lambda self, a: a * 100),
            lambda: setattr(Both, "__bases__", (Right, Left)),
        ),
        None,
    )


@program()
def error_of_a_special_method_is_caught():
    class Broken:
        def __init__(self):
            self.n = 0

        def __len__(self):
            self.n += 1
            raise RuntimeError(f"len {self.n}")

        def __iter__(self):
            raise LookupError("iter")

        def __getitem__(self, key):
            raise KeyError(key)

    broken = Broken()

    def fn(a):
        texts = []
        for use in (len, list, lambda b: b["k"], bool):
            try:
                use(broken)
            except (RuntimeError, LookupError) as error:
                texts.append((type(error).__name__, error.args))
        return a * len(texts), texts

    return fn, [lambda f: setattr(broken, "n", 0), lambda f: f(x(1))], lambda: broken.n


@program()
def length_of_the_wrong_kind():
    class Odd:
        n = -1

        def __len__(self):
            return self.n

    odd = Odd()

    def fn(a):
        try:
            return a * len(odd)
        except (ValueError, TypeError) as error:
            return a, str(error)

    return fn, with_change(lambda: setattr(odd, "n", 2.5), lambda: setattr(odd, "n", 3)), None


@program()
def init_that_returns_something_raises():
    class Odd:
        def __init__(self):
            return 3

    def fn(a):
        try:
            Odd()
        except TypeError as error:
            return a * 2, str(error)

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def meters_in_texts_of_every_kind():
    class Meter:
        def __init__(self, name, form=":.3f"):
            self.name, self.form, self.total, self.count, self.asked = name, form, 0.0, 0, 0

        def update(self, value):
            self.total += value
            self.count += 1

        def __str__(self):
            self.asked += 1
            return ("{name} {total" + self.form + "}").format(**{"name": self.name, "total": self.total})

        def __repr__(self):
            return f"<{self.name} {self.total / self.count:.2f}>"

        def __format__(self, specification):
            return format(self.total, specification or ".1f")

    class Plain:
        def __repr__(self):
            return "plain"

    loss, other = Meter("loss"), Plain()

    def fn(x):
        loss.update(x.sum().item())
        return (
            "%s" % loss, "%r%%" % loss, "%-9a|%5.2r" % (loss, other), "%s of %d: %s" % (loss.name, loss.count, loss),
            "{} {:.3f} {m!s:>20}{{".format(loss, loss, m=loss), "{1!r} {0}".format(other, loss), f"{loss} {loss!s} {loss!r:>12} {other}",
            "\t".join([str(m) for m in (loss, other)]), format(loss, ".2f"), "%s" % (other,),
        )  # fmt: skip

    return fn, with_change(), lambda: (loss.total, loss.count, loss.asked)


@program(reason="implicit_python")
def objects_in_texts_that_raise():
    class Text:
        def __str__(self):
            return "text"

    text = Text()

    def fn(x):
        found = []
        for template in ("%s %s", "%d", ""):
            try:
                found.append(template % text)
            except TypeError as error:
                found.append(str(error))
        for template in ("{} {0}", "{:x}"):
            try:
                found.append(template.format(text))
            except (TypeError, ValueError) as error:
                found.append(str(error))
        return found, x * 2

    return fn, with_change(), None


@program()
def objects_with_a_getattr_are_called():
    class Wrapper:
        def __init__(self, inner, **more):
            self.inner, self.more, self.asked = inner, more, []

        def __getattr__(self, name):
            if name.startswith("__") or name not in self.more:
                raise AttributeError(name)
            self.asked.append(name)
            return self.more[name]

        def __call__(self, x, times=1):
            return self.inner(x) * self.gain * times

    wrapped = Wrapper(Wrapper(lambda x: x + 1, gain=2.0), gain=3.0)

    def fn(x):
        return wrapped(x), list(map(wrapped, [x, x * 2])), wrapped(x, times=2), hasattr(wrapped, "other")

    return fn, with_change(), lambda: (wrapped.asked, wrapped.inner.asked)
