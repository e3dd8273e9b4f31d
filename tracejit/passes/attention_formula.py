"""Attention written by hand, `softmax(q @ k.mT * scale + mask, -1) @ v`, in blocks where it is long.

The scores and weights of all queries and keys are the largest values of such a program.  Where nothing else reads them they are left out:
one node stands for the formula, which computes them block by block (`attention_in_blocks`), and one for its gradients, if they are there,
as the vjp rules of its primitives write them.  Where anything else reads one of these values, all stays as it is.

The formula is scores, a product with the transpose of a matrix; times or over a number, any number of times; plus a mask of addends, or
-inf chosen where a mask says so, at most one of both; softmax of rows; and the product with values.  Sizes decide whether it is long
(core/attention_blocks.py).  Last bits differ from those of the formula: numbers scale the queries, and sums go from block to block.

For graphs of which no gradient is taken any more, before composites are expanded.  It knows the primitives of the formula by their names.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from tracejit.core.attention_blocks import rows_of_block
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import bool_, float32, float64
from tracejit.core.op import REGISTRY, Op
from tracejit.core.shapes import same
from tracejit.ir.builder import GraphBuilder, next_id, producers, rebuild, substitute, uses
from tracejit.ir.graph import Graph, Literal, Node, Operand

__all__ = ["attention_formula"]

_SHORTEST: Final = 2  # dimensions of queries
_MINUS_INFINITY: Final = float("-inf")


def attention_formula(graph: Graph) -> Graph:
    """The graph with attention in blocks; `graph` itself where there is none that is long."""
    if not any(node.op.name == "softmax" for node in graph.nodes):
        return graph
    finder = _Finder(graph)
    formulas = [found for node in graph.nodes if node.op.name == "softmax" and (found := finder.formula(node)) is not None]
    if not formulas:
        return graph
    builder, replaced = GraphBuilder(next_id(graph)), dict[int, Operand]()
    builder.avals = dict(graph.avals)
    gone = {id(node) for formula in formulas for node in formula.nodes}
    forward = {id(formula.product): formula for formula in formulas}
    backward = {id(formula.gradients.first): formula for formula in formulas if formula.gradients is not None}
    for node in graph.nodes:
        if (formula := forward.get(id(node))) is not None:
            formula.add_forward(builder, replaced)
        elif (formula := backward.get(id(node))) is not None:
            formula.add_gradients(builder, replaced)
        elif id(node) not in gone:
            builder.nodes.append(substitute(node, replaced))
    return rebuild(graph, builder.nodes, replaced, avals=builder.avals)


@dataclass(slots=True)
class _Gradients:
    """first: the first node that reads `g`, the cotangent of the result.  of_query, of_turned_key, of_value: what is made; None for what
    nobody asks for."""

    g: int
    first: Node
    of_query: int | None = None
    of_turned_key: int | None = None
    of_value: int | None = None


@dataclass(slots=True)
class _Formula:
    """product: the last node, weights @ values.  turned_key: keys, transposed.  factors: numbers that scores are multiplied with, or
    divided by, each with the primitive that does it.  mask: bools (True takes part, or does not, where it is
    `negated`), addends, or None.  nodes: all that it does away with."""

    product: Node
    query: int
    turned_key: int
    value: int
    factors: list[tuple[Op, Operand]]
    mask: int | None
    negated: bool
    rows: int
    nodes: list[Node]
    gradients: _Gradients | None = None
    # of the nodes that take its place
    operands: tuple[Operand, ...] = ()
    out: int = -1
    logarithm: int = -1

    @property
    def attributes(self) -> dict[str, Any]:
        return {"scale": 1.0, "causal": False, "rows": self.rows, "rate": 0.0, "strict": True}

    def scaled(self, builder: GraphBuilder, v: int) -> int:
        """Queries, or their gradients, times the factors."""
        for op, number in self.factors:
            (v,) = builder.add(op, (v, number), {}, self.product.line)
        return v

    def add_forward(self, builder: GraphBuilder, replaced: dict[int, Operand]) -> None:
        def now(v: int) -> int:
            found = replaced.get(v, v)
            assert type(found) is int
            return found

        line = self.product.line
        query, turned, value = now(self.query), now(self.turned_key), now(self.value)
        key = _transposed(builder, turned, line)
        mask = None if self.mask is None else now(self.mask)
        if mask is not None:
            if self.negated:
                (mask,) = builder.add(REGISTRY["logical_not"], (mask,), {}, line)
            shape = _mask_shape(builder.aval(mask), builder.aval(query), builder.aval(key))
            if builder.aval(mask).shape != shape:
                (mask,) = builder.add(REGISTRY["expand"], (mask,), {"shape": shape}, line)
        self.operands = (self.scaled(builder, query), key, value, mask, None)
        self.out, self.logarithm = builder.add(REGISTRY["attention_in_blocks"], self.operands, self.attributes, line)
        replaced[self.product.outputs[0]] = self.out

    def add_gradients(self, builder: GraphBuilder, replaced: dict[int, Operand]) -> None:
        found, line = self.gradients, self.product.line
        assert found is not None
        g = replaced.get(found.g, found.g)
        last = (len(builder.aval(self.out).shape) - 1,)
        (each,) = builder.add(REGISTRY["mul"], (g, self.out), {}, line)
        (expected,) = builder.add(REGISTRY["sum"], (each,), {"dims": last, "keepdim": True}, line)
        operands = (*self.operands, g, self.logarithm, expected)
        of_query, of_key, of_value = builder.add(REGISTRY["attention_gradients"], operands, self.attributes, line)
        if found.of_query is not None:
            replaced[found.of_query] = self.scaled(builder, of_query)
        if found.of_turned_key is not None:
            replaced[found.of_turned_key] = _transposed(builder, of_key, line)
        if found.of_value is not None:
            replaced[found.of_value] = of_value


def _swapped(rank: int) -> tuple[int, ...]:
    """The dimensions of a matrix transposed."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _transposed(builder: GraphBuilder, v: int, line: str) -> int:
    (turned,) = builder.add(REGISTRY["permute"], (v,), {"dims": _swapped(len(builder.aval(v).shape))}, line)
    return turned


