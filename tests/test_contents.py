"""Numbers from outside wherever they live, and numbers that leave the program wherever they go: operands, guarded only once they steer."""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T

CASES: dict[str, tuple[Callable[..., Any], int]] = {}
CALLS = 12


def case(paths: int = 1) -> Callable[..., Any]:
    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        CASES[make.__name__] = (make, paths)
        return make

    return register


def x(*values: float) -> Any:
    return T.tensor([float(v) for v in values])


class Box:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@case()
def counter_in_a_list():
    c = [0]

    def f(a):
        c[0] += 1
        return a * c[0]

    return (f, lambda: c)


@case()
def counters_in_nested():
    c = {"a": [0, {"b": 1.5}]}

    def f(a):
        c["a"][0] += 2
        c["a"][1]["b"] *= 1.1
        return a * c["a"][0] + c["a"][1]["b"]

    return (f, lambda: c)


@case()
def namespace():
    n = types.SimpleNamespace(t=0, lr=1.0)

    def f(a):
        n.t += 1
        n.lr = 0.5 * (1 + math.cos(math.pi * n.t / 20))
        return a * n.lr

    return (f, lambda: (n.t, n.lr))


@case()
def counter_class():
    c = collections.Counter()

    def f(a):
        c["n"] += 1
        c["loss"] += a[0].item()
        return a * c["n"]

    f(x(1))
    return (f, lambda: dict(c))


@case()
def default_dict():
    c = collections.defaultdict(float)
    c["s"] = 0.0

    def f(a):
        c["s"] += a.sum().item()
        return c["s"] / 2

    return (f, lambda: dict(c))


@case()
def deque_append():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)
    s = [0]

    def f(a):
        s[0] += 1
        d.append(s[0] * 2.0)
        return a

    return (f, lambda: list(d))


@case()
def cell():
    t = 0

    def f(a):
        nonlocal t
        t += 1
        return a * (1 - 0.9**t)

    return (f, lambda: t)


@case()
def iterate_list():
    w = [1.0, 2.0, 3.0]

    def f(a):
        for i in range(3):
            w[i] *= 1.1
        s = 0.0
        for v in w:
            s += v
        return (a * s, sum(w), max(w) > 0)

    return (f, lambda: w)


@case()
def iterate_list_only_outside_changes():
    w = [1.0, 2.0, 3.0]

    def f(a):
        return sum(v * v for v in w) * a

    def go(f, i):
        w[1] = float(i)
        return f(x(i))

    return (f, lambda: w, go)


@case()
def dict_items():
    w = {"a": 1.0, "b": 2.0}

    def f(a):
        out = {k: v * 2 for k, v in w.items()}
        return (a * sum(w.values()), out)

    def go(f, i):
        w["a"] = float(i)
        return f(x(i))

    return (f, lambda: w, go)


@case()
def dict_items_changed_while_viewed():
    w = {"a": 1.0, "b": 2.0}

    def f(a):
        vs = w.values()
        w["a"] += 1
        t = sum(vs)
        w["b"] = t
        return (a * t, sum(vs), [*vs], dict(w), list(w.items()))

    return (f, lambda: w)


@case()
def tuple_unpack():
    b = Box(p=(0.9, 0.99))

    def f(a):
        m, v = b.p
        b.p = (m * 0.9, v)
        return a * m + v

    return (f, lambda: b.p)


@case()
def betas():
    g = {"betas": (0.9, 0.999)}

    def f(a):
        b1, b2 = g["betas"]
        g["betas"] = (b1 - 0.01, *g["betas"][1:])
        return a * b1 + b2

    return (f, lambda: g)


@case()
def star_args():
    w = [1.0, 2.0]

    def h(p, q):
        return p * 10 + q

    def f(a):
        w[0] += 1
        return a * h(*w)

    return (f, lambda: w)


@case()
def kwargs():
    w = {"p": 1.0, "q": 2.0}

    def h(p, q):
        return p * 10 + q

    def f(a):
        w["p"] += 1
        return a * h(**w)

    return (f, lambda: w)


