"""report/divergences.py and capture/recording/facts.py: the guard that keeps recordings apart is named, with its position and its
values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit import nn
from tracejit.capture import record
from tracejit.capture.recording.facts import Fact, parameters, shown
from tracejit.config import override
from tracejit.report.divergences import Divergences


class Settings:
    kind = "plain"

    def __init__(self, name: object) -> None:
        self.name = name


settings = Settings("first")
NAMES = {"key": "first"}


def by_attribute(x: T.Tensor) -> Any:
    return x * 2, settings.name


def by_item(x: T.Tensor) -> Any:
    return x * 2, NAMES["key"]


def by_class(x: T.Tensor) -> Any:
    return x * 2, settings.kind


def by_length(x: T.Tensor, items: list[T.Tensor]) -> Any:
    return sum(items, x)


def by_exit(x: T.Tensor) -> Any:
    return [x] * int(x.sum())


def by_size(x: T.Tensor) -> Any:
    return x[x > 0].cumsum(0)


def set_attribute(n: int) -> tuple[Any, ...]:
    settings.name = f"name {n}"
    return (T.ones(1),)


def set_item(n: int) -> tuple[Any, ...]:
    NAMES["key"] = f"name {n}"
    return (T.ones(1),)


def set_class(n: int) -> tuple[Any, ...]:
    Settings.kind = f"kind {n}"
    return (T.ones(1),)


def line_of(function: Callable[..., Any]) -> str:
    return f"({__file__}:{function.__code__.co_firstlineno + 1}: return "


CASES: list[tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], str, str]] = [
    (lambda x: x * 2, lambda n: (T.ones(n + 1),), "x.shape[0]", "1, 2, 3, 4, ..."),
    (lambda x, y: y * 2, lambda n: (T.ones(1), T.ones(2, n + 1)), "y.shape[1]", "1, 2, 3, 4, ..."),
    (lambda x: x * 2, lambda n: (T.ones(*[1] * (n + 1)),), "x.dim()", "1, 2, 3, 4, ..."),
    (lambda x, how: (x, how), lambda n: (T.ones(1), str(n)), "how", "'0', '1', '2', '3', ..."),
    (by_attribute, set_attribute, f"settings.name {line_of(by_attribute)}", "'name 0', 'name 1', 'name 2', 'name 3', ..."),
    (by_item, set_item, f"NAMES['key'] {line_of(by_item)}", "'name 0', 'name 1', 'name 2', 'name 3', ..."),
    (by_class, set_class, f"Settings.kind {line_of(by_class)}", "'kind 0', 'kind 1', 'kind 2', 'kind 3', ..."),
    (by_length, lambda n: (T.ones(1), [T.ones(1)] * (n + 1)), f"len(items) {line_of(by_length)}", "1, 2, 3, 4, ..."),
    (by_exit, lambda n: (T.full((1,), float(n)),), f"a value {line_of(by_exit)}", "0, 1, 2, 3, ..."),
    (by_size, lambda n: (T.ones(n),), "x.shape[0]", "0, 1, 2, 3, ..."),
    (
        by_size,
        lambda n: (T.cat([T.ones(n + 3), -T.ones(8 - n)]),),
        "the shape that nonzero() finds",
        "[3, 1], [4, 1], [5, 1], [6, 1], ...",
    ),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("crowded", [False, True])
def test_explain_opens_with_what_keeps_recordings_apart(case: int, crowded: bool) -> None:
    function, arguments, name, values = CASES[case]
    with override(max_entries=6 if crowded else 32, max_sizes=6 if crowded else 32):
        compiled = T.compile(function, dynamic=False)  # else sizes are symbolic, and keep nothing apart
        for n in range(6):
            compiled(*arguments(n))
        first, *others = compiled.explain().splitlines()
        todo = " ".join(map(str.strip, others))
    varying = name.partition(" (")[0]
    said = f"{function.__qualname__} has run as ordinary Python in every call so far, because {varying}"
    assert first.startswith(said) and "changes from call to call" in first, first
    assert varying in todo and f" values ({values})." in todo, todo


def test_nothing_is_named_before_three_recordings_have_parted_at_it() -> None:
    compiled = T.compile(lambda x: x * 2, dynamic=False)
    for n in (1, 2):
        compiled(T.ones(n))
    assert "x.shape[0]" not in compiled.explain(verbose=True)
    compiled(T.ones(3))
    assert "x.shape[0] changes from call to call (1, 2, 3)" in compiled.explain().splitlines()[0]


def test_a_function_whose_paths_serve_is_called_compiled() -> None:
    compiled = T.compile(lambda x: x * 2)
    for n in (1, 2, 3, 4) * 10:
        compiled(T.ones(n))
    said = "<lambda> runs compiled: 38 of 40 calls did, and 2 ran as ordinary Python to be recorded."
    assert compiled.explain().splitlines()[0].endswith(said)


def test_what_is_named_is_said_when_it_happens_at_debug_level_1(capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=1):
        compiled = T.compile(lambda x: x * 2, dynamic=False)
        for n in range(1, 6):
            compiled(T.ones(n))
    said = [line for line in capsys.readouterr().err.splitlines() if "records path after path" in line]
    assert len(said) == 1 and "x.shape[0] took 3 values (1, 2, 3)" in said[0]


def test_methods_and_modules_call_their_arguments_by_their_names() -> None:
    class Model(nn.Module):
        def forward(self, image: T.Tensor) -> T.Tensor:
            return image * 2

    class Trainer:
        def step(self, batch: T.Tensor) -> T.Tensor:
            return batch * 2

    for function, name in ((Model(), "image"), (Trainer().step, "batch")):
        compiled = T.compile(function, dynamic=False)
        for n in range(1, 5):
            compiled(T.ones(n))
        assert f"because {name}.shape[0] changes" in compiled.explain()
    assert parameters(len) == () and parameters(Trainer.step) == ("self", "batch")


def test_a_model_in_training_and_in_evaluation_is_two_paths_by_the_name_of_its_flag() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    recordings = []
    for training in (True, False):
        model.train(training)
        recordings.append(record(model, (T.ones(1, 2),), {})[0])
    parted = next(a for a, b in zip(recordings[0].facts, recordings[1].facts, strict=False) if a != b)
    assert parted.name.endswith(".training") and parted.value == "True"


def test_facts_hold_no_object_of_the_program_and_are_short() -> None:
    recording, _ = record(by_length, (T.ones(1), [T.ones(1)] * 2), {})
    assert recording.facts
    for fact in recording.facts:
        assert all(type(part) is str for part in (fact.kind, fact.name, fact.where, fact.value))
    assert len(shown("a" * 1000)) < 100 and shown("a" * 1000) != shown("a" * 999 + "b")
    assert "10001 bits" in shown(1 << 10000)


def test_recordings_that_went_other_ways_have_no_guard_in_common() -> None:
    divergences = Divergences()
    for k in range(5):
        divergences.note("f", [Fact("value", f"name {k}", "", "1")], [[Fact("value", "another", "", "1")]])
    assert divergences.most_frequent() is None


def test_counts_say_how_many_calls_were_eager_and_why() -> None:
    compiled = T.compile(lambda x: iter([x]))
    for _ in range(10):
        compiled(T.ones(1))
    first, todo, counts, *_ = compiled.explain(verbose=True).splitlines()
    assert first.endswith("in every call so far, because a new list_iterator is returned or stored.")
    assert todo.startswith("What to do: Return tensors, numbers, ")
    assert "calls 10: compiled 0, eager 10 (recorded 3, left alone because trying had not paid 7)" in counts


def test_passes_come_last() -> None:
    compiled = T.compile(lambda x: (x * 2).tanh())
    for n in (1, 1, 2):
        compiled(T.ones(n))
    lines = compiled.explain(verbose=True).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("passes of path 0"))
    assert not any("# " in line for line in lines[:first])
    assert all(line.startswith(("passes of path", "  # ")) for line in lines[first:])


def test_elements_that_are_tensors_or_none_are_named_together() -> None:
    @T.compile
    def stacked(items: list[Any]) -> T.Tensor:
        return T.stack([x for x in items if x is not None]).sum()

    for k in range(5):
        stacked([None if i == k else T.ones(2) for i in range(5)])
    told = " ".join(stacked.explain().split())
    assert re.search(r"Pass values of one type: items\[\.\.\.\] \(.*\) took 2 values \((None, Tensor|Tensor, None)\)\.", told), (
        told
    )
