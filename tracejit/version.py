"""The version of the library."""

from __future__ import annotations

from typing import Final

__all__ = ["__version__", "cuda", "git_version", "hip"]

__version__: Final = "0.1.0"
cuda: Final = None
hip: Final = None
git_version: Final = None
