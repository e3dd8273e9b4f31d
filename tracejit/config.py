"""Every TRACEJIT_* setting: parsed once, overridable in a context.

Read settings through `config.<name>`; override them for a while with `with override(backend="reference"):`.  Settings that the compiler
consults when it builds a program do not change programs that exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Config", "config", "override"]

_BACKENDS = ("llvm", "reference", "interpret")


@dataclass(slots=True)
class Config:
    """backend: what runs programs (TRACEJIT_BACKEND: llvm, reference, interpret).  verify: run the verifier after every pass
    (TRACEJIT_VERIFY=1).  debug: 1 compiles and reasons, 2 kernels, 3 the graph after each pass, 4 generated code, 5 guards
    (TRACEJIT_DEBUG).  max_entries: recorded paths per function before it runs eagerly (TRACEJIT_MAX_ENTRIES).  max_failures: recordings
    that came to nothing before a function is not recorded any more (TRACEJIT_MAX_FAILURES)."""

    backend: str = "llvm"
    verify: bool = False
    debug: int = 0
    max_entries: int = 32
    max_failures: int = 3

    def check(self) -> None:
        """Raises ValueError for a setting that is out of range."""
        if self.backend not in _BACKENDS:
            raise ValueError(f"TRACEJIT_BACKEND: expected one of {', '.join(_BACKENDS)}, got {self.backend!r}")
        if not 0 <= self.debug <= 5:
            raise ValueError(f"TRACEJIT_DEBUG: expected 0 to 5, got {self.debug}")
        for name in ("max_entries", "max_failures"):
            if getattr(self, name) < 1:
                raise ValueError(f"TRACEJIT_{name.upper()}: expected a positive integer, got {getattr(self, name)}")


def _from_environment(environment: Any) -> Config:
    values: dict[str, Any] = {}
    for field in fields(Config):
        text = environment.get(f"TRACEJIT_{field.name.upper()}")
        if text is None:
            continue
        try:
            values[field.name] = text if field.type == "str" else text == "1" if field.type == "bool" else int(text)
        except ValueError:
            raise ValueError(f"TRACEJIT_{field.name.upper()}: expected an integer, got {text!r}") from None
    made = Config(**values)
    made.check()
    return made


config = _from_environment(os.environ)


@contextmanager
def override(**settings: Any) -> Iterator[Config]:
    """Other settings for a while.  Raises AttributeError for a name that is no setting, ValueError for a bad value."""
    previous = {name: getattr(config, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(config, name, value)
        config.check()
        yield config
    finally:
        for name, value in previous.items():
            setattr(config, name, value)
