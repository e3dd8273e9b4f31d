"""Files that torch.save() has written: zip archives, and the older files of one pickle after the other.

What they hold is read if it is made of tensors, parameters, containers, numbers and strings; anything else is refused by name.
Nothing that a file names is imported or called (unpickling.py), and every tensor is checked to lie within its storage.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.nn import Parameter
from tracejit.serialization.files import FileFormatError
from tracejit.serialization.unpickling import Unpickler, checked_members
from tracejit.tensor import Size, Tensor, tensor

__all__ = ["LEGACY_START", "is_torch_archive", "load_archive", "load_legacy"]

LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of a number that marks these files
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16", "LongStorage": "int64",
    "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool_",
}  # fmt: skip
_DTYPES = {
    "float32": "float32", "float": "float32", "float64": "float64", "double": "float64", "float16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "int64": "int64", "long": "int64", "int32": "int32", "int": "int32", "int16": "int16", "short": "int16",
    "int8": "int8", "uint8": "uint8", "bool": "bool_",
}  # fmt: skip
_MOST_REPEATED = 1 << 24  # elements of a tensor that has more of them than its storage (an expanded one)


class _Kind:
    """The element type of a storage."""

    def __init__(self, name: str) -> None:
        found = getattr(dtypes, _STORAGES[name], None)
        if found is None:
            raise FileFormatError(f"load(): the file has a torch.{name}, whose dtype this library has not")
        self.numpy: np.dtype = found.numpy


class _Store:
    """The elements of a storage, of which tensors are made.  `elements` is None where only the end of the pickle is looked
    for."""

    def __init__(self, elements: np.ndarray | None) -> None:
        self.elements = elements
        self._tensors: dict[Any, Tensor] = {}

    def tensor(self, offset: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
        if self.elements is None:
            return tensor(0.0)
        layout = (offset, tuple(size), tuple(stride))
        _check_layout(layout, len(self.elements))
        if layout not in self._tensors:
            step = self.elements.itemsize
            bytes_apart = [s * step for s in layout[2]]
            seen = np.lib.stride_tricks.as_strided(self.elements[offset:], layout[1], bytes_apart, writeable=False)
            self._tensors[layout] = tensor(np.array(seen, order="K"))
        out = self._tensors[layout].detach()
        return out.requires_grad_() if requires_grad is True and out.is_floating_point() else out


def _check_layout(layout: tuple[Any, tuple[Any, ...], tuple[Any, ...]], count: int) -> None:
    """Raises FileFormatError unless a tensor lies within a storage of `count` elements."""
    offset, size, stride = layout
    whole = all(type(n) is int and n >= 0 for n in (offset, *size, *stride)) and len(size) == len(stride) <= 64
    if whole and 0 in size:
        return
    last = offset + sum((s - 1) * d for s, d in zip(size, stride, strict=True)) if whole else count
    if not whole:
        raise FileFormatError("load(): a tensor's position in its storage is not described by whole numbers")
    if last >= count or (math.prod(size) > count and math.prod(size) > _MOST_REPEATED):
        raise FileFormatError(
            f"load(): a tensor of shape {list(size)} with strides {list(stride)} at {offset} does not lie within its {count} elements"
        )


def _rebuild_tensor(store: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, *others: Any) -> Tensor:
    if not isinstance(store, _Store) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise FileFormatError("load(): a tensor is made of something that is no storage")
    return store.tensor(offset, size, stride, requires_grad)


def _rebuild_parameter(data: Any, requires_grad: Any, *others: Any) -> Parameter:
    if not isinstance(data, Tensor):
        raise FileFormatError("load(): a parameter is made of something that is no tensor")
    return Parameter(data.detach(), requires_grad is True and data.is_floating_point())


class _NumPyDtype:
    """A NumPy dtype of a pickle, by its code."""

    def __init__(self, code: Any, *flags: Any) -> None:
        self.numpy = (
            np.dtype(code) if isinstance(code, str) and code in ("f4", "f8", "i8", "i4", "i2", "i1", "u1", "b1") else None
        )
        if self.numpy is None:
            raise FileFormatError(
                f"load(): the file has a NumPy scalar of dtype {code if isinstance(code, str) else '?'}, which this library has not"
            )

    def set_pickled_state(self, state: Any) -> None:
        """The byte order: the little one."""
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", "|"):
            raise FileFormatError("load(): the file has a NumPy scalar of another byte order")


def _numpy_scalar(kind: Any, content: Any) -> Any:
    if (
        not isinstance(kind, _NumPyDtype)
        or not isinstance(content, bytes)
        or kind.numpy is None
        or len(content) != kind.numpy.itemsize
    ):
        raise FileFormatError("load(): the file has a NumPy scalar that is not whole")
    return np.frombuffer(content, kind.numpy)[0]


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise FileFormatError("load(): the file has bytes of an unknown encoding")
    return text.encode("latin-1")


def _defaultdict(*arguments: Any) -> defaultdict[Any, Any]:
    return defaultdict(arguments[0] if arguments and arguments[0] in (dict, list, int, float) else None)


def _pairs(content: Any = ()) -> list[tuple[Any, Any]]:
    """What a mapping is made of."""
    pairs = list(content.items()) if isinstance(content, dict) else [tuple(pair) for pair in content]
    checked_members([key for key, _ in pairs])
    return pairs


_GLOBALS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): lambda *items: OrderedDict(_pairs(*items)),
    ("collections", "Counter"): lambda *items: Counter(dict(_pairs(*items))),
    ("collections", "defaultdict"): _defaultdict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch.nn.parameter", "Parameter"): _rebuild_parameter,
    ("torch", "Size"): lambda sizes: Size(int(s) for s in sizes),
    ("torch", "device"): lambda *what: "cpu",
    ("torch.serialization", "_get_layout"): lambda name: str(name),
    ("numpy", "dtype"): _NumPyDtype,
    ("numpy.core.multiarray", "scalar"): _numpy_scalar,
    ("numpy._core.multiarray", "scalar"): _numpy_scalar,
    ("_codecs", "encode"): _encode,
}
for _module in ("builtins", "__builtin__"):
    for _type in (list, dict, int, float):  # what a defaultdict makes
        _GLOBALS[_module, _type.__name__] = _type
    _GLOBALS[_module, "set"] = lambda *members: set(checked_members(*members))
    _GLOBALS[_module, "frozenset"] = lambda *members: frozenset(checked_members(*members))


def _find(module: str, name: str) -> Any:
    """What stands for a global.  Raises FileFormatError, which names it, for what is not known here."""
    known = _GLOBALS.get((module, name))
    if known is not None:
        return known
    if module in ("torch", "torch.storage") and name in _STORAGES:
        return _Kind(name)
    if module == "torch" and name in _DTYPES and hasattr(dtypes, _DTYPES[name]):
        return getattr(dtypes, _DTYPES[name])
    raise FileFormatError(
        f"load(): the file asks for {module}.{name}, which is no tensor, container, number or string, and is refused: it could be "
        "any code; save a state_dict() instead"
    )


def _storage_id(identifier: Any) -> tuple[_Kind, str, int]:
    """(element type, key, number of elements) of the persistent id of a storage."""
    if not isinstance(identifier, tuple) or len(identifier) < 5 or identifier[0] != "storage":
        raise FileFormatError("load(): the file refers to something that is no storage")
    kind, key, count = identifier[1], identifier[2], identifier[4]
    if not isinstance(kind, _Kind) or not isinstance(key, str) or type(count) is not int or count < 0:
        raise FileFormatError("load(): the file refers to a storage that is not described as one")
    if len(identifier) > 5 and identifier[5] is not None:
        raise FileFormatError(
            "load(): the file has a storage that is part of another, as only very old versions of PyTorch wrote them"
        )
    return kind, key, count


class _Storages:
    """The storages of a file, each made once.  raw(key) gives the bytes."""

    def __init__(self, raw: Callable[[str], bytes]) -> None:
        self._raw = raw
        self._made: dict[str, tuple[_Kind, _Store]] = {}

    def __call__(self, identifier: Any) -> _Store:
        kind, key, count = _storage_id(identifier)
        if key not in self._made:
            content = self._raw(key)
            if len(content) != count * kind.numpy.itemsize:
                raise FileFormatError(
                    f"load(): storage {key} of {count} {kind.numpy} takes {count * kind.numpy.itemsize} bytes, there are {len(content)}"
                )
            if kind.numpy == np.bool_ and content and max(content) > 1:
                raise FileFormatError(f"load(): storage {key} is of bools, and holds other bytes than 0 and 1")
            self._made[key] = kind, _Store(np.frombuffer(content, kind.numpy))
        made, store = self._made[key]
        if made.numpy != kind.numpy:
            raise FileFormatError(f"load(): storage {key} is used with two dtypes")
        return store


# ---- zip archives ---------------------------------------------------------------------------------------------------
def is_torch_archive(content: bytes) -> bool:
    """Whether a zip archive has what torch.save() writes."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return any(name == "data.pkl" or name.endswith("/data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise FileFormatError(f"load(): the archive is broken or cut off ({error})") from error


