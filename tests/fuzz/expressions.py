"""Expressions: operations and operators on tensors, items, numbers, and conditions that Python branches on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.arguments import any_number, call_text, matrix, tensor_like
from tests.fuzz.keeping import chance_number, kept_number
from tests.fuzz.leaving import of_taken, taken
from tests.fuzz.maker import Maker, Parameter, TensorSpec
from tests.fuzz.operations import PrimitiveCase, operations, primitives
from tracejit import Generator, Tensor, dtype
from tracejit.core.op import REGISTRY, Promotion

__all__ = ["condition", "draw", "expression", "in_place", "key", "number", "operation"]

TRIES = 6
NEVER_REPLAYED = ("nonzero", "argwhere", "masked_select", "one_hot", "repeat_interleave", "masked_scatter")
ARITHMETIC = ("+", "-", "*", "+", "-", "*", "/", "//", "%", "**")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
BITS = ("&", "|", "^")
FREQUENT = (
    "{x}.sum()", "{x}.mean()", "{x}.sum(-1)", "{x}.exp()", "{x}.tanh()", "T.relu({x})", "{x}.t()", "{x}.T", "{x} * 2", "{x} + 1",
    "{x} * {x}", "{x}.abs().sqrt()", "{x}.reshape(-1)", "{x}.sum(0, keepdim=True)", "{x}.max()", "T.sigmoid({x})", "{x}[0]",
    "{x}.detach()", "{x}.clone()", "F.softmax({x}, -1)", "1 / ({x} * {x} + 1)", "{x}.mean(-1, keepdim=True)", "{x}.unsqueeze(0)",
    "{x}.argmax(-1)", "{x}.cumsum(-1)", "T.where({x} > 0, {x}, -{x})", "{x}.clamp(-0.5, 0.5)", "{x}.float()", "-{x}", "{x}.mT",
    "T.zeros_like({x})", "T.ones({x}.shape)", "{x}.new_zeros(2, 3)", "T.arange({x}.numel())", "T.tensor([1.0, 2.0])", "{x}.data",
    "T.tensor({n})", "T.full((2, 3), {n})", "{x} * {n}", "{x} - {n}", "T.tensor([{n}, {n}])", "T.zeros(2, {n} % 3)",
)  # fmt: skip


def operation(m: Maker, style: str | None = None) -> str | None:
    """A call of something from the tables that runs."""
    for _ in range(TRIES):
        chosen = m.pick(operations())
        if (style == "in place") != (chosen.style == "in place") or chosen.draws:
            continue
        text = call_text(m, chosen)
        if text is not None and not m.fails(text):
            m.used.append(chosen.key)
            if chosen.name in NEVER_REPLAYED or (chosen.name == "where" and text.count(",") == 0):
                m.not_replayed("sizes or contents that depend on data")
            return text
    return None


DRAWS = (
    "F.dropout({x}.float(), 0.5)", "F.dropout({x}.float(), 0.3, {x}.ndim > 1)",
    "{x}.detach().float().clone().uniform_(-1, 2)", "{x}.detach().float().clone().normal_(1, 2)", "T.randn({x}.shape)",
    "T.rand_like({x}.float())", "T.randperm(5)", "T.randint(0, 9, (7,))", "T.bernoulli(T.sigmoid({x}.float()))",
    "T.normal({x}.float(), 0.5)", "T.multinomial(T.rand(3, 4), 2)", "T.randn(5, dtype=T.float64)",
    "T.rand(6, dtype=T.float16)", "T.randn(3) * T.rand(1).item()", "{x}.detach().float().clone().bernoulli_(0.4)",
    "T.randn(2, 3).t()", "(T.randn(3) if T.rand(1).item() < 0.5 else T.rand(3))", "T.rand(2, generator={g})",
    "T.randn(5, generator={g})",
)  # fmt: skip


def draw(m: Maker) -> str | None:
    """A call that draws random numbers."""
    if m.chance(0.6):
        generators = [text for text, value in m.reachable() if isinstance(value, Generator)]
        text = str(m.pick(DRAWS)).replace("{x}", m.tensor() or m.floating()).replace("{g}", m.pick(generators or ["None"]))
        return None if m.fails(text) else text
    found = [o for o in operations() if o.draws and o.style != "in place"]
    for _ in range(TRIES):
        chosen = m.pick(found)
        text = call_text(m, chosen)
        if text is not None and not m.fails(text):
            m.used.append(chosen.key)
            return text
    return None


def primitive(m: Maker) -> str | None:
    """A primitive on one of its samples: tensors of those shapes and dtypes from outside."""
    case: PrimitiveCase = m.pick(primitives())
    m.for_torch = False
    converts = REGISTRY[case.name].promotion is not Promotion.NONE
    operands = [
        m.parameter(
            Parameter(
                m.name("a"),
                TensorSpec(x.dtype.name, x.shape, m.choose.randrange(1, 90), _kind_of(x)),
                is_named=True,
                is_fixed=not converts,
            )
        )
        if isinstance(x, np.ndarray) and len(m.parameters) < 6
        else repr(x)
        for x in case.operands
    ]
    attributes = [f"{name}={_attribute(value)}" for name, value in case.attributes.items()]
    name = m.name("primitive")
    m.outside(f"{name} = op({case.name!r})")
    text = f"{name}({', '.join([*operands, *attributes])})"
    if m.fails(text):
        return None
    m.used.append(f"op.{case.name}")
    return text


def _attribute(value: Any) -> str:
    return f"T.{value.name}" if isinstance(value, dtype) else repr(value)


def _kind_of(x: np.ndarray) -> str | int:
    """Which numbers stand for those of a sample."""
    if x.dtype.kind in "iu":
        return int(x.max()) + 1 if x.size and x.min() >= 0 else "plain"
    return "positive" if x.size and x.min() > 0 else "unit" if x.size and x.min() > -1 and x.max() < 1 else "plain"


def operator(m: Maker) -> str | None:
    """Python's operators on a tensor and something that goes with it."""
    x = m.tensor() or m.floating()
    value = m.value(x)
    kind = m.weighted([(6, "arithmetic"), (2, "comparison"), (1, "bits"), (1.5, "product"), (1, "unary"), (1, "reflected")])
    for _ in range(TRIES):
        if kind == "unary":
            text = f"{m.pick(['-', '+', '~', 'abs'])}({x})"
        elif kind == "product":
            text = f"{x} @ {matrix(m, value)}"
        elif kind == "reflected":
            text = f"{any_number(m, value)} {m.pick(ARITHMETIC)} {x}"
        else:
            table = {"arithmetic": ARITHMETIC, "comparison": COMPARISONS, "bits": BITS}[kind]
            other = any_number(m, value) if m.chance(0.35) else tensor_like(m, value)
            text = f"{x} {m.pick(table)} {other}"
        if not m.fails(text):
            return text
    return None


