"""Lists, dictionaries, sets, deques and what is made of them.  See capture_programs.py."""

from __future__ import annotations

import array
import bisect
import collections
import copy
import functools
import heapq
import itertools
import operator
import types

import numpy as np
from registered_programs import Box, program, with_change, x

import tracejit as T


@program()
def dictionaries_of_pairs_from_outside():
    pairs = [["k", 2.0], ["m", 3.0]]

    def fn(a):
        d = dict(pairs)
        e = {}
        e.update(pairs)
        o = collections.OrderedDict(pairs)
        return a * d["k"] + e["m"] + o["k"]

    return fn, with_change(lambda: pairs[0].__setitem__(1, 5.0), lambda: pairs.append(["k", 7.0])), None


@program()
def update_with_pairs_and_keywords():
    pairs, table = [["k", 2.0]], {}

    def fn(a):
        table.update(pairs, z=1.0)
        return a * table["k"]

    return fn, with_change(lambda: pairs[0].__setitem__(1, 5.0)), lambda: table


@program()
def dictionary_of_generated_rows():
    rows = [["k", 2.0]]

    def fn(a):
        return a * dict(r for r in rows)["k"]

    return fn, with_change(lambda: rows[0].__setitem__(1, 5.0)), None


@program()
def rows_unpacked_by_starmap():
    rows = [[1.0, 2.0]]

    def fn(a):
        return a * sum(itertools.starmap(lambda p, q: p * q, rows))

    return fn, with_change(lambda: rows[0].__setitem__(1, 5.0)), None


@program()
def rows_zipped():
    rows = [[1.0, 2.0], [3.0, 4.0]]

    def fn(a):
        first, second = zip(*rows, strict=False)
        return a * sum(first) + second[1]

    return fn, with_change(lambda: rows[0].__setitem__(0, 5.0), lambda: rows.append([1.0, 1.0])), None


@program()
def comprehensions_inside_each_other():
    rows = [[1.0, 2.0], [3.0, 4.0]]

    def fn(a):
        t = [[row[i] for row in rows] for i in range(2)]
        flat = [v for row in rows for v in row if v > 1]
        return a * t[0][1] + sum(flat), t

    return fn, with_change(lambda: rows[0].__setitem__(0, 5.0)), None


@program()
def rows_chained():
    rows = [[1.0, 2.0], [3.0, 4.0]]

    def fn(a):
        return a * sum(itertools.chain.from_iterable(rows))

    return fn, with_change(lambda: rows[0].__setitem__(0, 5.0)), None


@program()
def counter_of_outside_words():
    words = ["p", "q", "p"]

    def fn(a):
        c = collections.Counter(words)
        return a * c["p"] + c["zz"], c.most_common(1), dict(c)

    return fn, with_change(lambda: words.append("q"), lambda: words.append("q")), None


@program()
def counter_from_outside_is_updated():
    c = collections.Counter()

    def fn(a):
        c["n"] += 1
        c.update(["p", "q"])
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: c


@program()
def counters_of_the_numbers_in_a_tensor():
    seen = collections.Counter()

    def fn(a):
        seen.update(a.tolist())
        own = collections.Counter()
        own.update(a.tolist())
        return len(seen), own[1.0], own[9.0], len(own), a * 2

    return fn, [lambda f, v=v: f(x(1, v)) for v in (2, 2, 2, 3, 3)], lambda: dict(seen)


@program()
def deque_made_inside():
    def fn(a):
        d = collections.deque([1.0, 2.0], maxlen=3)
        d.append(3.0)
        d.appendleft(0.0)
        d.rotate(1)
        d.extend([7.0])
        d.extendleft([9.0])
        return a * d[0] + d.popleft() + d.pop(), list(d), len(d), 7.0 in d, d.index(d[0]), d.count(1.0)

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def deque_from_outside_grows():
    d = collections.deque(maxlen=3)

    def fn(a):
        d.append(1.0)
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: list(d)


@program()
def views_of_a_dictionary():
    d = {"p": 1.0, "q": 2.0}

    def fn(a):
        ks, vs, its = d.keys(), d.values(), d.items()
        return (
            a * sum(vs),
            list(ks),
            list(its),
            "p" in ks,
            2.0 in vs,
            ("q", 2.0) in its,
            len(its),
            sorted(ks | {"z"}),
            ks & {"p"},
            {**d} == d,
        )

    return fn, with_change(lambda: d.update(r=3.0), lambda: d.pop("r")), None


