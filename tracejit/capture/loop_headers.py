"""Calls in the header of a loop, `range`, `enumerate`, `zip`, `reversed`, in each other, and `unbind`, `split` and `chunk` of a
tensor: what the loop goes through.

Where another call of the function may have another number of elements, these calls give an `IterationSpace`, which describes the
elements, and the loop decides whether they have to be materialised (loop_recogniser.py)."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.symbols import concretise
from tracejit.capture.iteration_space import UNBINDING, InductionValues, IterationSpace, TensorSlices
from tracejit.core.interpreter import state
from tracejit.core.symbolic import SymInt
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["LoopHeader", "materialised"]


def materialised(value: Any) -> Any:
    """The result of a call in a header, where no loop goes through its description."""
    return value.materialise() if type(value) is IterationSpace else value


class LoopHeader:
    """Evaluates the calls in the header of one loop: to a description where there is one, else to what they are."""

    def __init__(self, interpreter: RecordingInterpreter) -> None:
        self._interpreter = interpreter

    def unbind_slices(self, name: str, callee: Any, owner: Tensor | None, *arguments: Any, **keywords: Any) -> Any:
        """`unbind`, `split` or `chunk`, by `name`, of arguments.  callee: what to call with them.  owner: the tensor whose method
        it is, if any."""
        materialise = partial(callee, *arguments, **keywords)
        operands = arguments if owner is None else (owner, *arguments)
        given = dict(zip(UNBINDING[name], operands, strict=False))
        if len(operands) > len(UNBINDING[name]) or not given.keys().isdisjoint(keywords):
            return materialise()  # it raises
        given |= keywords
        base, dim = given.pop("input", None), given.pop("dim", 0)
        parts = [*given.values()]
        if not (type(base) is Tensor and type(dim) is int and -base.ndim <= dim < base.ndim) or len(parts) != (name != "unbind"):
            return materialise()
        dim %= base.ndim
        count, width = self._length(base, dim), None
        if name == "split" and type(count) is SymInt:
            width = parts[0]
            if type(width) is not int or width < 1:
                return materialise()
            count = (count + (width - 1)) // width
        elif name == "chunk":
            if type(chunks := self.size(parts[0])) is not SymInt or chunks != count:
                return materialise()
            width = 1
        if type(count) is not SymInt:
            return materialise()
        return IterationSpace(count, [TensorSlices(base, count, dim, width)], None, materialise)

    def builtin_call(self, function: Any, callee: Any, *arguments: Any, **keywords: Any) -> Any:
        """`range`, `enumerate`, `zip` or `reversed` of arguments.  callee: what to call with them.  keywords: `strict`, if
        any."""
        materialise = partial(self._call, callee, *arguments, **keywords)
        describe: Callable[..., IterationSpace | None] = _DESCRIBED[function]
        space = describe(self, materialise, *arguments, **keywords) if state.top is self._interpreter else None
        return materialise() if space is None else space

    def describes(self, function: Any) -> bool:
        return any(function is x for x in _DESCRIBED)

    @staticmethod
    def _call(callee: Any, *arguments: Any, **keywords: Any) -> Any:
        return callee(*map(materialised, arguments), **keywords)

    def iteration_space_of(self, value: Any) -> IterationSpace | None:
        """The description of the elements of `value`, which is one, or a tensor; None of anything else."""
        if type(value) is IterationSpace:
            return value
        count = self._length(value, 0) if type(value) is Tensor and value._array.ndim else None
        return None if count is None else IterationSpace(count, [TensorSlices(value, count)], None, lambda: value)

    def _numbered(self, materialise: Callable[[], Any], *arguments: Any) -> IterationSpace | None:
        start, stop, step = (0, *arguments, 1) if len(arguments) == 1 else (*arguments, 1)[:3]
        first, end, step = self.size(start, concretise_others=True), self.size(stop, concretise_others=True), concretise(step)
        if first is None or end is None or type(step) is not int or not step:
            return None
        return IterationSpace(
            _count(first, end, step), [InductionValues(self._interpreter.recorder, first, step)], None, materialise
        )

    def count_range(self, first: Any, end: Any, step: int) -> IterationSpace:
        """The numbers from 0 on, as many as there are in `range(first, end, step)`."""
        return IterationSpace(_count(first, end, step), [InductionValues(self._interpreter.recorder, 0)], None, tuple)

    def _enumerated(self, materialise: Callable[[], Any], value: Any, start: Any = 0) -> IterationSpace | None:
        space = self.iteration_space_of(value)
        if space is None or type(start) is not int:
            return None
        numbers = InductionValues(self._interpreter.recorder, start)
        return IterationSpace(space.count, [numbers, *space.parts], (None, space.shape), materialise)

    def _zipped(self, materialise: Callable[[], Any], *values: Any, strict: Any = False) -> IterationSpace | None:
        spaces = [x for x in map(self.iteration_space_of, values) if x is not None]
        if not spaces or len(spaces) < len(values):
            return None
        count = spaces[0].count
        for other in spaces[1:]:
            if other.count != count:
                if strict is not False:
                    return None
                count = other.count if other.count < count else count
        return IterationSpace(count, [part for x in spaces for part in x.parts], tuple([x.shape for x in spaces]), materialise)

    def _reversed(self, materialise: Callable[[], Any], value: Any) -> IterationSpace | None:
        if type(value) is not IterationSpace or value.shape is not None:
            return None  # of an iterator Python has no reversal, and of a tensor one of its own
        (part,) = value.parts
        part_backwards = part.backwards(value.count) if isinstance(part, InductionValues) else part.backwards()
        return IterationSpace(value.count, [part_backwards], None, materialise)

    def size(self, x: Any, concretise_others: bool = False) -> Any:
        """An integer of the recording as a size, plain or symbolic; None of anything else.  concretise_others: also of one that was
        computed of other numbers, whose values are guarded then."""
        size = x if type(x) is int else self._interpreter.recorder.sizes.symbol(x, concretise_others)
        return size if type(size) in (int, SymInt) else None

    def _length(self, base: Tensor, dim: int) -> Any:
        """The length of a tensor of the call; None where sizes are not followed."""
        interpreter = self._interpreter
        if not interpreter.recorder.sizes.are_noted or state.top is not interpreter or interpreter.value_of(base) is None:
            return None
        return base.shape[dim] if base._array.ndim else None


def _count(first: Any, end: Any, step: int) -> Any:
    """The number of elements of `range(first, end, step)`; less than 1 if there are none."""
    distance, stride = (end - first, step) if step > 0 else (first - end, -step)
    return distance if stride == 1 else (distance + (stride - 1)) // stride


_DESCRIBED: dict[Any, Callable[..., IterationSpace | None]] = {
    builtins.range: LoopHeader._numbered,
    builtins.enumerate: LoopHeader._enumerated,
    builtins.zip: LoopHeader._zipped,
    builtins.reversed: LoopHeader._reversed,
}
