"""Reading and changing attributes: Python's protocol, followed step by step.

Where Python would find an attribute decides what is guarded: the classes along the MRO that define it or do not, the instance's
dictionary, properties and other descriptors (whose Python code is called through the recorder).  An instance's dictionary is an
outside container like any other, so `o.x` and `o.__dict__["x"]` are one place.
"""

from __future__ import annotations

import collections
import enum
import threading
import types
from typing import Any

from tracejit.capture.effects import EffectHandlers
from tracejit.capture.policies import C_CALLABLES, PRIMITIVE_TYPES, instance_dictionary, is_a, is_heap_type, is_library_module
from tracejit.capture.recorder import ABSENT
from tracejit.capture.symbols import is_symbolic, plain
from tracejit.tensor import Tensor

__all__ = ["AttributeHandlers", "SuperProxy"]

_IMMUTABLE_TYPE = 1 << 8
_SLOT_DESCRIPTORS: tuple[type, ...] = (
    types.MemberDescriptorType, types.GetSetDescriptorType, type(collections.namedtuple("_Probe", "x").x),  # type: ignore[attr-defined]
)  # fmt: skip
_TENSOR_STATE = frozenset({"grad_fn", "_version", "_node", "_array", "_storage", "_grad", "_hooks", "_base"})
_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__


def _intercepts(cls: type) -> bool:
    """Whether reading an attribute of an instance runs code of the program; guards must go past it."""
    return cls.__getattribute__ is not object.__getattribute__ and type(cls.__getattribute__) is types.FunctionType


def _dictionary_text(cls: type, expression: str) -> str:
    return f"object.__getattribute__({expression}, '__dict__')" if _intercepts(cls) else f"{expression}.__dict__"


class SuperProxy:
    """`super()` in instrumented code."""

    __slots__ = ("cls", "instance")

    def __init__(self, cls: type, instance: Any) -> None:
        self.cls = cls
        self.instance = instance


