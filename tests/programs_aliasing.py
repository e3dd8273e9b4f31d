"""Memory that arguments, results, state and views have in common.  See capture_programs.py."""

from __future__ import annotations

import numpy as np
from registered_programs import Box, program, x

import tracejit as T


def fresh(*shape):
    return T.arange(1.0, 1.0 + int(np.prod(shape))).reshape(*shape)


@program()
def argument_written_and_returned():
    def fn(a):
        a += 1
        return a

    def go(f):
        a = x(1, 2)
        r = f(a)
        return r is a, a

    return fn, [go, go], None


@program()
def view_of_argument_written():
    def fn(a):
        b = a[0]
        b.mul_(2)
        c = a.T
        c[1, 0] = 100.0
        return a.sum()

    def go(f):
        a = fresh(2, 2)
        r = f(a)
        return r, a

    return fn, [go, go], None


@program(reason="overlapping_inputs")
def two_arguments_that_overlap():
    def fn(a, b):
        a.add_(1)
        return a * 2, b * 2

    def go(f, k):
        base = fresh(4)
        return f(base[:3], base[k:]), base

    return fn, [lambda f: go(f, 1), lambda f: go(f, 3), lambda f: go(f, 0)], None


@program(reason="overlapping_inputs")
def argument_is_a_view_of_a_closure():
    base = fresh(4)

    def fn(a):
        base.add_(1)
        return a * 2

    return fn, [lambda f: f(base[:2]), lambda f: f(x(1, 2)), lambda f: f(base)], lambda: base.tolist()


@program(reason="overlapping_inputs")
def view_kept_between_calls():
    base = fresh(2, 2)
    box = Box(v=base[0])

    def fn(a):
        box.v.mul_(a.sum())
        return base * 1

    return (
        fn,
        [lambda f: f(x(1, 1)), lambda f: f(x(0, 1)), lambda f: (setattr(box, "v", base[1]), f(x(2, 0)))[1]],
        lambda: base.tolist(),
    )


@program()
def view_made_inside_and_kept():
    base = fresh(4)
    box = Box(v=None)

    def fn(a):
        box.v = base[1:3]
        box.v.add_(a)
        return base.sum()

    def go(f):
        r = f(x(1, 2))
        box.v.zero_()
        return r, base

    return fn, [go, go], lambda: box.v.tolist()


@program()
def result_view_of_argument():
    def fn(a):
        return a[::2], a.reshape(-1)[1:], a

    def go(f):
        a = fresh(4)
        p, q, r = f(a)
        p.fill_(9.0)
        q[0] = -1.0
        return a, r is a

    return fn, [go, go], None


@program()
def results_share_memory():
    def fn(a):
        b = a * 2
        return b, b[0], b.view(-1)

    def go(f):
        p, q, r = f(fresh(2, 2))
        r[0] = 50.0
        q[1] = 60.0
        return p, q, r

    return fn, [go, go], None


@program()
def expand_then_clone_written():
    def fn(a):
        e = a.expand(3, 2).clone()
        e[0] += 1
        return e, a

    return fn, [lambda f: f(x(1, 2))], None


@program()
def slices_swapped_in_place():
    def fn(a):
        a[0], a[1] = a[1].clone(), a[0].clone()
        return a

    def go(f):
        a = fresh(2, 3)
        f(a)
        return a

    return fn, [go], None


@program()
def slices_swapped_without_clone():
    def fn(a):
        a[0], a[1] = a[1], a[0]
        return a

    def go(f):
        a = fresh(2, 3)
        f(a)
        return a

    return fn, [go], None


@program()
def in_place_through_transpose_and_diagonal():
    def fn(a):
        a.T.diagonal().add_(10)
        a.permute(1, 0)[0].mul_(2)
        return a

    def go(f):
        a = fresh(3, 3)
        f(a)
        return a

    return fn, [go], None


@program()
def copy_between_views_of_the_same():
    def fn(a):
        a[1:].copy_(a[:-1])
        return a

    def go(f):
        a = fresh(4)
        f(a)
        return a

    return fn, [go], None


@program()
def strided_argument_written():
    def fn(a):
        a.mul_(3)
        return a + 1

    def go(f, s):
        b = fresh(6)
        f(b[s])
        return b

    return fn, [lambda f: go(f, slice(None, None, 2)), lambda f: go(f, slice(1, 4)), lambda f: go(f, slice(0, 3))], None


@program()
def numpy_memory_shared():
    arr = np.ones(3, np.float32)
    t = T.from_numpy(arr)

    def fn(a):
        return a * t

    return fn, [lambda f: f(x(1, 2, 3)), lambda f: (arr.__setitem__(0, 5.0), f(x(1, 2, 3)))[1]], None


@program()
def numpy_of_the_result_shares_memory():
    def fn(a):
        return a * 2

    def go(f):
        r = f(x(1, 2))
        n = r.numpy()
        n[0] = 7
        return r

    return fn, [go], None


