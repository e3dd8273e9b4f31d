"""Truth values in lists and tuples from outside: data where tensors are made of them and numbers are computed with them, and a path each
where the program asks them."""

from __future__ import annotations

import json
import random
from collections import deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn
from tracejit.config import override

X = T.arange(12.0).reshape(4, 3)
CALLS = 9
Step = namedtuple("Step", "state action reward done")


class Box:
    flag = False


class Twice(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if self.training else x * 2


box, twice = Box(), Twice()

DATA: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda v: T.tensor(v),
    "tensor of floats": lambda v: T.tensor(v, dtype=T.float32) + T.tensor(v, dtype=T.float16),
    "tensors of integers": lambda v: (T.tensor(v, dtype=T.int32), T.tensor(v, dtype=T.int64), T.tensor(v, dtype=T.uint8)),
    "tensor of bools by name": lambda v: (T.tensor(v, dtype=T.bool), T.as_tensor([*v, *v]), T.BoolTensor(v), T.FloatTensor(v)),
    "tensor with a gradient": lambda v: T.tensor(v, dtype=T.float64, requires_grad=True).detach(),
    "nested": lambda v: (T.tensor([v, v]), T.tensor([[v[0]], [v[1]]], dtype=T.float32), T.tensor(v[0])),
    "among numbers": lambda v: (T.tensor([[v[0], 2], [1, v[1]]]), T.tensor([v[0], 0.5])),
    "mask": lambda v: (X.masked_fill(T.tensor(v).unsqueeze(1), 0), T.where(T.tensor(v)[:, None], X, -X), ~T.tensor(v)),
    "arithmetic": lambda v: (X * (1 - v[0]), X * (v[0] + v[1]), X * (0.9 * v[0]), v[0] / 2, -v[1], +v[0], abs(v[1]), v[0] ** 2),
    "conversions": lambda v: (X * int(v[0]), X * float(v[1]), sum(v), X * (1 - int(v[0])) * 0.9),
    "masks": lambda v: (
        T.tensor([0.0 if flag else 1.0 for flag in v]) * X[:, 0],
        T.tensor([not flag for flag in v]),
        X * (2 if v[0] else -3),
    ),
    "negations": lambda v: (X, not v[0], [not flag for flag in v], 2.5 if not v[1] else -1.5),
    "types": lambda v: (X, type(v[0]), isinstance(v[0], bool), isinstance(v[1], int), isinstance(v[0], str)),
    "results": lambda v: (X, v[0], v, v[::-1], {"done": v[1]}, [*v], list(zip(v, range(4), strict=True))),
    "texts of data": lambda v: (X, json.dumps(v)),
    "records": lambda v: (X, Step(X, 1, 2.0, v[0]), Step(*v).action, Step(*v)[3]),
    "arrays": lambda v: (T.tensor(np.array(v, dtype=np.float32) * 2), np.mean(v) * X, np.array([v, [v[0]] * 4])),
    "copies": lambda v: (X, list(v), tuple(v), v * 2, [v[0]] * 3, 2 * v),
}


def by_identity(v: Any) -> Any:
    return (X if v[0] is True else X * 2), v[1] is v[3], v[0] is None, v[1] is not False


def matched(v: Any) -> Any:
    match v:
        case [True, True, *rest]:
            return X, rest
        case [False, bool(second), *_]:
            return X * 2, second
        case _:
            return X * 3


def kept(v: Any) -> Any:
    box.flag = v[0]
    twice.train(v[1])
    return X * (2 if box.flag else 1), twice(X), box.flag


def state_of_tensors(v: Any) -> Any:
    t = X.clone()
    t.requires_grad = v[0]
    with T.set_grad_enabled(v[1]):
        return t.requires_grad, (t * 2).requires_grad, t.requires_grad_(v[1]).requires_grad


def stored(v: Any) -> Any:
    x = X.clone()
    x[0, v[1]] = v[0]
    return x, x[v[0]], x[list(v)], x[list(v), 1], [4, 5][v[0]], {True: 1, False: 2}[v[1]]


ASKED: dict[str, Callable[[Any], Any]] = {
    "branches": lambda v: (X if v[0] else -X) * (2 if not v[1] else 3),
    "chosen": lambda v: (X, v[0] and v[1], v[0] or 5, not v[0], any(v), all(v), max(v), min(v), sorted(v)),
    "comparisons": lambda v: (X, v[0] == v[1], v[0] != 1, v[0] < v[1], v[0] == "a", v.count(True), True in v, v.index(True)),
    "lists compared": lambda v: (X, v == [True, False, True, False], v == list(v), set(v), hash(v[0])),
    "texts": lambda v: (X, f"{v[0]} {v[1]!r} {v[0]:d}", "%s %d" % (v[0], v[1]), str(v), str(v[0])),  # noqa: UP031
    "operands": lambda v: (X * v[0], T.tensor([1, 2]) + v[0], T.tensor([True, False]) ^ v[0], v[1] < X * 2, T.full((2,), v[0])),
    "options": lambda v: (X.sum(0, keepdim=v[0]), X.max(1, keepdim=v[1])[0], T.zeros(v[0] + 1, 2), list(range(v[1] + 1))),
    "choices": lambda v: (X, 1 if v[0] and v[1] else 2, 1.5 if v[0] else 2, 1.5 if v[0] == v[1] else 2.5, X if v[0] else 1),
    "bits": lambda v: (X, v[0] & v[1], v[0] ^ v[1], v[0] | 2, v[0].bit_length(), divmod(v[0], 2), round(v[1])),
    "identity": by_identity, "patterns": matched, "kept": kept, "state of tensors": state_of_tensors, "positions": stored,
}  # fmt: skip


