"""Adafactor (Shazeer and Stern, 2018, https://arxiv.org/abs/1804.04235): second moments of matrices as products of rows and columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tracejit.functions import zeros, zeros_like
from tracejit.optim.optimizer import Optimizer, execution, mean_of, require

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """p -= rate * u / max(1, rms(u) / d), u = g / sqrt(v), rate = max(eps[1], rms(p)) * min(lr, 1 / sqrt(step))."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        rates = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**rates, "foreach": execution(foreach=foreach)["foreach"]})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates, for d below 1 and for a beta2_decay above 0."""
        require(group["lr"] >= 0.0, f"Learning rate should be >= 0 but is: {group['lr']}")
        require(group["beta2_decay"] <= 0.0, f"beta2_decay should be <= 0 but is: {group['beta2_decay']}")
        require(group["eps"][0] is None or group["eps"][0] >= 0.0, f"epsilon1 should be >= 0 but is: {group['eps'][0]}")
        require(group["eps"][1] >= 0.0, f"epsilon2 should be >= 0 but is: {group['eps'][1]}")
        require(group["d"] >= 1.0, f"Clipping threshold d should be >= 1 but is: {group['d']}")
        require(group["weight_decay"] >= 0.0, f"weight_decay should be >= 0 but is: {group['weight_decay']}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and zero variances: of rows and of columns, or of all elements of a vector."""
        shape = tuple(parameter.shape)
        if len(shape) < 2:
            return {"step": 0, "variance": zeros_like(parameter)}
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return {"step": 0, "row_var": zeros(rows, dtype=parameter.dtype), "col_var": zeros(columns, dtype=parameter.dtype)}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        lr = group["lr"]
        least, smallest = group["eps"]
        least = float(np.finfo(parameter.dtype.numpy).eps) if least is None else least
        step = state["step"] + 1
        state["step"] = step
        if group["maximize"]:
            gradient = -gradient
        weight = step ** group["beta2_decay"]
        rate = (parameter.norm() / parameter.numel() ** 0.5).clamp(min=smallest) * min(lr, step**-0.5)
        start = parameter
        if group["weight_decay"] != 0:
            start = parameter * (1 - lr * group["weight_decay"])
        if gradient.ndim > 1:
            squares = gradient * gradient
            rows = mean_of(state["row_var"], squares.mean(dim=-1, keepdim=True), weight)
            columns = mean_of(state["col_var"], squares.mean(dim=-2, keepdim=True), weight)
            variance = rows @ columns / rows.mean(dim=-2, keepdim=True).clamp(min=least)
        else:
            variance = mean_of(state["variance"], gradient * gradient, weight)
        moved = gradient * variance.clamp(min=least * least).rsqrt()
        clipped = (moved.norm() / (moved.numel() ** 0.5 * group["d"])).clamp(min=1.0)
        parameter.copy_(start - moved * (rate / clipped))
