"""What holds for every test: programs are compiled, not found in the user's files (tests/test_disk_cache.py uses files of its own), and
the library verifies itself: graphs after every pass, and a defect that a user would be warned of is an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ["TRACEJIT_CACHE"] = "0"  # before the package reads its settings; subprocesses inherit it
os.environ["TRACEJIT_VERIFY"] = "1"


@pytest.fixture
def no_modules_are_left() -> Iterator[None]:
    """Some programs of the corpus make modules that the next one, or another library, must not meet."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if vars(sys.modules[name]).get("__spec__") is None:
            del sys.modules[name]
