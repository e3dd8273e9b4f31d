"""The names of PyTorch that programs use three times or more are here, or are missing for a reason that stands below."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import tracejit
from tests.test_compat import run

NAMES: Final = Path(__file__).with_name("torch_names.txt")
MISSING: Final = {
    "torch.jagged": "nested tensors have sizes that differ from row to row; a graph has one shape for each tensor",
    "torch.autograd.forward_ad.unpack_dual": "there is no forward mode: func.jvp() is the vjp of a vjp",
    "torch.autograd.forward_ad.make_dual": "there is no forward mode: func.jvp() is the vjp of a vjp",
    "torch.autograd.forward_ad.dual_level": "there is no forward mode: func.jvp() is the vjp of a vjp",
    "Tensor.to_sparse": "tensors are dense",
}
x: Final = tracejit.arange(4.0).reshape(2, 2).log_softmax(1)
y: Final = tracejit.tensor([0, 1])
KEYWORD_CALLS: Final[dict[str, Callable[[], Any]]] = {
    "torch.utils.data.DataLoader(num_workers)": lambda: tracejit.utils.data.DataLoader(range(4), num_workers=0),
    "torch.tensor(device)": lambda: tracejit.tensor([1.0], device="cpu"),
    "torch.utils.data.DataLoader(pin_memory)": lambda: tracejit.utils.data.DataLoader(range(4), pin_memory=True),
    "torch.as_tensor(device)": lambda: tracejit.as_tensor([1.0], device=tracejit.device("cpu")),
    "torch.autograd.grad(only_inputs)": lambda: tracejit.autograd.grad(leaf() * 2, leaf(), allow_unused=True, only_inputs=True),
    "torch.compile(fullgraph)": lambda: tracejit.compile(tracejit.nn.ReLU(), fullgraph=True),
    "torch.compile(backend)": lambda: tracejit.compile(tracejit.nn.ReLU(), backend="inductor"),
    "torch.randn(pin_memory)": lambda: tracejit.randn(2, pin_memory=False),
    "torch.nn.functional.nll_loss(size_average)": lambda: tracejit.nn.functional.nll_loss(x, y, size_average=False),
    "torch.nn.Linear(device)": lambda: tracejit.nn.Linear(2, 1, device="cpu"),
    "torch.optim.AdamW(foreach)": lambda: tracejit.optim.AdamW([leaf()], foreach=True),
    "torch.nn.functional.nll_loss(reduce)": lambda: tracejit.nn.functional.nll_loss(x, y, reduce=False),
    "torch.cat(axis)": lambda: tracejit.cat([x, x], axis=1),
}


def leaf() -> Any:
    return tracejit.ones(1, requires_grad=True)


def names() -> list[str]:
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    return [line.split(" ", 1)[1] for line in lines if not line.startswith("#")]


def found(name: str) -> Any:
    """What a name of PyTorch's means.  Raises AttributeError or ImportError if it means nothing."""
    parts = ["tracejit", *name.removeprefix("torch.").split(".")]
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            value = getattr(value, part)
        return value
    raise ImportError(name)


PLAIN: Final = [name for name in names() if "(" not in name]
KEYWORDS: Final = [name for name in names() if "(" in name]


@pytest.mark.parametrize("name", [name for name in PLAIN if name not in MISSING])
def test_a_name_that_programs_use_is_here(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize("name", MISSING)
def test_a_name_that_is_missing_is_one_that_programs_use_and_says_so(name: str) -> None:
    assert name in PLAIN
    with pytest.raises((AttributeError, ImportError)):
        found(name)


def test_every_keyword_that_programs_use_is_called_below() -> None:
    assert set(KEYWORDS) == set(KEYWORD_CALLS)


@pytest.mark.parametrize("name", KEYWORD_CALLS)
def test_a_keyword_that_programs_use_is_accepted(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keywords that are deprecated
        assert KEYWORD_CALLS[name]() is not None


def test_the_names_are_found_below_the_name_torch() -> None:
    wanted = ["torch." + name.removeprefix("torch.") for name in PLAIN if name not in MISSING]
    program = (
        "import torch\nfor name in "
        + repr(wanted)
        + """:
    value = torch
    for part in name.split('.')[1:]:
        value = getattr(value, part)
print('found')"""
    )
    done = run("-m", "tracejit.compat", "-c", program)
    assert done.stdout.strip() == "found", done.stderr


STATEMENTS: Final = """
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.nn.attention import SDPBackend, sdpa_kernel; assert SDPBackend.MATH == 0
import torch._dynamo; torch._dynamo.config.suppress_errors = True; torch._dynamo.reset()
from torch.compiler import allow_in_graph, disable, is_compiling, reset, cudagraph_mark_step_begin
from torch.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits
from torch.distributions.utils import _sum_rightmost, _standard_normal
from torch.autograd.function import Function, FunctionCtx, once_differentiable
from torch.nn.utils.stateless import functional_call, _reparametrize_module
from torch import lu, lu_solve, lu_unpack, qr, triangular_solve, fill, sigmoid_, _foreach_mul_, _standard_gamma, GradScaler
from torch.nn.parallel import scatter, gather, replicate, parallel_apply
from torch.nn.parallel.distributed import DistributedDataParallel
from torch.distributed import ReduceOp, ProcessGroup, TCPStore; torch.distributed.group.WORLD
from torch.hub import load_state_dict_from_url, get_dir, download_url_to_file
from torch.utils.model_zoo import load_url
from torch.autograd.profiler import record_function; record_function('part').__enter__()
from torch.profiler import record_function
from torch.utils.dlpack import from_dlpack, to_dlpack
from torch.jit import ScriptModule, script_method, TracerWarning
from torch import torch as again; assert again is torch
assert torch.ops.mine is torch.ops.mine
"""


def test_statements_that_programs_begin_with_are_run() -> None:
    done = run("-m", "tracejit.compat", "-c", "import torch\n" + STATEMENTS + "print('run')")
    assert done.stdout.strip() == "run", done.stderr
