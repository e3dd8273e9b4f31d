"""Elements of a `for` loop of which another call may have another number: slices of a tensor, numbers up to a size, and tuples of these.

The first ones count from the front, the last two from the end, so that each is the same one in all calls.  Those between are made only if
all steps are to run: then the number is this one in all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.in_program import SHORT
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.loop_nodes import Slices, row
from tracejit.capture.snapshots import is_behind
from tracejit.core.dtypes import int64
from tracejit.core.interpreter import state
from tracejit.core.symbolic import SymInt, without_symbols
from tracejit.ops.creation import arange
from tracejit.ops.public.derive import FUNCTIONS
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["FIRST", "MORE_THAN", "TAKING_APART", "AnyNumber", "Numbers", "Rows", "TakenApart", "made_at", "takes_apart"]

FIRST: Final = 5
"""Elements that count from the front: enough to compare a step with the one before at two places."""
MORE_THAN: Final = FIRST + 1
"""There are more elements: those, the one before the last, and the last."""
TAKING_APART: Final = {
    "unbind": ("input", "dim"),
    "split": ("input", "split_size_or_sections", "dim"),
    "chunk": ("input", "chunks", "dim"),
}
"""Functions, and methods, whose results `TakenApart` may stand for, and their arguments."""
_METHODS: Final = {name: vars(Tensor)[name] for name in TAKING_APART}


def made_at(x: Tensor) -> float | None:
    """When a tensor was made, by the numbers of the tape; None where its place on it is still to be made, or there is none."""
    return None if x._node is None or is_behind(x) else x._node.sequence


def takes_apart(owner: Any, name: str, function: Any) -> bool:
    """Whether `function`, found as `owner.name`, is the library's of this name."""
    return vars(Tensor)[name] is _METHODS[name] if type(owner) is Tensor else function is FUNCTIONS[name]


class TakenApart:
    """`base.unbind(dim)`, or `base.split(1, dim)`, which keeps the dimension, in the header of a loop, until it is known whether that many
    are to be made."""

    __slots__ = ("base", "dim", "keeps", "made")

    def __init__(self, base: Tensor, dim: int, keeps: bool, made: Callable[[], Any]) -> None:
        """made: gives what the call does."""
        self.base = base
        self.dim = dim
        self.keeps = keeps
        self.made = made


class Rows:
    """The slices of a tensor along one of its dimensions, as far as they are made."""

    def __init__(self, base: Tensor, dim: int = 0, keeps: bool = False) -> None:
        """keeps: whether slices have that dimension."""
        self.base = base
        self.dim = dim
        self.keeps = keeps
        self._made: dict[int, Tensor] = {}

    def make(self, k: int, place: Any) -> None:
        """Make row `k` of this call, which is the one at `place` in each."""
        if k not in self._made:
            self._made[k] = row(self.base, self.dim, place, self.keeps)

    def __getitem__(self, k: int) -> Tensor:
        return self._made[k]


class Numbers:
    """Numbers that count steps, up or down."""

    def __init__(self, recorder: Recorder, start: Any, step: int = 1) -> None:
        """start: a number, or a size.  step: 1 or -1."""
        self._recorder = recorder
        self._start = start
        self._step = step
        self._made: dict[int, Any] = {}
        self._late: dict[int, Any] = {}
        self.tensor: Tensor | None = None

    def become_tensor(self, count: SymInt) -> bool:
        """Have them in a tensor int64 as well, so that steps can compute with them; False where they may be too long for that."""
        last = self._start + self._step * count
        if not all(x < 2**SHORT and x > -(2**SHORT) for x in (self._start, last)):
            return False
        self.tensor = arange(self._start, self._step, length=count, dtype=int64)
        return True

    def late(self, k: int, place: Any) -> Any:
        """Number `k` of this call, which is the one at `place` in each, as one that the program has."""
        assert self.tensor is not None
        if k not in self._late:
            number = self._late[k] = self._recorder.program.take_number(row(self.tensor, 0, place, keeps=False))
            if is_symbolic(number):
                number._late.bits = SHORT
        return self._late[k]

    def make(self, k: int, place: Any) -> None:
        """Number `k` of this call is the one at `place` in each.  It is a number of the recording from now on: no step has one more."""
        self._made[k] = self._start + self._step * place
        self._recorder.sizes.admitted(self._made[k])

    def __getitem__(self, k: int) -> Any:
        return self._recorder.sizes.admitted(self._made[k])


class AnyNumber:
    """Elements of a loop of which another call may have another number: the first ones count from the front, the last two from the end.
    Others are made only if all steps are to run: then the number is this one in all calls."""

    def __init__(self, recorder: Recorder, count: SymInt, parts: Sequence[Rows | Numbers], unpacked: bool) -> None:
        """count: more than MORE_THAN.  parts: of each element, which is a tuple of them if it is unpacked."""
        self._recorder = recorder
        self.count = count
        self._length = int(without_symbols(count))
        self._parts = parts
        self._unpacked = unpacked
        self._grad_enabled = state.grad_enabled
        for part in parts:
            for k in (*range(FIRST), self._length - 2, self._length - 1):
                part.make(k, self.place(k))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, k: int) -> Any:
        found = tuple([part[k] for part in self._parts])
        return self._recorder.made(found) if self._unpacked else found[0]

    def place(self, k: int) -> Any:
        """Which element the one at `k` is, in each call."""
        return k if k < FIRST else self.count - (self._length - k)

    def number(self, k: int) -> Any:
        """The number that counts it, as one that the program has."""
        return next(part.late(k, self.place(k)) for part in self._parts if type(part) is Numbers)

    @property
    def counted(self) -> Tensor | None:
        """The tensor of such numbers, if there is one."""
        return next((part.tensor for part in self._parts if type(part) is Numbers), None)

    def tensors(self, k: int) -> list[Tensor]:
        """Those of an element."""
        return [part[k] for part in self._parts if type(part) is Rows]

    def slices(self, at: int) -> list[Slices]:
        """The tensors of elements from one on."""
        return [Slices(part.base, part.dim, at, 1, made_at(part[at]), part.keeps) for part in self._parts if type(part) is Rows]

    def complete(self) -> None:
        """Make all, as where the loop began: steps may have changed grad mode."""
        int(self.count)
        grad_enabled, state.grad_enabled = state.grad_enabled, self._grad_enabled
        try:
            for part in self._parts:
                for k in range(FIRST, self._length):
                    part.make(k, k)
        finally:
            state.grad_enabled = grad_enabled
