"""Lowered programs as Python: one function of arrays and numbers that does a program's steps with NumPy, calling its nests as functions.

`text_of(name, lowered, kernel, compiled)` writes that function.  The backends reference and numba execute it with nests that they have
loaded (runtime/rendered.py); `Module` prints it with all that it needs, so that the text runs where there are NumPy and Numba and nothing
else.  Operations of the host that are code of the library's own raise NotImplementedError there.

The function takes the tensor inputs (a0, a1 ...; residuals of a forward program, as one array of bytes, are the last), then the numbers
(s0, s1 ...).  It returns the tuple of outputs, the residuals last if there are any, or the number of the exit that was taken.  It expects
arrays of the shapes, dtypes and strides in the comment at its head: whoever calls it has asked for them."""

from __future__ import annotations

import builtins
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.shapes import contiguous
from tracejit.ir.graph import Node
from tracejit.loops import numba
from tracejit.loops.bounds import reaching_back
from tracejit.loops.language import Buffer, Exit, Nest, flatten
from tracejit.loops.python import type_name
from tracejit.lowering.exits import STEP
from tracejit.lowering.lowered import Lowered
from tracejit.lowering.steps import (
    Address,
    ConvolutionCall,
    CopyCall,
    GemmCall,
    Integer,
    LapackCall,
    LoopCall,
    NestCall,
    NestRun,
    NumberSlot,
    ProgramStep,
    addresses,
)

__all__ = ["LoweredProgram", "Module", "Printed", "constant_name", "text_of"]


Kernel = Callable[[Nest, frozenset[Buffer]], str]


def constant_name(program: str, slot: int) -> str:
    """What the bytes of a constant are called that a program finds in a slot."""
    return f"{program}_constant{slot}"


def text_of(name: str, lowered: Lowered, kernel: Kernel, compiled: bool) -> str:
    """The function.  kernel: gives a nest a name, and each choice of shifted buffers
    another.  compiled: whether nests are those of `loops/numba.py` (else of `loops/python.py`)."""
    return _Writer(name, lowered, kernel, compiled).text()


