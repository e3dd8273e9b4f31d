"""Expressions and conditions of replay (replay/ir.py), as calls of Python's C interface (see functions.py).

Where the exact type of an object is known, because a guard has just compared it, slots and items are read where they lie; all else is the
function that the interpreter would call.  What was found in a dictionary that is always the same one is remembered together with the
dictionary's version.
"""

from __future__ import annotations

import builtins
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MappingProxyType, MethodType, MethodWrapperType
from typing import Any, Final

from tracejit.cpython import c_api, watchers
from tracejit.cpython.c_api import CELL, MAPPING, NUMBER
from tracejit.cpython.object_code import UNKNOWN, ObjectCode, Value
from tracejit.replay.ir import (
    And,
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Conditional,
    Constant,
    Contains,
    Dictionary,
    Distinct,
    Expr,
    Identity,
    Is,
    Item,
    Length,
    ListOf,
    Name,
    Not,
    Or,
    SliceKey,
    Starred,
    TupleOf,
    TypeOf,
    Unary,
)  # fmt: skip

__all__ = ["Expressions", "Untranslatable"]

_ARITHMETIC: Final = {
    "+": "PyNumber_Add", "-": "PyNumber_Subtract", "*": "PyNumber_Multiply", "/": "PyNumber_TrueDivide",
    "//": "PyNumber_FloorDivide", "%": "PyNumber_Remainder", "<<": "PyNumber_Lshift", ">>": "PyNumber_Rshift", "&": "PyNumber_And",
    "|": "PyNumber_Or", "^": "PyNumber_Xor", "@": "PyNumber_MatrixMultiply",
}  # fmt: skip
_UNARY: Final = {"-": "PyNumber_Negative", "+": "PyNumber_Positive", "~": "PyNumber_Invert"}
_ORDER: Final = {"<": (0, "slt", "olt"), "<=": (1, "sle", "ole"), "==": (2, "eq", "oeq"), "!=": (3, "ne", "une"),
                 ">": (4, "sgt", "ogt"), ">=": (5, "sge", "oge")}  # fmt: skip
_METHOD_PARTS: Final = ("__self__", "__func__")
_FUNCTION_PARTS: Final = {
    "__code__": "PyFunction_GetCode", "__defaults__": "PyFunction_GetDefaults", "__globals__": "PyFunction_GetGlobals",
}  # fmt: skip


_FEW: Final = 6  # objects that are compared one with another


class Untranslatable(Exception):
    """What this module does not write; the text says what."""


@dataclass(slots=True)
class _Variable:
    slot: int
    value: Value | None  # None: what the slot holds is not known here


