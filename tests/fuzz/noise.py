"""Eager with other roundings: what docs/equality.md allows a compiled program to differ by, put into eager itself.

Inside `rounding_noise(seed)` every primitive whose results need not have equal bits returns them changed at random by as much as its class
may differ: elementary functions by units in the last place, sums and products by the bound of their kind.  All else stays exact, so a
program of exact operations does not change at all, and the spread of a few such runs is what any compiled run may be off by: propagated
through the program by the program.

The classes are found, not listed: by kind, and for elementwise primitives by what their lowering is made of.  Of composites it is their
expansion that rounds otherwise, in the primitives that it is made of, and their vjp as it is written with those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from tracejit import Tensor, no_grad
from tracejit.autograd import engine, tape, views
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.op import REGISTRY, Kind, Op
from tracejit.loops.expressions import ELEMENTARY, Apply, Var, builder, topological
from tracejit.tensor.base import wrap

__all__ = ["inexact", "of_the_library", "rounding_noise"]

ULP = 4.0  # units in the last place: 2.5 on each side of the exact value, less what is never reached on both
SUM = 8.0  # times eps times the sum of absolute values
PRODUCT = 4.0
ADDED = 1.0
ROUNDED = 2.0  # units in the last place of an operand
SENSITIVE = ("erfc", "lgamma", "logaddexp")
RANGES = {
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "erfc": (0.0, 2.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
}
"""What functions never leave, whoever computes them: what is drawn by a probability, and roots, would raise or be NaN."""
READS_SIGNS = ("copysign", "signbit")  # of their last operand
Bound = Callable[..., Any]
_WIDER = {"e": np.float64, "f": np.float64}  # so that what bounds a result does not overflow before it does


def _magnitude(x: Any) -> Any:
    """The absolute value, in a dtype that has room for multiples of it."""
    return np.abs(x, dtype=_WIDER.get(x.dtype.char, x.dtype))


def _relative(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
    """Units in the last place; of results that underflow, eager's may be anything below the normal numbers."""
    facts = np.finfo(result.dtype)
    underflow = (np.abs(result) < facts.smallest_normal) & np.all([x != 0 for x in np.broadcast_arrays(*operands)], axis=0)
    return ULP * _magnitude(result) + np.where(underflow, facts.smallest_normal / facts.eps, 0)