class AttributeHandlers(EffectHandlers):
    """`o.name`, `o.name = v`, `del o.name`, and the class lookups that special methods need."""

    def __init__(self) -> None:
        super().__init__()
        self._class_dictionaries: dict[type, Any] = {}  # one proxy object per class, so that guards name it once

    # -- classes
    def lookup(self, cls: type, name: str) -> tuple[Any, Any]:
        """(attribute, dictionary of the class that has it), guarded along the MRO; (ABSENT, None) where there is none."""
        mro = _class_mro(cls)
        if is_heap_type(cls) and self.first_time("mro", cls):
            self.miss_if(f"{self.constant(cls)}.__mro__ is not {self.constant(mro)}")
        return self._lookup_in(mro, name)

    def _lookup_in(self, classes: tuple[type, ...], name: str) -> tuple[Any, Any]:
        for cls in classes:
            dictionary = self._class_dictionaries.get(cls)
            if dictionary is None:
                dictionary = self._class_dictionaries[cls] = _class_dict(cls)
            changeable = is_heap_type(cls) and not cls.__flags__ & _IMMUTABLE_TYPE
            if name in dictionary:
                value = dictionary[name]
                if changeable and (is_a(value, (property, staticmethod, classmethod)) or callable(value)):
                    self.read(value, f"{self.constant(dictionary)}[{name!r}]", by_identity=True)
                return value, dictionary
            if changeable and self.first_time("no class attribute", cls, name):
                self.miss_if(f"{name!r} in {self.constant(dictionary)}")
        return ABSENT, None

    # -- reading
    def get_attribute(self, owner: Any, name: str) -> Any:
        if type(owner) is SuperProxy:
            return self._super_attribute(owner, name)
        cls: Any = type(owner)
        if is_symbolic(owner) or cls in PRIMITIVE_TYPES:
            return getattr(owner, name)
        if is_a(owner, Tensor):
            return self._tensor_attribute(owner, name)
        if cls is types.ModuleType:
            return self._module_attribute(owner, name)
        if is_a(owner, type):
            return self._class_attribute(owner, name)
        if is_a(owner, enum.Enum):
            return self._native_getattr(owner, name)
        if is_a(owner, threading.local):
            return self._opaque_attribute(owner, name)
        if not is_heap_type(cls) or is_a(owner, (BaseException, types.MethodType, types.FunctionType)):
            return self._builtin_attribute(owner, name)
        getter = cls.__getattribute__
        if getter is not object.__getattribute__ and type(getter) is types.FunctionType:
            found, _ = self.lookup(cls, "__getattribute__")
            try:
                return self.call(found, (owner, name), {})
            except AttributeError:
                fallback, _ = self.lookup(cls, "__getattr__")
                if type(fallback) is types.FunctionType:
                    return self.call(fallback, (owner, name), {})
                raise
        if self.first_time("getattribute", cls):
            self.lookup(cls, "__getattribute__")
        return self.instance_attribute(owner, name)

    def instance_attribute(self, owner: Any, name: str, *, fallback: bool = True) -> Any:
        """object.__getattribute__, then `__getattr__` if `fallback`."""
        cls = type(owner)
        found, dictionary = self.lookup(cls, name)
        if found is not ABSENT and hasattr(type(found), "__set__"):
            return self._data_descriptor(owner, name, found)
        instance = instance_dictionary(owner)
        if instance is not None:
            key = (id(instance), name)
            if name in instance:
                if key in self.stored:
                    return self.stored[key]
                expression = self.sources.get(id(owner))
                if expression is None or key in self.written:
                    return instance[name]
                hidden = found is not ABSENT and hasattr(type(found), "__get__")
                text = f"{_dictionary_text(cls, expression)}[{name!r}]" if hidden or _intercepts(cls) else f"{expression}.{name}"
                self.instance_reads.add(text)
                return self.read(instance[name], text, symbolic=True)
            self._guard_missing(owner, instance, name)
        if found is not ABSENT:
            return self._class_found(owner, cls, name, found, dictionary)
        if fallback:
            handler, _ = self.lookup(cls, "__getattr__")
            if type(handler) is types.FunctionType:
                return self.call(handler, (owner, name), {})
        raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=owner)

    def _guard_missing(self, owner: Any, instance: dict[str, Any], name: str) -> None:
        expression = self.sources.get(id(owner))
        if expression is not None and (id(instance), name) not in self.written and self.first_time("missing", expression, name):
            self.miss_if(f"{name!r} in {_dictionary_text(type(owner), expression)}")

    def _data_descriptor(self, owner: Any, name: str, found: Any) -> Any:
        if is_a(found, property):
            return self.call(found.fget, (owner,), {}) if found.fget is not None else getattr(owner, name)
        if is_a(found, _SLOT_DESCRIPTORS):
            value = getattr(owner, name)
            key = (id(owner), name)
            if key in self.stored:
                return self.stored[key]
            expression = self.sources.get(id(owner))
            if expression is None:
                return value
            if name == "__dict__":
                if not self.is_outside(value):
                    self.register(value, _dictionary_text(type(owner), expression))
                return value
            return value if key in self.written else self.read(value, f"{expression}.{name}", symbolic=True)
        getter, _ = self.lookup(type(found), "__get__")
        if type(getter) is types.FunctionType:
            return self.call(getter, (found, owner, type(owner)), {})
        self.stop("descriptor", f"{type(owner).__name__}.{name}")
        return getattr(owner, name)

    def _class_found(self, owner: Any, cls: type, name: str, found: Any, dictionary: Any) -> Any:
        """A class attribute that is no data descriptor, read through an instance."""
        if type(found) is types.FunctionType:
            return types.MethodType(found, owner)
        if is_a(found, staticmethod):
            return found.__func__
        if is_a(found, classmethod):
            return types.MethodType(found.__func__, cls)
        getter, _ = self.lookup(type(found), "__get__")
        if type(getter) is types.FunctionType:
            return self.call(getter, (found, owner, cls), {})
        if getter is not ABSENT:
            value = getattr(owner, name)
            expression = self.sources.get(id(owner))
            if expression is not None and not callable(value):
                self.read(value, f"{expression}.{name}")
            return value
        return found if callable(found) else self.read(found, f"{self.constant(dictionary)}[{name!r}]", symbolic=True)

    def _tensor_attribute(self, tensor: Tensor, name: str) -> Any:
        if name in _TENSOR_STATE:
            self.stop("tensor_state", f"reading .{name}")
            return getattr(tensor, name)
        found, _ = self.lookup(type(tensor), name)
        if found is ABSENT:
            return self.instance_attribute(tensor, name)
        self.inspect(tensor)
        if type(found) is types.FunctionType:
            return types.MethodType(found, tensor)
        if is_a(found, property) and not is_library_module(getattr(found.fget, "__module__", None)):
            return self.call(found.fget, (tensor,), {})
        return self._native_getattr(tensor, name)

    def _native_getattr(self, owner: Any, name: str) -> Any:
        self.native_depth += 1
        try:
            return getattr(owner, name)
        finally:
            self.native_depth -= 1

    def _module_attribute(self, module: types.ModuleType, name: str) -> Any:
        value = getattr(module, name)
        if name in module.__dict__:
            return self.read_global(module.__dict__, name, value)
        self.stop("descriptor", f"{module.__name__}.{name}")
        return value

    def _class_attribute(self, cls: type, name: str) -> Any:
        if is_a(cls, enum.EnumMeta):
            value = self._native_getattr(cls, name)
            return self.read(value, f"{self.constant(cls)}.{name}")
        found, dictionary = self.lookup(cls, name)
        value = getattr(cls, name) if type(cls) is type else self._native_getattr(cls, name)
        if found is not ABSENT and (
            not callable(value) or type(value) not in (*C_CALLABLES, types.FunctionType, types.MethodType)
        ):
            if value is found:
                return self.read(found, f"{self.constant(dictionary)}[{name!r}]", symbolic=True)
            self.read(found, f"{self.constant(dictionary)}[{name!r}]", by_identity=not is_a(found, Tensor))
        return value

    def _opaque_attribute(self, owner: Any, name: str) -> Any:
        """Attributes of thread-local storage: only getattr reaches them."""
        expression = self.sources.get(id(owner))
        try:
            value = getattr(owner, name)
        except AttributeError:
            if expression is not None:
                self.namespace["getattr"] = getattr
                self.miss_if(f"getattr({expression}, {name!r}, ABSENT) is not ABSENT")
            raise
        return value if expression is None else self.read(value, f"{expression}.{name}", symbolic=True)

    def _builtin_attribute(self, owner: Any, name: str) -> Any:
        value = getattr(owner, name)
        expression = self.sources.get(id(owner))
        if expression is not None and not (callable(value) and is_a(value, C_CALLABLES)):
            return self.read(value, f"{expression}.{name}")
        return value

    def _super_attribute(self, proxy: SuperProxy, name: str) -> Any:
        instance = proxy.instance
        cls = instance if is_a(instance, type) else type(instance)
        mro = _class_mro(cls)
        self.lookup(cls, "__class__")  # guards the MRO
        found, _ = self._lookup_in(mro[mro.index(proxy.cls) + 1 :], name)
        if found is ABSENT:
            raise AttributeError(f"'super' object has no attribute {name!r}")
        if type(found) is types.FunctionType:
            return types.MethodType(found, instance)
        if is_a(found, types.WrapperDescriptorType) and not is_a(instance, type):
            return types.MethodType(
                found, instance
            )  # object.__setattr__ and the like: called through the policy of the C function
        return getattr(super(proxy.cls, instance), name)

    # -- changing
    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        cls = type(owner)
        if is_a(owner, (type, types.ModuleType, types.FunctionType)):
            self.stop("shared_store", cls.__name__)
            setattr(owner, name, plain(value))
            return
        if not is_a(owner, Tensor):
            setter, _ = self.lookup(cls, "__setattr__")
            if type(setter) is types.FunctionType:
                self.call(setter, (owner, name, value), {})
                return
        self.plain_set_attribute(value, owner, name)

    def plain_set_attribute(self, value: Any, owner: Any, name: str) -> None:
        """object.__setattr__."""
        found, _ = self.lookup(type(owner), name)
        if is_a(found, property):
            if found.fset is None:
                setattr(owner, name, plain(value))
            else:
                self.call(found.fset, (owner, value), {})
            return
        if found is not ABSENT and hasattr(type(found), "__set__") and type(found) is not types.MemberDescriptorType:
            setter, _ = self.lookup(type(found), "__set__")
            if type(setter) is types.FunctionType:
                self.call(setter, (found, owner, value), {})
                return
            self.stop("descriptor", f"{type(owner).__name__}.{name}")
            setattr(owner, name, plain(value))
            return
        object.__setattr__(owner, name, plain(value))
        self.note_attribute(owner, name, value)

    def delete_attribute(self, owner: Any, name: str) -> None:
        cls = type(owner)
        if is_a(owner, (type, types.ModuleType, types.FunctionType)):
            self.stop("shared_store", cls.__name__)
            delattr(owner, name)
            return
        deleter, _ = self.lookup(cls, "__delattr__")
        if type(deleter) is types.FunctionType:
            self.call(deleter, (owner, name), {})
            return
        self.plain_delete_attribute(owner, name)

    def plain_delete_attribute(self, owner: Any, name: str) -> None:
        """object.__delattr__."""
        if self.is_outside(owner) and name not in (instance_dictionary(owner) or {}):
            self.stop("descriptor", f"{type(owner).__name__}.{name} (deleted)")
        elif self.is_outside(owner):
            self.instance_attribute(owner, name, fallback=False)
        object.__delattr__(owner, name)
        self.note_attribute(owner, name, ABSENT)
