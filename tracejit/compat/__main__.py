"""`python -m tracejit.compat script.py [arguments]`, or `-m module`, or `-c program`: run a program written for PyTorch."""

from __future__ import annotations

import os
import runpy
import sys

from tracejit.compat import install_as_torch

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
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
