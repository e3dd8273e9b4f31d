"""What holds for every test: programs are compiled, not found in the user's files (tests/test_disk_cache.py uses files of its own), and
the library verifies itself: graphs after every pass, and a defect that a user would be warned of is an error."""

from __future__ import annotations

import os

os.environ["TRACEJIT_CACHE"] = "0"  # before the package reads its settings; subprocesses inherit it
os.environ["TRACEJIT_VERIFY"] = "1"
