"""amp: autocast against PyTorch's lists, as a mode of recordings; GradScaler against PyTorch's on the same gradients."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from against_torch import torch

import tracejit as T
import tracejit.nn.functional as F
from tracejit.amp import GradScaler, autocast, custom_bwd, custom_fwd
from tracejit.utils.checkpoint import checkpoint

LOWERED: dict[str, Any] = {
    "matmul": lambda L, F, a, b: a @ a,
    "matmul_of_a_vector": lambda L, F, a, b: a @ a[0],
    "mm": lambda L, F, a, b: L.mm(a, a),
    "bmm": lambda L, F, a, b: L.bmm(a[None], a[None]),
    "addmm": lambda L, F, a, b: L.addmm(a, a, a),
    "baddbmm": lambda L, F, a, b: L.baddbmm(a[None], a[None], a[None]),
    "linear": lambda L, F, a, b: F.linear(a, a, a[0]),
    "conv1d": lambda L, F, a, b: F.conv1d(a[None], a[None], a[0, :1]),
    "conv_transpose1d": lambda L, F, a, b: F.conv_transpose1d(a[None], a[:, None]),
    "einsum": lambda L, F, a, b: L.einsum("ij,jk", a, a),
    "tensordot": lambda L, F, a, b: L.tensordot(a, a, 1),
    "inner": lambda L, F, a, b: L.inner(a, a),
    "attention": lambda L, F, a, b: F.scaled_dot_product_attention(a, a, a),
    "prelu": lambda L, F, a, b: F.prelu(a, a[0, :1]),
    "float64": lambda L, F, a, b: a.double() @ a.double(),
    "float16_inside": lambda L, F, a, b: a.half() @ a,
}
KEPT: dict[str, Any] = {
    "mse_loss": lambda L, F, a, b: F.mse_loss(b, a),
    "l1_loss": lambda L, F, a, b: F.l1_loss(b, b),
    "smooth_l1_loss": lambda L, F, a, b: F.smooth_l1_loss(b, b),
    "huber_loss": lambda L, F, a, b: F.huber_loss(b, b),
    "cross_entropy": lambda L, F, a, b: F.cross_entropy(b, L.tensor([0, 1, 2])),
    "nll_loss": lambda L, F, a, b: F.nll_loss(b, L.tensor([0, 1, 2])),
    "bce": lambda L, F, a, b: F.binary_cross_entropy(b.sigmoid(), a.sigmoid()),
    "bce_with_logits": lambda L, F, a, b: F.binary_cross_entropy_with_logits(b, a.sigmoid()),
    "kl_div": lambda L, F, a, b: F.kl_div(b, b.sigmoid()),
    "poisson_nll_loss": lambda L, F, a, b: F.poisson_nll_loss(b, b),
    "triplet_margin_loss": lambda L, F, a, b: F.triplet_margin_loss(b, b, b),
    "prod": lambda L, F, a, b: b.prod(),
    "trace": lambda L, F, a, b: b.trace(),
    "cdist": lambda L, F, a, b: L.cdist(b, b),
    "reflected": lambda L, F, a, b: F.pad(b, (1, 1), mode="reflect"),
    "avg_pool3d": lambda L, F, a, b: F.avg_pool3d(b[None, None], 1),
    "svdvals": lambda L, F, a, b: L.linalg.svdvals(b),
    "solve": lambda L, F, a, b: L.linalg.solve(b, b),
    "inv": lambda L, F, a, b: L.linalg.inv(b),
    "inverse": lambda L, F, a, b: b.inverse(),
    "pinverse": lambda L, F, a, b: L.pinverse(b),
}
OTHERS: dict[str, Any] = {
    "softmax": lambda L, F, a, b: b.softmax(-1),
    "softmax_of_float32": lambda L, F, a, b: a.softmax(-1),
    "layer_norm": lambda L, F, a, b: F.layer_norm(b, (3,), a[0], a[0]),
    "group_norm": lambda L, F, a, b: F.group_norm(b, 3, a[0], a[0]),
    "rms_norm": lambda L, F, a, b: F.rms_norm(b, (3,), a[0]),
    "rms_norm_of_float32": lambda L, F, a, b: F.rms_norm(a, (3,), b[0]),
    "batch_norm": lambda L, F, a, b: F.batch_norm(b, a[0].clone(), a[0].abs(), a[0], a[0]),
    "mv": lambda L, F, a, b: L.mv(a, a[0]),
    "outer": lambda L, F, a, b: L.outer(a[0], a[0]),
    "cat": lambda L, F, a, b: L.cat([a, b]),
    "stack": lambda L, F, a, b: L.stack([a, b]),
    "add": lambda L, F, a, b: a + b,
    "gelu": lambda L, F, a, b: F.gelu(b),
    "norm": lambda L, F, a, b: b.norm(),
    "var": lambda L, F, a, b: b.var(),
    "logsumexp": lambda L, F, a, b: b.logsumexp(0),
    "avg_pool2d": lambda L, F, a, b: F.avg_pool2d(b[None], 2),
    "circular": lambda L, F, a, b: F.pad(b, (1, 1), mode="circular"),
    "cosine_similarity": lambda L, F, a, b: F.cosine_similarity(b, b),
    "gaussian_nll_loss": lambda L, F, a, b: F.gaussian_nll_loss(b, a, a.abs()),
    "embedding": lambda L, F, a, b: F.embedding(L.tensor([0]), b),
}
LISTS = {**LOWERED, **KEPT, **OTHERS}


@pytest.fixture(params=["float16", "bfloat16"])
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return str(request.param)


@pytest.mark.parametrize("case", LISTS)
def test_autocast_gives_the_dtypes_of_pytorchs_lists(case: str, name: str) -> None:
    lib = torch()
    numbers = (np.random.default_rng(0).standard_normal((3, 3)) + 3 * np.eye(3)).astype(np.float32).tolist()
    found = []
    for library, functions in ((T, F), (lib, lib.nn.functional)):
        a = library.tensor(numbers)
        with library.autocast("cpu", dtype=getattr(library, name)):
            found.append(LISTS[case](library, functions, a, a.to(getattr(library, name))))
    ours, theirs = found
    assert f"torch.{ours.dtype.name}" == str(theirs.dtype)
    eps = 2.0**-10 if name == "float16" else 2.0**-7
    np.testing.assert_allclose(ours.double().numpy(), theirs.double().numpy(), rtol=8 * eps, atol=8 * eps)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
def test_recurrent_layers_give_pytorchs_dtypes(layer: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    lib = torch()
    found = []
    for library in (T, lib):
        with library.autocast("cpu"):
            given = library.ones(2, 4) if "Cell" in layer else library.ones(5, 2, 4)
            try:
                out = getattr(library.nn, layer)(4, 3)(given.to(getattr(library, dtype)))
            except RuntimeError as error:
                if library is T or "primitive" not in str(error):
                    raise
                pytest.skip("torch has no LSTM of 16 bits for this processor")
        found.append(str((out[0] if isinstance(out, tuple) else out).dtype).partition(".")[2])
    assert found[0] == found[1]


def test_gradients_of_parameters_stay_float32(name: str) -> None:
    w = T.randn(3, 3, requires_grad=True)
    with autocast("cpu", dtype=getattr(T, name)):
        y = T.randn(2, 3) @ w
    y.sum().backward()
    assert y.dtype.name == name and w.grad.dtype is T.float32


def test_contexts_nest_and_disable() -> None:
    a = T.randn(2, 2)
    assert not T.is_autocast_enabled("cpu")
    with autocast("cpu", dtype=T.float16) as context:
        assert isinstance(context, autocast) and T.is_autocast_enabled("cpu") and not T.is_autocast_enabled()
        assert T.get_autocast_dtype("cpu") is T.float16
        with T.autocast("cpu", enabled=False):
            assert (a @ a).dtype is T.float32 and not T.is_autocast_enabled("cpu")
        with context, context:
            assert (a @ a).dtype is T.float16
        assert (a @ a).dtype is T.float16
    assert (a @ a).dtype is T.float32 and T.get_autocast_dtype("cpu") is T.bfloat16
    with pytest.raises(KeyError), autocast("cpu", dtype=T.float16):
        raise KeyError
    assert not T.is_autocast_enabled("cpu")


def test_a_decorated_function_runs_in_the_mode() -> None:
    a = T.randn(2, 2)

    @autocast("cpu", dtype=T.float16)
    def product(x: T.Tensor) -> T.Tensor:
        """Its text."""
        return x @ x

    assert product(a).dtype is T.float16 and (a @ a).dtype is T.float32 and product.__doc__ == "Its text."


def test_other_devices_and_dtypes_disable_it_with_a_warning() -> None:
    a = T.randn(2, 2)
    for make in (lambda: autocast("cuda"), lambda: T.cuda.amp.autocast(), lambda: autocast("cpu", dtype=T.float32)):
        with pytest.warns(UserWarning, match="isabling"):
            context = make()
        with context:
            assert (a @ a).dtype is T.float32
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        autocast("abacus")
    with pytest.raises(ValueError, match="device_type"):
        autocast(T.float16)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        autocast("cuda", enabled=False)


def test_a_recording_holds_in_the_mode_it_was_made_in() -> None:
    model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.LayerNorm(8), T.nn.Linear(8, 2))
    x = T.randn(3, 4)
    compiled = T.compile(lambda x: model(x))
    for _ in range(3):
        for dtype in (None, T.float16):
            with autocast("cpu", dtype=dtype or T.float16, enabled=dtype is not None):
                found, expected = compiled(x), model(x)
            assert found.dtype is expected.dtype is (dtype or T.float32)
            np.testing.assert_allclose(found.detach().double().numpy(), expected.detach().double().numpy(), rtol=1e-5, atol=1e-3)
    assert compiled.stats.traces <= 3 and compiled.stats.compiled_calls >= 3, compiled.explain()


@pytest.mark.parametrize("form", ["context", "decorator"])
def test_a_mode_inside_is_recorded(form: str) -> None:
    model, target = T.nn.Linear(4, 3), T.tensor([0, 1, 2])
    x = T.randn(3, 4)
    if form == "context":

        def loss(x: T.Tensor) -> Any:
            with autocast("cpu", dtype=T.float16):
                out = model(x)
                return F.cross_entropy(out, target), out
    else:

        @autocast("cpu", dtype=T.float16)
        def loss(x: T.Tensor) -> Any:
            out = model(x)
            return F.cross_entropy(out, target), out

    compiled, found = T.compile(loss), []
    for function in (loss, compiled, compiled, compiled):
        model.zero_grad()
        value, out = function(x)
        value.backward()
        assert not T.is_autocast_enabled("cpu")
        assert value.dtype is T.float32 and out.dtype is T.float16
        found.append((value.item(), out.detach().float().numpy(), model.weight.grad.numpy().copy()))
    assert compiled.stats.compiled_calls >= 1, compiled.explain()
    for result in found[1:]:
        for a, b in zip(result, found[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


def test_a_mode_that_a_call_leaves_behind_is_left_behind_by_its_recording() -> None:
    def enter(x: T.Tensor) -> T.Tensor:
        context = autocast("cpu", dtype=T.float16)
        context.__enter__()
        return x @ x

    compiled, x = T.compile(enter), T.randn(2, 2)
    for _ in range(4):
        with autocast("cpu", enabled=False):
            assert compiled(x).dtype is T.float16
            assert T.is_autocast_enabled("cpu")
    assert not T.is_autocast_enabled("cpu")
    assert compiled.stats.compiled_calls >= 1, compiled.explain()


def test_a_checkpoint_computes_again_in_the_mode_of_the_call() -> None:
    seen = []
    w = T.randn(2, 2, requires_grad=True)

    def product(x: T.Tensor) -> T.Tensor:
        out = x @ w
        seen.append(out.dtype)
        return out

    with autocast("cpu", dtype=T.float16):
        out = checkpoint(product, T.randn(2, 2))
    out.sum().backward()
    assert seen == [T.float16, T.float16]


def test_operations_of_the_program_run_in_the_mode_they_ask_for() -> None:
    seen = []

    class Product(T.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            seen.append((T.is_autocast_enabled("cpu"), (x @ w).dtype))
            return (g @ w.T).float(), (x.T @ g).float()

    class InFloat32(T.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=T.float32)
        def forward(ctx: Any, x: Any) -> Any:
            seen.append((T.is_autocast_enabled("cpu"), x.dtype))
            return x @ x

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            return g

    x = T.randn(2, 2, requires_grad=True)
    with autocast("cpu", dtype=T.float16):
        out, wide = Product.apply(x, x), InFloat32.apply(x.half())
    assert out.dtype is T.float16 and wide.dtype is T.float32
    out.sum().backward()
    assert seen == [(False, T.float32), (True, T.float16)]
    assert Product.apply(x, x).dtype is T.float32


def scales(lib: Any, scaler_class: Any, gradients: list[float], **options: Any) -> list[Any]:
    """The scale after each update, and the parameter after each step, for gradients given step by step."""
    scaler = scaler_class("cpu", init_scale=8.0, growth_interval=2, **options)
    p = lib.tensor([1.0], requires_grad=True)
    optimizer = lib.optim.SGD([p], lr=0.1)
    found: list[Any] = []
    for gradient in gradients:
        optimizer.zero_grad()
        scaler.scale((p * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append((scaler.get_scale(), p.item(), scaler.state_dict()))
    return found


@pytest.mark.parametrize("options", [{}, {"growth_factor": 3.0, "backoff_factor": 0.1}, {"enabled": False}])
def test_scales_and_steps_are_pytorchs(options: dict[str, Any]) -> None:
    lib = torch()
    infinite, nan = float("inf"), float("nan")
    gradients = [1.0, 0.5, 2.0, infinite, 1.0, nan, infinite, 1.0, 1.0, 1.0, 1.0, 3.0]
    if options.get("enabled") is False:
        gradients = gradients[:3]
    ours = scales(T, GradScaler, gradients, **options)
    theirs = scales(lib, lib.amp.GradScaler, gradients, **options)
    for (a, p, s), (b, q, t) in zip(ours, theirs, strict=True):
        assert a == b and s == t
        assert p == pytest.approx(q, rel=1e-6)


def test_the_scale_stops_growing_before_it_is_infinite() -> None:
    lib = torch()
    found = []
    for library, scaler_class in ((T, GradScaler), (lib, lib.amp.GradScaler)):
        scaler = scaler_class("cpu", init_scale=2.0**126, growth_interval=1)
        p = library.tensor([1.0], requires_grad=True)
        optimizer = library.optim.SGD([p], lr=0.0)
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale((p * 2.0**-126).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append(scaler.get_scale())
    assert found[0] == found[1] == 2.0**127


def test_gradients_may_be_unscaled_before_the_step() -> None:
    scaler = GradScaler("cpu", init_scale=4.0)
    p, q = T.tensor([1.0], requires_grad=True), T.tensor([1.0], requires_grad=True)
    first, second = T.optim.SGD([p], lr=1.0), T.optim.SGD([q], lr=1.0)
    outputs = scaler.scale([(p * 3.0).sum(), (q * float("inf")).sum()])
    assert type(outputs) is list
    for y in outputs:
        y.backward()
    scaler.unscale_(first)
    assert p.grad.item() == 3.0
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(first)
    scaler.step(first)
    scaler.step(second)
    assert (p.item(), q.item()) == (-2.0, 1.0)  # one step was left out, the other was not
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(first)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(first)
    scaler.update()
    assert scaler.get_scale() == 2.0
    scaler.update(16.0)
    assert scaler.get_scale() == 16.0


def test_what_is_out_of_order_is_refused() -> None:
    p = T.tensor([1.0], requires_grad=True)
    optimizer = T.optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu")
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.step(optimizer)
    scaler.scale(p.sum())
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(ValueError, match="must be a Tensor"):
        scaler.scale(3)
    half = T.tensor([1.0], dtype=T.float16, requires_grad=True)
    half.sum().backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(T.optim.SGD([half], lr=1.0))
    with pytest.raises(AssertionError, match="growth factor"):
        GradScaler("cpu", growth_factor=1.0)
    with pytest.warns(UserWarning, match="not available"):
        assert not GradScaler().is_enabled()
    with pytest.warns(UserWarning, match="not available"):
        assert not T.cuda.amp.GradScaler().is_enabled()


def test_a_scaler_goes_on_from_its_state() -> None:
    p = T.tensor([1.0], requires_grad=True)
    optimizer = T.optim.SGD([p], lr=0.1)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=3)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    for again in (other, copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
        assert again.state_dict() == scaler.state_dict() == {
            "scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3, "_growth_tracker": 1,
        }  # fmt: skip
    assert GradScaler("cpu", enabled=False).state_dict() == {}


def test_a_compiled_step_with_a_scaler_is_the_eager_one() -> None:
    found = []
    for compiled in (False, True):
        T.manual_seed(0)
        model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.ReLU(), T.nn.Linear(8, 3))
        optimizer, scaler = T.optim.SGD(model.parameters(), lr=0.1), GradScaler("cpu", init_scale=4.0, growth_interval=2)
        inputs, target = [T.randn(3, 4) for _ in range(8)], T.tensor([0, 1, 2])
        inputs[4][0, 0] = float("inf")

        def step(x: T.Tensor, model: Any = model, optimizer: Any = optimizer, scaler: Any = scaler, target: Any = target) -> Any:
            optimizer.zero_grad()
            with autocast("cpu", dtype=T.float16):
                loss = F.cross_entropy(model(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        call = T.compile(step) if compiled else step
        found.append([(call(x).item(), scaler.get_scale()) for x in inputs])
        if compiled:
            assert call.stats.compiled_calls >= 3, call.explain()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)
    assert found[1][4][1] < found[1][3][1]
