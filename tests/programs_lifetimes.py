"""Objects that go during a call: finalizers, callbacks, weak references that are asked.  See capture_programs.py."""

from __future__ import annotations

import collections
import weakref

from registered_programs import Box, over, program, with_change, x


class Ends:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(self.name)


def ending(put, drop):
    """An object with a finalizer is dropped by the call."""

    def maker():
        log = []
        box = Box(o=None, d={}, l=[], q=collections.deque(maxlen=1))
        count = [0]

        def fn(a):
            drop(box)
            log.append("after")
            return a * 2

        def go(f):
            count[0] += 1
            put(box, Ends(log, f"end {count[0]}"))
            return f(x(1, 2))

        return fn, [go, go], lambda: log

    return maker


WAYS = {
    "attribute_replaced": (lambda b, o: setattr(b, "o", o), lambda b: setattr(b, "o", None)),
    "attribute_stored": (lambda b, o: b.__dict__.__setitem__("o", o), lambda b: b.__dict__.__setitem__("o", 1)),
    "item_replaced": (lambda b, o: b.d.__setitem__("k", o), lambda b: b.d.__setitem__("k", 1)),
    "item_popped": (lambda b, o: b.d.__setitem__("k", o), lambda b: b.d.pop("k") and None),
    "list_popped": (lambda b, o: b.l.append(o), lambda b: b.l.pop() and None),
    "list_cleared": (lambda b, o: b.l.append(o), lambda b: b.l.clear()),
    "list_item_replaced": (lambda b, o: b.l.__setitem__(slice(None), [o]), lambda b: b.l.__setitem__(0, None)),
    "deque_full": (lambda b, o: b.q.append(o), lambda b: b.q.append(None)),
    "inside_another": (lambda b, o: setattr(b, "o", Box(inner=[o])), lambda b: setattr(b, "o", None)),
}
for _n, _w in WAYS.items():
    m = ending(*_w)
    m.__name__ = f"finalizer_runs_in_its_place_{_n}"
    program(reason="implicit_python")(m)


def by_statement(name, body):
    def maker():
        log = []
        box = Box(o=None, d={})
        count = [0]
        fn = body(box, log)

        def go(f):
            count[0] += 1
            box.o = Ends(log, f"end {count[0]}")
            box.d["k"] = Ends(log, f"item {count[0]}")
            return f(x(1, 2))

        return fn, [go, go], lambda: log

    maker.__name__ = name
    program(reason="implicit_python")(maker)


def deleted(box, log):
    def fn(a):
        del box.o
        log.append("after")
        del box.d["k"]
        log.append("end")
        return a * 2

    return fn


by_statement("finalizer_of_what_is_deleted", deleted)


def augmented(box, log):
    def fn(a):
        box.o = box.d = None
        log.append("after")
        return a * 2

    return fn


by_statement("finalizer_of_what_a_dictionary_holds", augmented)


@program(reason="implicit_python")
def callback_of_a_weak_reference_to_what_is_replaced():
    log = []
    box = Box(o=None)

    def fn(a):
        box.o = None
        log.append("after")
        return a * 2

    refs = []

    def go(f):
        box.o = Box(k=1)
        refs[:] = [weakref.ref(box.o, lambda _: log.append("gone"))]
        return f(x(1))

    return fn, [go, go], lambda: log


@program(reason="implicit_python")
def weak_dictionary_loses_what_is_replaced():
    box = Box(o=None)
    d = weakref.WeakValueDictionary()

    def fn(a):
        box.o = None
        return a * len(d)

    def go(f):
        box.o = Box(k=1)
        d["k"] = box.o
        return f(x(1))

    return fn, [go, go], lambda: len(d)


@program(reason="impure_call")
def weak_reference_asked_after_the_object_was_dropped():
    box = Box(o=None)

    def fn(a):
        r = box.r
        box.o = None
        return a * (2 if r() is None else 3)

    def go(f):
        box.o = Box(k=1)
        box.r = weakref.ref(box.o)
        return f(x(1))

    return fn, [go, go], None


@program(reason="construction")
def weak_reference_asked_after_a_local_was_dropped():
    def fn(a):
        b = Box(k=1)
        r = weakref.ref(b)
        del b
        return a * (2 if r() is None else 3)

    return fn, with_change(), None


@program()
def tensor_hooked_by_a_weak_reference():
    log = []
    box = Box(t=None)

    def fn(a):
        box.t = a * 2
        log.append("after")
        return a

    keep = []

    def go(f):
        r = f(x(1))
        keep[:] = [weakref.ref(box.t, lambda _: log.append("gone"))]
        return r

    return fn, [go, go], lambda: log


@program()
def finalizer_of_a_running_state():
    log = []
    box = Box(o=Ends(log, "first"))

    def fn(a):
        return a * len(log)

    def drop():
        box.o = None

    return fn, with_change(drop), lambda: log


@program(reason="construction")
def weak_references_to_tensors_of_the_call_tell_that_they_are_gone():
    def fn(a):
        b = a * 2
        one, other = weakref.ref(b), weakref.ref(a * 3)
        b = b + 1
        return b, one() is None, other() is None

    return over(fn, ())


@program(reason="construction")
def weak_dictionaries_lose_tensors_of_the_call():
    def fn(a):
        found = weakref.WeakValueDictionary()
        found["kept"] = a
        found["lost"] = a * 2
        return a + len(found), sorted(found)

    return over(fn, ())


@program(reason="construction")
def finalizers_of_tensors_of_the_call_run_in_their_places():
    log = []

    def fn(a):
        b = a * 2
        weakref.finalize(b, log.append, "gone")
        b = a * 3
        log.append("after")
        return b

    return fn, [lambda f: f(x(1, 2))] * 2, lambda: log


@program(reason="construction")
def objects_that_were_assigned_to_two_variables_are_gone():
    def fn(a):
        first = second = Box(k=1)
        refs = [weakref.ref(first)]
        first = second = None
        third = [fourth, fifth] = [Box(k=2), Box(k=3)]
        refs += [weakref.ref(third[0]), weakref.ref(fifth)]
        third = fourth = fifth = None
        return a * 2, [ref() is None for ref in refs], (first, second, third, fourth)

    return fn, [lambda f: f(x(1, 2))] * 3, lambda: None
