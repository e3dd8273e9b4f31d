"""compile(): entries, exits, bridges, gradients through programs, threads, statistics.

Every check asserts that programs really ran (`compiled_calls`) and that what they returned is right."""

from __future__ import annotations

import functools
import gc
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.capture.reasons import make
from tracejit.compiled import recording_driver
from tracejit.compiled.compile import FullGraphError
from tracejit.compiled.executable import Executable, UnsupportedProgram
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.compiled.recording_driver import RecordingDriver
from tracejit.config import override
from tracejit.core import uninterrupted as module


def leaf(*values: float) -> T.Tensor:
    return T.tensor([float(v) for v in values], requires_grad=True)


def polynomial(x: T.Tensor) -> T.Tensor:
    return (x * x * 3.0 + x.sin()).sum()


def test_the_second_call_is_one_call_into_machine_code_with_the_same_result() -> None:
    function = T.compile(polynomial)
    x = T.tensor([1.0, 2.0, 3.0])
    expected = polynomial(x).item()
    assert function(x).item() == expected
    assert function(x).item() == pytest.approx(expected, rel=1e-6)
    assert (function.stats.calls, function.stats.compiled_calls, function.stats.traces, function.stats.machine_calls) == (
        2,
        1,
        1,
        1,
    )
    y = T.tensor([4.0, 5.0, 6.0])
    assert function(y).item() == pytest.approx(polynomial(y).item(), rel=1e-6)
    assert function.stats.machine_calls == 2


def test_each_outcome_of_a_branch_gets_its_path_and_flipping_records_nothing_more() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return x * 2 if x.sum() > 10 else x - 1

    compiled = T.compile(function)
    low, high = T.tensor([1.0, 2.0]), T.tensor([10.0, 20.0])
    for _ in range(5):
        assert compiled(low).tolist() == [0, 1]
        assert compiled(high).tolist() == [20, 40]
    assert compiled.stats.traces == 2
    assert compiled.stats.compiled_calls == 8
    assert compiled.stats.bridges >= 4


def test_a_failed_exit_leaves_user_storage_untouched() -> None:
    state = T.zeros(2)

    def function(x: T.Tensor) -> T.Tensor:
        state.add_(x)
        if x.sum() > 10:
            state.mul_(2)
        return state + 0

    compiled = T.compile(function)
    expected = np.zeros(2)
    for values in ([1.0, 2.0], [3.0, 4.0], [50.0, 1.0], [1.0, 1.0], [60.0, 2.0], [2.0, 2.0]):
        expected = expected + values
        if sum(values) > 10:
            expected = expected * 2
        assert compiled(T.tensor(values)).tolist() == expected.tolist()
        assert state.tolist() == expected.tolist()
    assert compiled.stats.exits >= 2
    assert compiled.stats.compiled_calls >= 3


def test_an_index_out_of_range_raises_eagers_error() -> None:
    table = T.arange(5.0)
    compiled = T.compile(lambda i: T.index_select(table, 0, i))
    for _ in range(3):
        assert compiled(T.tensor([1, 4])).tolist() == [1, 4]
    with pytest.raises(IndexError, match="index 5 is out of range for a dimension of size 5"):
        compiled(T.tensor([1, 5]))
    assert compiled(T.tensor([0, 0])).tolist() == [0, 0]
    assert compiled.stats.compiled_calls == 3


def test_shapes_dtypes_and_strides_are_guarded() -> None:
    compiled = T.compile(lambda x: x * 2 + 1)
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    inputs = [
        T.tensor(base),
        T.tensor(base.T.copy()),
        T.tensor(base).t(),
        T.tensor(base.astype(np.float64)),
        T.tensor(base)[:, ::2],
        T.zeros(0, 4),
        T.tensor(3),
    ]
    for _ in range(3):
        for x in inputs:
            out = compiled(x)
            np.testing.assert_array_equal(out.numpy(), x.numpy() * 2 + 1)
            assert out.dtype is x.dtype
    assert compiled.stats.compiled_calls == 2 * len(inputs)


def test_a_training_step_is_one_program_whose_learning_rate_may_change() -> None:
    def make() -> tuple[T.Tensor, dict[str, float], object]:
        w = leaf(1, -2, 3)
        options = {"lr": 0.1}

        def step(x: T.Tensor) -> T.Tensor:
            w.grad = None
            loss = ((w * x - 1) ** 2).sum()
            loss.backward()
            with T.no_grad():
                w.sub_(w.grad * options["lr"])
            return loss

        return w, options, step

    w1, options1, eager = make()
    w2, options2, step = make()
    compiled = T.compile(step)
    for i in range(6):
        x = T.tensor([0.5, 0.25, float(i)])
        options1["lr"] = options2["lr"] = 0.1 / (i + 1)
        a, b = eager(x), compiled(x)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(w1.detach().numpy(), w2.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(w1.grad.numpy(), w2.grad.numpy(), rtol=1e-6)
    assert compiled.stats.traces <= 2
    assert compiled.stats.machine_calls == compiled.stats.compiled_calls >= 4


def test_outputs_that_share_memory_in_eager_share_it_compiled() -> None:
    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor, T.Tensor, T.Tensor]:
        y = x * 2
        return x, x.t(), y, y[0]

    compiled = T.compile(function)
    for _ in range(3):
        x = T.ones(2, 2)
        same, turned, y, row = compiled(x)
        assert same is x
        x.add_(1)
        assert turned.tolist() == [[2, 2], [2, 2]]
        y.zero_()
        assert row.tolist() == [0, 0]
    assert compiled.stats.compiled_calls == 2


def test_results_of_different_calls_do_not_share_memory() -> None:
    compiled = T.compile(lambda x: x + 1)
    x = T.zeros(3)
    compiled(x)
    first, second = compiled(x), compiled(x)
    first.zero_()
    assert second.tolist() == [1, 1, 1]


