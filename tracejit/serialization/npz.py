"""NumPy's npz files: named arrays in a zip archive.  Arrays of objects, which only pickle could read, are refused."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.core.dtypes import FROM_NUMPY
from tracejit.serialization.files import FileFormatError, read, write
from tracejit.tensor import Tensor, tensor

__all__ = ["decode_npz", "load_npz", "save_npz"]


def save_npz(tensors: Mapping[str, Tensor], file: Any) -> None:
    """Write named tensors (a state_dict) to an npz file: a path or an object with write()."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, value in tensors.items():
            if not isinstance(name, str) or not isinstance(value, Tensor):
                raise TypeError(f"save_npz(): expected names and tensors, got {name!r}: {type(value).__name__}")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, value.detach().numpy(), allow_pickle=False)
    write(file, out.getvalue())


def decode_npz(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name.  Raises FileFormatError for anything but a whole file of arrays of numbers."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            arrays = {}
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if name == entry.filename or name in arrays:
                    raise FileFormatError(f"npz: the archive has an entry {entry.filename!r}, which is no array of its own")
                with archive.open(entry) as file:
                    arrays[name] = _array(name, file, entry.file_size)
            return arrays
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"npz: {error}") from error


def _array(name: str, file: Any, size: int) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise FileFormatError(f"npz: {name!r} is of version {version} of the format")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, kind = header(file)
    if kind.newbyteorder("=") not in FROM_NUMPY:
        raise FileFormatError(f"npz: {name!r} is of dtype {kind}, which this library has not")
    wanted = math.prod(shape) * kind.itemsize
    if wanted > size:
        raise FileFormatError(f"npz: {name!r} of shape {list(shape)} takes {wanted} bytes, its entry has {size}")
    raw = file.read()
    if len(raw) != wanted:
        raise FileFormatError(f"npz: {name!r} of shape {list(shape)} takes {wanted} bytes, there are {len(raw)}")
    array = np.frombuffer(raw, kind).astype(kind.newbyteorder("="))
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def load_npz(file: Any) -> dict[str, Tensor]:
    """The tensors of an npz file by name.  Raises FileFormatError for anything but a whole file of arrays of numbers."""
    return {name: tensor(array) for name, array in decode_npz(read(file)).items()}
