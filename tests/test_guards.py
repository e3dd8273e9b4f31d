"""What was read from outside is guarded: nothing that changed is missed, nothing that did not matter is asked."""

from __future__ import annotations

import math

import capture_replay
import pytest
from capture_replay import Replayed, caller

import tracejit as T
from tracejit.capture import Exit, calling, record


def entry_of(function, *args, **kwargs):
    recording, _ = record(function, args, kwargs)
    assert recording.reason is None, recording.reason
    return recording.build_entry(calling(recording, caller(recording)))


def hits(entry, *args, **kwargs):
    """Neither a guard nor the program's own check of its arrays failed."""
    return not isinstance(entry(args, kwargs), Exit | capture_replay.Exit)


ones = T.ones


@pytest.mark.parametrize(
    ("changed", "hit"),
    [
        (lambda: ones(3), True),
        (lambda: T.zeros(3), True),
        (lambda: ones(4), False),
        (lambda: ones(1, 3), False),
        (lambda: ones(3, dtype=T.float64), False),
        (lambda: ones(3).requires_grad_(), False),
        (lambda: ones(4)[1:], False),
        (lambda: 3.0, False),
    ],
)
def test_arguments_are_guarded_by_their_metadata(changed, hit):
    def fn(a):
        return a * 2

    assert hits(entry_of(fn, ones(3)), changed()) is hit


def test_number_and_names_of_arguments_are_guarded():
    def fn(a, b=1.0, **rest):
        return a * b

    entry = entry_of(fn, ones(2), b=2.0)
    assert hits(entry, ones(2), b=3.0)
    assert not hits(entry, ones(2))
    assert not hits(entry, ones(2), 2.0)
    assert not hits(entry, ones(2), b=2.0, c=1)
    assert not hits(entry, ones(2), c=2.0)


def test_modes_are_guarded():
    def fn(a):
        return a + 1

    entry = entry_of(fn, ones(2))
    with T.no_grad():
        assert not hits(entry, ones(2))
    T.set_default_dtype(T.float64)
    try:
        assert not hits(entry, ones(2, dtype=T.float32))
    finally:
        T.set_default_dtype(T.float32)
    assert hits(entry, ones(2))


def test_numbers_that_only_feed_arithmetic_are_not_compared():
    def fn(a, n, s):
        return a * (n + s) ** 2 - math.floor(s)

    entry = entry_of(fn, ones(2), 3, 0.5)
    assert entry((ones(2), 4, 2.5), {}).tolist() == fn(ones(2), 4, 2.5).tolist()
    assert not hits(entry, ones(2), 3.0, 0.5)
    assert not hits(entry, ones(2), True, 0.5)


def test_a_comparison_guards_its_outcome_only():
    def fn(a, s):
        return a * s if s > 2 else a

    entry = entry_of(fn, ones(2), 3.0)
    assert hits(entry, ones(2), 5.0)
    assert not hits(entry, ones(2), 1.0)


@pytest.mark.parametrize(
    ("recorded", "other"), [(0.0, -0.0), (-0.0, 0.0), (1.5, math.nan), (math.inf, -math.inf), (1, 1.0), (1, True)]
)
def test_values_that_steer_python_are_guarded_by_type_and_bits(recorded, other):
    def fn(a, table):
        return a * len(str(table[0]))

    table = [recorded]
    entry = entry_of(fn, ones(2), table)
    assert hits(entry, ones(2), [recorded])
    assert not hits(entry, ones(2), [other])


def test_nan_is_a_value_like_any_other():
    def fn(a, s):
        return a * s

    entry = entry_of(fn, ones(1), math.nan)
    assert hits(entry, ones(1), math.nan)
    assert not hits(entry, ones(1), 1.0)


def test_fresh_equal_containers_and_objects_do():
    class Config:
        def __init__(self):
            self.k = 2
            self.names = ["a", {"b": (1, None)}]

    def fn(a, config):
        return a * config.k * len(config.names[1]["b"])

    entry = entry_of(fn, ones(2), Config())
    assert hits(entry, ones(2), Config())
    other = Config()
    other.names[1]["b"] = (1,)
    assert not hits(entry, ones(2), other)


def test_unread_parts_are_not_asked():
    def fn(a, d):
        return a * d["k"]

    entry = entry_of(fn, ones(2), {"k": 1.0, "other": 5})
    assert hits(entry, ones(2), {"k": 2.0})
    assert not hits(entry, ones(2), {"other": 5})


def test_absence_is_guarded():
    class Box:
        pass

    box = Box()

    def fn(a, d):
        return a * d.get("k", 2.0) * getattr(box, "scale", 3.0)

    entry = entry_of(fn, ones(1), {})
    assert hits(entry, ones(1), {})
    assert not hits(entry, ones(1), {"k": 2.0})
    Box.scale = 3.0
    assert not hits(entry, ones(1), {})


