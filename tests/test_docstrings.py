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
    "amp", "random", "serialization", "vision.transforms", "vision.datasets", "nn.parallel", "optim.Optimizer",
    "autograd.function", "autograd.anomaly", "Generator", "Size", "CompiledFunction", "cache", "compiler", "config",
    "distributions.constraints", "vision.utils", "utils.tensorboard", "onnx", "accelerator", "distributed", "cuda", "cuda.amp",
    "backends.cuda", "backends.cudnn", "multiprocessing", "inference", "optimize",
]  # fmt: skip
"""Paths below the package of what has an example for each of its names."""

OPEN: Final = {"compat": 2}
"""How many names of the rest have no example: to be counted down.  What compat does cannot be taken back where PyTorch is imported."""

FLAGS: Final = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
ENTRIES: Final = {f"{path}.{name}": text for path, entries in examples().items() for name, text in entries.items()}
OURS_ALONE: Final = {
    "tracejit.shadow", "tracejit.profile", "tracejit.explain_misses", "tracejit.mark_dynamic", "tracejit.mark_static",
    "tracejit.CompiledFunction", "Tensor.is_viewable", "Tensor.logcumsumexp_", "Tensor.to_device",
    "serialization.save", "serialization.save_by_rank_0", "serialization.load", "autograd.GradcheckError", "autograd.function.FunctionNode",
    "tracejit.set_num_interop_threads", "tracejit.map", "tracejit.scan",
    "utils.data.digits", "nn.utils.prune.global_unstructured", "Generator.draw", "Generator.state",
    "optim.Optimizer.initial_state", "optim.Optimizer.update", "optim.Optimizer.update_group", "utils.tensorboard.SummaryWriter",
    "func.value_and_grad", "Tensor.graph", "multiprocessing.get_all_sharing_strategies", "multiprocessing.get_sharing_strategy",
}  # fmt: skip
"""Examples of what PyTorch does not have, or does with what it has and this library has not; beside those of these modules and of
files in other formats:"""
MODULES_ALONE: Final = (
    "vision.", "inference.", "optimize.", "CompiledFunction.", "cache.", "compiler.", "config.", "autograd.anomaly.", "onnx.",
    "accelerator.", "distributed.", "cuda.", "nn.parallel.",
)  # fmt: skip


def holder(path: str) -> Any:
    value: Any = tracejit
    for part in path.split(".") if path != "tracejit" else ():
        value = getattr(value, part)
    return value


def public_names(path: str) -> Iterator[tuple[str, Any]]:
    """The functions, classes, methods and properties of a module or class, as they are looked up without calling anything."""
    owner = holder(path)
    own = {"multiprocessing": multiprocessing, "Size": tuple}.get(path)  # Python's own
    if isinstance(owner, types.ModuleType):
        names = [name for name in owner.__all__ if own is None or not hasattr(own, name)]
    else:
        names = [name for name in dir(owner) if not name.startswith("_") and (own is None or not hasattr(own, name))]
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


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.startswith(MODULES_ALONE) and e not in OURS_ALONE])
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
        "distributions.constraints",
        "multiprocessing",
    ):
        importlib.import_module(f"torch.{module}")
    if re.search(r"safetensors|npz|FileFormat", entry):
        pytest.skip("a format of files that PyTorch does not write")
    names = {"torch": torch, "__name__": "example"}
    importlib.import_module("torch.nn.utils.prune")
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):  # it is not its compiler that is looked at
        warnings.simplefilter("ignore")
        for example in doctest.DocTestParser().get_examples(ENTRIES[entry]):
            source, want = (re.sub(r"\btracejit\b", "torch", text) for text in (example.source, example.want))
            if example.exc_msg is not None:
                with pytest.raises(Exception) as raised:
                    _printed(source, names)
                assert type(raised.value).__name__ == example.exc_msg.partition(":")[0]
                continue
            assert doctest.OutputChecker().check_output(want, _printed(source, names), FLAGS), source
