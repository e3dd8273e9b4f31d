"""Averages of weights: stochastic weight averaging (Izmailov et al., 2018, https://arxiv.org/abs/1803.05407) and exponential averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from operator import length_hint
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.interpreter import is_recording
from tracejit.core.progress import Progress
from tracejit.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Module
from tracejit.optim.lr_scheduler.scheduler import LRScheduler, for_each_group
from tracejit.optim.optimizer import Optimizer
from tracejit.tensor import Tensor, tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def _require_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """A function (average, value, count) that gives the next exponential average."""
    _require_decay(decay)

    @no_grad()
    def average(averaged: Any, current: Any, count: Any) -> Any:
        return decay * averaged + (1 - decay) * current

    return average


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """A function (average, value, count) that gives the average of one more value."""

    @no_grad()
    def average(averaged: Any, current: Any, count: Any) -> Any:
        return averaged + (current - averaged) / (count + 1)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Sequence[Any], Sequence[Any], Any], None]:
    """A function (averages, values, count) that brings exponential averages up to date, in place."""
    _require_decay(decay)

    @no_grad()
    def update(averages: Sequence[Any], currents: Sequence[Any], count: Any) -> None:
        for averaged, current in zip(averages, currents, strict=True):
            if averaged.is_floating_point():
                averaged.copy_(averaged + (current - averaged) * (1 - decay))
            else:
                averaged.copy_(averaged * decay + current * (1 - decay))

    return update


def get_swa_multi_avg_fn() -> Callable[[Sequence[Any], Sequence[Any], Any], None]:
    """A function (averages, values, count) that adds one more value to averages, in place."""

    @no_grad()
    def update(averages: Sequence[Any], currents: Sequence[Any], count: Any) -> None:
        weight = 1.0 / (float(count) + 1)
        for averaged, current in zip(averages, currents, strict=True):
            averaged.copy_(averaged + (current - averaged) * weight)

    return update


class AveragedModel(Module):
    """A copy of a model, whose parameters (with use_buffers its buffers as well) update_parameters() makes the average of the model's.

    avg_fn(average, value, count) gives the next average of one parameter, multi_avg_fn(averages, values, count) changes all in place;
    without either it is the plain average.  `n_averaged` is how many models it is of."""

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[Sequence[Any], Sequence[Any], Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's result."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Let the parameters of `model` count as one more.  The first time they are copied."""

        def counted(module: Module) -> list[Any]:
            tensors = chain(module.parameters(), module.buffers()) if self.use_buffers else module.parameters()
            return [t.detach() for t in tensors]

        averages, currents = counted(self.module), counted(model)
        if self.n_averaged == 0:
            for averaged, current in zip(averages, currents, strict=True):
                averaged.copy_(current)
        elif self.avg_fn is not None:
            for averaged, current in zip(averages, currents, strict=True):
                averaged.copy_(self.avg_fn(averaged, current, self.n_averaged))
        elif averages:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, currents, self.n_averaged)
        if not self.use_buffers:
            for averaged, current in zip(self.module.buffers(), model.buffers(), strict=True):
                averaged.detach().copy_(current.detach())
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None, *, quiet: bool = False) -> None:
    """Set the running statistics of BatchNorm layers to those of the batches of `loader` (tensors, or lists whose first member is one).

    quiet: no bar after half a second of work (drawn where tqdm is installed)."""
    layers = [m for m in model.modules() if isinstance(m, BatchNorm1d | BatchNorm2d | BatchNorm3d)]
    if not layers:
        return
    momenta, training = [layer.momentum for layer in layers], model.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    try:
        for batch in loader if quiet or is_recording() else _shown(loader):
            given = batch[0] if isinstance(batch, list | tuple) else batch
            model(given if device is None else given.to(device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(training)


def _shown(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader, counted by a bar."""
    total = length_hint(loader)  # also where len() raises: a DataLoader of an IterableDataset
    with Progress("update_bn", total=total or None, unit="batch") as progress:
        for batch in loader:
            yield batch
            progress.step()


class SWALR(LRScheduler):
    """From the present rates to swa_lr in anneal_epochs epochs, along half a cosine ("cos") or a line ("linear")."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1
    ) -> None:
        for rate, group in zip(for_each_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            final = group["swa_lr"]
            start = final if before == 1 else (group["lr"] - before * final) / (1 - before)
            rates.append(final * now + start * (1 - now))
        return rates
