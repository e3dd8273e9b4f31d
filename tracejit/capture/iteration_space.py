"""Elements of a `for` loop of which another call may have another number: slices of a tensor, numbers up to a size, and tuples of these.

The first ones count from the front, the last ones from the end, so that each is the same one in all calls.  Those between are made only if
all steps are to run: then the number is this one in all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.in_program import SHORT
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.list_reads import ListItems, SliceRequest
from tracejit.capture.loop_nodes import SlicedInput, row
from tracejit.capture.snapshots import is_stale_view
from tracejit.core.dtypes import int64
from tracejit.core.interpreter import state
from tracejit.core.symbolic import SymInt, without_symbols
from tracejit.ops.creation import arange
from tracejit.ops.movement.views import slice_
from tracejit.ops.public.derive import FUNCTIONS
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "FIRST",
    "LAST",
    "MORE_THAN",
    "MOST_FIRST",
    "MOST_LAST",
    "TAKING_APART",
    "InductionValues",
    "IterationSpace",
    "SymbolicTripCount",
    "TensorSlices",
    "creation_order",
    "is_unbind_function",
]  # fmt: skip

FIRST: Final = 5
"""Elements that count from the front: enough to compare a step with the one before at two places."""
LAST: Final = 2
"""Elements that count from the end: the one before the last, and the last."""
MOST_FIRST: Final = 6
MOST_LAST: Final = 3
"""Elements that count from the front, and from the end, of loops that fill lists whose items are read one by one: more than another loop
reads in the steps that it runs there."""
MORE_THAN: Final = 6
"""There are more elements than that."""
MOST_AHEAD: Final = 16
"""So many elements more count from the front, of loops whose first steps are told from the others, `if t >= 5`."""
TAKING_APART: Final = {
    "unbind": ("input", "dim"),
    "split": ("input", "split_size_or_sections", "dim"),
    "chunk": ("input", "chunks", "dim"),
}
"""Functions, and methods, whose results `IterationSpace` may stand for, and their arguments."""
_METHODS: Final = {name: vars(Tensor)[name] for name in TAKING_APART}


def creation_order(x: Tensor) -> float | None:
    """When a tensor was made, by the numbers of the tape; None where its place on it is still to be made, or there is none."""
    return None if x._node is None or is_stale_view(x) else x._node.sequence


def is_unbind_function(owner: Any, name: str, function: Any) -> bool:
    """Whether `function`, found as `owner.name`, is the library's of this name."""
    return vars(Tensor)[name] is _METHODS[name] if type(owner) is Tensor else function is FUNCTIONS[name]


class IterationSpace:
    """What the header of a loop goes through, `x.unbind(1)`, `enumerate(zip(xs, ys))`, until it is known whether that many elements are to
    be made.

    parts: of each element, in the order in which `shape` has them.  shape: None of an element that is one part, else a tuple of the shapes
    of what is in it.  made: gives what Python makes there."""

    __slots__ = ("count", "made", "parts", "shape")

    def __init__(
        self, count: Any, parts: Sequence[TensorSlices | ListItems | InductionValues], shape: Any, made: Callable[[], Any]
    ) -> None:
        self.count = count
        self.parts = parts
        self.shape = shape
        self.made = made


class TensorSlices:
    """The slices of a tensor along one of its dimensions, as far as they are made."""

    def __init__(self, base: Tensor, count: Any, dim: int = 0, width: int | None = None, is_backwards: bool = False) -> None:
        """count: how many there are.  width: how long they are along that dimension, if they have it; the last one may be shorter."""
        self.base = base
        self._count = count
        self._dim = dim
        self._width = width
        self._is_backwards = is_backwards
        self._made: dict[int, Tensor] = {}

    def backwards(self) -> TensorSlices:
        """The same in the other order."""
        return TensorSlices(self.base, self._count, self._dim, self._width, not self._is_backwards)

    def complete(self, length: int) -> None:
        """Make so many, which are all."""
        for k in range(length):
            self.make(k, k)

    def make(self, k: int, place: Any) -> None:
        """Make row `k` of this call, which is the one at `place` in each."""
        if k in self._made:
            return
        at, width = self._at(place), self._width
        if width is not None and without_symbols(at) == without_symbols(self._count) - 1:
            end = self.base.shape[self._dim]
            self._made[k] = slice_.of(self.base, dim=self._dim, start=at * width, stop=end, step=1)
        else:
            self._made[k] = row(self.base, self._dim, at, width)

    def _at(self, place: Any) -> Any:
        return self._count - 1 - place if self._is_backwards else place

    def slices(self, k: int, place: Any) -> SlicedInput:
        """Those from row `k` of this call on, which is the one at `place` in each."""
        distance = -1 if self._is_backwards else 1
        return SlicedInput(self.base, self._dim, self._at(place), distance, creation_order(self[k]), self._width)

    def __getitem__(self, k: int) -> Tensor:
        return self._made[k]


