"""Expressions and conditions of straight-line Python, as calls of Python's C interface (see straight_line.py).

Where the exact type of an object is known, because a guard has just compared it, slots and items are read where they lie; all else is the
function that the interpreter would call.  What was found in a dictionary that is always the same one is remembered together with the
dictionary's version.
"""

from __future__ import annotations

import ast
import builtins
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MappingProxyType, MethodWrapperType
from typing import Any, Final

from tracejit.codegen import python_api
from tracejit.codegen.object_code import UNKNOWN, ObjectCode, Value
from tracejit.codegen.python_api import CELL, MAPPING, NUMBER

__all__ = ["Expressions", "Untranslatable"]

_ARITHMETIC: Final = {
    ast.Add: "PyNumber_Add", ast.Sub: "PyNumber_Subtract", ast.Mult: "PyNumber_Multiply", ast.Div: "PyNumber_TrueDivide",
    ast.FloorDiv: "PyNumber_FloorDivide", ast.Mod: "PyNumber_Remainder",
}  # fmt: skip
_ORDER: Final = {ast.Lt: (0, "slt", "olt"), ast.LtE: (1, "sle", "ole"), ast.Eq: (2, "eq", "oeq"), ast.NotEq: (3, "ne", "une"),
                 ast.Gt: (4, "sgt", "ogt"), ast.GtE: (5, "sge", "oge")}  # fmt: skip
_FUNCTION_PARTS: Final = {
    "__code__": "PyFunction_GetCode", "__defaults__": "PyFunction_GetDefaults", "__globals__": "PyFunction_GetGlobals",
}  # fmt: skip


_FEW: Final = 6  # objects that are compared one with another


class Untranslatable(Exception):
    """Python that this module does not write; the text says what."""


@dataclass(slots=True)
class _Variable:
    slot: int
    value: Value | None  # None: what the slot holds is not known here


