"""What each process of tests/test_distributed_ranks.py runs: `mpirun -n N python -m tests.rank_program FOLDER`.

Each check is a function of (rank, number of ranks).  Process r writes to FOLDER/r.json which checks held, and the traceback of the
one that did not; then it ends all processes.  After the last check rank 1 dies while the others wait for it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tracejit as tj
from tracejit import distributed as dist
from tracejit import nn, optim
from tracejit.core import dtypes
from tracejit.data import DistributedSampler
from tracejit.distributed.ledger import LEDGERS
from tracejit.serialization import load, save_by_rank_0

Op = dist.ReduceOp
Check = Callable[[int, int, Path], None]
CHECKS: dict[str, Check] = {}
OF_ONE_PROCESS: set[str] = set()
"""Checks of what does not depend on how many processes there are: two are enough."""


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def check_with_two(function: Check) -> Check:
    OF_ONE_PROCESS.add(function.__name__)
    return check(function)


@contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"expected {kind.__name__}: {text}")


def collectives_done() -> int:
    (ledger,) = LEDGERS.values()
    return ledger.next


def given(rank: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """What process `rank` brings: every process can tell."""
    numbers = np.asarray(np.random.default_rng([rank, *shape]).normal(size=shape) * 3)
    return dtypes.converted(numbers if dtype.is_floating_point else np.asarray(np.round(numbers)), dtype)


def everywhere(tensor: tj.Tensor) -> None:
    """All processes have the same bits."""
    own = hashlib.sha256(np.ascontiguousarray(tensor.detach().numpy()).tobytes()).hexdigest()
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    assert len(set(found)) == 1


def digest(module: nn.Module) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(x.numpy()).tobytes() for x in module.state_dict().values())).hexdigest()


# --- collectives


@check
def a_reduction_combines_in_the_order_of_ranks(rank: int, size: int, folder: Path) -> None:
    combine = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "AVG": np.add, "BOR": np.bitwise_or}
    for dtype in (tj.float32, tj.float64, tj.float16, tj.bfloat16, tj.int64, tj.uint8, tj.bool):
        for shape in ((), (0,), (5,), (3, 4), (257, 31)):  # the last one is in two halves
            for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG if dtype.is_floating_point else Op.BOR):
                rows = [given(r, shape, dtype) for r in range(size)]
                wide = [row.astype(np.float32) if dtype.is_reduced else row for row in rows]
                expected = wide[0].copy()
                for row in wide[1:]:
                    expected = combine[op.name](expected, row)
                expected = expected / expected.dtype.type(size) if op is Op.AVG else expected
                tensor = tj.from_numpy(np.array(rows[rank]))
                dist.all_reduce(tensor, op)
                wanted = dtypes.converted(np.asarray(expected), dtype)
                assert tensor.numpy().tobytes() == wanted.tobytes(), (dtype, shape, op)


@check
def strided_tensors_and_views_are_reduced_in_place(rank: int, size: int, folder: Path) -> None:
    base = tj.zeros(4, 6)
    view = base.t()[1::2, ::3]
    view += rank + 1
    dist.all_reduce(view)
    total = sum(range(1, size + 1))
    assert base.sum().item() == total * view.numel() and (view == total).all()
    leaf = tj.ones(3, requires_grad=True)
    dist.all_reduce(leaf)
    assert leaf.is_leaf and leaf.requires_grad and leaf.tolist() == [size] * 3


@check
def reductions_that_are_begun_may_be_waited_for_in_any_order(rank: int, size: int, folder: Path) -> None:
    tensors = [tj.full((n,), float(rank + n)) for n in (3, 50_000, 7, 20_000, 1)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    between = tj.ones(30_000)
    dist.all_reduce(between)
    time.sleep(0.005 * rank)
    for k in (3, 0, 4, 1, 2):
        assert works[k].wait() and works[k].is_completed()
    for x, n in zip(tensors, (3, 50_000, 7, 20_000, 1), strict=True):
        assert (x == sum(r + n for r in range(size))).all()
    assert (between == size).all()
    work = dist.all_reduce(tj.ones(60_000), async_op=True)
    if rank == 0:
        work.wait()
    dist.barrier()  # the others come to it first
    assert work.wait()
    forgotten = dist.all_reduce(tj.ones(40_000), async_op=True)
    del forgotten
    dist.all_reduce(between)
    assert (between == size * size).all()


@check
def tensors_are_broadcast_gathered_and_scattered(rank: int, size: int, folder: Path) -> None:
    last = size - 1
    x = tj.full((2, 3), float(rank))
    dist.broadcast(x, src=last)
    assert (x == last).all()
    rows = [tj.empty(2, dtype=tj.int64) for _ in range(size)]
    dist.all_gather(rows, tj.tensor([rank, 7]))
    assert [r.tolist() for r in rows] == [[r, 7] for r in range(size)]
    joined, stacked = tj.empty(size * 2), tj.empty(size, 2)
    dist.all_gather_into_tensor(joined, tj.full((2,), float(rank)))
    dist.all_gather_into_tensor(stacked, tj.full((2,), float(rank)))
    assert joined.tolist() == [r for r in range(size) for _ in (0, 1)] and stacked.reshape(-1).tolist() == joined.tolist()
    y = tj.full((3,), float(rank + 1))
    dist.reduce(y, dst=last)
    assert y.tolist() == [sum(range(1, size + 1)) if rank == last else rank + 1] * 3
    dist.reduce(number := tj.tensor(float(rank)), dst=0, op=Op.MAX)
    assert number.item() == (size - 1 if rank == 0 else rank)
    found = [tj.zeros(1) for _ in range(size)] if rank == 1 else None
    dist.gather(tj.tensor([float(rank)]), found, dst=1)
    assert found is None or [f.item() for f in found] == list(range(size))
    z = tj.zeros(2)
    dist.scatter(z, [tj.full((2,), 10.0 * r) for r in range(size)] if rank == 1 else None, src=1)
    assert z.tolist() == [10.0 * rank] * 2


@check
def objects_and_messages_arrive(rank: int, size: int, folder: Path) -> None:
    found: list[Any] = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(size)]
    objects = ["a", (1, 2)] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects)
    assert objects == ["a", (1, 2)]
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered)
    assert gathered is None or gathered == list(range(size))
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None)
    assert mine == [f"for {rank}"]
    after, before = (rank + 1) % size, (rank - 1) % size
    work = dist.isend(tj.full((3,), float(rank)), after, tag=4)
    x = tj.zeros(6)
    assert dist.recv(x[::2], before, tag=4) == before and x.tolist() == [before, 0] * 3
    work.wait()
    later = dist.irecv(x[:3], before)
    dist.send(tj.ones(3), after)
    later.wait()
    assert x[:3].tolist() == [1, 1, 1]
    dist.barrier()


@check
def wrong_arguments_are_refused_before_anything_is_sent(rank: int, size: int, folder: Path) -> None:
    before = collectives_done()
    with raises(RuntimeError, "AVG is for floating-point"):
        dist.all_reduce(tj.ones(2, dtype=tj.int32), Op.AVG)
    with raises(RuntimeError, "BAND is for integers"):
        dist.all_reduce(tj.ones(2), Op.BAND)
    with raises(TypeError, "ReduceOp"):
        dist.all_reduce(tj.ones(2), "sum")
    with raises(ValueError, f"a rank from 0 to {size - 1}"):
        dist.broadcast(tj.ones(2), src=size)
    with raises(ValueError, f"a list of {size} tensors"):
        dist.all_gather([tj.ones(2)], tj.ones(2))
    with raises(ValueError, "at position 0"):
        dist.all_gather([tj.ones(3)] * size, tj.ones(2))
    with raises(ValueError, "expected an output of shape"):
        dist.all_gather_into_tensor(tj.ones(1), tj.ones(2))
    with raises(ValueError, "gather_list from rank 0"):
        dist.gather(tj.ones(2), None if rank == 0 else [tj.ones(2)] * size)
    with raises(ValueError, "another process"):
        dist.send(tj.ones(2), rank)
    with raises(ValueError, "twice"):
        dist.init_process_group()
    assert collectives_done() == before


@check
def each_process_has_its_share_of_threads(rank: int, size: int, folder: Path) -> None:
    assert 1 <= tj.get_num_threads() <= max(1, len(os.sched_getaffinity(0)) // size)  # hardware threads of a core count once


# --- gradients


def network(seed: int = 0, norm: bool = False) -> nn.Sequential:
    tj.manual_seed(seed)
    middle = [nn.BatchNorm1d(32)] if norm else []
    return nn.Sequential(nn.Linear(12, 32), *middle, nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


def batch(seed: int = 5, count: int = 24) -> tuple[tj.Tensor, tj.Tensor]:
    tj.manual_seed(seed)
    return tj.randn(count, 12), tj.randn(count, 3)


def gradients(module: nn.Module) -> list[np.ndarray[Any, Any]]:
    return [p.grad.numpy().copy() for p in module.parameters()]


def close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    for x, y in zip(a, b, strict=True):
        assert np.allclose(x, y, rtol=1e-5, atol=tolerance), np.abs(x - y).max()


@check
def gradients_are_those_of_one_process(rank: int, size: int, folder: Path) -> None:
    x, y = batch()
    alone = network()
    nn.functional.mse_loss(alone(x), y).backward()
    for capacity in (25, 0.001):
        model = nn.parallel.DistributedDataParallel(network(seed=rank), bucket_cap_mb=capacity)  # rank 0's parameters count
        nn.functional.mse_loss(model(x[rank::size]), y[rank::size]).backward()
        close(gradients(model), gradients(alone))
        for p in model.parameters():
            everywhere(p.grad)
    assert list(model.state_dict()) == [f"module.{name}" for name in alone.state_dict()]


@check
def averages_begin_while_the_backward_pass_goes_on(rank: int, size: int, folder: Path) -> None:
    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.001)
    x, y = batch()
    begun: list[int] = []
    hidden = model.module[1](model.module[0](x))
    hidden.register_hook(lambda g: begun.append(len(model._reducer.begun)))
    out = model.module[4](model.module[3](model.module[2](hidden)))
    nn.functional.mse_loss(out, y).backward()
    assert begun[0] >= 2 and len(model._reducer.buckets) > 3, begun
    assert not model._reducer.begun  # and the end of the pass has waited for all


@check
def a_parameter_that_is_used_twice_is_averaged_once(rank: int, size: int, folder: Path) -> None:
    alone = network()
    x, y = batch()

    def loss(call: Any, layer: nn.Linear, x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        return (
            nn.functional.mse_loss(call(x), y)
            + (layer.weight**2).sum()
            + layer(layer(x.sum(1, keepdim=True).expand(-1, 32))).mean()
        )

    model = nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.001)
    loss(alone, alone[2], x, y).backward()
    loss(model, model.module[2], x[rank::size], y[rank::size]).backward()
    close(gradients(model), gradients(alone), 1e-5)


@check
def two_runs_have_the_same_bits_whoever_is_late(rank: int, size: int, folder: Path) -> None:
    found = []
    for run in range(2):
        model = nn.parallel.DistributedDataParallel(network(norm=True), bucket_cap_mb=0.002)
        optimizer = optim.Adam(model.parameters(), lr=1e-2)
        for k in range(5):
            x, y = batch(k)
            time.sleep(0.002 * ((rank + run + k) % 2))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[rank::size]), y[rank::size]).backward()
            optimizer.step()
        found.append(digest(model))
        for p in model.parameters():
            everywhere(p)
    assert found[0] == found[1]


@check
def no_sync_adds_up_and_the_next_pass_averages(rank: int, size: int, folder: Path) -> None:
    x, y = batch()
    alone = network()
    (nn.functional.mse_loss(alone(x[:12]), y[:12]) + nn.functional.mse_loss(alone(x[12:]), y[12:])).backward()
    model = nn.parallel.DistributedDataParallel(network())
    before = collectives_done()
    with model.no_sync():
        nn.functional.mse_loss(model(x[:12][rank::size]), y[:12][rank::size]).backward()
    assert collectives_done() == before
    nn.functional.mse_loss(model(x[12:][rank::size]), y[12:][rank::size]).backward()
    close(gradients(model), gradients(alone))


@check_with_two
def a_compiled_step_of_several_batches_averages_once(rank: int, size: int, folder: Path) -> None:
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = optim.SGD(model.parameters(), lr=0.0)

    @tj.compile
    def step(x: tj.Tensor, y: tj.Tensor) -> None:
        optimizer.zero_grad()
        with model.no_sync():
            nn.functional.mse_loss(model(x[:6]), y[:6]).backward()
        nn.functional.mse_loss(model(x[6:]), y[6:]).backward()
        optimizer.step()

    alone, before = network(), collectives_done()
    for k in range(4):
        x, y = batch(k)
        step(x[rank::size], y[rank::size])
        alone.zero_grad()
        for part in (slice(0, 6), slice(6, None)):
            for r in range(size):
                (nn.functional.mse_loss(alone(x[r::size][part]), y[r::size][part]) / size).backward()
        close(gradients(model), gradients(alone))
    assert collectives_done() - before == 4 and step.stats.compiled_calls >= 2, step.explain()  # Numba may be imported between


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        tj.manual_seed(0)
        self.body, self.left, self.right, self.never = (nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: tj.Tensor, left: bool) -> tj.Tensor:
        return (self.left if left else self.right)(self.body(x)).sum()


@check_with_two
def parameters_without_a_gradient_are_an_error_or_count_as_zero(rank: int, size: int, folder: Path) -> None:
    model = nn.parallel.DistributedDataParallel(TwoHeads())
    with raises(RuntimeError, "right.weight"):
        model(tj.ones(2, 3), True).backward()
    for compiled in (False, True):
        model = nn.parallel.DistributedDataParallel(TwoHeads(), find_unused_parameters=True)

        def step(x: tj.Tensor, left: bool, model: Any = model) -> None:
            model.zero_grad()
            model(x, left).backward()

        call = tj.compile(step) if compiled else step
        for _ in range(3):
            call(tj.ones(2, 3), rank == 0)  # rank 0 goes left, the others go right
            alone = TwoHeads()
            (alone(tj.ones(2, 3), True) + (size - 1) * alone(tj.ones(2, 3), False)).div(size).backward()
            for head in ("body", "left", "right"):
                close(gradients(getattr(model.module, head)), gradients(getattr(alone, head)))
            assert model.module.never.weight.grad is None
        assert not compiled or call.stats.compiled_calls == 2, call.explain()


@check
def buffers_are_those_of_rank_0(rank: int, size: int, folder: Path) -> None:
    model, alone = nn.parallel.DistributedDataParallel(network(norm=True)), network(norm=True)
    for k in range(3):
        x, _ = batch(10 * k + rank)
        model(x).sum().backward()
        alone(batch(10 * k)[0])
    for module in (model, alone):
        module.eval()
        with tj.no_grad():
            module(batch()[0])
    for own, expected in zip(model.buffers(), alone.buffers(), strict=True):
        close([own], [expected])
        everywhere(own)


# --- compiled


def trainer(compiled: bool, norm: bool = False, capacity: float = 0.002) -> tuple[Any, Any]:
    model = nn.parallel.DistributedDataParallel(network(norm=norm), bucket_cap_mb=capacity)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach().clone(), Op.AVG)
        return mean

    return (tj.compile(step) if compiled else step), model


@check
def a_compiled_step_stays_compiled_and_equals_the_eager_one(rank: int, size: int, folder: Path) -> None:
    for norm in (False, True):
        found, counts = [], []
        for compiled in (False, True):
            step, model = trainer(compiled, norm)
            before = collectives_done()
            losses = [step(x[rank::size], y[rank::size]).item() for x, y in map(batch, range(6))]
            counts.append(collectives_done() - before)
            found.append((losses, [x.numpy() for x in model.state_dict().values()]))
            if compiled:
                assert (step.stats.compiled_calls, step.stats.traces) == (5, 1), step.explain()
                assert "host step: collective" in step.explain(verbose=True)
        assert counts[0] == counts[1] >= 6 * 4, counts
        close([found[0][0]], [found[1][0]])
        close(found[0][1], found[1][1])


@check_with_two
def processes_agree_where_some_run_compiled_and_some_do_not(rank: int, size: int, folder: Path) -> None:
    step, model = trainer(True, norm=True)
    other, reference = trainer(False, norm=True)
    for k, (x, y) in enumerate(map(batch, range(6))):
        with tj.config.override(enabled=(k + rank) % 2 == 0):
            a = step(x[rank::size], y[rank::size]).item()
        assert abs(a - other(x[rank::size], y[rank::size]).item()) < 1e-6
    close([p.detach().numpy() for p in model.parameters()], [p.detach().numpy() for p in reference.parameters()])


def branching(x: tj.Tensor, limit: tj.Tensor) -> tj.Tensor:
    total = x * 2
    dist.all_reduce(total)
    y = x + total
    if y.sum() > limit:  # each process for itself, after one collective and before another
        y = y * 3
    dist.all_reduce(y, Op.AVG)
    return y if y.sum() > 0 else -y


@check
def a_call_that_leaves_behind_a_collective_does_not_do_it_again(rank: int, size: int, folder: Path) -> None:
    call, rng = tj.compile(branching), np.random.default_rng(3)
    before, calls = collectives_done(), 24
    for k in range(calls):
        x = tj.from_numpy(rng.normal(size=(size, 4)))[rank] + k % 3 - 1
        limit = tj.tensor(float(rng.normal() * 4), dtype=tj.float64)
        assert np.array_equal(call(x, limit).numpy(), branching(x, limit).numpy())
    assert collectives_done() - before == 2 * 2 * calls
    assert call.stats.exits > 2 and call.stats.compiled_calls > calls // 2, call.stats


def deciding(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
    order = tj.linalg.pinv(x)  # NumPy computes it, so what depends on it is known late
    if order.sum() > 0:
        dist.all_reduce(y)
    else:
        y = y * 10
        dist.all_reduce(y)
    return y


@check_with_two
def a_collective_waits_for_the_branch_before_it(rank: int, size: int, folder: Path) -> None:
    call = tj.compile(deciding)
    before = collectives_done()
    for sign in (1, 1, 1, -1, -1, 1, -1, -1):
        x, y = tj.eye(2) * sign, tj.full((3,), float(rank + 1))
        total = sum(range(1, size + 1))
        assert call(x, y.clone()).tolist() == [total * (1 if sign > 0 else 10)] * 3
    assert collectives_done() - before == 8 and call.stats.exits >= 1, call.stats


@check_with_two
def a_collective_in_a_loop_is_done_in_each_step(rank: int, size: int, folder: Path) -> None:
    @tj.compile
    def mixed(x: tj.Tensor) -> tj.Tensor:
        for _ in range(12):
            dist.all_reduce(x, Op.AVG)
            x = (x + rank).tanh()
        return x

    before = collectives_done()
    results = [mixed(tj.full((3,), 0.1 * rank)) for _ in range(4)]
    assert collectives_done() - before == 4 * 12
    close([r.numpy() for r in results[1:]], [results[0].numpy()] * 3)
    assert mixed.stats.compiled_calls == 3, mixed.explain()


@check_with_two
def a_collective_whose_result_nobody_reads_is_done(rank: int, size: int, folder: Path) -> None:
    @tj.compile
    def wasteful(x: tj.Tensor) -> tj.Tensor:
        dist.all_reduce(x.clone())
        dist.all_reduce(x.clone())
        return x * 2

    before = collectives_done()
    for _ in range(4):
        wasteful(tj.ones(3))
    assert collectives_done() - before == 8 and wasteful.stats.compiled_calls == 3


@check_with_two
def shadow_compares_compiled_calls_without_more_collectives(rank: int, size: int, folder: Path) -> None:
    step, _ = trainer(True)
    before = collectives_done()
    with tj.shadow() as seen:
        for x, y in map(batch, range(4)):
            step(x[rank::size], y[rank::size])
    plain, _ = trainer(False)
    middle = collectives_done()
    for x, y in map(batch, range(4)):
        plain(x[rank::size], y[rank::size])
    assert seen.compared == 3 and not seen.differences, seen.differences
    made = 2  # by the second trainer, for its parameters
    assert middle - before - made <= collectives_done() - middle


@check_with_two
def what_moves_objects_makes_a_function_eager(rank: int, size: int, folder: Path) -> None:
    @tj.compile
    def waits(x: tj.Tensor) -> tj.Tensor:
        dist.barrier()
        return x * 2

    for _ in range(3):
        assert waits(tj.ones(2)).tolist() == [2, 2]
    assert waits.stats.compiled_calls == 0 and "[impure_call] barrier()" in waits.explain(verbose=True)


# --- data, files


@check
def samplers_share_a_data_set(rank: int, size: int, folder: Path) -> None:
    sampler = DistributedSampler(range(11), seed=3)
    sampler.set_epoch(2)
    found: list[Any] = [None] * size
    dist.all_gather_object(found, list(sampler))
    assert {len(f) for f in found} == {-(-11 // size)} and {i for f in found for i in f} == set(range(11))


@check
def rank_0_writes_the_file_for_all(rank: int, size: int, folder: Path) -> None:
    model = network(seed=rank)
    save_by_rank_0(model.state_dict(), folder / "model.safetensors")
    found = load(folder / "model.safetensors")
    assert np.array_equal(found["0.weight"].numpy(), network(seed=0)[0].weight.detach().numpy())
    with raises(Exception, "nowhere"):
        save_by_rank_0(model.state_dict(), folder / "nowhere" / "model.safetensors")
    if rank == 0:
        assert [p.name for p in folder.glob("*model*")] == ["model.safetensors"]


@check
def a_group_can_be_made_again(rank: int, size: int, folder: Path) -> None:
    @tj.compile
    def total(x: tj.Tensor) -> tj.Tensor:
        dist.all_reduce(x)
        return x * 1

    for _ in range(3):
        assert total(tj.ones(2)).tolist() == [size] * 2
    dist.destroy_process_group()
    assert not dist.is_initialized() and dist.group.WORLD is None
    with raises(ValueError, "has not been initialized"):
        total(tj.ones(2))
    dist.init_process_group("mpi", world_size=size, rank=rank)
    assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("mpi", rank, size)
    for _ in range(3):
        assert total(tj.ones(2)).tolist() == [size] * 2


@check_with_two
def the_example_trains_a_classifier(rank: int, size: int, folder: Path) -> None:
    if importlib.util.find_spec("sklearn") is None:
        return
    dist.destroy_process_group()
    main = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "distributed_digits.py"))["main"]
    facts = main(epochs=4)
    assert facts["accuracy"] > 0.85 and facts["compiled_calls"] == facts["calls"] - 1 == 4 * 22 - 1, facts
    dist.init_process_group()


def main(folder: Path) -> None:
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    found: dict[str, str] = {}
    for name, function in CHECKS.items():
        if size > 2 and name in OF_ONE_PROCESS:
            continue
        start = time.perf_counter()
        try:
            function(rank, size, folder)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
        if "--times" in sys.argv and rank == 0:
            print(f"{time.perf_counter() - start:6.2f} s {name}", flush=True)
        (folder / f"{rank}.part").write_text(json.dumps(found))
        os.replace(folder / f"{rank}.part", folder / f"{rank}.json")
        if found[name]:
            time.sleep(0.5)  # others may be about to write what they have found
            raise AssertionError(f"{name} does not hold")
    dist.barrier()
    if rank == 1:
        raise ValueError("nothing more\nto do")
    dist.all_reduce(tj.ones(3))
    print("an all_reduce without rank 1")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
