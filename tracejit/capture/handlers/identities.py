"""`a is b` for equal texts (str and bytes).  Guards on texts test equality, and equal texts may be one object or two.

The outside places that a text was read from are noted by its identity.  `is_same` guards that these places hold one object, or
different ones, as in this run.  A text in the code of a recorded function is the same object in each call.  A text that C code
returned (a key of a dictionary, the result of a method of str) may be another equal object in a later call, so the recording
stops where one is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.base import Handlers
from tracejit.capture.recording.journal import Topic
from tracejit.replay.ir import Expr

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["IdentityHandlers", "is_text"]

_TEXTS: Final = (str, bytes)
_CACHED: Final = 256
"""CPython caches the texts of one character below this code point."""


def is_text(value: Any) -> bool:
    """Whether `value` is a text of which there may be equal copies: it is neither empty nor a cached character."""
    if type(value) not in _TEXTS or not value:
        return False
    return len(value) > 1 or (type(value) is str and ord(value) >= _CACHED)


class IdentityHandlers(Handlers):
    """The places that texts were read from.  placeless_texts, by id: texts that a later call may have as another equal object."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        # (id of a text, variable that holds it) -> the text, which is kept alive.
        self._places: dict[tuple[int, Expr], Any] = recorder.journal.dictionary(Topic.READS)
        self.placeless_texts: dict[int, Any] = {}

    def note_place(self, text: Any, variable: Expr) -> None:
        """Note that `text`, if it is one, was read from an outside place into a variable of the prologue."""
        if type(text) in _TEXTS:
            self._places[id(text), variable] = text

    def note_placeless(self, values: Iterable[Any]) -> None:
        """Note the texts among `values`: C code returned them, or guards test nothing but their equality."""
        for value in values:
            if type(value) in _TEXTS:
                self.placeless_texts[id(value)] = value

    def is_same(self, left: Any, right: Any) -> bool | None:
        """Whether two equal texts are one object, guarded.  None if it cannot be guarded."""
        constants = {id(constant) for constant in self._constants()}
        places: list[list[Expr]] = []
        for text in (left, right):
            variables = [variable for identity, variable in self._places if identity == id(text)]
            of_code = [self.recorder.constant(text)] if id(text) in constants else []
            if id(text) in self.placeless_texts or not (variables or of_code):
                return None
            places.append([*of_code, *variables])
        (first, *others), of_right = places
        if left is right:
            for other in others:
                self.recorder.miss_if(other.is_not(first))
        else:
            for place in (first, *others):
                for other in of_right:
                    self.recorder.miss_if(place.is_same(other))
        return left is right

    def _constants(self) -> Iterator[Any]:
        """The texts among the constants of the recorded functions' code."""
        waiting: list[Any] = list(self.recorder.calls.codes())
        while waiting:
            value = waiting.pop()
            if type(value) is CodeType:
                waiting += value.co_consts
            elif type(value) in (tuple, frozenset):
                waiting += value
            elif type(value) in _TEXTS:
                yield value
