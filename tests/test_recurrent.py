"""Recurrent layers and cells beside PyTorch's: state, results and gradients, also of packed sequences, eager and compiled."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from against_torch import assert_close, numbers

import tracejit
from tracejit import nn


def pair(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The layer in both libraries with torch's parameters."""
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: tracejit.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    assert repr(ours) == repr(theirs)
    return ours, theirs


def parts(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [p for v in value for p in parts(v)]
    return [value] if getattr(value, "is_floating_point", lambda: False)() else []


def compare(ours: Any, theirs: Any, run: Any, *arrays: np.ndarray) -> None:
    """run(module, *tensors) agrees: all results, the gradients of all inputs and parameters."""
    torch = pytest.importorskip("torch")
    mine = [tracejit.tensor(a, requires_grad=True) for a in arrays]
    other = [torch.tensor(a, requires_grad=True) for a in arrays]
    out, expected = parts(run(ours, *mine)), parts(run(theirs, *other))
    assert len(out) == len(expected)
    for i, (a, b) in enumerate(zip(out, expected, strict=True)):
        assert_close(a, b, 1e-11, f"result {i}")
    sum((a * tracejit.tensor(numbers(*a.shape, seed=i))).sum() for i, a in enumerate(out)).backward()
    sum((a * torch.tensor(numbers(*a.shape, seed=i))).sum() for i, a in enumerate(expected)).backward()
    for i, (a, b) in enumerate(zip(mine, other, strict=True)):
        assert_close(a.grad, b.grad, 1e-10, f"gradient of input {i}")
    for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(p.grad, q.grad, 1e-10, f"gradient of {key}")


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *[(name, {}) for name in ("RNN", "LSTM", "GRU")],
    *[(name, {"num_layers": 2, "bidirectional": True}) for name in ("RNN", "LSTM", "GRU")],
    *[(name, {"num_layers": 2, "bias": False, "batch_first": True}) for name in ("RNN", "LSTM", "GRU")],
    ("RNN", {"nonlinearity": "relu"}),
    ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(OPTIONS)])
def test_layers_agree_with_torch(name: str, options: dict[str, Any]) -> None:
    for length in (1, 4, 7):
        ours, theirs = pair(name, 3, 4, **options)
        shape = (2, length, 3) if options.get("batch_first") else (length, 2, 3)
        compare(ours, theirs, lambda m, x: m(x), numbers(*shape))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_states_are_taken_and_given_back(name: str) -> None:
    ours, theirs = pair(name, 3, 4, num_layers=2, bidirectional=True)
    states = [numbers(4, 2, 4, seed=i + 1) for i in range(2 if name == "LSTM" else 1)]
    compare(ours, theirs, lambda m, x, *h: m(x, h if len(h) > 1 else h[0]), numbers(5, 2, 3), *states)
    ours, theirs = pair(name, 3, 4)
    states = [numbers(1, 4, seed=i + 1) for i in range(2 if name == "LSTM" else 1)]
    compare(ours, theirs, lambda m, x, *h: m(x, h if len(h) > 1 else h[0]), numbers(5, 3), *states)


def test_a_projected_state_has_the_projected_size() -> None:
    ours, theirs = pair("LSTM", 3, 5, proj_size=2)
    compare(ours, theirs, lambda m, x, h, c: m(x, (h, c)), numbers(4, 2, 3), numbers(1, 2, 2, seed=1), numbers(1, 2, 5, seed=2))


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_packed_sequences_agree_with_torch(name: str, enforce_sorted: bool) -> None:
    torch = pytest.importorskip("torch")
    lengths = [5, 3, 3, 1] if enforce_sorted else [3, 1, 5, 3]

    def run(module: Any, x: Any, *states: Any) -> Any:
        rnn = nn.utils.rnn if isinstance(x, tracejit.Tensor) else torch.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=enforce_sorted)
        out, last = module(packed, *([states if len(states) > 1 else states[0]] if states else []))
        padded, sizes = rnn.pad_packed_sequence(out, batch_first=True, padding_value=0.5, total_length=6)
        assert sizes.tolist() == lengths
        return padded, last

    for states in ([], [numbers(4, 4, 6, seed=i + 1) for i in range(2 if name == "LSTM" else 1)]):
        ours, theirs = pair(name, 3, 6, num_layers=2, bidirectional=True)
        compare(ours, theirs, run, numbers(4, 5, 3), *states)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_agree_with_torch(name: str) -> None:
    count = 2 if name == "LSTMCell" else 1

    def run(module: Any, x: Any, *h: Any) -> Any:
        return module(x, *([h if count > 1 else h[0]] if h else []))

    for bias in (True, False):
        for lead in ((2,), ()):
            ours, theirs = pair(name, 3, 4, bias=bias)
            compare(ours, theirs, run, numbers(*lead, 3), *[numbers(*lead, 4, seed=i + 1) for i in range(count)])
            ours, theirs = pair(name, 3, 4, bias=bias)
            compare(ours, theirs, run, numbers(*lead, 3))


