"""Which of the tensors that the steps of a branching loop leave are one object: those that slots hold (path_tree.py), and items of lists.

After the loop, the items of a list are rows, each a tensor of its own.  That is as in eager mode where nothing else holds an item.
Else the object has to be known for all calls: the slot of a variable that holds the last item, `x = f(x); xs.append(x)`, or the one whose
first object is the first item, `xs.append(x); x = f(x)`.  Otherwise the node gives the numbers of the objects, too, in a list of their
own (`PathTree.number_lists`).  For lists that are joined alone it does not matter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from tracejit.capture.loop_steps import LIVE_IN, LOCAL, SHARED, StepValue
from tracejit.capture.path_tree import PathEnd, PathTree
from tracejit.capture.syntax.outlined_loops import PROCEEDS
from tracejit.capture.syntax.pieces import CONTINUES

__all__ = [
    "items_from_before", "slot_of_first_item", "slot_of_last_item", "slots_with_copies", "slots_with_items", "why_not_rows",
]  # fmt: skip


# -- slots
def _slots_of_one_object(tree: PathTree) -> set[tuple[int, int]]:
    """Pairs of slots that may hold one tensor, the smaller number first."""
    slots = [k for k in range(len(tree.slots)) if tree.is_object(k)]
    left = [[end.in_slot(k) for k in slots] for end in tree.ends()]
    pairs: set[tuple[int, int]] = set()
    while True:
        found = {
            (i, j)
            for places in left
            for (i, x), (j, y) in combinations(zip(slots, places, strict=True), 2)
            if _may_be_one(x, y, pairs)
        }
        if found <= pairs:
            return pairs
        pairs |= found


def _may_be_one(x: StepValue, y: StepValue, pairs: Collection[tuple[int, int]]) -> bool:
    """Whether one tensor may stand at two places.  pairs: of slots that may hold one, the smaller number first."""
    return x == y or (x[0] == y[0] == LIVE_IN and (min(x[1], y[1]), max(x[1], y[1])) in pairs)


def slots_with_copies(tree: PathTree) -> set[int]:
    """The slots that may hold copies of views of what is from before the loop."""
    holding: set[int] = set()
    ends = tree.ends()
    while True:
        found = {
            k
            for end in ends
            for k, x in end.left.items()
            if any(x == copied for copied, _ in end.copies) or (x[0] == LIVE_IN and x[1] in holding)
        }
        if found <= holding:
            return holding
        holding |= found


def slots_with_items(tree: PathTree, lists: Collection[int]) -> list[int]:
    """The slots that are read after the loop and may hold items of these lists then."""
    ends = [(end, [x for n in lists for x in _items(end, n)]) for end in tree.ends()]
    if not any(items for _, items in ends):
        return []
    pairs = _slots_of_one_object(tree)
    holding: set[int] = set()
    while True:
        found = {
            k
            for end, items in ends
            for k in range(len(tree.slots))
            if ((x := end.in_slot(k))[0] == LIVE_IN and x[1] in holding) or any(_may_be_one(x, y, pairs) for y in items)
        }
        if found <= holding:
            keys = {k: tree.slots[k].key for k in sorted(holding)}
            return [k for k, key in keys.items() if key[0] == "return" or (len(key) > 1 and key[1] in tree.read_after)]
        holding |= found


# -- items
def _items(end: PathEnd, k: int) -> tuple[StepValue, ...]:
    """What a path appends to a list."""
    return end.items[k] if k < len(end.items) else ()


def items_from_before(tree: PathTree, lists: Collection[int], begun: Collection[int]) -> list[StepValue]:
    """The places of items of these lists that may be tensors from before the loop.  begun: the slots that hold such at first."""
    before: list[set[int]] = [{*begun}, *[set() for _ in tree.parts[1:]]]  # for each part, the slots that may hold such
    while True:
        count = sum(map(len, before))
        for part in range(len(tree.parts)):
            for _, end in tree.paths_of(part):
                following = before[part + 1 if end.way == PROCEEDS else 0]
                for k in range(len(tree.slots)):
                    kind, at = end.in_slot(k)
                    if tree.is_object(k) and (kind == SHARED or (kind == LIVE_IN and at in before[part])):
                        following.add(k)
        if sum(map(len, before)) == count:
            break
    return [
        x
        for part in range(len(tree.parts))
        for _, end in tree.paths_of(part)
        for k in lists
        for x in _items(end, k)
        if x[0] == SHARED or (x[0] == LIVE_IN and x[1] in before[part])
    ]


def slot_of_first_item(tree: PathTree, k: int) -> int | None:
    """The slot whose first object is the first item of a list, since each step appends to the list what it finds in the slot, and puts
    something new there.  None if there is none, or slots may hold items after the loop."""
    slots = {x[1] if x[0] == LIVE_IN else None for end in tree.ends() for x in _items(end, k)}
    slot = slots.pop() if len(slots) == 1 else None
    if slot is None or len(tree.parts) > 1 or slots_with_items(tree, [k]):
        return None
    for end in tree.ends():
        count = len(_items(end, k))
        if count > 1 or (count and end.in_slot(slot)[0] != LOCAL) or (not count and end.way == CONTINUES):
            return None
    return slot


def slot_of_last_item(tree: PathTree, k: int) -> int | None:
    """The slot that holds the last item of a list after each step that appends to it, and keeps it in the others.  None if there is none,
    or other slots may hold items."""
    holding = slots_with_items(tree, [k])
    if len(holding) != 1 or len(tree.parts) > 1 or _has_items_of_others(tree, k):
        return None
    (slot,) = holding
    for end in tree.ends():
        items, left = _items(end, k), end.in_slot(slot)
        if (items and (items[-1] != left or left in items[:-1])) or (not items and left != (LIVE_IN, slot)):
            return None
    return slot


def _has_items_of_others(tree: PathTree, k: int) -> bool:
    """Whether steps append to a list what they have not made, or have appended already."""
    columns = [_items(end, k) for end in tree.ends()]
    return any(x[0] != LOCAL for items in columns for x in items) or any(len({*items}) < len(items) for items in columns)


def _share_items(tree: PathTree, lists: Sequence[int]) -> bool:
    """Whether one tensor may be an item of several of these lists."""
    if len(lists) < 2:
        return False
    first = {k: slot for k in lists if (slot := slot_of_first_item(tree, k)) is not None}
    for end in tree.ends():
        items = [x for k in lists for x in _items(end, k)]
        if len({*items}) < len(items):
            return True
        for k, slot in first.items():
            known = {(LIVE_IN, slot), end.in_slot(slot)}  # what the step appends to this list, and what the next one does
            if any(not known.isdisjoint(_items(end, other)) for other in lists if other != k):
                return True
    return False


def why_not_rows(tree: PathTree, lists: Sequence[int]) -> str:
    """Why the items of lists that are more than joined cannot be rows, for users; "" if they can."""
    known = [k for k in lists if slot_of_last_item(tree, k) is not None or slot_of_first_item(tree, k) is not None]
    others = [k for k in lists if k not in known]
    if _share_items(tree, lists) or any(_has_items_of_others(tree, k) for k in others):
        return "an item of a list that is more than joined is there twice, or from before the step"
    return "an item of a list that is more than joined is a variable, too" if slots_with_items(tree, others) else ""
