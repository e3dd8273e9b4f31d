"""tracejit.onnx: models cannot be exported to ONNX from here; asking for it raises an error that says so."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from tracejit.core.missing import absent, missing_names

__all__ = ["TrainingMode", "dynamo_export", "export", "is_in_onnx_export", "register_custom_op_symbolic"]


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: save the state_dict, and export the model where it is written for another library."""
    raise NotImplementedError(
        "onnx.export(): tracejit does not write ONNX; save model.state_dict() and export it from another library"
    )


dynamo_export = export
register_custom_op_symbolic = absent(
    __name__, "register_custom_op_symbolic", "onnx.register_custom_op_symbolic(): tracejit does not write ONNX; leave it out"
)


class TrainingMode(enum.Enum):
    """Which mode a model would be exported in."""

    EVAL, PRESERVE, TRAINING = range(3)


def is_in_onnx_export() -> bool:
    """False."""
    return False


__getattr__ = missing_names(__name__)
