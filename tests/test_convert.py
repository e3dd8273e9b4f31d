"""Conversion of source text: instrumented code without a recording does what the original does; sources are matched to running code."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import linecache
import marshal
import traceback
import warnings
import weakref
from types import CellType, FunctionType

import pytest

import tracejit as T
import tracejit.capture.syntax.compiling as compiling
import tracejit.capture.syntax.convert as converting
import tracejit.capture.syntax.locate as locating
from tracejit.capture.frame import CaptureFrame
from tracejit.capture.syntax.convert import CAPTURE, convert, is_instrumented
from tracejit.capture.syntax.locate import NotConvertible, locate


def instrumented(function):
    """The instrumented version of a function, with handlers that do what Python does."""
    code = convert(function.__code__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    frame = CellType(CaptureFrame(function.__globals__, cells))
    closure = tuple(frame if name == CAPTURE else cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


GLOBAL = 3


class Holder:
    def __init__(self):
        self.n = 1
        self.items = [1, 2, 3]
        self.__private = 5

    def private(self):
        self.__private += 1
        return self.__private, (lambda: self.__private)()

    def parent(self):
        return super().__repr__() == object.__repr__(self)


def everything(a, b=2, *args, k=4, **kwargs):
    """Most of Python's statements."""
    global GLOBAL
    total = a + b * GLOBAL - k
    GLOBAL += 1
    holder = Holder()
    holder.n, (holder.items[0], *rest) = a, [b, *args]
    holder.n += 10
    holder.items[1] *= 2
    x = y = holder.items[-1]
    for i, (p, q) in enumerate(zip(holder.items, range(9), strict=False)):
        if i == 2:
            continue
        total += p * q
    else:
        total += 1
    while total > 1000:
        total //= 2
        break
    try:
        kwargs["missing"]
    except KeyError as error:
        total += len(error.args)
    finally:
        total = -total if not total else +total
    squares = {j: [m for m in range(j) if m % 2] for j in range(3)}
    nested = [(lambda v, w=j: v + w)(j) for j in range(3)]
    del squares[0]
    text = f"{total:>5}|{x!r}|{nested}" if 0 < a <= 5 or b else "none"
    if (length := len(text)) > 3 and holder.items and rest is not None:
        total += length
    with open(__file__) as stream:
        total += bool(stream.readline())
    match (a, b):
        case (1, other) if other > 1:
            total += other
        case _:
            total -= 1
    return total, squares, text, y, holder.private(), holder.n, sorted(kwargs), x in holder.items, a is not b


@pytest.mark.parametrize("arguments", [((1,), {}), ((1, 5, 6, 7), {"k": 0, "z": 1}), ((4, 2), {"missing": 1})])
def test_instrumented_code_without_a_recording_does_what_the_original_does(arguments):
    global GLOBAL
    args, kwargs = arguments
    GLOBAL = 3
    expected = everything(*args, **kwargs)
    after = GLOBAL
    GLOBAL = 3
    assert instrumented(everything)(*args, **kwargs) == expected
    assert after == GLOBAL


def test_private_names_are_mangled_as_in_the_class():
    holder = Holder()
    assert instrumented(Holder.private)(holder) == (6, 6)


def test_zero_argument_super_finds_its_class():
    assert instrumented(Holder.parent)(Holder()) is True


def test_generators_keep_their_protocol():
    def generate(n):
        got = yield n
        yield from [got, n * 2]
        return "done"

    steps = instrumented(generate)(3)
    assert [next(steps), steps.send("sent"), next(steps)] == [3, "sent", 6]
    with pytest.raises(StopIteration, match="done"):
        next(steps)


def test_evaluation_order_is_kept():
    log = []

    def note(value):
        log.append(value)
        return value

    def ordered():
        table = {}
        table[note("key")] = note("value")
        table[0] = note(1) < note(2) < note(0) < note(3)
        return (note("a") and note("") and note("b")) or note("c")

    ordered()
    expected, log[:] = list(log), []
    instrumented(ordered)()
    assert log == expected


def test_each_operand_of_a_short_circuit_is_tested_once():
    class Once:
        def __init__(self):
            self.tests = 0

        def __bool__(self):
            self.tests += 1
            return True

    def either(value):
        return value or 1, value and 2

    value = Once()
    assert instrumented(either)(value) == (value, 2)
    assert value.tests == 2


def test_lines_of_tracebacks_are_the_original_lines():
    def fails(a):
        b = a + 1
        return b / 0

    with pytest.raises(ZeroDivisionError) as eager:
        fails(1)
    with pytest.raises(ZeroDivisionError) as made:
        instrumented(fails)(1)
    ours = [f for f in traceback.extract_tb(made.tb) if f.name == "fails"]
    theirs = [f for f in traceback.extract_tb(eager.tb) if f.name == "fails"]
    assert [f.lineno for f in ours] == [f.lineno for f in theirs]


