"""The programs of benchmarks.branching written by hand for JAX: loops and branches of jax.lax under jax.jit, in float32.

Imported only where they are measured.  Those that draw take a key made of the number of the call and draw other numbers than
tracejit does, as many on average.  Inputs are on JAX's device before the call is timed, lists and trees of Python are arrays by
then, and each call is waited for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from benchmarks.branching_programs import DIFFERENCE, END, TABLEAU, Program, tree_tensors

__all__ = ["SIDES", "side"]


# Samplers


@functools.partial(jax.jit, static_argnums=3)
def _metropolis(key: Any, x: Any, scale: Any, steps: int) -> Any:
    def log_density(x: Any) -> Any:
        return -0.5 * (x * x).sum()

    def step(_: Any, state: Any) -> Any:
        x, accepted, key = state
        key, for_proposal, for_choice = random.split(key, 3)
        proposed = x + scale * random.normal(for_proposal, (3,))
        taken = random.uniform(for_choice) < jnp.exp(log_density(proposed) - log_density(x))
        return jnp.where(taken, proposed, x), accepted + taken, key

    x, accepted, _ = lax.fori_loop(0, steps, step, (x, 0, key))
    return x, accepted


def _energy(q: Any) -> Any:
    return 0.5 * (q * q).sum() + 0.05 * (q**4).sum()


_force = jax.grad(_energy)


def _transition(key: Any, q: Any, step: Any, leapfrogs: Any) -> Any:
    """A half kick, steps with a whole one after each, and half a kick back."""
    for_momentum, for_choice = random.split(key)
    p = random.normal(for_momentum, (4,))
    begun = _energy(q) + 0.5 * (p * p).sum()

    def leapfrog(_: Any, state: Any) -> Any:
        q, p = state
        q = q + step * p
        return q, p - step * _force(q)

    moved, p = lax.fori_loop(0, leapfrogs, leapfrog, (q, p - 0.5 * step * _force(q)))
    p = p + 0.5 * step * _force(moved)
    taken = random.uniform(for_choice) < jnp.exp(begun - _energy(moved) - 0.5 * (p * p).sum())
    return jnp.where(taken, moved, q), taken


@functools.partial(jax.jit, static_argnums=3)
def _hmc(key: Any, q: Any, step: Any, transitions: int) -> Any:
    def advance(q: Any, key: Any) -> Any:
        q, taken = _transition(key, q, step, 8)
        return q, (q, taken)

    _, (kept, taken) = lax.scan(advance, q, random.split(key, transitions))
    return kept, taken.sum()


@functools.partial(jax.jit, static_argnums=3)
def _hmc_jittered(key: Any, q: Any, step: Any, transitions: int) -> Any:
    def advance(q: Any, key: Any) -> Any:
        for_count, for_rest = random.split(key)
        q, taken = _transition(for_rest, q, step, random.randint(for_count, (), 4, 13))
        return q, (q, taken)

    _, (kept, taken) = lax.scan(advance, q, random.split(key, transitions))
    return kept.mean(0), taken.sum()


_DEPTH = 6


def _makes_u_turn(q_left: Any, p_left: Any, q_right: Any, p_right: Any) -> Any:
    along = q_right - q_left
    return ((along * p_left).sum() < 0) | ((along * p_right).sum() < 0)


def _subtree(key: Any, q: Any, p: Any, log_slice: Any, step: Any, depth: Any) -> Any:
    """A tree of 2**depth steps without recursion, which JAX has not: where step n ends subtrees, each of them is compared with
    the state that it began with, which is kept in the place of n's count of ones (Phan, Pradhan and Jankowiak 2019)."""

    def unfinished(state: Any) -> Any:
        return (state[0] < 2**depth) & state[-1]

    def advance(state: Any) -> Any:
        n, key, q, p, drawn, count, kept_q, kept_p, _ = state
        p = p - 0.5 * step * _force(q)
        q = q + step * p
        p = p - 0.5 * step * _force(q)
        joint = -_energy(q) - 0.5 * (p * p).sum()
        inside = log_slice <= joint
        key, for_choice = random.split(key)
        count = count + inside
        drawn = jnp.where(inside & (random.uniform(for_choice) * count < 1), q, drawn)
        ones = lax.population_count(n >> 1)
        even = n % 2 == 0
        kept_q = jnp.where(even, kept_q.at[ones].set(q), kept_q)
        kept_p = jnp.where(even, kept_p.at[ones].set(p), kept_p)
        ended = lax.population_count(n & ~(n + 1))  # ones at the end of n: how many subtrees end here

        def compare(k: Any, turned: Any) -> Any:
            before_q, before_p = kept_q[ones - k], kept_p[ones - k]
            along = jnp.sign(step) * (q - before_q)
            return turned | ((along * before_p).sum() < 0) | ((along * p).sum() < 0)

        turned = lax.fori_loop(0, ended, compare, False)
        return n + 1, key, q, p, drawn, count, kept_q, kept_p, ~turned & (log_slice < joint + 1000.0)

    kept = jnp.zeros((_DEPTH + 1, 4))
    begun = jnp.int32(0), key, q, p, q, jnp.int32(0), kept, kept, jnp.bool_(True)
    _, _, q, p, drawn, count, _, _, going = lax.while_loop(unfinished, advance, begun)
    return q, p, drawn, count, going


