"""State dicts go both ways between PyTorch and here: same keys, same shapes, and models that then compute the same, gradients too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T

torch = pytest.importorskip("torch")

Maker = Callable[[Any], Any]
MODELS: dict[str, tuple[Maker, Callable[[], tuple[Any, ...]]]] = {}


def model(*inputs: Any) -> Callable[[Maker], Maker]:
    """Register what makes a model of the modules of `nn`; its inputs are arrays, or shapes of float32 arrays."""

    def register(make: Maker) -> Maker:
        def arrays() -> tuple[Any, ...]:
            dice = np.random.default_rng(3)
            return tuple(dice.standard_normal(x).astype(np.float32) if isinstance(x, tuple) else x for x in inputs)

        MODELS[make.__name__] = make, arrays
        return make

    return register


TOKENS = np.arange(12).reshape(3, 4) % 7


@model((5, 4))
def perceptron(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 3), nn.LogSoftmax(-1))


@model((2, 1, 12, 12))
def convolutions(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5),
    )  # fmt: skip


@model((2, 4, 6, 6))
def residual_block(nn: Any) -> Any:
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.downsample = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4))

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            return (y + self.downsample(x)).relu()

    return nn.Sequential(Block(), Block())


@model((2, 6))
def autoencoder(nn: Any) -> Any:
    class Autoencoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleList([nn.Linear(6, 4), nn.Linear(4, 2)])
            self.decoder = nn.ModuleDict({"first": nn.Linear(2, 4), "last": nn.Linear(4, 6)})
            self.act = nn.PReLU()

        def forward(self, x: Any) -> Any:
            for layer in self.encoder:
                x = self.act(layer(x))
            return self.decoder["last"](self.act(self.decoder["first"](x)))

    return Autoencoder()


@model((2, 3, 4, 4))
def generator_of_images(nn: Any) -> Any:
    return nn.Sequential(
        nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1), nn.GroupNorm(2, 4), nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(4, 2, 3), nn.InstanceNorm2d(2, affine=True), nn.Tanh(),
    )  # fmt: skip


@model((2, 3, 20))
def convolutions_over_time(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv1d(3, 4, 3, dilation=2), nn.BatchNorm1d(4), nn.GELU(), nn.AvgPool1d(2), nn.Conv1d(4, 2, 2, groups=2)
    )


class Last:
    """The outputs of a recurrent network for its last step."""

    @staticmethod
    def of(nn: Any, recurrent: Any, size: int) -> Any:
        class Net(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.recurrent, self.head = recurrent, nn.Linear(size, 2)

            def forward(self, x: Any) -> Any:
                return self.head(self.recurrent(x)[0][:, -1])

        return Net()


@model((2, 5, 3))
def lstm(nn: Any) -> Any:
    return Last.of(nn, nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True), 8)


@model((2, 5, 3))
def gru(nn: Any) -> Any:
    return Last.of(nn, nn.GRU(3, 4, num_layers=2, batch_first=True), 4)


@model((2, 5, 3))
def simple_recurrence(nn: Any) -> Any:
    return Last.of(nn, nn.RNN(3, 4, batch_first=True, nonlinearity="relu"), 4)


@model(TOKENS)
def transformer_of_characters(nn: Any) -> Any:
    class Characters(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(7, 8), nn.Parameter(nn.Linear(8, 4, bias=False).weight.detach() * 0.1)
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
            self.head = nn.Linear(8, 7, bias=False)
            self.head.weight = self.tokens.weight  # tied

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(self.tokens(x) + self.places))

    return Characters()


@model((3, 2, 8), (5, 2, 8))
def encoder_and_decoder(nn: Any) -> Any:
    return nn.Transformer(8, 2, 1, 1, 16, dropout=0.0)


@model((4, 2, 6))
def attention(nn: Any) -> Any:
    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.norm = nn.MultiheadAttention(6, 3, kdim=6, vdim=6), nn.LayerNorm(6)

        def forward(self, x: Any) -> Any:
            return self.norm(x + self.attention(x, x, x)[0])

    return Attention()


@model(TOKENS)
def bags_of_words(nn: Any) -> Any:
    return nn.Sequential(nn.EmbeddingBag(7, 5, mode="sum"), nn.Linear(5, 3))


@model((3, 4), (3, 5))
def bilinear_with_buffers(nn: Any) -> Any:
    class Scaled(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.pair = nn.Bilinear(4, 5, 2)
            self.register_buffer("scale", self.pair.bias.detach() * 0 + 2)
            self.register_buffer("scratch", self.pair.bias.detach(), persistent=False)

        def forward(self, x: Any, y: Any) -> Any:
            return self.pair(x, y) * self.scale

    return Scaled()


def computed(net: Any, framework: Any, inputs: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    """Results and gradients."""
    net.zero_grad()
    out = net(*[framework.from_numpy(x.copy()) for x in inputs])
    (out * out).sum().backward()
    return out.detach().numpy(), {name: p.grad.numpy().copy() for name, p in net.named_parameters()}


def agree(ours: Any, theirs: Any, inputs: tuple[Any, ...]) -> None:
    for training in (True, False):
        (mine, gradients), (other, expected) = (
            computed(ours.train(training), T, inputs),
            computed(theirs.train(training), torch, inputs),
        )
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-5)
        assert gradients.keys() == expected.keys()
        for name, g in gradients.items():
            np.testing.assert_allclose(g, expected[name], rtol=2e-3, atol=2e-4, err_msg=name)
    states = ours.state_dict(), theirs.state_dict()  # what training has changed, too
    for name, value in states[0].items():
        np.testing.assert_allclose(value.numpy(), states[1][name].numpy(), rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_a_file_that_torch_has_written_makes_the_same_model(name: str, tmp_path: Path) -> None:
    make, arrays = MODELS[name]
    ours, theirs = make(T.nn), make(torch.nn)
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    state = T.load(tmp_path / "state.pt")
    assert list(state) == list(theirs.state_dict()) == list(ours.state_dict())
    assert not any(ours.load_state_dict(state))
    agree(ours, theirs, arrays())


@pytest.mark.parametrize("name", MODELS)
def test_a_state_from_here_makes_the_same_model_in_torch(name: str, tmp_path: Path) -> None:
    make, arrays = MODELS[name]
    ours, theirs = make(T.nn), make(torch.nn)
    T.save(ours.state_dict(), tmp_path / "state")
    again = T.load(tmp_path / "state")
    theirs.load_state_dict({key: torch.from_numpy(np.array(value.numpy())) for key, value in again.items()})
    agree(ours, theirs, arrays())
