"""tracejit.distributed in one process: without MPI, and its parts that need none.  Several processes: test_distributed_ranks.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as tj
from tracejit import distributed as dist
from tracejit import nn, optim
from tracejit.core import thread_share
from tracejit.data import DistributedSampler
from tracejit.distributed import exchange, launch
from tracejit.distributed.exchange import Communicator
from tracejit.distributed.ledger import LEDGERS, Ledger
from tracejit.llvm import thread_pool
from tracejit.serialization import load, save_by_rank_0

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if mpi4py were not installed."""
    monkeypatch.setattr(launch, "has_mpi", lambda: False)


@pytest.fixture
def alone(no_mpi: None) -> Iterator[None]:
    """The group of one process without MPI."""
    dist.init_process_group()
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


# --- questions, and the group


def test_before_there_is_a_group_programs_are_told_so(no_mpi: None) -> None:
    assert not dist.is_available() and not dist.is_mpi_available() and not dist.is_initialized() and dist.group.WORLD is None
    for ask in (dist.get_rank, dist.get_world_size, dist.get_backend, dist.barrier, dist.destroy_process_group):
        with pytest.raises(ValueError, match="has not been initialized"):
            ask()
    with pytest.raises(ValueError, match="has not been initialized"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1))


def test_without_mpi_there_is_one_process_of_rank_0(alone: None) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized()) == (0, 1, True)
    assert dist.get_rank(dist.group.WORLD) == 0 and dist.get_global_rank(None, 0) == 0
    x = tj.tensor([1.0, 2.0])
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MIN):
        dist.all_reduce(x, op)
        assert dist.all_reduce(x, op, async_op=True).wait()
    rows, objects = [tj.zeros(2)], [None]
    dist.all_gather(rows, x)
    dist.gather(x, rows)
    dist.scatter(rows[0], [x])
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.all_gather_object(objects, "here")
    dist.barrier()
    assert rows[0].tolist() == x.tolist() == [1, 2] and objects == ["here"]
    with pytest.raises(ValueError, match="no other process"):
        dist.recv(x)


def test_groups_are_refused_that_cannot_be_made(no_mpi: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="there is no backend 'nccl' here"):
        dist.init_process_group("nccl")
    with pytest.raises(RuntimeError, match=r"mpi4py is not installed; install it with: pip install 'tracejit\[mpi\]'"):
        dist.init_process_group("mpi")
    with pytest.raises(ValueError, match="world_size is 2, but MPI says 1"):
        dist.init_process_group(world_size=2)
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(RuntimeError, match="has started 4 processes, but mpi4py is not installed"):
        dist.init_process_group()
    assert not dist.is_initialized()


def test_a_launcher_of_another_mpi_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(COMM_WORLD=SimpleNamespace(Get_size=lambda: 1), Get_library_version=lambda: "An MPI 1.0\nmore")
    monkeypatch.setattr(launch, "has_mpi", lambda: True)
    monkeypatch.setattr(launch, "MPI", library)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"started 2 processes, but the MPI library \(An MPI 1.0\) knows of 1"):
        launch.world(required=False)
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(RuntimeError, match="WORLD_SIZE is 8, but MPI has started 1"):
        launch.world(required=False)
    monkeypatch.delenv("WORLD_SIZE")
    assert launch.world(required=True) is library.COMM_WORLD


def test_mpi_starts_when_a_group_is_made_and_not_before() -> None:
    pytest.importorskip("mpi4py")
    program = (
        "import sys, tracejit as tj; from tracejit import distributed as d; assert d.is_available() and 'mpi4py' not in sys.modules;"
        "d.init_process_group('mpi'); assert 'mpi4py.MPI' in sys.modules; x = tj.ones(2); d.all_reduce(x);"
        "print(x.tolist(), d.get_world_size())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[1.0, 1.0] 1\n"), done.stderr


# --- the order of reductions


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.integers(0, 40), st.sampled_from([np.float32, np.float64, np.float16]), st.integers(0, 2**32 - 1))
def test_rows_are_added_in_their_order(ranks: int, count: int, kind: Any, seed: int) -> None:
    rows = (np.random.default_rng(seed).normal(size=(ranks, count)) * 100).astype(kind)
    expected = []
    for column in rows.T:
        total = np.float32(column[0]) if kind is np.float16 else column[0]
        for number in column[1:]:
            total = total + number
        expected.append(kind(total))
    assert exchange.reduced(rows, "SUM").tobytes() == np.array(expected, kind).tobytes()
    parts = [exchange.reduced(rows[:, i : i + 7], "SUM") for i in range(0, count, 7)]  # however it is cut
    assert not count or np.concatenate(parts).tobytes() == np.array(expected, kind).tobytes()


