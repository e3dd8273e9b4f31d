"""Class statements in compiled functions: what is recorded of them.  programs_made_classes.py has what they come to."""

from __future__ import annotations

import enum
import gc
import typing

import pytest

import tracejit as T

CALLS = 6


def leaf(k):
    return T.tensor([1.0 + k, -2.0, 0.5]).requires_grad_()


def compared(function, calls=CALLS):
    """The compiled function after some calls, each with other tensors and numbers, and equal to the eager one's."""
    compiled = T.compile(function)
    for k in range(calls):
        a, b = leaf(k), leaf(k)
        found, expected = compiled(a, 1.5 + k), function(b, 1.5 + k)
        assert T.allclose(found, expected) and (a.grad is None) is (b.grad is None)
        assert a.grad is None or T.allclose(a.grad, b.grad)
    return compiled


def scaled_by(n):
    class Scaled(T.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v.sin() * n

        @staticmethod
        def backward(ctx, g):
            (v,) = ctx.saved_tensors
            return g * v.cos() * n

    return Scaled


def test_a_class_that_closes_over_other_numbers_in_each_call_is_recorded_once():
    def step(a, n):
        class Held:
            factor = n * 2

            def __init__(self, k):
                self.k = k

            def value(self):
                return a * self.k * n + self.factor

        y = scaled_by(n).apply(Held(n + 1).value()).sum()
        y.backward()
        return y.detach()

    compiled = compared(step)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == CALLS - 1, compiled.explain()


def test_a_class_in_each_step_of_a_loop_has_the_numbers_of_its_step():
    def step(a, n):
        for i in range(12):
            a = scaled_by(n * i * 0.01 + 0.5).apply(a)
        y = a.sum()
        y.backward()
        return y.detach()

    compiled = compared(step)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == CALLS - 1, compiled.explain()


def test_a_class_that_asks_for_a_number_is_guarded_by_it():
    def step(a, n):
        class Held:
            factor = 2.0 if n < 3 else -1.0

        return a * Held.factor

    compiled = compared(step)
    assert compiled.stats.traces == 2 and compiled.stats.compiled_calls == CALLS - 2, compiled.explain()


def test_nothing_keeps_a_class_once_its_call_is_recorded():
    def step(a, n):
        class KeptByNobody:
            inner = a

            def value(self):
                return a * n

        return KeptByNobody().value() + KeptByNobody.inner

    compiled = compared(step)
    assert compiled.stats.compiled_calls == CALLS - 1
    gc.collect()
    assert not [found for found in gc.get_objects() if type(found) is type and found.__name__ == "KeptByNobody"]


def test_a_base_that_changes_between_calls_is_noticed():
    class Base:
        factor = 2.0

    def step(a, n):
        class Held(Base):
            def value(self):
                return a * self.factor * n

        return Held().value()

    compiled = compared(step)
    assert compiled.stats.traces == 1
    Base.factor = -3.0
    a = leaf(1)
    assert T.equal(compiled(a, 2.0), a * -6.0)

    class Other(Base):
        factor = 7.0

    Base = Other
    assert T.equal(compiled(a, 2.0), a * 14.0)


def test_a_class_that_outlives_the_call_is_refused_by_its_name():
    kept = []

    def step(a, n):
        class Outliving:
            factor = n

        kept.append(Outliving)
        return a * n

    compiled = compared(step, 3)
    assert compiled.stats.compiled_calls == 0
    (reason,) = compiled.reasons
    assert reason.code == "unbuildable" and "class Outliving" in str(reason)
    assert len(set(kept)) == len(kept) == 6


@pytest.mark.parametrize(
    "outlives", [lambda cls: cls.value, lambda cls: cls.mro, lambda cls: vars(cls)["held"], lambda cls: [cls()]]
)
def test_what_leads_to_a_class_of_the_call_does_not_outlive_it(outlives):
    def step(a, n):
        class Held:
            def value(self):
                return a * n

            held = property(value)

        return outlives(Held)

    compiled = T.compile(step)
    first, second = compiled(leaf(1), 2.0), compiled(leaf(2), 3.0)
    assert first is not second and compiled.stats.compiled_calls == 0 and compiled.reasons, compiled.explain()


def test_a_class_is_what_its_statement_says():
    def step(a, n):
        class Held:
            """A document."""

            __hidden = n
            size: int = 3

            def value(self, k=n):
                return self.__hidden * k

        found.append((Held.__doc__, Held.__qualname__, Held.__module__, dict(Held.__annotations__), Held.value.__qualname__))
        return a * Held().value()

    found: list = []
    compared(step, 1)
    ours, eager = found
    assert ours == eager and ours[:3] == (
        "A document.",
        "test_a_class_is_what_its_statement_says.<locals>.step.<locals>.Held",
        __name__,
    )


def test_an_error_in_the_body_of_a_class_is_raised_at_its_line():
    def step(a, n):
        class Held:
            factor = n / 0

        return a * Held.factor

    with pytest.raises(ZeroDivisionError) as caught:
        T.compile(step)(leaf(1), 2.0)
    names = [entry.name for entry in caught.traceback]
    assert names[-2:] == ["step", "Held"], names


def declared(kind):
    class Told:
        def __set_name__(self, owner, name):
            self.name = name

    class Base:
        def __init_subclass__(cls):
            cls.told = True

    def step(a, n):
        if kind == "enumeration":

            class Held(enum.Enum):
                factor = 2

        elif kind == "named tuple":

            class Held(typing.NamedTuple):
                factor: int = 2

        elif kind == "base":

            class Held(Base):
                factor = n

        elif kind == "attribute":

            class Held:
                factor = Told()

        else:

            class Held:
                for _ in range(2):
                    pass

        return a * n

    return step


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("enumeration", "Held, whose metaclass is EnumType, cannot"),
        ("named tuple", "Held, whose base is a function, cannot"),
        ("base", "Held, whose base Base has an __init_subclass__, cannot"),
        ("attribute", "Held, in which a Told has a __set_name__, cannot"),
        ("loop", "Held, with a statement in its body (For), cannot"),
    ],
)
def test_a_statement_that_cannot_be_followed_says_why(kind, why):
    compiled = compared(declared(kind), 2)
    (reason,) = compiled.reasons
    assert reason.code == "class_statement" and f"the class statement of {why} be followed" in str(reason), str(reason)
