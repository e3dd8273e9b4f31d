"""Dropout of elements and of whole channels."""

from __future__ import annotations

from typing import Any

from tracejit.core.library_warnings import warn
from tracejit.functional.support import in_place_or_new, kept_by_dropout
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.public.keywords import of_tensors

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def _probability(name: str, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}(): dropout probability has to be between 0 and 1, but got {p}")


def _dropped(name: str, input: Any, shape: tuple[int, ...], p: float, training: bool, inplace: bool) -> Any:
    _probability(name, p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return in_place_or_new(input, input * 0.0, inplace)
    mask = cast(kept_by_dropout(input, shape, p), dtype=input.dtype)
    return in_place_or_new(input, input * (mask * (1.0 / (1.0 - p))), inplace)


@of_tensors
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In training each element is zeroed with probability p and the others scaled by 1 / (1 - p).  Raises ValueError unless 0 <= p <= 1."""
    return _dropped("dropout", input, input._sizes, p, training, inplace)


def _channels_dropped(name: str, dims: int, input: Any, p: float, training: bool, inplace: bool) -> Any:
    """Whole channels dropped, where `dims` dimensions follow the channels.

    PyTorch takes inputs of other dimensions than its documentation has, and warns: dropout2d() has two dimensions in front of any
    other input, dropout3d() one (the channels) unless the input has five."""
    _probability(name, p)
    rank = input.ndim
    if rank not in (dims + 1, dims + 2):
        if dims == 1 or rank < 2:
            raise RuntimeError(f"{name}(): expected input of {dims + 1} or {dims + 2} dimensions, got shape {list(input._sizes)}")
        warn(f"{name}(): input of {rank} dimensions is deprecated; use dropout(), or give it {dims + 2} dimensions")
    elif dims == 2 and rank == 3:
        warn(
            "dropout2d(): an input of three dimensions is taken for (N, C, L), as PyTorch takes it; use dropout1d() for that, or "
            "unsqueeze(0) for (C, H, W)"
        )
    lead = 2 if dims == 2 or rank == dims + 2 else 1
    return _dropped(name, input, (*input._sizes[:lead], *(1,) * (rank - lead)), p, training, inplace)


@of_tensors
def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """As dropout, for whole channels of an (N, C, L) or (C, L) input."""
    return _channels_dropped("dropout1d", 1, input, p, training, inplace)


@of_tensors
def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """As dropout, for whole channels of an (N, C, H, W) input; three dimensions are (N, C, L), with a warning."""
    return _channels_dropped("dropout2d", 2, input, p, training, inplace)


@of_tensors
def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """As dropout, for whole channels of an (N, C, D, H, W) or (C, D, H, W) input."""
    return _channels_dropped("dropout3d", 3, input, p, training, inplace)


_SELU_LIMIT = -1.7580993408473766  # selu(-infinity), the value of dropped elements


def _alpha_dropped(name: str, input: Any, shape: tuple[int, ...], p: float, training: bool, inplace: bool) -> Any:
    _probability(name, p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return in_place_or_new(input, input * 0.0, inplace)
    scale = float(((1.0 - p) * (1.0 + p * _SELU_LIMIT * _SELU_LIMIT)) ** -0.5)
    mask = cast(kept_by_dropout(input, shape, p), dtype=input.dtype)
    return in_place_or_new(input, (input * mask + (1.0 - mask) * _SELU_LIMIT) * scale - scale * p * _SELU_LIMIT, inplace)


@of_tensors
def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Dropout that keeps mean and variance of self-normalising (selu) networks: Klambauer et al. (2017), section "dropout"."""
    return _alpha_dropped("alpha_dropout", input, input._sizes, p, training, inplace)


@of_tensors
def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """alpha_dropout of whole channels of an (N, C, ...) input."""
    return _alpha_dropped("feature_alpha_dropout", input, (*input._sizes[:2], *(1,) * (input.ndim - 2)), p, training, inplace)
