"""What this machine's processor is good for."""

from __future__ import annotations

from functools import cache

import llvmlite.binding

from tracejit.loops.target import Target

__all__ = ["host_fuses", "host_target"]


@cache
def host_target() -> Target:
    """Widths of this machine's vectors, from the features that LLVM reports, and what its instructions are good for."""
    features = llvmlite.binding.get_host_cpu_features()
    gathers = not llvmlite.binding.get_host_cpu_name().startswith("znver")  # a long microprogram on these
    if all(features.get(name, False) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq")):
        return Target(512, masked=True, scales=True, gathers=gathers)
    if features.get("avx2", False):
        return Target(256, masked=True, gathers=gathers)  # masked bytes are slow here, but not slower than one at a time
    return Target(128, masked=False, gathers=gathers)


@cache
def host_fuses() -> bool:
    """Whether an instruction multiplies and adds vectors of this machine, and rounds once."""
    return bool(llvmlite.binding.get_host_cpu_features().get("fma", False))
