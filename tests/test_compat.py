"""Programs written for PyTorch, run with its names meaning this library: each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tracejit
from tracejit.config import override
from tracejit.utils.tensorboard import SummaryWriter

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import backward
from torch.nn.modules.linear import Linear
from torch.nn.parameter import Parameter
from torch.optim.lr_scheduler import StepLR
import torch.backends.cudnn as cudnn

assert torch.__version__.split(".")[0] == "2", torch.__version__
assert Linear is nn.Linear and torch.nn is nn and torch.nn.functional is F
torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
cudnn.deterministic = True
x = torch.linspace(-1, 1, 64, device=device).reshape(-1, 1)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
optimizer = optim.Adam(model.parameters(), lr=0.05)
schedule = StepLR(optimizer, 10)
for epoch in range(20):
    for rows in torch.randperm(64).split(16):
        a, b = x[rows], x[rows] * 3 + 1
        optimizer.zero_grad()
        loss = F.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
    schedule.step()
print("type", type(model).__module__.partition(".")[0], loss.item() < 0.5)
"""


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(Path(tracejit.__file__).parent.parent), "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)


def test_a_training_script_runs_with_the_names_of_pytorch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM + "\nimport sys\nprint(sys.argv[1:], __name__)\n")
    done = run("-m", "tracejit.compat", str(script), "--epochs", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["type tracejit True", "['--epochs', '3'] __main__"]


def test_a_module_and_a_program_text_run_as_well(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import torch\nprint(torch.ones(2).sum().item(), __name__)\n")
    assert run("-m", "tracejit.compat", "-m", "helper", cwd=tmp_path).stdout.split() == ["2.0", "__main__"]
    text = "import torch, sys; print(torch.zeros(1).item(), sys.argv)"
    assert run("-m", "tracejit.compat", "-c", text, "a", cwd=tmp_path).stdout.strip() == "0.0 ['-c', 'a']"
    assert "usage" in run("-m", "tracejit.compat").stderr


def test_a_missing_name_raises_one_error_that_says_so_and_names_the_nearest() -> None:
    program = """
import tracejit.compat as compat
torch = compat.install_as_torch()
assert torch is compat.install_as_torch() and hasattr(torch, "ones") and not hasattr(torch, "onez")
for get in (lambda: torch.rell, lambda: torch.nn.Lineer, lambda: torch.nn.functional.reluu, lambda: torch.cuda.is_availble):
    try:
        get()
    except AttributeError as error:
        print(error)
for module in ("torch.nn.functionals", "torch.jitt"):
    try:
        __import__(module)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, nearest in zip(lines[:4], ("relu", "Linear", "relu", "is_available"), strict=True):
        assert "has no attribute" in line and nearest in line.partition("nearest names are")[2]
    assert "torch.nn.functional" in lines[4] and "no module for 'torch.jitt'" in lines[5]


def test_names_are_given_back_and_pytorch_itself_is_not_displaced() -> None:
    program = """
import sys
import tracejit.compat as compat
compat.install_as_torch()
import torch.nn
import tracejit
assert torch.nn is tracejit.nn and tracejit.nn.__spec__.name == "tracejit.nn" and sys.modules["tracejit.nn"] is torch.nn
compat.uninstall()
assert not any(name.partition(".")[0] == "torch" for name in sys.modules)
import types
sys.modules["torch"] = types.ModuleType("torch")
try:
    compat.install_as_torch()
except RuntimeError as error:
    print(error)
"""
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    assert "torch has been imported already" in done.stdout


def test_compiled_functions_are_replayed_under_the_names_of_pytorch(tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(
        "import torch\n\n@torch.compile(fullgraph=True, dynamic=False, mode='max-autotune')\ndef f(x):\n"
        "    return torch.sin(x).sum(axis=0) + torch.ones(2, device=x.device)\n\n"
        "for k in range(4):\n    f(torch.ones(3, 2))\nprint(f.stats.compiled_calls)\n"
    )
    done = run("-m", "tracejit.compat", str(script))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


def test_fullgraph_raises_with_the_reason_that_a_call_cannot_be_replayed() -> None:
    @tracejit.compile(fullgraph=True)
    def contents(x: tracejit.Tensor) -> object:
        return bytes(x.numpy())

    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"fullgraph=True.*tensor_contents"):
            contents(tracejit.ones(2))

    line = contents.__wrapped__.__code__.co_firstlineno + 2
    with pytest.raises(RuntimeError, match=f"test_compat.py:{line}"):
        contents(tracejit.ones(2))

    @tracejit.compile(fullgraph=True)
    def failing(x: tracejit.Tensor) -> object:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing(tracejit.ones(2))


def test_fullgraph_raises_where_something_is_done_beside_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    @tracejit.compile(fullgraph=True)
    def printing(x: tracejit.Tensor) -> tracejit.Tensor:
        y = x * 2
        print("twice")
        return y

    line = printing.__wrapped__.__code__.co_firstlineno + 3
    for _ in range(3):
        with pytest.raises(RuntimeError, match=rf"fullgraph=True.*\[outside_call\] print\(\).*test_compat.py:{line}"):
            printing(tracejit.ones(2))
    assert capsys.readouterr().out == "twice\n" * 3 and printing.stats.compiled_calls == 0


def test_fullgraph_takes_numbers_that_leave_stores_and_operations_of_the_host() -> None:
    losses: list[float] = []
    kept = {"last": 0.0}

    @tracejit.compile(fullgraph=True)
    def step(x: tracejit.Tensor) -> float:
        total = (x * tracejit.linalg.inv(x)).sum()
        losses.append(total.item())
        kept["last"] = total.item()
        return total.item()

    for _ in range(3):
        assert step(tracejit.eye(2)) == 2.0 == kept["last"]
    assert losses == [2.0] * 3 and step.stats.compiled_calls == 2


def test_fullgraph_raises_where_there_is_no_room_for_a_path_and_goes_on_serving_the_others() -> None:
    with override(max_entries=2, max_sizes=2):
        double = tracejit.compile(lambda x: x * 2, fullgraph=True)
        for _ in range(100):
            for n in (1, 2):
                assert double(tracejit.ones(n)).tolist() == [2.0] * n
            with pytest.raises(RuntimeError, match=r"fullgraph=True.*too_many_paths"):
                double(tracejit.ones(3))


def test_options_of_compile_mean_what_they_say() -> None:
    def double(x: tracejit.Tensor) -> tracejit.Tensor:
        return x * 2

    assert tracejit.compile(double, disable=True) is double
    for backend in ("inductor", "eager", "aot_eager", "llvm", "interpret", None):
        compiled = tracejit.compile(double, backend=backend, mode="reduce-overhead", dynamic=True, options={})
        assert [compiled(tracejit.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
        assert compiled.stats.compiled_calls > 0
    with pytest.raises(ValueError, match="backend must be one of"):
        tracejit.compile(double, backend="nonsense")
    with pytest.raises(RuntimeError, match="mode must be one of"):
        tracejit.compile(double, mode="nonsense")


def test_inference_mode_is_a_context_and_a_decorator_with_and_without_parentheses() -> None:
    x = tracejit.ones(1, requires_grad=True)
    with tracejit.inference_mode():
        assert not (x * 2).requires_grad
    with tracejit.inference_mode(False):
        assert (x * 2).requires_grad

    @tracejit.inference_mode
    def plain() -> tracejit.Tensor:
        return x * 2

    @tracejit.inference_mode()
    def called() -> tracejit.Tensor:
        return x * 2

    assert not plain().requires_grad and not called().requires_grad and (x * 2).requires_grad


def test_what_a_guard_does_not_imply_of_a_tensor_ends_a_recording() -> None:
    def offset(x: tracejit.Tensor) -> tuple[tracejit.Tensor, int]:
        return x * 2, x.storage_offset()

    compiled = tracejit.compile(offset)
    whole, part = tracejit.ones(2, 3), tracejit.ones(4, 3)[1:3]
    assert [compiled(x)[1] for x in (whole, whole, part, part, whole)] == [0, 0, 3, 3, 0]
    for name in ("resize_", "set_"):
        changing = tracejit.compile(lambda x, name=name: getattr(x, name)(tracejit.ones(3) if name == "set_" else 3).sum())
        assert [changing(tracejit.ones(2)).item() for _ in range(3)] == [3.0 if name == "set_" else 2.0] * 3


def test_writing_through_data_moves_no_version_in_compiled_functions_either() -> None:
    def inside(x: tracejit.Tensor) -> object:
        y = (x * x).sum()
        x.data.add_(1)
        y.backward()
        return x.grad.tolist() if x.grad is not None else None

    def between(x: tracejit.Tensor) -> object:
        y = (x * x).sum()
        step(x)
        y.backward()
        return x.grad.tolist() if x.grad is not None else None

    def leaving(x: tracejit.Tensor) -> object:
        y = (x * x).sum()
        alias(x).mul_(2)
        y.backward()
        return x.grad.tolist() if x.grad is not None else None

    def step(x: tracejit.Tensor) -> None:
        x.data[:1].sub_(0.5)

    def alias(x: tracejit.Tensor) -> tracejit.Tensor:
        return x.data

    eager = []
    for function in (inside, between, leaving):
        x = tracejit.tensor([1.0, 2.0], requires_grad=True)
        eager.append([function(x) for _ in range(3)])
    step, alias = tracejit.compile(step), tracejit.compile(alias)
    for function, expected in zip((tracejit.compile(inside), between, leaving), eager, strict=True):
        x = tracejit.tensor([1.0, 2.0], requires_grad=True)
        assert [function(x) for _ in range(3)] == expected
    reading = tracejit.compile(lambda x: x.data * 2)
    assert [reading(tracejit.ones(2, requires_grad=True)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert reading.stats.compiled_calls > 0


def test_processes_that_a_script_spawns_have_the_names_too(tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(number, queue):\n"
        "    queue.put((number, type(torch.ones(2)).__module__.partition('.')[0], torch.ones(number).sum().item()))\n"
        "if __name__ == '__main__':\n"
        "    queue = mp.get_context('spawn').SimpleQueue()\n"
        "    mp.spawn(work, (queue,), nprocs=2)\n"
        "    print(sorted([queue.get(), queue.get()]))\n"
    )
    done = run("-m", "tracejit.compat", str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(0, 'tracejit', 0.0), (1, 'tracejit', 1.0)]"


def test_a_process_that_fails_is_reported_by_spawn(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import torch.multiprocessing as mp\n"
        "def work(number):\n"
        "    raise SystemExit(3)\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        mp.spawn(work, nprocs=1)\n"
        "    except mp.ProcessExitedException as error:\n"
        "        print(error)\n"
    )
    assert run("-m", "tracejit.compat", str(script), cwd=tmp_path).stdout.strip() == "process 0 terminated with exit code 3"


def test_texts_of_types_begin_with_the_name_that_the_program_imports() -> None:
    program = "import torch; x = torch.ones(2); print(torch.float32, x.shape, x.type(), torch.strided, torch.torch is torch)"
    done = run("-m", "tracejit.compat", "-c", program)
    assert done.stdout.strip() == "torch.float32 torch.Size([2]) torch.FloatTensor torch.strided True", done.stderr


def test_a_writer_takes_arrays_and_tensors_of_one_element_as_numbers(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("return", np.array([1.5], np.float32), np.int64(1))
        writer.add_scalar("loss", tracejit.ones(1, requires_grad=True), tracejit.tensor(2))
        with pytest.raises(ValueError, match=r"expected one number, got an array of shape \[2\]"):
            writer.add_scalar("both", np.zeros(2))
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(line["tag"], line["value"], line["step"]) for line in lines] == [("return", 1.5, 1), ("loss", 1.0, 2)]
