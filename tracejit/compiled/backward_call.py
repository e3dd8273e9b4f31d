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
from tracejit.compiled.hot_entry import machine_function
from tracejit.compiled.tape_edges import new_tensor
from tracejit.config import config
from tracejit.core.interpreter import state
from tracejit.core.uninterrupted import start_work
from tracejit.cpython.functions import Untranslatable
from tracejit.lowering.lowered import Output
from tracejit.replay import python
from tracejit.replay.ir import (
    Constant,
    Define,
    Evaluate,
    Expr,
    Function,
    If,
    Increment,
    Item,
    Miss,
    Name,
    Notify,
    Return,
    SetAttribute,
    Statement,
    TupleOf,
    Unpack,
    tuple_of,
)
from tracejit.runtime.program import Program
from tracejit.tensor import Tensor

__all__ = ["Pass", "make", "never"]

_NOTHING: Final = Output("literal")
_LARGEST: Final = 64
"""Edges of the largest node whose calls become machine code: its text grows with them, and what it saves is little beside their program."""
_NODE: Final = Name("node")
_GIVEN: Final = (
    *[Define(name, Name("args").at(k)) for k, name in enumerate(("node", "cotangents", "retain"))],
    Miss(_NODE.type().is_not(Name("CompiledNode")).otherwise(_NODE.get("freed").is_not(Name("NOTHING_FREED")))),
)
_PROMOTE: Final = Notify(Name("promote").call(), Name("served").at(0).compared("==", Name("hot")))


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


def make(
    work: Pass,
    node: CompiledNode,
    to_leaves: bool,
    replace: Callable[[Call], None],
    refuse: Callable[[str], None],
    patience: Callable[[], float],
) -> Call:
    """`call(node, cotangents, retain)` for the nodes of a plan, of which `node` is one; cotangents are contiguous arrays.  It answers False
    where nothing was done.

    to_leaves: the gradients are added to `.grad` of the leaves, and the node is released unless `retain`; else the answer is a tuple of
    arrays that nobody else has, one for each edge (None where there is none), and nothing is released.  replace: told of the machine
    code that does the same; refuse: why there is none; patience: how many seconds a call waits for it."""
    names = [*[f"a{i}" for i in work.picks], *[f"c{k}" for k in range(work.cotangents)], *(["slab"] if work.reads_slab else [])]
    fragment = work.program.inline([*map(Name, names)], [Name("scalars").at(i) for i in work.numbers])
    made = [output for output in work.program.outputs if output != _NOTHING]
    if any(o.source != "fresh" for o in made) or len({o.number for o in made}) != len(made):
        return never  # others may have the arrays
    before = [*_GIVEN, *(_leaves(node) if to_leaves else []), *_unchanged(node), *_operands(work, node)]
    counted = [
        Increment(Item(Name("served"), Constant(0)), 1),
        Increment(Item(Name("counter"), Constant(3)), work.program.machine_calls),
    ]
    body = (_PROMOTE, fragment.run, *counted, *_results(work, fragment.results, to_leaves))
    function = Function(("*args",), tuple(before), body, Constant(False), catches=False)
    kinds = {type(edge[0]) for edge in node.edges if edge is not None}

    def translate() -> None:
        try:
            replace(machine_function(function, environment))
        except Untranslatable as error:
            refuse(str(error))
        except Exception as error:
            refuse(f"its translation, which failed: {type(error).__name__}: {error}")
            raise

    def promote() -> None:
        served[0] += 1  # nobody asks again
        translation = start_work(translate, patience(), lambda: served.__setitem__(0, 0))
        if config.verify and translation.finished:
            translation.outcome().result()

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
    answer: Call = python.load(function, "entry", environment, "backward")
    return answer


def _leaves(node: CompiledNode) -> list[Statement]:
    """What finds the leaves, which are different ones (entries see to that), and makes sure that nothing else is to be done than to add to
    their gradients."""
    places = tuple(["_" if edge is None else (f"l{i}", "_") for i, edge in enumerate(node.edges)])
    leaves = [Name(f"l{i}") for i, edge in enumerate(node.edges) if edge is not None]
    unpacked = Unpack(places, _NODE.get("edges"))
    return [Miss(_NODE.get("hooks")), unpacked, *[Miss(leaf.get("_hooks")) for leaf in leaves]]


def _unchanged(node: CompiledNode) -> list[Statement]:
    """What makes sure that nothing was written to since the node was made."""
    statements: list[Statement] = [Define("made", _NODE.get("sequence"))]
    for kind in ("storages", "saved"):
        names = tuple([f"{kind}{i}" for i in range(len(getattr(node, kind)))])
        if names:
            statements.append(Unpack(names, _NODE.get(kind)))
            statements += [Miss(Name(name).get("written").compared(">", Name("made"))) for name in names]
    return statements


def _operands(work: Pass, node: CompiledNode) -> list[Statement]:
    """What finds the program's operands.  The parts of `node.arrays` are alike in all nodes of a plan."""
    places = [Name("arrays").at(p).at(k) for p, part in enumerate(node.arrays) for k in range(len(part))]
    statements = [Define("arrays", _NODE.get("arrays"))] if work.picks else []
    statements += [Define(f"a{i}", places[i]) for i in work.picks]
    statements += [Define(f"c{k}", Name("cotangents").at(k)) for k in range(work.cotangents)]
    statements += [Define("scalars", _NODE.get("scalars"))] if work.numbers else []
    return [*statements, *([Define("slab", _NODE.get("slab"))] if work.reads_slab else [])]


def _release(work: Pass) -> list[Statement]:
    """What `CompiledNode.release` does after this pass."""
    if not work.freed:
        return []
    dropped = [("slab", Constant(None)), ("tensors", TupleOf(())), ("arrays", TupleOf(()))] if work.is_last else []
    changes = [SetAttribute(_NODE, name, value) for name, value in (("freed", Name("freed")), *dropped)]
    return [If(Name("retain").is_same(False), tuple(changes))]


def _results(work: Pass, results: Sequence[Expr], to_leaves: bool) -> list[Statement]:
    """What hands over the program's results.  `run_quietly` may refuse: then nothing has been done."""
    none = Constant(None)
    found = iter(zip(results, work.program.outputs, strict=True))
    outputs = [next(found) if want else (none, _NOTHING) for want in work.wanted]
    arrays = {i: array for i, (array, output) in enumerate(outputs) if output != _NOTHING}
    if not to_leaves:
        return [Return(TupleOf(tuple([arrays.get(i, none) for i in range(len(outputs))])))]
    statements: list[Statement] = [Define("quietly", Name("state").get("run_quietly"))]
    statements += [Define(f"p{i}", Name(f"l{i}").get("_grad")) for i in arrays]
    for i, array in arrays.items():
        before = Name(f"p{i}")
        storage, memory = before.get("_storage"), before.get("_array")
        marked = Evaluate(Name("mark_written").call(tuple_of(storage)))
        added = Evaluate(Name("quietly").call(Name("add"), memory, array, memory))
        statements.append(If(before.is_not(None), (If(storage.is_not(None), (marked,)), added)))
    statements += _release(work)
    for i, array in arrays.items():
        given = SetAttribute(Name(f"l{i}"), "_grad", Name(f"g{i}"))
        statements += [*new_tensor(f"g{i}", array), If(Name(f"p{i}").is_same(None), (given,))]
    return [*statements, Return(Constant(True))]
