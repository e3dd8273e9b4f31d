"""Which guards of an entry machine code can check: those on the structure of objects reached from outside.

`split` sorts the prologue of a recording into four parts:

* `before`: guards on arguments, modes, globals, cells.  They also find the *roots*: instances from which the structure is reached.
* `checks`: guards that depend on nothing but attributes of instances, class dictionaries, items of lists, tuples and dictionaries found
  there, and the flags and arrays of the tensors found there.  All this is a few words of memory per object (codegen/words.py):
  while none of them has changed the checks need not run.
* `definitions`: the lines of `checks` that define variables, for those that the rest of the entry needs.
* `after`: guards that depend on variables defined in `checks`, but look at something that is in no word (an element of a set), or at
  what may change from call to call: a number in a dictionary that the program computes with, an item that the recorded call itself
  replaces.

capture/cell.py keeps the words, and runs the checks when one has moved.
It must not know what is computed with the values.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tracejit.capture.policies import has_plain_state, instance_dictionary, is_a
from tracejit.codegen import python_api
from tracejit.codegen.words import instance_words, supported
from tracejit.tensor import Tensor

__all__ = ["Structure", "split"]

_PURE = frozenset({"type", "len", "list", "copysign"})
_FLAGS = frozenset({"_base", "_hooks", "_node", "_requires_grad"})
_SIMPLE = (int, float, str, bool, bytes, complex, type(None))
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", dict: "dict", collections.defaultdict: "dict"}
_WORTH_IT = 4  # with fewer checks they cost less than the words


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a prologue.  roots, instances, tensors: variables.  namespaces: names of constants, class dictionaries.

    reads: (variable of a list or dictionary, expression of the index or key that `checks` look at, "" for the length).  held: variables
    that are items of lists, tuples and dictionaries.  apart: variables defined in `checks` that must be distinct objects, from
    each other and from the expressions `others`."""

    before: tuple[str, ...]
    checks: tuple[str, ...]
    after: tuple[str, ...]
    definitions: Mapping[str, str]
    roots: tuple[str, ...]
    instances: tuple[str, ...]
    tensors: tuple[str, ...]
    namespaces: tuple[str, ...]
    reads: tuple[tuple[str, str], ...]
    held: tuple[str, ...]
    apart: tuple[str, ...]
    others: tuple[str, ...]


def split(
    guards: Sequence[str],
    distinct: Sequence[str],
    objects: Mapping[str, Any],
    constants: Mapping[str, Any],
    instance_reads: frozenset[str] | set[str],
    changed: frozenset[int] | set[int],
    stored: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> Structure | None:
    """The parts of `guards`; None where it is not worth it, or not possible on this Python.

    distinct: expressions of objects that must be distinct.  objects: of variables, as recorded.  instance_reads: texts of attributes
    that were found in instance dictionaries.  changed: ids of instances, of their dictionaries, of those of classes, and of containers,
    that the recorded call itself changes.  stored: id of a dictionary in which it only replaces items -> their keys."""
    if not (supported() and python_api.supported()):
        return None
    splitter = _Splitter(objects, constants, instance_reads, changed, stored)
    for line in guards:
        splitter.add(line)
    if len(splitter.checks) < _WORTH_IT:
        return None
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
        apart=tuple([v for v in distinct if v in splitter.definitions]),
        others=tuple([v for v in distinct if v not in splitter.definitions]),
    )


