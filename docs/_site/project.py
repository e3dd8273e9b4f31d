"""Pages of the project's own files, which stand above docs/: how to contribute, changes, security.

They are copied with links that hold in the site; links to them from other pages are changed when Sphinx reads these.
Start reading: `write`, `FILES`.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from _site.pages import write_folder

FILES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
_FOLDER = "project"


def write(project: Path, docs: Path) -> None:
    """Write a page for each of FILES of the folder `project` into docs/project/."""
    pages = {page: (project / file).read_text(encoding="utf-8").replace("](docs/", "](../") for file, page in FILES.items()}
    write_folder(docs / _FOLDER, pages)


def lead_to_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """Make links to FILES in the text of a page links to their pages."""
    for file, own in FILES.items():
        source[0] = re.sub(rf"\]\((?:\.\./)+{re.escape(file)}", f"](/{_FOLDER}/{own}", source[0])
