"""Which guards of an entry machine code can check: those on the structure of objects reached from outside.

`split` sorts the prologue of a recording into four parts:

* `before`: guards on arguments, modes, globals, cells.  They also find the *roots*: instances from which the structure is reached.
* `checks`: guards that depend on nothing but attributes of instances, class dictionaries, and the flags and arrays of the tensors found
  there.  All this is a few words of memory per object (codegen/words.py): while none of them has changed the checks need not run.
* `definitions`: the lines of `checks` that define variables, for those that the rest of the entry needs.
* `after`: guards that depend on variables defined in `checks`, but look at something that is in no word (an element of a set).

A `Cell` belongs to one entry.  It runs the checks when a word has moved, and keeps the new words and, made once, the tuples of arrays,
tensors and edges that the entry's body asks for (`Body.cached`).  There are two tables of words.  The quick one has the dictionaries, and
for all tensors together the counter of tensor/rebinding.py: a call's cost does not grow with the number of parameters.  The precise
one, with the tensors' own words, is asked when the quick one has moved; if that was because of a tensor that nobody asked about,
only the counter is new.

Each state has a key of its own, which stands for its arrays with the metadata that they have (`ProgramSpec.resident`): the array
objects of the tensors are out of reach of others (`tensor.shield`), so none of that changes unless the counter moves.

Ownership: words are addresses, and hold nothing.  The tuples do hold arrays, and parameters where gradients may be wanted; they are
dropped when a root dies (a weak reference tells), so a cell does not keep a dead model alive, and when the checks fail.  Only a
parameter that itself leads to its model (an attribute of the tensor, a hook) could; such a parameter is not cached.

It must not know what is computed with the values.
"""

from __future__ import annotations

import ast
import itertools
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from tracejit.capture.policies import has_plain_state, instance_dictionary, is_a
from tracejit.codegen.frame_check import NO_KEY
from tracejit.codegen.words import (
    BLOCK,
    NEVER,
    Functions,
    block,
    counted,
    functions,
    instance_words,
    namespace_words,
    packed,
    slot_offsets,
    supported,
    table,
)
from tracejit.tensor import Tensor, shield
from tracejit.tensor.rebinding import ADDRESS, rebindings

__all__ = ["Cell", "Structure", "machine", "split"]

_SLOTS = ("_array", "_base", "_grad", "_hooks", "_node", "_requires_grad", "_seen", "_storage")
_FLAGS = frozenset({"_base", "_hooks", "_node", "_requires_grad"})
_SIMPLE = (int, float, str, bool, bytes, complex, type(None))
_WORTH_IT = 4  # with fewer checks they cost less than the words


@cache
def _offsets() -> dict[str, int]:
    """Of the slots of a Tensor.  Raises RuntimeError where the blocks of `Cell` would not hold what they must, or hold what may change."""
    found = {"type": object.__basicsize__ - 8, **slot_offsets(Tensor(), _SLOTS)}
    for start, inside in (("type", ("_array", "_base")), ("_hooks", ("_node", "_requires_grad"))):
        covered = {name for name, offset in found.items() if 0 <= offset - found[start] < 8 * BLOCK}
        if not covered.issuperset(inside) or not covered.isdisjoint(("_grad", "_storage", "_seen")):
            raise RuntimeError(
                f"slots of Tensor: a block from {start} on holds {sorted(covered)}; expected {inside} and no changing ones"
            )
    return found


