"""What an entry makes of rows of tensors of the program once it has run: tensors and lists whose sizes data decides.

Nothing else in the call depends on how many rows there are (handlers/ragged.py).  What is made has memory of its own, as in eager mode."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

__all__ = ["numbered_tensors", "numbers_of", "objects_of", "records_of", "selected_rows", "tensors_of"]


def selected_rows(rows: Tensor, inside: Tensor) -> Tensor:
    """The rows that a vector of bools selects."""
    return wrap(rows._array[inside._array])


def tensors_of(rows: Tensor, inside: Tensor | None, first: Tensor | None = None, last: Tensor | None = None) -> list[Tensor]:
    """Each of these rows, all if `inside` is None, as a tensor.  first, last: the tensors that are the first and the last one, if there are
    these already."""
    array = rows._array if inside is None else rows._array[inside._array]
    found = [wrap(array[k, ...].copy()) for k in range(len(array))]
    if first is not None:
        found[0] = first
    if last is not None:
        found[-1] = last
    return found


def numbered_tensors(rows: Any, numbers: list[int], objects: dict[int, Tensor]) -> list[Tensor]:
    """Each of these rows as a tensor, where those of one number are one object.  objects: those that there are, to which others are
    added."""
    for row, number in zip(rows, numbers, strict=True):
        if number not in objects:
            objects[number] = wrap(np.array(row))
    return [objects[number] for number in numbers]


def objects_of(
    rows: Tensor, numbers: Tensor, inside: Tensor | None, made: dict[int, Tensor], known: list[int | Tensor], *tensors: Tensor
) -> list[Tensor]:
    """The same for rows that a vector of bools selects, all if `inside` is None.  made: the objects so far.  known: the numbers of those
    that are there besides."""
    made.update({int(n if type(n) is int else n._array): x for n, x in zip(known, tensors, strict=True)})  # type: ignore[union-attr]
    selected = slice(None) if inside is None else inside._array
    return numbered_tensors(rows._array[selected], numbers._array[selected].tolist(), made)


def records_of(
    form: Any,
    constants: tuple[tuple[Any, ...] | None, ...],
    *columns: list[Any],
    read: Callable[[Any, Any], Any] = operator.getitem,
) -> list[Any]:
    """Items whose parts are those of these lists; constants, where a list has the numbers of such.  form: tuple; the keys of dictionaries;
    or None where the first part is the item itself.  read: gives the constant of a number."""
    pairs = zip(columns, constants, strict=True)
    parts = [column if known is None else [read(known, k) for k in column] for column, known in pairs]
    records = [*zip(*parts, strict=True)]
    if form is tuple:
        return records
    return [x for (x,) in records] if form is None else [dict(zip(form, x, strict=True)) for x in records]


def numbers_of(rows: Tensor, inside: Tensor | None) -> list[Any]:
    """The same for numbers."""
    return (rows._array if inside is None else rows._array[inside._array]).tolist()  # type: ignore[no-any-return]
