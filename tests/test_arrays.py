"""NumPy inside compiled functions: arrays that leave the program, what NumPy makes of them and of constants, and arrays from outside."""

# ruff: noqa: E711, UP031

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override

CALLS = 6
weight = T.tensor([[1.0, 2.0], [-1.0, 3.0], [0.5, -2.0]], requires_grad=True)


def given(i: int) -> T.Tensor:
    return T.tensor(np.random.default_rng(i).integers(-6, 6, (4, 3)).astype("f4") / 2)


def plain(value: Any) -> Any:
    """What is compared: types, dtypes, contents, and whether an array can be written to."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.shape, value.tolist(), value.flags.writeable
    if isinstance(value, T.Tensor):
        return "tensor", value.dtype, value.tolist(), value.requires_grad
    return type(value).__name__, repr(value)


def outcomes(fn: Callable[..., Any], calls: list[Any]) -> list[Any]:
    found: list[Any] = []
    kept = SimpleNamespace(list=[], array=None)
    for x in calls:
        try:
            found.append(plain(fn(x, kept)))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
        found.append(plain(vars(kept)))
    return found


def run(fn: Callable[..., Any], make: Callable[[int], Any] = given) -> Any:
    """Eager and compiled calls come to the same; returns the compiled function."""
    compiled = T.compile(fn)
    expected = outcomes(fn, [make(i) for i in range(CALLS)])
    assert outcomes(compiled, [make(i) for i in range(CALLS)]) == expected
    return compiled


def accuracy(x: T.Tensor, kept: Any) -> Any:
    found, wanted = (x @ weight).detach().argmax(1).numpy(), np.array([0, 1, 0, 1])
    right = found == wanted
    return (
        right.mean(),
        float(right.mean()),
        right.sum().item(),
        np.mean(right),
        f"{np.mean(right):.2f} {found} {found!r}",
        "%s" % found,
    )


def many(x: T.Tensor, kept: Any) -> Any:
    a = (x @ weight).detach().numpy()
    sums = [v.sum() for v in a]
    return (
        a[0, 0], a[0].tolist(), a.sum(axis=0), -a, a @ a.T, a * 2 + 1, 1 - a, a.astype("f8"), np.stack([a, a]), a.shape[0], len(a),
        a.T, sums, list(a[0]), a.argmax(1), a.reshape(-1)[:3], a**2, np.where(a > 0, a, 0), np.clip(a, -1, 1), np.isnan(a).any(),
        a.dtype, abs(a[0, 0]),
    )  # fmt: skip


def kept_outside(x: T.Tensor, kept: Any) -> Any:
    kept.array = (x * 2).numpy()
    kept.mean = kept.array.mean()
    kept.list.extend(kept.array[0])
    kept.list.append(kept.array[1:])
    return kept.array.shape


def of_lists(x: T.Tensor, kept: Any) -> Any:
    return (
        np.array(x.tolist()),
        np.array([x.sum().item(), 2.0]),
        np.stack([v.numpy() for v in x]),
        np.array([v.sum().item() for v in x]),
    )


def filled(x: T.Tensor, kept: Any) -> Any:
    a = np.zeros(3)
    a[0] = 1
    a[1:] += 2
    return a, x * T.tensor(a)


def shared_with_a_tensor(x: T.Tensor, kept: Any) -> Any:
    y = T.from_numpy(np.ones(3, dtype="f4"))
    y.add_(1)
    return y * x


def many_constants(x: T.Tensor, kept: Any) -> Any:
    a, b = np.meshgrid(np.arange(2.0), np.arange(3.0))
    window = np.hanning(8)
    return (
        T.tensor(a) + T.tensor(b),
        np.linalg.inv(np.eye(2) * 2),
        x * np.sqrt(2.0),
        np.arange(3),
        window[1:3].sum(),
        T.as_tensor(np.eye(3)) @ x.double().T,
    )


def changed_while_it_is_a_list(x: T.Tensor, kept: Any) -> Any:
    a = np.arange(3.0)
    part = a[1:]
    part[0] = 9
    return a * 2


REPLAYED = {
    "signs of scalars": lambda x, _: (-x.numpy()[0, 0], +x.numpy().mean(), abs(x.numpy()[1, 1]), ~x.long().numpy()[0, 1]),
    "the array of a result": lambda x, kept: (x @ weight).detach().numpy(),
    "the array of an argument": lambda x, kept: (x.numpy(), x.numpy()[1:], x.T.numpy()),
    "of a parameter": lambda x, kept: (weight.detach().numpy().copy(), weight.numpy(force=True).sum()),
    "accuracy": accuracy,
    "many": many,
    "kept outside": kept_outside,
    "of lists": of_lists,
    "functions of numbers": lambda x, kept: (
        np.sqrt(x.sum().abs().item()),
        np.float64(x.sum().item()),
        np.exp(-0.5 * x[0, 0].item()),
    ),
    "scalars and Python": lambda x, kept: (
        round(x.numpy().mean(), 3),
        abs(x.numpy()[0, 0]),
        float(x.numpy().max()),
        x.numpy().item(3),
    ),
    "scalars and numbers": lambda x, kept: (np.float32(3) * x.sum().item(), x.sum().item() - np.float64(2), x.numpy()[0, 0] * 2),
    "converted": lambda x, kept: (np.asarray(x), np.asarray(x, dtype=np.float64), np.array(x).astype("i8"), x.__array__()),
    "rows": lambda x, kept: [(i, a, b) for i, (a, b) in enumerate(zip(x[0].numpy(), x[1].numpy(), strict=True))],
    "compared with None": lambda x, kept: (x.numpy() is None, x.numpy() == None),
    "norms": lambda x, kept: (np.linalg.norm(x.numpy()), np.median(x.numpy()), np.percentile(x.numpy(), 25)),
    "texts": lambda x, kept: ",".join(str(v) for v in x.numpy()[0]),
    "functions of tensors": lambda x, kept: (np.negative(x), np.maximum(x, 0), np.sum(x, axis=0)),
    "constants": lambda x, kept: x * T.tensor(np.linspace(0, 1, 3, dtype="f4")),
    "a constant that is filled": filled,
    "a constant that a tensor shares": shared_with_a_tensor,
    "many constants": many_constants,
    "a constant changed by way of a view": changed_while_it_is_a_list,
    "one hot": lambda x, kept: T.nn.functional.one_hot(T.tensor(np.array([0, 2, 1])), 3),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_what_numpy_computes_is_computed_in_each_call(name: str) -> None:
    compiled = run(REPLAYED[name])
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, CALLS - 1), compiled.reasons


def changed_by_numpy(change: Callable[[Any], Any]) -> Callable[..., Any]:
    def fn(x: T.Tensor, kept: Any) -> Any:
        y = x.clone()
        a = y.numpy()
        change(a)
        return a, y + 0

    return fn


def read_before_a_write(x: T.Tensor, kept: Any) -> Any:
    y = x.clone()
    a = y.numpy()
    before = a.mean()
    y.add_(1)
    return before, a, a.mean()


def constant_that_a_tensor_changes(x: T.Tensor, kept: Any) -> Any:
    a = np.ones(3, dtype="f4")
    T.from_numpy(a).add_(1)
    return a


def constant_that_gets_a_result(x: T.Tensor, kept: Any) -> Any:
    a = np.zeros(2)
    a[0] = x.sum().item()
    return a


def two_views(x: T.Tensor, kept: Any) -> Any:
    a = np.arange(3.0)
    return a, a[1:]


def view_of_what_a_tensor_changes(x: T.Tensor, kept: Any) -> Any:
    a = np.arange(3.0)
    part = a[:2]
    shared = T.from_numpy(a)
    shared.mul_(x.sum().double())
    return T.tensor(part)


EAGER = {
    "decides": lambda x, kept: 1 if x.numpy().mean() > 0 else 2,
    "decides by any": lambda x, kept: 1 if (x.numpy() > 2).any() else 0,
    "is a key": lambda x, kept: {x.numpy()[0, 0]: 1},
    "is hashed": lambda x, kept: hash(x.numpy()[0, 0]),
    "is added up": lambda x, kept: sum(x[0].numpy()),
    "is sorted": lambda x, kept: sorted(x[0].numpy()),
    "the largest": lambda x, kept: max(x[0].numpy()),
    "a set": lambda x, kept: sorted(set(x[0].numpy().tolist())),
    "an operand": lambda x, kept: x * x.numpy(),
    "a scalar as operand": lambda x, kept: x * x.numpy()[0, 0],
    "in place": lambda x, kept: T.zeros(2).fill_(x.numpy()[0, 0]),
    "a new tensor": lambda x, kept: T.tensor(x.numpy()),
    "a tensor on the array": lambda x, kept: x * T.from_numpy(x.numpy() * 2),
    "an index": lambda x, kept: x[x.argmax(0).numpy() % 3],
    "a mask": lambda x, kept: x.numpy()[x.numpy() > 0],
    "a shape": lambda x, kept: np.unique(x.numpy()),
    "a range": lambda x, kept: list(range(int(abs(x.numpy()[0, 0])))),
    "a square root": lambda x, kept: math.sqrt(abs(x.numpy()[0, 0])),
    "membership": lambda x, kept: (0.5 in x.numpy(), x.numpy()[0, 0] in [0.5, 1.0]),
    "copies": lambda x, kept: (copy.copy(x.numpy()), copy.deepcopy(x.numpy())),
    "bytes": lambda x, kept: x.numpy().tobytes(),
    "an integer": lambda x, kept: round(x.numpy().mean()),
    "an integer in a text": lambda x, kept: "%d" % x.numpy().mean(),
    "an array of objects": lambda x, kept: np.array([kept, None]).shape,
    "flat": lambda x, kept: list(x.numpy().flat),
    "integers to a power": lambda x, kept: x.abs().int().numpy() ** x.abs().int().numpy(),
    "comparison of tensors": lambda x, kept: np.allclose(x, x),
    "sorted in place": changed_by_numpy(lambda a: a.sort()),
    "an item": changed_by_numpy(lambda a: a.__setitem__(0, 5)),
    "in place by an operator": changed_by_numpy(lambda a: a.__iadd__(1)),
    "filled": changed_by_numpy(lambda a: a.fill(0)),
    "copied to": changed_by_numpy(lambda a: np.copyto(a, 1.0)),
    "an output": changed_by_numpy(lambda a: np.add(a, a, out=a)),
    "an output by position": changed_by_numpy(lambda a: np.add(a, a, a)),
    "read before a write": read_before_a_write,
    "a constant that a tensor changes": constant_that_a_tensor_changes,
    "a constant that gets a result": constant_that_gets_a_result,
    "two views of a constant": two_views,
    "a view of a constant that a tensor changes": view_of_what_a_tensor_changes,
}


@pytest.mark.parametrize("name", EAGER)
def test_what_cannot_be_computed_again_is_eager_with_a_reason(name: str) -> None:
    compiled = run(EAGER[name])
    assert compiled.stats.compiled_calls == 0
    codes = {reason.code for reason in compiled.reasons}
    assert codes and codes <= {"tensor_contents", "container", "unbuildable", "unknown_call", "tensor_state", "unknown_callable"}


@pytest.mark.parametrize("compute", [
    lambda x: np.log(x.numpy() * 0),
    lambda x: x.numpy()[0, 0] / np.float32(0),
    lambda x: np.float64(1e308) * x.sum().item() * np.inf * 0,
    lambda x: x * float(np.log(np.zeros(1)).item()),
    lambda x: (np.log(x.numpy() * 0), x)[1],
])  # fmt: skip
def test_where_numpy_warns_each_call_does(compute: Any) -> None:
    compiled = T.compile(compute)
    for _ in range(4):
        with pytest.warns(RuntimeWarning):
            compute(given(0))
        with pytest.warns(RuntimeWarning):
            compiled(given(0))
    assert compiled.stats.compiled_calls == 3 or [reason.code for reason in compiled.reasons] == ["impure_call"]


@pytest.mark.parametrize("hot", [0, 1])
def test_a_warning_that_is_an_error_is_raised_and_handled_as_in_eager_calls(hot: int) -> None:
    def raises(x: T.Tensor) -> Any:
        return np.log((x * 2).numpy())

    def handles(x: T.Tensor) -> Any:
        try:
            return np.log((x * 2).numpy())
        except RuntimeWarning:
            return x * 3

    def answers(fn: Any) -> list[Any]:
        found: list[Any] = []
        for value in (1.0, 2.0, 0.0, 3.0):
            try:
                found.append(str(fn(T.tensor([value]))))
            except RuntimeWarning as error:
                found.append(str(error))
        return found

    with override(hot_calls=hot), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answers(T.compile(raises)) == answers(raises)
        assert answers(T.compile(handles)) == answers(handles)


def test_an_array_shares_the_memory_of_the_tensor_that_is_returned() -> None:
    @T.compile
    def fn(x: T.Tensor) -> Any:
        y = x * 2
        return y, y.numpy(), y.numpy()[1:], x.numpy()

    for i in range(4):
        x = given(i)
        y, a, rows, argument = fn(x)
        a[1, 0] = 100.0
        argument[0, 0] = 50.0
        assert y[1, 0].item() == rows[0, 0] == 100.0
        assert x[0, 0].item() == 50.0
    assert fn.stats.compiled_calls == 3


def test_no_call_gets_the_array_of_another() -> None:
    compiled = T.compile(lambda x: (np.zeros(2), (x * 1).numpy()))
    answers = [compiled(given(i)) for i in range(4)]
    for zeros, copied in answers:
        zeros += 7
        copied += 1
    assert [zeros.tolist() for zeros, _ in answers] == [[7.0, 7.0]] * 4
    assert [copied.tolist() for _, copied in answers] == [(given(i) + 1).tolist() for i in range(4)]
    assert compiled(given(0))[0].tolist() == [0.0, 0.0]


LETTERS = ["a", "b", "c", "d", "e", "f"]


def popped(x: Any, i: Any) -> Any:
    numbers = [1, 2, 3, 4, 5, 6]
    return numbers.pop(i), numbers


def replaced(x: Any, i: Any) -> Any:
    numbers = [1, 2, 3, 4, 5, 6]
    numbers[i] = 0
    del numbers[i:]
    return numbers


# what a number in an array of no dimensions decides
DECIDED_BY_POSITIONS = {
    "an item of a list": lambda x, i: LETTERS[i],
    "an item of a tuple": lambda x, i: (1, 2, 3, 4, 5, 6)[i],
    "a letter": lambda x, i: "abcdef"[i],
    "a slice of a list": lambda x, i: LETTERS[:i],
    "a slice of a tensor": lambda x, i: x.ravel()[i:],
    "a slice in a key": lambda x, i: T.eye(6)[:i, i:],
    "a method of a list": lambda x, i: LETTERS.__getitem__(i),
    "taken out": popped,
    "put in its place": replaced,
    "a range": lambda x, i: list(range(i)),
    "a key": lambda x, i: {int(i): 1},
    "a scalar of NumPy": lambda x, i: np.int64(i),
    "a scalar of a tensor": lambda x, i: (np.float32(x.sum()), np.float64(x.max()), np.bool_(x.sum() > 0)),
    "scalars of a sequence": lambda x, i: np.float32(x.tolist()),
    "its class": lambda x, i: (i.__class__, i.__class__.__name__, x.numpy().__class__ is np.ndarray),
}


@pytest.mark.parametrize("name", DECIDED_BY_POSITIONS)
def test_what_an_array_of_no_dimensions_decides_is_decided_in_each_call(name: str) -> None:
    fn = DECIDED_BY_POSITIONS[name]
    compiled = T.compile(lambda x: (fn(x, x.argmax().numpy()), x * 2))
    for i in range(2 * CALLS):
        x = T.tensor(np.random.default_rng(i).permutation(6).reshape(2, 3).astype("f4"))
        expected = fn(x, x.argmax().numpy())
        found = compiled(x)[0]
        assert repr(found) == repr(expected) and type(found) is type(expected)


# -- arrays from outside
def array(i: int) -> Any:
    return np.arange(6.0, dtype="f4").reshape(2, 3) + i


def changed(a: Any, kept: Any) -> Any:
    t = T.from_numpy(a)
    t.mul_(2)
    return t


def trained(a: Any, kept: Any) -> Any:
    w = T.ones(3, requires_grad=True)
    (T.as_tensor(a) * w).sum().backward()
    return w.grad


FROM_OUTSIDE = {
    "from_numpy": lambda a, kept: T.from_numpy(a) * 2,
    "tensor": lambda a, kept: (T.tensor(a) * 2, T.tensor(a, dtype=T.float64), T.tensor(a, requires_grad=True)),
    "as_tensor": lambda a, kept: (T.as_tensor(a).sum(), T.as_tensor(a, dtype=T.float64)),
    "what it is like": lambda a, kept: (T.from_numpy(a), a.shape, len(a), a.dtype, a.ndim),
    "changed": changed,
    "trained": trained,
}


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_an_array_from_outside_is_an_input(name: str) -> None:
    fn = FROM_OUTSIDE[name]
    compiled = run(fn, array)
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, CALLS - 1), compiled.reasons
    for other in (array(0).astype("f8"), array(0).T, np.zeros((0, 3), "f4"), array(0)[::-1]):
        assert outcomes(compiled, [other.copy()]) == outcomes(fn, [other.copy()])
        expected = outcomes(fn, [other.copy()])
        assert outcomes(compiled, [other]) == expected
    for other in (array(0) > 2, np.broadcast_to(array(0), (2, 2, 3)), array(0).astype(">f4"), np.float32(3)):
        assert outcomes(compiled, [other]) == outcomes(fn, [other])


MAKING = {
    "tensor": lambda a: T.tensor(a),
    "tensor of a dtype": lambda a: T.tensor(a, dtype=T.float64),
    "as_tensor": lambda a: T.as_tensor(a),
    "as_tensor of a dtype": lambda a: T.as_tensor(a, T.float64),
    "as_tensor of a type": lambda a: T.as_tensor(a, dtype=float),
    "asarray": lambda a: T.asarray(a, dtype=T.float64),
}


@pytest.mark.parametrize("name", MAKING)
def test_a_tensor_made_of_an_array_lies_in_memory_as_in_eager_mode(name: str) -> None:
    fn = MAKING[name]
    compiled = T.compile(fn)
    for a in (array(0).T, array(0)[:, ::2], np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), array(0)):
        expected = fn(a)
        for _ in range(3):
            made = compiled(a)
            assert (made.stride(), made.dtype, made.tolist()) == (expected.stride(), expected.dtype, expected.tolist())


def test_a_tensor_on_an_array_from_outside_has_its_memory() -> None:
    compiled = T.compile(lambda a: T.from_numpy(a).mul_(2))
    for i in range(4):
        a = array(i)
        assert np.shares_memory(compiled(a).numpy(), a)
        assert a.tolist() == (array(i) * 2).tolist()
    assert compiled.stats.compiled_calls == 3


WARNING: dict[str, Callable[..., Any]] = {
    "of an array": lambda x, kept: np.log(x.numpy()),
    "of a scalar": lambda x, kept: x.numpy()[0, 0] ** 0.5 / 0,
    "of an operator": lambda x, kept: 6 // x.long().numpy(),
    "of a number": lambda x, kept: np.sqrt(x[0, 0].item() - 7),
    "of a method": lambda x, kept: (x.numpy() * 1e38).sum() + x.numpy()[:0].mean(),
    "of constants": lambda x, kept: (np.log(np.zeros(3)), x * 2),
    "in several lines": lambda x, kept: (
        np.log(x.numpy()),
        np.sqrt(x.numpy()),
    ),
}


@pytest.mark.parametrize("name", WARNING)
@pytest.mark.parametrize("hot", [0, 1])
def test_a_warning_of_numpy_names_the_line_of_the_program_in_each_call(name: str, hot: int) -> None:
    def warnings_of(call: Any) -> list[Any]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for i in range(CALLS):
                call(given(i), None)
        return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]

    expected = warnings_of(WARNING[name])
    assert expected
    with override(hot_calls=hot):
        assert warnings_of(T.compile(WARNING[name])) == expected


def test_an_array_of_constants_has_the_strides_that_eager_calls_give_it() -> None:
    def fn(x: T.Tensor) -> Any:
        return np.arange(6).reshape(2, 3)[1][::-1], np.arange(6).reshape(2, 3).T, x * 2

    compiled = T.compile(fn)
    for _ in range(4):
        assert [a.strides for a in compiled(given(0))[:2]] == [a.strides for a in fn(given(0))[:2]]
