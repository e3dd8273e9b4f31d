"""The arena planner and the layout of residual slabs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.graph_programs import f32, f64
from tracejit.lowering.memory import ALIGNMENT, Request, aligned, plan, slab_offsets

requests = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), st.integers(0, 12)), max_size=24).map(
    lambda rows: [Request(k, nbytes, min(a, b), max(a, b)) for k, (nbytes, a, b) in enumerate(rows)]
)


@given(requests)
def test_values_that_live_at_the_same_time_never_share_bytes(asked: list[Request]) -> None:
    offsets, total = plan(asked)
    for r in asked:
        assert offsets[r.key] % ALIGNMENT == 0
        assert offsets[r.key] + r.nbytes <= total
        for s in asked:
            together = r.first <= s.last and s.first <= r.last
            if r.key != s.key and together and r.nbytes and s.nbytes:
                assert offsets[r.key] + r.nbytes <= offsets[s.key] or offsets[s.key] + s.nbytes <= offsets[r.key]


long_programs = st.lists(st.tuples(st.sampled_from((0, 64, 100, 256)), st.integers(0, 300), st.integers(0, 70)), max_size=24).map(
    lambda rows: [Request(k, nbytes, first, first + life) for k, (nbytes, first, life) in enumerate(rows)]
)


@given(long_programs)
def test_each_request_is_at_the_lowest_offset_that_is_free_for_its_whole_life(asked: list[Request]) -> None:
    offsets, _ = plan(asked)
    allocated: list[tuple[int, int, Request]] = []
    for r in sorted(asked, key=lambda r: (-r.nbytes, r.first)):
        size, offset = aligned(r.nbytes), 0
        for start, stop, other in sorted(allocated, key=lambda position: position[:2]):
            if other.first <= r.last and r.first <= other.last and offset + size > start:
                offset = max(offset, stop)
        assert offsets[r.key] == offset
        allocated += [(offset, offset + size, r)] if size else []


def test_a_chain_of_temporaries_needs_two_buffers() -> None:
    _, total = plan([Request(k, 1024, k, k + 1) for k in range(10)])
    assert total == 2048


def test_a_request_fills_a_hole_between_two_others() -> None:
    offsets, total = plan(
        [Request("low", 256, 0, 5), Request("hole", 192, 0, 1), Request("high", 128, 0, 5), Request("late", 192, 2, 5)]
    )
    assert offsets["late"] == offsets["hole"]
    assert total == 256 + 192 + 128


def test_values_in_a_slab_are_aligned_and_do_not_overlap() -> None:
    offsets, size = slab_offsets([f32(3), f64(5, 5), f32(), f32(0)])
    assert offsets == (0, 64, 320, 384)
    assert size == 384
