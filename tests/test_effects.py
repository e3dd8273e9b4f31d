"""What a call changes outside is changed again by a replay: in order, once, and only if nothing failed before."""

from __future__ import annotations

from capture_replay import Exit, Replayed, caller

import tracejit as T
from tracejit.capture import MISS, calling, record

LEVEL = 0


def replay(function, *args):
    """Record a call, then replay it; the replay must not miss."""
    recording, _ = record(function, args, {})
    assert recording.reason is None, recording.reason
    entry = recording.build_entry(calling(recording, caller(recording)))

    def again(*more):
        result = entry(more, {})
        assert result is not MISS and not isinstance(result, Exit)
        return result

    return again


class Thing:
    pass


def test_the_last_store_of_a_place_counts():
    thing = Thing()
    thing.n = 1

    def fn(a):
        thing.n = thing.n + 1
        thing.n = thing.n * 10
        return a

    again = replay(fn, T.ones(1))
    assert thing.n == 20
    again(T.ones(1))
    assert thing.n == 210


def test_a_store_is_seen_by_later_reads_of_the_same_call():
    thing = Thing()
    thing.k = 1.0

    def fn(a, s):
        thing.k = s + 1
        return a * thing.k * thing.__dict__["k"]

    again = replay(fn, T.ones(1), 1.0)
    assert again(T.ones(1), 2.0).tolist() == [9.0]
    assert thing.k == 3.0 and type(thing.k) is float


def test_dictionary_order_after_stores_and_deletions():
    d = {"a": 1, "b": 2}

    def fn(x):
        d["c"] = 3
        del d["a"]
        d["a"] = x
        d["c"] = 4
        return x

    def restore():
        d.clear()
        d.update({"a": 1, "b": 2})

    again = replay(fn, T.ones(1))
    expected = list(d)
    restore()
    again(T.ones(1))
    assert list(d) == expected == ["b", "c", "a"]
    assert d["c"] == 4


def test_list_methods_run_in_order():
    log = []

    def fn(x):
        log.append("first")
        log.extend([x, "second"])
        log.append([x * 2])
        return x

    again = replay(fn, T.ones(1))
    log.clear()
    again(T.ones(1))
    assert [type(v).__name__ for v in log] == ["str", "Tensor", "str", "list"]


def test_stored_containers_are_new_objects_each_time():
    box = Thing()

    def fn(x):
        box.items = [x, {"n": x + 1}]
        return box.items

    again = replay(fn, T.ones(1))
    first = again(T.ones(1))
    assert first is box.items
    first.append("mine")
    assert len(again(T.ones(1))) == 2


def test_globals_and_cells():
    count = 0

    def fn(x):
        global LEVEL
        nonlocal count
        LEVEL += 1
        count = LEVEL + count
        return x * count

    again = replay(fn, T.ones(1))
    assert again(T.ones(1)).tolist() == [3.0]
    assert (LEVEL, count) == (2, 3)


def test_attributes_set_through_a_setattr_of_the_class_are_not_set_twice():
    calls = []

    class Watched:
        def __setattr__(self, name, value):
            calls.append(name)
            object.__setattr__(self, name, value)

    watched = Watched()

    def fn(x):
        watched.v = x * 2
        return x

    again = replay(fn, T.ones(1))
    calls.clear()
    again(T.ones(1))
    assert calls == ["v"]
    assert watched.v.tolist() == [2.0]


def test_property_setters_run():
    class Celsius:
        def __init__(self):
            self._k = 0.0

        @property
        def c(self):
            return self._k - 273.0

        @c.setter
        def c(self, value):
            self._k = value + 273.0

    t = Celsius()

    def fn(x, v):
        t.c = v
        t.c += 1
        return x * t.c

    again = replay(fn, T.ones(1), 5.0)
    assert again(T.ones(1), 7.0).tolist() == [8.0]
    assert t._k == 281.0


def test_gradients_are_left_as_eager_leaves_them():
    w = T.ones(2).requires_grad_()

    def fn(x):
        (w * x).sum().backward()
        return x

    again = replay(fn, T.ones(2))
    w.grad = None
    again(T.ones(2))
    assert w.grad.tolist() == [1.0, 1.0]
    assert not w.grad.requires_grad and w.grad.is_leaf


def test_cleared_gradients_stay_cleared():
    w = T.ones(2).requires_grad_()

    def fn(x):
        w.grad = None
        (w * x).sum().backward()
        g = w.grad
        w.grad = None
        return g

    again = replay(fn, T.ones(2))
    assert again(T.ones(2) * 3).tolist() == [3.0, 3.0]
    assert w.grad is None


def test_accumulated_gradients_keep_their_object():
    w = T.ones(2).requires_grad_()

    def fn(x):
        (w * x).sum().backward()
        return x

    compiled = Replayed(fn)
    compiled(T.ones(2))
    compiled(T.ones(2))
    gradient = w.grad
    compiled(T.ones(2))
    assert compiled.stats.compiled_calls == 1
    assert w.grad is gradient and gradient.tolist() == [3.0, 3.0]


def test_a_failed_exit_changes_nothing_outside():
    thing = Thing()
    thing.n = 0
    log, buffer = [], T.zeros(1)

    def fn(x):
        thing.n += 1
        log.append(x)
        buffer.add_(1)
        if x.sum() > 0:
            return x * 2
        return x

    recording, _ = record(fn, (T.ones(1),), {})
    entry = recording.build_entry(calling(recording, caller(recording)))
    assert isinstance(entry((-T.ones(1),), {}), Exit)
    assert (thing.n, len(log), buffer.tolist()) == (1, 1, [1.0])
    entry((T.ones(1),), {})
    assert (thing.n, len(log), buffer.tolist()) == (2, 2, [2.0])


def test_tensors_given_to_outside_objects_are_the_results_themselves():
    thing = Thing()

    def fn(x):
        y = x * 2
        thing.y = y
        return y

    again = replay(fn, T.ones(1))
    assert again(T.ones(1)) is thing.y


def test_grad_mode_left_changed_stays_changed():
    def fn(x):
        T.set_grad_enabled(False)
        return x * 2

    try:
        again = replay(fn, T.ones(1))
        assert not T.is_grad_enabled()
        T.set_grad_enabled(True)
        again(T.ones(1))
        assert not T.is_grad_enabled()
    finally:
        T.set_grad_enabled(True)
