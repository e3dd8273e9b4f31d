"""Generators of random numbers, of Python and NumPy, are put back to where they were when an entry does not serve a call."""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

__all__ = ["reference", "rewinding"]


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state(legacy=False)


def _put_back(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def rewinding(serve: Callable[..., Any], references: tuple[Callable[[], Any], ...], unserved: type) -> Callable[..., Any]:
    """An entry that draws from the generators that are referred to: where it does not serve a call, nothing has been drawn.

    unserved: the class of what it returns then."""

    def entry(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        generators = [generator for reference in references if (generator := reference()) is not None]
        states = list(map(_state, generators))
        result = serve(args, kwargs)
        if result.__class__ is unserved:
            deque(map(_put_back, generators, states), 0)
        return result

    return entry


def reference(generator: Any) -> Callable[[], Any]:
    """What an entry keeps of a generator: weak where there is such a reference."""
    return weakref.ref(generator) if type(generator).__weakrefoffset__ else partial(_itself, generator)


def _itself(generator: Any) -> Any:
    return generator
