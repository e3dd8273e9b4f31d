"""Tensors kept between calls: statistics, caches, buffers, gradients, modules.  See capture_programs.py."""

from __future__ import annotations

import collections
import copy

import numpy as np
from registered_programs import Box, program, with_change, x

import tracejit as T


@program()
def running_mean():
    s = Box(mean=T.zeros(2), n=0)

    def fn(a):
        s.n += 1
        s.mean = s.mean + (a - s.mean) / s.n
        return s.mean * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (s.mean, s.n)


@program()
def running_mean_in_place():
    s = Box(mean=T.zeros(2))

    def fn(a):
        s.mean.mul_(0.9).add_(a, alpha=0.1)
        return s.mean.clone()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: s.mean


@program()
def hidden_state_by_name():
    cache = {}

    def fn(a, key):
        h = cache.get(key)
        h = a if h is None else h * 0.5 + a
        cache[key] = h
        return h.sum()

    return (
        fn,
        [lambda f: f(x(1, 2), "p"), lambda f: f(x(1, 2), "q"), lambda f: f(x(3, 4), "p"), lambda f: cache.clear()],
        lambda: cache,
    )


@program()
def hidden_states_in_a_list():
    hs = [T.zeros(2), T.zeros(2)]

    def fn(a):
        for i, h in enumerate(hs):
            a = hs[i] = T.tanh(a + h)
        return a

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: hs


@program()
def buffers_swapped():
    s = Box(cur=T.zeros(2), nxt=T.ones(2))

    def fn(a):
        s.nxt.copy_(s.cur + a)
        s.cur, s.nxt = s.nxt, s.cur
        return s.cur * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (s.cur, s.nxt)


@program()
def losses_in_a_deque():
    d = collections.deque(maxlen=2)

    def fn(a):
        loss = (a * a).sum()
        d.append(loss)
        return loss

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), lambda f: f(x(5, 6))], lambda: list(d)


@program()
def mean_of_a_window():
    d = collections.deque([T.zeros(2), T.ones(2)], maxlen=2)

    def fn(a):
        d.append(a * 2)
        return sum(d) / len(d)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: list(d)


@program()
def metrics_in_a_dictionary():
    metrics = {"loss": None, "n": 0}

    def fn(a):
        loss = a.sum()
        metrics.update(loss=loss.detach(), n=metrics["n"] + 1, last={"a": a})
        return loss

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: metrics


@program()
def descent_with_momentum():
    w = x(1, 2).requires_grad_()
    state = {"momentum": {}}

    def fn(a, lr):
        loss = ((w * a) ** 2).sum()
        (g,) = T.autograd.grad(loss, [w])
        m = state["momentum"].setdefault("w", T.zeros_like(w))
        m.mul_(0.9).add_(g)
        with T.no_grad():
            w.sub_(lr * m)
        return loss.detach()

    return fn, [lambda f: f(x(1, 2), 0.1), lambda f: f(x(1, 2), 0.01)], lambda: (w, state)


@program()
def gradients_of_several_calls():
    w = x(1, 2).requires_grad_()

    def fn(a, step):
        (w * a).sum().backward()
        if step % 2 == 1:
            with T.no_grad():
                w.add_(w.grad, alpha=-0.1)
            w.grad = None
        return w.detach() * 1

    return fn, [lambda f, i=i: f(x(1, 2), i) for i in range(4)], lambda: (w, w.grad)


@program(reason="overlapping_inputs")
def views_kept_and_written():
    base = T.zeros(4)
    s = Box(view=base[:2])

    def fn(a):
        s.view.add_(a)
        base[2:] = a * 2
        s.other = base[1:3]
        return base.sum()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (base, s.view, s.other)


@program()
def results_that_are_the_argument():
    def fn(a, flag):
        return (a, a.view(2), a[0], {"a": a}, [a.detach()]) if flag else (a * 1, a.t() if a.dim() > 1 else a)

    def go(flag):
        def call(f):
            t = x(1, 2)
            r = f(t, flag)
            t.add_(10)
            return r, r[0] is t

        return call

    return fn, [go(True), go(False), go(True)], None


@program()
def attributes_of_tensors_kept():
    t = x(1, 2)

    def fn(a):
        t.count = getattr(t, "count", 0) + 1
        t.last = a * t.count
        r = a * 2
        r.tag = "result"
        r.parts = [t.last]
        return r

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (t, t.last, t.count)


