"""Programs of the documentation's pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

__all__ = ["page", "programs", "run_program"]


def page(name: str) -> str:
    """The text of docs/`name`."""
    return (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8")


def programs(name: str) -> list[str]:
    """The blocks of Python of a page, in order."""
    return re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)


def run_program(block: str, folder: Path) -> dict[str, Any]:
    """The globals of a program after it has run, from a file: functions are recorded from files."""
    script = folder / "page.py"
    script.write_text(block)
    return runpy.run_path(str(script))
