"""Keywords that are no texts: some functions of C code take them, `"{a}".format(**{"a": 1, 5: 2})`, where functions in Python, as the
recorder's are, refuse them.  On the way through those, texts stand for them."""

from __future__ import annotations

from typing import Any

__all__ = ["as_given", "as_texts"]


class _Keyword(str):
    """Stands for a keyword that is no text."""

    __slots__ = ("key",)
    key: Any


def as_texts(mapping: dict[Any, Any]) -> dict[str, Any]:
    """`mapping`, as a function in Python takes it by `**`."""
    if all(type(key) is str for key in mapping):
        return mapping
    found: dict[str, Any] = {}
    for index, (key, value) in enumerate(mapping.items()):
        if not isinstance(key, str):
            text = _Keyword(f"\0{index}")
            text.key = key
            found[text] = value
        else:
            found[key] = value
    return found


def as_given(keywords: dict[str, Any]) -> dict[Any, Any]:
    """The keywords that the program has given."""
    return {name.key if type(name) is _Keyword else name: value for name, value in keywords.items()}
