"""Symbolic sizes: arithmetic that is remembered, relations that are noted, and what stands in their places for other sizes."""

from __future__ import annotations

import builtins
import contextlib
import copy
import itertools
import math
import operator
import pickle
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracejit.core import symbolic
from tracejit.core.shapes import (
    broadcast_shapes,
    contiguous,
    element_strides,
    equal_runs,
    filled_strides,
    fills_memory,
    largest,
    memory_order,
    slice_of,
)
from tracejit.core.substitution import Substitution
from tracejit.core.symbolic import (
    SYMBOLIC,
    ShapeEnv,
    SymFloat,
    SymInt,
    by_origin,
    cached,
    called,
    has_symbols,
    without_symbols,
)
from tracejit.passes.mincut import Cut


def environment(*hints: int) -> tuple[ShapeEnv, list[SymInt]]:
    env = ShapeEnv()
    return env, [env.size(hint, name) for hint, name in zip(hints, "nmkj", strict=False)]


def test_arithmetic_has_the_value_of_this_run_and_of_any_other() -> None:
    env, (n, m) = environment(6, 4)
    with env:
        results = [n + m, n - m, 2 * n * m, n // m, n % m, n / m, -n, abs(m - n), n**2, 7 - n, divmod(n, 4)[1], n * 1.0 + 0.5]
    assert results == [10, 2, 48, 1, 2, 1.5, -6, 2, 36, 1, 2, 6.5]
    assert all(type(x) in SYMBOLIC for x in results)
    values = env.values([10, 3])
    assert [values[x.number] for x in results] == [13, 7, 60, 3, 1, 10 / 3, -10, 7, 100, -3, 2, 10.5]


def test_sums_and_products_have_one_form() -> None:
    env, (n, m) = environment(6, 4)
    with env:
        assert ((n * 2) * m).number == (m * n * 2).number and (n + m - n).number == m.number
        assert (n * m - m * n, (n + 1) - n) == (0, 1) and type(n - n) is int
        assert (n * 64) // 64 is not n and ((n * 64) // 64).number == n.number
        assert (n * 64 % 64, 0 // n, 1 % n, n // 1) == (0, 0, 1, n)
    assert not env.relations


def test_comparisons_are_noted_unless_they_come_out_the_same_for_all_sizes_from_two_on() -> None:
    env, (n, m) = environment(6, 4)
    with env:
        assert n != 0 and n != 1 and n >= 2 and n * m >= n and n * 4 != n and -n < 0 and n * 2 > 1 and not n < 1 and n == n
        assert not env.relations
        assert n > 5 and n != m and m <= n and n == 6 and max(n, m) is n
    assert env.guards() == ["n > 5", "n != m", "m <= n", "n == 6", "m <= n"]
    assert env.evaluated([6, 4]) is not None
    assert env.evaluated([7, 4]) is None and env.evaluated([6, 6]) is None
    assert env.pinned() == {0} and env.pins() == ["n == 6"]


@pytest.mark.parametrize(
    "ask",
    [
        int,
        float,
        str,
        repr,
        "{}".format,
        operator.invert,
        round,
        math.floor,
        lambda n: n << 1,
        lambda n: n & 3,
        lambda n: [0] * n,
        lambda n: range(n)[-1],
        lambda n: math.sqrt(n),
        lambda n: math.comb(n, 2),
        lambda n: format(n, ",d"),
        lambda n: n.bit_length(),
        lambda n: pow(n, 2, 5),
        lambda n: np.zeros(n).shape[0],
        lambda n: np.float32(2.5) * n,
        lambda n: n - np.float32(2.5),
        lambda n: np.arange(n).dtype.name,
        lambda n: (np.ones(2, np.float32) * n).dtype.name,
        lambda n: np.minimum(np.float32(2.5), n).item(),
        lambda n: np.full(1, n).dtype.name,
        lambda n: copy.deepcopy(n),
        lambda n: pickle.loads(pickle.dumps(n)),
    ],
)
def test_who_asks_for_the_number_itself_gets_it_and_pins_the_size(ask: Callable[[Any], Any]) -> None:
    env, (n,) = environment(6)
    with env:
        assert ask(n) == ask(6) and type(ask(n)) not in SYMBOLIC
    assert env.pinned() == {0}


def test_what_follows_from_relations_is_not_noted_again() -> None:
    env, (a, b, c, d) = environment(6, 6, 7, 7)
    with env:
        assert a == b and a * 3 == b * 3 and not a > b and a != 2 * b and not b * b < a * b
        assert c == b + 1 and a < c and c - a == 1
        assert d == 7 and d > 5 and c == d and c * 2 == 14 and a == 6
    assert env.guards() == ["n == m", "k == (m + 1)", "j == 7", "k == j"]
    assert env.pinned() == {0, 1, 2, 3} and env.evaluated([6, 6, 7, 7]) is not None
    for others in ((6, 5, 7, 7), (5, 5, 6, 6), (6, 6, 8, 8)):
        assert env.evaluated(others) is None


@settings(max_examples=200, deadline=None)
@given(
    st.tuples(*[st.integers(2, 5)] * 3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.integers(0, 2), st.integers(-2, 2)), min_size=1, max_size=8),
    st.tuples(*[st.integers(2, 5)] * 3),
)
def test_comparisons_that_are_not_noted_come_out_as_before_where_relations_hold(
    sizes: tuple[int, ...], asked: list[tuple[int, ...]], others: tuple[int, ...]
) -> None:
    env, variables = environment(*sizes)

    def answers(of: Any) -> list[bool]:
        return [
            holds
            for i, x, k, y in asked
            for left, right in [(of[i] * x + of[0] * of[k], of[k] * of[0] * y + x), (of[i] + x, of[k] + y)]
            for holds in (left == right, left < right, left >= right)
        ]

    with env:
        said = answers(variables)
    assert said == answers(sizes)
    if env.evaluated(others) is not None:
        assert said == answers(others)


def test_outside_its_environment_and_in_other_threads_it_is_a_plain_number() -> None:
    env, (n,) = environment(6)
    found: list[Any] = []
    with env:
        thread = threading.Thread(target=lambda: found.extend([n + 1, n > 5, f"{n}"]))
        thread.start()
        thread.join()
        env.pause()
        found += [n * 2, n == 6]
        env.resume()
    found += [n - 1, n < 3, str(n)]
    assert found == [7, True, "6", 12, True, 5, False, "6"] and not any(type(x) in SYMBOLIC for x in found)
    assert not env.relations
    assert type(pickle.loads(pickle.dumps(n))) is int and type(copy.deepcopy([n])[0]) is int
    assert np.zeros((n, 2)).shape == (6, 2)


def test_quotients_that_are_not_whole_and_division_by_a_size_of_zero_hold_for_no_such_size() -> None:
    env, (n,) = environment(6)
    with env:
        assert 12 // (n - 2) == 3
    assert env.evaluated([2]) is None and env.evaluated([6]) is not None
    env, (n,) = environment(6)
    with env, pytest.raises(ZeroDivisionError):
        12 // (n - 6)
    assert env.evaluated([6]) is not None and env.evaluated([7]) is None


def test_called_functions_are_asked_again_and_their_truth_values_are_noted() -> None:
    env, (n,) = environment(6)
    with env:
        low, high, even = called(lambda n: [n - 1, n + 1, n % 2 == 0], n)
    assert (low, high, even) == (5, 7, True) and type(low) is SymInt and even is True
    values = env.evaluated([8])
    assert values is not None and (values[low.number], values[high.number]) == (7, 9)
    assert env.evaluated([7]) is None
    assert called(lambda n: [n * 2], 4) == [8]


def test_a_cache_is_not_asked_with_symbolic_sizes() -> None:
    calls: list[Any] = []

    @cached(maxsize=8)
    def twice(shape: tuple[int, ...]) -> int:
        calls.append(shape)
        return shape[0] * 2

    env, (n,) = environment(6)
    assert twice((6, 1)) == twice((6, 1)) == 12 and len(calls) == 1
    with env:
        assert type(twice((n, 1))) is SymInt and len(calls) == 2
    assert type(twice((6, 1))) is int and not env.relations


def test_numbers_of_an_environment_that_is_over_are_plain_ones_to_another() -> None:
    over, (old,) = environment(6)
    with over:
        known = {(old, 1): "six"}
    env, (n, m) = environment(6, 4)
    with env:
        assert known.get((n, 1)) == "six" and known.get((m, 1)) is None
        total = old + m
    assert env.guards() == ["6 == n"] and not over.relations
    assert type(total) is SymInt and env.values([6, 7])[total.number] == 13


def test_expressions_are_made_of_the_sizes_of_another_environment_with_floats_on_the_left_as_well() -> None:
    env, (n,) = environment(6)
    with env:
        half = env.compute("+", 0.5, n // 2)
    other, (k,) = environment(8)
    with other:
        made = env.values([k])[half.number]
    assert type(made) is SymFloat and made == 4.5 and other.values([20])[made.number] == 10.5


def test_numbers_that_are_equal_by_chance_have_keys_of_their_own() -> None:
    env, (n, m) = environment(6, 3)
    with env:
        keys = [by_origin(x) for x in (n, m * 2, n + m - m, 6)]
        assert keys[0] == keys[2] and len(set(keys)) == 3
    assert not env.relations and by_origin(n) == by_origin(6)


def test_symbolic_numbers_are_found_in_tuples_lists_and_slices() -> None:
    env, (n,) = environment(6)
    with env:
        assert without_symbols(1 / n) == 1 / 6 and has_symbols((1, [slice(n)])) and not has_symbols((1, "n"))
    assert not env.relations


def computed(sizes: tuple[Any, ...]) -> list[Any]:
    """What the Dim API says of some shapes, and what follows from it."""
    n, m, k = sizes
    results: list[Any] = [
        contiguous((n, m, k)),
        memory_order((n, m), (1, n)),
        slice_of(slice(1, m), n),
        slice_of(slice(-k, None, 2), n),
    ]
    for shapes in (((n, m), (1, m)), ((n, 1), (k, n, m))):
        results.append(broadcast_shapes("add", *shapes))
    results += [equal_runs((n, m * k), (n * m, k)), max(n, m), sorted((n, m, k)), n // 3 if n > m else m % 3, n * m == k * k]
    return results


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.integers(2, 40)] * 3), st.tuples(*[st.integers(2, 40)] * 3))
def test_what_was_computed_holds_for_all_sizes_that_satisfy_the_relations(first: tuple[int, ...], then: tuple[int, ...]) -> None:
    env = ShapeEnv()
    sizes = tuple([env.size(n, f"s{k}") for k, n in enumerate(first)])
    with env:
        found = computed(sizes)
    assert env.evaluated(list(first)) is not None
    assert Substitution(env, env.values(list(first))).of(found) == computed(first)
    values = env.evaluated(list(then))
    if values is not None:
        assert Substitution(env, values).of(found) == computed(then)
        assert list(map(repr, values)) == list(map(repr, env.values(list(then))))


