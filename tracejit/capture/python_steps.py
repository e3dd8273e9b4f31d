"""The steps of an outlined loop, made in Python one by one: where nothing is recorded, where the loop is no node, and after a recording
has stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.step_elements import header_value
from tracejit.capture.syntax.loops import UNBOUND
from tracejit.capture.syntax.outlined_loops import ENDS, NO_STEP, RAISES, WAYS, WHILE, OutlinedLoop
from tracejit.capture.syntax.pieces import BREAKS, CONTINUES, RETURNS

__all__ = ["elements_without_end", "plain_elements", "run_steps"]

_END: Final = object()


def plain_elements(pattern: Any, header: tuple[Any, ...]) -> Iterator[Any]:
    """What a loop with this header goes over (step_elements.py), by Python."""
    if pattern == WHILE:
        return elements_without_end()
    return iter(header_value(pattern, map(plain, header), lambda f, given, named: f(*given, **named)))


def elements_without_end() -> Iterator[None]:
    """The elements of a `while` loop, whose steps end it."""
    return iter(lambda: None, 0)


def run_steps(
    loop: OutlinedLoop,
    step: Callable[..., Any],
    elements: Iterable[Any],
    variables: dict[str, Any],
    done: tuple[int, Any] | None = None,
    items: Sequence[list[Any]] = (),
) -> tuple[int, Any]:
    """Run steps one by one.  variables: what the live-in ones hold.  done: what the step before has returned.  items: those of the steps
    before.  Returns what `run_outlined_loop` does."""
    columns = [[*column] for column in items] or [[] for _ in range(loop.items)]
    left: dict[str, Any] = {}
    remaining = iter(elements)
    while True:
        if done is None:
            try:
                element = next(remaining, _END)
            except BaseException as error:
                if not loop.is_watched:
                    raise
                return RAISES, (*[variables.get(name, UNBOUND) for name in loop.live_outs], *columns, error)
            if element is _END:
                if left or any(columns):
                    return CONTINUES, (*[left[name] for name in loop.live_outs], *columns)
                return NO_STEP, None
            given = [variables[name] for name in loop.live_ins]
            named, values = step(element, *given) if loop.has_elements else step(*given)
            done = WAYS.index(named), values
        way, values = done
        if way == RETURNS:
            return way, values
        if way == RAISES:  # what the step has not assigned to is as the steps before have left it
            *found, raised = values
            for column, more in zip(columns, found[len(loop.live_outs) :], strict=True):
                column += () if more is UNBOUND else more
            found = [variables.get(name, x) if x is UNBOUND else x for name, x in zip(loop.live_outs, found, strict=False)]
            return way, (*found, *columns, raised)
        left = dict(zip(loop.live_outs, values, strict=False))
        variables = {**variables, **left}
        for column, more in zip(columns, values[len(loop.live_outs) :], strict=True):
            column.extend(more)
        if way in (BREAKS, ENDS):
            return way, (*left.values(), *columns)
        done = None