def test_concurrent_calls_of_one_function_are_right() -> None:
    def function(x: T.Tensor, w: T.Tensor) -> T.Tensor:
        h = T.tanh(x @ w)
        return (h * h).sum() if h.sum() > 0 else h.sum()

    compiled = T.compile(function)
    for sign in (1.0, -1.0):  # threads run eagerly while another one records: both paths first
        compiled(T.full((4, 8), sign, requires_grad=True), T.ones(8, 8)).backward()
    errors: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = T.tensor(rng.standard_normal((4, 8)).astype(np.float32), requires_grad=True)
            w = T.tensor(rng.standard_normal((8, 8)).astype(np.float32))
            y = compiled(x, w)
            y.backward()
            z = T.tensor(x.detach().numpy(), requires_grad=True)
            expected = function(z, w)
            expected.backward()
            if not np.allclose(y.item(), expected.item(), rtol=1e-4, atol=1e-4) or not np.allclose(
                x.grad.numpy(), z.grad.numpy(), rtol=1e-3, atol=1e-4
            ):
                errors.append(f"{y.item()} {expected.item()}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert compiled.stats.compiled_calls > 100


def test_methods_callable_objects_and_the_bare_decorator() -> None:
    class Model:
        scale = 3.0

        @T.compile
        def forward(self, x: T.Tensor) -> T.Tensor:
            return x * self.scale

        def __call__(self, x: T.Tensor) -> T.Tensor:
            return x + self.scale

    model = Model()
    compiled = T.compile(model)
    for _ in range(3):
        assert model.forward(T.ones(2)).tolist() == [3, 3]
        assert compiled(T.ones(2)).tolist() == [4, 4]
    assert Model.__dict__["forward"].stats.compiled_calls == 2
    assert compiled.stats.compiled_calls == 2
    assert compiled.scale == 3.0

    @T.compile()
    def function(x: T.Tensor) -> T.Tensor:
        return x

    assert isinstance(function, T.CompiledFunction)
    with pytest.raises(TypeError, match="callable"):
        T.compile(3)  # type: ignore[call-overload]


def test_what_cannot_be_recorded_runs_eagerly_with_a_reason_and_a_line() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x + 1

    compiled = T.compile(function)
    for _ in range(5):
        assert compiled(T.zeros(1)).item() == 1
    (reason,) = compiled.reasons
    assert reason.code == "unknown_call"
    assert "test_compile.py:" in reason.where
    assert "getsizeof" in compiled.explain(verbose=True)
    assert compiled.stats.traces == 3
    with pytest.raises(RuntimeError, match="nothing was compiled"):
        compiled.graph()


def test_graph_source_and_explain_tell_about_the_program() -> None:
    compiled = T.compile(polynomial)
    with pytest.raises(RuntimeError, match="not called yet"):
        compiled.source()
    compiled(T.ones(3))
    from tracejit.ir.printer import parse

    assert parse(compiled.graph()).nodes
    assert "sin" in compiled.graph()
    assert "def " in compiled.source()
    assert "path 0" in compiled.explain(verbose=True)
    compiled.clear()
    assert compiled.stats.calls == 0
    assert compiled(T.ones(3)).item() == pytest.approx(polynomial(T.ones(3)).item())


@pytest.mark.parametrize("backend", ["interpret", "reference", "numba", "llvm"])
def test_all_backends_agree(backend: str) -> None:
    w = T.tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), requires_grad=True)

    def function(x: T.Tensor) -> T.Tensor:
        h = T.tanh(x @ w)
        return ((h - h.mean(0)) ** 2).sum() + h.amax()

    with override(backend=backend):
        compiled = T.compile(function)
        for _ in range(2):
            x = T.tensor(np.linspace(0, 2, 8, dtype=np.float32).reshape(2, 4), requires_grad=True)
            w.grad = None
            out = compiled(x)
            out.backward()
    y = T.tensor(x.detach().numpy(), requires_grad=True)
    gw = w.grad
    w.grad = None
    expected = function(y)
    expected.backward()
    assert out.item() == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gw.numpy(), w.grad.numpy(), rtol=1e-4, atol=1e-6)
    assert compiled.stats.compiled_calls == 1


def test_too_many_paths_are_refused_with_a_reason() -> None:
    with override(max_entries=2, max_sizes=2):
        compiled = T.compile(lambda x: x.sum())
        for n in range(1, 6):
            assert compiled(T.ones(n)).item() == n
        assert compiled.stats.traces == 2
        assert any(reason.code == "too_many_paths" for reason in compiled.reasons)


def test_sizes_in_random_order_are_each_served_by_the_path_that_was_recorded_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, dice, asked, serve = T.compile(lambda x: (x * 2).sum()), random.Random(0), [], RecordedPath.serve
    sizes = list(range(2, 42))
    for n in sizes:
        assert compiled(T.ones(n)).item() == 2 * n
    served = compiled.stats.compiled_calls
    assert (compiled.stats.traces, compiled.stats.instances, served) == (2, len(sizes) - 2, len(sizes) - 2)
    monkeypatch.setattr(RecordedPath, "serve", lambda path, args, kwargs: asked.append(path) or serve(path, args, kwargs))
    for _ in range(5):
        dice.shuffle(sizes)
        for n in sizes:
            assert compiled(T.ones(n)).item() == 2 * n
    assert compiled.stats.compiled_calls == served + 5 * len(sizes) and compiled.stats.programs_compiled == len(sizes)
    assert len(asked) <= 5 * len(sizes)  # beside the one in front none but that of the size


