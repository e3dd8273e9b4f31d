"""The temporary memory that the programs of a function share (llvm/arena.py)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tracejit as T
from tracejit.config import override
from tracejit.llvm.arena import Arena
from tracejit.lowering.memory import ALIGNMENT


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30))
def test_every_block_is_aligned_large_enough_and_kept_alive_by_what_comes_with_it(sizes: list[int]) -> None:
    arena, blocks = Arena(), list[tuple[int, int, Any]]()
    for nbytes in sizes:
        blocks.append((nbytes, *arena.allocate(nbytes)))
    for nbytes, address, memory in blocks:
        start = memory.__array_interface__["data"][0]
        assert address % ALIGNMENT == 0 and start <= address and address + nbytes <= start + memory.nbytes
    together = sum({id(memory): memory.nbytes for _, _, memory in blocks}.values())
    assert together <= 4 * (max(sizes) + 2 * ALIGNMENT)


def test_an_arena_stays_where_it_is_while_it_is_large_enough() -> None:
    arena = Arena()
    address, _ = arena.allocate(1000)
    assert [arena.allocate(n)[0] for n in (1, 1000, 500)] == [address] * 3


def step(x: Any) -> Any:
    return (T.softmax(x @ x.t(), 1) @ x).cumsum(0).sum(1).tanh()


def test_programs_of_many_sizes_share_temporary_memory_and_keep_their_results() -> None:
    compiled = T.compile(step)
    tensors = [T.tensor(np.random.default_rng(n).normal(size=(n, 8))) for n in (30, 3, 70, 12, 200, 5)]
    wanted = [step(x) for x in tensors]
    for _ in range(3):
        for x, want in zip(tensors, wanted, strict=True):
            np.testing.assert_allclose(compiled(x).numpy(), want.numpy(), rtol=1e-12, atol=1e-14)
    assert compiled.stats.compiled_calls == 2 * len(tensors) + compiled.stats.instances
    programs = [executable.program for executable in compiled.stats.executables]
    arenas = {id(frame.arena): frame.arena.nbytes for program in programs for frame in program._code._free}
    assert 0 < len(arenas) < len(programs)


def test_threads_that_run_programs_of_several_sizes_at_once_do_not_meet_in_the_arena() -> None:
    with override(hot_calls=20):
        compiled = T.compile(step)
        tensors = [T.tensor(np.random.default_rng(n).normal(size=(n, 8))) for n in (40, 41, 42, 43)]
        for x in tensors:
            compiled(x)
        wanted, wrong = [compiled(x).numpy().tobytes() for x in tensors], list[int]()

        def work(k: int) -> None:
            wrong.extend(i for i in range(300) if compiled(tensors[(i + k) % 4]).numpy().tobytes() != wanted[(i + k) % 4])

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert compiled.stats.compiled_calls == 1204 + compiled.stats.instances
