"""Steps that are done again so that what they make need not be kept (lowering/rematerialise.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit
from benchmarks.network_models import Network, select, step_side
from tracejit.config import override
from tracejit.lowering import lower, rematerialise
from tracejit.lowering.rematerialise import NEAR, Work, most_alive, repetitions

KB = 1 << 10


def work(reads: Any, writes: Any, cost: int | None = None) -> Work:
    return Work(frozenset(reads), frozenset(writes), cost)


def done_again(steps: list[Work], sizes: dict[int, int]) -> tuple[list[tuple[Work, int]], dict[int, int]]:
    """The steps that are then done, each with its number in `steps`, and the sizes of all values."""
    found, instead = repetitions(steps, sizes, fresh := 1 + max([v for s in steps for v in (*s.reads, *s.writes)], default=0))
    sizes = dict(sizes)
    result: list[tuple[Work, int]] = []
    for k, step in enumerate(steps):
        for n, r in enumerate(found):
            if r.before == k:
                names, own = instead[len(steps) + n], steps[r.step]
                assert own.cost is not None and set(r.names) == own.writes and min(r.names.values()) >= fresh
                result.append((work((names.get(v, v) for v in own.reads), r.names.values()), r.step))
                sizes.update({name: sizes[v] for v, name in r.names.items() if v in sizes})
        names = instead.get(k, {})
        result.append((work((names.get(v, v) for v in step.reads), step.writes), k))
    return result, sizes


def wide_and_narrow(cost: int | None) -> tuple[list[Work], dict[int, int]]:
    """1 is made into 2, which is nine times as large and read at the beginning and at the end."""
    between = [work([10 + k], [11 + k]) for k in range(NEAR + 2)]
    steps = [work([0], [1]), work([1], [2], cost), work([2], [10]), *between, work([2, 10 + len(between)], [3])]
    return steps, {1: 100 * KB, 2: 900 * KB, 3: KB, **{10 + k: 200 * KB for k in range(len(between) + 1)}}


def test_a_large_value_made_of_a_small_one_is_made_again_before_its_last_reader() -> None:
    steps, sizes = wide_and_narrow(cost=50 * KB)
    after, sizes_after = done_again(steps, sizes)
    assert [k for _, k in after] == [*range(len(steps) - 1), 1, len(steps) - 1]
    (again,) = after[-2][0].writes
    assert again in after[-1][0].reads and 2 not in after[-1][0].reads
    alive = [k for k, (step, _) in enumerate(after) if 2 in step.reads | step.writes]
    assert alive == [1, 2], "the first one is dead after its first reader"
    middle = [s for s, _ in after[3:-2]]
    assert most_alive(middle, sizes_after)[0] == 400 * KB, "those between, of which two are alive at a time"


@pytest.mark.parametrize("cost", [None, 2000 * KB], ids=["may not be done again", "costs more than memory"])
def test_a_step_that_may_not_be_done_again_or_costs_more_than_its_memory_is_not(cost: int | None) -> None:
    steps, sizes = wide_and_narrow(cost)
    assert [k for _, k in done_again(steps, sizes)[0]] == list(range(len(steps)))


def test_a_value_that_is_read_again_soon_is_kept() -> None:
    steps = [work([0], [1]), work([1], [2], 1), work([2], [3]), work([3], [4]), work([2, 4], [5])]
    assert len(done_again(steps, {1: KB, 2: 900 * KB, 3: KB, 4: KB})[0]) == len(steps)


programs = st.lists(
    st.tuples(st.lists(st.integers(1, 12), max_size=3), st.integers(1, 2), st.sampled_from([None, 1, 20 * KB, 200 * KB])),
    min_size=1,
    max_size=25,
)


@given(programs, st.lists(st.sampled_from([0, KB, 32 * KB, 300 * KB]), min_size=60, max_size=60))
def test_every_step_reads_what_it_read_before_and_what_is_done_again_gives_the_same(rows: Any, nbytes: list[int]) -> None:
    steps: list[Work] = []
    made = 0
    for distances, count, cost in rows:
        reads = [made + 1 - d for d in distances if made + 1 - d > 0]
        steps.append(work([0, *reads], range(made + 1, made + 1 + count), cost))
        made += count
    sizes = {v: nbytes[v] for v in range(1, made + 1) if nbytes[v]}  # others are memory of the caller's

    def run(program: list[tuple[Work, int]]) -> list[tuple[int, frozenset[Any]]]:
        contents: dict[int, Any] = {0: "input"}
        seen = []
        for step, number in program:
            read = frozenset(contents[v] for v in step.reads)
            contents.update({v: (number, i) for i, v in enumerate(sorted(step.writes))})
            seen.append((number, read))
        return seen

    before = run([(step, k) for k, step in enumerate(steps)])
    after, _ = done_again(steps, sizes)
    expected = dict(before)
    assert all(read == expected[number] for number, read in run(after))
    first_times = list(dict.fromkeys(number for _, number in after))
    assert first_times == list(range(len(steps)))


def trained(network: Network, repeats: bool, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What three compiled steps of a tiny network give; repeats: all that may be done again is, wherever it saves a byte."""
    with monkeypatch.context() as patch:
        patch.setattr(lower, "REMATERIALISATIONS", 4 if repeats else 0)
        for name, value in (("LEAST_PEAK", 0), ("ENOUGH_LESS", 1.0), ("BYTES_MOVED", 1 << 40), ("OPERATIONS", 1 << 40)):
            patch.setattr(lower, name, value)
        for name in ("NEAR", "LEAST_BYTES"):
            patch.setattr(rematerialise, name, 0)
        side = step_side(network, network.tiny, tracejit, tracejit.compile)
        results = [array for _ in range(3) for array in side.results(side.run())]
        assert side.function.stats.compiled_calls == 2
        texts = [line for e in side.function.stats.executables for line in e.program.lowered.text]
        assert any(" again" in line for line in texts) == repeats
        return results