def test_lambdas_on_one_line_are_told_apart():
    first, second, third = (lambda v: v + 1), (lambda v: v + 2), lambda v: (lambda w: w + v)(3)
    assert [instrumented(f)(10) for f in (first, second, third)] == [11, 12, 13]


def test_nested_functions_are_the_original_code_objects():
    def outer():
        def inner(a):
            return a

        return inner

    made = instrumented(outer)()
    assert made.__code__ is outer().__code__
    assert not is_instrumented(made.__code__)


def test_names_and_signature_are_kept():
    made = instrumented(everything)
    assert inspect.signature(made) == inspect.signature(everything)
    assert made.__code__.co_qualname == everything.__code__.co_qualname
    assert made.__code__.co_firstlineno == everything.__code__.co_firstlineno


def test_decorated_functions_are_found_by_their_first_decorator():
    def shout(function):
        @functools.wraps(function)
        def wrapper(*args):
            return str(function(*args)).upper()

        return wrapper

    @shout
    def name():
        return "ada"

    assert instrumented(name)() == "ADA"
    assert instrumented(name.__wrapped__)() == "ada"


def run_text(text, name="<changing text>"):
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace = {"__name__": "changing"}
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    return namespace


def test_text_that_no_longer_matches_is_refused():
    function = run_text("def f(a):\n    return a + 1\n", "<edited>")["f"]
    locate(function.__code__)
    text = "def f(a):\n    return a + 2\n"
    linecache.cache["<edited>"] = (len(text), None, text.splitlines(True), "<edited>")
    with pytest.raises(NotConvertible) as refused:
        locate(function.__code__)
    assert refused.value.code == "source_changed"


def test_text_that_was_reloaded_is_read_again():
    old = run_text("def f(a):\n    return a + 1\n", "<reloaded>")["f"]
    assert instrumented(old)(1) == 2
    new = run_text("def f(a):\n    return a + 5\n", "<reloaded>")["f"]
    assert instrumented(new)(1) == 6


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("async def f():\n    await g()\n", "unsupported_syntax"),
        ("def f():\n    return locals()\n", "frame_access"),
        ("def f():\n    return [vars() for _ in [1]]\n", "frame_access"),
        ("def f(a):\n    return dir(a)\n", "frame_access"),
        ("def f():\n    import sys\n    return sys._getframe()\n", "frame_access"),
        ("import builtins\ndef f():\n    return builtins.locals()\n", "frame_access"),
        ("def f(a):\n    [0 for a.x in [1]]\n", "unsupported_syntax"),
        ("def f():\n    from . import g\n", "unsupported_syntax"),
        ("def f():\n    global n\n    (n := 1)\n", "unsupported_syntax"),
        ("def f():\n    global n\n    del n\n", "unsupported_syntax"),
    ],
)
def test_what_cannot_be_instrumented_is_refused_with_its_reason(text, code):
    try:
        function = run_text(text, f"<{code} {hash(text)}>")["f"]
    except SyntaxError:
        pytest.skip("not valid in this Python")
    with pytest.raises(NotConvertible) as refused:
        convert(function.__code__)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        "def f(a):\n    return a.eval()\n",
        "def f(a, eval):\n    return eval(a)\n",
        "def f(a):\n    return vars(a)\n",
        "def f(a):\n    return a.dir, a.globals, a.vars()\n",
    ],
)
def test_names_that_only_look_like_a_way_to_the_frame_are_instrumented(text):
    function = run_text(text, f"<names {hash(text)}>")["f"]
    assert convert(function.__code__).co_name == "f"


def test_assertions_are_kept_with_their_message():
    function = run_text("def f(a):\n    assert a > 0, 'not ' + str(a)\n    return a\n", "<asserting>")["f"]
    made = instrumented(function)
    assert made(1) == 1
    with pytest.raises(AssertionError, match="not -1"):
        made(-1)


def test_code_without_source_is_refused():
    namespace = {}
    exec("def f(a):\n    return a\n", namespace)
    with pytest.raises(NotConvertible) as refused:
        convert(namespace["f"].__code__)
    assert refused.value.code == "no_source"


def closure_in_method():
    class Inner:
        __kept = 2

        def method(self, factor):
            def scaled(
                x,
            ):
                text = """
text that begins further left
# than the definition
"""
                return x * factor * self.__kept, inspect.isfunction(len), len(text)

            return scaled

    return Inner().method(3)


@pytest.mark.parametrize(
    "function", [everything, Holder.private, Holder.parent, closure_in_method(), functools.lru_cache(everything)]
)
def test_a_definition_is_found_from_its_own_lines(function, monkeypatch):
    code = inspect.unwrap(function).__code__
    whole = locating._in_file(linecache.getlines(code.co_filename), code)
    monkeypatch.setattr(locating, "_parse", lambda filename, text: pytest.fail(f"{filename} was parsed as a whole"))
    found = locate(code)
    assert ast.dump(found.node, include_attributes=True) == ast.dump(whole.node, include_attributes=True)
    assert (found.class_name, found.flags) == (whole.class_name, whole.flags)


