"""The registry of capture_programs.py, for the modules that fill it."""

from __future__ import annotations

import tracejit as T

PROGRAMS = {}


def program(reason=None):
    def register(maker):
        PROGRAMS[maker.__name__] = (maker, reason)
        return maker

    return register


def x(*values):
    return T.tensor([float(v) for v in values])
