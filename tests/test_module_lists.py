"""Lists of modules and of parameters behind C code and behind functions of the library: what goes through them is followed."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit import autograd, nn
from tracejit.functional import linear, mse_loss

T.manual_seed(0)
first, second = (nn.ModuleList([nn.Linear(3, 3) for _ in range(3)]) for _ in range(2))
nested = nn.ModuleList([nn.ModuleList([nn.Linear(3, 3), nn.Tanh()]), nn.ModuleList([nn.Tanh(), nn.Linear(3, 3)])])
parameters = nn.ParameterList([nn.Parameter(T.randn(3)) for _ in range(3)])


def apply_layers(layers: Any, x: T.Tensor) -> T.Tensor:
    for layer in layers:
        x = layer(x)
    return x


def of_parameters(x: T.Tensor) -> T.Tensor:
    return sum((p * x).sin().sum() for p in parameters)  # type: ignore[return-value]


def added_to_grad(x: T.Tensor) -> Any:
    of_parameters(x).backward(inputs=parameters)
    found = [p.grad.clone() for p in parameters]  # type: ignore[union-attr]
    for p in parameters:
        p.grad = None
    return found


class Counts:
    """An object that is gone through by its items."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __getitem__(self, k: int) -> int:
        return self.numbers[k]


counts = Counts(4, 5, 6)
PROGRAMS: dict[str, Callable[[T.Tensor], Any]] = {
    "zip of a starred list": lambda x: sum(a(x) + b(x) for a, b in zip(*[first, second], strict=True)),
    "zip of starred modules": lambda x: [apply_layers(pair, x) for pair in zip(*nested, strict=True)],
    "map": lambda x: sum(map(lambda layer, p: layer(x) * p, first, parameters)),
    "map of C code": lambda x: sum(map(operator.attrgetter("bias"), first)) * x,
    "reduce": lambda x: functools.reduce(lambda value, layer: layer(value), first, x),
    "accumulate": lambda x: list(itertools.accumulate(first, lambda value, layer: layer(value), initial=x)),
    "chain": lambda x: apply_layers(itertools.chain(first, *nested), x),
    "pairs": lambda x: apply_layers([b for _, b in itertools.pairwise(first)], x),
    "deque": lambda x: apply_layers(collections.deque(first, maxlen=2), x),
    "max": lambda x: max(first, key=lambda layer: layer.in_features)(x),
    "gradients": lambda x: autograd.grad(of_parameters(x), parameters),
    "gradients by name": lambda x: autograd.grad(outputs=of_parameters(x), inputs=parameters),
    "gradients added": added_to_grad,
    "whether a module is in it": lambda x: x * (first[1] in first) + (second[0] in first) + (second[0] not in first) * 2,
    "whether a number is in an object": lambda x: x * (5 in counts) + (7 in counts),
}


def contents(value: Any) -> Any:
    return value.tolist() if isinstance(value, T.Tensor) else [contents(v) for v in value]


@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_of_modules_are_followed_whoever_goes_through_them(name: str) -> None:
    program = PROGRAMS[name]
    compiled = T.compile(program, wait=True)
    for _ in range(4):
        x = T.randn(3)
        for ours, theirs in zip(contents(compiled(x)), contents(program(x)), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6) if isinstance(ours, float) else len(ours) == len(theirs)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 3, compiled.explain()


def test_an_object_that_nothing_is_in_raises_as_in_eager_mode() -> None:
    compiled = T.compile(lambda x, o: x if 3 in o else -x)
    for _ in range(3):
        with pytest.raises(TypeError, match="argument of type 'object' is not iterable"):
            compiled(T.ones(1), object())


class Learner(nn.Module):
    """A network whose weights may be given, as learners of MAML are."""

    def __init__(self) -> None:
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(T.randn(*shape) * 0.5) for shape in ((4, 3), (4,), (1, 4), (1,))])

    def forward(self, x: T.Tensor, weights: Any = None) -> T.Tensor:
        w = self.vars if weights is None else weights
        return linear(linear(x, w[0], w[1]).relu(), w[2], w[3])

    def parameters(self, recurse: bool = True) -> Any:
        return self.vars


def adapted(learner: Learner, optimizer: Any, xs: T.Tensor, ys: T.Tensor) -> float:
    """A step of MAML: for each task some steps on fast weights, whose loss is that of the weights they began with."""
    losses: list[Any] = [0 for _ in range(3)]
    for i in range(xs.size(0)):
        gradients = autograd.grad(mse_loss(learner(xs[i]), ys[i]), learner.parameters())
        fast = list(map(lambda p: p[1] - 0.1 * p[0], zip(gradients, learner.parameters(), strict=True)))  # noqa: C417
        losses[1] += mse_loss(learner(xs[i], fast), ys[i])
        for k in range(1, 2):
            gradients = autograd.grad(mse_loss(learner(xs[i], fast), ys[i]), fast)
            fast = list(map(lambda p: p[1] - 0.1 * p[0], zip(gradients, fast, strict=True)))  # noqa: C417
            losses[k + 1] += mse_loss(learner(xs[i], fast), ys[i])
    optimizer.zero_grad()
    losses[-1].backward()
    optimizer.step()
    return losses[-1].item()


def test_an_inner_loop_over_fast_weights_is_compiled() -> None:
    ours = Learner()
    theirs = Learner()
    theirs.load_state_dict(ours.state_dict())
    optimizers = [T.optim.Adam(learner.parameters(), 1e-2) for learner in (ours, theirs)]
    compiled = T.compile(adapted, wait=True)
    for _ in range(6):
        xs, ys = T.randn(2, 5, 3), T.randn(2, 5, 1)
        assert compiled(ours, optimizers[0], xs, ys) == pytest.approx(adapted(theirs, optimizers[1], xs, ys), rel=1e-4)
        for a, b in zip(ours.vars, theirs.vars, strict=True):
            assert T.allclose(a, b, 1e-4, 1e-6)
    assert compiled.stats.traces <= 2 and compiled.stats.compiled_calls >= 4, compiled.explain()
