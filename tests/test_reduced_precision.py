"""float16 and bfloat16: stored as such, computed with in float32 and rounded; against PyTorch, and compiled against eager."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from against_torch import torch

import tracejit as T
import tracejit.nn.functional as F
from tracejit.config import override
from tracejit.serialization import load_safetensors, save_safetensors

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
NAMES = ["float16", "bfloat16"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return str(request.param)


def maker(lib: Any, name: str) -> Any:
    """The same numbers for each library, in the order of the calls: t(2, 3) of the dtype, t(2, 3, dtype=...) of another."""
    random = np.random.default_rng(0)

    def t(*shape: int, dtype: str = name) -> Any:
        return lib.tensor(random.standard_normal(shape).astype(np.float32).tolist(), dtype=lib.float32).to(getattr(lib, dtype))

    return t


CASES: dict[str, Any] = {
    "add": lambda L, F, t: t(3, 4) + t(3, 4),
    "add_alpha": lambda L, F, t: L.sub(t(3, 4), t(3, 4), alpha=0.3),
    "a_number": lambda L, F, t: t(3, 4) * 0.1,
    "div": lambda L, F, t: t(3, 4) / t(4),
    "pow": lambda L, F, t: t(3, 4).abs() ** 1.5,
    "exp": lambda L, F, t: t(3, 4).exp(),
    "log": lambda L, F, t: t(3, 4).abs().log(),
    "tanh": lambda L, F, t: t(3, 4).tanh(),
    "sigmoid": lambda L, F, t: t(3, 4).sigmoid(),
    "erf": lambda L, F, t: t(3, 4).erf(),
    "rsqrt": lambda L, F, t: t(3, 4).abs().rsqrt(),
    "round": lambda L, F, t: (t(3, 4) * 10).round(),
    "comparison": lambda L, F, t: t(3, 4) > t(3, 4),
    "comparison_with_the_rounded_number": lambda L, F, t: (t(3, 4) * 0 + 0.1) == 0.1,
    "remainder_of_the_rounded_number": lambda L, F, t: t(3, 4) % 0.3,
    "where": lambda L, F, t: L.where(t(3, 4) > 0, t(3, 4), 0.3),
    "clamp": lambda L, F, t: t(3, 4).clamp(-0.3, 0.7),
    "sum": lambda L, F, t: t(300, 4).sum(0),
    "mean": lambda L, F, t: t(300, 4).mean(),
    "mean_whose_sum_overflows": lambda L, F, t: (t(300).abs() + 1000).mean(),
    "var": lambda L, F, t: t(300, 4).var(0),
    "prod": lambda L, F, t: t(5).prod(),
    "amax": lambda L, F, t: t(3, 4).amax(1),
    "argmax": lambda L, F, t: t(3, 4).argmax(1),
    "cumsum": lambda L, F, t: t(30, 4).cumsum(0),
    "norm": lambda L, F, t: t(30, 4).norm(),
    "logsumexp": lambda L, F, t: t(30, 4).logsumexp(0),
    "sum_in_float32": lambda L, F, t: t(30, 4).sum(dtype=L.float32),
    "matmul": lambda L, F, t: t(3, 40) @ t(40, 2),
    "bmm": lambda L, F, t: L.bmm(t(2, 3, 40), t(2, 40, 2)),
    "addmm": lambda L, F, t: L.addmm(t(3, 2), t(3, 40), t(40, 2)),
    "einsum": lambda L, F, t: L.einsum("ij,jk->ik", t(3, 40), t(40, 2)),
    "linear": lambda L, F, t: F.linear(t(3, 40), t(2, 40), t(2)),
    "conv2d": lambda L, F, t: F.conv2d(t(1, 3, 6, 6), t(4, 3, 3, 3), t(4)),
    "attention": lambda L, F, t: F.scaled_dot_product_attention(t(2, 3, 8), t(2, 5, 8), t(2, 5, 8)),
    "softmax": lambda L, F, t: t(3, 40).softmax(-1),
    "softmax_in_float32": lambda L, F, t: L.softmax(t(3, 40), dim=0, dtype=L.float32),
    "log_softmax": lambda L, F, t: t(3, 40).log_softmax(-1),
    "layer_norm": lambda L, F, t: F.layer_norm(t(3, 40), (40,), t(40), t(40)),
    "layer_norm_with_float32_weights": lambda L, F, t: F.layer_norm(
        t(3, 40), (40,), t(40, dtype="float32"), t(40, dtype="float32")
    ),
    "group_norm": lambda L, F, t: F.group_norm(t(2, 4, 5), 2, t(4), t(4)),
    "rms_norm": lambda L, F, t: F.rms_norm(t(3, 40), (40,)),
    "gelu": lambda L, F, t: F.gelu(t(3, 4)),
    "silu": lambda L, F, t: F.silu(t(3, 4)),
    "silu_in_place": lambda L, F, t: F.silu(t(3, 4), inplace=True),
    "softplus": lambda L, F, t: F.softplus(t(3, 4)),
    "relu": lambda L, F, t: F.relu(t(3, 4)),
    "cross_entropy": lambda L, F, t: F.cross_entropy(t(3, 4), L.tensor([0, 1, 2])),
    "mse_loss": lambda L, F, t: F.mse_loss(t(3, 4), t(3, 4)),
    "bce_with_logits": lambda L, F, t: F.binary_cross_entropy_with_logits(t(3, 4), t(3, 4).sigmoid()),
    "cat": lambda L, F, t: L.cat([t(3, 4), t(2, 4)]),
    "cat_with_float32": lambda L, F, t: L.cat([t(3, 4), t(2, 4, dtype="float32")]),
    "gather": lambda L, F, t: t(3, 4).gather(1, L.tensor([[0], [1], [2]])),
    "index_add": lambda L, F, t: t(3, 4).index_add(0, L.tensor([0, 0]), t(2, 4)),
    "sort": lambda L, F, t: t(30).sort()[0],
    "avg_pool2d": lambda L, F, t: F.avg_pool2d(t(1, 2, 6, 6), 2),
    "max_pool2d": lambda L, F, t: F.max_pool2d(t(1, 2, 6, 6), 2),
    "interpolate": lambda L, F, t: F.interpolate(t(1, 2, 6, 6), scale_factor=2, mode="bilinear"),
    "embedding": lambda L, F, t: F.embedding(L.tensor([0, 2]), t(4, 3)),
    "with_float32": lambda L, F, t: t(3, 4) + t(3, 4, dtype="float32"),
    "with_a_dimensionless_float32": lambda L, F, t: t(3, 4) * t(dtype="float32"),
    "with_integers": lambda L, F, t: t(3, 4) * L.tensor([1, 2, 3, 4]),
    "to_integers": lambda L, F, t: (t(3, 4) * 3).long(),
    "full": lambda L, F, t: L.full((2,), 0.1, dtype=t(1).dtype),
    "arange": lambda L, F, t: L.arange(0, 1, 0.1, dtype=t(1).dtype),
    "linspace": lambda L, F, t: L.linspace(0, 1, 7, dtype=t(1).dtype),
    "nan_to_num": lambda L, F, t: (t(3, 4) / 0).nan_to_num(),
    "lerp": lambda L, F, t: L.lerp(t(3, 4), t(3, 4), 0.3),
    "number_inside": lambda L, F, t: L.tensor(t().item()),
}


def close(found: Any, expected: Any, name: str, ulps: float) -> None:
    assert str(found.dtype).partition(".")[2] == str(expected.dtype).partition(".")[2]
    x, y = found.double().numpy(), expected.double().numpy()
    np.testing.assert_allclose(x, y, rtol=ulps * EPSILON[name], atol=ulps * EPSILON[name] * 1e-2)


@pytest.mark.parametrize("case", CASES)
def test_dtype_and_value_are_pytorchs(case: str, name: str) -> None:
    lib = torch()
    expected = CASES[case](lib, lib.nn.functional, maker(lib, name))
    close(CASES[case](T, F, maker(T, name)), expected, name, 2.5)


@pytest.mark.parametrize("a", [d.name for d in T.core.dtypes.ALL])
@pytest.mark.parametrize("b", NAMES)
def test_promotion_is_pytorchs(a: str, b: str) -> None:
    lib = torch()
    assert (
        T.promote_types(*(getattr(T, n) for n in (a, b))).name == str(lib.promote_types(*(getattr(lib, n) for n in (a, b))))[6:]
    )


@pytest.mark.parametrize("b", NAMES)
def test_limits_are_pytorchs(b: str) -> None:
    lib = torch()
    ours, theirs = T.finfo(getattr(T, b)), lib.finfo(getattr(lib, b))
    for limit in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution"):
        assert getattr(ours, limit) == getattr(theirs, limit), limit


GRADIENTS: dict[str, Any] = {
    "arithmetic": lambda L, F, x, w: (x * 0.3 + x.exp() / 2 - x).sum(),
    "product": lambda L, F, x, w: (x @ w).relu().mean(),
    "softmax": lambda L, F, x, w: (x.softmax(-1) * x).sum(),
    "norm": lambda L, F, x, w: (F.layer_norm(x, (4,), w[:, 0]) * x).sum(),
    "views": lambda L, F, x, w: (x[1:, ::2].T.reshape(-1) * w.reshape(-1)[:4]).sum(),
    "expanded": lambda L, F, x, w: (w[0].expand(5, 2) * w[0]).sum(),
    "index": lambda L, F, x, w: x[L.tensor([0, 0, 1, 0])].sum(),
    "float32_inside": lambda L, F, x, w: (x.float() * 1.5).sum() + w.sum(),
    "loss": lambda L, F, x, w: F.cross_entropy(x, L.tensor([0, 1, 3])),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_have_the_dtype_of_their_tensors_and_pytorchs_values(case: str, name: str) -> None:
    lib = torch()
    found = []
    for library, functions in ((T, F), (lib, lib.nn.functional)):
        t = maker(library, name)
        x, w = t(3, 4).requires_grad_(), t(4, 2).requires_grad_()
        GRADIENTS[case](library, functions, x, w).backward()
        found.append([v.grad for v in (x, w) if v.grad is not None])
    assert len(found[0]) == len(found[1]) > 0
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype.name == name
        np.testing.assert_allclose(ours.double().numpy(), theirs.double().numpy(), rtol=6 * EPSILON[name], atol=6 * EPSILON[name])


PROGRAMS: dict[str, Any] = {
    "arithmetic": lambda x, w: (x * 0.3 + x.exp()) / 2,
    "chain": lambda x, w: ((x + 1.7) * x - x).tanh().abs().sqrt(),
    "product": lambda x, w: (x @ w).relu(),
    "softmax": lambda x, w: x.softmax(-1),
    "reductions": lambda x, w: (x.sum(0), x.mean(), x.amax(1), x.argmax(1), x.var()),
    "movement": lambda x, w: (T.cat([x, x.flip(0)])[1:, ::2], F.pad(x.T, (1, 2), value=0.1), x.clone()),
    "choices": lambda x, w: (T.where(x > 0.1, x, -0.1), x == x, x.clamp(-0.1, 0.1)),
    "conversions": lambda x, w: (x.float(), x.double(), x.long(), x.bool(), x.half(), x.int().to(x.dtype)),
    "numbers": lambda x, w: (T.full((3,), 0.1, dtype=x.dtype), T.arange(0, 1, 0.25, dtype=x.dtype), x.new_zeros(2)),
    "indexing": lambda x, w: (
        x[T.tensor([0, 2, 0])],
        x.index_add(0, T.tensor([0, 0]), x[:2]),
        x.gather(1, T.tensor([[3], [0], [1]])),
    ),
    "scan": lambda x, w: x.cumsum(1),
    "norm": lambda x, w: F.layer_norm(x, (4,), w[:, 0]),
    "sorted": lambda x, w: x.sort(1)[0],
}


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_compiled_program_is_the_eager_one(program: str, name: str, backend: str) -> None:
    function, t = PROGRAMS[program], maker(T, name)
    x, w = t(3, 4).requires_grad_(), t(4, 2).requires_grad_()
    with override(backend=backend):
        compiled = T.compile(function)
        compiled(x, w)
        found = compiled(x, w)
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    gradients = []
    for outputs in (found, function(x, w)):
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        gradients.append([(o.dtype, o.detach().double().numpy()) for o in outputs])
        total = [o.double().sum() for o in outputs if o.requires_grad]
        if total:
            sum(total[1:], total[0]).backward()
            gradients[-1] += [(g.dtype, g.double().numpy()) for g in (v.grad for v in (x, w)) if g is not None]
        x.grad = w.grad = None
    assert len(gradients[0]) == len(gradients[1])
    for (d, a), (e, b) in zip(*gradients, strict=True):
        assert d is e
        np.testing.assert_allclose(a, b, rtol=EPSILON[name], atol=EPSILON[name] * 1e-2)


def test_machine_code_converts_every_number_as_eager_does(name: str) -> None:
    dtype = getattr(T, name)
    everything = T.from_numpy(np.arange(65536, dtype=np.uint16).view(dtype.numpy))
    widen = T.compile(lambda x: (x.float(), x.double(), x.bool(), x * 1.0))
    bits = np.arange(65536, dtype=np.uint32) << 16
    ties = np.concatenate([bits + n for n in (0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    floats = T.from_numpy(ties.astype(np.uint32).view(np.float32))
    narrow = T.compile(
        lambda x: (x.to(dtype), x.double().to(dtype), (x.nan_to_num(0.0, 9.0, -9.0).clamp(-1e5, 1e5)).int().to(dtype))
    )
    for compiled, argument in ((widen, everything), (narrow, floats)):
        expected = compiled(argument)
        found = compiled(argument)
        assert compiled.stats.machine_calls >= 1
        for a, b in zip(expected, found, strict=True):
            assert a.dtype is b.dtype
            a, b = a.double().numpy(), b.double().numpy()
            np.testing.assert_array_equal(a, b)  # NaN where NaN is
            np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


@pytest.mark.parametrize("optimizer", [lambda p: T.optim.SGD(p, 0.1, momentum=0.9), lambda p: T.optim.Adam(p, 1e-2, eps=1e-3)])
def test_a_compiled_training_step_of_a_converted_model_is_the_eager_one(optimizer: Any, name: str) -> None:
    losses = []
    for compiled in (False, True):
        T.manual_seed(0)
        model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.BatchNorm1d(8), T.nn.ReLU(), T.nn.Linear(8, 2)).to(getattr(T, name))
        assert model[1].running_mean.dtype.name == name
        x, step = T.randn(6, 4).to(getattr(T, name)), optimizer(model.parameters())

        def train(model: Any = model, x: Any = x, step: Any = step) -> Any:
            step.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            step.step()
            return loss

        call = T.compile(train) if compiled else train
        losses.append([call().item() for _ in range(5)] + [p.dtype.name for p in model.parameters()])
        if compiled:
            assert call.stats.compiled_calls >= 3, call.explain()
    assert losses[0][5:] == losses[1][5:]
    np.testing.assert_allclose(losses[0][:5], losses[1][:5], rtol=4 * EPSILON[name])
    assert losses[1][4] < losses[1][0]


def test_in_place_forms_keep_the_dtype(name: str) -> None:
    x = T.zeros(3, dtype=getattr(T, name))
    x += 1
    x[0] = 0.1
    x.add_(T.tensor([1.0, 2.0, 3.0])).mul_(0.5)
    assert x.dtype.name == name
    np.testing.assert_allclose(x.double().numpy(), [0.55, 1.5, 2.0], rtol=EPSILON[name])


def test_methods_and_functions_that_convert(name: str) -> None:
    x = T.tensor([1.5, -2.0])
    short = {"float16": "half", "bfloat16": "bfloat16"}[name]
    y = getattr(x, short)()
    assert y.dtype is getattr(T, name) is x.to(getattr(T, name)).dtype
    assert getattr(T.nn.Linear(2, 2), short)().weight.dtype.name == name
    assert y.float().tolist() == [1.5, -2.0]
    assert repr(y) == f"tensor([ 1.5000, -2.0000], dtype=tracejit.{name})"
    assert y.element_size() == 2 and y.is_floating_point() and y.type().startswith("tracejit.")
    assert T.half is T.float16


def test_arrays_and_files_hold_them(name: str) -> None:
    x = maker(T, name)(3, 4)
    assert T.from_numpy(x.numpy()).dtype is x.dtype is T.tensor(x.numpy()).dtype
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.dtype is x.dtype and T.equal(x, y)
    file = io.BytesIO()
    T.save({"x": x, "dtype": x.dtype}, file)
    file.seek(0)
    loaded = T.load(file)
    assert loaded["dtype"] is x.dtype and T.equal(loaded["x"], x)
    file = io.BytesIO()
    save_safetensors({"x": x}, file)
    file.seek(0)
    assert T.equal(load_safetensors(file)["x"], x)


def test_files_of_pytorch_hold_them(name: str) -> None:
    lib = torch()
    x = maker(lib, name)(5)
    file = io.BytesIO()
    lib.save({"x": x}, file)
    file.seek(0)
    loaded = T.load(file)["x"]
    assert loaded.dtype.name == name and loaded.tolist() == x.tolist()


def test_random_numbers(name: str) -> None:
    dtype = getattr(T, name)
    T.manual_seed(0)
    u = T.rand(4000, dtype=dtype)
    assert u.dtype is dtype and u.min().item() >= 0.0 and u.max().item() < 1.0
    for fill in ("normal_", "uniform_", "exponential_", "cauchy_", "random_"):
        assert getattr(T.empty(5, dtype=dtype), fill)().dtype is dtype
    kept = F.dropout(T.ones(40000, dtype=dtype), 0.1)
    assert kept.dtype is dtype
    assert (kept != 0).float().mean().item() == pytest.approx(0.9, abs=0.01)  # 230 / 256 is not 0.9: p is not rounded to bfloat16


def test_without_its_package_bfloat16_names_the_extra() -> None:
    program = """
import sys
sys.modules["ml_dtypes"] = None
import tracejit as T
assert T.finfo(T.bfloat16).eps == 2.0 ** -7 and T.promote_types(T.bfloat16, T.float16) is T.float32
assert T.ones(2, dtype=T.float16).sum().item() == 2.0
try:
    T.ones(2).bfloat16()
except RuntimeError as error:
    assert "tracejit[bfloat16]" in str(error), error
else:
    raise AssertionError("a tensor of bfloat16")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
