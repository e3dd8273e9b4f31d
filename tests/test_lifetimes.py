"""What compiled functions keep alive: nothing of their callers'.

Each program makes what it needs, calls compiled functions that live on, and returns the objects that must die when it has returned."""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.config import override

HOT = 3
PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], Callable[[Any], Iterable[Any]]]]] = {}


def program(make: Any) -> Any:
    """make() -> (function that is compiled and lives on, use(compiled) -> objects that must die)."""
    PROGRAMS[make.__name__] = make
    return make


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
        self.scale = T.ones(2)
        self.options = {"names": ["x"], "gain": 2.0, "extra": T.ones(2)}

    def forward(self, x: Any) -> Any:
        x = self.b(self.a(x).tanh()) * self.scale * self.options["gain"]
        for layer in self.layers:
            x = layer(x)
        return x


def forward(model: Any, x: Any) -> Any:
    return model(x)


def times(compiled: Any, *arguments: Any) -> list[Any]:
    return [compiled(*arguments) for _ in range(3 * HOT)]


def tensors(model: Any) -> list[Any]:
    return [*model.parameters(), model.scale]


@program
def forward_of_a_model() -> Any:
    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3)
        results = times(compiled, model, x)
        return model, x, *tensors(model), *results, results[0].grad_fn

    return forward, use


@program
def training_step() -> Any:
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3)
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        results = times(compiled, model, optimizer, x)
        moments = [s["exp_avg"] for s in optimizer.state.values()]
        return model, optimizer, x, *results, *moments, *[p.grad for p in model.parameters() if p.grad is not None]

    return step, use


@program
def backward_calls() -> Any:
    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3, requires_grad=True)
        results = times(compiled, model, x)
        for result in results:
            result.sum().backward()
        return model, x, x.grad, *tensors(model), *results

    return forward, use


@program
def backward_calls_that_keep_the_graph() -> Any:
    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3, requires_grad=True)
        results = times(compiled, model, x)
        for result in results:
            result.sum().backward(retain_graph=True)
        return model, x, *results

    return forward, use


def leading_back(make_link: Callable[[Any, Any], Any]) -> Any:
    def make() -> Any:
        def use(compiled: Any) -> Any:
            model, x = Net(), T.ones(2, 3)
            times(compiled, model, x)
            for p in tensors(model):
                make_link(p, model)
            return model, *tensors(model)

        return forward, use

    return make


LINKS: dict[str, Any] = {
    "an attribute": lambda p, model: setattr(p, "owner", model),
    "a dictionary of attributes": lambda p, model: p.__dict__.update(owner=[model]),
    "a hook": lambda p, model: p.register_hook(lambda g, model=model: g) if p.requires_grad else None,
    "an attribute of the gradient": lambda p, model: (setattr(p, "grad", p.detach().clone()), setattr(p.grad, "owner", model)),
    "a list": lambda p, model: model.options["names"].append(model),
    "a dictionary": lambda p, model: model.options.update(owner=model),
    "a list of layers": lambda p, model: setattr(model.layers[0], "owner", model),
    "its class": lambda p, model: setattr(p, "__class__", type("Linked", (type(p),), {"owner": model})),
}
for name, link in LINKS.items():
    PROGRAMS[f"parameters lead back to the model by {name}"] = leading_back(link)


@program
def linked_before_the_first_call() -> Any:
    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3)
        for p in tensors(model):
            p.owner = model
        times(compiled, model, x)
        return model, *tensors(model)

    return forward, use


@program
def linked_by_an_optimizer_of_several_groups() -> Any:
    def step(optimizer: Any) -> None:
        optimizer.step()

    def use(compiled: Any) -> Any:
        model = Net()
        optimizer = optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1, momentum=0.9)
        for _ in range(3 * HOT):
            model(T.ones(2, 3)).sum().backward()
            compiled(optimizer)
        for group in optimizer.param_groups:
            group["model"] = model
        return model, optimizer

    return step, use