@program()
def view_made_before_a_change():
    d = {"p": 1.0}

    def fn(a):
        ks = d.keys()
        before = len(ks)
        d["z"] = 5.0
        after = len(ks)
        del d["z"]
        return a * before + after, list(ks)

    return fn, [lambda f: f(x(1))] * 2, lambda: d


@program()
def dictionary_changed_while_iterated():
    d = {"p": 1.0, "q": 2.0}

    def fn(a):
        try:
            for k in d:
                d[k + "x"] = 1.0
        except RuntimeError as e:
            return a * len(d), str(e)

    return fn, [lambda f: f(x(1)), lambda f: (d.clear(), d.update(p=1.0))[0]], lambda: d


@program()
def list_changed_while_iterated():
    xs = [1.0, 2.0]

    def fn(a):
        for v in xs:
            if len(xs) < 5:
                xs.append(v * 2)
            a = a + v
        return a

    return fn, [lambda f: f(x(1)), lambda f: xs.__delitem__(slice(2, None))], lambda: xs


@program()
def list_used_up_by_a_loop():
    q = [3.0, 2.0, 1.0]

    def fn(a):
        while q:
            a = a * q.pop()
            if len(q) == 1:
                q.insert(0, 5.0)
                break
        return a

    return fn, [lambda f: f(x(1)), lambda f: q.__setitem__(slice(None), [3.0, 2.0, 1.0])], lambda: q


@program()
def keys_that_are_equal_but_not_the_same():
    d = {1: "int"}

    def fn(a, k):
        d[k] = d.get(k, "new") + "!"
        return a * len(d), d[1], k in d, dict([(1, 2), (True, 3), (1.0, 4)])

    return (
        fn,
        [lambda f, k=k: f(x(1), k) for k in (1, True, 1.0, 2)] + [lambda f: (d.clear(), d.update({1: "int"}))[0]],
        lambda: d,
    )


@program(reason="container")
def nan_as_a_key():
    nan = float("nan")
    d = {nan: 1.0}

    def fn(a, k):
        return a * d.get(k, 5.0), k in d, k in [k], k in [nan], len({k, k, nan})

    return fn, [lambda f: f(x(1), nan), lambda f: f(x(1), float("nan")), lambda f: f(x(1), nan)], None


@program()
def nan_in_lists():
    nan = float("nan")
    xs = [nan, 1.0]

    def fn(a):
        return a * 2, nan in xs, xs.index(nan), xs.count(nan), xs == [nan, 1.0], [float("nan")] == [float("nan")]

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def tuples_of_objects_as_keys():
    p, q = Box(), Box()
    d = {(p, 1): 2.0}

    def fn(a, o):
        return a * d.get((o, 1), 5.0)

    return fn, [lambda f: f(x(1), p), lambda f: f(x(1), q), lambda f: f(x(1), p)], None


@program()
def objects_as_keys():
    p, q = Box(), Box()
    d = {p: 2.0}

    def fn(a, o):
        d[o] = d.get(o, 0.0) + 1.0
        return a * d[o], o in d

    return fn, [lambda f: f(x(1), p), lambda f: f(x(1), q), lambda f: d.pop(q, None)], lambda: list(d.values())


@program()
def tensors_as_keys():
    w, v = x(1), x(2)
    d = {w: 2.0}

    def fn(a, t):
        return a * d.get(t, 5.0), t in d

    return fn, [lambda f: f(x(1), w), lambda f: f(x(1), v), lambda f: f(x(1), w)], None


@program()
def state_kept_by_tensor():
    w = x(1, 2)
    state = {}

    def fn(a):
        s = state.setdefault(w, {})
        if "step" not in s:
            s["step"] = 0
            s["m"] = T.zeros_like(w)
        s["step"] += 1
        s["m"].mul_(0.9).add_(a)
        return s["m"] * s["step"]

    return fn, [lambda f: f(x(1, 2))] * 3, lambda: list(state.values())