@program()
def branch_on_values_with_effects():
    s = Box(pos=0, neg=0)

    def fn(a):
        if a.sum() > 0:
            s.pos += 1
            return a
        s.neg += 1
        return -a

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(-1, -2)), lambda f: f(x(3, 4))], lambda: (s.pos, s.neg)


@program()
def loop_until_it_is_small():
    s = Box(iters=[])

    def fn(a):
        n = 0
        while a.abs().sum() > 0.5:
            a = a * 0.5
            n += 1
        s.iters = [*s.iters[-2:], n]
        return a, n

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(4, 4)), lambda f: f(x(1, 2))], lambda: s.iters


@program()
def other_branch_after_effects():
    s = Box(log=[])

    def fn(a):
        s.log.append("begin")
        y = a * 2
        s.last = y
        if y.sum() > 10:
            s.log.append("big")
            y.add_(100)
        s.log.append("end")
        return y

    return (
        fn,
        [lambda f: f(x(1, 2)), lambda f: f(x(10, 20)), lambda f: f(x(1, 1)), lambda f: f(x(30, 1))],
        lambda: (s.log, s.last),
    )


@program()
def value_tested_after_a_write():
    buf = T.zeros(2)

    def fn(a):
        buf.add_(a)
        if buf.sum() > 5:
            buf.zero_()
        return buf.clone()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(1, 1))], lambda: buf


@program()
def module_with_counters():
    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            T.manual_seed(0)
            self.lin = T.nn.Linear(2, 2)
            self.register_buffer("seen", T.zeros(1))
            self.calls = 0
            self.cache = {}

        def forward(self, a, key=None):
            self.calls += 1
            self.seen += a.shape[0]
            out = self.lin(a)
            if key is not None:
                self.cache[key] = out.detach()
            if self.training:
                out = out * 2
            return out

    net = Net()

    def fn(a, key=None):
        return net(a, key)

    return (
        fn,
        [
            lambda f: f(T.ones(3, 2)),
            lambda f: f(T.ones(3, 2), "k"),
            lambda f: net.eval() and None,
            lambda f: f(T.ones(3, 2)),
            lambda f: net.train() and None,
        ],
        lambda: (net.calls, net.seen, net.cache),
    )


@program()
def modules_in_containers():
    T.manual_seed(0)
    net = T.nn.ModuleDict({"p": T.nn.Linear(2, 2), "q": T.nn.Sequential(T.nn.Linear(2, 2), T.nn.Tanh())})
    layers = T.nn.ModuleList([T.nn.Linear(2, 2) for _ in range(2)])

    def fn(a, name):
        for layer in layers:
            a = layer(a)
        return net[name](a), len(layers), list(net.keys()), name in net

    def swap(f):
        layers[0], layers[1] = layers[1], layers[0]

    return fn, [lambda f: f(x(1, 2), "p"), lambda f: f(x(1, 2), "q"), swap, lambda f: f(x(1, 2), "p")], None


@program()
def parameters_iterated():
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(2, 2), T.nn.Linear(2, 1))

    def fn(a):
        l2 = sum((p**2).sum() for p in net.parameters())
        names = [n for n, p in net.named_parameters() if p.requires_grad]
        with T.no_grad():
            for p in net.parameters():
                p.mul_(0.9)
        return net(a) + l2, names, sum(p.numel() for p in net.parameters())

    def freeze(f):
        net[0].weight.requires_grad_(not net[0].weight.requires_grad)

    return fn, [lambda f: f(x(1, 2)), freeze, lambda f: f(x(1, 2))], lambda: list(net.state_dict().values())


@program()
def parameter_replaced_between_calls():
    T.manual_seed(0)
    net = T.nn.Linear(2, 2)

    def fn(a):
        return net(a)

    def replace(f):
        net.weight = T.nn.Parameter(T.ones(2, 2))
        return f(x(1, 2))

    def data(f):
        net.weight.data = T.zeros(2, 2)
        return f(x(1, 2))

    def bias(f):
        net.bias = None
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), replace, data, bias], None


