"""A whole program from a seed: the world, the function in one of its forms, the calls."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from tests.fuzz.arguments import literal_number
from tests.fuzz.maker import Maker, Parameter, indented
from tests.fuzz.run import Program
from tests.fuzz.statements import body, returned
from tests.fuzz.worlds import furnish, variants

__all__ = ["generate", "written"]

FORMS = ((8, "function"), (2, "closure"), (2, "method"), (1.5, "callable"))


def generate(seed: int) -> Program:
    """The program of a seed."""
    return written(seed)[0]


def written(seed: int) -> tuple[Program, Maker]:
    """The program of a seed, and the hand that wrote it."""
    with contextlib.redirect_stdout(io.StringIO()):
        return _written(Maker(seed))


def _written(m: Maker) -> tuple[Program, Maker]:
    form = m.weighted(FORMS)
    furnish(m)
    for _ in range(m.choose.choice([1, 1, 2, 2, 3])):
        m.parameter_of(m.shape(), m.dtype())
    for _ in range(m.choose.choice([0, 0, 0, 1, 1, 2])):
        plain_parameter(m)
    lead = opening(m, form)
    body(m, m.choose.choice([1, 2, 3, 3, 4, 4, 5, 6, 7, 9]))
    result = f"return {returned(m)}"
    lines = [*lead, *m.lines, result]
    function = definition(m, form, lines)
    text = "\n".join([*m.world.lines, *function, *calls(m), *observation(m)]) + "\n"
    return Program(text, str(m.seed), m.must_replay, m.for_torch, tuple(m.used)), m


def plain_parameter(m: Maker) -> None:
    """A parameter that is no tensor."""
    name = m.name("p")
    values = m.pick(
        [
            ("2", "3", "2.5", "True", "0"),
            ("1.5", "2.0", "-0.0", "0.0", "3"),
            ("True", "False"),
            ("'a'", "'b'", "''"),
            ("None", "1"),
            ("(2, 3)", "(3, 2)", "[2, 3]"),
            ("[1.0, 2.0]", "[1.0]", "[]"),
            ("-1", "0", "1"),
            ("{'k': 2.0}", "{'k': 3.0}", "{}"),
            ("np.float32(1.5)", "np.int64(2)", "1.5", "np.float64(0.5)"),
            ("2**40", "-(2**70)", "7"),
            ("math.nan", "math.inf", "0.0", "-0.0"),
        ]
    )
    m.parameter(Parameter(name, None, values[0], values, values[0] if m.chance(0.3) else ""))


def opening(m: Maker, form: str) -> list[str]:
    """What the form of the function gives it to work with; the statements that must come first."""
    if form == "closure":
        for _ in range(m.choose.choice([1, 2])):
            name = m.name("k")
            m.world.lines.append(f"#cell {name} = {literal_number(m) if m.chance(0.6) else m.spec(m.shape(), 'float32').text()}")
            m.env[name] = m.value(m.world.lines[-1].split(" = ", 1)[1])
            m.names.insert(0, name)
            m.world.effects.append(f"{name} = {name} + 1")
    elif form in ("method", "callable"):
        m.outside(
            "class Model:",
            "    scale = 2.0",
            "    def __init__(self):",
            f"        self.w = {m.spec(m.shape(), 'float32').text()}",
            f"        self.k = {literal_number(m)}",
            "        self.calls = 0",
            "model = Model()",
            name="model",
        )
        m.env["self"] = m.env["model"]
        m.names.append("self")
        m.world.effects += ["self.calls += 1", "self.w = {x}", "self.k = {n}", "self.last = {x}"]
        m.world.changes += [
            f"model.k = {literal_number(m)}",
            f"model.w = {m.spec(m.shape(), 'float32').text()}",
            "Model.scale = 3.0",
            "model.scale = 1.5",
        ]
    return []


def definition(m: Maker, form: str, lines: Sequence[str]) -> list[str]:
    """The function, and `target`."""
    text = "\n".join(lines)
    declared = sorted({d for d in m.declared if _assigned(d.split()[1], text)})
    signature = ", ".join(p.name + (f"={p.default}" if p.default else "") for p in _ordered(m.parameters))
    cells = [line.removeprefix("#cell ") for line in m.world.lines if line.startswith("#cell ")]
    m.world.lines[:] = [line for line in m.world.lines if not line.startswith("#cell ")]
    if form == "closure" and cells:
        names = [c.split(" = ")[0] for c in cells]
        inner = [*declared, f"nonlocal {', '.join(names)}", *lines]
        changes = [f"    def change():\n        nonlocal {names[0]}\n        {names[0]} = {names[0]} + 1"]
        m.world.changes.append("change()")
        return [
            "def make():",
            *indented(cells),
            f"    def fn({signature}):",
            *indented(inner, 2),
            *changes,
            f"    return fn, change, lambda: [{', '.join(names)}]",
            "target, change, cells = make()",
        ]
    if form in ("method", "callable"):
        name = "__call__" if form == "callable" else "step"
        inner = [f"def {name}(self{', ' if signature else ''}{signature}):", *indented([*declared, *lines])]
        at = next(i for i, line in enumerate(m.world.lines) if line == "model = Model()")
        m.world.lines[at:at] = indented(inner)
        return ["target = model" if form == "callable" else "target = model.step"]
    inner = [f"def fn({signature}):", *indented([*declared, *lines])]
    if m.chance(0.1):
        return [*inner, "def target(*args, **kwargs):", "    return fn(*args, **kwargs)"]
    if m.chance(0.06):
        wrapper = [
            "def wrapped(function):",
            "    @functools.wraps(function)",
            "    def inner(*args, **kwargs):",
            "        return function(*args, **kwargs)",
            "    return inner",
        ]
        return ["import functools", *wrapper, "@wrapped", *inner, "target = fn"]
    return [*inner, "target = fn"]


def _ordered(parameters: Sequence[Parameter]) -> list[Parameter]:
    return sorted(parameters, key=lambda p: bool(p.default))


def _assigned(name: str, text: str) -> bool:
    """Whether a name is assigned to in a text of lines."""
    return any(f"{name} {operator}= " in text or f"{name} = " in text for operator in "+-*/")


def calls(m: Maker) -> list[str]:
    """The calls: the first with the arguments it was written with, the others changed."""
    count = m.choose.choice([1, 2, 2, 3, 3, 4])
    lines: list[str] = []
    for number in range(count):
        parameters = m.parameters if number == 0 else variants(m, m.parameters)
        lines += [f"def call_{number}(f):", *indented(_call(m, parameters, number))]
    return [*lines, f"calls = [{', '.join(f'call_{n}' for n in range(count))}]"]


def _call(m: Maker, parameters: Sequence[Parameter], number: int) -> list[str]:
    parameters = _ordered(parameters)
    lines: list[str] = []
    if number and m.world.changes and m.chance(0.5):
        change = str(m.pick(m.world.changes))
        name = change.split(" ")[0]
        if f"global {name}" in m.declared:
            lines.append(f"global {name}")
        lines += change.split("\n")
    lines += [f"{p.name} = {p.value()}" for p in parameters if p.spec or p.text.isidentifier() or "." in p.text or "[" in p.text]
    named = {p.name for p in parameters if p.spec or p.text.isidentifier() or "." in p.text or "[" in p.text}
    arguments = []
    keyword = m.chance(0.15)
    for p in parameters:
        text = p.name if p.name in named else p.text
        if p.default and m.chance(0.4):
            keyword = True
            continue
        arguments.append(f"{p.name}={text}" if keyword else text)
    lines.append(f"r = f({', '.join(arguments)})")
    leaves = [p.name for p in parameters if p.name in named and p.spec and p.spec.grad and p.spec.dtype.startswith("float")]
    return [*lines, *_afterwards(m, leaves)]


def _afterwards(m: Maker, leaves: list[str]) -> list[str]:
    """What is done with the result."""
    kind = m.weighted(
        [
            (4, "nothing"),
            (5 if m.wants_grad else 0.3, "backward"),
            (1.5 if leaves else 0, "grad"),
            (1 if leaves else 0, "second"),
            (0.7, "changed"),
            (0.4 if leaves else 0, "hook"),
            (0.4 if m.wants_grad else 0, "twice"),
            (0.3 if m.wants_grad else 0, "no grad"),
        ]
    )
    gradients = ", ".join(f"{name}.grad" for name in leaves)
    if kind == "backward":
        return ["total(r).backward()", f"return r, [{gradients}]"]
    if kind == "grad":
        return [f"return r, T.autograd.grad(total(r), [{', '.join(leaves)}], allow_unused=True)"]
    if kind == "second":
        return [
            f"g = T.autograd.grad(total(r), [{', '.join(leaves)}], create_graph=True, allow_unused=True)",
            "total(g).backward()",
            f"return r, g, [{gradients}]",
        ]
    if kind == "changed":
        return [
            "for t in r if isinstance(r, (tuple, list)) else [r]:",
            "    if isinstance(t, T.Tensor):",
            "        t.data.fill_(2)",
            "return r",
        ]
    if kind == "hook":
        return [
            "seen = []",
            f"{leaves[0]}.register_hook(lambda g: seen.append(g * 1))",
            "total(r).backward()",
            f"return r, seen, [{gradients}]",
        ]
    if kind == "twice":
        return ["total(r).backward(retain_graph=True)", "total(r).backward()", f"return r, [{gradients}]"]
    if kind == "no grad":
        return ["with T.no_grad():", "    s = total(r)", "return r, s"]
    return ["return r"]


def observation(m: Maker) -> list[str]:
    """What is looked at after every call."""
    names = [n for n in m.world.observed]
    cells = (
        ["cells()"] if any(line.startswith("target, change, cells") for line in m.lines) or "change()" in m.world.changes else []
    )
    return ["def observe():", f"    return [{', '.join([*names, *cells])}]"]
