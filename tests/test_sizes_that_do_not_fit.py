"""A path that stands for other sizes than its own is not taken where sizes do not fit together: the call raises what eager mode raises.

Each shape rule asks which sizes are equal, and so a symbolic recording notes it; a rule that does not ask leads to kernels that read and
write outside of their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override
from tracejit.core.aval import Aval
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.op import REGISTRY, Kind
from tracejit.core.symbolic import ShapeEnv
from tracejit.nn import functional as F

BY_PASSES = ("sum_at",)  # made of sizes that are known to fit


def numbers(*shape: int) -> T.Tensor:
    return T.tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def indices(*shape: int) -> T.Tensor:
    return T.tensor(np.random.default_rng(1).integers(0, 2, shape))


def rows_set(a: T.Tensor, b: T.Tensor) -> T.Tensor:
    a = a.clone()
    a[:-1] = b
    return a


def rows_put(a: T.Tensor, i: T.Tensor, b: T.Tensor) -> T.Tensor:
    a = a.clone()
    a[i] = b
    return a


def added(a: T.Tensor, b: T.Tensor) -> T.Tensor:
    a = a.clone()
    a += b
    return a


def gradient(a: T.Tensor, b: T.Tensor) -> T.Tensor:
    a = a.clone().requires_grad_()
    return T.autograd.grad((a * b).tanh().sum(), [a])[0]


Program = tuple[Callable[..., Any], Callable[[int, int, int], tuple[T.Tensor, ...]]]
PROGRAMS: dict[str, Program] = {
    "addmm": (T.addmm, lambda n, m, k: (numbers(n, m), numbers(n, k), numbers(k, m))),
    "matmul": (T.matmul, lambda n, m, k: (numbers(n, k), numbers(k, m))),
    "bmm": (T.bmm, lambda n, m, k: (numbers(n, m, k), numbers(n, k, m))),
    "linear": (F.linear, lambda n, m, k: (numbers(n, k), numbers(m, k), numbers(m))),
    "mv": (T.mv, lambda n, m, k: (numbers(n, k), numbers(k))),
    "dot": (T.dot, lambda n, m, k: (numbers(n), numbers(n))),
    "cross_entropy": (F.cross_entropy, lambda n, m, k: (numbers(n, m), indices(n))),
    "weighted cross_entropy": (F.cross_entropy, lambda n, m, k: (numbers(n, m), indices(n), numbers(m).abs())),
    "nll_loss": (F.nll_loss, lambda n, m, k: (numbers(n, m, k), indices(n, k))),
    "mse_loss": (F.mse_loss, lambda n, m, k: (numbers(n, m), numbers(n, m))),
    "conv1d": (F.conv1d, lambda n, m, k: (numbers(n, m, 9 + k), numbers(k, m, 3), numbers(k))),
    "conv_transpose1d": (F.conv_transpose1d, lambda n, m, k: (numbers(n, m, 9 + k), numbers(m, k, 3))),
    "batch_norm": (F.batch_norm, lambda n, m, k: (numbers(n, m, k), numbers(m), numbers(m).abs())),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        lambda n, m, k: (numbers(n, m), numbers(m), numbers(m)),
    ),
    "attention": (F.scaled_dot_product_attention, lambda n, m, k: (numbers(2, n, 8), numbers(2, m, 8), numbers(2, m, 8))),
    "assignment to a slice": (rows_set, lambda n, m, k: (numbers(n, m), numbers(n - 1, m))),
    "assignment at indices": (rows_put, lambda n, m, k: (numbers(n, m), indices(k), numbers(k, m))),
    "in-place addition": (added, lambda n, m, k: (numbers(n, m), numbers(n, m))),
    "copy_": (lambda a, b: a.clone().copy_(b), lambda n, m, k: (numbers(n, m), numbers(m))),
    "add": (T.add, lambda n, m, k: (numbers(n, m), numbers(m))),
    "where": (lambda c, a, b: T.where(c > 0, a, b), lambda n, m, k: (numbers(n, m), numbers(n, m), numbers(m))),
    "cat": (lambda a, b: T.cat([a, b]), lambda n, m, k: (numbers(n, m), numbers(k, m))),
    "stack": (lambda a, b: T.stack([a, b]), lambda n, m, k: (numbers(n, m), numbers(n, m))),
    "index_add": (lambda a, i, b: a.index_add(0, i, b), lambda n, m, k: (numbers(n, m), indices(k), numbers(k, m))),
    "scatter": (lambda a, i, b: a.scatter(0, i, b), lambda n, m, k: (numbers(n, m), indices(2, m), numbers(2, m))),
    "gather": (lambda a, i: a.gather(0, i), lambda n, m, k: (numbers(n, m), indices(k, m))),
    "einsum": (lambda a, b: T.einsum("ij,jk->ik", a, b), lambda n, m, k: (numbers(n, m), numbers(m, k))),
    "cdist": (T.cdist, lambda n, m, k: (numbers(n, k), numbers(m, k))),
    "reshape like another": (lambda a, b: a.reshape(b.shape), lambda n, m, k: (numbers(n, m), numbers(m, n))),
    "view beside another": (lambda a, b: a.view(-1) + b, lambda n, m, k: (numbers(n, m), numbers(n * m))),
    "expand like another": (lambda a, b: a.expand_as(b), lambda n, m, k: (numbers(m), numbers(n, m))),
    "gradient": (gradient, lambda n, m, k: (numbers(n, m), numbers(n, m))),
    "prelu": (F.prelu, lambda n, m, k: (numbers(n, m), numbers(m))),
}


def outcome(function: Callable[..., Any], arguments: tuple[T.Tensor, ...]) -> Any:
    try:
        return function(*arguments).tolist()
    except (RuntimeError, ValueError, IndexError) as error:
        return type(error), str(error)


def misfits(arguments: tuple[T.Tensor, ...]) -> Iterator[tuple[T.Tensor, ...]]:
    """The arguments with one size changed, for each size."""
    for i, x in enumerate(arguments):
        for dim in range(x.ndim):
            for change in (1, -1):
                shape = list(x.shape)
                shape[dim] += change
                other = indices(*shape) if x.dtype is T.int64 else numbers(*shape)
                yield (*arguments[:i], other, *arguments[i + 1 :])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_with_sizes_that_do_not_fit_does_what_eager_does(name: str) -> None:
    function, arguments = PROGRAMS[name]
    with override(verify=False, backend="interpret"):
        compiled = T.compile(function, wait=True)
        for sizes in ((4, 5, 6), (7, 8, 9), (5, 9, 7)):
            outcome(compiled, arguments(*sizes))
        assert compiled.stats.compiled_calls > 0 and compiled.stats.traces < 3
        for given in misfits(arguments(6, 7, 8)):
            expected, actual = outcome(function, given), outcome(compiled, given)
            if isinstance(expected, tuple) or isinstance(actual, tuple):
                assert actual == expected
            else:
                np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)


def symbolic(operands: Any, attributes: Any, name: str) -> tuple[ShapeEnv, list[int], list[tuple[int, int]]]:
    """What the shape rule of a primitive asks where each size is another variable; the sizes, and whose they are."""
    env, sizes, positions = ShapeEnv(), [], []
    with env:
        given: list[Any] = []
        for i, x in enumerate(operands):
            if not isinstance(x, np.ndarray):
                given.append(x)
                continue
            positions += [(i, d) for d, size in enumerate(x.shape) if size > 1]
            sizes += [size for size in x.shape if size > 1]
            given.append(Aval(tuple([env.size(s) if s > 1 else s for s in x.shape]), from_numpy_dtype(x.dtype)))
        REGISTRY[name].infer(*given, **attributes)
    return env, sizes, positions


PRIMITIVES = [
    name
    for name, op in REGISTRY.items()
    if op.samples is not None and op.kind not in (Kind.COMPOSITE, Kind.OPAQUE) and name not in BY_PASSES
]


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_shape_rule_asks_for_all_sizes_that_its_primitive_needs(name: str) -> None:
    op = REGISTRY[name]
    assert op.samples is not None
    for operands, attributes in op.samples():
        if sum(isinstance(x, np.ndarray) for x in operands) < 2:
            continue
        env, sizes, positions = symbolic(operands, attributes, name)
        for k, (i, d) in enumerate(positions):
            for change in (1, -1):
                others = [*sizes[:k], sizes[k] + change, *sizes[k + 1 :]]
                if others[k] < 2 or env.evaluated(others) is None:
                    continue
                shape = list(operands[i].shape)
                shape[d] = others[k]
                changed = [np.resize(x, shape) if j == i else x for j, x in enumerate(operands)]
                try:
                    with np.errstate(all="ignore"):
                        op.evaluate(*[x.copy() if isinstance(x, np.ndarray) else x for x in changed], **attributes)
                except IndexError:  # of what the operands contain
                    continue
