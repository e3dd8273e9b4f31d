"""A recording with symbolic sizes says what a recording of another size would have been."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from test_symbolic_paths import PROGRAMS, rows

import tracejit as T
from tracejit.capture.recording.symbolic_recording import SymbolicRecording
from tracejit.capture.session import record, tensors_among
from tracejit.core.shapes import filled_strides
from tracejit.nn import functional as F


def recorded(function: Callable[..., Any], args: tuple[Any, ...], dynamic: list[tuple[int, int]]) -> SymbolicRecording:
    recording, _ = record(function, args, {}, dynamic=dynamic)
    assert recording.reason is None, recording.reason
    return SymbolicRecording(recording, shapes(args), dynamic)


def shapes(args: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple([tuple(x.shape) for x in tensors_among(args, {})])


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_says_what_is_recorded_for_another_size(name: str) -> None:
    function = PROGRAMS[name]
    symbolic = recorded(function, rows(9), [(0, 0)])
    assert symbolic.is_general, symbolic.env.guards()
    said = 0
    for n in (5, 8, 13, 40):
        made, (other, _) = symbolic.at(((n, 4),)), record(function, rows(n), {})
        assert other.graph is not None
        if made is None:  # the branch
            assert name == "branch" and n % 2 == 0 and not symbolic.serves(((n, 4),))
            continue
        said += 1
        assert made.graph is not None and made.graph.equals(other.graph), n
        assert made.outputs == other.outputs and made.written_inputs == other.written_inputs
        assert symbolic.serves(((n, 4),))
        assert [f for f in made.facts if f.kind == "shape"] == [f for f in other.facts if f.kind == "shape"]
    assert said >= 2


def test_its_own_recording_is_the_one_without_symbolic_sizes() -> None:
    symbolic = recorded(lambda x: (x * x.shape[0]).mean(), rows(7), [(0, 0)])
    other, _ = record(lambda x: (x * x.shape[0]).mean(), rows(7), {})
    assert symbolic.plain.graph is not None and other.graph is not None
    assert symbolic.plain.graph.nodes[0].operands == other.graph.nodes[0].operands
    assert symbolic.plain.graph.avals == other.graph.avals and symbolic.plain.outputs == other.outputs
    assert all(type(n) is int for aval in symbolic.plain.graph.avals.values() for n in aval.shape)  # type: ignore[union-attr]


def test_it_stands_for_arguments_that_differ_in_its_variables_alone() -> None:
    symbolic = recorded(lambda x, y: x @ y, (T.ones(5, 4), T.ones(4, 3)), [(0, 0), (1, 1)])
    assert symbolic.fits(((9, 4), (4, 8))) and symbolic.fits(((5, 4), (4, 8)))
    for other in (((9, 5), (5, 8)), ((1, 4), (4, 8)), ((9, 4), (4, 0)), ((9, 4),), ((9, 4, 1), (4, 8))):
        assert not symbolic.fits(other) and symbolic.at(other) is None


def test_a_size_that_was_asked_for_is_one_size() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return x.sum(0) * len("a" * x.shape[0])

    symbolic = recorded(function, (T.ones(5, 4),), [(0, 0), (0, 1)])
    assert symbolic.is_general and symbolic.at(((5, 9),)) is not None and symbolic.at(((6, 4),)) is None
    assert symbolic.env.pins() == [f"x.shape[0] == 5 at {__file__}:{function.__code__.co_firstlineno + 1}"]
    assert not recorded(function, (T.ones(5, 4),), [(0, 0)]).is_general


def test_a_size_that_c_code_is_given_is_one_size() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return x * T.zeros(int.__index__(operator.index(x.shape[0])), 1).numel()

    symbolic = recorded(function, rows(9), [(0, 0)])
    assert not symbolic.is_general and symbolic.at(((5, 4),)) is None


def test_numbers_from_outside_are_guarded_where_they_are_sizes_and_operands_elsewhere() -> None:
    class Settings:
        heads, scale = 2, 0.5

    def function(x: T.Tensor) -> T.Tensor:
        return x.reshape(x.shape[0] * Settings.heads, -1) * (x.shape[0] * Settings.scale)

    symbolic = recorded(function, rows(6), [(0, 0)])
    assert symbolic.is_general
    made = symbolic.at(((10, 4),))
    assert made is not None and made.outputs[0].shape == (20, 2)
    assert len(made.scalar_inputs) == 1  # the product of a size and the scale


LAYOUTS: dict[str, Callable[[int, int], T.Tensor]] = {
    "rows": lambda n, m: T.rand(n, m),
    "columns": lambda n, m: T.rand(m, n).t(),
    "one in the middle": lambda n, m: T.rand(m, 1, n).permute(2, 1, 0),
    "one in front": lambda n, m: T.rand(1, n, m),
    "batches side by side": lambda n, m: T.rand(1, n, m, 2).permute(0, 3, 1, 2),
    "every second column": lambda n, m: T.rand(n, 2 * m)[:, ::2],
    "repeated": lambda n, m: T.rand(n, 1).expand(n, m),
}
OPERATIONS: dict[str, Callable[[T.Tensor], Any]] = {
    "sort": lambda x: (x.sort(0), x.argsort(-1, descending=True)),
    "topk": lambda x: (x.topk(1, 0), x.topk(1, -1, largest=False)),
    "kthvalue": lambda x: (x.kthvalue(1, 0, keepdim=True), x.median(-1, keepdim=True)),
    "where": lambda x: (
        T.where(x > 0.5, x, 0.0),
        T.where(x > 0.5, 1.0, x),
        T.where(x > 0.5, x, x * 2),
        x.masked_fill(x > 0.5, 2),
    ),
    "kinks": lambda x: (F.softplus(x), F.elu(x), F.threshold(x, 0.5, 1.0), F.smooth_l1_loss(x, x * 2, reduction="none")),
    "functions": lambda x: (x.sigmoid(), x.erf(), x.exp(), F.gelu(x), x.pow(1.3), x.tanh()),
    "reductions": lambda x: (x.sum(0, keepdim=True), x.mean(-1), x.var(0, keepdim=True), x.amax(-1, keepdim=True), x.norm(dim=0)),
    "softmax": lambda x: (x.softmax(0), x.log_softmax(-1), F.normalize(x, dim=0)),
    "running": lambda x: (x.cumsum(0), x.cumprod(-1), x.cummax(0), x.logcumsumexp(-1)),
    "distances": lambda x: T.cdist(x, x * 2),
    "products": lambda x: (x @ x.transpose(-1, -2), x.transpose(-1, -2) @ x),
    "movement": lambda x: (T.cat([x, x]), T.stack([x, x], -1), F.pad(x, (1, 1)), x.roll(1, 0), x.repeat_interleave(2, 0)),
    "indices": lambda x: (x[[0]], x.index_select(0, T.arange(len(x))), x.gather(0, T.zeros(x.shape, dtype=T.int64))),
    "quantile": lambda x: (x.quantile(0.3, dim=0, keepdim=True), x.quantile(T.tensor([0.1, 0.9]), dim=-1)),
}


def tensors_in(value: Any) -> list[T.Tensor]:
    return [value] if isinstance(value, T.Tensor) else [x for part in value for x in tensors_in(part)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_eager_results_lie_in_memory_alike_whatever_their_sizes(name: str) -> None:
    """A recording of one size says how results lie for others: in the same order of dimensions, those of one element among them."""
    for layout, make in LAYOUTS.items():
        first = tensors_in(OPERATIONS[name](make(3, 5)))
        for sizes in ((40, 6), (300, 9), (5, 300), (70, 90)):
            for a, b in zip(first, tensors_in(OPERATIONS[name](make(*sizes))), strict=True):
                expected = filled_strides(tuple(a.shape), a.stride(), tuple(b.shape))
                assert expected is None or a.shape.count(1) != b.shape.count(1) or expected == b.stride(), (layout, sizes)
