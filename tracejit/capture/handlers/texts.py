"""Texts made of numbers that the program or the prologue computes: f-strings, `%`, `str.format`, `join`.

Such a text is *open*: each call computes it again after the program, like the numbers in it (extracted_numbers.py).  Returning,
storing or printing it, or making it a part of another text, adds no guard.  Any other use guards the numbers.

Invariant: what is computed after the program cannot raise.  A format that may raise for some values is applied to guarded values
at once.
"""

from __future__ import annotations

import builtins
import math
import re
import string
from typing import Any

import numpy as np

from tracejit.capture.container_kinds import children
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.post_program import PostProgramValue, is_deferred_call_result, is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise
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
"""Method of str that returns a text and cannot raise -> the types that each of its arguments may have."""
_NEEDED = {"removeprefix": 1, "removesuffix": 1, "ljust": 1, "rjust": 1, "center": 1, "zfill": 1, "replace": 2}
"""The number of arguments that these methods need at least."""
_WIDEST = 4096
_PLAIN: tuple[type, ...] = (str, int, float, bool, type(None))
"""Types of plain values whose formatting depends on nothing else."""


def is_open(value: Any) -> bool:
    """Whether `value` is a stand-in: a number or text that each call computes again."""
    return type(value) is SymbolicNumber


def _is_text(value: Any) -> bool:
    return type(plain(value)) is str


def as_text(value: Any) -> Any:
    """The plain text of an open one, guarded, for operators whose error names the text; other values unchanged."""
    return concretise(value) if is_open(value) and _is_text(value) else value


