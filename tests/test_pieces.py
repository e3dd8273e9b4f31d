"""Functions in pieces: what they do, against the functions themselves; and when a compiled function is taken to pieces."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit import nn
from tracejit.capture import branches
from tracejit.capture.branches import Branch
from tracejit.compiled.compile import FullGraphError
from tracejit.compiled.pieces import compile_in_pieces
from tracejit.compiled.tier_policy import TierPolicy
from tracejit.config import override

_files = itertools.count()


@pytest.fixture(autouse=True)
def no_outlined_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows where loops cannot be nodes of the program as a whole (tests/test_branching_loops.py has those that can)."""
    monkeypatch.setattr(TierPolicy, "_outline", lambda *_, **__: False)
    monkeypatch.setattr(branches, "may_be_outlined", lambda *_: False)


def defined(text: str, **names: Any) -> Any:
    """The function `f` of a program text, with a file that can be read."""
    file = f"{__file__}.{next(_files)}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace: dict[str, Any] = {"contextlib": contextlib, **names, "__name__": "program", "__file__": file}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace["f"]


def cut(function: Any, where: str = "") -> Callable[..., Any] | None:
    """The function in pieces which are Python, or None if it is not cut."""
    found = compile_in_pieces(function, [Branch.at(where)], "", lambda piece: piece)
    return None if found is None else found.function


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return "gives", function(*args)
    except Exception as error:
        return "raises", type(error)


