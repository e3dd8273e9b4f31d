"""Tests of the verifier of nests: each invariant has a nest that breaks it alone."""

from __future__ import annotations

import pytest

from tracejit.core import dtypes
from tracejit.loops.expressions import Apply, AxisValue, Load, ScalarParam, SizeValue, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Interleaved, Let, Nest, Reduce, Scalar, Size, Statement, Store
from tracejit.loops.verify import NestError, independent, verify

F32, F64, I32, I64, BOOL = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.bool_
X, OUT, P, STRAY = Buffer("x", F32), Buffer("out", F32), Buffer("p", I64), Buffer("stray", F32)
N, M, S, CODE = Size("n"), Size("m"), Scalar("s", F32), Scalar("code", I64)
ROW, OTHER = Axis("i"), Axis("j")
AT = Index(((ROW, 1),))
E, F = Var("e", F32), Var("f", F32)
x, one, yes = Load(X, AT), builder.const(1.0, F32), builder.const(True, BOOL)
p = Load(P, AT)


def nest(*body: Statement) -> Nest:
    return Nest("kernel", (X, OUT, P), (N,), (S, CODE), body)


def inside(*body: Statement) -> Nest:
    """Statements in a loop over ROW."""
    return nest(For(ROW, N, body))


WELL_FORMED = {
    "everything": nest(
        Reduce(
            OTHER, 4, ((E, "sum", Load(X, Index(((OTHER, 1),)))),), (Exit(builder.lt(Load(X, Index(((OTHER, 1),))), 0.0), CODE),)
        ),
        For(ROW, N, (Let(F, x * ScalarParam(S) + E), Store(OUT, AT, F), Store(OUT, Index((), N, p), F, accumulate=True))),
    ),
    "an axis of two loops, one after the other": nest(For(ROW, N, (Store(OUT, AT, one),)), For(ROW, 3, (Store(X, AT, one),))),
    "a sum that is not rounded": nest(Reduce(ROW, N, ((Var("t", F64), "sum", x),))),
    "a sum that is rounded": nest(Reduce(ROW, N, ((E, "sum", builder.cast(x, F64)),))),
    "a short position": nest(Reduce(ROW, 9, ((Var("t", I32), "argmax", x),))),
    "a table": inside(Interleaved(tuple(Store(OUT, Index(((ROW, 2),), k), x) for k in range(2)))),
    "lanes": nest(For(ROW, N, (Store(OUT, AT, x), Exit(builder.lt(x, 0.0), 1)), vector=True, lanes=8)),
}

