"""What outlives a call: iterators, functions, objects, modules and optimizers with numbers in them.  See capture_programs.py."""

from __future__ import annotations

import functools
import itertools
import json
import types

from registered_programs import Box, program, x

import tracejit as T
import tracejit.nn as nn
from tracejit import optim


def used(values):
    """What eager code does with what a call has given: types, what C code makes of it, tensors of numbers."""
    if hasattr(type(values), "__next__"):
        return type(values).__name__, [used(value) for value in itertools.islice(values, 4)]
    if isinstance(values, (int, float)):
        return json.dumps(values), T.ones(1) * values
    if isinstance(values, (list, tuple, type({}.values()), type({}.items()))):
        return type(values).__name__, [used(value) for value in values]
    return used(list(vars(values).values())) if isinstance(values, (Box, types.SimpleNamespace)) else values


def outliving(fn, *numbers):
    return fn, [lambda f, n=n: used(f(x(1, 2), n)) for n in numbers or (3, 4, 3)], None


@program(reason="unbuildable")
def views_and_iterators_of_numbers():
    table, items = {"a": 1, "b": 2}, [5, 6]

    def fn(a, n):
        d = {1: n}
        found = [d.values(), d.items(), iter([n]), reversed([n]), itertools.chain([n], items), itertools.islice([n, (n, [n])], 2)]
        return [*found, iter(items), reversed(items), iter(table.items()), zip(items, [n]), enumerate(items, n), iter(a)]

    return outliving(fn)


@program(reason="unbuildable")
def iterators_that_call_functions_afterwards():
    items = [1, 9]

    def fn(a, n):
        found = [filter(lambda v: v < n, items), itertools.starmap(max, [(n, 1)]), itertools.takewhile(lambda v: v < n, items)]
        found += [
            itertools.dropwhile(lambda v: v < n, items),
            itertools.filterfalse(lambda v: v < n, items),
            filter(None, [n, 0]),
        ]
        found += [
            itertools.groupby([n], key=lambda v: v > 2),
            map(functools.partial(max, n), items),
            map(lambda v: [v, n], items),
        ]
        return [*found, iter(lambda: n, 99), itertools.compress(items, [n, 0])]

    return outliving(fn)


@program(reason="unbuildable")
def iterators_that_keep_what_they_were_given():
    def fn(a, n):
        found = [itertools.product([n], repeat=2), itertools.cycle([n]), itertools.accumulate([n, 1], lambda p, q: p + q)]
        found += [itertools.pairwise([n, n, 1]), itertools.permutations([n, 1]), itertools.combinations([n, 1, 2], 2)]
        for iterator in found:
            next(iterator)
        return found

    return outliving(fn)


@program(reason="unbuildable")
def generators_with_numbers_in_their_variables():
    items = [1, 2]

    def rows(n):
        yield n
        yield [n, (n, 1)]
        yield n + 1

    def fn(a, n):
        begun = rows(n)
        next(begun)
        return rows(n), begun, (v * n for v in items), zip(rows(n), items), map(lambda v: (v, n), items)

    return outliving(fn)


@program(reason="frame_access")
def iterators_after_a_recording_that_stopped():
    items = [1, 2, 3]

    def fn(a, n):
        begun, left = itertools.accumulate([n, 1, 1]), map(lambda v: v * n, items)
        next(begun), next(left)
        locals()
        return list(begun), list(left), list(itertools.product([n], [1])), [n]

    return outliving(fn)


@program(reason="unbuildable")
def iterator_stored_outside():
    box = Box()

    def fn(a, n):
        box.it = map(lambda v: v + n, [1, 2])
        box.pair = (iter([n]), n)
        return a * n

    def call(n):
        return lambda f: (used(f(x(1, 2), n)), used(box.it), used(box.pair))

    return fn, [call(n) for n in (3, 4, 3)], None


@program()
def optimizer_of_the_call():
    def fn(a, n):
        p = nn.Parameter(T.ones(1))
        return p, optim.SGD([p], lr=0.1 * n)

    def call(n):
        def called(f):
            p, optimizer = f(x(1, 2), n)
            p.grad = T.ones(1)
            optimizer.step()
            return p, {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}, optimizer.defaults

        return called

    return fn, [call(n) for n in (1, 2, 3)], None


@program()
def attributes_of_objects_of_the_call():
    def fn(a, n):
        o = types.SimpleNamespace(b=[n], c=(n, [n]))
        o.d = {"n": n}
        m = nn.Dropout(0.25)
        m.__dict__["k"] = n
        m.l = [n, (n, 1)]
        return a * n, o.b, o.c, o, m

    return (
        fn,
        [lambda f, n=n: (lambda *r: (*r[:4], r[4].k, r[4].l, json.dumps([r[3].b, r[4].k])))(*f(x(1, 2), n)) for n in (3, 4)],
        None,
    )


@program()
def one_tuple_in_two_places():
    def fn(a, n):
        pair = (n, [n])
        return a * n, [pair, pair], {pair[0]: pair}

    return (
        fn,
        [lambda f, n=n: (lambda _, pairs, d: (pairs[0] is pairs[1], d[n] is pairs[0], pairs))(*f(x(1, 2), n)) for n in (3, 4)],
        None,
    )
