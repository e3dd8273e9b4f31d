"""The safetensors format (https://huggingface.co/docs/safetensors): named arrays and a map of strings in one file.

Eight bytes say how long the header is, JSON that gives each array's dtype, shape and span; the arrays follow without gaps.  A
file is checked whole before any of it is used: no name, span or size is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.serialization.files import FileFormatError, read, write
from tracejit.tensor import Tensor, tensor

__all__ = ["NAMES", "decode", "encode", "load_safetensors", "save_safetensors"]

_MOST_HEADER = 100_000_000
NAMES = {  # of the format -> our dtypes
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip
_CODES = {kind: code for code, kind in NAMES.items()}


def _little_endian(array: np.ndarray) -> np.ndarray:
    bits = array.view(f"u{array.dtype.itemsize}")
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False)


def encode(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """A file of arrays.  Raises TypeError for dtypes that the format has not, or names that are no strings."""
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = dict(metadata)
    # as the reference writes them: the largest elements first, so that all are aligned
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    parts, start = [], 0
    for name in order:
        array = arrays[name]
        if name == "__metadata__":
            raise ValueError("save: no tensor can have the name '__metadata__', which the format keeps for itself")
        if array.dtype not in dtypes.FROM_NUMPY:
            raise TypeError(f"save: safetensors has no dtype for the {array.dtype} of {name!r}")
        content = _little_endian(np.ascontiguousarray(array)).tobytes()
        header[name] = {
            "dtype": _CODES[dtypes.FROM_NUMPY[array.dtype]],
            "shape": list(array.shape),
            "data_offsets": [start, start + len(content)],
        }
        parts.append(content)
        start += len(content)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise FileFormatError("safetensors: a name occurs twice in the header")
    return out


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """(the header, where arrays begin)."""
    if len(content) < 8:
        raise FileFormatError(f"safetensors: the file has {len(content)} bytes, less than the length of its header takes")
    length = int.from_bytes(content[:8], "little")
    if length > min(len(content) - 8, _MOST_HEADER):
        raise FileFormatError(
            f"safetensors: the header should have {length} bytes, the file has {len(content) - 8} after its length"
        )
    try:
        header = json.loads(content[8 : 8 + length].decode(), object_pairs_hook=_unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FileFormatError(f"safetensors: the header is no JSON ({error})") from error
    if not isinstance(header, dict):
        raise FileFormatError(f"safetensors: the header is a {type(header).__name__}, expected an object")
    return header, 8 + length


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _entry(name: str, entry: Any, size: int) -> tuple[DType, list[int], int, int]:
    """(dtype, shape, start, end) of an array."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise FileFormatError(f"safetensors: the entry of {name!r} has no dtype, shape and data_offsets")
    code, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    kind = NAMES.get(code) if isinstance(code, str) else None
    if kind is None:
        raise FileFormatError(f"safetensors: the dtype of {name!r} is {code!r}; this library has {', '.join(NAMES)}")
    if not isinstance(shape, list) or not all(_is_count(s) for s in shape) or len(shape) > 64:
        raise FileFormatError(f"safetensors: the shape of {name!r} is {shape!r}")
    if not isinstance(span, list) or len(span) != 2 or not all(_is_count(p) for p in span) or not span[0] <= span[1] <= size:
        raise FileFormatError(f"safetensors: {name!r} lies at {span!r}, there are {size} bytes")
    if math.prod(shape) * kind.itemsize != span[1] - span[0]:
        raise FileFormatError(
            f"safetensors: {name!r} of shape {shape} and dtype {code} takes {math.prod(shape) * kind.itemsize} bytes, its span has "
            f"{span[1] - span[0]}"
        )
    return kind, shape, span[0], span[1]


def decode(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of a file.  Raises FileFormatError for anything but a whole file of the format."""
    header, begin = _header(content)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileFormatError("safetensors: __metadata__ is no map of strings")
    size = len(content) - begin
    entries = {name: _entry(name, entry, size) for name, entry in header.items()}
    end = 0
    for name, (_, _, start, stop) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if start != end:
            raise FileFormatError(f"safetensors: {name!r} begins at byte {start}, the array before it ends at {end}")
        end = stop
    if end != size:
        raise FileFormatError(f"safetensors: the arrays take {end} bytes, there are {size}")
    arrays = {}
    for name, (kind, shape, start, stop) in entries.items():
        if kind is dtypes.bool_ and stop > start and max(content[begin + start : begin + stop]) > 1:
            raise FileFormatError(f"safetensors: {name!r} is of bools, and holds other bytes than 0 and 1")
        count = (stop - start) // kind.itemsize
        stored = np.frombuffer(content, f"<u{kind.itemsize}", count, begin + start)
        arrays[name] = stored.astype(stored.dtype.newbyteorder("=")).view(kind.numpy).reshape(shape)
    return arrays, metadata


def save_safetensors(tensors: Mapping[str, Tensor], file: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors (a state_dict) to a safetensors file: a path or an object with write()."""
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise TypeError(
                f"save_safetensors(): expected names and tensors, got {name!r}: {type(value).__name__}; save() takes nested containers"
            )
    write(file, encode({name: value.detach().numpy() for name, value in tensors.items()}, metadata))


def load_safetensors(file: Any) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.  Raises FileFormatError for anything but a whole file of the format."""
    return {name: tensor(array) for name, array in decode(read(file))[0].items()}
