"""More models as people write them: what they keep, hooks, generation.  See everyday_programs.py."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

from everyday_programs import batch, everyday, inputs, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def parameters_in_lists_and_dictionaries():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(T.randn(16, 16) * 0.1) for _ in range(3)])
            self.gains = nn.ParameterDict({"pre": nn.Parameter(T.ones(16)), "post": nn.Parameter(T.ones(16))})

        def forward(self, x):
            x = x * self.gains["pre"]
            for w in self.weights:
                x = T.tanh(x @ w)
            return x * self.gains["post"]

    return Net(), on_inputs(), None


@everyday()
def positions_computed_once_and_kept():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def angles(self, n):
            if n not in self.cache:
                freqs = 1.0 / (100.0 ** (T.arange(0, 8, 2).float() / 8))
                self.cache[n] = T.outer(T.arange(n).float(), freqs)
            return self.cache[n]

        def forward(self, x):
            a = self.angles(x.size(1))
            x1, x2 = x[..., ::2], x[..., 1::2]
            return T.cat([x1 * a.cos() - x2 * a.sin(), x1 * a.sin() + x2 * a.cos()], dim=-1)

    model = Rotary()
    model.angles(6)
    return model, on_inputs(2, 6, 8), lambda: model.cache


@everyday(recordings=6)
def decoding_with_a_cache():
    embed, q, k, v, head = nn.Embedding(12, 8), *(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, 12)

    def decode(token, past=None):
        h = embed(token)
        keys, values = k(h), v(h)
        if past is not None:
            keys, values = T.cat([past[0], keys], dim=1), T.cat([past[1], values], dim=1)
        att = F.softmax(q(h) @ keys.transpose(1, 2) / math.sqrt(8), dim=-1)
        return head(att @ values)[:, -1].argmax(-1, keepdim=True), (keys, values)

    def generate(f):
        with T.no_grad():
            token, past = f(T.tensor([[1], [2]]))
            out = [token]
            for _ in range(5):
                token, past = f(token, past)
                out.append(token)
        return T.cat(out, dim=1)

    return decode, [generate, generate], None


@everyday()
def greedy_generation_inside():
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))

    @T.no_grad()
    def generate(idx, count=4):
        for _ in range(count):
            logits = model(idx[:, -3:])[:, -1, :] / 0.8
            top, _ = T.topk(logits, 3)
            logits[logits < top[:, [-1]]] = -float("inf")
            idx = T.cat((idx, F.softmax(logits, dim=-1).argmax(-1, keepdim=True)), dim=1)
        return idx

    return generate, [lambda f, i=i: f(batch(i, 6)[1].view(2, 3)) for i in range(8)], None


@everyday()
def features_caught_by_hooks():
    model = mlp()
    features = {}

    def catch(name):
        def hook(module, args, output):
            features[name] = output.detach()

        return hook

    for name, module in model.named_children():
        module.register_forward_hook(catch(name))

    def forward(x):
        out = model(x)
        return out, features["1"].mean()

    return forward, on_inputs(), lambda: features


@everyday()
def hook_registered_inside():
    model = mlp()

    def forward(x):
        caught = []
        handle = model[1].register_forward_hook(lambda module, args, output: caught.append(output))
        try:
            out = model(x)
        finally:
            handle.remove()
        return out, caught[0].sum()

    return forward, on_inputs(), lambda: len(model[1]._forward_hooks) if hasattr(model[1], "_forward_hooks") else 0


@everyday()
def compiled_function_inside(compile):
    w = T.randn(16, 16)

    @compile
    def layer(x, w):
        return T.tanh(x @ w)

    def forward(x):
        for _ in range(3):
            x = layer(x, w)
        return x.sum().item()

    return forward, on_inputs(), None


@everyday()
def tied_weights():
    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.head.weight = self.wte.weight
            self.apply(self._init_weights)

        @staticmethod
        def _init_weights(module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, mean=0.0, std=0.02)

        def forward(self, idx, targets=None):
            logits = self.head(self.wte(idx))
            return logits, None if targets is None else F.cross_entropy(logits.view(-1, 12), targets.reshape(-1), ignore_index=-1)

    model = LM()
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-2)

    def step(idx):
        _, loss = model(idx[:, :-1], idx[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, [lambda f, i=i: f(batch(i, 12)[1].view(3, 4)) for i in range(8)], state(model)


@everyday()
def options_by_keyword():
    Args = namedtuple("Args", "gain bias")

    class Net(nn.Module):
        def __init__(self, **options: Any):
            super().__init__()
            self.options, self.fc = options, nn.Linear(16, 16)

        def forward(self, x, *rest, **kwargs):
            args = Args(**{**self.options, **kwargs})
            for r in rest:
                x = x + r
            return self.fc(x) * args.gain + args.bias

    return Net(gain=2.0, bias=0.1), [lambda f, i=i: f(inputs(i), 1.0, inputs(i + 1), bias=0.2) for i in range(8)], None


@everyday()
def compiled_modules_in_a_sequence(compile):
    body = compile(nn.Linear(16, 8))
    model = nn.Sequential(body, nn.ReLU(), compile(nn.Linear(8, 5)))
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, on_batches(), lambda: [p.detach() for p in model.parameters()]


@everyday()
def module_compiled_in_place():
    model = mlp()
    model[0].compile()
    model.compile()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, on_batches(), state(model)
