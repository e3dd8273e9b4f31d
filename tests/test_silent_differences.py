"""Programs of a few lines in which a compiled function once gave another answer than the function itself, or might have.

Each stands for a class whose other members are in the corpus (programs_*.py) and in the tests of the module concerned; here each has a
name, and is called several times after each change, served from Python and from machine code.
"""

from __future__ import annotations

import array
import collections
import decimal
import enum
import gc
import os
import random
import signal
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override


@pytest.fixture(params=[0, 1], ids=["cold", "hot"], autouse=True)
def hot_calls(request: pytest.FixtureRequest) -> Any:
    with override(hot_calls=request.param):
        yield


def seen(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a caller sees of a call, to be compared."""
    try:
        result = function(*args)
    except Exception as error:
        return type(error), str(error)
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [
        (tuple(p.shape), p.dtype, np.round(np.array(p.tolist(), float), 5).tolist()) if isinstance(p, T.Tensor) else p
        for p in parts
    ]


def same(function: Callable[..., Any], *changes: Callable[[], Any], args: tuple[Any, ...] | None = None) -> Any:
    """Call `function` as it is and compiled, before and after each change; returns the compiled one."""
    args = (T.tensor([1.0, 2.0]),) if args is None else args
    fn = T.compile(function)
    for change in (lambda: None, *changes):
        change()
        for _ in range(4):
            assert seen(fn, args) == seen(function, args)
    assert fn.stats.calls == 4 * (1 + len(changes))
    return fn


def same_for(function: Callable[..., Any], *arguments: tuple[Any, ...]) -> Any:
    """The same for several arguments in turn."""
    fn = T.compile(function)
    for args in (*arguments, *arguments):
        for _ in range(3):
            assert seen(fn, args) == seen(function, args)
    return fn


def replayed(fn: Any) -> None:
    assert fn.stats.compiled_calls > 0, fn.explain()


class Object:
    k: float

    def __init__(self) -> None:
        self.k = 2.0

    def scaled(self, x: Any) -> Any:
        return x * self.k


# -- programs whose steps are all on the host
def test_a_sum_of_one_number_is_no_sum_of_four() -> None:
    replayed(same_for(lambda x: x.sum(), (T.tensor(3.0),), (T.ones(4),)))


def test_an_inverse_in_single_precision_is_none_in_double() -> None:
    replayed(same_for(T.linalg.inv, (T.eye(3),), (T.eye(3, dtype=T.float64) * 3,)))


def test_a_shape_that_python_reads_is_that_of_this_call() -> None:
    replayed(same_for(lambda x: (T.linalg.det(x) * x.shape[0], tuple(x.shape)), (T.eye(3),), (T.eye(4),)))


def test_arguments_that_overlap_are_not_those_that_did_not() -> None:
    def program(x: Any, y: Any) -> Any:
        x.add_(10)
        return T.linalg.inv(y)

    fn = T.compile(program)
    for _ in range(3):
        fn(T.eye(2), T.eye(2))
    found = []
    for function in (program, fn):
        memory = np.array([[1, 2], [3, 5]], np.float32)
        found.append(function(T.from_numpy(memory), T.from_numpy(memory)).tolist())
    assert found[0] == found[1]


def test_an_operation_that_nobody_reads_raises_for_the_shapes_it_cannot_have() -> None:
    def program(a: Any) -> Any:
        a.amin(1)
        return T.sort(T.linspace(0, 1, 5))[0]

    same_for(program, (T.ones(2, 3),), (T.ones(0, 0),))


# -- sizes that depend on data
SIZES = [(T.tensor([1.0, -1.0, 2.0, 0.0]),), (T.tensor([1.0, 1.0, 2.0, 3.0]),), (T.tensor([-1.0, -1.0, -2.0, 0.0]),)]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum() / max(1, x[x > 0].shape[0]),
        lambda x: x * len((x > 0).nonzero()),
        lambda x: x * 2 if x[x > 0].shape[0] > 2 else x * 3,
        lambda x: T.cat([x[x > 0], x]),
        lambda x: x.masked_select(x > 0).reshape(-1, 1).numel() * x,
    ],
    ids=["masked mean", "number of indices", "branch", "joined with others", "number of elements"],
)
def test_a_size_that_depends_on_data_is_that_of_this_call(program: Callable[[Any], Any]) -> None:
    same_for(program, *SIZES)


# -- objects that are reached otherwise than by attribute from a name
def test_a_bound_method_that_is_kept_reads_its_object() -> None:
    o = Object()
    method = o.scaled
    replayed(same(lambda x: method(x), lambda: setattr(o, "k", 5.0)))


def test_a_bound_method_that_is_kept_changes_its_object_each_time() -> None:
    class Counter:
        n = 0

        def hit(self) -> int:
            self.n += 1
            return self.n

    results = []
    for compiled in (False, True):
        handlers = {"hit": Counter().hit}

        def program(x: Any, handlers: dict[str, Any] = handlers) -> Any:
            return x * handlers["hit"]()

        function = T.compile(program) if compiled else program
        results.append([function(T.ones(1)).item() for _ in range(6)])
    assert results[0] == results[1] == [1, 2, 3, 4, 5, 6]


def test_a_kept_append_appends_each_time() -> None:
    items: list[int] = []
    append = items.append
    fn = T.compile(lambda x: (append(1), x * 2)[1])
    for _ in range(5):
        fn(T.ones(2))
    assert len(items) == 5


def test_a_kept_get_gets_what_is_there() -> None:
    table = {"a": 1.0}
    get = table.get
    replayed(same(lambda x: x * get("a"), lambda: table.update(a=5.0)))


def test_a_random_number_of_python_is_drawn_each_time() -> None:
    fn = T.compile(lambda x: x * random.gauss(0, 1))
    random.seed(0)
    expected = [random.gauss(0, 1) for _ in range(8)]
    random.seed(0)
    np.testing.assert_allclose([fn(T.ones(1)).item() for _ in range(8)], expected, rtol=1e-6)


def test_a_bound_method_in_a_default_argument_reads_its_object() -> None:
    o = Object()

    def program(x: Any, callback: Any = o.scaled) -> Any:
        return callback(x)

    replayed(same(program, lambda: setattr(o, "k", 5.0)))


def test_a_forward_hook_that_is_a_bound_method_works_each_time() -> None:
    class Log:
        def __init__(self) -> None:
            self.seen: list[int] = []
            self.scale = 2.0

        def hook(self, module: Any, given: Any, out: Any) -> Any:
            self.seen.append(1)
            return out * self.scale

    found = []
    for compiled in (False, True):
        T.manual_seed(0)
        log, layer = Log(), T.nn.Linear(2, 2)
        layer.register_forward_hook(log.hook)
        call = T.compile(layer) if compiled else layer
        values = [call(T.ones(1, 2)) for _ in range(4)]
        log.scale = 5.0
        values.append(call(T.ones(1, 2)))
        found.append((len(log.seen), np.array([v.tolist() for v in values])))
    assert found[0][0] == found[1][0] == 5
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)


def test_the_state_of_a_descriptor_is_read() -> None:
    class Descriptor:
        def __init__(self) -> None:
            self.value = 2.0

        def __get__(self, instance: Any, owner: Any = None) -> float:
            return self.value

    class Owner:
        k = Descriptor()

    o, descriptor = Owner(), Owner.__dict__["k"]
    same(lambda x: x * o.k, lambda: setattr(descriptor, "value", 5.0))


def test_a_descriptor_that_is_removed_uncovers_the_instance() -> None:
    class Descriptor:
        def __get__(self, instance: Any, owner: Any = None) -> float:
            return 40.0

        def __set__(self, instance: Any, value: Any) -> None:
            raise AssertionError

    class Owner:
        k = Descriptor()

    o = Owner()
    o.__dict__["k"] = 1.0
    same(lambda x: x * o.k, lambda: delattr(Owner, "k"))


def test_attributes_of_a_metaclass_are_read() -> None:
    class Meta(type):
        o: Any

    class Owner(metaclass=Meta):
        pass

    Meta.o = Object()
    same(lambda x: x * Owner.o.k, lambda: setattr(Meta.o, "k", 5.0))


def test_data_found_by_super_is_read() -> None:
    o = Object()

    class Base:
        settings = o

    class Derived(Base):
        def scaled(self, x: Any) -> Any:
            return x * super().settings.k

    derived = Derived()
    same(lambda x: derived.scaled(x), lambda: setattr(o, "k", 5.0))


def test_state_of_a_member_of_an_enum_is_read() -> None:
    class Level(enum.Enum):
        ONE = 1

        def __init__(self, value: int) -> None:
            self.scale = 2.0

    same(lambda x: x * Level.ONE.scale, lambda: setattr(Level.ONE, "scale", 5.0))


def test_attributes_of_a_method_s_function_are_read() -> None:
    o = Object()

    class Owner:
        def method(self) -> None:
            raise AssertionError

    Owner.method.settings = o  # type: ignore[attr-defined]
    owner = Owner()
    same(lambda x: x * owner.method.settings.k, lambda: setattr(o, "k", 5.0))  # type: ignore[attr-defined]


def test_a_module_that_learns_to_answer_is_asked() -> None:
    module = types.ModuleType("answering")
    same(lambda x: x * getattr(module, "missing", 1.0), lambda: setattr(module, "__getattr__", lambda name: 8.0))


def test_the_context_of_decimals_counts() -> None:
    context = decimal.getcontext()
    before = context.prec
    try:
        same(lambda x: x * float(decimal.Decimal(1) / decimal.Decimal(3)), lambda: setattr(context, "prec", 2))
    finally:
        context.prec = before


def test_lambdas_in_one_line_are_told_apart() -> None:
    table = {"a": lambda n: 0.5, "b": lambda n: 0.25}
    replayed(same(lambda x: x * table["b"](0)))
    kinds = {"a": lambda: 1, "b": lambda: 1.0, "c": lambda: True}
    replayed(same(lambda x: (x, kinds["b"]())))
    replayed(same(lambda x: (x, {"a": lambda: 0.0, "b": lambda: -0.0}["b"]())))


def test_a_function_put_into_a_new_dictionary_is_the_same_function() -> None:
    def function(v: Any) -> Any:
        return v

    same(lambda x: ((lambda d: (d.update(a=function), d["a"] is function)[1])({}), x))


def test_a_function_given_as_default_is_the_same_function() -> None:
    def function(v: Any) -> Any:
        return v

    same(lambda x: (max([], default=function) is function, x))


def test_elements_of_a_deque_are_followed() -> None:
    o = Object()
    queue = collections.deque([o])
    same(lambda x: x * sum([q.k for q in queue]), lambda: setattr(o, "k", 5.0))
    for kind in (collections.deque, Queue):
        numbers = kind([2.0])
        same(lambda x, n=numbers: x * n[0], lambda n=numbers: n.appendleft(7.0))


class Queue(collections.deque[float]):
    pass


def test_the_stride_of_a_dimension_of_one_is_that_of_this_call() -> None:
    other = T.from_numpy(np.zeros((3, 1), np.float32).T)
    same_for(lambda x: (x * 2, tuple(x.stride())), (T.ones(1, 3),), (other,))


def test_attributes_of_what_the_run_has_not_made_are_set_each_time() -> None:
    box = types.SimpleNamespace()

    def program(x: Any) -> Any:
        box.y = x * 2
        return box.y

    fn = T.compile(program)
    for k in range(6):
        assert fn(T.ones(2) * k).tolist() == [2.0 * k] * 2


def test_what_finally_does_after_return_is_done_each_time() -> None:
    done: list[int] = []

    def program(x: Any) -> Any:
        try:
            return x * 2
        finally:
            done.append(1)

    fn = T.compile(program)
    for _ in range(6):
        fn(T.ones(2))
    assert len(done) == 6


# -- errors, and stand-ins of numbers
def test_gradients_of_products_with_members_of_an_enum() -> None:
    class Factor(enum.IntEnum):
        TWO = 2

    fn = T.compile(lambda x: x * Factor.TWO)
    for _ in range(3):
        x = T.ones(2, requires_grad=True)
        fn(x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]


def test_an_item_of_what_has_none_is_a_type_error() -> None:
    o = Object()

    def program(x: Any) -> Any:
        try:
            return x * o[0]  # type: ignore[index]
        except TypeError as error:
            return x, str(error)

    same(program)


class Pair(tuple[float, ...]):
    def __new__(cls, *values: float) -> Pair:
        return tuple.__new__(cls, values)


class Real(float):
    def __new__(cls, value: float) -> Real:
        return super().__new__(cls, value)


def test_numbers_in_classes_of_the_program_and_of_c_are_numbers() -> None:
    numbers = array.array("d", [2.0])
    record = collections.namedtuple("record", "a b")(1.0, 2.0)
    same(lambda x: x * numbers[0], lambda: numbers.append(1.0))
    same(lambda x: x * record._replace(a=3.0).a)
    same(lambda x: x * Pair(1.0, 2.0)[1])
    same(lambda x: x * Real(2.0))
    same(lambda x, k: x * Pair(1.0, k)[1] * Real(k), args=(T.ones(2), 3.0))


def test_an_iterator_with_a_sentinel() -> None:
    same(lambda x: x * sum(iter(lambda it=iter([1, 2, 3]): next(it), 3)))  # type: ignore[misc]  # noqa: B008


def test_a_name_that_is_no_string() -> None:
    o = Object()
    same(lambda x: x * getattr(o, 1, 2))  # type: ignore[call-overload]


def test_texts_of_type_errors_are_python_s() -> None:
    def program(x: Any, k: Any) -> Any:
        try:
            return len(k)
        except TypeError as error:
            return str(error)

    same(program, args=(T.ones(2), 5))


def test_the_dtype_of_a_gradient_does_not_come_from_numpy_s_scalars() -> None:
    k = np.sqrt(2)
    for function in (lambda x: x * k, T.compile(lambda x: x * k)):
        x = T.ones(2, requires_grad=True)
        for _ in range(3):
            function(x).sum().backward()
        assert x.grad.dtype is T.float32


def test_a_scatter_beyond_the_end_raises_what_eager_raises() -> None:
    def program(x: Any) -> Any:
        return x.slice_scatter(x.narrow(0, 0, 1), 0, 1, 2)

    x = T.ones(1, 2, requires_grad=True)
    fn = T.compile(program)
    for _ in range(3):
        found = seen(fn, (x,))
        assert found == seen(program, (x,)) and found[0] is RuntimeError


def test_operations_on_what_is_rare_have_programs() -> None:
    bools = T.tensor([True, False, True])

    def assigned(x: Any, v: Any) -> Any:
        y = x.clone()
        y[[0]] = v
        return y

    replayed(same(lambda a: a.select_scatter(a.select(0, 0) * 2, 0, 1), args=(bools,)))
    replayed(same(assigned, args=(T.ones(3, 2), T.zeros(1, 1, 1, 2))))
    replayed(same(lambda x: x.relu(), args=(bools,)))


def test_other_sizes_leave_the_interpreted_graph_too() -> None:
    with override(backend="interpret"):
        replayed(same_for(lambda x: x.nonzero(), (T.tensor([1.0, 0.0]),), (T.tensor([1.0, 1.0]),)))


# -- what happens in the middle, and what is kept
def child(*lines: str, **environment: str) -> str:
    """What a process of its own prints."""
    text = "\n".join(("import tracejit as T", *lines))
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-X", "faulthandler", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_debug_output_shows_programs_with_parameters() -> None:
    lines = ["m = T.nn.Linear(3, 3)", "f = T.compile(lambda x: m(x))", "f(T.ones(2, 3)); f(T.ones(2, 3)); print('fine')"]
    assert child(*lines, TRACEJIT_DEBUG="2") == "fine"


def test_tensors_in_callbacks_of_the_collector_are_tensors_during_backward() -> None:
    kinds: set[str] = set()

    def callback(phase: str, info: Any) -> None:
        kinds.add(type((T.ones(3, 3) * 2).sum()).__name__)

    threshold = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(2)
    try:
        w = T.ones(3, 3, requires_grad=True)
        for _ in range(100):
            ((w * 2).tanh()[0] + w.exp().sum() + (w @ w)[1]).sum().backward()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
    assert kinds == {"Tensor"}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")
def test_signal_handlers_that_compute_with_tensors_disturb_nothing() -> None:
    bad: list[BaseException] = []
    ran = [0]

    def handler(number: int, frame: Any) -> None:
        ran[0] += 1
        try:
            (T.ones(3, 3) * 2).sum()
        except BaseException as error:
            bad.append(error)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
    try:
        w = T.ones(3, 3)
        fn = T.compile(lambda w: (w @ w).tanh() * 2)
        expected = ((w @ w).tanh() * 2).tolist()
        for _ in range(20000):
            if ran[0] > 50:
                break
            assert fn(w).tolist() == expected and ((w @ w).tanh() * 2).tolist() == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert bad == [] and ran[0] > 0


def test_functions_are_recorded_after_an_interrupted_recording() -> None:
    interrupting = [True]

    def interrupt() -> None:
        if interrupting[0]:
            raise KeyboardInterrupt

    def program(x: Any) -> Any:
        interrupt()
        return x * 2

    fn = T.compile(program)
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            fn(T.ones(2))
    interrupting[0] = False
    replayed(same(lambda x: x * 3))
    for _ in range(4):
        assert fn(T.ones(2)).tolist() == [2.0, 2.0]
    replayed(fn)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")
def test_errors_of_signal_handlers_are_raised_wherever_they_come() -> None:
    class Stop(Exception):
        pass

    sent, caught = [0], 0

    def handler(number: int, frame: Any) -> None:
        sent[0] += 1
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    gc.disable()  # what is raised in a callback of the collector, as other libraries have them, is lost to everyone
    try:
        for i in range(60):
            k = float(i)
            fn = T.compile(lambda x, k=k: (x * k + 1).tanh().sum())
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0004 + i * 1e-4)
                fn(T.ones(3))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                caught += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert caught == sent[0] > 0


def test_a_model_dies_although_a_parameter_of_its_leads_to_it() -> None:
    class Model:
        pass

    fn = T.compile(lambda m, x: x * m.a * m.b + m.c)
    model: Any = Model()
    model.a, model.b, model.c = T.nn.Parameter(T.ones(3)), T.ones(3), T.ones(3)
    for _ in range(10):
        fn(model, T.ones(3))
    replayed(fn)
    model.a.owner = model
    known = weakref.ref(model)
    del model
    gc.collect()
    assert known() is None


def test_writes_by_way_of_numpy_are_seen_by_neither_tape() -> None:
    """docs/equality.md: what is changed behind the tape's back between forward and backward."""
    w = T.ones(2).requires_grad_(True)
    fn = T.compile(lambda x: (x * w).exp())
    for function in (lambda x: (x * w).exp(), fn, fn, fn):
        memory = np.array([0.1, 0.2], np.float32)
        y = function(T.from_numpy(memory))
        memory[:] = 3
        y.sum().backward()  # no error: the version of the tensor has not moved
    replayed(fn)
