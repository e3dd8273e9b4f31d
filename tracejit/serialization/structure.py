"""Nested containers of tensors as arrays with names and a JSON text that says how they belong together.

JSON's own null, bools, numbers, strings and lists stand for themselves; an object has one member, whose name says what it stands
for; other objects than tensors and containers by what makes them (objects.py). Tensors with the same memory, shape and strides are one
array, and share memory again when they are read.
"""

from __future__ import annotations

import base64
import copyreg
import json
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.nn import Parameter
from tracejit.serialization import objects
from tracejit.serialization.files import FileFormatError
from tracejit.tensor import Size, Tensor, tensor

__all__ = ["from_structure", "to_structure"]

_DEEPEST = 200
_NEW = {
    "name": "copyreg:__newobj__"
}  # what makes an object of a class that has no say in it: the class is an argument, by its name
_MAPPINGS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
_SEQUENCES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}


# ---- to text --------------------------------------------------------------------------------------------------------
class _Writer:
    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[Any, str] = {}
        self._path: list[str] = []
        self._objects: dict[int, tuple[int, Any]] = {}  # by id; kept, so that no other object gets it

    def refuse(self, value: Any, why: str = "") -> TypeError:
        kind = type(value)
        where = "".join(f"[{key}]" for key in self._path) or "the top"
        advice = "save its state_dict()" if hasattr(value, "state_dict") else "save what it is made of"
        return TypeError(
            f"save(): cannot save a {kind.__module__}.{kind.__qualname__} (at {where}){why}: files hold tensors, arrays, containers, "
            f"numbers and strings; {advice}"
        )

    def name_of(self, array: np.ndarray) -> str:
        memory = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
        known = self._names.get(memory) if array.size else None
        if known is not None:
            return known
        wanted = name = ".".join(key.strip("'") for key in self._path) or "value"
        number = 1
        while name in self.arrays or name == "__metadata__":
            number += 1
            name = f"{wanted}#{number}"
        self.arrays[name] = array
        if array.size:
            self._names[memory] = name
        return name

    def member(self, key: Any, value: Any) -> Any:
        if len(self._path) >= _DEEPEST:
            raise self.refuse(value, f", {_DEEPEST} containers deep or within itself")
        self._path.append(repr(key))
        try:
            return self.write(value)
        finally:
            self._path.pop()

    def write(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            if value.dtype not in dtypes.FROM_NUMPY:
                raise self.refuse(value, f" of dtype {value.dtype}")
            return {"array": self.name_of(value)}
        if isinstance(value, np.generic):
            if value.dtype not in dtypes.FROM_NUMPY:
                raise self.refuse(value)
            return (
                {"scalar": [value.dtype.name, value.item()]}
                if value.dtype.kind not in dtypes.FLOATING_KINDS
                else {"scalar": [value.dtype.name, repr(value.item())]}
            )
        if isinstance(value, DType):
            return {"dtype": value.name}
        if type(value) is Size:
            return {"Size": list(value)}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if type(value) is defaultdict:
            return {"dict": self._pairs(value)}
        for name, kind in _MAPPINGS.items():
            if type(value) is kind:
                return {name: self._pairs(value)}
        if type(value) is list:
            return [self.member(i, item) for i, item in enumerate(value)]
        for name, kind in _SEQUENCES.items():
            if type(value) is kind:
                items = sorted(value, key=repr) if name != "tuple" else value
                return {name: [self.member(i, item) for i, item in enumerate(items)]}
        return self._object(value)

    def _object(self, value: Any) -> Any:
        """A function or class by its name, an object by what makes it; one that occurs again by its number."""
        if objects.is_named(value):
            name = objects.name_of(value)
            if name is None:
                raise self.refuse(value, f" {getattr(value, '__qualname__', '')!r}, which is not found by its name")
            return {"name": name}
        if id(value) in self._objects:
            return {"same": self._objects[id(value)][0]}
        parts = objects.reduced(value)
        if parts is None:
            raise self.refuse(value)
        make, arguments, state, items, pairs = parts
        started = [self.member("of", make), self.member("from", list(arguments))]
        number = len(self._objects)
        self._objects[id(value)] = number, value
        return {"object": [number, *started, self.member("", state), self.member("", items), self._pairs(dict(pairs))]}

    def _pairs(self, value: Mapping[Any, Any]) -> list[list[Any]]:
        return [[self.member(key, key), self.member(key, item)] for key, item in value.items()]

    def _tensor(self, value: Tensor) -> Any:
        if not value.is_leaf:
            value = value.detach()  # what it was computed from is not saved
        kind = "parameter" if type(value) is Parameter else "tensor"
        if type(value) not in (Parameter, Tensor):
            raise self.refuse(value)
        return {kind: [self.name_of(value.detach().numpy()), value.requires_grad]}


def to_structure(value: Any) -> tuple[dict[str, np.ndarray], str]:
    """(arrays, text).  Raises TypeError, which says where, for what files do not hold."""
    writer = _Writer()
    tree = writer.write(value)
    return writer.arrays, json.dumps(tree, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# ---- from text ------------------------------------------------------------------------------------------------------
def _wrong(what: str) -> FileFormatError:
    return FileFormatError(f"load(): the structure of the file has {what}")


class _Reader:
    def __init__(self, arrays: Mapping[str, np.ndarray], trusted: bool) -> None:
        self._arrays = arrays
        self._trusted = trusted
        self._tensors: dict[str, Tensor] = {}
        self._parameters: dict[str, Parameter] = {}  # those that modules share are one
        self._objects: dict[int, Any] = {}

    def _array(self, name: Any) -> np.ndarray:
        if not isinstance(name, str) or name not in self._arrays:
            raise _wrong(f"a tensor {name!r}, which the file has not")
        return self._arrays[name]

    def _tensor(self, content: Any) -> Tensor:
        if not isinstance(content, list) or len(content) != 2 or not isinstance(content[1], bool):
            raise _wrong(f"a tensor that is described by {content!r}")
        name, requires_grad = content
        array = self._array(name)
        if name not in self._tensors:
            self._tensors[name] = tensor(array)
        out = self._tensors[name].detach()
        if requires_grad and array.dtype.kind in "iub":
            raise _wrong(f"a tensor {name!r} of {array.dtype} that requires gradients")
        return out.requires_grad_() if requires_grad else out

    def _parameter(self, content: Any) -> Tensor:
        found = self._tensor(content)
        return self._parameters.setdefault(content[0], Parameter(found.detach(), found.requires_grad))

    def _named(self, name: Any) -> Any:
        if not self._trusted and not objects.is_safe(name):
            raise FileFormatError(
                f"load(): the file holds a {str(name).replace(':', '.')}, not tensors, containers, numbers and strings alone; "
                "load(..., weights_only=False) makes objects of the classes that a file names: only for files that you trust; or "
                "allow single classes by serialization.add_safe_globals()"
            )
        return objects.found(name)

    def _object(self, content: Any) -> Any:
        if not isinstance(content, list) or len(content) != 6 or not isinstance(content[0], int):
            raise _wrong(f"an object that is described by {content!r}")
        number, make, arguments, state, items, pairs = content
        made = copyreg.__newobj__ if make == _NEW else self.read(make)  # type: ignore[attr-defined]
        value = self._objects[number] = made(*self._items(arguments))
        if items:
            value.extend(self._items(items))
        for key, item in self._pairs(pairs):
            value[key] = item
        if state is not None:
            objects.set_state(value, self.read(state))
        return value

    def _same(self, number: Any) -> Any:
        if number not in self._objects:
            raise _wrong(f"an object {number!r} that it does not hold")
        return self._objects[number]

    def _pairs(self, content: Any) -> list[tuple[Any, Any]]:
        if not isinstance(content, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise _wrong("a mapping that is no list of pairs")
        return [(self.read(key), self.read(item)) for key, item in content]

    def _listed(self, content: Any) -> list[Any]:
        if not isinstance(content, list):
            raise _wrong(f"a container that holds {type(content).__name__}")
        return content

    def _items(self, content: Any) -> list[Any]:
        return [self.read(item) for item in self._listed(content)]

    def read(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.read(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        if len(tree) != 1:
            raise _wrong(f"an object with the members {sorted(tree)}")
        ((kind, content),) = tree.items()
        simple: Callable[[Any], Any] | None = {
            "tensor": self._tensor, "parameter": self._parameter, "array": lambda name: self._array(name).copy(), "float": float,
            "scalar": _scalar, "dtype": _dtype, "Size": lambda sizes: Size(int(s) for s in sizes),
            "bytes": lambda text: base64.b64decode(text, validate=True), "name": self._named, "object": self._object, "same": self._same,
        }.get(kind)  # fmt: skip
        if simple is not None:
            return simple(content)
        if kind in _MAPPINGS:
            return _MAPPINGS[kind](dict(self._pairs(content)))
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](self._items(content))
        raise _wrong(f"a {kind!r}, which this version does not know")


def _dtype(name: Any) -> DType:
    found = next((d for d in dtypes.ALL if d.name == name), None)
    if found is None:
        raise _wrong(f"the dtype {name!r}, which this library has not")
    return found


def _scalar(content: Any) -> Any:
    name, value = content
    return _dtype({"bool": "bool"}.get(name, name)).numpy.type(float(value) if isinstance(value, str) else value)


def from_structure(arrays: Mapping[str, np.ndarray], text: str, trusted: bool = False) -> Any:
    """What to_structure() was given.  Raises FileFormatError for a text that it did not write, and, unless it is trusted, for objects of
    other classes than those of tensors and containers."""
    try:
        return _Reader(arrays, trusted).read(json.loads(text))
    except FileFormatError:
        raise
    except (TypeError, ValueError, KeyError, RecursionError, AttributeError, OverflowError) as error:
        raise _wrong(f"something that it cannot have ({error})") from error
