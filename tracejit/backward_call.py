"""Backward passes through one compiled program as one call.

What a pass through a `CompiledNode` does besides running the backward program is known when that is made: which saved values it
checks, where the program's operands are, what becomes of its results.  `make` writes a function of it, in one of two forms.  One
answers with the gradients, for the engine.  The other is the whole pass, for the usual case that all inputs which want gradients are
leaves, so that a pass from one output enters this node and nothing else: it adds to `.grad` of the leaves.

Both leave everything as it was and answer False where something is out of the ordinary: a graph that an earlier pass has freed, a saved
value that was changed since, arrays that the program was not made for; and hooks, for the second form.  Then `CompiledNode.backward_to`, or
the engine, goes on as if nothing had been tried, and raises what is to be raised.

The function is Python until it has served `config.hot_calls` passes; afterwards machine code (hot_entry.py), as entries are, where the
node has few edges.

It must not know how programs are made, nor what eager's tape looks like: the caller says what a pass checks and frees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.autograd.compiled import NOTHING_FREED, Call, CompiledNode
from tracejit.autograd.tape import mark_written
from tracejit.capture.runs import commas
from tracejit.codegen.lowered import Output
from tracejit.codegen.straight_line import RUN, Untranslatable
from tracejit.config import config
from tracejit.core.aside import aside
from tracejit.core.interpreter import state
from tracejit.hot_entry import machine_function
from tracejit.runtime.program import Program
from tracejit.tensor import Tensor

__all__ = ["Pass", "make", "never"]

_NOTHING: Final = Output("literal")
_LARGEST: Final = 64
"""Edges of the largest node whose calls become machine code: its text grows with them, and what it saves is little beside their program."""
_USUAL: Final = "if type(node) is not CompiledNode or node.freed is not NOTHING_FREED: return False"


@dataclass(frozen=True, slots=True)
class Pass:
    """A backward pass to everything.

    program: its arrays are the tensor inputs at the positions `picks`, `cotangents` more, and the slab if it `reads_slab`; its numbers
    the scalar inputs at the positions `numbers`.  wanted: per tensor input, whether the program has an output for it.  freed: what
    `CompiledNode.freed` is after the pass, and is_last whether it then drops its memory.  counter[3] counts calls into machine code."""

    program: Program
    picks: Sequence[int]
    cotangents: int
    reads_slab: bool
    numbers: Sequence[int]
    wanted: Sequence[bool]
    freed: frozenset[int]
    is_last: bool
    counter: list[int]


class _Refused(dict[int, bool]):
    """What a call answers, whatever code its program returned."""

    def __missing__(self, code: int) -> bool:
        return False


def never(node: CompiledNode, cotangents: Sequence[Any], retain: bool) -> bool:
    """The call that leaves every pass to others."""
    return False


def make(work: Pass, node: CompiledNode, to_leaves: bool, replace: Callable[[Call], None], refuse: Callable[[str], None]) -> Call:
    """`call(node, cotangents, retain)` for the nodes of a plan, of which `node` is one; cotangents are contiguous arrays.  It answers False
    where nothing was done.

    to_leaves: the gradients are added to `.grad` of the leaves, and the node is released unless `retain`; else the answer is a tuple of
    arrays that nobody else has, one for each edge (None where there is none), and nothing is released.  replace: told of the machine
    code that does the same; refuse: why there is none."""
    arrays = [*[f"a{i}" for i in work.picks], *[f"c{k}" for k in range(work.cotangents)], *(["slab"] if work.reads_slab else [])]
    fragment = work.program.inline(arrays, [f"scalars[{i}]" for i in work.numbers])
    run = fragment.run
    made = [output for output in work.program.lowered.outputs if output != _NOTHING]
    if run is None or any(o.source != "fresh" for o in made) or len({o.number for o in made}) != len(made):
        return never  # others may have the arrays
    before = [_USUAL, *(_leaves(node) if to_leaves else []), *_unchanged(node), *_operands(work, node)]
    after = [f"counter[3] += {work.program.machine_calls}", *_results(work, fragment.results, to_leaves)]
    kinds = {type(edge[0]) for edge in node.edges if edge is not None}

    def promote() -> None:
        arguments = ["node = args[0]", "cotangents = args[1]", "retain = args[2]"]
        source = _function("args, kwargs", [*arguments, *before, RUN, *after])
        made = aside(lambda: machine_function(source, environment, run()))
        error = made.error
        if error is None:
            replace(made.value)
            return
        served[0] += 1  # nobody asks again
        if isinstance(error, Untranslatable):
            refuse(str(error))
        elif config.verify:
            raise error
        else:
            refuse(f"its translation, which failed: {type(error).__name__}: {error}")

    small = len(node.edges) <= _LARGEST
    if not small:
        refuse(f"a node of {len(node.edges)} edges ({_LARGEST} at most)")
    served = [0]
    environment: dict[str, Any] = {
        **fragment.environment, **{f"kind{k}": kind for k, kind in enumerate(kinds)},
        "CompiledNode": CompiledNode, "Tensor": Tensor, "NOTHING_FREED": NOTHING_FREED, "leave": _Refused(), "counter": work.counter,
        "new": object.__new__, "freed": work.freed, "state": state, "add": np.add, "mark_written": mark_written,
        "served": served, "hot": config.hot_calls - 1 if small else -1, "promote": promote,
    }  # fmt: skip
    asking = "if served[0] == hot: promote()"  # before the program: an interrupt finds nothing done
    source = _function("node, cotangents, retain", [*before, asking, *fragment.lines, "served[0] += 1", *after])
    exec(compile(source, "<tracejit backward>", "exec"), environment)
    call: Call = environment["entry"]
    return call


def _function(arguments: str, lines: Sequence[str]) -> str:
    return "\n".join([f"def entry({arguments}):", *[f"    {line}" for line in lines]]) + "\n"


def _leaves(node: CompiledNode) -> list[str]:
    """What finds the leaves, which are different ones (entries see to that), and makes sure that nothing else is to be done than to add to
    their gradients."""
    leaves = [f"l{i}" for i, edge in enumerate(node.edges) if edge is not None]
    lines = ["if node.hooks: return False"]
    lines.append(f"{commas('_' if edge is None else f'(l{i}, _)' for i, edge in enumerate(node.edges))}= node.edges")
    lines += [f"if {leaf}._hooks: return False" for leaf in leaves]
    return lines


def _unchanged(node: CompiledNode) -> list[str]:
    """What makes sure that nothing was written to since the node was made."""
    lines = ["made = node.sequence"]
    for kind in ("storages", "saved"):
        names = [f"{kind}{i}" for i in range(len(getattr(node, kind)))]
        if names:
            lines.append(f"{commas(names)}= node.{kind}")
            lines += [f"if {name}.written > made: return False" for name in names]
    return lines


def _operands(work: Pass, node: CompiledNode) -> list[str]:
    """What finds the program's operands.  The parts of `node.arrays` are alike in all nodes of a plan."""
    places = [f"arrays[{p}][{k}]" for p, part in enumerate(node.arrays) for k in range(len(part))]
    lines = ["arrays = node.arrays"] if work.picks else []
    lines += [f"a{i} = {places[i]}" for i in work.picks]
    lines += [f"c{k} = cotangents[{k}]" for k in range(work.cotangents)]
    lines += ["scalars = node.scalars"] if work.numbers else []
    return [*lines, "slab = node.slab"] if work.reads_slab else lines


