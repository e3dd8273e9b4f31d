"""`Optimizer`: parameter groups, state, and the loop over parameters that every step is.

A group is a dict of its parameters ("params") and hyperparameters.  Hyperparameters are read at every step as Python numbers that
only feed arithmetic, and state exists from construction on, so that a step recorded once stays valid under any schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tracejit.autograd.grad_mode import enable_grad, no_grad
from tracejit.tensor import Tensor

__all__ = ["Optimizer", "require"]


def require(condition: bool, message: str) -> None:
    """Raises ValueError unless a hyperparameter is valid."""
    if not condition:
        raise ValueError(message)


class Optimizer:
    """Base class: subclasses define update(), which changes one parameter in place, and initial_state()."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        """params: tensors, or dicts with "params" and hyperparameters of their own.

        Raises ValueError for none, TypeError for a bare tensor."""
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor")
        self.defaults = defaults
        self.state: dict[Any, dict[str, Any]] = {}
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with hyperparameters of their own.  Raises TypeError or ValueError for what cannot be optimized."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}")
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections; use a list instead of a set")
        parameters = [given] if isinstance(given, Tensor) else list(given)
        present = {id(p) for group in self.param_groups for p in group["params"]}
        for p in parameters:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(p) in present:
                raise ValueError("some parameters appear in more than one parameter group, or twice in one")
            present.add(id(p))
        group = {**self.defaults, **param_group, "params": parameters}
        self.check(group)
        self.param_groups.append(group)
        for p in parameters:
            if p.requires_grad:
                self.state[p] = self.initial_state(p, group)

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

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.  closure: evaluates the model anew and returns the loss, which is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                members = []
                for p in group["params"]:
                    gradient = p.grad
                    if gradient is not None:
                        state = self.state.get(p)
                        if state is None:
                            state = self.initial_state(p, group)
                            self.state[p] = state
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

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of the parameter: its state}, "param_groups": [hyperparameters and numbers of parameters]}.

        Tensors are the optimizer's own, not copies."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers[id(p)] = len(numbers)
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        return {"state": {numbers[id(p)]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over state and hyperparameters; tensors are copied and converted to the dtype of their parameter.

        Raises ValueError unless groups have as many parameters as here."""
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(f"loaded state dict has {len(saved)} parameter groups, this optimizer {len(self.param_groups)}")
        for own, other in zip(self.param_groups, saved, strict=True):
            if len(own["params"]) != len(other["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        parameters: dict[Any, Any] = {}
        for own, other in zip(self.param_groups, saved, strict=True):
            parameters.update(zip(other["params"], own["params"], strict=True))
        self.state = {parameters[number]: _taken_over(state, parameters[number]) for number, state in state_dict["state"].items()}
        self.param_groups = [{**other, "params": own["params"]} for own, other in zip(self.param_groups, saved, strict=True)]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {i}", *(f"    {key}: {group[key]}" for key in sorted(group) if key != "params")]
        return "\n".join([*lines, ")"])


def _taken_over(state: Mapping[str, Any], parameter: Any) -> dict[str, Any]:
    return {key: _copied(value, parameter.dtype) if isinstance(value, Tensor) else value for key, value in state.items()}


def _copied(value: Any, dtype: Any) -> Any:
    return value.detach().clone().to(dtype if value.is_floating_point() else None)
