"""What is told of the peak of a program's temporary memory (lowering/peak.py)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tracejit
from tracejit.lowering.memory import Request, aligned, plan
from tracejit.lowering.peak import NO_MEMORY, Peak, peak_of


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=8), st.integers(0, 9000)
)
def test_the_peak_is_what_is_alive_at_the_fullest_step(rows: list[tuple[int, int, int]], limit: int) -> None:
    requests = [Request(k, nbytes, first, first + more) for k, (nbytes, first, more) in enumerate(rows)]
    steps = [f"step{k}" for k in range(9)]
    _, nbytes = plan(requests)
    peak = peak_of(requests, nbytes, steps, lambda key: (f"value{key}", None, None), limit)
    alive = [[r for r in requests if r.first <= k <= r.last] for k in range(9)]
    fullest = max(range(9), key=lambda k: sum(aligned(r.nbytes) for r in alive[k]))
    assert peak.step == f"step{fullest}" and peak.used == sum(r.nbytes for r in alive[fullest]) <= peak.nbytes == nbytes
    largest = sorted(alive[fullest], key=lambda r: -r.nbytes)[:4]
    assert list(peak.largest) == [f"{r.nbytes} bytes of value{r.key}" for r in largest]
    assert peak.beyond == max(0, nbytes - limit)


def test_a_program_without_temporary_memory_tells_nothing() -> None:
    assert peak_of([], 0, ["a"], lambda key: ("", None, None), None) == NO_MEMORY == Peak()
    assert NO_MEMORY.lines() == []


def test_explain_and_the_report_tell_lines_of_the_largest_values(tmp_path: Any) -> None:
    @tracejit.compile
    def step(x: Any) -> Any:
        large = tracejit.outer(x, x)  # this line
        return (large @ large).exp().sum()

    for _ in range(2):
        step(tracejit.ones(64))
    line = step.__wrapped__.__code__.co_firstlineno + 2
    text = step.explain(verbose=True)
    assert f"; the largest values are 16384 bytes of mul, {__file__}:{line}; 16384 bytes of matmul, {__file__}:{line + 1}" in text
    step.report(str(tmp_path / "report.html"))
    assert f"16384 bytes of mul, {__file__}:{line}" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_sizes_that_vary_are_told_of_each_program() -> None:
    compiled = tracejit.compile(lambda x: (x.exp() @ x.exp().T).sum())
    for n in (16, 32, 48, 64):
        for _ in range(2):
            compiled(tracejit.ones(n, 16))
    peaks = [executable.program.lowered.peak for executable in compiled.stats.executables]
    assert max(peak.nbytes for peak in peaks) >= 64 * 64 * 4
    assert all(str(peak.used) in peak.lines()[0] for peak in peaks)
