"""What NumPy computes from arrays and numbers from outside is computed before the program, in each call."""

from __future__ import annotations

import inspect
import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

import tracejit as T
from tracejit.capture.handlers.arrays import CALM, writes_to_argument
from tracejit.config import override

data = np.arange(20, dtype=np.float64)
tokens = np.arange(50).astype(np.int16)
weight = T.zeros(3)
rows = T.arange(18.0).view(6, 3) / 8 - 1
steps, values = np.array([0.0, 1.0, 2.0]), np.array([5.0, 7.0, 1.0])
changing, flags = [0, 1, 2], [True, False, False]
pair: list[Any] = [(0, 1.5), (2.5, 1)]
COUNTS = [0, 1, 2, 3, 1, 2, 0]


def window(x: T.Tensor, n: int) -> Any:
    start = random.randint(0, 16)
    return T.from_numpy(data[start : start + 3].astype(np.float32)) * x


def batch(x: T.Tensor, n: int) -> Any:
    return T.stack([T.from_numpy(tokens[i : i + 3].astype(np.int64)) for i in np.random.randint(0, 40, 4)])


def caught(x: T.Tensor, n: int) -> Any:
    try:
        return x * data[15 + 3 * n]
    except IndexError as error:
        return -x, str(error)


def changed_before(x: T.Tensor, n: int) -> Any:
    kept = T.from_numpy(data)
    kept.add_(1)
    read = data[n]
    kept.sub_(1)
    return read * x


def changed_after(x: T.Tensor, n: int) -> Any:
    read = data[n] * 2, data[:3].copy()
    T.from_numpy(data).add_(1)
    return read, x * read[0]


def read_with_results_and_changed(x: T.Tensor, n: int) -> Any:
    product = (x * 2).numpy() * data[:3]
    T.from_numpy(data).add_(1)
    return product


def minibatches(x: T.Tensor, n: int) -> Any:
    order, loss = np.random.permutation(6), T.zeros(())
    for start in range(0, 6, 2):
        part = order[start : start + 2]
        loss = loss + (rows[part] * x).sum() * (part > n).sum()
    return loss, [rows[i] for i in order[:2]], order


def steps_over_minibatches(x: T.Tensor, n: int) -> Any:
    order, told, picks = np.random.permutation(6), 0.0, list(range(6))
    random.shuffle(picks)
    for start in range(0, 6, 2):
        part = order[start : start + 2]
        weight.add_(rows[part].sum(0) * x)
        told += (T.from_numpy(data[part]) * x[0]).sum().item() + order[start] + data[n]
        weight.mul_(rows[picks[start : start + 2]].sum() + 1)
    return told, weight.clone(), order


def drawn_memory_is_written(x: T.Tensor, n: int) -> Any:
    drawn = np.random.rand(3)
    T.from_numpy(drawn).add_(1)
    return x * T.from_numpy(drawn[1:].copy()).sum()


def drawn_items_are_stored(x: T.Tensor, n: int) -> Any:
    drawn = np.random.rand(3)
    weight.add_(x)
    drawn[0] = 7
    return drawn[:2] * 2, x * 2


def picked(x: T.Tensor, n: int) -> Any:
    drawn = np.random.randint(-6, 6, (2, 2))
    return (
        rows[drawn], rows[drawn.astype(np.int16), 1], rows[:, drawn[0] % 3], rows[None, drawn[0]], rows[drawn[::-1].T],
        rows[drawn[0, 0] % 6], rows[np.array(drawn[0, 1] % 6)], rows[drawn[:0, 0]],
    )  # fmt: skip


def masked(x: T.Tensor, n: int) -> Any:
    mask = data[:6] >= 3
    return rows[mask], rows[mask.astype(np.uint8), n % 2], rows[mask] * x


def stored(x: T.Tensor, n: int) -> Any:
    y, drawn = rows.clone(), np.random.choice(6, 2, replace=False)
    y[drawn] = data[:3].astype("f4")
    y[drawn[0]] += x
    y[:, data[:3] > 0] = n
    return y


def met(x: T.Tensor, n: int) -> Any:
    drawn, wide = np.random.rand(3).astype("f4"), np.random.rand(3, 6)
    grown = x.clone()
    grown += drawn
    return (
        x * drawn, drawn - x, x < drawn, drawn < x, x + wide[:, 0], wide[0, :3] @ x.double(), rows @ drawn, rows + wide.T, grown,
        x**drawn == x**T.tensor(drawn), x // drawn[:1],
    )  # fmt: skip


def changed_after_it_was_used(x: T.Tensor, n: int) -> Any:
    drawn = np.random.permutation(6)
    first = rows[drawn]
    drawn[0] = n % 6
    return first, rows[drawn]


