"""Adagrad (Duchi, Hazan and Singer, 2011, https://jmlr.org/papers/v12/duchi11a.html)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.functions import full_like
from tracejit.optim.optimizer import Optimizer, execution, incoming, require

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps), s being the sum of all squares of g so far."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        rates = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(
            params, {**rates, **execution(foreach=foreach, fused=fused, differentiable=differentiable), "fused": fused}
        )

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
        require(group["eps"] >= 0.0, f"Invalid epsilon value: {group['eps']}")
        for name in ("lr_decay", "weight_decay", "initial_accumulator_value"):
            require(group[name] >= 0.0, f"Invalid {name} value: {group[name]}")

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and the sum that the group starts from."""
        return {"step": 0, "sum": full_like(parameter, group["initial_accumulator_value"])}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        step = state["step"] + 1
        state["step"] = step
        gradient = incoming(parameter, gradient, group)
        squares = state["sum"]
        squares.copy_(squares + gradient * gradient)
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        parameter.copy_(parameter - gradient * rate / (squares.sqrt() + group["eps"]))
