"""What holds for every test: programs are compiled, not found in the user's files (tests/test_disk_cache.py uses files of its own), and
calls wait for them, and the library verifies itself: graphs after every pass, programs for other sizes (`TRACEJIT_VERIFY=0`: it does
not, as users have it).  A defect that a user would be warned of is an error (pyproject.toml)."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import pytest

os.environ["TRACEJIT_CACHE"] = "0"  # before the package reads its settings; subprocesses inherit it
os.environ.setdefault("TRACEJIT_VERIFY", "1")
os.environ["TRACEJIT_COMPILE_WAIT"] = "inf"

EXTRAS = ("torch", "expecttest", "mpi4py", "arviz", "emcee", "nutpie", "walnutpie", "sphinx", "matplotlib")
"""Packages that `.ci/run` installs in one of its environments."""

COMPILE_THEMSELVES = {  # tests of compiling
    "test_uninterrupted",
    "test_disk_cache",
    "test_driver",
    "test_interrupted_calls",
    "test_interrupts",
    "test_memory_use",
    "test_numba_codegen",
    "test_targets",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tests-of-extras",
        default="",
        metavar="FILE",
        help="append the tests that are skipped for want of an extra, one in a line",
    )
    parser.addoption(
        "--object-code",
        default="",
        metavar="DIR",
        help="what LLVM makes of programs is kept here, for other versions of Python, too",
    )
    parser.addoption("--numba", action="store_true", help="run all samples of the primitives by Numba, not the first of each")
    parser.addoption(
        "--sample",
        type=int,
        nargs="?",
        const=10,
        default=1,
        metavar="N",
        help="run every N-th test of each file (10th if N is not given)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first of every N tests of each file, the same ones each time."""
    every = config.getoption("--sample")
    if every < 1:
        raise pytest.UsageError(f"--sample must be at least 1, got {every}")
    numbers: Counter[Path] = Counter()
    kept: list[pytest.Item] = []
    for item in items:
        if numbers[item.path] % every == 0:
            kept.append(item)
        numbers[item.path] += 1
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


class _TestsOfExtras:
    """The names of tests, and of modules, that say that an extra is not installed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._see(report)

    def _see(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and any(f"'{name}'" in str(report.longrepr) for name in EXTRAS):
            self.names[report.nodeid.partition("[")[0]] = None

    def pytest_sessionfinish(self) -> None:
        with open(self.path, "a") as file:
            file.writelines(f"{name}\n" for name in self.names)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--tests-of-extras"):
        config.pluginmanager.register(_TestsOfExtras(config.getoption("--tests-of-extras")))


@pytest.fixture(scope="module", autouse=True)
def what_lasts_is_not_looked_at_again() -> None:
    """Modules, tests, reports and caches are a million objects after a while, and each collection would go through all of them.

    A recording makes thousands of objects; tests of what collections do ask for them, tests/surroundings.py at every few objects."""
    gc.set_threshold(10_000, 10, 10)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def settings_are_put_back() -> Iterator[None]:
    """Settings of the process that the tests of a file change, those of torch included, are not what the next file finds."""
    import tracejit  # not before the settings above
    from tracejit.tensor import representation

    libraries = [tracejit, *([sys.modules["torch"]] if "torch" in sys.modules else [])]
    before = [
        (x, x.get_default_dtype(), x.get_float32_matmul_precision(), x.get_deterministic_debug_mode(), x.is_grad_enabled())
        for x in libraries
    ]
    options = dict(vars(representation._options))
    yield
    for library, dtype, precision, mode, grad_enabled in before:
        library.set_default_dtype(dtype)
        library.set_float32_matmul_precision(precision)
        library.set_deterministic_debug_mode(mode)
        library.set_grad_enabled(grad_enabled)
    # Torch's frames stand in front of the program's while a device is set, so that warnings have other lines.
    if "torch" in sys.modules:
        sys.modules["torch"].set_default_device(None)
    vars(representation._options).clear()
    vars(representation._options).update(options)


@pytest.fixture(scope="module", autouse=True)
def what_llvm_compiled_is_not_compiled_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """LLVM compiles a text once for all processes that are given one directory: text, options, processor and versions say all of it."""
    directory = request.config.getoption("--object-code")
    if not directory or request.path.stem in COMPILE_THEMSELVES:
        yield
        return
    from tracejit.native import machine_code, numba_codegen

    compilers = f"{numba_codegen.identity()} {llvmlite.__version__} {machine_code._target_options()}"
    os.makedirs(directory, exist_ok=True)

    def once(compiler: Callable[..., bytes]) -> Callable[..., bytes]:
        def found_or_compiled(text: str, *options: Any, **named: Any) -> bytes:
            about = f"{compilers}\n{compiler.__name__} {options} {sorted(named.items())}"
            name = hashlib.sha256(f"{about}\n{text}".encode()).hexdigest()
            path = Path(directory, name)
            if path.exists():
                return path.read_bytes()
            made = compiler(text, *options, **named)
            unfinished = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
            unfinished.write_bytes(made)
            unfinished.replace(path)
            return made

        return found_or_compiled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba_codegen, "compile_module", once(numba_codegen.compile_module))
        patch.setattr(machine_code, "assemble", once(machine_code.assemble))
        yield


@pytest.fixture
def no_modules_are_left() -> Iterator[None]:
    """Some programs of the corpus make modules that the next one, or another library, must not meet."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if vars(sys.modules[name]).get("__spec__") is None:
            del sys.modules[name]