# -- the same function
LOOPS = {
    "variables that are carried, and others": """
def f(xs):
    total, out = 0, []
    for x in xs:
        double = 2 * x
        total += double
        out.append(total)
    return total, out
""",
    "break, continue and return": """
def f(xs):
    total = 0
    for k, x in enumerate(xs):
        if x < 0:
            continue
        if x == 7:
            break
        if x > 8:
            return "early", total
        total += x * k
    else:
        total = -total
    return total
""",
    "a return of nothing": """
def f(xs):
    for x in xs:
        if x > 5:
            return
    return xs
""",
    "a while loop with loops inside that have ends of their own": """
def f(xs):
    n, found = len(xs), []
    while n > 0:
        n -= 1
        for x in xs:
            if x == n:
                break
            if x > 6:
                continue
            found.append((n, x))
        else:
            n -= 1
            continue
        if n == 3:
            break
    return n, found
""",
    "a name that comprehensions and generators read": """
def f(xs):
    out, y = [], 1
    for x in xs:
        y = y + x
        out += [y * k for k in range(2)]
        out.append(sum(y + k for k in range(2)))
    return out, y
""",
    "variables of comprehensions with the names of variables": """
def f(xs):
    out, double = [], lambda x: 2 * x
    for k in range(3):
        for y in xs:
            out.append(double(y) + k)
        out.append(sum(y * k for y in out) + len([y for y in out if y > k]))
        if all(y < 100 for y in out):
            out.append([y for y in out][-1])
    return out
""",
    "a name that has a value in the last step alone": """
def f(xs):
    last = None
    for x in xs:
        if x == xs[-1]:
            last = x
    return last
""",
    "parts of elements, and stores into containers": """
def f(xs):
    table, pairs = {}, list(zip(xs, xs[1:]))
    for (a, b), *c in [(p, 1, 2) for p in pairs]:
        table[a] = b, c
        table.setdefault(b, []) if b in table else None
    return table, a if pairs else None
""",
    "patterns, walrus, exceptions that are caught": """
def f(xs):
    out = []
    for x in xs:
        match x:
            case 0 | 1:
                kind = "few"
            case int(n) if n > 5:
                kind = "many", n
            case _:
                kind = "some"
        try:
            out.append((kind, 1 / (x - 3)))
        except ZeroDivisionError as error:
            out.append(str(error))
        finally:
            out.append("done")
        if (half := x // 2) > 1:
            out.append(half)
    return out
""",
    "defaults, keywords, what is around it": """
def around(scale):
    def f(xs, /, shift=1, *rest, power=2, **more):
        total = 0
        for x in xs:
            total += scale * x**power + shift
        return total, rest, more
    return f
f = around(3)
""",
    "private names of a class": """
class Some:
    def __init__(self):
        self.__total = 0
    def step(self, xs):
        for x in xs:
            self.__total += x
            if self.__total > 6:
                break
        return self.__total
f = Some.step
""",
    "an attribute that is only annotated": """
def f(xs):
    a, out = type("Place", (), {})(), []
    for x in xs:
        a.b: int
        a.b = x
        out.append(a.b)
    return out
""",
    "what `finally` assigns, where nothing else leaves the step": """
def f(xs):
    n = 0
    for x in xs:
        try:
            out = 1 / (x - 3)
        except ZeroDivisionError:
            out = None
        finally:
            n += 1
    return n, out if xs else None
""",
    "targets that are no names": """
def f(xs):
    table, at = {}, [0]
    for at[0], table["x"] in zip(xs, xs[::-1]):
        if at[0] > table["x"]:
            continue
        table[at[0]] = table["x"]
    return table, at
""",
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("xs", [[], [1], [2, 3, 7, 4], [0, 5, -1, 9, 3], [8, 1, 6, 3, 3]], ids=str)
def test_a_function_in_pieces_gives_what_the_function_gives(name: str, xs: list[int]) -> None:
    function = defined(LOOPS[name])
    pieces = cut(function)
    assert pieces is not None
    given = (types.SimpleNamespace(_Some__total=1), xs) if "private" in name else (xs,)
    other = (types.SimpleNamespace(_Some__total=1), xs) if "private" in name else (xs,)
    assert outcome(pieces, *given) == outcome(function, *other)
    assert given == other


WHILES = {
    "a comparison": """
def f(xs):
    n, total = len(xs), 0
    while n > 0:
        n -= 1
        total += xs[n]
    return n, total
""",
    "several, of which some are not asked": """
def f(xs):
    n, seen = 0, []
    while n < len(xs) and (seen.append(n) or xs[n] != 7) or not seen:
        n += 1
        if n > 9:
            break
    return n, seen
""",
    "a name that it assigns": """
def f(xs):
    n, x, out = 0, 0, []
    while (x := sum(xs[n:])) > 3:
        n += 1
        if x == 9:
            continue
        out.append(x)
    return n, x, out
""",
    "a name that it assigns, of a loop that ends otherwise": """
def f(xs):
    n = 0
    while (x := n) < len(xs):
        n += 1
        if xs[x] == 3:
            return x, n
    return n
""",
    "more that is done where it ends the loop": """
def f(xs):
    n = 0
    while n < len(xs):
        n += 1
        if n == 4:
            break
    else:
        return "all", n
    return "some", n
""",
    "one that raises": """
def f(xs):
    n = 5
    while 12 / (n - len(xs)) > 0:
        n -= 1
        if n < -3:
            break
    return n
""",
    "one over two lines, in a loop": """
def f(xs):
    out = []
    for x in xs:
        while (
            x > 1
            and x != 5
        ):
            x = x // 2
            if x == 4:
                break
        out.append(x)
    return out
""",
}


@pytest.mark.parametrize("name", WHILES)
def test_the_condition_of_a_while_loop_is_asked_in_its_piece_and_gives_the_same(name: str) -> None:
    function = defined(WHILES[name])
    text = WHILES[name].splitlines()
    line = next(k for k, line in enumerate(text, 1) if line.lstrip().startswith("while"))
    pieces = cut(function, f"{function.__code__.co_filename}:{line + (text[line - 1].rstrip() == '        while (')}")
    assert pieces is not None
    for xs in ([], [1], [2, 3, 7, 4], [0, 5, -1, 9, 3], [8, 1, 6, 3, 3], [20, 5, 4]):
        assert outcome(pieces, list(xs)) == outcome(function, list(xs))


def test_methods_are_cut_for_their_object() -> None:
    class Some:
        def __init__(self) -> None:
            self.__total = 0

        def step(self, xs: list[int]) -> int:
            for x in xs:
                self.__total += x
                if self.__total > 6:
                    break
            return self.__total

    one, other = Some(), Some()
    pieces = cut(one.step)
    assert pieces is not None
    assert [pieces([1, 2]), pieces([9, 9])] == [other.step([1, 2]), other.step([9, 9])] == [3, 12]


STAYING = {
    "a nested function shares a variable that steps assign to": """
def f(xs):
    out = []
    for x in xs:
        out.append(lambda: x)
    return [g() for g in out]
""",
    "a nested function assigns to it": """
def f(xs):
    total = 0
    def add(y):
        nonlocal total
        total += y
    for x in xs:
        add(x)
        total += 1
    return total
""",
    "a nested function assigns to what the body reads": """
def f(xs):
    total, out = 0, []
    def add(y):
        nonlocal total
        total += y
    for x in xs:
        add(x)
        out.append(total)
    return out
""",
    "a warning names the line of who calls": """
def f(xs):
    for x in xs:
        warnings.warn("twice", stacklevel=2)
    return xs
""",
    "a generator goes on later": """
def f(xs):
    out = []
    for x in xs:
        out.append(x + k for k in (1, 2))
    return [list(g) for g in out]
""",
    "global names": """
def f(xs):
    global count
    count = 0
    for x in xs:
        count += x
    return count
""",
    "a name that is deleted": """
def f(xs):
    for x in xs:
        y = x
        del y
    return x
""",
    "a name that may have no value": """
def f(xs):
    for x in xs:
        if x > 3:
            y = x
    return y
""",
    "an exception ends the loop, and a handler looks at variables": """
def f(xs):
    seen = 0
    try:
        for x in xs:
            seen = x
            1 / (x - 7)
    except ZeroDivisionError:
        return "caught", seen
    return seen
""",
    "a context manager may swallow that": """
def f(xs):
    seen = 0
    with contextlib.suppress(ZeroDivisionError):
        for x in xs:
            seen = x
            1 / (x - 7)
    return seen
""",
    "`finally` assigns to what `continue` would give before": """
def f(xs):
    n = 0
    for x in xs:
        try:
            if x > 2:
                continue
        finally:
            n += 1
    return n
""",
    "the name of a handler": """
def f(xs):
    e = 1
    for x in xs:
        e = 0
        try:
            1 / x
        except ZeroDivisionError as e:
            pass
    return e
""",
    "the name of a handler that the step is left in": """
def f(xs):
    for x in xs:
        try:
            1 / x
            e = 5
        except ZeroDivisionError as e:
            continue
    return e
""",
    "what has the name of a builtin consumes no generator": """
def f(xs):
    sum = lambda g: g
    out, y = [], 0
    for x in xs:
        y += 1
        out.append(sum(y + k for k in (1, 2)))
    return [list(g) for g in out]
""",
    "it looks at its own variables": """
def f(xs):
    for x in xs:
        found = sorted(locals())
    return found if xs else None
""",
    "it looks at its own variables elsewhere": """
def f(xs):
    for x in xs:
        y = x
    return "y" in locals()
""",
    "a generator function": """
def f(xs):
    for x in xs:
        yield x
""",
    "no loop": """
def f(xs):
    return [x for x in xs]
""",
}  # fmt: skip


@pytest.mark.parametrize("name", STAYING)
def test_loops_stay_in_the_function_where_a_piece_might_be_told_apart(name: str) -> None:
    assert cut(defined(STAYING[name])) is None


def test_the_innermost_loop_around_a_line_is_cut_and_without_one_all_outer_loops() -> None:
    text = "def f(n):\n    for i in range(n):\n        for j in range(n):\n            n + 1\n    for k in range(n):\n        n + 2\n"
    function = defined(text)
    file = function.__code__.co_filename

    def lines(where: str) -> list[int]:
        found = compile_in_pieces(function, [Branch.at(where)], "", lambda piece: piece)
        assert found is not None
        return [piece.__code__.co_firstlineno for piece in found.parts]

    assert lines(f"{file}:4") == [4]
    assert lines(f"{file}:6") == [6]
    assert lines("elsewhere.py:4") == lines("") == [3, 6]
    assert compile_in_pieces(function, [Branch.at(f"{file}:1")], "", lambda piece: piece) is None


def test_lines_in_tracebacks_are_those_of_the_text() -> None:
    function = defined("def f(xs):\n    for x in xs:\n        y = x\n        1 / y\n    return 1\n")
    pieces = cut(function)
    assert pieces is not None
    with pytest.raises(ZeroDivisionError) as caught:
        pieces([1, 0])
    assert [entry.lineno + 1 for entry in caught.traceback][-1] == 4
    assert {entry.name for entry in caught.traceback[2:]} == {"f"}


# -- random programs
def programs(draw: Any) -> Iterator[str]:
    """The lines of a function of a list of small numbers, whose variables may have no value."""
    names = ["a", "b", "c"]

    def expression() -> str:
        kind = draw(st.integers(0, 5))
        if kind == 0:
            return str(draw(st.integers(-2, 3)))
        if kind == 1:
            return f"sum({draw(st.sampled_from(names))} + k for k in range(2))"
        if kind == 2:
            return f"len([x for x in xs if x > {draw(st.sampled_from(names))}])"
        if kind == 3:
            return f"({draw(st.sampled_from(names))} {draw(st.sampled_from('+-*'))} {draw(st.sampled_from(names))})"
        return draw(st.sampled_from([*names, "x"]))

    def block(depth: int, loops: int, indent: str) -> Iterator[str]:
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.integers(0, 13))
            if kind < 4 or depth > 3:
                yield f"{indent}{draw(st.sampled_from(names))} {draw(st.sampled_from(['=', '=', '+=']))} {expression()}"
            elif kind == 4:
                yield f"{indent}out.append({expression()})"
            elif kind < 7:
                yield f"{indent}if {expression()} > {expression()}:"
                yield from block(depth + 1, loops, indent + "    ")
                if draw(st.booleans()):
                    yield f"{indent}else:"
                    yield from block(depth + 1, loops, indent + "    ")
            elif kind < 9:
                yield f"{indent}for {draw(st.sampled_from(['x', 'x', 'a']))} in xs[:{draw(st.integers(0, 4))}]:"
                yield from block(depth + 1, loops + 1, indent + "    ")
                if draw(st.booleans()):
                    yield f"{indent}else:"
                    yield from block(depth + 1, loops, indent + "    ")
            elif kind == 9 and loops:
                yield f"{indent}{draw(st.sampled_from(['break', 'continue']))}"
            elif kind == 10:
                yield f"{indent}return out, {expression()}"
            elif kind == 11:
                yield f"{indent}try:"
                yield from block(depth + 1, loops, indent + "    ")
                ends = draw(st.integers(0, 2))
                if ends < 2:
                    error, name = draw(st.sampled_from(["NameError", "TypeError"])), draw(st.sampled_from(["e", "b"]))
                    yield f"{indent}except {error} as {name}:"
                    yield from block(depth + 1, loops, indent + "    ")
                if ends > 0:
                    yield f"{indent}finally:"
                    yield from block(depth + 1, loops, indent + "    ")
            elif kind == 12:
                manager = draw(st.sampled_from(["contextlib.suppress(NameError)", "contextlib.nullcontext()"]))
                yield f"{indent}with {manager}:"
                yield from block(depth + 1, loops, indent + "    ")
            else:
                yield f"{indent}({draw(st.sampled_from(names))} := {expression()})"

    yield "def f(xs, b=2):"
    yield "    a, out = 1, []"
    for name in ("c", "x"):
        if draw(st.integers(0, 9)):
            yield f"    {name} = 0"
    yield from block(0, 0, "    ")
    yield "    for x in xs:"
    yield from block(1, 1, "        ")
    yield f"    return out, {', '.join(draw(st.lists(st.sampled_from([*names, 'x']), min_size=1, max_size=4)))}"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_functions_do_in_pieces_what_they_do(data: Any) -> None:
    function = defined("\n".join(programs(data.draw)) + "\n")
    pieces = cut(function)
    for xs in ([], [3], [0, 1, 2], [2, -1, 3, 0, 5]):
        if pieces is not None:
            assert outcome(pieces, xs) == outcome(function, xs)


