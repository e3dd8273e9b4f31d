"""Tests of cut nests: same bits whatever the number of threads and the rendering, eager's results, and what may not be cut."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import assert_same_bits

import tracejit as T
from tests.graph_programs import f32, gelu_chain, op
from tracejit.config import override
from tracejit.core import dtypes
from tracejit.ir.tracer import trace
from tracejit.llvm import thread_pool
from tracejit.loops import python
from tracejit.loops.combinations import COMBINATIONS
from tracejit.loops.expressions import AxisValue, Load, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Size, Statement, Store
from tracejit.loops.rewrites import divide
from tracejit.loops.rewrites.divide import Divided
from tracejit.loops.verify import verify
from tracejit.lowering.lower import lower
from tracejit.passes.pipeline import optimise
from tracejit.runtime.program import Program

CHUNKS = 5


def cut_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut loops however small, into few chunks of any length."""
    for name, value in (("WORTH", 1), ("CHUNK", 1), ("MOST", CHUNKS), ("SHARE", 0.01), ("BLOCK", 1)):
        monkeypatch.setattr(divide, name, value)


@pytest.fixture
def everything_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_everything(monkeypatch)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = T.get_num_threads()
    yield
    T.set_num_threads(before)


def normal(*shape: int, dtype: Any = np.float32) -> T.Tensor:
    return T.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype))


def arrays(result: Any) -> list[np.ndarray]:
    return [np.array(r.detach().numpy()) for r in (result if isinstance(result, tuple) else (result,))]


def gradient(function: Callable[[T.Tensor], T.Tensor], *shape: int) -> Callable[[T.Tensor], Any]:
    def value_and_gradient(x: T.Tensor) -> Any:
        x = x.detach().requires_grad_()
        value = function(x)
        return value.detach(), T.autograd.grad(value, x)[0]

    return value_and_gradient


def gelu(x: T.Tensor) -> T.Tensor:
    y = 0.5 * x * (1 + T.tanh(0.8 * (x + 0.04 * x * x * x)))
    return (y * T.exp(-y * y)).sum()


def weighted_norm(x: T.Tensor) -> T.Tensor:
    weight = x[0].detach().requires_grad_()
    centred = x - x.mean(dim=-1, keepdim=True)
    normed = centred / (centred * centred).mean(dim=-1, keepdim=True).sqrt() * weight
    return T.autograd.grad((T.functional.softmax(normed, dim=-1) * x).sum(), weight)[0]


