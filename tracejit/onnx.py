"""tracejit.onnx: models cannot be exported to ONNX from here; asking for it raises an error that says so."""

from __future__ import annotations

from typing import Any, NoReturn

from tracejit.core.missing import missing_names

__all__ = ["dynamo_export", "export", "is_in_onnx_export"]


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: save the state_dict, and export the model where it is written for another library."""
    raise NotImplementedError(
        "onnx.export(): tracejit does not write ONNX; save model.state_dict() and export it from another library"
    )


dynamo_export = export


def is_in_onnx_export() -> bool:
    """False."""
    return False


__getattr__ = missing_names(__name__)
