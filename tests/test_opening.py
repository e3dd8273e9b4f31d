"""What reports begin with: one plain sentence for each state of a compiled function, and what to do."""

from __future__ import annotations

import html
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit.capture import branches
from tracejit.capture.reasons import CATALOGUE, make
from tracejit.compiled.recording_driver import RecordingDriver
from tracejit.compiled.tier_policy import TierPolicy
from tracejit.config import override
from tracejit.report.account import Account
from tracejit.report.divergences import Divergence
from tracejit.report.opening import advice, opening

pytestmark = pytest.mark.filterwarnings("ignore::tracejit.compiler.PerformanceWarning")

PYTHON = "ordinary Python"


def is_one_sentence(text: str) -> bool:
    return len(text) <= 160 and text.endswith(".") and len(text.splitlines()) == 1 and not re.search(r"[.!?]\s", text)


def unknown(x: T.Tensor, n: int = 1) -> T.Tensor:
    return x * sys.getsizeof(x) if n else x * 2


def by_name(x: T.Tensor, name: str) -> T.Tensor:
    return x * len(name)


def either(x: T.Tensor) -> T.Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def raising(x: T.Tensor) -> T.Tensor:
    if x.sum() < 0:
        raise ValueError("less than 0")
    return x * 2


def either_in_steps(xs: T.Tensor) -> T.Tensor:
    total = T.zeros(())
    for x in xs:
        total = total + x if x > 0 else total - x * 2
    return total


def called(function: Callable[..., Any], *arguments: tuple[Any, ...]) -> Any:
    compiled = T.compile(function, wait=True, dynamic=False)
    for given_ in arguments:
        try:
            compiled(*given_)
        except ValueError:
            assert function is raising
    return compiled


ONES = T.ones(3)


def once_compiled_again_and_again() -> Any:
    made = [T.compile(lambda x: (x * 2).sum() + 1, wait=True) for _ in range(40)]
    for function in made:
        function(ONES)
    return made[-1]


def in_pieces() -> Any:
    generator = T.Generator().manual_seed(0)
    return called(either_in_steps, *[(T.randn(8, generator=generator),) for _ in range(60)])


def crowded() -> Any:
    with override(max_entries=4, max_sizes=4):
        return called(by_name, *[(ONES, "n" * (k % 10)) for k in range(30)])


