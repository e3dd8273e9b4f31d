"""Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tracejit.functions import zeros_like
from tracejit.optim.optimizer import Optimizer, require

__all__ = ["Muon"]


def _orthogonalised(matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """A matrix of about the same singular vectors whose singular values are about 1, by steps of a quintic iteration in bfloat16."""
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = matrix.shape[0] > matrix.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        update = gram.addmm(gram, gram, beta=b, alpha=c)
        x = x.addmm(update, x, beta=a)
    return x.T if tall else x


class Muon(Optimizer):
    """p -= lr * (weight_decay * p + o), o being the momentum of the gradients made orthogonal.  For matrices only.

    adjust_lr_fn: lr is multiplied by max(1, rows / columns) ** 0.5 ("original", the default) or by 0.2 * max(rows, columns) ** 0.5
    ("match_rms_adamw").  The matrix is made orthogonal in bfloat16, which needs the package ml_dtypes."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates, for a way to adjust the rate that there is not, and for a parameter that is no matrix."""
        require(group["lr"] >= 0.0, f"Learning rate should be >= 0 but is: {group['lr']}")
        require(group["momentum"] >= 0.0, f"momentum should be >= 0 but is: {group['momentum']}")
        require(group["weight_decay"] >= 0.0, f"weight decay should be >= 0 but is: {group['weight_decay']}")
        known = (None, "original", "match_rms_adamw")
        require(group["adjust_lr_fn"] in known, f"Adjust learning rate function {group['adjust_lr_fn']} is not supported")
        require(group["ns_steps"] < 100, "Number of steps must be less than 100 for computational efficiency")
        require(len(group["ns_coefficients"]) == 3, "Coefficients must be a tuple of exactly 3 values")
        for p in group["params"]:
            require(p.ndim == 2, f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No momentum."""
        return {"momentum_buffer": zeros_like(parameter)}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        momentum = state["momentum_buffer"]
        momentum.lerp_(gradient, 1 - group["momentum"])
        direction = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        direction = _orthogonalised(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = parameter.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            rate = group["lr"] * (0.2 * math.sqrt(max(rows, columns)))
        else:
            rate = group["lr"] * math.sqrt(max(1, rows / columns))
        kept = parameter * (1 - group["lr"] * group["weight_decay"])
        parameter.copy_(kept - direction.to(parameter.dtype) * rate)
