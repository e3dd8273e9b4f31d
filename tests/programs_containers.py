"""Lists, dictionaries and their subclasses.  See capture_programs.py."""

from __future__ import annotations

import collections

from registered_programs import program, x

import tracejit as T


@program()
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


def kept(container, change):
    """Calls of a function that changes a container from outside with a number of the call, and what is in it then."""
    return (lambda a: change(container, a.sum().item())), [lambda f, i=i: f(x(i, 2)) for i in range(4)], lambda: list(container)


@program()
def list_cleared_and_filled_with_numbers():
    def change(xs, v):
        xs.clear()
        xs.extend([v, 3])
        xs.append(2 * v)
        return xs[-1], xs[0], sum(xs), max(xs), len(xs)

    return kept([0.0, 0.0, 0.0], change)


@program()
def end_of_a_list_that_grows_by_numbers():
    def change(xs, v):
        xs.extend([v, v + 1])
        return xs[-1], xs[-2]

    return kept([1.0], change)


@program()
def list_assigned_as_a_whole():
    def change(xs, v):
        xs[0] = v
        xs[:] = [value + 1 for value in xs]
        xs[1:] = (xs[0], 5)
        return xs[0], xs[1], xs[-1], sum(xs)

    return kept([0.0, 1.0], change)


@program()
def list_whose_items_move():
    def change(xs, v):
        xs[0] = v
        first = xs.pop(0)
        xs.insert(1, v * 2)
        xs.reverse()
        del xs[0]
        xs.append(first)
        return xs[0], xs[-1], first, sum(xs)

    return kept([0.0, 1.0, 2.0], change)


@program()
def full_deque_that_gets_numbers():
    def change(window, v):
        window.append(v)
        window.append(v * 2)
        return window[-1], window[0], sum(window) / len(window), max(window), list(window)

    return kept(collections.deque([0.0] * 3, maxlen=3), change)


@program()
def deque_read_before_and_after_it_gets_numbers():
    def change(window, v):
        before = sum(window)
        window.append(v)
        window.appendleft(7.0)
        window.rotate(1)
        gone = window.popleft()
        window.append(2.0)
        return before, gone, window[0], window[-1], sum(window)

    return kept(collections.deque([0.0] * 3, maxlen=3), change)


@program()
def deque_with_an_item_replaced_before_it_moves():
    def change(window, v):
        window[1] = v
        window.append(1.0)
        return window[0], sum(window)

    return kept(collections.deque([0.0] * 3, maxlen=3), change)


@program()
def deque_of_pairs():
    def change(window, v):
        window.append((v, 2))
        return window[-1][0], sum(value for value, _ in window)

    return kept(collections.deque([(0.0, 1)] * 3, maxlen=3), change)


class Named(dict):
    """A dictionary whose items are attributes."""

    def __init__(self, *items, **more):
        super().__init__(*items, **more)

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


class Ordered(collections.OrderedDict):
    def __init__(self, *items, **more):
        super().__init__(*items, **more)
        self.count = len(self)


class Rows(list):
    def __init__(self, rows=()):
        super().__init__(rows)
        self.extra = 1


class Names(set):
    pass


class Itself(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


@program()
def dictionaries_of_ones_own_made_inside():
    def fn(a):
        out = Named({"x": a, "y": a.sum().item()}, z=3)
        out.mean = a.mean().item()
        return out, out.x * out.z, out.y + out.mean, hasattr(out, "w"), sorted(out), dict(out)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def ordered_dictionaries_of_ones_own_made_inside():
    keep = {}

    def fn(a):
        out = Ordered([("x", a), ("y", a.sum().item())], z=1)
        out.move_to_end("x")
        keep["latest"] = out
        return list(out), out, out.count, out.popitem()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: keep


@program()
def lists_and_sets_of_ones_own_made_inside():
    def fn(a):
        rows = Rows([a.sum().item(), 2])
        rows.append(a)
        return rows, rows.extra, rows[0], len(rows), Rows(), Names(["a", "b", "a"])

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program(reason="descriptor")
def dictionary_that_is_its_own_attributes():
    return (lambda a: Itself(x=a, y=1)), [lambda f: sorted(f(x(1, 2)))], None


@program()
def order_of_an_ordered_dictionary():
    table = collections.OrderedDict((name, x(i, 1)) for i, name in enumerate("abc"))

    def fn(a):
        return list(table), [value.sum().item() for value in table.values()], sum(table.values()) * a

    def moved(name):
        def call(f):
            table.move_to_end(name)
            return f(x(1, 2))

        return call

    same = lambda f: f(x(1, 2))  # noqa: E731
    return fn, [same, same, moved("b"), same, moved("c"), same, moved("a"), moved("b"), moved("c"), same], lambda: list(table)


@program()
def ordered_dictionary_of_a_module():
    model = T.nn.Module()
    model.table = collections.OrderedDict((name, T.nn.Parameter(x(i, 1))) for i, name in enumerate("abc"))

    def fn(a):
        for value in model.table.values():
            a = a * 2 + value
        return a

    def moved(f):
        model.table.move_to_end("a")
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2))] * 3 + [moved, moved, moved], None


@program()
def least_recently_used_first():
    table = collections.OrderedDict((i, x(i, 1)) for i in range(3))

    def fn(a, key):
        table.move_to_end(key)
        return a * table[key], list(table)

    return fn, [lambda f, i=i: f(x(1, 2), i) for i in (1, 1, 0, 2, 2)], lambda: list(table)