@program()
def detach_shares_memory():
    def fn(a):
        d = a.detach()
        d.add_(1)
        return a * 2, d

    def go(f):
        a = x(1, 2)
        r = f(a)
        r[1].zero_()
        return a, r

    return fn, [go], None


@program(reason="overlapping_inputs")
def write_then_read_of_an_alias_in_a_list():
    base = fresh(3)
    views = [base[i] for i in range(3)]

    def fn(a):
        base.add_(a.sum())
        return sum(views)

    return fn, [lambda f: f(x(1, 2)), lambda f: (views.pop(), f(x(1, 2)), views.append(base[2]))[1]], None


@program()
def chunk_split_unbind_written():
    def fn(a):
        p, q = a.chunk(2)
        p.zero_()
        r = a.unbind(0)
        r[1].add_(5)
        return q, a

    def go(f):
        a = fresh(4, 2)
        r = f(a)
        return r, a

    return fn, [go], None


@program()
def out_of_place_setitem_masks():
    def fn(a):
        a = a.clone()
        a[a > 2] = 0.0
        a[:, 0] = T.tensor([7.0, 8.0])
        a[T.tensor([1])] += 1
        return a

    return fn, [lambda f: f(fresh(2, 2)), lambda f: f(-fresh(2, 2))], None


@program()
def same_tensor_in_structure_twice():
    def fn(d):
        d["p"].add_(1)
        return d["q"] * 2, d["p"] is d["q"]

    def same(f):
        t = x(1, 2)
        return f({"p": t, "q": t})

    return fn, [lambda f: f({"p": x(1, 2), "q": x(1, 2)}), same], None


@program()
def grad_view_kept():
    w = x(1, 2).requires_grad_()

    def fn(a):
        (a * w).sum().backward()
        return w.grad

    def go(f):
        g = f(x(1, 2))
        g.zero_()
        return w.grad

    return fn, [go, go, lambda f: (setattr(w, "grad", None), f(x(2, 2)))[1]], None


@program()
def base_resized_by_slicing_assignment():
    box = Box(t=fresh(4))

    def fn(a):
        box.t = box.t[1:]
        return box.t.sum() * a

    def reset(f):
        box.t = fresh(4)
        return f(x(1))

    return fn, [reset, lambda f: f(x(1)), lambda f: f(x(1))], lambda: box.t.tolist()


@program()
def ring_buffer_tensor():
    buf = T.zeros(3, 2)
    box = Box(i=0)

    def fn(a):
        buf[box.i % 3] = a
        box.i += 1
        return buf.mean(0)

    return (
        fn,
        [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), lambda f: f(x(5, 6)), lambda f: f(x(7, 8))],
        lambda: (buf.tolist(), box.i),
    )


@program()
def history_stacked():
    hist = []

    def fn(a):
        hist.append(a)
        if len(hist) > 3:
            del hist[0]
        return T.stack(hist).sum(0)

    return fn, [lambda f, i=i: f(x(i, 1)) for i in range(5)], lambda: len(hist)


@program()
def zero_dim_and_empty_views():
    def fn(a):
        a[0:0].add_(5)
        a[0].add_(1)
        return a, a[5:].sum()

    def go(f):
        a = x(1, 2)
        f(a)
        return a

    return fn, [go], None


@program()
def broadcast_write_into_view():
    def fn(a, b):
        a[:, 1:] = b
        a[0] += b[0]
        return a

    return fn, [lambda f: f(fresh(2, 3), x(1, 2)[:1].reshape(1, 1)), lambda f: f(fresh(2, 3), T.ones(2, 1))], None


@program()
def masked_fill_and_where_on_argument():
    def fn(a, m):
        a.masked_fill_(m, -1.0)
        return T.where(m, a * 2, a)

    return fn, [lambda f: f(fresh(3), T.tensor([True, False, True])), lambda f: f(fresh(3), T.tensor([False, False, True]))], None


@program()
def argument_rebound_then_written():
    def fn(a):
        b = a
        a = a * 2
        b.add_(100)
        return a

    def go(f):
        t = x(1, 2)
        return f(t), t

    return fn, [go], None


@program()
def int_and_bool_tensors_written():
    def fn(i, m):
        i += 1
        i[0] = 9
        m |= i > 2
        m[0] = False
        return i, m

    def go(f):
        i, m = T.tensor([1, 2, 3]), T.tensor([False, True, False])
        f(i, m)
        return i, m

    return fn, [go], None


@program()
def results_of_reducing_a_constant_of_no_dimensions_by_way_of_a_view():
    def fn(a):
        one = T.ones_like(a).permute()
        real = T.moveaxis(T.isreal(a), (), ())
        return one, one.amax(), one.sum(), real, real.all()

    def go(f):
        one, top, total, real, every = f(T.tensor(0.5))
        one.add_(1)
        top.mul_(5)
        real.logical_not_()
        return one, top, total, real, every

    return fn, [go, go], None
