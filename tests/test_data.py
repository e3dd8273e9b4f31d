"""Datasets, loaders and the handwritten digits."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import data
from tracejit.config import override


def pairs(n: int = 10) -> data.TensorDataset:
    return data.TensorDataset(tracejit.arange(n), tracejit.arange(n).float() / 2)


class Squares(data.Dataset):
    """Item i is i * i."""

    def __getitem__(self, index: int) -> int:
        return index * index

    def __len__(self) -> int:
        return 5


def test_a_tensor_dataset_gives_slices() -> None:
    dataset = pairs()
    x, y = dataset[3]
    assert (x.item(), y.item()) == (3, 1.5)
    assert len(dataset) == 10
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(tracejit.ones(2), tracejit.ones(3))
    with pytest.raises(NotImplementedError, match="should implement __getitem__"):
        data.Dataset()[0]


def test_subsets_and_concatenations() -> None:
    subset = data.Subset(Squares(), [4, 1])
    assert [subset[i] for i in range(len(subset))] == [16, 1]
    both = subset + Squares()
    assert [both[i] for i in range(len(both))] == [16, 1, 0, 1, 4, 9, 16]
    assert both[-1] == 16
    assert list(both) == [16, 1, 0, 1, 4, 9, 16]
    with pytest.raises(IndexError, match="out of range"):
        both[7]
    with pytest.raises(ValueError, match="out of range"):
        both[-8]


@pytest.mark.parametrize(("lengths", "sizes"), [([6, 4], [6, 4]), ([0.5, 0.25, 0.25], [6, 2, 2]), ([0.33, 0.67], [4, 6])])
def test_random_splits_are_disjoint_and_complete(lengths: list[float], sizes: list[int]) -> None:
    parts = data.random_split(pairs(), lengths, generator=tracejit.Generator().manual_seed(0))
    assert [len(p) for p in parts] == sizes
    assert sorted(part[i][0].item() for part in parts for i in range(len(part))) == list(range(10))


def test_splits_of_wrong_lengths_are_errors() -> None:
    with pytest.raises(ValueError, match="does not equal the length"):
        data.random_split(pairs(), [3, 4])


def test_a_loader_gives_batches_in_order() -> None:
    loader = data.DataLoader(pairs(), batch_size=4)
    batches = list(loader)
    assert [b[0].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[0][1].tolist() == [0.0, 0.5, 1.0, 1.5]
    assert len(loader) == 3
    assert isinstance(batches[0], list)
    short = data.DataLoader(pairs(), batch_size=4, drop_last=True)
    assert len(short) == len(list(short)) == 2
    assert len(list(data.DataLoader(pairs()))) == 10


def test_shuffling_visits_everything_in_a_new_order_each_time() -> None:
    tracejit.manual_seed(0)
    loader = data.DataLoader(pairs(100), batch_size=10, shuffle=True)
    first, second = ([i for x, _ in loader for i in x.tolist()] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second != list(range(100))


def test_the_same_seed_gives_the_same_order() -> None:
    def order(seed: int) -> list[int]:
        loader = data.DataLoader(Squares(), batch_size=2, shuffle=True, generator=tracejit.Generator().manual_seed(seed))
        return [i for batch in loader for i in batch.tolist()]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 1


def test_samplers_and_collation_of_ones_own() -> None:
    assert [b.tolist() for b in data.DataLoader(Squares(), batch_size=2, sampler=[4, 2, 0])] == [[16, 4], [0]]
    assert [b.tolist() for b in data.DataLoader(Squares(), batch_sampler=[[0, 1, 2], [3]])] == [[0, 1, 4], [9]]
    assert list(data.DataLoader(Squares(), batch_size=2, collate_fn=sum)) == [1, 13, 16]
    assert list(data.DataLoader(Squares(), batch_size=None)) == [0, 1, 4, 9, 16]
    assert list(data.DataLoader(pairs(3), batch_size=2, collate_fn=len)) == [2, 1]


def test_options_that_exclude_each_other_are_errors() -> None:
    for options in (
        {"shuffle": True, "sampler": [0]}, {"batch_sampler": [[0]], "shuffle": True}, {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
    ):  # fmt: skip
        options_: dict[str, Any] = options
        with pytest.raises(ValueError):
            data.DataLoader(Squares(), **options_)


def test_collation_goes_into_structures() -> None:
    Point = namedtuple("Point", ["x", "y"])
    batch = data.default_collate(
        [{"a": 1, "b": (1.5, "u"), "c": Point(np.ones(2), True)}, {"a": 2, "b": (2.5, "v"), "c": Point(np.zeros(2), False)}]
    )
    assert batch["a"].tolist() == [1, 2]
    assert batch["a"].dtype is tracejit.int64
    assert batch["b"][0].dtype is tracejit.float64
    assert batch["b"][1] == ("u", "v")
    assert batch["c"].x.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert batch["c"].y.dtype is tracejit.bool
    with pytest.raises(TypeError, match="found object"):
        data.default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([(1, 2), (1,)])


def test_the_digits_are_all_there_and_split_alike_every_time() -> None:
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    train, test = data.digits()
    again, _ = data.digits()
    assert (len(train), len(test)) == (1438, 359)
    assert train.tensors[0].shape == (1438, 64)
    assert train.tensors[0].dtype is tracejit.float32
    assert train.tensors[1].dtype is tracejit.int64
    assert (train.tensors[0] == again.tensors[0]).all()
    assert np.bincount(test.tensors[1].numpy()).min() >= 34
    assert len(data.digits(test_fraction=0.5)[1]) == pytest.approx(898, abs=5)
    assert not (data.digits(seed=1)[1].tensors[0] == test.tensors[0]).all()
    with pytest.raises(ValueError, match="between 0 and 1"):
        data.digits(test_fraction=1.0)
    everything = np.concatenate([train.tensors[0].numpy(), test.tensors[0].numpy()])
    original = (load_digits().data / 16).astype(np.float32)
    assert sorted(map(bytes, everything)) == sorted(map(bytes, original))


# ---- samplers and datasets ------------------------------------------------------------------------------------------
def test_samplers_take_what_torchs_take() -> None:
    tracejit.manual_seed(0)
    assert len(list(data.RandomSampler(range(5), num_samples=12))) == 12
    assert sorted(list(data.RandomSampler(range(5), num_samples=12))[:5]) == [0, 1, 2, 3, 4]
    drawn = list(data.RandomSampler(range(5), replacement=True, num_samples=200))
    assert set(drawn) == {0, 1, 2, 3, 4}
    assert sorted(data.SubsetRandomSampler([7, 3, 9])) == [3, 7, 9]
    weighted = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    assert 0 not in weighted
    assert weighted.count(2) == pytest.approx(3000, abs=120)
    assert sorted(data.WeightedRandomSampler([0.5, 1.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    seeded = [list(data.RandomSampler(range(20), generator=tracejit.Generator().manual_seed(3))) for _ in range(2)]
    assert seeded[0] == seeded[1]
    for wrong in (
        lambda: data.RandomSampler(range(5), num_samples=0), lambda: data.WeightedRandomSampler([1.0], -1),
        lambda: data.BatchSampler(range(5), 2, drop_last=1), lambda: data.WeightedRandomSampler([[1.0]], 1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="should be"):
            wrong()


def test_distributed_samplers_share_one_order() -> None:
    shares = [list(data.DistributedSampler(range(10), num_replicas=3, rank=r)) for r in range(3)]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert {i for share in shares for i in share} == set(range(10))
    sampler = data.DistributedSampler(range(10), num_replicas=2, rank=0, drop_last=True)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    with pytest.raises(ValueError, match="Invalid rank 2"):
        data.DistributedSampler(range(3), num_replicas=2, rank=2)
    with pytest.raises(ValueError, match="num_replicas and rank"):
        data.DistributedSampler(range(3))


class Counting(data.IterableDataset):
    def __init__(self, stop: int) -> None:
        self.stop = stop

    def __iter__(self) -> Any:
        return iter(range(self.stop))

    def __len__(self) -> int:
        return self.stop


def test_iterable_datasets_are_batched_and_chained() -> None:
    assert [b.tolist() for b in data.DataLoader(Counting(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in data.DataLoader(Counting(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert len(data.DataLoader(Counting(5), batch_size=2)) == 3
    chained = Counting(2) + Counting(3)
    assert list(chained) == [0, 1, 0, 1, 2]
    assert len(chained) == 5
    assert list(data.DataLoader(Counting(3), batch_size=None)) == [0, 1, 2]
    with pytest.raises(ValueError, match="sampler option, which the dataset decides"):
        data.DataLoader(Counting(5), sampler=[1])
    with pytest.raises(NotImplementedError, match="should implement __iter__"):
        iter(data.IterableDataset())


def test_datasets_are_stacked_by_position_or_by_name() -> None:
    assert data.StackDataset(Squares(), pairs(5))[2][0] == 4
    named = data.StackDataset(square=Squares(), pair=pairs(5))
    batch = next(iter(data.DataLoader(named, batch_size=3)))
    assert batch["square"].tolist() == [0, 1, 4]
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset(Squares(), pairs(3))


def test_many_items_are_taken_at_once_where_a_dataset_can() -> None:
    asked = []

    class Many(Squares):
        def __getitems__(self, positions: list[int]) -> list[int]:
            asked.append(list(positions))
            return [self[i] for i in positions]

    loader = data.DataLoader(data.Subset(Many(), [4, 2, 0]), batch_size=2)
    assert [b.tolist() for b in loader] == [[16, 4], [0]]
    assert asked == [[4, 2], [0]]


def test_single_items_are_converted_but_not_batched() -> None:
    arrays = [(np.ones(2), 3, "a"), (np.zeros(2), 4, "b")]
    items = list(data.DataLoader(arrays, batch_size=None))
    assert items[1][0].tolist() == [0.0, 0.0]
    assert items[1][1:] == [4, "b"]


def test_datasets_stand_where_torch_has_them() -> None:
    from tracejit.utils.data import DataLoader
    from tracejit.utils.data._utils.collate import default_collate
    from tracejit.utils.data.dataloader import DataLoader as Same
    from tracejit.utils.data.dataset import Dataset
    from tracejit.utils.data.distributed import DistributedSampler
    from tracejit.utils.data.sampler import BatchSampler

    assert DataLoader is Same is data.DataLoader
    assert (Dataset, BatchSampler) == (data.Dataset, data.BatchSampler)
    assert (default_collate, DistributedSampler) == (data.default_collate, data.DistributedSampler)


def loaders() -> tuple[data.DataLoader[Any], ...]:
    items = data.TensorDataset(tracejit.arange(30.0).reshape(10, 3), tracejit.arange(10))
    own = tracejit.Generator().manual_seed(3)
    return (
        data.DataLoader(items, batch_size=4, shuffle=True),
        data.DataLoader(items, batch_size=3),
        data.DataLoader(items, batch_size=5, shuffle=True, drop_last=True, generator=own),
        data.DataLoader(items, batch_size=4, sampler=data.WeightedRandomSampler([1.0] * 10, 6)),
    )


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("which", range(4))
def test_a_compiled_function_that_goes_through_a_loader_is_recorded_once(which: int, hot: int) -> None:
    def epoch(x: tracejit.Tensor, loader: Any) -> Any:
        found, total = [], 0.0
        for i, (a, b) in enumerate(loader):
            total += (a * x).sum().item()
            found.append((i, a * 2, b))
        return found, total / len(loader)

    def outcomes(fn: Any, loader: Any) -> list[str]:
        tracejit.manual_seed(0)
        return [str((fn(tracejit.ones(3) * i, loader), tracejit.rand(1))) for i in range(5)]

    with override(hot_calls=hot):
        compiled = tracejit.compile(epoch)
        assert outcomes(compiled, loaders()[which]) == outcomes(epoch, loaders()[which])
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 4), compiled.explain()


def test_a_list_of_positions_that_leave_indexes_as_the_tensor_of_them_does() -> None:
    table = tracejit.arange(12.0).reshape(6, 2)

    def fn(x: tracejit.Tensor, n: int) -> Any:
        order = tracejit.randperm(6).tolist()
        positions = x.long().tolist()
        return (
            table[order[:4]],
            table[order[::2]],
            table[positions],
            table[[positions[0], 1]],
            table[[n, 0, n + 1]],
            table[[-1, n]],
            order,
        )

    compiled = tracejit.compile(fn)
    for x, n in (([0.0, 1.0], 0), ([5.0, -6.0], 1), ([2.0, 2.0], 4), ([1.0, 0.0], 3)):
        tracejit.manual_seed(n)
        expected = fn(tracejit.tensor(x), n)
        tracejit.manual_seed(n)
        assert str(compiled(tracejit.tensor(x), n)) == str(expected)
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 3), compiled.explain()
    for x, n in (([6.0, 0.0], 0), ([0.0, 0.0], 5)):
        with pytest.raises(IndexError):
            compiled(tracejit.tensor(x), n)


def test_tensors_of_numbers_that_leave_are_parts_of_where_they_are_from() -> None:
    def fn(x: tracejit.Tensor) -> Any:
        values = (x * 2).tolist()
        back = (
            tracejit.tensor(values[1:]),
            tracejit.tensor(values[::-1], dtype=tracejit.float64),
            tracejit.tensor([values, values]),
        )
        return *back, tracejit.tensor(x.long().tolist()), tracejit.as_tensor([v for v in values if True])

    compiled = tracejit.compile(fn)
    for scale in (1.0, -3.5, 1e30):
        x = tracejit.tensor([0.1, -0.0, 2.5]) * scale if scale < 1e9 else tracejit.tensor([0.1, float("inf"), 2.5])
        if scale > 1e9:
            x = x.clamp(max=1e9)
        assert str(compiled(x)) == str(fn(x))
    assert compiled.stats.traces == 1, compiled.explain()
