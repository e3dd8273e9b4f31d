"""Handlers of attributes: reading, storing and deleting them by Python's protocol, step by step.

What is guarded follows from where Python looks: the classes along the MRO, which define the name or do not; the dictionary of the
instance; properties and other descriptors.  Descriptors written in Python are called through the recorder.  The dictionary of an
instance is an outside container like any other, so `o.x` and `o.__dict__["x"]` are one place.  For an object of C code Python
itself does the lookup, after the handlers have done what Python code of the program adds to it (`__getattribute__`,
`__setattr__`, a descriptor).
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
from tracejit.capture.handlers.symbols import SuperProxy, concretise
from tracejit.capture.policies import (
    C_CALLABLES,
    C_METHODS,
    KEEPING_NAMES,
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
from tracejit.capture.value_kinds import Kind, by_kind, kind_of
from tracejit.replay.ir import Constant, Expr, Name, Not
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["AttributeHandlers"]

_TENSOR_STATE = frozenset({"grad_fn", "_version", "_node", "_array", "_storage", "_grad", "_hooks", "_base"})
_GRAD_STATE = frozenset({"requires_grad", "is_leaf", "backward", "retain_grad", "register_hook", "numpy", "__array__"})
"""Attributes that tell whether a tensor requires grad, or may raise if it does."""
_STATELESS: tuple[type, ...] = (types.FunctionType, staticmethod, classmethod, property, type)
"""Types of class attributes that are guarded by identity alone: what they hold is read and guarded when it is used."""
_SHARED: tuple[type, ...] = (type, types.ModuleType)
_STORED = Name("stored")
"""The expression that `lookup` gives for a class attribute that this run has stored."""
_ENUM_PROPERTIES = {"name": "_name_", "value": "_value_"}
_METHODS_OF_CONTAINERS: dict[tuple[type, str], types.MethodDescriptorType] = {
    (cls, name): method
    for cls in (list, tuple, dict, set, frozenset, collections.deque, collections.defaultdict)
    for name in dir(cls)
    if type(method := getattr(cls, name)) is types.MethodDescriptorType
}
"""Methods of builtin containers, which need no guard: the classes cannot change, and instances have no dictionary."""
_class_dict = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__
_class_bases = type.__dict__["__bases__"].__get__


def _intercepts(cls: type) -> bool:
    """Whether `cls` has a `__getattribute__` in Python, which reads of instances run.  Guards must bypass it."""
    return cls.__getattribute__ is not object.__getattribute__ and type(cls.__getattribute__) is types.FunctionType


def _attributes_of(cls: type, owner: Expr) -> Expr:
    """The expression of `owner.__dict__`.  cls: the class of the owner."""
    return Name("object").method("__getattribute__", owner, "__dict__") if _intercepts(cls) else owner.get("__dict__")


def _looks_up_as_usual(cls: type) -> bool:
    """Whether instances look attributes up in their class and dictionary only, unlike `weakref.proxy`."""
    base = builtin_base(cls)
    if issubclass(base, (types.MethodType, super, *weakref.ProxyTypes)):
        return False
    package = module_of(base).partition(".")[0]
    return package in sys.stdlib_module_names or package in ("builtins", "numpy")


def _is_of_program(method: Any, name: str) -> bool:
    """Whether the program has defined `method`, which a class has as special method `name`; if not, it is C code's."""
    return type(method) is types.FunctionType or (is_a(method, C_METHODS) and method.__name__ != name)


def _is_descriptor(value: Any) -> bool:
    """Whether a class attribute is a descriptor."""
    return any(hasattr(type(value), name) for name in ("__get__", "__set__", "__delete__"))


def _is_data_descriptor(attribute: Any) -> bool:
    """Whether a class attribute is a data descriptor, which takes precedence over the dictionary of an instance."""
    return hasattr(type(attribute), "__get__") and (hasattr(type(attribute), "__set__") or hasattr(type(attribute), "__delete__"))


