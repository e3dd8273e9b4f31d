"""nn.utils.fusion: a layer and the batch normalisation after it as one layer, as torch fuses them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import nn
from tracejit.nn.utils import fusion


def _layers(library: Any, kind: str, bias: bool, affine: bool) -> tuple[Any, Any, Any]:
    torch_nn = library.nn
    made = {
        "conv": lambda: (torch_nn.Conv2d(3, 4, 2, bias=bias), torch_nn.BatchNorm2d(4, affine=affine), (2, 3, 5, 5)),
        "transposed": lambda: (torch_nn.ConvTranspose1d(3, 4, 2, bias=bias), torch_nn.BatchNorm1d(4, affine=affine), (2, 3, 5)),
        "linear": lambda: (torch_nn.Linear(3, 4, bias=bias), torch_nn.BatchNorm1d(4, affine=affine), (5, 3)),
    }
    layer, norm, shape = made[kind]()
    rng = np.random.default_rng(0)
    for tensor in [*layer.parameters(), *norm.parameters(), norm.running_mean, norm.running_var]:
        with library.no_grad():
            tensor.copy_(library.tensor(rng.uniform(0.5, 1.5, tuple(tensor.shape)).astype(np.float32)))
    return layer.eval(), norm.eval(), library.tensor(rng.normal(size=shape).astype(np.float32))


def _fused(library: Any, kind: str, layer: Any, norm: Any) -> Any:
    module = fusion if library is tracejit else pytest.importorskip("torch.nn.utils.fusion")
    return (
        module.fuse_linear_bn_eval(layer, norm)
        if kind == "linear"
        else module.fuse_conv_bn_eval(layer, norm, kind == "transposed")
    )


@pytest.mark.parametrize("kind", ["conv", "transposed", "linear"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_the_fused_layer_computes_what_the_two_compute(kind: str, bias: bool, affine: bool) -> None:
    layer, norm, x = _layers(tracejit, kind, bias, affine)
    before = copy.deepcopy(layer.state_dict())
    fused = _fused(tracejit, kind, layer, norm)
    assert type(fused) is type(layer) and fused is not layer
    np.testing.assert_allclose(fused(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(value.numpy(), layer.state_dict()[name].numpy()) for name, value in before.items())
    torch = pytest.importorskip("torch")
    if kind == "linear" and not affine:
        return  # torch wants a weight there
    theirs = _fused(torch, kind, *_layers(torch, kind, bias, affine)[:2])
    for a, b in zip((fused.weight, fused.bias), (theirs.weight, theirs.bias), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-6)
        assert a.requires_grad == b.requires_grad


def test_what_cannot_be_fused_is_an_error() -> None:
    with pytest.raises(AssertionError, match="only for eval"):
        fusion.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1).eval())
    with pytest.raises(AssertionError, match="running_mean"):
        fusion.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1).eval(), nn.BatchNorm2d(1, track_running_stats=False).eval())
    with pytest.raises(AssertionError, match=r"out_features=3 and bn\.num_features=2"):
        fusion.fuse_linear_bn_eval(nn.Linear(1, 3).eval(), nn.BatchNorm1d(2).eval())
