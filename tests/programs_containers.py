"""Lists, dictionaries and their subclasses.  See capture_programs.py."""

from __future__ import annotations

import collections

from registered_programs import program, x


@program(reason="read_after_change")
def list_of_tensors_grows():
    log = [x(0)]

    def fn(a):
        log.append(a * 2)
        return len(log) * a

    return fn, [lambda f: f(x(1))] * 4, lambda: log


@program()
def list_changes_of_all_kinds():
    items = [1, 2, 3, 4]

    def fn(a):
        items[0] = items[0] + 1
        items.insert(1, 9)
        items.pop()
        del items[2]
        items.extend([5])
        return a * sum(items)

    def restart(f):
        items[:] = [1, 2, 3, 4]
        return f(x(1))

    return fn, [lambda f: f(x(1)), restart, restart], lambda: items


@program()
def dictionary_changes_of_all_kinds():
    d = {"a": 1.0, "n": 0}

    def fn(a):
        d["n"] += 1
        d.setdefault("t", a * 2)
        d["t"] = d["t"] + d["n"]
        d.update(last=None) if False else d.update({"last": a})
        d.pop("gone", None)
        return d["t"] * d.get("a", 2.0) * d.get("zz", 3.0)

    return fn, [lambda f: f(x(1))] * 4, lambda: d


@program()
def subclasses_of_containers_by_path():
    class Config(dict):
        def __getattr__(self, name):
            return self[name]

    class Doubled(dict):
        def __getitem__(self, key):
            return super().__getitem__(key) * 2

    class Stack(list):
        def append(self, value):
            super().append(value)
            super().append("after")

    def fn(a, config, stack):
        first = stack[0]
        stack.append(a)
        return a * config.scale + len(config) + Doubled(k=a)["k"] + doubled["k"], first

    doubled = Doubled(k=3.0)

    def go(f, k):
        stack = Stack([x(k)])
        return f(x(1, 2), Config(scale=k), stack), stack

    return fn, [lambda f, k=k: go(f, k) for k in (1.0, 2.0, 3.0)], None


@program()
def long_tables_of_numbers():
    def fn(a, table):
        for v in table:
            a = a + v
        return a

    tables = (
        [float(i + 1) for i in range(40)],
        [*range(40)],
        [float(i + 1) for i in range(40)],
        [True] * 40,
        [0.0] * 10,
        [-0.0] * 10,
    )
    return fn, [lambda f, t=t: f(x(1), t) for t in (*tables, *tables)], None


@program()
def dictionary_keys_one_and_true():
    d = {1: 2.0}

    def fn(a):
        return a * d[1]

    def swap(f):
        d.clear()
        d[True] = 5.0
        return f(x(1))

    return fn, [lambda f: f(x(1)), swap], None


@program()
def dictionary_order_is_seen():
    d = {"p": 1.0, "q": 2.0}

    def fn(a):
        for i, (k, v) in enumerate(d.items()):
            a = a * (v + i) if k == "p" else a - v
        return a

    def turn(f):
        d["p"] = d.pop("p")
        return f(x(3))

    return fn, [lambda f: f(x(3)), turn, lambda f: f(x(3)), turn, lambda f: f(x(3))], None


@program()
def defaultdict_of_state():
    state = collections.defaultdict(dict)
    p = x(1, 2)

    def fn(a):
        s = state[p]
        s["step"] = s.get("step", 0) + 1
        return a * s["step"] + p

    return fn, [lambda f: f(x(1, 2))] * 5, lambda: list(state.values())
