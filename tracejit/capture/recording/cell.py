"""The state of an entry's structure (capture/recording/structure.py): the words that show that nothing has changed, and what is made once.

A `StructureCell` belongs to one entry.  It runs the checks when a word has moved, and keeps the new words and, made once, the tuples of
arrays, tensors and edges that the entry's body asks for (`Body.cached`).  There are two tables of words.  The quick one has the
dictionaries, and for all tensors together the counter of tensor/rebinding.py: a call's cost does not grow with the number of parameters.
The precise one, with the tensors' own words, is asked when the quick one has moved; if that was because of a tensor that nobody asked
about, only the counter is new.

Each state has a key of its own, which stands for its arrays with the metadata that they have (`ProgramSpec.resident`): the array
objects of the tensors are out of reach of others (`tensor.shield`), so none of that changes unless the counter moves.

Ownership: words are addresses, and hold nothing.  What holds objects (the tuples hold arrays, and parameters where gradients may be wanted;
a state holds the containers that were looked at, with their items, since these have no words that no later state repeats, only
addresses) is in a `StructureState`, which a cell refers to weakly.  One of the structure's own tensors owns it, and it dies with the cell
and with each root.  So a cell keeps nothing alive, whatever leads where: a model to which its own parameters lead goes when the collector
finds that nobody else has it.  A structure without tensors has no owner for a `StructureState`; then its checks run in every call.

It must not know what is computed with the values.
"""

from __future__ import annotations

import itertools
import operator
import struct
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from tracejit.autograd.tape import Storage, mark_written, next_sequence
from tracejit.capture.policies import instance_dictionary
from tracejit.core.interrupts import is_foreign
from tracejit.cpython import c_api, distinctness
from tracejit.cpython.frame_check import NO_KEY
from tracejit.cpython.marking import marking
from tracejit.cpython.words import (
    NEVER,
    SlotWords,
    counted,
    instance_words,
    item_words,
    namespace_words,
    packed,
    same,
    table,
)
from tracejit.tensor import Tensor, shield
from tracejit.tensor.rebinding import ADDRESS, rebindings

__all__ = ["StructureCell", "StructureState", "marks"]

_MOST = 64  # calls for which no table is made


@cache
def _tensor_words() -> SlotWords:
    return SlotWords(
        Tensor, (("__class__", "_array", "_base"), ("_hooks", "_node", "_requires_grad")), ("_grad", "_storage", "_seen")
    )


@cache
def marks() -> Callable[[tuple[Storage, ...]], None]:
    """`mark_written` for a tuple, as a builtin function where there can be one."""
    if not c_api.supported():
        return mark_written
    return marking(next_sequence, Storage, "version", "written")


class StructureState:
    """What the state of a cell holds.  found: (ids of objects that must differ from others, key, *what the entry wants); items: (container,
    place, item) for each item that was looked at."""

    __slots__ = ("__weakref__", "_watched", "_within", "found", "items")

    def __init__(
        self, apart: Sequence[Any], key: bytes, wanted: Sequence[Any], items: Sequence[tuple[Any, Any, Any]] = ()
    ) -> None:
        self.found = (distinctness.table(apart), key, *wanted)
        self.items = items
        self._within: dict[int, StructureState] = {}
        self._watched: tuple[weakref.ref[Any], ...] = ()

    def give_to(self, owner: Tensor, number: int, needed: Sequence[Any]) -> None:
        """Live with `owner` under a number, until one of the objects `needed` dies.  No Python code runs then: nothing that a signal could
        interrupt."""
        try:
            self._within = _held_by(owner)
        except AttributeError as error:
            if is_foreign(error):
                raise
            self._within = {}
            _hold(owner, self._within)
        leave = partial(self._within.pop, number)
        self._watched = tuple([weakref.ref(needed_one, leave) for needed_one in needed])
        self._within[number] = self

    def leave(self, number: int) -> None:
        """Live on only as long as a call needs it."""
        self._within.pop(number, None)


_NOTHING = StructureState((), NO_KEY, ())
_UNUSED = (b"", NEVER, weakref.ref(_NOTHING))
_held_by, _hold = Tensor.__dict__["_held"].__get__, Tensor.__dict__["_held"].__set__  # past what a subclass may do to attributes


class _Tables(NamedTuple):
    """What shows that a state still holds.  pairs: the words of the dictionaries, as in the quick table.  own: what nobody else holds."""

    pairs: bytes
    precise: bytes
    state: tuple[bytes, bytes, weakref.ref[StructureState]]
    own: StructureState | None


_next_key = itertools.count(1).__next__
_next_number = itertools.count(1).__next__


