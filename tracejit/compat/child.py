"""What a process begins with that a script run by `python -m tracejit.compat` has spawned: the script, with torch meaning tracejit."""

import os
import runpy

from tracejit.compat.importing import install_as_torch

__all__ = ["SCRIPT"]

SCRIPT = "TRACEJIT_COMPAT_SCRIPT"
"""The environment variable that holds the path of the script."""

if __name__ == "__mp_main__":
    install_as_torch()
    globals().update(runpy.run_path(os.environ[SCRIPT], run_name="__mp_main__"))
