"""What a special method of the program has said, as an object that says the same: Python checks and converts it."""

from __future__ import annotations

from typing import Any

from tracejit.capture.handlers.symbols import concrete

__all__ = ["Said"]


class Said:
    """Something whose special method has been called: Python makes of what it `said` what it makes of any answer, errors included."""

    __slots__ = ("said",)

    def __init__(self, said: Any) -> None:
        self.said = concrete(said)

    def _say(self, *_: Any) -> Any:
        return self.said

    __len__ = __hash__ = __str__ = __repr__ = __format__ = __iter__ = _say

    @staticmethod
    def by(name: str, said: Any) -> Said:
        """What has said it by the method `name`, and has no other."""
        cls: Any = type("Said", (Said,), {"__slots__": (), name: Said._say})
        made: Said = cls(said)
        return made
