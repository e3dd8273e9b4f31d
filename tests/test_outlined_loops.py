"""syntax/outlined_loops.py: bodies of loops as functions, what these take and return, which loops are left alone, and that the
outlined function does what the original does."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracejit.capture.frame import CaptureFrame
from tracejit.capture.syntax.convert import CAPTURE
from tracejit.capture.syntax.grown_lists import grown_lists
from tracejit.capture.syntax.locate import locate
from tracejit.capture.syntax.outlined_loops import OutlinedFunction, OutlinedLoop, convert_outlined, is_step

_files = itertools.count()


def defined(text: str, **names: Any) -> Any:
    """The function `f` of a program text, with a file that can be read."""
    file = f"{__file__}.{next(_files)}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace: dict[str, Any] = {**names, "__name__": "program", "__file__": file}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace["f"]


def lines_of(code: CodeType) -> frozenset[int]:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return frozenset(range(min(lines), max(lines) + 1))


def outlined(function: Any, *lines: int) -> OutlinedFunction | None:
    """The function with its outermost loops around these lines outlined, all loops if there are none."""
    return convert_outlined(function.__code__, frozenset(lines) or lines_of(function.__code__), function.__globals__)


def loops_of(text: str, *lines: int) -> tuple[OutlinedLoop, ...]:
    found = outlined(defined(text), *lines)
    return () if found is None else found.loops


def running(function: Any, lines: frozenset[int] | None = None) -> tuple[Callable[..., Any], list[OutlinedLoop]]:
    """(the function with its loops outlined, and those in steps, which does what Python does; the loops)."""
    code, loops = function.__code__, []
    lines = lines_of(code) if lines is None else lines
    form = convert_outlined(code, lines, function.__globals__)
    if form is None:
        return function, []
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    steps = []
    for loop in form.loops:
        step = FunctionType(loop.code, function.__globals__, "step", None, tuple([cells[x] for x in loop.code.co_freevars]))
        inner, nested = running(step, lines)
        steps.append((loop, inner, ()))
        loops += [loop, *nested]
    frame = CellType(CaptureFrame(function.__globals__, cells, steps))
    closure = tuple([frame if name == CAPTURE else cells[name] for name in form.code.co_freevars])
    made = FunctionType(form.code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made, loops


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return "gives", function(*args)
    except Exception as error:
        return "raises", type(error), str(error)


# -- the form
def test_the_step_of_a_for_loop_takes_an_element_and_the_variables_that_it_reads() -> None:
    (loop,) = loops_of("""
def f(n, u, x):
    for t in range(n):
        if u[t] < 0.5:
            x = x + u[t]
    return x
""")
    assert (loop.live_ins, loop.live_outs, loop.items) == (("u", "x"), ("x",), 0)
    assert (loop.has_elements, loop.branches, loop.line) == (True, True, 3)
    assert is_step(loop.code) and loop.code.co_argcount == 3 and loop.code.co_varnames[1:3] == ("u", "x")


def test_the_step_of_a_loop_over_elements_takes_one_of_them() -> None:
    (loop,) = loops_of("def f(xs, h):\n    for k, x in xs:\n        h = h + x * k\n    return h\n")
    assert (loop.live_ins, loop.live_outs, loop.has_elements, loop.code.co_argcount) == (("h",), ("h",), True, 2)


def test_variables_of_a_nested_function_itself_are_not_those_of_the_loop() -> None:
    (loop,) = loops_of("""
def f(n, u, x):
    def slope(x, *, t=n):
        u = lambda x: x + t
        return u(x) * n
    for t in range(n):
        x = x + slope(x) if x > u else u
    return x
""")
    assert loop.live_ins == ("slope", "u", "x")
    assert not loops_of("""
def f(n, u, x):
    def slope(y):
        return lambda u: y + x + u
    for t in range(n):
        x = x + slope(x)(u) if x > u else u
    return x
""")


@pytest.mark.parametrize("condition", ["x < n", "True", "1", "x < n and not n"])
def test_the_step_of_a_while_loop_takes_no_element_and_asks_its_condition(condition: str) -> None:
    (loop,) = loops_of(
        f"def f(n, x):\n    while {condition}:\n        x = x + 1\n        if x > 9:\n            break\n    return x\n"
    )
    is_asked = "n" in condition
    assert (loop.live_ins, loop.live_outs) == (("n", "x") if is_asked else ("x",), ("x",))
    assert not loop.has_elements and loop.code.co_argcount == len(loop.live_ins)


def test_a_step_returns_how_it_has_ended_and_what_it_leaves() -> None:
    (loop,) = loops_of("""
