"""Capture: runs a call eagerly on an instrumented copy of its source, and makes a graph, guards and effects of what it did.

`record(function, args, kwargs)` returns (Recording, result).  The run is a real eager call: its result is the caller's result.
If it raises, the error reaches the caller and there is no recording.  `Recording.reason` says why a call cannot be replayed; if
it is None, the recording has the raw graph, guards, effects and facts about the tensors (recording/entry.py).

* syntax/ makes the instrumented code.  Its steps call methods of a `CaptureFrame` (frame.py), which pass them to the handlers
  (handlers/) of the thread's recorder.
* Tensor operations pass the door (core/interpreter.py) to tensors.py, which evaluates them and appends them to the graph.
  tensor_state.py records the state of tensors besides their contents.
* session.py starts and ends a recording, and watches for Python code that runs without being instrumented.
* loop_recogniser.py, library_loops.py, while_loops.py and what they use recognise loops whose steps need not all run.
* value_kinds.py tells what a value is to the handlers, container_kinds.py what is in a container, values/ what may be relied on for
  values that nothing can change.
* policies.py says which callables may be called, reasons.py why a call cannot be recorded.

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
