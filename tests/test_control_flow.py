"""tracejit.control_flow: loops and branches as functions, eager and compiled, with gradients of any order."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as tj
from tests.graph_programs import f64, op
from tracejit.autograd.gradcheck import gradcheck, gradgradcheck
from tracejit.config import config
from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_
from tracejit.core.tree import flatten
from tracejit.ir.graph import Body, Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.loop import WHILE
from tracejit.ir.printer import parse, to_text
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.dce import dce
from tracejit.passes.pipeline import optimise
from tracejit.runtime.program import BACKENDS, build


def parameter(*shape: int, seed: int = 0) -> Any:
    return tj.tensor(np.random.default_rng(seed).normal(0, 0.5, shape), requires_grad=True)


def cell(w: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    def combine(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = (carry @ w + x).tanh()
        return carry, carry * 2

    return combine


def same_when_compiled(function: Callable[..., Any], *args: Any) -> None:
    """Compiled calls give what eager ones do (docs/equality.md), and all but the first are served by programs."""
    compiled, expected = tj.compile(function), flatten(function(*args))[0]
    for _ in range(3):
        for a, b in zip(flatten(compiled(*args))[0], expected, strict=True):
            if isinstance(b, tj.Tensor):
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
            else:
                assert a == b
    assert compiled.stats.compiled_calls == 2, compiled.explain()


# -- scan
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(-3, 2), st.booleans(), st.one_of(st.none(), st.integers(1, 9)))
def test_a_scan_is_the_loop_written_out(length: int, dim: int, reverse: bool, every: int | None) -> None:
    w, h, start = parameter(3, 3), parameter(2, 3, seed=1), [2, 3]
    start.insert(dim if dim >= 0 else 3 + dim, length)
    xs = parameter(*start, seed=2)
    carry, ys = tj.scan(cell(w), h, xs, dim=dim, reverse=reverse, checkpoint_every=every)
    expected, rows, steps = h, [], list(xs.unbind(dim))
    for x in reversed(steps) if reverse else steps:
        expected, y = cell(w)(expected, x)
        rows.append(y)
    stacked = tj.stack(rows[::-1] if reverse else rows)
    assert carry.equal(expected) and ys.equal(stacked)
    found = tj.autograd.grad((carry * 3).sum() + (ys**2).sum(), (w, h, xs))
    wanted = tj.autograd.grad((expected * 3).sum() + (stacked**2).sum(), (w, h, xs))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)  # checkpoints add up segment by segment


def test_carries_slices_and_results_may_be_nested() -> None:
    def combine(carry: dict[str, Any], x: tuple[Any, Any]) -> tuple[dict[str, Any], list[Any]]:
        total = carry["total"] + x[0] * x[1]
        return {"total": total, "steps": carry["steps"] + 1}, [total, (x[0], carry["steps"])]

    a, b = tj.arange(4.0), tj.arange(4.0) + 1
    carry, ys = tj.scan(combine, {"total": tj.tensor(0.0), "steps": tj.tensor(0)}, (a, b))
    assert carry["total"].item() == 20.0 and carry["steps"].item() == 4
    assert ys[0].tolist() == [0.0, 2.0, 8.0, 20.0] and ys[1][1].tolist() == [0, 1, 2, 3]


def test_a_scan_without_slices_or_results_takes_so_many_steps() -> None:
    carry, ys = tj.scan(lambda c, x: (c * 2, x), tj.tensor(1.0), length=10)
    assert carry.item() == 1024.0 and ys is None


@pytest.mark.parametrize("every", [None, 2])
def test_a_scan_has_derivatives_of_any_order(every: int | None) -> None:
    def function(w: Any, h: Any, xs: Any) -> Any:
        carry, ys = tj.scan(cell(w), h, xs, checkpoint_every=every)
        return carry.sum() + ys.sum()

    inputs = (parameter(2, 2), parameter(2, seed=1), parameter(3, 2, seed=2))
    assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


def test_a_scan_with_checkpoints_keeps_nothing_of_the_steps_between_them() -> None:
    def kept(every: int | None) -> int:
        made: list[Any] = []

        def combine(carry: Any, x: Any) -> tuple[Any, None]:
            inner = (carry + x).exp()
            made.append(weakref.ref(inner._array))
            return inner * 0.1, None

        carry, _ = tj.scan(combine, parameter(3), tj.ones(60, 3, dtype=tj.float64), checkpoint_every=every)
        gc.collect()
        alive = sum(array() is not None for array in made)
        carry.sum().backward()
        return alive

    assert kept(None) == 60 and kept(10) == 0


def test_a_scan_is_compiled_with_its_gradients() -> None:
    w = parameter(3, 3)

    def value(xs: Any) -> Any:
        return tj.scan(cell(w), tj.zeros(3, dtype=tj.float64), xs)

    def gradient(xs: Any) -> Any:
        carry, ys = tj.scan(cell(w), tj.zeros(3, dtype=tj.float64), xs, reverse=True, checkpoint_every=2)
        return tj.autograd.grad(carry.sum() + ys.sum(), w)

    xs = parameter(5, 3, seed=1).detach()
    same_when_compiled(value, xs)
    same_when_compiled(gradient, xs)


# -- while_loop, cond, map
def test_a_while_loop_goes_on_while_its_condition_holds() -> None:
    def newton(x: Any) -> Any:
        steps, root = tj.while_loop(
            lambda n, y: ((y * y - x).abs() > 1e-9).any(), lambda n, y: (n + 1, (y + x / y) / 2), (0, tj.ones_like(x))
        )
        return steps, root

    x = tj.tensor([2.0, 9.0], dtype=tj.float64, requires_grad=True)
    steps, root = newton(x)
    assert steps == 6 and np.allclose(root.detach().numpy(), [2**0.5, 3.0])
    (slope,) = tj.autograd.grad(root.sum(), x)
    assert np.allclose(slope.numpy(), 0.5 / root.detach().numpy())
    same_when_compiled(newton, x.detach())
    assert tj.while_loop(lambda n: False, lambda n: (n + 1,), [3]) == [3]


def results(value: Any) -> list[Any]:
    """All that there is to compare, bit by bit."""
    leaves = flatten(value)[0]
    return [
        (x.dtype, x.shape, x.stride(), x.requires_grad, x.detach().numpy().tobytes()) if isinstance(x, tj.Tensor) else x
        for x in leaves
    ]


def newton(x: Any) -> Any:
    return tj.while_loop(
        lambda y, _: ((y * y - x).abs() > 1e-9).any(), lambda y, n: ((y + x / y) / 2, n + 1), (x * 1.0, tj.tensor(0))
    )


def counting(n: Any) -> Any:
    i, total = tj.while_loop(lambda i, total: i < n, lambda i, total: (i + 1, total * 0.5 + i), (tj.tensor(0), tj.ones(3)))
    return i * 2, total + 1


def fibonacci(n: Any) -> Any:
    return tj.while_loop(lambda a, b, i: i < n, lambda a, b, i: (b, a + b, i + 1), (n * 0, n * 0 + 1, tj.tensor(0)))


def carried_condition(n: Any) -> Any:
    return tj.while_loop(
        lambda go, i: go, lambda go, i: ((i + 1 < n).reshape(1), i + 1), ((n > 0).reshape(1), tj.tensor([0], dtype=tj.int32))
    )


def number_as_condition(n: Any) -> Any:
    return tj.while_loop(lambda i, s: i, lambda i, s: (i - 1, {"a": [s["a"][0] * 1.5]}), (n * 1.0, {"a": [tj.ones(2)]}))


def with_what_is_around(n: Any) -> Any:
    return tj.while_loop(
        lambda x, w, i: i < n, lambda x, w, i: ((x @ WEIGHTS).relu() * BOX["scale"] + w, w, i + 1), (FIRST, FIRST, tj.tensor(0))
    )


def in_no_grad(n: Any) -> Any:
    layer = LAYER
    with tj.no_grad():
        return tj.while_loop(lambda x, i: i < n, lambda x, i: (layer(x).relu(), i + 1), (tj.eye(2), tj.tensor(0)))


def in_loops(n: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        i, y = tj.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 0.5 + x), (tj.tensor(0), h))
        return y, y.sum() + i

    return tj.scan(step, tj.ones(2), tj.arange(24.0).reshape(12, 2))


def used_and_written(n: Any) -> Any:
    y = n * tj.ones(2)
    z, k = tj.while_loop(lambda z, k: k < n, lambda z, k: (z * 0.5, k + 1), (y, tj.tensor(0)))
    z.add_(5)
    return y, z * k, z[1]


WEIGHTS = tj.tensor([[0.5, 0.25], [0.5, -0.25]])
FIRST = tj.tensor([[1.0, 2.0], [3.0, 4.0]])
LAYER = tj.nn.Linear(2, 2)
LAYER.load_state_dict({"weight": tj.tensor([[0.5, 0.25], [0.5, 0.125]]), "bias": tj.tensor([0.5, 0.25])})
BOX = {"scale": 0.5}
COUNTS = (5, 1, 2, 3, 40, 0, 5, 100)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function",
    [counting, fibonacci, carried_condition, number_as_condition, in_no_grad, in_loops, used_and_written],
)
def test_one_recording_of_a_while_loop_serves_every_number_of_steps(function: Callable[..., Any], backend: str) -> None:
    before = config.backend
    config.backend = backend
    try:
        compiled = tj.compile(function)
        for n in COUNTS:
            assert results(compiled(tj.tensor(n))) == results(function(tj.tensor(n)))
    finally:
        config.backend = before
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == len(COUNTS) - 1, compiled.explain()
    assert compiled.stats.programs_compiled == 1 and "one path for each number of steps" not in compiled.explain(verbose=True)


def test_newton_s_iteration_is_a_loop_whose_length_the_program_finds() -> None:
    compiled = tj.compile(newton)
    for scale in (3.0, 1e3, 1e6, 17.0, 1e-3, 2.0):
        x = tj.tensor([2.0, 9.0], dtype=tj.float64) * scale
        assert results(compiled(x)) == results(newton(x))
    assert compiled.stats.traces == 1 and "loop while a condition holds" in compiled.explain(verbose=True)


def test_a_while_loop_of_what_is_around_it_finds_that_as_it_is_now() -> None:
    compiled = tj.compile(with_what_is_around)
    for n, scale in zip(COUNTS, (0.5, 0.5, 0.25, 2.0, 0.125, 1.0, 0.5, 0.25), strict=True):
        BOX["scale"] = scale
        WEIGHTS.mul_(-0.5)
        assert results(compiled(tj.tensor(n))) == results(with_what_is_around(tj.tensor(n)))
    assert "loop while a condition holds" in compiled.explain(verbose=True) and compiled.stats.traces <= 3, compiled.explain()


def test_recording_a_while_loop_does_not_grow_with_the_number_of_steps() -> None:
    def nodes(n: int) -> int:
        compiled = tj.compile(counting)
        compiled(tj.tensor(n))
        return len(compiled._table.paths[0].recording.graph.avals)

    assert nodes(5) == nodes(5000)


def test_no_result_of_a_while_loop_is_a_tensor_that_it_was_given() -> None:
    def function(x: Any, w: Any, n: Any) -> Any:
        y, kept = tj.while_loop(lambda y, w: y.sum() < n, lambda y, w: (y + 1, w), (x, w))
        y.add_(10)
        kept.add_(20)
        return y, kept

    compiled = tj.compile(function)
    for n in (9.0, 0.0, 9.0, 30.0, 0.0):
        x, w, z, v = tj.ones(3), tj.ones(2), tj.ones(3), tj.ones(2)
        assert results((*compiled(x, w, tj.tensor(n)), x, w)) == results((*function(z, v, tj.tensor(n)), z, v))
        assert x.equal(tj.ones(3)) and w.equal(tj.ones(2))
    assert compiled.stats.traces == 1


def test_a_gradient_goes_through_a_while_loop_that_has_room_for_its_steps() -> None:
    def carried(n: Any) -> Any:
        w = tj.ones(3, requires_grad=True)
        _, total = tj.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * w * 2), (tj.tensor(0), w * 1))
        return tj.autograd.grad(total.sum(), w)

    def beside(n: Any) -> Any:
        w = tj.ones(3, requires_grad=True)
        k, y = tj.while_loop(lambda i, y: (i * w).sum() < n, lambda i, y: (i + 1, y * w.detach() * 2), (tj.tensor(0), tj.ones(3)))
        return tj.autograd.grad((w * y * k).sum(), w)

    for function, traces in ((carried, 3), (beside, 1)):
        compiled = tj.compile(function)
        for n in (5, 5, 3, 9, 0, 1, 5, 9):
            assert results(compiled(tj.tensor(n))) == results(function(tj.tensor(n)))
        assert compiled.stats.traces == traces and compiled.stats.compiled_calls == 8 - traces
        assert "requires grad" not in compiled.explain(verbose=True)


def test_a_gradient_outside_of_the_call_goes_through_a_while_loop_too() -> None:
    w = tj.tensor([1.5, 0.5], requires_grad=True)

    def function(n: Any) -> Any:
        return tj.while_loop(lambda y: y.sum() < n, lambda y: (y * w + w,), (w * 1,))[0]

    compiled = tj.compile(function)
    for n in (9.0, 7.0, 30.0, 9.0, 30.0, 12.0):
        gradients = []
        for f in (function, compiled):
            w.grad = None
            (f(tj.tensor(n)) ** 2).sum().backward()
            gradients.append(w.grad.tolist())
        assert gradients[0] == gradients[1]
    assert compiled.stats.traces == 2, compiled.explain()


def test_a_while_loop_that_begins_with_its_own_weight_is_a_path_for_each_number_of_steps() -> None:
    def function(n: Any) -> Any:
        w = tj.ones(3, requires_grad=True)
        return tj.autograd.grad(tj.while_loop(lambda y: y.sum() < n, lambda y: (y * w + w,), (w,))[0].sum(), w)

    compiled = tj.compile(function)
    for n in (9, 30, 9, 30):
        assert results(compiled(tj.tensor(n))) == results(function(tj.tensor(n)))


def counting_in_python(n: Any) -> Any:
    seen: list[int] = []

    def body(i: Any) -> Any:
        seen.append(1)
        return (i + len(seen),)

    return (*tj.while_loop(lambda i: i < n, body, (tj.tensor(0),)), len(seen))


def leaking(n: Any) -> Any:
    kept: list[Any] = []

    def body(i: Any) -> Any:
        if not kept:
            kept.append(i + 1)
            return (kept[0],)
        return (i + 1,)

    (i,) = tj.while_loop(lambda i: i < n, body, (tj.tensor(0),))
    if kept:
        kept[0].add_(100)
    return i


def knowing_the_first(n: Any) -> Any:
    first, second = tj.ones(2), tj.ones(2) * 2
    return tj.while_loop(
        lambda a, b: b.sum() < n, lambda a, b: (b, a + b if a is first or a is second else a * b), (first, second)
    )


def branching(n: Any) -> Any:
    return tj.while_loop(lambda i: i < n, lambda i: (i + 2 if i > 3 else i + 1,), (tj.tensor(0),))


def leaving(n: Any) -> Any:
    return tj.while_loop(lambda i: i < n, lambda i: (i + (1 + i.item() // 4),), (tj.tensor(0),))


def drawing(n: Any) -> Any:
    tj.manual_seed(0)
    return tj.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + tj.rand(2)), (tj.tensor(0), tj.zeros(2))), tj.rand(2)


def writing(n: Any) -> Any:
    return tj.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y.add_(1)), (tj.tensor(0), tj.zeros(2)))


def turning(n: Any) -> Any:
    return tj.while_loop(lambda h, i: i < n, lambda h, i: (h.t() * 1, i + 1), (tj.arange(4.0).reshape(2, 2), tj.tensor(0)))


def with_a_number(n: Any) -> Any:
    return tj.while_loop(lambda i, k: i < n, lambda i, k: (i + k, k + 1), (tj.tensor(0), 1))


def with_a_bool(n: Any) -> Any:
    return tj.while_loop(lambda i: bool(i < n), lambda i: (i + 1,), (tj.tensor(0),))


@pytest.mark.parametrize(
    "function",
    [counting_in_python, leaking, knowing_the_first, branching, leaving, drawing, writing, turning, with_a_number, with_a_bool],
)
def test_a_while_loop_whose_steps_do_more_is_as_eager_has_it_and_explain_says_why_it_is_no_loop(
    function: Callable[..., Any],
) -> None:
    compiled = tj.compile(function)
    for n in (5, 5, 3, 9, 0, 1, 2, 5, 9):
        assert results(compiled(tj.tensor(n))) == results(function(tj.tensor(n)))
    assert compiled.stats.compiled_calls, compiled.explain()
    assert "while_loop() at " in compiled.explain(verbose=True) and "one path for each number of steps" in compiled.explain(
        verbose=True
    )


def test_errors_of_a_compiled_while_loop_are_those_of_the_eager_call() -> None:
    def function(x: Any, n: Any) -> Any:
        return tj.while_loop(lambda y: y.sum() < n, lambda y: (tj.cat([y, y]),), (x,))

    def ambiguous(x: Any, n: Any) -> Any:
        return tj.while_loop(lambda y: y < n, lambda y: (y + 1,), (x,))

    for wrong, message in ((function, "what body_fn returns must keep shape and dtype"), (ambiguous, "ambiguous")):
        compiled = tj.compile(wrong)
        for call in (wrong, compiled, compiled):
            with pytest.raises(RuntimeError, match=message):
                call(tj.ones(3), tj.tensor(9.0))


def test_the_length_of_what_a_while_loop_carries_may_be_another_one() -> None:
    def function(x: Any) -> Any:
        return tj.while_loop(lambda s, k: s.sum() < 1000, lambda s, k: ((x @ x.t()) @ s + s + 1, k + 1), (x * 1, tj.tensor(0)))

    compiled = tj.compile(function)
    for n in (3, 5, 9, 4, 20, 31):
        x = tj.tensor(np.random.default_rng(n).uniform(size=(n, 2)))
        for a, b in zip(compiled(x), function(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    assert compiled.stats.traces == 2, compiled.explain()


def looped() -> Graph:
    def step(go: Any, x: Any, limit: Any) -> tuple[Any, Any]:
        y = op("mul", x, 2.0)
        return op("lt", op("sum", y, dims=(0,), keepdim=False), limit), y

    body = Body(trace(step, [Aval((), bool_), f64(2), f64()]))
    return trace(lambda go, x, limit: WHILE.of(go, x, limit, body=body, carried=2), [Aval((), bool_), f64(2), f64()])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_node_of_a_while_loop_means_the_same_everywhere(backend: str) -> None:
    graph = verify(looped(), functional=True)
    program = build(optimise(graph), {}, backend=backend)
    for go in (True, False):
        given = (np.array(go), np.array([1.0, 2.0]), np.array(100.0))
        found, expected = program.run(given, ()), interpret(graph, given)
        assert not isinstance(found, int) and all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        assert np.array_equal(expected[1], [64.0, 128.0] if go else [1.0, 2.0]) and not expected[0]


def test_the_node_of_a_while_loop_is_kept_though_nothing_reads_it_is_read_back_and_refuses_wrong_operands() -> None:
    graph = looped()
    assert [node.op for node in dce(replace(graph, outputs=())).nodes] == [WHILE]
    assert parse(to_text(graph)).equals(graph)
    body = Body(trace(lambda x: op("neg", x), [f64()]))
    with pytest.raises(ValueError, match="while: the body carries on"):
        trace(lambda x: WHILE.of(x, body=body, carried=1), [f64()])
    with pytest.raises(ValueError, match="while: the body takes"):
        trace(lambda x: WHILE.of(x, body=body, carried=1), [f64(2)])


def test_a_condition_calls_one_branch_alone_and_its_gradient_is_that_branch_s() -> None:
    def function(x: Any) -> Any:
        return tj.cond(x.sum() > 0, lambda x, y: (x * y).sin(), lambda x, y: x.exp() - y, (x, x * 2))

    for value in (1.5, -1.5):
        x = tj.tensor([value], dtype=tj.float64, requires_grad=True)
        y = function(x)
        assert y.item() == pytest.approx(np.sin(2 * value**2) if value > 0 else np.exp(value) - 2 * value, rel=1e-15)
        assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))
        same_when_compiled(function, x.detach())
    assert tj.cond(True, lambda: 1, lambda: 1 // 0) == 1


def test_a_map_stacks_what_each_slice_gives() -> None:
    def function(xs: Any, k: Any) -> Any:
        return tj.map(lambda x, k: (x @ x * k, {"first": x[0]}), xs, k)

    xs, k = parameter(4, 3), parameter(seed=1)
    found = function(xs, k)
    assert np.allclose(found[0].detach().numpy(), ((xs * xs).sum(1) * k).detach().numpy()) and found[1]["first"].equal(xs[:, 0])
    assert gradcheck(lambda xs, k: function(xs, k)[0], (xs, k))
    same_when_compiled(function, xs.detach(), k.detach())


def test_what_does_not_fit_is_said_with_what_was_expected() -> None:
    x = tj.ones(3)
    for error, message, call in [
        (TypeError, r"cond\(\): operands must be a tuple or list, got Tensor", lambda: tj.cond(True, abs, abs, x)),
        (TypeError, r"cond\(\): true_fn must be a function, got int", lambda: tj.cond(True, 1, abs)),
        (TypeError, r"cond\(\): pred must be a bool or a tensor of one element, got str", lambda: tj.cond("yes", abs, abs)),
        (RuntimeError, "ambiguous", lambda: tj.cond(x > 0, abs, abs)),
        (
            TypeError,
            r"body_fn must return a tuple or list .* got Tensor",
            lambda: tj.while_loop(lambda x: True, lambda x: x, (x,)),
        ),
        (
            RuntimeError,
            r"while_loop\(\): what body_fn returns must keep shape and dtype, expected \[3\] of .*float32, got \[6\]",
            lambda: tj.while_loop(lambda x: True, lambda x: (tj.cat([x, x]),), (x,)),
        ),
        (
            TypeError,
            r"must have the structure \(Tensor,\), got \(Tensor, Tensor\)",
            lambda: tj.while_loop(lambda x: True, lambda x: (x, x), (x,)),
        ),
        (
            TypeError,
            r"scan\(\): combine_fn must return a tuple \(carry, y\), got Tensor",
            lambda: tj.scan(lambda c, v: c, x[0], x),
        ),
        (
            RuntimeError,
            r"scan\(\): the carry .* expected \[\] of .*, got \[1\]",
            lambda: tj.scan(lambda c, v: (c[None], v), x[0], x),
        ),
        (TypeError, r"scan\(\): expected xs, or a length", lambda: tj.scan(lambda c, v: (c, v), x)),
        (
            ValueError,
            r"scan\(\): length is 2, and xs have 3 slices along dimension 0",
            lambda: tj.scan(lambda c, v: (c, v), x, x, 2),
        ),
        (
            ValueError,
            r"scan\(\): all of xs must have one size along dimension 0, got \[3, 4\]",
            lambda: tj.scan(min, x, (x, tj.ones(4))),
        ),
        (ValueError, r"scan\(\): xs have no slices along dimension 0", lambda: tj.scan(lambda c, v: (c, v), x, tj.ones(0, 2))),
        (
            ValueError,
            r"checkpoint_every must be an integer of at least 1, or None, got 0",
            lambda: tj.scan(min, x, x, checkpoint_every=0),
        ),
        (TypeError, r"map\(\): xs must be tensors, .* got float", lambda: tj.map(lambda v: v, [1.0])),
        (TypeError, r"map\(\): what f returns must be tensors, .* got int", lambda: tj.map(lambda v: 1, x)),
        (
            TypeError,
            r"map\(\): what f returns in a later step must have",
            lambda: tj.map(lambda v: v if v > 1 else (v,), tj.arange(3.0)),
        ),
    ]:
        with pytest.raises(error, match=message):
            call()