@program
def a_parameter_outlives_its_model() -> Any:
    survivors: list[Any] = []

    def use(compiled: Any) -> Any:
        model = Net()
        times(compiled, model, T.ones(2, 3))
        survivors[:] = [next(iter(model.parameters()))]
        return [model, *tensors(model)[1:]]

    return forward, use


@program
def a_parameter_is_replaced() -> Any:
    model = Net()

    def use(compiled: Any) -> Any:
        x = T.ones(2, 3)
        times(compiled, model, x)
        gone = [model.a.weight, model.layers[0], model.layers[0].bias, model.options["extra"]]
        model.a.weight, model.layers[0], model.options["extra"] = nn.Parameter(T.ones(4, 3)), nn.Linear(2, 2), T.ones(2)
        return gone

    return forward, use


@program
def bound_methods_as_arguments() -> Any:
    def use(compiled: Any) -> Any:
        model = Net()
        times(compiled, model.forward, T.ones(2, 3))
        return model, *tensors(model)

    return lambda method, x: method(x), use


@program
def functions_as_arguments() -> Any:
    def use(compiled: Any) -> Any:
        model, more = Net(), T.ones(2)

        def closed(x: Any) -> Any:
            return model(x)

        def plain(x: Any, more: Any = more) -> Any:
            return x + more

        times(compiled, closed, T.ones(2, 3))
        times(compiled, plain, T.ones(2))
        return model, closed, plain, more

    return lambda function, x: function(x), use


@program
def partials_as_arguments() -> Any:
    def use(compiled: Any) -> Any:
        model = Net()
        partial = functools.partial(forward, model)
        times(compiled, partial, T.ones(2, 3))
        return model, partial

    return lambda function, x: function(x), use


@program
def classes_made_for_the_occasion() -> Any:
    def use(compiled: Any) -> Any:
        weight = T.ones(2)

        class Local:
            shared = weight

            def __init__(self) -> None:
                self.own = T.ones(2)

            def __call__(self, x: Any) -> Any:
                return x * self.own * self.shared * weight

        local = Local()
        times(compiled, local, T.ones(2))
        return local, local.own  # the class is kept, like all that is compared by identity and defined

    return lambda function, x: function(x), use


@program
def tensors_of_a_class_made_for_the_occasion() -> Any:
    def use(compiled: Any) -> Any:
        class Marked(T.Tensor):
            pass

        x = Marked([1.0, 2.0])
        results = times(compiled, x)
        return x, *results

    return lambda x: x * 2, use


@program
def iterators_and_generators() -> Any:
    def use(compiled: Any) -> Any:
        held = T.ones(2)

        def generate() -> Any:
            while True:
                yield held

        generator = generate()
        times(compiled, generator, T.ones(2))
        return held, generator

    return lambda generator, x: x * next(generator), use


@program
def objects_compared_by_identity() -> Any:
    def use(compiled: Any) -> Any:
        odd, model = Local(model=Net()), Net()
        odd.more = [model]
        times(compiled, odd, T.ones(2))
        return odd, odd.model, model

    return lambda odd, x: x * 2 if odd is not None else x, use


@program
def recordings_that_came_to_nothing() -> Any:
    def function(model: Any, x: Any) -> Any:
        sys.getsizeof(print)
        return model(x)

    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3)
        return model, x, *times(compiled, model, x)

    return function, use


@program
def recordings_that_raised() -> Any:
    def function(model: Any, x: Any) -> Any:
        model(x)
        raise LookupError

    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3)
        for _ in range(3):
            with pytest.raises(LookupError):
                compiled(model, x)
        return model, x

    return function, use


@program
def calls_that_raised() -> Any:
    def function(model: Any, x: Any) -> Any:
        y = model(x)
        if y.sum() > 1e6:
            raise LookupError
        return y

    def use(compiled: Any) -> Any:
        model, x = Net(), T.ones(2, 3)
        times(compiled, model, x)
        model.scale = T.full((2,), 1e9)
        model.b.bias.data = T.ones(2)
        for layer in model.layers:
            layer.weight.data = layer.bias.data = T.ones(2)
        with pytest.raises(LookupError):
            for _ in range(3):
                compiled(model, x)
        return model, x

    return function, use


