"""What happened to a compiled function, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracejit.ir.printer import to_text

__all__ = ["explain_function", "graph_text", "source_text"]


def explain_function(name: str, stats: Any, entries: Sequence[tuple[Any, Any, str]], reasons: Mapping[Any, int]) -> str:
    """Counters; each recorded path with its inputs, how calls reach its program, guards inside, passes and kernels; the reasons for eager
    runs."""
    lines = [f"{name}: {stats}"]
    for i, (recording, executable, calls) in enumerate(entries):
        lines.append(
            f"path {i}: {len(executable.graph.nodes)} nodes, {len(recording.tensor_inputs)} tensors, {len(recording.scalar_inputs)} numbers"
        )
        lines.append(f"  calls: {calls}")
        for point in recording.exits:
            lines.append(f"  goes on only if the value at {point.line} is {point.expected.value!r}")
        for node in executable.graph.nodes:
            if "dynamic shape" in node.op.traits:
                sizes = ", ".join(str(list(executable.graph.avals[v].shape)) for v in node.outputs)
                lines.append(f"  goes on only if the shape that {node.op.name} finds at {node.line} is {sizes}")
        lines += [f"  # {stamp}" for stamp in executable.graph.history]
        lines += [f"  {line}" for line in executable.program.describe().splitlines()]
        for present, (program, _) in executable.backward_programs():
            lines.append(f"  backward for cotangents {present}:")
            lines += [f"    {line}" for line in program.describe().splitlines()]
        lines += [
            f"  backward calls: from Python, since what cannot be translated is {why}" for why in executable.interpreted_for
        ]
    for reason, count in reasons.items():
        lines.append(f"ran eagerly ({count} recording{'s' if count != 1 else ''}): {reason}")
    if not entries and not reasons:
        lines.append("not called yet")
    return "\n".join(lines)


def graph_text(executable: Any) -> str:
    """The optimised forward graph."""
    return to_text(executable.graph)


def source_text(executable: Any) -> str:
    """The kernels of the forward program, and of the backward programs made so far."""
    parts = [executable.program.source()]
    parts += [program.source() for _, (program, _) in executable.backward_programs()]
    return "\n\n".join(parts)