class Expressions:
    """Writes values and conditions into `out`.  names: what names that are no variables stand for."""

    def __init__(self, constants: Mapping[str, Any], layouts: Mapping[Any, Mapping[str, int]]) -> None:
        self.out = ObjectCode(layouts)
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
        place = self.out.slot(variable.slot)
        old = self.code.op(f"load ptr, ptr {place}")
        self.out.incref(value.text)
        self.code.lines.append(f"store ptr {value.text}, ptr {place}")
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

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.Constant(value=value):
                return self.out.constant(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return self.out.constant(-value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.out.made("PyNumber_Negative", self.out.secured(self._value(operand)).text)
            case ast.Attribute(value=owner, attr=attr):
                return self._attribute(owner, attr)
            case ast.Subscript(value=owner, slice=index):
                return self._item(owner, index)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                operands = self._all([left, right])
                return self.out.made("PyNumber_Power", operands[0].text, operands[1].text, self.out.constant(None).text)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                operands = self._all([left, right])
                return self.out.made(_ARITHMETIC[type(op)], operands[0].text, operands[1].text)
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(function, arguments)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
                names = tuple([keyword.arg for keyword in keywords if keyword.arg is not None])
                if len(names) == len(keywords):
                    values = self._all([*arguments, *[keyword.value for keyword in keywords]])
                    return self.out.invoked(self._name(name), values, names)
            case ast.Tuple(elts=elements):
                return self.out.tuple_of(self._parts(elements))
            case ast.List(elts=elements):
                values = self._all(elements)
                made = self.out.made("PyList_New", str(len(values)), known=list)
                if values:
                    self.out.fill(self.out.load(made.text, python_api.LIST_ITEMS), [(v, False) for v in values])
                return made
            case ast.Dict(keys=[], values=[]):
                return self.out.made("PyDict_New", known=dict)
            case ast.NamedExpr(target=ast.Name(id=name), value=inner):
                self._set(name, self._value(inner))
                return self._name(name)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.BoolOp(op=ast.Or(), values=[first, second]):
                return self._or(first, second)
        raise Untranslatable(f"the expression {ast.unparse(node)}")

    def _all(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Values that all live on while the later ones are evaluated and used."""
        return [self.out.secured(self._value(node)) for node in nodes]

    def _parts(self, nodes: Sequence[ast.expr]) -> list[tuple[Value, bool]]:
        found = []
        for node in nodes:
            starred = isinstance(node, ast.Starred)
            found.append((self.out.secured(self._value(node.value if isinstance(node, ast.Starred) else node)), starred))
        return found

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
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

    def _or(self, first: ast.expr, second: ast.expr) -> Value:
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

    def _attribute(self, node: ast.expr, attr: str) -> Value:
        if attr == "cell_contents":
            cell = self._cell(node)
            if cell is not None:
                return cell
        if attr == "__closure__":
            raise Untranslatable("the closure of a function that is no constant")
        owner = self._value(node)
        if attr in _FUNCTION_PARTS and owner.known is FunctionType:
            pointer = self.out.call(_FUNCTION_PARTS[attr], owner.text)
            none = self.code.op(f"icmp eq ptr {pointer}, null")
            return Value(self.code.op(f"select i1 {none}, ptr {self.out.constant(None).text}, ptr {pointer}"))
        if attr == "__mro__" and isinstance(owner.constant, type):
            return Value(self.out.load(owner.text, python_api.mro_offset()), tuple)
        if attr == "__dict__" and not isinstance(owner.constant, (type, FunctionType)) and self.guarding:
            # Guards found that the class has the usual __dict__ before they read it.
            return self.out.made("PyObject_GetAttr", owner.text, self.out.constant("__dict__").text)
        return self.out.attribute(owner, attr)

    def _cell(self, node: ast.expr) -> Value | None:
        """`f.__closure__[k].cell_contents` of a constant function, whose cells are always the same."""
        match node:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="__closure__"), slice=ast.Constant(value=int() as index)
            ):
                function = self.names.get(name)
                if type(function) is FunctionType and function.__closure__ is not None and index < len(function.__closure__):
                    cell = function.__closure__[index]
                    assert type(cell) is CellType
                    pointer = self.out.load(self.out.constant(cell).text, CELL)
                    filled = self.code.label("filled")
                    empty = self.code.label("empty")
                    self.out.branch(self.code.op(f"icmp eq ptr {pointer}, null"), empty, filled)
                    self.code.begin(empty)
                    self.out.made("PyObject_GetAttr", self.out.constant(cell).text, self.out.constant("cell_contents").text)
                    self.out.jump(filled)
                    self.code.begin(filled)
                    return Value(pointer)
        return None

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
        constant = owner.constant is not UNKNOWN and type(key.constant) is str
        version = python_api.dictionary_version() if constant else None
        if version is None:
            return self._search(dictionary, key)
        remembered = self.out.space(2)
        now = self.code.op(f"load i64, ptr {self.out.at(dictionary, version)}")
        then = self.code.op(f"load i64, ptr {remembered}")
        content = self.out.at(remembered, 8)
        before = self.code.op(f"load ptr, ptr {content}")
        came = self.code.block
        changed, join = self.code.label("changed"), self.code.label("join")
        self.out.branch(self.code.op(f"icmp eq i64 {now}, {then}"), join, changed)
        self.code.begin(changed)
        found = self._search(dictionary, key)
        self.code.lines += [f"store ptr {found}, ptr {content}", f"store i64 {now}, ptr {remembered}"]
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

    def _item(self, node: ast.expr, index: ast.expr) -> Value:
        match node, index:
            case ast.Name(id="args"), ast.Constant(value=int() as number):
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
            got = self.out.made("PyObject_GetItem", owner.text, key.text)
            came = self.code.block
            self.out.jump(join)
            self.code.begin(join)
            return Value(self.out.joined((fast, inside), (got.text, came)))
        return self.out.made("PyObject_GetItem", owner.text, key.text)

    def _call(self, function: ast.expr, arguments: Sequence[ast.expr]) -> Value:
        if isinstance(function, ast.Attribute):
            values = self._all([function.value, *arguments])
            row = self.out.array([v.text for v in values])
            name = self.out.constant(function.attr)
            return self.out.made("PyObject_VectorcallMethod", name.text, row, str(len(values)), "null")
        if not isinstance(function, ast.Name):
            raise Untranslatable(f"a call of {ast.unparse(function)}")
        if function.id not in self.variables:
            known = self._object(function.id)
            if type(known) is weakref.ref and not arguments:
                return self.out.referent(self.out.constant(known))
            if known is type and len(arguments) == 1:
                return Value(self.out.type_of(self.out.secured(self._value(arguments[0]))))
            if known is id and len(arguments) == 1:
                value = self._value(arguments[0])
                return self.out.made("PyLong_FromLongLong", self.code.op(f"ptrtoint ptr {value.text} to i64"), known=int)
            if known is len and len(arguments) == 1:
                return self.out.made("PyLong_FromLongLong", self._length(arguments[0]), known=int)
            if known is object.__new__ and len(arguments) == 1 and isinstance(arguments[0], ast.Name):
                cls = self._object(arguments[0].id)
                empty = self.out.constant(())
                return self.out.made("tracejit_new_object", self.out.constant(cls).text, empty.text, "null", known=cls)
            if type(known) is MethodWrapperType and known.__name__ == "__next__" and not arguments:
                return self.out.made("PyIter_Next", self.out.constant(known.__self__).text)
        elif not arguments:  # most likely a weak reference
            return self.out.referent(self._name(function.id))
        return self.out.invoked(self._name(function.id), self._all(arguments))

    def _length(self, node: ast.expr) -> str:
        value = self._value(node)
        if value.known in (list, tuple):
            return self.out.size_of(value)
        size = self.out.call("PyObject_Size", self.out.secured(value).text)
        self.out.unless(self.code.op(f"icmp slt i64 {size}, 0"), self.out.failed)
        return size

    # -- conditions
    def _test(self, node: ast.expr, yes: str, no: str) -> None:
        """Go to one of the labels."""
        match node:
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    on = self.code.label("on")
                    self._test(value, *((yes, on) if isinstance(op, ast.Or) else (on, no)))
                    self.code.begin(on)
                self._test(values[-1], yes, no)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._test(operand, no, yes)
            case ast.Name(id="kwargs"):
                self.out.jump(no)  # the caller passes positional arguments
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                self._compare(left, op, right, yes, no)
            case ast.Compare(left=left, ops=[first, second], comparators=[ast.Name() as middle, right]):
                on = self.code.label("on")
                self._compare(left, first, middle, on, no)
                self.code.begin(on)
                self._compare(middle, second, right, yes, no)
            case _:
                self._truth(self._value(node), yes, no)

    def _truth(self, value: Value, yes: str, no: str) -> None:
        on = self.code.label("on")
        self.out.branch(self.code.op(f"icmp eq ptr {value.text}, {self.out.constant(None).text}"), no, on)
        self.code.begin(on)
        truth = self.out.done("PyObject_IsTrue", self.out.secured(value).text)
        self.out.branch(self.code.op(f"icmp ne i32 {truth}, 0"), yes, no)

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr, yes: str, no: str) -> None:
        if isinstance(op, (ast.Is, ast.IsNot)):
            a = self._value(left)
            if not isinstance(right, (ast.Name, ast.Constant)):
                a = self.out.secured(a)
            b = self._value(right)
            same = self.code.op(f"icmp eq ptr {a.text}, {b.text}")
            self.out.branch(same, *((yes, no) if isinstance(op, ast.Is) else (no, yes)))
            return
        if isinstance(op, (ast.In, ast.NotIn)):
            labels = (yes, no) if isinstance(op, ast.In) else (no, yes)
            key, container = self._all([left, right])
            dictionary = self._dictionary(container)
            if dictionary is not None:
                pointer = self._looked_up(dictionary, key, container)
                self.out.branch(self.code.op(f"icmp ne ptr {pointer}, null"), *labels)
                return
            there = self.out.done("PySequence_Contains", container.text, key.text)
            self.out.branch(self.code.op(f"icmp ne i32 {there}, 0"), *labels)
            return
        number, integers, floats = _ORDER[type(op)]
        if isinstance(right, ast.Constant) and type(right.value) is int and _is_call(left, "len"):
            assert isinstance(left, ast.Call)
            argument = left.args[0]
            if isinstance(argument, ast.Name) and argument.id == "args" and not self.variables.get("args"):
                size = "%count"
            elif isinstance(argument, ast.Set) and isinstance(op, ast.NotEq) and len(argument.elts) == right.value:
                self._distinct([e.args[0] for e in argument.elts if _is_call(e, "id") and isinstance(e, ast.Call)], no, yes)
                return
            else:
                size = self._length(argument)
            self.out.branch(self.code.op(f"icmp {integers} i64 {size}, {right.value}"), yes, no)
            return
        a, b = self._all([left, right])
        if a.known is float and b.known is float:
            x, y = (self.code.op(f"load double, ptr {self.out.at(v.text, NUMBER)}") for v in (a, b))
            self.out.branch(self.code.op(f"fcmp {floats} double {x}, {y}"), yes, no)
            return
        self._truth(self.out.made("PyObject_RichCompare", a.text, b.text, str(number)), yes, no)

    def _distinct(self, nodes: Sequence[ast.expr], yes: str, no: str) -> None:
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
        places = 1 << (2 * len(values) - 1).bit_length()
        different = self.code.op(
            f"call i1 @distinct(ptr {row}, i64 {len(values)}, ptr {self.out.space(places)}, i64 {places - 1})"
        )
        self.out.branch(different, yes, no)


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name and len(node.args) == 1
