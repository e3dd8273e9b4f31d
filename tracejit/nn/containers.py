"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

Members are instance attributes as in any module (those of lists named "0", "1", ...), so that assigning `net.fc1 = layer` or
`setattr(net, "0", layer)` changes the container itself and nothing is kept twice.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter
from tracejit.tensor import Tensor
from tracejit.tensor.shell import typename

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _check_iterable(name: str, values: Any, what: str = "an iterable") -> None:
    """Raises TypeError unless `values` can be gone through; a tensor is a value, and no sequence of them."""
    if not isinstance(values, Iterable) or isinstance(values, Tensor):
        raise TypeError(f"{name} should be called with {what}, but got {values.__class__.__name__}")


class _Container(Module):
    """What all containers share: members with numbers for names are no attributes to list."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class _ModuleSequence(_Container):
    """What Sequential and ModuleList share: access by position."""

    def _members(self) -> dict[str, Any]:
        """The modules by name, with the members that are None."""
        if self._absent:
            return self._modules.copy()
        return {name: value for name, value in self.__dict__.items() if isinstance(value, Module)}

    def _items(self) -> list[Any]:
        if self._absent:
            return list(self._members().values())
        return [value for value in self.__dict__.values() if isinstance(value, Module)]

    def _names(self) -> list[str]:
        if self._absent:
            return list(self._members())
        return [name for name, value in self.__dict__.items() if isinstance(value, Module)]

    def _name_at(self, index: int) -> str:
        names = self._names()
        position = index.__index__()
        if not -len(names) <= position < len(names):
            raise IndexError(f"index {index} is out of range for a {type(self).__name__} of {len(names)} modules")
        return names[position]

    def _replace(self, modules: Iterable[Any]) -> None:
        """Hold exactly these modules, named by their positions."""
        items = list(modules)
        for name in self._names():
            del self.__dict__[name]
        for position, module in enumerate(items):
            self.add_module(str(position), module)

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._items())

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        items = self._items()
        if isinstance(index, slice):
            del items[index]
        else:
            del items[self._names().index(self._name_at(index))]
        self._replace(items)

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        _check_iterable(f"{type(self).__name__}.extend", modules)
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: Any) -> Any:
        """Remove and return the module at a position, or those of a slice."""
        module = self[key]  # type: ignore[index]
        del self[key]
        return module


class Sequential(_ModuleSequence):
    """Modules called one after the other: Sequential(a, b, ...) or Sequential({"name": a, ...})."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for position, module in enumerate(args):
                self.add_module(str(position), module)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)({name: self.__dict__[name] for name in self._names()[index]})
        return self.__dict__[self._name_at(index)]

    def insert(self, index: int, module: Module) -> Sequential:
        """Add a module before position `index`.  Raises IndexError beyond either end, AssertionError for what is no module."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}, got {module.__class__.__name__}")
        items = self._items()
        if not -len(items) <= index <= len(items):
            raise IndexError(f"Index out of range: {index}")
        items.insert(index, module)
        self._replace(items)
        return self

    def _check_other(self, other: Any) -> None:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")

    def _check_factor(self, other: Any) -> None:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")

    def __add__(self, other: Any) -> Sequential:
        self._check_other(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Sequential:
        self._check_other(other)
        self.extend(other)
        return self

    def __mul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return Sequential(*(self._items() * other))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Sequential:
        self._check_factor(other)
        self.extend(self._items() * (other - 1))
        return self

    def forward(self, input: Any) -> Any:
        """Each module applied to the result of the one before."""
        for module in self._items():
            input = module(input)
        return input


class ModuleList(_ModuleSequence):
    """A list of modules whose parameters are found; it is not called itself.  Members may be None."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(self._items()[index])
        return self.__dict__[self._name_at(index)]

    def insert(self, index: int, module: Module) -> None:
        """Add a module before position `index`."""
        if not isinstance(module, Module | None):
            raise TypeError(f"{type(self).__name__}.insert(): expected a Module, got {module.__class__.__name__}")
        items = self._items()
        items.insert(index, module)
        self._replace(items)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

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


