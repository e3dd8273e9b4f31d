"""A function that runs in pieces: it is Python again, but the bodies of its loops are compiled functions (capture/syntax/pieces.py).

Where paths are recorded again and again because steps of a loop go different ways, 2**n of them in n steps, a path for each of the ways
that one step may go is enough.  What is around such a loop runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from tracejit.capture.syntax.locate import NotConvertible
from tracejit.capture.syntax.pieces import Piece, cut
from tracejit.core.compiler import calling_with
from tracejit.report.partings import Parting

__all__ = ["Pieces", "in_pieces"]


class Pieces:
    """function: does what the one that was cut does; parts: the functions that it has compiled; why: what kept its calls apart."""

    __slots__ = ("_as_it_was", "_module", "_whole", "function", "parts", "why")

    def __init__(self, whole: FunctionType, module: Any, function: Callable[..., Any], parts: list[Any], why: str) -> None:
        """whole: what was cut; module: of which it is the `forward`, if it is one's."""
        self.function = function
        self.parts = parts
        self.why = why
        self._module, self._whole = module, whole
        self._as_it_was = self._found()

    def _found(self) -> tuple[Any, ...]:
        whole, module = self._whole, self._module
        around = (None, None) if module is None else (module.forward, type(module).__call__)
        return (*around, whole.__code__, whole.__defaults__, whole.__kwdefaults__)

    def are_current(self) -> bool:
        """Whether the function that was cut is still what it was."""
        (forward, *now), (before, *then) = self._found(), self._as_it_was
        return bool(forward == before) and all(map(is_, now, then))  # each bound method is one of its own


def in_pieces(function: Any, partings: Sequence[Parting], compiled: Callable[[FunctionType], Any]) -> Pieces | None:
    """A function in pieces; None for one that has no loop that can be cut.  partings: the branches at which its calls differ; compiled:
    how to compile a piece."""
    module, calling = None, None
    if not isinstance(function, FunctionType | MethodType):
        calling = calling_with.get(type(function).__call__)
        if calling is None:
            return None
        module, function = function, function.forward
    whole, owners = _unbound(function)
    if whole is None:
        return None
    code = whole.__code__
    places = [parting.where.rpartition(":") for parting in partings]
    lines = [int(line) if file == code.co_filename else None for file, _, line in places]
    try:
        found = cut(code, lines, whole.__globals__)
    except (NotConvertible, RecursionError):
        return None
    if found is None:
        return None
    made, parts = _assembled(whole, *found, compiled)
    for owner in reversed(owners):
        made = MethodType(made, owner)
    foremost = partings[0]
    why = f"{foremost.name}{foremost.place()} changes ({foremost.some()})"
    if calling is None:
        return Pieces(whole, None, made, parts, why)
    return Pieces(whole, module, lambda *args, **kwargs: calling(module, made, args, kwargs), parts, why)


def _unbound(function: Any) -> tuple[FunctionType | None, list[Any]]:
    """The Python function behind methods, if there is one, and what these are bound to, the outermost first."""
    owners = []
    while type(function) is MethodType:
        owners.append(function.__self__)
        function = function.__func__
    return (function if type(function) is FunctionType else None), owners


def _assembled(
    whole: FunctionType, code: CodeType, pieces: Sequence[Piece], compiled: Callable[[FunctionType], Any]
) -> tuple[Any, list[Any]]:
    """A function of this code in the place of `whole`, and its pieces, which it finds in cells as it finds its free variables."""
    cells = dict(zip(whole.__code__.co_freevars, whole.__closure__ or (), strict=True))
    parts = []
    for piece in pieces:
        part = compiled(_made(whole, piece.code, cells, f"{whole.__qualname__}, a step of line {piece.line}"))
        cells[piece.name] = CellType(part)
        parts.append(part)
    made = _made(whole, code, cells, whole.__qualname__)
    made.__defaults__, made.__kwdefaults__ = whole.__defaults__, whole.__kwdefaults__
    return made, parts


def _made(function: FunctionType, code: CodeType, cells: dict[str, CellType], name: str) -> FunctionType:
    made = FunctionType(code, function.__globals__, function.__name__, None, tuple([cells[free] for free in code.co_freevars]))
    made.__qualname__, made.__module__ = name, function.__module__
    return made
