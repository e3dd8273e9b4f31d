"""Functions with an lru_cache around them: calls that hit are looked up, and the function runs as often as in eager calls."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

import tracejit as T
from tracejit.capture.handlers.caches import cache_of, key_expression, key_of
from tracejit.config import override
from tracejit.replay.ir import Name, tuple_of

V, W = Name("v1"), Name("v2")

CALLS = 12
runs: list = []


@functools.cache
def scale(k):
    runs.append(k)
    return k + 1.5


@functools.lru_cache
def mask(n):
    runs.append(n)
    return T.ones(3) * n


@functools.cache
def table(a, b):
    runs.append((a, b))
    return {"a": a, "b": [b]}


@functools.lru_cache(2)
def short(n):
    runs.append(n)
    return n * 2


@functools.cache
def failing(n):
    runs.append(n)
    if n == 3:
        raise ValueError("three")
    return n


@functools.lru_cache(typed=True)
def typed(n):
    return n


class Positions:
    @functools.lru_cache  # noqa: B019
    def at(self, n):
        runs.append(("at", n))
        return T.arange(3) * n * 1.0


positions = Positions()


@functools.lru_cache(256)
def parsed(pattern, rank):
    runs.append((pattern, rank))
    return Recipe(pattern, rank)


@functools.lru_cache(1024)
def shapes(recipe, shape, lengths):
    """As the functions of einops: an object that another cache has made, the shape of a tensor, a tuple of pairs."""
    runs.append((recipe.pattern, shape, lengths))
    return [*reversed(shape)], tuple(range(recipe.rank)), dict(lengths)


class Recipe:
    def __init__(self, pattern, rank):
        self.pattern, self.rank = pattern, rank


class Settings:
    pair = (1, 2.5)


settings = Settings()


def reshaped(x, n):
    recipe = parsed("a b", x.ndim)
    shape, order, lengths = shapes(recipe, x.shape, (("b", n % 2),))
    return x.reshape(shape) * len(order) + lengths["b"]


def of_an_attribute(x, n):
    settings.pair = (n % 2, 2.5)
    return x * len(table(settings.pair, None)) + table(settings.pair, None)["a"][0]


FUNCTIONS = (parsed, shapes, scale, mask, table, short, failing, typed, Positions.at)
PROGRAMS = {
    "constant key": (lambda x, n: x * scale(2) + mask(3), 1),
    "changing number": (lambda x, n: x * scale(n % 2), 3),
    "one path for each key where the cache has a limit": (lambda x, n: x * mask(n % 3), 3),
    "what is cached is changed": (lambda x, n: (table("q", 1)["b"].append(n), x * len(table("q", 1)["b"])), 1),
    "method": (lambda x, n: positions.at(4) + x * positions.at(2), 1),
    "keywords": (lambda x, n: x * scale(k=n % 2) + x * mask(n=3), 3),
    "keywords in another order": (lambda x, n: (x * len(table(a=n % 2, b=1)), len(table(b=1, a=0)), len(table(0, b=1))), 2),
    "twice": (lambda x, n: x * scale(5) + scale(5), 1),
    "a number that leaves": (lambda x, n: x * scale(int(x.sum().item()) % 2), None),
    "the shape of a tensor, and objects": (reshaped, 3),
    "a tuple with a number of the call": (lambda x, n: x + table((n % 2, (3, "k")), True)["a"][0], 2),
    "a tuple from outside": (of_an_attribute, 2),
    "by type": (lambda x, n: x * typed(n % 2) + typed(n=1) + typed(1.0), 3),
    "an object as key": (lambda x, n: x * len(table(object, n % 2)), 2),
    "a branch": (lambda x, n: x * scale(7) if x.sum() > 8 else x, 2),
}
EAGER = {
    "no room": lambda x, n: x * short(n % 3),
    "raises": lambda x, n: _handled(x, 3),
    "an object that says itself what it equals": lambda x, n: x * len(table(Equal(), n % 2)),
}


class Equal:
    def __eq__(self, other):
        return type(other) is Equal

    def __hash__(self):
        return 7


def _handled(x, n):
    try:
        return x * failing(n)
    except ValueError as error:
        return str(error)


def shown(value):
    return (
        value.tolist() if isinstance(value, T.Tensor) else [shown(v) for v in value] if isinstance(value, tuple) else repr(value)
    )


def driven(f):
    for function in FUNCTIONS:
        function.cache_clear()
    runs.clear()
    found = []
    for n in range(CALLS):
        result = f(T.tensor([1.0, 2.0, 3.0]) * (n % 3), n)
        found.append((shown(result), list(runs), [function.cache_info() for function in FUNCTIONS]))
        if n == 7:
            scale.cache_clear()
            mask(9)
    return found


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_cached_function_gives_what_it_gives_in_eager_calls_and_counts(name, hot):
    program, paths = PROGRAMS[name]
    expected = driven(program)
    with override(hot_calls=hot):
        compiled = T.compile(program)
        assert driven(compiled) == expected
    missed = 1 if "scale" in program.__code__.co_names else 0  # the call after the cache was cleared
    if paths is not None:
        assert compiled.stats.traces <= paths + missed * 2, compiled.explain()
        assert compiled.stats.compiled_calls >= CALLS - paths - missed * 2


@pytest.mark.parametrize("name", EAGER)
def test_calls_that_cannot_be_looked_up_are_those_of_the_program(name):
    expected = driven(EAGER[name])
    compiled = T.compile(EAGER[name])
    assert driven(compiled) == expected
    assert compiled.stats.compiled_calls == 0 and "unknown_callable" in {r.code for r in compiled.reasons}


def test_a_cache_that_was_cleared_or_filled_up_does_not_serve_old_results():
    made = []

    @functools.lru_cache(4)
    def counted(n):
        made.append(n)
        return T.ones(1) * len(made)

    compiled = T.compile(lambda x, n: x * counted(n))
    assert [compiled(T.ones(1), 1).item() for _ in range(4)] == [1.0] * 4
    assert compiled.stats.compiled_calls == 3
    counted.cache_clear()
    assert [compiled(T.ones(1), 1).item() for _ in range(3)] == [2.0] * 3
    for n in (2, 3, 4, 5):
        counted(n)
    assert compiled(T.ones(1), 1).item() == 7.0
    assert counted.cache_info().misses == 6


def test_keys_are_those_that_the_cache_has():
    @functools.cache
    def f(*arguments, **keywords):
        return arguments

    calls = [
        ((1,), {}),
        (("a",), {}),
        ((1.5,), {}),
        ((True, 2), {}),
        ((1, "b"), {}),
        ((), {}),
        ((1,), {"k": 2, "a": 3}),
        ((), {"k": 1}),
    ]
    for arguments, keywords in calls:
        f(*arguments, **keywords)
    cache, most, by_type = cache_of(f)
    assert most is None and not by_type and list(cache) == [key_of(*call, False) for call in calls]
    mark = list(cache)[-1][0]
    constant = {id(mark): Name("mark")}
    found = [
        key_expression(*call, False, lambda value: constant[id(value)])
        for call in (((1,), {}, [V]), ((1.5,), {}, [V]), ((1, 2), {}, [V, W]), ((1,), {"k": 2}, [V, W]))
    ]
    assert found == [V, tuple_of(V), tuple_of(V, W), tuple_of(V, Name("mark"), "k", W)]
    assert key_expression((1,), {}, [V], True, lambda value: Name(value.__name__)) == tuple_of(V, Name("int"))
    typed.cache_clear(), typed(1), typed(n=1.0)
    assert cache_of(typed)[2] and list(cache_of(typed)[0]) == [key_of((1,), {}, True), key_of((), {"n": 1.0}, True)]


def test_a_cached_function_is_asked_for_each_shape_that_calls_have():
    sizes = [2, 2, 3, 3, 2, 4, 4, 3, 2, 4]

    def driven(f):
        for function in (parsed, shapes):
            function.cache_clear()
        runs.clear()
        return [(f(T.ones(3, size), 1).tolist(), list(runs), shapes.cache_info()) for size in sizes]

    compiled = T.compile(reshaped)
    assert driven(compiled) == driven(reshaped)
    assert compiled.stats.traces == 3 and compiled.stats.compiled_calls == 7, compiled.explain()


EINOPS = """
import tracejit.compat
tracejit.compat.install_as_torch()
import torch
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange

