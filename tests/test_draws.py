"""Nests of random draws against the generator of eager mode: equal bits, whatever draws them, and streams that threads share."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override
from tracejit.core import dtypes, philox
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder
from tracejit.ops.public import random, sampling
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


CASES = [
    *((n, d) for n in ("random_uniform", "random_normal", "random_exponential") for d in FLOATING),
    ("random_integers", None),
]


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


# -- every form of a draw in compiled functions
F, D = T.nn.functional, T.distributions
P, GENERATOR = [0.3], T.Generator()
FORMS: dict[str, Any] = {
    "dropout": lambda a, c: F.dropout(a, 0.3),
    "dropout of a changing probability": lambda a, c: F.dropout(a, P[0]),
    "dropout of nothing": lambda a, c: F.dropout(a, 0.0),
    "dropout of everything": lambda a, c: F.dropout(a, 1.0),
    "dropout in place": lambda a, c: F.dropout(a.clone(), 0.3, inplace=True),
    "dropout1d": lambda a, c: F.dropout1d(c[0], 0.3),
    "dropout2d": lambda a, c: F.dropout2d(c, 0.3),
    "dropout3d": lambda a, c: F.dropout3d(c[None], 0.3),
    "alpha_dropout": lambda a, c: F.alpha_dropout(a, 0.3),
    "feature_alpha_dropout": lambda a, c: F.feature_alpha_dropout(c, 0.3),
    "rrelu": lambda a, c: F.rrelu(a, training=True),
    "gumbel_softmax": lambda a, c: F.gumbel_softmax(a, hard=True),
    "rand": lambda a, c: (T.rand(3, 4, generator=GENERATOR), T.rand(3, dtype=T.float64)),
    "rand_like": lambda a, c: T.rand_like(a),
    "randn": lambda a, c: (T.randn(3, 4), T.randn(5, generator=GENERATOR)),
    "randn_like": lambda a, c: T.randn_like(a, dtype=T.float64),
    "randint": lambda a, c: (T.randint(0, 9, (5,)), T.randint(3, (4,), generator=GENERATOR)),
    "randint_like": lambda a, c: T.randint_like(a, 2, 9),
    "randperm": lambda a, c: (T.randperm(6), T.randperm(6, generator=GENERATOR)),
    "normal of numbers": lambda a, c: T.normal(P[0], 1.5, (3,)),
    "normal of changing numbers": lambda a, c: T.normal(P[0], P[0], (3,), generator=GENERATOR),
    "normal of means": lambda a, c: T.normal(a, 1.0),
    "normal of deviations": lambda a, c: T.normal(0.0, a.abs() + 1),
    "normal": lambda a, c: T.normal(a, a.abs() + 1),
    "bernoulli": lambda a, c: (
        T.bernoulli(a.abs() / 4),
        a.abs().clamp(max=1).bernoulli(),
        T.bernoulli(a, P[0], generator=GENERATOR),
    ),
    "multinomial": lambda a, c: T.multinomial(a.abs() + 1, 2),
    "poisson": lambda a, c: (T.poisson(a.abs() + 1), T.poisson(a.abs() + 1, generator=GENERATOR)),
    "multinomial with replacement": lambda a, c: T.multinomial(a.abs() + 1, 7, replacement=True, generator=GENERATOR),
    "normal_": lambda a, c: T.empty(5).normal_(1.0, P[0]),
    "uniform_": lambda a, c: T.empty(5).uniform_(-2, P[0], generator=GENERATOR),
    "bernoulli_": lambda a, c: (
        T.empty(5).bernoulli_(),
        T.empty(5).bernoulli_(P[0]),
        T.empty(5).bernoulli_(a.abs().clamp(max=1)[0, 0]),
    ),
    "exponential_": lambda a, c: (T.empty(5).exponential_(), T.empty(5, dtype=T.float64).exponential_(P[0])),
    "geometric_": lambda a, c: T.empty(5).geometric_(0.3),
    "random_": lambda a, c: (T.empty(5).random_(0, 9), T.empty(5).random_(9), T.empty(5, dtype=T.int64).random_()),
    "a view": lambda a, c: a.clone()[:, 1].normal_(generator=GENERATOR),
    "kaiming_uniform_": lambda a, c: T.nn.init.kaiming_uniform_(T.empty(3, 3)),
    "xavier_normal_": lambda a, c: T.nn.init.xavier_normal_(T.empty(3, 3)),
    "sparse_": lambda a, c: T.nn.init.sparse_(T.empty(4, 3), 0.4),
    "Normal": lambda a, c: (D.Normal(a, 1.0).sample(), D.Normal(a, a.abs() + 1).rsample((2,))),
    "Uniform": lambda a, c: D.Uniform(a, a + 1).rsample(),
    "Exponential": lambda a, c: D.Exponential(a.abs() + 1).rsample(),
    "Categorical": lambda a, c: D.Categorical(a.abs() + 1).sample((3,)),
    "Bernoulli": lambda a, c: D.Bernoulli(a.abs() / 4).sample(),
    "MultivariateNormal": lambda a, c: D.MultivariateNormal(T.zeros(3), T.eye(3)).rsample(),
    "Poisson": lambda a, c: D.Poisson(a.abs() + 1).sample(),
}
"""Draws, and what is computed of them with operations that have one result."""
ELEMENTARY: dict[str, Any] = {
    "log_normal_": lambda a, c: T.empty(5).log_normal_(),
    "cauchy_": lambda a, c: T.empty(5).cauchy_(generator=GENERATOR),
    "soft gumbel_softmax": lambda a, c: F.gumbel_softmax(a),
    "Laplace": lambda a, c: D.Laplace(a, 1.0).rsample(),
    "trunc_normal_": lambda a, c: T.nn.init.trunc_normal_(T.empty(3, 3)),
    "orthogonal_": lambda a, c: T.nn.init.orthogonal_(T.empty(3, 3)),
    "Gamma": lambda a, c: D.Gamma(a.abs() + 1, a.abs() + 1).rsample(),
}
"""Elementary functions of draws: as near to eager mode as these are."""
MODULES = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")


def arrays(result: Any) -> list[Any]:
    return [t.detach().numpy() for t in (result if isinstance(result, tuple) else (result,))]


def streams(form: Any, call: Any, mixed: bool) -> list[list[Any]]:
    """What eight calls draw, one in three of them an eager one if `mixed`, and what both generators give after each."""
    T.manual_seed(5)
    a, c = T.randn(3, 4) * 0.9, T.randn(2, 3, 4, 4)
    GENERATOR.manual_seed(3)
    found = []
    for i in range(8):
        P[0] = 0.3 + 0.01 * i
        result = (form if mixed and i % 3 == 2 else call)(a, c)
        found.append([*arrays(result), T.rand(2).numpy(), T.rand(2, generator=GENERATOR).numpy()])
    return found


@pytest.mark.parametrize("name", [*FORMS, *ELEMENTARY])
def test_a_draw_in_a_program_is_that_of_eager_mode_in_any_mixture_of_calls(name: str) -> None:
    form = FORMS.get(name) or ELEMENTARY[name]
    compiled = T.compile(form)
    expected = streams(form, form, False)
    for mixed in (False, True):
        for one, other in zip(streams(form, compiled, mixed), expected, strict=True):
            for x, y in zip(one, other, strict=True):
                if name in FORMS or x is one[-1] or x is one[-2]:
                    assert (x.shape, x.dtype, x.tobytes()) == (y.shape, y.dtype, y.tobytes())
                else:
                    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert compiled.stats.traces == 1, compiled.explain()
    assert compiled.stats.compiled_calls == 13


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_draws_has_one_path_for_training_and_one_for_evaluation(name: str) -> None:
    def calls(compiler: Any) -> tuple[list[Any], Any]:
        T.manual_seed(1)
        module, x = getattr(T.nn, name)(0.4), T.randn(2, 3, 4, 4, 4)[(slice(None),) * (2 if name == "Dropout1d" else 3)]
        x = {"Dropout1d": x[:, :, 0, 0], "Dropout2d": x[:, :, 0]}.get(name, x)
        called, found = compiler(lambda x: module(x)), []
        for i in range(12):
            module.train(i % 3 != 1)
            found += [called(x).numpy().tobytes(), T.rand(1).item()]
        return found, called

    expected, _ = calls(lambda fn: fn)
    found, compiled = calls(T.compile)
    assert found == expected
    assert compiled.stats.traces == 2, compiled.explain()
    assert compiled.stats.compiled_calls == 10


def test_all_that_takes_a_generator_is_among_the_forms() -> None:
    takers = {
        function.__name__ if name == function.__name__ else f"{function.__name__}_"
        for module in (random, sampling)
        for name, function in vars(module).items()
        if inspect.isfunction(inspect.unwrap(function)) and "generator" in inspect.signature(inspect.unwrap(function)).parameters
    }
    known = {name.split()[0] for name in (*FORMS, *ELEMENTARY)}
    assert {"randn", "multinomial", "uniform_", "cauchy_"} <= takers
    on_data = {"binomial"}  # how much it draws depends on what it is given
    assert takers - known - on_data <= {"uniform_of", "exponential_of", "_normal", "_integers", "_open_uniform"}


def test_draws_beside_steps_of_the_host_are_replayed_while_there_are_other_threads() -> None:
    def fn(logits: T.Tensor) -> T.Tensor:
        noise = T.rand(3)
        chosen = T.searchsorted(logits.sort().values, T.rand(2))
        return noise * 2, chosen, T.rand(1) if logits.sum() > 0 else T.rand(2)

    def outcomes(call: Callable[..., Any]) -> list[Any]:
        T.manual_seed(3)
        found = [[t.tolist() for t in call(T.tensor([0.1, 0.5, 0.3]) * (-1) ** i)] for i in range(8)]
        return [found, T.rand(1).item()]

    compiled = T.compile(fn)
    over = threading.Event()
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    try:
        assert outcomes(compiled) == outcomes(fn)
    finally:
        over.set()
        waiting.join()
    assert compiled.stats.compiled_calls == 6, compiled.explain()
    assert "host step" in compiled.explain(verbose=True)


def _seeded_after_two_draws(x: Any) -> Any:
    position, noise = T.randperm(3), T.randn(3)
    T.manual_seed(0)
    return x[position] + noise


def _put_back(x: Any) -> Any:
    ordered, drawn = T.searchsorted(x, x), T.rand(3)  # by NumPy
    state = T.get_rng_state()
    more = T.rand(2)
    T.set_rng_state(state)
    return ordered + drawn + more.sum() + T.rand(1)


def _forked(x: Any) -> Any:
    drawn = T.searchsorted(x, x) + T.rand(3)
    with T.random.fork_rng():
        inside = T.rand(2)
    return drawn + inside.sum() * T.rand(1)


@pytest.mark.parametrize("function", [_seeded_after_two_draws, _put_back, _forked])
def test_a_generator_that_is_set_beside_steps_of_the_host_is_left_where_it_was_set(function: Callable[[Any], Any]) -> None:
    found = []
    compiled = T.compile(function)
    for call in (function, compiled):
        T.manual_seed(7)
        calls = [(call(T.tensor([3.0, 1.0, 2.0])).tolist(), T.rand(1).item(), T.get_rng_state().tolist()) for _ in range(6)]
        found.append(calls)
    assert "host step" in compiled.explain(verbose=True) and compiled.stats.traces == 1
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-6)
        assert a[1:] == b[1:]
