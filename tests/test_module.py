"""nn.Module, Parameter and the containers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import nn


class Scale(nn.Module):
    """A parameter, a buffer and nothing else."""

    def __init__(self, size: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(tracejit.ones(size))
        self.register_buffer("count", tracejit.zeros(()))

    def forward(self, x: Any, factor: float = 1.0) -> Any:
        return x * self.weight * factor


class Network(nn.Module):
    """Two levels, and a module used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.blocks = nn.ModuleList([Scale(), Scale()])
        self.again = self.first
        self.bias = None

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def test_parameters_are_found_in_order_and_once() -> None:
    names = [name for name, _ in Network().named_parameters()]
    assert names == ["first.weight", "first.bias", "blocks.0.weight", "blocks.1.weight"]
    assert len(list(Network().parameters(recurse=False))) == 0
    repeated = [name for name, _ in Network().named_parameters(remove_duplicate=False)]
    assert repeated == [*names, "again.weight", "again.bias"]
    assert next(Network().named_parameters(prefix="net"))[0] == "net.first.weight"


def test_modules_and_buffers_are_found_in_order_and_once() -> None:
    network = Network()
    assert [name for name, _ in network.named_modules()] == ["", "first", "blocks", "blocks.0", "blocks.1"]
    assert [name for name, _ in network.named_children()] == ["first", "blocks"]
    assert [name for name, _ in network.named_buffers()] == ["blocks.0.count", "blocks.1.count"]
    assert list(network.children()) == [network.first, network.blocks]
    assert len(list(network.modules())) == 5
    assert len(list(network.buffers())) == 2


def test_members_are_plain_attributes() -> None:
    scale = Scale()
    assert vars(scale)["weight"] is scale.weight
    scale.weight = nn.Parameter(tracejit.zeros(3))
    assert [tuple(p.shape) for p in scale.parameters()] == [(3,)]
    del scale.weight
    assert list(scale.parameters()) == []


def test_a_tensor_that_is_no_parameter_is_not_found() -> None:
    scale = Scale()
    scale.cache = tracejit.ones(2)
    assert [name for name, _ in scale.named_parameters()] == ["weight"]
    assert list(scale.state_dict()) == ["weight", "count"]


def test_get_by_dotted_name() -> None:
    network = Network()
    assert network.get_parameter("blocks.1.weight") is network.blocks[1].weight
    assert network.get_submodule("blocks.0") is network.blocks[0]
    assert network.get_submodule("") is network
    assert network.get_buffer("blocks.0.count") is network.blocks[0].count
    for get in (network.get_parameter, network.get_submodule, network.get_buffer):
        with pytest.raises(AttributeError):
            get("blocks.2.weight")
    with pytest.raises(AttributeError, match="not a Parameter"):
        network.get_parameter("blocks.0.count")


