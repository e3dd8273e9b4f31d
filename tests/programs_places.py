"""Places of all kinds in which programs keep their state.  See capture_programs.py."""

from __future__ import annotations

import abc
import array
import bisect
import contextlib
import datetime
import fractions
import functools
import heapq
import inspect
import itertools
import math
import operator
import re
import string
import types

import numpy as np
from registered_programs import Box, over, program, with_change, x

import tracejit as T


# --- state reached through odd doors
@program()
def state_behind_property_of_metaclass():
    class M(type):
        _k = 2.0

        @property
        def k(cls):
            return cls._k

    class C(metaclass=M):
        pass

    def fn(a):
        return a * C.k

    return fn, with_change(lambda: setattr(M, "_k", 3.0), lambda: setattr(C, "_k", 4.0)), None


@program()
def state_in_closure_of_a_bound_method():
    def make():
        k = [1.0]

        class C:
            def m(self, a):
                k[0] += 1
                return a * k[0]

        return C(), k

    c, k = make()
    m = c.m

    def fn(a):
        return m(a)

    return fn, with_change(lambda: k.__setitem__(0, 10.0)), lambda: k


@program()
def state_in_default_of_a_lambda_in_a_dict():
    d = {"f": lambda a, s=[1.0]: a * s.__getitem__(0)}

    def fn(a):
        return d["f"](a)

    return fn, with_change(lambda: d["f"].__defaults__[0].__setitem__(0, 5.0), lambda: d.__setitem__("f", lambda a: a)), None


@program()
def state_in_partial_keywords():
    p = functools.partial(lambda a, k: a * k, k=2.0)

    def fn(a):
        return p(a)

    return fn, with_change(lambda: p.keywords.__setitem__("k", 3.0)), None


@program()
def state_in_partial_arguments_list():
    items = [2.0]
    p = functools.partial(lambda s, a: a * s[0], items)

    def fn(a):
        return p(a)

    return fn, with_change(lambda: items.__setitem__(0, 3.0)), None


@program()
def state_behind_wrapped():
    def deco(f):
        @functools.wraps(f)
        def w(a):
            return f(a) * w.scale

        w.scale = 2.0
        return w

    @deco
    def g(a):
        return a + 1

    def fn(a):
        return g(a) + g.__wrapped__(a)

    return fn, with_change(lambda: setattr(g, "scale", 3.0)), None


@program()
def state_in_annotations_and_doc():
    def g(a: "float"):
        "doc"
        return a

    def fn(a):
        return a * len(g.__doc__) * len(g.__annotations__)

    return fn, with_change(lambda: setattr(g, "__doc__", "longer"), lambda: g.__annotations__.__setitem__("z", 1)), None


@program()
def name_and_qualname_of_functions_and_classes():
    class C:
        pass

    def g():
        pass

    def fn(a):
        return a * len(C.__name__) + len(g.__name__) + len(C.__qualname__), C.__module__ == g.__module__

    return (
        fn,
        with_change(
            lambda: setattr(C, "__name__", "Longer"), lambda: setattr(g, "__name__", "hh"), lambda: setattr(C, "__name__", "C")
        ),
        None,
    )


@program(reason="frame_access")
def signature_inspected():
    def g(a, b=2):
        return a

    def fn(a):
        return a * len(inspect.signature(g).parameters)

    return fn, with_change(), None


@program()
def state_in_a_class_inside_a_list():
    class A:
        k = 1.0

    class B:
        k = 2.0

    cs = [A, B]

    def fn(a):
        return a * sum(c.k for c in cs) + cs[0]().k

    return fn, with_change(lambda: setattr(A, "k", 5.0), lambda: cs.reverse(), lambda: cs.pop()), None


@program()
def state_of_an_abstract_class():
    class Base(abc.ABC):
        @abc.abstractmethod
        def k(self): ...

    class C(Base):
        def k(self):
            return 2.0

    class Other:
        pass

    o = Other()

    def fn(a):
        return a * C().k() * (2 if isinstance(o, Base) else 1)

    return fn, with_change(lambda: Base.register(Other)), None


