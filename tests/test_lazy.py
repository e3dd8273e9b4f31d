"""Modules that are imported when they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracejit.core.lazy import lazy_module


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that no one has imported yet."""
    (tmp_path / "module_for_one_test.py").write_text("setting = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "module_for_one_test", raising=False)
    return "module_for_one_test"


def test_a_module_is_imported_by_the_first_use_of_an_attribute(name: str) -> None:
    lazy = lazy_module(name)
    assert name not in sys.modules
    assert lazy.setting == sys.modules[name].setting == 1


def test_an_attribute_is_set_in_the_module_itself(name: str) -> None:
    lazy = lazy_module(name)
    lazy.setting = 2
    assert lazy.setting == sys.modules[name].setting == 2


def test_a_module_that_is_not_there_is_an_error_when_it_is_used() -> None:
    lazy = lazy_module("no_such_module")
    with pytest.raises(ImportError, match="no_such_module"):
        _ = lazy.attribute


def test_importing_the_library_imports_no_compiler() -> None:
    check = "import sys, tracejit; print(sorted({'numba', 'scipy.special', 'scipy.linalg'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
