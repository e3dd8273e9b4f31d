"""Modules, their hooks, parameters, buffers and optimizers, changed between calls and by them.  See capture_programs.py."""

from __future__ import annotations

import collections
import copy
import functools
import types

from registered_programs import Box, program, with_change, x

import tracejit as T

nn = T.nn


def linear():
    m = nn.Linear(2, 2)
    with T.no_grad():
        m.weight.copy_(T.tensor([[1.0, 2.0], [3.0, 4.0]]))
        m.bias.copy_(T.tensor([0.5, -0.5]))
    return m


@program()
def forward_hook_counts_and_replaces():
    m = linear()
    seen = []

    def hook(mod, inp, out):
        seen.append(tuple(out.shape))
        return out * 2

    def fn(a):
        return m(a)

    handles = []
    return (
        fn,
        with_change(lambda: handles.append(m.register_forward_hook(hook)), lambda: handles.pop().remove()),
        lambda: len(seen),
    )


@program()
def forward_pre_hook_changes_input():
    m = linear()
    box = Box(k=2.0)

    def fn(a):
        return m(a)

    handles = []
    return (
        fn,
        with_change(
            lambda: handles.append(m.register_forward_pre_hook(lambda mod, inp: (inp[0] * box.k,))),
            lambda: setattr(box, "k", 3.0),
            lambda: handles.pop().remove(),
        ),
        None,
    )


@program()
def forward_hook_with_kwargs():
    class M(nn.Module):
        def forward(self, a, s=1.0):
            return a * s

    m = M()
    handles = []

    def fn(a):
        return m(a, s=2.0)

    def hook(mod, args, kwargs, out):
        return out + kwargs["s"]

    return (
        fn,
        with_change(lambda: handles.append(m.register_forward_hook(hook, with_kwargs=True)), lambda: handles.pop().remove()),
        None,
    )


@program()
def forward_pre_hook_with_kwargs():
    class M(nn.Module):
        def forward(self, a, s=1.0):
            return a * s

    m = M()
    handles = []

    def fn(a):
        return m(a, s=2.0)

    def hook(mod, args, kwargs):
        return args, {"s": kwargs["s"] * 5}

    return (
        fn,
        with_change(lambda: handles.append(m.register_forward_pre_hook(hook, with_kwargs=True)), lambda: handles.pop().remove()),
        None,
    )


@program()
def hook_that_is_an_object_with_a_state():
    class H:
        def __init__(self):
            self.n = 0
            self.last = None

        def __call__(self, mod, inp, out):
            self.n += 1
            self.last = out.detach().sum()
            return out * self.n

    m, h = linear(), H()
    m.register_forward_hook(h)

    def fn(a):
        return m(a)

    return fn, with_change(lambda: setattr(h, "n", 0)), lambda: (h.n, float(h.last))


@program()
def hook_that_is_partial():
    m = linear()
    out_list = []

    def hook(name, mod, inp, out):
        out_list.append(name)

    for n in "ab":
        m.register_forward_hook(functools.partial(hook, n))

    def fn(a):
        return m(a)

    return fn, with_change(), lambda: out_list


@program()
def hook_keeps_activations_in_a_dictionary():
    net = nn.Sequential(linear(), nn.ReLU(), linear())
    acts = {}
    for name, m in net.named_modules():
        if name:
            m.register_forward_hook(lambda mod, i, o, name=name: acts.__setitem__(name, o.detach()))

    def fn(a):
        return net(a)

    return fn, with_change(lambda: acts.clear()), lambda: {k: v.tolist() for k, v in acts.items()}


@program()
def hook_removed_inside_itself():
    m = linear()
    n = []

    def hook(mod, i, o):
        n.append(1)
        h.remove()

    h = m.register_forward_hook(hook)

    def fn(a):
        return m(a)

    def again():
        nonlocal h
        h = m.register_forward_hook(hook)

    return fn, with_change(again), lambda: len(n)


@program()
def buffer_registered_and_changed():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", T.tensor(0.0))

        def forward(self, a):
            self.n += 1
            return a * self.n

    m = M()

    def fn(a):
        return m(a)

    return (
        fn,
        with_change(
            lambda: m.n.fill_(10.0), lambda: setattr(m, "n", T.tensor(3.0)), lambda: m.register_buffer("n", T.tensor(7.0))
        ),
        lambda: m.state_dict(),
    )


