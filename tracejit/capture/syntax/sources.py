"""Source texts that may contain the definition of a code object, each as a list of lines.  Callers check whether they do
(locate.py).

* Files, cells of notebooks: linecache.  Modules in archives: their loaders.
* `python -c text`: the arguments of the process.  Standard input: read again, if it is a file; the history of readline for typed
  text.  Python itself keeps none of these.
* Frozen modules of the standard library, functions that cloudpickle has pickled by value: the file that their globals name.
* Texts that the user has passed, by the file that the code object names; texts that came with pickled functions (under "").
"""

from __future__ import annotations

import io
import itertools
import linecache
import os
import re
import stat
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, Final

__all__ = ["describe_missing", "give_source", "given_sources", "last_line", "lines_of", "nested_codes", "sources"]

# `-c`, also with other flags before it, and with its text in the same argument or the next.
_COMMAND: Final = re.compile(r"-[a-zA-Z]*?c(.*)", re.DOTALL)
_UNPICKLED: Final = "<dynamic-code"  # prefix of the file name that cloudpickle gives to code
_TYPED: Final = ("<stdin>", "<console>")
_HISTORY: Final = 5000  # lines of the history that are searched
_ENDS: Final = 4  # a definition may end so many lines after its last line with code
_TEXTS: Final = 1024  # texts that are kept for each file, and for pickled functions
_given: dict[str, dict[str, None]] = {}  # file, or "" -> texts, the latest last


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects directly inside `code`."""
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def last_line(code: CodeType) -> int:
    """The last line of the instructions of `code` and of code nested in it."""
    lines = (end for _, end, _, _ in code.co_positions() if end is not None)
    return max((*lines, *map(last_line, nested_codes(code))), default=code.co_firstlineno)


def sources(code: CodeType, names: dict[str, Any]) -> Iterator[list[str]]:
    """Texts that may have the definition of `code` on the lines that the code names.  names: the globals of the function, which
    know the loader of its module."""
    filename = code.co_filename
    if filename.startswith(("<frozen", _UNPICKLED)) and isinstance(names.get("__file__"), str):
        filename = names["__file__"]
    lines = linecache.getlines(filename, names)
    if lines:
        yield lines
        linecache.checkcache(filename)
        again = linecache.getlines(filename, names)
        if again is not lines:
            yield again
    if filename == "<string>":
        yield from map(lines_of, _commands())
    elif filename in _TYPED:
        yield from map(lines_of, _standard_input())
        yield from _typed(code)


def give_source(text: str, filename: str = "") -> None:
    """Search the text, too, for definitions of code of this file ("": of any file) from now on.  They may be on any lines of
    it."""
    texts = _given.setdefault(filename, {})
    texts.pop(text, None)
    texts[text] = None
    while len(texts) > _TEXTS:
        texts.pop(next(iter(list(texts)), ""), None)


def given_sources(code: CodeType) -> list[str]:
    """The texts of `give_source` that may have the definition of `code`, the latest first."""
    name = code.co_name.strip("<>")
    return [text for key in (code.co_filename, "") for text in reversed(list(_given.get(key, ()))) if name in text]


def describe_missing(code: CodeType) -> str:
    """The detail of the reason "no_source": which function has no source text, and why."""
    why = {
        "<string>": "which exec() or eval() of a text has defined",
        "<stdin>": "which was read from standard input and cannot be read again",
        "<console>": "which was typed at a prompt without a history",
        "<dynamic-code>": "which came pickled by value, without its source",
    }.get(code.co_filename, f"whose file {code.co_filename} is not here")
    return f"{code.co_qualname}, {why}"


def lines_of(text: str) -> list[str]:
    lines = io.StringIO(text).readlines()  # splits at the ends of lines that Python's parser knows, unlike str.splitlines
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _commands() -> Iterator[str]:
    """The arguments that may be the text of `python -c text`."""
    for argument, following in itertools.zip_longest(sys.orig_argv[1:], sys.orig_argv[2:], fillvalue=""):
        match = None if argument.startswith("--") else _COMMAND.fullmatch(argument)
        if match is not None and (text := match[1] or following):
            yield text
            if (dedented := textwrap.dedent(text)) != text:  # Python 3.14 does that
                yield dedented


def _standard_input() -> Iterator[str]:
    """The text of standard input, if that is a file."""
    with suppress(OSError, SyntaxError, ValueError):
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode):
            content = os.pread(0, status.st_size, 0)
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            yield io.TextIOWrapper(io.BytesIO(content), encoding).read()


def _typed(code: CodeType) -> Iterator[list[str]]:
    """Parts of the history of readline that may be the statement that defines `code`, the latest first."""
    readline: Any = sys.modules.get("readline")
    if readline is None:
        return
    count = readline.get_current_history_length()
    items = [readline.get_history_item(i) for i in range(max(1, count - _HISTORY + 1), count + 1)]
    history = [line for item in items if item for line in lines_of(item)]
    size = last_line(code)
    for start in range(len(history) - size, -1, -1):
        if code.co_name == "<lambda>":
            if "lambda" not in "".join(history[start : start + size]):
                continue
        elif not any(f"def {code.co_name}" in line for line in history[start + code.co_firstlineno - 1 : start + size]):
            continue
        for end in range(start + size, min(start + size + _ENDS, len(history)) + 1):
            yield history[start:end]
