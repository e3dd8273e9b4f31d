"""Files from the network: with a checksum, a progress bar, and resumed where an earlier attempt was broken off.

What has come so far stands in a file `name.part`; only what is whole and has the right checksum gets the name.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracejit.core.lazy import lazy_module

__all__ = ["checksum_of", "fetch"]

_error: Any = lazy_module("urllib.error")
_request: Any = lazy_module("urllib.request")
_BLOCK = 1 << 16


def checksum_of(path: Path) -> str:
    """The MD5 of a file, which is what the publishers of datasets give."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def fetch(sources: Sequence[str], target: Path, checksum: str) -> None:
    """Get a file from the first address that has it.  Raises RuntimeError where none has, or the checksum is another."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    reasons = []
    for source in sources:
        try:
            _receive(source, part)
        except (OSError, ValueError) as error:  # urllib's errors are OSErrors, of a wrong address ValueError
            reasons.append(f"{source}: {error}")
            continue
        found = checksum_of(part)
        if found == checksum:
            os.replace(part, target)
            return
        part.unlink()
        reasons.append(f"{source}: the checksum is {found}, expected {checksum}")
    raise RuntimeError(f"could not download {target.name}:\n" + "\n".join(reasons))


def _receive(source: str, part: Path) -> None:
    """Append to `part` what is missing of it."""
    have = part.stat().st_size if part.exists() else 0
    request = _request.Request(source, headers={"User-Agent": "tracejit", **({"Range": f"bytes={have}-"} if have else {})})
    try:
        answer = _request.urlopen(request, timeout=60)
    except _error.HTTPError as error:
        if error.code == 416 and have:  # nothing is missing
            return
        raise
    with answer:
        if have and answer.status != 206:
            have = 0  # the server begins anew
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        with open(part, "ab" if have else "wb") as file, _Progress(part.name.removesuffix(".part"), have, total) as progress:
            while block := answer.read(_BLOCK):
                file.write(block)
                progress.advance(len(block))
        if total is not None and progress.done != total:
            raise OSError(f"the connection ended after {progress.done} of {total} bytes")


class _Progress:
    """A bar on stderr, drawn anew a few times a second; on what is no terminal, one line at the end."""

    def __init__(self, name: str, done: int, total: int | None) -> None:
        self.name, self.done, self.total = name, done, total
        self._drawn = 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._draw("\n")

    def advance(self, count: int) -> None:
        """So many more bytes have come."""
        self.done += count
        if sys.stderr.isatty() and time.monotonic() - self._drawn > 0.2:
            self._drawn = time.monotonic()
            self._draw("")

    def _draw(self, end: str) -> None:
        amount = f"{self.done / 1e6:.1f} MB"
        if self.total:
            filled = 40 * self.done // self.total
            amount = f"[{'#' * filled}{'.' * (40 - filled)}] {100 * self.done // self.total:3d}% of {self.total / 1e6:.1f} MB"
        start = "\r" if sys.stderr.isatty() else ""
        print(f"{start}{self.name} {amount}", end=end, file=sys.stderr, flush=True)