CUT: dict[str, tuple[Callable[..., Any], tuple[T.Tensor, ...]]] = {
    "elementwise": (lambda x: x.tanh() * 2 + 1, (normal(1003),)),
    "elementwise on float64": (lambda x: x.exp() - x, (normal(77, dtype=np.float64),)),
    "an array and its transpose": (lambda x: x * 2 - x.t(), (normal(23, 23),)),
    "an array and its reverse": (lambda x: x + x.flip(0), (normal(101),)),
    "a transposed view": (lambda x: x.t().exp(), (normal(31, 17),)),
    "a large transposed view": (lambda x: x.t().contiguous(), (normal(50, 117),)),
    "rows backwards": (lambda x: x.flip(1), (normal(41, 37),)),
    "chosen rows": (lambda x, i: x[i], (normal(50, 19), T.tensor(np.arange(60) * 7 % 50))),
    "positions in columns": (lambda x: x.argmin(dim=0), (normal(33, 9),)),
    "broadcast rows and columns": (lambda x, y, z: x * y + z, (normal(19, 7), normal(7), normal(19, 1))),
    "comparisons and bools": (lambda x: (x > 0) & (x < 1), (normal(500),)),
    "sum": (lambda x: x.sum(), (normal(3001),)),
    "sum of float64": (lambda x: (x * x).sum(), (normal(3001, dtype=np.float64),)),
    "sum of integers": (lambda x: x.sum(), (T.tensor(np.arange(999) ** 5),)),
    "product": (lambda x: (1 + 0.01 * x).prod(), (normal(300),)),
    "largest and smallest": (lambda x: (x.amax(), x.amin()), (normal(400),)),
    "any and all": (lambda x: ((x > 2.9).any(), (x > -2.9).all()), (normal(900),)),
    "row sums": (lambda x: x.sum(dim=1), (normal(41, 13),)),
    "column sums": (lambda x: x.sum(dim=0), (normal(41, 13),)),
    "column sums of float64": (lambda x: (x * x).sum(dim=0), (normal(29, 3, dtype=np.float64),)),
    "column extremes": (lambda x: (x.amax(dim=0), x.amin(dim=0)), (normal(29, 3),)),
    "columns with any": (lambda x: (x > 1.5).any(dim=0), (normal(29, 6),)),
    "sums of a middle dimension": (lambda x: x.sum(dim=1), (normal(9, 11, 5),)),
    "sums of outer and inner dimensions": (lambda x: x.sum(dim=(0, 2)), (normal(9, 11, 5),)),
    "positions in rows": (lambda x: x.argmax(dim=1), (normal(33, 9),)),
    "softmax of rows": (lambda x: T.functional.softmax(x, dim=1), (normal(37, 21),)),
    "softmax of everything": (lambda x: T.functional.softmax(x.reshape(-1), dim=0), (normal(37, 21),)),
    "variance of everything": (lambda x: (x - x.mean()) / (x.var() + 1e-5).sqrt(), (normal(700),)),
    "gelu and its gradient": (gradient(gelu), (normal(2003),)),
    "the gradient of layer norm's weights": (weighted_norm, (normal(45, 16),)),
    "ranges": (lambda x: x * T.arange(x.shape[0], dtype=T.float32), (normal(203),)),
    "a triangle": (lambda x: T.tril(x) + T.triu(x, 1) * 2, (normal(25, 25),)),
    "one-hot numbers": (lambda i: T.functional.one_hot(i, 7), (T.tensor(np.arange(60) % 7),)),
    "gathered elements": (lambda x, i: x[i] * 2, (normal(50), T.tensor(np.arange(220) * 7 % 50))),
    "scans of rows": (lambda x: x.cumsum(dim=1), (normal(31, 8),)),
    "scans of the innermost of three dimensions": (lambda x: x.cumprod(dim=2), (normal(6, 7, 5),)),
    "joined arrays": (lambda x, y: T.cat((x, y), dim=1), (normal(31, 8), normal(31, 5))),
    "padded arrays": (lambda x: T.functional.pad(x, (1, 2, 3, 4)), (normal(11, 8),)),
    "integer products": (lambda x: x @ x, (T.tensor(np.arange(400).reshape(20, 20)),)),
    "an epilogue": (lambda x: (x.sum() / 7).exp() + x.amax(), (normal(300) * 0.01,)),
}


@pytest.mark.usefixtures("everything_is_cut")
@pytest.mark.parametrize("name", CUT)
def test_cut_nests_give_the_same_bits_whatever_the_number_of_threads_and_the_rendering(name: str) -> None:
    function, operands = CUT[name]
    results = {}
    for backend in ("llvm", "reference"):
        with override(backend=backend):
            compiled = T.compile(function)
            compiled(*operands)
            for number in (1, 2, 3) if backend == "llvm" else (1,):
                T.set_num_threads(number)
                results[backend, number] = arrays(compiled(*operands))
            assert compiled.stats.compiled_calls >= 1, compiled.explain()
            assert "chunks" in compiled.explain(verbose=True), compiled.explain()
    first = results["llvm", 1]
    for key, others in results.items():
        for mine, other in zip(first, others, strict=True):
            assert mine.dtype == other.dtype and mine.tobytes() == other.tobytes(), key
    for mine, eager in zip(first, arrays(function(*operands)), strict=True):
        assert mine.shape == eager.shape and mine.dtype == eager.dtype
        if eager.dtype.kind in "iub":
            np.testing.assert_array_equal(mine, eager)
        else:
            np.testing.assert_allclose(mine, eager, rtol=1e-5, atol=1e-6)


