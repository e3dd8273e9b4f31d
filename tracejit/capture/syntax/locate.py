"""Find the syntax tree of a running code object.

Its text is parsed and compiled again; a function is accepted only if some code object of that compilation *equals* the running
one, so that text edited since it was imported is never mistaken for the program.  First only the lines of the definition are tried,
in a frame that stands for what is around them; where that does not give an equal code object, the whole file, which takes ten times as
long.  Lambdas of one line are told apart by the positions of their instructions.  This module knows nothing of recordings.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import itertools
import keyword
import linecache
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

from tracejit.capture.syntax.compiling import compile_again
from tracejit.capture.syntax.parts import children
from tracejit.core.interrupts import is_foreign
from tracejit.core.weak_table import WeakTable

__all__ = ["FunctionNode", "Located", "NotConvertible", "declare", "locate", "nested_codes", "source_extent"]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class NotConvertible(Exception):
    """The function cannot be instrumented; `code` names the entry of the catalogue of reasons, `detail` completes it."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Located:
    """The definition of a function: its tree, which is the caller's to change, the class whose body it stands in (for private names), flags
    of future statements."""

    node: FunctionNode
    class_name: str | None
    flags: int


@dataclass(slots=True)
class _File:
    text: str
    definitions: dict[int, list[tuple[FunctionNode, str | None]]] = field(default_factory=dict)
    codes: dict[tuple[str, int], list[CodeType]] = field(default_factory=dict)

    def read(self, filename: str, flags: int) -> None:
        """Parse and compile the text; flags: of future statements that stand elsewhere."""
        tree = compile_again(self.text, filename, "exec", ast.PyCF_ONLY_AST | flags)
        top = compile_again(self.text, filename, "exec", flags)
        _collect_definitions(tree, None, self.definitions)
        _collect_codes(top, self.codes)

    def named(self, code: CodeType) -> list[tuple[FunctionNode, str | None]]:
        """The definitions on the line of `code` that have its name, and the classes around them."""
        found = self.definitions.get(code.co_firstlineno, ())
        return [(n, c) for n, c in found if ("<lambda>" if isinstance(n, ast.Lambda) else n.name) == code.co_name]


