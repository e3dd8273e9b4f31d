"""Tensors with a dimension whose size depends on data: one recording serves all sizes, where nothing asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
import tracejit.functional as F
from tracejit import nn
from tracejit.nn.utils import rnn

BATCH, STEPS, CALLS = 4, 6, 7
T.manual_seed(0)
embedding, head, scores = nn.Embedding(20, 5, padding_idx=0), nn.Linear(5, 6), nn.Linear(5, 3)
tagger, encoder = nn.LSTM(5, 3, batch_first=True, bidirectional=True), nn.GRU(6, 3, batch_first=True)
projected, rectified = (
    nn.LSTM(5, 4, proj_size=3, batch_first=True),
    nn.RNN(5, 4, nonlinearity="relu", batch_first=True, bidirectional=True),
)
norm = nn.LayerNorm(6)
weight = T.randn(6).requires_grad_()
scale = (T.rand(5) + 1).requires_grad_()


def batch(call: int, tight: bool = False) -> tuple[T.Tensor, T.Tensor]:
    """Tokens, zeros behind the ends, and lengths; padded to the longest, or to a fixed number of steps."""
    generator = np.random.default_rng(call)
    lengths = generator.integers(2, STEPS + 1, BATCH)
    steps = int(lengths.max()) if tight else STEPS
    tokens = generator.integers(1, 20, (BATCH, steps))
    tokens[np.arange(steps) >= lengths[:, None]] = 0
    return T.tensor(tokens), T.tensor(lengths)


parameters = [
    *[p for m in (embedding, head, scores, tagger, encoder, norm, projected, rectified) for p in m.parameters()],
    weight,
    scale,
]


def with_gradients(program: Callable[..., Any]) -> Callable[..., Any]:
    def loss_and_gradients(*given: Any) -> Any:
        loss, *others = program(*given)
        return loss, *others, *T.autograd.grad(loss, parameters, allow_unused=True)

    return loss_and_gradients


def same(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, theirs, strict=True):
        if b is None:
            assert a is None
            continue
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def packed(values: T.Tensor, lengths: Any) -> Any:
    return rnn.pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)


def rewrapped(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    sequences = packed(embedding(tokens), lengths)
    sequences = rnn.PackedSequence(norm(head(sequences.data)).relu(), *sequences[1:])
    out, last = encoder(sequences)
    padded, _ = rnn.pad_packed_sequence(out, batch_first=True, total_length=tokens.shape[1])
    return padded.square().sum() + last.sum(), padded


def embedded(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    sequences = packed(tokens, lengths)
    _, (last, _) = tagger(rnn.PackedSequence(embedding(sequences.data), *sequences[1:]))
    return last.square().sum(), last


def tagged(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    out, _ = tagger(packed(embedding(tokens), lengths))
    targets = packed(tokens, lengths).data % 3
    logits = out.data * 2.0
    loss = F.cross_entropy(logits, targets)
    return loss, (logits.argmax(-1) == targets).float().mean()


def pieces(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    parts = rnn.unpad_sequence(embedding(tokens), lengths, batch_first=True)
    return (T.stack([head(part).tanh().mean(0) for part in parts]).square().sum(),)


def unpacked(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    out, _ = tagger(packed(embedding(tokens), lengths))
    return (T.stack([part.max(0).values for part in rnn.unpack_sequence(out)]).square().sum(),)


def means(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    x = embedding(tokens)
    return (T.stack([x[i, :n].mean(0) for i, n in enumerate(lengths)]).square().sum(),)


def extremes(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    x = head(embedding(tokens))
    rows = [x[i][:n] for i, n in enumerate(lengths.tolist())]
    found = T.stack([row.amax(0) - row.min(0)[0] + row.logsumexp(0) * row.max() for row in rows])
    return found.sum(), found


def attended(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    x = embedding(tokens)
    found = []
    for i, n in enumerate(lengths.tolist()):
        row = x[i, :n]
        weights = (row @ scale).softmax(0)
        found.append((weights * row.sum(1)).sum())
    return (T.stack(found).square().sum(),)


def masked(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    x, inside = embedding(tokens), tokens != 0
    rows = x[inside]
    return ((head(rows).log_softmax(-1) * weight).mean() + (rows / scale).abs().sqrt().sum(),)


def classified(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    logits, inside = scores(embedding(tokens)), T.arange(tokens.shape[1]) < lengths[:, None]
    loss = F.cross_entropy(logits[inside], (tokens % 3)[inside], label_smoothing=0.1)
    return loss, (logits[inside].argmax(1) == tokens[inside] % 3).float().mean()


def compared(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    x, inside = embedding(tokens), tokens != 0
    ours, theirs = x.sum(-1)[inside], tokens.float()[inside]
    losses = F.mse_loss(ours, theirs) + F.smooth_l1_loss(ours, theirs, reduction="sum")
    return (losses + F.binary_cross_entropy_with_logits(ours, theirs / 20),)


def logarithms(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    """Functions that are infinite where the rows outside hold zeros, and whose derivatives are, too."""
    rows = head(embedding(tokens)).exp()[tokens != 0]
    return ((rows.log() * weight + weight / rows + rows.sqrt() * weight).sum() + (rows.log() @ head.weight).sum(),)


def joined(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    x = embedding(tokens)
    rows = T.cat([x[i, :n] for i, n in enumerate(lengths.tolist())])
    return rows.square().mean(), rows.var(0), rows[:, 0].sum()


def other_layers(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    sequences = packed(embedding(tokens), lengths)
    return projected(sequences)[1][0].square().sum() + rectified(sequences)[0].data.square().mean(), rectified(sequences)[1]


def positions(tokens: T.Tensor, lengths: T.Tensor) -> Any:
    flat = embedding(tokens).flatten(0, 1)
    positions = (tokens.flatten() != 0).nonzero().squeeze(1)
    chosen = flat[positions] * scale
    return chosen.sum() + T.masked_select(flat.sum(1), tokens.flatten() != 0).exp().mean(), chosen.unsqueeze(1).mean(0)


ONCE: list[Callable[..., Any]] = [
    rewrapped, embedded, tagged, pieces, unpacked, means, extremes, attended, masked, classified, compared, logarithms, joined,
    other_layers, positions,
]  # fmt: skip


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("program", ONCE)
def test_one_recording_serves_all_lengths(program: Any, tight: bool) -> None:
    compiled, eager = T.compile(with_gradients(program), wait=True), with_gradients(program)
    for call in range(CALLS):
        given = batch(call, tight)
        same(compiled(*given), eager(*given))
    traces = 3 if tight else 2 if program is unpacked else 1  # its size is that of the longest sequence, or not
    assert compiled.stats.traces <= traces and compiled.stats.compiled_calls >= CALLS - traces, compiled.explain()


@pytest.mark.parametrize("program", [tagged, means, extremes, masked, logarithms])
def test_gradients_may_be_taken_outside(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    for call in range(4):
        given = batch(call)
        found = [T.autograd.grad(function(*given)[0], parameters, allow_unused=True) for function in (compiled, program)]
        same(*found)
    assert compiled.stats.compiled_calls == 3, compiled.explain()


@pytest.mark.parametrize("given", [T.Tensor.tolist, lambda lengths: lengths, lambda lengths: tuple(lengths.tolist())])
def test_parts_of_lengths_that_arguments_tell_have_few_recordings(given: Any) -> None:
    def program(x: T.Tensor, lengths: Any, numbers: Any) -> Any:
        parts = T.split(x, lengths.tolist() if isinstance(lengths, T.Tensor) else list(lengths))
        table = x[:12].reshape(4, 3, 5)
        return T.stack([scores(part).tanh().sum(0) for part in parts]), T.stack(
            [table[i, :n].mean(0) for i, n in enumerate(numbers)]
        )

    compiled = T.compile(program, wait=True)
    for call in range(12):
        lengths = T.tensor(np.random.default_rng(call).integers(3, 7, BATCH))
        x = T.randn(int(lengths.sum()), 5)
        arguments = x, given(lengths), given(lengths % 3 + 1)
        same(compiled(*arguments), program(*arguments))
    assert compiled.stats.traces <= 4 and compiled.stats.compiled_calls >= 8, compiled.explain()


def test_a_split_into_other_sizes_than_there_are_raises_as_in_eager_mode() -> None:
    def program(x: T.Tensor, lengths: T.Tensor) -> Any:
        return T.stack([part.sum() for part in T.split(x, lengths.tolist())])

    compiled, x = T.compile(program, wait=True), T.randn(9)
    for lengths in ([3, 4, 2], [1, 0, 8], [9, 0, 0]):
        same([compiled(x, T.tensor(lengths))], [program(x, T.tensor(lengths))])
    for lengths in ([3, 4, 3], [1, 1, 1], [-1, 5, 5]):
        with pytest.raises(Exception) as theirs:
            program(x, T.tensor(lengths))
        with pytest.raises(type(theirs.value)) as ours:
            compiled(x, T.tensor(lengths))
        assert str(ours.value) == str(theirs.value)


def asks_size(x: T.Tensor, mask: T.Tensor) -> Any:
    rows = x[mask] * 2
    return rows.sum() / rows.shape[0], T.zeros_like(rows), T.arange(len(rows))


def returns_rows(x: T.Tensor, mask: T.Tensor) -> Any:
    rows = x[mask].exp()
    return rows.sum(), rows


def writes_rows(x: T.Tensor, mask: T.Tensor) -> Any:
    rows = x[mask] * 3
    rows.add_(1)
    return rows.mean(), rows


def mask_changes(x: T.Tensor, mask: T.Tensor) -> Any:
    mask = mask.clone()
    before = x[mask].sum(0)
    mask[0] = ~mask[0]
    return before, x[mask].sum(0), x[mask].exp().mean()


def source_changes(x: T.Tensor, mask: T.Tensor) -> Any:
    x = x.clone()
    n = mask.sum()
    part = x[:n]
    before = part.sum()
    x.mul_(2)
    return before, part.sum(), part.exp().mean(0)


def slice_changes(x: T.Tensor, mask: T.Tensor) -> Any:
    x = x.clone()
    part = x[: mask.sum()]
    before = part.sum()
    part.mul_(2)
    return before, part.sum(), x.sum(), x


def returned_slice(x: T.Tensor, mask: T.Tensor) -> Any:
    x = x.clone()
    part = x[: mask.sum()]
    return x, part, part.sum()


def sizes(x: T.Tensor, mask: T.Tensor) -> Any:
    rows = x[mask]
    if rows.shape[0] == 0:
        return (x.sum(),)
    return rows.sum() / rows.shape[0], rows.mean() * len(rows), rows.sum() / rows.numel() * rows.size(1)


def two_masks(x: T.Tensor, mask: T.Tensor) -> Any:
    other = ~mask if bool(mask.sum() * 2 >= len(mask)) else mask
    return x[mask].sum() + x[other].sum(), x[mask].mean() * x[(x > 0).any(1)].mean()


def of_gradient(x: T.Tensor, mask: T.Tensor) -> Any:
    x = x.detach().requires_grad_()
    rows = x[mask]
    loss = (rows**3).sum()
    (inner,) = T.autograd.grad(loss, rows, create_graph=True)
    (outer,) = T.autograd.grad((inner**2).sum(), x)
    return loss, inner, outer


def with_hooks(x: T.Tensor, mask: T.Tensor) -> Any:
    x = x.detach().requires_grad_()
    seen: list[T.Tensor] = []
    rows = x[mask].exp()
    loss = (rows * 2).sin().sum()
    rows.register_hook(lambda g: seen.append(g.sum()))
    rows.retain_grad()
    loss.backward()
    return loss, x.grad, rows.grad, seen[0]


def second_derivatives(x: T.Tensor, mask: T.Tensor) -> Any:
    x = x.detach().requires_grad_()
    (first,) = T.autograd.grad((x[mask].tanh() ** 2).sum(), x, create_graph=True)
    (second,) = T.autograd.grad((first**2).sum(), x)
    return first, second


def not_finite(x: T.Tensor, mask: T.Tensor) -> Any:
    x = T.where(mask[:, None], x, float("nan"))
    rows = x[mask]
    return rows.sum(0), rows.mean(), rows.amax(0), (rows * T.tensor([1.0, 2.0, 0.0])).sum()


OTHERS: list[Callable[..., Any]] = [
    asks_size, sizes, returns_rows, writes_rows, mask_changes, source_changes, slice_changes, returned_slice, two_masks, of_gradient,
    with_hooks,    second_derivatives, not_finite,
]  # fmt: skip


@pytest.mark.parametrize("program", OTHERS)
def test_whoever_looks_at_a_ragged_tensor_finds_what_eager_mode_has(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    for call in (0, 1, 2, 0, 1, 2, 3):
        generator = np.random.default_rng(call)
        x, mask = T.tensor(generator.standard_normal((6, 3)).astype("f4")), T.tensor(generator.random(6) < 0.7)
        same(compiled(x, mask), program(x, mask))
    assert compiled.stats.compiled_calls, compiled.explain()


@pytest.mark.parametrize("writes_source", [False, True])
def test_writes_to_what_a_backward_pass_needs_are_found_as_in_eager_mode(writes_source: bool) -> None:
    def program(x: T.Tensor, n: T.Tensor) -> Any:
        x = x * 1.0
        rows = x[:n]
        found = rows.exp()
        loss = (rows * rows).sum() + found.sum()
        (x if writes_source else found).mul_(2)
        return loss, rows.sum(), found.sum()

    compiled = T.compile(program, wait=True)
    for n in (3, 2, 3, 2):
        x = T.randn(6, 3).requires_grad_()
        ours, theirs = compiled(x, T.tensor(n)), program(x, T.tensor(n))
        same(ours, theirs)
        for loss in (ours[0], theirs[0]):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


def test_slices_are_slices_when_a_recording_ends_in_the_middle() -> None:
    def program(x: T.Tensor, n: T.Tensor) -> Any:
        x = x * 1.0
        rows = x[:n]
        before = rows.sum()
        T.seed()  # which no recording can have
        x.mul_(2)
        return before, rows.sum()

    compiled = T.compile(program, wait=True)
    for n in (3, 2):
        x = T.randn(6, 3)
        same(compiled(x, T.tensor(n)), program(x, T.tensor(n)))


def test_empty_and_sparse_selections() -> None:
    def program(x: T.Tensor, mask: T.Tensor) -> Any:
        rows = x[mask]
        return rows.sum(0), rows.exp().sum(), rows.mean()

    compiled, x = T.compile(program, wait=True), T.randn(6, 3)
    for count in (6, 0, 5, 1, 6, 0, 1):
        mask = T.arange(6) < count
        same(compiled(x, mask), program(x, mask))
    assert compiled.stats.traces == 1, compiled.explain()


def test_a_slice_up_to_a_negative_or_too_large_number() -> None:
    def program(x: T.Tensor, n: T.Tensor) -> Any:
        return x[:n].sum(0), x[:n].exp().sum()

    compiled, x = T.compile(program, wait=True), T.randn(6, 3)
    for n in (3, -2, 9, 0, -9, 6, 2, -1):
        same(compiled(x, T.tensor(n)), program(x, T.tensor(n)))
    assert compiled.stats.traces == 1, compiled.explain()


def test_maxima_of_no_rows_raise_as_in_eager_mode() -> None:
    def program(x: T.Tensor, n: T.Tensor) -> Any:
        return x[:n].amax(0)

    compiled, x = T.compile(program, wait=True), T.randn(6, 3)
    for n in (3, 2, 5):
        same([compiled(x, T.tensor(n))], [program(x, T.tensor(n))])
    with pytest.raises(Exception) as theirs:
        program(x, T.tensor(0))
    with pytest.raises(type(theirs.value)) as ours:
        compiled(x, T.tensor(0))
    assert str(ours.value) == str(theirs.value)


# -- writes of what a mask selects
def scaled_where(x: Any, y: Any) -> Any:
    x = x.clone()
    x[x < 0] *= -0.9
    return x, y


def taken_over(x: Any, y: Any) -> Any:
    mask = x < y
    x[mask] = y[mask] * 2 + 1
    return x, mask


def bounced(x: Any, y: Any) -> Any:
    for _ in range(5):
        y = y - 0.3
        x = x + y
        below = x < 0
        x[below] = -x[below]
        y[below] *= -0.9
    return x, y


def rows_where(x: Any, y: Any) -> Any:
    mask = x.sum(1) > 0
    x[mask] += y[mask]
    x[mask] -= 1.0
    return x, mask


def used_afterwards(x: Any, y: Any) -> Any:
    mask = x > 0
    before = x[mask]
    x[mask] = y[mask]
    x.mul_(2.0)
    return before.sum(), x, x[mask].sum()


def of_a_view(x: Any, y: Any) -> Any:
    column = x[:, 0]
    column[column < 0] = 0.0 - column[column < 0]
    return x, y


def infinite(x: Any, y: Any) -> Any:
    mask = x > 0
    x[mask] = (x[mask]).log() + 1 / x[mask]
    return x, y


def differentiated(x: Any, y: Any) -> Any:
    x = x * 1.0
    mask = x.detach() > 0
    x[mask] = x[mask] * y[mask]
    return (x * x).sum(), y


WRITES: dict[Any, Callable[[int], tuple[Any, ...]]] = {
    scaled_where: lambda k: (numbers(k, 40), numbers(k + 50, 40)),
    taken_over: lambda k: (numbers(k, 5, 8), numbers(k + 50, 5, 8)),
    bounced: lambda k: (numbers(k, 40).abs(), numbers(k + 50, 40)),
    rows_where: lambda k: (numbers(k, 20, 3), numbers(k + 50, 20, 3)),
    used_afterwards: lambda k: (numbers(k, 40), numbers(k + 50, 40)),
    of_a_view: lambda k: (numbers(k, 30, 2), numbers(k, 2)),
    infinite: lambda k: (numbers(k, 40), numbers(k, 2)),
    differentiated: lambda k: (numbers(k, 40).requires_grad_(), numbers(k + 50, 40)),
}


def numbers(call: int, *shape: int) -> Any:
    return T.tensor(np.random.default_rng(call).normal(size=shape))


@pytest.mark.parametrize("program", WRITES, ids=lambda f: f.__name__)
def test_one_recording_serves_writes_of_what_a_mask_selects(program: Any) -> None:
    compiled = T.compile(program)
    for k in range(8):
        results = []
        for function in (program, compiled):
            given = WRITES[program](k)
            found = function(*given)
            if found[0].requires_grad:
                found[0].backward()
            results.append([*found, *given, *[x.grad for x in given if x.is_leaf and x.grad is not None]])
        for a, b in zip(*results, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
    assert compiled.stats.traces <= 2, compiled.explain()


@pytest.mark.parametrize("dtype", [T.float32, T.float64])
def test_selected_rows_keep_the_sign_of_zero_in_the_recorded_call_too(dtype: Any) -> None:
    def program(x: Any) -> Any:
        x[x < 0.5] = -x[x < 0.5]
        return 1 / x[x < 0.5], x.sum()

    compiled = T.compile(program)
    for k in range(5):
        x, y = [T.tensor([0.0, 2.0 + k, -0.0, 0.0, 3.0], dtype=dtype) for _ in range(2)]
        expected, found = program(x), compiled(y)
        np.testing.assert_array_equal(found[0].numpy(), expected[0].numpy())
        np.testing.assert_array_equal(np.signbit(y.numpy()), np.signbit(x.numpy()))
        assert found[1].item() == expected[1].item()
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 4, compiled.explain()


def selected_twice(x: Any) -> Any:
    part = x[x > 0]
    other = part
    part *= 2
    return other.sum(), part.sum()


def with_a_view(x: Any) -> Any:
    part = x[x > 0]
    first = part[:1]
    part *= 2
    return first.sum(), part.sum()


def broadcast(x: Any) -> Any:
    part = x.reshape(-1, 1)[x > 0]
    try:
        part *= T.ones(3, dtype=T.float64)
    except RuntimeError as error:
        return part.sum(), T.tensor(len(str(error)))
    return part, x


def of_integers(x: Any) -> Any:
    count = (x * 10).long()
    count[count > 0] *= 3
    return count, x


def another_mask(x: Any) -> Any:
    x = x.clone()
    x[x.flip(0) > 0] = x[x > 0]
    return x, x.sum()


@pytest.mark.parametrize("program", [selected_twice, with_a_view, broadcast, of_integers, another_mask], ids=lambda f: f.__name__)
def test_ragged_tensors_that_are_changed_in_place_are_what_eager_mode_has(program: Any) -> None:
    compiled = T.compile(program)
    for k in range(6):
        x = numbers(k, 40)
        x = T.cat([x, -x.flip(0)])  # as many above zero as below, in whatever order
        for a, b in zip(program(x), compiled(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
