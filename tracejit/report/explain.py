"""`explain(verbose=True)`: everything that happened to a compiled function, as text: first what `explain()` begins with (summary.py), then
counts and reasons, then each path, then the passes of each path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tracejit.capture.recording.entry import Recording
from tracejit.compiled.side_trace import Trace
from tracejit.core.op import Kind
from tracejit.ir.graph import Node, all_nodes
from tracejit.lowering.exits import exit_codes, node_code
from tracejit.replay.ir import Call, Expr, Name, renamed, walk
from tracejit.report.account import Account
from tracejit.report.phrases import counted
from tracejit.report.summary import facts, first_lines
from tracejit.runtime.source import Module

__all__ = ["explain_function", "source_text"]

_QUICK: Final = (Name("list"), Name("map"), Name("copysign"))  # functions whose calls in guards are not worth mentioning
_MOST: Final = 5  # guards that are listed


def explain_function(account: Account) -> str:
    """The text."""
    stats, paths = account.stats, account.paths
    lines = first_lines(account)
    if not stats.calls:
        return "\n".join(lines)
    lines.append(f"  {_counts(stats)}")
    lines += [f"  {line}" for line in (*facts(account), *account.symbolic, *account.fixed_sizes)]
    for reason, count in account.reasons.items():
        lines.append(f"ran eagerly ({counted(count, 'recording')}): {reason}")
    passes: list[str] = []
    for i, path in enumerate(paths):
        recording, executable = path.recording, path.executable
        served, *_ = executable.counter
        lines.append(
            f"path {i}: {served} calls, {len(executable.graph.nodes)} nodes, {len(recording.tensor_inputs)} tensors, "
            f"{len(recording.scalar_inputs)} numbers"
        )
        lines.append(f"  calls: {path.calls()}")
        lines += _guards(recording)
        if recording.left_out:
            lines.append(
                f"  {recording.left_out} steps of loops were recorded without running, since those before them did the same"
            )
        lines += [f"  {remark}" for remark in recording.remarks]
        lines += _exits(path, paths)
        lines += [f"  {line}" for line in executable.program.describe().splitlines()]
        for present, (program, _) in executable.backward_programs():
            lines.append(f"  backward for cotangents {present}:")
            lines += [f"    {line}" for line in program.describe().splitlines()]
        for error in executable.backward_errors():
            lines.append(f"  a backward program could not be compiled in the background: {type(error).__name__}: {error}")
        if executable.awaits_backward:
            lines.append("  gradients by the interpreter, while their program is compiled in the background")
        lines += [
            f"  backward calls: from Python, since what cannot be translated is {why}" for why in executable.interpreted_for
        ]
        passes += [f"passes of path {i}:", *[f"  # {stamp}" for stamp in executable.graph.history]]
    for part in account.parts:
        lines += [f"  {line}" for line in explain_function(part).splitlines()]
    return "\n".join([*lines, *passes])


def _exits(path: Any, paths: Sequence[Any]) -> list[str]:
    """Lines about the guards inside the program: what has to hold, how often the program was left there, and to which path calls
    went."""
    executable = path.executable
    numbers, lines = exit_codes(executable.graph), []
    for node in executable.graph.nodes:
        number = numbers[id(node)]
        counts = {n: count for n, count in executable.exits_taken.items() if node_code(n) == number}
        count = sum(counts.values())
        if node.op.kind is Kind.GUARD:
            text = f"goes on only if the value at {node.line} is {node.attrs['expected'].value!r}"
        elif "dynamic shape" in node.op.traits:
            sizes = ", ".join(str(list(executable.graph.avals[v].shape)) for v in node.outputs)
            text = f"goes on only if the shape that {node.op.name} finds at {node.line} is {sizes}"
        elif inside := ", ".join(dict.fromkeys(_exits_inside(node))):
            text = f"goes on only if the steps of a loop find at {inside} what was recorded"
        elif count:
            text = f"goes on only if {node.op.name} at {node.line} does not raise"
        else:
            continue
        number = max(counts, key=counts.__getitem__, default=number)  # in a loop: of the step in which it was left most often
        bridge = path.bridges.get(number)
        if count:
            text += f": left {count} time{'s' if count != 1 else ''}"
            if bridge in paths:
                text += f", then on to path {paths.index(bridge)}"
                text += f"; {sides[0]}" if (sides := _sides(path, number, bridge)) else ""
        lines.append(f"  {text}")
    return lines


def _exits_inside(node: Node) -> list[str]:
    """The user's lines of guards, and of operations that may raise, in the body of a loop node."""
    if node.op.kind is not Kind.LOOP:
        return []
    return [inner.line for inner in all_nodes(node.attrs["body"].graph) if inner.op.kind is Kind.GUARD or inner.op.may_exit]


def _sides(path: Any, number: int, bridge: Any) -> list[str]:
    """Texts about the side traces from an exit of a path to `bridge`; that of the root trace first."""
    sides = [trace.sides[number, bridge] for trace in path.traces if trace.sides.get((number, bridge)) is not None]
    nodes = len(bridge.executable.graph.nodes)
    return [
        f"a side trace computes {side.size} of its {nodes} nodes" if isinstance(side, Trace) else f"no side trace: {side}"
        for side in sides
    ]


def _guards(recording: Recording) -> list[str]:
    """Lines about guards: how many there are, how many are checked by comparing words of memory, and those that call functions in
    each call."""
    by_word = frozenset(() if recording.structure is None else recording.structure.checks)
    guards = [guard for guard in recording.guards if guard not in by_word]
    calls = [guard for guard in guards if any(isinstance(node, Call) and node.function not in _QUICK for node in walk(guard))]
    lines = [
        f"  guards: {len(recording.guards)}, of which {len(by_word)} are asked only when one of their words of memory has changed"
    ]
    if calls:
        lines.append(f"  guards that call functions in each call ({len(calls)}):")
        lines += [f"    {renamed(guard, partial(_readable, recording.namespace))}" for guard in calls[:_MOST]]
        lines += [f"    ... and {len(calls) - _MOST} more"] if len(calls) > _MOST else []
    return lines


def _readable(namespace: Mapping[str, Any], name: Name) -> Expr:
    """A name, or for an object of the namespace that has a qualified name: that one."""
    return Name(getattr(namespace.get(name.name), "__qualname__", name.name))


def _counts(stats: Any) -> str:
    """The counts of calls, by how they ran."""
    early = f", while a program was compiled in the background {stats.early_calls}" if stats.early_calls else ""
    eager = f"{stats.eager_calls} (recorded {stats.traces}, left alone because trying had not paid {stats.direct_calls}{early})"
    instances = f", made of symbolic sizes {stats.instances}" if stats.instances else ""
    machine = f"{stats.machine_calls} calls into machine code, {stats.programs_compiled} programs{instances}"
    missed = f"{stats.guard_misses} guard misses, {stats.exits} exits, {stats.bridges} bridges"
    pieces = f", in pieces {stats.piecewise_calls}" if stats.piecewise_calls else ""
    return f"calls {stats.calls}: compiled {stats.compiled_calls}{pieces}, eager {eager}; {missed}; {machine}"


def source_text(executable: Any) -> str:
    """The source of a module with the forward program and the backward programs compiled so far."""
    module = Module()
    executable.program.print(module, "run")
    for k, (_, (program, _)) in enumerate(executable.backward_programs()):
        program.print(module, f"backward{k}")
    return module.text()