def test_sharing_of_objects_is_guarded():
    def fn(a, b, p, q):
        p.append(1)
        return a + b, len(q)

    two = [1]
    entry = entry_of(lambda a, b, p, q: (a + b, p is q), ones(1), ones(1), [1], [1])
    assert hits(entry, ones(1), ones(1), [1], [1])
    assert not hits(entry, ones(1), ones(1), two, two)
    a = ones(1)
    assert not hits(entry, a, a, [1], [1])
    same = entry_of(lambda a, b: a + b, a, a)
    assert not hits(same, ones(1), ones(1))
    assert hits(same, a, a)


def test_only_metadata_was_read_of_a_tensor_that_is_no_input():
    def fn(a, like):
        return a * like.shape[0]

    recording, _ = record(fn, (ones(1), ones(3)), {})
    assert len(recording.tensor_inputs) == 1
    entry = recording.build_entry(calling(recording, caller(recording)))
    assert hits(entry, ones(1), T.zeros(3))
    assert not hits(entry, ones(1), ones(4))


def test_a_tensor_that_is_only_passed_on_is_guarded_by_type_alone():
    def fn(a, other):
        return a * 2, other

    entry = entry_of(fn, ones(1), ones(3))
    assert hits(entry, ones(1), ones(9, dtype=T.float64))


def test_functions_are_guarded_by_code_defaults_and_cells():
    k = 2.0

    def helper(a, s=1.0):
        return a * s * k

    def fn(a):
        return helper(a)

    entry = entry_of(fn, ones(1))
    assert hits(entry, ones(1))
    helper.__defaults__ = (2.0,)
    assert not hits(entry, ones(1))
    helper.__defaults__ = (1.0,)
    assert hits(entry, ones(1))
    helper.__code__ = (lambda a, s=1.0: a + s + k).__code__
    assert not hits(entry, ones(1))


def test_a_fresh_closure_with_the_same_code_does():
    def make(k):
        def scale(v):
            return v * k

        return scale

    def fn(a, g):
        return g(a)

    entry = entry_of(fn, ones(1), make(2.0))
    assert entry((ones(1), make(5.0)), {}).tolist() == [5.0]
    assert not hits(entry, ones(1), lambda v: v)


def test_classes_are_guarded_along_the_method_resolution_order():
    class Base:
        def f(self):
            return 1.0

    class Child(Base):
        pass

    def fn(a, o):
        return a * o.f()

    entry = entry_of(fn, ones(1), Child())
    assert hits(entry, ones(1), Child())
    Child.f = lambda self: 2.0
    assert not hits(entry, ones(1), Child())
    del Child.f
    assert hits(entry, ones(1), Child())
    Child.__bases__ = (type("Other", (Base,), {}),)
    assert not hits(entry, ones(1), Child())


def test_leaf_and_hooks_matter_to_a_recorded_backward():
    w = ones(2).requires_grad_()

    def fn(a):
        (w * a).sum().backward()
        g, w.grad = w.grad, None
        return g

    entry = entry_of(fn, ones(2))
    assert hits(entry, ones(2))
    w.register_hook(lambda g: g * 2)
    assert not hits(entry, ones(2))


def test_an_exception_in_a_path_is_a_miss():
    def fn(a, d):
        return a * d["x"]["y"]

    entry = entry_of(fn, ones(1), {"x": {"y": 1.0}})
    assert not hits(entry, ones(1), {"x": {}})
    assert not hits(entry, ones(1), {})


def test_a_failed_exit_is_passed_through():
    def fn(a):
        return a * 2 if a.sum() > 0 else a

    recording, _ = record(fn, (ones(1),), {})
    token = object()
    assert recording.build_entry(calling(recording, lambda tensors, scalars: token))((ones(1),), {}) is token


