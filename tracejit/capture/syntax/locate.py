"""Finds the syntax tree of a code object: the definition that it was compiled from.

Source texts (sources.py) are parsed and compiled again.  A definition is accepted only if it compiles to a code object that
*equals* the given one, so text that was edited after the import is never mistaken for the source.

1. Compile only the lines of the definition, after lines that stand for the code around it.
2. If that does not give an equal code object, compile the whole file, which takes ten times as long.  Lambdas on the same line
   are distinguished by the positions of their instructions.
3. In texts that the user has passed, the definition may be on other lines: it is moved to the lines of the code object and
compiled there.

This module must not know recordings.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import itertools
import keyword
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any, Final

from tracejit.capture.syntax.compiling import compile_again
from tracejit.capture.syntax.sources import (
    describe_missing,
    give_source,
    given_sources,
    last_line,
    lines_of,
    nested_codes,
    sources,
)
from tracejit.capture.syntax.tree_walk import children, fill_positions, walk
from tracejit.core.interrupts import is_foreign
from tracejit.core.weak_table import WeakTable

__all__ = [
    "SCOPES", "FunctionNode", "Located",
    "NotConvertible", "declare", "give_source_of", "locate", "nested_codes", "source_extent", "source_of",
]  # fmt: skip

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
"""Nodes with variables of their own.  A tuple made once: a union takes ten times as long to test for."""


class NotConvertible(Exception):
    """The function cannot be instrumented.  code, detail: of the reason (capture/reasons.py)."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Located:
    """The definition of a function.  node: its syntax tree, a copy that the caller may change.  class_name: the class around it,
    for private names.  flags: compiler flags of the file's future statements."""

    node: FunctionNode
    class_name: str | None
    flags: int


@dataclass(slots=True)
class _File:
    """A parsed text.  definitions: first line -> (function, class around it).  codes: (name, first line) -> code objects."""

    text: str
    definitions: dict[int, list[tuple[FunctionNode, str | None]]] = field(default_factory=dict)
    codes: dict[tuple[str, int], list[CodeType]] = field(default_factory=dict)

    def read(self, filename: str, flags: int) -> None:
        """Parse and compile the text.  flags: of future statements that are not in the text."""
        tree = compile_again(self.text, filename, "exec", ast.PyCF_ONLY_AST | flags)
        top = compile_again(self.text, filename, "exec", flags)
        _collect_definitions(tree, None, self.definitions)
        _collect_codes(top, self.codes)

    def named(self, code: CodeType) -> list[tuple[FunctionNode, str | None]]:
        """(definition, class around it) for the definitions on the first line of `code` that have its name."""
        on_line = self.definitions.get(code.co_firstlineno, ())
        return [(n, c) for n, c in on_line if ("<lambda>" if isinstance(n, ast.Lambda) else n.name) == code.co_name]


_files: dict[str, _File] = {}
_declared: WeakTable[Located] = WeakTable()
_FUTURE: Final[int] = functools.reduce(operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))
_IMPORT: Final = re.compile(r"^(?:from\s+\S+\s+import|import)\s+(\([^)]*\)|[^#\n]*)", re.MULTILINE)
_IMPORTED: Final = re.compile(r"(\w+)(?:\.\w+)*(?:\s+as\s+(\w+))?\s*(?:,|$)")
_imports: dict[str, tuple[list[str], str]] = {}
_STARRED: Final = 0x4 | 0x8  # *args, **kwargs
_CACHED: Final = 32  # parsed files that are cached
_LONG: Final = 100_000  # longer texts are not pickled with a function as a whole
_ENDS: Final = 8  # ends of a definition that are tried before the whole file is parsed


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


def _parse(filename: str, text: str) -> _File:
    cached = _files.get(filename)
    if cached is not None and cached.text == text:
        return cached
    try:
        parsed = _File(text)
        parsed.read(filename, 0)
    except (SyntaxError, ValueError) as error:
        if is_foreign(error):
            raise
        raise NotConvertible("source_changed", f"{filename} does not parse ({error})") from None
    _put(_files, filename, parsed)
    return parsed


