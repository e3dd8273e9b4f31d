"""Functions in pieces: the function is plain Python, and the bodies of its loops are compiled functions
(capture/syntax/pieces.py).

If the steps of a loop branch differently, there are 2**n paths of n steps, which would be recorded again and again.  With the
body as a function of its own, one path for each outcome of the branch is enough.  The code around such a loop runs eagerly.

A function that calls itself has a path for each shape of the recursion.  It is plain Python, too, and so are the functions on the way
from its first call to the recursive ones; what these do between recursive calls is compiled (capture/syntax/recursive_calls.py).

The loop may be in a function that this one calls.  Then that function is in pieces, too, where this one calls it from that line.
If the branch is in a function that is compiled itself, the loop around it is not changed, and calls the compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from operator import is_
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final

from tracejit.capture.branches import Branch, Site
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.capture.syntax.outlined_loops import function_of_step
from tracejit.capture.syntax.pieces import OutlinedFunction, Position, has_loop_around, outline_loop_bodies
from tracejit.capture.syntax.recursive_calls import outline_between_calls
from tracejit.core.compiler import calling_with

__all__ = ["Pieces", "compile_between_calls", "compile_in_pieces"]

Compile = Callable[[FunctionType], Any]

_MOST_FUNCTIONS: Final = 4
"""At most so many called functions with the same code are put in pieces for one call."""


class Pieces:
    """A function in pieces.  function: does what the original does.  parts: the functions that have been compiled for it so far.
    calls_compiled: whether it is the original, which calls another compiled function in a loop."""

    __slots__ = ("_cut_definition", "_module", "_text", "_whole", "calls_compiled", "function", "parts")

    def __init__(
        self,
        whole: FunctionType,
        module: Any,
        function: Callable[..., Any],
        parts: list[Any],
        text: str,
        calls_compiled: bool = False,
    ) -> None:
        """whole: the original.  module: if that is the `forward` of a Module, the Module.  text: why it is in pieces and what they
        are, for the user."""
        self.function = function
        self.calls_compiled = calls_compiled
        self.parts = parts
        self._text = text
        self._module, self._whole = module, whole
        self._cut_definition = self._current_definition()

    def _current_definition(self) -> tuple[Any, ...]:
        whole, module = self._whole, self._module
        around = (None, None) if module is None else (module.forward, type(module).__call__)
        return (*around, *_definition(whole))

    @property
    def text(self) -> str:
        """Why it is in pieces and what they are, for the user."""
        nothing = " (there is nothing that could be: lambdas, generators and comprehensions are not cut; write them as functions)"
        return self._text if self.parts or self.calls_compiled else self._text + nothing

    def are_current(self) -> bool:
        """Whether the original has not been redefined since."""
        (forward, *now), (before, *then) = self._current_definition(), self._cut_definition
        return bool(forward == before) and all(map(is_, now, then))  # each read of `module.forward` creates a bound method


def compile_in_pieces(function: Any, branches: Sequence[Branch], why: str, compiled: Compile) -> Pieces | None:
    """`function` in pieces; None if it has no loop whose body can be a function.  branches: where its calls differ.  why: the branch
    at which they did, for the user.  compiled: compiles a piece."""
    module, unbound, owners = _definition_of(function)
    if unbound is None:
        return None
    parts: list[Any] = []
    try:
        routes = [route for branch in branches if (route := _route(unbound, branch)) is not None]
        replacement = _assemble(unbound, routes, compiled, parts) if routes else None
    except (NotConvertible, RecursionError):
        return None
    if replacement is None:
        if not any(branch.calls_compiled for branch in branches):
            return None
        replacement = unbound
    text = f"{why}: steps of its loops are compiled, what is around them is not"
    return Pieces(unbound, module, _bound_as(module, owners, replacement), parts, text, replacement is unbound)


def compile_between_calls(
    function: Any, sites: Mapping[CodeType, Set[tuple[Position, str]]], why: str, compiled: Compile, whole: Any = None
) -> Pieces | None:
    """`function` in pieces between its recursive calls; None if that is not possible.  sites: where recursive calls were seen
    (`Recursion.calls`).  whole: the compiled function, by which `function` may call itself.  For the other arguments see
    `compile_in_pieces`."""
    module, unbound, owners = _definition_of(function)
    if unbound is None or unbound.__code__ not in sites:
        return None
    recursive = _RecursiveFunctions(sites, compiled, whole)
    replacement = recursive.keep(unbound)
    if replacement is None:
        return None
    text = f"{why}: what is between recursive calls is compiled, these are not"
    called = recursive.calling(_bound_as(module, owners, replacement))
    return Pieces(unbound, module, called, recursive.parts, text)


def _definition_of(function: Any) -> tuple[Any, FunctionType | None, list[Any]]:
    """(the Module, if `function` is one; the Python function inside bound methods, here or of the Module's `forward`; the objects
    that these are bound to, the outermost first).  The second is None if there is no Python function."""
    module, owners = None, []
    if type(function) is not FunctionType and type(function) is not MethodType:
        if getattr(type(function), "__call__", None) not in calling_with:  # noqa: B004  Python calls the method of the class
            return None, None, []
        module, function = function, function.forward
    while type(function) is MethodType:
        owners.append(function.__self__)
        function = function.__func__
    return module, (function if type(function) is FunctionType else None), owners


def _bound_as(module: Any, owners: Sequence[Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """`replacement`, bound as the function of `_definition_of` was (its module and owners)."""
    for owner in reversed(owners):
        replacement = MethodType(replacement, owner)
    if module is None:
        return replacement
    calling = calling_with[type(module).__call__]
    return lambda *args, **kwargs: calling(module, replacement, args, kwargs)


def _route(function: FunctionType, branch: Branch) -> tuple[Site, ...] | None:
    """The sites of a branch, from the outermost function to the innermost one in which it is in a loop; a site of no function, which
    means all loops of the outermost one, if it is in none.  None if the body of its loop cannot be a function."""
    sites = _as_written(branch.sites)
    if branch.calls_compiled:
        return None
    if sites[0].code is not function.__code__:
        return (Site(None, sites[-1].file, sites[-1].line),)
    for k, site in reversed(list(enumerate(sites))):
        if site.code is not None and has_loop_around(site.code, site.line, site.names):
            return sites[: k + 1] if k == 0 or outline_loop_bodies(site.code, [site.line], site.names) is not None else None
    return (Site(None, "", sites[0].line),)


def _as_written(sites: Sequence[Site]) -> tuple[Site, ...]:
    """Sites of functions as the user wrote them: the step of an outlined loop is a function of its own, called by that of the loop."""
    found: list[Site] = []
    for site in sites:
        code = None if site.code is None else function_of_step(site.code)
        if found and code is not site.code and found[-1].code is code:
            found.pop()
        found.append(replace(site, code=code))
    return tuple(found)


def _assemble(
    whole: FunctionType, routes: Sequence[tuple[Site, ...]], compiled: Compile, parts: list[Any]
) -> Callable[..., Any] | None:
    """A function that does what `whole` does, with the bodies of loops as compiled functions, which are in additional free
    variables.  None if no loop has a body that can be a function.  routes: see `_route`.  parts: the compiled pieces are appended
    to it."""
    code = whole.__code__
    own = [route[0] for route in routes if len(route) == 1]
    lines = [site.line if site.file == code.co_filename else None for site in own]
    calls = {route[0].line for route in routes if len(route) > 1}
    outlined = outline_loop_bodies(code, lines, whole.__globals__, calls)
    if outlined is None:
        return None
    cells = dict(zip(code.co_freevars, whole.__closure__ or (), strict=True))
    for piece in outlined.pieces:
        part = compiled(_with_code(whole, piece.code, cells, f"{whole.__qualname__}, a step of line {piece.line}"))
        cells[piece.name] = CellType(part)
        parts.append(part)
    if outlined.calls is not None:
        cells[outlined.calls] = CellType(_CalledPieces([route[1:] for route in routes if len(route) > 1], compiled, parts))
    result = _with_code(whole, outlined.code, cells, whole.__qualname__)
    result.__defaults__, result.__kwdefaults__ = whole.__defaults__, whole.__kwdefaults__
    return result


def _with_code(function: FunctionType, code: CodeType, cells: dict[str, CellType], name: str) -> FunctionType:
    """A function with other code, in the module of `function`.  cells: for the free variables, by name."""
    result = FunctionType(code, function.__globals__, function.__name__, None, tuple([cells[free] for free in code.co_freevars]))
    result.__qualname__, result.__module__ = name, function.__module__
    return result


def _definition(function: FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


class _CalledPieces:
    """Called by a function in pieces with each function that it is about to call at certain lines; returns the one to call
    instead.

    A function with a loop of the routes is replaced by itself in pieces.  If each call defines it anew, only the first
    `_MOST_FUNCTIONS` are."""

    __slots__ = ("_compiled", "_parts", "_replacements", "_routes")

    def __init__(self, routes: Sequence[tuple[Site, ...]], compiled: Compile, parts: list[Any]) -> None:
        self._routes: dict[Any, list[tuple[Site, ...]]] = {}
        for route in routes:
            self._routes.setdefault(route[0].code, []).append(route)
        self._compiled, self._parts = compiled, parts
        self._replacements: dict[FunctionType, tuple[tuple[Any, ...], Callable[..., Any] | None]] = {}

    def __call__(self, function: Any) -> Any:
        module, unbound, owners = _definition_of(function)
        routes = None if unbound is None else self._routes.get(unbound.__code__)
        if unbound is None or routes is None:
            return function
        if unbound not in self._replacements and len(self._replacements) < _MOST_FUNCTIONS:
            self._replacements[unbound] = _definition(unbound), self._assemble(unbound, routes)
        definition, replacement = self._replacements.get(unbound, ((), None))
        if replacement is None or not all(map(is_, definition, _definition(unbound))):
            return function
        return _bound_as(module, owners, replacement)

    def _assemble(self, function: FunctionType, routes: Sequence[tuple[Site, ...]]) -> Callable[..., Any] | None:
        try:
            return _assemble(function, routes, self._compiled, self._parts)
        except (NotConvertible, RecursionError):
            return None


class _RecursiveFunctions:
    """Called by functions in pieces with each function that they are about to call recursively; returns the one to call instead.

    Functions of one code share their pieces, also if each call of the function around them defines them anew.  parts: the compiled
    pieces."""

    __slots__ = ("_compiled", "_kept", "_outlined", "_replacements", "_sites", "_whole", "parts")

    def __init__(self, sites: Mapping[CodeType, Set[tuple[Position, str]]], compiled: Compile, whole: Any) -> None:
        self._sites, self._compiled = sites, compiled
        self._whole: Any = self if whole is None else whole
        self.parts: list[Any] = []
        # by code: the function in pieces, the globals of its functions, and the compiled pieces
        self._outlined: dict[CodeType, tuple[OutlinedFunction, dict[str, Any], list[Any]] | None] = {}
        self._replacements: dict[FunctionType, tuple[tuple[Any, ...], FunctionType]] = {}  # of the call that is running
        self._kept: dict[FunctionType, tuple[tuple[Any, ...], FunctionType]] = {}  # of all calls

    def keep(self, function: FunctionType) -> FunctionType | None:
        """`in_pieces`, of a function that outlives the calls."""
        result = self.in_pieces(function)
        self._kept.update(self._replacements)
        return result

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that calls one, and afterwards keeps nothing alive that the call has defined."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            finally:
                self._replacements = self._kept.copy()

        return call

    def __call__(self, function: Any) -> Any:
        if type(function) is FunctionType:
            replacement = self.in_pieces(function)
            return function if replacement is None else replacement
        module, unbound, owners = _definition_of(self._uncompiled(function))
        replacement = None if unbound is None else self.in_pieces(unbound)
        return function if replacement is None else _bound_as(module, owners, replacement)

    def _uncompiled(self, function: Any) -> Any:
        """The function itself in the place of the compiled function, which would only call it in pieces."""
        if function is self._whole:
            return function.__wrapped__
        if type(function) is MethodType and function.__func__ is self._whole:
            return MethodType(function.__func__.__wrapped__, function.__self__)
        return function

    def in_pieces(self, function: FunctionType) -> FunctionType | None:
        """A function in pieces; None if it has no recursive calls, or cannot be in pieces."""
        known = self._replacements.get(function)
        if known is not None and all(map(is_, known[0], _definition(function))):
            return known[1]
        code = function.__code__
        if code not in self._outlined:
            self._outlined[code] = self._outline(function) if code in self._sites else None
        outlined = self._outlined[code]
        if outlined is None or outlined[1] is not function.__globals__:
            return None
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        own = cells.copy()
        for piece, part in zip(outlined[0].pieces, outlined[2], strict=True):
            called = part if piece.caller is None else partial(part, _with_code(function, piece.code, own, function.__qualname__))
            cells[piece.name] = CellType(called)
        if outlined[0].calls is not None:
            cells[outlined[0].calls] = CellType(self)
        result = _with_code(function, outlined[0].code, cells, function.__qualname__)
        result.__defaults__, result.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self._replacements[function] = _definition(function), result
        return result

    def _outline(self, function: FunctionType) -> tuple[OutlinedFunction, dict[str, Any], list[Any]] | None:
        try:
            outlined = outline_between_calls(function.__code__, self._sites[function.__code__], function.__globals__)
        except (NotConvertible, RecursionError):
            return None
        if outlined is None:
            return None
        parts = []
        for piece in outlined.pieces:
            name = f"{function.__qualname__}, a part of it from line {piece.line} on"
            parts.append(self._compiled(_with_code(function, piece.caller or piece.code, {}, name)))
        self.parts += parts
        return outlined, function.__globals__, parts
