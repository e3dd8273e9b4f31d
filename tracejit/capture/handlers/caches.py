"""Functions with a `functools.lru_cache` around them: what such a cache holds, without calling the function.

A call that hits gives what is in the cache, and runs no code of the program.  CPython keeps what is cached in a dictionary of the wrapper,
which only the garbage collector shows; whether it is where it is expected is tried out on import.  In a cache without a limit its values
are the results.  In one with a limit they are links, which nobody can look into, and which hold one result each as long as nothing had to
make room.
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


def _found(function: Any) -> dict[Any, Any] | None:
    own = function.__dict__
    found = [part for part in gc.get_referents(function) if type(part) is dict and part is not own]
    return found[0] if len(found) == 1 else None


def _mark() -> Any:
    """What stands in a key between positional arguments and keywords."""
    probe = functools.lru_cache(None)(lambda **keywords: None)
    probe(k=1)
    keys = list(_found(probe) or ())
    return keys[0][0] if len(keys) == 1 and type(keys[0]) is tuple else None


_MARK = _mark()


def _is_as_expected() -> bool:
    for most, typed in ((None, False), (4, False), (None, True)):
        probe = functools.lru_cache(most, typed)(lambda *arguments, **keywords: arguments)
        cache = _found(probe)
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
    """(the dictionary of what has been cached, the limit, whether types are part of keys); None where it is not known, or is full."""
    parameters = function.cache_parameters()
    cache = _found(function) if _EXPECTED else None
    most = parameters["maxsize"]
    return None if cache is None or (most is not None and len(cache) + 1 >= most) else (cache, most, bool(parameters["typed"]))


def key_of(values: tuple[Any, ...], keywords: dict[str, Any], typed: bool) -> Any:
    """The key of a call with these arguments."""
    if _is_bare(values, keywords, typed):
        return values[0]
    named = (_MARK, *chain.from_iterable(keywords.items())) if keywords else ()
    types = (*map(type, values), *map(type, keywords.values())) if typed else ()
    return (*values, *named, *types)


def key_expression(
    values: tuple[Any, ...],
    keywords: dict[str, Any],
    places: list[Expr],
    typed: bool,
    constant: Callable[[Any], Expr],
) -> Expr:
    """The key of a call with these arguments; places: their expressions, those of keywords last.  constant: of an object."""
    if _is_bare(values, keywords, typed):
        return places[0]
    given, of_keywords = places[: len(values)], places[len(values) :]
    named = [constant(_MARK)] if keywords else []
    for name, place in zip(keywords, of_keywords, strict=True):
        named += [Constant(name), place]
    types = [constant(type(value)) for value in (*values, *keywords.values())] if typed else []
    return tuple_of(*given, *named, *types)


def _is_bare(values: tuple[Any, ...], keywords: dict[str, Any], typed: bool) -> bool:
    """Whether the key is the only argument itself."""
    return not typed and len(values) == 1 and not keywords and type(values[0]) in (int, str)


_EXPECTED = _is_as_expected()
