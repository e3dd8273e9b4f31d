"""Positions and names of arguments are PyTorch's: by introspection of its stubs, and of the signatures of its modules."""

from __future__ import annotations

import ast
import collections
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import tracejit
from tracejit.ops.public.keywords import _OTHER_NAMES, _WITHOUT_MEANING

torch = pytest.importorskip("torch")

EVERYWHERE: Final = {*_WITHOUT_MEANING, "out", "self"}
DIFFERENT: Final = {
    "add": "the older form, with alpha in front, is taken by position",
    "sub": "the older form, with alpha in front, is taken by position",
    "subtract": "the older form, with alpha in front, is taken by position",
    "addcdiv": "the older form, with value in front, is taken by position",
    "addcmul": "the older form, with value in front, is taken by position",
    "addbmm": "the form with beta in front is deprecated",
    "addmm": "the form with beta in front is deprecated; out_dtype is for CUDA",
    "addmv": "the form with beta in front is deprecated",
    "addr": "the form with beta in front is deprecated",
    "baddbmm": "the form with beta in front is deprecated; out_dtype is for CUDA",
    "bmm": "out_dtype is for CUDA",
    "mm": "out_dtype is for CUDA",
    "cholesky_solve": "L is what the manual says, and input2 is translated",
    "max": "`other` is taken in the place of dim, and by name",
    "min": "`other` is taken in the place of dim, and by name",
    "std": "`unbiased` is taken in the place of dim, and by name",
    "std_mean": "`unbiased` is taken in the place of dim, and by name",
    "var": "`unbiased` is taken in the place of dim, and by name",
    "var_mean": "`unbiased` is taken in the place of dim, and by name",
    "scatter": "`value` is taken in the place of src, and by name",
    "randint_like": "one bound is the upper one, by position and by name",
    "isin": "numbers may be either, by position and by translated names",
    "result_type": "operands are named by their positions",
    "tensor": "PyTorch itself takes no other argument by position",
    "from_numpy": "PyTorch itself takes it by position alone",
    "full": "`names` is of named tensors",
    "rrelu": "no generator is taken", "rrelu_": "no generator is taken",
    "set_num_threads": "PyTorch itself takes it by position alone",
    "set_num_interop_threads": "PyTorch itself takes it by position alone",
    "detach_": "a method, as a function", "fill_": "a method, as a function", "zero_": "a method, as a function",
    "resize_as_": "a method, as a function",
    "vdot": "`tensor` is what the manual of dot says",
    "apply_": "PyTorch itself takes it by position alone", "copy_": "the manual says `source`",
    "expand": "`implicit` is not in the manual", "new": "deprecated", "set_": "of storages", "view": "a dtype is taken by position",
    "requires_grad_": "the manual says requires_grad", "new_tensor": "PyTorch itself takes no other argument by position",
}  # fmt: skip
"""What differs, by the name of a function or method, and why."""

Overload = tuple[list[str], list[str]]


def overloads(path: str, holder: str | None = None) -> dict[str, list[Overload]]:
    """Name -> (positional arguments, arguments by keyword alone) of each form that a stub of PyTorch's has."""
    tree: Any = ast.parse((Path(torch.__file__).parent / path).read_text(encoding="utf-8"))
    if holder is not None:
        tree = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == holder)
    found: dict[str, list[Overload]] = collections.defaultdict(list)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            found[node.name].append((positional, [argument.arg for argument in node.args.kwonlyargs]))
    return found