_files: dict[str, _File] = {}
_declared: WeakTable[Located] = WeakTable()
_FUTURE: Final[int] = functools.reduce(operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))
_IMPORT: Final = re.compile(r"^(?:from\s+\S+\s+import|import)\s+(\([^)]*\)|[^#\n]*)", re.MULTILINE)
_IMPORTED: Final = re.compile(r"(\w+)(?:\.\w+)*(?:\s+as\s+(\w+))?\s*(?:,|$)")
_imports: dict[str, tuple[list[str], str]] = {}
_STARRED: Final = 0x4 | 0x8  # *args, **kwargs
_REMEMBERED: Final = 32  # files
_ENDS: Final = 8  # lines at which a definition is tried to end, before the whole file is parsed


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects directly inside `code`."""
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _collect_codes(code: CodeType, into: dict[tuple[str, int], list[CodeType]]) -> None:
    into.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    for inner in nested_codes(code):
        _collect_codes(inner, into)


def _collect_definitions(node: ast.AST, class_name: str | None, into: dict[int, list[tuple[FunctionNode, str | None]]]) -> None:
    for child in children(node):
        if isinstance(child, FunctionNode):
            decorators = [] if isinstance(child, ast.Lambda) else child.decorator_list
            first_line = decorators[0].lineno if decorators else child.lineno
            into.setdefault(first_line, []).append((child, class_name))
        _collect_definitions(child, child.name if isinstance(child, ast.ClassDef) else class_name, into)


def _parse(filename: str) -> _File:
    text = "".join(linecache.getlines(filename))
    known = _files.get(filename)
    if known is not None and known.text == text:
        return known
    if not text:
        raise NotConvertible("no_source", filename)
    try:
        parsed = _File(text)
        parsed.read(filename, 0)
    except (SyntaxError, ValueError) as error:
        if is_foreign(error):
            raise
        raise NotConvertible("source_changed", f"{filename} does not parse ({error})") from None
    _remember(_files, filename, parsed)
    return parsed


def _remember(files: dict[str, Any], filename: str, known: Any) -> None:
    """Note what is known of a file, and forget the file that was met first if there are many: a cell of a notebook is a file, too."""
    while len(files) >= _REMEMBERED:
        files.pop(next(iter(list(files)), ""), None)
    files[filename] = known


def _real_positions(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """(line, column, end line, end column) of the instructions that have a place in the text."""
    for line, end_line, column, end_column in code.co_positions():
        if line and end_line is not None and column is not None and end_column and (line, column) != (end_line, end_column):
            yield line, column, end_line, end_column


def source_extent(code: CodeType) -> tuple[str, int, tuple[int, int], str]:
    """A key that two compilations of the same definition share, and equal definitions on its line at most."""
    positions = sorted(_real_positions(code))
    if not positions:  # CPython 3.12 has none for `lambda: constant`
        return code.co_name, code.co_firstlineno, (0, 0), repr((code.co_varnames, code.co_consts))
    return code.co_name, code.co_firstlineno, positions[0][:2], repr(max((p[2], p[3]) for p in positions))


def _size(node: FunctionNode) -> tuple[int, int]:
    """How much text a definition on one or more lines takes, for comparing nested ones."""
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _lies_in_body(code: CodeType, node: FunctionNode) -> bool:
    body: Any = node.body
    first, last = (body[0], body[-1]) if isinstance(body, list) else (body, body)
    low = (first.lineno, first.col_offset)
    high = (last.end_lineno, last.end_col_offset)
    return all((p[0], p[1]) >= low and (p[2], p[3]) <= high for p in _real_positions(code))


def _is_constant(code: CodeType, node: FunctionNode) -> bool:
    """Whether a lambda has the arguments of `code` and returns the constant that it returns: on CPython 3.12 nothing in such a code object
    has a place in the text."""
    if not isinstance(node, ast.Lambda):
        return True
    alone = compile_again(ast.Expression(node), "<lambda>", "eval", 0)
    return any(_meaning_of_constant(other) == _meaning_of_constant(code) for other in nested_codes(alone))


def _meaning_of_constant(code: CodeType) -> tuple[Any, ...]:
    arguments = code.co_varnames, code.co_argcount, code.co_kwonlyargcount, code.co_flags & _STARRED
    return code.co_code, repr(code.co_consts), *arguments  # 1 is equal to 1.0


def _last_line(code: CodeType) -> int:
    """The last line of the instructions of a definition."""
    lines = (end for _, end, _, _ in code.co_positions() if end is not None)
    return max((*lines, *map(_last_line, nested_codes(code))), default=code.co_firstlineno)


def _class_around(code: CodeType) -> str | None:
    """The name of the innermost class that a definition stands in, from its qualified name."""
    *around, _ = code.co_qualname.split(".")
    while around:
        name = around.pop()
        if name != "<locals>":
            return name
        around.pop()  # the function whose locals they are
    return None


def _import_statement(filename: str, lines: list[str]) -> str:
    """A statement that binds the names that a file's own top-level imports bind: calls through those are compiled otherwise."""
    known = _imports.get(filename)
    if known is None or known[0] is not lines:
        names: dict[str, None] = {}
        for match in _IMPORT.finditer("".join(lines)):
            for name, alias in _IMPORTED.findall(re.sub(r"#[^\n]*", "", match[1]).strip("()\n ")):
                if not keyword.iskeyword(alias or name):  # prose that begins like an import
                    names[alias or name] = None
        known = lines, f"import {', '.join(names)}\n" if names else "\n"
        _remember(_imports, filename, known)
    return known[1]