def f(xs, h):
    for x in xs:
        if x < 0:
            continue
        if x > 9:
            break
        if x == 5:
            return "five", h
        h = h + x
    return h
""")
    step = FunctionType(loop.code, {})
    assert [step(x, 1) for x in (-1, 2, 10)] == [("continues", (1,)), ("continues", (3,)), ("breaks", (1,))]
    assert step(5, 1) == ("returns", ("five", 1))


def test_only_variables_that_something_else_reads_are_left() -> None:
    (loop,) = loops_of("""
def f(xs):
    total = count = 0
    for x in xs:
        double = 2 * x
        if double > 3:
            total += double
            count += 1
            seen = x
    return total, seen
""")
    assert {*loop.live_outs} == {*loop.live_ins} == {"count", "seen", "total"}


def test_the_variable_of_the_loop_is_left_if_it_is_read_after_the_loop() -> None:
    after, never = [loops_of(f"def f(xs, h):\n    for x in xs:\n        h = h + x\n    return {x}\n")[0] for x in ("h, x", "h")]
    assert "x" in after.live_outs and "x" not in never.live_outs


# -- items
def test_items_that_steps_append_are_returned_by_the_step() -> None:
    (loop,) = loops_of("""
def f(xs, h):
    seen, others = [], []
    for x in xs:
        if x > 0:
            h = h + x
        seen.append(h)
        others.append(h * x)
    return seen, others
