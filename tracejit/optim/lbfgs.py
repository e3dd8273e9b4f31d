"""L-BFGS (Liu and Nocedal, 1989, https://doi.org/10.1007/BF01589116), with a line search for the strong Wolfe conditions
(Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and 3.6).

The order of operations, and which numbers are tensors of the parameters' dtype, are those of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tracejit.autograd.grad_mode import enable_grad, no_grad
from tracejit.functions import cat
from tracejit.optim.optimizer import Optimizer, require

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes of parameters and gradients; for one group of parameters.

    step(closure) makes up to max_iter iterations with up to max_eval evaluations (max_iter * 1.25).  It ends early when no gradient is
    above tolerance_grad, or nothing changes by more than tolerance_change.  line_search_fn: None (steps of lr) or "strong_wolfe"."""

    counts = ("func_evals", "n_iter")

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for a negative rate."""
        require(group["lr"] >= 0.0, f"Invalid learning rate: {group['lr']}")

    # ---- parameters as one vector -----------------------------------------------------------------------------------
    def _gradient(self) -> Any:
        flat = [(p.new_zeros(p.numel()) if p.grad is None else p.grad.detach().reshape(-1)) for p in self._params]
        return cat(flat).clone() if len(flat) == 1 else cat(flat)

    def _move(self, step: Any, direction: Any) -> None:
        start = 0
        for p in self._params:
            end = start + p.numel()
            p.copy_(p + (direction[start:end] * step).reshape(p.shape))
            start = end

    def _evaluate(self, closure: Callable[[], Any], origin: list[Any], step: Any, direction: Any) -> _Point:
        """Loss and gradient at a distance from `origin`, to which the parameters go back."""
        self._move(step, direction)
        loss = float(closure())
        gradient = self._gradient()
        for p, before in zip(self._params, origin, strict=True):
            p.copy_(before)
        return _Point(step, loss, gradient, gradient.dot(direction))

    # ---- iterations -------------------------------------------------------------------------------------------------
    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Iterate; `closure` clears the gradients, evaluates the loss, calls backward() and returns the loss.  Returns the first loss."""
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        closure = enable_grad()(closure)
        group, state = self.param_groups[0], self.state[self._params[0]]
        lr = group["lr"] if isinstance(group["lr"], int | float) else group["lr"].item()
        for count in ("func_evals", "n_iter"):
            state.setdefault(count, 0)
        first_loss = closure()
        loss, evaluations = float(first_loss), 1
        state["func_evals"] += 1
        gradient = self._gradient()
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        iterations = 0
        while iterations < group["max_iter"]:
            iterations += 1
            state["n_iter"] += 1
            direction = _first_direction(state, gradient) if state["n_iter"] == 1 else _direction(state, gradient, group)
            state["prev_flat_grad"] = gradient.clone()
            state["prev_loss"] = before = loss
            step = lr
            if state["n_iter"] == 1:
                step = (1.0 / gradient.abs().sum()).clamp(max=1.0) * lr
            state["d"], state["t"] = direction, step
            slope = gradient.dot(direction)
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                search = _Search(self, closure, direction, _Point(0, loss, gradient, slope), group["max_eval"] - evaluations)
                best, used = search.run(step)
                step, loss, gradient = best.step, best.loss, best.gradient
                state["t"] = step
                self._move(step, direction)
            else:
                self._move(step, direction)
                if iterations != group["max_iter"]:
                    loss, used = float(closure()), 1
                    gradient = self._gradient()
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or _largest(direction * step) <= group["tolerance_change"]
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first_loss


def _largest(vector: Any) -> float:
    return float(vector.abs().max())


def _first_direction(state: dict[str, Any], gradient: Any) -> Any:
    state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
    return -gradient


def _direction(state: dict[str, Any], gradient: Any, group: dict[str, Any]) -> Any:
    """The approximate inverse Hessian times the gradient, downhill, after the last change has become part of the history."""
    changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
    change, step = gradient - state["prev_flat_grad"], state["d"] * state["t"]
    curvature = change.dot(step)
    if curvature > 1e-10:
        if len(changes) == group["history_size"]:
            for history in (changes, steps, inverses):
                history.pop(0)
        changes.append(change)
        steps.append(step)
        inverses.append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)
    direction = -gradient
    weights: list[Any] = [None] * len(changes)
    for i in range(len(changes) - 1, -1, -1):
        weights[i] = steps[i].dot(direction) * inverses[i]
        direction = direction - changes[i] * weights[i]
    direction = direction * state["H_diag"]
    for i in range(len(changes)):
        direction = direction + steps[i] * (weights[i] - changes[i].dot(direction) * inverses[i])
    return direction