def test_sums_of_16_bits_are_rounded_once() -> None:
    rows = np.array([[2048.0], [1.0], [1.0]], np.float16)  # 2048 + 1 is 2048 in float16
    assert exchange.reduced(rows, "SUM") == 2050
    assert exchange.reduced(np.array([[True], [True]]), "SUM").dtype == np.bool_


# --- the invariant


def test_a_collective_with_a_number_is_done_once_until_it_is_committed() -> None:
    sequence, done = np.zeros((), np.int64), []
    ledger = Ledger(Communicator(None), sequence)

    def do(number: int, what: str = "sum") -> Any:
        return ledger.once(number, what, lambda: done.append(number) or f"result {number}")

    assert do(0) == do(0) == "result 0" and do(1) == "result 1" and do(0) == "result 0"
    assert done == [0, 1]
    with pytest.raises(RuntimeError, match="does max as collective 1; the first time it was sum"):
        do(1, "max")
    with pytest.raises(RuntimeError, match="expected collective 2 of the group, got 3"):
        do(3)
    sequence += 2  # both are committed
    assert do(2) == "result 2" and done == [0, 1, 2]
    with pytest.raises(RuntimeError, match="expected collective 3 of the group, got 1"):
        do(1)
    with pytest.raises(ZeroDivisionError):
        ledger.once(3, "fails", lambda: 1 / 0)
    assert do(3) == "result 3"  # what failed was not done


def test_a_compiled_call_that_leaves_has_done_its_collectives_once(alone: None) -> None:
    (ledger,) = LEDGERS.values()

    @tj.compile
    def f(x: tj.Tensor) -> tj.Tensor:
        y = x * 2
        dist.all_reduce(y)
        if y.sum() > 0:
            y = y + 1
        dist.all_reduce(y)
        return y

    for k, sign in enumerate((1, 1, 1, -1, -1, 1, -1)):
        assert f(tj.ones(2) * sign).tolist() == [2 * sign + (sign > 0)] * 2
        assert ledger.next == 2 * (k + 1)
    assert f.stats.exits >= 2 and f.stats.compiled_calls >= 4, f.stats


# --- modules


