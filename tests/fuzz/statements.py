"""Statements: a generator per concept, and the table of their weights.

Each writes its statement with the maker's hand, or nothing where it does not fit; what is written ran on the values of the first call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.arguments import any_number
from tests.fuzz.arrays import array_statement, list_statement, of_constants, outside_array
from tests.fuzz.expressions import condition, draw, expression, in_place, number
from tests.fuzz.gradients import fresh_gradient, gradient, hook, tensor_state
from tests.fuzz.keeping import chance_statement, kept_number
from tests.fuzz.leaving import accumulation, kept_numbers, of_taken, taken_assignment
from tests.fuzz.maker import Maker, indented
from tests.fuzz.subclasses import outliving, subclass_read, subclass_statement, tensor_loop
from tests.fuzz.telling import kept, told
from tracejit import Tensor

__all__ = ["body", "returned", "statement"]

Writer = Callable[[Maker], Any]
ATTRIBUTE = re.compile(r"(\w+\.)?\w+ (\+|\*)?= ")
DEEPEST = 2


def statement(m: Maker) -> None:
    """One statement of some kind."""
    if m.tells and m.chance(0.55):
        m.weighted(BESIDE)(m)
    else:
        m.weighted(STATEMENTS if m.nested < DEEPEST else SIMPLE)(m)


def body(m: Maker, count: int) -> None:
    """Some statements."""
    for _ in range(count):
        statement(m)


def nested_body(m: Maker) -> None:
    m.nested += 1
    try:
        body(m, m.choose.choice([1, 1, 2, 2, 3]))
    finally:
        m.nested -= 1


# -- values
def assignment(m: Maker) -> None:
    m.assign(expression(m))


def number_assignment(m: Maker) -> None:
    m.assign(number(m), "n")


def change_in_place(m: Maker) -> None:
    text = in_place(m)
    if text is None:
        return
    if m.chance(0.3):
        m.emit("with T.no_grad():", f"    {text}")
    else:
        m.emit(text)
    if m.wants_grad:
        m.not_replayed("in place where gradients flow")


def masked_write(m: Maker) -> None:
    """What a mask selects is changed, or written."""
    x = m.tensor(lambda t: t.dtype.is_floating_point and t.ndim > 0 and t.numel() > 1)
    if x is None:
        return
    shape = m.value(x).shape
    y = m.tensor(lambda t: t.shape == shape and t.dtype.is_floating_point) or x
    mask = f"{m.pick([x, y])} {m.pick(['>', '<'])} {m.pick(['0', '0.5', f'{x}.mean()', f'{x}.max()'])}"
    if m.chance(0.4):
        name = m.name("v")
        if not m.emit(f"{name} = {mask}"):
            return
        m.names.append(name)
        mask = name
    part = f"{x}[{mask}]"
    texts = [
        f"{part} *= 0.5",
        f"{part} += {y}[{mask}]",
        f"{part} = {y}[{mask}] * 2 + 1",
        f"{part} = -{part}",
        f"{part} -= {part}.sum()",
    ]
    if m.chance(0.2):
        name = m.name("v")
        if m.emit(f"{name} = {part}"):
            m.names.append(name)
            texts = [f"{name} *= 2", f"{part} = {name}", f"{x}.mul_(2.0)", f"{name}.add_(1)"]
    m.emit(m.pick(texts))
    m.not_replayed("a size that depends on data")


def unpacking(m: Maker) -> None:
    """The results of one call under names of their own."""
    x = m.tensor(lambda t: t.ndim > 0 and 0 < t.shape[0] < 5)
    if x is None:
        return
    size = m.value(x).shape[0]
    if m.chance(0.3):
        sizes = [m.name("n") for _ in m.value(x).shape]
        if m.emit(f"{', '.join(sizes)}, = {x}.shape"):
            m.names += sizes
        return
    names = [m.name("v") for _ in range(size)]
    text = m.pick([x, f"{x}.unbind(0)", f"{x}.split(1)", f"[r * 2 for r in {x}]", f"({x} * 3).chunk({size})"])
    if size > 1 and m.chance(0.3):
        names = [names[0], "*" + names[1]]
    if m.emit(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}"):
        m.names += [n.lstrip("*") for n in names]


def swap(m: Maker) -> None:
    own = [n for n in m.names if n.startswith("v") and n not in m.outer_names and isinstance(m.env.get(n), Tensor)]
    if len(own) > 1:
        a, b = m.choose.sample(own, 2)
        m.emit(f"{a}, {b} = {b}, {a}")


def random_draw(m: Maker) -> None:
    text = draw(m)
    if text is not None:
        m.for_torch = False
        m.assign(text)


def container(m: Maker) -> None:
    """A list, tuple or dict of tensors and numbers made in the function."""
    a, b = expression(m), m.tensor() or m.floating()
    n = number(m)
    text = m.pick([f"[{a}, {b}]", f"({a}, {b}, {n})", f"{{'a': {a}, 'n': {n}}}", f"[{a}, [{b}, {n}]]", f"dict(a={a}, b={b})"])
    m.assign(text, "c")


def change_container(m: Maker) -> None:
    """A list or dict of the function's own, changed."""
    own = [n for n in m.names if n.startswith("c") and n in m.env and n not in m.outer_names]
    if not own:
        return container(m)
    name = m.pick(own)
    x = expression(m)
    if isinstance(m.env[name], list):
        m.emit(
            m.pick(
                [
                    f"{name}.append({x})",
                    f"{name}.insert(0, {x})",
                    f"{name}[0] = {x}",
                    f"{name}.reverse()",
                    f"{name} += [{x}]",
                    f"del {name}[0]",
                    f"{name}.pop()",
                ]
            )
        )
    elif isinstance(m.env[name], dict):
        m.emit(m.pick([f"{name}['z'] = {x}", f"{name}.update(y={x})", f"{name}.setdefault('a', {x})", f"{name}.pop('a', None)"]))
    return None