@program()
def frozen_sets_as_keys():
    d = {frozenset({1, 2}): 2.0}

    def fn(a, s):
        return a * d.get(frozenset(s), 5.0), frozenset(s) in {frozenset({1, 2})}

    return fn, [lambda f: f(x(1), {1, 2}), lambda f: f(x(1), {3})], None


@program()
def operations_of_sets():
    s, t = {1, 2, 3}, {3, 4}

    def fn(a):
        u = s | t
        i = s & t
        d = s - t
        e = s ^ t
        own = set(s)
        own.add(9)
        own.discard(1)
        own |= t
        own -= {4}
        own &= {2, 3, 9}
        return (
            a * len(u),
            sorted(u),
            sorted(i),
            sorted(d),
            sorted(e),
            sorted(own),
            s <= u,
            s.isdisjoint({7}),
            s < t,
            {1} <= s,
            s.union([5], (6,)),
            s == {3, 2, 1},
        )

    return fn, with_change(lambda: s.add(4), lambda: t.discard(3)), None


@program()
def set_from_outside_changed():
    s = set()

    def fn(a, n):
        fresh = n not in s
        s.add(n)
        return a * (2.0 if fresh else 3.0)

    return fn, [lambda f: f(x(1), 1), lambda f: f(x(1), 2), lambda f: f(x(1), 1), lambda f: s.clear()], lambda: sorted(s)


@program()
def set_from_outside_changed_in_place():
    s = {1}

    def fn(a):
        nonlocal s
        s |= {2}
        s.update([3], (4,))
        s.discard(1)
        return a * 2

    return fn, [lambda f: f(x(1)), lambda f: s.add(1)], lambda: sorted(s)


@program()
def groups_in_a_defaultdict():
    groups = collections.defaultdict(list)

    def fn(a, items):
        groups.clear()
        for v in items:
            groups[v % 2].append(v)
        return a * len(groups[0]), dict(groups), groups.get(7), 7 in groups

    return fn, [lambda f: f(x(1), [1, 2, 3]), lambda f: f(x(1), [5, 6])], lambda: groups


@program()
def subclass_of_defaultdict():
    class DD(collections.defaultdict):
        pass

    d = DD(int)

    def fn(a, k):
        d[k] += 1
        return a * 2

    return fn, [lambda f: f(x(1), "p"), lambda f: f(x(1), "q")], lambda: dict(d)


@program()
def setdefault_and_pop_with_defaults():
    d = {}

    def fn(a, k):
        d.setdefault(k, []).append(1)
        v = d.pop("none", 3.0)
        return a * v + len(d.setdefault("n", [0]))

    return fn, [lambda f: f(x(1), "p"), lambda f: f(x(1), "q")], lambda: d


@program()
def methods_of_lists_made_inside():
    xs = [3.0, 1.0, 2.0]

    def fn(a):
        own = xs.copy()
        own.insert(1, 9.0)
        own.remove(1.0)
        own.reverse()
        own.sort(reverse=True)
        own.extend((5.0,))
        last = own.pop()
        first = own.pop(0)
        own *= 2
        own += [0.0]
        own[1:2] = []
        return (
            a * last + first,
            own,
            xs + own,
            xs * 2,
            own.index(0.0),
            own.count(3.0),
            xs[::-1],
            xs[-2:],
            xs < own,
            [*xs, *own][2],
        )

    return fn, with_change(lambda: xs.append(4.0), lambda: xs.sort()), None


@program()
def methods_of_a_list_from_outside():
    xs = [3.0, 1.0, 2.0]

    def fn(a):
        xs.sort(key=lambda v: -v)
        xs.reverse()
        y = a * xs[0] + xs[-1]
        xs.insert(0, xs.pop())
        return y

    return fn, [lambda f: f(x(1))] * 2, lambda: xs


@program()
def slices_with_numbers_from_outside():
    xs = [1.0, 2.0, 3.0, 4.0]

    def fn(a, i, j):
        return a * sum(xs[i:j]), xs[i], xs[-j:], xs[::j], "abcdef"[i:j], (1, 2, 3)[:i], range(10)[i:j]

    return fn, [lambda f: f(x(1), 1, 3), lambda f: f(x(1), 0, 2), lambda f: f(x(1), 1, 3)], None