def _frame(filename: str, lines: list[str], code: CodeType) -> list[str] | None:
    """Lines that stand for those before a definition: as many, and with what the compiler must know of them (imports, a class for private
    names and super(), a function for free variables).  None where there is no room."""
    heads = []
    if lines[code.co_firstlineno - 1][0].isspace():
        if "<locals>" in code.co_qualname:
            heads.append(f"def around({', '.join(v for v in code.co_freevars if v != '__class__')}):\n")
        name = _class_around(code)
        if name is not None:
            heads.append(f"class {name}:\n")
        heads = [" " * depth + head for depth, head in enumerate(heads or ["if True:\n"])]
    blank = code.co_firstlineno - 2 - len(heads)
    return None if blank < 0 else [_import_statement(filename, lines), *["\n"] * blank, *heads]


def _ends(lines: Sequence[str], first: int, last: int) -> Iterator[int]:
    """Numbers of lines, counted from 0, before which a definition may end that begins with line `first` and has code up to `last`."""
    depth = len(lines[first]) - len(lines[first].lstrip())
    for number in range(last, len(lines)):
        text = lines[number].lstrip()
        if text and not text.startswith("#") and len(lines[number]) - len(text) <= depth:
            yield number
    yield len(lines)


def _in_excerpt(filename: str, code: CodeType) -> Located | None:
    """The definition, from its own lines alone; None if that cannot be done, which says nothing."""
    lines = linecache.getlines(filename)
    first = code.co_firstlineno - 1
    if code.co_name == "<lambda>" or not 0 <= first < len(lines) or not lines[first].strip():
        return None
    frame = _frame(filename, lines, code)
    if frame is None:
        return None
    for end in itertools.islice(_ends(lines, first, _last_line(code)), _ENDS):
        excerpt = _File("".join([*frame, *lines[first:end]]))
        try:
            excerpt.read(filename, code.co_flags & _FUTURE)
        except (SyntaxError, ValueError) as error:
            if is_foreign(error):
                raise
            continue
        found = [node for node, _ in excerpt.named(code)]
        if len(found) == 1 and _matches(excerpt, code):
            return Located(found[0], _class_around(code), code.co_flags & _FUTURE)
        return None
    return None


def _in_file(filename: str, code: CodeType) -> Located | None:
    """The definition, from the whole file; None if no definition there is that of the code.  Raises NotConvertible where there is no
    source, or several definitions fit."""
    parsed = _parse(filename)
    if not _matches(parsed, code):
        return None
    candidates = parsed.named(code)
    if len(candidates) > 1:
        candidates = [(node, class_name) for node, class_name in candidates if _lies_in_body(code, node)]
        if not any(_real_positions(code)):
            candidates = [(node, class_name) for node, class_name in candidates if _is_constant(code, node)]
        if all(isinstance(node, ast.Lambda) for node, _ in candidates):  # of lambdas inside each other the innermost one fits
            candidates = sorted(candidates, key=lambda candidate: _size(candidate[0]))[:1]
    if len(candidates) != 1:
        raise NotConvertible("ambiguous_source", f"{filename} line {code.co_firstlineno}")
    node, class_name = candidates[0]
    return Located(copy.deepcopy(node), class_name, code.co_flags & _FUTURE)


def declare(code: CodeType, located: Located) -> None:
    """From now on this is the definition of `code`, whose text stands nowhere."""
    _declared[code] = located


def locate(code: CodeType, module_file: str | None = None) -> Located:
    """The definition that `code` was compiled from.

    `module_file` replaces the file name of frozen standard library modules.  Raises NotConvertible when there is no source,
    when it no longer matches, or when it is ambiguous.
    """
    declared = _declared.get(code)
    if declared is not None:
        return copy.deepcopy(declared)
    filename = module_file if code.co_filename.startswith("<frozen") and module_file else code.co_filename
    found = _in_excerpt(filename, code) or _in_file(filename, code)
    if found is None:
        linecache.checkcache(filename)
        found = _in_excerpt(filename, code) or _in_file(filename, code)
    if found is None:
        raise NotConvertible("source_changed", f"{filename} line {code.co_firstlineno}")
    return found


def _matches(parsed: _File, code: CodeType) -> bool:
    return any(known == code for known in parsed.codes.get((code.co_name, code.co_firstlineno), ()))
