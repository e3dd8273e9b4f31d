"""Every primitive and every public function, over dtypes, ranks, sizes and layouts: compiled calls give what eager calls give, errors
included, and no call that eager mode serves is refused by the compiler.

`python tests/test_sweep.py FIRST LAST [NAME]` tries the random calls of more seeds."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.random_calls import DTYPES, Call, random_call
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.floating import quiet_runner
from tracejit.core.op import REGISTRY, Effect, Kind, Op, Promotion
from tracejit.nn import functional
from tracejit.ops.public.derive import FUNCTIONS, IN_PLACE, METHODS

SEEDS = range(2)
TOLERANCES = {
    T.float64: 1e-10,
    T.float32: 2e-5,
    T.float16: 1e-3,
    T.bfloat16: 8e-3,
}  # of the last two: a result rounded the other way
OPS = [
    op
    for name, op in sorted(REGISTRY.items())
    if op.samples is not None and op.kind is not Kind.RANDOM and op.effect is not Effect.IN_PLACE
]
NEURAL = {name: f for name in vars(functional) if not name.startswith("_") and callable(f := getattr(functional, name))}
CALLED: dict[str, Callable[..., Any]] = {
    **{
        name: f
        for name, f in FUNCTIONS.items()
        if not name.startswith(("manual_seed", "set_rng", "get_rng", "seed", "initial_seed"))
    },
    **{f"Tensor.{name}": f for name, f in METHODS.items() if name not in FUNCTIONS},
    **{f"Tensor.{name}": f for name, f in IN_PLACE.items()},
    **{f"nn.functional.{name}": f for name, f in NEURAL.items()},
}
quietly = quiet_runner()


def described(x: Any) -> Any:
    """What is compared: values apart, which come last."""
    if isinstance(x, T.Tensor):
        return tuple(x.shape), str(x.dtype), x.numpy().copy()
    if isinstance(x, tuple | list):
        return [described(y) for y in x]
    return x if x is None or isinstance(x, bool | int | float | str) else type(x)


def assert_same(actual: Any, wanted: Any, what: str) -> None:
    if isinstance(wanted, list):
        assert isinstance(actual, list) and len(actual) == len(wanted), what
        for a, w in zip(actual, wanted, strict=True):
            assert_same(a, w, what)
    elif isinstance(wanted, tuple):
        assert actual[:2] == wanted[:2], what
        dtype, found, values = from_numpy_dtype(wanted[2].dtype), actual[2], wanted[2]
        if not dtype.is_floating_point:
            np.testing.assert_array_equal(found, values, err_msg=what)
            return
        if dtype.is_reduced:
            found, values = found.astype(np.float64), values.astype(np.float64)
        finite = np.abs(values[np.isfinite(values)])
        tolerance = TOLERANCES[dtype]
        np.testing.assert_allclose(
            found, values, rtol=tolerance, atol=tolerance * max(finite.max(initial=0.0), 1.0), err_msg=what
        )
    else:
        assert type(actual) is type(wanted) and (actual == wanted or actual != actual), what


def outcome(call: Call, function: Callable[[list[Any]], Any]) -> Any:
    """[result or type of the error, the arguments afterwards]."""
    arguments = call.arguments()
    try:
        result = described(function(arguments))
    except Exception as error:
        return type(error)
    return [result, [described(x) for x in arguments if isinstance(x, T.Tensor)]]


def draws(call: Call) -> bool:
    """Whether the call takes random numbers: then it is not recorded."""
    before = T.get_rng_state().tolist()
    outcome(call, call.on)
    return bool(T.get_rng_state().tolist() != before)


def check(name: str, calls: list[tuple[str, Call]]) -> int:
    """Compare calls, all that eager mode serves in one compiled function, and each of those it refuses in one of its own; returns how many
    were served."""
    served: list[tuple[str, Call, Any]] = []
    for label, call in calls:
        wanted = outcome(call, call.on)
        if isinstance(wanted, type):
            compiled = T.compile(lambda arguments, call=call: call.on(arguments))
            for _ in range(2):
                assert outcome(call, compiled) is wanted, f"{name} {label}: {call}"
        elif not draws(call):
            served.append((label, call, wanted))

    def together(arguments: list[list[Any]]) -> list[Any]:
        return [call.on(given) for (_, call, _), given in zip(served, arguments, strict=True)]

    compiled = T.compile(together)
    for _ in range(3 if served else 0):
        arguments = [call.arguments() for _, call, _ in served]
        results = compiled(arguments)
        for (label, call, wanted), result, given in zip(served, results, arguments, strict=True):
            found = [described(result), [described(x) for x in given if isinstance(x, T.Tensor)]]
            assert_same(found, wanted, f"{name} {label}: {call}")
    assert not any(reason.code == "internal_error" for reason in compiled.reasons), compiled.explain()
    return len(served)


def layouts(array: np.ndarray[Any, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Tensors with the same elements."""
    yield "plain", lambda: T.from_numpy(array.copy())
    if array.ndim:
        wide = np.repeat(array, 2, axis=-1)
        yield "gaps", lambda: T.from_numpy(wide.copy())[..., ::2]
        yield "reversed", lambda: T.from_numpy(array[::-1].copy()[::-1])
    if array.ndim > 1:
        turned = np.ascontiguousarray(array.T)
        yield "turned", lambda: T.from_numpy(turned.copy()).permute(*range(array.ndim)[::-1])


