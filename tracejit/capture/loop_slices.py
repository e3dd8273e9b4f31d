"""Slices of one tensor that the steps of a loop read or write in turn, as an operand of a `loop` node: one tensor, with the
slices along its first dimension."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracejit.autograd.grad_mode import set_grad_enabled
from tracejit.core.interpreter import state
from tracejit.ops.movement.copies import flip
from tracejit.ops.movement.views import permute, reshape, select, slice_, unfold
from tracejit.tensor import Tensor

__all__ = ["SlicedInput", "slice_at"]


def slice_at(base: Tensor, dim: int, at: Any, width: int | None = None) -> Tensor:
    """Slice `at` of `base` along `dim`: an index that drops the dimension, or slice number `at` of those of this width."""
    if width is not None:
        return slice_.of(base, dim=dim, start=at * width, stop=(at + 1) * width, step=1)  # type: ignore[no-any-return]
    return select.of(base, at, dim=dim)  # type: ignore[no-any-return]


class SlicedInput(NamedTuple):
    """A slice of `base` along `dim` for each step: the first one at `at`, the next one `distance` further.

    sequence: number on the tape of the slice of the first step, where the slices were made before the steps.  width: length of
    the slices along `dim`, if they keep that dimension: then `at` and `distance` count slices.  window: the same of slices that
    may overlap: then both count elements.  is_tracked: whether slices require grad where `base` does; they may be made in
    `no_grad()`."""

    base: Tensor
    dim: int
    at: Any
    distance: int
    sequence: float | None = None
    width: int | None = None
    window: int | None = None
    is_tracked: bool = True

    def stacked(self, count: Any, reverse: bool | None = None) -> Tensor:
        """The slices of `count` steps along a new first dimension.  reverse: whether the loop goes down; None: in the order of
        their places."""
        with set_grad_enabled(state.grad_enabled and self.is_tracked):
            return self._stacked(count, reverse)

    def _stacked(self, count: Any, reverse: bool | None) -> Tensor:
        last = self.at + self.distance * (count - 1)
        start, stop = (self.at, last + 1) if self.distance > 0 else (last, self.at + 1)
        views = []
        base, width = self.base, self.width
        if width is not None:
            if width > 1:
                base = slice_.of(base, dim=self.dim, start=start * width, stop=stop * width, step=1)
                views.append(base)
                start, stop = 0, stop - start
            shape = base.shape
            length = shape[self.dim] if width == 1 else stop
            base = reshape.of(base, shape=(*shape[: self.dim], length, width, *shape[self.dim + 1 :]))
            views.append(base)
        dims = [d for d in range(base.ndim) if d != self.dim]
        if self.window is not None:
            dims.insert(self.dim, base.ndim)  # the elements of a window
            base = unfold.of(base, dim=self.dim, size=self.window, step=1, dilation=1)
            views.append(base)
        views.append(slice_.of(base, dim=self.dim, start=start, stop=stop, step=abs(self.distance)))
        if self.dim or self.window is not None:
            views.append(permute.of(views[-1], dims=(self.dim, *dims)))
        if reverse is not None and (self.distance < 0) is not reverse:
            views.append(flip.of(views[-1], dims=(0,)))
        if self.sequence is not None and views[-1].requires_grad:
            # A backward pass adds up cotangents of `base` in the order of these numbers; those of the next slice begin at `sequence` + 1.
            for k, x in enumerate(views, 1):
                x._node.sequence = self.sequence + k / (len(views) + 1)
        return views[-1]  # type: ignore[no-any-return]
