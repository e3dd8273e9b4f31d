"""Random numbers of Python and NumPy inside compiled functions: each call draws what eager draws, and leaves the generators there."""

from __future__ import annotations

import contextlib
import io
import math
import random
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.capture.recording import generator_states
from tracejit.config import override
from tracejit.cpython.generators import state_memory

CALLS = 40
generator = np.random.default_rng(0)
own = random.Random(3)


def seeded() -> None:
    random.seed(5)
    np.random.seed(5)
    generator.bit_generator.state = np.random.default_rng(7).bit_generator.state
    own.seed(2)
    positions[:] = range(6)
    pairs[:] = [(T.ones(2) * k, k % 2 == 0) for k in range(3)]
    memory.clear()
    memory.extend((np.full(3, i, "f4"), i, float(i)) for i in range(20))


def states() -> list[str]:
    return [str(s) for s in (random.getstate(), np.random.get_state(), generator.bit_generator.state, own.getstate())]


def drawn(fn: Callable[..., Any]) -> list[Any]:
    """What the calls of a function come to and print, and where they leave the generators."""
    seeded()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        found = [(repr(fn(T.tensor([1.0, 2.0, (-1.0) ** i * 4]))), states()) for i in range(CALLS)]
    return [*found, out.getvalue()]


def mixup(x: T.Tensor) -> Any:
    share = np.random.beta(0.4, 0.4)
    return share * x + (1 - share) * x[T.tensor([2, 0, 1])]


def after_a_decision_of_the_program(x: T.Tensor) -> Any:
    if x.sum() > 0:
        return x * random.random()
    return x * (random.gauss(0, 1) + own.random())


def layers_left_out(x: T.Tensor) -> Any:
    for i in range(3):
        if random.random() < 0.3:
            x = x * i + 1
    return x, random.random()


def shuffled(x: T.Tensor) -> Any:
    order = [1, 2, 3]
    random.shuffle(order)
    return order, x * 2


def told(x: T.Tensor) -> Any:
    print(f"{random.random():.3f} {own.uniform(0, 1)}")
    return math.exp(-random.random()) * x


def seeded_before_a_decision(x: T.Tensor) -> Any:
    random.seed(3)
    y = x * random.random()
    return y if x.sum() > 0 else y * random.random()


def made_by_the_call(x: T.Tensor) -> Any:
    rng, old = np.random.default_rng(random.randint(0, 9)), np.random.RandomState(5)
    return (
        x * rng.random() + old.rand(),
        rng.normal(size=3),
        random.Random(x.dim()).gauss(0, 1),
        np.random.default_rng(seed=1).integers(9),
    )


memory: deque[Any] = deque((np.full(3, i, "f4"), i, float(i)) for i in range(20))
table = [0.5, 1.5, 3.0]
names = ["a", "b"]
positions: list[int] = []
pairs: list[Any] = []


def picked(x: T.Tensor) -> Any:
    low = own.choice([2, 1, 3])
    return (
        x * random.choice(table), random.choices([1, low], weights=[0.25, 0.75], k=2), random.sample(range(low, 9), 3),
        x[random.sample(range(3), 2)], own.sample((low, 7, 9), k=2), random.choices(table, k=4), random.choices(range(3)),
    )  # fmt: skip


def shuffled_numbers(x: T.Tensor) -> Any:
    order, array, other = list(range(6)), np.arange(6), np.arange(6.0).reshape(2, 3)
    same = order
    random.shuffle(order)
    first = x[[i % 3 for i in order[:2]]]
    own.shuffle(order)
    generator.shuffle(array)
    np.random.shuffle(repeated := np.repeat([1, 2], 2))
    generator.shuffle(other := np.array(other))
    return first, same, array, x[array[:2] % 3], other.sum(), repeated.tolist()


def seen_before_it_is_shuffled(x: T.Tensor) -> Any:
    array = np.arange(6)
    part = array[:3]
    np.random.shuffle(array)
    return part * 2, x * 2


def shuffled_in_each_epoch(x: T.Tensor) -> Any:
    order, positions, batches = np.arange(6), list(range(6)), []
    weight = x * 0
    for epoch in range(2):
        np.random.shuffle(order)
        random.shuffle(positions)
        for start in range(0, 6, 2):
            rows = order[start : start + 2]
            batches.append(x[rows % 3] * (epoch + 1) - x[[k % 3 for k in positions[start : start + 2]]])
            weight[T.tensor(rows) % 3] += 1
    return batches, weight, T.tensor(order), order, order[0], T.tensor(order, dtype=T.float32) * x[0]


