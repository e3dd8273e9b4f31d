"""Random numbers that programs draw: the streams stay those of eager calls.  See capture_programs.py."""

from __future__ import annotations

import numpy as np
from registered_programs import Box, program

import tracejit as T
from tracejit.nn import functional as F


def seeded(f, *values):
    """Calls with ones times each of the values, in a stream of their own, with draws of eager mode between them."""
    T.manual_seed(3)
    return [(f(T.ones(5) * v), T.rand(2)) for v in values]


def go(f):
    return seeded(f, 1, 2, -3, 0.5)


def over_seeds(*seeds):
    """Calls with a tensor and each of the seeds, with draws of eager mode between them."""

    def call(f):
        T.manual_seed(3)
        return [(f(T.ones(3), seed), T.rand(2)) for seed in seeds]

    return call


@program()
def draws_of_every_kind():
    def fn(a):
        return (
            T.rand(3), T.randn(7), T.rand(5, dtype=T.float64), T.randn(9, dtype=T.float64), T.rand(5, dtype=T.float16),
            T.randn(5, dtype=T.bfloat16), T.randint(-5, 5, (7,)), T.randperm(9), T.normal(a, 0.5), T.bernoulli(T.sigmoid(a)),
            T.multinomial(a.abs() + 0.1, 3), T.rand_like(a), a.clone().uniform_(-1, 2), a.clone().exponential_(2), T.rand(0), T.randn(()),
        )  # fmt: skip

    return fn, [go], None


@program()
def dropout_of_every_kind():
    def fn(a):
        image = a[0] * T.ones(2, 3, 4, 4)
        return (
            F.dropout(a, 0.5), F.dropout(a, 0.0), F.dropout(a, 1.0), F.dropout(a, 0.3, training=False), F.dropout(a.half(), 0.5),
            F.dropout(a.double(), 0.1), F.dropout2d(image, 0.5), F.alpha_dropout(a, 0.3, True), F.dropout(a.clone(), 0.3, True, True),
        )  # fmt: skip

    return fn, [go], None


@program()
def a_drawn_number_decides():
    box = Box(sum=0.0)

    def fn(a):
        box.sum += T.rand(1).item()
        if T.rand(1).item() < 0.5:
            return F.dropout(a, 0.5), T.randn(2)
        return a[T.randperm(5)]

    return fn, [go, go], lambda: box.sum


@program()
def the_generator_of_an_argument_is_the_one_of_all_draws_or_another():
    own = T.Generator()

    def fn(a, g):
        return T.rand(2, generator=g), T.rand(2), T.rand(2, generator=g)

    def call(f, g):
        T.manual_seed(1)
        own.manual_seed(2)
        return f(T.ones(1), g)

    return fn, [lambda f, g=g: call(f, g) for g in (T.default_generator, own, None, T.default_generator, own)], own.get_state


@program()
def two_generators_that_may_be_one():
    g, h = T.Generator(), T.Generator()

    def fn(a, g, h):
        return T.rand(2, generator=g), T.rand(2, generator=h), T.rand(2, generator=g)

    def call(f, *generators):
        g.manual_seed(1)
        h.manual_seed(2)
        return f(T.ones(1), *generators)

    return fn, [lambda f: call(f, g, h), lambda f: call(f, g, g), lambda f: call(f, h, g)], None


@program()
def counters_that_wrap():
    g = T.Generator()

    def fn(a):
        return T.randn(9, generator=g), T.rand(9, generator=g), T.randint(0, 2**60, (5,), generator=g), T.rand(5, generator=g) * a

    def at(f, counter):
        g.set_state(T.tensor(list(np.array([77, counter], np.int64).view(np.uint8)), dtype=T.uint8))
        return f(T.ones(5)), g.get_state()

    return fn, [lambda f, c=c: at(f, c) for c in (0, 2**32 - 1, 2**63 - 2, -3, -1)], None


@program()
def gradients_after_other_draws():
    def fn(a):
        return (F.dropout(a, 0.5) ** 3).sum(), T.rand(2)

    def call(f, v):
        T.manual_seed(5)
        a = (T.ones(6) * v).requires_grad_()
        loss, drawn = f(a)
        between = T.rand(3)
        (first,) = T.autograd.grad(loss, a, create_graph=True)
        (second,) = T.autograd.grad(first.sum(), a)
        return loss, drawn, between, first, second

    return fn, [lambda f: call(f, 1), lambda f: call(f, 2)], None