@program()
def state_in_exception_instance():
    err = ValueError("a", 2.0)
    err.k = 3.0

    def fn(a):
        return a * err.args[1] * err.k

    return fn, with_change(lambda: setattr(err, "k", 4.0), lambda: setattr(err, "args", ("a", 5.0))), None


@program(reason="container")
def state_in_array_and_bytearray():
    arr = array.array("d", [2.0])
    by = bytearray(b"\x03")

    def fn(a):
        return a * arr[0] * by[0]

    return fn, with_change(lambda: arr.__setitem__(0, 5.0), lambda: by.__setitem__(0, 7)), None


@program(reason="container")
def state_in_memoryview_and_range():
    by = bytearray(b"\x03\x04")
    mv = memoryview(by)
    box = Box(r=range(3))

    def fn(a):
        return a * mv[1] + len(box.r)

    return fn, with_change(lambda: by.__setitem__(1, 9), lambda: setattr(box, "r", range(5))), None


@program(reason="container")
def state_in_numpy_structures():
    rec = np.zeros(2, dtype=[("k", "f4")])
    z = np.array(2.0)

    def fn(a):
        return a * float(z) + float(rec["k"][0])

    return fn, with_change(lambda: z.fill(3.0), lambda: rec["k"].fill(7)), None


@program()
def state_in_fraction_and_dates():
    box = Box(f=fractions.Fraction(1, 2), d=datetime.date(2020, 1, 2), t=datetime.timedelta(seconds=5))

    def fn(a):
        return a * float(box.f) + box.d.day + box.t.total_seconds(), str(box.d), box.f + 1

    return (
        fn,
        with_change(lambda: setattr(box, "f", fractions.Fraction(3, 2)), lambda: setattr(box, "d", datetime.date(2021, 5, 6))),
        None,
    )


@program()
def heap_and_bisect_kept():
    heap = [3.0, 5.0]

    def fn(a, v):
        heapq.heappush(heap, v)
        s = heapq.heappop(heap)
        return a * s + bisect.bisect(sorted(heap), v)

    def go(f, v):
        heap[:] = [3.0, 5.0]
        return f(x(1), v)

    return fn, [lambda f: go(f, 1.0), lambda f: go(f, 9.0)], lambda: heap


@program()
def statistics_of_numbers():
    items = [1.0, 2.0, 4.0]

    def fn(a):
        return (
            a * (sum(items) / len(items)) + math.fsum(items) + math.prod(items),
            math.hypot(*items[:2]),
            math.dist((0, 0), items[:2]),
        )

    return fn, with_change(lambda: items.append(1.0)), None


@program()
def static_class_bound_unbound_forms():
    class C:
        k = 2.0

        @staticmethod
        def s(a):
            return a * 2

        @classmethod
        def c(cls, a):
            return a * cls.k

        def m(self, a):
            return a * self.k

    class D(C):
        k = 3.0

    o = D()
    fs = [C.s, D.c, o.m, C.m.__get__(o), functools.partial(C.m, o), D.s, o.c, lambda a: C.m(o, a), operator.methodcaller]

    def fn(a):
        return sum(f(a) for f in fs[:-1])

    return (
        fn,
        with_change(lambda: setattr(D, "k", 5.0), lambda: setattr(o, "k", 7.0), lambda: setattr(C, "m", lambda self, a: a)),
        None,
    )


@program()
def methods_rebound_via_types():
    class C:
        def __init__(self, k):
            self.k = k

        def m(self, a):
            return a * self.k

    p, q = C(1.0), C(2.0)
    q.m = types.MethodType(C.m, p)

    def fn(a):
        return q.m(a)

    return fn, with_change(lambda: setattr(p, "k", 5.0), lambda: delattr(q, "m"), lambda: setattr(q, "m", p.m)), None


@program()
def super_in_all_forms():
    class A:
        k = 1.0

        def m(self, a):
            return a + self.k

        @property
        def p(self):
            return self.k * 2

    class B(A):
        def m(self, a):
            return super().m(a) * 2

        @property
        def p(self):
            return super().p + 1

        @classmethod
        def make(cls):
            return super().__new__(cls)

    class C(B):
        def m(self, a):
            s = super()
            return s.m(a) + super(B, self).m(a) + s.p

    c = C.make()

    def fn(a):
        return c.m(a) * c.p

    return (
        fn,
        with_change(lambda: setattr(A, "k", 2.0), lambda: setattr(c, "k", 3.0), lambda: setattr(A, "m", lambda self, a: a)),
        None,
    )


