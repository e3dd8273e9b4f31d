"""Networks and their training steps: forward, loss, backward and a step of the optimizer in one function.

The source of each network is written against PyTorch's interface and runs on any module that has it.  Weights come from a seed and the
shapes of the parameters, not from the framework, so all implementations start from the same numbers.  Must not know how steps are timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.workload import Side, Transform

__all__ = [
    "ADAM_RATE",
    "NETWORKS",
    "SGD_MOMENTUM",
    "SGD_RATE",
    "Network",
    "Sizes",
    "checked",
    "data_of",
    "select",
    "start_of",
    "step_side",
]

SGD_RATE: Final = 1e-3
SGD_MOMENTUM: Final = 0.9
ADAM_RATE: Final = 1e-4

Sizes = dict[str, int]


@dataclass(frozen=True)
class Network:
    """One row.

    build: the network, a module, of a framework and sizes.  sizes: those of the benchmark; tiny: those of its tests.  data: the
    inputs (the batch, and two sets of labels that alternate, so that the loss does not go to zero) of a generator and sizes.
    tolerance: greatest relative distance of losses and gradients from eager's over the checked steps.  It is wider where many values
    pass relu: one that rounding puts on the other side of zero changes a gradient by far more than rounding."""

    name: str
    title: str
    inside: str
    build: Callable[[Any, Sizes], Any]
    data: Callable[[np.random.Generator, Sizes], tuple[np.ndarray, list[np.ndarray]]]
    sizes: Sizes
    tiny: Sizes
    adam: bool = False
    tolerance: float = 1e-3


def data_of(network: Network, sizes: Sizes) -> tuple[np.ndarray, list[np.ndarray]]:
    """The batch, and the sets of labels."""
    return network.data(np.random.default_rng(11), sizes)


def start_of(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """First weights of parameters of these shapes: uniform in +-1/sqrt(fan in); those of one dimension, which are biases and the
    scales of norms, in [0.5, 0.6)."""
    random = np.random.default_rng(12)
    start = []
    for shape in shapes:
        if len(shape) == 1:
            start.append((0.5 + 0.1 * random.random(shape)).astype(np.float32))
        else:
            bound = float(np.prod(shape[1:])) ** -0.5
            start.append(random.uniform(-bound, bound, shape).astype(np.float32))
    return start


def checked(parameters: Sequence[Any]) -> list[Any]:
    """Those whose gradients are compared: the first, the one in the middle, the last."""
    return [parameters[0], parameters[len(parameters) // 2], parameters[-1]]


def step_side(network: Network, sizes: Sizes, framework: Any, transform: Transform) -> Side:
    """A training step by a framework with PyTorch's interface.  Its results: the loss and the gradients of the `checked` parameters."""
    model = network.build(framework, sizes)
    parameters = list(model.parameters())
    with framework.no_grad():
        for parameter, value in zip(parameters, start_of([tuple(p.shape) for p in parameters]), strict=True):
            parameter.copy_(framework.tensor(value))
    optim = framework.optim
    optimizer = (
        optim.Adam(parameters, lr=ADAM_RATE) if network.adam else optim.SGD(parameters, lr=SGD_RATE, momentum=SGD_MOMENTUM)
    )
    criterion = framework.nn.CrossEntropyLoss()
    batch, labels = data_of(network, sizes)
    x = framework.tensor(batch)
    following = itertools.cycle([framework.tensor(y) for y in labels]).__next__

    @transform
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def results(loss: Any) -> list[np.ndarray]:
        return [np.array(loss.numpy()), *(np.array(p.grad.numpy()) for p in checked(parameters))]

    return Side(lambda: step(x, following()), results, step)


def _images(random: np.random.Generator, s: Sizes) -> tuple[np.ndarray, list[np.ndarray]]:
    batch = random.standard_normal((s["batch"], s["channels"], s["size"], s["size"])).astype(np.float32)
    first = random.integers(0, s["classes"], s["batch"])
    return batch, [first, (first + 1) % s["classes"]]


def _pixels(random: np.random.Generator, s: Sizes) -> tuple[np.ndarray, list[np.ndarray]]:
    """Each pixel has a class."""
    batch = random.standard_normal((s["batch"], s["channels"], s["size"], s["size"])).astype(np.float32)
    first = random.integers(0, s["classes"], (s["batch"], s["size"], s["size"]))
    return batch, [first, (first + 1) % s["classes"]]


def _tokens(random: np.random.Generator, s: Sizes) -> tuple[np.ndarray, list[np.ndarray]]:
    """Each token has a class: the one that follows."""
    tokens = random.integers(0, s["vocabulary"], (s["batch"], s["length"]))
    first = random.integers(0, s["vocabulary"], s["batch"] * s["length"])
    return tokens, [first, (first + 1) % s["vocabulary"]]


