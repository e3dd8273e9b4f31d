"""Everything public has a docstring with an example, and each example does what it shows: run from the docstring that `help()` prints.

An example that PyTorch can run as well, with its name in the place of this library's, prints the same there.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import multiprocessing
import re
import types
import warnings
from collections.abc import Iterator
from typing import Any, Final

import pytest

import tracejit
import tracejit.compat
import tracejit.utils.tensorboard
import tracejit.vision
from tracejit.examples import examples

MODULES: Final = [
    "tracejit", "Tensor", "nn", "nn.Module", "nn.functional", "nn.init", "nn.utils", "nn.utils.parametrize", "nn.utils.rnn",
    "nn.utils.prune", "optim", "optim.lr_scheduler", "optim.swa_utils", "autograd", "autograd.functional", "autograd.graph",
    "func", "utils.data", "utils.checkpoint", "distributions", "distributions.Distribution", "linalg", "special", "library",
    "amp", "random", "serialization", "vision.transforms", "vision.datasets",
]  # fmt: skip
"""Paths below the package of what has an example for each of its names."""

OPEN: Final = {
    "nn.parallel": 2, "optim.Optimizer": 4, "autograd.function": 4, "autograd.anomaly": 4, "Generator": 3, "Size": 2,
    "CompiledFunction": 5, "cache": 2, "config": 2, "compat": 2, "distributions.constraints": 8, "vision.utils": 2, "utils.tensorboard": 1,
    "onnx": 3, "accelerator": 10, "distributed": 14, "cuda": 39, "cuda.amp": 4, "backends.cuda": 5, "backends.cudnn": 3,
    "multiprocessing": 5,
}  # fmt: skip
"""How many names of the rest have no example: to be counted down."""

FLAGS: Final = doctest.NORMALIZE_WHITESPACE
ENTRIES: Final = {f"{path}.{name}": text for path, entries in examples().items() for name, text in entries.items()}
OURS_ALONE: Final = {
    "tracejit.shadow", "tracejit.CompiledFunction", "Tensor.is_viewable", "serialization.save", "serialization.load",
    "autograd.GradcheckError", "tracejit.set_num_interop_threads", "CompiledFunction.clear", "CompiledFunction.entries",
    "CompiledFunction.explain", "cache.info", "config.override", "utils.data.digits", "Tensor.logcumsumexp_", "Tensor.to_device",
    "nn.utils.prune.global_unstructured",
}  # fmt: skip
"""Examples of what PyTorch does not have, beside those of tracejit.vision and of files in other formats."""


def holder(path: str) -> Any:
    value: Any = tracejit
    for part in path.split(".") if path != "tracejit" else ():
        value = getattr(value, part)
    return value


def public_names(path: str) -> Iterator[tuple[str, Any]]:
    """The functions, classes, methods and properties of a module or class, as they are looked up without calling anything."""
    owner = holder(path)
    if isinstance(owner, types.ModuleType):
        names = [
            name for name in owner.__all__ if path != "multiprocessing" or not hasattr(multiprocessing, name)
        ]  # Python's own
    else:
        names = [name for name in dir(owner) if not name.startswith("_")]
    for name in names:
        value = inspect.getattr_static(owner, name)
        value = getattr(value, "__func__", value)
        if isinstance(value, property) or (callable(value) and not isinstance(value, types.ModuleType)):
            yield name, value


@pytest.mark.parametrize("path", MODULES)
def test_everything_public_has_an_example(path: str) -> None:
    without = [name for name, value in public_names(path) if ">>> " not in (inspect.getdoc(value) or "")]
    assert not without


@pytest.mark.parametrize("path", OPEN)
def test_what_lacks_examples_is_counted(path: str) -> None:
    assert sum(">>> " not in (inspect.getdoc(value) or "") for _, value in public_names(path)) == OPEN[path]


def test_everything_public_has_a_docstring() -> None:
    without = [f"{path}.{name}" for path in (*MODULES, *OPEN) for name, value in public_names(path) if not inspect.getdoc(value)]
    assert not without


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_example_in_the_docstring_does_what_it_shows(entry: str) -> None:
    path, name = entry.rsplit(".", 1)
    value = inspect.getattr_static(holder(path), name)
    text = inspect.getdoc(getattr(value, "__func__", value)) or ""
    parsed = doctest.DocTestParser().get_doctest(text, {"tracejit": tracejit}, entry, None, None)
    assert parsed.examples
    report = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed, _ = doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(parsed, out=report.write)
    assert not failed, report.getvalue()


def _printed(code: str, names: dict[str, Any]) -> str:
    """What an interactive Python prints for a statement."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "<example>", "single"), names)
    return out.getvalue()


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.startswith("vision.") and e not in OURS_ALONE])
def test_examples_print_the_same_with_pytorch(entry: str) -> None:
    torch = pytest.importorskip("torch")
    for module in (
        "nn.utils",
        "utils.checkpoint",
        "utils.data",
        "autograd.functional",
        "func",
        "library",
        "amp",
        "optim.swa_utils",
    ):
        importlib.import_module(f"torch.{module}")
    if re.search(r"safetensors|npz|FileFormat", entry):
        pytest.skip("a format of files that PyTorch does not write")
    names = {"torch": torch, "__name__": "example"}
    importlib.import_module("torch.nn.utils.prune")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for example in doctest.DocTestParser().get_examples(ENTRIES[entry]):
            source, want = (re.sub(r"\btracejit\b", "torch", text) for text in (example.source, example.want))
            assert doctest.OutputChecker().check_output(want, _printed(source, names), FLAGS), source
