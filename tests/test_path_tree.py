"""capture/path_tree.py: paths of steps as a tree, and its body, which does what the path of each outcome does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracejit.capture.loop_steps import LIVE_IN, LOCAL, SHARED, StepNode, StepValue
from tracejit.capture.path_body import body_of
from tracejit.capture.path_tree import (
    BASE,
    GO,
    MOST_PATHS,
    OBJECTS,
    OF_SHARED,
    WAY,
    LoopNode,
    NoBody,
    PathEnd,
    PathTree,
    Slot,
    TripCount,
    identity,
)  # fmt: skip
from tracejit.capture.syntax.outlined_loops import PROCEEDS
from tracejit.capture.syntax.pieces import BREAKS, CONTINUES, RETURNS
from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_, float64, int64
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Body, Literal, Node
from tracejit.ir.interpreter import NodeFailed
from tracejit.ir.loop import LOOP_OF_PATHS, WHILE_OF_PATHS
from tracejit.ir.runner import Runner
from tracejit.tensor import Tensor

NUMBER, TRUTH, WHOLE = Aval((), float64), Aval((), bool_), Aval((), int64)
X, Y = (LIVE_IN, 0), (LIVE_IN, 1)


# -- paths by hand
class Path:
    """A path that is being written.  Shared values are numbers, and their keys the same numbers."""

    def __init__(self) -> None:
        self.nodes: list[StepNode] = []
        self.locals = 0

    def op(self, name: str, *operands: Any, aval: Aval = NUMBER, line: str = "", **attributes: Any) -> StepValue:
        """A node; plain numbers among its operands are literals."""
        given = tuple([x if type(x) is tuple else Literal(x) for x in operands])
        place: StepValue = (LOCAL, self.locals)
        self.locals += 1
        node = Node(REGISTRY[name], (), tuple(sorted(attributes.items())), (), line)
        self.nodes.append(StepNode(node, given, node.attributes, True, (place,), ((aval, False),)))
        return place

    def asks(self, place: StepValue, expected: Any, line: str = "here") -> None:
        node = Node(REGISTRY["guard"], (), (("expected", Literal(expected)),), (), line)
        self.nodes.append(StepNode(node, (place,), node.attributes, True, (), ()))

    def loop(self, tree: PathTree, *starts: StepValue, line: str = "") -> list[StepValue]:
        """A nested loop, whose slots hold `starts` at first; returns the places of what it carries on."""
        carried = tree.carried()
        places: list[StepValue] = [(LOCAL, self.locals + k) for k in range(len(carried))]
        self.locals += len(carried)
        op, graph, _ = body_of(tree)
        attributes: dict[str, Any] = {"body": Body(graph), "carried": len(carried)}
        node = Node(op, (), tuple(sorted(attributes.items())), (), line)
        kinds = tuple([(tree.aval_of(x), False) for x in carried])
        held = dict(zip([slot.key for slot in tree.slots], starts, strict=True))
        names = tuple(tree.names())
        self.nodes.append(
            LoopNode(node, (), node.attributes, False, tuple(places), kinds, tree=tree, starts=held, begun={}, names=names)
        )
        return places

    def into(
        self, tree: PathTree, left: dict[int, StepValue], way: int = CONTINUES, items: tuple[StepValue, ...] = (), part: int = 0
    ) -> str:
        return tree.insert(
            self.nodes,
            PathEnd(way, left, tuple([(x,) for x in items])),
            lambda x: tree.shared_place(x[1], (NUMBER, False)) if x[0] == SHARED else x,
            part,
        )


def merged(tree: PathTree, other: PathTree) -> str:
    """Insert the paths of another tree."""

    def outside(x: StepValue) -> StepValue:
        return tree.shared_place(other.shared[x[1]], other.shared_kinds[x[1]]) if x[0] == SHARED else x

    return next((why for path, end in other.all_paths() if (why := tree.insert(path, end, outside))), "")


def tree_of(*slots: Any, trips: TripCount | None = None, loop: str = "loop") -> PathTree:
    """A tree with slots of these types; the first one is the element, if there are trips."""
    avals = {int: WHOLE, float: NUMBER, bool: TRUTH, Tensor: NUMBER}
    made = [Slot(("variable", f"v{k}"), avals[holds], holds) for k, holds in enumerate(slots)]
    if trips is not None:
        made.insert(0, Slot(("element",), WHOLE, int))
    return PathTree(loop, made, trips)


class Step:
    """The body of a tree, called as a step.  shared: what its shared values are, by their keys."""

    def __init__(self, tree: PathTree, **shared: Any) -> None:
        self.tree, self.shared = tree, shared
        self.op, self.graph, self.places = body_of(tree)
        self.run = Runner(self.graph)

    def __call__(self, *slots: Any, objects: dict[int, int] | None = None, base: int = 100, **shared: Any) -> dict[Any, Any]:
        """What is left, by places, and items by ("item", k).  objects: the numbers of those in slots, their positions if None."""
        tree = self.tree
        numbers = {k: k for k in range(len(slots))} if objects is None else objects
        values: dict[Any, Any] = {GO: np.array(True), WAY: np.array(0), BASE: np.array(base)}
        for k, x in enumerate(slots):
            values[LIVE_IN, k] = np.array(x, tree.slots[k].aval.dtype.numpy)
            values[identity(k)] = np.array(numbers.get(k, -1))
        values.update({(SHARED, k): np.array(shared[str(key)]) for k, key in enumerate(tree.shared)})
        with np.errstate(all="ignore"):
            outputs = self.run([values[x] for x in self.places])
        names = [*tree.carried(), *[(kind, column[0]) for kind, column in tree.items()]]
        return {name: x.item() for name, x in zip(names, outputs, strict=True)}


def halved_or_grown() -> PathTree:
    """x = x * 0.5 if x > 1 else x + 3"""
    tree = tree_of(float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        assert not path.into(tree, {0: path.op("mul", X, 0.5) if is_large else path.op("add", X, 3.0)})
    return tree


# -- inserting
def test_paths_share_what_they_have_in_common() -> None:
    tree = halved_or_grown()
    assert tree.paths == 2 and [a.node.op.name for a in tree.parts[0].nodes] == ["gt"]
    assert {x.value: [a.node.op.name for a in s.nodes] for x, s in tree.parts[0].following.items()} == {
        True: ["mul"],
        False: ["add"],
    }


def test_a_path_that_is_known_is_not_added_again() -> None:
    tree = halved_or_grown()
    path = Path()
    path.asks(path.op("gt", X, 1.0, aval=TRUTH), False)
    assert path.into(tree, {0: path.op("add", X, 3.0)}) == "" and tree.paths == 2
    assert len(list(tree.all_paths())) == 2


def test_a_path_that_does_something_else_after_the_same_outcomes_is_refused() -> None:
    tree = halved_or_grown()
    path = Path()
    path.asks(path.op("gt", X, 1.0, aval=TRUTH), False)
    why = path.into(tree, {0: path.op("sub", X, 3.0, line="a.py:7")})
    assert why == "steps that take the same branches do other things (sub at a.py:7)"


@pytest.mark.parametrize("more", ["a node more", "a guard more", "another guard", "a node less"])
def test_a_path_that_is_longer_or_shorter_after_the_same_outcomes_is_refused(more: str) -> None:
    tree = halved_or_grown()
    path = Path()
    large = path.op("gt", X, 1.0, aval=TRUTH) if more != "another guard" else path.op("lt", X, 1.0, aval=TRUTH)
    path.asks(large, False)
    end = X if more == "a node less" else path.op("add", X, 3.0)
    if more == "a node more":
        end = path.op("add", end, 1.0)
    if more == "a guard more":
        path.asks(large, False)
    assert path.into(tree, {0: end}).startswith("steps that take the same branches ")


@pytest.mark.parametrize("other", ["way", "left", "items"])
def test_a_path_that_leaves_something_else_is_refused(other: str) -> None:
    tree = tree_of(float)
    path = Path()
    end = path.op("add", X, 3.0)
    assert path.into(tree, {0: end}) == ""
    left = {0: X if other == "left" else end}
    why = path.into(tree, left, BREAKS if other == "way" else CONTINUES, (end,) if other == "items" else ())
    assert why == "steps that take the same branches leave different things"


def test_more_paths_than_a_body_may_have_are_refused() -> None:
    tree = tree_of(int)
    for number in range(MOST_PATHS + 1):
        path = Path()
        path.asks(X, number)
        why = path.into(tree, {0: path.op("add", X, number, aval=WHOLE)})
        assert why == ("" if number < MOST_PATHS else f"its steps take more than {MOST_PATHS} paths")


def test_a_tree_that_has_forgotten_its_paths_takes_others() -> None:
    tree = halved_or_grown()
    tree.clear()
    path = Path()
    assert path.into(tree, {0: path.op("sub", X, 3.0)}) == "" and tree.paths == 1
    assert Step(tree)(5.0)[X] == 2.0


# -- the body
def test_the_body_does_what_the_path_of_each_outcome_does() -> None:
    step = Step(halved_or_grown())
    assert step.op is WHILE_OF_PATHS
    for x in (-1.0, 0.5, 1.0, 3.0, np.inf):
        found = step(x)
        assert (found[X], found[GO], found[WAY]) == (x * 0.5 if x > 1 else x + 3, True, CONTINUES)
    assert step(np.nan)[GO]


@pytest.mark.parametrize("known", [True, False])
def test_the_body_leaves_where_an_outcome_is_unknown(known: bool) -> None:
    tree = tree_of(float)
    path = Path()
    path.asks(path.op("gt", X, 1.0, aval=TRUTH), known, "a.py:3")
    path.into(tree, {0: path.op("mul", X, 0.5)})
    step = Step(tree)
    inside, outside = (3.0, 0.5) if known else (0.5, 3.0)
    assert step(inside)[X] == inside * 0.5
    with pytest.raises(NodeFailed) as failure:
        step(outside)
    assert failure.value.node.line == "a.py:3"


def test_the_body_leaves_for_an_unknown_outcome_only_where_the_step_comes_there() -> None:
    tree = tree_of(float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        if is_large:
            path.asks(path.op("lt", X, 10.0, aval=TRUTH), True)
        path.into(tree, {0: path.op("add", X, 1.0 if is_large else 2.0)})
    step = Step(tree)
    assert (step(5.0)[X], step(0.0)[X]) == (6.0, 2.0)
    with pytest.raises(NodeFailed):
        step(20.0)


def test_numbers_that_decide_have_a_path_each_and_others_leave() -> None:
    tree = tree_of(int)
    for number in (0, 1, 5):
        path = Path()
        path.asks(X, number)
        path.into(tree, {0: path.op("add", X, 10 * number, aval=WHOLE)})
    step = Step(tree)
    assert [step(x)[X] for x in (0, 1, 5)] == [0, 11, 55]
    for other in (2, -1, 6):
        with pytest.raises(NodeFailed):
            step(other)


def test_a_number_whose_truth_decides_has_two_paths() -> None:
    tree = tree_of(int)
    for truth in (True, False):
        path = Path()
        path.asks(X, truth)
        path.into(tree, {0: path.op("add", X, 1 if truth else -1, aval=WHOLE)})
    assert [Step(tree)(x)[X] for x in (0, 1, 7, -3)] == [-1, 2, 8, -2]


def test_a_float_whose_very_value_decides_has_no_body() -> None:
    tree = tree_of(float)
    path = Path()
    path.asks(X, 0.5)
    path.into(tree, {0: path.op("add", X, 1.0)})
    with pytest.raises(NoBody, match="the very value of a float decides"):
        body_of(tree)


def test_what_other_paths_compute_reaches_nothing() -> None:
    tree = tree_of(float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 0.0, aval=TRUTH), is_large)
        path.into(tree, {0: path.op("log", X) if is_large else path.op("div", 1.0, path.op("sub", X, 1.0))})
    step = Step(tree)
    assert step(-1.0)[X] == -0.5 and step(1.0)[X] == 0.0


def test_what_may_fail_is_in_all_paths_or_there_is_no_body() -> None:
    tree = tree_of(float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        made = path.op("pinv", X, line="a.py:9") if is_large else X
        path.into(tree, {0: made})
    with pytest.raises(NoBody, match=r"^pinv at a\.py:9 may fail, and some steps do not come there$"):
        body_of(tree)


@pytest.mark.parametrize("way", [BREAKS, RETURNS])
def test_a_step_that_ends_the_loop_says_how(way: int) -> None:
    tree = tree_of(float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        path.into(tree, {0: path.op("add", X, 1.0)}, way if is_large else CONTINUES)
    step = Step(tree)
    assert [(step(x)[GO], step(x)[WAY], step(x)[X]) for x in (2.0, 0.0)] == [(False, way, 3.0), (True, CONTINUES, 1.0)]


def test_a_slot_that_a_path_does_not_name_holds_what_it_held() -> None:
    tree = tree_of(float, float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        path.into(tree, {1: path.op("add", Y, 1.0)} if is_large else {})
    step = Step(tree)
    assert (step(2.0, 5.0)[Y], step(0.0, 5.0)[Y], step(2.0, 5.0)[X]) == (6.0, 5.0, 2.0)


def test_swapped_slots_hold_what_the_other_held() -> None:
    tree = tree_of(float, float)
    Path().into(tree, {0: Y, 1: X})
    found = Step(tree)(1.0, 2.0)
    assert (found[X], found[Y]) == (2.0, 1.0)


# -- elements
@pytest.mark.parametrize(("stride", "stop", "last"), [(1, 5, 4), (2, 5, 3), (-1, 0, 1), (-3, -2, 0)])
def test_the_element_goes_on_until_the_stop(stride: int, stop: int, last: int) -> None:
    tree = tree_of(float, trips=TripCount(stride, stop))
    path = Path()
    path.into(tree, {1: path.op("add", Y, 1.0)})
    step = Step(tree)
    element, steps, go, x = last - 2 * stride, 0, True, 0.0
    while go:
        found = step(element, x)
        element, go, x, steps = found[X], found[GO], found[Y], steps + 1
    assert (element, steps, x) == (last + stride, 3, 3.0)


def test_the_stop_may_be_what_steps_share() -> None:
    tree = tree_of(trips=TripCount(1, 0))
    tree.trips = TripCount(1, tree.shared_place("stop", (WHOLE, False)))
    Path().into(tree, {})
    assert [Step(tree)(3, stop=stop)[GO] for stop in (3, 4, 5)] == [False, False, True]


def collecting_tree() -> PathTree:
    """A tree of five steps that append to two lists."""
    tree = tree_of(float, trips=TripCount(1, 5))
    tree.count, tree.item_kinds = 5, dict.fromkeys((0, 1), (NUMBER, float))
    return tree


def test_a_step_that_collects_items_is_one_of_a_counted_loop() -> None:
    tree = collecting_tree()
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", Y, 1.0, aval=TRUTH), is_large)
        made = path.op("mul", Y, 0.5 if is_large else 3.0)
        path.into(tree, {1: made}, items=(made, Y))
    step = Step(tree)
    assert step.op is LOOP_OF_PATHS and GO not in tree.carried() and tree.is_counted
    found = step(0, 4.0)
    assert (found[Y], found["item", 0], found["item", 1], found[X]) == (2.0, 2.0, 4.0, 1)


def test_a_step_that_collects_items_on_some_paths_says_whether_it_has_them() -> None:
    tree = collecting_tree()
    for is_large, way, items in ((True, BREAKS, (Y,)), (False, CONTINUES, ())):
        path = Path()
        path.asks(path.op("gt", Y, 1.0, aval=TRUTH), is_large)
        path.into(tree, {}, way, items)
    step = Step(tree)
    assert step.op is LOOP_OF_PATHS and GO in tree.carried() and not tree.is_counted
    assert [(step(0, y)["item", 0], step(0, y)["has item", 0], step(0, y)[GO]) for y in (4.0, 0.5)] == [
        (4.0, True, False),
        (0.0, False, True),
    ]


# -- parts
def in_parts(*slots: Any, trips: TripCount | None = None) -> PathTree:
    """A tree of two parts.  The first one halves the second slot if it is above 1, and ends the step if it is above 100."""
    tree = tree_of(int, *slots, trips=None) if trips is None else tree_of(*slots, trips=trips)
    tree.clear(2)
    for is_huge, is_large in ((True, True), (False, True), (False, False)):
        path = Path()
        path.asks(path.op("gt", Y, 100.0, aval=TRUTH), is_huge)
        if not is_huge:
            path.asks(path.op("gt", Y, 1.0, aval=TRUTH), is_large)
        left = {1: path.op("mul", Y, 0.5)} if is_large and not is_huge else {}
        assert not path.into(tree, left, CONTINUES if is_huge else PROCEEDS)
    return tree


def test_a_part_is_given_what_the_part_before_has_left() -> None:
    tree = in_parts(float)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", Y, 2.0, aval=TRUTH), is_large)
        path.into(tree, {1: path.op("add", Y, 10.0 if is_large else 20.0)}, part=1)
    step = Step(tree)
    assert [step(0, y)[Y] for y in (0.5, 2.0, 8.0, 200.0)] == [20.5, 21.0, 14.0, 200.0]
    assert all(step(0, y)[WAY] == CONTINUES and step(0, y)[GO] for y in (0.5, 200.0))


def test_a_part_that_ends_the_loop_does_so_where_the_step_comes_to_it() -> None:
    tree = in_parts(float)
    path = Path()
    path.into(tree, {}, BREAKS, part=1)
    step = Step(tree)
    assert [(step(0, y)[WAY], step(0, y)[GO]) for y in (0.5, 200.0)] == [(BREAKS, False), (CONTINUES, True)]


def test_a_step_leaves_where_it_comes_to_a_part_that_no_step_has_reached() -> None:
    step = Step(in_parts(float))
    assert step(0, 200.0)[Y] == 200.0
    with pytest.raises(NodeFailed):
        step(0, 4.0)


def test_an_item_of_a_part_is_there_where_the_step_comes_to_it() -> None:
    tree = in_parts(float, trips=TripCount(1, 5))
    tree.count, tree.item_kinds = 5, {0: (NUMBER, float)}
    path = Path()
    path.into(tree, {}, items=(Y,), part=1)
    assert tree.columns == [(0, 1, 0)] and not tree.is_full((0, 1, 0))
    step = Step(tree)
    assert [(step(0, y)["item", 0], step(0, y)["has item", 0]) for y in (8.0, 0.5, 200.0)] == [
        (4.0, True),
        (0.5, True),
        (0.0, False),
    ]


def test_items_of_several_parts_are_columns_in_their_order() -> None:
    tree = tree_of(float, float, trips=TripCount(1, 5))
    tree.clear(2)
    tree.count, tree.item_kinds = 5, {0: (NUMBER, float)}
    for part in (0, 1):
        for is_large in (True, False):
            path = Path()
            path.asks(path.op("gt", Y, 1.0, aval=TRUTH), is_large)
            items = (Y,) if is_large or part else ()
            assert not path.into(tree, {1: path.op("mul", Y, 0.5)}, CONTINUES if part else PROCEEDS, items, part)
    assert tree.columns == [(0, 0, 0), (0, 1, 0)]
    assert [tree.is_full(column) for column in tree.columns] == [False, True]


def test_objects_that_two_parts_make_have_different_numbers() -> None:
    tree = tree_of(Tensor, Tensor)
    tree.clear(2)
    path = Path()
    path.into(tree, {0: path.op("mul", X, 2.0)}, PROCEEDS)
    path = Path()
    path.into(tree, {1: path.op("mul", Y, 2.0)}, part=1)
    found = Step(tree)(1.0, 2.0, base=OBJECTS)
    assert found[identity(0)] != found[identity(1)] and min(found[identity(0)], found[identity(1)]) >= OBJECTS
    assert found[BASE] > max(found[identity(0)], found[identity(1)])
    moved = tree_of(Tensor, Tensor)
    moved.clear(2)
    path = Path()
    path.into(moved, {0: path.op("mul", X, 2.0)}, PROCEEDS)
    Path().into(moved, {1: X}, part=1)
    found = Step(moved)(1.0, 2.0, base=OBJECTS)
    assert found[identity(0)] == found[identity(1)] and found[Y] == found[X] == 2.0
    renewed = tree_of(Tensor, Tensor)
    renewed.clear(2)
    path = Path()
    path.into(renewed, {0: path.op("mul", X, 2.0)}, PROCEEDS)
    path = Path()
    path.into(renewed, {0: path.op("mul", X, 2.0), 1: X}, part=1)
    found = Step(renewed)(1.0, 2.0, base=OBJECTS)
    assert found[identity(0)] != found[identity(1)] and (found[X], found[Y]) == (4.0, 2.0)


def test_a_result_is_made_of_another_one_that_an_earlier_part_has_made() -> None:
    def pairs_of_results(*parts: dict[int, tuple[str, int] | str]) -> set[Any]:
        """Of slots that parts leave: `"made"` of nothing, or (an operation, of which slot)."""
        tree = tree_of(Tensor, Tensor, Tensor)
        tree.read_after = {"v0", "v1", "v2"}
        tree.clear(len(parts))
        for slot in tree.slots:
            slot.requires_grad = True
        for part, left in enumerate(parts):
            path = Path()
            ends: dict[int, StepValue] = {}
            for k, what in left.items():
                ends[k] = path.op("mul", (LIVE_IN, what[1]), 2.0) if type(what) is tuple else path.op("full", 1.0, shape=())
            path.into(tree, ends, CONTINUES if part == len(parts) - 1 else PROCEEDS, part=part)
        return {(a[1], b[1]) for a, b in tree.made_of()}

    assert pairs_of_results({0: ("mul", 0), 1: ("mul", 0)}) == set()  # of what the slot held before
    assert pairs_of_results({0: ("mul", 0)}, {1: ("mul", 0)}) == {(0, 1)}
    assert pairs_of_results({1: ("mul", 0)}, {0: ("mul", 0)}) == set()
    assert pairs_of_results({0: ("mul", 0)}, {1: ("mul", 0)}, {2: ("mul", 1)}) == {(0, 1), (1, 2), (0, 2)}
    assert pairs_of_results({0: ("mul", 0)}, {1: ("mul", 0)}, {2: ("mul", 1), 0: "new"}) == {(1, 2)}


# -- objects
def test_a_slot_says_which_object_it_holds() -> None:
    tree = tree_of(Tensor, Tensor)
    shared = (SHARED, 7)
    path = Path()
    path.asks(path.op("gt", X, 1.0, aval=TRUTH), True)
    made = path.op("add", X, 1.0)
    path.into(tree, {0: made, 1: made})
    for outcome, left in ((2.0, {0: Y, 1: X}), (3.0, {0: shared})):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), False)
        path.asks(
            path.op("lt", X, -outcome, aval=TRUTH) if outcome == 2.0 else path.op("lt", X, -2.0, aval=TRUTH), outcome == 2.0
        )
        assert path.into(tree, left) == ""
    step = Step(tree)
    new = step(5.0, 2.0, **{"7": 9.0})
    assert new[identity(0)] == new[identity(1)] == 100 and new[BASE] == 100 + OBJECTS
    swapped = step(-5.0, 2.0, objects={0: 3, 1: 8}, **{"7": 9.0})
    assert (swapped[identity(0)], swapped[identity(1)], swapped[X], swapped[Y]) == (8, 3, 2.0, -5.0)
    read = step(0.0, 2.0, objects={0: 3, 1: 8}, **{"7": 9.0})
    assert (read[identity(0)], read[identity(1)], read[X]) == (OF_SHARED, 8, 9.0)


def test_objects_that_a_step_makes_have_numbers_of_their_own() -> None:
    tree = tree_of(Tensor, Tensor, float)
    path = Path()
    path.into(tree, {0: path.op("add", X, 1.0), 1: path.op("add", X, 2.0)})
    found = Step(tree)(1.0, 2.0, 3.0)
    assert (found[identity(0)], found[identity(1)]) == (100, 101) and identity(2) not in found
    again = Step(tree)(1.0, 2.0, 3.0, base=found[BASE])
    assert not {again[identity(0)], again[identity(1)]} & {100, 101}


# -- nested loops and merging
def inner_tree(*outcomes: bool) -> PathTree:
    """while x > 1: x = x * 0.5 if x > y else x - 1, for shared y; paths for the outcomes, and the end."""
    tree = tree_of(float, loop="inner")
    end = Path()
    end.asks(end.op("gt", X, 1.0, aval=TRUTH), False)
    assert end.into(tree, {}, BREAKS) == ""
    for is_more in outcomes:
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), True)
        path.asks(path.op("gt", X, (SHARED, 4), aval=TRUTH), is_more)
        assert path.into(tree, {0: path.op("mul", X, 0.5) if is_more else path.op("sub", X, 1.0)}) == ""
    return tree


def inner(x: float, y: float) -> float:
    while x > 1:
        x = x * 0.5 if x > y else x - 1
    return x


def nested(tree: PathTree, inside: PathTree, is_large: bool | None = None) -> str:
    path = Path()
    if is_large is not None:
        path.asks(path.op("gt", X, 0.0, aval=TRUTH), is_large)
    if is_large is False:
        return path.into(tree, {0: path.op("add", X, 2.0)})
    moved = inside.with_shared(lambda key: (SHARED, key))
    ended = path.loop(moved, X)
    return path.into(tree, {0: path.op("add", ended[3], 1.0)})


def test_trees_of_one_loop_merge() -> None:
    one, other = inner_tree(True), inner_tree(False)
    assert merged(one, other) == "" and one.paths == 3
    assert merged(other, one) == "" and other.paths == 3
    assert merged(one, one) == "" and one.paths == 3
    for tree in (one, other):
        for x in (0.5, 1.5, 6.0):
            assert Step(tree)(x, **{"4": 2.0})[X] == (x if x <= 1 else x * 0.5 if x > 2 else x - 1)


def test_trees_that_contradict_each_other_do_not_merge() -> None:
    tree = tree_of(float, loop="inner")
    path = Path()
    path.asks(path.op("gt", X, 2.0, aval=TRUTH), False)
    path.into(tree, {}, BREAKS)
    assert merged(inner_tree(True), tree).startswith("steps that take the same branches do other things")


def test_runs_of_one_nested_loop_have_one_node_with_the_paths_of_all() -> None:
    tree = tree_of(float)
    assert nested(tree, inner_tree(True)) == "" and nested(tree, inner_tree(False)) == ""
    assert tree.paths == 1
    step = Step(tree)
    for x in (0.5, 6.0, 40.0):
        assert step(x, **{"4": 2.0})[X] == inner(x, 2.0) + 1


def test_a_nested_loop_makes_no_step_where_the_step_does_not_come_there() -> None:
    tree = tree_of(float)
    assert nested(tree, inner_tree(True, False), True) == nested(tree, inner_tree(True, False), False) == ""
    step = Step(tree)
    for x in (-3.0, 0.0, 6.0):
        assert step(x, **{"4": 2.0})[X] == (inner(x, 2.0) + 1 if x > 0 else x + 2)


def test_a_nested_loop_leaves_where_its_step_takes_a_path_that_nobody_has_seen() -> None:
    tree = tree_of(float)
    nested(tree, inner_tree(True))
    step = Step(tree)
    assert step(6.0, **{"4": 0.0})[X] == inner(6.0, 0.0) + 1
    with pytest.raises(NodeFailed):
        step(6.0, **{"4": 5.0})


def test_another_loop_in_its_place_is_refused() -> None:
    tree, other = tree_of(float), inner_tree(True)
    nested(tree, inner_tree(True))
    other.loop = "another"
    assert nested(tree, other).startswith("steps that take the same branches do other things (while_of_paths")


def test_a_copy_with_other_shared_values_has_the_paths_of_the_tree() -> None:
    tree = inner_tree(True)
    copied = tree.with_shared(lambda key: f"of {key}")
    assert (tree.shared, copied.shared) == ([4], ["of 4"])
    assert copied.paths == tree.paths and copied.parts is tree.parts


# -- any tree
@st.composite
def decisions(draw: Any, depth: int) -> Any:
    """Decisions: (place to compare, bound, what follows if it is more, if not), or what is added to each slot, and a way."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.lists(st.integers(-3, 3), min_size=2, max_size=2)), draw(st.sampled_from((CONTINUES, BREAKS)))
    return draw(st.integers(0, 1)), draw(st.integers(-3, 3)), draw(decisions(depth - 1)), draw(decisions(depth - 1))


