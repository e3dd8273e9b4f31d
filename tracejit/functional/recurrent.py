"""Recurrent networks: steps of cells, loops over time, layers and directions.

A layer multiplies all its inputs with its input weights at once; a step is one product of the hidden state with the fused gates'
weights.  Sequences of different lengths are those of packed sequences: step t has as many rows as sequences are longer than t, the
longest first, so that a step's state is the beginning of the one before.

nn.RNN, nn.LSTM, nn.GRU and their cells are these functions with their parameters kept as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracejit.core.dtypes import float32, float64
from tracejit.core.interpreter import state as state_of_thread
from tracejit.core.precision import lowered
from tracejit.core.shapes import size_range
from tracejit.functional.layer import linear
from tracejit.functional.regularisation import dropout
from tracejit.ops.composites.recurrent import lstm, lstm_unit
from tracejit.ops.composites.recurrent_units import elman, gru, gru_unit
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.mathematics import relu
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import permute, select, slice_
from tracejit.ops.public.creation import arange, zeros
from tracejit.ops.public.elementwise import where
from tracejit.ops.public.keywords import require_tensors
from tracejit.ops.public.linalg import addmm, matmul
from tracejit.ops.public.movement import stack

__all__ = ["cell", "recurrent", "runs_padded"]

State = tuple[Any, ...]
Weights = tuple[Any, ...]
"""w_ih, w_hh, b_ih, b_hh, w_hr of one layer and direction; None for those that it does not have."""


def _rows(x: Any, start: int, stop: int) -> Any:
    return slice_(x, dim=0, start=start, stop=stop, step=1)


def _elman(activation: Any) -> Callable[[Any, Any, State, Any], State]:
    def step(projected: Any, recurrent: Any, state: State, w_hr: Any) -> State:
        return (activation(projected + recurrent),)

    return step


def _lstm(projected: Any, recurrent: Any, state: State, w_hr: Any) -> State:
    hidden, cell, _ = lstm_unit(projected + recurrent, state[1])
    return (hidden if w_hr is None else matmul(hidden, permute(w_hr, dims=(1, 0)))), cell


def _gru(projected: Any, recurrent: Any, state: State, w_hr: Any) -> State:
    return (gru_unit(projected, recurrent, state[0])[0],)


_STEPS: dict[str, Callable[[Any, Any, State, Any], State]] = {
    "RNN_TANH": _elman(tanh),
    "RNN_RELU": _elman(relu),
    "LSTM": _lstm,
    "GRU": _gru,
}
"""mode -> (input times its weights, hidden state times its weights, state, projection) -> state, whose first part is the output."""


def _unbound(x: Any) -> list[Any]:
    """x[0], x[1], ..., taken in halves: so the gradients of all of them are put together in log(n) passes and not in n."""
    size = x.shape[0]
    if size <= 4:
        return [select(x, i, dim=0) for i in size_range(0, size)]
    return [*_unbound(_rows(x, 0, size // 2)), *_unbound(_rows(x, size // 2, size))]


def _pieces(x: Any, sizes: Sequence[int]) -> list[Any]:
    """The rows of x in pieces of these sizes, taken in halves as by `_unbound`."""
    if len(sizes) == 1:
        return [x]
    middle = len(sizes) // 2
    border = sum(sizes[:middle])
    return [
        *_pieces(_rows(x, 0, border), sizes[:middle]),
        *_pieces(_rows(x, border, x.shape[0]), sizes[middle:]),
    ]


def _through_time(mode: str, steps: list[Any], state: State, weights: Weights, backwards: bool) -> tuple[list[Any], State]:
    """The outputs of all steps, in the order of `steps`, and the last state of every sequence."""
    step, (_, w_hh, _, b_hh, w_hr) = _STEPS[mode], weights
    columns = permute(w_hh, dims=(1, 0))
    late_bias = b_hh if mode == "GRU" else None  # others have it in their projected inputs
    outputs: list[Any] = [None] * len(steps)
    finished: list[State] = []
    current = tuple([_rows(s, 0, steps[-1].shape[0]) for s in state]) if backwards else state
    for t in reversed(range(len(steps))) if backwards else range(len(steps)):
        have, want = current[0].shape[0], steps[t].shape[0]
        if have > want:
            finished.append(tuple([_rows(s, want, have) for s in current]))
            current = tuple([_rows(s, 0, want) for s in current])
        elif have < want:
            current = tuple([cat(c, _rows(s, have, want), dim=0) for c, s in zip(current, state, strict=True)])
        hidden = current[0]  # the public products: under autocast their results are of lower precision, like the inputs'
        recurrent = matmul(hidden, columns) if late_bias is None else addmm(late_bias, hidden, columns)
        current = step(steps[t], recurrent, current, w_hr)
        outputs[t] = current[0]
    if finished:
        current = tuple([cat(*parts, dim=0) for parts in zip(current, *reversed(finished), strict=True)])
    return outputs, current


def _projected(mode: str, x: Any, weights: Weights) -> Any:
    """All inputs times the input weights, with the biases that may be added at once."""
    w_ih, _, b_ih, b_hh, _ = weights
    bias = b_ih if b_ih is None or mode == "GRU" else b_ih + b_hh
    return linear(x, w_ih, bias)


def _is_whole(mode: str, projected: Any, state: State, weights: Weights) -> bool:
    """Whether a layer is one operation: as PyTorch's LSTM is, which rounds once; of others, steps of shorter numbers are rounded."""
    if mode == "LSTM":
        return weights[4] is None
    return projected.dtype is state[0].dtype and projected.dtype in (float32, float64) and state_of_thread.autocast is None


