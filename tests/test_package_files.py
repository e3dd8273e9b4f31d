"""core/package_files.py: whose a frame is depends on where the package stands, whatever directories are called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tracejit
from tracejit import nn
from tracejit.core.package_files import PACKAGE, is_own_code, is_own_frame, own_file, own_folder

ROOT = Path(tracejit.__file__).parent


def frames_inside(call: Any) -> list[Any]:
    """The frames that are entered while something is called."""
    seen: list[Any] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: seen.append(frame) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(before)
    return seen


def test_the_package_is_where_its_files_are() -> None:
    assert Path(PACKAGE) == ROOT and PACKAGE.endswith(os.sep)
    assert Path(own_folder("nn")) == ROOT / "nn" and Path(own_file("nn", "module.py")).is_file()


def test_frames_of_the_library_and_of_the_program_are_told_apart() -> None:
    def program() -> None:
        nn.Linear(2, 2)(tracejit.ones(1, 2))

    frames = frames_inside(program)
    own = [frame.f_code.co_name for frame in frames if is_own_frame(frame)]
    assert "forward" in own and program.__name__ not in own
    assert [frame.f_code.co_name for frame in frames if not is_own_frame(frame) and frame.f_code.co_filename == __file__] == [
        "program"
    ]
    assert is_own_code(nn.Linear.forward.__code__) and not is_own_code(program.__code__)


PROGRAM = """
import warnings
import tracejit as tj


def loss(x):
    return (x.sqrt() * 0).sum()  # the line that is named


x = tj.zeros(2, requires_grad=True)
with warnings.catch_warnings(record=True) as told, tj.autograd.detect_anomaly():
    warnings.simplefilter("always")
    try:
        loss(x).backward()
    except RuntimeError as error:
        assert "nan" in str(error)
assert any("# the line that is named" in str(w.message) for w in told), [str(w.message) for w in told]
"""


def test_a_program_below_a_directory_of_the_name_of_the_package_has_its_lines(tmp_path: Path) -> None:
    script = tmp_path / "tracejit" / "tracejit" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_frames_without_a_name_of_a_module_are_the_programs() -> None:
    frames: list[Any] = []
    exec("import sys\nframes.append(sys._getframe())", {"__name__": None, "frames": frames})
    assert not is_own_frame(frames[0])


def test_no_module_tells_frames_by_the_name_of_a_directory() -> None:
    asking = [
        path
        for path in ROOT.rglob("*.py")
        for line in path.read_text().splitlines()
        if '"/tracejit' in line or 'tracejit/"' in line
    ]
    assert asking == []
