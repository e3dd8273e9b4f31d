"""`a is b` of texts: guards on texts ask whether they are equal, and equal ones may be one object or two.

Which places a text was found in is known by the object: a call that finds it there again guards that these places hold one object, or
other ones, as they did.  A text that stands in the code of a recorded function is the same object in each call.  What C code has given
(a key of a dictionary, what a method of texts made) may be any object that is equal: where one of these is compared, the recording stops.
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
"""Python has one text of one character below this."""


def is_text(value: Any) -> bool:
    """Whether there may be equal texts that are other objects."""
    if type(value) not in _TEXTS or not value:
        return False
    return len(value) > 1 or (type(value) is str and ord(value) >= _CACHED)


class IdentityHandlers(Handlers):
    """Where texts come from."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        # The variables that hold texts, by the ids of these; and these, which live as long.
        self._places: dict[tuple[int, Expr], Any] = recorder.journal.dictionary(Topic.READS)
        self.placeless_texts: dict[int, Any] = {}  # by id: those of which a later call may find an equal one

    def note_place(self, text: Any, variable: Expr) -> None:
        """A value was found in a place outside, which a variable of the prologue holds."""
        if type(text) in _TEXTS:
            self._places[id(text), variable] = text

    def note_placeless(self, values: Iterable[Any]) -> None:
        """C code has given these values, or guards ask whether they are equal and nothing else."""
        for value in values:
            if type(value) in _TEXTS:
                self.placeless_texts[id(value)] = value

    def is_same(self, left: Any, right: Any) -> bool | None:
        """Whether two equal texts are one object, guarded; None where a later call may find it otherwise."""
        constants = {id(constant) for constant in self._constants()}
        places: list[list[Expr]] = []
        for text in (left, right):
            variables = [variable for known, variable in self._places if known == id(text)]
            of_code = [self.recorder.constant(text)] if id(text) in constants else []
            if id(text) in self.placeless_texts or not (variables or of_code):
                return None
            places.append([*of_code, *variables])
        (first, *others), known = places
        if left is right:
            for other in others:
                self.recorder.miss_if(other.is_not(first))
        else:
            for one in (first, *others):
                for other in known:
                    self.recorder.miss_if(one.is_same(other))
        return left is right

    def _constants(self) -> Iterator[Any]:
        """The texts in the code of the functions that are recorded."""
        waiting: list[Any] = list(self.recorder.calls.codes())
        while waiting:
            value = waiting.pop()
            if type(value) is CodeType:
                waiting += value.co_consts
            elif type(value) in (tuple, frozenset):
                waiting += value
            elif type(value) in _TEXTS:
                yield value