class _Writer:
    """The lines of one function."""

    def __init__(self, name: str, lowered: Lowered, kernel: Kernel, compiled: bool) -> None:
        self.name = name
        self.lowered = lowered
        self.kernel = kernel
        self.compiled = compiled
        self.lines: list[str] = []
        self.memories: dict[int, str] = {}  # slot -> what holds the bytes behind it
        self.starts: dict[int, int] = {}  # slot -> where its address is among them
        self.arrays = [f"a{i}" for i in range(lowered.arrays)]
        self.fresh = [f"o{k}" for k in range(len(lowered.fresh))]
        self.numbers = {slot: f"s{k}" for k, (slot, _) in enumerate(lowered.scalars)}
        self.moving: dict[int, str] = {}  # slot -> how far it is from `starts` in this step of a loop: text that adds to it
        self.depth = 0  # loops around the line that is written
        self.exit_step = ""  # the step of the innermost of them whose exits have a number of their own in each step

    def line(self, text: str, indent: int = 0) -> None:
        self.lines.append("    " * (1 + self.depth + indent) + text)

    def text(self) -> str:
        lowered, specs = self.lowered, self.lowered.spec.arrays
        for a, spec in zip(self.arrays, specs, strict=False):
            self.line(f"expect({a}, {type_name(spec.dtype)}, {spec.shape}, {spec.strides})")
        for o, aval in zip(self.fresh, lowered.fresh, strict=True):
            self.line(f"{o} = np.empty({aval.shape}, {type_name(aval.dtype)})")
        made = [*self.arrays, *self.fresh]
        if lowered.slab_size is not None:
            self.line(f"slab = np.empty({lowered.slab_size}, uint8)")
            made.append("slab")
        self.memories[lowered.arena_slot] = "arena"
        self.memories.update({slot: constant_name(self.name, slot) for slot, _ in lowered.constants})
        used = {address.slot for step in lowered.spec.steps for address in addresses(step)}
        if lowered.arena_slot in used:
            self.line(f"arena = np.empty({lowered.arena_bytes}, uint8)")
        for k, array in enumerate(made):
            if 1 + k in used:
                spec = specs[k]
                self.line(f"m{k} = memory({array})")
                self.memories[1 + k] = f"m{k}"
                self.starts[1 + k] = (
                    -sum(min(s, 0) * (n - 1) for n, s in zip(spec.shape, spec.strides, strict=True)) if all(spec.shape) else 0
                )
        for step in lowered.spec.steps:
            self.step(step)
        sources = {"fresh": [*[""] * lowered.arrays, *self.fresh], "input": self.arrays, "scalar": list(self.numbers.values())}
        results = [repr(o.value) if o.source == "literal" else sources[o.source][o.number] for o in lowered.outputs]
        results += [] if lowered.slab_size is None else ["slab"]
        self.line(f"return ({''.join(f'{r}, ' for r in results)})")
        return "\n".join([f"def {self.name}({', '.join([*self.arrays, *self.numbers.values()])}):", *self.lines, ""])

    # --- steps

    def step(self, step: ProgramStep) -> None:
        if isinstance(step, GemmCall):
            self.product(step)
        elif isinstance(step, LapackCall):
            self.lapack(step)
        elif isinstance(step, ConvolutionCall):
            self.convolution(step)
        elif isinstance(step, CopyCall):
            self.copy(step)
        elif isinstance(step, LoopCall):
            self.loop(step)
        else:
            for call in step.calls if isinstance(step, NestRun) else (step,):
                self.nest(call)

    def loop(self, step: LoopCall) -> None:
        index = f"i{self.depth}"
        for slot, address, advance in step.pointers:
            self.memories[slot] = self.memories[address.slot]
            self.starts[slot] = self.start(address)
            self.moving[slot] = self.moving.get(address.slot, "") + (f" + {index} * {advance}" if advance else "")
        if isinstance(step.count, Address):
            self.line(f"{index} = -1")
            self.line(f"while {self.memories[step.count.slot]}[{self.offset(step.count)}]:")
            self.line(f"{index} += 1", 1)
        else:
            self.line(f"for {index} in range({step.count}):")
        self.depth += 1
        around, self.exit_step = self.exit_step, index if step.leaves_by_step else self.exit_step
        for inner in step.steps:
            self.step(inner)
        self.exit_step = around
        self.depth -= 1

    def nest(self, call: NestCall) -> None:
        nest, cut = call.nest, call.division
        shifted = frozenset[Buffer]()
        if self.compiled:
            given = [list(map(_whole, call.sizes))]
            if cut is not None and cut.first is not None:
                given.append([(cut.count - 1) * cut.length if i == cut.first else n for i, n in enumerate(given[0])])
            shifted = frozenset().union(*(reaching_back(nest, dict(zip(nest.sizes, sizes, strict=True))) for sizes in given))
        arguments: list[str] = []
        for i, (buffer, address) in enumerate(zip((*nest.buffers, *nest.temporaries), call.buffers, strict=True)):
            start, size = self.start(address), buffer.dtype.itemsize
            dtype = "uint16" if self.compiled and buffer.dtype.is_reduced else type_name(buffer.dtype)
            further = self.moving.get(address.slot, "")
            further += f" + k * {cut.advances[i]}" if cut is not None and cut.advances[i] else ""
            memory = self.memories[address.slot]
            if buffer in shifted:
                arguments += [
                    f"elements({memory}, {start % size}, {dtype})",
                    f"({start}{further}) // {size}" if further else f"{start // size}",
                ]
            else:
                arguments.append(f"elements({memory}, {start}{further}, {dtype})")
        sizes = [str(_whole(n)) for n in call.sizes]
        if cut is not None:
            sizes[cut.many] = f"min({cut.length}, {cut.extent} - k * {cut.length})"
            if cut.first is not None:
                sizes[cut.first] = f"k * {cut.length}"
            self.line(f"for k in range({cut.count}):")
        numbers = [self.number(value, scalar.dtype) for value, scalar in zip(call.scalars, nest.scalars, strict=True)]
        text = f"{self.kernel(nest, shifted)}({', '.join([*arguments, *sizes, *numbers])})"
        indent = int(cut is not None)
        if any(isinstance(s, Exit) for s in flatten(nest.body)):
            self.line(f"code = {text}", indent)
            self.line("if code:", indent)
            self.leave("code", indent + 1)
        else:
            self.line(text, indent)

    def leave(self, code: str, indent: int) -> None:
        self.line(f"return {code} + ({self.exit_step} + 1 << {STEP})" if self.exit_step else f"return {code}", indent)

    def lapack(self, step: LapackCall) -> None:
        size, extents = step.dtype.itemsize, [_whole(entry[0]) for entry in step.batch]

        def array(where: Address, k: int, shape: Iterable[Integer], strides: Iterable[Integer]) -> str:
            """That of operand or result k."""
            shape = (*extents, *map(_whole, shape))
            strides = tuple([_whole(n) * size for n in (*[entry[1 + k] for entry in step.batch], *strides)])
            return f"np.ndarray({shape}, {type_name(step.dtype)}, {self.memories[where.slot]}, {self.offset(where)}, {strides})"

        operands = [array(x.address, k, x[1:3], x[3:]) for k, x in enumerate(step.operands)]
        value = _LAPACK[step.routine, step.flags].format(*operands, n=step.operands[0].rows)
        self.line("try:")
        self.line(f"results = {value}", 1)
        self.line("except np.linalg.LinAlgError:")
        self.leave(str(step.code), 1)
        for k, x in enumerate(step.results):
            one = "results" if len(step.results) == 1 else f"results[{k}]"
            target = array(x.address, len(operands) + k, x.shape, contiguous(tuple(map(_whole, x.shape))))
            self.line(f"{target}[...] = {one}")

    def product(self, step: GemmCall) -> None:
        dtype, size = type_name(step.dtype), step.dtype.itemsize
        m, n, k = map(_whole, (step.m, step.n, step.k))
        extents = tuple(_whole(entry[0]) for entry in step.batch)

        def matrix(where: Address, operand: int, shape: tuple[int, ...], leading: Integer, turned: bool) -> str:
            strides = [_whole(entry[operand]) * size for entry in step.batch]
            inner = (size, _whole(leading) * size) if turned else (_whole(leading) * size, size)
            return f"np.ndarray({shape}, {dtype}, {self.memories[where.slot]}, {self.offset(where)}, {(*strides, *inner)})"

        a = matrix(step.a, 1, (*extents, m, k), step.lda, step.transpose_a)
        b = matrix(step.b, 2, (*extents, k, n), step.ldb, step.transpose_b)
        summed = tuple(axis for axis, entry in enumerate(step.batch) if _whole(entry[3]) == 0)  # all of them in one matrix
        kept = [1 if axis in summed else extent for axis, extent in enumerate(extents)]
        self.line(f"c = {matrix(step.c, 3, (*kept, m, n), step.ldc, False)}")
        value = f"np.matmul({a}, {b})"
        value += f" * {dtype}({step.alpha})" if step.alpha != 1.0 else ""
        value = f"({value}).sum({summed}, keepdims=True)" if summed else value
        self.line(f"c[...] = {value}{f' + {dtype}({step.beta}) * c' if step.beta else ''}")

    def convolution(self, step: ConvolutionCall) -> None:
        size, dtype = step.dtype.itemsize, type_name(step.dtype)
        places = [f"{self.memories[x.slot]}[{self.offset(x)} :]" for x in (step.a, step.b, step.c)]
        views = ", ".join(f"{x}[: len({x}) // {size} * {size}].view({dtype})" for x in places)
        self.line(f"convolve({step.kernel!r}, {views}, {tuple(map(_whole, step.words))})")

    def copy(self, step: CopyCall) -> None:
        target, source = (
            f"{self.memories[a.slot]}[{self.offset(a)} : {self.offset(a)} + {_whole(step.nbytes)}]"
            for a in (step.destination, step.source)
        )
        self.line(f"{target} = {source}")

    # --- operands

    def start(self, address: Address) -> int:
        """The byte of its memory that an address is, in the first step of a loop."""
        return self.starts.get(address.slot, 0) + _whole(address.offset)

    def offset(self, address: Address) -> str:
        """The same as text, in a loop too."""
        return f"{self.start(address)}{self.moving.get(address.slot, '')}"

    def number(self, value: bool | int | float | NumberSlot, dtype: DType) -> str:
        if dtype.is_reduced and self.compiled:
            dtype = dtypes.float32
        if isinstance(value, NumberSlot):
            kind = dtypes.float64 if value.dtype is dtypes.float64 else dtypes.int64
            text = f"{kind.name}({self.numbers[value.index]})"
            return text if dtype is kind else f"{text}.astype({type_name(dtype)})"
        return f"{type_name(dtype)}({np.asarray(value).astype(dtype.numpy).item()!r})"


