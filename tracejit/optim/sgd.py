"""Stochastic gradient descent with momentum, in PyTorch's form: https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracejit.functional.updates import sgd_update
from tracejit.ops.public.creation import zeros
from tracejit.optim.optimizer import Optimizer, execution, require

__all__ = ["SGD"]


class SGD(Optimizer):
    """p -= lr * v, where v is the gradient, or with momentum v = momentum * v + (1 - dampening) * gradient (the first v: the gradient).

    nesterov: p -= lr * (gradient + momentum * v).  weight_decay * p is added to the gradient first.  maximize: uphill."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        rates = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        how = execution(foreach=foreach, differentiable=differentiable, fused=fused)
        super().__init__(params, {**rates, "maximize": maximize, **how, "fused": fused})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates, and for nesterov without momentum or with dampening."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
        require(group["momentum"] >= 0.0, f"Invalid momentum value: {group['momentum']}")
        require(group["weight_decay"] >= 0.0, f"Invalid weight_decay value: {group['weight_decay']}")
        require(
            not group["nesterov"] or (group["momentum"] > 0 and group["dampening"] == 0),
            "Nesterov momentum requires a momentum and zero dampening",
        )

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No velocity; zeros where the first update of zeros gives the gradient itself, so that all steps are alike."""
        if group["momentum"] != 0 and group["dampening"] == 0:
            return {"momentum_buffer": zeros(tuple(parameter.shape), dtype=parameter.dtype)}
        return {"momentum_buffer": None}

    def update_group(self, members: Sequence[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
        """One step of each.  What the group says is asked once, however many parameters it has."""
        lr, maximize = group["lr"], group["maximize"]
        momentum, weight_decay = group["momentum"], group["weight_decay"]
        moves, decays = momentum != 0, weight_decay != 0
        dampening, nesterov = (group["dampening"], group["nesterov"]) if moves else (0, False)
        velocities = sgd_update(
            [(parameter, gradient, state["momentum_buffer"] if moves else None) for parameter, gradient, state in members],
            lr,
            weight_decay=weight_decay if decays else None,
            momentum=momentum if moves else None,
            incoming=1 - dampening if dampening != 0 else None,
            nesterov=nesterov,
            maximize=maximize,
        )
        if moves:
            for (_, _, state), velocity in zip(members, velocities, strict=True):
                if state["momentum_buffer"] is None:
                    state["momentum_buffer"] = velocity
