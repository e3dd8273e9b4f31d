"""Source text to instrumented code.

`convert(code)` returns a code object with the same signature, names, lines and free variables (plus one, `__capture__`).  In it
every load of a global, cell, attribute or item, every store, call, operator, truth test and iteration goes through `__capture__`,
an object with the methods of `frame.CaptureFrame`.  Nested functions remain the original code objects, which are converted when
they are called. Bodies of classes and comprehensions run as a part of the function, and are converted with it.

rewrite.py and expressions.py rewrite the syntax tree; this module compiles the result to a code object.
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
from tracejit.capture.syntax.tree_walk import fill_positions
from tracejit.core.package_files import is_own_code
from tracejit.core.weak_table import WeakTable

__all__ = [
    "CAPTURE", "INSTRUMENTED", "OF_PACKAGE", "compiled_as", "convert", "convert_with_source", "ends_while", "instrument",
    "is_instrumented", "original_of",
]  # fmt: skip

_ASYNCHRONOUS = 0x80 | 0x100 | 0x200  # coroutine, iterable coroutine, asynchronous generator
_TEXTS = (str, bytes)
_INLINE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_instrumented: WeakTable[bool] = WeakTable()  # instrumented code, with the comprehensions and bodies of classes inside it
_of_package: WeakTable[bool] = WeakTable()  # the part of it that is from files of the package
INSTRUMENTED: Final = _instrumented.ids()
OF_PACKAGE: Final = _of_package.ids()
_ends: WeakTable[frozenset[int]] = WeakTable()  # instrumented code -> the lines of `lines_ending_while`
_originals: WeakTable[weakref.ref[CodeType]] = WeakTable()  # instrumented code -> the original code
_converted: WeakTable[CodeType | tuple[str, str]] = WeakTable()  # original code -> instrumented code, or why there is none


def is_instrumented(code: CodeType) -> bool:
    """Whether `code` is a result of `convert`."""
    return id(code) in INSTRUMENTED


def ends_while(code: CodeType, line: int) -> bool:
    """Whether a decision at a line of instrumented code may end a `while` loop."""
    return line in (_ends.get(code) or ())


def original_of(code: CodeType) -> CodeType | None:
    """The original of instrumented code; None for comprehensions and bodies of classes, which are parts of a function."""
    original = _originals.get(code)
    return None if original is None else original()


def convert(code: CodeType, names: dict[str, Any] | None = None) -> CodeType:
    """Instrumented code for `code`.  names: the globals of its function, which know the loader of its module.  Raises
    NotConvertible.  The result, or the reason why there is none, is cached."""
    result = _converted.get(code) or _convert_first(code, names)
    if isinstance(result, tuple):
        raise NotConvertible(*result)
    return result


def _convert_first(code: CodeType, names: dict[str, Any] | None) -> CodeType | tuple[str, str]:
    """Convert `code` and cache the result: instrumented code, or (reason, detail)."""
    result: CodeType | tuple[str, str]
    try:
        result = _convert(code, names)
    except NotConvertible as error:
        result = error.code, error.detail
    except RecursionError:
        result = "unsupported_syntax", f"the deeply nested source of {code.co_qualname}"
    _converted[code] = result
    return result


def convert_with_source(code: CodeType, text: str, names: dict[str, Any]) -> None:
    """Convert `code` from a text from now on; other code of its file is searched for in the text, too.  Raises ValueError if the
    text has no definition that compiles to `code`."""
    give_source_of(code, text, names)
    _convert_again(code, names)


def _convert_again(code: CodeType, names: dict[str, Any]) -> None:
    """Convert `code`, and functions inside it, again if they could not be converted before."""
    if isinstance(_converted.get(code), tuple):
        _convert_first(code, names)
    for inner in nested_codes(code):
        _convert_again(inner, names)


def _without_annotations(arguments: ast.arguments) -> None:
    """Remove annotations, and replace defaults by None: the function object has the real ones, so only their number matters
    here."""
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [ast.Constant(None) if d else None for d in arguments.kw_defaults]
    variadic = [a for a in (arguments.vararg, arguments.kwarg) if a]
    for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs + variadic:
        argument.annotation = None


def _find(code: CodeType, name: str) -> CodeType | None:
    """The first code object of this name that is nested in `code`."""
    for inner in nested_codes(code):
        if inner.co_name == name:
            return inner
        deeper = _find(inner, name)
        if deeper is not None:
            return deeper
    return None


def _collect_originals(code: CodeType, into: dict[Any, CodeType]) -> None:
    for inner in nested_codes(code):
        if inner.co_name in _INLINE:
            _collect_originals(inner, into)
        else:
            into[source_extent(inner)] = inner


def _collect_texts(code: CodeType, into: dict[Any, Any]) -> None:
    """Collect the texts and frozensets among the constants of a function and of code nested in it; its own take precedence."""
    for inner in nested_codes(code):
        _collect_texts(inner, into)
    pending = list(code.co_consts)
    while pending:
        constant = pending.pop()
        if type(constant) in _TEXTS:
            into[constant] = constant
        elif type(constant) is frozenset:
            into[_typed_elements(constant)] = constant
        elif type(constant) is tuple:
            pending += constant


def _typed_elements(constant: frozenset[Any]) -> frozenset[tuple[type, str]]:
    return frozenset([(type(element), repr(element)) for element in constant])  # 1 is equal to 1.0


def _with_texts(constant: Any, texts: dict[Any, Any]) -> Any:
    """A constant in which texts and frozensets are replaced by the original code's own objects.  texts: these, from
    `_collect_texts`.

    A set display of constants (`{1, 2}`) iterates over such a frozenset, whose order differs if the original code was read from a
    file of bytecode.  A tuple gets a new object: the compiler creates one object for a whole module, so a tuple that user code
    has stored somewhere would be mistaken for the constant."""
    if type(constant) in _TEXTS:
        return texts.get(constant, constant)
    if type(constant) is frozenset:
        return texts.get(_typed_elements(constant), constant)
    return tuple([_with_texts(item, texts) for item in constant]) if type(constant) is tuple and constant else constant


def _with_originals(code: CodeType, originals: dict[Any, CodeType], texts: dict[Any, Any]) -> CodeType:
    """`code` with each nested function and each text replaced by the original object, since user code can see their identity."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            constant = _with_texts(constant, texts)
        else:
            if constant.co_name in _INLINE:
                inside = ".<locals>" if code.co_flags & CO_OPTIMIZED else ""
                qualname = f"{code.co_qualname}{inside}.{constant.co_name}"  # visible as `__qualname__` of generators
                constant = _with_originals(constant.replace(co_qualname=qualname), originals, texts)
            elif _is_class_body(constant):
                constant = _class_body(constant, originals, texts)
            elif CELLS not in constant.co_varnames:
                original = originals.get(source_extent(constant))
                if original is None or original.co_freevars != constant.co_freevars:
                    raise NotConvertible("unsupported_syntax", f"the nested definition {constant.co_name}")
                constant = original
        constants.append(constant)
    return code.replace(co_consts=tuple(constants))


