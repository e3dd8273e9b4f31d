"""Compiles a `ProgramSpec` into one machine-code function of a frame address.

`compile_program(spec) -> CompiledProgram`: `run(address, id(arrays))` returns OK (0), MISMATCH (-1: some array is not what the program
was made for, nothing was written), INTERRUPTED (-2: a loop found that Ctrl-C was pressed, nothing was written) or the exit code k >= 1
of a nest.  `template` is the int64 table that a frame starts from: the runtime copies it, fills its own slots, and passes the copy's
address and the `id` of the tuple of arrays, which the program puts in slot 0.

A program is one LLVM function of a frame's address and a tuple's, whose text is written here; in the process that first meets it, Numba
compiles it to object code, later ones find that (machine_code.py, object_cache.py).  Equal nests are one internal function; steps that
repeat themselves are one, too (repetition.py), and the steps of a long program are several.  The code is found again by its content, the
data behind the frame's slots not being part of it, in this process and in later ones.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.locks import lock_held_over_forks
from tracejit.core.symbolic import SymInt, by_origin, has_symbols, without_symbols
from tracejit.core.uninterrupted import uninterrupted_result
from tracejit.cpython import frame_check, interrupted, programs
from tracejit.cpython.linking import link
from tracejit.llvm import blas, convolution_tasks, convolutions, lapack, operations, products, thread_pool
from tracejit.llvm.family import SizeVariant
from tracejit.llvm.host import host_target
from tracejit.llvm.operations import Code, lane_type
from tracejit.llvm.reductions import Emitter
from tracejit.llvm.repetition import Repetition, with_repetitions
from tracejit.loops.language import Nest, Scalar
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target
from tracejit.lowering.exits import STEP
from tracejit.lowering.likeness import form
from tracejit.lowering.steps import (
    Address,
    ConvolutionCall,
    Division,
    GemmCall,
    Integer,
    LapackCall,
    LoopCall,
    NestCall,
    NestRun,
    NumberSlot,
    ProgramSpec,
    ProgramStep,
    Slot,
    addresses,
)
from tracejit.math import libm
from tracejit.native import machine_code, object_cache

__all__ = ["INTERRUPTED", "MISMATCH", "OK", "CompiledProgram", "compilations", "compile_program"]

OK: Final = 0
MISMATCH: Final = -1
INTERRUPTED: Final = -2
REMEMBERED: Final = 512  # programs found again by content
PART: Final = 200  # steps in a function: LLVM takes more than proportionally long for longer ones


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProgram:
    """Machine code of a program, which `run` keeps alive; `seconds` is what compiling took (0 when found), `data` how many numbers of the
    steps are data (family.py).  words: of `template`, where some of them are computed of symbolic sizes (core/symbolic.py)."""

    run: Callable[[int, int], int]
    template: np.ndarray[Any, Any]
    key: str
    text: str
    seconds: float
    data: int
    words: tuple[int | float, ...] = ()

    def substituted(self, of: Callable[[Any], Any]) -> CompiledProgram:
        """The same for other sizes."""
        words = of(self.words)
        return self if words is self.words else replace(self, template=_template(words), words=())


@dataclass(frozen=True, slots=True)
class _Function:
    """A nest's text, its symbol left out, and what calls of it must know."""

    text: str
    parameters: tuple[str, ...]  # their types
    exits: bool
    declarations: dict[str, str]
    libm: frozenset[tuple[str, DType, int]]


@dataclass(frozen=True, slots=True)
class _Named:
    """A nest that is equal to others of its form."""

    form: Hashable
    nest: Nest = field(compare=False)


@lru_cache(REMEMBERED)
def _function(named: _Named, target: Target) -> _Function:
    """A nest as a function, found again by its form: programs of other sizes, and of other paths, have nests in common."""
    emitter = Emitter(rewritten(named.nest, target), "NEST", target)
    text = emitter.text()
    parameters, exits = tuple(emitter.parameter_types()), bool(emitter.exits)
    return _Function(text, parameters, exits, emitter.code.declarations, frozenset(emitter.code.libm))


