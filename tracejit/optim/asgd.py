"""ASGD, averaged stochastic gradient descent (Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import full, ones, where, zeros_like
from tracejit.optim.optimizer import Optimizer, execution, incoming, require
from tracejit.tensor import tensor

__all__ = ["ASGD"]


class ASGD(Optimizer):
    """p = p * (1 - lambd * eta) - eta * g, eta = lr / (1 + lambd * lr * step)**alpha; state "ax" is the average of p from step t0 on.

    eta and mu are kept as PyTorch keeps them, tensors of the default dtype, whose rounding shows in the result."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        rates = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
        require(group["weight_decay"] >= 0.0, f"Invalid weight_decay value: {group['weight_decay']}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, no average, and the first rate."""
        return {"step": 0, "eta": tensor(float(group["lr"])), "mu": ones(()), "ax": zeros_like(parameter)}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        lr = group["lr"]
        lambd = group["lambd"]
        step = state["step"] + 1
        state["step"] = step
        eta, mu, average = state["eta"], state["mu"], state["ax"]
        gradient = incoming(parameter, gradient, group)
        exact = eta.double()
        decay, rate = (1 - exact * lambd).to(parameter.dtype), exact.to(parameter.dtype)
        parameter.copy_(parameter * decay - gradient * rate)
        # with mu = 1, until step t0, this is the parameter itself: the difference must not round it
        average.copy_(where(mu == 1, parameter, average + (parameter - average) * mu.to(parameter.dtype)))
        eta.copy_(full((), lr / ((1 + lambd * lr * step) ** group["alpha"])))
        mu.copy_(full((), 1 / max(1, step - group["t0"])))
