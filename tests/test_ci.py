"""`.ci/run` shows why it failed, whichever of its two processes failed first."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
BASH = shutil.which("bash")
JOBS = """
works() { echo "$1 works"; }
fails() { until [[ -e $work/waiting ]]; do sleep 0.05; done; echo "$1 fails"; touch "$work/failed"; return 1; }
waits() { touch "$work/waiting"; until [[ -e $work/failed ]]; do sleep 0.05; done; return 1; }
"""


def run(*jobs: str) -> subprocess.CompletedProcess[str]:
    """The two processes of the script with other jobs, which they take in turn."""
    text = RUN.read_text(encoding="utf-8")
    parts = [re.search(rf"^{name}\(\) {{$.*?^}}$", text, re.M | re.S) for name in ("clean_up", "take_jobs", "both_take_jobs")]
    functions = [part.group() for part in parts if part is not None]
    assert len(functions) == 3 and "trap clean_up EXIT" in text
    start = "set -euo pipefail\nwork=$(mktemp -d)\nothers=''\ntrap clean_up EXIT\n"
    listed = "\n".join(["cat >$work/jobs <<END", *jobs, "END"])
    script = "\n".join([start, *functions, JOBS, listed, "both_take_jobs", "echo all passed"])
    return subprocess.run([str(BASH), "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(BASH is None or not RUN.exists(), reason="needs bash, and a checkout")
def test_what_failed_first_is_shown_whichever_process_it_ran_in() -> None:
    for jobs in (("fails one", "waits"), ("waits", "fails one")):  # each of them in either process
        for _ in range(2):
            done = run(*jobs)
            assert done.returncode != 0 and "one fails" in done.stdout and "all passed" not in done.stdout
    done = run("works one", "works two", "works three")
    assert done.returncode == 0
    assert sorted(done.stdout.split("\n")) == ["", "all passed", "one works", "three works", "two works"]
