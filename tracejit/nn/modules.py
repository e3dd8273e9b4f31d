"""PyTorch's names of modules, `nn.modules.linear.Linear`, as namespaces: a table of names over what is written in tracejit.nn.

A name that is not listed in a module is looked for in all of tracejit.nn.  The `__module__` of a class is such a name, as
PyTorch's do."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from tracejit.core.missing import missing_names
from tracejit.nn import (
    activations,
    attention,
    containers,
    convolutions,
    dropout,
    layers,
    lazy,
    losses,
    module,
    normalisation,
    padding,
    pooling,
    rearrangements,
    recurrent,
    transformer,
)

_WHOLE_FILES: Final[dict[str, tuple[ModuleType, ...]]] = {
    "activation": (activations, attention), "container": (containers,), "conv": (convolutions,), "dropout": (dropout,), "lazy": (lazy,),
    "loss": (losses,), "module": (module,), "padding": (padding,), "pooling": (pooling,), "rnn": (recurrent,),
    "transformer": (transformer,),
}  # fmt: skip
"""Namespaces of what whole files here hold."""

_CLASSES: Final[dict[str, tuple[ModuleType, str]]] = {
    "adaptive": (losses, ""),
    "batchnorm": (normalisation, "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm"),
    "channelshuffle": (rearrangements, "ChannelShuffle"),
    "distance": (layers, "CosineSimilarity PairwiseDistance"),
    "flatten": (rearrangements, "Flatten Unflatten"),
    "fold": (rearrangements, "Fold Unfold"),
    "instancenorm": (normalisation, "InstanceNorm1d InstanceNorm2d InstanceNorm3d"),
    "linear": (layers, "Bilinear Identity Linear"),
    "normalization": (normalisation, "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm"),
    "pixelshuffle": (rearrangements, "PixelShuffle PixelUnshuffle"),
    "sparse": (layers, "Embedding EmbeddingBag"),
    "upsampling": (rearrangements, "Upsample UpsamplingBilinear2d UpsamplingNearest2d"),
}
"""Namespaces of some classes of a file here."""

_PRIVATE: Final[dict[str, dict[str, Any]]] = {  # base classes that programs name
    "batchnorm": {"_BatchNorm": normalisation._BatchNorm, "_NormBase": normalisation._RunningNorm},
    "conv": {"_ConvNd": convolutions._Convolution},
    "instancenorm": {"_InstanceNorm": normalisation._InstanceNorm},
    "loss": {"_Loss": losses._Loss, "_WeightedLoss": losses._WeightedLoss},
}


def _repeated(count: int) -> Any:
    def repeat(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, list | tuple) else (value,) * count

    repeat.__doc__ = f"A sequence as a tuple; any other value {count} times."
    return repeat


def _namespace(name: str, doc: str) -> ModuleType:
    """A module below this one that is found by imports."""
    full = f"{__name__}.{name}"
    out = sys.modules[full] = ModuleType(full, doc)
    out.__spec__ = ModuleSpec(full, None)
    return out


def _contents(name: str) -> list[tuple[ModuleType, list[str]]]:
    if name in _WHOLE_FILES:
        return [(source, source.__all__) for source in _WHOLE_FILES[name]]
    source, names = _CLASSES[name]
    return [(source, names.split())]


def _module(name: str) -> ModuleType:
    module = _namespace(name, f"What PyTorch has in nn.modules.{name}: a table of names.")
    for source, names in _contents(name):
        module.__file__ = source.__file__  # where inspect looks for the text of the classes
        for key in names:
            found = module.__dict__[key] = getattr(source, key)
            if isinstance(found, type) and found.__module__ == source.__name__:
                found.__module__ = module.__name__
    module.__dict__.update(_PRIVATE.get(name, {}))
    module.__dict__["__getattr__"] = _elsewhere(module.__name__)
    return module


def _elsewhere(name: str) -> Any:
    missing = missing_names(name)

    def find(key: str) -> Any:
        found = None if key.startswith("__") else vars(sys.modules["tracejit.nn"]).get(key)
        return missing(key) if found is None else found

    return find


for _name in (*_WHOLE_FILES, *_CLASSES):
    globals()[_name] = _module(_name)
utils = _namespace("utils", "PyTorch's nn.modules.utils: one size for each dimension.")
utils.__dict__.update({"_single": _repeated(1), "_pair": _repeated(2), "_triple": _repeated(3), "_quadruple": _repeated(4)})
__path__: list[str] = []
__getattr__ = _elsewhere(__name__)
