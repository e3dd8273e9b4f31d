"""Nested containers as flat lists of their leaves and back, under PyTorch's names.

Tuples, named tuples, lists, dictionaries, ordered and default ones, and deques are containers, as is what a program registers.
Everything else is a leaf, None among it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "LeafSpec", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_iter", "tree_leaves", "tree_map",
    "tree_map_", "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip


class _Kind(NamedTuple):
    """How a container is taken apart, (children, context), and made again of (children, context)."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]


def _of_mapping(x: Any) -> tuple[list[Any], Any]:
    return list(x.values()), list(x)


_KINDS: dict[type, _Kind] = {
    dict: _Kind(_of_mapping, lambda children, keys: dict(zip(keys, children, strict=True))),
    OrderedDict: _Kind(_of_mapping, lambda children, keys: OrderedDict(zip(keys, children, strict=True))),
    defaultdict: _Kind(
        lambda x: (list(x.values()), (x.default_factory, list(x))),
        lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
    ),
    list: _Kind(lambda x: (list(x), None), lambda children, _: list(children)),
    tuple: _Kind(lambda x: (list(x), None), lambda children, _: tuple(children)),
    deque: _Kind(lambda x: (list(x), x.maxlen), lambda children, maxlen: deque(children, maxlen)),
}
_NAMED = _Kind(lambda x: (list(x), type(x)), lambda children, kind: kind(*children))


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    **options: Any,
) -> None:
    """Make instances of a class containers: flatten_fn(x) gives (children, context), unflatten_fn(children, context) the instance.

    Raises ValueError for a class that is one already."""
    if cls in _KINDS:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _KINDS[cls] = _Kind(flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _kind_of(x: Any) -> tuple[Any, _Kind | None]:
    """(what a TreeSpec calls the type, how it is taken apart); None for a leaf."""
    cls = type(x)
    if cls in _KINDS:
        return cls, _KINDS[cls]
    if isinstance(x, tuple) and hasattr(cls, "_fields"):
        return NamedTuple, _NAMED
    return cls, None


class TreeSpec:
    """The structure of nested containers: their types, what is needed to make them again, and the structures of their children."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self.children_specs = children_specs
        self.num_children = len(children_specs)
        self.num_nodes: int = 1 + sum(child.num_nodes for child in children_specs)
        self.num_leaves: int = sum(child.num_leaves for child in children_specs) if type is not None else 1

    def is_leaf(self) -> bool:
        """Whether it is the structure of a leaf."""
        return self.type is None

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self.children_specs[index]

    def children(self) -> list[TreeSpec]:
        """The structures of the children."""
        return list(self.children_specs)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Containers of this structure with these leaves.  Raises ValueError for another number of them."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree that holds "
                f"{self.num_leaves} items ({self})."
            )
        return self._built(iter(given))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        kind = _NAMED if self.type is NamedTuple else _KINDS[self.type]
        return kind.unflatten([child._built(leaves) for child in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What stands at the leaves of this structure in another tree.  Raises ValueError where that has another structure."""
        if self.type is None:
            return [tree]
        name, kind = _kind_of(tree)
        children, context = ([], None) if kind is None else kind.flatten(tree)
        children = list(children)
        if name is not self.type or len(children) != self.num_children or context != self.context:
            raise ValueError(f"expected a tree of structure {self}, got {tree!r}")
        return [leaf for child, part in zip(self.children_specs, children, strict=True) for leaf in child.flatten_up_to(part)]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and self.type is other.type
            and self.context == other.context
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, tuple(self.children_specs)))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves in order, structure); what is_leaf says yes to is not taken apart."""
    leaves: list[Any] = []

    def walk(x: Any) -> TreeSpec:
        name, kind = _kind_of(x)
        if kind is None or (is_leaf is not None and is_leaf(x)):
            leaves.append(x)
            return LeafSpec()
        children, context = kind.flatten(x)
        return TreeSpec(name, context, [walk(child) for child in children])

    return leaves, walk(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Containers of a structure with these leaves.  Raises TypeError for what is no structure, ValueError for another number of leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves, in order, one by one."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure alone."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The same containers with func(leaf, leaves at its position in `rests`) for each leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten([func(*given) for given in zip(leaves, *others, strict=True)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call func as tree_map() does, for what it does; gives the tree back."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """tree_map() of the leaves of one type, or of several; the others stay what they are."""
    return tree_map(lambda x: func(x) if isinstance(x, type_or_types) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether something holds of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether something holds of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))
