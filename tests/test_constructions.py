"""Tensors that a call makes of arrays, or of lists with some: each call makes them of what these hold then, whichever function does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn
from tracejit.capture.handlers.constructions import construction
from tracejit.config import override

CALLS = 10


def objects() -> SimpleNamespace:
    """Objects with arrays, as a program keeps them in attributes."""
    memory = np.arange(3.0)
    fixed = memory[:]
    fixed.flags.writeable = False
    return SimpleNamespace(
        row=np.arange(3, dtype="f4"), offsets=np.array((0, 3, 5)), memory=memory, fixed=fixed, swapped=np.arange(3).astype(">f8"),
        rows=[np.ones(3, "f4"), np.zeros(3, "f4")], positions=[0, 1, 2],
    )  # fmt: skip


def change(o: SimpleNamespace, n: int) -> None:
    """What happens between two calls."""
    o.row[n % 3] += n
    o.offsets = o.offsets + 1
    o.memory[0] = n
    o.rows[n % 2][1] = n
    if n == 5:
        o.rows, o.row = [o.rows[1], o.rows[0].copy()], o.row.copy()


def gradient(o: SimpleNamespace, x: T.Tensor) -> Any:
    leaf = x.new_tensor(o.rows, requires_grad=True)
    (leaf * leaf * x).sum().backward()
    return leaf.grad


def changed_afterwards(o: SimpleNamespace, x: T.Tensor) -> Any:
    copy = T.tensor(o.fixed)
    copy += 1
    return copy, T.tensor(o.fixed) * x


PROGRAMS: dict[str, Callable[[SimpleNamespace, T.Tensor], Any]] = {
    "new_tensor of integers": lambda o, x: x + x.new_tensor(o.offsets).unsqueeze(0),
    "new_tensor with options": lambda o, x: x + x.new_tensor(o.row, dtype=T.float64, device=x.device),
    "new": lambda o, x: x + x.new(o.row),
    "tensor on a device": lambda o, x: x + T.tensor(o.row, device="cpu"),
    "as_tensor on a device, dtype by position": lambda o, x: x + T.as_tensor(o.offsets, T.float32, x.device),
    "asarray": lambda o, x: x + T.asarray(o.row) + T.asarray(o.offsets, copy=True),
    "an array that is read-only": lambda o, x: x + T.tensor(o.fixed) + T.as_tensor(o.fixed),
    "bytes in another order": lambda o, x: x + T.tensor(o.swapped, dtype=T.float32),
    "a list of arrays": lambda o, x: x + T.tensor(o.rows).sum(0),
    "arrays and numbers in tuples": lambda o, x: x.new_tensor((o.row, o.rows[1] * 2, [1, 2, 3.5])) * x,
    "numbers that NumPy puts together": lambda o, x: x + T.tensor(np.array(o.rows)).mean(0),
    "numbers on a device": lambda o, x: x + x.new_tensor([o.row[0].item(), 2.0, len(o.rows)], device=x.device),
    "a gradient": gradient,
    "changed afterwards": changed_afterwards,
}


def facts(value: Any) -> Any:
    return [facts(v) for v in value] if isinstance(value, tuple) else (value.tolist(), value.dtype, value.requires_grad)


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tensor_is_made_of_what_arrays_hold_in_each_call(name: str, hot: int) -> None:
    program, ours, theirs = PROGRAMS[name], objects(), objects()
    with override(hot_calls=hot):
        compiled = T.compile(program)
        for n in range(CALLS):
            change(ours, n)
            change(theirs, n)
            x = T.linspace(-1, n, 3)
            assert facts(compiled(ours, x)) == facts(program(theirs, x))
    assert compiled.stats.traces <= 2 and compiled.stats.compiled_calls >= CALLS - 2, compiled.explain()


def test_an_embedding_with_offsets_in_an_array_stays_compiled() -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 2)
            self.offsets = np.array((0, *np.cumsum([3, 2])), dtype=np.int64)

        def forward(self, x: T.Tensor) -> T.Tensor:
            return self.embedding(x + x.new_tensor(self.offsets).unsqueeze(0)).sum(1)

    model = Features()
    compiled = T.compile(model)
    for _ in range(4):
        x = T.randint(2, (4, 3))
        assert T.equal(compiled(x), model(x))
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 3, compiled.explain()


def test_an_array_that_can_be_written_to_from_now_on_shares_its_memory() -> None:
    compiled = T.compile(lambda o: T.as_tensor(o.array).add_(1))
    array = np.zeros(3)
    view = array[:]
    view.flags.writeable = False
    for given, after in ((view, 0.0), (view, 0.0), (array, 1.0), (view, 1.0)):
        compiled(SimpleNamespace(array=given))
        assert array.tolist() == [after] * 3


def test_what_an_array_holds_after_the_call_has_written_to_it_is_read_in_order() -> None:
    def program(o: SimpleNamespace) -> T.Tensor:
        T.from_numpy(o.memory).add_(1)
        return T.tensor(o.fixed)

    compiled, o = T.compile(program), objects()
    for n in range(3):
        assert compiled(o).tolist() == [n + 1.0, n + 2.0, n + 3.0]


def test_calls_that_are_refused_or_have_more_to_say_are_left_as_they_are() -> None:
    x = T.ones(2)
    assert construction(T.tensor, ([1],), {"device": "cpu"}) == (T.tensor, [1], {})
    assert construction(T.tensor, (), {"data": 1, "dtype": T.int64}) == (T.tensor, 1, {"dtype": T.int64})
    assert construction(T.Tensor.new_tensor, (x, [1]), {}) == (T.tensor, [1], {"dtype": T.float32})
    for function, arguments, keywords in (
        (T.tensor, ([1],), {"device": "cuda"}),
        (T.tensor, ([1],), {"pin_memory": True}),
        (T.tensor, ([1], T.int64), {}),
        (T.as_tensor, ([1],), {"requires_grad": True}),
        (T.asarray, ([1],), {"copy": False}),
        (T.Tensor.new_tensor, ([1], [1]), {}),
        (T.ones, (2,), {}),
    ):
        assert construction(function, arguments, keywords) is None