@program()
def layers_in_both_modes():
    T.manual_seed(0)
    net = T.nn.Sequential(T.nn.Linear(5, 8), T.nn.Dropout(0.5), T.nn.Linear(8, 2))

    def fn(a):
        return net(a)

    def mode(f, training):
        net.train(training)
        return go(f)

    return fn, [lambda f: mode(f, True), lambda f: mode(f, False), lambda f: mode(f, True)], None


@program()
def draws_before_an_exit_are_made_again():
    def fn(a):
        drawn = F.dropout(a, 0.5)
        if drawn.sum() > 2:
            return drawn * 2, T.rand(2)
        if a.max() < 0:
            return T.randn(3)
        return drawn

    return fn, [go, go], None


@program()
def the_stream_begins_anew():
    own = T.Generator()

    def fn(a, seed):
        T.manual_seed(0)
        first = T.randn(3)
        T.manual_seed(seed)
        own.manual_seed(seed * 2 + 1)
        return first * a, T.rand(2), F.dropout(a, 0.5), T.rand(2, generator=own), T.initial_seed()

    return fn, [over_seeds(0, 7, -1, 2**40, -(2**40))] * 2, own.get_state


@program()
def seeds_at_the_ends_of_their_range():
    def fn(a, seed):
        T.manual_seed(seed)
        return a * T.rand(3)

    return fn, [over_seeds(-(2**63), 2**64 - 1, 2**63, 2**63 - 1, -1, True)], T.get_rng_state


@program()
def a_seed_that_the_program_computes():
    def fn(a, seed):
        T.manual_seed(int(a.sum().item()) + seed)
        return T.rand(2) * a[0]

    return fn, [over_seeds(1, 2, 3)] * 2, T.get_rng_state


@program()
def a_generator_that_the_call_makes():
    def fn(a, seed):
        g, h = T.Generator().manual_seed(seed), T.Generator()
        drawn = T.randperm(4, generator=g), T.rand(2, generator=h) * a[0], h.get_state()
        return drawn, g

    def call(f, seed):
        drawn, g = f(T.ones(3), seed)
        return drawn, T.rand(2, generator=g), g.get_state()

    return fn, [lambda f, s=s: call(f, s) for s in (3, 3, 4, 5)], None


@program()
def the_position_in_the_stream_is_kept_and_taken_up_again():
    def fn(a, seed):
        with T.random.fork_rng():
            T.manual_seed(seed)
            inner = T.rand(3)
        position = T.get_rng_state()
        drawn = T.rand(2)
        T.set_rng_state(position)
        return inner * a, drawn, T.rand(2), position

    return fn, [over_seeds(1, 2, -3)] * 2, T.get_rng_state


@program()
def a_seed_is_set_before_an_exit():
    def fn(a, seed):
        T.manual_seed(seed)
        drawn = T.rand(3)
        return drawn * 2 if (drawn * a).sum() > 1.5 else drawn

    return fn, [over_seeds(0, 1, 2, 3, 4, 5)] * 2, T.get_rng_state


@program()
def noise_of_the_shape_of_a_tensor():
    generator = np.random.default_rng(3)

    def fn(a):
        drawn = T.tensor(generator.normal(size=a.shape)), T.from_numpy(generator.random(a.shape[1:]))
        return a + drawn[0], drawn[1] * 2

    def call(f, rows):
        generator.bit_generator.state = np.random.PCG64(rows).state
        return f(T.ones(rows, 3, dtype=T.float64))

    return fn, [lambda f, n=n: call(f, n) for n in (4, 5, 4, 6, 5)], generator.random


@program()
def functions_without_gradients_in_each_other():
    @T.no_grad()
    def scaled(a):
        return a * 2

    @T.inference_mode()
    def shifted(a):
        return scaled(a) + 1

    @T.enable_grad()
    def with_gradients(a):
        return shifted(a) * a

    def fn(a):
        with T.no_grad():
            inner = shifted(a), T.is_grad_enabled(), with_gradients(a)
        return inner, scaled(a), with_gradients(a), T.is_grad_enabled()

    return fn, [lambda f, k=k: f(T.full((3,), k * 1.0).requires_grad_()) for k in range(1, 5)], None


@program(reason="unknown_callable")
def arrays_multiplied_with_tensors_of_another_dtype():
    array = np.arange(3.0)

    def fn(a):
        return array @ a, a @ array, a * array

    return fn, [lambda f, k=k: f(T.full((3,), float(k))) for k in (1, 2, 3)], None