@program()
def array_of_numbers_from_outside():
    arr = array.array("d", [1.0, 2.0])

    def fn(a):
        return a * arr[0] + sum(arr) + len(arr)

    return fn, with_change(lambda: arr.append(5.0)), None


@program()
def array_of_numpy_from_outside():
    arr = np.array([1.0, 2.0])

    def fn(a):
        return a * float(arr[0]) + arr.shape[0] + float(arr.sum())

    return fn, with_change(lambda: arr.__setitem__(0, 5.0)), None


@program(reason="container")
def view_of_a_mapping_from_outside():
    d = {"k": 2.0}
    p = types.MappingProxyType(d)

    def fn(a):
        return a * p["k"] + len(p)

    return fn, with_change(lambda: d.update(k=5.0)), None


@program()
def extremes_of_a_dictionary():
    d = {"p": 1.0, "q": 3.0}

    def fn(a):
        best = max(d, key=d.get)
        low = min(d.items(), key=lambda kv: kv[1])
        return (
            a * d[best] + sum(d.values()),
            best,
            low,
            sorted(d, key=d.__getitem__, reverse=True),
            max(d.values(), default=0),
            min((v for v in d.values()), default=1),
        )

    return fn, with_change(lambda: d.update(p=9.0), lambda: d.pop("q")), None


@program()
def heaps_and_ordered_lists():
    def fn(a, items):
        heap = []
        for v in items:
            heapq.heappush(heap, v)
        heapq.heapify(items2 := list(items))
        bisect.insort(out := [1.0, 4.0], 3.0)
        return (
            a * heapq.heappop(heap) + bisect.bisect_left(out, 3.0),
            heapq.nlargest(2, items),
            heapq.nsmallest(1, items),
            out,
            items2[0],
            bisect.bisect(out, 3.5),
        )

    return fn, [lambda f: f(x(1), [3.0, 1.0, 2.0]), lambda f: f(x(1), [5.0, 7.0])], None


@program(reason="unknown_call")
def order_by_a_comparison():
    def fn(a, items):
        return a * sorted(items, key=functools.cmp_to_key(lambda p, q: q - p))[0]

    return fn, [lambda f: f(x(1), [3.0, 1.0, 2.0]), lambda f: f(x(1), [5.0, 7.0])], None


@program()
def getters_of_items_attributes_and_methods():
    rows = [{"k": 2.0, "n": (1, 2)}, {"k": 1.0, "n": (3, 4)}]
    boxes = [Box(k=3.0, inner=Box(m=4.0)), Box(k=1.0, inner=Box(m=2.0))]

    def fn(a):
        r = sorted(rows, key=operator.itemgetter("k"))[0]
        b = max(boxes, key=operator.attrgetter("k"))
        m = list(map(operator.attrgetter("inner.m", "k"), boxes))
        u = list(map(operator.methodcaller("upper"), ["p"]))
        return a * r["k"] + b.k, m, u, operator.itemgetter(0, 1)((5, 6))

    return fn, with_change(lambda: rows[0].update(k=0.5), lambda: setattr(boxes[1], "k", 9.0)), None


@program()
def functions_of_itertools():
    def fn(a, n):
        p = list(itertools.islice(itertools.count(n), 3))
        q = list(itertools.accumulate([1, 2, 3]))
        r = list(itertools.pairwise(p))
        s = list(itertools.product([1, 2], "ab"))
        t = list(itertools.combinations([1, 2, 3], 2))
        u = list(itertools.permutations([1, 2]))
        v = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2], key=lambda v: v)]
        w = list(itertools.zip_longest([1], [2, 3], fillvalue=0))
        y = list(itertools.takewhile(lambda v: v < 3, p))
        z = list(itertools.chain([1], [2]))
        c = list(itertools.islice(itertools.cycle([1, 2]), 3))
        d = list(itertools.repeat(5, 2))
        e = list(itertools.compress([1, 2], [0, 1]))
        g = list(itertools.dropwhile(lambda v: v < 4, p))
        h = list(itertools.filterfalse(lambda v: v % 2, p))
        i = list(itertools.starmap(pow, [(2, 3)]))
        return a * sum(p), q, r, s, t, u, v, w, y, z, c, d, e, g, h, i

    return fn, [lambda f: f(x(1), 2), lambda f: f(x(1), 3)], None


