"""Modules of PyTorch's that can be imported under its names and not used: a program stops where it uses one, with what to do."""

from __future__ import annotations

from pathlib import Path

from tests.test_compat import run
from tracejit.compat import absent


def test_a_program_that_imports_absent_names_runs_until_it_uses_one(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.export import export
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, load

assert torch.fx.GraphModule is __import__("torch.fx").fx.GraphModule
def annotated(x: torch.futures.Future[int]) -> None: ...
assert CUDA_HOME is None and not isinstance(torch.nn.Linear(1, 1), (FSDP, torch.fx.GraphModule))
assert not hasattr(torch.export, "no_such_name") and not hasattr(torch, "no_such_name") and not hasattr(FSDP, "wrap")
for use in (
    lambda: export(torch.nn.Linear(1, 1), ()), lambda: FSDP(torch.nn.Linear(1, 1)), lambda: load("name", ["a.cpp"]),
    lambda: torch.sparse.FloatTensor(1), lambda: torch.futures.Future(), lambda: torch.mps.synchronize(),
):
    try:
        use()
    except NotImplementedError as error:
        print(error)
for name in ("istft", "sparse_coo_tensor", "nested_tensor"):
    try:
        getattr(torch, name)
    except AttributeError as error:
        print(error)
"""
    )
    done = run("-m", "tracejit.compat", str(script))
    assert done.returncode == 0, done.stderr
    wanted = ("state_dict", "process groups", "Numba", "dense", "concurrent.futures", "backends.mps", "two tensors",
              "dense", "pad them")  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(wanted)
    for line, part in zip(lines, wanted, strict=True):
        assert part in line, line


def test_absent_modules_are_ones_that_are_not_here_and_each_says_what_to_do() -> None:
    for name, (names, remedy) in absent._MODULES.items():
        module = absent.absent_module(name)
        assert module is not None and name.startswith("torch.") and remedy[0].islower(), name
        assert names.split() == sorted(set(names.split())), name
        for key in names.split():
            assert remedy in getattr(module, key).__doc__
    assert not absent.is_absent("torch.nn") and absent.absent_module("torch.linalg") is None


def test_modules_with_the_name_of_a_function_do_not_take_its_place() -> None:
    program = """
import tracejit.compat
tracejit.compat.install_as_torch()
import torch.nn.utils.weight_norm, torch.nn.parallel.replicate
from torch.nn.utils.weight_norm import weight_norm
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.nn.parallel.scatter_gather import scatter
import torch
print(torch.nn.utils.weight_norm is weight_norm, callable(torch.nn.parallel.replicate), callable(scatter))
"""
    assert run("-c", program).stdout.split() == ["True", "True", "True"]


def test_names_that_stand_elsewhere_are_imported_from_where_pytorch_has_them() -> None:
    program = """
import tracejit.compat
torch = tracejit.compat.install_as_torch()
from torch.utils import benchmark, cpp_extension, model_zoo
from torch.nn.utils import clip_grad, weight_norm
from torch.distributed import fsdp, rpc
from torch.nn.attention import flex_attention
from torchvision.models import ResNet18_Weights, resnet18
print(model_zoo.load_url.__name__, clip_grad.clip_grad_norm_.__name__, callable(weight_norm), isinstance(rpc.RRef, type))
try:
    resnet18(weights=ResNet18_Weights.DEFAULT)
except RuntimeError as error:
    print("load_state_dict" in str(error))
"""
    done = run("-c", program)
    assert done.stdout.split() == ["load_state_dict_from_url", "clip_grad_norm_", "True", "True", "True"], done.stderr
