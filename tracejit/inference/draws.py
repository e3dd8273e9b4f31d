"""`Draws`: what samplers return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit.core.lazy import lazy_module

__all__ = ["Draws"]

arviz = lazy_module("arviz")


@dataclass(frozen=True)
class Draws(Mapping[str, np.ndarray]):
    """Draws of named parameters: a mapping of names to float64 arrays [chains, draws, *shape].

    values_by_name: these arrays.  sampler: the name of the sampler.  statistics: what the sampler says of each draw, arrays
    [chains, draws]. dims, coords: names of dimensions, and their labels.  native: what the sampler itself has
    returned."""

    values_by_name: Mapping[str, np.ndarray]
    sampler: str
    statistics: Mapping[str, np.ndarray] = field(default_factory=dict)
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    native: Any = field(default=None, repr=False)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    @property
    def chains(self) -> int:
        """How many chains there are."""
        return int(next(iter(self.values_by_name.values())).shape[0])

    @property
    def draws(self) -> int:
        """How many draws each chain has."""
        return int(next(iter(self.values_by_name.values())).shape[1])

    def to_arviz(self) -> Any:
        """The draws as ArviZ holds them, with dims and coords: an InferenceData, or a DataTree of newer versions.

        Raises ImportError if arviz is not installed."""
        groups = {"posterior": dict(self.values_by_name), **({"sample_stats": dict(self.statistics)} if self.statistics else {})}
        dims = {name: list(names) for name, names in self.dims.items()}
        coords = {name: list(labels) for name, labels in self.coords.items()}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict(groups, dims=dims, coords=coords)
        return arviz.from_dict(**groups, dims=dims, coords=coords)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {list(array.shape[2:])}" for name, array in self.values_by_name.items())
        return f"<Draws of {self.sampler}: {self.chains} chains of {self.draws} draws; {shapes}>"
