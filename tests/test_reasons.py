"""The catalogue of reasons is closed, each reason names the user's line and a remedy, and the run is right in spite of it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import tracejit as T
from tracejit import capture
from tracejit.capture import CATALOGUE, record
from tracejit.capture.reasons import make


def reason_of(function, *args):
    recording, result = record(function, args, {})
    assert recording.reason is not None
    return recording.reason, result


def test_every_reason_has_a_message_and_a_remedy():
    for code, (message, remedy) in CATALOGUE.items():
        assert message and remedy and not remedy.endswith("."), code
        reason = make(code, "detail", "file.py:3")
        assert str(reason).startswith(f"[{code}] ") and "(file.py:3)" in str(reason)


def test_a_code_outside_the_catalogue_is_an_error():
    with pytest.raises(KeyError):
        make("no such code", "")


def test_the_recorder_uses_catalogued_codes_only():
    for path in Path(capture.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "stop" and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    assert code.value in CATALOGUE, f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "NotConvertible":
                assert not isinstance(node.args[0], ast.Constant) or node.args[0].value in CATALOGUE, f"{path}:{node.lineno}"


def test_a_reason_names_the_users_line():
    def fn(a):
        b = a * 2
        sys.getsizeof(print)
        return b

    reason, result = reason_of(fn, T.ones(1))
    assert reason.code == "unknown_call" and "getsizeof" in reason.message
    assert reason.where == f"{__file__}:{fn.__code__.co_firstlineno + 2}"
    assert result.tolist() == [2.0]


def test_a_reason_names_the_class_whose_method_was_called():
    class Leaf:
        pass

    def fn(a):
        return a * (len(Leaf.__subclasses__()) + 2)

    reason, result = reason_of(fn, T.ones(1))
    assert reason.code == "unknown_call" and f"{Leaf.__qualname__}.__subclasses__()" in reason.message
    assert result.tolist() == [2.0]


def decorated(function):
    return function


def test_a_reason_names_the_line_of_a_decorated_function():
    @decorated
    @decorated
    def two(a):
        sys.getsizeof(print)
        return a

    @T.compile(
        dynamic=True,
    )
    def long(a):
        return a, sys.getsizeof(print)

    for function, lines in ((two, 3), (long.__wrapped__, 4)):
        reason, _ = reason_of(function, T.ones(1))
        assert reason.where == f"{__file__}:{function.__code__.co_firstlineno + lines}"


def test_the_run_goes_on_correctly_after_a_reason():
    class Box:
        n = 1

    box = Box()

    def fn(a, s):
        k = s * 2
        sys.getsizeof(print)
        box.n += k
        pair = [k, *(k for _ in range(2))]
        text = f"{k:.1f}"
        return a * k + len(pair), text, k if k > 1 else s, [v + s for v in pair]

    _, result = reason_of(fn, T.ones(1), 1.5)
    expected = fn(T.ones(1), 1.5)
    assert result[0].tolist() == expected[0].tolist() and result[1:] == expected[1:]
    assert type(result[2]) is float and type(box.n) is float


class Ending:
    value = 2.0

    def __del__(self):
        self.value = 0.0


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda a: a * Ending().value, "construction"),
        (lambda a: a * len(open(__file__).read(1)), "impure_call"),  # noqa: SIM115
        (lambda a: a * a.numpy(), "tensor_contents"),
        (lambda a: len(repr(a)) * a, "tensor_contents"),
        (lambda a: a * (hash("x") == hash(iter([1]))), "object_identity"),
        (lambda a: (a, lambda: 1), "unbuildable"),
        (lambda a: (a, iter([1])), "unbuildable"),
        (lambda a: (a * 2, str(object())), "object_text"),
        (lambda a: (a * 2, f"{[a, len]}"), "object_text"),
        (lambda a: (a * 2, "%s" % (lambda: 1)), "object_text"),
        (lambda a: (a * 2, "{}".format({"k": object()})), "object_text"),
        (lambda a: a * len(dir(a)), "frame_access"),
        (lambda a: a * (a.data_ptr() > 0), "tensor_state"),
        (lambda a: a * (1.0 in NUMBERS), "container"),
    ],
)
def test_reasons_for_what_cannot_be_followed(function, code):
    reason, result = reason_of(function, T.ones(1))
    assert reason.code == code, str(reason)
    first = result[0] if isinstance(result, tuple) else result
    assert first is not None


NUMBERS = T.ones(1).numpy()


def test_sourceless_code_is_a_reason_and_runs():
    namespace = {}
    exec("def f(a):\n    return a * 3\n", namespace)
    reason, result = reason_of(namespace["f"], T.ones(1))
    assert reason.code == "no_source" and result.tolist() == [3.0]


def test_an_active_profiler_is_no_reason_and_is_left_alone():
    def profiler(frame, event, argument):
        return None

    sys.setprofile(profiler)
    try:
        recording, result = record(lambda a: a + 1, (T.ones(1),), {})
        active = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert recording.reason is None and result.tolist() == [2.0] and active is profiler


def test_python_code_behind_c_code_is_noticed():
    class Sneaky:
        def __hash__(self):
            return 1

    sneaky = Sneaky()

    def fn(a):
        return a * {sneaky: 2.0}[sneaky]

    reason, result = reason_of(fn, T.ones(1))
    assert reason.code == "implicit_python" and "__hash__" in reason.message
    assert result.tolist() == [2.0]


def test_a_view_from_outside_that_is_written_to_with_gradients_is_refused():
    w = T.ones(2).requires_grad_()

    def fn(a):
        a.mul_(w)
        return a.sum()

    reason, _ = reason_of(fn, T.ones(4)[1:3])
    assert reason.code == "differentiable_write" and "whose base changes with it" in reason.message


def test_a_write_to_distinct_elements_of_an_expanded_tensor_has_a_reason_of_its_own():
    def fn(x, value):
        expanded = x.expand(3, 3)
        expanded.diagonal().add_(value)
        return expanded * 1

    x = T.arange(3.0).reshape(3, 1)
    reason, result = reason_of(fn, x, T.ones(3))
    assert reason.code == "overlapping_write" and "expand()" in reason.message and f"{__file__}:" in reason.message
    assert result.tolist() == [[1.0] * 3, [2.0] * 3, [3.0] * 3] and x.tolist() == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("detached", [True, False])
def test_a_saved_sibling_of_a_written_view_is_an_error_as_in_eager_mode(inside, detached):
    def fn(a, b, w):
        out = (b * w).sum()
        with T.no_grad():
            a.mul_(2)
        if inside:
            out.backward()
        return out

    def outcome(function, shared):
        base, w = T.ones(2, 3), T.ones(3, requires_grad=True)
        a, b = (base[0], base[1]) if shared else (T.ones(3), T.ones(3))
        if detached:
            a, b = a.detach(), b.detach()
        try:
            out = function(a, b, w)
            if not inside:
                out.backward()
        except RuntimeError as error:
            return "inplace" in str(error)
        return w.grad.tolist()

    call = T.compile(fn)
    for shared in (False, False, True, True, False):
        assert outcome(call, shared) == outcome(fn, shared) == (True if shared else [1.0] * 3)
    assert call.stats.compiled_calls == 2
    assert inside or [reason.code for reason in call.reasons] == ["shared_storage"]


def test_siblings_may_be_written_where_no_backward_pass_follows():
    def fn(a, b, w):
        (b * w).sum().backward()
        with T.no_grad():
            a.mul_(2)
        return b * 2

    call = T.compile(fn)
    for _ in range(3):
        base, w = T.ones(2, 3), T.ones(3, requires_grad=True)
        assert call(base[0], base[1], w).tolist() == [2.0] * 3 and w.grad.tolist() == [1.0] * 3
        assert base.tolist() == [[2.0] * 3, [1.0] * 3]
    assert call.stats.compiled_calls == 2


def test_an_input_whose_elements_share_memory_is_not_written_by_a_program():
    def fn(y):
        with T.no_grad():
            y.diagonal().copy_(T.tensor([1.0, 2.0, 3.0]))
        return y * 1

    results = []
    for function in (fn, T.compile(fn)):
        for _ in range(2):
            base = T.zeros(1, 3)
            results.append((function(base.expand(3, 3)).tolist(), base.tolist()))
    assert results == [([[1.0, 2.0, 3.0]] * 3, [[1.0, 2.0, 3.0]])] * 4
    assert reason_of(fn, T.zeros(1, 3).expand(3, 3))[0].code == "overlapping_write"


def test_code_that_the_library_or_a_package_runs_is_told_by_what_the_program_has_called():
    package, library = {"__name__": "somepackage.inner"}, {"__name__": "tracejit.functional.fake"}
    exec(compile("def inner(x):\n    return x", "/site/somepackage/inner.py", "exec"), package)
    own = Path(T.__file__).parent / "functional" / "fake.py"
    exec(compile("def smoothed(x):\n    return inner(x) * 2", own, "exec"), library)
    library["inner"], smoothed = package["inner"], library["smoothed"]
    reason, _ = reason_of(lambda x: smoothed(x) + 1, T.ones(2))
    assert reason.code == "implicit_python" and "smoothed() calls somepackage.inner.inner(), which cannot" in str(reason)
    assert "/site" not in str(reason) and Path(__file__).name in str(reason)
