"""`python -m tracejit.compat script.py [arguments]`, or `-m module`, or `-c program`: run a program written for PyTorch."""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from tracejit.compat import install_as_torch
from tracejit.compat.child import SCRIPT

_USAGE = "usage: python -m tracejit.compat (script.py | -m module | -c program) [arguments]"


def main(arguments: list[str]) -> None:
    """Run what the arguments name, with `import torch` meaning tracejit."""
    if not arguments or (arguments[0] in ("-m", "-c") and len(arguments) < 2):
        raise SystemExit(_USAGE)
    install_as_torch()
    first = arguments[0]
    if first == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        _run_script(first)


def _run_script(path: str) -> None:
    """Run a script as `__main__`.  Processes that it spawns run it through tracejit.compat.child, so torch means tracejit in them too."""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    module = ModuleType("__main__")
    module.__file__ = path
    module.__package__ = ""  # it is a script, whatever the specification says
    module.__spec__ = ModuleSpec("tracejit.compat.child", None)  # what multiprocessing has a new process begin with
    os.environ[SCRIPT] = os.path.abspath(path)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