def test_hundreds_of_sizes_that_come_again_all_stay_compiled_and_each_asks_one_path(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, dice, asked, serve = T.compile(lambda x: (x * 2).sum()), random.Random(0), [], RecordedPath.serve
    sizes = list(range(2, 152))
    for _ in range(4):
        dice.shuffle(sizes)
        for n in sizes:
            assert compiled(T.ones(n)).item() == 2 * n
    assert compiled.stats.programs_compiled == len(sizes) and compiled.stats.traces == 2
    monkeypatch.setattr(RecordedPath, "serve", lambda path, args, kwargs: asked.append(path) or serve(path, args, kwargs))
    before = compiled.stats.compiled_calls
    dice.shuffle(sizes)
    for n in sizes:
        assert compiled(T.ones(n)).item() == 2 * n
    assert compiled.stats.compiled_calls == before + len(sizes) and len(asked) <= len(sizes)


def test_sizes_that_come_once_are_not_recorded_for_ever_and_keep_nobody_from_the_others() -> None:
    compiled = T.compile(lambda x: (x * 2).sum())
    for n in range(1, 500):
        assert compiled(T.ones(n)).item() == 2 * n
    paths = compiled.stats.programs_compiled
    assert paths == 64 and "many_sizes" in [reason.code for reason in compiled.reasons]
    before = compiled.stats.compiled_calls
    for n in range(1, 65):
        assert compiled(T.ones(n)).item() == 2 * n
    assert compiled.stats.compiled_calls == before + 64 and compiled.stats.programs_compiled == paths


def test_sizes_that_come_once_stay_compiled_where_a_call_saves_more_than_its_path_costs() -> None:
    compiled = T.compile(lambda x: (x.exp() * x).sum())
    with override(verify=False, max_sizes=80):  # verification makes a program for each size
        for n in range(2_000, 2_200):
            x = T.full((n, 512), 1e-4)
            np.testing.assert_allclose(compiled(x).item(), (x.exp() * x).sum().item(), rtol=1e-4)
    # Then there are as many as there may be, and it is looked twice for those that are not used.
    assert compiled.stats.traces == 2 and 60 < compiled.stats.calls - compiled.stats.compiled_calls < 140, compiled.explain()
    assert compiled.stats.instances > 78 and "many_sizes" in [reason.code for reason in compiled.reasons]


def test_sizes_that_come_once_and_pay_keep_nobody_else_out() -> None:
    compiled, base, cube = T.compile(lambda x: (x.exp() * x).sum()), T.full((2_400, 512), 1e-4), T.full((64, 8, 8), 0.1)
    with override(verify=False, max_sizes=70):
        for n in range(2_000, 2_400):
            compiled(base[:n])
        before = compiled.stats.compiled_calls
        for _ in range(100):
            compiled(cube)
    assert compiled.stats.compiled_calls - before > 80 and compiled._policy._calls_of_new_size <= 8, compiled.explain()


def test_sizes_must_come_twice_as_often_where_earlier_ones_went_out_of_use_too_soon() -> None:
    with override(max_sizes=80, max_entries=2):
        compiled, n = T.compile(lambda x: (x * 2).sum()), 0
        recorded = []
        for _ in range(3):
            before = compiled.stats.programs_compiled
            for _ in range(400):
                n += 1
                for _ in range(6):
                    assert compiled(T.ones(n)).item() == 2 * n
            recorded.append(compiled.stats.programs_compiled - before)
    assert recorded[0] >= 80 and compiled._policy._calls_of_new_size >= 8 and recorded[2] == 0


def test_there_are_no_more_sizes_with_paths_than_allowed_and_as_many_others_beside_them() -> None:
    with override(max_entries=3, max_sizes=2):
        compiled = T.compile(lambda x, name: x.sum() + len(name))
        for k in range(5):
            for n in (1, 2, 3):
                assert compiled(T.ones(n), "a" * k).item() == n + k
        assert compiled.stats.traces == 2 + 2  # the first of each size, and two more
        assert any(reason.code == "too_many_paths" for reason in compiled.reasons)


def test_each_layout_of_an_argument_is_recorded_once() -> None:
    compiled = T.compile(lambda x: x * 2 + 1)
    for _ in range(4):
        for x in (T.ones(3, 3).t(), T.ones(6, 6)[::2, ::2], T.ones(3, 3)):
            assert compiled(x).tolist() == [[3.0] * 3] * 3
    assert compiled.stats.traces == 3
    assert compiled.stats.compiled_calls == 9


def test_calls_follow_bridges_without_running_an_entry_twice() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        while x.sum() > 0:
            x = x - 1
        return x

    compiled = T.compile(function)
    compiled._policy.may_outline = False  # else the loop is one node
    lengths = [3, 0, 5, 1, 4, 2]
    for n in (*lengths, *lengths, 5, 0, 5, 4, 3, 0, 2, 2, 5):
        assert compiled(T.tensor([float(n)])).item() == 0
    stats = compiled.stats
    assert (stats.traces, stats.programs_compiled) == (6, 6)
    assert stats.machine_calls <= stats.calls * len(lengths)
    before = stats.machine_calls
    compiled(T.tensor([5.0]))
    compiled(T.tensor([5.0]))
    assert stats.machine_calls - before <= 2 * 6


def test_a_call_that_raises_is_noted_and_does_not_stop_later_recordings() -> None:
    def function(x: T.Tensor, bad: bool) -> T.Tensor:
        if bad:
            raise KeyError("no such thing")
        return x + 1

    compiled = T.compile(function)
    for _ in range(5):
        with pytest.raises(KeyError, match="no such thing"):
            compiled(T.ones(1), True)
    for _ in range(2):
        assert compiled(T.ones(1), False).item() == 2
    assert compiled.stats.compiled_calls == 1
    assert [(reason.code, count) for reason, count in compiled.reasons.items()] == [("raised", 5)]


def test_recordings_stop_after_max_failures_until_clear() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x + 1

    with override(max_failures=2):
        compiled = T.compile(function)
        for _ in range(5):
            compiled(T.ones(1))
        assert compiled.stats.traces == 2
        compiled.clear()
        compiled(T.ones(1))
        assert compiled.stats.traces == 1


def test_a_compiled_function_may_call_itself_and_others() -> None:
    @T.compile
    def helper(x: T.Tensor) -> T.Tensor:
        return x * 2

    @T.compile
    def function(x: T.Tensor, depth: int) -> T.Tensor:
        return helper(x) if depth == 0 else function(x + 1, depth - 1)

    for _ in range(3):
        assert function(T.zeros(1), 3).item() == 6
    assert function.stats.compiled_calls == 2
    assert function.stats.machine_calls == 2


def test_a_function_that_could_not_be_recorded_is_tried_again_now_and_then() -> None:
    class Noisy:
        training = True

        def __call__(self, x: T.Tensor) -> T.Tensor:
            return x * (sys.getsizeof(print) > 0) if self.training else x * 2

    noisy = Noisy()
    compiled = T.compile(noisy)
    for _ in range(10):
        compiled(T.ones(2))
    assert compiled.stats.traces == 3
    noisy.training = False
    for _ in range(80):
        assert compiled(T.ones(2)).tolist() == [2, 2]
    assert compiled.stats.traces == 4
    assert compiled.stats.compiled_calls > 10


def test_a_program_that_cannot_be_compiled_is_reported_and_the_result_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, *arguments: object) -> None:
            raise ArithmeticError("broken")

    monkeypatch.setattr(recording_driver, "Executable", Broken)
    counted = T.zeros(1)

    def function(x: T.Tensor) -> T.Tensor:
        counted.add_(1)
        return x + 1

    compiled = T.compile(function)
    with override(verify=False), pytest.warns(RuntimeWarning, match="broken"):
        assert compiled(T.zeros(1)).item() == 1
    assert counted.item() == 1
    assert [reason.code for reason in compiled.reasons] == ["internal_error"]
    with override(verify=True), pytest.raises(ArithmeticError, match="broken"):
        compiled(T.zeros(1))