@program(reason="unknown_call")
def two_iterators_of_one():
    def fn(a):
        p, q = itertools.tee([1.0, 2.0])
        return a * next(p) + sum(q) + next(p)

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def zipped_enumerated_reversed():
    xs, ys = [1.0, 2.0], [3.0, 4.0]

    def fn(a):
        for i, (p, q) in enumerate(zip(xs, ys, strict=True), start=1):
            a = a * p + q * i
        for v in reversed(xs):
            a = a - v
        return a, dict(zip("pq", xs, strict=False)), list(zip(xs, itertools.count(), strict=False))

    return fn, with_change(lambda: xs.reverse(), lambda: ys.__setitem__(0, 9.0)), None


@program()
def copies_of_containers():
    inner = [1.0]
    outer = {"in": inner, "k": 2.0}

    def fn(a):
        s, d = copy.copy(outer), copy.deepcopy(outer)
        s["in"].append(5.0)
        d["in"].append(7.0)
        y = a * s["k"] + len(inner) + len(d["in"])
        inner.pop()
        return y, s["in"] is inner, d["in"] is inner

    return fn, with_change(lambda: outer.update(k=5.0)), lambda: outer


@program()
def deep_copies_of_containers_of_collections():
    inner, row = [1.0], x(2)
    ordered = collections.OrderedDict(b=inner, a=row, again=inner)
    groups = collections.defaultdict(list, p=[2.0])
    last = collections.deque([row, 3.0], maxlen=3)

    def fn(a):
        o, g, d = copy.deepcopy(ordered), copy.deepcopy(groups), copy.deepcopy(last)
        o["b"].append(5.0)
        o.move_to_end("b")
        g["q"].append(a)
        d.extend([a * 2, 4.0])
        shallow = copy.copy(ordered)
        return list(o), o["again"] is o["b"], o["a"] is row, shallow["a"] is row, dict(g), list(d), d.maxlen, len(inner)

    changes = [lambda: inner.append(7.0), lambda: ordered.update(c=1.0), lambda: last.append(2.0), lambda: groups.pop("p")]
    return fn, with_change(*changes), lambda: (ordered, groups, last)


@program()
def ordered_dictionary_with_attributes_and_itself_inside():
    ordered = collections.OrderedDict(a=[1.0])
    ordered.note, ordered["self"] = {"k": 2.0}, ordered

    def fn(a):
        mine = copy.deepcopy(ordered)
        mine.note["k"] += 1
        return a * mine.note["k"], mine["self"] is mine, mine["a"] is ordered["a"], ordered.note["k"]

    return (
        fn,
        with_change(lambda: ordered.note.update(k=5.0), lambda: delattr(ordered, "note") or setattr(ordered, "note", {"k": 1.0})),
        None,
    )


@program()
def groups_in_a_defaultdict_of_the_call():
    def fn(a, items):
        groups, counts = collections.defaultdict(list), collections.defaultdict(int)
        for v in items:
            groups[v % 2].append(a * v)
            counts[v % 3] += 1
        try:
            collections.defaultdict(None)["p"]
        except KeyError as error:
            return {k: sum(v) for k, v in groups.items()}, dict(counts), error.args, groups.get(7), 7 in groups

    return fn, [lambda f: f(x(1), [1, 2, 3]), lambda f: f(x(1), [5, 6])], None


@program()
def copies_of_objects():
    box = Box(k=2.0, items=[1.0])

    def fn(a):
        c, d = copy.copy(box), copy.deepcopy(box)
        c.k += 1
        d.items.append(3.0)
        return a * c.k + len(d.items), c.items is box.items

    return fn, with_change(lambda: setattr(box, "k", 5.0)), lambda: box


@program()
def lists_made_by_map():
    rows = [[1.0, 2.0], [3.0]]

    def fn(a):
        rows2 = list(map(list, rows))
        return a * rows2[0][0] + len(rows2[1])

    def change():
        rows[0][0] += 1
        rows[1].append(1.0)

    return fn, with_change(change), None


@program()
def elements_filtered_by_their_truth():
    rows = [[1.0], []]

    def fn(a):
        return a * len(list(filter(None, rows)))

    return fn, with_change(lambda: rows[1].append(1.0)), None


