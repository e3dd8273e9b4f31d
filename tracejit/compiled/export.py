"""The paths of a compiled function that are exported: recorded with example arguments, for these sizes.

`exported_program` calls the function with each tuple of examples until a path serves it, in a compiled function of its
own, since paths of the user's function may have symbolic sizes.  The recorded paths of the user's function for the
same sizes are exported, too: they serve what branches there.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tracejit.capture.recording.entry import MISS
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.core.symbolic import has_symbols
from tracejit.ffi.errors import CannotExportError
from tracejit.ffi.plain_program import PlainProgram, example_tensors
from tracejit.report.stats import Stats

__all__ = ["exported_program"]

_CALLS = 6
"""How often the function is recorded with an example before it counts as not compiled: a loop that branches takes several
recordings."""
_WAITS = 1000
_PAUSE = 0.005
"""How often, and for how many seconds each time, an example waits for its turn: one thread records at a time."""


class _Compiled(Protocol):
    """What this module needs of a CompiledFunction."""

    stats: Stats

    @property
    def reasons(self) -> Any: ...
    @property
    def __call__(self) -> Callable[..., Any]: ...
    def paths(self) -> list[RecordedPath]: ...


def exported_program(
    name: str,
    function: Callable[..., Any],
    own: _Compiled,
    used: _Compiled,
    examples: Sequence[Any],
    more: Sequence[Sequence[Any]],
) -> PlainProgram:
    """The program of `function` for arguments like `examples`.

    own: the function, compiled without symbolic sizes, to record calls.  used: the user's compiled function.  more:
    further examples, of the same types and sizes.  Raises CannotExportError, TypeError for examples that are no
    arrays, tensors or numbers or differ in number."""
    every = [example_tensors(name, given) for given in (examples, *more)]
    first = every[0]
    for given in every[1:]:
        if list(map(_example_type, given)) != list(map(_example_type, first)):
            raise TypeError(
                f"{name}: examples in `more` must be like {list(map(_example_type, first))}, got {list(map(_example_type, given))}"
            )
    paths: list[RecordedPath] = []
    for given in every:
        path = _serving_path(name, own, given)
        if path not in paths:
            paths.append(path)
    parameters = _parameters(function, len(first))
    program = PlainProgram(name, parameters, paths, first)
    for other in (*own.paths(), *used.paths()):  # they may serve calls that no example shows; what cannot be exported is left out
        if any(other is path or path.stands_for(other.recording) for path in paths) or not _may_be_tried(other):
            continue
        if all(other.serve(tuple(given), {}) is MISS for given in every):
            continue
        try:
            program = PlainProgram(name, parameters, [*paths, other], first)
        except CannotExportError:
            continue
        paths.append(other)
    return program


def _serving_path(name: str, own: _Compiled, given: Sequence[Any]) -> RecordedPath:
    """The path that has served a call with these arguments."""
    recorded = 0
    for _ in range(_WAITS):
        before = {id(path): path.executable.counter[0] for path in own.paths()}
        recordings = own.stats.traces
        own(*given)
        served = [path for path in own.paths() if path.executable.counter[0] > before.get(id(path), 0)]
        if served:
            return served[0]
        recorded += own.stats.traces > recordings or bool(own.reasons)
        if recorded >= _CALLS:
            break
        if own.stats.traces == recordings:
            time.sleep(_PAUSE)  # another thread is recording
    why = "; ".join(map(str, own.reasons)) or "no path serves a second call with the same arguments"
    raise CannotExportError(f"{name}: the call is not one compiled program: {why}")


def _may_be_tried(path: RecordedPath) -> bool:
    """Whether a call may be tried: it has no effects, and its sizes are known."""
    recording = path.recording
    graph = recording.graph
    if graph is None or recording.written_inputs or recording.opaque_calls or recording.generators or recording.locks:
        return False
    return not any(has_symbols(aval.shape) for aval in graph.avals.values() if hasattr(aval, "shape"))


def _example_type(example: Any) -> Any:
    return (example.dtype, tuple(example.shape)) if hasattr(example, "shape") else type(example)


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """Names of the first `count` parameters of a function, or of the `forward` of a Module."""
    try:
        found = list(inspect.signature(getattr(function, "forward", function)).parameters.values())
    except (TypeError, ValueError):  # a builtin
        found = []
    names = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    names = [f"argument{k}" if name == "out" else name for k, name in enumerate(names)]  # `out` holds results
    return [*names, *[f"argument{k}" for k in range(len(names), count)]]
