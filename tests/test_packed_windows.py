"""Convolutions by kernels that fill panels from images: sums, bits, special values, memory, threads, programs."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit.core import convolutions, dtypes
from tracejit.core.convolutions import Geometry
from tracejit.core.shapes import contiguous
from tracejit.llvm import convolution_tasks, driver, window_text
from tracejit.llvm import convolutions as kernels
from tracejit.loops.numba_library import convolve

F = T.nn.functional
pytestmark = pytest.mark.skipif(not convolutions.are_installed(), reason="these kernels need vectors of 512 bits")

Shape = tuple[int, ...]
ROUTINES = ("forward", "input", "weight")


def results_shape(shape: Shape, weight: Shape, low: Shape, high: Shape, steps: Shape, gaps: Shape) -> Shape:
    sizes = [
        (n + a + b - g * (k - 1) - 1) // s + 1
        for n, k, a, b, s, g in zip(shape[2:], weight[2:], low, high, steps, gaps, strict=True)
    ]
    return shape[0], weight[0], *sizes


def arrays(dtype: Any, seed: int, *shapes: Shape) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def summed(routine: str, shapes: Any, first: np.ndarray, second: np.ndarray, geometry: Geometry) -> np.ndarray:
    """The same in float64, tap by tap, from the same words."""
    made = convolutions.places(routine)[2]
    out = np.zeros(shapes[made])
    _, calls = convolutions.calls(routine, shapes, tuple(map(contiguous, shapes)), geometry)  # type: ignore[arg-type]
    a, b = (first, second) if routine == "weight" else (second, first)
    for call in calls:
        convolve(call.kernel, a.astype(float).ravel(), b.astype(float).ravel(), out.reshape(-1)[call.offset :], call.words)
    return out


@st.composite
def cases(draw: Any) -> Any:
    rank = draw(st.integers(1, 3))
    dims = [
        draw(
            st.tuples(
                st.integers(1, 9), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3), st.integers(1, 2)
            )
        )
        for _ in range(rank)
    ]
    sizes = [max(n, g * (k - 1) + 1 - a - b, 1) for n, k, a, b, _, g in dims]
    kernel, low, high, steps, gaps = (tuple(d[i] for d in dims) for i in range(1, 6))
    groups, channels, rows = draw(st.sampled_from([(1, 1, 1), (1, 3, 5), (2, 2, 3), (3, 1, 1), (2, 1, 2), (1, 17, 20)]))
    shape, weight = (draw(st.integers(1, 3)), channels * groups, *sizes), (rows * groups, channels, *kernel)
    return shape, weight, low, high, Geometry(steps, low, gaps, groups)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(ROUTINES), st.sampled_from([np.float32, np.float64]))
def test_convolutions_and_their_gradients_are_within_the_bound_of_their_sums(case: Any, routine: str, dtype: Any) -> None:
    shape, weight, low, high, geometry = case
    shapes = shape, weight, results_shape(shape, weight, low, high, geometry.steps, geometry.gaps)
    one, other = (shapes[place] for place in convolutions.places(routine)[:2])
    first, second = arrays(dtype, 0, one, other)
    found = convolutions.computed(routine, shapes, first, second, geometry)
    expected = summed(routine, shapes, first, second, geometry)
    bound = summed(routine, shapes, abs(first), abs(second), geometry)
    terms = 1 + max(np.prod(shapes[1][1:]), shapes[2][0] * np.prod(shapes[2][2:]), np.prod(shapes[1]))
    assert found.dtype == dtype
    assert (abs(found - expected) <= terms * np.finfo(dtype).eps * bound).all()


LARGE = [
    ((3, 40, 19, 17), (70, 40, 3, 3), Geometry((1, 1), (1, 1), (1, 1), 1)),
    ((9, 390, 4, 4), (400, 390, 1, 1), Geometry((1, 1), (0, 0), (1, 1), 1)),
    ((2, 8, 30, 33), (16, 4, 5, 3), Geometry((2, 1), (2, 0), (1, 2), 2)),
    ((8, 97, 24, 32), (97, 1, 3, 3), Geometry((1, 1), (1, 1), (1, 1), 97)),
    ((1, 2, 60), (3, 2, 33), Geometry((1,), (16,), (1,), 1)),
]


@pytest.mark.parametrize("routine", ROUTINES)
@pytest.mark.parametrize(("shape", "weight", "geometry"), LARGE)
def test_sizes_beyond_one_block_are_right_with_the_same_bits_for_any_number_of_threads(
    shape: Shape, weight: Shape, geometry: Geometry, routine: str
) -> None:
    shapes = shape, weight, results_shape(shape, weight, geometry.low, geometry.low, geometry.steps, geometry.gaps)
    one, other = (shapes[place] for place in convolutions.places(routine)[:2])
    first, second = arrays(np.float32, 1, one, other)
    before, found = T.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            T.set_num_threads(threads)
            found.append(convolutions.computed(routine, shapes, first, second, geometry))
    finally:
        T.set_num_threads(before)
    expected = summed(routine, shapes, first, second, geometry)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5 * abs(expected).max())
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_the_windows_that_hold_it_and_no_others(value: float) -> None:
    (x, weight) = arrays(np.float32, 2, (2, 3, 9, 11), (4, 3, 3, 3))
    x[1, 2, 4, 5] = value
    out = F.conv2d(T.from_numpy(x), T.from_numpy(weight), padding=1).numpy()
    expected = np.zeros(out.shape, bool)
    expected[1, :, 3:6, 4:7] = True
    assert (np.isfinite(out) == ~expected).all()


@pytest.mark.parametrize("routine", ROUTINES)
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("shape", "weight", "geometry"),
    [
        ((2, 3, 5, 7), (4, 3, 3, 3), Geometry((1, 1), (1, 1), (1, 1), 1)),
        ((1, 2, 6, 16), (3, 2, 1, 1), Geometry((1, 1), (0, 0), (1, 1), 1)),
        ((2, 4, 9, 5), (4, 1, 3, 3), Geometry((2, 1), (1, 1), (1, 1), 4)),
    ],
)
def test_nothing_is_read_or_written_beyond_the_arrays(
    shape: Shape, weight: Shape, geometry: Geometry, at_end: bool, routine: str
) -> None:
    shapes = shape, weight, results_shape(shape, weight, geometry.low, geometry.low, geometry.steps, geometry.gaps)
    places = convolutions.places(routine)
    values = arrays(np.float32, 3, *(shapes[place] for place in places[:2]))
    expected = convolutions.computed(routine, shapes, *values, geometry)  # type: ignore[call-arg]
    walled = [_beside_a_wall(shapes[place], at_end) for place in places]
    for (array, _), value in zip(walled, values, strict=False):
        array[...] = value
    out = walled[2][0]
    out[...] = 0
    clears, calls = convolutions.calls(routine, shapes, tuple(map(contiguous, shapes)), geometry)  # type: ignore[arg-type]
    first, second = walled[0][0].ctypes.data, walled[1][0].ctypes.data
    a, b = (first, second) if routine == "weight" else (second, first)
    for call in calls:
        words = np.array(call.words, np.int64)
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(_address(call.kernel))
        function(a, b, out.ctypes.data + 4 * call.offset, words.ctypes.data)
    assert not clears
    np.testing.assert_array_equal(out, expected)


def _address(kernel: str) -> int:
    name = convolution_tasks.symbol(dtypes.float32, kernel)
    return kernels.symbols([name])[name]


def _beside_a_wall(shape: Shape, at_end: bool) -> tuple[np.ndarray, mmap.mmap]:
    """An array that ends, or begins, where memory may not be touched."""
    page = mmap.PAGESIZE
    size = int(np.prod(shape)) * 4
    room = -(-size // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    for wall in (address, address + page + room):
        assert protect(ctypes.c_void_p(wall), ctypes.c_size_t(page), 0) == 0
    offset = page + (room - size if at_end else 0)
    return np.ndarray(shape, np.float32, memory, offset), memory


def step(x: Any, weight: Any, bias: Any, factors: Any, **arguments: Any) -> list[Any]:
    out = getattr(F, f"conv{x.ndim - 2}d")(x, weight, bias, **arguments)
    return [out.detach(), *T.autograd.grad((out * factors).sum(), [x, weight, bias])]


@pytest.mark.parametrize(
    ("shape", "weight", "arguments"),
    [
        ((2, 3, 8, 9), (5, 3, 3, 3), {"padding": 1}),
        ((2, 4, 8, 9), (6, 2, 3, 2), {"stride": 2, "groups": 2, "padding": 1}),
        ((2, 4, 8, 9), (4, 1, 3, 3), {"padding": 1, "groups": 4}),
        ((2, 3, 10), (4, 3, 1), {"stride": 3}),
        ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"dilation": (1, 1, 2)}),
    ],
)
def test_programs_have_the_bits_of_eager_convolutions(shape: Shape, weight: Shape, arguments: dict[str, Any]) -> None:
    tensors = [T.from_numpy(a).requires_grad_() for a in arrays(np.float32, 4, shape, weight, weight[:1])]
    out = getattr(F, f"conv{len(shape) - 2}d")(*tensors, **arguments)
    factors = T.from_numpy(arrays(np.float32, 5, tuple(out.shape))[0])
    expected = step(*tensors, factors, **arguments)
    compiled = T.compile(lambda *given: step(*given, **arguments))
    for _ in range(2):
        found = compiled(*tensors, factors)
    assert compiled.stats.compiled_calls == 1
    for one, other in zip(found[:3], expected[:3], strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()
    np.testing.assert_allclose(found[3].numpy(), expected[3].numpy(), rtol=1e-5, atol=1e-5)


def test_operands_that_do_not_lie_in_order_are_read_as_they_are_meant() -> None:
    x, weight = arrays(np.float64, 6, (7, 6, 5, 4), (3, 3, 2, 2))
    views = [
        (T.from_numpy(x)[1:5, 1:4], T.from_numpy(weight)),
        (T.from_numpy(x).permute(0, 1, 3, 2)[:, ::2], T.from_numpy(weight).transpose(0, 1)),
    ]

    def conv(x: Any, weight: Any) -> Any:
        return F.conv2d(x, weight, padding=1)

    for tensor, kernel in views:
        expected = conv(tensor.contiguous(), kernel.contiguous()).numpy()
        compiled = T.compile(conv)
        for _ in range(2):
            np.testing.assert_array_equal(compiled(tensor, kernel).numpy(), expected)
        np.testing.assert_array_equal(conv(tensor, kernel).numpy(), expected)


def test_convolutions_of_other_sizes_need_no_other_machine_code() -> None:
    def conv(x: Any, weight: Any) -> Any:
        return F.conv2d(x, weight, padding=1)

    def run(channels: int, size: int, kernel: int) -> None:
        compiled = T.compile(conv)
        for _ in range(2):
            compiled(T.ones((2, channels, size, size)), T.ones((4, channels, kernel, kernel)))
        assert compiled.stats.compiled_calls == 1

    run(3, 8, 3)
    before = driver.compilations()
    run(5, 11, 5)
    run(7, 6, 1)
    assert driver.compilations() == before


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_kernels_are_told_that_the_positions_of_an_image_lie_side_by_side(rank: int) -> None:
    shapes = (2, 3, *(4, 5, 6)[:rank]), (7, 3, *(1,) * rank), (2, 7, *(4, 5, 6)[:rank])
    geometry = Geometry((1,) * rank, (0,) * rank, (1,) * rank, 1)
    (call,) = convolutions.calls("forward", shapes, tuple(map(contiguous, shapes)), geometry)[1]  # type: ignore[arg-type]
    words = dict(zip(convolutions.WORDS, call.words, strict=False))
    assert words["target.x"] == 1 and words["target.y"] == words["count.x"]
    assert words["target.z"] == words["count.y"] * words["count.x"]


def test_sizes_that_vary_are_served_with_the_bits_of_exact_ones() -> None:
    (weight,) = arrays(np.float32, 7, (4, 3, 3, 3))

    def conv(x: Any, weight: Any) -> Any:
        out = F.conv2d(x, weight, stride=2, padding=1)
        return [out.detach(), *T.autograd.grad(out.sum(), [x, weight])]

    varying, w = T.compile(conv), T.from_numpy(weight).requires_grad_()
    for batch in (2, 3, 5, 4):
        x = T.from_numpy(arrays(np.float32, batch, (batch, 3, 7, 8))[0]).requires_grad_()
        for one, other in zip(varying(x, w), conv(x, w), strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
    assert varying.stats.compiled_calls >= 1


def test_convolutions_that_repeat_themselves_are_written_a_few_times() -> None:
    (weight,) = arrays(np.float32, 11, (3, 3, 3, 3))

    def deep(x: Any, weight: Any) -> Any:
        for _ in range(40):
            x = F.conv2d(x, weight, padding=1).tanh()
        return x

    x, w = T.from_numpy(arrays(np.float32, 12, (1, 3, 5, 6))[0]), T.from_numpy(weight / 8)  # no step makes differences greater
    compiled = T.compile(deep)
    with T.config.override(compile_wait=float("inf")):
        for _ in range(2):
            found = compiled(x, w)
    np.testing.assert_allclose(found.numpy(), deep(x, w).numpy(), rtol=0, atol=1e-5)
    (executable,) = compiled.stats.executables
    assert executable.program.llvm().count("call void @tracejit_windows_s_product") < 10


def test_gradients_of_gradients_go_through_the_same_kernels() -> None:
    tensors = [T.from_numpy(a).requires_grad_() for a in arrays(np.float64, 8, (2, 2, 5, 4), (4, 1, 3, 2), (4,))]
    assert T.autograd.gradgradcheck(lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=1, groups=2), tensors)
    single = [T.from_numpy(a).requires_grad_() for a in arrays(np.float64, 9, (2, 3, 4), (3, 2, 3))]
    assert T.autograd.gradgradcheck(lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1), single)


def test_without_memory_of_their_own_tasks_have_the_spare_one() -> None:
    shape, weight, geometry = LARGE[0]
    shapes = shape, weight, results_shape(shape, weight, geometry.low, geometry.low, geometry.steps, geometry.gaps)
    first, second = arrays(np.float32, 10, shape, weight)
    expected = convolutions.computed("forward", shapes, first, second, geometry)
    asked: list[int] = []
    none = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(lambda size: asked.append(size))
    functions = kernels.linked(dtypes.float32, allocate=ctypes.cast(none, ctypes.c_void_p).value)
    (call,) = convolutions.calls("forward", shapes, tuple(map(contiguous, shapes)), geometry)[1]  # type: ignore[arg-type]
    out, words = np.empty(shapes[2], np.float32), np.array(call.words, np.int64)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(functions[convolution_tasks.symbol(dtypes.float32, call.kernel)])
    for _ in range(2):
        function(second.ctypes.data, first.ctypes.data, out.ctypes.data, words.ctypes.data)
        np.testing.assert_array_equal(out, expected)
    assert asked


def test_a_task_has_room_for_the_columns_of_a_stretch_in_either_dtype() -> None:
    """The gradient of the weight goes over as many columns at a time; its memory is not that of any array."""
    for dtype in (dtypes.float32, dtypes.float64):
        assert window_text.GROUP // dtype.itemsize >= window_text.STRETCH
