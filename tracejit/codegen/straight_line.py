"""Straight-line Python as machine code that calls Python's C interface.

What a replayed call costs besides its program is a few dozen simple statements: guards (`if x is not y: return MISS`), attributes of new
objects, a tuple or two.  The interpreter takes 20 to 40 ns for each; compiled, those that read or write a slot take one.  `translate` takes
the source of such a function and the objects its names stand for, and writes a function with the same meaning, for the part of Python
that entries are made of (capture/entry.py).  Whatever else it finds raises `Untranslatable`, and the entry goes on being interpreted.

Meaning is kept by construction: what has a C function (attributes, items, calls, arithmetic, comparison) is that function's call; what is
written out here is reading and writing slots at known offsets of objects whose exact type was just compared, items of lists and
tuples, identity, and counting references.  A variable owns its object to the end of the function, as in the interpreter.

The one statement that is not Python is the name `RUN`: a program is run there (`Run`), in a frame that belongs to the function.  From the
first number written into the frame until the program returns no other Python code can run, so nobody else sees that frame.

It must not know tensors: offsets of slots come from the caller.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.codegen.object_code import Value
from tracejit.codegen.python_api import ITEMS, NUMBER
from tracejit.codegen.python_values import Expressions, Untranslatable

__all__ = ["RUN", "SENT", "Run", "Untranslatable", "translate"]

RUN: Final = "p_run"
SENT: Final = "if error.__traceback__.tb_next is not None"
"""The condition under which `error`, which a handler in a translated function caught, was raised in a Python function that it called."""


@dataclass(frozen=True, slots=True)
class Run:
    """A program to run.

    fresh: (name, shape, dtype) of arrays to be made first.  arrays: expressions of the program's arrays, in order.  scalars: (slot of the
    frame, int or float, expression).  leave: name of what maps the program's code, where it is not 0, to what to return; refused: the
    code for a number that does not fit.  address: of the program; frame: of its frame; `owners` keep both alive."""

    fresh: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
    arrays: tuple[str, ...]
    scalars: tuple[tuple[int, type, str], ...]
    leave: str
    refused: int
    address: int
    frame: int
    owners: tuple[Any, ...]


def translate(
    source: str, name: str, symbol: str, constants: Mapping[str, Any], layouts: Mapping[Any, Mapping[str, int]], run: Run | None
) -> tuple[str, tuple[Any, ...]]:
    """The LLVM text of function `name(args, kwargs)` in `source`, as a function `symbol` that is called with positional arguments
    (METH_FASTCALL | METH_KEYWORDS), and the constants that its `self` must begin with.

    layouts: class -> {slot: offset in bytes}.  Raises Untranslatable."""
    function = next(s for s in ast.parse(source).body if isinstance(s, ast.FunctionDef) and s.name == name)
    translator = _Translator(constants, layouts, run)
    translator.function(function)
    return translator.out.text(symbol), (*translator.out.constants(), *(run.owners if run is not None else ()))


class _Translator(Expressions):
    def __init__(self, constants: Mapping[str, Any], layouts: Mapping[Any, Mapping[str, int]], run: Run | None) -> None:
        super().__init__(constants, layouts)
        self.run = run
        self.missing: str | None = None  # what guards return

    def function(self, function: ast.FunctionDef) -> None:
        self.assigned = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        for statement in function.body:
            if isinstance(statement, ast.Try):
                self._guards(statement)
            else:
                self._statement(statement)
        if not isinstance(function.body[-1], ast.Return):
            self.out.leave(self.out.constant(None))

    def _guards(self, statement: ast.Try) -> None:
        """`try: guards; except errors as error: if SENT: raise; return MISS`, at the top."""
        handler = statement.handlers[0]
        if (
            statement.orelse
            or statement.finalbody
            or len(statement.handlers) != 1
            or handler.type is None
            or len(handler.body) != 2
            or ast.unparse(handler.body[0]) != f"{SENT}:\n    raise"
        ):
            raise Untranslatable("a try statement of another form")
        answer = handler.body[1]
        self.guarding = True
        self.missing = ast.dump(answer.value) if isinstance(answer, ast.Return) and answer.value is not None else None
        self.out.failed, self.out.missed = "caught", "missed"
        for inner in statement.body:
            self._statement(inner)
        self.guarding, self.missing = False, None
        self.out.failed = self.out.missed = "raised"
        on = self.code.label("on")
        self.out.jump(on)
        self.code.begin("caught")
        names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        errors = tuple([self._object(n.id) for n in names if isinstance(n, ast.Name)])
        matches = self.out.call("PyErr_ExceptionMatches", self.out.constant(errors).text)
        caught = self.code.label("caught")
        self.out.branch(self.code.op(f"icmp ne i32 {matches}, 0"), caught, "raised")
        self.code.begin(caught)
        self.out.clear_unless_traced("raised")
        self.out.jump("missed")
        self.code.begin("missed")
        self._statement(answer)
        self.code.begin(on)

    # -- statements
    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.If(test=test, body=[ast.Return(value=value)], orelse=[]):
                self._leave_if(test, value)
            case ast.If(test=test, body=body, orelse=[]):
                yes, on = self.code.label("yes"), self.code.label("on")
                self._test(test, yes, on)
                self.code.begin(yes)
                self.nested += 1
                for inner in body:
                    self._statement(inner)
                self.nested -= 1
                self.out.jump(on)
                self.code.begin(on)
            case ast.Assign(targets=targets, value=value):
                found = self._value(value)
                if not all(isinstance(target, ast.Name) for target in targets):
                    found = self.out.secured(found)
                for target in targets:
                    self._assign(target, found)
            case ast.AugAssign(target=target, op=op, value=value):
                self._augment(target, op, value)
            case ast.Return(value=value):
                self.out.leave(self._value(value) if value is not None else self.out.constant(None))
            case ast.Expr(value=ast.Name(id=name)) if name == RUN:
                self._run()
            case ast.Expr(value=value):
                self._value(value)
            case ast.Pass():
                return
            case _:
                raise Untranslatable(f"the statement {ast.unparse(statement)}")

    def _leave_if(self, test: ast.expr, value: ast.expr | None) -> None:
        """`if a or b or c: return value`.  Past it each of them is false, which may tell the type of a variable."""
        shared = self.missing is not None and value is not None and ast.dump(value) == self.missing
        leave = self.out.missed if shared else self.code.label("leave")
        operands = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
        for operand in operands:
            on = self.code.label("on")
            self._test(operand, leave, on)
            self.code.begin(on)
            self._learn(operand)
        if shared:
            return
        on = self.code.label("on")
        self.out.jump(on)
        self.code.begin(leave)
        self.out.leave(self._value(value) if value is not None else self.out.constant(None))
        self.code.begin(on)

    def _learn(self, test: ast.expr) -> None:
        """`test` is false from here on, unless this is the body of another condition."""
        if self.nested:
            return
        match test:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)]), ops=[ast.IsNot()], comparators=[right]
            ):
                variable = self.variables.get(name)
                if variable is not None and variable.value is not None and isinstance(right, ast.Name):
                    value = variable.value
                    variable.value = Value(value.text, self._object(right.id), value.constant, value.secure)

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self._set(name, value)
            case ast.Attribute(value=owner, attr=attr):
                self.out.set_attribute(self._value(owner), attr, value)
            case ast.Subscript(value=owner, slice=index):
                container, key = self._value(owner), self._value(index)
                symbol = "PyDict_SetItem" if container.known is dict else "PyObject_SetItem"
                self.out.done(symbol, container.text, key.text, value.text)
            case ast.Tuple(elts=targets):
                self._unpack(targets, value)
            case _:
                raise Untranslatable(f"an assignment to {ast.unparse(target)}")

    def _unpack(self, targets: Sequence[ast.expr], value: Value) -> None:
        fits, refused, on = self.code.label("tuple"), self.code.label("refused"), self.code.label("on")
        self.out.branch(self.code.op(f"icmp eq ptr {self.out.type_of(value)}, {self.out.constant(tuple).text}"), fits, refused)
        self.code.begin(fits)
        self.out.branch(self.code.op(f"icmp eq i64 {self.out.size_of(value)}, {len(targets)}"), on, refused)
        self.code.begin(refused)  # raises what the interpreter would
        self.out.made("PyObject_GetItem", value.text, self.out.constant(_UNPACKABLE).text)
        self.out.jump(on)
        self.code.begin(on)
        for k, target in enumerate(targets):
            if isinstance(target, ast.Name) and target.id == "_":
                continue
            self._assign(target, Value(self.out.item(Value(value.text, tuple), k)))

    def _augment(self, target: ast.expr, op: ast.operator, value: ast.expr) -> None:
        if not isinstance(op, ast.Add) or not isinstance(value, ast.Constant) or type(value.value) is not int:
            raise Untranslatable("an augmented assignment that does not add a number")
        match target:
            case ast.Attribute(value=owner_node, attr=attr):
                owner = self._value(owner_node)
                summed = self.out.made("PyNumber_Add", self.out.attribute(owner, attr).text, self._value(value).text)
                self.out.set_attribute(owner, attr, summed)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=index)) if type(self._object(name)) is list:
                owner, key = self.out.constant(self._object(name)), self.out.constant(index)
                old = self.out.made("PyObject_GetItem", owner.text, key.text)
                summed = self.out.made("PyNumber_Add", old.text, self._value(value).text)
                self.out.done("PyObject_SetItem", owner.text, key.text, summed.text)
            case _:
                raise Untranslatable(f"an augmented assignment to {ast.unparse(target)}")

    # -- the program
    def _run(self) -> None:
        run = self.run
        if run is None:
            raise Untranslatable("a program that is not known")
        out, code = self.out, self.code
        for name, shape, dtype in run.fresh:
            kind, descriptor = out.constant(np.ndarray), out.constant(dtype)
            out.incref(descriptor.text)
            dims = out.sizes(shape)
            made = out.made(
                "tracejit_new_array",
                kind.text,
                descriptor.text,
                str(len(shape)),
                dims,
                "null",
                "null",
                "0",
                "null",
                known=np.ndarray,
            )
            self._set(name, made)
        arrays = self._all([_parsed(text) for text in run.arrays])
        numbers = [(slot, kind, out.secured(self._value(_parsed(text)))) for slot, kind, text in run.scalars]
        frame = code.op(f"inttoptr i64 {out.word(run.frame)} to ptr")
        refused = code.label("refused")
        for slot, python_type, value in numbers:
            place = out.at(frame, 8 * slot)
            if python_type is float:
                if value.known is float:
                    number = code.op(f"load double, ptr {out.at(value.text, NUMBER)}")
                else:
                    number = out.call("PyFloat_AsDouble", value.text)
                    self._converted(code.op(f"fcmp oeq double {number}, -1.0"), refused)
                code.lines.append(f"store double {number}, ptr {place}")
            else:
                number = out.call("PyLong_AsLongLong", value.text)
                self._converted(code.op(f"icmp eq i64 {number}, -1"), refused)
                code.lines.append(f"store i64 {number}, ptr {place}")
        row = out.array([array.text for array in arrays])  # machine code finds them where a tuple has its items
        function = code.op(f"inttoptr i64 {out.word(run.address)} to ptr")
        bound = code.op(f"ptrtoint ptr {code.op(f'getelementptr i8, ptr {row}, i64 {-ITEMS}')} to i64")
        address = code.op(f"ptrtoint ptr {frame} to i64")
        status = code.op(f"call i64 {function}(i64 {address}, i64 {bound})")
        left, on = code.label("left"), code.label("on")
        out.branch(code.op(f"icmp eq i64 {status}, 0"), on, left)
        code.begin(left)
        self._leave_with(run, out.made("PyLong_FromLongLong", status))
        if numbers:
            code.begin(refused)
            out.call("PyErr_Clear")
            self._leave_with(run, out.constant(run.refused))
        code.begin(on)

    def _leave_with(self, run: Run, status: Value) -> None:
        """Return what the program's code stands for."""
        leave = self.out.constant(self._object(run.leave))
        self.out.leave(self.out.made("PyObject_GetItem", leave.text, status.text))

    def _converted(self, doubtful: str, refused: str) -> None:
        """A number was converted; `doubtful` if that may have failed."""
        doubt, on = self.code.label("doubt"), self.code.label("on")
        self.out.branch(doubtful, doubt, on)
        self.code.begin(doubt)
        error = self.out.call("PyErr_Occurred")
        self.out.branch(self.code.op(f"icmp eq ptr {error}, null"), on, refused)
        self.code.begin(on)


def _parsed(text: str) -> ast.expr:
    statement = ast.parse(f"({text},)").body[0]
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Tuple)
    return statement.value.elts[0]


_UNPACKABLE: Final = "a tuple of another length"