def missing(function: Callable[..., Any], forms: list[Overload], skip: int) -> set[str]:
    """Which arguments a function does not take in their positions, or by their names."""
    parameters = list(inspect.signature(function).parameters.values())
    kinds = {p.kind for p in parameters}
    names = {p.name for p in parameters}
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    found = set()
    for positional, keywords in forms:
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            found |= {f"{name} by position {i}" for i, name in enumerate(positional) if i >= len(own)}
        for name in (*positional[skip:], *keywords):
            translated = _OTHER_NAMES.get(name, ())
            if name in names or name in EVERYWHERE or names.intersection(translated):
                continue
            if inspect.Parameter.VAR_KEYWORD in kinds or (
                inspect.Parameter.VAR_POSITIONAL in kinds and name in ("dims", "size", "shape")
            ):
                continue
            found.add(f"{name} by name")
        for i, (ours, theirs) in enumerate(zip(own, positional, strict=False)):
            if i >= skip and ours != theirs and theirs not in _OTHER_NAMES and ours not in ("self", "input"):
                found.add(f"{theirs} by position {i}, which is {ours}")
    return found


def functions() -> Iterator[Any]:
    for name, forms in overloads("_C/_VariableFunctions.pyi").items():
        if callable(getattr(tracejit, name, None)):
            yield pytest.param(getattr(tracejit, name), forms, 0, id=name)


def methods() -> Iterator[Any]:
    for name, forms in overloads("_C/__init__.pyi", "TensorBase").items():
        method = inspect.getattr_static(tracejit.Tensor, name, None)
        if callable(method):
            yield pytest.param(method, forms, 1, id=f"Tensor.{name}")


@pytest.mark.parametrize(("function", "forms", "skip"), [*functions(), *methods()])
def test_arguments_are_taken_in_their_positions_and_by_their_names(
    function: Any, forms: list[Overload], skip: int, request: pytest.FixtureRequest
) -> None:
    found = missing(function, forms, skip)
    name = request.node.callspec.id.removeprefix("Tensor.")
    assert not found or name in DIFFERENT, found


MODULES: Final = (
    "nn.functional",
    "nn",
    "nn.init",
    "nn.utils",
    "nn.utils.rnn",
    "optim",
    "optim.lr_scheduler",
    "utils.data",
    "linalg",
)
COSMETIC: Final = {
    "nn.functional.gaussian_nll_loss", "nn.PoissonNLLLoss.forward", "nn.RMSNorm.forward", "nn.Sequential.extend",
}  # fmt: skip
"""Where PyTorch has a name that its manual does not have, or its other classes have not."""


def signatures() -> Iterator[Any]:
    for path in MODULES:
        theirs = importlib.import_module(f"torch.{path}")
        ours: Any = tracejit
        for part in path.split("."):
            ours = getattr(ours, part)
        for name in getattr(theirs, "__all__", dir(theirs)):
            wanted, given = getattr(theirs, name, None), getattr(ours, name, None)
            if not callable(wanted) or not callable(given) or name.startswith("_"):
                continue
            yield pytest.param(wanted, given, id=f"{path}.{name}")
            for member, method in vars(wanted).items() if isinstance(wanted, type) else ():
                own = inspect.getattr_static(given, member, None)
                if inspect.isfunction(method) and inspect.isfunction(own) and not member.startswith("_"):
                    yield pytest.param(method, own, id=f"{path}.{name}.{member}")


@pytest.mark.parametrize(("wanted", "given"), list(signatures()))
def test_the_arguments_of_modules_are_those_of_torch(wanted: Any, given: Any, request: pytest.FixtureRequest) -> None:
    try:
        theirs = inspect.signature(wanted).parameters.values()
    except ValueError:
        pytest.skip("a function of C++ without a signature")
    own = inspect.signature(given).parameters
    kinds = {p.kind for p in own.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds or hasattr(given, "__wrapped__") or request.node.callspec.id in COSMETIC:
        return  # takes anything, or arguments by positions that its signature does not tell
    positional = [p.name for p in own.values() if p.kind is p.POSITIONAL_OR_KEYWORD and not p.name.startswith("_")]
    expected = [p.name for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD and not p.name.startswith("_")]
    assert positional[: len(expected)] == expected
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        assert {p.name for p in theirs if p.kind is p.KEYWORD_ONLY} <= own.keys()
    for p in theirs:
        if isinstance(p.default, int | float | str | None) and p.default is not p.empty and p.name in own:
            assert own[p.name].default == p.default, p.name
