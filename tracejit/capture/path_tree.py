"""The paths that the steps of a loop take, as a tree.

A *path* is what one step did, as nodes by their places (`StepNode`), with a guard where a value decided how it goes on.  Two paths
are the same up to the first guard that came out otherwise; a tree of *segments* holds each common part once.  The body of a loop node
that takes any of the paths is built from the tree (path_body.py).

*Slots* are what a step is given and leaves: the element of a `range`, variables, states of generators, and what `return` in a step
gives.  Each slot of a tensor has a number beside it that says which object it is: one that the loop was given, or one that a step has
made.  So what follows the loop knows whether two variables hold one object.

A step may come in *parts* (syntax/step_parts.py): each has a tree of segments of its own, begins with what the part before has left in the
slots, and is a step to all that asks for the paths of the tree.  So the paths join between two parts.

A loop that gradients go through keeps what its steps save for a backward pass, and one whose steps append to lists keeps the items.  So
it has room for so many steps: it is a node of a fixed number of steps, of which those after the last one leave what they find.  A list
has a *column* for the first item that each step, or a part of it, appends to it, one for the second, and so on.  Beside a column in
which some steps have no item there is one of bools that says which have.  A slot may hold tensors that require grad and others
(`y = zeros(3)` before `y = y * weight if ... else y`).  The paths are those of a slot whose tensors do; a bool is carried beside it that
says whether they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tracejit.capture.loop_steps import LIVE_IN, LOCAL, SHARED, StepNode, StepValue, ValueKind
from tracejit.capture.syntax.outlined_loops import PROCEEDS
from tracejit.capture.syntax.pieces import CONTINUES, RETURNS
from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_, int64
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Literal, Node
from tracejit.tensor import Tensor

__all__ = [
    "BASE", "GO", "HAS_ITEM", "MOST_PATHS", "NUMBER", "OBJECTS", "OF_SHARED", "TRUTH", "WAY", "Column", "Leaf", "LoopNode",
    "LoopRecord", "NoBody", "PathEnd", "PathTree", "Segment", "Slot", "TripCount", "identity", "item_place", "requires_grad",
    "sources_on_path", "with_places",
]  # fmt: skip

MOST_PATHS: Final = 64
"""Paths of one body, at most."""
GO: Final[StepValue] = ("go", 0)
WAY: Final[StepValue] = ("way", 0)
BASE: Final[StepValue] = ("base", 0)
"""Carried beside slots: whether there is a further step; how the last step has ended; the first number of objects that the step
makes."""
OBJECTS: Final = 1024
"""The first number of an object that a step makes; the numbers for each step: more than there are slots."""
OF_SHARED: Final = -2
"""The number of the first object that steps read from before the loop; those of the others are smaller."""
HAS_ITEM: Final[Any] = "has item"
TRUTH: Final = Aval((), bool_)
NUMBER: Final = Aval((), int64)


def requires_grad(slot: int) -> StepValue:
    """The place of the bool that says whether the tensor in a slot requires grad."""
    return "requires grad", slot


def identity(slot: int) -> StepValue:
    """The place of the number that says which object a slot holds."""
    return "object", slot


Column = tuple[int, int, int]
"""(list, the part of a step that appends to it, which of the items that this one appends)."""
_OF_SLOTS: Final = (LIVE_IN, identity(0)[0], requires_grad(0)[0])


class Leaf:
    """What a slot holds of a leaf that requires grad (carried_leaves.py): its contents."""


class NoBody(Exception):
    """There is no loop node for these paths.  The message says why, for users."""


@dataclass(slots=True)
class Slot:
    """key: ("element",), ("variable", name, which of its parts and kinds), ("kind", name), ("state", a variable or the id of its tensor),
    or ("return", number); equal slots of two trees have equal keys.  aval: of what it holds.  holds: the type of that: Tensor, int,
    float or bool; object of a state; Leaf (carried_leaves.py).  requires_grad: whether some tensors that it holds do; begins_with_grad:
    whether the first one does, if there is one; begins_as_leaf: whether that is a leaf, too.  freed: of tensors that require grad, and
    whose graph a backward pass in the step has freed, where that has led to (freed_graphs.py); the slot holds their contents."""

    key: tuple[Hashable, ...]
    aval: Aval
    holds: type
    requires_grad: bool = False
    begins_with_grad: bool = True
    begins_as_leaf: bool = False
    freed: frozenset[Any] = frozenset()

    @property
    def kind(self) -> tuple[Aval, type]:
        """What all that it holds has in common."""
        return self.aval, self.holds


@dataclass(frozen=True, slots=True)
class TripCount:
    """The elements of the loop, integers from a start on, `step` apart, up to a `stop`: an int, or the place of one.  None of a loop
    that has no elements."""

    step: int
    stop: int | StepValue


@dataclass(slots=True)
class PathEnd:
    """How a path ends.  way: one of WAYS, by its number.  left: the place of what each slot holds then; a slot that is not there
    holds what it held.  items: for each list, those that the path appends.  copies: what is a copy of a view of what is from before
    the step, each with the view.  steps: how many have taken it."""

    way: int
    left: dict[int, StepValue]
    items: tuple[tuple[StepValue, ...], ...] = ()
    copies: tuple[tuple[StepValue, StepValue], ...] = ()
    steps: int = field(default=1, compare=False)

    def in_slot(self, k: int) -> StepValue:
        """The place of what a slot holds then."""
        return self.left.get(k, (LIVE_IN, k))

    def at(self, place: Callable[[StepValue], StepValue]) -> PathEnd:
        """The same with other places of what is left and appended."""
        left = {place((LIVE_IN, k))[1]: place(x) for k, x in self.left.items()}
        items = tuple([tuple(map(place, column)) for column in self.items])
        return replace(self, left=left, items=items, copies=tuple([(place(x), place(y)) for x, y in self.copies]))


@dataclass(slots=True)
class Segment:
    """Nodes in a row, and what follows: an end, or a guard on `decided` whose outcomes lead to other segments."""

    nodes: list[StepNode] = field(default_factory=list)
    decided: StepValue | None = None
    line: str = ""
    following: dict[Literal, Segment] = field(default_factory=dict)
    end: PathEnd | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is not known yet what follows."""
        return self.end is None and self.decided is None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is known yet."""
        return self.is_open and not self.nodes


@dataclass(frozen=True, slots=True)
class LoopNode(StepNode):
    """A nested loop.

    tree: the paths of its steps, whose shared values are places of the path around it.  starts: by keys of slots, the places of what
    they hold at first; None of a slot that steps fill.  begun: by keys of slots of tensors, the number of the object that they hold
    at first.  names: what its outputs are (`PathTree.names`).  room: the steps that there is room for, if that is fixed."""

    tree: PathTree = None  # type: ignore[assignment]
    starts: Mapping[Any, StepValue | None] = field(default_factory=dict)
    begun: Mapping[Any, int] = field(default_factory=dict)
    names: tuple[Hashable, ...] = ()
    room: int = 0

    @property
    def entered(self) -> list[StepValue]:
        """The places of all that it is given."""
        return [*self.tree.shared, *[x for x in self.starts.values() if x is not None]]

    @property
    def results_made_of(self) -> dict[StepValue, set[StepValue]]:
        """By the outputs that a step makes of others, these."""
        named = dict(zip(self.names, self.outputs, strict=True))
        at = {
            x: named[name]
            for x, name in zip((*self.tree.carried(), *self.tree.items()), self.tree.names(), strict=True)
            if name in named
        }
        found: dict[StepValue, set[StepValue]] = {}
        for i, k in self.tree.made_of():
            if i in at and k in at:
                found.setdefault(at[k], set()).add(at[i])
        return found

    def is_like(self, other: StepNode) -> bool:
        """Whether both are runs of one loop from the same state; their paths may differ, and what steps have filled."""
        if not isinstance(other, LoopNode) or (self.tree.loop, self.tree.trips) != (other.tree.loop, other.tree.trips):
            return False
        if len(self.tree.parts) != len(other.tree.parts):
            return False
        if self.tree.trips is not None and type(self.tree.trips.stop) is tuple and self.tree.shared[0] != other.tree.shared[0]:
            return False
        common = self.starts.keys() & other.starts.keys()
        slots = {slot.key: (slot.kind, slot.freed) for slot in other.tree.slots}
        return all(
            self.starts[slot.key] == other.starts[slot.key]
            and self.begun.get(slot.key) == other.begun.get(slot.key)
            and slots[slot.key] == (slot.kind, slot.freed)
            for slot in self.tree.slots
            if slot.key in common
        )


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """What a loop node of a recording stands for: the fields of a LoopNode, with values of the recording as places.  names: None of
    outputs that are for a backward pass alone.  marked: the names of those that require grad."""

    tree: PathTree
    starts: Mapping[Any, int | None]
    begun: Mapping[Any, int]
    names: tuple[Hashable | None, ...]
    room: int = 0
    marked: Collection[Hashable] = ()


class PathTree:
    """The paths of the steps of one loop.

    loop: what tells it from other loops.  slots: see the module; `trips` that of the elements, whose slot is the first one.  shared:
    what all steps read, by the keys that its owner gives; a place (SHARED, k) is the k-th of them.  objects: those among them that
    steps have put into slots, in the order of their numbers.  parts: the first segments of the parts of a step."""

    def __init__(
        self,
        loop: Hashable,
        slots: list[Slot],
        trips: TripCount | None,
        count: Any = None,
        read_after: Collection[str] = (),
        joined: Sequence[bool] = (),
        is_nested: bool = False,
    ) -> None:
        """count: the number of steps, an integer or a size, if no value decides it.  read_after: the variables that are read after the
        loop.  joined: for each list that gets items, whether nothing but `stack` and the like looks at them.  is_nested: whether it is in
        a step of another."""
        self.is_nested = is_nested
        self.loop, self.slots, self.trips, self.count, self.read_after, self.joined = (
            loop,
            slots,
            trips,
            count,
            read_after,
            joined,
        )
        self.shared: list[Any] = []
        self.shared_kinds: list[ValueKind] = []
        self.objects: list[Any] = []
        self.parts = [Segment()]
        self.kinds: dict[StepValue, ValueKind] = {}  # of local values
        self.paths = 0
        self._widths: dict[tuple[int, int], int] = {}  # by lists and parts, the most items that the part appends to the list
        self._forgotten: list[list[int]] = []  # for each path that was forgotten, how many items it appends to each list
        self.item_kinds: dict[int, tuple[Aval, type]] = {}  # by lists, of what they hold: as of a slot
        # Lists whose items may be one object -> the list that gets the numbers of these objects.
        self.number_lists: dict[int, int] = {}
        self.ends_early = False  # whether some path is the last one
        self.takes_gradients = False  # whether some step does
        self.asks_for_grad = False  # whether some step may depend on which tensors require grad
        self._changing: list[int] | None = None  # see `changing_grad`
        self._has_items_with_grad = False
        self._assumed: list[dict[Any, bool]] = []  # see `assume_marks`

    # -- paths
    def insert(self, path: Sequence[StepNode], end: PathEnd, outside: Callable[[StepValue], StepValue], part: int = 0) -> str:
        """Add a path of a part, if it is new.  outside: the place in this tree of one of the path that no node of it computes.  Returns
        why the tree cannot have it, for users; "" if it has it."""
        names: dict[StepValue, StepValue] = {}

        def place(x: StepValue) -> StepValue:
            if x not in names and x[0] in (LIVE_IN, SHARED):
                names[x] = outside(x)
            return names.get(x, x)

        segment, at, is_new = self.parts[part], 0, self.parts[part].is_empty
        for node in path:
            if node.node.op.kind is Kind.GUARD:
                decided, expected = place(node.operands[0]), node.node.attrs["expected"]
                if is_new:
                    segment.decided, segment.line = decided, node.node.line
                elif at < len(segment.nodes) or segment.decided != decided:
                    return _differs(node)
                is_new = expected not in segment.following
                segment, at = segment.following.setdefault(expected, Segment()), 0
                continue
            renamed = self._marked(with_places(node, place))
            if is_new:
                segment.nodes.append(replace(renamed, outputs=self._local(renamed.kinds)))
            elif at == len(segment.nodes) or not self._takes(segment, at, renamed):
                return _differs(node)
            if renamed.is_written and not segment.nodes[at].is_written:
                segment.nodes[at] = replace(segment.nodes[at], is_written=True)
            names.update(_same_outputs(node, segment.nodes[at]))
            at += 1
        end = end.at(place)
        if is_new:
            segment.end = end
            self.paths += 1
            for k, items in enumerate(end.items):
                if items:
                    self._widths[k, part] = max(self._widths.get((k, part), 0), len(items))
            self.ends_early = self.ends_early or end.way not in (CONTINUES, PROCEEDS)
            self._mark_slots()
            return "" if self.paths <= MOST_PATHS else f"its steps take more than {MOST_PATHS} paths"
        known = segment.end
        if known is None or at < len(segment.nodes) or known != end:
            return "steps that take the same branches leave different things"
        return ""

    # -- gradients
    def _requires_grad(self, place: Any) -> bool:
        if type(place) is not tuple:
            return False
        kind, k = place
        return (
            self.slots[k].requires_grad
            if kind == LIVE_IN
            else self.shared_kinds[k][1]
            if kind == SHARED
            else self.kinds[place][1]
        )

    def _marked(self, node: StepNode) -> StepNode:
        """A node with the kinds that its outputs have where slots hold tensors that require grad.  No step has a tape if some step takes
        gradients (path_body.py)."""
        if isinstance(node, LoopNode) or node.with_grad is None or not node.outputs:
            return node
        if self.takes_gradients:
            return replace(node, with_grad=False, kinds=tuple([(aval, False) for aval, _ in node.kinds]))
        marked = node.with_grad and node.node.op.is_differentiable and any(map(self._requires_grad, node.operands))
        kinds = [(aval, marked and isinstance(aval, Aval) and aval.dtype.is_floating_point) for aval, _ in node.kinds]
        return replace(node, kinds=tuple(kinds))

    def take_gradients(self) -> None:
        """Note that some step takes gradients."""
        self.takes_gradients = True
        for segment in self.segments():
            segment.nodes = [self._marked(node) for node in segment.nodes]
            for node in segment.nodes:
                self.kinds.update(zip(node.outputs, node.kinds, strict=True))

    def _mark_slots(self) -> None:
        """Find which slots may hold tensors that require grad, and mark the nodes that read them."""
        self._changing = None
        while True:
            marked = {k for _, end in self.all_paths() for k, x in end.left.items() if self._requires_grad(x)}
            new = [slot for k, slot in enumerate(self.slots) if k in marked and slot.holds is Tensor and not slot.requires_grad]
            if not new:
                items = [x for _, end in self.all_paths() for column in end.items for x in column]
                self._has_items_with_grad = any(map(self._requires_grad, items))
                return
            for slot in new:
                slot.requires_grad = True
            for segment in self.segments():
                for at, node in enumerate(segment.nodes):
                    segment.nodes[at] = marked_node = self._marked(node)
                    self.kinds.update(zip(marked_node.outputs, marked_node.kinds, strict=True))

    def assume_marks(self) -> None:
        """The path that is about to be added writes to what it makes: that is right for slots which require grad as they do now."""
        self._assumed.append({slot.key: slot.requires_grad for slot in self.slots})

    @property
    def are_marks_assumed(self) -> bool:
        """Whether slots require grad as they did when such paths were recorded, and in all steps."""
        now = {slot.key: slot.requires_grad for slot in self.slots}
        return not self._assumed or (
            not self.changing_grad() and all(now[key] == x for known in self._assumed for key, x in known.items())
        )

    def changing_grad(self) -> list[int]:
        """The slots that hold tensors which require grad, and others."""
        if self._changing is None:
            changing: set[int] = {k for k, slot in enumerate(self.slots) if slot.requires_grad and not slot.begins_with_grad}
            paths = [(self.grad_of_path(path), end) for path, end in self.all_paths()]
            while True:
                more = {
                    k
                    for grads, end in paths
                    for k, x in end.left.items()
                    if self.slots[k].requires_grad and (needs := grads(x)) is not True and (not needs or needs & changing)
                }
                if more <= changing:
                    break
                changing |= more
            self._changing = sorted(changing)
        return self._changing

    def grad_of_path(self, path: Sequence[StepNode]) -> Callable[[StepValue], frozenset[int] | bool]:
        """What says of a place, on a path, whether it requires grad: True, or the slots of which one has to hold a tensor that does."""
        known: dict[StepValue, frozenset[int] | bool] = {}

        def grad(x: Any) -> frozenset[int] | bool:
            if x in known:
                return known[x]
            if type(x) is tuple and x[0] == LIVE_IN and self.slots[x[1]].requires_grad:
                return frozenset([x[1]])
            return x[0] == SHARED and self._requires_grad(x) if type(x) is tuple else frozenset()

        for node in path:
            if isinstance(node, LoopNode):  # see `_check_nested`
                known.update({x: kind[1] or frozenset() for x, kind in zip(node.outputs, node.kinds, strict=True)})
            elif any(kind[1] for kind in node.kinds):
                found = [y for x in node.operands if (y := grad(x)) is not False]
                needs = True if True in found else frozenset().union(*found)  # type: ignore[arg-type]
                known.update(dict.fromkeys(node.outputs, needs))
            else:
                known.update(dict.fromkeys(node.outputs, frozenset()))
        return grad

    def pairs_made_of(self) -> list[tuple[int, int]]:
        """`made_of`, by positions among what the loop carries on and collects."""
        outputs = [*self.carried(), *self.items()]
        return [(outputs.index(i), outputs.index(k)) for i, k in self.made_of()]

    def results(self, end: PathEnd) -> list[tuple[int, StepValue]]:
        """(slot, place of what it holds) of the tensors that require grad and that something reads after a path with this end."""
        kind = "return" if end.way == RETURNS else "variable"
        slots = [(k, slot) for k, slot in enumerate(self.slots) if slot.requires_grad and slot.key[0] == kind]
        return [(k, end.in_slot(k)) for k, slot in slots if kind == "return" or slot.key[1] in self.read_after]

    def made_of(self) -> set[tuple[StepValue, StepValue]]:
        """Pairs of results: the second one, a slot or the items for a list, is made in some step of the first one, a slot."""
        found: set[tuple[StepValue, StepValue]] = set()
        before: dict[
            StepValue, set[StepValue]
        ] = {}  # by slots, and items: the slots of which the parts so far may have made them
        for part in range(len(self.parts)):
            after: dict[StepValue, set[StepValue]] = {}
            for path, end in self.paths_of(part):
                made = self._made_on_path(path, end, part, before)
                for x, slots in made.items():
                    after.setdefault(x, set()).update(slots)
                if end.way != PROCEEDS:
                    results = {(LIVE_IN, k) for k, _ in self.results(end)}
                    found.update(
                        [(k, x) for x, slots in made.items() if x[0] != LIVE_IN or x in results for k in slots & results]
                    )
            before = after
        return found

    def _made_on_path(
        self, path: Sequence[StepNode], end: PathEnd, part: int, before: Mapping[StepValue, Collection[StepValue]]
    ) -> dict[StepValue, set[StepValue]]:
        """By slots whose tensors require grad, and items, of which of these slots they are made after a path of a part.  before: the same
        before it."""
        slots: list[StepValue] = [(LIVE_IN, k) for k, slot in enumerate(self.slots) if slot.requires_grad]
        left = {x: end.left.get(x[1], x) for x in slots}
        holding: dict[StepValue, set[StepValue]] = {}  # by places, the slots that hold what is there after the path
        for x, place in left.items():
            holding.setdefault(place, set()).add(x)
        sources = sources_on_path(path, self.grad_of_path(path))

        def slots_of(places: Iterable[StepValue]) -> set[StepValue]:
            return {x for place in places for x in holding.get(place, ())}

        def made_of(place: StepValue) -> set[StepValue]:
            read = {place, *sources.get(place, ())}  # with what earlier parts have made that of, where a slot still holds it
            return slots_of(read) | slots_of([x for y in read for x in before.get(y, ())])

        made = {x: made_of(place) - {x} for x, place in left.items()}
        made.update({x: slots_of(known) for x, known in before.items() if x not in left})
        items = [(item_place((n, part, j)), x) for n, column in enumerate(end.items) for j, x in enumerate(column)]
        return made | {x: made_of(place) for x, place in items}

    def segments(self) -> Iterator[Segment]:
        """All segments, those before others first."""
        waiting = [*self.parts]
        while waiting:
            segment = waiting.pop()
            yield segment
            waiting += segment.following.values()

    def _local(self, kinds: Sequence[ValueKind]) -> tuple[StepValue, ...]:
        """New places of values that steps compute."""
        outputs = tuple([(LOCAL, len(self.kinds) + k) for k in range(len(kinds))])
        self.kinds.update(zip(outputs, kinds, strict=True))
        return outputs

    def _takes(self, segment: Segment, at: int, node: StepNode) -> bool:
        """Whether a node does what the node of a segment does; a nested loop gets the slots and paths of both."""
        known = segment.nodes[at]
        if not isinstance(known, LoopNode):
            return not isinstance(node, LoopNode) and known.is_like(node) and known.position == node.position
        if not isinstance(node, LoopNode) or not known.is_like(node):
            return False
        tree, slots = known.tree, {slot.key: k for k, slot in enumerate(known.tree.slots)}
        new = [slot for slot in node.tree.slots if slot.key not in slots]
        for slot in new:
            slots[slot.key] = len(tree.slots)
            tree.slots.append(slot)
            if (start := node.starts[slot.key]) is not None and start in tree.shared:  # paths read what others write to
                tree.replace_place((SHARED, tree.shared.index(start)), (LIVE_IN, slots[slot.key]))
        starts, begun = {**node.starts, **known.starts}, {**node.begun, **known.begun}
        more = [k for k, name in enumerate(node.names) if name not in known.names]
        segment.nodes[at] = replace(
            known,
            starts=starts,
            begun=begun,
            names=(*known.names, *[node.names[k] for k in more]),
            room=max(known.room, node.room),
            kinds=(*known.kinds, *[node.kinds[k] for k in more]),
            outputs=(*known.outputs, *self._local([node.kinds[k] for k in more])),
        )
        of_start = {start: (LIVE_IN, slots[key]) for key, start in starts.items() if key[0] == "state"}  # type: ignore[index]
        other = node.tree

        def outside(x: StepValue) -> StepValue:
            if x[0] == LIVE_IN:
                return LIVE_IN, slots[other.slots[x[1]].key]
            key = other.shared[x[1]]
            return of_start.get(key) or tree.shared_place(key, other.shared_kinds[x[1]])

        paths = [(part, path, end) for part in range(len(other.parts)) for path, end in other.paths_of(part)]
        return not any(tree.insert(path, end, outside, part) for part, path, end in paths)

    def begin_with(self, slot: int, line: str, parts: Iterable[int] = (0,)) -> None:
        """Have all paths of these parts so far begin with a guard: the number in a slot is 0, as it is at first (`initial`)."""
        for part in parts:
            if not (root := self.parts[part]).is_empty:
                self.parts[part] = Segment([], (LIVE_IN, slot), line, {Literal(0): root})

    def replace_place(self, old: StepValue, new: StepValue) -> None:
        """Have all paths read a value at another place."""

        def place(x: Any) -> Any:
            return new if x == old else x

        for segment in self.segments():
            segment.nodes = [with_places(node, place) for node in segment.nodes]
            segment.decided = place(segment.decided)
            if segment.end is not None:
                left = {k: place(x) for k, x in segment.end.left.items()}
                segment.end = replace(segment.end.at(place), left=left)

    def shared_place(self, key: Hashable, kind: ValueKind) -> StepValue:
        """The place of what all steps read."""
        if key not in self.shared:
            self.shared.append(key)
            self.shared_kinds.append(kind)
        return SHARED, self.shared.index(key)

    def with_shared(self, place: Callable[[Any], Hashable]) -> PathTree:
        """The same tree with other keys of what its steps share."""
        other = copy(self)
        other.shared, other.shared_kinds, other.slots = list(map(place, self.shared)), [*self.shared_kinds], [*self.slots]
        return other

    def clear(self, parts: int | None = None) -> None:
        """Forget all paths, and what they share, but for how many items they append: steps have appended them.  parts: how many a step
        has from now on; by default as many as before."""
        self._forgotten = [*self._forgotten, *[[*map(len, end.items)] for _, end in self.all_paths()]]
        self.parts = [Segment() for _ in range(len(self.parts) if parts is None else parts)]
        self.kinds, self.paths, self.ends_early = {}, 0, False
        self._changing, self._has_items_with_grad = None, False
        kept = 1 if self.trips is not None and type(self.trips.stop) is tuple else 0  # the number that ends the loop comes first
        del self.shared[kept:], self.shared_kinds[kept:]

    def all_paths(self) -> Iterator[tuple[list[StepNode], PathEnd]]:
        """The paths of all parts, each with its guards."""
        for part in range(len(self.parts)):
            yield from self.paths_of(part)

    def paths_of(self, part: int) -> Iterator[tuple[list[StepNode], PathEnd]]:
        """The same of one part."""
        waiting: list[tuple[Segment, list[StepNode]]] = [(self.parts[part], [])]
        while waiting:
            segment, before = waiting.pop()
            path = [*before, *segment.nodes]
            if segment.end is not None:
                yield path, segment.end
            for expected, following in segment.following.items():
                node = Node(REGISTRY["guard"], (), (("expected", expected),), (), segment.line)
                guard = StepNode(node, (segment.decided,), node.attributes, True, (), ())
                waiting.append((following, [*path, guard]))

    # -- what the loop node has
    @property
    def has_gradients(self) -> bool:
        """Whether gradients go through the loop."""
        return self._has_items_with_grad or any(slot.requires_grad for slot in self.slots)

    @property
    def columns(self) -> list[Column]:
        """The columns of lists, those of one list in the order of its items, then those of the numbers of objects."""
        widths = [*sorted(self._widths.items())]
        widths += [((self.number_lists[k], part), width) for (k, part), width in widths if k in self.number_lists]
        return [(k, part, j) for (k, part), width in widths for j in range(width)]

    def is_full(self, column: Column) -> bool:
        """Whether each step of the node has an item in a column."""
        k, part, j = self.column_of_items(column)
        counts = [*self._forgotten, *[[*map(len, end.items)] for _, end in self.paths_of(part)]]
        is_reached = all(end.way == PROCEEDS for before in range(part) for _, end in self.paths_of(before))
        return self.is_counted and is_reached and all(k < len(x) and j < x[k] for x in counts)

    def column_of_items(self, column: Column) -> Column:
        """The column of the items of which this one has the numbers; itself if it has items."""
        k, part, j = column
        return next((n for n, numbers in self.number_lists.items() if numbers == k), k), part, j

    def made_numbers(self, end: PathEnd) -> dict[StepValue, int]:
        """The numbers of the objects that a part of a step makes, among these, by the places where it leaves them: that of the first slot
        that gets one; and numbers that no slot has, of items that no slot gets."""
        left = [(end.in_slot(k), k) for k in range(len(self.slots)) if self.is_object(k)]
        numbers = {place: k for place, k in reversed(left) if place[0] == LOCAL}
        kinds = self.item_kinds
        items = [x for k, column in enumerate(end.items) if column and kinds[k][1] is Tensor for x in column if x[0] == LOCAL]
        for x in items:
            numbers.setdefault(x, OBJECTS - 1 - len(numbers))
        return numbers

    def ends(self) -> list[PathEnd]:
        """The ends of all paths of all parts."""
        return [segment.end for segment in self.segments() if segment.end is not None]

    @property
    def is_counted(self) -> bool:
        """Whether the node is one of a fixed number of steps, all of which are made."""
        is_counted = self._keeps_rows and self.count is not None and not self.ends_early
        return is_counted and (bool(self._widths) or not self.is_nested)

    @property
    def is_bounded(self) -> bool:
        """Whether the node is one of a fixed number of steps, of which so many are made as values decide."""
        return self._keeps_rows and not self.is_counted

    @property
    def _keeps_rows(self) -> bool:
        """Whether the node keeps something of each step."""
        return self.has_gradients or bool(self._widths)

    def carried(self) -> list[StepValue]:
        """The places of what the loop carries on."""
        slots = range(len(self.slots))
        first = [] if self.is_counted else [GO, WAY]
        numbers = [identity(k) for k in slots if self.is_object(k)]
        return [*first, BASE, *[(LIVE_IN, k) for k in slots], *numbers, *map(requires_grad, self.changing_grad())]

    def names(self) -> list[Hashable]:
        """What the outputs of the node are: for what `carried` says, of slots by their keys, then items."""
        named: list[Hashable] = []
        for kind, k in self.carried():
            named.append((kind, self.slots[k].key) if kind in _OF_SLOTS else kind)
        return [*named, *self.items()]

    def items(self) -> list[StepValue]:
        """The places of what the node keeps for lists: of each column the items, and which steps have one, if not all do."""
        return [x for c in self.columns for x in ([item_place(c)] if self.is_full(c) else [item_place(c), (HAS_ITEM, c)])]

    def number_of(self, key: Any) -> int:
        """The number of an object that steps read from before the loop."""
        if key not in self.objects:
            self.objects.append(key)
        return OF_SHARED - self.objects.index(key)

    def is_object(self, slot: int) -> bool:
        """Whether a slot holds a tensor of the program's, so that it matters which object it is."""
        return self.slots[slot].holds in (Tensor, Leaf)

    def aval_of(self, place: StepValue) -> Aval:
        """What is known of what is carried."""
        if place == GO or place[0] == requires_grad(0)[0]:
            return TRUTH
        return self.slots[place[1]].aval if place[0] == LIVE_IN else NUMBER

    def initial(self, place: StepValue) -> int:
        """What the loop carries at first besides what it is given."""
        if place[0] == requires_grad(0)[0]:
            return self.slots[place[1]].begins_with_grad
        return {GO: 1, BASE: OBJECTS, WAY: 0}.get(place, -1 if place[0] == identity(0)[0] else 0)

    def kind_of(self, place: StepValue) -> ValueKind:
        """The same, and whether it requires grad."""
        return self.aval_of(place), place[0] == LIVE_IN and self.slots[place[1]].requires_grad