def gradients(x: T.Tensor, n: int) -> Any:
    w = rows.clone().requires_grad_()
    (w[np.random.choice(6, 4)] * np.random.rand(4, 3).astype("f4") * x).sum().backward()
    return w.grad


PROGRAMS: dict[str, tuple[Callable[..., Any], int | str]] = {  # and how many recordings there are, or the reason
    "an array of numbers": (lambda x, n: T.tensor(np.array([n, 1.0, 2.0])) * x, 1),
    "interpolation": (lambda x, n: (x * np.interp(n, steps, values), np.interp(n, [0, 1, 2], [5, 7, 1])), 1),
    "an array of a list": (
        lambda x, n: (
            T.tensor(np.array(changing, dtype=np.float32)) * x,
            np.mean(changing) * x,
            np.array([changing, flags, [n] * 3]),
        ),
        1,
    ),
    "positions in a list": (lambda x, n: (data[changing].sum() * x, data[(changing[0],)], np.asarray(pair) * 2), 1),
    "an array that is drawn": (lambda x, n: T.from_numpy(np.random.randn(3).astype("f4")) * x, 1),
    "a generator of the call": (lambda x, n: T.from_numpy(np.random.default_rng(n).normal(size=3).astype("f4")) * x, 1),
    "a window": (window, 1),
    "a batch of windows": (batch, 1),
    "a view": (lambda x, n: (T.from_numpy(data[n : n + 3]) * x, data[n:][::2]), 1),
    "elements": (
        lambda x, n: (x * data[n], data[n + 1], -data[2] * x, x * np.float32(data[n]), data[n].item() * x, int(data[n])),
        1,
    ),
    "tensors of elements": (
        lambda x, n: (T.tensor(np.interp(n, steps, values)) * x, T.tensor(data[n], dtype=T.float32), T.as_tensor(np.float32(n))),
        1,
    ),
    "elements that decide": (lambda x, n: x * 2 if data[n] > 2 else x, 2),
    "special functions": (lambda x, n: (x * scipy.special.gamma(n + 1), scipy.special.erf(n), x * np.cos(n * np.pi / 4)), 1),
    "statistics": (lambda x, n: T.tensor((data[:3] - data.mean()) / (data[:3].std() + n + 1)) * x, 1),
    "sizes that contents decide": (lambda x, n: (data[data > n].sum() * x, np.unique(data[: n + 1] // 2)), 1),
    "arithmetic": (lambda x, n: (data * n, T.tensor((data[:3] * n + 1) / 2) * x), 1),
    "several": (lambda x, n: ([T.from_numpy(p) * n for p in np.split(data, 4)], np.stack([data[:3], data[n : n + 3]]), x), 1),
    "lists": (lambda x, n: (data[n : n + 2].tolist(), [v * 2 for v in data[n : n + 3]], x), 1),
    "texts": (lambda x, n: f"{data[n]:.2f} {x.shape}", 1),
    "warnings": (lambda x, n: (np.log(data[n]), np.sqrt(-data[:2]), np.log(n), np.sqrt(np.float32(n) - 1), x), "container"),
    "shuffled": (lambda x, n: T.from_numpy(data[np.random.permutation(20)[:3]]) * x, 1),
    "with results of the program": (lambda x, n: ((x * 2).numpy() * data[:3], x), 1),
    "a value that is needed": (lambda x, n: x[: int(np.argmax(data[:3] * (n - 2)))], 3),
    "mini-batches": (minibatches, 1),
    "steps over mini-batches": (steps_over_minibatches, 1),
    "drawn memory is written": (drawn_memory_is_written, "read_after_change"),
    "drawn items are stored": (drawn_items_are_stored, 1),
    "an array as a key": (picked, 1),
    "a mask": (masked, 2),
    "an array as a key of a store": (stored, 2),
    "an array that meets a tensor": (met, 1),
    "an array that is changed after it was a key": (changed_after_it_was_used, "overlapping_inputs"),
    "gradients of what an array picks": (gradients, 1),
    "an error that is handled": (caught, "container"),
    "changed before": (changed_before, "read_after_change"),
    "changed after": (changed_after, 1),
    "read with results, and changed": (read_with_results_and_changed, "read_after_change"),
    "a position that a tensor tells": (
        lambda x, n: T.stack([T.from_numpy(tokens[i : i + 8].astype(np.int64)) for i in T.randint(30, (4,))]),
        "tensor_contents",
    ),
}


def facts(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(facts, value)]
    if isinstance(value, (T.Tensor, np.ndarray)):
        strides = value.stride() if isinstance(value, T.Tensor) else value.strides
        return [type(value).__name__, repr(value.tolist()), str(value.dtype), strides]
    return [type(value).__name__, repr(value)]


def outcomes(fn: Callable[..., Any]) -> list[Any]:
    T.manual_seed(0)
    random.seed(1)
    np.random.seed(2)
    data[:] = np.arange(20)
    weight.zero_()
    found = []
    for turn, n in enumerate(COUNTS):
        data[5], data[2] = turn, 2.5 - turn
        changing[0], flags[1], pair[0] = turn, turn % 2 == 0, (turn, 0.5 * turn)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = facts(fn(T.ones(3) * (turn + 1), n))
        told = [(str(w.message), w.filename, w.lineno) for w in warned]
        found.append((result, told, data.tolist(), np.random.rand(), random.random()))
    return found


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_numpy_makes_of_arrays_from_outside_is_that_of_the_call(name: str, hot: int) -> None:
    fn, expected = PROGRAMS[name]
    eager = outcomes(fn)
    with override(hot_calls=hot):
        compiled = T.compile(fn)
        assert outcomes(compiled) == eager
    if isinstance(expected, str):
        assert expected in {reason.code for reason in compiled.reasons}
    else:
        assert (compiled.stats.traces, compiled.stats.compiled_calls) == (expected, len(COUNTS) - expected), compiled.explain()


WRITING: dict[str, Callable[[Any], Any]] = {
    "a ufunc": lambda a: np.add(a, 1, a),
    "a function": lambda a: np.cumsum(a, 0, None, a),
    "a function of C code": lambda a: np.dot(a, a, a[:1].reshape(())),
    "a method": lambda a: a.cumsum(0, None, a),
    "a keyword": lambda a: np.negative(a, out=a),
    "an option": lambda a: np.nan_to_num(a, copy=False),
}


@pytest.mark.parametrize("name", WRITING)
def test_an_array_that_numpy_writes_to_is_written_once_in_calls_that_leave_their_path(name: str) -> None:
    write = WRITING[name]

    def fn(x: T.Tensor, a: Any) -> Any:
        write(a)
        return x * T.tensor(a) if x.sum() > 0 else -x

    compiled = T.compile(fn)
    for x in (T.ones(3), T.ones(3), -T.ones(3), T.ones(3), -T.ones(3)):
        ours, theirs = np.array([1.0, np.nan, 2.0]), np.array([1.0, np.nan, 2.0])
        assert str(compiled(x, ours)) == str(fn(x, theirs))
        assert str(ours) == str(theirs)


def test_where_functions_of_numpy_take_the_array_that_they_write_to_is_known() -> None:
    for function in CALM:
        try:
            names = list(inspect.signature(function).parameters)
        except ValueError:  # str
            continue
        assert "out" not in names or writes_to_argument(function, (None,) * (names.index("out") + 1), {})
        assert not writes_to_argument(function, (None,) * (names.index("out") if "out" in names else 1), {})


def test_lists_of_other_numbers_make_arrays_of_other_dtypes() -> None:
    compiled = T.compile(lambda numbers: (np.array(numbers), np.array(numbers, dtype=np.float32).sum(), T.ones(2)))
    for numbers in ([1, 2], [3, 4], [1.5, 2], [True, 2], [2**70, 1], [[1, 2], [3, 4]], [[1, 2.5], [3, 4]], [True, False], [5, 6]):
        assert facts(compiled(numbers)) == facts((np.array(numbers), np.array(numbers, dtype=np.float32).sum(), T.ones(2)))
    assert compiled.stats.compiled_calls >= 2


def test_arrays_of_other_dtypes_and_ranks_in_the_same_argument_are_computed_with_anew() -> None:
    holder: dict[str, Any] = {}

    def fn(x: T.Tensor, n: int) -> Any:
        part = holder["data"][n]
        return part * 2, T.tensor(holder["data"] + n) * x.sum(), holder["data"].max() + n

    compiled = T.compile(fn)
    for array in (np.arange(6.0), np.arange(6), np.ones((2, 3)), np.arange(6.0) * 2, np.array([1, None, 3]), np.ones(2, "f4")):
        holder["data"] = array
        for n in (0, 1):
            if array.dtype.hasobject:
                with pytest.raises(TypeError):
                    compiled(T.ones(2), n)
            else:
                assert facts(compiled(T.ones(2), n)) == facts(fn(T.ones(2), n))
    assert compiled.stats.compiled_calls >= 3


@pytest.mark.parametrize("hot", [0, 1])
def test_an_array_that_is_read_after_tensors_were_written_has_other_memory_in_each_call(hot: int) -> None:
    def results(compiled: bool) -> list[Any]:
        w, holder = T.zeros(3, dtype=T.float64), {"array": np.ones(4)}

        def fn(x: T.Tensor) -> Any:
            w.add_(x)
            return x * T.from_numpy(holder["array"][:3] * 2)

        f = T.compile(fn) if compiled else fn
        found = []
        for array in (holder["array"], np.arange(5.0), w.numpy(), w.numpy()[:3], np.ones(3), w.numpy()):
            holder["array"] = array
            found += [(f(T.ones(3, dtype=T.float64)).tolist(), w.tolist()) for _ in range(2)]
        return [*found, f.stats.compiled_calls > 3 if compiled else True]

    with override(hot_calls=hot):
        assert results(True) == results(False)


def test_an_array_that_becomes_too_short_raises_what_eager_raises() -> None:
    holder = {"data": np.arange(6.0)}
    compiled = T.compile(lambda x, n: x * holder["data"][n])
    for _ in range(3):
        assert compiled(T.ones(1), 5).item() == 5
    holder["data"] = np.arange(3.0)
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
        compiled(T.ones(1), 5)
    assert math.isclose(compiled(T.ones(1), 2).item(), 2)


def test_windows_of_an_array_in_a_file_are_read_by_each_call(tmp_path: Path) -> None:
    np.arange(200, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    stored = np.memmap(tmp_path / "tokens.bin", dtype=np.uint16, mode="r")

    def fn(count: int) -> Any:
        starts = np.random.randint(0, 190, count)
        rows = [T.from_numpy(stored[i : i + 8].astype(np.int64)) for i in starts]
        return T.stack(rows), T.stack(rows) * int(stored[random.randint(0, 9)])

    compiled = T.compile(fn)
    for seed in range(5):
        drawn = []
        for call in (fn, compiled):
            np.random.seed(seed)
            random.seed(seed)
            drawn.append(facts(call(4)))
        assert drawn[0] == drawn[1]
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 4), compiled.explain()


# --- numbers of NumPy as arguments

OF_A_NUMBER: dict[str, Callable[[T.Tensor, Any], Any]] = {
    "operators": lambda x, k: (x * k, k + x, k / x, x**k, -k * x, x - k // 2),
    "branches": lambda x, k: x if k > 2 else -x,
    "functions of NumPy": lambda x, k: x * np.sqrt(abs(k) + 1) + np.add(k, 1),
    "functions of math": lambda x, k: x * math.sin(k) + math.exp(-k),
    "conversions": lambda x, k: (x * float(k), x + k.item(), x * np.float32(k), x * k.astype(np.float64)),
    "functions of tensors": lambda x, k: (T.pow(x, k), T.full((2,), k), T.where(x > k, x, k), x.clone().mul_(k), x.clamp(max=k)),
    "a tensor of it": lambda x, k: T.tensor(k) + x,
    "what comes back": lambda x, k: (x * 2, k, k * 2),
    "texts": lambda x, k: (x, f"{k:.3f}", str(k)),
    "its type": lambda x, k: (x * isinstance(k, float), type(k).__name__, k.dtype.itemsize),
    "lists": lambda x, k: [x * j for j in (k, k + 1)],
    "loops": lambda x, k: [x := x * k for _ in range(5)][-1],
    "gradients": lambda x, k: T.autograd.grad((x.requires_grad_() * x * k).sum(), x)[0],
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, T.Tensor):
        return a.dtype is b.dtype and a.shape == b.shape and np.allclose(a.numpy(), b.numpy(), rtol=1e-6, equal_nan=True)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", OF_A_NUMBER)
def test_a_number_of_numpy_is_no_constant_of_the_recording(name: str, kind: type) -> None:
    """As iterating over an array gives them: each would be recorded anew."""
    function = OF_A_NUMBER[name]
    compiled = T.compile(function)
    for k in np.arange(1, 9).astype(kind):
        found, expected = compiled(T.tensor([1.0, 2.0, 3.0]), k), function(T.tensor([1.0, 2.0, 3.0]), k)
        assert same(found, expected), (k, found, expected)
    assert compiled.stats.traces <= 2, compiled.explain()


def test_the_type_of_a_number_of_numpy_is_guarded() -> None:
    compiled = T.compile(lambda x, k: (x * k, k))
    for kind in (np.float64, np.float32, np.int32, float, np.float32, np.float64):
        x, k = compiled(T.ones(2), kind(3))
        assert x.tolist() == [3.0, 3.0] and type(k) is kind


def test_numbers_of_numpy_in_objects_are_no_constants_either() -> None:
    class Solver:
        step: Any

        def advance(self, x: T.Tensor) -> T.Tensor:
            return x + x * self.step

    solver = Solver()
    compiled = T.compile(solver.advance)
    for step in np.linspace(0.1, 0.9, 8):
        solver.step = step
        assert same(compiled(T.ones(2)), solver.advance(T.ones(2)))
    assert compiled.stats.traces == 1, compiled.explain()
