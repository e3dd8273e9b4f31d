"""Tests of products under the library's own threads: tiles, bits, OpenBLAS' number of threads, forks, small products."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.core import products
from tracejit.llvm import blas

governed = pytest.mark.skipif(not blas.blas().governed, reason="this BLAS has no number of threads that can be set")
DTYPES = [np.float32, np.float64]
SIZES = [
    # rows, terms, columns
    (512, 784, 512),  # several tiles both ways
    (1100, 130, 331),  # tiles of several sizes
    (64, 784, 512),  # two tiles side by side
    (3000, 77, 80),  # one column of tiles
    (17, 2000, 1500),  # few rows
    (20, 50_000, 20),  # one tile
]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = tracejit.get_num_threads()
    yield
    tracejit.set_num_threads(before)


def of_openblas() -> tuple[Callable[[], int], Callable[[int], None]]:
    """Its functions that tell and set the number of threads."""
    addresses = blas.blas().num_threads
    assert addresses is not None
    return ctypes.CFUNCTYPE(ctypes.c_int)(addresses[0]), ctypes.CFUNCTYPE(None, ctypes.c_int)(addresses[1])


@pytest.fixture
def three_threads_of_openblas() -> Iterator[Callable[[], int]]:
    """OpenBLAS has three threads; gives the function that tells how many it has."""
    get, set_ = of_openblas()
    before = get()
    set_(3)
    yield get
    set_(before)


def operands(dtype: Any, m: int, k: int, n: int, turned: tuple[bool, bool] = (False, False)) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(m + n + k)
    a = generator.normal(size=(k, m) if turned[0] else (m, k)).astype(dtype)
    b = generator.normal(size=(n, k) if turned[1] else (k, n)).astype(dtype)
    return a.T if turned[0] else a, b.T if turned[1] else b


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", SIZES)
def test_products_are_right_and_have_the_same_bits_with_any_number_of_threads(
    sizes: tuple[int, int, int], turned: tuple[bool, bool], dtype: Any
) -> None:
    a, b = operands(dtype, *sizes, turned)
    results = []
    for number in (1, 2, 5):
        tracejit.set_num_threads(number)
        results.append(products.matmul(a, b))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(results[0], exact, rtol=0, atol=4 * sizes[1] * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
def test_compiled_products_have_the_bits_of_eager_ones(turned: bool, dtype: Any) -> None:
    compiled = tracejit.compile(lambda a, b: (a @ b).relu())
    for m, k, n in [*SIZES, (40, 60, 50), (1, 3000, 700), (3000, 1000, 1)]:
        a, b = map(tracejit.tensor, operands(dtype, m, k, n, (turned, False)))
        for number in (1, 2, 3):
            tracejit.set_num_threads(number)
            eager = (a @ b).relu().numpy()
            for _ in range(3):
                np.testing.assert_array_equal(compiled(a, b).numpy(), eager)
    assert compiled.stats.compiled_calls


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_matrices_in_a_batch_and_of_views_are_right(dtype: Any) -> None:
    generator = np.random.default_rng(0)
    a = generator.normal(size=(2, 1, 300, 260)).astype(dtype)
    b = generator.normal(size=(3, 260, 700)).astype(dtype)[..., ::2]
    np.testing.assert_allclose(products.matmul(a, b), np.matmul(a, b), rtol=0, atol=1e-3)
    square = generator.normal(size=(300, 400)).astype(dtype)
    whole = products.on_one_thread(np.matmul, square, square.T)
    np.testing.assert_array_equal(products.matmul(square, square.T), whole)
    out = np.full((300, 700), np.nan, dtype)[:, ::2]
    assert products.matmul(a[0, 0], b[0], out) is out
    np.testing.assert_allclose(out, a[0, 0] @ b[0], rtol=0, atol=1e-3)


def test_products_with_vectors_have_the_same_bits_with_any_number_of_threads() -> None:
    @tracejit.compile
    def both(a: Any, x: Any, y: Any) -> Any:
        return a @ x, y @ a, x @ x

    generator = np.random.default_rng(0)
    a, x, y = (tracejit.tensor(generator.normal(size=s).astype(np.float32)) for s in ((1500, 20_000), 20_000, 1500))
    results = []
    for number in (1, 2, 5):
        tracejit.set_num_threads(number)
        results += [[part.numpy() for part in call(a, x, y)] for call in (both, both, lambda a, x, y: (a @ x, y @ a, x @ x))]
    for result in results[1:]:
        for part, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(part, first)
    np.testing.assert_allclose(results[0][0], a.numpy().astype(np.float64) @ x.numpy(), rtol=0, atol=1e-2)


@pytest.mark.parametrize("shapes", [((300, 400), (300, 400)), ((2, 300, 400), (3, 400, 300)), ((300, 400), (401,))])
def test_operands_that_do_not_fit_are_refused_as_numpy_refuses_them(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError):
        products.matmul(*(np.zeros(shape, np.float32) for shape in shapes))


def test_small_products_go_to_numpy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise AssertionError("a small product asked for threads")

    monkeypatch.setattr(products, "_policy", None)
    monkeypatch.setattr(products, "_policy_of_process", refuse)
    for shapes in [((30, 40), (40, 50)), ((8, 30, 40), (40, 50)), ((64, 60), (60,)), ((60,), (60,)), ((1, 60), (60, 60))]:
        a, b = (np.ones(shape) for shape in shapes)
        np.testing.assert_array_equal(products.matmul(a, b), np.matmul(a, b))
    with pytest.raises(AssertionError, match="asked for threads"):
        products.matmul(np.ones((300, 300)), np.ones((300, 300)))


# --- OpenBLAS' number of threads


@governed
def test_openblas_has_one_thread_inside_and_its_own_number_afterwards(three_threads_of_openblas: Callable[[], int]) -> None:
    get = three_threads_of_openblas
    assert products.on_one_thread(get) == 1 and get() == 3
    assert products.on_one_thread(lambda: (products.on_one_thread(get), get())) == (1, 1) and get() == 3
    with pytest.raises(ZeroDivisionError):
        products.on_one_thread(lambda: 1 // 0)
    assert get() == 3
    tracejit.set_num_threads(2)
    products.matmul(*operands(np.float32, 512, 784, 512))
    assert get() == 3


@governed
@pytest.mark.parametrize(
    "name", ["cholesky", "det", "eigh", "inv", "qr", "slogdet", "svd", "cholesky_ex", "inv_ex"],
)  # fmt: skip
def test_decompositions_are_computed_on_one_thread(
    name: str, three_threads_of_openblas: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, seen = name.removesuffix("_ex"), []
    real = getattr(np.linalg, whole)

    def noting(*given: Any, **options: Any) -> Any:
        seen.append(three_threads_of_openblas())
        return real(*given, **options)

    monkeypatch.setattr(np.linalg, whole, noting)
    x = tracejit.eye(3) * 2
    getattr(tracejit.linalg, name)(x)
    assert set(seen) == {1} and three_threads_of_openblas() == 3


@governed
def test_a_number_that_the_program_sets_meanwhile_is_left(three_threads_of_openblas: Callable[[], int]) -> None:
    products.on_one_thread(of_openblas()[1], 2)
    assert three_threads_of_openblas() == 2


@governed
def test_products_of_several_python_threads_leave_openblas_as_it_was(three_threads_of_openblas: Callable[[], int]) -> None:
    a, b = operands(np.float32, 300, 400, 300)
    expected = products.matmul(a, b)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(40):
                np.testing.assert_array_equal(products.matmul(a, b), expected)
                products.matmul(a[:100, :100], b[:100, :100])
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures and three_threads_of_openblas() == 3


@governed
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_multiplies_has_openblas_as_it_was(
    three_threads_of_openblas: Callable[[], int],
) -> None:
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: products.on_one_thread(lambda: (entered.set(), leave.wait(20))))
    thread.start()
    try:
        assert entered.wait(20) and three_threads_of_openblas() == 1
        child = os.fork()
        if child == 0:
            right = three_threads_of_openblas() == 3
            products.matmul(*operands(np.float32, 300, 400, 300))
            os._exit(0 if right and three_threads_of_openblas() == 3 else 1)
        end, done = time.monotonic() + 30, 0
        while not done and time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        assert done and os.waitstatus_to_exitcode(status) == 0
    finally:
        leave.set()
        thread.join()
    assert three_threads_of_openblas() == 3


THREADS_AT_WORK = """
import time
import numpy as np
import tracejit
tracejit.set_num_threads(1)
a = tracejit.tensor(np.ones((300, 300), np.float32))
f = tracejit.compile(lambda a: (a @ a) @ a[:, 0])
for _ in range(5):
    f(a), a @ a, a[:64] @ a
time.sleep(0.2)  # OpenBLAS' threads go to sleep some time after they are made
others = time.process_time() - time.thread_time()
for _ in range(100):
    f(a), a @ a, a[:64] @ a
print(time.process_time() - time.thread_time() - others, time.thread_time())
"""


@governed
def test_with_one_thread_no_other_thread_works_on_products(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(THREADS_AT_WORK)
    environment = {**os.environ, "PYTHONPATH": str(Path(tracejit.__file__).parent.parent), "OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    others, own = map(float, done.stdout.split())
    assert others < 0.05 * own
