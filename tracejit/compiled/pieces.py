"""A function that runs in pieces: it is Python again, but the bodies of its loops are compiled functions (capture/syntax/pieces.py).

Where paths are recorded again and again because steps of a loop go different ways, 2**n of them in n steps, a path for each of the ways
that one step may go is enough.  What is around such a loop runs eagerly.

The loop may be in a function that is called: then that one is in pieces wherever this one calls it at that place.  If the branch is in a
function that has been compiled for itself, the loop around it stays as it is, and calls what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final

from tracejit.capture.branches import Branch, Site
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.capture.syntax.pieces import has_loop_around, outline_loop_bodies
from tracejit.core.compiler import calling_with

__all__ = ["Pieces", "compile_in_pieces"]

Compile = Callable[[FunctionType], Any]

_MOST_FUNCTIONS: Final = 4
"""Functions with one piece of code that are taken to pieces where they are called."""


class Pieces:
    """function: does what the one that was cut does; parts: the functions that have been compiled for it so far; why: what kept its calls
    apart."""

    __slots__ = ("_cut_definition", "_module", "_whole", "function", "parts", "why")

    def __init__(self, whole: FunctionType, module: Any, function: Callable[..., Any], parts: list[Any], why: str) -> None:
        """whole: what was cut; module: of which it is the `forward`, if it is one's."""
        self.function = function
        self.parts = parts
        self.why = why
        self._module, self._whole = module, whole
        self._cut_definition = self._current_definition()

    def _current_definition(self) -> tuple[Any, ...]:
        whole, module = self._whole, self._module
        around = (None, None) if module is None else (module.forward, type(module).__call__)
        return (*around, *_definition(whole))

    def are_current(self) -> bool:
        """Whether the function that was cut is still what it was."""
        (forward, *now), (before, *then) = self._current_definition(), self._cut_definition
        return bool(forward == before) and all(map(is_, now, then))  # each bound method is one of its own


def compile_in_pieces(function: Any, branches: Sequence[Branch], why: str, compiled: Compile) -> Pieces | None:
    """A function in pieces; None for one that has no loop that can be cut.  branches: where its calls differ; compiled: how to compile a
    piece."""
    module, unbound, owners = _definition_of(function)
    if unbound is None:
        return None
    parts: list[Any] = []
    try:
        routes = [route for branch in branches if (route := _route(unbound, branch)) is not None]
        made = _assemble(unbound, routes, compiled, parts) if routes else None
    except (NotConvertible, RecursionError):
        return None
    if made is None:
        if not any(branch.calls_compiled for branch in branches):
            return None
        made = unbound
    return Pieces(unbound, module, _bound_as(module, owners, made), parts, why)


def _definition_of(function: Any) -> tuple[Any, FunctionType | None, list[Any]]:
    """The module whose `forward` it is that is called, if there is one; the Python function behind methods, and what these are bound to,
    the outermost first."""
    module, owners = None, []
    if type(function) is not FunctionType and type(function) is not MethodType:
        if getattr(type(function), "__call__", None) not in calling_with:  # noqa: B004  that of the class is what is called
            return None, None, []
        module, function = function, function.forward
    while type(function) is MethodType:
        owners.append(function.__self__)
        function = function.__func__
    return module, (function if type(function) is FunctionType else None), owners


def _bound_as(module: Any, owners: Sequence[Any], made: Callable[..., Any]) -> Callable[..., Any]:
    """What is called in the place of the function of `_definition_of`, if `made` is to be called instead of it."""
    for owner in reversed(owners):
        made = MethodType(made, owner)
    if module is None:
        return made
    calling = calling_with[type(module).__call__]
    return lambda *args, **kwargs: calling(module, made, args, kwargs)


def _route(function: FunctionType, branch: Branch) -> tuple[Site, ...] | None:
    """The sites of a branch down to the innermost that is in a loop; None where that has to stay as it is, or there is none."""
    sites = branch.sites
    if branch.calls_compiled:
        return None
    if sites[0].code is not function.__code__:
        return (Site(None, sites[-1].file, sites[-1].line),)
    for k, site in reversed(list(enumerate(sites))):
        if site.code is not None and has_loop_around(site.code, site.line, site.names):
            return sites[: k + 1] if k == 0 or outline_loop_bodies(site.code, [site.line], site.names) is not None else None
    return None


def _assemble(
    whole: FunctionType, routes: Sequence[tuple[Site, ...]], compiled: Compile, parts: list[Any]
) -> Callable[..., Any] | None:
    """A function that does what `whole` does, in pieces, which it finds in cells as it finds its free variables; None where no loop can be
    cut.  parts: gets the pieces."""
    code = whole.__code__
    own = [route[0] for route in routes if len(route) == 1]
    lines = [site.line if site.file == code.co_filename else None for site in own]
    calls = {route[0].line for route in routes if len(route) > 1}
    found = outline_loop_bodies(code, lines, whole.__globals__, calls)
    if found is None:
        return None
    cells = dict(zip(code.co_freevars, whole.__closure__ or (), strict=True))
    for piece in found.pieces:
        part = compiled(_with_code(whole, piece.code, cells, f"{whole.__qualname__}, a step of line {piece.line}"))
        cells[piece.name] = CellType(part)
        parts.append(part)
    if found.calls is not None:
        cells[found.calls] = CellType(_CalledPieces([route[1:] for route in routes if len(route) > 1], compiled, parts))
    made = _with_code(whole, found.code, cells, whole.__qualname__)
    made.__defaults__, made.__kwdefaults__ = whole.__defaults__, whole.__kwdefaults__
    return made


def _with_code(function: FunctionType, code: CodeType, cells: dict[str, CellType], name: str) -> FunctionType:
    made = FunctionType(code, function.__globals__, function.__name__, None, tuple([cells[free] for free in code.co_freevars]))
    made.__qualname__, made.__module__ = name, function.__module__
    return made


def _definition(function: FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


class _CalledPieces:
    """Answers, for what a function in pieces is about to call, what it is to call instead: functions with a loop that is to be cut are in
    pieces, too.  Those that are made anew in each call, beyond a few, are called as they are."""

    __slots__ = ("_compiled", "_known", "_parts", "_routes")

    def __init__(self, routes: Sequence[tuple[Site, ...]], compiled: Compile, parts: list[Any]) -> None:
        self._routes: dict[Any, list[tuple[Site, ...]]] = {}
        for route in routes:
            self._routes.setdefault(route[0].code, []).append(route)
        self._compiled, self._parts = compiled, parts
        self._known: dict[FunctionType, tuple[tuple[Any, ...], Callable[..., Any] | None]] = {}

    def __call__(self, function: Any) -> Any:
        module, unbound, owners = _definition_of(function)
        routes = None if unbound is None else self._routes.get(unbound.__code__)
        if unbound is None or routes is None:
            return function
        if unbound not in self._known and len(self._known) < _MOST_FUNCTIONS:
            self._known[unbound] = _definition(unbound), self._assemble(unbound, routes)
        definition, made = self._known.get(unbound, ((), None))
        if made is None or not all(map(is_, definition, _definition(unbound))):
            return function
        return _bound_as(module, owners, made)

    def _assemble(self, function: FunctionType, routes: Sequence[tuple[Site, ...]]) -> Callable[..., Any] | None:
        try:
            return _assemble(function, routes, self._compiled, self._parts)
        except (NotConvertible, RecursionError):
            return None
