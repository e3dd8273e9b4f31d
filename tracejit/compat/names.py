"""Which module of this library a module of PyTorch's is: a table of names."""

from __future__ import annotations

from typing import Final

__all__ = ["PACKAGES", "PYTORCH_VERSION", "SHADOWED", "TURNING_OFF", "is_alias", "module_for"]

PYTORCH_VERSION: Final = "2.13.0+tracejit"
"""The version of PyTorch whose names these are."""

PACKAGES: Final = {"torch": "tracejit", "torchvision": "tracejit.vision"}

TURNING_OFF: Final = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""Variables of the environment, any of which being 1 turns torch.compile off."""

_MODULES: Final = {
    "torch._dynamo": "tracejit.compiler",
    "torch._inductor": "tracejit.compiler",
    "torch._jit_internal": "tracejit.jit",
    "torch.autograd.profiler": "tracejit.profiler",
    "torch.autograd.variable": "tracejit.autograd",
    "torch.cuda.memory": "tracejit.cuda",
    "torch.cuda.random": "tracejit.cuda",
    "torch.distributed.distributed_c10d": "tracejit.distributed",
    "torch.nn.parallel.data_parallel": "tracejit.nn.parallel",
    "torch.nn.parallel.distributed": "tracejit.nn.parallel",
    "torch.nn.parallel.parallel_apply": "tracejit.nn.parallel",
    "torch.nn.parallel.replicate": "tracejit.nn.parallel",
    "torch.nn.parallel.scatter_gather": "tracejit.nn.parallel",
    "torch.nn.utils.clip_grad": "tracejit.nn.utils",
    "torch.nn.utils.convert_parameters": "tracejit.nn.utils",
    "torch.nn.utils.spectral_norm": "tracejit.nn.utils",
    "torch.nn.utils.weight_norm": "tracejit.nn.utils",
    "torch.utils.model_zoo": "tracejit.hub",
    "torch.autograd.grad_mode": "tracejit.autograd",
    "torch.nn.modules": "tracejit.nn",
    "torch.optim": "tracejit.optim",
    "torch.utils.data": "tracejit.data",
}
"""Where the name is not the same below the package; a module below one of these is looked for there, and else is that one."""

SHADOWED: Final = {
    "torch.nn.parallel": ("data_parallel", "parallel_apply", "replicate"),
    "torch.nn.utils": ("spectral_norm", "weight_norm"),
}
"""Modules of PyTorch's, by the one they are in, that have there a function of the same name."""


def is_alias(name: str) -> bool:
    """Whether a module of PyTorch's has another module here."""
    return name in _MODULES


def module_for(name: str) -> list[str]:
    """The modules that may stand for a module of PyTorch's, the likeliest first."""
    package, _, rest = name.partition(".")
    found = [f"{PACKAGES[package]}.{rest}" if rest else PACKAGES[package]]
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        stands = _MODULES.get(".".join(parts[:length]))
        if stands is not None:
            below = ".".join(parts[length:])
            found += [f"{stands}.{below}", stands] if below else [stands]
    return found
