"""The registry of capture_programs.py, for the modules that fill it."""

from __future__ import annotations

import tracejit as T

PROGRAMS = {}


def program(reason=None):
    def register(maker):
        assert maker.__name__ not in PROGRAMS
        PROGRAMS[maker.__name__] = (maker, reason)
        return maker

    return register


def x(*values):
    return T.tensor([float(v) for v in values])


class Box:
    """Something that gets any attributes."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


LOG = []
"""What programs note of the order of their effects."""


def fresh(f):
    """A call that empties the log."""
    LOG.clear()


def over(fn, *values):
    """A program of calls with a tensor and each of the values, or each tuple of values."""
    return fn, [lambda f, v=v: f(x(1, 2), *(v if isinstance(v, tuple) else (v,))) for v in values], None


def with_change(*changes):
    """Calls of f(x(1, 2)) before, between and after the changes."""

    def changed(change):
        def call(f):
            change()
            return f(x(1, 2))

        return call

    return [lambda f: f(x(1, 2)), *map(changed, changes), lambda f: f(x(3, 4))]
