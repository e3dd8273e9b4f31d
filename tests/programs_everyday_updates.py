"""Changes of weights as people write them, by hand and by optimizers.  See everyday_programs.py."""

from __future__ import annotations

import math

from everyday_programs import everyday, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def weights_through_data():
    w, b = T.zeros(16, 5, requires_grad=True), T.zeros(5, requires_grad=True)
    lr = 0.1

    def step(x, y):
        loss = F.cross_entropy(x @ w + b, y)
        loss.backward()
        w.data -= lr * w.grad
        b.data -= lr * b.grad
        w.grad.zero_()
        b.grad.zero_()
        return loss.item()

    w.grad, b.grad = T.zeros_like(w), T.zeros_like(b)
    return step, on_batches(), lambda: (w.detach(), b.detach())


@everyday()
def data_is_assigned():
    model = mlp()

    def step(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            p.data = p.data - 0.1 * p.grad.data
        return loss.item()

    return step, on_batches(), state(model)


@everyday()
def data_add_in_place():
    model = mlp()

    def step(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad.data, alpha=-0.05)
        return loss.item()

    return step, on_batches(), state(model)


@everyday()
def update_under_no_grad():
    model = mlp()

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with T.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return float(loss)

    return step, on_batches(), state(model)


@everyday()
def momentum_by_hand():
    params = [T.randn(16, 5).mul_(0.1).requires_grad_(), T.zeros(5, requires_grad=True)]
    velocity = [T.zeros_like(p) for p in params]

    def step(x, y):
        loss = F.cross_entropy(x @ params[0] + params[1], y)
        grads = T.autograd.grad(loss, params)
        with T.no_grad():
            for i, (p, g) in enumerate(zip(params, grads)):
                velocity[i] = 0.9 * velocity[i] + g
                p.sub_(0.1 * velocity[i])
        return loss.item()

    return step, on_batches(), lambda: (params, velocity)


@everyday()
def adam_by_hand():
    w = T.zeros(16, 5, requires_grad=True)
    m, v, t = T.zeros(16, 5), T.zeros(16, 5), 0

    def step(x, y):
        nonlocal m, v, t
        t += 1
        loss = F.cross_entropy(x @ w, y)
        (g,) = T.autograd.grad(loss, w)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        with T.no_grad():
            w.sub_(0.01 * m_hat / (v_hat.sqrt() + 1e-8))
        return loss.item()

    return step, on_batches(), lambda: (w.detach(), m, v, t)


@everyday(recordings=3)
def warmed_up_and_decaying_rate():
    model = mlp()
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-2)
    iteration = 0

    def get_lr(it, warmup=3, total=6, lr=1e-2, low=1e-3):
        if it < warmup:
            return lr * (it + 1) / (warmup + 1)
        if it > total:
            return low
        ratio = (it - warmup) / (total - warmup)
        return low + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (lr - low)

    def step(x, y):
        nonlocal iteration
        lr = get_lr(iteration)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        iteration += 1
        return loss.item()

    return step, on_batches(), lambda: (state(model)(), iteration, optimizer.param_groups[0]["lr"])


@everyday()
def sharpness_aware_step():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        F.cross_entropy(model(x), y).backward()
        old = []
        with T.no_grad():
            norm = T.stack([p.grad.norm() for p in model.parameters()]).norm()
            for p in model.parameters():
                old.append(p.clone())
                p.add_(p.grad * (0.05 / (norm + 1e-12)))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with T.no_grad():
            for p, o in zip(model.parameters(), old):
                p.copy_(o)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step, on_batches(), state(model)


@everyday()
def second_step_of_meta_learning():
    w = T.randn(1, 1, requires_grad=True)
    optimizer = T.optim.SGD([w], lr=0.01)

    def step(x):
        meta = 0.0
        optimizer.zero_grad()
        for task in range(2):
            y = (task + 1.0) * x
            inner = ((x @ w - y) ** 2).mean()
            (g,) = T.autograd.grad(inner, w, create_graph=True)
            fast = w - 0.1 * g
            meta = meta + ((x @ fast - y) ** 2).mean()
        meta.backward()
        optimizer.step()
        return meta.item()

    return step, on_inputs(8, 1), lambda: w.detach()


@everyday()
def scaled_step_under_autocast():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    scaler = T.amp.GradScaler("cpu", enabled=False)

    def step(x, y):
        optimizer.zero_grad()
        with T.autocast(device_type="cpu", dtype=T.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, on_batches(), None


@everyday()
def step_is_skipped_for_bad_gradients():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    skipped = 0

    def step(x, y):
        nonlocal skipped
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if not all(T.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None):
            skipped += 1
            return None
        optimizer.step()
        return loss.item()

    return step, on_batches(), lambda: (state(model)(), skipped)


@everyday(eager="read_after_change")
def closure_of_lbfgs():
    w = T.zeros(16, 1, requires_grad=True)
    optimizer = T.optim.LBFGS([w], lr=0.1, max_iter=2)

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = ((x @ w - 1) ** 2).mean()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step, on_inputs(), lambda: w.detach()
