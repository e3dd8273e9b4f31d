"""Columns of polars, arrays of xarray and memory-mapped files as tensors, and tensors in matplotlib's plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T

MAKERS = [T.tensor, T.as_tensor, T.asarray]


@pytest.mark.parametrize("make", MAKERS)
def test_columns_and_frames_of_polars_are_as_numpy_sees_them(make: Any) -> None:
    polars = pytest.importorskip("polars")
    for values, kind, dtype in (
        ([1.5, 2.0], polars.Float64, T.float64), ([1.5, 2.0], polars.Float32, T.float32), ([1, 2], polars.Int64, T.int64),
        ([1, 2], polars.UInt8, T.uint8), ([True, False], polars.Boolean, T.bool),
    ):  # fmt: skip
        made = make(polars.Series(values, dtype=kind))
        assert made.dtype is dtype and made.tolist() == values
    assert make(polars.Series([1.0, None])).isnan().tolist() == [False, True]
    assert make(polars.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})).tolist() == [[1, 3], [2, 4]]
    with pytest.raises(TypeError, match="expected numbers, got Series of dtype <U1"):
        make(polars.Series(["a"]))


@pytest.mark.parametrize("make", MAKERS)
def test_arrays_of_xarray_are_as_numpy_sees_them(make: Any) -> None:
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray(np.arange(6.0, dtype=np.float32).reshape(2, 3), dims=("x", "y"), coords={"x": [10, 20]})
    made = make(array)
    assert made.dtype is T.float32 and made.tolist() == [[0, 1, 2], [3, 4, 5]] and make(array.sel(x=20)).tolist() == [3, 4, 5]
    with pytest.raises(TypeError, match="expected numbers, got DataArray of dtype datetime64"):
        make(xarray.DataArray(np.array(["2020-01-01"], "datetime64[ns]")))


@pytest.mark.filterwarnings("ignore:from_numpy")
def test_memory_mapped_files_are_shared(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4.0))
    writable: Any = np.load(tmp_path / "a.npy", mmap_mode="r+")
    for make in (T.from_numpy, T.as_tensor):
        tensor = make(writable)
        assert np.shares_memory(tensor.numpy(), writable) and tensor.dtype is T.float64
    T.from_numpy(writable)[1] = 9.0
    writable.flush()
    assert np.load(tmp_path / "a.npy")[1] == 9
    read_only = T.from_numpy(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert (read_only * 2).tolist() == [0, 18, 4, 6]
    with pytest.raises(RuntimeError):
        read_only[0] = 1.0
    assert T.tensor(writable).data_ptr() != T.from_numpy(writable).data_ptr()


def test_from_numpy_says_what_takes_what_is_no_array() -> None:
    class Column:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.zeros(2)

    with pytest.raises(TypeError, match=r"expected a numpy.ndarray, got Column; as_tensor\(\) takes it"):
        T.from_numpy(Column())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got list$"):
        T.from_numpy([1.0])  # type: ignore[arg-type]


def test_tensors_are_plotted_as_arrays_are() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    x = T.linspace(0, 1, 5)
    figure, axes = pyplot.subplots()
    try:
        (line,) = axes.plot(x, x**2)
        assert np.array_equal(line.get_xdata(), x.numpy()) and np.array_equal(line.get_ydata(), (x**2).numpy())
        assert len(axes.plot(T.rand(4, 2))) == 2
        axes.scatter(x, x, c=x, s=10 * x)
        axes.errorbar(x, x, yerr=0.1 * x)
        axes.fill_between(x, x, x + 1)
        counts, _, _ = axes.hist(T.tensor([0.0, 0.0, 1.0]), bins=2)
        assert counts.tolist() == [2, 1]
        image = axes.imshow(T.tensor([[0.0, 1.0], [2.0, 3.0]]))
        assert image.get_array().tolist() == [[0, 1], [2, 3]]
        axes.axhline(T.tensor(0.5))
        figure.canvas.draw()
        with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):  # as PyTorch
            axes.plot(x.clone().requires_grad_())
    finally:
        pyplot.close(figure)
