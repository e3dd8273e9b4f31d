"""`sample`: one door to the samplers of other packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracejit.inference import blackjax, emcee, nutpie, walnutpie
from tracejit.inference.draws import Draws
from tracejit.inference.model import Model

__all__ = ["SAMPLERS", "sample"]

SAMPLERS: Final[dict[str, Callable[..., Draws]]] = {
    "nutpie": nutpie.sample,
    "walnutpie": walnutpie.sample,
    "emcee": emcee.sample,
    "blackjax": blackjax.sample,
}
"""The samplers, by the name of the package that each is from."""


def sample(
    model: Model,
    sampler: str = "nutpie",
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    seed: int | None = None,
    quiet: bool = False,
    **options: Any,
) -> Draws:
    """Draw from the density of a model.

    sampler: the package whose sampler draws; it must be installed.
        nutpie: the No-U-Turn sampler in Rust, on several cores.
        walnutpie: WALNUTS, which adapts the step size within a trajectory, in C++.
        emcee: an ensemble of walkers without gradients.
        blackjax: the No-U-Turn sampler in JAX, which calls the density through a callback.
    draws: per chain, after tuning.
    tune: draws in which the sampler adapts, which are dropped.
    chains: how many; of emcee, walkers.
    seed: of the sampler; None: a new one each time.
    quiet: whether to show no progress.
    options: passed on to the sampler.

    Returns named arrays.  Raises ValueError for an unknown sampler or counts below 1, ImportError for a package that
    is not installed, and what the log-density raises."""
    if sampler not in SAMPLERS:
        raise ValueError(f"sample(): sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    for name, count in (("draws", draws), ("chains", chains), ("tune", tune + 1)):
        if count < 1:
            raise ValueError(f"sample(): {name} must be at least {int(name != 'tune')}, got {count - (name == 'tune')}")
    return SAMPLERS[sampler](model, draws=draws, tune=tune, chains=chains, seed=seed, quiet=quiet, **options)
