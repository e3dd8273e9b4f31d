"""What programs that write distributions of their own take from PyTorch's: broadcasting, probabilities and logits, lazy properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit.autograd.grad_mode import enable_grad
from tracejit.core.dtypes import default_dtype
from tracejit.core.number_info import finfo
from tracejit.functional import softmax
from tracejit.functions import broadcast_tensors, randn, tril_indices
from tracejit.tensor import Tensor, tensor

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the first tensor, or the default one.

    Raises ValueError for anything else."""
    if not all(isinstance(v, Tensor | int | float) for v in values):
        raise ValueError("Input arguments must all be instances of Number, Tensor or objects implementing __torch_function__.")
    dtype = next((v.dtype for v in values if isinstance(v, Tensor)), default_dtype())
    return tuple(broadcast_tensors(*(v if isinstance(v, Tensor) else tensor(v, dtype=dtype) for v in values)))


def clamp_probs(probs: Any) -> Any:
    """Probabilities that keep the least step of their dtype from 0 and 1."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of logarithms of odds (is_binary), or of logarithms up to a constant along the last dimension."""
    return logits.sigmoid() if is_binary else softmax(logits, dim=-1)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """The logarithms of probabilities, of odds for is_binary; both are kept finite."""
    kept = clamp_probs(probs)
    return kept.log() - (-kept).log1p() if is_binary else kept.log()


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Standard normal numbers."""
    return randn(tuple(shape), dtype=dtype, device=device)


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The lower triangles of matrices (*, n, n), row by row, as vectors.  Raises ValueError for a diagonal that there is not."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Matrices with zeros above a diagonal of vectors of their elements, row by row.  Raises ValueError for a size that no triangle has."""
    size = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * size + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if abs(round(n) - n) > finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {size} which cannot be expressed as the lower triangular part of a square D x D matrix."
        )
    matrix = vec.new_zeros((*vec.shape[:-1], round(n), round(n)))
    rows, columns = tril_indices(round(n), round(n), diag)
    matrix[..., rows, columns] = vec
    return matrix


class lazy_property:  # noqa: N801  (PyTorch's name)
    """A property that is computed once, with gradients, and then is an attribute of the instance."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value
