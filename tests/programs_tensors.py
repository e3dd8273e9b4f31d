"""Tensors: memory they share, gradients, values that steer.  See capture_programs.py."""

from __future__ import annotations

import numpy as np
from registered_programs import program, x

import tracejit as T


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
def assertion_on_a_tensor():
    def fn(a):
        assert (a > 0).all(), "negative"
        return a.log()

    return fn, [lambda f: f(x(1)), lambda f: f(x(-1)), lambda f: f(x(2))], None


@program()
def result_holds_scalars():
    def fn(a, n, s):
        return n + 1, s * 2, [n], {"s": s}, (s, n), a

    return fn, [lambda f, n=n, s=s: f(x(1), n, s) for n, s in ((1, 2.0), (5, 0.5), (1, 2.0))], None
