"""capture/syntax/lists.py: lists that are joined under their own name."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import pytest

import tracejit as tj
from tracejit.capture.syntax.lists import separate_lists


def separated(source: str) -> tuple[set[str], str]:
    (node,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(node, ast.FunctionDef)
    return separate_lists(node), ast.unparse(node)


LOOP = """
    def f(xs):
        outs = []
        for x in xs:
            outs.append(g(x))
        outs = stack(outs, 1)
        return outs * 2
"""


def test_a_list_has_a_name_of_its_own_until_it_is_joined() -> None:
    made, text = separated(LOOP)
    (own,) = made
    expected = (
        LOOP.replace("outs = []", f"{own} = []").replace("outs.append", f"{own}.append").replace("stack(outs,", f"stack({own},")
    )
    assert text == ast.unparse(ast.parse(textwrap.dedent(expected)))


def test_lists_may_be_joined_again_and_again() -> None:
    made, text = separated(
        """
        def f(xs):
            for k in xs:
                outs, others = [], [k]
                for x in xs:
                    if x > 1:
                        continue
                    outs.append(x + others[-1])
                with torch.no_grad():
                    others = torch.cat(others)
                outs = torch.stack(outs[1:])
                total(outs, others)
        """
    )
    assert len(made) == 2 and re.search(r"outs = torch.stack\(__list_\d_outs__\[1:\]\)", text)
    assert re.search(r"others = torch.cat\(__list_\d_others__\)", text)


@pytest.mark.parametrize(
    "source",
    [
        LOOP.replace("outs = []", "outs = xs"),
        LOOP.replace("outs.append(g(x))", "outs += x"),
        LOOP.replace("outs = stack(outs, 1)", "if xs:\n            outs = stack(outs, 1)"),
        LOOP.replace("outs = stack(outs, 1)", "with quiet():\n            outs = stack(outs, 1)"),
        LOOP.replace("outs = stack(outs, 1)", "with torch.no_grad() as k:\n            outs = stack(outs, 1)"),
        LOOP.replace("outs = stack(outs, 1)", "outs = len(outs)").replace("outs * 2", "h(lambda: outs)"),
        LOOP.replace("return outs * 2", "return [outs for x in xs], lambda: outs"),
        LOOP.replace("outs = []", "global outs\n        outs = []"),
        LOOP.replace("stack(outs, 1)", "stack(outs, outs)"),
        LOOP.replace("outs = []", "outs = [stack(outs)]"),
        "def f(xs):\n    try:\n        outs = []\n        outs.append(xs)\n        outs = stack(outs)\n    except E:\n        return outs",
        "def f(xs):\n    with quiet():\n        outs = []\n        outs.append(g(xs))\n        outs = stack(outs)\n    return outs",
        "def f(xs):\n    for x in xs:\n        a = []\n        a.append(x)\n        if x: break\n        a = stack(a)\n    return a",
    ],
)  # fmt: skip
def test_what_somebody_else_may_see_stays_as_it_is(source: str) -> None:
    before = ast.unparse(ast.parse(textwrap.dedent(source)))
    assert separated(source) == (set(), before)


def test_the_variable_is_a_list_where_a_step_has_raised() -> None:
    def function(xs: Any, log: list[int]) -> Any:
        outs = []
        try:
            for x in xs:
                outs.append(x.sin())
                if len(outs) == 12:
                    raise ValueError
            outs = tj.stack(outs)
        except ValueError:
            log.append(len(outs))
            return outs[3]
        return outs

    compiled = tj.compile(function)
    for n in (9, 15, 10, 20, 11, 14):
        here: list[int] = []
        there: list[int] = []
        xs = tj.arange(n * 2.0).view(n, 2)
        for _ in range(2):
            assert tj.allclose(compiled(xs, here), function(xs, there)) and here == there


def test_a_list_may_begin_with_what_was_joined_of_it_before() -> None:
    def function(xs: Any) -> Any:
        outs = []
        for x in xs:
            outs.append(x * 2)
        outs = [tj.stack(outs).sum(0)]
        for x in xs:
            outs.append(x)
        outs = tj.stack(outs)
        return outs

    compiled = tj.compile(function)
    for n in (9, 12, 15, 12):
        xs = tj.arange(n * 2.0).view(n, 2)
        for _ in range(2):
            assert compiled(xs).equal(function(xs))
