"""Training steps as people write them.  See everyday_programs.py."""

from __future__ import annotations

import copy
import math

from everyday_programs import batch, everyday, inputs, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def clipped_step_with_its_norm_returned():
    model = mlp()
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
        optimizer.step()
        return {"loss": loss.item(), "norm": norm.item()}

    return step, on_batches(), state(model)


@everyday(recordings=2)
def gradients_accumulated_over_calls():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    seen = {"step": 0}

    def step(x, y):
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if (seen["step"] + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        seen["step"] += 1
        return loss.item() * 4

    optimizer.zero_grad()
    for p in model.parameters():
        p.grad = T.zeros_like(p)
    return step, on_batches(), lambda: (state(model)(), seen)


@everyday()
def micro_batches_of_one_batch():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        total = 0.0
        for xb, yb in zip(x.chunk(4), y.chunk(4)):
            loss = F.cross_entropy(model(xb), yb) / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    return step, on_batches(), state(model)


@everyday()
def moving_average_of_weights():
    model = mlp()
    average = copy.deepcopy(model)
    optimizer = T.optim.Adam(model.parameters(), lr=1e-2)

    @T.no_grad()
    def update(decay=0.9):
        for ema, p in zip(average.parameters(), model.parameters()):
            ema.mul_(decay).add_(p.detach(), alpha=1 - decay)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        update()
        return loss

    return step, on_batches(), state(model, average)


@everyday()
def best_weights_so_far_are_kept():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.5)
    best = {"loss": math.inf, "weights": None}

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        before = copy.deepcopy(model.state_dict())
        optimizer.step()
        with T.no_grad():
            if F.cross_entropy(model(x), y) > loss:
                model.load_state_dict(before)
        best["weights"] = copy.deepcopy(model.state_dict())
        return loss, {k: v.clone() for k, v in model.state_dict().items()}

    return step, on_batches(), lambda: (best["weights"], state(model)())


@everyday()
def moving_average_with_a_warmed_up_decay():
    class EMA:
        def __init__(self, model, decay):
            self.shadow = {k: v.clone() for k, v in model.state_dict().items()}
            self.decay = decay
            self.updates = 0

        def update(self, model):
            self.updates += 1
            d = self.decay * (1 - math.exp(-self.updates / 4))
            with T.no_grad():
                for k, v in model.state_dict().items():
                    if v.dtype.is_floating_point:
                        self.shadow[k] *= d
                        self.shadow[k] += (1 - d) * v.detach()

    model = mlp()
    ema = EMA(model, 0.99)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        ema.update(model)

    return step, on_batches(), lambda: (ema.shadow, ema.updates)


@everyday(recordings=3)
def early_stopping_object():
    class EarlyStopping:
        def __init__(self, patience=2):
            self.patience, self.counter, self.best, self.stop = patience, 0, None, False

        def __call__(self, loss):
            if self.best is None or loss < self.best:
                self.best = loss
                self.counter = 0
            else:
                self.counter += 1
                if self.counter >= self.patience:
                    self.stop = True

    model, stopper = mlp(), EarlyStopping(patience=20)

    def validate(x, y):
        with T.no_grad():
            loss = F.cross_entropy(model(x), y).item()
        stopper(loss)
        return stopper.stop

    return validate, on_batches(), lambda: vars(stopper)


@everyday(recordings=2)
def best_loss_so_far():
    model = mlp()
    best = {"loss": float("inf"), "epoch": -1}

    def validate(x, y, epoch):
        with T.no_grad():
            loss = F.cross_entropy(model(x), y).item()
        if loss < best["loss"]:
            best["loss"] = loss
            best["epoch"] = epoch
        return loss

    return validate, [lambda f, i=i: f(*batch(i), i) for i in range(8)], lambda: best


@everyday(recordings=2)
def best_weights_are_kept():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.5)
    best_loss = math.inf
    best_state = {k: v.clone() for k, v in model.state_dict().items()}

    def step(x, y):
        nonlocal best_loss
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if loss.item() < best_loss:
            best_loss = loss.item()
            for k, v in model.state_dict().items():
                best_state[k].copy_(v)
        return best_loss

    return step, on_batches(), lambda: (best_state, best_loss)


@everyday()
def generator_and_discriminator():
    G, D = mlp(4, 16, 16), mlp(16, 16, 1)
    opt_g = T.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_d = T.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    def step(real):
        ones, zeros = T.ones(real.size(0), 1), T.zeros(real.size(0), 1)
        fake = G(T.randn(real.size(0), 4))
        opt_d.zero_grad()
        loss_d = criterion(D(real), ones) + criterion(D(fake.detach()), zeros)
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = criterion(D(fake), ones)
        loss_g.backward()
        opt_g.step()
        return loss_d.item(), loss_g.item()

    return step, on_inputs(), state(G, D)


@everyday()
def wasserstein_critic_with_gradient_penalty():
    critic = mlp(16, 16, 1)
    optimizer = T.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def gradient_penalty(real, fake):
        alpha = T.rand(real.size(0), 1).expand_as(real)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = critic(mixed)
        grads = T.autograd.grad(
            outputs=score, inputs=mixed, grad_outputs=T.ones_like(score), create_graph=True, retain_graph=True, only_inputs=True
        )[0]
        return ((grads.view(grads.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()

    def step(real, fake):
        optimizer.zero_grad()
        loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, [lambda f, i=i: f(inputs(i), inputs(i + 50)) for i in range(8)], state(critic)


@everyday()
def distillation_from_a_teacher():
    teacher, student = mlp(hidden=64).eval(), mlp(hidden=8)
    optimizer = T.optim.Adam(student.parameters(), lr=1e-2)
    temperature, alpha = 4.0, 0.7

    def step(x, y):
        with T.no_grad():
            target = F.softmax(teacher(x) / temperature, dim=1)
        logits = student(x)
        soft = F.kl_div(F.log_softmax(logits / temperature, dim=1), target, reduction="batchmean") * temperature**2
        loss = alpha * soft + (1 - alpha) * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), soft.item()

    return step, on_batches(), state(student)


@everyday()
def masked_loss_of_padded_sequences():
    model = nn.Linear(16, 5)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, lengths):
        mask = (T.arange(x.size(1))[None, :] < lengths[:, None]).float()
        losses = F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        loss = (losses * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), int(mask.sum())

    def call(i):
        return lambda f: f(inputs(i, 4, 6, 16), batch(i, 24)[1].view(4, 6), T.tensor([6, 3, 1 + i % 5, 2]))

    return step, [call(i) for i in range(8)], state(model)


@everyday()
def label_smoothing_by_hand():
    class LabelSmoothing(nn.Module):
        def __init__(self, classes, smoothing=0.1):
            super(LabelSmoothing, self).__init__()
            self.confidence, self.smoothing, self.cls = 1.0 - smoothing, smoothing, classes

        def forward(self, pred, target):
            pred = pred.log_softmax(dim=-1)
            with T.no_grad():
                true_dist = T.zeros_like(pred)
                true_dist.fill_(self.smoothing / (self.cls - 1))
                true_dist.scatter_(1, target.data.unsqueeze(1), self.confidence)
            return T.mean(T.sum(-true_dist * pred, dim=-1))

    model, criterion = mlp(), LabelSmoothing(5)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, on_batches(), state(model)
