"""Pointers that stay in a frame from call to call: whatever happens to parameters between calls, compiled equals eager."""

from __future__ import annotations

import gc
import random
import struct
import threading

import numpy as np
import pytest

import tracejit
from tests.graph_programs import f32
from tracejit import nn
from tracejit.cpython import words
from tracejit.cpython.frame_check import NO_KEY
from tracejit.ir.builder import rebuild
from tracejit.ir.tracer import trace
from tracejit.replay.ir import Constant, Function, Item, Name, Return
from tracejit.replay.python import load
from tracejit.runtime.program import build

COUNT = 5


class Model(nn.Module):
    def __init__(self, seed: int = 0, count: int = COUNT) -> None:
        super().__init__()
        values = np.random.default_rng(seed).standard_normal((count, 3, 3)).astype(np.float32)
        self.count = count
        for i in range(count):
            setattr(self, f"p{i}", nn.Parameter(tracejit.tensor(values[i])))
        self.shift = tracejit.tensor(values[0] * 2)

    def forward(self, x):
        for i in range(self.count):
            x = (x * getattr(self, f"p{i}")).sin() + self.shift
        return x


def loss_of(model, x):
    return model(x).sum()


def train(model, x):
    """Writes to the parameters, which are resident."""
    loss = model(x).sum()
    parameters = [getattr(model, f"p{i}") for i in range(model.count)]
    gradients = tracejit.autograd.grad(loss, [p for p in parameters if p.requires_grad])
    with tracejit.no_grad():
        for p, g in zip([p for p in parameters if p.requires_grad], gradients, strict=True):
            p.sub_(g, alpha=0.01)
    return loss.detach()


def parameter(model, dice):
    return getattr(model, f"p{dice.randrange(model.count)}")


def other_values(dice):
    return np.random.default_rng(dice.randrange(1000)).standard_normal((3, 3))


def set_data(model, dice):
    parameter(model, dice).data = tracejit.tensor(other_values(dice).astype(np.float32))


def set_data_of_another_layout(model, dice):
    parameter(model, dice).data = tracejit.tensor(other_values(dice).astype(np.float32)).t()


def set_data_of_another_dtype(model, dice):
    parameter(model, dice).data = tracejit.tensor(other_values(dice))


def set_data_of_another_shape(model, dice):
    parameter(model, dice).data = tracejit.tensor(other_values(dice).astype(np.float32)[0])


def share_memory(model, dice):
    parameter(model, dice).data = parameter(model, dice).data


def share_part_of_the_memory(model, dice):
    parameter(model, dice).data = tracejit.cat([parameter(model, dice).detach()] * 2)[1:4]


def flip_requires_grad(model, dice):
    p = parameter(model, dice)
    p.requires_grad_(not p.requires_grad)


def replace_attribute(model, dice):
    setattr(model, f"p{dice.randrange(model.count)}", nn.Parameter(tracejit.tensor(other_values(dice).astype(np.float32))))


def swap_attributes(model, dice):
    model.p0, model.p1 = model.p1, model.p0


def write_in_place(model, dice):
    with tracejit.no_grad():
        parameter(model, dice).mul_(1.25)


def write_through_numpy(model, dice):
    parameter(model, dice).detach().numpy()[0] = dice.random()


def change_shape_of_what_was_handed_out(model, dice):
    p = parameter(model, dice)
    array = p.detach().numpy()
    for a in (array, array.base):
        if a is not p._array and a.flags.c_contiguous and a.size == 9:
            a.shape = (9,)


def initialise_again(model, dice):
    tracejit.Tensor.__init__(model.shift, other_values(dice).astype(np.float32))


def bind_an_unrelated_tensor(model, dice):
    tracejit.ones(2).data = tracejit.zeros(3)


def nothing(model, dice):
    pass


CHANGES = [
    set_data, set_data_of_another_layout, set_data_of_another_dtype, set_data_of_another_shape, share_memory, share_part_of_the_memory,
    flip_requires_grad, replace_attribute, swap_attributes, write_in_place, write_through_numpy, change_shape_of_what_was_handed_out,
    initialise_again, bind_an_unrelated_tensor, nothing, nothing, nothing,
]  # fmt: skip


def gradients_of(model, x, function):
    for p in model.parameters():
        p.grad = None
    loss = function(model, x)
    if loss.requires_grad:
        loss.backward()
    return [loss.numpy() if not loss.requires_grad else loss.detach().numpy()] + [
        None if p.grad is None else p.grad.numpy() for p in model.parameters()
    ]