def test_many_steps_of_adam_are_one_recording():
    p = ones(3).requires_grad_()
    state = {"step": 0, "m": T.zeros(3), "v": T.zeros(3)}
    group = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8}

    def step(x):
        loss = ((p * x) ** 2).sum()
        loss.backward()
        with T.no_grad():
            b1, b2 = group["betas"]
            state["step"] += 1
            t = state["step"]
            state["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
            state["v"].mul_(b2).add_(p.grad * p.grad, alpha=1 - b2)
            size = group["lr"] * math.sqrt(1 - b2**t) / (1 - b1**t)
            p.sub_(state["m"] / (state["v"].sqrt() + group["eps"]) * size)
        p.grad = None
        return loss

    compiled = Replayed(step)
    for i in range(20):
        group["lr"] = 0.1 / (i + 1)
        compiled(ones(3))
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 19
    assert state["step"] == 20


def agrees(function, *calls):
    """Eager and compiled agree, twice for each call, on (dtype, contents) or the error."""
    compiled = T.compile(function)

    def outcome(f, arguments):
        try:
            result = f(*arguments)
        except Exception as error:
            return type(error), str(error)
        return result.dtype, result.tolist()

    for arguments in calls:
        expected = outcome(function, arguments)
        assert [outcome(compiled, arguments) for _ in range(2)] == [expected] * 2, arguments
    assert compiled.stats.compiled_calls


def test_bounds_of_a_slice_from_outside_are_guarded():
    x = T.arange(6)
    agrees(lambda a, key: a[key], (x, slice(1, 3)), (x, slice(2, None)), (x, slice(None, None, 2)), (x, slice(1, 3)))


MISSING = "a_name_that_no_module_defines"


def test_a_name_that_is_missing_is_guarded():
    def function(x):
        try:
            return x * a_name_that_no_module_defines
        except NameError as error:
            return x - len(str(error))

    compiled = T.compile(function)
    x = T.ones(2)
    try:
        for _ in range(2):
            assert compiled(x).tolist() == function(x).tolist()
        globals()[MISSING] = 5.0
        for _ in range(2):
            assert compiled(x).tolist() == [5.0, 5.0]
    finally:
        globals().pop(MISSING, None)
    assert compiled(x).tolist() == function(x).tolist() and compiled.stats.compiled_calls == 3


@pytest.mark.parametrize("dtype", [T.uint8, T.int8, T.int32, T.int64], ids=str)
@pytest.mark.parametrize(
    "function",
    [lambda x, k: x * k, lambda x, k: x < k, lambda x, k: x == k, lambda x, k: x.clamp(max=k), lambda x, k: T.full_like(x, k)],
    ids=["mul", "lt", "eq", "clamp", "full"],
)
def test_integers_that_a_dtype_cannot_hold_give_what_eager_gives(function, dtype):
    x = T.tensor([1, 0, 3], dtype=dtype)
    agrees(function, *((x, k) for k in (2, 3, -1, 200, 2**31, -(2**40), 2**62, 2**64)))


def test_large_integers_are_rounded_to_float32_as_in_eager():
    twice = 2**54 + 2**30 + 1  # rounded by way of float64 it ends below
    agrees(lambda x, k: x * k, (T.ones(2), 2), (T.ones(2), twice), (T.ones(2), -twice))


def test_a_negative_exponent_of_integers_raises_as_in_eager():
    agrees(T.pow, (T.tensor([1, 2]), 2), (T.tensor([1, 2]), -1), (T.tensor([1, 2]), 3))


def test_a_view_of_a_dictionary_is_not_taken_for_a_constant():
    table = {"a": 1}
    keys = table.keys()
    function = T.compile(lambda x: x * len(keys) + (1 if "b" in keys else 0))
    assert [function(T.ones(1)).item() for _ in range(2)] == [1.0, 1.0]
    table["b"] = 2
    assert function(T.ones(1)).item() == 3.0


def test_a_set_with_nan_is_no_guard():
    numbers = {math.nan, 1.0}
    function = T.compile(lambda x: x * sum(1 for _ in numbers))
    assert [function(T.ones(1)).item() for _ in range(3)] == [2.0] * 3


def test_an_empty_closure_cell_that_the_program_notices_is_guarded():
    def make():
        if make is None:
            factor = 0.0

        def function(x):
            try:
                return x * factor
            except NameError as error:
                return x - 1, str(error), error.name

        def fill(value):
            nonlocal factor
            factor = value

        def empty():
            nonlocal factor
            del factor

        return function, fill, empty

    def results(wrap):
        function, fill, empty = make()
        function = wrap(function)
        found = []
        for step in (None, None, fill, fill, empty, None, fill):
            if step is not None:
                step(*[3.0][: step is fill])
            result = function(T.ones(1))
            found.append((result[0].tolist(), *result[1:]) if isinstance(result, tuple) else result.tolist())
        return found, function

    expected, _ = results(lambda function: function)
    found, function = results(T.compile)
    assert found == expected and function.stats.traces == 2 and not function.reasons


@pytest.mark.parametrize(
    ("compute", "good", "bad"),
    [
        (lambda n: 1 / (n - 2), 1, 2),
        (lambda n: 5 % n, 2, 0),
        (lambda n: 1 << n, 1, -1),
        (lambda n: 0.0**n, 1.5, -1.5),
        (lambda n: math.sqrt(n), 4.0, -4.0),
        (lambda n: round(1.0, n) if n else math.log(n), 1, 0),
        (lambda n: abs(1.0) / n, 2.0, 0.0),
    ],
)
def test_numbers_that_made_python_raise_are_guarded_where_the_program_catches_the_error(compute, good, bad):
    def function(x, n):
        try:
            compute(n)
        except (ArithmeticError, ValueError):
            return x - 1
        return x + 1

    for order in ([bad, good, bad, good], [good, bad, good, bad]):
        call = T.compile(function)
        for n in order:
            assert call(T.ones(1), n).tolist() == function(T.ones(1), n).tolist() == [2.0 if n == good else 0.0]
        assert call.stats.compiled_calls == 2 and not call.reasons


def test_the_class_of_the_instance_that_is_called_may_be_assigned() -> None:
    class Scaled:
        factor = 2.0

        def __call__(self, x):
            return x * self.factor

    class Other(Scaled):
        factor = 5.0

    for chosen in (lambda instance: instance, lambda instance: instance.__call__):
        instance, x = Scaled(), T.ones(2)
        f = T.compile(chosen(instance))
        for cls in (Scaled, Other, Scaled, Other):
            instance.__class__ = cls
            assert [f(x).tolist() for _ in range(3)] == 3 * [[cls.factor] * 2]
        assert f.stats.traces == 2 and f.stats.compiled_calls == 10