def _whole(mode: str, projected: Any, state: State, weights: Weights, backwards: bool) -> State:
    """The states after each step of such a layer."""
    _, w_hh, _, b_hh, _ = weights
    columns = permute(w_hh, dims=(1, 0))
    if mode == "LSTM":
        if projected.dtype is not state[0].dtype:  # under autocast
            projected = cast(projected, dtype=state[0].dtype)
        return lstm(projected, *state, columns, backwards=backwards)[:2]  # type: ignore[no-any-return]
    if mode == "GRU":
        offset = zeros(w_hh.shape[0], dtype=projected.dtype) if b_hh is None else b_hh
        return gru(projected, *state, columns, offset, backwards=backwards)[:1]  # type: ignore[no-any-return]
    return (elman(projected, *state, columns, backwards=backwards, relu=mode == "RNN_RELU"),)


def runs_padded(mode: str, values: Any, weights: Sequence[Sequence[Weights]]) -> bool:
    """Whether a network runs over padded sequences, and not over packed ones."""
    usual = values.dtype in (float32, float64) and state_of_thread.autocast is None
    return usual and all(own[0].dtype is values.dtype for directions in weights for own in directions)


def _runs_on(mode: str, own: Weights) -> bool:
    """Whether a layer may go on behind the ends of padded sequences: it is one operation, and its states are bounded."""
    return mode != "RNN_RELU" and own[4] is None


def _up_to_ends(mode: str, projected: Any, lengths: Any, state: State, weights: Weights) -> tuple[list[Any], State]:
    """The outputs of all steps, and the last state of every sequence, which keeps it behind its end."""
    outputs: list[Any] = []
    for t, step in enumerate(_unbound(projected)):
        _, new = _through_time(mode, [step], state, weights, False)
        inside = (lengths > t).unsqueeze(1)
        state = tuple([where(inside, a, b) for a, b in zip(new, state, strict=True)])
        outputs.append(state[0])
    return outputs, state


class _SequenceOrder:
    """Where the elements of padded sequences of these lengths are, along the first of (T, N, ...)."""

    def __init__(self, lengths: Any, steps: int, bidirectional: bool) -> None:
        self._ends = (lengths - 1).unsqueeze(0)
        self._reversed = None
        if bidirectional:
            step = arange(steps).unsqueeze(1)
            self._reversed = where(step < lengths, self._ends - step, step)

    def ordered(self, x: Any, backwards: int) -> Any:
        """x as it is, or with each sequence reversed."""
        return self._gather_steps(x, self._reversed) if backwards else x

    def last(self, x: Any) -> Any:
        """The last elements of the sequences, (N, ...)."""
        return select(self._gather_steps(x, self._ends), 0, dim=0)

    @staticmethod
    def _gather_steps(x: Any, order: Any) -> Any:
        return x.gather(0, order.unsqueeze(2).expand(order.shape[0], *x.shape[1:]))


