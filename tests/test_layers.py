"""Layers: their parameters, and their results beside PyTorch's with the same parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import assert_close, classes, numbers

import tracejit
from tracejit import nn

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = [
    ("Linear", (3, 4), {}, (5, 3)), ("Linear", (3, 4), {"bias": False}, (2, 5, 3)), ("LayerNorm", (4,), {}, (5, 4)),
    ("LayerNorm", ((3, 4),), {"bias": False}, (5, 3, 4)), ("LayerNorm", (4,), {"elementwise_affine": False}, (5, 4)),
    ("RMSNorm", (4,), {}, (5, 4)), ("GroupNorm", (2, 4), {}, (3, 4, 5)),
    ("BatchNorm1d", (4,), {}, (5, 4)), ("BatchNorm1d", (4,), {}, (5, 4, 3)),
    ("BatchNorm2d", (2,), {"momentum": 0.3}, (3, 2, 4, 5)), ("BatchNorm1d", (4,), {"momentum": None}, (5, 4)),
    ("SyncBatchNorm", (4,), {}, (5, 4, 3)), ("SyncBatchNorm", (2,), {"momentum": None, "affine": False}, (3, 2, 4, 5)),
    ("BatchNorm1d", (4,), {"track_running_stats": False}, (5, 4)), ("BatchNorm1d", (4,), {"affine": False}, (5, 4)),
    ("PReLU", (4,), {}, (5, 4)), ("GELU", (), {"approximate": "tanh"}, (5, 4)), ("Softmax", (), {"dim": 1}, (5, 4)),
    ("LogSoftmax", (), {"dim": 1}, (5, 4)), ("GLU", (), {}, (5, 4)), ("Flatten", (), {}, (5, 4, 3)), ("Unflatten", (1, (2, 2)), {}, (5, 4)),
    ("Identity", (), {}, (5, 4)), ("ReLU", (), {}, (5, 4)), ("Tanh", (), {}, (5, 4)), ("Sigmoid", (), {}, (5, 4)), ("SiLU", (), {}, (5, 4)),
    ("Softplus", (), {"beta": 2.0}, (5, 4)), ("ELU", (), {"alpha": 0.5}, (5, 4)), ("Hardtanh", (), {}, (5, 4)), ("Mish", (), {}, (5, 4)),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, (2, 4, 7)), ("Conv2d", (2, 4, (3, 2)), {"dilation": 2, "groups": 2}, (2, 2, 8, 7)),
    ("Conv2d", (2, 3, 3), {"padding": "same", "bias": False}, (2, 2, 5, 4)), ("Conv3d", (1, 2, 2), {}, (1, 1, 3, 4, 3)),
    ("ConvTranspose1d", (3, 2, 3), {"stride": 2}, (2, 3, 4)),
    ("ConvTranspose2d", (3, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1}, (2, 3, 4, 3)),
    ("MaxPool1d", (2,), {}, (2, 3, 7)), ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, (2, 3, 6, 5)),
    ("AvgPool1d", (2,), {}, (2, 3, 7)), ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, (2, 3, 6, 5)),
    ("AdaptiveAvgPool1d", (3,), {}, (2, 3, 7)), ("AdaptiveAvgPool2d", ((2, 3),), {}, (2, 3, 7, 5)),
    ("AdaptiveMaxPool2d", ((2, 3),), {}, (2, 3, 7, 5)), ("PixelShuffle", (2,), {}, (2, 8, 3, 2)),
    ("InstanceNorm1d", (4,), {}, (2, 4, 5)), ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (2, 3, 4, 3)),
    ("InstanceNorm2d", (3,), {"affine": True}, (3, 4, 3)), ("InstanceNorm3d", (2,), {"track_running_stats": True}, (2, 2, 3, 2, 2)),
    ("LocalResponseNorm", (3,), {}, (2, 5, 4)), ("ConvTranspose3d", (2, 2, 2), {"stride": 2}, (1, 2, 2, 3, 2)),
    ("Conv1d", (4, 2, 3), {"padding": 2, "padding_mode": "circular"}, (2, 4, 7)),
    ("Conv2d", (2, 3, (3, 2)), {"padding": "same", "padding_mode": "reflect"}, (2, 2, 5, 4)),
    ("Conv2d", (2, 3, 3), {"padding": (1, 2), "padding_mode": "replicate"}, (2, 2, 5, 4)),
    ("Conv3d", (1, 2, 2), {"padding": 1, "padding_mode": "circular"}, (1, 1, 3, 4, 3)),
    ("MaxPool3d", (2,), {}, (1, 2, 4, 5, 4)), ("AvgPool3d", (2,), {"padding": 1}, (1, 2, 4, 5, 4)),
    ("AvgPool2d", (2,), {"divisor_override": 3}, (1, 2, 4, 5)), ("LPPool1d", (2, 3), {}, (2, 3, 7)),
    ("LPPool2d", (2, 2), {"stride": 1}, (2, 3, 4, 5)), ("LPPool3d", (2, 2), {"ceil_mode": True}, (2, 1, 4, 3, 2)),
    ("AdaptiveAvgPool3d", (2,), {}, (1, 2, 4, 5, 3)), ("AdaptiveMaxPool1d", (2,), {}, (1, 2, 5)),
    ("AdaptiveMaxPool3d", ((2, 1, 2),), {}, (1, 2, 4, 5, 3)), ("ReflectionPad1d", (2,), {}, (2, 3, 4)),
    ("ReflectionPad2d", ((1, 2, 0, 1),), {}, (2, 3, 4, 4)), ("ReflectionPad3d", (1,), {}, (1, 2, 3, 3, 2)),
    ("ReplicationPad1d", (2,), {}, (3, 4)), ("ReplicationPad2d", (2,), {}, (2, 3, 4, 4)), ("ReplicationPad3d", (1,), {}, (1, 2, 3, 3, 2)),
    ("CircularPad1d", (2,), {}, (2, 3, 4)), ("CircularPad2d", (2,), {}, (2, 3, 4, 4)), ("CircularPad3d", (1,), {}, (1, 2, 3, 3, 2)),
    ("ZeroPad1d", (2,), {}, (2, 3, 4)), ("ZeroPad2d", ((1, -1, 2, 0),), {}, (2, 3, 4, 4)), ("ZeroPad3d", (1,), {}, (1, 2, 3, 3, 2)),
    ("ConstantPad1d", (2, 3.5), {}, (2, 3, 4)), ("ConstantPad2d", (2, 0.5), {}, (3, 4, 4)), ("ConstantPad3d", (1, 2), {}, (2, 3, 3, 2)),
    ("PixelUnshuffle", (2,), {}, (2, 3, 4, 6)), ("ChannelShuffle", (2,), {}, (2, 6, 3, 2)), ("Unfold", (2,), {"padding": 1}, (2, 3, 4, 5)),
    ("Fold", ((4, 5), (2, 3)), {}, (2, 12, 9)), ("Fold", (5, 2), {"stride": 2, "padding": 1, "dilation": 2}, (1, 8, 9)),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, (1, 2, 3, 2)), ("UpsamplingBilinear2d", ((4, 5),), {}, (1, 2, 3, 2)),
    ("Hardshrink", (), {}, (5, 4)), ("Softshrink", (0.3,), {}, (5, 4)), ("Tanhshrink", (), {}, (5, 4)), ("Softmax2d", (), {}, (2, 3, 4, 2)),
    ("Upsample", (), {"scale_factor": 2.0}, (2, 3, 3, 2)), ("Upsample", (), {"size": (5, 7), "mode": "bilinear"}, (2, 3, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "options", "shape"), LAYERS, ids=[f"{layer[0]}-{i}" for i, layer in enumerate(LAYERS)]
)
def test_layers_agree_with_torch(name: str, arguments: tuple[Any, ...], options: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, name)(*arguments, **options).double()
    ours = getattr(nn, name)(*arguments, **options).double()
    state = theirs.state_dict()
    assert list(state) == list(ours.state_dict())
    for i, value in enumerate(v for v in state.values() if v.ndim):
        value.copy_(torch.tensor(numbers(*value.shape, seed=i, low=0.5, high=1.5)))
    ours.load_state_dict({k: tracejit.tensor(v.numpy()) for k, v in state.items()})
    assert repr(ours) == repr(theirs)
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        x = numbers(*shape, seed=5)
        mine, other = tracejit.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        out, expected = ours(mine), theirs(other)
        assert_close(out, expected)
        weights = numbers(*expected.shape, seed=6)
        out.backward(tracejit.tensor(weights))
        expected.backward(torch.tensor(weights))
        assert_close(mine.grad, other.grad, what="gradient of the input")
        for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert_close(p.grad, q.grad, what=f"gradient of {key}")
        for (key, b), c in zip(ours.named_buffers(), theirs.buffers(), strict=True):
            assert_close(b, c, what=f"buffer {key}")


def test_embedding_looks_up_rows_and_keeps_its_padding_zero() -> None:
    tracejit.manual_seed(0)
    table = nn.Embedding(6, 3, padding_idx=-1)
    assert table.padding_idx == 5
    assert table.weight[5].tolist() == [0.0] * 3
    index = tracejit.tensor(classes(2, 4, count=5))
    out = table(index)
    assert out.shape == (2, 4, 3)
    assert (out[1, 2] == table.weight[index[1, 2].item()]).all()
    table(tracejit.tensor([5, 1])).sum().backward()
    assert not table.weight.grad[5].numpy().any()
    assert table.weight.grad[1].tolist() == [1.0] * 3
    with pytest.raises(AssertionError, match="padding_idx must be within"):
        nn.Embedding(3, 2, padding_idx=3)


def test_linear_starts_within_its_bounds_and_reproducibly() -> None:
    tracejit.manual_seed(3)
    first = nn.Linear(16, 200)
    tracejit.manual_seed(3)
    second = nn.Linear(16, 200)
    for p, q in zip(first.parameters(), second.parameters(), strict=True):
        assert (p == q).all()
        assert np.abs(p.detach().numpy()).max() <= 0.25
        assert np.abs(p.detach().numpy()).max() > 0.2
    assert first.weight.dtype is tracejit.float32
    assert nn.Linear(2, 3, bias=False).bias is None
    assert nn.Linear(2, 3, dtype=tracejit.float64).weight.dtype is tracejit.float64


def test_dropout_follows_the_mode() -> None:
    tracejit.manual_seed(0)
    layer = nn.Dropout(0.5)
    x = tracejit.ones(1000)
    assert 300 < (layer(x).numpy() == 0).sum() < 700
    assert layer.eval()(x) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(-0.1)


def test_batch_norm_checks_the_rank() -> None:
    with pytest.raises(ValueError, match=r"expected 2D or 3D input \(got 4D input\)"):
        nn.BatchNorm1d(2)(tracejit.zeros(1, 2, 3, 4))
    with pytest.raises(ValueError, match="divisible by num_groups"):
        nn.GroupNorm(2, 3)


def test_every_activation_of_torch_that_exists_here_prints_alike() -> None:
    torch = pytest.importorskip("torch")
    for name in nn.activations.__all__:
        arguments = {"Threshold": (0.1, 2.0), "Softmax": (1,), "LogSoftmax": (1,), "Softmin": (1,)}.get(name, ())
        assert repr(getattr(nn, name)(*arguments)) == repr(getattr(torch.nn, name)(*arguments))


def test_a_convolution_is_made_of_one_with_another_weight_and_bias() -> None:
    x = numbers(1, 2, 5, dtype="float32")

    class Scaled(tracejit.nn.Conv1d):
        def forward(self, input: Any) -> Any:
            return self._conv_forward(input, self.weight * 2.0, None)

    layer = Scaled(2, 3, 3, padding=1, padding_mode="circular")
    plain = tracejit.nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular", bias=False)
    plain.weight.data.copy_(layer.weight.detach() * 2.0)
    np.testing.assert_array_equal(layer(tracejit.tensor(x)).detach().numpy(), plain(tracejit.tensor(x)).detach().numpy())


def test_the_forward_of_a_layer_needs_its_parameters_and_options_alone() -> None:
    class Stand:
        """What functional forms of networks call the forward of a layer with."""

    x = tracejit.tensor(numbers(1, 2, 6, 6, dtype="float32"))
    for layer in (
        tracejit.nn.Conv2d(2, 3, 3, stride=2),
        tracejit.nn.MaxPool2d(2),
        tracejit.nn.AvgPool2d(3, 1),
        tracejit.nn.Linear(6, 2),
    ):
        stand: Any = Stand()
        stand.__dict__.update(layer.__dict__)
        if hasattr(layer, "_conv_forward"):
            stand._conv_forward = type(layer)._conv_forward.__get__(stand)
        assert type(layer).forward(stand, x).tolist() == layer(x).tolist()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bound", [1, 1500, 4000])
def test_a_convolution_is_the_same_however_many_images_are_windowed_at_a_time(
    groups: int, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Any]:
        x, w = (tracejit.tensor(numbers(*shape), requires_grad=True) for shape in ((5, 4, 6, 5), (6, 4 // groups, 3, 2)))
        out = tracejit.nn.functional.conv2d(x, w, padding=(1, 0), dilation=(2, 1), groups=groups)
        (out * tracejit.tensor(numbers(*out.shape, seed=1))).sum().backward()
        return [a.detach().numpy() for a in (out, x.grad, w.grad)]

    whole = run()
    monkeypatch.setattr(tracejit.ops.composites.convolution, "_BLOCK", bound)
    for a, b in zip(run(), whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_batch_norms_are_converted_to_synchronised_ones_with_the_same_parameters() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2, eps=0.1), nn.Sequential(nn.BatchNorm2d(2, affine=False))).eval()
    norm, state = model[1], {name: value.clone() for name, value in model.state_dict().items()}
    x = tracejit.randn(3, 1, 4, 4)
    expected = model(x)
    out = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert out is model and type(model[1]) is type(model[2][0]) is nn.SyncBatchNorm and type(norm) is nn.BatchNorm2d
    assert model[1].weight is norm.weight and model[1].running_var is norm.running_var and not model[1].training
    assert tracejit.equal(model(x), expected) and list(model.state_dict()) == list(state)
    assert isinstance(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2)), nn.SyncBatchNorm)
    with pytest.raises(ValueError, match="at least 2D"):
        nn.SyncBatchNorm(2)(tracejit.ones(2))
    with pytest.raises(RuntimeError, match="no process groups"):
        nn.SyncBatchNorm(2, process_group=object())
