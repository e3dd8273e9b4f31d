"""Models as people write them.  See everyday_programs.py."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from everyday_programs import batch, everyday, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def explicit_super_in_forward():
    class Base(nn.Module):
        def __init__(self, width):
            super(Base, self).__init__()
            self.linear = nn.Linear(16, width)

        def forward(self, x):
            return self.linear(x)

    class Residual(Base):
        def __init__(self, width):
            super(Residual, self).__init__(width)
            self.scale = nn.Parameter(T.ones(1))

        def forward(self, x):
            return x + self.scale * super(Residual, self).forward(x)

    return Residual(16), on_inputs(), None


@everyday(recordings=2)
def activations_are_kept_on_the_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(16, 32), nn.Linear(32, 5)
            self.hidden = None

        def forward(self, x):
            self.hidden = F.relu(self.fc1(x))
            return self.fc2(self.hidden)

    model = Net()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + 1e-3 * model.hidden.abs().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, on_batches(), lambda: (state(model)(), model.hidden)


@everyday(2)
def module_counts_its_calls():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 5)
            self.calls = 0
            self.last_loss = None

        def forward(self, x, y):
            self.calls += 1
            loss = F.cross_entropy(self.fc(x), y)
            self.last_loss = loss.item()
            return loss

    model = Net()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        total = sum(p.grad.norm(2).item() ** 2 for p in model.parameters()) ** 0.5
        optimizer.step()
        return total

    return step, on_batches(), lambda: (state(model)(), model.calls, model.last_loss)


@everyday()
def causal_attention_block():
    class CausalSelfAttention(nn.Module):
        def __init__(self, width=16, heads=4, size=8):
            super().__init__()
            self.c_attn, self.c_proj, self.n_head = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
            self.register_buffer("bias", T.tril(T.ones(size, size)).view(1, 1, size, size))

        def forward(self, x):
            B, L, C = x.size()
            q, k, v = self.c_attn(x).split(C, dim=2)
            q, k, v = (t.view(B, L, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :L, :L] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
            return self.c_proj(y.transpose(1, 2).contiguous().view(B, L, C))

    return CausalSelfAttention(), on_inputs(2, 8, 16), None


@everyday()
def skip_connections_in_a_list():
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([nn.Conv1d(2, 4, 3, padding=1), nn.Conv1d(4, 8, 3, padding=1)])
            self.up = nn.ModuleList([nn.Conv1d(16, 4, 3, padding=1), nn.Conv1d(8, 2, 3, padding=1)])

        def forward(self, x):
            skips = []
            for layer in self.down:
                x = F.relu(layer(x))
                skips.append(x)
                x = F.max_pool1d(x, 2)
            x = x.repeat_interleave(2, dim=2)
            for i, layer in enumerate(self.up):
                if i:
                    x = F.interpolate(x, scale_factor=2)
                x = layer(T.cat([x, skips.pop()], dim=1))
            return x

    return UNet(), on_inputs(2, 2, 16), None


@everyday()
def dense_block():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({f"layer{i}": nn.Linear(16 + 4 * i, 4) for i in range(3)})

        def forward(self, x):
            features = [x]
            for name, layer in self.layers.items():
                features.append(layer(T.cat(features, 1)).relu())
            return T.cat(features, 1)

    return Dense(), on_inputs(), None


@everyday()
def mixture_of_experts():
    class MoE(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(16, 3)
            self.experts = nn.ModuleList(mlp(16, 8, 16) for _ in range(3))

        def forward(self, x):
            weights, chosen = T.topk(F.softmax(self.gate(x), dim=-1), 2)
            weights = weights / weights.sum(-1, keepdim=True)
            out = T.zeros_like(x)
            for i, expert in enumerate(self.experts):
                out = out + (weights * (chosen == i)).sum(-1, keepdim=True) * expert(x)
            return out

    return MoE(), on_inputs(), None


@everyday(recordings=2)
def recurrent_state_carried_over_calls():
    class CharRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(10, 8), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 10)

        def forward(self, x, h):
            out, h = self.rnn(self.embed(x), h)
            return self.head(out), h

        def init_hidden(self, n):
            return T.zeros(1, n, 16)

    model = CharRNN()
    optimizer = T.optim.Adam(model.parameters(), lr=1e-2)
    hidden = [model.init_hidden(4)]

    def step(x):
        h = hidden[0].detach()
        logits, h = model(x[:, :-1], h)
        loss = F.cross_entropy(logits.reshape(-1, 10), x[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hidden[0] = h
        return loss.item()

    return step, [lambda f, i=i: f(batch(i, 24)[1].view(4, 6)) for i in range(8)], state(model)


@everyday()
def cells_over_time():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.LSTMCell(4, 8), nn.Linear(8, 1)

        def forward(self, x, hidden=None):
            if hidden is None:
                hidden = (x.new_zeros(x.size(0), 8), x.new_zeros(x.size(0), 8))
            outputs = []
            for t in range(x.size(1)):
                hidden = self.cell(x[:, t], hidden)
                outputs.append(self.out(hidden[0]))
            return T.stack(outputs, dim=1), hidden

    return Net(), on_inputs(3, 5, 4), None


@everyday(recordings=2)
def batch_norm_and_dropout_switched_inside():
    model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 5))
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def epoch(x, y):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        model.eval()
        with T.no_grad():
            accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
        return loss.item(), accuracy

    return epoch, on_batches(), lambda: (state(model)(), model.training)


@everyday()
def output_as_a_dataclass():
    @dataclass
    class Output:
        logits: T.Tensor
        loss: T.Tensor | None = None
        hidden: tuple = ()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(16, 8), nn.Linear(8, 5)

        def forward(self, x, labels=None):
            h = self.body(x).tanh()
            logits = self.head(h)
            loss = F.cross_entropy(logits, labels) if labels is not None else None
            return Output(logits=logits, loss=loss, hidden=(h,))

    return Net(), on_batches(), None


@everyday()
def output_as_a_named_tuple():
    class Output(NamedTuple):
        mean: T.Tensor
        scale: T.Tensor

        @property
        def variance(self):
            return self.scale**2

    model = nn.Linear(16, 2)

    def predict(x):
        mean, raw = model(x).chunk(2, dim=-1)
        out = Output(mean, F.softplus(raw))
        return out, out.variance.mean().item(), out._replace(mean=out.mean * 2)

    return predict, on_inputs(), None


@everyday()
def output_as_a_dictionary_with_attributes():
    class ModelOutput(OrderedDict):
        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

        def to_tuple(self):
            return tuple(self[k] for k in self.keys())

    model = mlp()

    def predict(x, y):
        out = ModelOutput(logits=model(x))
        out["loss"] = F.cross_entropy(out.logits, y)
        return out.loss + getattr(out, "aux", 0.0), out.to_tuple()

    return predict, on_batches(), None


@everyday(recordings=2)
def configuration_with_attributes():
    class Config(dict):
        def __getattr__(self, name):
            return self[name]

        def __setattr__(self, name, value):
            self[name] = value

    config = Config(width=16, scale=0.5, use_bias=True)
    w, b = T.randn(16, 16), T.randn(16)

    def forward(x):
        h = x @ w[:, : config.width] * config.scale
        config.seen = config.get("seen", 0) + 1
        return h + b if config.use_bias else h

    return forward, on_inputs(), lambda: dict(config)
