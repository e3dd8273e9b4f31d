"""docs/architecture.md says what the code prints and names what exists; each package says where to start reading."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tracejit"
DOCUMENT = ROOT / "docs" / "architecture.md"
SCRIPT = ROOT / "docs" / "walkthrough.py"
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def walkthrough() -> ModuleType:
    specification = importlib.util.spec_from_file_location("walkthrough", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def blocks() -> dict[str, str]:
    """What the document says that each stage prints."""
    return dict(re.findall(r"^```\w+ stage=(\w+)\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def test_the_document_shows_what_the_stages_print() -> None:
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("TRACEJIT_")}
    if "TRACEJIT_CACHE_DIR" in os.environ:
        surroundings["TRACEJIT_CACHE_DIR"] = os.environ["TRACEJIT_CACHE_DIR"]
    run = subprocess.run(
        [sys.executable, SCRIPT, "--check"],
        env=surroundings | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}\nIf this is meant: python docs/walkthrough.py writes the blocks anew."


@pytest.mark.parametrize("stage", blocks())
def test_a_stage_that_prints_something_else_changes_its_block_alone(stage: str) -> None:
    before, known = DOCUMENT.read_text(encoding="utf-8"), blocks()
    assert walkthrough().rewritten(before, known) == before
    after = walkthrough().rewritten(before, known | {stage: "something else\n"})
    assert after == before.replace(f"stage={stage}\n{known[stage]}```", f"stage={stage}\nsomething else\n```") != before


def test_a_stage_without_a_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="the stages are"):
        walkthrough().rewritten(DOCUMENT.read_text(encoding="utf-8"), blocks() | {"another": ""})


def test_the_document_fits_on_200_lines_of_120_columns() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert not [line for line in lines if len(line) > 120]


def test_the_document_names_every_folder_and_only_files_that_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", re.sub(r"^```\w+ stage=.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)))
    folders = {path.name for path in PACKAGES if path.parent == PACKAGE}
    assert folders <= words, f"without a position in the document: {folders - words}"
    files = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert len(files) > 20
    assert [name for name in files if not any((root / name).exists() for root in (PACKAGE, ROOT))] == []
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not (DOCUMENT.parent / link).exists()] == []


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_each_package_says_what_it_holds_what_it_must_not_know_and_where_to_start(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert docstring is not None
    parts = re.fullmatch(r"(?P<holds>.+)\n\nMust not know: (?P<unknown>.+)\nStart reading: (?P<start>.+)", docstring, re.DOTALL)
    assert parts is not None, docstring
    files = re.findall(r"[\w./-]+\.py\b", parts["start"])
    assert files or "this file" in parts["start"]
    assert [name for name in files if not (folder / name).exists()] == []
