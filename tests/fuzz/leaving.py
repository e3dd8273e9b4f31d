"""Numbers that leave tensors: taken, computed with, kept, compared.

What is taken of a tensor is told apart by type and value like any other number; a sum that is rounded elsewhere is given its room
(noise.py), so most of what is taken here is an element, a maximum or a count, which have equal bits.
"""

from __future__ import annotations

from tests.fuzz.maker import Maker

__all__ = ["accumulation", "kept_numbers", "of_taken", "taken", "taken_assignment"]

TRIES = 4
TAKEN = (
    "{x}.reshape(-1)[0].item()", "float({x}.reshape(-1)[-1])", "int({x}.reshape(-1)[0])", "{x}.max().item()",
    "float({x}.min())", "{x}.sum().item()", "int(({x} > 0).sum())", "({x} > 0.5).sum().item()", "float({x}.float().mean())",
    "{x}.reshape(-1).argmax().item()", "{x}.abs().max().item()", "({x} > 0).any().item()", "bool(({x} < 1).all())",
    "{x}.reshape(-1)[:1].item()", "{x}.double().max().item()",
)  # fmt: skip
COMPUTED = (
    "{t} + {u}", "{t} - 1", "{t} * {u}", "{t} / 3", "{t} // 2", "{t} % 3", "-{t}", "abs({t})", "round({t}, 2)", "round({t})",
    "max({t}, {u})", "min({t}, 1)", "1 / {t}", "{t} ** 2", "sum([{t}, {u}])", "math.floor({t})", "math.sqrt(abs({t}))",
    "math.tanh({t})", "math.log(abs({t}) + 1)", "divmod({t}, 2)[1]", "float({t})", "int({t})", "{t} if {t} > {u} else {u}",
    "{t} and {u}", "sorted([{t}, {u}, 1])[1]", "0.9 * {t} + 0.1 * {u}", "math.exp(min({t}, 3))", "{t} == {u}", "not {t}",
    "isinstance({t}, float)", "math.isfinite({t})", "math.copysign(2, {t})",
)  # fmt: skip


def taken(m: Maker) -> str | None:
    """A number out of a tensor, or computed of such."""
    parts = []
    for _ in range(2):
        x = m.tensor(lambda t: t.numel() > 0) or m.floating()
        parts.append(m.pick(TAKEN).replace("{x}", x))
    if m.chance(0.4):
        parts[1] = m.pick([n for n in m.names if n.startswith("n") and n in m.env] or ["2"])
    for _ in range(TRIES):
        text = parts[0] if m.chance(0.4) else m.pick(COMPUTED).replace("{t}", f"({parts[0]})").replace("{u}", f"({parts[1]})")
        if not m.fails(text):
            m.not_replayed("numbers that leave may be guarded by value")
            return text
    return None


def of_taken(m: Maker) -> str | None:
    """A condition on numbers that were taken."""
    one, other = taken(m), taken(m)
    if one is None or other is None:
        return None
    return m.pick(
        [
            f"({one}) > 0.3",
            f"({one}) <= ({other})",
            f"0 < ({one}) < 2",
            f"({one}) != ({other})",
            f"math.isnan({one})",
            f"({one}) in (0, 1, 2)",
        ]
    )


def taken_assignment(m: Maker) -> None:
    text = taken(m)
    if text is not None:
        m.assign(text, "n")


def accumulation(m: Maker) -> None:
    """Numbers of a tensor, one after the other."""
    x = m.tensor(lambda t: t.ndim == 1 and 0 < t.shape[0] < 6) or m.tensor(lambda t: t.ndim > 0 and 0 < t.shape[0] < 6)
    if x is None:
        return
    n, i = m.name("n"), m.name("i")
    take = f"{i}.item()" if m.value(x).ndim == 1 else f"{i}.max().item()"
    if m.value(x)[0].numel() == 0:
        return
    start, step = m.pick(
        [
            ("0", f"{n} += {take}"),
            ("0.0", f"{n} = {n} * 0.5 + {take}"),
            ("None", f"{n} = {take} if {n} is None else max({n}, {take})"),
        ]
    )
    if m.emit(f"{n} = {start}", f"for {i} in {x}:", f"    {step}"):
        m.names.append(n)
        m.not_replayed("numbers that leave may be guarded by value")


def kept_numbers(m: Maker) -> None:
    """A container of numbers that were taken, changed and looked at."""
    one, other = taken(m), taken(m)
    if one is None or other is None:
        return
    name = m.name("c")
    made = m.pick(["[{a}, {b}]", "[({a}, {b}), {b}]", "{'a': {a}, 'b': [{b}]}", "({a}, ({b}, [{a}]))", "dict(a={a}, b=[{b}])"])
    made = made.replace("{a}", one).replace("{b}", other)
    if not m.emit(f"{name} = {made}"):
        return
    m.names.append(name)
    if isinstance(m.env[name], list):
        m.emit(
            m.pick(
                [
                    f"{name}.append({other})",
                    f"{name}[0] = {other}",
                    f"{name} += [{one}]",
                    f"{name}.insert(1, {one})",
                    f"{name}.reverse()",
                ]
            )
        )
    elif isinstance(m.env[name], dict):
        m.emit(
            m.pick(
                [f"{name}['z'] = {one}", f"{name}.setdefault('y', {other})", f"{name}['b'].append({one})", f"{name}[{one}] = 1"]
            )
        )