class StructureCell:
    """`state[0]` is (addresses of the roots, quick table, weak reference to a `StructureState`)."""

    __slots__ = (
        "__weakref__",
        "_backing_off",
        "_calls",
        "_examine",
        "_last",
        "_missed",
        "_namespaces",
        "_number",
        "_patience",
        "_tables",
        "state",
    )

    def __init__(self, examine: Callable[..., Any], missed: object, namespaces: Sequence[Any], calls: Sequence[int]) -> None:
        """examine(*roots) runs the checks: what it finds (instances, tensors, objects that must differ from others, (container, place,
        item) for each item it looked at, *what the entry wants), or `missed`.  calls[0]: how many calls the entry has served."""
        self._examine = examine
        self._namespaces = tuple(namespaces)
        self._number = _next_number()
        self._calls = calls
        self._last = -2
        self._patience = self._backing_off = 0
        self._tables: _Tables | None = None
        self.state: list[Any] = [_UNUSED]
        self._missed = missed

    def drop(self) -> None:
        """Forget words and tuples."""
        state, self.state[0], self._tables = self.state[0], _UNUSED, None
        held = state[2]()
        if held is not None:
            held.leave(self._number)

    def refresh(self, *roots: Any) -> Any:
        """A word has moved: the `StructureState` after running the checks where needed, or `missed`.  Keeps it, unless that has not paid
        lately."""
        addresses = packed([*map(id, roots)])
        known, counter = self._tables, rebindings()
        if known is not None and known.state[0] == addresses:
            held = known.state[2]()  # what the words speak of lives while it does
            if held is not None and same()(known.precise, b""):
                self._keep(known._replace(state=(addresses, _quick(counter, known.pairs), known.state[2])))
                return held
        self.drop()
        found = self._examine(*roots)
        if found is self._missed:
            return found
        instances, tensors, apart, items, *wanted = found
        if self._pays():
            for tensor in tensors:
                shield(tensor)
            counter = rebindings()
            words = self._words(instances, tensors, items)
            again = self._examine(*roots)  # the words are older than this: what it finds true held when they were read
            if again is self._missed:
                return again
            _, _, apart, items_again, *wanted = again
            if words is not None and all(map(_are, (*again[:2], *items_again), (*found[:2], *items))):
                pairs, precise = words
                held = StructureState(apart, _new_key(), wanted, items_again)
                holds_some = bool(wanted or items)
                if holds_some and tensors:
                    held.give_to(tensors[0], self._number, (self, *roots))
                if tensors or not holds_some:
                    state = (addresses, _quick(counter, pairs), weakref.ref(held))
                    self._keep(_Tables(pairs, precise, state, None if holds_some else held))
                return held
        return StructureState(apart, _new_key(), wanted)

    def _keep(self, tables: _Tables) -> None:
        self._tables = tables
        self.state[0] = tables.state

    @property
    def hardly_pays(self) -> bool:
        """Whether the structure has been another one in call after call."""
        return self._patience == _MOST

    def _pays(self) -> bool:
        """Whether making a table is worth it: not where the structure changes from call to call."""
        served, self._last = self._calls[0] - self._last, self._calls[0]
        if self._backing_off:
            self._backing_off -= 1
            return False
        self._patience = min(_MOST, 2 * self._patience + 1) if served < 2 else 0
        self._backing_off = self._patience
        return True

    def _words(
        self, instances: Sequence[Any], tensors: Sequence[Tensor], items: Sequence[tuple[Any, Any, Any]]
    ) -> tuple[bytes, bytes] | None:
        """Pairs of dictionaries and items, packed, and the precise table: they hold while all is as it is; an instance comes after the one
        it was found in.  None where there are none."""
        words: list[int] = []
        for namespace in self._namespaces:
            words += namespace_words(namespace)
        for instance in instances:
            dictionary = instance_dictionary(instance)
            found = instance_words(instance, dictionary)
            if not found:
                return None
            words += found
        if items:
            found = item_words(items)
            if not found:
                return None
            words += found
        pairs = packed(words)
        of_tensors = _tensor_words()
        blocks: list[int] = []
        for tensor in tensors:
            blocks += of_tensors.blocks(tensor)
            if tensor._storage is not None:
                words += of_tensors.pair(tensor, "_storage", tensor._storage)
            if tensor._hooks is not None or tensor._base is not None or tensor._node is not None:
                return None
        return pairs, table(words, blocks)


def _quick(counter: int, pairs: bytes) -> bytes:
    return counted(ADDRESS, counter, pairs)


def _new_key() -> bytes:
    return struct.pack("=q", _next_key())


def _are(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the elements are the same objects."""
    return all(map(operator.is_, some, others))
