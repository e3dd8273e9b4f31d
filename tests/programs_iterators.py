"""Iterators and generators that are kept between calls, made inside, or given back.  See capture_programs.py."""

from __future__ import annotations

import collections
import itertools

from registered_programs import Box, program, with_change, x

import tracejit as T
from tracejit import nn


def steps(fn, count=3, observe=None):
    """`count` calls of f(x(1, 2))."""
    return fn, [lambda f: f(x(1, 2))] * count, observe


@program(reason="external_iterator")
def counter_of_itertools_kept():
    numbers = itertools.count(1)

    def fn(a):
        return a * next(numbers)

    return steps(fn)


@program(reason="external_iterator")
def cycle_kept():
    turns = itertools.cycle([1.0, 2.0, 3.0])

    def fn(a):
        return a * next(turns)

    return steps(fn, 4)


@program(reason="external_iterator")
def chain_kept_and_used_up():
    rest = itertools.chain([1, 2], (3,), {4: 0})

    def fn(a):
        return a * next(rest, 0)

    return steps(fn, 3)


@program(reason="external_iterator")
def slice_of_a_counter_kept():
    few = itertools.islice(itertools.count(), 1, None, 2)

    def fn(a):
        return a + next(few)

    return steps(fn)


@program(reason="external_iterator")
def list_iterator_kept():
    box = Box(it=iter([1.0, 2.0, 3.0, 4.0]))

    def fn(a):
        for v in box.it:
            return a * v
        return a

    return steps(fn)


@program(reason="external_iterator")
def dictionary_iterator_kept():
    table = {"a": 1.0, "b": 2.0}
    box = Box(it=iter(table.items()))

    def fn(a):
        key, value = next(box.it, ("end", 0.0))
        return a * value, key

    return steps(fn)


@program(reason="external_iterator")
def generator_kept():
    def numbers():
        n = 0
        while True:
            n += 1
            yield n

    g = numbers()

    def fn(a):
        return a * next(g)

    return steps(fn)


@program(reason="unknown_call")
def generator_kept_and_sent_to():
    def accumulate():
        total = 0.0
        while True:
            total += yield total

    g = accumulate()
    next(g)

    def fn(a):
        return a * g.send(2.0)

    return steps(fn)


@program(reason="external_iterator")
def generator_over_a_tensor_kept():
    def halves():
        value = x(8, 16)
        while True:
            value = value / 2
            yield value

    g = halves()

    def fn(a):
        return a + next(g)

    return steps(fn)


@program(reason="external_iterator")
def map_kept():
    m = map(lambda v: v * 2, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])

    def fn(a):
        return a * next(m)

    return steps(fn)


@program(reason="external_iterator")
def zip_kept_in_a_dictionary():
    d = {"z": zip(itertools.count(), itertools.count(10), strict=False)}

    def fn(a):
        p, q = next(d["z"])
        return a * p + q

    return steps(fn)


@program(reason="external_iterator")
def enumerate_kept_in_a_default():
    def fn(a, e=enumerate("abcdefghijkl")):  # noqa: B008
        i, c = next(e)
        return a * i, c

    return steps(fn)


@program(reason="external_iterator")
def reversed_kept_and_listed():
    box = Box(it=reversed([1, 2, 3]))

    def fn(a):
        return a * len(list(box.it))

    return steps(fn)


@program(reason="external_iterator")
def iterator_passed_as_an_argument():
    def fn(a, it):
        return a * sum(it)

    return fn, [lambda f: f(x(1, 2), iter([1, 2, 3])), lambda f: f(x(1, 2), iter([4, 5]))], None


@program(reason="external_iterator")
def generator_passed_as_an_argument():
    def fn(a, it):
        total = a
        for v in it:
            total = total + v
        return total

    return fn, [lambda f: f(x(1, 2), (v for v in [1, 2])), lambda f: f(x(1, 2), (v for v in [5, 6, 7]))], None


@program(reason="external_iterator")
def tee_kept():
    one, other = itertools.tee(iter(range(100)))

    def fn(a):
        return a * next(one) + next(other)

    return steps(fn)


@program(reason="external_iterator")
def groups_kept():
    box = Box(groups=itertools.groupby([1, 1, 2, 2, 2, 3]))

    def fn(a):
        key, members = next(box.groups, (0, ()))
        return a * key + len(list(members))

    return steps(fn)


@program(reason="external_iterator")
def iterator_kept_in_a_global_of_a_class():
    class Source:
        ids = itertools.count()

    class User:
        def __init__(self):
            self.id = next(Source.ids)

    def fn(a):
        return a * User().id

    return steps(fn)


@program(reason="unknown_call")
def bound_next_kept():
    fetch = itertools.count(3).__next__

    def fn(a):
        return a * fetch()

    return steps(fn)


@program()
def iterator_of_the_program_kept():
    class Down:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n <= 0:
                raise StopIteration
            self.n -= 1
            return self.n

    it = Down(7)

    def fn(a):
        return a * next(it, -1)

    return steps(fn, 3, lambda: it.n)


@program()
def iterator_of_the_program_in_a_loop_left_early():
    class Cursor:
        def __init__(self):
            self.at = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.at += 1
            return self.at

    cursor = Cursor()

    def fn(a):
        for v in cursor:
            a = a + v
            if v % 3 == 0:
                break
        return a

    return steps(fn, 3, lambda: cursor.at)