def _is_class_body(code: CodeType) -> bool:
    """Whether `code` is the instrumented body of a class."""
    return CAPTURE in code.co_freevars and not code.co_flags & CO_OPTIMIZED


def _class_body(code: CodeType, originals: dict[Any, CodeType], texts: dict[Any, Any]) -> CodeType:
    """The instrumented body of a class, with the names and the nested functions of the original."""
    key = code.co_name, code.co_firstlineno
    original = next((body for (name, line, *_), body in originals.items() if (name, line) == key), None)
    if original is None or original.co_flags & CO_OPTIMIZED:
        raise NotConvertible("unsupported_syntax", f"the class {code.co_name}")
    inside: dict[Any, CodeType] = {}
    _collect_originals(original, inside)
    qualname = original.co_qualname  # the body assigns it to `__qualname__`
    constants = tuple([qualname if constant == code.co_qualname else constant for constant in code.co_consts])
    return _with_originals(code.replace(co_qualname=qualname, co_consts=constants), inside, texts)


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
    return instrument(code, locate(code, names))


def instrument(code: CodeType, located: Located) -> CodeType:
    """Instrumented code for `code`, made of a definition that does what that of `code` does.  Raises NotConvertible."""
    node = located.node
    ends = lines_ending_while(node)
    rewriter = Rewriter(code, located.class_name, node)
    _without_annotations(node.args)
    name = "__instrumented__"  # another name than the function's, which has to remain a global or free variable
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        name = "<lambda>"
        node.body = rewriter.returned(node.body)
        inner = rewriter.located(ast.Return(node), node)
    elif isinstance(node, ast.FunctionDef):
        node.body = rewriter.function_body(node)
        node.decorator_list, node.returns, node.name = [], None, name
        node.lineno = code.co_firstlineno  # of the first decorator, from which the lines of a code object are counted
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
    """Compile a definition that was derived from the one of `code`, to a code object that can replace `code`: with its name, its
    free variables and then those named in `more`, and its nested functions.  Raises NotConvertible."""
    node = located.node
    assert isinstance(node, ast.FunctionDef)
    _without_annotations(node.args)
    node.decorator_list, node.returns, node.name = [], None, "__made__"
    return _compiled(code, located, node, node.name, (*code.co_freevars, *more))


def _compiled(code: CodeType, located: Located, inner: ast.stmt, name: str, variables: Sequence[str]) -> CodeType:
    """The code of the function `name` that a statement defines or returns.  variables: names that may be free variables in it."""
    free = [ast.arg(variable) for variable in variables]
    factory: ast.stmt = ast.FunctionDef("__factory__", ast.arguments([], free, None, [], [], None, []), [inner], [], None)
    if located.class_name is not None:  # private names are mangled by the class around them
        factory = ast.ClassDef(located.class_name, [], [], [factory], [])
    module = fill_positions(ast.Module([factory], []))
    top = compile_again(module, code.co_filename, "exec", located.flags)
    factory_code = _find(top, "__factory__")
    result = _find(factory_code, name) if factory_code is not None else None
    if result is None:
        raise NotConvertible("unsupported_syntax", code.co_qualname)
    originals: dict[Any, CodeType] = {}
    texts: dict[Any, Any] = {}
    _collect_originals(code, originals)
    _collect_texts(code, texts)
    result = result.replace(co_name=code.co_name, co_qualname=code.co_qualname)
    return _with_originals(result, originals, texts)
