"""Dataclasses and named tuples.  See capture_programs.py."""

from __future__ import annotations

import collections
import dataclasses
import typing

from registered_programs import Box, program, with_change, x

import tracejit as T
from tracejit import nn


@program()
def dataclasses_in_order():
    @dataclasses.dataclass(order=True)
    class D:
        v: float

    items = [D(3.0), D(1.0)]

    def fn(a):
        return a * sorted(items)[0].v * max(items).v

    def change():
        items[0].v = 0.5

    return fn, with_change(change), None


@program()
def equality_of_dataclasses():
    @dataclasses.dataclass
    class D:
        v: float

    p, q = D(1.0), D(1.0)

    def fn(a):
        return a * (2.0 if p == q else 3.0), [p] == [q], p in [q]

    return fn, with_change(lambda: setattr(p, "v", 2.0)), None


@program()
def dataclass_among_others():
    @dataclasses.dataclass
    class D:
        v: float

    p, q = D(1.0), D(1.0)

    def fn(a):
        return a * (2.0 if p in [q] else 3.0)

    return fn, with_change(lambda: setattr(p, "v", 2.0)), None


@program()
def methods_of_a_named_tuple():
    P = collections.namedtuple("P", "x y", defaults=[5.0])
    p = P(1.0)

    def fn(a, q):
        px, py = p
        return (
            a * p.x + py,
            q._replace(x=9.0),
            p + (1,),
            p._asdict(),
            P._fields,
            p == (1.0, 5.0),
            P(*q).y,
            q[0],
            isinstance(q, tuple),
            p._field_defaults,
        )

    return fn, [lambda f: f(x(1), P(1.0, 2.0)), lambda f: f(x(1), P(3.0, 4.0))], None


@program()
def named_tuple_with_methods():
    class P(typing.NamedTuple):
        x: float
        y: float = 2.0

        def norm(self):
            return self.x * self.y

        @property
        def double(self):
            return self.x * 2

    def fn(a, p):
        return a * p.norm() + p.double + P(3.0).norm(), P(1.0, y=4.0)

    return fn, [lambda f: f(x(1), P(1.0)), lambda f: f(x(1), P(3.0, 4.0))], None


@program()
def dataclass_with_factories_and_post_init():
    @dataclasses.dataclass
    class C:
        k: float
        items: list = dataclasses.field(default_factory=list)
        n: int = 3
        total: float = dataclasses.field(init=False, default=0.5)
        extra: dataclasses.InitVar[float] = 1.0

        def __post_init__(self, extra):
            self.items.append(self.k * extra)

    def fn(a, k):
        c = C(k)
        d = C(k, [1.0], extra=3.0, n=5)
        c.items.append(7.0)
        return a * c.items[0] + d.n + c.total, c, d, c == C(k)

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], None


@program(reason="no_source")
def frozen_dataclass_is_not_changed():
    @dataclasses.dataclass(frozen=True)
    class F:
        k: float
        n: int = 2

    @dataclasses.dataclass(slots=True)
    class S:
        k: float

    def fn(a, k):
        f = F(k)
        s = S(k)
        s.k += 1
        try:
            f.k = 5.0
        except dataclasses.FrozenInstanceError as e:
            return a * f.k + s.k, str(e), f, s

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], None


@program()
def dataclass_as_a_dictionary():
    @dataclasses.dataclass
    class C:
        k: float
        n: int = 2

    c = C(1.0)

    def fn(a):
        d = dataclasses.replace(c, k=5.0)
        return (
            a * d.k + c.n,
            [f.name for f in dataclasses.fields(c)],
            dataclasses.asdict(c),
            dataclasses.astuple(d),
            dataclasses.is_dataclass(c),
        )

    return fn, with_change(lambda: setattr(c, "n", 7)), None


@program()
def default_of_a_dataclass_is_an_object():
    shared = Box(k=2.0)

    @dataclasses.dataclass
    class C:
        box: Box = shared

    def fn(a):
        c = C()
        c.box.k += 1.0
        return a * c.box.k

    return fn, with_change(lambda: setattr(shared, "k", 10.0)), lambda: shared.k


@program()
def dataclass_that_inherits():
    @dataclasses.dataclass
    class B:
        k: float = 1.0

        def __post_init__(self):
            self.z = self.k + 1

    @dataclasses.dataclass
    class C(B):
        n: int = 2

        def __post_init__(self):
            super().__post_init__()
            self.z *= self.n

    def fn(a, k):
        return a * C(k).z, C(n=5)

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], None


@program()
def wrong_arguments_of_a_dataclass():
    @dataclasses.dataclass
    class C:
        k: float

    def fn(a):
        out = []
        for args, kw in (((), {}), ((1, 2), {}), ((1,), {"k": 2}), ((), {"z": 1})):
            try:
                C(*args, **kw)
            except TypeError as e:
                out.append(str(e))
        return a, out

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def named_tuples_that_are_made_in_their_own_way():
    class Pair(typing.NamedTuple):
        left: object
        right: object = 1.0

    class Doubled(Pair):
        __slots__ = ()

        def __new__(cls, left, right=None):
            return super().__new__(cls, left * 2, 3.0 if right is None else right)

        def product(self):
            return self.left * self.right

    class Shifted(collections.namedtuple("Base", "value times")):
        def __new__(cls, value, times=2.0):
            return super().__new__(cls, value + 1, times)

    class Marked(Pair):
        def __init__(self, *values):
            self.mark = 5.0

    def fn(a, k):
        doubled, shifted = Doubled(a), Shifted(a, times=k)
        value, times = shifted
        return doubled, doubled.product(), shifted, value * times, Marked(a, k).mark * a, doubled._replace(right=k).right

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(2), 3.0), lambda f: f(x(1), 4.0)], None


@program("unbuildable")
def a_named_tuple_with_attributes_that_leaves():
    class Marked(collections.namedtuple("Base", "value")):
        def __init__(self, *values):
            self.mark = 5.0

    def fn(a):
        return Marked(a)

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program()
def packed_sequences():
    T.manual_seed(0)
    lstm = nn.LSTM(1, 2)

    def fn(a, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(a.reshape(4, 3, 1), lengths)
        out, (h, _) = lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(out)[0], h

    steps = T.linspace(-1, 1, 12)
    return fn, [lambda f: f(steps, [4, 2, 1]), lambda f: f(steps * 2, [4, 2, 1])], None
