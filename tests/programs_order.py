"""Order: of evaluation, of stores, of deletions, of what short circuits skip.  See capture_programs.py."""

from __future__ import annotations

import types

from registered_programs import LOG, fresh, program, x

import tracejit as T
from tracejit import nn


def note(value, *rest):
    LOG.append(value)
    return rest[0] if rest else value


class Node:
    def __init__(self, value, following=None):
        self.value = value
        self.next = following


@program()
def unpacking_stores_from_left_to_right():
    def fn(a):
        items, i = [0, 0, 0], 0
        items[i], i = 5, 1
        i, items[i] = 2, 7
        return a * items[0] + items[2], items, i

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def reversal_of_a_linked_list():
    def fn(a):
        current, previous = Node(1.0, Node(2.0, Node(3.0))), None
        while current is not None:
            current.next, previous, current = previous, current, current.next
        values = []
        while previous is not None:
            values.append(previous.value)
            previous = previous.next
        return a * values[0], values

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def swap_of_items_of_outside_lists():
    items = [1.0, 2.0, 3.0]

    def fn(a, i, j):
        items[i], items[j] = items[j], items[i]
        return a * items[0]

    def restore(f):
        items[:] = [1.0, 2.0, 3.0]

    return fn, [lambda f: f(x(1), 0, 2), lambda f: f(x(1), 0, 1), restore], lambda: items


@program()
def swap_of_attributes_of_two_objects():
    left, right = types.SimpleNamespace(k=1.0), types.SimpleNamespace(k=2.0)

    def fn(a):
        left.k, right.k = right.k, left.k
        return a * left.k - right.k

    return fn, [lambda f: f(x(1))] * 3, lambda: (left, right)


@program()
def nested_targets_with_places_in_them():
    box = types.SimpleNamespace(rows=[[0, 0], [0, 0]])

    def fn(a):
        i = 1
        (i, box.rows[i][0]), [box.first, *box.rows[0]] = (0, 4.0), (5.0, 6.0, 7.0)
        return a * box.rows[0][0] + box.first, i

    return fn, [lambda f: f(x(1))] * 2, lambda: box


@program()
def starred_targets_that_are_places():
    box, table = types.SimpleNamespace(), {}

    def fn(a, values):
        first, *box.rest = values
        *table["front"], last = values
        return a * first * last

    return fn, [lambda f: f(x(1), [1.0, 2.0, 3.0]), lambda f: f(x(1), (4.0, 5.0))], lambda: (box, table)


@program()
def chained_assignment_stores_from_left_to_right():
    table = {}

    def fn(a):
        i = table[note("first", 0)] = i2 = table[note("second", 1)] = 3.0
        return a * i + i2, list(table)

    return fn, [fresh, lambda f: f(x(1)), lambda f: table.clear()], lambda: (table, LOG)


@program()
def assignment_to_an_item_chosen_by_the_same_statement():
    def fn(a):
        items = [0, 1, 2]
        i = items[items[1]] = 7
        return a * i, items

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def augmented_assignment_reads_before_the_right_side():
    box = types.SimpleNamespace(k=1.0)

    def change():
        box.k = 100.0
        return 2.0

    def fn(a):
        box.k += change()
        return a * box.k

    return fn, [lambda f: setattr(box, "k", 1.0), lambda f: f(x(1))], lambda: box.k


@program()
def augmented_assignment_evaluates_its_place_once():
    items, counter = [1.0, 2.0, 3.0], [0]

    def place():
        counter[0] += 1
        return counter[0] % 3

    def fn(a):
        items[place()] += 10.0
        return a * items[0]

    def restore(f):
        items[:], counter[:] = [1.0, 2.0, 3.0], [0]

    return fn, [lambda f: f(x(1)), restore], lambda: (items, counter)


@program()
def augmented_assignment_of_a_list_behind_an_attribute():
    box = types.SimpleNamespace(items=[1.0])
    alias = box.items

    def fn(a):
        box.items += [2.0]
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: (box.items, alias is box.items)


@program()
def augmented_assignment_of_a_tuple_behind_an_attribute():
    box = types.SimpleNamespace(items=(1.0,))
    alias = box.items

    def fn(a):
        box.items += (2.0,)
        return a * box.items[-1] + len(box.items)

    def restore(f):
        box.items = alias

    return fn, [lambda f: f(x(1)), restore], lambda: (box.items, alias)


@program()
def augmented_item_of_a_tuple_changes_and_raises():
    rows = ([1.0],)

    def fn(a):
        try:
            rows[0] += [2.0]
        except TypeError as error:
            return a * rows[0][0], str(error)

    return fn, [lambda f: f(x(1))] * 2, lambda: rows


