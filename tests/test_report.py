"""`fn.report()`: one HTML file about a compiled function, and the short form for notebooks."""

from __future__ import annotations

import html
import linecache
import os
import re
import runpy
import stat
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit import nn
from tracejit.capture import branches
from tracejit.compiled.tier_policy import TierPolicy
from tracejit.compiler import PerformanceWarning
from tracejit.config import override

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """The texts, ids, links and unclosed elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts = 0
        self.words: list[str] = []
        self.rows: dict[str, str] = {}  # id -> class
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        if given.get("id"):
            self.ids.append(str(given["id"]))
            self.rows[str(given["id"])] = given.get("class") or ""
        self.links += [str(given[name]) for name in ("href", "src") if given.get(name)]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def report(function: Any, tmp_path: Path, **options: Any) -> Page:
    """The page of a function, which is well formed, names nothing outside of itself, and links only to what it has."""
    path = tmp_path / "report.html"
    assert function.report(path, **options) == str(path)
    page = Page(path.read_text(encoding="utf-8"))
    assert not page.open and not page.wrong and page.scripts == 1
    assert len(page.ids) == len(set(page.ids))
    outside = [link for link in page.links if not link.startswith("#") and link != "data:,"]
    assert not outside
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    return page


def helper(h: T.Tensor) -> T.Tensor:
    return h.tanh() * 2


seen = {"calls": 0}


def test_each_line_says_whether_it_is_compiled_runs_beside_or_makes_calls_eager(tmp_path: Path) -> None:
    def function(x: T.Tensor, power: int) -> T.Tensor:
        """</script><script>alert(1)</script>"""
        h = helper(x)
        seen["calls"] += 1
        print("a word")
        if power == 5:
            sys.getsizeof(print)
        return h.exp().sum()

    compiled = T.compile(function)
    for power in (2, 2, 2, 5):
        compiled(T.ones(3, requires_grad=True), power).backward()
    page = report(compiled, tmp_path)
    first = function.__code__.co_firstlineno
    kinds = {int(name.split("-")[1]) - first: kind for name, kind in page.rows.items() if re.fullmatch(r"l\d+-\d+", name)}
    assert (kinds[3], kinds[4], kinds[6], kinds[7]) == ("side", "side", "bad", "good")
    assert kinds[1] == ""
    assert kinds[helper.__code__.co_firstlineno + 1 - first] == "good"  # it was followed into
    assert "seen['calls'] is changed by each call" in page.text and "nothing is known about the C function" in page.text
    assert "Forward" in page.text and "Backward" in page.text and "µs" in page.text


def test_backward_programs_for_several_results_have_links_and_times_of_their_own(tmp_path: Path) -> None:
    compiled = T.compile(lambda x: (x.exp().sum(), (x * 2).sin().sum()))
    x = T.ones(5, requires_grad=True)
    for k in (0, 1, 0, 1):
        compiled(x)[k].backward()
    page = report(compiled, tmp_path)
    assert "Backward from the results 0" in page.text and "Backward from the results 1" in page.text
    assert {"#s0-0-backward-0", "#s0-0-backward-1-0"} <= set(page.links)
    assert re.search(r"path 0, backward: loop nest 0 \d+ B, \d+\.\d µs", page.text)


def test_writes_to_tensors_from_outside_are_told_from_those_to_new_ones(tmp_path: Path) -> None:
    buffer = T.zeros(3)

    def function(x: T.Tensor) -> T.Tensor:
        h = x * 2
        h.relu_()
        buffer[1:].add_(h[1:])
        return h

    compiled = T.compile(function)
    for _ in range(3):
        compiled(T.ones(3))
    page, first = report(compiled, tmp_path), function.__code__.co_firstlineno
    kinds = {int(name.split("-")[1]) - first: kind for name, kind in page.rows.items() if re.fullmatch(r"l\d+-\d+", name)}
    assert (kinds[1], kinds[2], kinds[3], kinds[4]) == ("good", "good", "side", "")
    assert page.text.count("writes to a tensor from outside") == 1


def test_a_page_tells_how_many_bytes_the_steps_of_a_program_move(tmp_path: Path) -> None:
    compiled = T.compile(lambda x, y: (x @ y).relu().sum())
    for _ in range(2):
        compiled(T.ones(64, 32), T.ones(32, 16))
    page = report(compiled, tmp_path)
    (step,) = [step for step in compiled.paths()[0].executable.program.lowered.origins if step.operations == ("matmul",)]
    assert (step.read, step.written) == (64 * 32 * 4 + 32 * 16 * 4, 64 * 16 * 4)
    assert "product matmul" in page.text and "10.2 kB 4.1 kB" in page.text


def test_paths_hang_under_those_from_which_a_value_tells_them_with_both_values(tmp_path: Path) -> None:
    def function(x: T.Tensor, n: int) -> T.Tensor:
        y = x * 2 if x.sum() > 0 else x - 1
        return y + len("a" * n)

    compiled = T.compile(function)
    for sign, n in ((1, 2), (1, 2), (-1, 2), (-1, 2), (1, 3)):
        compiled(sign * T.ones(2), n)
    text = report(compiled, tmp_path).text
    assert re.search(r"path 1 : served 1 call, when the value \( line \d+ \) is False and not True", text)
    assert re.search(r"path 2 : served 0 calls, when n( \(.*?\))? is 3 and not 2", text), text
    assert "was False, expected True" in text


def test_a_path_that_asks_for_the_type_alone_is_told_from_one_that_asks_for_a_value(tmp_path: Path) -> None:
    compiled = T.compile(lambda x, flag: x + 1 if flag else x)
    for flag in (True, True, False, False):
        compiled(T.ones(2), flag)
    assert re.search(
        r"path 1 : served 1 call, when flag( \(.*?\))? is another bool and not True", report(compiled, tmp_path).text
    )


def test_a_function_that_was_never_called_or_never_compiled_has_a_page(tmp_path: Path) -> None:
    def function(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x

    compiled = T.compile(function)
    assert "has not been called yet" in report(compiled, tmp_path).text
    for _ in range(4):
        compiled(T.ones(1))
    page = report(compiled, tmp_path)
    assert "has run as ordinary Python in every call so far, because nothing is known about the C function" in page.text
    assert "What to do: Move the call out of the compiled function" in page.text and "There is none." in page.text
    with override(enabled=False):
        assert "compilation is turned off" in report(compiled, tmp_path).text


def test_a_function_without_source_has_a_page_that_says_so(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec("def made(x):\n    return x * 2\n", names)
    compiled = T.compile(names["made"])
    for _ in range(3):
        compiled(T.ones(2))
    page = report(compiled, tmp_path)
    assert "The source is not shown: no source text for made, which exec() or eval() of a text has defined" in page.text


def test_a_source_that_has_changed_since_it_was_imported_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "changed.py"
    file.write_text("def changed(x):\n    return x * 2\n")
    compiled = T.compile(runpy.run_path(str(file))["changed"])
    for _ in range(3):
        compiled(T.ones(2))
    assert "return x * 2" in report(compiled, tmp_path).text
    file.write_text("# a line more\ndef changed(x):\n    return x * 3\n")
    linecache.checkcache(str(file))
    text = report(compiled, tmp_path).text
    assert "return x * 3" not in text and "no longer matches the running code" in text


def test_functions_inside_of_others_are_shown_once(tmp_path: Path) -> None:
    def outer() -> Any:
        def doubled(x: T.Tensor) -> T.Tensor:
            return x * 2

        return lambda x: (doubled(x) + 1).exp(), doubled

    function, doubled = outer()

    def main(x: T.Tensor) -> T.Tensor:
        return function(x) + doubled(x)

    compiled = T.compile(main)
    for _ in range(3):
        compiled(T.ones(2))
    page = report(compiled, tmp_path)  # which checks that ids are there once
    assert "return x * 2" in page.text and "shown above" in page.text


def test_a_function_whose_source_was_given_is_shown_with_it(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    text = "# first\n\ndef given(x):\n    return x * 2\n"
    exec(text, names)
    compiled = T.compile(names["given"], source=text)
    for _ in range(3):
        compiled(T.ones(2))
    assert "return x * 2" in report(compiled, tmp_path).text


def test_a_function_in_pieces_has_the_pieces_on_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TierPolicy, "_outline", lambda *_, **__: False)  # as for loops that cannot be nodes of a program
    monkeypatch.setattr(branches, "may_be_outlined", lambda *_: False)

    def function(xs: T.Tensor) -> T.Tensor:
        total = T.zeros(())
        for x in xs:
            total = total + x if x > 0 else total - x * 2
        return total

    compiled = T.compile(function)
    generator = T.Generator().manual_seed(0)
    for _ in range(60):
        compiled(T.randn(8, generator=generator))
    assert compiled.stats.piecewise_calls
    page = report(compiled, tmp_path, times=False)
    assert "ordinary Python around 1 compiled part" in page.text and "ran in pieces" in page.text
    line = function.__code__.co_firstlineno + 3
    assert page.rows[f"l0-{line}"] == "good" and "total = total + x" in page.text and "piece" in page.text


@pytest.mark.parametrize("backend", ["llvm", "reference", "interpret"])
def test_programs_of_backends_and_with_host_steps_are_shown(backend: str, tmp_path: Path) -> None:
    compiled = T.compile(lambda x: T.searchsorted(x * 2, x).sum() + T.linalg.inv(x.reshape(2, 2)).sum(), backend=backend)
    for _ in range(2):
        compiled(T.tensor([3.0, 1.0, 2.0, 5.0]))
    text = report(compiled, tmp_path).text
    assert ("is interpreted" in text) == (backend == "interpret")
    assert backend == "interpret" or "NumPy searchsorted" in text


def test_a_module_with_dynamic_sizes_has_a_page(tmp_path: Path) -> None:
    model = T.compile(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    for n in (2, 3, 4, 5):
        model(T.ones(n, 4)).sum().backward()
    text = report(model, tmp_path).text
    assert "symbolic sizes" in text and "Sequential" in text


def test_sixty_paths_fit_on_a_page_of_moderate_size(tmp_path: Path) -> None:
    compiled = T.compile(lambda x, n: x * len("a" * n), dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)  # it is recorded again and again
        for n in range(1, 61):
            compiled(T.ones(2), n)
    count = len(compiled.paths())
    page = report(compiled, tmp_path, times=False)
    assert count > 5 and all(f"path {k}" in page.text for k in range(count))
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_texts_of_the_user_are_never_markup(tmp_path: Path) -> None:
    key = "</script><script>alert(1)</script>\x00\ud800'\"<b>"
    table = {key: 2}
    compiled = T.compile(lambda x, name: x * table[name] if len(name) else x)
    compiled.__wrapped__.__qualname__ = key
    for _ in range(2):
        compiled(T.ones(2), key)
    page = report(compiled, tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text.replace(html.escape("alert(1)</script>"), "") and "alert(1)" in page.text
    assert "<script>" not in compiled._repr_html_() and "&lt;script&gt;" in compiled._repr_html_()


def test_the_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    compiled = T.compile(lambda x: x + 1)
    path = tmp_path / "report.html"
    path.write_text("before")
    path.chmod(0o640)
    compiled.report(path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>") and stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(OSError, match="nowhere"):
        compiled.report(tmp_path / "nowhere" / "report.html")
    assert os.listdir(tmp_path) == ["report.html"]


def test_the_first_sentence_counts_calls() -> None:
    compiled = T.compile(lambda x, n: x * len("a" * n), dynamic=False)
    for n in (1, 1, 1, 2, 2, 2):
        compiled(T.ones(2), n)
    assert "4 of 6 calls did, and 2 ran as ordinary Python to be recorded." in compiled._repr_html_()


def test_notebooks_show_a_few_lines() -> None:
    compiled = T.compile(lambda x: x + 1)
    for _ in range(4):
        compiled(T.ones(1))
    text = compiled._repr_html_()
    assert "3 of 4 calls did" in text and "What to do" not in text and len(text) < 2000
    with override(enabled=False):
        assert "<b>What to do:</b> Unset TRACEJIT_DISABLE" in compiled._repr_html_()


def test_a_report_changes_neither_counts_nor_values(tmp_path: Path) -> None:
    state = T.zeros(3)

    def function(x: T.Tensor) -> T.Tensor:
        state.add_(1)
        return (x.exp() * state).sum()

    compiled = T.compile(function)
    x = T.ones(3, requires_grad=True)
    for _ in range(3):
        compiled(x).backward()
    before, gradient = repr(compiled.stats), x.grad.clone()
    compiled.report(tmp_path / "report.html")
    assert repr(compiled.stats) == before and T.equal(x.grad, gradient) and state.tolist() == [3.0] * 3