@case()
def zips():
    w = [1.0, 2.0]
    v = (3.0, 4.0)

    def f(a):
        w[1] += 1
        return (
            a * sum((p * q for p, q in zip(w, v, strict=True))),
            [i * p for i, p in enumerate(w)],
            list(map(math.sqrt, w)),
            list(reversed(w)),
            w[::-1],
            w[-1],
            w[:],
        )

    return (f, lambda: w)


@case()
def divmods():
    s = [7]

    def f(a):
        s[0] += 3
        q, r = divmod(s[0], 1000)
        return (
            a * q + r,
            s[0] // 2,
            s[0] % 1000,
            s[0] ** 2,
            2 ** s[0],
            round(s[0] / 3, 2),
            min(s[0], 1000000000.0),
            max(s[0], -1),
            abs(-s[0]),
            int(s[0] / 2),
            int(s[0] * 1.5) * 10**20,
            float(s[0]),
            pow(s[0], 2),
            math.hypot(s[0], 1),
            math.isfinite(s[0] * 1.0),
        )

    return (f, lambda: s)


@case(2)
def every_k():
    s = [0]

    def f(a):
        s[0] += 1
        return a * 2 if s[0] % 3 == 0 else a + s[0]

    return (f, lambda: s)


@case(2)
def warmup():
    s = Box(t=0)

    def f(a):
        s.t += 1
        lr = s.t / 5 if s.t < 5 else 0.5 * (1 + math.cos(math.pi * s.t / 20))
        return a * lr

    return (f, lambda: s.t)


@case(4)
def bisects():
    s = Box(t=0, m=[3, 6])

    def f(a):
        s.t += 1
        return a * 0.1 ** bisect.bisect_right(s.m, s.t)

    return (f, lambda: s.t)


@case(3)
def in_list():
    s = Box(t=0)

    def f(a):
        s.t += 1
        return a * 2 if s.t in [3, 5] else a

    return (f, lambda: s.t)


@case(3)
def in_set():
    s = Box(t=0, m={3, 5})

    def f(a):
        s.t += 1
        return a * 2 if s.t in s.m else a * s.t

    return (f, lambda: s.t)


@case(3)
def in_outside_dict():
    s = Box(t=0, m={3: 1, 5: 2})

    def f(a):
        s.t += 1
        return a * s.m[s.t] if s.t in s.m else a * s.t

    return (f, lambda: s.t)


@case(3)
def late_int_in_list():

    def f(a):
        return a * 2 if int(a[0].item()) in (1, 2) else a

    return (f, None)


@case()
def own_list_of_numbers():
    s = [0]

    def f(a):
        s[0] += 1
        r = [s[0] * i for i in range(3)]
        r.append(s[0])
        r.insert(0, s[0] + 5)
        r.extend([s[0], 1])
        r[1] = s[0] * 9
        d = {"k": s[0], "l": r}
        d.update(z=s[0])
        d.setdefault("y", s[0])
        return (a * sum(r), r, d, d.get("k"))

    return (f, lambda: s)


@case()
def sorted_numbers():
    w = [3.0, 1.0, 2.0]

    def f(a):
        w[0] += 0.01
        return (sorted(w), min(w), max(w), a * sorted(w)[-1])

    return (f, lambda: w)


@case()
def micro():
    s = {"n": 0, "loss": 0.0}

    def f(a):
        s["n"] += 1
        s["loss"] += a.mean().item() / 4
        return a / 4

    return (f, lambda: s)


@case()
def outside_extend_then_read():
    L = []

    def f(a):
        L.extend([a[0].item(), a[0].item() * 2])
        return (a * L[-1], L[-2])

    return (f, lambda: L)


@case()
def outside_append_prologue_then_read():
    L = []
    s = [0]

    def f(a):
        s[0] += 1
        L.append(s[0] * 1.5)
        return a * L[-1]

    return (f, lambda: L)


@case()
def last_item():
    L = [1.0]

    def f(a):
        v = L[-1] * 1.5
        L.append(v)
        return a * v

    return (f, lambda: L)


@case()
def tensor_of_number():
    s = [0]

    def f(a):
        s[0] += 1
        return (a * T.tensor(s[0] * 1.0), T.tensor([s[0] * 1.0, 2.0]), T.full((2,), s[0] * 1.0), T.zeros(2).fill_(s[0]))

    return (f, lambda: s)


