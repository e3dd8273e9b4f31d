"""Optimizers and schedules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit
from tracejit import nn, optim
from tracejit.functional.updates import adam_update

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.05}), ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "lr": 0.1}),
    ("Adam", {"lr": 0.05, "maximize": True}), ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.05}), ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}),
    ("Adadelta", {"lr": 0.5}), ("Adadelta", {"rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adamax", {"lr": 0.05}), ("Adamax", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05}), ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.05}), ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}), ("RMSprop", {"centered": True, "alpha": 0.9, "maximize": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Rprop", {}), ("Rprop", {"etas": (0.4, 1.3), "step_sizes": (1e-3, 0.5), "maximize": True}),
    ("ASGD", {"lr": 0.05}), ("ASGD", {"lr": 0.05, "t0": 10.0, "lambd": 0.01, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.1}), ("Adafactor", {"lr": 0.1, "weight_decay": 0.1, "d": 2.0, "maximize": True}),
]  # fmt: skip


def descend(library: Any, optimizer: Any, parameters: list[Any], steps: int, first: int = 0) -> None:
    """Steps on a quadratic whose centre moves; the second parameter gets no gradient at every third step."""
    tensor = library.tensor
    for i in range(first, first + steps):
        optimizer.zero_grad()
        loss = ((parameters[0] - tensor(numbers(3, seed=i))) ** 2).sum()
        if i % 3:
            loss = loss + (parameters[1] ** 3 * tensor(numbers(2, 2, seed=i))).sum()
        loss.backward()
        optimizer.step()


def converted(value: Any, kind: type, convert: Any) -> Any:
    """A state dict with the tensors of another library."""
    if isinstance(value, kind):
        return convert(value)
    if isinstance(value, dict):
        return {key: converted(member, kind, convert) for key, member in value.items()}
    return [converted(member, kind, convert) for member in value] if isinstance(value, list) else value


def starts(library: Any) -> list[Any]:
    return [
        library.nn.Parameter(library.tensor(numbers(3, seed=50))),
        library.nn.Parameter(library.tensor(numbers(2, 2, seed=51))),
    ]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{o[0]}-{i}" for i, o in enumerate(OPTIMIZERS)])
def test_optimizers_agree_with_torch(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = starts(tracejit), starts(torch)
    first, other = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for start in (0, 25):  # the second half goes on from a saved state
        descend(tracejit, first, ours, 25, start)
        descend(torch, other, theirs, 25, start)
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10, atol=1e-12)
        saved, expected = first.state_dict(), other.state_dict()
        assert set(saved["param_groups"][0]) == set(expected["param_groups"][0])
        assert set(saved["state"][0]) >= set(expected["state"].get(0, ())) if name == "SGD" else set(expected["state"][0])
        first, other = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
        first.load_state_dict(saved)
        other.load_state_dict(expected)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{o[0]}-{i}" for i, o in enumerate(OPTIMIZERS)])
def test_training_goes_on_from_a_state_of_torch_and_there_from_ours(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = starts(tracejit), starts(torch)
    first, other = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    descend(tracejit, first, ours, 6)
    descend(torch, other, theirs, 6)
    swapped, back = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    swapped.load_state_dict(converted(other.state_dict(), torch.Tensor, lambda t: tracejit.tensor(t.numpy())))
    back.load_state_dict(converted(first.state_dict(), tracejit.Tensor, lambda t: torch.tensor(t.numpy())))
    descend(tracejit, swapped, ours, 6, 6)
    descend(torch, back, theirs, 6, 6)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{o[0]}-{i}" for i, o in enumerate(OPTIMIZERS)])
def test_training_goes_on_from_a_saved_state(name: str, options: dict[str, Any]) -> None:
    whole = starts(tracejit)
    descend(tracejit, getattr(optim, name)(whole, **options), whole, 7)
    part = starts(tracejit)
    first = getattr(optim, name)(part, **options)
    descend(tracejit, first, part, 4)
    saved = pickle.loads(pickle.dumps(first.state_dict()))
    resumed = copy.deepcopy(part)
    second = getattr(optim, name)(resumed, lr=123.0)
    second.load_state_dict(saved)
    descend(tracejit, second, resumed, 3, first=4)
    # where a state is a number rounded to the default dtype, loading converts it to the parameter's, as in PyTorch
    tolerance = 1e-6 if name in ("NAdam", "ASGD") else 0
    for p, q in zip(whole, resumed, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=tolerance)


def test_sgd_has_known_values() -> None:
    p = nn.Parameter(tracejit.tensor([1.0, 2.0]))
    optimizer = optim.SGD([p], lr=0.5, momentum=0.5)
    for expected in ([0.5, 1.5], [-0.25, 0.75]):
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
        assert p.tolist() == expected
    assert p.requires_grad
    assert p.is_leaf


def test_loaded_state_is_a_copy_of_its_parameters_dtype() -> None:
    p, q = nn.Parameter(tracejit.ones(2)), nn.Parameter(tracejit.ones(2, dtype=tracejit.float64))
    first, second = optim.Adam([p]), optim.Adam([q])
    p.sum().backward()
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.state[q]["exp_avg"].dtype is tracejit.float64
    assert second.state[q]["step"] == 1
    before = first.state[p]["exp_avg"].tolist()
    q.sum().backward()
    second.step()
    assert first.state[p]["exp_avg"].tolist() == before
    with pytest.raises(ValueError, match="parameter groups"):
        second.load_state_dict(optim.Adam([{"params": [p]}, {"params": [nn.Parameter(tracejit.ones(1))]}]).state_dict())
    with pytest.raises(ValueError, match="doesn't match the size"):
        second.load_state_dict(optim.Adam([p, nn.Parameter(tracejit.ones(1))]).state_dict())


def test_groups_have_options_of_their_own() -> None:
    p, q = nn.Parameter(tracejit.ones(1)), nn.Parameter(tracejit.ones(1))
    optimizer = optim.SGD([{"params": [p]}, {"params": q, "lr": 1.0}], lr=0.5)
    optimizer.add_param_group({"params": [nn.Parameter(tracejit.ones(1))], "lr": 0.0})
    (p + q).sum().backward()
    optimizer.step()
    assert (p.item(), q.item()) == (0.5, 0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 1.0, 0.0]


def test_rates_are_read_at_every_step() -> None:
    p = nn.Parameter(tracejit.zeros(1))
    optimizer = optim.SGD([p], lr=1.0)
    for rate in (1.0, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
    assert p.item() == -1.25


def test_parameters_without_gradient_stay_and_their_steps_do_not_count() -> None:
    p, q = nn.Parameter(tracejit.ones(1)), nn.Parameter(tracejit.ones(1))
    optimizer = optim.AdamW([p, q])
    p.sum().backward()
    optimizer.step()
    assert q.item() == 1.0
    assert (optimizer.state[p]["step"], optimizer.state[q]["step"]) == (1, 0)


def test_parameters_that_have_taken_as_many_steps_are_updated_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def update(members: Any, *numbers: Any, **options: Any) -> None:
        together.append(len(members))
        adam_update(members, *numbers, **options)

    monkeypatch.setattr("tracejit.optim.adam.adam_update", update)
    parameters = [tracejit.ones(2, requires_grad=True) for _ in range(5)]
    adam = optim.Adam(parameters)
    for count in (2, 5, 5):
        adam.zero_grad()
        sum((p**2).sum() for p in parameters[:count]).backward()
        adam.step()
    assert together == [2, 2, 3, 2, 3]


def test_a_frozen_parameter_has_no_state_until_it_is_thawed() -> None:
    p = nn.Parameter(tracejit.ones(1), requires_grad=False)
    optimizer = optim.Adam([p], lr=0.5)
    assert p not in optimizer.state
    p.requires_grad_()
    p.sum().backward()
    optimizer.step()
    assert p.item() == pytest.approx(0.5)


def test_zero_grad_clears_or_zeroes() -> None:
    p = nn.Parameter(tracejit.ones(1))
    optimizer = optim.SGD([p])
    p.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0
    optimizer.zero_grad()
    assert p.grad is None


def test_a_closure_is_evaluated_with_gradients() -> None:
    p = nn.Parameter(tracejit.ones(1))
    optimizer = optim.SGD([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tracejit.no_grad():
        assert optimizer.step(closure).item() == 1.0
    assert p.item() == 0.0


def test_a_model_converted_after_its_optimizer_was_made_is_an_error() -> None:
    model = nn.Linear(1, 1)
    optimizer = optim.Adam(model.parameters())
    model.double()
    model(tracejit.ones(1, 1, dtype=tracejit.float64)).sum().backward()
    with pytest.raises(RuntimeError, match="construct the optimizer after converting"):
        optimizer.step()


def test_what_cannot_be_optimized_is_an_error() -> None:
    p = nn.Parameter(tracejit.ones(1))
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(p)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([p, p])
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([1.0])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optim.Adam([p], lr=-1.0)
    with pytest.raises(ValueError, match="beta parameter at index 1"):
        optim.Adam([p], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="Nesterov"):
        optim.SGD([p], nesterov=True)


def test_an_optimizer_prints_its_groups() -> None:
    text = repr(optim.SGD([nn.Parameter(tracejit.ones(1))], lr=0.5))
    assert text.startswith("SGD (\nParameter Group 0\n")
    assert "    lr: 0.5\n" in text


COMPILED = {"Adadelta": 1, "Adagrad": 1, "Adamax": 1, "NAdam": 1, "RAdam": 2, "RMSprop": 1, "Rprop": 1, "ASGD": 1, "Adafactor": 2}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_step_is_recorded_once_for_any_rate(name: str) -> None:
    """RAdam has two recordings: of the first steps, without rectification, and of the others.  Adafactor's rate is the smaller of two."""

    def trained(compiled: bool) -> tuple[list[Any], Any]:
        weights = [nn.Parameter(tracejit.tensor(numbers(4, 3, seed=1))), nn.Parameter(tracejit.tensor(numbers(3, seed=2)))]
        optimizer = getattr(optim, name)(weights, lr=0.3)
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = ((x @ weights[0] + weights[1]) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        run: Any = tracejit.compile(step) if compiled else step
        losses = []
        for i in range(12):
            losses.append(run(tracejit.tensor(numbers(5, 4, seed=i))).item())
            schedule.step()
        return [*losses, *(w.tolist() for w in weights)], run

    expected, _ = trained(compiled=False)
    actual, run = trained(compiled=True)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert run.stats.traces <= COMPILED[name]
    assert run.stats.eager_calls <= COMPILED[name]


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("history", [3, 100])
def test_lbfgs_agrees_with_torch(line_search: str | None, history: int) -> None:
    torch = pytest.importorskip("torch")

    def losses(library: Any) -> tuple[list[float], int, int]:
        x, y = numbers(20, 4, seed=3), numbers(20, seed=4)
        w, v = (library.nn.Parameter(library.tensor(numbers(*shape, seed=i))) for i, shape in enumerate(((4, 5), (5,))))
        unused = library.nn.Parameter(library.tensor(numbers(2)))

        def optimizer() -> Any:
            rate = 0.8 if line_search else 0.1
            return library.optim.LBFGS([w, v, unused], lr=rate, max_iter=6, history_size=history, line_search_fn=line_search)

        stepper, seen = optimizer(), []
        for i in range(10):

            def closure() -> Any:
                stepper.zero_grad()
                loss = ((library.tanh(library.tensor(x) @ w) @ v - library.tensor(y)) ** 2).mean()
                loss.backward()
                return loss

            seen.append(stepper.step(closure).item())
            if i == 4:
                state, stepper = stepper.state_dict(), optimizer()
                stepper.load_state_dict(state)
        return seen, stepper.state[w]["func_evals"], stepper.state[w]["n_iter"]

    ours, theirs = losses(tracejit), losses(torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    assert ours[1:] == theirs[1:]


def test_lbfgs_minimises_a_valley() -> None:
    p = nn.Parameter(tracejit.tensor([-1.5, 2.0], dtype=tracejit.float64))
    optimizer = optim.LBFGS([p], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    with tracejit.no_grad():
        assert optimizer.step(closure).item() > 6
    optimizer.step(closure)
    np.testing.assert_allclose(p.tolist(), [1.0, 1.0], atol=1e-4)
    with pytest.raises(ValueError, match="per-parameter options"):
        optim.LBFGS([{"params": [p]}, {"params": [nn.Parameter(tracejit.ones(1))]}])
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        bad = optim.LBFGS([q := nn.Parameter(tracejit.ones(1))], line_search_fn="armijo")
        bad.step(lambda: (loss := (q * q).sum(), loss.backward())[0])


def test_a_differentiable_step_passes_gradients_to_what_made_the_gradient() -> None:
    torch = pytest.importorskip("torch")

    def gradient(library: Any, name: str) -> list[float]:
        scale = library.tensor([2.0, 3.0], requires_grad=True)
        start = library.tensor([1.0, -1.0], requires_grad=True)
        p = start.clone()
        optimizer = getattr(library.optim, name)([p], lr=0.1, differentiable=True)
        p.grad = scale * start
        optimizer.step()
        (p**2).sum().backward()
        return [*scale.grad.tolist(), *start.grad.tolist()]

    for name in ("SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax"):
        np.testing.assert_allclose(gradient(tracejit, name), gradient(torch, name), rtol=1e-5, atol=1e-6)


def test_options_that_exclude_each_other_are_errors() -> None:
    p = nn.Parameter(tracejit.ones(1))
    for options in ({"foreach": True}, {"fused": True}, {"foreach": False, "fused": False}, {"capturable": True}):
        optim.AdamW([p], **options)
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        optim.Adam([p], foreach=True, fused=True)
    with pytest.raises(RuntimeError, match="does not support `differentiable`"):
        optim.SGD([p], fused=True, differentiable=True)


def test_hooks_run_around_steps_and_states() -> None:
    p = nn.Parameter(tracejit.ones(1))

    class Own(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.5})

        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for q in group["params"]:
                    state = self.state[q]
                    state["count"] = state.get("count", 0) + 1
                    q.data.sub_(group["lr"])

    for optimizer in (optim.SGD([p], lr=0.5), Own([p])):
        seen: list[str] = []
        pre = optimizer.register_step_pre_hook(lambda o, args, kwargs, seen=seen: seen.append("pre"))
        optimizer.register_step_post_hook(lambda o, args, kwargs, seen=seen: seen.append("post"))
        optimizer.step()
        pre.remove()
        optimizer.step()
        assert seen == ["pre", "post", "post"]
        optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
        optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(str(state["more"])))
        optimizer.load_state_dict(optimizer.state_dict())
        assert seen[-1] == "1"
    assert optimizer.state[p]["count"] == 2


def test_parameters_may_come_with_names() -> None:
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"][0] is model.weight


def test_a_hyperparameter_that_every_group_must_name() -> None:
    from tracejit.optim.optimizer import required

    p = nn.Parameter(tracejit.ones(1))
    with pytest.raises(ValueError, match="required optimization parameter rate"):
        optim.Optimizer([p], {"rate": required})
    assert optim.Optimizer([{"params": [p], "rate": 1}], {"rate": required}).param_groups[0]["rate"] == 1


@pytest.mark.parametrize(
    "options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, {"ns_steps": 3, "weight_decay": 0.5}]
)
def test_muon_goes_the_way_of_pytorch_and_compiled_steps_are_eager_ones(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    start = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    goal = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)

    def trained(library: Any, compile_steps: bool) -> Any:
        weight = library.nn.Parameter(library.tensor(start))
        optimizer = library.optim.Muon([weight], lr=0.02, **options)

        def step() -> Any:
            optimizer.zero_grad()
            loss = ((weight - library.tensor(goal)) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = tracejit.compile(step) if compile_steps else step
        for _ in range(10):
            step()
        return weight.detach().numpy()

    wanted = trained(torch, False)
    np.testing.assert_allclose(
        trained(tracejit, False), wanted, atol=4e-3
    )  # the direction is rounded to bfloat16 in each iteration
    np.testing.assert_allclose(trained(tracejit, True), wanted, atol=4e-3)
    assert np.abs(wanted - start).max() > 0.05


def test_muon_takes_matrices_only() -> None:
    with pytest.raises(ValueError, match="2D parameters"):
        tracejit.optim.Muon([tracejit.nn.Parameter(tracejit.ones(3))])
