"""PyTorch's own samples of its operators, run through this library: values, dtypes and gradients compared with PyTorch's.

Needs torch and expecttest (for torch.testing's operator database); skipped without them.
"""

from __future__ import annotations

import inspect
import itertools
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracejit

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 3
_TEXT = """
abs neg sign sqrt rsqrt square reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh
acosh atanh sigmoid erf erfc floor ceil round trunc isnan isinf isfinite signbit nan_to_num add sub mul div true_divide
floor_divide remainder fmod pow atan2 maximum minimum fmax fmin logaddexp lerp addcmul addcdiv eq ne lt le gt ge logical_and
logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift clamp
where masked_fill copysign hypot xlogy heaviside __getitem__ __radd__ __rsub__ __rmul__ __rdiv__ __rpow__ __rmod__ sum nansum
mean prod var std amax amin aminmax max min argmax argmin all any count_nonzero logsumexp cumsum cumprod norm dist linalg.norm
linalg.vector_norm linalg.matrix_norm median kthvalue gather scatter scatter_add index_select index_add index_put index_fill
index_copy masked_select take_along_dim take nonzero argwhere sort msort argsort searchsorted reshape view flatten ravel
unflatten permute transpose movedim squeeze unsqueeze expand repeat tile repeat_interleave cat stack vstack hstack dstack
column_stack split tensor_split chunk unbind narrow select flip fliplr flipud rot90 roll tril triu trace diag diag_embed
diagonal unfold meshgrid to clone matmul mm bmm mv dot vdot inner outer kron cross addmm addmv baddbmm einsum tensordot
linalg.inv linalg.solve linalg.det linalg.cholesky linalg.slogdet linalg.solve_triangular linalg.matrix_power linalg.multi_dot
linalg.vecdot nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d
nn.functional.conv_transpose2d nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.avg_pool1d
nn.functional.avg_pool2d nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d nn.functional.adaptive_max_pool2d
cummax cummin logcumsumexp quantile nanquantile mode scatter_reduce index_reduce put float_power logaddexp2 ldexp frexp isin isreal
angle conj conj_physical resolve_conj resolve_neg gcd lcm split_with_sizes unsafe_split unsafe_chunk hsplit vsplit dsplit addr addbmm
linalg.pinv linalg.matrix_rank linalg.lstsq unique unique_consecutive diff cov corrcoef histc bincount histogram
zeros ones full eye arange linspace zeros_like ones_like full_like new_zeros new_full cholesky_solve cholesky_inverse renorm
tril_indices triu_indices combinations linalg.tensorinv linalg.tensorsolve linalg.vander linalg.inv_ex linalg.solve_ex gradient
"""
NAMES = frozenset(_TEXT.split())
# What PyTorch leaves open, or does by its own numerics, is not compared: (name, variant) -> why
LEFT_OUT = {
    ("scatter", ""): "reduce='multiply' is not offered",
}
ORDERS = ("sort", "argsort", "kthvalue", "median")  # positions among equal elements are PyTorch's choice: floats only
OPERATORS = [op for op in op_db if op.name in NAMES and (op.name, op.variant_test_name) not in LEFT_OUT]
TOLERANCE = {np.dtype(np.float64): 1e-7, np.dtype(np.float32): 2e-5}
COARSE = {"logcumsumexp": 1e-2}  # PyTorch's error in float32, against its own result in float64


def leaves(x: Any, kind: type) -> Iterator[Any]:
    """The tensors in nested containers, in order."""
    if isinstance(x, kind):
        yield x
    elif isinstance(x, list | tuple):
        for y in x:
            yield from leaves(y, kind)
    elif isinstance(x, dict):
        yield from leaves(list(x.values()), kind)


def translated(x: Any) -> Any:
    """PyTorch's values as this library's; tensors keep their strides and whether they require grad."""
    if isinstance(x, torch.Tensor):
        return tracejit.from_numpy(x.detach().clone().numpy()).requires_grad_(x.requires_grad)
    if isinstance(x, torch.dtype):
        return getattr(tracejit, str(x).split(".")[1])
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, slice):
        return slice(*map(translated, (x.start, x.stop, x.step)))
    if isinstance(x, list | tuple):
        return type(x)(map(translated, x))
    return {k: translated(v) for k, v in x.items()} if isinstance(x, dict) else x


def counterpart(op: Any) -> Any:
    """This library's function for an operator; PyTorch's adapters are run with this library in the place of torch."""
    function = op.op
    if inspect.isfunction(function) and function.__module__.startswith("torch.testing"):
        adapted = types.FunctionType(
            function.__code__,
            {**function.__globals__, "torch": tracejit},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        adapted.__kwdefaults__ = function.__kwdefaults__
        return adapted
    found: Any = tracejit
    for part in op.name.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else getattr(tracejit.Tensor, op.name)


def same(actual: Any, wanted: Any, what: str, name: str) -> None:
    wanted = wanted.detach().numpy()
    actual = actual.detach().numpy()
    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape), what
    tolerance = COARSE.get(name, 0) if wanted.dtype == np.float32 else 0
    tolerance = tolerance or TOLERANCE.get(wanted.dtype, 0)
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance, err_msg=what)