@case()
def tensor_of_late():

    def f(a):
        v = a.sum().item()
        y = T.zeros(3)
        y[0] = v
        y[1:] = v + 1
        return (
            T.tensor(v),
            T.tensor([v, 2 * v]),
            T.full((2,), v),
            T.zeros(2).fill_(v),
            y,
            a.clamp(max=v),
            T.where(a > 0, a, v),
            a.masked_fill(a > 1, v),
        )

    return (f, None)


@case()
def set_item_number():
    s = [0.0]

    def f(a):
        s[0] += 1.5
        y = a.clone()
        y[0] = s[0]
        y[1] = 2 * s[0]
        return y

    return (f, lambda: s)


@case()
def late_pow():

    def f(a):
        v = a[0].item()
        return (v**2, v**0.5, v ** (-1), 2**v, (v + 1) ** 3, (-v) ** (-3))

    return (f, None)


@case()
def late_ints():

    def f(a):
        n = int(a[0].item())
        return (n * 10**20, n**2, n // 2, n % 3, divmod(n, 3), -n, abs(n), round(a[0].item()), 2.0**n, n + 0.5)

    return (f, None)


@case()
def numbers_compared():

    def f(a):
        v = a[0].item()
        w = a[1].item()
        return (v < w + 100, v == w + 200, [v] == [w + 200], (v, w) < (1000000000.0, 0), v in [1000000000.0, 2000000000.0])

    return (f, None)


@case()
def copies():
    w = [1.0, 2.0]
    d = {"a": 1.0}

    def f(a):
        w[0] += 1
        d["a"] += 1
        return (list(w), w.copy(), tuple(w), dict(d), d.copy(), {**d}, [*w], w + [1], a)

    return (f, lambda: (w, d))


@case()
def functools_reduce():
    w = [1.0, 2.0]

    def f(a):
        w[0] += 1
        return (a * functools.reduce(lambda p, q: p * q, w), list(itertools.accumulate(w)), list(itertools.chain(w, w)))

    return (f, lambda: w)


@case()
def objects_in_a_list():
    bs = [Box(v=1.0, n=0), Box(v=2.0, n=3)]

    def f(a):
        t = 0.0
        for b in bs:
            b.n += 1
            b.v *= 0.9
            t += b.v * b.n
        return a * t

    return (f, lambda: [(b.v, b.n) for b in bs])


@case()
def running_stats():
    m = Box(count=0, mean=0.0, m2=0.0)

    def f(a):
        v = a.mean().item()
        m.count += 1
        d = v - m.mean
        m.mean += d / m.count
        m.m2 += d * (v - m.mean)
        return (m.mean, m.m2 / m.count)

    return (f, lambda: (m.count, m.mean, m.m2))


# -- what changes while it is looked at, what decides, what raises
@case(CALLS)
def inplace_alias():
    s = [0]

    def f(a):
        s[0] += 1
        xs = [s[0]]
        ys = xs
        xs += [2, s[0]]
        t = (s[0],)
        u = t
        t += (s[0] + 1,)
        ys *= 2
        return (ys, xs is ys, t, u, a)

    return (f, lambda: s)


@case()
def self_extend():
    s = [0]

    def f(a):
        s[0] += 1
        xs = [s[0]]
        xs += xs
        xs.extend(xs)
        return (xs, a)

    return (f, lambda: s)


@case()
def change_while_iterating():
    w = [1.0, 2.0, 3.0]

    def f(a):
        out = []
        for v in w:
            out.append(v)
            w[2] = v * 2
        for i, v in enumerate(w):
            w[i] = v + 1
        return (out, a)

    return (f, lambda: w)


@case(CALLS)
def grow_while_iterating():
    w = [1.0]

    def f(a):
        n = 0
        for v in w:
            n += 1
            if n < 3:
                w.append(v + 1)
        del w[1:]
        return (n, a)

    return (f, lambda: w)


@case(CALLS)
def dict_changed_size():
    d = {"a": 1.0}

    def f(a):
        try:
            for k, v in d.items():
                d[k + "x"] = v
        except RuntimeError as e:
            r = str(e)
        d.clear()
        d["a"] = 2.0
        return (r, a)

    return (f, lambda: d)


@case(CALLS)
def deque_changed():
    d = collections.deque([1.0, 2.0])

    def f(a):
        try:
            for v in d:
                d.append(v)
        except RuntimeError as e:
            r = str(e)
        d.pop()
        return (r, a)

    return (f, lambda: list(d))


@case(CALLS)
def deque_window():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def f(a):
        d.append(a[0].item())
        return sum(d) / len(d)

    return (f, lambda: list(d))


@case(CALLS)
def deque_known_then_append():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def f(a):
        t = sum(d)
        d.append(a[0].item())
        u = d[-1] * 2
        d.extend([a[1].item(), 5.0])
        v = [*d]
        d.appendleft(a[0].item() + 1)
        w = d[0]
        d.rotate(1)
        x0 = list(d)
        d.clear()
        d.extend([1.0, 2.0, 3.0])
        return (t, u, v, w, x0, 2.0 in d)

    return (f, lambda: list(d))


@case(CALLS)
def insert_known():
    d = [1.0, 2.0]

    def f(a):
        d.insert(0, a[0].item())
        y = d[0]
        z = [*d]
        d.pop(0)
        d.append(a[1].item())
        q = d[-1]
        d.pop()
        d[0] = a[0].item()
        d.reverse()
        e = d[1]
        d.sort()
        d[:] = [1.0, 2.0]
        return (y, z, q, e, list(d))

    return (f, lambda: d)


@case(CALLS)
def unbounded_deque():
    d = collections.deque([1.0])

    def f(a):
        d.append(a[0].item())
        d.popleft()
        return (d[0], a)

    return (f, lambda: list(d))


@case(CALLS)
def window_insert():
    d = [1.0, 2.0]

    def f(a):
        d.insert(0, a[0].item())
        x0 = d[0]
        d.pop()
        return (x0 * 2, d[0], d[1])

    return (f, lambda: d)


@case(CALLS)
def deque_left():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def f(a):
        d.appendleft(a[0].item())
        return (d[0], d[-1])

    return (f, lambda: list(d))


@case(CALLS)
def sets():
    s = [0]

    def f(a):
        s[0] += 1
        q = {s[0], 1}
        r = frozenset([s[0], 2])
        t = {s[0]}
        c = collections.Counter([s[0], s[0]])
        q.add(s[0] + 1)
        return (sorted(q), sorted(r), t, dict(c), {s[0]: 1}, hash((s[0], 1)) == hash((s[0], 1)), a)

    return (f, lambda: s)


@case(CALLS)
def tuple_keys():
    s = Box(i=0, j=(1, 2))
    d = {}

    def f(a):
        s.i += 1
        d[s.i, 0] = s.i
        d[s.j] = s.i
        own = {}
        own[s.i] = 1
        own[s.i, s.j] = 2
        return (own, d[s.i, 0], s.j in d, (s.i, 0) in d, a[0,])

    return (f, lambda: d)


@case(CALLS)
def indices():
    s = [0]

    def f(a):
        s[0] = (s[0] + 1) % 2
        xs = [1, 2, 3]
        return (a[s[0]], a[s[0] :], a.reshape(1, 2)[0, s[0]], xs[s[0]], xs[s[0] :], (4, 5)[s[0]], "abc"[s[0]], xs[-1 - s[0]])

    return (f, lambda: s)


@case(CALLS)
def shapes():
    s = Box(k=2, sh=(2, 1))

    def f(a):
        s.k = 2 if s.k == 1 else 1
        return (
            a.reshape(s.sh),
            T.zeros(s.k),
            T.zeros((s.k, 2)),
            a.repeat(s.k),
            a.expand(s.k, 2),
            T.ones(*s.sh),
            range(s.k),
            [0] * s.k,
            "x" * s.k,
        )

    def go(f, i):
        s.sh = (2, 1) if i % 2 else (1, 2)
        return f(x(i, i))

    return (f, lambda: s.k, go)


@case(CALLS)
def stop_in_the_middle():
    s = [0]

    def f(a):
        s[0] += 1
        xs = [s[0]]
        d = {"k": s[0], "t": (s[0], [s[0]])}
        it = iter(xs)
        m = map(str, xs)
        z = zip(xs, xs, strict=True)
        vs = d.values()
        g = (v for v in xs)
        T.get_num_threads()
        xs.append(7)
        return (
            type(xs[0]) is int,
            [type(v) for v in it],
            list(m),
            [type(p) for q in z for p in q],
            list(vs),
            list(g),
            type(d["t"][0]) is int,
            type(d["t"][1][0]) is int,
            a,
        )

    return (f, lambda: s)


@case(CALLS)
def stop_with_outside():
    s = [0]
    w = [1.0, 2.0]
    dd = {"a": 1.0}

    def f(a):
        s[0] += 1
        w[0] += s[0]
        dd["a"] += s[0]
        vals = dd.values()
        it = iter(w)
        first = next(it)
        rev = reversed(w)
        z = zip(w, (1, 2), strict=True)
        kept = list(w)
        T.get_num_threads()
        w[1] = 9.0
        dd["a"] = 5.0
        return (list(vals), list(it), list(rev), list(z), kept, type(first) is float, [type(v) is float for v in kept], a)

    return (f, lambda: (s, w, dd))


@case(CALLS)
def error_in_the_middle():
    s = [0]
    keep = {}

    def f(a):
        s[0] += 1
        xs = [s[0], (s[0],)]
        keep["x"] = xs
        try:
            raise ValueError(xs, s[0])
        except ValueError as e:
            r = repr(e.args)
        return (r, a)

    return (f, lambda: keep)


@case(CALLS)
def raises():
    s = [0]
    keep = {}

    def f(a):
        s[0] += 1
        xs = [s[0], (s[0],)]
        keep["x"] = xs
        if s[0] % 3 == 2:
            raise ValueError(xs, s[0])
        return a

    return (f, lambda: keep)


@case(CALLS)
def moved_types():
    w = [1, 2.0]

    def f(a):
        return ([v * 2 for v in w], a)

    def go(f, i):
        w[0] = i if i % 3 else float(i)
        return f(x(i))

    return (f, None, go)


@case(CALLS)
def nan_inf():
    w = [1.0, 2.0]
    V = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0]

    def f(a):
        return (
            [v * 2 for v in w],
            sum(w),
            max(w),
            min(w),
            sorted(w),
            w[0] in w,
            w[0] in (0.0,),
            w.index(w[0]),
            a * w[0],
            [math.copysign(1, v) for v in w],
        )

    def go(f, i):
        w[0] = V[i % 6]
        return f(x(1))

    return (f, None, go)


