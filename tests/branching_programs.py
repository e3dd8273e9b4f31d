"""Programs with loops whose steps take different paths, and what is asked of recordings that outline the loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit as T
from tracejit.core.tree import flatten
from tracejit.ir.loop import leaves_by_step

CALLS = 8
Given = Callable[[int], tuple[Any, ...]]


# -- what is asked
def outlined(*functions: Any, **options: Any) -> Any:
    """The first function, compiled, whose recordings outline every loop of it and of the others from the first call on."""
    compiled = T.compile(functions[0], wait=True, **options)
    for function in functions:
        code = getattr(function, "__func__", function).__code__
        lines = [line for _, _, line in code.co_lines() if line is not None]
        compiled._policy.branching_lines[code] = frozenset(range(min(lines), max(lines) + 1))
    return compiled


def outcome(function: Callable[..., Any], given: tuple[Any, ...], seed: int) -> Any:
    """What a call gives or raises, what is in its arguments then, which objects are one, and the state of the generator."""
    T.manual_seed(seed)
    try:
        result = function(*given)
    except Exception as error:
        result = type(error), str(error)
    leaves, structure = flatten((result, given))
    tensors = [x for x in leaves if isinstance(x, T.Tensor)]
    first: dict[int, int] = {}
    objects = [first.setdefault(id(x), k) for k, x in enumerate(tensors)]
    memory = [[bool(np.shares_memory(x._array, y._array)) for y in tensors[:k]] for k, x in enumerate(tensors)]
    return leaves, str(structure), objects, memory, T.get_rng_state().tolist()


def assert_equal(expected: Any, found: Any, exact: bool = False) -> None:
    """Outcomes are the same: bit for bit, or but for rounding."""
    what = ("types", "objects", "memory", "state of the generator")
    assert len(expected[0]) == len(found[0]), (expected[1], found[1])
    for name, x, y in zip(what, expected[1:], found[1:], strict=True):
        assert x == y, f"{name}: {str(x)[:500]}, not {str(y)[:500]}"
    for x, y in zip(expected[0], found[0], strict=True):
        assert type(x) is type(y), (x, y)
        if isinstance(x, T.Tensor):
            assert (x.shape, x.dtype, x.stride(), x.requires_grad) == (y.shape, y.dtype, y.stride(), y.requires_grad)
            x, y, exact_kind = x.detach().numpy(), y.detach().numpy(), x.dtype not in (T.float32, T.float64)
        else:
            exact_kind = type(x) is not float
        if exact or exact_kind:
            np.testing.assert_array_equal(x, y)
        else:
            tolerance = 2e-5 if getattr(x, "dtype", None) == np.float32 else 1e-9
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def loops_of_paths(compiled: Any) -> list[int]:
    """How many nodes of each recorded path stand for a loop whose steps take different paths."""
    paths = compiled._table.paths
    return [sum(not leaves_by_step(node.op) for node in path.recording.graph.nodes) for path in paths]


def agrees(
    function: Any,
    given: Given,
    *callees: Any,
    recordings: int = 3,
    calls: int = CALLS,
    exact: bool = False,
    compiled: Any = None,
    loops: int = 1,
    **options: Any,
) -> Any:
    """The function, compiled, after calls that gave what eager ones give.  The last two calls were compiled, there are so many
    recordings at most, and each of them has so many nodes that stand for a loop."""
    compiled = compiled or outlined(function, *callees, **options)
    for k in range(calls):
        if k == calls - 2:
            served, traces = compiled.stats.compiled_calls, compiled.stats.traces
        assert_equal(outcome(function, given(k), k), outcome(compiled, given(k), k), exact)
    assert (compiled.stats.compiled_calls - served, compiled.stats.traces) == (2, traces), compiled.explain()
    assert traces <= recordings, compiled.explain()
    assert min(loops_of_paths(compiled)) >= loops, compiled.explain()
    return compiled


# -- programs
def density(x: Any) -> Any:
    return T.exp(-0.5 * (x * x).sum())


def metropolis(x: Any, steps: int) -> Any:
    accepted, seen = 0, []
    for _ in range(steps):
        proposed = x + 0.8 * T.randn(3)
        if T.rand(()) < density(proposed) / density(x):
            x, accepted = proposed, accepted + 1
        seen.append(x)
    return x, accepted, T.stack(seen).mean(0)


def trades(prices: Any, window: int = 3) -> Any:
    cash, shares, done = 100.0, 0, []
    for t in range(window, len(prices)):
        mean = prices[t - window : t].mean()
        if prices[t] > mean and shares == 0:
            shares = 10
            cash -= shares * prices[t].item()
            done.append(("buy", t))
        elif prices[t] < mean and shares > 0:
            cash += shares * prices[t].item()
            shares = 0
            done.append(("sell", t))
    return cash, done


def heun(y: Any, end: float, tolerance: float) -> Any:
    t, dt, rejected = 0.0, 0.1, 0
    while t < end:
        dt = min(dt, end - t)
        first = T.sin(3 * y) + t
        second = T.sin(3 * (y + dt * first)) + (t + dt)
        error = (0.5 * dt * (second - first)).abs().max().item()
        if error <= tolerance:
            t, y = t + dt, y + 0.5 * dt * (first + second)
        else:
            rejected += 1
        dt = dt * min(2.0, max(0.3, 0.9 * (tolerance / (error + 1e-12)) ** 0.5))
    return y, t, rejected


def ball(height: Any, speed: Any, steps: int) -> Any:
    heights, bounces = [], 0
    for _ in range(steps):
        speed = speed - 0.0981
        height = height + 0.01 * speed
        if height < 0:
            height, speed = -height, -0.9 * speed
            bounces += 1
        heights.append(height)
    return T.stack(heights), bounces


def rejection(count: int) -> Any:
    found, tries = [], 0
    for _ in range(count):
        while True:
            tries += 1
            x = 6 * T.rand(()) - 3
            if T.rand(()) < T.exp(-0.5 * x * x):
                break
        found.append(x)
    return T.stack(found), tries


def leaving(xs: Any) -> Any:
    """Steps that go on, end the loop, and end the function."""
    total = xs[0] * 0
    for x in xs:
        if x < 0:
            continue
        total = total + x
        if total > 9:
            return total, "much"
        if total > 5:
            break
    else:
        return total, "little"
    return total * 2, "enough"


def collatz(n: Any) -> Any:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps, n


def dynamic_range(count: Any, x: Any) -> Any:
    for k in range(int(count)):
        x = x * 0.5 if x > 1 else x + k
    return x


def rows(xs: Any) -> Any:
    h = xs[0] * 0
    for x in xs:
        h = h + x if x.sum() > h.sum() else h * 0.5
    return h


def flags(xs: Any) -> Any:
    """Bools that steps carry on."""
    is_up, has_turned, turns = True, False, 0
    level = xs[0] + 0
    for x in xs:
        if is_up == bool(x < level):
            is_up, has_turned = not is_up, True
            turns += 1
        level = x + 0
    return is_up, has_turned, turns, level


def without_value(xs: Any) -> Any:
    """A variable that has no value before the loop."""
    count = 0
    for x in xs:
        if x > 0:
            last = x * 2
            count += 1
    return last, count


def best_so_far(xs: Any, best: Any) -> Any:
    at = -1
    for k in range(12):
        x = xs[k]
        if x.sum() > best.sum():
            best, at = x + 0, k
    return best, at


def swaps(a: Any, b: Any, xs: Any) -> Any:
    for x in xs:
        if x > 0:
            a, b = b, a
    return a, b, a


def aliases(a: Any, xs: Any) -> Any:
    """Two variables that hold one object or two, as values decide."""
    b = a
    for x in xs:
        a = a + x
        if x > 0:
            b = a
    return a, b


def reset(x: Any, steps: int) -> Any:
    """A tensor from before the loop that steps go back to."""
    start, resets = x * 1, 0
    for _ in range(steps):
        x = x + T.rand(2)
        if x.sum() > 4:
            x, resets = start, resets + 1
    return x, start, resets


def first_other(xs: Any) -> Any:
    """A first step that leaves other kinds of things than it was given."""
    best, count = None, 0
    for x in xs:
        if best is None or x.sum() > best.sum():
            best = x + 0
            count += 1
    return best, count


def some_draw(x: Any, steps: int) -> Any:
    draws = 0
    for _ in range(steps):
        if x > 0:
            x = x - T.rand(())
            draws += 1
        else:
            x = x + 0.7
    return x, draws


def leapfrog(q: Any, steps: int) -> Any:
    accepted = 0
    for _ in range(steps):
        p = T.randn(2)
        leaf = q.detach().requires_grad_()
        (slope,) = T.autograd.grad((leaf**4).sum() / 4, leaf)
        moved = q + 0.3 * (p - 0.15 * slope)
        if T.rand(()) < T.exp((q**4).sum() / 4 - (moved**4).sum() / 4):
            q, accepted = moved, accepted + 1
    return q, accepted


def two_in_a_row(xs: Any) -> Any:
    h = xs[0] * 0
    for x in xs:
        h = h + x if x > 0 else h * 0.5
    count = 0
    while h.abs() > 0.1:
        h = h * 0.5 if h > 1 else h * 0.8
        count += 1
    return h, count


def climbed(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x * 1.5 if x < 1 else x - 0.8
    return x


def calls_a_loop(x: Any, steps: int) -> Any:
    return climbed(x, steps) + climbed(x * 0.5, steps)


def calls_a_loop_in_steps(xs: Any) -> Any:
    h = xs[0] * 0
    for x in xs:
        if x > 0:
            h = h + climbed(x, 12)
    return h


def bisected(low: Any, high: Any, steps: int) -> Any:
    """Two loops, one in the other, and floats that steps change."""
    rounds = 0
    for k in range(steps):
        goal = 0.1 * k
        while high - low > 1e-3 * (k + 1):
            middle = 0.5 * (low + high)
            if middle**3 < goal:
                low = middle
            else:
                high = middle
            rounds += 1
        low, high = low - 1.0, high + 1.0
    return low, high, rounds


def enumerated(xs: Any) -> Any:
    h = xs[0] * 0
    for k, x in enumerate(xs):
        h = h + x if x > 0 else h * (k + 1) * 0.1
    return h


def side_by_side(xs: Any, ys: Any) -> Any:
    h, items = xs[0] * 0, []
    for x, y in zip(xs, ys):  # noqa: B905
        h = h + x if x > y else h * 0.5
        items.append(h * y)
    return h, T.stack(items)


def backwards(xs: Any) -> Any:
    h = xs[0] * 0
    for x in reversed(xs):
        h = h + x if x > h else h * 0.5
    return h


def chained(x: Any, steps: int) -> Any:
    for _ in range(steps):
        if (0 < x.sum() < 2 and x.max() > 0.5) or x.min() < -1:
            x = x + 1
        else:
            x = -x * 0.7
    return x


def policy(values: Any, steps: int) -> Any:
    """Integers that values decide, as positions in a tensor."""
    state, total = 0, 0.0
    for _ in range(steps):
        action = int(values[state].argmax())
        if T.rand(()) < 0.2:
            action = int(T.randint(0, 2, ()))
        state = (state + action + 1) % 3
        total = total + values[state].sum().item()
    return state, total


def cases(values: Any, steps: int) -> Any:
    place = 0
    for _ in range(steps):
        case = int(values[place % 3] * 3)
        if case == 0:
            place += 1
        elif case == 1:
            place += 2
        else:
            place += 4
    return place


def powers(a: Any, steps: int) -> Any:
    x = a[0] * 1
    for _ in range(steps):
        y = a @ x
        norm = y.norm()
        x = y / norm if norm > 1 else y + 0.1
    return x


def ended_inside(xs: Any) -> Any:
    """A `return` in a loop in a loop."""
    for x in xs:
        for k in range(3):
            if x > 1 + k * 0.2:
                return x * k
    return xs[0] * 1


def before_and_after(xs: Any) -> Any:
    h, before = xs[0] * 0, xs[0] * 1
    for x in xs:
        if x > before:
            h = h + x
        before = x * 1
    return h, before


def written(xs: Any, steps: int) -> Any:
    """Tensors of the function that steps write to."""
    counts = T.zeros(3)
    x = xs[0] * 1
    for k in range(steps):
        counts[int(x.sum() > 0)] += 1
        if counts[0] > counts[1]:
            x = x + 1
            counts[2] = k
        else:
            x = x - xs[1]
    return x, counts


def state_before(x: Any, steps: int) -> Any:
    """What a step began with is carried, and not read after the loop."""
    before = x
    for _ in range(steps):
        if (x - before).sum() > 0:
            before, x = x, x - 0.5 + T.randn(3) * 0.1
        else:
            before, x = x, x + 0.7
    return x


def chosen_length(x: Any, steps: int) -> Any:
    """How many steps there are is an argument, which each call gives anew."""
    for k in range(steps):
        x = x * 0.5 if x.sum() > 1 else x + 0.1 * k
    return x


def of_one_length(xs: Any, ys: Any) -> Any:
    total = xs[0] * 0
    for x, y in zip(xs, ys, strict=True):
        total = total + x if x > y else total - y
    return total


def positions(xs: Any, at: Any) -> Any:
    """What looks at positions in some steps only, where those of other steps may be out of range."""
    counts = T.zeros(4, dtype=T.float64)
    for k in range(20):
        if at[k] < 4:
            counts = counts.index_add(0, at[k].reshape(1), xs[k].reshape(1))
        elif xs[k] > 0:
            counts = counts + T.nn.functional.cross_entropy(counts.reshape(1, 4), at[k].reshape(1) - 4)
        else:
            counts = counts * 0.5 + xs[at[k]]
    return counts


def whole_and_parts(xs: Any) -> Any:
    """A step writes to a whole tensor, to a part of it, and copies it then."""
    total, halved, copied = xs[0] * 0, T.zeros(3, dtype=T.float64), T.ones(3, dtype=T.float64)
    cleared = T.ones(2, dtype=T.float64)
    for x in xs:
        halved.mul_(0.5)
        cleared.zero_()
        total = total * 0.5 if x > 0 else total + x
        halved[0] += total
        copied.copy_(halved)
        cleared[1] += copied.sum()
    return total, halved, copied, cleared


def around_a_loop(x: Any) -> Any:
    """The loop around is none that can be a node."""
    goes_on, rounds = True, 0
    while rounds < 4:
        rounds += 1
        if goes_on:
            for k in range(rounds % 3 + 1):
                goes_on = bool(x < 3)
                x = x + x if x < 8 else x - k
    else:
        rounds = -rounds
    return x, rounds


def of(*numbers: float, dtype: Any = None) -> Any:
    return T.tensor(np.array(numbers, np.float64 if dtype is None else dtype))


def normal(k: int, *shape: int) -> Any:
    return T.tensor(np.random.default_rng(k).normal(0, 1.5, shape))


PROGRAMS: dict[str, tuple[Any, Given, tuple[Any, ...], dict[str, Any]]] = {
    "accepted or rejected": (metropolis, lambda k: (T.ones(3) * (1 + 0.1 * k), 60), (), {}),
    "steps of a size that a tolerance decides": (heun, lambda k: (of(1 + 0.1 * k, 0.5), 3.0, 1e-4), (), {}),
    "a list of heights": (ball, lambda k: (of(1 + 0.1 * k).sum(), of(0.0).sum(), 90), (), {"exact": True}),
    "a loop that values end in a loop": (rejection, lambda k: (30,), (), {}),
    "continue, break, return, else": (leaving, lambda k: (normal(k, 9),), (), {"recordings": 6, "calls": 20}),
    "values decide how many steps there are": (collatz, lambda k: (T.tensor(27 + 4 * k),), (), {"exact": True}),
    "a range that values end": (dynamic_range, lambda k: (of(7 + k).sum(), of(0.5).sum()), (), {"exact": True}),
    "rows of a tensor": (rows, lambda k: (normal(k, 20, 4),), (), {}),
    "bools": (flags, lambda k: (normal(k % 4, 20),), (), {"recordings": 4, "calls": 14}),
    "a variable without a value": (without_value, lambda k: (normal(k, 20),), (), {"exact": True}),
    "the best so far": (best_so_far, lambda k: (normal(k, 12, 3), normal(k + 99, 3) + 2), (), {"calls": 14}),
    "swaps": (swaps, lambda k: (normal(k, 3), normal(k, 3), normal(k + 1, 9)), (), {"exact": True, "calls": 10}),
    "aliases": (aliases, lambda k: (normal(k, 3), normal(k, 9)), (), {"exact": True, "calls": 10}),
    "back to a tensor from before the loop": (reset, lambda k: (normal(k, 2).float(), 25), (), {"calls": 12}),
    "a first step of other kinds": (first_other, lambda k: (normal(k, 12, 3),), (), {"calls": 20}),
    "draws in some branches": (some_draw, lambda k: (T.tensor(0.3 * k), 25), (), {"exact": True}),
    "a gradient in each step": (leapfrog, lambda k: (T.ones(2) * 0.1 * k, 30), (), {}),
    "two loops in a row": (two_in_a_row, lambda k: (normal(k, 20),), (), {"loops": 2, "exact": True, "calls": 14}),
    "a loop in a function that is called": (calls_a_loop, lambda k: (of(0.1 + k).sum(), 20), (climbed,), {"loops": 2}),
    "a loop in a function that steps call": (calls_a_loop_in_steps, lambda k: (normal(k, 9),), (climbed,), {}),
    "enumerate": (enumerated, lambda k: (normal(k, 20),), (), {}),
    "zip": (side_by_side, lambda k: (normal(k, 20), normal(k + 50, 20)), (), {}),
    "reversed": (backwards, lambda k: (normal(k, 20),), (), {}),
    "conditions of several parts": (chained, lambda k: (normal(k, 3), 25), (), {"recordings": 5, "calls": 20}),
    "integers that values decide": (policy, lambda k: (normal(k, 3, 2), 25), (), {"calls": 12}),
    "integers that decide": (cases, lambda k: (normal(k, 3).abs().clamp(0, 0.9), 25), (), {"recordings": 8, "calls": 30}),
    "products": (powers, lambda k: (normal(k, 3, 3), 15), (), {"recordings": 5, "calls": 20}),
    "a return in a loop in a loop": (ended_inside, lambda k: (normal(k, 9),), (), {"recordings": 8, "calls": 40}),
    "what was before": (before_and_after, lambda k: (normal(k, 20),), (), {"exact": True}),
    "tensors that steps write to": (written, lambda k: (normal(k, 2, 2), 20), (), {"exact": True, "calls": 12}),
    "a bisection in each step": (bisected, lambda k: (0.0, 2.0 + k, 6), (), {}),
    "the state before": (state_before, lambda k: (normal(k, 3), 25), (), {}),
    "as many steps as an argument says": (chosen_length, lambda k: (normal(k, 3).abs(), 20 + 3 * k), (), {"recordings": 3}),
    "writes to a tensor and parts of it": (whole_and_parts, lambda k: (normal(k, 20),), (), {"exact": True}),
    "positions": (positions, lambda k: (normal(k, 20), T.tensor(np.random.default_rng(k).integers(0, 8, 20))), (), {}),
    "zip of what is as long": (of_one_length, lambda k: (normal(k, 20), normal(k + 50, 20)), (), {}),
}
"""What they are called, the function, its arguments in each call, functions that it calls, and what `agrees` is told."""
