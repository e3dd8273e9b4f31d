"""Source text to instrumented code.

`convert(code)` returns a code object with the same signature, names, lines and free variables (plus one, `__capture__`) in which
every load of a global, cell, attribute or item, every store, call, operator, truth test and iteration goes through
`__capture__`, an object with the methods of `frame.CaptureFrame`.  Nested functions stay the original code objects: they are converted
when they are called; bodies of classes run where they stand, so they are part of the function, as comprehensions are.  What is
rewritten stands in rewrite.py; here a code object is made of it.  No tensors, guards or recordings.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Sequence
from inspect import CO_OPTIMIZED
from types import CodeType
from typing import Any, Final

from tracejit.capture.syntax.compiling import compile_again
from tracejit.capture.syntax.expressions import CAPTURE
from tracejit.capture.syntax.locate import Located, NotConvertible, give_source_of, locate, source_extent
from tracejit.capture.syntax.loops import lines_ending_while
from tracejit.capture.syntax.rewrite import CELLS, Rewriter
from tracejit.capture.syntax.sources import nested_codes
from tracejit.core.package_files import is_own_code
from tracejit.core.weak_table import WeakTable

__all__ = [
    "CAPTURE", "INSTRUMENTED", "OF_PACKAGE", "compiled_as", "convert", "convert_with_source", "ends_while", "is_instrumented",
    "original_of",
]  # fmt: skip

_ASYNCHRONOUS = 0x80 | 0x100 | 0x200  # coroutine, iterable coroutine, asynchronous generator
_TEXTS = (str, bytes)
_INLINE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_instrumented: WeakTable[bool] = WeakTable()  # instrumented code, the comprehensions and the bodies of classes inside it
_of_package: WeakTable[bool] = WeakTable()  # that which stands in files of the package
INSTRUMENTED: Final = _instrumented.ids()
OF_PACKAGE: Final = _of_package.ids()
_ends: WeakTable[frozenset[int]] = WeakTable()  # instrumented code -> the lines of `lines_ending_while`
_originals: WeakTable[weakref.ref[CodeType]] = WeakTable()  # instrumented code -> what it was made of
_converted: WeakTable[CodeType | tuple[str, str]] = WeakTable()  # original code -> instrumented code, or why there is none


def is_instrumented(code: CodeType) -> bool:
    """Whether `code` was made by `convert`."""
    return id(code) in INSTRUMENTED


def ends_while(code: CodeType, line: int) -> bool:
    """Whether what is decided at a line of instrumented code may end a `while` loop."""
    return line in (_ends.get(code) or ())


def original_of(code: CodeType) -> CodeType | None:
    """The code that was instrumented; None for that of comprehensions and bodies of classes, which are part of a function."""
    original = _originals.get(code)
    return None if original is None else original()


def convert(code: CodeType, names: dict[str, Any] | None = None) -> CodeType:
    """Instrumented code for `code`.  names: the globals of its function, which tell where modules come from.  Raises NotConvertible; the
    answer is remembered either way."""
    known = _converted.get(code) or _convert_first(code, names)
    if isinstance(known, tuple):
        raise NotConvertible(*known)
    return known


def _convert_first(code: CodeType, names: dict[str, Any] | None) -> CodeType | tuple[str, str]:
    known: CodeType | tuple[str, str]
    try:
        known = _convert(code, names)
    except NotConvertible as error:
        known = error.code, error.detail
    except RecursionError:
        known = "unsupported_syntax", f"the deeply nested source of {code.co_qualname}"
    _converted[code] = known
    return known


def convert_with_source(code: CodeType, text: str, names: dict[str, Any]) -> None:
    """From now on `code` is converted from a text, in which other code of its file is looked for, too.  Raises ValueError where the text
    has no definition that compiles to `code`."""
    give_source_of(code, text, names)
    _convert_again(code, names)


def _convert_again(code: CodeType, names: dict[str, Any]) -> None:
    """Try again what could not be converted: `code`, and functions inside it."""
    if isinstance(_converted.get(code), tuple):
        _convert_first(code, names)
    for inner in nested_codes(code):
        _convert_again(inner, names)


def _without_annotations(arguments: ast.arguments) -> None:
    """Defaults are bound by the function object that is made later; only their number matters."""
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [ast.Constant(None) if d else None for d in arguments.kw_defaults]
    variadic = [a for a in (arguments.vararg, arguments.kwarg) if a]
    for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs + variadic:
        argument.annotation = None


def _find(code: CodeType, name: str) -> CodeType | None:
    for inner in nested_codes(code):
        if inner.co_name == name:
            return inner
        found = _find(inner, name)
        if found is not None:
            return found
    return None


def _collect_originals(code: CodeType, into: dict[Any, CodeType]) -> None:
    for inner in nested_codes(code):
        if inner.co_name in _INLINE:
            _collect_originals(inner, into)
        else:
            into[source_extent(inner)] = inner


def _collect_texts(code: CodeType, into: dict[Any, Any]) -> None:
    """The texts and sets among the constants of a function and of what is inside it, its own above all."""
    for inner in nested_codes(code):
        _collect_texts(inner, into)
    waiting = list(code.co_consts)
    while waiting:
        constant = waiting.pop()
        if type(constant) in _TEXTS:
            into[constant] = constant
        elif type(constant) is frozenset:
            into[_meaning_of_set(constant)] = constant
        elif type(constant) is tuple:
            waiting += constant


def _meaning_of_set(constant: frozenset[Any]) -> frozenset[tuple[type, str]]:
    return frozenset([(type(element), repr(element)) for element in constant])  # 1 is equal to 1.0


def _with_texts(constant: Any, known: dict[Any, Any]) -> Any:
    """A constant with the program's own texts and sets.  Displays of constants are made from such a set, whose order is another one where
    the code was read from a file of bytecode.  A tuple stays one of its own: the compiler makes one object for a whole module, and a tuple
    that the program has kept somewhere would be taken for what is there."""
    if type(constant) in _TEXTS:
        return known.get(constant, constant)
    if type(constant) is frozenset:
        return known.get(_meaning_of_set(constant), constant)
    return tuple([_with_texts(item, known) for item in constant]) if type(constant) is tuple and constant else constant


def _with_originals(code: CodeType, originals: dict[Any, CodeType], known: dict[Any, Any]) -> CodeType:
    """`code` with each nested function and each text replaced by the original: their identity is visible to programs."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            constant = _with_texts(constant, known)
        else:
            if constant.co_name in _INLINE:
                inside = ".<locals>" if code.co_flags & CO_OPTIMIZED else ""
                qualname = f"{code.co_qualname}{inside}.{constant.co_name}"  # generators show it
                constant = _with_originals(constant.replace(co_qualname=qualname), originals, known)
            elif _is_class_body(constant):
                constant = _class_body(constant, originals, known)
            elif CELLS not in constant.co_varnames:
                original = originals.get(source_extent(constant))
                if original is None or original.co_freevars != constant.co_freevars:
                    raise NotConvertible("unsupported_syntax", f"the nested definition {constant.co_name}")
                constant = original
        constants.append(constant)
    return code.replace(co_consts=tuple(constants))