def _series(random: np.random.Generator, s: Sizes) -> tuple[np.ndarray, list[np.ndarray]]:
    batch = random.standard_normal((s["batch"], s["length"], s["features"])).astype(np.float32)
    first = random.integers(0, s["classes"], s["batch"])
    return batch, [first, (first + 1) % s["classes"]]


def _rows(random: np.random.Generator, s: Sizes) -> tuple[np.ndarray, list[np.ndarray]]:
    batch = random.standard_normal((s["batch"], s["features"])).astype(np.float32)
    first = random.integers(0, s["classes"], s["batch"])
    return batch, [first, (first + 1) % s["classes"]]


def _resnet(framework: Any, s: Sizes) -> Any:
    """He, Zhang, Ren & Sun, "Deep Residual Learning for Image Recognition", 2016; the stem for small images: 3x3, no pooling."""
    nn, functional = framework.nn, framework.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            h = functional.relu(self.norm1(self.conv1(x)))
            return functional.relu(self.norm2(self.conv2(h)) + self.shortcut(x))

    width = s["width"]
    layers = [nn.Conv2d(s["channels"], width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for stage in range(s["stages"]):
        for k in range(s["blocks"]):
            first = k == 0 and stage > 0
            layers.append(Block(width // 2 if first else width, width, 2 if first else 1))
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width // 2, s["classes"]))


_MOBILE: Final = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks, stride of each stage, with strides for small images."""


def _mobile(framework: Any, s: Sizes) -> Any:
    """Sandler, Howard, Zhu, Zhmoginov & Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018."""
    nn = framework.nn

    def unit(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[Any]:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU6()]

    class Inverted(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
            super().__init__()
            inner = inputs * expansion
            layers = unit(inputs, inner) if expansion > 1 else []
            layers += unit(inner, inner, 3, stride, inner)
            self.layers = nn.Sequential(*layers, nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
            self.is_residual = stride == 1 and inputs == outputs

        def forward(self, x: Any) -> Any:
            return x + self.layers(x) if self.is_residual else self.layers(x)

    layers, inputs = unit(s["channels"], 32, 3), 32
    for expansion, outputs, count, stride in _MOBILE[: s["stages"]]:
        for k in range(count):
            layers.append(Inverted(inputs, outputs, stride if k == 0 else 1, expansion))
            inputs = outputs
    layers += unit(inputs, s["last"])
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(s["last"], s["classes"]))


def _cnn(framework: Any, s: Sizes) -> Any:
    nn, width = framework.nn, s["width"]
    return nn.Sequential(
        nn.Conv2d(s["channels"], width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * (s["size"] // 4) ** 2, s["classes"]),
    )  # fmt: skip


def _unet(framework: Any, s: Sizes) -> Any:
    """Ronneberger, Fischer & Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015; padded, with norms."""
    nn, functional = framework.nn, framework.nn.functional

    def double(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            widths = [s["width"] * 2**k for k in range(s["depth"] + 1)]
            self.down = nn.ModuleList(double(a, b) for a, b in zip([s["channels"], *widths], widths, strict=False))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
            self.join = nn.ModuleList(double(2 * w, w) for w in reversed(widths[:-1]))
            self.head = nn.Conv2d(widths[0], s["classes"], 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for k, layer in enumerate(self.down):
                x = layer(functional.max_pool2d(x, 2) if k else x)
                kept.append(x)
            kept.pop()
            for up, join in zip(self.up, self.join, strict=True):
                x = join(framework.cat([kept.pop(), up(x)], 1))
            return self.head(x)

    return UNet()


def _gpt(framework: Any, s: Sizes) -> Any:
    nn, functional = framework.nn, framework.nn.functional
    channels, heads, length, vocabulary = s["channels"], s["heads"], s["length"], s["vocabulary"]

    class Block(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.attention, self.projection = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.expand, self.contract = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.attention(self.norm1(x)).reshape(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(y.transpose(1, 2).reshape(b, t, c))
            return x + self.contract(functional.gelu(self.expand(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, channels), nn.Embedding(length, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(s["layers"]))
            self.norm = nn.LayerNorm(channels)
            self.head = nn.Linear(channels, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position(framework.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).reshape(-1, vocabulary)

    return GPT()


def _lstm(framework: Any, s: Sizes) -> Any:
    nn = framework.nn

    class Classifier(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(s["features"], s["hidden"], batch_first=True, bidirectional=True)
            self.head = nn.Linear(2 * s["hidden"], s["classes"])

        def forward(self, x: Any) -> Any:
            states, _ = self.lstm(x)
            return self.head(states.mean(1))

    return Classifier()


def _attention(framework: Any, s: Sizes) -> Any:
    nn, functional = framework.nn, framework.nn.functional
    features, heads = s["features"], s["heads"]

    class Attention(nn.Module):  # type: ignore[misc,name-defined]  # the framework is a parameter
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.outputs = nn.Linear(features, 3 * features), nn.Linear(features, features)
            self.head = nn.Linear(features, s["classes"])

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.inputs(x).reshape(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4).unbind(0)
            if s["fused"]:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = functional.softmax(q @ k.transpose(-2, -1) * (c // heads) ** -0.5, dim=-1) @ v
            return self.head(self.outputs(y.transpose(1, 2).reshape(b, t, c)).mean(1))

    return Attention()


def _mlp(framework: Any, s: Sizes) -> Any:
    nn = framework.nn
    return nn.Sequential(nn.Linear(s["features"], s["hidden"]), nn.Tanh(), nn.Linear(s["hidden"], s["classes"]))


NETWORKS: Final = (
    Network(
        "resnet18", "ResNet18, 32x32, batch 8", "four stages of two residual blocks, 64 to 512 channels; SGD with momentum",
        _resnet, _images,
        {"batch": 8, "channels": 3, "size": 32, "width": 64, "stages": 4, "blocks": 2, "classes": 10},
        {"batch": 3, "channels": 3, "size": 8, "width": 4, "stages": 2, "blocks": 1, "classes": 5},
        tolerance=2e-2,
    ),
    Network(
        "mobilenet", "MobileNetV2, 32x32, batch 8", "17 inverted residuals with depthwise convolutions; SGD with momentum",
        _mobile, _images,
        {"batch": 8, "channels": 3, "size": 32, "stages": 7, "last": 1280, "classes": 10},
        {"batch": 3, "channels": 3, "size": 8, "stages": 2, "last": 16, "classes": 5},
        tolerance=2e-2,
    ),
    Network(
        "cnn", "small CNN with BatchNorm, 28x28, batch 32", "two convolutions with BatchNorm and pooling, Linear; SGD with momentum",
        _cnn, _images,
        {"batch": 32, "channels": 1, "size": 28, "width": 16, "classes": 10},
        {"batch": 3, "channels": 1, "size": 8, "width": 4, "classes": 5},
    ),
    Network(
        "unet", "U-Net, 64x64, batch 4", "four resolutions, 16 to 128 channels, transposed convolutions; SGD with momentum",
        _unet, _pixels,
        {"batch": 4, "channels": 3, "size": 64, "width": 16, "depth": 3, "classes": 4},
        {"batch": 2, "channels": 3, "size": 8, "width": 4, "depth": 1, "classes": 3},
        tolerance=2e-2,
    ),
    Network(
        "gpt", "GPT of 4 layers, 64 tokens, batch 8", "128 channels, 4 heads, causal attention, gelu; Adam",
        _gpt, _tokens,
        {"batch": 8, "length": 64, "channels": 128, "heads": 4, "layers": 4, "vocabulary": 65},
        {"batch": 2, "length": 6, "channels": 8, "heads": 2, "layers": 1, "vocabulary": 11},
        adam=True,
    ),
    Network(
        "lstm", "bidirectional LSTM, 30 steps, batch 16", "32 features, 64 hidden units each way, Linear of the mean; Adam",
        _lstm, _series,
        {"batch": 16, "length": 30, "features": 32, "hidden": 64, "classes": 10},
        {"batch": 2, "length": 4, "features": 3, "hidden": 4, "classes": 5},
        adam=True,
    ),
    Network(
        "attention", "attention of 1,024 tokens, batch 2", "256 features, 4 heads, softmax written by hand; SGD with momentum",
        _attention, _series,
        {"batch": 2, "length": 1024, "features": 256, "heads": 4, "classes": 10, "fused": False},
        {"batch": 2, "length": 6, "features": 8, "heads": 2, "classes": 5, "fused": False},
    ),
    Network(
        "long_attention", "causal attention of 4,096 tokens", "128 features, 2 heads, scaled_dot_product_attention; SGD with momentum",
        _attention, _series,
        {"batch": 1, "length": 4096, "features": 128, "heads": 2, "classes": 10, "fused": True},
        {"batch": 2, "length": 6, "features": 8, "heads": 2, "classes": 5, "fused": True},
    ),
    Network(
        "mlp", "MLP 784-512-10, batch 64", "Linear, tanh, Linear; SGD with momentum",
        _mlp, _rows,
        {"batch": 64, "features": 784, "hidden": 512, "classes": 10},
        {"batch": 3, "features": 6, "hidden": 4, "classes": 5},
    ),
)  # fmt: skip


def select(names: Sequence[str]) -> list[Network]:
    """The networks of these names, all without any.  Raises ValueError for a name that there is not."""
    known = {network.name: network for network in NETWORKS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no network is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] or list(NETWORKS)
