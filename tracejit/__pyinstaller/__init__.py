"""What PyInstaller asks a package for: where its hooks are (the entry point `pyinstaller40` in pyproject.toml)."""

from __future__ import annotations

import os

__all__ = ["get_hook_dirs"]


def get_hook_dirs() -> list[str]:
    """The directories with hooks."""
    return [os.path.dirname(__file__)]
