"""How a primitive is declared: decorators that turn a NumPy body into an Op, by kind.

The body is the NumPy evaluation and carries the public docstring.  The decorators supply what a kind implies (the shape rule,
the effect); everything else stands in the block itself.  This module knows no particular primitive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tracejit.core import dtypes, kernels
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import Effect, Kind, Op, Promotion
from tracejit.core.shapes import broadcast_shapes

__all__ = ["ON_HOST", "composite", "custom", "elementwise", "involution", "reduction", "view", "without_derivative"]

COMMON, FLOAT, BOOL, NONE = Promotion.COMMON, Promotion.FLOAT, Promotion.BOOL, Promotion.NONE
Body = Callable[..., Any]
ON_HOST: None = None  # the lowering of an elementwise primitive that NumPy or SciPy evaluates in programs, too


def _elementwise_rule(name: str, result: dtypes.DType | None, skip: int) -> Callable[..., Aval]:
    def rule(*avals: Any, **attributes: Any) -> Aval:
        tensors = [a for a in avals if isinstance(a, Aval)]
        shape = broadcast_shapes(name, *(a.shape for a in tensors)) if tensors else ()
        if result is not None:
            return Aval(shape, result)
        for a in avals[skip:]:
            if isinstance(a, Aval):
                return Aval(shape, a.dtype)
        scalars = [a.python_type for a in avals[skip:] if isinstance(a, ScalarAval)]
        kind = max(scalars, key=(bool, int, float).index)
        return Aval(shape, {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.default_dtype()}[kind])

    return rule


def refuse_bool(name: str, *operands: Any) -> None:
    """Raise RuntimeError if the operands are bools: NumPy would compute in int8."""
    if any(getattr(x, "dtype", None) == np.bool_ for x in operands):
        raise RuntimeError(f"{name}(): not defined for bool tensors; cast an operand first, e.g. with .int()")


def require_one_dtype(name: str, *values: Any) -> None:
    """Raise RuntimeError unless all values, which are moved without being converted, have one dtype."""
    first = values[0].dtype
    for x in values:
        if x.dtype is not first and x.dtype != first:
            found = ", ".join(str(getattr(y.dtype, "name", y.dtype)) for y in values)
            raise RuntimeError(f"{name}(): expected tensors of one dtype, got {found}; convert with .to()")


def require_numbers(name: str, *operands: Any) -> None:
    """Raise RuntimeError for a tensor in the place of a number: programs keep numbers elsewhere."""
    if any(isinstance(x, Aval) for x in operands):
        raise RuntimeError(f"{name}(): expected a number, got a tensor; take it out with .item()")


def elementwise(
    lowering: Body | None,
    *,
    promotion: Promotion = COMMON,
    result: dtypes.DType | None = None,
    name: str | None = None,
    rule: Callable[..., Aval] | None = None,
    traits: Iterable[str] = (),
    ufunc: Body | None = None,
    evaluates: bool = False,
    **given: Any,
) -> Callable[[Body], Op]:
    """A primitive whose output element depends on one element of each operand.

    `lowering(b, *operands, **attributes)` gives the scalar meaning over an expression builder; `result` is the output dtype
    where it is not the dtype computed in.  `ufunc` is the function of NumPy or SciPy that evaluates it: on floats only (of two operands,
    on int64, too), where the body `evaluates` the others; else on all, and the body is nothing but the docstring.  given: more of
    what an `Op` has."""

    def declare(body: Body) -> Op:
        own = name or body.__name__.rstrip("_")
        infer = rule or _elementwise_rule(own, result, 1 if "condition first" in traits else 0)
        given.update(promotion=promotion, lowering=lowering, traits=frozenset(traits), doc=body.__doc__, ufunc=ufunc)
        return Op(own, Kind.ELEMENTWISE, body if ufunc is None or evaluates else ufunc, infer, **given)

    return declare


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape after reducing `dims`."""
    if keepdim:
        return tuple(1 if i in dims else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in dims)


