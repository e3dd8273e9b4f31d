"""capture/syntax/loops.py: how a loop uses its variables."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tracejit.capture.syntax.loops import LoopNames, loop_names

LOCAL = {"h", "k", "t", "x", "xs", "outs", "n"}


def names(source: str, captured: str = "", shared: str = "") -> LoopNames | None:
    (node,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(node, ast.For)
    return loop_names(node, LOCAL, frozenset(captured.split()), set(shared.split()))


def test_targets_and_what_a_step_stores_are_told_apart() -> None:
    found = names("for x in xs:\n    h = k = f(x)")
    assert found == LoopNames(("x",), False, ("h", "k"), (), ())
    assert names("for t, x in xs:\n    h = f(x, t)") == LoopNames(("t", "x"), True, ("h", "t", "x"), (), ())


@pytest.mark.parametrize("use", ["xs[t]", "xs[:, t]", "xs[t + 1]", "xs[n - 1 - t]", "xs[t, 0] + xs[0, t - n]", "xs[k[t]]", "1"])
def test_a_target_that_is_only_a_position_counts(use: str) -> None:
    found = names(f"for t in xs:\n    h = f({use})")
    assert found is not None and found.counters == ("t",)
    assert names(f"for t, x in xs:\n    h = f({use}, x)") == LoopNames(("t", "x"), True, ("h", "x"), ("t",), ())


def test_a_position_that_is_assigned_to_counts() -> None:
    found = names("for t in xs:\n    outs[t] = xs[t]")
    assert found is not None and found.counters == ("t",)


@pytest.mark.parametrize(
    "body",
    [
        "h = t", "h = xs[t * 2]", "h = xs[t + t]", "h = xs[-t]", "h = xs[t:]", "h = xs[f(t)]", "outs[t] += 1", "del outs[t]", "t = xs[t]",
        "if t: pass", "f(lambda: xs[t])", "h = xs[t] + t", "h = [t for t in xs]", "h = f'{t}'", "outs[xs[t].t + t] = 1",
        "h = xs[t].t[t * 1]",
    ],
)  # fmt: skip
def test_a_target_that_is_used_otherwise_does_not(body: str) -> None:
    found = names(f"for t in xs:\n    {body}")
    assert found is not None and found.counters == ()


def test_a_target_that_a_function_reads_does_not() -> None:
    found = names("for t in xs:\n    h = xs[t]", captured="t")
    assert found is not None and found.counters == ()


def test_a_list_that_is_only_appended_to_is_named() -> None:
    found = names("for x in xs:\n    outs.append(x)\n    if h:\n        outs.append(h)")
    assert found is not None and found.appended == ("outs",)


@pytest.mark.parametrize(
    "body",
    [
        "h = outs.append(x)", "outs.append(x, h)", "outs.append(outs)", "outs.append(x); h = outs[-1]", "outs.extend(x)", "outs = [x]",
        "outs.append(x); h = lambda: outs", "h = outs",
    ],
)  # fmt: skip
def test_a_list_that_is_used_otherwise_is_not(body: str) -> None:
    found = names(f"for x in xs:\n    {body}")
    assert found is not None and found.appended == ()


@pytest.mark.parametrize(
    "source",
    [
        "for x in xs:\n    yield x", "for x in xs:\n    h = yield", "for x in xs:\n    yield from x", "for h.x in xs:\n    pass",
        "for xs[0] in xs:\n    pass", "for (t, (x, h)) in xs:\n    pass", "for t, *x in xs:\n    pass",
    ],
)  # fmt: skip
def test_steps_that_are_interrupted_and_other_targets_are_not_looked_at(source: str) -> None:
    assert names(source) is None


def test_names_that_others_share_are_not_looked_at() -> None:
    assert names("for x in xs:\n    h = x", shared="h") is None
    assert names("for x in xs:\n    h = x", shared="x") is None
    assert names("for x in xs:\n    h = x", shared="n") is not None
