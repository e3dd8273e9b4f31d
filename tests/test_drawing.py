"""Drawings of graphs: as DOT text and as SVG, of compiled functions and of the eager tape."""

from __future__ import annotations

import copy
import pickle
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit import nn
from tracejit.core import drawing
from tracejit.core.drawing import Arrow, Box, Drawing

SVG = "{http://www.w3.org/2000/svg}"


def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grandalf")
    monkeypatch.setattr(shutil, "which", lambda name: None)


@pytest.fixture(params=["Graphviz", "grandalf"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two that lay boxes out."""
    if request.param == "grandalf":
        without_graphviz(monkeypatch)
    elif shutil.which("dot") is None:
        pytest.skip("there is no Graphviz")
    return str(request.param)


def rectangles(svg: str) -> list[tuple[float, float, float, float]]:
    """(left, top, right, bottom) of each box of a picture."""
    found = []
    for part in ElementTree.fromstring(svg).iter():
        kind = part.get("class") or ""
        if kind.startswith("box ") and part.tag == f"{SVG}rect":
            x, y, w, h = (float(part.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
        elif kind.startswith("box "):
            x, y, a, b = (float(part.get(name, "")) for name in ("cx", "cy", "rx", "ry"))
            found.append((x - a, y - b, x + a, y + b))
    return found


def test_boxes_of_a_picture_do_not_overlap_and_lie_within_it(engine: str) -> None:
    boxes = [Box((f"box {k}", "second line")[: 1 + k % 2], ("box", "ellipse", "guard", "end")[k % 4], k % 3) for k in range(14)]
    arrows = [Arrow(k, (k * k + 3) % 14, "[2, 3]") for k in range(14) if k < (k * k + 3) % 14]
    svg = Drawing(boxes, arrows, "a title").svg()
    found = rectangles(svg)
    assert len(found) == 14
    for i, a in enumerate(found):
        for b in found[:i]:
            assert a[2] <= b[0] + 0.2 or b[2] <= a[0] + 0.2 or a[3] <= b[1] + 0.2 or b[3] <= a[1] + 0.2
    root = ElementTree.fromstring(svg)
    wide, high = float(root.get("width", "")), float(root.get("height", ""))
    assert all(a[0] >= -0.2 and a[1] >= -0.2 and a[2] <= wide and a[3] <= high for a in found)
    assert len(list(root.iter(f"{SVG}path"))) == len(arrows) + 1


def test_arrows_point_downwards(engine: str) -> None:
    svg = Drawing([Box(("a",)), Box(("b",)), Box(("c",))], [Arrow(0, 1), Arrow(1, 2), Arrow(0, 2)]).svg()
    tops = [top for _, top, _, _ in rectangles(svg)]
    assert tops == sorted(tops) and len(set(tops)) == 3


def test_texts_are_never_markup(engine: str) -> None:
    text = '<b>&"\\\x00</svg>\n'
    made = Drawing([Box((text,)), Box(("b",))], [Arrow(0, 1, text)], text)
    root = ElementTree.fromstring(made.svg())
    assert [part.text for part in root.iter(f"{SVG}text")].count('<b>&"\\\ufffd</svg>\ufffd') == 3
    assert '"<b>&\\"\\\\\ufffd</svg>\ufffd"' in made.dot()


@pytest.mark.skipif(shutil.which("dot") is None, reason="there is no Graphviz")
def test_graphviz_reads_the_text() -> None:
    made = Drawing([Box(('a "quoted" \\ line', "second"), "ellipse", 3), Box(("b",), "guard")], [Arrow(0, 1, "[2]")], "title")
    run = subprocess.run(["dot", "-Tsvg"], input=made.dot(), capture_output=True, text=True, check=True)
    assert "a &quot;quoted&quot; \\ line" in run.stdout and not run.stderr


def test_a_drawing_without_a_layout_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for name in list(sys.modules):
        if name.partition(".")[0] == "grandalf":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grandalf", None)
    made = Drawing([Box(("a",))], [])
    with pytest.raises(ImportError, match=r"pip install 'tracejit\[draw\]'"):
        made.svg()
    assert made._repr_svg_() is None and made.dot().startswith("digraph {")


def test_a_picture_of_too_many_boxes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_MOST", 2)
    with pytest.raises(ValueError, match="has 3 boxes"):
        Drawing([Box(("a",))] * 3, []).svg()


def test_the_graph_of_a_compiled_function_is_text_and_can_be_drawn(engine: str, tmp_path: Path) -> None:
    model = nn.Linear(3, 2)

    def function(x: T.Tensor) -> T.Tensor:
        h = model(x).relu()
        if h.sum() >= 0:
            h = h * 2
        return h.sum()

    compiled = T.compile(function)
    for _ in range(2):
        compiled(T.ones(4, 3))
    graph = compiled.graph()
    assert isinstance(graph, str) and graph.splitlines()[-1].strip().startswith("return")
    names = {box.lines[0] for box in graph.drawing.boxes}
    assert {"x", "model.weight", "model.bias", "matmul", "relu", "mul(2)", "guard", "result 0", "kept for backward"} <= names
    colours = {box.lines[0]: box.group for box in graph.drawing.boxes}
    assert colours["add"] == colours["relu"] == colours["mul(2)"] is not None  # one loop nest
    svg = graph.svg(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == svg
    assert len(rectangles(svg)) == len(graph.drawing.boxes)
    line = function.__code__.co_firstlineno
    assert f"test_drawing.py:{line + 1}" in svg and f"test_drawing.py:{line + 3}" in graph.dot()


def test_a_copy_of_a_graph_is_its_text() -> None:
    compiled = T.compile(lambda x: x * 2)
    compiled(T.ones(2))
    graph = compiled.graph()
    for copied in (copy.copy(graph), pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert type(copied) is str and copied == graph


def tape_of(tensor: T.Tensor, **names: T.Tensor) -> tuple[list[str], set[tuple[str, str]]]:
    """(first lines of boxes, arrows between them by these)."""
    made = tensor.graph(names)
    first = [box.lines[0] for box in made.boxes]
    return first, {(first[arrow.start], first[arrow.end]) for arrow in made.arrows}


def test_the_tape_of_a_tensor_is_drawn_from_leaves_down_to_it() -> None:
    w, b, x = T.ones(2, 3, requires_grad=True), T.ones(2, requires_grad=True), T.ones(4, 3)
    loss = ((x @ w.T + b).relu() * 0.5).sum()
    boxes, arrows = tape_of(loss, w=w, b=b)
    assert boxes[-1] == "this tensor" and set(boxes[:2]) == {"w", "b"}
    assert arrows == {
        ("w", "permute"), ("permute", "matmul"), ("matmul", "add"), ("b", "add"), ("add", "relu"), ("relu", "mul(0.5)"),
        ("mul(0.5)", "sum"), ("sum", "this tensor"),
    }  # fmt: skip
    assert any(arrow.label == "[4, 2]" for arrow in loss.graph().arrows)


def test_a_call_of_a_compiled_function_is_one_box_of_the_tape() -> None:
    compiled = T.compile(lambda x: (x.exp() * 2).sum())
    x = T.ones(3, requires_grad=True)
    for _ in range(2):
        result = compiled(x)
    boxes, arrows = tape_of(result * result, x=x)
    assert len(boxes) == 4 and boxes[1].startswith("CompiledBackward[") and ("x", boxes[1]) in arrows


def test_a_leaf_is_its_own_graph_and_a_tensor_without_gradient_has_none() -> None:
    x = T.ones(3, requires_grad=True)
    assert tape_of(x, x=x) == (["x", "x"], {("x", "x")})
    with pytest.raises(RuntimeError, match="does not require grad"):
        T.ones(3).graph()


def test_drawing_inside_a_compiled_function_makes_it_eager() -> None:
    def function(x: T.Tensor) -> Any:
        y = x * 2
        return y, len(y.graph().boxes)

    compiled = T.compile(function)
    x = T.ones(3, requires_grad=True)
    assert [compiled(x)[1] for _ in range(4)] == [3] * 4
    assert compiled.stats.compiled_calls == 0 and [reason.code for reason in compiled.reasons] == ["tensor_state"]


def test_a_drawing_says_what_it_is_at_the_prompt_and_is_a_picture_in_notebooks(engine: str) -> None:
    made = T.ones(3, requires_grad=True).graph()
    assert re.fullmatch(r"<drawing of 2 boxes and 1 arrows: .*>", repr(made))
    assert (made._repr_svg_() or "").startswith("<svg ")


def test_pytorchs_tensors_have_no_such_method() -> None:
    torch = pytest.importorskip("torch")
    assert not hasattr(torch.Tensor, "graph")
