"""Every TRACEJIT_* setting: parsed once, overridable in a context.

Read settings through `config.<name>`; override them for a while with `with override(backend="reference"):`.  They hold for all threads of
the process.  Settings that the compiler consults when it builds a program do not change programs that exist.

It must not know who reads a setting.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Config", "backend_named", "config", "from_environment", "override"]

_BACKENDS = ("llvm", "numba", "reference", "interpret")
_OTHER_NAMES: dict[str, str | None] = {"inductor": None, "aot_eager": None, "cudagraphs": None, "eager": "interpret"}


@dataclass(slots=True)
class Config:
    """backend: what runs programs (TRACEJIT_BACKEND: llvm, numba, reference, interpret).  verify: run the verifier after every pass
    (TRACEJIT_VERIFY=1).  debug: what is written to stderr, each level with those before it: 1 compiles, reasons and guards that failed,
    2 kernel timings, 3 the graph after each pass, 4 generated code, 5 guards and memory plan (TRACEJIT_DEBUG).  max_entries: recorded
    paths per function; beyond it what fits none runs eagerly (TRACEJIT_MAX_ENTRIES).  max_sizes: for how many sizes of its arguments a
    function may have a path beside those (TRACEJIT_MAX_SIZES).  max_failures: recordings in a row that came to nothing before a
    function is recorded only now and then (TRACEJIT_MAX_FAILURES).
    cache: keep machine code in files for later processes (TRACEJIT_CACHE=0: do not).
    cache_dir: where; empty means tracejit/ in the user's cache directory (TRACEJIT_CACHE_DIR).  cache_size: MiB that the files may
    have together (TRACEJIT_CACHE_SIZE).  num_threads: how many threads compute a large nest or product until
    `set_num_threads` says otherwise, read when the first such nest is met; 0: one for each processor core (TRACEJIT_NUM_THREADS).
    hot_calls: calls that a recorded path serves before the Python around its program becomes machine code, too; 0: never
    (TRACEJIT_HOT_CALLS).  compile_wait: seconds that a call waits for its program beyond its own run; what takes longer is compiled in the
    background, while calls run eagerly; inf: calls wait however long it takes (TRACEJIT_COMPILE_WAIT).  enabled: False: compiled functions
    run eagerly, and nothing is recorded (TRACEJIT_DISABLE=1).  progress: work that takes long draws a bar on stderr where tqdm is
    installed (TRACEJIT_PROGRESS=0: none does, as if `quiet=True` were given everywhere).  memory_limit: bytes of temporary memory that a
    program is to need at most, beside its arguments, its results and what is kept for a backward pass; None: no limit.  More is computed
    twice until it fits; where it does not, `explain()` says by how much.  It is read when a program is made (TRACEJIT_MEMORY_LIMIT)."""

    backend: str = "llvm"
    verify: bool = False
    debug: int = 0
    max_entries: int = 64
    max_failures: int = 3
    cache: bool = True
    cache_dir: str = ""
    cache_size: int = 256
    hot_calls: int = 1000
    num_threads: int = 0
    compile_wait: float = 1.0
    max_sizes: int = 256
    enabled: bool = True
    progress: bool = True
    memory_limit: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if self is globals().get("config"):
            for action in _watched.get(name, ()):
                action(value)

    def check(self) -> None:
        """Raises TypeError for a setting of another type than its default's, ValueError for one that is out of range."""
        for field in fields(self):
            kinds = _KINDS.get(str(field.type), (type(field.default),))
            if type(getattr(self, field.name)) not in kinds:
                raise TypeError(f"TRACEJIT_{field.name.upper()}: expected {field.type}, got {getattr(self, field.name)!r}")
        if self.backend not in _BACKENDS:
            raise ValueError(f"TRACEJIT_BACKEND: expected one of {', '.join(_BACKENDS)}, got {self.backend!r}")
        if not 0 <= self.debug <= 5:
            raise ValueError(f"TRACEJIT_DEBUG: expected 0 to 5, got {self.debug}")
        if self.num_threads < 0:
            raise ValueError(
                f"TRACEJIT_NUM_THREADS: expected a positive integer, or 0 for the number of cores, got {self.num_threads}"
            )
        if self.hot_calls < 0:
            raise ValueError(f"TRACEJIT_HOT_CALLS: expected a positive integer, or 0 for never, got {self.hot_calls}")
        if not self.compile_wait >= 0:
            raise ValueError(f"TRACEJIT_COMPILE_WAIT: expected seconds, 0 or more, or inf, got {self.compile_wait}")
        if self.memory_limit is not None and self.memory_limit < 1:
            raise ValueError(f"TRACEJIT_MEMORY_LIMIT: expected a positive number of bytes, or None, got {self.memory_limit}")
        for name in ("max_entries", "max_sizes", "max_failures", "cache_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"TRACEJIT_{name.upper()}: expected a positive integer, got {getattr(self, name)}")


_KINDS: dict[str, tuple[type, ...]] = {"float": (float, int), "int | None": (int, type(None))}
"""The types of a setting's values, where they are not the type of its default alone."""

_watched: dict[str, list[Callable[[Any], object]]] = {}


def watch(name: str, action: Callable[[Any], object]) -> None:
    """Call action(value) with a setting's value, now and whenever it is set."""
    _watched.setdefault(name, []).append(action)
    action(getattr(config, name))


_PARSED: dict[str, tuple[Callable[[str], Any], str]] = {
    "str": (str, "text"),
    "bool": ({"0": False, "1": True}.__getitem__, "0 or 1"),
    "int": (int, "an integer"),
    "int | None": (int, "an integer"),
    "float": (float, "a number"),
}

_NEGATED = {"enabled": "TRACEJIT_DISABLE"}
"""Settings whose variable says the opposite."""

NO_SETTINGS = frozenset(("TRACEJIT_COMPAT_SCRIPT", "TRACEJIT_PROGRAMS"))
"""Variables of the environment that are not settings of the library: what compat tells its processes, and where tests find programs."""


def _variable(setting: str) -> str:
    """The variable of the environment that a setting is read from."""
    return _NEGATED.get(setting, f"TRACEJIT_{setting.upper()}")


def from_environment(environment: Mapping[str, str]) -> Config:
    """The settings of an environment.  Raises ValueError for a bad value; warns of a name that is no setting (of another version?)."""
    names = {_variable(field.name) for field in fields(Config)}
    for name in environment:
        if name.startswith("TRACEJIT_") and name not in names | NO_SETTINGS:
            warnings.warn(f"{name}: there is no such setting; there are {', '.join(sorted(names))}", RuntimeWarning, stacklevel=2)
    values: dict[str, Any] = {}
    for field in fields(Config):
        variable = _variable(field.name)
        text = environment.get(variable)
        if text is None:
            continue
        kind, what = _PARSED[str(field.type)]
        try:
            value = kind(text)
        except (KeyError, ValueError):
            raise ValueError(f"{variable}: expected {what}, got {text!r}") from None
        values[field.name] = not value if field.name in _NEGATED else value
    made = Config(**values)
    made.check()
    return made


config = from_environment(os.environ)


def backend_named(name: str | None) -> str | None:
    """The backend that `compile(backend=name)` asks for; None for what the configuration says.  Raises ValueError for an unknown one."""
    if name is None or (isinstance(name, str) and name in _OTHER_NAMES):
        return _OTHER_NAMES[name] if name else None
    if not isinstance(name, str) or name not in _BACKENDS:
        raise ValueError(f"compile(): backend must be one of {', '.join((*_BACKENDS, *_OTHER_NAMES))}, got {name!r}")
    return name


@contextmanager
def override(**settings: Any) -> Iterator[Config]:
    """Other settings for a while.  Raises AttributeError for a name that is no setting, TypeError or ValueError for a bad
    value; then nothing is changed."""
    previous = {name: getattr(config, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(config, name, value)
        config.check()
        yield config
    finally:
        for name, value in previous.items():
            setattr(config, name, value)
