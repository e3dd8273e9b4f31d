"""The process that `first_call.py` starts and times: imports one library, builds one row, calls it twice and says `ready`.

Run as `python -m benchmarks.first_call_child LIBRARY ROW`.  It must import nothing of the other libraries: imports are part of the time.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

from benchmarks import models, modules, training
from benchmarks.workload import Side

__all__ = ["CALLS", "main", "make_side"]

CALLS = 2
"""The second call is the first that only computes, once everything is recorded and compiled."""


def make_side(library: str, row: str) -> Side:
    """The compiled side of a row with products.  library: tracejit, jax or torch (its compiler)."""
    if library == "jax":
        side: Side = importlib.import_module("benchmarks.jax_rows").SIDES[row]()
        return side
    framework = importlib.import_module(library)
    workloads = {workload.name: workload for workload in (*training.ROWS, *models.ROWS, *modules.ROWS)}
    return workloads[row].build(framework, framework.compile)


def main() -> None:
    """Two calls, then `ready` on a line of its own, then as JSON this process's CPU seconds and the first result, for the parent."""
    library, row = sys.argv[1:]
    side = make_side(library, row)
    for _ in range(CALLS):
        returned = side.run()
    print("ready", flush=True)
    seconds = time.process_time()
    print(json.dumps([seconds, side.results(returned)[0].tolist()]), flush=True)


if __name__ == "__main__":
    main()
