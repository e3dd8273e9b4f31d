"""`_parameters`, `_buffers` and `_modules` of a module: views of its attributes, for programs that go through them by these names."""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import Any

from tracejit.nn.parameter import Parameter
from tracejit.tensor import Tensor

__all__ = ["Members"]


class Members(MutableMapping[str, Any]):
    """The members of a module that are of one kind, by name and in order, as a dictionary.  Changing it changes the module.

    Members that are None are listed under the kind that they were registered or assigned as; others are found by their name."""

    def __init__(self, owner: Any, kind: str) -> None:
        self._owner = owner
        self._kind = kind

    def _own(self) -> dict[str, Any]:
        owner, kind = self._owner, self._kind
        if kind == "buffer":
            values = owner.__dict__
            return {name: values[name] for name in owner._buffer_names or () if self._is_buffer(name)}
        present = dict(owner._own_parameters() if kind == "parameter" else owner._own_modules())
        absent = {
            name for name, other in (owner._absent or {}).items() if other == kind and owner.__dict__.get(name, self) is None
        }
        if not absent:
            return present
        return {
            name.removesuffix("."): value
            for name, value in owner.__dict__.items()
            if name in absent or name.removesuffix(".") in present
        }

    def _is_buffer(self, name: str) -> bool:
        value = self._owner.__dict__.get(name, self)
        return value is None or (isinstance(value, Tensor) and not isinstance(value, Parameter))

    def __getitem__(self, name: str) -> Any:
        if self._owner.__dict__.get(name, self) is None:
            return None
        return self._own()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        register = {"buffer": "register_buffer", "parameter": "register_parameter", "module": "add_module"}[self._kind]
        getattr(self._owner, register)(name, value)

    def __delitem__(self, name: str) -> None:
        self[name]  # raises KeyError for what is of another kind
        delattr(self._owner, self._owner._key(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._own())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._own())

    def __len__(self) -> int:
        return len(self._own())

    def keys(self) -> KeysView[str]:
        """The names, as a view of what there is now."""
        return self._own().keys()

    def values(self) -> ValuesView[Any]:
        """The members, as a view of what there is now."""
        return self._own().values()

    def items(self) -> ItemsView[str, Any]:
        """(name, member), as a view of what there is now."""
        return self._own().items()

    def copy(self) -> dict[str, Any]:
        """A dictionary of its own with the same members."""
        return self._own()

    def replace(self, members: Mapping[str, Any]) -> None:
        """Hold exactly these members."""
        wanted = dict(members)
        for name in self._own():
            del self[name]
        for name, value in wanted.items():
            self[name] = value

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._own(), **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self._own()}

    def __copy__(self) -> dict[str, Any]:
        return self._own()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(self._own(), memo)

    def __repr__(self) -> str:
        return repr(self._own())
