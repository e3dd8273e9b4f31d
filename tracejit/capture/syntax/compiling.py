"""Compile text of the program again, of which Python has warned when it compiled it first.

A filter that ignores what the compiler says of this one file stands in front of the program's while it runs, and no later: text that
Python has accepted once is accepted here where warnings are errors, too.  The filters are those of all threads, so the rest of them
stays as it is, and nothing is forgotten of what has been shown once.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from tracejit.core.interrupts import is_foreign

__all__ = ["compile_again"]


def compile_again(text: str | ast.Module | ast.Expression, filename: str, mode: str, flags: int) -> Any:
    """compile() of text that stands in a file, or of what has been made of it, without warnings."""
    filters: Any = warnings.filters
    ignored = ("ignore", None, Warning, re.compile(re.escape(filename.removesuffix(".py")) + r"\Z"), 0)
    try:
        filters.insert(0, ignored)
        return compile(text, filename, mode, flags, dont_inherit=True)
    finally:
        try:
            filters.remove(ignored)
        except ValueError as error:  # another thread has put others in the place of all
            if is_foreign(error):
                raise
