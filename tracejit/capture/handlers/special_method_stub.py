"""Stubs whose special methods return a given result, so that Python itself checks and converts it, errors included.

`len(SpecialMethodStub(result))` gives what `len(x)` gives if `x.__len__()` has returned `result`.
"""

from __future__ import annotations

from typing import Any

from tracejit.capture.handlers.symbols import concretise

__all__ = ["SpecialMethodStub"]


class SpecialMethodStub:
    """An object whose special methods return `result`.  A symbolic number becomes a plain one, guarded by its value."""

    __slots__ = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = concretise(result)

    def _return(self, *_: Any) -> Any:
        return self.result

    __len__ = __hash__ = __str__ = __repr__ = __format__ = __iter__ = _return

    @staticmethod
    def of(name: str, result: Any, owner: Any) -> SpecialMethodStub:
        """A stub that also has the method `name`, for conversions: `float` chooses between `__float__` and `__index__`.

        owner: the object whose method has returned `result`.  Messages of Python may name its class."""
        cls: Any = type(type(owner).__name__, (SpecialMethodStub,), {"__slots__": (), name: SpecialMethodStub._return})
        stub: SpecialMethodStub = cls(result)
        return stub
