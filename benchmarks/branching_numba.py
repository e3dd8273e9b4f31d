"""The programs of benchmarks.branching as loops written by hand for Numba: float32, derivatives on paper, nothing checked.

Imported only where they are measured.  Those that draw seed Numba's generator with the number of the call and draw other numbers
than tracejit does, as many on average.  A tree of tuples is arrays before the call is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks.branching_programs import DIFFERENCE, END, TABLEAU, Program, tree_tensors

__all__ = ["SIDES", "side"]

_f = np.float32
_ROWS = np.zeros((len(TABLEAU), len(TABLEAU)), np.float32)
for _k, _row in enumerate(TABLEAU):
    _ROWS[_k, : len(_row)] = _row
_DIFFERENCE = np.array(DIFFERENCE, np.float32)
_STAGES = len(TABLEAU)


@njit
def _metropolis(seed: int, start: Any, scale: float, steps: int) -> Any:
    np.random.seed(seed)
    x, proposed, accepted = start.copy(), np.empty_like(start), 0
    density = _f(0)
    for i in range(x.shape[0]):
        density -= _f(0.5) * x[i] * x[i]
    for _ in range(steps):
        other = _f(0)
        for i in range(x.shape[0]):
            proposed[i] = x[i] + _f(scale) * _f(np.random.standard_normal())
            other -= _f(0.5) * proposed[i] * proposed[i]
        if _f(np.random.random()) < math.exp(other - density):
            x, proposed, density = proposed, x, other
            accepted += 1
    return x, accepted


@njit
def _energy(q: Any) -> Any:
    total = _f(0)
    for x in q:
        total += _f(0.5) * x * x + _f(0.05) * x * x * x * x
    return total


@njit
def _kick(p: Any, q: Any, step: Any) -> None:
    for i in range(q.shape[0]):
        p[i] -= step * (q[i] + _f(0.2) * q[i] * q[i] * q[i])


@njit
def _kinetic(p: Any) -> Any:
    total = _f(0)
    for x in p:
        total += _f(0.5) * x * x
    return total


@njit
def _transition(q: Any, moved: Any, p: Any, step: Any, leapfrogs: int) -> Any:
    """Leaves in `moved` where the leapfrog steps end, and says whether it is accepted."""
    for i in range(q.shape[0]):
        p[i] = _f(np.random.standard_normal())
        moved[i] = q[i]
    begun = _energy(q) + _kinetic(p)
    _kick(p, q, _f(0.5) * step)
    for k in range(leapfrogs):
        for i in range(q.shape[0]):
            moved[i] += step * p[i]
        _kick(p, moved, step if k < leapfrogs - 1 else _f(0.5) * step)
    return _f(np.random.random()) < math.exp(begun - _energy(moved) - _kinetic(p))


@njit
def _hmc(seed: int, start: Any, step: float, transitions: int) -> Any:
    np.random.seed(seed)
    q, moved, p, accepted = start.copy(), np.empty_like(start), np.empty_like(start), 0
    kept = np.empty((transitions, q.shape[0]), np.float32)
    for t in range(transitions):
        if _transition(q, moved, p, _f(step), 8):
            q, moved = moved, q
            accepted += 1
        kept[t] = q
    return kept, accepted


@njit
def _hmc_jittered(seed: int, start: Any, step: float, transitions: int) -> Any:
    np.random.seed(seed)
    q, moved, p, accepted = start.copy(), np.empty_like(start), np.empty_like(start), 0
    total = np.zeros_like(start)
    for _ in range(transitions):
        if _transition(q, moved, p, _f(step), np.random.randint(4, 13)):
            q, moved = moved, q
            accepted += 1
        for i in range(q.shape[0]):
            total[i] += q[i]
    return total / _f(transitions), accepted


@njit
def _makes_u_turn(q_left: Any, p_left: Any, q_right: Any, p_right: Any) -> Any:
    left, right = _f(0), _f(0)
    for i in range(q_left.shape[0]):
        left += (q_right[i] - q_left[i]) * p_left[i]
        right += (q_right[i] - q_left[i]) * p_right[i]
    return left < 0 or right < 0


@njit
def _subtree(q: Any, p: Any, log_slice: Any, step: Any, depth: int) -> Any:
    if depth == 0:
        q, p = q.copy(), p.copy()
        _kick(p, q, _f(0.5) * step)
        for i in range(q.shape[0]):
            q[i] += step * p[i]
        _kick(p, q, _f(0.5) * step)
        joint = -_energy(q) - _kinetic(p)
        return q, p, q, p, q, 1 if log_slice <= joint else 0, log_slice < joint + _f(1000)
    q_left, p_left, q_right, p_right, drawn, count, going = _subtree(q, p, log_slice, step, depth - 1)
    if going:
        if step < 0:
            q_left, p_left, _, _, other, more, going = _subtree(q_left, p_left, log_slice, step, depth - 1)
        else:
            _, _, q_right, p_right, other, more, going = _subtree(q_right, p_right, log_slice, step, depth - 1)
        if np.random.random() < more / max(count + more, 1):
            drawn = other
        count += more
        going = going and not _makes_u_turn(q_left, p_left, q_right, p_right)
    return q_left, p_left, q_right, p_right, drawn, count, going


@njit
def _nuts(seed: int, q: Any, step: float, draws: int) -> Any:
    np.random.seed(seed)
    kept, depths = np.empty((draws, q.shape[0]), np.float32), 0
    for d in range(draws):
        p = np.random.standard_normal(q.shape[0]).astype(np.float32)
        log_slice = -_energy(q) - _kinetic(p) + _f(math.log(np.random.random()))
        q_left, p_left, q_right, p_right = q, p, q, p
        depth, count, going = 0, 1, True
        while going and depth < 6:
            if np.random.random() < 0.5:
                q_left, p_left, _, _, drawn, more, going = _subtree(q_left, p_left, log_slice, -_f(step), depth)
            else:
                _, _, q_right, p_right, drawn, more, going = _subtree(q_right, p_right, log_slice, _f(step), depth)
            if going and np.random.random() < more / count:
                q = drawn
            count += more
            going = going and not _makes_u_turn(q_left, p_left, q_right, p_right)
            depth += 1
        depths += depth
        kept[d] = q
    return kept, depths


@njit
def _rejection(seed: int, count: int) -> Any:
    np.random.seed(seed)
    found = np.empty(count, np.float32)
    for i in range(count):
        while True:
            x = _f(6) * _f(np.random.random()) - _f(3)
            if _f(np.random.random()) < math.exp(_f(-0.5) * x * x):
                break
        found[i] = x
    return found


@njit
def _queue(seed: int, arriving: float, serving: float, end: float) -> Any:
    np.random.seed(seed)
    now, area, waiting, served, longest = 0.0, 0.0, 0, 0, 0
    arrival, departure = -math.log(1.0 - np.random.random()) / arriving, math.inf
    while True:
        following = min(arrival, departure)
        if following > end:
            return served, longest, area / end
        area += waiting * (following - now)
        now = following
        if arrival < departure:
            waiting += 1
            longest = max(longest, waiting)
            arrival = now - math.log(1.0 - np.random.random()) / arriving
            if waiting == 1:
                departure = now - math.log(1.0 - np.random.random()) / serving
        else:
            waiting -= 1
            served += 1
            departure = now - math.log(1.0 - np.random.random()) / serving if waiting > 0 else math.inf


@njit
def _heun_slope(t: float, y0: Any, y1: Any) -> Any:
    driven = _f(0.5 * math.sin(5.0 * t))
    return math.tanh(_f(-0.5) * y0 + _f(3) * y1) + driven, math.tanh(_f(-3) * y0 - _f(0.5) * y1) + driven


@njit
def _heun(start: Any, end: float, tolerance: float) -> Any:
    y0, y1 = start[0], start[1]
    t, dt, rejected = 0.0, 0.1, 0
    while t < end:
        dt = min(dt, end - t)
        h = _f(dt)
        a0, a1 = _heun_slope(t, y0, y1)
        b0, b1 = _heun_slope(t + dt, y0 + h * a0, y1 + h * a1)
        half = _f(0.5 * dt)
        error = float(max(abs(half * (b0 - a0)), abs(half * (b1 - a1))))
        if error <= tolerance:
            t, y0, y1 = t + dt, y0 + half * (a0 + b0), y1 + half * (a1 + b1)
        else:
            rejected += 1
        dt = dt * min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-12))))
    return np.array((y0, y1)), t, rejected


@njit
def _oscillator(y: Any, slope: Any) -> None:
    slope[0] = y[1]
    slope[1] = _f(2) * (_f(1) - y[0] * y[0]) * y[1] - y[0]


@njit
def _dopri(start: Any, end: float, tolerance: float) -> Any:
    y, moved, stages = start.copy(), np.empty_like(start), np.empty((_STAGES + 1, 2), np.float32)
    t, dt, rejected = 0.0, 0.05, 0
    _oscillator(y, stages[0])
    while t < end:
        dt = min(dt, end - t)
        h = _f(dt)
        for k in range(_STAGES):
            for i in range(2):
                total = _f(0)
                for j in range(k + 1):
                    total += _ROWS[k, j] * stages[j, i]
                moved[i] = y[i] + h * total
            _oscillator(moved, stages[k + 1])
        error = 0.0
        for i in range(2):
            total = _f(0)
            for j in range(_STAGES + 1):
                total += _DIFFERENCE[j] * stages[j, i]
            error = max(error, float(abs(h * total)))
        if error <= tolerance:
            t += dt
            y, moved = moved, y
            stages[0] = stages[_STAGES]
        else:
            rejected += 1
        dt = dt * min(5.0, max(0.2, 0.9 * (tolerance / (error + 1e-12)) ** 0.2))
    return y, t, rejected


@njit
def _ball(height: Any, speed: Any, dt: float, steps: int) -> Any:
    heights, bounces = np.empty(steps, np.float32), 0
    fall, h = _f(9.81 * dt), _f(dt)
    for k in range(steps):
        speed = speed - fall
        height = height + speed * h
        if height < 0:
            height, speed = -height, _f(-0.9) * speed
            bounces += 1
        heights[k] = height
    return heights, bounces


@njit
def _balls(heights: Any, speeds: Any, dt: float, steps: int) -> Any:
    heights, speeds, meetings = heights.copy(), speeds.copy(), 0
    fall, h = _f(9.81 * dt), _f(dt)
    for _ in range(steps):
        met = False
        for i in range(heights.shape[0]):
            speed = speeds[i] - fall
            height = heights[i] + speed * h
            if height < 0:
                height, speed, met = -height, _f(-0.9) * speed, True
            heights[i], speeds[i] = height, speed
        meetings += met
    return heights, speeds, meetings


@njit
def _box(x: Any, y: Any, u: Any, v: Any, dt: float, steps: int) -> Any:
    hits, h, kept, higher = 0, _f(dt), _f(-0.9), _f(-0.95)
    for _ in range(steps):
        v = v - h
        x, y = x + u * h, y + v * h
        if x < 0:
            x, u, hits = -x, kept * u, hits + 1
        if x > 1:
            x, u, hits = _f(2.0) - x, kept * u, hits + 1
        if y < 0:
            y, v, hits = -y, higher * v, hits + 1
        if y > 1:
            y, v, hits = _f(2.0) - y, higher * v, hits + 1
    return x, y, u, v, hits


@njit
def _fall(y: Any, drag: Any, tangents: Any, slope: Any, slope_tangents: Any) -> None:
    """The slope of a falling ball, and its derivatives by drag and by what a bounce keeps."""
    speed = y[1]
    slope[0], slope[1] = speed, _f(-9.81) - drag * speed * abs(speed)
    for j in range(2):
        slope_tangents[0, j] = tangents[1, j]
        slope_tangents[1, j] = _f(-2) * drag * abs(speed) * tangents[1, j]
    slope_tangents[1, 0] -= speed * abs(speed)


@njit
def _bounce(y: Any, dy: Any, moved: Any, dmoved: Any, h: Any, drag: Any, kept: Any, slope: Any, dslope: Any) -> None:
    """Puts in `moved` where a step ends that meets the ground, from where it would have ended without."""
    depth = y[0] - moved[0]
    share, dshare = y[0] / depth, np.empty(2, np.float32)
    change = moved[1] - y[1]
    speed = y[1] + share * change
    for j in range(2):
        dshare[j] = (dy[0, j] - share * (dy[0, j] - dmoved[0, j])) / depth
        dspeed = dy[1, j] + dshare[j] * change + share * (dmoved[1, j] - dy[1, j])
        dmoved[0, j], dmoved[1, j] = _f(0), -kept * dspeed
    dmoved[1, 1] -= speed
    moved[0], moved[1] = _f(0), -kept * speed
    _fall(moved, drag, dmoved, slope, dslope)
    for i in range(2):
        moved[i] += (_f(1) - share) * h * slope[i]
        for j in range(2):
            dmoved[i, j] += h * ((_f(1) - share) * dslope[i, j] - dshare[j] * slope[i])


@njit
def _events(start: Any, parameters: Any, end: float, tolerance: float) -> Any:
    """Derivatives forwards, beside the steps: there are two parameters."""
    drag, kept = parameters[0], parameters[1]
    y, dy, moved, dmoved = start.copy(), np.zeros((2, 2), np.float32), np.empty_like(start), np.empty((2, 2), np.float32)
    first, dfirst, second, dsecond = moved.copy(), dmoved.copy(), moved.copy(), dmoved.copy()
    t, dt, bounces = 0.0, 0.05, 0
    while t < end:
        dt = min(dt, end - t)
        h, half = _f(dt), _f(0.5 * dt)
        _fall(y, drag, dy, first, dfirst)
        for i in range(2):
            moved[i] = y[i] + h * first[i]
            for j in range(2):
                dmoved[i, j] = dy[i, j] + h * dfirst[i, j]
        _fall(moved, drag, dmoved, second, dsecond)
        error = float(max(abs(half * (second[0] - first[0])), abs(half * (second[1] - first[1]))))
        if error <= tolerance:
            for i in range(2):
                moved[i] = y[i] + half * (first[i] + second[i])
                for j in range(2):
                    dmoved[i, j] = dy[i, j] + half * (dfirst[i, j] + dsecond[i, j])
            if moved[0] < 0 and moved[1] < 0:
                _bounce(y, dy, moved, dmoved, h, drag, kept, first, dfirst)
                bounces += 1
            y, moved, dy, dmoved = moved, y, dmoved, dy
            t += dt
        dt = dt * min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-12))))
    distance = y[0] - _f(0.5)
    return distance * distance, _f(2) * distance * dy[0], bounces


@njit
def _valley(x: Any, y: Any) -> Any:
    inner = y - x * x
    return (_f(1) - x) * (_f(1) - x) + _f(100) * inner * inner


@njit
def _newton(starts: Any) -> Any:
    ends, taken = np.empty_like(starts), 0
    for n in range(starts.shape[0]):
        x, y = starts[n, 0], starts[n, 1]
        here = _valley(x, y)
        for _ in range(50):
            inner = y - x * x
            slope_x, slope_y = _f(-2) * (_f(1) - x) - _f(400) * x * inner, _f(200) * inner
            if max(abs(slope_x), abs(slope_y)) < _f(1e-2):
                break
            corner, mixed = _f(3) - _f(400) * (y - _f(3) * x * x), _f(-400) * x
            determinant = corner * _f(201) - mixed * mixed
            step_x = -(_f(201) * slope_x - mixed * slope_y) / determinant
            step_y = -(corner * slope_y - mixed * slope_x) / determinant
            down, rate = slope_x * step_x + slope_y * step_y, 1.0
            while True:
                moved_x, moved_y = x + _f(rate) * step_x, y + _f(rate) * step_y
                there = _valley(moved_x, moved_y)
                if there <= here + _f(1e-4 * rate) * down or rate < 1e-6:
                    break
                rate *= 0.5
            x, y, here, taken = moved_x, moved_y, there, taken + 1
        ends[n, 0], ends[n, 1] = x, y
    return ends, taken


@njit
def _hopfield(weights: Any, start: Any) -> Any:
    state, sweeps, flips, changing = start.copy(), 0, 0, True
    while changing:
        changing = False
        for i in range(state.shape[0]):
            total = _f(0)
            for j in range(state.shape[0]):
                total += weights[i, j] * state[j]
            value = np.sign(total)
            if value != 0 and value != state[i]:
                state[i] = value
                flips += 1
                changing = True
        sweeps += 1
    return state, sweeps, flips


@njit
def _pagerank(links: Any, damping: float, tolerance: float) -> Any:
    pages = links.shape[0]
    ranks, moved, steps = np.full(pages, _f(1 / pages)), np.empty(pages, np.float32), 0
    while True:
        np.dot(links, ranks, moved)
        change = _f(0)
        for i in range(pages):
            moved[i] = _f(damping) * moved[i] + _f((1 - damping) / pages)
            change += abs(moved[i] - ranks[i])
        ranks, moved, steps = moved, ranks, steps + 1
        if change < tolerance:
            return ranks, steps


@njit
def _value_iteration(chances: Any, rewards: Any, discount: float, tolerance: float) -> Any:
    actions, states = rewards.shape
    flat, worth = chances.reshape(actions * states, states), np.empty(actions * states, np.float32)
    values, choices = np.zeros(states, np.float32), np.zeros(states, np.int64)
    change, sweeps = math.inf, 0
    while change > tolerance:
        np.dot(flat, values, worth)
        change = 0.0
        for s in range(states):
            best, choice = _f(-math.inf), 0
            for a in range(actions):
                value = rewards[a, s] + _f(discount) * worth[a * states + s]
                if value > best:
                    best, choice = value, a
            change = max(change, float(abs(best - values[s])))
            values[s], choices[s] = best, choice
        sweeps += 1
    return values, choices, sweeps


@njit
def _extend(embedding: Any, recurrent: Any, output: Any, token: int, hidden: Any, chances: Any) -> Any:
    """The state after a token; leaves in `chances` the logarithms of those of the tokens that follow."""
    moved, greatest, total = embedding[token] + np.dot(recurrent, hidden), _f(-math.inf), _f(0)
    for i in range(moved.shape[0]):
        moved[i] = math.tanh(moved[i])
    np.dot(output, moved, chances)
    for chance in chances:
        greatest = max(greatest, chance)
    for chance in chances:
        total += math.exp(chance - greatest)
    for i in range(chances.shape[0]):
        chances[i] -= greatest + math.log(total)
    return moved


@njit
def _beam(embedding: Any, recurrent: Any, output: Any, width: int, length: int) -> Any:
    """Beams are rows, those with the greatest scores first; of candidates that score the same the first one stays so."""
    scores, following_scores = np.zeros(width), np.empty(width)
    tokens, following_tokens = np.empty((width, length + 1), np.int64), np.empty((width, length + 1), np.int64)
    ends, following_ends = np.ones(width, np.int64), np.empty(width, np.int64)
    hidden, following_hidden = (
        np.zeros((width, recurrent.shape[0]), np.float32),
        np.empty((width, recurrent.shape[0]), np.float32),
    )
    chances = np.empty(output.shape[0], np.float32)
    tokens[0, 0], beams, going = 1, 1, True
    while going and length > 0:
        found, length = 0, length - 1
        for beam in range(beams):
            last = tokens[beam, ends[beam] - 1]
            moved = hidden[beam]
            if last != END:
                moved = _extend(embedding, recurrent, output, last, moved, chances)
            for token in range(output.shape[0] if last != END else 1):
                score = scores[beam] + (chances[token] if last != END else 0.0)
                if found == width and score <= following_scores[width - 1]:
                    continue
                place = found if found < width else width - 1
                found = place + 1
                while place > 0 and score > following_scores[place - 1]:
                    following_scores[place], following_ends[place] = following_scores[place - 1], following_ends[place - 1]
                    following_tokens[place], following_hidden[place] = following_tokens[place - 1], following_hidden[place - 1]
                    place -= 1
                following_scores[place], following_ends[place] = score, ends[beam]
                following_tokens[place], following_hidden[place] = tokens[beam], moved
                if last != END:
                    following_tokens[place, ends[beam]] = token
                    following_ends[place] += 1
        scores, following_scores = following_scores, scores
        tokens, following_tokens = following_tokens, tokens
        ends, following_ends = following_ends, ends
        hidden, following_hidden = following_hidden, hidden
        beams, going = found, False
        for beam in range(beams):
            going = going or tokens[beam, ends[beam] - 1] != END
    return scores[0], tokens[0, : ends[0]]


@njit
def _sigmoid(x: Any) -> Any:
    return _f(1) / (_f(1) + math.exp(-x))


@njit
def _cell(inputs: Any, weight: Any, left: Any, right: Any, gates: Any, h: Any, c: Any) -> None:
    """The state of a node from those of its children; leaves what their gates are."""
    size = h.shape[0]
    np.dot(weight, inputs, gates)
    for i in range(4 * size):
        gates[i] = _sigmoid(gates[i])
    for i in range(size):
        gates[4 * size + i] = math.tanh(gates[4 * size + i])
        c[i] = gates[i] * gates[4 * size + i] + gates[size + i] * left[i] + gates[2 * size + i] * right[i]
        h[i] = gates[3 * size + i] * math.tanh(c[i])


@njit
def _cell_backward(gates: Any, left: Any, right: Any, c: Any, dh: Any, dc: Any, dleft: Any, dright: Any, dgates: Any) -> None:
    """The derivatives by what came before the gates, and by the children's memories."""
    size = c.shape[0]
    for i in range(size):
        into, keep_left, keep_right = gates[i], gates[size + i], gates[2 * size + i]
        out, new, bent = gates[3 * size + i], gates[4 * size + i], math.tanh(c[i])
        slope = dc[i] + dh[i] * out * (_f(1) - bent * bent)
        dleft[i], dright[i] = slope * keep_left, slope * keep_right
        dgates[i] = slope * new * into * (_f(1) - into)
        dgates[size + i] = slope * left[i] * keep_left * (_f(1) - keep_left)
        dgates[2 * size + i] = slope * right[i] * keep_right * (_f(1) - keep_right)
        dgates[3 * size + i] = dh[i] * bent * out * (_f(1) - out)
        dgates[4 * size + i] = slope * into * (_f(1) - new * new)