def read_back(m: Maker) -> None:
    """A number that was kept in the world, as a value or an operand."""
    text = kept_number(m)
    if text is not None:
        if m.chance(0.5):
            m.assign(text, "n")
        else:
            m.assign(f"{m.tensor() or m.floating()} {m.pick(['*', '+', '-'])} ({text})")


# -- control flow
def list_loop(m: Maker) -> None:
    """A loop over the numbers of a tensor."""
    i = m.name("n")
    x = m.tensor(lambda t: 0 < t.numel() < 7)
    if x is None:
        return
    m.not_replayed("numbers that leave may be guarded by value")
    iterable = m.pick([f"{x}.reshape(-1).tolist()", f"({x} > 0).reshape(-1).tolist()", f"{x}.detach().numpy().ravel()"])

    def inner() -> None:
        m.runs(f"{i} = next(iter({iterable}))")
        m.names.append(i)
        nested_body(m)

    write_compound(m, [f"for {i} in {iterable}:", *indented(m.block(inner, loop=True))])


def branch(m: Maker) -> None:
    test = condition(m)
    lines = [f"if {test}:", *indented(m.block(lambda: nested_body(m)))]
    if m.chance(0.3):
        lines += [f"elif {condition(m)}:", *indented(m.block(lambda: nested_body(m)))]
    if m.chance(0.6):
        lines += ["else:", *indented(m.block(lambda: nested_body(m)))]
    write_compound(m, lines, "v = ", test)


def write_compound(m: Maker, lines: list[str], *_: str) -> bool:
    """Write a compound statement, if the whole of it runs."""
    if any(" return" in line or line.startswith("return") for line in lines):
        m.lines += lines
        return True
    return m.emit(*lines)


def early_return(m: Maker) -> None:
    if m.can_return and not m.looping:
        m.lines += [f"if {condition(m)}:", f"    return {returned(m)}"]