embed = torch.nn.Sequential(Rearrange("b (h p) c -> b h (p c)", p=2), torch.nn.Linear(12, 6))
project, token = torch.nn.Linear(6, 18), torch.nn.Parameter(torch.ones(1, 1, 6))

def loss_and_gradients(x):
    x = embed(x)
    x = torch.cat((repeat(token, "1 1 d -> b 1 d", b=x.shape[0]), x), dim=1)
    q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=2) for t in project(x).chunk(3, dim=-1))
    out = rearrange((q @ k.transpose(-1, -2)).softmax(-1) @ v, "b h n d -> b n (h d)")
    loss = reduce(out, "b n d -> b d", "mean").square().sum()
    return loss, *torch.autograd.grad(loss, (token, *embed.parameters(), *project.parameters()))

compiled = torch.compile(loss_and_gradients)
for batch in (2, 2, 3, 3, 2, 3):
    x = torch.randn(batch, 8, 6)
    expected = loss_and_gradients(x)  # einops looks for its backends once, in the first call
    for ours, eager in zip(compiled(x), expected, strict=True):
        torch.testing.assert_close(ours, eager)
assert compiled.stats.traces == 2 and compiled.stats.compiled_calls == 4, compiled.explain()
"""


def test_a_vision_transformer_written_with_einops_stays_compiled(tmp_path):
    pytest.importorskip("einops")
    (tmp_path / "transformer.py").write_text(EINOPS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, tmp_path / "transformer.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