@program()
def buffer_that_is_none():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", None)

        def forward(self, a):
            return a if self.mask is None else a * self.mask

    m = M()

    def fn(a):
        return m(a)

    return fn, with_change(lambda: setattr(m, "mask", x(0, 1)), lambda: setattr(m, "mask", None)), None


@program()
def train_and_eval_switched():
    class M(nn.Module):
        def forward(self, a):
            return a * (2.0 if self.training else 3.0)

    m = nn.Sequential(M(), M())

    def fn(a):
        return m(a)

    return fn, with_change(m.eval, m.train, lambda: m[0].eval()), None


@program()
def eval_called_inside():
    class M(nn.Module):
        def forward(self, a):
            return a * (2.0 if self.training else 3.0)

    m = M()

    def fn(a):
        m.eval()
        r = m(a)
        m.train()
        return r + m(a)

    return fn, with_change(), lambda: m.training


@program()
def batch_norm_running_statistics():
    m = nn.BatchNorm1d(2)

    def fn(a):
        return m(a)

    calls = [
        lambda f: f(T.tensor([[1.0, 2.0], [3.0, 5.0]])),
        lambda f: (m.eval(), f(T.tensor([[1.0, 2.0], [3.0, 5.0]])))[1],
        lambda f: (m.train(), f(T.tensor([[0.0, 2.0], [3.0, 5.0]])))[1],
    ]
    return fn, calls, lambda: {k: v.tolist() for k, v in m.state_dict().items()}


@program()
def modules_added_between_calls():
    net = nn.Sequential(linear())

    def fn(a):
        return net(a)

    return fn, with_change(lambda: net.append(nn.ReLU()), lambda: net.append(linear()), lambda: net.__delitem__(1)), None


@program()
def module_list_and_dict():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList([linear()])
            self.d = nn.ModuleDict({"p": linear()})

        def forward(self, a):
            for i, found in enumerate(self.l):
                a = found(a) * (i + 1)
            for k, v in self.d.items():
                a = v(a) + len(k)
            return a, len(self.l), "q" in self.d

    m = M()

    def fn(a):
        return m(a)

    return fn, with_change(lambda: m.l.append(nn.Tanh()), lambda: m.d.__setitem__("qq", nn.ReLU()), lambda: m.d.pop("p")), None


@program()
def parameter_replaced_by_assignment():
    m = linear()

    def fn(a):
        return m(a)

    return (
        fn,
        with_change(
            lambda: setattr(m, "weight", nn.Parameter(T.ones(2, 2))),
            lambda: setattr(m, "bias", None),
            lambda: setattr(m, "bias", nn.Parameter(T.ones(2))),
        ),
        None,
    )


@program()
def parameter_data_replaced():
    m = linear()

    def fn(a):
        return m(a)

    return fn, with_change(lambda: setattr(m.weight, "data", T.zeros(2, 2)), lambda: m.weight.data.fill_(2.0)), None


@program()
def state_loaded_between_calls():
    m = linear()
    s = {k: v * 2 for k, v in m.state_dict().items()}

    def fn(a):
        return m(a)

    return fn, with_change(lambda: m.load_state_dict(s)), None


@program()
def requires_grad_switched_on_parameters():
    m = linear()

    def fn(a):
        return m(a)

    return (
        fn,
        with_change(lambda: m.requires_grad_(False), lambda: m.weight.requires_grad_(True), lambda: m.requires_grad_(True)),
        None,
    )


@program()
def forward_replaced_on_the_instance():
    m = linear()

    def fn(a):
        return m(a)

    old = m.forward
    return (
        fn,
        with_change(
            lambda: setattr(m, "forward", lambda a: a * 7),
            lambda: setattr(m, "forward", types.MethodType(lambda s, a: old(a) * 2, m)),
            lambda: delattr(m, "forward"),
        ),
        None,
    )


@program()
def parameters_shared_and_changed_inside():
    p, q = linear(), linear()
    q.weight = p.weight

    def fn(a):
        with T.no_grad():
            p.weight.mul_(0.5)
        return q(a)

    return fn, with_change(), lambda: p.weight.tolist()


@program()
def named_parameters_counted():
    m = nn.Sequential(linear(), linear())

    def fn(a):
        return a * sum(p.numel() for p in m.parameters()), [n for n, _ in m.named_parameters()]

    return fn, with_change(lambda: m.append(linear())), None