def for_loop(m: Maker) -> None:
    """A loop with a bound, over numbers, tensors, or things of outside."""
    i = m.name("i")
    x = m.tensor(lambda t: t.ndim > 0 and t.shape[0] < 6)
    sized = m.pick([str(m.choose.randint(1, 3)), f"min({number(m)}, 3)", f"min(len({x}), 3)" if x else "2"])
    ranges = f"range({sized})" if not m.fails(f"range({sized})") else "range(2)"
    found = [(text, value) for text, value in m.reachable() if isinstance(value, list | tuple | dict) and 0 < len(value) < 4]
    own = [f"list({text}.items())" if isinstance(value, dict) and m.chance(0.6) else f"list({text})" for text, value in found]
    options = [ranges, ranges, "(1, 2.5)", "[0.5, 2]"]
    if x:
        options += [x, f"enumerate({x})", f"zip({x}, {x}.flip(0))", f"reversed({x}.unbind(0))"]
    if own:
        options += [m.pick(own), f"enumerate({m.pick(own)})"]
    iterable = m.pick(options)
    target = f"{i}, {i}b" if iterable.startswith(("enumerate", "zip")) else i
    if m.fails(f"next(iter({iterable}))"):
        return

    def inner() -> None:
        m.runs(f"{target} = next(iter({iterable}))")
        m.names += target.split(", ")
        nested_body(m)
        if m.chance(0.3):
            m.lines += [f"if {condition(m)}:", f"    {m.pick(['break', 'continue'])}"]
            assignment(m)

    lines = [f"for {target} in {iterable}:", *indented(m.block(inner, loop=True))]
    if m.chance(0.15):
        lines += ["else:", *indented(m.block(lambda: nested_body(m)))]
    write_compound(m, lines)


def while_loop(m: Maker) -> None:
    """A loop while something holds, at most a few times."""
    n = m.name("turn")
    x = m.tensor(lambda t: t.numel() > 0 and t.dtype.is_floating_point)
    test = m.pick([f"{n} < 3", f"{n} < 4 and ({condition(m)})", f"{n} < 3 and {x}.abs().sum() > 1.3" if x else f"{n} < 2"])

    def inner() -> None:
        m.runs(f"{n} = 0")
        m.names.append(n)
        m.lines.append(f"{n} += 1")
        nested_body(m)
        if x and x.startswith("v") and x.isidentifier():
            m.emit(f"{x} = {x} * 0.5")

    lines = [f"{n} = 0", f"while {test}:", *indented(m.block(inner, loop=True))]
    if m.chance(0.15):
        lines += ["else:", *indented(m.block(lambda: nested_body(m)))]
    if write_compound(m, lines):
        m.names.append(n)


