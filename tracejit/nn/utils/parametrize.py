"""Parametrizations: a parameter that is computed from others whenever it is read.

`module.weight` becomes a property of a class made for this module; what it is computed from is in `module.parametrizations.weight`, a
ParametrizationList with the tensor `original` (original0, original1, ... if the parametrization's right_inverse gives several).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.nn.containers import ModuleDict, ModuleList
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.tensor import Tensor

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "type_before_parametrizations",
]  # fmt: skip


class _Cache:
    """Values read inside of `cached()`, by (id of the module, name), and how many of those contexts are open."""

    depth = 0
    values: dict[tuple[int, str], Any] = {}  # noqa: RUF012  (of the process, as in PyTorch)


@contextmanager
def cached() -> Iterator[None]:
    """Inside of this context a parametrized tensor is computed once."""
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied one after the other to the original."""

    def __init__(self, modules: list[Module], original: Any, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        self._register(_inverted(modules, original), original)
        value = self()
        if not unsafe and (value.dtype is not original.dtype or tuple(value.shape) != tuple(original.shape)):
            raise ValueError(
                "Registering a parametrization may not change the shape or the dtype of the tensor, unless `unsafe` is set.\n"
                f"parametrized: {list(value.shape)} {value.dtype}, original: {list(original.shape)} {original.dtype}"
            )

    def _register(self, values: Any, original: Any) -> None:
        self.is_tensor = isinstance(values, Tensor)
        several = [values] if self.is_tensor else list(values)
        self.ntensors = len(several)
        for i, value in enumerate(several):
            name = "original" if self.is_tensor else f"original{i}"
            if isinstance(original, Parameter):
                parameter = original if self.is_tensor else Parameter(value.detach(), original.requires_grad)
                if parameter is original:
                    parameter.data = value.detach()
                self.register_parameter(name, parameter)
            else:
                self.register_buffer(name, value)

    def _originals(self) -> list[Any]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [self.__dict__[name] for name in names]

    def right_inverse(self, value: Tensor) -> None:
        """Set the original so that the parametrized tensor is `value`, as far as the parametrizations allow."""
        with no_grad():
            found = _inverted(list(self), value)
            several = [found] if self.is_tensor else list(found)
            for original, new in zip(self._originals(), several, strict=True):
                original.data = new.detach().clone()

    def forward(self) -> Any:
        """The parametrized tensor."""
        first, *rest = list(self)
        value = first(*self._originals())
        for module in rest:
            value = module(value)
        return value


def _inverted(modules: list[Module], value: Any) -> Any:
    """`value` through the right inverses of the parametrizations, the last first; those without one leave it as it is."""
    with no_grad():
        for module in reversed(modules):
            inverse = getattr(module, "right_inverse", None)
            if inverse is not None:
                value = inverse(value)
    if isinstance(value, Tensor):
        return value.detach()
    if not isinstance(value, tuple | list):
        raise ValueError(
            f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {value.__class__.__name__}"
        )
    return value


def _property(name: str) -> property:
    def read(self: Any) -> Any:
        if not _Cache.depth:
            return self.parametrizations[name]()
        key = id(self), name
        if key not in _Cache.values:
            _Cache.values[key] = self.parametrizations[name]()
        return _Cache.values[key]

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """From now on `module.<tensor_name>` is parametrization(original), or what was there before, parametrized once more.

    Raises ValueError for a name that is no parameter or buffer, and for a parametrization that changes shape or dtype unless `unsafe`."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parametrizations: Any = module.parametrizations[tensor_name]  # type: ignore[attr-defined]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            if after.dtype is not before.dtype or tuple(after.shape) != tuple(before.shape):
                raise ValueError(
                    "Registering a parametrization may not change the shape or the dtype of the tensor, unless `unsafe` is set."
                )
        if hasattr(parametrization, "right_inverse"):
            value = getattr(module, tensor_name).detach()
            parametrizations.append(parametrization)
            parametrizations.right_inverse(value)
        else:
            parametrizations.append(parametrization)
        return module
    original = module.__dict__.get(tensor_name)
    if not isinstance(original, Parameter) and tensor_name not in (module._buffer_names or {}):
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element named '{tensor_name}'"
        )
    members = ParametrizationList([parametrization], original, unsafe)
    if not is_parametrized(module):
        kind = type(module)
        name = f"Parametrized{kind.__name__}"
        module.__class__ = type(name, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__})
        module.parametrizations = ModuleDict()  # type: ignore[attr-defined]
    del module.__dict__[tensor_name]
    module.parametrizations[tensor_name] = members  # type: ignore[attr-defined]
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or its tensor of this name, is parametrized."""
    found = module.__dict__.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(len(found)) if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make `tensor_name` an ordinary parameter or buffer again: with the parametrized value, or else with the original.

    Raises ValueError where it is not parametrized, or where there are several originals to leave."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations: Any = module.parametrizations  # type: ignore[attr-defined]
    members = parametrizations[tensor_name]
    originals = members._originals()
    if len(originals) > 1 and not leave_parametrized:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is made of several tensors.")
    with no_grad():
        value = getattr(module, tensor_name).detach() if leave_parametrized else originals[0].detach()
    delattr(type(module), tensor_name)
    if isinstance(originals[0], Parameter):
        parameter = originals[0] if members.is_tensor else Parameter(value, originals[0].requires_grad)
        if parameter is originals[0] and leave_parametrized:
            parameter.data = value.clone()
        module.register_parameter(tensor_name, parameter)
    else:
        module.register_buffer(tensor_name, value)
    del parametrizations[tensor_name]
    if not len(parametrizations):
        del module.__dict__["parametrizations"]
        module.__class__ = type(module).__bases__[0]
    return module