""")
    assert (loop.live_ins, loop.live_outs, loop.items) == (("h",), ("h",), 2)
    assert FunctionType(loop.code, {})(3, 1) == ("continues", (4, (4,), (12,)))


@pytest.mark.parametrize(
    "body",
    [
        "seen.append(seen)",
        "seen.append(x)\n        if x > 5: return seen",
        "seen.append(x); y = seen[0]",
        "seen.append(x)\n        y = bool(seen)",
        "for y in range(2): seen.append(x)",
        "seen.insert(0, x)",
        "y = seen.append(x)",
    ],
)
def test_a_list_that_a_step_does_more_with_is_a_variable_of_the_step(body: str) -> None:
    (loop,) = loops_of(f"def f(xs):\n    seen, y = [], 0\n    for x in xs:\n        {body}\n    return seen, y\n")
    assert loop.items == 0 and "seen" in loop.live_ins


@pytest.mark.parametrize(
    ("body", "given", "returned"),
    [
        ("if x > 0: seen.append(x)", (3,), (3,)),
        ("if x > 0: seen.append(x)", (-3,), ()),
        ("seen.append(x); seen += [x * 2]", (3,), (3, 6)),
        ("seen = seen + [x]", (3,), (3,)),
        ("seen.append(x)\n        if x > 5: break", (9,), (9,)),
        ("if x > 5: continue\n        seen.append(x)", (9,), ()),
    ],
)
def test_a_step_returns_the_items_that_its_path_appends(body: str, given: Any, returned: Any) -> None:
    (loop,) = loops_of(f"def f(xs):\n    seen = []\n    for x in xs:\n        {body}\n    return seen\n")
    assert loop.items == 1 and "seen" not in loop.live_ins
    assert FunctionType(loop.code, {})(*given)[1][-1] == returned


def test_the_length_of_a_list_that_steps_append_to_is_a_variable_of_the_step() -> None:
    text = (
        "def f(n):\n    a, b = [], [0]\n    while len(b) < n:\n        a.append(1)\n        b.append(len(b))\n    return a, b\n"
    )
    (loop,) = loops_of(text)
    assert (loop.items, loop.measured, loop.live_ins[1:]) == (2, {1}, ("n",)) and loop.live_ins[0].startswith(
        "__outlined_length_"
    )
    assert FunctionType(loop.code, {})(1, 5) == ("continues", (2, (1,), (1,)))
    assert FunctionType(loop.code, {})(5, 5) == ("breaks", (5, (), ()))


@pytest.mark.parametrize("text", ["len = max\n    ", "", "import len\n    "])
def test_where_len_may_be_another_function_the_list_is_a_variable_of_the_step(text: str) -> None:
    function = defined(f"def f(n):\n    {text}a = []\n    while len(a) < n: a.append(1)\n    return a\n", len=min)
    found = outlined(function)
    assert found is not None and found.loops[0].items == 0
    del function.__globals__["len"]
    found = outlined(function)
    assert found is not None and found.loops[0].items == (not text)


@pytest.mark.parametrize(
    "before",
    [
        "seen = given",
        "seen = []; other = seen",
        "seen = []; seen = given",
        "if given: seen = []",
        "seen = []; other = stack(seen)",
        "seen = []; other = lambda: seen",
        "seen = []; other = (len(seen) for _ in given)",
        "given = []; seen = [given, given]; import seen",
    ],
)
def test_a_list_that_something_else_may_reach_is_a_variable_of_the_step(before: str) -> None:
    (loop,) = loops_of(f"def f(xs, given):\n    {before}\n    for x in xs:\n        seen.append(x)\n    return seen\n")
    assert loop.items == 0


@pytest.mark.parametrize("before", ["seen = []; seen.append(0)", "seen = [0]; last = seen[-1]", "seen = []; n = len(seen)"])
def test_a_list_that_has_items_before_the_loop_is_no_variable_of_the_step(before: str) -> None:
    (loop,) = loops_of(f"def f(xs, given):\n    {before}\n    for x in xs:\n        seen.append(x)\n    return seen\n")
    assert loop.items == 1


@pytest.mark.parametrize(("after", "items"), [("other = seen", 0), ("seen.append(0)", 1), ("n = len(seen)", 1)])
def test_in_a_loop_around_what_follows_the_loop_comes_before_it_too(after: str, items: int) -> None:
    text = "def f(xs):\n    seen = []\n    while True:\n        yield_ = 0\n        for x in xs:\n            seen.append(x)\n        {}\n"
    function = defined(text.format(after))
    located = locate(function.__code__, function.__globals__)
    inner = located.node.body[1].body[1]
    assert len(grown_lists(located.node, inner, has_len=True)) == items


# -- which loops
@pytest.mark.parametrize(
    "body",
    [
        "    for x in xs:\n        yield x",
        "    global TOTAL\n    for x in xs:\n        TOTAL = x",
        "    for x in xs:\n        global TOTAL\n        TOTAL = x",
        "    for x in xs:\n        n += x\n        del x\n    return n",
        "    for x in xs:\n        n += len(locals())\n    return n",
        "    for x in xs:\n        class A:\n            pass\n    return A",
        "    for x in xs:\n        n += x\n    return lambda: n",
        "    for x in xs:\n        g = lambda: n\n        n = g() + x\n    return n",
        "    for x in xs:\n        n = eval('n + x')\n    return n",
        "    return [x for x in xs]",
        "    return n",
    ],
)
def test_where_the_step_would_be_something_else_nothing_is_outlined(body: str) -> None:
    assert outlined(defined(f"TOTAL = 0\ndef f(xs, n=0):\n{body}\n", suppress=None)) is None


def test_a_loop_that_shares_a_variable_with_an_inner_function_is_not_outlined() -> None:
    assert (
        loops_of("def f(xs):\n    n = 0\n    def add(x):\n        nonlocal n\n        n += x\n    for x in xs:\n        n += x\n")
        == ()
    )


def test_a_coroutine_is_left_alone() -> None:
    text = "async def f(xs):\n    for x in xs:\n        await x\n"
    assert outlined(defined(text)) is None


def test_loops_around_the_lines_are_outlined_and_no_others() -> None:
    text = """
def f(xs, h):
    for x in xs:
        h = h + x
    for x in xs:
        h = h * x
    for x in xs:
        h = h - x
    return h
"""
    assert [loop.line for loop in loops_of(text, 6)] == [5]
    assert [loop.line for loop in loops_of(text, 4, 8)] == [3, 7]
    assert outlined(defined(text), 9) is None


def test_the_outermost_loop_is_outlined_and_that_in_its_step_in_its_turn() -> None:
    text = """
def f(xs, h):
    for x in xs:
        while h < x:
            h = h + 1
            for k in range(3):
                h = h + k
    return h