@njit
def _tree(embedding: Any, weight: Any, readout: Any, left: Any, right: Any, words: Any) -> Any:
    """Nodes in order, children before parents, and back."""
    nodes, size = left.shape[0], embedding.shape[1]
    h, c = np.empty((nodes, size), np.float32), np.empty((nodes, size), np.float32)
    inputs, gates = np.empty((nodes, 2 * size), np.float32), np.empty((nodes, 5 * size), np.float32)
    for n in range(nodes):
        if left[n] < 0:
            for i in range(size):
                c[n, i] = embedding[words[n], i]
                h[n, i] = math.tanh(c[n, i])
        else:
            inputs[n, :size], inputs[n, size:] = h[left[n]], h[right[n]]
            _cell(inputs[n], weight, c[left[n]], c[right[n]], gates[n], h[n], c[n])
    logits = np.dot(readout, h[nodes - 1])
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    loss = -math.log(chances[1])
    chances[1] -= _f(1)
    dreadout = chances.reshape(-1, 1) * h[nodes - 1]
    dembedding, dweight, dgates = np.zeros_like(embedding), np.zeros_like(weight), np.empty(5 * size, np.float32)
    dh, dc = np.zeros((nodes, size), np.float32), np.zeros((nodes, size), np.float32)
    dh[nodes - 1] = np.dot(chances, readout)
    for n in range(nodes - 1, -1, -1):
        if left[n] < 0:
            for i in range(size):
                dembedding[words[n], i] += dc[n, i] + dh[n, i] * (_f(1) - h[n, i] * h[n, i])
        else:
            _cell_backward(gates[n], c[left[n]], c[right[n]], c[n], dh[n], dc[n], dc[left[n]], dc[right[n]], dgates)
            for k in range(5 * size):
                for i in range(2 * size):
                    dweight[k, i] += dgates[k] * inputs[n, i]
            dinputs = np.dot(dgates, weight)
            dh[left[n]], dh[right[n]] = dinputs[:size], dinputs[size:]
    return loss, dembedding, dweight, dreadout