def test_many_random_functions_are_cut_and_most_of_these_give_something() -> None:
    """Else the test above would not see much."""
    found = []

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def collect(data: Any) -> None:
        pieces = cut(defined("\n".join(programs(data.draw)) + "\n"))
        found.append(None if pieces is None else outcome(pieces, [2, -1, 3])[0])

    collect()
    assert found.count("gives") > len(found) / 5


# -- compiled functions that are taken to pieces
T.manual_seed(0)
_one, _other = nn.Linear(4, 4), nn.Linear(4, 4)


def _rows(seed: int, count: int = 10) -> Any:
    return T.tensor(np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32))


def _either_way(xs: Any) -> Any:
    h = T.zeros(4)
    for t in range(xs.shape[0]):
        if (h + xs[t]).sum() > 0:
            h = T.tanh(_one(h) + xs[t])
        else:
            h = T.tanh(_other(h) - xs[t])
    return h


def _accepts(x: Any, steps: int) -> tuple[Any, Any, int]:
    """Metropolis' algorithm."""
    energy, accepted, chain = (x**2).sum(), 0, []
    with T.no_grad():
        for _ in range(steps):
            proposed = x + 0.5 * T.randn(4)
            other = (proposed**2).sum()
            if random.random() < (energy - other).exp().item():
                x, energy = proposed, other
                accepted += 1
            chain.append(x)
    return x, T.stack(chain).mean(0), accepted


