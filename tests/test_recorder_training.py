"""Models, optimizers and gradients through recordings: replays of whole training loops equal the eager loops, step by step."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from capture_replay import Replayed
from corpus_facts import facts

import tracejit as T
from tracejit import nn, optim

LOOPS = {}


def loop(traces):
    """Register a generator of observations, and how many recordings it must take."""

    def register(maker):
        LOOPS[maker.__name__] = (maker, traces)
        return maker

    return register


def data(*shape, seed=0):
    return T.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def network(seed=0):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with T.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(data(*parameter.shape, seed=seed + i) * 0.5)
    return model


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@loop(traces=1)
def module_with_backward_outside(compiler):
    model = network()
    forward = compiler(model)
    for i in range(4):
        model.zero_grad()
        y = forward(data(5, 4, seed=i))
        (y * y).sum().backward()
        yield y.detach(), gradients(model)


@loop(traces=2)
def layer_replaced_between_calls(compiler):
    model = network()
    forward = compiler(lambda x: model(x))
    yield forward(data(2, 4))
    model[0] = nn.Linear(4, 6, bias=False)
    with T.no_grad():
        model[0].weight.fill_(0.1)
    for _ in range(2):
        yield forward(data(2, 4))


@loop(traces=2)
def parameter_frozen_and_thawed(compiler):
    model = network()
    loss_of = compiler(lambda x: model(x).sum())
    for wanted in (True, False, True, False):
        model[0].weight.requires_grad_(wanted)
        model.zero_grad()
        loss = loss_of(data(2, 4))
        loss.backward()
        yield loss.detach(), gradients(model)


def training_loop(compiler, make_optimizer):
    model = network()
    optimizer = make_optimizer(model.parameters())
    criterion = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = compiler(step)
    for i in range(5):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        yield compiled(data(5, 4, seed=i), T.tensor([0, 1, 2, 1, i % 3])).detach(), gradients(model)
    yield list(model.parameters()), optimizer.state_dict()["param_groups"]


@loop(traces=1)
def training_step_with_sgd(compiler):
    yield from training_loop(compiler, lambda p: optim.SGD(p, lr=0.1))


@loop(traces=1)
def training_step_with_adam(compiler):
    yield from training_loop(compiler, lambda p: optim.Adam(p, lr=0.1))


@loop(traces=1)
def gradients_clipped_inside(compiler):
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        norm = sum((p.grad**2).sum() for p in model.parameters()) ** 0.5
        scale = T.clamp(0.5 / (norm + 1e-6), max=1.0)
        for p in model.parameters():
            p.grad.mul_(scale)
        optimizer.step()
        return loss, norm

    compiled = compiler(step)
    for i in range(3):
        yield [v.detach() for v in compiled(data(5, 4, seed=i))]
    yield list(model.parameters())


@loop(traces=2)
def gradient_accumulation_by_a_counter(compiler):
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    calls = 0

    def micro_step(x):
        nonlocal calls
        loss = (model(x) ** 2).mean() / 2
        loss.backward()
        calls += 1
        if calls % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    compiled = compiler(micro_step)
    for i in range(7):
        yield compiled(data(5, 4, seed=i)), calls, gradients(model)


@loop(traces=2)
def tied_weights(compiler):
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    with T.no_grad():
        for p in (*first.parameters(), *second.parameters()):
            p.copy_(data(*p.shape) * 0.2)
    loss_of = compiler(lambda x: second(first(x).tanh()).sum())
    for i in range(4):
        if i == 2:
            second.weight = first.weight
        first.zero_grad()
        second.zero_grad()
        loss = loss_of(data(2, 4))
        loss.backward()
        yield loss.detach(), gradients(first), gradients(second)


@loop(traces=1)
def gradient_through_an_inner_gradient_step(compiler):
    w = data(3).requires_grad_()

    def outer(x, rate):
        inner = ((w * x) ** 2).sum()
        (g,) = T.autograd.grad(inner, [w], create_graph=True)
        return (((w - rate * g) * x) ** 2).sum()

    compiled = compiler(outer)
    for i in range(3):
        w.grad = None
        loss = compiled(data(3, seed=i), 0.01 * (i + 1))
        loss.backward()
        yield loss.detach(), w.grad


@loop(traces=2)
def buffers_counters_and_modes(compiler):
    class Centre(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", T.zeros(4))
            self.count = 0

        def forward(self, x):
            if self.training:
                with T.no_grad():
                    self.mean.mul_(0.9).add_(x.detach().mean(0) * 0.1)
                self.count += 1
            return x - self.mean

    model = Centre()
    forward = compiler(model)
    for i in range(4):
        yield forward(data(5, 4, seed=i)), model.mean.clone(), model.count
    model.eval()
    yield forward(data(5, 4)), model.count


@loop(traces=2)
def views_and_leaves_as_arguments(compiler):
    loss_of = compiler(lambda y: (y * y).sum())
    for i in range(3):
        a = data(3, 2, seed=i).requires_grad_()
        loss = loss_of(a[1])
        loss.backward()
        yield loss.detach(), a.grad
    yield loss_of(data(2))


@loop(traces=1)
def threads_share_recordings(compiler):
    compiled = compiler(lambda x, s: (x * s).sin().sum())
    yield compiled(data(3), 1.0)
    results = [None] * 3

    def work(i):
        results[i] = [compiled(data(3, seed=i), float(k)).item() for k in range(10)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield results


@pytest.mark.parametrize("name", LOOPS)
def test_replayed_loops_equal_eager_loops(name):
    maker, traces = LOOPS[name]
    made = []

    def compiler(function):
        made.append(Replayed(function))
        return made[-1]

    eager = [facts(v) for v in maker(lambda function: function)]
    replayed = [facts(v) for v in maker(compiler)]
    assert replayed == eager
    stats = made[0].stats
    assert (stats.traces, made[0].reasons) == (traces, [])
    assert stats.compiled_calls == stats.calls - traces
