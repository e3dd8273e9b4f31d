"""Activation functions as modules."""

from __future__ import annotations

from typing import Any

from tracejit import functional as F
from tracejit.core.dtypes import DType, default_dtype
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.ops.public.creation import full
from tracejit.ops.public.keywords import require_tensors

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax",
    "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign",
    "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _InPlace(Module):
    """An activation that may overwrite its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """max(input, 0)."""

    def forward(self, input: Any) -> Any:
        return F.relu(input, self.inplace)


class ReLU6(_InPlace):
    """min(max(input, 0), 6)."""

    def forward(self, input: Any) -> Any:
        return F.relu6(input, self.inplace)


class SELU(_InPlace):
    """The scaled elu of self-normalising networks."""

    def forward(self, input: Any) -> Any:
        return F.selu(input, self.inplace)


class SiLU(_InPlace):
    """input * sigmoid(input)."""

    def forward(self, input: Any) -> Any:
        return F.silu(input, self.inplace)


class Mish(_InPlace):
    """input * tanh(softplus(input))."""

    def forward(self, input: Any) -> Any:
        return F.mish(input, self.inplace)


class Hardsigmoid(_InPlace):
    """min(max(input + 3, 0), 6) / 6."""

    def forward(self, input: Any) -> Any:
        return F.hardsigmoid(input, self.inplace)


class Hardswish(_InPlace):
    """input * min(max(input + 3, 0), 6) / 6."""

    def forward(self, input: Any) -> Any:
        return F.hardswish(input, self.inplace)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Any) -> Any:
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-input))."""

    def forward(self, input: Any) -> Any:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(input))."""

    def forward(self, input: Any) -> Any:
        return F.logsigmoid(input)


class Softsign(Module):
    """input / (1 + |input|)."""

    def forward(self, input: Any) -> Any:
        return F.softsign(input)


class GELU(Module):
    """input times the normal distribution function; approximate is "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(_InPlace):
    """input where positive, negative_slope * input elsewhere."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Any) -> Any:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_InPlace):
    """input where positive, alpha * (exp(input) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """input where positive, alpha * (exp(input / alpha) - 1) elsewhere."""

    def forward(self, input: Any) -> Any:
        return F.celu(input, self.alpha, self.inplace)


class Hardtanh(_InPlace):
    """input limited to [min_val, max_val]."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        """min_value and max_value are the older names of min_val and max_val."""
        super().__init__(inplace)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value

    def forward(self, input: Any) -> Any:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class Softplus(Module):
    """log(1 + exp(beta * input)) / beta."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Any:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Threshold(_InPlace):
    """input where it is above `threshold`, `value` elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Any) -> Any:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """leaky_relu whose slope is learned: one, or one for each channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: DType | None = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype or default_dtype()))

    def forward(self, input: Any) -> Any:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(_InPlace):
    """leaky_relu with slopes drawn from U(lower, upper) in training, their mean in evaluation."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Any) -> Any:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class Tanhshrink(Module):
    """input - tanh(input)."""

    def forward(self, input: Any) -> Any:
        return F.tanhshrink(input)


class _Shrink(Module):
    """An activation that is zero around zero."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """0 where |input| <= lambd, input elsewhere."""

    def forward(self, input: Any) -> Any:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """input moved towards 0 by lambd."""

    def forward(self, input: Any) -> Any:
        return F.softshrink(input, self.lambd)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W) inputs."""

    def forward(self, input: Any) -> Any:
        require_tensors("Softmax2d", input=input)
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class _AlongDim(Module):
    """An activation along one dimension."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(input) / sum(exp(input)) along `dim`."""

    def forward(self, input: Any) -> Any:
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongDim):
    """log(softmax(input)) along `dim`."""

    def forward(self, input: Any) -> Any:
        return F.log_softmax(input, self.dim)


class Softmin(_AlongDim):
    """softmax(-input) along `dim`."""

    def forward(self, input: Any) -> Any:
        return F.softmin(input, self.dim)


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
