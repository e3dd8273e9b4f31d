"""Classes of containers of the world, what outlives a call, and loops in which tensors decide.

What C code does past the methods of a subclass, what it finds after a change, and what it makes of iterators, functions and objects that a
call has given, is eager's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.expressions import number
from tests.fuzz.leaving import taken
from tests.fuzz.maker import Maker, indented

__all__ = ["outliving", "subclass_read", "subclass_statement", "tensor_loop"]

TRIES = 5
IMPORTS = "import collections, copy, functools, itertools, json, operator, types"
LISTS = (
    "class {c}(list): pass",
    "class {c}(list):\n    def append(self, value):\n        super().append(value)\n        self.count = getattr(self, 'count', 0) + 1",
    "class {c}(list):\n    def __getitem__(self, key):\n        return list.__getitem__(self, key)\n    def __contains__(self, v):\n"
    "        return True",
    "class {c}(list):\n    def __iter__(self):\n        return (v * 2 for v in list.__iter__(self))",
    "class {c}(collections.deque): pass",
    "class {c}(collections.UserList): pass",
)
TABLES = (
    "class {c}(dict): pass",
    "class {c}(dict):\n    def __init__(self, *a, **k):\n        super().__init__(*a, **k)\n        self.__dict__ = self",
    "class {c}(dict):\n    def __getattr__(self, key):\n        if key not in self:\n            raise AttributeError(key)\n"
    "        return self[key]\n    __setattr__ = dict.__setitem__",
    "class {c}(dict):\n    def __missing__(self, key):\n        self[key] = 2\n        return 2",
    "class {c}(dict):\n    def __getitem__(self, key):\n        return dict.__getitem__(self, key) * 10",
    "class {c}(dict):\n    def __setitem__(self, key, value):\n        super().__setitem__(key, value)\n        self.last = key",
    "class {c}(collections.OrderedDict):\n    def __setitem__(self, key, value):\n        super().__setitem__(key, value)\n"
    "        self.move_to_end(key)",
    "class {c}(collections.OrderedDict): pass",
    "class {c}(collections.Counter): pass",
    "class {c}(collections.UserDict): pass",
    "{c} = functools.partial(collections.defaultdict, int)",
)
SETS = ("class {c}(set): pass", "class {c}(set):\n    def add(self, value):\n        super().add(value)\n        super().add(7)")
LIST_CHANGES = (
    "{k}.append({n})", "{k} += [{n}]", "{k} *= 2", "{k}[0] = {n}", "{k}[-1] += 1", "{k}.insert(0, {n})", "del {k}[2:]",
    "{k}.extend([{n}, 1])", "{k}.reverse()", "{k}[:] = [{n}, 1]", "{k}.append({t})", "{k} and {k}.pop()",
    "list.append({k}, {n})", "{k}.extend(v for v in ({n}, {t}))", "{k}.tag = {n}", "operator.iadd({k}, [{n}])",
    "{k}.__iadd__(({n},))", "{k}.extendleft([{n}])", "{k}.rotate(1)",
)  # fmt: skip
LIST_READS = (
    "{k}[0]", "{k}[-1]", "len({k})", "sum({k})", "sorted({k})[0]", "max({k})", "list({k})", "json.dumps(list({k}))", "copy.copy({k})",
    "{k} == [1, 2]", "[*{k}]", "list(reversed({k}))", "{k}[1:]", "2 in {k}", "operator.contains({k}, 2)", "list(zip({k}, {k}))",
    "getattr({k}, 'count', None)", "operator.countOf({k}, 2)", "type({k})({k})", "functools.reduce(operator.add, {k})", "{k} * 2",
)  # fmt: skip
TABLE_CHANGES = (
    "{k}['a'] = {n}", "{k}['a'] += 1", "{k}['c'] = {t}", "{k}.update(b={n})", "{k} |= {'b': {n}}", "{k}.pop('c', None)",
    "{k}.setdefault('c', {n})", "{k}.update({'a': {n}, 'c': 1})", "{k}.a = {n}", "{k}.tag = {n}", "setattr({k}, 'b', {t})",
    "dict.__setitem__({k}, 'a', {n})", "del {k}['b']; {k}['b'] = {n}", "operator.ior({k}, {'c': {n}})", "{k}.__ior__({'a': {n}})",
    "{k}.clear(); {k}['a'] = {n}; {k}['b'] = 1", "vars({k})['a'] = {n}", "{k}.update(zip('ab', (1, {n})))",
)  # fmt: skip
TABLE_READS = (
    "{k}['a']", "{k}['b']", "{k}.get('c', 3)", "len({k})", "sorted({k})", "dict({k})", "{**{k}}", "(lambda **k: k)(**{k})", "{k}.a",
    "sum({k}.values())", "list({k}.items())", "json.dumps(dict({k}))", "copy.copy({k})", "'{a}'.format(**{k})", "'%(a)s' % {k}",
    "'c' in {k}", "operator.getitem({k}, 'a')", "{k} == {'a': 1, 'b': 2}", "max({k}, key={k}.get)", "type({k})({k})",
    "getattr({k}, 'last', None)", "collections.OrderedDict({k})", "[v * 2 for v in {k}.values()]", "{k}['zz']", "next(iter({k}))",
)  # fmt: skip
SET_CHANGES = (
    "{k}.add({i})", "{k} |= {{i}}", "{k}.discard(1)", "{k} -= {1}", "{k} ^= {{i}, 2}", "{k}.update([{i}])", "set.add({k}, {i})",
)  # fmt: skip
SET_READS = ("len({k})", "sorted({k})", "{i} in {k}", "{k} | {3}", "max({k}, default=0)", "sum({k})", "{k} == {1, 2}")
KINDS: Sequence[tuple[float, tuple[Sequence[str], str, Sequence[str], Sequence[str]]]] = (
    (3, (LISTS, "{c}([1, 2])", LIST_CHANGES, LIST_READS)),
    (4, (TABLES, "{c}(a=1, b=2)", TABLE_CHANGES, TABLE_READS)),
    (1, (SETS, "{c}([1, 2])", SET_CHANGES, SET_READS)),
)
OUTLIVING = (
    "iter([{n}, 1])", "reversed([{n}, 1])", "{1: {n}}.values()", "{1: {n}}.items()", "enumerate([{n}], {i})", "zip([{n}], [{t}])",
    "map(lambda v: v + {n}, [1, 2])", "filter(lambda v: v > 1, [{n}, 3])", "filter(None, [{n}, 0])", "itertools.chain([{n}], (1,))",
    "itertools.islice([{n}, 2], 1)", "itertools.product([{n}], [1])", "itertools.cycle([{n}])", "itertools.accumulate([{n}, 1])",
    "itertools.pairwise([{n}, {n}, 1])", "itertools.permutations([{n}, 1])", "itertools.takewhile(lambda v: v != {n}, [1, 9])",
    "itertools.starmap(max, [({n}, 1)])", "itertools.count({i})", "itertools.repeat({n}, 2)", "(v * 2 for v in [{n}, 1])",
    "([v, {n}] for v in (1, 2))", "functools.partial(max, {n})", "[{n}].append", "types.SimpleNamespace(a={n}, b=[{n}])",
    "({n}, [{n}])", "[({n}, 1)] * 2", "slice({i}, [{n}])", "collections.deque([{n}], 2)", "collections.OrderedDict(a={n})",
    "iter({x}.shape)", "map(str, [{n}])", "itertools.compress([{n}, 1], [1, {n}])", "nn.Dropout(0.5 * (1 / (1 + abs({n}))))",
    "itertools.groupby([{n}, 1], key=lambda v: v > 1)", "(lambda v={n}: v)", "{'a': {'b': ({n}, [{n}])}}", "iter({k})", "map(str, {k})",
    "zip({k}, [{n}])", "enumerate({k})", "({n} + v for v in {k})", "reversed({k})", "{k}.items()", "{k}.values()",
)  # fmt: skip


def furnish_subclass(m: Maker) -> None:
    """A container of a class of the world."""
    classes, made, changes, reads = m.weighted(KINDS)
    kind, name = m.name("Kind"), m.name("own")
    definition = m.pick(classes).replace("{c}", kind)
    if m.outside(IMPORTS, *definition.split("\n"), f"{name} = {made.replace('{c}', kind)}", name=name):
        m.declared.append(name)
        m.subclasses.append((name, changes, reads))
        m.world.changes += [f"{name} = {made.replace('{c}', kind)}", f"{name}.clear()", f"{name}.update(a=5)"]


def _texts(m: Maker, templates: Sequence[str], name: str) -> str:
    text = str(m.pick(templates)).replace("{k}", name)
    parts = {"{n}": number(m), "{t}": taken(m) or "1.5", "{i}": m.pick(["2", "3", "4"]), "{x}": m.tensor() or m.floating()}
    for place, part in parts.items():
        text = text.replace(place, f"({part})" if place in ("{n}", "{t}") else part)
    return text


def subclass_statement(m: Maker) -> None:
    """A container of a class of the world is changed."""
    if not m.subclasses or m.chance(0.2):
        furnish_subclass(m)
    if m.subclasses:
        name, changes, _ = m.pick(m.subclasses)
        for _ in range(TRIES):
            if m.emit(_texts(m, changes, name)):
                m.not_replayed("containers of classes change")
                return


def subclass_read(m: Maker) -> None:
    """It is looked at, by the program or by C code."""
    if not m.subclasses:
        furnish_subclass(m)
    if m.subclasses:
        name, _, reads = m.pick(m.subclasses)
        for _ in range(TRIES):
            if m.assign(_texts(m, reads, name), "n" if m.chance(0.3) else "s"):
                m.not_replayed("containers of classes are read")
                return


def outliving(m: Maker) -> None:
    """An iterator, a function, an object: returned, or kept in the world."""
    if not m.subclasses or m.chance(0.1):
        furnish_subclass(m)
    if not m.subclasses:
        return
    name = m.pick(m.subclasses)[0]
    for _ in range(TRIES):
        text = _texts(m, OUTLIVING, name)
        if m.fails(text):
            continue
        m.not_replayed("what outlives the call may not be built")
        if m.chance(0.25):
            m.emit(f"{name}.kept = {text}")
        else:
            kept = m.name("s")
            if m.define(kept, text) and m.chance(0.25):
                m.emit(f"next({kept}, None)")
        return


def tensor_loop(m: Maker) -> None:
    """A loop whose steps a tensor decides: a proposal that is accepted or not, and an early end."""
    x = m.tensor(lambda t: t.dtype.is_floating_point and 0 < t.numel() < 60)
    if x is None:
        return
    state, proposal, count, i = m.name("v"), m.name("v"), m.name("n"), m.name("i")
    move = m.pick(
        ["{s} * 0.7 + {i} * 0.1", "{s} - 0.3 * {s}.sign()", "T.tanh({s} + 0.2)", "{s}.sin() * 1.3", "{s} * (0.5 - {i})"]
    )
    test = m.pick(
        ["{p}.sum() < {s}.sum()", "float({p}.abs().max()) < 1.2", "({p} - {s}).abs().max() > 0.2", "{p}.max().item() > 0.1",
         "bool(({p} > 0).any())", "{p}.abs().sum() < {s}.abs().sum() * 0.9"]
    )  # fmt: skip
    end = m.pick(["{s}.abs().max() < 0.4", "{c} > 2", "float({s}.sum()) > 2.0", "{s}.abs().sum() > 5"])

    def filled(text: str) -> str:
        return text.replace("{s}", state).replace("{p}", proposal).replace("{i}", i).replace("{c}", count)

    accept = [f"{state} = {proposal}", f"{count} += 1"]
    refuse = m.pick([["else:", "    continue"], ["else:", f"    {state} = {state} * 0.9"], []])
    lines = [f"{proposal} = {filled(move)}", f"if {filled(test)}:", *indented(accept), *refuse]
    if m.chance(0.7):
        lines += [f"if {filled(end)}:", "    break"]
    header = m.pick([f"for {i} in range({m.choose.randint(2, 6)}):", f"for {i} in range({m.choose.randint(2, 6)}):"])
    if m.emit(f"{state} = {x} * 1.0", f"{count} = 0", header, *indented(lines)):
        m.names += [state, count]
        m.not_replayed("loops in which tensors decide")
