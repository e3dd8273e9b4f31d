"""PyInstaller's hook.  Layers and optimizers are recorded from their source text, and docstrings are made of text files, so both are
collected.  So is Numba, which is imported when it is first needed, with the file that tells its version.

The source of the program itself is the program's to add (docs/what-is-compiled.md).
"""

import importlib.util

from PyInstaller.utils.hooks import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    collect_data_files,
    collect_submodules,
)

module_collection_mode = "py"
datas = collect_data_files("tracejit") + collect_data_files("numba", include_py_files=True, includes=["_version.py"])
hiddenimports = [
    *collect_submodules("tracejit", filter=lambda name: not name.startswith("tracejit.__pyinstaller")),
    *["numba", "numba.core.codegen", "numba.core.compiler_lock", "scipy.stats.qmc"],
    *[name for name in ("ml_dtypes",) if importlib.util.find_spec(name) is not None],
]
