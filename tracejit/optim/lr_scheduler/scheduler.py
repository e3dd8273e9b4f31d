"""`LRScheduler`: the base of all schedules, and how they read and write what they schedule.

A rate that is a tensor stays that tensor, whose contents are written: a recorded step goes on reading it.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.core.step_order import check_order
from tracejit.optim.optimizer import Optimizer
from tracejit.tensor import Tensor

__all__ = ["LRScheduler", "cycled_momentum", "for_each_group", "require_optimizer", "set_value", "state_of_functions", "values"]


def values(optimizer: Optimizer, key: str) -> list[Any]:
    """What the groups have under `key`; of tensors, copies."""
    return [group[key].clone() if isinstance(group[key], Tensor) else group[key] for group in optimizer.param_groups]


def set_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Set a hyperparameter: of a tensor, the contents."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value)
    else:
        group[key] = value


def for_each_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value per group.  Raises ValueError for a list of another length."""
    if not isinstance(value, list | tuple):
        value = [value] * len(optimizer.param_groups)
    elif len(value) != len(optimizer.param_groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {len(optimizer.param_groups)}."
        )
    return [v.clone() if isinstance(v, Tensor) else v for v in value]


def require_optimizer(optimizer: Any) -> None:
    """Raises TypeError for anything but an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{optimizer.__class__.__name__} is not an Optimizer")


def cycled_momentum(optimizer: Optimizer, group: dict[str, Any], momentum: Any) -> None:
    """Set the momentum of a group, or the first of its betas."""
    if "betas" in optimizer.defaults:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def state_of_functions(functions: Sequence[Any]) -> list[Any]:
    """What can be saved of callables: the attributes of objects, None for plain functions."""
    return [None if isinstance(f, types.FunctionType) or f is None else dict(f.__dict__) for f in functions]


class LRScheduler:
    """Base class: subclasses define get_lr(), from `last_epoch`, `base_lrs` and the present rates.

    The constructor sets the rates of the first epoch; step(), after that of the optimizer, those of the next one.  last_epoch:
    the epoch to resume after, -1 to start.  Raises TypeError for what is no optimizer, KeyError where it is resumed without an
    "initial_lr"."""

    unsaved: tuple[str, ...] = ("optimizer",)  # attributes that state_dict() leaves out

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        """last_epoch: the epoch to resume after; -1 to start.  Raises KeyError where it is resumed without an "initial_lr"."""
        require_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"].clone() if isinstance(group["lr"], Tensor) else group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch >= 0; "
                    "load the optimizer's state first, or begin with last_epoch=-1"
                )
        self.base_lrs = values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = False
        self._get_lr_called_within_step = False  # schedules of programs read it
        self._initial_step()

    def _initial_step(self) -> None:
        """The step of the constructor, which sets the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Any]:
        """The rate of each group at last_epoch, from the present ones."""
        raise NotImplementedError(f"{type(self).__name__}.get_lr()")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to a given one (as PyTorch, with a warning), and set the rates."""
        self._step_count += 1
        if not self._is_initial:
            check_order(self)
        if epoch is not None:
            warnings.warn(
                "the epoch parameter in `scheduler.step()` is deprecated: call `scheduler.step()` once an epoch",
                UserWarning,
                stacklevel=2,
            )
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed_form: Callable[[], list[Any]] | None = getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            rates = closed_form() if epoch is not None and closed_form is not None else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_value(group, "lr", rate)
        self._last_lr = values(self.optimizer, "lr")

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {key: value for key, value in self.__dict__.items() if key not in self.unsaved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what state_dict() gave."""
        self.__dict__.update(state_dict)

    def _present(self) -> list[Any]:
        return values(self.optimizer, "lr")
