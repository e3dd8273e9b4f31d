"""Layouts that are wrong, that nobody has tested, or that are of another build: what is off, what is said, and that programs are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tracejit.cpython import c_api, layouts
from tracejit.report.system import facts, slower

ROOT = Path(__file__).resolve().parent.parent
VERSION = sys.version_info[:2]
on_tested = pytest.mark.skipif(VERSION not in layouts.TESTED, reason="the layout of this version is not known for certain")
OFF = "from Python, since what cannot be translated is objects of"

CHILD = """
import importlib.util, json, sys
from dataclasses import replace
specification = importlib.util.spec_from_file_location("tracejit.cpython.layouts", sys.argv[1])
layouts = importlib.util.module_from_spec(specification)
sys.modules["tracejit.cpython.layouts"] = layouts
specification.loader.exec_module(layouts)
VERSION = layouts.build().version
own, real = layouts.LAYOUTS.get(VERSION), layouts.build
exec(sys.argv[2])

import tracejit as T
from tracejit.config import config
from tracejit.core import interrupts
from tracejit.report.system import facts

config.hot_calls = 2
EVENTS = []

class State:
    def __init__(self):
        self.scale, self.calls, self.seen = 2.0, 0, [1.0, 2.0]

class Table:
    def __getitem__(self, key):
        return key * 3.0

state, table = State(), Table()
layer = T.nn.Linear(4, 4)
optimizer = T.optim.SGD(layer.parameters(), lr=0.125, momentum=0.5)

def step(x):
    optimizer.zero_grad()
    state.calls += 1
    loss = (layer(x) * state.scale + state.seen[0]).sum() + table[x].sum()
    loss.backward()
    optimizer.step()
    return loss.detach()

def run(function):
    T.manual_seed(0)
    layer.reset_parameters()
    optimizer.state.clear()
    state.scale, state.calls, state.seen = 2.0, 0, [1.0, 2.0]
    losses = []
    for k in range(12):
        if k == 6:
            state.scale = 3.0
        if k == 9:
            state.seen[0] = 5.0
        losses.append(float(function(T.full((3, 4), float(k % 5)))))
    return losses, state.calls, layer.weight.sum().item()

compiled = T.compile(step, wait=True)
fast, plain = run(compiled), run(step)
print(json.dumps({
    "equal": all(abs(a - b) <= 1e-4 * max(1, abs(b)) for a, b in zip(fast[0], plain[0])) and fast[1] == plain[1]
    and abs(fast[2] - plain[2]) < 1e-4, "served": compiled.stats.compiled_calls, "explain": " ".join(compiled.explain().split()),
    "verbose": " ".join(compiled.explain(verbose=True).split()), "facts": facts(), "covers": len(interrupts._cover),
}))
"""


def child(change: str) -> dict[str, Any]:
    """What a process finds in which `change` was made to the table of layouts before the library was imported."""
    path = str(ROOT / "tracejit" / "cpython" / "layouts.py")
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", CHILD, path, change], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert found["equal"] and found["served"] >= 6, found
    return found


def used(found: dict[str, Any]) -> set[str]:
    return {name for name, state in found["facts"]["interpreter"].items() if state == "in use"}


@on_tested
def test_on_a_version_that_is_tested_all_is_in_use() -> None:
    found = {"facts": facts()}
    assert used(found) == set(found["facts"]["interpreter"]) and found["facts"]["tested"] and slower() == ""


@on_tested
def test_a_layout_that_was_not_tested_is_used_where_the_self_test_passes() -> None:
    """Counts of 32 bits and pointers without their lowest bits, as in CPython 3.14, are right on the versions before it as well."""
    found = child("layouts.TESTED = (); layouts.LAYOUTS[VERSION] = replace(own, count_bits=32, frame_tag=3)")
    assert used(found) == set(found["facts"]["interpreter"]) and not found["facts"]["tested"]
    assert "calls: from machine code" in found["verbose"] and "longer than on other Pythons" not in found["explain"]


@on_tested
def test_a_layout_that_fails_the_self_test_is_not_used_and_said_to_be_wrong() -> None:
    found = child("layouts.LAYOUTS[VERSION] = replace(own, cell=24, list_items=16)")
    sentence = "they have items, cells elsewhere"
    assert OFF in found["verbose"] and sentence in found["verbose"]
    assert sentence in found["explain"] and "what is around programs stays Python" in found["explain"]
    states = found["facts"]["interpreter"]
    assert sentence in states["calls enter programs from machine code"]
    assert states["programs are machine code"] == "in use" and found["covers"] == 1


@on_tested
def test_a_wrong_offset_turns_off_what_reads_it_and_nothing_else() -> None:
    found = child("layouts.LAYOUTS[VERSION] = replace(own, frame_globals=40, keys=16)")
    states = found["facts"]["interpreter"]
    assert set(states) - used(found) == {
        "frames are watched by machine code while a call is recorded", "objects are checked by comparing words of memory",
    }  # fmt: skip
    assert "they have code and globals elsewhere" in states["frames are watched by machine code while a call is recorded"]
    assert "calls: from machine code, which checks objects one by one, since containers" in found["verbose"]
    assert "objects are checked one by one, since containers or instances of this build" in found["explain"]


@on_tested
def test_any_offset_that_is_wrong_is_found_and_ends_no_process() -> None:
    """Each field of the table in one process: the self-tests of a wrong row fail, and read nothing that ends it."""
    code = """