@program()
def apply_and_children():
    m = nn.Sequential(linear(), nn.ReLU())
    box = Box(n=0)

    def count(mod):
        box.n += 1

    def fn(a):
        m.apply(count)
        return a * box.n, len(list(m.children())), [type(c).__name__ for c in m.modules()]

    return fn, with_change(lambda: m.append(nn.Tanh())), lambda: box.n


@program()
def gradient_hooks_on_parameters():
    m = linear()
    seen = []
    m.weight.register_hook(lambda g: seen.append(g.sum().item()) or g * 2)

    def fn(a):
        return m(a).sum()

    def go(f):
        m.zero_grad()
        f(x(1, 2)).backward()
        return m.weight.grad.clone()

    return fn, [go, go], lambda: seen


@program()
def module_with_attribute_list_of_tensors():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.hist = []

        def forward(self, a):
            self.hist.append(a * 2)
            if len(self.hist) > 2:
                self.hist.pop(0)
            return a

    m = M()

    def fn(a):
        return m(a)

    return fn, with_change(), lambda: [t.tolist() for t in m.hist]


@program()
def module_extra_attributes_and_properties():
    class M(nn.Module):
        scale = 2.0

        def __init__(self):
            super().__init__()
            self.cfg = {"k": 1.0}
            self.name = "m"

        @property
        def k(self):
            return self.cfg["k"] * self.scale

        def forward(self, a):
            return a * self.k

    m = M()

    def fn(a):
        return m(a)

    return (
        fn,
        with_change(lambda: m.cfg.__setitem__("k", 2.0), lambda: setattr(M, "scale", 3.0), lambda: setattr(m, "scale", 5.0)),
        None,
    )


@program()
def module_deleted_attribute():
    m = nn.Sequential(collections.OrderedDict(p=linear(), q=nn.ReLU()))

    def fn(a):
        return m(a), hasattr(m, "q")

    def put():
        m.q = nn.ReLU()

    return fn, with_change(lambda: delattr(m, "q"), put), None


@program()
def module_copied_inside():
    m = linear()

    def fn(a):
        c = copy.copy(m)
        return c(a)

    return fn, with_change(lambda: m.weight.data.fill_(1.0)), None


@program()
def embedding_and_dropout_off():
    e = nn.Embedding(4, 2)
    d = nn.Dropout(0.5)
    d.eval()
    with T.no_grad():
        e.weight.copy_(T.arange(8.0).reshape(4, 2))

    def fn(i):
        return d(e(i))

    return (
        fn,
        [
            lambda f: f(T.tensor([1, 2])),
            lambda f: f(T.tensor([3, 0])),
            lambda f: (e.weight.data.fill_(1.0), f(T.tensor([3, 0])))[1],
        ],
        None,
    )


@program()
def optimizer_step_inside_with_changing_rate():
    m = linear()
    o = T.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def fn(a):
        o.zero_grad()
        loss = (m(a) ** 2).sum()
        loss.backward()
        o.step()
        return loss.detach()

    def lr(v):
        o.param_groups[0]["lr"] = v

    return (
        fn,
        with_change(lambda: lr(0.01), lambda: m.weight.requires_grad_(False), lambda: m.weight.requires_grad_(True)),
        lambda: (m.weight.tolist(), m.bias.tolist()),
    )


@program()
def param_group_added():
    m, n = linear(), linear()
    o = T.optim.Adam(m.parameters(), lr=0.1)

    def fn(a):
        o.zero_grad()
        loss = (n(m(a)) ** 2).sum()
        loss.backward()
        o.step()
        return loss.detach()

    done = []

    def add():
        if not done:
            done.append(o.add_param_group({"params": list(n.parameters()), "lr": 0.01}))

    return fn, with_change(add), lambda: (m.weight.tolist(), n.weight.tolist())


@program()
def scheduler_step_inside():
    m = linear()
    o = T.optim.SGD(m.parameters(), lr=0.1)
    s = T.optim.lr_scheduler.StepLR(o, 2, 0.5)

    def fn(a):
        o.zero_grad()
        loss = (m(a) ** 2).sum()
        loss.backward()
        o.step()
        s.step()
        return loss.detach(), o.param_groups[0]["lr"]

    def go(f):
        o.param_groups[0]["lr"] = 0.1
        s.last_epoch = 0
        return f(x(1, 2)), f(x(1, 2))

    return fn, [go, go], lambda: m.weight.tolist()


