"""Object code by Numba's code generator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from tracejit.cpython import programs
from tracejit.native import machine_code, numba_codegen

TEXT = f"""define internal i64 @{programs.PROGRAM}(i64 %a, i64 %b) {{
%c = mul i64 %a, %b
ret i64 %c
}}
"""


@pytest.fixture
def level() -> int:
    """Numba's optimisation level, which may not be touched."""
    return int(numba.config.OPT)


def test_a_text_becomes_code_that_runs(level: int) -> None:
    assert programs.load(programs.compile_text(TEXT), {})(6, 7) == 42
    assert level == numba.config.OPT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no LLVM", "expected"),
        (TEXT.replace("ret i64 %c", "ret i64 %d"), "undefined value"),
        (TEXT.replace("i64 %b)", "i32 %b)"), "defined with type"),
    ],
    ids=["syntax", "name", "type"],
)
def test_a_text_that_llvm_does_not_take_is_an_error_and_leaves_numba_as_it_was(text: str, message: str, level: int) -> None:
    with pytest.raises(RuntimeError, match=message):
        programs.compile_text(text)
    assert level == numba.config.OPT


def test_no_passes_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError("a pass manager was made")

    programs.compile_text(TEXT)
    monkeypatch.setattr(numba.core.codegen, "create_pass_builder", refuse)
    programs.compile_text(TEXT.replace("mul", "add"))


def test_the_same_text_gives_the_same_bytes() -> None:
    assert programs.compile_text(TEXT) == programs.compile_text(TEXT)


def test_numbas_own_functions_compile_as_before() -> None:
    programs.compile_text(TEXT)

    @numba.njit  # type: ignore[untyped-decorator]
    def total(n: int) -> int:
        result = 0
        for k in range(n):
            result += k
        return result

    assert total(10) == 45


SCRIPT = """
import sys
import tracejit

@tracejit.compile
def f(x):
    return x.sin() @ x

f(tracejit.ones(8, 8))
print("numba.core.codegen" in sys.modules, "numba.np.arraymath" in sys.modules, "scipy.linalg" in sys.modules)
"""


def test_compiling_loads_no_implementations_of_numba(tmp_path: Path) -> None:
    """They take longer to load than a training step to compile."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRACEJIT_CACHE": "0"}
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert said.stdout.split() == ["True", "False", "False"], said.stderr


def test_another_numba_is_another_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert numba.__version__ in numba_codegen.identity()
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").touch()
    (tmp_path / "numba" / "_version.py").write_text('version = "99"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "numba")
    assert numba_codegen.identity.__wrapped__() == 'version = "99"\n'


def test_a_long_text_is_compiled_in_parts_and_computes_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = [
        f"define internal i64 @step{k}(i64 %x) noinline nounwind {{\n  %y = add i64 %x, {k}\n  ret i64 %y\n}}" for k in range(20)
    ]
    calls = [f"  %x{k + 1} = call i64 @step{k}(i64 %x{k})" for k in range(20)]
    program = f"define internal i64 @{programs.PROGRAM}(i64 %x0, i64 %b) {{\n" + "\n".join(calls) + "\n  ret i64 %x20\n}"
    text = "\n".join(["declare i64 @labs(i64)", *functions, program])
    monkeypatch.setattr(machine_code, "_PART", 300)
    assert len(machine_code._parts(text)) > 4
    assert programs.load(programs.compile_text(text), {})(5, 0) == 5 + sum(range(20))


@pytest.mark.parametrize("wrong", [b"", b"x", bytes(8), b"\1" + bytes(7), b"\1" + bytes(14) + b"\1", b"\xff" * 64])
def test_bytes_that_are_no_object_files_are_refused(wrong: bytes) -> None:
    with pytest.raises(RuntimeError, match=f"these {len(wrong)} bytes are no object files"):
        programs.load(wrong, {})
