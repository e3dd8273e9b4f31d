"""docs/distributed.md: its program runs, with one process and with two."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.distributed import command
from tests.pages import programs

BLOCKS = programs("distributed.md")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_program_of_the_page_trains(ranks: int, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(BLOCKS[0])
    start = [sys.executable, "page.py"]
    if ranks > 1:
        pytest.importorskip("mpi4py")
        start = command(ranks, "page.py") or pytest.skip("there is no mpirun")
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"loss (\d\.\d+), 159 of 160 steps compiled\n", done.stdout)
    assert found is not None and float(found[1]) < 1, done.stdout
    assert (tmp_path / "model.safetensors").exists()


def test_the_page_has_no_program_that_is_not_run_here() -> None:
    assert len(BLOCKS) == 1
