"""What holds for every test: programs are compiled, not found in the user's files (tests/test_disk_cache.py uses files of its own), and
the library verifies itself: graphs after every pass, and a defect that a user would be warned of is an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ["TRACEJIT_CACHE"] = "0"  # before the package reads its settings; subprocesses inherit it
os.environ["TRACEJIT_VERIFY"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="K/N", help="run every N-th file of tests only, from the K-th on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = map(int, config.getoption("--part").split("/"))
    files = sorted({item.path for item in items})
    kept = set(files[part - 1 :: parts])
    config.hook.pytest_deselected(items=[item for item in items if item.path not in kept])
    items[:] = [item for item in items if item.path in kept]


@pytest.fixture
def no_modules_are_left() -> Iterator[None]:
    """Some programs of the corpus make modules that the next one, or another library, must not meet."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if vars(sys.modules[name]).get("__spec__") is None:
            del sys.modules[name]
