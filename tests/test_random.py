"""Random numbers: the generator's known answers, its transforms, and the stream of draws."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
import scipy.stats

import tracejit
from tracejit.core import philox

ALL_ONES = 0xFFFFFFFF
KNOWN = [  # Random123's kat_vectors for philox4x32-10: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ALL_ONES,) * 4, (ALL_ONES, ALL_ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_the_rounds_give_the_published_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    words = philox.philox(tuple(map(np.uint64, counter)), key)  # type: ignore[arg-type]
    assert tuple(map(int, words)) == expected


def test_few_blocks_many_blocks_and_cut_up_blocks_are_the_same_words() -> None:
    seed, offset, count = (5 << 33) + 7, (1 << 40) - 3, philox.CHUNK + 10
    many = philox.words(seed, offset, count)
    few = np.concatenate([philox.words(seed, offset + i, 1) for i in range(20)])
    np.testing.assert_array_equal(many[:20], few)
    np.testing.assert_array_equal(many[philox.CHUNK :], philox.words(seed, offset + philox.CHUNK, 10))


def test_the_counter_wraps_at_64_bits() -> None:
    last = philox.words(1, -1, 2)
    np.testing.assert_array_equal(last[1], philox.words(1, 0, 1)[0])


def test_the_logarithm_is_within_two_ulp() -> None:
    x = np.concatenate([np.random.default_rng(0).random(100_000), [2.0**-53, 1.0, 1 - 2.0**-53, 0.5, math.sqrt(0.5)]])
    error = np.abs(philox.logarithm(x) - np.log(x)) / np.spacing(np.maximum(np.abs(np.log(x)), 1e-300))
    assert error.max() <= 2


def test_sine_and_cosine_of_turns_are_accurate() -> None:
    turns = np.concatenate([np.random.default_rng(0).random(100_000), np.arange(16) / 16])
    cosine, sine = philox.circle(turns)
    np.testing.assert_allclose(cosine, np.cos(2 * np.pi * turns), atol=1e-15, rtol=0)
    np.testing.assert_allclose(sine, np.sin(2 * np.pi * turns), atol=1e-15, rtol=0)


@pytest.mark.parametrize("dtype", [tracejit.float32, tracejit.float64])
def test_uniform_numbers_fill_the_unit_interval_evenly(dtype: tracejit.dtype) -> None:
    tracejit.manual_seed(1)
    x = tracejit.rand(200_000, dtype=dtype).numpy()
    assert x.dtype == dtype.numpy
    assert x.min() >= 0 and x.max() < 1
    assert scipy.stats.kstest(x.astype(np.float64), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("dtype", [tracejit.float32, tracejit.float64])
def test_normal_numbers_have_the_moments_and_tails_of_the_normal_distribution(dtype: tracejit.dtype) -> None:
    tracejit.manual_seed(2)
    x = tracejit.randn(400_000, dtype=dtype).numpy().astype(np.float64)
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01
    assert abs((x**3).mean()) < 0.03 and abs((x**4).mean() - 3) < 0.06
    assert scipy.stats.kstest(x, "norm").pvalue > 1e-3
    for limit in (2.0, 3.0, 4.0):
        probability = math.erfc(limit / math.sqrt(2))
        count = int((np.abs(x) > limit).sum())
        assert abs(count - probability * x.size) < 5 * math.sqrt(probability * x.size)
    assert abs(np.corrcoef(x[0::2], x[1::2])[0, 1]) < 0.01


def test_normal_numbers_match_the_transform_computed_with_library_functions() -> None:
    bits = philox.words(9, 4, 500)
    pairs = (
        ((bits.reshape(-1, 2)[:, 0] | (bits.reshape(-1, 2)[:, 1] << np.uint64(32))) >> np.uint64(11))
        .reshape(-1, 2)
        .astype(np.float64)
    )
    radius = np.sqrt(-2 * np.log((pairs[:, 0] + 1) * 2.0**-53))
    angle = pairs[:, 1] * 2.0**-53 * 2 * np.pi
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(philox.normal(9, 4, 1000, True), expected, rtol=1e-13, atol=1e-14)


def test_a_seed_repeats_the_stream_and_another_seed_does_not() -> None:
    tracejit.manual_seed(3)
    first = tracejit.randn(100)
    tracejit.manual_seed(3)
    assert bool((tracejit.randn(100) == first).all())
    tracejit.manual_seed(4)
    assert not bool((tracejit.randn(100) == first).any())


@pytest.mark.parametrize("draw", [tracejit.rand, tracejit.randn])
def test_the_shape_of_a_draw_does_not_change_its_numbers(draw: object) -> None:
    assert callable(draw)
    tracejit.manual_seed(5)
    flat = draw(24)
    tracejit.manual_seed(5)
    assert bool((draw(2, 3, 4).reshape(-1) == flat).all())
    tracejit.manual_seed(5)
    assert bool((tracejit.cat([draw(8), draw(16)]) == flat).all())


def test_successive_draws_do_not_overlap() -> None:
    tracejit.manual_seed(6)
    assert len({float(x) for n in (1, 3, 5, 2) for x in tracejit.rand(n, dtype=tracejit.float64).tolist()}) == 11


def test_the_state_can_be_saved_and_restored() -> None:
    tracejit.manual_seed(7)
    tracejit.rand(5)
    state = tracejit.get_rng_state()
    assert state.dtype is tracejit.uint8
    first = tracejit.rand(5)
    tracejit.set_rng_state(state)
    assert bool((tracejit.rand(5) == first).all())
    assert tracejit.initial_seed() == 7
    with pytest.raises(RuntimeError, match="16 bytes"):
        tracejit.set_rng_state(tracejit.zeros(3, dtype=tracejit.uint8))


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1])
def test_every_64_bit_seed_is_accepted_and_reported(seed: int) -> None:
    tracejit.manual_seed(seed)
    assert tracejit.initial_seed() == seed % 2**64
    with pytest.raises(RuntimeError, match="64 bits"):
        tracejit.manual_seed(2**64)


def test_generators_are_independent_of_each_other() -> None:
    one, two = tracejit.Generator().manual_seed(1), tracejit.Generator().manual_seed(1)
    tracejit.manual_seed(99)
    first = tracejit.rand(4, generator=one)
    tracejit.rand(4)
    assert bool((tracejit.rand(4, generator=two) == first).all())
    copy = one.clone_state()
    assert bool((tracejit.randn(4, generator=copy) == tracejit.randn(4, generator=one)).all())


def test_integers_lie_in_their_range_and_are_even() -> None:
    tracejit.manual_seed(8)
    x = tracejit.randint(-3, 4, (70_000,))
    assert x.dtype is tracejit.int64
    counts = np.bincount(x.numpy() + 3, minlength=7)
    assert counts.size == 7
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    assert tracejit.randint(5, (2, 3), dtype=tracejit.float32).dtype is tracejit.float32
    wide = tracejit.randint(-(2**62), 2**62, (1000,)).numpy()
    assert wide.min() < -(2**60) and wide.max() > 2**60
    for low, high in ((3, 3), (-(2**62), 2**62 + 1)):
        with pytest.raises(RuntimeError, match="from"):
            tracejit.randint(low, high, (1,))


def test_permutations_hold_every_number_once_and_differ() -> None:
    tracejit.manual_seed(9)
    a, b = tracejit.randperm(100), tracejit.randperm(100)
    assert sorted(a.tolist()) == list(range(100))
    assert a.tolist() != b.tolist()
    assert tracejit.randperm(0).shape == (0,)


def test_probabilities_are_respected() -> None:
    tracejit.manual_seed(10)
    p = tracejit.full((50_000,), 0.3)
    assert abs(float(tracejit.bernoulli(p).mean()) - 0.3) < 0.01
    assert tracejit.bernoulli(tracejit.tensor([0.0, 1.0])).tolist() == [0.0, 1.0]
    mask = tracejit.empty(1000, dtype=tracejit.bool).bernoulli_(0.5)
    assert mask.dtype is tracejit.bool and 350 < int(mask.sum()) < 650
    with pytest.raises(RuntimeError, match="p to be in"):
        p.bernoulli_(1.5)


def test_in_place_draws_fill_the_tensor() -> None:
    tracejit.manual_seed(11)
    x = tracejit.zeros(2000)
    same = x
    assert x.uniform_(2.0, 3.0) is same and float(x.min()) >= 2.0 and float(x.max()) < 3.0
    assert abs(float(x.normal_(5.0, 0.5).mean()) - 5.0) < 0.1
    assert abs(float(x.exponential_(2.0).mean()) - 0.5) < 0.1
    n = tracejit.zeros(100, dtype=tracejit.uint8).random_()
    assert int(n.max()) > 128
    assert set(tracejit.zeros(50, dtype=tracejit.int64).random_(2, 4).tolist()) == {2, 3}
    assert int(tracejit.zeros(50, dtype=tracejit.int64).random_(3).max()) == 2


def test_normal_takes_tensors_and_numbers() -> None:
    tracejit.manual_seed(12)
    spread = tracejit.normal(tracejit.tensor([0.0, 100.0]), tracejit.tensor([0.0, 1.0]))
    assert float(spread[0]) == 0.0 and abs(float(spread[1]) - 100) < 6
    assert tracejit.normal(1.0, 2.0, (3, 2)).shape == (3, 2)
    with pytest.raises(RuntimeError, match="std"):
        tracejit.normal(0.0, -1.0, (1,))


def test_draws_like_another_tensor_have_its_shape_and_dtype() -> None:
    x = tracejit.zeros(2, 3, dtype=tracejit.float64)
    for draw in (tracejit.rand_like, tracejit.randn_like):
        assert draw(x).shape == x.shape and draw(x).dtype is tracejit.float64
    assert tracejit.randint_like(x, 5).dtype is tracejit.float64
    with pytest.raises(RuntimeError, match="floating-point"):
        tracejit.rand(3, dtype=tracejit.int64)


def test_threads_draw_different_numbers() -> None:
    tracejit.manual_seed(13)
    drawn: list[list[float]] = []

    def work() -> None:
        drawn.extend(tracejit.rand(4, dtype=tracejit.float64).tolist() for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({tuple(d) for d in drawn}) == 200


def test_random_numbers_require_grad_on_request_only() -> None:
    assert tracejit.randn(2, requires_grad=True).requires_grad
    assert not tracejit.randn(2).requires_grad


def test_the_tails_end_where_the_words_end() -> None:
    for precision, reach in ((32, 6.6), (53, 8.5)):
        farthest = philox._pairs_of_normals(np.array([[0, 0]], np.uint64), precision)[0, 0]
        assert reach < farthest < reach + 0.2


def test_probabilities_out_of_range_are_refused_before_anything_is_drawn_compiled_as_well() -> None:
    called = tracejit.compile(lambda p: tracejit.bernoulli(p))
    for _ in range(3):
        called(tracejit.tensor([0.5, 1.0]))
    for wrong in ([0.5, 1.5], [-0.5, 0.5], [float("nan"), 0.5]):
        state = tracejit.get_rng_state()
        for function in (called, tracejit.bernoulli):
            with pytest.raises(RuntimeError, match=r"bernoulli\(\): expects all probabilities to be in \[0, 1\]"):
                function(tracejit.tensor(wrong))
        assert tracejit.equal(tracejit.get_rng_state(), state)  # nothing was drawn