def growing_loop(m: Maker) -> None:
    """A loop whose steps take different paths: they append to a list and read its end, find something, change things in place, print."""
    x = m.tensor(lambda t: t.dtype.is_floating_point and 0 < t.numel() < 9)
    if x is None:
        return
    items, state, found, total, i = m.name("c"), m.name("v"), m.name("v"), m.name("v"), m.name("i")
    last = f"{items}[-1]"
    begin = m.pick([f"[{x}]", f"[{x} * 2, {x}]", "[]"])
    read = last if begin != "[]" else f"({last} if {items} else {x})"
    test = m.pick(
        [f"{state}.sum() > 0.5", f"{read}.sum() < {state}.sum()", f"{i} > 1 and {state}.mean() > 0", f"len({items}) < 3"]
    )
    moved = m.pick([f"{state} * 0.5", f"{state} - {read}", f"-{state}", f"{read} + 0.25", f"{state} + T.rand({state}.shape)"])
    optional = [
        f"{items}.append({m.pick([state, read, f'{state} * 2', f'{read} + {state}'])})",
        f"{found} = {m.pick([state, i, f'{state}.sum().item()', repr('found'), 'None', f'({i}, {state} + 1)'])}",
        f"{total} += {m.pick([f'{state}.detach()', f'{state}.sum().item()', '1'])}",
        f"print({i}, {m.pick([f'{total} if type({total}) is int else 0', f'len({items})', repr('step')])})",
        f"{state} = {m.pick([f'{state} + 1', f'{read} * 0.5', f'{state}.clone()'])}",
        m.pick(["break", "continue", f"if {found} is not None: {state} = {state} * 0.75"]),
    ]
    header = m.pick(
        [f"for {i} in range({m.choose.randint(2, 7)}):", f"for {i}, _ in enumerate(range({m.choose.randint(2, 5)})):"]
    )
    if m.value(x).ndim and m.chance(0.4):
        row = m.name("v")
        header = f"for {i}, {row} in enumerate({x}):"
        optional[1] = f"{found} = {m.pick([row, row, f'{x}[{i}]', state])}"
        optional[4] = f"{items}.append({m.pick([found, row, f'{row} * 2'])})"
    some = m.choose.sample(optional, m.choose.randint(1, 4))
    others = m.choose.sample(optional[:5], m.choose.randint(0, 2))
    lines = [
        f"{items}, {state}, {found}, {total} = {begin}, {x}, {m.pick(['None', '0', x])}, {m.pick(['0', f'T.zeros({x}.shape)', '0.0'])}",
        *([f"if {condition(m)}:", f"    {items} = []"] if m.chance(0.15) else []),
        header,
        f"    if {test}:",
        f"        {state} = {moved}",
        *indented(some, 2),
        *indented([f"{items}.append({state})", *others] if m.chance(0.7) else others),
    ]
    m.for_torch = False
    m.not_replayed("values decide the paths of steps")
    if write_compound(m, lines):
        m.names += [state, found, total]
        m.names.append(items)
        if m.chance(0.4):
            m.emit(m.pick([f"{x}.mul_(2)", f"{found}.add_(1)", f"{state}.neg_()"]))
        if m.chance(0.6) and not m.fails(f"T.stack({items})"):
            m.assign(f"T.stack({items}) if {items} else {x}")


def descending_loop(m: Maker) -> None:
    """A loop that takes a gradient in each step, most of which make the leaf for the next one."""
    x = m.tensor(lambda t: t.dtype.is_floating_point and 0 < t.numel() < 9)
    if x is None:
        return
    leaf, slope, loss, best, rate, kept, i = [m.name(k) for k in "vvvvnci"]
    tests = [
        f"{slope}.sum() > {m.floating()}", f"{loss}.item() < 2", "T.rand(()) < 0.4", f"{i} > 1", f"{rate} < 0.1", f"{best} is not None",
        f"{leaf}.max() > 0",
    ]  # fmt: skip
    moves = [
        f"{leaf} = ({leaf} - {rate} * {slope}).detach().requires_grad_()", f"{leaf} = ({leaf} * 0.9).detach().requires_grad_()",
        f"{leaf} = {leaf}.detach() - {rate} * {slope}\n{leaf}.requires_grad_()",
    ]  # fmt: skip
    changes = [
        *moves, f"{best} = {leaf}.detach()", f"{best} = {leaf}", f"{best} = {leaf}.detach().clone()", f"{best} = {slope}",
        f"{kept}.append({leaf}.detach())", f"{kept}.append({leaf}.detach().clone())", f"{kept}.append({loss}.item())", f"{rate} *= 0.5",
        "break", "continue", f"with T.no_grad():\n    {leaf} -= 0.1 * {slope}", f"{leaf}.grad = {slope}", f"{kept}.append({leaf})",
    ]  # fmt: skip
    body = [
        f"{loss} = ({leaf} * {leaf}).sum() + {m.pick([f'{leaf}.sin()', f'({leaf} * {x})', leaf])}.sum()",
        f"({slope},) = T.autograd.grad({loss}, [{leaf}])",
    ]
    for _ in range(m.choose.randint(1, 3)):
        body.append(f"if {m.pick(tests)}:")
        for text in m.choose.sample(changes, m.choose.randint(1, 2)):
            body += indented(text.split("\n"))
        if m.chance(0.3):
            body += ["else:", *indented(m.pick(changes).split("\n"))]
    if m.chance(0.7):
        body += m.pick(moves).split("\n")
    begin = m.pick([f"{x}.detach().clone().requires_grad_()", f"{x}.detach().requires_grad_()"])
    lines = [
        f"{leaf}, {slope}, {best}, {rate}, {kept} = {begin}, {x} * 1, {m.pick(['None', x])}, 0.2, []",
        f"for {i} in range({m.choose.randint(2, 9)}):",
        *indented(body),
    ]
    m.for_torch = False
    m.not_replayed("values decide the paths of steps")
    if write_compound(m, lines):
        m.names += [leaf, slope, kept]
        m.emit(m.pick([f"{rate} = {loss}.item()", f"{rate} = float({loss})", f"{slope} = {loss} * 2", f"{leaf} = {leaf} * 2"]))


