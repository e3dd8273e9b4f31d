"""Operations that programs register, by namespace and name: what `tracejit.ops.namespace.name` finds."""

from __future__ import annotations

__all__ = ["Namespace", "Namespaces", "existing_namespace", "namespace_of"]


class Namespace:
    """The operations of a namespace, as attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"there is no operation {self._name}::{name}; library.custom_op({f'{self._name}::{name}'!r}, ...) makes one"
        )

    def __repr__(self) -> str:
        return f"<operations of {self._name!r}: {', '.join(sorted(set(vars(self)) - {'_name'}))}>"


_namespaces: dict[str, Namespace] = {}


def namespace_of(name: str) -> Namespace:
    """The namespace of a name; it is made where there is none."""
    if name not in _namespaces:
        _namespaces[name] = Namespace(name)
    return _namespaces[name]


def existing_namespace(name: str) -> Namespace | None:
    """The namespace of a name; None where nothing is registered in it."""
    return _namespaces.get(name)


class Namespaces:
    """All namespaces, as attributes: `torch.ops` under compat."""

    def load_library(self, path: object) -> None:
        """Raises NotImplementedError: operators written in C++ are not loaded."""
        raise NotImplementedError(
            f"ops.load_library({path!r}): tracejit loads no operators written in C++; write them with library.custom_op()"
        )

    def __getattr__(self, name: str) -> Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        return namespace_of(name)