_LAPACK: Final[dict[tuple[str, tuple[bool, ...]], str]] = {
    ("gesv", ()): "np.linalg.solve({0}, {1})",
    ("trtrs", (False, False)): "np.linalg.solve(np.triu({0}[..., ::-1, ::-1]), {1}[..., ::-1, :])[..., ::-1, :]",
    ("trtrs", (False, True)): "np.linalg.solve(np.triu({0}), {1})",
    ("trtrs", (True, False)): (
        "np.linalg.solve(np.triu({0}[..., ::-1, ::-1], 1) + np.eye({n}), {1}[..., ::-1, :])[..., ::-1, :]"
    ),
    ("trtrs", (True, True)): "np.linalg.solve(np.triu({0}, 1) + np.eye({n}), {1})",
    ("potrf", ()): "np.linalg.cholesky({0})",
    ("inverse", ()): "np.linalg.inv({0})",
    ("determinant", ()): "np.linalg.det({0})",
    ("logarithm", ()): "np.linalg.slogdet({0})",
    ("geqrf", ()): "np.linalg.qr({0})",
    ("syevd", ()): "np.linalg.eigh({0})",
    ("gesdd", ()): "np.linalg.svd(np.where(np.isfinite({0}).all(), {0}, np.nan), full_matrices=False)",
}
"""What NumPy computes instead of a routine of LAPACK, by its name and flags."""


