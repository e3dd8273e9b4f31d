"""Slices of a fixed length that begin elsewhere in each call, `x[i : i + 32]`, are one recording (`ContainerHandlers.varying_slice`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracejit as tj

DATA = tj.tensor(np.random.default_rng(0).normal(size=(60, 6)))
IMAGES = tj.tensor(np.random.default_rng(1).normal(size=(3, 20, 20)))
WEIGHT = tj.tensor(np.random.default_rng(2).normal(size=(6, 4)), requires_grad=True)


def training(i: int) -> Any:
    batch = DATA[i : i + 8]
    loss = ((batch @ WEIGHT) ** 2).mean()
    (slope,) = tj.autograd.grad(loss, WEIGHT)
    return loss.detach(), slope, batch


def by_number(k: int, size: int = 5) -> Any:
    return DATA[k * size : (k + 1) * size].sum(0), DATA[k * size : k * size + size, 1:3]


def cropped(i: int) -> Any:
    j = (7 * i) % 15
    return IMAGES[:, i % 15 : i % 15 + 4, j : j + 4].sum((1, 2)), IMAGES[0, i % 15 : i % 15 + 4]


def cropped_behind_the_rest(i: int) -> Any:
    j = (7 * i) % 15
    return IMAGES[..., i % 15 : i % 15 + 4, j : j + 4].sum((1, 2)), IMAGES[0, ..., j : j + 4], IMAGES[..., i : i + 2, 1]


def of_earlier_rows(t: int) -> Any:
    return DATA[t - 3 : t].mean(0) - DATA[t]


def drawn(_: int) -> Any:
    i = random.randint(0, 50)
    return DATA[i : i + 4].sum()


@pytest.mark.parametrize("function", [training, by_number, cropped, cropped_behind_the_rest, of_earlier_rows, drawn])
def test_where_a_slice_begins_is_no_other_recording(function: Callable[[int], Any]) -> None:
    compiled = tj.compile(function)
    random.seed(0)
    found = [compiled(k) for k in range(3, 12)]
    random.seed(0)
    for k, results in zip(range(3, 12), found, strict=True):
        expected = function(k)
        pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
        for x, y in pairs:
            assert (x.shape, x.stride(), x.requires_grad, x._base is y._base) == (y.shape, y.stride(), y.requires_grad, True)
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert compiled.stats.traces <= 3
    assert compiled.stats.compiled_calls >= 6


def test_a_slice_is_a_view_at_its_position_in_each_call() -> None:
    data = tj.zeros(20, 2)

    @tj.compile
    def part(i: int) -> Any:
        return data[i : i + 3]

    for i in range(10):
        view = part(i)
        view += 1.0
        assert view._base is data
    assert data[:, 0].tolist() == [1, 2, *[3] * 8, 2, 1, *[0] * 8]
    assert part.stats.traces == 2


def test_slices_at_the_edges_and_of_other_lengths_are_those_of_eager_mode() -> None:
    def part(i: int, n: int) -> Any:
        return DATA[i : i + n]

    compiled = tj.compile(part)
    for i, n in (
        (0, 4),
        (3, 4),
        (7, 4),
        (58, 4),
        (-2, 4),
        (-4, 4),
        (60, 4),
        (70, 4),
        (5, 6),
        (9, 6),
        (9, 0),
        (9, -3),
        (11, 4),
        (56, 4),
    ):
        assert np.array_equal(compiled(i, n).numpy(), part(i, n).numpy()), (i, n)
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


def test_a_slice_that_gradients_go_through_is_one_recording() -> None:
    def slope(x: Any, i: int) -> Any:
        return tj.autograd.grad((x[i : i + 4] ** 2).sum() + x[2 * i : 2 * i + 3].sum(), x)[0]

    compiled = tj.compile(slope)
    for i in range(9):
        x = DATA.clone().requires_grad_()
        assert np.array_equal(compiled(x, i).numpy(), slope(x, i).numpy())
    assert compiled.stats.traces == 2 and compiled.stats.compiled_calls == 7, compiled.explain()


def test_a_slice_that_never_moved_stays_one() -> None:
    class Part:
        begin, end = 2, 5

        def __call__(self, x: Any) -> Any:
            return x[self.begin : self.end].sin()

    part = Part()
    compiled = tj.compile(part)
    for data in (DATA, DATA.float(), DATA[None, 0], DATA.float()):
        assert np.array_equal(compiled(data).numpy(), part(data).numpy())
    assert compiled.stats.traces == 3
    assert "dynamic_slice" not in compiled.explain(verbose=True)


def test_what_is_written_at_a_moving_position_is_one_recording() -> None:
    def added(data: Any, i: int) -> Any:
        part = data[i : i + 2]
        part *= 2.0
        data[i : i + 2] += 1.0
        return data.sum()

    compiled = tj.compile(added)
    found, expected = tj.ones(6), tj.ones(6)
    for k in range(24):
        assert compiled(found, k % 3).item() == added(expected, k % 3).item()
        assert found.tolist() == expected.tolist()
    assert compiled.stats.traces == 2 and compiled.stats.compiled_calls == 22, compiled.explain()


def test_a_call_that_is_shadowed_takes_its_slices_as_the_recorded_one_did() -> None:
    compiled = tj.compile(training)
    for i in range(4):
        compiled(i)
    with tj.shadow(every=1) as shadow:
        for i in range(8):
            compiled(i)
    assert shadow.compared == 8 and not shadow.differences


def test_writes_to_other_memory_pin_no_slice() -> None:
    layer, norm = tj.nn.Conv2d(1, 2, 3, padding=1), tj.nn.BatchNorm2d(2)

    def cropped(images: Any, i: int) -> Any:
        loss = norm(layer(images[:, :, i : i + 4])).sin().sum()  # which moves the averages
        loss.backward()
        slope = layer.weight.grad.clone()
        layer.zero_grad()
        norm.zero_grad()
        return slope

    def changed(x: Any, i: int) -> Any:
        base = x * 1.0
        part = base[i : i + 3]
        base[0] = base[0] * 2
        (part * part).sum().backward()
        slope = x.grad.clone()
        x.grad = None
        return slope

    compiled = tj.compile(cropped)
    for k, i in enumerate((3, 5, 7, 0, 12, 9, 4, 11)):
        images = tj.tensor(np.random.default_rng(k).normal(size=(2, 1, 16, 16)).astype(np.float32))
        assert tj.allclose(compiled(images, i), cropped(images, i), rtol=1e-4, atol=1e-4)
    assert compiled.stats.traces == 2, compiled.explain()
    compiled = tj.compile(changed)
    for k, i in enumerate((2, 3, 4, 0, 1, 5, 2, 0)):
        x = tj.tensor(np.random.default_rng(k).normal(size=(9, 2)), requires_grad=True)
        assert compiled(x, i).equal(changed(x, i))


def batch(data: Any, count: int, length: int) -> Any:
    """A batch of parts of a text, as language models are trained with."""
    positions = tj.randint(len(data) - length, (count,))
    return tj.stack([data[i : i + length] for i in positions]), tj.stack([data[i + 1 : i + 1 + length] for i in positions])


def test_a_batch_of_parts_at_drawn_positions_is_recorded_once() -> None:
    compiled, text = tj.compile(batch), tj.randint(65, (400,))
    for seed in range(8):
        tj.manual_seed(seed)
        expected = batch(text, 4, 16)
        tj.manual_seed(seed)
        assert all(map(tj.equal, compiled(text, 4, 16), expected))
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 7, compiled.explain()


def weighted(table: dict[str, Any], i: Any) -> Any:
    weight = tj.ones(3, requires_grad=True)
    (table["row"][i : i + 3] * weight).sum().backward()
    return weight.grad


def written_around(table: dict[str, Any], i: Any) -> Any:
    part = table["row"][i : i + 5]
    table["row"][3] = -i
    return part * 2, part


AT_COMPUTED_PLACES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "a view that leaves": lambda table, i: table["row"][i : i + 5],
    "the tensor is written in between": written_around,
    "a number that left": lambda table, i: table["row"][i.item() : i.item() + 4] * 2,
    "ends computed apart": lambda table, i: table["row"][2 * i : 2 * (i + 2)] + table["row"][i % 4 : i % 4 + 4 : 1],
    "two dimensions": lambda table, i: table["rows"][i % 3 : i % 3 + 1, i : i + 3] * table["rows"].t()[i : i + 3, 2],
    "beside a position": lambda table, i: (table["rows"][i % 3, i : i + 2], table["rows"][..., i - 1 : i + 1]),
    "a part of a part": lambda table, i: table["row"][i : i + 8][i % 2 : i % 2 + 3],
    "positions in another dtype": lambda table, i: table["row"][i.int() : i.int() + 2] + table["row"][i.view(1) : i.view(1) + 2],
    "a gradient": weighted,
}


@pytest.mark.parametrize("name", AT_COMPUTED_PLACES)
def test_a_part_at_a_position_that_the_program_computes_is_that_of_the_call(name: str) -> None:
    program = AT_COMPUTED_PLACES[name]
    tables = [{"row": tj.arange(40.0), "rows": tj.arange(60.0).view(3, 20)} for _ in range(2)]
    compiled, kept = tj.compile(program), []
    for i in (3, 7, 1, 12, 12, 2, 5, 9):
        kept.append((compiled(tables[0], tj.tensor(i)), program(tables[1], tj.tensor(i))))
    for table in tables:
        table["row"] += 100  # parts that left are views
    for ours, theirs in kept:
        for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (ours, theirs)], strict=True):
            assert tj.equal(a, b) and a.stride() == b.stride()
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 7, compiled.explain()


def test_a_computed_position_that_is_negative_or_beyond_the_end_gives_what_python_gives() -> None:
    def part(x: Any, i: Any) -> Any:
        return x[i : i + 3] * 2

    compiled, x = tj.compile(part), tj.arange(8.0)
    for i in (2, 4, -1, 3, -3, 6, 1, 9, 5, 0):
        assert compiled(x, tj.tensor(i)).tolist() == part(x, tj.tensor(i)).tolist()
    assert compiled.stats.compiled_calls >= 5


def test_what_is_written_at_computed_positions_is_one_recording() -> None:
    def added(data: Any, i: Any) -> Any:
        part = data[i : i + 2]
        part *= 2.0
        return data.sum()

    compiled, found, expected = tj.compile(added), tj.ones(6), tj.ones(6)
    for k in range(24):
        assert compiled(found, tj.tensor(k % 3)).item() == added(expected, tj.tensor(k % 3)).item()
        assert found.tolist() == expected.tolist()
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 23, compiled.explain()


def test_parts_at_computed_positions_are_shadowed_as_they_were_recorded() -> None:
    def part(x: Any, i: Any) -> Any:
        return x[i : i + 3].sin()

    compiled, x = tj.compile(part), tj.arange(20.0)
    compiled(x, tj.tensor(1))
    with tj.shadow(every=1) as shadow:
        for i in range(6):
            compiled(x, tj.tensor(i))
    assert shadow.compared == 6 and not shadow.differences


@pytest.mark.parametrize("number", [lambda i: i.item(), int, lambda i: i.reshape(()).item()])
def test_a_position_may_be_the_number_in_a_tensor_of_any_shape(number: Any) -> None:
    data = tj.arange(20.0)

    def part(i: Any) -> Any:
        k = number(i)
        return data[k : k + 4] * 2

    for shape, dtype in (((1,), tj.int64), ((1, 1), tj.int32), ((), tj.int64)):
        compiled = tj.compile(part, wait=True)
        for k in (3, 5, 1, 7, 9, 2):
            i = tj.full(shape, k, dtype=dtype)
            assert compiled(i).tolist() == part(i).tolist()
        assert compiled.stats.compiled_calls >= 4, compiled.explain()


def test_a_position_may_count_from_the_end_and_a_slice_may_have_a_step() -> None:
    def parts(i: int, position: Any) -> Any:
        k = position.item()
        return (
            DATA[-i - 6 : -i - 2] * 2,
            DATA[i : i + 7 : 3],
            DATA[-k - 3 : -k] + 1,
            DATA.narrow(0, i, 3),
            DATA.narrow(0, k - 60, 2),
        )

    compiled = tj.compile(parts)
    for i in range(12):
        k = tj.tensor(1 + 3 * i % 7)
        for a, b in zip(compiled(i, k), parts(i, k), strict=True):
            assert tj.equal(a, b) and a.stride() == b.stride() and (a._base is DATA) == (b._base is DATA)
    assert compiled.stats.traces <= 3 and compiled.stats.compiled_calls >= 9, compiled.explain()


def test_nodes_of_moving_slices_are_called_as_those_of_slices() -> None:
    weight, names = tj.ones(9, requires_grad=True), []

    def named(i: Any) -> Any:
        part = weight[i : i + 2]
        names.append(type(part.grad_fn).__name__)
        return part * 2

    compiled = tj.compile(named)
    for k in range(3):
        compiled(tj.tensor(k))
    assert set(names) == {"SliceBackward0"}


@pytest.mark.parametrize("backend", ["interpret", "reference", "llvm"])
def test_a_ring_buffer_is_written_where_it_lies(backend: str) -> None:
    """Rows of a batch at a position that a counter tells; the last of them go over the end once in a round, where a slice is shorter."""

    def stored(memory: dict[str, Any], batch: Any) -> Any:
        p = memory["position"]
        memory["rows"][p : p + 4] = batch
        memory["position"] = (p + 4) % 4000
        return memory["rows"][p : p + 4].sum(0), memory["rows"][0] + p

    memories = [{"position": 0, "rows": tj.zeros(4000, 3)} for _ in range(2)]
    with tj.config.override(backend=backend):
        compiled = tj.compile(stored, wait=True)
        for k in range(30):
            if k == 20:
                for memory in memories:
                    memory["position"] = 3980
            batch = tj.full((4, 3), float(k))
            for a, b in zip(compiled(memories[0], batch), stored(memories[1], batch), strict=True):
                assert tj.equal(a, b)
    assert memories[0]["position"] == memories[1]["position"] and tj.equal(memories[0]["rows"], memories[1]["rows"])
    assert compiled.stats.traces <= 4 and compiled.stats.compiled_calls >= 26, compiled.explain()
    commits = [line for line in compiled.explain(verbose=True).splitlines() if "commit" in line]
    assert backend == "interpret" or (commits and all("48000" not in line for line in commits))


def test_a_slice_that_is_written_past_the_end_leaves_memory_as_eager_mode_does() -> None:
    whole = tj.zeros(64)
    data = whole[16:32]  # what is around it would show a write that goes too far

    def written(i: Any) -> None:
        data[i : i + 4] = 1.0
        data[i : i + 4].mul_(3.0)

    compiled, expected = tj.compile(written, wait=True), tj.zeros(16)
    for i in (3, 4, 12, 13, 14, 15, 16, 40, -1, -3, -4, -5, -16, -17, -40, 2**40, -(2**40), 12, 0):
        compiled(tj.tensor(i))
        expected[i : i + 4] = 1.0
        expected[i : i + 4].mul_(3.0)
        assert whole[:16].tolist() == [0.0] * 16 == whole[32:48].tolist(), i
        assert data.tolist() == expected.tolist(), i
    assert compiled.stats.compiled_calls >= 3


SIZE = 12
Step = tuple[str, int, int, int]
STEPS = ("read", "view", "set", "fill", "add", "scale", "rows", "columns", "both", "turned", "part", "narrow", "copied")
GRADIENTS = ("weight", "weight rows", "changed", "added to", "scattered")


def taken_step(step: Step, p: int, q: int, buffer: Any, weight: Any, hidden: Any, found: list[Any]) -> Any:
    """One read, write or differentiated use of slices that begin at p and q, of a length that the step tells."""
    kind, _, n, number = step
    if kind == "read":
        found.append(buffer[p : p + n] * number)
    elif kind == "view":
        found.append(buffer[p : p + n])
    elif kind == "set":
        buffer[p : p + n] = buffer[q : q + n] * 2 if number % 2 else float(number)
    elif kind == "fill":
        buffer.narrow(0, p, n).fill_(number)
    elif kind == "add":
        buffer[p : p + n].add_(number)
    elif kind == "scale":
        buffer[p : p + n] *= number
    elif kind == "rows":
        buffer[p : p + n, 1] = buffer[q]
    elif kind == "columns":
        buffer[:, p : p + n] += buffer[0, q : q + n]
    elif kind == "both":
        buffer[p : p + n, q : q + 2] = number
    elif kind == "turned":
        buffer.t()[..., p : p + n].mul_(number)
    elif kind == "part":
        buffer[p : p + n][0 : n - 1].sub_(number)
    elif kind == "narrow":
        found.append(buffer.narrow(1, p, n).sum(0))
    elif kind == "copied":
        buffer[p : p + n].copy_(hidden.detach()[q : q + n])
    elif kind == "weight":
        hidden = hidden + weight[p : p + n].sum(0) * number
    elif kind == "weight rows":
        hidden = hidden * weight[q, p : p + n].sum()
    elif kind == "changed":
        hidden = hidden * 1
        hidden[p : p + n] = hidden[q : q + n] * number
    elif kind == "added to":
        hidden = hidden * 1
        hidden[p : p + n].add_(weight[q : q + n])
    else:
        hidden = tj.slice_scatter(hidden, weight[q : q + n] * number, 0, p, p + n)
    return hidden


def composed(steps: list[Step], buffer: Any, weight: Any, positions: list[Any]) -> Any:
    found: list[Any] = []
    hidden = weight * 2
    for step in steps:
        p, q = positions[step[1]], positions[step[1] + 1]
        p, q = (x.item() if isinstance(x, tj.Tensor) else x for x in (p, q))
        hidden = taken_step(step, p, q, buffer, weight, hidden, found)
    (slope,) = tj.autograd.grad((hidden * hidden).sum(), weight)
    return slope, hidden.detach(), found


steps = st.tuples(st.sampled_from(STEPS + GRADIENTS), st.integers(0, 2), st.integers(2, 4), st.integers(1, 3))
within = st.integers(0, SIZE - 4)
anywhere = st.one_of(within, within, within, st.integers(-SIZE - 2, SIZE + 2))


@pytest.mark.parametrize(("backend", "examples"), [("interpret", 60), ("reference", 15), ("llvm", 20)])
def test_programs_of_moving_slices_are_those_of_eager_mode(backend: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(steps, min_size=1, max_size=5),
        st.booleans(),
        st.lists(st.tuples(*[anywhere] * 4), min_size=2, max_size=3),
        st.lists(st.tuples(*[within] * 4), min_size=6, max_size=7),
    )
    def check(steps: list[Step], computed: bool, odd: list[Any], even: list[Any]) -> None:
        compiled.clear()
        worlds = [[tj.arange(float(SIZE * SIZE)).reshape(SIZE, SIZE) % 5 for _ in range(2)] for _ in range(2)]
        for numbers in (*even[:5], *odd, *even[5:]):
            results = []
            for function, world in zip((compiled, composed), worlds, strict=True):
                buffer, weight = world
                positions = [tj.tensor(x) if computed and k % 2 else x for k, x in enumerate(numbers)]
                try:
                    with np.errstate(all="ignore"):
                        results.append(function(steps, buffer, weight.clone().requires_grad_(), positions))
                except (RuntimeError, IndexError) as error:
                    results.append(str(error))
                buffer.remainder_(7)
            ours, theirs = results
            if isinstance(ours, str) or isinstance(theirs, str):
                assert ours == theirs
            else:
                for a, b in zip((*ours[:2], *ours[2]), (*theirs[:2], *theirs[2]), strict=True):
                    assert tj.equal(a, b) and a.stride() == b.stride() and (a._base is None) == (b._base is None)
            assert tj.equal(worlds[0][0], worlds[1][0])
        served.append(compiled.stats.compiled_calls)

    served: list[int] = []
    with tj.config.override(backend=backend):
        compiled = tj.compile(composed, wait=True)
        check()
    assert sum(served) > 1.5 * len(served)


@pytest.mark.parametrize("length", [None, 3])
def test_a_drawn_position_that_is_of_no_other_use_is_kept_for_the_write(length: int | None) -> None:
    buffers = [tj.zeros(50, 4) for _ in range(2)]

    def written(buffer: Any) -> Any:
        i = tj.randint(40, (1,)).item()
        if length is None:
            buffer[i] = DATA[0, :4]
        else:
            buffer[i : i + length] = DATA[0, :4]
        return buffer

    compiled = tj.compile(written, wait=True)
    for seed in range(6):
        for function, buffer in zip((compiled, written), buffers, strict=True):
            tj.manual_seed(seed)
            function(buffer)
        assert tj.equal(*buffers)
    assert compiled.stats.compiled_calls == 5, compiled.explain()