def loop_of_several_branches(m: Maker) -> None:
    """A loop whose steps branch several times, one time after another, and hand on what they have found."""
    x = m.tensor(lambda t: t.dtype.is_floating_point and 0 < t.numel() < 9)
    if x is None:
        return
    state, speed, count, flag, word, kept, i = [m.name(k) for k in "vvvvvci"]
    between = m.name("v")
    tests = [
        f"{state}.sum() > {m.floating()}", f"{state}.sum() < 0", f"{speed}.mean() > 0", f"{count} % 2", f"{flag}", f"{word} == 'high'",
        "T.rand(()) < 0.4", f"{i} > 1", f"{between}.max() > 0.5", f"{flag} and {state}.max() > 0",
    ]  # fmt: skip
    changes = [
        f"{state} = {state} * 0.5", f"{state} = {state} + {speed}", f"{speed} = -{speed}", f"{state} = {between}",
        f"{count} += 1", f"{count} = {count} + 0.5", f"{flag} = not {flag}", f"{flag} = {state}.sum() > 0", f"{word} = 'high'",
        f"{word} = 'low'", f"{kept}.append({m.pick([state, between, f'{state} * 2', count])})", "continue",
        f"{between} = {state}", f"{between} = {state}[..., :1] + {state}", f"{speed} = {state}[..., -1:] * {speed}", f"{word} = {count}",
        f"{state} = {state} if {speed}.sum() > 0 else {between}", f"{state}, {speed} = {speed}, {state}", f"{state} = {x}",
    ]  # fmt: skip
    header, first = f"for {i} in range({m.choose.randint(2, 9)}):", f"{between} = {state} - 0.25"
    if m.value(x).ndim and m.chance(0.3):
        header, first = f"for {i}, {between} in enumerate({x}):", f"{between} = {m.pick([between, f'{between} + {state}'])}"
    elif m.chance(0.2):
        header, first = (
            f"while {count} < {m.choose.randint(2, 9)}:",
            f"{i}, {count}, {between} = {count}, {count} + 1, {state} * 2",
        )
    body = [first]
    for _ in range(m.choose.randint(2, 4)):
        body.append(f"if {m.pick(tests)}:")
        body += [f"    {text}" for text in m.choose.sample(changes, m.choose.randint(1, 3))]
        if m.chance(0.3):
            body += ["else:", f"    {m.pick(changes)}"]
        if m.chance(0.4):
            body.append(m.pick([c for c in changes if c != "continue"]))
    lines = [
        f"{state}, {speed}, {count}, {flag}, {word}, {kept} = {x}, {x} * 0.5 - 0.1, 0, {m.pick(['False', 'True'])}, 'low', []",
        header,
        *indented(body),
    ]
    m.for_torch = False
    m.not_replayed("values decide the paths of steps")
    if write_compound(m, lines):
        m.names += [state, speed, count, flag, word, kept]
        if m.chance(0.3) and not m.fails(f"T.stack({kept})"):
            m.assign(f"T.stack({kept}) if {kept} else {x}")


