"""Whether what the program calls may raise without its noticing: blocks of `try` and `with` around the line that runs.

A call that is made after the program raises where nobody handles it.  So where the program would, the call is not put off.
"""

from __future__ import annotations

from tracejit.capture.call_sites import instrumented_frames
from tracejit.cpython.exception_tables import is_covered

__all__ = ["is_in_try_block"]


def is_in_try_block(blocks: bool) -> bool:
    """Whether a `try` of the program, or a `with` if `blocks`, is around the line that runs, in whatever function."""
    return any(is_covered(frame, blocks) for frame in instrumented_frames())