"""
    function = defined(text)
    form = outlined(function, 7)
    assert form is not None and [loop.line for loop in form.loops] == [3]
    inner = convert_outlined(form.loops[0].code, frozenset([7]), function.__globals__)
    assert inner is not None and [(loop.line, loop.branches) for loop in inner.loops] == [(4, True)]
    innermost = convert_outlined(inner.loops[0].code, frozenset([7]), function.__globals__)
    assert innermost is not None and [loop.line for loop in innermost.loops] == [6]
    assert [loop.line for loop in running(function)[1]] == [3, 4, 6]


def test_a_loop_over_a_range_in_a_step_is_outlined_although_it_is_around_no_line() -> None:
    text = """
def f(xs, h):
    for x in xs:
        if x > 0:
            h = h + 1
        for k in range(3):
            h = h + k
        for y in xs:
            h = h + y
    return h
"""
    function = defined(text)
    form = outlined(function, 4)
    assert form is not None
    inner = convert_outlined(form.loops[0].code, frozenset([4]), function.__globals__)
    assert inner is not None and [(loop.line, loop.branches) for loop in inner.loops] == [(6, False)]
    assert form.loops[0].branches


def test_where_a_loop_cannot_be_outlined_one_in_it_may_be() -> None:
    (loop,) = loops_of("""
def f(xs, n):
    while n:
        n -= 1
        m = n
        for x in xs:
            if x > n:
                n = n - x
        del m
    return n
""")
    assert loop.line == 6


def test_the_end_of_a_while_loop_is_no_break_where_that_matters() -> None:
    (plain,) = loops_of("def f(n):\n    while n > 3:\n        n -= 1\n        if n == 5: break\n    return n\n")
    (with_else,) = loops_of(
        "def f(n):\n    while n > 3:\n        n -= 1\n        if n == 5: break\n    else:\n        n = 0\n    return n\n"
    )
    steps = [FunctionType(loop.code, {}) for loop in (plain, with_else)]
    assert [step(3) for step in steps] == [("breaks", (3,)), ("ends", (3,))]
    assert [step(6) for step in steps] == [("breaks", (5,)), ("breaks", (5,))]


@pytest.mark.parametrize("around", ["try:", "with suppress(ValueError):"])
def test_a_step_whose_error_may_be_caught_returns_it_with_its_variables(around: str) -> None:
    after = "    except ValueError:\n        pass\n" if around == "try:" else ""
    function = defined(f"""
def f(xs, n):
    {around}
        for x in xs:
            n = n + x
            if n > 5:
                raise ValueError(n)
            m = n
{after}    return n, m
""")
    form = outlined(function)
    assert form is not None and form.loops[0].is_watched
    step = FunctionType(form.loops[0].code, {})
    assert step(1, 2) == ("continues", (3, 3))
    way, (m, n, error) = step(4, 2)
    assert (way, n, type(error), error.args) == ("raises", 6, ValueError, (6,)) and m is not None
    assert not loops_of("def f(xs):\n    for x in xs:\n        y = x\n    return y\n")[0].is_watched


def test_a_step_that_returns_through_a_finally_is_not_outlined() -> None:
    text = "def f(xs, n):\n    try:\n        for x in xs:\n            n += x\n            {}\n    finally:\n        print(n)\n"
    assert not loops_of(text.format("if n > 3: return n")) and loops_of(text.format("if n > 3: break"))


def test_a_variable_that_only_a_step_assigns_to_is_none_of_the_globals() -> None:
    function = defined("def f(xs, n):\n    if n:\n        return k\n    for k in xs:\n        n += k\n    return n\n", k=99)
    made, loops = running(function)
    assert len(loops) == 1 and outcome(made, [1, 2], 0) == ("gives", 3)
    assert outcome(made, [1], 1) == outcome(function, [1], 1)


def test_an_outlined_form_is_made_once() -> None:
    function = defined("def f(xs, h):\n    for x in xs:\n        h = h + x\n    return h\n")
    assert outlined(function, 3) is outlined(function, 3)
    assert not is_step(function.__code__)


# -- the same function
PROGRAMS = {
    "an error in the middle of a step": (
        """
def f(xs):
    total, seen, last = 0, [], None
    try:
        for k, x in enumerate(xs):
            last = x
            total += 6 // x
            seen.append(x)
            y = total
    except ZeroDivisionError as error:
        return total, seen, last, k, error.args
    finally:
        total += 100
    return total, seen, last, y
