"""`Optimizer`: parameter groups, state, and the loop over parameters that every step is.

A group is a dict of its parameters ("params") and hyperparameters.  Hyperparameters are read at every step as Python numbers that
only feed arithmetic, and state exists from construction on, so that a step recorded once stays valid under any schedule.
Rates may be tensors of one element: they are then read as tensors.
"""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tracejit.autograd.grad_mode import enable_grad, no_grad
from tracejit.core.step_order import note_step
from tracejit.nn.registered_hooks import Hook, Hooks, hooks_at, register
from tracejit.tensor import RemovableHandle, Tensor

__all__ = ["Optimizer", "execution", "incoming", "mean_of", "require", "required"]


class _Required:
    """The default of a hyperparameter that each group must name."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def require(condition: Any, message: str) -> None:
    """Raises ValueError unless a hyperparameter is valid."""
    if not condition:
        raise ValueError(message)


def execution(
    *,
    foreach: bool | None = None,
    fused: bool | None = None,
    capturable: bool | None = None,
    differentiable: bool = False,
    **others: Any,
) -> dict[str, Any]:
    """PyTorch's options of how a step is executed, as hyperparameters.

    `differentiable`: the step is recorded on the tape.  The others choose between implementations with equal results there; here there
    is one, which every option stands for.  Raises RuntimeError for choices that exclude each other."""
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    options: dict[str, Any] = {"foreach": foreach}
    if capturable is not None:
        options["capturable"] = capturable
    options |= {"differentiable": differentiable, **others}
    if fused is not None:
        options["fused"] = fused
    return options


def incoming(parameter: Any, gradient: Any, group: Mapping[str, Any]) -> Any:
    """The gradient to descend along: negated to maximize, with weight_decay * parameter added."""
    if group["maximize"]:
        gradient = -gradient
    weight_decay = group["weight_decay"]
    return gradient if weight_decay == 0 else gradient + parameter * weight_decay


def mean_of(mean: Any, value: Any, weight: Any) -> Any:
    """A running mean, in place, moved by `weight` towards `value`."""
    return mean.copy_(mean + (value - mean) * weight)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's own step(), between what register_step_pre_hook() and register_step_post_hook() were given."""

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        note_step(self)
        if not self._hooks:
            return step(self, *args, **kwargs)
        for hook in self._registered("step_pre"):
            replaced = hook(self, args, kwargs)
            if replaced is not None:
                if not (isinstance(replaced, tuple) and len(replaced) == 2):
                    raise RuntimeError(f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {replaced}.")
                args, kwargs = replaced
        out = step(self, *args, **kwargs)
        for hook in self._registered("step_post"):
            hook(self, args, kwargs)
        return out

    return hooked


class Optimizer:
    """Base class: subclasses define update(), which changes one parameter in place, and initial_state(); or step() as a whole."""

    _hooks: Hooks = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        """params: tensors, pairs of name and tensor, or dicts with "params" and hyperparameters of their own.

        Raises ValueError for none, TypeError for a bare tensor."""
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor")
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with hyperparameters of their own.  The dict becomes the group: defaults are entered into it.

        Raises TypeError or ValueError for what cannot be optimized; then the dict is as it was."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {param_group.__class__.__name__}")
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections; use a list instead of a set")
        parameters = [given] if isinstance(given, Tensor) else list(given)
        group = {**param_group, **{key: value for key, value in self.defaults.items() if key not in param_group}}
        if parameters and isinstance(parameters[0], tuple):
            group["param_names"] = [name for name, _ in parameters]
            parameters = [p for _, p in parameters]
        group["params"] = parameters
        present = {id(p) for other in self.param_groups for p in other["params"]}
        for p in parameters:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {p.__class__.__name__}")
            if not (p.is_leaf or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(p) in present:
                raise ValueError("some parameters appear in more than one parameter group, or twice in one")
            present.add(id(p))
        for key, value in group.items():
            if value is required:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {key}")
        if isinstance(group.get("lr"), Tensor) and group["lr"].numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        self.check(group)
        param_group.update(group)
        group = param_group
        self.param_groups.append(group)
        for p in parameters:
            if p.requires_grad:
                state = self.initial_state(p, group)
                if state:
                    self.state[p] = state

    def check(self, group: dict[str, Any]) -> None:
        """Raises ValueError for invalid hyperparameters."""

    def initial_state(self, parameter: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first update."""
        return {}

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Change one parameter and its state in place."""
        raise NotImplementedError(f"{type(self).__name__}.update()")

    def update_group(self, members: Sequence[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
        """Change the parameters of a group that have a gradient.  members: (parameter, gradient, state)."""
        for parameter, gradient, state in members:
            self.update(parameter, gradient, state, group)

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.  closure: evaluates the model anew and returns the loss, which is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        states = self.state
        with enable_grad() if self.defaults.get("differentiable", False) else no_grad():
            for group in self.param_groups:
                members = []
                for p in group["params"]:
                    gradient = p.grad
                    if gradient is not None:
                        state = states.get(p)
                        if state is None:
                            state = states[p] = self.initial_state(p, group)
                        members.append((p, gradient, state))
                self.update_group(members, group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters: None, or zeros in place."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    if p.grad.requires_grad:
                        p.grad = p.grad.detach()
                    p.grad.zero_()

    # ---- state ------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of the parameter: its state}, "param_groups": [hyperparameters and numbers of parameters]}.

        Tensors are the optimizer's own, not copies."""
        for hook in self._registered("state_dict_pre"):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers[id(p)] = len(numbers)
            others = {key: value for key, value in group.items() if key != "params"}
            groups.append({**others, "params": [numbers[id(p)] for p in group["params"]]})
        out = {
            "state": {numbers[id(p)] if isinstance(p, Tensor) else p: dict(state) for p, state in self.state.items() if state},
            "param_groups": groups,
        }
        for hook in self._registered("state_dict_post"):
            replaced = hook(self, out)
            if replaced is not None:
                out = replaced
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over state and hyperparameters.  Hyperparameters are copied; tensors are converted to the dtype of their parameter, and
        shared with `state_dict` where they have it already.

        Raises ValueError unless groups have as many parameters as here."""
        state_dict = dict(state_dict)
        for hook in self._registered("load_state_dict_pre"):
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(f"loaded state dict has {len(saved)} parameter groups, this optimizer {len(self.param_groups)}")
        for own, other in zip(self.param_groups, saved, strict=True):
            if len(own["params"]) != len(other["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        parameters: dict[Any, Any] = {}
        for own, other in zip(self.param_groups, saved, strict=True):
            parameters.update(zip(other["params"], own["params"], strict=True))
        self.state = defaultdict(dict)
        for number, state in state_dict["state"].items():
            if number in parameters:
                self.state[parameters[number]] = {
                    key: _taken_over(value, parameters[number], key in self.counts) for key, value in state.items()
                }
            else:
                self.state[number] = dict(state)
        # what the saved groups do not name was no hyperparameter yet, or is none of the program that saved them
        self.param_groups = [
            {**self.defaults, **copy.deepcopy(other), "params": own["params"]}
            for own, other in zip(self.param_groups, saved, strict=True)
        ]
        for hook in self._registered("load_state_dict_post"):
            hook(self)

    counts: tuple[str, ...] = ("step",)  # members of the state that are Python numbers, and tensors in PyTorch's

    # ---- hooks ------------------------------------------------------------------------------------------------------
    def _registered(self, when: str) -> list[Callable[..., Any]]:
        return hooks_at(self._hooks, when)

    def _register(self, when: str, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        return register(self, "_hooks", Hook(when, hook), prepend)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) before step(); it may return new (args, kwargs)."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call hook(optimizer, args, kwargs) after step()."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer) before state_dict()."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer, state_dict) after state_dict(); what it returns is returned instead."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer, state_dict) before load_state_dict(); what it returns is loaded instead."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call hook(optimizer) after load_state_dict()."""
        return self._register("load_state_dict_post", hook, prepend)

    def __repr__(self) -> str:
        groups = [
            "\n".join([f"Parameter Group {i}", *(f"    {key}: {group[key]}" for key in sorted(group) if key != "params")])
            for i, group in enumerate(self.param_groups)
        ]
        return f"{type(self).__name__} (\n" + "\n\n".join(groups) + "\n)"


def _taken_over(value: Any, parameter: Any, count: bool = False) -> Any:
    if isinstance(value, Tensor):
        if count:
            number = value.item()
            return int(number) if float(number).is_integer() else number
        return value.to(parameter.dtype) if parameter.is_floating_point() else value
    if isinstance(value, list | tuple | set):
        return type(value)(_taken_over(member, parameter) for member in value)
    if isinstance(value, dict):
        return {key: _taken_over(member, parameter) for key, member in value.items()}
    return value
