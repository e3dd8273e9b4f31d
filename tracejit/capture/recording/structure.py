"""The structure of a recording: the guards on objects reached from outside that machine code can check by comparing words of
memory.

`split` sorts the prologue of a recording into four parts:

* `before`: guards on arguments, modes, globals, cells.  They also define the *roots*: instances from which the structure is
  reached.
* `checks`: guards that depend only on attributes of instances, class dictionaries, items of lists, tuples and dictionaries
  reached from these, and flags and arrays of tensors reached from these.  Each object has a few words of memory for all this
  (cpython/words.py); while no word has changed, the checks need not run.
* `definitions`: the statements of `checks` that define variables; the rest of the entry may use these.
* `after`: guards that depend on variables defined in `checks`, but read something that has no word (an element of a set), or that
  may change from call to call: a number in a dictionary that the program computes with, an item that the recorded call itself
  replaces.

capture/recording/cell.py stores the words, and runs the checks when one has changed.
This module must not know what is computed with the values.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tracejit.capture.policies import has_plain_state, instance_dictionary, is_a
from tracejit.capture.values.array_likes import array_like_model
from tracejit.cpython import c_api
from tracejit.cpython.words import instance_words, namespace_address, supported
from tracejit.replay.ir import (
    And,
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Constant,
    Contains,
    Define,
    Expr,
    Is,
    Item,
    Length,
    ListOf,
    Miss,
    Name,
    Not,
    Or,
    Statement,
    TypeOf,
    Unary,
    defined,
    names,
    walk,
)  # fmt: skip
from tracejit.tensor import Tensor

__all__ = ["Structure", "split"]

_PURE = (Name("list"), Name("copysign"))
_FLAGS = frozenset({"_base", "_hooks", "_node", "_requires_grad"})
_SIMPLE = (int, float, str, bool, bytes, complex, type(None))
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict", collections.defaultdict: "dict"}
_CONTAINER_KINDS = frozenset(_CONTAINERS.values())
_BUILTIN_TYPES = ("int", "float", "str")
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_WORTH_IT = 4  # fewer checks cost less than comparing words


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a prologue.

    roots, instances, tensors: names of variables.  namespaces: names of constants that are class dictionaries.
    reads: (variable of a list or dictionary, the index or key that `checks` read; None for the length).
    held: variables that are items of lists, tuples and dictionaries.
    apart: variables defined in `checks` that must be distinct objects, from each other and from the expressions `others`."""

    before: tuple[Statement, ...]
    checks: tuple[Statement, ...]
    after: tuple[Statement, ...]
    definitions: Mapping[str, Statement]
    roots: tuple[str, ...]
    instances: tuple[str, ...]
    tensors: tuple[str, ...]
    namespaces: tuple[str, ...]
    reads: tuple[tuple[Name, Expr | None], ...]
    held: tuple[str, ...]
    apart: tuple[str, ...]
    others: tuple[Expr, ...]