@case(CALLS)
def big_ints():
    w = [1]

    def f(a):
        w[0] *= 10**9
        return (w[0] + 1, w[0] % 7, w[0] // 3, a * float(w[0]) if w[0] < 10**300 else a, int(a[0].item()) * w[0])

    return (f, lambda: w)


@case()
def bools():
    w = [True, 1, 1.0]

    def f(a):
        return ([v for v in w if v], w[0] is True, type(w[1]), a)

    return (f, None)


@case(3)
def default_missing():
    d = collections.defaultdict(lambda: [0, 0.0])

    def f(a):
        e = d["k"]
        e[0] += 1
        e[1] += a[0].item()
        return e[1] / e[0]

    return (f, lambda: dict(d))


@case(3)
def counter_grow():
    c = collections.Counter()

    def f(a):
        c.update(["a", "b", "a"])
        c["z"] += a[0].item()
        return (c["a"], c["missing"], sum(c.values()), a)

    return (f, lambda: dict(c))


@case()
def nested_lists():
    m = [[1.0, 2.0], [3.0, 4.0]]

    def f(a):
        for r in m:
            for i, v in enumerate(r):
                r[i] = v * 1.1
        (p, q), (r, s) = m
        return (p * s - q * r, [sum(r) for r in m], [list(c) for c in zip(*m, strict=True)], a * m[1][0])

    return (f, lambda: m)


@case()
def swap():
    s = Box(a=1.0, b=2.0)

    def f(a):
        s.a, s.b = (s.b, s.a + s.b)
        return a * s.a

    return (f, lambda: (s.a, s.b))


@case()
def nested_containers_are_stored():
    s = {"hist": []}

    def f(a):
        s["last"] = [a[0].item(), {"v": a[1].item()}]
        return a

    return (f, lambda: s)


@case(8)
def window_slices():
    s = {"hist": []}

    def f(a):
        s["hist"] = (s["hist"] + [a[0].item()])[-3:]
        return sum(s["hist"]) / len(s["hist"])

    return (f, lambda: s)


@case()
def generator_of_numbers():
    w = [1.0, 2.0]

    def gen():
        for v in w:
            yield (v * 2)

    def f(a):
        w[0] += 1
        return (sum(gen()), max(gen()), list(gen()), a)

    return (f, lambda: w)


@case()
def any_all():
    w = [1.0, 2.0]

    def f(a):
        w[0] += 1
        return (any(v > 100 for v in w), all(v > 0 for v in w), all(w), bool(w[0]), not w[1], a)

    return (f, lambda: w)


Pair = collections.namedtuple("Pair", "first second", defaults=[0])


class Ordered(Pair):
    """A class of named tuples with a method."""

    def both(self) -> Any:
        return self.first + self.second


@case()
def named_tuples_of_numbers_of_the_call():
    log: list[Any] = []

    def f(a):
        n = len(log)
        pair = Pair(a.sum().item(), n)
        log.append(pair)
        later = pair._replace(first=n + 0.5)
        return pair, later, pair._asdict(), Pair._make([n, a]), Pair(second=n, first=a), Pair(n), [*pair], pair[:1] + pair[-1:]

    return (f, lambda: log)


@case()
def fields_of_named_tuples_are_computed_with():
    state = {"n": 0}

    def f(a):
        state["n"] += 1
        pair = Ordered(state["n"], a.sum().item())
        first, second = pair
        return (
            a * pair.first,
            pair.both(),
            pair[0] - pair[1],
            sum(pair),
            max(pair.second, 1.5),
            first,
            second,
            tuple(pair),
            len(pair),
        )

    return (f, lambda: state)


@case(paths=CALLS)
def named_tuples_that_decide():
    def f(a):
        pair = Pair(a.sum().item(), 2)
        return {pair: 1}, pair == (3.0, 2), pair in [(3.0, 2)], hash(pair) == hash((a.sum().item(), 2))

    return (f, None)


@case()
def named_tuples_in_a_window():
    window = collections.deque([Pair(0.5 * i, i) for i in range(4)], maxlen=4)

    def f(a):
        window.append(Pair(a.sum().item(), window[-1].second + 1))
        return a * sum(pair.second for pair in window), sum(pair.first for pair in window)

    return (f, lambda: window)


@case()
def a_named_tuple_that_is_stored():
    box = Box(last=Pair(1.0, 2))

    def f(a):
        box.last = Pair(box.last.first + 1, box.last.second * 2)
        return a * box.last.first + box.last.second

    return (f, lambda: box.last)


def answers(make: Callable[..., Any], compiler: Callable[..., Any]) -> tuple[list[Any], Any]:
    fn, observe, *act = make()
    called = compiler(fn)
    found = []
    for i in range(CALLS):
        try:
            result = act[0](called, i) if act else called(x(i + 1, 2 * i))
        except ValueError as error:
            result = error.args
        found.append((repr(result), repr(observe()) if observe else None))
    return found, called


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_operands_wherever_they_live(name: str) -> None:
    make, paths = CASES[name]
    expected, _ = answers(make, lambda fn: fn)
    found, compiled = answers(make, T.compile)
    assert found == expected
    assert compiled.stats.traces <= paths, compiled.explain()
    assert compiled.stats.compiled_calls >= CALLS - paths


def test_a_number_that_is_computed_twice_is_one_variable_and_two_objects() -> None:
    box = Box(n=300)

    def fn(a: Any) -> Any:
        box.n += 1
        one, other = box.n * 2, box.n * 2
        return a * one + other

    compiled = T.compile(fn)
    for _ in range(3):
        compiled(x(1))
    assert compiled.stats.traces == 1
    assert sum(" * 2" in str(guard) for guard in compiled._table.paths[0].recording.guards) == 1

    def asking(a: Any) -> Any:
        return a, box.n * 1000 is box.n * 1000

    assert T.compile(asking)(x(1))[1] is asking(x(1))[1] is False


def test_ten_numbers_that_change_are_ten_operands() -> None:
    weights = [float(i) for i in range(10)]

    def fn(a: Any) -> Any:
        for i, w in enumerate(weights):
            weights[i] = w * 0.9 + 1
        return a * sum(weights)

    compiled = T.compile(fn)
    for _ in range(4):
        before = list(weights)
        found = compiled(x(1, 2))
        weights[:] = before
        assert repr(found) == repr(fn(x(1, 2)))
    assert compiled.stats.traces == 1


def test_a_guard_makes_no_item_of_a_defaultdict() -> None:
    kept: Any = collections.defaultdict(list)
    w = T.ones(2)

    def fn(x: Any) -> Any:
        y = x - w
        return y * len(kept["a"])

    kept["a"].append(1)
    compiled = T.compile(fn)
    assert compiled(T.ones(2)).tolist() == compiled(T.ones(2)).tolist() == [0.0, 0.0]
    kept.clear()
    with pytest.raises(RuntimeError):
        compiled(T.ones(3))
    assert not kept and compiled.stats.compiled_calls == 1
    compiled(T.ones(2))
    assert list(kept) == ["a"]


def test_integers_of_a_longer_list_are_numbers_of_each_call() -> None:
    compiled = T.compile(lambda labels: T.tensor(labels) * 2, wait=True)
    for k in range(6):
        labels = [(k * i) % 7 for i in range(20)]
        assert compiled(labels).tolist() == [2 * n for n in labels]
    assert compiled.stats.traces == 1
    assert compiled([True] * 20).tolist() == [2] * 20
    assert compiled.stats.traces == 2


@pytest.mark.parametrize("constructor", [T.FloatTensor, T.DoubleTensor, T.LongTensor, T.Tensor])
def test_older_constructors_take_the_data_of_each_call(constructor: Any) -> None:
    def made(numbers: list[Any], array: Any) -> tuple[Any, ...]:
        return constructor(numbers), constructor([int(numbers[0]), 2]), constructor(array)

    compiled = T.compile(made, wait=True)
    whole = constructor is T.LongTensor
    for k in range(6):
        numbers = [k, 1, -2] if whole else [k + 0.5, 1.5, -2.0]
        array = np.full((2, 3), k + 0.25, np.int64 if whole else np.float64)
        for found, expected in zip(compiled(numbers, array), made(numbers, array), strict=True):
            assert found.dtype is expected.dtype
            assert found.tolist() == expected.tolist()
    assert compiled.stats.traces == 1, compiled.explain()


def test_older_constructors_share_the_memory_of_arrays_of_their_dtype() -> None:
    def doubled(array: Any) -> Any:
        out = T.FloatTensor(array)
        out *= 2
        return out

    compiled = T.compile(doubled, wait=True)
    for _ in range(3):
        array = np.ones(3, np.float32)
        assert compiled(array).tolist() == array.tolist() == [2.0, 2.0, 2.0]
    assert compiled.stats.compiled_calls == 2, compiled.explain()


EQUAL_ELEMENTS = [
    (1, True, 1.0), (0.0, -0.0, 0, False), ((1,), (True,), (1.0,)), (frozenset({1}), frozenset({True}), frozenset({1.0})),
    ((frozenset({1}),), (frozenset({True}),)), (frozenset({0.0}), frozenset({-0.0})), ((0.0,), (-0.0,)),
]  # fmt: skip


@pytest.mark.parametrize("make", [set, frozenset, dict.fromkeys, lambda elements: {"inside": set(elements)}])
@pytest.mark.parametrize("elements", EQUAL_ELEMENTS, ids=str)
def test_elements_that_are_equal_and_not_the_same_are_told_apart(elements: tuple[Any, ...], make: Any) -> None:
    box: list[Any] = [None]
    compiled = T.compile(lambda x: (x * 2, repr(box[0])))
    for element in (*elements, *elements, *reversed(elements)):
        for _ in range(2):
            box[0] = make([element])
            assert compiled(T.ones(2))[1] == repr(box[0])
