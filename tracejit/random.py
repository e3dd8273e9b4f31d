"""tracejit.random: the generator of random numbers.

Counter based (Philox4x32-10): the n-th number of a stream is a function of the seed and n.  Eager and compiled runs draw the same
numbers in program order.
"""

from tracejit.core.missing import missing_names
from tracejit.ops.public.random import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

__getattr__ = missing_names(__name__)