def split(
    guards: Sequence[Statement],
    distinct: Sequence[Expr],
    objects: Mapping[str, Any],
    constants: Mapping[str, Any],
    instance_reads: Collection[Expr],
    changed: frozenset[int] | set[int],
    stored: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> Structure | None:
    """The parts of `guards`; None if there are too few checks, or this Python does not allow it.

    distinct: expressions of objects that must be distinct.  objects: variable -> the object in the recorded call.  constants: the
    entry's namespace.  instance_reads: expressions of attributes that are in the dictionary of an instance.
    changed: ids of instances, dictionaries of instances and classes, and containers that the recorded call itself changes.
    stored: id of a dictionary in which the call only replaces items -> the keys of these."""
    if not (supported() and c_api.supported()):
        return None
    splitter = _Splitter(objects, constants, instance_reads, changed, stored)
    for statement in guards:
        splitter.add(statement)
    if len(splitter.checks) < _WORTH_IT:
        return None
    checked = [isinstance(value, Name) and value.name in splitter.definitions for value in distinct]
    return Structure(
        before=tuple(splitter.before),
        checks=tuple(splitter.checks),
        after=tuple(splitter.after),
        definitions=splitter.definitions,
        roots=tuple(splitter.roots),
        instances=(*splitter.roots, *[v for v in splitter.definitions if splitter.kinds[v] == "instance"]),
        tensors=tuple([v for v in splitter.definitions if splitter.kinds[v] == "tensor"]),
        namespaces=tuple(splitter.namespaces),
        reads=tuple(splitter.reads),
        held=tuple(splitter.held),
        apart=tuple([value.name for value, inside in zip(distinct, checked, strict=True) if inside and isinstance(value, Name)]),
        others=tuple([value for value, inside in zip(distinct, checked, strict=True) if not inside]),
    )


class _Splitter:
    """Sorts the guards, one after the other.  kinds: variable defined by a check -> "instance", "tensor", "list", "tuple",
    "dict", "object" or "number".

    A deep model has thousands of guards; for speed, expressions are distinguished by `type(node)` and their fields read by
    position.  Methods named after a condition (`_test`, `_read`, `_value` ...) say whether an expression may be a part of a
    check; they also note the roots, namespaces and reads that it needs."""

    def __init__(
        self,
        objects: Mapping[str, Any],
        constants: Mapping[str, Any],
        instance_reads: Collection[Expr],
        changed: frozenset[int] | set[int],
        stored: Mapping[int, Collection[str]],
    ) -> None:
        self.objects = objects
        self.constants = constants
        self.instance_reads = instance_reads
        self.changed = changed
        self.stored = stored
        self.before: list[Statement] = []
        self.checks: list[Statement] = []
        self.after: list[Statement] = []
        self.definitions: dict[str, Statement] = {}
        self.roots: dict[str, None] = {}
        self.namespaces: dict[str, None] = {}
        self.reads: dict[tuple[Name, Expr | None], None] = {}
        self.held: list[str] = []
        self.kinds: dict[str, str] = {}
        # What is to be noted if the current statement becomes a check: (one of the tables above, a key).
        self._needed: list[tuple[dict[Any, None], Any]] = []
        self._defined_after: set[str] = set()  # variables defined in `after`
        # Whether `after` has calls.  Later calls then go to `after`, too, so that their order is kept (draws of one generator).
        self._calls_after = False
        self._defined_before: set[str] = set()  # variables defined in `before`
        self._is_watched: dict[int, bool] = {}  # id of an object -> whether its attributes are in words
        self._read_before = self._namespaces_read_before()

    def add(self, statement: Statement) -> None:
        kind = type(statement)
        if kind is Miss and self._test(statement[1]):
            self.checks.append(statement)
            self._need()
            return
        if kind is Define and self._defines(name := statement[1], value := statement[2]):
            self.checks.append(statement)
            self.definitions[name] = statement
            self.kinds[name] = self._kind(name)
            if type(value) is Item and self._container(value[1]):
                self.held.append(name)
            self._need()
            return
        self._needed.clear()  # it is no check: nothing need be noted
        is_defined_after = self._comes_after(statement)
        (self.after if is_defined_after else self.before).append(statement)
        (self._defined_after if is_defined_after else self._defined_before).update(defined(statement))

    def _need(self) -> None:
        """The current statement has become a check: note what it needs."""
        for table, key in self._needed:
            table[key] = None
        self._needed.clear()

    def _comes_after(self, statement: Statement) -> bool:
        """Whether a statement that is no check comes after the checks."""
        used = names(statement)
        is_defined_after = not (self.definitions.keys().isdisjoint(used) and self._defined_after.isdisjoint(used))
        if is_defined_after != self._calls_after and any(type(node) is Call and node[1] not in _PURE for node in walk(statement)):
            self._calls_after = is_defined_after = True
        return is_defined_after

    def _namespaces_read_before(self) -> set[int]:
        """Addresses of the class dictionaries of objects whose attributes each call reads before the checks.  These dictionaries
        decide what such a read does (a property, `__getattribute__`), so the guards on them must come before it: they cannot be
        checks."""
        classes = {type(value) for value in self.objects.values() if type(value) is not Tensor and not self._is_instance(value)}
        bases = {base for cls in classes for base in cls.__mro__ if not base.__flags__ & _IMMUTABLE}
        return {namespace_address(vars(base)) for base in bases}

    # -- expressions
    def _kind(self, variable: str) -> str:
        if variable not in self.objects:
            return "number"
        value = self.objects[variable]
        if type(value) in _CONTAINERS:
            return _CONTAINERS[type(value)] if id(value) not in self.changed else "object"
        return "tensor" if is_a(value, Tensor) else "instance" if self._is_instance(value) else "object"

    def _is_instance(self, value: Any) -> bool:
        """Whether words tell when the attributes of `value` change, and the recorded call itself does not change them."""
        cached = self._is_watched.get(id(value))
        if cached is None:
            cached = self._is_watched[id(value)] = self._has_words(value)
        return cached

    def _has_words(self, value: Any) -> bool:
        cls: Any = type(value)
        if is_a(value, (Tensor, type)) or not has_plain_state(cls) or cls.__weakrefoffset__ == 0:
            return False
        if array_like_model(cls) is not None:  # calls in `before` may read it, for which its type has to be guarded
            return False
        dictionary = instance_dictionary(value)
        if type(dictionary) is not dict or not {id(value), id(dictionary)}.isdisjoint((*self.changed, *self.stored)):
            return False
        return bool(instance_words(value, dictionary))

    def _instance(self, node: Expr) -> bool:
        if type(node) is not Name:
            return False
        name = node[1]
        if name in self.definitions:
            return self.kinds[name] == "instance"
        if name in self.roots:
            return True
        if name in self._defined_before and name in self.objects and self._is_instance(self.objects[name]):
            self._needed.append((self.roots, name))
            return True
        return False

    def _namespace(self, node: Expr) -> bool:
        value = self.constants.get(node[1]) if type(node) is Name else None
        if (
            type(value) is MappingProxyType
            and id(value) not in self.changed
            and namespace_address(value) not in self._read_before
        ):
            self._needed.append((self.namespaces, node[1]))
            return True
        return False

    def _dictionary(self, node: Expr) -> bool:
        attributes = type(node) is Attribute and node[2] == "__dict__" and self._instance(node[1])
        return attributes or self._namespace(node)

    def _container(self, node: Expr) -> str:
        """ "list", "tuple" or "dict" for a variable that is one; else ""."""
        kind = self.kinds.get(node[1], "") if type(node) is Name else ""
        return kind if kind in _CONTAINER_KINDS else ""

    def _item(self, owner: Expr, index: Expr) -> bool:
        """An item of a list or tuple at a constant index, or of a dictionary (`_holds`)."""
        kind = self._container(owner)
        if kind == "dict":
            return self._holds(owner, index)
        if not kind or type(index) is not Constant or type(index[1]) is not int or index[1] < 0:
            return False
        if kind == "list":
            self._reading(owner, index)
        return True

    def _holds(self, container: Expr, key: Expr) -> bool:
        """An item of a dictionary, by a text or a tensor as the key, that the recorded call does not replace."""
        if self._container(container) != "dict":
            return False
        if type(key) is Constant:
            if type(key[1]) is not str or key[1] in self.stored.get(id(self.objects[container[1]]), ()):
                return False
        elif type(key) is not Name or self.kinds.get(key[1]) != "tensor" or not _is_plain_key(self.objects[key[1]]):
            return False
        self._reading(container, key)
        return True

    def _reading(self, container: Expr, key: Expr | None) -> None:
        assert isinstance(container, Name)
        self._needed.append((self.reads, (container, key)))

    def _read(self, node: Expr) -> bool:
        """An attribute or item whose value a word stands for."""
        kind = type(node)
        if kind is Item:
            owner, key = node[1:]
            return self._item(owner, key) or (type(key) is Constant and self._dictionary(owner))
        if kind is Attribute:
            owner, attribute = node[1:]
            if type(owner) is Name and self.kinds.get(owner[1]) == "tensor":
                return attribute in _FLAGS
            return node in self.instance_reads and self._instance(owner)
        return False

    def _defines(self, variable: str, node: Expr) -> bool:
        kind = type(node)
        if kind is Item and variable not in self.objects and self._container(node[1]) in ("list", "dict"):
            return False  # a number, which likely differs in the next call
        return self._read(node) or (kind is not Constant and kind is not Name and self._value(node))

    def _value(self, node: Expr) -> bool:
        """An expression of plain values."""
        kind = type(node)
        if kind is Constant:
            return True
        if kind is Name:
            name = node[1]
            return self.kinds[name] == "number" if name in self.kinds else isinstance(self.constants.get(name, self), _SIMPLE)
        if kind is Arithmetic:
            return self._value(node[2]) and self._value(node[3])
        if kind is Unary:
            return self._value(node[2])
        if kind is ListOf:
            return all(type(element) is Constant for element in node[1])
        if kind is Length:
            return self._dictionary(node[1]) or self._length(node[1])
        match node:
            case Call(Name("list"), (argument,), ()):
                return self._dictionary(argument)
            case Call(Name("copysign"), arguments, ()):
                return all(map(self._value, arguments))
        return False

    def _length(self, node: Expr) -> bool:
        kind = self._container(node)
        if kind and kind != "tuple":
            self._reading(node, None)
        return bool(kind)

    def _identity(self, node: Expr) -> bool:
        """An expression that is compared by identity."""
        kind = type(node)
        if kind is Constant:
            return True
        if kind is Name:
            return node[1] in self.kinds or self._instance(node) or node[1] in self.constants or node[1] in _BUILTIN_TYPES
        if kind is TypeOf:
            return type(node[1]) is Name and (node[1][1] in self.kinds or self._instance(node[1]))
        return self._read(node) or self._value(node)

    def _test(self, node: Expr) -> bool:
        kind = type(node)
        if kind is Not:
            inner = node[1]
            if type(inner) is not Contains:
                return self._test(inner)
            return self._holds(inner[1], inner[2]) or self._among(inner[1], inner[2])  # `if key not in d: return MISS`
        if kind is Is:
            return self._identity(node[1]) and self._identity(node[2])
        if kind is Contains:
            return self._among(node[1], node[2])
        if kind is Or or kind is And:
            return all(map(self._test, node[1]))
        if kind is Compare:
            return self._value(node[2]) and self._value(node[3])
        return kind is Attribute and node[2] == "_hooks" and self._read(node)

    def _among(self, container: Expr, element: Expr) -> bool:
        return type(element) is Constant and self._dictionary(container)


def _is_plain_key(value: Any) -> bool:
    """Whether a dictionary looks a key up by its identity."""
    return type(value).__hash__ is object.__hash__