@program()
def all_augmented_operators():
    def fn(a, n, k):
        n += 3
        n -= 1
        n *= 4
        n //= 3
        n %= 7
        n <<= 2
        n >>= 1
        n &= 14
        n |= 1
        n ^= 2
        k /= 2
        k **= 2
        return a * n * k, n, k

    return fn, [lambda f, n=n: f(x(1), n, n + 0.5) for n in (1, 2, 5)], None


@program()
def operands_from_left_to_right():
    def fn(a):
        y = note(1, 2.0) + note(2, 3.0) * note(3, 4.0) - note(4, 1.0)
        z = [note(5), note(6)][note(7, 0)]
        return a * y, z, {note("k"): note("v"), **{note("k2"): note("v2")}}, note(8) < note(9) < note(10)

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def arguments_from_left_to_right():
    def take(*args, **kwargs):
        return args, kwargs

    def fn(a):
        return a * 2, note("callee", take)(note(1), *note(2, [5]), note(3), k=note(4), **note(5, {"m": 6}), z=note(7))

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def right_side_before_the_target():
    table = {}

    def fn(a):
        note("owner", table)[note("key")] = note("value")
        note("box", box).attribute = note("value 2")
        return a * len(table)

    box = types.SimpleNamespace()
    return fn, [fresh, lambda f: f(x(1))], lambda: (LOG, table, box)


@program()
def short_circuits_skip_effects():
    def fn(a, p, q):
        one = note("p", p) and note("q", q)
        two = note("p", p) or note("q", q)
        three = note("yes", 1.0) if note("test", p) else note("no", 2.0)
        four = 1 < note("c1", 0) < note("c2", 5)
        return a * three, one, two, four

    return fn, [fresh, *(lambda f, p=p, q=q: f(x(1), p, q) for p in (True, False) for q in (1.0, 0))], lambda: LOG


@program()
def short_circuits_keep_the_operand():
    def fn(a, name, items, table):
        return a * 2, name or "default", items and items[0], table.get("k") or [], not items, name and items and table

    return (
        fn,
        [lambda f: f(x(1), "", [], {}), lambda f: f(x(1), "n", [5], {"k": 0}), lambda f: f(x(1), None, [0], {"k": [1]})],
        None,
    )


@program()
def chained_comparison_evaluates_the_middle_once():
    def fn(a, n):
        return a * 2, 0 < note("m", n) <= 5, 0 < n < 3 < 4, n == n == 2

    return fn, [fresh, *(lambda f, n=n: f(x(1), n) for n in (2, 7, -1))], lambda: LOG


@program()
def conditional_expressions_inside_each_other():
    def fn(a, n):
        return a * (1.0 if n < 2 else 2.0 if n < 4 else 3.0), "lo" if n < 2 else "mid" if n < 4 else "hi"

    return fn, [lambda f, n=n: f(x(1), n) for n in (1, 3, 5)], None


@program()
def walrus_in_conditions_and_comprehensions():
    def fn(a, items):
        if (n := len(items)) > 2:
            a = a * n
        kept = [half for v in items if (half := v / 2) > 1]
        while (n := n - 1) > 0:
            a = a + n
        return a, kept, half, n

    return fn, [lambda f: f(x(1), [1.0, 4.0, 6.0]), lambda f: f(x(1), [8.0])], None


@program()
def walrus_keeps_the_last_value_of_any():
    def fn(a, items):
        if any((found := v) > 2 for v in items):
            return a * found
        return a - found

    return fn, [lambda f: f(x(1), [1.0, 3.0, 5.0]), lambda f: f(x(1), [1.0, 2.0])], None


@program()
def deletions_in_order():
    table, box = {"p": 1.0, "q": 2.0, "r": 3.0}, types.SimpleNamespace(k=1.0)

    def fn(a):
        local = 5.0
        y = a * table["p"] * local
        del table["p"], box.k, local
        try:
            return y, local  # noqa: F821
        except UnboundLocalError:
            return y, list(table), hasattr(box, "k")

    def again(f):
        table.update(p=2.0)
        box.k = 4.0

    return fn, [lambda f: f(x(1)), again], lambda: (table, box)


@program()
def deletion_of_slices_and_items():
    items = [1.0, 2.0, 3.0, 4.0, 5.0]

    def fn(a):
        y = a * items[1]
        del items[1:3], items[0]
        items.extend([6.0, 7.0, 8.0])
        return y, len(items)

    return fn, [lambda f: f(x(1))] * 2, lambda: items


