"""GradScaler: losses are multiplied before the backward pass, so that small gradients of float16 do not become zero, and gradients divided
after it; steps whose gradients are not finite are left out, and the scale follows.

Ordinary Python over tensors, followed by recordings: the scale and the count of good steps are tensors, so that they may change without
another recording, and whether a step is left out is the one thing that Python asks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.dtypes import float16, float32, float64, int32
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import logical_and, logical_not, logical_or, where
from tracejit.ops.elementwise.rounding import isfinite
from tracejit.ops.public import FUNCTIONS
from tracejit.tensor import Tensor, tensor

__all__ = ["GradScaler"]

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"
_all = FUNCTIONS["all"]
_REMEDY = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."


class GradScaler:
    """scale(loss).backward(); step(optimizer); update(), as in PyTorch.  enabled=False: everything passes through.

    device: "cpu"; for others, which are not there, the scaler is disabled with a warning.  The scale begins at `init_scale`, is multiplied
    by `growth_factor` after `growth_interval` steps in a row with finite gradients, and by `backoff_factor` after one without."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if device != "cpu" and enabled:
            warnings.warn(
                f"GradScaler is enabled for {device!r}, which is not available.  Disabling; pass device='cpu' to scale here.",
                stacklevel=2,
            )
            enabled = False
        self._device = device
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._stages: list[
            tuple[Any, str, Any]
        ] = []  # (optimizer, stage, whether its gradients were not finite) since the last update

    def _present(self, name: str) -> Any:
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None.  {_REMEDY}")
        return self._scale

    def _begin(self) -> None:
        if self._scale is None:
            self._scale = tensor(float(self._init_scale), dtype=float32)
            self._growth_tracker = tensor(self._init_growth_tracker, dtype=int32)

    def scale(self, outputs: Any) -> Any:
        """A tensor, or the tensors of a list or another iterable, times the scale."""
        if not self._enabled:
            return outputs
        self._begin()
        return self._scaled(outputs)

    def _scaled(self, outputs: Any) -> Any:
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, list | tuple):
            return type(outputs)([self._scaled(x) for x in outputs])
        if isinstance(outputs, Iterable):
            return map(self._scaled, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _stage(self, optimizer: Any) -> tuple[str, Any]:
        for known, stage, not_finite in self._stages:
            if known is optimizer:
                return stage, not_finite
        return _READY, None

    def _enter(self, optimizer: Any, stage: str, not_finite: Any) -> None:
        self._stages = [item for item in self._stages if item[0] is not optimizer] + [(optimizer, stage, not_finite)]

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place: before they are clipped, say.  step() does so
        unless it was done.  Raises RuntimeError where it was, or after step(); ValueError for gradients of float16."""
        if not self._enabled:
            return
        scale = self._present("unscale_")
        stage, _ = self._stage(optimizer)
        if stage == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._enter(optimizer, _UNSCALED, self._divide(optimizer, scale, keeps_half=False))

    def _divide(self, optimizer: Any, scale: Any, keeps_half: bool) -> Any:
        """Whether some gradient is not finite (a bool tensor; None without gradients); all are divided."""
        with no_grad():
            inverse = cast(1.0 / cast(scale, dtype=float64), dtype=float32)
            found = None
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    grad = parameter.grad
                    if grad is None:
                        continue
                    if grad.dtype is float16 and not keeps_half:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    wrong = logical_not(_all(isfinite(grad)))
                    found = wrong if found is None else logical_or(found, wrong)
                    grad.mul_(inverse)
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """unscale_(optimizer) unless that was done, then optimizer.step(*args, **kwargs) if all gradients are finite; what that returns.
        Raises RuntimeError for a second step since update(), and for closures; AssertionError where there are no gradients."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._present("step")
        stage, not_finite = self._stage(optimizer)
        if stage == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if stage == _READY:
            self.unscale_(optimizer)
            _, not_finite = self._stage(optimizer)
        if not_finite is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if not_finite.item() else optimizer.step(*args, **kwargs)
        self._enter(optimizer, _STEPPED, not_finite)
        return result

    def update(self, new_scale: Any = None) -> None:
        """The scale of the next iteration: `new_scale` if given, else as the gradients since the last update say.  Raises AssertionError
        where no gradients were looked at."""
        if not self._enabled:
            return
        scale, tracker = self._present("update"), self._growth_tracker
        assert tracker is not None
        with no_grad():
            if new_scale is not None:
                scale.copy_(new_scale.detach() if isinstance(new_scale, Tensor) else tensor(float(new_scale)))
            else:
                found = None
                for _, _, not_finite in self._stages:
                    if not_finite is not None:
                        found = not_finite if found is None else logical_or(found, not_finite)
                if found is None:
                    raise AssertionError("No inf checks were recorded prior to update.")
                successful = tracker + 1
                enough = successful == self._growth_interval
                grown = scale * self._growth_factor
                grows = logical_and(enough, isfinite(grown))
                scale.copy_(where(found, scale * self._backoff_factor, where(grows, grown, scale)))
                tracker.copy_(where(logical_or(found, enough), tracker * 0, successful))
        self._stages = []

    def get_scale(self) -> float:
        """The scale as a number; 1.0 where scaling is disabled."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale) if self._scale is None else float(self._scale.item())

    def _tracked(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Another factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor by which the scale falls."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Another factor by which the scale falls."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Another number of good steps."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict() takes; empty where scaling is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._tracked(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state.  Raises RuntimeError for an empty one, which a disabled scaler had."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._stages:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update()."
            )
        state = dict(self.__dict__)
        if self._enabled:
            state.update(_init_scale=self.get_scale(), _init_growth_tracker=self._tracked(), _scale=None, _growth_tracker=None)
        return state
