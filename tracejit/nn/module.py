"""`Module`: the base class of layers and models.

Parameters, buffers and submodules are ordinary instance attributes; what belongs to a module is found by looking through its
`__dict__` in order: reading `self.weight` is a plain attribute read, which a recording can guard.  Only assigning looks at what is
there: a parameter gives way to a parameter or None and to nothing else, likewise buffers and modules, so none is lost unnoticed.

A submodule with the name of a method (`self.parameters = ParameterList(...)`) does not hide the method: its key in `__dict__` is the
name and a dot, which no name of a member has.  Of members that are None, `_absent` tells the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tracejit.core.compiler import calling_with, installed
from tracejit.core.devices import require_cpu
from tracejit.functions import empty_like
from tracejit.nn.backward_hooks import BackwardHooks
from tracejit.nn.conversions import Conversions
from tracejit.nn.members import Members
from tracejit.nn.parameter import Parameter
from tracejit.nn.registered_hooks import Hook, Hooks, HooksByNumber, hooks_at, register
from tracejit.nn.state import StateDicts
from tracejit.tensor import RemovableHandle, Tensor

__all__ = ["Module"]

M = TypeVar("M", bound="Module")


class Module(Conversions, StateDicts):
    """Base class: subclasses assign parameters and modules to attributes and define forward()."""

    training: bool = True
    _buffer_names: dict[str, bool] | None = None  # name -> whether it is part of state_dict()
    _absent: dict[str, str] | None = None  # name -> "parameter" or "module", of members that are None
    _has_dotted_keys = False  # whether a submodule has the name of an attribute of the class
    _hooks: Hooks = None

    def __init__(self) -> None:
        self.training = True
        self._hooks = None  # here and not of the class: where a hook is registered and removed, all is as it was

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__dict__
        if isinstance(value, Module | Parameter):
            self._check_initialised(f"cannot assign {'module' if isinstance(value, Module) else 'parameters'}")
            is_plain = not isinstance(members.get(name), Module | Tensor)  # what a module takes the place of
            if is_plain and hasattr(type(self), name) and self._assign_beside_class(name, value):
                return
        present = members.get(name)
        if isinstance(present, Tensor | Module) or (present is None and name in members):
            self._check_replaced(name, present, value)
        object.__setattr__(self, name, value)

    def _check_initialised(self, what: str) -> None:
        """Raises AttributeError unless Module.__init__ has run."""
        if "training" not in self.__dict__:
            raise AttributeError(
                f"{what} before Module.__init__() call: {type(self).__name__}.__init__() must call super().__init__() first"
            )

    def _assign_beside_class(self, name: str, value: Any) -> bool:
        """Keep a module whose name the class has as well; False where a property takes it.  Raises KeyError for a parameter."""
        attribute = getattr(type(self), name)
        if isinstance(attribute, property) and attribute.fset is not None:
            return False
        if isinstance(value, Parameter):
            raise KeyError(f"attribute '{name}' already exists")
        self._has_dotted_keys = True
        self.__dict__.pop(name, None)
        self.__dict__[name + "."] = value
        return True

    def _key(self, name: str) -> str:
        """Where `__dict__` has the member of a name."""
        return name + "." if self._has_dotted_keys and name + "." in self.__dict__ else name

    def _note_absent(self, name: str, kind: str) -> None:
        if self._absent is None:
            self._absent = {}
        self._absent[name] = kind

    def _check_replaced(self, name: str, present: Any, value: Any) -> None:
        """Raises TypeError where a value would take the place of a parameter, buffer or module that is of no such kind."""
        if value is None and isinstance(present, Parameter | Module):
            self._note_absent(name, "parameter" if isinstance(present, Parameter) else "module")
        if value is None or (isinstance(value, Parameter) and not isinstance(present, Module)):
            return
        if isinstance(present, Parameter):
            kind, wanted = "parameter", "Parameter"
        elif isinstance(present, Module):
            if isinstance(value, Module | Parameter):
                return
            kind, wanted = "child module", "Module"
        elif name in (self._buffer_names or ()):
            if isinstance(value, Tensor):
                return
            kind, wanted = "buffer", "Tensor"
        else:
            return
        raise TypeError(f"cannot assign '{value.__class__.__name__}' object as {kind} '{name}' ({wanted} or None expected)")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; every subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks:
            return self._call_between_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call, with what does the same in the place of `forward`."""
        return self._call_between_hooks(args, kwargs, forward) if self._hooks else forward(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile forward() of this module, in place: `compile(forward, *args, **kwargs)` is called from now on, between the hooks."""
        self.forward = installed[0](self.forward, *args, **kwargs)  # type: ignore[method-assign]

    # ---- hooks ------------------------------------------------------------------------------------------------------
    def _call_between_hooks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], forward: Callable[..., Any] | None = None
    ) -> Any:
        for hook in self._hooks or ():
            if hook.when == "before":
                changed = hook.function(self, args, kwargs) if hook.with_kwargs else hook.function(self, args)
                if changed is None:
                    continue
                if hook.with_kwargs:
                    args, kwargs = changed
                else:
                    args = changed if isinstance(changed, tuple) else (changed,)
        backward = [hooks_at(self._hooks, when) for when in ("before backward", "after backward")]
        watched = BackwardHooks(self, *backward) if any(backward) else None
        if watched is not None:
            args = watched.mark_inputs(args)
        function = self.forward if forward is None else forward
        always = hooks_at(self._hooks, "after always")
        out = self._call_with_always(function, args, kwargs) if always else function(*args, **kwargs)
        for hook in self._hooks or ():
            if hook.when in ("after", "after always"):
                changed = hook.function(self, args, kwargs, out) if hook.with_kwargs else hook.function(self, args, out)
                if changed is not None:
                    out = changed
        return out if watched is None else watched.mark_outputs(out)

    def _call_with_always(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """forward(), after whose error the hooks registered with always_call are called with the output None."""
        try:
            return function(*args, **kwargs)
        except Exception:
            for hook in self._hooks or ():
                if hook.when == "after always":
                    hook.function(self, args, kwargs, None) if hook.with_kwargs else hook.function(self, args, None)
            raise

    def _register_hook(self, when: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool) -> RemovableHandle:
        return register(self, "_hooks", Hook(when, hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args, output) after forward(), or with_kwargs hook(module, args, kwargs, output).

        A result other than None replaces the output.  always_call: also where forward() raises, with None for the output."""
        return self._register_hook("after always" if always_call else "after", hook, prepend, with_kwargs)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call hook(module, args) before forward(), or with_kwargs hook(module, args, kwargs).

        A result other than None replaces the arguments."""
        return self._register_hook("before", hook, prepend, with_kwargs)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_output) when the gradients of the outputs are known; a result other than None replaces them."""
        return self._register_hook("before backward", hook, prepend, False)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs are known.

        There is an entry for each positional argument, None for those without a gradient.  A result other than None replaces grad_input."""
        return self._register_hook("after backward", hook, prepend, False)

    register_backward_hook = register_full_backward_hook

    @property
    def _forward_hooks(self) -> HooksByNumber:
        return HooksByNumber(self, "_hooks", "after", "after always")

    @property
    def _forward_pre_hooks(self) -> HooksByNumber:
        return HooksByNumber(self, "_hooks", "before")

    @property
    def _backward_hooks(self) -> HooksByNumber:
        return HooksByNumber(self, "_hooks", "after backward")

    @property
    def _backward_pre_hooks(self) -> HooksByNumber:
        return HooksByNumber(self, "_hooks", "before backward")

    # ---- members ----------------------------------------------------------------------------------------------------
    def _check_name(self, kind: str, name: str) -> None:
        self._check_initialised(f"cannot assign {kind}")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string, got {name.__class__.__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        present = self.__dict__.get(self._key(name))
        if present is None and name not in self.__dict__ and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if present is not None and not isinstance(present, Module if kind == "module" else Tensor):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None to say that there is none of this name."""
        self._check_name("parameter", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{param.__class__.__name__}' object to parameter '{name}' (Parameter or None required)"
            )
        if param is None:
            self._note_absent(name, "parameter")
        self.__dict__[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter; only persistent ones are part of state_dict()."""
        self._check_name("buffer", name)
        if isinstance(self.__dict__.get(name), Parameter):
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{tensor.__class__.__name__}' object to buffer '{name}' (Tensor or None required)")
        if self._buffer_names is None:
            self._buffer_names = {}
        self._buffer_names[name] = persistent
        self.__dict__[name] = tensor

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under an attribute name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{module.__class__.__name__} is not a Module subclass")
        self._check_name("module", name)
        if module is None:
            self._note_absent(name, "module")
        self.__dict__[self._key(name)] = module

    register_module = add_module

    @property
    def _parameters(self) -> Members:
        return Members(self, "parameter")

    @_parameters.setter
    def _parameters(self, members: Any) -> None:
        Members(self, "parameter").replace(members)

    @property
    def _buffers(self) -> Members:
        return Members(self, "buffer")

    @_buffers.setter
    def _buffers(self, members: Any) -> None:
        Members(self, "buffer").replace(members)

    @property
    def _modules(self) -> Members:
        return Members(self, "module")

    @_modules.setter
    def _modules(self, members: Any) -> None:
        Members(self, "module").replace(members)

    def _own_modules(self) -> list[tuple[str, Module]]:
        if self._has_dotted_keys:
            return [(name.removesuffix("."), value) for name, value in self.__dict__.items() if isinstance(value, Module)]
        return [(name, value) for name, value in self.__dict__.items() if isinstance(value, Module)]

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the direct submodules, each module once."""
        seen: set[int] = set()
        for name, value in self._own_modules():
            if id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def children(self) -> Iterator[Module]:
        """The direct submodules."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and of all below it, parents first; shared ones once unless remove_duplicate is false."""
        self._check_initialised("cannot look for modules and parameters")
        seen = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, value in self._own_modules():
            yield from value.named_modules(seen, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it; shared ones once unless remove_duplicate is false."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def _named_tensors(
        self, own: Callable[[Module], list[tuple[str, Tensor]]], prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in own(module):
                if remove_duplicate:
                    if id(value) in seen:
                        continue
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def _own_parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, value) for name, value in self.__dict__.items() if isinstance(value, Parameter)]

    def _own_buffers(self) -> list[tuple[str, Tensor]]:
        names = self._buffer_names or {}
        return [(name, self.__dict__[name]) for name in names if isinstance(self.__dict__.get(name), Tensor)]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) of this module and, with recurse, of all below it; shared ones once."""
        return self._named_tensors(Module._own_parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, as for optimizers."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) of this module and, with recurse, of all below it; shared ones once."""
        return self._named_tensors(Module._own_buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The submodule at a dotted name.  Raises AttributeError where there is none."""
        module: Any = self
        for name in target.split(".") if target else []:
            found = dict(module._own_modules()).get(name)
            if not isinstance(found, Module):
                raise AttributeError(f"{module.__class__.__name__} has no submodule `{name}` (in {target!r})")
            module = found
        return module  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted name; with `strict` only where there is one.  Raises AttributeError, ValueError or TypeError."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {module.__class__.__name__}")
        parent = self.get_submodule(path)
        if strict and name not in dict(parent._own_modules()):
            raise AttributeError(f"{parent.__class__.__name__} has no submodule `{name}` (in {target!r})")
        parent.add_module(name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted name.  Raises AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        found: Any = dict(self.get_submodule(path)._own_parameters()).get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not a Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted name.  Raises AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        found = dict(self.get_submodule(path)._own_buffers()).get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not a buffer")
        return found

    # ---- changing all of it -----------------------------------------------------------------------------------------
    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call fn on every submodule, children first, and on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self: M, mode: bool = True) -> M:
        """Set training mode, which changes what Dropout and batch normalisation do, here and below."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, got {mode.__class__.__name__}")
        for module in self.modules():
            module.training = mode
        return self

    def to_empty(self: M, *, device: Any = None, recurse: bool = True) -> M:
        """Give parameters and buffers memory with contents yet to be set, here and with `recurse` below.  There is one device."""
        require_cpu("to_empty", device)
        tensors = [*self.parameters(recurse=recurse), *self.buffers(recurse=recurse)]
        for tensor in tensors:
            tensor.data = empty_like(tensor)
        return self

    def eval(self: M) -> M:
        """train(False)."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Ask for gradients of all parameters, or for none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters: None, or zeros in place."""
        for parameter in self.parameters():
            gradient: Any = parameter.grad if not set_to_none else None
            if gradient is None:
                parameter.grad = None
            else:
                parameter.grad = gradient = gradient.detach()
                gradient.zero_()

    # ---- printing ---------------------------------------------------------------------------------------------------
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses beside the submodules."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): " + repr(value).replace("\n", "\n  ") for name, value in self._modules.items()]
        lines = extra_lines + child_lines
        name = self._get_name()
        if len(extra_lines) == 1 and not child_lines:
            return f"{name}({extra_lines[0]})"
        return f"{name}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{name}()"


calling_with[Module.__call__] = Module._call_with