@njit
def _fit(rows: Any, targets: Any, first: Any, second: Any, rate: float, bound: float, most: int) -> Any:
    first, second = first.copy(), second.copy()
    count = rows.shape[0]
    means, squares = np.zeros_like(first), np.zeros_like(first)
    other_means, other_squares = np.zeros_like(second), np.zeros_like(second)
    taken = 0
    while taken < most:
        hidden = np.tanh(rows @ first)
        error = hidden @ second - targets
        loss = _f(0)
        for i in range(count):
            loss += error[i, 0] * error[i, 0]
        scaled = error * _f(2 / count)
        taken += 1
        size, correction = rate / (1 - 0.9**taken), math.sqrt(1 - 0.999**taken)
        slope = hidden.T @ scaled
        back = (scaled @ second.T) * (_f(1) - hidden * hidden)
        for values, gradient, mean, square in (
            (first.ravel(), (rows.T @ back).ravel(), means.ravel(), squares.ravel()),
            (second.ravel(), slope.ravel(), other_means.ravel(), other_squares.ravel()),
        ):
            for i in range(values.size):
                mean[i] += _f(0.1) * (gradient[i] - mean[i])
                square[i] = _f(0.999) * square[i] + _f(0.001) * gradient[i] * gradient[i]
                values[i] -= _f(size) * mean[i] / (_f(math.sqrt(square[i])) / _f(correction) + _f(1e-8))
        if loss / count < bound:
            break
    return first, second, taken - 1


@njit
def _online(rows: Any, signs: Any, rate: float, margin: float) -> Any:
    count, width = rows.shape
    weight, velocity, mistakes = np.zeros(width, np.float32), np.zeros(width, np.float32), 0
    for k in range(count):
        product = _f(0)
        for i in range(width):
            product += rows[k, i] * weight[i]
        if _f(margin) - signs[k] * product <= 0:
            continue
        for i in range(width):
            gradient = -signs[k] * rows[k, i]
            velocity[i] = gradient if mistakes == 0 else _f(0.9) * velocity[i] + gradient
            weight[i] -= _f(rate) * velocity[i]
        mistakes += 1
    return weight, mistakes


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
    return (lambda: function(call, *inputs)) if program.draws else (lambda: function(*inputs))
