"""Tuples over the tensor inputs of a program, written so that an entry copies what depends on its structure alone.

Knows variables and expressions, not what is computed with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

from tracejit.replay.ir import Constant, Expr, Name, Starred, TupleOf

__all__ = ["Runs"]

InputExpression = Callable[[Expr], Expr]


class Runs:
    """The tensor inputs, with runs of neighbours that belong to the recording's structure: tuples over a run are made when the structure
    changes (`Body.cached`), and a call only copies them.

    single: positions of the other inputs.  cached: name -> expression of a tuple."""

    def __init__(self, tensors: Sequence[Expr], structural: Collection[str]) -> None:
        self._tensors = tensors
        known = {Name(name) for name in structural}
        self._runs: list[range] = []
        for inside, group in itertools.groupby(range(len(tensors)), lambda i: tensors[i] in known):
            members = list(group)
            self._runs += [range(members[0], members[-1] + 1)] if inside else [range(i, i + 1) for i in members]
        self._structural = [tensors[run[0]] in known for run in self._runs]
        self.single = [run[0] for run, inside in zip(self._runs, self._structural, strict=True) if not inside]
        self.cached: dict[str, Expr] = {}

    def _name(self, kind: str, number: int, expressions: Sequence[Expr]) -> Name:
        name = f"{kind}{number}"
        self.cached[name] = TupleOf(tuple(expressions))
        return Name(name)

    def resident(self, pattern: InputExpression) -> Name | None:
        """Name of a tuple of all inputs that are in runs, None where there are none; pattern: of an expression of an input."""
        inside = [i for run, known in zip(self._runs, self._structural, strict=True) if known for i in run]
        return self._name("resident", 0, [pattern(self._tensors[i]) for i in inside]) if inside else None

    def items(self, expressions: Sequence[Expr], kind: str) -> TupleOf:
        """A tuple of one expression per input; those in runs depend on the structure alone."""
        found: list[Expr] = []
        for number, (run, inside) in enumerate(zip(self._runs, self._structural, strict=True)):
            part = [expressions[i] for i in run]
            found += [Starred(self._name(kind, number, part))] if inside else part
        return TupleOf(tuple(found))

    def whole(self, expressions: Sequence[Expr], kind: str) -> Expr:
        """The same; made only when the structure changes if the inputs outside runs have constant ones."""
        if self._runs and any(self._structural) and all(expressions[i] == Constant(None) for i in self.single):
            return self._name(kind, 0, expressions)
        return self.items(expressions, kind)

    def parts(self, expressions: Sequence[Expr], kind: str) -> TupleOf:
        """Tuples of one expression per input, which are `items` when chained: nothing is copied."""
        found: list[Expr] = []
        for inside, group in itertools.groupby(enumerate(self._runs), lambda numbered: self._structural[numbered[0]]):
            numbered = list(group)
            if inside:
                found += [self._name(kind, number, [expressions[i] for i in run]) for number, run in numbered]
            else:
                found.append(TupleOf(tuple([expressions[run[0]] for _, run in numbered])))
        return TupleOf(tuple(found))

    def chosen(self, positions: Sequence[int], kind: str, pattern: InputExpression) -> Expr:
        """A tuple of the inputs at `positions`, all in runs; pattern: of an expression of an input."""
        return self._name(kind, 0, [pattern(self._tensors[i]) for i in positions]) if positions else TupleOf(())

    def split(self, positions: Sequence[int], kind: str, pattern: InputExpression) -> list[Expr]:
        """Tuples of the inputs at `positions`: one of those in runs, one of the others, where there are any."""
        inside, outside = ([i for i in positions if (i in self.single) is single] for single in (False, True))
        found = [self.chosen(inside, kind, pattern)] if inside else []
        return [*found, TupleOf(tuple([pattern(self._tensors[i]) for i in outside]))] if outside else found
