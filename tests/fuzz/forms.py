"""The forms in which a function stands in the module: plain, wrapped, with cells, as a method, as a callable object.

A form is opened before the function's body is written, for what it gives the body to work with, and defines the function afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.arguments import literal_number
from tests.fuzz.maker import Maker, indented

__all__ = ["Definition", "open_form"]

Definition = Callable[[str, Sequence[str]], list[str]]  # of a signature and the body's lines; it ends in what defines `target`


def open_form(m: Maker) -> Definition:
    """One of the forms."""
    forms = ((7, _plain), (1, _forwarded), (0.6, _decorated), (2.3, _closure), (2, _method), (1.5, _callable_object))
    found: Definition = m.weighted(forms)(m)
    return found


def _plain(m: Maker) -> Definition:
    return lambda signature, lines: [f"def fn({signature}):", *indented(lines), "target = fn"]


def _forwarded(m: Maker) -> Definition:
    return lambda signature, lines: [
        f"def fn({signature}):",
        *indented(lines),
        "def target(*args, **kwargs):",
        "    return fn(*args, **kwargs)",
    ]


def _decorated(m: Maker) -> Definition:
    decorator = [
        "import functools",
        "def wrapped(function):",
        "    @functools.wraps(function)",
        "    def inner(*args, **kwargs):",
        "        return function(*args, **kwargs)",
        "    return inner",
    ]
    return lambda signature, lines: [*decorator, "@wrapped", f"def fn({signature}):", *indented(lines), "target = fn"]


def _closure(m: Maker) -> Definition:
    """A function with cells, which it changes, and which are changed between calls."""
    cells = {}
    for _ in range(m.choose.choice([1, 2])):
        name = m.name("k")
        cells[name] = literal_number(m) if m.chance(0.6) else m.spec(m.shape(), "float32").text()
        m.env[name] = m.value(cells[name])
        m.names.insert(0, name)
        m.cells.append(name)
        m.world.effects.append(f"{name} = {name} + 1")
    names = ", ".join(cells)
    m.world.changes.append("change()")
    m.world.observed.append("cells()")

    def define(signature: str, lines: Sequence[str]) -> list[str]:
        first = next(iter(cells))
        return [
            "def make():",
            *[f"    {name} = {value}" for name, value in cells.items()],
            f"    def fn({signature}):",
            f"        nonlocal {names}",
            *indented(lines, 2),
            "    def change():",
            f"        nonlocal {first}",
            f"        {first} = {first} + 1",
            f"    return fn, change, lambda: [{names}]",
            "target, change, cells = make()",
        ]

    return define


def _model(m: Maker, method: str, target: str) -> Definition:
    """A method of an object that it changes."""
    head = [
        "class Model:",
        "    scale = 2.0",
        "    def __init__(self):",
        f"        self.w = {m.spec(m.shape(), 'float32').text()}",
        f"        self.k = {literal_number(m)}",
        "        self.calls = 0",
    ]
    m.runs("\n".join([*head, "model = self = Model()"]))
    m.names += ["model", "self"]
    m.world.observed.append("model")
    m.world.effects += ["self.calls += 1", "self.w = {x}", "self.k = {n}", "self.last = {x}"]
    m.world.changes += [
        f"model.k = {literal_number(m)}",
        f"model.w = {m.spec(m.shape(), 'float32').text()}",
        "Model.scale = 3.0",
        "model.scale = 1.5",
    ]

    def define(signature: str, lines: Sequence[str]) -> list[str]:
        parameters = ", ".join(filter(None, ["self", signature]))
        return [*head, f"    def {method}({parameters}):", *indented(lines, 2), "model = Model()", f"target = {target}"]

    return define


def _method(m: Maker) -> Definition:
    return _model(m, "step", "model.step")


def _callable_object(m: Maker) -> Definition:
    return _model(m, "__call__", "model")