def _whole(n: Integer) -> int:
    """A number of a lowered program, which has none in its frame."""
    assert isinstance(n, int), n
    return n


def _all_steps(steps: Iterable[ProgramStep]) -> Iterator[ProgramStep]:
    """Those within loops, too."""
    for step in steps:
        yield step
        if isinstance(step, LoopCall):
            yield from _all_steps(step.steps)


class Module:
    """The text of a Python module under construction.  What is added stands behind what was there."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {"": numba.HEADER}
        self._kernels: dict[str, str] = {}

    def text(self) -> str:
        """All of it."""
        return "\n\n".join(self._parts.values())

    def put(self, name: str, text: str) -> None:
        """Something that a name stands for from now on."""
        self._parts.setdefault(name, text)

    def constant(self, name: str, array: Any) -> None:
        """The bytes of an array."""
        self.put(name, f'{name} = np.frombuffer(bytearray.fromhex("{np.ascontiguousarray(array).tobytes().hex()}"), uint8)\n')

    def dtype(self, dtype: DType) -> str:
        """The name of a dtype, as one of NumPy's arrays."""
        if dtype is dtypes.bfloat16:
            self.put(dtype.name, "from ml_dtypes import bfloat16\n")
        return type_name(dtype)

    def program(self, name: str, lowered: Lowered) -> None:
        """A program, as a function."""
        convolves = any(isinstance(step, ConvolutionCall) for step in _all_steps(lowered.spec.steps))
        self._define(("expect", "memory", "elements", *(["convolve"] if convolves else [])))
        for dtype in (*[spec.dtype for spec in lowered.spec.arrays], *[aval.dtype for aval in lowered.fresh]):
            self.dtype(dtype)
        for slot, array in lowered.constants:
            self.constant(constant_name(name, slot), array)
        self.put(name, text_of(name, lowered, self._kernel, True))

    def host(self, node: Node) -> str:
        """The name of a function that evaluates a node: its operation's own, if that refers to NumPy alone, else one that raises."""
        function, name = node.op.evaluate, f"host_{node.op.name}"
        plain = inspect.isfunction(function) and not function.__closure__
        plain = plain and all(isinstance(value, bool | int | float | str | tuple | None) for value in node.attrs.values())
        if plain and all(
            i.argval in dir(builtins) or function.__globals__[i.argval] is np
            for i in dis.get_instructions(function)
            if i.opname == "LOAD_GLOBAL"
        ):
            source, head = textwrap.dedent(inspect.getsource(function)), f"def {function.__name__}("
            self.put(name, source[source.index(head) :].replace(head, f"def {name}(", 1))
        else:
            name = f"no_{name}"
            text = f"{node.op.name} is computed by code of the library's own, not by NumPy alone: this module cannot run it"
            self.put(name, f"def {name}(*operands, **attributes):\n    raise NotImplementedError({text!r})\n")
        return name

    def _define(self, names: Iterable[str]) -> None:
        for name, text in numba.definitions(names).items():
            self.put(name, text)

    def _kernel(self, nest: Nest, shifted: frozenset[Buffer]) -> str:
        """The name of a nest, whose source stands in the module from now on."""
        rendered = numba.render(nest, shifted)
        found = self._kernels.get(rendered.text)
        if found is None:
            found, number = rendered.name, 1
            while found in self._parts:
                number += 1
                found = f"{rendered.name}_{number}"
            self._kernels[rendered.text] = found
            self._define(rendered.needs)
            self.put(found, rendered.text.replace(f"def {rendered.name}(", f"def {found}(", 1))
        return found


