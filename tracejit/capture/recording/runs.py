"""Expressions of tuples over the tensor inputs of a program, such that an entry only copies the parts that depend on its
structure alone.

This module knows variables and expressions, and must not know what is computed with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from tracejit.replay.ir import Constant, Expr, Name, Starred, TupleOf

__all__ = ["Runs"]

InputExpression = Callable[[Expr], Expr]


class Runs:
    """The tensor inputs of a program, grouped into runs: neighbours that belong to the recording's structure.  Tuples over a run
    are evaluated when the structure changes (`Body.cached`); a call only copies them.

    single: positions of the inputs that are in no run.  cached: name -> expression of a tuple, for `Body.cached`."""

    def __init__(self, tensors: Sequence[Expr], structural: Collection[str]) -> None:
        self._tensors = tensors
        structural_names = {Name(name) for name in structural}
        self._runs: list[range] = []  # those of length 1 include the inputs that are in no run
        for inside, group in itertools.groupby(range(len(tensors)), lambda i: tensors[i] in structural_names):
            members = list(group)
            self._runs += [range(members[0], members[-1] + 1)] if inside else [range(i, i + 1) for i in members]
        self._structural = [tensors[run[0]] in structural_names for run in self._runs]
        self.single = [run[0] for run, inside in zip(self._runs, self._structural, strict=True) if not inside]
        self.cached: dict[str, Expr] = {}

    def _name(self, kind: str, number: int, expressions: Sequence[Expr]) -> Name:
        name = f"{kind}{number}"
        self.cached[name] = TupleOf(tuple(expressions))
        return Name(name)

    def resident(self, pattern: InputExpression) -> Name | None:
        """Name of a cached tuple over all inputs that are in runs; None if there are none.  pattern: gives the expression of an
        element for the expression of an input."""
        inside = [i for run, is_run in zip(self._runs, self._structural, strict=True) if is_run for i in run]
        return self._name("resident", 0, [pattern(self._tensors[i]) for i in inside]) if inside else None

    def items(self, expressions: Sequence[Expr], kind: str) -> TupleOf:
        """A tuple of one expression per input.  The expressions of inputs in runs must depend on the structure alone; they are
        cached."""
        elements: list[Expr] = []
        for number, (run, inside) in enumerate(zip(self._runs, self._structural, strict=True)):
            part = [expressions[i] for i in run]
            elements += [Starred(self._name(kind, number, part))] if inside else part
        return TupleOf(tuple(elements))

    def whole(self, expressions: Sequence[Expr], kind: str) -> Expr:
        """`items`; but the tuple as a whole is cached if the expressions of all inputs outside of runs are None."""
        if self._runs and any(self._structural) and all(expressions[i] == Constant(None) for i in self.single):
            return self._name(kind, 0, expressions)
        return self.items(expressions, kind)

    def parts(self, expressions: Sequence[Expr], kind: str) -> TupleOf:
        """A tuple of tuples, which chained have the elements of `items`: cached tuples are not copied."""
        tuples: list[Expr] = []
        for inside, group in itertools.groupby(enumerate(self._runs), lambda numbered: self._structural[numbered[0]]):
            numbered = list(group)
            if inside:
                tuples += [self._name(kind, number, [expressions[i] for i in run]) for number, run in numbered]
            else:
                tuples.append(TupleOf(tuple([expressions[run[0]] for _, run in numbered])))
        return TupleOf(tuple(tuples))

    def chosen(self, positions: Sequence[int], kind: str, pattern: InputExpression) -> Expr:
        """A cached tuple over the inputs at `positions`, which are all in runs.  pattern: as for `resident`."""
        return self._name(kind, 0, [pattern(self._tensors[i]) for i in positions]) if positions else TupleOf(())

    def split(self, positions: Sequence[int], kind: str, pattern: InputExpression) -> list[Expr]:
        """Up to two tuples over the inputs at `positions`: a cached one over those in runs, and one over the others."""
        inside, outside = ([i for i in positions if (i in self.single) is single] for single in (False, True))
        cached = [self.chosen(inside, kind, pattern)] if inside else []
        return [*cached, TupleOf(tuple([pattern(self._tensors[i]) for i in outside]))] if outside else cached