STATES: dict[str, tuple[Callable[[], Any], str, str]] = {
    # state -> (makes a function in it, a pattern of the sentence, the beginning of the first advice, "" for none)
    "not called": (lambda: called(either), r"either has not been called yet\.", ""),
    "ready": (lambda: called(either, (ONES,)), r"either is compiled now: its calls so far .* will run compiled\.", ""),
    "compiled": (
        lambda: called(either, *[(ONES,)] * 9),
        rf"either runs compiled: 8 of 9 calls did, and the first ran as {PYTHON} to be recorded\.",
        "",
    ),
    "by two paths": (
        lambda: called(either, *[(ONES * (-1) ** k,) for k in range(9)]),
        rf"either runs compiled: 7 of 9 calls did, and 2 ran as {PYTHON} to be recorded\.",
        "",
    ),
    "mostly": (
        lambda: called(raising, *[(ONES * (1 if k % 4 else -1),) for k in range(20)]),
        rf"raising runs compiled in most calls: 6 of 20 ran as {PYTHON}, because the call raised ValueError\.",
        "Return a value instead",
    ),
    "seldom": (
        lambda: called(unknown, *[(ONES, k % 4) for k in range(8)]),
        rf"unknown runs compiled in few calls: 7 of 8 ran as {PYTHON}, because .* sys\.getsizeof\(\) \(line \d+ of .*",
        "Move the call out of the compiled function (line ",
    ),
    "never": (
        lambda: called(unknown, *[(ONES,)] * 5),
        rf"unknown has run as {PYTHON} in every call so far, because nothing is known about .* sys\.getsizeof\(\) .*",
        "Move the call out of the compiled function (line ",
    ),
    "never by a value": (
        lambda: called(by_name, *[(ONES, "n" * k) for k in range(20)]),
        rf"by_name has run as {PYTHON} in every call so far, because name changes from call to call \(''.*\)\.",
        "Pass what varies as a tensor, or leave it to the caller: name took 16 values ('', 'n', 'nn', 'nnn', ...).",
    ),
    "no room": (
        crowded,
        rf"by_name runs compiled in few calls: 2\d of 30 ran as {PYTHON}, because name changes .*",
        "Pass what varies as a tensor, ",
    ),
    "compiled anew": (
        once_compiled_again_and_again,
        rf".*<lambda> has run as {PYTHON} in every call so far, because functions with the same code were .*",
        "Compile it once, outside of the loop ",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_one_plain_sentence_and_its_advice(state: str) -> None:
    make_function, pattern, todo = STATES[state]
    compiled = make_function()
    for text in (compiled.explain(), compiled.explain(verbose=True)):
        first, *rest = text.split("\n")
        assert is_one_sentence(first) and re.fullmatch(pattern, first), first
        assert rest[0].startswith("What to do:") if todo else "What to do" not in text
        assert todo in " ".join(map(str.strip, rest))


def test_a_function_in_pieces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TierPolicy, "_outline", lambda *_, **__: False)  # as for loops that cannot be nodes of a program
    monkeypatch.setattr(branches, "may_be_outlined", lambda *_: False)
    compiled = in_pieces()
    first, *rest = compiled.explain().split("\n")
    assert first == f"either_in_steps is {PYTHON} around 1 compiled part, because no single program fits its calls."
    assert any(is_one_sentence(line.strip()) and "a step of line" in line for line in rest)


def test_a_function_that_is_being_compiled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, build = threading.Event(), RecordingDriver._build
    monkeypatch.setattr(RecordingDriver, "_build", lambda *given_: go_on.wait(60) and build(*given_))
    with override(compile_wait=0.0):
        compiled = T.compile(either)
        compiled(ONES)
        text = compiled.explain()
        go_on.set()
        compiled.warm_up(ONES)
    first, second, *_ = text.split("\n")
    assert first == f"either is being compiled in the background, and its calls run as {PYTHON} meanwhile."
    assert second == "What to do: Wait, or call warm_up() first: it returns when everything is compiled."
    assert "runs compiled" in compiled.explain().partition("\n")[0] and "What to do" not in compiled.explain()


def test_a_function_says_that_compilation_is_turned_off() -> None:
    compiled = called(either, *[(ONES,)] * 3)
    with override(enabled=False):
        assert compiled.explain().split("\n")[:2] == [
            f"either runs as {PYTHON}, because compilation is turned off.",
            "What to do: Unset TRACEJIT_DISABLE, or set config.enabled to True.",
        ]
    assert "runs compiled" in compiled.explain()


@pytest.mark.parametrize("state", STATES)
def test_the_page_and_the_notebook_begin_as_explain_does(state: str, tmp_path: Path) -> None:
    make_function, _, todo = STATES[state]
    compiled = make_function()
    compiled.report(tmp_path / "report.html", times=False)
    for text in ((tmp_path / "report.html").read_text("utf-8"), compiled._repr_html_()):
        plain = " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())
        assert compiled.explain().partition("\n")[0] in plain
        assert re.search("What to do: +" + re.escape(todo), plain) if todo else "What to do:" not in plain


COUNTS = st.integers(0, 10**7)
TEXTS = st.text(max_size=200) | st.sampled_from(["f", "g.<locals>.h", "f, a step of line 3", "a. b", "what? no", "x" * 300, ""])
REASONS = st.builds(
    make, st.sampled_from(sorted(CATALOGUE)), TEXTS, st.sampled_from(["", "/a/model.py:12", f"/{'m' * 200}.py:3", "b. c.py:4"])
)
DIVERGENCES = st.builds(
    lambda name, where, values: Divergence("value", name, where, values, len(values)),
    TEXTS,
    st.sampled_from(["", "/a/model.py:12"]),
    st.lists(TEXTS, min_size=1, max_size=6),
)
PATH = SimpleNamespace()
PART = Account(
    "f, a step", None, SimpleNamespace(calls=0, compiled_calls=0), (), {}, None, False, False, False, (), (), "", (), False
)


@settings(max_examples=300, deadline=None)
@given(
    TEXTS, st.tuples(*[COUNTS] * 5), st.integers(0, 3), st.dictionaries(REASONS, st.integers(1, 99), max_size=3),
    st.none() | DIVERGENCES, st.tuples(*[st.booleans()] * 5), st.integers(0, 2),
)  # fmt: skip
@example("!", (0,) * 5, 0, {}, None, (False,) * 5, 0)
@example("f" * 40, (10**7,) * 5, 1, {}, None, (False,) * 5, 0)
def test_whatever_is_known_is_told_in_one_sentence(
    name: str, counts: Any, paths: int, reasons: Any, divergence: Any, flags: Any, parts: int
) -> None:
    served, traces, early, direct, unserved = counts
    stats = SimpleNamespace(
        calls=served + direct + unserved + early, compiled_calls=served, eager_calls=direct + unserved + early, traces=traces,
        early_calls=early, direct_calls=direct,
    )  # fmt: skip
    full, compiling, resting, in_pieces_, calls_compiled = flags
    account = Account(
        name, None, stats, [PATH] * paths, reasons, divergence, full, compiling, resting, (), (), "a value" if in_pieces_ else "",
        [PART] * parts if in_pieces_ else (), calls_compiled,
    )  # fmt: skip
    assert is_one_sentence(opening(account)), opening(account)
    told = advice(account)
    assert len(told) == len(set(told)) and all(text.strip() for text in told)
    for reason in reasons if stats.calls else ():
        assert any(reason.remedy in text for text in told) != reason.remedy.startswith("Nothing")


def test_every_reason_has_advice_or_needs_none() -> None:
    for code, (_, remedy) in CATALOGUE.items():
        assert not remedy.startswith("It ") and (remedy.startswith("Nothing: ") or not remedy.startswith("Nothing")), code
