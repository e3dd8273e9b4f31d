"""Functions of replay (replay/ir.py) as machine code that calls Python's C interface.

What a replayed call costs besides its program is a few dozen simple statements: guards, attributes of new objects, a tuple or two.  The
interpreter takes 20 to 40 ns for each; compiled, those that read or write a slot take one.  `translate` takes such a function and the
objects its names stand for, and writes the same in LLVM IR.  What it does not know raises `Untranslatable`, and the entry goes on being
interpreted.

Meaning is kept by construction: what has a C function (attributes, items, calls, arithmetic, comparison) is that function's call; what is
written out here is reading and writing slots at known offsets of objects whose exact type was just compared, items of lists and
tuples, identity, and counting references.  A variable owns its object to the end of the function, as in the interpreter.

A program is run (`Run`) in a frame that belongs to the function.  From the first number written into the frame until the program
returns no other Python code can run, so nobody else sees that frame.  Where the program leaves, what goes on from there in the same call
may read the frame's arena (`Run.marks`): the mark behind the frame tells it whether that is still what its own call has left.

It must not know tensors: which classes have slots that matter is said by the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tracejit.cpython.arrays import DATA, DESCR, DIMENSIONS, ND, STRIDES
from tracejit.cpython.c_api import ITEMS, NUMBER
from tracejit.cpython.expressions import Expressions, Untranslatable
from tracejit.cpython.object_code import Value
from tracejit.replay.ir import (
    CAUGHT,
    Define,
    DeleteItem,
    Evaluate,
    Expr,
    Function,
    If,
    Increment,
    Is,
    Item,
    Miss,
    Name,
    Not,
    Notify,
    Or,
    Return,
    ReturnIf,
    RunProgram,
    SetAttribute,
    SetItem,
    Statement,
    TypeOf,
    Unpack,
    defined,
    walk,
)  # fmt: skip

__all__ = ["Untranslatable", "translate"]


def translate(
    function: Function, symbol: str, constants: Mapping[str, Any], slotted: Iterable[type]
) -> tuple[str, tuple[Any, ...]]:
    """The LLVM text of `function`, as a function `symbol` that is called with positional arguments (METH_FASTCALL | METH_KEYWORDS), and
    the constants that its `self` must begin with.

    slotted: classes of which slots are read and written at their offsets.  Raises Untranslatable."""
    translator = _Translator(constants, slotted)
    translator.function(function)
    return translator.out.text(symbol), (*translator.out.constants(), *translator.owners)


class _Translator(Expressions):
    def __init__(self, constants: Mapping[str, Any], slotted: Iterable[type]) -> None:
        super().__init__(constants, slotted)
        self.owners: list[Any] = []  # of the programs that it runs
        self.missed: Expr | None = None  # what guards return

    def function(self, function: Function) -> None:
        if function.locks:
            raise Untranslatable("a lock, which is given back whatever happens")
        self.assigned = Counter(name for node in walk((function.first, function.guards, function.body)) for name in defined(node))
        self.missed = function.missed
        self._all_of(function.first)
        if function.catches:
            self._guards(function)
        else:
            self._all_of(function.guards)
        self._all_of(function.body)
        if not (function.body and isinstance(function.body[-1], Return)):
            self.out.leave(self.out.constant(None))

    def _guards(self, function: Function) -> None:
        """An error that was not raised in a Python function further in is a guard that fails."""
        self.guarding = True
        self.out.failed, self.out.missed = "caught", "missed"
        self._all_of(function.guards)
        self.guarding = False
        self.out.failed = self.out.missed = "raised"
        on = self.code.label("on")
        self.out.jump(on)
        self.code.begin("caught")
        matches = self.out.call("PyErr_ExceptionMatches", self.out.constant(CAUGHT).text)
        caught = self.code.label("caught")
        self.out.branch(self.code.op(f"icmp ne i32 {matches}, 0"), caught, "raised")
        self.code.begin(caught)
        self.out.clear_unless_traced("raised")
        self.out.jump("missed")
        self.code.begin("missed")
        self.out.leave(self._value(function.missed))
        self.code.begin(on)

    # -- statements
    def _all_of(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Miss(condition):
                assert self.missed is not None
                self._leave_if(condition, self.missed, shared=self.guarding)
            case ReturnIf(condition, value):
                self._leave_if(condition, value)
            case If(condition, body):
                yes, on = self.code.label("yes"), self.code.label("on")
                self._test(condition, yes, on)
                self.code.begin(yes)
                self.nested += 1
                self._all_of(body)
                self.nested -= 1
                self.out.jump(on)
                self.code.begin(on)
            case Define(name, value):
                self._set(name, self._value(value))
            case Unpack(names, value):
                self._unpack(names, self.out.secured(self._value(value)))
            case SetAttribute(owner, name, value):
                found = self.out.secured(self._value(value))
                self.out.set_attribute(self._value(owner), name, found)
            case SetItem(owner, key, value):
                found = self.out.secured(self._value(value))
                container, index_or_key = self._value(owner), self._value(key)
                symbol = "PyDict_SetItem" if container.known is dict else "PyObject_SetItem"
                self.out.call_for_number(symbol, container.text, index_or_key.text, found.text)
            case DeleteItem(owner, key):
                container, index_or_key = self._all([owner, key])
                self.out.call_for_number("PyObject_DelItem", container.text, index_or_key.text)
            case Increment(Item(owner, key), amount):
                container, index_or_key = self._all([owner, key])
                old = self.out.call_for_object("PyObject_GetItem", container.text, index_or_key.text)
                summed = self.out.call_for_object("PyNumber_Add", old.text, self.out.constant(amount).text)
                self.out.call_for_number("PyObject_SetItem", container.text, index_or_key.text, summed.text)
            case Return(value):
                self.out.leave(self._value(value))
            case RunProgram():
                self._run(statement)
            case Evaluate(value):
                self._value(value)
            case Notify():
                return
            case _:
                raise Untranslatable(f"the statement {statement}")

    def _leave_if(self, test: Expr, value: Expr, shared: bool = False) -> None:
        """Leave if a condition holds.  Past it each of its alternatives is false, which may tell the type of a variable."""
        leave = self.out.missed if shared else self.code.label("leave")
        for operand in test.values if isinstance(test, Or) else (test,):
            on = self.code.label("on")
            self._test(operand, leave, on)
            self.code.begin(on)
            self._learn(operand)
        if shared:
            return
        on = self.code.label("on")
        self.out.jump(on)
        self.code.begin(leave)
        self.out.leave(self._value(value))
        self.code.begin(on)

    def _learn(self, test: Expr) -> None:
        """`test` is false from here on, unless this is the body of another condition."""
        if self.nested:
            return
        match test:
            case Not(Is(TypeOf(Name(name)), Name(cls))):
                variable = self.variables.get(name)
                if variable is not None and variable.value is not None:
                    value = variable.value
                    variable.value = Value(value.text, self._object(cls), value.constant, value.secure)

    def _unpack(self, names: Sequence[Any], value: Value) -> None:
        fits, refused, on = self.code.label("tuple"), self.code.label("refused"), self.code.label("on")
        self.out.branch(self.code.op(f"icmp eq ptr {self.out.type_of(value)}, {self.out.constant(tuple).text}"), fits, refused)
        self.code.begin(fits)
        self.out.branch(self.code.op(f"icmp eq i64 {self.out.size_of(value)}, {len(names)}"), on, refused)
        self.code.begin(refused)  # raises what the interpreter would
        self.out.call_for_object("PyObject_GetItem", value.text, self.out.constant(_UNPACKABLE).text)
        self.out.jump(on)
        self.code.begin(on)
        for k, name in enumerate(names):
            if name == "_":
                continue
            element = Value(self.out.item(Value(value.text, tuple), k))
            if isinstance(name, str):
                self._set(name, element)
            else:
                self._unpack(name, element)

    # -- the program
    def _run(self, run: RunProgram) -> None:
        machine = run.program.machine()
        self.owners += machine.owners
        out, code = self.out, self.code
        for name, shape, dtype in run.fresh:
            kind, descriptor = out.constant(np.ndarray), out.constant(dtype)
            out.incref(descriptor.text)
            dims = out.sizes(shape)
            given = (kind.text, descriptor.text, str(len(shape)), dims, "null", "null", "0", "null")
            self._set(name, out.call_for_object("tracejit_new_array", *given, known=np.ndarray))
        arrays = self._all(run.arrays)
        numbers = [(slot, kind, out.secured(self._value(number))) for slot, kind, number in run.numbers]
        state = None if run.state is None else out.secured(self._value(run.state))
        frame, mark = (code.op(f"inttoptr i64 {out.word(at)} to ptr") for at in (machine.frame, machine.mark))
        refused = code.label("refused")
        for inherited, has_drawn in run.marks:
            self._inherit(inherited, state if has_drawn else None, refused)
        for slot, python_type, value in numbers:
            index_or_key = out.at(frame, 8 * slot)
            if python_type is float:
                if value.known is float:
                    number = code.op(f"load double, ptr {out.at(value.text, NUMBER)}")
                else:
                    number = out.call("PyFloat_AsDouble", value.text)
                    self._converted(code.op(f"fcmp oeq double {number}, -1.0"), refused)
                code.lines.append(f"store double {number}, ptr {index_or_key}")
            else:
                number = out.call("PyLong_AsLongLong", value.text)
                self._converted(code.op(f"icmp eq i64 {number}, -1"), refused)
                code.lines.append(f"store i64 {number}, ptr {index_or_key}")
        row = out.array([array.text for array in arrays])  # machine code finds them where a tuple has its items
        code.lines.append(f"store ptr %arguments, ptr {mark}")
        function = code.op(f"inttoptr i64 {out.word(machine.program)} to ptr")
        bound = code.op(f"ptrtoint ptr {code.op(f'getelementptr i8, ptr {row}, i64 {-ITEMS}')} to i64")
        address = code.op(f"ptrtoint ptr {frame} to i64")
        status = code.op(f"call i64 {function}(i64 {address}, i64 {bound})")
        left, on = code.label("left"), code.label("on")
        out.branch(code.op(f"icmp eq i64 {status}, 0"), on, left)
        code.begin(left)
        if state is not None:
            self._remember(mark, state, status)
        self._leave_with(run, out.call_for_object("PyLong_FromLongLong", status))
        if numbers or run.marks:
            code.begin(refused)
            out.call("PyErr_Clear")
            self._leave_with(run, out.constant(run.refused))
        code.begin(on)

    def _remember(self, mark: str, state: Value, status: str) -> None:
        """Where the program has left at an exit, and so found its arrays right: the words of the generator."""
        out, code = self.out, self.code
        taken, on = code.label("taken"), code.label("on")
        out.branch(code.op(f"icmp sgt i64 {status}, 0"), taken, on)
        code.begin(taken)
        data = out.load(state.text, DATA)
        for at in (0, 8):
            word = code.op(f"load i64, ptr {out.at(data, at)}")
            code.lines.append(f"store i64 {word}, ptr {out.at(mark, 8 + at)}")
        out.jump(on)
        code.begin(on)

    def _inherit(self, mark_at: int, state: Value | None, refused: str) -> None:
        """Go to `refused` unless the last call in this frame was the present one, and the generator is what it was when that left."""
        out, code = self.out, self.code
        mark = code.op(f"inttoptr i64 {out.word(mark_at)} to ptr")

        def equal(kind: str, pointer: str, expected: str) -> None:
            on = code.label("on")
            out.branch(code.op(f"icmp eq {kind} {code.op(f'load {kind}, ptr {pointer}')}, {expected}"), on, refused)
            code.begin(on)

        equal("ptr", mark, "%arguments")
        if state is None:
            return
        on = code.label("on")
        out.branch(code.op(f"icmp eq ptr {out.type_of(state)}, {out.constant(np.ndarray).text}"), on, refused)
        code.begin(on)
        equal("ptr", out.at(state.text, DESCR), out.constant(np.dtype(np.int64)).text)
        equal("i32", out.at(state.text, ND), "1")
        equal("i64", out.load(state.text, DIMENSIONS), "2")
        equal("i64", out.load(state.text, STRIDES), "8")
        data = out.load(state.text, DATA)
        for at in (0, 8):
            equal("i64", out.at(data, at), code.op(f"load i64, ptr {out.at(mark, 8 + at)}"))

    def _leave_with(self, run: RunProgram, status: Value) -> None:
        """Return what the program's code stands for."""
        leave = self._value(run.leave)
        self.out.leave(self.out.call_for_object("PyObject_GetItem", leave.text, status.text))

    def _converted(self, doubtful: str, refused: str) -> None:
        """A number was converted; `doubtful` if that may have failed."""
        doubt, on = self.code.label("doubt"), self.code.label("on")
        self.out.branch(doubtful, doubt, on)
        self.code.begin(doubt)
        error = self.out.call("PyErr_Occurred")
        self.out.branch(self.code.op(f"icmp eq ptr {error}, null"), on, refused)
        self.code.begin(on)


_UNPACKABLE: Final = "a tuple of another length"
