"""tracejit.jit: what programs written for TorchScript ask for.  Functions and modules stay what they are, Python; `compile` compiles here.

`script` and `trace` give back what they are given, so a program computes what it computed; nothing is written to files or read from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from tracejit.core.missing import missing_names
from tracejit.nn import Module

__all__ = [
    "Attribute", "Final", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "export", "fork", "freeze",
    "ignore", "interface", "is_scripting", "is_tracing", "load", "optimize_for_inference", "save", "script",
    "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait",
]  # fmt: skip


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """`obj` itself: a function, a class or a module."""
    return obj


script_if_tracing = export = interface = freeze = optimize_for_inference = script


def trace(func: Any, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`func` itself: it is not run, and branches stay branches."""
    return func


trace_module = trace


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with parentheses or without."""
    return drop if callable(drop) else lambda function: function


def unused(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` itself."""
    return function


def is_scripting() -> bool:
    """False."""
    return False


is_tracing = is_scripting


class ScriptModule(Module):
    """A Module, under the name of those of TorchScript, which no module here is: `isinstance(model, ScriptModule)` tells."""


class ScriptFunction:
    """The class of functions of TorchScript, which no function here is."""


class TracerWarning(Warning):
    """What tracing into TorchScript warns of; it is never given."""


script_method = _overload = _overload_method = _copy_to_script_wrapper = unused


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value itself."""
    return the_value


Attribute = annotate


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What func(*args, **kwargs) gives, computed at once; wait() takes it."""
    return func(*args, **kwargs)


def wait(future: Any) -> Any:
    """What fork() gave."""
    return future


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: there is no TorchScript to be written; save(model.state_dict(), file)."""
    raise NotImplementedError("jit.save(): tracejit does not write TorchScript; save(model.state_dict(), file) instead")


def load(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: TorchScript is not read; make the model and load_state_dict(load(file))."""
    raise NotImplementedError("jit.load(): tracejit does not read TorchScript; make the model and load_state_dict(load(file))")


__getattr__ = missing_names(__name__)
