"""The passes, in order, and the driver that runs, times and stamps them.

The driver knows nothing of any pass but its name.  Each line of `Graph.history` says what a pass did: `cse: 41 -> 36 nodes, 0.3 ms`.
What comes from a recording is verified; with TRACEJIT_VERIFY=1 (or `check=True`) the verifier runs after each pass, too.
`observe(name of the pass, graph)` is shown each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from time import perf_counter

from tracejit.config import config
from tracejit.ir.graph import Graph
from tracejit.ir.verifier import verify
from tracejit.passes.algebra import algebra
from tracejit.passes.attention_formula import attention_formula
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce
from tracejit.passes.expand import expand
from tracejit.passes.forward_reads import forward_reads
from tracejit.passes.functionalise import functionalise
from tracejit.passes.hoist import hoist
from tracejit.passes.join import join
from tracejit.passes.loops import loops
from tracejit.passes.memory import verify_memory
from tracejit.passes.reroll import reroll
from tracejit.passes.written_rows import written_rows

__all__ = ["FINAL", "PREPARE", "Observe", "Pass", "optimise", "prepare", "run_passes"]

Pass = Callable[[Graph], Graph]
Observe = Callable[[str, Graph], None]

PREPARE: tuple[Pass, ...] = (functionalise, dce)
OF_BODIES: tuple[Pass, ...] = (attention_formula, expand, algebra, cse, dce)


def bodies(graph: Graph) -> Graph:
    """Loops do no more than is asked of them, and their bodies go through the passes (loops.py)."""
    return loops(graph, OF_BODIES)


FINAL: tuple[Pass, ...] = (forward_reads, *OF_BODIES, written_rows, reroll, join, bodies, hoist)


def prepare(graph: Graph, check: bool | None = None, observe: Observe | None = None) -> Graph:
    """Raw graph -> pure graph through which gradients may still be taken (`partition`).

    What was recorded is always verified: a shape rule that does not say what eager mode did would be a program that computes something
    else.  Raises VerificationError."""
    return run_passes(verify(graph), PREPARE, check, observe)


def optimise(graph: Graph, check: bool | None = None, observe: Observe | None = None, has_loops: bool = False) -> Graph:
    """Pure graph -> the graph to lower.  No gradient is taken of it any more, so its `requires_grad` marks go.  Inputs, outputs and
    writes keep their positions.  has_loops: what it is the backward pass of has loops that were unrolled, so this is searched for them,
    too, however small it is."""
    if graph.requires_grad:
        graph = replace(graph, requires_grad=frozenset(), stale=frozenset())
    passes = [partial(reroll, always=True) if run is reroll else run for run in FINAL] if has_loops else FINAL
    return run_passes(graph, passes, check, observe)


def run_passes(graph: Graph, passes: Iterable[Pass], check: bool | None = None, observe: Observe | None = None) -> Graph:
    """`graph` after `passes`, stamped.  Raises VerificationError, naming the pass, where verification is on and fails."""
    check = config.verify if check is None else check
    if check:
        verify(graph)
    for run in passes:
        start = perf_counter()
        result = run(graph)
        milliseconds = (perf_counter() - start) * 1e3
        name = getattr(run, "func", run).__name__
        stamp = f"{name}: {len(graph.nodes)} -> {len(result.nodes)} nodes, {milliseconds:.1f} ms"
        before, graph = graph, replace(result, history=(*result.history, stamp))
        if check:
            try:
                verify(graph, functional=True)
                verify_memory(before, graph)
            except ValueError as error:
                error.add_note(f"after the pass {name}")
                raise
        if observe is not None:
            observe(name, graph)
    return graph
