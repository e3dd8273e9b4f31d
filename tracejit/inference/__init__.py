"""Bayesian inference: a log-density over named parameters, and the samplers of other packages that draw from it.

* model.py: `Model`, a log-density over a dictionary of named tensors, as one function of unconstrained numbers,
  compiled, with gradient.
* draws.py: `Draws`, what samplers return: named arrays.
* sampling.py: `sample(model, sampler=...)`.
* nutpie.py, walnutpie.py, emcee.py, blackjax.py: one package each, which is imported when it is asked for.

Must not know: how functions are compiled; of a package anything but its public interface, except where the module
says so.
Start reading: model.py.
"""

from tracejit.inference.draws import Draws
from tracejit.inference.model import Model, Parameter
from tracejit.inference.sampling import sample

__all__ = ["Draws", "Model", "Parameter", "sample"]