def _release(work: Pass) -> list[str]:
    """What `CompiledNode.release` does after this pass."""
    if not work.freed:
        return []
    dropped = ["    node.slab = None", "    node.tensors = ()", "    node.arrays = ()"]
    return ["if retain is False:", "    node.freed = freed", *(dropped if work.is_last else [])]


def _results(work: Pass, results: Sequence[str], to_leaves: bool) -> list[str]:
    """What hands over the program's results.  `run_quietly` may refuse: then nothing has been done."""
    found = iter(zip(results, work.program.lowered.outputs, strict=True))
    outputs = [next(found) if want else ("", _NOTHING) for want in work.wanted]
    arrays = {i: array for i, (array, output) in enumerate(outputs) if output != _NOTHING}
    if not to_leaves:
        return [f"return ({commas(arrays.get(i, 'None') for i in range(len(outputs)))})"]
    lines = ["quietly = state.run_quietly", *[f"p{i} = l{i}._grad" for i in arrays]]
    for i, array in arrays.items():
        lines += [
            f"if p{i} is not None:",
            f"    if p{i}._storage is not None: mark_written((p{i}._storage, ))",
            f"    quietly(add, p{i}._array, {array}, p{i}._array)",
        ]
    lines += _release(work)
    for i, array in arrays.items():
        lines += [
            f"g{i} = new(Tensor)", f"g{i}._array = {array}",
            f"g{i}._requires_grad = False", f"g{i}._node = None", f"g{i}._index = 0", f"g{i}._storage = None", f"g{i}._base = None",
            f"g{i}._grad = None", f"g{i}._hooks = None", f"if p{i} is None: l{i}._grad = g{i}",
        ]  # fmt: skip
    return [*lines, "return True"]
