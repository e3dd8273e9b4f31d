"""What a function finds beside its program: draws of Python and NumPy, and numbers that are kept in the world and read back.

A generator's state is looked at after each call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.maker import Maker

__all__ = ["chance_number", "chance_statement", "furnish_keepers", "kept_number"]

TRIES = 5
OF_PYTHON = (
    "{g}.random()", "{g}.uniform(-1, 2)", "{g}.randint(0, 3)", "{g}.gauss(0, 1)", "{g}.choice([0.5, 1.5, 2.5])",
    "{g}.randrange(1, 9, 2)", "{g}.random() < 0.5", "{g}.normalvariate(0, 1)", "{g}.getrandbits(3)", "{g}.choice([1, {n}])",
    "{g}.expovariate(2.0)", "{g}.triangular(0, 1, 0.5)", "{g}.betavariate(1, 2)", "sum({g}.random() for _ in range(3))",
    "{g}.sample([1.0, 2.0, 3.0], 2)[0]", "{g}.choices([1, 2, 3], k=2)[1]", "round({g}.random(), 2)",
    "{g}.randint(1, 2) * {g}.random()",
)  # fmt: skip
OF_NUMPY = (
    "{g}.random()", "{g}.normal()", "{g}.integers(0, 4)", "float({g}.normal(1, 2))", "int({g}.integers(3))", "{g}.uniform(-1, 1)",
    "{g}.random(3).sum()", "{g}.normal(size=2)[0]", "{g}.choice([1.0, 2.0])", "{g}.standard_normal()", "{g}.random() < 0.5",
    "{g}.exponential()", "{g}.poisson(3)", "{g}.choice(3)", "{g}.integers(0, 9, size=3)[1]",
)  # fmt: skip
OF_STATE = (
    "{g}.rand()", "{g}.randn()", "{g}.randint(0, 4)", "{g}.uniform(0, 1)", "{g}.normal()", "{g}.random_sample()",
    "{g}.rand(2)[1]", "{g}.choice(3)", "{g}.random() < 0.5", "{g}.rand(2, 2).max()",
)  # fmt: skip
ARRAYS = (
    "T.from_numpy({g}.normal(size={s}))", "T.tensor({g}.random({s}), dtype=T.float32)", "T.as_tensor({g}.random({s}))",
    "T.tensor({g}.normal(size={s}).astype('float32'))", "T.tensor([{d}, {d}])", "T.tensor({d})", "{x} * {d}", "{x} + {d}",
    "{x} * T.from_numpy({g}.random({s}))[0]", "T.from_numpy({g}.permutation(4))", "{x}[{g}.permutation(len({x}))]",
    "T.full((2,), {d})", "{x} * {d} + {d}", "{x} ** {d}", "{d} * {x}.sum()", "{x}.clamp(max={d})",
    "T.from_numpy({g}.integers(0, 5, size={s}))",
)  # fmt: skip
KINDS: dict[str, tuple[str, Sequence[str], str]] = {
    "random.Random(5)": ("hash({g}.getstate()[1]), {g}.gauss_next", OF_PYTHON, "{g}.seed(3)"),
    "np.random.default_rng(5)": ("str({g}.bit_generator.state)", OF_NUMPY, "{g}.random()"),
    "np.random.RandomState(5)": ("hash({g}.get_state()[1].tobytes()), {g}.get_state()[2:]", OF_STATE, "{g}.seed(3)"),
    "random": ("hash({g}.getstate()[1]), {g}.getstate()[2]", OF_PYTHON, "{g}.seed(3)"),
    "np.random": ("hash({g}.get_state()[1].tobytes()), {g}.get_state()[2:]", OF_STATE, "{g}.seed(3)"),
}


def furnish_generators(m: Maker) -> None:
    """A generator of Python's or NumPy's."""
    kind = m.pick(list(KINDS))
    name = m.name("rng")
    state, _, change = KINDS[kind]
    if m.outside("import random", f"{name} = {kind}"):
        m.world.observed.append(f"({state})".replace("{g}", name))
        m.world.changes += [change.replace("{g}", name), f"{name}.random()"]
        if "(" in kind:
            m.declared.append(name)
            m.world.changes.append(f"{name} = {kind.replace('5', '6')}")
        m.chances.append((name, kind))
        m.for_torch = False


def chance_number(m: Maker) -> str | None:
    """A number that is drawn."""
    if not m.chances:
        furnish_generators(m)
    if not m.chances:
        return None
    name, kind = m.pick(m.chances)
    text = str(m.pick(KINDS[kind][1])).replace("{g}", name).replace("{n}", "2")
    m.not_replayed("draws of Python and NumPy")
    return None if m.fails(text) else text


def chance_statement(m: Maker) -> None:
    """A draw that is assigned, or computed with."""
    drawn = chance_number(m)
    if drawn is None:
        return
    if m.chance(0.3):
        m.assign(drawn, "n")
        return
    name, _ = m.pick(m.chances)
    for _ in range(TRIES):
        text = str(m.pick(ARRAYS)).replace("{d}", drawn).replace("{g}", name).replace("{s}", m.pick(["3", "(2, 3)", "1"]))
        if m.assign(text.replace("{x}", m.tensor() or m.floating())):
            return


# -- numbers that leave, kept in the world and read back
KEEPERS: Sequence[tuple[str, Sequence[str], Sequence[str], Sequence[str]]] = (
    (
        "collections.deque([1.0, 2.0], maxlen=3)",
        ("{k}.append({t})", "{k}.appendleft({t})", "{k}.extend([{t}, {n}])", "{k}[0] = {t}", "{k} and {k}.popleft()", "{k}.clear()",
         "{k}.rotate(1)"),
        ("{k}[-1]", "{k}[0]", "sum({k})", "len({k})", "sum({k}) / max(len({k}), 1)", "max({k})", "list({k})[-1]",
         "min({k}, default=1.0)", "sum(v * 2 for v in {k})"),
        ("{k}.append(4.0)", "{k}.clear()", "{k} = collections.deque([3.0], maxlen=2)", "{k}.pop()"),
    ),
    (
        "[1.0]",
        ("{k}.append({t})", "{k}[-1] = {t}", "{k} += [{t}]", "{k}[0] += {t}", "{k}[0] = {t}", "{k}.insert(0, {t})", "del {k}[:-2]",
         "{k}[:] = [{t}, {n}]", "{k}.extend({x}.reshape(-1).tolist()[:2])", "{k}.sort()"),
        ("{k}[-1]", "{k}[0]", "sum({k})", "len({k})", "sum({k}) / max(len({k}), 1)", "max({k})", "min({k}[-2:])", "sorted({k})[0]"),
        ("{k}.append(4.0)", "{k}[:] = [2.5]", "{k}[0] = 9", "{k}.reverse()"),
    ),
    (
        "{'best': 1.0, 'n': 0}",
        ("{k}['best'] = {t}", "{k}['best'] = min({k}['best'], {t})", "{k}['n'] += 1", "{k}['sum'] = {k}.get('sum', 0) + {t}",
         "{k}.update(best={t}, last={n})", "{k}.setdefault('first', {t})", "{k}[{k}['n']] = {t}", "{k}.pop('sum', None)",
         "if {t} < {k}['best']:\n    {k}['best'] = {t}"),
        ("{k}['best']", "{k}['n']", "{k}.get('sum', 0.0)", "sum(v for v in {k}.values())", "len({k})", "max({k}.values())"),
        ("{k}['best'] = 100.0", "{k}['n'] = 0", "{k}.pop('sum', None)", "{k} = {'best': 2.0, 'n': 3}"),
    ),
    (
        "types.SimpleNamespace(best=1.0, n=0, items=[], mean=0.0)",
        ("{k}.best = {t}", "{k}.best = max({k}.best, {t})", "{k}.n += 1", "{k}.items.append({t})", "{k}.mean += ({t} - {k}.mean) * 0.5",
         "{k}.last = {x}", "{k}.items = [*{k}.items[-2:], {t}]", "if {t} > {k}.best:\n    {k}.best = {t}\n    {k}.n = 0",
         "{k}.total = getattr({k}, 'total', 0) + {t}"),
        ("{k}.best", "{k}.n", "{k}.mean", "sum({k}.items)", "len({k}.items)", "getattr({k}, 'total', 0.0)", "{k}.best * {k}.n"),
        ("{k}.best = -1.0", "{k}.items.clear()", "{k}.mean = 2.0", "{k}.n = 5"),
    ),
    (
        "collections.defaultdict(list)",
        ("{k}['a'].append({t})", "{k}['b'].append({t})", "{k}['a'] = [{t}]", "{k}['c'].extend([{t}, {n}])"),
        ("sum({k}['a'])", "len({k})", "len({k}['b'])", "sum(sum(v) for v in {k}.values())"),
        ("{k}.clear()", "{k}['a'].append(2.0)"),
    ),
    (
        "collections.Counter(a=1)",
        ("{k}['a'] += 1", "{k}['b'] += int({t})", "{k}.update(c=2)", "{k}[{n}] += 1"),
        ("{k}['a']", "sum({k}.values())", "{k}['z']", "{k}.most_common(1)[0][1]"),
        ("{k}.clear()", "{k}['a'] = 4"),
    ),
    (
        "types.SimpleNamespace(history=collections.deque(maxlen=2), table={'a': [0.5]})",
        ("{k}.history.append({t})", "{k}.table['a'].append({t})", "{k}.table['b'] = {t}", "{k}.history.append(({n}, {t}))"),
        ("len({k}.history)", "{k}.table['a'][-1]", "sum({k}.table['a'])", "{k}.table.get('b', 1.0)"),
        ("{k}.history.clear()", "{k}.table['a'] = [1.0]", "{k}.table.pop('b', None)"),
    ),
)  # fmt: skip


def furnish_keepers(m: Maker) -> None:
    """A container or an object of the world that numbers are kept in."""
    made, stores, reads, changes = m.pick(KEEPERS)
    name = m.name("kept")
    if m.outside("import collections, types", f"{name} = {made}", name=name):
        m.declared.append(name)
        m.keepers.append((name, stores, reads))
        m.world.changes += [c.replace("{k}", name) for c in changes]


def kept_number(m: Maker) -> str | None:
    """A number that was kept, perhaps by this call."""
    if not m.keepers:
        furnish_keepers(m)
    if not m.keepers:
        return None
    name, _, reads = m.pick(m.keepers)
    text = m.pick(reads).replace("{k}", name)
    m.not_replayed("containers of outside are read")
    return None if m.fails(text) else text
