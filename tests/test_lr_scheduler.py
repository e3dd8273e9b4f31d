"""Schedules of the learning rate: the same rates and momenta as PyTorch's, also after resuming."""

from __future__ import annotations

import bisect
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import nn, optim
from tracejit.optim import lr_scheduler

Make = Callable[[Any, Any], Any]

SCHEDULES: dict[str, Make] = {
    "step": lambda s, o: s.StepLR(o, step_size=3, gamma=0.5),
    "multi_step": lambda s, o: s.MultiStepLR(o, milestones=[2, 5, 5]),
    "exponential": lambda s, o: s.ExponentialLR(o, gamma=0.9),
    "lambda": lambda s, o: s.LambdaLR(o, lr_lambda=lambda epoch: 1 / (1 + epoch)),
    "lambda_per_group": lambda s, o: s.LambdaLR(o, lr_lambda=[lambda epoch: 0.5**epoch, lambda epoch: 1.0 + epoch]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lr_lambda=lambda epoch: 0.8 + 0.01 * epoch),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=5, eta_min=0.01),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.25, end_factor=0.9, total_iters=4),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.5, total_iters=3),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=6, power=2.0),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.001),
    "cyclic": lambda s, o: s.CyclicLR(o, base_lr=[0.01, 0.1], max_lr=1.0, step_size_up=3, step_size_down=4, mode="triangular2"),
    "cyclic_exp": lambda s, o: s.CyclicLR(o, base_lr=0.01, max_lr=1.0, step_size_up=3, mode="exp_range", gamma=0.9),
    "cyclic_own": lambda s, o: s.CyclicLR(o, 0.01, 1.0, 3, scale_fn=lambda x: 1 / x, cycle_momentum=False),
    "one_cycle": lambda s, o: s.OneCycleLR(o, max_lr=[1.0, 0.5], total_steps=20),
    "one_cycle_three": lambda s, o: s.OneCycleLR(o, 1.0, epochs=5, steps_per_epoch=4, three_phase=True, anneal_strategy="linear"),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.5), s.CosineAnnealingLR(o, 6)], milestones=[4, 8]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.9)], optimizer=o),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {"SGD": {"momentum": 0.5}, "Adam": {"betas": (0.7, 0.95)}}


def optimizer_of(library: Any, name: str) -> Any:
    groups = [{"params": [library.nn.Parameter(library.ones(1))], "lr": lr} for lr in (1.0, 0.1)]
    return getattr(library.optim, name)(groups, lr=0.1, **OPTIMIZERS[name])


def scheduled(library: Any, make: Make, optimizer: str, resume_at: int | None) -> list[Any]:
    stepper = optimizer_of(library, optimizer)
    schedule = make(library.optim.lr_scheduler, stepper)
    seen = []
    for epoch in range(18):
        seen.append([[group["lr"], group.get("momentum", 0.0), *group.get("betas", ())] for group in stepper.param_groups])
        assert schedule.get_last_lr() == [group["lr"] for group in stepper.param_groups]
        stepper.step()
        schedule.step()
        if epoch == resume_at:
            saved = pickle.loads(pickle.dumps((stepper.state_dict(), schedule.state_dict())))
            stepper = optimizer_of(library, optimizer)
            schedule = make(library.optim.lr_scheduler, stepper)
            stepper.load_state_dict(saved[0])
            schedule.load_state_dict(saved[1])
    return seen


