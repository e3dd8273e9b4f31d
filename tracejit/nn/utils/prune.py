"""Pruning: `module.weight` becomes `module.weight_orig * module.weight_mask`, computed before every forward pass.

The mask is a buffer, so both are part of state_dict(); remove() makes the product the parameter again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.nn.registered_hooks import Hook, take_away
from tracejit.ops.public import FUNCTIONS
from tracejit.tensor import Tensor

__all__ = ["custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "random_unstructured", "remove"]

_sum, _topk, _cat, _randperm = FUNCTIONS["sum"], FUNCTIONS["topk"], FUNCTIONS["cat"], FUNCTIONS["randperm"]


class _Masked:
    """The hook before forward(): puts the masked weight in place."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, _product(module, self.name))


def _product(module: Module, name: str) -> Tensor:
    return getattr(module, f"{name}_orig") * getattr(module, f"{name}_mask")  # type: ignore[no-any-return]


def _hook_of(module: Module, name: str) -> Hook | None:
    """The hook that prunes this parameter."""
    for hook in module._hooks or ():
        if isinstance(hook.function, _Masked) and hook.function.name == name:
            return hook
    return None


def _count(amount: Any, size: int) -> int:
    """How many of `size` elements `amount` says: a number of them, or a fraction."""
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (isinstance(amount, float) and amount > 1.0):
        raise ValueError(f"amount={amount} should be a float in the range [0, 1] or a non-negative integer")
    count = amount if isinstance(amount, int) else round(amount * size)
    if count > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return count


def _without(scores: Tensor, mask: Tensor, count: int) -> Tensor:
    """The mask without the `count` elements of the least scores of those it has."""
    flat: Any = mask.detach().clone().reshape(-1)
    if count:
        scores = scores.detach().reshape(-1).masked_fill(flat == 0, float("inf"))
        flat[_topk(scores, count, largest=False)[1]] = 0
    return flat.reshape(mask.shape)  # type: ignore[no-any-return]


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Keep the elements of a parameter where `mask` is 1, of those that an earlier mask has kept.  Returns the module."""
    if _hook_of(module, name) is None:
        original = getattr(module, name)
        if not isinstance(original, Parameter):
            raise AttributeError(f"custom_from_mask(): {name!r} of {module.__class__.__name__} is no parameter")
        delattr(module, name)
        module.register_parameter(f"{name}_orig", original)
        module.register_buffer(f"{name}_mask", mask.detach().to(original.dtype))  # type: ignore[attr-defined]
        module.register_forward_pre_hook(_Masked(name))
    else:
        module.register_buffer(f"{name}_mask", getattr(module, f"{name}_mask") * mask.detach())
    setattr(module, name, _product(module, name))
    return module


def _mask_of(module: Module, name: str) -> tuple[Tensor, Tensor]:
    """The whole parameter and its mask so far."""
    if _hook_of(module, name) is not None:
        return getattr(module, f"{name}_orig"), getattr(module, f"{name}_mask")
    whole = getattr(module, name)
    return whole, FUNCTIONS["ones_like"](whole)


def identity(module: Module, name: str) -> Module:
    """Prune nothing, but as everything else here prunes.  Returns the module."""
    return custom_from_mask(module, name, _mask_of(module, name)[1])


def l1_unstructured(module: Module, name: str, amount: Any, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of least magnitude, or of least `importance_scores`: `amount` of those that are left, or that fraction."""
    whole, mask = _mask_of(module, name)
    scores = abs(whole if importance_scores is None else importance_scores)  # type: ignore[arg-type]
    return custom_from_mask(module, name, _without(scores, mask, _count(amount, int(_sum(mask)))))


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune elements at random: `amount` of those that are left, or that fraction."""
    whole, mask = _mask_of(module, name)
    scores = _randperm(whole.numel()).to(whole.dtype)
    return custom_from_mask(module, name, _without(scores, mask, _count(amount, int(_sum(mask)))))


def global_unstructured(
    parameters: Sequence[tuple[Module, str]], pruning_method: Callable[..., Any] = l1_unstructured, amount: Any = 0
) -> None:
    """Prune the elements of least magnitude among all these (module, name) together.

    Raises NotImplementedError for a method other than l1_unstructured."""
    if pruning_method is not l1_unstructured:
        raise NotImplementedError(f"global_unstructured(): expected l1_unstructured as the method, got {pruning_method!r}")
    found = [_mask_of(module, name) for module, name in parameters]
    mask = _cat([m.reshape(-1) for _, m in found])  # type: ignore[attr-defined]
    scores = _cat([abs(whole.detach()).reshape(-1) for whole, _ in found])  # type: ignore[arg-type]
    kept = _without(scores, mask, _count(amount, int(_sum(mask))))
    parts = FUNCTIONS["split"](kept, [whole.numel() for whole, _ in found])
    for (module, name), (whole, _), part in zip(parameters, found, parts, strict=True):
        custom_from_mask(module, name, part.reshape(whole.shape))


def remove(module: Module, name: str) -> Module:
    """Make the pruned weight the parameter.  Raises ValueError for a parameter that was not pruned.  Returns the module."""
    hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    take_away(module, "_hooks", hook)
    original = getattr(module, f"{name}_orig")
    original.data = _product(module, name).detach()
    for attribute in (name, f"{name}_orig", f"{name}_mask"):
        delattr(module, attribute)
    module.register_parameter(name, original)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one inside it, is pruned."""
    return any(isinstance(hook.function, _Masked) for m in module.modules() for hook in m._hooks or ())
