"""Machine code that survives processes: found again, never trusted, never needed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.fuzz.noise import of_the_library
from tracejit import cache
from tracejit.config import override
from tracejit.core import dtypes
from tracejit.cpython import programs as program_code
from tracejit.llvm import driver
from tracejit.loops.expressions import Load
from tracejit.loops.language import Axis, Buffer, For, Index, Nest, Size, Store
from tracejit.lowering.steps import Address, ArraySpec, NestCall, ProgramSpec
from tracejit.native import machine_code, object_cache

pytestmark = pytest.mark.skipif(not object_cache._SUPPORTED, reason="this system has no owners of files")

F64 = dtypes.float64
KEYS = [f"{k:064x}" for k in range(8)]
SCRIPT = """
import sys
import numpy as np
import tracejit as T

@T.compile
def f(x, w):
    return ((x @ w).tanh() * 2 + x.sin()).sum()

x = T.tensor(np.linspace(-1, 1, 36).reshape(6, 6))
for _ in range(2):
    result = f(x, x).item()
info = T.cache.info()
print(f.stats.compiled_calls, info.compiled, info.hits, info.stored, info.files, result)
"""
KILLED = {
    "in the middle of a file": "write = os.write; os.write = lambda at, data: (write(at, data[: len(data) // 2]), stop())",
    "before a file has its name": "os.replace = stop",
}
STOP = """
import os, signal

def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

"""
LIMITED = """
import resource

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # no file may grow beyond that, as on a full disk
"""
BUSY = """
import random, sys
from tracejit.native import object_cache

dice = random.Random(sys.argv[1])
found = 0
for _ in range(80):
    number = dice.randrange(12)
    key, content = f"{number:064x}", bytes([number]) * 150_000
    if dice.random() < 0.5:
        object_cache.keep(key, content)
    else:
        taken = object_cache.take(key)
        found += taken is not None
        assert taken in (None, content)
print(found > 0, object_cache.counts.evicted, object_cache.counts.refused, object_cache.counts.failed)
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache directory of the test's own, that does not exist yet; nothing is remembered within the process."""
    monkeypatch.setattr(driver, "_known", type(driver._known)())
    monkeypatch.setattr(object_cache, "counts", object_cache.Counts())
    with override(cache=True, cache_dir=str(tmp_path / "cache"), cache_size=1):
        yield tmp_path / "cache"


