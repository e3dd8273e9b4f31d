"""A backward pass through one `CompiledNode` as one generated function.

When a backward program is compiled, everything else that a pass through the node does is known, too: which saved values it
checks, where the program's operands are, where its results go.  `make` generates a function for it, in one of two forms:

* One returns the gradients, to the engine.
* The other is a whole backward pass, for the usual case that all inputs that require grad are leaves, so that a pass from one
  output enters this node and no other: it adds the gradients to `.grad` of the leaves.

Both return False, and have changed nothing, in unusual cases: an earlier pass has freed the graph, a saved value was written
since, an array does not fit the program, or (second form) there are hooks.  Then `CompiledNode.backward_to`, or the engine, does
the pass from the beginning, and raises the errors.

The function is Python until it has served `config.hot_calls` passes.  After that it is machine code (hot_entry.py), like entries,
if the node has few edges.

This module must not know how programs are compiled, nor what the tape of eager mode is: the caller says what a pass checks and
frees.
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
"""Nodes with more edges stay in Python: the code grows with the edges, and their programs take so long that it would save
little."""
_NODE: Final = Name("node")
_GIVEN: Final = (
    *[Define(name, Name("args").at(k)) for k, name in enumerate(("node", "cotangents", "retain"))],
    Miss(_NODE.type().is_not(Name("CompiledNode")).otherwise(_NODE.get("freed").is_not(Name("NOTHING_FREED")))),
)
_PROMOTE: Final = Notify(Name("promote").call(), Name("served").at(0).compared("==", Name("hot")))


@dataclass(frozen=True, slots=True)
class Pass:
    """A backward pass to all inputs that require grad.

    program: its array operands are the tensor inputs at the positions `picks`, `cotangents` cotangents, and the slab if
        `reads_slab`; its scalar operands are the scalar inputs at the positions `numbers`.
    wanted: for each edge of the node, whether the program has an output for it.
    freed: `CompiledNode.freed` after the pass.  is_last: whether the node then drops its memory.
    counter: counter[3] counts calls of machine code."""

    program: Program
    picks: Sequence[int]
    cotangents: int
    reads_slab: bool
    numbers: Sequence[int]
    wanted: Sequence[bool]
    freed: frozenset[int]
    is_last: bool
    counter: list[int]


class _AlwaysFalse(dict[int, bool]):
    """Any code of a program -> False, which the call returns then."""

    def __missing__(self, code: int) -> bool:
        return False


def never(node: CompiledNode, cotangents: Sequence[Any], retain: bool) -> bool:
    """The call that does no pass: it always returns False."""
    return False


def make(
    work: Pass,
    node: CompiledNode,
    to_leaves: bool,
    replace: Callable[[Call], None],
    refuse: Callable[[str], None],
    patience: Callable[[], float],
) -> Call:
    """`call(node, cotangents, retain)` for all nodes of a plan, of which `node` is one.  cotangents: contiguous arrays.  The call
    returns False if it has done nothing.

    to_leaves: which form.  If True, the call adds the gradients to `.grad` of the leaves and releases the node unless `retain`.
        If False, it returns a tuple of new arrays, one for each edge (None if there is no gradient), and releases nothing.
    replace: called with the machine code of the call when that is compiled.
    refuse: called with a text that says why there is no machine code.
    patience: gives how many seconds a call waits for the machine code."""
    names = [*[f"a{i}" for i in work.picks], *[f"c{k}" for k in range(work.cotangents)], *(["slab"] if work.reads_slab else [])]
    fragment = work.program.inline([*map(Name, names)], [Name("scalars").at(i) for i in work.numbers])
    gradients = [output for output in work.program.outputs if output != _NOTHING]
    if any(o.source != "fresh" for o in gradients) or len({o.number for o in gradients}) != len(gradients):
        return never  # the arrays are not new ones of this call, one for each gradient
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
        served[0] += 1  # so that _PROMOTE does not hold again
        translation = start_work(translate, patience(), lambda: served.__setitem__(0, 0))
        if config.verify and translation.finished:
            translation.outcome().result()

    small = len(node.edges) <= _LARGEST
    if not small:
        refuse(f"a node of {len(node.edges)} edges ({_LARGEST} at most)")
    served = [0]
    environment: dict[str, Any] = {
        **fragment.environment, **{f"kind{k}": kind for k, kind in enumerate(kinds)},
        "CompiledNode": CompiledNode, "Tensor": Tensor, "NOTHING_FREED": NOTHING_FREED, "leave": _AlwaysFalse(), "counter": work.counter,
        "new": object.__new__, "freed": work.freed, "state": state, "add": np.add, "mark_written": mark_written,
        "served": served, "hot": config.hot_calls - 1 if small else -1, "promote": promote,
    }  # fmt: skip
    call: Call = python.load(function, "entry", environment, "backward")
    return call


def _leaves(node: CompiledNode) -> list[Statement]:
    """Statements that define the leaves `l<edge>` and check that neither the node nor a leaf has hooks.  Guards of entries
    require that the leaves are different tensors."""
    arrays = tuple(["_" if edge is None else (f"l{i}", "_") for i, edge in enumerate(node.edges)])
    leaves = [Name(f"l{i}") for i, edge in enumerate(node.edges) if edge is not None]
    unpacked = Unpack(arrays, _NODE.get("edges"))
    return [Miss(_NODE.get("hooks")), unpacked, *[Miss(leaf.get("_hooks")) for leaf in leaves]]


def _unchanged(node: CompiledNode) -> list[Statement]:
    """Statements that check that no saved value has been written since the node was created."""
    statements: list[Statement] = [Define("made", _NODE.get("sequence"))]
    for kind in ("storages", "saved"):
        names = tuple([f"{kind}{i}" for i in range(len(getattr(node, kind)))])
        if names:
            statements.append(Unpack(names, _NODE.get(kind)))
            statements += [Miss(Name(name).get("written").compared(">", Name("made"))) for name in names]
    return statements


def _operands(work: Pass, node: CompiledNode) -> list[Statement]:
    """Statements that define the program's operands.  The parts of `node.arrays` have the same lengths in all nodes of a plan."""
    arrays = [Name("arrays").at(p).at(k) for p, part in enumerate(node.arrays) for k in range(len(part))]
    statements = [Define("arrays", _NODE.get("arrays"))] if work.picks else []
    statements += [Define(f"a{i}", arrays[i]) for i in work.picks]
    statements += [Define(f"c{k}", Name("cotangents").at(k)) for k in range(work.cotangents)]
    statements += [Define("scalars", _NODE.get("scalars"))] if work.numbers else []
    return [*statements, *([Define("slab", _NODE.get("slab"))] if work.reads_slab else [])]


def _release(work: Pass) -> list[Statement]:
    """Statements that do what `CompiledNode.release` does after this pass."""
    if not work.freed:
        return []
    dropped = [("slab", Constant(None)), ("tensors", TupleOf(())), ("arrays", TupleOf(()))] if work.is_last else []
    changes = [SetAttribute(_NODE, name, value) for name, value in (("freed", Name("freed")), *dropped)]
    return [If(Name("retain").is_same(False), tuple(changes))]


def _results(work: Pass, results: Sequence[Expr], to_leaves: bool) -> list[Statement]:
    """Statements that return the program's results, or add them to `.grad` of the leaves."""
    none = Constant(None)
    pairs = iter(zip(results, work.program.outputs, strict=True))
    outputs = [next(pairs) if want else (none, _NOTHING) for want in work.wanted]
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