def key(m: Maker, x: Any) -> str:
    """What may stand in brackets after a tensor."""
    parts: list[str] = []
    rank = x.ndim
    for position in range(m.choose.randint(0, rank)):
        size = x.shape[position]
        kind = m.weighted(
            [
                (4, "slice"),
                (3, "int"),
                (1, "full"),
                (1, "none"),
                (1, "list"),
                (1, "tensor"),
                (0.7, "mask"),
                (0.7, "ellipsis"),
                (0.5, "number"),
            ]
        )
        if kind == "int":
            parts.append(str(m.choose.randrange(-size, size)) if size else "0")
        elif kind == "slice":
            ends = [str(m.choose.randint(-size, size + 1)) if m.chance(0.5) else "" for _ in range(2)]
            step = f":{m.pick([1, 2, 3])}" if m.chance(0.3) else ""
            parts.append(":".join(ends) + step)
        elif kind == "list" and size:
            parts.append(repr([m.choose.randrange(-size, size) for _ in range(m.choose.randint(1, 3))]))
        elif kind == "tensor" and size:
            parts.append(m.parameter_of((m.pick([1, 2, 3]),), "int64", size))
        elif kind == "mask":
            parts.append(m.parameter_of((size,), "bool"))
            m.not_replayed("sizes that depend on data")
        elif kind == "ellipsis" and "..." not in parts:
            parts.append("...")
        elif kind == "none":
            parts.append("None")
        elif kind == "number":
            names = [text for text, value in m.reachable() if type(value) is int and -size <= value < size]
            parts.append(m.pick(names) if names else ":")
        else:
            parts.append(":")
    return ", ".join(parts) or m.pick(["...", ":", "None", "0", "-1"])


