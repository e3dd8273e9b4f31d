"""Steps of eager mode in machine code: the bits, the places on the tape and the refusals are those of the way through NumPy."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit as T
from tracejit.core import kernels
from tracejit.core.op import REGISTRY, Op
from tracejit.cpython import c_api, eager_steps
from tracejit.cpython.eager_steps import ufunc_loops
from tracejit.tensor import eager

UFUNCS = [op for op in REGISTRY.values() if isinstance(op.loops, np.ufunc)]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.0, float("inf"), float("-inf"), float("nan"), 1e-42, 3e38]


@pytest.fixture(autouse=True)
def supported() -> None:
    if not c_api.supported():
        pytest.skip("there is no machine code that makes objects on this interpreter")


def step_of(op: Op) -> Any:
    return kernels.step(eager._OWNERS, op.loops, op.step_dtypes(), op.promotion.value != "bool", op.most)


@pytest.fixture
def without_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(eager, "_view_of", None)
    monkeypatch.setattr(eager, "_before_views", 0)
    kept = [(op, op.step, op.until_step) for op in REGISTRY.values()]
    for op in REGISTRY.values():
        op.step, op.until_step = None, 0
    yield
    for op, step, until in kept:
        op.step, op.until_step = step, until


def same_bits(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("op", UFUNCS, ids=lambda op: op.name)
def test_a_step_gives_the_bits_that_numpy_gives(op: Op) -> None:
    step, served = step_of(op), 0
    assert step is not None
    for dtype in op.step_dtypes():
        with np.errstate(all="ignore"):
            values = np.resize(np.array(SPECIAL), 37).astype(dtype)
            others = np.roll(values, 5)
        operands = [values] if op.loops.nin == 1 else [values, others]
        made = step(*map(T.from_numpy, operands))
        if made is None:  # the ufunc has no loop for this dtype
            continue
        served += 1
        with np.errstate(all="ignore"):
            assert same_bits(made._array, op.loops(*operands)), dtype
        assert type(made) is T.Tensor and made._array.flags.owndata and not made.requires_grad and made.is_leaf
    assert served


@given(st.floats(width=64) | st.integers(-(2**62), 2**62), st.sampled_from(["float32", "float64", "int64"]), st.booleans())
def test_numbers_beside_tensors_become_what_numpy_makes_of_them(number: Any, dtype: str, first: bool) -> None:
    step = step_of(REGISTRY["mul"])
    array = np.array([1, 3, -2], dtype)
    x = T.from_numpy(array)
    made = step(number, x) if first else step(x, number)
    if dtype == "int64" and type(number) is float:
        assert made is None
        return
    with np.errstate(all="ignore"):
        converted = np.asarray(float(number) if dtype != "int64" else number).astype(dtype)
        expected = array * converted
    assert np.array_equal(made._array, expected, equal_nan=dtype != "int64")


def test_what_a_step_does_not_know_is_left_to_numpy() -> None:
    step, x = step_of(REGISTRY["add"]), T.ones(2, 3)
    refused: list[tuple[Any, ...]] = [
        (x, T.ones(3)),  # broadcasting
        (x, T.ones(2, 3, dtype=T.float64)),
        (x.T, x.T),  # not row-major
        (T.ones(2, 3, dtype=T.float16), T.ones(2, 3, dtype=T.float16)),
        (x, True),
        (x, 2**70),
        (x, None),
        (x, np.float32(1)),
        (x, "a"),
        (x,),
        (x, x, x),
        (1, 2),
        (T.arange(3), 1.5),
        (weakref.proxy(x), 1.0),
    ]
    for operands in refused:
        assert step(*operands) is None
    assert step(x, T.ones(())) is not None and step(T.ones(()), x) is not None and step(T.ones(0), T.ones(0)).shape == (0,)


def test_subclasses_are_operands_and_results_are_plain_tensors() -> None:
    class Own(T.Tensor):
        pass

    x = T.ones(3).as_subclass(Own)
    assert type(step_of(REGISTRY["add"])(x, T.nn.Parameter(T.ones(3)))) is T.Tensor


def test_a_view_whose_root_was_written_to_is_no_operand_of_a_step_before_it_was_looked_at() -> None:
    root = T.zeros(4)
    view = root[1:3]
    w = T.ones(4, requires_grad=True)
    step = step_of(REGISTRY["mul"])
    assert step(view, 2.0) is not None
    root.add_(w)
    assert step(view, 2.0) is None
    (view * 2.0).sum().backward()
    assert w.grad.tolist() == [0.0, 2.0, 2.0, 0.0]


PROGRAMS = {
    "elementwise": lambda x, y: (x * y + 1.0).exp() / (2.0 - y) - x.neg(),
    "views": lambda x, y: x[1:, None].view(-1)[::2].unsqueeze(0).expand(3, -1).T * y[0],
    "choice": lambda x, y: T.where(x > 0, x, 0.0) + T.where(y > 0, 1.0, y),
    "fused": lambda x, y: T.nn.functional.mish(x) * T.nn.functional.celu(y, 0.5),
    "in place": lambda x, y: (x * 1.0).mul_(y).add_(x)[2:].neg_() * y[0],
    "reduced": lambda x, y: x.amax() + y.amin() + (x + y).mean() + x.prod(),
}


def results(program: Any) -> list[Any]:
    x = T.tensor([0.5, -1.5, 2.0, 0.25, -0.75, 1.0], requires_grad=True)
    y = T.tensor([1.5, 0.5, -2.0, 3.0, -0.5, 1.25], requires_grad=True)
    out = program(x, y)
    first = T.autograd.grad(out.square().sum() + (x * x * y * y).sum(), [x, y], create_graph=True)
    second = T.autograd.grad(first[0].square().sum(), [x, y], allow_unused=True, materialize_grads=True)
    return [out.detach().numpy(), *[g.detach().numpy() for g in (*first, *second)]]


@pytest.fixture
def by_steps() -> dict[str, list[Any]]:
    return {name: [results(program) for _ in range(80)][-1] for name, program in PROGRAMS.items()}


def test_programs_have_the_same_results_and_gradients_with_steps_and_without(
    by_steps: dict[str, list[Any]], without_steps: None
) -> None:
    assert eager._view_of is None
    for name, program in PROGRAMS.items():
        for a, b in zip(by_steps[name], results(program), strict=True):
            assert same_bits(a, b), name


def test_a_change_in_place_of_what_a_step_has_saved_is_noticed() -> None:
    x, y = T.ones(3, requires_grad=True), T.ones(3)
    for _ in range(100):
        out = x * y
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_no_gradient_is_wanted_of_a_step_under_no_grad() -> None:
    x = T.ones(3, requires_grad=True)
    with T.no_grad():
        for _ in range(100):
            out = x * 2.0
            view = x[1:]
    assert not out.requires_grad and out.grad_fn is None and not view.requires_grad


def test_a_view_shares_memory_version_and_root() -> None:
    x = T.zeros(6)
    for _ in range(100):
        first = x[1:5]
    second = first[1:]
    assert first._base is x and second._base is x and len(second._chain) == 2 and second._storage is x._storage
    second.add_(1.0)
    assert x.tolist() == [0, 0, 1, 1, 1, 0] and x._version == first._version == 1


def test_what_is_no_tensor_of_ours_has_no_view_by_machine_code() -> None:
    x = T.zeros(6)
    for _ in range(100):
        x[1:]
    make = eager._view_of
    assert make(weakref.proxy(x), x._array) is None
    assert make(np.float32(2.5))._array.shape == () and make(x._array)._array is x._array


def test_steps_do_not_warn_and_leave_numpy_as_it_is() -> None:
    with np.errstate(all="raise"):
        x = T.tensor([0.0, -1.0])
        for _ in range(100):
            out = x.log() / 0.0
        assert out.isnan().any() or out.isinf().any()
        with pytest.raises(FloatingPointError):
            np.log(np.array([-1.0]))


def test_steps_leave_no_references_behind() -> None:
    x, y, c = T.ones(3), T.ones(3), T.ones(3) > 0
    for _ in range(100):
        x * y, x * 2.0, x.neg(), x[1:], x.detach(), T.where(c, x, 0.0), T.nn.functional.mish(x)
    held = [x._array, y._array, x, y, c._array, np.dtype(np.float32), T.Tensor, np.ndarray]
    before = [sys.getrefcount(o) for o in held]
    for _ in range(1000):
        x * y, x * 2.0, x.neg(), x[1:], x.detach(), T.where(c, x, 0.0), T.nn.functional.mish(x)
    assert all(abs(sys.getrefcount(o) - n) < 20 for o, n in zip(held, before, strict=True))


def test_large_operands_let_other_threads_run() -> None:
    x = T.ones(1 << 20)
    results: list[float] = []

    def work() -> None:
        for _ in range(40):
            results.append(float((x * 2.0)[-1]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2.0] * 120


def test_loops_of_ufuncs_are_told_by_their_types() -> None:
    loops = ufunc_loops(np.add)
    assert {"ff->f", "dd->d", "ll->l"} <= set(loops) and loops["ff->f"][0] != loops["dd->d"][0]
    assert ufunc_loops(np.matmul) == {}


def test_a_step_whose_loop_does_not_agree_with_numpy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = ufunc_loops(np.subtract)
    monkeypatch.setattr(eager_steps, "ufunc_loops", lambda ufunc: loops)
    assert kernels.step(eager._OWNERS, np.add, [np.dtype(np.float32)], True) is None


def test_operations_do_without_steps_where_objects_are_not_known() -> None:
    text = """
from tracejit.cpython import c_api, eager_steps
c_api.supported = lambda: False
import tracejit as T
x = T.ones(3, requires_grad=True)
for _ in range(100):
    out = (T.where(x > 0, x * 2.0, 0.0)[1:] + 1.0).sum()
out.backward()
assert x.grad.tolist() == [0.0, 2.0, 2.0]
from tracejit.core.op import REGISTRY
assert REGISTRY["mul"].step is None
"""
    subprocess.run([sys.executable, "-c", text], check=True)