def test_a_definition_that_its_own_lines_do_not_explain_is_found_in_the_file():
    namespace = {}
    text = (
        "def enclosing():\n  if True:\n    global other\n    def other(): return 1, inner\n  def inner(): pass\n  return other\n"
    )
    linecache.cache["<a file>"] = (len(text), None, text.splitlines(keepends=True), "<a file>")
    exec(compile(text, "<a file>", "exec", dont_inherit=True), namespace)
    assert locate(namespace["enclosing"]().__code__).node.name == "other"


def test_trees_are_the_callers_to_change():
    assert locate(everything.__code__).node is not locate(everything.__code__).node
    function = lambda: 1
    assert locate(function.__code__).node is not locate(function.__code__).node


def made_function(text, name="<made>"):
    """A function of a text of its own, which inspect finds."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = {}
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    return namespace["f"]


def test_what_is_known_of_code_goes_with_the_code():
    good = made_function("def f(x):\n    def g(y): return [y + x for _ in range(2)]\n    return g(1)\n", "<good>")
    bad = made_function("def f(x):\n    return locals()\n", "<bad>")
    codes = [weakref.ref(good.__code__), weakref.ref(convert(good.__code__)), weakref.ref(bad.__code__)]
    codes += [weakref.ref(inner) for inner in good.__code__.co_consts if hasattr(inner, "co_code")]
    with pytest.raises(NotConvertible):
        convert(bad.__code__)
    known = len(converting._converted), len(converting._instrumented)
    del good, bad
    gc.collect()
    assert [code() for code in codes] == [None] * len(codes)
    now = len(converting._converted), len(converting._instrumented)
    assert all(a > b for a, b in zip(known, now, strict=True)), (known, now)


def test_files_are_forgotten_when_there_are_many():
    for k in range(3 * locating._CACHED):
        made = made_function(f"import math\nf = lambda x: x + {k}\n", f"<cell {k}>")
        convert(made.__code__)
        inner = made_function(f"import math\n\n\ndef f(x):\n    return x + {k}\n", f"<definition {k}>")
        convert(inner.__code__)
    assert len(locating._files) == len(locating._imports) == locating._CACHED


class Asked:
    """Tells how often its truth is asked."""

    def __init__(self, answer):
        self.answer, self.times = answer, 0

    def __bool__(self):
        self.times += 1
        if self.answer is None:
            raise ValueError("neither")
        return self.answer


def choices(a, b):
    negated = not a
    chosen = (
        1.5 if a else -2,
        1 if not b else 2,
        3 if a and b else 4,
        5 if (a if b else negated) else 6,
        7 if not (a and b) else 8,
    )
    return negated, not b, chosen, not negated


def test_truth_is_asked_as_often_as_python_asks_it_where_numbers_are_chosen():
    for first in (True, False):
        for second in (True, False):
            mine, others = (Asked(first), Asked(second)), (Asked(first), Asked(second))
            assert instrumented(choices)(*mine) == choices(*others)
            assert [x.times for x in mine] == [x.times for x in others]
    with pytest.raises(ValueError, match="neither"):
        instrumented(choices)(Asked(None), Asked(True))


def test_what_the_compiler_says_of_the_text_is_said_once(tmp_path):
    path = tmp_path / "warned.py"
    path.write_text(
        'def twice(x):\n    """Of \\w and \\d."""\n    return (x is 1, "\\d", (lambda: "\\q")())\nonce = lambda x: (x, "\\z", x is "z")\n'
    )
    for action in ("always", "error"):
        names: dict = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
        locating._files.clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter(action)
            filters = list(warnings.filters)
            assert instrumented(names["twice"])(2) == (False, "\\d", "\\q")
            assert instrumented(names["once"])(2) == (2, "\\z", False)
            assert warnings.filters == filters
        assert not said


def test_filters_that_another_thread_has_replaced_are_left_alone(monkeypatch):
    with warnings.catch_warnings():
        text = "1 is 1"
        monkeypatch.setattr(compiling, "compile", lambda *_, **__: warnings.resetwarnings(), raising=False)
        compiling.compile_again(text, "some.py", "exec", 0)
        assert warnings.filters == []


def test_sets_have_the_order_that_they_have_in_code_from_a_file_of_bytecode(tmp_path):
    """Reading it puts elements that collide in another order than compiling does."""
    path = tmp_path / "sets.py"
    text = "def fn(x):\n    made = {8, 16, 24, 1}\n    return x * len(made), list(made)\n"
    path.write_text(text)
    compiled_now = compile(text, str(path), "exec", dont_inherit=True)
    for code in (compiled_now, marshal.loads(marshal.dumps(compiled_now))):
        scope = {}
        exec(code, scope)
        function = T.compile(scope["fn"])
        for _ in range(3):
            assert function(T.ones(2))[1] == scope["fn"](T.ones(2))[1]
        assert function.stats.compiled_calls == 2, function.explain()