def a_view_is_shuffled_with_its_array(x: T.Tensor) -> Any:
    order = generator.permutation(6)
    part, least, kept = order[:2], order.min(), {"order": order}
    first = x[part % 3] * order[0]
    generator.shuffle(order)
    return first, x[part % 3], part, least, kept, [int(k) for k in order], x.sum() * order


def shuffled_after_a_decision(x: T.Tensor) -> Any:
    order = np.arange(3)
    np.random.shuffle(order)
    if x.sum() > 3:
        np.random.shuffle(order)
    return x[order]


def a_list_from_outside_is_shuffled(x: T.Tensor) -> Any:
    random.shuffle(positions)
    first = x[[k % 3 for k in positions[:2]]]
    own.shuffle(positions)
    positions[0] += 1
    random.shuffle(pairs)
    done = T.tensor([flag for _, flag in pairs])
    return first, x * positions[1], len(positions), list(positions), done, [tensor * 2 for tensor, _ in pairs]


def shared_with_a_tensor_and_shuffled(x: T.Tensor) -> Any:
    order = generator.permutation(3)
    shared = T.from_numpy(order)
    before = shared * 1
    generator.shuffle(order)
    return before, shared * 1, x[shared]


def told_and_shuffled(x: T.Tensor) -> Any:
    order = generator.permutation(6)
    print(order[:2], f"{order}", order.sum() * x.sum().item())
    generator.shuffle(order)
    return order, x * 2


def replayed(x: T.Tensor) -> Any:
    states, actions, rewards = zip(*random.sample(memory, 4), strict=True)
    return x + T.tensor(np.stack(states)).sum(), T.tensor(actions), sum(rewards)


def replayed_when_it_was_stored(x: T.Tensor) -> Any:
    memory.append((np.ones(3, "f4"), 1, 2.0))
    memory.popleft()
    return x * sum(reward for _, _, reward in random.sample(memory, 4))


def scalars_of_numpy(x: T.Tensor) -> Any:
    drawn = (
        generator.integers(3),
        generator.choice([0.5, 0.25]),
        generator.integers(5, dtype=np.int32),
        np.random.choice([1.5, 2.5]),
    )
    position, share = drawn[:2]
    return (
        x[position] * share, x + position, drawn, [drawn[2] for _ in range(2)], f"{position} {share:.2f}", int(position), table[position],
        position + drawn[2], -share * x, position in (0, 7, 9),
    )  # fmt: skip


def out_of_range(x: T.Tensor) -> Any:
    try:
        return x, random.sample(range(2), random.randint(1, 3))
    except ValueError as error:
        return -x, str(error)


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {  # and how many paths there are
    "an operand": (lambda x: x * random.random(), 1),
    "drawn twice": (lambda x: (x * random.random() - random.random(), random.random(), own.random() + own.random()), 1),
    "what decides": (lambda x: x.flip(0) if random.random() < 0.5 else x + 0, 2),
    "functions of random": (
        lambda x: (x * random.uniform(1, 2), random.gauss(0, 1), random.randint(0, 9), own.betavariate(1, 2)),
        1,
    ),
    "numbers of NumPy": (lambda x: (x + generator.normal(), generator.random(), np.random.rand(), np.random.randn(), x * 2), 1),
    "arrays": (
        lambda x: (x + T.from_numpy(generator.normal(size=3)), T.tensor(np.random.rand(3)), np.random.normal(0, 2, (2, 2))),
        1,
    ),
    "mixup": (mixup, 1),
    "after a decision": (after_a_decision_of_the_program, 2),
    "elements of lists": (lambda x: (random.choice([1, 2, 3]), generator.integers(0, 4), x * 2), 1),
    "layers left out": (layers_left_out, 8),
    "shuffled": (shuffled, 6),
    "a slice": (lambda x: x[: random.randrange(1, 3)] * 2, 2),
    "told": (told, 1),
    "picked": (picked, 3),
    "picked texts": (lambda x: (x * 2, random.choice(names), random.choices(names)), 4),
    "shuffled numbers": (shuffled_numbers, 1),
    "shuffled in each epoch": (shuffled_in_each_epoch, 1),
    "a view is shuffled with its array": (a_view_is_shuffled_with_its_array, 1),
    "shuffled after a decision": (shuffled_after_a_decision, 2),
    "a list from outside is shuffled": (a_list_from_outside_is_shuffled, 1),
    "replayed": (replayed, 1),
    "scalars of NumPy": (scalars_of_numpy, 2),
    "out of range": (out_of_range, 3),
    "seeded": (lambda x: (random.seed(7), np.random.seed(3), x * random.random() * np.random.rand()), 1),
    "seeded by the call": (lambda x: (own.seed(int(own.random() * 99)), own.random(), x * 2), 1),
    "seeded before a decision": (seeded_before_a_decision, 2),
    "made by the call": (made_by_the_call, 1),
}


