"""Compiles user source text again without repeating the warnings that Python gave when it compiled the text first.

During the compilation there is an additional filter that ignores warnings about this file.  So a text that Python has accepted is
accepted here, too, even if warnings are errors.  Filters are shared by all threads, so the others are not touched, and the
registries of warnings that have been shown are kept.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from tracejit.core.interrupts import is_foreign

__all__ = ["compile_again"]


def compile_again(text: str | ast.Module | ast.Expression, filename: str, mode: str, flags: int) -> Any:
    """`compile(text, filename, mode, flags)` of a source text or a syntax tree, without warnings."""
    filters: Any = warnings.filters
    ignored = ("ignore", None, Warning, re.compile(re.escape(filename.removesuffix(".py")) + r"\Z"), 0)
    try:
        filters.insert(0, ignored)
        return compile(text, filename, mode, flags, dont_inherit=True)
    finally:
        try:
            filters.remove(ignored)
        except ValueError as error:  # another thread has replaced all filters meanwhile
            if is_foreign(error):
                raise