@program()
def iterables_made_inside_of_all_kinds():
    def fn(a, n):
        parts = [
            list(itertools.islice(itertools.count(2, 3), n)),
            list(itertools.chain([1], range(n))),
            list(itertools.accumulate(range(n), lambda p, q: p + 2 * q)),
            list(itertools.pairwise(range(n))),
            list(itertools.product("ab", range(n))),
            list(itertools.combinations(range(n), 2)),
            list(itertools.permutations(range(n), 2)),
            list(itertools.repeat(7, n)),
            list(itertools.zip_longest(range(n), "ab", fillvalue=None)),
            list(itertools.compress(range(n), itertools.cycle([1, 0]))),
            [(k, list(g)) for k, g in itertools.groupby(range(n), key=lambda v: v // 2)],
            list(itertools.takewhile(lambda v: v < 2, range(n))),
            list(itertools.dropwhile(lambda v: v < 2, range(n))),
            list(itertools.filterfalse(lambda v: v % 2, range(n))),
            list(itertools.starmap(lambda p, q: p * q, zip(range(n), range(n), strict=True))),
        ]
        return a * sum(map(len, parts)), parts

    return fn, [lambda f: f(x(1, 2), 3), lambda f: f(x(1, 2), 5)], None


@program(reason="unknown_call")
def tee_made_inside():
    def fn(a):
        one, other = itertools.tee([1, 2, 3])
        return a * sum(one) + sum(other)

    return steps(fn)


@program()
def cycle_made_inside():
    def fn(a, n):
        turns = itertools.cycle([a, a * 2])
        return sum(next(turns) for _ in range(n))

    return fn, [lambda f: f(x(1, 2), 3), lambda f: f(x(1, 2), 4)], None


@program()
def generator_made_inside_with_send_and_close():
    log = []

    def running():
        total = 0
        try:
            while True:
                value = yield total
                total = total + value
        finally:
            log.append("closed")

    def fn(a):
        g = running()
        next(g)
        r = [g.send(a), g.send(a * 2)]
        g.close()
        return r

    return steps(fn, 3, lambda: log)


@program()
def generator_that_delegates_and_returns():
    def inner(a):
        yield a
        yield a * 2
        return a * 3

    def outer(a):
        last = yield from inner(a)
        yield last

    def fn(a):
        return list(outer(a))

    return steps(fn)


@program()
def generator_reads_a_state_between_steps():
    box = Box(k=1.0)

    def parts(a):
        yield a * box.k
        yield a * box.k

    def fn(a):
        r = []
        for p in parts(a):
            r.append(p)
            box.k = box.k + 1
        return r

    return steps(fn, 3, lambda: box.k)


@program()
def recursive_generator():
    tree = {"v": 1.0, "c": [{"v": 2.0, "c": []}, {"v": 3.0, "c": [{"v": 4.0, "c": []}]}]}

    def walk(node):
        yield node["v"]
        for child in node["c"]:
            yield from walk(child)

    def fn(a):
        return a * sum(walk(tree))

    def grow(f):
        tree["c"].append({"v": 5.0, "c": []})
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), grow, lambda f: f(x(1, 2))], None


@program()
def iteration_over_views_of_an_outside_dictionary():
    d = {"p": 1.0, "q": 2.0}

    def fn(a):
        return a * sum(d.values()), list(d), list(d.items()), [k for k in d.keys() if k != "p"]

    def grow(f):
        d[f"k{len(d)}"] = 3.0
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), grow], None


@program()
def unpacking_of_an_outside_list_of_pairs():
    pairs = [(1.0, 2.0), (3.0, 4.0)]

    def fn(a):
        total = a
        for p, q in pairs:
            total = total * p + q
        (m, n), *rest = pairs
        return total, m, n, len(rest)

    def change(f):
        pairs.append((1.0, len(pairs)))
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), change], None


@program()
def iterating_a_tensor_and_its_rows():
    def fn(a):
        rows = list(a)
        return [r * i for i, r in enumerate(rows)], sum(v for row in a for v in row), [len(r) for r in zip(*a, strict=True)]

    return fn, [lambda f: f(T.ones(2, 3)), lambda f: f(T.ones(3, 3))], None


@program()
def sum_min_max_over_generators():
    weights = [3.0, 1.0, 2.0]

    def fn(a):
        return (
            a * sum(w for w in weights),
            min(w for w in weights),
            max((w, i) for i, w in enumerate(weights)),
            sorted((w for w in weights), reverse=True),
            any(w > 2 for w in weights),
            all(w > 0 for w in weights),
        )

    def change(f):
        weights[0] += 1.0
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), change], None


@program()
def deque_rotated_outside_and_read():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def fn(a):
        return a * d[0] + d[-1]

    def turn(f):
        d.rotate(1)
        return f(x(1, 2))

    return fn, [lambda f: f(x(1, 2)), turn, turn], lambda: list(d)


@program()
def deque_rotated_inside():
    d = collections.deque([1.0, 2.0, 3.0])

    def fn(a):
        d.rotate(1)
        return a * d[0]

    return steps(fn, 4, lambda: list(d))


@program()
def queue_of_tensors():
    queue = collections.deque(maxlen=2)

    def fn(a):
        queue.append(a * 2)
        return sum(queue)

    return fn, [lambda f, i=i: f(x(i, 1)) for i in range(4)], lambda: [t.tolist() for t in queue]


@program("implicit_python")
def backwards_where_asking_for_the_length_shows():
    log = []

    class Steps:
        def __len__(self):
            log.append("length")
            return 2

        def __getitem__(self, k):
            return k

    def fn(a):
        return a * 2, [k for k in reversed(Steps())]

    return fn, [lambda f: f(x(1))] * 3, lambda: log


@program()
def layers_backwards():
    T.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def fn(a):
        for layer in reversed(layers):
            a = layer(a).tanh()
        return a

    return fn, with_change(lambda: layers.append(nn.Linear(2, 2))), None