class _Splitter:
    """Goes through the lines in order.  kinds: variable defined by a check -> "instance", "tensor", "list", "tuple", "dict", "object" or
    "number"."""

    def __init__(
        self,
        objects: Mapping[str, Any],
        constants: Mapping[str, Any],
        instance_reads: frozenset[str] | set[str],
        changed: frozenset[int] | set[int],
        stored: Mapping[int, Collection[str]],
    ) -> None:
        self.objects = objects
        self.constants = constants
        self.instance_reads = instance_reads
        self.changed = changed
        self.stored = stored
        self.before: list[str] = []
        self.checks: list[str] = []
        self.after: list[str] = []
        self.definitions: dict[str, str] = {}
        self.roots: dict[str, None] = {}
        self.namespaces: dict[str, None] = {}
        self.reads: dict[tuple[str, str], None] = {}
        self.held: list[str] = []
        self.kinds: dict[str, str] = {}
        self._late: set[str] = set()  # variables defined in `after`
        self._called_late = (
            False  # whether there are calls in `after`: those that follow stay behind them, as draws of one generator do
        )
        self._early: set[str] = set()  # variables defined in `before`

    def add(self, line: str) -> None:
        statement = ast.parse(line).body[0]
        roots, namespaces, reads = dict(self.roots), dict(self.namespaces), dict(self.reads)
        if isinstance(statement, ast.If) and self._test(statement.test):
            self.checks.append(line)
            return
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and self._defines(target.id, statement.value):
            self.checks.append(line)
            self.definitions[target.id] = line
            self.kinds[target.id] = self._kind(target.id)
            if isinstance(statement.value, ast.Subscript) and self._container(statement.value.value) != "":
                self.held.append(target.id)
            return
        self.roots, self.namespaces, self.reads = roots, namespaces, reads  # what a refused line would have needed
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        calls = any(isinstance(node, ast.Call) and ast.unparse(node.func) not in _PURE for node in ast.walk(statement))
        late = not names.isdisjoint(self.definitions) or not names.isdisjoint(self._late) or (calls and self._called_late)
        self._called_late = self._called_late or (calls and late)
        (self.after if late else self.before).append(line)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                (self._late if late else self._early).add(node.id)

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

    def _instance(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name):
            return False
        if node.id in self.definitions:
            return self.kinds[node.id] == "instance"
        if node.id in self.roots:
            return True
        if node.id in self._early and node.id in self.objects and self._is_instance(self.objects[node.id]):
            self.roots[node.id] = None
            return True
        return False

    def _namespace(self, node: ast.expr) -> bool:
        found = self.constants.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Name) and type(found) is MappingProxyType and id(found) not in self.changed:
            self.namespaces[node.id] = None
            return True
        return False

    def _dictionary(self, node: ast.expr) -> bool:
        return (isinstance(node, ast.Attribute) and node.attr == "__dict__" and self._instance(node.value)) or self._namespace(
            node
        )

    def _container(self, node: ast.expr) -> str:
        """ "list", "tuple" or "dict" for a variable that is one; else empty."""
        kind = self.kinds.get(node.id, "") if isinstance(node, ast.Name) else ""
        return kind if kind in _CONTAINERS.values() else ""

    def _item(self, node: ast.Subscript) -> bool:
        """An item of a container whose place is known: by a position, a string, or an object that is compared by identity."""
        kind, index = self._container(node.value), node.slice
        assert isinstance(node.value, ast.Name) or not kind
        if kind == "dict":
            return self._holds(node.value, index)
        if not kind or not isinstance(index, ast.Constant) or type(index.value) is not int or index.value < 0:
            return False
        if kind == "list":
            self._reading(node.value, index)
        return True

    def _holds(self, container: ast.expr, key: ast.expr) -> bool:
        """A place of a dictionary that holds something that the recorded call does not replace."""
        if self._container(container) != "dict":
            return False
        assert isinstance(container, ast.Name)
        if isinstance(key, ast.Constant):
            if type(key.value) is not str or key.value in self.stored.get(id(self.objects[container.id]), ()):
                return False
        elif not isinstance(key, ast.Name) or self.kinds.get(key.id) != "tensor" or not _is_plain_key(self.objects[key.id]):
            return False
        self._reading(container, key)
        return True

    def _reading(self, container: ast.expr, place: ast.expr | None) -> None:
        self.reads[ast.unparse(container), "" if place is None else ast.unparse(place)] = None

    def _read(self, node: ast.expr) -> bool:
        """A place whose content is in a word."""
        if isinstance(node, ast.Subscript):
            return self._item(node) or (isinstance(node.slice, ast.Constant) and self._dictionary(node.value))
        if not isinstance(node, ast.Attribute):
            return False
        if isinstance(node.value, ast.Name) and self.kinds.get(node.value.id) == "tensor":
            return node.attr in _FLAGS
        return ast.unparse(node) in self.instance_reads and self._instance(node.value)

    def _defines(self, variable: str, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript):
            found = self._container(node.value)
            if found and found != "tuple" and variable not in self.objects:
                return False  # a number: likely another one in the next call
        return self._read(node) or (not isinstance(node, (ast.Constant, ast.Name)) and self._value(node))

    def _value(self, node: ast.expr) -> bool:
        """An expression of simple values."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            if node.id in self.kinds:
                return self.kinds[node.id] == "number"
            return isinstance(self.constants.get(node.id, self), _SIMPLE)
        if isinstance(node, ast.BinOp):
            return self._value(node.left) and self._value(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._value(node.operand)
        if isinstance(node, ast.List):
            return all(isinstance(e, ast.Constant) for e in node.elts)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            if node.func.id in ("len", "list"):
                return len(node.args) == 1 and (self._dictionary(node.args[0]) or self._length(node))
            return node.func.id == "copysign" and all(self._value(a) for a in node.args)
        return False

    def _length(self, call: ast.Call) -> bool:
        kind = self._container(call.args[0])
        if not kind or ast.unparse(call.func) != "len":
            return False
        if kind != "tuple":
            self._reading(call.args[0], None)
        return True

    def _identity(self, node: ast.expr) -> bool:
        """An expression of which only the identity counts."""
        if isinstance(node, ast.Name):
            return (
                node.id in self.kinds or self._instance(node) or node.id in self.constants or node.id in ("int", "float", "str")
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1:
            argument = node.args[0]
            return isinstance(argument, ast.Name) and (argument.id in self.kinds or self._instance(argument))
        return self._read(node) or self._value(node)

    def _test(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            return all(self._test(v) for v in node.values)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._test(node.operand)
        if isinstance(node, ast.Attribute):
            return node.attr == "_hooks" and self._read(node)
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return False
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self._identity(left) and self._identity(right)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            found = isinstance(node.ops[0], ast.NotIn) and self._holds(right, left)  # `if key not in d: return MISS`
            return found or (isinstance(left, ast.Constant) and self._dictionary(right))
        return self._value(left) and self._value(right)


def _is_plain_key(value: Any) -> bool:
    """Whether a dictionary finds it by its identity."""
    return type(value).__hash__ is object.__hash__
