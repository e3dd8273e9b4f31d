"""Anomaly detection: which line of the forward pass made the node whose backward pass raised, or gave NaN.

While it is on, operations of the thread pass an interpreter that notes where each node was made; a compiled function then runs eagerly,
since what it computes is to be looked at.
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.autograd.tape import Node
from tracejit.core.dtypes import FLOATING_KINDS
from tracejit.core.interpreter import Interpreter, is_recording, pushed, state
from tracejit.core.package_files import is_own_frame

__all__ = [
    "AnomalyInterpreter",
    "anomaly_interpreter",
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "set_detect_anomaly",
]


class AnomalyInterpreter(Interpreter):
    """The eager interpreter, with a note of where nodes were made."""

    def __init__(self, check_nan: bool) -> None:
        self.check_nan = check_nan
        self.created_at: weakref.WeakKeyDictionary[Node, str] = weakref.WeakKeyDictionary()

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        result = state.base.bind(op, operands, attributes)
        for tensor in result if isinstance(result, tuple) else (result,):
            self.made(getattr(tensor, "_node", None))
        return result

    def made(self, node: Any) -> None:
        """A node may be new: note where the program is."""
        if isinstance(node, Node) and node not in self.created_at:
            frames = [(frame, line) for frame, line in traceback.walk_stack(sys._getframe()) if not is_own_frame(frame)]
            self.created_at[node] = "".join(traceback.StackSummary.extract(reversed(frames)).format())

    def note(self, event: str, *details: Any) -> None:
        """Nothing that happens is in the way."""

    def checked(self, node: Node, backward: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """The result of a node's backward pass.  Raises RuntimeError where it has a NaN; whatever is raised comes with a warning that shows
        the line of the forward pass."""
        try:
            gradients = backward()
        except Exception:
            self._show(node)
            raise
        if self.check_nan:
            for i, g in enumerate(gradients):
                array = getattr(g, "_array", g)
                if array is not None and np.asarray(array).dtype.kind in FLOATING_KINDS and np.isnan(array).any():
                    self._show(node)
                    raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
        return gradients

    def _show(self, node: Node) -> None:
        creation = self.created_at.get(node)
        if creation is None:
            text = f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during forward pass."
        else:
            text = f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{creation}"
        warnings.warn(text, UserWarning, stacklevel=2)


class _Mode(threading.local):
    def __init__(self) -> None:
        self.entered: pushed | None = None


_mode = _Mode()


def anomaly_interpreter() -> AnomalyInterpreter | None:
    """The one of this thread, if it is the innermost interpreter."""
    top = state.top
    return top if isinstance(top, AnomalyInterpreter) else None


def go_on() -> None:
    """A recording is over, in which detection may have been switched on: it is on from here."""
    if _mode.entered is not None and anomaly_interpreter() is None:
        _mode.entered.again()


def _switch(mode: bool, check_nan: bool) -> None:
    if is_recording() and anomaly_interpreter() is None:
        state.top.note("anomaly detection")  # the recording ends there
    if anomaly_interpreter() is not None:
        entered, _mode.entered = _mode.entered, None
        assert entered is not None
        entered.__exit__(None, None, None)
    if mode:
        _mode.entered = pushed(AnomalyInterpreter(check_nan))
        _mode.entered.__enter__()


class set_detect_anomaly:  # noqa: N801  (PyTorch's name)
    """Switch anomaly detection on or off: at once when called, and back at the end when used as a context manager."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        before = anomaly_interpreter()
        self._previous = (before is not None, before is None or before.check_nan)
        _switch(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        _switch(*self._previous)


class detect_anomaly:  # noqa: N801
    """`with detect_anomaly():` anomaly detection is on inside; a NaN in a gradient is an error unless check_nan is false."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._inside: Any = None

    def __enter__(self) -> None:
        self._inside = set_detect_anomaly(True, self._check_nan)

    def __exit__(self, *exception: object) -> None:
        self._inside.__exit__()


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on in this thread."""
    return anomaly_interpreter() is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether a NaN in a gradient is an error in this thread."""
    found = anomaly_interpreter()
    return found is not None and found.check_nan