def test_dropout_stands_between_layers_in_training_only() -> None:
    tracejit.manual_seed(0)
    net = nn.LSTM(3, 4, num_layers=2, dropout=1.0)
    x = tracejit.randn(5, 2, 3)
    alone = nn.LSTM(3, 4, num_layers=2)
    alone.load_state_dict(net.state_dict())
    assert not tracejit.isclose(net(x)[0], alone(x)[0]).all()
    net.eval()
    assert (net(x)[0] == alone(x)[0]).all()
    assert (alone(x)[1][0][0] == net.train()(x)[1][0][0]).all()  # the first layer's state knows of no dropout


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_compiled_layer_is_the_eager_one(name: str) -> None:
    tracejit.manual_seed(0)
    net = getattr(nn, name)(3, 4, num_layers=2, bidirectional=True)
    head = nn.Linear(8, 2)

    def loss(x: Any) -> Any:
        return (head(net(x)[0]) ** 2).mean()

    compiled = tracejit.compile(loss)
    for seed in range(3):
        tracejit.manual_seed(seed)
        x = tracejit.randn(6, 2, 3)
        found = []
        for function in (loss, compiled):
            for p in [*net.parameters(), *head.parameters()]:
                p.grad = None
            value = function(x)
            value.backward()
            found.append([value.detach().numpy(), *(p.grad.numpy() for p in net.parameters())])
        for eager, replayed in zip(*found, strict=True):
            np.testing.assert_allclose(replayed, eager, rtol=1e-5, atol=1e-6)
    assert compiled.stats.compiled_calls >= 1, compiled.explain()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="proj_size has to be smaller"):
        nn.LSTM(3, 4, proj_size=4)
    with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
        nn.GRU(3, 0)
    with pytest.raises(ValueError, match="Unknown nonlinearity"):
        nn.RNN(3, 4, nonlinearity="sigmoid")
    net = nn.LSTM(3, 4)
    with pytest.raises(RuntimeError, match="Expected 3, got 2"):
        net(tracejit.ones(5, 2, 2))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 2, 4\)"):
        net(tracejit.ones(5, 2, 3), (tracejit.ones(1, 1, 4), tracejit.ones(1, 2, 4)))
    with pytest.raises(RuntimeError, match="sequence length"):
        net(tracejit.ones(0, 2, 3))
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        nn.utils.rnn.pack_padded_sequence(tracejit.ones(5, 2, 3), [2, 5])


def test_sequences_are_padded_and_packed_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    arrays = [numbers(n, 2, seed=n) for n in (4, 2, 3)]
    ours, theirs = [tracejit.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    for options in ({}, {"batch_first": True, "padding_value": 2.0}, {"padding_side": "left"}):
        assert_close(nn.utils.rnn.pad_sequence(ours, **options), torch.nn.utils.rnn.pad_sequence(theirs, **options))
    packed = nn.utils.rnn.pack_sequence(ours, enforce_sorted=False)
    expected = torch.nn.utils.rnn.pack_sequence(theirs, enforce_sorted=False)
    for mine, other in zip(packed, expected, strict=True):
        assert mine.tolist() == other.tolist()
    for mine, given in zip(nn.utils.rnn.unpack_sequence(packed), ours, strict=True):
        assert mine.tolist() == given.tolist()
    with pytest.raises(RuntimeError, match="greater than 0"):
        nn.utils.rnn.pack_padded_sequence(tracejit.ones(5, 2, 3), [2, 0])


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_steps_of_a_compiled_layer_are_loops_forward_and_backward(bidirectional: bool, name: str) -> None:
    tracejit.manual_seed(0)
    net = getattr(nn, name)(6, 8, bidirectional=bidirectional)

    def gradients(x: Any) -> Any:
        return tracejit.autograd.grad((net(x)[0] ** 2).mean(), [x, *net.parameters()])

    compiled = tracejit.compile(gradients, wait=True)
    for seed in range(3):
        tracejit.manual_seed(seed)
        x = tracejit.randn(40, 3, 6).requires_grad_()
        for replayed, eager in zip(compiled(x), gradients(x), strict=True):
            np.testing.assert_allclose(replayed.numpy(), eager.numpy(), rtol=1e-4, atol=1e-6)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 2
    assert len(re.findall(r"loop of \d+ steps", compiled.explain(verbose=True))) >= 2 + 2 * bidirectional, compiled.explain()
