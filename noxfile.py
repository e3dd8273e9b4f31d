#!/usr/bin/env python3
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Tasks: `nox -l` lists them, `nox -s lint` runs one, each in an environment of its own.  What a commit must pass is `.ci/run`."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"


@nox.session(default=True)
def lint(session: nox.Session) -> None:
    """Formatting, ruff and mypy."""
    session.install("-e", ".[dev,test]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=["3.11", "3.12", "3.13"], default=False)
def tests(session: nox.Session) -> None:
    """The tests, all or those that are named: `nox -s tests-3.11 -- tests/test_pipeline.py`."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session(default=True)
def sample(session: nox.Session) -> None:
    """Every tenth test of each file."""
    session.install("-e", ".[test]")
    session.run("pytest", "--sample", *session.posargs)


@nox.session(default=False)
def benchmark(session: nox.Session) -> None:
    """Eager against compiled, with the options of `python -m benchmarks`."""
    session.install(".[bench]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """The documentation site in build/site/; a warning is an error."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "-n", "--keep-going", "-b", "html", "docs", "build/site")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Source distribution and wheel in dist/, and the checks of what they say of themselves."""
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))


if __name__ == "__main__":
    nox.main()
