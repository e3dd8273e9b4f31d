"""Objects of everyday programs, and expressions about them.  See everyday_programs.py."""

from __future__ import annotations

import copy

from everyday_programs import batch, everyday, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def trainer_object():
    class Trainer:
        def __init__(self, model, **options):
            self.model = model
            self.optimizer = T.optim.Adam(model.parameters(), lr=options.pop("lr", 1e-2))
            self.callbacks = {"batch_end": [], "batch_start": []}
            self.iteration, self.loss = 0, None

        def on(self, event, callback):
            self.callbacks[event].append(callback)

        def trigger(self, event):
            for callback in self.callbacks.get(event, ()):
                callback(self)

        def run(self, x, y):
            self.trigger("batch_start")
            self.loss = F.cross_entropy(self.model(x), y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            self.optimizer.step()
            self.iteration += 1
            self.trigger("batch_end")

    seen = []
    trainer = Trainer(mlp(), lr=0.02)
    trainer.on("batch_end", lambda t: seen.append((t.iteration, t.loss.item())))
    trainer.loss = T.zeros(())
    return trainer.run, on_batches(), lambda: (seen, trainer.iteration, state(trainer.model)())


@everyday()
def learner_with_callbacks():
    class Callback:
        order = 0

        def __getattr__(self, name):
            if name == "learn":
                raise AttributeError(name)
            return getattr(self.learn, name)

        def before_fit(self): ...
        def after_batch(self): ...

    class Recorder(Callback):
        order = 1

        def before_fit(self):
            self.losses = []

        def after_batch(self):
            self.losses.append(self.loss.item())

    class Learner:
        def __init__(self, model, callbacks):
            self.model, self.callbacks = model, sorted(callbacks, key=lambda c: c.order)
            for c in callbacks:
                c.learn = self

        def __call__(self, event):
            for c in self.callbacks:
                getattr(c, event)()

        def fit(self, batches):
            self("before_fit")
            for self.x, self.y in batches:
                self.loss = F.cross_entropy(self.model(self.x), self.y)
                self("after_batch")
            return self.callbacks[0].losses

    learner = Learner(mlp(), [Recorder()])
    learner.fit([batch(0), batch(1)])
    return learner.fit, [lambda f, i=i: f([batch(i), batch(i + 1)]) for i in range(8)], None


@everyday()
def copies_made_inside():
    model, settings = mlp(), {"names": ["a", "b"], "gain": 2.0}

    def forward(x):
        mine = copy.deepcopy(settings)
        mine["names"].append("c")
        shallow = copy.copy(mine)
        return model(x) * shallow["gain"], mine["names"]

    return forward, on_inputs(), lambda: settings


@everyday()
def text_made_of_many_things():
    model = mlp()

    def report(x, y):
        loss = F.cross_entropy(model(x), y)
        line = "loss {:>8.2f} | size {size:03d}".format(loss.item(), size=len(y))
        print("%-6s|%5.1f%%" % ("acc", 100.0 * (model(x).argmax(1) == y).float().mean()), line, sep=" :: ")
        return ", ".join(f"{n}:{tuple(p.shape)}" for n, p in model.named_parameters())

    return report, on_batches(), None


@everyday()
def star_expressions():
    def spread(x):
        first, *middle, last = x.unbind(0)
        head, tail = [first, *middle[:2]], (*middle[2:], last)
        merged = {**{"a": head}, **dict(b=tail)}
        return T.stack([*merged["a"], *merged["b"]]), max(*x.shape), min([t.ndim for t in tail], default=0)

    return spread, on_inputs(), None


@everyday()
def comprehensions_of_every_kind():
    model = mlp()

    def summary(x):
        norms = {n: p.norm() for n, p in model.named_parameters() if p.ndim > 1}
        kinds = {type(m).__name__ for m in model.modules()}
        grid = [[x[i, j] for j in range(2)] for i in range(2)]
        return norms, kinds, grid, any(p.requires_grad for p in model.parameters()), all(v.dim() == 0 for v in norms.values())

    return summary, on_inputs(), None


@everyday()
def parameters_counted_and_grouped():
    model = mlp()

    def groups(x):
        decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
        rest = [p for n, p in model.named_parameters() if p.dim() < 2]
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        penalty = 1e-2 * sum((p**2).sum() for p in decay) + 0 * sum(p.sum() for p in rest)
        return model(x).sum() + penalty, f"{count / 1e3:.1f}K", len(decay), len(rest)

    return groups, on_inputs(), None


@everyday()
def class_attributes_and_methods():
    class Scaler:
        made = 0
        eps = 1e-6

        def __init__(self, mean, std):
            self.mean, self.std = mean, std

        @classmethod
        def fit(cls, x):
            return cls(x.mean(0), x.std(0) + cls.eps)

        @staticmethod
        def check(x):
            return x.ndim == 2

        def __call__(self, x):
            return (x - self.mean) / self.std if self.check(x) else x

    return (lambda x: Scaler.fit(x)(x)), on_inputs(), None
