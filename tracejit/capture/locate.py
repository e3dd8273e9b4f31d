"""Find the syntax tree of a running code object.

The file is parsed and compiled again; a function is accepted only if some code object of that compilation *equals* the running
one, so that text edited since it was imported is never mistaken for the program.  Lambdas of one line are told apart by the
positions of their instructions.  This module knows nothing of recordings.
"""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

__all__ = ["FunctionNode", "Located", "NotConvertible", "locate", "nested_codes", "source_extent"]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class NotConvertible(Exception):
    """The function cannot be instrumented; `code` names the entry of the catalogue of reasons, `detail` completes it."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Located:
    """The definition of a function: its tree, the class whose body it stands in (for private names), future statements."""

    node: FunctionNode
    class_name: str | None
    flags: int


@dataclass(slots=True)
class _File:
    text: str
    definitions: dict[int, list[tuple[FunctionNode, str | None]]] = field(default_factory=dict)
    codes: dict[tuple[str, int], list[CodeType]] = field(default_factory=dict)
    flags: int = 0


_files: dict[str, _File] = {}


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects directly inside `code`."""
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _collect_codes(code: CodeType, into: dict[tuple[str, int], list[CodeType]]) -> None:
    into.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    for inner in nested_codes(code):
        _collect_codes(inner, into)


def _collect_definitions(node: ast.AST, class_name: str | None, into: dict[int, list[tuple[FunctionNode, str | None]]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode):
            decorators = [] if isinstance(child, ast.Lambda) else child.decorator_list
            first_line = decorators[0].lineno if decorators else child.lineno
            into.setdefault(first_line, []).append((child, class_name))
        _collect_definitions(child, child.name if isinstance(child, ast.ClassDef) else class_name, into)


def _future_flags(tree: ast.Module) -> int:
    flags = 0
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            for alias in statement.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags


def _parse(filename: str) -> _File:
    text = "".join(linecache.getlines(filename))
    known = _files.get(filename)
    if known is not None and known.text == text:
        return known
    if not text:
        raise NotConvertible("no_source", filename)
    try:
        tree = ast.parse(text, filename)
        top = compile(text, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NotConvertible("source_changed", f"{filename} does not parse ({error})") from None
    parsed = _File(text, flags=_future_flags(tree))
    _collect_definitions(tree, None, parsed.definitions)
    _collect_codes(top, parsed.codes)
    _files[filename] = parsed
    return parsed


def _real_positions(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """(line, column, end line, end column) of the instructions that have a place in the text."""
    for line, end_line, column, end_column in code.co_positions():
        if line and end_line is not None and column is not None and end_column and (line, column) != (end_line, end_column):
            yield line, column, end_line, end_column


def source_extent(code: CodeType) -> tuple[str, int, tuple[int, int], tuple[int, int]]:
    """A key that two compilations of the same definition share."""
    positions = sorted(_real_positions(code))
    start = positions[0][:2] if positions else (0, 0)
    end = max(((p[2], p[3]) for p in positions), default=(0, 0))
    return code.co_name, code.co_firstlineno, start, end


def _size(node: FunctionNode) -> tuple[int, int]:
    """How much text a definition on one or more lines takes, for comparing nested ones."""
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _lies_in_body(code: CodeType, node: FunctionNode) -> bool:
    body: Any = node.body
    first, last = (body[0], body[-1]) if isinstance(body, list) else (body, body)
    low = (first.lineno, first.col_offset)
    high = (last.end_lineno, last.end_col_offset)
    return all((p[0], p[1]) >= low and (p[2], p[3]) <= high for p in _real_positions(code))


def locate(code: CodeType, module_file: str | None = None) -> Located:
    """The definition that `code` was compiled from.

    `module_file` replaces the file name of frozen standard library modules.  Raises NotConvertible when there is no source,
    when it no longer matches, or when it is ambiguous.
    """
    filename = module_file if code.co_filename.startswith("<frozen") and module_file else code.co_filename
    parsed = _parse(filename)
    if not _matches(parsed, code):
        linecache.checkcache(filename)
        parsed = _parse(filename)
        if not _matches(parsed, code):
            raise NotConvertible("source_changed", f"{filename} line {code.co_firstlineno}")
    candidates = [
        (node, class_name)
        for node, class_name in parsed.definitions.get(code.co_firstlineno, ())
        if ("<lambda>" if isinstance(node, ast.Lambda) else node.name) == code.co_name
    ]
    if len(candidates) > 1:
        candidates = [(node, class_name) for node, class_name in candidates if _lies_in_body(code, node)]
        if all(isinstance(node, ast.Lambda) for node, _ in candidates):  # of lambdas inside each other the innermost one fits
            candidates = sorted(candidates, key=lambda candidate: _size(candidate[0]))[:1]
    if len(candidates) != 1:
        raise NotConvertible("ambiguous_source", f"{filename} line {code.co_firstlineno}")
    node, class_name = candidates[0]
    return Located(node, class_name, parsed.flags)


def _matches(parsed: _File, code: CodeType) -> bool:
    return any(known == code for known in parsed.codes.get((code.co_name, code.co_firstlineno), ()))
