"""Classes, attributes and methods.  See capture_programs.py."""

from __future__ import annotations

import collections
import dataclasses

from registered_programs import program, with_change, x

import tracejit as T


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
def a_backward_pass_that_asks_which_gradients_are_wanted():
    class Linear(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, weight, bias=None):
            ctx.save_for_backward(a, weight, bias)
            return a @ weight.t() if bias is None else a @ weight.t() + bias

        @staticmethod
        def backward(ctx, g):
            a, weight, bias = ctx.saved_tensors
            of_a = of_weight = of_bias = None
            if ctx.needs_input_grad[0]:
                of_a = g @ weight
            if ctx.needs_input_grad[1]:
                of_weight = g.t() @ a
            if bias is not None and ctx.needs_input_grad[2]:
                of_bias = g.sum(0)
            return of_a, of_weight, of_bias

    weight, bias = x(0.5, 0.25).reshape(1, 2).requires_grad_(), x(0.5).requires_grad_()

    def fn(a):
        loss = Linear.apply(a.reshape(1, 2), weight, bias).square().sum()
        return loss.detach(), *T.autograd.grad(loss, (weight, bias) if bias.requires_grad else (weight,))

    return fn, with_change(lambda: bias.requires_grad_(False)), None


@program()
def distributions_from_outside():
    T.manual_seed(0)
    prior = T.distributions.Normal(x(0, 0), x(1, 2))
    mixture = T.distributions.Categorical(logits=x(0.5, 0.25))

    def fn(a):
        posterior = T.distributions.Normal(a, a.exp())
        divergence = T.distributions.kl_divergence(posterior, prior).sum()
        return (
            prior.log_prob(a).sum() + divergence,
            prior.mean + prior.variance,
            prior.sample() + mixture.sample(),
            mixture.entropy(),
        )

    def change():
        prior.scale = x(3, 4)

    return fn, with_change(change), None