ILL_FORMED: dict[str, tuple[Nest, str]] = {
    "a parameter twice": (Nest("kernel", (X, X), (), (), ()), "two parameters are the same"),
    "a buffer read": (inside(Store(OUT, AT, Load(STRAY, AT))), "'stray' is no parameter"),
    "a buffer stored to": (inside(Store(STRAY, AT, one)), "'stray' is no parameter"),
    "a size of a loop": (nest(For(ROW, M, ())), "'m' is no parameter"),
    "a size of a stride": (inside(Store(OUT, Index(((ROW, M),)), one)), "'m' is no parameter"),
    "a size of an offset": (inside(Store(OUT, Index((), M), one)), "'m' is no parameter"),
    "a size as a value": (inside(Store(P, AT, SizeValue(M))), "'m' is no parameter"),
    "a number": (inside(Store(OUT, AT, ScalarParam(Scalar("t", F32)))), "'t' is no parameter"),
    "an exit's number": (nest(Exit(yes, Scalar("t", I64))), "'t' is no parameter"),
    "an exit's code": (nest(Exit(yes, 0)), "0 means that there was none"),
    "an exit's condition": (inside(Exit(x, 1)), "an exit is on a float32"),
    "a negative extent": (nest(For(ROW, -1, ())), "extent of axis 'i' is -1"),
    "an axis after its loop": (nest(For(ROW, N, ()), Store(OUT, AT, one)), "axis 'i' is used outside its loop"),
    "an axis as a value": (nest(Store(P, Index(), AxisValue(ROW))), "axis 'i' is used outside its loop"),
    "an axis in itself": (inside(For(ROW, N, ())), "inside one over the same axis"),
    "a variable before its name": (inside(Store(OUT, AT, E), Let(E, x)), "'e' is used before"),
    "a variable after its loop": (nest(For(ROW, N, (Let(E, x),)), Store(OUT, Index(), E)), "'e' is used before"),
    "a result in its reduction": (nest(Reduce(ROW, N, ((E, "sum", x),), (Store(OUT, AT, E),))), "'e' is used before"),
    "a variable named twice": (inside(Let(E, x), Let(E, one)), "'e' is named twice"),
    "a variable named in two loops": (nest(For(ROW, N, (Let(E, x),)), For(OTHER, N, (Let(E, one),))), "'e' is named twice"),
    "a variable's dtype": (inside(Let(Var("d", F64), x)), "'d' is float64, its value float32"),
    "a stored dtype": (inside(Store(P, AT, x)), "a float32 is stored to the int64 buffer 'p'"),
    "a position's dtype": (inside(Store(OUT, Index((), 0, x), one)), "a position in 'out' is float32"),
    "operands": (inside(Store(OUT, AT, Apply("add", (x, p), F32))), "do not agree"),
    "a result": (inside(Store(P, AT, Apply("add", (x, x), I64))), "do not agree"),
    "a comparison": (inside(Store(OUT, AT, Apply("lt", (x, x), F32))), "do not agree"),
    "a choice": (inside(Store(OUT, AT, Apply("select", (x, x, x), F32))), "is no truth value"),
    "a dynamic position's operands": (inside(Store(OUT, AT, Load(X, Index((), 0, Apply("add", (p, x), I64))))), "do not agree"),
    "a combination": (nest(Reduce(ROW, N, ((E, "mean", x),))), "'mean' is no combination"),
    "a combination's result": (nest(Reduce(ROW, N, ((Var("t", I64), "sum", x),))), "sum of float32 is named 't', a int64"),
    "an extreme's dtype": (nest(Reduce(ROW, N, ((Var("t", F64), "max", x),))), "max of float32 is named 't'"),
    "an extreme's position": (nest(Reduce(ROW, N, ((E, "argmax", x),))), "argmax of float32 is named 'e'"),
    "any of numbers": (nest(Reduce(ROW, N, ((E, "any", x),))), "it combines truth values"),
    "half a table": (inside(Interleaved((Store(OUT, Index(((ROW, 2),)), x),))), "do not fill a table"),
    "a table in the wrong order": (
        inside(Interleaved(tuple(Store(OUT, Index(((ROW, 2),), k), x) for k in (1, 0)))),
        "do not fill",
    ),
    "a table outside of loops": (nest(Interleaved((Store(OUT, Index(), one),))), "do not fill a table"),
    "a table of itself": (
        inside(Interleaved(tuple(Store(X, Index(((ROW, 2),), k), Load(X, Index(((ROW, 2),), 1 - k))) for k in (0, 1)))),
        "do not fill a table",
    ),
    "lanes that store to one position": (
        nest(For(ROW, N, (Store(OUT, Index(), x),), vector=True, lanes=4)),
        "are not independent",
    ),
    "lanes that add up": (nest(For(ROW, N, (Store(OUT, Index(((ROW, 1),), 0, p), x, True),), lanes=4)), "are not independent"),
    "lanes around a loop": (nest(For(ROW, N, (For(OTHER, N, (Store(OUT, AT, x),)),), lanes=4)), "are not independent"),
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_well_formed_nest_is_returned(name: str) -> None:
    assert verify(WELL_FORMED[name]) is WELL_FORMED[name]


@pytest.mark.parametrize("name", ILL_FORMED)
def test_an_ill_formed_nest_is_refused_by_name(name: str) -> None:
    wrong, message = ILL_FORMED[name]
    with pytest.raises(NestError, match="nest kernel: ") as caught:
        verify(wrong)
    assert message in str(caught.value)


def test_what_lanes_ask_is_what_tells_whether_iterations_are_independent() -> None:
    assert independent(For(ROW, N, (Let(E, x), Store(OUT, Index(((ROW, 3),)), E), Store(X, AT, E, accumulate=True))))
    assert not independent(For(ROW, N, (Store(OUT, Index(((OTHER, 1),)), x),)))
