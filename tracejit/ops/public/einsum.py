"""einsum, as a composition of diagonals, sums and matrix products.  Operands are contracted from left to right."""

from __future__ import annotations

from typing import Any

from tracejit.core.interrupts import is_foreign
from tracejit.core.numbers import settled
from tracejit.core.shapes import broadcast_shapes, normalise_dim, product
from tracejit.core.symbolic import concretise_sizes
from tracejit.ops.movement import copies, views
from tracejit.ops.public.derive import public
from tracejit.ops.public.linalg import matmul
from tracejit.ops.reduce import sum_

_ELLIPSIS = "."  # stands for the broadcast dimensions while a term is parsed


def _labels(subscripts: list[Any]) -> list[Any]:
    return [_ELLIPSIS if s is Ellipsis else s for s in subscripts]


def _parse_term(text: str) -> list[Any]:
    dots = text.count("...")
    if dots > 1 or text.replace("...", "").count("."):
        raise RuntimeError(f"einsum(): invalid use of dots in {text!r}; an ellipsis is written '...', once per operand")
    labels = list(text.replace("...", _ELLIPSIS))
    for s in labels:
        if s != _ELLIPSIS and not (s.isascii() and s.isalpha()):
            raise RuntimeError(f"einsum(): invalid subscript {s!r} in {text!r}; subscripts are letters")
    return labels


def _parse(equation: str) -> tuple[list[list[Any]], list[Any] | None]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    return [_parse_term(t) for t in left.split(",")], _parse_term(right) if arrow else None


def _written(*terms: Any) -> str:
    """Subscripts as a text, each term behind a comma."""

    def label(s: Any) -> str:
        return "..." if s == _ELLIPSIS or isinstance(s, tuple) else str(s)

    return ", ".join("".join(map(label, term)) if isinstance(term, list) else label(term) for term in terms)


def _expand(labels: list[Any], x: Any, position: int) -> list[Any]:
    """One label per dimension; those under the ellipsis are numbered from the last one."""
    named = [s for s in labels if s != _ELLIPSIS]
    count = x.ndim - len(named)
    if count < 0 or (count and _ELLIPSIS not in labels):
        raise RuntimeError(
            f"einsum(): operand {position} has {x.ndim} dimensions, its subscripts {_written(named)} name {len(named)}; "
            "use '...' for others"
        )
    if _ELLIPSIS not in labels:
        return named
    i = labels.index(_ELLIPSIS)
    return [*labels[:i], *((_ELLIPSIS, k) for k in range(count, 0, -1)), *labels[i + 1 :]]


def _distinct(labels: list[Any], x: Any) -> tuple[list[Any], Any]:
    """Repeated labels of one operand become diagonals."""
    for s in list(labels):
        while labels.count(s) > 1:
            i = labels.index(s)
            j = labels.index(s, i + 1)
            if x.shape[i] != x.shape[j]:
                raise RuntimeError(
                    f"einsum(): subscript {s} is repeated for sizes {x.shape[i]} and {x.shape[j]}, which must be equal"
                )
            x = views.diagonal(x, offset=0, dim1=i, dim2=j)
            labels = [t for k, t in enumerate(labels) if k not in (i, j)] + [s]
    return labels, x


def _summed(labels: list[Any], x: Any, keep: set[Any]) -> tuple[list[Any], Any]:
    dims = tuple(i for i, s in enumerate(labels) if s not in keep)
    if not dims:
        return labels, x
    return [s for s in labels if s in keep], sum_(x, dims=dims, keepdim=False)


def _arranged(labels: list[Any], x: Any, groups: list[list[Any]], sizes: dict[Any, int]) -> Any:
    """The operand with one dimension per group of labels; absent labels have size 1 and are expanded in the last groups only."""
    order = [s for group in groups for s in group]
    x = views.permute(x, dims=tuple(labels.index(s) for s in order))
    shape = tuple(product(sizes[s] for s in group) for group in groups)
    return x if x._sizes == shape else views.reshape(copies.clone(x), shape=shape)


def _contract(a: list[Any], x: Any, b: list[Any], y: Any, keep: set[Any]) -> tuple[list[Any], Any]:
    a, x = _summed(a, x, keep | set(b))
    b, y = _summed(b, y, keep | set(a))
    size_a, size_b = dict(zip(a, x.shape, strict=True)), dict(zip(b, y.shape, strict=True))
    for s in list(a):
        if s in size_b and size_a[s] != size_b[s]:
            if 1 not in (size_a[s], size_b[s]):
                raise RuntimeError(f"einsum(): subscript {s} has size {size_a[s]} in one operand and {size_b[s]} in another")
            if size_a[s] == 1:
                a, x = [t for t in a if t != s], views.select(x, 0, dim=a.index(s))
            else:
                b, y = [t for t in b if t != s], views.select(y, 0, dim=b.index(s))
    shared = [s for s in a if s in b]
    batch = [s for s in shared if s in keep]
    inner = [s for s in shared if s not in keep]
    rows, columns = [s for s in a if s not in b], [s for s in b if s not in a]
    # a label of size 1 in one operand was dropped above: it may now be absent there and still be summed in the other
    rows_summed, columns_summed = [s for s in rows if s not in keep], [s for s in columns if s not in keep]
    if rows_summed or columns_summed:
        a, x = _summed(a, x, set(a) - set(rows_summed))
        b, y = _summed(b, y, set(b) - set(columns_summed))
        rows, columns = [s for s in rows if s in keep], [s for s in columns if s in keep]
    sizes = {**dict(zip(a, x.shape, strict=True)), **dict(zip(b, y.shape, strict=True))}
    out = batch + rows + columns
    shape = tuple(sizes[s] for s in out)
    if not inner:
        left = views.reshape(
            _arranged(a, x, [[s] for s in batch + rows], sizes), shape=tuple(sizes[s] for s in batch + rows) + (1,) * len(columns)
        )
        spread = tuple(sizes[s] for s in batch) + (1,) * len(rows) + tuple(sizes[s] for s in columns)
        return out, left * views.reshape(_arranged(b, y, [[s] for s in batch + columns], sizes), shape=spread)
    product_ = matmul(_arranged(a, x, [batch, rows, inner], sizes), _arranged(b, y, [batch, inner, columns], sizes))
    return out, views.reshape(product_, shape=shape)