def test_registration_checks_names_and_types() -> None:
    module = nn.Module()
    module.register_parameter("w", None)
    module.register_parameter("w", nn.Parameter(tracejit.ones(1)))
    with pytest.raises(KeyError, match="already exists"):
        module.register_buffer("forward", tracejit.ones(1))
    with pytest.raises(KeyError, match=r"can.+t contain"):
        module.add_module("a.b", nn.Identity())
    with pytest.raises(KeyError, match="empty string"):
        module.add_module("", nn.Identity())
    with pytest.raises(TypeError, match="not a Module subclass"):
        module.add_module("m", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot assign 'Tensor'"):
        module.register_parameter("v", tracejit.ones(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot assign 'int'"):
        module.register_buffer("v", 3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        module(1)


def test_train_eval_and_requires_grad_reach_every_module() -> None:
    network = Network()
    assert network.eval() is network
    assert not any(m.training for m in network.modules())
    network.train()
    assert all(m.training for m in network.modules())
    network.requires_grad_(False)
    assert not any(p.requires_grad for p in network.parameters())
    with pytest.raises(ValueError, match="boolean"):
        network.train("yes")  # type: ignore[arg-type]


def test_apply_calls_children_first() -> None:
    seen: list[str] = []
    Network().apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Scale", "Scale", "ModuleList", "Network"]


def test_zero_grad_clears_or_zeroes() -> None:
    scale = Scale()
    scale(tracejit.ones(2)).sum().backward()
    held = scale.weight.grad
    scale.zero_grad(set_to_none=False)
    assert scale.weight.grad.tolist() == [0.0, 0.0]
    assert held.tolist() == [0.0, 0.0]
    scale.zero_grad()
    assert scale.weight.grad is None


def test_state_dict_shares_memory_and_goes_into_another_module() -> None:
    first, second = Network(), Network()
    state = first.state_dict()
    assert list(state) == [
        "first.weight", "first.bias", "blocks.0.weight", "blocks.0.count", "blocks.1.weight", "blocks.1.count",
        "again.weight", "again.bias",
    ]  # fmt: skip
    assert not state["first.weight"].requires_grad
    assert state["first.weight"].data_ptr() == first.first.weight.data_ptr()
    parameter = second.first.weight
    result = second.load_state_dict(state)
    assert result.missing_keys == result.unexpected_keys == []
    assert repr(result) == "<All keys matched successfully>"
    assert second.first.weight is parameter
    assert (parameter == first.first.weight).all()
    assert parameter.requires_grad
    assert parameter.is_leaf


def test_loading_reports_everything_that_does_not_fit() -> None:
    scale = Scale()
    with pytest.raises(
        RuntimeError, match=r"(?s)Error\(s\) in loading state_dict for Scale.*Unexpected.*\"extra\".*Missing.*\"count\""
    ):
        scale.load_state_dict({"weight": tracejit.zeros(2), "extra": tracejit.zeros(1)})
    assert scale.weight.tolist() == [1.0, 1.0]
    result = scale.load_state_dict({"weight": tracejit.zeros(2), "extra": tracejit.zeros(1)}, strict=False)
    assert (result.missing_keys, result.unexpected_keys) == (["count"], ["extra"])
    assert scale.weight.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        scale.load_state_dict({"weight": tracejit.zeros(3), "count": tracejit.zeros(())}, strict=False)


def test_buffers_may_stay_out_of_state_dict() -> None:
    module = nn.Module()
    module.register_buffer("cache", tracejit.ones(1), persistent=False)
    module.register_buffer("nothing", None)
    assert module.state_dict() == {}
    assert [name for name, _ in module.named_buffers()] == ["cache"]


def test_conversion_keeps_the_parameter_objects() -> None:
    scale = Scale()
    scale.register_buffer("index", tracejit.tensor([1, 2]))
    scale(tracejit.ones(2)).sum().backward()
    weight = scale.weight
    assert scale.double() is scale
    assert scale.weight is weight
    assert weight.dtype is weight.grad.dtype is scale.count.dtype is tracejit.float64
    assert scale.index.dtype is tracejit.int64
    assert scale.to(tracejit.float32).weight.dtype is tracejit.float32
    assert scale.to("cpu") is scale
    with pytest.raises(TypeError, match="floating-point dtype"):
        scale.to(tracejit.int64)
    assert weight.requires_grad
    assert weight.is_leaf


def test_hooks_see_and_replace_arguments_and_results() -> None:
    scale = Scale()
    seen: list[Any] = []
    before = scale.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    after = scale.register_forward_hook(lambda m, args, out: seen.append(args[0].tolist()))
    assert scale(tracejit.ones(2)).tolist() == [2.0, 2.0]
    assert seen == [[2.0, 2.0]]
    before.remove()
    after.remove()
    assert scale(tracejit.ones(2)).tolist() == [1.0, 1.0]
    scale.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["factor"], with_kwargs=True)
    scale.register_forward_hook(lambda m, args, out: out * 10, prepend=True)
    assert scale(tracejit.ones(2), factor=3.0).tolist() == [33.0, 33.0]


def test_a_deep_copy_and_a_pickle_are_independent_and_keep_sharing() -> None:
    network = Network()
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert other.again is other.first
        assert isinstance(other.first.weight, nn.Parameter)
        assert other.first.weight.requires_grad
        x = tracejit.ones(1, 3)
        assert other(x).tolist() == network(x).tolist()
        with tracejit.no_grad():
            other.first.weight.add_(1.0)
        assert other(x).tolist() != network(x).tolist()


def test_modules_print_as_in_torch() -> None:
    torch = pytest.importorskip("torch")

    def build(library: Any) -> Any:
        return library.Sequential(
            library.Linear(3, 4), library.ReLU(), library.ModuleList([library.Dropout(0.1), library.LayerNorm(4)]),
            library.Embedding(5, 2, padding_idx=0), library.GELU(), library.Sequential(), library.Softmax(dim=1), library.Flatten(),
            library.BatchNorm1d(4), library.Identity(), library.LeakyReLU(0.2),
        )  # fmt: skip

    assert repr(build(nn)) == repr(build(torch.nn))


def test_a_module_whose_base_was_not_initialised_says_so_at_the_first_member() -> None:
    class Careless(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(tracejit.ones(1))

    class Holder(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.ReLU()

    class Registering(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("state", tracejit.ones(1))

    class Empty(nn.Module):
        def __init__(self) -> None:
            self.number = 3

    for make in (Careless, Holder, Registering, lambda: list(Empty().parameters()), lambda: Empty().state_dict()):
        with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
            make()


def test_plain_attributes_may_be_assigned_before_the_base_is_initialised() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.number, self.table = 3, tracejit.ones(1)
            super().__init__()

    assert Early().number == 3 and Early().table.tolist() == [1.0]


def test_nothing_but_a_parameter_or_none_takes_the_place_of_a_parameter() -> None:
    layer = nn.Linear(2, 2)
    for value in (tracejit.ones(2, 2), 3, nn.ReLU(), [1.0]):
        with pytest.raises(TypeError, match=r"as parameter 'weight' \(Parameter or None expected\)"):
            layer.weight = value
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    layer.weight = nn.Parameter(tracejit.ones(2, 2))
    layer.bias = None
    assert [name for name, _ in layer.named_parameters()] == ["weight"]


def test_nothing_but_its_kind_takes_the_place_of_a_buffer_or_module() -> None:
    norm = nn.BatchNorm1d(2)
    with pytest.raises(TypeError, match="as buffer 'running_mean'"):
        norm.running_mean = 3
    norm.running_mean = tracejit.ones(2)
    assert norm.state_dict()["running_mean"].tolist() == [1.0, 1.0]
    holder = nn.Module()
    holder.layer = nn.ReLU()
    for value in (3, tracejit.ones(1)):
        with pytest.raises(TypeError, match="as child module 'layer'"):
            holder.layer = value
    holder.layer = nn.Tanh()
    assert [type(m).__name__ for m in holder.children()] == ["Tanh"]


def test_parameters_share_memory_and_want_gradients() -> None:
    source = tracejit.ones(2)
    parameter = nn.Parameter(source)
    assert parameter.requires_grad
    assert not source.requires_grad
    with tracejit.no_grad():
        parameter.mul_(3)
    assert source.tolist() == [3.0, 3.0]
    assert type(parameter * 2) is tracejit.Tensor
    assert not nn.Parameter(source, requires_grad=False).requires_grad
    assert repr(parameter).startswith("Parameter containing:\ntensor([3., 3.]")


def test_sequential_runs_in_order_and_is_a_sequence() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    net.append(nn.Linear(3, 1))
    assert len(net) == 3
    assert isinstance(net[-1], nn.Linear)
    assert [type(m) for m in net[1:]] == [nn.ReLU, nn.Linear]
    assert net(tracejit.ones(4, 2)).shape == (4, 1)
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh)
    del net[0]
    assert [name for name, _ in net.named_children()] == ["0", "1"]
    net.insert(0, nn.Identity())
    assert [type(m) for m in net] == [nn.Identity, nn.Tanh, nn.Linear]
    assert isinstance(net.pop(0), nn.Identity)
    with pytest.raises(IndexError, match="out of range"):
        net[2]


def test_a_named_sequential_gives_its_members_as_attributes() -> None:
    net = nn.Sequential({"scale": Scale(), "act": nn.ReLU()})
    assert net.scale is net[0]
    net.scale = nn.Identity()
    assert isinstance(net[0], nn.Identity)
    assert list(nn.Sequential({"scale": Scale()}).state_dict()) == ["scale.weight", "scale.count"]


def test_module_lists_and_dicts_behave_like_theirs() -> None:
    layers = nn.ModuleList(Scale() for _ in range(2))
    layers += [Scale()] if False else []
    layers.extend([nn.ReLU()])
    assert len(layers) == 3
    assert [type(m) for m in layers[1:]] == [Scale, nn.ReLU]
    assert len(layers + [nn.Tanh()]) == 4
    table = nn.ModuleDict({"a": Scale(), "b": nn.ReLU()})
    table["c"] = nn.Tanh()
    assert list(table) == list(table.keys()) == ["a", "b", "c"]
    assert "a" in table
    assert "training" not in table
    assert isinstance(table.pop("b"), nn.ReLU)
    assert len(table) == 2
    assert [name for name, _ in table.named_parameters()] == ["a.weight"]
    with pytest.raises(KeyError, match="already exists"):
        table["keys"] = nn.Tanh()
    with pytest.raises(KeyError):
        table["missing"]
    table.clear()
    assert len(table.values()) == 0


def test_parameter_containers_register_their_members() -> None:
    items = nn.ParameterList([tracejit.ones(2), nn.Parameter(tracejit.ones(3))])
    items.append(tracejit.ones(1))
    assert [name for name, _ in items.named_parameters()] == ["0", "1", "2"]
    assert [tuple(p.shape) for p in items] == [(2,), (3,), (1,)]
    assert len(items[1:]) == 2
    assert items[-1] is items[2]
    table = nn.ParameterDict({"a": tracejit.ones(2)})
    table["b"] = tracejit.ones(1)
    assert list(table) == ["a", "b"]
    assert [name for name, _ in table.named_parameters()] == ["a", "b"]
    del table["a"]
    assert len(table) == 1
    assert "a" not in table


def test_gradients_are_clipped_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    for norm_type in (2.0, 1.0, float("inf")):
        ours = [nn.Parameter(tracejit.zeros(s)) for s in (2, 3)]
        theirs = [torch.nn.Parameter(torch.zeros(s)) for s in (2, 3)]
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            gradient = np.arange(1, 3 + i, dtype=np.float32)
            mine.grad, other.grad = tracejit.tensor(gradient), torch.tensor(gradient)
        total = nn.utils.clip_grad_norm_(ours, 1.5, norm_type)
        assert total.item() == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, 1.5, norm_type).item(), rel=1e-6)
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-6)
    nn.utils.clip_grad_value_(ours, 0.1)
    assert max(p.grad.abs().max().item() for p in ours) == pytest.approx(0.1)
    ours[0].grad = tracejit.tensor([float("nan"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)


def test_parameters_become_a_vector_and_come_back() -> None:
    network = Network()
    vector = nn.utils.parameters_to_vector(network.parameters())
    assert vector.shape == (12,)
    nn.utils.vector_to_parameters(vector.detach() + 1, network.parameters())
    np.testing.assert_allclose(nn.utils.parameters_to_vector(network.parameters()).detach().numpy(), vector.detach().numpy() + 1)
    with pytest.raises(RuntimeError, match="a vector of 12 elements"):
        nn.utils.vector_to_parameters(tracejit.zeros(3), network.parameters())


def test_hooks_around_saving_and_loading_are_called_as_pytorch_calls_them() -> None:
    called: list[list[Any]] = []
    for library in (tracejit, pytest.importorskip("torch")):
        log: list[Any] = []
        model = library.nn.Sequential(library.nn.Linear(2, 2), library.nn.Linear(2, 1))
        model[0].register_state_dict_pre_hook(lambda m, prefix, keep, log=log: log.append(("before saving", prefix, keep)))
        model.register_state_dict_post_hook(
            lambda m, state, prefix, meta, log=log: log.append(("after saving", list(state), prefix))
        )
        model[1].register_load_state_dict_pre_hook(
            lambda m, state, prefix, meta, strict, missing, unexpected, errors, log=log: log.append(
                ("before loading", prefix, type(m).__name__, missing, unexpected, errors)
            )
        )
        model.register_load_state_dict_post_hook(lambda m, keys, log=log: log.append(("after loading", tuple(keys))))
        model.load_state_dict(model.state_dict())
        called.append(log)
    assert called[0] == called[1] and len(called[0]) == 4


def test_hooks_may_rename_and_forgive_keys() -> None:
    model = nn.Linear(2, 1)

    def renamed(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        state[prefix + "weight"] = state.pop(prefix + "old")

    model.register_load_state_dict_pre_hook(renamed)
    model.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    handle = model.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.pop(prefix + "bias") and None)
    weight = tracejit.tensor([[3.0, 4.0]])
    given = {"old": weight}
    model.load_state_dict(given)
    assert model.weight.tolist() == weight.tolist() and list(given) == ["old"]
    assert list(model.state_dict()) == ["weight"]
    handle.remove()
    assert list(model.state_dict()) == ["weight", "bias"]


def test_what_a_module_saves_is_its_own_to_say() -> None:
    class Counting(nn.Linear):
        steps = 0

        def get_extra_state(self) -> Any:
            return {"steps": self.steps}

        def set_extra_state(self, state: Any) -> None:
            self.steps = state["steps"]

        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "doubled"] = destination.pop(prefix + "weight") * 2

        def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "doubled") / 2
            super()._load_from_state_dict(state_dict, prefix, *rest)

    first, second = nn.Sequential(Counting(2, 1)), nn.Sequential(Counting(2, 1))
    first[0].steps = 5
    state = first.state_dict()
    assert list(state) == ["0.bias", "0._extra_state", "0.doubled"]
    second.load_state_dict(state)
    assert second[0].steps == 5 and second[0].weight.tolist() == first[0].weight.tolist()


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    wrong = {**{key: value + 1 for key, value in before.items()}, "1.bias": tracejit.zeros(7)}
    with pytest.raises(RuntimeError, match=r"size mismatch for 1\.bias"):
        model.load_state_dict(wrong)
    for key, value in model.state_dict().items():
        assert value.tolist() == before[key].tolist()
