"""Rprop, resilient backpropagation (Riedmiller and Braun, 1993, https://doi.org/10.1109/ICNN.1993.298623)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import full_like, where, zeros_like
from tracejit.optim.optimizer import Optimizer, execution, require

__all__ = ["Rprop"]


class Rprop(Optimizer):
    """p -= sign(g) * s.  s grows by etas[1] while the sign stays, shrinks by etas[0] where it turned (and p stays), within step_sizes."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        rates = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, {**rates, **execution(foreach=foreach, capturable=capturable, differentiable=differentiable)})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for a negative rate and for etas that do not shrink and grow."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
        require(0.0 < group["etas"][0] < 1.0 < group["etas"][1], f"Invalid eta values: {group['etas'][0]}, {group['etas'][1]}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, no gradient before, and steps of the size of the rate."""
        return {"step": 0, "prev": zeros_like(parameter), "step_size": full_like(parameter, float(group["lr"]))}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        shrink, grow = group["etas"]
        least, most = group["step_sizes"]
        state["step"] += 1
        if group["maximize"]:
            gradient = -gradient
        before, size = state["prev"], state["step_size"]
        agreement = gradient * before
        turned = agreement < 0
        size.copy_(where(agreement > 0, size * grow, where(turned, size * shrink, size)).clamp(least, most))
        gradient = gradient.masked_fill(turned, 0.0)
        parameter.copy_(parameter - gradient.sign() * size)
        before.copy_(gradient)
