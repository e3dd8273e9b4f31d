"""capture/found_places.py, freed_graphs.py: loops that train, and others whose source does not show where steps store, against eager."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.branching_programs import loops_of_paths, outlined
from tests.test_branching_loops import messages
from tracejit import nn, optim
from tracejit.nn import functional as F
from tracejit.utils.data import DataLoader, TensorDataset

CALLS = 8


class Record:
    """What steps leave outside, by methods that the source of a loop does not show."""

    def __init__(self) -> None:
        self.steps, self.loss, self.last = 0, 0.0, None
        self.counts = {"good": 0, "bad": 0}

    def note(self, loss: float) -> None:
        for name, value in (("steps", self.steps + 1), ("loss", loss)):
            setattr(self, name, value)


def model_of(seed: int) -> Any:
    T.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def data_of(seed: int, rows: int) -> tuple[Any, Any]:
    T.manual_seed(100 + seed)
    x = T.randn(rows, 3)
    return x, T.stack([x[:, 0].sin(), 0.5 * x[:, 1]], 1)


# -- programs: given a model, its optimizer, rows of data, and a record
def until_it_is_good(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    for k in range(len(x)):  # noqa: B007
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if loss.item() < 0.1:
            break
    return k


def patience(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    best, bad, losses = math.inf, 0, []
    for _ in range(20):
        model.train()
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        model.eval()
        with T.no_grad():
            loss = F.mse_loss(model(x[:5]), y[:5]).item()
        losses.append(loss)
        if loss < best - 1e-3:
            best, bad = loss, 0
        else:
            bad += 1
            if bad > 2:
                break
    return best, losses


def online(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    mistakes = 0
    for row, target in zip(x, y):  # noqa: B905
        loss = F.mse_loss(model(row), target)
        if loss.item() < 0.05:
            continue
        mistakes += 1
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        record.note(loss.item())
    return mistakes


def by_hand(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    parameters = list(model.parameters())
    for k in range(len(x)):  # noqa: B007
        loss = F.mse_loss(model(x), y)
        loss.backward()
        with T.no_grad():
            for p in parameters:
                p -= 0.05 * p.grad
                p.grad.zero_()
        if loss.item() < 0.1:
            break
    return k, loss.item()


def by_data(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    parameters = list(model.parameters())
    for k in range(len(x)):  # noqa: B007
        loss = F.mse_loss(model(x), y)
        loss.backward()
        for p in parameters:
            p.data -= 0.05 * p.grad.data
            p.grad = None
        if loss < 0.1:
            break
    return k


def by_grad(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    parameters = list(model.parameters())
    for k in range(len(x)):  # noqa: B007
        loss = F.mse_loss(model(x), y)
        with T.no_grad():
            for p, g in zip(parameters, T.autograd.grad(loss, parameters), strict=True):
                p.sub_(0.05 * g)
        record.last = loss.detach()
        if record.last < 0.1:
            break
    return k


def epochs(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    total = 0.0
    for _ in range(3):
        for k in range(0, 12, 4):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x[k : k + 4]), y[k : k + 4])
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total


def schedule(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(12):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
    return loss.item(), scheduler.get_last_lr(), scheduler.last_epoch


def one_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def in_a_function(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    loss = 0.0
    for _ in range(len(x)):
        loss += one_step(model, optimizer, x, y)
    return loss


def prints(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    for k in range(len(x)):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if k % 5 == 0:
            print(f"{k}: {loss.item():.3f}", file=sys.stdout)
    return record.steps


def gives_the_loss(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    for _ in range(len(x)):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if loss.item() < 0.1:
            return loss, True
    return loss, False


def counts_by_key(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    found = {0: 0, 1: 0}
    for row, target in zip(x, y, strict=True):
        loss = F.mse_loss(model(row), target)
        found[int(loss.item() > 0.5)] += 1
        record.counts["bad" if loss.item() > 0.5 else "good"] += 1
    return found


def of_its_own(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
    weight = T.zeros(3, 2, requires_grad=True)
    own = optim.Adam([weight], lr=0.1)
    for _ in range(len(x)):
        own.zero_grad()
        loss = F.mse_loss(x @ weight, y)
        loss.backward()
        own.step()
        if loss.item() < 0.1:
            break
    return weight, own.state[weight]["step"], loss.item()


PROGRAMS = [
    until_it_is_good, patience, online, by_hand, by_data, by_grad, epochs, schedule, in_a_function, prints, gives_the_loss, counts_by_key,
    of_its_own,
]  # fmt: skip
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.05),
    "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.02),
    "adamw": lambda p: optim.AdamW([{"params": [*p][:2]}, {"params": [*p][2:], "lr": 0.01}], lr=0.02),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05),
}


@pytest.fixture
def loaded_rows() -> Callable[[Any, Any], Any]:
    """Makes a loader of rows and targets."""
    return lambda x, y: DataLoader(TensorDataset(x, y), batch_size=2)


def numbers(x: Any) -> Any:
    """A value with arrays for tensors, and what is known of these: gradients, and whether a backward pass may begin there."""
    if isinstance(x, T.Tensor):
        freed = None
        if x.requires_grad and not x.is_leaf:
            with pytest.raises(RuntimeError, match="freed"):
                x.sum().backward()
            freed = True
        grad = None if not x.is_leaf or x.grad is None else x.grad.numpy().copy()
        return x.requires_grad, x.is_leaf, freed, x.detach().numpy().copy(), grad
    if isinstance(x, dict):
        return {k: numbers(y) for k, y in x.items()}
    return [*map(numbers, x)] if isinstance(x, list | tuple) else x


def assert_same(expected: Any, found: Any) -> None:
    assert type(expected) is type(found), (expected, found)
    if isinstance(expected, dict):
        assert [*expected] == [*found]
        assert_same([*expected.values()], [*found.values()])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(found)
        for x, y in zip(expected, found, strict=True):
            assert_same(x, y)
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    else:
        assert expected == found


class Run:
    """A model that one side trains."""

    def __init__(self, seed: int, optimizer: str) -> None:
        self.model = model_of(seed)
        self.optimizer = OPTIMIZERS[optimizer](list(self.model.parameters()))
        self.record = Record()

    def call(self, function: Any, seed: int, rows: int) -> Any:
        """What a call gives, and all that it may have changed."""
        x, y = data_of(seed, rows)
        result = function(self.model, self.optimizer, x, y, self.record)
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        modes = [module.training for module in self.model.modules()]
        parameters = list(self.model.parameters())
        return numbers([result, parameters, list(self.optimizer.state.values()), groups, modes, vars(self.record)])


def agree(function: Any, compiled: Any, optimizer: str, keeps: bool, same_size: bool = False) -> None:
    """Calls give and leave what eager ones do.  keeps: whether all calls train the same model."""
    runs = [Run(0, optimizer), Run(0, optimizer)]
    for k in range(CALLS):
        runs = runs if keeps else [Run(k, optimizer), Run(k, optimizer)]
        rows = 14 if same_size else 14 + 3 * k % 7
        assert_same(runs[0].call(function, k, rows), runs[1].call(compiled, k, rows))


@pytest.mark.parametrize("keeps", [True, False], ids=["one-model", "new-models"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_loops_that_train_are_nodes_and_leave_what_eager_ones_do(program: Any, keeps: bool) -> None:
    compiled = outlined(program)
    agree(program, compiled, "adam", keeps)
    assert not compiled.reasons, messages(compiled)
    assert compiled.stats.compiled_calls >= CALLS - 4 and compiled.stats.piecewise_calls == 0, compiled.explain()
    assert all(loops_of_paths(compiled)), compiled.explain()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("program", [until_it_is_good, online], ids=lambda f: f.__name__)
def test_every_optimizer_may_run_in_such_a_loop(program: Any, optimizer: str) -> None:
    compiled = outlined(program)
    agree(program, compiled, optimizer, keeps=True)
    assert not compiled.reasons and compiled.stats.compiled_calls >= CALLS - 4, compiled.explain()


@pytest.mark.parametrize("program", [until_it_is_good, in_a_function, gives_the_loss], ids=lambda f: f.__name__)
def test_a_loop_that_trains_is_found_by_its_backward_passes(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    agree(program, compiled, "adam", keeps=False, same_size=True)
    stats = compiled.stats
    assert stats.traces <= 3 and stats.compiled_calls >= CALLS - 3, compiled.explain()
    assert all(loops_of_paths(compiled)), compiled.explain()


def test_a_loop_that_trains_in_a_way_that_no_node_has_runs_in_pieces() -> None:
    def keeps_graphs(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
        total = 0.0
        for _ in range(10):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total = total + loss
        return total

    compiled = T.compile(keeps_graphs, wait=True)
    agree(keeps_graphs, compiled, "sgd", keeps=False, same_size=True)
    assert compiled.stats.piecewise_calls >= CALLS - 3, compiled.explain()
    assert "since each step of a loop takes gradients" in " ".join(compiled.explain().split())


def test_a_loop_over_batches_of_a_loader_runs_in_pieces(loaded_rows: Any) -> None:
    def epoch(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
        total = 0.0
        for rows, targets in loaded_rows(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(rows), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    compiled = T.compile(epoch, wait=True)
    agree(epoch, compiled, "adam", keeps=True)
    assert compiled.stats.piecewise_calls >= CALLS - 3, compiled.explain()
    assert any("it goes over neither a range, nor a tensor" in reason.message for reason in compiled.reasons)


def test_the_loss_after_the_loop_is_freed_as_in_eager_mode() -> None:
    compiled = outlined(gives_the_loss)
    for k in range(CALLS):
        run = Run(k, "sgd")
        loss, _ = compiled(run.model, run.optimizer, *data_of(k, 14), run.record)
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match="freed"):
            loss.backward()
    assert compiled.stats.compiled_calls >= CALLS - 4


def test_gradients_from_before_the_loop_do_not_matter_where_each_step_clears_them() -> None:
    compiled, runs = outlined(until_it_is_good), [Run(0, "sgd"), Run(0, "sgd")]
    for k in range(CALLS):
        for run in runs:
            for p in run.model.parameters():
                p.grad = None if k % 2 else T.ones_like(p) * k
        assert_same(runs[0].call(until_it_is_good, k, 14), runs[1].call(compiled, k, 14))
    assert compiled.stats.guard_misses == 0 and not compiled.reasons, compiled.explain()  # what it branches on are losses


def test_a_step_that_may_read_a_gradient_finds_that_from_before_the_loop() -> None:
    def adds_up(weight: Any, xs: Any, bound: float) -> Any:
        for x in xs:
            (weight * x).sum().backward()
            if weight.grad.sum() > bound:
                break
        return x

    compiled = outlined(adds_up)
    for k in range(CALLS):
        found = []
        for function in (adds_up, compiled):
            T.manual_seed(k)
            weight = T.ones(3, requires_grad=True)
            weight.grad = None if k % 2 else T.full((3,), 0.25)
            before = weight.grad
            x = function(weight, T.rand(12, 3), 4.0)
            found.append((numbers([x, weight, weight.grad]), weight.grad is before))
        assert_same(*found)
    assert not compiled.reasons and compiled.stats.compiled_calls >= CALLS - 4, compiled.explain()


def test_an_earlier_graph_through_a_parameter_is_stale_after_the_loop() -> None:
    def updated(weight: Any, xs: Any) -> Any:
        early = (weight * weight).sum()
        for x in xs:
            weight.grad = None
            ((weight * x).sum() - 1).square().backward()
            with T.no_grad():
                weight -= 0.1 * weight.grad
            if weight.sum() > 5:
                break
        return early

    compiled = outlined(updated)
    for k in range(CALLS):
        T.manual_seed(k)
        xs = T.rand(9, 3)
        for function in (updated, compiled):
            weight = T.ones(3, requires_grad=True)
            early = function(weight, xs)
            with pytest.raises(RuntimeError, match=r"in place|inplace"):
                early.backward()


@pytest.mark.parametrize("retain", [False, True])
def test_a_graph_from_before_the_loop_is_freed_by_the_step_that_goes_through_it(retain: bool) -> None:
    def adds_up(weight: Any, xs: Any, bound: float) -> Any:
        early = (weight * weight).sin()
        for x in xs:
            (early * x).sum().backward(retain_graph=retain)
            if x.sum() > bound:
                break
        return weight.grad

    compiled = outlined(adds_up)
    for k in range(CALLS):
        T.manual_seed(k)
        xs, found = T.rand(6, 3), []
        for function in (adds_up, compiled):
            weight = T.ones(3, requires_grad=True)
            try:
                found.append(numbers([function(weight, xs, (100.0, 1.0, -1.0)[k % 3]), weight.grad]))
            except RuntimeError as error:
                found.append(str(error))
        assert_same(*found)
    assert any("frees the graph" in reason.message for reason in compiled.reasons) is not retain, compiled.explain()


def test_an_error_in_a_step_leaves_parameters_and_places_as_eager_mode_does() -> None:
    def fails(model: Any, optimizer: Any, x: Any, y: Any, record: Any) -> Any:
        for k in range(9):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            record.note(loss.item())
            if loss.item() < 0.4 and k > 3:
                raise ValueError(f"step {k}")
        return k

    compiled, runs = outlined(fails), [Run(0, "adam"), Run(0, "adam")]
    for k in range(CALLS):
        texts = []
        for run, function in zip(runs, (fails, compiled), strict=True):
            try:
                function(run.model, run.optimizer, *data_of(k, 14), run.record)
                texts.append("")
            except ValueError as error:
                texts.append(str(error))
        assert texts[0] == texts[1]
        assert_same(runs[0].call(until_it_is_good, k, 2), runs[1].call(until_it_is_good, k, 2))
