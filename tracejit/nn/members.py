"""`_parameters`, `_buffers` and `_modules` of a module: views of its attributes, for programs that go through them by these names."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

__all__ = ["Members"]


class Members(MutableMapping[str, Any]):
    """The attributes of a module that belong to one kind, by name and in order.  Changing the view changes the module.

    An attribute that is None may be one of any kind: it is found by its name, and not listed."""

    def __init__(self, owner: Any, kind: str) -> None:
        self._owner = owner
        self._kind = kind

    def _own(self) -> dict[str, Any]:
        if self._kind == "buffer":
            return dict(self._owner._own_buffers())
        return dict(self._owner._own_parameters() if self._kind == "parameter" else self._owner._own_modules())

    def __getitem__(self, name: str) -> Any:
        if self._owner.__dict__.get(name, self) is None:
            return None
        return self._own()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        register = {"buffer": "register_buffer", "parameter": "register_parameter", "module": "add_module"}[self._kind]
        getattr(self._owner, register)(name, value)

    def __delitem__(self, name: str) -> None:
        self[name]  # raises KeyError for what is of another kind
        delattr(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._own())

    def __len__(self) -> int:
        return len(self._own())

    def __repr__(self) -> str:
        return repr(self._own())