def calls_of(op: Op) -> Iterator[tuple[str, Call]]:
    """The samples in all dtypes, each but the first in every other one, in one layout after the other; the first one with operands of two
    dtypes, too."""
    layout = itertools.cycle(("plain", "gaps", "turned", "reversed", "plain", "turned", "gaps"))
    for k, (operands, attributes) in enumerate(op.samples()):  # type: ignore[misc]
        arrays = [i for i, x in enumerate(operands) if isinstance(x, np.ndarray)]
        free = [i for i in arrays if operands[i].dtype.kind == "f"] or arrays
        pairs = list(zip(DTYPES, DTYPES[1:] + DTYPES[:1], strict=True)) if len(free) > 1 and k == 0 else []
        for dtypes in [(d,) for d in (DTYPES[k % 2 :: 2] if k else DTYPES)] + pairs:
            kind, makers, avals = next(layout), [], []
            for i, x in enumerate(operands):
                if i in arrays:
                    dtype = dtypes[min(free.index(i), len(dtypes) - 1)] if i in free else None
                    array = np.asarray(x if dtype is None else quietly(x.astype, dtype.numpy))
                    found = dict(layouts(array))
                    makers.append(found.get(kind, found["plain"]))
                    avals.append(Aval(array.shape, from_numpy_dtype(array.dtype)))
                else:
                    makers.append(lambda x=x: x)
                    avals.append(x if x is None else ScalarAval(type(x)))
            if not is_refused(op, avals, attributes):
                label = f"sample {k} of {', '.join(d.name for d in dtypes)}, {kind}"
                yield label, Call(lambda *xs, a=attributes: op(*xs, **a), tuple(makers), ())


def is_refused(op: Op, avals: list[Any], attributes: dict[str, Any]) -> bool:
    """Whether operands are none that the primitive is for: public functions must not hand it such."""
    try:
        op.infer_tuple(avals, attributes)
    except RuntimeError:
        return op.promotion is Promotion.NONE
    return False


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_primitive_gives_the_same_compiled_for_all_dtypes_and_layouts(op: Op) -> None:
    assert check(op.name, list(calls_of(op)))


@pytest.mark.parametrize("name", CALLED)
def test_a_function_called_at_random_gives_the_same_compiled(name: str) -> None:
    check(name, [(f"seed {seed}", random_call(name, CALLED[name], seed)) for seed in SEEDS])


def test_random_calls_are_served_more_often_than_not() -> None:
    served = sum(
        not isinstance(outcome(call, call.on), type)
        for name, function in CALLED.items()
        for call in [random_call(name, function, 0)]
    )
    assert served > len(CALLED) // 2


if __name__ == "__main__":
    first, last, *names = sys.argv[1:]
    for name, function in CALLED.items():
        if not names or any(part in name for part in names):
            for seed in range(int(first), int(last)):
                try:
                    check(name, [(f"seed {seed}", random_call(name, function, seed))])
                except Exception as error:
                    print(f"{name} seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
