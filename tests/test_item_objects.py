"""capture/item_objects.py: which tensors that steps leave are one object."""

from __future__ import annotations

import pytest

from tests.test_path_tree import TRUTH, Path, X, tree_of
from tracejit.capture.item_objects import items_from_before, slot_of_first_item, slot_of_last_item, slots_with_items, why_not_rows
from tracejit.capture.path_tree import PathEnd, PathTree
from tracejit.capture.syntax.outlined_loops import PROCEEDS
from tracejit.capture.syntax.pieces import BREAKS, CONTINUES
from tracejit.tensor import Tensor


def test_a_slot_holds_an_item_that_another_slot_of_the_same_object_gave() -> None:
    tree = tree_of(Tensor, Tensor)
    tree.clear(2)
    tree.read_after = {"v0", "v1"}
    path = Path()
    both = path.op("mul", X, 2.0)
    path.into(tree, {0: both, 1: both}, PROCEEDS)
    Path().into(tree, {}, items=(X,), part=1)
    assert slots_with_items(tree, [0]) == [0, 1]
    assert items_from_before(tree, [0], [0, 1]) == []  # the first part has made it
    path = Path()
    path.asks(path.op("gt", X, 1.0, aval=TRUTH), False)
    other = tree_of(Tensor, Tensor)
    other.clear(2)
    path.into(other, {}, PROCEEDS)
    Path().into(other, {}, items=(X,), part=1)
    assert items_from_before(other, [0], [0, 1]) == [X] and items_from_before(other, [0], [1]) == []


def tree_of_steps(*steps: str, way_of_others: int | None = None) -> PathTree:
    """The tree of a loop that carries `x`, which is read afterwards.  steps: what a step does with the list 0 (and 1) on each of two paths,
    or on one: "a" appends `x`, "u" puts a new tensor into it, "b" appends `x` to list 1.  way_of_others: how paths but the first end."""
    tree = tree_of(Tensor)
    tree.read_after = {"v0"}
    for k, step in enumerate(steps):
        path, x = Path(), X
        if len(steps) > 1:
            path.asks(path.op("gt", X, 1.0, aval=TRUTH), not k)
        lists: tuple[list[tuple[str, int]], ...] = ([], [])
        for what in step:
            if what == "u":
                x = path.op("mul", x, 2.0)
            else:
                lists["ab".index(what)].append(x)
        way = way_of_others if k and way_of_others is not None else CONTINUES
        end = PathEnd(way, {} if x == X else {0: x}, tuple(map(tuple, lists)))
        assert not tree.insert(path.nodes, end, lambda place: place)
    return tree


FIRST, LAST = "first", "last"
TWICE, VARIABLE = "is there twice, or from before the step", "is a variable, too"


@pytest.mark.parametrize(
    ("steps", "known"),
    [
        (("ua",), LAST),
        (("au",), FIRST),
        (("ua", ""), LAST),  # the others keep it
        (("ua", "u"), VARIABLE),  # the last item may be what a step before has left
        (("au", "u"), TWICE),  # the first one may be what any step was given
        (("au", "a"), TWICE),  # the next step appends it once more
        (("aua",), TWICE),
        (("uaa",), TWICE),
        (("uua",), LAST),
    ],
    ids=str,
)  # fmt: skip
def test_an_item_that_a_variable_holds_is_known_or_the_list_is_refused(steps: tuple[str, ...], known: str) -> None:
    tree = tree_of_steps(*steps)
    assert (slot_of_first_item(tree, 0) == 0) == (known == FIRST)
    assert (slot_of_last_item(tree, 0) == 0) == (known == LAST)
    reason = why_not_rows(tree, [0])
    assert (reason == "") == (known in (FIRST, LAST)) and (known in (FIRST, LAST) or known in reason)


def test_the_last_step_need_not_append_what_it_is_given() -> None:
    assert slot_of_first_item(tree_of_steps("au", "", way_of_others=BREAKS), 0) == 0
    assert slot_of_first_item(tree_of_steps("au", "a", way_of_others=BREAKS), 0) is None  # it is in the variable, too


@pytest.mark.parametrize("steps", ["uab", "aub", "bua"])
def test_two_lists_may_not_have_one_item(steps: str) -> None:
    assert TWICE in why_not_rows(tree_of_steps(steps), [0, 1])