@functools.partial(jax.jit, static_argnums=3)
def _nuts(key: Any, q: Any, step: Any, draws: int) -> Any:
    def double(state: Any) -> Any:
        key, q, q_left, p_left, q_right, p_right, log_slice, depth, count, _ = state
        key, for_side, for_tree, for_choice = random.split(key, 4)
        back = random.uniform(for_side) < 0.5
        q_end, p_end, drawn, more, going = _subtree(
            for_tree,
            jnp.where(back, q_left, q_right),
            jnp.where(back, p_left, p_right),
            log_slice,
            jnp.where(back, -step, step),
            depth,
        )
        q_left, p_left = jnp.where(back, q_end, q_left), jnp.where(back, p_end, p_left)
        q_right, p_right = jnp.where(back, q_right, q_end), jnp.where(back, p_right, p_end)
        q = jnp.where(going & (random.uniform(for_choice) * count < more), drawn, q)
        going = going & ~_makes_u_turn(q_left, p_left, q_right, p_right)
        return key, q, q_left, p_left, q_right, p_right, log_slice, depth + 1, count + more, going

    def draw(q: Any, key: Any) -> Any:
        key, for_momentum, for_slice = random.split(key, 3)
        p = random.normal(for_momentum, (4,))
        log_slice = -_energy(q) - 0.5 * (p * p).sum() + jnp.log(random.uniform(for_slice))
        begun = key, q, q, p, q, p, log_slice, jnp.int32(0), jnp.int32(1), jnp.bool_(True)
        ended = lax.while_loop(lambda state: state[-1] & (state[-3] < _DEPTH), double, begun)
        return ended[1], (ended[1], ended[-3])

    _, (kept, depths) = lax.scan(draw, q, random.split(key, draws))
    return kept, depths.sum()


@functools.partial(jax.jit, static_argnums=1)
def _rejection(key: Any, count: int) -> Any:
    def attempt(state: Any) -> Any:
        key, _, _ = state
        key, for_x, for_choice = random.split(key, 3)
        x = 6.0 * random.uniform(for_x) - 3.0
        return key, x, random.uniform(for_choice) < jnp.exp(-0.5 * x * x)

    def draw(key: Any, _: Any) -> Any:
        key, x, _ = lax.while_loop(lambda state: ~state[2], attempt, (key, 0.0, False))
        return key, x

    return lax.scan(draw, key, length=count)[1]


@jax.jit
def _queue(key: Any, arriving: Any, serving: Any, end: Any) -> Any:
    def advance(state: Any) -> Any:
        key, now, area, arrival, departure, waiting, served, longest = state
        key, for_arrival, for_service = random.split(key, 3)
        arrives, following = arrival < departure, jnp.minimum(arrival, departure)
        area, now = area + waiting * (following - now), following
        waiting, served = jnp.where(arrives, waiting + 1, waiting - 1), served + ~arrives
        longest = jnp.maximum(longest, waiting)
        done = jnp.where(waiting > 0, now + random.exponential(for_service) / serving, jnp.inf)
        departure = jnp.where(arrives & (waiting > 1), departure, done)
        arrival = jnp.where(arrives, now + random.exponential(for_arrival) / arriving, arrival)
        return key, now, area, arrival, departure, waiting, served, longest

    key, for_first = random.split(key)
    begun = key, 0.0, 0.0, random.exponential(for_first) / arriving, jnp.inf, 0, 0, 0
    ended = lax.while_loop(lambda state: jnp.minimum(state[3], state[4]) <= end, advance, begun)
    return ended[6], ended[7], ended[2] / end


