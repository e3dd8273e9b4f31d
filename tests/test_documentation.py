"""The pages of the site: their programs run and print what the pages show, and every page and public module has its place.

A page's Python blocks run in order, in one namespace, from a file with the page's line numbers.  A block ```text right after one is what
that prints; `...` there stands for anything.  Where Sphinx is installed, the site is built, and a warning is a failure.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import runpy
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Final

import pytest

import tracejit

DOCS: Final = Path(__file__).parents[1] / "docs"
sys.path.append(str(DOCS))
from _site import gallery, reference  # noqa: E402 (of the site, which is no package)
from _site.docstrings import escaped, to_markdown  # noqa: E402

GUIDES: Final = sorted(f"guides/{page.name}" for page in (DOCS / "guides").glob("*.md"))
PAGES: Final = ["index.md", "installation.md", "tour.md", "sharp-bits.md", *GUIDES]
NEEDS: Final = {"guides/data.md": ("sklearn",), "guides/training.md": ("sklearn",)}
BLOCK: Final = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)
FLAGS: Final = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_the_page_print_what_it_shows(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    lines = [""] * (text.count("\n") + 1)
    for block in blocks:
        first = text.count("\n", 0, block.start("code"))
        code = block["code"].split("\n")
        lines[first : first + len(code)] = [*code[:-1], "end_of_block()"]  # where the block's closing line is
    file = tmp_path / f"{Path(page).stem.replace('-', '_')}.py"
    file.write_text("\n".join(lines), encoding="utf-8")
    printed: list[str] = []
    monkeypatch.chdir(tmp_path)
    before = tracejit.get_rng_state(), tracejit.get_default_dtype()
    try:
        runpy.run_path(str(file), {"end_of_block": lambda: printed.append(capsys.readouterr().out)}, run_name="page")
    finally:
        tracejit.set_rng_state(before[0])
        tracejit.set_default_dtype(before[1])
    assert len(printed) == len(blocks)
    for block, output in zip(blocks, printed, strict=True):
        if block["output"] is not None:
            line = text.count("\n", 0, block.start("code")) + 1
            assert doctest.OutputChecker().check_output(block["output"], output, FLAGS), f"line {line} prints:\n{output}"


def test_every_page_has_its_place_in_a_table_of_contents() -> None:
    named = set()
    for index in ("index.md", "getting-started.md", "how-it-works.md", "guides/index.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / index).read_text(encoding="utf-8"), re.DOTALL):
            entries = [line for line in tree.split("\n") if line and not line.startswith(":")]
            named |= {(DOCS / index).parent.joinpath(f"{entry}.md").resolve() for entry in entries}
    pages = {page.resolve() for folder in (DOCS, DOCS / "guides") for page in folder.glob("*.md")} - {
        (DOCS / "index.md").resolve()
    }
    generated = {path for path in named if path.parent.name in ("reference", "gallery", "project")}
    assert named - generated == pages


def test_every_public_module_has_a_page_of_the_reference() -> None:
    paths = [path for section in reference.SECTIONS.values() for path in section]
    assert len(paths) == len(set(paths))
    named = {
        name for name in tracejit.__all__ if isinstance(getattr(tracejit, name), types.ModuleType) and not name.startswith("_")
    }
    assert {name for name in named if hasattr(getattr(tracejit, name), "__all__")} <= {*paths, *reference.ELSEWHERE}


def test_the_reference_describes_every_public_name(tmp_path: Path) -> None:
    reference.write(tmp_path)
    for path in (path for section in reference.SECTIONS.values() for path in section):
        page = (tmp_path / f"{reference.title_of(path)}.md").read_text(encoding="utf-8")
        owner = reference.object_of(path)
        if isinstance(owner, type):
            described = [
                name for name in dir(owner) if not name.startswith("_") and callable(inspect.getattr_static(owner, name))
            ]
            missing = [name for name in described if not re.search(rf"^:+\{{py:method\}} {name}\(", page, re.MULTILINE)]
        else:
            names = [name for name, _ in reference.public_names(path)]
            missing = [n for n in names if not re.search(rf"^(:+\{{py:\w+\}} |\[`tracejit\.){n}\b", page, re.MULTILINE)]
        assert not missing, path


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "pydata_sphinx_theme", "matplotlib"):
        pytest.importorskip(package)
    shutil.copytree(DOCS.parent, tmp_path / "checkout", ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
    strict = ("-q", "-W", "-n", "--keep-going")
    command = [sys.executable, "-m", "sphinx", *strict, "-b", "html", "docs", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=tmp_path / "checkout", capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {file.relative_to(tmp_path / "site").as_posix() for file in tmp_path.rglob("site/**/*.html")}
    assert {"index.html", "tour.html", "guides/from-pytorch.html", "reference/tracejit.nn.html", "gallery/index.html"} <= pages


def test_every_example_has_a_page_of_the_gallery(tmp_path: Path) -> None:
    examples = DOCS.parent / "examples"
    gallery.write(examples, tmp_path, lambda name, file, folder: None)
    assert {file.stem for file in tmp_path.glob("*.md")} == {"index", *(file.stem for file in examples.glob("*.py"))}
    assert set(gallery.TITLES) <= {file.stem for file in examples.glob("*.py")}


def test_a_docstring_becomes_markdown_that_shows_its_characters() -> None:
    assert escaped("a * b_c, `x_y` <T> [1]") == r"a \* b\_c, `x_y` \<T\> \[1\]"
    assert escaped("- 1. is a number") == r"\- 1. is a number"
    text = "Sum.\n\nx: a tensor, of\n    any shape.\nother: text\n\nExample:\n\n    >>> 1 + 1\n    2\n\n    >>> 2\n    2"
    expected = "Sum.\n\n* **x**: a tensor, of any shape. other: text\n\n```pycon\n>>> 1 + 1\n2\n```\n\n```pycon\n>>> 2\n2\n```"
    assert to_markdown(text, {"x"}) == expected


def test_modules_without_a_page_of_the_reference_exist() -> None:
    for path in reference.ELSEWHERE:
        assert isinstance(importlib.import_module(f"tracejit.{path}"), types.ModuleType)
