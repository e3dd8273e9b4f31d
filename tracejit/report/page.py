"""The report of a compiled function as one HTML file: `page` gives its text, `short` the form that notebooks show.

The file needs no network and no other file.  Its style follows the reader's choice of light or dark.  All texts that come from a program
of the user, or from its values, pass `escape`; the script is constant and reads none of them.

Must not know how anything was found out: see account.py, lines.py, paths.py, step_times.py.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from html import escape as _escape
from time import perf_counter
from typing import Any, Final

from tracejit.config import config
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph, Node, all_nodes
from tracejit.ir.printer import node_text
from tracejit.native import object_cache
from tracejit.report.account import Account
from tracejit.report.guards import effect_texts, exit_failure
from tracejit.report.lines import Block, LineAccount, Step, blocks, line_accounts, peaks_of, programs_of, steps_of
from tracejit.report.opening import advice, opening
from tracejit.report.page_style import SCRIPT, STYLE
from tracejit.report.paths import PathNode, path_tree
from tracejit.report.step_times import measured
from tracejit.report.summary import facts

__all__ = ["page", "short"]

_PROGRAMS: Final = 8  # paths whose programs are shown
_NODES: Final = 400  # of a graph
_CHARACTERS: Final = 300  # of a line of a graph, or of a value
_EFFECTS: Final = 20
_LINKS: Final = 16  # of a line
_SECONDS: Final = 3.0  # for measuring; programs after that have no times
_COLOURS: Final = 8


def escape(text: Any) -> str:
    """A text as part of HTML, also within quotes; characters that no text may have there are replaced."""
    return _escape("".join([c if c in "\n\t" or c.isprintable() else "\ufffd" for c in str(text)]))


def _cut(text: Any) -> str:
    whole = str(text)
    return whole if len(whole) <= _CHARACTERS else f"{whole[:_CHARACTERS]} ..."


def _bytes(count: float) -> str:
    """A number of bytes for people: 1 kB is 1000 bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


