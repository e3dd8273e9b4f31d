"""Texts of numbers that the program, or the prologue, computes: f-strings, `%`, `str.format`, `join`.

Such a text is computed again by each call, after the program, like the numbers in it (extracted_numbers.py), and like those it is no guard
where it is returned, stored, printed or made part of another text.  Whatever else asks for it guards the numbers.

Invariant: what is computed after the program cannot raise.  A format that may, for some values of its types, is applied at once.
"""

from __future__ import annotations

import builtins
import math
import re
import string
from typing import Any

import numpy as np

from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.post_program import PostProgramValue, is_deferred_call_result, is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import SymbolicNumber, concrete
from tracejit.capture.policies import is_a, is_user_instance
from tracejit.replay.ir import Constant, Expr, SliceKey, tuple_of
from tracejit.tensor import Tensor

__all__ = ["OPEN_METHODS", "TextHandlers", "as_text", "is_open"]

_CONVERSIONS: dict[int, Any] = {ord("s"): builtins.str, ord("r"): builtins.repr, ord("a"): builtins.ascii}
_PERCENT = re.compile(r"%(?:\((\w*)\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?[hlL]?(.)")
OPEN_METHODS: dict[str, tuple[tuple[type, ...], ...]] = {
    **dict.fromkeys(("upper", "lower", "title", "capitalize", "casefold", "swapcase"), ()),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), ((str, type(None)),)), **dict.fromkeys(("ljust", "rjust", "center"), ((int,), (str,))),
    **dict.fromkeys(("removeprefix", "removesuffix"), ((str,),)), "zfill": ((int,),), "replace": ((str,), (str,), (int,)), "join": (),
}  # fmt: skip
"""Methods of texts that make texts and cannot raise, and what they may be given."""
_NEEDED = {"removeprefix": 1, "removesuffix": 1, "ljust": 1, "rjust": 1, "center": 1, "zfill": 1, "replace": 2}
_WIDEST = 4096
_PLAIN: tuple[type, ...] = (str, int, float, bool, type(None))


def is_open(value: Any) -> bool:
    """Whether `value` is a number or a text that each call computes for itself."""
    return type(value) is SymbolicNumber


def _is_text(value: Any) -> bool:
    return type(plain(value)) is str


def as_text(value: Any) -> Any:
    """A text that each call computes for itself as the one of this run, for what takes none: it tells what is wrong with that one."""
    return concrete(value) if is_open(value) and _is_text(value) else value


