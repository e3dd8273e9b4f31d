"""Objects from outside, reached through everything that hands objects on.  See capture_programs.py."""

from __future__ import annotations

import collections
import copy
import functools
import heapq
import itertools
import operator
import types
import weakref

from registered_programs import Box, program, with_change


class Item:
    """Something with a number, that is ordered by it."""

    def __init__(self, k):
        self.k = k

    def __lt__(self, other):
        return self.k < other.k

    def touch(self):
        self.k += 1.0
        return self


GETTERS = {
    "item": lambda s: s.l[0],
    "negative_item": lambda s: s.l[-1],
    "slice": lambda s: s.l[:1][0],
    "unpacking": lambda s: (lambda p, *r: p)(*s.l),
    "starred_unpacking": lambda s: [*s.l][1],
    "max": lambda s: max(s.l, key=lambda i: i.k),
    "min_of_objects": lambda s: min(s.l),
    "sorted": lambda s: sorted(s.l)[0],
    "sorted_by_key": lambda s: sorted(s.l, key=lambda i: i.k > 100, reverse=True)[0],
    "reversed": lambda s: next(reversed(s.l)),
    "next_of_iter": lambda s: next(iter(s.l)),
    "next_of_filter": lambda s: next(filter(lambda i: i.k > 0, s.l)),
    "next_of_generator": lambda s: next(i for i in s.l if i.k > 0),
    "map": lambda s: list(map(lambda i: i, s.l))[0],
    "zip": lambda s: list(zip(s.l, range(9), strict=False))[0][0],
    "enumerate": lambda s: list(enumerate(s.l))[1][1],
    "chain": lambda s: list(itertools.chain(s.l, [1]))[0],
    "islice": lambda s: list(itertools.islice(s.l, 1, 2))[0],
    "cycle": lambda s: next(itertools.cycle(s.l)),
    "repeat": lambda s: next(itertools.repeat(s.l[0])),
    "accumulate": lambda s: list(itertools.accumulate(s.l, lambda p, q: q))[-1],
    "groupby": lambda s: next(itertools.groupby(s.l, key=lambda i: 1))[0] and s.l[0],
    "members_of_groups": lambda s: [list(g) for _, g in itertools.groupby(s.l, key=lambda i: i.k > 100)][0][0],
    "product": lambda s: next(itertools.product(s.l, "a"))[0],
    "reduce": lambda s: functools.reduce(lambda p, q: p, s.l),
    "list_copy": lambda s: list(s.l)[0],
    "copy_method": lambda s: s.l.copy()[0],
    "copy_function": lambda s: copy.copy(s.l)[0],
    "concatenation": lambda s: (s.l + [])[0],
    "multiplication": lambda s: (s.l * 2)[2],
    "tuple": lambda s: tuple(s.l)[0],
    "deque": lambda s: collections.deque(s.l)[0],
    "dictionary_item": lambda s: s.d["p"],
    "dictionary_get": lambda s: s.d.get("p"),
    "dictionary_get_default": lambda s: s.d.get("zz", s.l[0]),
    "dictionary_values": lambda s: list(s.d.values())[0],
    "dictionary_items": lambda s: [v for k, v in s.d.items() if k == "p"][0],
    "dictionary_copy": lambda s: dict(s.d)["p"],
    "dictionary_union": lambda s: (s.d | {})["p"],
    "dictionary_unpacked": lambda s: {**s.d}["p"],
    "dictionary_comprehension": lambda s: {k: v for k, v in s.d.items()}["p"],
    "setdefault": lambda s: s.d.setdefault("p", None),
    "keyword_arguments": lambda s: (lambda **k: k["p"])(**s.d),
    "attribute": lambda s: s.o,
    "getattr": lambda s: getattr(s, "o", None),
    "dunder_dict": lambda s: s.__dict__["o"],
    "vars": lambda s: vars(s)["o"],
    "attrgetter": lambda s: operator.attrgetter("o")(s),
    "itemgetter": lambda s: operator.itemgetter(0)(s.l),
    "methodcaller": lambda s: operator.methodcaller("get", "p")(s.d),
    "partial": lambda s: functools.partial(operator.getitem, s.l)(0),
    "bound_getitem": lambda s: s.l.__getitem__(0),
    "unbound_getitem": lambda s: list.__getitem__(s.l, 0),
    "map_of_getter": lambda s: list(map(operator.itemgetter("p"), [s.d]))[0],
    "conditional": lambda s: s.o if s.l else None,
    "or_else": lambda s: None or s.o,
    "and_then": lambda s: s.l and s.o,
    "walrus": lambda s: (q := s.o) and q,
    "nested_call": lambda s: (lambda v: (lambda w: w)(v))(s.o),
    "default_argument": lambda s: (lambda v=s.o: v)(),
    "closure": lambda s: (lambda v: lambda: v)(s.o)(),
    "generator_return": lambda s: list((yield_all(s.l)))[0],
    "named_tuple": lambda s: s.t.v,
    "namespace": lambda s: types.SimpleNamespace(v=s.o).v,
    "made_object": lambda s: Box(v=s.o).v,
    "made_list": lambda s: [s.o].pop(),
    "made_dictionary": lambda s: {"v": s.o}.pop("v"),
    "made_set": lambda s: next(iter({s.o})),
    "chain_map": lambda s: collections.ChainMap({}, s.d)["p"],
    "default_dictionary": lambda s: collections.defaultdict(list, s.d)["p"],
    "ordered_dictionary": lambda s: collections.OrderedDict(s.d)["p"],
    "exception_argument": lambda s: caught(s.o),
    "context_manager": lambda s: entered(s.o),
    "weak_reference": lambda s: s.r(),
    "heap": lambda s: heapq.nsmallest(1, s.l)[0],
    "type_of_it": lambda s: s.o.__class__ and s.o,
    "bound_method": lambda s: s.o.touch.__self__,
    "method_result": lambda s: s.o.touch(),
    "map_keys_and_values": lambda s: dict(zip(s.d.keys(), s.d.values(), strict=True))["p"],
    "match": lambda s: matched(s.l),
    "star_target": lambda s: star(s.l),
    "list_pop_and_append": lambda s: popped(s.l),
    "swap": lambda s: swapped(s),
    "ifexp_identity": lambda s: s.o if s.o is s.d["p"] else s.l[0],
}


