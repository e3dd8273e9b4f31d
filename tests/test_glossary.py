"""docs/glossary.md: few terms, in order, each with a file that is there and uses the word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "glossary.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs a checkout")
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8") if PAGE.exists() else "", re.M)[1:]
TERMS = {term: re.findall(r"`(.+?)`", places) for term, _, places in ROWS if not term.startswith("---")}


def test_there_are_at_most_sixty_terms_in_alphabetical_order() -> None:
    assert 30 < len(TERMS) <= 60
    assert list(TERMS) == sorted(TERMS, key=lambda term: re.sub(r"\W", " ", term.lower()).strip())


@pytest.mark.parametrize("term", TERMS)
def test_a_term_names_files_that_are_there_and_one_that_uses_it(term: str) -> None:
    places = [ROOT / "tracejit" / place for place in TERMS[term]]
    assert places and all(place.exists() for place in places)
    files = [file for place in places for file in ([place] if place.is_file() else place.glob("*.py"))]
    texts = [f"{file.stem} {file.read_text(encoding='utf-8')}" for file in files]
    words = re.findall(r"\w+", re.sub(r"\(.*?\)", "", term))
    assert any(all(word.lower() in text.lower() for word in words) for text in texts), f"no file of {TERMS[term]} says {words}"
