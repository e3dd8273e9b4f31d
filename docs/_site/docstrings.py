"""Docstrings as Markdown.  Docstrings of the library are plain text: paragraphs, lines `name: what it is`, indented text, doctests.

A name in backquotes is code; every other character means itself.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection

_CODE = re.compile(r"(``[^`\n]+``|`[^`\n]+`)")
_SPECIAL = re.compile(r"([\\*_<>\[\]#|~{}!$&`])")
_PAGE = re.compile(r"docs/([\w-]+\.md)")
_LIST_ITEM = re.compile(r"^([*-]|\d+[.)])\s+")
_PARAMETER = re.compile(r"^(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): +(?=\S)")


def escaped(text: str) -> str:
    """Plain text as Markdown that shows it: code in backquotes stays code, pages (docs/equality.md) become links from a folder of docs/."""
    parts = _CODE.split(" ".join(text.split()))
    line = "".join(
        part if index % 2 else _PAGE.sub(r"[\1](../\1)", _SPECIAL.sub(r"\\\1", part)) for index, part in enumerate(parts)
    )
    return re.sub(r"^(\d+)([.)])(?=\s)|^([+=-])", lambda m: f"{m[1]}\\{m[2]}" if m[1] else f"\\{m[3]}", line)


def summary(text: str) -> str:
    """The first paragraph, as Markdown."""
    return escaped(text.strip().split("\n\n")[0])


def to_markdown(text: str, parameters: Collection[str] = ()) -> str:
    """A docstring, as `inspect.getdoc` gives it, as Markdown.

    parameters: names whose lines `name: text` become items of a list.
    """
    blocks = [block for block in re.split(r"\n[ \t]*\n", text.strip("\n")) if block.strip()]
    out: list[str] = []
    in_doctest = False
    for block in blocks:
        plain = textwrap.dedent(block)
        indented = block.startswith("    ")
        if plain.startswith(">>> ") or (in_doctest and indented):
            out.append(f"```pycon\n{plain}\n```")
            in_doctest = True
            continue
        in_doctest = False
        if plain.strip() in ("Example:", "Examples:"):
            continue  # the code that follows is one
        if indented:
            out.append(f"```text\n{plain}\n```")
        else:
            before, found, after = block.partition("\n>>> ")
            out.extend(_paragraphs(before, parameters))
            if found:
                out.append(f"```pycon\n{textwrap.dedent(found.lstrip() + after)}\n```")
    return "\n\n".join(out)


def _paragraphs(block: str, parameters: Collection[str]) -> list[str]:
    """The paragraphs and lists of a block of lines without an empty line."""
    items: list[tuple[str, str]] = []  # how a paragraph begins, and its text
    for line in block.split("\n"):
        item, parameter = _LIST_ITEM.match(line), _PARAMETER.match(line)
        if item:
            items.append(("* ", line[item.end() :]))
        elif parameter and all(name.lstrip("*") in parameters for name in parameter[1].split(", ")):
            items.append((f"* **{escaped(parameter[1])}**: ", line[parameter.end() :]))
        elif items:
            items[-1] = (items[-1][0], f"{items[-1][1]}\n{line}")
        else:
            items.append(("", line))
    paragraphs: list[str] = []
    for start, text in items:
        if start and paragraphs and paragraphs[-1].startswith("* "):
            paragraphs[-1] += f"\n{start}{escaped(text)}"
        else:
            paragraphs.append(start + escaped(text))
    return paragraphs