@program()
def init_new_and_post_init_with_state():
    class C:
        made = []

        def __new__(cls, *a, **k):
            o = super().__new__(cls)
            cls.made.append(len(cls.made))
            return o

        def __init__(self, k, *, z=1.0):
            self.k, self.z = k, z

        def __call__(self, a):
            return a * self.k + self.z

    def fn(a, k):
        return C(k)(a) + C(k, z=2.0)(a)

    def go(f, k):
        C.made.clear()
        return f(x(1), k)

    return fn, [lambda f: go(f, 1.0), lambda f: go(f, 2.0)], lambda: C.made


@program()
def slots_inherited_and_class_default():
    class A:
        __slots__ = ("p",)
        q = 5.0

    class B(A):
        __slots__ = ("r",)

    b = B()
    b.p, b.r = 1.0, 2.0

    def fn(a):
        b.p, b.r = b.r, b.p
        return a * b.p + b.r + b.q

    return fn, with_change(lambda: setattr(b, "p", 9.0), lambda: setattr(A, "q", 0.0)), lambda: (b.p, b.r)


@program()
def dictionary_with_object_values_mutated_by_key_order():
    d = {}

    def fn(a, k):
        d[k] = d.pop(k, 0.0) + 1.0
        return a * d[k], next(iter(d)) if len(d) < 2 else None

    return over(fn, "p", "q", "p")[:2] + (lambda: list(d.items()),)


@program()
def list_methods_of_all_kinds_with_resets():
    items = [3.0, 1.0, 2.0]

    def fn(a):
        nonlocal items
        items.sort()
        items.insert(1, 9.0)
        items.reverse()
        items.extend([4.0])
        items.remove(9.0)
        v = items.pop(0)
        items[1:2] = [7.0, 8.0]
        del items[-1]
        items += [5.0]
        return a * v, items.index(7.0), items.count(5.0), list(items)

    def go(f):
        items[:] = [3.0, 1.0, 2.0]
        return f(x(1)), list(items)

    return fn, [go, go], lambda: items


@program()
def set_methods_with_resets():
    s = {1, 2}

    def fn(a):
        nonlocal s
        s.add(3)
        s.discard(1)
        s.update([5, 6])
        s.remove(5)
        s ^= {6, 7}
        s |= {8}
        s &= {2, 3, 7, 8}
        s -= {8}
        return a * len(s), sorted(s), 2 in s, s <= {2, 3, 7}, s.isdisjoint([9])

    def go(f):
        s.clear()
        s.update((1, 2))
        return f(x(1)), sorted(s)

    return fn, [go, go], lambda: sorted(s)


@program()
def dict_methods_with_resets():
    d = {"p": 1.0}

    def fn(a):
        nonlocal d
        d.setdefault("q", 2.0)
        d.update({"r": 3.0}, s=4.0)
        d |= {"t": 5.0}
        v = d.pop("p")
        w = d.popitem()
        d["p"] = v
        del d["q"]
        return a * v, w, list(d), d.get("zz", 9.0), "r" in d, {**d, "k": 1}

    def go(f):
        d.clear()
        d["p"] = 1.0
        return f(x(1)), dict(d)

    return fn, [go, go], lambda: d


@program()
def nested_containers_deep_update():
    s = {"l": [{"k": [1.0, {"z": 2.0}]}]}

    def fn(a):
        s["l"][0]["k"][1]["z"] += 1.0
        s["l"][0]["k"][0] *= 2.0
        return a * s["l"][0]["k"][1]["z"] + s["l"][0]["k"][0]

    return (
        fn,
        with_change(lambda: s["l"][0]["k"][1].__setitem__("z", 0.0), lambda: s["l"].__setitem__(0, {"k": [0.0, {"z": 7.0}]})),
        lambda: s,
    )


