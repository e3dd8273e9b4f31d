"""Conditions on which something exists: which way bools of a graph have come out, in disjunctive normal form.

A term is a set of literals, (value of a bool, how it came out); a condition is a set of terms, one of which holds.  It is simplified as
it is made: `a` or `not a` is no condition at all.  Nodes that compute it are added where it is needed (`Conditions.value`).
Quine: The Problem of Simplifying Truth Functions, American Mathematical Monthly 59 (1952)."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from typing import Any, Final

from tracejit.core.op import REGISTRY
from tracejit.ir.tracer import Tracer

__all__ = ["ALWAYS", "NEVER", "Condition", "Conditions", "are_disjoint"]

Term = frozenset[tuple[int, bool]]
Condition = frozenset[Term]
ALWAYS: Final[Condition] = frozenset([frozenset()])
NEVER: Final[Condition] = frozenset()
_MOST_TERMS: Final = 12


class Conditions:
    """The conditions of one graph, and the values that nodes have computed of them."""

    def __init__(self) -> None:
        self._bools: dict[int, Tracer] = {}
        self._computed: dict[Any, Tracer] = {}

    def holds(self, x: Tracer) -> Condition:
        """That a bool holds."""
        self._bools[x.id] = x
        return frozenset([frozenset([(x.id, True)])])

    def with_outcome(self, condition: Condition, x: Tracer, outcome: bool) -> Condition:
        """That `condition` holds, and a bool has come out so."""
        self._bools[x.id] = x
        return frozenset([term | {(x.id, outcome)} for term in condition if (x.id, not outcome) not in term])

    def either(self, one: Condition, other: Condition) -> Condition:
        """That one of two conditions holds."""
        found = _simplified(one | other)
        return found if len(found) <= _MOST_TERMS else self.holds(self.value(found))

    def value(self, condition: Condition) -> Tracer:
        """The value that says whether `condition`, which is not ALWAYS, holds."""
        known = self._computed.get(condition)
        if known is None:
            terms = [self._term(term) for term in sorted(condition, key=sorted)]
            known = self._computed[condition] = reduce(self._or, terms)
        return known

    def _term(self, term: Term) -> Tracer:
        literals = sorted(term)
        value, known = self._literal(*literals[0]), frozenset(literals[:1])
        for literal in literals[1:]:
            known |= {literal}
            if known not in self._computed:
                self._computed[known] = REGISTRY["logical_and"].of(value, self._literal(*literal))
            value = self._computed[known]
        return value

    def _literal(self, x: int, outcome: bool) -> Tracer:
        if outcome:
            return self._bools[x]
        if x not in self._computed:
            self._computed[x] = REGISTRY["logical_not"].of(self._bools[x])
        return self._computed[x]

    @staticmethod
    def _or(x: Tracer, y: Tracer) -> Tracer:
        return REGISTRY["logical_or"].of(x, y)  # type: ignore[no-any-return]


def are_disjoint(one: Condition, other: Condition) -> bool:
    """Whether no two terms of these can hold together."""
    return all(any((v, not outcome) in y for v, outcome in x) for x in one for y in other)


def _simplified(terms: Condition) -> Condition:
    """The same condition of fewer terms."""
    while True:
        terms = frozenset([x for x in terms if not any(y < x for y in terms)])
        for x, y in combinations(terms, 2):
            differing = x ^ y
            if len(differing) == 2 and len({v for v, _ in differing}) == 1:
                terms = (terms - {x, y}) | {x & y}
                break
            # a, or not a and b: the same as a or b
            for short, long in ((x, y), (y, x)):
                extra = short - long
                if len(extra) == 1:
                    ((v, outcome),) = extra
                    if (v, not outcome) in long:
                        terms = (terms - {long}) | {long - {(v, not outcome)}}
                        break
            else:
                continue
            break
        else:
            return terms
