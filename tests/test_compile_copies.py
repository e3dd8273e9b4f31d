"""Copies and pickles of what compiled/compile.py makes."""

from __future__ import annotations

import copy
import pickle

import pytest

import tracejit as tj
from tracejit import nn


@tj.compile
def doubled(x):
    return x * 2


class Scale:
    @tj.compile
    def apply(self, x):
        return x * self.by


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.step = tj.compile(self._step)

    def _step(self, x):
        return self.linear(x)

    def forward(self, x):
        return self.step(x)


def used(function, *args):
    for _ in range(4):
        function(*args)
    return function


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_a_decorated_function_is_found_by_its_name(again):
    assert again(used(doubled, tj.ones(2))) is doubled and again(Scale.apply) is Scale.apply


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_local_function_records_for_itself(again):
    original = used(tj.compile(lambda x, by=3: x * by), tj.ones(2))
    made = again(original)
    assert type(made) is type(original) and made is not original and made.__wrapped__ is original.__wrapped__
    assert made(tj.ones(2), 5).tolist() == [5.0, 5.0] and made.stats.calls == 1
    original.clear()
    assert used(made, tj.ones(2)).stats.compiled_calls > 0 and original.stats.calls == 0


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copied_model_with_a_compiled_method_computes_with_its_own_parameters(again):
    model = used(Model(), tj.ones(2))
    other = again(model)
    with tj.no_grad():
        other.linear.weight.fill_(1.0)
        other.linear.bias.fill_(0.5)
    for _ in range(3):
        assert other(tj.ones(2)).tolist() == [2.5, 2.5]
    assert model(tj.ones(2)).tolist() == model._step(tj.ones(2)).tolist() != [2.5, 2.5]


def test_a_deep_copy_of_a_compiled_model_is_a_compiled_copy():
    model = nn.Linear(2, 2)
    other = copy.deepcopy(used(tj.compile(model), tj.ones(2)))
    assert other.__wrapped__ is not model and other.weight.tolist() == model.weight.tolist()
