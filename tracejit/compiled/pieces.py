"""A function that runs in pieces: it is Python again, but the bodies of its loops are compiled functions (capture/syntax/pieces.py).

Where paths are recorded again and again because steps of a loop go different ways, 2**n of them in n steps, a path for each of the ways
that one step may go is enough.  What is around such a loop runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from tracejit.capture.syntax.locate import NotConvertible
from tracejit.capture.syntax.pieces import cut
from tracejit.report.partings import Parting

__all__ = ["Pieces", "in_pieces"]


class Pieces:
    """function: does what the one that was cut does; parts: the functions that it has compiled; why: what kept its calls apart."""

    __slots__ = ("_code", "_defaults", "_module", "_whole", "function", "parts", "why")

    def __init__(self, whole: FunctionType, module: Any, function: Callable[..., Any], parts: list[Any], why: str) -> None:
        """whole: what was cut; module: of which it is the `forward`, if it is one's."""
        self.function = function
        self.parts = parts
        self.why = why
        self._module, self._whole = module, whole
        self._code, self._defaults = whole.__code__, (whole.__defaults__, whole.__kwdefaults__)

    def are_current(self) -> bool:
        """Whether the function that was cut is still what it was."""
        whole, (positional, named) = self._whole, self._defaults
        if self._module is not None and getattr(self._module.forward, "__func__", None) is not whole:
            return False
        return whole.__code__ is self._code and whole.__defaults__ is positional and whole.__kwdefaults__ is named


def in_pieces(function: Any, parting: Parting, compiled: Callable[[FunctionType], Any]) -> Pieces | None:
    """A function in pieces; None for one that has no loop that can be cut.  parting: the branch at which its calls differ; compiled: how
    to compile a piece."""
    module = calling = None
    if not isinstance(function, FunctionType | MethodType):
        calling = _calling(type(function))
        if calling is None:
            return None
        module, function = function, function.forward
    owners = []
    while type(function) is MethodType:
        owners.append(function.__self__)
        function = function.__func__
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    file, _, line = parting.where.rpartition(":")
    try:
        found = cut(code, function.__globals__.get("__file__"), int(line) if file == code.co_filename else None)
    except NotConvertible:
        return None
    if found is None:
        return None
    whole, pieces = found
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    parts = []
    for piece in pieces:
        part = compiled(_made(function, piece.code, cells, f"{function.__qualname__}, a step of line {piece.line}"))
        cells[piece.name] = CellType(part)
        parts.append(part)
    made: Any = _made(function, whole, cells, function.__qualname__)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    for owner in reversed(owners):
        made = MethodType(made, owner)
    if calling is not None:
        forward = made

        def made(*args: Any, **kwargs: Any) -> Any:
            return calling(module, forward, args, kwargs)

    return Pieces(function, module, made, parts, f"{parting.name}{parting.place()} changes ({parting.some()})")


def _calling(cls: Any) -> Any:
    """How instances of a class of modules are called with what stands for their `forward`; None where calls of them do more."""
    calling = getattr(cls, "_call_with", None)
    as_usual = getattr(cls.__call__, "__globals__", None) is getattr(calling, "__globals__", cls)
    return calling if as_usual else None


def _made(function: FunctionType, code: CodeType, cells: dict[str, CellType], name: str) -> FunctionType:
    made = FunctionType(code, function.__globals__, function.__name__, None, tuple([cells[free] for free in code.co_freevars]))
    made.__qualname__, made.__module__ = name, function.__module__
    return made