def test_a_replica_alone_trains_as_its_module_does(alone: None) -> None:
    def train(wrap: bool) -> Any:
        tj.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        model = nn.parallel.DistributedDataParallel(model) if wrap else model
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        @tj.compile
        def step(x: tj.Tensor) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        for k in range(4):
            step(tj.full((2, 3), float(k)))
        assert step.stats.compiled_calls == 3, step.explain()
        return model.state_dict()

    with_wrapper, without = train(True), train(False)
    assert list(with_wrapper) == [f"module.{name}" for name in without]
    for a, b in zip(with_wrapper.values(), without.values(), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_a_compiled_step_begins_a_bucket_and_goes_on_with_the_backward_pass(alone: None) -> None:
    network = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    model = nn.parallel.DistributedDataParallel(network, bucket_cap_mb=0.02)  # a bucket for each layer
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @tj.compile
    def step(x: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = [parameter.detach().numpy().copy() for parameter in network.parameters()]
    for _ in range(2):
        step(tj.ones(8, 64))
    assert step.stats.compiled_calls == 1, step.explain()
    assert not any(np.array_equal(p.detach().numpy(), old) for p, old in zip(network.parameters(), before, strict=True))
    (executable,) = step.stats.executables
    stages: Any = executable.program.stages
    begun = [k for k, (_, host) in enumerate(stages) if any(node.op.name == "collective_begun" for node in host)]
    awaited = [k for k, (_, host) in enumerate(stages) if any(node.op.name == "collective_awaited" for node in host)]
    assert len(begun) == 4 and max(begun) < min(awaited)
    products = [sum(node.op.name == "matmul" for node in machine) for machine, _ in stages]
    assert all(products[k] for k in begun), products  # each waits for a part of the backward pass, which goes on behind it


def test_reductions_that_are_begun_are_kept_until_they_have_been_waited_for() -> None:
    sequence = np.zeros((), np.int64)
    communicator = Communicator(None)
    ledger = Ledger(communicator, sequence)
    works = []
    for number in range(3):
        works.append(ledger.once(number, "sum", lambda number=number: communicator.start(np.full(2, float(number)), "SUM")))
        sequence[...] = number + 1  # committed at once, as in eager mode
    assert [ledger.result(number) is work for number, work in enumerate(works)] == [True] * 3
    assert [work.wait().tolist() for work in works] == [[0.0] * 2, [1.0] * 2, [2.0] * 2]
    ledger.once(3, "sum", lambda: communicator.start(np.ones(2), "SUM"))
    assert list(ledger.done) == [3]


def test_a_replica_refuses_devices_and_modules_without_gradients(alone: None) -> None:
    with pytest.raises(ValueError, match="computes on the CPU only"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1), device_ids=[0])
    with pytest.raises(RuntimeError, match="require a gradient"):
        nn.parallel.DistributedDataParallel(nn.ReLU())


def test_buckets_hold_parameters_of_one_dtype_from_the_last_to_the_first(alone: None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double(), nn.Linear(4, 4))
    buckets = nn.parallel.DistributedDataParallel(model)._reducer.buckets
    assert [b.names for b in buckets] == [["2.bias", "2.weight"], ["1.bias", "1.weight"], ["0.bias", "0.weight"]]
    small = nn.parallel.DistributedDataParallel(nn.Linear(9, 9), bucket_cap_mb=1e-4)._reducer.buckets
    assert [b.names for b in small] == [["bias"], ["weight"]]


# --- data, files, threads


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 7), st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_shares_of_a_data_set_are_a_partition(
    count: int, processes: int, shuffle: bool, drop_last: bool, seed: int, epoch: int
) -> None:
    shares = []
    for rank in range(processes):
        sampler = DistributedSampler(range(count), processes, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        sampler.set_epoch(epoch)
        assert list(sampler) == list(sampler) and len(list(sampler)) == len(sampler)
        shares.append(list(sampler))
    together = [i for share in shares for i in share]
    assert len({len(share) for share in shares}) == 1
    if drop_last:
        assert len(set(together)) == len(together) == count // processes * processes and set(together) <= set(range(count))
    else:
        assert set(together) == set(range(count)) and len(together) < count + processes


def test_shares_in_order_are_those_of_torch() -> None:
    data = pytest.importorskip("torch.utils.data")
    for count in (1, 2, 5, 12, 13):
        for processes in (1, 2, 3, 5):
            for drop_last in (False, True):
                for rank in range(processes):
                    options = {"num_replicas": processes, "rank": rank, "shuffle": False, "drop_last": drop_last}
                    own, other = DistributedSampler(range(count), **options), data.DistributedSampler(range(count), **options)
                    assert (list(own), len(own)) == (list(other), len(other)), (count, options)


def test_another_epoch_has_another_order(alone: None) -> None:
    sampler = DistributedSampler(range(50), seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    assert sorted(sampler) == sorted(first) and list(sampler) != first
    assert list(DistributedSampler(range(50), seed=2)) == list(sampler)  # seed + epoch, as PyTorch


def test_a_process_alone_saves(alone: None, tmp_path: Path) -> None:
    save_by_rank_0({"w": tj.ones(2)}, tmp_path / "x")
    assert load(tmp_path / "x")["w"].tolist() == [1, 1]
    with pytest.raises(FileNotFoundError):
        save_by_rank_0({}, tmp_path / "no" / "x")


def test_threads_are_shared_out_unless_a_number_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(thread_share, "_pool", [(lambda: 8, set_to.append)])
    monkeypatch.setattr(thread_share, "chosen", [False])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with tj.config.override(num_threads=0):
        assert [thread_share.share(n) for n in (1, 2, 3, 8, 20)] == set_to == [8, 4, 2, 1, 1]
        monkeypatch.setenv("OMP_NUM_THREADS", "5")
        assert thread_share.share(2) is None
        monkeypatch.delenv("OMP_NUM_THREADS")
        thread_pool.set_num_threads(tj.get_num_threads())
        assert thread_share.share(2) is None
    assert os.environ.get("OMP_NUM_THREADS") is None and len(set_to) == 5
