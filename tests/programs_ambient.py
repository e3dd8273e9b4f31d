"""What is around a program: clocks, random numbers, files, the environment, the interpreter's own state.  See capture_programs.py."""

from __future__ import annotations

import contextvars
import datetime
import decimal
import io
import json
import locale
import logging
import math
import os
import pathlib
import random
import secrets
import string
import sys
import tempfile
import threading
import time
import types
import uuid
import warnings

import numpy as np
from registered_programs import Box, program, x

import tracejit as T


def ambient(fn, *changes, observe=None):
    def changed(change):
        def call(f):
            change()
            return f(x(1, 2))

        return call

    return fn, [lambda f: f(x(1, 2)), *map(changed, changes), lambda f: f(x(1, 2))], observe


CLOCKS = {
    "time": (time.time, None),
    "perf_counter": (time.perf_counter, None),
    "monotonic": (time.monotonic, None),
    "time_ns": (time.time_ns, None),
    "process_time": (time.process_time, None),
    "monotonic_ns": (time.monotonic_ns, None),
    "thread_time": (time.thread_time, None),
    "now": (datetime.datetime.now, None),
    "uuid4": (uuid.uuid4, None),
    "token": (secrets.token_hex, None),
    "urandom": (lambda: os.urandom(4), None),
    "gauss": (lambda: random.gauss(0, 1), None),
    "uniform": (lambda: random.uniform(0, 1), None),
    "numpy_uniform": (lambda: np.random.uniform(), None),
    "system_random": (random.SystemRandom().random, "clock"),
    "getrandbits": (lambda: random.getrandbits(64), None),
    "counter_of_allocations": (lambda: sys.getallocatedblocks(), None),
}


def advancing(read):
    """What is read differs from call to call."""

    def maker():
        seen = []

        def fn(a):
            seen.append(read())
            return a * 2

        return fn, [lambda f: f(x(1))] * 3, lambda: len(set(map(str, seen))) > 1 or "the same"

    return maker


for _name, (_read, _reason) in CLOCKS.items():
    _maker = advancing(_read)
    _maker.__name__ = f"read_each_time_{_name}"
    program(reason=_reason)(_maker)


@program()
def environment_variable_changes():
    os.environ["TJ_SCALE"] = "2"

    def fn(a):
        return a * float(os.environ.get("TJ_SCALE", "1")), "TJ_MISSING" in os.environ

    def put(value):
        return lambda: os.environ.__setitem__("TJ_SCALE", value)

    return ambient(fn, put("3"), put("4"), lambda: os.environ.pop("TJ_SCALE"), put("2"))


@program()
def environment_variable_by_getenv():
    os.environ["TJ_SCALE2"] = "2"

    def fn(a):
        return a * float(os.getenv("TJ_SCALE2", "1"))

    return ambient(fn, lambda: os.environ.__setitem__("TJ_SCALE2", "5"), lambda: os.environ.__setitem__("TJ_SCALE2", "2"))


@program()
def variable_of_a_context_with_a_default():
    var = contextvars.ContextVar("v", default=2.0)

    def fn(a):
        return a * var.get()

    return ambient(fn, lambda: var.set(3.0), lambda: var.set(2.0))


@program()
def storage_of_a_thread_written():
    local = threading.local()
    local.n = 0

    def fn(a):
        local.n += 1
        local.last = a * local.n
        return a * local.n, hasattr(local, "other")

    def elsewhere():
        t = threading.Thread(target=lambda: setattr(local, "other", 1))
        t.start()
        t.join()

    return ambient(
        fn,
        lambda: setattr(local, "n", 10),
        elsewhere,
        lambda: setattr(local, "other", 1),
        lambda: delattr(local, "other"),
        observe=lambda: local.n,
    )


@program()
def storage_of_a_thread_deleted_and_made_again():
    class Local(threading.local):
        kind = "c"

        def double(self):
            return self.n * 2

    local = Local()
    local.n = 3

    def fn(a):
        r = a * local.double()
        del local.n
        gone = hasattr(local, "n")
        local.n = 4
        return r, gone, local.kind

    return ambient(
        fn,
        lambda: setattr(local, "n", 4),
        lambda: setattr(Local, "kind", "d"),
        lambda: setattr(local, "n", 3),
        observe=lambda: local.n,
    )


@program(reason="impure_call")
def file_that_is_read():
    path = pathlib.Path(tempfile.mkdtemp()) / "k"
    path.write_text("2")

    def fn(a):
        with open(path) as file:
            return a * float(file.read())

    return ambient(fn, lambda: path.write_text("3"), lambda: path.write_text("4"))