# Integrators


@jax.jit
def _heun(y: Any, end: Any, tolerance: Any) -> Any:
    weight = jnp.array([[-0.5, 3.0], [-3.0, -0.5]])

    def slope(t: Any, y: Any) -> Any:
        return jnp.tanh(weight @ y) + 0.5 * jnp.sin(5.0 * t)

    def advance(state: Any) -> Any:
        t, y, dt, rejected = state
        dt = jnp.minimum(dt, end - t)
        first = slope(t, y)
        second = slope(t + dt, y + dt * first)
        error = jnp.abs(0.5 * dt * (second - first)).max()
        taken = error <= tolerance
        factor = jnp.clip(0.9 * jnp.sqrt(tolerance / (error + 1e-12)), 0.3, 2.0)
        return jnp.where(taken, t + dt, t), jnp.where(taken, y + 0.5 * dt * (first + second), y), dt * factor, rejected + ~taken

    t, y, _, rejected = lax.while_loop(lambda state: state[0] < end, advance, (0.0, y, 0.1, 0))
    return y, t, rejected


@jax.jit
def _dopri(y: Any, end: Any, tolerance: Any) -> Any:
    def slope(y: Any) -> Any:
        return jnp.stack([y[1], 2.0 * (1.0 - y[0] * y[0]) * y[1] - y[0]])

    def advance(state: Any) -> Any:
        t, y, first, dt, rejected = state
        dt = jnp.minimum(dt, end - t)
        stages = [first]
        for row in TABLEAU:
            moved = y + dt * sum(a * k for a, k in zip(row, stages, strict=True))
            stages.append(slope(moved))
        error = jnp.abs(dt * sum(e * k for e, k in zip(DIFFERENCE, stages, strict=True))).max()
        taken = error <= tolerance
        factor = jnp.clip(0.9 * (tolerance / (error + 1e-12)) ** 0.2, 0.2, 5.0)
        t, y, first = jnp.where(taken, t + dt, t), jnp.where(taken, moved, y), jnp.where(taken, stages[-1], first)
        return t, y, first, dt * factor, rejected + ~taken

    t, y, _, _, rejected = lax.while_loop(lambda state: state[0] < end, advance, (0.0, y, slope(y), 0.05, 0))
    return y, t, rejected


@functools.partial(jax.jit, static_argnums=3)
def _ball(height: Any, speed: Any, dt: Any, steps: int) -> Any:
    def step(state: Any, _: Any) -> Any:
        height, speed, bounces = state
        speed = speed - 9.81 * dt
        height = height + speed * dt
        below = height < 0
        height, speed = jnp.where(below, -height, height), jnp.where(below, -0.9 * speed, speed)
        return (height, speed, bounces + below), height

    (_, _, bounces), heights = lax.scan(step, (height, speed, 0), length=steps)
    return heights, bounces


@functools.partial(jax.jit, static_argnums=3)
def _balls(height: Any, speed: Any, dt: Any, steps: int) -> Any:
    def step(_: Any, state: Any) -> Any:
        height, speed, meetings = state
        speed = speed - 9.81 * dt
        height = height + speed * dt
        below = height < 0
        return jnp.where(below, -height, height), jnp.where(below, -0.9 * speed, speed), meetings + below.any()

    return lax.fori_loop(0, steps, step, (height, speed, 0))


