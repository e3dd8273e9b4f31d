"""Saving and loading: tensors and containers of them in one file, without pickle.

`save` writes safetensors files whose metadata say how the tensors belong together; a state_dict is a plain safetensors file for
everybody else.  `load` reads these, plain safetensors and npz files, and what torch.save() has written, by what is in them and
not by their names.
"""

from __future__ import annotations

from typing import Any

from tracejit.serialization import files, safetensors, structure, torch_files
from tracejit.serialization.files import FileFormatError
from tracejit.serialization.npz import decode_npz, load_npz, save_npz
from tracejit.serialization.safetensors import load_safetensors, save_safetensors
from tracejit.tensor import tensor

__all__ = ["FileFormatError", "load", "load_npz", "load_safetensors", "save", "save_npz", "save_safetensors"]

_STRUCTURE = "tracejit.structure"


def save(obj: Any, f: Any, **options: Any) -> None:
    """Write tensors, arrays, numbers, strings and containers of them (state_dicts) to a file: a path or an object with write().

    A file that is there is replaced only by a whole new one.  PyTorch's options about pickle are accepted: there is none.  Raises
    TypeError, which says where it was found, for anything else, as for a module: save its state_dict()."""
    del options
    arrays, text = structure.to_structure(obj)
    files.write(f, safetensors.encode(arrays, {"format": "pt", _STRUCTURE: text}))


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, **options: Any) -> Any:
    """What save(), torch.save() or another writer of safetensors or npz files has written to a file: a path or an object with
    read().

    PyTorch's options are accepted: tensors are always on the CPU, and files never run code, whatever weights_only says.  Raises
    FileFormatError for files that are broken, cut off, or hold what is no tensor, container, number or string."""
    del map_location, pickle_module, weights_only, options
    content = files.read(f)
    if content.startswith(b"PK\x03\x04"):
        if torch_files.is_torch_archive(content):
            return torch_files.load_archive(content)
        return {name: tensor(array) for name, array in decode_npz(content).items()}
    if content.startswith(torch_files.LEGACY_START):
        return torch_files.load_legacy(content)
    if content.startswith(b"\x80") and content[8:9] != b"{":
        raise FileFormatError("load(): the file is a plain pickle, which could run any code: it is refused")
    arrays, metadata = safetensors.decode(content)
    if _STRUCTURE in metadata:
        return structure.from_structure(arrays, metadata[_STRUCTURE])
    return {name: tensor(array) for name, array in arrays.items()}
