"""Classes of containers: changed in place, read by C code, dictionaries of attributes.  See capture_programs.py."""

from __future__ import annotations

import collections
import json
import operator

from registered_programs import Box, program, with_change, x

import tracejit as T


class List(list):
    pass


class Doubling(list):
    def append(self, value):
        super().append(value * 2)

    def __len__(self):
        return 7

    def __getitem__(self, key):
        return list.__getitem__(self, key)


class Table(dict):
    pass


class Tenfold(dict):
    def __getitem__(self, key):
        return dict.__getitem__(self, key) * 10


class Ordered(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.move_to_end(key)


class Members(set):
    pass


class Window(collections.deque):
    pass


class Config(dict):
    """A dictionary that is its own __dict__."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.__dict__ = self


class Dotted(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def changing(make, fn, numbers=(3, 3, 4, 2.5)):
    """Calls of fn(container, number) with a new container each, which is returned as it is then, with its attributes."""

    def call(number):
        def called(f):
            container = make()
            return f(container, number), container, dict(getattr(container, "__dict__", {}))

        return called

    return fn, [call(number) for number in numbers], None


@program()
def list_subclass_extended_and_repeated_in_place():
    def fn(q, n):
        q += [n]
        q *= 2
        return q[0]

    return changing(lambda: List([5]), fn)


@program()
def list_subclass_repeated_in_place():
    def fn(q, n):
        q *= 2
        return x(1, 2) * n

    return changing(lambda: List([5, 6]), fn)


@program()
def dictionaries_updated_in_place():
    def fn(o, n):
        o.q |= {"a": n}
        r = o.r
        r |= [("b", n), ("a", 1)]
        operator.ior(o.d, {"c": n})
        return o.q["a"] + r["b"]

    return changing(lambda: Box(q=Table(a=1), r=Ordered(a=2, b=3), d=collections.defaultdict(int)), fn)


@program()
def set_subclass_changed_by_operators():
    def fn(q, n):
        q |= {n}
        q -= {1}
        q &= {2, n}
        q ^= {n, 7}
        return len(q)

    return changing(lambda: Members([1, 2]), fn, (3, 3, 4, 4))


@program()
def deque_put_at_its_left_and_read_again():
    def fn(q, n):
        q.extendleft([n, 1])
        q[1] += 1
        return q[1], q[0]

    return changing(lambda: collections.deque([9]), fn)


@program()
def deque_subclass_of_limited_length():
    def fn(q, n):
        q.append(n)
        q += [n + 1]
        return sum(q)

    return changing(lambda: Window([1, 2, 3], 3), fn)


@program()
def counter_copied_before_it_is_changed():
    counts = collections.Counter(a=1)

    def fn(a, n):
        before = counts.copy()
        counts["a"] += n
        return a * n, before

    return fn, [lambda f, n=n: f(x(1, 2), n) for n in (3, 4, 5)], lambda: counts


@program()
def key_made_again_by_reading_a_defaultdict():
    def fn(q, n):
        del q["b"]
        return q["b"] + n

    return changing(lambda: collections.defaultdict(int, b=5), fn)


@program(reason="container")
def containers_initialised_again():
    def fn(d, n):
        d.__init__(z=n)
        return n

    return changing(lambda: {"a": 1}, fn)


@program()
def special_methods_called_by_name():
    def fn(o, n):
        o.l.__iadd__([n])
        o.d.__ior__({"q": n})
        o.s.__ior__({1, 2})
        return n

    return changing(lambda: Box(l=[1], d={}, s=set()), fn)


@program()
def overridden_length_and_items_are_passed_over_by_c_code():
    def fn(q, n):
        q.append(n)
        del q[0]
        return list(q), len(q), sorted(q), json.dumps(list(q))

    return changing(lambda: Doubling([1, 2]), fn, (3, 3, 4, 4))


@program()
def unpacked_dictionary_subclass_is_read_as_it_is():
    def fn(q, n):
        q["a"] = n
        return dict(**q), {**q}, dict(q), "{a}".format(**q), q["a"], collections.OrderedDict(q)

    return changing(lambda: Tenfold(a=1, b=2), fn)


@program(reason="container")
def ordered_dictionary_changed_past_its_order():
    def fn(q, n):
        dict.__setitem__(q, "c", n)
        return list(q)

    return changing(lambda: collections.OrderedDict(a=1), fn)


@program()
def attributes_of_an_ordered_dictionary_of_the_call():
    def fn(a, n):
        made = collections.OrderedDict(a=n)
        made.tag = [n]
        return a * n, made, made.tag

    return fn, [lambda f, n=n: [f(x(1, 2), n), f(x(1, 2), n)[1].tag] for n in (3, 4)], None


@program()
def set_of_the_call_comes_out_in_the_same_order():
    def fn(a, n):
        made = {8, 16, 24, 1}
        made.discard(1)
        made.add(n)
        return a * n, list(made), made

    return fn, [lambda f, n=n: [f(x(1, 2), n), list(f(x(1, 2), n)[2])] for n in (32, 32, 9)], None


@program()
def configuration_that_is_its_own_dictionary():
    config = Config(n=0, s=1.0)

    def fn(a):
        config.n = config.n + 1
        config["s"] = config.s * 2
        return a * config["n"] * config.s

    return fn, with_change(lambda: config.update(n=5), lambda: setattr(config, "s", 0.5)), lambda: dict(config)


@program()
def configuration_with_keys_that_come_and_go():
    config = Config(n=0)

    def fn(a):
        config["late"] = getattr(config, "late", 0) + 1
        del config.n
        config.n = len(config)
        return a * config.late, "n" in config, hasattr(config, "other"), vars(config) is config, sorted(config)

    return fn, with_change(lambda: config.update(other=1), lambda: config.pop("late")), lambda: dict(config)


@program()
def instance_whose_attributes_are_a_dictionary_that_the_program_has():
    shared = {"k": 1.0}
    one, other = Box(), Box()
    one.__dict__ = other.__dict__ = shared

    def fn(a):
        one.k += 1
        shared["k"] *= 2
        return a * other.k

    return fn, with_change(lambda: shared.update(k=7.0)), lambda: shared


@program()
def other_configuration_is_another_path():
    configs = [Config(k=2.0), Box(k=3.0)]
    separate = Config(k=4.0)
    separate.__dict__ = {"k": 5.0}

    def fn(a, c):
        return a * c.k

    return fn, [lambda f, c=c: f(x(1, 2), c) for c in (configs[0], separate, configs[0], configs[1])], None


@program()
def dictionary_with_dots():
    table = Dotted(n=1, s=2.0)

    def fn(a):
        table.n += 1
        table.s = table["s"] * table.n
        return a * table.s, dict(table)

    return fn, with_change(lambda: table.update(n=7)), lambda: dict(table)


@program()
def attributes_of_a_tensor_by_its_dictionary():
    t = T.ones(2)

    def fn(a):
        t.__dict__["tag"] = a.sum() * 0 + 1
        vars(t)["n"] = vars(t).get("n", 0) + 1
        return a * t.n * vars(t)["tag"]

    return fn, with_change(lambda: setattr(t, "n", 5)), lambda: sorted(vars(t).items(), key=str)


@program()
def keywords_that_are_no_texts():
    def fn(d, n):
        d["a"] = n
        return "{a} {b}".format(b=1, **d)

    return changing(lambda: {5: 2, "a": 0}, fn)


@program()
def sizes_and_numbers():
    def fn(a, n):
        try:
            return a.shape + (n,)
        except TypeError as error:
            return str(error)

    return fn, [lambda f, n=n: f(x(1, 2), n) for n in (3, 3, 2.5, True, 2.5)], None


@program()
def functions_of_operator():
    def fn(q, n):
        return operator.contains(q, n), operator.indexOf([1, n], n), operator.countOf((n, n), n), operator.concat([n], [1])

    return changing(lambda: List([1, 2]), fn, (2, 2, 3, 3))
