"""Functions of one element written with primitives, which eager mode evaluates in one pass over memory.

`@fused(tensors, samples)` makes a function of a body(*tensors, *numbers), and a composite primitive.  The body applies
elementwise primitives (`of`, and Python's operators) to values of any kind; the tensors have one floating-point dtype and one
shape.  Programs compute the body.  Eager mode computes it by one kernel (core/kernels.py), and so it does the gradient, which
`gradients` derives from the rules of the primitives in the body.  Where there is no kernel, NumPy evaluates the body step by
step.

Must not know: the class Tensor, the tape, who makes kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracejit.core import kernels
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import FLOATING_KINDS, DType, from_numpy_dtype
from tracejit.core.floating import quietly
from tracejit.core.interpreter import Abstract, Interpreter, state
from tracejit.core.op import BEFORE_STEP, Kind, Op, VjpContext
from tracejit.core.operators import AbstractOperand
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import full
from tracejit.ops.samples import Samples

__all__ = ["Fused", "fused", "gradients", "pulled_back"]

Body = Callable[..., Any]
_ARRAYS = (np.ndarray, np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """A function of so many tensors, then numbers.  Called in eager mode it is one primitive, of tensors of one dtype, float32 or float64,
    of one shape, and of at least so many elements; of others, and where operations are recorded, it is the body."""

    op: Op
    body: Body
    tensors: int
    least: int

    def __call__(self, *operands: Any) -> Any:
        top = state.top
        if top is state.base:
            if self.op.step is not None and (out := top.stepped(self.op, operands)) is not None:
                return out
            if _fits(operands, self.tensors, self.least):
                return top.bind(self.op, operands, {})
        return self.body(*operands)


def fused(tensors: int, samples: Samples, saves: Sequence[int] | None = None, least: int = 0) -> Callable[[Body], Fused]:
    """Make a function of a body, and the primitive of that name.  saves: the tensors of which the gradient depends on the contents, if
    not on all.  least: how many elements make one kernel faster than the body's steps."""

    def declare(body: Body) -> Fused:
        own = body.__name__
        kept = range(tensors) if saves is None else saves
        numbers = body.__code__.co_argcount - tensors
        forward = kernels.Fused(own, lambda *operands: (body(*operands),), 1, tensors, numbers, least)
        backward: dict[tuple[bool, ...], kernels.Fused] = {}
        made: list[Any] = []

        def evaluate(*operands: Any) -> Any:
            found = kernels.run_fused(forward, operands[:tensors], operands[tensors:])
            if len(made) != len(kernels.made_for(forward)):
                made[:], op.step, op.until_step = kernels.made_for(forward), None, BEFORE_STEP
            return quietly(body, *operands) if found is None else found[0]

        def rule(*avals: Any) -> Aval:
            first: Aval = avals[0]
            for aval in avals[1:tensors]:
                if aval != first:
                    raise RuntimeError(f"{own}(): expected tensors of one shape and dtype, got {first} and {aval}")
            if not first.dtype.is_floating_point:
                raise RuntimeError(f"{own}(): expected a floating-point dtype, got {first.dtype.name}; convert it with .to()")
            return first

        op = Op(
            own,
            Kind.COMPOSITE,
            evaluate,
            rule,
            expansion=body,
            traits=frozenset(("quiet",)),
            samples=samples,
            doc=body.__doc__,
            loops=forward,
        )

        @op.vjp(saves=" ".join(map(str, kept)))
        def _(c: Any, g: Any) -> Any:
            given = tuple([x if i in kept else g for i, x in enumerate(c.inputs[:tensors])])
            rest, needs = c.inputs[tensors:], tuple(c.needs[:tensors])
            found: Any = None
            if isinstance(g, _ARRAYS):
                form = backward.get(needs)
                if form is None:
                    form = kernels.Fused(
                        f"{own} gradient",
                        lambda g, *xs: gradients(body, xs[:tensors], xs[tensors:], needs, g),
                        sum(needs),
                        tensors + 1,
                        numbers,
                    )
                    backward[needs] = form
                found = kernels.run_fused(form, (g, *given), rest)
            each = iter(gradients(body, given, rest, needs, g) if found is None else found)
            return *[next(each) if need else None for need in needs], *[None for _ in rest]

        return Fused(op, body, tensors, least)

    return declare