def attempt(m: Maker) -> None:
    """try with what may raise inside."""
    x = m.tensor() or m.floating()
    risky = m.pick(
        [
            f"{x}.reshape(7, 11)",
            f"{x} @ {x}",
            f"{x}[9]",
            "{}['k']",
            "1 // 0",
            f"{x}.missing",
            "int('a')",
            f"{x}.view(-1)",
            f"{x} + 1",
            f"T.cat([{x}, {x}], 3)",
        ]
    )
    name = m.name("v")

    def inner() -> None:
        nested_body(m)
        m.lines.append(f"{name} = {risky}")

    error = m.pick(["Exception", "(RuntimeError, IndexError)", "(KeyError, ZeroDivisionError)", "Exception as error"])
    handler = m.block(lambda: nested_body(m))
    if "as error" in error and m.chance(0.6):
        handler.append("print(type(error).__name__)")
    lines = [f"{name} = {x}", "try:", *indented(m.block(inner)), f"except {error}:", *indented(handler)]
    if m.chance(0.3):
        lines += ["else:", *indented(m.block(lambda: nested_body(m)))]
    if m.chance(0.4):
        lines += ["finally:", *indented(m.block(lambda: (effect if m.chance(0.5) else assignment)(m)))]
    if write_compound(m, lines):
        m.names.append(name)
        m.not_replayed("exceptions")


def match_statement(m: Maker) -> None:
    n = number(m)
    cases = [("1 | 2", ""), ("int(k)", " if k > 2"), ("float()", ""), ("bool()", ""), ("_", "")]
    x = m.tensor() or m.floating()
    if m.chance(0.4):
        n, cases = f"tuple({x}.shape)", [("(k,)", ""), ("(k, l)", " if k > 2"), ("(k, *_)", ""), ("()", "")]
    else:
        m.not_replayed("class patterns")
    lines = [f"match {n}:"]
    for pattern, guard in m.choose.sample(cases, m.choose.randint(1, 3)):
        if pattern == "_":
            continue
        lines += [f"    case {pattern}{guard}:", *indented(m.block(lambda: nested_body(m)), 2)]
    lines += ["    case _:", *indented(m.block(lambda: assignment(m)), 2)]
    write_compound(m, lines)


def grad_mode(m: Maker) -> None:
    header = m.pick(
        [
            "with T.no_grad():",
            "with T.no_grad():",
            "with T.enable_grad():",
            "with T.no_grad(), T.enable_grad():",
            f"with T.set_grad_enabled({m.tensor() or m.floating()}.ndim > 1):",
        ]
    )
    lines = [header, *indented(m.block(lambda: nested_body(m), conditional=False))]
    if write_compound(m, lines):
        m.names += [n for n in m.env if n.startswith("v") and n not in m.names and n[1:].isdigit()]


# -- functions
def comprehension(m: Maker) -> None:
    i = m.name("i")
    x = m.tensor(lambda t: t.ndim > 0 and t.shape[0] < 6) or m.floating()
    a = m.tensor() or m.floating()
    text = m.pick(
        [
            f"[{a} * {i} for {i} in range(3)]",
            f"[{i} + 1 for {i} in {x}]",
            f"sum({i} * 2 for {i} in {x})",
            f"{{str({i}): {a} + {i} for {i} in range(2)}}",
            f"T.stack([{i} * {i} for {i} in {x}])",
            f"[{i} for {i} in ({a}, {x}) if {i}.ndim > 1]",
            f"[({i}, j) for {i} in range(2) for j in [{a}]]",
            f"list(map(lambda {i}: {i} * 2, [{a}, {x}]))",
            f"max({i}.ndim for {i} in [{a}, {x}])",
            f"sorted([3, 1, 2], key=lambda {i}: -{i})",
            f"any({i} > 1 for {i} in [0, {number(m)}])",
            f"dict(zip('ab', [{a}, {x}]))",
        ]
    )
    m.assign(text, "c")


