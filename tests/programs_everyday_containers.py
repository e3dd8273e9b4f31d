"""Containers and bookkeeping around training steps.  See everyday_programs.py."""

from __future__ import annotations

import array
import bisect
import collections
import heapq
import itertools
import threading
from types import SimpleNamespace

from everyday_programs import batch, everyday, inputs, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday(recordings=2)
def history_of_lists():
    model, history = mlp(), collections.defaultdict(list)

    def evaluate(x, y):
        logits = model(x)
        history["loss"].append(F.cross_entropy(logits, y).item())
        history["acc"].append((logits.argmax(1) == y).float().mean().item())
        history["size"].append(len(y))

    return evaluate, on_batches(), lambda: dict(history)


@everyday()
def counter_in_a_list():
    model, steps = mlp(), [0]

    def forward(x):
        steps[0] += 1
        return model(x) * (1.0 / steps[0])

    return forward, on_inputs(), lambda: steps


@everyday()
def counter_in_a_namespace():
    model, args = mlp(), SimpleNamespace(step=0, total=0.0, decay=0.9)

    def forward(x):
        out = model(x)
        args.step += 1
        args.total = args.decay * args.total + (1 - args.decay) * out.mean().item()
        return out, args.total / (1 - args.decay**args.step)

    return forward, on_inputs(), lambda: vars(args)


@everyday()
def average_meter():
    class AverageMeter:
        def __init__(self, name):
            self.name = name
            self.reset()

        def reset(self):
            self.val = self.avg = self.sum = self.count = 0

        def update(self, val, n=1):
            self.val = val
            self.sum += val * n
            self.count += n
            self.avg = self.sum / self.count

    model, losses, top1 = mlp(), AverageMeter("loss"), AverageMeter("acc")
    losses.update(1.0)
    top1.update(0.5)

    def evaluate(x, y):
        logits = model(x)
        losses.update(F.cross_entropy(logits, y).item(), x.size(0))
        top1.update((logits.argmax(1) == y).float().mean().item(), x.size(0))
        return losses.avg

    return evaluate, on_batches(), lambda: (vars(losses), vars(top1))


@everyday()
def counter_of_a_closure():
    model = mlp()
    count, total = 0, 0.0

    def evaluate(x, y):
        nonlocal count, total
        total += F.cross_entropy(model(x), y, reduction="sum").item()
        count += y.size(0)
        return total / count

    return evaluate, on_batches(), lambda: (count, total)


STEP = 0


@everyday()
def global_counter():
    global STEP
    STEP = 0
    model = mlp()

    def forward(x):
        global STEP
        STEP += 1
        return model(x).sum() / STEP

    return forward, on_inputs(), lambda: STEP


@everyday()
def changing_float_made_a_tensor():
    model, anneal = mlp(), {"beta": 0.0}

    def forward(x):
        anneal["beta"] = min(1.0, anneal["beta"] + 0.05)
        beta = T.tensor(anneal["beta"])
        return model(x).pow(2).mean() * beta

    return forward, on_inputs(), lambda: anneal


@everyday()
def last_losses_in_a_deque():
    model, window = mlp(), collections.deque([0.0] * 4, maxlen=4)

    def evaluate(x, y):
        window.append(F.cross_entropy(model(x), y).item())
        return sum(window) / len(window)

    return evaluate, on_batches(), lambda: list(window)


@everyday(recordings=2)
def mean_of_a_growing_list():
    model, losses = mlp(), []

    def epoch(batches):
        losses.clear()
        for x, y in batches:
            losses.append(F.cross_entropy(model(x), y).item())
        return sum(losses) / len(losses), max(losses)

    return epoch, [lambda f, i=i: f([batch(3 * i + k) for k in range(3)]) for i in range(8)], lambda: losses


@everyday()
def best_of_a_heap():
    model = mlp()

    def best(xs):
        heap = []
        for i, x in enumerate(xs):
            heapq.heappush(heap, (i * 7 % 5, i))
        order = [heapq.heappop(heap)[1] for _ in range(len(heap))]
        return [model(xs[i]).sum().item() for i in order[:3]]

    return best, [lambda f, i=i: f([inputs(i + k) for k in range(5)]) for i in range(8)], None