class TextHandlers(Handlers):
    """Definitions of texts."""

    def _in_text(self, value: Any) -> Expr:
        """The expression of a number or text."""
        if type(value) is SymbolicNumber:
            return value._name
        if type(value) in (int, float):
            return self.recorder.number_expression(value)
        return Constant(value) if type(value) in _PLAIN else self.recorder.constant(value)

    def _post_program_text(self, expression: Expr, parts: tuple[Any, ...], value: str) -> Any:
        return self.recorder.extracted_numbers.define_post_program(PostProgramValue(expression, parts, lambda: None), value)

    def post_program_format(self, value: Any, conversion: int, specification: str) -> Any:
        """format(conversion(value), specification) of an open number or text."""
        recorder = self.recorder
        convert = _CONVERSIONS.get(conversion)
        known = plain(value) if convert is None else recorder.containers.native(lambda: convert(plain(value)))
        result = recorder.containers.native(lambda: format(known, specification))
        if recorder.stopped:
            return result
        if (
            not recorder.extracted_numbers.are_short((value,))
            or (is_deferred_call_result(value) and specification)
            or specification[-1:] in ("c", "n")
            or (
                type(known) is int
                and specification[-1:] in tuple("eEfFgG%")
                and recorder.extracted_numbers.bits_of(value) is None
            )
        ):
            concrete(value)  # numbers that do not fit raise, and the locale may change
            return result
        part = self._in_text(value)
        if convert is not None:
            part = recorder.constant(convert).call(part)
        return self._post_program_text(recorder.constant(format).call(part, specification), (value,), result)

    def joined(self, parts: tuple[Any, ...], between: str = "") -> Any:
        """The parts of an f-string, or of a call of str.join."""
        result = between.join(map(plain, parts))
        if self.recorder.stopped or not any(map(is_open, parts)):
            return result
        return self._post_program_text(
            Constant(between).method("join", tuple_of(*map(self._in_text, parts))), tuple(parts), result
        )

    def post_program_percent(self, template: Any, values: Any) -> Any:
        """template % values, of which some are open; None where the values are needed."""
        recorder = self.recorder
        given = values if type(values) is tuple else (values,)
        kinds = self.letters_of(template) if type(template) is str else None
        if kinds is None:
            return None
        if len(kinds) == len(given):
            given = tuple(
                [
                    v if is_open(v) or type(v) in _PLAIN else self.for_percent(v, kind)
                    for v, kind in zip(given, kinds, strict=True)
                ]
            )
        if not all(is_open(v) or type(v) in _PLAIN for v in given) or not recorder.extracted_numbers.are_short(given):
            return None
        if any(is_deferred_call_result(v) and kind not in "sra" for kind, v in zip(kinds, given, strict=False)):
            return None
        result = template % tuple(map(plain, given))
        if any(kind in "dixX" and is_a(plain(v), np.floating) for kind, v in zip(kinds, given, strict=True)):
            return None  # NaN has no integer, and no exit can ask for it
        for kind, value in zip(kinds, given, strict=True):
            if kind in "di" and is_open(value) and type(plain(value)) is float:  # infinities and NaN have no integer
                if not is_post_program(value):
                    return None
                recorder.extracted_numbers.guard_comparison("<", value, math.inf, True)
                recorder.extracted_numbers.guard_comparison(">", value, -math.inf, True)
        if any(kind in "fFeEgG" and self._is_long(v) for kind, v in zip(kinds, given, strict=True)):
            return None
        return self._post_program_text(Constant(template).of("%", tuple_of(*map(self._in_text, given))), given, result)

    def with_texts(self, template: str, values: Any) -> tuple[str, Any]:
        """What template % values is the same as, with texts in the place of objects of the program."""
        if is_user_instance(values) and (keys := [key for key, *_ in _PERCENT.findall(template.replace("%%", "")) if key]):
            return template, self.recorder.mark_created({key: self.recorder.containers.get_item(values, key) for key in keys})
        given = values if type(values) is tuple else (values,)
        if is_a(values, tuple) is not (type(values) is tuple) or not any(map(is_user_instance, given)):
            return template, values
        letters = self.letters_of(template)
        if letters is None or len(letters) != len(given):
            return template, values
        are_texts = [letter in "sra" and is_user_instance(v) for v, letter in zip(given, letters, strict=True)]
        texts = [
            self.recorder.operators.formatted(v, ord(letter), "") if is_text else v
            for v, letter, is_text in zip(given, letters, are_texts, strict=True)
        ]
        fields = iter(are_texts)
        template = _PERCENT.sub(lambda field: field[0] if field[4] == "%" or not next(fields) else f"{field[0][:-1]}s", template)
        return template, self.recorder.mark_created(tuple(texts)) if type(values) is tuple else texts[0]

    @staticmethod
    def letters_of(template: str) -> str | None:
        """The letters of the conversions in a template for `%`, in order; None for one of an unusual kind."""
        found = _PERCENT.findall(template.replace("%%", ""))
        letters = "".join(kind for *_, kind in found)
        usual = not any(key or "*" in (width, precision) for key, width, precision, _ in found)
        return letters if usual and set(letters) <= set("sradifFeEgG") else None

    def for_percent(self, value: Any, kind: str) -> Any:
        """What stands for a tensor or an object where `%` with the letter `kind` makes a text of it; itself where nothing does."""
        if kind == "s":
            return self.recorder.operators.formatted(value, ord(kind), "")
        if kind in "ra":
            return value
        number = self.recorder.extracted_numbers.element(value) if is_a(value, Tensor) else None
        return value if number is None else number

    def post_program_str_format(self, template: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """template.format(...) of arguments of which some are open; None where the values are needed."""
        values = (*arguments, *keywords.values())
        if (
            not all(is_open(v) or type(v) in _PLAIN for v in values)
            or not self.recorder.extracted_numbers.are_short(values)
            or any(map(is_deferred_call_result, values))
        ):
            return None
        result = template.format(*map(plain, arguments), **{k: plain(v) for k, v in keywords.items()})
        for _, name, specification, _ in self.recorder.unwatched(lambda: list(string.Formatter().parse(template))):
            if (name and not name.isalnum() and not name.isidentifier()) or "{" in (specification or ""):
                return None
            if (specification or "")[-1:] in ("c", "n") and any(is_open(v) and type(plain(v)) is int for v in values):
                return None
            if (specification or "")[-1:] in tuple("eEfFgG%") and any(map(self._is_long, values)):
                return None
        named = {k: self._in_text(v) for k, v in keywords.items()}
        return self._post_program_text(
            Constant(template).get("format").call(*map(self._in_text, arguments), **named), values, result
        )

    def format_of_objects(self, template: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """template.format(...) of arguments of which some are objects of the program, as an f-string; None where fields are no names."""
        parts: list[Any] = []
        unnamed, numbered = 0, False
        for literal, name, specification, conversion in self.recorder.unwatched(lambda: list(string.Formatter().parse(template))):
            parts.append(literal)
            if name is None:
                continue
            numbered = numbered or name.isdecimal()
            if not name:
                name, unnamed = f"{unnamed}", unnamed + 1
            if numbered and unnamed:
                return None  # it raises what is to be raised
            place = int(name) if name.isdecimal() else name
            known = place < len(arguments) if type(place) is int else place in keywords
            if not known or "{" in specification:
                return None
            value = arguments[place] if type(place) is int else keywords[name]
            parts.append((value, ord(conversion) if conversion else -1, specification))
        texts = [part if type(part) is str else self.recorder.operators.formatted(*part) for part in parts]
        return self.joined(tuple(texts))

    def _is_long(self, value: Any) -> bool:
        """Whether an int may, in some call, be too long to become a float."""
        return is_open(value) and type(plain(value)) is int and self.recorder.extracted_numbers.bits_of(value) is None

    def text_method(self, owner: Any, name: str, arguments: tuple[Any, ...]) -> Any:
        """A method of an open text, or of one that is given open texts; None where the texts are needed."""
        kinds = OPEN_METHODS.get(name, ())
        given = tuple(map(plain, arguments))
        if not _NEEDED.get(name, 0) <= len(given) <= len(kinds) or self.recorder.stopped:
            return None
        if not all(type(value) in kind for value, kind in zip(given, kinds, strict=False)):
            return None
        widths = [a for a in arguments if type(plain(a)) is int]
        if any(is_open(width) or abs(width) > _WIDEST for width in widths):
            return None
        if name in ("ljust", "rjust", "center") and len(given) == 2 and (is_open(arguments[1]) or len(given[1]) != 1):
            return None
        result = getattr(plain(owner), name)(*given)
        return self._post_program_text(
            self._in_text(owner).method(name, *map(self._in_text, arguments)), (owner, *arguments), result
        )

    def text_slice(self, owner: Any, key: slice) -> Any:
        """owner[a:b:c] of an open text; None where it may raise."""
        bounds = key.start, key.stop, key.step
        if not all(bound is None or type(bound) is int for bound in bounds) or key.step == 0:
            return None
        section = SliceKey(*[None if bound is None else self.recorder.number_expression(bound) for bound in bounds])
        return self._post_program_text(owner._name.at(section), (owner,), plain(owner)[key])

    def repeated(self, left: Any, right: Any) -> Any:
        """text * number, of which the text is open; None where the text is needed."""
        text, number = (left, right) if _is_text(left) else (right, left)
        if not _is_text(text) or type(number) is not int or number > _WIDEST:
            return None
        return self._post_program_text(text._name.of("*", self.recorder.number_expression(number)), (text,), plain(text) * number)

    def text_function(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """A function of texts that makes a text and cannot raise, of texts of which some are open."""
        result = function(*map(plain, arguments))
        return self._post_program_text(self.recorder.constant(function).call(*map(self._in_text, arguments)), arguments, result)

    def post_program_concatenation(self, left: Any, right: Any) -> Any:
        """left + right, texts of which one is open."""
        return self.joined((left, right)) if _is_text(left) and _is_text(right) else None

    # -- containers
    def holds_open(self, value: Any) -> bool:
        if type(value) not in (list, tuple, dict) or self.recorder.is_outside(value):
            return is_open(value) or is_a(value, Tensor)
        parts = [*value, *value.values()] if type(value) is dict else value
        return any(map(self.holds_open, parts))

    def text_of_shape(self, shape: Any) -> Any:
        """repr() of a Size with symbolic sizes."""
        text = repr(shape)
        sizes = self.text_of_container([*self.recorder.contents.elements(shape)])
        return self.joined((text[: text.index("[")], sizes, text[text.index("]") + 1 :]))

    def text_of_container(self, value: Any) -> Any:
        """repr() of a container that this run made, in which there are numbers or texts that each call computes."""
        if type(value) not in (list, tuple, dict) or not self.holds_open(value):
            return self.recorder.operators.formatted(value, ord("r"), "")
        if type(value) is dict:
            items = [self.joined((self.text_of_container(k), ": ", self.text_of_container(v))) for k, v in value.items()]
            return self.joined(("{", self.joined(tuple(items), ", "), "}"))
        parts = self.joined(tuple(map(self.text_of_container, value)), ", ")
        start, end = "[]" if type(value) is list else "()"
        return self.joined((start, parts, ("," if type(value) is tuple and len(value) == 1 else "") + end))
