"""nn.utils: parametrizations, weight and spectral norm in both forms, clipping; lazy layers; all beside PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from against_torch import assert_close, numbers

import tracejit
from tracejit import nn
from tracejit.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).transpose(-1, -2)


class Exponential(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.exp()

    def right_inverse(self, x: Any) -> Any:
        return x.log()


def test_a_parametrized_weight_is_computed_when_it_is_read() -> None:
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert type(layer).__name__ == "ParametrizedLinear"
    assert (layer.weight == layer.weight.T).all()
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    layer(tracejit.ones(2, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    twin = copy.deepcopy(layer)
    with tracejit.no_grad():
        twin.parametrizations.weight.original.fill_(2.0)
    assert twin.weight.tolist() != layer.weight.tolist()
    value = layer.weight.detach()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert isinstance(layer.weight, nn.Parameter)
    assert (layer.weight == value).all()


def test_parametrizations_print_and_save_as_torchs_do() -> None:
    torch = pytest.importorskip("torch")

    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    Twice.__name__ = "Symmetric"
    ours, theirs = nn.Linear(3, 3), torch.nn.Linear(3, 3)
    parametrize.register_parametrization(ours, "weight", Symmetric())
    torch.nn.utils.parametrize.register_parametrization(theirs, "weight", Twice())
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_assigning_to_a_parametrized_tensor_goes_through_the_right_inverse() -> None:
    layer = nn.Linear(2, 2)
    with tracejit.no_grad():
        layer.weight.fill_(1.0)
    parametrize.register_parametrization(layer, "weight", Exponential())
    np.testing.assert_allclose(layer.weight.detach().numpy(), 1.0)
    layer.weight = tracejit.full((2, 2), 3.0)
    np.testing.assert_allclose(layer.parametrizations.weight.original.detach().numpy(), np.log(3.0), rtol=1e-6)
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "scale", Exponential())


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_agrees_with_torch_in_both_forms(dim: int | None) -> None:
    torch = pytest.importorskip("torch")
    for form in ("utils", "parametrizations"):
        found = []
        state: Any = None
        for f in (torch, tracejit):
            home = f.nn.utils if form == "utils" else f.nn.utils.parametrizations
            layer = home.weight_norm(f.nn.Conv1d(2, 3, 2).double(), dim=dim)
            if state is None:
                state = {k: v.detach().numpy().copy() for k, v in layer.state_dict().items()}
            else:
                assert list(layer.state_dict()) == list(state)
                layer.load_state_dict({k: tracejit.tensor(v) for k, v in state.items()})
            out = layer(f.tensor(numbers(2, 2, 5)))
            (out**2).sum().backward()
            found.append([out.detach().numpy(), *(p.grad.numpy() for p in layer.parameters())])
            if form == "utils":
                f.nn.utils.remove_weight_norm(layer)
                assert list(layer.state_dict()) == ["bias", "weight"]
                assert np.allclose(layer(f.tensor(numbers(2, 2, 5))).detach().numpy(), found[-1][0])
        for theirs, ours in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.parametrize("form", ["utils", "parametrizations"])
def test_spectral_norm_agrees_with_torch(form: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    state: Any = None
    torch.manual_seed(1)
    for f in (torch, tracejit):
        home = f.nn.utils if form == "utils" else f.nn.utils.parametrizations
        layer = home.spectral_norm(f.nn.Linear(4, 3).double())
        if state is None:
            state = {k: v.detach().numpy().copy() for k, v in layer.state_dict().items()}
        else:
            assert list(layer.state_dict()) == list(state)
            layer.load_state_dict({k: tracejit.tensor(v) for k, v in state.items()})
        results = []
        for training in (True, True, False):
            layer.train(training)
            out = layer(f.tensor(numbers(2, 4)))
            layer.zero_grad()
            (out**2).sum().backward()
            results += [out.detach().numpy(), *(p.grad.numpy().copy() for p in layer.parameters())]
        found.append(results)
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert np.linalg.svd(layer.weight.detach().numpy())[1][0] < 1.2


def test_compiled_modules_with_parametrizations_are_the_eager_ones() -> None:
    tracejit.manual_seed(0)
    layers = [
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
        nn.utils.weight_norm(nn.Linear(3, 3)),
        parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric()),
    ]
    for layer in layers:
        compiled = tracejit.compile(lambda x, layer=layer: (layer(x) ** 2).sum())
        for seed in range(4):
            x = tracejit.tensor(numbers(2, 3, seed=seed, dtype="float32"))
            layer.zero_grad()
            expected = (layer(x) ** 2).sum()
            expected.backward()
            gradients = [p.grad.numpy() for p in layer.parameters()]
            layer.zero_grad()
            value = compiled(x)
            value.backward()
            np.testing.assert_allclose(value.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
            for p, g in zip(layer.parameters(), gradients, strict=True):
                np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-5, atol=1e-6)


LAZY: list[tuple[str, str, tuple[Any, ...], tuple[int, ...], int]] = [
    ("LazyLinear", "Linear", (4,), (2, 3), 3), ("LazyConv1d", "Conv1d", (4, 2), (2, 3, 5), 3),
    ("LazyConv2d", "Conv2d", (4, 2), (2, 3, 5, 4), 3),
    ("LazyConv3d", "Conv3d", (4, 2), (1, 3, 4, 3, 3), 3), ("LazyConvTranspose2d", "ConvTranspose2d", (4, 2), (2, 3, 5, 4), 3),
    ("LazyBatchNorm1d", "BatchNorm1d", (), (4, 3), 3), ("LazyBatchNorm2d", "BatchNorm2d", (), (4, 3, 2, 2), 3),
    ("LazyInstanceNorm2d", "InstanceNorm2d", (1e-5, 0.1, True, True), (4, 3, 2, 2), 3),
]  # fmt: skip


@pytest.mark.parametrize(("name", "become", "arguments", "shape", "size"), LAZY, ids=[case[0] for case in LAZY])
def test_lazy_layers_become_the_layers_that_fit(name: str, become: str, arguments: Any, shape: Any, size: int) -> None:
    torch = pytest.importorskip("torch")
    lazy, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    assert repr(lazy) == repr(theirs)
    assert lazy.has_uninitialized_params()
    before = dict(lazy.named_parameters())
    lazy.double().eval()
    theirs.double().eval()
    expected = theirs(torch.tensor(numbers(*shape)))
    out = lazy(tracejit.tensor(numbers(*shape)))
    assert type(lazy) is getattr(nn, become)
    assert not lazy.training
    assert repr(lazy) == repr(theirs)
    assert out.shape == tuple(expected.shape)
    assert out.dtype is tracejit.float64
    assert all(p is before[key] and type(p) is nn.Parameter for key, p in lazy.named_parameters())
    assert list(lazy.state_dict()) == list(theirs.state_dict())
    fitting = getattr(nn, become)(size, *arguments).double().eval()
    fitting.load_state_dict(lazy.state_dict())
    assert fitting(tracejit.tensor(numbers(*shape))).tolist() == out.tolist()


def test_a_lazy_layer_takes_a_saved_state() -> None:
    saved = nn.Linear(3, 4)
    lazy = nn.Sequential(nn.LazyLinear(4))
    lazy.load_state_dict({f"0.{k}": v for k, v in saved.state_dict().items()})
    x = tracejit.tensor(numbers(2, 3, dtype="float32"))
    assert lazy(x).tolist() == saved(x).tolist()


def test_gradients_are_clipped_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    for norm in (2.0, 1.0, float("inf"), "inf"):
        results = []
        for f in (tracejit, torch):
            parameters = [f.tensor(numbers(3, seed=i), requires_grad=True) for i in range(3)]
            sum((p**3).sum() for p in parameters[:2]).backward()
            total = f.nn.utils.clip_grad_norm_(iter(parameters), 0.5, norm_type=norm, foreach=False)
            results.append((total, *(p.grad for p in parameters[:2])))
        for ours, theirs in zip(*results, strict=True):
            assert_close(ours, theirs)


def test_members_are_found_by_the_names_of_their_kinds() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert list(net._modules) == ["0", "1"]
    assert list(net[0]._parameters) == ["weight", "bias"]
    assert nn.Linear(2, 3, bias=False)._parameters["bias"] is None
    assert list(net[1]._buffers) == ["running_mean", "running_var", "num_batches_tracked"]
    net._modules["0"] = nn.Linear(2, 3, bias=False)
    assert net[0].bias is None
    del net._modules["1"]
    assert len(net) == 1
    with pytest.raises(KeyError):
        net[0]._parameters["training"]
    net.set_submodule("0", nn.Identity())
    assert isinstance(net[0], nn.Identity)
    with pytest.raises(AttributeError, match="no submodule"):
        net.set_submodule("head", nn.Identity(), strict=True)


def test_repeated_modules_of_a_list_are_printed_once() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for f in (tracejit, torch):
        layers = [f.nn.Linear(2, 2), f.nn.Linear(2, 2), f.nn.ReLU(), f.nn.Sequential(f.nn.ReLU()), f.nn.Sequential(f.nn.ReLU())]
        found.append(repr(f.nn.ModuleList(layers)))
    assert found[0] == found[1]
    assert repr(nn.ModuleList()) == "ModuleList()"
