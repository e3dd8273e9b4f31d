"""Access to the caches of functions under `functools.lru_cache`, without calling the functions.

A call that hits returns what is in the cache and runs no code of the program.  CPython holds the cached results in a dictionary
of the wrapper that only the garbage collector shows; on import it is tested that it is there and has the expected keys.  The
values of a cache without a limit are the results.  Those of a cache with a limit are opaque links; each holds the same result
until entries are dropped.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from itertools import chain
from typing import Any

from tracejit.replay.ir import Constant, Expr, tuple_of

__all__ = ["CACHED", "cache_of", "key_expression", "key_of"]

CACHED: type = functools._lru_cache_wrapper
"""The type of functions with a cache."""


def _dictionary_of(function: Any) -> dict[Any, Any] | None:
    """The dictionary of cached results of a function; None if there is no single candidate."""
    own = function.__dict__
    candidates = [part for part in gc.get_referents(function) if type(part) is dict and part is not own]
    return candidates[0] if len(candidates) == 1 else None


def _mark() -> Any:
    """The object that separates positional arguments from keywords in a key."""
    probe = functools.lru_cache(None)(lambda **keywords: None)
    probe(k=1)
    keys = list(_dictionary_of(probe) or ())
    return keys[0][0] if len(keys) == 1 and type(keys[0]) is tuple else None


_MARK = _mark()


def _is_as_expected() -> bool:
    """Whether caches have the dictionaries and keys that this module expects."""
    for most, typed in ((None, False), (4, False), (None, True)):
        probe = functools.lru_cache(most, typed)(lambda *arguments, **keywords: arguments)
        cache = _dictionary_of(probe)
        calls: list[tuple[Any, dict[str, Any]]] = [((1,), {}), (("a",), {}), ((1.5,), {}), ((2,), {"k": "b", "a": 1})]
        for values, keywords in calls:
            probe(*values, **keywords)
        if cache is None or list(cache) != [key_of(*call, typed) for call in calls]:
            return False
        probe.cache_clear()
        probe(3)
        if list(cache) != [key_of((3,), {}, typed)]:
            return False
    return True


def cache_of(function: Any) -> tuple[dict[Any, Any], int | None, bool] | None:
    """(dictionary of cached results, limit, whether types are part of keys); None if it is not accessible, or almost full."""
    parameters = function.cache_parameters()
    cache = _dictionary_of(function) if _EXPECTED else None
    most = parameters["maxsize"]
    return None if cache is None or (most is not None and len(cache) + 1 >= most) else (cache, most, bool(parameters["typed"]))


def key_of(values: tuple[Any, ...], keywords: dict[str, Any], typed: bool) -> Any:
    """The key of a call with these arguments in the dictionary of a cache."""
    if _key_is_single_argument(values, keywords, typed):
        return values[0]
    named = (_MARK, *chain.from_iterable(keywords.items())) if keywords else ()
    types = (*map(type, values), *map(type, keywords.values())) if typed else ()
    return (*values, *named, *types)


def key_expression(
    values: tuple[Any, ...],
    keywords: dict[str, Any],
    expressions: list[Expr],
    typed: bool,
    constant: Callable[[Any], Expr],
) -> Expr:
    """The expression of the key of a call with these arguments.

    expressions: those of the arguments, those of keywords last.  constant: gives the expression of an object."""
    if _key_is_single_argument(values, keywords, typed):
        return expressions[0]
    positional, of_keywords = expressions[: len(values)], expressions[len(values) :]
    named = [constant(_MARK)] if keywords else []
    for name, expression in zip(keywords, of_keywords, strict=True):
        named += [Constant(name), expression]
    types = [constant(type(value)) for value in (*values, *keywords.values())] if typed else []
    return tuple_of(*positional, *named, *types)


def _key_is_single_argument(values: tuple[Any, ...], keywords: dict[str, Any], typed: bool) -> bool:
    """Whether the key is the single argument itself, and not a tuple."""
    return not typed and len(values) == 1 and not keywords and type(values[0]) in (int, str)


_EXPECTED = _is_as_expected()
