"""Nests of random draws against the generator of eager mode: equal bits, whatever draws them, and streams that threads share."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override
from tracejit.core import dtypes, philox
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder
from tracejit.runtime.program import build

FLOATING = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
BACKENDS = ("llvm", "reference", "interpret")
STATES = [(0, 0), (77, 5), (-1, 2**32 - 2), (2**63 - 1, 2**63 - 2), (-(2**63), -1), (123456789012345, -(2**63))]
STATE = Aval((2,), dtypes.int64)


def drawn(name: str, count: int, state: Any, backend: str, dtype: Any = None, strides: tuple[int, ...] = (1,)) -> Any:
    """What a program draws from a state, and the state that it leaves."""
    builder = GraphBuilder()
    x = builder.input(STATE)
    attributes: dict[str, Any] = {"shape": (count,)} | ({} if dtype is None else {"dtype": dtype})
    (out,) = builder.add(REGISTRY[name], (x,), attributes)
    (moved,) = builder.add(REGISTRY["random_advance"], (x,), {"count": blocks(name, count, dtype)})
    graph = builder.build((out,), [(x, moved)])
    program = build(graph, {x: strides}, backend=backend)
    array = np.zeros(2 * strides[0], np.int64)[:: strides[0]]
    array[:] = state
    answer = program.run([array], [])
    assert isinstance(answer, tuple)
    return np.asarray(answer[0]), tuple(array.tolist())


def blocks(name: str, count: int, dtype: Any) -> int:
    return philox.blocks_for(count, name == "random_integers" or dtype is dtypes.float64)


def expected(name: str, count: int, state: tuple[int, int], dtype: Any) -> Any:
    op = REGISTRY[name]
    attributes: dict[str, Any] = {"shape": (count,)} | ({} if dtype is None else {"dtype": dtype})
    return op.evaluate(np.array(state, np.int64), **attributes)


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


CASES = [*((n, d) for n in ("random_uniform", "random_normal") for d in FLOATING), ("random_integers", None)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda x: getattr(x, "name", x))
def test_nests_draw_the_bits_of_eager_mode(name: str, dtype: Any, backend: str) -> None:
    for count in (0, 1, 2, 3, 4, 5, 7, 8, 33):
        for state in STATES if count in (5, 33) and backend != "reference" else STATES[:2]:
            found, after = drawn(name, count, state, backend, dtype)
            want = expected(name, count, state, dtype)
            assert found.dtype == want.dtype
            assert found.tobytes() == want.tobytes(), (count, state)
            assert after == (state[0], wrapped(state[1] + blocks(name, count, dtype)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_whose_words_do_not_lie_side_by_side_is_read_and_moved(backend: str) -> None:
    found, after = drawn("random_normal", 9, (3, 8), backend, dtypes.float32, (3,))
    assert found.tobytes() == philox.normal(3, 8, 9, False).tobytes()
    assert after == (3, 11)


def test_draws_that_are_cut_into_chunks_are_the_same() -> None:
    count = 3 * 10**5 + 1
    for threads in (1, 2):
        with override(num_threads=threads):
            found, _ = drawn("random_uniform", count, (9, 2**32 - 100), "llvm", dtypes.float32)
        assert found.tobytes() == philox.uniform(9, 2**32 - 100, count, False).tobytes()


@pytest.mark.parametrize("counter", [2**63 - 1, 2**63 - 3, -1, -2, 2**32 - 1])
@pytest.mark.filterwarnings("error")
def test_a_counter_that_wraps_does_so_in_eager_and_compiled_calls_without_a_warning(counter: int) -> None:
    generator = T.Generator()

    def fn() -> Any:
        return T.randn(9, generator=generator), T.randint(0, 9, (5,), generator=generator), T.rand(3, generator=generator)

    compiled, found = T.compile(fn), []
    for call in (fn, compiled, compiled, compiled):
        generator.set_state(T.tensor(list(np.array([7, counter], np.int64).view(np.uint8)), dtype=T.uint8))
        found.append(([t.tolist() for t in call()], generator.get_state().tolist()))
    assert all(f == found[0] for f in found)
    assert compiled.stats.compiled_calls == 2


def test_threads_share_one_stream_without_drawing_anything_twice() -> None:
    each, size, count = 40, 8, 3

    def draw(x: Any) -> Any:
        return T.rand(size) + x * 0

    compiled = T.compile(draw)
    zero = T.zeros(size)
    compiled(zero)
    T.manual_seed(11)
    found: list[list[float]] = []

    def work(call: Any) -> None:
        for _ in range(each):
            found.append(call(zero).tolist())

    threads = [threading.Thread(target=work, args=(call,)) for call in (compiled, draw, compiled)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    T.manual_seed(11)
    alone = [draw(zero).tolist() for _ in range(each * count)]
    assert sorted(found) == sorted(alone)


def test_a_call_that_leaves_after_it_has_drawn_leaves_the_stream_where_it_was() -> None:
    def fn(a: Any) -> Any:
        dropped = T.nn.functional.dropout(a, 0.5)
        return dropped * 2 if dropped.sum() > 4 else T.randn(3)

    def calls(call: Any) -> Any:
        T.manual_seed(1)
        return [(call(T.ones(8)).tolist(), T.rand(2).tolist()) for _ in range(30)]

    compiled = T.compile(fn)
    assert calls(compiled) == calls(fn)
    assert calls(compiled) == calls(fn)
    assert compiled.stats.exits > 0
    assert len({len(shape) for shape, _ in calls(fn)}) == 2