def _ends_early(xs: Any) -> Any:
    best = None
    for x in xs:
        norm = x.norm()
        if norm < 0.8:
            continue
        if best is None or norm > best:
            best = norm
        if norm > 3.2:
            return best, x
    return best, None


def _compared(function: Callable[..., Any], given: Callable[[int], tuple[Any, ...]], calls: int = 30) -> Any:
    """The function, compiled, after calls that gave what eager ones give."""
    compiled = T.compile(function, wait=True)
    for k in range(calls):
        found = []
        for f in (function, compiled):
            random.seed(k)
            T.manual_seed(k)
            found.append(f(*given(k)))
        expected, result = [x if isinstance(x, tuple) else (x,) for x in found]
        for a, b in zip(expected, result, strict=True):
            if isinstance(a, T.Tensor):
                np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=1e-5, atol=1e-6)
            else:
                assert (type(a), a) == (type(b), b)
    return compiled


@pytest.mark.parametrize(
    ("function", "given"),
    [(_either_way, lambda k: (_rows(k),)), (_accepts, lambda k: (T.ones(4), 12)), (_ends_early, lambda k: (_rows(k, 20),))],
    ids=["either way", "accepts", "ends early"],
)
def test_a_function_whose_steps_go_either_way_is_taken_to_pieces(function: Any, given: Any) -> None:
    compiled = _compared(function, given)
    assert compiled.stats.piecewise_calls >= 15, compiled.explain()
    assert compiled.stats.calls == 30
    first = compiled.explain().partition("\n")[0]
    assert (
        first == f"{function.__qualname__} is ordinary Python around 1 compiled part, because no single program fits its calls."
    )
    assert "\n  runs in pieces, since " in compiled.explain()
    assert f"  {function.__qualname__}, a step of line " in compiled.explain(verbose=True)
    (part,) = compiled._table.pieces.parts
    assert part.stats.compiled_calls > 0.8 * part.stats.calls > 80, compiled.explain()