def yield_all(items):
    for i in items:
        yield i


def caught(v):
    try:
        raise ValueError(v)
    except ValueError as e:
        return e.args[0]


class Manager:
    def __init__(self, v):
        self.v = v

    def __enter__(self):
        return self.v

    def __exit__(self, *e):
        return False


def entered(v):
    with Manager(v) as w:
        return w


def matched(v):
    match v:
        case [p, *_]:
            return p


def star(v):
    *_, last = v
    return last


def popped(v):
    o = v.pop(0)
    v.insert(0, o)
    return o


def swapped(s):
    s.l[0], s.l[1] = s.l[1], s.l[0]
    s.l[0], s.l[1] = s.l[1], s.l[0]
    return s.l[0]


NT = collections.namedtuple("NT", "v")


def reached(get):
    """An object from outside is reached, changed, and reached again by its name."""

    def maker():
        p, q = Item(1.0), Item(2.0)
        s = Box(l=[p, q], d={"p": p}, o=p, t=NT(p), r=weakref.ref(p))

        def fn(a):
            o = get(s)
            o.k += 1.0
            o.last = a * o.k
            return o.last + p.k - q.k, o is p

        def exchange():
            n = Item(5.0)
            s.l[1] = n

        return (
            fn,
            with_change(lambda: setattr(p, "k", 0.0), lambda: setattr(q, "k", -3.0), exchange, lambda: s.l.reverse()),
            lambda: (p, q, [i.k for i in s.l]),
        )

    return maker


for _n, _g in GETTERS.items():
    m = reached(_g)
    m.__name__ = f"object_reached_by_{_n}"
    program()(m)