@program()
def alias_of_outside_container_in_local_and_made():
    items = [1.0]
    box = Box(l=items)

    def fn(a):
        m = {"l": items, "b": box}
        m["l"].append(2.0)
        v = m["b"].l
        v[0] += 1.0
        return a * items[0], v is items

    def go(f):
        items[:] = [1.0]
        return f(x(1)), list(items)

    return fn, [go, go], lambda: items


@program()
def outside_object_in_made_tuple_returned_and_mutated():
    box = Box(k=1.0)
    items = [1.0]

    def fn(a):
        return (box, items, {"b": box}), a * box.k

    def go(f):
        (b, m, d), r = f(x(1))
        b.k += 1
        m.append(1.0)
        return r, b is box, m is items, d["b"] is box

    return fn, [go, go], lambda: (box.k, len(items))


@program()
def string_state_and_flags():
    box = Box(mode="train", name="n")

    def fn(a):
        if box.mode == "train":
            a = a * 2
        if box.mode.startswith("e") and "v" in box.mode:
            a = a * 3
        return a * len(box.name), box.mode.upper(), box.name + "_" + box.mode, f"{box.name!r:>6}"

    return (
        fn,
        with_change(
            lambda: setattr(box, "mode", "eval"),
            lambda: setattr(box, "name", "longer"),
            lambda: setattr(box, "mode", b"b".decode()),
        ),
        None,
    )


@program()
def numbers_of_all_types_behind_one_name():
    box = Box(k=2)

    def fn(a):
        return a * box.k, type(box.k).__name__, box.k == 2, bool(box.k)

    return fn, with_change(*[lambda v=v: setattr(box, "k", v) for v in (2.0, True, np.float32(2), 0, -0.0, 3)]), None


@program()
def complex_and_bytes_values():
    box = Box(c=1 + 2j, b=b"ab")

    def fn(a):
        return a * box.c.real + abs(box.c) + box.b[0] + len(box.b), box.c.conjugate(), box.b.hex()

    return fn, with_change(lambda: setattr(box, "c", 3j), lambda: setattr(box, "b", b"abc")), None


@program()
def ellipsis_none_and_notimplemented():
    box = Box(i=..., n=None)

    def fn(a):
        return a[box.i] * 2, a[None].shape, box.n is None, a[..., 0]

    return (
        fn,
        with_change(
            lambda: setattr(box, "i", 0), lambda: setattr(box, "i", slice(0, 1)), lambda: setattr(box, "n", NotImplemented)
        ),
        None,
    )


@program()
def slices_behind_names():
    box = Box(s=slice(0, 2), t=(slice(None), 1))

    def fn(a):
        return a[box.s] * 2, a.reshape(2, 2)[box.t], box.s.stop, list(range(10))[box.s]

    return (
        fn,
        [
            lambda f: f(T.arange(4.0)),
            lambda f: (setattr(box, "s", slice(1, 4, 2)), f(T.arange(4.0)))[1],
            lambda f: (setattr(box, "t", (0, slice(None))), f(T.arange(4.0)))[1],
        ],
        None,
    )


@program()
def index_tensors_and_masks_kept():
    box = Box(i=T.tensor([1, 0]), m=T.tensor([True, False]))

    def fn(a):
        return a[box.i] * 2, T.where(box.m, a, -a)

    return (
        fn,
        with_change(lambda: setattr(box, "i", T.tensor([0, 0])), lambda: box.m.logical_not_(), lambda: setattr(box, "i", 1)),
        None,
    )


@program()
def dtype_and_device_like_state():
    box = Box(d=T.float64)

    def fn(a):
        return a.to(box.d) * 2, T.zeros(2, dtype=box.d), box.d is T.float64, str(box.d)

    return fn, with_change(lambda: setattr(box, "d", T.float32), lambda: setattr(box, "d", T.int64)), None


@program()
def shape_state_and_sizes():
    box = Box(s=(2, 1), n=3)

    def fn(a):
        return a.reshape(box.s), T.zeros(*box.s) + a.sum(), a.expand(box.n, 2).shape, a.repeat(box.n)

    return (
        fn,
        with_change(
            lambda: setattr(box, "s", (1, 2)), lambda: setattr(box, "n", 4), lambda: setattr(box, "s", T.zeros(2, 1).shape)
        ),
        None,
    )