def equal(function: Callable[..., Any], arguments: Callable[[int], Any], hot: int) -> Any:
    """Call it eagerly and compiled; returns the compiled function."""
    with override(hot_calls=hot):
        compiled = T.compile(function)
        for k in range(CALLS):
            assert outcome(compiled, arguments(k)) == outcome(function, arguments(k)), k
    return compiled


def outcome(function: Callable[..., Any], argument: Any) -> str:
    try:
        return repr(function(argument))
    except (IndexError, TypeError, RuntimeError, ValueError) as error:
        return repr(error)


def values(kind: Any) -> Callable[[int], Any]:
    return lambda k: kind([bool(k & 1), bool(k & 2), True, False])


@pytest.mark.parametrize("hot", [2, 1000])
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", DATA)
def test_truth_values_are_data(name: str, kind: Any, hot: int) -> None:
    assert equal(DATA[name], values(kind), hot).stats.traces == 1


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", ASKED)
def test_truth_values_that_are_asked_have_paths_of_their_own(name: str, kind: Any) -> None:
    compiled = equal(ASKED[name], values(kind), 2)
    assert 1 <= compiled.stats.traces <= 5


def test_another_type_in_the_place_of_a_truth_value_is_another_path() -> None:
    others = [True, 1, False, 0, 1.0, None, "a", True, 0.0]
    for function in (DATA["nested"], DATA["arithmetic"], DATA["results"], ASKED["operands"]):
        equal(function, lambda k: [others[k], True, True, False], 2)


def test_many_truth_values_are_data_once_others_have_come() -> None:
    compiled = equal(lambda v: T.tensor(v), lambda k: [bool(k >> i % 4 & 1) for i in range(80)], 1000)
    assert compiled.stats.traces == 2
    equal(lambda v: T.tensor(v, dtype=T.float32), lambda k: [*[k % 2 == 0] * 70, [True, 1, 0.5][k % 3]], 1000)


def of_columns(batch: Any) -> Any:
    states, actions, rewards, done = zip(*batch, strict=True)
    return T.stack(states), T.tensor(actions), T.tensor(rewards), T.tensor(done)


def of_records(batch: Any) -> Any:
    whole = Step(*zip(*batch, strict=True))
    return T.stack(whole.state), T.tensor(whole.action), T.tensor(whole.reward), 1 - T.tensor(whole.done, dtype=T.float32)


def of_fields(batch: Any) -> Any:
    done = [step.done for step in batch]
    return T.stack([step.state for step in batch]), T.tensor([step.reward for step in batch]), T.tensor(done, dtype=T.float32)


def of_items(batch: Any) -> Any:
    kept = [[1 - step[3]] for step in batch]
    return (
        T.stack([step[0] for step in batch]),
        T.tensor([[step[1]] for step in batch]),
        T.tensor(kept) * next(step[-2] for step in batch),
    )


@pytest.mark.parametrize("kind", [list, lambda: deque(maxlen=60)])
@pytest.mark.parametrize("made", [tuple, lambda parts: Step(*parts)])
@pytest.mark.parametrize("function", [of_columns, of_records, of_fields, of_items])
def test_batches_from_a_buffer_of_steps(function: Callable[[Any], Any], made: Any, kind: Any) -> None:
    if function is of_fields and made is tuple:
        made = lambda parts: Step(*parts)

    def learner() -> tuple[Any, Any]:
        steps = kind()
        steps.extend(made((T.ones(3) * k, k % 4, float(k), k % 3 == 0)) for k in range(60))
        return steps, lambda: function(random.sample(steps, 5))

    (steps, eager), (other_steps, compiled) = learner(), learner()
    compiled = T.compile(compiled)
    for k in range(12):
        for position in (steps, other_steps):
            position.append(made((T.ones(3) * -k, k, 0.5, k % 2 == 0)))
        random.seed(k)
        expected = repr(eager())
        random.seed(k)
        assert repr(compiled()) == expected
    assert compiled.stats.traces <= 4  # the same step twice is another path


@dataclass
class Flags:
    first: bool
    second: bool


def flags_of_objects(k: int) -> Any:
    return Flags(bool(k & 1), bool(k & 2)), {"first": bool(k & 2), "second": bool(k & 1)}


def fields_as_data(given: Any) -> Any:
    made, named = given
    return T.tensor([made.first, named["second"], made.second, named["first"]]), X * (
        1.0 - T.tensor([named["first"]], dtype=T.float32)
    )


def fields_that_are_asked(given: Any) -> Any:
    made, named = given
    known = made.first is True, isinstance(named["first"], bool), made == Flags(True, False), f"{made.second} {named}"
    return X.sum(0, keepdim=made.second), X * named["second"], known, repr(made), 1 if made.first and named["first"] else 0


@pytest.mark.parametrize("hot", [2, 1000])
def test_flags_of_objects_and_dictionaries_are_data_once_they_have_been_others(hot: int) -> None:
    compiled = equal(fields_as_data, flags_of_objects, hot)
    assert compiled.stats.traces == 3  # none has been another one, one has, both have
    assert equal(fields_that_are_asked, flags_of_objects, hot).stats.traces <= 4


def test_flags_of_what_can_be_called_are_guarded_by_their_values() -> None:
    model = nn.Sequential(Twice(), Twice())

    def evaluated(k: int) -> Any:
        model.train(k % 2 == 0)
        return X

    compiled = equal(lambda x: (model(x), T.tensor(model.training)), evaluated, 2)
    assert compiled.stats.traces == 2
