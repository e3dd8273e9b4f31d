"""Facts about this machine and what the library can use of it: printed by `python -m tracejit`, for bug reports.

`facts()` asks each part of the library what it uses, or why it does not.  It computes nothing and changes nothing.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

import llvmlite.binding

from tracejit.config import config
from tracejit.core.lazy import lazy_module
from tracejit.cpython import arrays, c_api, call_hook, exception_tables, layouts, referents, watchers, words
from tracejit.llvm import thread_pool
from tracejit.llvm.blas import blas
from tracejit.native import object_cache

__all__ = ["facts", "slower", "text"]

_metadata: Any = lazy_module("importlib.metadata")
_PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "ml_dtypes", "torch")
_FEATURES = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bf16", "neon", "sve")
"""Features of processors on which compiled programs depend."""


def _version(package: str) -> str | None:
    try:
        return _metadata.version(package)
    except _metadata.PackageNotFoundError:
        return None


def _interpreter() -> dict[str, str]:
    """Features of the interpreter -> "in use", or why the library cannot use it."""
    reasons = {
        "programs are machine code": arrays.unknown_layout(),
        "calls enter programs from machine code": c_api.unsupported(),
        "frames are watched by machine code while a call is recorded": call_hook.unsupported(),
        "objects are checked by comparing words of memory": words.unsupported(),
    }
    if watchers.needed():
        reasons["dictionaries are watched"] = watchers.unsupported()
    reasons["an interrupt at the entry of a function finds what to put back"] = exception_tables.unsupported()
    reasons["references of objects of C code are replaced"] = referents.unsupported()
    return {name: reason or "in use" for name, reason in reasons.items()}


def slower() -> str:
    """A sentence about what makes calls slower on this interpreter than on others; "" if nothing does."""
    reasons = {
        "programs are compiled by Numba alone": arrays.unknown_layout(),
        "what is around programs stays Python": c_api.unsupported(),
        "objects are checked one by one": words.unsupported(),
    }
    return next((f"Calls take longer than on other Pythons: {what}, since {why}." for what, why in reasons.items() if why), "")


def _cache() -> dict[str, Any]:
    if not config.cache:
        return {"directory": None, "state": "off (TRACEJIT_CACHE=0)"}
    directory = object_cache.directory()
    try:
        kept = object_cache.files()
    except (OSError, object_cache.Doubt) as error:
        return {"directory": str(directory), "state": f"not used: {error}"}
    return {
        "directory": str(directory), "state": "in use", "programs": kept.count, "bytes": kept.size, "limit": object_cache.limit_bytes(),
    }  # fmt: skip


def facts() -> dict[str, Any]:
    """Versions, processor, features of the interpreter, cache, threads and settings, for json.dumps."""
    features = llvmlite.binding.get_host_cpu_features()
    library, interpreter = blas(), layouts.build()
    return {
        "tracejit": _version("tracejit") or "not installed: run from a checkout",
        "python": interpreter.text,
        "build": {"free-threaded": interpreter.free_threaded, "debug": interpreter.debug},
        "tested": interpreter.version in layouts.TESTED,
        "system": platform.platform(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "processor": {
            "name": llvmlite.binding.get_host_cpu_name(),
            "features": [name for name in _FEATURES if features.get(name)],
        },
        "blas": {"source": library.source, "processor": library.processor, "threads by tracejit": library.governed},
        "interpreter": _interpreter(),
        "cache": _cache(),
        "threads": {"number": thread_pool.get_num_threads(), "pool": thread_pool.supported()},
        "settings": asdict(config),
    }


def text(found: dict[str, Any]) -> str:
    """The facts as text, a line for each.  found: the result of `facts`."""
    processor, blas_, cache, threads = (found[name] for name in ("processor", "blas", "cache", "threads"))
    lines = [
        f"tracejit    {found['tracejit']}",
        f"Python      {found['python']}{''.join(f', {k} build' for k, v in found['build'].items() if v)}, {found['system']}",
        f"packages    {', '.join(f'{name} {version}' for name, version in found['packages'].items())}",
        f"processor   {processor['name']} ({' '.join(processor['features'])})",
        f"products    {blas_['source']}{', ' + blas_['processor'] if blas_['processor'] else ''}",
        f"threads     {threads['number']}{'' if threads['pool'] else ' (this system has no POSIX threads)'}",
        f"cache       {_cache_text(cache)}",
        *([] if found["tested"] else [_untested(found["python"])]),
        *[f"interpreter {name}: {state}" for name, state in found["interpreter"].items()],
    ]
    return "\n".join(lines)


def _untested(python: str) -> str:
    tested = ", ".join(f"{major}.{minor}" for major, minor in layouts.TESTED)
    return f"interpreter the tests run on CPython {tested}; on {python} what follows was tried on living objects"


def _cache_text(cache: dict[str, Any]) -> str:
    if cache["state"] != "in use":
        return f"{cache['state']}"
    return f"{cache['directory']}: {cache['programs']} programs, {cache['bytes'] / 2**20:.1f} of {cache['limit'] / 2**20:.0f} MiB"
