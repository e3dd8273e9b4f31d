"""Scientific programs, reinforcement learning and online learning as people write them.  See everyday_programs.py."""

from __future__ import annotations

import math
from types import SimpleNamespace

from everyday_programs import batch, everyday, inputs, mlp, on_batches, on_inputs, state

import tracejit as T

nn, F = T.nn, T.nn.functional


@everyday()
def leapfrog_of_hamiltonian_monte_carlo():
    precision = T.tensor([1.0, 4.0])

    def potential(q):
        return 0.5 * (precision * q**2).sum()

    def grad(q):
        q = q.detach().requires_grad_(True)
        return T.autograd.grad(potential(q), q)[0]

    def propose(q, p, step=0.1, n=5):
        start = potential(q) + 0.5 * (p**2).sum()
        p = p - 0.5 * step * grad(q)
        for i in range(n):
            q = q + step * p
            if i < n - 1:
                p = p - step * grad(q)
        p = p - 0.5 * step * grad(q)
        return q, -p, (start - potential(q) - 0.5 * (p**2).sum()).exp().clamp(max=1.0).item()

    return propose, [lambda f, i=i: f(inputs(i, 2), inputs(i + 1, 2)) for i in range(8)], None


@everyday()
def langevin_sampling():
    def energy(z):
        return ((z**2 - 1) ** 2).sum()

    def sample(z, eta=0.01):
        for _ in range(3):
            z = z.detach().requires_grad_()
            (g,) = T.autograd.grad(energy(z), z)
            z = z - eta * g + math.sqrt(2 * eta) * T.randn_like(z)
        return z.detach()

    return sample, on_inputs(4, 2), None


@everyday()
def neural_differential_equation():
    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.evaluations = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), 0

        def forward(self, t, y):
            self.evaluations += 1
            return self.net(T.cat([y, T.full_like(y[..., :1], t)], -1))

    field = Field()

    def solve(y, t0=0.0, t1=1.0, n=3):
        h, t = (t1 - t0) / n, t0
        for _ in range(n):
            k1 = field(t, y)
            k2 = field(t + h / 2, y + h / 2 * k1)
            k3 = field(t + h / 2, y + h / 2 * k2)
            k4 = field(t + h, y + h * k3)
            y, t = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), t + h
        return y

    return solve, on_inputs(4, 2), lambda: field.evaluations


