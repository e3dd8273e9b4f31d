"""PyInstaller's hook.  Layers and optimizers are recorded from their source text, and docstrings are made of text files, so both are
collected.  So are the modules that are imported when they are first needed: Numba, with the file that tells its version, and others.

The source of the program itself is the program's to add (docs/what-is-compiled.md).
"""

import importlib.util

from PyInstaller.utils.hooks import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    collect_data_files,
    collect_submodules,
)

EXTRAS = [
    *["arviz", "blackjax", "emcee", "grandalf.graphs", "grandalf.layouts", "grandalf.routing", "jax", "ml_dtypes", "mpi4py.MPI"],
    *["nutpie", "nutpie.compiled_pyfunc", "tqdm", "walnutpie.pyfunc"],
]

module_collection_mode = "py"
datas = collect_data_files("tracejit") + collect_data_files("numba", include_py_files=True, includes=["_version.py"])
hiddenimports = [
    *collect_submodules("tracejit", filter=lambda name: not name.startswith("tracejit.__pyinstaller")),
    *["importlib.metadata", "numba", "numba.core.codegen", "numba.core.compiler_lock", "scipy.optimize", "scipy.stats.qmc"],
    *["tracejit.ffi.numba_function", "urllib.error", "urllib.request"],
    *[name for name in EXTRAS if importlib.util.find_spec(name.partition(".")[0]) is not None],
]