NOT_CUT: dict[str, tuple[Callable[..., Any], tuple[T.Tensor, ...]]] = {
    "scans of columns": (lambda x: x.cumsum(dim=0), (normal(31, 1),)),
    "the position of the largest element": (lambda x: x.argmax(), (normal(300),)),
    "sums into chosen elements": (
        lambda x, i: T.zeros(5).scatter_add(0, i, x),
        (normal(40), T.tensor(np.arange(40) % 5)),
    ),
}


@pytest.mark.usefixtures("everything_is_cut")
@pytest.mark.parametrize("name", NOT_CUT)
def test_loops_whose_iterations_depend_on_each_other_stay_whole(name: str) -> None:
    function, operands = NOT_CUT[name]
    compiled = T.compile(function)
    compiled(*operands)
    T.set_num_threads(3)
    (mine,), (eager,) = arrays(compiled(*operands)), arrays(function(*operands))
    np.testing.assert_allclose(mine, eager, rtol=1e-5, atol=1e-6)
    assert compiled.stats.compiled_calls == 1
    text = compiled.explain(verbose=True)
    assert "in 5 chunks" not in text or "after the chunks" in text  # clearing the result may be cut


def test_large_scans_of_rows_are_cut() -> None:
    compiled, x = T.compile(lambda x: x.cumsum(dim=1)), normal(1000, 600)
    for _ in range(2):
        compiled(x)
    assert compiled.explain(verbose=True).count("in 125 chunks") == 1


def test_a_large_nest_is_cut_and_a_small_one_is_not() -> None:
    for n, chunks in ((1000, False), (200_000, True)):
        x = normal(n)
        compiled = T.compile(gelu)
        compiled(x)
        compiled(x)
        assert ("chunks" in compiled.explain(verbose=True)) is chunks


@pytest.mark.parametrize("n", [200_000, 200_001, 262_144, 1_000_003])
def test_large_sums_do_not_depend_on_the_number_of_threads(n: int) -> None:
    for dtype, tolerance in ((np.float32, 2e-7), (np.float64, 1e-15)):
        x = normal(n, dtype=dtype) + 1
        compiled = T.compile(lambda x: (x * 1.5).exp().log().sum())
        compiled(x)
        found = set()
        for number in (1, 2, 3):
            T.set_num_threads(number)
            found |= {compiled(x).numpy().tobytes() for _ in range(5)}
        assert len(found) == 1
        exact = (x.numpy().astype(np.float64) * 1.5).sum()
        assert abs(compiled(x).item() - exact) <= tolerance * np.abs(x.numpy()).sum()


@pytest.mark.usefixtures("everything_is_cut")
@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_exit_of_the_whole_loop_is_taken_and_eager_raises_its_error(threads: int) -> None:
    T.set_num_threads(threads)
    table, good = normal(50), np.arange(400) * 3 % 50

    @T.compile
    def look_up(table: T.Tensor, index: T.Tensor) -> T.Tensor:
        return table[index] * 2

    for _ in range(2):
        look_up(table, T.tensor(good))
    assert "chunks" in look_up.explain(verbose=True)
    for where in (0, 200, 399):
        bad = good.copy()
        bad[where:] = 50 + where
        with pytest.raises(IndexError, match=str(50 + where)):
            look_up(table, T.tensor(bad))
    np.testing.assert_array_equal(look_up(table, T.tensor(good)).numpy(), table.numpy()[good] * 2)


