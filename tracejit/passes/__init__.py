"""Passes: functions `graph -> graph`, a file each, in the literal lists of pipeline.py.

From a recorded graph to a pure one (functionalise.py), then to a forward graph with residuals and backward graphs on demand
(partition.py, residuals.py, backward.py), then rewrites that keep every bit.  Loops that Python has unrolled become loops again
(reroll.py with own_slices.py, periods.py, slices.py and join.py); hoist.py takes products out of them.  products.py and
copies.py depend on layouts, so lowering runs them.  Where the library verifies itself, the verifier runs after each pass, and
`memory.verify_memory` holds each pass to leave outputs in memory of their own.

Must not know: names of primitives, fusion, machines.
Start reading: pipeline.py, then cse.py (a short pass), functionalise.py, partition.py.
"""
