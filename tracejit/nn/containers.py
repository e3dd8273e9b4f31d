"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

Members are instance attributes as in any module (those of lists named "0", "1", ...), so that assigning `net.fc1 = layer` or
`setattr(net, "0", layer)` changes the container itself and nothing is kept twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.tensor import Tensor
from tracejit.tensor.shell import typename

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _ModuleSequence(Module):
    """What Sequential and ModuleList share: access by position."""

    def _items(self) -> list[Module]:
        return [value for value in self.__dict__.values() if isinstance(value, Module)]

    def _names(self) -> list[str]:
        return [name for name, value in self.__dict__.items() if isinstance(value, Module)]

    def _name_at(self, index: int) -> str:
        names = self._names()
        position = index.__index__()
        if not -len(names) <= position < len(names):
            raise IndexError(f"index {index} is out of range for a {type(self).__name__} of {len(names)} modules")
        return names[position]

    def _replace(self, modules: Iterable[Module]) -> None:
        """Hold exactly these modules, named by their positions."""
        items = list(modules)
        for name in self._names():
            del self.__dict__[name]
        for position, module in enumerate(items):
            self.add_module(str(position), module)

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items())

    def __reversed__(self) -> Iterator[Module]:
        return reversed(self._items())

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        items = self._items()
        del items[index]
        self._replace(items)

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before position `index`."""
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__}.insert(): expected a Module, got {module.__class__.__name__}")
        items = self._items()
        items.insert(index, module)
        self._replace(items)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, index: int = -1) -> Module:
        """Remove and return the module at a position."""
        module = self._items()[index]
        del self[index]
        return module


class Sequential(_ModuleSequence):
    """Modules called one after the other: Sequential(a, b, ...) or Sequential({"name": a, ...})."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for position, module in enumerate(modules):
                self.add_module(str(position), module)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)({name: self.__dict__[name] for name in self._names()[index]})
        return self.__dict__[self._name_at(index)]

    def forward(self, input: Any) -> Any:
        """Each module applied to the result of the one before."""
        for module in self._items():
            input = module(input)
        return input


class ModuleList(_ModuleSequence):
    """A list of modules whose parameters are found; it is not called itself."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(self._items()[index])
        return self.__dict__[self._name_at(index)]

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Neighbours that look alike are written once, with their number."""
        lines, start = [], 0
        for text, group in itertools.groupby(repr(module) for module in self):
            count = len(list(group))
            head = f"({start})" if count == 1 else f"({start}-{start + count - 1})"
            lines.append(f"{head}: {'' if count == 1 else f'{count} x '}{text}".replace("\n", "\n  "))
            start += count
        name = type(self).__name__
        return f"{name}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{name}()"


class ModuleDict(Module):
    """A dict of modules whose parameters are found; it is not called itself."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        value = self.__dict__[key]
        if not isinstance(value, Module):
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __len__(self) -> int:
        return len(list(self.items()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return isinstance(self.__dict__.get(key), Module)  # type: ignore[call-overload]

    def keys(self) -> list[str]:
        """The names, in order."""
        return [name for name, value in self.__dict__.items() if isinstance(value, Module)]

    def values(self) -> list[Module]:
        """The modules, in order."""
        return [value for value in self.__dict__.values() if isinstance(value, Module)]

    def items(self) -> list[tuple[str, Module]]:
        """(name, module), in order."""
        return [(name, value) for name, value in self.__dict__.items() if isinstance(value, Module)]

    def pop(self, key: str) -> Module:
        """Remove and return a module."""
        module = self[key]
        del self.__dict__[key]
        return module

    def clear(self) -> None:
        """Remove all modules."""
        for name in self.keys():
            del self.__dict__[name]

    def update(self, modules: Any) -> None:
        """Add the modules of a mapping, or of (name, module) pairs."""
        for name, module in dict(modules).items():
            self.add_module(name, module)


def _as_member(value: Any) -> Any:
    """What a container of parameters keeps: plain tensors become parameters."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(value: Any, legacy: bool = False) -> str:
    """A line about what a list or dict of parameters holds; dicts have the older names of dtypes in it, as PyTorch's have."""
    kind = "Parameter" if isinstance(value, Parameter) else "Object"
    if not isinstance(value, Tensor):
        return f"{kind} of type: {value.__class__.__name__}"
    return f"{kind} containing: [{typename(value) if legacy else repr(value.dtype)} of size {'x'.join(map(str, value.shape))}]"


class ParameterList(Module):
    """A list of parameters.  Tensors put into it become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name_at(self, index: int) -> str:
        position = index.__index__()
        if not -self._size <= position < self._size:
            raise IndexError(f"index {index} is out of range for a ParameterList of {self._size} parameters")
        return str(position % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList([self.__dict__[str(i)] for i in range(*index.indices(self._size))])
        return self.__dict__[self._name_at(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        self.__dict__[self._name_at(index)] = _as_member(value)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__dict__[str(i)] for i in range(self._size)])

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self.__dict__[str(self._size)] = _as_member(value)
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))


class ParameterDict(Module):
    """A dict of parameters.  Tensors put into it become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: list[str] = []
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self.__dict__[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._keys:
            if hasattr(self, key):
                raise KeyError(f"attribute '{key}' already exists")
            self._keys.append(key)
        self.__dict__[key] = _as_member(value)

    def __delitem__(self, key: str) -> None:
        if key not in self._keys:
            raise KeyError(key)
        self._keys.remove(key)
        del self.__dict__[key]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> list[str]:
        """The names, in order."""
        return list(self._keys)

    def values(self) -> list[Any]:
        """The parameters, in order."""
        return [self.__dict__[key] for key in self._keys]

    def items(self) -> list[tuple[str, Any]]:
        """(name, parameter), in order."""
        return [(key, self.__dict__[key]) for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Add the parameters of a mapping, or of (name, parameter) pairs."""
        for key, value in dict(parameters).items():
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_describe(value, legacy=True)}" for key, value in self.items())