@pytest.mark.usefixtures("everything_is_cut")
def test_updates_in_place_are_cut() -> None:
    parameter, step = normal(505), normal(505)
    expected = parameter.numpy() - np.float32(0.1) * step.numpy() * 2

    @T.compile
    def update(step: T.Tensor) -> None:
        with T.no_grad():
            parameter.sub_(0.1 * step)

    T.set_num_threads(3)
    for _ in range(2):
        update(step)
    assert "chunks" in update.explain(verbose=True)
    np.testing.assert_allclose(parameter.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_python_threads_that_call_at_once_each_get_their_result() -> None:
    T.set_num_threads(2)
    compiled = T.compile(gelu)
    inputs = [normal(100_000 + k) for k in range(2)]
    expected = [[compiled(x).item() for _ in range(3)][-1] for x in inputs]
    failures = []

    def work(k: int) -> None:
        for _ in range(50):
            if compiled(inputs[k]).item() != expected[k]:
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_only_programs_with_large_nests_mention_the_pool() -> None:
    for n, large in ((1_000, False), (1_000_000, True)):
        program = Program.made(lower(optimise(trace(lambda x: op("tanh", x), [f32(n)])), {}))
        assert (thread_pool.PARALLEL in program.llvm()) is large


def test_the_text_of_a_program_does_not_depend_on_the_number_of_threads() -> None:
    texts = set()
    for number in (1, 2, 7):
        T.set_num_threads(number)
        texts.add(Program.made(lower(optimise(trace(gelu_chain, [f32(1_000_000)])), {})).llvm())
    assert len(texts) == 1


# --- nests

F32 = dtypes.float32
X, OUT, ACROSS, TOTALS, COLUMNS, ROW = (Buffer(name, F32) for name in ("x", "out", "across", "totals", "columns", "row"))
M, N = Size("m"), Size("n")


def statements(kind: str) -> list[Statement]:
    """A large loop of a nest over M rows of N elements, and what belongs to it."""
    i, j, k = Axis("i"), Axis("j"), Axis("k")
    here, there, column = Index(((i, N), (j, 1))), Index(((j, M), (i, 1))), Index(((j, 1),))
    x, number, total, top = Load(X, here), builder.cast(AxisValue(i), F32), Var("total", F32), Var("top", F32)
    if kind == "elements":
        return [For(i, M, (For(j, N, (Store(OUT, here, x * 2 + number),), vector=True),))]
    if kind == "across":
        return [For(i, M, (For(j, N, (Store(ACROSS, there, Load(OUT, here) + x),), vector=True),))]
    if kind == "one by one":
        first = Index(((i, N),))
        return [For(i, M, (Store(OUT, first, Load(X, first) + number), Store(OUT, first, Load(OUT, first) + 1)))]
    if kind == "sums":
        items = ((total, "sum", Load(X, Index(((i, N),)))), (top, "max", Load(X, Index(((i, N),)))))
        stores = [Store(TOTALS, Index((), 0), total), Store(TOTALS, Index((), 1), top)]
        return [Reduce(i, M, items), *stores, For(k, M, (Store(OUT, Index(((k, N),)), total + top),))]
    if kind == "columns":
        clear = For(k, N, (Store(COLUMNS, Index(((k, 1),)), builder.const(0, F32)),), vector=True)
        return [clear, For(i, M, (For(j, N, (Store(COLUMNS, column, x, accumulate=True),), vector=True),))]
    if kind == "rows":
        keep = For(j, N, (Store(ROW, column, x - number),), vector=True)
        again = Load(ROW, Index(((k, 1),)))
        return [For(i, M, (keep, Reduce(k, N, ((total, "sum", again),)), Store(OUT, Index(((i, N),)), total)))]
    assert kind == "exit"
    return [
        For(i, M, (Exit(builder.lt(Load(X, Index(((i, N),))), -90), 3), Let(total, number), Store(OUT, Index(((i, N),)), total)))
    ]


def run_divided(made: Divided, arrays: dict[Buffer, np.ndarray], backwards: bool) -> int:
    """Run the parts in plain Python, the chunks of each in any order; the code of the first exit."""
    memory = {
        buffer: np.full(origin, np.nan, buffer.dtype.numpy) if isinstance(origin, int) else arrays[origin]
        for buffer, origin in made.memory.items()
    }
    for part, chunks in made.parts:
        run = python.load(verify(part))
        count = 1 if chunks is None else -(-chunks.extent // chunks.length)
        for k in reversed(range(count)) if backwards else range(count):
            sizes, advances = dict(made.sizes), {}
            if chunks is not None:
                advances = chunks.advances
                sizes[chunks.many] = min(chunks.length, chunks.extent - k * chunks.length)
                if chunks.first is not None:
                    sizes[chunks.first] = k * chunks.length
            given = [memory[b][advances.get(b, 0) * k :] for b in (*part.buffers, *part.temporaries)]
            if code := run(*given, *(sizes[s] for s in part.sizes)):
                return code
    return 0


KINDS = ("elements", "across", "one by one", "sums", "columns", "rows", "exit")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True),
    st.integers(2, 24),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
)
def test_a_nest_in_parts_does_what_it_did_whatever_the_order_of_chunks(
    kinds: list[str], m: int, n: int, backwards: bool, leaves: bool
) -> None:
    body = tuple(s for kind in kinds for s in statements(kind))
    buffers = (X, OUT, ACROSS, TOTALS, COLUMNS)
    nest = verify(Nest("kernel", buffers, (M, N), (), body, (ROW,)))
    x = np.random.default_rng(m * n).integers(-9, 10, m * n).astype(np.float32)  # sums of these are exact
    if leaves:
        x[(m - 1) * n] = -99
    sizes = (m * n, m * n, m * n, 2, n, n)
    whole = dict(zip((*buffers, ROW), (x, *(np.zeros(size, np.float32) for size in sizes[1:])), strict=True))
    divided = {b: a.copy() for b, a in whole.items()}
    with pytest.MonkeyPatch.context() as monkeypatch:
        cut_everything(monkeypatch)
        made = divide.divide(nest, {M: m, N: n}, {ROW: n}, {COLUMNS: (COMBINATIONS["sum"], n)})
    assert made is not None
    assert any(chunks is not None for _, chunks in made.parts)
    code = python.load(nest)(*whole.values(), m, n)
    assert run_divided(made, divided, backwards) == code
    for buffer in buffers if code == 0 else ():
        assert_same_bits(divided[buffer], whole[buffer], buffer.name)


