"""What holds for every test: programs are compiled, not found in the user's files (tests/test_disk_cache.py uses files of its own)."""

from __future__ import annotations

import os

os.environ["TRACEJIT_CACHE"] = "0"  # before the package reads its settings; subprocesses inherit it
