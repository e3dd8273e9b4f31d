"""Saving and loading: tensors and containers of them in one file, without pickle.

`save` writes safetensors files whose metadata say how the tensors belong together; a state_dict is a plain safetensors file for
everybody else.  `load` reads these, plain safetensors and npz files, and what torch.save() has written, by what is in them and
not by their names.

Must not know: optimizers, of modules no more than the class Parameter (a state_dict is a container like any other), the
compiler.
Start reading: files.py, then structure.py.
"""

from __future__ import annotations

from typing import Any

from tracejit.distributed.group import get_rank, is_initialized
from tracejit.distributed.objects import broadcast_object_list
from tracejit.serialization import files, safetensors, structure, torch_files, torch_writer
from tracejit.serialization.files import FileFormatError
from tracejit.serialization.npz import decode_npz, load_npz, save_npz
from tracejit.serialization.objects import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from tracejit.serialization.safetensors import load_safetensors, save_safetensors
from tracejit.tensor import tensor

__all__ = [
    "FileFormatError", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "load_npz", "load_safetensors", "safe_globals",
    "save", "save_by_rank_0", "save_npz", "save_safetensors",
]  # fmt: skip

_STRUCTURE = "tracejit.structure"
MAP_LOCATION = Any  # the type of map_location: it changes nothing


def save(obj: Any, f: Any, *pickle_options: Any, format: str = "safetensors", **options: Any) -> None:
    """Write tensors, arrays, numbers, strings and containers of them (state_dicts) to a file: a path or an object with write().

    Modules and other objects are written as the name of their class and their state, as pickle would; load() makes them only with
    weights_only=False, so a state_dict is the better thing to save.  A file that is there is replaced only by a whole new one.  PyTorch's
    options about pickle are accepted: there is none.

    format="torch": a file that torch.load() reads, and load() as well, of tensors, parameters, numbers, strings and containers of them.

    Raises TypeError, which says where it was found, for what has no name (lambdas), or is nothing that torch.load() takes; ValueError for
    another format."""
    del pickle_options, options
    if format not in ("safetensors", "torch"):
        raise ValueError(f"save(): format must be 'safetensors' or 'torch', got {format!r}")
    if format == "torch":
        files.write(f, torch_writer.encode_archive(obj))
        return
    arrays, text = structure.to_structure(obj)
    files.write(f, safetensors.encode(arrays, {"format": "pt", _STRUCTURE: text}))


def save_by_rank_0(obj: Any, f: Any, **options: Any) -> None:
    """save() where several processes run: all of them call this, rank 0 writes, and it returns, or raises, in all when that is done.

    Without a process group it is save().  Raises what save() raises in rank 0, and RuntimeError, which says what that was, in the
    others."""
    if not is_initialized():
        save(obj, f, **options)
        return
    problem: list[Exception | None] = [None]
    if get_rank() == 0:
        try:
            save(obj, f, **options)
        except Exception as error:
            problem = [error]
    told = [None if problem[0] is None else f"{type(problem[0]).__name__}: {problem[0]}"]
    broadcast_object_list(told, 0)
    if problem[0] is not None:
        raise problem[0]
    if told[0] is not None:
        raise RuntimeError(f"save_by_rank_0(): rank 0 has not written {f}: {told[0]}")


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, **options: Any) -> Any:
    """What save(), torch.save() or another writer of safetensors or npz files has written to a file: a path or an object with
    read().

    Tensors are always on the CPU.  weights_only=False: objects of the classes that a file of save()'s names are made, which may run any
    code, so only for files that you trust; pickles are never read so.  Raises FileFormatError for files that are broken, cut off, or hold
    what is no tensor, container, number or string otherwise."""
    del map_location, pickle_module, options
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
        return structure.from_structure(arrays, metadata[_STRUCTURE], weights_only is False)
    return {name: tensor(array) for name, array in arrays.items()}
