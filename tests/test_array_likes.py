"""Columns and tables of other packages are read before the program, by each call."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.capture.values import array_likes
from tracejit.capture.values.array_likes import ARRAY_LIKES, ArrayLikeModel
from tracejit.config import override

x = T.tensor([1.0, 2.0, 3.0])


class Column:
    """A column as packages have it: NumPy reads it, its methods are Python code, its memory may be shared."""

    def __init__(self, data: Any, label: Any = "") -> None:
        self.data = self.array = data
        self.label = label

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.data, dtype, copy=copy)

    def __len__(self) -> int:
        return self.data.size  # type: ignore[no-any-return]

    @property
    def shape(self) -> Any:
        return self.data.shape

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def to_numpy(self) -> Any:
        return self.data

    def mean(self) -> Any:
        return self.data.mean()

    def part(self, name: Any) -> Any:
        parts = {
            "self": self,
            "copy": Column(self.data.copy(), "copy"),
            "other": Other(),
            "none": None,
            "other array": self.array,
            Other: None,
        }
        return parts[name]

    def fill(self, value: float) -> None:
        self.data.fill(value)


class Other:
    """What has no model."""


class Derived(Column):
    """A class of the program: it may override anything."""

    def to_numpy(self) -> Any:
        seen.append("to_numpy")
        return -self.data


seen: list[str] = []
column = Column(np.array([1.0, 2.0, 3.0]))


@pytest.fixture(autouse=True)
def model() -> Iterator[None]:
    """Have a model for Column."""
    structure, contents = frozenset({"__len__", "shape", "dtype", "label"}), frozenset({"to_numpy", "mean", "part"})
    pure = lambda value, name: value.data.dtype.kind in "biuf"
    ARRAY_LIKES.append(ArrayLikeModel(__name__, "Column", structure, contents, pure))
    seen.clear()
    yield
    ARRAY_LIKES.pop()


def outcome(fn: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return described(fn(*arguments))
    except Exception as error:
        return type(error), str(error)


def described(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value), [described(v) for v in value]
    if isinstance(value, T.Tensor):
        return value.dtype, value.tolist()
    return type(value), str(value)


def check(fn: Callable[..., Any], calls: list[tuple[Any, ...]], recordings: int = 1, again: int = 2) -> Any:
    """Compare eager and compiled calls, each `again` times; returns the compiled function."""
    compiled = T.compile(fn)
    for arguments in calls * again:
        assert outcome(compiled, *arguments) == outcome(fn, *arguments)
    assert compiled.stats.traces == recordings, compiled.explain(verbose=True)
    assert compiled.stats.eager_calls == recordings, compiled.explain()
    return compiled


def reasons(fn: Callable[..., Any], *arguments: Any) -> str:
    compiled = T.compile(fn)
    for _ in range(2):
        assert outcome(compiled, *arguments) == outcome(fn, *arguments)
    assert compiled.stats.compiled_calls == 0
    return " ".join(compiled.explain().split())


def columns(*lengths: int, dtype: str = "f8") -> list[tuple[Any, ...]]:
    return [(x, Column(np.arange(i, i + n).astype(dtype))) for i, n in enumerate(lengths or (3, 3, 3))]


READINGS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda x, c: x * T.tensor(c),
    "tensor of a dtype": lambda x, c: x * T.tensor(c, dtype=T.float32, device="cpu"),
    "tensor that requires gradients": lambda x, c: T.tensor(c, requires_grad=True),
    "as_tensor": lambda x, c: x * T.as_tensor(c),
    "asarray": lambda x, c: x * T.asarray(c),
    "new_tensor": lambda x, c: x.new_tensor(c),
    "tensor of columns": lambda x, c: T.tensor([c, c]) * x,
    "np.asarray": lambda x, c: x * T.tensor(np.asarray(c)),
    "np.array": lambda x, c: x * T.from_numpy(np.array(c)),
    "np.asarray of a dtype": lambda x, c: x * T.from_numpy(np.asarray(c, dtype="f4")),
    "np.sqrt": lambda x, c: x * T.tensor(np.sqrt(c)),
    "np.stack": lambda x, c: x * T.tensor(np.stack([c, c])),
    "to_numpy": lambda x, c: (x * T.from_numpy(c.to_numpy()), c.to_numpy()[0]),
    "mean": lambda x, c: x * c.mean(),
    "len": lambda x, c: x * len(c),
    "shape": lambda x, c: (c.shape, x * c.shape[0]),
    "dtype": lambda x, c: (c.dtype, x if c.dtype == np.float64 else -x),
    "part": lambda x, c: x * T.tensor(c.part("copy")),
    "the object": lambda x, c: (c.part("self") is c, x),
    "result": lambda x, c: [c.part("copy").label, c.to_numpy(), x * 2],
}


@pytest.mark.parametrize("hot", [2, 1000])
@pytest.mark.parametrize("name", READINGS)
def test_other_columns_of_the_same_dtype_are_read_by_the_same_recording(name: str, hot: int) -> None:
    with override(hot_calls=hot):
        check(READINGS[name], columns(), again=3)


def test_other_lengths_are_those_of_arrays_from_outside() -> None:
    calls = columns(3, 4, 5, 6, 7, 8)
    with_arrays, with_columns = (
        T.compile(lambda x, a: x.sum() * T.tensor(a).sum()),
        T.compile(lambda x, c: x.sum() * T.tensor(c).sum()),
    )
    for tensor, c in calls * 2:
        assert with_arrays(tensor, c.data).item() == with_columns(tensor, c).item()
    assert with_columns.stats.traces == with_arrays.stats.traces


def test_another_dtype_is_recorded_anew() -> None:
    check(lambda x, c: T.tensor(c) * x, [columns(3, dtype=kind)[0] for kind in ("f8", "f4", "i8", "?")], recordings=4)


@pytest.mark.parametrize("hot", [2, 1000])
def test_what_changes_between_calls_is_seen(hot: int) -> None:
    fn = lambda x: x * T.tensor(column) + column.mean() * len(column)
    with override(hot_calls=hot):
        compiled = T.compile(fn)
        for i in range(12):
            column.data[i % 3] = i
            if i % 5 == 4:
                column.data = column.data + 1.0
            assert compiled(x).tolist() == fn(x).tolist()
        assert compiled.stats.compiled_calls == 11


def test_a_tensor_of_its_memory_is_an_alias_as_in_eager_mode() -> None:
    def fn(x: Any, c: Any) -> Any:
        t = T.from_numpy(c.to_numpy())
        t.add_(x)
        return t * 2

    compiled = T.compile(fn)
    for _ in range(3):
        ours, theirs = Column(np.array([1.0, 2.0, 4.0])), Column(np.array([1.0, 2.0, 4.0]))
        assert compiled(x, ours).tolist() == fn(x, theirs).tolist()
        assert ours.data.tolist() == theirs.data.tolist() == [2.0, 4.0, 7.0]
    assert compiled.stats.compiled_calls == 2


def written_before(x: Any, c: Any, t: Any) -> Any:
    t.add_(1)
    return x * T.tensor(c), c.mean()


def written_after(x: Any, c: Any, t: Any) -> Any:
    read = x * T.tensor(c), c.mean(), np.asarray(c).sum()
    t.add_(1)
    return read


def two_tensors(x: Any, c: Any, t: Any) -> Any:
    first, second = T.from_numpy(c.to_numpy()), T.from_numpy(c.to_numpy())
    first.add_(1)
    return second * x, t * 2


def written_array(x: Any, c: Any, t: Any) -> Any:
    c.to_numpy()[0] = 7.0
    return x * T.tensor(c), t * 2


def sized_after(x: Any, c: Any, t: Any) -> Any:
    t.add_(1)
    return x * len(c)


@pytest.mark.parametrize("shares", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("fn", [written_before, written_after, two_tensors, written_array, sized_after])
def test_writes_to_its_memory_come_before_and_after_as_in_eager_mode(fn: Callable[..., Any], shares: tuple[bool, ...]) -> None:
    compiled = T.compile(fn)
    for shared in (*shares, *shares):
        results = []
        for called in (compiled, fn):
            memory = np.array([1.0, 2.0, 3.0])
            results.append(
                (outcome(called, x, Column(memory), T.from_numpy(memory if shared else memory.copy())), memory.tolist())
            )
        assert results[0] == results[1]


def test_lengths_are_read_after_writes_and_elements_are_not() -> None:
    memory = np.zeros(3)
    assert "read_after_change" in reasons(written_before, x, Column(memory), T.zeros(3))
    check(sized_after, [(x, Column(memory), T.zeros(3))])


def test_a_method_without_a_model_makes_the_call_eager_and_is_named() -> None:
    def fn(x: Any, c: Any) -> Any:
        c.fill(4.0)
        return x * T.tensor(c)

    assert "[array_like] Column.fill is more" in reasons(fn, x, column)


STORES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda c: setattr(c, "data", np.zeros(3)),
    "its dictionary": lambda c: c.__dict__.update(data=np.zeros(3)),
    "an item of it": lambda c: vars(c).__setitem__("data", np.zeros(3)),
    "what it leads to": lambda c: c.label.append("b"),
}


@pytest.mark.parametrize("name", STORES)
def test_a_store_in_its_attributes_is_seen_by_a_later_reading(name: str) -> None:
    store = STORES[name]

    def fn(x: Any, c: Any) -> Any:
        store(c)
        return x * T.tensor(c)

    compiled = T.compile(fn)
    for i in range(3):
        one, other = Column(np.ones(3) + i, ["a"]), Column(np.ones(3) + i, ["a"])
        assert outcome(compiled, x, one) == outcome(fn, x, other)
    assert "[read_after_change]" in compiled.explain()


def test_an_array_that_is_reached_in_two_ways_is_one_where_it_was_one() -> None:
    def fn(x: Any, c: Any) -> Any:
        first, second = c.data, c.part("other array")
        return x * T.from_numpy(first), x * T.from_numpy(second), first is second

    def of(same: bool) -> Any:
        made = Column(np.ones(3))
        made.array = made.data if same else np.zeros(3)
        return x, made

    check(fn, [of(True), of(False), of(True)], recordings=2)


def test_a_class_of_the_program_is_no_argument_of_a_reading() -> None:
    assert "given what the prologue does not have" in reasons(lambda x, c: x * (c.part(Other) is None), x, column)


def test_elements_with_code_of_the_program_make_the_call_eager() -> None:
    class Number:
        def __float__(self) -> float:
            seen.append("float")
            return 2.0

    plain, objects = columns()[0], (x, Column(np.array([Number(), Number(), Number()], dtype=object)))
    assert "[array_like]" in reasons(lambda x, c: x * T.tensor(c, dtype=T.float32), *objects)
    compiled = T.compile(lambda x, c: x * T.tensor(c, dtype=T.float32))
    for arguments, calls in ((plain, 0), (plain, 0), (objects, 3), (plain, 0), (objects, 3)):
        seen.clear()
        compiled(*arguments)
        assert len(seen) == calls


def test_a_subclass_has_no_model() -> None:
    fn = lambda x, c: x * T.tensor(c.to_numpy())
    compiled = T.compile(fn)
    for c in (Column(np.ones(3)), Derived(np.ones(3)), Column(np.ones(3)), Derived(np.ones(3))):
        seen.clear()
        compiled(x, c)
        assert seen == (["to_numpy"] if type(c) is Derived else [])
        assert compiled(x, c).tolist() == fn(x, c).tolist()


def test_a_method_that_is_replaced_is_called() -> None:
    fn = lambda x, c: x * c.mean()
    compiled, original = T.compile(fn), Column.mean
    try:
        for method in (original, lambda self: 5.0, original):
            Column.mean = method  # type: ignore[method-assign]
            for _ in range(3):
                assert compiled(x, column).tolist() == fn(x, column).tolist()
        column.mean = lambda: 6.0  # type: ignore[method-assign]
        assert compiled(x, column).tolist() == [6.0, 12.0, 18.0]
    finally:
        Column.mean = original  # type: ignore[method-assign]
        vars(column).pop("mean", None)


def test_errors_of_readings_are_those_of_eager_mode() -> None:
    def fn(x: Any, c: Any, name: str) -> Any:
        try:
            return x * T.tensor(c.part(name))
        except (KeyError, TypeError) as error:
            return str(error)

    compiled = T.compile(fn)
    for name in ("copy", "copy", "no", "copy", "none", "other", "copy", "no"):
        assert outcome(compiled, x, column, name) == outcome(fn, x, column, name)
    assert compiled.stats.compiled_calls >= 2


def test_packages_are_not_imported() -> None:
    assert ARRAY_LIKES[0].module == "pandas"
    assert all(model.cls() is None for model in ARRAY_LIKES if model.module not in sys.modules)
    assert array_likes.array_like_model(Column) is ARRAY_LIKES[-1]
    assert array_likes.array_like_model(Derived) is None


# -- packages that may be missing
def frame_of(package: Any, i: int) -> Any:
    return package.DataFrame({"a": [1.0, 2.0, 3.0 + i], "b": [1, i, 3], "text": ["x", "y", "z"]})


def series_of(package: Any, i: int) -> Any:
    return (
        package.Series("name", [1.0, 2.0, 3.0 + i])
        if package.__name__ == "polars"
        else package.Series([1.0, 2.0, 3.0 + i], name="name")
    )


OF_SERIES: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda x, s: x * T.tensor(s),
    "as_tensor": lambda x, s: x * T.as_tensor(s),
    "to_numpy": lambda x, s: x * T.tensor(s.to_numpy()),
    "np.asarray": lambda x, s: x * T.tensor(np.asarray(s)),
    "scaled": lambda x, s: x * T.tensor((s - s.mean()) / s.std()),
    "sizes": lambda x, s: (x * len(s), s.shape, s.name),
    "statistics": lambda x, s: [x * v for v in (s.mean(), s.std(), s.var(), s.sum(), s.min(), s.max(), s.median())],
    "arithmetic": lambda x, s: x * T.tensor(2 * s + s**2 - s / 3 - (-s)),
    "item": lambda x, s: s[2] * x,
    "ends": lambda x, s: (T.tensor(s.head(2)), T.tensor(s.tail(2))),
}
OF_FRAMES: dict[str, Callable[[Any, Any], Any]] = {
    "column": lambda x, f: x * T.tensor(f["a"].to_numpy()) * T.tensor(f["b"]),
    "columns": lambda x, f: T.tensor(f[["a", "b"]].to_numpy()) * x[0],
    "sizes": lambda x, f: (x * f.shape[0], f.shape, len(f), len(f["text"])),
}
OF_PANDAS: dict[str, Callable[[Any, Any], Any]] = {
    "values": lambda x, f: x * T.tensor(f["a"].values) * T.tensor(f.b.values),
    "from_numpy": lambda x, f: x * T.from_numpy(f["a"].to_numpy()),
    "astype": lambda x, f: x * T.tensor(f["b"].astype("float32").to_numpy()),
    "dtype": lambda x, f: (f["a"].dtype, x if f["b"].dtype == np.int64 else -x),
    "statistics": lambda x, f: T.tensor(f[["a", "b"]].mean()) * x[0],
    "numbers": lambda x, f: T.tensor(f[["a", "b"]]) * x[0],
}


@pytest.mark.filterwarnings("ignore:from_numpy")
@pytest.mark.parametrize("name", OF_SERIES)
@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_columns_of_packages_are_read_by_each_call(package: str, name: str) -> None:
    module = pytest.importorskip(package)
    check(OF_SERIES[name], [(x, series_of(module, i)) for i in range(3)])


@pytest.mark.filterwarnings("ignore:from_numpy")
@pytest.mark.parametrize("name", OF_FRAMES)
@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_tables_of_packages_are_read_by_each_call(package: str, name: str) -> None:
    module = pytest.importorskip(package)
    check(OF_FRAMES[name], [(x, frame_of(module, i)) for i in range(3)])


@pytest.mark.filterwarnings("ignore:from_numpy")
@pytest.mark.parametrize("name", OF_PANDAS)
def test_what_pandas_alone_has_is_read_by_each_call(name: str) -> None:
    module = pytest.importorskip("pandas")
    check(OF_PANDAS[name], [(x, frame_of(module, i)) for i in range(3)])


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_column_that_a_table_has_not_raises_what_eager_raises(package: str) -> None:
    module = pytest.importorskip(package)

    def fn(x: Any, f: Any) -> Any:
        try:
            return x * T.tensor(f["b"])
        except Exception as error:
            return type(error).__name__

    compiled = T.compile(fn)
    whole = frame_of(module, 0)
    for f in (whole, whole, whole[["a"]], whole, whole[["a"]]):
        assert outcome(compiled, x, f) == outcome(fn, x, f)
    assert compiled.stats.compiled_calls == 2


def test_changes_of_series_are_seen_and_what_changes_them_is_eager() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([1.0, 2.0, 3.0])
    compiled = T.compile(lambda x: x * T.tensor(series) + series.mean())
    for i in range(4):
        series.iloc[i % 3] = float(i)
        assert compiled(x).tolist() == (x * T.tensor(series) + series.mean()).tolist()
    assert compiled.stats.compiled_calls == 3

    def fn(x: Any, s: Any) -> Any:
        s[0] = 4.0
        return x * T.tensor(s)

    assert "Series.__setitem__ is more" in reasons(fn, x, pandas.Series([1.0, 2.0, 3.0]))
    assert "Series.rolling is more" in reasons(lambda x, s: x * T.tensor(s.rolling(1).sum()), x, series)
    assert "Series.to_numpy, of other elements" in reasons(lambda x, s: len(s.to_numpy()), x, pandas.Series(["a"]))
