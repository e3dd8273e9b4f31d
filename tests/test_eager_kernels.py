"""Machine code in the place of NumPy: what kernels compute, and that it makes no difference where they compute it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit as T
from tracejit.core import dtypes, kernels, philox
from tracejit.core.kernels import kernel
from tracejit.lowering.draws import DRAWS

FLOATS = (dtypes.float32, dtypes.float64)
DRAWN = [(form, dtype) for form in DRAWS for dtype in (FLOATS if form != "integers" else (dtypes.int64,))]


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_maker", [])
    monkeypatch.setattr(kernels, "_kernels", {})


def reference(form: str, seed: int, counter: int, count: int, dtype: Any) -> Any:
    return philox.DRAWS[form](seed, counter, count, dtype.itemsize > 4)


@pytest.mark.parametrize(("form", "dtype"), DRAWN)
@pytest.mark.parametrize("state", [(0, 0), (77, 5), (-1, 2**32 - 2), (2**63 - 1, 2**63 - 2), (-(2**63), -1)])
def test_kernels_draw_the_numbers_that_numpy_draws(form: str, dtype: Any, state: tuple[int, int]) -> None:
    run = kernel(form, dtype)
    assert run is not None
    for blocks in (1, 7, 1000):
        out = np.zeros(blocks * philox.numbers_in_block(dtype.itemsize > 4), dtype.numpy)
        run(out, blocks, *state)
        assert out.tobytes() == reference(form, *state, out.size, dtype).tobytes()


def test_a_stream_is_the_same_wherever_numpy_hands_over_to_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def stream(patience: float) -> list[Any]:
        monkeypatch.setattr(kernels, "_kernels", {})
        monkeypatch.setattr(kernels, "_PATIENCE", patience)
        generator = T.Generator().manual_seed(3)
        shapes = [(n, m) for n in (1, 2, 3, 5, 17) for m in (1, 3)] + [(20000,), (0,), ()]
        return [
            draw(*shape, generator=generator, dtype=dtype).numpy()
            for shape in shapes
            for draw in (T.rand, T.randn)
            for dtype in (T.float32, T.float64, T.float16)
        ] + [T.randint(-5, 100, (7,), generator=generator).numpy(), T.randperm(200, generator=generator).numpy()]

    by_numpy, by_turns, by_kernels = stream(1e9), stream(1000.0), stream(0.0)
    for others in (by_turns, by_kernels):
        assert all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(by_numpy, others, strict=True))


@pytest.mark.usefixtures("without_kernels")
def test_without_machine_code_numpy_computes() -> None:
    x = T.linspace(-3, 3, 1000)
    assert T.softmax(x, 0).sum().item() == pytest.approx(1, abs=1e-6)
    assert T.sigmoid(x).numpy() == pytest.approx(1 / (1 + np.exp(-x.numpy())), rel=1e-6)
    before = T.rand(20000, generator=T.Generator().manual_seed(1)).numpy()
    assert before.tobytes() == philox.uniform(1, 0, 20000, False).tobytes()
    out = T.zeros(5, 1000).index_add(0, T.tensor([1, 1, 4]), T.ones(3, 1000))
    assert out.sum(1).tolist() == [0, 2000, 0, 0, 1000]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["erf", "erfc", "sigmoid"])
def test_large_arrays_have_the_bits_of_compiled_programs_and_small_ones_are_near(name: str, dtype: Any) -> None:
    function = getattr(T, name)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 30.0, -30.0])
    values = np.concatenate([np.random.default_rng(0).normal(size=1500) * 4, special]).astype(dtype.numpy)
    x = T.from_numpy(values)
    eager, compiled = function(x).numpy(), T.compile(function)
    for _ in range(3):
        assert eager.tobytes() == compiled(x).numpy().tobytes(), compiled.explain()
    parts = np.concatenate([function(x[i : i + 100]).numpy() for i in range(0, len(values), 100)])
    near = 100 if name == "erfc" else 8  # SciPy loses that much by the rounding of an operand
    np.testing.assert_allclose(eager, parts, rtol=near * np.finfo(dtype.numpy).eps, atol=np.finfo(dtype.numpy).tiny)


def test_views_of_any_strides_are_computed_in_the_layout_that_numpy_gives_them() -> None:
    base = np.random.default_rng(0).normal(size=(20, 30, 40)).astype(np.float32)
    for view in (base.transpose(2, 0, 1), base[::2, :, ::3], base[:, ::-1], base.T, base[:, :1].repeat(3, 1)):
        out = T.erf(T.from_numpy(base)).numpy()
        tensor = T.from_numpy(view.copy()) if any(s < 0 for s in view.strides) else T.from_numpy(view)
        found = T.erf(tensor).numpy()
        assert found.strides == np.exp(tensor.numpy()).strides
        assert np.isin(found, out).all(), "an element has the same bits wherever it stands"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1,), (10,), (3, 1), (4, 1000), (2, 3, 17)])
def test_rows_are_normalised_as_exactly_as_their_dtype_allows(dtype: Any, shape: tuple[int, ...]) -> None:
    values = (np.random.default_rng(1).normal(size=shape) * 10).astype(dtype.numpy)
    wide = values.astype(np.longdouble)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True)
    eps = np.finfo(dtype.numpy).eps
    np.testing.assert_allclose(T.softmax(T.from_numpy(values), -1).numpy(), expected, rtol=40 * eps)
    np.testing.assert_allclose(T.log_softmax(T.from_numpy(values), -1).numpy(), np.log(expected), rtol=40 * eps, atol=4 * eps)


def test_rows_with_infinities_and_nan_are_normalised_as_by_numpy() -> None:
    inf, nan = float("inf"), float("nan")
    x = T.tensor([[0.0, -inf, 1.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [nan, 0.0, 1.0]])
    for function in (T.softmax, T.log_softmax):
        by_rows, by_columns = function(x, 1).numpy(), function(x.T.clone(), 0).numpy().T
        np.testing.assert_allclose(by_rows, by_columns, rtol=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 60), st.integers(1, 40), st.integers(0, 2))
def test_slices_are_added_in_the_order_and_with_the_bits_of_numpy(
    seed: int, slices: int, count: int, width: int, dim: int
) -> None:
    generator = np.random.default_rng(seed)
    shape = [2, 3, width]
    shape[dim] = slices
    base = generator.normal(size=shape).astype(np.float32)
    index = generator.integers(0, slices, count)
    source = generator.normal(size=[*shape[:dim], count, *shape[dim + 1 :]]).astype(np.float32)
    expected = base.copy()
    np.add.at(expected, (slice(None),) * dim + (index,), source)
    kernel("added slices", dtypes.float32)  # from here on it is used
    found = T.from_numpy(base).index_add(dim, T.from_numpy(index), T.from_numpy(source)).numpy()
    assert found.tobytes() == expected.tobytes()


def test_positions_out_of_range_are_refused_before_a_kernel_sees_them() -> None:
    for bad in (-1, 3):
        with pytest.raises(IndexError, match=f"index {bad} is out of range"):
            T.zeros(3, 2000).index_add(0, T.tensor([0, bad]), T.ones(2, 2000))


def test_a_kernel_refuses_arguments_that_are_not_its_own() -> None:
    run = kernel("uniform", dtypes.float32)
    assert run is not None
    out = np.zeros(4, np.float32)
    with pytest.raises(TypeError):
        run(out, 1, 2)
    with pytest.raises(OverflowError):
        run(out, 1, 1 << 70, 0)
    with pytest.raises(TypeError):
        run(out, 1, "seed", 0)
    assert not out.any()


def test_threads_run_kernels_side_by_side() -> None:
    x = T.from_numpy(np.random.default_rng(0).normal(size=300000).astype(np.float32))
    expected, found = T.erf(x).numpy().tobytes(), []
    threads = [threading.Thread(target=lambda: found.append(T.erf(x).numpy().tobytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


_FIRST_RECORDING = """
import sys
import tracejit as T
from tracejit.capture.session import record

def main():
    recording, _ = record(lambda x: x.softmax(-1), (T.ones(3, 4),), {})
    sys.exit(str(recording.reason) if recording.reason else 0)

main()
"""


def test_a_recording_goes_on_where_the_first_kernel_of_a_process_is_made(tmp_path: Path) -> None:
    """LLVM is asked what the processor can do, and neither that nor the linker has been needed before."""
    program = tmp_path / "program.py"
    program.write_text(_FIRST_RECORDING)
    root = str(Path(T.__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"TRACEJIT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