@public(method=False)
def einsum(equation: Any, *operands: Any) -> Any:
    """Sum of products by Einstein's convention: einsum("ij,jk->ik", a, b), or einsum(a, [0, 1], b, [1, 2], [0, 2]).

    Without "->" the output has the subscripts that appear once, in alphabetical order.
    Raises RuntimeError for an equation that does not fit."""
    if not isinstance(equation, str):
        return _from_sublists((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = tuple(operands[0])
    terms, target = _parse(equation)
    return _evaluate(terms, target, operands)


def _from_sublists(items: tuple[Any, ...]) -> Any:
    tensors = list(items[: len(items) // 2 * 2 : 2])
    lists = [_labels(list(s)) for s in items[1::2]]
    target = _labels(list(items[-1])) if len(items) % 2 else None
    return _evaluate(lists, target, tuple(tensors))


def _evaluate(terms: list[list[Any]], target: list[Any] | None, operands: tuple[Any, ...]) -> Any:
    if len(terms) != len(operands) or not operands:
        raise RuntimeError(f"einsum(): the equation has {len(terms)} terms for {len(operands)} operands; expected one each")
    labelled = [_expand(labels, x, i) for i, (labels, x) in enumerate(zip(terms, operands, strict=True))]
    under = max((s[1] for labels in labelled for s in labels if isinstance(s, tuple)), default=0)
    dots = [(_ELLIPSIS, k) for k in range(under, 0, -1)]
    named = [s for term in terms for s in term if s != _ELLIPSIS]
    if target is None:
        out = [*dots, *sorted(s for s in set(named) if named.count(s) == 1)]
    else:
        out = [t for s in target for t in (dots if s == _ELLIPSIS else [s])]
        for s in out:
            if out.count(s) > 1:
                raise RuntimeError(
                    f"einsum(): output subscript {_written(s)} appears more than once in the output {_written(out)}"
                )
            if not isinstance(s, tuple) and s not in named:
                raise RuntimeError(
                    f"einsum(): output subscript {_written(s)} does not appear in the equation for any operand: {_written(*terms)}"
                )
    reduced = [_distinct(labels, x) for labels, x in zip(labelled, operands, strict=True)]
    sizes: dict[Any, int] = {}
    for i, (labels, x) in enumerate(reduced):
        for s, n in zip(labels, x.shape, strict=True):
            try:
                (sizes[s],) = broadcast_shapes("einsum", (sizes.get(s, 1),), (n,))
            except RuntimeError as error:
                if is_foreign(error):
                    raise
                raise RuntimeError(
                    f"einsum(): subscript {_written(s)} has size {n} for operand {i}, which does not broadcast with size {sizes[s]} "
                    "of one before"
                ) from None
    labels, x = reduced[0]
    for i in range(1, len(reduced)):
        later = {s for rest, _ in reduced[i + 1 :] for s in rest}
        labels, x = _contract(labels, x, *reduced[i], keep=set(out) | later)
    labels, x = _summed(labels, x, set(out))
    missing = [s for s in out if s not in labels]
    x = views.permute(
        views.reshape(x, shape=(*x.shape, *(1,) * len(missing))), dims=tuple([*labels, *missing].index(s) for s in out)
    )
    shape = tuple(sizes[s] for s in out)
    return x if x._sizes == shape else views.expand(x, shape=shape)


@public(method=False)
def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Contraction of the last `dims` dimensions of `a` with the first of `b`, or of two lists of dimensions."""
    dims = settled(dims)
    if isinstance(dims, int):
        dims = concretise_sizes(dims)  # which dimensions these are decides all else
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in map(settled, dims))
        left = [normalise_dim("tensordot", d, a.ndim) for d in left]
        right = [normalise_dim("tensordot", d, b.ndim) for d in right]
    if len(left) != len(right):
        raise RuntimeError(f"tensordot(): expected as many dimensions of a as of b, got {len(left)} and {len(right)}")
    names_a = list(range(a.ndim))
    names_b = list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(left, right, strict=True):
        names_b[j] = names_a[i]
    out = [s for k, s in enumerate(names_a) if k not in [i % a.ndim for i in left]] + [s for s in names_b if s >= a.ndim]
    return _evaluate([names_a, names_b], out, (a, b))
