"""Numbers that a function returns: others in each call, and plain ones for the caller.  See capture_programs.py."""

from __future__ import annotations

from registered_programs import Box, over, program, x


def counting(result):
    """Each call returns a number that is another one each time: it has to be replayed all the same."""

    def maker():
        box = Box(n=0, rate=1.0)
        fn = result(box)
        return (
            fn,
            [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), lambda f: (setattr(box, "rate", box.rate * 0.5), f(x(3, 4)))[1]],
            lambda: (box.n, box.rate),
        )

    return maker


def as_a_tuple(box):
    def fn(a):
        box.n += 1
        return a * box.rate, box.n, box.rate * 2

    return fn


def as_a_list(box):
    def fn(a):
        box.n += 1
        return [a * box.rate, box.n, -box.rate]

    return fn


def as_a_dictionary(box):
    def fn(a):
        box.n += 1
        return {"loss": a * box.rate, "step": box.n, 7: box.rate}

    return fn


def inside_each_other(box):
    def fn(a):
        box.n += 1
        return {"loss": (a * box.rate, [box.n, {"rate": box.rate}]), "n": ((box.n,), [])}

    return fn


def from_a_lambda(box):
    def fn(a):
        box.n += 1
        return [box.n, a, box.n]

    return lambda a: (a * box.rate, box.rate + 1)


def in_finally(box):
    def fn(a):
        try:
            return a * box.rate, box.n
        finally:
            box.n += 1

    return fn


def from_one_of_two_returns(box):
    def fn(a):
        box.n += 1
        if a.shape[0] > 5:
            return a, 0
        return a, box.n

    return fn


def alone(box):
    def fn(a):
        box.n += 1
        return box.n

    return fn


def changed_by_the_caller(box):
    def fn(a):
        box.n += 1
        return [box.n, a * 2], {"n": box.n}

    return fn


for _m in (
    as_a_tuple,
    as_a_list,
    as_a_dictionary,
    inside_each_other,
    from_a_lambda,
    in_finally,
    from_one_of_two_returns,
    alone,
    changed_by_the_caller,
):
    m = counting(_m)
    m.__name__ = f"counter_returned_{_m.__name__}"
    program()(m)


@program()
def results_of_inner_functions_are_plain():

    def inner(k):
        return k, [k], {"k": k}

    def fn(a, k):
        p, q, r = inner(k)
        d = {p: 1}
        return a * p, d[k], q + [p], r, len({p, k}), isinstance(inner(k)[0], int), f"{inner(k)}"

    return over(fn, 2, 3, 2)


@program()
def function_that_calls_itself_and_returns_numbers():
    def fn(a, n):
        if n == 0:
            return a, n, []
        b, m, seen = fn(a * 2, n - 1)
        seen.append(n)
        return b + n, m + n, seen

    return over(fn, 0, 2, 3)


@program()
def returned_list_is_kept_by_the_program():
    box = Box(n=0, last=None)

    def fn(a):
        box.last = [box.n, a]
        return box.last

    def go(f):
        r = f(x(1))
        r.append("more")
        return r, box.last is r, box.n

    return fn, [go, go], None


@program()
def returned_numbers_are_python_numbers():
    box = Box(n=1, f=0.5)

    def fn(a):
        return a, box.n, box.f, box.n * 2, box.f / 2, [box.n]

    def go(f):
        r = f(x(1))
        box.n += 1
        return (
            [type(v).__name__ for v in r[1:]],
            hash(r[1]),
            r[1] + 1,
            {r[1]: r[2]},
            list(range(r[1])),
            sorted([r[1], r[2]]),
            type(r[5][0]) is int,
        )

    return fn, [go, go], None