class AttributeHandlers(Handlers):
    """Handlers of `o.name`, `o.name = v` and `del o.name`, and the lookups in classes that special methods need."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        # By class: the proxy of its dictionary (one object, so that guards share a constant), and whether the class may change.
        self._classes: dict[type, tuple[Any, bool]] = {}
        self._usual: dict[type, tuple[tuple[type, ...], bool]] = {}  # by class: its MRO, and the result of _looks_up_as_usual

    # -- classes
    def lookup(self, cls: type, name: str) -> tuple[Any, Expr | None]:
        """Look `name` up along the MRO of `cls`, as `type` does, with guards on each class; returns (attribute, expression).

        (ABSENT, None) if no class has it.  The expression is None if the class cannot change between calls, and `_STORED` if this
        run has stored the attribute.  Functions, descriptors and None are guarded here; other data is not: the caller has to
        `read` it where it needs it."""
        recorder = self.recorder
        cached = recorder.class_misses.get((cls, name))
        if cached is not None and cached[0] is _class_mro(cls):
            for dictionary in cached[1]:
                if name in dictionary:
                    break
            else:
                if recorder.effects.written.keys().isdisjoint(cached[2]):
                    return ABSENT, None
        mro = self.read_mro(cls)
        result = self._lookup_in(mro, name)
        if result[0] is ABSENT:
            recorder.class_misses[cls, name] = mro, list(map(self.class_dictionary, mro)), [(id(owner), name) for owner in mro]
        return result

    def read_mro(self, cls: type) -> tuple[type, ...]:
        """The MRO of `cls`, guarded if it may change."""
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
        """Like `lookup`, in the classes that follow `cls` in the MRO of `of`, as `super` does."""
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
                cached = recorder.class_reads.get((cls, name))
                if cached is not None and cached[0] is value:
                    return cached
                reading = recorder.constant(dictionary).at(name)
                if is_a(value, _STATELESS):
                    recorder.read(value, reading, called=f"{cls.__name__}.{name}", by_identity=True)
                    recorder.class_reads[cls, name] = value, reading
                elif value is None or callable(value) or hasattr(type(value), "__get__"):
                    recorder.read(value, reading, called=f"{cls.__name__}.{name}")
                    if value is None:
                        recorder.class_reads[cls, name] = value, reading
                return value, reading
            if changeable and recorder.first_time("no class attribute", cls, name):
                recorder.miss_if(recorder.constant(dictionary).has(name))
        return ABSENT, None

    def class_dictionary(self, cls: type) -> Any:
        """The proxy of the dictionary of `cls`: one object for each class, which guards refer to."""
        return (self._classes.get(cls) or self._class(cls))[0]

    def _class(self, cls: type) -> tuple[Any, bool]:
        is_created = id(cls) in self.recorder.created  # this call alone can change it: it needs no guards
        entry = self._classes[cls] = _class_dict(cls), is_changeable(cls) and not is_created
        return entry

    def method(self, value: Any, name: str) -> Any:
        """The special method `name` of `value` if it is a Python function of the program; else None."""
        attribute, _ = self.lookup(type(value), name)
        return attribute if type(attribute) is types.FunctionType and attribute.__module__ != "enum" else None

    # -- reading
    def _check_unchanged(self, owner: Any, name: str) -> None:
        """Stop the recording if a deferred call may have changed the attribute `name` of `owner`.  Such a call changes no methods."""
        if (
            id(owner) in self.recorder.effects.changed
            and name not in KEEPING_NAMES
            and type(getattr(type(owner), name, None)) not in C_CALLABLES
        ):
            self.recorder.stop("read_after_change", f"a {type(owner).__name__}")

    def get_attribute(self, owner: Any, name: str) -> Any:
        """owner.name"""
        cls: Any = type(owner)
        if type(name) is not str:
            return getattr(concretise(owner), concretise(name))
        if self.recorder.plain_classes.get(cls) is _class_mro(cls) and type(cls.__getattribute__) is not types.FunctionType:
            self._check_unchanged(owner, name)
            return self.instance_attribute(owner, name)
        return _ATTRIBUTES[kind_of(owner)](self, owner, name)

    def _attribute_of_plain(self, owner: Any, name: str) -> Any:
        return getattr(owner, name)

    def _attribute_of_stand_in(self, owner: Any, name: str) -> Any:
        return self.recorder.outside_calls.post_program_attribute(owner, name)

    def _attribute_of_array(self, owner: Any, name: str) -> Any:
        arrays = self.recorder.arrays
        if not self.recorder.is_outside(owner) or arrays.asks_contents(owner, name):
            return arrays.array_attribute(owner, name)
        method = arrays.prologue_method(owner, name)
        return self._attribute_of_object(owner, name) if method is None else method

    def _attribute_of_container(self, owner: Any, name: str) -> Any:
        method = _METHODS_OF_CONTAINERS.get((type(owner), name))
        return self._attribute_of_object(owner, name) if method is None else method.__get__(owner, type(owner))

    def _attribute_of_object(self, owner: Any, name: str) -> Any:
        """By the `__getattribute__` of its class, of Python code or of C code that looks up in the usual way; else natively."""
        recorder = self.recorder
        cls: Any = type(owner)
        if cls is SuperProxy:
            return self._super_attribute(owner, name)
        if cls is types.GeneratorType and plain(owner) is not owner and name not in ("__next__", "__iter__"):
            recorder.stop("descriptor", f"{type(plain(owner)).__name__}.{name}")
            return getattr(plain(owner), name)
        method = recorder.generators.generator_method(owner, name)
        if method is not None:
            return method
        self._check_unchanged(owner, name)
        if is_a(owner, types.ModuleType) and cls.__getattribute__ is types.ModuleType.__getattribute__:
            return self._module_attribute(owner, name)
        if is_a(owner, threading.local):
            return self._opaque_attribute(owner, name)
        if cls is types.MethodType and name not in dir(types.MethodType):
            return self.get_attribute(self.part(owner, "__func__", owner.__func__), name)
        if type(cls.__getattribute__) is types.FunctionType:
            attribute, _ = self.lookup(cls, "__getattribute__")
            return self._or_fallback(lambda *given: recorder.calls.call(attribute, given, {}), owner, name)
        if not self._looks_up_as_usual(cls):
            return self._native_attribute(owner, name)
        if recorder.first_time("getattribute", cls):
            self.lookup(cls, "__getattribute__")
        if builtin_base(cls) is object:
            recorder.plain_classes[cls] = _class_mro(cls)
        return self.instance_attribute(owner, name)

    def _looks_up_as_usual(self, cls: type) -> bool:
        """The function of this name, cached by class."""
        mro = _class_mro(cls)
        cached = self._usual.get(cls)
        if cached is None or cached[0] is not mro:
            cached = self._usual[cls] = mro, _looks_up_as_usual(cls)
        return cached[1]

    def _stores_as_usual(self, cls: type) -> bool:
        """Whether storing an attribute in an instance of `cls` affects its dictionary, slots and descriptors only."""
        return not issubclass(cls, _SHARED) and self._looks_up_as_usual(cls)

    def referent(self, reference: Any) -> Any:
        """reference(), for a weak reference."""
        recorder = self.recorder
        if recorder.effects.dropped:
            recorder.stop("impure_call", "a weak reference, once something was dropped")
        value, expression = weakref.ref.__call__(reference), recorder.sources.get(id(reference))
        return value if expression is None else recorder.read(value, recorder.constant(weakref.ref.__call__).call(expression))

    def attributes_of(self, value: Any) -> Any:
        """vars(value)"""
        value = concretise(value)
        if instance_dictionary(value) is None:
            if hasattr(value, "__dict__"):
                self.recorder.stop("descriptor", f"{type(value).__name__}.__dict__")
            return vars(value)  # which raises Python's error if it has none
        return self.recorder.require_known(self.get_attribute(value, "__dict__"))

    def part(self, owner: Any, name: str, value: Any) -> Any:
        """`value`, guarded: the attribute `name` of an object of C code that never changes (`__func__` of a method)."""
        recorder = self.recorder
        expression = recorder.sources.get(id(owner))
        return (
            value
            if expression is None
            else recorder.read(value, expression.get(name), called=recorder.facts.attribute(owner, name))
        )

    def instance_attribute(self, owner: Any, name: str, *, fallback: bool = True) -> Any:
        """object.__getattribute__, then `__getattr__` if `fallback`."""
        return self._or_fallback(self._object_attribute, owner, name, fallback)

    def _or_fallback(self, get: Callable[[Any, str], Any], owner: Any, name: str, fallback: bool = True) -> Any:
        """get(owner, name); if that raises AttributeError and `fallback` is set, the result of `__getattr__`."""
        try:
            return get(owner, name)
        except AttributeError:
            handler = self.lookup(type(owner), "__getattr__")[0] if fallback else ABSENT
            if type(handler) is not types.FunctionType and not is_a(handler, C_METHODS):
                raise
        return self.recorder.calls.call(handler, (owner, name), {})

    def _object_attribute(self, owner: Any, name: str) -> Any:
        """object.__getattribute__(owner, name)"""
        recorder = self.recorder
        cls = type(owner)
        attribute, path = self.lookup(cls, name)
        if attribute is not ABSENT and _is_data_descriptor(attribute):
            return self._data_descriptor(owner, name, attribute)
        instance = self._dictionary_of(owner)
        if instance is not None:
            key = (id(instance), name)
            if dict.__contains__(instance, name):
                if key in recorder.effects.stored:
                    return recorder.effects.stored[key]
                expression = recorder.sources.get(id(owner))
                if expression is None or key in recorder.effects.written:
                    return dict.__getitem__(instance, name)
                hidden = attribute is not ABSENT and hasattr(type(attribute), "__get__")
                dotted = is_name(name) and not (hidden or _intercepts(cls))
                reading = expression.get(name) if dotted else _attributes_of(cls, expression).at(name)
                recorder.instance_reads.add(reading)
                called, truths = recorder.facts.attribute(owner, name), False if callable(owner) else None
                value = dict.__getitem__(instance, name)
                return recorder.read(value, reading, called=called, symbolic=True, truths=truths)
            self._guard_missing(owner, instance, name)
        if attribute is not ABSENT:
            return self.bound_attribute(attribute, name, path, owner, cls)
        value = object.__getattribute__(owner, name)  # which raises Python's error if there is none
        recorder.stop("descriptor", f"{cls.__name__}.{name}")
        return value

    def _dictionary_of(self, owner: Any) -> dict[str, Any] | None:
        """The dictionary of an instance; None if it has none.  If the program can also reach it in another way (a class that sets
        `self.__dict__ = self`), it is guarded that it is this object, since its items and the attributes are the same places."""
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
        """Guard that the dictionary of an outside instance does not have `name`."""
        recorder = self.recorder
        expression = recorder.sources.get(id(owner))
        if (
            expression is not None
            and (id(instance), name) not in recorder.effects.written
            and recorder.first_time("missing", expression, name)
        ):
            recorder.miss_if(membership(type(instance), _attributes_of(type(owner), expression), Constant(name)))

    def _data_descriptor(self, owner: Any, name: str, attribute: Any) -> Any:
        """The attribute `name` of `owner`, by a data descriptor of its class: a property, a slot, a descriptor of C code."""
        recorder = self.recorder
        if type(attribute) is property:
            return (
                object.__getattribute__(owner, name)
                if attribute.fget is None
                else recorder.calls.call(recorder.mark_fixed(attribute.fget), (owner,), {})
            )
        if is_a(owner, enum.Enum) and name in _ENUM_PROPERTIES and type(attribute).__module__ == "enum":
            return self._object_attribute(owner, _ENUM_PROPERTIES[name])
        getter, _ = self.lookup(type(attribute), "__get__")
        if type(getter) is types.FunctionType:
            return recorder.calls.call(getter, (attribute, owner, type(owner)), {})
        key = (id(owner), name)
        expression = recorder.sources.get(id(owner))
        try:
            value = object.__getattribute__(owner, name)
        except AttributeError:  # an empty slot; the program may catch the error
            if expression is not None and key not in recorder.effects.written:
                recorder.namespace["is_empty"] = is_empty
                recorder.miss_if(Not(Name("is_empty").call(recorder.constant(attribute), expression)))
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
        """`owner.__dict__` of an outside instance, registered as an outside object because the program now refers to it."""
        recorder = self.recorder
        instance = self._dictionary_of(owner)
        if instance is not None and not recorder.is_outside(instance):
            recorder.register(instance, _attributes_of(type(owner), recorder.sources[id(owner)]))
            recorder.facts.name_dictionary(instance, owner)
        return instance

    def bound_attribute(self, attribute: Any, name: str, path: Expr | None, owner: Any, cls: type) -> Any:
        """A class attribute that is not a data descriptor, bound to `owner` as `__get__` does it.

        attribute, path: the result of `lookup` for `name`.  owner: None if the attribute is read of the class itself.  cls: the
        class whose MRO has it."""
        recorder = self.recorder
        kind = type(attribute)
        if path is _STORED:
            return attribute
        if kind is types.FunctionType:
            return attribute if owner is None else recorder.mark_created(types.MethodType(attribute, owner))
        if kind is staticmethod:
            return recorder.mark_fixed(attribute.__func__)
        if kind is classmethod and type(attribute.__func__) is types.FunctionType:
            return recorder.mark_created(types.MethodType(recorder.mark_fixed(attribute.__func__), cls))
        getter, _ = self.lookup(kind, "__get__")
        if getter is ABSENT:
            return (
                recorder.mark_fixed(attribute)
                if path is None
                else recorder.read(attribute, path, called=f"{cls.__name__}.{name}", symbolic=True)
            )
        if (
            kind is functools.cached_property
            and owner is not None
            and attribute.attrname is not None
            and hasattr(owner, "__dict__")
        ):
            value = recorder.calls.call(recorder.mark_fixed(attribute.func), (owner,), {})
            recorder.containers.set_item(value, self.get_attribute(owner, "__dict__"), attribute.attrname)
            return value
        if type(getter) is types.FunctionType:
            return recorder.calls.call(getter, (attribute, owner, cls), {})
        value = attribute.__get__(owner, cls)
        if value is not attribute and type(value) not in (*C_CALLABLES, types.MethodType):
            recorder.stop("descriptor", f"{cls.__name__}.{getattr(attribute, '__name__', kind.__name__)}")
        return value

    def _tensor_attribute(self, tensor: Tensor, name: str) -> Any:
        """The attribute `name` of a tensor.  Reading metadata guards them; reading internal state stops the recording."""
        recorder = self.recorder
        if name in _TENSOR_STATE:
            recorder.stop("tensor_state", f"reading .{name}")
            return getattr(recorder.stands_for(tensor), name)
        if name in _GRAD_STATE:
            recorder.interpreter.asked_for_grad = True
        attribute, _ = self.lookup(type(tensor), name)
        if attribute is ABSENT or (type(attribute) is types.FunctionType and name in vars(tensor)):
            return self.instance_attribute(tensor, name)
        if not recorder.ragged.is_independent_of_size(tensor, name, attribute):
            recorder.inspect(tensor)
        if name == "__dict__":
            return self._dictionary_of_tensor(tensor)
        if type(attribute) is types.FunctionType:
            return recorder.mark_created(types.MethodType(attribute, tensor))
        if type(attribute) is property and not is_library_module(getattr(attribute.fget, "__module__", None)):
            return recorder.calls.call(recorder.mark_fixed(attribute.fget), (tensor,), {})
        return recorder.mark_created(recorder.containers.native(lambda: getattr(tensor, name)))

    def _dictionary_of_tensor(self, tensor: Tensor) -> Any:
        """`tensor.__dict__`: the attributes that the program has stored in a tensor."""
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
        dictionary = recorder.constant(names)
        recorder.miss_if(dictionary.has(name))
        attribute, _ = self.lookup(type(module), name)
        if attribute is not ABSENT:
            return self._object_attribute(module, name)
        if "__getattr__" in names:
            return recorder.calls.call(recorder.effects.read_global(names, "__getattr__", names["__getattr__"]), (name,), {})
        recorder.miss_if(dictionary.has("__getattr__"))
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
        attribute, path = self.lookup(cls, name)
        if attribute is not ABSENT:
            return self.bound_attribute(attribute, name, path, None, cls)
        if inherited is not ABSENT:
            return self.bound_attribute(inherited, name, inherited_path, cls, kind)
        fallback, _ = self.lookup(kind, "__getattr__")
        if type(fallback) is types.FunctionType:
            return recorder.calls.call(fallback, (cls, name), {})
        return getattr(cls, name)  # which raises Python's error

    def _opaque_attribute(self, owner: Any, name: str) -> Any:
        """An attribute of a `threading.local`.  Only `getattr` reaches it: the dictionary is hidden."""
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
        """An attribute of an object of C code whose class does not look attributes up as usual."""
        if type(owner) is types.MethodType:
            return self.part(owner, name, getattr(owner, name))
        self.recorder.stop("descriptor", f"{type(owner).__name__}.{name}")
        return getattr(owner, name)

    def _super_attribute(self, proxy: SuperProxy, name: str) -> Any:
        instance = proxy.instance
        of_class = is_a(instance, type) and issubclass(instance, proxy.cls)
        cls = instance if of_class else type(instance)
        attribute: Any = ABSENT
        path: Expr | None = None
        if name != "__class__" and proxy.cls in self.read_mro(cls):
            attribute, path = self.lookup_after(proxy.cls, cls, name)
        if attribute is ABSENT:
            return getattr(super(proxy.cls, instance), name)
        if type(attribute) is property and attribute.fget is not None and not of_class:
            return self.recorder.calls.call(self.recorder.mark_fixed(attribute.fget), (instance,), {})
        if not of_class and type(attribute) in (types.MemberDescriptorType, types.GetSetDescriptorType):
            return self._data_descriptor(instance, name, attribute)
        return self.bound_attribute(attribute, name, path, None if of_class else instance, cls)

    # -- changing
    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        """owner.name = value"""
        recorder = self.recorder
        owner, value = concretise(owner), recorder.contents.value_to_store(value)
        cls = type(owner)
        store, _ = self.lookup(cls, "__setattr__")
        if _is_of_program(store, "__setattr__") and not is_a(owner, Tensor):
            recorder.calls.call(store, (owner, name, value), {})
        elif self._stores_as_usual(cls):
            self.object_set_attribute(value, owner, name)
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
        """Whether `cls.name = value` only replaces data in an outside class: no descriptor, method or special name is stored or
        overwritten, and the metaclass does not interfere."""
        if self.recorder.is_created(cls) or not is_changeable(cls) or (name.startswith("__") and name.endswith("__")):
            return False
        kind = type(cls)
        if self.lookup(kind, "__setattr__")[0] is not type.__setattr__ or kind.__getattribute__ is not type.__getattribute__:
            return False
        return self.lookup(kind, name)[0] is ABSENT and not any(map(_is_descriptor, (_class_dict(cls).get(name), value)))

    def _stop_storing(self, owner: Any, name: str) -> None:
        """Stop the recording at a store or deletion that cannot be recorded."""
        cls = type(owner)
        if is_a(owner, _SHARED):
            self.recorder.stop("shared_store", cls.__name__)
        else:
            self.recorder.stop("descriptor", f"{cls.__name__}.{name}")

    def object_set_attribute(self, value: Any, owner: Any, name: str) -> None:
        """object.__setattr__."""
        recorder = self.recorder
        if is_a(owner, types.FunctionType) and recorder.is_created(owner):
            setattr(owner, name, recorder.contents.concretise_contents(value))
            return
        if is_a(owner, _SHARED) or type(name) is not str:
            self._stop_storing(owner, name)
            setattr(owner, name, plain_value(value))
            return
        attribute, _ = self.lookup(type(owner), name)
        if type(attribute) is property:
            if attribute.fset is None:
                object.__setattr__(owner, name, plain_value(value))  # which raises Python's error
            else:
                recorder.calls.call(recorder.mark_fixed(attribute.fset), (owner, value), {})
            return
        if attribute is not ABSENT and hasattr(type(attribute), "__set__") and type(attribute) is not types.MemberDescriptorType:
            setter, _ = self.lookup(type(attribute), "__set__")
            if type(setter) is types.FunctionType:
                recorder.calls.call(setter, (attribute, owner, value), {})
                return
            recorder.stop("descriptor", f"{type(owner).__name__}.{name}")
            setattr(owner, name, plain_value(value))
            return
        self._note_instance(owner, name, attribute)
        contents = instance_dictionary(owner) if recorder.effects.step_changes is not None else None
        if type(contents) is dict and not recorder.is_outside(owner):
            recorder.effects.note_own(owner, contents, name, value)
        storing_base(owner).__setattr__(owner, name, plain_value(value))
        recorder.effects.note_attribute(owner, name, value)

    def delete_attribute(self, owner: Any, name: str) -> None:
        """del owner.name"""
        owner = concretise(owner)
        cls = type(owner)
        delete, _ = self.lookup(cls, "__delattr__")
        if _is_of_program(delete, "__delattr__"):
            self.recorder.calls.call(delete, (owner, name), {})
        elif self._stores_as_usual(cls) and type(name) is str:
            self.object_delete_attribute(owner, name)
        else:
            self._stop_storing(owner, name)
            self.recorder.perform(lambda: delattr(owner, name))

    def object_delete_attribute(self, owner: Any, name: str) -> None:
        """object.__delattr__."""
        recorder = self.recorder
        attribute, _ = self.lookup(type(owner), name)
        instance = self._dictionary_of(owner)
        if type(attribute) is property and attribute.fdel is not None:
            recorder.calls.call(recorder.mark_fixed(attribute.fdel), (owner,), {})
            return
        if attribute is not ABSENT and hasattr(type(attribute), "__delete__"):
            deleter, _ = self.lookup(type(attribute), "__delete__")
            if type(deleter) is types.FunctionType:
                recorder.calls.call(deleter, (attribute, owner), {})
                return
            recorder.stop("descriptor", f"{type(owner).__name__}.{name} (deleted)")
        elif recorder.is_outside(owner) and is_a(owner, threading.local):
            self._opaque_attribute(owner, name)
        elif recorder.is_outside(owner) and instance is not None and dict.__contains__(instance, name):
            self.instance_attribute(owner, name, fallback=False)
        self._note_instance(owner, name, attribute)
        recorder.perform(lambda: storing_base(owner).__delattr__(owner, name))
        recorder.effects.note_attribute(owner, name, ABSENT)

    def _note_instance(self, owner: Any, name: str, attribute: Any) -> None:
        """Note that the attribute `name` of `owner` is about to change: what it holds now, and that it may be dropped.
        attribute: the class attribute of this name, or ABSENT."""
        recorder = self.recorder
        if not recorder.is_outside(owner):
            return
        instance = self._dictionary_of(owner)
        if instance is not None:
            recorder.effects.check_dropped(dict.get(instance, name))
            recorder.effects.note_change(instance)
        elif is_a(attribute, types.MemberDescriptorType) and not is_empty(attribute, owner):
            recorder.effects.check_dropped(attribute.__get__(owner))


_ATTRIBUTES: dict[Kind, Callable[[AttributeHandlers, Any, str], Any]] = by_kind(
    AttributeHandlers._attribute_of_object,
    {
        AttributeHandlers._attribute_of_plain: (Kind.PLAIN, Kind.TEXT),
        AttributeHandlers._attribute_of_stand_in: (Kind.SYMBOLIC, Kind.SYMBOLIC_OBJECT),
        AttributeHandlers._attribute_of_container: (Kind.SET, Kind.MAPPING, Kind.SEQUENCE),
        AttributeHandlers._class_attribute: (Kind.CLASS, Kind.METACLASS_INSTANCE, Kind.ENUM_CLASS),
        AttributeHandlers._attribute_of_array: (Kind.SYMBOLIC_SCALAR, Kind.ARRAY_SUBCLASS, Kind.ARRAY),
        AttributeHandlers._tensor_attribute: (Kind.TENSOR,),
    },
)
