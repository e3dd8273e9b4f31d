"""Adam (Kingma and Ba, 2014, https://arxiv.org/abs/1412.6980) and AdamW (Loshchilov and Hutter, 2017, https://arxiv.org/abs/1711.05101).

The order of operations is that of PyTorch, so that results agree to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tracejit.functional.updates import adam_update
from tracejit.ops.public.creation import zeros
from tracejit.optim.optimizer import Optimizer, execution, require

__all__ = ["Adam", "AdamW", "require_adam"]


def require_adam(group: dict[str, Any]) -> None:
    """Raises ValueError for negative rates and for betas outside [0, 1)."""
    require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")
    require(group["eps"] >= 0.0, f"Invalid epsilon value: {group['eps']}")
    for i in (0, 1):
        require(0.0 <= group["betas"][i] < 1.0, f"Invalid beta parameter at index {i}: {group['betas'][i]}")
    require(group["weight_decay"] >= 0.0, f"Invalid weight_decay value: {group['weight_decay']}")


class Adam(Optimizer):
    """p -= lr * m / (sqrt(v) + eps), m and v being running means of the gradient and of its square, corrected for their start at 0.

    weight_decay * p is added to the gradient; with decoupled_weight_decay p is first scaled by 1 - lr * weight_decay instead.  amsgrad: the
    largest v so far (Reddi et al., 2018, https://openreview.net/forum?id=ryQu7f-RZ).  maximize: uphill."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        how = execution(foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)
        rates = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize}
        super().__init__(params, {**rates, **how, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay})

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for negative rates and for betas outside [0, 1)."""
        require_adam(group)

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """No steps, and running means of zeros."""
        names = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"] if group["amsgrad"] else ["exp_avg", "exp_avg_sq"]
        return {"step": 0, **{name: zeros(tuple(parameter.shape), dtype=parameter.dtype) for name in names}}

    def update_group(self, members: Sequence[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
        """One step of each.  What the group says is asked once, however many parameters it has; the corrections for the zeros that means
        start from are the same for all that have taken as many steps."""
        beta1, beta2 = group["betas"]
        lr, weight_decay, eps = group["lr"], group["weight_decay"], group["eps"]
        maximize, amsgrad = group["maximize"], group["amsgrad"]
        decays = weight_decay != 0
        decoupled = decays and group["decoupled_weight_decay"]
        known: Any = None
        batches: list[tuple[Any, Any, list[Any]]] = []
        for parameter, gradient, state in members:
            step = state["step"] + 1
            state["step"] = step
            if known is None or step != known:
                known = step
                batches.append((lr / (1 - beta1**step), math.sqrt(1 - beta2**step), []))
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            if mean.dtype is not parameter.dtype:
                raise RuntimeError(
                    f"{type(self).__name__}: the parameter is {parameter.dtype.name} now, its state {mean.dtype.name}; "
                    "construct the optimizer after converting the model"
                )
            batches[-1][2].append((parameter, gradient, mean, square, state["max_exp_avg_sq"] if amsgrad else None))
        for step_size, correction, alike in batches:
            adam_update(
                alike,
                step_size,
                correction,
                eps,
                taken=1 - beta1,
                squares_kept=beta2,
                squares_taken=1 - beta2,
                scale=1 - lr * weight_decay if decoupled else None,
                weight_decay=weight_decay if decays else None,
                maximize=maximize,
            )


class AdamW(Adam):
    """Adam with decoupled weight decay: p is first scaled by 1 - lr * weight_decay.  The other arguments are those of Adam."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        how = execution(foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, **how, decoupled_weight_decay=True)
