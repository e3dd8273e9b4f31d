"""Adadelta (Zeiler, 2012, https://arxiv.org/abs/1212.5701)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import zeros_like
from tracejit.optim.optimizer import Optimizer, execution, incoming, require

__all__ = ["Adadelta"]


class Adadelta(Optimizer):
    """p -= lr * d, d = g * sqrt(u + eps) / sqrt(v + eps), v and u being running means of the squares of g and d."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        rates = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates and for rho outside [0, 1]."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
        require(0.0 <= group["rho"] <= 1.0, f"Invalid rho value: {group['rho']}")
        require(group["eps"] >= 0.0, f"Invalid epsilon value: {group['eps']}")
        require(group["weight_decay"] >= 0.0, f"Invalid weight_decay value: {group['weight_decay']}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and running means of zeros."""
        return {"step": 0, "square_avg": zeros_like(parameter), "acc_delta": zeros_like(parameter)}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        rho = group["rho"]
        eps = group["eps"]
        state["step"] += 1
        gradient = incoming(parameter, gradient, group)
        square, moved = state["square_avg"], state["acc_delta"]
        square.copy_(square * rho + gradient * gradient * (1 - rho))
        delta = (moved + eps).sqrt() / (square + eps).sqrt() * gradient
        moved.copy_(moved * rho + delta * delta * (1 - rho))
        parameter.copy_(parameter - delta * group["lr"])
