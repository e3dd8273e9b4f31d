"""Columns and tables of pandas, which are read-only memory and have dtypes of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit as T

pandas: Any = pytest.importorskip("pandas")
TABLE: Any = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})


@pytest.mark.filterwarnings("ignore:from_numpy")
def test_tables_share_their_memory() -> None:
    for source in (TABLE, TABLE["a"]):
        array = source.to_numpy()
        tensor = T.from_numpy(array)
        assert tensor.dtype is T.float64 and tensor.tolist() == array.tolist() and np.shares_memory(tensor.numpy(), array)
        assert T.utils.data.TensorDataset(tensor)[0][0].tolist() == array[0].tolist()


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("make", [T.tensor, T.as_tensor, T.asarray])
def test_columns_and_tables_keep_their_dtype(make: Any, dtype: str) -> None:
    for source in (TABLE.astype(dtype), TABLE["b"].astype(dtype), pandas.Index(TABLE["a"].astype(dtype))):
        made = make(source)
        assert made.dtype is getattr(T, dtype if dtype != "bool" else "bool_") and made.tolist() == source.to_numpy().tolist()
    assert make([TABLE["a"].astype(dtype)] * 2).dtype is getattr(T, dtype if dtype != "bool" else "bool_")
    assert make(pandas.Series([1.5, 2.0], dtype="Float64")).dtype is T.float64
    assert make(TABLE["a"], dtype=T.float32).dtype is T.float32


DATES = pandas.Series(pandas.to_datetime(["2020-01-01", "2020-01-02"]))
WRONG: dict[str, tuple[Any, str]] = {
    "dates": (lambda: T.tensor(DATES), r"tensor\(\): expected numbers, got Series of dtype datetime64\[.s\].*astype\('int64'\)"),
    "an array of dates": (
        lambda: T.from_numpy(DATES.to_numpy()),
        r"from_numpy\(\): expected numbers, got ndarray of dtype datetime64",
    ),
    "spans": (lambda: T.tensor(DATES - DATES), r"tensor\(\): expected numbers, got Series of dtype timedelta64"),
    "texts": (
        lambda: T.tensor(pandas.Series(["a", "b"])),
        r"tensor\(\): expected numbers, got Series of dtype object holding str",
    ),
    "categories": (lambda: T.tensor(pandas.Series(["a"], dtype="category")), r"Series of dtype object holding str"),
    "a column of texts": (
        lambda: T.tensor(TABLE.assign(name="x")),
        r"got DataFrame with the column 'name' \(.*astype\('float64'\)",
    ),
    "two columns": (
        lambda: T.as_tensor(TABLE.assign(name="x", when=DATES)),
        r"DataFrame with the columns 'name' \(\w+\), 'when' \(datetime64\[.s\]\)",
    ),
    "the array of a table": (
        lambda: T.from_numpy(TABLE.assign(c=None).to_numpy()),
        r"from_numpy\(\): .* ndarray of dtype object holding None",
    ),
    "a column": (lambda: T.from_numpy(TABLE["a"]), r"from_numpy\(\): expected a numpy.ndarray, got Series"),
}


def test_what_only_looks_like_a_table_is_named() -> None:
    class Table:
        columns, dtypes = ["a"], [object]

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([[None]], object)

    with pytest.raises(TypeError, match=r"tensor\(\): expected numbers, got Table of dtype object holding NoneType"):
        T.tensor(Table())


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_number_is_named(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(TypeError, match=message):
        make()
    assert T.tensor(DATES.astype("int64")).dtype is T.int64
