"""Whether the running line of the function is inside a `try` or `with` block, which might handle an error.

A deferred call is made after the program, outside of such blocks: an error of it would not be handled.  So inside of them a call
that may raise is not deferred.
"""

from __future__ import annotations

from tracejit.capture.call_sites import instrumented_frames
from tracejit.cpython.exception_tables import is_covered

__all__ = ["is_in_try_block"]


def is_in_try_block(blocks: bool) -> bool:
    """Whether a `try` block contains the running line of any instrumented function on the stack.  blocks: also `with` blocks."""
    return any(is_covered(frame, blocks) for frame in instrumented_frames())