def reduction(
    reducer: str,
    *,
    result: dtypes.DType | None = None,
    name: str | None = None,
    traits: Iterable[str] = (),
    ufunc: Body | None = None,
    evaluates: bool = False,
    rows: str | None = None,
    **given: Any,
) -> Callable[[Body], Op]:
    """A primitive body(x, dims, keepdim) that combines the elements along `dims` (sorted, non-negative).

    `ufunc` is the `reduce` of NumPy's that evaluates it in the dtype of `x`, of an `x` that has elements where the body `evaluates` the
    others; else the body is nothing but the docstring.
    `rows` is the form of a kernel that does so for rows of large arrays."""

    def declare(body: Body) -> Op:
        def rule(x: Aval, dims: tuple[int, ...], keepdim: bool) -> Aval:
            return Aval(reduced_shape(x.shape, dims, keepdim), result or x.dtype)

        def reduce(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
            assert ufunc is not None
            found = None if rows is None else kernels.reduced_rows(rows, x, dims, keepdim)
            return ufunc(x, dims, x.dtype, None, keepdim) if found is None else found

        given.update(reducer=reducer, traits=frozenset(traits), doc=body.__doc__, ufunc=ufunc, rows=rows)
        given.update(simpler=lambda s, x, dims, keepdim: None if dims else x)
        return Op(
            name or body.__name__.rstrip("_"), Kind.REDUCTION, body if ufunc is None or evaluates else reduce, rule, **given
        )

    return declare


def view(
    rule: Body,
    element: Body,
    *,
    name: str | None = None,
    traits: Iterable[str] = (),
    undone: Callable[..., dict[str, Any] | None] | None = None,
    **given: Any,
) -> Callable[[Body], Op]:
    """A primitive whose output shares the memory of its first operand: which of its elements is where is all that there is to say.  One
    that can be `undone` needs no vjp, unless its elements may share memory."""

    def declare(body: Body) -> Op:
        given.update(effect=Effect.VIEW, element=element, undone=undone, traits=frozenset((*traits, "arranges")))
        op = Op(name or body.__name__.rstrip("_"), Kind.VIEW, body, rule, **given)
        if undone is not None and op.is_differentiable:
            op.vjp()(lambda c, g: op.of(g, **undone(c.avals[0].shape, **c.attributes)))  # type: ignore[arg-type]
        return op

    return declare


def custom(kind: Kind, rule: Body, *, name: str | None = None, traits: Iterable[str] = (), **given: Any) -> Callable[[Body], Op]:
    """Any other primitive, with its shape rule given.  `ufunc`: a function of NumPy's that computes the same of small operands."""

    def declare(body: Body) -> Op:
        given.update(traits=frozenset(traits), doc=body.__doc__)
        return Op(name or body.__name__.rstrip("_"), kind, body, rule, **given)

    return declare


def composite(
    rule: Body,
    expansion: Body,
    *,
    name: str | None = None,
    traits: Iterable[str] = (),
    other: int | tuple[int, ...] = (),
    **given: Any,
) -> Callable[[Body], Op]:
    """A primitive of eager mode that stands for several: the body evaluates it with as few passes as NumPy can, `expansion` is the same
    written with other primitives, which is what programs compute.  Its operands have one floating-point dtype, but for those at `other`
    (classes, a mask), or with the trait "moves" one dtype of any kind: functions hand it no others, and its shape rule refuses them."""

    others = (other,) if isinstance(other, int) else other

    def declare(body: Body) -> Op:
        public = name or body.__name__.rstrip("_")

        def checked_rule(*avals: Any, **attributes: Any) -> Any:
            if "moves" in traits:
                require_one_dtype(public, *avals)
                return rule(*avals, **attributes)
            given = {a.dtype for i, a in enumerate(avals) if a is not None and i not in others}
            if len(given) > 1 or not next(iter(given)).is_floating_point:
                names = " and ".join(sorted(dtype.name for dtype in given))
                raise RuntimeError(f"{public}(): expected operands of one floating-point dtype, got {names}; convert with .to()")
            return rule(*avals, **attributes)

        given.update(expansion=expansion, traits=frozenset(traits))
        return Op(public, Kind.COMPOSITE, body, checked_rule, **given)

    return declare


def involution(s: Any, x: Any) -> Any:
    """What is simpler than a function of itself that gives the operand back."""
    return x.operands[0] if x.op is s.op else None


def without_derivative(op: Op) -> Op:
    """The primitive, of which nobody wrote the derivative: a backward pass through it raises, so no gradient is lost."""

    def refuse(context: Any, *cotangents: Any) -> Any:
        raise NotImplementedError(
            f"the derivative for '{op.name}' is not implemented; use detach() where its gradient is not wanted"
        )

    op.traits |= {"no derivative"}
    op.vjp()(refuse)
    return op
