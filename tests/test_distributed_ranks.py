"""Several processes: each check of tests/rank_program.py, with 2 and with 4 ranks that one start of mpirun has begun."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.distributed import command
from tests.rank_program import CHECKS, OF_ONE_PROCESS

pytest.importorskip("mpi4py")
ROOT = Path(__file__).resolve().parents[1]
RANKS = (2, 4)


def mpirun(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    started = command(ranks, *arguments) or pytest.skip("there is no mpirun beside this Python")
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "TRACEJIT_NUM_THREADS")}
    return subprocess.run(started, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90, check=False)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, dict[int, dict[str, str]]]]:
    """For each number of ranks: what was printed, and for each rank which checks held."""
    results = {}
    for ranks in RANKS:
        folder = tmp_path_factory.mktemp(f"ranks{ranks}")
        done = mpirun(ranks, "-m", "tests.rank_program", str(folder))
        files = {rank: folder / f"{rank}.json" for rank in range(ranks)}
        told = {rank: json.loads(file.read_text()) if file.exists() else {} for rank, file in files.items()}
        results[ranks] = (done.stdout + done.stderr, told)
    return results


@pytest.mark.parametrize(("name", "ranks"), [(name, n) for name in CHECKS for n in RANKS if n == 2 or name not in OF_ONE_PROCESS])
def test_with_several_processes(name: str, ranks: int, outcomes: dict[int, tuple[str, dict[int, dict[str, str]]]]) -> None:
    output, told = outcomes[ranks]
    for rank in range(ranks):
        problem = told[rank].get(name, f"not reached:\n{output}")
        assert not problem, f"rank {rank} of {ranks}: {problem}"


@pytest.mark.parametrize("ranks", RANKS)
def test_a_process_that_dies_ends_the_others_and_says_so(
    ranks: int, outcomes: dict[int, tuple[str, dict[int, dict[str, str]]]]
) -> None:
    output, _ = outcomes[ranks]
    assert f"rank 1 of {ranks} on " in output and "ended with ValueError: nothing more: all ranks are ended" in output
    assert "raise ValueError" in output and "an all_reduce without rank 1" not in output
