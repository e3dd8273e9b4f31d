"""Tuples over the tensor inputs of a program, written so that an entry copies what depends on its structure alone.

Knows variables and expressions, not what is computed with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

__all__ = ["Runs", "commas"]


def commas(texts: Iterable[str]) -> str:
    """The inside of a tuple display."""
    return "".join(f"{t}, " for t in texts)


class Runs:
    """The tensor inputs, with runs of neighbours that belong to the recording's structure: tuples over a run are made when the structure
    changes (`Body.cached`), and a call only copies them.

    single: positions of the other inputs.  cached: name -> expression of a tuple."""

    def __init__(self, tensors: Sequence[str], structural: Sequence[str]) -> None:
        self._tensors = tensors
        known = frozenset(structural)
        self._runs: list[range] = []
        for inside, group in itertools.groupby(range(len(tensors)), lambda i: tensors[i] in known):
            members = list(group)
            self._runs += [range(members[0], members[-1] + 1)] if inside else [range(i, i + 1) for i in members]
        self._structural = [tensors[run[0]] in known for run in self._runs]
        self.single = [run[0] for run, inside in zip(self._runs, self._structural, strict=True) if not inside]
        self.cached: dict[str, str] = {}

    def _name(self, kind: str, number: int, expressions: Sequence[str]) -> str:
        name = f"{kind}{number}"
        self.cached[name] = f"({commas(expressions)})"
        return name

    def resident(self, pattern: str) -> str | None:
        """Name of a tuple of all inputs that are in runs, None where there are none; pattern: of an expression of an input."""
        inside = [i for run, known in zip(self._runs, self._structural, strict=True) if known for i in run]
        return self._name("resident", 0, [pattern.format(self._tensors[i]) for i in inside]) if inside else None

    def items(self, expressions: Sequence[str], kind: str) -> list[str]:
        """The inside of a tuple display of one expression per input; those in runs depend on the structure alone."""
        found = []
        for number, (run, inside) in enumerate(zip(self._runs, self._structural, strict=True)):
            part = [expressions[i] for i in run]
            found += [f"*{self._name(kind, number, part)}"] if inside else part
        return found

    def whole(self, expressions: Sequence[str], kind: str) -> str:
        """A tuple of one expression per input; made only when the structure changes if the inputs outside runs have constant ones."""
        if self._runs and any(self._structural) and all(expressions[i] == "None" for i in self.single):
            return self._name(kind, 0, expressions)
        return f"({commas(self.items(expressions, kind))})"

    def parts(self, expressions: Sequence[str], kind: str) -> list[str]:
        """Tuples of one expression per input, which are `items` when chained: nothing is copied."""
        found = []
        for inside, group in itertools.groupby(enumerate(self._runs), lambda numbered: self._structural[numbered[0]]):
            for number, run in group:
                if inside:
                    found.append(self._name(kind, number, [expressions[i] for i in run]))
                elif number and not self._structural[number - 1]:
                    found[-1] = f"{found[-1][:-1]}{expressions[run[0]]}, )"
                else:
                    found.append(f"({expressions[run[0]]}, )")
        return found

    def chosen(self, positions: Sequence[int], kind: str, pattern: str) -> str:
        """A tuple of the inputs at `positions`, all in runs; pattern: of an expression of an input."""
        return self._name(kind, 0, [pattern.format(self._tensors[i]) for i in positions]) if positions else "()"

    def split(self, positions: Sequence[int], kind: str, pattern: str) -> list[str]:
        """Tuples of the inputs at `positions`: one of those in runs, one of the others, where there are any."""
        inside, outside = ([i for i in positions if (i in self.single) is single] for single in (False, True))
        found = [self.chosen(inside, kind, pattern)] if inside else []
        return [*found, f"({commas(pattern.format(self._tensors[i]) for i in outside)})"] if outside else found
