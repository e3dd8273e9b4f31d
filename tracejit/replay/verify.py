"""What must hold of every function of replay.

* A name is defined before it is used: by a statement above, as a parameter, or by the namespace.  A variable is defined once; again only
  under a condition.
* Guards define and compare.  They do nothing to anything, but for the locks that they take where the function lets go of locks.
* Nothing is done before the last way out: past the first effect nobody misses, leaves, or runs a program.
* The last statement of the body, and no other one, answers.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from typing import Final

from tracejit.replay.ir import (
    Define,
    Evaluate,
    Function,
    If,
    Increment,
    Miss,
    Notify,
    Return,
    ReturnIf,
    RunProgram,
    Statement,
    Unpack,
    defined,
    names,
)  # fmt: skip

__all__ = ["InvalidFunction", "verify"]

_WAYS_OUT: Final = (Miss, ReturnIf, RunProgram)
_CHECKING: Final = (Define, Unpack, Miss, ReturnIf, RunProgram, Notify)


class InvalidFunction(Exception):
    """A function of replay breaks a rule; the text says which, and where."""


def verify(function: Function, namespace: Collection[str]) -> None:
    """Raises InvalidFunction.  namespace: the names of what the function's namespace holds."""
    known = {*namespace, *dir(builtins), *[parameter.lstrip("*") for parameter in function.parameters]}
    if function.locks:
        known.add("held")
    variables: set[str] = set()
    for statement in (*function.first, *function.guards, *function.body):
        _names(statement, known, variables, under_condition=False)
    for statement in function.first:
        if not isinstance(statement, Define):
            raise InvalidFunction(f"before the guards: {statement}; expected what defines")
    for statement in function.guards:
        allowed = _checks(statement, (Define, Unpack, Miss)) or (function.locks and isinstance(statement, Evaluate))
        if not allowed:
            raise InvalidFunction(f"a guard that is none: {statement}")
    _order(function.body)
    for statement in function.body[:-1]:
        if isinstance(statement, Return):
            raise InvalidFunction(f"{statement}, and then {function.body[-1]}")
    if function.body and not isinstance(function.body[-1], Return):
        raise InvalidFunction(f"a body that ends in {function.body[-1]}; expected the answer")


def _names(statement: Statement, known: set[str], variables: set[str], under_condition: bool) -> None:
    """Used names are known; what is defined is from here on."""
    if isinstance(statement, If):
        _used(names(statement.condition), known, statement)
        for inner in statement.body:
            _names(inner, known, variables, under_condition=True)
        return
    found = defined(statement)
    own = found if isinstance(statement, RunProgram) else ()  # the arrays that it makes are among its operands
    _used(names(statement).difference(own), known, statement)
    for name in found:
        if (name in variables) is not under_condition:
            what = "is not defined outside the condition" if under_condition else "is defined twice"
            raise InvalidFunction(f"{name} {what}: {statement}")
        variables.add(name)
        known.add(name)


def _used(used: set[str], known: Collection[str], statement: Statement) -> None:
    for name in sorted(used.difference(known)):
        raise InvalidFunction(f"{name} is used and not defined: {statement}")


def _checks(statement: Statement, kinds: tuple[type[Statement], ...]) -> bool:
    """Whether a statement, with all inside it, is of these kinds."""
    return all(_checks(s, kinds) for s in statement.body) if isinstance(statement, If) else isinstance(statement, kinds)


def _order(body: Sequence[Statement]) -> None:
    effect: Statement | None = None
    for statement in body:
        if effect is not None and any(isinstance(s, _WAYS_OUT) for s in _flat(statement)):
            raise InvalidFunction(f"{statement}, past the effect {effect}")
        if not _checks(statement, (*_CHECKING, Return)) and not isinstance(statement, Increment):
            effect = statement


def _flat(statement: Statement) -> list[Statement]:
    return [found for s in statement.body for found in _flat(s)] if isinstance(statement, If) else [statement]
