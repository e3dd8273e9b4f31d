"""What PyInstaller asks a package for: where its hooks are (the entry point `pyinstaller40` in pyproject.toml).

Must not know: what the package computes; the hook names the files to collect.
Start reading: hook-tracejit.py.
"""

from __future__ import annotations

import os

__all__ = ["get_hook_dirs"]


def get_hook_dirs() -> list[str]:
    """The directories with hooks."""
    return [os.path.dirname(__file__)]