def assert_same(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            assert a.dtype == e.dtype
            np.testing.assert_allclose(a, e, rtol=2e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", range(3))
def test_any_change_of_the_parameters_between_calls_is_seen(seed):
    dice, model, x = random.Random(seed), Model(seed), tracejit.tensor(other_values(random.Random(seed)).astype(np.float32))
    compiled = tracejit.compile(loss_of)
    for _ in range(3):
        assert_same(gradients_of(model, x, compiled), gradients_of(model, x, loss_of))
    for _ in range(25):
        dice.choice(CHANGES)(model, dice)
        for _ in range(dice.choice((1, 1, 2, 3))):
            assert_same(gradients_of(model, x, compiled), gradients_of(model, x, loss_of))
    assert compiled.stats.compiled_calls > 12


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", range(3))
def test_any_change_between_steps_that_write_to_the_parameters_is_seen(seed):
    models, dices = [Model(seed), Model(seed)], [random.Random(seed), random.Random(seed)]
    x = tracejit.tensor(other_values(random.Random(seed)).astype(np.float32))
    compiled = tracejit.compile(train)
    for step in range(25):
        if step > 3:
            for model, dice in zip(models, dices, strict=True):
                dice.choice([c for c in CHANGES if c is not share_part_of_the_memory])(model, dice)
        if not any(p.requires_grad for p in models[0].parameters()):
            for model in models:
                model.requires_grad_(True)
        for _ in range(2):
            np.testing.assert_allclose(compiled(models[0], x).numpy(), train(models[1], x).numpy(), rtol=1e-4, atol=1e-4)
        for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-4)
    assert compiled.stats.compiled_calls > 10


def test_models_that_take_turns_have_their_own_parameters():
    models, x = [Model(s) for s in range(3)], tracejit.ones(3, 3)
    compiled = tracejit.compile(loss_of)
    for _ in range(20):
        for model in (*models, models[0]):
            assert_same(gradients_of(model, x, compiled), gradients_of(model, x, loss_of))


def test_a_model_that_takes_the_place_of_a_dead_one_is_another_one():
    x, compiled = tracejit.ones(3, 3), tracejit.compile(loss_of)
    for seed in range(30):
        model = Model(seed)
        for _ in range(3):
            assert_same(gradients_of(model, x, compiled), gradients_of(model, x, loss_of))
        del model
        if seed % 3 == 0:
            gc.collect()


def test_a_call_within_a_call_and_calls_of_other_threads_have_their_own_pointers():
    compiled, x = tracejit.compile(loss_of), tracejit.ones(3, 3)
    wrong = []

    def work(seed):
        model = Model(seed)
        expected = loss_of(model, x).item()
        for i in range(150):
            if abs(compiled(model, x).item() - expected) > 1e-4:
                wrong.append((seed, i))
            if i % 50 == 0:
                model.p0.data = model.p0.data.clone()

    compiled(Model(0), x)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not words.supported(), reason="dictionaries of this Python have no versions")
def test_binding_an_unrelated_tensor_keeps_key_and_tuples():
    model, x, compiled = Model(), tracejit.ones(3, 3), tracejit.compile(loss_of)
    for _ in range(4):
        compiled(model, x)
    state_of = compiled._table.paths[0].run.__globals__["state_of"]
    before = state_of[0]
    bind_an_unrelated_tensor(model, random)
    compiled(model, x)
    after = state_of[0]
    assert after is not before and after[2] is before[2]
    key = after[2]().found[1]
    assert key != NO_KEY
    set_data(model, random.Random(1))
    compiled(model, x)
    assert state_of[0][2]().found[1] != key


def runner(graph, resident):
    """run(key, resident arrays, other array): what an entry does."""
    program = build(graph, {}, resident=resident)
    held = [Item(Name("held"), Constant(k)) for k in range(2)]
    fragment = program.inline([*held, Name("x")], [], (Name("key"), Name("held")))
    function = Function(("key", "held", "x"), (), (fragment.run, Return(fragment.results[0])), Constant(None), catches=False)
    return load(function, "run", {**fragment.environment, "leave": {-1: None}}, "test")


def key_of(number):
    return struct.pack("=q", number)


def test_a_frame_looks_at_resident_arrays_under_every_key_that_is_new_to_it():
    graph = trace(lambda a, b, x: a * b + x, [f32(4), f32(4), f32(4)])
    run = runner(graph, graph.inputs[:2])
    first, second, wrong = ([np.full(n, v, np.float32) for v in (v0, v0 + 1)] for v0, n in ((2, 4), (5, 4), (8, 5)))
    x = np.ones(4, np.float32)
    for key, held, expected in (
        (1, first, 7), (1, first, 7), (2, second, 31), (1, first, 7), (3, wrong, None), (2, second, 31), (0, first, 7), (0, second, 31),
        (0, wrong, None), (1, first, 7),
    ):  # fmt: skip
        found = run(key_of(key), tuple(held), x)
        assert found is None if expected is None else found.tolist() == [expected] * 4
    assert run(key_of(1), tuple(first), np.ones(5, np.float32)) is None
    assert run(key_of(1), tuple(first), x).tolist() == [7] * 4


def test_overlaps_with_resident_arrays_are_found_under_a_known_key_too():
    graph = trace(lambda p, q, x: (p + q * x, p), [f32(4), f32(4), f32(4)])
    graph = rebuild(graph, graph.nodes, outputs=graph.outputs[:1], writes=((graph.inputs[0], graph.outputs[0]),))  # p += q * x
    run = runner(graph, graph.inputs[:2])
    memory = np.zeros(8, np.float32)
    p, q, x = memory[:4], np.ones(4, np.float32), np.ones(4, np.float32)
    assert run(key_of(1), (p, q), x) is not None
    assert run(key_of(1), (p, q), memory[2:6]) is None
    assert run(key_of(1), (p, q), memory[4:]) is not None
    assert run(key_of(2), (p, memory[3:7]), x) is None
    assert run(key_of(1), (p, q), x) is not None
    assert p.tolist() == [2.0] * 4  # the third call added zeros, two were refused


def test_all_arrays_can_be_passed_without_a_key():
    graph = trace(lambda a, b, x: a * b + x, [f32(4), f32(4), f32(4)])
    program = build(graph, {}, resident=graph.inputs[1:2])
    for value in (1.0, 2.0):
        (found,) = program.run([np.full(4, v, np.float32) for v in (value, value + 1, value + 2)], ())
        assert found.tolist() == [value * (value + 1) + value + 2] * 4
