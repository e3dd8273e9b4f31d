"""shadow: compiled calls compared with eager ones while a program runs, and what it says about wrong programs."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import nn
from tracejit.compiled.dispatch import compared
from tracejit.compiled.shadow import Difference
from tracejit.config import override
from tracejit.core.interpreter import pushed_anywhere
from tracejit.core.op import REGISTRY
from tracejit.runtime.program import build


@pytest.fixture(params=["cold", "hot"], autouse=True)
def calls(request: pytest.FixtureRequest) -> Any:
    with override(hot_calls=1 if request.param == "hot" else 0):
        yield request.param
    assert compared[0] is None and pushed_anywhere[0] == 0


def compiled(function: Callable[..., Any], *args: Any, times: int = 4) -> Any:
    fn = tracejit.compile(function)
    for _ in range(times):
        fn(*args)
    return fn


def spoiled(fn: Any, name: str, spoil: Callable[[Any], Any]) -> None:
    """Let the program of the latest path of `fn` compute another thing: the operation `name` with other operands or attributes."""
    entry = fn._path(-1)
    plan = entry.executable
    graph = plan.graph
    nodes = [spoil(node) if node.op.name == name else node for node in graph.nodes]
    assert nodes != list(graph.nodes)
    plan.program = build(dataclasses.replace(graph, nodes=tuple(nodes)), plan._layouts)


def other_operation(name: str) -> Callable[[Any], Any]:
    return lambda node: dataclasses.replace(node, op=REGISTRY[name])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).tanh()).softmax(-1)


def test_right_programs_have_no_differences_and_results_are_eager_ones() -> None:
    net = Net()
    x = tracejit.randn(4, 6)
    fn = compiled(net, x)
    with tracejit.shadow(every=1) as watch:
        for _ in range(3):
            result = fn(x)
            assert np.array_equal(result._array, net(x)._array)
            assert result._node is not None and result._node.name != f"CompiledBackward[{fn._diagnostics.name}]"
    assert watch.compared == 3 and watch.differences == [] and fn.stats.traces == 1


def step(net: Any, optimiser: Any, x: Any, y: Any) -> Any:
    optimiser.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    optimiser.step()
    return loss.detach()


def test_a_training_step_goes_on_as_without() -> None:
    x, y = tracejit.randn(4, 6), tracejit.randn(4, 3)
    nets = [Net()]
    nets.append(copy.deepcopy(nets[0]))
    losses = []
    for net, every in zip(nets, (None, 2), strict=True):
        optimiser = tracejit.optim.Adam(net.parameters(), lr=0.1)
        fn = tracejit.compile(step)
        watch = tracejit.shadow(every) if every else None
        losses.append([fn(net, optimiser, x, y).item() for _ in range(12)])
        if watch is not None:
            watch.end()
            assert watch.compared >= 4 and watch.differences == []
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def noisy(xs: Any) -> Any:
    total = tracejit.zeros(4)
    for x in xs:
        total = (total + x * tracejit.rand(4)).tanh()
    return total


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "writes to an argument": (lambda x: x.mul_(1.5).sum(), lambda: (tracejit.randn(3, 4),)),
    "a view of an argument": (lambda x: (x[1:], x.t().exp()), lambda: (tracejit.randn(3, 4),)),
    "an argument with gaps": (lambda x: x.sin() + 1, lambda: (tracejit.randn(6, 8)[::2, 1::3],)),
    "an expanded argument": (lambda x: x.cumsum(0) * 2, lambda: (tracejit.randn(4, 1).expand(4, 3),)),
    "numbers": (lambda x, k: x * k + k, lambda: (tracejit.randn(5), 3)),
    "integers and masks": (lambda x: (x > 0).sum(), lambda: (tracejit.randn(5),)),
    "sizes that depend on data": (lambda x: x[x > 0].sum(), lambda: (tracejit.tensor([1.0, -1.0, 2.0]),)),
    "steps on the host": (lambda x: tracejit.linalg.inv(x @ x.t() + tracejit.eye(3)), lambda: (tracejit.randn(3, 3),)),
    "nothing computed": (lambda x: x, lambda: (tracejit.randn(3),)),
    "a result in another order": (lambda x: (x * 2).permute(2, 0, 1), lambda: (tracejit.randn(2, 3, 4),)),
    "gradients of leaves": (
        lambda w, x: (w * x).relu().sum(),
        lambda: (tracejit.randn(3, requires_grad=True), tracejit.randn(3)),
    ),
    "draws": (lambda x: nn.functional.dropout(x, 0.5) + tracejit.randn(4), lambda: (tracejit.randn(4),)),
    "draws in a loop": (noisy, lambda: (tracejit.randn(12, 4),)),
    "branches": (lambda x: x * 2 if x.sum() > 0 else x - 1, lambda: (tracejit.randn(4),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_many_kinds_are_compared(name: str) -> None:
    function, arguments = PROGRAMS[name]
    args = arguments()
    fn = compiled(function, *args)
    assert fn.stats.compiled_calls > 0
    with tracejit.shadow(every=1) as watch:
        fn(*args)
        fn(*args)
    assert watch.compared == 2 and watch.differences == []


def test_an_argument_that_is_written_to_is_written_to_once() -> None:
    x = tracejit.zeros(3)
    fn = tracejit.compile(lambda x: x.add_(1.0).sum())
    for _ in range(3):
        fn(x)
    with tracejit.shadow(every=1):
        fn(x)
    assert x.tolist() == [4.0] * 3


def wrong(x: Any) -> Any:
    a = x.exp()
    b = a.sin()  # the line that is wrong
    return (b * 2).sum()


def test_the_first_wrong_operation_of_a_program_is_told_with_its_line() -> None:
    x = tracejit.randn(5)
    fn = compiled(wrong, x)
    spoiled(fn, "sin", other_operation("cos"))
    said = r"wrong: the compiled call differs from the eager one"
    with tracejit.shadow(every=1) as watch, pytest.warns(RuntimeWarning, match=said) as caught:
        result = fn(x)
    assert np.array_equal(result._array, wrong(x)._array)
    (difference,) = watch.differences
    # compiled up to any one operation the graph is right: it is the program that was made of it that is not
    assert difference.kind == "code" and difference.where.startswith(__file__) and "together" in difference.detail
    assert caught[0].filename == __file__


def test_a_wrong_lowering_is_found_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["tracejit.compiled.shadow"]
    x = tracejit.randn(5)
    fn = compiled(wrong, x)
    spoiled(fn, "sin", other_operation("cos"))

    def spoiling(graph: Any, *rest: Any, **named: Any) -> Any:
        nodes = [other_operation("cos")(n) if n.op.name == "sin" else n for n in graph.nodes]
        return build(dataclasses.replace(graph, nodes=tuple(nodes)), *rest, **named)

    monkeypatch.setattr(module, "build", spoiling)
    found: list[Difference] = []
    with tracejit.shadow(every=1, report=found.append):
        fn(x)
    (difference,) = found
    line = next(k for k, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "the line that is wrong" in text)
    assert (difference.kind, difference.operation, difference.where) == ("code", "sin", f"{__file__}:{line}")
    assert re.search(r"5 of 5 elements differ, most at \[\d\]", difference.detail)


def test_a_wrong_backward_pass_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = tracejit.randn(5, requires_grad=True), tracejit.randn(5)
    fn = compiled(lambda w, x: (w * x).tanh().sum(), w, x)
    plan = fn._path(-1).executable
    right = plan.run_backward
    monkeypatch.setattr(plan, "run_backward", lambda *args: [None if g is None else g * 1.5 for g in right(*args)])
    found: list[Difference] = []
    with tracejit.shadow(every=1, report=found.append):
        fn(w, x)
    (difference,) = found
    assert difference.kind == "gradient" and __file__ in difference.where


class Box:
    value: float


def test_a_guard_that_is_missing_is_a_difference_of_the_path() -> None:
    """A path without guards serves whatever it is called with."""
    box = Box()
    box.value = 2.0

    def scaled(x: Any) -> Any:
        return (x * 2).cos() if box.value > 1 else x.sin()

    x = tracejit.randn(3)
    fn = compiled(scaled, x)
    entry = fn._path(-1)
    guards = [guard for guard in entry.recording.guards if "> 1" not in str(guard)]
    assert len(guards) == len(entry.recording.guards) - 1
    object.__setattr__(entry.recording, "guards", tuple(guards))
    object.__setattr__(entry.recording, "structure", None)
    box.value = 0.5
    found: list[Difference] = []
    with tracejit.shadow(every=1, report=found.append):
        result = fn(x)
    assert np.array_equal(result._array, np.sin(x._array))
    assert [d.kind for d in found] == ["path"] and found[0].operation == "sin" and "recorded was mul" in found[0].detail


def test_every_so_many_calls_of_each_function_are_compared() -> None:
    x = tracejit.randn(3)
    f, g = compiled(lambda x: x + 1, x), compiled(lambda x: x - 1, x)
    with tracejit.shadow(every=3) as watch:
        for _ in range(7):
            f(x)
        assert watch.compared == 2
        for _ in range(2):
            g(x)
        assert watch.compared == 2
        g(x)
    assert watch.compared == 3
    f(x)
    assert watch.compared == 3
    assert repr(watch) == "<shadow of every call number 3: 3 compared, 0 differ>"


def test_it_is_in_force_at_once_and_until_its_end() -> None:
    x = tracejit.randn(3)
    fn = compiled(lambda x: x + 1, x)
    watch = tracejit.shadow(every=1)
    fn(x)
    inner = tracejit.shadow(every=1)
    fn(x)
    inner.end()
    fn(x)
    watch.end()
    watch.end()
    fn(x)
    assert (watch.compared, inner.compared) == (2, 1)


def test_errors_are_the_program_s_own() -> None:
    def checked(x: Any, limit: float) -> Any:
        if x.sum() > limit:
            raise ValueError("too large")
        return x * 2

    x = tracejit.ones(3)
    fn = compiled(checked, x, 5.0)
    with tracejit.shadow(every=1) as watch:
        with pytest.raises(ValueError, match="too large"):
            fn(x, 1.0)
        fn(x, 5.0)
    assert watch.differences == [] and watch.compared == 1


def test_calls_in_threads_are_compared() -> None:
    x = tracejit.randn(3)
    fn = compiled(lambda x: x.exp().sum(), x)
    results: list[float] = []
    with tracejit.shadow(every=2) as watch:
        threads = [threading.Thread(target=lambda: results.extend(fn(x).item() for _ in range(20))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(np.float32(results))) <= 2 and len(results) == 80
    assert watch.compared > 0 and watch.differences == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_goes_on_comparing() -> None:
    x = tracejit.randn(3)
    fn = compiled(lambda x: x + 1, x)
    with tracejit.shadow(every=1) as watch:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
            child = os.fork()
        if child == 0:
            fn(x)
            os._exit(watch.compared)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.mark.parametrize(("every", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_how_often_is_a_positive_int(every: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="every"):
        tracejit.shadow(every=every)


def test_tolerances_can_be_given() -> None:
    x = tracejit.rand(100)
    fn = compiled(lambda x: (x.exp() * 3).sum() / 7, x)
    found: list[Difference] = []
    with tracejit.shadow(every=1, rtol=0.0, atol=0.0, report=found.append):
        fn(x)
    with tracejit.shadow(every=1, report=found.append) as watch:
        fn(x)
    assert watch.differences == [] and all(d.kind in ("code", "gradient") for d in found)
