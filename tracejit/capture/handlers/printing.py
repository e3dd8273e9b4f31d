"""Calls that tell somebody something: print(), loggers, warnings, writing to files, progress bars; and the methods of texts.

Nobody waits for what they do, so the program runs before them, with all its exits; then those of a call follow in order, with its own
numbers.  Loggers and warnings name the line of the program that calls them: an entry gives it to them, as it was recorded.  Their
handlers and filters decide in each call what becomes of it.
"""

from __future__ import annotations

import io
import logging
import time
import warnings
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import Any

from tracejit.capture.call_sites import calling_frame, frame_at, instrumented_frames, level_from_here, may_be_error
from tracejit.capture.defects import does_as_python
from tracejit.capture.handlers.base import Handler, Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import concrete
from tracejit.capture.handlers.texts import is_open
from tracejit.capture.policies import DICT_VIEWS, PRIMITIVE_TYPES, bound_to, is_a, is_user_instance
from tracejit.capture.syntax.convert import is_instrumented
from tracejit.core.package_files import is_own_frame, level_of_program

__all__ = ["FILES", "PrintingHandlers", "as_called_by_program"]

_LEVELS: dict[Any, int] = {
    logging.Logger.debug: logging.DEBUG, logging.Logger.info: logging.INFO, logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR, logging.Logger.critical: logging.CRITICAL, logging.Logger.log: logging.NOTSET,
}  # fmt: skip
"""Methods of loggers, and the level of what they tell: `log` is given one."""
_OF_ROOT: dict[Any, Any] = {
    logging.debug: logging.Logger.debug, logging.info: logging.Logger.info, logging.warning: logging.Logger.warning,
    logging.error: logging.Logger.error, logging.critical: logging.Logger.critical, logging.log: logging.Logger.log,
}  # fmt: skip
_PROGRESS = frozenset(
    {
        "update", "set_postfix", "set_postfix_str", "set_description", "set_description_str", "refresh", "clear", "close", "reset",
        "display", "unpause",
    }
)  # fmt: skip
FILES: tuple[type, ...] = (io.TextIOWrapper, io.StringIO, io.BytesIO, io.BufferedWriter, io.FileIO)
_WARN = ("message", "category", "stacklevel")
_WRITING = frozenset({"write", "flush", "writelines"})


@does_as_python
def _log(logger: logging.Logger, level: int, file: str, line: int, function: str, message: Any, *arguments: Any) -> None:
    """What the methods of a logger do once they have found out who calls."""
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, arguments, None, function))


@does_as_python
def _log_to_root(level: int, file: str, line: int, function: str, message: Any, *arguments: Any) -> None:
    """The same of the functions of the module, which see to it that there is a handler."""
    if not logging.root.handlers:
        logging.basicConfig()
    _log(logging.root, level, file, line, function, message, *arguments)


@does_as_python
def _warn(message: Any, category: type[Warning], file: str, line: int, names: dict[str, Any]) -> None:
    """What warnings.warn() does once it has found out who calls."""
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, names.get("__name__") or "<string>", registry)


@does_as_python
def _warn_caller(message: Any) -> None:
    """The library warns at the line that calls the compiled function, whatever line that is."""
    warnings.warn(message, UserWarning, level_of_program())