@functools.partial(jax.jit, static_argnums=5)
def _box(x: Any, y: Any, u: Any, v: Any, dt: Any, steps: int) -> Any:
    def step(_: Any, state: Any) -> Any:
        x, y, u, v, hits = state
        v = v - dt
        x, y = x + u * dt, y + v * dt
        for wall, is_beyond in ((0.0, jnp.less), (2.0, jnp.greater)):
            beyond = is_beyond(x, 0.5 * wall)
            x, u, hits = jnp.where(beyond, wall - x, x), jnp.where(beyond, -0.9 * u, u), hits + beyond
        for wall, is_beyond in ((0.0, jnp.less), (2.0, jnp.greater)):
            beyond = is_beyond(y, 0.5 * wall)
            y, v, hits = jnp.where(beyond, wall - y, y), jnp.where(beyond, -0.95 * v, v), hits + beyond
        return x, y, u, v, hits

    return lax.fori_loop(0, steps, step, (x, y, u, v, 0))


@jax.jit
def _events(y: Any, parameters: Any, end: Any, tolerance: Any) -> Any:
    """Derivatives forwards, since JAX has none backwards through a loop of unknown length; there are two parameters."""

    def loss(parameters: Any) -> Any:
        drag, kept = parameters

        def slope(y: Any) -> Any:
            return jnp.stack([y[1], -9.81 - drag * y[1] * jnp.abs(y[1])])

        def bounced(y: Any, moved: Any, dt: Any) -> Any:
            share = y[0] / (y[0] - moved[0])
            at_ground = jnp.stack([0.0 * share, -kept * (y[1] + share * (moved[1] - y[1]))])
            return at_ground + (1.0 - share) * dt * slope(at_ground)

        def advance(state: Any) -> Any:
            t, y, dt, bounces = state
            dt = jnp.minimum(dt, end - t)
            first = slope(y)
            second = slope(y + dt * first)
            error = lax.stop_gradient(jnp.abs(0.5 * dt * (second - first)).max())
            taken = error <= tolerance
            moved = y + 0.5 * dt * (first + second)
            meets = taken & (moved[0] < 0) & (moved[1] < 0)
            moved = lax.cond(meets, bounced, lambda y, moved, dt: moved, y, moved, dt)
            factor = jnp.clip(0.9 * jnp.sqrt(tolerance / (error + 1e-12)), 0.3, 2.0)
            return jnp.where(taken, t + dt, t), jnp.where(taken, moved, y), dt * factor, bounces + meets

        _, ended, _, bounces = lax.while_loop(lambda state: state[0] < end, advance, (0.0, y, 0.05, 0))
        value = (ended[0] - 0.5) ** 2
        return value, (value, bounces)

    gradient, (value, bounces) = jax.jacfwd(loss, has_aux=True)(parameters)
    return value, gradient, bounces


# Iterations until they converge


@jax.jit
def _newton(starts: Any) -> Any:
    def value(x: Any) -> Any:
        return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] * x[0]) ** 2

    def gradient(x: Any) -> Any:
        inner = x[1] - x[0] * x[0]
        return jnp.stack([-2.0 * (1.0 - x[0]) - 400.0 * x[0] * inner, 200.0 * inner])

    def curvature(x: Any) -> Any:
        mixed = -400.0 * x[0]
        return jnp.array([[2.0 - 400.0 * (x[1] - 3.0 * x[0] * x[0]), mixed], [mixed, 200.0]])

    def advance(state: Any) -> Any:
        x, here, slope, taken = state
        step = -jnp.linalg.solve(curvature(x) + jnp.eye(2), slope)
        down = (slope * step).sum()

        def too_far(rate: Any) -> Any:
            return (value(x + rate * step) > here + 1e-4 * rate * down) & (rate >= 1e-6)

        moved = x + lax.while_loop(too_far, lambda rate: 0.5 * rate, 1.0) * step
        return moved, value(moved), gradient(moved), taken + 1

    def minimise(total: Any, x: Any) -> Any:
        begun = x, value(x), gradient(x), 0
        ended = lax.while_loop(lambda state: (state[3] < 50) & (jnp.abs(state[2]).max() >= 1e-2), advance, begun)
        return total + ended[3], ended[0]

    taken, ends = lax.scan(minimise, 0, starts)
    return ends, taken