def item(m: Maker) -> str | None:
    """Part of a tensor."""
    x = m.tensor(lambda t: t.ndim > 0)
    if x is None:
        return None
    text = f"{x}[{key(m, m.value(x))}]"
    return None if m.fails(text) else text


def frequent(m: Maker) -> str | None:
    """What is written most often."""
    x = m.tensor() or m.floating()
    text = str(m.pick(FREQUENT)).replace("{x}", x)
    if "{n}" in text:
        text = text.replace("{n}", number(m))
    return None if m.fails(text) else text


def nested(m: Maker) -> str | None:
    """An operation on a part of an expression."""
    inner = expression(m)
    text = str(m.pick(FREQUENT)).replace("{x}", f"({inner})").replace("{n}", "2")
    return None if m.fails(text) else text


def conditional(m: Maker) -> str | None:
    """One expression or another."""
    one, other = frequent(m), frequent(m)
    return f"{one} if {condition(m)} else {other}" if one and other else None


def with_function(m: Maker) -> str | None:
    """A call of a function that the program defines."""
    reachable = list(m.reachable())
    found = [text for text, value in reachable if callable(value) and not isinstance(value, type | Tensor)]
    found += [f"{text}.scale" for text, value in reachable if hasattr(value, "scale") and callable(value.scale)]
    if not found:
        return None
    x = m.tensor() or m.floating()
    text = f"{m.pick(found)}({x})"
    return None if m.fails(text) else text


Writer = Callable[[Maker], str | None]
EXPRESSIONS: Sequence[tuple[float, Writer]] = (
    (9, operation), (8, operator), (5, frequent), (2, item), (1.5, primitive), (1.5, nested), (0.8, conditional), (2, with_function),
)  # fmt: skip


def expression(m: Maker) -> str:
    """An expression whose value holds a tensor."""
    for _ in range(TRIES):
        text = m.weighted(EXPRESSIONS)(m)
        if text is not None and _holds_tensor(m, text):
            return str(text)
    return f"{m.tensor() or m.floating()} * 2"


def _holds_tensor(m: Maker, text: str) -> bool:
    try:
        value = m.value(text)
    except Exception:
        return False
    values = value if isinstance(value, tuple | list) else [value]
    return any(isinstance(v, Tensor) and v.numel() < 1500 for v in values)


def in_place(m: Maker) -> str | None:
    """A statement that changes a tensor's contents."""
    x = m.tensor() or m.floating()
    value = m.value(x)
    kind = m.weighted([(4, "operation"), (3, "operator"), (3, "item"), (1, "item operator")])
    if kind == "operation":
        return operation(m, "in place")
    if kind == "operator":
        if not x.isidentifier() or x in m.outer_names:
            return None
        return f"{x} {m.pick(ARITHMETIC[:7])}= {tensor_like(m, value) if m.chance(0.5) else any_number(m, value)}"
    where = f"{x}[{key(m, value)}]"
    if m.fails(where):
        return None
    part = m.value(where)
    new = tensor_like(m, part) if m.chance(0.5) and isinstance(part, Tensor) else any_number(m, part)
    return f"{where} {'=' if kind == 'item' else m.pick(['+=', '-=', '*='])} {new}"