def test_results_lie_in_memory_as_eagers_do() -> None:
    """Strides decide what view() and reshape() of a result do: permuted, with gaps, with elements that are one."""
    functions = [
        lambda x: x.t() * 2, lambda x: (x * 2)[:, ::2], lambda x: (x * 2).sum(0).expand(3, 4), lambda x: (x * 2).diagonal(),
        lambda x: (x * 2).t().flip(0), lambda x: x.permute(1, 0).exp()[:, None].expand(4, 2, 3), lambda x: x[:0].t() + 1,
    ]  # fmt: skip
    for i, function in enumerate(functions):
        compiled = T.compile(function)
        for call in range(3):
            x, y = (T.tensor(np.arange(12.0).reshape(3, 4), requires_grad=bool(i % 2)) for _ in range(2))
            expected, result = function(x), compiled(y)
            assert result.stride() == expected.stride(), (i, call)
            np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-14)
            if i % 2:
                expected.sum().backward()
                result.sum().backward()
                np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-14)
        assert compiled.stats.compiled_calls == 2


def test_a_differentiable_write_to_an_argument_gives_it_a_new_position_on_the_tape() -> None:
    """Whatever the function returns."""

    def whole(h: T.Tensor) -> None:
        h.mul_(2)

    def part(h: T.Tensor) -> None:
        h[1:].fill_(3.0)

    def without_gradient(h: T.Tensor) -> None:
        with T.no_grad():
            h.mul_(2)

    for function in (whole, part, without_gradient):
        compiled = T.compile(function)
        gradients = []
        for call in (function, compiled, compiled, compiled):
            w = leaf(1.0, 2.0, 3.0)
            h = w * 3
            call(h)
            (h * h).sum().backward()
            assert w.grad is not None
            gradients.append(w.grad.tolist())
        assert gradients == gradients[:1] * 4 and compiled.stats.compiled_calls == 2


def test_a_tensor_that_is_written_to_in_each_of_several_calls_leads_back_through_all_of_them() -> None:
    w = leaf(1.0, 2.0, 3.0)

    def add(total: T.Tensor, x: T.Tensor) -> None:
        total += (x * w).sin().sum()

    def run(function: Any) -> tuple[Any, ...]:
        w.grad = None
        total = T.zeros((), dtype=T.float64)
        whole, memory = total[None], total.data_ptr()
        seen: list[Any] = []
        for i in range(5):
            function(total, T.tensor([0.5, 0.25, 0.75], dtype=T.float64) * (i + 1.0))
            seen += [total.item(), total.requires_grad, total.is_leaf, whole.item(), whole.requires_grad]
        assert total.data_ptr() == memory
        total.backward(retain_graph=True)
        seen += w.grad.tolist()  # type: ignore[union-attr]
        whole.sum().backward()
        seen += w.grad.tolist()  # type: ignore[union-attr]
        with pytest.raises(RuntimeError, match="freed"):
            total.backward()
        return tuple(seen)

    compiled, expected = T.compile(add), run(add)
    for _ in range(3):
        np.testing.assert_allclose(run(compiled), expected, 1e-12)
    assert compiled.stats.traces == 2  # of a total that does not require gradients, and of one that does
    assert compiled.stats.compiled_calls == 13


def test_what_a_differentiable_write_needs_goes_with_the_tensor_or_with_the_pass() -> None:
    w = leaf(1.0, 2.0, 3.0)
    compiled = T.compile(lambda h: h.mul_(w))
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            kept = T.ones(3, dtype=T.float64)
            h, reference = T.ones(3, dtype=T.float64), weakref.ref(kept)
            compiled(kept)
            compiled(h)
            node = weakref.ref(h.grad_fn)
            del kept
            assert reference() is None
            h.sum().backward()
            del h
            assert node() is None
    finally:
        gc.enable()
    assert compiled.stats.compiled_calls == 7


def test_a_graph_that_a_backward_pass_inside_used_up_is_that_of_what_was_written_to() -> None:
    w = leaf(1.0, 2.0, 3.0)

    def step(total: T.Tensor, x: T.Tensor) -> None:
        loss = (x * w).square().sum()
        total.add_(loss)
        loss.backward()

    def run(function: Any) -> tuple[Any, ...]:
        w.grad = None
        total = T.zeros((), dtype=T.float64)
        for i in range(4):
            function(total, T.ones(3, dtype=T.float64) * i)
        with pytest.raises(RuntimeError, match="freed"):
            total.backward()
        return total.item(), total.requires_grad, total.grad_fn is not None, w.grad.tolist()  # type: ignore[union-attr]

    compiled, expected = T.compile(step), run(step)
    assert [run(compiled) for _ in range(3)] == [expected] * 3
    assert compiled.stats.compiled_calls == 10


