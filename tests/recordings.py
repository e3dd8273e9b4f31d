"""What is recorded of the corpus, of everyday programs and of loops, for comparison before and after a change that should keep it.

    python -m tests.recordings write FILE            # a minute or two
    python -m tests.recordings compare BEFORE AFTER  # prints what differs; exit status 1 if anything does

Of each recording of each program: the graph, the guards, the effects, the result, the reason; and of the function how many calls were
compiled and why others were not.  Addresses, temporary names and lines of the library's files are left out, and hashes of strings are
those of one seed, so what two processes of one checkout write is equal.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))

from capture_programs import PROGRAMS  # noqa: E402
from capture_programs import run as run_program  # noqa: E402
from everyday_programs import EVERYDAY  # noqa: E402
from everyday_programs import run as run_everyday  # noqa: E402

import tracejit as T  # noqa: E402
from tests import loop_programs  # noqa: E402
from tracejit.capture import session  # noqa: E402
from tracejit.capture.recording.entry import Recording  # noqa: E402
from tracejit.config import override  # noqa: E402
from tracejit.ir.graph import Graph  # noqa: E402
from tracejit.ir.printer import to_text  # noqa: E402

__all__ = ["differences", "recordings_of", "text_of"]

_VARIES = (
    (re.compile(r"0x[0-9a-f]{6,}"), "ADDRESS"),
    (re.compile(re.escape(tempfile.gettempdir()) + r"/\w+"), "TEMPORARY"),
    (re.compile(re.escape(str(TESTS.parent)) + "/"), ""),
    (re.compile(r"(tracejit/[\w/]+\.py):\d+"), r"\1"),
    (re.compile(r"^ *# \w+: .*\n", re.M), ""),  # what passes have done to a graph, and in what time
)


def text_of(recording: Recording) -> str:
    """All that a recording says, a line for each part: the same for equal recordings of two processes."""
    lines = []
    for field in dataclasses.fields(recording):
        value = getattr(recording, field.name)
        if not field.repr or not value:
            continue
        if isinstance(value, Graph):
            lines.append(to_text(value))
        elif isinstance(value, tuple):
            lines += [f"{field.name}: {part!r}" for part in value]
        else:
            lines.append(f"{field.name}: {value!r}")
    return "\n".join(lines)


def _without_what_varies(text: str) -> str:
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return text


@contextmanager
def _kept(recordings: list[Recording]) -> Iterator[None]:
    """Within the block what any function records is added to the list."""
    record = session.record

    def kept(*arguments: Any, **keywords: Any) -> Any:
        recording, result = record(*arguments, **keywords)
        recordings.append(recording)
        return recording, result

    users = [m for n, m in list(sys.modules.items()) if n.startswith("tracejit.compiled") and vars(m).get("record") is record]
    if not users:
        raise RuntimeError("no module of tracejit.compiled calls tracejit.capture.session.record: say here which one does")
    for module in users:
        module.record = kept  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in users:
            module.record = record  # type: ignore[attr-defined]


def recordings_of(play: Callable[[], Any]) -> list[str]:
    """The texts of what is recorded while a program runs, which returns its compiled function; last, what became of its calls."""
    recordings: list[Recording] = []
    with override(backend="interpret"), _kept(recordings):
        function = play()
    summary = []
    if isinstance(function, T.CompiledFunction):
        reasons = {str(reason): count for reason, count in function.reasons.items()}
        summary = [f"compiled calls: {function.stats.compiled_calls}; reasons: {json.dumps(reasons)}"]
    return [_without_what_varies(text) for text in (*map(text_of, recordings), *summary)]


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """For each program that differs, or is in one of them only: its name and the lines that differ."""
    found = []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            sides = ["\n".join(side.get(name, ["(no such program)"])).splitlines() for side in (before, after)]
            found.append("\n".join([name, *list(difflib.unified_diff(*sides, "before", "after", lineterm="", n=0))[2:]]))
    return found


def _called_with_lengths(loop: Callable[[Any], Any]) -> Any:
    function = T.compile(loop)
    for length in (40, 25, 60):
        try:
            function(loop_programs.parameter(length, 2, loop_programs.WIDTH).detach())
        except (IndexError, RuntimeError):
            continue  # those of one length: the recordings tell
    return function


def _all() -> dict[str, list[str]]:
    plays: dict[str, Callable[[], Any]] = {}
    for name, (maker, _) in PROGRAMS.items():
        plays[name] = lambda maker=maker: run_program(maker, T.compile)[1]
    for name, (maker, *_) in EVERYDAY.items():
        plays[f"everyday {name}"] = lambda maker=maker: run_everyday(maker, T.compile)[1]
    for name, loop in vars(loop_programs).items():
        if inspect.isfunction(loop) and list(inspect.signature(loop).parameters) == ["xs"]:
            plays[f"loop {name}"] = lambda loop=loop: _called_with_lengths(loop)
    return {name: recordings_of(play) for name, play in plays.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.recordings", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("file", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args(argv)
    if arguments.command == "write":
        if os.environ.get("PYTHONHASHSEED") != "0":
            command = [sys.executable, "-W", "ignore", "-m", "tests.recordings", "write", str(arguments.file)]
            return subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}).returncode
        with override(compile_wait=math.inf, cache=False):
            found = _all()
        arguments.file.write_text(json.dumps(found, indent=0))
        print(f"{sum(map(len, found.values())) - len(found)} recordings of {len(found)} programs")
        return 0
    before, after = (json.loads(file.read_text()) for file in (arguments.before, arguments.after))
    differing = differences(before, after)
    print(*differing, f"{len(differing)} of {len(before)} programs differ", sep="\n\n")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
