"""What a call of a compiled gradient costs inside a function of Numba: a sampler and an integrator under
`numba.njit`.

Run as `python -m benchmarks.numba_calls [--quick]`.  Each program is one function in three forms: under `numba.njit`,
calling the compiled gradient (`CompiledFunction.njit`); the same function in Python, calling the same gradient; and
under `numba.njit`, calling a gradient that is derived and written by hand.  All three begin with the same numbers and
draw from generators with the same seed; the run fails where their results differ.  The goals: at least ten times as
fast as from Python, at most 1.3 times the time with the gradient by hand.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numba
import numpy as np

import tracejit
from benchmarks.environment import describe, one_line
from benchmarks.measure import interleaved
from benchmarks.table import duration
from tracejit.func import value_and_grad
from tracejit.nn.functional import softplus

__all__ = ["main"]

PARAMETERS: Final = 20
ROWS: Final = 50
_FASTER: Final = 10.0  # goal: at least so many times as fast as from Python
_BY_HAND: Final = 1.3  # goal: at most so many times the time with the gradient by hand
_SECONDS: Final = 1.0  # of calls of each form
_QUICK_SECONDS: Final = 0.02
_TOLERANCE: Final = 1e-9


def _observations() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    x = random.standard_normal((ROWS, PARAMETERS))
    chance = 1 / (1 + np.exp(-x @ random.standard_normal(PARAMETERS)))
    return x, (random.random(ROWS) < chance).astype(np.float64)


X, OUTCOMES = _observations()
_x, _outcomes = tracejit.from_numpy(X), tracejit.from_numpy(OUTCOMES)


def log_density(coefficients: Any) -> Any:
    """Of the coefficients of a logistic regression."""
    logits = _x @ coefficients
    return (_outcomes * logits - softplus(logits)).sum() - 0.5 * (coefficients * coefficients).sum()


@numba.njit
def log_density_by_hand(q: Any, out: Any) -> Any:
    value = 0.0
    for j in range(PARAMETERS):
        out[j] = -q[j]
        value -= 0.5 * q[j] * q[j]
    for i in range(ROWS):
        logit = 0.0
        for j in range(PARAMETERS):
            logit += X[i, j] * q[j]
        e = np.exp(-abs(logit))
        value += OUTCOMES[i] * logit - (max(logit, 0.0) + np.log1p(e))
        residual = OUTCOMES[i] - (1.0 if logit >= 0 else e) / (1.0 + e)
        for j in range(PARAMETERS):
            out[j] += residual * X[i, j]
    return value, out


def hmc(density: Any, start: Any, draws: int, step: float, leapfrogs: int, seed: int) -> Any:
    """Hamiltonian Monte Carlo: the last position, and how many proposals were accepted."""
    np.random.seed(seed)
    q, gradient = start.copy(), np.empty_like(start)
    value, _ = density(q, out=gradient)
    accepted = 0
    for _ in range(draws):
        p = np.random.normal(0.0, 1.0, q.size)
        before = value - 0.5 * np.dot(p, p)
        new, new_gradient, new_value = q.copy(), gradient.copy(), value
        for _ in range(leapfrogs):
            p += 0.5 * step * new_gradient
            new += step * p
            new_value, _ = density(new, out=new_gradient)
            p += 0.5 * step * new_gradient
        if np.log(np.random.random()) < new_value - 0.5 * np.dot(p, p) - before:
            q, gradient, value = new, new_gradient, new_value
            accepted += 1
    return q, accepted


def potential(positions: Any) -> Any:
    """Of a chain of masses between walls, with springs that stiffen (Fermi, Pasta, Ulam and Tsingou)."""
    stretched = tracejit.nn.functional.pad(positions, (1, 1)).diff()
    squares = stretched * stretched
    return (0.5 * squares + 0.25 * squares * squares).sum()


@numba.njit
def potential_by_hand(q: Any, out: Any) -> Any:
    value, before = 0.0, 0.0
    for j in range(PARAMETERS + 1):
        stretched = (q[j] if j < PARAMETERS else 0.0) - before
        square = stretched * stretched
        value += 0.5 * square + 0.25 * square * square
        force = stretched + square * stretched
        if j < PARAMETERS:
            out[j] = force
            before = q[j]
        if j > 0:
            out[j - 1] -= force
    return value, out


def runge_kutta(energy: Any, start: Any, steps: int, size: float, sign: float) -> Any:
    """The classical method of fourth order for bodies of mass 1 that `sign` times the gradient accelerates: positions
    and velocities after so many steps, and the value at the last of them."""
    q, v = start.copy(), np.zeros_like(start)
    f1, f2, f3, f4 = np.empty_like(q), np.empty_like(q), np.empty_like(q), np.empty_like(q)
    bent = sign * size * size
    value = 0.0
    for _ in range(steps):
        value, _ = energy(q, out=f1)
        energy(q + 0.5 * size * v, out=f2)
        energy(q + 0.5 * size * v + 0.25 * bent * f1, out=f3)
        energy(q + size * v + 0.5 * bent * f2, out=f4)
        q += size * v + bent / 6 * (f1 + f2 + f3)
        v += sign * size / 6 * (f1 + 2 * f2 + 2 * f3 + f4)
    return np.concatenate((q, v)), value


@dataclass(frozen=True)
class _Program:
    name: str
    run: Callable[..., Any]
    function: Callable[[Any], Any]
    by_hand: Any
    arguments: tuple[Any, ...]

    def forms(self) -> dict[str, Callable[[], Any]]:
        compiled = tracejit.compile(value_and_grad(self.function))
        exported = compiled.njit(self.arguments[0])
        jitted = numba.njit(self.run)

        def from_python(x: Any, out: Any) -> Any:
            value, gradient = compiled(tracejit.from_numpy(x))
            out[:] = gradient.numpy()
            return value.item(), out

        return {
            "njit": lambda: jitted(exported, *self.arguments),
            "python": lambda: self.run(from_python, *self.arguments),
            "by hand": lambda: jitted(self.by_hand, *self.arguments),
        }


_START: Final = np.sin(np.arange(1.0, PARAMETERS + 1))
_PROGRAMS: Final = (
    _Program("hmc", hmc, log_density, log_density_by_hand, (np.zeros(PARAMETERS), 50, 0.15, 10, 3)),
    _Program("runge_kutta", runge_kutta, log_density, log_density_by_hand, (_START, 100, 0.05, 1.0)),
    _Program("chain", runge_kutta, potential, potential_by_hand, (_START, 100, 0.05, -1.0)),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if results differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numba_calls", description="compiled gradients in Numba's code")
    parser.add_argument("--quick", action="store_true", help="few calls: a smoke test, its figures are noisy")
    seconds = _QUICK_SECONDS if parser.parse_args(argv).quick else _SECONDS
    print(one_line(describe(1)))
    print(f"{'program':12}{'njit':>12}{'from Python':>14}{'by hand':>12}{'/ Python':>11}{'/ by hand':>11}  goals missed")
    status = 0
    for program in _PROGRAMS:
        forms = program.forms()
        results = {name: call() for name, call in forms.items()}
        for name, result in results.items():
            far = max(float(np.max(np.abs(np.subtract(a, b)))) for a, b in zip(result, results["by hand"], strict=True))
            if not far <= _TOLERANCE:
                print(f"{program.name}: the result of {name} differs from that by hand by {far:.1e}")
                status = 1
        times = {name: statistics.median(samples) for name, samples in interleaved(forms, seconds).items()}
        faster, ratio = times["python"] / times["njit"], times["njit"] / times["by hand"]
        missed = [name for name, is_met in (("python", faster >= _FASTER), ("by hand", ratio <= _BY_HAND)) if not is_met]
        cells = "".join(f"{duration(times[name]):>{width}}" for name, width in (("njit", 12), ("python", 14), ("by hand", 12)))
        print(f"{program.name:12}{cells}{faster:10.1f}x{ratio:10.2f}x  {', '.join(missed) or '-'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
