"""tracejit.profiler: names of PyTorch's profiler.  What is measured here is calls of compiled functions, by `tracejit.profile()`; eager
operations are seen by Python's own profilers."""

from __future__ import annotations

import contextlib
import enum

from tracejit.core.missing import absent, missing_names

__all__ = ["ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]


class record_function(contextlib.ContextDecorator):  # noqa: N801  (PyTorch's name)
    """A context, or a decorator, with a name that a profiler would show; nothing shows it."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class ProfilerActivity(enum.Enum):
    """What a profiler would time."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


_MESSAGE = (
    "tracejit does not time eager operations; use `with tracejit.profile() as p:` for compiled functions (p.table() and "
    "p.export_chrome_trace(path)), and cProfile for the rest"
)
profile = absent(__name__, "profile", f"profiler.profile(): {_MESSAGE}")
schedule = absent(__name__, "schedule", f"profiler.schedule(): {_MESSAGE}")
tensorboard_trace_handler = absent(__name__, "tensorboard_trace_handler", f"profiler.tensorboard_trace_handler(): {_MESSAGE}")

__getattr__ = missing_names(__name__)
