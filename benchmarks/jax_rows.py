"""The rows in JAX: the same computations under jax.jit, in float32, each call waited for.

Imported only for `--peers jax`.  Parameters of training steps go in and out of the jitted function; nothing is donated.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import elementwise, loops, models, modules, statistics_rows, training
from benchmarks.training import ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON, ADAM_RATE, SGD_RATE, Sizes
from benchmarks.workload import Side

__all__ = ["SIDES"]


def _arrays(results: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(results)]


def _side(function: Callable[..., Any], *arguments: Any) -> Side:
    jitted = jax.jit(function)
    placed = jax.block_until_ready(jax.tree_util.tree_map(jnp.asarray, arguments))
    return Side(lambda: jax.block_until_ready(jitted(*placed)), _arrays)


def _latency() -> Side:
    return _side(lambda a, b: a * b + 1, *elementwise.latency_inputs())


def _gelu(n: int) -> Side:
    def value(x: Any) -> Any:
        cubic = x + elementwise.GELU_WEIGHT * x * x * x
        y = 0.5 * x * (1 + jnp.tanh(elementwise.GELU_SLOPE * cubic))
        return (y * jnp.exp(-y * y)).sum()

    return _side(jax.value_and_grad(value), elementwise.gelu_input(n))


def _mlp(sizes: Sizes, adam: bool) -> Side:
    batch, labels, start = training.initial(sizes)

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = parameters
        logits = jnp.tanh(x @ w1.T + b1) @ w2.T + b2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    @jax.jit
    def sgd_step(state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state, x, y)
        return [p - SGD_RATE * g for p, g in zip(state, gradients, strict=True)], loss

    @jax.jit
    def adam_step(state: Any, x: Any, y: Any) -> Any:
        count, parameters, first, second = state
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        count = count + 1
        first = [ADAM_BETA1 * m + (1 - ADAM_BETA1) * g for m, g in zip(first, gradients, strict=True)]
        second = [ADAM_BETA2 * v + (1 - ADAM_BETA2) * g * g for v, g in zip(second, gradients, strict=True)]
        rate, correction = ADAM_RATE / (1 - ADAM_BETA1**count), 1 - ADAM_BETA2**count
        parameters = [
            p - rate * m / (jnp.sqrt(v / correction) + ADAM_EPSILON) for p, m, v in zip(parameters, first, second, strict=True)
        ]
        return (count, parameters, first, second), loss

    placed = [jnp.asarray(p) for p in start]
    zeros = [jnp.zeros_like(p) for p in placed]
    state: Any = (jnp.float32(0), placed, zeros, zeros) if adam else placed
    step = adam_step if adam else sgd_step
    x = jnp.asarray(batch)
    following = itertools.cycle([jnp.asarray(y, jnp.int32) for y in labels]).__next__

    def run() -> Any:
        nonlocal state
        state, loss = jax.block_until_ready(step(state, x, following()))
        return loss

    def results(loss: Any) -> list[np.ndarray]:
        parameters = state[1] if adam else state
        return [np.asarray(loss), *(np.asarray(p) - before for p, before in zip(parameters, start, strict=True))]

    return Side(run, results)


def _rnn(hidden: int) -> Side:
    sequence, parameters = models.rnn_inputs(hidden)

    def value(parameters: Any, x: Any) -> Any:
        wx, wh, bias = parameters
        h = jnp.zeros((1, hidden), jnp.float32)
        for t in range(models.RNN_STEPS):
            h = jnp.tanh(x[t] @ wx + h @ wh + bias)
        return (h * h).sum()

    return _side(jax.value_and_grad(value), parameters, sequence)


def _loop_rnn(length: int) -> Side:
    sequence, parameters = loops.rnn_inputs(length)

    def value(parameters: Any, xs: Any) -> Any:
        wx, wh, bias = parameters
        h, _ = jax.lax.scan(lambda h, x: (jnp.tanh(x @ wx + h @ wh + bias), None), jnp.zeros((1, wh.shape[0]), jnp.float32), xs)
        return (h * h).sum()

    return _side(jax.value_and_grad(value), parameters, sequence)


def _loop_lstm() -> Side:
    sequence, parameters = loops.lstm_inputs()

    def value(parameters: Any, xs: Any) -> Any:
        w_input, w_hidden, b_input, b_hidden = parameters

        def step(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ w_input.T + b_input + h @ w_hidden.T + b_hidden, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((loops.LSTM_BATCH, loops.LSTM_HIDDEN), jnp.float32)
        _, states = jax.lax.scan(step, (zero, zero), xs)
        return (states**2).mean()

    return _side(jax.value_and_grad(value), parameters, sequence)


def _loop_runge() -> Side:
    matrix, start = loops.runge_inputs()
    size = loops.RUNGE_STEP

    def value(w: Any, start: Any) -> Any:
        def step(y: Any, _: Any) -> Any:
            k1 = -jnp.tanh(w @ y)
            k2 = -jnp.tanh(w @ (y + size / 2 * k1))
            k3 = -jnp.tanh(w @ (y + size / 2 * k2))
            k4 = -jnp.tanh(w @ (y + size * k3))
            return y + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        y, _ = jax.lax.scan(step, start, None, loops.RUNGE_STEPS)
        return (y * y).sum()

    return _side(jax.value_and_grad(value), matrix, start)


def _norm() -> Side:
    x, weighting, scale, shift = models.norm_inputs()

    def value(parameters: Any, weighting: Any) -> Any:
        x, scale, shift = parameters
        centred = x - x.mean(1, keepdims=True)
        normal = centred * jax.lax.rsqrt((centred * centred).mean(1, keepdims=True) + models.NORM_EPSILON)
        return (jax.nn.softmax(normal * scale + shift) * weighting).sum()

    return _side(jax.value_and_grad(value), [x, scale, shift], weighting)


def _conditional() -> Side:
    inputs, (w1, b1, w2, b2) = models.conditional_inputs()

    @jax.jit
    def forward(x: Any) -> Any:
        h = x @ w1.T + b1
        h = jax.lax.cond(h.sum() > 0, jnp.tanh, jnp.negative, h)
        return h @ w2.T + b2

    following = itertools.cycle([jnp.asarray(x) for x in inputs]).__next__
    return Side(lambda: jax.block_until_ready(forward(following())), _arrays)


def _logistic() -> Side:
    x, outcomes, coefficients = statistics_rows.logistic_inputs()

    def log_density(coefficients: Any, x: Any, outcomes: Any) -> Any:
        logits = x @ coefficients
        return (outcomes * logits - jax.nn.softplus(logits)).sum() - 0.5 * (coefficients * coefficients).sum()

    return _side(jax.value_and_grad(log_density), coefficients, x, outcomes)


def _options(n: int) -> Side:
    def normal(d: Any) -> Any:
        return 0.5 * (1 + jax.lax.erf(d * 0.7071067811865476))

    def total(wanted: Any, strike: Any, years: Any) -> Any:
        spot, volatility = wanted
        deviation = volatility * jnp.sqrt(years)
        drift = statistics_rows.INTEREST + 0.5 * volatility * volatility
        d1 = (jnp.log(spot / strike) + drift * years) / deviation
        price = spot * normal(d1) - strike * jnp.exp(-statistics_rows.INTEREST * years) * normal(d1 - deviation)
        return price.sum(), price

    def price_delta_vega(wanted: Any, strike: Any, years: Any) -> Any:
        (_, price), greeks = jax.value_and_grad(total, has_aux=True)(wanted, strike, years)
        return price, greeks

    spot, strike, years, volatility = statistics_rows.option_inputs(n)
    return _side(price_delta_vega, (spot, volatility), strike, years)


def _block() -> Side:
    x, weighting, parameters = modules.block_inputs()

    def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + models.NORM_EPSILON) * scale + shift

    def value(parameters: Any, x: Any, weighting: Any) -> Any:
        s1, t1, qkv, qkv_bias, projection, projection_bias, s2, t2, expand, expand_bias, contract, contract_bias = parameters
        batch, length, channels = x.shape
        split = layer_norm(x, s1, t1) @ qkv.T + qkv_bias
        query, key, values = split.reshape(batch, length, 3, modules.HEADS, -1).transpose(2, 0, 3, 1, 4)
        scores = jax.nn.softmax(query @ key.swapaxes(-2, -1) * (channels // modules.HEADS) ** -0.5)
        x = x + (scores @ values).transpose(0, 2, 1, 3).reshape(batch, length, channels) @ projection.T + projection_bias
        hidden = jax.nn.gelu(layer_norm(x, s2, t2) @ expand.T + expand_bias, approximate=True)
        return ((x + hidden @ contract.T + contract_bias) * weighting).sum()

    return _side(jax.value_and_grad(value), parameters, x, weighting)


def _adam() -> Side:
    start, gradients = modules.adam_inputs()

    @jax.jit
    def step(state: Any, gradients: Any) -> Any:
        count, parameters, first, second = state
        count = count + 1
        first = [ADAM_BETA1 * m + (1 - ADAM_BETA1) * g for m, g in zip(first, gradients, strict=True)]
        second = [ADAM_BETA2 * v + (1 - ADAM_BETA2) * g * g for v, g in zip(second, gradients, strict=True)]
        rate, correction = ADAM_RATE / (1 - ADAM_BETA1**count), 1 - ADAM_BETA2**count
        parameters = [
            p - rate * m / (jnp.sqrt(v / correction) + ADAM_EPSILON) for p, m, v in zip(parameters, first, second, strict=True)
        ]
        return count, parameters, first, second

    placed = [jnp.asarray(p) for p in start]
    zeros = [jnp.zeros_like(p) for p in placed]
    state: Any = (jnp.float32(0), placed, zeros, zeros)
    placed_gradients = [jnp.asarray(g) for g in gradients]

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(step(state, placed_gradients))

    return Side(run, lambda _: [np.asarray(p) - before for p, before in zip(state[1], start, strict=True)])


def _overhead(count: int) -> Side:
    x, parameters = modules.many_parameters(count)
    return _side(lambda parameters, x: functools.reduce(lambda total, p: total + p, parameters, x), parameters, x)


SIDES: dict[str, Callable[[], Side]] = {
    "a*b+1": _latency,
    **{f"gelu_{n}": functools.partial(_gelu, n) for n in elementwise.GELU_SIZES},
    **{f"mlp_sgd_{sizes.batch}": functools.partial(_mlp, sizes, False) for sizes in training.SIZES},
    **{f"mlp_adam_{sizes.batch}": functools.partial(_mlp, sizes, True) for sizes in training.ADAM_SIZES},
    **{f"rnn_{hidden}": functools.partial(_rnn, hidden) for hidden in models.RNN_SIZES},
    **{f"loop_rnn_{length}": functools.partial(_loop_rnn, length) for length in loops.LENGTHS},
    "loop_lstm": _loop_lstm,
    "loop_runge_kutta": _loop_runge,
    "softmax_layer_norm": _norm,
    "conditional": _conditional,
    "logistic": _logistic,
    **{f"black_scholes_{n}": functools.partial(_options, n) for n in statistics_rows.OPTION_COUNTS},
    "transformer_block": _block,
    f"adam_{modules.ADAM_TENSORS}": _adam,
    **{f"parameters_{count}": functools.partial(_overhead, count) for count in modules.PARAMETER_COUNTS},
}
"""Row name -> a fresh JAX side of it."""
