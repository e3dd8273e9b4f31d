"""What is said where trained weights are asked for."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["refuse_weights", "weights_of"]


def refuse_weights(name: str, weights: Any, pretrained: Any) -> None:
    """Raises RuntimeError unless a model without trained weights is asked for."""
    if weights is not None or pretrained:
        raise RuntimeError(
            f"{name}(): trained weights are not downloaded, got {weights if weights is not None else f'pretrained={pretrained}'}; make the "
            "model without them and load_state_dict(load(file)) a file of torchvision's"
        )


def weights_of(name: str) -> Any:
    """The names of trained weights, `ResNet18_Weights` ...: a model that is asked for them raises the error that says what to do."""
    return enum.Enum(f"{name}_Weights", {"IMAGENET1K_V1": "IMAGENET1K_V1", "DEFAULT": "IMAGENET1K_V1"}, module=__name__)
