"""`python -m tests.recordings`: equal recordings have equal texts, others do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tests.recordings import differences, main, recordings_of


def program(kind: str, size: int = 2) -> Any:
    settings = {"kind": kind}

    def function(x: T.Tensor) -> T.Tensor:
        return x * 2 if settings["kind"] in ("a", "b") else x + 1

    def play() -> Any:
        compiled = T.compile(function)
        for _ in range(2):
            compiled(T.ones(size))
        return compiled

    return play


def test_a_program_has_the_same_texts_each_time() -> None:
    first, second = recordings_of(program("a")), recordings_of(program("a"))
    assert first == second
    recording, summary = first
    assert "mul(v0, 2)" in recording and "guards: Miss" in recording
    assert summary == "compiled calls: 1; reasons: {}"


@pytest.mark.parametrize("other", [program("c"), program("b"), program("a", 3)], ids=["branch", "guard", "size"])
def test_another_recording_has_another_text(other: Any) -> None:
    assert recordings_of(other) != recordings_of(program("a"))


def test_a_reason_is_part_of_what_is_compared() -> None:
    def play() -> Any:
        compiled = T.compile(lambda x: x * len(sys._current_frames()))
        compiled(T.ones(2))
        return compiled

    recording, summary = recordings_of(play)
    assert "reason: Reason(code=" in recording and summary.startswith('compiled calls: 0; reasons: {"[')


def test_programs_that_differ_are_named_with_the_lines_that_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {"kept": ["a\nb"], "changed": ["a\nb\nc"], "gone": ["a"]}
    after = {"kept": ["a\nb"], "changed": ["a\nd\nc"], "new": ["a"]}
    changed, gone, new = differences(before, after)
    assert changed == "changed\n@@ -2 +2 @@\n-b\n+d"
    assert gone.startswith("gone\n") and "+(no such program)" in gone
    assert new.startswith("new\n") and "-(no such program)" in new
    files = [tmp_path / "before", tmp_path / "after"]
    for file, document in zip(files, (before, after), strict=True):
        file.write_text(json.dumps(document))
    assert main(["compare", *map(str, files)]) == 1 and "3 of 3 programs differ" in capsys.readouterr().out
    assert main(["compare", str(files[0]), str(files[0])]) == 0
