"""Statements, errors, context managers and calls in all orders, and the effects in between.  See capture_programs.py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sys
import threading
import weakref

from registered_programs import Box, over, program, with_change, x

import tracejit as T


@program(reason="unsupported_syntax")
def coroutine_run_inside():
    async def work(a):
        await asyncio.sleep(0)
        return a * 2

    def fn(a):
        return asyncio.run(work(a))

    return fn, with_change(), None


@program()
def coroutine_awaits_a_compiled_function():
    def fn(a):
        return a * 2

    async def work(f, a):
        return f(a) + f(a)

    return fn, [lambda f: asyncio.run(work(f, x(1, 2)))] * 2, None


@program()
def context_manager_user_made_with_all_paths():
    class M:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, t, v, tb):
            self.log.append(t.__name__ if t else "out")
            return t is ValueError

    m = M()

    def fn(a, k):
        with m as w:
            a = a * 2
            if k == 1:
                raise ValueError("k")
            if k == 2:
                return a + len(w.log) * 0
        return a * 3

    return fn, [lambda f: f(x(1), 0), lambda f: f(x(1), 1), lambda f: f(x(1), 2)], lambda: m.log


@program()
def nested_try_finally_else_with_effects():
    log = []

    def fn(a, k):
        try:
            try:
                if k == 1:
                    raise KeyError("x")
                if k == 2:
                    return a * 10
            except KeyError:
                log.append("key")
                raise ValueError("v") from None
            else:
                log.append("else")
            finally:
                log.append("f1")
        except ValueError:
            log.append("value")
            a = a * 3
        finally:
            log.append("f2")
        return a

    return fn, [lambda f, k=k: f(x(1), k) for k in (0, 1, 2)], lambda: log


@program()
def finally_overrides_return_and_break():
    def fn(a, k):
        for i in range(3):
            try:
                if i == k:
                    return a * 100
                a = a + i
            finally:
                if i == 1:
                    break  # noqa: B012
        return a

    return over(fn, 0, 1, 2)


@program(reason="unknown_origin")
def exception_attributes_and_notes():
    class E(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    def fn(a, k):
        try:
            if k:
                raise E(k)
        except E as e:
            e.add_note("note")
            return a * e.code, str(e), e.args, e.__notes__, e.__context__ is None
        return a

    return over(fn, 0, 1, 2)


@program()
def exception_chain_inspected():
    def fn(a):
        try:
            try:
                1 / 0
            except ZeroDivisionError as e:
                raise ValueError("v") from e
        except ValueError as e:
            return a * 2, type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__

    return over(fn, ())


@program()
def except_star_groups():
    def fn(a, k):
        r = []
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)][:k])
        except* ValueError as g:
            r.append(("v", len(g.exceptions)))
        except* TypeError as g:
            r.append(("t", len(g.exceptions)))
        return a * len(r), r

    return over(fn, 1, 2)


@program()
def error_leaves_partial_effects():
    box = Box(n=0, l=[])

    def fn(a, k):
        box.n += 1
        box.l.append(k)
        a.add_(1)
        if k:
            raise RuntimeError(f"bad {k} {box.n}")
        return a * box.n

    def go(f, k):
        t = x(1, 2)
        try:
            r = f(t, k)
        except RuntimeError as e:
            r = str(e)
        return r, t

    return fn, [lambda f: go(f, 0), lambda f: go(f, 1), lambda f: go(f, 0)], lambda: (box.n, box.l)


@program()
def error_in_the_middle_of_library_work():
    log = []

    def fn(a, b):
        log.append("start")
        c = a * 2
        log.append(tuple(c.shape))
        d = c @ b
        log.append("end")
        return d

    def go(f, b):
        try:
            return f(T.ones(2, 3), b)
        except Exception as e:
            return type(e).__name__, str(e)

    return fn, [lambda f: go(f, T.ones(3, 2)), lambda f: go(f, T.ones(2, 2))], lambda: log


@program()
def deleted_names_and_unbound_locals():
    def fn(a, k):
        b = a * 2
        if k:
            del b
        try:
            return b
        except UnboundLocalError as e:
            return a * 3, type(e).__name__

    return over(fn, 0, 1)


@program()
def walrus_everywhere():
    def fn(a, row):
        if (n := len(row)) > 1 and (s := sum(row)) > 2:
            a = a * s
        r = [y for v in row if (y := v * 2) > 2]
        while (n := n - 1) > 0:
            a = a + n
        return a, r, n

    return over(fn, ([1],), ([1, 2],), ([3, 4, 5],))


@program()
def global_and_nonlocal_written_in_nested():
    count = 0

    def inner():
        nonlocal count
        count += 1

        def deeper():
            nonlocal count
            count += 10

        deeper()
        return count

    def fn(a):
        return a * inner() + inner()

    def reset():
        nonlocal count
        count = 0

    return fn, with_change(reset), lambda: count


@program()
def late_binding_in_loops():
    def fn(a):
        fs = [lambda v: v * i for i in range(3)]
        gs = [lambda v, i=i: v * i for i in range(3)]
        return [f(a) for f in fs], [g(a) for g in gs]

    return over(fn, ())


@program(reason="unbuildable")
def closure_returned_and_called_later():
    def fn(a, k):
        def g(b):
            return a * b + k

        return g

    def go(f, k):
        g = f(x(1, 2), k)
        return g(2.0)

    return fn, [lambda f: go(f, 1.0), lambda f: go(f, 2.0)], None


@program()
def star_expressions_and_keyword_only():
    def g(p, /, q, *r, s, t=4.0, **u):
        return p * q + sum(r) + s * t + sum(u.values())

    def fn(a, *args, **kw):
        return g(a, *args, **kw, s=3.0)

    return fn, [lambda f: f(x(1), 2.0), lambda f: f(x(1), 2.0, 5.0, 6.0, t=1.0), lambda f: f(x(1), 2.0, z=9.0)], None


@program()
def sets_and_dictionaries_order():
    def fn(a, k):
        d = {}
        for i in (3, 1, 2):
            d[i * k] = i
        d.pop(k)
        d[k] = 9
        s = {k, 2 * k, 3}
        return a * len(s), list(d.items()), sorted(s), list(dict.fromkeys([3, 1, 3, 2]))

    return over(fn, 1, 2)


@program()
def strings_in_sets_iterated():
    words = {"p", "q", "r"}

    def fn(a):
        return a * len(words), [w for w in words]

    return fn, with_change(lambda: words.add("s"), lambda: words.discard("p")), None


@program()
def identity_comparisons():
    box = Box(o=object(), n=None, t=(1, 2), l=[])
    saved = box.o

    def fn(a):
        return a * (2 if box.o is saved else 3), box.n is None, box.t is box.t, box.l is not box.l, box.l == []

    def put(v):
        box.o = v

    return fn, with_change(lambda: put(object()), lambda: setattr(box, "n", 0), lambda: put(saved)), None


@program()
def sentinel_defaults():
    missing = object()

    def g(a, k=missing):
        return a if k is missing else a * k

    def fn(a, *r):
        return g(a, *r)

    return fn, [lambda f: f(x(1)), lambda f: f(x(1), 2.0), lambda f: f(x(1), 3.0)], None


@program(reason="construction")
def finalizer_of_a_local_object():
    log = []

    class R:
        def __del__(self):
            log.append("del")

    def fn(a):
        r = R()
        b = a * 2
        del r
        log.append("after")
        return b

    return fn, with_change(), lambda: log


@program(reason="construction")
def weakref_callbacks_of_locals():
    log = []

    def fn(a):
        b = Box(k=2.0)
        r = weakref.ref(b, lambda _: log.append("gone"))  # noqa: F841
        del b
        log.append("after")
        return a * 2

    return fn, with_change(), lambda: log


@program()
def object_given_back_and_changed_outside():
    def fn(a):
        return {"t": a * 2, "l": [1, 2], "o": Box(k=[3])}

    def go(f):
        r = f(x(1))
        r["l"].append(5)
        r["o"].k.clear()
        r["n"] = 1
        return f(x(1)), r

    return fn, [go], None


@program()
def constant_containers_are_fresh():
    def fn(a):
        return [], {}, (1, 2), [0] * 3, set(), a

    def go(f):
        r = f(x(1))
        r[0].append(1)
        r[1]["k"] = 2
        r[3][0] = 7
        r[4].add(1)
        return r, f(x(1)), r[0] is f(x(1))[0]

    return fn, [go], None


@program()
def same_made_list_in_two_places():
    box = Box(p=None, q=None)

    def fn(a):
        items = [1.0]
        box.p = items
        box.q = {"l": items}
        items.append(2.0)
        return a * len(box.q["l"]), items

    def go(f):
        r = f(x(1))
        r[1].append(9.0)
        return box.p, box.q, box.p is r[1]

    return fn, [go, go], None


@program()
def cycle_of_made_objects():
    box = Box(r=None)

    def fn(a):
        p = Box(v=a * 2)
        q = Box(p=p)
        p.q = q
        box.r = p
        items = []
        items.append(items)
        return len(items)

    def go(f):
        return f(x(1)), box.r.q.p is box.r, box.r.v

    return fn, [go, go], None


@program()
def outside_list_stored_and_changed_after():
    src = [1.0]
    box = Box(l=None)

    def fn(a):
        box.l = src
        src.append(2.0)
        box.l.append(3.0)
        return a * 2

    return fn, with_change(lambda: src.clear()), lambda: (src, box.l is src)


@program()
def tensor_attribute_and_grad_in_object():
    box = Box(best=None)
    w = x(1, 2).requires_grad_()

    def fn(a):
        loss = (w * a).sum()
        loss.backward()
        box.best = w.grad.clone()
        w.grad = None
        return loss.detach()

    return fn, with_change(), lambda: (box.best, w.grad)


@program(reason="unknown_call")
def threads_started_inside():
    res = []

    def fn(a):
        t = threading.Thread(target=lambda: res.append(1))
        t.start()
        t.join()
        return a * len(res)

    return fn, with_change(), lambda: len(res)


@program()
def recursion_with_depth_argument():
    def f2(a, n):
        return a if n == 0 else f2(a * 2, n - 1) + n

    def fn(a, n):
        return f2(a, n)

    return over(fn, 0, 3, 5)


@program()
def mutual_recursion_and_memo():
    memo = {}

    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    def fib(n):
        if n not in memo:
            memo[n] = n if n < 2 else fib(n - 1) + fib(n - 2)
        return memo[n]

    def fn(a, n):
        return a * fib(n), even(n)

    return over(fn, 3, 6)


@program()
def decorators_stacked_with_state():
    def count(f):
        @functools.wraps(f)
        def w(*a, **k):
            w.calls = getattr(w, "calls", 0) + 1
            return f(*a, **k)

        return w

    def scale(s):
        def d(f):
            return lambda a: f(a) * s

        return d

    @count
    @scale(2.0)
    def g(a):
        return a + 1

    def fn(a):
        return g(a)

    return fn, with_change(lambda: setattr(g, "calls", 100)), lambda: g.calls


@program()
def exit_stack_and_callbacks():
    log = []

    def fn(a, k):
        with contextlib.ExitStack() as s:
            s.callback(log.append, "c1")
            s.enter_context(contextlib.suppress(KeyError))
            s.push(lambda *e: log.append(e[0] is not None))
            if k:
                raise KeyError(k)
            return a * 2
        return a * 3

    return over(fn, 0, 1)[:2] + (lambda: log,)


@program()
def redirect_and_null_context():
    def fn(a, k):
        with contextlib.nullcontext(5.0) as v, T.no_grad() if k else contextlib.nullcontext():
            return a * v

    return over(fn, 0, 1)


@program()
def contextmanager_with_state_and_yield_value():
    box = Box(depth=0)

    @contextlib.contextmanager
    def level():
        box.depth += 1
        try:
            yield box.depth
        finally:
            box.depth -= 1

    def fn(a):
        with level() as p, level() as q:
            return a * p + q * box.depth

    return fn, with_change(lambda: setattr(box, "depth", 2)), lambda: box.depth


@program()
def chained_attribute_and_item_updates():
    box = Box(d={"l": [Box(k=1.0)]})

    def fn(a):
        box.d["l"][0].k += 1.0
        box.d["l"][-1].k *= 2.0
        return a * box.d["l"][0].k

    return (
        fn,
        with_change(lambda: box.d["l"].append(Box(k=5.0)), lambda: box.d.__setitem__("l", [Box(k=0.0)])),
        lambda: [b.k for b in box.d["l"]],
    )


@program()
def swapped_state_objects():
    box = Box(cur=Box(v=1.0), prev=Box(v=10.0))

    def fn(a):
        box.cur, box.prev = box.prev, box.cur
        box.cur.v += 1
        return a * box.cur.v - box.prev.v

    return fn, with_change(), lambda: (box.cur.v, box.prev.v)


@program()
def double_buffered_tensors():
    box = Box(p=x(0, 0), q=x(0, 0))

    def fn(a):
        box.q.copy_(box.p * 0.5 + a)
        box.p, box.q = box.q, box.p
        return box.p * 1

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: (box.p, box.q)


@program()
def trampolines_and_partial_of_partial():
    def step(s, k, a):
        return a * s + k

    p = functools.partial(step, 2.0)
    q = functools.partial(p, 3.0)

    def fn(a):
        return q(a), p(1.0, a), functools.partial(q)(a)

    return fn, with_change(), None


@program()
def class_made_by_type_call_outside():
    C = type("C", (Box,), {"m": lambda s, a: a * s.k, "z": 3.0})
    c = C(k=2.0)

    def fn(a):
        return c.m(a) + c.z

    return (
        fn,
        with_change(lambda: setattr(C, "z", 5.0), lambda: setattr(c, "k", 7.0), lambda: setattr(C, "m", lambda s, a: a)),
        None,
    )


@program()
def bool_short_circuit_with_effects_of_objects():
    class B:
        def __init__(self, v):
            self.v, self.n = v, 0

        def __bool__(self):
            self.n += 1
            return self.v

    p, q = B(True), B(False)

    def fn(a):
        return a * (2.0 if (p and not q) or q else 3.0), (p or q) is p, not p

    return fn, with_change(lambda: setattr(q, "v", True), lambda: setattr(p, "v", False)), lambda: (p.n, q.n)


@program()
def comparison_methods_with_state():
    class V:
        n = 0

        def __init__(self, v):
            self.v = v
            self.asked = 0

        def __lt__(self, o):
            self.asked += 1
            return self.v < o.v

        def __eq__(self, o):
            self.asked += 1
            return self.v == o.v

        def __hash__(self):
            return hash(self.v)

    vs = [V(3.0), V(1.0), V(2.0)]

    def fn(a):
        return a * sorted(vs)[0].v + max(vs).v, vs[0] in vs[1:], vs.index(vs[2]), vs[0] == vs[1]

    return fn, with_change(lambda: setattr(vs[1], "v", 9.0)), lambda: [v.asked for v in vs]


@program()
def iteration_over_dict_changed_values():
    d = {"p": 1.0, "q": 2.0}

    def fn(a):
        for k in d:
            d[k] = d[k] + 1
        for _, v in d.items():
            a = a * v
        return a

    def go(f):
        d.update(p=1.0, q=2.0)
        return f(x(1, 2))

    return fn, [go, go], lambda: d


@program()
def list_comprehension_side_effects():
    seen = []

    def note(v):
        seen.append(v)
        return v

    def fn(a):
        return a * sum([note(v) for v in range(3) if note(v * 10) >= 0])

    return fn, with_change(), lambda: seen


@program()
def gc_and_refcount_asked():
    def fn(a):
        gc.collect()
        return a * 2

    return fn, with_change(), None


@program(reason="unknown_call")
def refcount_read():
    o = []

    def fn(a):
        return a * (sys.getrefcount(o) > 0)

    return fn, with_change(), None
