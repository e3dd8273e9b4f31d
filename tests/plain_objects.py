"""Named tuples and objects of several kinds, to be looked into."""

from __future__ import annotations

from typing import Any, NamedTuple


class Pair(NamedTuple):
    a: Any
    b: Any = 1


class Kept(Pair):
    """Instances have a dictionary."""


class Bare:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted(Bare):
    __slots__ = ("more",)


class Ending(Bare):
    def __del__(self) -> None: ...
