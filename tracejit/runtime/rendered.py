"""The backends "reference" and "numba": a program's steps in Python (runtime/source.py), its nests as plain Python or compiled by Numba.

"reference" is slow, and is what machine code is compared with: it works on NumPy scalars, and looks at each access whether it is inside
its memory.  "numba" runs what `source()` prints, and needs nothing of the platform but what Numba does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.floating import quietly
from tracejit.loops import numba, numba_library, python
from tracejit.loops.language import Buffer, Nest
from tracejit.lowering.lowered import Lowered
from tracejit.runtime.metadata import fits
from tracejit.runtime.source import LoweredProgram, constant_name, text_of

__all__ = ["Memory", "RenderedProgram"]


class Memory:
    """Elements of one dtype from a byte of some memory on.  Indices may be negative, as with arrays of negative strides, and are
    checked."""

    __slots__ = ("elements", "start")

    def __init__(self, memory: np.ndarray[Any, Any], start: int, dtype: Any) -> None:
        size = np.dtype(dtype).itemsize
        self.elements = numba_library.elements(memory, start % size, dtype)
        self.start = start // size

    def checked_index(self, i: int) -> int:
        at = self.start + int(i)
        if not 0 <= at < len(self.elements):
            raise IndexError(
                f"a nest reaches element {i} of a buffer that has {-self.start}..{len(self.elements) - self.start - 1}"
            )
        return at

    def __getitem__(self, i: int) -> Any:
        return self.elements[self.checked_index(i)]

    def __setitem__(self, i: int, value: Any) -> None:
        self.elements[self.checked_index(i)] = value


class RenderedProgram(LoweredProgram):
    """See runtime/program.py."""

    machine_calls = 1
    seconds = 0.0

    def __init__(self, lowered: Lowered, backend: str, why: str = "") -> None:
        """why: what speaks against machine code of the library's own."""
        self._lowered = lowered
        self._chosen = f"backend {backend}" + f", since {why}" * bool(why)
        self._compiled = backend == "numba"
        self._kernels: dict[tuple[int, frozenset[Buffer]], str] = {}
        self._scope: dict[str, Any] = {
            "np": np,
            "expect": lambda *_: None,  # `run` asks for more
            "memory": numba_library.memory,
            "convolve": numba_library.convolve,
            "elements": numba_library.elements if self._compiled else Memory,
            "uint16": np.uint16,
            "nan": np.nan,
            "inf": np.inf,
        }
        for slot, array in lowered.constants:
            self._scope[constant_name("run", slot)] = np.array(array, order="C").reshape(-1).view(np.uint8)
        text = text_of("run", lowered, self._kernel, self._compiled)
        for dtype in dtypes.ALL:  # one of them may be in a package that is not installed
            if python.type_name(dtype) in text:
                self._scope.setdefault(python.type_name(dtype), dtype.numpy.type)
        exec(compile(text, f"<tracejit program, {backend}>", "exec"), self._scope)
        self._function: Callable[..., tuple[Any, ...] | int] = self._scope["run"]
        spec = lowered.spec
        self._specs = spec.arrays[: lowered.arrays]
        self._disjoint = [i for i in spec.disjoint if i < lowered.arrays]  # nothing else is where what is made afresh is
        self._types = [python_type for _, python_type in lowered.scalars]

    def _kernel(self, nest: Nest, shifted: frozenset[Buffer]) -> str:
        name = self._kernels.get((id(nest), shifted))
        if name is None:
            name = self._kernels[id(nest), shifted] = f"nest{len(self._kernels)}"
            self._scope[name] = numba.load(numba.render(nest, shifted)) if self._compiled else python.load(nest)
        return name

    def describe(self) -> str:
        """As other programs, and what runs it."""
        return f"{self._chosen}: {super().describe()}"

    def run(self, arrays: Any, scalars: Any) -> tuple[Any, ...] | int:
        """The outputs, 0 for arrays or numbers that are not what the program was made for, or the number of the exit taken."""
        if not fits(arrays, self._specs, self._disjoint):
            return 0
        if any(kind is not float and not -(1 << 63) <= n < 1 << 63 for kind, n in zip(self._types, scalars, strict=True)):
            return 0
        found: tuple[Any, ...] | int = quietly(self._function, *arrays, *scalars)
        return found
