"""Movement that copies: clone, cat, flip, pad; and the write into memory that every in-place form ends in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import bool_
from tracejit.core.op import Effect, Kind
from tracejit.core.shapes import require_broadcast, same
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.declare import composite, custom, require_numbers, require_one_dtype
from tracejit.ops.elementwise.arithmetic import add
from tracejit.ops.elementwise.comparison import is_positive_zero
from tracejit.ops.movement.views import reshape, select, slice_, slice_scatter
from tracejit.ops.samples import cases, floats, integers, unary

__all__ = ["cat", "clone", "flip", "guard", "pad", "roll", "stack", "sum_at", "write"]


@custom(
    Kind.MOVEMENT,
    lambda x: x,
    element=lambda b, at, x: x[at],
    simpler=lambda s, x: x,
    traits=("arranges", "copies"),
    samples=unary(),
)
def clone(x: Any) -> Any:
    """A row-major copy."""
    return np.array(x, order="C")


@clone.vjp()
def _(c: Any, g: Any) -> Any:
    return g


def _cat_rule(*xs: Aval, dim: int) -> Aval:
    first = xs[0]
    require_one_dtype("cat", *xs)
    before, behind = tuple(first.shape[:dim]), tuple(first.shape[dim + 1 :])
    for i, x in enumerate(xs):
        own = tuple(x.shape)
        if x is not first and (len(own) != len(first.shape) or own[:dim] != before or own[dim + 1 :] != behind):
            raise RuntimeError(
                f"cat(): sizes of tensors must match except in dimension {dim}: tensor 0 has shape {list(first.shape)}, "
                f"tensor {i} {list(own)}"
            )
    return Aval((*first.shape[:dim], sum(x.shape[dim] for x in xs), *first.shape[dim + 1 :]), first.dtype)


@custom(
    Kind.MOVEMENT,
    _cat_rule,
    nest="join",
    traits=("joins",),
    samples=cases(
        (floats(2), floats(3, seed=1), {"dim": 0}),
        (floats(2, 3).T, floats(3, 1, seed=1), floats(3, 0), {"dim": 1}),
        (floats(0, 2), {"dim": 0}),
    ),
)
def cat(*xs: Any, dim: int) -> Any:
    """Tensors of one dtype joined along `dim`, row-major; the other sizes are equal."""
    joined = np.concatenate(xs, axis=dim)  # in the order of memory that they have
    return joined if joined.flags.c_contiguous else np.ascontiguousarray(joined)


@cat.vjp()
def _(c: Any, g: Any) -> Any:
    dim, start, out = c.attributes["dim"], 0, []
    for need, x in zip(c.needs, c.avals, strict=True):
        stop = start + x.shape[dim]
        out.append(slice_.of(g, dim=dim, start=start, stop=stop, step=1) if need else None)
        start = stop
    return tuple(out)


def _stack_rule(*xs: Aval, dim: int) -> Aval:
    shape = xs[0].shape
    _require_one_shape(xs, same)
    return Aval((*shape[:dim], len(xs), *shape[dim:]), xs[0].dtype)


def _require_one_shape(xs: Sequence[Any], alike: Callable[[Any, Any], bool]) -> None:
    first = xs[0].shape
    for i, x in enumerate(xs):
        if not alike(x.shape, first):
            raise RuntimeError(
                f"stack(): each tensor must have the same shape, got {list(first)} for tensor 0 and {list(x.shape)} for tensor {i}"
            )


def _stacked(*xs: Any, dim: int) -> Any:
    shape = xs[0].shape
    return cat.of(*[reshape.of(x, shape=(*shape[:dim], 1, *shape[dim:])) for x in xs], dim=dim)


@composite(
    _stack_rule,
    _stacked,
    traits=("moves",),
    samples=cases(
        (floats(3), floats(3, seed=1), {"dim": 0}),
        (floats(2, 3).T, floats(3, 2, seed=1), floats(3, 2, seed=2), {"dim": 1}),
        (floats(), floats(seed=1), {"dim": 0}),
        (floats(0, 2), {"dim": 2}),
    ),
)
def stack(*xs: Any, dim: int) -> Any:
    """Tensors of one shape and dtype along a new dimension `dim`, row-major."""
    shape = xs[0].shape
    shapes = [x.shape for x in xs]
    if shapes.count(shape) != len(xs):
        _require_one_shape(xs, operator.eq)
    if dim == 0 and shape:
        return np.ascontiguousarray(np.concatenate(xs)).reshape(len(xs), *shape)
    return cat.evaluate(*[x.reshape(*shape[:dim], 1, *shape[dim:]) for x in xs], dim=dim)


@stack.vjp()
def _(c: Any, g: Any) -> Any:
    return tuple([select.of(g, i, dim=c.attributes["dim"]) if need else None for i, need in enumerate(c.needs)])


def _rolled(x: Any, dim: int, start: int) -> Any:
    ends = ((start, x.shape[dim]), (0, start))
    return cat.of(*[slice_.of(x, dim=dim, start=a, stop=b, step=1) for a, b in ends], dim=dim)


@composite(
    lambda x, dim, start: x,
    _rolled,
    traits=("moves",),
    samples=cases(
        (floats(5), {"dim": 0, "start": 2}), (floats(2, 3).T, {"dim": 1, "start": 1}), (integers(4), {"dim": 0, "start": 3})
    ),
)
def roll(x: Any, dim: int, start: int) -> Any:
    """The slices from `start` on, 0 < start < size, along `dim`, then those before; row-major."""
    out, front = np.empty(x.shape, x.dtype), (slice(None),) * dim
    rest = x.shape[dim] - start
    out[(*front, slice(rest))] = x[(*front, slice(start, None))]
    out[(*front, slice(rest, None))] = x[(*front, slice(start))]
    return out


@roll.vjp()
def _(c: Any, g: Any) -> Any:
    dim = c.attributes["dim"]
    return roll.of(g, dim=dim, start=g.shape[dim] - c.attributes["start"])


@custom(
    Kind.MOVEMENT,
    lambda x, dims: x,
    element=lambda b, at, x, dims: x[[x.shape[d] - 1 - p if d in dims else p for d, p in enumerate(at)]],
    traits=("arranges",),
    samples=cases((floats(4), {"dims": (0,)}), (floats(2, 3).T, {"dims": (0, 1)}), (floats(0), {"dims": ()})),
)
def flip(x: Any, dims: tuple[int, ...]) -> Any:
    """A copy with the elements along `dims` in reverse order."""
    return x[tuple([_BACKWARDS if d in dims else _FORWARDS for d in range(x.ndim)])].copy()


_FORWARDS, _BACKWARDS = slice(None), slice(None, None, -1)


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
    nest="parts",
    traits=("adds at positions",),
    samples=cases(
        (floats(3), {"shape": (6,), "starts": ((1,),), "steps": ((2,),)}),
        (floats(2, 3).T, floats(3, 2, seed=1), {"shape": (4, 2), "starts": ((0, 0), (1, 0)), "steps": ((1, 1), (1, 1))}),
    ),
)
def sum_at(*xs: Any, shape: tuple[int, ...], starts: tuple[tuple[int, ...], ...], steps: tuple[tuple[int, ...], ...]) -> Any:
    """The sum, in order, of tensors each of which is put into zeros of `shape` at a position of its own: the adjoint of slices."""
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
        for dim, position in enumerate(_region(x.shape, start, step) if need else ()):
            part = slice_.of(part, dim=dim, start=position.start, stop=position.stop, step=position.step)
        out.append(part)
    return tuple(out)


def _pad_rule(x: Aval, value: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Aval:
    require_numbers("pad", value)
    return Aval(tuple(s + a + z for s, a, z in zip(x.shape, low, high, strict=True)), x.dtype)


@custom(
    Kind.MOVEMENT,
    _pad_rule,
    nest="frame",
    samples=cases(
        (floats(3), 0.5, {"low": (1,), "high": (2,)}),
        (floats(2, 3).T, 0.0, {"low": (0, 1), "high": (2, 0)}),
        (floats(), 1.0, {"low": (), "high": ()}),
    ),
    traits=("casts",),
)
def pad(x: Any, value: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
    """`x` with low[d] elements of `value` before and high[d] after it along each dimension d; none negative."""
    out = np.full(
        tuple(map(sum, zip(low, x.shape, high, strict=True))), value, x.dtype
    )  # np.pad takes ten times as long for small ones
    out[tuple([slice(a, a + n) for a, n in zip(low, x.shape, strict=True)])] = x
    return out


pad.named("ConstantPadNdBackward0")
_Part = tuple[Any, tuple[int, ...], tuple[int, ...]]
_MOST_PARTS = 32


def _parts(x: Any) -> list[_Part] | None:
    """(tensor, starts, steps) of each summand if a value is a sum of tensors in zeros."""
    op = getattr(x, "op", None)
    if op is sum_at:
        return list(zip(x.operands, x.attributes["starts"], x.attributes["steps"], strict=True))
    if op is not pad or not is_positive_zero(x.operands[1]):
        return None
    low, high = x.attributes["low"], x.attributes["high"]
    return [(x.operands[0], low, (1,) * len(low))] if min((*low, *high), default=0) >= 0 else None


def _put_together(s: Any, parts: list[_Part]) -> Any:
    operands, starts, steps = zip(*parts, strict=True)
    return s(sum_at, *operands, shape=s.aval.shape, starts=starts, steps=steps)


@slice_scatter.simplified
def _(s: Any, base: Any, value: Any, dim: int, start: int, stop: int, step: int) -> Any:
    """A slice that is all of its base, or that is put into zeros."""
    if s.same(value) and start == 0 and step == 1:
        return value
    zeros = "uniform" in getattr(base.op, "traits", ()) and is_positive_zero(base.operands[0])
    if not zeros or value.aval.dtype is bool_:
        return None
    rank, moved = len(s.aval.shape), []
    for x, starts, steps in _parts(value) or [(value, (0,) * rank, (1,) * rank)]:
        there = (*starts[:dim], start + starts[dim] * step, *starts[dim + 1 :])
        moved.append((x, there, (*steps[:dim], steps[dim] * step, *steps[dim + 1 :])))
    return _put_together(s, moved)


@add.simplified
def _(s: Any, x: Any, y: Any) -> Any:
    """A sum of tensors in zeros, and one more.  a + (b + c) is (b + c) + a; (a + b) + (c + d) would round in another order."""
    left, right = _parts(x), _parts(y)
    if left is None or right is None or s.aval.dtype is bool_ or not (s.same(x) and s.same(y)):
        return None
    if len(left) == 1 < len(right):
        left, right = right, left
    parts = left + right
    if len(right) > 1 or len(parts) > _MOST_PARTS or any(step != 1 for _, _, steps in parts for step in steps):
        return None
    return _put_together(s, parts)


@pad.vjp()
def _(c: Any, g: Any) -> Any:
    for dim, (low, size) in enumerate(zip(c.attributes["low"], c.avals[0].shape, strict=True)):
        if g.shape[dim] != size:
            g = slice_.of(g, dim=dim, start=low, stop=low + size, step=1)
    return g, None


def _written(target: Aval, value: Aval | ScalarAval) -> Aval:
    if isinstance(value, Aval):
        require_broadcast("write", value.shape, target.shape)
    return target


@custom(
    Kind.WRITE,
    _written,
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
