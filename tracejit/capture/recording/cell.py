"""The state of an entry's structure (capture/recording/structure.py): the words that show that nothing has changed, and cached
tuples.

A `StructureCell` belongs to one entry.  When a word has changed, it runs the checks of the structure and stores the new words; it
also stores the tuples of arrays, tensors and edges that the entry's body uses (`Body.cached`).  There are two tables of words:

* The quick table has the dictionaries, and one counter for all tensors together (tensor/rebinding.py), so that the cost of a call
  does not grow with the number of parameters.
* The precise table has the words of each tensor.  It is compared when the quick one differs.  If it is equal, a tensor that does
  not belong to the structure has moved the counter: then only the counter is updated.

Each state has a key of its own, which identifies its arrays with their metadata (`ProgramSpec.resident`).  No other code can
reach the array objects of the tensors (`tensor.shield`), so none of this changes unless the counter moves.

Ownership: words are addresses and keep nothing alive.  Objects are kept alive by a `StructureState`: the tuples refer to arrays,
and to parameters if gradients may be needed; a state also keeps the containers that were checked, with their items, since only
addresses stand for these, and an address may be reused.  A cell refers to its state weakly.  One of the structure's own tensors
owns the state, which dies with the cell and with each root.  So a cell keeps nothing alive: a model to which its own parameters
lead is collected when nothing else refers to it.  If a structure has no tensors, nothing can own a `StructureState`, and its
checks run in every call.

This module must not know what is computed with the values.
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

_MOST = 64  # at most so many calls in a row are served without storing words


@cache
def _tensor_words() -> SlotWords:
    return SlotWords(
        Tensor, (("__class__", "_array", "_base"), ("_hooks", "_node", "_requires_grad")), ("_grad", "_storage", "_seen")
    )


@cache
def marks() -> Callable[[tuple[Storage, ...]], None]:
    """`mark_written` for a tuple of storages, as a builtin function if this Python supports it."""
    if not c_api.supported():
        return mark_written
    return marking(next_sequence, Storage, "version", "written")


class StructureState:
    """The objects that a cell's state keeps alive.  found: (table of objects that must be distinct from others, key, *the values
    that the entry needs).  items: (container, key, item) for each item that was checked."""

    __slots__ = ("__weakref__", "_watched", "_within", "found", "items")

    def __init__(
        self, apart: Sequence[Any], key: bytes, wanted: Sequence[Any], items: Sequence[tuple[Any, Any, Any]] = ()
    ) -> None:
        self.found = (distinctness.table(apart), key, *wanted)
        self.items = items
        self._within: dict[int, StructureState] = {}
        self._watched: tuple[weakref.ref[Any], ...] = ()

    def give_to(self, owner: Tensor, number: int, needed: Sequence[Any]) -> None:
        """Let `owner` keep this object alive, under a number, until one of the objects `needed` dies.  It is dropped then without
        running Python code, which a signal could interrupt."""
        try:
            self._within = _held_by(owner)
        except AttributeError as error:
            if is_foreign(error):
                raise
            self._within = {}
            _hold(owner, self._within)
        leave = partial(self._within.pop, number)
        self._watched = tuple([weakref.ref(value, leave) for value in needed])
        self._within[number] = self

    def leave(self, number: int) -> None:
        """The owner no longer keeps this object alive."""
        self._within.pop(number, None)


_NOTHING = StructureState((), NO_KEY, ())
_UNUSED = (b"", NEVER, weakref.ref(_NOTHING))
_held_by, _hold = Tensor.__dict__["_held"].__get__, Tensor.__dict__["_held"].__set__  # not overridden by subclasses


class _Tables(NamedTuple):
    """The words by which a state is found valid.  pairs: the words of the dictionaries, as in the quick table.  precise: the
    precise table.  own: the StructureState, if it has no other owner because it refers to nothing."""

    pairs: bytes
    precise: bytes
    state: tuple[bytes, bytes, weakref.ref[StructureState]]
    own: StructureState | None


_next_key = itertools.count(1).__next__
_next_number = itertools.count(1).__next__


class StructureCell:
    """The state of one entry's structure.  `state[0]` is (addresses of the roots, quick table, weak reference to a
    `StructureState`)."""

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
        """examine: examine(*roots) runs the checks.  It returns `missed`, or (instances, tensors, objects that must be distinct
        from others, (container, key, item) for each checked item, *the values that the entry needs).  namespaces: dictionaries
        of classes that the checks read.  calls: calls[0] is the number of calls that the entry has served."""
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
        previous, self.state[0], self._tables = self.state[0], _UNUSED, None
        state = previous[2]()
        if state is not None:
            state.leave(self._number)

    def refresh(self, *roots: Any) -> Any:
        """Called when a word has changed: runs the checks if needed, and returns the `StructureState`, or `missed`.  Stores it,
        unless the structure has changed too often lately."""
        addresses = packed([*map(id, roots)])
        tables, counter = self._tables, rebindings()
        if tables is not None and tables.state[0] == addresses:
            state = tables.state[2]()  # while it is alive, so are the objects whose words are in the tables
            if state is not None and same()(tables.precise, b""):
                self._keep(tables._replace(state=(addresses, _quick(counter, tables.pairs), tables.state[2])))
                return state
        self.drop()
        first = self._examine(*roots)
        if first is self._missed:
            return first
        instances, tensors, apart, items, *wanted = first
        if self._pays():
            for tensor in tensors:
                shield(tensor)
            counter = rebindings()
            words = self._words(instances, tensors, items)
            second = self._examine(*roots)  # after reading the words: if it finds the same, this was so when they were read
            if second is self._missed:
                return second
            _, _, apart, items_again, *wanted = second
            if words is not None and all(map(_are, (*second[:2], *items_again), (*first[:2], *items))):
                pairs, precise = words
                state = StructureState(apart, _new_key(), wanted, items_again)
                has_referents = bool(wanted or items)
                if has_referents and tensors:
                    state.give_to(tensors[0], self._number, (self, *roots))
                if tensors or not has_referents:
                    quick = (addresses, _quick(counter, pairs), weakref.ref(state))
                    self._keep(_Tables(pairs, precise, quick, None if has_referents else state))
                return state
        return StructureState(apart, _new_key(), wanted)

    def _keep(self, tables: _Tables) -> None:
        self._tables = tables
        self.state[0] = tables.state

    @property
    def hardly_pays(self) -> bool:
        """Whether the structure has changed in almost every call."""
        return self._patience == _MOST

    def _pays(self) -> bool:
        """Whether to store words now: not while the structure changes from call to call (exponential back-off)."""
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
        """The packed pairs of the quick table and the precise table; None if an object has no words.  instances: each after the
        one that it was read from."""
        words: list[int] = []
        for namespace in self._namespaces:
            words += namespace_words(namespace)
        for instance in instances:
            dictionary = instance_dictionary(instance)
            added = instance_words(instance, dictionary)
            if not added:
                return None
            words += added
        if items:
            added = item_words(items)
            if not added:
                return None
            words += added
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
    """Whether two sequences have the same objects."""
    return all(map(operator.is_, some, others))
