"""Programs that must run eagerly, with a reason.  See capture_programs.py."""

from __future__ import annotations

from registered_programs import program, x

import tracejit as T


@program()
def printing():
    def fn(a):
        print("called")
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, None


@program()
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
def backward_of_an_outside_graph_to_a_gradient_that_is_read():
    def fn(y, a):
        y.backward()
        return a.grad * 2

    def go(f):
        a = x(1, 2).requires_grad_()
        return f((a + 1).sum(), a)

    return fn, [go, go], None


@program(reason="global_state")
def default_dtype_set_inside():
    def fn(a):
        T.set_default_dtype(T.float64)
        y = T.ones(2)
        T.set_default_dtype(T.float32)
        return a + y

    return fn, [lambda f: f(x(1, 2))] * 2, None


@program()
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
def method_of_a_class_is_replaced():
    class Scale:
        def by(self):
            return 2.0

    scale = Scale()

    def fn(a):
        Scale.by = lambda self: 3.0
        return a * scale.by()

    return fn, [lambda f: f(x(1))] * 3, lambda: scale.by()


@program(reason="overlapping_inputs")
def overlapping_arguments_written():
    def fn(a, b):
        a.add_(1)
        return a + b

    def go(f):
        base = x(1, 2, 3, 4)
        return f(base[:3], base[1:]), base

    return fn, [go, go], None