@program()
def callables_of_the_library_behind_names():
    box = Box(act=T.relu, ops=[T.sin, T.Tensor.cos, "tanh"])

    def fn(a):
        a = box.act(a)
        for o in box.ops:
            a = o(a) if callable(o) else getattr(a, o)()
        return a

    return (
        fn,
        with_change(
            lambda: setattr(box, "act", T.sigmoid),
            lambda: box.ops.pop(),
            lambda: box.ops.append(lambda v: v * 2),
            lambda: setattr(box, "act", abs),
        ),
        None,
    )


@program()
def interleaved_reads_and_writes_of_one_place():
    box = Box(k=1.0)

    def fn(a):
        p = box.k
        box.k = 5.0
        q = box.k
        box.k = p + q
        del box.k
        h = hasattr(box, "k")
        box.k = q
        return a * p + q, h, box.k

    return fn, with_change(lambda: setattr(box, "k", 2.0)), lambda: box.k


@program()
def exception_in_property_with_fallback():
    class C:
        n = 0

        @property
        def k(self):
            if self.n > 1:
                raise AttributeError("k")
            return 2.0

        def __getattr__(self, name):
            return 9.0

    c = C()

    def fn(a):
        return a * c.k + getattr(c, "zz", 1.0)

    return fn, with_change(lambda: setattr(c, "n", 5), lambda: setattr(c, "n", 0)), None


@program()
def contextlib_suppress_and_closing():
    class R:
        def __init__(self):
            self.closed = 0

        def close(self):
            self.closed += 1

    r = R()

    def fn(a, k):
        with contextlib.suppress(ZeroDivisionError), contextlib.closing(r):
            a = a / 1
            1 / k
            a = a * 100
        return a * r.closed

    return over(fn, 0, 1)[:2] + (lambda: r.closed,)


@program()
def sorting_by_state_and_stability():
    rank = {"p": 2, "q": 1, "r": 2}

    def fn(a):
        return (
            a * rank["p"],
            sorted(rank, key=rank.get),
            sorted(rank, key=lambda k: -rank[k]),
            min(rank, key=rank.__getitem__),
            sorted(rank.items(), key=operator.itemgetter(1)),
        )

    return fn, with_change(lambda: rank.__setitem__("r", 0), lambda: rank.__setitem__("s", 1)), None


@program()
def zip_longest_dictionary_comprehension():
    ks, vs = ["p", "q"], [1.0, 2.0, 3.0]

    def fn(a):
        d = {k: v for k, v in zip(ks, vs, strict=False)}
        e = dict(itertools.zip_longest(ks, vs, fillvalue="z"))
        return a * sum(d.values()), d, e

    return fn, with_change(lambda: ks.append("r"), lambda: vs.pop()), None


@program()
def text_functions():
    box = Box(t="a,b;c")

    def fn(a):
        return (
            a * len(re.split("[,;]", box.t)),
            box.t.translate(str.maketrans(",", ".")),
            box.t.center(9, "*"),
            string.capwords("ab cd"),
            "".join(reversed(box.t)),
            box.t.encode().decode("ascii"),
        )

    return fn, with_change(lambda: setattr(box, "t", "x")), None


@program()
def last_of_a_list_that_grows():
    items = [x(0, 0)]

    def fn(a):
        items.append(items[-1] * 0.5 + a)
        items.append(items[-1] * 2)
        return items[-1] + items[-2] + items[0], items[-1] is items[-1]

    return fn, with_change(lambda: items.clear() or items.append(x(1, 1))), lambda: [t.tolist() for t in items]


@program()
def first_of_a_list_that_grows_and_is_written():
    items = [1.0, 2.0]

    def fn(a):
        items.append(3.0)
        items[0] += 1.0
        items.extend([4.0, 5.0])
        items[-1] = 7.0
        return a * items[0] + items[1] * items[-1] + items[-2]

    return fn, with_change(lambda: items.__setitem__(1, 9.0)), lambda: items