@everyday()
def likelihood_of_a_gaussian_process():
    log_scale, log_noise = T.zeros((), requires_grad=True), T.tensor(-1.0, requires_grad=True)
    optimizer = T.optim.Adam([log_scale, log_noise], lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        k = T.exp(-0.5 * T.cdist(x, x).pow(2) / log_scale.exp() ** 2) + log_noise.exp() * T.eye(len(x))
        chol = T.linalg.cholesky(k)
        alpha = T.cholesky_solve(y[:, None], chol) if hasattr(T, "cholesky_solve") else T.linalg.solve(k, y[:, None])
        loss = 0.5 * (y @ alpha).sum() + chol.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, [lambda f, i=i: f(inputs(i, 6, 1), inputs(i + 1, 6)) for i in range(8)], lambda: (log_scale, log_noise)


@everyday()
def clusters_by_k_means():
    centres = T.randn(3, 2)

    def iterate(x):
        nonlocal centres
        assigned = T.cdist(x, centres).argmin(1)
        onehot = F.one_hot(assigned, 3).float()
        new = (onehot.T @ x) / onehot.sum(0).clamp(min=1)[:, None]
        moved = (new - centres).norm().item()
        centres = new
        return moved

    return iterate, on_inputs(20, 2), lambda: centres


@everyday()
def mixture_fitted_by_expectation_maximisation():
    params = SimpleNamespace(mu=T.tensor([-1.0, 1.0]), sigma=T.ones(2), pi=T.full((2,), 0.5))

    def iterate(x):
        log_p = T.distributions.Normal(params.mu, params.sigma).log_prob(x[:, None]) + params.pi.log()
        r = (log_p - log_p.logsumexp(1, keepdim=True)).exp()
        n = r.sum(0)
        params.mu = (r * x[:, None]).sum(0) / n
        params.sigma = ((r * (x[:, None] - params.mu) ** 2).sum(0) / n).sqrt() + 1e-3
        params.pi = n / len(x)
        return log_p.logsumexp(1).sum().item()

    return iterate, on_inputs(30), lambda: vars(params)


@everyday()
def kalman_filter():
    A, C, Q, R = T.eye(2) + 0.1 * T.tensor([[0.0, 1.0], [0.0, 0.0]]), T.tensor([[1.0, 0.0]]), 0.01 * T.eye(2), T.eye(1)

    def run(observations):
        m, P, means = T.zeros(2), T.eye(2), []
        for z in observations:
            m, P = A @ m, A @ P @ A.T + Q
            S = C @ P @ C.T + R
            K = P @ C.T @ T.linalg.inv(S)
            m, P = m + K @ (z - C @ m), (T.eye(2) - K @ C) @ P
            means.append(m)
        return T.stack(means), P

    return run, on_inputs(5, 1), None


@everyday()
def power_iteration():
    v = T.ones(8) / math.sqrt(8)

    def iterate(a):
        nonlocal v
        a = a @ a.T
        for _ in range(4):
            w = a @ v
            v = w / w.norm()
        return (v @ a @ v).item()

    return iterate, on_inputs(8, 8), lambda: v


@everyday()
def perceptron_online():
    w, mistakes = T.zeros(16), [0]

    def learn(x, y):
        for row, label in zip(x, (y > 2).float() * 2 - 1):
            wrong = (label * (row @ w) <= 0).float()
            w.add_(wrong * label * row)
            mistakes[0] += int(wrong.item())
        return mistakes[0]

    return learn, on_batches(), lambda: (w, mistakes)


@everyday()
def hebbian_learning():
    w = T.zeros(16, 16)

    def store(x):
        pattern = x.sign()
        for row in pattern:
            w.add_(T.outer(row, row) / 16)
        w.diagonal().zero_()
        return (pattern @ w).sign()

    return store, on_inputs(), lambda: w


@everyday()
def running_statistics_of_observations():
    class RunningMeanStd:
        def __init__(self, shape):
            self.mean, self.var, self.count = T.zeros(shape), T.ones(shape), 1e-4

        def update(self, x):
            mean, var, n = x.mean(0), x.var(0, unbiased=False), x.shape[0]
            delta, total = mean - self.mean, self.count + n
            m2 = self.var * self.count + var * n + delta**2 * self.count * n / total
            self.mean, self.var, self.count = self.mean + delta * n / total, m2 / total, total

    rms = RunningMeanStd(16)

    def normalise(x):
        rms.update(x)
        return ((x - rms.mean) / T.sqrt(rms.var + 1e-8)).clamp(-5, 5)

    return normalise, on_inputs(), lambda: vars(rms)


@everyday()
def temporal_difference_with_a_target_network():
    q, target = mlp(16, 8, 2), mlp(16, 8, 2)
    target.load_state_dict(q.state_dict())
    optimizer = T.optim.Adam(q.parameters(), lr=1e-2)

    def learn(s, a, r, s2, done, gamma=0.9, tau=0.05):
        with T.no_grad():
            best = r + gamma * (1 - done) * target(s2).max(1)[0]
        loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), best)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(q.parameters(), 100)
        optimizer.step()
        for tp, p in zip(target.parameters(), q.parameters()):
            tp.data.copy_(tau * p.data + (1.0 - tau) * tp.data)
        return loss.item()

    def call(i):
        return lambda f: f(inputs(i), batch(i)[1] % 2, inputs(i, 8), inputs(i + 1), (inputs(i, 8) > 1).float())

    return learn, [call(i) for i in range(8)], state(q, target)


@everyday()
def soft_update_by_state_dictionaries():
    source, target = mlp(), mlp()

    def update(shift, tau=0.1):
        a, b = source.state_dict(), target.state_dict()
        for key in a:
            b[key] = a[key] * tau + b[key] * (1 - tau) + shift
        target.load_state_dict(b)

    return update, [lambda f, i=i: f(T.tensor(0.01 * i)) for i in range(8)], state(target)