@program()
def weights_tied_and_untied():
    T.manual_seed(0)
    p, q = T.nn.Linear(2, 2), T.nn.Linear(2, 2)
    q.weight = p.weight

    def fn(a):
        return q(p(a))

    def untie(f):
        q.weight = T.nn.Parameter(T.ones(2, 2))
        return f(x(1, 2))

    def tie(f):
        q.weight = p.weight
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), untie, tie], None


@program()
def tensors_told_apart():
    p, q = x(1, 2), x(3, 4)
    ts = [p, q]

    def fn(a):
        return (
            a * (2.0 if any(t is p for t in ts) else 3.0),
            [t is a for t in ts],
            ts[0] is p,
            next((i for i, t in enumerate(ts) if t is q), -1),
        )

    return fn, [lambda f: f(x(1, 2)), lambda f: f(p), lambda f: ts.reverse(), lambda f: f(q)], None


@program()
def tensors_in_the_order_of_their_values():
    def fn(a, b, c):
        ts = sorted([a, b, c], key=lambda t: t.sum().item())
        m = max([a, b, c], key=lambda t: float(t[0]))
        return ts[0] * 2, m, sorted([3.0, a[0]])[0], min(a[0], b[0])

    return fn, [lambda f: f(x(1, 2), x(0, 0), x(5, 5)), lambda f: f(x(7, 2), x(9, 0), x(5, 5))], None


@program()
def tensors_in_sets_and_dictionaries():
    w, v = x(1, 2), x(3, 4)
    lr = {w: 0.1, v: 0.2}
    frozen = {v}

    def fn(a):
        out = a
        for p, s in lr.items():
            if p in frozen:
                continue
            out = out - p * s
        return out, len({w, w, v}), w in lr

    return fn, [lambda f: f(x(1, 2)), lambda f: lr.update({w: 0.5}), lambda f: f(x(1, 2))], None


@program()
def state_of_a_module_kept():
    T.manual_seed(0)
    net = T.nn.Linear(2, 2)
    saved = {}

    def fn(a):
        saved.update({k: v.clone() for k, v in net.state_dict().items()})
        return net(a)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: saved


@program()
def optimizer_with_a_schedule():
    T.manual_seed(0)
    net = T.nn.Linear(2, 1)
    opt = T.optim.Adam(net.parameters(), lr=0.1)
    history = []

    def fn(a, scale):
        opt.zero_grad()
        loss = (net(a) ** 2).mean() * scale
        loss.backward()
        opt.step()
        for g in opt.param_groups:
            g["lr"] *= 0.99
        history.append(loss.detach())
        return loss.detach()

    return (
        fn,
        [lambda f: f(x(1, 2), 1.0), lambda f: f(x(1, 2), 2.0)],
        lambda: (list(net.parameters()), [g["lr"] for g in opt.param_groups], len(history)),
    )


@program()
def tensor_of_a_closure_rebound():
    w = x(1, 2)

    def fn(a):
        nonlocal w
        w = w * 0.5 + a
        return w.sum()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: w


@program()
def structures_mapped():
    def tree_map(g, t):
        if isinstance(t, dict):
            return {k: tree_map(g, v) for k, v in t.items()}
        if isinstance(t, (list, tuple)):
            return type(t)(tree_map(g, v) for v in t)
        return g(t)

    def fn(t):
        return tree_map(lambda v: v * 2, t)

    mk = lambda k: {"p": [x(k), (x(1), {"q": x(2)})], "r": x(3)}
    return fn, [lambda f: f(mk(1)), lambda f: f(mk(2)), lambda f: f([x(1), [x(2)]]), lambda f: f((x(1),))], None


@program()
def cache_by_shape():
    cache = {}

    def fn(a):
        key = (tuple(a.shape), a.dtype)
        if key not in cache:
            cache[key] = T.ones(*a.shape, dtype=a.dtype) * len(cache)
        return a + cache[key]

    return (
        fn,
        [lambda f: f(x(1, 2)), lambda f: f(x(1, 2, 3)), lambda f: f(x(1, 2).double()), lambda f: f(x(3, 4))],
        lambda: list(cache.values()),
    )


@program()
def table_that_grows():
    s = Box(table=T.zeros(0, 2))

    def fn(a):
        n = a.shape[0]
        if s.table.shape[0] < n:
            s.table = T.arange(2.0 * n).reshape(n, 2)
        return a + s.table[:n]

    return fn, [lambda f: f(T.ones(1, 2)), lambda f: f(T.ones(3, 2)), lambda f: f(T.ones(2, 2))], lambda: s.table


