"""Helpers on modules and parameters: gradients as a whole, parametrizations, sequences of different lengths.

Must not know: optimizers, the compiler.
Start reading: gradients.py, then parametrize.py.
"""

from tracejit.nn.utils import fusion, gradients, parametrizations, parametrize, prune, reparametrisation, rnn, stateless
from tracejit.nn.utils.fusion import *  # noqa: F403
from tracejit.nn.utils.gradients import *  # noqa: F403
from tracejit.nn.utils.reparametrisation import *  # noqa: F403

__all__ = [
    "fusion", "parametrizations", "parametrize", "prune", "rnn", "stateless",
    *fusion.__all__, *gradients.__all__, *reparametrisation.__all__,
]  # fmt: skip
