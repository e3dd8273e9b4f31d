"""Effects in the order of control: errors, finally, generators, context managers.  See capture_programs.py."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import time
import traceback
import types

from registered_programs import LOG, fresh, over, program, with_change, x

import tracejit as T


@program()
def generators_of_all_kinds():
    def numbers(n):
        try:
            for i in range(n):
                got = yield i * 1.0
                if got:
                    LOG.append(got)
        finally:
            LOG.append("closed")
        return "end"

    def outer(n):
        result = yield from numbers(n)
        LOG.append(result)
        yield -1.0

    def fn(a, n):
        g = numbers(5)
        y = a * next(g) + g.send("one") + next(g)
        g.close()
        return y + sum(outer(n)), list(outer(2)), [v for v in (w * 2 for w in numbers(2))], max(outer(3), default=0)

    return fn, [fresh, lambda f: f(x(1), 3), lambda f: f(x(1), 2)], lambda: LOG


@program()
def error_thrown_into_a_generator():
    def g():
        while True:
            try:
                yield 1.0
            except ValueError as e:
                LOG.append(e.args)
                yield 2.0
            finally:
                LOG.append("f")

    def fn(a):
        it = g()
        y = a * next(it)
        y = y + it.throw(ValueError("in", 1))
        it.close()
        return y

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def generator_left_in_the_middle():
    def g():
        try:
            yield 1.0
            yield 2.0
        finally:
            LOG.append("gone")

    def fn(a):
        for v in g():  # noqa: B007
            break
        LOG.append("after")
        return a * v

    return fn, [fresh, lambda f: f(x(1))], lambda: LOG


@program()
def generator_over_a_state():
    items = [1.0, 2.0]

    def scaled(k):
        for v in items:
            yield v * k

    def fn(a, k):
        for v in scaled(k):
            a = a + v
        return a, list(zip(scaled(k), scaled(k + 1), strict=True))

    return fn, [lambda f: f(x(1), 2.0), lambda f: items.append(3.0), lambda f: f(x(1), 2.0), lambda f: items.pop()], None


@program()
def effects_in_finally_and_else():
    def fn(a, n):
        try:
            LOG.append("try")
            if n == 1:
                raise ValueError("v")
            if n == 2:
                return a
            if n == 3:
                raise KeyError("k")
        except ValueError:
            LOG.append("except")
            a = a * 2
        else:
            LOG.append("else")
        finally:
            LOG.append("finally")
        return a + 1

    return fn, [fresh, *(lambda f, n=n: f(x(1), n) for n in (0, 1, 2, 3))], lambda: LOG


@program()
def errors_with_causes_and_contexts():
    def fn(a, n):
        try:
            try:
                if n:
                    raise ValueError("inner")
                {}["missing"]
            except ValueError as e:
                raise TypeError("outer") from e
            except KeyError:
                raise LookupError("context")  # noqa: B904
        except (TypeError, LookupError) as e:
            return a, type(e).__name__, e.args, type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__

    return over(fn, True, False, True)


@program()
def errors_raised_again():
    def check(n):
        if n > 1:
            raise ValueError(n)
        return n

    def fn(a, n):
        try:
            try:
                return a * check(n)
            except ValueError as e:
                LOG.append(e.args)
                raise
            finally:
                LOG.append("f")
        except ValueError as e:
            return a, e.args

    return fn, [fresh, lambda f: f(x(1), 1), lambda f: f(x(1), 2)], lambda: LOG


@program()
def errors_of_the_program_with_a_state():
    class AppError(Exception):
        code = 7

        def __init__(self, message, *, extra=None):
            super().__init__(message)
            self.extra = extra

        def __str__(self):
            return f"{self.args[0]}:{self.extra}"

    class Plain(Exception):
        pass

    def fn(a, k):
        out = []
        for e in (AppError("m", extra=k), Plain("p", k)):
            try:
                raise e
            except AppError as err:
                out.append((str(err), err.extra, err.code, repr(err)))
            except Plain as err:
                out.append((str(err), err.args, repr(err)))
        return a * k, out

    return over(fn, 2.0, 3.0)


@program()
def groups_of_errors():
    def fn(a, n):
        out = []
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError("k"), ExceptionGroup("h", [ValueError(2), OSError("o")])])
        except* ValueError as e:
            out.append([type(v).__name__ for v in e.exceptions])
        except* (KeyError, OSError) as e:
            out.append((e.message, len(e.exceptions)))
        return a * n, out

    return over(fn, 2.0, 3.0)


@program()
def handlers_for_computed_types():
    kinds = (ValueError, KeyError)

    def fn(a, n):
        try:
            raise (ValueError, KeyError, TypeError)[n]("x")
        except kinds as e:
            return a, type(e).__name__
        except Exception as e:
            return a * 2, type(e).__name__

    return over(fn, 0, 1, 2)


@program()
def context_managers_of_generators():
    @contextlib.contextmanager
    def scope(name, swallow=()):
        LOG.append(("in", name))
        try:
            yield name * 2
        except swallow as e:
            LOG.append(("swallowed", type(e).__name__))
        finally:
            LOG.append(("out", name))

    def fn(a, n):
        with scope("p") as p, scope("q", ValueError) as q:
            if n:
                raise ValueError(n)
            a = a * len(p + q)
        return a

    return fn, [fresh, lambda f: f(x(1), 0), lambda f: f(x(1), 1)], lambda: LOG


@program()
def stack_of_exits():
    @contextlib.contextmanager
    def scope(name):
        LOG.append(("in", name))
        yield name
        LOG.append(("out", name))

    def fn(a, n):
        with contextlib.ExitStack() as stack:
            for i in range(n):
                stack.enter_context(scope(i))
            stack.callback(LOG.append, "callback")
            a = a * n
        return a

    return fn, [fresh, lambda f: f(x(1), 2), lambda f: f(x(1), 1)], lambda: LOG


@program()
def context_managers_of_contextlib():
    class Res:
        def close(self):
            LOG.append("closed")

    def fn(a, n):
        with contextlib.suppress(ZeroDivisionError, KeyError):
            a = a * (1 / n)
        with contextlib.nullcontext(5.0) as k:
            a = a + k
        with contextlib.closing(Res()):
            a = a - 1
        return a

    return fn, [fresh, lambda f: f(x(1), 0), lambda f: f(x(1), 2)], lambda: LOG


@program()
def modes_of_gradients_mixed():
    w = x(1, 2).requires_grad_()

    def fn(a):
        with T.no_grad():
            b = a * w
            with T.enable_grad():
                c = a * w

        @T.no_grad()
        def inner(v):
            return v * w

        return b, c, inner(a), b.requires_grad, c.requires_grad, T.is_grad_enabled()

    return over(fn, (), ())


@program(reason="unknown_call")
def lock_around_the_work():
    lock = threading.Lock()

    def fn(a):
        with lock:
            return a * 2, lock.locked()

    return over(fn, (), ())


@program()
def message_of_a_logger():
    logger = logging.getLogger("b4")
    logger.propagate = False
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(funcName)s %(lineno)d %(filename)s %(message)s"))
    logger.handlers[:] = [handler]

    def fn(a):
        logger.warning("value %s", 3)
        logger.debug("hidden")
        return a * 2

    return fn, [lambda f: f(x(1))] * 2, lambda: stream.getvalue()


@program(reason="unknown_origin")
def text_of_a_traceback():
    def bad(k):
        return {"a": 1}["b" * k]

    def fn(a):
        try:
            bad(1)
        except KeyError:
            return a * 2, traceback.format_exc()

    return over(fn, (), ())


@program(reason="unknown_origin")
def lines_of_a_traceback():
    def bad(k):
        if k:
            raise ValueError("x")

    def fn(a):
        try:
            bad(1)
        except ValueError as e:
            tb = e.__traceback__
            lines = []
            while tb:
                lines.append((tb.tb_lineno, tb.tb_frame.f_code.co_name))
                tb = tb.tb_next
            return a, lines, traceback.extract_tb(e.__traceback__)[-1].line, sys.exc_info()[0].__name__

    return over(fn, (), ())


@program(reason="raised_again")
def outside_error_is_raised():
    err = ValueError("kept")

    def fn(a):
        try:
            raise err
        except ValueError as e:
            return a * 2, e is err

    return over(fn, (), ())


@program()
def error_swallowed_by_finally():
    def fn(a):
        try:
            raise KeyError("new")
        finally:
            return a * 2  # noqa: B012

    return over(fn, (), ())


@program()
def end_of_an_iterator_caught():
    def fn(a):
        it = iter([1.0])
        total = 0.0
        while True:
            try:
                total += next(it)
            except StopIteration as e:
                return a * total, e.value

    return over(fn, (), ())


@program()
def generator_that_raises_its_end():
    def g():
        yield 1.0
        raise StopIteration("oops")

    def fn(a):
        try:
            return a * sum(g())
        except RuntimeError as e:
            return a, str(e), type(e.__cause__).__name__

    return over(fn, (), ())


@program()
def iterator_that_raises():
    class It:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            if self.n > 2:
                raise LookupError(self.n)
            return float(self.n)

    def fn(a):
        out = []
        try:
            for v in It():
                out.append(v)
        except LookupError as e:
            return a * sum(out), e.args

    return over(fn, (), ())


@program()
def clock_that_is_read():
    def fn(a):
        return a * (time.perf_counter() * 0 + 2)

    return over(fn, (), ())


@program()
def name_that_cannot_be_imported():
    m = types.ModuleType("zz_names")
    sys.modules["zz_names"] = m

    def fn(a):
        try:
            from zz_names import k

            return a * k
        except ImportError:
            return a

    return fn, with_change(lambda: setattr(m, "k", 5.0), lambda: delattr(m, "k")), None


@program(reason="impure_call")
def context_of_an_error_around_the_call():
    def fn(a):
        try:
            raise ValueError("q")
        except ValueError as e:
            return a * (2.0 if e.__context__ is None else 3.0)

    def inside(f):
        try:
            raise KeyError("k")
        except KeyError:
            return f(x(1))

    return fn, [lambda f: f(x(1)), inside, lambda f: f(x(1))], None


@program(reason="tensor_contents")
def singular_matrix_caught():
    def fn(a):
        try:
            return T.linalg.inv(a)
        except RuntimeError:
            return a * 0

    return fn, [lambda f: f(T.zeros(2, 2)), lambda f: f(T.eye(2)), lambda f: f(T.zeros(2, 2))], None


@program(reason="tensor_contents")
def target_outside_the_classes_caught():
    def fn(a, t):
        try:
            return T.nn.functional.cross_entropy(a, t)
        except IndexError:
            return a * 0

    return fn, [lambda f: f(T.ones(1, 3), T.tensor([7])), lambda f: f(T.ones(1, 3), T.tensor([1]))], None


@program(reason="implicit_python")
def name_imported_from_a_computed_module():
    m = types.ModuleType("zz_mod")
    state = {"k": 2.0}
    m.__getattr__ = lambda name: state["k"]

    def fn(a):
        from zz_mod import anything

        return a * anything

    def go(f):
        sys.modules["zz_mod"] = m
        state["k"] += 1
        return f(x(1))

    return fn, [go] * 3, None
