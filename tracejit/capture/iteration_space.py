"""Elements that a `for` loop goes through: slices of a tensor, numbers up to a size, and tuples of these.

Of a loop of any length (`SymbolicTripCount`) the first elements count from the front, and the last ones from the end, so that
each is the same one in all calls.  Those between are made only if all steps are to run: then the number is this one in all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.in_program import SHORT
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.loop_slices import SlicedInput, slice_at
from tracejit.capture.snapshots import is_stale_view, kind_of
from tracejit.core.dtypes import int64
from tracejit.core.interpreter import state
from tracejit.core.symbolic import SymInt, without_symbols
from tracejit.ir.graph import Literal
from tracejit.ops.creation import arange
from tracejit.ops.movement.views import select, slice_
from tracejit.ops.public.derive import FUNCTIONS
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.syntax.loops import LoopNames
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = [
    "FIRST", "LAST", "MORE_THAN", "UNBINDING", "FixedTripCount", "InductionValues", "IterationSpace", "SymbolicTripCount",
    "TensorSlices", "is_unbind_function",
]  # fmt: skip

FIRST: Final = 5
"""Elements that count from the front: enough to compare a step with the one before at two places."""
LAST: Final = 2
"""Elements that count from the end, whose steps run: the one before the last, and the last."""
MORE_THAN: Final = 6
"""A loop of any length has more elements than that."""
_MOST_AHEAD: Final = 16
"""So many elements more count from the front, of loops whose first steps are told from the others, `if t >= 5`."""
_FEWEST_OF_FIXED: Final = 6
"""Steps of a loop of a fixed length that become a node."""
UNBINDING: Final = {
    "unbind": ("input", "dim"),
    "split": ("input", "split_size_or_sections", "dim"),
    "chunk": ("input", "chunks", "dim"),
}
"""Functions, and methods, that split a tensor into slices, and their arguments."""
_METHODS: Final = {name: vars(Tensor)[name] for name in UNBINDING}


def _sequence_of(x: Tensor) -> float | None:
    """The sequence number of a tensor's node on the tape; None where it has no node, or its place on the tape is stale."""
    return None if x._node is None or is_stale_view(x) else x._node.sequence


def is_unbind_function(owner: Any, name: str, function: Any) -> bool:
    """Whether `function`, found as `owner.name`, is the library's of this name."""
    return vars(Tensor)[name] is _METHODS[name] if type(owner) is Tensor else function is FUNCTIONS[name]


class IterationSpace:
    """What the header of a loop goes through, `x.unbind(1)`, `enumerate(zip(xs, ys))`, before its elements are made.

    count: how many there are.  parts: of each element, in the order in which `shape` has them.  shape: None of an element that is
    one part, else a tuple of the shapes of what is in it.  materialise: makes what Python goes through."""

    __slots__ = ("count", "materialise", "parts", "shape")

    def __init__(
        self, count: Any, parts: Sequence[TensorSlices | InductionValues], shape: Any, materialise: Callable[[], Any]
    ) -> None:
        self.count = count
        self.parts = parts
        self.shape = shape
        self.materialise = materialise


class TensorSlices:
    """Slices of a tensor along one of its dimensions, each made when it is needed."""

    def __init__(self, base: Tensor, count: Any, dim: int = 0, width: int | None = None, is_backwards: bool = False) -> None:
        """count: number of slices.  width: their length along that dimension, if they keep it; the last one may be shorter."""
        self.base = base
        self._count = count
        self._dim = dim
        self._width = width
        self._is_backwards = is_backwards
        self._by_position: dict[int, Tensor] = {}

    def backwards(self) -> TensorSlices:
        """The same slices in the other order."""
        return TensorSlices(self.base, self._count, self._dim, self._width, not self._is_backwards)

    def complete(self, length: int) -> None:
        """Make all of them."""
        for k in range(length):
            self.make(k, k)

    def make(self, k: int, place: Any) -> None:
        """Make slice `k` of this call, which is the one at `place` in each call."""
        if k in self._by_position:
            return
        at, width = self._at(place), self._width
        if width is not None and without_symbols(at) == without_symbols(self._count) - 1:
            end = self.base.shape[self._dim]
            self._by_position[k] = slice_.of(self.base, dim=self._dim, start=at * width, stop=end, step=1)
        else:
            self._by_position[k] = slice_at(self.base, self._dim, at, width)

    def _at(self, place: Any) -> Any:
        return self._count - 1 - place if self._is_backwards else place

    def slices(self, k: int, place: Any) -> SlicedInput:
        """The slices from slice `k` of this call on, which is the one at `place` in each call."""
        distance = -1 if self._is_backwards else 1
        return SlicedInput(self.base, self._dim, self._at(place), distance, _sequence_of(self[k]), self._width)

    def __getitem__(self, k: int) -> Tensor:
        return self._by_position[k]