class InductionValues:
    """Numbers that count steps, up or down."""

    def __init__(self, recorder: Recorder, start: Any, step: int = 1) -> None:
        """start: a number, or a size.  step: how far they move, which is not 0."""
        self._recorder = recorder
        self._start = start
        self.step = step
        self._made: dict[int, Any] = {}
        self._late: dict[tuple[int, int], Any] = {}
        self.tensor: Tensor | None = None

    def backwards(self, count: Any) -> InductionValues:
        """So many of them in the other order."""
        return InductionValues(self._recorder, self._start + self.step * (count - 1), -self.step)

    def steps_to(self, bound: int) -> int:
        """How many elements there are before the one that a number which counts up from a plain one is compared with; 0 of others, and
        where it is further than MOST_AHEAD."""
        if type(self._start) is not int or self.step < 0:
            return 0
        ahead = (bound - self._start) // self.step + 1
        return ahead if 0 <= ahead <= MOST_AHEAD else 0

    def become_tensor(self, count: int) -> bool:
        """Have them in a tensor int64 as well, so that steps can compute with them; False where they may be too long for that."""
        last = self._start + self.step * count
        if not all(x < 2**SHORT and x > -(2**SHORT) for x in (self._start, last)):
            return False
        self.tensor = arange(self._start, self.step, length=count, dtype=int64)
        return True

    def late(self, k: int, place: Any, ahead: int = 0) -> Any:
        """Number `k` of this call, which is the one at `place` in each, or one so many further, as one that the program has."""
        assert self.tensor is not None
        if (k, ahead) not in self._late:
            number = self._late[k, ahead] = self._recorder.program.take_number(row(self.tensor, 0, place + ahead))
            if is_symbolic(number):
                number._late.bits = SHORT
        return self._late[k, ahead]

    def at(self, place: Any) -> Any:
        """The number at a place: a size, or a plain one."""
        return self._start + self.step * place

    def complete(self, length: int) -> None:
        """Make so many, which are all."""
        for k in range(FIRST, length):
            self.make(k, k)

    def make(self, k: int, place: Any) -> None:
        """Number `k` of this call is the one at `place` in each.  It is a number of the recording from now on: no step has one more."""
        self._made[k] = self.at(place)
        self._recorder.sizes.from_library(self._made[k])

    def __getitem__(self, k: int) -> Any:
        return self._recorder.sizes.from_library(self._made[k])


class SymbolicTripCount:
    """Elements of a loop of which another call may have another number: the first ones count from the front, the last ones from the end.
    Others are made only if all steps are to run: then the number is this one in all calls."""

    def __init__(self, recorder: Recorder, through: IterationSpace, first: int = FIRST, last: int = LAST) -> None:
        """through: of more than MORE_THAN elements, besides those that `first` has beyond FIRST.  first, last: how many of them count from
        the front, and from the end."""
        self._recorder = recorder
        self.first, self.last = first, last
        self.count: SymInt = through.count
        self._length = int(without_symbols(self.count))
        self._parts, self._shape = through.parts, through.shape
        self._grad_enabled = state.grad_enabled
        self.is_complete = False
        for part in self._parts:
            for k in (*range(first), *range(max(first, self._length - last), self._length)):
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
        """Those of an element."""
        return [part[k] for part in self._parts if type(part) is not InductionValues]

    @property
    def items(self) -> list[int]:
        """Which of these are items of lists."""
        return [
            k
            for k, part in enumerate(part for part in self._parts if type(part) is not InductionValues)
            if type(part) is ListItems
        ]

    @property
    def list_tensors(self) -> list[Tensor]:
        """The tensors in the lists that these are of."""
        return [x for part in self._parts if isinstance(part, ListItems) for x in part.listed]

    def slices(self, k: int) -> list[SlicedInput | SliceRequest]:
        """The tensors of elements from one on, but for the last ones."""
        place, end = self.place(k), self.count - self.last
        return [
            part.slices(place, end) if isinstance(part, ListItems) else part.slices(k, place)
            for part in self._parts
            if not isinstance(part, InductionValues)
        ]

    def is_stand_in(self, k: int) -> bool:
        """Whether an element, as it has been given, is none that the program is to get."""
        return any(isinstance(part, ListItems) and part.is_stand_in(k) for part in self._parts)

    def complete(self) -> None:
        """Make all, as where the loop began: steps may have changed grad mode."""
        self.is_complete = True
        int(self.count)
        grad_enabled, state.grad_enabled = state.grad_enabled, self._grad_enabled
        try:
            for part in self._parts:
                part.complete(self._length)
        finally:
            state.grad_enabled = grad_enabled