def recurrent(
    mode: str,
    input: Any,
    batch_sizes: Sequence[int] | None,
    state: State,
    weights: Sequence[Sequence[Weights]],
    dropout_p: float,
    training: bool,
    lengths: Any = None,
) -> tuple[Any, State]:
    """A network of layers, each of one or two directions: (output of the last layer, last states).

    mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".  input: (T, N, inputs), or for packed sequences (sum of batch_sizes, inputs).  state:
    tensors (layers * directions, N, ...).  weights: by layer and direction.  dropout_p: between layers, in training.
    lengths: of padded sequences, int64 (N,), where `runs_padded`; outputs behind their ends are any numbers."""
    if input._sizes[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    # PyTorch's LSTM is one kernel, which autocast lowers; of the others it lowers the products
    network = _lowered_network if mode == "LSTM" else _network
    return network(input, mode, batch_sizes, state, weights, dropout_p, training, lengths)


def _network(
    input: Any,
    mode: str,
    batch_sizes: Sequence[int] | None,
    state: State,
    weights: Sequence[Sequence[Weights]],
    dropout_p: float,
    training: bool,
    lengths: Any,
) -> tuple[Any, State]:
    last: list[State] = []
    x = input
    order = None if lengths is None else _SequenceOrder(lengths, input._sizes[0], len(weights[0]) > 1)
    for number, directions in enumerate(weights):
        if number and dropout_p and training:
            x = dropout(x, dropout_p, True)
        parts = []
        for backwards, own in enumerate(directions):
            initial = tuple([select(s, len(last), dim=0) for s in state])
            if order is not None and not _runs_on(mode, own):
                outputs, final = _up_to_ends(mode, _projected(mode, order.ordered(x, backwards), own), lengths, initial, own)
                parts.append(order.ordered(stack(outputs), backwards))
                last.append(final)
                continue
            if order is not None:
                states = _whole(mode, _projected(mode, order.ordered(x, backwards), own), initial, own, False)
                parts.append(order.ordered(states[0], backwards))
                last.append(tuple(map(order.last, states)))
                continue
            projected = _projected(mode, x, own)
            if batch_sizes is None and _is_whole(mode, projected, initial, own):
                states = _whole(mode, projected, initial, own, bool(backwards))
                parts.append(states[0])
                last.append(tuple([select(s, 0 if backwards else s.shape[0] - 1, dim=0) for s in states]))
                continue
            steps = _unbound(projected) if batch_sizes is None else _pieces(projected, batch_sizes)
            outputs, final = _through_time(mode, steps, initial, own, bool(backwards))
            parts.append(stack(outputs) if batch_sizes is None else cat(*outputs, dim=0))
            last.append(final)
        x = parts[0] if len(parts) == 1 else cat(*parts, dim=parts[0].ndim - 1)
    return x, tuple([stack(list(s)) for s in zip(*last, strict=True)])


_lowered_network = lowered(_network)


def cell(name: str, mode: str, input: Any, hx: Any, sizes: tuple[int, int], weights: Weights) -> Any:
    """One step of a cell of (input size, hidden size) on a batch, or on one sample; zeros are the state for None.  name: in errors.

    Raises ValueError for other ranks, RuntimeError for other sizes."""
    require_tensors(name, input=input)
    if input.dim() not in (1, 2):
        raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
    input_size, hidden_size = sizes
    batched = input.dim() == 2
    x = input if batched else input.unsqueeze(0)
    if x.shape[1] != input_size:
        raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {input_size}")
    if hx is None:
        state: State = (zeros(x.shape[0], hidden_size, dtype=x.dtype),) * (2 if mode == "LSTM" else 1)
    else:
        state = tuple(hx) if mode == "LSTM" else (hx,)
        if any(s.dim() not in (1, 2) for s in state):
            raise ValueError(f"{name}: Expected hidden to be 1D or 2D")
        state = state if batched else tuple([s.unsqueeze(0) for s in state])
        if any(s._sizes != (x.shape[0], hidden_size) for s in state):
            found = [list(s.shape) for s in state]
            raise RuntimeError(f"{name}: expected hidden of shape {[x.shape[0], hidden_size]}, got {found}")
    weights = (*weights, None)  # no projection of the state
    _, out = _through_time(mode, [_projected(mode, x, weights)], state, weights, False)
    out = out if batched else tuple([part.squeeze(0) for part in out])
    return out if mode == "LSTM" else out[0]
