"""Attention of long sequences, a block of queries at a time: no array of queries x keys is in memory.

A block sees all keys, so its softmax is that of whole rows.  What is kept for the backward pass is, beside operands and result, the
logarithm of the sum of each row's exponentials: the weights of a block are computed again from it, and gradients of keys and values
add up over the blocks (Dao, Fu, Ermon, Rudra, Re: FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness, 2022,
whose blocks are of keys, too).  Under a causal mask the queries are in `_PARTS` parts, each of which sees the keys up to its end.

The functions of this module are of arrays, of Tensors, and of values of a graph, in which the blocks, and the heads, are loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, bool_, int32
from tracejit.core.shapes import product, same
from tracejit.core.symbolic import concretise_sizes
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.composites.over_time import looped, zeros_beside
from tracejit.ops.creation import arange
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import exp, log
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat, pad
from tracejit.ops.movement.views import reshape, slice_
from tracejit.ops.reduce import amax, sum_
from tracejit.ops.samples import bools, cases, floats

__all__ = ["attention_in_blocks", "rows_of_block"]

_BYTES: Final = 1 << 20
"""Of the scores of a block: near enough to be read again soon, and enough for threads to share its products (docs/threads.md)."""
_FEWEST_ROWS: Final = 64
_LONG: Final = 1 << 22
"""Scores of all heads from which on blocks take no more time than all queries at once, though they compute weights twice ..."""
_LONG_CAUSAL: Final = 1 << 20
"""... and under a causal mask, where they leave out a good part of the scores."""
_PARTS: Final = 4
_MINUS_INFINITY: Final = float("-inf")


def rows_of_block(query: Any, key: Any, causal: bool) -> int:
    """How many queries are in a block; 0 where attention needs no blocks."""
    length, source = query.shape[-2], key.shape[-2]
    if product(query.shape[:-1]) * source < (_LONG_CAUSAL if causal else _LONG):
        return 0
    length, source = concretise_sizes((length, source))
    rows = max(_FEWEST_ROWS, 1 << (_BYTES // (source * key.itemsize)).bit_length() >> 1)
    return rows if length >= 2 * rows else 0


class _Span(NamedTuple):
    """Queries from start to stop, in blocks of `rows`, which see the keys up to `keys`."""

    start: int
    stop: int
    rows: int
    keys: int


def _spans(length: int, source: int, rows: int, causal: bool) -> Iterator[_Span]:
    whole = length // rows
    parts = min(_PARTS, whole) if causal else 1
    ends = [whole * (part + 1) // parts * rows for part in range(parts)]
    for start, stop in zip([0, *ends], ends):  # noqa: B905  (the last end begins nothing)
        yield _Span(start, stop, rows, min(stop, source) if causal else source)
    if length > ends[-1]:
        yield _Span(ends[-1], length, length - ends[-1], source)


def _part(x: Any, start: int, stop: int) -> Any:
    """Rows of a matrix."""
    return x if (start, stop) == (0, x.shape[0]) else slice_.of(x, dim=0, start=start, stop=stop, step=1)


def _blocks(x: Any, span: _Span) -> Any:
    """The rows of a span, [blocks, rows, ...]."""
    count = (span.stop - span.start) // span.rows
    return reshape.of(_part(x, span.start, span.stop), shape=(count, span.rows, *x.shape[1:]))


def _joined(parts: list[Any]) -> Any:
    """Blocks of spans as rows again."""
    rows = [reshape.of(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:])) for x in parts]
    return cat.of(*rows, dim=0) if len(rows) > 1 else rows[0]


class _Mask(NamedTuple):
    """What the queries of a head may see.  mask: bools or addends, [queries or 1, keys], or None.  positions: of the queries, int32
    [queries, 1], where position i sees positions up to i, else None."""

    mask: Any
    positions: Any

    @classmethod
    def of(cls, query: Any, mask: Any, causal: bool) -> _Mask:
        length = query.shape[-2]
        positions = reshape.of(arange.beside(query, 0, 1, length=length, dtype=int32), shape=(length, 1)) if causal else None
        return cls(mask, positions)

    def rows(self, span: _Span) -> list[Any]:
        """What each block of a span has of its own."""
        own = [self.positions] if self.positions is not None else []
        if self.mask is not None and self.mask.shape[0] > 1:
            own.append(self.columns(span))
        return [_blocks(x, span) for x in own]

    def shared(self, query: Any, span: _Span) -> list[Any]:
        """What all blocks of a span have in common."""
        found = []
        if self.positions is not None:
            found.append(arange.beside(query, 0, 1, length=span.keys, dtype=int32))
        if self.mask is not None and self.mask.shape[0] == 1:
            found.append(self.columns(span))
        return found

    def columns(self, span: _Span) -> Any:
        whole = span.keys == self.mask.shape[1]
        return self.mask if whole else slice_.of(self.mask, dim=1, start=0, stop=span.keys, step=1)

    def applied(self, scores: Any, rows: list[Any], shared: list[Any]) -> Any:
        """Scores of a block, -inf where a query may not see a key."""
        if self.positions is not None:
            scores = where.of(rows[0] >= shared[0], scores, _MINUS_INFINITY)
        if self.mask is not None:
            mask = (rows if self.mask.shape[0] > 1 else shared)[-1]
            is_bool = mask.dtype in (bool_, bool_.numpy)
            scores = where.of(mask, scores, _MINUS_INFINITY) if is_bool else scores + mask
        return scores


def _attended(query: Any, key: Any, value: Any, mask: _Mask, rows: int) -> list[Any]:
    """[result, logarithms of the sums of exponentials [queries, 1]] of one head; query: scaled."""

    def step(_: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        (query, *own), (key, value, *common) = slices, shared
        scores = mask.applied(matmul.of(query, transpose_matrix(key)), own, common)
        high = amax.of(scores, dims=(1,), keepdim=True)
        high = where.of(high == _MINUS_INFINITY, 0.0, high)
        weights = exp.of(scores - high)
        total = sum_.of(weights, dims=(1,), keepdim=True)
        total = where.of(total == 0.0, 1.0, total)
        return [], [matmul.of(weights, value) / total, high + log.of(total)]

    found: list[list[Any]] = []
    for span in _spans(query.shape[0], key.shape[0], rows, mask.positions is not None):
        shared = [_part(key, 0, span.keys), _part(value, 0, span.keys), *mask.shared(query, span)]
        found.append(looped(step, [], [_blocks(query, span), *mask.rows(span)], shared, False)[1])
    return [_joined(list(parts)) for parts in zip(*found, strict=True)]


def _gradients(
    query: Any, key: Any, value: Any, logarithm: Any, g: Any, expected: Any, mask: _Mask, rows: int, dtype: DType
) -> list[Any]:
    """Gradients of the scaled query, of key and of value of one head.  g: that of the result; expected: [queries, 1], what all gradients
    of the weights of a row have taken off them, times these weights, to give those of its scores."""

    def step(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        (g_key, g_value), (query, logarithm, g, expected, *own), (key, value, *common) = carried, slices, shared
        weights = exp.of(mask.applied(matmul.of(query, transpose_matrix(key)), own, common) - logarithm)
        g_scores = weights * (matmul.of(g, transpose_matrix(value)) - expected)
        on = [
            g_key + matmul.of(transpose_matrix(g_scores), query),
            g_value + matmul.of(transpose_matrix(weights), g),
        ]
        return on, [matmul.of(g_scores, key)]

    carried: list[Any] = []
    found: list[Any] = []
    for span in _spans(query.shape[0], key.shape[0], rows, mask.positions is not None):
        shapes = [(span.keys, x.shape[1]) for x in (key, value)]
        if carried:
            carried = [_lengthened(x, span.keys) for x in carried]
        else:
            carried = [zeros_beside(query, Aval(shape, dtype)) for shape in shapes]
        shared = [_part(key, 0, span.keys), _part(value, 0, span.keys), *mask.shared(query, span)]
        sliced = [*[_blocks(x, span) for x in (query, logarithm, g, expected)], *mask.rows(span)]
        carried, (part,) = looped(step, carried, sliced, shared, False)
        found.append(part)
    return [_joined(found), *[_lengthened(x, key.shape[0]) for x in carried]]


def _lengthened(x: Any, rows: int) -> Any:
    """A matrix with zeros below."""
    return x if x.shape[0] == rows else pad.of(x, 0.0, low=(0, 0), high=(rows - x.shape[0], 0))


def _by_head(x: Any) -> Any:
    """A batch of matrices, [heads, rows, columns]."""
    return reshape.of(x, shape=(product(x.shape[:-2]), *x.shape[-2:]))


def _over_heads(function: Any, operands: list[Any], mask: Any, causal: bool) -> list[Any]:
    """function(*operands of one head, mask of it), of all heads, stacked.  mask: [..., queries or 1, keys] or None."""
    query = operands[0]
    sliced = [_by_head(x) for x in operands]
    shared: list[Any] = []
    if mask is not None:
        own = product(mask.shape[:-2]) > 1
        (sliced if own else shared).append(_by_head(mask) if own else reshape.of(mask, shape=mask.shape[-2:]))

    def head(_: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        count = len(operands)
        (mask,) = (*slices[count:], *shared) or (None,)
        return [], function(*slices[:count], _Mask.of(slices[0], mask, causal))

    found = looped(head, [], sliced, shared, False)[1]
    return [reshape.of(x, shape=(*query.shape[:-2], *x.shape[1:])) for x in found]


def _rule(query: Aval, key: Aval, value: Aval, mask: Aval | None, scale: float, causal: bool, rows: int) -> tuple[Aval, Aval]:
    if (
        not same(query.shape[:-2], key.shape[:-2])
        or not same(key.shape[:-1], value.shape[:-1])
        or query.shape[-1] != key.shape[-1]
    ):
        raise RuntimeError(
            f"scaled_dot_product_attention(): shapes {list(query.shape)}, {list(key.shape)} and {list(value.shape)} do not fit: query and "
            "key need the same last size, key and value the same second-to-last one"
        )
    return Aval((*query.shape[:-1], value.shape[-1]), query.dtype), Aval((*query.shape[:-1], 1), query.dtype)


def _attention(query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, rows: int) -> tuple[Any, Any]:
    def head(query: Any, key: Any, value: Any, mask: _Mask) -> list[Any]:
        return _attended(query, key, value, mask, rows)

    out, logarithm = _over_heads(head, [query * scale, key, value], mask, causal)
    return out, logarithm


@composite(
    _rule,
    _attention,
    multiple=True,
    other=3,
    samples=cases(
        (floats(5, 2), floats(4, 2, seed=1), floats(4, 3, seed=2), None),
        (floats(3, 7, 2), floats(3, 7, 2, seed=1), floats(3, 7, 2, seed=2), None, {"causal": True}),
        (floats(2, 1, 6, 2), floats(2, 1, 4, 2, seed=1), floats(2, 1, 4, 3, seed=2), floats(1, 1, 6, 4, seed=3)),
        (floats(2, 4, 2), floats(2, 5, 2, seed=1), floats(2, 5, 2, seed=2), bools(2, 1, 5, seed=1), {"scale": -0.7, "causal": True}),
        scale=0.7, causal=False, rows=2,
    ),
)  # fmt: skip
def attention_in_blocks(query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool, rows: int) -> tuple[Any, Any]:
    """(softmax(query @ key.mT * scale + mask) @ value, the logarithm of the sum of each row's exponentials, [..., queries, 1]).

    query, key, value: with the same dimensions before the last two.  mask: None, or bools (True takes part) or addends, [..., queries or
    1, keys], with these dimensions, or with 1 of each.  causal: position i sees positions up to i.  What sees nothing has zeros.
    rows: queries of a block, at most as many as there are."""
    return _attention(query, key, value, mask, scale, causal, rows)


@attention_in_blocks.vjp(saves="0 1 2 3 out0 out1")
def _(c: Any, g: Any, g_logarithm: Any) -> Any:
    (query, key, value, mask), (out, logarithm), a = c.inputs, c.outputs, c.attributes
    if g is None:
        g = zeros_beside(out, Aval(out.shape, c.avals[0].dtype))
    expected = sum_.of(g * out, dims=(len(out.shape) - 1,), keepdim=True)
    if g_logarithm is not None:
        expected = expected - g_logarithm
    scaled = query * a["scale"]

    def head(query: Any, key: Any, value: Any, logarithm: Any, g: Any, expected: Any, mask: _Mask) -> list[Any]:
        return _gradients(query, key, value, logarithm, g, expected, mask, a["rows"], c.avals[0].dtype)

    g_query, g_key, g_value = _over_heads(head, [scaled, key, value, logarithm, g, expected], mask, a["causal"])
    g_mask = None
    if c.needs[3]:  # as large as the scores, so these may be, too
        scores = matmul.of(scaled, transpose_matrix(key))
        if a["causal"]:
            positions = _Mask.of(query, None, True).positions
            scores = where.of(positions >= arange.beside(query, 0, 1, length=key.shape[-2], dtype=int32), scores, _MINUS_INFINITY)
        weights = exp.of(scores + mask - logarithm)
        g_mask = sum_to(weights * (matmul.of(g, transpose_matrix(value)) - expected), c.avals[3].shape)
    return g_query * a["scale"], g_key, g_value, g_mask
