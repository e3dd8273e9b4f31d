"""Numbers, names, closures, control flow and calls.  See capture_programs.py."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import math
import operator

from registered_programs import program, x

import tracejit as T

SCALE = 3.0
TABLE = {"a": 1.0, "b": [1.0, 2.0]}
COUNTER = 0


@program()
def scalar_argument_is_an_operand():
    def fn(a, s):
        return a * (s + 1) - math.sqrt(s) + abs(-s)

    return fn, [lambda f, s=s: f(x(1, 2), s) for s in (1.0, 2.5, 4.0)], None


@program()
def scalar_that_steers_is_a_guard():
    def fn(a, s):
        return a * s if s > 2 else a - s

    return fn, [lambda f, s=s: f(x(1, 2), s) for s in (1.0, 2.5, 4.0, 2.0, 0.5)], None


@program()
def sign_of_zero_and_nan_as_argument():
    def fn(a, s):
        return a * s, math.copysign(1.0, s)

    return fn, [lambda f, s=s: f(x(1, 2), s) for s in (0.0, -0.0, math.nan, 0.0, math.inf, -math.inf)], None


@program()
def integer_division_by_zero_raises_as_in_eager():
    def fn(a, n):
        return a * (10 // n)

    return fn, [lambda f, n=n: f(x(1, 2), n) for n in (3, 0, 5)], None


@program()
def shape_from_an_integer_argument():
    def fn(a, n):
        return a.reshape(n, -1).sum(0)

    return fn, [lambda f, n=n: f(T.arange(12.0), n) for n in (3, 4, 3, 2)], None


@program()
def negative_power_changes_the_type():
    def fn(a, n):
        return a * (2**n)

    return fn, [lambda f, n=n: f(T.tensor([1, 2]), n) for n in (3, -1, 2)], None


@program()
def global_read_and_written():
    def fn(a):
        global COUNTER
        COUNTER += 2
        return a * COUNTER * SCALE + TABLE["b"][1]

    def reset(f):
        global COUNTER, SCALE
        COUNTER, SCALE = 0, 3.0

    def rescale(f):
        global SCALE
        SCALE = 5.0
        return f(x(1))

    return fn, [reset, lambda f: f(x(1)), lambda f: f(x(1)), rescale, lambda f: f(x(1))], lambda: COUNTER


@program()
def nonlocal_counter():
    n = 0

    def fn(a):
        nonlocal n
        n += 1
        return a * n

    return fn, [lambda f: f(x(1))] * 4, lambda: n


@program()
def closures_made_inside():
    def fn(a):
        k = 2

        def scale(v):
            nonlocal k
            k += 1
            return v * k

        return scale(a) + scale(a) + (lambda v: v - k)(a)

    return fn, [lambda f: f(x(1))] * 3, None


@program()
def fresh_lambda_argument():
    def fn(a, g):
        return g(a) + 1

    return fn, [lambda f, k=k: f(x(1), lambda v: v * k) for k in (2.0, 3.0, 3.0)], None


@program()
def comprehensions_and_generators():
    def gen(n):
        for i in range(n):
            yield i * 2

    def fn(a, xs):
        s = [v * i for i, v in enumerate(xs) if i != 1]
        d = {k: v for k, v in zip("abc", s, strict=False) if k}
        return sum(s), d["a"] + sum(a * i for i in gen(3)), [*s, a], {**d, "c": a}

    three = [x(1), x(2), x(3)]
    return fn, [lambda f: f(x(1), three), lambda f: f(x(1), [x(1), x(2), x(3), x(4)]), lambda f: f(x(2), three)], None


@program()
def sorting_and_reducing_with_callbacks():
    def fn(a, names):
        order = sorted(names, key=lambda n: -len(n))
        y = functools.reduce(lambda p, q: p * 2 + len(q), order, a)
        return y, order, list(map(len, order)), max(names, key=len), list(filter(lambda n: len(n) > 1, names))

    return fn, [lambda f: f(x(1), ["a", "bbb", "cc"]), lambda f: f(x(2), ["a", "bbb", "cc"]), lambda f: f(x(2), ["aaaa"])], None


@program()
def operator_and_itertools():
    def fn(a, xs):
        y = operator.mul(a, 2)
        for p, q in itertools.product(xs, repeat=2):
            y = operator.add(y, p * q)
        return y, operator.itemgetter(1)(xs) if False else xs[1]

    return fn, [lambda f: f(x(1), (2.0, 3.0)), lambda f: f(x(2), (2.0, 3.0)), lambda f: f(x(2), (2.0, 4.0))], None


@program()
def partial_functions():
    def base(a, k, *, b=1.0):
        return a * k + b

    p = functools.partial(base, k=2.0)
    q = functools.partial(p, b=5.0)

    def fn(a):
        return p(a) + q(a)

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program()
def chained_comparison_and_short_circuit():
    def fn(a, n, names):
        r = a * 2 if 1 < n <= 5 != 3 else a
        r = r + ((names and names[0]) or 7)
        return r if not (n == 2 or n == 4) else r * 10

    return fn, [lambda f, n=n, m=m: f(x(1), n, m) for n, m in ((2, []), (3, [1]), (9, []), (4, [0]), (3, [1]))], None


@program()
def walrus_match_and_star_unpacking():
    def fn(a, command):
        match command:
            case ["scale", k]:
                y = a * k
            case ["add", *rest] if (n := len(rest)) > 1:
                y = a + n
            case {"name": name}:
                y = a - len(name)
            case _:
                y = a
        first, *middle, last = [1, 2, 3, 4]
        return y + first + sum(middle) - last

    calls = (["scale", 2.0], ["add", 1, 2], {"name": "abc"}, 5, ["scale", 2.0])
    return fn, [lambda f, c=c: f(x(1), c) for c in calls], None


@program()
def try_except_else_finally():
    def fn(a, d):
        try:
            k = d["k"]
        except KeyError as error:
            k = len(error.args)
        else:
            k = k + 1
        finally:
            a = a * 2
        return a * k

    return fn, [lambda f: f(x(1), {"k": 3.0}), lambda f: f(x(1), {}), lambda f: f(x(1), {"k": 4.0})], None


@program()
def context_manager_that_suppresses():
    class Suppress:
        def __enter__(self):
            return 3.0

        def __exit__(self, *exc):
            return exc[0] is ValueError

    def fn(a, bad):
        with Suppress() as k, contextlib.suppress(KeyError):
            a = a * k
            if bad:
                raise ValueError
            a = a + {}["missing"]
        return a + 1

    return fn, [lambda f, b=b: f(x(1), b) for b in (False, True, False)], None


@program()
def enumeration_and_dispatch_table():
    class Mode(enum.Enum):
        ADD = 1
        MUL = 2

    table = {Mode.ADD: lambda a, k: a + k, Mode.MUL: lambda a, k: a * k}

    def fn(a, mode, k):
        return table[mode](a, k) + mode.value

    return fn, [lambda f, m=m: f(x(2), m, 3.0) for m in (Mode.ADD, Mode.MUL, Mode.ADD)], None


@program()
def identity_numbers_in_a_set():
    def fn(a, b):
        seen = set()
        y = a * 0
        for t in (a, b, a):
            if id(t) not in seen:
                seen.add(id(t))
                y = y + t
        return y

    def one(f):
        a = x(2)
        return f(a, a)

    return fn, [lambda f: f(x(1), x(2)), one, lambda f: f(x(3), x(4))], None


@program()
def import_inside():
    def fn(a):
        import math as m
        from math import pi

        return a * m.floor(pi)

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program()
def exception_of_the_program_carries_numbers():
    def fn(a, s):
        if s > 2:
            raise ValueError(s, [s])
        return a * s

    return fn, [lambda f, s=s: f(x(1), s) for s in (1.0, 3.0, 1.5)], None
