"""Whether schedulers of learning rates are stepped after their optimizer, as they should be: PyTorch's warning where they are not.

Kept beside the objects, not in them, so that a compiled training step has nothing to write and nothing to guard: its first call, which is
recorded, is an eager one.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

from tracejit.core.package_files import level_of_program
from tracejit.core.weak_table import WeakTable

__all__ = ["check_order", "note_step"]

_stepped: Final[WeakTable[bool]] = WeakTable()  # optimizers that have made a step
_checked: Final[WeakTable[bool]] = WeakTable()  # schedulers


def note_step(optimizer: Any) -> None:
    """An optimizer makes a step."""
    if optimizer not in _stepped:
        _stepped[optimizer] = True


def check_order(scheduler: Any) -> None:
    """Warn at the first step of a scheduler whose optimizer has made none."""
    if scheduler in _checked:
        return
    _checked[scheduler] = True
    if scheduler.optimizer not in _stepped:
        warnings.warn(
            f"{type(scheduler).__name__}.step() was called before {type(scheduler.optimizer).__name__}.step(): call optimizer.step() "
            "first, then scheduler.step(), else the first value of the learning rate schedule is skipped",
            UserWarning,
            stacklevel=level_of_program(),
        )
