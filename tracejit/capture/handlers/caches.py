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
    for most in (None, 4):
        probe = functools.lru_cache(most)(lambda *arguments, **keywords: arguments)
        cache = _found(probe)
        probe(1), probe("a"), probe(1.5), probe(2, k="b", a=1)
        if cache is None or list(cache) != [1, "a", (1.5,), (2, _MARK, "k", "b", "a", 1)]:
            return False
        probe.cache_clear()
        probe(3)
        if list(cache) != [3]:
            return False
    return True


_EXPECTED = _is_as_expected()


def cache_of(function: Any) -> tuple[dict[Any, Any], int | None] | None:
    """(the dictionary of what has been cached, the limit); None where it is not known, has keys of another kind, or is full."""
    parameters = function.cache_parameters()
    cache = _found(function) if _EXPECTED and not parameters["typed"] else None
    most = parameters["maxsize"]
    return None if cache is None or (most is not None and len(cache) + 1 >= most) else (cache, most)


def key_of(values: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The key of a call with these arguments."""
    if len(values) == 1 and not keywords and type(values[0]) in (int, str):
        return values[0]
    return (*values, _MARK, *chain.from_iterable(keywords.items())) if keywords else values


def key_expression(
    values: tuple[Any, ...], given: list[Expr], keywords: dict[str, Expr], constant: Callable[[Any], Expr]
) -> Expr:
    """The key of a call with these positional arguments, whose expressions are `given`, and keywords.  constant: of an object."""
    if len(values) == 1 and not keywords and type(values[0]) in (int, str):
        return given[0]
    named = (
        [constant(_MARK), *chain.from_iterable((Constant(name), value) for name, value in keywords.items())] if keywords else []
    )
    return tuple_of(*given, *named)