@program()
def elements_filtered_by_bool():
    rows = [[1.0], []]

    def fn(a):
        return a * len(list(filter(bool, rows)))

    return fn, with_change(lambda: rows[1].append(1.0)), None


@program()
def sort_keys_that_look_into_elements():
    rows = [[3.0, 2.0], [1.0]]

    def fn(a):
        return a * sorted(rows, key=tuple)[0][0]

    return fn, with_change(lambda: rows[1].insert(0, 7.0)), None


@program()
def selectors_that_are_lists():
    rows = [[1.0], []]

    def fn(a):
        return a * sum(itertools.compress([1.0, 2.0], rows))

    return fn, with_change(lambda: rows[1].append(1.0)), None


@program()
def own_set_without_outside_elements():
    other = {1, 2}

    def fn(a):
        s = {1, 2, 3, 4}
        s.difference_update(other)
        return a * len(s)

    return fn, with_change(lambda: other.add(3)), None


@program()
def own_set_with_outside_elements():
    other = [1, 2]

    def fn(a):
        s = {1, 2, 3, 4}
        s.intersection_update(other)
        return a * len(s)

    return fn, with_change(lambda: other.append(3)), None


@program()
def element_removed_by_its_content():
    p, q = [1.0], [2.0]

    def fn(a):
        rows = [p, q]
        rows.remove([2.0])
        return a * rows[0][0], len(rows)

    def change():
        p[0] = 2.0

    return fn, with_change(change), None


@program()
def element_found_by_its_content():
    p, q = [1.0], [2.0]

    def fn(a):
        return a * [p, q].index([2.0]), (p, q).count([2.0])

    def change():
        p[0] = 2.0

    return fn, with_change(change), None


@program()
def defaultdict_gets_a_key_by_reading():
    d = collections.defaultdict(float)

    def fn(a, k):
        return a * d[k]

    return fn, [lambda f: f(x(1), 0.5), lambda f: (d.clear(), f(x(1), 0.5))[1]], lambda: d


@program()
def keys_in_a_defaultdict_that_formats_read():
    d = collections.defaultdict(int, a=1)

    def fn(a):
        return a * 2, "%(a)s" % d, "{a}".format_map(d), "a".translate(d)

    d[97] = "b"
    return fn, with_change(lambda: d.update(a=5)), lambda: d


@program()
def floats_as_keys():
    d = {0.5: 2.0, 1.5: 3.0}

    def fn(a, k):
        d[k] = d.get(k, 0.0) + 1.0
        return a * d[k]

    return fn, [lambda f: f(x(1), 0.5), lambda f: f(x(1), 2.5)], lambda: d


@program()
def equality_of_elements_appears():
    class P:
        pass

    p, q = P(), P()

    def fn(a):
        return a * (2.0 if p in [q] else 3.0)

    return fn, with_change(lambda: setattr(P, "__eq__", lambda s, o: True)), None


@program()
def views_as_sets():
    p, q = {"k": 1, "m": 2}, {"m": 3, "n": 4}

    def fn(a):
        return (
            a,
            sorted(p.keys() & q.keys()),
            sorted(p.keys() | q),
            sorted(p.items() - q.items()),
            p.keys() == {"k", "m"},
            p | q,
            {**q, **p},
            list(p | q),
            p == {"m": 2, "k": 1},
            p.keys() >= {"k"},
        )

    return fn, with_change(lambda: p.update(n=4), lambda: q.pop("m")), None


@program(reason="object_identity")
def sets_of_objects_in_order():
    p, q, r = Box(k=1.0), Box(k=2.0), Box(k=3.0)

    def fn(a, u, v):
        s = {u, v}
        return a * sum(b.k for b in s), len(s), u in s, len({u, u})

    return fn, [lambda f: f(x(1), p, q), lambda f: f(x(1), q, p), lambda f: f(x(1), r, p), lambda f: f(x(1), p, p)], None


@program()
def objects_told_apart_by_id():
    def fn(*ts):
        seen, out = set(), []
        for t in ts:
            if id(t) in seen:
                continue
            seen.add(id(t))
            out.append(t)
        return sum(out), len(out)

    t = x(1, 2)
    return fn, [lambda f: f(x(1, 2), x(3, 4)), lambda f: f(t, t), lambda f: f(x(1, 2), x(3, 4), x(5, 6))], None