def test_sums_of_thousands_of_terms_are_evaluated_and_where_the_stack_ends_nothing_is_known() -> None:
    env = ShapeEnv()
    sizes = [env.size(k + 2) for k in range(80)]
    with env:
        total = sum(sizes) * sum(sizes)
    plain = [k + 3 for k in range(80)]
    values = env.evaluated(plain)
    assert values is not None and Substitution(env, values).of(total) == sum(plain) ** 2

    def deep(n: int) -> Any:
        return deep(n - 1) if n else env.evaluated([*plain[:-1], 5])

    with contextlib.suppress(RecursionError):  # of the test's own
        for n in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
            found = deep(n)
            assert found is None or Substitution(env, found).of(total) == (sum(plain[:-1]) + 5) ** 2


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20), st.data())
def test_a_minimum_cut_is_a_function_of_the_capacities_of_its_edges(edges: list[tuple[int, int]], data: st.DataObject) -> None:
    edges = [edge for edge in edges if edge[0] != edge[1]]
    numbers = st.lists(st.integers(0, 9), min_size=len(edges), max_size=len(edges))
    capacities = data.draw(numbers)
    side = Cut(8, 0, 7, tuple(edges))(*capacities)

    def cost(some: tuple[bool, ...]) -> int:
        return sum([c for (a, b), c in zip(edges, capacities, strict=True) if some[a] and not some[b]])

    assert side[0] and not side[7]
    assert cost(tuple(side)) == min(cost((True, *rest, False)) for rest in itertools.product((False, True), repeat=6))


