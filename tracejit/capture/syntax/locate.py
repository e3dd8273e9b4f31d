"""Find the syntax tree of a running code object.

Its text is parsed and compiled again; a function is accepted only if some code object of that compilation *equals* the running
one, so that text edited since it was imported is never mistaken for the program.  First only the lines of the definition are tried,
in a frame that stands for what is around them; where that does not give an equal code object, the whole file, which takes ten times as
long.  Lambdas of one line are told apart by the positions of their instructions.  A definition in a text that the program has given is
moved to the place that the code remembers, and compared there.  Where texts come from is the business of sources.py.

This module knows nothing of recordings.
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
from tracejit.capture.syntax.tree_walk import children, walk
from tracejit.core.interrupts import is_foreign
from tracejit.core.weak_table import WeakTable

__all__ = [
    "FunctionNode", "Located", "NotConvertible", "declare", "give_source_of", "locate", "nested_codes", "source_extent", "source_of",
]  # fmt: skip

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
_LONG: Final = 100_000  # characters that are pickled with a function
_ENDS: Final = 8  # lines at which a definition is tried to end, before the whole file is parsed


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
    known = _files.get(filename)
    if known is not None and known.text == text:
        return known
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


def _in_excerpt(lines: list[str], code: CodeType) -> Located | None:
    """The definition, from its own lines alone; None if that cannot be done, which says nothing."""
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
        found = [node for node, _ in excerpt.named(code)]
        if len(found) == 1 and _matches(excerpt, code):
            return Located(found[0], _class_around(code), code.co_flags & _FUTURE)
        return None
    return None


def _in_file(lines: list[str], code: CodeType) -> Located | None:
    """The definition, from the whole file; None if no definition there is that of the code.  Raises NotConvertible where it does not
    parse, or several definitions fit."""
    filename = code.co_filename
    parsed = _parse(filename, "".join(lines))
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


def locate(code: CodeType, names: dict[str, Any] | None = None) -> Located:
    """The definition that `code` was compiled from.

    names: the globals of its function, which tell where modules come from.  Raises NotConvertible when there is no source, when it no
    longer matches, or when it is ambiguous."""
    return _located(code, names or {})[0]


def _located(code: CodeType, names: dict[str, Any]) -> tuple[Located, str]:
    """The definition, and a text with it."""
    declared = _declared.get(code)
    if declared is not None:
        return copy.deepcopy(declared), ""
    problem: NotConvertible | None = None
    for lines in sources(code, names):
        try:
            found = _in_excerpt(lines, code) or _in_file(lines, code)
        except NotConvertible as error:
            problem = problem or error
            continue
        if found is not None:
            return found, "".join(lines)
        problem = problem or NotConvertible("source_changed", f"{code.co_filename} line {code.co_firstlineno}")
    for text in given_sources(code):
        found = _in_excerpt(lines_of(text), code) or _in_given(text, code, names)
        if found is not None:
            return found, text
    raise problem or NotConvertible("no_source", describe_missing(code))


def give_source_of(code: CodeType, text: str, names: dict[str, Any]) -> None:
    """From now on `code`, and other code of its file, is looked for in a text.  Raises ValueError, and nothing has changed, where the text
    has no definition that compiles to `code`."""
    found = _in_given(text, code, names)
    if found is None:
        raise ValueError(
            f"no definition in source= compiles to the code of {code.co_qualname}, defined in {code.co_filename} line {code.co_firstlineno}"
        )
    give_source(text, code.co_filename)
    declare(code, found)


def source_of(code: CodeType, names: dict[str, Any]) -> str:
    """A text in which `code` is found where it is given: its file, or the definition alone if that is long.  Raises NotConvertible as
    `locate` does."""
    located, text = _located(code, names)
    excerpt = "".join(lines_of(text)[code.co_firstlineno - 1 : located.node.end_lineno]) if len(text) > _LONG else ""
    return excerpt if excerpt and _in_given(excerpt, code, names) is not None else text


def _in_given(text: str, code: CodeType, names: dict[str, Any]) -> Located | None:
    """The definition, from a text in which it may stand on other lines, and be indented less or more, than where `code` was compiled; None
    if no definition there is that of the code."""
    tree = _parsed(text, code)
    if tree is None:
        return None
    definitions: dict[int, list[tuple[FunctionNode, str | None]]] = {}
    _collect_definitions(tree, None, definitions)
    imports = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
    own = [(part.asname or part.name).partition(".")[0] for statement in imports for part in statement.names]
    modules = [name for name in code.co_names if isinstance(names.get(name), ModuleType)]
    for first, found in definitions.items():
        for node, _ in found:
            if code.co_name == ("<lambda>" if isinstance(node, ast.Lambda) else node.name):
                ast.increment_lineno(node, code.co_firstlineno - first)
                if any(_compiles_to(code, node, imported) for imported in (own, modules, [])):
                    return Located(node, _class_around(code), code.co_flags & _FUTURE)
                ast.increment_lineno(node, first - code.co_firstlineno)
    return None


def _parsed(text: str, code: CodeType) -> ast.Module | None:
    """The syntax tree of a text, whose first line may be indented; None where it does not parse."""
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
    """Whether a definition, on the lines of `code`, compiles to it; it may be moved to the columns of `code` for that.  imported: names
    that imports at the top of the file bind."""
    made = _compiled_alone(code, node, imported)
    if made is None or made == code:
        return made is not None
    before, after = (next(iter(sorted(_real_positions(x))), (0, 0, 0, 0)) for x in (made, code))
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
    """A definition, compiled inside of what `code` was inside of: a class for private names and super(), a function for free variables."""
    inner: ast.stmt = ast.Expr(node) if isinstance(node, ast.Lambda) else node
    name = _class_around(code)
    if name is not None:
        inner = ast.ClassDef(name, [], [], [inner], [])
    if "<locals>" in code.co_qualname:
        free = [ast.arg(variable) for variable in code.co_freevars if variable != "__class__"]
        inner = ast.FunctionDef("around", ast.arguments([], free, None, [], [], None, []), [inner], [])
    imports: list[ast.stmt] = [ast.Import([ast.alias(x)]) for x in imported if x != "*"]
    module = ast.fix_missing_locations(ast.Module([*imports, inner], []))
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
    return any(known == code for known in parsed.codes.get((code.co_name, code.co_firstlineno), ()))