@program
def exits_and_misses() -> Any:
    def function(model: Any, x: Any) -> Any:
        y = model(x)
        return y * 2 if x.sum() > 0 else y

    def use(compiled: Any) -> Any:
        model, x, y = Net(), T.ones(2, 3), -T.ones(2, 3)
        results = [r for _ in range(3) for a in (x, y, T.ones(1, 3)) for r in times(compiled, model, a)]
        return model, x, y, *results

    return function, use


@program
def tensors_made_inside() -> Any:
    def function(x: Any) -> Any:
        return x * T.tensor([1.0, 2.0]) + T.zeros(2)

    def use(compiled: Any) -> Any:
        x = T.ones(2)
        return x, *times(compiled, x)

    return function, use


class Local(types.SimpleNamespace):
    """One that can be referred to weakly."""


@program
def containers_as_arguments() -> Any:
    def use(compiled: Any) -> Any:
        model = Net()
        batch = {"x": T.ones(2, 3), "parts": [T.ones(2), (T.ones(2), Local(w=T.ones(2)))]}
        times(compiled, model, batch)
        return model, batch["x"], batch["parts"][0], batch["parts"][1][1], batch["parts"][1][1].w

    return lambda model, b: model(b["x"]) * b["parts"][0] * b["parts"][1][0] * b["parts"][1][1].w, use


def dead(references: list[weakref.ref[Any]]) -> list[Any]:
    gc.collect()
    return [type(r()).__name__ for r in references if r() is not None]


@pytest.mark.parametrize("hot_calls", [0, HOT], ids=["cold", "hot"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_function_keeps_nothing_of_its_callers_alive(name: str, hot_calls: int) -> None:
    with override(hot_calls=hot_calls):
        function, use = PROGRAMS[name]()
        compiled = T.compile(function)
        references = [weakref.ref(each) for each in use(compiled)]
        assert dead(references) == []
        assert compiled.stats.traces >= 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_function_that_is_dropped_leaves_nothing_with_its_callers(name: str) -> None:
    """What is kept with the tensors of a model goes with the function, too."""
    with override(hot_calls=HOT):
        function, use = PROGRAMS[name]()
        compiled = T.compile(function)
        objects = list(use(compiled))
        paths = [weakref.ref(path.run) for path in compiled._table.paths]
        del compiled, use, function
        assert dead(paths) == []
        assert not any(getattr(each, "_held", None) for each in objects if isinstance(each, T.Tensor))


def test_a_method_that_is_compiled_keeps_no_instance_alive() -> None:
    class Model:
        def __init__(self) -> None:
            self.parts = [T.ones(2) for _ in range(6)]

        @T.compile
        def run(self, x: Any) -> Any:
            for part in self.parts:
                x = x * part
            return x

    model = Model()
    for _ in range(6):
        model.run(T.ones(2))
    references = [weakref.ref(each) for each in (model, *model.parts)]
    del model
    assert dead(references) == []


def test_a_closure_goes_with_its_compiled_function() -> None:
    def make() -> tuple[Any, list[Any]]:
        model, x = Net(), T.ones(2, 3)
        compiled = T.compile(lambda: model(x))
        with override(hot_calls=HOT):
            for _ in range(3 * HOT):
                compiled().sum().backward()
        return compiled, [weakref.ref(each) for each in (model, x, compiled, *tensors(model))]

    compiled, references = make()
    del compiled
    assert dead(references) == []


def test_clearing_lets_go_of_everything() -> None:
    model = Net()
    compiled = T.compile(forward)
    for _ in range(4):
        compiled(model, T.ones(2, 3))
    paths = [weakref.ref(path.executable) for path in compiled._table.paths]
    compiled.clear()
    assert dead(paths) == [] and not any(getattr(p, "_held", None) for p in model.parameters())
