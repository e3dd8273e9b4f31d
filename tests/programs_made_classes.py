"""Class statements in compiled functions: Functions of autograd, modules, dataclasses and plain classes.  See capture_programs.py."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import functools
import math
from dataclasses import dataclass

from registered_programs import Box, over, program, with_change, x

import tracejit as T
from tracejit import nn
from tracejit.utils.checkpoint import checkpoint

FACTOR = 3.0


def leaf(*values):
    return T.tensor(values).requires_grad_()


def over_leaves(fn, *arguments):
    """Calls with a leaf each, which give what `fn` gives and the gradient."""

    def call(f, k, given):
        a = leaf(1.0 + k, -2.0, 0.5 * k)
        return f(a, *given), a.grad

    return fn, [functools.partial(call, k=k, given=given) for k, given in enumerate(arguments)], None


@program()
def function_of_autograd():
    def fn(a):
        class Double(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                return v * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        return Double.apply(a)

    return fn, [lambda f, k=k: f(x(1, 2 + k)) for k in range(4)], None


@program()
def function_that_saves_and_closes_over_numbers():
    def fn(a, n):
        class Power(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                ctx.save_for_backward(v)
                ctx.k = n + 1
                return v**n

            @staticmethod
            def backward(ctx, g):
                (v,) = ctx.saved_tensors
                return g * n * v ** (n - 1) * ctx.k

        y = Power.apply(a).sum()
        y.backward()
        return y.detach()

    return over_leaves(fn, (2.0,), (3.0,), (4.0,))


@program()
def functions_of_autograd_one_for_each_loop_value():
    def fn(a, scales):
        total = a.sum() * 0
        for scale in scales:

            class Scaled(T.autograd.Function):
                @staticmethod
                def forward(ctx, v, w):
                    ctx.save_for_backward(v, w)
                    return v * w * scale

                @staticmethod
                def backward(ctx, g):
                    v, w = ctx.saved_tensors
                    return g * w * scale if ctx.needs_input_grad[0] else None, g * v * scale if ctx.needs_input_grad[1] else None

            total = total + Scaled.apply(a, a.detach() + 1).sum()
        total.backward()
        return total.detach()

    return over_leaves(fn, ([1.0, 2.0, 3.0],), ([4.0, 5.0, 6.0],), ([7.0, 8.0, 9.0],))


@program()
def function_differentiated_twice():
    def fn(a, n):
        class Cube(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                ctx.save_for_backward(v)
                return v**3 * n

            @staticmethod
            def backward(ctx, g):
                (v,) = ctx.saved_tensors
                return 3 * g * v**2 * n

        y = Cube.apply(a).sum()
        (g,) = T.autograd.grad(y, a, create_graph=True)
        (h,) = T.autograd.grad((g**2).sum(), a)
        return y.detach(), g.detach(), h

    return over_leaves(fn, (2.0,), (3.0,), (0.5,))


def adjoint(field, times):
    """What neural differential equations do: a solver whose backward pass solves another equation."""

    class Adjoint(T.autograd.Function):
        @staticmethod
        def forward(ctx, state, *parameters):
            with T.no_grad():
                for dt in times:
                    state = state + dt * field(state)
            ctx.save_for_backward(state, *parameters)
            return state

        @staticmethod
        def backward(ctx, g):
            state, *parameters = ctx.saved_tensors
            found = [T.zeros_like(p) for p in parameters]
            for dt in reversed(times):
                with T.enable_grad():
                    given = state.detach().requires_grad_()
                    slope = field(given)
                    gradients = T.autograd.grad(slope, (given, *parameters), g)
                state = state - dt * slope.detach()
                g = g + dt * gradients[0]
                found = [old + dt * new for old, new in zip(found, gradients[1:], strict=True)]
            return g, *found

    return Adjoint


@program()
def adjoint_made_by_a_helper():
    weight = leaf(0.5, 1.5, -1.0)

    def fn(a, times):
        def field(state):
            return (state * weight).tanh()

        y = adjoint(field, times).apply(a, weight).sum()
        y.backward()
        found, weight.grad = weight.grad, None
        return y.detach(), found

    return over_leaves(fn, ([0.1, 0.2],), ([0.3, 0.1],), ([0.2, 0.2],))


@program()
def adjoint_of_a_module():
    class Solver(nn.Module):
        def __init__(self):
            super().__init__()
            T.manual_seed(0)
            self.field = nn.Linear(3, 3)
            self.times = [0.1, 0.2, 0.1]

        def forward(self, state):
            return adjoint(self.field, self.times).apply(state, *self.field.parameters())

    solver = Solver()

    def fn(a, k):
        solver.zero_grad()
        (solver(a) * k).sum().backward()
        return [p.grad.clone() for p in solver.parameters()]

    def slower(f):
        solver.times[1] = 0.4
        return f(leaf(1.0, 2.0, 3.0), 3.0)

    function, calls, observe = over_leaves(fn, (1.0,), (2.0,))
    return function, [*calls, slower], observe


@program()
def functions_of_autograd_that_call_each_other():
    def fn(a, n):
        class Inner(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                return v.exp() * n

            @staticmethod
            def backward(ctx, g):
                return g * n

        class Outer(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                return Inner.apply(v) + 1

            @staticmethod
            def backward(ctx, g):
                return Inner.apply(g) * 2

        y = Outer.apply(Inner.apply(a)).sum()
        y.backward()
        return y.detach()

    return over_leaves(fn, (2.0,), (3.0,), (0.5,))


@program()
def function_with_a_setup_of_its_context():
    def fn(a, n):
        class Shifted(T.autograd.Function):
            @staticmethod
            def forward(v, k):
                return v * k

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.k = inputs[1]
                ctx.set_materialize_grads(False)

            @staticmethod
            def backward(ctx, g):
                return g * ctx.k, None

        y = Shifted.apply(a, n).sum()
        y.backward()
        return y.detach()

    return over_leaves(fn, (2.0,), (3.0,), (0.5,))


@program()
def function_with_a_forward_pass_under_autocast():
    def fn(a, n):
        class Scaled(T.autograd.Function):
            @staticmethod
            @T.amp.custom_fwd(device_type="cpu", cast_inputs=T.float32)
            def forward(ctx, v):
                ctx.save_for_backward(v)
                return v * n

            @staticmethod
            @T.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g):
                (v,) = ctx.saved_tensors
                return g * n + v

        y = Scaled.apply(a).sum()
        with T.autocast("cpu"):
            y = y + Scaled.apply(a * 2).sum()
        y.backward()
        return y.detach()

    return over_leaves(fn, (2.0,), (3.0,), (0.5,))


@program()
def function_differentiable_once():
    def fn(a, n):
        class Once(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                ctx.save_for_backward(v)
                return v * n

            @staticmethod
            @T.autograd.function.once_differentiable
            def backward(ctx, g):
                (v,) = ctx.saved_tensors
                return g * n + v

        y = Once.apply(a).sum()
        y.backward()
        return y.detach()

    return over_leaves(fn, (2.0,), (3.0,), (0.5,))


@program()
def class_made_inside_sees_plain_numbers():
    def fn(a, n, *rest):
        m = n + 1

        class C(Box):
            k = n
            kinds = [type(n).__name__, type(m).__name__, [type(r).__name__ for r in rest]]

            def get(self):
                return type(n).__name__, type(m).__name__

        def deco(cls):
            cls.z = n
            return cls

        @deco
        class D(C, metaclass=type):
            pass

        return a * C.k, C.kinds, C().get(), type(D.z).__name__, a * D.z

    return over(fn, (2.0, 3), (2, 5.0))


@program()
def class_with_everything_that_classes_have():
    def fn(a, n):
        class Base:
            """A document."""

            count = n + 1
            items = [1.0, n]
            table = {"n": n, "a": a}
            twice = count * 2
            area: float = 2.0

            def __init__(self, k):
                self.k = k
                self.__hidden = k * 2

            @property
            def double(self):
                return self.k * 2

            @double.setter
            def double(self, value):
                self.k = value / 2

            @classmethod
            def of(cls, k):
                return cls(k + cls.count)

            @staticmethod
            def plus(one, other):
                return one + other

            def hidden(self):
                return self.__hidden

            def __add__(self, other):
                return type(self)(self.k + other.k)

            def __len__(self):
                return 3

            def __getattr__(self, name):
                if name == "missing":
                    return self.k * 10
                raise AttributeError(name)

            plus_as_well = plus

        class Sub(Base):
            if n > 0:
                sign = 1.0
            else:
                sign = -1.0

            def __init__(self, k):
                super().__init__(k * self.sign)

            def hidden(self):
                return super().hidden() + __class__.sign

        sub = Sub(n) + Sub.of(2.0)
        sub.double = sub.double + 3
        tests = isinstance(sub, Base), issubclass(Sub, Base), type(sub) is Sub, Sub.__name__, Sub.__qualname__.split(".")[-1]
        numbers = sub.k, sub.double, sub.hidden(), Sub.plus(n, 1), sub.plus_as_well(n, 2), sub.missing, Sub.count, Sub.twice
        tail = (
            len(sub),
            Base.__doc__,
            Base.__module__ == __name__,
            [b.__name__ for b in Sub.__mro__],
            Base.__annotations__["area"],
        )
        Base.count = Sub.count + 1
        return a * sub.k + Base.table["a"], sum(Base.items), tests, numbers, tail, Sub.count, hasattr(sub, "nothing")

    return over(fn, 2.0, 5, 5.5, -4.0)


@program()
def function_of_several_outputs_that_saves_one_without_a_gradient():
    def fn(a, n):
        class Ordered(T.autograd.Function):
            @staticmethod
            def forward(ctx, v, k, name):
                ctx.k = k
                values, order = (v * k).sort()
                ctx.mark_non_differentiable(order)
                ctx.save_for_backward(order)
                return values, order

            @staticmethod
            def backward(ctx, g, _):
                (order,) = ctx.saved_tensors
                out = T.zeros_like(g)
                out[order] = g * ctx.k
                return out, None, None

        values, order = Ordered.apply(a, n, "name")
        values.cumsum(0).sum().backward()
        return values.detach(), order

    return over_leaves(fn, (2.0,), (3.0,), (-1.0,))


@program()
def function_of_autograd_under_a_checkpoint():
    def fn(a, n):
        class Scaled(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                ctx.save_for_backward(v)
                return v.exp() * n

            @staticmethod
            def backward(ctx, g):
                (v,) = ctx.saved_tensors
                return g * v.exp() * n

        y = checkpoint(lambda v: Scaled.apply(v) * v, a, use_reentrant=False).sum()
        y.backward()
        return y.detach()

    return over_leaves(fn, (2.0,), (3.0,), (-1.0,))


@program()
def class_of_special_methods():
    def fn(a, n):
        class Held:
            __slots__ = ("v",)
            first, second = n, 2

            def __init__(self, v):
                self.v = v

            def __rmul__(self, other):
                return other * self.v

            def __getitem__(self, k):
                return self.v * k

            def __call__(self, y):
                return y + self.v

            def __iter__(self):
                yield self.v
                yield n

            def __contains__(self, k):
                return k == 1

            def __neg__(self):
                return Held(-self.v)

            def __iadd__(self, other):
                self.v = self.v + other
                return self

            def __eq__(self, other):
                return self.v == other.v

            def __hash__(self):
                return 7

            def __len__(self):
                return 2

            def __format__(self, specification):
                return "held"

        held = Held(n)
        held += 1
        one, other = held
        tests = 1 in held, held == Held(n + 1), len(held), f"{held}", Held.second
        return a * held, held[3], held(a), one * other, (-held).v, tests, Held.first

    return over(fn, 2.0, 3.0, 0.5)


@program()
def class_that_makes_one_object():
    def fn(a, n):
        class One:
            known = None

            def __new__(cls, *arguments):
                if cls.known is None:
                    cls.known = super().__new__(cls)
                    cls.known.k = n
                return cls.known

            def __init__(self, *arguments):
                self.count = len(arguments)

        return a * One(1).k, One() is One(2), One.known.count

    return over(fn, 2.0, 3.0, 0.5)


@program()
def classes_that_know_each_other_and_variables_that_change():
    def fn(a, n):
        k = n

        class First:
            def make(self):
                return Second(k)

            def put(self, v):
                nonlocal k
                k = v

        class Second(First):
            __hidden = n * 2

            def __init__(self, k):
                self.k = k * self.__hidden

        before = First().make().k
        k = k + 1
        between = First().make().k
        First().put(n * 10)
        return a * before, between, k, Second._Second__hidden

    return over(fn, 2.0, 3.0, 0.5)


@program()
def dataclasses_that_are_taken_apart():
    @dataclass
    class Base:
        k: float = 1.0

    def fn(a, n):
        @dataclass(order=True, slots=True)
        class Row(Base):
            u: float = 2.0
            w: list = dataclasses.field(default_factory=list, compare=False)
            z: dataclasses.InitVar[int] = 3

            def __post_init__(self, z):
                self.u = self.u + z * n

        @dataclass
        class State:
            x: T.Tensor
            n: float = 1.0

        row, other = Row(n), Row(n, 5.0)
        state = dataclasses.replace(State(a, n), n=n * 2)
        names = [field.name for field in dataclasses.fields(State)]
        return a * row.u * row.k, row < other, row == other, row.w, state.x * state.n, dataclasses.asdict(State(1.0, 2.0)), names

    return over(fn, 2.0, 3.0, 0.5)


@program()
def made_classes_that_are_looked_for_outside():
    table, kinds = {int: 2.0, Box: 3.0}, {int, float}

    def fn(a, n):
        class Held(Box):
            pass

        held = Held(k=n)
        twin = copy.deepcopy(held)
        found = table.get(type(held), n), type(held) in table, Held in kinds, table.get(type(held).__mro__[1])
        try:
            found = *found, table[Held]
        except KeyError:
            found = *found, None
        return a * twin.k, found, twin is held

    return over(fn, 2.0, 3.0, 0.5)


@program(reason="unbuildable")
def made_class_that_becomes_a_key_outside():
    table = {int: 2.0}

    def fn(a, n):
        class Held:
            pass

        table[Held] = n
        return a * table[Held], Held in table, table.setdefault(Held, 9.0)

    return over(fn, 2.0, 3.0, 0.5)[:2] + (lambda: list(table.values()),)


@program()
def hooks_of_a_module_made_inside():
    def fn(a, n):
        class Scale(nn.Module):
            seen = []

            def forward(self, v):
                return v * n

        scale = Scale()
        scale.register_forward_hook(lambda module, given, out: module.seen.append(out) or out * 2)
        return scale(a), scale.seen, repr(scale)

    return over(fn, 2.0, 3.0, 0.5)


@program()
def class_that_cannot_be_made():
    def fn(a, n):
        try:

            class Both(int, str):
                pass

        except TypeError:
            a = a * n

        class Held:
            def get(self):
                return n

        return a * Held().get()

    return over(fn, 2.0, 3.0, 0.5)


@program()
def class_that_reads_globals_and_names_of_its_own():
    def fn(a):
        factor = 7.0

        class C:
            FACTOR = FACTOR
            factor = FACTOR * 2
            more = [v * 2 for v in (FACTOR_OF_ALL, 1.0)]

            def get(self):
                return FACTOR, factor

        return a * C.FACTOR, C.factor, C().get(), C.more

    def change(value):
        global FACTOR, FACTOR_OF_ALL
        FACTOR, FACTOR_OF_ALL = value, value * 5

    def call(f, value):
        change(value)
        return f(x(1, 2))

    return fn, [functools.partial(call, value=v) for v in (3.0, 4.0, 5.5)], None


FACTOR_OF_ALL = 1.0


@program()
def classes_made_by_helpers_whose_closures_differ():
    def make(k, v):
        class Held:
            scale = k

            def __init__(self):
                self.v = v

            def get(self):
                return self.v * k + v * self.scale

        return Held

    def fn(a, n):
        first, second = make(n, a), make(n * 2, a + 1)
        return first().get() - second().get(), first is second, first.scale + second.scale

    return over(fn, (2.0,), (3.0,), (4.5,))


@program()
def module_made_inside():
    def fn(a, n):
        class Net(nn.Module):
            depth = n

            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(3, 2)
                self.register_buffer("shift", a * n)

            def forward(self, v):
                return self.inner(v + self.shift) * self.depth

        T.manual_seed(3)
        net = Net()
        net(a).sum().backward()
        return net(a).detach(), net.inner.weight.grad, [name for name, _ in net.named_parameters()]

    return over_leaves(fn, (2.0,), (3.0,), (0.5,))


@program()
def dataclass_made_inside():
    def fn(a, n):
        @dataclass
        class State:
            x: T.Tensor
            v: float = 1.0
            seen: list = dataclasses.field(default_factory=list)

            def step(self, dt):
                return State(self.x + dt * self.v, self.v * 2, [*self.seen, self.v])

        @dataclasses.dataclass(frozen=True)
        class Step:
            dt: float
            k: int = 2

            def __post_init__(self):
                if self.dt < 0:
                    raise ValueError("dt")

        state, step = State(a), Step(n)
        for _ in range(step.k):
            state = state.step(step.dt)
        return state.x, state.v, state.seen, Step(n) == step, State(a, 2.0).v

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def dataclass_with_a_default_of_the_call():
    def fn(a, n):
        @dataclass
        class Held:
            k: float = n
            m: float = dataclasses.field(default=n * 2)

        return a * Held().k + Held().m, Held(1.0).m

    return over(fn, (2.0,), (3.0,), (2.0,), (0.5,))


@program()
def exceptions_and_context_managers_made_inside():
    def fn(a, n):
        class Low(ValueError):
            def __init__(self, k):
                super().__init__(k)
                self.k = k

        class Scaled:
            def __init__(self, k):
                self.k = k

            def __enter__(self):
                return self.k * 2

            def __exit__(self, kind, error, traceback):
                return kind is Low

        try:
            if n < 1:
                raise Low(n)
            a = a + n
        except Low as error:
            a = a - error.k
        with Scaled(n) as k:
            a = a * k
        with Scaled(n), contextlib.nullcontext():
            raise Low(n)
        return a

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def iterators_and_abstract_classes_made_inside():
    def fn(a, n):
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        class Square(Shape):
            def __init__(self, side):
                self.side = side

            def area(self):
                return self.side**2

        class Halving:
            def __init__(self, v, count):
                self.v, self.count = v, count

            def __iter__(self):
                return self

            def __next__(self):
                if not self.count:
                    raise StopIteration
                self.count -= 1
                self.v = self.v / 2
                return self.v

        return sum(Halving(a, 3)) * Square(n).area(), isinstance(Square(n), Shape), [v * 2 for v in Halving(n, 2)]

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def class_that_counts_in_a_loop():
    def make():
        class Log:
            items = []
            total = 0.0

            def add(self, v):
                self.items.append(v)
                type(self).total = type(self).total + 1

        return Log()

    def fn(a, n):
        log = make()
        for _ in range(30):
            a = a * 1.1
            log.add(a)
        return a, len(log.items), log.items[3], log.total, n

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def object_of_a_made_class_in_a_loop():
    def fn(a, n):
        class State:
            def __init__(self, v, k):
                self.v, self.k = v, k

            def step(self):
                return State(self.v * 0.9 + n, self.k + 1)

        state = State(a, 0)
        for _ in range(40):
            state = state.step()
        return state.v, state.k

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def class_in_each_step_of_a_loop():
    def fn(a, n):
        for i in range(30):

            class Step:
                k = n * i

                def run(self, v):
                    return v * 0.5 + self.k + i

            a = Step().run(a)
        return a

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def class_in_a_class():
    def fn(a, n):
        scale = n * 2

        class Outer:
            scale = 5.0

            class Inner:
                k = scale

                def get(self):
                    return scale, self.k

            inner = Inner()

        return a * Outer.Inner.k, Outer.inner.get(), Outer.scale, Outer.Inner.__qualname__.split(".")[-2:]

    return over(fn, (2.0,), (3.0,), (0.5,))


@program()
def class_whose_base_changes():
    class Base:
        k = 2.0

        def get(self):
            return self.k

    def fn(a):
        class Sub(Base):
            pass

        return a * Sub().get() * Sub.k

    return fn, with_change(lambda: setattr(Base, "k", 3.0)), None


@program()
def class_whose_base_gets_a_method():
    class Base:
        k = 2.0

    def fn(a):
        class Sub(Base):
            pass

        return a * (Sub().get() if hasattr(Sub, "get") else 1.0)

    return fn, with_change(lambda: setattr(Base, "get", lambda self: 5.0)), None


@program()
def class_kept_outside_after_the_first_call():
    kept = {}

    def fn(a, n):
        if "class" not in kept:

            class Scale:
                k = 2.0

            kept["class"] = Scale
        return a * kept["class"].k * n

    def call(f, n):
        return f(x(1, 2), n)

    fn(x(1), 1.0)
    return fn, [functools.partial(call, n=n) for n in (2.0, 3.0)], None


@program(reason="unbuildable")
def class_that_is_returned():
    def fn(a, n):
        class Scale:
            k = n

        return Scale

    return fn, [lambda f, n=n: [f(x(1), n).k, f(x(1), n) is f(x(1), n)] for n in (2.0, 3.0)], None


@program(reason="unbuildable")
def object_of_a_made_class_that_is_returned():
    def fn(a, n):
        class Scale:
            def __init__(self, k):
                self.k = k

            def get(self):
                return self.k * n * math.pi

        return Scale(a * n)

    return fn, [lambda f, n=n: f(x(1), n).get() for n in (2.0, 3.0)], None


@program(reason="unbuildable")
def method_of_a_made_class_that_is_returned():
    def fn(a, n):
        class Scale:
            @staticmethod
            def get():
                return a * n

        return Scale.get

    return fn, [lambda f, n=n: f(x(1), n)() for n in (2.0, 3.0)], None


@program(reason="unbuildable")
def class_that_is_registered():
    registry = []

    def register(cls):
        registry.append(cls)
        return cls

    def fn(a, n):
        @register
        class Scale:
            k = n

        return a * Scale.k

    return fn, [lambda f, n=n: f(x(1), n) for n in (2.0, 3.0)], lambda: [cls.k for cls in registry]


@program(reason="unbuildable")
def object_of_a_made_class_that_is_stored():
    box = Box(last=None)

    def fn(a, n):
        class Held:
            pass

        held = Held()
        held.k = n
        box.last = [held]
        return a * n

    return fn, [lambda f, n=n: f(x(1), n) for n in (2.0, 3.0)], lambda: box.last[0].k


@program(reason="class_statement")
def class_that_its_base_registers():
    registry = []

    class Base:
        def __init_subclass__(cls, **options):
            registry.append((cls.__name__, cls.k))

    def fn(a, n):
        class Sub(Base):
            k = n

        return a * Sub.k

    return fn, [lambda f, n=n: f(x(1), n) for n in (2.0, 3.0)], lambda: registry


@program(reason="class_statement")
def class_that_c_code_of_its_base_registers():
    registry = []

    class Base:
        __init_subclass__ = classmethod(registry.append)

    def fn(a, n):
        class Sub(Base):
            k = n

        return a * Sub.k

    return fn, [lambda f, n=n: f(x(1), n) for n in (2.0, 3.0)], lambda: [cls.k for cls in registry]


@program(reason="class_statement")
def class_with_a_descriptor_that_is_told_its_name():
    names = []

    class Field:
        def __set_name__(self, owner, name):
            names.append(name)

        def __get__(self, instance, owner):
            return 2.0

    def fn(a, n):
        class Row:
            first = Field()
            k = n

        return a * Row.first * Row.k

    return fn, [lambda f, n=n: f(x(1), n) for n in (2.0, 3.0)], lambda: names


@program(reason="class_statement")
def class_with_a_metaclass_of_the_program():
    made = []

    class Meta(type):
        def __new__(mcs, name, bases, namespace, **options):
            made.append((name, sorted(options)))
            return super().__new__(mcs, name, bases, namespace)

    def fn(a, n):
        class Row(metaclass=Meta, kind=1):
            k = n

        return a * Row.k

    return fn, [lambda f, n=n: f(x(1), n) for n in (2.0, 3.0)], lambda: made


@program(reason="own_backward")
def function_whose_backward_pass_comes_after_the_call():
    def fn(a, n):
        class Scaled(T.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                return v * n

            @staticmethod
            def backward(ctx, g):
                return g * n * 10

        return Scaled.apply(a)

    def call(f, n):
        a = leaf(1.0, 2.0)
        f(a, n).sum().backward()
        return a.grad

    return fn, [functools.partial(call, n=n) for n in (2.0, 3.0)], None


@program(reason="class_statement")
def class_with_a_loop_in_its_body():
    def fn(a, n):
        class Row:
            total = 0
            for i in range(3):
                total = total + i * n

        return a * Row.total

    return over(fn, (2.0,), (3.0,))


@program(reason="unknown_call")
def recording_that_stops_once_a_class_is_made():
    import sys

    def fn(a, n):
        class Held:
            k = n
            items = [n, n + 1]

            def __init__(self):
                self.k2 = self.k * 2

            def get(self):
                return type(n).__name__, type(self.k2).__name__, n * 2

        held = Held()
        a = a * sys.getsizeof(held) * 0 + a
        return a * Held.k, held.get(), type(Held.k).__name__, [type(v).__name__ for v in Held.items], sorted(Held.items)

    return over(fn, (2.0,), (3.0,))


@program(reason="unknown_call")
def recording_that_stops_in_the_body_of_a_class():
    import sys

    def fn(a, n):
        class Held:
            k = n
            size = sys.getsizeof(a) * 0 + k
            kinds = type(k).__name__, type(size).__name__

            def get(self):
                return type(n).__name__

            got = property(get)

        return a * Held.k, Held().get(), Held().got, Held.kinds, type(Held.k).__name__

    return over(fn, (2.0,), (3.0,))