def test_gradients_go_through_pieces() -> None:
    compiled = T.compile(_either_way, wait=True)
    parameters = [*_one.parameters(), *_other.parameters()]
    for k in range(20):
        found = []
        for f in (_either_way, compiled):
            xs = _rows(k).requires_grad_()
            for p in parameters:
                p.grad = None
            f(xs).square().sum().backward()
            found.append([x.grad for x in (xs, *parameters)])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)  # a side that was not taken has no gradient
            if a is not None:
                np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-4, atol=1e-6)
    assert compiled.stats.piecewise_calls >= 8, compiled.explain()


def test_a_loop_around_a_call_of_what_goes_either_way_is_cut() -> None:
    def step(h: Any, x: Any) -> Any:
        return h + x if (h * x).sum() > 0 else h - 2 * x

    def over(xs: Any) -> Any:
        h = T.ones(4)
        for x in xs:
            h = step(h, x)
        return h

    assert _compared(over, lambda k: (_rows(k),)).stats.piecewise_calls >= 15


def best_first(w: T.Tensor, seeds: list[T.Tensor], steps: int) -> list[float]:
    """Each step sorts by values what its inner loop has computed: no loop of a step is around that."""
    kept = [(seed.item(), w) for seed in seeds]
    for _ in range(steps):
        following = []
        for score, state in kept:
            state = T.cos(state * 2.3 + score)
            following.append((state.sum().item(), state))
            following.append((state.amax().item(), state))
        following.sort(key=lambda each: each[0], reverse=True)
        kept = following[: len(seeds)]
    return [score for score, _ in kept]