def test_a_small_nest_stays_whole() -> None:
    body = tuple(statements("elements"))
    assert divide.divide(Nest("kernel", (X, OUT), (M, N), (), body), {M: 20, N: 30}, {}, {}) is None


@pytest.mark.usefixtures("everything_is_cut")
def test_loops_that_share_scratch_stay_whole() -> None:
    last = Store(OUT, Index(), Load(ROW, Index()))
    for others, whole in (([], False), (statements("rows"), True), ([last], True)):
        nest = Nest("kernel", (X, OUT), (M, N), (), (*statements("rows"), *others), (ROW,))
        assert (divide.divide(nest, {M: 20, N: 5}, {ROW: 5}, {}) is None) is whole


@pytest.mark.usefixtures("everything_is_cut")
def test_nests_whose_iterations_reach_what_others_write_stay_whole() -> None:
    i = Axis("i")
    at, dynamic = Index(((i, 1),)), Index((), 0, builder.cast(Load(X, Index(((i, 1),))), dtypes.int64))
    for store in (
        Store(OUT, Index(((i, 1),), 1), Load(OUT, at)),
        Store(OUT, Index(), Load(X, at)),
        Store(OUT, dynamic, Load(X, at)),
        Store(OUT, at, Load(OUT, dynamic)),
    ):
        assert divide.divide(Nest("kernel", (X, OUT), (), (), (For(i, 100, (store,)),)), {}, {}, {}) is None
    position = Var("position", dtypes.int64)
    extreme = Reduce(i, 100, ((position, "argmax", Load(X, at)),))
    assert divide.divide(Nest("kernel", (X,), (), (), (extreme,)), {}, {}, {}) is None
