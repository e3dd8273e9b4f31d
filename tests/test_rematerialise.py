"""What makes the peak of a program's temporary memory lower: steps that are done again (lowering/rematerialise.py), slice by slice, or
as soon as they can be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit
from benchmarks.network_models import Network, select, step_side
from tracejit.config import override
from tracejit.core import convolutions
from tracejit.lowering import memory_order, rematerialise
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


def save_every_byte(patch: pytest.MonkeyPatch) -> None:
    """All that may be done again is, wherever it saves a byte, and all slice by slice that may be."""
    for name, value in (
        ("LEAST_PEAK", 0),
        ("ENOUGH_LESS", 1.0),
        ("BYTES_MOVED", 1 << 40),
        ("OPERATIONS", 1 << 40),
        ("SLICED_BYTES", 0),
    ):
        patch.setattr(memory_order, name, value)
    for name in ("NEAR", "LEAST_BYTES"):
        patch.setattr(rematerialise, name, 0)


def save_nothing(patch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_PEAK", "SLICED_BYTES"):
        patch.setattr(memory_order, name, 1 << 60)


def trained(network: Network, saves: bool, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What three compiled steps of a tiny network give."""
    with monkeypatch.context() as patch:
        (save_every_byte if saves else save_nothing)(patch)
        side = step_side(network, network.tiny, tracejit, tracejit.compile)
        results = [array for _ in range(3) for array in side.results(side.run())]
        assert side.function.stats.compiled_calls == 2
        texts = [line for e in side.function.stats.executables for line in e.program.lowered.text]
        assert any(" again" in line for line in texts) == saves
        assert any(" slices" in line for line in texts) == (saves and network.name != "gpt")
        return results


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("network", select(["unet", "gpt"]), ids=lambda n: n.name)
def test_a_training_step_gives_the_same_bits_whatever_is_done_again_or_slice_by_slice(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, again = (trained(network, saves, monkeypatch) for saves in (False, True))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(kept, again, strict=True))


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions copy windows, as on a processor that has no kernels for them."""
    convolutions.are_installed()  # asked once, for good
    monkeypatch.setattr(convolutions, "_kernels", None)


CONVOLVED = (4, 16, 48, 48)
WINDOWS = 9 * math.prod(CONVOLVED) * 4  # bytes of those of one layer with 16 channels


def gradients_of_convolutions() -> tuple[int, str, list[bytes]]:
    """The bytes of temporary memory of a step with three convolutions, what its program does, and its results."""
    nn = tracejit.nn
    tracejit.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(
        *layers, nn.Flatten(2), nn.Linear(48 * 48, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)
    )

    @tracejit.compile
    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        return loss.detach(), *tracejit.autograd.grad(loss, list(model.parameters()))

    batch, _, *size = CONVOLVED
    x = tracejit.rand(batch, 3, *size)
    for _ in range(2):
        results = step(x)
    (executable,) = step.stats.executables
    lowered = executable.program.lowered
    return lowered.arena_bytes, "\n".join(lowered.text), [r.numpy().tobytes() for r in results]


@pytest.mark.usefixtures("without_kernels")
def test_windows_of_convolutions_are_made_again_and_of_one_image_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        save_nothing(patch)
        kept, _, expected = gradients_of_convolutions()
    with monkeypatch.context() as patch:
        patch.setattr(memory_order, "SLICED_BYTES", 1 << 60)
        again, done, results = gradients_of_convolutions()
    assert kept > 2 * WINDOWS > again > WINDOWS and "clone again: " in done and "slices" not in done
    assert results == expected
    sliced, done, results = gradients_of_convolutions()
    assert sliced < 0.85 * again and "clone again, matmul, 4 slices" in done and "matmul, fold, 4 slices" in done
    assert results == expected


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("groups", [1, 4], ids=["dense", "grouped"])
def test_slices_of_strided_and_grouped_convolutions_give_the_same_bits(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nn = tracejit.nn
    rng = np.random.default_rng(groups)

    def results(save: Any) -> tuple[str, list[bytes]]:
        with monkeypatch.context() as patch:
            save(patch)
            tracejit.manual_seed(1)
            first = nn.Conv2d(4, 8, 3, stride=2, padding=1, dilation=1, groups=groups)
            second = nn.ConvTranspose2d(8, 4, (3, 2), stride=2, groups=groups)
            third = nn.Conv1d(4, 4, 3, padding=2, dilation=2, groups=groups)
            parameters = [*first.parameters(), *second.parameters(), *third.parameters()]

            @tracejit.compile
            def step(x: Any) -> Any:
                y = third(second(first(x).tanh()).tanh().flatten(2))
                gradients = tracejit.autograd.grad(y.square().sum(), [x, *parameters])
                return y.detach(), *gradients

            x = tracejit.tensor(values, requires_grad=True)
            for _ in range(2):
                given = step(x)
            text = "\n".join(line for e in step.stats.executables for line in e.program.lowered.text)
            return text, [r.numpy().tobytes() for r in given]

    values = rng.normal(size=(3, 4, 9, 11)).astype(np.float32)
    (_, expected), (text, given) = results(save_nothing), results(save_every_byte)
    assert "3 slices" in text and given == expected


def test_gradients_of_weights_come_as_soon_as_what_they_read_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(table: Any, rows: Any, *weights: Any) -> Any:
        y = table[rows]  # its gradient may leave at a row that there is not, and needs all cotangents
        for w in weights:
            y = (y @ w).relu()
        return tracejit.autograd.grad(y.sum(), [table, *weights])

    rng = np.random.default_rng(0)
    table = tracejit.tensor(rng.normal(size=(16, 64)), requires_grad=True)
    rows = tracejit.tensor(rng.integers(0, 16, 512))
    weights = [tracejit.tensor(rng.normal(size=(64, 64)) / 8, requires_grad=True) for _ in range(10)]
    arenas, results = [], []
    monkeypatch.setattr(memory_order, "REMATERIALISATIONS", 0)
    for least in (1 << 60, 0):
        monkeypatch.setattr(memory_order, "LEAST_PEAK", least)
        compiled = tracejit.compile(lambda *given: step(*given))
        for _ in range(2):
            given = compiled(table, rows, *weights)
        (executable,) = compiled.stats.executables
        arenas.append(executable.program.lowered.arena_bytes)
        results.append([g.numpy().tobytes() for g in given])
    assert results[0] == results[1]
    assert arenas[1] < 0.75 * arenas[0], arenas


def test_what_is_in_memory_at_an_exit_is_there_when_steps_before_it_are_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    save_every_byte(monkeypatch)

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
