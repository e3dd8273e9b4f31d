"""Packed sequences: what they were packed of goes with them, so that one recording serves all lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit import nn
from tracejit.functional import cross_entropy, packing
from tracejit.nn.utils import rnn

STEPS, CALLS = 6, 10
T.manual_seed(0)
embedding, head = nn.Embedding(20, 4), nn.Linear(6, 3)
taggers = {name: getattr(nn, name)(4, 3, batch_first=True, bidirectional=True) for name in ("LSTM", "GRU", "RNN")}
projected = nn.LSTM(4, 5, proj_size=3, batch_first=True)
rectified = nn.RNN(4, 3, nonlinearity="relu", batch_first=True)


def lengths_of(call: int, batch: int = 4) -> list[int]:
    return np.random.default_rng(call).integers(1, STEPS + 1, batch).tolist()


def inputs(call: int, tight: bool = False) -> tuple[T.Tensor, T.Tensor]:
    """Tokens and lengths, padded to the longest or to a fixed number of steps."""
    lengths = lengths_of(call)
    tokens = np.random.default_rng(call + 100).integers(0, 20, (4, max(lengths) if tight else STEPS))
    return T.tensor(tokens), T.tensor(lengths)


def packed(tokens: T.Tensor, lengths: Any) -> Any:
    return rnn.pack_padded_sequence(embedding(tokens), lengths, batch_first=True, enforce_sorted=False)


def classified(name: str) -> Callable[..., Any]:
    def loss_and_gradients(tokens: T.Tensor, lengths: Any) -> Any:
        _, last = taggers[name](packed(tokens, lengths))
        hidden = last[0] if name == "LSTM" else last
        features = T.cat([hidden[-2], hidden[-1]] if name != "LSTM" else [hidden[-1], last[1][-1]], 1)
        loss = cross_entropy(head(features), tokens[:, 0] % 3)
        return loss, *T.autograd.grad(loss, (embedding.weight, *taggers[name].parameters()))

    return loss_and_gradients


def tagged(tokens: T.Tensor, lengths: Any) -> Any:
    out, _ = taggers["GRU"](packed(tokens, lengths))
    padded, sizes = rnn.pad_packed_sequence(out, batch_first=True, padding_value=-1.0, total_length=tokens.shape[1])
    inside = T.arange(tokens.shape[1]) < sizes[:, None]
    return (head(padded).log_softmax(-1)[..., 0] * inside).sum() / inside.sum(), padded, sizes


def sorted_before(tokens: T.Tensor, lengths: Any) -> Any:
    lengths, order = lengths.sort(descending=True)
    sequences = rnn.pack_padded_sequence(embedding(tokens[order]), lengths, batch_first=True)
    return rnn.pad_packed_sequence(taggers["LSTM"](sequences)[0])


def same(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("program", "tight", "convert", "traces"),
    [
        (classified("LSTM"), False, None, 1),
        (classified("GRU"), False, T.Tensor.tolist, 1),
        (classified("RNN"), False, None, 1),
        (classified("LSTM"), True, None, 2),
        (tagged, False, None, 1),
        (sorted_before, False, None, 3),
    ],
)
def test_batches_of_many_lengths_have_few_recordings(program: Any, tight: bool, convert: Any, traces: int) -> None:
    compiled = T.compile(program, wait=True)
    for call in range(CALLS):
        tokens, lengths = inputs(call, tight)
        given = lengths if convert is None else convert(lengths)
        same(compiled(tokens, given), program(tokens, given))
    assert compiled.stats.traces <= traces and compiled.stats.compiled_calls >= CALLS - traces - 1, compiled.explain()


def rewrapped(tokens: T.Tensor, lengths: Any) -> Any:
    sequences = rnn.pack_padded_sequence(tokens, lengths, batch_first=True, enforce_sorted=False)
    sequences = rnn.PackedSequence(embedding(sequences.data), *sequences[1:])
    return taggers["GRU"](sequences)[1], sequences.data.shape[0] * T.ones(1)


def changed(tokens: T.Tensor, lengths: Any) -> Any:
    sequences = packed(tokens, lengths)
    with T.no_grad():
        sequences.data.mul_(2)
    out, last = taggers["GRU"](sequences)
    return out.data, last


def data_and_state(tokens: T.Tensor, lengths: Any) -> Any:
    out, last = taggers["GRU"](packed(tokens, lengths))
    loss = head(out.data).square().sum() + last.sum()
    return loss, *T.autograd.grad(loss, (embedding.weight, *taggers["GRU"].parameters()))


def taken_apart(tokens: T.Tensor, lengths: Any) -> Any:
    data, sizes, order, positions = packed(tokens, lengths)
    return data * 2, sizes, order, positions, T.zeros_like(data), T.zeros(len(sizes))


def returned(tokens: T.Tensor, lengths: Any) -> Any:
    return taggers["LSTM"](packed(tokens, lengths))[0]


def other_layers(tokens: T.Tensor, lengths: Any) -> Any:
    sequences = packed(tokens, lengths)
    return projected(sequences)[1][0], rectified(sequences)[1]


@pytest.mark.parametrize("program", [rewrapped, changed, data_and_state, taken_apart, returned, other_layers])
def test_who_looks_at_the_data_gets_as_many_as_there_are(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    for call in (0, 1, 0, 1):
        tokens, lengths = inputs(call)
        same(compiled(tokens, lengths), program(tokens, lengths))
    assert compiled.stats.compiled_calls >= 2, compiled.explain()


def test_a_returned_packed_sequence_is_one_in_eager_mode() -> None:
    compiled = T.compile(returned, wait=True)
    for call in (0, 1, 1):
        found = compiled(*inputs(call))
        assert isinstance(found, rnn.PackedSequence)
        same(rnn.pad_packed_sequence(found), rnn.pad_packed_sequence(returned(*inputs(call))))


def test_packed_sequences_are_arguments() -> None:
    def last(sequences: Any) -> Any:
        out, state = taggers["GRU"](sequences)
        return state, *rnn.pad_packed_sequence(out, total_length=STEPS)

    compiled = T.compile(last, wait=True)
    for call in range(8):
        sequences = packed(*inputs(call))
        same(compiled(sequences), last(sequences))
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 7, compiled.explain()
    for change in (lambda x: x * 2, lambda x: x.detach().mul_(3)):
        for _ in range(2):
            sequences = packed(*inputs(3))
            sequences = rnn.PackedSequence(change(sequences.data), *sequences[1:])
            same(compiled(sequences), last(sequences))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_what_is_behind_the_ends_changes_nothing(name: str, bidirectional: bool) -> None:
    layer = getattr(nn, name)(4, 3, bidirectional=bidirectional)
    values, lengths = T.randn(5, 3, 4), [2, 5, 1]
    found = []
    for filling in (0.0, float("nan"), float("inf")):
        x = values.clone()
        for i, length in enumerate(lengths):
            x[length:, i] = filling
        x.requires_grad_()
        out, _ = layer(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        padded, _ = rnn.pad_packed_sequence(out)
        found.append(T.autograd.grad(padded.sin().sum(), (x, *layer.parameters())))
    for gradients in found[1:]:
        same(gradients, found[0])


def test_sequences_of_a_list_are_packed_by_few_recordings() -> None:
    def last(sequences: list[T.Tensor]) -> Any:
        return taggers["GRU"](rnn.pack_sequence(sequences, enforce_sorted=False))[1]

    compiled = T.compile(last, wait=True)
    for call in range(14):
        sequences = [T.randn(length, 4) for length in lengths_of(call, 2)]
        same(compiled(sequences), last(sequences))
    assert compiled.stats.traces <= 9 and compiled.stats.compiled_calls >= 5, compiled.explain()


def test_errors_are_those_of_eager_mode() -> None:
    def caught(tokens: T.Tensor, lengths: Any) -> str:
        try:
            rnn.pack_padded_sequence(tokens, lengths, batch_first=True)
        except RuntimeError as error:
            return str(error)
        return "packed"

    compiled, tokens = T.compile(caught), T.ones(3, 4)
    for lengths in ([3, 2, 1], [4, 4, 4], [1, 2, 3], [3, 0, 0], [5, 1, 1], [2, 2, 1], [4, 2, 1]):
        given = T.tensor(lengths)
        assert compiled(tokens, given) == caught(tokens, given)
    assert caught(tokens, [2, 1]).startswith("Expected `len(lengths)` to be equal to batch_size")
    assert caught(tokens, [1, 2, 3]).startswith("`lengths` array must be sorted")
    assert caught(tokens, [5, 2, 1]).endswith("expected lengths of at most 4, got 5")


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.just([k * 7 % 11 for k in range(600)])))
def test_the_order_by_length_is_the_stable_one(lengths: list[int]) -> None:
    order, positions = packing.descending(T.tensor(lengths))
    assert order.tolist() == np.argsort(-np.array(lengths), kind="stable").tolist()
    assert positions.tolist() == np.argsort(order.numpy()).tolist()


def test_sequences_of_integers_are_integers_again() -> None:
    packed = rnn.pack_sequence([T.tensor([3, 1]), T.tensor([2])])
    for value in (0.0, -1.0):
        values, _ = rnn.pad_packed_sequence(packed, padding_value=value)
        assert values.dtype is T.int64 and values.tolist() == [[3, 2], [1, int(value)]]