class _ProgramWriter:
    """The text of one program: its nests, then the function of the frame."""

    def __init__(self, spec: ProgramSpec, target: Target, data: Collection[int]) -> None:
        """data: which numbers, by their positions among those of the steps, come from the table."""
        self.spec = spec
        self.target = target
        self.data = data
        self.numbers: list[int] = []  # sizes, strides and offsets of the steps, in the order of the text
        self.offsets: set[int] = set()  # positions among them
        self.symbols = 0  # how many are computed of symbolic sizes, and come from the table for that
        self.code = Code()
        self.declarations: dict[str, str] = {}
        self.libm: set[tuple[str, DType, int]] = set()
        self.functions: dict[str, str] = {}  # text with the symbol left out -> symbol
        self.emitted: dict[int, tuple[_Function, str]] = {}  # id of a Nest -> its function, symbol
        self.leaving: list[str] = []  # phi operands of the block that returns an exit's code
        self.words: dict[int, str] = {}
        self.pointers: dict[tuple[int, int | str], str] = {}
        self.repetition: Repetition | None = None  # whose steps are being written
        self.uses_blas = False
        self.lapack: set[tuple[str, DType]] = set()  # routines
        self.interruptible = False
        self.table: list[int | float] = list(frame_check.expected_words(spec))  # the words behind the slots
        self.uses_pool = False

    def text(self) -> str:
        """Declarations, functions, then the program."""
        code, spec = self.code, self.spec
        code.lines += [
            "%frame = inttoptr i64 %address to ptr",
            "store i64 %arrays, ptr %frame",
            *frame_check.expected_lines(spec),
        ]
        code.begin("begin")
        steps = with_repetitions(spec.steps, spec.slots)
        if len(steps) <= PART:
            for step in steps:
                self._step(step)
        else:
            for first in range(0, len(steps), PART):
                self._part(steps[first : first + PART])
        self._end()
        if spec.arrays:
            code.lines += ["mismatch:", f"ret i64 {MISMATCH}"]
        functions = [text.replace("@NEST(", f"@{symbol}(", 1) for text, symbol in self.functions.items()]
        program = [
            f"define internal i64 @{programs.PROGRAM}(i64 %address, i64 %arrays) noinline nounwind {{",
            "entry:",
            *code.lines,
            "}",
        ]
        return "\n".join([*sorted(self.declarations.values()), frame_check.declaration(), *functions, *program])

    def _end(self) -> None:
        """The steps were done, or one of them has left by an exit."""
        self.code.lines.append(f"ret i64 {OK}")
        if self.leaving:
            self.code.lines += ["leave:", f"%status = phi i64 {', '.join(self.leaving)}", "ret i64 %status"]
        self.declarations.update(self.code.declarations)

    def _part(self, steps: Sequence[ProgramStep | Repetition]) -> None:
        """Some of the steps as a function of their own, and its call."""
        symbol, exits = self._function_of(steps)
        status = self.code.op(f"call i64 @{symbol}(ptr %frame)")
        if exits:
            self._leave_unless_done(status)

    def _function_of(self, steps: Sequence[ProgramStep | Repetition], parameters: str = "ptr %frame") -> tuple[str, bool]:
        """(a function of the frame, and of a row of a table, that does some steps, whether they may leave)."""
        outer = self.code, self.leaving, self.words, self.pointers
        self.code, self.leaving, self.words, self.pointers = Code(), [], {}, {}
        for step in steps:
            self._step(step)
        self._end()
        lines, exits = self.code.lines, bool(self.leaving)
        self.code, self.leaving, self.words, self.pointers = outer
        text = "\n".join([f"define internal i64 @NEST({parameters}) noinline nounwind {{", "entry:", *lines, "}"])
        return self.functions.setdefault(text, f"part{len(self.functions)}"), exits

    def _step(self, step: ProgramStep | Repetition) -> None:
        if isinstance(step, NestCall):
            self._nest(step)
        elif isinstance(step, Repetition):
            self._repetition(step)
        elif isinstance(step, NestRun):
            self._run(step)
        elif isinstance(step, GemmCall):
            self._gemm(step)
        elif isinstance(step, LapackCall):
            self._lapack(step)
        elif isinstance(step, ConvolutionCall):
            self._convolution(step)
        elif isinstance(step, LoopCall):
            self._loop(step)
        else:
            destination, source = self._pointer(step.destination), self._pointer(step.source)
            size = self._integer(step.nbytes)
            self.code.call("llvm.memcpy.p0.p0.i64", "void", ("ptr", destination), ("ptr", source), ("i64", size), ("i1", "false"))

    # --- arguments

    def _word(self, slot: int) -> str:
        """The int64 in a slot, read once."""
        if not 0 <= slot < self.spec.slots:
            raise ValueError(f"a step refers to table slot {slot}, but the program has {self.spec.slots} slots")
        found = self.words.get(slot)
        if found is None:
            at = self.code.op(f"getelementptr i64, ptr %frame, i64 {slot}")
            found = self.words[slot] = self.code.op(f"load i64, ptr {at}")
        return found

    def _integer(self, value: Integer) -> str:
        if isinstance(value, Slot):
            return self._word(value.index)
        number = len(self.numbers)
        self.numbers.append(value)
        symbolic = type(value) is SymInt
        if not (symbolic or number in self.data):
            return str(value)
        decides = number not in self.offsets and value in (0, 1)  # a product with one row is another function of the BLAS
        self.symbols += symbolic and not decides
        return str(value) if decides else self._datum(value)

    def _datum(self, value: int | float) -> str:
        """An int64 in the table behind the slots."""
        at = self.code.op(f"getelementptr i64, ptr %frame, i64 {self.spec.slots + len(self.table)}")
        self.table.append(value)
        return self.code.op(f"load i64, ptr {at}")

    def _pointer(self, address: Address) -> str:
        if address.slot >= self.spec.slots and self.repetition is not None:
            return self._of_row(address.slot - self.repetition.first)
        self.offsets.add(len(self.numbers))
        offset = self._integer(address.offset)
        found = self.pointers.get((address.slot, offset))
        if found is None:
            found = self.code.op(f"inttoptr i64 {self._word(address.slot)} to ptr")
            if offset != "0":
                found = self.code.op(f"getelementptr i8, ptr {found}, i64 {offset}")
            self.pointers[address.slot, offset] = found
        return found

    def _of_row(self, column: int) -> str:
        """The pointer that a row of a repetition has in a column."""
        found = self.pointers.get((-1, column))
        if found is None:
            found = self.pointers[-1, column] = self._from_row("%row", 2 * column)
        return found

    def _from_row(self, row: str, k: int) -> str:
        """A pointer of which words k and k + 1 of a row are the offset of its slot in the frame and its own offset."""
        code = self.code
        slot, offset = [code.op(f"load i64, ptr {code.op(f'getelementptr i64, ptr {row}, i64 {k + word}')}") for word in (0, 1)]
        base = code.op(f"load ptr, ptr {code.op(f'getelementptr i8, ptr %frame, i64 {slot}')}")
        return code.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _scalar(self, parameter: Scalar, value: bool | int | float | NumberSlot) -> str:
        if isinstance(value, NumberSlot):
            return self._cast(self._word(value.index), value.dtype, parameter)
        return self._cast(self._datum(value), dtypes.float64 if isinstance(value, float) else dtypes.int64, parameter)

    def _cast(self, text: str, dtype: DType, parameter: Scalar) -> str:
        """The number in a word as the nest wants it."""
        source = dtypes.float64 if dtype.is_floating_point else dtypes.int64
        if source is dtypes.float64:
            text = self.code.op(f"bitcast i64 {text} to double")
        return text if parameter.dtype is source else operations.apply(self.code, "cast", None, source, parameter.dtype, 1, text)

    # --- steps

    def _nest(self, step: NestCall) -> None:
        nest = step.nest
        function, symbol = self._nest_function(nest)
        values = [self._pointer(a) for a in step.buffers]
        values += [self._integer(n) for n in step.sizes]
        values += [self._scalar(p, v) for p, v in zip(nest.scalars, step.scalars, strict=True)]
        arguments = list(zip(function.parameters, values, strict=True))
        if step.division is None:
            status = self.code.op(f"call i64 @{symbol}({', '.join(f'{t} {v}' for t, v in arguments)})")
        else:
            status = self._chunks(step.division, len(step.buffers), symbol, arguments)
        if function.exits:
            self._leave_unless_done(status)

    def _leave_unless_done(self, status: str) -> None:
        done, following = self.code.op(f"icmp eq i64 {status}, 0"), self.code.label("go")
        self.leaving.append(f"[ {status}, %{self.code.block} ]")
        self.code.lines.append(f"br i1 {done}, label %{following}, label %leave")
        self.code.begin(following)

    def _run(self, step: NestRun) -> None:
        """A loop over the rows of a table: a row has, per buffer, the offset of its slot in the frame and its own offset; per size that is
        not the same in all rows, its value (LLVM specialises a nest for sizes that all its calls pass as one constant); per number, the
        offset of its slot."""
        code, nest, first = self.code, step.nest, step.calls[0]
        function, symbol = self._nest_function(nest)
        columns = [tuple(map(by_origin, column)) for column in zip(*[call.sizes for call in step.calls], strict=True)]
        differing = [k for k, column in enumerate(columns) if column.count(column[0]) < len(column)]
        rows = [
            [8 * a.slot if field == 0 else a.offset for a in call.buffers for field in (0, 1)]
            + [call.sizes[k] for k in differing]
            + [8 * n.index for n in call.scalars if isinstance(n, NumberSlot)]
            for call in step.calls
        ]
        sizes = ["" if k in differing else self._integer(n) for k, n in enumerate(first.sizes)]

        def call(row: str) -> str:
            pointers = 2 * len(first.buffers)
            values = [self._from_row(row, k) for k in range(0, pointers, 2)]
            words = [
                code.op(f"load i64, ptr {code.op(f'getelementptr i64, ptr {row}, i64 {k}')}")
                for k in range(pointers, len(rows[0]))
            ]
            for k, word in zip(differing, words, strict=False):
                sizes[k] = word
            values += sizes
            for parameter, value, slot in zip(nest.scalars, first.scalars, words[len(differing) :], strict=True):
                assert isinstance(value, NumberSlot), value
                number = code.op(f"load i64, ptr {code.op(f'getelementptr i8, ptr %frame, i64 {slot}')}")
                values.append(self._cast(number, value.dtype, parameter))
            arguments = ", ".join(f"{t} {v}" for t, v in zip(function.parameters, values, strict=True))
            return code.op(f"call i64 @{symbol}({arguments})")

        self._over_rows(rows, call, function.exits)  # type: ignore[arg-type]  # a run has no sizes or offsets in slots

    def _repetition(self, step: Repetition) -> None:
        """The steps are a function of the frame and a row."""
        outer, self.repetition = self.repetition, step
        symbol, exits = self._function_of(step.steps, "ptr %frame, ptr %row")
        self.repetition = outer
        self._over_rows(step.rows, lambda row: self.code.op(f"call i64 @{symbol}(ptr %frame, ptr {row})"), exits)

    def _over_rows(self, rows: Sequence[Sequence[int]], call: Callable[[str], str], exits: bool) -> None:
        """A loop over the rows of a table.  call: writes what is done for the row at an address, and answers its status; exits: whether it
        may leave."""
        code = self.code
        begin, width = self.spec.slots + len(self.table), len(rows[0])
        self.table += [word for row in rows for word in row]
        table = code.op(f"getelementptr i64, ptr %frame, i64 {begin}")
        end = code.op(f"getelementptr i64, ptr %frame, i64 {begin + width * len(rows)}")
        head, after, row, following = code.label("row"), code.label("rows"), code.name(), code.name()
        before = code.block
        code.lines.append(f"br label %{head}")
        code.begin(head)
        at = len(code.lines)
        status = call(row)
        if exits:
            self._leave_unless_done(status)
        code.lines.append(f"{following} = getelementptr i64, ptr {row}, i64 {width}")
        more = code.op(f"icmp ne ptr {following}, {end}")
        code.lines.append(f"br i1 {more}, label %{head}, label %{after}")
        code.lines.insert(at, f"{row} = phi ptr [ {table}, %{before} ], [ {following}, %{code.block} ]")
        code.begin(after)

    def _loop(self, step: LoopCall) -> None:
        """The slots are words of the frame, which a function of the steps reads again each time."""
        code = self.code
        symbol, exits = self._function_of(step.steps)
        pointers = {}
        for slot, address, _ in step.pointers:
            pointers[slot] = code.op(f"getelementptr i64, ptr %frame, i64 {slot}")
            code.lines.append(f"store ptr {self._pointer(address)}, ptr {pointers[slot]}")
        count = step.count if isinstance(step.count, Address) else self._integer(step.count)
        go = self._pointer(count) if isinstance(count, Address) else ""
        head, after, index, following = code.label("again"), code.label("over"), code.name(), code.name()
        before = code.block
        code.lines.append(f"br label %{head}")
        code.begin(head)
        at = len(code.lines)
        if go:
            body, going = code.label("step"), code.op(f"icmp ne i8 {code.op(f'load i8, ptr {go}')}, 0")
            code.lines.append(f"br i1 {going}, label %{body}, label %{after}")
            code.begin(body)
            self._leave_if_interrupted()
        status = code.op(f"call i64 @{symbol}(ptr %frame)")
        if exits:
            self._leave_unless_done(self._of_step(status, index) if step.leaves_by_step else status)
        for slot, _, advance in step.pointers:
            if advance:
                moved = code.op(f"load ptr, ptr {pointers[slot]}")
                moved = code.op(f"getelementptr i8, ptr {moved}, i64 {self._integer(advance)}")
                code.lines.append(f"store ptr {moved}, ptr {pointers[slot]}")
        code.lines.append(f"{following} = add i64 {index}, 1")
        if go:
            code.lines.append(f"br label %{head}")
        else:
            more = code.op(f"icmp slt i64 {following}, {count}")
            code.lines.append(f"br i1 {more}, label %{head}, label %{after}")
        code.lines.insert(at, f"{index} = phi i64 [ 0, %{before} ], [ {following}, %{code.block} ]")
        code.begin(after)

    def _leave_if_interrupted(self) -> None:
        """A loop that may never end answers Ctrl-C: the program leaves, for nothing has been written yet, and Python runs the handler."""
        if not self.spec.interruptible:
            return
        code = self.code
        self.interruptible = True
        self.declarations[interrupted.INTERRUPTED] = interrupted.declaration()
        pressed, following = code.op(f"call i1 @{interrupted.INTERRUPTED}()"), code.label("go")
        self.leaving.append(f"[ {INTERRUPTED}, %{code.block} ]")
        code.lines.append(f"br i1 {pressed}, label %leave, label %{following}")
        code.begin(following)

    def _of_step(self, status: str, step: str) -> str:
        """`status` with the number of the step, unless it has that of a step of an inner loop, or is none (lowering/exits.py)."""
        code = self.code
        first, left = code.op(f"icmp ult i64 {status}, {1 << STEP}"), code.op(f"icmp ne i64 {status}, 0")
        shifted = code.op(f"shl i64 {code.op(f'add i64 {step}, 1')}, {STEP}")
        return code.op(
            f"select i1 {code.op(f'and i1 {first}, {left}')}, i64 {code.op(f'add i64 {status}, {shifted}')}, i64 {status}"
        )

    def _chunks(self, division: Division, buffers: int, symbol: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Have the pool call a nest for every chunk: through a function of a block of what is known only now, and of the chunk's number."""
        self.uses_pool = True
        code, chunk, words = self.code, Code(), 0
        before, block = len(code.lines), code.name()

        def inside(kind: str, value: str) -> str:
            """The same value in the function of a chunk."""
            nonlocal words
            if not value.startswith("%"):
                return value
            code.lines.append(f"store {kind} {value}, ptr {code.op(f'getelementptr i64, ptr {block}, i64 {words}')}")
            words += 1
            return chunk.op(f"load {kind}, ptr {chunk.op(f'getelementptr i64, ptr %block, i64 {words - 1}')}")

        given = [inside(kind, value) for kind, value in arguments]
        for i in range(buffers):
            if division.advances[i]:
                advance = inside("i64", self._integer(division.advances[i]))
                given[i] = chunk.op(f"getelementptr i8, ptr {given[i]}, i64 {chunk.op(f'mul i64 %k, {advance}')}")
        length, extent, count = map(self._integer, (division.length, division.extent, division.count))
        length = inside("i64", length)
        first = chunk.op(f"mul i64 %k, {length}")
        left = chunk.op(f"sub i64 {inside('i64', extent)}, {first}")
        given[buffers + division.many] = chunk.call("llvm.smin.i64", "i64", ("i64", left), ("i64", length))
        if division.first is not None:
            given[buffers + division.first] = first
        status = chunk.op(f"call i64 @{symbol}({', '.join(f'{t} {v}' for (t, _), v in zip(arguments, given, strict=True))})")
        self.declarations.update(chunk.declarations)
        lines = ["define internal i64 @NEST(ptr %block, i64 %k) nounwind {", "entry:", *chunk.lines, f"ret i64 {status}", "}"]
        function = self.functions.setdefault("\n".join(lines), f"chunk{len(self.functions)}")
        code.lines.insert(before, f"{block} = alloca [{words} x i64]")
        return code.call(thread_pool.PARALLEL, "i64", ("ptr", f"@{function}"), ("ptr", block), ("i64", count))

    def _nest_function(self, nest: Nest) -> tuple[_Function, str]:
        known = self.emitted.get(id(nest))
        if known is None:
            function = _function(_Named(form(nest), nest), self.target)
            self.declarations.update(function.declarations)
            self.libm |= function.libm
            symbol = self.functions.setdefault(function.text, f"nest{len(self.functions)}")
            known = self.emitted[id(nest)] = function, symbol
        return known

    def _gemm(self, step: GemmCall) -> None:
        self.uses_blas = True
        sizes = [self._integer(n) for n in (step.m, step.n, step.k)]
        leading = [self._integer(n) for n in (step.lda, step.ldb, step.ldc)]
        pointers = [self._pointer(a) for a in (step.a, step.b, step.c)]
        transpose, numbers = (step.transpose_a, step.transpose_b), (step.alpha, step.beta)

        def product(moving: Sequence[str]) -> None:
            operands = list(zip(moving, leading, strict=True))
            blas.emit_gemm(self.code, blas.blas(), step.dtype, transpose, sizes, operands, *numbers)

        self._batched(step.batch, lane_type(step.dtype), pointers, product)

    def _convolution(self, step: ConvolutionCall) -> None:
        """The words are words of the table: the code knows no sizes."""
        code = self.code
        begin = self.spec.slots + len(self.table)
        self.table += step.words  # type: ignore[arg-type]  # no slots: what moves are addresses
        words = code.op(f"getelementptr i64, ptr %frame, i64 {begin}")
        given = [*[("ptr", self._pointer(a)) for a in (step.a, step.b, step.c)], ("ptr", words)]
        code.call(convolution_tasks.symbol(step.dtype, step.kernel), "void", *given)

    def _lapack(self, step: LapackCall) -> None:
        self.lapack.add((step.routine, step.dtype))
        flags = [("i1", "true" if flag else "false") for flag in step.flags]
        n, m = self._integer(step.operands[-1].rows), self._integer(step.operands[-1].columns)
        strides = [[("i64", self._integer(stride)) for stride in (x.down, x.across)] for x in step.operands]
        pointers = [self._pointer(address) for address in addresses(step)]

        def routine(moving: Sequence[str]) -> None:
            given = [[("ptr", x), *own] for x, own in zip(moving, strides, strict=False)]
            results = [("ptr", x) for x in (*moving[len(strides) :], pointers[-1])]
            arguments = [*flags, ("i64", n), ("i64", m), *[x for own in given for x in own], *results]
            info = self.code.call(lapack.symbol(step.routine, step.dtype), "i64", *arguments)
            if step.code:
                self._leave_unless_done(
                    self.code.op(f"select i1 {self.code.op(f'icmp eq i64 {info}, 0')}, i64 0, i64 {step.code}")
                )

        self._batched(step.batch, lane_type(step.dtype), pointers[:-1], routine)

    def _batched(
        self,
        batch: Sequence[tuple[Integer, ...]],
        element: str,
        pointers: Sequence[str],
        call: Callable[[Sequence[str]], None],
    ) -> None:
        """One loop per batch dimension around the call, which is told where the pointers have come."""
        code = self.code
        if not batch:
            call(pointers)
            return
        extent, *strides = batch[0]
        count = self._integer(extent)
        steps = [self._integer(stride) for stride in strides]
        head, body, end = code.label("batch"), code.label("product"), code.label("batched")
        index, following = code.name(), code.name()
        moving = [code.name() for _ in pointers]
        moved = [code.name() for _ in pointers]
        before = code.block
        code.lines.append(f"br label %{head}")
        code.begin(head)
        at = len(code.lines)
        more = code.op(f"icmp slt i64 {index}, {count}")
        code.lines.append(f"br i1 {more}, label %{body}, label %{end}")
        code.begin(body)
        self._batched(batch[1:], element, moving, call)
        for pointer, stride, result in zip(moving, steps, moved, strict=True):
            code.lines.append(f"{result} = getelementptr {element}, ptr {pointer}, i64 {stride}")
        code.lines.append(f"{following} = add i64 {index}, 1")
        code.lines.append(f"br label %{head}")
        latch = code.block
        phis = [f"{index} = phi i64 [ 0, %{before} ], [ {following}, %{latch} ]"]
        phis += [
            f"{p} = phi ptr [ {first}, %{before} ], [ {last}, %{latch} ]"
            for p, first, last in zip(moving, pointers, moved, strict=True)
        ]
        code.lines[at:at] = phis
        code.begin(end)


_known: OrderedDict[str, Callable[[int, int], int]] = OrderedDict()
_compilations = 0
_lock = lock_held_over_forks()  # one thread compiles; others find what it made


def _imports(writer: _ProgramWriter) -> dict[str, int]:
    """Addresses of the C functions that the text calls; those that LLVM may call for an operation included."""
    found = {operations.libm_symbol(name, dtype): libm.address(name, dtype, arity) for name, dtype, arity in writer.libm}
    for name, arity in (("fmod", 2), ("fma", 3)):
        found[name] = libm.address(name, dtypes.float64, arity)
        found[name + "f"] = libm.address(name, dtypes.float32, arity)
    if writer.uses_blas:
        found |= blas.symbols(blas.blas())
        if any(blas.routine(letter, name) in writer.declarations for letter in "sd" for name in ("gemm", "gemv", "dot")):
            found |= products.symbols()
    found |= lapack.symbols(writer.lapack)
    found |= convolutions.symbols(writer.declarations)
    if writer.interruptible:
        found[interrupted.INTERRUPTED], _ = _interrupted()
    if writer.uses_pool:
        found |= thread_pool.symbols()
    found[frame_check.CHECK], _ = _check()
    return found


@cache
def _check() -> tuple[int, Any]:
    """The address of the check that all programs call, and what owns its code."""
    return link(frame_check.check_text(), frame_check.CHECK)


@cache
def _interrupted() -> tuple[int, Any]:
    """The same of the question that loops ask."""
    return link(interrupted.interrupted_text(), interrupted.INTERRUPTED)


def compilations() -> int:
    """How many programs LLVM compiled in this process."""
    return _compilations


def _machine_code(key: str, text: str, imports: Mapping[str, int]) -> tuple[Callable[[int, int], int], bool]:
    """The program of a text, and whether it had to be compiled: not if an earlier process left its object code."""
    global _compilations
    run, compiled = object_cache.load_or_make(
        key, lambda object_code: programs.load(object_code, imports), lambda: programs.compile_text(text)
    )
    _compilations += compiled
    return run, compiled


def _found_or_compiled(key: str, text: str, writer: _ProgramWriter) -> tuple[Callable[[int, int], int], bool]:
    """The program, and whether it had to be compiled."""
    with _lock:
        run, compiled = _known.get(key), False
        if run is None:
            run, compiled = _machine_code(key, text, _imports(writer))
            _known[key] = run
            if len(_known) > REMEMBERED:
                _known.popitem(last=False)
        else:
            _known.move_to_end(key)
    return run, compiled


def compile_program(spec: ProgramSpec, target: Target | None = None, variant: SizeVariant | None = None) -> CompiledProgram:
    """Compile, or find by content an identical program of this process or an earlier one.  variant: which numbers are data (family.py).

    Raises ValueError for steps that refer to slots that do not exist, RuntimeError where the memory layout of arrays is unknown."""
    started = time.perf_counter()
    target = target or host_target()
    data = frozenset[int]()
    writer = _ProgramWriter(spec, target, data)
    text = writer.text()
    if variant is not None and not has_symbols(writer.table) and (data := variant.data(text, writer.numbers, writer.offsets)):
        writer = _ProgramWriter(spec, target, data)
        text = writer.text()
    key = hashlib.sha256(f"{machine_code.identity()}\n{text}".encode()).hexdigest()
    seconds = 0.0
    run, compiled = uninterrupted_result(lambda: _found_or_compiled(key, text, writer))
    if compiled:
        seconds = time.perf_counter() - started
    words = (*[0] * spec.slots, *writer.table)
    kept = words if has_symbols(words) else ()
    return CompiledProgram(run, _template(words), key, text, seconds, len(data) + writer.symbols, kept)


def _template(words: Sequence[int | float]) -> np.ndarray[Any, Any]:
    """The words as 64 bits each: integers, and floats as they are."""
    numbers = list(map(without_symbols, words))
    return np.array([np.float64(n).view(np.int64) if isinstance(n, float) else int(n) for n in numbers], dtype=np.int64)
