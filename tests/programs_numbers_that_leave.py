"""Where numbers that leave the tensors are kept, what raises, and what is left of a recording.  See capture_programs.py."""

from __future__ import annotations

import collections
import math
import sys

from registered_programs import Box, program, x

import tracejit as T

nan, inf = float("nan"), float("inf")


def each(*values):
    return [lambda f, v=v: f(x(*v)) for v in values]


class Failure(Exception):
    def __init__(self, value):
        self.parts, self.nested = [value, {"k": value}], ((value,), [value])
        super().__init__("no")


class Meter:
    def __init__(self):
        self.total, self.history = 0.0, []

    def update(self, value):
        self.total += value
        self.history.append(value)


class Slots:
    __slots__ = ("list", "tuple")


class Listed(list):
    pass


total = 0.0


@program()
def added_to_a_global():
    def fn(a):
        global total
        total = total + a[1].item()
        return a * total

    def start(f):
        global total
        total = 0.0

    return fn, [start, *each((1, 2), (3, 4))], lambda: total


@program()
def number_in_a_float32_product_after_arithmetic():
    def fn(a):
        v = a[0].item() / 3
        return a * v, a.double() + (v + 1), a / -v, a > abs(v)

    return fn, each((1, 2), (3, 4), (1e-40, 3e38), (nan, inf)), None


@program()
def methods_of_an_object_of_the_call_fill_its_list():
    def fn(a):
        meter = Meter()
        for part in a:
            meter.update(part.item())
        return meter, meter.history[-1] * 2

    return fn, each((1, 2), (3, 4)), None


@program()
def numbers_in_slots_subclasses_and_nested_containers():
    def fn(a):
        v = a[0].item()
        slots, listed, box = Slots(), Listed(), Box(kept={"k": [(v, [v])]})
        slots.list, slots.tuple = [v], (v,)
        listed.append(v)
        listed.more = [v]
        box.deeper = Box(list=[[v]])
        return box, slots.list, slots.tuple, list(listed), listed.more, slots

    def go(f, v):
        *found, slots = f(v)
        return found, type(slots.list[0]), type(slots.tuple[0])

    return fn, [lambda f: go(f, x(1, 2)), lambda f: go(f, x(3, 4))], None


@program()
def number_as_a_key_of_a_display():
    def fn(a):
        v = a[0].item()
        found = {v: 1, (v, 2): 3}
        return found, {k: 0 for k in found}, list(map(type, found)), list(map(type, {v}))

    return fn, each((1, 2), (1, 5)), None


@program()
def number_as_a_key_that_a_method_sets():
    def fn(a):
        v, found = a[0].item(), {}
        found.setdefault(v, []).append(v)
        found[v, 1] = v
        found.update({v + 1: 2})
        return found, list(map(type, found))

    return fn, each((1, 2), (1, 5)), None


@program()
def exponential_beyond_what_is_known_not_to_overflow():
    def fn(a):
        try:
            return math.exp(a[0].item() * 100)
        except OverflowError:
            return "too large"

    return fn, each((7.05, 0), (7.1, 0), (1, 0), (nan, 0), (inf, 0)), None


@program()
def square_roots_and_cosines_of_what_is_no_number():
    def fn(a):
        out = []
        for function in (math.sqrt, math.cos, math.log, math.floor, int):
            try:
                out.append(function(a[0].item()))
            except (ValueError, OverflowError) as error:
                out.append(str(error))
        return out

    return fn, each((nan, 0), (-1, 0), (inf, 0), (4, 0), (-inf, 0), (0, 0), (nan, 1)), None


@program()
def conversions_that_raise_one_error_or_another():
    def fn(a):
        try:
            return int(a[0].item())
        except OverflowError:
            return "infinite"
        except ValueError:
            return "no number"

    return fn, each((nan, 0), (inf, 0), (3, 0), (-inf, 0)), None


@program()
def numbers_stored_before_the_call_raises():
    log, box = [], Box()

    def fn(a):
        v = a[0].item()
        log.append(v)
        box.list, box.made = [v], Box(inner=[v])
        if v > 2:
            raise RuntimeError([v], {"k": v})
        return 1 / (v - 2)

    return fn, each((1, 0), (3, 0), (2, 0), (1, 5)), lambda: (log, box)


@program()
def errors_of_the_program_that_lead_to_numbers():
    def fn(a):
        v = a[0].item()
        if v > 2:
            raise Failure(v)
        return v

    def go(f, v):
        try:
            f(v)
        except Failure as error:
            return error.parts, error.nested

    return fn, [lambda f: go(f, x(1, 2)), lambda f: go(f, x(3, 2)), lambda f: go(f, x(4, 2))], None


@program(reason="unknown_call")
def recordings_that_stop_after_numbers_were_stored():
    log, box, queue = collections.deque(maxlen=2), Box(), collections.deque(maxlen=2)

    def fn(a):
        v = a[0].item()
        box.made, box.tuple = Box(list=[v], tuple=((v,), [v])), (v, [v])
        slots = Slots()
        slots.list = [v]
        local = collections.deque([v])
        local.append(v * 2)
        log.append([v, (v,)])
        queue.append(local)
        box.function = lambda q=v: (q, v)
        sys.getsizeof(print)
        box.slots, later = slots.list, []
        later.append(box.tuple)
        later += (v, (v,))
        box.later = [later, {"k": (v, (v,))}]
        return v, local, slots.list

    return fn, each((1, 2), (3, 4)), lambda: (log, box.made, box.tuple, box.slots, box.later, queue, box.function())