def test_the_largest_of_sizes_is_known_without_their_order() -> None:
    env, (n, m) = environment(6, 4)
    with env:
        most, least = largest([n, m, 3]), env.compute("min", n, m)
        assert (most, least, largest([2, 3])) == (6, 4, 3)
        env.relations.clear()  # of the comparison here
        assert most >= n and most - m + 2 > 1 and m <= most and not most < 3 and least <= n and not least - m > 0
        assert (
            largest([most, n]).number == most.number
            and largest([n, n - 1, 1]) is not n
            and largest([n, n - 1, 1]).number == n.number
        )
        assert env.compute("max", 2, 1) == 2 and (most * n) // n == most and env.compute("min", n, 1) == 1
    assert not env.relations
    assert env.values([5, 9])[most.number] == 9 and env.values([2, 2])[most.number] == 3 and env.values([5, 9])[least.number] == 5
    assert env.text(most.number) == "max(n, m, 3)"
    with env:
        assert most > n - 1 and most == n  # the first one is certain
    assert env.guards() == ["max(n, m, 3) == n"] and env.evaluated([4, 6]) is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(-2, 2)] * 6), min_size=1, max_size=3),
    st.sampled_from(["max", "min"]),
    st.tuples(*[st.integers(2, 12)] * 3),
    st.tuples(*[st.integers(2, 12)] * 3),
)
def test_bounds_of_differences_hold_for_all_sizes(
    terms: list[tuple[int, ...]], name: str, first: tuple[int, ...], then: tuple[int, ...]
) -> None:
    """What is certain is not noted: so whatever comes out another way for other sizes has a relation."""

    def outcomes(n: Any, m: Any, k: Any, extreme: Callable[..., Any]) -> list[bool]:
        made = []
        for a, b, c, d, e, f in terms:
            one, other = extreme(n, m + a, k * 2), extreme(n * b, k, 3)
            difference = one * c + other * d + n * e - m * f
            made += [difference > a, difference >= 0, difference == b, one >= n + a, other <= one]
        return made

    env = ShapeEnv()
    with env:
        found = outcomes(*[env.size(n, f"s{k}") for k, n in enumerate(first)], lambda *x: env.compute(name, *x))
    assert found == outcomes(*first, getattr(builtins, name))
    if env.evaluated(list(then)) is not None:
        assert found == outcomes(*then, getattr(builtins, name))


