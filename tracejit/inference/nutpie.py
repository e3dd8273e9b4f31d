"""nutpie: the No-U-Turn sampler in Rust (https://pymc-devs.github.io/nutpie).

nutpie takes C functions through the classes that it has for models of PyMC: they call the density without Python, one
chain a thread.  These classes are not public; where the installed version does not have them, or the density cannot
be exported, nutpie calls a function of Python, one chain at a time.  A warning says so, with the reason.
"""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

import numpy as np

from tracejit.core.lazy import lazy_module
from tracejit.ffi.errors import CannotExportError
from tracejit.inference.draws import Draws
from tracejit.inference.model import Model
from tracejit.report.performance import PerformanceWarning

__all__ = ["compiled_model", "sample"]

nutpie = lazy_module("nutpie")
compiled_pyfunc = lazy_module("nutpie.compiled_pyfunc")

_CLASSES = ("ExpandFunc", "LogpFunc", "PyMcModel", "PySampler", "PyVariable")
"""What of nutpie's own classes the C door needs."""


def sample(
    model: Model,
    *,
    draws: int,
    tune: int,
    chains: int,
    seed: int | None,
    quiet: bool = False,
    cores: int | None = None,
    **options: Any,
) -> Draws:
    """See `inference.sample`.  cores: how many chains run at the same time (None: as many as there are processors).
    options: of nutpie.sample.

    Positions where the log-density raises are rejected; a RuntimeWarning has the first error.  Raises
    ImportError if nutpie is not installed, ValueError for tune=0."""
    if tune < 1:
        raise ValueError(f"sample(): nutpie needs at least 1 draw to tune, got tune={tune}")
    compiled = compiled_model(model)
    trace = nutpie.sample(
        compiled, draws=draws, tune=tune, chains=chains, seed=seed, cores=cores, progress_bar=not quiet, **options
    )
    density = getattr(compiled, "density", None)
    if density is not None and density.errors:
        warnings.warn(
            f"the log-density raised at some positions, which were rejected; the first error: {density.errors[0]!r}",
            RuntimeWarning,
            stacklevel=3,
        )
    found = {name: np.asarray(trace.posterior[name].values, np.float64) for name in model.parameters}
    statistics = {
        str(name): np.asarray(a.values) for name, a in trace.sample_stats.data_vars.items() if a.dims == ("chain", "draw")
    }
    return Draws(found, "nutpie", statistics, model.dims, model.coords, trace)


def compiled_model(model: Model) -> Any:
    """The model as nutpie.sample takes it, compiled; for options of nutpie that `sample` does not have."""
    library = nutpie._lib
    missing = [name for name in _CLASSES if not hasattr(library, name)]
    reason = f"nutpie {nutpie.__version__} has no {', '.join(missing)}" if missing else ""
    if not missing:
        try:
            return _native_class()(model, model.c_log_density(), model.c_expand())
        except CannotExportError as error:
            reason = str(error)
    warnings.warn(
        f"sample(): nutpie calls the log-density in Python, one chain at a time: {reason}", PerformanceWarning, stacklevel=4
    )
    return compiled_pyfunc.from_pyfunc(
        model.dimension,
        lambda: _python_density(model),
        lambda seed1, seed2, chain: model.constrain,
        [np.dtype(np.float64)] * len(model.parameters),
        [parameter.shape for parameter in model.parameters.values()],
        list(model.parameters),
        coords={name: list(labels) for name, labels in model.coords.items()},
        dims=model.dims,
        make_initial_point_fn=lambda chain_seed: model.initial_positions(1, chain_seed)[0],
    )


def _python_density(model: Model) -> Any:
    def density(position: Any) -> tuple[float, np.ndarray]:
        return model.evaluate(position)

    return density


@cache
def _native_class() -> type:
    """The class of a model of two C functions: one of nutpie's own models, so that it has what their base class has."""

    class NativeModel(compiled_pyfunc.CompiledModel):  # type: ignore[misc, name-defined]
        def __init__(self, model: Model, density: Any, expand: Any) -> None:
            set_attribute = partial(object.__setattr__, self)  # the base class is frozen
            set_attribute("dims", model.dims)
            set_attribute("model", model)
            set_attribute("density", density)
            set_attribute("expand", expand)

        @property
        def n_dim(self) -> int:
            dimension: int = self.model.dimension
            return dimension

        @property
        def shapes(self) -> dict[str, tuple[int, ...]]:
            return {name: parameter.shape for name, parameter in self.model.parameters.items()}

        @property
        def coords(self) -> dict[str, list[Any]]:
            return {name: list(labels) for name, labels in self.model.coords.items()}

        def _make_model(self, init_mean: Any) -> Any:
            library, sizes = nutpie._lib, {name: len(labels) for name, labels in self.coords.items()}
            names, shapes = list(self.shapes), list(self.shapes.values())
            expanded = sum(int(np.prod(shape)) for shape in shapes)
            return library.PyMcModel(
                library.LogpFunc(self.density.address, 0, self.density),
                library.ExpandFunc(self.n_dim, expanded, self.expand.address, 0, self.expand),
                # which adds names of dimensions to both dictionaries
                library.PyVariable.new_variables(names, ["float64"] * len(names), shapes, sizes, dict(self.dims)),
                self.n_dim,
                sizes,
                self.coords,
                lambda seed: self.model.initial_positions(1, seed)[0],
                None,
            )

        def _make_sampler(self, settings: Any, init_mean: Any, cores: int, *reporting_and_storage: Any) -> Any:
            return nutpie._lib.PySampler.from_pymc(settings, cores, self._make_model(init_mean), *reporting_and_storage)

    return NativeModel
