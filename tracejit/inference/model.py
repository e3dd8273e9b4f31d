"""`Model`: a log-density over named parameters, as one function of unconstrained numbers.

Samplers move in R^n.  A parameter with a constraint is the image of unconstrained numbers under the bijection that
`distributions.biject_to` has for the constraint, and the log-density gets the log-determinant of its Jacobian, as in
Stan (Carpenter et al., Stan: A Probabilistic Programming Language, Journal of Statistical Software 76, 2017; Stan
Reference Manual, "Constraint Transforms").  The unconstrained numbers of all parameters stand in one float64 vector,
in the order of the parameters.

The density and its gradient are one compiled function of this vector.  Samplers in machine code call it as a C
function (`c_log_density`), without Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.compiled.compile import compile as compile_function
from tracejit.distributions import biject_to, constraints
from tracejit.ffi.c_function import CFunction
from tracejit.func import grad_and_value
from tracejit.functions import cat
from tracejit.tensor import Tensor
from tracejit.tensor.construction import from_numpy, tensor

__all__ = ["Model", "Parameter"]

_ATTEMPTS = 100
_LOG_DENSITY = "(size_t dimension, const double *position, double *gradient, double *value, const void *user)"
_EXPAND = "int64_t (size_t dimension, size_t expanded, const double *position, double *values, const void *user)"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a Model.

    shape: of its tensor.  constraint: where its values lie (of `tracejit.distributions.constraints`).  dims: a name
    for each dimension, for labelled results."""

    shape: tuple[int, ...] = ()
    constraint: Any = field(default_factory=lambda: constraints.real)
    dims: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.dims is not None:
            object.__setattr__(self, "dims", tuple(self.dims))
            if len(self.dims) != len(self.shape):
                raise ValueError(
                    f"Parameter(): dims must name {len(self.shape)} dimensions (shape {list(self.shape)}), got {self.dims}"
                )


@dataclass(frozen=True)
class _Block:
    """The place of a parameter in the vector: [begin, end), with the shape that its unconstrained numbers have."""

    parameter: Parameter
    transform: Any
    begin: int
    end: int
    shape: tuple[int, ...]

    @property
    def event_dim(self) -> int:
        dimension: int = self.transform.domain.event_dim
        return dimension


