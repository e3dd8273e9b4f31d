"""Capture: a call is run eagerly on an instrumented copy of its source, and what it did becomes a program with guards."""

from tracejit.capture.reasons import CATALOGUE, Reason
from tracejit.capture.recording.entry import (
    MISS,
    Alias,
    Body,
    Exit,
    ExitPoint,
    Recording,
    ScalarInput,
    TensorInput,
    TensorOutput,
    WrittenInput,
    calling,
)
from tracejit.capture.session import declare_inlined, is_recording, record

__all__ = [
    "CATALOGUE", "MISS", "Alias", "Body", "Exit", "ExitPoint", "Reason", "Recording", "ScalarInput", "TensorInput", "TensorOutput",
    "WrittenInput", "calling", "declare_inlined", "is_recording", "record",
]  # fmt: skip
