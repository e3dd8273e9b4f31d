"""Memory stays flat while functions are called, recorded and dropped: a short run of tests/stress_memory.py, and of what it is made of."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
from stress_memory import CASES, grown, resident

from tracejit.cpython import programs
from tracejit.native import machine_code

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="this system does not say how much memory a process has"
)
CALLED = [name for name, (rounds, _) in CASES.items() if rounds >= 500]


@pytest.fixture(scope="module")
def growth() -> dict[str, tuple[int, int, int]]:
    return grown(list(CASES), 1)


def test_calls_leave_no_memory_behind(growth: dict[str, tuple[int, int, int]]) -> None:
    assert {name: memory for name in CALLED if (memory := growth[name][1]) > 1 << 20} == {}


def test_calls_and_recordings_leave_no_objects_behind(growth: dict[str, tuple[int, int, int]]) -> None:
    # What fills up once (caches, free lists) is up to 300 blocks; a function that stays is a thousand of them.
    much = {name: (rounds, blocks) for name, (rounds, _, blocks) in growth.items() if blocks > 400 + rounds // 4}
    assert list(growth) == list(CASES) and much == {}


TEXT = f"""define internal i64 @{programs.PROGRAM}(i64 %a, i64 %b) {{
%c = mul i64 %a, %b
%d = add i64 %c, NUMBER
ret i64 %d
}}
"""


def compiled(k: int) -> None:
    programs.load(programs.compile_text(TEXT.replace("NUMBER", str(k))), {})


def linked(k: int) -> None:
    text = f"define i64 @f(i64 %a) {{\nret i64 {k}\n}}"
    machine_code.link(machine_code.assemble(text), {}, "f")


@pytest.mark.parametrize("action", [compiled, linked], ids=lambda action: action.__name__)
def test_machine_code_that_is_dropped_leaves_nothing_of_llvms_behind(action: Callable[[int], Any]) -> None:
    for k in range(100):
        action(k)
    gc.collect()
    before = resident()
    for k in range(300):
        action(1000 + k)
    gc.collect()
    assert resident() - before < 300 * 2000  # each left 9 KB if its linker lived on, and 16 KB if passes ran over it