def start(script: Path, directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    settings = {
        **os.environ,
        "TRACEJIT_CACHE": "1",
        "TRACEJIT_CACHE_DIR": str(directory),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, str(script), *arguments]
    return subprocess.Popen(
        command, env={**settings, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.parent
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    """What the script printed.  It must have ended well, without a word on stderr."""
    out, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (0, "")
    return out.split()


def assert_compiled_and_stored(said: list[str]) -> None:
    """The script ran where nothing was kept.  Besides its program it may have stored functions that all programs share."""
    calls, compiled, hits, stored, files, _ = said
    assert (calls, compiled, hits) == ("1", "1", "0") and int(stored) == int(files) >= 1


def assert_found(said: list[str], before: list[str]) -> None:
    """The script found everything that an earlier process had stored, and computed the same."""
    calls, compiled, hits, stored, files, result = said
    assert (calls, compiled, hits, stored) == ("1", "0", files, "0") and result == before[-1]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def run(factor: float = 3.0) -> cache.CacheInfo:
    """Compile (or find) and run out = x * factor as a new process would; what the cache has done so far."""
    driver._known.clear()
    x, out = np.arange(20.0), np.zeros(20)
    source, target, i, n = Buffer("x", F64), Buffer("out", F64), Axis("i"), Size("n")
    at = Index(((i, 1),))
    nest = Nest("scale", (source, target), (n,), (), (For(i, n, (Store(target, at, Load(source, at) * factor),), vector=True),))
    arrays = ArraySpec(F64, x.shape, x.strides), ArraySpec(F64, x.shape, x.strides, True)
    program = driver.compile_program(ProgramSpec(arrays, (NestCall(nest, (Address(1), Address(2)), (20,), ()),), slots=3))
    table = program.template.copy()
    bound = (x, out)
    assert program.run(table.ctypes.data, id(bound)) == driver.OK
    np.testing.assert_array_equal(out, np.arange(20.0) * factor)
    return cache.info()


def programs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*" + object_cache.SUFFIX))


# --- between processes


def test_a_second_process_compiles_nothing(script: Path, directory: Path) -> None:
    first = finish(start(script, directory))
    second = finish(start(script, directory))
    assert_compiled_and_stored(first)
    assert_found(second, first)


def test_eight_processes_at_once_agree(script: Path, directory: Path) -> None:
    processes = [start(script, directory) for _ in range(8)]
    results = [finish(process) for process in processes]
    assert {(calls, result) for calls, *_, result in results} == {("1", results[0][-1])}
    assert_found(finish(start(script, directory)), results[0])
    assert programs(directory) == sorted(directory.iterdir())


def test_processes_that_store_read_and_make_room_at_once_do_not_hinder_each_other(directory: Path, tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    processes = [start(script, directory, str(number), TRACEJIT_CACHE_SIZE="1") for number in range(8)]
    said = [finish(process) for process in processes]
    assert sum(int(evicted) for _, evicted, _, _ in said) > 0
    assert {(found, refused, failed) for found, _, refused, failed in said} == {("True", "0", "0")}
    assert 0 < cache.info().size <= cache.info().limit and not list(directory.glob("*.tmp"))


@pytest.mark.parametrize("when", KILLED)
def test_a_process_killed_while_it_stores_leaves_nothing_that_is_read(script: Path, directory: Path, when: str) -> None:
    dying = script.with_name("dying.py")
    dying.write_text(STOP + KILLED[when] + SCRIPT)
    process = start(dying, directory)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    (left,) = directory.iterdir()
    assert left.suffix == ".tmp" and left.stat().st_size > 0
    first = finish(start(script, directory))
    assert_compiled_and_stored(first)
    assert_found(finish(start(script, directory)), first)


def test_a_process_whose_files_may_not_grow_computes_without_the_cache(script: Path, directory: Path) -> None:
    limited = script.with_name("limited.py")
    limited.write_text(LIMITED + SCRIPT)
    assert finish(start(limited, directory))[:5] == ["1", "1", "0", "0", "0"]
    assert list(directory.iterdir()) == []


def test_an_unwritable_home_is_no_obstacle(script: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = str(tmp_path / "file" / "home")  # below a file: no one, root neither, can make it
    result = finish(start(script, Path(""), HOME=home, TRACEJIT_CACHE_DIR="", XDG_CACHE_HOME=""))
    assert result[:5] == ["1", "1", "0", "0", "0"]


def test_the_cache_can_be_switched_off(script: Path, directory: Path) -> None:
    assert finish(start(script, directory, TRACEJIT_CACHE="0"))[:5] == ["1", "1", "0", "0", "0"]
    assert not directory.exists()


# --- within one


def test_the_process_that_compiles_runs_the_very_bytes_that_it_stores(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, loaded = program_code.load, []
    with override(cache=False):
        run(3.0)  # what a process compiles once

    def listen(object_code: bytes, imports: Any) -> Any:
        loaded.append(object_code)
        return load(object_code, imports)

    monkeypatch.setattr(program_code, "load", listen)
    assert run().compiled and run().hits == 1
    (file,) = programs(directory)
    assert loaded[0] == loaded[1] and file.read_bytes().endswith(loaded[0])


def test_a_program_is_found_again_and_another_one_is_not() -> None:
    assert (run().compiled, run().hits, run().hits) == (driver.compilations(), 1, 2)
    before = driver.compilations()
    assert run(5.0).hits == 2 and driver.compilations() == before + 1


@pytest.mark.parametrize("part", ["empty", "header cut", "content cut", "longer"])
def test_a_file_of_another_length_is_refused(directory: Path, part: str) -> None:
    run()
    (file,) = programs(directory)
    data = file.read_bytes()
    file.write_bytes({"empty": b"", "header cut": data[:40], "content cut": data[:-1], "longer": data + b"\0"}[part])
    info = run()
    assert (info.hits, info.refused, info.stored, info.files) == (0, 1, 2, 1)
    assert file.read_bytes() == data and run().hits == 1


def test_no_flipped_bit_reaches_llvm(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    object_cache.keep(KEYS[1], b"machine code" * 9)
    (file,) = programs(directory)
    data = bytearray(file.read_bytes())
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        file.write_bytes(changed)
        assert object_cache.take(KEYS[1]) is None, position
        assert not file.exists()
    assert object_cache.counts.refused == len(data)


def test_a_flipped_bit_in_machine_code_means_compiling(directory: Path) -> None:
    run()
    (file,) = programs(directory)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    assert run().refused == 1 and run().hits == 1


def test_another_programs_file_under_this_name_is_refused(directory: Path) -> None:
    run()
    (mine,) = programs(directory)
    run(5.0)
    (other,) = set(programs(directory)) - {mine}
    mine.write_bytes(other.read_bytes())
    assert run().refused == 1


def test_whole_bytes_that_are_no_object_code_are_refused(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run()
    (file,) = programs(directory)
    object_cache.keep(file.stem, b"no object code")
    info = run()
    assert (info.hits, info.refused) == (0, 1)
    assert run().hits == 1
    assert capfd.readouterr() == ("", "")


def test_a_symbol_that_is_not_there_means_compiling(directory: Path) -> None:
    run()
    (file,) = programs(directory)
    text = "declare void @no_such_function()\ndefine internal i64 @tracejit_program(i64 %a, i64 %b) noinline {\n"
    object_cache.keep(file.stem, program_code.compile_text(text + "call void @no_such_function()\nret i64 0\n}"))
    assert run().refused == 1 and run().hits == 1


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_to_is_not_used(directory: Path, mode: int) -> None:
    run()
    directory.chmod(mode)
    info = run()
    assert (info.hits, info.failed) == (0, 2) and f"mode {mode:o}" in info.problem
    with pytest.raises(RuntimeError, match="can be written to by others"):
        cache.clear()
    directory.chmod(0o700)
    assert run().hits == 1


def test_a_file_that_others_can_write_to_is_refused(directory: Path) -> None:
    run()
    (file,) = programs(directory)
    file.chmod(0o620)
    assert run().refused == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and run().hits == 1


def test_what_belongs_to_someone_else_is_not_used(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        info = run()
        assert (info.hits, info.failed) == (0, 2) and "belongs to user" in info.problem
    assert run().hits == 1


def test_symbolic_links_are_not_followed(directory: Path, tmp_path: Path) -> None:
    run()
    (file,) = programs(directory)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert run().hits == 0 and not file.is_symlink()  # the link was replaced
    directory.rename(tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    info = run()
    assert info.hits == 0 and info.problem


@pytest.mark.parametrize("made", ["directory", "pipe"])
def test_what_is_no_regular_file_is_no_obstacle(directory: Path, made: str) -> None:
    run()
    (file,) = programs(directory)
    file.unlink()
    if made == "directory":
        file.mkdir()
    else:
        os.mkfifo(file)
    assert run().hits == 0


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_read_only_directory_is_read(directory: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    run()
    opened = os.open

    def open_to_read(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY):
            raise OSError(error, os.strerror(error))
        return opened(path, flags, *rest, **options)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", of_the_library(open_to_read))
    monkeypatch.setattr(os, "utime", of_the_library(refuse))
    assert run().hits == 1
    info = run(5.0)
    assert (info.stored, info.failed, info.files) == (1, 1, 1)


@pytest.mark.parametrize("function", ["write", "replace"])
def test_a_full_disk_leaves_nothing_behind(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], function: str
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, of_the_library(refuse))
    with override(debug=1):
        info = run()
    assert (info.stored, info.failed) == (0, 1) and list(directory.iterdir()) == []
    assert os.strerror(errno.ENOSPC) in capsys.readouterr().err


def test_a_write_in_pieces_is_whole(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    object_cache.keep(KEYS[1], b"machine code" * 20)
    assert object_cache.take(KEYS[1]) == b"machine code" * 20


def test_what_a_killed_writer_left_is_not_read_and_goes_in_time(directory: Path) -> None:
    object_cache.keep(KEYS[1], b"machine code")
    new, old = directory / "new.tmp", directory / "old.tmp"
    for file in (new, old):
        file.write_bytes(programs(directory)[0].read_bytes()[:20])
    os.utime(old, (1, 1))
    assert cache.info().files == 1
    object_cache.keep(KEYS[2], b"machine code")
    assert new.exists() and not old.exists()  # someone may still be writing the new one
    assert cache.clear() == 2 and list(directory.iterdir()) == []


def test_what_was_used_longest_ago_makes_room(directory: Path) -> None:
    content = bytes(300_000)
    for k in range(3):
        object_cache.keep(KEYS[k], content)
        os.utime(directory / (KEYS[k] + object_cache.SUFFIX), (k + 1, k + 1))
    assert object_cache.take(KEYS[0]) == content  # now the one used last
    object_cache.keep(KEYS[3], content)
    assert [file.stem for file in programs(directory)] == [KEYS[0], KEYS[2], KEYS[3]]
    info = cache.info()
    assert (info.evicted, info.files) == (1, 3) and info.size <= info.limit == 1 << 20


def test_what_is_larger_than_the_limit_is_not_kept() -> None:
    object_cache.keep(KEYS[0], bytes(1 << 20))
    assert cache.info().files == 0


@pytest.mark.parametrize("part", ["processor", "features", "LLVM", "llvmlite", "NumPy", "format"])
def test_another_machine_or_version_is_another_name(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    run()
    llvm, features = machine_code.llvm, type(machine_code.llvm.get_host_cpu_features())
    replacement: dict[str, tuple[Any, str, Any]] = {
        "processor": (llvm, "get_host_cpu_name", lambda: "another"),
        "features": (llvm, "get_host_cpu_features", lambda: features({"avx9": True})),
        "LLVM": (llvm, "llvm_version_info", (99, 0, 0)),
        "llvmlite": (machine_code.llvmlite, "__version__", "99"),
        "NumPy": (np, "__version__", "99"),
        "format": (machine_code, "FORMAT", 99),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*replacement[part])
        machine_code.identity.cache_clear()
        changed = machine_code.identity()
    machine_code.identity.cache_clear()
    assert changed != machine_code.identity()
    monkeypatch.setattr(machine_code, "identity", lambda: changed)
    assert (run().hits, cache.info().files) == (0, 2)


def test_clear_removes_programs_and_nothing_else(directory: Path) -> None:
    assert (cache.clear(), cache.info().files) == (0, 0)
    run()
    (directory / "notes").write_text("the user's")
    assert T.cache.clear() == 1 and [file.name for file in directory.iterdir()] == ["notes"]
    assert run().hits == 0


def test_the_directory_is_the_users_own(directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and cache.info().directory == str(directory)
    with override(cache_dir=""):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache.info().directory == str(tmp_path / "tracejit")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert cache.info().directory == str(tmp_path / "home" / ".cache" / "tracejit")


LONG = """
import random, sys
import tracejit as T
random.seed(0)
ways = [random.randrange(5) for _ in range(400)]
functions = [T.tanh, T.sin, T.relu, T.sigmoid, T.cos]
w = T.ones(32, 32, requires_grad=True)
@T.compile
def f(x):
    for k in ways:
        x = functions[k](x @ w + x)
    return x.sum()
for _ in range(int(sys.argv[1])):
    f(T.ones(3, 32))
print(f.stats.compiled_calls, T.cache.info().refused, flush=True)
"""


def last_seconds(directory: Path, calls: int, wait: str) -> tuple[str, float]:
    """What a process prints whose program is large, and how long it is there after that."""
    script = directory / "long.py"
    script.write_text(LONG)
    root = str(Path(T.__file__).parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": root,
        "TRACEJIT_CACHE_DIR": str(directory / "files"),
        "TRACEJIT_COMPILE_WAIT": wait,
    }
    command = [sys.executable, script, str(calls)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        begun = time.monotonic()
        _, errors = process.communicate(timeout=120)
        seconds = time.monotonic() - begun
    assert (process.returncode, errors) == (0, "")
    return said.strip(), seconds


def test_a_process_does_not_wait_at_its_end_for_what_compiles_in_the_background_and_leaves_whole_files(tmp_path: Path) -> None:
    dropped = []
    for wait in ("0", "0.2", "0.6"):  # in the passes, in the code generator's start, between two of its functions
        said, seconds = last_seconds(tmp_path, 1, wait)
        assert said == "0 0"
        dropped.append(seconds)
    said, usual = last_seconds(tmp_path, 2, "inf")
    assert said == "1 0"  # no file was refused
    assert min(dropped) < usual + 0.5