@program()
def slice_assignment_outside_and_inside():
    items = [1.0, 2.0, 3.0]

    def fn(a, n):
        own = [0.0] * 4
        own[1:3] = [5.0]
        own[::2] = (7.0, 8.0)
        items[:n] = [v + 1 for v in items[n:]]
        items[len(items) :] = [9.0]
        return a * own[0], own, items[-1]

    def restore(f):
        items[:] = [1.0, 2.0, 3.0]

    return fn, [lambda f: f(x(1), 1), restore, lambda f: f(x(1), 2), restore], lambda: items


@program()
def loop_variables_that_are_places():
    table, box = {}, types.SimpleNamespace()

    def fn(a):
        for table["last"] in (1.0, 2.0):
            a = a * table["last"]
        for box.i, (box.p, _) in enumerate([(3.0, 0), (4.0, 0)]):
            a = a + box.p * box.i
        return a

    return fn, [lambda f: f(x(1))] * 2, lambda: (table, box)


@program()
def loop_target_item_depends_on_the_loop_variable():
    def fn(a):
        items = [0, 0, 0]
        for i, items[i] in [(0, 5.0), (2, 6.0), (1, 7.0)]:  # noqa: B007
            pass
        return a * items[0] - items[1], items, i

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def loops_with_else_break_and_continue():
    def fn(a, n):
        for i in range(6):
            if i == 1:
                continue
            if i == n:
                break
            a = a + i
        else:
            a = a * 100.0
        while n > 0:
            n -= 2
            if n == 1:
                break
        else:
            a = a - 1
        return a, i, n

    return fn, [lambda f, n=n: f(x(1), n) for n in (3, 4, 9)], None


@program()
def default_values_are_evaluated_once_by_each_definition():
    def fn(a):
        def scale(v, k=note("k", 2.0), *, m=note("m", 3.0)):  # noqa: B008
            return v * k + m

        return scale(a) + scale(a, 1.0, m=0.0)

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def decorators_from_the_inside_out():
    def plus(n):
        note(f"made {n}")

        def decorate(function):
            note(f"applied {n}")
            return lambda *args: function(*args) + n

        return decorate

    def fn(a):
        @plus(1.0)
        @plus(2.0)
        def inner(v):
            return v * 2

        return inner(a)

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def assert_messages_are_evaluated_only_if_needed():
    def fn(a, n):
        try:
            assert n > note("test", 2), note("message", f"n is {n}")
        except AssertionError as error:
            return a * n, error.args
        return a

    return fn, [fresh, lambda f: f(x(1), 3), lambda f: f(x(1), 1)], lambda: LOG


@program()
def text_parts_from_left_to_right():
    def fn(a, n):
        return a * n, f"{note('p')}{n:{note('w', 5)}}{note('q')!r}|{n=}|{n!s:>4}"

    return fn, [fresh, lambda f: f(x(1), 3), lambda f: f(x(1), 4)], lambda: LOG


@program()
def comprehension_clauses_in_order():
    def fn(a):
        pairs = [note((i, j)) for i in note("outer", [0, 1]) if note(("if", i), True) for j in note(("inner", i), [i, 5])]
        table = {note(("key", i)): note(("value", i)) for i in range(2)}
        return a * len(pairs), pairs, table, {note(i % 2) for i in range(3)}

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def first_iterable_of_a_generator_is_evaluated_at_once():
    def fn(a):
        made = (note(("step", v)) for v in note("source", [1, 2]))
        note("made")
        return a * 2, list(made)

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def names_of_comprehensions_hide_globals():
    def fn(a):
        squares = [LOG * LOG for LOG in (1.0, 2.0)]
        return a * squares[1], len(LOG)

    def grow(f):
        LOG.append(1)
        return f(x(1))

    return fn, [fresh, lambda f: f(x(1)), grow], None


@program()
def names_of_comprehensions_hide_closures():
    k = 5.0

    def fn(a):
        return a * sum(k for k in (1.0, 2.0)) * k, [k for k in range(2)], k

    def change(f):
        nonlocal k
        k += 1
        return f(x(1))

    return fn, [lambda f: f(x(1)), change], None


@program()
def match_on_sequences_and_mappings():
    def fn(a, command):
        match command:
            case ["scale", k]:
                return a * k
            case ["shift", k, *rest] if rest:
                return a + k + len(rest)
            case {"op": "neg", **options}:
                return -a, options
            case (1 | 2) as n:
                return a - n
            case "none" | "nothing":
                return a
            case None:
                return a / 2
            case _:
                return a * 0

    calls = (["scale", 2.0], ["shift", 1.0, 5], {"op": "neg", "k": 1}, 2, None, "nothing", ["scale", 3.0], ["shift", 1.0])
    return fn, [lambda f, c=c: f(x(1), c) for c in calls], None