@program()
def grad_clipped_inside():
    m = linear()

    def fn(a):
        m.zero_grad()
        (m(a) ** 2).sum().backward()
        total = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        return total, m.weight.grad

    return fn, with_change(), None


@program()
def grad_set_to_none_and_zero():
    m = linear()

    def fn(a):
        (m(a)).sum().backward()
        return m.weight.grad * 1

    return (
        fn,
        with_change(
            lambda: m.zero_grad(), lambda: m.zero_grad(set_to_none=False), lambda: setattr(m.weight, "grad", T.ones(2, 2))
        ),
        lambda: m.weight.grad.tolist(),
    )


@program()
def global_module_hook_like_attribute():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = linear()
            self.__dict__["cb"] = []

        def forward(self, a):
            r = self.child(a)
            for c in self.cb:
                r = c(r)
            return r

    m = M()

    def fn(a):
        return m(a)

    return fn, with_change(lambda: m.cb.append(lambda r: r * 2), lambda: m.cb.append(T.relu), lambda: m.cb.clear()), None


@program()
def module_call_overridden():
    class M(nn.Module):
        n = 0

        def __call__(self, a):
            self.n = self.n + 1
            return super().__call__(a) * self.n

        def forward(self, a):
            return a * 2

    m = M()

    def fn(a):
        return m(a)

    return fn, with_change(lambda: setattr(m, "n", 0)), lambda: m.n


@program()
def parametrised_by_property_and_buffer_names():
    m = nn.Module()
    m.register_buffer("b", x(1, 2))
    m.register_parameter("p", nn.Parameter(x(3, 4)))

    def fn(a):
        return a * m.b + m.p, [n for n, _ in m.named_buffers()]

    return fn, with_change(lambda: m.register_buffer("c", x(1, 1)), lambda: setattr(m, "b", x(5, 5))), None


@program()
def module_as_argument_and_in_containers():
    p, q = linear(), linear()
    q.weight.data.fill_(1.0)

    def fn(a, ms):
        return sum(m(a) for m in ms)

    return (
        fn,
        [lambda f: f(x(1, 2), [p]), lambda f: f(x(1, 2), [p, q]), lambda f: f(x(1, 2), (q, q)), lambda f: f(x(1, 2), {q: 1})],
        None,
    )


def over_ones(f):
    """Calls with tensors of ones, in a stream of their own; what comes out is used as leaves, modules and optimizers are."""
    T.manual_seed(5)
    found = []
    for scale in (1, 2, -3, 0.5):
        results = f(T.ones(3) * scale)
        for result in results:
            if isinstance(result, nn.Module):
                result(T.ones(2, 3)).sum().backward()
                found.append([(type(p), name, p.grad, p.is_leaf) for name, p in result.named_parameters()])
            elif isinstance(result, T.Tensor) and result.requires_grad:
                result.sum().backward()
                found.append((type(result), result.is_leaf, result.grad if result.is_leaf else None))
        found.append([result for result in results if not isinstance(result, nn.Module)])
    return found, T.rand(1)


@program()
def modules_that_the_call_makes():
    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.scale, self.layer = nn.Parameter(T.full((width,), 0.5)), nn.Linear(width, width)
            self.register_buffer("shift", T.ones(width))

        def forward(self, x):
            return self.layer(x) * self.scale + self.shift

    def fn(a):
        net = nn.Sequential(Net(3), nn.Dropout(0.5), nn.Linear(3, 2))
        return net(a), list(net.state_dict()), nn.LSTM(3, 2)(a.reshape(1, 1, 3))[0], nn.Embedding(5, 3)(T.tensor([1, 2])) * a

    return fn, [over_ones] * 2, None


@program()
def modules_that_the_call_makes_and_returns():
    def fn(a):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1).requires_grad_(False))
        layer = nn.Linear(3, 2)
        return net, layer, layer(a).sum()

    return fn, [over_ones] * 2, None


@program()
def a_module_that_the_call_makes_is_trained_there():
    def fn(a):
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        optimizer, a = T.optim.Adam(net.parameters(), lr=0.25), a.double()
        for _ in range(3):
            optimizer.zero_grad()
            net(a).pow(2).sum().backward()
            optimizer.step()
        return net.float(), net(a.float()).detach()

    return fn, [over_ones] * 2, None


