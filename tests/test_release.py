"""What a release says of itself: one version everywhere, and files that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import tracejit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_the_same_everywhere() -> None:
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert citation
    assert {tracejit.__version__, PROJECT["project"]["version"], citation[1]} == {tracejit.__version__}


def test_the_changelog_has_a_section_for_the_version_and_one_for_what_comes() -> None:
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[:2] == ["Unreleased", tracejit.__version__]


def test_the_source_distribution_lists_only_files_that_are_there() -> None:
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        kind, *names = line.split()
        if kind in ("graft", "include"):
            assert [name for name in names if not (ROOT / name).exists()] == []


def test_each_extra_is_described_by_versions_that_it_needs_at_least() -> None:
    wanted = [name for names in PROJECT["project"]["optional-dependencies"].values() for name in names]
    assert [name for name in wanted if not re.fullmatch(r"[\w-]+(\[\w+\])?>=[\d.]+(; .*)?", name)] == []
