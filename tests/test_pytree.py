"""utils._pytree: leaves, structures and maps are PyTorch's."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest

import tracejit
from tests.against_torch import torch
from tracejit.utils import _pytree

Point = namedtuple("Point", "x y")
TREES = [
    1, None, [], [1, (2, None)], {"b": 1, "a": [2, 3]}, Point(1, [2]), OrderedDict(b=1, a=2), defaultdict(list, {"k": [1]}),
    deque([1, 2], 3), ({}, [[]]), "text",
]  # fmt: skip


def theirs() -> Any:
    torch()
    from torch.utils import _pytree

    return _pytree


@pytest.mark.parametrize("tree", TREES)
def test_leaves_and_structures_are_those_of_torch(tree: Any) -> None:
    leaves, spec = _pytree.tree_flatten(tree)
    expected, wanted = theirs().tree_flatten(tree)
    assert leaves == expected
    assert (spec.num_leaves, spec.num_nodes, spec.num_children, spec.is_leaf()) == (
        wanted.num_leaves,
        wanted.num_nodes,
        wanted.num_children,
        wanted.is_leaf(),
    )
    built = _pytree.tree_unflatten(leaves, spec)
    assert built == tree and type(built) is type(tree)
    assert _pytree.tree_structure(built) == spec
    assert _pytree.tree_map(lambda x: [x], tree) == theirs().tree_map(lambda x: [x], tree)


def test_maps_of_several_trees_of_some_types_and_up_to_leaves() -> None:
    a, b = {"x": [1, 2.0]}, {"x": [3, 4.0]}
    for module in (_pytree, theirs()):
        assert module.tree_map(lambda x, y: x + y, a, b) == {"x": [4, 6.0]}
        assert module.tree_map_only(int, lambda x: -x, a) == {"x": [-1, 2.0]}
        assert module.tree_leaves(a, is_leaf=lambda x: isinstance(x, list)) == [[1, 2.0]]
        assert module.tree_all(lambda x: x > 0, a) and not module.tree_any(lambda x: x > 2, a)
        with pytest.raises(ValueError):
            module.tree_map(lambda x, y: x, a, {"y": [1, 2]})
        with pytest.raises(ValueError):
            module.tree_unflatten([1], module.tree_structure(a))
        with pytest.raises(TypeError):
            module.tree_unflatten([1], 3)


def test_a_registered_class_is_a_container() -> None:
    class Pair:
        def __init__(self, first: Any, second: Any) -> None:
            self.first, self.second = first, second

    _pytree.register_pytree_node(Pair, lambda p: ([p.first, p.second], None), lambda children, _: Pair(*children))
    doubled = _pytree.tree_map(lambda x: x * 2, Pair(tracejit.ones(1), [3]))
    assert isinstance(doubled, Pair) and doubled.first.tolist() == [2.0] and doubled.second == [6]
    with pytest.raises(ValueError, match="already registered"):
        _pytree.register_pytree_node(Pair, lambda p: ([], None), lambda children, _: None)