class Expressions:
    """Writes values and conditions into `out`.  names: what names that are no variables stand for."""

    def __init__(self, constants: Mapping[str, Any], slotted: Iterable[type]) -> None:
        self.out = ObjectCode(slotted)
        self.code = self.out.code
        self.names = constants
        self.variables: dict[str, _Variable] = {}
        self.assigned: Counter[str] = Counter()  # how often each name is
        self.guarding = False  # a KeyError is a guard that fails
        self.nested = 0  # conditional statements around

    # -- variables
    def _set(self, name: str, value: Value) -> None:
        variable = self.variables.get(name)
        if variable is None and self.nested:
            raise Untranslatable(f"{name}, which is first assigned under a condition")
        if self.assigned[name] == 1:
            self.variables[name] = _Variable(-1, self.out.secured(value))
            return
        if variable is None:
            variable = self.variables[name] = _Variable(self.out.new_slot(), None)
        address = self.out.slot(variable.slot)
        old = self.code.op(f"load ptr, ptr {address}")
        self.out.incref(value.text)
        self.code.lines.append(f"store ptr {value.text}, ptr {address}")
        self.out.xdecref(old)

    # -- values
    def _object(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise Untranslatable(f"the name {name}")

    def _name(self, name: str) -> Value:
        variable = self.variables.get(name)
        if variable is None:
            if self.assigned[name]:
                raise Untranslatable(f"{name} before its assignment")
            return self.out.constant(self._object(name))
        if variable.value is not None:
            return variable.value
        return Value(self.code.op(f"load ptr, ptr {self.out.slot(variable.slot)}"))

    def _value(self, node: Expr) -> Value:
        match node:
            case Name(name):
                return self._name(name)
            case Constant(value):
                return self.out.constant(value)
            case Unary(symbol, operand):
                return self.out.call_for_object(_UNARY[symbol], self.out.secured(self._value(operand)).text)
            case Attribute(owner, attr):
                return self._attribute(owner, attr)
            case Item(owner, key):
                return self._item(owner, key)
            case Arithmetic("**", left, right):
                operands = self._all([left, right])
                return self.out.call_for_object(
                    "PyNumber_Power", operands[0].text, operands[1].text, self.out.constant(None).text
                )
            case Arithmetic(symbol, left, right):
                operands = self._all([left, right])
                return self.out.call_for_object(_ARITHMETIC[symbol], operands[0].text, operands[1].text)
            case SliceKey(start, stop, step):
                ends = self._all([Constant(None) if end is None else end for end in (start, stop, step)])
                return self.out.call_for_object("PySlice_New", *[end.text for end in ends])
            case TypeOf(value):
                return Value(self.out.type_of(self.out.secured(self._value(value))))
            case Length(value):
                return self.out.call_for_object("PyLong_FromLongLong", self._length(value), known=int)
            case Identity(value):
                address = self.code.op(f"ptrtoint ptr {self._value(value).text} to i64")
                return self.out.call_for_object("PyLong_FromLongLong", address, known=int)
            case Call(function, arguments, ()):
                return self._call(function, arguments)
            case Call(Name(name), arguments, keywords):
                values = self._all([*arguments, *[value for _, value in keywords]])
                return self.out.call_object(self._name(name), values, tuple([keyword for keyword, _ in keywords]))
            case TupleOf(elements):
                return self.out.tuple_of(self._parts(elements))
            case ListOf(elements):
                values = self._all(elements)
                made = self.out.call_for_object("PyList_New", str(len(values)), known=list)
                if values:
                    self.out.fill(self.out.load(made.text, c_api.LIST_ITEMS), [(v, False) for v in values])
                return made
            case Dictionary():
                return self.out.call_for_object("PyDict_New", known=dict)
            case Conditional(condition, yes, no):
                return self._choice(condition, yes, no)
            case Or((first, second)):
                return self._or(first, second)
        raise Untranslatable(f"the expression {node}")

    def _all(self, nodes: Sequence[Expr]) -> list[Value]:
        """Values that all live on while the later ones are evaluated and used."""
        return [self.out.secured(self._value(node)) for node in nodes]

    def _parts(self, nodes: Sequence[Expr]) -> list[tuple[Value, bool]]:
        found = []
        for node in nodes:
            found.append(
                (self.out.secured(self._value(node.value if isinstance(node, Starred) else node)), isinstance(node, Starred))
            )
        return found

    def _choice(self, test: Expr, body: Expr, orelse: Expr) -> Value:
        yes, no, join = self.code.label("yes"), self.code.label("no"), self.code.label("join")
        self._test(test, yes, no)
        arms = []
        for label, node in ((yes, body), (no, orelse)):
            self.code.begin(label)
            value = self.out.secured(self._value(node))
            arms.append((value.text, self.code.block))
            self.out.jump(join)
        self.code.begin(join)
        return Value(self.out.joined(*arms), secure=True)

    def _or(self, first: Expr, second: Expr) -> Value:
        yes, no, join = self.code.label("yes"), self.code.label("no"), self.code.label("join")
        value = self.out.secured(self._value(first))
        self._truth(value, yes, no)
        self.code.begin(yes)
        self.out.jump(join)
        self.code.begin(no)
        other = self.out.secured(self._value(second))
        came = self.code.block
        self.out.jump(join)
        self.code.begin(join)
        return Value(self.out.joined((value.text, yes), (other.text, came)), secure=True)

    def _attribute(self, node: Expr, attr: str) -> Value:
        if attr == "cell_contents":
            cell = self._cell(node)
            if cell is not None:
                return cell
        if attr == "__closure__":
            raise Untranslatable("the closure of a function that is no constant")
        owner = self._value(node)
        if attr in _METHOD_PARTS and type(owner.constant) is MethodType:
            # Always the same object, of which nothing else is known: its class may be assigned.
            return Value(self.out.constant(getattr(owner.constant, attr)).text, secure=True)
        if attr in _FUNCTION_PARTS and owner.known is FunctionType:
            pointer = self.out.call(_FUNCTION_PARTS[attr], owner.text)
            none = self.code.op(f"icmp eq ptr {pointer}, null")
            return Value(self.code.op(f"select i1 {none}, ptr {self.out.constant(None).text}, ptr {pointer}"))
        if attr == "__mro__" and isinstance(owner.constant, type):
            return Value(self.out.load(owner.text, c_api.mro_offset()), tuple)
        if attr == "__dict__" and not isinstance(owner.constant, (type, FunctionType)) and self.guarding:
            # Guards found that the class has the usual __dict__ before they read it.
            return self.out.call_for_object("PyObject_GetAttr", owner.text, self.out.constant("__dict__").text)
        return self.out.attribute(owner, attr)

    def _cell(self, node: Expr) -> Value | None:
        """`f.__closure__[k].cell_contents` of a constant function, whose cells are always the same; or, in guards, of what was found to be
        a function, which fail where it has no such cell or nothing is in it."""
        match node:
            case Item(Attribute(Name(name), "__closure__"), Constant(int() as index)) if name in self.names:
                function = self.names[name]
                if type(function) is FunctionType and function.__closure__ is not None and index < len(function.__closure__):
                    cell = function.__closure__[index]
                    assert type(cell) is CellType
                    pointer = self.out.load(self.out.constant(cell).text, CELL)
                    filled = self.code.label("filled")
                    empty = self.code.label("empty")
                    self.out.branch(self.code.op(f"icmp eq ptr {pointer}, null"), empty, filled)
                    self.code.begin(empty)
                    self.out.call_for_object(
                        "PyObject_GetAttr", self.out.constant(cell).text, self.out.constant("cell_contents").text
                    )
                    self.out.jump(filled)
                    self.code.begin(filled)
                    return Value(pointer)
            case Item(Attribute(function, "__closure__"), Constant(int() as index)) if self.guarding:
                owner = self._value(function)
                if owner.known is FunctionType:
                    cells = Value(self._or_missed(self.out.call("PyFunction_GetClosure", owner.text)), tuple)
                    enough = self.code.label("enough")
                    short = self.code.op(f"icmp sle i64 {self.out.size_of(cells)}, {index}")
                    self.out.branch(short, self.out.missed, enough)
                    self.code.begin(enough)
                    return Value(self._or_missed(self.out.load(self.out.item(cells, index), CELL)))
        return None

    def _or_missed(self, pointer: str) -> str:
        """A pointer that is not null from here on."""
        there = self.code.label("there")
        self.out.branch(self.code.op(f"icmp eq ptr {pointer}, null"), self.out.missed, there)
        self.code.begin(there)
        return pointer

    def _dictionary(self, value: Value) -> str | None:
        """The dict in which an item of `value` is looked up."""
        if value.known is dict:
            return value.text
        if type(value.constant) is MappingProxyType:
            return self.out.load(value.text, MAPPING)
        return None

    def _looked_up(self, dictionary: str, key: Value, owner: Value) -> str:
        """A pointer to the item of a dictionary, null where there is none.  Where `owner`, which has the dictionary, and the key are always
        the same ones, what was found is remembered with the dictionary's version, and found again while it has that version."""
        versions = c_api.LAYOUT.version
        is_constant = owner.constant is not UNKNOWN and type(key.constant) is str
        if not is_constant or (versions is None and not watchers.supported()):
            return self._search(dictionary, key)
        remembered = self.out.space(3)  # where the version is, the version, what was found with it
        version_at, content_at = self.out.at(remembered, 8), self.out.at(remembered, 16)
        there, changed, join = self.code.label("there"), self.code.label("changed"), self.code.label("join")
        address = self.code.op(f"load ptr, ptr {remembered}") if versions is None else self.out.at(dictionary, versions)
        self.out.branch(self.code.op(f"icmp eq ptr {address}, null"), changed, there)
        self.code.begin(there)
        now, then = self.code.op(f"load i64, ptr {address}"), self.code.op(f"load i64, ptr {version_at}")
        before = self.code.op(f"load ptr, ptr {content_at}")
        came = self.code.block
        self.out.branch(self.code.op(f"icmp eq i64 {now}, {then}"), join, changed)
        self.code.begin(changed)
        if versions is None:  # a watch ends with the first change
            address = self.out.call(watchers.WATCH, dictionary)
        is_watched = self.code.op(f"icmp ne ptr {address}, null")
        now = self.code.op(f"load i64, ptr {self.code.op(f'select i1 {is_watched}, ptr {address}, ptr {remembered}')}")
        found = self._search(dictionary, key)
        stored = ((f"ptr {address}", remembered), (f"i64 {now}", version_at), (f"ptr {found}", content_at))
        self.code.lines += [f"store {value}, ptr {at}" for value, at in stored]
        searched = self.code.block
        self.out.jump(join)
        self.code.begin(join)
        return self.out.joined((before, came), (found, searched))

    def _search(self, dictionary: str, key: Value) -> str:
        pointer = self.out.call("PyDict_GetItemWithError", dictionary, key.text)
        came = self.code.block
        absent, join = self.code.label("absent"), self.code.label("join")
        self.out.branch(self.code.op(f"icmp eq ptr {pointer}, null"), absent, join)
        self.code.begin(absent)
        error = self.out.call("PyErr_Occurred")
        self.out.branch(self.code.op(f"icmp eq ptr {error}, null"), join, self.out.failed)
        self.code.begin(join)
        return self.out.joined((pointer, came), ("null", absent))

    def _item(self, node: Expr, index: Expr) -> Value:
        match node, index:
            case Name("args"), Constant(int() as number):
                return Value(self.out.load("%arguments", 8 * number), secure=True)  # the caller holds them
        owner = self.out.secured(self._value(node))
        key = self._value(index)
        dictionary = self._dictionary(owner)
        if dictionary is not None and self.guarding:
            pointer = self._looked_up(dictionary, key, owner)
            found = self.code.label("found")
            self.out.branch(self.code.op(f"icmp eq ptr {pointer}, null"), self.out.missed, found)
            self.code.begin(found)
            return Value(pointer)
        if owner.known in (None, list, tuple) and type(key.constant) is int and key.constant >= 0:
            inside, outside, join = self.code.label("inside"), self.code.label("outside"), self.code.label("join")
            if owner.known is None:
                fits = self.code.label("tuple")
                kind = self.out.type_of(owner)
                self.out.branch(self.code.op(f"icmp eq ptr {kind}, {self.out.constant(tuple).text}"), fits, outside)
                self.code.begin(fits)
                owner = Value(owner.text, tuple, secure=True)
            size = self.out.size_of(owner)
            self.out.branch(self.code.op(f"icmp sgt i64 {size}, {key.constant}"), inside, outside)
            self.code.begin(inside)
            fast = self.out.item(owner, key.constant)
            self.out.jump(join)
            self.code.begin(outside)
            got = self.out.call_for_object("PyObject_GetItem", owner.text, key.text)
            came = self.code.block
            self.out.jump(join)
            self.code.begin(join)
            return Value(self.out.joined((fast, inside), (got.text, came)))
        return self.out.call_for_object("PyObject_GetItem", owner.text, key.text)

    def _call(self, function: Expr, arguments: Sequence[Expr]) -> Value:
        if isinstance(function, Attribute):
            values = self._all([function.owner, *arguments])
            row = self.out.array([v.text for v in values])
            name = self.out.constant(function.name)
            return self.out.call_for_object("PyObject_VectorcallMethod", name.text, row, str(len(values)), "null")
        if not isinstance(function, Name):
            raise Untranslatable(f"a call of {function}")
        if function.name not in self.variables:
            known = self._object(function.name)
            if type(known) is weakref.ref and not arguments:
                return self.out.referent(self.out.constant(known))
            if known is object.__new__ and len(arguments) == 1 and isinstance(arguments[0], Name):
                cls = self._object(arguments[0].name)
                empty = self.out.constant(())
                return self.out.call_for_object("tracejit_new_object", self.out.constant(cls).text, empty.text, "null", known=cls)
            if type(known) is MethodWrapperType and known.__name__ == "__next__" and not arguments:
                return self.out.call_for_object("PyIter_Next", self.out.constant(known.__self__).text)
        elif not arguments:  # most likely a weak reference
            return self.out.referent(self._name(function.name))
        return self.out.call_object(self._name(function.name), self._all(arguments))

    def _length(self, node: Expr) -> str:
        value = self._value(node)
        if value.known in (list, tuple):
            return self.out.size_of(value)
        size = self.out.call("PyObject_Size", self.out.secured(value).text)
        self.out.jump_if(self.code.op(f"icmp slt i64 {size}, 0"), self.out.failed)
        return size

    # -- conditions
    def _test(self, node: Expr, yes: str, no: str) -> None:
        """Go to one of the labels."""
        match node:
            case Or(values) | And(values):
                for value in values[:-1]:
                    on = self.code.label("on")
                    self._test(value, *((yes, on) if isinstance(node, Or) else (on, no)))
                    self.code.begin(on)
                self._test(values[-1], yes, no)
            case Not(value):
                self._test(value, no, yes)
            case Name("kwargs"):
                self.out.jump(no)  # the caller passes positional arguments
            case Is(left, right):
                a = self._value(left)
                if not isinstance(right, Name | Constant):
                    a = self.out.secured(a)
                self.out.branch(self.code.op(f"icmp eq ptr {a.text}, {self._value(right).text}"), yes, no)
            case Contains(container, element):
                self._contains(element, container, yes, no)
            case Distinct(values):
                self._distinct(values, yes, no)
            case Compare(symbol, left, right):
                self._compare(symbol, left, right, yes, no)
            case _:
                self._truth(self._value(node), yes, no)

    def _truth(self, value: Value, yes: str, no: str) -> None:
        on = self.code.label("on")
        self.out.branch(self.code.op(f"icmp eq ptr {value.text}, {self.out.constant(None).text}"), no, on)
        self.code.begin(on)
        truth = self.out.call_for_number("PyObject_IsTrue", self.out.secured(value).text)
        self.out.branch(self.code.op(f"icmp ne i32 {truth}, 0"), yes, no)

    def _contains(self, element: Expr, container: Expr, yes: str, no: str) -> None:
        key, owner = self._all([element, container])
        dictionary = self._dictionary(owner)
        if dictionary is not None:
            pointer = self._looked_up(dictionary, key, owner)
            self.out.branch(self.code.op(f"icmp ne ptr {pointer}, null"), yes, no)
            return
        there = self.out.call_for_number("PySequence_Contains", owner.text, key.text)
        self.out.branch(self.code.op(f"icmp ne i32 {there}, 0"), yes, no)

    def _compare(self, symbol: str, left: Expr, right: Expr, yes: str, no: str) -> None:
        number, integers, floats = _ORDER[symbol]
        match left, right:
            case Length(value), Constant(int() as count):
                arguments = isinstance(value, Name) and value.name == "args" and not self.variables.get("args")
                size = "%count" if arguments else self._length(value)
                self.out.branch(self.code.op(f"icmp {integers} i64 {size}, {count}"), yes, no)
                return
        a, b = self._all([left, right])
        if a.known is float and b.known is float:
            x, y = (self.code.op(f"load double, ptr {self.out.at(v.text, NUMBER)}") for v in (a, b))
            self.out.branch(self.code.op(f"fcmp {floats} double {x}, {y}"), yes, no)
            return
        self._truth(self.out.call_for_object("PyObject_RichCompare", a.text, b.text, str(number)), yes, no)

    def _distinct(self, nodes: Sequence[Expr], yes: str, no: str) -> None:
        """Whether these are different objects."""
        values = self._all(nodes)
        if len(values) <= _FEW:
            for i, a in enumerate(values):
                for b in values[:i]:
                    on = self.code.label("on")
                    self.out.branch(self.code.op(f"icmp eq ptr {a.text}, {b.text}"), no, on)
                    self.code.begin(on)
            self.out.jump(yes)
            return
        row = self.out.array([v.text for v in values])
        capacity = 1 << (2 * len(values) - 1).bit_length()
        different = self.code.op(
            f"call i1 @distinct(ptr {row}, i64 {len(values)}, ptr {self.out.space(capacity)}, i64 {capacity - 1})"
        )
        self.out.branch(different, yes, no)