@jax.jit
def _hopfield(weights: Any, state: Any) -> Any:
    def unit(i: Any, carried: Any) -> Any:
        state, flips = carried
        value = jnp.sign(weights[i] @ state)
        changes = (value != 0) & (value != state[i])
        return state.at[i].set(jnp.where(changes, value, state[i])), flips + changes

    def sweep(carried: Any) -> Any:
        state, sweeps, flips, _ = carried
        state, now = lax.fori_loop(0, state.shape[0], unit, (state, flips))
        return state, sweeps + 1, now, now > flips

    state, sweeps, flips, _ = lax.while_loop(lambda carried: carried[3], sweep, (state, 0, 0, True))
    return state, sweeps, flips


@functools.partial(jax.jit, static_argnums=6)
def _fit(rows: Any, targets: Any, first: Any, second: Any, rate: Any, bound: Any, most: int) -> Any:
    def loss_of(parameters: Any) -> Any:
        return ((jnp.tanh(rows @ parameters[0]) @ parameters[1] - targets) ** 2).mean()

    def advance(state: Any) -> Any:
        parameters, means, squares, step, _ = state
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        taken = step + 1
        size, correction = rate / (1 - 0.9**taken), jnp.sqrt(1 - 0.999**taken)
        means = jax.tree.map(lambda m, g: m + 0.1 * (g - m), means, gradients)
        squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)
        moved = jax.tree.map(lambda p, m, s: p - size * m / (jnp.sqrt(s) / correction + 1e-8), parameters, means, squares)
        return moved, means, squares, taken, loss

    parameters = first, second
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    begun = parameters, zeros, zeros, 0, jnp.inf
    (first, second), _, _, taken, _ = lax.while_loop(lambda state: (state[4] >= bound) & (state[3] < most), advance, begun)
    return first, second, taken - 1


@jax.jit
def _online(rows: Any, signs: Any, rate: Any, margin: Any) -> Any:
    def loss_of(weight: Any, row: Any, sign: Any) -> Any:
        return jnp.maximum(margin - sign * (row @ weight), 0)

    def advance(state: Any, given: Any) -> Any:
        def learn(state: Any) -> Any:
            weight, velocity, mistakes = state
            gradient = jax.grad(loss_of)(weight, *given)
            velocity = jnp.where(mistakes == 0, gradient, 0.9 * velocity + gradient)
            return weight - rate * velocity, velocity, mistakes + 1

        return lax.cond(loss_of(state[0], *given) == 0, lambda state: state, learn, state), None

    zeros = jnp.zeros(rows.shape[1])
    (weight, _, mistakes), _ = lax.scan(advance, (zeros, zeros, 0), (rows, signs))
    return weight, mistakes


@jax.jit
def _pagerank(links: Any, damping: Any, tolerance: Any) -> Any:
    pages = links.shape[0]

    def advance(state: Any) -> Any:
        ranks, _, steps = state
        moved = damping * (links @ ranks) + (1.0 - damping) / pages
        return moved, jnp.abs(moved - ranks).sum(), steps + 1

    ranks, _, steps = lax.while_loop(lambda state: state[1] >= tolerance, advance, (jnp.full(pages, 1.0 / pages), jnp.inf, 0))
    return ranks, steps


@jax.jit
def _value_iteration(chances: Any, rewards: Any, discount: Any, tolerance: Any) -> Any:
    def advance(state: Any) -> Any:
        values, _, _, sweeps = state
        worth = rewards + discount * (chances @ values)
        best = worth.max(0)
        return best, jnp.abs(best - values).max(), worth.argmax(0), sweeps + 1

    states = rewards.shape[1]
    begun = jnp.zeros(states), jnp.inf, jnp.zeros(states, jnp.int32), 0
    values, _, choices, sweeps = lax.while_loop(lambda state: state[1] > tolerance, advance, begun)
    return values, choices, sweeps


# Sequences and trees


