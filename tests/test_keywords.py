"""What public functions and layers say about a first argument that is no tensor: a TypeError, as PyTorch's, that names the function and the
type of what was given; never an error from inside."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import tracejit
from tracejit import fft, linalg, nn, special

F = nn.functional
GIVEN: Final[dict[str, Any]] = {
    "list": [1.0, 2.0], "ndarray": np.ones((2, 3)), "NoneType": None, "float": 3.5, "str": "text", "object": object(),
}  # fmt: skip
TENSORS: Final = frozenset(
    ("input", "self", "x", "x1", "a", "A", "input1", "query", "anchor", "log_probs", "theta", "logits", "LU")
)
"""Names of first arguments that are tensors."""
OTHERS: Final[dict[str, Any]] = {
    "dim": 0, "dims": (0,), "dim0": 0, "dim1": 0, "axis0": 0, "axis1": 0, "shape": (2,), "size": (2,), "sizes": (2,), "n": 1, "p": 0.5,
    "start": 0, "length": 1, "repeats": 2, "chunks": 2, "value": 1.0, "kernel_size": 2, "num_groups": 1, "normalized_shape": (3,),
    "source": 0, "destination": 0, "min": 0.0, "reduce": "sum",
}  # fmt: skip
"""What further arguments get; all others a tensor."""
STATE: Final = {
    "compile", "fork", "load", "manual_seed", "save", "seed", "set_default_device", "set_default_dtype", "set_default_tensor_type",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal", "set_grad_enabled", "set_num_interop_threads",
    "set_num_threads", "set_printoptions", "set_rng_state", "set_warn_always", "use_deterministic_algorithms",
}  # fmt: skip
"""Functions that are not called here: they change the state of the process, or take functions and files."""
ARGUMENTS: Final = {
    "GRU": (3, 4), "LSTM": (3, 4), "RNN": (3, 4), "GRUCell": (3, 4), "LSTMCell": (3, 4), "RNNCell": (3, 4), "Embedding": (4, 2),
    "MultiheadAttention": (4, 2), "Transformer": (4, 2, 1, 1), "TransformerEncoderLayer": (4, 2), "TransformerDecoderLayer": (4, 2),
    "FractionalMaxPool2d": (2, 1), "FractionalMaxPool3d": (2, 1),
    "AdaptiveLogSoftmaxWithLoss": (4, 6, [2]), "Unflatten": (1, (1, 3)),
}  # fmt: skip
NO_LAYERS: Final = {
    "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "DataParallel", "RNNBase", "RNNCellBase",
    "TransformerDecoder", "TransformerEncoder", "Container", "Sequential", "Identity",
}  # fmt: skip


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for prefix, module in (("", tracejit), ("linalg.", linalg), ("special.", special), ("fft.", fft), ("functional.", F)):
        for name in dir(module):
            function = getattr(module, name)
            if not name.startswith("_") and name not in STATE and callable(function) and not isinstance(function, type):
                yield prefix + name, function


def further(function: Callable[..., Any], skip: int) -> list[Any]:
    """Arguments for what a function requires beside the first ones."""
    required = [p for p in list(inspect.signature(function).parameters.values())[skip:] if p.default is p.empty]
    return [OTHERS.get(p.name, tracejit.ones(2, 3)) for p in required if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


CASES: Final[dict[str, tuple[Callable[..., Any], str]]] = {
    name: (function, next(iter(inspect.signature(function).parameters)))
    for name, function in functions()
    if inspect.signature(function).parameters
}


def test_many_functions_take_a_tensor_first() -> None:
    assert sum(first in TENSORS for _, first in CASES.values()) > 500


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", GIVEN)
def test_functions_name_themselves_and_the_type_of_what_is_no_tensor(kind: str) -> None:
    wrong = []
    for name, (function, first) in CASES.items():
        try:
            function(GIVEN[kind], *further(function, 1))
        except TypeError as error:
            known = re.search(r"\w+\(\)", str(error)) and (kind in str(error) or kind == "float")
            if first in TENSORS and not known:
                wrong.append(f"{name}: {error}")
        except Exception as error:
            leaks = isinstance(error, AttributeError | KeyError | IndexError)
            if leaks or (first in TENSORS and kind in ("list", "NoneType", "str", "object")):
                wrong.append(f"{name}: {type(error).__name__}: {error}")
        else:
            if first in TENSORS and kind in ("NoneType", "object"):
                wrong.append(f"{name}: no error")
    assert not wrong


def layers() -> Iterator[str]:
    for name, layer in vars(nn).items():
        if isinstance(layer, type) and issubclass(layer, nn.Module) and name not in NO_LAYERS:
            yield name


def layer_of(name: str) -> Any:
    for arguments in [ARGUMENTS[name]] if name in ARGUMENTS else [(), (2,), (2, 2), (2, 2, 2)]:
        try:
            return getattr(nn, name)(*arguments)
        except TypeError:
            continue
    raise AssertionError(name)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(layers()))
def test_layers_name_a_function_and_the_type_of_what_is_no_tensor(name: str) -> None:
    layer = layer_of(name)
    rest = further(type(layer).forward, 2)
    for kind in ("list", "ndarray", "NoneType", "str", "object"):
        try:
            layer(GIVEN[kind], *rest)
        except TypeError as error:
            assert re.search(r"\w+\(\)", str(error)), f"{kind}: {error}"
            assert kind in str(error)
        else:
            assert kind == "ndarray", f"{kind}: no error"  # which losses take beside a tensor


def test_numbers_have_no_inverse() -> None:
    for function in (linalg.inv, linalg.cholesky, linalg.slogdet, linalg.det, lambda x: linalg.solve(x, x)):
        with pytest.raises(TypeError, match=r"\w+\(\): argument .* must be Tensor, not float"):
            function(3.5)


def test_errors_of_the_program_go_through_functions_as_they_are() -> None:
    class Broken:
        @property
        def dtype(self) -> Any:
            raise AttributeError("of the program")

        def __getattr__(self, name: str) -> Any:
            raise LookupError(f"{name} is not here")

    with pytest.raises(LookupError, match="is not here"):
        F.softmax(Broken(), 0)
