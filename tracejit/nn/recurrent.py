"""Recurrent layers and cells: functional.recurrent with its parameters under PyTorch's names."""

from __future__ import annotations

import math
from typing import Any

from tracejit.core.dtypes import DType
from tracejit.core.interpreter import state as modes
from tracejit.functional import packing
from tracejit.functional import recurrent as F
from tracejit.nn import init
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.nn.utils.rnn import PackedSequence
from tracejit.ops.public.creation import empty, zeros
from tracejit.ops.public.keywords import require_tensors

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """What RNN, LSTM and GRU share.  Parameters weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 (weight_hr_l0 with proj_size), and so
    on for every layer, with the suffix _reverse for the second direction; all drawn from U(-k, k), k = 1 / sqrt(hidden_size)."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        out = proj_size or hidden_size
        gates = _GATES[mode] * hidden_size
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                inputs = input_size if layer == 0 else out * (1 + bidirectional)
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, inputs), "weight_hh": (gates, out)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, Parameter(empty(*shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: there is no copy of the parameters in one piece of memory."""

    def _weights(self) -> list[list[tuple[Any, ...]]]:
        """By layer and direction, as functional.recurrent takes them."""
        own = self.__dict__
        found = []
        for layer in range(self.num_layers):
            directions = []
            for suffix in self._suffixes(layer):
                biases = (own["bias_ih" + suffix], own["bias_hh" + suffix]) if self.bias else (None, None)
                projection = own["weight_hr" + suffix] if self.proj_size else None
                directions.append((own["weight_ih" + suffix], own["weight_hh" + suffix], *biases, projection))
            found.append(directions)
        return found

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters by layer and direction."""
        return [[w for w in weights if w is not None] for directions in self._weights() for weights in directions]

    def _state_sizes(self) -> list[int]:
        """The last sizes of the tensors that are the state."""
        return [self.hidden_size]

    def _initial(self, hx: Any, like: Any, batch: int, batched: bool) -> tuple[Any, ...]:
        """The state to begin with, (layers * directions, N, size) each; zeros for None.  Raises RuntimeError for wrong shapes."""
        count = self.num_layers * (1 + self.bidirectional)
        sizes = self._state_sizes()
        if hx is None:
            return tuple([zeros(count, batch, size, dtype=like.dtype) for size in sizes])
        given = tuple(hx) if len(sizes) > 1 else (hx,)
        if len(given) != len(sizes):
            raise RuntimeError(f"{type(self).__name__}: expected {len(sizes)} tensors as state, got {len(given)}")
        if any(state.dim() != (3 if batched else 2) for state in given):
            kind = "batched 3-D" if batched else "unbatched 2-D"
            dims = " and ".join(f"{state.dim()}-D" for state in given)
            raise RuntimeError(f"For {kind} input, hx should also be {3 if batched else 2}-D but got {dims} tensor")
        states = given if batched else tuple([state.unsqueeze(1) for state in given])
        for i, (state, size) in enumerate(zip(states, sizes, strict=True)):
            if tuple(state.shape) != (count, batch, size):
                name = "hidden" if len(sizes) == 1 else f"hidden[{i}]"
                raise RuntimeError(f"Expected {name} size {(count, batch, size)}, got {list(state.shape)}")
        return states

    def _result(self, states: tuple[Any, ...]) -> Any:
        return states[0] if len(states) == 1 else states

    def _check_input(self, input: Any, dims: tuple[int, ...]) -> None:
        require_tensors(type(self).__name__, input=input)
        if input.dim() not in dims:
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}")
        weight = self.__dict__["weight_ih_l0"]
        if input.dtype is not weight.dtype and modes.autocast is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        self._check_input(input, (2, 3))
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        states = self._initial(hx, x, x.shape[1], batched)
        out, states = F.recurrent(self.mode, x, None, states, self._weights(), self.dropout, self.training)
        if not batched:
            return out.squeeze(1), self._result(tuple([state.squeeze(1) for state in states]))
        return (out.transpose(0, 1) if self.batch_first else out), self._result(states)

    def _packed(self, input: PackedSequence, hx: Any) -> Any:
        known = packing.unpacked(input.data)
        if known is not None and F.runs_padded(self.mode, known[0], self._weights()):
            return self._padded(input, known, hx)
        self._check_input(input.data, (2,))
        sizes = input.batch_sizes.tolist()
        states = self._initial(hx, input.data, sizes[0], True)
        if hx is not None and input.sorted_indices is not None:
            states = tuple([state.index_select(1, input.sorted_indices) for state in states])
        out, states = F.recurrent(self.mode, input.data, sizes, states, self._weights(), self.dropout, self.training)
        if input.unsorted_indices is not None:
            states = tuple([state.index_select(1, input.unsorted_indices) for state in states])
        packed = PackedSequence(out, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, self._result(states)

    def _padded(self, input: PackedSequence, known: packing.Padded, hx: Any) -> Any:
        values, lengths, inside = known
        self._check_input(values, (3,))
        states = self._initial(hx, values, values.shape[1], True)
        if hx is not None and input.sorted_indices is not None:
            states = tuple([state.index_select(1, input.sorted_indices) for state in states])
        out, states = F.recurrent(self.mode, values, None, states, self._weights(), self.dropout, self.training, lengths)
        if input.unsorted_indices is not None:
            states = tuple([state.index_select(1, input.unsorted_indices) for state in states])
        data = packing.pack(packing.filled(out, inside, 0), lengths, inside)
        return PackedSequence(data, input.batch_sizes, input.sorted_indices, input.unsorted_indices), self._result(states)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += f", bias={self.bias}"
        if self.batch_first:
            text += f", batch_first={self.batch_first}"
        if self.dropout:
            text += f", dropout={self.dropout}"
        return f"{text}, bidirectional={self.bidirectional}" if self.bidirectional else text


def _check_sizes(
    input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool, dropout: float, proj_size: int
) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    for name, flag in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} should be of type bool, got: {flag.__class__.__name__}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {size.__class__.__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNN(RNNBase):
    """h' = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh) over sequences: (output, h) of (input, h0).

    nonlinearity: "tanh" or "relu".  Shapes and options are those of LSTM; h is (num_layers * directions, N, hidden_size).
    Raises ValueError for another nonlinearity."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        mode = "RNN_" + nonlinearity.upper()
        super().__init__(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory over sequences: (output, (h, c)) of (input, (h0, c0)), with gates in the order input, forget, cell,
    output.

    input (T, N, input_size), with batch_first (N, T, input_size), without a batch (T, input_size), or a PackedSequence; output
    the same with hidden_size (twice with bidirectional) in the place of input_size.  h and c, before (zeros unless given) and
    after, are (num_layers * directions, N, hidden_size), without N for inputs without a batch.  proj_size: hidden states are
    projected to that size.  dropout: between layers, in training.  bias=False: no biases.

    Raises RuntimeError for inputs or states of other sizes, ValueError for a bad dropout, proj_size or number of layers."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )

    def _state_sizes(self) -> list[int]:
        return [self.proj_size or self.hidden_size, self.hidden_size]


class GRU(RNNBase):
    """Gated recurrent units over sequences: (output, h) of (input, h0), with gates in the order reset, update, new.

    Shapes and options are those of LSTM; h is (num_layers * directions, N, hidden_size)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)


class RNNCellBase(Module):
    """What the cells share: weight_ih, weight_hh, bias_ih, bias_hh."""

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(gates, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(gates, hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias_ih", Parameter(empty(gates, device=device, dtype=dtype)) if bias else None)
        self.register_parameter("bias_hh", Parameter(empty(gates, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _stepped(self, mode: str, input: Any, hx: Any) -> Any:
        """One step as one call of the library: a recording need not follow its checks."""
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return F.cell(type(self).__name__, mode, input, hx, (self.input_size, self.hidden_size), weights)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias={self.bias}"


class RNNCell(RNNCellBase):
    """One step of an RNN: the hidden state (N, hidden_size) after `hx`, zeros unless given, of input (N, input_size); both also
    without N."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._stepped("RNN_TANH" if self.nonlinearity == "tanh" else "RNN_RELU", input, hx)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (hidden, cell), each (N, hidden_size), after hx = (hidden, cell), zeros unless given, of input (N,
    input_size); all also without N.  Raises RuntimeError for other sizes."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._stepped("LSTM", input, hx)


class GRUCell(RNNCellBase):
    """One step of a GRU: the hidden state (N, hidden_size) after `hx`, zeros unless given, of input (N, input_size); both also
    without N."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._stepped("GRU", input, hx)
