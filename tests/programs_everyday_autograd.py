"""Uses of automatic differentiation in everyday programs.  See everyday_programs.py."""

from __future__ import annotations

from everyday_programs import batch, everyday, inputs, mlp, on_batches, on_inputs, state

import tracejit as T
from tracejit.utils.checkpoint import checkpoint, checkpoint_sequential

nn, F = T.nn, T.nn.functional


@everyday(eager="differentiable_write")
def outside_buffer_written_differentiably():
    w = T.randn(16, 4, requires_grad=True)

    def fill(x, out):
        out[:, :4] = x @ w
        out.mul_(2)
        return out.sum()

    def call(i):
        def calling(f):
            w.grad = None
            out = T.zeros(8, 6)
            f(inputs(i), out).backward()
            return out, w.grad

        return calling

    return fill, [call(i) for i in range(8)], None


@everyday(eager="differentiable_write")
def outside_accumulator_added_to():
    w = T.randn(16, requires_grad=True)

    def add(total, x):
        total += (x @ w).sum()
        return total

    def call(i):
        def calling(f):
            total = T.zeros(())
            for k in range(3):
                total = f(total, inputs(i + k))
            (g,) = T.autograd.grad(total, w)
            return total.detach(), g

        return calling

    return add, [call(i) for i in range(4)], None


@everyday()
def adversarial_example():
    model = mlp()

    def attack(x, y, epsilon=0.1):
        x_adv = x.clone().detach().requires_grad_(True)
        loss = F.cross_entropy(model(x_adv), y)
        model.zero_grad()
        loss.backward()
        with T.no_grad():
            x_adv = T.clamp(x + epsilon * x_adv.grad.data.sign(), -3, 3)
        return x_adv, (model(x_adv).argmax(1) != y).float().mean().item()

    return attack, on_batches(), None


@everyday()
def projected_attack_of_some_steps():
    model = mlp()

    def attack(x, y):
        delta = T.zeros_like(x, requires_grad=True)
        for _ in range(3):
            loss = F.cross_entropy(model(x + delta), y)
            loss.backward()
            delta.data = (delta + 0.05 * delta.grad.detach().sign()).clamp(-0.1, 0.1)
            delta.grad.zero_()
        return delta.detach()

    def call(i):
        def calling(f):
            model.zero_grad()
            return f(*batch(i))

        return calling

    return attack, [call(i) for i in range(8)], None


@everyday()
def gradient_of_the_input_for_attribution():
    model = mlp().eval()

    def saliency(x, y):
        x = x.detach().requires_grad_()
        score = model(x).gather(1, y[:, None]).sum()
        (g,) = T.autograd.grad(score, x)
        return (g * x).abs().sum(1)

    return saliency, on_batches(), None


@everyday()
def residual_of_a_differential_equation():
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = T.optim.Adam(net.parameters(), lr=1e-2)

    def derivative(y, x):
        return T.autograd.grad(y, x, T.ones_like(y), create_graph=True)[0]

    def step(t):
        t = t.requires_grad_(True)
        u = net(t)
        du = derivative(u, t)
        d2u = derivative(du, t)
        loss = ((d2u + u) ** 2).mean() + (net(T.zeros(1, 1)) - 1).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, on_inputs(10, 1), state(net)


@everyday()
def hessian_vector_product():
    model = mlp(16, 4, 5)
    params = list(model.parameters())

    def product(x, y, v):
        loss = F.cross_entropy(model(x), y)
        grads = T.autograd.grad(loss, params, create_graph=True)
        flat = T.cat([g.reshape(-1) for g in grads])
        return T.cat([h.reshape(-1) for h in T.autograd.grad(flat @ v, params)])

    n = sum(p.numel() for p in params)
    return product, [lambda f, i=i: f(*batch(i), inputs(i, n)) for i in range(8)], None


@everyday(eager="implicit_python")
def newton_step_with_a_hessian():
    def f(z):
        return (z**4).sum() + (z[0] * z[1]) ** 2

    def step(z):
        g = T.autograd.functional.jacobian(f, z)
        h = T.autograd.functional.hessian(f, z)
        return z - T.linalg.solve(h, g)

    return step, [lambda f, i=i: f(inputs(i, 2).abs() + 0.5) for i in range(8)], None


@everyday()
def functions_of_functions():
    model = mlp(4, 8, 1)
    params = dict(model.named_parameters())

    def one(params, x, y):
        return ((T.func.functional_call(model, params, (x[None],)) - y) ** 2).sum()

    def per_sample(x, y):
        return T.func.vmap(T.func.grad(one), in_dims=(None, 0, 0))(params, x, y)

    return per_sample, [lambda f, i=i: f(inputs(i, 6, 4), inputs(i + 1, 6)) for i in range(8)], None


@everyday()
def straight_through_estimator():
    class Sign(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= 1)

    model = mlp(16, 8, 5)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model[2](Sign.apply(model[0](x))), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, on_batches(), state(model)


