"""Hooks that modules and optimizers have: tuples, None where there are none.  They are replaced and never changed, so whoever goes
through them meets one state, and what a call registers and removes is one attribute of their owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from tracejit.tensor import RemovableHandle

__all__ = ["Hook", "HookHandle", "Hooks", "HooksByNumber", "hooks_at", "register", "take_away"]


class Hook:
    """A function, and the moment at which it is called."""

    def __init__(self, when: str, function: Callable[..., Any], with_kwargs: bool = False) -> None:
        self.when = when
        self.function = function
        self.with_kwargs = with_kwargs


Hooks = tuple[Hook, ...] | None


class HookHandle(RemovableHandle):
    """What registering a hook returns; `remove()` takes the hook away."""

    def __init__(self, owner: Any, attribute: str, hook: Hook) -> None:
        self.owner = owner
        self.attribute = attribute
        self.hook = hook

    @property
    def id(self) -> int:  # type: ignore[override]
        """The number of the hook among those of its owner."""
        return id(self.hook)

    def remove(self) -> None:
        """Take the hook away; harmless when done twice."""
        take_away(self.owner, self.attribute, self.hook)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def register(owner: Any, attribute: str, hook: Hook, prepend: bool = False) -> HookHandle:
    """Add a hook to the others in `attribute`: behind them, or, with `prepend`, before."""
    present = getattr(owner, attribute) or ()
    setattr(owner, attribute, (hook, *present) if prepend else (*present, hook))
    return HookHandle(owner, attribute, hook)


def take_away(owner: Any, attribute: str, hook: Hook) -> None:
    """Take a hook away, if it is there."""
    present = getattr(owner, attribute) or ()
    left = tuple([other for other in present if other is not hook])
    if len(left) < len(present):
        setattr(owner, attribute, left or None)


def hooks_at(hooks: Hooks, when: str) -> list[Callable[..., Any]]:
    """What is to be called at a moment."""
    return [hook.function for hook in hooks or () if hook.when == when]


class HooksByNumber(MutableMapping[int, Callable[..., Any]]):
    """The hooks that an owner has at some moments, by number: one that is deleted is taken away, one that is set is called from then on."""

    def __init__(self, owner: Any, attribute: str, *moments: str) -> None:
        self._owner, self._attribute, self._moments = owner, attribute, moments

    def _hooks(self) -> dict[int, Hook]:
        return {id(hook): hook for hook in getattr(self._owner, self._attribute) or () if hook.when in self._moments}

    def __getitem__(self, number: int) -> Callable[..., Any]:
        return self._hooks()[number].function

    def __setitem__(self, number: int, function: Callable[..., Any]) -> None:
        present = self._hooks().get(number)
        if present is not None:
            take_away(self._owner, self._attribute, present)
        register(self._owner, self._attribute, Hook(self._moments[0], function))

    def __delitem__(self, number: int) -> None:
        take_away(self._owner, self._attribute, self._hooks()[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._hooks())

    def __len__(self) -> int:
        return len(self._hooks())
