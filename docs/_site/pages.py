"""Files of generated pages: a file is written only where its text has changed, so that Sphinx reads it again only then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_folder(folder: Path, pages: Mapping[str, str]) -> None:
    """Make `folder` hold these pages (file name -> text), and no other Markdown file."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