@everyday()
def policy_gradient():
    policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=-1))
    optimizer = T.optim.Adam(policy.parameters(), lr=1e-2)

    def finish(states, actions, rewards, gamma=0.99):
        R, returns = 0.0, []
        for r in rewards[::-1]:
            R = r + gamma * R
            returns.insert(0, R)
        returns = T.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        m = T.distributions.Categorical(policy(states))
        loss = T.stack([-lp * g for lp, g in zip(m.log_prob(actions), returns)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def call(i):
        return lambda f: f(inputs(i, 5, 4), batch(i, 5)[1] % 2, [1.0, 0.5 * i, 0.0, 1.0, -0.1 * i])

    return finish, [call(i) for i in range(8)], state(policy)


@everyday()
def actions_are_sampled():
    policy, saved = nn.Linear(4, 3), []

    def select_action(s):
        m = T.distributions.Categorical(logits=policy(s))
        action = m.sample()
        saved.append(m.log_prob(action).item())
        return action.item()

    return select_action, on_inputs(1, 4), lambda: saved


@everyday()
def clipped_policy_update_of_some_epochs():
    actor, critic = mlp(4, 8, 2), mlp(4, 8, 1)
    optimizer = T.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)

    def update(s, a, old, returns):
        losses = []
        for _ in range(2):
            d = T.distributions.Categorical(logits=actor(s))
            value = critic(s).squeeze(-1)
            adv = returns - value.detach()
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            ratio = (d.log_prob(a) - old).exp()
            surrogate = T.min(ratio * adv, T.clamp(ratio, 0.8, 1.2) * adv).mean()
            loss = -surrogate + 0.5 * F.mse_loss(value, returns) - 0.01 * d.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def call(i):
        return lambda f: f(inputs(i, 6, 4), batch(i, 6)[1] % 2, -inputs(i, 6).abs(), inputs(i + 1, 6))

    return update, [call(i) for i in range(8)], state(actor, critic)


@everyday()
def reparameterised_autoencoder():
    encoder, decoder = nn.Linear(16, 4), nn.Linear(2, 16)
    optimizer = T.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    train_loss = 0

    def step(x):
        nonlocal train_loss
        mu, logvar = encoder(x).chunk(2, 1)
        z = mu + T.randn_like(logvar) * T.exp(0.5 * logvar)
        bce = F.binary_cross_entropy_with_logits(decoder(z), x.sigmoid(), reduction="sum")
        loss = bce - 0.5 * T.sum(1 + logvar - mu.pow(2) - logvar.exp())
        optimizer.zero_grad()
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        return loss.item() / len(x)

    train_loss = 0.0
    return step, on_inputs(), lambda: (state(encoder, decoder)(), train_loss)


@everyday()
def contrastive_pairs():
    encoder = nn.Linear(16, 8)
    optimizer = T.optim.SGD(encoder.parameters(), lr=0.1)

    def step(a, b, temperature=0.5):
        z = F.normalize(encoder(T.cat([a, b])), dim=1)
        sim = z @ z.T / temperature
        n = a.size(0)
        sim = sim.masked_fill(T.eye(2 * n, dtype=T.bool), -1e9)
        target = T.cat([T.arange(n) + n, T.arange(n)])
        loss = F.cross_entropy(sim, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), (sim.argmax(1) == target).sum().item()

    return step, [lambda f, i=i: f(inputs(i), inputs(i + 30)) for i in range(8)], state(encoder)


@everyday()
def skipgram_with_negative_samples():
    centre, context = nn.Embedding(20, 4), nn.Embedding(20, 4)
    optimizer = T.optim.SGD([*centre.parameters(), *context.parameters()], lr=0.1)

    def step(words, positive, negative):
        v = centre(words)
        good = F.logsigmoid((v * context(positive)).sum(1))
        bad = F.logsigmoid(-T.bmm(context(negative), v.unsqueeze(2)).squeeze(2)).sum(1)
        loss = -(good + bad).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def call(i):
        return lambda f: f(batch(i)[1], batch(i + 1)[1] * 3, batch(i + 2, 24)[1].view(8, 3) * 2)

    return step, [call(i) for i in range(8)], state(centre, context)


@everyday()
def mixed_up_examples():
    model = mlp()

    def loss(x, y, lam):
        order = T.arange(x.size(0) - 1, -1, -1)
        mixed = lam * x + (1 - lam) * x[order]
        out = model(mixed)
        return lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])

    return loss, [lambda f, i=i: f(*batch(i), 0.3 + 0.05 * i) for i in range(8)], None


@everyday()
def polynomial_fitted_by_hand():
    a, b = T.zeros(()), T.zeros(())
    log = []

    def step(x):
        nonlocal a, b
        y = T.sin(x)
        y_pred = a + b * x
        grad = 2.0 * (y_pred - y)
        loss = (y_pred - y).pow(2).sum().item()
        a = a - 1e-2 * grad.sum()
        b = b - 1e-2 * (grad * x).sum()
        log.append(loss)
        return f"y = {a.item():.1f} + {b.item():.1f} x"

    return step, on_inputs(16), lambda: (a, b, log)
