"""Code of the program that backward passes run: its own operations, hooks of tensors, leaves and modules.  See capture_programs.py."""

from __future__ import annotations

from registered_programs import Box, program, x

import tracejit as T

Function = T.autograd.Function


def leaf(*values):
    return x(*values).requires_grad_()


class Scaled(Function):
    @staticmethod
    def forward(ctx, a, k):
        ctx.save_for_backward(a)
        ctx.k = k
        return a * k

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g * ctx.k + 0 * a, None


class Exp(Function):
    @staticmethod
    def forward(ctx, a):
        result = a.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, g):
        (result,) = ctx.saved_tensors
        return g * result


def gradients(make, *leaves):
    """A program that computes a loss, goes backward, and returns the gradients."""

    def fn(a, k=1.0):
        for p in leaves:
            p.grad = None
        loss = make(a, k)
        loss.backward()
        return loss.item(), [p.grad for p in leaves]

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4), 2.0), lambda f: f(x(0.5, -1), 3.0)], lambda: leaves


@program()
def own_backward_inside():
    w = leaf(1, 2)
    return gradients(lambda a, k: (Scaled.apply(w * a, k) ** 2).sum(), w)


@program()
def own_backward_saves_its_result():
    w = leaf(1, 2)
    return gradients(lambda a, k: (Exp.apply(w * a * 0.1) * Exp.apply(w)).sum(), w)


@program()
def own_backward_twice():
    w = leaf(1, 2)

    def loss(a, k):
        (g,) = T.autograd.grad(Exp.apply(w * a * 0.1).sum(), w, create_graph=True)
        return (g**2).sum()

    return gradients(loss, w)


@program()
def own_operation_without_gradients():
    def fn(a):
        return Scaled.apply(a, 2.0), Exp.apply(a)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program(reason="own_backward")
def own_backward_after_the_call():
    w = leaf(1, 2)

    def fn(a):
        return Scaled.apply(w * a, 2.0).sum()

    def call(f):
        w.grad = None
        f(x(1, 2)).backward()
        return w.grad

    return fn, [call, call], None


@program()
def own_operation_with_a_context_set_up_apart():
    class Split(Function):
        @staticmethod
        def forward(a):
            return a * 2, a + 1, (a > 1)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.mark_non_differentiable(output[2])

        @staticmethod
        def backward(ctx, g, h, _):
            return 2 * g + h

    w = leaf(1, 2)

    def loss(a, k):
        one, two, mask = Split.apply(w * a)
        return (one * two * mask).sum()

    return gradients(loss, w)


@program()
def own_backward_is_replaced():
    w = leaf(1, 2)

    class Twice(Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    fn, calls, observe = gradients(lambda a, k: Twice.apply(w * a).sum(), w)

    def replaced(f):
        Twice.backward = staticmethod(lambda ctx, g: g * 20)
        return f(x(1, 2))

    return fn, [calls[0], calls[1], replaced, calls[0]], observe


@program()
def own_backward_notes_what_it_did():
    w, seen = leaf(1, 2), []

    class Noting(Function):
        @staticmethod
        def forward(ctx, a):
            return a.clone()

        @staticmethod
        def backward(ctx, g):
            seen.append(g.sum().item())
            return g.clamp(-1, 1)

    fn, calls, _ = gradients(lambda a, k: (Noting.apply(w * a) ** 2).sum(), w)
    return fn, calls, lambda: seen


@program()
def hooks_of_tensors_of_the_call():
    w, box = leaf(1, 2), Box(limit=0.5, seen=0.0)

    def loss(a, k):
        h = w * a
        handle = h.register_hook(lambda g: g * 100)
        handle.remove()
        h.register_hook(lambda g: g.clamp(-box.limit, box.limit))

        def note(g):
            box.seen = g.sum().item()

        h.register_hook(note)
        return (h**2).sum() * k

    fn, calls, observe = gradients(loss, w)
    return fn, [*calls, lambda f: (setattr(box, "limit", 0.25), f(x(1, 2)))[1]], lambda: (observe(), box.seen)


@program(reason="tensor_state")
def hook_of_a_result():
    w = leaf(1, 2)

    def fn(a):
        h = w * a
        h.register_hook(lambda g: g * 10)
        return h.sum()

    def call(f):
        w.grad = None
        f(x(1, 2)).backward()
        return w.grad

    return fn, [call, call], None


@program(reason="tensor_state")
def hook_put_on_a_parameter():
    w, seen = leaf(1, 2), []

    def fn(a):
        w.register_hook(lambda g: seen.append(1))
        return a * 2

    return fn, [lambda f: f(x(1, 2))] * 3, lambda: len(w._hooks)


@program()
def gradients_that_are_retained():
    w = leaf(1, 2)

    def fn(a):
        h = w * a
        h.retain_grad()
        w.grad = None
        y = h**2
        y.sum().backward(retain_graph=True)
        y.mean().backward()
        return h.grad, w.grad

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: w


@program()
def hooks_of_leaves():
    w, seen, handles = leaf(1, 2), [0.0], []

    def double(g):
        seen[0] = g.sum().item()
        return g * 2

    handles.append(w.register_hook(double))
    fn, calls, observe = gradients(lambda a, k: (w * a).sum(), w)

    def more(f):
        handles.append(w.register_hook(lambda g: g + 1))
        return f(x(1, 2))

    def less(f):
        handles.pop(0).remove()
        return f(x(1, 2))

    return fn, [calls[0], calls[1], more, calls[0], less, calls[0]], lambda: (observe(), seen)


@program()
def hooks_after_accumulation():
    w, lr = leaf(1, 2), Box(rate=0.1)

    def update(p):
        with T.no_grad():
            p -= lr.rate * p.grad
        p.grad = None

    w.register_post_accumulate_grad_hook(update)

    def fn(a):
        loss = (w * w * a).sum()
        loss.backward()
        return loss.item(), w.grad

    return fn, [lambda f: f(x(1, 2)), lambda f: (setattr(lr, "rate", 0.2), f(x(3, 4)))[1]], lambda: w


@program()
def hooks_of_modules_before_and_after():
    model, seen = T.nn.Sequential(T.nn.Linear(2, 2), T.nn.Tanh()), []
    with T.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
    model[0].register_full_backward_pre_hook(lambda module, out: (out[0] * 2,))
    model[1].register_full_backward_hook(lambda module, inp, out: seen.append((inp[0].sum().item(), out[0].sum().item())))

    def fn(a):
        model.zero_grad()
        model(a).sum().backward()
        return [p.grad for p in model.parameters()]

    return fn, [lambda f: f(T.ones(3, 2)), lambda f: f(T.ones(3, 2) * 0.1)], lambda: seen