def _mask_shape(mask: Aval, query: Aval, key: Aval) -> tuple[Any, ...] | None:
    """The shape to which a mask is expanded for blocks; None where it has none that is not much larger than it is."""
    batch, (length, source) = tuple(query.shape[:-2]), (query.shape[-2], key.shape[-2])
    if len(mask.shape) < 2 or mask.shape[-2] == 1:
        return (*batch, 1, source)
    lead = (1,) * (len(batch) + 2 - len(mask.shape)) + tuple(mask.shape[:-2])
    if len(lead) != len(batch) or mask.shape[-2] != length or lead not in ((1,) * len(batch), batch):
        return None
    return (*lead, length, source)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.avals = graph, graph.avals
        self.made, self.uses = producers(graph), uses(graph)
        self.readers: defaultdict[int, list[Node]] = defaultdict(list)
        self.position = {id(node): k for k, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            for v in node.operands:
                if type(v) is int:
                    self.readers[v].append(node)

    def formula(self, softmax: Node) -> _Formula | None:
        """What softmax is a part of, if all of it may go."""
        (weights,), (x,) = softmax.outputs, softmax.operands
        aval = self.avals[weights]
        assert isinstance(aval, Aval)
        rank = len(aval.shape)
        if rank < _SHORTEST or softmax.attrs["dim"] != rank - 1 or aval.dtype not in (float32, float64) or type(x) is not int:
            return None
        products = [n for n in self.readers[weights] if n.op.name == "matmul" and n.operands[0] == weights]
        if len(products) != 1:
            return None
        (product,) = products
        found = self._scores(x, aval)
        value = product.operands[1]
        if found is None or type(value) is not int or value == weights:
            return None
        links, mask, negated, factors = found
        nodes = links
        query, turned = nodes[-1].operands
        assert type(query) is int and type(turned) is int
        q, k, v = (self._aval(i) for i in (query, turned, value))
        key = Aval((*k.shape[:-2], k.shape[-1], k.shape[-2]), k.dtype)
        alike = same(q.shape[:-2], k.shape[:-2]) and same(key.shape[:-1], v.shape[:-1]) and q.dtype is k.dtype is v.dtype
        if not alike or not q.shape[-1]:
            return None
        if mask is not None and ((shape := _mask_shape(self._aval(mask), q, key)) is None or len(shape) != rank):
            return None
        if not self._ends_known(links, weights, product):
            return None
        gradients = None
        if self.uses[weights] > 1:
            given = self._gradients(softmax, product, links, query, turned, value)
            if given is None:
                return None
            gradients, more = given
            nodes = [*nodes, *more]
        elif any(self.uses[link.outputs[0]] > 1 for link in links):
            return None
        rows = rows_of_block(q, key, False)
        if not rows:
            return None
        return _Formula(product, query, turned, value, factors, mask, negated, rows, [softmax, product, *nodes], gradients)

    def _aval(self, v: int) -> Aval:
        aval = self.avals[v]
        assert isinstance(aval, Aval)
        return aval

    def _scores(self, x: int, aval: Aval) -> tuple[list[Node], int | None, bool, list[tuple[Op, Operand]]] | None:
        """(the nodes from softmax's operand back to the product of scores, which comes last; a mask; whether it is negated; the factors).
        All of them have the shape of the scores."""
        nodes: list[Node] = []
        mask: int | None = None
        negated, factors = False, list[tuple[Op, Operand]]()
        while True:
            node = self.made.get(x)
            if node is None or not node.outputs or self.avals[x] != aval:
                return None
            nodes.append(node)
            if node.op.name == "matmul":
                return nodes, mask, negated, factors[::-1]
            a, *rest = node.operands
            following: Operand = a
            if node.op.name in ("mul", "div") and self._is_number(rest[0]):
                factors.append((node.op, rest[0]))
            elif node.op.name == "mul" and self._is_number(a):
                factors.append((node.op, a))
                following = rest[0]
            elif mask is not None or factors:
                return None  # what is masked is masked last
            elif node.op.name == "add" and type(a) is int and type(rest[0]) is int:
                scores = next((v for v in (a, rest[0]) if self.avals[v] == aval and self._is_of_scores(v)), None)
                if scores is None:
                    return None
                mask, following = (rest[0] if scores == a else a), scores
                if self._aval(mask).dtype is not aval.dtype:
                    return None
            elif node.op.name == "where" and type(a) is int and self._aval(a).dtype is bool_:
                yes, no = rest
                negated = self._is_minus_infinity(yes)
                if negated == self._is_minus_infinity(no):
                    return None
                mask, following = a, (no if negated else yes)
            else:
                return None
            if type(following) is not int:
                return None
            x = following

    def _is_number(self, x: Operand) -> bool:
        """Whether an operand is a number other than zero, or one that a call gives."""
        if type(x) is Literal:
            return type(x.value) in (int, float) and bool(x.value)
        return type(x) is int and isinstance(self.avals[x], ScalarAval)

    def _is_of_scores(self, v: int) -> bool:
        """Whether a value is a product, times numbers."""
        node = self.made.get(v)
        while node is not None and node.op.name in ("mul", "div"):
            node = next((self.made.get(x) for x in node.operands if type(x) is int and not self._is_number(x)), None)
        return node is not None and node.op.name == "matmul"

    def _is_minus_infinity(self, x: Operand) -> bool:
        if type(x) is Literal:
            return x.value == _MINUS_INFINITY
        node = self.made.get(x) if type(x) is int else None
        while node is not None and node.op.name in ("expand", "cast"):
            v = node.operands[0]
            node = self.made.get(v) if type(v) is int else None
        if node is None or node.op.name != "full":
            return False
        (number,) = node.operands or (None,)
        return type(number) is Literal and number.value == _MINUS_INFINITY

    def _ends_known(self, links: list[Node], weights: int, product: Node) -> bool:
        """Whether nothing between scores and weights is a result of the graph; nodes alone read it."""
        inner = [*[link.outputs[0] for link in links], weights]
        return all(self.uses[v] == len(self.readers[v]) for v in inner)

    def _only(self, v: int, name: str) -> Node | None:
        """The one node that reads a value, if it has this name."""
        return self.readers[v][0] if self.uses[v] == len(self.readers[v]) == 1 and self.readers[v][0].op.name == name else None

    def _gradients(
        self, softmax: Node, product: Node, links: list[Node], query: int, turned: int, value: int
    ) -> tuple[_Gradients, list[Node]] | None:
        """What the other readers of the weights are for, if it is the gradient of the formula and nothing else."""
        weights = softmax.outputs[0]
        others = [n for n in self.readers[weights] if n is not product]
        multiplied = [n for n in others if n.op.name == "mul"]
        turned_weights = [
            n for n in others if n.op.name == "permute" and n.attrs["dims"] == _swapped(len(self._aval(weights).shape))
        ]
        if len(multiplied) not in (0, 2) or len(turned_weights) > 1 or len(others) != len(multiplied) + len(turned_weights):
            return None
        if not multiplied:  # only the values have a gradient
            of_value = self._only(turned_weights[0].outputs[0], "matmul")
            if of_value is None or type(g := of_value.operands[1]) is not int or any(self.uses[x.outputs[0]] != 1 for x in links):
                return None
            return _Gradients(g, of_value, of_value=of_value.outputs[0]), [turned_weights[0], of_value]
        # (through - sum(through * weights)) * weights
        ends = [n for n in multiplied if (d := self._other(n, weights)) is not None and self._is(d, "sub")]
        if len(ends) != 1:
            return None
        (end,) = ends
        (first,) = (n for n in multiplied if n is not end)
        through, difference = self._other(first, weights), self._other(end, weights)
        total = self._only(first.outputs[0], "sum")
        rank = len(self._aval(weights).shape)
        if total is None or total.attrs != {"dims": (rank - 1,), "keepdim": True} or through is None or difference is None:
            return None
        less = self._only(total.outputs[0], "sub")
        if less is None or less.outputs[0] != difference or less.operands != (through, total.outputs[0]):
            return None
        if self._only(difference, "mul") is not end or {id(n) for n in self.readers[through]} != {id(first), id(less)}:
            return None
        if self.uses[through] != 2 or not self._is(through, "matmul"):
            return None
        of_weights = self.made[through]
        g, turned_value = of_weights.operands
        if type(g) is not int or type(turned_value) is not int or not self._turns(turned_value, value):
            return None
        found, nodes = _Gradients(g, of_weights), [of_weights, first, total, less, end]
        for node in turned_weights:
            of_value = self._only(node.outputs[0], "matmul")
            if of_value is None or of_value.operands != (node.outputs[0], g):
                return None
            found.of_value = of_value.outputs[0]
            nodes += [node, of_value]
            if self.position[id(of_value)] < self.position[id(found.first)]:
                found.first = of_value
        # back through masks and numbers
        at = end.outputs[0]
        for link in links[:-1]:
            if self.uses[link.outputs[0]] != 1:
                return None
            if link.op.name == "add":
                continue
            node = self._only(at, link.op.name)  # type: ignore[assignment]
            if node is None:
                return None
            if link.op.name == "where":
                mask, *choices = link.operands
                expected = [0.0 if self._is_minus_infinity(x) else at for x in choices]
                if node.operands[0] != mask or [x.value if type(x) is Literal else x for x in node.operands[1:]] != expected:
                    return None
            elif [x for x in node.operands if self._is_number(x)] != [x for x in link.operands if self._is_number(x)]:
                return None
            nodes.append(node)
            at = node.outputs[0]
        if self.uses[links[-1].outputs[0]] != 1 or self.uses[at] != len(self.readers[at]):
            return None
        for node in self.readers[at]:
            if node.op.name == "matmul" and node.operands[0] == at and self._turns(node.operands[1], turned):
                taken, v = found.of_query, node.outputs[0]
                found.of_query = v
            elif node.op.name == "matmul" and node.operands[1] == at and self._turns(node.operands[0], query):
                taken, v = found.of_turned_key, node.outputs[0]
                found.of_turned_key = v
            else:
                return None
            if taken is not None:
                return None
            nodes.append(node)
        return found, nodes

    def _is(self, v: Operand, name: str) -> bool:
        node = self.made.get(v) if type(v) is int else None
        return node is not None and node.op.name == name

    def _other(self, node: Node, v: int) -> int | None:
        """The operand of a node of two that is another value than v."""
        (other,) = [x for x in node.operands if x != v] if sum(x != v for x in node.operands) == 1 else [None]
        return other if type(other) is int else None

    def _turns(self, v: Operand, of: int) -> bool:
        """Whether a value is the transpose of another one."""
        node = self.made.get(v) if type(v) is int else None
        return (
            node is not None
            and node.op.name == "permute"
            and node.operands[0] == of
            and node.attrs["dims"] == _swapped(len(self._aval(of).shape))
        )
