"""What is said where trained weights are asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["refuse_weights"]


def refuse_weights(name: str, weights: Any, pretrained: Any) -> None:
    """Raises RuntimeError unless a model without trained weights is asked for."""
    if weights is not None or pretrained:
        raise RuntimeError(
            f"{name}(): trained weights are not downloaded, got {weights if weights is not None else f'pretrained={pretrained}'}; make the "
            "model without them and load_state_dict(load(file)) a file of torchvision's"
        )
