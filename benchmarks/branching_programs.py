"""Loops whose steps take different paths, as one writes them in Python: samplers, integrators, searches, simulations, networks
over trees.

A program is built for a library (tracejit, or torch, whose interface it is written against) and a transform of functions, which
is `tracejit.compile` or the identity; what it is called with are arrays and numbers that the number of the call decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import unchanged

__all__ = ["DIFFERENCE", "END", "PROGRAMS", "TABLEAU", "Function", "Program", "Transform", "select", "tree_tensors"]

Function = Callable[..., Any]
Transform = Callable[[Function], Function]


@dataclass(frozen=True)
class Program:
    """build: given a library and a transform, the function that is measured; inputs: what it is called with, by the number of the
    call.

    draws: whether it draws random numbers, so that other libraries cannot give the same values."""

    name: str
    inside: str
    build: Callable[[Any, Transform], Function]
    inputs: Callable[[int], tuple[Any, ...]]
    draws: bool = False


def _uniform(call: int, low: float, high: float, *shape: int) -> np.ndarray:
    return np.random.default_rng(call).uniform(low, high, shape).astype(np.float32)


def _normal(call: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(call).standard_normal(shape).astype(np.float32)


# Samplers


def _metropolis(xp: Any, transform: Transform) -> Function:
    def log_density(x: Any) -> Any:
        return -0.5 * (x * x).sum()

    @transform
    def sample(x: Any, scale: float, steps: int) -> Any:
        accepted = 0
        for _ in range(steps):
            proposed = x + scale * xp.randn(3)
            if xp.rand(()) < xp.exp(log_density(proposed) - log_density(x)):
                x = proposed
                accepted += 1
        return x, accepted

    return sample


def _hmc(xp: Any, transform: Transform, of_transition: Transform = unchanged) -> Function:
    """Hamiltonian Monte Carlo; of_transition: what is done to a transition by itself."""

    def energy(q: Any) -> Any:
        return 0.5 * (q * q).sum() + 0.05 * (q**4).sum()

    def force(q: Any) -> Any:
        q = q.detach().requires_grad_()
        return xp.autograd.grad(energy(q), q)[0]

    @of_transition
    def transition(q: Any, step: float) -> Any:
        p = xp.randn(4)
        begun = energy(q) + 0.5 * (p * p).sum()
        moved, p = q, p - 0.5 * step * force(q)
        for k in range(8):
            moved = moved + step * p
            p = p - (step if k < 7 else 0.5 * step) * force(moved)
        ended = energy(moved) + 0.5 * (p * p).sum()
        if xp.rand(()) < xp.exp(begun - ended):
            return moved, True
        return q, False

    @transform
    def chain(q: Any, step: float, transitions: int) -> Any:
        kept, accepted = [], 0
        for _ in range(transitions):
            q, moved = transition(q, step)
            accepted += moved
            kept.append(q)
        return xp.stack(kept), accepted

    return chain


def _hmc_jittered(xp: Any, transform: Transform) -> Function:
    """Hamiltonian Monte Carlo whose number of leapfrog steps is drawn for each transition."""

    def energy(q: Any) -> Any:
        return 0.5 * (q * q).sum() + 0.05 * (q**4).sum()

    def force(q: Any) -> Any:
        q = q.detach().requires_grad_()
        return xp.autograd.grad(energy(q), q)[0]

    @transform
    def chain(q: Any, step: float, transitions: int) -> Any:
        total, accepted = xp.zeros(4), 0
        for _ in range(transitions):
            p = xp.randn(4)
            begun = energy(q) + 0.5 * (p * p).sum()
            moved = q
            for _ in range(int(xp.randint(4, 13, ()))):
                p = p - 0.5 * step * force(moved)
                moved = moved + step * p
                p = p - 0.5 * step * force(moved)
            if xp.rand(()) < xp.exp(begun - energy(moved) - 0.5 * (p * p).sum()):
                q, accepted = moved, accepted + 1
            total = total + q
        return total / transitions, accepted

    return chain


def _hmc_calls(xp: Any, transform: Transform) -> Function:
    return _hmc(xp, transform, transform)


def _nuts(xp: Any, transform: Transform) -> Function:
    """The No-U-Turn sampler (Hoffman and Gelman 2014, algorithm 3): trees of leapfrog steps, built by recursion until their ends
    turn."""

    def log_density(q: Any) -> Any:
        return -0.5 * (q * q).sum() - 0.05 * (q**4).sum()

    def gradient(q: Any) -> Any:
        q = q.detach().requires_grad_()
        return xp.autograd.grad(log_density(q), q)[0]

    def leapfrog(q: Any, p: Any, step: float) -> Any:
        p = p + 0.5 * step * gradient(q)
        q = q + step * p
        return q, p + 0.5 * step * gradient(q)

    def makes_u_turn(q_left: Any, p_left: Any, q_right: Any, p_right: Any) -> Any:
        along = q_right - q_left
        return (along * p_left).sum() < 0 or (along * p_right).sum() < 0

    def tree(q: Any, p: Any, log_slice: Any, step: float, depth: int) -> Any:
        """Both ends of the tree, a state drawn from it, how many of its states lie in the slice, and whether it may go on."""
        if depth == 0:
            q, p = leapfrog(q, p, step)
            joint = log_density(q) - 0.5 * (p * p).sum()
            return q, p, q, p, q, 1 if log_slice <= joint else 0, bool(log_slice < joint + 1000.0)
        q_left, p_left, q_right, p_right, drawn, count, going = tree(q, p, log_slice, step, depth - 1)
        if going:
            if step < 0:
                q_left, p_left, _, _, other, more, going = tree(q_left, p_left, log_slice, step, depth - 1)
            else:
                _, _, q_right, p_right, other, more, going = tree(q_right, p_right, log_slice, step, depth - 1)
            if xp.rand(()) < more / max(count + more, 1):
                drawn = other
            count += more
            going = going and not makes_u_turn(q_left, p_left, q_right, p_right)
        return q_left, p_left, q_right, p_right, drawn, count, going

    @transform
    def sample(q: Any, step: float, draws: int) -> Any:
        kept, depths = [], 0
        for _ in range(draws):
            p = xp.randn(4)
            log_slice = log_density(q) - 0.5 * (p * p).sum() + xp.log(xp.rand(()))
            q_left, p_left, q_right, p_right = q, p, q, p
            depth, count, going = 0, 1, True
            while going and depth < 6:
                if xp.rand(()) < 0.5:
                    q_left, p_left, _, _, drawn, more, going = tree(q_left, p_left, log_slice, -step, depth)
                else:
                    _, _, q_right, p_right, drawn, more, going = tree(q_right, p_right, log_slice, step, depth)
                if going and xp.rand(()) < more / count:
                    q = drawn
                count += more
                going = going and not makes_u_turn(q_left, p_left, q_right, p_right)
                depth += 1
            depths += depth
            kept.append(q)
        return xp.stack(kept), depths

    return sample


def _rejection(xp: Any, transform: Transform) -> Function:
    @transform
    def draw(count: int) -> Any:
        found = []
        for _ in range(count):
            while True:
                x = 6.0 * xp.rand(()) - 3.0
                if xp.rand(()) < xp.exp(-0.5 * x * x):
                    break
            found.append(x)
        return xp.stack(found)

    return draw


def _queue(xp: Any, transform: Transform) -> Function:
    """A queue with one server until an hour is over: who is served, the longest queue, and its mean length."""

    @transform
    def simulate(arriving: float, serving: float, end: float) -> Any:
        never = xp.tensor(math.inf)
        now, area = xp.tensor(0.0), xp.tensor(0.0)
        arrival, departure = -xp.log(1.0 - xp.rand(())) / arriving, never
        waiting, served, longest = 0, 0, 0
        while True:
            following = xp.minimum(arrival, departure)
            if following > end:
                break
            area = area + waiting * (following - now)
            now = following
            if arrival < departure:
                waiting += 1
                longest = max(longest, waiting)
                arrival = now - xp.log(1.0 - xp.rand(())) / arriving
                if waiting == 1:
                    departure = now - xp.log(1.0 - xp.rand(())) / serving
            else:
                waiting -= 1
                served += 1
                departure = now - xp.log(1.0 - xp.rand(())) / serving if waiting > 0 else never
        return served, longest, area / end

    return simulate


# Integrators


def _heun(xp: Any, transform: Transform) -> Function:
    weight = xp.tensor([[-0.5, 3.0], [-3.0, -0.5]])

    def slope(t: float, y: Any) -> Any:
        return xp.tanh(weight @ y) + 0.5 * math.sin(5.0 * t)

    @transform
    def solve(y: Any, end: float, tolerance: float) -> Any:
        t, dt, rejected = 0.0, 0.1, 0
        while t < end:
            dt = min(dt, end - t)
            first = slope(t, y)
            second = slope(t + dt, y + dt * first)
            error = (0.5 * dt * (second - first)).abs().max().item()
            if error <= tolerance:
                t, y = t + dt, y + 0.5 * dt * (first + second)
            else:
                rejected += 1
            dt = dt * min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-12))))
        return y, t, rejected

    return solve


# The method of Dormand and Prince: what stages are made of, and the difference of its solutions of orders 5 and 4.
TABLEAU = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
DIFFERENCE = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def _dopri(xp: Any, transform: Transform) -> Function:
    """The equation of van der Pol by the method of Dormand and Prince, whose last stage is the first one of the next step."""

    def slope(y: Any) -> Any:
        return xp.stack([y[1], 2.0 * (1.0 - y[0] * y[0]) * y[1] - y[0]])

    @transform
    def solve(y: Any, end: float, tolerance: float) -> Any:
        t, dt, rejected = 0.0, 0.05, 0
        first = slope(y)
        while t < end:
            dt = min(dt, end - t)
            stages = [first]
            for row in TABLEAU:
                moved = y + dt * sum(a * k for a, k in zip(row, stages, strict=True))
                stages.append(slope(moved))
            error = (dt * sum(e * k for e, k in zip(DIFFERENCE, stages, strict=True))).abs().max().item()
            if error <= tolerance:
                t, y, first = t + dt, moved, stages[-1]
            else:
                rejected += 1
            dt = dt * min(5.0, max(0.2, 0.9 * (tolerance / (error + 1e-12)) ** 0.2))
        return y, t, rejected

    return solve


def _ball(xp: Any, transform: Transform) -> Function:
    @transform
    def bounce(height: Any, speed: Any, dt: float, steps: int) -> Any:
        heights, bounces = [], 0
        for _ in range(steps):
            speed = speed - 9.81 * dt
            height = height + speed * dt
            if height < 0:
                height, speed = -height, -0.9 * speed
                bounces += 1
            heights.append(height)
        return xp.stack(heights), bounces

    return bounce


def _balls(xp: Any, transform: Transform) -> Function:
    @transform
    def bounce(height: Any, speed: Any, dt: float, steps: int) -> Any:
        meetings = 0
        for _ in range(steps):
            speed = speed - 9.81 * dt
            height = height + speed * dt
            below = height < 0
            if below.any():
                height = xp.where(below, -height, height)
                speed[below] *= -0.9
                meetings += 1
        return height, speed, meetings

    return bounce


def _box(xp: Any, transform: Transform) -> Function:
    @transform
    def fly(x: Any, y: Any, u: Any, v: Any, dt: float, steps: int) -> Any:
        hits = 0
        for _ in range(steps):
            v = v - dt
            x, y = x + u * dt, y + v * dt
            if x < 0:
                x, u, hits = -x, -0.9 * u, hits + 1
            if x > 1:
                x, u, hits = 2.0 - x, -0.9 * u, hits + 1
            if y < 0:
                y, v, hits = -y, -0.95 * v, hits + 1
            if y > 1:
                y, v, hits = 2.0 - y, -0.95 * v, hits + 1
        return x, y, u, v, hits

    return fly


def _events(xp: Any, transform: Transform) -> Function:
    """The gradient of where a ball ends, by its drag and by what a bounce leaves of its speed, through all adaptive steps and
    bounces."""

    @transform
    def gradient(y: Any, parameters: Any, end: float, tolerance: float) -> Any:
        parameters = parameters.detach().requires_grad_()
        drag, kept = parameters[0], parameters[1]

        def slope(y: Any) -> Any:
            return xp.stack([y[1], -9.81 - drag * y[1] * y[1].abs()])

        t, dt, bounces = 0.0, 0.05, 0
        while t < end:
            dt = min(dt, end - t)
            first = slope(y)
            second = slope(y + dt * first)
            error = (0.5 * dt * (second - first)).abs().max().item()
            if error <= tolerance:
                moved = y + 0.5 * dt * (first + second)
                if moved[0] < 0 and moved[1] < 0:
                    share = y[0] / (y[0] - moved[0])  # of the step, until the ball is at the ground
                    y = xp.stack([0.0 * share, -kept * (y[1] + share * (moved[1] - y[1]))])
                    y = y + (1.0 - share) * dt * slope(y)
                    bounces += 1
                else:
                    y = moved
                t = t + dt
            dt = dt * min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-12))))
        loss = (y[0] - 0.5) ** 2
        return loss.detach(), xp.autograd.grad(loss, parameters)[0], bounces

    return gradient


# Iterations until they converge


def _newton(xp: Any, transform: Transform) -> Function:
    """Minimises a valley that bends, from many positions, by damped steps of Newton's method; steps are halved until they lead
    down."""

    def value(x: Any) -> Any:
        return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] * x[0]) ** 2

    def gradient(x: Any) -> Any:
        inner = x[1] - x[0] * x[0]
        return xp.stack([-2.0 * (1.0 - x[0]) - 400.0 * x[0] * inner, 200.0 * inner])

    def curvature(x: Any) -> Any:
        mixed = -400.0 * x[0]
        rows = [2.0 - 400.0 * (x[1] - 3.0 * x[0] * x[0]), mixed, mixed, xp.full((), 200.0)]
        return xp.stack(rows).reshape(2, 2)

    @transform
    def minimise(starts: Any) -> Any:
        ends, taken = [], 0
        for x in starts:
            here = value(x)
            for _ in range(50):
                slope = gradient(x)
                if slope.abs().max() < 1e-2:
                    break
                step = -xp.linalg.solve(curvature(x) + xp.eye(2), slope)
                rate = 1.0
                while True:
                    moved = x + rate * step
                    there = value(moved)
                    if there <= here + 1e-4 * rate * (slope * step).sum() or rate < 1e-6:
                        break
                    rate = 0.5 * rate
                x, here, taken = moved, there, taken + 1
            ends.append(x)
        return xp.stack(ends), taken

    return minimise


def _hopfield(xp: Any, transform: Transform) -> Function:
    """A network of Hopfield's, one unit at a time, until no unit changes."""

    @transform
    def settle(weights: Any, state: Any) -> Any:
        state, sweeps, flips, changing = state.clone(), 0, 0, True
        while changing:
            changing = False
            for i in range(state.shape[0]):
                value = xp.sign(weights[i] @ state)
                if value != 0 and value != state[i]:
                    state[i] = value
                    flips += 1
                    changing = True
            sweeps += 1
        return state, sweeps, flips

    return settle


