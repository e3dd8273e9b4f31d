"""Files that torch.load() reads: a zip archive of a pickle, which names PyTorch's functions, and a file for each storage.

The format is that of PyTorch 1.6 and later: `archive/data.pkl` (protocol 2), `archive/data/<key>`, `archive/byteorder`, `archive/version`.
Tensors that share memory share a storage.  What torch.load(weights_only=True) takes can be written, and nothing else.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np

from tracejit.core.dtypes import LEGACY, DType
from tracejit.nn import Parameter
from tracejit.tensor import Size, Tensor

__all__ = ["encode_archive"]

_STORAGES = {dtype: name.replace("Tensor", "Storage") for name, dtype in LEGACY.items()}


class _Global:
    """A name of PyTorch's that the pickle refers to."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class _Call:
    """A value that the reader makes by calling a name of PyTorch's."""

    def __init__(self, function: _Global, *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments


class _Storage:
    """Memory that is in a file of its own."""

    def __init__(self, key: str, dtype: DType, count: int) -> None:
        self.key = key
        self.dtype = dtype
        self.count = count


class _Writer:
    """Values with tensors as values that the pickle holds; the contents of storages, by key."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self._storages: dict[tuple[int, DType], _Storage] = {}
        self._keep: list[Any] = []  # so that no two tensors have one address

    def value(self, x: Any, path: str = "the object") -> Any:
        """Raises TypeError, with the path, for what torch.load() does not take."""
        if x is None or type(x) in (bool, int, float, str, bytes, complex):
            return x
        if isinstance(x, Tensor):
            return self._parameter(x) if isinstance(x, Parameter) else self._tensor(x)
        if isinstance(x, DType):
            return _Global("torch", x.name)
        if isinstance(x, Size):
            return _Call(_Global("torch", "Size"), tuple(x))
        if isinstance(x, np.generic):
            return x.item()
        if type(x) in (dict, OrderedDict, defaultdict):
            pairs = {key: self.value(member, f"{path}[{key!r}]") for key, member in x.items()}
            return OrderedDict(pairs) if type(x) is OrderedDict else pairs
        if type(x) in (list, tuple, set):
            return type(x)(self.value(member, f"{path}[{i}]") for i, member in enumerate(x))
        raise TypeError(
            f"save(): {path} is of type {type(x).__name__}, which torch.load() does not take without running code; "
            "save tensors, numbers, strings and containers of them, such as state_dict()"
        )

    def _parameter(self, x: Any) -> _Call:
        rebuild = _Global("torch._utils", "_rebuild_parameter")
        return _Call(rebuild, self._tensor(x.detach()), x.requires_grad, OrderedDict())

    def _tensor(self, x: Any) -> _Call:
        storage, offset, strides = self._location(x)
        rebuild = _Global("torch._utils", "_rebuild_tensor_v2")
        return _Call(rebuild, storage, offset, tuple(x.shape), strides, bool(x.requires_grad), OrderedDict())

    def _location(self, x: Any) -> tuple[_Storage, int, tuple[int, ...]]:
        """(storage, position of the first element in it, strides), in elements."""
        array = x.detach().numpy() if x.dtype.name != "bfloat16" else x.detach()._array
        root = (x._base if x._base is not None else x)._array
        if not root.flags.c_contiguous or any(step < 0 or step % array.itemsize for step in array.strides):
            array = root = np.ascontiguousarray(array)
        self._keep.append(root)
        address = root.__array_interface__["data"][0]
        key = (address, x.dtype)
        if key not in self._storages:
            self._storages[key] = _Storage(str(len(self._storages)), x.dtype, root.size)
            self.contents[self._storages[key].key] = np.ascontiguousarray(root).view(np.uint8).tobytes() if root.size else b""
        offset = (array.__array_interface__["data"][0] - address) // array.itemsize if array.size else 0
        return self._storages[key], offset, tuple(step // array.itemsize for step in array.strides)


_PythonPickler: Any = vars(pickle)["_Pickler"]  # the one whose steps can be overridden


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Writes names of PyTorch's as such, without importing it."""

    def persistent_id(self, x: Any) -> Any:
        if isinstance(x, _Storage):
            return ("storage", _Global("torch", _STORAGES[x.dtype]), x.key, "cpu", x.count)
        return None

    def save(self, x: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(x, _Global):
            return self.write(pickle.GLOBAL + f"{x.module}\n{x.name}\n".encode())
        if isinstance(x, _Call):
            self.save(x.function)
            self.save(x.arguments)
            return self.write(pickle.REDUCE)
        return super().save(x, save_persistent_id)


def encode_archive(obj: Any) -> bytes:
    """The contents of a file from which torch.load() makes `obj`.  Raises TypeError for what it does not take."""
    writer = _Writer()
    value = writer.value(obj)
    stream, out = io.BytesIO(), io.BytesIO()
    _Pickler(stream, 2).dump(value)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", stream.getvalue())
        archive.writestr("archive/byteorder", b"little")
        for key, content in writer.contents.items():
            archive.writestr(f"archive/data/{key}", content)
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()