def _fits(operands: Sequence[Any], tensors: int, least: int) -> bool:
    """Whether the tensors have a dtype for which there are kernels, one shape, and enough elements; and what follows are plain numbers."""
    first = getattr(operands[0], "_array", None)
    if first is None or first.size < least or not kernels.has_dtype(first):
        return False
    for x in operands[1:tensors]:
        array = getattr(x, "_array", None)
        if array is None or array.dtype is not first.dtype or array.shape != first.shape:
            return False
    return all(type(x) is float or type(x) is int for x in operands[tensors:])


class _Value(AbstractOperand):
    """A value of any kind, and whether a cotangent of it is wanted."""

    __slots__ = ("active", "value")

    def __init__(self, interpreter: Interpreter, value: Any, active: bool) -> None:
        self.interpreter, self.value, self.active = interpreter, value, active

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> DType:
        return _dtype(self.value)

    @property
    def aval(self) -> Aval | None:
        """Its shape and dtype; None of a number."""
        is_number = isinstance(getattr(self.value, "aval", None), ScalarAval)
        return None if is_number else Aval(self.shape, self.dtype)


class _Steps(Interpreter):
    """Applies primitives to the values that it is given, and remembers those through which a cotangent goes."""

    def __init__(self, reference: Any) -> None:
        """reference: a value of the kind that it is given."""
        self.reference = reference
        self.steps: list[tuple[Op, tuple[Any, ...], Mapping[str, Any], _Value]] = []

    def bind(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        result = self.applied(op, operands, attributes)
        active = op.is_differentiable and any(type(x) is _Value and x.active for x in operands) and _is_floating(result)
        out = _Value(self, result, active)
        if active:
            self.steps.append((op, operands, attributes, out))
        return out

    def applied(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        values = [x.value if type(x) is _Value else x for x in operands]
        if any(type(x) is _Value for x in operands):
            return op.of(*values, **attributes)
        return op.beside(self.reference, *values, **attributes)


def _dtype(x: Any) -> DType:
    return from_numpy_dtype(x.dtype) if isinstance(x.dtype, np.dtype) else x.dtype


def _is_floating(x: Any) -> bool:
    return x.dtype.kind in FLOATING_KINDS if isinstance(x.dtype, np.dtype) else bool(x.dtype.is_floating_point)


def gradients(body: Body, tensors: Sequence[Any], numbers: Sequence[Any], needs: Sequence[bool], g: Any) -> tuple[Any, ...]:
    """The cotangents of those tensors that are in need, where body(*tensors, *numbers) has the cotangent `g`: by the rules of the
    primitives that it applies, in reverse order.  Tensors and results are values of one kind: arrays, Tensors or tracers."""
    steps = _Steps(g)
    given = [_Value(steps, x, need) for x, need in zip(tensors, needs, strict=True)]
    beside = [_Value(steps, x, False) if isinstance(x, Abstract) else x for x in numbers]
    found: dict[_Value, Any] = {body(*given, *beside): g}
    for op, inputs, attributes, out in reversed(steps.steps):
        cotangent = found.pop(out, None)
        if cotangent is None:
            continue
        wanted = tuple([type(x) is _Value and x.active for x in inputs])
        values = tuple([x.value if type(x) is _Value else x for x in inputs])
        avals = tuple([x.aval if type(x) is _Value else None for x in inputs])
        assert op.vjp_rule is not None, op.name
        answer = op.vjp_rule(VjpContext(values, (out.value,), wanted, avals, attributes), cotangent)
        for x, need, d in zip(inputs, wanted, answer if isinstance(answer, tuple) else (answer,), strict=True):
            if need and d is not None:
                d = sum_to(d, x.shape)
                found[x] = found[x] + d if x in found else d
    return tuple(
        [
            found[x] if x in found else full.beside(g, 0.0, shape=x.shape, dtype=x.dtype)
            for x, need in zip(given, needs, strict=True)
            if need
        ]
    )


class _Evaluated(_Steps):
    """Applies primitives to arrays, and remembers which they were."""

    def bind(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        out = _Value(self, self.applied(op, operands, attributes), False)
        self.steps.append((op, operands, attributes, out))
        return out


_UNKNOWN: Any = object()
_LEAST = 2048  # elements: of fewer, NumPy is as fast
_rules: dict[Any, kernels.Fused | None] = {}


def pulled_back(
    op: Op, needs: tuple[bool, ...], inputs: tuple[Any, ...], outputs: tuple[Any, ...], g: Any
) -> tuple[Any, ...] | None:
    """What the vjp rule of an elementwise primitive without attributes gives for an array `g`, by one kernel, whose bits are those of the
    rule: where all values that the rule reads have the dtype and the shape of `g`, and it consists of several exact primitives.  None
    where the rule itself is to be asked."""
    if g.size < _LEAST:
        return None
    values = (*inputs, *outputs)
    kinds = tuple(map(type, values))
    key = op, needs, kinds
    form = _rules.get(key, _UNKNOWN)
    if form is None or type(g) is not np.ndarray:
        return None
    saved = [x for x in values if type(x) is np.ndarray]
    for x in saved:
        if x.dtype is not g.dtype or x.shape != g.shape:
            return None
    if form is _UNKNOWN:
        form = _rules[key] = _form_of_rule(op, needs, kinds, inputs, outputs, g)
        if form is None:
            return None
    numbers = [x for x in inputs if type(x) is float or type(x) is int]
    found = kernels.run_fused(form, (g, *saved), numbers, 2.0 + 0.0005 * g.size)
    if found is None:
        return None
    each = iter(found)
    return tuple([next(each) if need else None for need in needs])


def _form_of_rule(
    op: Op, needs: tuple[bool, ...], kinds: tuple[type, ...], inputs: tuple[Any, ...], outputs: tuple[Any, ...], g: Any
) -> kernels.Fused | None:
    """The form of a rule; None of one for which NumPy is as good, or may give other bits."""
    rule = op.vjp_rule
    assert rule is not None
    if any(kind not in (np.ndarray, float, int, type(None)) for kind in kinds):
        return None
    aval, count = Aval(g.shape, from_numpy_dtype(g.dtype)), len(inputs)

    def asked(g: Any, values: Sequence[Any]) -> tuple[Any, ...]:
        context = VjpContext(tuple(values[:count]), tuple(values[count:]), needs, (Aval(g.shape, g.dtype),) * count, {})
        answer = rule(context, g)
        return answer if isinstance(answer, tuple) else (answer,)

    def function(g: Any, *given: Any) -> tuple[Any, ...]:
        tensors, numbers = iter(given[:arrays]), iter(given[arrays:])
        values = [None if kind is type(None) else next(tensors if kind is np.ndarray else numbers) for kind in kinds]
        return tuple([d for d, need in zip(asked(g, values), needs, strict=True) if need])

    arrays = kinds.count(np.ndarray)
    steps = _Evaluated(g)
    values = [_Value(steps, x, False) if type(x) is np.ndarray else x for x in (*inputs, *outputs)]
    answer = asked(_Value(steps, g, False), values)
    results = [d for d, need in zip(answer, needs, strict=True) if need]
    exact = all(step.is_choice or not step.traits.isdisjoint(("exact", "uniform")) for step, *_ in steps.steps)
    if not exact or len(steps.steps) < 2 or any(type(d) is not _Value or d.aval != aval for d in results):
        return None
    numbers = len(kinds) - arrays - kinds.count(type(None))
    return kernels.Fused(f"{op.name} gradient", function, len(results), arrays + 1, numbers)
