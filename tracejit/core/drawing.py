"""Drawings of graphs: nodes with a few lines of text, and arrows between them, as DOT text or as SVG.

Where nodes lie is decided by others: by the program `dot` of Graphviz (https://graphviz.org) where it is installed, else by the package
grandalf, which has the algorithm of Sugiyama, Tagawa and Toda (Methods for visual understanding of hierarchical system structures, 1981).
DOT text needs neither.

Must not know what is drawn.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from tracejit.core.lazy import lazy_module
from tracejit.core.whole_file import written

__all__ = ["Arrow", "Box", "Drawing"]

_graphs: Any = lazy_module("grandalf.graphs")
_layouts: Any = lazy_module("grandalf.layouts")
_routing: Any = lazy_module("grandalf.routing")

_MOST: Final = 1000  # boxes of an SVG
_CHARACTER, _LINE, _MARGIN = 7.3, 17.0, 12.0  # pixels: of the monospaced letters, their lines, and around a box
_GAPS: Final = (24.0, 44.0)  # pixels between boxes, and between layers
_INCH: Final = 72.0  # pixels that Graphviz takes for an inch
_SECONDS: Final = 120  # that Graphviz may take
_FILLS: Final = ("#cfe8ff", "#e6d9ff", "#d3f4d9", "#ffe3c9", "#ffd7ea", "#fff3b8", "#ccf1f2", "#e3e6ea")
_PLAIN: Final = "#ffffff"
_SAYS: Final = (
    "drawing an SVG needs the program dot of Graphviz, or grandalf: pip install 'tracejit[draw]'.  dot() gives the text of the "
    "drawing without them"
)
_STYLE: Final = """
text { font: 12px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328; }
.box { stroke: #57606a; stroke-width: 1; } .guard { stroke-dasharray: 4 3; } .end { stroke-width: 2; }
.arrow { fill: none; stroke: #6e7781; stroke-width: 1.2; } .head { fill: #6e7781; } .label { font-size: 11px; fill: #57606a;
  paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A node.  lines: its text.  shape: "box", "ellipse", "guard" (a box with a dashed frame) or "end" (a box with a thick one).
    group: boxes of one group have one colour; None: none."""

    lines: tuple[str, ...]
    shape: str = "box"
    group: int | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in pixels."""
        wide = max(map(len, self.lines), default=0) * _CHARACTER + 2 * _MARGIN
        high = len(self.lines) * _LINE + _MARGIN
        return (wide * 1.2, high * 1.3) if self.shape == "ellipse" else (wide, high)


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow from one box to another, by their numbers.  label: beside it."""

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class _Layout:
    """centres: of boxes.  routes: the points of each arrow, as (is a Bezier curve, points).  width, height: of all."""

    centres: Sequence[tuple[float, float]]
    routes: Sequence[tuple[bool, Sequence[tuple[float, float]]]]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing: `dot()` gives it as text of Graphviz's language, `svg()` as a picture; notebooks show the picture."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    title: str = field(default="")

    def dot(self) -> str:
        """The drawing in Graphviz's language DOT (https://graphviz.org/doc/info/lang.html)."""
        lines = ["digraph {", f"  label={_quoted(self.title)}; labelloc=t;", '  node [fontname="monospace", style=filled];']
        for k, box in enumerate(self.boxes):
            shape = "ellipse" if box.shape == "ellipse" else "box"
            style = ', style="filled,dashed"' if box.shape == "guard" else ", penwidth=2" if box.shape == "end" else ""
            lines.append(f'  n{k} [label={_quoted(*box.lines)}, shape={shape}, fillcolor="{_fill(box)}"{style}];')
        for arrow in self.arrows:
            label = f" [label={_quoted(arrow.label)}]" if arrow.label else ""
            lines.append(f"  n{arrow.start} -> n{arrow.end}{label};")
        return "\n".join([*lines, "}", ""])

    def svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """The drawing as an SVG text, which is also written to the file `path` if that is given.

        Raises ImportError where there is neither Graphviz nor grandalf, ValueError for more than 1000 boxes, OSError if the file cannot be
        written."""
        if len(self.boxes) > _MOST:
            raise ValueError(f"svg(): the drawing has {len(self.boxes)} boxes (at most {_MOST}); dot() gives its text")
        text = self._rendered(_by_graphviz(self) if shutil.which("dot") else _by_grandalf(self))
        if path is not None:
            written(path, text.encode())
        return text

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg()
        except (ImportError, ValueError):
            return None  # a notebook shows the repr then

    def __repr__(self) -> str:
        return f"<drawing of {len(self.boxes)} boxes and {len(self.arrows)} arrows: svg() and dot() give it>"

    def _rendered(self, layout: _Layout) -> str:
        top = 30.0 if self.title else 0.0
        wide = max(layout.width, len(self.title) * _CHARACTER) + 2 * _MARGIN
        high = layout.height + top + 2 * _MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" viewBox="0 0 {wide:.1f} {high:.1f}">',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="head" d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>',
            '<rect width="100%" height="100%" fill="#ffffff" rx="6"/>',
        ]
        if self.title:
            parts.append(f'<text x="{_MARGIN}" y="{_MARGIN + 12}">{_plain(self.title)}</text>')
        parts.append(f'<g transform="translate({_MARGIN} {_MARGIN + top})">')
        labels = []
        for arrow, (curved, points) in zip(self.arrows, layout.routes, strict=True):
            parts.append(f'<path class="arrow" marker-end="url(#head)" d="{_path(curved, points)}"/>')
            if arrow.label:
                x, y = _middle(points)
                labels.append(f'<text class="label" x="{x + 4:.1f}" y="{y + 4:.1f}">{_plain(arrow.label)}</text>')
        parts += labels
        parts += [_box(box, *centre) for box, centre in zip(self.boxes, layout.centres, strict=True)]
        return "\n".join([*parts, "</g>", "</svg>", ""])


def _fill(box: Box) -> str:
    return _PLAIN if box.group is None else _FILLS[box.group % len(_FILLS)]


def _plain(text: str) -> str:
    """A text as text of XML, which has no control characters."""
    return escape("".join([c if c.isprintable() else "\ufffd" for c in text]))


def _quoted(*lines: str) -> str:
    """Lines as a string of DOT."""
    parts = ["".join([c if c.isprintable() else "\ufffd" for c in line]) for line in lines]
    return '"' + "\\n".join([part.replace("\\", "\\\\").replace('"', '\\"') for part in parts]) + '"'


def _box(box: Box, x: float, y: float) -> str:
    wide, high = box.size
    fill, kind = _fill(box), f"box {box.shape}"
    if box.shape == "ellipse":
        frame = f'<ellipse class="{kind}" cx="{x:.1f}" cy="{y:.1f}" rx="{wide / 2:.1f}" ry="{high / 2:.1f}" fill="{fill}"/>'
    else:
        left, top = x - wide / 2, y - high / 2
        frame = f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="4" fill="{fill}"/>'
    first = y - (len(box.lines) - 1) * _LINE / 2 + 4
    texts = [
        f'<text x="{x:.1f}" y="{first + k * _LINE:.1f}" text-anchor="middle">{_plain(line)}</text>'
        for k, line in enumerate(box.lines)
    ]
    return frame + "".join(texts)


def _path(curved: bool, points: Sequence[tuple[float, float]]) -> str:
    first, *others = [f"{x:.1f} {y:.1f}" for x, y in points]
    return f"M {first} {'C' if curved else 'L'} {' '.join(others)}"


def _middle(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if len(points) % 2:
        return points[len(points) // 2]
    (x, y), (v, w) = points[len(points) // 2 - 1], points[len(points) // 2]
    return (x + v) / 2, (y + w) / 2


def _by_graphviz(drawing: Drawing) -> _Layout:
    """Positions from Graphviz, which is told sizes and no texts but those beside arrows."""
    lines = ["digraph {", f"nodesep={_GAPS[0] / _INCH:.3f}; ranksep={_GAPS[1] / _INCH:.3f};", "edge [arrowhead=none];"]
    lines.append("node [fixedsize=true, shape=box];")
    for k, box in enumerate(drawing.boxes):
        wide, high = box.size
        shape = ", shape=ellipse" if box.shape == "ellipse" else ""
        lines.append(f'n{k} [label="", width={wide / _INCH:.4f}, height={high / _INCH:.4f}{shape}];')
    lines += [f'n{arrow.start} -> n{arrow.end} [label="{" " * len(arrow.label)}"];' for arrow in drawing.arrows]
    run = subprocess.run(
        ["dot", "-Tplain"], input="\n".join([*lines, "}"]), capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    centres = [(0.0, 0.0)] * len(drawing.boxes)
    routes: dict[tuple[int, int], list[Sequence[tuple[float, float]]]] = {}
    width = height = 0.0
    for words in map(str.split, run.stdout.splitlines()):
        if words[0] == "graph":
            width, height = float(words[2]) * _INCH, float(words[3]) * _INCH
        elif words[0] == "node":
            centres[int(words[1][1:])] = float(words[2]) * _INCH, height - float(words[3]) * _INCH
        elif words[0] == "edge":
            numbers = list(map(float, words[4 : 4 + 2 * int(words[3])]))
            points = [(x * _INCH, height - y * _INCH) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
            routes.setdefault((int(words[1][1:]), int(words[2][1:])), []).append(points)
    return _Layout(centres, [(True, routes[arrow.start, arrow.end].pop()) for arrow in drawing.arrows], width, height)


class _View:
    """What grandalf wants to know of a box, and says of it."""

    def __init__(self, size: tuple[float, float]) -> None:
        self.w, self.h = size
        self.xy = (0.0, 0.0)


def _by_grandalf(drawing: Drawing) -> _Layout:
    """Positions from grandalf; parts that do not hang together lie side by side."""
    try:
        vertices = [_graphs.Vertex(k) for k in range(len(drawing.boxes))]
    except ImportError as error:
        raise ImportError(f"svg(): {_SAYS}") from error
    for vertex, box in zip(vertices, drawing.boxes, strict=True):
        vertex.view = _View(box.size)
    edges = {pair: _graphs.Edge(*[vertices[k] for k in pair]) for pair in dict.fromkeys((a.start, a.end) for a in drawing.arrows)}
    for edge in edges.values():
        edge.view = _routing.EdgeViewer()
    left = height = 0.0
    shifts: dict[int, tuple[float, float]] = {}
    for part in _graphs.Graph(vertices, list(edges.values())).C:
        layout = _layouts.SugiyamaLayout(part)
        layout.xspace, layout.yspace, layout.route_edge = *_GAPS, _routing.route_with_lines
        layout.init_all()
        layout.draw()
        views = [vertex.view for vertex in part.sV]
        points = [point for edge in part.sE for point in edge.view._pts]
        low = min([view.xy[0] - view.w / 2 for view in views] + [x for x, _ in points])
        high = max([view.xy[0] + view.w / 2 for view in views] + [x for x, _ in points])
        top = min(view.xy[1] - view.h / 2 for view in views)
        shifts.update({vertex.data: (left - low, -top) for vertex in part.sV})
        left += high - low + _GAPS[0]
        height = max(height, *(view.xy[1] + view.h / 2 - top for view in views))
    centres = [_moved(vertex.view.xy, shifts[k]) for k, vertex in enumerate(vertices)]
    routes = []
    for arrow in drawing.arrows:
        points = [_moved(point, shifts[arrow.start]) for point in edges[arrow.start, arrow.end].view._pts]
        routes.append((False, _clipped(points, centres, drawing, arrow)))
    return _Layout(centres, routes, max(left - _GAPS[0], 0.0), height)


def _moved(point: tuple[float, float], by: tuple[float, float]) -> tuple[float, float]:
    return point[0] + by[0], point[1] + by[1]


def _clipped(
    points: Sequence[tuple[float, float]], centres: Sequence[tuple[float, float]], drawing: Drawing, arrow: Arrow
) -> Sequence[tuple[float, float]]:
    """A route that begins and ends at the frames of its boxes."""
    inner = list(points[1:-1])
    start = _frame(drawing.boxes[arrow.start], centres[arrow.start], (inner or [centres[arrow.end]])[0])
    end = _frame(drawing.boxes[arrow.end], centres[arrow.end], (inner or [centres[arrow.start]])[-1])
    return [start, *inner, end]


def _frame(box: Box, centre: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the centre of a box towards a point crosses its frame."""
    (x, y), (wide, high) = centre, box.size
    dx, dy = towards[0] - x, towards[1] - y
    if not dx and not dy:
        return centre
    if box.shape == "ellipse":
        scale = 1 / math.hypot(2 * dx / wide, 2 * dy / high)
    else:
        scale = 1 / max(abs(2 * dx / wide), abs(2 * dy / high))
    return x + dx * scale, y + dy * scale
