"""Adamax, the variant of Adam with the infinity norm (Kingma and Ba, 2014, https://arxiv.org/abs/1412.6980)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import zeros_like
from tracejit.optim.adam import require_adam
from tracejit.optim.optimizer import Optimizer, execution, incoming, mean_of

__all__ = ["Adamax"]


class Adamax(Optimizer):
    """p -= lr * m / (1 - beta1**step) / u, m being the running mean of g and u = max(beta2 * u, |g| + eps)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        rates = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates and for betas outside [0, 1)."""
        require_adam(group)

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, a mean and a norm of zeros."""
        return {"step": 0, "exp_avg": zeros_like(parameter), "exp_inf": zeros_like(parameter)}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        beta1, beta2 = group["betas"]
        step = state["step"] + 1
        state["step"] = step
        gradient = incoming(parameter, gradient, group)
        mean, norm = mean_of(state["exp_avg"], gradient, 1 - beta1), state["exp_inf"]
        norm.copy_((norm * beta2).maximum(gradient.abs() + group["eps"]))
        parameter.copy_(parameter - mean * (group["lr"] / (1 - beta1**step)) / norm)
