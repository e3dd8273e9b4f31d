"""Schedules that go up and down: cycles of rate and momentum, one cycle, and cosines with warm restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracejit.optim.lr_scheduler.scheduler import (
    LRScheduler,
    cycled_momentum,
    for_each_group,
    require_optimizer,
    set_value,
    state_of_functions,
    values,
)
from tracejit.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]


def _begin_momentum(optimizer: Optimizer, base: Any, most: Any, last_epoch: int) -> tuple[list[Any], list[Any]]:
    """(base, greatest) momentum of each group, the greatest being set.  Raises ValueError where the optimizer has none."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    low, high = for_each_group("base_momentum", optimizer, base), for_each_group("max_momentum", optimizer, most)
    if last_epoch == -1:
        for group, least, greatest in zip(optimizer.param_groups, low, high, strict=True):
            cycled_momentum(optimizer, group, greatest)
            group["max_momentum"], group["base_momentum"] = greatest, least
    return low, high


class CyclicLR(LRScheduler):
    """From base_lr to max_lr in step_size_up steps and back in step_size_down, again and again.  Smith (2015), https://arxiv.org/abs/1506.01186.

    mode: "triangular"; "triangular2", half the height each cycle; "exp_range", the height times gamma**step; or scale_fn, a function of the
    cycle or (scale_mode="iterations") the step.  cycle_momentum: momentum goes the other way."""

    unsaved = ("optimizer", "_scale_fn_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        base_lrs = for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_value(group, "lr", rate)
        self.max_lrs = for_each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = _begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of cycle (or step) x."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return float(1 / (2.0 ** (x - 1))) if self.mode == "triangular2" else 1.0

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        position = 1.0 + self.last_epoch / self.total_size - cycle
        share = position / self.step_ratio if position <= self.step_ratio else (position - 1) / (self.step_ratio - 1)
        height = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            ranges = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (least, most) in zip(self.optimizer.param_groups, ranges, strict=True):
                cycled_momentum(self.optimizer, group, most - (most - least) * share * height)
        return [base + (most - base) * share * height for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of a scale_fn, the attributes of a callable object."""
        return {**super().state_dict(), "_scale_fn_custom": state_of_functions([self._scale_fn_custom])[0]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what state_dict() gave."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if state_dict.get("_scale_fn_custom") is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(state_dict["_scale_fn_custom"])


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr in the first pct_start of total_steps (or epochs * steps_per_epoch), then down to
    1 / final_div_factor of where it began (Smith and Topin, 2017, https://arxiv.org/abs/1708.07120).

    three_phase: first down as it went up, then further.  anneal_strategy: "cos" or "linear".
    cycle_momentum: momentum goes the other way."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        if total_steps is not None:
            _require_positive("total_steps", total_steps)
            self.total_steps = total_steps
        elif epochs is not None and steps_per_epoch is not None:
            _require_positive("epochs", epochs)
            _require_positive("steps_per_epoch", steps_per_epoch)
            self.total_steps = epochs * steps_per_epoch
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        top, last = pct_start * self.total_steps - 1, self.total_steps - 1
        phases = [(float(top), "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            phases.append((2.0 * pct_start * self.total_steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"))
            phases.append((last, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
        else:
            phases.append((last, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        self._schedule_phases: list[dict[str, Any]] = [dict(zip(names, phase, strict=True)) for phase in phases]
        if last_epoch == -1:
            for most, group in zip(for_each_group("max_lr", optimizer, max_lr), optimizer.param_groups, strict=True):
                group["initial_lr"], group["max_lr"] = most / div_factor, most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: Any, end: Any, share: float) -> Any:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start

    def get_lr(self) -> list[Any]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        start, phase = 0.0, self._schedule_phases[-1]
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (step - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = self._between(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                cycled_momentum(self.optimizer, group, momentum)
        return rates


def _require_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the initial rate to eta_min along half a cosine in T_0 epochs, then again in T_mult times as many, and so on.

    step(epoch) goes to any epoch, which may be a fraction.  Loshchilov and Hutter (2016), https://arxiv.org/abs/1608.03983."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        _require_positive("T_0", T_0)
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, int | float):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        share = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * share / 2 for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one, and set the rates."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            restarts = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**restarts - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**restarts
        self.last_epoch = math.floor(epoch)
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            set_value(group, "lr", rate)
        self._last_lr = values(self.optimizer, "lr")
