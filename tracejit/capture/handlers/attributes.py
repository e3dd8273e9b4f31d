"""Reading and changing attributes: Python's protocol, followed step by step.

Where Python would find an attribute decides what is guarded: the classes along the MRO that define it or do not, the instance's
dictionary, properties and other descriptors (whose Python code is called through the recorder).  An instance's dictionary is an
outside container like any other, so `o.x` and `o.__dict__["x"]` are one place.  Objects of C code are asked by Python itself, once
what Python code of the program could have to say in it has been dealt with.
"""

from __future__ import annotations

import collections
import enum
import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.contents import membership
from tracejit.capture.handlers.effects import AttributeStore
from tracejit.capture.handlers.stand_ins import plain, plain_value
from tracejit.capture.handlers.symbols import SuperProxy, concrete, is_symbolic
from tracejit.capture.policies import (
    C_CALLABLES,
    C_METHODS,
    KEEPING_NAMES,
    PRIMITIVE_TYPES,
    builtin_base,
    instance_dictionary,
    is_a,
    is_changeable,
    is_empty,
    is_heap_type,
    is_library_module,
    is_name,
    module_of,
    storing_base,
)
from tracejit.replay.ir import Constant, Expr, Name, Not
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["AttributeHandlers"]

_TENSOR_STATE = frozenset({"grad_fn", "_version", "_node", "_array", "_storage", "_grad", "_hooks", "_base"})
_STATELESS: tuple[type, ...] = (types.FunctionType, staticmethod, classmethod, property, type)
"""What is found in a class and compared by its identity: whatever else it may hold is read when it is used."""
_SHARED: tuple[type, ...] = (type, types.ModuleType)
_STORED = Name("stored")
"""Stands for the expression of an attribute of a class that this run has set."""
_ENUM_PROPERTIES = {"name": "_name_", "value": "_value_"}
_METHODS_OF_CONTAINERS: dict[tuple[type, str], types.MethodDescriptorType] = {
    (cls, name): method
    for cls in (list, tuple, dict, set, frozenset, collections.deque, collections.defaultdict)
    for name in dir(cls)
    if type(method := getattr(cls, name)) is types.MethodDescriptorType
}
"""By the class and the name: no such class can change, nor has an instance attributes of its own."""
_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__
_class_bases = type.__dict__["__bases__"].__get__


def _intercepts(cls: type) -> bool:
    """Whether reading an attribute of an instance runs code of the program; guards must go past it."""
    return cls.__getattribute__ is not object.__getattribute__ and type(cls.__getattribute__) is types.FunctionType


def _attributes_of(cls: type, owner: Expr) -> Expr:
    return Name("object").method("__getattribute__", owner, "__dict__") if _intercepts(cls) else owner.get("__dict__")


def _looks_up_as_usual(cls: type) -> bool:
    """Whether instances have the attributes that their class and their dictionary say: C code may have other ways."""
    base = builtin_base(cls)
    if issubclass(base, (types.MethodType, super, *weakref.ProxyTypes)):
        return False
    package = module_of(base).partition(".")[0]
    return package in sys.stdlib_module_names or package in ("builtins", "numpy")


def _is_of_program(method: Any, name: str) -> bool:
    """Whether a class of the program has given itself this special method."""
    return type(method) is types.FunctionType or (is_a(method, C_METHODS) and method.__name__ != name)


def _is_descriptor(value: Any) -> bool:
    """Whether what is found in a class is asked what it is for an instance."""
    return any(hasattr(type(value), name) for name in ("__get__", "__set__", "__delete__"))


def _is_data_descriptor(found: Any) -> bool:
    """Whether it comes before what is in an instance's dictionary."""
    return hasattr(type(found), "__get__") and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"))