@pytest.mark.parametrize("hot", [1, 1000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_calls_draw_what_eager_calls_draw(name: str, hot: int) -> None:
    fn, paths = PROGRAMS[name]
    compiled = T.compile(fn)
    with override(hot_calls=hot):
        assert drawn(compiled) == drawn(fn)
    assert compiled.stats.traces <= paths and compiled.stats.compiled_calls == CALLS - compiled.stats.traces, compiled.reasons


@pytest.mark.parametrize(
    "fn",
    [seen_before_it_is_shuffled, replayed_when_it_was_stored, shared_with_a_tensor_and_shuffled, told_and_shuffled],
)
def test_what_is_picked_from_what_the_call_has_changed_is_what_eager_picks(fn: Any) -> None:
    assert drawn(T.compile(fn)) == drawn(fn)


@pytest.mark.parametrize("name", ["after a decision", "layers left out", "numbers of NumPy"])
def test_draws_are_the_same_where_the_memory_of_generators_is_not_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_states, "state_memory", lambda generator: None)
    fn, _ = PROGRAMS[name]
    assert drawn(T.compile(fn)) == drawn(fn)


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64, np.random.SFC64, np.random.Philox])
@pytest.mark.parametrize("kind", [np.random.Generator, np.random.RandomState])
@pytest.mark.parametrize("hot", [1, 1000])
def test_generators_of_numpy_go_back_to_where_they_were_at_an_exit(kind: Any, bits: Any, hot: int) -> None:
    def values(compiled: bool) -> list[Any]:
        rng = kind(bits(3))

        def fn(x: T.Tensor) -> Any:
            y = x * rng.standard_normal()
            return y if y.sum() > 0 else y + rng.standard_normal()

        f = T.compile(fn) if compiled else fn
        found = [f(T.ones(2, dtype=T.float64)).tolist() for _ in range(CALLS)]
        rng.standard_normal()
        return [*found, rng.standard_normal()]

    with override(hot_calls=hot):
        assert values(True) == values(False)


def test_a_generator_that_has_got_other_bits_goes_back_to_where_it_was() -> None:
    def values(compiled: bool) -> list[Any]:
        rng = np.random.RandomState(3)

        def fn(x: T.Tensor) -> Any:
            y = x * rng.standard_normal()
            return y if y.sum() > 0 else y + rng.standard_normal()

        f = T.compile(fn) if compiled else fn
        found = [f(T.ones(2, dtype=T.float64)).tolist() for _ in range(CALLS)]
        rng.__init__(np.random.PCG64(5))  # type: ignore[misc]
        return [*found, *[f(T.ones(2, dtype=T.float64)).tolist() for _ in range(CALLS)]]

    assert values(True) == values(False)


def test_the_copied_memory_is_all_of_the_state_of_a_generator() -> None:
    for kind in (random.Random, np.random.RandomState, np.random.default_rng):
        rng = kind(3)
        for _ in range(5):
            memory = state_memory(rng)
            assert memory is not None
            before, contents = generator_states._state(rng), [part.raw for part in memory]
            expected = [rng.random() for _ in range(700)]
            for part, content in zip(memory, contents, strict=True):
                part.raw = content
            assert str(generator_states._state(rng)) == str(before) and [rng.random() for _ in range(700)] == expected


def test_entries_that_draw_become_machine_code() -> None:
    compiled = T.compile(lambda x: x * random.random() + np.random.rand())
    with override(hot_calls=2):
        for _ in range(6):
            compiled(T.ones(2))
    assert compiled._table.first is not None and compiled._table.first.machine is not None, compiled.explain()


