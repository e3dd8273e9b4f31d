"""passes/reroll.py: loops that Python has unrolled are loops of the program again, and compute the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as tj
from tests.graph_programs import arrays_for, f32, f64, i64, names, op, total
from tracejit import nn
from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes import reroll as module
from tracejit.passes.pipeline import optimise
from tracejit.passes.reroll import reroll

COUNT, WIDTH = 20, 4


@pytest.fixture(autouse=True)
def small_graphs_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEWEST_NODES", 20)
    monkeypatch.setattr(module, "FEWEST_SAVED", 16)
    monkeypatch.setattr(module, "LARGE", 20)


def loops_of(graph: Graph) -> list[dict[str, Any]]:
    return [node.attrs for node in graph.nodes if node.op.kind is Kind.LOOP]


def rolled(function: Callable[..., Any], *avals: Aval) -> Graph:
    """The graph of a function with loops, after the interpreter has found the same bits in it."""
    graph = trace(function, list(avals))
    found = verify(reroll(graph), functional=True)
    inputs = arrays_for(graph)
    for a, b in zip(interpret(found, inputs), interpret(graph, inputs), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return found


def cell(h: Any, x: Any, w: Any) -> Any:
    return op("tanh", op("add", op("matmul", h, w), x))


# -- what operands may be
def test_a_cell_over_slices_is_a_loop_after_its_first_step() -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        for t in range(COUNT):
            h = cell(h, op("select", xs, t, dim=1), w)
        return h

    graph = rolled(function, f32(2, WIDTH), f32(2, COUNT, WIDTH), f32(WIDTH, WIDTH))
    (loop,) = loops_of(graph)
    assert (loop["count"], loop["carried"], loop["sliced"], loop["reverse"]) == (COUNT - 1, 1, 1, False)
    assert len(graph.nodes) < 10


@pytest.mark.parametrize("stride", [1, 2, -1, -2])
def test_slices_may_come_in_any_regular_order(stride: int) -> None:
    def function(h: Any, xs: Any) -> Any:
        for t in range(COUNT):
            at = t * stride if stride > 0 else 2 * COUNT - 1 + t * stride
            h = op("sin", op("mul", op("add", h, op("select", xs, at, dim=0)), op("select", xs, 2 * COUNT - 1 - at, dim=0)))
        return h

    (loop,) = loops_of(rolled(function, f32(WIDTH), f32(2 * COUNT, WIDTH)))
    assert loop["reverse"] == (stride < 0) and loop["sliced"] == 2


@pytest.mark.parametrize("length", [1, 3])
def test_parts_of_several_elements_are_slices_too(length: int) -> None:
    def function(h: Any, xs: Any) -> Any:
        for t in range(COUNT):
            h = op("tanh", op("add", h, op("slice", xs, dim=1, start=t, stop=t + length, step=1)))
            h = op("mul", h, op("reshape", op("slice", xs, dim=1, start=2 * t, stop=2 * t + 2, step=2), shape=(2, 1)))
        return h

    (loop,) = loops_of(rolled(function, f32(2, length), f32(2, 2 * COUNT)))
    assert loop["sliced"] == 2


def test_slices_of_a_slice_of_what_a_step_made_are_given_to_the_steps_after_it() -> None:
    def function(xs: Any) -> Any:
        results, first = [], None
        for t in range(COUNT):
            y = op("mul", op("tanh", op("mul", op("select", xs, t, dim=0), 2.0)), 1.5)
            if first is None:
                whole = y
                first = op("select", whole, 1, dim=0)
            results.append(op("sin", op("mul", y, op("select", first, t, dim=0))))
        return (*results, *[op("select", whole, k, dim=0) for k in (0, 2, 3, 4)])

    graph = rolled(function, f32(COUNT, 5, COUNT))
    assert [loop["count"] for loop in loops_of(graph)] == [COUNT - 1]


def test_values_of_earlier_steps_are_carried() -> None:
    def function(a: Any, b: Any) -> Any:
        for _ in range(COUNT):
            a, b = b, op("sub", op("mul", b, 1.5), op("mul", op("sin", a), 0.5))
        return a, b

    assert any(loop["carried"] >= 2 for loop in loops_of(rolled(function, f64(WIDTH), f64(WIDTH))))


def test_numbers_that_differ_from_step_to_step_are_a_table() -> None:
    def function(x: Any) -> Any:
        for n in range(COUNT):
            x = op("sin", op("mul", op("add", op("mul", x, x), n + 0.1), 1 / 3))
        return x

    graph = rolled(function, f32(WIDTH))
    (loop,) = loops_of(graph)
    assert loop["sliced"] == 1
    (table,) = graph.constants.values()
    assert table.dtype == np.float32 and len(table) == loop["count"]


def test_numbers_that_are_the_same_in_each_step_are_no_table_whatever_else_repeats() -> None:
    def function(x: Any) -> Any:
        for _ in range(COUNT):
            for n in (0.25, 0.5, 2.0):  # alike but for the numbers
                x = op("sin", op("mul", x, n))
        return x

    graph = rolled(function, f32(WIDTH))
    assert [loop["sliced"] for loop in loops_of(graph)] == [0] and not graph.constants


def test_small_tensors_of_their_own_are_stacked_and_large_ones_are_not() -> None:
    def function(h: Any, *xs: Any) -> Any:
        for x in xs:
            h = op("sin", op("mul", op("add", h, x), x))
        return h

    small, large = f32(WIDTH), f32(module.MOST_STACKED // 4)
    assert len(loops_of(rolled(function, small, *[small] * COUNT))) == 1
    graph = rolled(function, large, *[large] * COUNT)
    assert not loops_of(graph)
    assert f"{COUNT} steps of 3 nodes stay unrolled: " in graph.history[-1] and f"another {large} in each" in graph.history[-1]


def test_nothing_is_stacked_where_the_graph_is_not_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(h: Any, *xs: Any) -> Any:
        for x in xs:
            h = op("sin", op("mul", op("add", h, x), x))
        return h

    monkeypatch.setattr(module, "LARGE", 100)
    assert not loops_of(rolled(function, *[f32(WIDTH)] * (COUNT + 1)))


def test_nothing_is_stacked_for_steps_that_need_no_other() -> None:
    def function(*xs: Any) -> Any:
        return tuple([op("sin", op("mul", op("neg", x), x)) for x in xs])

    assert not loops_of(rolled(function, *[f32(WIDTH)] * COUNT))


def test_loops_in_loops_are_found_from_the_inside() -> None:
    def function(h: Any, w: Any) -> Any:
        for _ in range(COUNT):
            for _ in range(COUNT):
                h = op("tanh", op("matmul", h, w))
                h = op("mul", h, 1.25)
                h = op("add", h, 0.5)
                h = op("sin", h)
            h = op("exp", op("neg", op("mul", h, h)))
        return h

    graph = rolled(function, f32(2, WIDTH), f32(WIDTH, WIDTH))
    (outer,) = [loop for loop in loops_of(graph) if loops_of(loop["body"].graph)]
    assert outer["count"] == COUNT - 1 and len(loops_of(graph)) == 2  # the other is that of the first step


def test_two_loops_that_look_alike_are_two() -> None:
    def function(xs: Any, w: Any, u: Any) -> Any:
        a = b = op("select", xs, 0, dim=0)
        for t in range(COUNT):
            a = cell(a, op("select", xs, t, dim=0), w)
        for t in reversed(range(COUNT)):
            b = cell(b, op("select", xs, t, dim=0), u)
        return a, b

    graph = rolled(function, f32(COUNT, 2, WIDTH), f32(WIDTH, WIDTH), f32(WIDTH, WIDTH))
    assert sorted(loop["reverse"] for loop in loops_of(graph)) == [False, True]


# -- what stays as it is
def test_small_graphs_and_graphs_that_do_not_repeat_stay_the_same_object() -> None:
    def few(x: Any) -> Any:
        for _ in range(9):
            x = op("sin", x)
        return x

    def irregular(x: Any) -> Any:
        generator = np.random.default_rng(0)
        for _ in range(300):
            x = op(generator.choice(["sin", "neg", "exp", "tanh"]), x)
            x = op("mul", x, 0.5)
        return x

    for function in (few, irregular):
        graph = trace(function, [f32(3)])
        assert reroll(graph) is graph and not graph.history


def test_steps_that_are_guarded_are_a_loop_that_may_be_left() -> None:
    def checked(x: Any) -> Any:
        for _ in range(COUNT):
            x = op("sin", op("mul", x, 0.5))
            op("guard", op("gt", total(x), 0.0), expected=Literal(True))
        return x

    found = reroll(trace(checked, [f32(3)]))
    (loop,) = loops_of(found)
    assert names(loop["body"].graph).count("guard") == 1 and names(found).count("guard") == 1  # that of the first step
    assert any(node.may_exit for node in found.nodes)


def test_guards_of_one_value_again_and_again_are_no_loop() -> None:
    def checked(x: Any) -> Any:
        for _ in range(2 * COUNT):
            op("guard", op("gt", total(x), 0.0), expected=Literal(True))
        return x

    graph = optimise(trace(checked, [f32(3)]))
    assert not loops_of(graph) and "guard" in names(graph)


def test_steps_that_draw_carry_the_generator_on() -> None:
    def function(x: Any, state: Any) -> Any:
        for _ in range(COUNT):
            for draw in ("random_normal", "random_uniform"):
                x = op("add", op("sin", x), op(draw, state, shape=(3,), dtype=f32().dtype))
                state = op("random_advance", state, count=1)
        return x, state

    (loop,) = loops_of(rolled(function, f32(3), i64(2)))
    inside = names(loop["body"].graph)
    assert loop["carried"] == 2 and inside.count("random_normal") == inside.count("random_uniform") == 1


def test_shapes_that_grow_are_no_loop() -> None:
    def function(x: Any) -> Any:
        for _ in range(COUNT):
            x = op("cat", op("sin", x), op("slice", x, dim=0, start=0, stop=1, step=1), dim=0)
        return x

    assert not loops_of(rolled(function, f32(1)))


# -- what leaves
@pytest.mark.parametrize("used", ["last", "all", "some", "none"])
def test_what_is_used_afterwards_is_carried_or_collected(used: str) -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        found = []
        for t in range(COUNT):
            h = cell(h, op("select", xs, t, dim=0), w)
            found.append(op("exp", op("neg", h)))
        last = {"last": found[-1:], "all": found, "some": [found[3], found[-2]], "none": []}[used]
        return (h, *last)

    (loop,) = loops_of(rolled(function, f32(2, WIDTH), f32(COUNT, 2, WIDTH), f32(WIDTH, WIDTH)))
    body = loop["body"].graph
    assert len(body.outputs) == {"last": 2, "all": 2, "some": 2, "none": 1}[used]
    assert loop["carried"] == (2 if used == "last" else 1)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_loops_keep_their_bits(data: st.DataObject) -> None:
    count, width = data.draw(st.integers(9, 14)), data.draw(st.integers(1, 3))
    unary = st.sampled_from(["sin", "tanh", "neg", "abs"])
    step = data.draw(st.lists(st.tuples(st.sampled_from(["one", "two", "slice", "number", "before"]), unary, st.integers(0, 9))))
    carried, dim = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 1))
    back, collects = data.draw(st.booleans()), data.draw(st.lists(st.integers(0, 9), max_size=2))

    def function(xs: Any, *state: Any) -> Any:
        before, kept = state[0], []
        for t in reversed(range(count)) if back else range(count):
            x = op("select", xs, t, dim=dim)
            values = [*state, x]
            for what, name, k in [*step, ("two", "sin", 0)]:
                y = values[k % len(values)]
                if what == "two":
                    y = op("mul", y, values[-1])
                elif what == "slice":
                    y = op("add", y, op("select", xs, count - 1 - t, dim=dim))
                elif what == "number":
                    y = op("add", y, 0.1 * t)
                elif what == "before":
                    y = op("sub", y, before)
                values.append(op(name, y))
            before = state[0]
            state = (*state[1:], values[-1])
            kept += [values[k % len(values)] for k in collects]
        return (*state, *kept)

    rolled(function, f64(count, width) if dim == 0 else f64(width, count), *[f64(width)] * carried)


# -- programs
def parameter(*shape: int, seed: int = 0) -> Any:
    return tj.tensor(np.random.default_rng(seed).normal(0, 0.4, shape), requires_grad=True)


W, U, B = parameter(WIDTH, WIDTH), parameter(WIDTH, WIDTH, seed=1), parameter(WIDTH, seed=2)
LSTM, GRU = nn.LSTMCell(WIDTH, WIDTH).double(), nn.GRUCell(WIDTH, WIDTH).double()
PARAMETERS = [W, U, B, *LSTM.parameters(), *GRU.parameters()]


def last_state(xs: Any) -> Any:
    h = tj.zeros(2, WIDTH, dtype=tj.float64)
    for x in xs:
        h = (x @ W + h @ U + B).tanh()
    return (h * h).sum()


def states_stacked(xs: Any) -> Any:
    h, found = tj.zeros(2, WIDTH, dtype=tj.float64), []
    for t in range(len(xs)):
        h = (xs[t] @ W + h @ U + B).tanh()
        found.append(h)
    return (tj.stack(found, 1) ** 2).mean()


def losses_added(xs: Any) -> Any:
    h, loss = tj.zeros(2, WIDTH, dtype=tj.float64), 0
    for t in range(len(xs) - 1):
        h = (xs[t] @ W + h @ U + B).tanh()
        loss = loss + nn.functional.mse_loss(h, xs[t + 1])
    return loss / len(xs)


def two_directions(xs: Any) -> Any:
    a = b = tj.zeros(2, WIDTH, dtype=tj.float64)
    ahead, back = [], []
    for t in range(len(xs)):
        a = (xs[t] @ W + a @ U).tanh()
        ahead.append(a)
    for t in reversed(range(len(xs))):
        b = (xs[t] @ U + b @ W).tanh()
        back.append(b)
    return (tj.cat([tj.stack(ahead), tj.stack(back[::-1])], -1) ** 2).mean()


def lstm(xs: Any) -> Any:
    h = c = tj.zeros(2, WIDTH, dtype=tj.float64)
    for x in xs:
        h, c = LSTM(x, (h, c))
    return (h * c).sum()


def gru(xs: Any) -> Any:
    h = tj.zeros(2, WIDTH, dtype=tj.float64)
    for x in xs.transpose(0, 1).unbind(1):
        h = GRU(x, h)
    return (h * h).sum()


def runge_kutta(xs: Any) -> Any:
    def slope(y: Any) -> Any:
        return -(W @ y).tanh() + xs[0, 0]

    y, dt = B, 0.05
    for _ in range(COUNT):
        k1 = slope(y)
        k2 = slope(y + dt / 2 * k1)
        k3 = slope(y + dt / 2 * k2)
        k4 = slope(y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return (y * y).sum()


def newton(xs: Any) -> Any:
    y = B.exp()
    for _ in range(COUNT):
        y = y - (y * y - B * B - 1) / (2 * y)
    return (y * xs[0]).sum()


def descent(xs: Any) -> Any:
    w = tj.zeros(WIDTH, dtype=tj.float64, requires_grad=True)
    for _ in range(COUNT):
        loss = ((xs[0] @ W @ w - 1) ** 2).mean()
        (slope,) = tj.autograd.grad(loss, w, create_graph=True)
        w = w - 0.1 * slope
    return (w * w).sum()


def a_list_of_inputs(xs: Any) -> Any:
    h = tj.zeros(2, WIDTH, dtype=tj.float64)
    for x in [x * 2 for x in xs]:
        h = (x @ W + h @ U).tanh()
    return (h * h).sum()


def a_counter(xs: Any) -> Any:
    y = B
    for n in range(COUNT):
        y = y + (y * (n + 1)).sin() / COUNT
    return (y * xs[0]).sum()


def windows(xs: Any) -> Any:
    return sum((xs[t : t + 2] @ W).tanh().mean() for t in range(COUNT - 1))


def dropped_out(xs: Any) -> Any:
    h = tj.zeros(2, WIDTH, dtype=tj.float64)
    for x in xs:
        h = nn.functional.dropout((x @ W + h @ U + B).tanh(), 0.3)
    return h.sum()


def langevin(xs: Any) -> Any:
    y, path = B, []
    for _ in range(COUNT):
        y = y - 0.1 * (y * W).sum(0) + 0.3 * tj.randn(WIDTH, dtype=tj.float64) * tj.rand(1, dtype=tj.float64)
        path.append(y)
    return (tj.stack(path) * xs[:, 0]).sum()


PROGRAMS = [
    last_state, states_stacked, losses_added, two_directions, lstm, gru, runge_kutta, newton, descent, a_list_of_inputs, a_counter,
    windows, dropped_out, langevin,
]  # fmt: skip


def value_and_gradients(function: Callable[..., Any], xs: Any) -> list[Any]:
    for x in (xs, *PARAMETERS):
        x.grad = None
    tj.manual_seed(7)
    value = function(xs)
    value.backward()
    return [
        value.detach().numpy(),
        tj.rand(3).numpy(),
        *[None if x.grad is None else x.grad.numpy().copy() for x in (xs, *PARAMETERS)],
    ]


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("wanted", [False, True], ids=["weights", "inputs too"])
def test_loops_of_python_are_loops_of_the_programs_forward_and_backward(function: Callable[..., Any], wanted: bool) -> None:
    compiled = tj.compile(function)
    for seed in range(3):
        xs = parameter(COUNT, 2, WIDTH, seed=seed).detach().requires_grad_(wanted)
        for a, b in zip(value_and_gradients(compiled, xs), value_and_gradients(function, xs), strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls == 2, compiled.explain()
    ahead, back = compiled.explain(verbose=True).split("backward for cotangents")
    assert re.search(r"loop of \d+ steps", ahead) and re.search(r"loop of \d+ steps", back), compiled.explain()


def test_gradients_of_gradients_go_through_what_a_rolled_program_left() -> None:
    compiled = tj.compile(states_stacked)
    for seed in range(3):
        xs = parameter(COUNT, 2, WIDTH, seed=seed)
        found = []
        for function in (compiled, states_stacked):
            (g,) = tj.autograd.grad(function(xs), W, create_graph=True)
            found.append(tj.autograd.grad((g * g).sum(), [W, U, xs]))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-12)
    assert compiled.stats.compiled_calls == 2


def test_a_weight_that_is_changed_before_the_backward_pass_is_an_error_as_in_eager_mode() -> None:
    compiled = tj.compile(last_state)
    xs = parameter(COUNT, 2, WIDTH)
    for _ in range(3):
        loss = compiled(xs)
    with tj.no_grad():
        U.mul_(1.0)
    with pytest.raises(RuntimeError, match="modified"):
        loss.backward()


def test_what_each_step_gave_is_a_result_like_any_other() -> None:
    def states(xs: Any) -> Any:
        h, found = tj.zeros(2, WIDTH, dtype=tj.float64), []
        for x in xs:
            h = (x @ W + h @ U + B).tanh()
            found.append(h)
        return found

    compiled = tj.compile(states)
    for seed in range(3):
        xs = parameter(COUNT, 2, WIDTH, seed=seed).detach()
        results = [function(xs) for function in (compiled, states)]
        gradients = [tj.autograd.grad(sum((h * (k + 1)).sum() for k, h in enumerate(r)) + 0.0, [W, U, r[4]]) for r in results]
        for a, b in zip((*results[0], *gradients[0]), (*results[1], *gradients[1]), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.compiled_calls == 2


def test_results_of_all_steps_that_are_joined_are_what_the_loop_collects() -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        found = []
        for t in range(COUNT):
            h = cell(h, op("select", xs, t, dim=0), w)
            found.append(op("reshape", h, shape=(1, 2, WIDTH)))
        return op("cat", *found, dim=0)

    graph = trace(function, [f32(2, WIDTH), f32(COUNT, 2, WIDTH), f32(WIDTH, WIDTH)])
    found = optimise(graph, check=True)
    assert names(found).count("loop0") == 1 and names(found).count("select") <= 1


# -- loops that are left
def until_small(x: Any) -> tuple[Any, int]:
    steps = 0
    while x.abs().max() > 0.1:
        x = x * 0.6 + 0.05 * x.sin()
        steps += 1
    return x, steps


def test_a_loop_that_is_left_by_a_branch_is_a_loop_whenever_it_is_left() -> None:
    compiled = tj.compile(until_small)
    compiled._policy.may_outline = False  # else the loop is one node from the second recording on
    starts = [tj.tensor([a, -a / 2, a / 3]) for a in (50.0, 20.0, 8.0, 3.0)]
    for _ in range(6):
        for x in starts:
            (found, steps), (expected, count) = compiled(x), until_small(x)
            assert steps == count
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    counts = {until_small(x)[1] for x in starts}
    assert len(counts) == 4 and compiled.stats.traces == 4, compiled.explain()
    text = compiled.explain(verbose=True)
    assert re.search(r"loop of \d+ steps", text) and "goes on only if the steps of a loop find at" in text
    assert re.search(r"what was recorded: left \d+ times, then on to path \d", text), text


def test_an_index_out_of_range_in_a_step_raises_what_eager_raises() -> None:
    table = parameter(6, WIDTH)

    def states(tokens: Any) -> Any:
        h = tj.zeros(WIDTH, dtype=tj.float64)
        for t in range(COUNT):
            h = (h @ W + nn.functional.embedding(tokens[t], table)).tanh()
        return h.sum()

    compiled = tj.compile(states)
    generator = np.random.default_rng(0)
    for _ in range(3):
        tokens = tj.tensor(generator.integers(0, 6, COUNT))
        np.testing.assert_allclose(compiled(tokens).item(), states(tokens).item(), rtol=1e-9)
    assert compiled.stats.compiled_calls == 2 and "loop of" in compiled.explain(verbose=True)
    tokens[COUNT // 2] = 6
    with pytest.raises(IndexError) as eager:
        states(tokens)
    with pytest.raises(IndexError) as found:
        compiled(tokens)
    assert str(found.value) == str(eager.value)


def test_sampling_in_each_step_is_a_loop() -> None:
    def sampled(logits: Any) -> Any:
        chosen = []
        for _ in range(COUNT):
            noise = -(-tj.rand(8).log()).log()
            k = (logits + noise).argmax()
            logits = logits * 0.9 + nn.functional.one_hot(k, 8).float() * 0.1
            chosen.append(k)
        return tj.stack(chosen), logits

    compiled = tj.compile(sampled)
    for seed in range(3):
        results = []
        for run in (sampled, compiled):
            tj.manual_seed(seed)
            results.append(run(tj.linspace(0.0, 1.0, 8)))
        assert results[0][0].tolist() == results[1][0].tolist()
        np.testing.assert_allclose(results[0][1].numpy(), results[1][1].numpy(), rtol=1e-6)
    assert compiled.stats.compiled_calls == 2 and "loop of" in compiled.explain(verbose=True), compiled.explain()