class ModuleDict(_Container):
    """A dict of modules whose parameters are found; it is not called itself.  Members may be None."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _members(self) -> dict[str, Any]:
        """The modules by name, with the members that are None."""
        if self._absent:
            return self._modules.copy()
        return {name: value for name, value in self.__dict__.items() if isinstance(value, Module)}

    def __getitem__(self, key: str) -> Any:
        value = self.__dict__[key]
        if not isinstance(value, Module) and key not in self._members():
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __len__(self) -> int:
        return len(self._members())

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __contains__(self, key: object) -> bool:
        return isinstance(self.__dict__.get(key), Module) or (bool(self._absent) and key in self._members())  # type: ignore[call-overload]

    def keys(self) -> KeysView[str]:
        """The names, in order, as a view of what there is now."""
        return self._members().keys()

    def values(self) -> ValuesView[Any]:
        """The modules, in order, as a view of what there is now."""
        return self._members().values()

    def items(self) -> ItemsView[str, Any]:
        """(name, module), in order, as a view of what there is now."""
        return self._members().items()

    def pop(self, key: str) -> Any:
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
        _check_iterable("ModuleDict.update", modules, "an iterable of key/value pairs")
        for name, module in _pairs("ModuleDict", modules):
            self.add_module(name, module)


def _pairs(name: str, given: Any) -> list[tuple[str, Any]]:
    """(key, value) of a mapping or of pairs.  Raises TypeError or ValueError, before anything is changed, for what is no pair."""
    if isinstance(given, Mapping | ModuleDict | ParameterDict):
        return list(given.items())
    pairs = []
    for position, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{name} update sequence element #{position} should be Iterable; is {pair.__class__.__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{name} update sequence element #{position} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs


def _as_member(value: Any) -> Any:
    """What a container of parameters keeps: plain tensors become parameters."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(value: Any, legacy: bool = False) -> str:
    """A line about what a list or dict of parameters holds; dicts have the older names of dtypes in it, as PyTorch's have."""
    kind = "Parameter" if isinstance(value, Parameter) else "Object"
    if not isinstance(value, Tensor):
        return f"{kind} of type: {value.__class__.__name__}"
    return f"{kind} containing: [{typename(value) if legacy else repr(value.dtype)} of size {'x'.join(map(str, value.shape))}]"


class ParameterList(_Container):
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
            return type(self)([self.__dict__[str(i)] for i in range(*index.indices(self._size))])
        return self.__dict__[self._name_at(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name_at(index), _as_member(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__dict__[str(i)] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        setattr(self, str(self._size), _as_member(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        _check_iterable("ParameterList.extend", values)
        for value in list(values):
            self.append(value)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))


class ParameterDict(_Container):
    """A dict of parameters.  Tensors put into it become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self.__dict__[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(
                f"Index given to ParameterDict cannot be used as a key as it is not a string (type is {key.__class__.__name__!r})"
            )
        if key not in self._keys:
            if hasattr(self, key):
                raise KeyError(f"attribute '{key}' already exists")
            self._keys[key] = None
        setattr(self, key, _as_member(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        del self.__dict__[key]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> KeysView[str]:
        """The names, in order."""
        return self._keys.keys()

    def _members(self) -> dict[str, Any]:
        return {key: self.__dict__[key] for key in self._keys}

    def values(self) -> ValuesView[Any]:
        """The parameters, in order, as a view of what there is now."""
        return self._members().values()

    def items(self) -> ItemsView[str, Any]:
        """(name, parameter), in order, as a view of what there is now."""
        return self._members().items()

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, or `default` where there is none."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of a name, which is `default` from now on where there was none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove and return a parameter."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last (name, parameter).  Raises KeyError where there is none."""
        if not self._keys:
            raise KeyError("popitem(): this ParameterDict is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all parameters."""
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """A ParameterDict of the same parameters."""
        return ParameterDict(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A ParameterDict of these names, each with `default`."""
        return ParameterDict((key, default) for key in keys)

    def update(self, parameters: Any) -> None:
        """Add the parameters of a mapping, or of (name, parameter) pairs; those of a plain mapping in the order of their names."""
        _check_iterable("ParametersDict.update", parameters, "an iterable of key/value pairs")
        pairs = _pairs("ParameterDict", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs.sort(key=lambda pair: pair[0])
        for key, value in pairs:
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: Any) -> ParameterDict:
        merged: ParameterDict = other.copy()
        merged.update(self)
        return merged

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_describe(value, legacy=True)}" for key, value in self.items())
