"""Programs as people write them every day: training steps, models, evaluation loops, scientific code.  Modules fill this registry.

`@everyday()` registers a maker that returns (function, calls, observe), as those of capture_programs.py are; a maker with a parameter
gets the compiler, for what it compiles itself.  recordings: how many a compiled function needs for all the calls; every other call must
be replayed.  eager: the code of the reason why nothing is replayed.  again: how many recordings are made where the guards are narrower than
the program asks for.  Both are what happens, not what should: a program that does better must lose them.
"""

from __future__ import annotations

import contextlib
import io
import math
import random

import numpy as np
from corpus_facts import facts

import tracejit as T

__all__ = ["EVERYDAY", "batch", "everyday", "inputs", "mlp", "on_batches", "on_inputs", "run", "state"]

EVERYDAY = {}
CALLS = 8


def everyday(recordings=1, eager=None, again=None):
    def register(maker):
        assert maker.__name__ not in EVERYDAY
        EVERYDAY[maker.__name__] = (maker, recordings, eager, again)
        return maker

    return register


class Near:
    """A float, equal to those that differ by roundings that an optimizer has carried on through some steps."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        if not isinstance(other, Near):
            return NotImplemented
        return repr(self.value) == repr(other.value) or math.isclose(self.value, other.value, rel_tol=1e-3, abs_tol=1e-5)

    def __repr__(self):
        return repr(self.value)


def number(value):
    return Near(value) if type(value) is float else repr(value)


def mlp(inputs=16, hidden=32, outputs=5):
    return T.nn.Sequential(T.nn.Linear(inputs, hidden), T.nn.ReLU(), T.nn.Linear(hidden, outputs))


def inputs(i, *shape):
    return T.tensor(np.random.default_rng(i).standard_normal(shape or (8, 16)).astype("f4"))


def batch(i, n=8):
    draws = np.random.default_rng(i)
    return T.tensor(draws.standard_normal((n, 16)).astype("f4")), T.tensor(draws.integers(0, 5, n))


def on_batches(calls=CALLS):
    return [lambda f, i=i: f(*batch(i)) for i in range(calls)]


def on_inputs(*shape, calls=CALLS):
    return [lambda f, i=i: f(inputs(i, *shape)) for i in range(calls)]


def state(*modules):
    """An observation of parameters and buffers."""
    return lambda: [{name: value.detach() for name, value in module.state_dict().items()} for module in modules]


def run(maker, compiler):
    """((what each call came to and printed, outside state), the function called, its last call once more), all from the same seeds."""
    seed(7)
    function, calls, observe = maker(compiler) if maker.__code__.co_argcount else maker()
    called = compiler(function)
    seed(11)
    outcomes = []
    for call in calls:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                outcome = "returned", facts(call(called), number)
            except Exception as error:
                outcome = "raised", type(error), facts(error.args, number)
        outcomes.append((outcome, printed.getvalue()))
    return (outcomes, facts(observe(), number) if observe else None), called, lambda: calls[-1](called)


def seed(value):
    T.manual_seed(value)
    random.seed(value)
    np.random.seed(value)