def _of_rounded_operands(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
    """Where the function is sensitive to its operand, also what roundings of operands change: NumPy and SciPy compute these as sums that
    cancel, or from a rounded square."""
    bound, eps = _relative(op, evaluate, result, operands, attributes), np.finfo(result.dtype).eps
    for i, x in enumerate(operands):
        if isinstance(x, np.ndarray):
            for factor in (1 - ROUNDED * eps, 1 + ROUNDED * eps):
                moved = evaluate(*operands[:i], (x * factor).astype(x.dtype), *operands[i + 1 :], **attributes)
                bound = np.fmax(bound, np.abs(moved - result) / eps)
    return bound


def _of_absolute_values(factor: float) -> Bound:
    """A bound by the sum of absolute values.  A sum that is zero may have either sign: which depends on what the addition begins with."""

    def bound(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
        wide = [_magnitude(x) if isinstance(x, np.ndarray) else x for x in operands]
        return factor * evaluate(*wide, **attributes)

    return bound


def _of_equal_zeros(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
    """Nothing: only the sign of a zero may be either, where there are both."""
    zeros = operands[0] == 0
    return None if len(np.unique(np.signbit(operands[0][zeros]))) < 2 else 0.0


def _per_factor(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
    return _magnitude(result) * max(operands[0].shape, default=1)


@cache
def inexact(everything: bool = False) -> dict[str, Bound]:
    """Name of a primitive -> how far its results may be off, in multiples of eps; only those that may.  everything: all that computes."""
    found: dict[str, Bound] = {}
    for name, op in REGISTRY.items():
        if op.kind is Kind.ELEMENTWISE and (everything or _is_elementary(op)):
            found[name] = _of_rounded_operands if name in SENSITIVE else _relative
        elif (op.kind is Kind.REDUCTION and op.reducer == "sum") or name in ("cumsum", "fold"):
            found[name] = _of_absolute_values(SUM)
        elif op.kind is Kind.CONTRACTION:
            found[name] = _of_absolute_values(PRODUCT)
        elif op.kind is Kind.REDUCTION and op.reducer in ("max", "min"):
            found[name] = _of_equal_zeros
        elif (op.kind is Kind.REDUCTION and op.reducer == "prod") or op.kind is Kind.SCAN:
            found[name] = _per_factor
    return found


def _is_elementary(op: Op) -> bool:
    """Whether the scalar meaning of a primitive contains anything but correctly rounded operations."""
    if op.lowering is None or op.samples is None:
        return True
    for operands, attributes in op.samples():
        arguments = [Var(f"x{i}", from_numpy_dtype(x.dtype)) if isinstance(x, np.ndarray) else x for i, x in enumerate(operands)]
        expression = op.lowering(builder, *arguments, **attributes)
        names = {e.operation for e in topological([expression]) if isinstance(e, Apply)}
        return bool(names.intersection(ELEMENTARY)) or any(n.startswith(("libm", "fma")) for n in names)
    return True


class _Noise:
    """Roundings drawn by a seed."""

    def __init__(self, seed: int, scale: float, everything: bool) -> None:
        self.generator = np.random.default_rng(seed)
        self.scale = scale
        self.everything = everything
        self.added_up: set[tuple[int, int]] = set()  # places of a backward pass that receive more than one gradient

    def moved(self, result: Any, bound: Any, signs: bool = False) -> Any:
        """A result off by up to `bound` times eps, in the same layout.  signs: zeros get either one."""
        size = self.scale * bound * np.finfo(result.dtype).eps
        out = np.array(result, order="K")
        with np.errstate(all="ignore"):
            out[...] = result + np.where(np.isfinite(size), size, 0) * self.drawn(result)
        if signs and self.generator.random() < 0.5:
            out[out == 0] *= -1
        return out

    def drawn(self, result: Any) -> Any:
        """Numbers between -1 and 1; in every other result equal elements get equal ones, so that a program that sorts or counts them may
        find them equal."""
        if self.generator.random() < 0.5:
            return self.generator.uniform(-1, 1, result.shape)
        values, places = np.unique(result, return_inverse=True)
        return self.generator.uniform(-1, 1, values.shape)[places].reshape(result.shape)

    def overflowing(self, op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
        """A result whose intermediate values overflow in another way: that depends on their order, on what they are carried in, and on
        whether products are rounded."""
        way = self.generator.integers(3)
        if way == 0 and op.kind in (Kind.REDUCTION, Kind.CONTRACTION):
            wide = [x.astype(np.longdouble) if isinstance(x, np.ndarray) else x for x in operands]
            return _laid_out(evaluate(*wide, **attributes), result)
        if way == 1 and op.kind is Kind.CONTRACTION:
            a, b = operands
            return _laid_out((a[..., :, :, None] * b[..., None, :, :]).sum(-2, dtype=result.dtype), result)
        return result

    def evaluated(self, op: Op, evaluate: Any, bound: Bound) -> Any:
        """The evaluation of a primitive, with noise."""

        def noisy(*operands: Any, **attributes: Any) -> Any:
            result = evaluate(*operands, **attributes)
            if not isinstance(result, np.ndarray | np.generic) or result.dtype.kind != "f":
                return result
            with np.errstate(all="ignore"):
                size = bound(op, evaluate, result, operands, attributes)
                if size is not None and not (np.abs(size) <= np.finfo(result.dtype).max).all():
                    result = self.overflowing(op, evaluate, result, operands, attributes)
            if size is None:
                return result
            moved = self.moved(result, size, signs=op.kind is not Kind.ELEMENTWISE)
            return np.clip(moved, *RANGES[op.name], out=moved) if op.name in RANGES else moved

        return of_the_library(noisy)

    def signed(self, evaluate: Any) -> Any:
        """The evaluation of a primitive that reads a sign: NaN has either."""

        def noisy(*operands: Any, **attributes: Any) -> Any:
            *others, x = operands
            if isinstance(x, np.ndarray) and x.dtype.kind == "f":
                x = np.array(x, order="K")
                np.copysign(x, self.generator.uniform(-1, 1, x.shape).astype(x.dtype), out=x, where=np.isnan(x))
            return evaluate(*others, x, **attributes)

        return of_the_library(noisy)

    def counted(self, run: Any) -> Any:
        """A backward pass that first finds out where gradients are added up."""

        def noisy(work: Any, roots: Any, cotangents: Any) -> Any:
            edges = [e for e in roots if e is not None]
            edges += [e for node in engine._reachable(edges) for e in node.edges if e is not None]
            places = Counter((id(target), index) for target, index in edges)
            before, self.added_up = self.added_up, {place for place, count in places.items() if count > 1}
            try:
                return run(work, roots, cotangents)
            finally:
                self.added_up = before

        return noisy

    def differentiated(self, kind: type[Any], backward: Any) -> Any:
        """The gradients of a node, with noise where they are added to others: a compiled program is one node, and adds up its own first.
        With noise in everything they all get it: rules compute on bare arrays with Python's operators, which are no primitives."""

        def noisy(node: Any, cotangents: Any, tensors: bool) -> Any:
            if (
                not tensors and kind is tape.OpNode and node.op.kind is Kind.COMPOSITE
            ):  # on arrays the rule computes with NumPy alone
                with no_grad():
                    result = backward(node, [g if g is None else wrap(g) for g in cotangents], True)
                gradients = [g if g is None else g._array for g in result]
            else:
                gradients = list(backward(node, cotangents, tensors))
            for i, (edge, g) in enumerate(zip(node.edges, gradients, strict=False)):
                if edge is None or g is None or not (self.everything or (id(edge[0]), edge[1]) in self.added_up):
                    continue
                if isinstance(g, Tensor):
                    g._array = self.moved(g._array, ADDED * np.abs(g._array))
                else:
                    gradients[i] = self.moved(g, ADDED * np.abs(g))
            return gradients

        return noisy


def _laid_out(values: np.ndarray, like: Any) -> np.ndarray:
    """Values in the layout of another array."""
    out = np.array(like, order="K")
    out[...] = values
    return out


def _expanded(evaluate: Any, expansion: Any) -> Any:
    """The evaluation of a composite by what it stands for, in the layout that eager's has."""

    def expanded(*operands: Any, **attributes: Any) -> Any:
        laid = evaluate(*operands, **attributes)
        tensors = [wrap(x) if isinstance(x, np.ndarray | np.generic) else x for x in operands]
        with no_grad():
            result = expansion(*tensors, **attributes)
        if isinstance(result, tuple):
            return tuple([_laid_out(x._array, y) for x, y in zip(result, laid, strict=True)])
        return _laid_out(result._array, laid)

    return expanded


def of_the_library(function: Any) -> Any:
    """A function as one of the library's: it tells the errors of its evaluations from those of code that interrupts them, which it leaves
    alone, by the modules of the frames that they came through."""
    own = {**function.__globals__, "__name__": "tracejit"}
    return FunctionType(function.__code__, own, function.__name__, function.__defaults__, function.__closure__)


@contextmanager
def rounding_noise(seed: int, scale: float = 1.0, everything: bool = False) -> Iterator[None]:
    """Eager with roundings drawn by a seed.  scale: how much larger than allowed; everything: in correctly rounded primitives, too."""
    noise = _Noise(seed, scale, everything)
    with ExitStack() as changes:

        def change(owner: Any, name: str, value: Any) -> None:
            changes.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)

        for name, bound in inexact(everything).items():
            op = REGISTRY[name]
            change(op, "evaluate", noise.evaluated(op, op.evaluate, bound))
            for name, none in (("ufunc", None), ("reduces", False), ("multiplies", False)):  # which eager would call instead
                change(op, name, none)
        for op in REGISTRY.values():
            for name, none in (("step", None), ("until_step", 0)):
                change(op, name, none)
            if op.expansion is not None:  # what programs compute
                change(op, "evaluate", of_the_library(_expanded(op.evaluate, op.expansion)))
        for name in READS_SIGNS:
            op = REGISTRY[name]
            change(op, "evaluate", noise.signed(op.evaluate))
            change(op, "ufunc", None)
        change(engine._Pass, "run", noise.counted(engine._Pass.run))
        for kind in (tape.OpNode, views.ViewWriteNode):
            change(kind, "backward", noise.differentiated(kind, kind.backward))
        yield
