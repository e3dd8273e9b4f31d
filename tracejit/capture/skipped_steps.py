"""What steps of a loop that do not run leave, put where they would have left it: in variables, tuples, lists, dictionaries and
objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.nested_places import children_of, is_tuple, items_of, rebuilt_tuple, store_at
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.effects import AttributeStore, ItemStore
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["Replacement"]


class Replacement:
    """Puts other tensors in the places of tensors, and numbers of the program that they hold in the places of such numbers."""

    def __init__(self, interpreter: RecordingInterpreter, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        self._interpreter = interpreter
        self._recorder = interpreter.recorder
        self._replaced: dict[int, Any] = {id(x): y for x, y in zip(before, after, strict=True)}

    def __call__(self, value: Any) -> Any:
        """What takes the place of a value: tuples are made anew, other containers hold something else (`in_containers`)."""
        if id(value) in self._replaced:
            return self._replaced[id(value)]
        if is_post_program(value):
            new = self._replaced.get(id(value._post_program.program_tensor())) if value._post_program.is_made else None
            self._replaced[id(value)] = value if new is None else self._interpreter.take_number(new)
        elif is_tuple(value):
            items = items_of(self._recorder, value)
            others = list(map(self, items))
            same = all(x is y for x, y in zip(others, items, strict=True))
            self._replaced[id(value)] = value if same else rebuilt_tuple(self._recorder, value, others)
        return self._replaced.get(id(value), value)

    def in_containers(self, containers: Sequence[Any]) -> None:
        """Replace what is in lists, dictionaries and objects."""
        for container in containers:
            for place, value in children_of(self._recorder, container) or ():
                if (new := self(value)) is not value:
                    store_at(self._recorder, container, place, new)

    def in_stores(self, stores: Mapping[int, AttributeStore | ItemStore]) -> None:
        """Replace what has been stored outside.  stores: by their positions among the effects."""
        for position, effect in stores.items():
            if (new := self(effect.value)) is not effect.value:
                self._recorder.effects.store_again(position, new)