@pytest.mark.parametrize("resume_at", [None, 6])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_agree_with_torch(name: str, optimizer: str, resume_at: int | None) -> None:
    torch = pytest.importorskip("torch")
    runs = [scheduled(library, SCHEDULES[name], optimizer, resume_at) for library in (tracejit, torch)]
    np.testing.assert_allclose(*runs, rtol=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_resumes_from_its_state(name: str) -> None:
    assert scheduled(tracejit, SCHEDULES[name], "SGD", 7) == scheduled(tracejit, SCHEDULES[name], "SGD", None)


@pytest.mark.parametrize("options", [
    {"patience": 1}, {"patience": 0, "cooldown": 2, "factor": 0.5}, {"mode": "max", "patience": 1, "threshold_mode": "abs"},
    {"patience": 0, "min_lr": [0.2, 0.01], "threshold": 0.5}, {"mode": "max", "patience": 1, "threshold": 0.3},
])  # fmt: skip
def test_the_rate_falls_on_a_plateau_as_in_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")

    def rates(library: Any) -> list[Any]:
        stepper = optimizer_of(library, "SGD")
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(stepper, **options)
        seen = []
        for i, metric in enumerate([5.0, 4.0, 4.0, 4.1, 3.9999, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.2, 9.0, 10.0]):
            schedule.step(library.tensor(metric) if i % 2 else metric)
            seen.append(list(schedule.get_last_lr()))
            if i == 6:
                state = schedule.state_dict()
                schedule = library.optim.lr_scheduler.ReduceLROnPlateau(stepper, **options)
                schedule.load_state_dict({k: v for k, v in state.items() if k != "optimizer"})
        return [*seen, [schedule.best, schedule.num_bad_epochs]]

    np.testing.assert_allclose(rates(tracejit), rates(torch), rtol=1e-12)


def test_an_epoch_can_be_given_as_in_torch() -> None:
    torch = pytest.importorskip("torch")

    def rates(library: Any) -> list[Any]:
        seen = []
        for name in ("step", "multi_step", "exponential", "cosine", "linear", "constant", "polynomial", "restarts", "lambda"):
            stepper = optimizer_of(library, "SGD")
            schedule = SCHEDULES[name](library.optim.lr_scheduler, stepper)
            for epoch in (4, 0, 7, 2):
                schedule.step(epoch)
                seen.append([group["lr"] for group in stepper.param_groups])
        return seen

    with pytest.warns(UserWarning, match="epoch"):
        ours = rates(tracejit)
    with pytest.warns(UserWarning, match="epoch"):
        theirs = rates(torch)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_rate_that_is_a_tensor_is_written_in_place() -> None:
    rate = tracejit.tensor(1.0)
    stepper = optim.SGD([nn.Parameter(tracejit.ones(1))], lr=rate)
    schedule = lr_scheduler.ExponentialLR(stepper, 0.5)
    schedule.step()
    schedule.step()
    assert stepper.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25
    assert schedule.get_last_lr()[0].item() == 0.25
    assert schedule.get_last_lr()[0] is not rate


def test_a_program_can_derive_schedules() -> None:
    class Halving(lr_scheduler._LRScheduler):
        def get_lr(self) -> list[float]:
            return [base / 2**self.last_epoch for base in self.base_lrs]

    stepper = optimizer_of(tracejit, "SGD")
    schedule = Halving(stepper)
    schedule.step()
    assert schedule.get_last_lr() == [0.5, 0.05]


def test_wrong_schedules_are_errors() -> None:
    stepper = optimizer_of(tracejit, "SGD")
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        lr_scheduler.StepLR(3, 1)
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(stepper, 1, last_epoch=3)
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas, but got 1"):
        lr_scheduler.LambdaLR(stepper, [lambda epoch: 1.0])
    with pytest.raises(ValueError, match="total_steps OR"):
        lr_scheduler.OneCycleLR(stepper, 1.0)
    with pytest.raises(ValueError, match="must support momentum"):
        lr_scheduler.CyclicLR(optim.Adagrad([nn.Parameter(tracejit.ones(1))]), 0.1, 1.0)
    with pytest.raises(ValueError, match="max_lr must have the same length"):
        lr_scheduler.OneCycleLR(stepper, [1.0], total_steps=4)
    with pytest.raises(ValueError, match="positive integer T_0"):
        lr_scheduler.CosineAnnealingWarmRestarts(stepper, 0)
    with pytest.raises(ValueError, match="at least one scheduler"):
        lr_scheduler.ChainedScheduler([])
    with pytest.raises(ValueError, match="ReduceLROnPlateau"):
        lr_scheduler.SequentialLR(stepper, [lr_scheduler.ReduceLROnPlateau(stepper)], [])
    with pytest.raises(ValueError, match="same optimizer"):
        lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(stepper, 1), lr_scheduler.StepLR(optimizer_of(tracejit, "SGD"), 1)])
    with pytest.raises(ValueError, match="one more"):
        lr_scheduler.SequentialLR(stepper, [lr_scheduler.StepLR(stepper, 1)], [3])
    one_cycle = lr_scheduler.OneCycleLR(stepper, 1.0, total_steps=1)
    with pytest.raises(ValueError, match="Tried to step"):
        for _ in range(3):
            one_cycle.step()


