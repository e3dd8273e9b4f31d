"""`.ci/run` shows why it failed, whichever of its two processes failed first, and says which interpreter is missing."""

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


pytestmark = pytest.mark.skipif(BASH is None or not RUN.exists(), reason="needs bash, and a checkout")


def functions_of(text: str, *names: str) -> list[str]:
    """The definitions of some functions of the script."""
    found = [re.search(rf"^{name}\(\) {{$.*?^}}$", text, re.M | re.S) for name in names]
    functions = [part.group() for part in found if part is not None]
    assert len(functions) == len(names)
    return functions


def run(*jobs: str) -> subprocess.CompletedProcess[str]:
    """The two processes of the script with other jobs, which they take in turn."""
    text = RUN.read_text(encoding="utf-8")
    functions = functions_of(text, "clean_up", "take_jobs", "both_take_jobs")
    assert "trap clean_up EXIT" in text
    start = "set -euo pipefail\nwork=$(mktemp -d)\nothers=''\ntrap clean_up EXIT\n"
    listed = "\n".join(["cat >$work/jobs <<END", *jobs, "END"])
    script = "\n".join([start, *functions, JOBS, listed, "both_take_jobs", "echo all passed"])
    return subprocess.run([str(BASH), "-c", script], capture_output=True, text=True, timeout=60)


def test_what_failed_first_is_shown_whichever_process_it_ran_in() -> None:
    for jobs in (("fails one", "waits"), ("waits", "fails one")):  # each of them in either process
        for _ in range(2):
            done = run(*jobs)
            assert done.returncode != 0 and "one fails" in done.stdout and "all passed" not in done.stdout
    done = run("works one", "works two", "works three")
    assert done.returncode == 0
    assert sorted(done.stdout.split("\n")) == ["", "all passed", "one works", "three works", "two works"]


def interpreters(directory: Path, here: str, pyenv: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """What the script says of interpreters that stand in: PYTHON is CPython 3.11, `here` names those on PATH, `pyenv` those of pyenv."""
    text = RUN.read_text(encoding="utf-8")
    lists = re.findall(r"^VERIFIED=.*$", text, re.M)
    assert lists == ["VERIFIED=(3.11 3.12 3.13)"]
    directories = {directory / f"python{version}": version for version in here.split()}
    directories |= {directory / "versions" / f"{version}.1" / "bin" / "python": version for version in pyenv.split()}
    for path, version in {**directories, directory / "python3": "3.11", directory / "pypy": "3.13 pypy"}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        minor, _, kind = version.partition(" ")
        said = f'"{kind or "cpython"} {minor}"'
        path.write_text(f'#!{BASH}\ncase "$2" in *implementation*) echo {said} ;; *) echo {minor} ;; esac\n', encoding="utf-8")
        path.chmod(0o755)
    functions = functions_of(text, "verified_version", "candidates", "other_interpreters")
    script = "\n".join(["set -euo pipefail", *lists, *functions, "found=$(other_interpreters)", 'printf "%s" "$found"'])
    settings = {"PATH": str(directory), "PYENV_ROOT": str(directory), "PYTHON": str(directory / "python3"), **environment}
    return subprocess.run([str(BASH), "-c", script], capture_output=True, text=True, timeout=60, env=settings)


def test_each_version_has_an_interpreter_and_one_that_is_missing_is_an_error(tmp_path: Path) -> None:
    missing = interpreters(tmp_path / "one", "3.12")
    assert missing.returncode != 0 and missing.stdout == ""
    assert "no CPython 3.13 was found: neither python3.13 on PATH nor" in missing.stderr and "PYTHONS=" in missing.stderr
    for number, (here, pyenv) in enumerate((("3.12 3.13", ""), ("3.12", "3.13"), ("3.11", "3.12 3.13"))):
        found = interpreters(tmp_path / f"all{number}", here, pyenv)
        assert found.returncode == 0 and [line.split()[0] for line in found.stdout.splitlines()] == ["3.12", "3.13"], found.stderr


def test_those_that_are_named_are_wanted_and_no_others(tmp_path: Path) -> None:
    none = interpreters(tmp_path, "3.12 3.13", PYTHONS="")
    assert (none.returncode, none.stdout) == (0, "")
    some = interpreters(tmp_path, "3.12 3.13", PYTHONS=f"{tmp_path}/python3.13 {tmp_path}/python3")
    assert (some.returncode, some.stdout) == (0, f"3.13 {tmp_path}/python3.13")  # PYTHON is not another one
    for wrong in ("pypy", "python3.99"):
        refused = interpreters(tmp_path, "3.12 3.13", PYTHONS=f"{tmp_path}/python3.12 {tmp_path}/{wrong}")
        assert refused.returncode != 0 and f"PYTHONS names {tmp_path}/{wrong}, which is no CPython of one of" in refused.stderr