@program()
def import_inside_with_another_name():
    def fn(a):
        import math as m
        import os.path
        from operator import add as plus
        from operator import mul

        return mul(a, m.floor(2.5)) + plus(1, m.pi), os.path.basename("p/q")

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def returns_override_each_other_in_finally():
    def fn(a, how):
        for i in range(3):
            try:
                if how == "return":
                    return a * i
                if how == "break":
                    break
                if how == "raise":
                    raise ValueError(i)
            finally:
                note((how, i))
                if i == 1:
                    return a + 100.0  # noqa: B012
                if how != "break":
                    continue  # noqa: B012
        return a - 1

    return fn, [fresh, *(lambda f, how=how: f(x(1), how) for how in ("return", "break", "raise", "none"))], lambda: LOG


@program()
def variables_annotated_but_not_set():
    def fn(a):
        k: float
        m: undefined_name = 2.0  # noqa: F821
        box = types.SimpleNamespace()
        box.n: int = 3
        try:
            return a * k  # noqa: F821
        except UnboundLocalError:
            return a * m * box.n

    return fn, [lambda f: f(x(1))] * 2, None


@program()
def tensors_unpacked_and_stored():
    box = types.SimpleNamespace()

    def fn(a):
        box.first, (second, *box.rest) = a
        p, q = a.sum(0)
        return second * box.first + p - q

    return fn, [lambda f: f(T.arange(4.0).reshape(2, 2))] * 2, lambda: box


class Noted:
    """An iterable of the program: each step is noted, and it may raise when it is asked for an iterator."""

    def __init__(self, log, values, error=None):
        self.log, self.values, self.error = log, values, error

    def __iter__(self):
        self.log.append("asked")
        if self.error is not None:
            raise self.error
        for value in self.values:
            self.log.append(type(value).__name__)
            yield value


@program()
def iterables_of_the_program_in_nested_targets():
    log, box = [], types.SimpleNamespace(at=None)

    def fn(a):
        for box.at, (b, (c, *d)) in [(1, (2, Noted(log, [3.0, 4.0, 5.0]))), (7, Noted(log, [1, Noted(log, [6.0])]))]:
            a = a * box.at + b + c
            log.append(tuple(d))
        (_, (b, c)), *_ = enumerate([Noted(log, [1, 2])])
        return [a * b + c * e for _, (b, e) in zip("ab", [(1, 2), Noted(log, [3.0, 4.0])])]

    return fn, [lambda f: f(x(1))] * 3, lambda: (log, box.at)


@program()
def nested_targets_take_what_stands_before_what_fails():
    log, box = [], types.SimpleNamespace(at=None)
    items = [1, [2.0]]

    def fn(a):
        for wrong in ((1, (3,)), (2, 5), (4, Noted(log, [], KeyError("no"))), (6, Noted(log, [1, 2, 3]))):
            try:
                for box.at, (b, c) in [wrong]:
                    a = a + b + c
            except (KeyError, TypeError, ValueError) as error:
                log.append((type(error).__name__, str(error), box.at))
        for i, rest in enumerate([items]):
            for _, (j, last) in [(i, rest)]:
                last.append(j)
        return a + len(items[1]), last is items[1]

    return fn, [lambda f: f(x(1))] * 3, lambda: (log, items)


@program()
def module_lists_in_nested_targets():
    layers = nn.ModuleList([nn.ModuleList([nn.ReLU(), nn.Tanh()]), nn.ModuleList([nn.Tanh(), nn.Identity()])])

    def fn(a):
        for i, (first, second) in enumerate(layers):
            a = second(first(a)) + i
        for (first, second), scale in zip(layers, (1.0, 2.0)):
            a = first(second(a)) * scale
        return a

    return fn, [lambda f: f(x(1)), lambda f: f(x(2)), lambda f: f(x(3))], None


@program()
def nested_targets_that_take_numbers_from_outside():
    items, table = [1, (2, 3)], {"q": [4.0, (5, [6.0, 7.0])]}

    def fn(a):
        k, (b, c) = items
        for name, (d, (e, [*rest])) in table.items():
            a = a * d + e + len(rest) + len(name)
        return a * b + c, [m + n for m, (n, _) in [items]], k

    def other(f):
        items[0], table["q"][0] = 8, 9.0
        return f(x(2))

    return fn, [lambda f: f(x(1)), lambda f: f(x(1)), other, lambda f: f(x(3))], None