@everyday(recordings=3)
def rate_by_bisection():
    model, steps, milestones = mlp(), [0], [3, 6]

    def forward(x):
        gamma = 0.1 ** bisect.bisect_right(milestones, steps[0])
        steps[0] += 1
        return model(x) * gamma

    return forward, on_inputs(), lambda: steps


@everyday()
def losses_by_name():
    model, weights = mlp(), {"ce": 1.0, "l2": 1e-3, "entropy": 0.1}

    def losses(x, y):
        logits = model(x)
        parts = {
            "ce": F.cross_entropy(logits, y),
            "l2": sum(p.pow(2).sum() for p in model.parameters()),
            "entropy": -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean(),
        }
        total = sum(weights[k] * v for k, v in parts.items())
        return total, {k: v.item() for k, v in parts.items()}

    return losses, on_batches(), None


@everyday()
def confusion_matrix():
    model = mlp()
    matrix = T.zeros(5, 5, dtype=T.int64)

    def update(x, y):
        predicted = model(x).argmax(1)
        for t, p in zip(y.view(-1), predicted.view(-1)):
            matrix[t.long(), p.long()] += 1
        return matrix.diag().sum().item() / matrix.sum().item()

    return update, on_batches(), lambda: matrix


@everyday()
def confusion_matrix_by_bincount():
    class ConfusionMatrix:
        def __init__(self, classes):
            self.classes, self.mat = classes, None

        def update(self, target, predicted):
            n = self.classes
            if self.mat is None:
                self.mat = T.zeros((n, n), dtype=T.int64)
            with T.inference_mode():
                self.mat += T.bincount(n * target + predicted, minlength=n**2).reshape(n, n)

        def compute(self):
            h = self.mat.float()
            return T.diag(h).sum() / h.sum(), T.diag(h) / (h.sum(1) + h.sum(0) - T.diag(h) + 1e-8)

    model, matrix = mlp(), ConfusionMatrix(5)
    matrix.update(T.tensor([0]), T.tensor([1]))

    def evaluate(x, y):
        matrix.update(y, model(x).argmax(1))
        return matrix.compute()

    return evaluate, on_batches(), lambda: matrix.mat


@everyday()
def accuracy_over_batches():
    model = mlp().eval()
    batches = [batch(i) for i in range(3)]

    @T.no_grad()
    def evaluate(shift):
        correct = total = 0
        for images, labels in batches:
            _, predicted = T.max((model(images + shift)).data, 1)
            total += labels.size(0)
            correct += (predicted == labels).sum().item()
        return 100 * correct / total

    return evaluate, [lambda f, i=i: f(inputs(i, 1, 16)) for i in range(8)], None


@everyday()
def ring_buffer():
    class Buffer:
        def __init__(self, capacity, width):
            self.data, self.pos, self.full = T.zeros(capacity, width), 0, False
            self.capacity = capacity

        def push(self, row):
            self.data[self.pos] = row
            self.pos = (self.pos + 1) % self.capacity

    buffer = Buffer(64, 16)

    def observe(x):
        buffer.push(x.mean(0).detach())
        return buffer.data.sum()

    return observe, on_inputs(), lambda: (buffer.data, buffer.pos)


@everyday()
def memory_as_a_deque_of_transitions():
    transition = collections.namedtuple("Transition", ("state", "action", "reward"))
    memory = collections.deque([transition(inputs(90 + i, 16), i % 2, 0.5 * i) for i in range(6)], maxlen=6)
    q = mlp(16, 8, 2)

    def learn(s, reward):
        memory.append(transition(s, 1, reward))
        batch = transition(*zip(*memory))
        states, actions = T.stack(batch.state), T.tensor(batch.action)
        values = q(states).gather(1, actions[:, None]).squeeze(1)
        return F.smooth_l1_loss(values, T.tensor(batch.reward))

    return learn, [lambda f, i=i: f(inputs(i, 16), 0.25 * i) for i in range(4)] * 4, lambda: len(memory)


