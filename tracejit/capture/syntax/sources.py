"""The texts in which the definition of a running code object may stand, each as lines: whoever asks compares them with the code.

Files and cells of notebooks come from linecache, modules in archives from their loaders.  Python keeps no text of what `-c` and standard
input gave: the command is among the arguments of the process, a file that is standard input can be read again, and what was typed is in the
history of readline.  Modules of the standard library that are frozen, and functions that cloudpickle has pickled by value, have the file
among their globals.  Texts that the program has given are kept here by the name of the file that code says it is of, those that came with
pickled functions together.
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

_COMMAND: Final = re.compile(
    r"-[a-zA-Z]*?c(.*)", re.DOTALL
)  # alone, behind other flags, with its text in the same argument or the next
_UNPICKLED: Final = "<dynamic-code"  # what cloudpickle calls the file of a function
_TYPED: Final = ("<stdin>", "<console>")
_HISTORY: Final = 5000  # lines that are looked through
_ENDS: Final = 4  # lines behind the last one with code in which a definition may end
_TEXTS: Final = 1024  # that are kept of a file, and of pickled functions
_given: dict[str, dict[str, None]] = {}  # file -> texts, the latest last


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects directly inside `code`."""
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def last_line(code: CodeType) -> int:
    """The last line of the instructions of a definition."""
    lines = (end for _, end, _, _ in code.co_positions() if end is not None)
    return max((*lines, *map(last_line, nested_codes(code))), default=code.co_firstlineno)


def sources(code: CodeType, names: dict[str, Any]) -> Iterator[list[str]]:
    """Lines of files in which the definition of `code` may stand, at its place.  names: the globals of the function, which know the loader
    of its module."""
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
    """From now on definitions of code of a file (of any, if it has no name) are looked for in the text, too, wherever in it they stand."""
    texts = _given.setdefault(filename, {})
    texts.pop(text, None)
    texts[text] = None
    while len(texts) > _TEXTS:
        texts.pop(next(iter(list(texts)), ""), None)


def given_sources(code: CodeType) -> list[str]:
    """The texts that were given in which the definition may stand, the latest first."""
    name = code.co_name.strip("<>")
    return [text for key in (code.co_filename, "") for text in reversed(list(_given.get(key, ()))) if name in text]


def describe_missing(code: CodeType) -> str:
    """What has no source text, and why."""
    why = {
        "<string>": "which exec() or eval() of a text has defined",
        "<stdin>": "which was read from standard input and cannot be read again",
        "<console>": "which was typed at a prompt without a history",
        "<dynamic-code>": "which came pickled by value, without its source",
    }.get(code.co_filename, f"whose file {code.co_filename} is not here")
    return f"{code.co_qualname}, {why}"


def lines_of(text: str) -> list[str]:
    lines = io.StringIO(text).readlines()  # at the ends that Python's own parser knows
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _commands() -> Iterator[str]:
    """What may be the text of `python -c text`."""
    for argument, following in itertools.zip_longest(sys.orig_argv[1:], sys.orig_argv[2:], fillvalue=""):
        found = None if argument.startswith("--") else _COMMAND.fullmatch(argument)
        if found is not None and (text := found[1] or following):
            yield text
            if (dedented := textwrap.dedent(text)) != text:  # Python 3.14 does that
                yield dedented


def _standard_input() -> Iterator[str]:
    """The text of the file that is standard input, if it is one."""
    with suppress(OSError, SyntaxError, ValueError):
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode):
            content = os.pread(0, status.st_size, 0)
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            yield io.TextIOWrapper(io.BytesIO(content), encoding).read()


def _typed(code: CodeType) -> Iterator[list[str]]:
    """Parts of the history of readline that may be the statement with the definition of `code`, the latest first."""
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
