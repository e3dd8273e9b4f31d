"""Programs that Python's corners and outside state make hard to record, each with what must become of it.

`@program()` or `@program(reason="code")` registers a maker that returns (function, calls, observe): calls are applied in turn to the
eager or the compiled function, observe() reads outside state at the end.  Results, types, errors and outside state must be the same.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator

import numpy as np

import tracejit as T

PROGRAMS = {}


def program(reason=None):
    def register(maker):
        PROGRAMS[maker.__name__] = (maker, reason)
        return maker

    return register


def x(*values):
    return T.tensor([float(v) for v in values])


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
def dataclass_and_namedtuple_arguments():
    @dataclasses.dataclass
    class Config:
        scale: float
        names: list

    Pair = collections.namedtuple("Pair", "left right")

    def fn(a, config, pair):
        return a * config.scale + pair.left * len(config.names), Pair(pair.right, a + 1)

    return fn, [lambda f, c=c: f(x(1, 2), Config(c, ["p"]), Pair(x(c), x(2))) for c in (1.0, 2.0)], None


@program()
def property_and_fallback_attribute():
    class Box:
        def __init__(self):
            self._v = 2.0

        @property
        def v(self):
            return self._v * 2

        def __getattr__(self, name):
            if name.startswith("made_"):
                return float(name[5:])
            raise AttributeError(name)

    box = Box()

    def fn(a):
        return a * box.v + box.made_3 + (1.0 if hasattr(box, "nothing") else 2.0)

    def change(f, name, value):
        setattr(box, name, value)
        return f(x(1))

    return fn, [lambda f: f(x(1)), lambda f: change(f, "_v", 5.0), lambda f: change(f, "nothing", 0)], None


@program()
def attribute_access_intercepted_by_the_class():
    log = []

    class Spy:
        def __init__(self):
            self.k = 2.0

        def __getattribute__(self, name):
            log.append(name)
            return object.__getattribute__(self, name)

        def __setattr__(self, name, value):
            log.append("set " + name)
            super().__setattr__(name, value)

    spy = Spy()

    def fn(a):
        y = a * spy.k
        spy.k = 3.0
        return y

    return fn, [lambda f: f(x(1))] * 4, lambda: log


@program()
def class_attribute_inherited_then_shadowed():
    class Base:
        k = 2.0

        def get(self):
            return self.k

    class Child(Base):
        def get(self):
            return super().get() + 1

    child = Child()

    def fn(a):
        return a * child.get()

    def shadow(f):
        Child.k = 7.0
        return f(x(1))

    def replace(f):
        Base.get = lambda self: 100.0
        return f(x(1))

    return fn, [lambda f: f(x(1)), lambda f: f(x(2)), shadow, replace, lambda f: f(x(2))], None


@program()
def method_of_the_instance_dictionary():
    class Model:
        def step(self, a):
            return a + 1

    model = Model()

    def fn(a):
        return model.step(a)

    def patch(f):
        model.step = lambda a: a * 5
        return f(x(1))

    return fn, [lambda f: f(x(1)), lambda f: f(x(2)), patch, patch], None


@program()
def attributes_written_and_read_back():
    class State:
        n = 0
        total = None

    state = State()

    def fn(a):
        state.n += 1
        state.n = state.n * 2
        state.total = a if state.total is None else state.total + a
        return state.total * state.n

    return fn, [lambda f: f(x(1, 2))] * 5, lambda: (state.n, state.total)


@program()
def deleted_attribute():
    class State:
        pass

    state = State()

    def fn(a):
        state.tmp = a * 2
        y = state.tmp + 1
        del state.tmp
        return y

    return fn, [lambda f: f(x(1))] * 3, lambda: sorted(vars(state))


@program()
def slots():
    class Slotted:
        __slots__ = ("n", "t")

    s = Slotted()
    s.n = 1.5

    def fn(a):
        s.t = a * s.n
        s.n = s.n + 1
        return s.t + s.n

    return fn, [lambda f: f(x(1))] * 4, lambda: (s.n, s.t)


@program(reason="read_after_change")
def list_of_tensors_grows():
    log = [x(0)]

    def fn(a):
        log.append(a * 2)
        return len(log) * a

    return fn, [lambda f: f(x(1))] * 4, lambda: log


@program()
def list_changes_of_all_kinds():
    items = [1, 2, 3, 4]

    def fn(a):
        items[0] = items[0] + 1
        items.insert(1, 9)
        items.pop()
        del items[2]
        items.extend([5])
        return a * sum(items)

    def restart(f):
        items[:] = [1, 2, 3, 4]
        return f(x(1))

    return fn, [lambda f: f(x(1)), restart, restart], lambda: items


@program()
def dictionary_changes_of_all_kinds():
    d = {"a": 1.0, "n": 0}

    def fn(a):
        d["n"] += 1
        d.setdefault("t", a * 2)
        d["t"] = d["t"] + d["n"]
        d.update(last=None) if False else d.update({"last": a})
        d.pop("gone", None)
        return d["t"] * d.get("a", 2.0) * d.get("zz", 3.0)

    return fn, [lambda f: f(x(1))] * 4, lambda: d


@program()
def subclasses_of_containers_by_path():
    class Config(dict):
        def __getattr__(self, name):
            return self[name]

    class Doubled(dict):
        def __getitem__(self, key):
            return super().__getitem__(key) * 2

    class Stack(list):
        def append(self, value):
            super().append(value)
            super().append("after")

    def fn(a, config, stack):
        first = stack[0]
        stack.append(a)
        return a * config.scale + len(config) + Doubled(k=a)["k"] + doubled["k"], first

    doubled = Doubled(k=3.0)

    def go(f, k):
        stack = Stack([x(k)])
        return f(x(1, 2), Config(scale=k), stack), stack

    return fn, [lambda f, k=k: go(f, k) for k in (1.0, 2.0, 3.0)], None


@program()
def long_tables_of_numbers():
    def fn(a, table):
        for v in table:
            a = a + v
        return a

    tables = (
        [float(i + 1) for i in range(40)],
        [*range(40)],
        [float(i + 1) for i in range(40)],
        [True] * 40,
        [0.0] * 10,
        [-0.0] * 10,
    )
    return fn, [lambda f, t=t: f(x(1), t) for t in (*tables, *tables)], None


@program()
def dictionary_keys_one_and_true():
    d = {1: 2.0}

    def fn(a):
        return a * d[1]

    def swap(f):
        d.clear()
        d[True] = 5.0
        return f(x(1))

    return fn, [lambda f: f(x(1)), swap], None


@program()
def dictionary_order_is_seen():
    d = {"p": 1.0, "q": 2.0}

    def fn(a):
        for i, (k, v) in enumerate(d.items()):
            a = a * (v + i) if k == "p" else a - v
        return a

    def turn(f):
        d["p"] = d.pop("p")
        return f(x(3))

    return fn, [lambda f: f(x(3)), turn, lambda f: f(x(3)), turn, lambda f: f(x(3))], None


@program()
def defaultdict_of_state():
    state = collections.defaultdict(dict)
    p = x(1, 2)

    def fn(a):
        s = state[p]
        s["step"] = s.get("step", 0) + 1
        return a * s["step"] + p

    return fn, [lambda f: f(x(1, 2))] * 5, lambda: list(state.values())


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
def operators_of_user_classes():
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return V(self.v + (other.v if isinstance(other, V) else other))

        __radd__ = __add__

        def __lt__(self, other):
            return bool((self.v < other.v).all())

        def __getitem__(self, i):
            return self.v[i]

        def __contains__(self, k):
            return k == 1

        def __iter__(self):
            return iter([self.v, self.v * 2])

        def __neg__(self):
            return V(-self.v)

    def fn(a):
        p, q = V(a), V(a + 1)
        r = sum([p, q]) + 1
        return (r.v if p < q else q.v) + p[0] + (1 if 1 in p else 2), [*p], (-p).v

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def iterator_class_of_the_program():
    class Count:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            self.n -= 1
            if self.n < 0:
                raise StopIteration
            return self.n

    def fn(a):
        for i in Count(3):
            a = a + i
        return a, list(Count(2)), next(Count(5))

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program()
def views_returned_share_memory():
    def fn(a):
        y = a * 2
        return y, y[0], a[1:], y.reshape(2, 2)

    def go(f):
        a = x(1, 2, 3, 4)
        y, first, tail, square = f(a)
        y[0] = 50.0
        tail[0] = 60.0
        square[1, 1] = 70.0
        return y, first, a, square

    return fn, [go, go], None


@program()
def in_place_on_argument_and_alias_inside():
    def fn(a):
        v = a[1:]
        a.add_(1)
        v.mul_(2)
        return v + a[0]

    def go(f):
        a = x(1, 2, 3)
        return f(a), a

    return fn, [go, go], None


@program()
def same_tensor_twice_or_two_tensors():
    def fn(a, b):
        return a + b if a is b else a * b

    def one(f):
        a = x(2, 3)
        return f(a, a)

    return fn, [lambda f: f(x(2), x(3)), one, lambda f: f(x(2), x(4)), one], None


@program()
def returned_argument_is_the_same_object():
    def fn(a, d):
        return a, d, [a]

    def go(f):
        a, d = x(1), {"k": x(2)}
        r = f(a, d)
        return r[0] is a, r[1] is d, r[2][0] is a

    return fn, [go, go], None


@program()
def new_objects_are_new_each_time():
    class Point:
        def __init__(self, v):
            self.v = v

    def fn(a):
        p = Point(a * 2)
        p.tags = ["t", {"a": a + 1}]
        return p, [1, [2, a * 3]]

    def go(f):
        p, q = f(x(1))
        p.tags.append(5)
        q[1].append(6)
        return p.v, p.tags, q

    return fn, [go, go, go], None


@program()
def gradient_of_an_argument_inside():
    def fn(a):
        (g,) = T.autograd.grad((a * a * 3).sum(), [a], create_graph=True)
        (h,) = T.autograd.grad(g.sum(), [a])
        return g.detach(), h

    return fn, [lambda f: f(x(1, 2).requires_grad_()), lambda f: f(x(3, 4).requires_grad_())], None


@program()
def gradients_accumulate_over_calls():
    w = x(1, 2).requires_grad_()

    def fn(a):
        loss = (w * a).sum()
        loss.backward()
        return loss.detach()

    return fn, [lambda f: f(x(1, 1)), lambda f: f(x(2, 2)), lambda f: f(x(3, 3)), lambda f: f(x(4, 4))], lambda: w.grad


@program()
def training_step_with_changing_rate():
    w = x(1, 2).requires_grad_()

    class Rule:
        rate = 0.1
        step = 0

    rule = Rule()

    def fn(a):
        loss = ((w * a) ** 2).sum()
        loss.backward()
        rule.step += 1
        with T.no_grad():
            w.sub_(w.grad * (rule.rate / rule.step))
        w.grad = None
        return loss

    def step(f, rate):
        rule.rate = rate
        return f(x(1, 2)).detach()

    return fn, [lambda f, r=r: step(f, r) for r in (0.1, 0.1, 0.05, 0.01)], lambda: (w.detach(), rule.step)


@program()
def backward_outside_after_closed_over_parameter():
    w = x(1, 2).requires_grad_()

    def fn(a):
        return (w * a).sin().sum()

    def go(f):
        loss = f(x(1, 3))
        loss.backward()
        g, w.grad = w.grad, None
        return loss.detach(), g

    return fn, [go, go, go], None


@program()
def branch_on_a_tensor_value():
    def fn(a):
        if a.sum() > 3:
            return a * 2
        return a - 1

    return fn, [lambda f, v=v: f(x(v)) for v in (1, 5, 2, 7, 9)], None


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
def patched_tensor_method():
    def fn(a):
        return a.double_it() if hasattr(a, "double_it") else a.relu()

    def patch(f):
        T.Tensor.double_it = lambda self: self * 2
        try:
            return f(x(-1, 2))
        finally:
            del T.Tensor.double_it

    return fn, [lambda f: f(x(-1, 2)), patch, lambda f: f(x(-1, 2))], None


@program()
def numpy_scalar_argument():
    def fn(a, s):
        return a * float(s) if isinstance(s, np.floating) else a * s

    return fn, [lambda f, s=s: f(x(1), s) for s in (np.float32(2), 2.0, np.float32(2), np.float64(3))], None


@program()
def import_inside():
    def fn(a):
        import math as m
        from math import pi

        return a * m.floor(pi)

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program()
def assertion_on_a_tensor():
    def fn(a):
        assert (a > 0).all(), "negative"
        return a.log()

    return fn, [lambda f: f(x(1)), lambda f: f(x(-1)), lambda f: f(x(2))], None


@program()
def user_attributes_of_tensors():
    def fn(a):
        y = a * 2
        y.tag = "new"
        a.seen = getattr(a, "seen", 0) + 1
        return y

    def go(f):
        a = x(1)
        f(a)
        y = f(a)
        return y.tag, a.seen

    return fn, [go, go], None


@program()
def exception_of_the_program_carries_numbers():
    def fn(a, s):
        if s > 2:
            raise ValueError(s, [s])
        return a * s

    return fn, [lambda f, s=s: f(x(1), s) for s in (1.0, 3.0, 1.5)], None


@program()
def result_holds_scalars():
    def fn(a, n, s):
        return n + 1, s * 2, [n], {"s": s}, (s, n), a

    return fn, [lambda f, n=n, s=s: f(x(1), n, s) for n, s in ((1, 2.0), (5, 0.5), (1, 2.0))], None


# -- programs that must run eagerly, with a reason ------------------------------------------------------------------------------


@program(reason="impure_call")
def printing():
    def fn(a):
        print("called")
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, None


@program(reason="tensor_contents")
def contents_as_a_list():
    def fn(a):
        return a * len(a.tolist()) + a.tolist()[0]

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], None


@program(reason="external_iterator")
def iterator_from_outside():
    it = iter([1.0, 2.0, 3.0])

    def fn(a):
        return a * next(it)

    return fn, [lambda f: f(x(1))] * 3, None


@program(reason="frame_access")
def local_names():
    def fn(a):
        return a * len(locals())

    return fn, [lambda f: f(x(1))] * 2, None


@program(reason="implicit_python")
def hash_of_a_user_class_behind_a_dictionary():
    class Key:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return True

    key = Key()

    def fn(a):
        d = {key: 2.0}
        return a * d[key]

    return fn, [lambda f: f(x(1))] * 2, None


@program(reason="tensor_state")
def hook_registered_inside():
    def fn(a):
        a.register_hook(lambda g: g * 2)
        y = (a * 3).sum()
        y.backward()
        return a.grad

    return fn, [lambda f: f(x(1).requires_grad_())] * 2, None


@program(reason="outside_graph")
def backward_of_an_outside_graph():
    def fn(y):
        y.backward()
        return 1

    def go(f):
        a = x(1, 2).requires_grad_()
        f((a + 1).sum())
        return a.grad

    return fn, [go, go], None


@program(reason="global_state")
def default_dtype_set_inside():
    def fn(a):
        T.set_default_dtype(T.float64)
        y = T.ones(2)
        T.set_default_dtype(T.float32)
        return a + y

    return fn, [lambda f: f(x(1, 2))] * 2, None


@program(reason="unsupported_syntax")
def class_statement_with_pattern():
    class P:
        __match_args__ = ("v",)

        def __init__(self, v):
            self.v = v

    def fn(a, p):
        match p:
            case P(v):
                return a * v
        return a

    return fn, [lambda f: f(x(1), P(2.0))] * 2, None


@program(reason="shared_store")
def attribute_of_a_class_is_set():
    class Registry:
        n = 0

    def fn(a):
        Registry.n += 1
        return a * Registry.n

    return fn, [lambda f: f(x(1))] * 3, lambda: Registry.n


@program(reason="overlapping_inputs")
def overlapping_arguments_written():
    def fn(a, b):
        a.add_(1)
        return a + b

    def go(f):
        base = x(1, 2, 3, 4)
        return f(base[:3], base[1:]), base

    return fn, [go, go], None


@program(reason="random_operation")
def random_numbers():
    def fn(a):
        return a * 0 + T.rand(1) * 0

    return fn, [lambda f: f(x(1))] * 2, None