@program()
def parameters_that_the_call_makes():
    class Tagged(nn.Parameter):
        def __init__(self, data, tag):
            super().__init__(data)
            self.tag = tag

    def fn(a):
        p, q = nn.Parameter(a * 2), nn.Parameter(a + 1, requires_grad=False)
        (p * p).sum().backward()
        tagged = Tagged(a * 3, "t")
        return p.grad, q, tagged, tagged.tag, type(tagged).__name__, nn.Parameter(), nn.Linear(3, 2).half().weight

    return fn, [over_ones] * 2, None


@program()
def a_parameter_has_the_memory_of_what_it_is_made_of():
    def fn(a):
        y = a * 2
        p, q = nn.Parameter(y), nn.Parameter(a)
        with T.no_grad():
            p.mul_(3)
            q.add_(1)
        return (y, y + 1, a + 0)

    return fn, [over_ones] * 2, None


@program()
def a_parameter_that_is_stored_in_a_module_from_outside():
    T.manual_seed(0)
    net = nn.Linear(3, 2)

    def fn(a):
        net.extra = nn.Parameter(a * 1.5)
        return net(a).sum(), (net.extra * a).sum()

    return fn, [over_ones] * 2, lambda: [(name, p, p.grad) for name, p in net.named_parameters()]


@program()
def a_copy_of_a_module_is_trained():
    T.manual_seed(0)
    net = nn.Linear(3, 2)

    def fn(a):
        mine = copy.deepcopy(net)
        optimizer = T.optim.SGD(mine.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            mine(a).pow(2).sum().backward()
            optimizer.step()
        return mine, mine(a).detach(), net(a)

    return fn, [over_ones] * 2, lambda: [(p, p.grad) for p in net.parameters()]


@program(reason="differentiable_write")
def a_parameter_and_what_it_is_made_of_are_returned():
    def fn(a):
        y = a * 2
        return nn.Parameter(y), y

    return fn, [over_ones] * 2, None


def over_batches(f):
    return [f(T.ones(2, 3) * scale) for scale in (1, 2, -3, 0.5)]


def net_of_three():
    T.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@program()
def hooks_that_the_call_registers_and_removes():
    net = net_of_three()
    net[0].register_forward_hook(lambda module, args, out: out + 1)

    def fn(a):
        seen, gradients = [], []
        first = net[0].register_forward_hook(lambda module, args, out: seen.append(out), prepend=True)
        pre = [module.register_forward_pre_hook(lambda module, args: (args[0] + 1,)) for module in net]
        handle = net[2].register_full_backward_hook(lambda module, inputs, outputs: gradients.append(outputs[0]))
        net(a).sum().backward()
        for h in (first, handle, *pre, first):
            h.remove()
        with net[1].register_forward_hook(lambda module, args, out: out * 2):
            y = net(a)
        taken = net[0].weight.grad.clone()
        net.zero_grad()
        return y.detach(), net(a).detach(), seen[0].detach(), gradients[0], taken

    return fn, [over_batches] * 2, lambda: [len(module._hooks or ()) for module in net.modules()]


@program()
def a_hook_of_the_program_that_the_call_registers_for_good():
    def twice(module, args, out):
        return out * 2

    def fn(a, net):
        handle = net[0].register_forward_hook(twice)
        return net(a), handle

    def call(f):
        y, handle = f(T.ones(2, 3), net := net_of_three())
        again = net(T.ones(2, 3))
        handle.remove()
        return y, again, net(T.ones(2, 3)), net[0]._hooks

    return fn, [call] * 4, None


@program()
def hooks_of_an_optimizer_that_the_call_registers_and_removes():
    net = net_of_three()
    optimizer = T.optim.SGD(net.parameters(), lr=0.01)

    def fn(a):
        seen = []
        handle = optimizer.register_step_post_hook(lambda *args: seen.append(len(args)))
        optimizer.zero_grad()
        net(a).sum().backward()
        optimizer.step()
        handle.remove()
        return seen

    return fn, [over_batches] * 2, lambda: [p.sum() for p in net.parameters()]


@program(reason="unbuildable")
def a_hook_that_the_call_makes_and_leaves_there():
    net = net_of_three()

    def fn(a):
        net[0].register_forward_hook(lambda module, args, out: out * 1.5)
        return net(a)

    return fn, [over_batches], None
