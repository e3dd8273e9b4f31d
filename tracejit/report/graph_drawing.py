"""The graph of a recorded path as a drawing: inputs above, one box for each operation, results below.

Operations that were fused into one step of the program have one colour.  Arrows have the shapes of what they stand for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from tracejit.core.drawing import Arrow, Box, Drawing
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph, Literal, Node, Operand
from tracejit.ir.printer import to_text
from tracejit.report.guards import input_names
from tracejit.report.lines import steps_of

__all__ = ["GraphText", "drawn_text"]

_LONGEST: Final = 40  # characters of a line of a box


class GraphText(str):
    """The text of a graph, which can be drawn, too."""

    _draw: Callable[[], Drawing]

    @classmethod
    def of(cls, text: str, draw: Callable[[], Drawing]) -> GraphText:
        """draw: makes the drawing when it is asked for."""
        made = cls(text)
        made._draw = draw
        return made

    @property
    def drawing(self) -> Drawing:
        """The boxes and arrows of a picture."""
        return self._draw()

    def dot(self) -> str:
        """The graph in Graphviz's language DOT."""
        return self.drawing.dot()

    def svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """The graph as an SVG text, which is also written to the file `path` if that is given.  Raises ImportError where there is neither
        the program dot of Graphviz nor the package grandalf, ValueError for more than 1000 boxes, OSError for a file that cannot be
        written."""
        return self.drawing.svg(path)

    def __reduce__(self) -> Any:
        return str, (str(self),)  # a copy or pickle is the text


def drawn_text(path: Any, function: Any) -> GraphText:
    """The text of the optimised forward graph of a recorded path.  function: what was recorded."""
    executable = path.executable

    def draw() -> Drawing:
        steps = {value: step.number for step in steps_of(executable.program) for value in step.origin.values}
        names = input_names(path.recording, function)
        return drawing_of(executable.graph, names, steps, len(executable.outputs), executable.name)

    return GraphText.of(to_text(executable.graph), draw)


def drawing_of(graph: Graph, names: dict[int, str], steps: dict[int, int], results: int, title: str) -> Drawing:
    """The drawing of a graph.  names: of inputs.  steps: value -> number of the step that computes it.  results: how many of the first
    outputs are results; the others are kept for the backward pass."""
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    made: dict[int, int] = {}  # value -> its box
    used = {x for node in graph.nodes for x in node.operands if type(x) is int} | {x for x in graph.outputs if type(x) is int}
    used |= {v for _, v in graph.writes}
    for value in (*graph.inputs, *graph.constants):
        if value in used:
            made[value] = len(boxes)
            boxes.append(Box((_short(names.get(value, "a constant")), str(graph.avals[value])), "ellipse"))
    for node in graph.nodes:
        number = len(boxes)
        boxes.append(_operation(node, steps))
        for operand in dict.fromkeys(x for x in node.operands if type(x) is int):
            if operand in made:
                arrows.append(Arrow(made[operand], number, _shape(graph, operand)))
        made.update(dict.fromkeys(node.outputs, number))
    ends: list[tuple[str, Operand]] = [
        (f"result {k}" if k < results else "kept for backward", x) for k, x in enumerate(graph.outputs)
    ]
    ends += [(f"new contents of {names.get(target, f'v{target}')}", value) for target, value in graph.writes]
    for name, end in ends:
        if type(end) is int and end in made:
            arrows.append(Arrow(made[end], len(boxes), _shape(graph, end)))
            boxes.append(Box((_short(name),), "end"))
    return Drawing(boxes, arrows, title)


def _operation(node: Node, steps: dict[int, int]) -> Box:
    numbers = [_number(x.value) for x in node.operands if isinstance(x, Literal)]
    text = f"{node.op.name}({', '.join(numbers)})" if numbers else node.op.name
    step = next((steps[v] for v in node.outputs if v in steps), None)
    where = os.path.basename(node.line)
    lines = (_short(text), *([where] if where else []))
    return Box(lines, "guard" if node.op.kind is Kind.GUARD else "box", step)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shape(graph: Graph, value: int) -> str:
    shape = getattr(graph.avals[value], "shape", ())
    return str(list(shape)) if shape else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