def _differs(node: StepNode) -> str:
    return f"steps that take the same branches do other things ({node.node.op.name} at {node.node.line})"


def sources_on_path(path: Sequence[StepNode], grad: Callable[[StepValue], Any]) -> dict[Any, set[Any]]:
    """By the values that a path computes and that require grad, all those that gradients come to from there."""
    found: dict[Any, set[Any]] = {}
    for node in path:
        if any(kind[1] for kind in node.kinds):
            operands = node.entered if isinstance(node, LoopNode) else node.operands
            read = {x for x in operands if type(x) is tuple and grad(x)}
            sources = read.union(*[found.get(x, ()) for x in read])
            inner = node.results_made_of if isinstance(node, LoopNode) else {}
            found.update({x: sources | inner.get(x, set()) for x in node.outputs})
    return found


def with_places(node: StepNode, place: Callable[[StepValue], StepValue]) -> StepNode:
    """A node with other places of its operands."""
    operands = tuple([place(x) if type(x) is tuple else x for x in node.operands])
    if not isinstance(node, LoopNode):
        return replace(node, operands=operands)
    starts = {key: None if x is None else place(x) for key, x in node.starts.items()}
    return replace(node, operands=operands, starts=starts, tree=node.tree.with_shared(place))


def _same_outputs(node: StepNode, known: StepNode) -> dict[StepValue, StepValue]:
    """The outputs of a node, with those of another one that does the same."""
    if not isinstance(node, LoopNode) or not isinstance(known, LoopNode):
        return dict(zip(node.outputs, known.outputs, strict=True))
    by_name = dict(zip(known.names, known.outputs, strict=True))
    return {x: by_name[name] for name, x in zip(node.names, node.outputs, strict=True)}


def item_place(column: Column) -> Any:
    """The place of the item in a column."""
    return "item", column
