"""The walk through the compiler in docs/architecture.md: the text of each stage, printed by the stages themselves.

    python docs/walkthrough.py            writes the blocks of the document anew
    python docs/walkthrough.py --check    exits with 1 and prints the difference where the document says something else

A block of the document that belongs to a stage begins with the stage's name behind the language: ```` ```python stage=source ````.
Lines are left out where the document would grow too long, and `...` stands for them.  What depends on the machine or on the run is not
printed: LLVM IR is made for vectors of 256 bits, files are named without their directory, times are left out.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parent / "architecture.md"

SOURCE = """\
import tracejit

seen = {"calls": 0}

@tracejit.compile
def loss(x, weight, power):
    hidden = x @ weight
    hidden.relu_()
    if power == 2:
        hidden = hidden * hidden
    seen["calls"] += 1
    return hidden.mean()
"""

_BLOCK = re.compile(r"^```\w+ stage=(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@contextmanager
def _instrumented(texts: list[str]) -> Iterator[None]:
    """Collect the text of what is instrumented meanwhile."""
    from tracejit.capture.syntax import convert

    original: Callable[..., Any] = convert.compile_again

    def collecting(tree: ast.AST, *arguments: Any) -> Any:
        texts.append(ast.unparse(tree))
        return original(tree, *arguments)

    convert.compile_again = collecting
    try:
        yield
    finally:
        convert.compile_again = original


def stages() -> dict[str, str]:
    """What each stage prints for the function of SOURCE, by the name of the stage.  For a process that has done nothing else yet."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "loss.py").write_text(SOURCE, encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            found = _stages()
        finally:
            sys.path.remove(folder)
        return {name: _shortened(text.replace(f"{folder}/", "").replace(f"{folder}\\", "")) for name, text in found.items()}


def _stages() -> dict[str, str]:
    import tracejit
    from tracejit.config import override
    from tracejit.ir.printer import to_text
    from tracejit.llvm.driver import compile_program
    from tracejit.loops import python
    from tracejit.loops.target import Target
    from tracejit.lowering.steps import NestCall

    texts: list[str] = []
    with override(compile_wait=1e6), _instrumented(texts):
        loss = importlib.import_module("loss").loss
        x, weight = tracejit.ones(8, 4), tracejit.ones(4, 3, requires_grad=True)
        for _ in range(3):
            loss(x, weight, 2).backward()
        path = loss._path(0)
        recording, executable = path.recording, path.executable
        backward, _ = executable.backward_graph((True,), executable.partition.wanted)
        program = executable.program
        (nest,) = [step.nest for step in program.lowered.spec.steps if isinstance(step, NestCall)]
        llvm = compile_program(program.lowered.spec, Target(256, masked=True)).text
        return {
            "source": SOURCE,
            "instrumented": _from(texts[0], "    def", dedent=4),
            "recorded": _graph(to_text(recording.graph)),
            "forward": _names(executable.graph.history) + _graph(to_text(executable.graph)),
            "backward": _graph(to_text(backward)),
            "steps": _excerpt(program.describe(), r"^\w+(, \w+)*: "),
            "nest": python.render(nest),
            "llvm": _excerpt(_vector_loop(llvm), r"^\w+:", r"\b(load|store|fcmp|select|fmul|fadd|br)\b"),
            "guards": _excerpt("\n".join(map(str, recording.guards)), r"\bv[136]\b", "relu_"),
            "entry": _excerpt(
                _from(recording.text(executable.body()), "    a0 =", dedent=4),
                *("p_run", "if p_code", r"new\(", "out0._node = n", "^v4", "^return"),
            ),
            "explain": loss.explain(),
        }


def _from(text: str, start: str, dedent: int) -> str:
    """The lines from the first one that begins with `start`, less some spaces."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(start))
    return "\n".join(line[dedent:] for line in lines[first:])


def _graph(text: str) -> str:
    return _from(text, "def ", dedent=0)


def _names(history: Iterable[str]) -> str:
    """The passes that have run, of their stamps in a graph."""
    text = ", ".join(stamp.split(":")[0] for stamp in history)
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 110))


def _excerpt(text: str, *wanted: str) -> str:
    """The lines in which one of the expressions is found; `...` for those between."""
    lines: list[str] = []
    for line in text.splitlines():
        if any(re.search(expression, line) for expression in wanted):
            lines.append(line)
        elif lines and lines[-1] != "...":
            lines.append("...")
    return "\n".join(lines)


def _vector_loop(text: str) -> str:
    """The innermost loop of the first nest: the block that loads a vector and jumps back to itself."""
    blocks = re.split(r"^(?=\w+:$)", text, flags=re.MULTILINE)
    return next(block for block in blocks if re.search(r"load <\d+ x", block) and f"label %{block.split(':')[0]}," in block)


def _shortened(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def rewritten(document: str, found: dict[str, str]) -> str:
    """The document with the text of each stage in its block.  Raises ValueError unless each stage has one block."""
    named = [match[1] for match in _BLOCK.finditer(document)]
    if sorted(named) != sorted(found):
        raise ValueError(f"the blocks of {DOCUMENT.name} are {sorted(named)}; the stages are {sorted(found)}")
    return _BLOCK.sub(lambda match: match[0][: match.start(2) - match.start()] + found[match[1]] + "```", document)


def main(arguments: list[str]) -> int:
    before = DOCUMENT.read_text(encoding="utf-8")
    after = rewritten(before, stages())
    if arguments == ["--check"]:
        names = (DOCUMENT.name, "what the stages print")
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names))
        return int(before != after)
    DOCUMENT.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