@cache
def machine() -> Functions:
    """`same` of codegen/words.py, where the slots of Tensors are as `Cell` needs them."""
    _offsets()
    return functions()


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of a prologue.  roots, instances, tensors: variables.  namespaces: names of constants, class dictionaries.

    apart: variables defined in `checks` that must be distinct objects, from each other and from the expressions `others`."""

    before: tuple[str, ...]
    checks: tuple[str, ...]
    after: tuple[str, ...]
    definitions: Mapping[str, str]
    roots: tuple[str, ...]
    instances: tuple[str, ...]
    tensors: tuple[str, ...]
    namespaces: tuple[str, ...]
    apart: tuple[str, ...]
    others: tuple[str, ...]


def split(
    guards: Sequence[str],
    distinct: Sequence[str],
    objects: Mapping[str, Any],
    constants: Mapping[str, Any],
    instance_reads: frozenset[str] | set[str],
    changed: frozenset[int] | set[int],
) -> Structure | None:
    """The parts of `guards`; None where it is not worth it, or not possible on this Python.

    distinct: expressions of objects that must be distinct.  objects: of variables, as recorded.  instance_reads: texts of attributes
    that were found in instance dictionaries.  changed: ids of instances, or of their dictionaries, that the recorded
    call itself changes."""
    if not supported():
        return None
    splitter = _Splitter(objects, constants, instance_reads, changed)
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
        apart=tuple([v for v in distinct if v in splitter.definitions]),
        others=tuple([v for v in distinct if v not in splitter.definitions]),
    )


class _Splitter:
    """Goes through the lines in order.  kinds: variable defined by a check -> "instance", "tensor", "object" or "number"."""

    def __init__(
        self,
        objects: Mapping[str, Any],
        constants: Mapping[str, Any],
        instance_reads: frozenset[str] | set[str],
        changed: frozenset[int] | set[int],
    ) -> None:
        self.objects = objects
        self.constants = constants
        self.instance_reads = instance_reads
        self.changed = changed
        self.before: list[str] = []
        self.checks: list[str] = []
        self.after: list[str] = []
        self.definitions: dict[str, str] = {}
        self.roots: dict[str, None] = {}
        self.namespaces: dict[str, None] = {}
        self.kinds: dict[str, str] = {}
        self._late: set[str] = set()  # variables defined in `after`
        self._early: set[str] = set()  # variables defined in `before`

    def add(self, line: str) -> None:
        statement = ast.parse(line).body[0]
        roots, namespaces = dict(self.roots), dict(self.namespaces)
        if isinstance(statement, ast.If) and self._test(statement.test):
            self.checks.append(line)
            return
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and self._defines(statement.value):
            self.checks.append(line)
            self.definitions[target.id] = line
            self.kinds[target.id] = self._kind(target.id)
            return
        self.roots, self.namespaces = roots, namespaces  # what a refused line would have needed
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        late = not names.isdisjoint(self.definitions) or not names.isdisjoint(self._late)
        (self.after if late else self.before).append(line)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                (self._late if late else self._early).add(node.id)

    # -- expressions
    def _kind(self, variable: str) -> str:
        if variable not in self.objects:
            return "number"
        value = self.objects[variable]
        return "tensor" if is_a(value, Tensor) else "instance" if self._is_instance(value) else "object"

    def _is_instance(self, value: Any) -> bool:
        """Whether the attributes of `value` are in a dictionary whose version can be read, and the recorded call leaves them alone."""
        cls: Any = type(value)
        if is_a(value, (Tensor, type)) or not has_plain_state(cls) or cls.__weakrefoffset__ == 0:
            return False
        dictionary = instance_dictionary(value)
        if dictionary is None or id(value) in self.changed or id(dictionary) in self.changed:
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
        if isinstance(node, ast.Name) and type(self.constants.get(node.id)) is MappingProxyType:
            self.namespaces[node.id] = None
            return True
        return False

    def _dictionary(self, node: ast.expr) -> bool:
        return (isinstance(node, ast.Attribute) and node.attr == "__dict__" and self._instance(node.value)) or self._namespace(
            node
        )

    def _read(self, node: ast.expr) -> bool:
        """A place whose content is in a word."""
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant) and self._dictionary(node.value)
        if not isinstance(node, ast.Attribute):
            return False
        if isinstance(node.value, ast.Name) and self.kinds.get(node.value.id) == "tensor":
            return node.attr in _FLAGS
        return ast.unparse(node) in self.instance_reads and self._instance(node.value)

    def _defines(self, node: ast.expr) -> bool:
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
                return len(node.args) == 1 and self._dictionary(node.args[0])
            return node.func.id == "copysign" and all(self._value(a) for a in node.args)
        return False

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
            return isinstance(left, ast.Constant) and self._dictionary(right)
        return self._value(left) and self._value(right)


Found = tuple[tuple[Any, ...], tuple[Tensor, ...], tuple[Any, ...]]
"""What examining the structure finds: instances, tensors, the cached tuples."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """What shows that a state still holds.  pairs: the words of the dictionaries, as in the quick table; roots: they tell when one dies."""

    pairs: bytes
    precise: bytes
    state: tuple[Any, ...]
    roots: tuple[weakref.ref[Any], ...]


_next_key = itertools.count(1).__next__


class Cell:
    """The state of an entry's structure: `state[0]` is (addresses of the roots, quick table, ids of objects that must differ from
    others, key, *the tuples that the entry's body wants)."""

    __slots__ = (
        "__weakref__",
        "_backing_off",
        "_calls",
        "_examine",
        "_last",
        "_missed",
        "_namespaces",
        "_patience",
        "_tables",
        "_unused",
        "state",
    )

    def __init__(
        self, examine: Callable[..., Any], missed: object, namespaces: Sequence[Any], calls: Sequence[int], cached: int
    ) -> None:
        """examine(*roots) runs the checks: what it finds, or `missed`.  calls[0]: how many calls the entry has served."""
        self._examine = examine
        self._unused: tuple[Any, ...] = (0, NEVER, frozenset(), NO_KEY, *[()] * cached)
        self._namespaces = tuple(namespaces)
        self._calls = calls
        self._last = -2
        self._patience = self._backing_off = 0
        self._tables: _Tables | None = None
        self.state: list[Any] = [self._unused]
        self._missed = missed

    def drop(self, _: object = None) -> None:
        """Forget words and tuples."""
        self.state[0] = self._unused
        self._tables = None

    def refresh(self, *roots: Any) -> Any:
        """A word has moved: the state after running the checks where needed, or `missed`.  Keeps it, unless that has not paid lately."""
        addresses = id(roots[0]) if len(roots) == 1 else tuple(map(id, roots))
        known, counter = self._tables, rebindings()
        if known is not None and known.state[0] == addresses and machine().same(known.precise):
            return self._keep(replace(known, state=(addresses, _quick(counter, known.pairs), *known.state[2:])))
        self.drop()
        found = self._examine(*roots)
        if found is self._missed:
            return found
        instances, tensors, apart, cached = found
        if self._pays():
            for tensor in tensors:
                shield(tensor)
            counter = rebindings()
            words = self._words(instances, tensors)
            again = self._examine(*roots)  # the words are older than this: what it finds true held when they were read
            if again is self._missed:
                return again
            instances_again, tensors_again, apart, cached = again
            if words is not None and all(map(_is, instances_again, instances)) and all(map(_is, tensors_again, tensors)):
                pairs, precise = words
                state = (addresses, _quick(counter, pairs), frozenset(map(id, apart)), _new_key(), *cached)
                return self._keep(_Tables(pairs, precise, state, tuple([weakref.ref(root, _dropper(self)) for root in roots])))
        return (0, NEVER, frozenset(map(id, apart)), _new_key(), *cached)

    def _keep(self, tables: _Tables) -> tuple[Any, ...]:
        self._tables = tables
        self.state[0] = tables.state
        return tables.state

    def _pays(self) -> bool:
        """Whether making a table is worth it: not where the structure changes from call to call."""
        served, self._last = self._calls[0] - self._last, self._calls[0]
        if self._backing_off:
            self._backing_off -= 1
            return False
        self._patience = min(64, 2 * self._patience + 1) if served < 2 else 0
        self._backing_off = self._patience
        return True

    def _words(self, instances: Sequence[Any], tensors: Sequence[Tensor]) -> tuple[bytes, bytes] | None:
        """Pairs of dictionaries, packed, and the precise table: they hold while all is as it is; an instance comes after the one it was
        found in.  None where there are none."""
        words: list[int] = []
        for namespace in self._namespaces:
            words += namespace_words(namespace)
        for instance in instances:
            dictionary = instance_dictionary(instance)
            found = instance_words(instance, dictionary)
            if not found:
                return None
            words += found
        pairs = packed(words)
        kind, hooks, storage = _offsets()["type"], _offsets()["_hooks"], _offsets()["_storage"]
        blocks: list[int] = []
        for tensor in tensors:
            blocks += block(id(tensor) + kind)  # type, array, base
            blocks += block(id(tensor) + hooks)  # hooks, node, requires_grad
            if tensor._storage is not None:
                words += [id(tensor) + storage, id(tensor._storage)]
            if tensor._hooks is not None or tensor._base is not None or tensor._node is not None or tensor.__dict__:
                return None
        return pairs, table(words, blocks)


def _quick(counter: int, pairs: bytes) -> bytes:
    return counted(ADDRESS, counter, pairs)


def _new_key() -> bytes:
    return struct.pack("=q", _next_key())


def _is(a: Any, b: Any) -> bool:
    return a is b


def _dropper(cell: Cell) -> Callable[[object], None]:
    """Drops the cell's state when called, if there still is a cell."""
    reference = weakref.ref(cell)

    def drop(_: object) -> None:
        alive = reference()
        if alive is not None:
            alive.drop()

    return drop
