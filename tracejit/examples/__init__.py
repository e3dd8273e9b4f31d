"""Examples of everything public, as `help()` shows them.

One text file for each module, called by its name; in it the names of the module, each followed by lines as Python's prompt
shows them.  An example needs `import tracejit` and nothing else; the test suite runs each as it stands in the docstring.
`attach` adds them to the docstrings when the package is imported.  Methods of Tensor without an example of their own have that
of the function of their name.

Must not know: what the examples are about.
Start reading: this file.
"""

from __future__ import annotations

import inspect
from importlib.resources import files
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["attach", "examples"]

_FUNCTIONS, _METHODS = "tracejit", "Tensor"


def examples() -> dict[str, dict[str, str]]:
    """Module, as a path below the package -> name -> example; functions of the package itself come first."""
    found = {}
    for file in files(__name__).iterdir():
        if file.name.endswith(".txt"):
            found[file.name.removesuffix(".txt")] = _read(file.read_text(encoding="utf-8"))
    return dict(sorted(found.items(), key=lambda item: (item[0] != _FUNCTIONS, item[0])))


def _read(text: str) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            lines.append(line)
        else:
            lines = entries[line] = []
    return {name: "\n".join(lines) for name, lines in entries.items()}


def attach(package: ModuleType) -> None:
    """Add the examples to the docstrings of what they are of; what has several names gets the first one's."""
    found = examples()
    for path, entries in found.items():
        holder: Any = package
        for part in path.split(".") if path != _FUNCTIONS else ():
            holder = getattr(holder, part)
        if path == _METHODS:
            entries = {**{name: text for name, text in found[_FUNCTIONS].items() if name in vars(holder)}, **entries}
        for name, text in entries.items():
            _add(vars(holder)[name] if name in vars(holder) else inspect.getattr_static(holder, name), text)
    for value in vars(package).values():  # functions that are methods behind a check: `sigmoid_`
        method = getattr(value, "__wrapped__", None) if isinstance(value, FunctionType) else None
        if ">>>" in (getattr(method, "__doc__", None) or "") and ">>>" not in (value.__doc__ or ""):
            value.__doc__ = method.__doc__


def _add(owner: Any, text: str) -> None:
    owner = getattr(owner, "__func__", owner)
    given = owner.__doc__ if owner.__doc__ is not None or not isinstance(owner, type) else inspect.getdoc(owner)
    if given is not None and ">>>" not in given:  # without docstrings, python -OO, there is nothing to add to
        owner.__doc__ = f"{inspect.cleandoc(given)}\n\nExample:\n\n{text}"