def inner_function(m: Maker) -> None:
    """A function in the function: with a closure, default arguments, *args, recursion, or a generator."""
    name, p, a = m.name("g"), m.name("p"), m.tensor() or m.floating()
    value = m.tensor() or m.floating()
    can_return, m.can_return = m.can_return, False
    env_value = m.value(value)

    def inner() -> None:
        m.env[p] = env_value
        m.names.append(p)
        nested_body(m)
        m.lines.append(f"return {expression(m)}")

    kind = m.weighted([(4, "plain"), (1, "lambda"), (1, "recursion"), (1, "generator"), (1, "star"), (1, "counter")])
    if kind == "plain":
        signature = m.pick([p, f"{p}, k=2", f"{p}, *, k=1.5", f"{p}, scale={any_number(m, None)}"])
        lines = [f"def {name}({signature}):", *indented(m.block(inner))]
    elif kind == "lambda":
        lines = [f"{name} = lambda {p}, k=2: {p} * k + {a}"]
    elif kind == "recursion":
        lines = [
            f"def {name}({p}, depth=2):",
            f"    if depth == 0 or {p}.ndim == 5:",
            f"        return {p}",
            f"    return {name}({p} * 0.5 + 1, depth - 1)",
        ]
    elif kind == "generator":
        lines = [
            f"def generate({p}):",
            "    for k in range(2):",
            f"        yield {p} * k + 1",
            f"{name} = lambda {p}: sum(generate({p}))",
        ]
    elif kind == "star":
        lines = [f"def {name}(*{p}, **options):", f"    return {p}[0] * len({p}) + sum(options.values()) + {a}.sum()"]
    else:
        lines = ["count = 0", f"def {name}({p}):", "    nonlocal count", "    count += 1", f"    return {p} * count"]
        m.can_return = can_return
        m.lines += lines
        m.env[name] = lambda t: t * 1
        m.names.append(name)
        m.assign(f"{name}({value})")
        m.assign(f"{name}({value})")
        return
    m.can_return = can_return
    if m.emit(*lines):
        m.names.append(name)
        m.assign(m.pick([f"{name}({value})", f"{name}({value})", f"[{name}({value}), {name}({a})][0]", f"{name}(*[{value}])"]))


# -- effects and the outside
def effect(m: Maker) -> None:
    """Something outside is changed."""
    if m.world.effects:
        text = str(m.pick(m.world.effects)).replace("{x}", m.tensor() or m.floating()).replace("{n}", number(m))
        if m.emit(text) and not ATTRIBUTE.match(text):
            m.not_replayed("containers and gradients of outside change")


def printing(m: Maker) -> None:
    x = m.tensor() or m.floating()
    m.not_replayed("print")
    m.emit(f"print({m.pick([f'{x}.shape', repr('here'), number(m), f'{x}.dtype', f'{x}.sum().item()'])})")


def text_statement(m: Maker) -> None:
    x = m.tensor() or m.floating()
    text = m.pick(
        [
            f"f'{{{x}.ndim}} {{{number(m)}}}'",
            f"'%s' % ({x}.ndim,)",
            f"str({x}.dtype)",
            f"'-'.join(map(str, {x}.shape))",
            f"f'{{{number(m)}:.2f}}'",
        ]
    )
    m.assign(text, "s")


def assertion(m: Maker) -> None:
    text = condition(m)
    if not m.fails(f"assert_ = 1 / bool({text})"):
        m.emit(f"assert {text}, 'asserted'")


def raising(m: Maker) -> None:
    text = condition(m)
    if m.fails(f"1 / bool({text})"):
        m.lines += [f"if {text}:", f"    raise {m.pick(['ValueError', 'RuntimeError', 'KeyError'])}({m.pick(['1', repr('no')])})"]


