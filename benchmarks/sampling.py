"""Effective draws a second: densities compiled by tracejit against PyMC's own, both sampled by nutpie.

Run as `python -m benchmarks.sampling [--draws N] [--rounds N]`; it needs the packages nutpie, arviz and pymc.  For
each posterior of benchmarks/posteriors.py both are compiled first; then they draw in turn, four chains on two cores,
with the same seeds.  Printed are medians over the rounds: the least effective sample size (bulk; Vehtari et al.,
Rank-Normalization, Folding, and Localization, Bayesian Analysis 16, 2021) of all parameters over the seconds that
drawing took, tuning included, and their ratio.  The run fails where a posterior mean is further from the exact one,
or from PyMC's, than five times its Monte Carlo error.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import arviz
import numpy as np
import nutpie
import pymc

from benchmarks.environment import describe, one_line
from benchmarks.posteriors import POSTERIORS, Posterior
from tracejit.inference.nutpie import compiled_model

__all__ = ["main"]

_CHAINS: Final = 4
_CORES: Final = 2
_ERRORS: Final = 5.0  # how many Monte Carlo errors a mean may be off


def _drawn(model: Any, draws: int, seed: int) -> tuple[Any, float]:
    start = time.perf_counter()
    trace = nutpie.sample(model, draws=draws, tune=1000, chains=_CHAINS, cores=_CORES, seed=seed, progress_bar=False)
    return trace.posterior, time.perf_counter() - start


def _means(posterior: Any, names: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """name -> (means, Monte Carlo errors)."""
    errors = arviz.mcse(posterior[list(names)])
    return {name: (posterior[name].mean(("chain", "draw")).values, errors[name].values) for name in names}


def _is_far(name: str, found: tuple[Any, Any], expected: Any, error: Any = 0.0) -> str:
    distance = float(np.max(np.abs(found[0] - expected) / np.hypot(found[1], error)))
    return f"{name}: the mean is {distance:.1f} Monte Carlo errors from the other" if not distance <= _ERRORS else ""


def _row(posterior: Posterior, draws: int, rounds: int) -> tuple[str, list[str]]:
    """(the line of the table, what is wrong)."""
    seconds, models = {}, {}
    model = posterior.model()
    for name, make in (
        ("tracejit", lambda: compiled_model(model)),
        ("pymc", lambda: nutpie.compile_pymc_model(posterior.pymc(pymc))),
    ):
        start = time.perf_counter()
        models[name] = make()
        seconds[name] = time.perf_counter() - start
    names = list(model.parameters)
    rates: dict[str, list[float]] = {name: [] for name in models}
    kept: dict[str, Any] = {}
    for turn in range(rounds):
        for name in list(models) if turn % 2 else list(models)[::-1]:
            kept[name], taken = _drawn(models[name], draws, 100 + turn)
            effective = arviz.ess(kept[name][names])
            rates[name].append(min(float(effective[p].min()) for p in names) / taken)
    ours, theirs = _means(kept["tracejit"], names), _means(kept["pymc"], names)
    wrong = [_is_far(f"{posterior.name}.{p}", ours[p], *theirs[p]) for p in names]
    wrong += [_is_far(f"{posterior.name}.{p}, exact", ours[p], exact) for p, exact in (posterior.means() or {}).items()]
    rate, other = (statistics.median(rates[name]) for name in ("tracejit", "pymc"))
    line = f"{posterior.name:14}{rate:12,.0f}{other:12,.0f}{rate / other:8.2f}x{seconds['tracejit']:12.2f} s{seconds['pymc']:10.2f} s"
    return line, [text for text in wrong if text]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a mean is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling", description="effective draws a second through nutpie")
    parser.add_argument("--draws", type=int, default=2000, help="of each chain")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args(argv)
    print(one_line(describe(1)))
    print(f"nutpie {nutpie.__version__}, pymc {pymc.__version__}; effective draws a second, {_CHAINS} chains on {_CORES} cores")
    print(f"{'posterior':14}{'tracejit':>12}{'pymc':>12}{'ratio':>9}{'compiling':>14}{'pymc':>12}")
    status = 0
    for posterior in POSTERIORS:
        line, wrong = _row(posterior, arguments.draws, arguments.rounds)
        print(line)
        for text in wrong:
            print(text)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
