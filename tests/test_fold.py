"""Windows added up at their positions, and the gradients of convolutions that are made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tests.test_traffic import programs_of
from tracejit import functional as F
from tracejit.core.aval import Aval
from tracejit.core.dtypes import float32, int64
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Graph, Node
from tracejit.ops.movement import views
from tracejit.passes.pipeline import optimise
from tracejit.runtime.program import build

generator = np.random.default_rng(31)


def numbers(*shape: int) -> tracejit.Tensor:
    return tracejit.tensor(generator.standard_normal(shape).astype(np.float32)).requires_grad_()


def folded(x: np.ndarray[Any, Any], backend: str, dtype: Any, layout: tuple[int, ...], **attributes: Any) -> np.ndarray[Any, Any]:
    aval = Aval(x.shape, dtype)
    op = REGISTRY["fold"]
    result = op.infer(aval, **attributes)
    graph = Graph((0,), {0: aval, 1: result}, (Node(op, (0,), tuple(sorted(attributes.items())), (1,)),), (1,))
    found = build(graph, {0: layout}, backend=backend).run((x,), ())
    assert isinstance(found, tuple)
    return found[0]


CASES = [
    ((2, 3, 7, 3), {"dims": (2,), "lengths": (9,), "steps": (1,), "dilations": (1,)}),
    ((2, 3, 7, 4), {"dims": (2,), "lengths": (23,), "steps": (2,), "dilations": (3,)}),
    ((5, 6, 2), {"dims": (0,), "lengths": (12,), "steps": (2,), "dilations": (1,)}),
    ((2, 5, 19, 3, 2), {"dims": (1, 2), "lengths": (7, 38), "steps": (1, 2), "dilations": (1, 1)}),
    ((1, 1, 1, 3, 5), {"dims": (1, 2), "lengths": (5, 9), "steps": (3, 1), "dilations": (2, 2)}),
    ((2, 0, 3), {"dims": (1,), "lengths": (2,), "steps": (1,), "dilations": (1,)}),
    ((33, 17), {"dims": (0,), "lengths": (49,), "steps": (1,), "dilations": (1,)}),
]


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("dtype", [float32, int64], ids=lambda d: d.name)
@pytest.mark.parametrize(("shape", "attributes"), CASES)
def test_windows_are_added_up_as_by_numpy_bit_for_bit(shape: Any, attributes: Any, dtype: Any, backend: str) -> None:
    x = (generator.standard_normal(shape) * 100).astype(dtype.numpy)
    turned = np.asfortranarray(x)
    expected = REGISTRY["fold"].evaluate(x, **attributes)
    for source in (x, turned):
        layout = tuple(s // x.itemsize for s in source.strides)
        np.testing.assert_array_equal(folded(source, backend, dtype, layout, **attributes), expected)


def test_windows_over_two_dimensions_are_added_up_at_once() -> None:
    x = numbers(2, 5, 6, 3, 2).detach()
    one = views.fold(x, dims=(2,), lengths=(7,), steps=(1,), dilations=(1,))
    two = views.fold(one, dims=(1,), lengths=(7,), steps=(1,), dilations=(1,))
    both = views.fold(x, dims=(1, 2), lengths=(7, 7), steps=(1, 1), dilations=(1, 1))
    np.testing.assert_allclose(both.numpy(), two.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(3, 1, 0, 1), (5, 2, 2, 1), (3, 3, 1, 2), (2, 4, 0, 1), (1, 1, 0, 1)]
)
def test_gradients_of_convolutions_are_those_of_eager_mode(
    kernel: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    def gradients(x: Any, v: Any, w: Any, u: Any) -> Any:
        one = F.conv1d(x, w, None, stride, padding, dilation, groups)
        two = F.conv2d(v, u, None, stride, padding, dilation, groups)
        back = F.conv_transpose2d(two, u, None, stride, padding, 0, groups, dilation)
        return tracejit.autograd.grad(one.square().sum() + two.sin().sum() + back.square().sum(), (x, v, w, u))

    x, w = numbers(3, 4, 29), numbers(6, 4 // groups, kernel)
    v, u = numbers(2, 4, 13, 17), numbers(6, 4 // groups, kernel, kernel + 1)
    compiled = tracejit.compile(gradients)
    compiled(x, v, w, u)
    found = compiled(x, v, w, u)
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    for a, b in zip(found, gradients(x, v, w, u), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=2e-3)


def test_the_gradient_of_a_convolution_has_no_step_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = numbers(4, 1, 3, 3)
    for program in programs_of(lambda x: F.conv2d(x.reshape((1, 1, *x.shape)), weight, padding=1), monkeypatch):
        assert "host step" not in program.describe()


def test_a_chain_of_folds_becomes_one() -> None:
    op, avals = REGISTRY["fold"], {0: Aval((2, 5, 6, 3, 2), float32)}
    nodes = []
    for k, dim in enumerate((2, 1)):
        attributes = {"dims": (dim,), "lengths": (7,), "steps": (1,), "dilations": (1,)}
        avals[k + 1] = op.infer(avals[k], **attributes)
        nodes.append(Node(op, (k,), tuple(sorted(attributes.items())), (k + 1,)))
    (node,) = optimise(Graph((0,), avals, tuple(nodes), (2,))).nodes
    assert node.operands == (0,)
    assert node.attrs == {"dims": (1, 2), "lengths": (7, 7), "steps": (1, 1), "dilations": (1, 1)}


def test_windows_that_reach_past_the_end_are_refused() -> None:
    with pytest.raises(ValueError, match=r"3 windows of 3 elements reach over 7 positions .* its length, 6"):
        views.fold(tracejit.ones(3, 3), dims=(0,), lengths=(6,), steps=(2,), dilations=(1,))