class _Page:
    """The parts of one page."""

    def __init__(self, account: Account, with_times: bool) -> None:
        self.account = account
        self.lines: Mapping[str, LineAccount] = line_accounts(account)
        self.blocks: Sequence[Block] = blocks(account, self.lines)
        self.files = {file: k for k, file in enumerate(dict.fromkeys(where.rpartition(":")[0] for where in self.lines))}
        for block in self.blocks:
            self.files.setdefault(block.file, len(self.files))
        self.accounts = account.with_parts()
        self.rows_shown: set[tuple[str, int]] = set()  # (file, line)
        self.shown = self._shown()
        self.times = self._measured() if with_times else {}

    def _shown(self) -> dict[tuple[int, int], None]:
        """(account, path) of those whose programs are shown: the ones that serve most calls."""
        every = [(a, k) for a, one in enumerate(self.accounts) for k in range(len(one.paths))]
        by_use = sorted(every, key=lambda key: -self.accounts[key[0]].paths[key[1]].executable.counter[0])
        return dict.fromkeys(sorted(by_use[:_PROGRAMS]))

    def _measured(self) -> dict[tuple[int, int, str], Sequence[float]]:
        """(account, path, direction) -> microseconds of each step, of the programs that are shown, until time is up."""
        found, deadline = {}, perf_counter() + _SECONDS
        for a, k in self.shown:
            for direction, program in programs_of(self.accounts[a].paths[k].executable):
                times = measured(program) if perf_counter() < deadline else None
                if times is not None:
                    found[a, k, direction] = times
        return found

    def text(self) -> str:
        name = escape(self.account.name)
        parts = [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{name}: what was compiled</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<style>{STYLE}</style></head><body>",
            self.head(),
            self.source(),
            self.reasons(),
            self.paths(),
            self.programs(),
            self.sizes_and_loops(),
            self.compiling(),
            f"<script>{SCRIPT}</script></body></html>",
        ]
        return "\n".join(part for part in parts if part)

    # -- parts
    def head(self) -> str:
        stats, paths = self.account.stats, sum(len(one.paths) for one in self.accounts)
        cards = [
            (stats.calls, "calls"),
            (stats.compiled_calls, "ran compiled"),
            (stats.eager_calls, "ran as Python"),
            (stats.traces, "were recorded"),
            (paths, "recorded paths"),
            (stats.exits, "left at a branch"),
        ]
        cards += [(stats.piecewise_calls, "ran in pieces")] if stats.piecewise_calls else []
        boxes = "".join(f'<div class="card"><b>{count:,}</b>{what}</div>' for count, what in cards)
        more = "".join(f'<p class="soft">{escape(fact)}</p>' for fact in facts(self.account))
        return (
            f'<h1>{escape(self.account.name)} <button id="all" type="button">Open all</button></h1>'
            f'<p class="lead" id="opening">{escape(opening(self.account))}</p>{_todo(self.account)}'
            f'<div class="cards">{boxes}</div>{more}'
        )

    def source(self) -> str:
        legend = (
            '<p class="legend"><span style="background: var(--goodback)">compiled</span>'
            '<span style="background: var(--sideback)">runs beside the program</span>'
            '<span style="background: var(--badback)">made calls run as Python</span>'
            '<span class="soft">no colour: nothing to compute, or not reached</span></p>'
        )
        tables = "".join(self.block(k, block) for k, block in enumerate(self.blocks))
        return f'<h2 id="source">Source, line by line</h2>{legend}{tables or "<p>No source is known.</p>"}'

    def block(self, k: int, block: Block) -> str:
        what = "" if k == 0 else "called by it: "
        title = f"<h3>{what}<code>{escape(block.title)}</code> <span class='soft'>{escape(block.file)}, line {block.first}</span></h3>"
        texts = list(enumerate(block.lines, block.first))
        if block.missing:
            texts = [(number, "") for number in sorted(self.numbers(block.file))]
            title += f"<p>The source is not shown: {escape(block.missing)}.</p>"
        rows, hidden = [], False
        for number, line in texts:
            is_new = (block.file, number) not in self.rows_shown
            if is_new:
                rows.append(self.row(block.file, number, line))
            elif not hidden:
                rows.append('<tr><td></td><td class="soft">shown above</td><td></td></tr>')
            hidden = not is_new
        self.rows_shown |= {(block.file, number) for number, _ in texts}
        return f'{title}<div class="source"><table>{"".join(rows)}</table></div>'

    def numbers(self, file: str) -> Iterable[int]:
        """The numbers of the lines of a file of which something is known."""
        parts = (where.rpartition(":") for where in self.lines)
        return (int(number) for name, _, number in parts if name == file)

    def row(self, file: str, number: int, text: str) -> str:
        found = self.lines.get(f"{file}:{number}")
        kind, what = ("", "") if found is None else self.about(found)
        anchor = f"l{self.files.get(file, 0)}-{number}"
        code = escape(text.rstrip("\r\n").expandtabs(4))
        cells = f'<td class="n code">{number}</td><td class="t code">{code}</td><td class="w">{what}</td>'
        return f'<tr id="{anchor}" class="{kind}">{cells}</tr>'

    def about(self, line: LineAccount) -> tuple[str, str]:
        """(class of the row, what the row says)."""
        kind = "bad" if line.eager else "side" if line.outside else "good" if line.operations or line.steps else ""
        said = [f"<b>{count} time{'s' * (count != 1)}:</b> {escape(text)}" for text, count in line.eager.items()]
        said += [f"<b>beside:</b> {escape(text)}" for text in line.outside]
        if line.operations or line.steps:
            operations = ", ".join(line.operations) or "compiled together with other lines"
            steps = self.links(line.steps)
            more = f"<br>{steps}" if steps else ""
            summary, count = f"<b>compiled:</b> {escape(_cut(operations))}", len(line.steps)
            said.append(f"<details><summary>{summary}</summary>{count} step{'s' * (count != 1)} of programs{more}</details>")
        if line.guards:
            inside = "".join(f"<div>{escape(_cut(guard))}</div>" for guard in line.guards)
            count = len(line.guards)
            said.append(f"<details><summary>{count} check{'s' * (count != 1)}</summary>{inside}</details>")
        return kind, "".join(f"<div>{text}</div>" for text in said)

    def links(self, steps: Sequence[tuple[int, str, Step]]) -> str:
        """Links to steps of programs that are shown; only those of the function itself have any."""
        found = []
        for path, direction, step in steps if len(self.accounts) == 1 else ():
            if (0, path) in self.shown:
                moved, times = _bytes(step.origin.read + step.origin.written), self.times.get((0, path, direction))
                took = "" if times is None else f", {times[step.number]:.1f} µs"
                text = f"path {path}, {direction.partition('-')[0]}: {step.kind} {step.number}"
                found.append(f'<a href="#s0-{path}-{direction}-{step.number}">{text}</a> <span class="soft">{moved}{took}</span>')
        return "<br>".join(found[:_LINKS])

    def place(self, where: str) -> str:
        """A link to a line."""
        file, _, line = where.rpartition(":")
        if not file:
            return ""
        own = self.blocks and file == self.blocks[0].file
        text = f"line {line}" if own else f"{os.path.basename(file)}:{line}"
        return f'<a href="#l{self.files.get(file, 0)}-{escape(line)}">{escape(text)}</a>'

    def reasons(self) -> str:
        rows = [
            f"<tr><td class=n>{count}</td><td>{escape(reason.message)} {self.place(reason.where)}</td><td>{escape(reason.remedy)}</td></tr>"
            for one in self.accounts
            for reason, count in sorted(one.reasons.items(), key=lambda item: -item[1])
        ]
        if not rows:
            return ""
        head = "<tr><th class=n>recordings</th><th>reason</th><th>what to do</th></tr>"
        return f'<h2 id="reasons">Why calls ran as Python</h2><div class="wide"><table class="grid">{head}{"".join(rows)}</table></div>'

    def paths(self) -> str:
        parts = []
        for a, one in enumerate(self.accounts):
            if one.paths:
                title = "" if a == 0 else f"<h3>piece <code>{escape(one.name)}</code></h3>"
                parts.append(
                    f"{title}<div class='tree'><ul>{''.join(self.tree(a, node) for node in path_tree(one.paths))}</ul></div>"
                )
        if not parts:
            return '<h2 id="paths">Recorded paths</h2><p>There is none.</p>'
        lead = "<p>A path is what one recorded call did. A later call takes the path whose checks hold for it.</p>"
        return f'<h2 id="paths">Recorded paths</h2>{lead}{"".join(parts)}'

    def tree(self, a: int, root: PathNode) -> str:
        """The item of a path, and of those below it."""
        pieces: list[str] = []
        waiting: list[PathNode | str] = [root]
        while waiting:
            node = waiting.pop()
            if isinstance(node, str):
                pieces.append(node)
                continue
            path = node.path
            served = path.executable.counter[0]
            name = f"path {node.number}"
            shown = f'<a href="#p{a}-{node.number}">{name}</a>' if (a, node.number) in self.shown else name
            text = f"<b>{shown}</b>: served {served:,} call{'s' * (served != 1)}"
            if node.what:
                where = f" ({self.place(node.where)})" if node.where else ""
                text += (
                    f", when <code>{escape(_cut(node.what))}</code>{where} is <span class='value'>{escape(_cut(node.here))}</span>"
                    f" and not <span class='value'>{escape(_cut(node.there))}</span>"
                )
            exits = "".join(f"<div class='soft'>{line}</div>" for line in self.exits(path))
            pieces.append(f"<li>{text}{exits}")
            if node.below:
                pieces.append("<ul>")
                waiting += ["</ul></li>", *reversed(node.below)]
            else:
                pieces.append("</li>")
        return "".join(pieces)

    def exits(self, path: Any) -> Iterable[str]:
        for number, count in sorted(path.executable.exits_taken.items()):
            what, where, expected, found, _ = exit_failure(path.executable.graph, number)
            at = f" at {self.place(where)}" if where else ""
            yield f"left {count:,} time{'s' * (count != 1)}{at}: {escape(what)} was {escape(found)}, expected {escape(expected)}"

    def programs(self) -> str:
        parts = [self.program(a, k) for a, k in self.shown]
        if not parts:
            return ""
        count = sum(len(one.paths) for one in self.accounts)
        more = f"<p>Shown are the {len(parts)} of {count} paths that served most calls.</p>" if count > len(parts) else ""
        lead = (
            "<p>A program is a list of steps. Operations with the same number were fused into one step, which reads and "
            "writes memory once. Times were measured with made-up arrays of the same sizes, each step alone.</p>"
        )
        return f'<h2 id="programs">Programs</h2>{lead}{more}{"".join(parts)}'

    def program(self, a: int, k: int) -> str:
        one = self.accounts[a]
        path = one.paths[k]
        executable, recording = path.executable, path.recording
        served = executable.counter[0]
        whose = "" if a == 0 else f"{escape(one.name)}, "
        effects = effect_texts(recording, one.function)
        shown = "".join(f"<li><code>{escape(_cut(text))}</code></li>" for text in effects[:_EFFECTS])
        shown += f"<li>... and {len(effects) - _EFFECTS} more</li>" if len(effects) > _EFFECTS else ""
        done = f"<h3>After the program, each call does</h3><ul>{shown}</ul>" if effects else ""
        parts = [self.direction((a, k, "forward"), "Forward", executable.graph, executable.program)]
        backward = zip(programs_of(executable)[1:], executable.backward_graphs(), strict=True)
        for (direction, program), (present, graph, _) in backward:
            which = ", ".join(str(n) for n, there in enumerate(present) if there)
            title = "Backward" if len(present) == 1 else f"Backward from the results {which}"
            parts.append(self.direction((a, k, direction), title, graph, program))
        if executable.awaits_backward:
            parts.append("<p>A backward program is being compiled in the background.</p>")
        guards = len(recording.guards)
        facts = f"{guards} checks before the program; called {escape(path.calls())}."
        opened = " open" if k == 0 and a == 0 else ""
        return (
            f'<details class="box" id="p{a}-{k}"{opened}><summary><b>{whose}path {k}</b> '
            f'<span class="soft">served {served:,} calls, {len(executable.graph.nodes)} operations</span></summary>'
            f"<p>{facts}</p>{''.join(parts)}{done}</details>"
        )

    def direction(self, key: tuple[int, int, str], title: str, graph: Graph, program: Any) -> str:
        """The steps and the graph of a program."""
        steps, times = steps_of(program), self.times.get(key)
        step_of = {value: step.number for step in steps for value in step.origin.values}
        seconds = getattr(program, "seconds", 0.0)
        made = f"compiled in {seconds:.2f} s" if seconds else "machine code was found in a cache"
        rows = "".join(self.step(key, step, times) for step in steps)
        head = "<tr><th></th><th>step</th><th>computes</th><th>lines</th>"
        head += '<th class="n">reads</th><th class="n">writes</th><th>time</th></tr>'
        table = (
            f'<div class="wide"><table class="grid">{head}{rows}</table></div>'
            if steps
            else "<p>The graph is interpreted, node by node.</p>"
        )
        nodes = "".join(self.node(node, graph, step_of) for node in graph.nodes[:_NODES])
        more = f"<p>... and {len(graph.nodes) - _NODES} more</p>" if len(graph.nodes) > _NODES else ""
        memory = "".join(f"<p>{escape(line)}</p>" for peak in peaks_of(program) for line in peak.lines())
        history = "".join(f"<div class='code'>{escape(line)}</div>" for line in graph.history)
        return (
            f'<h3>{escape(title)} <span class="soft">{made}</span></h3>{table}{memory}'
            f"<details><summary>graph of {len(graph.nodes)} operations</summary>"
            f'<div class="graph"><table>{nodes}</table></div>{more}</details>'
            f"<details><summary>{len(graph.history)} passes made it</summary>{history}</details>"
        )

    def step(self, key: tuple[int, int, str], step: Step, times: Sequence[float] | None) -> str:
        origin, time = step.origin, "" if times is None else f"{times[step.number]:.1f} µs"
        if times is not None and max(times) > 0:
            time = f'<span class="bar" style="width: {60 * times[step.number] / max(times):.0f}px"></span>{time}'
        computes = ", ".join(origin.operations) or step.text.partition(":")[0]
        where = ", ".join(map(self.place, origin.lines[:6])) + (" ..." if len(origin.lines) > 6 else "")
        chip = _chip(step.number)
        return (
            f'<tr id="s{"-".join(map(str, key))}-{step.number}"><td>{chip}</td><td class="k">{escape(step.kind)}</td>'
            f'<td class="code">{escape(_cut(computes))}</td><td>{where}</td>'
            f'<td class="n">{_bytes(origin.read)}</td><td class="n">{_bytes(origin.written)}</td><td class="k">{time}</td></tr>'
        )

    def node(self, node: Node, graph: Graph, step_of: Mapping[int, int]) -> str:
        try:
            text = node_text(node, graph)
        except TypeError:  # an attribute that has no text
            text = f"{', '.join(f'v{v}' for v in node.outputs)} = {node.op.name}(...)"
        if node.line:
            text = text.removesuffix(f"  {node.line}").removesuffix("  # ")
        number = next((step_of[v] for v in node.outputs if v in step_of), None)
        chip = "" if number is None else _chip(number)
        return f'<tr><td>{chip}</td><td class="t code">{escape(_cut(text))}</td><td>{self.place(node.line)}</td></tr>'

    def sizes_and_loops(self) -> str:
        items = [text for one in self.accounts for text in (*one.symbolic, *one.fixed_sizes)]
        for one in self.accounts:
            for k, path in enumerate(one.paths):
                recording, graph = path.recording, path.executable.graph
                loops = sum(node.op.kind is Kind.LOOP for node in all_nodes(graph))
                items += [f"path {k}: {loops} loop{'s' * (loops != 1)} of the program itself"] if loops else []
                if recording.left_out:
                    items.append(f"path {k}: {recording.left_out} steps of loops were recorded without running")
                items += [f"path {k}: {remark}" for remark in recording.remarks]
        if not items:
            return ""
        listed = "".join(f"<li>{escape(item)}</li>" for item in dict.fromkeys(items))
        return f'<h2 id="sizes">Sizes and loops</h2><ul>{listed}</ul>'

    def compiling(self) -> str:
        programs = [path.executable.program for one in self.accounts for path in one.paths]
        programs += [p for one in self.accounts for path in one.paths for _, (p, _) in path.executable.backward_programs()]
        seconds = [getattr(program, "seconds", 0.0) for program in programs]
        found = sum(not s for s in seconds)
        text = (
            f"{len(programs)} programs: {len(programs) - found} were compiled, in {sum(seconds):.2f} s; the machine code of {found} "
            "was in a cache or was shared with programs of other sizes."
        )
        counts, kept = object_cache.counts, ""
        if config.cache:
            place = escape(object_cache.directory() or "nowhere")
            kept = (
                f"<p>In this process {counts.hits:,} programs came from files in {place}; {counts.misses:,} were not there.</p>"
            )
        return f'<h2 id="compiling">Compiling</h2><p>{text}</p>{kept}' if programs else ""


