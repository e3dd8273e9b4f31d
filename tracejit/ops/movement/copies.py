"""Movement that copies: clone, cat, flip, pad; and the write into memory that every in-place form ends in."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.op import Effect, Kind
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.declare import custom, require_numbers, require_one_dtype
from tracejit.ops.movement.views import slice_
from tracejit.ops.samples import cases, floats, unary

__all__ = ["cat", "clone", "flip", "guard", "pad", "sum_at", "write"]


@custom(Kind.MOVEMENT, lambda x: x, samples=unary())
def clone(x: Any) -> Any:
    """A row-major copy."""
    return np.array(x, order="C")


@clone.vjp()
def _(c: Any, g: Any) -> Any:
    return g


def _cat_rule(*xs: Aval, dim: int) -> Aval:
    first = xs[0]
    require_one_dtype("cat", *xs)
    return Aval((*first.shape[:dim], sum(x.shape[dim] for x in xs), *first.shape[dim + 1 :]), first.dtype)


@custom(
    Kind.MOVEMENT,
    _cat_rule,
    samples=cases(
        (floats(2), floats(3, seed=1), {"dim": 0}),
        (floats(2, 3).T, floats(3, 1, seed=1), floats(3, 0), {"dim": 1}),
        (floats(0, 2), {"dim": 0}),
    ),
)
def cat(*xs: Any, dim: int) -> Any:
    """Tensors of one dtype joined along `dim`; the other sizes are equal."""
    return np.concatenate(xs, axis=dim)


@cat.vjp()
def _(c: Any, g: Any) -> Any:
    dim, start, out = c.attributes["dim"], 0, []
    for need, x in zip(c.needs, c.avals, strict=True):
        stop = start + x.shape[dim]
        out.append(slice_.of(g, dim=dim, start=start, stop=stop, step=1) if need else None)
        start = stop
    return tuple(out)


@custom(
    Kind.MOVEMENT,
    lambda x, dims: x,
    samples=cases((floats(4), {"dims": (0,)}), (floats(2, 3).T, {"dims": (0, 1)}), (floats(0), {"dims": ()})),
)
def flip(x: Any, dims: tuple[int, ...]) -> Any:
    """A copy with the elements along `dims` in reverse order."""
    return np.flip(x, dims).copy()


@flip.vjp()
def _(c: Any, g: Any) -> Any:
    return flip.of(g, dims=c.attributes["dims"])


def _sum_at_rule(
    *xs: Aval, shape: tuple[int, ...], starts: tuple[tuple[int, ...], ...], steps: tuple[tuple[int, ...], ...]
) -> Aval:
    require_one_dtype("sum_at", *xs)
    return Aval(shape, xs[0].dtype)


@custom(
    Kind.SCATTER,
    _sum_at_rule,
    samples=cases(
        (floats(3), {"shape": (6,), "starts": ((1,),), "steps": ((2,),)}),
        (floats(2, 3).T, floats(3, 2, seed=1), {"shape": (4, 2), "starts": ((0, 0), (1, 0)), "steps": ((1, 1), (1, 1))}),
    ),
)
def sum_at(*xs: Any, shape: tuple[int, ...], starts: tuple[tuple[int, ...], ...], steps: tuple[tuple[int, ...], ...]) -> Any:
    """The sum, in order, of tensors each of which is put into zeros of `shape` at a place of its own: the adjoint of slices."""
    total = None
    for x, start, step in zip(xs, starts, steps, strict=True):
        part = np.zeros(shape, x.dtype)
        part[_region(x.shape, start, step)] = x
        total = part if total is None else total + part
    return total


def _region(shape: tuple[int, ...], start: tuple[int, ...], step: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a tensor of `shape` lies: every `step`-th element from `start` on."""
    return tuple(slice(a, a + (n - 1) * s + 1 if n else a, s) for n, a, s in zip(shape, start, step, strict=True))


@sum_at.vjp()
def _(c: Any, g: Any) -> Any:
    out = []
    for need, x, start, step in zip(c.needs, c.avals, c.attributes["starts"], c.attributes["steps"], strict=True):
        part = g if need else None
        for dim, place in enumerate(_region(x.shape, start, step) if need else ()):
            part = slice_.of(part, dim=dim, start=place.start, stop=place.stop, step=place.step)
        out.append(part)
    return tuple(out)


def _pad_rule(x: Aval, value: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Aval:
    require_numbers("pad", value)
    return Aval(tuple(s + a + z for s, a, z in zip(x.shape, low, high, strict=True)), x.dtype)


@custom(
    Kind.MOVEMENT,
    _pad_rule,
    samples=cases(
        (floats(3), 0.5, {"low": (1,), "high": (2,)}),
        (floats(2, 3).T, 0.0, {"low": (0, 1), "high": (2, 0)}),
        (floats(), 1.0, {"low": (), "high": ()}),
    ),
    traits=("casts",),
)
def pad(x: Any, value: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
    """`x` with low[d] elements of `value` before and high[d] after it along each dimension d; none negative."""
    if not x.ndim:
        return np.array(x)
    return np.pad(x, tuple(zip(low, high, strict=True)), constant_values=value)


pad.named("ConstantPadNdBackward0")


@pad.vjp()
def _(c: Any, g: Any) -> Any:
    for dim, (low, size) in enumerate(zip(c.attributes["low"], c.avals[0].shape, strict=True)):
        if g.shape[dim] != size:
            g = slice_.of(g, dim=dim, start=low, stop=low + size, step=1)
    return g, None


@custom(
    Kind.WRITE,
    lambda target, value: target,
    effect=Effect.IN_PLACE,
    samples=cases((floats(4), floats(4, seed=1)), (floats(2, 3).T, floats(2, seed=1))),
)
def write(target: Any, value: Any) -> Any:
    """Copy `value`, of target's dtype and broadcastable to its shape, into target's memory; the output is target's new version."""
    np.copyto(target, value)
    return target


write.named("CopyBackwards")


@write.vjp()
def _(c: Any, g: Any) -> Any:
    return None, sum_to(g, c.avals[1].shape) if c.needs[1] else None


@custom(Kind.GUARD, lambda value, expected: (), multiple=True, traits=("not differentiable",))
def guard(value: Any, expected: Any) -> Any:
    """Nothing; in a program, execution goes on only if the single element of `value` is `expected`."""
    return ()
