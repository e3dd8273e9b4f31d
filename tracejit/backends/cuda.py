"""Switches of CUDA's libraries, which are not used: they can be set, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "is_built", "matmul", "sdp_kernel"]


class _Matmul:
    """Precision of matrix products on CUDA."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True


matmul = _Matmul()


def is_built() -> bool:
    """False."""
    return False


@contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True) -> Iterator[None]:
    """A context that asks for kernels of attention, of which there is one."""
    yield


def enable_flash_sdp(enabled: bool) -> None:
    """Changes nothing."""


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Changes nothing."""


def enable_math_sdp(enabled: bool) -> None:
    """Changes nothing."""