class AttributeHandlers(Handlers):
    """`o.name`, `o.name = v`, `del o.name`, and the class lookups that special methods need."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._classes: dict[
            type, tuple[Any, bool]
        ] = {}  # one proxy object of its dictionary, so that guards name it once; may it change between calls
        self._usual: dict[type, tuple[tuple[type, ...], bool]] = {}  # what _looks_up_as_usual says, and for which MRO

    # -- classes
    def lookup(self, cls: type, name: str) -> tuple[Any, Expr | None]:
        """(attribute, its expression), guarded along the MRO; ABSENT where there is none.  The expression is None where no such class can
        change, and that of nothing where this run has set it.  Data has still to be read, by whoever needs it."""
        recorder = self.recorder
        known = recorder.class_misses.get((cls, name))
        if known is not None and known[0] is _class_mro(cls):
            for dictionary in known[1]:
                if name in dictionary:
                    break
            else:
                if recorder.effects.written.isdisjoint(known[2]):
                    return ABSENT, None
        mro = self.read_mro(cls)
        found = self._lookup_in(mro, name)
        if found[0] is ABSENT:
            recorder.class_misses[cls, name] = mro, list(map(self.class_dictionary, mro)), [(id(owner), name) for owner in mro]
        return found

    def read_mro(self, cls: type) -> tuple[type, ...]:
        """The classes that `cls` inherits from, guarded."""
        recorder = self.recorder
        mro: tuple[type, ...] = _class_mro(cls)
        if is_heap_type(cls) and recorder.first_time("mro", cls):
            if id(cls) in recorder.created:
                for base in _class_bases(cls):
                    self.read_mro(base)
            else:
                recorder.miss_if(recorder.constant(cls).get("__mro__").is_not(recorder.constant(mro)))
        return mro

    def lookup_after(self, cls: type, of: type, name: str) -> tuple[Any, Expr | None]:
        """The same as `lookup`, in the classes that come after `cls` in the MRO of another one."""
        mro = self.read_mro(of)
        return self._lookup_in(mro[mro.index(cls) + 1 :], name)

    def _lookup_in(self, classes: tuple[type, ...], name: str) -> tuple[Any, Expr | None]:
        recorder = self.recorder
        for cls in classes:
            dictionary, changeable = self._classes.get(cls) or self._class(cls)
            if (id(cls), name) in recorder.effects.written:
                return recorder.effects.stored.get((id(cls), name), dictionary[name]), _STORED
            if name in dictionary:
                value = dictionary[name]
                if not changeable:
                    return (recorder.classes.attribute(cls, name, value) if id(cls) in recorder.created else value), None
                known = recorder.class_reads.get((cls, name))
                if known is not None and known[0] is value:
                    return known
                place = recorder.constant(dictionary).at(name)
                if is_a(value, _STATELESS):
                    recorder.read(value, place, called=f"{cls.__name__}.{name}", by_identity=True)
                    recorder.class_reads[cls, name] = value, place
                elif value is None or callable(value) or hasattr(type(value), "__get__"):
                    recorder.read(value, place, called=f"{cls.__name__}.{name}")
                    if value is None:
                        recorder.class_reads[cls, name] = value, place
                return value, place
            if changeable and recorder.first_time("no class attribute", cls, name):
                recorder.miss_if(recorder.constant(dictionary).has(name))
        return ABSENT, None

    def class_dictionary(self, cls: type) -> Any:
        """What is in a class, by the one object that guards look at."""
        return (self._classes.get(cls) or self._class(cls))[0]

    def _class(self, cls: type) -> tuple[Any, bool]:
        is_made = id(cls) in self.recorder.created  # nobody else has it: no guard is on it
        known = self._classes[cls] = _class_dict(cls), is_changeable(cls) and not is_made
        return known

    def method(self, value: Any, name: str) -> Any:
        """The special method `name` of `value` if it is a Python function of the program; None where C code answers, or nobody."""
        found, _ = self.lookup(type(value), name)
        return found if type(found) is types.FunctionType and found.__module__ != "enum" else None

    # -- reading
    def _is_changed(self, owner: Any, name: str) -> bool:
        """Whether a call that is put off may have given an object another attribute of this name: its methods stay."""
        return (
            id(owner) in self.recorder.effects.changed
            and name not in KEEPING_NAMES
            and type(getattr(type(owner), name, None)) not in C_CALLABLES
        )

    def get_attribute(self, owner: Any, name: str) -> Any:
        recorder = self.recorder
        cls: Any = type(owner)
        if type(name) is not str:
            return getattr(concrete(owner), concrete(name))
        if recorder.plain_classes.get(cls) is _class_mro(cls) and type(cls.__getattribute__) is not types.FunctionType:
            if recorder.effects.changed and self._is_changed(owner, name):
                recorder.stop("read_after_change", f"a {cls.__name__}")
            return self.instance_attribute(owner, name)
        if (cls, name) in _METHODS_OF_CONTAINERS:
            return _METHODS_OF_CONTAINERS[cls, name].__get__(owner, cls)
        if cls is SuperProxy:
            return self._super_attribute(owner, name)
        if issubclass(cls, Tensor) and not recorder.effects.changed:
            return self._tensor_attribute(owner, name)
        if recorder.arrays.is_array(owner) and (not recorder.is_outside(owner) or recorder.arrays.asks_contents(owner, name)):
            return recorder.arrays.array_attribute(owner, name)
        if cls is types.GeneratorType and plain(owner) is not owner and name not in ("__next__", "__iter__"):
            recorder.stop("descriptor", f"{type(plain(owner)).__name__}.{name}")
            return getattr(plain(owner), name)
        method = recorder.generators.generator_method(owner, name) or recorder.arrays.prologue_method(owner, name)
        if method is not None:
            return method
        if recorder.effects.changed and self._is_changed(owner, name):
            recorder.stop("read_after_change", f"a {cls.__name__}")
        if is_symbolic(owner) or cls in PRIMITIVE_TYPES:
            return recorder.outside_calls.post_program_attribute(owner, name) if is_symbolic(owner) else getattr(owner, name)
        if is_a(owner, Tensor):
            return self._tensor_attribute(owner, name)
        if is_a(owner, type):
            return self._class_attribute(owner, name)
        if is_a(owner, types.ModuleType) and cls.__getattribute__ is types.ModuleType.__getattribute__:
            return self._module_attribute(owner, name)
        if is_a(owner, threading.local):
            return self._opaque_attribute(owner, name)
        if cls is types.MethodType and name not in dir(types.MethodType):
            return self.get_attribute(self.part(owner, "__func__", owner.__func__), name)
        if type(cls.__getattribute__) is not types.FunctionType:
            if not self._looks_up_as_usual(cls):
                return self._native_attribute(owner, name)
        else:
            found, _ = self.lookup(cls, "__getattribute__")
            return self._or_fallback(lambda *given: recorder.calls.call(found, given, {}), owner, name)
        if recorder.first_time("getattribute", cls):
            self.lookup(cls, "__getattribute__")
        if builtin_base(cls) is object:
            recorder.plain_classes[cls] = _class_mro(cls)
        return self.instance_attribute(owner, name)

    def _looks_up_as_usual(self, cls: type) -> bool:
        mro = _class_mro(cls)
        known = self._usual.get(cls)
        if known is None or known[0] is not mro:
            known = self._usual[cls] = mro, _looks_up_as_usual(cls)
        return known[1]

    def _stores_as_usual(self, cls: type) -> bool:
        """The same of storing attributes."""
        return not issubclass(cls, _SHARED) and self._looks_up_as_usual(cls)

    def referent(self, reference: Any) -> Any:
        """What a weak reference refers to."""
        recorder = self.recorder
        if recorder.effects.dropped:
            recorder.stop("impure_call", "a weak reference, once something was dropped")
        value, expression = weakref.ref.__call__(reference), recorder.sources.get(id(reference))
        return value if expression is None else recorder.read(value, recorder.constant(weakref.ref.__call__).call(expression))

    def attributes_of(self, value: Any) -> Any:
        """vars(value)"""
        value = concrete(value)
        if instance_dictionary(value) is None:
            if hasattr(value, "__dict__"):
                self.recorder.stop("descriptor", f"{type(value).__name__}.__dict__")
            return vars(value)  # or it raises what is to be raised
        return self.recorder.require_known(self.get_attribute(value, "__dict__"))

    def part(self, owner: Any, name: str, value: Any) -> Any:
        """`value` is what an object of C code has had as `name` since it was made."""
        recorder = self.recorder
        expression = recorder.sources.get(id(owner))
        return (
            value
            if expression is None
            else recorder.read(value, expression.get(name), called=recorder.facts.attribute(owner, name))
        )

    def instance_attribute(self, owner: Any, name: str, *, fallback: bool = True) -> Any:
        """object.__getattribute__, then `__getattr__` if `fallback`."""
        return self._or_fallback(self._found_attribute, owner, name, fallback)

    def _or_fallback(self, find: Callable[[Any, str], Any], owner: Any, name: str, fallback: bool = True) -> Any:
        """What `find` finds; where there is no such attribute, what `__getattr__` says of it, if `fallback`."""
        try:
            return find(owner, name)
        except AttributeError:
            handler = self.lookup(type(owner), "__getattr__")[0] if fallback else ABSENT
            if type(handler) is not types.FunctionType and not is_a(handler, C_METHODS):
                raise
        return self.recorder.calls.call(handler, (owner, name), {})

    def _found_attribute(self, owner: Any, name: str) -> Any:
        recorder = self.recorder
        cls = type(owner)
        found, path = self.lookup(cls, name)
        if found is not ABSENT and _is_data_descriptor(found):
            return self._data_descriptor(owner, name, found)
        instance = self._dictionary_of(owner)
        if instance is not None:
            key = (id(instance), name)
            if dict.__contains__(instance, name):
                if key in recorder.effects.stored:
                    return recorder.effects.stored[key]
                expression = recorder.sources.get(id(owner))
                if expression is None or key in recorder.effects.written:
                    return dict.__getitem__(instance, name)
                hidden = found is not ABSENT and hasattr(type(found), "__get__")
                dotted = is_name(name) and not (hidden or _intercepts(cls))
                place = expression.get(name) if dotted else _attributes_of(cls, expression).at(name)
                recorder.instance_reads.add(place)
                called, truths = recorder.facts.attribute(owner, name), False if callable(owner) else None
                value = dict.__getitem__(instance, name)
                return recorder.read(value, place, called=called, symbolic=True, truths=truths)
            self._guard_missing(owner, instance, name)
        if found is not ABSENT:
            return self.bound_attribute(found, name, path, owner, cls)
        value = object.__getattribute__(owner, name)  # it raises what is to be raised
        recorder.stop("descriptor", f"{cls.__name__}.{name}")
        return value

    def _dictionary_of(self, owner: Any) -> dict[str, Any] | None:
        """The dictionary of an instance.  Where it is not one of its own, but the instance itself, or something else that the program has,
        it is guarded which one it is: its items and the attributes are the same places."""
        recorder = self.recorder
        instance = instance_dictionary(owner)
        if instance is None or (type(instance) is dict and id(instance) not in recorder.sources):
            return instance
        expression = recorder.sources.get(id(owner))
        if expression is not None and recorder.first_time("dictionary", id(owner)):
            if builtin_base(type(instance)) is not dict:
                recorder.stop("descriptor", f"{type(owner).__name__}.__dict__, a {type(instance).__name__}")
            recorder.read(instance, _attributes_of(type(owner), expression))
        return instance

    def _guard_missing(self, owner: Any, instance: dict[str, Any], name: str) -> None:
        recorder = self.recorder
        expression = recorder.sources.get(id(owner))
        if (
            expression is not None
            and (id(instance), name) not in recorder.effects.written
            and recorder.first_time("missing", expression, name)
        ):
            recorder.miss_if(membership(type(instance), _attributes_of(type(owner), expression), Constant(name)))

    def _data_descriptor(self, owner: Any, name: str, found: Any) -> Any:
        recorder = self.recorder
        if type(found) is property:
            return (
                object.__getattribute__(owner, name)
                if found.fget is None
                else recorder.calls.call(recorder.mark_fixed(found.fget), (owner,), {})
            )
        if is_a(owner, enum.Enum) and name in _ENUM_PROPERTIES and type(found).__module__ == "enum":
            return self._found_attribute(owner, _ENUM_PROPERTIES[name])
        getter, _ = self.lookup(type(found), "__get__")
        if type(getter) is types.FunctionType:
            return recorder.calls.call(getter, (found, owner, type(owner)), {})
        key = (id(owner), name)
        expression = recorder.sources.get(id(owner))
        try:
            value = object.__getattribute__(owner, name)
        except AttributeError:  # an empty slot; the program may catch it
            if expression is not None and key not in recorder.effects.written:
                recorder.namespace["is_empty"] = is_empty
                recorder.miss_if(Not(Name("is_empty").call(recorder.constant(found), expression)))
            raise
        if key in recorder.effects.stored:
            return recorder.effects.stored[key]
        if expression is None:
            if name == "__context__" and is_a(owner, BaseException):
                recorder.read_handled()
            if name == "__dict__" and type(value) is dict:
                recorder.effects.open(value)
            return (
                recorder.mark_created(value)
                if type(value) is tuple or name == "__dict__" or is_a(owner, types.FunctionType)
                else value
            )
        if name == "__dict__":
            return self._outside_dictionary(owner)
        if key in recorder.effects.written:
            return value
        called, truths = recorder.facts.attribute(owner, name), True if is_a(owner, tuple) else None
        return recorder.read(value, expression.get(name), called=called, symbolic=True, truths=truths)

    def _outside_dictionary(self, owner: Any) -> Any:
        """The dictionary of an instance from outside, which the program has from here on."""
        recorder = self.recorder
        instance = self._dictionary_of(owner)
        if instance is not None and not recorder.is_outside(instance):
            recorder.register(instance, _attributes_of(type(owner), recorder.sources[id(owner)]))
            recorder.facts.call_dictionary(instance, owner)
        return instance

    def bound_attribute(self, found: Any, name: str, path: Expr | None, owner: Any, cls: type) -> Any:
        """What `found`, the attribute `name` of a class in `cls`'s MRO that is no data descriptor, is for `owner` (None: for the class
        itself)."""
        recorder = self.recorder
        kind = type(found)
        if path is _STORED:
            return found
        if kind is types.FunctionType:
            return found if owner is None else recorder.mark_created(types.MethodType(found, owner))
        if kind is staticmethod:
            return recorder.mark_fixed(found.__func__)
        if kind is classmethod and type(found.__func__) is types.FunctionType:
            return recorder.mark_created(types.MethodType(recorder.mark_fixed(found.__func__), cls))
        getter, _ = self.lookup(kind, "__get__")
        if getter is ABSENT:
            return (
                recorder.mark_fixed(found)
                if path is None
                else recorder.read(found, path, called=f"{cls.__name__}.{name}", symbolic=True)
            )
        if kind is functools.cached_property and owner is not None and found.attrname is not None and hasattr(owner, "__dict__"):
            value = recorder.calls.call(recorder.mark_fixed(found.func), (owner,), {})
            recorder.containers.set_item(value, self.get_attribute(owner, "__dict__"), found.attrname)
            return value
        if type(getter) is types.FunctionType:
            return recorder.calls.call(getter, (found, owner, cls), {})
        value = found.__get__(owner, cls)
        if value is not found and type(value) not in (*C_CALLABLES, types.MethodType):
            recorder.stop("descriptor", f"{cls.__name__}.{getattr(found, '__name__', kind.__name__)}")
        return value

    def _tensor_attribute(self, tensor: Tensor, name: str) -> Any:
        recorder = self.recorder
        if name in _TENSOR_STATE:
            recorder.stop("tensor_state", f"reading .{name}")
            return getattr(tensor, name)
        found, _ = self.lookup(type(tensor), name)
        if found is ABSENT or (type(found) is types.FunctionType and name in vars(tensor)):
            return self.instance_attribute(tensor, name)
        if not recorder.ragged.is_independent_of_size(tensor, name, found):
            recorder.inspect(tensor)
        if name == "__dict__":
            return self._dictionary_of_tensor(tensor)
        if type(found) is types.FunctionType:
            return recorder.mark_created(types.MethodType(found, tensor))
        if type(found) is property and not is_library_module(getattr(found.fget, "__module__", None)):
            return recorder.calls.call(recorder.mark_fixed(found.fget), (tensor,), {})
        return recorder.mark_created(recorder.containers.native(lambda: getattr(tensor, name)))

    def _dictionary_of_tensor(self, tensor: Tensor) -> Any:
        """What the program has put on a tensor."""
        if self.recorder.is_outside(tensor):
            return self._outside_dictionary(tensor)
        instance = tensor.__dict__
        self.recorder.effects.open(instance)
        return self.recorder.mark_created(instance)

    def _module_attribute(self, module: types.ModuleType, name: str) -> Any:
        recorder = self.recorder
        names = module.__dict__
        if name in names:
            return recorder.effects.read_global(names, name, names[name])
        held = recorder.constant(names)
        recorder.miss_if(held.has(name))
        found, _ = self.lookup(type(module), name)
        if found is not ABSENT:
            return self._found_attribute(module, name)
        if "__getattr__" in names:
            return recorder.calls.call(recorder.effects.read_global(names, "__getattr__", names["__getattr__"]), (name,), {})
        recorder.miss_if(held.has("__getattr__"))
        return getattr(module, name)

    def _class_attribute(self, cls: type, name: str) -> Any:
        recorder = self.recorder
        kind = type(cls)
        if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
            return recorder.read(recorder.containers.native(lambda: getattr(cls, name)), recorder.constant(cls).get(name))
        if kind.__getattribute__ is not type.__getattribute__ or name == "__dict__":
            recorder.stop("descriptor", f"{cls.__name__}.{name}")
            return getattr(cls, name)
        inherited, inherited_path = self.lookup(kind, name)  # from the metaclass
        if inherited is not ABSENT and _is_data_descriptor(inherited):
            if type(inherited) is property and inherited.fget is not None:
                return recorder.calls.call(recorder.mark_fixed(inherited.fget), (cls,), {})
            getter, _ = self.lookup(type(inherited), "__get__")
            if type(getter) is types.FunctionType:
                return recorder.calls.call(getter, (inherited, cls, kind), {})
            value = getattr(cls, name)
            return (
                recorder.mark_created(value)
                if recorder.is_created(cls)
                else recorder.read(value, recorder.constant(cls).get(name))
            )
        found, path = self.lookup(cls, name)
        if found is not ABSENT:
            return self.bound_attribute(found, name, path, None, cls)
        if inherited is not ABSENT:
            return self.bound_attribute(inherited, name, inherited_path, cls, kind)
        fallback, _ = self.lookup(kind, "__getattr__")
        if type(fallback) is types.FunctionType:
            return recorder.calls.call(fallback, (cls, name), {})
        return getattr(cls, name)  # it raises what is to be raised

    def _opaque_attribute(self, owner: Any, name: str) -> Any:
        """Attributes of thread-local storage: only getattr reaches them."""
        recorder = self.recorder
        place, expression = (id(owner), name), recorder.sources.get(id(owner))
        if place in recorder.effects.stored:
            return recorder.effects.stored[place]
        if place in recorder.effects.written:
            expression = None
        try:
            value = getattr(owner, name)
        except AttributeError:
            if expression is not None:
                recorder.miss_if(Name("getattr").call(expression, name, Name("ABSENT")).is_not(Name("ABSENT")))
            raise
        if expression is None:
            return value
        return recorder.read(value, expression.get(name), called=recorder.facts.attribute(owner, name), symbolic=True)

    def _native_attribute(self, owner: Any, name: str) -> Any:
        """An object of C code with a way of its own to look attributes up."""
        if type(owner) is types.MethodType:
            return self.part(owner, name, getattr(owner, name))
        self.recorder.stop("descriptor", f"{type(owner).__name__}.{name}")
        return getattr(owner, name)

    def _super_attribute(self, proxy: SuperProxy, name: str) -> Any:
        instance = proxy.instance
        of_class = is_a(instance, type) and issubclass(instance, proxy.cls)
        cls = instance if of_class else type(instance)
        found: Any = ABSENT
        path: Expr | None = None
        if name != "__class__" and proxy.cls in self.read_mro(cls):
            found, path = self.lookup_after(proxy.cls, cls, name)
        if found is ABSENT:
            return getattr(super(proxy.cls, instance), name)
        if type(found) is property and found.fget is not None and not of_class:
            return self.recorder.calls.call(self.recorder.mark_fixed(found.fget), (instance,), {})
        if not of_class and type(found) in (types.MemberDescriptorType, types.GetSetDescriptorType):
            return self._data_descriptor(instance, name, found)
        return self.bound_attribute(found, name, path, None if of_class else instance, cls)

    # -- changing
    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        recorder = self.recorder
        owner, value = concrete(owner), recorder.contents.value_to_store(value)
        cls = type(owner)
        store, _ = self.lookup(cls, "__setattr__")
        if _is_of_program(store, "__setattr__") and not is_a(owner, Tensor):
            recorder.calls.call(store, (owner, name, value), {})
        elif self._stores_as_usual(cls):
            self.plain_set_attribute(value, owner, name)
        elif is_a(owner, type) and recorder.is_created(owner) and recorder.classes.is_settable(owner, name):
            recorder.classes.set_attribute(owner, name, value)
        elif is_a(owner, type) and self._is_plain_in_class(owner, name, value):
            recorder.mark_fixed(owner)
            recorder.effects.check_dropped(_class_dict(owner).get(name))
            setattr(owner, name, plain_value(value))
            recorder.effects.note_store((id(owner), name), AttributeStore(owner, name, value))
        elif is_a(owner, types.ModuleType) and not _is_data_descriptor(self.lookup(cls, name)[0]):
            owner.__dict__[name] = recorder.effects.write_global(owner.__dict__, name, value)
        else:
            self._stop_storing(owner, name)
            setattr(owner, name, plain_value(value))

    def _is_plain_in_class(self, cls: type, name: str, value: Any) -> bool:
        """Whether to store an attribute of a class changes nothing but what is found there: no method or other descriptor comes or goes."""
        if self.recorder.is_created(cls) or not is_changeable(cls) or (name.startswith("__") and name.endswith("__")):
            return False
        kind = type(cls)
        if self.lookup(kind, "__setattr__")[0] is not type.__setattr__ or kind.__getattribute__ is not type.__getattribute__:
            return False
        return self.lookup(kind, name)[0] is ABSENT and not any(map(_is_descriptor, (_class_dict(cls).get(name), value)))

    def _stop_storing(self, owner: Any, name: str) -> None:
        cls = type(owner)
        if is_a(owner, _SHARED):
            self.recorder.stop("shared_store", cls.__name__)
        else:
            self.recorder.stop("descriptor", f"{cls.__name__}.{name}")

    def plain_set_attribute(self, value: Any, owner: Any, name: str) -> None:
        """object.__setattr__."""
        recorder = self.recorder
        if is_a(owner, types.FunctionType) and recorder.is_created(owner):
            setattr(owner, name, recorder.contents.concrete_contents(value))
            return
        if is_a(owner, _SHARED) or type(name) is not str:
            self._stop_storing(owner, name)
            setattr(owner, name, plain_value(value))
            return
        found, _ = self.lookup(type(owner), name)
        if type(found) is property:
            if found.fset is None:
                object.__setattr__(owner, name, plain_value(value))  # it raises what is to be raised
            else:
                recorder.calls.call(recorder.mark_fixed(found.fset), (owner, value), {})
            return
        if found is not ABSENT and hasattr(type(found), "__set__") and type(found) is not types.MemberDescriptorType:
            setter, _ = self.lookup(type(found), "__set__")
            if type(setter) is types.FunctionType:
                recorder.calls.call(setter, (found, owner, value), {})
                return
            recorder.stop("descriptor", f"{type(owner).__name__}.{name}")
            setattr(owner, name, plain_value(value))
            return
        self._note_instance(owner, name, found)
        storing_base(owner).__setattr__(owner, name, plain_value(value))
        recorder.effects.note_attribute(owner, name, value)

    def delete_attribute(self, owner: Any, name: str) -> None:
        owner = concrete(owner)
        cls = type(owner)
        delete, _ = self.lookup(cls, "__delattr__")
        if _is_of_program(delete, "__delattr__"):
            self.recorder.calls.call(delete, (owner, name), {})
        elif self._stores_as_usual(cls) and type(name) is str:
            self.plain_delete_attribute(owner, name)
        else:
            self._stop_storing(owner, name)
            self.recorder.perform(lambda: delattr(owner, name))

    def plain_delete_attribute(self, owner: Any, name: str) -> None:
        """object.__delattr__."""
        recorder = self.recorder
        found, _ = self.lookup(type(owner), name)
        instance = self._dictionary_of(owner)
        if type(found) is property and found.fdel is not None:
            recorder.calls.call(recorder.mark_fixed(found.fdel), (owner,), {})
            return
        if found is not ABSENT and hasattr(type(found), "__delete__"):
            deleter, _ = self.lookup(type(found), "__delete__")
            if type(deleter) is types.FunctionType:
                recorder.calls.call(deleter, (found, owner), {})
                return
            recorder.stop("descriptor", f"{type(owner).__name__}.{name} (deleted)")
        elif recorder.is_outside(owner) and is_a(owner, threading.local):
            self._opaque_attribute(owner, name)
        elif recorder.is_outside(owner) and instance is not None and dict.__contains__(instance, name):
            self.instance_attribute(owner, name, fallback=False)
        self._note_instance(owner, name, found)
        recorder.perform(lambda: storing_base(owner).__delattr__(owner, name))
        recorder.effects.note_attribute(owner, name, ABSENT)

    def _note_instance(self, owner: Any, name: str, found: Any) -> None:
        """The attribute `name` of `owner` is about to be changed."""
        recorder = self.recorder
        if not recorder.is_outside(owner):
            return
        instance = self._dictionary_of(owner)
        if instance is not None:
            recorder.effects.check_dropped(dict.get(instance, name))
            recorder.effects.note_change(instance)
        elif is_a(found, types.MemberDescriptorType) and not is_empty(found, owner):
            recorder.effects.check_dropped(found.__get__(owner))