@program()
def error_after_effects():
    buf = T.zeros(2)
    s = Box(n=0)

    def fn(a):
        buf.add_(a)
        s.n += 1
        if s.n % 3 == 0:
            raise ValueError(s.n)
        return buf.clone()

    return fn, [lambda f: f(x(1, 2))] * 4, lambda: (buf, s.n)


@program()
def error_of_a_shape_caught():
    def fn(a, b):
        try:
            return a @ b
        except RuntimeError:
            return a * b if a.shape == b.shape else a.sum()

    return (
        fn,
        [
            lambda f: f(T.ones(2, 2), T.ones(2, 2)),
            lambda f: f(T.ones(2, 3), T.ones(2, 3)),
            lambda f: f(T.ones(2, 3), T.ones(5)),
            lambda f: f(T.ones(2, 2), T.ones(2, 2)),
        ],
        None,
    )


@program(reason="tensor_contents")
def errors_of_contents_caught():
    def fn(a, i):
        try:
            return a[i] * 2
        except IndexError:
            return a * 0

    return (
        fn,
        [lambda f: f(x(1, 2, 3), T.tensor([7])), lambda f: f(x(1, 2, 3), T.tensor([1])), lambda f: f(x(1, 2, 3), T.tensor([9]))],
        None,
    )


@program()
def gradient_wanted_or_not():
    w = x(1, 2)

    def fn(a):
        y = a * w
        return y, y.requires_grad

    return (
        fn,
        [
            lambda f: f(x(1, 2)),
            lambda f: w.requires_grad_(True) and None,
            lambda f: f(x(1, 2)),
            lambda f: w.requires_grad_(False) and None,
        ],
        None,
    )


@program()
def detached_and_cloned():
    def fn(a):
        b = a.detach()
        c = a.clone()
        d = b.requires_grad_() if not b.requires_grad else b
        return (a * 2).sum(), b * 1, c, d is b

    def go(f):
        t = x(1, 2).requires_grad_()
        r = f(t)
        r[0].backward()
        return r, t.grad

    return fn, [go, go], None


@program()
def arrays_of_numpy_as_arguments():
    def fn(a):
        return a * 2

    def go(f):
        arr = np.array([1.0, 2.0], np.float32)
        t = T.from_numpy(arr)
        r = f(t)
        arr[0] = 50
        return r, f(t), r.numpy().tolist()

    return fn, [go, go], None


@program()
def hooks_added_and_removed():
    T.manual_seed(0)
    m = T.nn.Linear(2, 2)
    m.register_buffer("scale", x(2.0, 3.0))

    def fn(a):
        return m(a) * m.scale

    h = []

    def add():
        h.append(m.register_forward_hook(lambda mod, i, o: o * 10))

    def remove():
        h.pop().remove()

    def pre():
        h.append(m.register_forward_pre_hook(lambda mod, i: (i[0] * 2,)))

    return fn, with_change(add, remove, lambda: m.scale.mul_(2), lambda: setattr(m, "scale", x(1.0, 1.0)), pre, remove), None


@program()
def call_of_modules_replaced():
    T.manual_seed(0)
    m = T.nn.Sequential(T.nn.Linear(2, 2), T.nn.ReLU())
    call = T.nn.Module.__call__

    def fn(a):
        return m(a)

    return (
        fn,
        with_change(
            lambda: setattr(T.nn.Module, "__call__", lambda s, v: v * 5),
            lambda: setattr(T.nn.Module, "__call__", call),
            lambda: m.eval() and None,
            lambda: setattr(m[0], "bias", None),
        ),
        None,
    )


def leaf(*values):
    return x(*values).requires_grad_()


@program()
def data_written_through():
    w = leaf(1, 2)

    def fn(a):
        w.data -= 0.1 * a
        w.data.mul_(2)
        w.data[0] = 3
        return w.data.sum().item()

    return fn, [lambda f: (f(x(1, 2)), w._version), lambda f: (f(x(3, 4)), w._version)], lambda: (w, w._version)


