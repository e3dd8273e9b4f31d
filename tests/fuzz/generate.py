"""A whole program from a seed: the world, the function in one of its forms, the calls."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence

from tests.fuzz.forms import open_form
from tests.fuzz.maker import Maker, Parameter, indented
from tests.fuzz.run import Program
from tests.fuzz.statements import body, returned
from tests.fuzz.worlds import furnish, variants

__all__ = ["generate", "written"]

# Values of parameters that are no tensors: the first one in the first call, the others in others.
PLAIN = (
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
)


def generate(seed: int) -> Program:
    """The program of a seed."""
    return written(seed)[0]


def written(seed: int) -> tuple[Program, Maker]:
    """The program of a seed, and the hand that wrote it."""
    m = Maker(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():  # what is tried may print
        warnings.simplefilter("ignore")
        furnish(m)
        for _ in range(m.choose.choice([1, 1, 2, 2, 3])):
            m.parameter_of(m.shape(), m.dtype())
        for _ in range(m.choose.choice([0, 0, 0, 1, 1, 2])):
            plain_parameter(m)
        define = open_form(m)
        body(m, m.choose.choice([1, 2, 3, 3, 4, 4, 5, 6, 7, 9]))
        lines = [*m.lines, f"return {returned(m)}"]
        function = define(signature(m), [*declarations(m, lines), *lines])
        text = [*m.world.lines, *function, *calls(m), "def observe():", f"    return [{', '.join(m.world.observed)}]"]
    most_elements = 4 if not m.must_replay and m.chance(0.2) else None
    return Program("\n".join(text) + "\n", str(seed), m.must_replay, m.for_torch, tuple(m.used), most_elements), m


def plain_parameter(m: Maker) -> None:
    """A parameter that is no tensor, perhaps with a default."""
    values = m.pick(PLAIN)
    m.parameter(Parameter(m.name("p"), None, values[0], values, values[0] if m.chance(0.3) else ""))


def ordered(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Those with defaults last."""
    return sorted(parameters, key=lambda p: bool(p.default))


def signature(m: Maker) -> str:
    """The parameters of the function."""
    return ", ".join(p.name + (f"={p.default}" if p.default else "") for p in ordered(m.parameters))


def declarations(m: Maker, lines: Sequence[str]) -> list[str]:
    """`global` statements for the names of the module that the lines assign to."""
    text = "\n".join(lines)
    names = [n for n in m.declared if any(f"{n} {operator}= " in text or f"{n} = " in text for operator in "+-*/")]
    return [f"global {', '.join(sorted(set(names)))}"] if names else []


# -- calls
def calls(m: Maker) -> list[str]:
    """The calls: the first with the arguments that the function was written with, the others changed."""
    count = m.choose.choice([1, 2, 2, 3, 3, 4])
    lines: list[str] = []
    for number in range(count):
        parameters = m.parameters if number == 0 else variants(m, m.parameters)
        lines += [f"def call_{number}(f):", *indented(_call(m, ordered(parameters), number > 0))]
    return [*lines, f"calls = [{', '.join(f'call_{n}' for n in range(count))}]"]


def _call(m: Maker, parameters: Sequence[Parameter], changed: bool) -> list[str]:
    lines: list[str] = []
    if changed and m.world.changes and m.chance(0.5):
        change = str(m.pick(m.world.changes))
        name = change.split(" ")[0]
        lines += [*([f"global {name}"] if name in m.declared else []), *change.split("\n")]
    arguments = []
    by_name = m.chance(0.15)
    for p in parameters:
        if p.default and m.chance(0.4):
            by_name = True
            continue
        value = p.name if p.is_named else p.text
        if p.is_named:
            lines.append(f"{p.name} = {p.value()}")
        arguments.append(f"{p.name}={value}" if by_name else value)
    lines.append(f"r = f({', '.join(arguments)})")
    leaves = [
        p.name
        for p in parameters
        if p.spec and p.spec.grad and p.spec.dtype.startswith("float") and f"{p.name} = {p.value()}" in lines
    ]
    return [*lines, *_afterwards(m, leaves)]


def _afterwards(m: Maker, leaves: list[str]) -> list[str]:
    """What is done with the result `r`, where `leaves` require grad."""
    gradients, inputs = ", ".join(f"{name}.grad" for name in leaves), ", ".join(leaves)
    with_backward = ["total(r).backward()", f"return r, [{gradients}]"]
    options: list[tuple[float, list[str]]] = [
        (4, ["return r"]),
        (5 if m.wants_grad else 0.3, with_backward),
        (
            0.7,
            [
                "for t in r if isinstance(r, (tuple, list)) else [r]:",
                "    if isinstance(t, T.Tensor):",
                "        t.data.fill_(2)",
                *(["    if isinstance(t, np.ndarray) and t.flags.writeable:", "        t[...] = 2"] if m.tells else []),
                "return r",
            ],
        ),
    ]
    if m.wants_grad:
        options += [
            (0.4, ["total(r).backward(retain_graph=True)", *with_backward]),
            (0.4, ["total(r).backward()", *with_backward]),
            (0.3, ["with T.no_grad():", "    s = total(r)", "return r, s"]),
        ]
    if leaves:
        twice = f"g = T.autograd.grad(total(r), [{inputs}], create_graph=True, allow_unused=True)"
        options += [
            (1.5, [f"return r, T.autograd.grad(total(r), [{inputs}], allow_unused=True)"]),
            (1.0, [twice, "total(g).backward()", f"return r, g, [{gradients}]"]),
            (
                0.4,
                [
                    "seen = []",
                    f"{leaves[0]}.register_hook(lambda g: seen.append(g * 1))",
                    *with_backward[:1],
                    f"return r, seen, [{gradients}]",
                ],
            ),
        ]
    found: list[str] = m.weighted(options)
    return found
