"""capture/syntax/loops.py: how a loop uses its variables."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter

import pytest

from tracejit.capture.syntax.loops import LoopNames, integer, is_unbind_call, loop_names, private_lists

LOCAL = {"h", "k", "t", "x", "xs", "outs", "n"}


def names(source: str, captured: str = "", shared: str = "") -> LoopNames | None:
    (node,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(node, ast.For)
    return loop_names(node, LOCAL, frozenset(captured.split()), set(shared.split()))


def test_targets_and_what_a_step_stores_are_told_apart() -> None:
    found = names("for x in xs:\n    h = k = f(x)")
    assert found == LoopNames(("x",), False, ("h", "k"), (), (), numbers=("x",))
    found = names("for t, x in xs:\n    h = {x, t}")
    assert found == LoopNames(("t", "x"), True, ("h", "t", "x"), (), (), shape=(None, None))


def test_targets_may_be_in_each_other() -> None:
    found = names("for t, (x, h) in xs:\n    pass")
    assert found is not None and (found.targets, found.shape, found.unpacked) == (("t", "x", "h"), (None, (None, None)), True)


@pytest.mark.parametrize(
    "use",
    [
        "xs[t]", "xs[:, t]", "xs[t + 1]", "xs[n - 1 - t]", "xs[t, 0] + xs[0, t - n]", "xs[k[t]]", "1", "xs[t * 2]", "xs[n - 2 * (t + 1)]",
        "xs[t * 4 : (t + 1) * 4]", "xs[k].t[t * 1]",
    ],
)  # fmt: skip
def test_a_target_that_is_only_a_position_counts(use: str) -> None:
    found = names(f"for t in xs:\n    h = f({use})")
    assert found is not None and found.counters == ("t",)
    found = names(f"for t, x in xs:\n    h = f({use}, x)")
    assert found == LoopNames(("t", "x"), True, ("h", "x"), ("t",), (), numbers=("x",), shape=(None, None))


def test_a_position_that_is_assigned_to_counts() -> None:
    found = names("for t in xs:\n    outs[t] = xs[t]\n    outs[t] += xs[t + 1]")
    assert found is not None and found.counters == ("t",)


@pytest.mark.parametrize(
    "body",
    [
        "h = t", "h = [t]", "h = xs[t + t % 2]", "h = xs[t * t]", "h = xs[t + t]", "h = xs[-t]", "h = xs[t:]", "h = xs[f(t)]",
        "outs[t / 2] += 1", "del outs[t]", "t = xs[t]", "if t: pass", "f(lambda: xs[t])", "h = [t for t in xs]", "h = f'{t}'",
        "outs[xs[t].t + t] = 1", "xs[t // 2] = h", "h = f(*t)", "t += 1",
        "if t % 2: h = x", "h = x if (t + 1) % k == 0 else y", "while t // 2 > h: pass", "h = t % 2 == 0", "assert t % 2 > h",
    ],
)  # fmt: skip
def test_a_target_that_is_used_otherwise_does_not(body: str) -> None:
    found = names(f"for t in xs:\n    {body}")
    assert found is not None and found.counters == () == found.numbers


@pytest.mark.parametrize(
    "use",
    [
        "h * t", "xs[t] * (t + 1)", "-t", "0.9**t", "float(t)", "math.exp(t)", "f(t / n, xs[t + 1])", "1 if t > 2 else t - 1", "f(t)",
        "math.pow(t, k=t)", "t % 2", "f(t // 2)", "xs[t % 2]", "xs[:, (t + 1) % k]", "h[t // 2] + xs[t] * ((n - 1 - t) % 3)",
    ],
)  # fmt: skip
def test_a_target_that_is_computed_with_counts_where_it_is_a_number(use: str) -> None:
    found = names(f"for t in xs:\n    h = {use}")
    assert found is not None and (found.counters, found.numbers) == ((), ("t",))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = f(x)\n    k = h", ("h", "k")), ("h, k = f(x)", ("h", "k")), ("h: int = 1", ("h",)), ("h = h + 1", ()), ("h += 1", ()),
        ("k = h\n    h = x", ("k",)), ("if x:\n        h = 1", ()), ("h = 1\n    if x:\n        h = 2", ("h",)), ("h: int", ()),
        ("xs[0] = h = 1", ("h",)), ("xs[h] = h = 1", ()),
    ],
)  # fmt: skip
def test_variables_that_each_step_assigns_before_it_uses_them_are_renewed(body: str, expected: tuple[str, ...]) -> None:
    (node,) = ast.parse(f"for x in xs:\n    {body}").body
    assert isinstance(node, ast.For)
    used = Counter([part.id for part in ast.walk(node) if isinstance(part, ast.Name)])
    found = loop_names(node, LOCAL, frozenset(), set(), frozenset(), used)
    assert found is not None and found.renewed == expected
    elsewhere = loop_names(node, LOCAL, frozenset(), set(), frozenset(), used + Counter(["h", "k"]))
    assert elsewhere is not None and elsewhere.renewed == ()


def test_a_target_that_a_function_reads_does_not() -> None:
    found = names("for t in xs:\n    h = xs[t]", captured="t")
    assert found is not None and found.counters == ()


def test_a_list_that_is_only_appended_to_is_named() -> None:
    found = names("for x in xs:\n    outs.append(x)\n    if h:\n        outs.append(h)")
    assert found is not None and found.appended == ("outs",)


@pytest.mark.parametrize(
    "body",
    [
        "h = outs.append(x)", "outs.append(x, h)", "outs.append(outs)", "outs.append(x); h = outs[-2]", "h = outs[-1]",
        "outs.extend(x)", "outs = [x]",
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
        "for xs[0] in xs:\n    pass", "for (t, (x, h.x)) in xs:\n    pass", "for t, *x in xs:\n    pass",
    ],
)  # fmt: skip
def test_steps_that_are_interrupted_and_other_targets_are_not_looked_at(source: str) -> None:
    assert names(source) is None


def test_names_that_others_share_are_not_looked_at() -> None:
    assert names("for x in xs:\n    h = x", shared="h") is None
    assert names("for x in xs:\n    h = x", shared="x") is None
    assert names("for x in xs:\n    h = x", shared="n") is not None


def private(source: str) -> frozenset[str]:
    (node,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(node, ast.FunctionDef)
    return private_lists(node)


@pytest.mark.parametrize(
    "begin", ["outs = []", "h, outs = 0, []", "outs: list = []", "outs = []\n    outs = [h]", "outs = [h for h in xs]"]
)
@pytest.mark.parametrize(
    "use",
    [
        "torch.stack(outs)",
        "stack(outs, 1)",
        "h + cat(outs, dim=n)",
        "sum(outs) / len(outs)",
        "outs[-1]",
        "None",
        "stack(outs[::-1])",
        "stack(outs[1:]) + cat(outs[:-1]) + sum(outs[2:-3])",
        "stack(outs[:])",
        "outs[0] + outs[-1]",
        "stack(outs) if outs else xs",
        "xs if not outs else cat(outs)",
    ],
)
def test_a_list_that_is_appended_to_and_joined_is_private(begin: str, use: str) -> None:
    assert private(f"def f(xs):\n    {begin}\n    for x in xs:\n        outs.append(g(x))\n    return {use}") == {"outs"}


@pytest.mark.parametrize(
    "use",
    [
        "return outs", "return outs[1]", "return outs[k]", "return outs[-2]", "return [k for k in outs]",
        "for h, x in zip(outs[1:], reversed(outs)): g(h)", "return stack(outs[n:])", "return stack(outs[-2:])",
        "return stack(outs[:4])", "return stack(outs[:-0])",
        "return stack([h, outs])", "return stack(tensors=outs)", "k = outs",
        "for h in outs: outs.append(h)", "for h in outs: k = stack(outs)", "for h in zip(outs, g(outs)): g(h)", "outs += h",
        "outs += [h, k]", "outs += [*h]", "outs = [h] + outs", "outs = k + [h]", "outs.insert(1, h)", "outs.extend(h)", "h = outs.append",
        "del outs", "outs = [*h]", "outs = [outs]",
        "outs = k = []", "h = outs[0, 1]", "h = outs[:-1]", "outs[-1] = h", "outs[-1] += h", "del outs[-1]",
        "return stack(h, outs)", "g(outs.append(h, 1))", "return [stack(h) for outs in h]", "return f'{outs}'", "return max(outs)",
        "return sum([outs])",
    ],
)  # fmt: skip
def test_a_list_that_is_used_otherwise_is_not_private(use: str) -> None:
    source = f"def f(xs):\n    outs = []\n    for x in xs:\n        outs.append(x)\n    {use}\n    return stack(outs)"
    assert not private(source)


def test_a_loop_names_the_lists_of_which_it_reads_the_last_item() -> None:
    (node,) = ast.parse("for x in xs:\n    outs.append(x * outs[-1])\n    others.append(x)").body
    assert isinstance(node, ast.For)
    found = loop_names(node, LOCAL | {"others"}, frozenset(), set(), frozenset({"outs"}))
    assert found == LoopNames(("x",), False, (), (), ("others", "outs"), ("outs",), (), ("outs",), ("x",))


def test_an_argument_is_no_private_list() -> None:
    assert not private("def f(xs, outs):\n    outs = []\n    return stack(outs)")


@pytest.mark.parametrize(
    "use", ["outs[::-1]", "stack(outs[::2])", "stack(outs[1::-1])", "outs.reverse()", "stack(reversed(outs))"]
)
def test_a_list_that_leaves_backwards_is_not(use: str) -> None:
    assert not private(f"def f(xs):\n    outs = []\n    outs.append(g(xs))\n    return {use}")


def test_a_list_that_is_turned_around_where_it_is_is_private() -> None:
    assert private("def f(xs):\n    outs = []\n    outs.append(g(xs))\n    outs.reverse()\n    return stack(outs)") == {"outs"}


def test_a_loop_tells_private_lists_that_it_appends_to_from_those_that_it_does_not_name() -> None:
    (node,) = ast.parse("for x in xs:\n    outs.append(x)").body
    assert isinstance(node, ast.For)
    found = loop_names(node, LOCAL, frozenset(), set(), frozenset({"outs", "others"}))
    assert found == LoopNames(("x",), False, (), (), ("outs",), ("outs",), ("others",), numbers=("x",))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h += 1", (("h", 1),)), ("h = xs[h]; k -= 2", (("k", -2),)), ("h = h - 3\n    k = k + 1", (("h", -3), ("k", 1))),
        ("if x: break\n    h += 1\n    if x: continue\n    k = xs[h + 1] * h", (("h", 1),)), ("f(h)\n    h += 1", (("h", 1),)),
        ("if x: continue\n    h += 1", ()), ("h += 1\n    h += 1", ()), ("if x: h += 1", ()), ("h += 1.0", ()), ("h += k", ()),
        ("h += 0", ()), ("h = 1 + h", ()), ("h += 1\n    k = {h}", ()), ("h += 1\n    del h", ()), ("x += 1", ()), ("h *= 2", ()),
        ("for k in xs:\n        continue\n    h += 1", (("h", 1),)), ("h += 1\n    k = lambda: h", ()),
        ("for k in xs:\n        pass\n    else:\n        continue\n    h += 1", ()),
    ],
)  # fmt: skip
def test_variables_to_which_each_step_adds_a_number_are_kept(body: str, expected: tuple[tuple[str, int], ...]) -> None:
    found = names(f"for x in xs:\n    {body}", captured="h" if "lambda" in body else "")
    assert found is not None and found.kept == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("outs.insert(0, x)", ("outs",)), ("outs.insert(1, x)", ()), ("outs.append(x)", ()), ("outs.insert(0, x); outs.append(h)", ()),
        ("outs.insert(0, *x)", ()), ("h = outs.insert(0, x)", ()),
    ],
)  # fmt: skip
def test_lists_that_grow_in_front_are_named(body: str, expected: tuple[str, ...]) -> None:
    found = names(f"for x in xs:\n    {body}")
    assert found is not None and found.in_front == expected


def expression(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


@pytest.mark.parametrize(
    ("source", "expected"), [("3", 3), ("-1", -1), ("-0", 0), ("True", None), ("-1.0", None), ("+1", None), ("k", None)]
)
def test_an_integer_is_one_that_is_written_down(source: str, expected: int | None) -> None:
    assert integer(expression(source)) == expected


@pytest.mark.parametrize(
    "source",
    ["xs.unbind()", "xs.unbind(1)", "(a + b).t().unbind(dim=k)", "tj.unbind(xs, 1)", "xs.split(1, dim=1)", "chunk.chunk(n, 1)"],
)
def test_calls_that_may_take_a_tensor_apart_are_told_by_their_names(source: str) -> None:
    assert is_unbind_call(expression(source))


@pytest.mark.parametrize("source", ["unbind(xs)", "xs.unbind", "xs.unbind(*k)", "xs.unbind(**k)", "xs.unbinds()", "xs.split"])
def test_any_other_expression_unbinds_nothing(source: str) -> None:
    assert not is_unbind_call(expression(source))


def test_a_loop_that_branches_tells_the_variables_that_each_step_assigns_to_before_it_may_end_or_read_them() -> None:
    found = names("for x in xs:\n    h = f(x)\n    if h > 0: break\n    k = h")
    assert found is not None and found.branches and found.sure == ("h", "x")
    found = names("for x in xs:\n    if x > 1: outs = k\n    k = h = f(x)")
    assert found is not None and found.branches and found.sure == ("h", "x")
    found = names("for x in xs:\n    n = h if x > 1 else n\n    h = f(x)")
    assert found is not None and found.branches and found.sure == ("x",)
    found = names("for x in xs:\n    h = f(x)\n    k = h")
    assert found is not None and not found.branches and found.sure == ()
