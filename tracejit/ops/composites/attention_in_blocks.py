"""Attention of long sequences, a block of queries and a block of keys at a time: no array of queries x keys of floating point is in memory.

The largest score of a row and the sum of its exponentials are carried from block to block of keys, and what was added up before is
multiplied by what the largest score has changed (Milakov & Gimelshein: Online normalizer calculation for softmax, 2018).  What is kept
for the backward pass is, beside operands and result, the logarithm of the sum of each row's exponentials: the weights of a block are
computed again from it, and gradients add up over the blocks (Dao, Fu, Ermon, Rudra, Re: FlashAttention: Fast and Memory-Efficient Exact
Attention with IO-Awareness, 2022).  A block and what is computed of it are in near memory at the same time.

Under a causal mask the queries are in `_PARTS` parts, each of which sees the keys up to its end; in the backward pass the keys are, and
queries before them are left out.  Dropout is drawn for all weights at once, as of attention without blocks: one byte for each is in memory.

The functions of this module are of arrays, of Tensors, and of values of a graph, in which the blocks, and the heads, are loops.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, bool_, from_numpy_dtype, int32
from tracejit.core.shapes import product, same
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.composites.over_time import filled_beside, looped
from tracejit.ops.creation import arange
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.comparison import maximum, where
from tracejit.ops.elementwise.mathematics import exp, log
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat, clone, pad
from tracejit.ops.movement.views import permute, reshape, slice_
from tracejit.ops.reduce import amax, sum_
from tracejit.ops.samples import bools, cases, floats

__all__ = ["attention_gradients", "attention_in_blocks"]

_KEYS: Final = 2
"""Times as many keys as queries are in a block."""
_PARTS: Final = 16
_MINUS_INFINITY: Final = float("-inf")


class _Span(NamedTuple):
    """Rows of a matrix from start to stop, in blocks of `size`."""

    start: int
    stop: int
    size: int

    @property
    def blocks(self) -> int:
        return (self.stop - self.start) // self.size


def _spans(stop: int, size: int, parts: int = 1) -> list[_Span]:
    """Rows up to `stop` in blocks of a size, in at most so many parts; what is left over is a block of its own."""
    whole = stop // size
    parts = min(parts, whole)
    ends = [whole * (part + 1) // parts * size for part in range(parts)]
    found = [_Span(start, end, size) for start, end in zip([0, *ends], ends)]  # noqa: B905  (the last end begins nothing)
    last = ends[-1] if ends else 0
    return [*found, _Span(last, stop, stop - last)] if stop > last else found


def _part(x: Any, start: int, stop: int, dim: int = 0) -> Any:
    """Rows of a matrix, or columns."""
    return x if (start, stop) == (0, x.shape[dim]) else slice_.of(x, dim=dim, start=start, stop=stop, step=1)


def _blocks(x: Any, span: _Span) -> Any:
    """The rows of a span, [blocks, size, ...]."""
    return reshape.of(_part(x, span.start, span.stop), shape=(span.blocks, span.size, *x.shape[1:]))


def _column_blocks(x: Any, span: _Span) -> Any:
    """The columns of a span, [blocks, rows, size]."""
    columns = _part(x, span.start, span.stop, 1)
    return permute.of(reshape.of(columns, shape=(x.shape[0], span.blocks, span.size)), dims=(1, 0, 2))


def _transposed_blocks(x: Any, span: _Span) -> Any:
    """The blocks of rows of a span, each transposed and in order: once, since products of all other blocks read them so."""
    return clone.of(permute.of(_blocks(x, span), dims=(0, 2, 1)))


def _in_rows(x: Any) -> Any:
    """Blocks as rows again."""
    return reshape.of(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:]))


def _joined(parts: list[Any]) -> Any:
    return cat.of(*parts, dim=0) if len(parts) > 1 else parts[0]


class _Mask(NamedTuple):
    """What queries see of keys, and which weights dropout leaves: lists of matrices, in the order of these fields where there are any.

    positions: of queries, int32 [queries, 1]; columns: of keys, [1, keys]: position i sees positions up to i.  mask: bools or addends,
    [1 or queries, keys].  kept: bools, [queries, keys], of the weights that dropout leaves, times `factor`.  strict: what sees nothing has
    NaN."""

    positions: Any = None
    columns: Any = None
    mask: Any = None
    kept: Any = None
    factor: float = 1.0
    strict: bool = False

    @classmethod
    def of(cls, query: Any, key: Any, mask: Any, kept: Any, causal: bool, rate: float, strict: bool) -> _Mask:
        """That of all queries and keys of a head."""
        length, source = query.shape[-2], key.shape[-2]
        positions = columns = None
        if causal:
            positions = reshape.of(arange.beside(query, 0, 1, length=length, dtype=int32), shape=(length, 1))
            columns = reshape.of(arange.beside(query, 0, 1, length=source, dtype=int32), shape=(1, source))
        return cls(positions, columns, mask, kept, 1.0 / (1.0 - rate) if rate < 1.0 else 0.0, strict)

    @property
    def _is_bool(self) -> bool:
        return self.mask.dtype in (bool_, bool_.numpy)

    @property
    def _is_row(self) -> bool:
        return self.mask is not None and self.mask.shape[0] == 1

    def of_queries(self) -> list[Any]:
        """What each query has of its own, whatever the key."""
        return [] if self.positions is None else [self.positions]

    def of_keys(self) -> list[Any]:
        """What each key has of its own, whatever the query."""
        return [x for x in (self.columns, self.mask if self._is_row else None) if x is not None]

    def of_pairs(self) -> list[Any]:
        """What each query has for each key."""
        return [x for x in (None if self._is_row else self.mask, self.kept) if x is not None]

    def block(self, of_queries: list[Any], of_keys: list[Any], of_pairs: list[Any]) -> _Mask:
        """That of some queries and keys, which have these of their own."""
        of_keys, of_pairs = [*of_keys], [*of_pairs]
        kept = of_pairs.pop() if self.kept is not None else None
        columns = of_keys.pop(0) if self.columns is not None else None
        (positions,), (mask,) = of_queries or (None,), (*of_keys, *of_pairs) or (None,)
        return _Mask(positions, columns, mask, kept, self.factor, self.strict)

    def applied(self, scores: Any) -> Any:
        """Scores, -inf where a query may not see a key."""
        if self.positions is not None:
            scores = where.of(self.positions >= self.columns, scores, _MINUS_INFINITY)
        if self.mask is not None:
            scores = where.of(self.mask, scores, _MINUS_INFINITY) if self._is_bool else scores + self.mask
        return scores

    def seen(self, g_scores: Any) -> Any:
        """Gradients of scores: there are none where a mask has chosen -inf, not even where weights are NaN."""
        return where.of(self.mask, g_scores, 0.0) if self.strict and self.mask is not None and self._is_bool else g_scores

    def dropped(self, x: Any) -> Any:
        """Weights, or their gradients, with dropout."""
        return x if self.kept is None else where.of(self.kept, x * self.factor, 0.0)


def _attended(query: Any, key: Any, value: Any, mask: _Mask, rows: int, dtype: DType) -> list[Any]:
    """[result, logarithms of the sums of exponentials [queries, 1]] of one head; query: scaled."""
    causal, width, more = mask.positions is not None, len(mask.of_keys()), len(mask.of_queries())
    whole = [
        (span, [_transposed_blocks(key, span), _blocks(value, span), *[_column_blocks(x, span) for x in mask.of_keys()]])
        for span in _spans(key.shape[0], _KEYS * rows)
    ]

    def of_keys(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        """A block of keys, for a block of queries."""
        (out, high, total), (turned, value, *own), (query, *of_queries) = carried, slices, shared
        block = mask.block(of_queries, own[:width], own[width:])
        scores = block.applied(matmul.of(query, turned))
        now = maximum.of(high, amax.of(scores, dims=(1,), keepdim=True))
        shift = where.of(now == _MINUS_INFINITY, 0.0, now)
        weights, before = exp.of(scores - shift), exp.of(high - shift)
        total = total * before + sum_.of(weights, dims=(1,), keepdim=True)
        return [out * before + matmul.of(block.dropped(weights), value), now, total], []

    found: list[list[Any]] = []
    for span in _spans(query.shape[0], rows, _PARTS if causal else 1):
        spans: list[_Span] = []
        given: list[Any] = []
        for of_span, parts in whole:
            # the blocks of keys of which these queries see some
            seen = min(-(-(span.stop - of_span.start) // of_span.size), of_span.blocks) if causal else of_span.blocks
            if seen > 0:
                spans.append(_Span(of_span.start, of_span.start + seen * of_span.size, of_span.size))
                given += [_part(x, 0, seen) for x in parts]

        def of_queries(
            _: list[Any], slices: list[Any], shared: list[Any], spans: list[_Span] = spans
        ) -> tuple[list[Any], list[Any]]:
            """A block of queries."""
            (query, *own), count = slices, len(shared) // len(spans)
            shapes = (query.shape[0], shared[1].shape[2]), (query.shape[0], 1)
            carried = [
                filled_beside(query, Aval(shapes[0], dtype), 0.0),
                *[filled_beside(query, Aval(shapes[1], dtype), x) for x in (_MINUS_INFINITY, 0.0)],
            ]
            for k, span in enumerate(spans):
                sliced = [*shared[k * count : (k + 1) * count], *[_column_blocks(x, span) for x in own[more:]]]
                carried, _ = looped(of_keys, carried, sliced, [query, *own[:more]], False)
            out, high, total = carried
            if not mask.strict:
                total = where.of(total == 0.0, 1.0, total)
            return [], [out / total, where.of(high == _MINUS_INFINITY, 0.0, high) + log.of(total)]

        sliced = [_blocks(x, span) for x in (query, *mask.of_queries(), *mask.of_pairs())]
        found.append([_in_rows(x) for x in looped(of_queries, [], sliced, given, False)[1]])
    return [_joined(list(parts)) for parts in zip(*found, strict=True)]


def _gradients(
    query: Any, key: Any, value: Any, logarithm: Any, g: Any, expected: Any, mask: _Mask, rows: int, dtype: DType
) -> list[Any]:
    """Gradients of the scaled query, of key and of value of one head.  g: that of the result; expected: [queries, 1], what all gradients
    of the weights of a row have taken off them, times these weights, to give those of its scores."""
    causal, width, more = mask.positions is not None, len(mask.of_keys()), len(mask.of_queries())
    length, source = query.shape[0], key.shape[0]

    def of_queries(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        """A block of queries, for a block of keys."""
        (g_key, g_value), (query, logarithm, g, expected, g_query, *own) = carried, slices
        key, turned, turned_value, *of_keys = shared
        block = mask.block(own[:more], of_keys, own[more:])
        weights = exp.of(block.applied(matmul.of(query, turned)) - logarithm)
        g_scores = block.seen(weights * (block.dropped(matmul.of(g, turned_value)) - expected))
        on = [
            g_key + matmul.of(transpose_matrix(g_scores), query),
            g_value + matmul.of(transpose_matrix(block.dropped(weights)), g),
        ]
        return on, [g_query + matmul.of(g_scores, key)]

    def of_keys(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        """A block of keys."""
        (g_query,), own, columns = carried, slices[: 3 + width], slices[3 + width :]
        sums = [
            filled_beside(g_query, Aval((own[0].shape[0], x.shape[0 if k else 1]), dtype), 0.0)
            for k, x in enumerate((own[0], own[2]))
        ]
        given = [*shared[:4], g_query, *shared[4:], *columns]
        found: list[Any] = []
        for span in _spans(g_query.shape[0], rows):
            sums, (part,) = looped(of_queries, sums, [_blocks(x, span) for x in given], own, False)
            found.append(_in_rows(part))
        return [_joined(found)], sums

    seen = min(source, length) if causal else source
    g_query = None
    found: list[list[Any]] = []
    for span in reversed(_spans(seen, _KEYS * rows, _PARTS if causal else 1)):
        first = span.start if causal else 0  # queries before see nothing of it
        if g_query is None:
            g_query = filled_beside(query, Aval((length - first, query.shape[1]), dtype), 0.0)
        elif g_query.shape[0] < length - first:
            g_query = pad.of(g_query, 0.0, low=(length - first - g_query.shape[0], 0), high=(0, 0))
        own = [
            _blocks(key, span),
            _transposed_blocks(key, span),
            _transposed_blocks(value, span),
            *[_column_blocks(x, span) for x in mask.of_keys()],
        ]
        columns = [_column_blocks(_part(x, first, length), span) for x in mask.of_pairs()]
        shared = [_part(x, first, length) for x in (query, logarithm, g, expected, *mask.of_queries())]
        (g_query,), sums = looped(of_keys, [g_query], [*own, *columns], shared, False)
        found.append([_in_rows(x) for x in sums])
    g_key, g_value = (_joined(list(parts)) for parts in zip(*reversed(found), strict=True))
    return [g_query, *[_lengthened(x, source) for x in (g_key, g_value)]]


def _lengthened(x: Any, rows: int) -> Any:
    """A matrix with zeros below."""
    return x if x.shape[0] == rows else pad.of(x, 0.0, low=(0, 0), high=(rows - x.shape[0], 0))


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x.dtype, DType) else from_numpy_dtype(x.dtype)


def _by_head(x: Any) -> Any:
    """A batch of matrices, [heads, rows, columns]."""
    return reshape.of(x, shape=(product(x.shape[:-2]), *x.shape[-2:]))


def _over_heads(function: Any, operands: list[Any], mask: Any, kept: Any, causal: bool, rate: float, strict: bool) -> list[Any]:
    """function(*operands of one head, mask of it), of all heads, stacked.  mask: [..., queries or 1, keys] or None.  kept: [..., queries,
    keys] or None."""
    query, count = operands[0], len(operands)
    sliced = [_by_head(x) for x in operands]
    shared: list[Any] = []
    if kept is not None:
        sliced.append(_by_head(kept))
    own = mask is not None and product(mask.shape[:-2]) > 1
    if mask is not None:
        (sliced if own else shared).append(_by_head(mask) if own else reshape.of(mask, shape=mask.shape[-2:]))

    def head(_: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        (*more,) = slices[count:]
        kept_here = more.pop(0) if kept is not None else None
        (mask,) = (*more, *shared) or (None,)
        return [], function(*slices[:count], _Mask.of(slices[0], slices[1], mask, kept_here, causal, rate, strict))

    found = looped(head, [], sliced, shared, False)[1]
    return [reshape.of(x, shape=(*query.shape[:-2], *x.shape[1:])) for x in found]


def _rule(
    query: Aval,
    key: Aval,
    value: Aval,
    mask: Aval | None,
    kept: Aval | None,
    scale: float,
    causal: bool,
    rows: int,
    rate: float,
    strict: bool,
) -> tuple[Aval, Aval]:
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


def _attention(
    query: Any, key: Any, value: Any, mask: Any, kept: Any, scale: float, causal: bool, rows: int, rate: float, strict: bool
) -> tuple[Any, Any]:
    dtype = _dtype_of(query)

    def head(query: Any, key: Any, value: Any, mask: _Mask) -> list[Any]:
        return _attended(query, key, value, mask, rows, dtype)

    out, logarithm = _over_heads(head, [query * scale, key, value], mask, kept, causal, rate, strict)
    return out, logarithm


def _samples(*more: Any) -> Any:
    """Operands, with more of them after key, value, mask and kept for queries and values of these shapes."""
    rows: tuple[tuple[Any, ...], ...] = (
        ((5, 2), (4, 2), (4, 3), None, None, {}),
        ((3, 7, 2), (3, 7, 2), (3, 7, 2), None, None, {"causal": True}),
        ((2, 1, 6, 2), (2, 1, 4, 2), (2, 1, 4, 3), floats(1, 1, 6, 4, seed=3), None, {}),
        ((2, 4, 2), (2, 5, 2), (2, 5, 2), bools(2, 1, 5, seed=1), None, {"scale": -0.7, "causal": True}),
        ((2, 4, 2), (2, 5, 2), (2, 5, 3), bools(2, 1, 5, seed=1), bools(2, 4, 5, seed=2), {"rate": 0.5}),
    )
    found = []
    for query, key, value, mask, kept, given in rows:
        operands = [floats(*query), floats(*key, seed=1), floats(*value, seed=2), mask, kept]
        operands += [floats(*query[:-1], value[-1] if last else 1, seed=4 + k) for k, last in enumerate(more)]
        found.append((*operands, given) if given else tuple(operands))
    return cases(*found, scale=0.7, causal=False, rows=2, rate=0.0, strict=False)


@composite(_rule, _attention, multiple=True, other=(3, 4), samples=_samples())
def attention_in_blocks(
    query: Any, key: Any, value: Any, mask: Any, kept: Any, scale: float, causal: bool, rows: int, rate: float, strict: bool
) -> tuple[Any, Any]:
    """(dropout(softmax(query @ key.mT * scale + mask)) @ value, the logarithm of the sum of each row's exponentials, [..., queries, 1]).

    query, key, value: with the same dimensions before the last two.  mask: None, or bools (True takes part) or addends, [..., queries or
    1, keys], with these dimensions, or with 1 of each.  kept: None, or bools, [..., queries, keys]: the weights that dropout of
    probability `rate` leaves.  causal: position i sees positions up to i.  What sees nothing has zeros, or
    NaN if `strict`.  rows: queries of a block, at most as many as there are."""
    return _attention(query, key, value, mask, kept, scale, causal, rows, rate, strict)


@attention_in_blocks.vjp(saves="0 1 2 3 4 out0 out1")
def _(c: Any, g: Any, g_logarithm: Any) -> Any:
    (query, key, value, mask, kept), (out, logarithm), a = c.inputs, c.outputs, c.attributes
    if g is None:
        g = filled_beside(out, Aval(out.shape, c.avals[0].dtype), 0.0)
    expected = sum_.of(g * out, dims=(len(out.shape) - 1,), keepdim=True)
    if g_logarithm is not None:
        expected = expected - g_logarithm
    g_query, g_key, g_value = attention_gradients.of(query, key, value, mask, kept, g, logarithm, expected, **a)
    g_mask = None
    if c.needs[3]:  # as large as the scores, so these may be, too
        w = _at_once(query, key, value, mask, kept, g, logarithm, expected, **a)
        g_mask = sum_to(w.g_scores, c.avals[3].shape)
    return g_query, g_key, g_value, g_mask, None


class _AtOnce(NamedTuple):
    """Of all scores.  through: gradients of the weights less what is expected."""

    mask: _Mask
    weights: Any
    through: Any
    g_scores: Any


def _at_once(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    kept: Any,
    g: Any,
    logarithm: Any,
    expected: Any,
    scale: float,
    causal: bool,
    rows: int,
    rate: float,
    strict: bool,
) -> _AtOnce:
    """What gradients in blocks compute for each block, of all queries: for what is as large as the scores."""
    whole = _Mask.of(query, key, mask, kept, causal, rate, strict)
    scores = whole.applied(matmul.of(query * scale, transpose_matrix(key)))
    weights = exp.of(scores - logarithm)
    through = whole.dropped(matmul.of(g, transpose_matrix(value))) - expected
    return _AtOnce(whole, weights, through, whole.seen(weights * through))


def _gradients_rule(query: Aval, key: Aval, value: Aval, *_: Any, **attributes: Any) -> tuple[Aval, Aval, Aval]:
    return query, key, value


def _all_gradients(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    kept: Any,
    g: Any,
    logarithm: Any,
    expected: Any,
    scale: float,
    causal: bool,
    rows: int,
    rate: float,
    strict: bool,
) -> tuple[Any, Any, Any]:
    """Gradients of query, key and value of attention_in_blocks, in such blocks.

    g: that of its first result.  logarithm: its second.  expected: [..., queries, 1], what is taken off the gradients of the weights of a
    row: their sum, each times its weight, less the gradient of the second result."""
    dtype = _dtype_of(query)

    def head(query: Any, key: Any, value: Any, logarithm: Any, g: Any, expected: Any, mask: _Mask) -> list[Any]:
        return _gradients(query, key, value, logarithm, g, expected, mask, rows, dtype)

    operands = [query * scale, key, value, logarithm, g, expected]
    g_query, g_key, g_value = _over_heads(head, operands, mask, kept, causal, rate, strict)
    return g_query * scale, g_key, g_value


attention_gradients: Final = composite(
    _gradients_rule, _all_gradients, name="attention_gradients", multiple=True, other=(3, 4), samples=_samples(True, False, False)
)(_all_gradients)


@attention_gradients.vjp(saves="0 1 2 3 4 5 6 7")
def _(c: Any, of_query: Any, of_key: Any, of_value: Any) -> Any:
    query, key, value, _, _, g, *_ = c.inputs
    scale, last = c.attributes["scale"], (len(query.shape) - 1,)
    w = _at_once(*c.inputs, **c.attributes)
    of_query, of_key, of_value = (
        filled_beside(query, aval, 0.0) if x is None else x
        for x, aval in zip((of_query, of_key, of_value), c.avals[:3], strict=True)
    )
    # The gradient of query is g_scores @ key, that of key g_scores.mT @ query, that of value weights.mT @ g.
    of_scores = (matmul.of(of_query, transpose_matrix(key)) + matmul.of(query, transpose_matrix(of_key))) * scale
    of_through = of_scores * w.weights
    of_weights = of_scores * w.through + w.mask.dropped(matmul.of(g, transpose_matrix(of_value)))
    of_exponents = of_weights * w.weights
    dropped_weights, of_products = w.mask.dropped(w.weights), w.mask.dropped(of_through)
    return (
        (matmul.of(of_exponents, key) + matmul.of(w.g_scores, of_key)) * scale,
        (matmul.of(transpose_matrix(of_exponents), query) + matmul.of(transpose_matrix(w.g_scores), of_query)) * scale,
        matmul.of(transpose_matrix(of_products), g),
        sum_to(of_exponents, c.avals[3].shape) if c.needs[3] else None,
        None,
        matmul.of(of_products, value) + matmul.of(dropped_weights, of_value),
        -sum_.of(of_exponents, dims=last, keepdim=True),
        -sum_.of(of_through, dims=last, keepdim=True),
    )
