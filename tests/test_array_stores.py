"""Arrays of NumPy from outside that compiled functions read and write: each program runs eagerly, and compiled in two ways, on arrays
of its own, and whatever can be seen must be equal after each call: results, contents, what is printed, what is raised."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override

PROGRAMS: dict[str, tuple[Callable[[], Any], Any, int]] = {}


def rows(i: int) -> tuple[Any, ...]:
    return (T.ones(3) * i,)


def positions(i: int) -> tuple[Any, ...]:
    return i % 3, i % 4, T.ones(3) * i


def program(calls: Callable[[int], tuple[Any, ...]] = rows, compiled: int | str = 5) -> Any:
    """compiled: how many of six calls are served by a program, or the code of the reason why none is."""

    def register(maker: Any) -> Any:
        PROGRAMS[maker.__name__] = (maker, calls, compiled)  # type: ignore[assignment]
        return maker

    return register


@program(lambda i: (i, T.ones(3) * i))
def a_history_at_a_position_that_moves() -> Any:
    h = np.zeros(8)

    def f(n: int, x: Any) -> None:
        h[n] = x.sum().item()

    return f, h


@program()
def a_sum_that_grows() -> Any:
    h = np.zeros(3, "f4")

    def f(x: Any) -> Any:
        h[0] += x.sum().item()
        h[1:] += x[1:].numpy()
        return h[0], h.sum(), h.copy(), h[1:]

    return f, h


@program(lambda i: (T.tensor([0, i % 4, 2]), T.tensor([1, 2, i % 3])))
def a_confusion_matrix() -> Any:
    m = np.zeros((4, 4), int)

    def f(targets: Any, found: Any) -> Any:
        for t, p in zip(targets, found):  # noqa: B905
            m[t, p] += 1
        m[targets[1].item(), 0] -= 1
        return m.diagonal().sum() / m.sum()

    return f, m


@program()
def whole_contents() -> Any:
    h = np.zeros(3, "f4")

    def f(x: Any) -> Any:
        h[:] = (x * 2).numpy()
        h[0] = x.sum()
        h[1:] = [x[0].item(), 7]
        return h[2]

    return f, h


@program(positions)
def rows_and_columns() -> Any:
    h = np.zeros((3, 4))

    def f(i: int, j: int, x: Any) -> Any:
        h[i, 1:] = x.numpy()
        h[..., 1] *= 2
        h[i][j - 1] = 7
        h[-1] = [x[0].item(), 1, 2, 3.0]
        return h[i, j], h.max()

    return f, h


@program()
def what_is_printed_is_what_was_there() -> Any:
    h = np.zeros(4)

    def f(x: Any) -> Any:
        view = h[0:2]
        print(view, f"{h}", h[0])
        h[0] += x.sum().item()
        print(view, h[0])
        return view

    return f, h


@program(compiled=4)
def flags() -> Any:
    h = np.zeros(4, bool)

    def f(x: Any) -> None:
        h[1] = x.sum().item() > 3
        h[2] = True

    return f, h


@program(compiled=2)
def stores_of_calls_that_leave() -> Any:
    h = np.zeros(4)

    def f(x: Any) -> Any:
        h[0 if x.sum() > 6 else 1] += 1
        if (x * 2).sum().item() > 20:
            raise ValueError("large")
        return x * 2

    return f, h


@program(compiled="raised")
def what_an_array_cannot_hold() -> Any:
    h = np.zeros(2, "i1")

    def f(x: Any) -> Any:
        h[0] = int(x.sum().item()) * 40
        h[1] = x.prod().item()  # a float
        return h[0]

    return f, h


@program(lambda i: (i - 3,), compiled="raised")
def positions_out_of_range() -> Any:
    h = np.zeros(2)

    def f(n: int) -> None:
        h[n] = 1.0 + n

    return f, h


@program(compiled="raised")
def an_array_that_is_read_only() -> Any:
    h = np.zeros(2)
    h.flags.writeable = False

    def f(x: Any) -> None:
        h[0] = x.sum().item()

    return f, h


@program(compiled="tensor_contents")
def an_element_that_steers() -> Any:
    h = np.zeros(2)

    def f(x: Any) -> Any:
        h[0] += 1
        return x * 2 if h[0] > 3 else x

    return f, h


@program()
def an_element_that_tensors_are_made_of() -> Any:
    h = np.ones(2)

    def f(x: Any) -> Any:
        y = x * float(h[0])
        h[0] += 1
        return y

    return f, h


@program(compiled="tensor_contents")
def an_element_that_tensors_are_made_of_after_a_store() -> Any:
    h = np.ones(2)

    def f(x: Any) -> Any:
        h[0] += 1
        return x * float(h[0])

    return f, h


@program(compiled="overlapping_inputs")
def a_tensor_in_the_memory_of_the_array() -> Any:
    h = np.arange(4.0)

    def f(x: Any) -> Any:
        t = T.from_numpy(h)
        before = (t * 2).sum()
        h[0] = 9.0
        return before.item(), (t * 2).sum().item()

    return f, h


@program(compiled="tensor_contents")
def a_tensor_that_changes_between_two_stores() -> Any:
    h = np.zeros(3)

    def f(x: Any) -> Any:
        h[:] += x.numpy()
        x.add_(1)
        h[:] += x.numpy()

    return f, h


@pytest.mark.parametrize("hot_calls", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_hold_what_they_hold_after_eager_calls(name: str, hot_calls: int) -> None:
    maker, calls, served = PROGRAMS[name]

    def run(compiling: Any) -> tuple[list[Any], str, Any]:
        f, array = maker()
        function, seen, said = compiling(f), [], io.StringIO()
        with contextlib.redirect_stdout(said):
            for i in range(6):
                try:
                    seen.append(repr(function(*calls(i))))
                except (ValueError, IndexError, OverflowError) as error:
                    seen.append(f"{type(error).__name__}: {error}")
                seen.append(array.tolist())
        return seen, said.getvalue(), function

    expected = run(lambda f: f)
    with override(hot_calls=hot_calls):
        actual = run(T.compile)
    assert actual[:2] == expected[:2]
    function = actual[2]
    if isinstance(served, str):
        assert served in {reason.code for reason in function.reasons}, function.explain()
    else:
        assert function.stats.compiled_calls == served, function.explain()


def test_an_array_whose_memory_a_tensor_of_the_call_has_is_not_written_by_a_recorded_path() -> None:
    h = np.zeros(3, "f4")

    def f(x: Any, y: Any) -> Any:
        h[0] = x.sum().item()
        return y * 2

    compiled = T.compile(f)
    for i in range(3):
        compiled(T.ones(2) * i, T.ones(3))
    assert compiled.stats.compiled_calls == 2
    assert compiled(T.ones(2) * 5, T.from_numpy(h)).tolist() == [20.0, 0.0, 0.0]
    assert compiled(T.ones(2) * 4, T.from_numpy(h)[0:1].expand(2)).tolist() == [16.0, 16.0]


def test_arrays_of_another_shape_dtype_or_class_have_paths_of_their_own() -> None:
    class Doubling(np.ndarray):  # type: ignore[type-arg]
        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key, value * 2)

    def f(array: Any, x: Any) -> None:
        array[1] = x.sum().item()

    def run(function: Any) -> list[Any]:
        arrays = [np.zeros(4), np.zeros(4), np.zeros(5), np.zeros(4, "f4"), np.zeros((4, 2)), np.zeros(4).view(Doubling)]
        for array in arrays * 2:
            function(array, T.ones(2))
        return [array.tolist() for array in arrays]

    assert run(T.compile(f)) == run(f)


def test_two_arrays_may_be_one() -> None:
    def f(a: Any, b: Any, x: Any) -> Any:
        a[0] = x.sum().item()
        b[1] = a[0] + 1
        return a[1], b[0]

    def run(function: Any) -> list[Any]:
        seen = []
        for i in range(6):
            a = np.zeros(3)
            b = a if i % 3 == 1 else a[0:2] if i % 3 == 2 else np.zeros(2)
            seen.append((function(a, b, T.ones(2) * i), a.tolist(), b.tolist()))
        return seen

    compiled = T.compile(f)
    assert run(compiled) == run(f)
    assert compiled.stats.compiled_calls >= 2


def test_a_change_in_place_of_a_read_only_array_says_what_eager_says() -> None:
    h = np.zeros(2)

    def f(x: Any) -> None:
        nonlocal h
        h += x.numpy()

    compiled = T.compile(f)
    for call in range(6):
        h.flags.writeable = call % 3 != 2
        if call % 3 != 2:
            compiled(T.ones(2))
            continue
        with pytest.raises(ValueError, match="output array is read-only"):
            compiled(T.ones(2))
    assert h.tolist() == [4.0, 4.0] and compiled.stats.compiled_calls == 3


arrays: dict[str, Any] = {}


def stored_and_read(x: T.Tensor) -> Any:
    before = arrays["b"].sum()
    arrays["a"][1] += x.sum().item()
    return x * before, arrays["b"][1]


def shared_with_a_tensor(x: T.Tensor) -> Any:
    shared = T.from_numpy(arrays["a"])
    shared.add_(x.sum())
    return T.from_numpy(arrays["b"]) * 2


def told_between(x: T.Tensor) -> Any:
    print(arrays["a"][0])
    arrays["a"][0] += 1
    print(arrays["b"][0])
    return x * 2


ALIASES: dict[str, Callable[[T.Tensor], Any]] = {
    "identity": lambda x: (x * 2 if arrays["a"] is arrays["b"] else x, id(arrays["a"]) == id(arrays["b"])),
    "a result": lambda x: (x * 2, [arrays["a"], arrays["b"]]),
    "stored and read": stored_and_read,
    "read": lambda x: x + T.tensor(np.stack([arrays["a"], arrays["b"]])).sum(),
    "shared with a tensor": shared_with_a_tensor,
    "told between": told_between,
}


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("name", ALIASES)
def test_two_arrays_from_outside_may_be_one_in_other_calls(name: str, hot: int, capsys: pytest.CaptureFixture[str]) -> None:
    def results(function: Callable[[T.Tensor], Any]) -> tuple[list[Any], str]:
        arrays.update(a=np.arange(3.0), b=np.arange(3.0) + 5)
        found = []
        for turn in range(12):
            if turn in (4, 7, 9):
                arrays["b"] = {4: arrays["a"], 7: arrays["a"][::-1], 9: np.ones(3)}[turn]
            result = function(T.ones(2) * turn)
            same = result[1][0] is result[1][1] if name == "a result" else None
            found.append((repr(result), same, arrays["a"].tolist(), arrays["b"].tolist()))
        return found, capsys.readouterr().out

    with override(hot_calls=hot):
        compiled = T.compile(ALIASES[name])
        assert results(compiled) == results(ALIASES[name])
    assert compiled.stats.compiled_calls > 4
