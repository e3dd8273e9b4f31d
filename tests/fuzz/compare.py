"""Whether two runs of a program are the same run, and if not, what differs.

Skeletons must be equal, and numbers equal in bits (NaN for NaN).  Where they are not, eager is run with other roundings: a number may be
off by a few times what those runs differ by, and a decision (an integer, a text, a shape, an exception) may differ only if it differed
there, too.  A first look at a few such runs is enough for most; before anything is reported, many are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.fuzz.facts import Facts

__all__ = ["ERROR", "Difference", "compare", "differences"]

ERROR = re.compile(r"'raised'\), \('str', '(\w+)'")
ENDS = re.compile(r"\('str', '(returned|raised)'\)")
UNSEEN = "strides that no element sees"
UNSETTLED = 100.0  # where the samples have no digit in common, as beside a pole, their tails are heavy
LOST = 10.0  # times the value: after several poles in a row they are heavier still
FACTOR = 4.0  # a linear model's largest value against the largest of a few samples
SAMPLES = (3, 24, 250)
Noisy = Callable[[int], list[Facts]]  # eager's log with the roundings of a seed


@dataclass(frozen=True)
class Difference:
    """Where two runs part: the number of the call in the log, what kind of fact, and the two values as text."""

    call: int
    kind: str
    path: str
    eager: str
    other: str

    @property
    def signature(self) -> str:
        """What stays when a program is made smaller: the kind, and which errors are raised."""
        errors = [next(iter(ERROR.findall(text)), "") for text in (self.eager, self.other)]
        return f"{self.kind} {errors[0]}>{errors[1]}" if self.kind == "outcome" else self.kind

    def __str__(self) -> str:
        return f"call {self.call}: {self.kind} of {self.path}: eager {self.eager}, compiled {self.other}"


def compare(eager: list[Facts], other: list[Facts], noisy: Noisy) -> tuple[Difference | None, bool]:
    """The first difference, or None; and whether roundings had to explain a decision."""
    runs: list[list[Facts]] = []
    unstable = False
    lesser: Difference | None = None  # told only if there is nothing else
    for number, (mine, theirs) in enumerate(zip(eager, other, strict=True)):
        if mine.skeleton != theirs.skeleton and seen_strides(mine.skeleton) == seen_strides(theirs.skeleton):
            path, a, b = _parting(mine.skeleton, theirs.skeleton, ())
            lesser = lesser or Difference(number, UNSEEN, _spelled(path), _short(a), _short(b))
            theirs = replace(theirs, skeleton=mine.skeleton)
        if mine.skeleton == theirs.skeleton and all(map(_same_bits, mine.leaves, theirs.leaves)):
            continue
        for samples in SAMPLES:
            if samples == SAMPLES[-1] and not _moves([run[number] for run in runs]):
                break
            while len(runs) < samples:
                runs.append(noisy(len(runs)))
            verdict = _explained(mine, theirs, [run[number] for run in runs])
            if verdict is not None:
                break
        if verdict is None:
            return next(differences(number, mine, theirs, [run[number] for run in runs])), unstable
        unstable |= verdict == "decision"
    return lesser, unstable


def _moves(noisy: list[Facts]) -> bool:
    """Whether roundings change any number, so that more runs may change others."""
    first, *others = noisy
    return any(
        a.dtype.kind == "f" and a.shape == b.shape and not _same_bits(a, b)
        for run in others
        for a, b in zip(first.leaves, run.leaves, strict=False)
    )


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and bits, NaN for NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return a.dtype.kind == "O" or bool((a == b).all())
    return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | (a != a) & (b != b)).all())


def _explained(eager: Facts, other: Facts, noisy: list[Facts]) -> str | None:
    """What explains that two facts are not equal in bits: "spread" of numbers, or a "decision" that roundings change; None if nothing."""
    if eager.skeleton != other.skeleton:
        if any(run.skeleton == other.skeleton for run in noisy):
            return "decision"
        if all(run.skeleton == eager.skeleton for run in noisy) or without_columns(eager.skeleton) != without_columns(
            other.skeleton
        ):
            return None  # else numbers of other lengths stand in columns of other widths
    alike = _alike(eager, noisy)
    decision = len(alike) < len(noisy)
    for i, (a, b) in enumerate(zip(eager.leaves, other.leaves, strict=True)):
        if _same_bits(a, b):
            continue
        wrong = unexplained(a, b, [run.leaves[i] for run in alike])
        if wrong.any():
            return None
        decision |= a.dtype.kind != "f"
    return "decision" if decision else "spread"


def _alike(eager: Facts, noisy: list[Facts]) -> list[Facts]:
    """The runs that differ from eager in numbers alone.  Roundings do not keep strides that no element sees.  Where each run has decided
    something otherwise (the log grows with each call), those that have the same numbers in the same positions."""
    skeleton = seen_strides(eager.skeleton)
    alike = [run for run in noisy if seen_strides(run.skeleton) == skeleton]
    return alike or [run for run in noisy if run.paths == eager.paths and _kinds(run) == _kinds(eager)]


def _kinds(facts: Facts) -> list[Any]:
    return [(a.shape, a.dtype) for a in facts.leaves]


def unexplained(eager: np.ndarray, other: np.ndarray, noisy: list[np.ndarray]) -> np.ndarray:
    """Which elements differ by more than roundings explain."""
    if eager.dtype != other.dtype or eager.shape != other.shape:
        return np.ones(1, bool)
    if eager.dtype.kind == "V":  # bfloat16, which NumPy takes for raw bytes
        eager, other, *noisy = (run.astype(np.float32) for run in (eager, other, *noisy))
    if eager.dtype.kind != "f":
        varied = np.zeros(eager.shape, bool)
        for run in noisy:
            varied |= run != eager
        return (eager != other) & ~varied
    same = (eager == other) & (np.signbit(eager) == np.signbit(other)) | np.isnan(eager) & np.isnan(other)
    if not noisy:
        return ~same
    with np.errstate(all="ignore"):
        wide = [run.astype(np.longdouble) for run in (eager, other, *noisy)]
        spread = np.max([np.abs(run - wide[0]) for run in wide[2:]], axis=0)
        off = np.abs(wide[1] - wide[0])
        unsettled = np.any([_special(run) != _special(wide[0]) for run in wide[2:]], axis=0)
    signs = np.any([np.signbit(run) != np.signbit(wide[0]) for run in wide[2:]], axis=0)
    size = np.abs(wide[0])
    factor = np.select([spread > LOST * size, spread > size], [UNSETTLED * UNSETTLED, UNSETTLED], FACTOR)
    return ~(same | unsettled | ((spread > 0) | signs) & (off <= factor * spread))


def _special(values: np.ndarray) -> np.ndarray:
    """2 for NaN, 1 and -1 for infinities, 0 for numbers."""
    return np.where(np.isnan(values), 2, np.where(np.isinf(values), np.sign(values), 0))


def differences(number: int, eager: Facts, other: Facts, noisy: list[Facts]) -> Iterator[Difference]:
    """What differs between two facts, most telling first."""
    if eager.skeleton != other.skeleton:
        path, a, b = _parting(eager.skeleton, other.skeleton, ())
        yield Difference(number, _kind(path, a, b), _spelled(path), _short(a), _short(b))
    alike = _alike(eager, noisy)
    for i, (a, b) in enumerate(zip(eager.leaves, other.leaves, strict=False)):
        if not _same_bits(a, b):
            samples = [run.leaves[i] for run in alike] if eager.skeleton == other.skeleton else []
            wrong = unexplained(a, b, samples)
            if wrong.any():
                where = np.argwhere(wrong)[0] if wrong.shape == a.shape else ()
                shown = (a[tuple(where)], b[tuple(where)]) if wrong.shape == a.shape else (a.dtype, b.dtype)
                yield Difference(
                    number, "value", eager.paths[i], f"{shown[0]!r}", f"{shown[1]!r} ({int(wrong.sum())} of {a.size})"
                )


def seen_strides(skeleton: Any) -> Any:
    """A skeleton with the strides of empty tensors, and of dimensions of one element, left out."""
    if not isinstance(skeleton, tuple):
        return skeleton
    if len(skeleton) > 4 and isinstance(skeleton[3], tuple) and skeleton[3][:1] == ("strides",):
        shape, strides = skeleton[1], skeleton[3][1]
        seen = tuple([s for n, s in zip(shape, strides, strict=True) if n > 1]) if 0 not in shape else ()
        return (*skeleton[:3], ("strides", seen), *map(seen_strides, skeleton[4:]))
    return tuple(map(seen_strides, skeleton))


def without_columns(skeleton: Any) -> Any:
    """A skeleton whose texts have one space wherever they have some."""
    if isinstance(skeleton, str):
        return " ".join(skeleton.split())
    return tuple(map(without_columns, skeleton)) if isinstance(skeleton, tuple) else skeleton


def _parting(a: Any, b: Any, path: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, Any]:
    """The first place where two skeletons differ."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if x != y:
                label = a[0] if i and isinstance(a[0], str) and len(a) == 2 else i
                return _parting(x, y, (*path, label))
    return path, a, b


def _kind(path: tuple[Any, ...], a: Any, b: Any) -> str:
    """What kind of fact two skeletons differ in."""
    words = [p for p in path if isinstance(p, str)]
    if words[:1] == ["outcome"] and {"returned", "raised"} <= {*ENDS.findall(repr(a)), *ENDS.findall(repr(b))}:
        return "outcome"
    for word in ("strides", "requires_grad", "leaf", "shared memory", "printed", "grad"):
        if word in words:
            return word
    return "structure"


def _spelled(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."
