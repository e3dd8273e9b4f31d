"""Functions, closures, arguments, and numbers on their way through them.  See capture_programs.py."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import json
import math
import re
import sys
import types

import numpy as np
from registered_programs import LOG, Box, fresh, over, program, with_change, x

import tracejit as T


@program()
def closures_over_loop_variables():
    def fn(a):
        fs = [lambda v: v * i for i in (1.0, 2.0, 3.0)]
        gs = [lambda v, i=i: v * i for i in (1.0, 2.0, 3.0)]
        return fs[0](a), gs[0](a), sum(g(1.0) for g in gs)

    return over(fn, (), ())


@program()
def nonlocal_variables_of_two_levels():
    def fn(a, n):
        total, calls = 0.0, 0

        def outer(v):
            nonlocal total

            def inner(w):
                nonlocal total, calls
                total += w
                calls += 1
                return total

            return inner(v) + inner(v * 2)

        y = a * outer(n)
        return y + total, calls

    return over(fn, 2.0, 3.0)


@program()
def counter_in_a_closure():
    def make():
        n = 0

        def count():
            nonlocal n
            n += 1
            return n

        return count

    count = make()

    def fn(a):
        return a * count()

    return fn, [lambda f: f(x(1))] * 3, lambda: count()


@program()
def functions_that_call_themselves():
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    def fn(a, n):
        def power(v, k):
            return v if k == 1 else v * power(v, k - 1)

        return power(a, n) * fact(n), even(n)

    return over(fn, 2, 3, 2)


@program()
def arguments_passed_on():
    def wrap(g):
        @functools.wraps(g)
        def w(*args, **kwargs):
            LOG.append((len(args), sorted(kwargs)))
            return g(*args, **kwargs)

        return w

    @wrap
    def g(a, k, *, m=1.0):
        return a * k + m

    def fn(a, k):
        return g(a, k) + g(a, k=k, m=k)

    return fn, [fresh, lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], lambda: LOG


@program()
def arguments_kept():
    box = Box()

    def fn(a, *sizes, **options):
        box.sizes, box.options = sizes, options
        return a * sizes[0] + options["k"]

    return (
        fn,
        [lambda f: f(x(1), 2.0, 3, k=4.0), lambda f: f(x(1), 2.0, 3, k=4.5)],
        lambda: (box.sizes, list(map(type, box.sizes)), box.options, list(map(type, box.options.values()))),
    )


@program()
def arguments_used_in_all_ways():
    def take(*args, **kwargs):
        return args, kwargs

    def fn(a, *args, **kwargs):
        first, *rest = args
        copy_ = {**kwargs, "z": 1}
        joined = [*args, *rest]
        t = args + (9,)
        kwargs["extra"] = first
        popped = kwargs.pop("k")
        return (
            a * first * popped,
            rest,
            copy_,
            joined,
            t,
            args[1:],
            args[::-1],
            list(kwargs.items()),
            take(*args, **kwargs),
            take(args, kwargs),
            max(args),
            sorted(args),
            args == (1, 2),
            len(args),
            first in args,
            dict(kwargs),
            kwargs.get("q", 5),
            list(args),
            sum(args),
            tuple(reversed(args)),
            (args, kwargs),
        )

    def go(*v, **k):
        def call(f):
            r = f(x(1), *v, **k)
            return r, [type(q) for q in r[4]], [type(q) for q in r[1]], [type(v) for v in r[2].values()]

        return call

    return fn, [go(2.0, 3.0, 4, k=2.0), go(2.5, 3.0, 4, k=3.0), go(2.0, 3.0, 4, k=2.0)], None


@program()
def arguments_changed_inside():
    def fn(a, *args, **kwargs):
        args = (*args, 5.0)
        kwargs.setdefault("k", args[0])
        kwargs.update(m=args[1])
        del kwargs["m"]
        return a * kwargs["k"] + sum(args), kwargs

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0, k=7.0)], None


@program(reason="unbuildable")
def functions_that_outlive_the_call():
    kept = []

    def fn(a, k, *rest):
        m = k + 1

        def g():
            return k, m, rest

        kept.append(g)
        kept.append(functools.partial(max, k))
        return a * k

    def types_of(v):
        return [types_of(q) for q in v] if isinstance(v, tuple) else (type(v).__name__, v)

    return (
        fn,
        [lambda f: f(x(1), 2.0, 3, 4.0)] * 2,
        lambda: [types_of(g() if isinstance(g, types.FunctionType) else g(1)) for g in kept],
    )


@program(reason="unbuildable")
def generator_that_outlives_the_call():
    def fn(a, k, *rest):
        def g(n):
            yield k, type(k).__name__, type(n).__name__, rest
            got = yield [type(v).__name__ for v in rest]
            yield isinstance(n, float), {n: type(n) is float}, got, (lambda: n)(), f"{n:.1f}", sorted([k, n])
            return n

        return g(k * 2)

    def drain(f):
        g = f(x(1), 2.0, 3, 4.0)
        out = [next(g), next(g), g.send(5)]
        try:
            next(g)
        except StopIteration as e:
            out.append((type(e.value).__name__, e.value))
        return out

    return fn, [drain] * 2, None


@program(reason="unsupported_syntax")
def function_that_cannot_be_recorded():
    def helper(n, *rest, **options):
        names = type_of(n)
        return type(n).__name__, [type(r).__name__ for r in rest], names, [type(v).__name__ for v in options.values()]

    def type_of(n):
        box = types.SimpleNamespace()
        return [type(box.item).__name__ for box.item in [n]]

    def fn(a, n, *rest):
        return a * n, helper(n, n + 1, *rest, k=n, **{"m": n})

    return over(fn, (2.0, 3), (2, 3.0))


@program()
def match_statement_on_types_in_helpers():
    async def other():
        pass

    def helper(n, *rest, **options):
        names = match_type(n)
        return type(n).__name__, [type(r).__name__ for r in rest], names, [type(v).__name__ for v in options.values()]

    def match_type(n):
        match n:
            case float():
                return "float"
            case int():
                return "int"

    def fn(a, n, *rest):
        match n:
            case float():
                pass
        return a * n, helper(n, n + 1, *rest, k=n, **{"m": n})

    return over(fn, (2.0, 3), (2, 3.0))


@program(reason="unknown_call")
def rest_of_a_call_after_its_recording_stopped():
    def fn(a, n, *rest):
        m = n * 2
        sys.getsizeof(print)
        names = [type(v).__name__ for v in (n, m, *rest)]
        table = {n: m, "r": rest}
        fs = [lambda: n, lambda: m, lambda: rest]
        n2 = n

        def late():
            return n2, n

        values = sorted([n, m], key=lambda v: -v)
        box = Box(n=n, rest=rest, m=[m])
        text = "%s %r" % (n, m), f"{n} {m!r}", json.dumps([n, m, {"k": n}])
        y = a * n + m
        return (
            y,
            names,
            table,
            [type(f()).__name__ for f in fs],
            late(),
            values,
            box,
            text,
            list(map(type, rest)),
            n if m else 0,
            max(n, m),
            n is not None and n,
            isinstance(n, float),
            type(late()[0]).__name__,
            [*rest, n],
            (lambda *q: [type(v).__name__ for v in q])(n, *rest),
        )

    return over(fn, (2.0, 3, 4.0), (2, 5.0))


@program()
def decorator_with_a_state():
    class Count:
        def __init__(self, g):
            self.g, self.n = g, 0
            functools.update_wrapper(self, g)

        def __call__(self, *args):
            self.n += 1
            return self.g(*args)

    @Count
    def scale(v):
        return v * 3

    def fn(a):
        return scale(a) + scale(a * 2)

    return fn, [lambda f: f(x(1))] * 2, lambda: scale.n


@program()
def partial_functions_and_methods():
    class Owner:
        def m(self, a, k, *, z=0.0):
            return a * k + z

        double = functools.partialmethod(m, k=2.0)

    o = Owner()
    p = functools.partial(Owner.m, o, k=5.0)

    def fn(a, n):
        q = functools.partial(p, z=n)
        return p(a) + q(a) + o.double(a) + functools.partial(pow, 2)(n), q.keywords, p.func is Owner.m

    return over(fn, 2, 3)


@program(reason="construction")
def function_chosen_by_type():
    @functools.singledispatch
    def show(v):
        return "other"

    @show.register
    def _(v: int):
        return f"int {v}"

    @show.register
    def _(v: list):
        return f"list {len(v)}"

    def fn(a, n):
        return a, show(n), show([n]), show(a)

    return over(fn, 2, 3)


@program()
def effects_in_reduce_and_accumulate():
    def fn(a, n):
        total = functools.reduce(lambda p, q: (LOG.append(q), p + q)[1], [1.0, n], 0.0)
        acc = list(itertools.accumulate([1.0, n], lambda p, q: p * q, initial=2.0))
        return a * total, acc

    return fn, [fresh, lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], lambda: LOG


@program()
def effects_in_lazy_iterators():
    def fn(a):
        m = map(lambda v: (LOG.append(v), v)[1], [1, 2, 3])
        f = filter(lambda v: (LOG.append(("f", v)), v > 1)[1], [1, 2, 3])
        LOG.append("made")
        first = next(m)
        for v in zip(m, f, strict=False):
            LOG.append(v)
        return a * first, list(m), list(f)

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def any_and_all_stop_early():
    def check(v):
        LOG.append(v)
        return v > 1

    def fn(a, items):
        return (
            a * (2.0 if any(check(v) for v in items) else 3.0),
            all(check(v) for v in items),
            any([]),
            all([]),
            any(map(check, items)),
            any(v > 5 for v in itertools.count()),
        )

    return fn, [fresh, lambda f: f(x(1), [1, 2, 3]), lambda f: f(x(1), [5, 0, 1])], lambda: LOG


@program()
def keys_between_elements():
    def gen(items):
        for v in items:
            LOG.append(("g", v))
            yield v

    def key(v):
        LOG.append(("k", v))
        return -v

    def fn(a, items):
        return (
            a * max(gen(items), key=key) + min(gen(items), default=0),
            max(*items, key=key),
            max(gen([]), default="none"),
            max("ab", "c", key=len),
            min([[2], [1, 5]]),
        )

    return fn, [fresh, lambda f: f(x(1), [1, 2, 3]), lambda f: f(x(1), [5, 0, 1])], lambda: LOG


@program()
def unpacking_takes_what_it_needs():
    def gen():
        for i in range(10):
            LOG.append(i)
            yield i

    def fn(a):
        g = gen()
        p, q = itertools.islice(g, 2)
        try:
            r, s = gen()
        except ValueError as e:
            LOG.append(str(e))
        first, *rest = itertools.islice(g, 3)
        return a * p + q + first, rest, next(g)

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def regular_expressions():
    pattern = re.compile(r"(\w)=(\d+)")

    def fn(a, text):
        m = pattern.search(text)
        return (
            a * int(m.group(2)) if m else a,
            re.sub(r"\d", lambda m: str(int(m.group()) + 1), text),
            [m.span() for m in pattern.finditer(text)],
            pattern.findall(text),
            re.split("=", text),
            bool(re.match("k", text)),
        )

    return over(fn, "k=2", "none", "k=3,m=4")


@program()
def methods_of_texts():
    def fn(a, s):
        return (
            a * len(s),
            s.upper().split(","),
            s.partition("="),
            s.replace("k", "q"),
            s[::-1],
            s.startswith(("k", "m")),
            s.encode().decode(),
            s.find("="),
            s.zfill(8),
            "-".join(c for c in s),
            "".join(map(str, [1, 2])),
            s.isalpha(),
            s.strip("k"),
            sorted(s),
            s.count("k"),
            s * 2,
            s + "z",
            s < "m",
            "k" in s,
            s.title(),
            s.translate({107: "K"}),
            s.splitlines(),
            s.ljust(6, "."),
            s.casefold(),
            s.index("k"),
        )

    return over(fn, "k=2", "kk", "k=2,m")


@program()
def name_of_a_function_changed():
    def helper(a):
        return a

    helper.__qualname__ = "other.name"
    helper.__name__ = "short"

    def fn(a):
        out = []
        for args in ((), (1, 2)):
            try:
                helper(*args)
            except TypeError as e:
                out.append(str(e))
        return a, out, helper.__name__, helper.__qualname__

    return fn, with_change(lambda: setattr(helper, "__qualname__", "again")), None


@program()
def code_of_an_inner_function_exchanged():
    def other(v):
        return v * 7

    def fn(a):
        def g(v):
            return v * 2

        y = g(a)
        g.__code__ = other.__code__
        return y + g(a)

    return over(fn, (), ())


@program()
def defaults_of_an_inner_function_changed():
    def fn(a, n):
        def g(v, k=2.0, *, m=1.0):
            return v * k + m

        y = g(a)
        g.__defaults__ = (n,)
        g.__kwdefaults__["m"] = 5.0
        g.extra = 3.0
        return y + g(a) + g.extra, g.__dict__, g.__name__

    return over(fn, 2.0, 3.0)


@program()
def compiled_partial_function():
    box = Box(k=2.0)

    def g(a, b, *, k):
        return a * b.k + k

    return functools.partial(g, b=box, k=1.0), with_change(lambda: setattr(box, "k", 5.0)), None


@program()
def compiled_method():
    class Owner:
        k = 2.0

        def m(self, a):
            self.n = getattr(self, "n", 0) + 1
            return a * self.k

    o = Owner()
    return o.m, with_change(lambda: setattr(o, "k", 5.0), lambda: setattr(Owner, "m", lambda self, a: a)), lambda: o.n


@program()
def compiled_object():
    class Owner:
        k = 2.0

        def __call__(self, a):
            return a * self.k

    o = Owner()
    return o, with_change(lambda: setattr(o, "k", 5.0), lambda: setattr(Owner, "__call__", lambda self, a: a)), None


@program()
def arguments_of_all_types():
    def fn(a, v):
        if v is None:
            return a
        if v is Ellipsis:
            return a + 1
        if isinstance(v, type):
            return a, v.__name__, v is int
        if isinstance(v, (slice, range)):
            return a, v.start, v.stop, v.step
        if isinstance(v, (str, bytes)):
            return a * len(v), v
        if callable(v):
            return v(a)
        if isinstance(v, types.ModuleType):
            return a * v.pi
        if isinstance(v, T.dtype):
            return a.to(v), v
        if isinstance(v, dict):
            return a, sorted(v.items())
        return a, repr(v)

    vals = [
        None,
        ...,
        int,
        float,
        slice(1, 2),
        slice(0, 2, 1),
        range(3),
        range(1, 3),
        "ab",
        b"ab",
        abs,
        T.relu,
        lambda v: v * 3,
        math,
        T.float64,
        T.float32,
        {"k": 1},
        {"k": 2},
        (1, 2),
        (1, 3),
        [1],
        1j,
        frozenset({1}),
        np.float32(1),
        enum.Enum("E", "A B").A,
        NotImplemented,
    ]
    return fn, [lambda f, v=v: f(x(1, 2), v) for v in vals], None


@program()
def orders_of_keywords():
    def fn(a, *, p=1.0, q=2.0, **rest):
        return a * p + q, list(rest)

    return (
        fn,
        [
            lambda f: f(x(1), p=2.0, q=3.0),
            lambda f: f(x(1), q=3.0, p=2.0),
            lambda f: f(x(1)),
            lambda f: f(x(1), z=1, y=2),
            lambda f: f(x(1), y=2, z=1),
            lambda f: f(a=x(1), q=5.0),
        ],
        None,
    )


@program()
def arguments_inside_each_other():
    def fn(batch):
        y = batch["x"] * batch["meta"][0] + batch["items"][1]["k"]
        batch["seen"] = len(batch["items"])
        return y

    def mk(k):
        return {"x": x(1, 2), "meta": (k, "n"), "items": [{}, {"k": x(k, k)}]}

    kept = mk(2.0)
    return fn, [lambda f: f(mk(1.0)), lambda f: f(mk(2.0)), lambda f: f(kept), lambda f: f(kept)], lambda: kept["seen"]


@program()
def same_object_in_two_arguments():
    def fn(a, p, q):
        p.k = p.k + 1
        return a * q.k, p is q

    one, two = Box(k=1.0), Box(k=1.0)
    return fn, [lambda f: f(x(1), one, one), lambda f: f(x(1), one, two), lambda f: f(x(1), two, two)], lambda: (one.k, two.k)


@program()
def same_tensor_in_two_arguments():
    def fn(p, q):
        p.add_(1.0)
        return q * 2

    t = x(1, 2)
    return fn, [lambda f: f(x(1, 2), x(3, 4)), lambda f: f(t, t), lambda f: f(x(1, 2), x(3, 4))], lambda: t


@program()
def private_names_of_a_class():
    class Owner:
        def __init__(self):
            self.__k = 2.0

        def run(self, a, __m=3.0):
            __local = self.__k

            def inner():
                return __local * self.__k

            return a * inner() + self.__scale(__m)

        def __scale(self, __n):
            return __n * self.__k

    o = Owner()

    def fn(a):
        return o.run(a)

    return fn, with_change(lambda: setattr(o, "_O__k", 5.0)), None


@program()
def global_names_of_all_kinds():
    def fn(a):
        global GK, GI, GW
        for GI in range(3):
            a = a + GI
        GK += 1.0
        GK, other = GK * 2, GK

        def inner():
            global GK
            GK = 7.0
            return GK

        with contextlib.nullcontext(4.0) as GW:
            a = a * GW
        return a * other + inner() + GI

    def reset(f):
        globals()["GK"] = 2.0

    return fn, [reset, lambda f: f(x(1))], lambda: (GK, GI, GW)


@program()
def starred_results():
    def g(*v):
        yield from v
        return len(v)

    def fn(a, *v):
        return *v, a * 2, *g(*v), {*v}, {**{"k": v}}

    return fn, [lambda f: f(x(1), 1.0, 2), lambda f: f(x(1), 3.0, 2)], None


@program()
def starred_index():
    t = T.arange(8.0).reshape(2, 2, 2)

    def fn(a, i):
        idx = (0, i)
        return a * t[*idx, 0] + t[*idx][1] + t[..., i].sum()

    return over(fn, 0, 1)


@program()
def text_of_an_outside_exception():
    err = ValueError("one", 2)

    def fn(a):
        return a, str(err), repr(err), f"{err}", err.args

    def change():
        err.args = ("two",)

    return fn, with_change(change), None


@program()
def attributes_of_an_outside_exception():
    err = OSError(2, "no", "file")

    def fn(a):
        return a, err.errno, err.strerror, err.filename, str(err)

    return fn, with_change(lambda: setattr(err, "errno", 3), lambda: setattr(err, "filename", "x")), None


@program()
def cause_of_an_exception():
    cause = KeyError("c")

    def fn(a):
        try:
            raise ValueError("v") from cause
        except ValueError as e:
            return a, e.__cause__ is cause, str(e.__cause__)

    return fn, with_change(lambda: setattr(cause, "args", ("d",))), None


@program()
def class_that_is_raised():
    class E(Exception):
        count = 0

        def __init__(self, *a):
            super().__init__(*a)
            self.n = len(LOG)
            LOG.append(1)

    def fn(a):
        try:
            raise E
        except E as e:
            return a * 2, e.n

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def identity_kept_and_returned():
    o = Box()

    def fn(a):
        o.own = id(o)
        return a * 2, id(o) == o.own, {"id": id(o)}

    def go(f):
        r = f(x(1))
        return r[1], r[2]["id"] == id(o), type(r[2]["id"]).__name__, o.own == id(o), type(o.own).__name__

    return fn, [go, go], None


@program(reason="container")
def identity_as_part_of_a_key():
    o = Box()

    def key(v):
        return ("k", id(v))

    cache = {}

    def fn(a):
        k = key(o)
        cache[k] = 1
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: [k[1] == id(o) and type(k[1]).__name__ for k in cache]


@program(reason="object_identity")
def text_of_an_identity():
    o = Box()

    def fn(a):
        return a * 2, f"{id(o):x}" == hex(id(o))[2:], str(id(o)).isdigit(), id(o) % 1 == 0, id(o) > 0

    return over(fn, (), ())


@program(reason="tensor_state")
def address_of_a_tensor():
    def fn(a):
        return a * 2, a.data_ptr()

    def go(f):
        p = x(1, 2)
        r, q = f(p)
        return r, q == p.data_ptr()

    kept = []

    def go2(f):
        p = x(3, 4)
        kept.append(p)
        r, q = f(p)
        return r, q == p.data_ptr()

    return fn, [go, go2], None


@program()
def facts_about_a_tensor():
    def fn(a):
        return (
            a * a.dim(),
            a.shape,
            a.size(),
            a.size(0),
            a.numel(),
            a.stride(),
            a.is_contiguous(),
            a.dtype,
            a.ndim,
            a.nelement(),
            a.element_size(),
            a.is_cuda,
            a.device.type,
            a.type(),
            a.ndimension(),
            a.requires_grad,
            a.is_leaf,
            a.grad is None,
            len(a),
            a.is_floating_point(),
            str(a.dtype),
            a.dtype.is_floating_point,
        )

    return (
        fn,
        [
            lambda f: f(T.ones(2, 3)),
            lambda f: f(T.ones(3, 2).t()),
            lambda f: f(T.ones(2, 3, dtype=T.float64)),
            lambda f: f(T.ones(2, 3).requires_grad_()),
            lambda f: f(T.ones(4, 3)[1:3]),
        ],
        None,
    )


@program()
def seed_that_is_read():
    def fn(a):
        return a * 2, T.initial_seed()

    return (
        fn,
        [lambda f: T.manual_seed(3) and None, lambda f: f(x(1)), lambda f: T.manual_seed(5) and None, lambda f: f(x(1))],
        None,
    )


@program(reason="object_identity")
def identity_of_tuples():
    def fn(a, p, q):
        return a * (2.0 if id(p) == id(q) else 3.0)

    p = (1, 2)
    q = tuple([1, 2])
    return fn, [lambda f: f(x(1), p, q), lambda f: f(x(1), p, p), lambda f: f(x(1), q, p)], None


@program()
def identity_of_texts():
    sentinel = "".join(["mis", "sing"])
    other = "".join(["mis", "sing"])

    def fn(a, s):
        return a * (2.0 if s is sentinel else 3.0)

    return fn, [lambda f: f(x(1), sentinel), lambda f: f(x(1), other)], None


@program()
def callable_while_its_class_changes():
    class C:
        pass

    c = C()

    def fn(a):
        return a * (2.0 if callable(c) else 3.0)

    return fn, with_change(lambda: setattr(C, "__call__", lambda s: 1)), None


def tried(compute):
    try:
        return compute()
    except (RuntimeError, TypeError) as error:
        return type(error), str(error)


@program()
def derivatives_of_functions_of_the_program():
    derive = T.autograd.functional
    w = x(1, 2, 3).requires_grad_()
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.Linear(4, 1)).double()

    def fn(a, n):
        linked = derive.jacobian(lambda z: (z**3) * w, a, create_graph=True)
        linked.sum().backward()
        taken = w.grad.clone()
        w.grad = None
        return (
            taken, derive.jacobian(lambda y, z: (y * z, y.sum() + z * n), (a, a + 1)), derive.jacobian(net, a.double()),
            derive.hessian(lambda z: (z**3).sum() * n, a), derive.hessian(lambda y, z: (y * z**2).sum(), (a, a * 2)),
            derive.hessian(lambda z: net(z).sum(), a.double()), derive.vjp(lambda z: z.exp() * n, a, a),
            derive.jvp(lambda z: z.exp(), a, a + n),
            derive.vhp(lambda z: (z**3).sum(), a, a), derive.hvp(lambda z: (z**3).sum(), a, a * n),
            derive.jacobian(lambda z: w.detach() * 2, a),
        )  # fmt: skip

    return fn, [lambda f, n=n: f(x(1, -2, 3) * n, n) for n in (1, 2, 3, 1.5)], lambda: w.grad


@program()
def derivatives_that_do_not_exist():
    derive = T.autograd.functional
    w = x(1, 2, 3)

    def fn(a):
        return (
            tried(lambda: derive.jacobian(lambda z: w * 1, a, strict=True)), tried(lambda: derive.hessian(lambda z: z * 2, a)),
            tried(lambda: derive.jacobian(lambda z: 3, a)), tried(lambda: derive.vjp(lambda z: z, a, x(1))),
        )  # fmt: skip

    return fn, [lambda f, n=n: f(x(1, -2, 3) * n) for n in (1, 2, 3)], None