@program()
def numbers_before_and_after_a_change_in_place():
    def fn(a):
        b = a * 1
        first = b[0].item()
        b[0] = 7.0
        second = b[0].item()
        a.add_(1)
        return first, second, first - second, a[0].item(), b

    return fn, each((1, 2), (3, 4)), None


@program()
def numbers_of_reduced_and_integer_dtypes():
    def fn(a):
        out = [a.to(dtype)[0].item() for dtype in (T.float16, T.bfloat16, T.float64, T.uint8, T.int8, T.int64, T.bool)]
        return out, sum(out)

    return fn, each((1, 2), (3, 4), (0, 0), (100.7, 3)), None


@program()
def integers_that_outgrow_64_bits():
    box = Box(n=1)

    def fn(a):
        box.n = box.n * (int(a[0].item()) + 2**40)
        return box.n > 10**30, box.n % 7, (a.long() * 2**60)[0].item() * 4

    return fn, each((1, 2), (3, 4), (-7, 1)), lambda: box.n


Pair = collections.namedtuple("Pair", ["number", "kept"])


@program()
def named_tuples_of_numbers_and_of_lists_of_them():
    box = Box()

    def fn(a):
        v = a[0].item()
        box.pair = Pair((v, v + 1), [v * 2])
        box.second = Pair([v], {"k": v})
        return Pair(v, [v]), box.pair.number[0] + box.second.kept["k"]

    return fn, each((1, 2), (3, 4)), lambda: (box.pair, box.second)


@program(reason="unbuildable")
def functions_that_are_kept_with_numbers_in_their_defaults():
    box = Box()

    def fn(a):
        v = a[0].item()
        box.function = lambda q=v, *, r=(v, [v]): (q, r, v)
        return v

    return fn, each((1, 2), (3, 4)), lambda: box.function()


@program()
def what_is_no_number_is_found_by_its_identity():
    def fn(a):
        v, w = a[0].item(), a[1].item()
        pair, listed, queue = (v, w), [v, w], collections.deque([v])
        queue.append(w)
        return (
            v in pair, v in listed, v in queue, pair.count(v), listed.count(v), queue.count(v), pair.index(v), a[0].item() in pair,
            pair == (v, w), [v] == [a[0].item()], w not in pair, pair.index(w), (v, 1) in [(v, 1)],
        )  # fmt: skip

    return fn, each((1, 2), (nan, 1), (2, 2), (3, nan), (nan, nan)), None


@program()
def displays_in_displays():
    kept = {"log": []}

    def fn(a):
        v = a[0].item()
        record = {"loss": v, "parts": (v, [v, (v,)])}
        kept["log"].append(record)
        record["parts"][1].append(a[1].item())
        kept["last"], kept["pair"] = v, (v, (v + 1, [record["loss"]]))
        return record, (v, [(v, {"k": [v]})]), kept["log"][-1] is record

    return fn, each((1, 2), (3, 4), (nan, 1)), lambda: kept


@program()
def a_number_where_a_tensor_is_asked_for():
    def fn(a):
        try:
            return T.randint_like(a[0].item())
        except TypeError as error:
            return str(error)

    return fn, each((1, 2), (1, 4)), None


@program()
def numbers_in_what_functions_of_the_call_find_around_them():
    kept = {"n": 0}

    def fn(a):
        kept["n"] = 1
        first, found = a.argmax().item(), [a.sum().item()]
        parts = {"first": first, "more": [found]}

        def inner(last=found):
            return first, found, last

        def outer():
            return inner()[1][0] + parts["first"]

        return found, parts, outer(), [v for v in found if inner]

    return fn, each((1, 2), (4, 3), (5, 6), (1, 2)), lambda: kept


@program()
def sums_that_begin_with_numbers_from_outside():
    kept = collections.deque([0.1, 1e9], maxlen=3)

    def fn(a):
        a = a.double()
        kept.append(a.mean().item())
        total = sum([123456789.0, a.sum().item()])
        return a * sum([0.1, a.sum().item()]), a * (sum(kept) / len(kept)), a if total > 123456791.5 else -a

    return fn, [lambda f, v=v: f(x(1, v)) for v in (1, 2, 3)], lambda: list(kept)


@program()
def lists_of_elements_and_what_becomes_of_them():
    seen = []

    def fn(a):
        rows, other, flat = (a * T.ones(3, 1)).tolist(), (a * 2).long().tolist(), (a * 3).tolist()
        rows[0][1] = 5
        rows[1].reverse()
        seen.extend(other)
        flat.append(other[0])
        return (
            rows,
            rows[2] + rows[2],
            rows[2][1:],
            other[:1],
            flat,
            [*other, *other],
            (rows[2], rows[2]),
            [rows[2][1], rows[2][0]],
            a * 2,
        )

    return fn, each((1, 2, 3), (4, 5, -6), (0.5, 0, 1)), lambda: seen
