"""Objects of the standard library and of classes of the program, in the ways that programs hold them.  See capture_programs.py."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import operator
import types
import typing
import weakref

from registered_programs import Box, program, with_change, x

import tracejit as T


@program()
def weak_reference_called_each_time():
    box = Box(k=2.0)
    ref = weakref.ref(box)

    def fn(a):
        return a * ref().k

    return fn, with_change(lambda: setattr(box, "k", 3.0)), None


@program()
def weak_reference_that_died():
    holder = [Box(k=2.0)]
    ref = weakref.ref(holder[0])

    def fn(a):
        o = ref()
        return a * (o.k if o is not None else 9.0)

    def first(f):
        return f(x(1, 2))

    return fn, [first, first, lambda f: (holder.clear(), f(x(1, 2)))[1], first], None


@program()
def weak_method():
    class C:
        k = 2.0

        def m(self, a):
            return a * self.k

    c = C()
    ref = weakref.WeakMethod(c.m)

    def fn(a):
        return ref()(a)

    return fn, with_change(lambda: setattr(c, "k", 3.0)), None


@program()
def weak_value_dictionary():
    box = Box(k=2.0)
    d = weakref.WeakValueDictionary({"b": box})

    def fn(a):
        return a * d["b"].k

    return fn, with_change(lambda: setattr(box, "k", 3.0)), None


@program(reason="construction")
def weak_key_dictionary_as_cache():
    box = Box(k=2.0)
    d = weakref.WeakKeyDictionary()

    def fn(a):
        if box not in d:
            d[box] = 5.0
        return a * d[box]

    return fn, with_change(lambda: d.__setitem__(box, 7.0)), None


@program(reason="container")
def weak_set_membership():
    box = Box(k=2.0)
    s = weakref.WeakSet()

    def fn(a):
        return a * (2.0 if box in s else 3.0)

    return fn, with_change(lambda: s.add(box), lambda: s.discard(box)), None


@program(reason="descriptor")
def weak_proxy():
    box = Box(k=2.0)
    p = weakref.proxy(box)

    def fn(a):
        return a * p.k

    return fn, with_change(lambda: setattr(box, "k", 3.0)), None


@program(reason="descriptor")
def proxy_written():
    box = Box(k=2.0)
    p = weakref.proxy(box)

    def fn(a):
        p.k += 1
        return a * box.k

    return fn, with_change(lambda: setattr(box, "k", 3.0)), lambda: box.k


@program()
def class_attribute_by_type_of_instance():
    class C:
        n = 1

    c = C()

    def fn(a):
        return a * type(c).n + c.__class__.n

    return fn, with_change(lambda: setattr(C, "n", 3), lambda: setattr(c, "n", 5)), None


@program()
def class_attribute_counted_by_type():
    class C:
        n = 1

    c = C()

    def fn(a):
        type(c).n += 1
        return a * C.n

    return fn, with_change(), lambda: C.n


@program(reason="descriptor")
def class_dict_read_by_vars_and_dunder():
    class C:
        n = 2.0

    def fn(a):
        return a * C.__dict__["n"]

    return fn, with_change(lambda: setattr(C, "n", 3.0)), None


@program(reason="unknown_call")
def subclasses_listed():
    class B:
        pass

    class C(B):
        k = 1.0

    keep = [C]

    def fn(a):
        return a * sum(c.k for c in B.__subclasses__())

    def more():
        keep.append(type("D", (B,), {"k": 2.0}))

    return fn, with_change(more), None


@program(reason="unknown_call")
def bases_and_mro_read():
    class A:
        k = 1.0

    class B:
        k = 2.0

    class C(A):
        pass

    def fn(a):
        return a * C.__mro__[1].k + len(C.__bases__) + len(C.mro())

    return fn, with_change(lambda: setattr(C, "__bases__", (B,)), lambda: setattr(C, "__bases__", (A,))), None


@program()
def cached_property_read_and_reset():
    class C:
        def __init__(self):
            self.k = 2.0
            self.calls = 0

        @functools.cached_property
        def v(self):
            self.calls += 1
            return self.k * 2

    c = C()

    def fn(a):
        return a * c.v

    return (
        fn,
        with_change(lambda: setattr(c, "k", 3.0), lambda: c.__dict__.pop("v", None), lambda: c.__dict__.__setitem__("v", 7.0)),
        lambda: c.calls,
    )


@program()
def lru_cache_hit_and_miss():
    calls = []

    @functools.lru_cache(maxsize=None)
    def h(k):
        calls.append(k)
        return k * 2.0

    def fn(a, k):
        return a * h(k)

    return (
        fn,
        [lambda f: f(x(1), 1), lambda f: f(x(1), 2), lambda f: (h.cache_clear(), f(x(1), 1))[1]],
        lambda: (calls, h.cache_info()[:2]),
    )


@program()
def lru_cache_of_a_tensor_function():
    @functools.lru_cache
    def mask(n):
        return T.ones(n, n).tril()

    def fn(a):
        return a @ mask(a.shape[0])

    return fn, [lambda f: f(T.ones(2, 2)), lambda f: f(T.ones(3, 3))], lambda: mask.cache_info()[:2]


@program(reason="unknown_call")
def lru_cache_info_read():
    @functools.lru_cache
    def h(k):
        return k

    def fn(a):
        h(1)
        return a * h.cache_info().hits

    return fn, with_change(lambda: h.cache_clear()), None


@program()
def frozen_slots_dataclass():
    @dataclasses.dataclass(frozen=True, slots=True)
    class P:
        k: float
        n: int = 2

        def scaled(self, a):
            return a * self.k + self.n

    box = Box(p=P(1.0))

    def fn(a):
        q = dataclasses.replace(box.p, n=5)
        return box.p.scaled(a), q, q == box.p, hash(q) == hash(P(1.0, 5))

    return fn, with_change(lambda: setattr(box, "p", P(4.0, 9))), None


@program(reason="no_source")
def dataclass_field_defaults_and_kw_only():
    @dataclasses.dataclass(kw_only=True, order=True)
    class P:
        k: float = 2.0
        tags: list = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=3, repr=False, compare=False)

    def fn(a):
        p = P(k=1.0)
        p.tags.append("t")
        q = P()
        return a * p.k * q.k, p.tags, q.tags, p < q, repr(p), p.hidden

    return fn, with_change(lambda: setattr(P, "k", 9.0), lambda: setattr(P, "hidden", 4)), None


@program()
def dataclass_match_args_and_fields():
    @dataclasses.dataclass
    class P:
        u: float
        v: float

    p = P(1.0, 2.0)

    def fn(a):
        return a * sum(getattr(p, f.name) for f in dataclasses.fields(p)), P.__match_args__

    return fn, with_change(lambda: setattr(p, "v", 5.0)), None


@program()
def namedtuple_default_replaced():
    N = collections.namedtuple("N", "p q", defaults=[3.0])
    box = Box(n=N(1.0))

    def fn(a):
        n = box.n
        m = n._replace(p=n.q)
        return a * n.p + m.p, n._asdict(), N._make([1, 2]), m, N._fields

    return fn, with_change(lambda: setattr(box, "n", N(2.0, 4.0))), None


@program()
def chain_map_lookup_and_store():
    d1, d2 = {"p": 1.0}, {"p": 2.0, "q": 3.0}
    cm = collections.ChainMap(d1, d2)

    def fn(a):
        cm["n"] = cm.get("n", 0) + 1
        return a * cm["p"] + cm["q"], "z" in cm

    return (
        fn,
        with_change(lambda: d1.pop("p", None), lambda: d1.__setitem__("p", 7.0), lambda: d2.__setitem__("q", 0.0)),
        lambda: (d1, d2),
    )


@program()
def counter_kept():
    c = collections.Counter()

    def fn(a, w):
        c[w] += 1
        c.update(w)
        return a * c[w]

    return fn, [lambda f: f(x(1), "ab"), lambda f: f(x(1), "b")], lambda: dict(c)


@program()
def counter_asked_for_the_most_common():
    c = collections.Counter("aab")

    def fn(a):
        return a * c["a"], c.most_common(1), c.total(), c["missing"]

    return fn, with_change(lambda: c.update("b"), lambda: c.subtract("b")), None


@program()
def counter_arithmetic():
    c, d = collections.Counter("aab"), collections.Counter("abc")

    def fn(a):
        return a * (c + d)["a"], c - d, c & d, c | d, sorted(c.elements()), -c

    return fn, with_change(lambda: c.update("c")), None


@program(reason="read_after_change")
def default_dict_of_lists():
    d = collections.defaultdict(list)

    def fn(a, k):
        d[k].append(float(len(d)))
        return a * len(d[k]), sum(d[k])

    return fn, [lambda f: f(x(1), "p"), lambda f: f(x(1), "q")], lambda: d


@program()
def default_dict_with_lambda():
    box = Box(k=2.0)
    d = collections.defaultdict(lambda: box.k)

    def fn(a, k):
        return a * d[k]

    return fn, [lambda f: f(x(1), 1), lambda f: (setattr(box, "k", 3.0), f(x(1), 2))[1]], lambda: dict(d)


@program()
def ordered_dict_moves():
    d = collections.OrderedDict(p=1.0, q=2.0, r=3.0)

    def fn(a):
        d.move_to_end("p")
        k, v = next(iter(d.items()))
        last = d.popitem(last=False)
        d[last[0]] = last[1]
        return a * v, k, list(d)

    def go(f):
        d.clear()
        d.update(p=1.0, q=2.0, r=3.0)
        return f(x(1, 2)), list(d)

    return fn, [go, go], lambda: list(d.items())


@program()
def lru_by_ordered_dict():
    d = collections.OrderedDict()

    def fn(a, k):
        if k in d:
            d.move_to_end(k)
        else:
            d[k] = k * 2.0
            if len(d) > 2:
                d.popitem(last=False)
        return a * d[k]

    return fn, [lambda f, k=k: f(x(1), k) for k in (1, 2, 1, 3)], lambda: list(d.items())


@program()
def getters_of_operator_kept():
    box = Box(k=2.0, sub=Box(v=3.0), d={"p": 5.0})
    rows = [1.0, 2.0]
    k, v, p, r, m = (
        operator.attrgetter("k"),
        operator.attrgetter("sub.v", "k"),
        operator.itemgetter("p"),
        operator.itemgetter(0, -1),
        operator.methodcaller("get", "z", 4.0),
    )

    def fn(a):
        return a * k(box) * v(box)[0] + p(box.d) + sum(r(rows)) + m(box.d)

    return (
        fn,
        with_change(
            lambda: setattr(box, "k", 3.0),
            lambda: setattr(box.sub, "v", 1.0),
            lambda: box.d.__setitem__("z", 8.0),
            lambda: rows.append(9.0),
        ),
        None,
    )


@program()
def property_with_setter_and_deleter():
    class C:
        def __init__(self):
            self._k = 2.0
            self.log = []

        @property
        def k(self):
            self.log.append("get")
            return self._k

        @k.setter
        def k(self, v):
            self.log.append("set")
            self._k = v * 2

        @k.deleter
        def k(self):
            self.log.append("del")
            self._k = 0.0

    c = C()

    def fn(a):
        c.k += 1.0
        r = a * c.k
        del c.k
        return r + c.k

    return fn, with_change(lambda: setattr(c, "_k", 5.0)), lambda: c.log


@program()
def getattr_with_state():
    class C:
        def __init__(self):
            self.asked = []

        def __getattr__(self, n):
            if n.startswith("__"):
                raise AttributeError(n)
            self.asked.append(n)
            return len(self.asked) * 1.0

    c = C()

    def fn(a):
        return a * c.p + c.q

    return fn, with_change(lambda: setattr(c, "p", 10.0)), lambda: c.asked


@program()
def getattribute_that_counts():
    class C:
        n = 0
        k = 2.0

        def __getattribute__(self, name):
            if name == "k":
                C.n += 1
            return object.__getattribute__(self, name)

    c = C()

    def fn(a):
        return a * c.k

    return fn, with_change(lambda: setattr(C, "k", 3.0)), lambda: C.n


@program()
def setattr_that_logs_and_converts():
    class C:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, n, v):
            self.log.append(n)
            object.__setattr__(self, n, v * 2)

    c = C()

    def fn(a):
        c.v = a
        return c.v * 1

    return fn, with_change(), lambda: c.log


@program()
def set_name_descriptor_state():
    class D:
        def __set_name__(self, owner, name):
            self.name = "_" + name
            self.reads = 0

        def __get__(self, o, cls=None):
            if o is None:
                return self
            self.reads += 1
            return getattr(o, self.name, 1.0)

        def __set__(self, o, v):
            setattr(o, self.name, v + 1)

    class C:
        k = D()

    c = C()

    def fn(a):
        c.k = c.k * 2
        return a * c.k

    return fn, with_change(lambda: setattr(c, "_k", 0.5)), lambda: (c._k, C.__dict__["k"].reads)


@program()
def class_getitem_and_init_subclass_state():
    class B:
        registry = {}

        def __init_subclass__(cls, **k):
            B.registry[cls.__name__] = cls

        def __class_getitem__(cls, n):
            return cls.registry[n]

    class P(B):
        k = 2.0

    class Q(B):
        k = 3.0

    def fn(a, n):
        return a * B[n].k

    return (
        fn,
        [
            lambda f: f(x(1), "P"),
            lambda f: f(x(1), "Q"),
            lambda f: (B.registry.__setitem__("P", Q), f(x(1), "P"), B.registry.__setitem__("P", P))[1],
        ],
        None,
    )


@program()
def closures_share_a_variable():
    def make():
        n = 0.0

        def inc():
            nonlocal n
            n += 1

        def get():
            return n

        def reset(v):
            nonlocal n
            n = v

        return inc, get, reset

    inc, get, reset = make()

    def fn(a):
        inc()
        inc()
        return a * get()

    return fn, with_change(lambda: reset(10.0)), get


@program()
def mutable_default_argument_grows():
    def fn(a, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return a * len(seen)

    return fn, with_change(lambda: fn.__defaults__[0].clear()), lambda: fn.__defaults__


@program()
def kwdefaults_mutated():
    def fn(a, *, cfg={"k": 2.0}, s=1.0):  # noqa: B006
        return a * cfg["k"] * s

    return (
        fn,
        with_change(
            lambda: fn.__kwdefaults__["cfg"].__setitem__("k", 3.0),
            lambda: fn.__kwdefaults__.__setitem__("s", 5.0),
            lambda: setattr(fn, "__kwdefaults__", {"cfg": {"k": 7.0}, "s": 1.0}),
        ),
        None,
    )


@program()
def enum_auto_and_lookup():
    class E(enum.Enum):
        A = enum.auto()
        B = enum.auto()

        @property
        def k(self):
            return float(self.value)

        @classmethod
        def default(cls):
            return cls.B

    def fn(a, n):
        return a * E[n].k + E.default().value + E(1).k + len(E), [e.name for e in E], E.A in E

    return fn, [lambda f: f(x(1), "A"), lambda f: f(x(1), "B")], None


@program(reason="construction")
def singledispatch_registered_later():
    @functools.singledispatch
    def h(v):
        return 1.0

    h.register(int)(lambda v: 2.0)

    def fn(a, v):
        return a * h(v)

    def reg(f):
        h.register(str)(lambda v: 3.0)
        return f(x(1), "s")

    return fn, [lambda f: f(x(1), 1), lambda f: f(x(1), "s"), reg], None


@program(reason="construction")
def singledispatch_method():
    class C:
        @functools.singledispatchmethod
        def m(self, v, a):
            return a

        @m.register
        def _(self, v: int, a):
            return a * v

    c = C()

    def fn(a, v):
        return c.m(v, a)

    return fn, [lambda f: f(x(1), 2), lambda f: f(x(1), "s")], None


@program()
def partialmethod_and_wraps():
    def deco(f):
        @functools.wraps(f)
        def w(*p, **k):
            w.n += 1
            return f(*p, **k)

        w.n = 0
        return w

    class C:
        def m(self, a, k):
            return a * k

        twice = functools.partialmethod(m, k=2.0)

    c = C()

    @deco
    def g(a):
        return c.twice(a)

    def fn(a):
        return g(a) * g.n

    return fn, with_change(lambda: setattr(g, "n", 0)), lambda: g.n


@program()
def simple_namespace_changes():
    ns = types.SimpleNamespace(k=2.0, sub=types.SimpleNamespace(v=1.0))

    def fn(a):
        ns.sub.v += 1
        return a * ns.k * ns.sub.v

    return fn, with_change(lambda: setattr(ns, "k", 3.0), lambda: delattr(ns.sub, "v") or setattr(ns.sub, "v", 0.0)), lambda: ns


@program(reason="container")
def mapping_proxy_of_a_dictionary():
    d = {"k": 2.0}
    p = types.MappingProxyType(d)

    def fn(a):
        return a * p["k"], len(p), "z" in p, p.get("z", 1)

    return fn, with_change(lambda: d.__setitem__("k", 3.0), lambda: d.__setitem__("z", 3.0)), None


@program()
def user_dict_with_missing():
    class D(dict):
        def __missing__(self, k):
            self[k] = len(self) * 1.0
            return self[k]

    d = D()

    def fn(a, k):
        return a * d[k]

    return fn, [lambda f: f(x(1), "p"), lambda f: f(x(1), "q")], lambda: d


@program()
def dict_subclass_overriding_getitem():
    class D(dict):
        def __getitem__(self, k):
            return dict.__getitem__(self, k) * 2

    d = D(k=1.0)

    def fn(a):
        return a * d["k"] + d.get("k")

    return fn, with_change(lambda: d.__setitem__("k", 2.0)), None


@program()
def slots_with_dict_and_weakref():
    class C:
        __slots__ = ("k", "__dict__", "__weakref__")

    c = C()
    c.k = 2.0
    c.extra = 1.0

    def fn(a):
        c.k += 1
        c.extra += 1
        return a * c.k * c.extra

    return fn, with_change(lambda: setattr(c, "extra", 9.0)), lambda: (c.k, c.extra)


@program(reason="unknown_call")
def slot_descriptor_called_directly():
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = 2.0

    def fn(a):
        v = C.k.__get__(c)
        C.k.__set__(c, v + 1)
        return a * v

    return fn, with_change(lambda: setattr(c, "k", 9.0)), lambda: c.k


@program()
def object_dunder_get_and_set():
    b = Box(k=2.0)

    def fn(a):
        object.__setattr__(b, "k", object.__getattribute__(b, "k") + 1)
        return a * b.k

    return fn, with_change(lambda: setattr(b, "k", 9.0)), lambda: b.k


@program()
def dict_dunder_of_instance_updated():
    b = Box(k=2.0)

    def fn(a):
        b.__dict__.update(k=b.k + 1, n=1)
        return a * b.k

    return fn, with_change(lambda: setattr(b, "k", 9.0)), lambda: vars(b)


@program()
def vars_of_an_object():
    b = Box(k=2.0)

    def fn(a):
        return a * sum(vars(b).values())

    return fn, with_change(lambda: setattr(b, "j", 9.0)), None


@program()
def setattr_and_getattr_by_name_from_a_list():
    b = Box(p=1.0, q=2.0)
    names = ["p", "q"]

    def fn(a):
        for n in names:
            setattr(b, n, getattr(b, n) + 1)
        return a * b.p * b.q

    return fn, with_change(lambda: names.pop(), lambda: names.append("q")), lambda: vars(b)


@program()
def callable_class_with_state_in_list():
    class Add:
        def __init__(self):
            self.n = 0

        def __call__(self, a):
            self.n += 1
            return a + self.n

    ops = [Add(), Add()]

    def fn(a):
        for o in ops:
            a = o(a)
        return a

    return fn, with_change(lambda: ops.append(Add()), lambda: setattr(ops[0], "n", 10)), lambda: [o.n for o in ops]


@program()
def map_over_bound_methods():
    class C:
        def __init__(self, k):
            self.k = k

        def m(self, a):
            self.k += 1
            return a * self.k

    cs = [C(1.0), C(2.0)]
    ms = tuple(c.m for c in cs)

    def fn(a):
        return sum(map(lambda m: m(a), ms))

    return fn, with_change(lambda: setattr(cs[0], "k", 5.0)), lambda: [c.k for c in cs]


@program()
def reduce_with_a_stateful_function():
    b = Box(n=0)

    def step(p, q):
        b.n += 1
        return p + q * b.n

    def fn(a):
        return functools.reduce(step, [a, a, a])

    return fn, with_change(lambda: setattr(b, "n", 0)), lambda: b.n


@program()
def star_args_and_kwargs_from_objects():
    args = [2.0, 3.0]
    kw = {"p": 4.0}

    def g(a, *r, p=1.0, **k):
        return a * sum(r) * p + len(k)

    def fn(a):
        return g(a, *args, **kw)

    return fn, with_change(lambda: args.append(1.0), lambda: kw.__setitem__("z", 1.0), lambda: kw.pop("p")), None


@program()
def nested_functions_with_attributes():
    def outer():
        def inner(a):
            inner.n += 1
            return a * inner.n

        inner.n = 0
        return inner

    g = outer()

    def fn(a):
        return g(a)

    return fn, with_change(lambda: setattr(g, "n", 10)), lambda: g.n


@program()
def instance_with_overridden_class_method():
    class C:
        def m(self, a):
            return a * 2

    c = C()

    def fn(a):
        return c.m(a)

    return (
        fn,
        with_change(
            lambda: setattr(c, "m", lambda a: a * 3), lambda: delattr(c, "m"), lambda: setattr(C, "m", lambda s, a: a * 5)
        ),
        None,
    )


@program(reason="unknown_callable")
def typing_generics_and_new_types():
    class S(typing.NamedTuple):
        p: float = 1.0

    U = typing.NewType("U", float)
    G = typing.TypeVar("G")

    class Box2(typing.Generic[G]):
        def __init__(self, v: G):
            self.v = v

    def fn(a):
        return a * S().p * U(3.0) * Box2[int](4).v * typing.cast(float, 2.0)

    return fn, with_change(), None


@program()
def descriptor_from_instance_dict_is_not_called():
    class D:
        def __get__(self, o, c=None):
            return 7.0

    b = Box(k=D(), n=1.0)

    def fn(a):
        return a * b.n, type(b.k).__name__

    return fn, with_change(lambda: setattr(type(b), "k2", D())), None


@program()
def copy_of_objects_with_state():
    b = Box(k=2.0, l=[1.0])

    def fn(a):
        c = copy.copy(b)
        d = copy.deepcopy(b)
        c.k = 5.0
        d.l.append(2.0)
        return a * b.k * c.k, b.l, d.l, c.l is b.l

    return fn, with_change(lambda: setattr(b, "k", 3.0), lambda: b.l.append(4.0)), lambda: vars(b)
