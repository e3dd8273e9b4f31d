"""Inventories of other projects' documentation (intersphinx): those that can be had within a few seconds.

A build without a network has none, and no warning: names of other projects are not links then.
"""

from __future__ import annotations

import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECTS = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "numba": "https://numba.readthedocs.io/en/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
}
SECONDS = 4


def reachable() -> dict[str, tuple[str, str]]:
    """What `intersphinx_mapping` takes: the address, and a local copy of the inventory."""
    folder = Path(tempfile.mkdtemp(prefix="inventories-"))
    with ThreadPoolExecutor(len(PROJECTS)) as pool:
        copies = pool.map(lambda project: _copy(PROJECTS[project], folder / f"{project}.inv"), PROJECTS)
    return {project: (PROJECTS[project], str(copy)) for project, copy in zip(PROJECTS, copies, strict=True) if copy is not None}


def _copy(address: str, file: Path) -> Path | None:
    """The inventory in a file, None where there is none to be had."""
    try:
        with urllib.request.urlopen(f"{address}objects.inv", timeout=SECONDS) as answer:
            content = answer.read()
    except OSError:  # no network, or another answer
        return None
    if not content.startswith(b"# Sphinx inventory"):
        return None
    file.write_bytes(content)
    return file