@functools.partial(jax.jit, static_argnums=(3, 4))
def _search(embedding: Any, recurrent: Any, output: Any, width: int, length: int) -> Any:
    """Beams are rows; one that has ended goes on as itself alone, and one that is not there yet has no chance."""
    stays = jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf)

    def extend(state: Any) -> Any:
        n, scores, tokens, lengths, hidden = state
        last = tokens[jnp.arange(width), lengths - 1]
        ended = last == END
        hidden = jnp.where(ended[:, None], hidden, jnp.tanh(embedding[last] + hidden @ recurrent.T))
        best, following = lax.top_k(jax.nn.log_softmax(hidden @ output.T), width)
        totals = scores[:, None] + jnp.where(ended[:, None], stays, best)
        scores, places = lax.top_k(totals.reshape(-1), width)
        beam, token = places // width, following.reshape(-1)[places]
        over = ended[beam]
        tokens, lengths = tokens[beam], lengths[beam]
        tokens = tokens.at[jnp.arange(width), lengths].set(jnp.where(over, tokens[jnp.arange(width), lengths], token))
        return n + 1, scores, tokens, lengths + ~over, hidden[beam]

    def unfinished(state: Any) -> Any:
        n, _, tokens, lengths, _ = state
        return (n < length) & (tokens[jnp.arange(width), lengths - 1] != END).any()

    tokens = jnp.full((width, length + 1), END).at[:, 0].set(1)
    begun = 0, stays, tokens, jnp.ones(width, jnp.int32), jnp.zeros((width, recurrent.shape[0]))
    _, scores, tokens, lengths, _ = lax.while_loop(unfinished, extend, begun)
    return scores[0], tokens[0], lengths[0]


def _beam(*arguments: Any) -> Any:
    score, tokens, length = _search(*arguments)
    return score, np.asarray(tokens)[: int(length)]


@jax.jit
def _tree(embedding: Any, weight: Any, readout: Any, left: Any, right: Any, words: Any) -> Any:
    """Nodes in order, children before parents, each of which writes its state to a table."""

    def loss(embedding: Any, weight: Any, readout: Any) -> Any:
        def leaf(h: Any, c: Any, node: Any) -> Any:
            word = embedding[words[node]]
            return jnp.tanh(word), word

        def parent(h: Any, c: Any, node: Any) -> Any:
            i, forget_left, forget_right, o, u = jnp.split(weight @ jnp.concatenate([h[left[node]], h[right[node]]]), 5)
            kept = jax.nn.sigmoid(forget_left) * c[left[node]] + jax.nn.sigmoid(forget_right) * c[right[node]]
            state = jax.nn.sigmoid(i) * jnp.tanh(u) + kept
            return jax.nn.sigmoid(o) * jnp.tanh(state), state

        def encode(table: Any, node: Any) -> Any:
            h, c = table
            at_node = lax.cond(left[node] < 0, leaf, parent, h, c, node)
            return (h.at[node].set(at_node[0]), c.at[node].set(at_node[1])), None

        table = jnp.zeros((left.shape[0], embedding.shape[1]))
        (h, _), _ = lax.scan(encode, (table, table), jnp.arange(left.shape[0]))
        return -jax.nn.log_softmax(readout @ h[-1])[1]

    value, gradients = jax.value_and_grad(loss, (0, 1, 2))(embedding, weight, readout)
    return value, *gradients


SIDES: dict[str, Callable[..., Any]] = {
    "metropolis": _metropolis,
    **dict.fromkeys(("hmc_50", "hmc_1000", "hmc_calls"), _hmc),
    "hmc_jittered": _hmc_jittered,
    "nuts": _nuts,
    **dict.fromkeys(("heun_5", "heun_50", "heun_500"), _heun),
    **dict.fromkeys(("dopri_5", "dopri_50", "dopri_500"), _dopri),
    "ball": _ball,
    "balls_100": _balls,
    "box": _box,
    "rejection": _rejection,
    "newton": _newton,
    "hopfield": _hopfield,
    "fit": _fit,
    "online": _online,
    "beam": _beam,
    **dict.fromkeys(("tree_lstm", "tree_tensors"), _tree),
    "pagerank": _pagerank,
    "queue": _queue,
    "value_iteration": _value_iteration,
    "events": _events,
}


def side(program: Program, call: int) -> Callable[[], Any]:
    """What is to be timed in a call of this number."""
    function, inputs = SIDES[program.name], program.inputs(call)
    if program.name == "tree_lstm":
        inputs = *inputs[:-1], *tree_tensors(inputs[-1])
    placed = [jnp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value for value in inputs]
    if program.draws:
        placed.insert(0, random.key(call))
    jax.block_until_ready([value for value in placed if isinstance(value, jax.Array)])
    return lambda: jax.block_until_ready(function(*placed))