def _pagerank(xp: Any, transform: Transform) -> Function:
    @transform
    def rank(links: Any, damping: float, tolerance: float) -> Any:
        pages = links.shape[0]
        ranks, steps = xp.full((pages,), 1.0 / pages), 0
        while True:
            moved = damping * (links @ ranks) + (1.0 - damping) / pages
            change = (moved - ranks).abs().sum()
            ranks, steps = moved, steps + 1
            if change < tolerance:
                return ranks, steps

    return rank


def _value_iteration(xp: Any, transform: Transform) -> Function:
    @transform
    def solve(chances: Any, rewards: Any, discount: float, tolerance: float) -> Any:
        values = xp.zeros(rewards.shape[1])
        change, sweeps = math.inf, 0
        while change > tolerance:
            worth = rewards + discount * (chances @ values)
            best = worth.max(0).values
            change = (best - values).abs().max().item()
            values, sweeps = best, sweeps + 1
        return values, worth.argmax(0), sweeps

    return solve


# Sequences and trees

END = 0


def _fit(xp: Any, transform: Transform) -> Function:
    @transform
    def fit(rows: Any, targets: Any, first: Any, second: Any, rate: float, bound: float, most: int) -> Any:
        parameters = [first.clone().requires_grad_(), second.clone().requires_grad_()]
        optimizer = xp.optim.Adam(parameters, lr=rate)
        for step in range(most):  # noqa: B007
            optimizer.zero_grad()
            loss = (((rows @ parameters[0]).tanh() @ parameters[1] - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
            if loss < bound:
                break
        return parameters[0].detach(), parameters[1].detach(), step

    return fit


def _online(xp: Any, transform: Transform) -> Function:
    @transform
    def learn(rows: Any, signs: Any, rate: float, margin: float) -> Any:
        weight = xp.zeros(rows.shape[1], requires_grad=True)
        optimizer = xp.optim.SGD([weight], lr=rate, momentum=0.9)
        mistakes = 0
        for row, sign in zip(rows, signs):  # noqa: B905
            loss = (margin - sign * (row @ weight)).clamp(min=0)
            if loss == 0:
                continue
            mistakes += 1
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return weight.detach(), mistakes

    return learn


def _beam(xp: Any, transform: Transform) -> Function:
    """Beam search: the likeliest sequence of a recurrent network, over lists of tokens that end at different lengths."""

    @transform
    def search(embedding: Any, recurrent: Any, output: Any, width: int, length: int) -> Any:
        beams: list[Any] = [(0.0, [1], xp.zeros(recurrent.shape[0]))]
        for _ in range(length):
            candidates = []
            for score, tokens, hidden in beams:
                if tokens[-1] == END:
                    candidates.append((score, tokens, hidden))
                    continue
                hidden = xp.tanh(embedding[tokens[-1]] + recurrent @ hidden)
                best, following = xp.log_softmax(output @ hidden, dim=0).topk(width)
                for k in range(width):
                    candidates.append((score + best[k].item(), tokens + [int(following[k])], hidden))
            candidates.sort(key=lambda candidate: candidate[0], reverse=True)
            beams = candidates[:width]
            if all(tokens[-1] == END for _, tokens, _ in beams):
                break
        return beams[0][0], beams[0][1]

    return search


def _tree_lstm(xp: Any, transform: Transform) -> Function:
    """A recurrent network over a binary tree of nested tuples, whose leaves are words: the loss, and its gradients."""

    @transform
    def gradients(embedding: Any, weight: Any, readout: Any, tree: Any) -> Any:
        parameters = [part.detach().requires_grad_() for part in (embedding, weight, readout)]
        embedding, weight, readout = parameters

        def encode(node: Any) -> Any:
            if isinstance(node, int):
                return xp.tanh(embedding[node]), embedding[node]
            (h_left, c_left), (h_right, c_right) = encode(node[0]), encode(node[1])
            i, forget_left, forget_right, o, u = (weight @ xp.cat([h_left, h_right])).chunk(5)
            c = xp.sigmoid(i) * xp.tanh(u) + xp.sigmoid(forget_left) * c_left + xp.sigmoid(forget_right) * c_right
            return xp.sigmoid(o) * xp.tanh(c), c

        loss = -xp.log_softmax(readout @ encode(tree)[0], dim=0)[1]
        return loss.detach(), *xp.autograd.grad(loss, parameters)

    return gradients


def _tree_tensors(xp: Any, transform: Transform) -> Function:
    """The same network over a tree that is given as tensors: the children of each node, -1 for a leaf, and the words of
    leaves."""

    @transform
    def gradients(embedding: Any, weight: Any, readout: Any, left: Any, right: Any, words: Any) -> Any:
        parameters = [part.detach().requires_grad_() for part in (embedding, weight, readout)]
        embedding, weight, readout = parameters

        def encode(node: Any) -> Any:
            if left[node] < 0:
                leaf = embedding[words[node]]
                return xp.tanh(leaf), leaf
            (h_left, c_left), (h_right, c_right) = encode(left[node]), encode(right[node])
            i, forget_left, forget_right, o, u = (weight @ xp.cat([h_left, h_right])).chunk(5)
            c = xp.sigmoid(i) * xp.tanh(u) + xp.sigmoid(forget_left) * c_left + xp.sigmoid(forget_right) * c_right
            return xp.sigmoid(o) * xp.tanh(c), c

        loss = -xp.log_softmax(readout @ encode(left.shape[0] - 1)[0], dim=0)[1]
        return loss.detach(), *xp.autograd.grad(loss, parameters)

    return gradients


# What they are called with


def _chain(transitions: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda call: (np.ones(4, np.float32), 0.4, transitions)


def _problem(end: float, tolerance: float) -> Callable[[int], tuple[Any, ...]]:
    return lambda call: (np.array([1.0 + 0.01 * (call % 20), 0.5], np.float32), end, tolerance)


def _memory(call: int) -> tuple[Any, ...]:
    """Weights that remember six patterns of 64 units, and one of the patterns with a quarter of its units changed."""
    random = np.random.default_rng(call)
    patterns = random.choice(np.array([-1.0, 1.0], np.float32), (6, 64))
    weights = (patterns.T @ patterns / 64).astype(np.float32)
    np.fill_diagonal(weights, 0.0)
    return weights, np.where(random.random(64) < 0.25, -patterns[0], patterns[0]).astype(np.float32)


def _links(call: int) -> tuple[Any, ...]:
    links = (_uniform(call % 20, 0.0, 1.0, 100, 100) < 0.03).astype(np.float32) + np.eye(100, dtype=np.float32)
    return links / links.sum(0), 0.95, 1e-4


def _decisions(call: int) -> tuple[Any, ...]:
    chances = _uniform(call % 20, 0.0, 1.0, 4, 30, 30) ** 8
    return chances / chances.sum(2, keepdims=True), _uniform(call % 20 + 1, 0.0, 1.0, 4, 30), 0.9, 1e-2


def _regression(call: int) -> tuple[Any, ...]:
    rows = _uniform(call, -2.0, 2.0, 32, 4)
    targets = np.sin(rows[:, :1]) * rows[:, 1:2]
    return rows, targets, _normal(3 * call, 4, 16), 0.3 * _normal(3 * call + 1, 16, 1), 0.02, 0.15, 150


def _stream(call: int) -> tuple[Any, ...]:
    rows = _normal(call, 300, 8)
    return rows, np.sign(rows @ np.linspace(-1, 1, 8, dtype=np.float32) + 0.2 * _normal(call + 1, 300)), 0.05, 0.5


def _language(call: int) -> tuple[Any, ...]:
    sizes = ((20, 16), (16, 16), (20, 16))
    return *(s * _normal(3 * call + i, *shape) for i, (s, shape) in enumerate(zip((1.0, 0.3, 0.8), sizes, strict=True))), 4, 12


def _parameters() -> tuple[np.ndarray, ...]:
    return _normal(0, 50, 16), 0.2 * _normal(1, 80, 32), _normal(2, 3, 16)


def _tree(random: np.random.Generator, leaves: int) -> Any:
    if leaves == 1:
        return int(random.integers(50))
    left = int(random.integers(1, leaves))
    return _tree(random, left), _tree(random, leaves - left)


def tree_tensors(tree: Any) -> tuple[np.ndarray, ...]:
    """A tree of tuples as its nodes, children before parents: left and right children, -1 for a leaf, and words."""
    nodes: list[tuple[int, int, int]] = []

    def add(node: Any) -> int:
        nodes.append((-1, -1, node) if isinstance(node, int) else (add(node[0]), add(node[1]), 0))
        return len(nodes) - 1

    add(tree)
    return tuple(np.array(column) for column in zip(*nodes, strict=True))


def _nested(call: int) -> tuple[Any, ...]:
    return *_parameters(), _tree(np.random.default_rng(call), 16)


def _flat(call: int) -> tuple[Any, ...]:
    return *_parameters(), *tree_tensors(_tree(np.random.default_rng(call), 16))


def _shot(call: int) -> tuple[Any, ...]:
    x, y, u, v = np.float32(0.1 + 0.02 * (call % 20)), np.float32(0.5), np.float32(1.7), np.float32(1.1 + 0.03 * (call % 7))
    return x, y, u, v, 0.02, 1000


def _thrown(call: int) -> tuple[Any, ...]:
    return np.array([1.0 + 0.01 * (call % 20), 0.0], np.float32), np.array([0.05, 0.8], np.float32), 3.0, 1e-3


PROGRAMS = (
    Program("metropolis", "1,000 proposals of 3 numbers", _metropolis, lambda call: (np.ones(3, np.float32), 0.8, 1000), True),
    Program("hmc_50", "50 transitions of 8 leapfrog steps, with gradients", _hmc, _chain(50), True),
    Program("hmc_1000", "1,000 transitions of 8 leapfrog steps", _hmc, _chain(1000), True),
    Program("hmc_jittered", "50 transitions of 4 to 12 leapfrog steps, as drawn", _hmc_jittered, _chain(50), True),
    Program("hmc_calls", "100 calls of a compiled transition", _hmc_calls, _chain(100), True),
    Program(
        "nuts", "20 draws of the No-U-Turn sampler, by recursion", _nuts, lambda call: (np.ones(4, np.float32), 0.3, 20), True
    ),
    Program("heun_5", "8 adaptive steps of Heun's method", _heun, _problem(0.3, 3e-3)),
    Program("heun_50", "some 50 adaptive steps of Heun's method", _heun, _problem(1.7, 2e-3)),
    Program("heun_500", "some 500 adaptive steps of Heun's method", _heun, _problem(3.8, 1e-4)),
    Program("dopri_5", "4 adaptive steps of Dormand's and Prince's method", _dopri, _problem(1.0, 1e-3)),
    Program("dopri_50", "some 50 adaptive steps of Dormand's and Prince's method", _dopri, _problem(10.0, 1e-3)),
    Program("dopri_500", "some 500 adaptive steps of Dormand's and Prince's method", _dopri, _problem(100.0, 1e-3)),
    Program(
        "ball",
        "1,000 steps of a ball that bounces",
        _ball,
        lambda call: (np.float32(1.0 + 0.01 * (call % 20)), np.float32(0.0), 0.01, 1000),
    ),
    Program(
        "balls_100",
        "1,000 steps of 100 balls, some of which bounce",
        _balls,
        lambda call: (_uniform(call, 1.0, 2.0, 100), np.zeros(100, np.float32), 0.01, 1000),
    ),
    Program("box", "1,000 steps of a ball in a box of four walls", _box, _shot),
    Program("rejection", "300 numbers by rejection", _rejection, lambda call: (300,), True),
    Program("newton", "a line search in each step, from 20 positions", _newton, lambda call: (_uniform(call, -1.5, 1.5, 20, 2),)),
    Program("hopfield", "64 units, one after the other, until none changes", _hopfield, _memory),
    Program("fit", "Adam on 32 rows until the loss is small, 150 steps at most", _fit, _regression),
    Program("online", "300 rows one by one, a step of SGD for those that are not clear", _online, _stream),
    Program("beam", "beams of 4, at most 12 tokens of 20", _beam, _language),
    Program("tree_lstm", "a tree of 16 words, and gradients", _tree_lstm, _nested),
    Program("tree_tensors", "the same, the tree being tensors of children", _tree_tensors, _flat),
    Program("pagerank", "100 pages, until ranks stay", _pagerank, _links),
    Program("queue", "arrivals and departures of a queue", _queue, lambda call: (1.0, 1.25, 300.0), True),
    Program("value_iteration", "30 states of 4 actions, until values stay", _value_iteration, _decisions),
    Program("events", "the gradient through adaptive steps and bounces", _events, _thrown),
)


def select(names: tuple[str, ...] | list[str]) -> tuple[Program, ...]:
    """The programs of these names, all without any; raises ValueError for a name that none has."""
    known = {program.name: program for program in PROGRAMS}
    for name in names:
        if name not in known:
            raise ValueError(f"no program is called {name!r}; programs: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else PROGRAMS
