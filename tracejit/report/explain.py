"""What happened to a compiled function, as text: first the line that matters, then counts and reasons, then each path, its passes last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracejit.ir.printer import to_text
from tracejit.report.partings import Parting

__all__ = ["explain_function", "graph_text", "source_text"]


def explain_function(
    name: str, stats: Any, entries: Sequence[Any], reasons: Mapping[Any, int], parting: Parting | None, most: int
) -> str:
    """entries: the recorded paths (recorded_path.Entry).  parting: the guard that keeps recordings apart, if there is one.  most: how many
    paths there may be."""
    if not stats.calls:
        return f"{name}: not called yet"
    lines = [f"{name}: {_headline(stats, len(entries), reasons, parting, most)}", f"  {_counts(stats)}"]
    for reason, count in reasons.items():
        lines.append(f"ran eagerly ({count} recording{'s' if count != 1 else ''}): {reason}")
    passes: list[str] = []
    for i, entry in enumerate(entries):
        recording, executable = entry.recording, entry.executable
        served, *_ = executable.counter
        lines.append(
            f"path {i}: {served} calls, {len(executable.graph.nodes)} nodes, {len(recording.tensor_inputs)} tensors, "
            f"{len(recording.scalar_inputs)} numbers"
        )
        lines.append(f"  calls: {entry.calls()}")
        for point in recording.exits:
            lines.append(f"  goes on only if the value at {point.line} is {point.expected.value!r}")
        for node in executable.graph.nodes:
            if "dynamic shape" in node.op.traits:
                sizes = ", ".join(str(list(executable.graph.avals[v].shape)) for v in node.outputs)
                lines.append(f"  goes on only if the shape that {node.op.name} finds at {node.line} is {sizes}")
        lines += [f"  {line}" for line in executable.program.describe().splitlines()]
        for present, (program, _) in executable.backward_programs():
            lines.append(f"  backward for cotangents {present}:")
            lines += [f"    {line}" for line in program.describe().splitlines()]
        lines += [
            f"  backward calls: from Python, since what cannot be translated is {why}" for why in executable.interpreted_for
        ]
        passes += [f"passes of path {i}:", *[f"  # {stamp}" for stamp in executable.graph.history]]
    return "\n".join([*lines, *passes])


def _headline(stats: Any, paths: int, reasons: Mapping[Any, int], parting: Parting | None, most: int) -> str:
    """The one line that matters."""
    served = stats.compiled_calls
    if parting is not None and not served and paths < most:
        often = "recorded on each call" if stats.traces == stats.calls else f"recorded {stats.traces} times for nothing"
        return f"{often} because {parting.name}{parting.place()} changes ({parting.some()}). {parting.remedy()}"
    if parting is not None and (paths >= most or 2 * served < stats.calls):
        return f"{paths} paths: {parting.text()}"
    if not paths and reasons:
        return f"eager: {max(reasons, key=lambda reason: reasons[reason])}"
    many = f"{paths} path{'s' if paths != 1 else ''}"
    if served:
        return f"compiled: {many}, {served} of {stats.calls} calls"
    return f"recorded: {many}, which served no call yet"


def _counts(stats: Any) -> str:
    """Calls and what became of them."""
    eager = f"{stats.eager_calls} (recorded {stats.traces}, left alone because trying had not paid {stats.direct_calls})"
    machine = f"{stats.machine_calls} calls into machine code, {stats.programs_compiled} programs"
    missed = f"{stats.guard_misses} guard misses, {stats.exits} exits, {stats.bridges} bridges"
    return f"calls {stats.calls}: compiled {stats.compiled_calls}, eager {eager}; {missed}; {machine}"


def graph_text(executable: Any) -> str:
    """The optimised forward graph."""
    return to_text(executable.graph)


def source_text(executable: Any) -> str:
    """The kernels of the forward program, and of the backward programs made so far."""
    parts = [executable.program.source()]
    parts += [program.source() for _, (program, _) in executable.backward_programs()]
    return "\n\n".join(parts)