def _chip(number: int) -> str:
    return f'<span class="chip c{number % _COLOURS}">{number}</span>'


def _todo(account: Account) -> str:
    """What to do, as a paragraph or a list; "" if there is nothing."""
    todo = [escape(text) for text in advice(account)]
    if len(todo) == 1:
        return f'<p class="todo"><b>What to do:</b> {todo[0]}</p>'
    listed = "".join(f"<li>{text}</li>" for text in todo)
    return f'<div class="todo"><b>What to do:</b><ul>{listed}</ul></div>' if todo else ""


def page(account: Account, with_times: bool = True) -> str:
    """The file's text.  with_times: whether steps are measured, for a few seconds at most."""
    return _Page(account, with_times).text()


def short(account: Account) -> str:
    """A few lines of HTML for a notebook: what happened, what to do, and the counts."""
    stats = account.stats
    counts = f"{stats.calls:,} calls, {stats.compiled_calls:,} compiled, {stats.traces:,} recorded, {len(account.paths)} paths"
    return (
        '<div class="short" style="border: 1px solid #8886; border-radius: 6px; padding: 8px 14px; max-width: 900px">'
        f"<p><b>{escape(opening(account))}</b></p>{_todo(account)}<p>{counts}</p>"
        f"<p><code>{escape(account.name)}.report(&quot;report.html&quot;)</code> writes the whole report.</p></div>"
    )
