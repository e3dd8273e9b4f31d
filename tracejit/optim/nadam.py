"""NAdam, Adam with Nesterov's momentum (Dozat, 2016, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import ones, zeros_like
from tracejit.optim.adam import require_adam
from tracejit.optim.optimizer import Optimizer, execution, incoming, mean_of, require

__all__ = ["NAdam"]


class NAdam(Optimizer):
    """p -= lr * (a * g + b * m) / (sqrt(v) + eps), a and b from a momentum that grows: mu(t) = beta1 * (1 - 0.96**(t * decay) / 2).

    The product of all mu(t) so far is kept as PyTorch keeps it, a tensor of the default dtype, whose rounding shows in the result."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        rates = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates and for betas outside [0, 1)."""
        require_adam(group)
        require(group["momentum_decay"] >= 0.0, f"Invalid momentum_decay value: {group['momentum_decay']}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and running means of zeros."""
        return {
            "step": 0,
            "mu_product": ones(()),
            "exp_avg": zeros_like(parameter),
            "exp_avg_sq": zeros_like(parameter),
        }

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        lr = group["lr"]
        decay = group["momentum_decay"]
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
        now = beta1 * (1.0 - 0.5 * (0.96 ** (step * decay)))
        later = beta1 * (1.0 - 0.5 * (0.96 ** ((step + 1) * decay)))
        product = state["mu_product"]
        product.copy_(product * now)
        exact = product.double()
        mean, square = mean_of(state["exp_avg"], gradient, 1 - beta1), state["exp_avg_sq"]
        square.copy_(square * beta2 + gradient * gradient * (1 - beta2))
        denominator = (square / (1 - beta2**step)).sqrt() + group["eps"]
        first = (lr * (1.0 - now) / (1.0 - exact)).to(parameter.dtype)
        second = (lr * later / (1.0 - exact * later)).to(parameter.dtype)
        parameter.copy_(start - gradient * first / denominator - mean * second / denominator)