import sys
from dataclasses import fields, replace
from tracejit.cpython import c_api, call_hook, layouts, memory_reads, watchers, words
def fails(name, value):
    right = layouts.LAYOUTS[layouts.build().version]
    wrong = replace(right, **{name: value})
    for module in (c_api, call_hook, words, watchers):
        module.LAYOUT = wrong
    for constant in ("TYPE", "SIZE", "LIST_ITEMS", "NUMBER", "MAPPING", "CELL", "METHOD", "METHOD_SELF", "REFERENT", "CALLED", "FLAGS",
                     "DICTIONARY"):
        setattr(c_api, constant, getattr(wrong, constant.lower()))
    words.SIZE = wrong.size
    checks = {**c_api._CHECKS, **words._CHECKS, "frames": call_hook._frames_are_known, "values": watchers._values_are_known}
    return c_api.failed_checks(checks)
right = layouts.LAYOUTS[layouts.build().version]
assert fails("cell", right.cell) == ""
for field in fields(layouts.Layout):
    value = getattr(right, field.name)
    if type(value) is not int or field.name == "frame_tag":
        continue
    for other in ({"count_bits": [8]}.get(field.name) or [value + 8, value - 8, value + 4096, 1 << 40, -(1 << 40)]):
        assert fails(field.name, other), (field.name, other)
print("all found")
"""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.stdout.strip() == "all found", result.stderr[-3000:]


@on_tested
def test_memory_of_objects_that_are_gone_does_not_pass_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word behind a cell is padding: it still holds the item of a tuple whose memory the cell was given."""
    make = c_api._cell

    def in_the_memory_of_a_tuple(content: Any) -> Any:
        gone = [(content,) for _ in range(3000)]
        del gone
        return make(content)

    monkeypatch.setattr(c_api, "_cell", in_the_memory_of_a_tuple)
    checks = {"cells": c_api._CHECKS["cells"]}
    assert c_api.failed_checks(checks) == ""
    monkeypatch.setattr(c_api, "CELL", c_api.CELL + 8)
    assert c_api.failed_checks(checks) == "they have cells elsewhere"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("del layouts.LAYOUTS[VERSION]", "their layout is known for CPython"),
        ("layouts.build = lambda: replace(real(), free_threaded=True)", "objects of a free-threaded build of CPython"),
    ],
)
def test_on_other_versions_and_builds_programs_are_machine_code_and_what_is_around_them_is_python(
    change: str, sentence: str
) -> None:
    found = child(change)
    assert OFF in found["verbose"] and sentence in found["verbose"] and sentence in found["explain"]
    states = found["facts"]["interpreter"]
    assert states["programs are machine code"] == "in use"
    assert all(
        sentence in states[name]
        for name in ("calls enter programs from machine code", "objects are checked by comparing words of memory")
    )


def test_another_implementation_is_not_looked_at() -> None:
    found = child('layouts.build = lambda: replace(real(), implementation="pypy", text="PyPy 3.11")')
    assert not used(found) and found["covers"] == 0
    assert "backend numba, since the memory of PyPy 3.11's objects is not known" in found["verbose"]
    assert "programs are compiled by Numba alone, since the memory of PyPy 3.11's objects" in found["explain"]


def test_a_debug_build_and_pointers_of_32_bits_are_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    real = layouts.build()
    for change, kind in (
        ({"debug": True}, "debug"),
        ({"header": 24}, "special"),
        ({"debug": True, "free_threaded": True}, "debug, free"),
    ):
        changed = replace(real, version=(3, 13), **change)  # type: ignore[arg-type]
        monkeypatch.setattr(layouts, "build", lambda changed=changed: changed)
        assert layouts.obstacle().startswith(f"objects of a {kind}")
    monkeypatch.setattr(layouts, "build", lambda: replace(real, version=(3, 13), debug=False, free_threaded=False, header=16))
    assert layouts.obstacle() == ""


def test_the_table_has_the_versions_that_are_tested_and_the_next_one() -> None:
    assert set(layouts.TESTED) < set(layouts.LAYOUTS) and max(layouts.LAYOUTS) == (3, 14)
    newest = layouts.LAYOUTS[3, 14]
    assert newest.immortal and newest.version is None and (newest.count_bits, newest.frame_tag) == (32, 3)
    assert all(layout.hides_frames for version, layout in layouts.LAYOUTS.items() if version not in layouts.TESTED)
    assert {field.name for field in fields(layouts.Layout)} >= {"count_bits", "frame_code", "values"}
