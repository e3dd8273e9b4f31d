"""Calls of a module with other tensors in the places of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tracejit.nn.module import Module
from tracejit.ops.public.movement import stack
from tracejit.tensor import Tensor

__all__ = ["functional_call", "stack_module_state"]


def _owners(module: Module, tie_weights: bool) -> dict[str, list[tuple[Module, str]]]:
    """Dotted name -> the attributes that this name stands for: with tie_weights all that hold the same tensor."""
    by_tensor: dict[int, list[tuple[Module, str]]] = {}
    named: dict[str, tuple[Module, str]] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for name, tensor in (*owner._own_parameters(), *owner._own_buffers()):
            named[f"{path}.{name}" if path else name] = owner, name
            by_tensor.setdefault(id(tensor), []).append((owner, name))
    return {
        full: by_tensor[id(owner.__dict__[name])] if tie_weights else [(owner, name)] for full, (owner, name) in named.items()
    }


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with these tensors, by dotted name, as its parameters and buffers for the time of the call.

    Raises ValueError for a name in two of the dictionaries; RuntimeError, if strict, for names that are missing or too many."""
    given: dict[str, Any] = {}
    several = [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, Mapping) else parameter_and_buffer_dicts
    for mapping in several:
        for name, tensor in mapping.items():
            if name in given:
                raise ValueError(f"{name} appears in multiple dictionaries; behavior of functional call is ambiguous")
            given[name] = tensor
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced_members(module, given, tie_weights=tie_weights, strict=strict):
        return module(*positional, **(kwargs or {}))


@contextmanager
def replaced_members(
    module: Module, given: Mapping[str, Any], *, tie_weights: bool = True, strict: bool = False
) -> Iterator[None]:
    """A context in which a module has these tensors, by dotted name, as its parameters and buffers.

    Raises RuntimeError, if strict, for names that are missing or too many, KeyError for one that the module has not."""
    owners = _owners(module, tie_weights)
    unexpected = [name for name in given if name not in owners]
    missing = [name for name in owners if name not in given]
    if strict and (unexpected or missing):
        raise RuntimeError(f"Error(s) in functional_call(): missing key(s) {missing}, unexpected key(s) {unexpected}")
    if unexpected:
        raise KeyError(f"functional_call(): the module has no parameter or buffer named {unexpected[0]!r}")
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, tensor in given.items():
            for owner, attribute in owners[name]:
                before.append((owner.__dict__, attribute, owner.__dict__[attribute]))
                owner.__dict__[attribute] = tensor
        yield
    finally:
        for attributes, name, tensor in reversed(before):
            attributes[name] = tensor


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and buffers of modules that are alike, stacked: two dictionaries, as for vmap over functional_call."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(of: Any) -> dict[str, Any]:
        tables = [dict(of(m)) for m in models]
        found: dict[str, Any] = {}
        for key, first in tables[0].items():
            value: Tensor = stack([table[key] for table in tables])
            found[key] = (
                value.detach().requires_grad_(first.requires_grad) if first.is_leaf and first.is_floating_point() else value
            )
        return found

    return stacked(Module.named_parameters), stacked(Module.named_buffers)
