"""Programs that Python's corners and outside state make hard to record, each with what must become of it.

`@program()` or `@program(reason="code")` registers a maker that returns (function, calls, observe): calls are applied in turn to the
eager or the compiled function, observe() reads outside state at the end.  Results, types, errors and outside state must be the same.
"""

from __future__ import annotations

import contextlib
import io

import programs_collections
import programs_containers
import programs_control
import programs_eager
import programs_functions
import programs_language
import programs_numbers
import programs_objects
import programs_order
import programs_reach
import programs_records
import programs_special_methods
import programs_state
import programs_tensor_state
import programs_tensors
from corpus_facts import facts, rounded
from registered_programs import PROGRAMS

__all__ = [
    "PROGRAMS", "programs_collections", "programs_containers", "programs_control", "programs_eager", "programs_functions",
    "programs_language", "programs_numbers", "programs_objects", "programs_order", "programs_reach", "programs_records",
    "programs_special_methods", "programs_state", "programs_tensor_state", "programs_tensors", "run",
]  # fmt: skip

ROUNDS = 3


def run(maker, compiler, number=rounded):
    """((what each call came to, outside state, what was printed), the function called): all calls, three times over.

    number: how numbers are compared."""
    function, calls, observe = maker()
    called = compiler(function)
    outcomes = []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for call in list(calls) * ROUNDS:
            try:
                outcomes.append(("returned", facts(call(called), number)))
            except Exception as error:
                outcomes.append(("raised", type(error), facts(error.args, number)))
    return (outcomes, facts(observe(), number) if observe else None, printed.getvalue()), called
