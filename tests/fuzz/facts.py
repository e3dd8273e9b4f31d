"""What can be seen of values: a skeleton of plain data, and the numbers in it apart.

The skeleton holds types, structure, shapes, dtypes, strides, flags, texts without their numbers, which objects are the same, and which
tensors share memory at which distance: all of that is exact.  Numbers are leaves, arrays in the order met: how exact they are
is for `compare.py` to say.  Works for tensors of tracejit and, without strides and memory, of torch.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import tracejit

__all__ = ["Facts", "facts"]

NODE = re.compile(r"\s*grad_fn=<[^<>]*>")  # names of nodes are no contract (docs/equality.md)
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|nan\b|inf\b)")
FRAMEWORK = re.compile(r"\b(tracejit|torch)\.")
DEPTH = 10
VIEWS = (type({}.keys()), type({}.values()), type({}.items()), deque)
PLAIN = (str, bytes, type(None), type, type(...), range, slice, complex, ModuleType)


@dataclass
class Facts:
    """What was seen: `skeleton`, and the numbers in it, with the path that leads to each."""

    skeleton: Any = None
    leaves: list[np.ndarray] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


class _Viewer:
    def __init__(self, for_torch: bool) -> None:
        self.for_torch = for_torch
        self.found = Facts()
        self.known: dict[int, int] = {}  # id -> number of an object that was met
        self.held: list[Any] = []  # ids stay those of these objects
        self.arrays: list[Any] = []

    def number(self, path: str, value: Any) -> str:
        self.found.leaves.append(np.asarray(value))
        self.found.paths.append(path)
        return "number"

    def text(self, path: str, text: str) -> str:
        for i, match in enumerate(NUMBER.findall(text)):
            self.number(f"{path}.number{i}", float(match))
        shown = NODE.sub(" grad_fn=<node>", ADDRESS.sub("0x", NUMBER.sub("#", text)))
        return " ".join(FRAMEWORK.sub("T.", shown).split()) if self.for_torch else shown

    def of(self, path: str, value: Any, depth: int = DEPTH) -> Any:
        """The skeleton of a value."""
        kind = type(value)
        if kind is bool or kind is int:
            return kind.__name__, self.number(path, value) if abs(value) < 2**63 else hex(value)  # of any length
        if kind is float or isinstance(value, np.generic):
            return kind.__name__, self.number(path, value)
        if kind is str:
            return "str", self.text(path, value)
        if kind is bytes and len(value) == 8:  # struct.pack("<d", ...)
            return "bytes", self.number(path, np.frombuffer(value))
        if value is None:
            return None
        if kind.__name__ == "dtype":
            return str(value).split(".")[-1]
        if isinstance(value, enum.Enum) or kind in PLAIN or not depth:
            return ADDRESS.sub("0x", repr(value)) if depth else kind.__name__
        if id(value) in self.known and not _is_constant(value):
            return "the same object as number", self.known[id(value)]
        self.known[id(value)] = len(self.held)
        self.held.append(value)
        return self.compound(path, value, kind, depth - 1)

    def compound(self, path: str, value: Any, kind: type, depth: int) -> Any:
        if self.for_torch and hasattr(value, "requires_grad") and hasattr(value, "is_leaf"):
            return self.any_tensor(path, value, depth)
        if isinstance(value, tracejit.Tensor):
            return self.tensor(path, value, depth)
        if isinstance(value, np.ndarray):
            return self.array(path, value)
        if isinstance(value, dict):
            items = tuple((self.of(f"{path}.key", k, depth), self.of(f"{path}[{k!r:.20}]", v, depth)) for k, v in value.items())
            return kind.__name__, items
        if isinstance(value, set | frozenset):
            return kind.__name__, tuple(sorted(map(repr, value)))
        if isinstance(value, list | tuple):
            items = tuple(self.of(f"{path}[{i}]", v, depth) for i, v in enumerate(value))
            return self.size_name(kind), items, self.attributes(path, value, depth)
        if hasattr(kind, "__next__"):
            return kind.__name__, self.elements(path, value, depth)
        if isinstance(value, VIEWS):
            return kind.__name__, tuple(self.of(f"{path}[{i}]", v, depth) for i, v in enumerate(value))
        if isinstance(value, partial):
            return kind.__name__, self.of(f"{path}.args", value.args, depth), self.of(f"{path}.keywords", value.keywords, depth)
        if isinstance(value, BaseException):
            return kind.__name__, self.of(f"{path}.args", value.args, depth)
        return kind.__name__, self.attributes(path, value, depth)

    def elements(self, path: str, iterator: Any, depth: int) -> Any:
        """The first elements of an iterator, or those before what it raises."""
        found: list[Any] = []
        try:
            for i, element in enumerate(itertools.islice(iterator, 4)):
                found.append(self.of(f"{path}.next{i}", element, depth))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
        return tuple(found)

    def size_name(self, kind: type) -> str:
        return "Size" if kind.__name__ == "Size" else kind.__name__

    def attributes(self, path: str, value: Any, depth: int) -> Any:
        if callable(value) and not hasattr(value, "training"):
            return getattr(value, "__qualname__", None)
        own = getattr(value, "__dict__", None) or {}
        seen = [(name, self.of(f"{path}.{name}", item, depth)) for name, item in own.items()]
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name) and name != "__dict__":
                seen.append((name, self.of(f"{path}.{name}", getattr(value, name), depth)))
        return tuple(seen)

    def tensor(self, path: str, value: Any, depth: int) -> Any:
        array = value._array
        requires_grad, leaf = value.requires_grad, value.is_leaf
        self.arrays.append(array)
        head = type(value).__name__, array.shape, value.dtype.name, ("strides", value.stride())
        marks = ("requires_grad", requires_grad), ("leaf", leaf), self.number(path, array.copy())
        own = tuple((name, self.of(f"{path}.{name}", item, depth)) for name, item in value.__dict__.items())
        return (*head, *marks, ("grad", self.of(f"{path}.grad", value._grad, depth)), own)

    def array(self, path: str, value: Any) -> Any:
        """An array of NumPy; without strides that no element sees."""
        if not self.for_torch:
            self.arrays.append(value)
        strides = tuple([s for n, s in zip(value.shape, value.strides, strict=True) if n > 1]) if value.size else ()
        return "array", value.shape, str(value.dtype), strides, value.flags.writeable, self.number(path, value.copy())

    def any_tensor(self, path: str, value: Any, depth: int) -> Any:
        """What a tensor of tracejit and one of torch have in common."""
        array = value.detach().numpy().copy()
        kind = "Parameter" if type(value).__name__ == "Parameter" else "Tensor"
        gradient = self.of(f"{path}.grad", value.grad if value.is_leaf else None, depth)
        return (
            kind,
            array.shape,
            array.dtype.name,
            ("requires_grad", value.requires_grad),
            self.number(path, array),
            ("grad", gradient),
        )

    def sharing(self) -> tuple[tuple[int, int, int], ...]:
        """(one, other, distance in bytes) of tensors that share memory, by the order in which they were met."""
        ranges = []
        for i, a in enumerate(self.arrays):
            if a.size:
                low = high = a.__array_interface__["data"][0]
                start = low
                for size, stride in zip(a.shape, a.strides, strict=True):
                    low, high = (low, high + (size - 1) * stride) if stride > 0 else (low + (size - 1) * stride, high)
                ranges.append((low, high + a.itemsize, i, start))
        ranges.sort()
        shared = []
        for n, (_, high, i, start) in enumerate(ranges):
            for other_low, _, j, other_start in ranges[n + 1 :]:
                if other_low >= high:
                    break
                shared.append((i, j, other_start - start) if i < j else (j, i, start - other_start))
        return tuple(sorted(shared))


def _is_constant(value: Any) -> bool:
    """Whether Python may make one object of all that are equal: a tuple of constants."""
    return type(value) is tuple and all(type(item) in (*PLAIN, bool, int, float) or _is_constant(item) for item in value)


def facts(for_torch: bool = False, **values: Any) -> Facts:
    """What is seen of values given by name.  for_torch: only what tracejit and torch have in common."""
    viewer = _Viewer(for_torch)
    parts = tuple((name, viewer.of(name, value)) for name, value in values.items())
    viewer.found.skeleton = (*parts, ("shared memory", viewer.sharing()))
    return viewer.found