class TextHandlers(Handlers):
    """Defines open texts."""

    def _expression(self, value: Any) -> Expr:
        """The expression of a number, a text or another plain value."""
        if type(value) is SymbolicNumber:
            return value._name
        if type(value) in (int, float):
            return self.recorder.number_expression(value)
        return Constant(value) if type(value) in _PLAIN else self.recorder.constant(value)

    def _post_program_text(self, expression: Expr, parts: tuple[Any, ...], value: str) -> Any:
        """A new open text that `expression` computes from `parts`.  value: the text of this run."""
        return self.recorder.extracted_numbers.define_post_program(PostProgramValue(expression, parts, lambda: None), value)

    def post_program_format(self, value: Any, conversion: int, specification: str) -> Any:
        """format(conversion(value), specification) of an open number or text."""
        recorder = self.recorder
        convert = _CONVERSIONS.get(conversion)
        converted = plain(value) if convert is None else recorder.containers.native(lambda: convert(plain(value)))
        result = recorder.containers.native(lambda: format(converted, specification))
        if recorder.stopped:
            return result
        if (
            not recorder.extracted_numbers.are_short((value,))
            or (is_deferred_call_result(value) and specification)
            or specification[-1:] in ("c", "n")
            or (
                type(converted) is int
                and specification[-1:] in tuple("eEfFgG%")
                and recorder.extracted_numbers.bits_of(value) is None
            )
        ):
            concretise(value)  # formatting may raise for other numbers, or depend on the locale
            return result
        part = self._expression(value)
        if convert is not None:
            part = recorder.constant(convert).call(part)
        return self._post_program_text(recorder.constant(format).call(part, specification), (value,), result)

    def joined(self, parts: tuple[Any, ...], between: str = "") -> Any:
        """between.join(parts), of plain and open texts: also the value of an f-string."""
        result = between.join(map(plain, parts))
        if self.recorder.stopped or not any(map(is_open, parts)):
            return result
        return self._post_program_text(
            Constant(between).method("join", tuple_of(*map(self._expression, parts))), tuple(parts), result
        )

    def post_program_percent(self, template: Any, values: Any) -> Any:
        """template % values, some of them open, as an open text; None if the values have to be guarded."""
        recorder = self.recorder
        fields = values if type(values) is tuple else (values,)
        kinds = self.letters_of(template) if type(template) is str else None
        if kinds is None:
            return None
        if len(kinds) == len(fields):
            fields = tuple(
                [
                    v if is_open(v) or type(v) in _PLAIN else self.for_percent(v, kind)
                    for v, kind in zip(fields, kinds, strict=True)
                ]
            )
        if not all(is_open(v) or type(v) in _PLAIN for v in fields) or not recorder.extracted_numbers.are_short(fields):
            return None
        if any(is_deferred_call_result(v) and kind not in "sra" for kind, v in zip(kinds, fields, strict=False)):
            return None
        result = template % tuple(map(plain, fields))
        if any(kind in "dixX" and is_a(plain(v), np.floating) for kind, v in zip(kinds, fields, strict=True)):
            return None  # NaN raises there, and no exit can test it
        for kind, value in zip(kinds, fields, strict=True):
            if kind in "di" and is_open(value) and type(plain(value)) is float:  # infinities and NaN raise
                if not is_post_program(value):
                    return None
                recorder.extracted_numbers.guard_comparison("<", value, math.inf, True)
                recorder.extracted_numbers.guard_comparison(">", value, -math.inf, True)
        if any(kind in "fFeEgG" and self._is_long(v) for kind, v in zip(kinds, fields, strict=True)):
            return None
        return self._post_program_text(Constant(template).of("%", tuple_of(*map(self._expression, fields))), fields, result)

    def with_texts(self, template: str, values: Any) -> tuple[str, Any]:
        """(template, values) with the same result of `%`, where objects of user code are replaced by their texts."""
        if is_user_instance(values) and (keys := [key for key, *_ in _PERCENT.findall(template.replace("%%", "")) if key]):
            return template, self.recorder.mark_created({key: self.recorder.containers.get_item(values, key) for key in keys})
        items = values if type(values) is tuple else (values,)
        if is_a(values, tuple) is not (type(values) is tuple) or not any(map(is_user_instance, items)):
            return template, values
        letters = self.letters_of(template)
        if letters is None or len(letters) != len(items):
            return template, values
        are_texts = [letter in "sra" and is_user_instance(v) for v, letter in zip(items, letters, strict=True)]
        texts = [
            self.recorder.operators.formatted(v, ord(letter), "") if is_text else v
            for v, letter, is_text in zip(items, letters, are_texts, strict=True)
        ]
        fields = iter(are_texts)
        template = _PERCENT.sub(lambda field: field[0] if field[4] == "%" or not next(fields) else f"{field[0][:-1]}s", template)
        return template, self.recorder.mark_created(tuple(texts)) if type(values) is tuple else texts[0]

    @staticmethod
    def letters_of(template: str) -> str | None:
        """The letters of the conversions in a template for `%`, in order: "df" for "%d: %.2f".  None if one has a key, a width or
        precision `*`, or another letter than the usual ones."""
        fields = _PERCENT.findall(template.replace("%%", ""))
        letters = "".join(kind for *_, kind in fields)
        usual = not any(key or "*" in (width, precision) for key, width, precision, _ in fields)
        return letters if usual and set(letters) <= set("sradifFeEgG") else None

    def for_percent(self, value: Any, kind: str) -> Any:
        """What `%` with the letter `kind` gets for `value`: its text for `%s`, the number in a tensor for others."""
        if kind == "s":
            return self.recorder.operators.formatted(value, ord(kind), "")
        if kind in "ra":
            return value
        number = self.recorder.extracted_numbers.element(value) if is_a(value, Tensor) else None
        return value if number is None else number

    def post_program_str_format(self, template: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """template.format(...), some arguments open, as an open text; None if the values have to be guarded."""
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
        named = {k: self._expression(v) for k, v in keywords.items()}
        return self._post_program_text(
            Constant(template).get("format").call(*map(self._expression, arguments), **named), values, result
        )

    def format_of_objects(self, template: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """template.format(...) with objects of user code among the arguments: field by field, like an f-string.  None if a
        field is no plain name or number of an argument, or Python raises."""
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
                return None  # Python raises its error
            field = int(name) if name.isdecimal() else name
            exists = field < len(arguments) if type(field) is int else field in keywords
            if not exists or "{" in specification:
                return None
            value = arguments[field] if type(field) is int else keywords[name]
            parts.append((value, ord(conversion) if conversion else -1, specification))
        texts = [part if type(part) is str else self.recorder.operators.formatted(*part) for part in parts]
        return self.joined(tuple(texts))

    def _is_long(self, value: Any) -> bool:
        """Whether `value` is an int that may be too long for a float in some call."""
        return is_open(value) and type(plain(value)) is int and self.recorder.extracted_numbers.bits_of(value) is None

    def text_method(self, owner: Any, name: str, arguments: tuple[Any, ...]) -> Any:
        """owner.name(*arguments), where the owner or arguments are open texts; None if the texts have to be guarded."""
        kinds = OPEN_METHODS.get(name, ())
        values = tuple(map(plain, arguments))
        if not _NEEDED.get(name, 0) <= len(values) <= len(kinds) or self.recorder.stopped:
            return None
        if not all(type(value) in kind for value, kind in zip(values, kinds, strict=False)):
            return None
        widths = [a for a in arguments if type(plain(a)) is int]
        if any(is_open(width) or abs(width) > _WIDEST for width in widths):
            return None
        if name in ("ljust", "rjust", "center") and len(values) == 2 and (is_open(arguments[1]) or len(values[1]) != 1):
            return None
        result = getattr(plain(owner), name)(*values)
        return self._post_program_text(
            self._expression(owner).method(name, *map(self._expression, arguments)), (owner, *arguments), result
        )

    def text_slice(self, owner: Any, key: slice) -> Any:
        """owner[a:b:c] of an open text; None if it may raise."""
        bounds = key.start, key.stop, key.step
        if not all(bound is None or type(bound) is int for bound in bounds) or key.step == 0:
            return None
        section = SliceKey(*[None if bound is None else self.recorder.number_expression(bound) for bound in bounds])
        return self._post_program_text(owner._name.at(section), (owner,), plain(owner)[key])

    def repeated(self, left: Any, right: Any) -> Any:
        """text * number, in either order, of an open text and a plain number; None if the text has to be guarded."""
        text, number = (left, right) if _is_text(left) else (right, left)
        if not _is_text(text) or type(number) is not int or number > _WIDEST:
            return None
        return self._post_program_text(text._name.of("*", self.recorder.number_expression(number)), (text,), plain(text) * number)

    def text_function(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """function(*arguments), for a function of texts that cannot raise and returns a text; some arguments are open."""
        result = function(*map(plain, arguments))
        return self._post_program_text(
            self.recorder.constant(function).call(*map(self._expression, arguments)), arguments, result
        )

    def post_program_concatenation(self, left: Any, right: Any) -> Any:
        """left + right, if both are texts; else None."""
        return self.joined((left, right)) if _is_text(left) and _is_text(right) else None

    # -- containers
    def holds_open(self, value: Any) -> bool:
        """Whether `value` is open or a tensor, or a list, tuple or dictionary of this run that holds such a value."""
        if type(value) not in (list, tuple, dict) or self.recorder.is_outside(value):
            return is_open(value) or is_a(value, Tensor)
        return any(map(self.holds_open, children(value)))

    def text_of_shape(self, shape: Any) -> Any:
        """repr() of a Size with symbolic sizes."""
        text = repr(shape)
        sizes = self.text_of_container([*self.recorder.contents.elements(shape)])
        return self.joined((text[: text.index("[")], sizes, text[text.index("]") + 1 :]))

    def text_of_container(self, value: Any) -> Any:
        """repr() of a list, tuple or dictionary of this run that holds open values."""
        if type(value) not in (list, tuple, dict) or not self.holds_open(value):
            return self.recorder.operators.formatted(value, ord("r"), "")
        if type(value) is dict:
            items = [self.joined((self.text_of_container(k), ": ", self.text_of_container(v))) for k, v in value.items()]
            return self.joined(("{", self.joined(tuple(items), ", "), "}"))
        parts = self.joined(tuple(map(self.text_of_container, value)), ", ")
        start, end = "[]" if type(value) is list else "()"
        return self.joined((start, parts, ("," if type(value) is tuple and len(value) == 1 else "") + end))