def load_archive(content: bytes) -> Any:
    """What torch.save() wrote.  Raises FileFormatError for a broken archive and for what is refused."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if len(entries) != len(archive.infolist()):
                raise FileFormatError("load(): the archive has two entries of one name")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
                raise FileFormatError("load(): the archive is compressed, which torch.save() never does")
            root = next(name for name in entries if name == "data.pkl" or name.endswith("/data.pkl")).removesuffix("data.pkl")
            if f"{root}constants.pkl" in entries:
                raise FileFormatError("load(): the archive is a TorchScript program, no state_dict")
            if f"{root}byteorder" in entries and archive.read(f"{root}byteorder") != b"little":
                raise FileFormatError("load(): the archive is of another byte order")

            def raw(key: str) -> bytes:
                name = f"{root}data/{key}"
                if name not in entries:
                    raise FileFormatError(f"load(): the archive has no storage {key!r}")
                return archive.read(name)

            return _result(Unpickler(archive.read(f"{root}data.pkl"), _find, _Storages(raw)).load())
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, ValueError) as error:
        raise FileFormatError(f"load(): the archive is broken or cut off ({error})") from error


# ---- one pickle after the other -------------------------------------------------------------------------------------
def load_legacy(content: bytes) -> Any:
    """What torch.save() wrote before version 1.6: what it was given, and then the storages, whose position is known only at the end
    of it."""

    def no_ids(identifier: Any) -> Any:
        raise FileFormatError("load(): the file refers to a storage before there is one")

    position = 0
    head = []
    for _ in range(3):  # the number that marks the files, the protocol, sizes of C types
        machine = Unpickler(content, _find, no_ids, position)
        head.append(machine.load())
        position = machine.position
    if head[1] != 1001 or not isinstance(head[2], dict) or head[2].get("little_endian") is not True:
        raise FileFormatError("load(): the file is of another protocol or byte order")
    start = position
    found: dict[str, tuple[_Kind, int]] = {}

    def note(identifier: Any) -> _Store:
        kind, key, count = _storage_id(identifier)
        found[key] = kind, count
        return _Store(None)

    machine = Unpickler(content, _find, note, start)
    machine.load()
    machine = Unpickler(content, _find, no_ids, machine.position)
    keys, position = machine.load(), machine.position
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or set(keys) != set(found):
        raise FileFormatError("load(): the file does not hold the storages that it refers to")
    raw: dict[str, bytes] = {}
    for key in keys:
        kind, count = found[key]
        size = count * kind.numpy.itemsize
        if content[position : position + 8] != count.to_bytes(8, "little") or position + 8 + size > len(content):
            raise FileFormatError(f"load(): the file is cut off in storage {key}")
        raw[key] = content[position + 8 : position + 8 + size]
        position += 8 + size
    return _result(Unpickler(content, _find, _Storages(raw.__getitem__), start).load())


def _result(value: Any) -> Any:
    """What was read, unless parts of how it is written have come through: a dtype is one, a function is not."""
    stack, seen = [value], set()
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            stack += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            stack += part
        elif not isinstance(part, Tensor | int | float | str | bytes | np.generic | dtypes.DType | None):
            raise FileFormatError(
                f"load(): the file holds a {type(part).__name__}, which is no tensor, container, number or string"
            )
    return value
