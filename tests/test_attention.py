"""Attention and transformers beside PyTorch's: state, results and gradients, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers
from test_recurrent import compare, pair

import tracejit
from tracejit import nn

MASKS: dict[str, Any] = {
    "none": lambda f, batch: {},
    "bool": lambda f, batch: {"attn_mask": f.tensor([[False, True, True], [False, False, True]])},
    "float": lambda f, batch: {"attn_mask": f.tensor(numbers(2, 3, seed=9).tolist(), dtype=f.float64)},
    "padding": lambda f, batch: {"key_padding_mask": f.tensor([[False, False, True], [False, True, True]])} if batch else {},
    "both": lambda f, batch: {
        "attn_mask": f.tensor([[False, True, False], [False, False, True]]),
        "key_padding_mask": f.tensor([[False, False, True], [False, True, False]]),
    }
    if batch
    else {},
}  # fmt: skip


def framework(x: Any) -> Any:
    return tracejit if isinstance(x, tracejit.Tensor) else pytest.importorskip("torch")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 5, "vdim": 3}, {"batch_first": True}],
    ids=lambda o: "-".join(o) or "plain",
)
def test_multihead_attention_agrees_with_torch(options: dict[str, Any], mask: str) -> None:
    for need_weights in (True, False):
        for average in (True, False):
            ours, theirs = pair("MultiheadAttention", 4, 2, **options)
            lead = (lambda n: (2, n)) if options.get("batch_first") else (lambda n: (n, 2))
            shapes = (*lead(2), 4), (*lead(3), options.get("kdim", 4)), (*lead(3), options.get("vdim", 4))
            compare(
                ours,
                theirs,
                lambda m, q, k, v: m(
                    q, k, v, need_weights=need_weights, average_attn_weights=average, **MASKS[mask](framework(q), True)
                ),
                *[numbers(*shape, seed=i) for i, shape in enumerate(shapes)],
            )


def test_attention_to_itself_and_without_batch_agree_with_torch() -> None:
    ours, theirs = pair("MultiheadAttention", 4, 2)
    compare(ours, theirs, lambda m, x: m(x, x, x), numbers(3, 2, 4))
    ours, theirs = pair("MultiheadAttention", 4, 2)
    compare(ours, theirs, lambda m, q, k: m(q, k, k), numbers(2, 4), numbers(3, 4, seed=1))


def test_attention_masks_of_each_head_agree_with_torch() -> None:
    heads = numbers(4, 3, 3, seed=3) > 1.0
    ours, theirs = pair("MultiheadAttention", 4, 2)
    compare(ours, theirs, lambda m, x: m(x, x, x, attn_mask=framework(x).tensor(heads.tolist())), numbers(3, 2, 4))


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True}, {"activation": "gelu", "batch_first": True}, {"bias": False}],
    ids=lambda o: "-".join(o) or "plain",
)
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_transformer_layers_agree_with_torch(name: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(name, 4, 2, 6, dropout=0.0, **options)
    if "Encoder" in name:
        compare(ours, theirs, lambda m, x: m(x), numbers(3, 2, 4))
        return

    def run(module: Any, x: Any, memory: Any) -> Any:
        f = framework(x)
        mask = f.nn.Transformer.generate_square_subsequent_mask(x.shape[1 if options.get("batch_first") else 0]).double()
        return module(x, memory, tgt_mask=mask, tgt_is_causal=True)

    lead = (2, 3) if options.get("batch_first") else (3, 2)
    compare(ours, theirs, run, numbers(*lead, 4), numbers(2, 2, 4, seed=1))


def test_a_transformer_agrees_with_torch() -> None:
    ours, theirs = pair("Transformer", 4, 2, 2, 2, 6, dropout=0.0, batch_first=True)

    def run(module: Any, source: Any, target: Any) -> Any:
        f = framework(source)
        mask = module.generate_square_subsequent_mask(target.shape[1]).double()
        padding = f.tensor([[False, False, True], [False, False, False]])
        return module(source, target, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding)

    compare(ours, theirs, run, numbers(2, 3, 4), numbers(2, 2, 4, seed=1))


def test_new_layers_have_the_distributions_of_torch() -> None:
    torch = pytest.importorskip("torch")
    tracejit.manual_seed(0)
    torch.manual_seed(0)
    for name, arguments in (("MultiheadAttention", (64, 2)), ("TransformerEncoderLayer", (64, 2, 128)), ("LSTM", (32, 64))):
        ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
        for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            mine, other = p.detach().numpy(), q.detach().numpy()
            np.testing.assert_allclose(mine.mean(), other.mean(), atol=0.03, err_msg=key)
            np.testing.assert_allclose(mine.std(), other.std(), rtol=0.1, atol=1e-6, err_msg=key)


def test_a_compiled_encoder_is_the_eager_one() -> None:
    tracejit.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2, nn.LayerNorm(8))
    mask = nn.Transformer.generate_square_subsequent_mask(3)

    def loss(x: Any) -> Any:
        return (net(x, mask=mask, is_causal=True) ** 2).mean()

    compiled = tracejit.compile(loss)
    for seed in range(3):
        tracejit.manual_seed(seed)
        x = tracejit.randn(3, 2, 8)
        found = []
        for function in (loss, compiled):
            net.zero_grad()
            value = function(x)
            value.backward()
            found.append([value.detach().numpy(), *(p.grad.numpy() for p in net.parameters())])
        for eager, replayed in zip(*found, strict=True):
            np.testing.assert_allclose(replayed, eager, rtol=1e-5, atol=1e-6)
    assert compiled.stats.compiled_calls >= 1, compiled.explain()


def test_copied_layers_have_parameters_of_their_own() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 6)
    net = nn.TransformerEncoder(layer, 2)
    assert len({id(p) for p in net.parameters()}) == 2 * len(list(layer.parameters()))
    assert (net.layers[0].linear1.weight == layer.linear1.weight).all()


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(AssertionError, match="divisible by num_heads"):
        nn.MultiheadAttention(4, 3)
    attention = nn.MultiheadAttention(4, 2)
    x = tracejit.ones(3, 2, 4)
    with pytest.raises(RuntimeError, match="2D attn_mask"):
        attention(x, x, x, attn_mask=tracejit.ones(2, 2))
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        attention(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match="only bool and floating types"):
        attention(x, x, x, attn_mask=tracejit.ones(3, 3, dtype=tracejit.int64))
    assert attention(x, x, x, need_weights=False)[1] is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(64, 64), (1, 64), (2, 1, 64, 64), (3, 1, 1, 64, 64)])
def test_masked_scores_count_nothing_whatever_they_are(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (tracejit.from_numpy(rng.standard_normal((2, 3, 64, 4)).astype(dtype)) for _ in range(3))
    k[:, :, 0], k[:, :, 1] = float("inf"), float("nan")  # scores that are infinite, and that are no numbers
    mask = tracejit.from_numpy(rng.random(shape) < 0.5)
    mask[..., :2] = False
    attention = nn.functional.scaled_dot_product_attention
    rest = attention(q, k[:, :, 2:], v[:, :, 2:], mask[..., 2:])
    assert tracejit.allclose(attention(q, k, v, mask), rest, rtol=1e-5, atol=1e-6)


def test_a_mask_leaves_the_arguments_as_they_were() -> None:
    q, k, v = (tracejit.randn(2, 8, 4) for _ in range(3))
    mask = tracejit.rand(8, 8) < 0.5
    before = [x.clone() for x in (q, k, v, mask)]
    nn.functional.scaled_dot_product_attention(q, k, v, mask)
    assert all(tracejit.equal(x, y) for x, y in zip((q, k, v, mask), before, strict=True))
