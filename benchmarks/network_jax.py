"""Training steps of networks.py in JAX, where one writes them in a few lines: one function under jax.jit, in float32.

Parameters, in the order of the module's, and the optimizer's state go in and out of the jitted function; nothing is donated.
Imported only where JAX is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import tracejit
from benchmarks.network_models import ADAM_RATE, SGD_MOMENTUM, SGD_RATE, Network, Sizes, checked, data_of, start_of
from benchmarks.workload import Side

__all__ = ["FORWARD", "side"]

Forward = Callable[[list[Any], Any, Sizes], Any]


def _mlp(parameters: list[Any], x: Any, s: Sizes) -> Any:
    w1, b1, w2, b2 = parameters
    return jnp.tanh(x @ w1.T + b1) @ w2.T + b2


def _split(x: Any, heads: int) -> tuple[Any, Any, Any]:
    """q, k and v of (batch, tokens, 3 * channels), each (batch, heads, tokens, channels / heads)."""
    b, t, c = x.shape
    q, k, v = x.reshape(b, t, 3, heads, c // 3 // heads).transpose(2, 0, 3, 1, 4)
    return q, k, v


def _joined(x: Any) -> Any:
    b, h, t, c = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, t, h * c)


def _attention(parameters: list[Any], x: Any, s: Sizes) -> Any:
    w, b, w_outputs, b_outputs, w_head, b_head = parameters
    q, k, v = _split(x @ w.T + b, s["heads"])
    y = jax.nn.softmax(q @ k.swapaxes(-2, -1) * q.shape[-1] ** -0.5) @ v
    return (_joined(y) @ w_outputs.T + b_outputs).mean(1) @ w_head.T + b_head


def _norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + shift


def _gpt(parameters: list[Any], tokens: Any, s: Sizes) -> Any:
    token, position, *rest = parameters
    x = token[tokens] + position[: tokens.shape[1]]
    mask = jnp.tril(jnp.ones((tokens.shape[1], tokens.shape[1]), bool))
    for k in range(s["layers"]):
        n1, m1, n2, m2, wa, ba, wp, bp, we, be, wc, bc = rest[12 * k : 12 * k + 12]
        q, key, v = _split(_norm(x, n1, m1) @ wa.T + ba, s["heads"])
        scores = jnp.where(mask, q @ key.swapaxes(-2, -1) * q.shape[-1] ** -0.5, -jnp.inf)
        x = x + _joined(jax.nn.softmax(scores) @ v) @ wp.T + bp
        x = x + jax.nn.gelu(_norm(x, n2, m2) @ we.T + be) @ wc.T + bc
    scale, shift, head = rest[12 * s["layers"] :]
    return (_norm(x, scale, shift) @ head.T).reshape(-1, s["vocabulary"])


FORWARD: Final[dict[str, Forward]] = {"mlp": _mlp, "attention": _attention, "gpt": _gpt}


def side(network: Network, sizes: Sizes) -> Side | None:
    """The training step; None for a network that is not here."""
    if network.name not in FORWARD:
        return None
    forward = FORWARD[network.name]

    def loss_of(parameters: list[Any], x: Any, y: Any) -> Any:
        logits = forward(parameters, x, sizes)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def sgd(state: Any, gradients: Any) -> Any:
        parameters, momenta = state
        momenta = [SGD_MOMENTUM * m + g for m, g in zip(momenta, gradients, strict=True)]
        return [p - SGD_RATE * m for p, m in zip(parameters, momenta, strict=True)], momenta

    def adam(state: Any, gradients: Any) -> Any:
        parameters, count, first, second = state
        count = count + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
        rate, correction = ADAM_RATE / (1 - 0.9**count), 1 - 0.999**count
        updated = [p - rate * m / (jnp.sqrt(v / correction) + 1e-8) for p, m, v in zip(parameters, first, second, strict=True)]
        return updated, count, first, second

    update = adam if network.adam else sgd

    @jax.jit
    def step(state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state[0], x, y)
        return update(state, gradients), loss, checked(gradients)

    shapes = [tuple(p.shape) for p in network.build(tracejit, sizes).parameters()]
    parameters = [jnp.asarray(p) for p in start_of(shapes)]
    zeros = [jnp.zeros_like(p) for p in parameters]
    state: Any = (parameters, jnp.float32(0), zeros, zeros) if network.adam else (parameters, zeros)
    batch, labels = data_of(network, sizes)
    x = jnp.asarray(batch)
    following = itertools.cycle([jnp.asarray(y, jnp.int32) for y in labels]).__next__

    def run() -> Any:
        nonlocal state
        state, loss, gradients = jax.block_until_ready(step(state, x, following()))
        return loss, gradients

    def results(returned: Any) -> list[np.ndarray]:
        loss, gradients = returned
        return [np.array(loss), *map(np.array, gradients)]

    return Side(run, results)
