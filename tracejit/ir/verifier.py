"""Checks that a graph is well formed.

Invariants checked: every value is defined once and before its use; every aval is what the op's shape rule says (sizes that depend on
data are those recorded); constants have their avals' data; operands are ids, literals or None; attributes are sorted and hashable; guards
test one element against a literal; writes give an input of a functional graph, once, a value of its own aval; a raw graph writes through
nodes and to nothing constant; only floating-point tensors require grad.  With `functional=True` no node writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Final

from tracejit.core.aval import UNKNOWN, Aval, ScalarAval
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Effect, Kind
from tracejit.core.symbolic import has_symbols
from tracejit.ir.graph import Graph, Literal, Node, likeness, operand_aval
from tracejit.ir.printer import node_text

__all__ = ["VerificationError", "verify"]

_CHECKED: Final = (Kind.GUARD, Kind.WRITE, Kind.LOOP)


class VerificationError(ValueError):
    """A graph breaks an invariant; the message names the node."""


def verify(graph: Graph, functional: bool = False) -> Graph:
    """`graph` itself.  Raises VerificationError naming the first node, output or write that breaks an invariant."""
    _verify_inputs(graph)
    defined = {*graph.inputs, *graph.constants}
    read_only = set(graph.constants)
    agreed: set[Hashable] = set()
    kinds = {v: id(aval) for v, aval in graph.avals.items()}  # most avals are one object, which is sooner found than its equal
    for position, node in enumerate(graph.nodes):
        _verify_values(graph, position, node, defined)
        if not _is_like_one_of(agreed, kinds, node):
            _verify_shapes(graph, position, node)
        kind = node.op.kind
        if kind in _CHECKED:
            _verify_special(graph, position, node)
        if functional and node.op.effect is Effect.IN_PLACE:
            _fail(graph, position, node, "writes to memory; in a functional graph only Graph.writes do")
        if read_only and (kind is Kind.VIEW or kind is Kind.WRITE) and node.operands[0] in read_only:
            if kind is Kind.WRITE:
                _fail(graph, position, node, f"writes to a constant, v{node.operands[0]}")
            read_only.update(node.outputs)
        defined.update(node.outputs)
    for i, output in enumerate(graph.outputs):
        if not (output is None or isinstance(output, Literal) or output in defined):
            raise VerificationError(f"output {i} is {output!r}, which no node defines")
    _verify_writes(graph, defined)
    for v in graph.stale - defined:
        raise VerificationError(f"stale holds v{v}, which no node defines")
    for v in graph.requires_grad:
        if v not in defined:
            raise VerificationError(f"requires_grad holds v{v}, which no node defines")
        aval = graph.avals[v]
        if not isinstance(aval, Aval) or not aval.dtype.is_floating_point:
            raise VerificationError(f"requires_grad holds v{v}, a {aval}; only floating-point tensors require grad")
    return graph


def _fail(graph: Graph, position: int, node: Node, message: str) -> None:
    raise VerificationError(f"node {position}, `{_describe(node, graph)}`: {message}")


def _describe(node: Node, graph: Graph) -> str:
    """The node as printed; if it is too odd to be printed, its parts."""
    try:
        return node_text(node, graph)
    except TypeError as error:
        if is_foreign(error):
            raise
        return f"{node.outputs} = {node.op.name}{node.operands} with attributes {node.attributes}"


def _verify_inputs(graph: Graph) -> None:
    names = (*graph.inputs, *graph.constants)
    if len(set(names)) != len(names):
        raise VerificationError(f"inputs and constants {names} are not distinct")
    for v in names:
        if v not in graph.avals:
            raise VerificationError(f"input v{v} has no aval")
    for v, data in graph.constants.items():
        aval = graph.avals[v]
        if not isinstance(aval, Aval) or data.shape != aval.shape or data.dtype != aval.dtype.numpy:
            raise VerificationError(f"constant v{v} is declared {aval}, its data are {data.dtype}{list(data.shape)}")


def _verify_values(graph: Graph, position: int, node: Node, defined: set[int]) -> None:
    """What a node reads, and what it defines."""
    for operand in node.operands:
        if type(operand) is int:
            if operand not in defined:
                where = "later" if operand in graph.avals else "nowhere"
                i = node.operands.index(operand)
                _fail(graph, position, node, f"operand {i} is v{operand}, which is defined {where}; expected an earlier value")
        elif operand is not None and not (isinstance(operand, Literal) and isinstance(operand.value, (bool, int, float))):
            i = node.operands.index(operand)
            _fail(
                graph, position, node, f"operand {i} is {operand!r}; expected a value id, a Literal bool, int or float, or None"
            )
    for v in node.outputs:
        if v in defined:
            _fail(graph, position, node, f"v{v} is defined a second time")
        if v not in graph.avals:
            _fail(graph, position, node, f"v{v} has no aval")
    if len(node.outputs) > 1 and len(set(node.outputs)) != len(node.outputs):
        _fail(graph, position, node, "outputs are not distinct")


def _verify_special(graph: Graph, position: int, node: Node) -> None:
    """What only some kinds of nodes have to be."""
    if node.op.kind is Kind.GUARD:
        _verify_guard(graph, position, node)
    elif node.op.kind is Kind.WRITE:
        _verify_write_node(graph, position, node)
    elif node.op.kind is Kind.LOOP:
        verify(node.attrs["body"].graph, functional=True)


def _is_like_one_of(agreed: set[Hashable], kinds: Mapping[int, int], node: Node) -> bool:
    """Whether another node, as most have one, had the same of what decides whether attributes and avals are right; else this one is among
    `agreed` from now on.  A node with symbolic sizes among its attributes, which are not to be compared, or with some that are odd, is
    like no other."""
    if node.attributes and has_symbols(node.attributes):
        return False
    count = len(agreed)
    try:
        agreed.add(likeness(node, kinds, kinds))
    except TypeError as error:
        if is_foreign(error):
            raise
        return False
    return len(agreed) == count


def _verify_shapes(graph: Graph, position: int, node: Node) -> None:
    """Attributes, and the avals of outputs."""
    if len(node.attributes) > 1 and list(node.attributes) != sorted(node.attributes, key=itemgetter(0)):
        _fail(graph, position, node, "attributes are not sorted by name")
    try:
        hash(node.attributes)
    except TypeError as error:
        if is_foreign(error):
            raise
        _fail(graph, position, node, f"attributes are not hashable ({error})")
    try:
        inferred = node.op.infer_tuple([operand_aval(x, graph.avals) for x in node.operands], node.attrs)
    except Exception as error:
        if is_foreign(error):
            raise
        raise VerificationError(
            f"node {position}, `{_describe(node, graph)}`: its shape rule refuses the operands: {error}"
        ) from error
    recorded = tuple([graph.avals[v] for v in node.outputs])
    if not _allows(inferred, recorded):
        _fail(
            graph,
            position,
            node,
            f"its shape rule says ({', '.join(map(str, inferred))}), recorded is ({', '.join(map(str, recorded))})",
        )


def _allows(inferred: tuple[Aval, ...], recorded: tuple[Aval | ScalarAval, ...]) -> bool:
    """Whether recorded avals are what a shape rule says; sizes that it does not know may be any."""
    if len(inferred) != len(recorded):
        return False
    return all(
        isinstance(aval, Aval) and UNKNOWN not in aval.shape and rule.allows(aval)
        for rule, aval in zip(inferred, recorded, strict=True)
    )


def _verify_guard(graph: Graph, position: int, node: Node) -> None:
    aval = operand_aval(node.operands[0], graph.avals)
    if not isinstance(aval, Aval) or aval.size != 1:
        _fail(graph, position, node, f"guards a {aval}; expected a tensor of one element")
    if not isinstance(node.attrs.get("expected"), Literal):
        _fail(graph, position, node, "attribute expected is no Literal")


def _verify_write_node(graph: Graph, position: int, node: Node) -> None:
    target, value = (operand_aval(x, graph.avals) for x in node.operands)
    if not isinstance(target, Aval):
        _fail(graph, position, node, f"writes to a {target}; expected a tensor")
    elif isinstance(value, Aval):
        if value.dtype is not target.dtype:
            _fail(graph, position, node, f"writes {value.dtype.name} to {target.dtype.name}; cast the value first")
        lead = target.ndim - value.ndim
        if lead < 0 or any(s not in (1, t) for s, t in zip(value.shape, target.shape[lead:], strict=True)):
            _fail(graph, position, node, f"the value {value} does not broadcast to the target {target}")


def _verify_writes(graph: Graph, defined: set[int]) -> None:
    targets = [target for target, _ in graph.writes]
    if len(set(targets)) != len(targets):
        raise VerificationError(f"writes {graph.writes} commit an input twice")
    for target, v in graph.writes:
        if target not in graph.inputs or isinstance(graph.avals[target], ScalarAval):
            raise VerificationError(f"write to v{target}, which is no tensor input")
        if v not in defined:
            raise VerificationError(f"write to v{target} of v{v}, which no node defines")
        if graph.avals[v] != graph.avals[target]:
            raise VerificationError(
                f"write to v{target}, {graph.avals[target]}, of v{v}, {graph.avals[v]}; both must be the same"
            )
