"""Instances of classes in the world of a program: how they are written, and what may be done to them."""

from __future__ import annotations

from tests.fuzz.arguments import literal_number
from tests.fuzz.maker import FLOATS, Maker
from tracejit import Tensor

__all__ = ["instance", "tensor_changes", "tensor_text"]

METHODS = """
    def scale(self, x):
        {count}
        return x * self.k
    @property
    def gain(self):
        return self.k * 2
    def __call__(self, x):
        return self.scale(x) + self.gain
"""
PLAIN = """
class {kind}:
    shared = {shared}
    def __init__(self, k):
        self.k = k
        self.w = {w}
        self.calls = 0
{methods}
"""
STYLES = {
    "plain": PLAIN
    + """
{name} = {kind}({k})
""",
    "derived": PLAIN
    + """
class {kind}b({kind}):
    def scale(self, x):
        return super().scale(x) {more}
{name} = {kind}b({k})
""",
    "dataclass": """
import dataclasses
@dataclasses.dataclass
class {kind}:
    k: float
    w: object
    calls: int = 0
{methods}
{name} = {kind}({k}, {w})
""",
    "slots": """
class {kind}:
    __slots__ = ('k', 'w', 'calls')
{methods}
{name} = {kind}()
{name}.k, {name}.w, {name}.calls = {k}, {w}, 0
""",
    "class": """
class {kind}:
    k, w, calls = {k}, {w}, 0
{methods}
{name} = {kind}()
""",
    "namespace": """
import types
{name} = types.SimpleNamespace(k={k}, w={w}, calls=0)
""",
}
WEIGHTS = ((4, "plain"), (2, "derived"), (1, "dataclass"), (1, "slots"), (1, "class"), (1, "namespace"))


def tensor_text(m: Maker, shape: tuple[int, ...] | None = None) -> str:
    """An expression that makes a tensor."""
    return m.spec(m.shape() if shape is None else shape, m.pick(FLOATS)).text()


def tensor_changes(m: Maker, text: str) -> None:
    """What may be done to a tensor of outside between calls."""
    m.world.changes += [
        f"{text}.data.mul_(2)",
        f"{text}.data = {text}.data + 1",
        f"with T.no_grad():\n    {text}.add_(1)",
        f"{text}.requires_grad_(not {text}.requires_grad)",
        f"{text}.grad = None",
        f"{text}.grad = T.ones_like({text}).detach()",
        f"{text}.tag = 1",
    ]


def instance(m: Maker) -> None:
    """An object with attributes, methods, a property: of a class, perhaps derived, with slots, a dataclass; or a namespace."""
    kind, name, style = m.name("Box"), m.name("box"), m.weighted(WEIGHTS)
    parts = {
        "kind": kind,
        "name": name,
        "k": literal_number(m),
        "w": tensor_text(m),
        "shared": literal_number(m),
        "methods": METHODS.format(count=m.pick(["self.calls += 1", "pass"])),
        "more": m.pick(["+ 1", "* self.shared", "- self.gain"]),
    }
    if not m.outside(*[line for line in STYLES[style].format(**parts).split("\n") if line.strip()], name=name):
        return
    changes, effects = m.world.changes, m.world.effects
    changes += [f"{name}.k = {literal_number(m)}", f"{name}.w = {tensor_text(m)}", f"{name}.calls = 0"]
    effects += [f"{name}.calls += 1", f"{name}.w = {{x}}", f"{name}.k = {{n}}", f"{name}.w += 1", f"{name}.k *= 2"]
    if style != "slots":
        changes += [f"{name}.flag = True", f"{name}.__dict__.pop('flag', None)"]
        effects += [f"{name}.last = {{x}}", f"{name}.n = getattr({name}, 'n', 0) + 1"]
    if style in ("plain", "derived"):
        changes += [f"{kind}.shared = {literal_number(m)}", f"{kind}.scale = lambda self, x: x + self.k", f"{kind}.extra = 1"]
    if style == "class":
        changes += [f"{kind}.k = {literal_number(m)}"]
    if style != "namespace":
        m.numbers.append(f"{name}.gain")
    if isinstance(m.env[name].w, Tensor):
        tensor_changes(m, f"{name}.w")
