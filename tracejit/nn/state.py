"""What a Module saves and loads: state_dict(), load_state_dict(), the methods of each module that they call, and the hooks around these.

A subclass changes what it saves by overriding `_save_to_state_dict` and `_load_from_state_dict`, or by hooks.  Loading looks at all
modules first and copies only if nothing was wrong, so an error changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tracejit.autograd.grad_mode import no_grad
from tracejit.nn.parameter import UninitializedParameter
from tracejit.nn.registered_hooks import Hook, Hooks, hooks_at, register
from tracejit.tensor import RemovableHandle, Tensor

__all__ = ["StateDicts"]

_EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """What load_state_dict(strict=False) found: keys the module wanted and keys it does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _Loading(dict[str, Any]):
    """The state that modules are loaded from, with the copies that are made once all was looked at."""

    def __init__(self, contents: Mapping[str, Any]) -> None:
        super().__init__(contents)
        self.copies: list[Callable[[], None]] = []


class StateDicts:
    """The part of Module that saves and loads."""

    _state_hooks: Hooks = None

    # ---- hooks ------------------------------------------------------------------------------------------------------
    def _register_state_hook(self, moment: str, hook: Callable[..., Any]) -> RemovableHandle:
        return register(self, "_state_hooks", Hook(moment, hook))

    def _state_hooks_at(self, moment: str) -> list[Callable[..., Any]]:
        return hooks_at(self._state_hooks, moment)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, prefix, keep_vars) before the module is saved."""
        return self._register_state_hook("before saving", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata) after the module was saved; it changes the state in place."""
        return self._register_state_hook("after saving", hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before the module is
        loaded."""
        return self._register_state_hook("before loading", hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> RemovableHandle:
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return self.register_load_state_dict_pre_hook(lambda module, *rest: hook(*rest))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(module, incompatible_keys) after the module and those below it were looked at; it may change the lists of keys."""
        return self._register_state_hook("after loading", hook)

    # ---- one module -------------------------------------------------------------------------------------------------
    def _own_state(self) -> list[tuple[str, Tensor]]:
        """The parameters and persistent buffers of this module alone."""
        module: Any = self
        module._check_initialised("cannot look for parameters and buffers")
        names = module._buffer_names or {}
        return [*module._own_parameters(), *((name, value) for name, value in module._own_buffers() if names[name])]

    def get_extra_state(self) -> Any:
        """What is saved besides tensors; a subclass that defines it defines set_extra_state() as well."""
        raise RuntimeError("get_extra_state(): called for a module that does not define it")

    def set_extra_state(self, state: Any) -> None:
        """Take back what get_extra_state() gave."""
        raise RuntimeError("set_extra_state(): called for a module that does not define it")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateDicts.get_extra_state

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put what this module alone saves into `destination`."""
        for name, value in self._own_state():
            destination[prefix + name] = value if keep_vars else value.detach()
        if self._has_extra_state():
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load what this module alone has.  Copies are made at the end of load_state_dict(), or at once where that was not called."""
        arguments = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for hook in self._state_hooks_at("before loading"):
            hook(self, state_dict, prefix, *arguments)
        copies: list[Callable[[], None]] = []
        own = dict(self._own_state())
        for name, target in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            problem = _misfit(key, target, state_dict[key])
            if problem is None:
                copies.append(_copy(target, state_dict[key], bool(local_metadata.get("assign_to_params_buffers"))))
            else:
                error_msgs.append(problem)
        extra = prefix + _EXTRA_STATE
        if self._has_extra_state():
            if extra in state_dict:
                copies.append(_set_extra_state(self, state_dict[extra]))
            elif strict:
                missing_keys.append(extra)
        elif extra in state_dict and strict:
            unexpected_keys.append(extra)
        if strict:
            module: Any = self
            below = {name for name, _ in module._own_modules()}
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, dot, _ = key[len(prefix) :].partition(".")
                    if (first not in below) if dot else (first not in own):
                        unexpected_keys.append(key)
        if isinstance(state_dict, _Loading):
            state_dict.copies += copies
        else:
            for copy in copies:
                copy()

    # ---- a module and all below it ----------------------------------------------------------------------------------
    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name: detached tensors that share memory, or with keep_vars themselves.

        They are put into `destination`, or into a new OrderedDict."""
        module: Any = self
        result: dict[str, Any] = OrderedDict() if destination is None else destination
        for hook in self._state_hooks_at("before saving"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(result, prefix, keep_vars)
        for name, child in module._own_modules():
            child.state_dict(destination=result, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_hooks_at("after saving"):
            changed = hook(self, result, prefix, {"version": 1})
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copy tensors by dotted name into this module; with `assign` take them over instead.

        Raises RuntimeError that lists every shape that does not fit and, if strict, every missing and unexpected key; then nothing was
        changed."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {state_dict.__class__.__name__}")
        given = _Loading(state_dict)
        missing: list[str] = []
        unexpected: list[str] = []
        problems: list[str] = []

        def load(module: Any, prefix: str) -> None:
            metadata = {"version": 1, "assign_to_params_buffers": assign}
            module._load_from_state_dict(given, prefix, metadata, True, missing, unexpected, problems)
            for name, child in module._own_modules():
                load(child, f"{prefix}{name}.")
            found = _IncompatibleKeys(missing, unexpected)
            for hook in module._state_hooks_at("after loading"):
                if hook(module, found) is not None:
                    raise AssertionError(
                        "a hook after load_state_dict() should change the lists of keys in place and return None"
                    )

        load(self, "")
        order = {key: position for position, key in enumerate(state_dict)}
        unexpected.sort(key=lambda key: order.get(key, len(order)))
        errors = []
        if strict and unexpected:
            errors.append("Unexpected key(s) in state_dict: " + ", ".join(f'"{key}"' for key in unexpected) + ". ")
        if strict and missing:
            errors.append("Missing key(s) in state_dict: " + ", ".join(f'"{key}"' for key in missing) + ". ")
        errors += problems
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        for copy in given.copies:
            copy()
        return _IncompatibleKeys(missing, unexpected)


def _misfit(key: str, target: Any, source: Any) -> str | None:
    """Why `source` cannot be copied into `target`; None if it can."""
    if not isinstance(source, Tensor):
        return f'While copying the parameter named "{key}", expected a Tensor but received {source.__class__.__name__}'
    if isinstance(target, UninitializedParameter):
        target.materialize(source.shape)
    if tuple(source.shape) != tuple(target.shape):
        return (
            f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, "
            f"the shape in current model is {target.shape}."
        )
    return None


def _copy(target: Any, source: Tensor, assign: bool) -> Callable[[], None]:
    def copy() -> None:
        with no_grad():
            if assign:
                target.data = source.detach()
            else:
                target.copy_(source)

    return copy


def _set_extra_state(module: Any, state: Any) -> Callable[[], None]:
    def copy() -> None:
        module.set_extra_state(state)

    return copy
