"""Separates targets of loops that an inner loop overwrites before anything reads them: `for _ in range(a): for _ in range(b):`.

The target of the outer loop gets a name of its own, so that each loop has a counter.  That changes nothing, since the function
reads the name only in the bodies of inner loops, or not at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.scopes import LOOKING_AT_VARIABLES, declared_names
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = ["separate_targets"]


def separate_targets(node: FunctionNode, captured: Iterable[str]) -> set[str]:
    """Rename such targets in the syntax tree of a function, in place.  Returns the new names.  captured: variables that nested
    functions read."""
    body: Sequence[ast.AST] = node.body if isinstance(node.body, list) else [node.body]
    names = {part.id for statement in body for part in walk(statement) if isinstance(part, ast.Name)}
    if names & LOOKING_AT_VARIABLES:
        return set()
    loops = _Loops(set(captured).union(*declared_names(node)))
    for statement in body:
        loops.search(statement, ())
    separated = set()
    for number, loop in enumerate(loops.overwritten()):
        assert isinstance(loop.target, ast.Name)
        own = f"__outer{number}_{loop.target.id}__"
        if own not in names and not loop.target.id.startswith("__"):  # names that may be mangled are not renamed
            loop.target.id = own
            separated.add(own)
    return separated


class _Loops:
    """The `for` loops of a function whose target is a name, with the reads of these names."""

    def __init__(self, shared: set[str]) -> None:
        self._shared = shared
        self._outer: list[ast.For] = []  # loops with an inner loop of the same target
        self._read: dict[str, set[int | None]] = {}  # name -> id of the innermost loop with this target around each read; or None

    def search(self, part: ast.AST, around: tuple[ast.For, ...]) -> None:
        """Note the loops and reads in a part of the function.  around: the loops in whose bodies the part is."""
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store):
            self._note(part.id, around)
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            self._note(part.target.id, around)
        if isinstance(part, ast.For) and isinstance(part.target, ast.Name):
            self._outer += [x for x in around if _name(x) == _name(part) and x not in self._outer]
            for inner in part.body:
                self.search(inner, (*around, part))
            for other in (part.iter, *part.orelse):
                self.search(other, around)
        else:
            for child in children(part):
                self.search(child, around)

    def _note(self, name: str, around: tuple[ast.For, ...]) -> None:
        innermost = next((id(loop) for loop in reversed(around) if _name(loop) == name), None)
        self._read.setdefault(name, set()).add(innermost)

    def overwritten(self) -> list[ast.For]:
        """The loops whose target nothing reads, neither in their bodies outside of inner loops with the same target nor outside
        of such loops."""
        return [
            loop
            for loop in self._outer
            if _name(loop) not in self._shared and self._read.get(_name(loop), set()).isdisjoint((id(loop), None))
        ]


def _name(loop: ast.For) -> str:
    assert isinstance(loop.target, ast.Name)
    return loop.target.id
