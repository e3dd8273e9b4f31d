"""Phrases that reports share: a number with its noun, a line of the user's program, a reason as a sentence.

Must not know what a report is about.
"""

from __future__ import annotations

import linecache
import os.path

from tracejit.capture.reasons import Reason

__all__ = ["counted", "line_named", "sentence"]


def counted(count: int, what: str) -> str:
    """A number with its noun: "1 path", "1,000 paths"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def line_named(where: str, with_text: bool = True) -> str:
    """The user's "file:line" in words; "" for "".  with_text: whether the text of the line follows, if it can be read."""
    file, _, line = where.rpartition(":")
    if not file:
        return ""
    text = linecache.getline(file, int(line)).strip() if with_text else ""
    return f"line {line} of {os.path.basename(file)}" + (f", `{text}`" if text else "")


def sentence(reason: Reason) -> str:
    """A reason as a sentence: why a call runs eagerly, where, and what to do."""
    location = line_named(reason.where)
    return f"{reason.message}{f' ({location})' if location else ''}. {reason.remedy}."
