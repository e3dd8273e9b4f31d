"""RAdam, Adam with a rectified variance (Liu et al., 2019, https://arxiv.org/abs/1908.03265)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tracejit.functions import zeros_like
from tracejit.optim.adam import require_adam
from tracejit.optim.optimizer import Optimizer, execution, incoming, mean_of

__all__ = ["RAdam"]


class RAdam(Optimizer):
    """Adam times a rectification of its rate, and plain momentum in the first steps, where the variance is not known yet."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        rates = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates and for betas outside [0, 1)."""
        require_adam(group)

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and running means of zeros."""
        return {"step": 0, "exp_avg": zeros_like(parameter), "exp_avg_sq": zeros_like(parameter)}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        lr = group["lr"]
        beta1, beta2 = group["betas"]
        step = state["step"] + 1
        state["step"] = step
        start = parameter
        if group["decoupled_weight_decay"]:
            if group["maximize"]:
                gradient = -gradient
            start = parameter * (1 - lr * group["weight_decay"])
        else:
            gradient = incoming(parameter, gradient, group)
        mean, square = mean_of(state["exp_avg"], gradient, 1 - beta1), state["exp_avg_sq"]
        square.copy_(square * beta2 + gradient * gradient * (1 - beta2))
        correction = 1 - beta2**step
        most = 2 / (1 - beta2) - 1  # the length of the moving average in the end, and now
        length = most - 2 * step * (beta2**step) / correction
        moved = mean / (1 - beta1**step) * lr
        if length > 5.0:
            rectification = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
            moved = moved * (math.sqrt(correction) / (square.sqrt() + group["eps"])) * rectification
        parameter.copy_(start - moved)
