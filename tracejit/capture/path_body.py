"""The body of a loop node that takes any path of a tree (path_tree.py), by if-conversion.

    n0, n1, guard v --True--> n2, n3, end             n0; n1; n2; n3; n4
                    --False-> n4, end         ->      x = where(v, n3, n4)

The body computes all segments in a row, without jumps, and selects what a step leaves by the values that decide.  A *mask* says
whether a segment is on the path of the step.  Where a guard has one known outcome, the body has a guard: the mask implies the
outcome.  So the loop leaves where a step takes a path that nobody has seen, and the selected values are those of the path taken:
what the others compute (NaN, infinity) reaches nothing.  Where its mask does not hold, a nested loop makes no step, and an operation
that looks at positions, which may be out of range, looks at positions 0.  Another operation that may raise or leave by itself is
possible only where all paths have it.

The parts of a step stand in a row: what one leaves, so selected, is what the next one is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from tracejit.capture.loop_emission import saving_loop
from tracejit.capture.loop_steps import LIVE_IN, SHARED, StepNode, StepValue, ValueKind, body_graph
from tracejit.capture.path_tree import (
    BASE,
    GO,
    HAS_ITEM,
    NUMBER,
    OBJECTS,
    TRUTH,
    WAY,
    Column,
    LoopNode,
    NoBody,
    PathEnd,
    PathTree,
    Segment,
    identity,
    item_place,
    requires_grad,
    with_places,
)  # fmt: skip
from tracejit.capture.syntax.outlined_loops import PROCEEDS
from tracejit.capture.syntax.pieces import CONTINUES
from tracejit.core.aval import Aval
from tracejit.core.dtypes import INTEGER, bool_, int64
from tracejit.core.op import REGISTRY, Kind, Op
from tracejit.ir.graph import Body, Graph, Literal, Node
from tracejit.ir.loop import LOOP_OF_PATHS, WHILE_OF_PATHS

__all__ = ["body_of", "first_parts", "nodes_to_run"]

_GOES_ON: Final[StepValue] = ("goes on", 0)
"""Whether the next part of a step follows."""


def body_of(tree: PathTree) -> tuple[Op, Graph, list[StepValue]]:
    """(the operation of the loop, the body, the places of its inputs).  The body gives what `PathTree.carried` says, then columns.
    Raises NoBody."""
    return _Body(tree).graph()


def first_parts(tree: PathTree, parts: int) -> tuple[Graph, list[StepValue]]:
    """(the graph of the first parts of a step, the places of its inputs).  It gives what the body does, but for columns of later parts.
    Raises NoBody."""
    return _Body(tree).graph_of_parts(parts)


def nodes_to_run(tree: PathTree, segment: Segment) -> list[StepNode]:
    """The nodes of a segment, where a step comes there: nested loops as nodes of their bodies.  Raises NoBody."""
    body = _Body(tree)
    for node in segment.nodes:
        body.node(node, None)
    return body.nodes


class _Body:
    """Builds the body of a tree."""

    def __init__(self, tree: PathTree) -> None:
        self.tree = tree
        self.nodes: list[StepNode] = []
        self.kinds: dict[StepValue, ValueKind] = dict(tree.kinds)
        self.kinds.update({(SHARED, k): kind for k, kind in enumerate(tree.shared_kinds)})
        self.kinds.update({x: tree.kind_of(x) for x in tree.carried()})
        self.constants: dict[tuple[type, int], StepValue] = {}
        self.objects: dict[int, StepValue] = {}  # number among those that a step makes -> the place of the number
        self.part = 0
        self.given: dict[StepValue, StepValue] = {}  # by what the loop carries, what the parts before this one have left

    def graph(self) -> tuple[Op, Graph, list[StepValue]]:
        tree = self.tree
        carried = tree.carried()
        go = GO if tree.is_bounded else None
        outcomes = self._parts(tree.parts, go)
        if tree.trips is not None:
            element: StepValue = (LIVE_IN, 0)
            following = self._add("add", NUMBER, element, Literal(tree.trips.step))
            outcomes[element] = following
            if not tree.is_counted:
                stop = Literal(tree.trips.stop) if type(tree.trips.stop) is int else tree.trips.stop
                inside = self._add("lt" if tree.trips.step > 0 else "gt", TRUTH, following, stop)
                outcomes[GO] = self._and(outcomes[GO], inside)
        outcomes[BASE] = self._add("add", NUMBER, BASE, Literal(OBJECTS * len(tree.parts)))
        if go is not None:
            outcomes.update({x: self._and(go, outcomes[x]) if x == GO else self._select(go, outcomes[x], x) for x in carried})
        graph, places = self._with_outputs(outcomes, go, tree.columns)
        if not tree.has_gradients:
            graph = replace(graph, requires_grad=frozenset())
        else:
            self._check_gradients()
        return LOOP_OF_PATHS if tree.is_bounded or tree.is_counted else WHILE_OF_PATHS, graph, places

    def graph_of_parts(self, parts: int) -> tuple[Graph, list[StepValue]]:
        """See `first_parts`."""
        go = GO if self.tree.is_bounded else None
        outcomes = self._parts(self.tree.parts[:parts], go)
        if self.tree.has_gradients:
            self._check_gradients()
        columns = [column for column in self.tree.columns if column[1] < parts]
        return self._with_outputs({x: outcomes.get(x, x) for x in (*self.tree.carried(), *outcomes)}, go, columns)

    def _with_outputs(
        self, outcomes: Mapping[Any, Any], go: StepValue | None, columns: Sequence[Column]
    ) -> tuple[Graph, list[StepValue]]:
        tree = self.tree
        carried = tree.carried()
        outputs = [self._own(outcomes[x]) for x in carried]
        for column in columns:
            outputs += self._column(column, outcomes, go)
        shared = [(SHARED, k) for k in range(len(tree.shared))]
        return body_graph(self.nodes, [*carried, *shared], outputs, self.kinds, kept=carried)

    def _column(self, column: Column, outcomes: Mapping[Any, Any], go: StepValue | None) -> list[StepValue]:
        """The item that a step has in a column, zeros if it has none; and a bool that says whether it has one, if that is not always so.
        outcomes: see `_segment`.  go: whether the step is one of those that are made."""
        item, has = outcomes[item_place(column)], outcomes[HAS_ITEM, column]
        if self.tree.is_full(column):
            return [self._own(item)]
        has = has if go is None else self._and(go, has)
        aval = self.tree.item_kinds[column[0]][0]
        zeros = self._add("full", aval, Literal(0), shape=aval.shape, dtype=aval.dtype)
        return [zeros if item is None else self._merge(has, item, zeros), self._own(has)]

    def _check_gradients(self) -> None:
        """Raises NoBody where a backward pass through the loop would not be that through its steps."""
        tree = self.tree
        if tree.takes_gradients:
            raise NoBody("a step takes gradients, and leaves a tensor that requires grad")
        if not tree.are_marks_assumed:
            raise NoBody("a step writes to a tensor that it has made and that requires grad, and that is not so in all steps")
        if tree.asks_for_grad and (tree.changing_grad() or any(slot.begins_as_leaf for slot in tree.slots)):
            raise NoBody("a step asks whether a tensor requires grad or is a leaf, and that is not so in all steps")
        marked = [k for k, slot in enumerate(tree.slots) if slot.requires_grad]
        changing = {*tree.changing_grad()}
        items: dict[int, bool] = {}
        for path, end in tree.all_paths():
            grad = tree.grad_of_path(path)
            written = self._written_places(path)
            for k, x in [(k, x) for k, column in enumerate(end.items) for x in column]:
                needs = grad(x)
                is_known = needs is True or not needs or not needs <= changing
                if not is_known or items.setdefault(k, bool(needs)) != bool(needs):
                    raise NoBody("some items of a list require grad, and others do not")
            places = [x for k in marked if grad(x := end.in_slot(k))]
            if len({*places}) < len(places) or any(x[0] == SHARED for x in places):
                raise NoBody("two variables hold one tensor that requires grad after a step")
            self._check_items(end, grad)
            for node in path:
                if isinstance(node, LoopNode):
                    self._check_nested(node, grad, changing, written)
                elif any(kind[1] for kind in node.kinds) and (node.is_written or not written.isdisjoint(node.operands)):
                    raise NoBody(f"{node.node.op.name} at {node.node.line} reads what a step writes to, and requires grad")
                elif any(kind[1] for kind in node.kinds) and (len(node.outputs) > 1 or node.node.op.vjp_rule is None):
                    raise NoBody(f"{node.node.op.name} at {node.node.line} gives several tensors, or has no derivative")

    @staticmethod
    def _check_nested(node: LoopNode, grad: Callable[[StepValue], Any], changing: Collection[int], written: Set[Any]) -> None:
        """Raises NoBody where a nested loop is given tensors that require grad in some steps alone, or that steps write to."""
        tree = node.tree
        starts = [(x, slot.requires_grad) for slot in tree.slots if (x := node.starts[slot.key]) is not None]
        given = [*starts, *[(x, kind[1]) for x, kind in zip(tree.shared, tree.shared_kinds, strict=True)]]

        def is_as_recorded(x: StepValue, needs: bool) -> bool:
            found = grad(x)
            return needs if found is True else not needs if not found else needs and not found <= changing

        if not all(is_as_recorded(x, needs) for x, needs in given):
            raise NoBody(_requires_grad_at_times(node))
        if tree.has_gradients and not written.isdisjoint(node.entered):
            raise NoBody(f"the loop at {node.node.line} reads what a step writes to, and requires grad")

    def _check_items(self, end: PathEnd, grad: Callable[[StepValue], Any]) -> None:
        """Raises NoBody where items that require grad are read one by one: hooks see these, and gradients of gradients may be taken by
        them, for which they would have to be positions of steps."""
        for column, is_joined in zip(end.items, self.tree.joined, strict=False):
            if not is_joined and any(grad(x) for x in column):
                raise NoBody("items of a list require grad, and are read one by one after the loop: read `stack` of them")

    def _written_places(self, path: Sequence[StepNode]) -> set[Any]:
        """Tensors from before the loop that steps write to, and views of these."""
        written: set[Any] = {(LIVE_IN, k) for k, slot in enumerate(self.tree.slots) if slot.holds is object}
        for node in path:
            if node.node.op.kind is Kind.VIEW and node.operands[0] in written:
                written.update(node.outputs)
        return written

    # -- segments
    def _parts(self, parts: Sequence[Segment], go: StepValue | None) -> dict[StepValue, StepValue]:
        """Add the nodes of the first parts, or of all.  go: whether the step is one of those that are made; None if all are.  Returns what
        `_segment` does for the parts together."""
        mask = go
        outcomes: dict[StepValue, StepValue] = {}
        for part, root in enumerate(parts):
            self.part, self.given = part, outcomes
            if root.is_empty:  # no step has come here
                if mask == go:
                    raise NoBody("no step was made whole")
                self._guard(self._not(mask), "")  # type: ignore[arg-type]
                return outcomes
            left = self._segment(root, mask, [])
            goes_on = left.pop(_GOES_ON, None)
            merged = dict(outcomes)
            for x, place in left.items():
                if x[0] in _OF_COLUMNS and x[1][1] != part:  # type: ignore[index]
                    merged.setdefault(x, place)
                elif x[0] == HAS_ITEM:
                    merged[x] = place if mask == go else self._and(mask, place)
                elif x[0] in _OF_COLUMNS or not part or mask == go:
                    merged[x] = place
                else:
                    merged[x] = self._select(mask, place, outcomes[x])  # type: ignore[arg-type]
            outcomes = merged
            if goes_on is not None and goes_on != self.constants.get((bool, 1)):
                mask = self._and(mask, goes_on)
        return outcomes

    def _at(self, place: Any) -> Any:
        """Where what a part is given stands, or what it computes."""
        return self.given.get(place, place)

    def _segment(self, segment: Segment, mask: StepValue | None, before: Sequence[StepNode]) -> dict[StepValue, StepValue]:
        """Add the nodes of a segment and of all that follow.  mask: None where each step comes here.  before: the nodes of the path to
        it.  Returns, by what the loop carries, the place of what a step that comes here leaves; and for columns, the place of its
        item, None if it has none, and that of whether it has one."""
        path = [*before, *segment.nodes]
        for node in segment.nodes:
            self.node(node, mask)
        if segment.end is not None:
            return self._outcome_of_path(segment.end, path)
        assert segment.decided is not None
        decided = self._at(segment.decided)
        cases = [(self._holds(decided, expected), x) for expected, x in segment.following.items()]
        if len(cases) == 2 and all(type(x.value) is bool for x in segment.following):
            (yes, one), (no, other) = cases
            outcomes = [self._segment(one, self._and(mask, yes), path), self._segment(other, self._and(mask, no), path)]
        else:
            known = cases[0][0]
            for case, _ in cases[1:]:
                known = self._add("logical_or", TRUTH, known, case)
            self._guard(known if mask is None else self._add("logical_or", TRUTH, self._not(mask), known), segment.line)
            is_only = len(cases) == 1
            outcomes = [self._segment(x, mask if is_only else self._and(mask, case), path) for case, x in cases]
        result = outcomes[-1]
        for (case, _), outcome in reversed(list(zip(cases[:-1], outcomes[:-1], strict=True))):
            result = {x: self._select(case, outcome[x], result[x]) for x in result}
        return result

    def _outcome_of_path(self, end: PathEnd, path: Sequence[StepNode]) -> dict[StepValue, StepValue]:
        tree = self.tree
        own = [end.in_slot(k) for k in range(len(tree.slots))]
        left: dict[StepValue, StepValue] = {(LIVE_IN, k): self._at(place) for k, place in enumerate(own)}
        way = CONTINUES if end.way == PROCEEDS else end.way
        if not tree.is_counted:
            left[GO], left[WAY] = self._constant(bool, way == CONTINUES), self._constant(int, way)
        if self.part < len(tree.parts) - 1:
            left[_GOES_ON] = self._constant(bool, end.way == PROCEEDS)
        numbers = tree.made_numbers(end)
        left.update({identity(k): self._number(place, numbers) for k, place in enumerate(own) if tree.is_object(k)})
        items: dict[Any, Any] = {}
        for column in tree.columns:
            k, part, j = tree.column_of_items(column)
            has = part == self.part and k < len(end.items) and j < len(end.items[k])
            item = end.items[k][j] if has else None
            if item is not None:
                items[item_place(column)] = self._at(item) if k == column[0] else self._number(item, numbers)
            else:
                items[item_place(column)] = None
            items[HAS_ITEM, column] = self._constant(bool, has)
        grad, changing = tree.grad_of_path(path), tree.changing_grad()
        for k in changing:
            needs = grad(own[k])
            if needs is True or (needs and not needs <= {*changing}):
                left[requires_grad(k)] = self._constant(bool, 1)
            else:
                places = [self._at(requires_grad(j)) for j in sorted(needs or ())]
                left[requires_grad(k)] = reduce(self._or, places) if places else self._constant(bool, 0)
        return left | items

    def _number(self, place: StepValue, numbers: Mapping[StepValue, int]) -> StepValue:
        """The place of the number of the object at a place.  numbers: see `PathTree.made_numbers`."""
        if place[0] == LIVE_IN:
            return self._at(identity(place[1]))  # type: ignore[no-any-return]
        if place[0] == SHARED:
            return self._constant(int, self.tree.number_of(self.tree.shared[place[1]]))
        return self._object(OBJECTS * self.part + numbers[place])

    def _object(self, number: int) -> StepValue:
        """The number of an object that a step makes."""
        if number not in self.objects:
            self.objects[number] = self._add("add", NUMBER, BASE, Literal(number)) if number else BASE
        return self.objects[number]

    def node(self, node: StepNode, mask: StepValue | None) -> None:
        """Add a node of a segment."""
        if self.given:
            node = with_places(node, self._at)
        if isinstance(node, LoopNode):
            node = self._nested(node, mask)
        elif mask is not None and (node.node.may_exit or _looks_at_a_position(node)):
            node = self._where_it_cannot_fail(node, mask)
        self.nodes.append(node)

    def _where_it_cannot_fail(self, node: StepNode, mask: StepValue) -> StepNode:
        """A node that looks at positions, or takes matrices, given positions 0, or identities, where the step is not on this path."""
        op, operands = node.node.op, list(node.operands)
        if op.kind is Kind.LAPACK:
            return replace(node, operands=(self._or_identity(operands[0], mask), *operands[1:]))
        positions = [k for k, x in enumerate(operands) if k and type(x) is tuple and self._is_integer(x)]
        if node.node.may_exit and ("raises" not in op.traits or "dynamic shape" in op.traits or not positions):
            raise NoBody(f"{op.name} at {node.node.line} may fail, and some steps do not come there")
        for k in positions:
            aval = self.kinds[operands[k]][0]
            if not isinstance(aval, Aval):  # a number
                operands[k], aval = self._add("full", NUMBER, operands[k], shape=(), dtype=int64), NUMBER
            operands[k] = self._add("where", aval, mask, operands[k], Literal(0))
        return replace(node, operands=tuple(operands))

    def _or_identity(self, place: Any, mask: StepValue) -> StepValue:
        """Matrices, or the identity where the mask does not hold."""
        aval = self.kinds[place][0]
        assert isinstance(aval, Aval)
        *_, rows, columns = aval.shape
        one = self._add("eye", Aval((rows, columns), aval.dtype), rows=rows, columns=columns, dtype=aval.dtype)
        return self._merge(mask, place, one)

    def _is_integer(self, place: StepValue) -> bool:
        kind = self.kinds[place][0]
        return kind.dtype.category == INTEGER if isinstance(kind, Aval) else kind.python_type is int

    def _nested(self, node: LoopNode, mask: StepValue | None) -> StepNode:
        """The node of a nested loop, which has no step where the mask does not hold."""
        tree = node.tree
        if tree.has_gradients and tree.changing_grad():
            raise NoBody(_requires_grad_at_times(node))
        op, graph, places = body_of(tree)
        if tree.is_counted and mask is not None:
            raise NoBody(f"the loop at {node.node.line} appends items to a list, and some steps do not come there")
        if not all(map(tree.is_full, tree.columns)):
            raise NoBody(f"the loop at {node.node.line} appends items to a list in some of its steps, in a loop in a loop")
        given: dict[StepValue, StepValue] = {
            GO: self._constant(bool, True) if mask is None else mask,
            WAY: self._constant(int, 0),
            BASE: self._constant(int, OBJECTS),
        }
        for k, slot in enumerate(tree.slots):
            start = node.starts[slot.key]
            zeros: dict[str, Any] = {"shape": slot.aval.shape, "dtype": slot.aval.dtype}
            given[LIVE_IN, k] = self._add("full", slot.aval, Literal(0), **zeros) if start is None else start
            given[identity(k)] = self._constant(int, node.begun.get(slot.key, -1))
        carried = tree.carried()
        operands: list[Any] = [given[x] if x in given else tree.shared[x[1]] for x in places]
        names: list[Any] = tree.names()
        kinds = [(graph.avals[v], v in graph.requires_grad) for v in graph.outputs]  # type: ignore[index]
        if tree.has_gradients:
            op, graph, order, kept, _ = saving_loop(graph, len(carried), True, True, tree.pairs_made_of())
            operands = [*[operands[k] for k in order], *operands[len(carried) :]]
            rows = [*range(len(carried), len(names))]
            names = [*[None] * kept, *[names[k] for k in (*order, *rows)], *[None] * (len(graph.outputs) - len(kinds))]
            before = [(graph.avals[v], v in graph.requires_grad) for v in graph.inputs[:kept]]
            kinds = [*before, *[(graph.avals[v], v in graph.requires_grad) for v in graph.outputs]]  # type: ignore[index]
            stacked = [*range(kept), *range(kept + len(carried), len(kinds))]
        else:
            stacked = [*range(len(carried), len(kinds))]
        attributes: dict[str, Any] = {"body": Body(graph), "carried": len(carried)}
        if op is not WHILE_OF_PATHS:
            attributes.update(sliced=0, count=node.room, reverse=False)
        for k in stacked:
            aval: Any = kinds[k][0]
            kinds[k] = Aval((node.room, *aval.shape), aval.dtype), kinds[k][1]
        made = Node(op, (), tuple(sorted(attributes.items())), (), node.node.line)
        by_name = dict(zip(node.names, node.outputs, strict=True))
        outputs = [by_name.get(name) or ("unread", (len(self.nodes) << 16) + n) for n, name in enumerate(names)]
        self.kinds.update(zip(outputs, kinds, strict=True))
        return StepNode(made, tuple(operands), made.attributes, tree.has_gradients, tuple(outputs), tuple(kinds))

    # -- small nodes
    def _add(self, name: str, aval: Aval, *operands: Any, requires_grad: bool = False, **attributes: Any) -> StepValue:
        place: StepValue = ("body", len(self.nodes))
        node = Node(REGISTRY[name], (), tuple(sorted(attributes.items())), ())
        self.nodes.append(StepNode(node, operands, node.attributes, None, (place,), ((aval, requires_grad),)))
        self.kinds[place] = (aval, requires_grad)
        return place

    def _guard(self, place: StepValue, line: str) -> None:
        node = Node(REGISTRY["guard"], (), (("expected", Literal(True)),), (), line)
        self.nodes.append(StepNode(node, (place,), node.attributes, True, (), ()))

    def _constant(self, kind: type, value: int) -> StepValue:
        key = kind, int(value)
        if key not in self.constants:
            aval, given = (TRUTH, bool(value)) if kind is bool else (NUMBER, int(value))
            self.constants[key] = self._add("full", aval, Literal(given), shape=(), dtype=aval.dtype)
        return self.constants[key]

    def _own(self, place: StepValue) -> StepValue:
        """A place that the body computes or is given; a shared value is copied."""
        if place[0] != SHARED:
            return place
        aval, requires_grad = self.kinds[place]
        return self._add("clone", aval, place, requires_grad=requires_grad)

    def _holds(self, decided: StepValue, expected: Literal) -> StepValue:
        """Whether what decides comes out as expected."""
        aval = self.kinds[decided][0]
        if not isinstance(aval, Aval) or type(expected.value) is float:
            raise NoBody("the very value of a float decides")
        if aval.shape:
            decided, aval = self._add("reshape", Aval((), aval.dtype), decided, shape=()), Aval((), aval.dtype)
        if type(expected.value) is not bool:
            return self._add("eq", TRUTH, decided, expected)
        if aval.dtype is not bool_:
            decided = self._add("ne", TRUTH, decided, Literal(0))
        return decided if expected.value else self._not(decided)

    def _not(self, x: StepValue) -> StepValue:
        return self._add("logical_not", TRUTH, x)

    def _or(self, x: StepValue, y: StepValue) -> StepValue:
        return self._add("logical_or", TRUTH, x, y)

    def _and(self, mask: StepValue | None, x: StepValue) -> StepValue:
        if mask is None or mask == self.constants.get((bool, 1)):
            return x
        return self._add("logical_and", TRUTH, mask, x)

    def _select(self, case: StepValue, one: StepValue, other: StepValue) -> StepValue:
        if one == other or other is None or one is None:
            return one or other
        aval = self.kinds[one][0]
        assert isinstance(aval, Aval)
        yes, no = self.constants.get((bool, 1)), self.constants.get((bool, 0))
        if aval == TRUTH and one == yes:
            return case if other == no else self._add("logical_or", TRUTH, case, other)
        if aval == TRUTH and one == no:
            return self._not(case) if other == yes else self._add("logical_and", TRUTH, self._not(case), other)
        return self._merge(case, one, other)

    def _merge(self, case: StepValue, one: StepValue, other: StepValue) -> StepValue:
        """One value where a case holds, another one where it does not."""
        requires_grad = self.kinds[one][1] or self.kinds[other][1]
        aval: Any = self.kinds[one][0]
        return self._add("phi" if requires_grad else "where", aval, case, one, other, requires_grad=requires_grad)


_OF_COLUMNS: Final = (item_place((0, 0, 0))[0], HAS_ITEM)


def _requires_grad_at_times(node: LoopNode) -> str:
    return f"the loop at {node.node.line}, in a loop, has a tensor that requires grad, and that is not so in all steps"


def _looks_at_a_position(node: StepNode) -> bool:
    """Whether it looks at the position that an operand says, where a step has made sure that there is one."""
    op = node.node.op
    return "position operand" in (op.region or op).traits
