"""Capture: a call is run eagerly on an instrumented copy of its source, and what it did becomes a program with guards."""

from tracejit.capture.entry import Alias, ExitPoint, Recording, ScalarInput, TensorInput, TensorOutput, WrittenInput
from tracejit.capture.reasons import CATALOGUE, Reason
from tracejit.capture.recorder import MISS
from tracejit.capture.session import declare_inlined, is_recording, record

__all__ = [
    "CATALOGUE", "MISS", "Alias", "ExitPoint", "Reason", "Recording", "ScalarInput", "TensorInput", "TensorOutput", "WrittenInput",
    "declare_inlined", "is_recording", "record",
]  # fmt: skip
