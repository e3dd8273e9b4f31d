"""compiled/hot_entry.py: paths that serve many calls do the same from machine code, and hand over what they do not serve."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit import nn, optim
from tracejit.capture.recording.entry import cell_of
from tracejit.compiled import hot_entry
from tracejit.config import override
from tracejit.cpython import c_api
from tracejit.cpython.words import supported

pytestmark = pytest.mark.skipif(not c_api.supported(), reason="entries are interpreted on this Python")

HOT = 3


@pytest.fixture(autouse=True)
def hot_soon() -> Any:
    with override(hot_calls=HOT):
        yield


def heated(function: Any, *args: Any) -> Any:
    for _ in range(HOT + 1):
        function(*args)
    assert function._table.first.machine is not None, function.explain()
    return function


def test_a_path_becomes_machine_code_when_it_has_served_so_many_calls() -> None:
    f = tj.compile(lambda x: x * 2 + 1)
    x = tj.ones(3)
    for _ in range(HOT):
        f(x)
    assert f._table.first.machine is None and f"until {HOT} were served" in f.explain(verbose=True)
    f(x)
    assert f._table.first.machine is not None and "calls: from machine code" in f.explain(verbose=True)
    before = f.stats.compiled_calls
    assert f(x).tolist() == [3.0, 3.0, 3.0] and f.stats.compiled_calls == before + 1


def test_a_very_long_path_stays_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_entry, "_LONGEST", 10)
    f = tj.compile(lambda x: x + 1)
    for _ in range(HOT + 3):
        assert f(tj.ones(2)).tolist() == [2.0, 2.0]
    assert f._table.first.machine is None and "statements (10 at most)" in f.explain(verbose=True)


def test_zero_hot_calls_leave_paths_in_python() -> None:
    with override(hot_calls=0):
        f = tj.compile(lambda x: x + 1)
        for _ in range(300):
            f(tj.ones(2))
        assert f._table.first.machine is None and "calls: from Python" in f.explain(verbose=True)


def test_functions_that_call_functions_with_cells_become_machine_code_and_see_what_is_in_them() -> None:
    scale, other = tj.full((2,), 2.0), tj.full((2,), 5.0)

    def inner(x: Any) -> Any:
        return x * scale

    def function(x: Any) -> Any:
        return inner(x) + 1

    f, x, first = tj.compile(function), tj.ones(2), inner
    heated(f, x)
    scale = tj.full((2,), 3.0)
    assert f(x).tolist() == [4.0, 4.0]
    inner = lambda x: x * other
    for _ in range(HOT + 3):
        assert f(x).tolist() == [6.0, 6.0]
    inner = lambda x: x - 1  # it has no cells
    assert f(x).tolist() == [1.0, 1.0]
    inner = first
    assert f(x).tolist() == [4.0, 4.0]


def test_a_failed_guard_goes_on_to_other_paths_and_to_eager() -> None:
    f = tj.compile(lambda x: x * 2)
    heated(f, tj.ones(3))
    assert f(tj.ones(4)).shape == (4,)
    heated(f, tj.ones(4))
    assert f(tj.ones(3)).tolist() == [2.0] * 3 and f(tj.ones(4)).tolist() == [2.0] * 4
    assert f(tj.ones(2, dtype=tj.int64)).dtype is tj.int64
    assert f(5) == 10 and f("ab") == "abab"


def test_an_exit_hands_over_with_the_same_arguments() -> None:
    def branchy(x: Any, scale: float) -> Any:
        return x * scale if x.sum() > 0 else -x / scale

    f = tj.compile(branchy)
    positive, negative = tj.tensor([1.0, 2.0]), tj.tensor([-1.0, -2.0])
    for _ in range(4 * HOT):
        assert f(positive, 2.0).tolist() == [2.0, 4.0]
        assert f(negative, 2.0).tolist() == [0.5, 1.0]
    assert all(path.machine is not None for path in f._table.paths if path is f._table.first)
    assert f.stats.exits > 0


def test_keyword_arguments_go_the_way_through_python() -> None:
    f = tj.compile(lambda x, y=2.0: x * y)
    x = tj.ones(2)
    heated(f, x)
    assert f(x, y=3.0).tolist() == [3.0, 3.0] and f(x=x).tolist() == [2.0, 2.0] and f(x).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        f(x, 1, 2)


def test_numbers_reach_the_program_and_too_large_ones_do_not() -> None:
    f = tj.compile(lambda x, a, b: x * a + b)
    x = tj.ones(2, dtype=tj.float64)
    heated(f, x, 2.0, 3)
    assert f(x, 0.5, -7).tolist() == [-6.5, -6.5]
    assert f(x, float("inf"), 1).tolist() == [float("inf")] * 2
    assert f(x, 2.0, 10**15).tolist() == [10**15 + 2.0] * 2
    eager = (lambda x, a, b: x * a + b)(x, 2.0, 2**70)
    assert f(x, 2.0, 2**70).tolist() == eager.tolist()
    assert f(x, 2.0, 3).tolist() == [5.0, 5.0]


def test_every_guard_is_still_checked() -> None:
    scale = [2.0]
    f = tj.compile(lambda x: x * scale[0])
    x = tj.ones(2)
    heated(f, x)
    scale[0] = 5.0
    assert f(x).tolist() == [5.0, 5.0]
    with tj.no_grad():
        y = tj.ones(2, requires_grad=True)
        assert not f(y).requires_grad
    assert f(y).requires_grad
    y.data = tj.ones(3)
    assert f(y).shape == (3,)


def test_gradients_come_from_the_same_node_of_the_tape() -> None:
    f = tj.compile(lambda x, y: (x * y).tanh())
    tj.manual_seed(0)  # where tanh comes close to 1, its derivative loses digits
    x, y = tj.randn(5, requires_grad=True), tj.randn(5, requires_grad=True)
    heated(f, x, y)
    f(x, y).sum().backward()
    expected = tj.autograd.grad((x * y).tanh().sum(), (x, y))
    np.testing.assert_allclose(x.grad.numpy(), expected[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(y.grad.numpy(), expected[1].numpy(), rtol=1e-5)
    out = f(x, y)
    with tj.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_training_steps_are_eagers_steps() -> None:
    def train(compiled: bool) -> list[Any]:
        tj.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        optimizer = optim.Adam(model.parameters(), lr=0.01)

        def step(x: Any, target: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        run = tj.compile(step) if compiled else step
        x, target = tj.randn(4, 6), tj.tensor([0, 1, 2, 1])
        losses = [run(x, target).item() for _ in range(4 * HOT)]
        if compiled:
            assert run._table.first.machine is not None, run.explain()
            optimizer.param_groups[0]["lr"] = 0.5
        else:
            optimizer.param_groups[0]["lr"] = 0.5
        losses += [run(x, target).item() for _ in range(4)]
        return [
            *losses,
            *[p.detach().numpy().copy() for p in model.parameters()],
            *[p.grad.numpy().copy() for p in model.parameters()],
        ]

    for eager, compiled in zip(train(False), train(True), strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=2e-5, atol=1e-6)


def test_nothing_is_kept_alive_and_nothing_is_freed_too_early() -> None:
    f = tj.compile(lambda x, y: (x + y, x * y))
    x, y = tj.ones(4), tj.ones(4)
    heated(f, x, y)
    counts = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(x._array)
    results = [f(x, y) for _ in range(200)]
    gone = weakref.ref(results[0][0])
    assert all(a.tolist() == [2.0] * 4 and b.tolist() == [1.0] * 4 for a, b in results)
    del results
    gc.collect()
    assert gone() is None
    after = sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(x._array)
    assert all(now <= then for now, then in zip(after, counts, strict=True))


def test_calls_survive_that_the_function_forgets_its_paths() -> None:
    f = tj.compile(lambda x: x - 1)
    x = tj.ones(2)
    for _ in range(5):
        heated(f, x)
        f.clear()
        assert f(x).tolist() == [0.0, 0.0]


def test_a_finalizer_may_call_the_function_while_it_makes_its_results() -> None:
    f = tj.compile(lambda x: (x * 3, x + 3, x - 3))
    x = tj.ones(3)
    heated(f, x)
    seen = []

    class Cycle:
        def __del__(self) -> None:
            seen.append([r.tolist() for r in f(x * 2)])

    threshold = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for _ in range(300):
            cycle = Cycle()
            cycle.own = cycle  # type: ignore[attr-defined]
            del cycle
            assert [r.tolist() for r in f(x)] == [[3.0] * 3, [4.0] * 3, [-2.0] * 3]
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert seen and all(r == [[6.0] * 3, [5.0] * 3, [-1.0] * 3] for r in seen)


def test_threads_share_an_entry() -> None:
    f = tj.compile(lambda x, s: (x * s).sum())
    heated(f, tj.ones(100), 1.0)
    wrong = []

    def work(k: int) -> None:
        x = tj.ones(100) * k
        for i in range(300):
            if f(x, float(i)).item() != 100.0 * k * i:
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_compiled_method_and_a_compiled_module_are_served_from_machine_code() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

        @tj.compile
        def forward(self, x: Any) -> Any:
            return self.inner(x).relu()

    model, x = Model(), tj.randn(4, 3)
    expected = model.inner(x).relu().tolist()
    for _ in range(HOT + 3):
        np.testing.assert_allclose(model(x).tolist(), expected, rtol=1e-6)
    assert Model.forward._table.first.machine is not None
    model.inner = nn.Linear(3, 5)
    assert model(x).shape == (4, 5)


def test_the_instance_of_a_method_may_become_one_of_another_class_and_is_not_kept_alive() -> None:
    class Meter:
        factor = 2.0

        def __init__(self) -> None:
            self.n = 0

        def update(self, x: tj.Tensor) -> tj.Tensor:
            self.n += 1
            return x * self.factor

    class Other(Meter):
        factor = 5.0

    meter, x = Meter(), tj.ones(2)
    f = heated(tj.compile(meter.update), x)
    assert f(x).tolist() == [2.0, 2.0] and meter.n == HOT + 2
    meter.__class__ = Other
    assert f(x).tolist() == [5.0, 5.0] and meter.n == HOT + 3
    meter.factor = 7.0
    assert f(x).tolist() == [7.0, 7.0] and meter.n == HOT + 4
    gone = weakref.ref(meter)
    del meter, f
    gc.collect()
    assert gone() is None


def test_a_tensor_subclass_with_attributes_of_its_own_is_read_through_them() -> None:
    class Loud(tj.Tensor):
        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    f = tj.compile(lambda x: x + 1)
    x = Loud([1.0, 2.0])
    for _ in range(HOT + 4):
        assert f(x).tolist() == [2.0, 3.0]


def test_what_machine_code_raises_is_what_the_program_raises() -> None:
    f = tj.compile(lambda x, i: x[i])
    x = tj.arange(4)
    for i in range(HOT + 3):
        assert f(x, i % 4).item() == i % 4
    with pytest.raises(IndexError):
        f(x, 9)
    assert f(x, 2).item() == 2


def test_a_translation_that_fails_does_not_interrupt_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise SystemError("broken")

    class Owner:
        def __init__(self) -> None:
            self.calls = 0

    owner, total = Owner(), tj.zeros(2)

    def function(x: Any) -> Any:
        total.add_(x)
        owner.calls += 1
        return x * 2

    f = tj.compile(function)
    monkeypatch.setattr(sys.modules["tracejit.compiled.recorded_path"], "machine_entry", broken)
    for _ in range(HOT):
        f(tj.ones(2))
    with override(verify=False), pytest.warns(RuntimeWarning, match="broken"):
        assert f(tj.ones(2)).tolist() == [2.0, 2.0]
    assert f(tj.ones(2)).tolist() == [2.0, 2.0]
    assert owner.calls == HOT + 2 and total.tolist() == [HOT + 2.0] * 2 and "translation failed" in f.explain(verbose=True)


class Scale:
    """What a program makes anew for each call."""

    bias = 1.0

    def __init__(self, weight: Any, by: Any) -> None:
        self.weight = weight
        self.by = by
        self.name = "scale"


def test_objects_made_anew_for_each_call_are_looked_at_without_a_table() -> None:
    def scaled(x: Any, s: Scale) -> Any:
        return (x * s.weight + s.bias) * s.by if s.name == "scale" else x

    with override(hot_calls=400):
        f, kept = tj.compile(scaled), tj.compile(scaled)
        w, same = tj.full((2,), 3.0), Scale(tj.full((2,), 3.0), 2.0)
        for k in range(450):
            assert f(tj.ones(2), Scale(w, float(k))).tolist() == [4.0 * k] * 2
            assert kept(tj.ones(2), same).tolist() == [8.0, 8.0]
    assert f._table.first.machine is not None and cell_of(f._table.first.run) is None
    assert kept._table.first.machine is not None and (cell_of(kept._table.first.run) is not None) == supported()
    assert f.stats.eager_calls == kept.stats.eager_calls == 1
    other = Scale(w, 2.0)
    other.name = "other"
    assert f(tj.ones(2), other).tolist() == [1.0, 1.0] and f.stats.eager_calls == 2
    assert f(tj.ones(2), Scale(tj.full((1,), 3.0), 2.0)).tolist() == [8.0, 8.0] and f.stats.eager_calls == 3
    assert f(tj.ones(2), Scale(w, 2)).tolist() == [8.0, 8.0] and f.stats.eager_calls == 4
    try:
        Scale.bias = 2.0
        assert f(tj.ones(2), Scale(w, 2.0)).tolist() == [10.0, 10.0]
    finally:
        Scale.bias = 1.0
    assert f(tj.ones(2), Scale(w, 5.0)).tolist() == [20.0, 20.0]


def test_gradients_through_modules_made_anew_for_each_call_outlive_that_their_path_becomes_machine_code() -> None:
    """Whose nodes hold tensors in other parts from then on."""
    f, waiting = tj.compile(lambda x, m: m(x)), []
    with override(hot_calls=400):
        for k in range(450):
            model = nn.Linear(3, 2)
            total = f(tj.full((2, 3), float(k)), model).sum()
            if k in (0, 5, 390, 399, 400, 410):
                waiting.append((k, model, total))
                continue
            total.backward()
            assert model.weight.grad is not None and model.weight.grad.tolist() == [[2.0 * k] * 3] * 2
    assert f._table.first.machine is not None and cell_of(f._table.first.run) is None and f.stats.eager_calls == 1
    for k, model, total in waiting:
        total.backward()
        assert model.weight.grad is not None and model.weight.grad.tolist() == [[2.0 * k] * 3] * 2
