"""blackjax: the No-U-Turn sampler in JAX (Cabezas et al., BlackJAX: Composable Bayesian inference in JAX, 2024).

JAX cannot see into the density: it calls back into Python for each gradient.  That costs tens of microseconds, so
nutpie is faster for a density that takes less; this is for programs that use BlackJAX otherwise, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.core.progress import Progress
from tracejit.inference.draws import Draws
from tracejit.inference.model import Model

__all__ = ["log_density", "sample"]

blackjax = lazy_module("blackjax")
jax = lazy_module("jax")


def log_density(model: Model) -> Any:
    """The log-density of unconstrained positions as a function of JAX, with its gradient: for algorithms of BlackJAX
    under `jax.jit`, not under `jax.vmap` of more than one chain at a time.

    Its numbers are float64 where JAX's 64-bit mode is on, else rounded to float32."""
    dtype = jax.numpy.zeros(()).dtype
    shapes = (jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((model.dimension,), dtype))

    def evaluated(position: Any) -> Any:
        value, gradient = model.evaluate(position)
        return np.asarray(value, dtype), np.asarray(gradient, dtype)

    def both(position: Any) -> Any:
        return jax.pure_callback(evaluated, shapes, position, vmap_method="sequential")

    @jax.custom_vjp  # type: ignore[untyped-decorator, unused-ignore]
    def density(position: Any) -> Any:
        return both(position)[0]

    density.defvjp(both, lambda gradient, cotangent: (cotangent * gradient,))
    return density


@contextmanager
def _double_precision() -> Iterator[None]:
    """JAX's 64-bit mode, for all threads: those that call back know no other."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def sample(model: Model, *, draws: int, tune: int, chains: int, seed: int | None, quiet: bool = False, **options: Any) -> Draws:
    """See `inference.sample`.  Chains run one after the other, and are what progress counts.  options: of
    blackjax.window_adaptation.

    It turns JAX's 64-bit mode on while it runs.  Raises ImportError if blackjax or jax is not installed."""
    with _double_precision(), Progress("blackjax", total=chains, unit="chain", quiet=quiet, between_steps=True) as progress:
        density = log_density(model)
        adaptation = blackjax.window_adaptation(blackjax.nuts, density, **options)
        seeds = np.random.default_rng(seed).integers(0, 2**31, chains)
        chains_found, statistics = [], []
        for start, chain_seed in zip(model.initial_positions(chains, seed), seeds, strict=True):
            for_tuning, for_draws = jax.random.split(jax.random.key(int(chain_seed)))
            (state, parameters), _ = adaptation.run(for_tuning, jax.numpy.asarray(start), tune)
            step = blackjax.nuts(density, **parameters).step

            def transition(state: Any, key: Any, step: Any = step) -> Any:
                state, information = step(key, state)
                return state, (state.position, information.acceptance_rate, information.is_divergent)

            _, (positions, accepted, diverged) = jax.lax.scan(transition, state, jax.random.split(for_draws, draws))
            chains_found.append(np.asarray(positions))
            statistics.append((np.asarray(accepted), np.asarray(diverged)))
            progress.step()
    named = dict(zip(("acceptance_rate", "diverging"), map(np.stack, zip(*statistics, strict=True)), strict=True))
    return Draws(model.constrain(np.stack(chains_found)), "blackjax", named, model.dims, model.coords)