# -- numbers
def number(m: Maker) -> str:
    """A Python number: a literal, one from outside, a size, or one computed of those."""
    x = m.tensor() or m.floating()
    value = m.value(x)
    options = [any_number(m, value), f"{x}.ndim", f"{x}.numel()", f"len({x}.shape)"]
    if value.ndim:
        options += [f"{x}.shape[{m.choose.randrange(value.ndim)}]", f"len({x})", f"{x}.size(-1)"]
    known = [text for text, v in m.reachable() if type(v) in (int, float, bool)]
    options += [*known[-3:] * 2, *m.numbers]
    lists = [text for text, v in m.reachable() if isinstance(v, list | dict) and not text.endswith("]")]
    options += [f"len({text})" for text in lists[-2:]]
    if m.chance(0.2 if m.tells else 0.12):
        found = m.pick([chance_number, kept_number, taken] if m.tells else [taken])(m)
        options = options if found is None else [found]
    text = str(m.pick(options))
    if m.chance(0.3):
        text = f"{text} {m.pick(['+', '-', '*', '//', '%', '/', '**'])} {m.pick(['1', '2', '3', '0.5'])}"
    if m.chance(0.1):
        text = f"{m.pick(['abs', 'int', 'float', 'bool', 'round', 'math.floor'])}({text})"
    if m.chance(0.1):
        text = f"{m.pick(['min', 'max'])}({text}, {m.pick(['2', '3', '0.5'])})"
    return "2" if m.fails(text) else text


# -- conditions
def condition(m: Maker) -> str:
    """Something that Python branches on."""
    for _ in range(TRIES):
        text = m.weighted(CONDITIONS)(m)
        if text is not None and not m.fails(f"bool({text})"):
            return str(text)
    return "True"


def _of_value(m: Maker) -> str | None:
    x = m.tensor(lambda t: t.numel() > 0)
    if x is None:
        return None
    scalar = m.pick(
        [f"{x}.sum()", f"{x}.max()", f"({x} > 0).any()", f"{x}.float().mean()", f"{x}.reshape(-1)[0]", f"({x} < 1).all()"]
    )
    if scalar.endswith(("any()", "all()")):
        return f"not {scalar}" if m.chance(0.3) else scalar
    return f"{scalar} {m.pick(['>', '<', '>=', '<='])} {m.pick(['0.3', '0', '1', '-0.7', '2.5'])}"


def _of_number(m: Maker) -> str:
    return f"{number(m)} {m.pick(COMPARISONS)} {m.pick(['0', '1', '2', '3', '0.5'])}"


def _chained(m: Maker) -> str:
    return f"{m.pick(['0', '1', '-1'])} {m.pick(['<', '<='])} {number(m)} {m.pick(['<', '<='])} {m.pick(['2', '3', '5'])}"


def _of_object(m: Maker) -> str | None:
    x = m.tensor() or m.floating()
    others = [text for text, value in m.reachable() if isinstance(value, str | bool | list | dict)]
    options = [
        f"{x}.requires_grad", f"{x}.dtype == T.float32", f"{x}.is_floating_point()", f"{x}.is_contiguous()", f"{x}.grad is None",
        f"isinstance({x}, T.Tensor)", "T.is_grad_enabled()", f"{x}.is_leaf", f"{x} is {m.tensor()}", f"{x}.shape == {m.tensor()}.shape",
        *[f"bool({text})" for text in others[-2:]],
    ]  # fmt: skip
    for text in others[-3:]:
        value = m.value(text)
        options.append(f"{m.pick(['k', 'a', 'n'])!r} in {text}" if isinstance(value, str | dict) else f"{text}")
        if isinstance(value, str):
            options.append(f"{text} == {value!r}")
    return str(m.pick(options))


def _combined(m: Maker) -> str:
    return f"{condition(m)} {m.pick(['and', 'or'])} {condition(m)}"


def _negated(m: Maker) -> str:
    return f"not ({condition(m)})"


def _walrus(m: Maker) -> str | None:
    x = m.tensor(lambda t: t.numel() > 0 and t.dtype.is_floating_point)
    if x is None or m.nested:
        return None
    name = m.name("v")
    return f"({name} := {x}.sum()) > {m.pick(['0.3', '-0.7'])}"


CONDITIONS: Sequence[tuple[float, Writer]] = (
    (5, _of_value), (4, _of_number), (1, _chained), (3, _of_object), (1, _combined), (0.7, _negated), (0.6, _walrus), (1.5, of_taken),
)  # fmt: skip
