"""emcee: an ensemble of walkers (Foreman-Mackey, Hogg, Lang and Goodman, emcee: The MCMC Hammer, PASP 125, 2013).

It needs no gradients.  All walkers of a step are evaluated in one call, as C functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.inference.draws import Draws
from tracejit.inference.model import Model

__all__ = ["sample"]

emcee = lazy_module("emcee")


def sample(model: Model, *, draws: int, tune: int, chains: int, seed: int | None, quiet: bool = False, **options: Any) -> Draws:
    """See `inference.sample`.  chains: how many walkers: an even number of at least twice the model's dimension.
    options: of emcee.EnsembleSampler.

    The walkers of an ensemble are not independent chains: of the effective sample sizes that are computed from them
    only the order of magnitude counts.

    Raises ImportError if emcee is not installed, ValueError for fewer walkers than emcee needs."""
    if chains < 2 * model.dimension or chains % 2:
        raise ValueError(
            f"sample(): emcee needs an even number of at least {2 * model.dimension} walkers (chains) for {model.dimension} unconstrained "
            f"numbers, got {chains}"
        )
    sampler = emcee.EnsembleSampler(chains, model.dimension, model.log_densities, vectorize=True, **options)
    random = np.random.RandomState(seed)
    start = emcee.State(model.initial_positions(chains, seed), random_state=random.get_state())
    sampler.run_mcmc(start, tune + draws, progress=not quiet)
    positions = np.swapaxes(sampler.get_chain(discard=tune), 0, 1)
    values = np.swapaxes(sampler.get_log_prob(discard=tune), 0, 1)
    return Draws(model.constrain(positions), "emcee", {"lp": values}, model.dims, model.coords, sampler)