def test_the_loops_of_a_step_are_cut_where_what_differs_is_in_none_of_them() -> None:
    compiled = T.compile(best_first)
    generator = np.random.default_rng(0)
    for k in range(30):
        given_ = T.tensor([0.1, -0.7 + 0.05 * k, 0.4]), list(T.from_numpy(generator.normal(size=6))), 6
        assert compiled(*given_) == pytest.approx(best_first(*given_), rel=1e-2, abs=1e-2)
    inner = compiled._table.pieces.parts[0]._table.pieces
    assert inner is not None and inner.parts[0].stats.compiled_calls > 300, compiled.explain()


def test_a_large_function_with_few_steps_is_in_pieces_after_one_recording_that_has_waited() -> None:
    def tree(x: T.Tensor, depth: int) -> T.Tensor:
        return x.tanh() + 0.5 if not depth else (tree(x, depth - 1) * tree(x.cos(), depth - 1)).sin()

    def steps(x: T.Tensor, values: list[T.Tensor]) -> T.Tensor:
        for value in values:
            x = tree(x, 5)
            x = x - 1 if value > 0 else x * 2
        return x

    compiled, generator = T.compile(steps, backend="reference"), np.random.default_rng(0)
    for _ in range(100):
        compiled(T.ones(2), [T.tensor(value) for value in generator.normal(size=9)])
    assert compiled.stats.traces == 5 and compiled.stats.piecewise_calls > 20


def test_functions_with_few_paths_stay_whole() -> None:
    def once(xs: Any) -> Any:
        for x in xs:
            xs = xs + x
        return xs if xs.sum() > 0 else -xs

    compiled = _compared(once, lambda k: (_rows(k),))
    assert compiled.stats.piecewise_calls == 0
    assert compiled.stats.compiled_calls > 20


def test_clear_makes_a_function_whole_again() -> None:
    compiled = _compared(_either_way, lambda k: (_rows(k),))
    compiled.clear()
    assert compiled.stats.calls == 0
    for _ in range(3):
        compiled(_rows(1))
    assert (compiled.stats.traces, compiled.stats.compiled_calls, compiled.stats.piecewise_calls) == (1, 2, 0)


def test_what_a_step_raises_is_raised_and_its_effects_stay() -> None:
    seen: list[int] = []

    def fails(xs: Any) -> Any:
        h = T.zeros(4)
        for k, x in enumerate(xs):
            seen.append(k)
            h = h + x if x.sum() > 0 else h - x
            if len(seen) == 35:
                raise ValueError("enough")
        return h

    compiled = T.compile(fails, wait=True)
    for k in range(40):
        found = []
        for f in (fails, compiled):
            seen.clear()
            seen.extend(range(30 if k % 8 == 7 else 20))
            found.append((outcome(f, _rows(k, 12)), list(seen)))
        assert found[0][1] == found[1][1]
        assert found[0][0][0] == found[1][0][0] == ("raises" if k % 8 == 7 else "gives")
    assert compiled.stats.piecewise_calls >= 20, compiled.explain()


def test_paths_for_values_that_are_arguments_stay_whole() -> None:
    def scaled(xs: Any, how: str) -> Any:
        for x in xs:
            xs = xs * len(how) + x
        return xs

    compiled = _compared(scaled, lambda k: (_rows(k, 3), "word" + "s" * (k % 14)), calls=60)
    assert compiled.stats.piecewise_calls == 0


