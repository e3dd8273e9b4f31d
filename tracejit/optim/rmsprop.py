"""RMSprop (Hinton, 2012, https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf), centered as in Graves (2013)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import zeros_like
from tracejit.optim.optimizer import Optimizer, execution, incoming, mean_of, require

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """p -= lr * g / (sqrt(v) + eps), v being the running mean of the square of g, less that of g squared if centered; with momentum
    b = momentum * b + g / (sqrt(v) + eps), p -= lr * b."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        rates = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
        require(group["eps"] >= 0.0, f"Invalid epsilon value: {group['eps']}")
        for name in ("momentum", "weight_decay", "alpha"):
            require(group[name] >= 0.0, f"Invalid {name} value: {group[name]}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and running means of zeros."""
        names = ["square_avg"]
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        names += ["grad_avg"] if group["centered"] else []
        return {"step": 0, **{name: zeros_like(parameter) for name in names}}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        alpha = group["alpha"]
        momentum = group["momentum"]
        state["step"] += 1
        gradient = incoming(parameter, gradient, group)
        square = state["square_avg"]
        square.copy_(square * alpha + gradient * gradient * (1 - alpha))
        variance = square
        if group["centered"]:
            mean = mean_of(state["grad_avg"], gradient, 1 - alpha)
            variance = square - mean * mean
        scale = variance.sqrt() + group["eps"]
        if momentum > 0:
            velocity = state["momentum_buffer"]
            velocity.copy_(velocity * momentum + gradient / scale)
            parameter.copy_(parameter - velocity * group["lr"])
        else:
            parameter.copy_(parameter - gradient * group["lr"] / scale)
