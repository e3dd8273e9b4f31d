"""Programs that Python's corners and outside state make hard to record, each with what must become of it.

`@program()` or `@program(reason="code")` registers a maker that returns (function, calls, observe): calls are applied in turn to the
eager or the compiled function, observe() reads outside state at the end.  Results, types, errors and outside state must be the same.
"""

from __future__ import annotations

import contextlib
import io

import programs_aliasing
import programs_ambient
import programs_classes
import programs_collections
import programs_containers
import programs_control
import programs_draws
import programs_eager
import programs_flow
import programs_functions
import programs_hooks
import programs_iterators
import programs_language
import programs_leaving
import programs_lifetimes
import programs_made_classes
import programs_modules
import programs_numbered_items
import programs_numbers
import programs_numbers_that_leave
import programs_objects
import programs_order
import programs_outliving
import programs_places
import programs_reach
import programs_reached
import programs_records
import programs_results
import programs_special_methods
import programs_stand_ins
import programs_state
import programs_subclasses
import programs_tensor_state
import programs_tensors
import programs_truth
import programs_views
from corpus_facts import facts, rounded
from registered_programs import PROGRAMS

__all__ = [
    "PROGRAMS", "programs_aliasing", "programs_ambient", "programs_classes", "programs_collections", "programs_containers",
    "programs_control", "programs_draws", "programs_eager", "programs_flow", "programs_functions", "programs_hooks", "programs_iterators",
    "programs_language", "programs_leaving", "programs_lifetimes", "programs_made_classes", "programs_modules", "programs_numbered_items",
    "programs_numbers", "programs_numbers_that_leave", "programs_objects", "programs_order", "programs_outliving", "programs_places",
    "programs_reach", "programs_reached", "programs_records", "programs_results", "programs_special_methods", "programs_stand_ins",
    "programs_state", "programs_subclasses", "programs_tensor_state", "programs_tensors", "programs_truth", "programs_views", "run",
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