def _is_class_body(code: CodeType) -> bool:
    """Whether it is the instrumented body of a class."""
    return CAPTURE in code.co_freevars and not code.co_flags & CO_OPTIMIZED


def _class_body(code: CodeType, originals: dict[Any, CodeType], known: dict[Any, Any]) -> CodeType:
    """The body of a class, with the names and the nested functions of the original."""
    place = code.co_name, code.co_firstlineno
    original = next((known for (name, line, *_), known in originals.items() if (name, line) == place), None)
    if original is None or original.co_flags & CO_OPTIMIZED:
        raise NotConvertible("unsupported_syntax", f"the class {code.co_name}")
    inside: dict[Any, CodeType] = {}
    _collect_originals(original, inside)
    qualname = original.co_qualname  # which the body gives to the class
    constants = tuple([qualname if constant == code.co_qualname else constant for constant in code.co_consts])
    return _with_originals(code.replace(co_qualname=qualname, co_consts=constants), inside, known)


def _remember(code: CodeType) -> None:
    _instrumented[code] = True
    if is_own_code(code):
        _of_package[code] = True
    for inner in nested_codes(code):
        if inner.co_name in _INLINE or _is_class_body(inner):
            _remember(inner)


def _convert(code: CodeType, names: dict[str, Any] | None) -> CodeType:
    if code.co_flags & _ASYNCHRONOUS:
        raise NotConvertible("unsupported_syntax", "a coroutine or asynchronous generator")
    located = locate(code, names)
    node = located.node
    ends = lines_ending_while(node)
    rewriter = Rewriter(code, located.class_name, node)
    _without_annotations(node.args)
    name = "__instrumented__"  # a name of its own: the function's stays a global or free variable
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        name = "<lambda>"
        node.body = rewriter.returned(node.body)
        inner = rewriter.place(ast.Return(node), node)
    elif isinstance(node, ast.FunctionDef):
        node.body = rewriter.function_body(node)
        node.decorator_list, node.returns, node.name = [], None, name
        node.lineno = code.co_firstlineno  # of the first decorator: lines of code are counted from there
        inner = node
    else:
        raise NotConvertible("unsupported_syntax", "a coroutine")
    result = _compiled(code, located, inner, name, (CAPTURE, *code.co_freevars))
    _remember(result)
    _originals[result] = weakref.ref(code)
    if ends:
        _ends[result] = ends
    return result


def compiled_as(code: CodeType, located: Located, more: Sequence[str] = ()) -> CodeType:
    """A definition, which was made of that of `code`, as a code object in its place: with its name, its free variables, those that `more`
    names after them, and the nested functions that it has.  Raises NotConvertible."""
    node = located.node
    assert isinstance(node, ast.FunctionDef)
    _without_annotations(node.args)
    node.decorator_list, node.returns, node.name = [], None, "__made__"
    return _compiled(code, located, node, node.name, (*code.co_freevars, *more))


def _compiled(code: CodeType, located: Located, inner: ast.stmt, name: str, variables: Sequence[str]) -> CodeType:
    """The code of a statement that defines a function, or returns one.  variables: those that may be free in it."""
    free = [ast.arg(variable) for variable in variables]
    factory: ast.stmt = ast.FunctionDef("__factory__", ast.arguments([], free, None, [], [], None, []), [inner], [], None)
    if located.class_name is not None:  # private names are mangled by the class around them
        factory = ast.ClassDef(located.class_name, [], [], [factory], [])
    module = ast.fix_missing_locations(ast.Module([factory], []))
    top = compile_again(module, code.co_filename, "exec", located.flags)
    made = _find(top, "__factory__")
    result = _find(made, name) if made is not None else None
    if result is None:
        raise NotConvertible("unsupported_syntax", code.co_qualname)
    originals: dict[Any, CodeType] = {}
    known: dict[Any, Any] = {}
    _collect_originals(code, originals)
    _collect_texts(code, known)
    result = result.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    return _with_originals(result, originals, known)
