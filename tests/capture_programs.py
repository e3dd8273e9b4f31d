"""Programs that Python's corners and outside state make hard to record, each with what must become of it.

`@program()` or `@program(reason="code")` registers a maker that returns (function, calls, observe): calls are applied in turn to the
eager or the compiled function, observe() reads outside state at the end.  Results, types, errors and outside state must be the same.
"""

from __future__ import annotations

import programs_containers
import programs_eager
import programs_language
import programs_objects
import programs_tensors
from registered_programs import PROGRAMS

__all__ = ["PROGRAMS", "programs_containers", "programs_eager", "programs_language", "programs_objects", "programs_tensors"]