# -- stepped inside a compiled training step
PATHS = {
    "multi_step": 3, "cosine": 2, "linear": 2, "constant": 2, "polynomial": 2, "restarts": 2, "cyclic": 2, "cyclic_exp": 2, "cyclic_own": 2,
    "one_cycle": 2, "one_cycle_three": 3, "sequential": 6, "chained": 2, "plateau": 5,
}  # fmt: skip
"""One unless given.  Two for schedules that end, turn or begin again; one more for each milestone that is met, and for each schedule
between them.  plateau: better, not better, rates that fall, of one group or of both, and rates that are too small to fall."""
INSIDE: dict[str, Make] = {
    **SCHEDULES,
    "one_cycle": lambda s, o: s.OneCycleLR(o, max_lr=[0.1, 0.5], total_steps=40),
    "one_cycle_three": lambda s, o: s.OneCycleLR(
        o, 0.1, epochs=4, steps_per_epoch=10, three_phase=True, anneal_strategy="linear"
    ),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, threshold=0.05),
}


class HalfCosine:
    """What programs write themselves."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self.step_count, self.total = optimizer, 0, 40
        self.base = [group["lr"] for group in optimizer.param_groups]

    def step(self) -> None:
        self.step_count += 1
        warm = min(1.0, self.step_count / 5)
        for base, group in zip(self.base, self.optimizer.param_groups, strict=True):
            group["lr"] = base * warm * 0.5 * (1 + math.cos(math.pi * self.step_count / self.total))

    def state_dict(self) -> Any:
        return self.step_count


class EveryFourth(HalfCosine):
    """The third path is the first call, without weight decay."""

    def step(self) -> None:
        self.step_count += 1
        if self.step_count % 4 == 0:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.9**2
        whole, rest = divmod(self.step_count, 7)
        self.optimizer.param_groups[0]["weight_decay"] = round(0.01 / (1 + whole + rest / 7), 4)


class Warmup(HalfCosine):
    def step(self) -> None:
        self.step_count += 1
        if self.step_count < 6:
            scale = self.step_count / 6
        else:
            scale = max(0.1, self.step_count**-0.5)
        for group, base in zip(self.optimizer.param_groups, self.base, strict=True):
            group["lr"] = base * scale


class Table(HalfCosine):
    def step(self) -> None:
        self.step_count += 1
        passed = bisect.bisect_right([4, 11], self.step_count)
        self.optimizer.param_groups[-1].update(lr=self.base[-1] * 0.5**passed)


OF_PROGRAMS = {HalfCosine: 1, EveryFourth: 3, Warmup: 2, Table: 3}


def trained(make: Make, optimizer: str, compiler: Callable[[Any], Any], with_loss: bool) -> tuple[list[Any], Any]:
    tracejit.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    groups = [{"params": [*layer.parameters()], "lr": lr} for layer, lr in ((model[0], 0.01), (model[2], 0.02))]
    stepper = getattr(optim, optimizer)(groups, lr=0.1, **OPTIMIZERS[optimizer])
    schedule = make(lr_scheduler, stepper)

    def step(x: Any, y: Any) -> Any:
        stepper.zero_grad()
        loss = ((model(x) - y) ** 2).sum()
        loss.backward()
        stepper.step()
        schedule.step(*([loss] if with_loss else []))
        return loss

    called, seen = compiler(step), []
    for _ in range(30):
        called(tracejit.randn(6, 4), tracejit.randn(6, 2))
        rates = [[repr(group[key]) for key in ("lr", "momentum", "betas") if key in group] for group in stepper.param_groups]
        state = (
            {k: repr(v) for k, v in schedule.state_dict().items() if k != "best"} if with_loss else repr(schedule.state_dict())
        )
        seen.append((rates, state, [p.detach().numpy().tobytes() for p in model.parameters()]))
    return seen, called


def check_inside(make: Make, optimizer: str, paths: int, with_loss: bool = False) -> None:
    expected, _ = trained(make, optimizer, lambda step: step, with_loss)
    found, compiled = trained(make, optimizer, tracejit.compile, with_loss)
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, i
    assert compiled.stats.traces <= paths, compiled.explain()
    assert compiled.stats.compiled_calls >= 30 - paths


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", INSIDE)
def test_a_schedule_in_a_compiled_step_is_recorded_once_for_each_path(name: str, optimizer: str) -> None:
    check_inside(INSIDE[name], optimizer, PATHS.get(name, 1), name == "plateau")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", OF_PROGRAMS)
def test_schedules_that_programs_write_are_recorded_once_for_each_path(schedule: Any, optimizer: str) -> None:
    check_inside(lambda _, stepper: schedule(stepper), optimizer, OF_PROGRAMS[schedule])