@pytest.mark.parametrize("network", select(["unet", "gpt", "mobilenet"]), ids=lambda n: n.name)
def test_a_training_step_gives_the_same_bits_whatever_of_it_is_done_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, again = (trained(network, repeats, monkeypatch) for repeats in (False, True))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(kept, again, strict=True))


def convolutions(repeats: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[bytes]]:
    """The bytes of temporary memory of a step with three convolutions, and its results."""
    monkeypatch.setattr(lower, "REMATERIALISATIONS", 3 if repeats else 0)
    nn = tracejit.nn
    tracejit.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers)

    @tracejit.compile
    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        return loss.detach(), *tracejit.autograd.grad(loss, list(model.parameters()))

    x = tracejit.rand(4, 3, 48, 48)
    for _ in range(2):
        results = step(x)
    (executable,) = step.stats.executables
    return executable.program.lowered.arena_bytes, [r.numpy().tobytes() for r in results]


def test_windows_of_convolutions_are_not_kept_for_the_gradients_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = 4 * 16 * 9 * 48 * 48 * 4  # bytes of one layer's; two layers have as many
    (kept, expected), (again, given_again) = (convolutions(repeats, monkeypatch) for repeats in (False, True))
    assert given_again == expected
    assert kept > 2 * windows and again < kept - windows // 2


def test_what_is_in_memory_at_an_exit_is_there_when_steps_before_it_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LEAST_PEAK", 0), ("ENOUGH_LESS", 1.0)):
        monkeypatch.setattr(lower, name, value)
    for name in ("NEAR", "LEAST_BYTES"):
        monkeypatch.setattr(rematerialise, name, 0)

    def branching(x: Any) -> Any:
        wide = x.repeat(8, 1)
        first = (wide @ x.t()).tanh()
        second = (first @ x).sin()
        total = (second * wide).sum()
        if total > 0:
            return (wide * total).sum(0) + second.sum()
        return second.mean() - wide

    with override(hot_calls=4):
        compiled = tracejit.compile(branching)
        for seed in range(24):
            x = tracejit.tensor(np.random.default_rng(seed).normal(size=(16, 24)))
            np.testing.assert_allclose(compiled(x).numpy(), branching(x).numpy(), rtol=1e-10, atol=1e-12)
    assert compiled.stats.exits and compiled.stats.compiled_calls > 12