""",
        [[1, 2], [2, 0, 3], [0]],
    ),
    "an error of what the loop goes over": (
        """
def f(xs):
    total = 0
    for _ in range(2):
        try:
            for x in map(lambda x: 6 // x, xs):
                total += x
                if total > 20: break
            else:
                total += 1000
        except ZeroDivisionError:
            total += x * 100
    return total
""",
        [[1, 2], [2, 3, 0, 4], [], [1, 1, 1, 1]],
    ),
    "a while loop with else": (
        """
def f(xs):
    n, found = 0, []
    while (x := xs[n] if n < len(xs) else 9) < 7:
        n += 1
        if x == 5:
            break
        if x == 3:
            continue
        found.append(x)
    else:
        found.append(-x)
    return n, found
""",
        [[1, 2], [1, 3, 5, 6], [3, 8, 1], []],
    ),
    "no steps": (
        """
def f(xs):
    for x in xs[:0]:
        y = x
    return 1
""",
        [[1], [2, 3]],
    ),
    "a variable that may have no value": (
        """
def f(xs):
    for x in xs:
        if x > 2:
            last = x
    return last
""",
        [[1, 2], [1, 3, 2], []],
    ),
    "a variable that may have no value and is read in a step": (
        """
def f(xs):
    for x in xs:
        if x < 3:
            y = last + x
        last = x
    return y
""",
        [[1, 2], [4, 1], [5, 6], []],
    ),
    "the variable of the loop afterwards": (
        """
def f(xs):
    x = 9
    for x in xs:
        pass
    return x
""",
        [[], [1, 2]],
    ),
    "several targets": (
        """
def f(xs):
    d = {}
    for d['last'], (a, *b) in xs:
        n = a
    return d, a, b, n
""",
        [[(1, (2, 3, 4)), (5, (6,))], []],
    ),
    "else": (
        """
def f(xs):
    n = 0
    for x in xs:
        n += x
        if n > 5:
            break
    else:
        n = -n
    return n
""",
        [[1, 2], [4, 5], []],
    ),
    "return in two loops": (
        """
def f(xs):
    for x in xs:
        for y in xs:
            if x * y == 6:
                return x, y
    return None
""",
        [[1, 2, 3], [1, 4]],
    ),
    "items": (
        """
def f(xs):
    a, b, h = [], [], 0
    for x in xs:
        h = h + x if x > 1 else h
        a.append(h)
        b.append((h, x))
    a.append(0)
    return a, b
""",
        [[1, 2, 3], []],
    ),
    "items of some steps": (
        """
def f(xs):
    a, b = [7], []
    for x in xs:
        if x == 3:
            continue
        b.append(len(a))
        if x > 1:
            a.append(x)
            a += [x, x]
        elif x < 0:
            b = b + [x]
            break
        b.append(x)
    else:
        a.append(0)
    return a, b, len(a)
""",
        [[1, 2, 3, 4], [], [1, -1, 2], [2, 3, 3, 2]],
    ),
    "items until a list is long": (
        """
def f(xs):
    a, k = [], 0
    while len(a) < len(xs):
        k += 1
        if k % 3:
            a.append(k)
    return a, k
""",
        [[1, 2, 3, 4], []],
    ),
    "the items of a nested loop": (
        """
def f(xs):
    a = []
    for x in xs:
        b = []
        for y in range(x):
            b.append(y * x)
        a.append(b)
    return a
""",
        [[1, 2, 3], [0], []],
    ),
    "a range with a step": (
        """
def f(xs):
    n = 0
    for k in range(len(xs) - 1, -1, -2):
        n = 2 * n + xs[k]
    return n, k
""",
        [[1, 2, 3], [1, 2], []],
    ),
    "a range of another kind": (
        """
def f(xs):
    range, n = reversed, 0
    for k in range(xs):
        n = 2 * n + k
    return n
""",
        [[1, 2, 3], []],
    ),
    "while True": (
        """
def f(xs):
    k = 0
    while True:
        k += 1
        if k > 2 and xs[0]:
            break
        if k > 4:
            return 'long'
    return k
""",
        [[1], [0], []],
    ),
    "a condition with effects": (
        """
def f(xs):
    n = 0
    while xs and (x := xs.pop()) < 5:
        n += x
        if x == 2:
            continue
        n += 1
    return n, xs
""",
        [[1, 2, 3], [1, 9, 2], []],
    ),
    "an error in a step": (
        """
def f(xs):
    n = 1
    for x in xs:
        n = n / x
    return n
""",
        [[1, 2], [1, 0, 2]],
    ),
    "an iterator that raises": (
        """
def f(xs):
    n = 0
    for x in (10 // y for y in xs):
        n += x
    return n
""",
        [[1, 2], [1, 0]],
    ),
    "elements of a dictionary": (
        """
def f(xs):
    n = 0
    for k, x in dict(enumerate(xs)).items():
        n += k * x
    return n
""",
        [[1, 2], []],
    ),
    "a list that steps change": (
        """
def f(xs):
    for x in xs:
        if x < 3:
            xs.append(x + 1)
    return xs
""",
        [[1, 2], [5]],
    ),
    "swaps": (
        """
def f(xs):
    a, b = 1, 2
    for x in xs:
        if x > 1:
            a, b = b, a + x
    return a, b
""",
        [[1, 2, 3]],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_outlined_function_does_what_the_original_does(name: str) -> None:
    text, arguments = PROGRAMS[name]
    function = defined(text)
    other, loops = running(function)
    assert loops
    for xs in arguments:
        assert outcome(other, [*xs]) == outcome(function, [*xs])


def test_free_variables_and_defaults_stay() -> None:
    text = """
def outer(scale):
    def f(xs, n=2, *, base=1):
        for x in xs:
            if x > n:
                base = base * scale + x
        return base
    return f
f = outer(3)
"""
    function = defined(text)
    other, loops = running(function)
    assert len(loops) == 1
    assert other([1, 2, 3, 4]) == function([1, 2, 3, 4]) and other([1, 2], 0, base=7) == function([1, 2], 0, base=7)


# -- any function
SIMPLE = (
    "a = a + x", "b = b * 2 - x", "a, b = b, a", "t = a + x", "a = t", "count += 1", "unread = x", "if a > 40: a = a - 40",
    "b = abs(b) % 17", "out.append(a)", "other = out[-1:]",
)  # fmt: skip
CONDITIONS = ("x > 2", "a > b", "count % 2", "a and b", "not a", "x in (1, 4)", "a < t")
LEAVING = ("continue", "break", "return a, count")


@st.composite
def blocks(draw: Any, indent: int, depth: int) -> list[str]:
    """The lines of a block in a loop."""
    pad, lines = " " * indent, []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("simple", "simple", "if", "else", "leave", "for", "while")))
        if kind == "simple" or (depth == 0 and kind != "leave"):
            lines.append(pad + draw(st.sampled_from(SIMPLE)))
        elif kind == "leave":
            condition, leave = draw(st.sampled_from(CONDITIONS)), draw(st.sampled_from(LEAVING))
            lines += [f"{pad}if {condition}:", f"{pad}    {leave}"]
        elif kind in ("if", "else"):
            lines += [f"{pad}if {draw(st.sampled_from(CONDITIONS))}:", *draw(blocks(indent + 4, depth - 1))]
            lines += [f"{pad}else:", *draw(blocks(indent + 4, depth - 1))] if kind == "else" else []
        elif kind == "for":
            header = draw(st.sampled_from(("for x in range(3):", "for k, x in enumerate((1, 4)):", "for y in out[:3]:")))
            lines += [pad + header, *draw(blocks(indent + 4, depth - 1))]
        else:
            lines += [f"{pad}while {draw(st.sampled_from(CONDITIONS))}:", f"{pad}    turns += 1", f"{pad}    if turns > 30:"]
            lines += [f"{pad}        break", *draw(blocks(indent + 4, depth - 1))]
    return lines


@given(blocks(8, 2), st.lists(st.integers(-3, 6), max_size=5), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_loop_does_the_same_outlined(body: list[str], xs: list[int], has_value: bool) -> None:
    first = ["def f(xs):", "    a, b, count, turns, out = 1, 2, 0, 0, []", *(["    t = 3"] if has_value else [])]
    lines = [*first, "    for x in xs:", *body, "    return a, b, count, turns, out, x"]
    function = defined("\n".join(lines) + "\n")
    other, loops = running(function)
    assert loops
    assert outcome(other, xs) == outcome(function, xs)