def test_comparing_with_eager_calls_takes_no_draws() -> None:
    compiled = T.compile(fn := lambda x: x * random.random())
    with T.shadow(every=1) as watch:
        found = drawn(compiled)
    assert found == drawn(fn) and not watch.differences


def test_eager_and_compiled_calls_can_be_mixed() -> None:
    def fn(x: T.Tensor) -> Any:
        return x * random.random() if own.random() < 0.5 else x + generator.normal()

    compiled = T.compile(fn)
    turns = iter(range(CALLS * 2))
    assert drawn(lambda x: compiled(x) if next(turns) % 3 else fn(x)) == drawn(fn)


def test_an_argument_that_the_program_computes_is_guarded() -> None:
    compiled = T.compile(fn := lambda x: x * random.uniform(0, x.abs().sum().item()))
    assert drawn(compiled) == drawn(fn)


def test_a_generator_that_the_call_makes_and_returns_goes_on_from_where_it_is() -> None:
    def fn(x: T.Tensor, seed: int) -> Any:
        rng, other = np.random.default_rng(seed), random.Random(seed)
        return x * rng.random() * other.random(), rng, other

    compiled = T.compile(fn)
    for seed in range(6):
        value, rng, other = compiled(T.ones(2), seed)
        expected, eager_rng, eager_other = fn(T.ones(2), seed)
        assert (
            value.tolist() == expected.tolist() and rng.random() == eager_rng.random() and other.random() == eager_other.random()
        )
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 5), compiled.reasons


def test_another_generator_at_the_same_address_is_asked() -> None:
    holder = {"rng": random.Random(1)}
    compiled = T.compile(lambda x: x * holder["rng"].random())
    for seed in (1, 2, 3, 2):
        holder["rng"] = random.Random(seed)
        expected = random.Random(seed)
        for _ in range(3):
            assert compiled(T.ones(1, dtype=T.float64)).item() == expected.random()
    assert compiled.stats.compiled_calls > 0


def test_an_entry_keeps_no_generator_alive() -> None:
    holder = {"rng": random.Random(1)}
    compiled = T.compile(lambda x: x * holder["rng"].random())
    for _ in range(3):
        compiled(T.ones(1))
    gone = weakref.ref(holder.pop("rng"))
    assert gone() is None
    holder["rng"] = random.Random(8)
    assert compiled(T.ones(1, dtype=T.float64)).item() == random.Random(8).random()


@pytest.mark.parametrize("hot", [0, 1])
def test_draws_keep_their_order_where_guards_of_a_large_structure_stand_between_them(hot: int) -> None:
    class Noisy(T.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = T.nn.Sequential(*[T.nn.Linear(3, 3) for _ in range(10)])
            self.last = T.nn.Linear(3, 3)
            self.last.most = 2.0

        def forward(self, x: T.Tensor) -> Any:
            draws = random.uniform(0, self.last.most), random.random(), own.uniform(0, self.last.most), own.random()
            return self.last(self.layers(x)).isnan().sum(), draws

    model = Noisy()
    with override(hot_calls=hot):
        assert drawn(T.compile(model)) == drawn(model)


def test_an_array_that_is_shuffled_where_it_cannot_be_says_so() -> None:
    array = np.arange(3)
    compiled = T.compile(lambda x: (np.random.shuffle(array), x * 2)[1])
    for _ in range(4):
        compiled(T.ones(3))
    assert "an ndarray that is shuffled" in compiled.explain(verbose=True)
    assert sorted(array) == [0, 1, 2]


def test_an_array_that_may_be_one_from_outside_is_not_shuffled_by_an_entry() -> None:
    def column() -> Any:
        return np.stack([np.arange(12), np.arange(12)], 1)[:, 0]

    def row() -> Any:
        return np.arange(12)

    def order(given: Any) -> Any:
        array = np.ascontiguousarray(given)  # a copy of a column, and a row as it is
        np.random.shuffle(array)
        return array, T.ones(2)

    compiled = T.compile(order)
    for given in (column, column, row, row):
        mine, others = given(), given()
        np.random.seed(3)
        expected = repr(order(others)), others.tolist(), np.random.rand()
        np.random.seed(3)
        assert (repr(compiled(mine)), mine.tolist(), np.random.rand()) == expected
    assert compiled.stats.compiled_calls == 0