@everyday()
def gradient_reversal():
    class Reverse(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, alpha):
            ctx.alpha = alpha
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.neg() * ctx.alpha, None

    features, domain = nn.Linear(16, 8), nn.Linear(8, 5)
    optimizer = T.optim.SGD([*features.parameters(), *domain.parameters()], lr=0.1)

    def step(x, y, progress):
        loss = F.cross_entropy(domain(Reverse.apply(features(x), progress)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, [lambda f, i=i: f(*batch(i), 0.1 * i) for i in range(8)], state(features, domain)


@everyday()
def straight_through_by_detach():
    codes = T.randn(6, 16, requires_grad=True)

    def quantize(x):
        x = x * 1.0
        nearest = T.cdist(x, codes).argmin(1)
        q = F.embedding(nearest, codes)
        loss = F.mse_loss(q, x.detach()) + 0.25 * F.mse_loss(x, q.detach())
        return x + (q - x).detach(), loss, nearest

    return quantize, on_inputs(), None


@everyday()
def checkpointed_blocks():
    blocks = nn.ModuleList([mlp(16, 8, 16) for _ in range(3)])
    optimizer = T.optim.SGD(blocks.parameters(), lr=0.01)

    def step(x):
        x = x.requires_grad_()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = x.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, on_inputs(), state(blocks)


@everyday()
def checkpointed_sequence():
    model = nn.Sequential(*[mlp(16, 8, 16) for _ in range(4)])

    def loss(x):
        return checkpoint_sequential(model, 2, x, use_reentrant=False).sum()

    def call(i):
        def calling(f):
            model.zero_grad()
            f(inputs(i).requires_grad_()).backward()
            return [p.grad for p in model.parameters()]

        return calling

    return loss, [call(i) for i in range(8)], None


@everyday()
def inference_in_reduced_precision():
    model = mlp().eval()

    @T.inference_mode()
    def predict(x):
        with T.autocast("cpu", dtype=T.bfloat16):
            return model(x).float().softmax(-1).max(dim=-1).indices

    return predict, on_inputs(), None


@everyday()
def gradients_of_several_heads():
    body, heads = nn.Linear(16, 8), nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 5)])
    optimizer = T.optim.SGD([*body.parameters(), *heads.parameters()], lr=0.1)

    def step(x, y):
        h = body(x).relu()
        a, b = heads[0](h).pow(2).mean(), F.cross_entropy(heads[1](h), y)
        optimizer.zero_grad()
        a.backward(retain_graph=True)
        first = body.weight.grad.clone()
        b.backward()
        cosine = F.cosine_similarity(first.flatten(), (body.weight.grad - first).flatten(), dim=0)
        optimizer.step()
        return cosine.item()

    return step, on_batches(), state(body, heads)


@everyday()
def backward_of_a_vector():
    w = T.randn(16, 3, requires_grad=True)

    def pull(x, v):
        w.grad = None
        (x @ w).backward(gradient=v)
        return w.grad.clone()

    return pull, [lambda f, i=i: f(inputs(i), inputs(i + 1, 8, 3)) for i in range(8)], None


@everyday()
def hook_on_a_tensor_inside():
    model = mlp()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        h = model[1](model[0](x))
        h.register_hook(lambda g: g.clamp(-0.01, 0.01))
        loss = F.cross_entropy(model[2](h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, on_batches(), state(model)


@everyday()
def retained_gradient_of_the_middle():
    model = mlp()

    def maps(x, y):
        h = model[0](x)
        h.retain_grad()
        loss = F.cross_entropy(model[2](h.relu()), y)
        model.zero_grad()
        loss.backward()
        return (h.grad * h).sum(1).detach()

    return maps, on_batches(), None


@everyday()
def optimizers_in_hooks_of_parameters():
    model = mlp()
    optimizers = {p: T.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    return step, on_batches(), state(model)


@everyday()
def backward_hook_of_a_module():
    model, norms = mlp(), []
    model[2].register_full_backward_hook(lambda module, gi, go: norms.append(go[0].norm().item()))

    def step(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    return step, on_batches(), lambda: norms


@everyday(recordings=2)
def frozen_backbone():
    backbone, head = nn.Linear(16, 8), nn.Linear(8, 5)
    optimizer = T.optim.SGD(head.parameters(), lr=0.1)

    def step(x, y):
        for p in backbone.parameters():
            p.requires_grad = False
        backbone.eval()
        logits = head(backbone(x).relu())
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), backbone.weight.grad is None

    return step, on_batches(), state(backbone, head)


@everyday()
def gradient_norms_by_layer():
    model = mlp()
    log = {}

    def step(x, y):
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                log[name] = p.grad.detach().data.norm(2).item()
        return sum(v**2 for v in log.values()) ** 0.5

    for name, _ in model.named_parameters():
        log[name] = 0.0
    return step, on_batches(), lambda: log
