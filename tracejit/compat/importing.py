"""`install_as_torch`: an importer that gives the modules of this library under PyTorch's names.

`torch` itself is a module of its own with the names of tracejit and the version of PyTorch; every other one is the very module of
this library, so that there is one class Module, one default generator, and so on.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tracejit.compat.absent import absent_module, is_absent
from tracejit.compat.names import PACKAGES, PYTORCH_VERSION, SHADOWED, TURNING_OFF, is_alias, module_for
from tracejit.config import config
from tracejit.core.missing import missing_names, nearest
from tracejit.core.namespaces import Namespaces
from tracejit.core.naming import call_package

__all__ = ["install_as_torch", "uninstall"]


def _find(name: str) -> str | None:
    """The module of this library that stands for a module of PyTorch's; None if there is none."""
    for candidate in module_for(name):
        try:
            spec = importlib.util.find_spec(candidate)
            if spec is not None and not isinstance(spec.loader, _AliasLoader):
                return candidate
        except ModuleNotFoundError:  # a part of the name is no package
            continue
    return None


class _AbsentLoader(Loader):
    """Gives a module that can be imported and not used."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _AliasLoader(Loader):
    """Gives the module under a name of PyTorch's for another name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which the import system has just replaced


class _Loader(Loader):
    """Gives a module that exists."""

    def __init__(self, name: str, stands: str) -> None:
        self._name, self._stands = name, stands
        self._spec: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._stands)
        if self._stands == "tracejit":
            return _torch(self._name, module)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if self._spec is not None:
            module.__spec__ = self._spec  # which the import system has just replaced
        for name in SHADOWED.get(self._name, ()):
            # The import of a submodule would put it where the module has a function of that name.
            below = f"{self._name}.{name}"
            stands = _find(below)
            if stands is not None:
                sys.modules[below] = importlib.import_module(stands)


def _torch(name: str, module: ModuleType) -> ModuleType:
    """The module `torch`."""
    out = ModuleType(name, module.__doc__)
    out.__dict__.update({key: value for key, value in vars(module).items() if not key.startswith("__")})
    out.__dict__.update(
        {
            "torch": out,
            "ops": Namespaces(),
            "__version__": PYTORCH_VERSION,
            "__path__": [],
            "__all__": list(module.__all__),
            "__getattr__": _imported_or_missing(name),
        }
    )
    out.__dict__["_dynamo"] = module.compiler
    return out


def _imported_or_missing(name: str) -> Callable[[str], Any]:
    """The `__getattr__` of the module `torch`, which holds the modules that can be imported and not used as well."""
    missing = missing_names(name)

    def find(key: str) -> Any:
        if not key.startswith("__") and absent_module(f"{name}.{key}") is not None:
            return importlib.import_module(f"{name}.{key}")
        return missing(key)

    return find


class _Finder(MetaPathFinder):
    """Finds `torch`, `torchvision` and what is below them."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.startswith("tracejit."):
            # `from torch.utils import model_zoo` asks for a module below that of this library
            name = fullname.replace("tracejit", "torch", 1)
            return ModuleSpec(fullname, _AliasLoader(name)) if is_absent(name) or is_alias(name) else None
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        stands = None if is_absent(fullname) else _find(fullname)
        module = absent_module(fullname) if stands is None else None
        if module is not None:
            return ModuleSpec(fullname, _AbsentLoader(module), is_package=True)
        if stands is None:
            known = {m.replace("tracejit", "torch", 1) for m in sys.modules if m.startswith("tracejit.")}
            raise ModuleNotFoundError(f"tracejit has no module for {fullname!r}: {nearest(fullname, known)}", name=fullname)
        return ModuleSpec(fullname, _Loader(fullname, stands), is_package=True)


_finder = _Finder()


def install_as_torch() -> ModuleType:
    """Make `import torch`, and `import torchvision`, mean tracejit in this process from now on; returns the module `torch`.

    Texts of dtypes, sizes and the like then begin with torch, too: `str(torch.float32)` is "torch.float32".

    Where the environment turns torch.compile off (TORCH_COMPILE_DISABLE=1), compiled functions run eagerly.

    Raises RuntimeError if PyTorch itself has been imported already."""
    present = sys.modules.get("torch")
    if present is not None and getattr(present, "__version__", None) != PYTORCH_VERSION:
        raise RuntimeError("install_as_torch(): torch has been imported already; call this first")
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    if any(os.environ.get(name) == "1" for name in TURNING_OFF):
        config.enabled = False
    call_package("torch")
    return importlib.import_module("torch")


def uninstall() -> None:
    """Take back what install_as_torch() did: later imports find what is installed.  Modules that were imported keep what they have."""
    call_package(None)
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name in [n for n in sys.modules if n.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
