"""Keywords that are no strings.  Some C functions accept them: `"{a}".format(**{"a": 1, 5: 2})`.  Python functions, as the
handlers are, refuse them.  So while a call passes through handlers, strings stand for these keywords."""

from __future__ import annotations

from typing import Any

__all__ = ["as_given", "as_texts"]


class _KeywordStandIn(str):
    """Stands for `key`, a keyword that is no string."""

    __slots__ = ("key",)
    key: Any


def as_texts(mapping: dict[Any, Any]) -> dict[str, Any]:
    """`mapping` with a string for each key that is none, so that a Python function accepts it as `**mapping`."""
    if all(type(key) is str for key in mapping):
        return mapping
    keywords: dict[str, Any] = {}
    for index, (key, value) in enumerate(mapping.items()):
        if not isinstance(key, str):
            text = _KeywordStandIn(f"\0{index}")
            text.key = key
            keywords[text] = value
        else:
            keywords[key] = value
    return keywords


def as_given(keywords: dict[str, Any]) -> dict[Any, Any]:
    """The keywords that user code has passed: the inverse of `as_texts`."""
    return {name.key if type(name) is _KeywordStandIn else name: value for name, value in keywords.items()}
