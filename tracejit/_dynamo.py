"""tracejit._dynamo: what programs ask of PyTorch's compiler by its inner name.  Settings can be set, and change nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tracejit.compiled.compile import compile
from tracejit.compiler import allow_in_graph, disable, is_compiling, reset
from tracejit.core.missing import missing_names
from tracejit.tensor.marks import mark_dynamic, mark_static

__all__ = ["allow_in_graph", "config", "disable", "is_compiling", "mark_dynamic", "mark_static", "optimize", "reset"]

config = SimpleNamespace(
    suppress_errors=False, cache_size_limit=8, recompile_limit=8, verbose=False, capture_scalar_outputs=False,
    capture_dynamic_output_shape_ops=False, optimize_ddp=False, assume_static_by_default=True, automatic_dynamic_shapes=True,
)  # fmt: skip
"""PyTorch's settings by name; others can be added."""


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: compile, with fullgraph for nopython; backend and other options change nothing."""
    return functools.partial(compile, fullgraph=nopython, dynamic=dynamic)


__getattr__ = missing_names(__name__)
