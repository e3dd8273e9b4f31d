"""weight_norm and spectral_norm by hooks: a module's weight is computed anew before each of its calls.

Older than the parametrizations of the same names; programs and saved states know them by weight_g and weight_v, weight_orig and
weight_u.
"""

from __future__ import annotations

from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.functional import normalize
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.nn.registered_hooks import Hook, take_away
from tracejit.nn.utils.parametrizations import norm_except
from tracejit.ops.public.random import randn

__all__ = ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]


class _WeightNorm:
    """The hook: weight = weight_g * weight_v / |weight_v|."""

    def __init__(self, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim

    def compute(self, module: Module) -> Any:
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except(v, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))


class _SpectralNorm:
    """The hook: weight = weight_orig / its largest singular value, followed by power iterations in training."""

    def __init__(self, name: str, dim: int, n_power_iterations: int, eps: float) -> None:
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def matrix(self, weight: Any) -> Any:
        if self.dim:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.reshape(weight.shape[0], -1)

    def compute(self, module: Module, iterate: bool) -> Any:
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.matrix(weight)
        if iterate:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(normalize(matrix.mv(v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def _hook_of(kind: type, module: Module, name: str) -> tuple[Hook, Any]:
    """The hook with a function of this kind for tensor `name`, and this function.  Raises ValueError where there is none."""
    for hook in module._hooks or ():
        if isinstance(hook.function, kind) and hook.function.name == name:  # type: ignore[attr-defined]
            return hook, hook.function
    raise ValueError(f"{kind.__name__.strip('_')} of '{name}' not found in {module}")


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Make a weight the product of its lengths `<name>_g` (one for each index of `dim`) and its direction `<name>_v`."""
    hook = _WeightNorm(name, -1 if dim is None else dim)
    weight = getattr(module, name)
    delattr(module, name)
    module.register_parameter(name + "_g", Parameter(norm_except(weight, hook.dim).detach()))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again.  Raises ValueError where weight_norm was not applied."""
    registered, hook = _hook_of(_WeightNorm, module, name)
    weight = hook.compute(module).detach()
    for attribute in (name, name + "_g", name + "_v"):
        delattr(module, attribute)
    module.register_parameter(name, Parameter(weight))
    take_away(module, "_hooks", registered)
    return module


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value; the parameter is `<name>_orig`, the iteration's buffers `<name>_u` and
    `<name>_v`."""
    if n_power_iterations <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    hook = _SpectralNorm(name, dim, n_power_iterations, eps)
    weight = getattr(module, name)
    rows, columns = hook.matrix(weight.detach()).shape
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(name + "_u", normalize(randn(rows, dtype=weight.dtype), dim=0, eps=eps))
    module.register_buffer(name + "_v", normalize(randn(columns, dtype=weight.dtype), dim=0, eps=eps))
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again.  Raises ValueError where spectral_norm was not applied."""
    registered, hook = _hook_of(_SpectralNorm, module, name)
    with no_grad():
        weight = hook.compute(module, False)
    for attribute in (name, name + "_orig", name + "_u", name + "_v"):
        delattr(module, attribute)
    for buffer in ("_u", "_v"):
        (module._buffer_names or {}).pop(name + buffer, None)
    module.register_parameter(name, Parameter(weight.detach()))
    take_away(module, "_hooks", registered)
    return module
