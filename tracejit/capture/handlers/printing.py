"""Output: print(), loggers, warnings, writes to files, progress bars, time.sleep(); and `str.format` and `str.join`.

Calls for output are deferred: nothing depends on them, so each call of the entry makes them after the program with all its exits,
in order and with its own numbers.  Loggers and warnings name the line of the function that calls them: the entry passes on the
recorded line.  Handlers of loggers and filters of warnings decide in each call what happens.
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
from tracejit.capture.handlers.base import CallHandler, Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import concretise
from tracejit.capture.handlers.texts import is_open
from tracejit.capture.policies import DICT_VIEWS, PRIMITIVE_TYPES, bound_to, is_a, is_user_instance
from tracejit.capture.syntax.convert import is_instrumented
from tracejit.core.package_files import is_own_frame, level_of_program

__all__ = ["FILES", "PrintingHandlers", "as_called_by_program"]

_LEVELS: dict[Any, int] = {
    logging.Logger.debug: logging.DEBUG, logging.Logger.info: logging.INFO, logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR, logging.Logger.critical: logging.CRITICAL, logging.Logger.log: logging.NOTSET,
}  # fmt: skip
"""Method of a logger -> the level of its messages; that of `log` is an argument."""
_OF_ROOT: dict[Any, Any] = {
    logging.debug: logging.Logger.debug, logging.info: logging.Logger.info, logging.warning: logging.Logger.warning,
    logging.error: logging.Logger.error, logging.critical: logging.Logger.critical, logging.log: logging.Logger.log,
}  # fmt: skip
"""Function of `logging` -> the method of the root logger that it calls."""
_PROGRESS = frozenset(
    {
        "update", "set_postfix", "set_postfix_str", "set_description", "set_description_str", "refresh", "clear", "close", "reset",
        "display", "unpause",
    }
)  # fmt: skip
"""Methods of progress bars of tqdm that are deferred."""
FILES: tuple[type, ...] = (io.TextIOWrapper, io.StringIO, io.BytesIO, io.BufferedWriter, io.FileIO)
_WARN = ("message", "category", "stacklevel")
_WRITING = frozenset({"write", "flush", "writelines"})


@does_as_python
def _log(logger: logging.Logger, level: int, file: str, line: int, function: str, message: Any, *arguments: Any) -> None:
    """Log a message as the methods of a logger do, with a given location."""
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, arguments, None, function))


@does_as_python
def _log_to_root(level: int, file: str, line: int, function: str, message: Any, *arguments: Any) -> None:
    """Log a message as the functions of `logging` do, which add a handler if the root logger has none."""
    if not logging.root.handlers:
        logging.basicConfig()
    _log(logging.root, level, file, line, function, message, *arguments)


@does_as_python
def _warn(message: Any, category: type[Warning], file: str, line: int, names: dict[str, Any]) -> None:
    """Warn as warnings.warn() does, at a given location.  names: the globals of the module there."""
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, names.get("__name__") or "<string>", registry)


@does_as_python
def _warn_caller(message: Any) -> None:
    """Warn at the line that calls the compiled function, whatever line that is in this call."""
    warnings.warn(message, UserWarning, level_of_program())


def as_called_by_program(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
    """(arguments, keywords) with which a handler calls `function`, so that a log message or warning names the line of user code
    and not that of the handler."""
    function = function.__func__ if type(function) is MethodType else function
    if type(function) not in (FunctionType, BuiltinFunctionType):
        return arguments, keywords
    if function is warnings.warn and len(arguments) > 2:
        return (*arguments[:2], level_from_here(arguments[2]), *arguments[3:]), keywords
    if function is warnings.warn or function in _LEVELS or function in _OF_ROOT:
        return arguments, {**keywords, "stacklevel": level_from_here(keywords.get("stacklevel", 1))}
    return arguments, keywords


class PrintingHandlers(Handlers):
    """`print(x)`, `log.info("%s", x)`, `warnings.warn(text)`, `file.write(text)`, `"{}".format(x)`, `", ".join(xs)`."""

    def post_program_text_method(self, name: str, owner: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """owner.format(...) or owner.join(parts) with open values (texts.py) or objects of user code; else None."""
        recorder = self.recorder
        if name == "format":
            if any(map(is_user_instance, (*arguments, *keywords.values()))):
                return recorder.texts.format_of_objects(owner, arguments, keywords)
            has_open = any(map(is_open, (*arguments, *keywords.values())))
            return recorder.texts.post_program_str_format(owner, arguments, keywords) if has_open else None
        if len(arguments) != 1 or keywords:
            return None
        consumed = hasattr(type(arguments[0]), "__next__") or type(arguments[0]) in DICT_VIEWS
        if not consumed and type(arguments[0]) not in (list, tuple):
            return None
        parts = list(recorder.iteration.iterate(arguments[0])) if consumed else arguments[0]
        if any(map(is_open, parts)) and all(type(plain(part)) is str for part in parts):
            return recorder.texts.joined(tuple(parts), owner)
        return recorder.perform(lambda: owner.join(map(concretise, parts))) if consumed else None

    def _printed(self, _: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """print(*arguments, **keywords), deferred; the texts are made now."""
        recorder = self.recorder
        keywords = {k: concretise(v) for k, v in keywords.items()}
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
    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of a function for output; else None."""
        if type(function) not in (FunctionType, BuiltinFunctionType):
            return None
        if type(function) is FunctionType and function.__globals__.get("__name__", "").startswith("tqdm."):
            return self._progressed if function.__name__ in _PROGRESS else None
        owner = bound_to(function)
        if is_a(owner, FILES) and function.__name__ in _WRITING and self.recorder.is_outside(owner):
            return self._written
        return self.in_table(_HANDLERS, function) if owner is None else None

    def _logged(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a logger, or a function of `logging`, which calls one of the root logger: deferred."""
        to_root = function in _OF_ROOT
        method, rest = _OF_ROOT.get(function, function), list(arguments)
        logger = logging.root if to_root or not rest else rest.pop(0)
        level = concretise(rest.pop(0)) if method is logging.Logger.log and rest else _LEVELS[method]
        message = rest.pop(0) if rest else None
        values = self._for_template(message, rest)
        is_usual = type(logger) in (logging.Logger, logging.RootLogger) and (to_root or self.recorder.is_outside(logger))
        if not is_usual or keywords or type(level) is not int or type(plain(message)) is not str or values is None:
            self.recorder.stop("impure_call", f"a call of Logger.{method.__name__}() of this kind")
            plain_arguments = tuple(map(plain, arguments)), {k: plain(v) for k, v in keywords.items()}
            rest, named = as_called_by_program(function, *plain_arguments)
            answer = function(*rest, **named)  # called here, because the stack level in the keywords counts from this frame
            self.recorder.performed.append((function, answer))
            return answer
        frame = calling_frame()
        while frame.f_code.co_filename == logging.__file__ and (outer := frame_at(2, frame)) is not None:
            frame = outer  # loggers skip their own frames
        code = frame.f_code
        location = (code.co_filename, frame.f_lineno, code.co_name)
        owner, log = ([], _log_to_root) if to_root else ([logger], _log)
        return self._call_after_program(log, (*owner, level, *location, message, *values), name=function.__qualname__)

    def _for_template(self, template: Any, values: list[Any]) -> list[Any] | None:
        """`values` for a later `template % values`: values that may change until then are replaced by their texts or numbers of
        now.  None if the template has unusual fields."""
        simple = [type(plain(value)) in PRIMITIVE_TYPES for value in values]
        if all(simple):
            return values
        kinds = self.recorder.texts.letters_of(template) if type(template) is str else None
        if kinds is None or len(kinds) != len(values):
            return None
        fixed = [
            v if is_simple else self.recorder.texts.for_percent(v, kind)
            for v, is_simple, kind in zip(values, simple, kinds, strict=True)
        ]
        return fixed if all(type(plain(value)) in PRIMITIVE_TYPES for value in fixed) else None

    def _is_enabled(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Logger.isEnabledFor(level), guarded by a call of it, because it depends on parent loggers too."""
        recorder = self.recorder
        arguments = tuple(map(concretise, arguments))
        enabled: bool = recorder.unwatched(lambda: function(*arguments, **keywords))
        logger, level = arguments
        if not recorder.is_outside(logger) or type(level) is not int or type(logger) not in (logging.Logger, logging.RootLogger):
            recorder.stop("impure_call", "a call of Logger.isEnabledFor() of this kind")
        else:
            recorder.miss_if(recorder.constant(function).call(recorder.sources[id(logger)], level).is_not(enabled))
        return enabled

    def warned(self, message: str) -> None:
        """Record a warning of the library.  It names the line that called into the library; if no frame of user code is
        recorded (the compiled function is the library's own), the line that calls the compiled function."""
        frame = next((f for f in instrumented_frames() if not is_own_frame(f)), None)
        if frame is not None:
            self._warned(warnings.warn, (message, UserWarning), {}, frame)
        else:
            self._guard_category(UserWarning)
            self._call_after_program(_warn_caller, (message,), name="warn")

    def _warned(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], innermost: FrameType | None = None
    ) -> Any:
        """warnings.warn(message, category, stacklevel), deferred.  innermost: the frame from which stack levels count."""
        recorder = self.recorder
        options = dict(zip(_WARN, arguments, strict=False)) | {k: concretise(v) for k, v in keywords.items()}
        message, category = options.get("message"), concretise(options.get("category"))
        level = concretise(options.get("stacklevel", 1))
        frame = frame_at(level, innermost)
        if is_a(message, Warning):
            category = type(message)
        twice = len(options) < len(arguments) + len(keywords)
        wrong = category is not None and not (is_a(category, type) and issubclass(category, Warning))
        if twice or wrong or options.keys() - set(_WARN) or frame is None or not is_a(plain(message), (str, Warning)):
            recorder.stop("impure_call", "a call of warn() of this kind")
            plain_arguments = tuple(map(plain, arguments)), {k: plain(v) for k, v in keywords.items()}
            called, named = as_called_by_program(function, *plain_arguments)
            answer = function(*called, **named)  # called here, because the stack level in the keywords counts from this frame
            recorder.performed.append((function, answer))
            return answer
        if not is_instrumented(frame.f_code) or is_a(message, Warning):
            recorder.stop(
                "impure_call", "a warning about whoever calls the function" if level != 1 else "a warning that is an object"
            )
        category = category or UserWarning
        self._guard_category(category)
        recorder.mark_fixed(frame.f_globals)
        location = frame.f_code.co_filename, frame.f_lineno, frame.f_globals
        return self._call_after_program(_warn, (message, recorder.mark_fixed(category), *location), name="warn")

    def _guard_category(self, category: type[Warning]) -> None:
        """Guard whether filters may turn a warning of this category into an error.  If so, the recording stops, because the error
        would be raised in the middle of the call."""
        recorder = self.recorder
        errors = may_be_error(category)
        recorder.miss_if(recorder.constant(may_be_error).call(recorder.constant(category)).is_not(errors))
        if errors:
            recorder.stop("impure_call", "a warning that may be an error")

    def _slept(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """time.sleep(seconds), deferred."""
        return self._call_after_program(function, tuple(map(concretise, arguments)), keywords)

    def _written(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """write(), writelines() or flush() of a file from outside, deferred."""
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
        """Guard whether a file is closed: if it is, a write raises, and user code may handle the error."""
        recorder = self.recorder
        if is_a(file, FILES) and recorder.is_outside(file):
            recorder.miss_if(recorder.sources[id(file)].get("closed").is_not(file.closed))

    def _progressed(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a progress bar, deferred."""
        bar, *rest = arguments
        shown, named = tuple(map(self._shown, rest)), {k: self._shown(v) for k, v in keywords.items()}
        if not self.recorder.is_outside(bar):
            self.recorder.stop("impure_call", "a progress bar that the call has made")
        return self._call_after_program(function, (bar, *shown), named, True)

    def _shown(self, value: Any) -> Any:
        """`value` for a progress bar, which shows it later: values that may change are replaced by their texts of now."""
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
        has_result: bool = False,
        name: str = "",
    ) -> Any:
        """Call `function` now, and let each call of the entry call it after the program.

        has_result: whether the result may differ between calls, so that a stand-in for it is returned.  name: of the function
        that user code called, if it is another one."""
        recorder = self.recorder
        keywords = keywords or {}
        now = plain_copy(arguments, recorder.is_outside), plain_copy(keywords, recorder.is_outside)
        answer = recorder.perform(lambda: recorder.unwatched(lambda: function(*now[0], **now[1])))
        if recorder.stopped:
            return answer
        name = name or function.__qualname__
        stand_in = recorder.extracted_numbers.stand_in_for_result(answer, "impure_call", f"{name}()") if has_result else None
        recorder.effects.note_call(FunctionCall(recorder.mark_fixed(function), arguments, keywords, result=stand_in), name)
        return stand_in if has_result else answer


_HANDLERS: dict[Any, Callable[..., Any]] = {
    print: PrintingHandlers._printed,
    **dict.fromkeys((*_LEVELS, *_OF_ROOT), PrintingHandlers._logged),
    logging.Logger.isEnabledFor: PrintingHandlers._is_enabled,
    warnings.warn: PrintingHandlers._warned,
    time.sleep: PrintingHandlers._slept,
}