@program()
def data_written_between_forward_and_backward_outside():
    w = leaf(1, 2)

    def fn(a):
        w.data -= 0.1 * a

    def call(f):
        loss = (w * w).sum()
        f(x(1, 2))
        w.grad = None
        loss.backward()
        return w.grad

    return fn, [call, call], lambda: w


@program()
def data_written_before_a_backward_pass_inside():
    w = leaf(1, 2)

    def fn(a):
        loss = (w * w * a).sum()
        w.data.mul_(3)
        w.grad = None
        loss.backward()
        return w.grad

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: w


@program()
def data_and_contents_written():
    w = leaf(1, 2)

    def fn(a):
        with T.no_grad():
            w.add_(a)
        w.data.mul_(0.5)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: w


@program(reason="tensor_state")
def data_written_before_a_backward_pass_that_follows():
    w = leaf(1, 2)

    def fn(a):
        loss = (w * w * a).sum()
        w.data.mul_(3)
        return loss

    def call(f):
        w.grad = None
        f(x(1, 2)).backward()
        return w.grad

    return fn, [call, call], lambda: w


@program()
def data_assigned_and_used_again():
    w = leaf(1, 2)

    def fn(a):
        w.data = w.data - 0.1 * a
        w.grad = None
        (w * w).sum().backward()
        w.data = w.data + w.grad
        return (w * 2).sum().item()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (w, w.grad)


@program()
def data_assigned_leaves_the_old_memory_to_others():
    w = leaf(1, 2)
    old = w.detach()

    def fn(a):
        w.data = w.data * a

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (w, old)


@program()
def data_of_another_tensor_assigned():
    w, other = leaf(1, 2), x(5, 6)

    def fn(a):
        other.add_(a)
        w.data = other
        return (w * 2).sum().item()

    return fn, [lambda f: f(x(1, 2)), lambda f: (w.data.add_(1), f(x(3, 4)))], lambda: (w, other)


@program(reason="tensor_state")
def data_of_another_layout_assigned():
    w = T.arange(4.0).reshape(2, 2).requires_grad_()

    def fn(a):
        w.data = (w.data * a).t()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: w


@program(reason="tensor_state")
def data_assigned_before_a_backward_pass_that_follows():
    w = leaf(1, 2)

    def fn(a):
        w.data = w.data * a
        return (w * w).sum()

    def call(f):
        w.grad = None
        f(x(1, 2)).backward()
        return w.grad

    return fn, [call, call], lambda: w


@program()
def data_of_a_tensor_of_the_call_assigned():
    def fn(a):
        delta = T.zeros_like(a, requires_grad=True)
        for _ in range(2):
            ((a + delta) ** 2).sum().backward()
            delta.data = (delta - 0.1 * delta.grad).clamp(-1, 1)
            delta.data += 0.5
            delta.grad.zero_()
        return delta.detach()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def argument_asked_for_its_gradient():
    def fn(a):
        a.requires_grad_()
        (g,) = T.autograd.grad((a**3).sum(), a, create_graph=True)
        g.sum().backward()
        return g.detach(), a.grad

    known = x(1, 2)
    return fn, [lambda f: f(x(1, 2)), lambda f: f(known)], lambda: (known, known.grad)


@program()
def parameter_frozen_for_a_while():
    w, v = leaf(1, 2), leaf(3, 4)

    def fn(a):
        before = (w * a).sum()
        w.requires_grad_(False)
        during = (w * v * a).sum()
        w.requires_grad = True
        return before + during + (w * w).sum()

    def call(f):
        w.grad = v.grad = None
        f(x(1, 2)).backward()
        return w.grad, v.grad

    return fn, [call, call], lambda: (w, v)


@program()
def frozen_and_changed_in_the_meantime():
    w = leaf(1, 2)

    def fn(a):
        w.requires_grad_(False)
        w.mul_(a)
        w.requires_grad_(True)
        w.grad = None
        (w * w).sum().backward()
        return (w * 2).sum().item()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(0.5, 2))], lambda: (w, w.grad)


@program()
def gradients_wanted_for_a_while():
    w = x(1, 2)

    def fn(a):
        w.requires_grad_()
        (g,) = T.autograd.grad((w * w * a).sum(), w)
        w.requires_grad_(False)
        return w * a, g

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(0.5, 2))], lambda: w