def compare(op: Any, sample: Any) -> None:
    wanted = list(leaves(op(sample.input, *sample.args, **sample.kwargs), torch.Tensor))
    everything = translated([sample.input, list(sample.args), sample.kwargs])
    actual = list(leaves(counterpart(op)(everything[0], *everything[1], **everything[2]), tracejit.Tensor))
    assert len(actual) == len(wanted)
    for i, (a, w) in enumerate(zip(actual, wanted, strict=True)):
        same(a, w, f"output {i}", op.name)
    given = list(
        zip(leaves(everything, tracejit.Tensor), leaves([sample.input, sample.args, sample.kwargs], torch.Tensor), strict=True)
    )
    positions = [i for i, (a, w) in enumerate(zip(actual, wanted, strict=True)) if a.requires_grad and w.requires_grad]
    inputs = [pair for pair in given if pair[1].requires_grad]
    if not positions or not inputs:
        return
    random = np.random.default_rng(0)
    cotangents = [random.standard_normal(tuple(wanted[i].shape)).astype(wanted[i].detach().numpy().dtype) for i in positions]
    ours = tracejit.autograd.grad(
        [actual[i] for i in positions], [a for a, _ in inputs], [tracejit.tensor(c) for c in cotangents], allow_unused=True
    )
    theirs = torch.autograd.grad(
        [wanted[i] for i in positions], [w for _, w in inputs], list(map(torch.from_numpy, cotangents)), allow_unused=True
    )
    for i, (a, w) in enumerate(zip(ours, theirs, strict=True)):
        if a is not None and w is not None:
            same(a, w, f"gradient {i}", op.name)
        else:
            rest = a if w is None else w
            assert rest is None or not rest.detach().numpy().any(), f"gradient {i} is missing on one side"


def identify(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


@pytest.mark.parametrize("op", OPERATORS, ids=identify)
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_an_operator_agrees_with_torch_on_its_samples(op: Any, layout: str) -> None:
    tried = 0
    for name in ("float64", "float32", "int64", "bool") if layout == "contiguous" else ("float64", "int64"):
        dtype = getattr(torch, name)
        if dtype not in op.dtypes or (op.name in ORDERS and not dtype.is_floating_point):
            continue
        torch.manual_seed(0)
        differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for k, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=bool(differentiable))):
            if k >= SAMPLES:
                break
            compare(op, sample.noncontiguous() if layout == "strided" else sample)
            tried += 1
    assert tried


MEMORY_DIFFERS = {
    "complex": "complex numbers are pairs of tensors",
    "view_as_complex": "complex numbers are pairs of tensors",
    "dropout3d": "whether an input is given back as it is",
    "sum_to_size": "whether what is there already is copied",
    "to": "memory formats have no effect",
}  # fmt: skip
EVERYTHING = [
    op for op in op_db if not op.name.startswith("_") and "fft" not in op.name and op.name.split(".")[-1] not in MEMORY_DIFFERS
]


def shared(result: Any, inputs: list[Any]) -> list[int]:
    """Which inputs have the memory of a result."""
    position = result.untyped_storage().data_ptr()
    return [i for i, x in enumerate(inputs) if x.numel() and x.untyped_storage().data_ptr() == position]


@pytest.mark.parametrize("op", EVERYTHING, ids=identify)
def test_a_result_lies_in_memory_as_pytorchs_does(op: Any) -> None:
    """It shares memory with the same inputs, and what is row-major there, and so can be viewed in any shape, is row-major here."""
    try:
        function = counterpart(op)
    except AttributeError:
        pytest.skip("there is no such function")
    torch.manual_seed(0)
    dtype = torch.float64 if op.supports_dtype(torch.float64, "cpu") else torch.int64
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES):
        try:
            wanted = list(leaves(op(sample.input, *sample.args, **sample.kwargs), torch.Tensor))
            everything = translated([sample.input, list(sample.args), sample.kwargs])
            actual = list(leaves(function(everything[0], *everything[1], **everything[2]), tracejit.Tensor))
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            continue  # what is not supported, or in other dtypes
        given = list(leaves([sample.input, list(sample.args), sample.kwargs], torch.Tensor))
        own = list(leaves(everything, tracejit.Tensor))
        if [x.stride() for x in own] != [x.stride() for x in given]:
            continue  # gaps are not copied
        for a, w in zip(actual, wanted, strict=False):
            if tuple(a.shape) == tuple(w.shape) and w.numel():
                assert not w.is_contiguous() or a.is_contiguous(), (w.stride(), a.stride())
                assert shared(a, own) == shared(w, given)
