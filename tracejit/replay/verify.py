"""The verifier of functions of replay.  The rules:

* A name is defined before it is used: by a statement above, as a parameter, or in the namespace.  A variable is defined once; it
  may be defined again only under a condition.
* Guards define and compare.  They have no effects, except that they take locks if the function releases locks.
* There are no effects before the last way out: no statement after the first effect misses, returns early or runs a program.
* The last statement of the body, and no other one, is a Return.
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
    """A function of replay breaks a rule.  The text names the statement."""


def verify(function: Function, namespace: Collection[str]) -> None:
    """Check a function; raises InvalidFunction.  namespace: the names in the function's namespace."""
    visible = {*namespace, *dir(builtins), *[parameter.lstrip("*") for parameter in function.parameters]}
    if function.locks:
        visible.add("held")
    variables: set[str] = set()
    for statement in (*function.first, *function.guards, *function.body):
        _names(statement, visible, variables, under_condition=False)
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


def _names(statement: Statement, visible: set[str], variables: set[str], under_condition: bool) -> None:
    """Check that the names which a statement uses are in `visible`, and add those that it defines."""
    if isinstance(statement, If):
        _used(names(statement.condition), visible, statement)
        for inner in statement.body:
            _names(inner, visible, variables, under_condition=True)
        return
    new_names = defined(statement)
    own = new_names if isinstance(statement, RunProgram) else ()  # the arrays that it creates are among its operands
    _used(names(statement).difference(own), visible, statement)
    for name in new_names:
        if (name in variables) is not under_condition:
            what = "is not defined outside the condition" if under_condition else "is defined twice"
            raise InvalidFunction(f"{name} {what}: {statement}")
        variables.add(name)
        visible.add(name)


def _used(used: set[str], visible: Collection[str], statement: Statement) -> None:
    for name in sorted(used.difference(visible)):
        raise InvalidFunction(f"{name} is used and not defined: {statement}")


def _checks(statement: Statement, kinds: tuple[type[Statement], ...]) -> bool:
    """Whether a statement, or each statement inside an If, is of these classes."""
    return all(_checks(s, kinds) for s in statement.body) if isinstance(statement, If) else isinstance(statement, kinds)


def _order(body: Sequence[Statement]) -> None:
    effect: Statement | None = None
    for statement in body:
        if effect is not None and any(isinstance(s, _WAYS_OUT) for s in _flat(statement)):
            raise InvalidFunction(f"{statement}, past the effect {effect}")
        if not _checks(statement, (*_CHECKING, Return)) and not isinstance(statement, Increment):
            effect = statement


def _flat(statement: Statement) -> list[Statement]:
    return [inner for s in statement.body for inner in _flat(s)] if isinstance(statement, If) else [statement]