@program()
def parameters_stay_frozen():
    w, v = leaf(1, 2), leaf(3, 4)

    def fn(a):
        w.requires_grad_(False)
        return (w * v * a).sum()

    def call(f):
        v.grad = None
        f(x(1, 2)).backward()
        return w.grad, v.grad

    def thawed(f):
        w.requires_grad_()
        return call(f)

    return fn, [call, thawed, call], lambda: (w, v)


@program(reason="tensor_state")
def argument_asked_for_its_gradient_by_a_pass_that_follows():
    def fn(a):
        return (a.requires_grad_() ** 2).sum()

    def call(f):
        a = x(1, 2)
        f(a).backward()
        return a.grad

    return fn, [call, call], None


@program()
def tensors_copied_deeply():
    w, plain = T.tensor([[1.0, 2.0]], requires_grad=True), T.tensor([[3.0, 4.0], [5.0, 6.0]]).t()
    w.grad = T.tensor([[7.0, 8.0]])

    def fn(a):
        copies = copy.deepcopy([w, w.grad, plain, a, {"again": w}])
        first = copies[0]
        (first * a).sum().backward()
        facts = [first.is_leaf, first.requires_grad, copies[1] is first.grad, copies[4]["again"] is first, copies[3] is a]
        copies[2].mul_(2)
        return first.grad, copies[2], copy.deepcopy(a * 2), facts, w.grad

    def call(f):
        return f(x(1, 2))

    def without_gradient(f):
        w.grad = None
        plain.add_(1)
        try:
            return call(f)
        finally:
            w.grad = T.tensor([[7.0, 8.0]])

    return fn, [call, call, without_gradient, call], lambda: (w, plain)


@program()
def modules_copied_deeply():
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(2, 3), T.nn.Tanh(), T.nn.Linear(3, 1)).double()

    def fn(a):
        fast = copy.deepcopy(net)
        optimizer = T.optim.SGD(fast.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (fast(a) ** 2).sum().backward()
            optimizer.step()
        fast.eval()
        return fast(a).detach(), net.training, [p.detach().clone() for p in fast.parameters()]

    def change(f):
        with T.no_grad():
            net[0].weight.mul_(0.5)

    calls = [lambda f: f(T.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], dtype=T.float64)) for _ in range(3)]
    return fn, [*calls, change, *calls], lambda: list(net.state_dict().values())


@program()
def copy_of_what_is_no_leaf():
    w = T.tensor([1.0, 2.0], requires_grad=True)

    def fn(a):
        return copy.deepcopy(a)

    def on_the_tape(f):
        try:
            return f(w * 2)
        except RuntimeError as error:
            return str(error)

    return fn, [lambda f: f(x(2)), lambda f: f(x(2)), on_the_tape, lambda f: f(w)], None


def _normalised(change):
    """A step of an optimizer, and then a change of the parameters by `.data`."""

    def maker():
        T.manual_seed(0)
        layer = T.nn.Linear(2, 3)
        optimizer = T.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        former = layer.weight.detach()

        def fn(a):
            optimizer.zero_grad()
            loss = layer(a).pow(2).sum()
            loss.backward()
            optimizer.step()
            change(layer)
            return loss.detach()

        return (
            fn,
            with_change(),
            lambda: ([p.detach() for p in layer.parameters()], former, layer.weight.grad, former is layer.weight),
        )

    return maker


def _by_rows(layer):
    layer.weight.data = T.nn.functional.normalize(layer.weight.data, dim=1)


def _all(layer):
    for p in layer.parameters():
        p.data = p.data.clamp(-0.1, 0.1)


def _twice(layer):
    layer.weight.data = layer.weight.data * 2
    layer.weight.data = layer.weight.data - 1
    layer.weight.data.mul_(0.5)


def _written_afterwards(layer):
    old = layer.weight.data
    layer.weight.data = layer.weight.data * 2
    old.mul_(3)


@program()
def a_parameter_is_normalised_by_data_after_a_step():
    return _normalised(_by_rows)()


@program()
def parameters_are_clamped_by_data_after_a_step():
    return _normalised(_all)()


@program()
def a_parameter_gets_data_twice_after_a_step():
    return _normalised(_twice)()


@program(reason="tensor_state")
def the_former_memory_of_a_parameter_is_written_after_it_got_data():
    return _normalised(_written_afterwards)()
