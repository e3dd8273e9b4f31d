"""What optimizers compute, for all parameters that are updated with the same numbers.

`optim` says which tensors and which numbers; its Python is followed by a recording step by step, as the program's is.  Here there are
operations alone, in the order in which they are documented there, so a recording takes them as those of any function of the library,
however many parameters there are.  Parameters and what is kept of them are changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["adam_update", "sgd_update"]


def sgd_update(
    members: Sequence[tuple[Any, Any, Any]],
    lr: Any,
    *,
    weight_decay: Any = None,
    momentum: Any = None,
    incoming: Any = None,
    nesterov: bool = False,
    maximize: bool = False,
) -> list[Any]:
    """members: (parameter, gradient, velocity); a velocity of None begins with the gradient.  incoming: what the gradient is multiplied by
    before it is added to the velocity.  A number that is None is not used.  Returns the velocities."""
    velocities = []
    for parameter, gradient, velocity in members:
        if maximize:
            gradient = -gradient
        if weight_decay is not None:
            gradient = gradient + parameter * weight_decay
        if momentum is not None:
            if velocity is None:
                velocity = gradient.clone()
            else:
                velocity.copy_(velocity * momentum + (gradient if incoming is None else gradient * incoming))
            gradient = gradient + velocity * momentum if nesterov else velocity
        velocities.append(velocity)
        parameter.copy_(parameter - gradient * lr)
    return velocities


def adam_update(
    members: Sequence[tuple[Any, Any, Any, Any, Any]],
    step_size: Any,
    correction: Any,
    eps: Any,
    *,
    taken: Any,
    squares_kept: Any,
    squares_taken: Any,
    scale: Any = None,
    weight_decay: Any = None,
    maximize: bool = False,
) -> None:
    """members: (parameter, gradient, mean, mean of squares, the largest such mean or None).  taken, squares_taken: how much of a
    gradient, and of its square, goes into the means; squares_kept: how much of the mean of squares stays.  scale: what parameters are
    multiplied by first; a number that is None is not used."""
    for parameter, gradient, mean, square, largest in members:
        if maximize:
            gradient = -gradient
        start = parameter
        if scale is not None:
            start = parameter * scale
        elif weight_decay is not None:
            gradient = gradient + parameter * weight_decay
        mean.copy_(mean + (gradient - mean) * taken)
        square.copy_(square * squares_kept + gradient * gradient * squares_taken)
        if largest is None:
            largest = square
        else:
            largest.copy_(largest.maximum(square))
        denominator = largest.sqrt() / correction + eps
        parameter.copy_(start - mean * step_size / denominator)