class Model:
    """A log-density over named parameters.

    log_density: a function of a dictionary of tensors, name -> float64 tensor of the parameter's shape that satisfies the
        constraint.  It returns a tensor without dimensions: the logarithm of the density, up to a constant.  Constants in it
        should be float64, too: `Normal(0.0, 0.1)` holds float32 numbers unless the default dtype is float64.
    parameters: name -> `Parameter`, or the shape of one without a constraint.
    coords: name of a dimension -> labels of its positions, for labelled results.

    dimension: how many unconstrained numbers there are.
    compiled: the compiled function of a float64 tensor [dimension] that returns (gradient, value).  Its `explain()` says
        whether it is one program.

    Raises ValueError for parameters without a name or with sizes that their constraint cannot have,
    NotImplementedError for a constraint without a bijection."""

    def __init__(
        self,
        log_density: Callable[[dict[str, Tensor]], Tensor],
        parameters: Mapping[str, Parameter | Sequence[int]],
        *,
        coords: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        if not parameters:
            raise ValueError("Model(): parameters must have at least one name, got none")
        self.log_density = log_density
        self.parameters = {name: p if isinstance(p, Parameter) else Parameter(tuple(p)) for name, p in parameters.items()}
        self.coords = dict(coords or {})
        self._check_coords()
        self._blocks: dict[str, _Block] = {}
        begin = 0
        for name, parameter in self.parameters.items():
            block = self._blocks[name] = _block(name, parameter, begin)
            begin = block.end
        self.dimension = begin
        self.compiled: Any = compile_function(grad_and_value(self.unconstrained_log_density))
        self._expanded: Any = compile_function(self._expand)

    def _check_coords(self) -> None:
        for name, parameter in self.parameters.items():
            for size, dim in zip(parameter.shape, parameter.dims or (), strict=False):
                if dim in self.coords and len(self.coords[dim]) != size:
                    raise ValueError(
                        f"Model(): dimension {dim!r} of parameter {name!r} has size {size}, but coords has "
                        f"{len(self.coords[dim])} labels for it"
                    )

    # -- functions of tensors
    def unconstrained_log_density(self, position: Tensor) -> Tensor:
        """The log-density of unconstrained numbers, with the log-determinants of the bijections.

        position: float64 [dimension].  Returns a tensor without dimensions.  Raises ValueError if the user's function
        returns anything else."""
        values, correction = {}, None
        for name, block in self._blocks.items():
            numbers = position[block.begin : block.end].reshape(block.shape)
            value = block.transform(numbers)
            if block.parameter.constraint is not constraints.real:
                jacobian = block.transform.log_abs_det_jacobian(numbers, value).sum()
                correction = jacobian if correction is None else correction + jacobian
            values[name] = value
        found = self.log_density(values)
        if not isinstance(found, Tensor) or found.dim():
            got = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"Model(): log_density must return a tensor without dimensions (use .sum()), got {got}")
        return found if correction is None else found + correction

    def _expand(self, position: Tensor) -> Tensor:
        """All values of the parameters, one after the other."""
        found = [
            block.transform(position[block.begin : block.end].reshape(block.shape)).reshape(-1) for block in self._blocks.values()
        ]
        return found[0].clone() if len(found) == 1 else cat(found)

    # -- arrays
    def constrain(self, positions: Any) -> dict[str, np.ndarray]:
        """The values of the parameters at unconstrained positions.

        positions: float64 [..., dimension].  Returns name -> float64 [..., *shape].  Raises ValueError for another
        last size."""
        positions = np.asarray(positions, np.float64)
        self._check_size("constrain", positions)
        lead = positions.shape[:-1]
        found = {}
        with no_grad():
            for name, block in self._blocks.items():
                numbers = from_numpy(np.ascontiguousarray(positions[..., block.begin : block.end]).reshape((*lead, *block.shape)))
                found[name] = block.transform(numbers).numpy().reshape((*lead, *block.parameter.shape))
        return found

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        """The unconstrained position, float64 [dimension], of values of all parameters.

        Raises KeyError for a name that is missing, ValueError for a name or a shape that is not the model's, and for
        values outside of their constraint."""
        unknown = [name for name in values if name not in self._blocks]
        if unknown:
            raise ValueError(f"Model.unconstrain(): unknown parameters {unknown}; the model has {list(self._blocks)}")
        position = np.empty(self.dimension)
        with no_grad():
            for name, block in self._blocks.items():
                value = tensor(np.asarray(values[name], np.float64))
                if tuple(value.shape) != block.parameter.shape:
                    expected = list(block.parameter.shape)
                    raise ValueError(f"Model.unconstrain(): {name!r} must have shape {expected}, got {list(value.shape)}")
                if not bool(block.parameter.constraint.check(value).all()):
                    raise ValueError(f"Model.unconstrain(): {name!r} must satisfy {block.parameter.constraint}, got {value}")
                position[block.begin : block.end] = block.transform.inv(value).numpy().reshape(-1)
        return position

    def evaluate(self, position: Any) -> tuple[float, np.ndarray]:
        """(log-density, gradient float64 [dimension]) at an unconstrained position."""
        position = np.array(position, np.float64)
        self._check_size("evaluate", position)
        gradient, value = self.compiled(from_numpy(position))
        return float(value), gradient.numpy()

    def initial_positions(self, chains: int, seed: int | None) -> np.ndarray:
        """Positions to start from, float64 [chains, dimension]: uniform on [-2, 2] as in Stan, and drawn again where
        the log-density raises, or the log-density or its gradient is not finite.  Raises RuntimeError if a chain has
        no such position after 100 draws."""
        random = np.random.default_rng(seed)
        found = np.empty((chains, self.dimension))
        for chain in range(chains):
            for attempt in range(_ATTEMPTS):
                found[chain] = random.uniform(-2, 2, self.dimension)
                try:
                    value, gradient = self.evaluate(found[chain])
                except Exception:  # such a position is rejected, as samplers do
                    if attempt == _ATTEMPTS - 1:
                        raise
                    continue
                if math.isfinite(value) and np.isfinite(gradient).all():
                    break
            else:
                raise RuntimeError(
                    f"Model.initial_positions(): the log-density or its gradient was not finite at {_ATTEMPTS} positions drawn from "
                    f"[-2, 2]; the last value was {value}. Pass initial positions"
                )
        return found

    def _check_size(self, method: str, positions: np.ndarray) -> None:
        if positions.ndim < 1 or positions.shape[-1] != self.dimension:
            raise ValueError(
                f"Model.{method}(): positions must have a last dimension of {self.dimension}, got shape {positions.shape}"
            )

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """The names of dimensions of the parameters that have some."""
        return {name: p.dims for name, p in self.parameters.items() if p.dims}

    def log_densities(self, positions: Any) -> np.ndarray:
        """The log-densities, float64 [n], at positions, float64 [n, dimension]: -inf where the density is not a number or
        raises an ArithmeticError or a ValueError (a matrix that is not positive definite, say)."""
        positions = np.ascontiguousarray(positions, np.float64)
        self._check_size("log_densities", positions)
        return np.array([self._log_density_or_nothing(position) for position in positions])

    def _log_density_or_nothing(self, position: np.ndarray) -> float:
        try:
            value = self.evaluate(position)[0]
        except (ArithmeticError, ValueError):
            return -math.inf
        return -math.inf if math.isnan(value) else value

    # -- C functions
    def c_log_density(self, status: str = "int64_t") -> CFunction:
        """The log-density and its gradient as the C function that samplers take: `int64_t (size_t dimension, const
        double *position, double *gradient, double *value, const void *)`.

        status: the type that it returns, int64_t or int.  It needs no Python, but where a branch takes a way that is
        not compiled; there it calls the compiled function.  Raises ffi.CannotExportError, with the reason, for a
        log-density that is not one program or has effects."""
        return self.compiled.cfunc(self._example(), prototype=f"{status} {_LOG_DENSITY}", fallback=True)  # type: ignore[no-any-return]

    def c_expand(self) -> CFunction:
        """The values of all parameters at a position, one after the other, as a C function:
        `int64_t (size_t dimension, size_t expanded, const double *position, double *values, const void *)`."""
        return self._expanded.cfunc(self._example(), prototype=_EXPAND, fallback=True)  # type: ignore[no-any-return]

    def _example(self) -> np.ndarray:
        return self.initial_positions(1, 0)[0]

    def __repr__(self) -> str:
        kinds = {name: "" if p.constraint is constraints.real else f" {p.constraint}" for name, p in self.parameters.items()}
        return f"Model({', '.join(f'{name}: {list(p.shape)}{kinds[name]}' for name, p in self.parameters.items())})"


def _block(name: str, parameter: Parameter, begin: int) -> _Block:
    transform = biject_to(parameter.constraint)
    try:
        shape = tuple(transform.inverse_shape(parameter.shape))
    except ValueError as error:
        raise ValueError(
            f"Model(): parameter {name!r} of shape {list(parameter.shape)} cannot satisfy {parameter.constraint}: {error}"
        ) from None
    return _Block(parameter, transform, begin, begin + math.prod(shape), shape)