class Printed:
    """What can be printed as a function of a module."""

    __slots__ = ()

    def print(self, module: Module, name: str) -> None:
        """Add it under a name."""
        raise NotImplementedError

    def source(self) -> str:
        """A module of which it is the function `run`."""
        module = Module()
        self.print(module, "run")
        return module.text()


class LoweredProgram(Printed):
    """A program that steps were made of."""

    __slots__ = ("_lowered",)
    _lowered: Lowered

    @property
    def lowered(self) -> Lowered:
        return self._lowered

    def print(self, module: Module, name: str) -> None:
        module.program(name, self.lowered)

    def describe(self) -> str:
        """What makes the peak of its memory, the program against the least memory traffic it needs, then one line per step: what it
        computes, bytes read and written."""
        nests = sum(isinstance(s, NestCall | NestRun) for s in self.lowered.spec.steps)
        products = sum(isinstance(s, GemmCall) for s in self.lowered.spec.steps)
        head = f"{nests} nests, {products} products, arena of {self.lowered.arena_bytes} bytes"
        t = self.lowered.traffic
        moved = (
            f"reads {t.read} bytes, writes {t.written}: {t.ratio:.2f} times the least ({t.least} bytes, inputs and outputs once)"
        )
        return "\n".join((head, *self.lowered.peak.lines(), moved, *self.lowered.text))