SIMPLE: Sequence[tuple[float, Writer]] = (
    (30, assignment), (4, number_assignment), (7, change_in_place), (1.5, masked_write), (2, unpacking), (0.5, swap), (3, random_draw),
    (2, container),
    (2, change_container), (2, comprehension), (5, effect), (0.7, printing), (0.7, tensor_state), (0.6, text_statement), (0.5, assertion),
    (0.3, raising), (1.2, gradient), (1, fresh_gradient), (0.3, hook), (2.5, taken_assignment), (1, accumulation), (1.2, kept_numbers),
)  # fmt: skip
STATEMENTS: Sequence[tuple[float, Writer]] = (
    *SIMPLE, (7, branch), (1.5, early_return), (5, for_loop), (2.5, while_loop), (1.2, attempt), (1, match_statement), (3, grad_mode),
    (3, inner_function), (2, tensor_loop), (2.5, growing_loop), (2, loop_of_several_branches), (1.5, descending_loop),
)  # fmt: skip


def attempt_and_tell(m: Maker) -> None:
    """Something is told before what raises, and after."""
    risky = m.pick(["1 // 0", "[][0]", "int('a')", f"{m.tensor() or m.floating()}.missing", "raise ValueError(3)"])
    test = condition(m)
    lines = [
        "try:",
        *indented(m.block(lambda: told(m))),
        f"    if {test}:",
        f"        {risky}",
        *indented(m.block(lambda: kept(m))),
    ]
    lines += ["except Exception as error:", *indented(m.block(lambda: told(m))), "    print(type(error).__name__)"]
    if m.chance(0.4):
        lines += ["finally:", *indented(m.block(lambda: kept(m)))]
    write_compound(m, lines)


def decided(m: Maker) -> None:
    """What is told and kept depends on a value."""
    test = of_taken(m) if m.chance(0.5) else condition(m)
    if test is None or m.fails(f"bool({test})"):
        return
    tellers = [told, kept, chance_statement, array_statement, list_statement]
    lines = [f"if {test}:", *indented(m.block(lambda: m.pick(tellers)(m)))]
    lines += ["else:", *indented(m.block(lambda: m.pick(tellers)(m)))]
    write_compound(m, lines)


BESIDE: Sequence[tuple[float, Writer]] = (
    (6, told), (3, chance_statement), (4, kept), (4, array_statement), (1.5, of_constants), (3, list_statement), (2.5, outside_array),
    (2, read_back), (1, list_loop), (1, raising), (0.5, attempt_and_tell), (2, decided),
    (4, subclass_statement), (2.5, subclass_read), (2, outliving), (1, tensor_loop),
)  # fmt: skip


def returned(m: Maker) -> str:
    """What the function returns."""
    x, y = m.tensor() or m.floating(), m.tensor() or m.floating()
    names = [n for n in m.names if n in m.env and n[0] in "vcnsq" and n not in m.outer_names and not callable(m.env[n])]
    others = m.choose.sample(names, min(len(names), m.choose.randint(1, 3)))
    first = f"{x}[0], {x}" if not m.fails(f"{x}[0]") else x
    value = f"{x}.sum().item(), {y}" if not m.fails(f"{x}.sum().item()") else y
    options = [
        (5, x), (4, f"{x}, {y}"), (3, f"({', '.join([x, *others])},)"), (1, f"[{x}, {{'y': {y}}}]"), (1, f"{x}.sum()"), (1, expression(m)),
        (1, f"{{'x': {x}, 'n': {number(m)}}}"), (0.5, f"{x}, {x}"), (0.5, f"({x}, [{y}, {number(m)}])"), (0.4, number(m)), (0.2, "None"),
        (0.7, f"{x}.t() if {x}.ndim == 2 else {y}"), (0.5, first), (0.3, value),
    ]  # fmt: skip
    return str(m.weighted(options))