def as_called_by_program(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
    """(arguments, keywords) for a frame of capture's to call `function` with: where that names the line that calls it, this is the
    program's line."""
    function = function.__func__ if type(function) is MethodType else function
    if type(function) not in (FunctionType, BuiltinFunctionType):
        return arguments, keywords
    if function is warnings.warn and len(arguments) > 2:
        return (*arguments[:2], level_from_here(arguments[2]), *arguments[3:]), keywords
    if function is warnings.warn or function in _LEVELS or function in _OF_ROOT:
        return arguments, {**keywords, "stacklevel": level_from_here(keywords.get("stacklevel", 1))}
    return arguments, keywords


class PrintingHandlers(Handlers):
    """`print(x)`, `"{}".format(x)`, `", ".join(xs)`."""

    def post_program_text_method(self, name: str, owner: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """str.format and str.join of numbers and texts that each call computes; None for others."""
        recorder = self.recorder
        if name == "format":
            if any(map(is_user_instance, (*arguments, *keywords.values()))):
                return recorder.texts.format_of_objects(owner, arguments, keywords)
            opened = any(map(is_open, (*arguments, *keywords.values())))
            return recorder.texts.post_program_str_format(owner, arguments, keywords) if opened else None
        if len(arguments) != 1 or keywords:
            return None
        consumed = hasattr(type(arguments[0]), "__next__") or type(arguments[0]) in DICT_VIEWS
        if not consumed and type(arguments[0]) not in (list, tuple):
            return None
        parts = list(recorder.iteration.iterate(arguments[0])) if consumed else arguments[0]
        if any(map(is_open, parts)) and all(type(plain(part)) is str for part in parts):
            return recorder.texts.joined(tuple(parts), owner)
        return recorder.perform(lambda: owner.join(map(concrete, parts))) if consumed else None

    def _printed(self, _: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """print: nobody waits for what it does, so the program runs before it, with all its exits."""
        recorder = self.recorder
        keywords = {k: concrete(v) for k, v in keywords.items()}
        file = keywords.get("file")
        if keywords.keys() - {"sep", "end", "flush", "file"} or not (file is None or recorder.is_outside(file)):
            recorder.stop("impure_call", "print() to a file that the call has made")
        self._guard_open(file)
        texts = tuple(
            [value if type(plain(value)) is str else recorder.operators.formatted(value, ord("s"), "") for value in arguments]
        )
        recorder.containers.native(lambda: print(*map(plain, texts), **keywords))
        recorder.effects.note_call(FunctionCall(print, texts, keywords), "print")

    # -- loggers, warnings, files, progress bars
    def standard_call(self, function: Any) -> Handler | None:
        """The handler of a function that tells somebody something."""
        if type(function) not in (FunctionType, BuiltinFunctionType):
            return None
        if type(function) is FunctionType and function.__globals__.get("__name__", "").startswith("tqdm."):
            return self._progressed if function.__name__ in _PROGRESS else None
        owner = bound_to(function)
        if is_a(owner, FILES) and function.__name__ in _WRITING and self.recorder.is_outside(owner):
            return self._written
        return self.in_table(_TELLING, function) if owner is None else None

    def _logged(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a logger, or a function of the module that stands for one of the root logger."""
        to_root = function in _OF_ROOT
        method, given = _OF_ROOT.get(function, function), list(arguments)
        logger = logging.root if to_root or not given else given.pop(0)
        level = concrete(given.pop(0)) if method is logging.Logger.log and given else _LEVELS[method]
        message = given.pop(0) if given else None
        values = self._for_template(message, given)
        known = type(logger) in (logging.Logger, logging.RootLogger) and (to_root or self.recorder.is_outside(logger))
        if not known or keywords or type(level) is not int or type(plain(message)) is not str or values is None:
            self.recorder.stop("impure_call", f"a call of Logger.{method.__name__}() of this kind")
            plain_arguments = tuple(map(plain, arguments)), {k: plain(v) for k, v in keywords.items()}
            given, named = as_called_by_program(function, *plain_arguments)
            answer = function(*given, **named)  # by this frame, as the keywords say
            self.recorder.performed.append((function, answer))
            return answer
        frame = calling_frame()
        while frame.f_code.co_filename == logging.__file__ and (outer := frame_at(2, frame)) is not None:
            frame = outer  # which loggers pass over
        code = frame.f_code
        place = (code.co_filename, frame.f_lineno, code.co_name)
        owner, tell = ([], _log_to_root) if to_root else ([logger], _log)
        return self._call_after_program(tell, (*owner, level, *place, message, *values), name=function.__qualname__)

    def _for_template(self, template: Any, values: list[Any]) -> list[Any] | None:
        """The values that `%` makes a text of, later on: of what may change until then the text of now.  None where it is not known what it
        does with them."""
        simple = [type(plain(value)) in PRIMITIVE_TYPES for value in values]
        if all(simple):
            return values
        kinds = self.recorder.texts.letters_of(template) if type(template) is str else None
        if kinds is None or len(kinds) != len(values):
            return None
        told = [
            v if known else self.recorder.texts.for_percent(v, kind) for v, known, kind in zip(values, simple, kinds, strict=True)
        ]
        return told if all(type(plain(value)) in PRIMITIVE_TYPES for value in told) else None

    def _is_enabled(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Logger.isEnabledFor, which the level of any logger above has a say in: each call asks again."""
        recorder = self.recorder
        arguments = tuple(map(concrete, arguments))
        enabled: bool = recorder.unwatched(lambda: function(*arguments, **keywords))
        logger, level = arguments
        if not recorder.is_outside(logger) or type(level) is not int or type(logger) not in (logging.Logger, logging.RootLogger):
            recorder.stop("impure_call", "a call of Logger.isEnabledFor() of this kind")
        else:
            recorder.miss_if(recorder.constant(function).call(recorder.sources[id(logger)], level).is_not(enabled))
        return enabled

    def warned(self, message: str) -> None:
        """A function of the library warns the program: at the line that called into the library, which is the caller's of the compiled
        function where that is the library's own."""
        frame = next((f for f in instrumented_frames() if not is_own_frame(f)), None)
        if frame is not None:
            self._warned(warnings.warn, (message, UserWarning), {}, frame)
        else:
            self._guard_category(UserWarning)
            self._call_after_program(_warn_caller, (message,), name="warn")

    def _warned(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], innermost: FrameType | None = None
    ) -> Any:
        """warnings.warn"""
        recorder = self.recorder
        given = dict(zip(_WARN, arguments, strict=False)) | {k: concrete(v) for k, v in keywords.items()}
        message, category, level = given.get("message"), concrete(given.get("category")), concrete(given.get("stacklevel", 1))
        frame = frame_at(level, innermost)
        if is_a(message, Warning):
            category = type(message)
        twice = len(given) < len(arguments) + len(keywords)
        wrong = category is not None and not (is_a(category, type) and issubclass(category, Warning))
        if twice or wrong or given.keys() - set(_WARN) or frame is None or not is_a(plain(message), (str, Warning)):
            recorder.stop("impure_call", "a call of warn() of this kind")
            plain_arguments = tuple(map(plain, arguments)), {k: plain(v) for k, v in keywords.items()}
            called, named = as_called_by_program(function, *plain_arguments)
            answer = function(*called, **named)  # by this frame, as the keywords say
            recorder.performed.append((function, answer))
            return answer
        if not is_instrumented(frame.f_code) or is_a(message, Warning):
            recorder.stop(
                "impure_call", "a warning about whoever calls the function" if level != 1 else "a warning that is an object"
            )
        category = category or UserWarning
        self._guard_category(category)
        recorder.mark_fixed(frame.f_globals)
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals
        return self._call_after_program(_warn, (message, recorder.mark_fixed(category), *place), name="warn")

    def _guard_category(self, category: type[Warning]) -> None:
        """A warning that filters make an error is raised in the middle of a call."""
        recorder = self.recorder
        errors = may_be_error(category)
        recorder.miss_if(recorder.constant(may_be_error).call(recorder.constant(category)).is_not(errors))
        if errors:
            recorder.stop("impure_call", "a warning that may be an error")

    def _slept(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """time.sleep"""
        return self._call_after_program(function, tuple(map(concrete, arguments)), keywords)

    def _written(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """write, writelines or flush of a file from outside.  One that is closed raises."""
        recorder = self.recorder
        if not all(type(plain(v)) in (str, bytes) for v in arguments):
            arguments = tuple(
                [recorder.mark_created([*recorder.iteration.iterate(v)]) if not is_open(v) else v for v in arguments]
            )
            for value in arguments:
                recorder.contents.read_content(value, deep=True)
        self._guard_open(bound_to(function))
        return self._call_after_program(function, arguments, keywords, True)

    def _guard_open(self, file: Any) -> None:
        """A file that is closed raises in the middle of a call, where the program may handle it."""
        recorder = self.recorder
        if is_a(file, FILES) and recorder.is_outside(file):
            recorder.miss_if(recorder.sources[id(file)].get("closed").is_not(file.closed))

    def _progressed(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a progress bar."""
        bar, *rest = arguments
        shown, named = tuple(map(self._shown, rest)), {k: self._shown(v) for k, v in keywords.items()}
        if not self.recorder.is_outside(bar):
            self.recorder.stop("impure_call", "a progress bar that the call has made")
        return self._call_after_program(function, (bar, *shown), named, True)

    def _shown(self, value: Any) -> Any:
        """What a progress bar gets of a value: of what may change until it is shown the text of now."""
        recorder = self.recorder
        if type(value) in (list, tuple, dict):
            if recorder.is_outside(value):
                recorder.contents.read_content(value, deep=True)
            if type(value) is dict:
                return recorder.mark_created({k: self._shown(v) for k, v in value.items()})
            return recorder.mark_created(type(value)(map(self._shown, value)))
        return value if type(plain(value)) in PRIMITIVE_TYPES else recorder.operators.formatted(value, ord("s"), "")

    def _call_after_program(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any] | None = None,
        answers: bool = False,
        name: str = "",
    ) -> Any:
        """Call a function for what it does, now and in each call after the program.  answers: it says something, too, about which nothing
        is known beforehand.  name: of what the program called."""
        recorder = self.recorder
        keywords = keywords or {}
        now = plain_copy(arguments, recorder.is_outside), plain_copy(keywords, recorder.is_outside)
        answer = recorder.perform(lambda: recorder.unwatched(lambda: function(*now[0], **now[1])))
        if recorder.stopped:
            return answer
        name = name or function.__qualname__
        stands = recorder.extracted_numbers.stand_in_for_result(answer, "impure_call", f"{name}()") if answers else None
        recorder.effects.note_call(FunctionCall(recorder.mark_fixed(function), arguments, keywords, answer=stands), name)
        return stands if answers else answer


_TELLING: dict[Any, Callable[..., Any]] = {
    print: PrintingHandlers._printed,
    **dict.fromkeys((*_LEVELS, *_OF_ROOT), PrintingHandlers._logged),
    logging.Logger.isEnabledFor: PrintingHandlers._is_enabled,
    warnings.warn: PrintingHandlers._warned,
    time.sleep: PrintingHandlers._slept,
}