def test_hooks_and_retained_gradients_of_what_is_written_to_are_those_of_eager_mode() -> None:
    w = leaf(1.0, 2.0, 3.0)

    def change(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        x.mul_(w)
        y[1:].add_(x[1:])
        return x.exp().sum()

    def run(function: Any) -> list[Any]:
        seen: list[Any] = []
        w.grad = None
        x, y = w * 2, w + 1
        for t in (x, y):
            t.retain_grad()
            t.register_hook(lambda g: seen.append(("before", g.tolist())))
        loss = function(x, y)
        for t in (x, y):
            t.register_hook(lambda g: seen.append(("after", g.tolist())))
        (loss + x.sin().sum() + (y * y).sum()).backward()
        return [*seen, x.grad.tolist(), y.grad.tolist(), w.grad.tolist()]  # type: ignore[union-attr]

    for hot_calls in (0, 1):
        with override(hot_calls=hot_calls):
            compiled, expected = T.compile(change), run(change)
            assert [run(compiled) for _ in range(4)] == [expected] * 4
            assert compiled.stats.compiled_calls == 3


def test_the_hidden_state_of_a_module_is_written_to_with_gradients() -> None:
    class Cell(T.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = T.nn.Linear(3, 3)
            self.register_buffer("hidden", T.zeros(3))

        def forward(self, x: T.Tensor) -> T.Tensor:
            self.hidden.copy_((self.linear(x) + self.hidden * 0.5).tanh())
            return self.hidden.sum()

    def run(compiling: Any) -> tuple[list[Any], Any]:
        T.manual_seed(3)
        module, seen = Cell(), []
        function = compiling(lambda x: module(x))
        for _ in range(4):
            loss = sum([function(T.ones(3) * i) for i in range(3)])
            loss.backward()  # type: ignore[union-attr]
            weight = module.linear.weight.grad
            assert weight is not None
            seen.append((module.hidden.tolist(), weight.tolist()))
            module.hidden.detach_()  # type: ignore[operator]
        return seen, function

    expected, _ = run(lambda function: function)
    for hot_calls in (0, 1):
        with override(hot_calls=hot_calls):
            actual, compiled = run(T.compile)
        np.testing.assert_allclose(
            [v for a in actual for v in np.ravel(a[1])], [v for a in expected for v in np.ravel(a[1])], 1e-5
        )
        np.testing.assert_allclose([a[0] for a in actual], [a[0] for a in expected], 1e-5)
        assert compiled.stats.compiled_calls == 10


def test_a_differentiable_write_to_a_view_from_outside_runs_eagerly() -> None:
    """Its base gets a new position on the tape, which is not the program's to give."""

    def run(function: Any) -> list[Any]:
        w = leaf(1.0, 2.0)
        base = T.ones(4, dtype=T.float64)
        function(base[1:3], w)
        base.square().sum().backward()
        return [base.tolist(), base.requires_grad, w.grad.tolist()]  # type: ignore[union-attr]

    def scale(view: T.Tensor, by: T.Tensor) -> None:
        view.mul_(by)

    compiled = T.compile(scale)
    assert [run(compiled) for _ in range(3)] == [run(scale)] * 3
    assert compiled.stats.compiled_calls == 0 and {r.code for r in compiled.reasons} == {"differentiable_write"}


def test_paths_that_have_gone_out_of_use_make_room_for_others() -> None:
    with override(max_entries=2, max_sizes=2):
        compiled = T.compile(lambda x: x.sum(), dynamic=False)

        def call(*sizes: int, times: int = 1) -> None:
            for _ in range(times):
                for n in sizes:
                    assert compiled(T.ones(n)).item() == n

        call(1, 2, 1, 2)
        call(3, 1, times=300)  # 128 eager calls: all have been used; 128 more: not the path for 2
        assert compiled.stats.traces == 3 and compiled.stats.calls == 604
        compiled_calls = compiled.stats.compiled_calls
        assert compiled_calls > 2 + 300 + 40
        call(1, 3)
        assert compiled.stats.compiled_calls == compiled_calls + 2
        call(4, 1, 3, times=300)  # all that are recorded are in use: nothing is recorded, and nothing dropped
        assert compiled.stats.traces == 3 and compiled.stats.programs_compiled == 3
        compiled.clear()
        call(4, 4)
        assert compiled.stats.compiled_calls == 1


def test_a_path_whose_cache_each_call_has_to_fill_is_one_path_and_is_not_recorded_for_ever() -> None:
    kept = functools.lru_cache(maxsize=None)(lambda k: k * 2.0)
    function = T.compile(lambda x, k: x * kept(k))
    for _ in range(2):
        for k in range(40):
            assert function(T.ones(1), k).item() == 2.0 * k
    stats = function.stats
    assert stats.programs_compiled == 1 and 4 <= stats.traces < 12, function.explain()  # at 4 it is said to be no use
    assert stats.compiled_calls == 40 and {r.code for r in function.reasons} == {"unstable_guards"}, function.explain()
    kept.cache_clear()
    compiled = T.compile(lambda x, k: x * kept(k))
    for _ in range(3):
        for k in range(2):
            assert compiled(T.ones(1), k).item() == 2.0 * k
    assert not compiled.reasons and compiled.stats.compiled_calls == 4, compiled.explain()


def test_an_exit_that_led_to_a_recorded_path_is_recorded_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = T.compile(lambda x: x + 1 if x.sum() > 0 else x - 1)
    up, down = T.ones(2), -T.ones(2)
    compiled(up)
    (path,) = compiled._table.paths
    path.eager_exits[1] = [0, 64]  # as if a call close to the threshold had taken the exit, and then the recorded path
    for _ in range(64):
        assert compiled(down).tolist() == [-2.0, -2.0]
    assert compiled.stats.traces == 1
    compiled(down)
    assert compiled.stats.traces == 2
    compiled(down)
    assert compiled.stats.bridges == 1


# -- programs that take longer than a call waits


SHIFT = [1.0]


class Held:
    """Programs are not compiled before `go_on` is called, and calls do not wait for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._event = threading.Event()
        for owner, name in ((RecordingDriver, "_build"), (Executable, "_built_backward")):
            monkeypatch.setattr(owner, name, self._late(getattr(owner, name)))

    def _late(self, make: Any) -> Any:
        def late(*given: Any) -> Any:
            assert self._event.wait(60)
            return make(*given)

        return late

    def go_on(self, *works: Any) -> None:
        """Until these are finished."""
        self._event.set()
        for work in works:
            assert work.wait_until(math.inf)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    with override(compile_wait=0.0):
        yield made
    made.go_on()


def test_calls_run_eagerly_and_are_not_recorded_while_their_program_is_compiled_in_the_background(held: Held) -> None:
    function = T.compile(polynomial)
    x, other = T.tensor([1.0, 2.0, 3.0]), T.ones(5)
    for _ in range(3):
        assert function(x).item() == polynomial(x).item() and function(other).item() == polynomial(other).item()
    stats = function.stats
    assert (stats.calls, stats.eager_calls, stats.early_calls, stats.traces, stats.programs_compiled) == (6, 6, 5, 1, 0)
    told = function.explain(verbose=True)
    assert told.startswith("polynomial is being compiled in the background, and its calls run as ordinary Python meanwhile.\n")
    assert "\nWhat to do: Wait, or call warm_up() first: it returns when everything is compiled.\n" in told
    assert "while a program was compiled in the background 5)" in told
    assert [reason.code for reason in function.reasons] == ["compiling"]
    held.go_on(function._driver.pending.work)
    assert function(x).item() == pytest.approx(polynomial(x).item(), rel=1e-6)
    assert (stats.calls, stats.compiled_calls, stats.traces, stats.programs_compiled) == (7, 1, 1, 1)
    said = "polynomial runs compiled in few calls: 6 of 7 ran as ordinary Python, because it was still being compiled.\n"
    assert function.explain(verbose=True).startswith(said) and "What to do" not in function.explain()


def test_no_more_is_recorded_while_many_programs_wait_for_the_background(held: Held) -> None:
    functions = [T.compile(lambda x, k=k: (x * 2 + k).sum()) for k in range(40)]
    for _ in range(2):
        for k, function in enumerate(functions):
            assert function(T.ones(2)).item() == 4 + 2 * k
    assert sum(function.stats.traces for function in functions) == module._MOST_BEHIND
    assert sum(function.stats.early_calls for function in functions) == 80 - module._MOST_BEHIND
    held.go_on(*[function._driver.pending.work for function in functions if function._driver.pending is not None])
    for k, function in enumerate(functions):
        assert function(T.ones(2)).item() == 4 + 2 * k and function(T.ones(2)).item() == 4 + 2 * k
    assert all(function.stats.traces == 1 for function in functions)


def test_paths_go_on_serving_calls_while_another_one_is_compiled_in_the_background(held: Held) -> None:
    function = T.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    function(T.ones(2))
    held.go_on(function._driver.pending.work)
    held._event.clear()
    for _ in range(3):
        assert function(T.ones(2)).tolist() == [2, 2] and function(-T.ones(2)).tolist() == [-2, -2]
    assert (function.stats.compiled_calls, function.stats.traces, function.stats.early_calls) == (3, 2, 2)
    assert "\n  one more path is being compiled in the background\n" in function.explain()
    held.go_on(function._driver.pending.work)
    for _ in range(2):
        assert function(T.ones(2)).tolist() == [2, 2] and function(-T.ones(2)).tolist() == [-2, -2]
    assert (function.stats.compiled_calls, function.stats.traces) == (7, 2)


def test_what_is_cleared_while_it_is_compiled_is_recorded_again(held: Held) -> None:
    function = T.compile(polynomial)
    x = T.ones(3)
    function(x)
    before = function._driver.pending.work
    function.clear()
    assert function.explain() == "polynomial has not been called yet." and not function.reasons
    function(x)
    held.go_on(before, function._driver.pending.work)
    function(x)
    assert (function.stats.traces, function.stats.compiled_calls, function.stats.programs_compiled) == (1, 1, 1)


def test_an_error_in_the_background_is_the_reason_of_the_calls_that_follow(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    def fail(*given: Any) -> Any:
        assert held._event.wait(60)
        raise ArithmeticError("no program")

    monkeypatch.setattr(RecordingDriver, "_build", fail)
    function = T.compile(polynomial)
    function(T.ones(3))
    held.go_on(function._driver.pending.work)
    with (
        override(verify=False),
        pytest.warns(RuntimeWarning, match=r"could not compile polynomial .*ArithmeticError\('no program'\)"),
    ):
        assert function(T.ones(3)).item() == polynomial(T.ones(3)).item()
    assert "[internal_error] the recorded program could not be compiled: ArithmeticError: no program" in function.explain(
        verbose=True
    )


def test_a_recording_for_which_there_is_no_program_is_a_reason_or_an_error_of_the_next_call(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    def refuse(*given: Any) -> Any:
        assert held._event.wait(60)
        raise UnsupportedProgram(make("differentiable_write", "of shape [3]"))

    monkeypatch.setattr(RecordingDriver, "_build", refuse)
    usual, full = T.compile(polynomial), T.compile(polynomial, fullgraph=True)
    for function in (usual, full):
        function(T.ones(3))
    held.go_on(usual._driver.pending.work, full._driver.pending.work)
    usual(T.ones(3))
    assert "differentiable_write" in [reason.code for reason in usual.reasons]
    with pytest.raises(FullGraphError, match="differentiable_write"):
        full(T.ones(3))


def test_a_function_that_waits_compiles_nothing_in_the_background(held: Held) -> None:
    @T.compile(wait=True)
    def function(x: T.Tensor) -> T.Tensor:
        return polynomial(x)

    held._event.set()
    for f in (function, T.compile(polynomial, wait=True)):
        for _ in range(2):
            f(leaf(1, 2)).backward()
        assert (f.stats.compiled_calls, f.stats.machine_calls, f.stats.early_calls) == (1, 2, 0)
        assert not f.reasons


def test_warming_up_is_a_call_that_waits_for_all_programs(held: Held) -> None:
    def function(x: T.Tensor, n: int, *, seen: list[int]) -> tuple[T.Tensor, T.Tensor]:
        seen.append(n)
        return (x * n).sum(), x.exp()

    compiled, seen = T.compile(function), [0]
    held._event.set()
    total, _ = compiled.warm_up(leaf(1, 2), 3, seen=seen)
    assert total.item() == 9 and seen == [0, 3]
    held._event.clear()  # whatever is compiled from here on takes too long
    for of_first in (True, False):
        x = leaf(1, 2)
        total, powers = compiled(x, 3, seen=seen)
        (total if of_first else powers.sum()).backward()
        assert np.allclose(x.grad.numpy(), 3 if of_first else np.exp([1.0, 2.0]))
    x = leaf(1, 2)
    total, powers = compiled(x, 3, seen=seen)
    (total + powers.sum()).backward()
    assert np.allclose(x.grad.numpy(), 3 + np.exp([1.0, 2.0]))
    assert (compiled.stats.compiled_calls, compiled.stats.machine_calls) == (3, 6) and seen == [0, 3, 3, 3, 3]


def test_warming_up_waits_for_what_is_compiled_in_the_background(held: Held) -> None:
    function = T.compile(polynomial)
    function(T.ones(3))
    timer = threading.Timer(0.05, held._event.set)
    timer.start()
    assert function.warm_up(T.ones(3)).item() == pytest.approx(polynomial(T.ones(3)).item())
    assert (function.stats.traces, function.stats.compiled_calls) == (1, 1)
    timer.join()


def test_gradients_are_computed_by_the_interpreter_while_their_program_is_compiled_in_the_background(held: Held) -> None:
    def function(x: T.Tensor, w: T.Tensor) -> T.Tensor:
        return ((x @ w).tanh() * 3.0).sum()

    compiled = T.compile(function)
    x, w = T.ones(2, 3), T.linspace(-1.0, 1.0, 12).reshape(3, 4).detach().requires_grad_()

    def gradient(call: Any) -> list[Any]:
        w.grad = None
        call(x, w).backward()
        return w.grad.tolist()

    expected = gradient(function)
    gradient(compiled)
    held.go_on(compiled._driver.pending.work)
    held._event.clear()
    found = [gradient(compiled) for _ in range(3)]
    stats = compiled.stats
    assert (stats.compiled_calls, stats.machine_calls) == (3, 3)
    [executable] = stats.executables
    [pending] = executable._pending_backward.values()
    assert "gradients by the interpreter, while their program is compiled in the background" in compiled.explain(verbose=True)
    held.go_on(pending.work)
    found += [gradient(compiled) for _ in range(2)]
    assert stats.machine_calls == 3 + 2 + 2 and not executable._pending_backward
    assert found[0] == found[1] == found[2]
    for gradients in found:
        assert np.allclose(gradients, expected, rtol=1e-6, atol=1e-7)


def test_an_error_in_the_background_of_a_backward_program_is_raised_by_a_later_pass(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    def fail(*given: Any) -> Any:
        assert held._event.wait(60)
        raise ArithmeticError("no program")

    function = T.compile(polynomial)
    function(leaf(1, 2))
    held.go_on(function._driver.pending.work)
    held._event.clear()
    monkeypatch.setattr(Executable, "_built_backward", fail)
    function(leaf(1, 2)).backward()
    [pending] = function.stats.executables[0]._pending_backward.values()
    held.go_on(pending.work)
    with pytest.raises(ArithmeticError, match="no program"):
        function(leaf(1, 2)).backward()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_records_again_what_its_parent_compiles_in_the_background(held: Held) -> None:
    function = T.compile(polynomial)
    x = T.ones(3)
    function(x)
    child = os.fork()
    if child == 0:
        try:
            held._event.set()
            with override(compile_wait=math.inf):
                fine = [function(x).item() for _ in range(3)] == pytest.approx([polynomial(x).item()] * 3)
            os._exit(0 if fine and (function.stats.traces, function.stats.compiled_calls) == (2, 2) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    held.go_on(function._driver.pending.work)
    function(x)
    assert (function.stats.traces, function.stats.compiled_calls) == (1, 1)


def test_who_asks_about_a_function_finds_what_was_compiled_in_the_background(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    function, failing = T.compile(polynomial), T.compile(lambda x: x * 2)
    function(T.ones(3))
    held.go_on(function._driver.pending.work)
    assert "def " in function.source() and "polynomial is compiled now: " in function.explain(verbose=True)
    held._event.clear()
    monkeypatch.setattr(RecordingDriver, "_build", lambda *given: held._event.wait(60) and 1 // 0)
    failing(T.ones(3))
    held.go_on(failing._driver.pending.work)
    with override(verify=False), pytest.warns(RuntimeWarning, match="could not compile"):
        assert "[internal_error] the recorded program could not be compiled: ZeroDivisionError" in failing.explain(verbose=True)


def test_explain_tells_that_a_backward_program_could_not_be_compiled_in_the_background(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    function = T.compile(polynomial)
    function(leaf(1, 2))
    held.go_on(function._driver.pending.work)
    held._event.clear()
    monkeypatch.setattr(Executable, "_built_backward", lambda *given: held._event.wait(60) and 1 // 0)
    function(leaf(1, 2)).backward()
    [pending] = function.stats.executables[0]._pending_backward.values()
    held.go_on(pending.work)
    assert "a backward program could not be compiled in the background: ZeroDivisionError" in function.explain(verbose=True)


def test_what_changes_while_a_program_is_compiled_is_seen_by_its_guards(held: Held) -> None:
    class Model(T.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.slope, self.table = T.nn.Linear(3, 3), 2.0, {"a": 1.0}

        def forward(self, x: T.Tensor) -> T.Tensor:
            return (self.layer(x) * self.slope + self.table["a"] + SHIFT[0]).sum()

    model = Model()
    function, x = T.compile(model), T.ones(2, 3)
    changes: list[Any] = [
        lambda: setattr(model.layer, "weight", T.nn.Parameter(T.ones(3, 3))),
        lambda: model.layer.weight.requires_grad_(False),
        lambda: setattr(model, "slope", 3.0),
        lambda: model.table.update(a=-1.0),
        lambda: SHIFT.__setitem__(0, 5.0),
        lambda: setattr(model, "layer", T.nn.Linear(3, 3)),
        lambda: model.layer.weight.data.fill_(0.5),
        lambda: setattr(model.layer, "bias", None),
    ]
    for change in changes:
        function.clear()
        held._event.clear()
        function(x)
        change()
        held.go_on(function._driver.pending.work)
        for _ in range(2):
            model.zero_grad()
            model(x).backward()
            expected = {name: None if p.grad is None else p.grad.tolist() for name, p in model.named_parameters()}
            model.zero_grad()
            found = function(x)
            assert found.item() == pytest.approx(model(x).item(), rel=1e-5)
            found.backward()
            for name, p in model.named_parameters():
                grad = expected[name]
                assert (p.grad is None) == (grad is None) and (grad is None or np.allclose(p.grad.numpy(), grad, rtol=1e-5))
            if function._driver.pending is not None:
                held.go_on(function._driver.pending.work)
        function(x)
        assert function.stats.compiled_calls


def test_functions_inside_a_function_that_is_compiled_in_the_background_hold_its_calls_up_no_more(held: Held) -> None:
    inner = [T.compile(lambda x, i=i: x.sin() * i) for i in range(1, 6)]

    @T.compile
    def outer(x: T.Tensor) -> T.Tensor:
        for function in inner:
            x = function(x)
        return x.sum()

    expected = outer(T.ones(2)).item()
    first = outer._driver.pending.work
    with override(compile_wait=30.0):
        assert outer(T.ones(2)).item() == expected
        assert not any(function._driver.pending.work.has_begun for function in inner)
    held.go_on(first, *[function._driver.pending.work for function in inner])
    assert outer(T.ones(2)).item() == pytest.approx(expected) and outer.stats.compiled_calls == 1


def test_a_function_that_nobody_has_any_more_is_gone_when_its_program_is_compiled(held: Held) -> None:
    function = T.compile(lambda x: (x * 2).sum())
    function(leaf(1, 2)).backward()
    work, gone = function._driver.pending.work, weakref.ref(function)
    del function
    held.go_on(work)
    del work
    for _ in range(100):
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.05)
    assert gone() is None


def test_an_interrupt_while_a_call_waits_gives_up_its_program_which_is_recorded_again(held: Held) -> None:
    def interrupt(*_: Any) -> None:
        raise LookupError

    function, x = T.compile(polynomial), leaf(1, 2)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with override(compile_wait=60.0), pytest.raises(LookupError):
            function(x)
        assert function._driver.pending is None
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(LookupError):
            function.warm_up(x)
        assert not function._wait.reasons
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    held._event.set()
    for _ in range(2):
        assert function.warm_up(x).item() == pytest.approx(polynomial(x).item())
    assert function.stats.compiled_calls and function._driver.pending is None


def test_a_thread_that_was_late_to_record_does_not_take_the_place_of_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    function, x = T.compile(polynomial), T.ones(3)
    turn = recording_driver.recording_turn

    class Late:
        def take(self, ticket: Any) -> bool:
            monkeypatch.setattr(recording_driver, "recording_turn", turn)
            thread = threading.Thread(target=function, args=(x,))  # between the look and the turn
            thread.start()
            thread.join()
            return turn.take(ticket)

    monkeypatch.setattr(recording_driver, "recording_turn", Late())
    assert function(x).item() == polynomial(x).item()
    assert (function.stats.traces, function.stats.early_calls) == (1, 0)


def test_threads_that_warm_up_do_not_leave_a_function_waiting(held: Held) -> None:
    function, x = T.compile(polynomial), T.ones(3)
    threads = [threading.Thread(target=function.warm_up, args=(x,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    held._event.set()
    for thread in threads:
        thread.join()
    assert not function._wait.reasons


def test_an_entry_is_translated_in_the_background_while_it_serves_calls(monkeypatch: pytest.MonkeyPatch, held: Held) -> None:
    going, translate = threading.Event(), RecordedPath.translate
    monkeypatch.setattr(RecordedPath, "translate", lambda path: going.wait(60) and translate(path))
    held._event.set()
    with override(hot_calls=3):
        function = T.compile(lambda x: x * 2)
        for size in (2, 3):
            function.warm_up(T.ones(size))
        for size in (2, 3) * 5:
            assert function(T.ones(size)).tolist() == [2.0] * size
        assert "it is being translated in the background" in function.explain(verbose=True)
        going.set()
        while module._behind:
            time.sleep(0.01)
        before = function.stats.compiled_calls
        for size in (2, 3) * 5:
            assert function(T.ones(size)).tolist() == [2.0] * size
        assert all(path.machine for path in function.paths()) and len(function._table.size_table.items[1]) == 2
        assert function.stats.compiled_calls == before + 10


def test_an_entry_that_was_translated_in_the_background_is_known_although_another_path_came_meanwhile() -> None:
    going = threading.Event()
    with override(hot_calls=20, compile_wait=1.0):
        function = T.compile(lambda x: x * 2)
        function.warm_up(T.ones(2))  # which waits for the program, however long the machine takes for it
        blocker = module.start_work(lambda: going.wait(60), 0.0)
        function(T.ones(3))  # its program waits for its turn, and so does the translation of the other
        for _ in range(30):
            function(T.ones(2))
        going.set()
        assert blocker.wait_until(time.monotonic() + 60)
        while module._behind:
            time.sleep(0.01)
        assert function.explain()  # puts the new path in place
        function(T.ones(3))
        function(T.ones(2))
        assert function._table.paths[0].machine and function._table.size_table.items is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_translates_again_what_its_parent_translates_in_the_background(
    monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    going, translate = threading.Event(), RecordedPath.translate
    monkeypatch.setattr(RecordedPath, "translate", lambda path: going.wait(60) and translate(path))
    held._event.set()
    with override(hot_calls=3):
        function = T.compile(lambda x: x * 2)
        function.warm_up(T.ones(2))
        for _ in range(5):
            function(T.ones(2))
        child = os.fork()
        if child == 0:
            try:
                going.set()
                with override(compile_wait=math.inf):
                    fine = [function(T.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
                os._exit(0 if fine and function.paths()[0].machine is not None else 1)
            finally:
                os._exit(2)
        going.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_process_may_end_while_something_is_compiled_in_the_background() -> None:
    script = "import tracejit as T; f = T.compile(lambda x: x * 2); print(*f(T.ones(2)).tolist(), *f(T.ones(2)).tolist())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRACEJIT_COMPILE_WAIT": "0"}
    said = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout, said.stderr) == (0, "2.0 2.0 2.0 2.0\n", "")


def test_a_hot_function_takes_any_number_of_arguments() -> None:
    with override(hot_calls=3):
        function = T.compile(lambda x, *rest: x * len(rest))
        many = [1.5] * 300
        for _ in range(6):
            assert function(T.ones(2), *many).tolist() == [300.0] * 2
            assert function(T.ones(3), *many).tolist() == [300.0] * 3
            assert function(T.ones(2), *many[:2]).tolist() == [2.0] * 2
