"""Values that nothing can change and that are neither numbers nor texts, by their models (../values/): guards on them, and computations.

A value from outside is guarded as a whole where the program reaches it: by its type and its key, so that another object of the same value
will do.  It keeps its variable, since the program may return it.  A guard is quick where a call finds the very object that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tracejit.capture.call_sites import user_line
from tracejit.capture.container_kinds import CONTAINER_KINDS, children
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.policies import builtin_base, is_a, is_python_class
from tracejit.capture.recording.facts import shown
from tracejit.capture.values import MODELS, key_of
from tracejit.replay.ir import And, Expr

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["PlainValueHandlers"]


class PlainValueHandlers(Handlers):
    """Guards on values with a model, and what they and their environments are computed to."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        # Of environments: one object for equal ones, so that guards are one.
        self._states: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def read(self, value: Any, expression: Expr, called: str) -> bool:
        """Guard that `expression` is a value like `value`; False, and no guard, where nothing but its identity says which it is."""
        recorder, cls = self.recorder, type(value)
        if cls not in MODELS or (key := recorder.unwatched(lambda: key_of(value))) is None:
            return False
        variable = recorder.sources[id(value)] = recorder.define(expression)
        has_other_key = recorder.constant(MODELS[cls].key).call(variable).differs(recorder.constant(key))
        is_other = variable.type().is_not(recorder.constant(cls)).otherwise(has_other_key)
        recorder.miss_if(And((variable.is_not(recorder.constant(value)), is_other)))
        recorder.facts.note("value", called or cls.__name__, shown(value), user_line())
        return True

    def is_constructed(self, cls: type, arguments: tuple[Any, ...]) -> bool:
        """Whether the run may call `cls`, and take what it gives for fixed; not with what the program computes."""
        model = MODELS.get(cls)
        return model is not None and model.is_constructed and not any(map(is_post_program, arguments))

    def check_format(self, value: Any, specification: str) -> None:
        """Stop where such a format of a value depends on more than the value and its environment."""
        if specification and not all(
            model.is_pure_format(specification) and "{" not in specification
            for kind, model in MODELS.items()
            if is_a(value, kind)
        ):
            self.recorder.stop("impure_call", f"a format of a {type(value).__name__} that depends on the locale or the time zone")

    def computed(self, compute: Callable[[], Any], operands: tuple[Any, ...]) -> Any:
        """What C code computes of `operands`; the environments that their models name are guarded."""
        recorder, native = self.recorder, self.recorder.containers.native
        environments = dict.fromkeys(_environments(operands))
        if not environments or recorder.stopped:
            return native(compute, operands)
        if any(type(effect) is FunctionCall for effect in recorder.effects.in_order):
            name = next(iter(environments)).__name__.replace("_", " ")
            recorder.stop("impure_call", f"what depends on the {name}, after other calls,")
        try:
            return native(compute, operands)
        finally:  # the program may handle an error
            for environment in environments:
                now = recorder.unwatched(environment)
                known = recorder.constant(self._states.setdefault(now, now))
                recorder.miss_if(recorder.constant(environment).call().differs(known))


def _environments(operands: Iterable[Any]) -> Iterator[Callable[[], tuple[Any, ...]]]:
    """Those of values and their types among the operands, and in containers among them."""
    for operand in operands:
        cls = operand if type(operand) is type else type(operand)
        if cls is not operand and cls in CONTAINER_KINDS:
            yield from _environments(children(operand))
        elif (
            model := MODELS.get(builtin_base(cls) if is_python_class(cls) else cls)
        ) is not None and model.environment is not None:
            yield model.environment
