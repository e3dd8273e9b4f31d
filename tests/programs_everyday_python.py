"""Features of Python that everyday programs use.  See everyday_programs.py."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
from dataclasses import dataclass, field, replace

from everyday_programs import everyday, inputs, mlp, on_batches, on_inputs

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def dataclass_made_inside():
    @dataclass
    class Metrics:
        loss: float
        correct: int
        total: int
        parts: list = field(default_factory=list)

        @property
        def accuracy(self):
            return self.correct / self.total

        def __add__(self, other):
            return Metrics(
                self.loss + other.loss, self.correct + other.correct, self.total + other.total, self.parts + other.parts
            )

    model = mlp()

    def evaluate(x, y):
        total = Metrics(0.0, 0, 0)
        for xb, yb in zip(x.split(4), y.split(4)):
            logits = model(xb)
            total += Metrics(F.cross_entropy(logits, yb).item(), int((logits.argmax(1) == yb).sum()), len(yb), ["part"])
        return total, total.accuracy

    return evaluate, on_batches(), None


@everyday()
def frozen_dataclass_replaced():
    @dataclass(frozen=True)
    class State:
        position: T.Tensor
        velocity: T.Tensor
        time: float = 0.0

        def step(self, force, dt=0.1):
            v = self.velocity + dt * force
            return replace(self, position=self.position + dt * v, velocity=v, time=self.time + dt)

    def simulate(x):
        s = State(x, T.zeros_like(x))
        for _ in range(3):
            s = s.step(-s.position)
        return s

    return simulate, on_inputs(4, 2), None


@everyday()
def dataclass_with_slots_and_post_init():
    @dataclass(slots=True)
    class Box:
        low: T.Tensor
        high: T.Tensor
        area: T.Tensor = field(init=False)

        def __post_init__(self):
            self.area = (self.high - self.low).prod(-1)

    def iou(a, b):
        p, q = Box(a - 1, a + 1), Box(b - 1, b + 1)
        overlap = (T.minimum(p.high, q.high) - T.maximum(p.low, q.low)).clamp(min=0).prod(-1)
        return overlap / (p.area + q.area - overlap)

    return iou, [lambda f, i=i: f(inputs(i, 5, 2), inputs(i + 9, 5, 2)) for i in range(8)], None


@everyday()
def dataclass_taken_apart():
    @dataclass
    class Config:
        width: int = 16
        gain: float = 0.5
        names: tuple = ("a", "b")

    config = Config()

    def forward(x):
        options = dataclasses.asdict(config)
        fields = [f.name for f in dataclasses.fields(config)]
        return x[:, : options["width"]] * options["gain"], fields

    return forward, on_inputs(), None


@everyday()
def configuration_by_enumeration():
    class Reduction(enum.Enum):
        MEAN = "mean"
        SUM = "sum"

        @classmethod
        def of(cls, name):
            return cls(name)

    def loss(x, how="mean"):
        kind = Reduction.of(how)
        return x.mean() if kind is Reduction.MEAN else x.sum(), kind.name

    return loss, on_inputs(), None


@everyday()
def decorated_with_counting():
    calls = {}

    def counted(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            calls[f.__name__] = calls.get(f.__name__, 0) + 1
            return f(*args, **kwargs)

        return wrapper

    calls["forward"] = 0
    model = mlp()

    @counted
    def forward(x, scale=1.0):
        return model(x) * scale

    return (lambda x: forward(x, scale=2.0)), on_inputs(), lambda: calls


@everyday()
def partials_and_reduce():
    model = mlp()
    smooth = functools.partial(F.cross_entropy, label_smoothing=0.1)
    compose = lambda *fs: functools.reduce(lambda f, g: lambda v: g(f(v)), fs)

    def loss(x, y):
        logits = compose(model, T.tanh, lambda t: t * 2)(x)
        return smooth(logits, y), functools.reduce(lambda a, b: a + b, [p.sum() for p in model.parameters()])

    return loss, on_batches(), None


@everyday()
def memoized_constants():
    @functools.lru_cache(maxsize=None)
    def window(n):
        return T.arange(n).float() / n

    window(16)

    def forward(x):
        return x * window(x.size(1))

    return forward, on_inputs(), None


@everyday()
def cached_property_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 5)

        @functools.cached_property
        def scale(self):
            return self.fc.in_features**-0.5

        def forward(self, x):
            return self.fc(x) * self.scale

    model = Net()
    model.scale
    return model, on_inputs(), lambda: model.scale


@everyday(recordings=2)
def dispatch_on_type():
    @functools.singledispatch
    def size(value):
        return 1

    @size.register
    def _(value: list):
        return sum(size(v) for v in value)

    @size.register(T.Tensor)
    def _(value):
        return value.numel()

    return (lambda x: x / size([x, 3, [x]])), on_inputs(), None


@everyday()
def descriptor_of_ones_own():
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner=None):
            return self if instance is None else getattr(instance, self.name)

        def __set__(self, instance, value):
            if value <= 0:
                raise ValueError(f"{self.name[1:]} must be positive")
            setattr(instance, self.name, value)

    class Kernel:
        scale, length = Positive(), Positive()

        def __init__(self, scale, length):
            self.scale, self.length = scale, length

        def __call__(self, a, b):
            return self.scale**2 * T.exp(-0.5 * T.cdist(a, b) ** 2 / self.length**2)

    kernel = Kernel(1.5, 0.7)

    def gram(x):
        kernel.length = 0.8
        return kernel(x, x)

    return gram, on_inputs(6, 2), lambda: vars(kernel)


@everyday()
def property_with_a_setter():
    class Schedule:
        def __init__(self):
            self._step = 0

        @property
        def step(self):
            return self._step

        @step.setter
        def step(self, value):
            self._step = value

        @property
        def beta(self):
            return 1.0 - 0.9**self._step

    schedule = Schedule()

    def forward(x):
        schedule.step += 1
        return x * schedule.beta

    return forward, on_inputs(), lambda: vars(schedule)


@everyday()
def abstract_strategy():
    class Policy(abc.ABC):
        registry = {}

        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            Policy.registry[cls.__name__.lower()] = cls

        @abc.abstractmethod
        def act(self, q): ...

    class Greedy(Policy):
        def act(self, q):
            return q.argmax(-1)

    class Boltzmann(Policy):
        def __init__(self, temperature=2.0):
            self.temperature = temperature

        def act(self, q):
            return (q / self.temperature).softmax(-1)

    policies = [Policy.registry[name]() for name in ("greedy", "boltzmann")]
    return (lambda x: [p.act(x) for p in policies if isinstance(p, Policy)]), on_inputs(), None


@everyday()
def objects_with_operators():
    class Dual:
        __slots__ = ("eps", "real")

        def __init__(self, real, eps=0.0):
            self.real, self.eps = real, eps

        def __add__(self, other):
            other = other if isinstance(other, Dual) else Dual(other)
            return Dual(self.real + other.real, self.eps + other.eps)

        def __mul__(self, other):
            other = other if isinstance(other, Dual) else Dual(other)
            return Dual(self.real * other.real, self.real * other.eps + self.eps * other.real)

        __radd__, __rmul__ = __add__, __mul__

        def __repr__(self):
            return "Dual"

    def derivative(x):
        d = Dual(x, 1.0)
        y = 3 * d * d + d * 2 + 1
        return y.real, y.eps

    return derivative, on_inputs(), None


@everyday()
def dataset_protocol():
    class Pairs:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            if i >= len(self):
                raise IndexError(i)
            return self.x[i], self.y[i]

        def __contains__(self, i):
            return 0 <= i < len(self)

    def total(x, y):
        pairs = Pairs(x, y)
        return sum((a.sum() * b for a, b in pairs), 0.0), len(pairs), 3 in pairs

    return total, on_batches(), None


@everyday()
def iterator_of_ones_own():
    class Windows:
        def __init__(self, x, size):
            self.x, self.size, self.at = x, size, 0

        def __iter__(self):
            self.at = 0
            return self

        def __next__(self):
            if self.at + self.size > len(self.x):
                raise StopIteration
            self.at += 1
            return self.x[self.at - 1 : self.at - 1 + self.size]

    return (lambda x: T.stack([w.mean(0) for w in Windows(x, 3)])), on_inputs(), None
