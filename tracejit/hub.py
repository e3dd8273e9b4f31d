"""tracejit.hub: files of weights from a URL, kept in a directory.  Repositories of code are not loaded.

The directory is `$TORCH_HOME/hub`, by default `~/.cache/torch/hub`, so files that PyTorch has fetched are found.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlparse

from tracejit.core.lazy import lazy_module
from tracejit.core.missing import absent, missing_names
from tracejit.core.whole_file import whole_file
from tracejit.serialization import load as load_file

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "load_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_request: Any = lazy_module("urllib.request")
_directory: list[str | None] = [None]


def get_dir() -> str:
    """Where files are kept."""
    home = os.getenv("TORCH_HOME") or os.path.join(os.getenv("XDG_CACHE_HOME", "~/.cache"), "torch")
    return _directory[0] or os.path.join(os.path.expanduser(home), "hub")


def set_dir(d: Any) -> None:
    """Keep files in another directory from now on."""
    _directory[0] = os.path.expanduser(d)


def download_url_to_file(url: str, dst: Any, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Copy what a URL gives into a file, which is there as a whole or not at all.

    hash_prefix: what the SHA-256 of the contents must begin with.  Raises RuntimeError where it does not, URLError where nothing comes."""
    path = Path(os.path.expanduser(dst))
    digest = hashlib.sha256()
    with whole_file(path) as part:
        with _request.urlopen(url) as source:
            while block := source.read(1 << 20):
                part.write(block)
                digest.update(block)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(
                f'download_url_to_file(): invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}") of {url}'
            )


def load_state_dict_from_url(
    url: str,
    model_dir: Any = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool | None = None,
) -> Any:
    """The state_dict in the file at a URL, which is fetched unless it is in model_dir, `get_dir()/checkpoints` by default.

    check_hash: the name ends in the beginning of the SHA-256 of the contents, `name-<hash>.pth`, and must.
    weights_only: as of load(); objects of classes that the file names are made only for False, and never unless it is given."""
    directory = Path(os.path.expanduser(model_dir) if model_dir is not None else os.path.join(get_dir(), "checkpoints"))
    directory.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    if not (directory / name).exists():
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, directory / name, found.group(1) if found else None, progress)
    return load_file(directory / name, map_location, weights_only=weights_only)


load_url = load_state_dict_from_url
"""The name in utils.model_zoo."""


def load(repo_or_dir: str, model: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the code of other repositories is not fetched and run."""
    raise NotImplementedError(
        f"hub.load(): tracejit does not fetch and run code ({repo_or_dir}); get the repository, import its model, and load_state_dict()"
    )


_CODE = "tracejit does not fetch and run code; get the repository, and import its hubconf.py"
list = absent(__name__, "list", f"hub.list(): {_CODE}")
help = absent(__name__, "help", f"hub.help(): {_CODE}")

__getattr__ = missing_names(__name__)
