"""Sizes that follow the second one need no recording: their paths are instances, and do what the function does for these sizes.

The library verifies itself in tests, so each instance here is also compared with what would have been made for its sizes alone.
"""

from __future__ import annotations

import functools
import logging
import math
import operator
import random
import re
import threading
from collections import UserDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit import distributions, nn, optim
from tracejit.config import override
from tracejit.core.symbolic import SymInt
from tracejit.llvm import driver
from tracejit.lowering import memory
from tracejit.lowering.elements import Parameters
from tracejit.nn import functional as F

SIZES = (5, 7, 9, 12, 33, 64, 9, 5)
W = T.linspace(-1, 1, 12).reshape(4, 3)
CONV = nn.Conv1d(4, 2, 3, padding=1)
ATTEND = nn.MultiheadAttention(4, 2, batch_first=True)


def rows(n: int) -> tuple[T.Tensor]:
    return (T.tensor(np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)),)


def by_unpacking(x: T.Tensor) -> T.Tensor:
    b, t = x.shape
    return x.reshape(b * t)[: b * 2].sum() / b


def by_branch(x: T.Tensor) -> T.Tensor:
    return x.sum(0) if x.size(0) % 2 else x[: x.shape[0] // 2].sum(0)


def with_gradient(x: T.Tensor) -> T.Tensor:
    x = x.clone().requires_grad_()
    ((x @ W).tanh() ** 2).mean().backward()
    return x.grad.sum(0)  # type: ignore[union-attr]


def filled(x: T.Tensor) -> T.Tensor:
    out = T.zeros(x.shape[0], 2)
    out[:, 0] = x[:, 1]
    out[-1, 1] = 3.0
    return out


def at_constant_positions(x: T.Tensor) -> T.Tensor:
    n = x.shape[0]
    last = n - 1
    first, offset = last - (n - 1), n - (n - 2)
    return x[first] + x[offset] * (offset + n) + x[:, offset].sum() / max(first, 1)


def with_own_attributes(x: T.Tensor) -> T.Tensor:
    y: Any = x * 1
    y.size, y.mean = 5, y.max
    return y.sum(0) * y.size * y.mean() + y.shape[0]


def causal(x: T.Tensor) -> T.Tensor:
    n = x.shape[0]
    return (x @ x.T).masked_fill(T.ones(n, n).tril() == 0, -1e9).softmax(-1)


def factored(x: T.Tensor) -> T.Tensor:
    x = x.clone().requires_grad_()
    factor = T.linalg.cholesky(x @ x.T + 9.0 * T.eye(x.shape[0]))
    solved = T.linalg.solve_triangular(factor, x, upper=False)
    return T.autograd.grad((factor.sum() + solved.sum()), x)[0]


def read_by_the_last_steps(x: T.Tensor) -> T.Tensor:
    x = x.clone().requires_grad_()
    h = T.zeros(4)
    for t in range(x.shape[0]):
        h = (h * 0.5 + x[t]).tanh()
    return T.autograd.grad(h.sum(), x)[0]


def with_a_parameter_of_its_size(x: T.Tensor) -> Any:
    own = nn.Parameter(T.linspace(0.5, 1, x.shape[0] * 4).reshape(x.shape[0], 4))
    scaled = x @ own.t()
    scaled.mean().backward()
    return scaled, own.grad, own.detach().sum()


def with_a_layer_of_its_size(x: T.Tensor) -> Any:
    layer = nn.Linear(x.shape[1], x.shape[0])
    out = layer(x)
    out.sum().backward()
    return out.shape, layer.weight.grad


def with_other_data(x: T.Tensor) -> Any:
    y = x * 2
    y.data = x.t() * 3
    leaf = x[1:].detach().requires_grad_()
    (leaf * leaf).sum().backward()
    return y, y[:, : y.shape[1] // 2].sum(1), leaf.grad


PROGRAMS: dict[str, Callable[[T.Tensor], Any]] = {
    "mean": lambda x: x.mean(),
    "a parameter of its size": with_a_parameter_of_its_size,
    "a layer of its size": with_a_layer_of_its_size,
    "other data": with_other_data,
    "sizes among sizes": lambda x: (x * 2 if 0 in x.shape else x + 1, 4 in x.shape, x.shape[0] in x.shape),
    "variance": lambda x: x.var(0) + x.std(),
    "product": lambda x: (x @ W).relu().sum(0),
    "softmax": lambda x: F.softmax(x @ W, dim=0),
    "unpacking": by_unpacking,
    "new tensors": lambda x: T.zeros(x.shape) + T.ones(x.size(0), 4) + T.ones_like(x) + x,
    "range of a size": lambda x: (T.arange(x.shape[0]).float()[:, None] * x).sum(0),
    "joined": lambda x: T.cat([x, x * 2], 0).cumsum(0)[-1],
    "length": lambda x: x.sum() / len(x),
    "last row": lambda x: x[-1] + x[x.shape[0] - 1],
    "half": lambda x: x[: x.shape[0] // 2].sum(0),
    "bools as bounds": lambda x: x[False : x.shape[0] - 1].sum(0) + x[True:3].sum(0),
    "turned": lambda x: x.flip(0)[1:],
    "attributes over methods": with_own_attributes,
    "positions that come to constants": at_constant_positions,
    "causal": causal,
    "a shape and more": lambda x: x.reshape(*x.shape[:-1], 2, 2).sum((1, 2)),
    "view of a size": lambda x: x.view(x.size()).t().contiguous(),
    "repeated": lambda x: x.repeat(2, 1).roll(1, 0),
    "padded": lambda x: F.pad(x, (0, 0, 1, 1)),
    "normalised": lambda x: F.layer_norm(x, (4,)) + F.normalize(x, dim=0),
    "batch statistics": lambda x: F.batch_norm(x, T.zeros(4), T.ones(4), training=True),
    "convolution": lambda x: CONV(x.t()[None]),
    "attention": lambda x: ATTEND(x[None], x[None], x[None], need_weights=False)[0],
    "losses": lambda x: F.mse_loss(x, x * 2) + F.cross_entropy(x, T.zeros(x.shape[0], dtype=T.int64)),
    "distances": lambda x: (x[:, None] - x[None]).norm(dim=-1).sum(),
    "einsum": lambda x: T.einsum("ij,kj->ik", x, x),
    "chosen": lambda x: x[T.arange(x.shape[0]), T.zeros(x.shape[0], dtype=T.int64)],
    "numbers": lambda x: (x.shape[0] * 2.5, x.numel(), x.shape[1]),
    "shapes": lambda x: (x.shape, tuple(x.size())),
    "gradient": with_gradient,
    "filled": filled,
    "branch": by_branch,
    "comparison of shapes": lambda x: (x if x.shape == (6, 4) else x * 2).sum(0),
    "host": lambda x: x.sort(0)[0] + 1,
    "divergence": lambda x: F.kl_div(x.log_softmax(1), x.softmax(0), reduction="batchmean"),
    "quantile": lambda x: T.quantile(x, 0.3, dim=0),
    "pooled": lambda x: (F.avg_pool1d(x.t()[None], 2, stride=1), F.adaptive_avg_pool1d(x.t()[None], 1)),
    "pooled with steps": lambda x: (F.max_pool1d(x.t(), 2), F.max_pool1d(x.t(), 3, 2, 1), F.avg_pool1d(x.t(), 3, 2, 1)),
    "means without borders": lambda x: [F.avg_pool1d(x.t(), 3, 2, 1, c, count_include_pad=False) for c in (True, False)],
    "largest of a dimension": lambda x: F.adaptive_max_pool1d(x.t()[None], 1),
    "resized": lambda x: [
        F.interpolate(x.t()[None], scale_factor=k, mode=m) for k in (2, 1.5, 0.5) for m in ("nearest", "linear")
    ],
    "resized to a size": lambda x: [F.interpolate(x.t()[None], 11, mode=m) for m in ("nearest", "nearest-exact", "linear")],
    "resized by cubic convolution": lambda x: F.interpolate(x.reshape(1, 1, -1, 4), scale_factor=2, mode="bicubic"),
    "sampled": lambda x: F.grid_sample(x.reshape(-1, 1, 2, 2), x.tanh().reshape(-1, 2, 1, 2), align_corners=False),
    "statistics of instances": lambda x: F.instance_norm(x[:, None]),
    "borders": lambda x: [F.pad(x.t()[None], (2, 1), mode=mode) for mode in ("reflect", "replicate", "circular")],
    "factored": factored,
    "halves": lambda x: [part.sum(0) for part in (*x.chunk(2), *x.tensor_split(2), *x.split(x.shape[0] // 2 + 1))],
    "triangles": lambda x: (x @ x.T)[T.triu_indices(x.shape[0], x.shape[0], 1).unbind()] * F.pdist(x),
    "moved along": lambda x: x.roll(3, 0) + x.roll(-1, 0),
    "a shape alone": lambda x: T.full((x.shape[0], x.shape[0]), -math.inf).triu(1),
    "distributions": lambda x: (
        distributions.Categorical(logits=x).log_prob(T.arange(x.shape[0]) % 4),
        distributions.MultivariateNormal(x, scale_tril=T.eye(4)).log_prob(x * 2),
        distributions.Independent(distributions.Normal(x, x.exp()), 1).entropy(),
    ),
}


def plain(value: Any) -> Any:
    if isinstance(value, T.Tensor):
        array = value.detach().numpy()
        return array.tobytes(), array.shape, array.strides, value.dtype, value.requires_grad
    return tuple(map(plain, value)) if isinstance(value, (tuple, list)) else (type(value), value)


def exact(function: Callable[..., Any], *given: Any) -> Any:
    """What a function gives that is compiled for these arguments alone."""
    compiled = T.compile(function, dynamic=False)
    compiled(*given)
    return compiled(*given)


def with_rows(function: Callable[..., Any], sizes: Sequence[int], **tolerance: float) -> Any:
    """A compiled function that has been called with so many rows: it gave what one for each size alone gives, and eager results."""
    compiled = T.compile(function)
    for n in sizes:
        given, result = rows(n), compiled(*rows(n))
        assert plain(result) == plain(exact(function, *given)) or n == sizes[0] or compiled.stats.compiled_calls == 0, n
        for found, expected in zip(leaves(result), leaves(function(*given)), strict=True):
            np.testing.assert_allclose(found, expected, **tolerance)
    return compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_instances_give_what_a_path_that_was_recorded_for_the_size_gives(name: str) -> None:
    compiled = with_rows(PROGRAMS[name], SIZES, rtol=2e-5, atol=1e-6)
    assert compiled.stats.instances >= 2 and not compiled.reasons, compiled.explain()
    assert compiled.stats.traces <= 4


def scanned(xs: T.Tensor, reverse: bool = False) -> Any:
    """The last state, all states, and gradients."""
    xs, w = xs.clone().requires_grad_(), W.clone().requires_grad_()

    def step(h: T.Tensor, x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = T.tanh(x @ w + h * 0.5)
        return h, h

    last, states = T.scan(step, T.zeros(3), xs, reverse=reverse)
    value = (last * 2).sum() + (states * states).mean()
    return last.detach(), states.detach(), *T.autograd.grad(value, (xs, w))


def networks(name: str, **options: Any) -> Callable[[T.Tensor], Any]:
    """A recurrent network that is trained on sequences."""

    def make(xs: T.Tensor) -> Any:
        xs = xs.clone().requires_grad_()
        states, last = network(xs.reshape(-1, 2, 2))
        value = (states * states).mean() + sum([s.sum() for s in (last if isinstance(last, tuple) else (last,))])
        return states.detach(), *T.autograd.grad(value, [xs, *network.parameters()])

    T.manual_seed(3)
    network = getattr(nn, name)(2, 3, **options)
    return make


def aligned(xs: T.Tensor) -> Any:
    xs = xs.clone().requires_grad_()
    loss = F.ctc_loss(xs[:, None].log_softmax(-1), T.tensor([[1, 2, 1]]), (xs.shape[0],), (3,))
    return loss.detach(), *T.autograd.grad(loss, xs)


def gradients_of_samples(xs: T.Tensor) -> Any:
    parameters = {name: x.detach() for name, x in LINEAR.named_parameters()}

    def error(parameters: Any, x: T.Tensor) -> T.Tensor:
        return (T.func.functional_call(LINEAR, parameters, (x,)) ** 2).mean()

    return list(T.func.vmap(T.func.grad(error), in_dims=(None, 0))(parameters, xs).values())


LONG = (20, 31, 44, 80, 5, 23)
OVER_TIME: dict[str, Callable[[T.Tensor], Any]] = {
    "scan": scanned,
    "scan from the end": lambda xs: scanned(xs, reverse=True),
    "map": lambda xs: T.map(lambda x: x.softmax(0) * x.sum(), xs),
    "LSTM": networks("LSTM"),
    "LSTM in two directions": networks("LSTM", bidirectional=True, num_layers=2),
    "RNN": networks("RNN", nonlinearity="relu", bidirectional=True),
    "GRU": networks("GRU"),
    "GRU in two directions": networks("GRU", bidirectional=True, bias=False),
    "LSTM without gradients": lambda xs: LSTM(xs[:, None])[0].detach(),
    "vmap": lambda xs: T.vmap(lambda x, w: (x @ w).tanh(), in_dims=(0, None))(xs, W),
    "gradients of samples": gradients_of_samples,
    "alignments": aligned,
    "Jacobians": lambda xs: T.vmap(T.func.jacrev(lambda x: (x @ W).tanh()))(xs),
}
LSTM = nn.LSTM(4, 3)
LINEAR = nn.Linear(4, 3)


@pytest.mark.parametrize("name", OVER_TIME)
def test_loops_of_the_library_are_recorded_twice_whatever_their_lengths(name: str) -> None:
    compiled = with_rows(OVER_TIME[name], LONG, rtol=2e-4, atol=2e-6)
    assert compiled.stats.traces == 2 and compiled.stats.instances == len(LONG) - 2, compiled.explain()


def test_the_positions_of_the_last_steps_are_symbolic_in_gradients_too() -> None:
    compiled = with_rows(read_by_the_last_steps, (20, 31, 44, 57, 23, 80), rtol=2e-5, atol=1e-6)
    assert compiled.stats.traces == 2 and compiled.stats.instances == 4, compiled.explain()


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value.detach().numpy() if isinstance(value, T.Tensor) else value]


def classifier() -> tuple[Callable[..., Any], list[T.Tensor]]:
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [*model.parameters(), *model.buffers()]


def test_a_training_step_with_batches_of_any_size_is_recorded_twice_and_trains_as_eager_does() -> None:
    sizes = (16, 24, 40, 17, 9, 33, 24, 16, 63, 11)
    results = []
    for wrap in (lambda function: function, T.compile):
        step, state = classifier()
        run = wrap(step)
        losses = [run(*rows(n), T.arange(n) % 3).item() for n in sizes]
        results.append((losses, [s.detach().numpy().copy() for s in state]))
    assert run.stats.traces == 2 and run.stats.instances == len(set(sizes)) - 2
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    for a, b in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_an_epoch_with_a_smaller_last_batch_leaves_nothing_to_do_for_later_ones() -> None:
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    images, labels = T.rand(4 * 32 + 13, 16), T.arange(4 * 32 + 13) % 10

    @T.compile
    def step(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def epoch(count: int) -> tuple[int, int, int]:
        before, traces, served = driver.compilations(), step.stats.traces, step.stats.compiled_calls
        order = T.randperm(count)
        for i in range(0, count, 32):
            rows = order[i : i + 32]
            step(images[rows], labels[rows])
        return step.stats.traces - traces, driver.compilations() - before, step.stats.compiled_calls - served

    with override(cache=False):
        assert epoch(4 * 32 + 13) == (2, 2, 3)
        for count in (4 * 32 + 13, 4 * 32 + 13, 4 * 32 + 7, 4 * 32 + 11):  # other last batches as well
            assert epoch(count) == (0, 0, 5), step.explain()
    assert step.stats.instances == 2


def _training_step() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    def step(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda n: (*rows(n), T.arange(n) % 3)


def _encoder() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    T.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()

    def encode(x: T.Tensor) -> T.Tensor:
        with T.no_grad():
            return layer(x)

    return encode, lambda n: (T.rand(2, n, 16),)


def _lstm() -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    T.manual_seed(0)
    network = nn.LSTM(4, 11)

    def gradients(x: T.Tensor) -> tuple[T.Tensor, ...]:
        states = network(x[:, None])[0]
        return T.autograd.grad((states * states).sum(), tuple(network.parameters()))

    return gradients, rows


@pytest.mark.parametrize("make", [_training_step, _encoder, _lstm])
def test_kernels_are_compiled_for_two_sizes_of_thirty(
    make: Callable[[], tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]],
) -> None:
    """The first one, and the one from which the others come: short ones as well."""
    function, inputs = make()
    compiled, before = T.compile(function), driver.compilations()
    with override(cache=False):
        for n in (50, 41, 32, 64, 16, 7, 96, 33, *range(20, 31), *range(66, 76)):
            compiled(*inputs(n))
    assert compiled.stats.traces == 2 and driver.compilations() - before <= 2, compiled.explain()


def labelled(x: T.Tensor, y: T.Tensor) -> T.Tensor:
    return F.cross_entropy(x @ W, y)


@dataclass
class Described:
    x: T.Tensor
    y: T.Tensor


class Batch:
    """Attributes that are found in a dictionary of its own, as those of graphs and of tokenized texts are."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getattr__(self, name: str) -> Any:
        try:
            return self._items[name]
        except KeyError:
            raise AttributeError(name) from None


CONTAINERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a pair": (lambda batch: labelled(*batch), lambda x, y: ((x, y),)),
    "a list": (lambda batch: labelled(batch[0], batch[1]), lambda x, y: ([x, y],)),
    "a dictionary": (lambda batch: labelled(batch["x"], batch["y"]), lambda x, y: ({"x": x, "y": y},)),
    "a dictionary of lists": (lambda batch: labelled(batch["xy"][0], batch["xy"][1][0]), lambda x, y: ({"xy": [x, (y,)]},)),
    "a named tuple": (lambda batch: labelled(batch.x, batch.y), lambda x, y: (Labelled(x, y),)),
    "an object": (lambda batch: labelled(batch.x, batch.y), lambda x, y: (SimpleNamespace(x=x, y=y),)),
    "a data class": (lambda batch: labelled(batch.x, batch.y), lambda x, y: (Described(x, y),)),
    "an object with a dictionary": (lambda batch: labelled(batch.x, batch.y), lambda x, y: (Batch(x=x, y=y),)),
    "a dictionary that is an object": (lambda batch: labelled(batch["x"], batch["y"]), lambda x, y: (UserDict(x=x, y=y),)),
    "objects in a list": (lambda batch: labelled(batch[0].x, batch[1].y), lambda x, y: ([Described(x, y), Described(x + 1, y)],)),
    "behind a large object": (lambda model, batch: labelled(batch.x, batch.y), lambda x, y: (MODEL, Described(x, y))),
    "beside an argument": (lambda x, more: labelled(x, more[0]) * len(more), lambda x, y: (x, [y, 2.0])),
    "a shape that is read": (lambda batch: (batch[0].shape, len(batch[1]), batch[0] * 2), lambda x, y: ([x, y],)),
}


MODEL = nn.ModuleList([nn.BatchNorm1d(3) for _ in range(60)])


class Labelled(NamedTuple):
    x: T.Tensor
    y: T.Tensor


@pytest.mark.parametrize("name", CONTAINERS)
def test_sizes_of_tensors_in_containers_are_symbolic(name: str) -> None:
    function, packed = CONTAINERS[name]
    compiled, alone = T.compile(function), T.compile(function, dynamic=False)
    for n in SIZES:
        given = packed(*rows(n), T.arange(n) % 3)
        compiled(*given)
        alone(*given)
        assert plain(compiled(*given)) == plain(alone(*given))
    assert (compiled.stats.traces, compiled.stats.instances) == (2, len(set(SIZES)) - 2), compiled.explain()
    assert compiled.stats.guard_misses == len(set(SIZES)) - 1 and not compiled.reasons
    assert alone.stats.traces == len(set(SIZES))


class Cache:
    """Keys and values of the tokens so far, a tensor for each layer."""

    def __init__(self, layers: int) -> None:
        self.keys = [T.ones(2, 2, 4) for _ in range(layers)]
        self.values = [T.ones(2, 2, 4) for _ in range(layers)]

    def update(self, key: T.Tensor, value: T.Tensor, layer: int) -> tuple[T.Tensor, T.Tensor]:
        self.keys[layer] = T.cat([self.keys[layer], key], 1)
        self.values[layer] = T.cat([self.values[layer], value], 1)
        return self.keys[layer], self.values[layer]


def test_tensors_that_grow_in_an_object_are_recorded_twice() -> None:
    def step(x: T.Tensor, cache: Cache) -> T.Tensor:
        for layer in range(len(cache.keys)):
            keys, values = cache.update(x @ W @ W.T, x * 2, layer)
            x = F.softmax(x @ keys.transpose(1, 2), -1) @ values
        return x

    compiled = T.compile(step)
    cache, expected = Cache(2), Cache(2)
    for n in range(12):
        x = rows(2)[0].reshape(2, 1, 4) + n
        found, eager = compiled(x, cache), step(x, expected)
        np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=1e-5)
        if n == 6:  # somebody else cuts it
            for some in (cache, expected):
                some.keys, some.values = ([x[:, 1:4] for x in part] for part in (some.keys, some.values))
    assert cache.keys[1].shape == expected.keys[1].shape == (2, 8, 4)
    assert compiled.stats.traces <= 3 and compiled.stats.instances >= 4, compiled.explain()


def passed_along(x: T.Tensor, edges: T.Tensor, weight: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
    start, end = edges
    sent = (x @ weight)[start]
    got = T.zeros(x.shape[0], 3).index_add(0, end, sent)
    count = T.zeros(x.shape[0]).index_add(0, end, T.ones(end.shape[0]))
    most = T.zeros(x.shape[0], 3).scatter_add(0, end.unsqueeze(1).expand(-1, 3), sent.square())
    return got / count.clamp(min=1).unsqueeze(1), most


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(st.integers(2, 30), st.integers(2, 60)), min_size=6, max_size=10, unique=True))
def test_graphs_with_so_many_nodes_and_edges_give_the_bits_of_exact_programs(sizes: list[tuple[int, int]]) -> None:
    def function(graph: Any) -> tuple[T.Tensor, T.Tensor]:
        return passed_along(graph.x, graph.edges, graph.weight)

    shared = T.compile(function)
    for nodes, edges in sizes:
        random = np.random.default_rng(nodes * 100 + edges)
        x = T.tensor(random.standard_normal((nodes, 4)).astype(np.float32)).requires_grad_()
        graph = SimpleNamespace(
            x=x, edges=T.tensor(random.integers(0, nodes, (2, edges))), weight=W.clone().requires_grad_(), name="a graph"
        )
        found = []
        for f in (shared, T.compile(function, dynamic=False)):
            f(graph)
            results = f(graph)
            gradients = T.autograd.grad(sum(r.sum() for r in results), (x, graph.weight))
            found.append([r.detach().numpy() for r in (*results, *gradients)])
        assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_the_numbers_of_nodes_and_of_edges_are_not_compared() -> None:
    compiled = T.compile(passed_along)
    for nodes, edges in ((9, 20), (12, 31), (30, 7), (15, 15), (8, 40), (40, 8), (5, 6)):
        end = T.arange(edges) % nodes
        x = rows(nodes)[0]
        for found, expected in zip(compiled(x, T.stack([end, end]), W), passed_along(x, T.stack([end, end]), W), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 5), compiled.explain()


def test_ragged_lists_need_two_recordings_for_all_their_lengths() -> None:
    compiled = T.compile(lambda items: T.cat([x * 2 for x in items]).sum(0) + T.stack([x.mean(0) for x in items]).sum(0))
    random = np.random.default_rng(0)
    for _ in range(12):
        lengths = random.integers(2, 50, 3)
        items = [rows(int(n))[0] for n in lengths]
        expected = sum(x.sum(0) * 2 + x.mean(0) for x in items)
        np.testing.assert_allclose(compiled(items).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.stats.traces == 2 and compiled.stats.instances == 10
    assert compiled([*items, items[0] + 1]).shape == (4,) and compiled.stats.traces == 3  # one more of them


def domains(compiled: Any) -> list[int]:
    """How many sizes each domain of programs has served."""
    return [domain.instances for path in compiled._table.symbolic.paths for domain in path.domains]


def test_loops_that_are_cut_into_more_chunks_for_larger_sizes_are_one_program() -> None:
    def sums(x: T.Tensor) -> tuple[T.Tensor, ...]:
        return x.exp().sum(), (x.tanh() * x).sum(0), x.sigmoid()

    with override(verify=False):  # which asks more about sizes
        with_chunks = with_rows(sums, (20_000, 31_000, 50_001, 90_000, 40_000), rtol=1e-4)
    assert (with_chunks.stats.traces, domains(with_chunks)) == (2, [4]), with_chunks.explain()


def test_lengths_of_many_sequences_that_are_equal_by_chance_are_of_the_same_region() -> None:
    embed, read = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True)

    def encoded(items: list[T.Tensor]) -> T.Tensor:
        return read(embed(nn.utils.rnn.pad_sequence(items, batch_first=True)))[1].sum()

    compiled, random = T.compile(encoded), np.random.default_rng(1)
    for lengths in (range(10, 22), range(23, 11, -1), *random.integers(10, 20, (10, 12))):
        items = [T.tensor(random.integers(0, 20, n)) for n in lengths]
        with override(verify=False):
            np.testing.assert_allclose(compiled(items).item(), encoded(items).item(), rtol=1e-4)
    served = domains(compiled)
    assert compiled.stats.traces == 2 and max(served) >= 7 and len(served) <= 3, compiled.explain()


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "padding_value": 2.0}, {"padding_side": "left"}], ids=repr)
def test_padded_sequences_need_no_recording_for_each_order_of_their_lengths(options: dict[str, Any]) -> None:
    def function(items: list[T.Tensor]) -> tuple[T.Tensor, T.Tensor]:
        padded = nn.utils.rnn.pad_sequence(items, **options)
        return padded, (padded @ W).tanh().sum()

    compiled = T.compile(function)
    orders = ((9, 5, 7), (8, 6, 12), (20, 31, 4), (7, 7, 7), (5, 9, 8), (3, 2, 4), (30, 29, 5), (11, 11, 40))
    for k, lengths in enumerate(orders):
        items, others = ([rows(n)[0].requires_grad_() for n in lengths] for _ in range(2))
        found, expected = compiled(items), function(others)
        assert found[0].tolist() == expected[0].tolist() and (k < 2 or plain(found) == plain(exact(function, items)))
        for value in (found[1], expected[1]):
            value.backward()
        for x, y in zip(items, others, strict=True):
            assert x.grad is not None and y.grad is not None and T.allclose(x.grad, y.grad, rtol=1e-4, atol=1e-6)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, len(orders) - 2), compiled.explain()


def halves(x: T.Tensor) -> tuple[T.Tensor, ...]:
    mean, scale = (x * 2).reshape(-1, 2, 2).chunk(2, -1)
    return mean, scale.exp(), (x * 3)[..., :1], mean.detach(), mean.transpose(0, 1)[:, :, 0]


def test_parts_of_an_instance_are_made_when_somebody_asks_and_are_those_of_its_size() -> None:
    weight = W.clone().requires_grad_()
    compiled = T.compile(lambda x: ((x @ weight).tanh() ** 2).sum())
    with override(verify=False):
        for n in (5, 7, 9, 12, 33, 20, 21):
            compiled(*rows(n)).backward()
            assert compiled(*rows(n)).requires_grad
    path = compiled._table.paths[-1]
    made, program = path.executable, path.executable.program
    assert made._general is not None and made.__dict__.keys().isdisjoint({"pure", "graph"}) and program._of_sizes is not None
    assert program.lowered.spec.slots and program._of_sizes is None
    assert made.graph.avals != made._general.graph.avals or made.pure.avals != made._general.pure.avals


def test_results_that_are_parts_of_tensors_are_recorded_twice() -> None:
    compiled = with_rows(halves, (5, 7, 9, 12, 33), rtol=1e-6)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 3), compiled.explain()
    for found, expected in zip(compiled(*rows(10)), halves(*rows(10)), strict=True):
        assert found.stride() == expected.stride() and found.shape == expected.shape


def padded_by_amounts(items: list[T.Tensor]) -> T.Tensor:
    longest = max(x.size(0) for x in items)
    return T.stack([F.pad(x, (0, 0, 0, longest - x.size(0))) for x in items])


def written_into_zeros(items: list[T.Tensor]) -> T.Tensor:
    filled = T.zeros(len(items), max(map(len, items)), 4)
    for k, x in enumerate(items):
        filled[k, : len(x)] = x
    return filled


@pytest.mark.parametrize("function", [padded_by_amounts, written_into_zeros])
def test_what_pads_a_list_by_itself_needs_no_recording_for_each_order_of_its_lengths(
    function: Callable[[list[T.Tensor]], T.Tensor],
) -> None:
    compiled, random = T.compile(function), np.random.default_rng(0)
    for lengths in ([10, 20, 30, 40], [41, 31, 21, 11], *random.integers(10, 40, (10, 4)), [20, 20, 20, 20]):
        items = [rows(int(n))[0] for n in lengths]
        with override(verify=False):
            assert compiled(items).tolist() == function(items).tolist()
    assert compiled.stats.traces <= 3 and len(domains(compiled)) <= 6, compiled.explain()  # one for each that may be the longest


def by_halves(x: T.Tensor) -> T.Tensor:
    n = x.shape[0]
    return (
        x[: math.ceil(n / 2)].sum(0)
        + x[n >> 1 :].sum(0) * 2
        + x[: math.floor(n * 0.75)].sum(0)
        + x[: int(n / 3)].mean(0) * float(n)
    )


def by_extremes(x: T.Tensor) -> T.Tensor:
    n, m = x.shape[0], x.shape[0] * 2 - 12
    return T.zeros(max(n, m), 4)[: min(n, m)].sum(0) + x[: min([n - 2, n // 2])].sum(0) + x.sum(0) / max(n, 2)


def by_products(x: T.Tensor) -> T.Tensor:
    flat = x.reshape(math.prod(x.shape)) / math.prod([x.shape[0], 0.5])
    return flat * functools.reduce(operator.mul, x.shape) + functools.reduce(lambda a, b: a + b, x.shape, 2)


@pytest.mark.parametrize("function", [by_halves, by_extremes, by_products])
def test_rounded_quotients_shifts_and_extremes_of_sizes_are_sizes(function: Callable[[T.Tensor], T.Tensor]) -> None:
    compiled = with_rows(function, (9, 14, 7, 30, 17, 33, 8, 21))
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 6), compiled.explain()


def test_what_else_is_in_a_container_is_guarded_in_instances() -> None:
    compiled = T.compile(lambda batch: batch["x"] * batch["k"] + (1 if "y" in batch else 2))
    for n in (5, 7, 9, 11):
        assert compiled({"x": T.ones(n), "k": 3}).tolist() == [5.0] * n
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 2)
    for n in (5, 9, 12, 13, 14):
        assert compiled({"x": T.ones(n), "k": 4}).tolist() == [6.0] * n
        assert compiled({"y": T.ones(3), "k": 4, "x": T.ones(n)}).tolist() == [5.0] * n
        assert compiled({"x": T.ones(n), "k": 4.5}).tolist() == [6.5] * n
        assert compiled({"x": T.ones(1), "k": 4}).tolist() == [6.0]
        assert compiled({"x": T.ones(n, dtype=T.float64), "k": 4}).dtype == T.float64


def test_a_tensor_that_is_in_a_container_twice_is_no_other_one() -> None:
    def function(items: list[T.Tensor]) -> T.Tensor:
        items[0].add_(1)
        return items[0] + items[1]

    compiled = T.compile(function)
    for n in (5, 7, 9, 11, 13):
        x = T.zeros(n)
        assert compiled([x, x]).tolist() == [2.0] * n
        assert compiled([T.zeros(n), T.zeros(n)]).tolist() == [1.0] * n
        assert compiled([T.zeros(n), T.zeros(1)]).tolist() == [1.0] * n


def test_tensors_that_a_call_takes_out_of_a_container_leave_no_sizes_behind() -> None:
    def function(items: list[T.Tensor]) -> T.Tensor:
        first = items.pop().sum()
        made = [T.zeros(3) + k for k in range(20)]
        return first + sum(x.shape[0] for x in made) + len(items)

    compiled = T.compile(function)
    for n in (5, 7, 9, 11):
        assert compiled([T.zeros(2), T.ones(n)]).item() == n + 61
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 2)


def test_gradients_after_the_call_come_of_programs_that_are_instances_too() -> None:
    w = T.linspace(-1, 1, 4).requires_grad_()
    compiled = T.compile(lambda x: ((x * w).tanh().exp() + x).mean())
    counts = []
    for n in (20, 31, 26, 40, 37):
        for _ in range(2):
            x = rows(n)[0].requires_grad_()
            w.grad = None
            before = driver.compilations()
            compiled(x).backward()
            counts.append(driver.compilations() - before)
            y = rows(n)[0].requires_grad_()
            ((y * w.detach()).tanh().exp() + y).mean().backward()
            assert x.grad is not None and y.grad is not None and w.grad is not None
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-7)
    assert compiled.stats.traces == 2 and sum(counts[4:]) == 0


def test_gradients_of_gradients_after_the_call_are_those_of_its_sizes() -> None:
    w = T.linspace(-1, 1, 4).requires_grad_()

    def function(x: T.Tensor) -> T.Tensor:
        return (x * w).exp().mean() + (x[1:] * x[:-1]).square().sum()

    compiled = T.compile(function)
    for n in (20, 31, 26, 40, 37):
        found = []
        for call in (compiled, function):
            x = rows(n)[0].double().requires_grad_()
            (slope,) = T.autograd.grad(call(x), x, create_graph=True)
            found.append((slope, *T.autograd.grad(slope.square().sum(), (x, w))))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 3)


def test_python_that_asks_for_the_number_itself_is_recorded_for_each_size() -> None:
    asked: list[str] = []

    def function(x: T.Tensor) -> T.Tensor:
        asked.append("%d" % x.shape[0])  # noqa: UP031
        return x * len([0] * x.shape[0]) + math.sqrt(x.shape[0])

    compiled = T.compile(function)
    for n in (5, 7, 9, 11, 9):
        np.testing.assert_allclose(compiled(*rows(n)).numpy(), (rows(n)[0] * n + math.sqrt(n)).numpy(), rtol=1e-6)
    assert compiled.stats.instances == 0 and asked == ["5", "7", "9", "11", "9"]
    assert "a size is not symbolic, since the program asks which it is: x.shape[0] ==" in compiled.explain(verbose=True)


def test_loops_over_one_size_leave_the_others_symbolic() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        total = T.zeros(x.shape[1])
        for row in x:
            total = total * 0.5 + row
        return total

    compiled = T.compile(function)
    for n, m in ((3, 5), (3, 7), (3, 9), (3, 11), (3, 9)):
        x = T.tensor(np.random.default_rng(n).normal(size=(n, m)))
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-12)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 2)


def test_sizes_of_zero_and_one_and_equal_ones_are_recorded_where_they_mean_something_else() -> None:
    compiled = T.compile(lambda x, y: x * y)
    cases = [(5, 5), (7, 7), (9, 9), (9, 1), (1, 9), (0, 0), (1, 1), (8, 8), (0, 1)]
    for n, m in cases:
        x, y = T.arange(n) * 1.5, T.arange(m) + 0.5
        assert compiled(x, y).tolist() == (x * y).tolist()
    with pytest.raises(RuntimeError, match="cannot be broadcast"):
        compiled(T.ones(6), T.ones(4))
    assert compiled(T.ones(6), T.ones(6)).tolist() == [1.0] * 6


def test_errors_of_shapes_are_eagers_errors() -> None:
    compiled = T.compile(lambda x: x.reshape(-1, 8).sum(0))
    for n in (16, 24, 40, 56):
        assert compiled(T.ones(n)).tolist() == [n / 8] * 8
    for n in (12, 7):
        with pytest.raises(RuntimeError, match="invalid for a tensor of"):
            compiled(T.ones(n))
    assert compiled(T.ones(48)).tolist() == [6.0] * 8 and compiled.stats.instances >= 3


def test_layouts_are_those_of_the_call() -> None:
    compiled = T.compile(lambda x: x * 2 + x.sum(0))
    for n in (5, 7, 9, 11):
        base = T.tensor(np.random.default_rng(n).integers(-9, 9, (8, 2 * n)).astype(np.float64))  # sums are exact, in any order
        for x in (base[:4, :n].contiguous(), base[:4, ::2], base.t()[:n, :4], base[:4, :1].expand(4, n)):
            result = compiled(x)
            assert np.array_equal(result.numpy(), (x * 2 + x.sum(0)).numpy()) and result.stride() == (x * 2 + x.sum(0)).stride()


def attended(past: T.Tensor, x: T.Tensor) -> T.Tensor:
    return F.softmax(x @ past.transpose(1, 2), -1) @ past


def part(batch: int, room: int, length: int, seed: int = 0) -> T.Tensor:
    """The first of the tokens that a buffer has room for."""
    generator = np.random.default_rng(seed + 100 * room + length)
    return T.tensor(generator.normal(size=(batch, room, 4)).astype(np.float32))[:, :length]


PARTS: dict[str, Callable[[int], T.Tensor]] = {
    "of one buffer": lambda n: part(3, 40, n + 2),
    "of one buffer, a batch of one": lambda n: part(1, 40, n + 2),
    "of a buffer of any size": lambda n: part(3, 20 + 3 * n % 11, n + 2),
    "of any batch in a buffer of any size": lambda n: part(2 + n, 20 + 3 * n % 11, 5 + n % 7),
    "without the first": lambda n: part(3, 9 + n, 9 + n)[:, 2:],
    "every second one": lambda n: part(3, 20 + 2 * n, 20 + 2 * n)[:, ::2],
    "of turned around memory": lambda n: part(9 + n, 3, 3).transpose(0, 1),
    "of turned around memory with gaps": lambda n: part(20 + n, 5, 3)[2:].transpose(0, 1),
    "repeated": lambda n: part(1, 20, 4 + n).expand(3, -1, -1),
}


@pytest.mark.parametrize("name", PARTS)
def test_arguments_that_have_gaps_in_memory_are_recorded_twice(name: str) -> None:
    compiled = T.compile(attended)
    for n in range(8):
        past, x = PARTS[name](n), part(PARTS[name](n).shape[0], 2, 2, 7)
        found = compiled(past, x)
        assert n < 2 or plain(found) == plain(exact(attended, past, x))
        np.testing.assert_allclose(found.numpy(), attended(past, x).numpy(), rtol=1e-5, atol=1e-6)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 6), compiled.explain()
    if name not in ("of turned around memory", "repeated"):  # the same sizes without gaps
        assert np.allclose(compiled(past.clone(), x).numpy(), attended(past, x).numpy(), rtol=1e-5, atol=1e-6)
        assert compiled.stats.traces == 3


def test_strides_that_a_function_looks_at_are_those_of_the_call() -> None:
    compiled = T.compile(lambda x: (x.stride(), x.is_contiguous(), x.stride(1) > 8, x.sum()))
    for n in (9, 12, 17, 10, 5, 4):
        x = part(3, n + 4, n)
        found = compiled(x)
        assert found[:3] == (x.stride(), False, False)
        x = part(3, n + 4, n).transpose(1, 2)[:, ::3]
        assert compiled(x)[:3] == (x.stride(), False, False)
        x = part(3, n, n)[..., :1].transpose(1, 2)
        assert compiled(x)[:3] == (x.stride(), x.is_contiguous(), False)


def _in_one_row(x: T.Tensor) -> T.Tensor:
    return x[:, :6].reshape(-1).add_(1)


def _by_itself(x: T.Tensor) -> T.Tensor:
    return x[:, :6].contiguous().add_(1)


def _as_it_lies(x: T.Tensor) -> T.Tensor:
    return x * (2 if x[:, :6].is_contiguous() else 3)


def _of_its_shape(x: T.Tensor) -> T.Tensor:
    return x[:, :6].reshape(x.shape[0], -1)


@pytest.mark.parametrize("function", [_in_one_row, _by_itself, _as_it_lies, _of_its_shape])
@pytest.mark.parametrize("sizes", [(7, 9, 8, 6, 10, 4, 5, 3), (4, 6, 5, 3, 9, 7), (6, 7, 8, 5, 4)])
def test_a_part_that_is_the_whole_for_some_sizes_lies_in_memory_as_eagerly(
    function: Callable[[T.Tensor], T.Tensor], sizes: tuple[int, ...]
) -> None:
    compiled = T.compile(function)
    for n in sizes:
        (x, y), results = (T.arange(3.0 * n).reshape(3, n) for _ in range(2)), []
        for call, argument in ((compiled, x), (function, y)):
            result = call(argument)
            results.append((plain(result), np.shares_memory(result.numpy(), argument.numpy()), plain(argument)))
        assert results[0] == results[1], n


def test_windows_that_overlap_are_refused_where_they_are_eagerly() -> None:
    def function(windows: T.Tensor) -> T.Tensor:
        windows.add_(1)
        return windows.sum(0)

    compiled = T.compile(function)
    for n in (2, 3, 2, 4, 3, 5, 2, 6):  # of 4 numbers, so longer ones overlap
        x, y = (from_array(np.arange(40.0), n) for _ in range(2))
        if n > 4:
            for call, given in ((compiled, x), (function, y)):
                with pytest.raises(RuntimeError, match="more than one element"):
                    call(given)
        else:
            assert compiled(x).tolist() == function(y).tolist() and x.tolist() == y.tolist()


def from_array(numbers: np.ndarray[Any, Any], width: int) -> T.Tensor:
    """So many numbers from each fourth one on."""
    return T.from_numpy(np.lib.stride_tricks.as_strided(numbers, (5, width), (32, 8)))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(2, 5), st.integers(3, 30), st.integers(2, 9)), min_size=4, max_size=7), st.booleans())
def test_writes_and_gradients_through_gaps_give_the_bits_of_exact_programs(
    sizes: list[tuple[int, int, int]], turned: bool
) -> None:
    def function(x: T.Tensor, w: T.Tensor) -> list[T.Tensor]:
        with T.no_grad():
            x[:, 1:].mul_(2)
        y = x.reshape(-1, 3) @ w
        return [y, x.transpose(0, 1) * 2, x.clone(), x[:, ::2].sum(1)]

    shared = T.compile(function)
    for batch, room, length in sizes:
        found = []
        for f in (shared, T.compile(function, dynamic=False)):
            for _ in range(2):
                generator = np.random.default_rng(room * 10 + length)
                base = T.tensor(generator.normal(size=(batch, room, 3)).astype(np.float32))
                x = base[:, : min(room, length)]
                w = T.ones(3, 2).requires_grad_()
                results = f(x.transpose(0, 1) if turned else x, w)
            (gradient,) = T.autograd.grad(results[0].square().sum(), w)
            found.append([plain(r) for r in (*results, gradient, base)])
        assert found[0] == found[1]


def test_what_else_a_call_relies_on_is_guarded_in_instances() -> None:
    state = {"scale": 2.0, "on": True}
    compiled = T.compile(lambda x, k=1: x * state["scale"] + (k if state["on"] else -k))
    for n in (5, 7, 9, 11):
        assert compiled(T.ones(n)).tolist() == [3.0] * n
    assert compiled.stats.instances == 2
    state["scale"] = 4.0
    for n in (5, 9, 13, 11):
        assert compiled(T.ones(n)).tolist() == [5.0] * n
    state["on"] = False
    for n in (5, 9, 15, 17, 19):
        assert compiled(T.ones(n), k=3).tolist() == [1.0] * n


def test_what_is_told_of_a_size_is_no_reason_to_record_it(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    logger = logging.Logger("sizes")
    logger.addHandler(Told())

    def function(x: T.Tensor) -> tuple[T.Tensor, str]:
        print("rows", x.shape[0], x.shape, f"{x.shape[1:]} {x.size()!r}")
        logger.info("%d of %s: %.1f", len(x), x.shape, x.sum().item())
        print(f"{x.sum().item():.1f}", str(x.shape), "done")
        return x + 1, f"{x.shape}"

    compiled = T.compile(function)
    for n in (5, 7, 9, 11, 12, 30):
        expected = function(T.ones(n, 2)), capsys.readouterr().out, told.pop()
        assert repr((compiled(T.ones(n, 2)), capsys.readouterr().out, told.pop())) == repr(expected)
    assert not told
    assert compiled.stats.traces <= 3
    assert compiled.stats.compiled_calls == 6 - compiled.stats.traces


def test_effects_of_a_call_are_those_of_its_sizes() -> None:
    seen: list[Any] = []

    def function(x: T.Tensor) -> T.Tensor:
        seen.append(x.shape[0])
        seen.append(x.shape)
        return x + 1

    compiled = T.compile(function)
    for n in (5, 7, 9, 11):
        compiled(T.ones(n, 2))
    assert seen == [5, (5, 2), 7, (7, 2), 9, (9, 2), 11, (11, 2)] and all(type(s) in (int, T.Size) for s in seen)
    assert all(type(d) is int for s in seen if isinstance(s, tuple) for d in s)


@pytest.mark.parametrize("dynamic", [True, False, None])
def test_dynamic_says_which_sizes_are_symbolic(dynamic: bool | None) -> None:
    compiled = T.compile(lambda x: (x * 2).sum(), dynamic=dynamic)
    for n in (5, 7, 9, 11):
        assert compiled(T.ones(n)).item() == 2 * n
    assert (compiled.stats.traces, compiled.stats.instances) == {True: (1, 3), None: (2, 2), False: (4, 0)}[dynamic]


def test_a_marked_size_is_symbolic_at_once_and_a_static_one_never() -> None:
    for mark, expected in ((T.mark_dynamic, (1, 3)), (T.mark_static, (4, 0))):
        compiled = T.compile(lambda x: (x * 3).sum())
        for n in (5, 7, 9, 11):
            x = T.ones(n)
            mark(x, 0)
            assert compiled(x).item() == 3 * n
        assert (compiled.stats.traces, compiled.stats.instances) == expected


def test_lowering_that_takes_the_number_out_of_a_size_makes_programs_of_that_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "aligned", lambda nbytes: -(-operator.index(nbytes) // 64) * 64)  # of slabs: where residuals lie
    w = T.linspace(-1, 1, 4).requires_grad_()

    def function(x: T.Tensor) -> T.Tensor:
        return (((x * w).tanh() * x.exp()).sigmoid() ** 2).sum()

    compiled = T.compile(function)
    for n in (20, 31, 46, 57, 68, 46):
        x, y = rows(n)[0].requires_grad_(), rows(n)[0].requires_grad_()
        compiled(x).backward()
        function(y).backward()
        assert x.grad is not None and y.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-6)
    domains = [domain for path in compiled._table.symbolic.paths for domain in path.domains]
    assert domains and all(domain.is_pinned and domain.instances == 1 for domain in domains)


def test_threads_that_bring_new_sizes_get_their_results() -> None:
    compiled = T.compile(lambda x: (x @ W).tanh().sum(0))
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(first, 60, 4):
            if not np.allclose(compiled(*rows(n)).numpy(), (rows(n)[0] @ W).tanh().sum(0).numpy(), rtol=1e-4, atol=1e-5):
                wrong.append(n)

    for n in (5, 7):
        compiled(*rows(n))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and compiled.stats.instances


def several(x: T.Tensor, w: T.Tensor, i: T.Tensor) -> list[T.Tensor]:
    h = (x @ w).softmax(-1)
    return [h.var(0) / x.shape[0], x.mean() * h.mean(0), (h * x.mean(-1, keepdim=True)).cumsum(0)[i], T.cat([x, h], 0).amax(0)]


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 70), st.integers(1, 9)), min_size=4, max_size=7))
def test_two_sizes_that_change_apart_give_the_bits_of_exact_programs(sizes: list[tuple[int, int]]) -> None:
    shared = T.compile(several)
    for n, k in sizes:
        random = np.random.default_rng(n * 100 + k)
        w = T.tensor(random.standard_normal((k, k)).astype(np.float32)).requires_grad_()
        x = T.tensor(random.standard_normal((n, k)).astype(np.float32)).requires_grad_()
        i = T.tensor(random.integers(0, n, n))
        found = []
        for f in (shared, T.compile(several, dynamic=False)):
            f(x, w, i)
            results = f(x, w, i)
            gradients = T.autograd.grad(sum(r.sum() for r in results), (x, w))
            found.append([r.detach().numpy() for r in (*results, *gradients)])
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*found, strict=True))


TAKEN: dict[str, Callable[[T.Tensor], Any]] = {
    "a power that is whole for some sizes": lambda x: x * (2 ** (x.shape[0] - 8)),
    "a root": lambda x: x * (x.shape[0] - 10) ** 0.5 if x.shape[0] >= 10 else x,
    "lists": lambda x: (x.tolist(), x + 1),
    "arrays": lambda x: (x.numpy().shape, x + 1),
    "strides": lambda x: (x.stride(), x.t().stride(), x[:, 1:].stride(), x[::2].stride(0), x.is_contiguous()),
    "strides that no element sees": lambda x: (F.conv2d(x[None, None], T.ones(2, 1, 3, 3), padding=1), x[None].transpose(1, 2)),
    "shuffled": lambda x: F.pixel_shuffle(x[None, :, :, None].expand(1, *x.shape, 2)[:, : x.shape[0] // 4 * 4], 2),
    "points between": lambda x: (T.linspace(-1, 1, x.shape[0]), T.linspace(0, x.shape[0], 5)),
    "pieces": lambda x: [part.sum() for part in x.split(4)],
    "diagonals": lambda x: x @ T.zeros(4, x.shape[0]).fill_diagonal_(2.0, wrap=True),
    "text": lambda x: (f"{x.shape[0]:>4} of {tuple(x.shape)}", str(len(x)), x * 2),
    "types": lambda x: (
        isinstance(x.shape[0], int),
        type(x.shape[0]) is int,
        x.shape[0] in (7, 9),
        {7: "a"}.get(x.shape[0], "b"),
    ),
    "bits": lambda x: (
        x.shape[0] & 6,
        x.shape[0] << 1,
        x.shape[0] ^ 3,
        ~x.shape[0],
        divmod(x.shape[0], 4),
        round(x.shape[0] / 3, 1),
    ),
    "order": lambda x: (min(x.shape[0], 8), max(x.shape), sorted(x.shape), sum(x.shape), x.shape.numel()),
    "extremes": lambda x: x[x.sum(1).argmax()],
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_a_program_takes_out_of_sizes_is_right_for_each_of_them(name: str) -> None:
    function = TAKEN[name]
    compiled = T.compile(function)
    for n in (5, 7, 9, 11, 13, 32, 8, 3, 2, 16, 9, 20):
        found, expected = leaves(compiled(*rows(n))), leaves(function(*rows(n)))
        assert len(found) == len(expected), n
        for a, b in zip(found, expected, strict=True):
            assert type(a) is type(b), n
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
                assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides), n
            else:
                assert a == b, n


def _drawn(x: T.Tensor) -> T.Tensor:
    return T.rand(x.shape[0])


def _dropped(x: T.Tensor) -> T.Tensor:
    return T.nn.functional.dropout(x, 0.3)


def _few_terms(x: T.Tensor) -> T.Tensor:
    rows = x[: x.shape[0] // 8]
    return rows.t() @ rows


def _steps_of_floats(x: T.Tensor) -> T.Tensor:
    return x * (20.0 // x.shape[0]) + x * 2.0 ** (x.shape[0] // 16) + x * (0.5 * x.shape[0] // 8 + 1)


def _powers(x: T.Tensor) -> T.Tensor:
    return x * 2 ** (x.shape[0] - 8)


def _regular(x: T.Tensor) -> T.Tensor:
    return T.linspace(0, 1, x.shape[0])


def _dimensions_of_one(x: T.Tensor) -> T.Tensor:
    return x.view(x.shape[0], 2, x.shape[1] // 2).transpose(1, 2).contiguous()


@pytest.mark.parametrize(
    "function, shapes",
    [
        (_drawn, [(n,) for n in (5, 9, 13, 17, 11, 15, 31)]),
        (_dropped, [(n,) for n in (5, 7, 11, 15, 9, 12, 14)]),
        (_few_terms, [(n, 4) for n in (16, 17, 18, 24, 33)]),
        (_steps_of_floats, [(n, 4) for n in (11, 12, 13, 25, 17, 18, 40, 5)]),
        (_powers, [(n, 4) for n in (5, 7, 9, 11)]),
        (_regular, [(n,) for n in (5, 7, 9, 11, 13)]),
        (_dimensions_of_one, [(5, 12), (7, 16), (9, 6), (2, 2), (3, 2)]),
    ],
)
def test_numbers_that_stay_for_some_sizes_are_others_for_further_ones(
    function: Callable[[T.Tensor], T.Tensor], shapes: list[tuple[int, ...]]
) -> None:
    compiled = T.compile(function)
    for shape in shapes:
        x = T.arange(math.prod(shape)).float().reshape(shape)
        T.manual_seed(1)
        expected = function(x)
        T.manual_seed(1)
        found = compiled(x)
        assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert T.allclose(found, expected, rtol=1e-6)


def _pieces(x: T.Tensor) -> T.Tensor:
    return x[1:][::3] * x.shape[0]


def _running(x: T.Tensor) -> T.Tensor:
    v = x.cumsum(0)
    return T.cat([v, v])


def _added(x: T.Tensor) -> T.Tensor:
    return (x * (0.5 + x.shape[0] // 5)).sum(0).softmax(-1)


@pytest.mark.parametrize(
    "function, shapes, traces",
    [
        (_pieces, [(6, 12), (8, 16), (10, 20), (12, 24), (11, 7), (13, 9)], 2),  # m is 2 n at first
        (_running, [(5, 6), (7, 8), (11, 10), (12, 13), (9, 4)], 2),  # m is n - 1 once
        (_added, [(n, 4) for n in (5, 11, 16, 33, 23)], 2),
    ],
)
def test_sizes_that_are_equal_by_chance_are_two(
    function: Callable[[T.Tensor], T.Tensor], shapes: list[tuple[int, ...]], traces: int
) -> None:
    for _ in range(2):  # also where the process has met the same sizes in another program
        compiled, fresh = T.compile(function), T.compile(lambda x: function(x))
        for k, shape in enumerate(shapes):
            x = T.arange(math.prod(shape)).float().reshape(shape)
            result = compiled(x)
            assert k < traces or plain(result) == plain(exact(function, x))
            assert T.allclose(result, function(x), rtol=1e-5)
            if k:
                fresh(x)
        assert (compiled.stats.traces, compiled.stats.instances) == (traces, len(shapes) - traces), compiled.explain()


def test_code_that_takes_the_number_out_of_a_size_makes_programs_of_that_size(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Parameters.size

    def concretising(self: Parameters, n: int) -> Any:
        return size(self, operator.index(n) if type(n) is SymInt and n.env.text(n.number) == "x.shape[1]" else n)

    monkeypatch.setattr(Parameters, "size", concretising)
    compiled = T.compile(lambda x: T.cat([x * 2, x], 1))
    for shape in [(5, 4), (7, 6), *[(n, 6) for n in range(9, 20)], (8, 9), (15, 3)]:
        x = T.arange(math.prod(shape)).float().reshape(shape)
        assert plain(compiled(x)) == plain(T.cat([x * 2, x], 1)), shape
    assert compiled.stats.instances > 8, compiled.explain()
    (path,) = compiled._table.symbolic.paths
    assert path.domains and all(domain.env.pinned() == {1} for domain in path.domains)


def test_programs_that_are_others_for_some_sizes_by_chance_serve_the_others() -> None:
    def function(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        return (x.sum() / x.shape[0] + x) * 2 - x.sum() / y.shape[0]  # one quotient, where the sizes are equal

    compiled = T.compile(function)
    for n, m in ((5, 6), (7, 8), (9, 9), (11, 13), (10, 4)):
        x, y = T.arange(n).float(), T.ones(m)
        assert plain(compiled(x, y)) == plain(exact(function, x, y))
    assert compiled.stats.traces == 2
    assert sum(domain.instances for path in compiled._table.symbolic.paths for domain in path.domains) == 4, compiled.explain()


def test_programs_with_steps_of_python_and_no_sizes_are_made_for_each_size() -> None:
    def function(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        return T.gcd(y, y)

    compiled = T.compile(function)
    for n, m in ((5, 5), (6, 7), (9, 1), (4, 1), (9, 1)):
        assert compiled(T.ones(n), T.arange(m)).tolist() == list(range(m))
    assert compiled.stats.traces == 3, compiled.explain()
    assert all(path.needs_host for path in compiled._table.symbolic.paths)


def test_errors_of_slices_are_eagers_errors_for_numbers_that_are_no_integers() -> None:
    def sliced(x: T.Tensor) -> str:
        try:
            return str(x[: 2 ** (x.shape[0] - 8)])
        except TypeError as error:
            return str(error)

    compiled = T.compile(sliced)
    for n in (9, 7, 6, 5, 10):
        assert compiled(T.ones(n)) == sliced(T.ones(n))
    for call in (T.compile(lambda x, n: x[:n]), lambda x, n: x[:n]):
        with pytest.raises(TypeError, match=r"^slice indices must be integers or None or have an __index__ method$"):
            call(T.ones(4), 2.0)


def test_explain_says_why_programs_are_made_for_each_size() -> None:
    compiled = T.compile(lambda x: x.sort().values * 2)
    for n in (5, 7, 9, 11):
        assert compiled(T.arange(n).flip(0)).tolist() == [2 * k for k in range(n)]
    assert "programs with steps of Python are made for each size" in compiled.explain(verbose=True)


def test_lengths_of_scans_and_batches_are_symbolic_together() -> None:
    w = T.eye(4) * 0.5

    def states(xs: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        def step(h: T.Tensor, x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
            h = T.tanh(x + h @ w)
            return h, h

        return T.scan(step, T.zeros(xs.shape[1], 4), xs)

    compiled = T.compile(states)
    for n, batch in ((20, 4), (20, 6), (20, 9), (30, 5), (33, 11), (20, 13), (41, 3)):
        xs = T.tensor(np.random.default_rng(n).normal(size=(n, batch, 4)).astype(np.float32))
        compiled(xs)
        assert plain(compiled(xs)) == plain(exact(states, xs))
    assert compiled.stats.traces == 3 and compiled.stats.instances == 4, compiled.explain()


# -- integers among the arguments

TABLE = T.tensor(np.random.default_rng(0).normal(size=(64, 3)))


def first_rows(count: int) -> T.Tensor:
    return TABLE[:count].sum(0)


def points(count: int, low: float = 0.0) -> T.Tensor:
    return T.linspace(low, 1.0, 5).expand(count, 5) * T.arange(count).unsqueeze(1)


def noise(count: int) -> T.Tensor:
    return T.randn(count, 3, dtype=T.float64) @ TABLE[:3]


def simulated(steps: int) -> T.Tensor:
    y = T.ones(3)
    for _ in range(steps):
        y = y - 0.1 * y * TABLE[0]
    return y


def padded(x: T.Tensor, length: int) -> T.Tensor:
    return F.pad(x, (0, length - x.shape[0])) * length


def of_two(rows: int, *, columns: int) -> T.Tensor:
    return T.ones(rows, columns) * rows + T.zeros(rows + 1, columns)[1:]


@pytest.mark.parametrize("function", [first_rows, points, noise, simulated])
def test_integers_that_become_sizes_are_symbolic(function: Callable[[int], T.Tensor]) -> None:
    compiled = T.compile(function)
    for k, count in enumerate((9, 14, 11, 30, 12, 25, 1, 0, 40, 13)):
        found = []
        for call in (compiled, function):
            T.manual_seed(k)
            found.append((call(count), T.get_rng_state().tolist()))
        (x, state), (y, expected) = found
        assert (x.shape, x.dtype, state) == (y.shape, y.dtype, expected)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces <= 6  # none, one and few are paths of their own
    assert compiled.stats.instances >= 4, compiled.explain()


class Counted:
    """What has a number of its rows beside them, and of how many a cache is full."""

    def __init__(self, rows: T.Tensor, count: int, *more: int) -> None:
        self.rows, self.count, self.more = rows, count, {"last": list(more)}


@pytest.mark.parametrize(
    "function",
    [
        lambda held: held.rows[: held.count].sum(0) * held.count,
        lambda held: T.zeros(held.count, 4) + held.rows[0],
        lambda held: held.rows[: held.more["last"][0]].sum(0),
    ],
)
def test_integers_in_attributes_and_containers_are_symbolic_where_they_become_sizes(function: Callable[[Counted], Any]) -> None:
    compiled = T.compile(function)
    for count in (9, 5, 12, 7, 3, 15, 9):
        held = Counted(T.arange(80.0).reshape(20, 4), count, count - 1, count + 4)
        assert compiled(held).tolist() == function(held).tolist()
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 4), compiled.explain()
    for other in (1, 0, -3, True, 6):
        held = Counted(T.arange(80.0).reshape(20, 4), other, other, other + 2)
        try:
            expected = function(held).tolist()
        except (RuntimeError, TypeError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                compiled(held)
        else:
            assert compiled(held).tolist() == expected


def test_a_cache_that_counts_its_tokens_is_recorded_twice() -> None:
    def step(cache: Counted, x: T.Tensor) -> T.Tensor:
        cache.rows[cache.count] = x
        cache.count += 1
        return (cache.rows[: cache.count] @ x).softmax(0) @ cache.rows[: cache.count]

    compiled = T.compile(step)
    caches = [Counted(T.zeros(30, 4), 2) for _ in range(2)]
    for n in range(12):
        x = T.linspace(-1, 1, 4) * n
        found, expected = compiled(caches[0], x), step(caches[1], x)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
        if n == 7:
            for cache in caches:  # somebody else begins anew
                cache.count = 3
    assert caches[0].count == caches[1].count == 7 and caches[0].rows.tolist() == caches[1].rows.tolist()
    assert compiled.stats.traces == 2, compiled.explain()


def test_an_integer_that_becomes_a_size_under_another_branch_is_one_from_then_on() -> None:
    def function(n: int, x: T.Tensor) -> T.Tensor:
        return x * 2 if n > 5 else x[:n]

    compiled = T.compile(function)
    for n, m in ((7, 12), (3, 13), (4, 15), (2, 12), (5, 18), (3, 11), (8, 14)):
        assert compiled(n, T.arange(1.0 * m)).tolist() == function(n, T.arange(1.0 * m)).tolist()
    assert compiled.stats.traces <= 4 and not compiled.reasons, compiled.explain()


def test_a_position_that_is_a_size_as_well_is_recorded_twice() -> None:
    def step(cache: T.Tensor, x: T.Tensor, t: int) -> T.Tensor:
        cache[:, t] = x
        return attended(cache[:, : t + 1], x[:, None]) * t

    compiled = T.compile(step)
    for t in (9, 4, 7, 2, 14, 5, 15, 3):
        results = []
        for call in (compiled, step):
            cache = part(3, 16, 16, t)
            results.append((call(cache, part(3, 2, 2)[:, 1] + t, t).numpy(), cache.numpy()))
        for found, expected in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (compiled.stats.traces, compiled.stats.instances) == (2, 6), compiled.explain()
    for t in (16, -1, 0):
        results = []
        for call in (compiled, step):
            try:
                results.append(call(part(3, 16, 16), part(3, 2, 2)[:, 1], t).tolist())
            except Exception as error:
                results.append((type(error), str(error)))
        assert results[0] == results[1]


def test_sizes_that_change_apart_and_together_are_recorded_twice() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True).eval()

    def translate(source: T.Tensor, target: T.Tensor) -> T.Tensor:
        with T.no_grad():
            return model(source, target)

    compiled = T.compile(translate)
    generator = np.random.default_rng(0)
    for _ in range(9):
        batch, source, target = (int(n) for n in generator.integers(2, 13, 3))
        x, y = (T.tensor(generator.normal(size=(batch, n, 8)).astype(np.float32)) for n in (source, target))
        np.testing.assert_allclose(compiled(x, y).numpy(), translate(x, y).numpy(), rtol=1e-3, atol=1e-5)
    assert compiled.stats.traces == 2, compiled.explain()
    assert ", where source.shape[0] == target.shape[0]" in compiled.explain(verbose=True)


def test_integers_and_sizes_are_symbolic_together() -> None:
    compiled, other = T.compile(padded), T.compile(of_two)
    for n, length in ((5, 9), (7, 12), (4, 13), (6, 30), (9, 11), (8, 25), (3, 40)):
        x = T.arange(n) * 1.0
        assert compiled(x, length).tolist() == padded(x, length).tolist()
        assert other(n, columns=length).tolist() == of_two(n, columns=length).tolist()
    assert compiled.stats.traces <= 3, compiled.explain()
    assert other.stats.traces <= 3, other.explain()
    assert compiled.stats.instances >= 4
    assert other.stats.instances >= 4


def test_an_integer_that_is_a_size_is_no_bool_and_no_float() -> None:
    def rows(count: Any) -> str:
        try:
            return str(TABLE[:count].sum(0) * count)
        except (TypeError, IndexError) as error:
            return type(error).__name__

    compiled = T.compile(rows)
    for count in (5, 7, 6, True, 9, 2.0, 2, 1, False, 0, -3, 8, None, np.int64(4), 4):
        assert compiled(count) == rows(count), count


def test_integers_that_are_computed_with_and_nothing_else_have_one_path() -> None:
    compiled = T.compile(lambda x, epoch: x * epoch if epoch > 2 else x)
    for epoch in range(20):
        x = T.arange(4) * 1.0
        assert compiled(x, epoch).tolist() == (x * epoch if epoch > 2 else x).tolist()
    assert compiled.stats.traces == 2
    assert not compiled.stats.instances


# -- paths that differ in something else

SIZES = (7, 12, 5, 16, 9, 20, 22, 30)


def test_sizes_that_were_met_under_one_branch_need_no_recording_under_another() -> None:
    calls = [0, 0]

    def changing(x: T.Tensor, k: int) -> T.Tensor:
        calls[k] += 1
        return x * 2 if calls[k] < 12 else x * 3

    compiled = T.compile(changing)
    for n in SIZES * 3:
        assert compiled(T.ones(n), 0).tolist() == changing(T.ones(n), 1).tolist()
    assert compiled.stats.traces <= 4, compiled.explain()


def test_paths_with_equal_graphs_and_other_guards_have_sizes_of_their_own() -> None:
    linear = nn.Linear(3, 1)
    optimizer = optim.SGD(linear.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.LinearLR(optimizer, total_iters=9)

    @T.compile
    def step(x: T.Tensor) -> T.Tensor:
        scheduler.step()
        return linear(x).sum()

    for n in SIZES * 3:
        x = T.ones(n, 3)
        np.testing.assert_allclose(step(x).item(), linear(x).sum().item(), rtol=1e-5)
    assert step.stats.traces <= 4, step.explain()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_draws_of_python_and_numpy_are_no_reason_to_record_each_size() -> None:
    generator = np.random.default_rng(0)

    def mixed(x: T.Tensor) -> T.Tensor:
        rows = generator.integers(0, len(x), size=4)
        return x[T.tensor(rows)].sum() * random.uniform(0.5, 2.0) + float(np.random.beta(0.4, 0.4))

    compiled = T.compile(mixed)
    for k, n in enumerate(SIZES * 2):
        found = []
        for call in (compiled, mixed):
            random.seed(k)
            np.random.seed(k)
            generator.bit_generator.state = np.random.PCG64(k).state
            found.append((call(T.arange(n) * 1.0).item(), random.random(), np.random.rand(), generator.random()))
        assert found[0] == pytest.approx(found[1])
    assert compiled.stats.traces <= 3, compiled.explain()


def test_integers_and_matrices_at_one_position_are_kept_apart() -> None:
    def either(value: Any) -> T.Tensor:
        return T.zeros(value) + 1 if isinstance(value, int) else value * 2

    compiled = T.compile(either)
    for value in (5, 6, T.ones(4, 2), 7, T.ones(3, 9), T.ones(2), 8, T.ones(4, 5), T.ones(2, 2, 2), 2, T.ones(6, 2), 9):
        assert compiled(value).tolist() == either(value).tolist()


def test_arguments_that_the_call_changes_are_told_apart_as_they_were() -> None:
    def filled(count: int, items: list[Any]) -> list[Any]:
        items.append(count)
        items.append(T.ones(count).sum())
        return items

    compiled = T.compile(filled)
    for count in (3, 4, 5, 4, 6, 3, 7):
        first, second = compiled(count, [])
        assert (first, second.item()) == (count, count)
    assert compiled.stats.traces <= 3, compiled.explain()


def test_integers_that_no_memory_has_room_for_raise_what_they_raise_eagerly() -> None:
    compiled = T.compile(lambda count: T.zeros(count) + 1)
    for count in (3, 4, 5, 6):
        assert compiled(count).tolist() == [1] * count
    for count in (2**70, -(2**70), 2**62):
        with pytest.raises(Exception) as eager:
            T.zeros(count)
        with pytest.raises(eager.type):
            compiled(count)
    assert compiled(7).tolist() == [1] * 7


@pytest.mark.parametrize("dtype", [T.float32, T.float64])
def test_gradients_of_means_make_no_program_for_each_size(dtype: Any) -> None:
    weight = T.tensor(np.linspace(-1.0, 1.0, 12).reshape(4, 3), dtype=dtype, requires_grad=True)

    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        loss = (x @ weight).log_softmax(-1).mean()
        (slope,) = T.autograd.grad(loss, weight)
        return loss.detach(), slope

    compiled = T.compile(function)
    for n in (5, 9, 12, 7, 20, 33, 15, 41, 18, 27):
        x = T.tensor(np.random.default_rng(n).normal(size=(n, 4)), dtype=dtype)
        for a, b in zip(compiled(x), function(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12 if dtype is T.float64 else 1e-4, atol=1e-6)
    (path,) = compiled._table.symbolic.paths
    assert [domain.instances for domain in path.domains] == [9], compiled.explain()


def test_positions_of_a_dtype_are_as_many_as_the_size_says() -> None:
    def embedded(x: Any, before: int) -> Any:
        return x + T.arange(before, before + x.size(0), dtype=T.long)

    compiled = T.compile(embedded, wait=True)
    for n in (5, 9, 7, 12, 6, 8):
        x = T.randn(n)
        np.testing.assert_array_equal(compiled(x, n + 2).numpy(), embedded(x, n + 2).numpy())
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (2, 4), compiled.explain()


@pytest.mark.parametrize("written", [T.arange(2.0), T.zeros(1), T.ones(2, 2), [3.0], np.ones((1, 2), dtype=np.float32)])
def test_what_is_written_is_broadcast_to_a_size_that_follows(written: Any) -> None:
    def overwritten(x: Any) -> Any:
        x[-1] = written
        return x[0] + x[-1]

    compiled = T.compile(overwritten, wait=True)
    for n in (2, 3, 5, 4, 6):
        x = T.randn(2, n, 2, 2)
        y = x.clone()
        np.testing.assert_array_equal(compiled(x).numpy(), overwritten(y).numpy())
        np.testing.assert_array_equal(x.numpy(), y.numpy())
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (2, 3), compiled.explain()