def test_numbers_are_rounded_as_python_does_for_other_sizes() -> None:
    env, (n,) = environment(7)
    with env:
        rounded = [env.compute(name, n / 2) for name in ("floor", "ceil", "trunc", "round", "float")]
        assert env.compute("ceil", n) is n
    assert rounded == [3, 4, 3, 4, 3.5] and all(type(x) in SYMBOLIC for x in rounded) and not env.relations
    values = env.values([5])
    assert [values[x.number] for x in rounded] == [2, 3, 2, 2, 2.5]
    assert env.text(rounded[1].number) == "ceil((n / 2))"


def test_symbolic_floats_are_floats() -> None:
    env, (n,) = environment(8)
    with env:
        share = 1 / n
        assert type(share) is SymFloat and share < 0.2 and share * 8 == 1.0
    assert env.evaluated([16]) is None  # 16 * (1 / 8) is another number
    assert env.evaluated([8]) is not None and math.isclose(env.values([4])[share.number], 0.25)


def test_the_library_counts_over_sizes_so_that_it_is_noted() -> None:
    """`range` takes the number out of a symbolic size without a word; `size_range` says how many steps there are."""
    root = Path(symbolic.__file__).parents[1]
    sized = re.compile(r"(?<!size_)\brange\([^()]*(\.shape\[|\b(size|rows|columns|length|steps|count)\b)")
    # of outputs, dimensions and layers, a window, and what is printed: no sizes
    allowed = ("count", "len(", "for offset in range(size)", "shown = [")
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for folder in ("ops/public", "ops/composites", "functional", "tensor")
        for path in sorted((root / folder).glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if sized.search(line) and not any(word in line for word in allowed)
    ]
    assert not found, "\n".join(found)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 4), max_size=4).map(tuple),
    st.data(),
)
def test_arrays_that_fill_their_memory_are_told_from_those_with_gaps(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    turned = np.zeros([shape[d] for d in order], np.float32).transpose(np.argsort(order).astype(int).tolist())
    assert turned.shape == shape and fills_memory(turned) == (filled_strides(shape, element_strides(turned), shape) is not None)
    if min(shape, default=1) > 1:
        assert fills_memory(turned)
    for d, size in enumerate(shape):
        part = turned[(slice(None),) * d + (slice(0, size - 1),)]
        if (
            size > 2
            and part.size
            and any(n > 1 for n in shape[:d] + shape[d + 1 :])
            and element_strides(turned)[d] != max(element_strides(turned))
        ):
            assert not fills_memory(part)