def _put(cache: dict[str, Any], filename: str, value: Any) -> None:
    """Add an entry for a file to a cache, and drop the oldest ones: each cell of a notebook is a file."""
    while len(cache) >= _CACHED:
        cache.pop(next(iter(list(cache)), ""), None)
    cache[filename] = value


def _real_positions(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """(line, column, end line, end column) of the instructions that have a position in the source."""
    for line, end_line, column, end_column in code.co_positions():
        if line and end_line is not None and column is not None and end_column and (line, column) != (end_line, end_column):
            yield line, column, end_line, end_column


def source_extent(code: CodeType) -> tuple[str, int, tuple[int, int], str]:
    """A key that is equal for two compilations of the same definition, and otherwise only for equal definitions on the same
    line."""
    positions = sorted(_real_positions(code))
    if not positions:  # CPython 3.12 has none for `lambda: constant`
        return code.co_name, code.co_firstlineno, (0, 0), repr((code.co_varnames, code.co_consts))
    return code.co_name, code.co_firstlineno, positions[0][:2], repr(max((p[2], p[3]) for p in positions))


def _size(node: FunctionNode) -> tuple[int, int]:
    """The extent of a definition in lines and columns, to compare nested lambdas."""
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _lies_in_body(code: CodeType, node: FunctionNode) -> bool:
    body: Any = node.body
    first, last = (body[0], body[-1]) if isinstance(body, list) else (body, body)
    low = (first.lineno, first.col_offset)
    high = (last.end_lineno, last.end_col_offset)
    return all((p[0], p[1]) >= low and (p[2], p[3]) <= high for p in _real_positions(code))


def _is_constant(code: CodeType, node: FunctionNode) -> bool:
    """Whether a lambda has the parameters of `code` and returns the same constant.  On CPython 3.12 the code object of such a
    lambda has no positions."""
    if not isinstance(node, ast.Lambda):
        return True
    alone = compile_again(ast.Expression(node), "<lambda>", "eval", 0)
    return any(_comparable_code(other) == _comparable_code(code) for other in nested_codes(alone))


def _comparable_code(code: CodeType) -> tuple[Any, ...]:
    arguments = code.co_varnames, code.co_argcount, code.co_kwonlyargcount, code.co_flags & _STARRED
    return code.co_code, repr(code.co_consts), *arguments  # 1 is equal to 1.0


def _class_around(code: CodeType) -> str | None:
    """The name of the innermost class around a definition, from its qualified name."""
    *around, _ = code.co_qualname.split(".")
    while around:
        name = around.pop()
        if name != "<locals>":
            return name
        around.pop()  # the function that has these locals
    return None


def _import_statement(filename: str, lines: list[str]) -> str:
    """An import statement that binds the names which the top-level imports of a file bind: CPython compiles calls of
    `module.function()` differently for these."""
    cached = _imports.get(filename)
    if cached is None or cached[0] is not lines:
        names: dict[str, None] = {}
        for match in _IMPORT.finditer("".join(lines)):
            for name, alias in _IMPORTED.findall(re.sub(r"#[^\n]*", "", match[1]).strip("()\n ")):
                if not keyword.iskeyword(alias or name):  # otherwise it is prose that begins like an import
                    names[alias or name] = None
        cached = lines, f"import {', '.join(names)}\n" if names else "\n"
        _put(_imports, filename, cached)
    return cached[1]


def _frame(filename: str, lines: list[str], code: CodeType) -> list[str] | None:
    """Lines that replace the lines before a definition.  They are as many, and have what the compiler needs to know of them:
    imports, a class for private names and super(), a function for free variables.  None if there are too few lines for these."""
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
    """Numbers of lines, from 0, before which a definition may end.  first: its first line.  last: its last line with code."""
    depth = len(lines[first]) - len(lines[first].lstrip())
    for number in range(last, len(lines)):
        text = lines[number].lstrip()
        if text and not text.startswith("#") and len(lines[number]) - len(text) <= depth:
            yield number
    yield len(lines)


def _in_excerpt(lines: list[str], code: CodeType) -> Located | None:
    """Step 1 of the module: find the definition from its own lines alone.  None only means that this does not work."""
    filename = code.co_filename
    first = code.co_firstlineno - 1
    if code.co_name == "<lambda>" or not 0 <= first < len(lines) or not lines[first].strip():
        return None
    frame = _frame(filename, lines, code)
    if frame is None:
        return None
    for end in itertools.islice(_ends(lines, first, last_line(code)), _ENDS):
        excerpt = _File("".join([*frame, *lines[first:end]]))
        try:
            excerpt.read(filename, code.co_flags & _FUTURE)
        except (SyntaxError, ValueError) as error:
            if is_foreign(error):
                raise
            continue
        candidates = [node for node, _ in excerpt.named(code)]
        if len(candidates) == 1 and _matches(excerpt, code):
            return Located(candidates[0], _class_around(code), code.co_flags & _FUTURE)
        return None
    return None


def _in_file(lines: list[str], code: CodeType) -> Located | None:
    """Step 2 of the module: find the definition in the whole file.  None if no definition there compiles to the code.  Raises
    NotConvertible if the file does not parse, or several definitions fit."""
    filename = code.co_filename
    parsed = _parse(filename, "".join(lines))
    if not _matches(parsed, code):
        return None
    candidates = parsed.named(code)
    if len(candidates) > 1:
        candidates = [(node, class_name) for node, class_name in candidates if _lies_in_body(code, node)]
        if not any(_real_positions(code)):
            candidates = [(node, class_name) for node, class_name in candidates if _is_constant(code, node)]
        if all(isinstance(node, ast.Lambda) for node, _ in candidates):  # of nested lambdas the innermost one is meant
            candidates = sorted(candidates, key=lambda candidate: _size(candidate[0]))[:1]
    if len(candidates) != 1:
        raise NotConvertible("ambiguous_source", f"{filename} line {code.co_firstlineno}")
    node, class_name = candidates[0]
    return Located(copy.deepcopy(node), class_name, code.co_flags & _FUTURE)


def declare(code: CodeType, located: Located) -> None:
    """Register the definition of `code`, for code that was compiled from a syntax tree without source text."""
    _declared[code] = located


def locate(code: CodeType, names: dict[str, Any] | None = None) -> Located:
    """The definition that `code` was compiled from.

    names: the globals of its function, which know the loader of its module.  Raises NotConvertible if there is no source, if the
    source has changed, or if it is ambiguous."""
    return _located(code, names or {})[0]


def _located(code: CodeType, names: dict[str, Any]) -> tuple[Located, str]:
    """(the definition, a text that contains it)."""
    declared = _declared.get(code)
    if declared is not None:
        return copy.deepcopy(declared), ""
    problem: NotConvertible | None = None
    for lines in sources(code, names):
        try:
            located = _in_excerpt(lines, code) or _in_file(lines, code)
        except NotConvertible as error:
            problem = problem or error
            continue
        if located is not None:
            return located, "".join(lines)
        problem = problem or NotConvertible("source_changed", f"{code.co_filename} line {code.co_firstlineno}")
    for text in given_sources(code):
        located = _in_excerpt(lines_of(text), code) or _in_given(text, code, names)
        if located is not None:
            return located, text
    raise problem or NotConvertible("no_source", describe_missing(code))


def give_source_of(code: CodeType, text: str, names: dict[str, Any]) -> None:
    """Search a text for the definitions of `code` and of other code of its file from now on.  Raises ValueError, without changing
    anything, if the text has no definition that compiles to `code`."""
    located = _in_given(text, code, names)
    if located is None:
        raise ValueError(
            f"no definition in source= compiles to the code of {code.co_qualname}, defined in {code.co_filename} line {code.co_firstlineno}"
        )
    give_source(text, code.co_filename)
    declare(code, located)


def source_of(code: CodeType, names: dict[str, Any]) -> str:
    """A text from which `give_source` lets `code` be found: that of its file, or of the definition alone if the file is long.
    Raises NotConvertible as `locate` does."""
    located, text = _located(code, names)
    excerpt = "".join(lines_of(text)[code.co_firstlineno - 1 : located.node.end_lineno]) if len(text) > _LONG else ""
    return excerpt if excerpt and _in_given(excerpt, code, names) is not None else text


def _in_given(text: str, code: CodeType, names: dict[str, Any]) -> Located | None:
    """Step 3 of the module: find the definition in a text in which its lines and its indentation may differ from those in the
    file of `code`. None if no definition there compiles to the code."""
    tree = _parsed(text, code)
    if tree is None:
        return None
    definitions: dict[int, list[tuple[FunctionNode, str | None]]] = {}
    _collect_definitions(tree, None, definitions)
    imports = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
    own = [(part.asname or part.name).partition(".")[0] for statement in imports for part in statement.names]
    modules = [name for name in code.co_names if isinstance(names.get(name), ModuleType)]
    for first, on_line in definitions.items():
        for node, _ in on_line:
            if code.co_name == ("<lambda>" if isinstance(node, ast.Lambda) else node.name):
                ast.increment_lineno(node, code.co_firstlineno - first)
                if any(_compiles_to(code, node, imported) for imported in (own, modules, [])):
                    return Located(node, _class_around(code), code.co_flags & _FUTURE)
                ast.increment_lineno(node, first - code.co_firstlineno)
    return None


def _parsed(text: str, code: CodeType) -> ast.Module | None:
    """The syntax tree of a text, whose first line may be indented; None if it does not parse."""
    for head in ("", "if True:\n"):
        try:
            tree = compile_again(head + text, code.co_filename, "exec", ast.PyCF_ONLY_AST | code.co_flags & _FUTURE)
        except (SyntaxError, ValueError) as error:
            if is_foreign(error):
                raise
        else:
            assert isinstance(tree, ast.Module)
            return tree
    return None


def _compiles_to(code: CodeType, node: FunctionNode, imported: Sequence[str]) -> bool:
    """Whether a definition that has the lines of `code` compiles to it, after its columns are moved to those of `code` if needed.
    imported: names that imports at the top of the file bind."""
    compiled = _compiled_alone(code, node, imported)
    if compiled is None or compiled == code:
        return compiled is not None
    before, after = (next(iter(sorted(_real_positions(x))), (0, 0, 0, 0)) for x in (compiled, code))
    columns = after[1] - before[1]
    if columns == 0 or before[0] != after[0]:
        return False
    _move_right(node, columns)
    if _compiled_alone(code, node, imported) == code:
        return True
    _move_right(node, -columns)
    return False


def _move_right(node: ast.AST, columns: int) -> None:
    for part in walk(node):
        if isinstance(part, ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.excepthandler | ast.pattern):
            part.col_offset += columns
            part.end_col_offset = (part.end_col_offset or 0) + columns


def _compiled_alone(code: CodeType, node: FunctionNode, imported: Sequence[str]) -> CodeType | None:
    """The code object of a definition, compiled inside a class and a function as those of `code` were: for private names and
    super(), and for free variables.  None if it does not compile."""
    inner: ast.stmt = ast.Expr(node) if isinstance(node, ast.Lambda) else node
    name = _class_around(code)
    if name is not None:
        inner = ast.ClassDef(name, [], [], [inner], [])
    if "<locals>" in code.co_qualname:
        free = [ast.arg(variable) for variable in code.co_freevars if variable != "__class__"]
        inner = ast.FunctionDef("around", ast.arguments([], free, None, [], [], None, []), [inner], [])
    imports: list[ast.stmt] = [ast.Import([ast.alias(x)]) for x in imported if x != "*"]
    module = fill_positions(ast.Module([*imports, inner], []))
    try:
        top = compile_again(module, code.co_filename, "exec", code.co_flags & _FUTURE)
    except (SyntaxError, ValueError) as error:
        if is_foreign(error):
            raise
        return None
    codes: dict[tuple[str, int], list[CodeType]] = {}
    _collect_codes(top, codes)
    return next(iter(codes.get((code.co_name, code.co_firstlineno), ())), None)


def _matches(parsed: _File, code: CodeType) -> bool:
    """Whether a compiled text has a code object that equals `code`."""
    return any(candidate == code for candidate in parsed.codes.get((code.co_name, code.co_firstlineno), ()))