# ---- line search ----------------------------------------------------------------------------------------------------
class _Point(NamedTuple):
    """What is known at a distance along the direction; slope: the derivative of the loss along it."""

    step: Any
    loss: float
    gradient: Any
    slope: Any


def _cubic_minimum(x: _Point, y: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with their slopes is least, within bounds (the two points, unless given)."""
    low, high = bounds if bounds is not None else (x.step, y.step) if x.step <= y.step else (y.step, x.step)
    d1 = x.slope + y.slope - 3 * (x.loss - y.loss) / (x.step - y.step)
    square = d1**2 - x.slope * y.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    if x.step <= y.step:
        least = y.step - (y.step - x.step) * ((y.slope + d2 - d1) / (y.slope - x.slope + 2 * d2))
    else:
        least = x.step - (x.step - y.step) * ((x.slope + d2 - d1) / (x.slope - y.slope + 2 * d2))
    return min(max(least, low), high)


class _Search:
    """A search for a step where the loss has decreased enough (c1) and its slope is small enough (c2)."""

    c1, c2, tolerance = 1e-4, 0.9, 1e-9

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any], direction: Any, start: _Point, limit: int) -> None:
        self.optimizer, self.closure, self.direction, self.start, self.limit = optimizer, closure, direction, start, limit
        self.origin = [p.clone() for p in optimizer._params]
        self.evaluations = self.rounds = 0

    def run(self, step: Any) -> tuple[_Point, int]:
        """(the point found, how many evaluations it took)."""
        low, high = self._bracket(step)
        point = low if high is None else self._zoom(low, high)
        return point, self.evaluations

    def _at(self, step: Any) -> _Point:
        self.evaluations += 1
        return self.optimizer._evaluate(self.closure, self.origin, step, self.direction)

    def _too_high(self, point: _Point) -> bool:
        return bool(point.loss > self.start.loss + self.c1 * point.step * self.start.slope)

    def _flat_enough(self, point: _Point) -> bool:
        return bool(abs(point.slope) <= -self.c2 * self.start.slope)

    def _bracket(self, step: Any) -> tuple[_Point, _Point | None]:
        """Two points between which there is one to find; or that point, and None."""
        previous, point = self.start, self._at(step)
        while self.rounds < self.limit:
            if self._too_high(point) or (self.rounds > 1 and point.loss >= previous.loss):
                return previous, point
            if self._flat_enough(point):
                return point, None
            if point.slope >= 0:
                return previous, point
            bounds = (point.step + 0.01 * (point.step - previous.step), point.step * 10)
            step = _cubic_minimum(previous, point, bounds)
            previous, point = point, self._at(step)
            self.rounds += 1
        return self.start, point

    def _zoom(self, first: _Point, second: _Point) -> _Point:
        """Narrow the bracket down."""
        bracket = [first, second]
        low, high = (0, 1) if first.loss <= second.loss else (1, 0)
        length = self.direction.abs().max()
        stuck = False
        while self.rounds < self.limit:
            if abs(bracket[1].step - bracket[0].step) * length < self.tolerance:
                break
            step, stuck = self._trial(bracket[0], bracket[1], stuck)
            point = self._at(step)
            self.rounds += 1
            if self._too_high(point) or point.loss >= bracket[low].loss:
                bracket[high] = point
                low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
                continue
            done = self._flat_enough(point)
            if not done and point.slope * (bracket[high].step - bracket[low].step) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
            if done:
                break
        return bracket[low]

    def _trial(self, x: _Point, y: _Point, stuck: bool) -> tuple[Any, bool]:
        """(the next step to try, whether it is close to an end of the bracket): where the last one was as well, it is moved inside."""
        step = _cubic_minimum(x, y)
        least, most = min(x.step, y.step), max(x.step, y.step)
        margin = 0.1 * (most - least)
        if not min(most - step, step - least) < margin:
            return step, False
        if stuck or step >= most or step <= least:
            return (most - margin if abs(step - most) < abs(step - least) else least + margin), False
        return step, True
