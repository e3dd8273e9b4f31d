"""Calls that write texts: print(), and the methods of texts that make such of open numbers.

Nobody waits for what print() does, so the program runs before it, with all its exits; then the prints of a call follow in order, with its
own numbers.
"""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from tracejit.capture.effects import FunctionCall
from tracejit.capture.standard_calls import StandardCallHandlers
from tracejit.capture.symbols import concrete, plain
from tracejit.capture.texts import is_open

__all__ = ["PrintingHandlers"]


class PrintingHandlers(StandardCallHandlers):
    """`print(x)`, `"{}".format(x)`, `", ".join(xs)`."""

    def late_text_method(self, name: str, owner: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """str.format and str.join of numbers and texts that each call computes; None for others."""
        if name == "format":
            opened = any(map(is_open, (*arguments, *keywords.values())))
            return self.late_str_format(owner, arguments, keywords) if opened else None
        if len(arguments) != 1 or keywords or type(arguments[0]) not in (list, tuple, GeneratorType):
            return None
        consumed = type(arguments[0]) is GeneratorType
        parts = list(self.iterate(arguments[0])) if consumed else arguments[0]
        if any(map(is_open, parts)) and all(type(plain(part)) is str for part in parts):
            return self.joined(tuple(parts), owner)
        return owner.join(map(concrete, parts)) if consumed else None

    def printed(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """print: nobody waits for what it does, so the program runs before it, with all its exits."""
        keywords = {k: concrete(v) for k, v in keywords.items()}
        file = keywords.get("file")
        if keywords.keys() - {"sep", "end", "flush", "file"} or not (file is None or self.is_outside(file)):
            self.stop("impure_call", "print() to a file that the call has made")
        texts = tuple(map(self._line, arguments))
        self.native(lambda: print(*map(plain, texts), **keywords))
        self.note_call(FunctionCall(print, texts, keywords))

    def _line(self, value: Any) -> Any:
        """The text that print() writes of a value."""
        if type(value) in (list, tuple, dict) and not self.is_outside(value) and self._holds_open(value):
            return self._shown(value)
        return value if type(plain(value)) is str else self.formatted(value, ord("s"), "")

    def _holds_open(self, value: Any) -> bool:
        if type(value) not in (list, tuple, dict) or self.is_outside(value):
            return is_open(value)
        parts = [*value, *value.values()] if type(value) is dict else value
        return any(map(self._holds_open, parts))

    def _shown(self, value: Any) -> Any:
        """repr() of a container that this run made, in which there are numbers or texts that each call computes."""
        if not self._holds_open(value) or is_open(value):
            return self.formatted(value, ord("r"), "")
        if type(value) is dict:
            items = [self.joined((self._shown(k), ": ", self._shown(v))) for k, v in value.items()]
            return self.joined(("{", self.joined(tuple(items), ", "), "}"))
        parts = self.joined(tuple(map(self._shown, value)), ", ")
        start, end = "[]" if type(value) is list else "()"
        return self.joined((start, parts, ("," if type(value) is tuple and len(value) == 1 else "") + end))
