"""Which module of this library a module of PyTorch's is: a table of names."""

from __future__ import annotations

from typing import Final

__all__ = ["PACKAGES", "PYTORCH_VERSION", "TURNING_OFF", "module_for"]

PYTORCH_VERSION: Final = "2.13.0+tracejit"
"""The version of PyTorch whose names these are."""

PACKAGES: Final = {"torch": "tracejit", "torchvision": "tracejit.vision"}

TURNING_OFF: Final = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""Variables of the environment, any of which being 1 turns torch.compile off."""

_MODULES: Final = {
    "torch._dynamo": "tracejit.compiler",
    "torch.autograd.profiler": "tracejit.profiler",
    "torch.autograd.variable": "tracejit.autograd",
    "torch.nn.parallel.data_parallel": "tracejit.nn.parallel",
    "torch.nn.parallel.distributed": "tracejit.nn.parallel",
    "torch.utils.model_zoo": "tracejit.hub",
    "torch.autograd.grad_mode": "tracejit.autograd",
    "torch.nn.modules": "tracejit.nn",
    "torch.optim": "tracejit.optim",
    "torch.utils.data": "tracejit.data",
}
"""Where the name is not the same below the package; a module below one of these is looked for there, and else is that one."""


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