@program(reason="impure_call")
def file_that_grows():
    path = pathlib.Path(tempfile.mkdtemp()) / "log"

    def fn(a):
        with open(path, "a") as file:
            file.write("line\n")
        return a * 2

    return ambient(fn, observe=lambda: path.read_text())


@program(reason="unknown_call")
def path_that_exists():
    path = pathlib.Path(tempfile.mkdtemp()) / "flag"

    def fn(a):
        return a * (2 if path.exists() else 3)

    return ambient(fn, path.touch, path.unlink)


@program()
def file_tested_by_os():
    path = os.path.join(tempfile.mkdtemp(), "flag")

    def fn(a):
        return a * (2 if os.path.exists(path) else 3)

    return ambient(fn, lambda: open(path, "w").close(), lambda: os.remove(path))


@program()
def text_written_to_a_buffer():
    buffer = io.StringIO()

    def fn(a):
        print("call", a.shape, file=buffer)
        return a * 2

    return ambient(fn, observe=buffer.getvalue)


@program()
def text_written_by_a_method():
    buffer = io.StringIO()
    write = buffer.write

    def fn(a):
        write("x")
        return a * 2

    return ambient(fn, observe=buffer.getvalue)


@program()
def standard_output_written():
    def fn(a):
        sys.stdout.write("out\n")
        return a * 2

    return ambient(fn)


@program()
def values_of_tensors_printed():
    def fn(a):
        b = a * 2
        print("sum", b.sum().item(), b)
        return b

    return ambient(fn)


@program(reason="unknown_call")
def warning_given_once():
    def fn(a):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            warnings.warn("once", UserWarning, stacklevel=1)
        return a * len(caught)

    return ambient(fn)


@program()
def warning_recorded_outside():
    seen = []

    def fn(a):
        warnings.warn("each", UserWarning, stacklevel=1)
        return a * 2

    def go(f):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            r = f(x(1))
            seen.append(len(caught))
            return r

    return fn, [go] * 3, lambda: seen


@program()
def logger_with_numbers():
    stream = io.StringIO()
    logger = logging.getLogger("tj.attack")
    logger.propagate = False
    logger.handlers[:] = [logging.StreamHandler(stream)]
    logger.setLevel(logging.INFO)

    def fn(a):
        logger.info("mean %.3f", float(a.mean()))
        return a * 2

    return ambient(fn, observe=stream.getvalue)


@program()
def logger_that_is_off():
    logger = logging.getLogger("tj.attack.off")
    logger.setLevel(logging.ERROR)

    def fn(a):
        if logger.isEnabledFor(logging.DEBUG):
            a = a + 100
        return a * 2

    return ambient(fn, lambda: logger.setLevel(logging.DEBUG), lambda: logger.setLevel(logging.ERROR))


@program()
def level_of_a_logger_read():
    logger = logging.getLogger("tj.attack.level")
    logger.setLevel(10)

    def fn(a):
        return a * logger.level

    return ambient(fn, lambda: logger.setLevel(20), lambda: logger.setLevel(30))


@program()
def recursion_limit_read():
    def fn(a):
        return a * (2 if sys.getrecursionlimit() > 10 else 3)

    return ambient(fn)


@program()
def attributes_of_sys():
    sys.tj_flag = 2.0

    def fn(a):
        return a * sys.tj_flag, sys.maxsize, sys.version_info[:2] >= (3, 11), sys.byteorder

    return ambient(fn, lambda: setattr(sys, "tj_flag", 5.0), lambda: setattr(sys, "tj_flag", 2.0))


@program()
def module_in_sys_modules_exchanged():
    def module(k):
        m = types.ModuleType("tj_settings")
        m.k = k
        return m

    sys.modules["tj_settings"] = module(2.0)

    def fn(a):
        import tj_settings

        return a * tj_settings.k

    return ambient(
        fn,
        lambda: sys.modules.__setitem__("tj_settings", module(3.0)),
        lambda: setattr(sys.modules["tj_settings"], "k", 4.0),
        lambda: sys.modules.__setitem__("tj_settings", module(2.0)),
    )


@program()
def attribute_of_a_module_from_sys_modules():
    m = types.ModuleType("tj_m2")
    m.k = 2.0
    sys.modules["tj_m2"] = m

    def fn(a):
        return a * sys.modules["tj_m2"].k

    return ambient(fn, lambda: setattr(m, "k", 3.0), lambda: setattr(m, "k", 2.0))


