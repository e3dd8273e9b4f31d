"""Which guards of an entry machine code can check: those on the structure of objects reached from outside.

`split` sorts the prologue of a recording into four parts:

* `before`: guards on arguments, modes, globals, cells.  They also find the *roots*: instances from which the structure is reached.
* `checks`: guards that depend on nothing but attributes of instances, class dictionaries, items of lists, tuples and dictionaries found
  there, and the flags and arrays of the tensors found there.  All this is a few words of memory per object (cpython/words.py):
  while none of them has changed the checks need not run.
* `definitions`: the statements of `checks` that define variables, for those that the rest of the entry needs.
* `after`: guards that depend on variables defined in `checks`, but look at something that is in no word (an element of a set), or at
  what may change from call to call: a number in a dictionary that the program computes with, an item that the recorded call itself
  replaces.

capture/recording/cell.py keeps the words, and runs the checks when one has moved.
It must not know what is computed with the values.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tracejit.capture.policies import has_plain_state, instance_dictionary, is_a
from tracejit.cpython import c_api
from tracejit.cpython.words import instance_words, supported
from tracejit.replay.ir import (
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Constant,
    Contains,
    Define,
    Either,
    Every,
    Expr,
    Item,
    Length,
    ListOf,
    Miss,
    Name,
    Not,
    Same,
    Statement,
    TypeOf,
    Unary,
    Unpack,
    names,
    walk,
)  # fmt: skip
from tracejit.tensor import Tensor

__all__ = ["Structure", "split"]

_PURE = (Name("list"), Name("copysign"))
_FLAGS = frozenset({"_base", "_hooks", "_node", "_requires_grad"})
_SIMPLE = (int, float, str, bool, bytes, complex, type(None))
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict", collections.defaultdict: "dict"}
_WORTH_IT = 4  # with fewer checks they cost less than the words


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a prologue.  roots, instances, tensors: variables.  namespaces: names of constants, class dictionaries.

    reads: (variable of a list or dictionary, the index or key that `checks` look at, None for the length).  held: variables
    that are items of lists, tuples and dictionaries.  apart: variables defined in `checks` that must be distinct objects, from
    each other and from the expressions `others`."""

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
    """The parts of `guards`; None where it is not worth it, or not possible on this Python.

    distinct: objects that must be distinct.  objects: of variables, as recorded.  instance_reads: attributes that were found in instance
    dictionaries.  changed: ids of instances, of their dictionaries, of those of classes, and of containers, that the recorded call
    itself changes.  stored: id of a dictionary in which it only replaces items -> their keys."""
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
    """Goes through the guards in order.  kinds: variable defined by a check -> "instance", "tensor", "list", "tuple", "dict", "object" or
    "number"."""

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
        self._late: set[str] = set()  # variables defined in `after`
        # Whether there are calls in `after`: those that follow stay behind them, as draws of one generator do.
        self._called_late = False
        self._early: set[str] = set()  # variables defined in `before`

    def add(self, statement: Statement) -> None:
        needed: tuple[dict[Any, None], ...] = (self.roots, self.namespaces, self.reads)
        before = tuple(map(len, needed))
        match statement:
            case Miss(condition) if self._test(condition):
                self.checks.append(statement)
                return
            case Define(name, value) if self._defines(name, value):
                self.checks.append(statement)
                self.definitions[name] = statement
                self.kinds[name] = self._kind(name)
                if isinstance(value, Item) and self._container(value.owner) != "":
                    self.held.append(name)
                return
        for found, count in zip(needed, before, strict=True):  # what a refused statement would have needed
            while len(found) > count:
                found.popitem()
        used = names(statement)
        calls = any(isinstance(node, Call) and node.function not in _PURE for node in walk(statement))
        late = not used.isdisjoint(self.definitions) or not used.isdisjoint(self._late) or (calls and self._called_late)
        self._called_late = self._called_late or (calls and late)
        (self.after if late else self.before).append(statement)
        defined = [statement.name] if isinstance(statement, Define) else statement.names if isinstance(statement, Unpack) else []
        (self._late if late else self._early).update(defined)

    # -- expressions
    def _kind(self, variable: str) -> str:
        if variable not in self.objects:
            return "number"
        value = self.objects[variable]
        if type(value) in _CONTAINERS:
            return _CONTAINERS[type(value)] if id(value) not in self.changed else "object"
        return "tensor" if is_a(value, Tensor) else "instance" if self._is_instance(value) else "object"

    def _is_instance(self, value: Any) -> bool:
        """Whether the attributes of `value` are in a dictionary whose version can be read, and the recorded call leaves them alone."""
        cls: Any = type(value)
        if is_a(value, (Tensor, type)) or not has_plain_state(cls) or cls.__weakrefoffset__ == 0:
            return False
        dictionary = instance_dictionary(value)
        if dictionary is None or not {id(value), id(dictionary)}.isdisjoint((*self.changed, *self.stored)):
            return False
        return bool(instance_words(value, dictionary))

    def _instance(self, node: Expr) -> bool:
        if not isinstance(node, Name):
            return False
        name = node.name
        if name in self.definitions:
            return self.kinds[name] == "instance"
        if name in self.roots:
            return True
        if name in self._early and name in self.objects and self._is_instance(self.objects[name]):
            self.roots[name] = None
            return True
        return False

    def _namespace(self, node: Expr) -> bool:
        found = self.constants.get(node.name) if isinstance(node, Name) else None
        if isinstance(node, Name) and type(found) is MappingProxyType and id(found) not in self.changed:
            self.namespaces[node.name] = None
            return True
        return False

    def _dictionary(self, node: Expr) -> bool:
        attributes = isinstance(node, Attribute) and node.name == "__dict__" and self._instance(node.owner)
        return attributes or self._namespace(node)

    def _container(self, node: Expr) -> str:
        """ "list", "tuple" or "dict" for a variable that is one; else empty."""
        kind = self.kinds.get(node.name, "") if isinstance(node, Name) else ""
        return kind if kind in _CONTAINERS.values() else ""

    def _item(self, owner: Expr, index: Expr) -> bool:
        """An item of a container whose place is known: by a position, a string, or an object that is compared by identity."""
        kind = self._container(owner)
        if kind == "dict":
            return self._holds(owner, index)
        if not kind or not isinstance(index, Constant) or type(index.value) is not int or index.value < 0:
            return False
        if kind == "list":
            self._reading(owner, index)
        return True

    def _holds(self, container: Expr, key: Expr) -> bool:
        """A place of a dictionary that holds something that the recorded call does not replace."""
        if self._container(container) != "dict":
            return False
        assert isinstance(container, Name)
        if isinstance(key, Constant):
            if type(key.value) is not str or key.value in self.stored.get(id(self.objects[container.name]), ()):
                return False
        elif not isinstance(key, Name) or self.kinds.get(key.name) != "tensor" or not _is_plain_key(self.objects[key.name]):
            return False
        self._reading(container, key)
        return True

    def _reading(self, container: Expr, place: Expr | None) -> None:
        assert isinstance(container, Name)
        self.reads[container, place] = None

    def _read(self, node: Expr) -> bool:
        """A place whose content is in a word."""
        match node:
            case Item(owner, key):
                return self._item(owner, key) or (isinstance(key, Constant) and self._dictionary(owner))
            case Attribute(Name(name), attribute) if self.kinds.get(name) == "tensor":
                return attribute in _FLAGS
            case Attribute(owner, _):
                return node in self.instance_reads and self._instance(owner)
        return False

    def _defines(self, variable: str, node: Expr) -> bool:
        if isinstance(node, Item):
            found = self._container(node.owner)
            if found and found != "tuple" and variable not in self.objects:
                return False  # a number: likely another one in the next call
        return self._read(node) or (not isinstance(node, Constant | Name) and self._value(node))

    def _value(self, node: Expr) -> bool:
        """An expression of simple values."""
        match node:
            case Constant():
                return True
            case Name(name):
                if name in self.kinds:
                    return self.kinds[name] == "number"
                return isinstance(self.constants.get(name, self), _SIMPLE)
            case Arithmetic(_, left, right):
                return self._value(left) and self._value(right)
            case Unary(_, value):
                return self._value(value)
            case ListOf(elements):
                return all(isinstance(e, Constant) for e in elements)
            case Length(value):
                return self._dictionary(value) or self._length(value)
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
        """An expression of which only the identity counts."""
        match node:
            case Name(name):
                return name in self.kinds or self._instance(node) or name in self.constants or name in ("int", "float", "str")
            case TypeOf(Name(name) as value):
                return name in self.kinds or self._instance(value)
            case TypeOf():
                return False
        return self._read(node) or self._value(node)

    def _test(self, node: Expr) -> bool:
        match node:
            case Either(values) | Every(values):
                return all(map(self._test, values))
            case Not(Contains(container, element)):  # `if key not in d: return MISS`
                return self._holds(container, element) or self._among(container, element)
            case Not(value):
                return self._test(value)
            case Attribute(_, "_hooks"):
                return self._read(node)
            case Same(left, right):
                return self._identity(left) and self._identity(right)
            case Contains(container, element):
                return self._among(container, element)
            case Compare(_, left, right):
                return self._value(left) and self._value(right)
        return False

    def _among(self, container: Expr, element: Expr) -> bool:
        return isinstance(element, Constant) and self._dictionary(container)


def _is_plain_key(value: Any) -> bool:
    """Whether a dictionary finds it by its identity."""
    return type(value).__hash__ is object.__hash__
