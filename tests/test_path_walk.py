"""Steps along known paths: what the body of the paths leaves, step by step."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_path_tree import NUMBER, TRUTH, Path, Step, X, Y, collecting_tree, halved_or_grown, tree_of

import tracejit as T
from tests.branching_programs import outlined
from tracejit.capture.loop_steps import LIVE_IN, SHARED
from tracejit.capture.path_tree import WAY, PathTree, TripCount, identity
from tracejit.capture.path_walk import PathWalk
from tracejit.capture.syntax.pieces import BREAKS, CONTINUES
from tracejit.core.floating import quietly
from tracejit.tensor import Tensor

BASE = 100


def walk_of(tree: PathTree, **shared: Any) -> PathWalk:
    walk = PathWalk(tree, lambda k: np.array(shared[str(tree.shared[k])]))
    walk.note_path()
    return walk


def same_as_body(tree: PathTree, *slots: Any, **shared: Any) -> None:
    """A step from these slots leaves what the body leaves, each time."""
    walk, body = walk_of(tree, **shared), Step(tree, **shared)
    arrays = [np.array(x, slot.aval.dtype.numpy) for x, slot in zip(slots, tree.slots, strict=True)]
    for _ in range(20):
        left = quietly(walk.step, arrays, [*range(len(slots))], [False] * len(slots), BASE)
        found = body(*slots, base=BASE, **shared)
        for k in range(len(slots)):
            np.testing.assert_array_equal(left.arrays[k], found[LIVE_IN, k])
            assert not tree.is_object(k) or left.objects[k] == found[identity(k)]
        assert found.get(WAY, left.way) == left.way
        items = {("item", k): [x.item() for x, _ in column] for k, column in enumerate(left.items)}
        assert {k: [found[k]] for k in found if k[0] == "item" and found.get(("has item", k[1]), True)} == {
            k: x for k, x in items.items() if x
        }


def test_a_step_leaves_what_the_body_leaves() -> None:
    for x in (4.0, 0.5, float("nan"), float("inf")):
        same_as_body(halved_or_grown(), x)


def test_a_step_says_which_objects_its_slots_hold() -> None:
    tree = tree_of(Tensor, Tensor)
    for is_large in (True, False):
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        made = path.op("add", X, Y)
        path.into(tree, {0: Y, 1: X} if is_large else {0: made, 1: made})
    for x in (2.0, 0.5):
        same_as_body(tree, x, 3.0)


def test_a_step_appends_what_its_path_appends_and_says_how_it_ends() -> None:
    tree = collecting_tree()
    for is_large, way, items in ((True, BREAKS, (Y,)), (False, CONTINUES, ())):
        path = Path()
        path.asks(path.op("gt", Y, 1.0, aval=TRUTH), is_large)
        path.into(tree, {1: path.op("mul", Y, 2.0)}, way, items)
    for y in (4.0, 0.5):
        same_as_body(tree, 0, y)


def test_an_unknown_outcome_is_no_step_until_its_path_is_known() -> None:
    tree = tree_of(float)

    def add(is_large: bool) -> None:
        path = Path()
        path.asks(path.op("gt", X, 1.0, aval=TRUTH), is_large)
        path.into(tree, {0: path.op("mul", X, 0.5) if is_large else path.op("add", X, (SHARED, "b"))})

    add(True)
    walk = walk_of(tree, b=3.0)
    step = lambda x: quietly(walk.step, [np.array(x)], [-1], [False], BASE)
    assert step(4.0).arrays[0] == 2.0 and step(0.5) is None
    add(False)
    walk.note_path()
    assert step(4.0).arrays[0] == 2.0 and step(0.5).arrays[0] == 3.5
    assert sorted(end.steps for _, end in tree.all_paths()) == [2, 3]


def test_explain_tells_how_often_the_recorded_call_took_each_path() -> None:
    def bounced(height: Any, speed: Any) -> Any:
        for _ in range(200):
            height, speed = height + 0.05 * speed, speed - 0.5
            if height < 0:
                height, speed = -height, -0.9 * speed
        return height

    compiled = T.compile(bounced, wait=True)
    for _ in range(3):
        compiled(T.tensor(1.0), T.tensor(0.0))
    text = " ".join(compiled.explain(verbose=True).split())
    (told,) = re.findall(r"200 steps in the recorded call, by 2 paths, taken (\d+), (\d+) times", text)
    assert sum(map(int, told)) == 200 and min(map(int, told)) > 5, text


def test_elements_that_steps_select_are_found_by_the_walk() -> None:
    def rotated(y: Any) -> Any:
        for _ in range(100):
            y = T.stack([y[1] + 0.1, -0.9 * y[0]])
            if y[0] > 1:
                y = y * 0.5
        return y

    compiled = outlined(rotated)
    for k in (0.0, 0.3, 0.6, 0.9):
        np.testing.assert_allclose(compiled(T.tensor([1.0, k])).numpy(), rotated(T.tensor([1.0, k])).numpy(), rtol=1e-5)
    assert compiled.stats.compiled_calls >= 2 and not compiled.reasons, compiled.explain()


def test_a_node_that_fails_is_no_step() -> None:
    tree = tree_of(int, trips=TripCount(1, 5))
    path = Path()
    path.op("index_select", (SHARED, "table"), X, aval=NUMBER, dim=0)
    path.into(tree, {1: Y})
    walk = walk_of(tree, table=[1.0, 2.0])
    assert quietly(walk.step, [np.array([7]), np.array(3)], [-1, -1], [False] * 2, BASE) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["add", "sub", "mul"]), min_size=2, max_size=6), st.integers(1, 3), st.data())
def test_random_paths_are_walked_as_their_body_does(names: list[str], depth: int, data: st.DataObject) -> None:
    tree = tree_of(float, float)
    bounds = data.draw(st.lists(st.floats(-2, 2, width=32), min_size=depth, max_size=depth))
    for outcomes in itertools.product((True, False), repeat=depth):
        path, values = Path(), [X, Y]
        for k, (bound, outcome) in enumerate(zip(bounds, outcomes, strict=True)):
            path.asks(path.op("gt", values[-1], bound, aval=TRUTH), outcome)
            for name in names[k % 2 :: 2] if outcome else names[:1]:
                values.append(path.op(name, values[-1], values[-2 - outcome % 2] if len(values) > 2 else X))
        path.into(tree, {0: values[-1], 1: values[-2]})
    for x, y in data.draw(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=3)):
        same_as_body(tree, x, y)