class InductionValues:
    """Integers that count steps, up or down."""

    def __init__(self, recorder: Recorder, start: Any, step: int = 1) -> None:
        """start: an integer, plain or symbolic.  step: the distance between two, which is not 0."""
        self._recorder = recorder
        self._start = start
        self.step = step
        self._by_position: dict[int, Any] = {}
        self._in_program: dict[tuple[int, int], Any] = {}
        self.tensor: Tensor | None = None

    def backwards(self, count: Any) -> InductionValues:
        """The first `count` of them in the other order."""
        return InductionValues(self._recorder, self._start + self.step * (count - 1), -self.step)

    def steps_to(self, bound: int) -> int:
        """The number of steps up to the one in which the counter is `bound`; 0 of a counter that does not count up from a plain
        integer, and of more than _MOST_AHEAD."""
        if type(self._start) is not int or self.step < 0:
            return 0
        ahead = (bound - self._start) // self.step + 1
        return ahead if 0 <= ahead <= _MOST_AHEAD else 0

    def become_tensor(self, count: int) -> bool:
        """Put `count` of them in a tensor int64, so that steps can compute with them; False where they may have too many bits for
        that."""
        last = self._start + self.step * count
        if not all(x < 2**SHORT and x > -(2**SHORT) for x in (self._start, last)):
            return False
        self.tensor = arange(self._start, self.step, length=count, dtype=int64)
        return True

    def in_program(self, k: int, place: Any, ahead: int = 0) -> Any:
        """Integer `k` of this call, which is the one at `place` in each call, or the one `ahead` steps later, as an element of
        the tensor."""
        assert self.tensor is not None
        if (k, ahead) not in self._in_program:
            number = self._in_program[k, ahead] = self._recorder.interpreter.take_number(slice_at(self.tensor, 0, place + ahead))
            if is_symbolic(number):
                number._post_program.max_bits = SHORT
        return self._in_program[k, ahead]

    def at(self, place: Any) -> Any:
        """The integer at a place, plain or symbolic."""
        return self._start + self.step * place

    def complete(self, length: int) -> None:
        """Make all of them."""
        for k in range(FIRST, length):
            self.make(k, k)

    def make(self, k: int, place: Any) -> None:
        """Note that integer `k` of this call is the one at `place` in each call.  It is a number of the recording from now on, so
        that no step adds one."""
        self._by_position[k] = self.at(place)
        self._recorder.sizes.from_library(self._by_position[k])

    def __getitem__(self, k: int) -> Any:
        return self._recorder.sizes.from_library(self._by_position[k])


class SymbolicTripCount:
    """The elements of a loop of any length.

    first, last: how many of them count from the front, and from the end.  range_steps: see FixedTripCount."""

    range_steps: tuple[int, ...] = ()

    def __init__(self, recorder: Recorder, space: IterationSpace, first: int) -> None:
        """space: of more than MORE_THAN elements, besides those that `first` has beyond FIRST."""
        self._recorder = recorder
        self.first, self.last = first, LAST
        self.count: SymInt = space.count
        self._length = int(without_symbols(self.count))
        self._parts, self._shape = space.parts, space.shape
        self._grad_enabled = state.grad_enabled
        for part in self._parts:
            for k in (*range(first), *range(max(first, self._length - LAST), self._length)):
                part.make(k, self.place(k))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, k: int) -> Any:
        return self._element(self._shape, iter([part[k] for part in self._parts]))

    def _element(self, shape: Any, parts: Iterator[Any]) -> Any:
        if shape is None:
            return next(parts)
        return self._recorder.mark_created(tuple([self._element(inner, parts) for inner in shape]))

    def place(self, k: int) -> Any:
        """Which element the one at `k` is, in each call."""
        return k if k < self.first else self.count - (self._length - k)

    def tensors(self, k: int) -> list[Tensor]:
        """The tensors of element `k`."""
        return [part[k] for part in self._parts if isinstance(part, TensorSlices)]

    def slices(self, k: int, count: Any) -> list[SlicedInput] | None:
        """The tensors of `count` elements from `k` on, as slices; None where there are too few for a node."""
        if not count >= 1:
            return None
        return [part.slices(k, self.place(k)) for part in self._parts if isinstance(part, TensorSlices)]

    def complete(self) -> None:
        """Make all elements, in the grad mode in which the loop began.  The number is this one in all calls."""
        int(self.count)
        grad_enabled, state.grad_enabled = state.grad_enabled, self._grad_enabled
        try:
            for part in self._parts:
                part.complete(self._length)
        finally:
            state.grad_enabled = grad_enabled


