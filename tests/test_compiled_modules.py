"""Compiled Modules as Modules: inside others, compiled in place, copied and loaded."""

from __future__ import annotations

import copy
from typing import Any

import tracejit as T


class Net(T.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body: Any = T.compile(T.nn.Sequential(T.nn.Linear(3, 4), T.nn.BatchNorm1d(4)))
        self.head = T.nn.Linear(4, 2)

    def forward(self, x: T.Tensor) -> Any:
        return self.head(self.body(x))


def test_a_compiled_module_is_a_module_wherever_one_is_asked_for() -> None:
    layer = T.nn.Linear(3, 3)
    compiled = T.compile(layer)
    assert isinstance(compiled, T.nn.Linear) and isinstance(compiled, T.CompiledFunction)
    assert not isinstance(T.compile(lambda x: x), T.nn.Module) and not isinstance(T.compile(layer.forward), T.nn.Module)
    sequence = T.nn.Sequential(compiled, T.nn.ReLU(), T.nn.ModuleList([T.compile(T.nn.Linear(3, 1))])[0])
    assert [name for name, _ in sequence.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert sequence(T.ones(1, 3)).shape == (1, 1)


def test_a_compiled_submodule_is_seen_by_all_that_goes_through_modules() -> None:
    net = Net()
    inside = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert list(net.state_dict()) == [f"body.{name}" for name in inside] + ["head.weight", "head.bias"]
    net.eval()
    assert not net.body.training and not any(module.training for module in net.modules())
    other = Net().eval()
    other.load_state_dict(net.state_dict())
    x = T.ones(2, 3)
    for _ in range(3):
        assert T.allclose(other(x), net(x))
    assert other.body.stats.compiled_calls > 0
    doubled = copy.deepcopy(net).double()
    assert doubled(x.double()).dtype is T.float64 and net.get_parameter("body.0.weight").dtype is T.float32


def test_a_module_with_compiled_parts_is_compiled_as_a_whole() -> None:
    net = Net().eval()
    net.head.compile()
    expected, whole = net(T.ones(2, 3)), T.compile(net)
    for _ in range(3):
        assert T.allclose(whole(T.ones(2, 3)), expected)
    assert whole.stats.compiled_calls == 2 and not whole.reasons


def test_code_that_looks_for_modules_finds_compiled_ones_in_a_recording_too() -> None:
    net = Net()

    def frozen(x: T.Tensor) -> Any:
        for part in net.children():
            if isinstance(part, T.nn.Sequential):
                part.eval()
        return net(x), sum(1 for _ in net.parameters())

    compiled = T.compile(frozen)
    results = [compiled(T.ones(2, 3) * i) for i in range(4)]
    for i, (y, count) in enumerate(results):
        assert count == 6 and T.allclose(y, net(T.ones(2, 3) * i))
    assert not net.body.training and net.training
    assert compiled.stats.compiled_calls >= 2, compiled.explain()


def test_modules_are_compiled_in_place() -> None:
    net = Net()
    net.compile(fullgraph=True)
    net.eval()
    plain = Net().eval()
    plain.load_state_dict(net.state_dict())
    x, seen = T.ones(2, 3), []
    net.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    for _ in range(3):
        assert T.allclose(net(x), plain(x))
    forward: Any = net.forward
    assert forward.stats.compiled_calls == 2 and len(seen) == 3
    other = copy.deepcopy(net)
    assert other.__dict__["forward"].__wrapped__.__self__ is other
    with T.no_grad():
        net.head.weight.zero_()
    assert not T.allclose(net(x), other(x)) and T.allclose(other(x), plain(x))