@everyday(4)
def losses_in_an_array():
    model, log = mlp(), array.array("d", [0.0] * 4)
    at = [0]

    def evaluate(x, y):
        loss = F.cross_entropy(model(x), y)
        log[at[0] % 4] = loss.item()
        at[0] += 1
        return loss

    return evaluate, on_batches(), lambda: list(log)


@everyday()
def thread_local_counter():
    model, local = mlp(), threading.local()
    local.steps = 0

    def forward(x):
        local.steps += 1
        return model(x) / local.steps

    return forward, on_inputs(), lambda: local.steps


@everyday()
def counted_predictions():
    model = mlp()

    def count(x, y):
        hits = collections.Counter()
        for name, value in zip(("a", "b", "a", "c"), model(x).sum(1)):
            hits[name] += value.item()
        return hits["a"], dict(hits)

    return count, on_batches(), None


@everyday()
def results_sorted_by_loss():
    models = {"a": mlp(), "b": mlp(), "c": mlp()}

    def rank(x, y):
        losses = {name: F.cross_entropy(m(x), y) for name, m in models.items()}
        return T.stack([losses[k] for k in sorted(losses)]), T.stack(list(losses.values())).min().item()

    return rank, on_batches(), None


@everyday()
def dictionary_read_after_it_was_changed():
    model, metrics = mlp(), {"loss": 0.0, "steps": 0}

    def evaluate(x, y):
        loss = F.cross_entropy(model(x), y)
        metrics["loss"] += loss.item()
        metrics["steps"] += 1
        metrics["mean"] = metrics["loss"] / metrics["steps"]
        return {k: v for k, v in metrics.items()}

    metrics["mean"] = 0.0
    return evaluate, on_batches(), lambda: metrics


@everyday()
def list_rebuilt_and_read():
    carried = [T.zeros(16), T.ones(16)]

    def advance(x):
        carried[:] = [0.5 * c + x.mean(0) for c in carried]
        carried.reverse()
        return T.stack(carried).sum(0), carried[-1].norm().item()

    return advance, on_inputs(), lambda: carried


@everyday()
def nested_batches():
    model = mlp()

    def forward(sample):
        x = T.cat([sample["image"]["left"], sample["image"]["right"]], dim=1)
        meta = [m["weight"] for m in sample["meta"]]
        return model(x) * meta[0] + meta[1]

    def call(i):
        return lambda f: f(
            {"image": {"left": inputs(i, 8, 6), "right": inputs(i + 1, 8, 10)}, "meta": [{"weight": 0.5 * i}, {"weight": 1.0}]}
        )

    return forward, [call(i) for i in range(8)], None


@everyday()
def epoch_over_a_list_of_batches():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def epoch(batches):
        running = 0.0
        for i, (x, y) in enumerate(batches, 1):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            running += (loss.item() - running) / i
        return running

    return epoch, [lambda f, i=i: f([batch(4 * i + k) for k in range(4)]) for i in range(8)], state(model)


@everyday()
def running_totals_by_itertools():
    rates = [0.1, 0.2, 0.3]

    def forward(x):
        totals = list(itertools.accumulate(rates))
        pairs = [x[:, i] * x[:, j] * r for (i, j), r in zip(itertools.combinations(range(3), 2), totals)]
        head = list(itertools.islice(itertools.chain(pairs, [x[:, 0]]), 3))
        return T.stack(head), [(a + b).sum() for a, b in itertools.pairwise(pairs)]

    return forward, on_inputs(), None


@everyday(recordings=2)
def least_recently_used_cache():
    cache = collections.OrderedDict((i, T.full((16,), float(i))) for i in range(3))

    def forward(x, key):
        cache.move_to_end(key)
        return x * cache[key]

    return forward, [lambda f, i=i: f(inputs(i), 1) for i in range(8)], lambda: list(cache)
