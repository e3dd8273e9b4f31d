"""Capture: a call is run eagerly on an instrumented copy of its source, and what it did becomes a program with guards.

`record(function, args, kwargs)` gives (Recording, result).  The run is a real one: its result is returned, what it raises is
raised, and then there is no recording.  `Recording.reason` says why a call cannot be replayed; else there are the raw graph,
guards, effects and facts about the tensors (recording/entry.py).

syntax/ makes instrumented code, whose steps call a `Frame` (frame.py), which hands them to the handlers (handlers/) around the
one recorder of the thread.  Tensor operations come by the door to tensors.py, which evaluates them and appends them to the
graph; tensor_state.py has what is known of tensors besides their contents.  session.py watches for code that runs
uninstrumented.  The modules beside these are about loops whose steps need not run (loop_recogniser.py, library_loops.py, while_loops.py and
what they use), about what may be called (policies.py) and about why a call cannot be recorded (reasons.py).

Must not know: how a graph is compiled, which recordings a function has.
Start reading: session.py, syntax/convert.py, handlers/recorder.py, recording/entry.py.
"""

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
