"""Control flow of everyday programs.  See everyday_programs.py."""

from __future__ import annotations

import contextlib
import itertools
import math
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from everyday_programs import batch, everyday, inputs, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def match_on_a_name():
    def act(x, kind):
        match kind:
            case "relu":
                return x.relu()
            case "gelu" | "silu":
                return F.gelu(x)
            case _:
                raise ValueError(kind)

    return (lambda x: act(x, "relu") + act(x, "silu")), on_inputs(), None


@everyday()
def match_on_structure():
    @dataclass
    class Scale:
        by: float

    @dataclass
    class Shift:
        by: float
        times: int = 1

    plan = [Scale(2.0), Shift(1.0, times=2), {"clip": 3.0}, ("pow", 2)]

    def apply(x):
        for step in plan:
            match step:
                case Scale(by=k):
                    x = x * k
                case Shift(by=k, times=n) if n > 1:
                    x = x + k * n
                case {"clip": limit}:
                    x = x.clamp(-limit, limit)
                case (name, exponent) if name == "pow":
                    x = x**exponent
        return x

    return apply, on_inputs(), None


@everyday()
def walrus_in_a_loop():
    def halve(x):
        n = 0
        while (n := n + 1) < 4 and (size := x.size(0)) > 1:
            x = x[: size // 2] + x[size // 2 :]
        return x, n

    return halve, on_inputs(), None


@everyday(recordings=8)
def loop_until_convergence():
    def iterate(a):
        x, n = T.ones(4), 0
        while True:
            new = T.cos(x) * a
            n += 1
            if (new - x).abs().max() < 1e-2 or n > 50:
                break
            x = new
        return x, n

    return iterate, [lambda f, i=i: f(T.tensor(0.1 + 0.02 * i)) for i in range(4)] * 4, None


@everyday(recordings=2)
def branch_on_the_loss():
    model = mlp()

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        if loss > 1.7:
            return loss * 2, "large"
        elif loss.item() < 0:
            return loss, "negative"
        else:
            return loss, "small"

    return step, on_batches(16), None


@everyday()
def try_except_finally():
    model, table, log = mlp(), {"a": 1.0}, []

    def forward(x):
        try:
            scale = table["b"]
        except KeyError as error:
            scale = table["a"]
            log.append(f"no {error}")
        else:
            scale = 0.0
        finally:
            log.append("done")
        return model(x) * scale

    return forward, on_inputs(), lambda: log


@everyday()
def mode_restored_in_finally():
    model = nn.Sequential(nn.Linear(16, 4), nn.Dropout(0.5))

    def evaluate(x):
        was = model.training
        model.eval()
        try:
            with T.no_grad():
                return model(x)
        finally:
            model.train(was)

    return evaluate, on_inputs(), lambda: [m.training for m in model.modules()]


@everyday()
def mode_as_a_context_manager():
    @contextmanager
    def evaluating(net):
        was = net.training
        try:
            net.eval()
            yield net
        finally:
            if was:
                net.train()

    model = nn.Sequential(nn.Linear(16, 4), nn.Dropout(0.5))

    def evaluate(x):
        with evaluating(model) as net:
            a = net(x)
        return a, model.training

    return evaluate, on_inputs(), lambda: [m.training for m in model.modules()]


@everyday()
def context_manager_of_ones_own():
    class Frozen:
        def __init__(self, module):
            self.parameters = list(module.parameters())

        def __enter__(self):
            self.flags = [p.requires_grad for p in self.parameters]
            for p in self.parameters:
                p.requires_grad_(False)
            return self

        def __exit__(self, kind, error, traceback):
            for p, flag in zip(self.parameters, self.flags):
                p.requires_grad_(flag)

    critic, actor = mlp(5, 8, 1), mlp(16, 8, 5)

    def loss(x):
        with Frozen(critic):
            value = critic(actor(x)).mean()
            value.backward()
        return value.detach(), [p.grad.norm() for p in actor.parameters()], [p.grad for p in critic.parameters()]

    def call(i):
        def calling(f):
            actor.zero_grad()
            return f(inputs(i))

        return calling

    return loss, [call(i) for i in range(8)], lambda: [p.requires_grad for p in critic.parameters()]


@everyday()
def timer_like_context_manager():
    class Section:
        depth = 0

        def __init__(self, name, log):
            self.name, self.log = name, log

        def __enter__(self):
            type(self).depth += 1
            self.log.append(("enter", self.name))

        def __exit__(self, *exc):
            type(self).depth -= 1
            self.log.append(("exit", self.name, exc[0] is None))
            return False

    log = []

    def forward(x):
        with Section("outer", log), Section("inner", log):
            y = x.tanh()
        return y * 2

    return forward, on_inputs(), lambda: (log, Section.depth)


@everyday()
def optional_contexts():
    model = mlp()

    def forward(x, mixed=False, train=False):
        with ExitStack() as stack:
            stack.enter_context(T.autocast("cpu", dtype=T.bfloat16) if mixed else nullcontext())
            stack.enter_context(T.enable_grad() if train else T.no_grad())
            with suppress(KeyError):
                x = x * {}["scale"]
            out = model(x)
        return out

    return forward, on_inputs(), None


@everyday(recordings=2)
def set_grad_enabled_by_phase():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def both(x, y):
        out = {}
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            optimizer.zero_grad()
            with T.set_grad_enabled(phase == "train"):
                outputs = model(x)
                _, preds = T.max(outputs, 1)
                loss = F.cross_entropy(outputs, y)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
            out[phase] = loss.item() * x.size(0), T.sum(preds == y.data).item()
        return out

    return both, on_batches(), state(model)


@everyday()
def recursion_over_a_tree():
    cell = nn.Linear(32, 16)
    tree = ((0, 1), (2, (3, 4)))

    def encode(node, x):
        if isinstance(node, int):
            return x[node]
        left, right = (encode(child, x) for child in node)
        return T.tanh(cell(T.cat([left, right])))

    return (lambda x: encode(tree, x)), on_inputs(), None


@everyday()
def recursion_over_structure():
    def scaled(value, k):
        if isinstance(value, dict):
            return {name: scaled(v, k) for name, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(scaled(v, k) for v in value)
        return value * k

    return (lambda x: scaled({"a": [x, x + 1], "b": (x.sum(), {"c": 2})}, 3)), on_inputs(), None


@everyday()
def generator_of_batches():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def data_iter(size, x, y):
        for i in range(0, len(x), size):
            yield x[i : i + size], y[i : i + size]

    def epoch(x, y):
        metric = [0.0, 0]
        for xb, yb in data_iter(4, x, y):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metric[0] += float(loss) * len(yb)
            metric[1] += yb.numel()
        return metric[0] / metric[1]

    return epoch, [lambda f, i=i: f(*batch(i, 12)) for i in range(8)], state(model)


@everyday()
def generator_that_is_sent_to():
    def averager():
        total, n, mean = 0.0, 0, None
        while True:
            value = yield mean
            total, n = total + value, n + 1
            mean = total / n

    def forward(x):
        a = averager()
        next(a)
        out = [a.send(row) for row in x.unbind(0)]
        a.close()
        return T.stack(out)

    return forward, on_inputs(), None


@everyday()
def delegating_generator():
    def leaves(value):
        if isinstance(value, (list, tuple)):
            for v in value:
                yield from leaves(v)
        else:
            yield value

    return (lambda x: sum(t.mean() for t in leaves([x, (x * 2, [x * 3])]))), on_inputs(), None


@everyday()
def loops_with_else_break_and_continue():
    def find(x):
        for i in range(x.size(1)):
            if i % 3 == 0:
                continue
            if i > 10:
                break
            x = x + i
        else:
            x = -x
        k = 0
        while k < 3:
            k += 1
        else:
            x = x * k
        return x

    return find, on_inputs(), None


@everyday()
def early_return_by_shape():
    model = mlp()

    def forward(x, mask=None):
        if x.numel() == 0:
            return None
        if x.dim() == 1:
            x = x.unsqueeze(0)
        assert x.shape[-1] == 16, f"expected 16 features, got {tuple(x.shape)}"
        return model(x) if mask is None else model(x * mask)

    return forward, on_inputs(), None


@everyday()
def checked_then_raised():
    model = mlp()

    def loss(x, y):
        value = F.cross_entropy(model(x), y)
        if T.isnan(value):
            raise ValueError("nan")
        if not math.isfinite(value.item()):
            print(f"Loss is {value.item()}, stopping training")
            raise SystemExit(1)
        assert value.ndim == 0 and value >= 0
        return value

    return loss, on_batches(), None


@everyday(recordings=2)
def evaluation_every_few_steps():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    validation = batch(99)
    log = []

    def train(x, y, step, interval=4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % interval == 0:
            with T.no_grad():
                val = F.cross_entropy(model(validation[0]), validation[1]).item()
            print(f"step {step}: train loss {loss.item():.2f}, val loss {val:.2f}")
            log.append(val)

    return train, [lambda f, i=i: f(*batch(i), i) for i in range(8)], lambda: (log, state(model)())


@everyday()
def functions_in_a_table():
    activations = {"relu": F.relu, "tanh": T.tanh, "swish": lambda t: t * t.sigmoid(), "none": None}
    order = ["swish", "none", "tanh"]

    def forward(x):
        for name in order:
            if (f := activations[name]) is not None:
                x = f(x)
        return x

    return forward, on_inputs(), None


@everyday(recordings=2)
def metropolis_step():
    current = T.zeros(3)
    accepted = 0

    def log_prob(z):
        return -0.5 * (z**2).sum()

    def sample(noise, log_u):
        nonlocal accepted
        proposal = current + 0.5 * noise
        ratio = log_prob(proposal) - log_prob(current)
        take = (log_u < ratio).float()
        current.copy_(take * proposal + (1 - take) * current)
        accepted += take.item()
        return accepted

    return sample, [lambda f, i=i: f(inputs(i, 3), T.log(inputs(i, 1).sigmoid())) for i in range(8)], lambda: current


@everyday()
def grid_of_settings():
    def search(x):
        best = {}
        for lr, decay in itertools.product([0.1, 0.01], (0.0, 0.5)):
            best[f"lr={lr},decay={decay}"] = ((x * lr - decay) ** 2).mean()
        return best

    return search, on_inputs(), None


@everyday()
def redirected_text():
    def report(x):
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: print("closed"))
            print("mean", round(x.mean().item(), 1))
        return x + 1

    return report, on_inputs(), None
