"""walnutpie: the WALNUTS sampler in C++ (Bou-Rabee, Carpenter, Kleppe and Liu, The Within-Orbit Adaptive Leapfrog
No-U-Turn Sampler, 2025).

It calls the density as a C function, without Python, one chain a thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.inference.draws import Draws
from tracejit.inference.model import Model

__all__ = ["sample"]

pyfunc = lazy_module("walnutpie.pyfunc")


def sample(model: Model, *, draws: int, tune: int, chains: int, seed: int | None, quiet: bool = False, **options: Any) -> Draws:
    """See `inference.sample`.  options: of walnutpie.pyfunc.walnuts_pyfunc; `inits` there are unconstrained
    positions.

    Every chain has `tune` and `draws` iterations, as if the sampler's own rules to stop earlier were not there,
    unless options say otherwise (min_sampling_iter ...); then chains are cut to the length of the shortest.

    Raises ImportError if walnutpie is not installed, ffi.CannotExportError for a log-density that needs Python, and what
    the log-density raises."""
    density = model.c_log_density("int")
    options.setdefault("inits", model.initial_positions(chains, seed))
    for name, count in (("warmup", tune), ("sampling", draws)):
        options.setdefault(f"min_{name}_iter", count)
        options.setdefault(f"max_{name}_iter", count)
    options.setdefault("refresh", 0 if quiet else max(1, (tune + draws) // 10))
    try:
        found = pyfunc.walnuts_pyfunc((density.ctypes, None), num_params=model.dimension, num_chains=chains, seed=seed, **options)
    except RuntimeError:  # it gives up where the density fails
        if density.errors:
            raise density.errors[0] from None
        raise
    shortest = min(len(chain) for chain in found)
    positions = np.stack([np.asarray(chain)[:shortest] for chain in found])
    return Draws(model.constrain(positions), "walnutpie", {}, model.dims, model.coords, found)