def test_a_function_that_is_given_other_defaults_is_whole_again() -> None:
    def shifted(xs: Any, shift: float = 1.0) -> Any:
        h = T.zeros(4)
        for x in xs:
            h = h + shift if x.sum() > 0 else h - x
        return h

    compiled = _compared(shifted, lambda k: (_rows(k),))
    before = compiled.stats.piecewise_calls
    assert before >= 15
    shifted.__defaults__ = (2.0,)
    np.testing.assert_array_equal(compiled(_rows(1)).numpy(), shifted(_rows(1)).numpy())
    assert compiled.stats.piecewise_calls == before


def test_the_forward_of_a_module_is_cut_and_its_hooks_are_called() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, xs: Any) -> Any:
            h = T.zeros(4)
            for x in xs:
                h = T.tanh((self.one if (h + x).sum() > 0 else self.other)(h) + x)
            return h

    T.manual_seed(0)
    net = Net()
    compiled = _compared(net, lambda k: (_rows(k),))
    before = compiled.stats.piecewise_calls
    assert before >= 15, compiled.explain()
    seen: list[Any] = []
    net.register_forward_hook(lambda module, given, out: seen.append(given) or 2 * out)
    xs = _rows(1)
    np.testing.assert_allclose(compiled(xs).detach().numpy(), net(xs).detach().numpy(), rtol=1e-5)
    assert [given[0] is xs for given in seen] == [True, True]
    assert compiled.stats.piecewise_calls == before + 1
    other = Net()
    net.forward = other.forward  # type: ignore[method-assign]
    np.testing.assert_allclose(compiled(xs).detach().numpy(), net(xs).detach().numpy(), rtol=1e-5)
    net.forward = lambda xs: xs  # type: ignore[method-assign]
    np.testing.assert_array_equal(compiled(xs).numpy(), 2 * xs.numpy())
    assert compiled.stats.piecewise_calls == before + 1


def test_objects_that_are_called_otherwise_stay_whole() -> None:
    class Calls:
        def __call__(self, xs: Any) -> Any:
            return self._call_with(xs, 2)

        def _call_with(self, xs: Any, k: int) -> Any:
            h = T.zeros(4)
            for x in xs:
                h = h + k * x if x.sum() > 0 else h - x
            return h

        def forward(self, xs: Any) -> Any:
            for x in xs:
                xs = xs + x
            return xs

    assert _compared(Calls(), lambda k: (_rows(k),)).stats.piecewise_calls == 0


def test_a_defect_of_cutting_is_reported_and_the_call_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise KeyError("a defect")

    monkeypatch.setattr("tracejit.compiled.tier_policy.compile_in_pieces", fails)
    with override(verify=False), pytest.warns(RuntimeWarning, match="take to pieces"):
        assert _compared(_either_way, lambda k: (_rows(k),)).stats.piecewise_calls == 0


def test_a_graph_of_a_function_in_pieces_is_not_there() -> None:
    compiled = _compared(_either_way, lambda k: (_rows(k),), calls=12)
    with pytest.raises(RuntimeError, match="it runs in pieces, which explain"):
        compiled.graph()


def test_one_program_or_an_error_is_never_pieces() -> None:
    compiled = T.compile(_either_way, fullgraph=True, wait=True)
    with contextlib.suppress(FullGraphError):
        for k in range(40):
            compiled(_rows(k))
    assert compiled.stats.piecewise_calls == 0


def clipped(xs: T.Tensor) -> T.Tensor:
    h = T.zeros(2)
    for x in xs:
        h = h * 0.9 + x
        if h.norm() > 2:
            h = h / h.norm()
    return h


def test_steps_that_go_either_way_are_found_in_loops_of_all_lengths() -> None:
    compiled = T.compile(clipped)
    random = np.random.default_rng(0)
    for _ in range(60):
        xs = T.tensor(random.normal(size=(int(random.integers(8, 60)), 2)).astype(np.float32))
        np.testing.assert_allclose(compiled(xs).numpy(), clipped(xs).numpy(), rtol=1e-4, atol=1e-5)
    assert compiled.stats.piecewise_calls >= 40 and compiled.stats.traces <= 12, compiled.explain()