@program()
def precision_of_decimals():
    def fn(a):
        return a * float(decimal.Decimal(1) / decimal.Decimal(3))

    return ambient(fn, lambda: setattr(decimal.getcontext(), "prec", 3), lambda: setattr(decimal.getcontext(), "prec", 28))


@program()
def seeded_generator_of_python():
    rng = random.Random(3)

    def fn(a):
        return a * rng.random(), rng.randint(0, 10**6)

    return ambient(fn)


@program()
def seeded_generator_of_numpy():
    rng = np.random.default_rng(3)

    def fn(a):
        return a * float(rng.normal())

    return ambient(fn)


@program()
def global_generators_seeded_inside():
    def fn(a):
        random.seed(1)
        return a * random.random()

    return ambient(fn, lambda: random.seed(99), observe=random.random)


@program()
def list_shuffled():
    rng = random.Random(1)
    cards = [1, 2]

    def fn(a):
        rng.shuffle(cards)
        return a * cards[0]

    return ambient(fn, observe=lambda: cards)


@program()
def text_of_json():
    config = {"k": 2.0, "l": [1, 2]}

    def fn(a):
        return a * json.loads('{"k": 3.0}')["k"] + config["k"]

    return ambient(fn, lambda: config.__setitem__("k", 5.0))


@program()
def templates_and_texts():
    settings = {"name": "n", "k": 2}

    def fn(a):
        return (
            a * settings["k"],
            "{name}-{k}".format(**settings),
            f"{settings['k']:>5}|{settings['name']!r}",
            "%(name)s %(k)03d" % settings,
            string.Template("$name=$k").substitute(settings),
        )

    return ambient(fn, lambda: settings.__setitem__("k", 7), lambda: settings.__setitem__("name", "other"))


@program()
def trace_of_counts_in_a_module_global():
    m = types.ModuleType("tj_counts")
    m.n = 0

    def fn(a):
        m.n += 1
        return a * m.n

    return ambient(fn, observe=lambda: m.n)


@program(reason="frame_access")
def names_made_by_exec():
    def fn(a):
        scope = {"k": 2.0}
        exec("k = k + 1", scope)
        return a * scope["k"]

    return ambient(fn)


@program(reason="frame_access")
def expression_evaluated():
    box = Box(k=2.0)

    def fn(a):
        return a * eval("box.k", {"box": box})

    return ambient(fn, lambda: setattr(box, "k", 3.0))


@program(reason="frame_access")
def globals_as_a_dictionary():
    globals()["TJ_GLOBAL"] = 0

    def fn(a):
        globals()["TJ_GLOBAL"] = globals().get("TJ_GLOBAL", 0) + 1
        return a * globals()["TJ_GLOBAL"]

    return ambient(fn, observe=lambda: globals()["TJ_GLOBAL"])


@program()
def constants_of_modules():
    def fn(a):
        return a * math.pi + math.tau - math.e, math.inf > 1, sys.float_info.epsilon, np.pi, T.float32

    return ambient(fn)


@program()
def current_thread_by_name():
    def fn(a):
        return a * (2 if threading.current_thread().name == "MainThread" else 3)

    def go(f):
        result = []
        t = threading.Thread(target=lambda: result.append(f(x(1))), name="other")
        t.start()
        t.join()
        return result[0]

    return fn, [lambda f: f(x(1)), go], None


@program()
def identity_of_the_thread():
    seen = []

    def fn(a):
        return a * (2 if threading.get_ident() == seen[0] else 3)

    seen.append(threading.get_ident())

    def go(f):
        result = []
        t = threading.Thread(target=lambda: result.append(f(x(1))))
        t.start()
        t.join()
        return result[0]

    return fn, [lambda f: f(x(1)), go], None


@program()
def working_directory():
    here = os.getcwd()
    there = tempfile.mkdtemp()

    def fn(a):
        return a * (2 if os.getcwd() == here else 3)

    return ambient(fn, lambda: os.chdir(there), lambda: os.chdir(here))


@program(reason="unknown_call")
def locale_read():
    def fn(a):
        return a * len(locale.localeconv()["decimal_point"])

    return ambient(fn)


@program()
def storage_of_a_thread_read_back():
    class Local(threading.local):
        pass

    local, plain = Local(), threading.local()
    local.n = plain.n = 1

    def fn(a):
        local.n += 1
        plain.n += local.n
        local.n *= 3
        return a * local.n + plain.n, [local.n, plain.n]

    def start():
        local.n = plain.n = 5

    return ambient(fn, start, observe=lambda: (local.n, plain.n))