def followed(decision: Any, outcomes: tuple[bool, ...], tree: PathTree | None, x: list[float] | None = None) -> Any:
    """Insert the path of these outcomes, or compute what it leaves of numbers `x`, and whether all outcomes are theirs."""
    path, rest, is_theirs = Path(), list(outcomes), True
    state: list[Any] = [X, Y]
    numbers = x and [*x]
    while len(decision) == 4:
        at, bound, more, less = decision
        outcome = rest.pop(0)
        if numbers:
            is_theirs &= (numbers[at] > bound) == outcome
            numbers[at] = numbers[at] * 0.5
        path.asks(path.op("gt", state[at], float(bound), aval=TRUTH), outcome)
        state[at] = path.op("mul", state[at], 0.5)
        decision = more if outcome else less
    added, way = decision
    if numbers:
        return [a + b for a, b in zip(numbers, added, strict=True)], way, is_theirs
    assert tree is not None
    return path.into(tree, {k: path.op("add", state[k], float(b)) for k, b in enumerate(added)}, way)


@given(decisions(3), st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=8, unique=True), st.randoms())
@settings(max_examples=60, deadline=None)
def test_a_body_does_what_the_path_of_its_outcomes_does_or_leaves(decision: Any, known: Any, random: Any) -> None:
    tree = tree_of(float, float)
    for outcomes in known:
        assert followed(decision, outcomes, tree) == ""
    other = tree_of(float, float)
    for outcomes in random.sample(known, len(known)):
        assert followed(decision, outcomes, other) == ""
    merged(other, tree)
    assert tree.paths == other.paths == len(list(tree.all_paths()))
    steps = Step(tree), Step(other)
    for x in itertools.product((-7.0, 0.5, 2.5, 9.0), repeat=2):
        taken = [found for outcomes in known if (found := followed(decision, outcomes, None, [*x]))[2]]
        for step in steps:
            if taken:
                found = step(*x)
                assert ([found[X], found[Y]], found[WAY], found[GO]) == (taken[0][0], taken[0][1], taken[0][1] == CONTINUES)
            else:
                with pytest.raises(NodeFailed):
                    step(*x)


def test_a_column_is_not_full_where_a_path_that_was_forgotten_appends_nothing() -> None:
    tree = PathTree("loop", [Slot(("x",), Aval((), float64), Tensor)], TripCount(1, 9), 9)
    item = PathEnd(CONTINUES, {}, (((LIVE_IN, 0),),))
    tree.insert([], PathEnd(CONTINUES, {}, ((),)), lambda x: x)
    tree.clear()
    assert not tree.insert([], item, lambda x: x)
    assert tree.columns == [(0, 0, 0)] and not tree.is_full((0, 0, 0))
    other = PathTree("loop", [Slot(("x",), Aval((), float64), Tensor)], TripCount(1, 9), 9)
    assert not other.insert([], item, lambda x: x)
    assert other.is_full((0, 0, 0))