class FixedTripCount:
    """The elements of a loop whose length is the same in all calls: integers, tensors of one kind that the call has made, or
    tuples of both.

    range_steps: by how much integers move that are no parts of tuples."""

    first, last = 0, LAST

    def __init__(self, interpreter: RecordingInterpreter, elements: Sequence[Any], names: LoopNames) -> None:
        self._interpreter, self._elements, self._names = interpreter, elements, names
        self.count = len(elements)
        self.range_steps = (elements.step,) if isinstance(elements, range) else ()

    def units(self) -> set[int] | None:
        """By how much counters among the elements move; None where an element may tell which one it is."""
        names = self._names
        if self.range_steps:
            return None if names.unpacked or names.counters != names.targets else {abs(step) for step in self.range_steps}
        rows = [self._tensors_of(element) for element in self._elements]
        if any(row is None for row in rows):
            return None
        tensors = [x for row in rows for x in row or ()]
        kinds = [list(map(kind_of, row or ())) for row in rows]
        recorder, values = self._interpreter.recorder, self._interpreter.values
        if (
            any(kind != kinds[0] for kind in kinds)
            or len(set(map(id, tensors))) < len(tensors)
            or any(id(x) not in values or recorder.is_outside(x) for x in tensors)
        ):
            return None
        units: set[int] = set()
        for parts in zip(*self._elements, strict=True) if names.unpacked else ():
            numbers = [x for x in parts if type(x) is int]
            moves = {b - a for a, b in pairwise(numbers)}
            if len(numbers) not in (0, len(parts)) or len(moves) > 1:
                return None
            units.update(map(abs, moves))
        return units

    def _tensors_of(self, element: Any) -> list[Tensor] | None:
        """The tensors of an element; None where something else may tell which element it is."""
        names = self._names
        if not names.unpacked:
            return [element] if isinstance(element, Tensor) else None
        if type(element) is not tuple or len(element) != len(names.targets):
            return None
        for x, name in zip(element, names.targets, strict=True):
            if not (isinstance(x, Tensor) or (type(x) is int and name in names.counters)):
                return None
        return [x for x in element if isinstance(x, Tensor)]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int) -> Any:
        return self._elements[k]

    def place(self, k: int) -> int:
        """Which element the one at `k` is, in each call."""
        return k

    def tensors(self, k: int) -> list[Tensor]:
        """The tensors of element `k`."""
        return [] if self.range_steps else self._tensors_of(self._elements[k]) or []

    def slices(self, k: int, count: int) -> list[SlicedInput] | None:
        """The tensors of `count` elements from `k` on, as slices; None where they are no slices that lie evenly, or too few for a
        node."""
        if count < _FEWEST_OF_FIXED:
            return None
        if not self.tensors(k):
            return []
        interpreter = self._interpreter
        views: dict[int, tuple[int, Any, int]] = {}  # a view -> its base, its dimension, its place
        for node in interpreter.nodes:
            if node.op is select and isinstance(node.operands[1], Literal) and type(node.operands[1].value) is int:
                views[node.outputs[0]] = node.operands[0], node.attrs["dim"], node.operands[1].value  # type: ignore[assignment]
        slices = []
        for column in zip(*map(self.tensors, range(k, k + count)), strict=True):
            places = [views[v] for x in column if (v := interpreter.values[id(x)]) in views]
            moves = {b[2] - a[2] for a, b in pairwise(places)}
            if len(places) < len(column) or len({x[:2] for x in places}) > 1 or len(moves) > 1 or 0 in moves:
                return None
            (base, dim, at), (distance,) = places[0], moves
            slices.append(SlicedInput(interpreter.defined[base], dim, at, distance, _sequence_of(column[0])))
        return slices

    def complete(self) -> None:
        """All elements are there."""
