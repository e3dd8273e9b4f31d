"""Public functions reject what PyTorch rejects, with its error types and with messages that name the operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracejit as t
import tracejit.nn.functional

x = t.arange(6, dtype=t.float32).reshape(2, 3)
n = t.tensor([1, 2, 3])
b = t.tensor([True, False])
x4 = t.zeros(2, 4)
i3 = t.tensor([0, 1, 1])
i23 = t.tensor([[0, 1, 0], [1, 0, 1]])
WRONG: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("shapes that do not broadcast", RuntimeError, "broadcast", lambda: x + t.zeros(2)),
    ("bool minus bool", RuntimeError, "sub", lambda: b - b),
    ("minus bool", RuntimeError, "neg", lambda: -b),
    ("integer to a negative power", RuntimeError, "pow", lambda: n**-1),
    ("bits of floats", RuntimeError, "bitwise_and", lambda: t.bitwise_and(x, x)),
    ("shifts of floats", RuntimeError, "bitwise_left_shift", lambda: x << 1),
    ("a rounding mode", RuntimeError, "rounding_mode", lambda: t.div(x, 2, rounding_mode="up")),
    ("clamp without limits", RuntimeError, "clamp", lambda: x.clamp()),
    ("a condition of numbers", RuntimeError, "where", lambda: t.where(x, x, x)),
    ("addcdiv of integers", RuntimeError, "addcdiv", lambda: t.addcdiv(n, n, n)),
    ("a float alpha of integers", RuntimeError, "alpha", lambda: t.add(n, n, alpha=1.5)),
    ("lerp of two dtypes", RuntimeError, "lerp", lambda: t.lerp(x, x.double(), 0.5)),
    ("mean of integers", RuntimeError, "mean", lambda: n.mean()),
    ("a dimension out of range", IndexError, "dimension out of range", lambda: x.sum(2)),
    ("a dimension twice", RuntimeError, "twice", lambda: x.sum((0, 0))),
    ("the maximum of nothing", RuntimeError, "amax", lambda: t.zeros(0).amax()),
    ("the position of the maximum of nothing", IndexError, "argmax", lambda: t.zeros(0).argmax()),
    ("a shape of another size", RuntimeError, "reshape", lambda: x.reshape(4)),
    ("two unknown sizes", RuntimeError, "reshape", lambda: x.reshape(-1, -1)),
    ("a view that needs a copy", RuntimeError, "view", lambda: x.t().view(6)),
    ("a repeated dimension", RuntimeError, "permute", lambda: x.permute(0, 0)),
    ("joining different widths", RuntimeError, "cat", lambda: t.cat([x, t.zeros(2, 2)])),
    ("joining nothing", ValueError, "cat", lambda: t.cat([])),
    ("stacking different shapes", RuntimeError, "stack", lambda: t.stack([x, n])),
    ("an index out of range", IndexError, "out of bounds", lambda: x[2]),
    ("too many indices", IndexError, "too many", lambda: x[0, 0, 0]),
    ("a position out of range", IndexError, "out of bounds", lambda: x[t.tensor([2])]),
    ("gathering out of range", IndexError, "gather", lambda: x.gather(1, t.tensor([[3]]))),
    ("gathering at floats", RuntimeError, "gather", lambda: x.gather(1, x)),
    ("selecting out of range", IndexError, "index_select", lambda: x.index_select(0, t.tensor([2]))),
    ("scattering another dtype", RuntimeError, "scatter_add", lambda: x.scatter_add(1, t.tensor([[0]]), t.tensor([[1]]))),
    ("scattering a tensor that is too small", RuntimeError, "no larger than src", lambda: x.scatter(1, i23, x[:1])),
    (
        "scattering at more positions than there are",
        RuntimeError,
        "no larger than self",
        lambda: x.scatter(0, i23[:, :1].expand(2, 4), x4),
    ),
    (
        "scattering a tensor of another rank",
        RuntimeError,
        "no larger than src",
        lambda: n.scatter(0, i3, t.ones(1, 3, dtype=t.int64)),
    ),
    ("scattering nothing", TypeError, "scatter", lambda: x.scatter(0, i23)),
    ("adding a tensor that is too small", RuntimeError, "scatter_add", lambda: n.scatter_add(0, i3, n[:1])),
    ("gathering at more positions than there are", RuntimeError, "gather", lambda: x.gather(0, i23[:, :1].expand(2, 4))),
    ("adding fewer slices than indices", RuntimeError, "index_add", lambda: x.index_add(0, i3[:2], x[:1])),
    ("adding more slices than indices", RuntimeError, "index_add", lambda: x.index_add(0, i3[:1], x)),
    ("adding narrower slices", RuntimeError, "index_add", lambda: x.index_add(0, i3[:2], x[:, :1])),
    ("adding slices of another dtype", RuntimeError, "index_add", lambda: x.index_add(0, i3[:2], x.double())),
    ("adding at a matrix of indices", IndexError, "index_add", lambda: x.index_add(0, i23, x)),
    ("adding to a number", RuntimeError, "index_add", lambda: t.tensor(1.0).index_add(0, i3[:1], t.ones(1))),
    ("a float alpha of slices of integers", RuntimeError, "alpha", lambda: n.index_add(0, i3, n, alpha=0.5)),
    ("copying fewer slices than indices", IndexError, "index_copy", lambda: x.index_copy(0, i3[:2], x[:1])),
    ("filling at a matrix of indices", RuntimeError, "index_fill", lambda: x.index_fill(0, i23, 1.0)),
    ("filling with a vector", RuntimeError, "index_fill", lambda: x.index_fill(0, i3[:1], t.ones(1))),
    ("putting a value of more dimensions", RuntimeError, "index_put", lambda: x.index_put((i3[:1],), t.ones(1, 1, 3))),
    ("putting a value of another shape", RuntimeError, "index_put", lambda: x.index_put((i3[:2],), t.ones(3, 3))),
    ("putting a value of another dtype", RuntimeError, "index_put", lambda: x.index_put((i3[:1],), n)),
    ("assigning a value of another shape", RuntimeError, "index_put", lambda: x.clone().__setitem__(i3[:2], t.ones(2, 1, 3))),
    ("the position of a slice of another shape", RuntimeError, "slice_scatter", lambda: x.slice_scatter(x[:1])),
    ("the position of a slice that is broadcast", RuntimeError, "slice_scatter", lambda: x.slice_scatter(x[0])),
    ("the position of a slice beyond the end", RuntimeError, "slice_scatter", lambda: x[:1].slice_scatter(x[:1], 0, 1, 2)),
    ("the position of a slice without steps", RuntimeError, "slice_scatter", lambda: x.slice_scatter(x, 0, 0, 2, 0)),
    ("a slice of a number", IndexError, "slice_scatter", lambda: t.tensor(1.0).slice_scatter(t.tensor(2.0))),
    ("the position of a row of another length", RuntimeError, "select_scatter", lambda: x.select_scatter(x[0, :1], 0, 1)),
    ("the position of a row beyond the end", IndexError, "select_scatter", lambda: x.select_scatter(x[0], 0, 2)),
    ("the position of a diagonal of another length", RuntimeError, "diagonal_scatter", lambda: x.diagonal_scatter(t.ones(1))),
    ("scattering through numbers", RuntimeError, "masked_scatter", lambda: x.masked_scatter(x, x)),
    ("scattering fewer than the mask wants", RuntimeError, "masked_scatter", lambda: x.masked_scatter(x >= 0, x[0])),
    ("scattering another dtype through a mask", RuntimeError, "masked_scatter", lambda: x.masked_scatter(x > 0, n)),
    ("a float alpha that is 1", RuntimeError, "alpha", lambda: t.add(n, n, alpha=1.0)),
    ("a float alpha beside a number", RuntimeError, "alpha", lambda: t.add(n, 3, alpha=0.0)),
    ("a bool alpha of integers", RuntimeError, "alpha", lambda: t.sub(n, n, alpha=True)),
    ("half of a choice", TypeError, "where", lambda: t.where(b, None, t.ones(2))),
    ("a mask of numbers", RuntimeError, "masked_select", lambda: x.masked_select(n)),
    ("more than there are", RuntimeError, "topk", lambda: x.topk(4)),
    ("splitting into wrong sections", RuntimeError, "split", lambda: x.split([1, 3], 1)),
    ("a matrix product of two widths", RuntimeError, "matmul", lambda: x @ x),
    ("a matrix product of two dtypes", RuntimeError, "matmul", lambda: x @ x.t().double()),
    ("a batched product of matrices", RuntimeError, "bmm", lambda: t.bmm(x, x)),
    ("the triangle of a vector", RuntimeError, "tril", lambda: n.tril()),
    ("the trace of a vector", RuntimeError, "trace", lambda: n.trace()),
    ("an unknown subscript", RuntimeError, "einsum", lambda: t.einsum("ij->ik", x)),
    ("subscripts of another rank", RuntimeError, "einsum", lambda: t.einsum("i->i", x)),
    ("sizes of one subscript", RuntimeError, "einsum", lambda: t.einsum("ij,ij->i", x, t.zeros(2, 2))),
    ("the inverse of a singular matrix", t.linalg.LinAlgError, "inv", lambda: t.linalg.inv(t.zeros(2, 2))),
    ("the inverse of a rectangle", RuntimeError, "linalg.inv", lambda: t.linalg.inv(x)),
    ("the inverse of integers", RuntimeError, "linalg.inv", lambda: t.linalg.inv(t.ones(2, 2, dtype=t.int64))),
    ("a factor of an indefinite matrix", t.linalg.LinAlgError, "cholesky", lambda: t.linalg.cholesky(-t.eye(2))),
    ("the norm of integers", RuntimeError, "norm", lambda: n.norm()),
    ("channels that do not fit", RuntimeError, "conv2d", lambda: t.conv2d(t.zeros(1, 2, 5, 5), t.zeros(4, 3, 3, 3))),
    ("a kernel larger than the input", RuntimeError, "conv1d", lambda: t.conv1d(t.zeros(1, 2, 3), t.zeros(4, 2, 5))),
    (
        "padding of more than half a window",
        RuntimeError,
        "max_pool1d",
        lambda: t.nn.functional.max_pool1d(t.zeros(1, 1, 5), 2, padding=2),
    ),
    ("another device", AssertionError, "device", lambda: t.zeros(2, device="cuda")),
    ("a negative size", RuntimeError, "zeros", lambda: t.zeros(-1)),
    ("steps in the wrong direction", RuntimeError, "arange", lambda: t.arange(0, 3, -1)),
    ("writing a float into integers", RuntimeError, "result type", lambda: n.clone().mul_(1.5)),
    ("writing a larger shape", RuntimeError, "shape", lambda: n.clone().add_(t.zeros(2, 3, dtype=t.int64))),
    ("writing through windows", RuntimeError, "single memory location", lambda: n.clone().unfold(0, 2, 1).add_(1)),
    ("an array as operand", TypeError, "numpy", lambda: t.add(x, n.numpy())),
    ("a list in a tensor's position", TypeError, "trapezoid.*'y'.*position 1.*not list", lambda: t.trapezoid([1.0])),
    ("None in a second tensor's position", TypeError, "cdist.*'x2'.*not NoneType", lambda: t.cdist(x, x2=None)),
    ("a text in a second tensor's position", TypeError, "cdist.*'x2'.*position 2.*not str", lambda: t.cdist(x, "x")),
    ("numbers in the place of tensors", TypeError, "hstack.*each element.*'tensors'.*float", lambda: t.hstack([x, 1.0])),
    ("a text in the place of tensors", TypeError, "vstack.*each element.*'tensors'.*str", lambda: t.vstack("ab")),
]


@pytest.mark.parametrize(("kind", "message", "call"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_arguments_raise_the_error_that_torch_raises(kind: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(("kind", "call"), [(w[1], w[3]) for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_arguments_raise_the_same_error_in_a_compiled_function(kind: type[Exception], call: Callable[[], Any]) -> None:
    compiled = t.compile(call)
    for _ in range(2):
        with pytest.raises(kind):
            compiled()
