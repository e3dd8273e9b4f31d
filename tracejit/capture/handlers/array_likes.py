"""Array-like objects from outside: columns and tables of other packages that have a model (../values/array_likes.py).

The prologue of each call reads them, by the function that the program calls: `series.to_numpy()`, `tensor(series)`, `frame["x"]`.  Arrays,
numbers, columns and tables that result are from outside as well.  All other methods stop the recording, so none changes such an object.

Invariant: the prologue reads an object only for a read that comes before all writes of the call to memory and to the object's attributes.
Only what looks at no element, such as a length, is read after writes to memory, too.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from tracejit.capture.handlers.attempts import FAILED, attempt_reading
from tracejit.capture.handlers.base import CallHandler
from tracejit.capture.handlers.lifetimes import keeps_alive
from tracejit.capture.handlers.prologue_arrays import PrologueArrayHandlers
from tracejit.capture.policies import instance_dictionary, is_a, is_python_class
from tracejit.capture.values.array_likes import ARRAY_LIKES, ArrayLikeModel, array_like_model
from tracejit.replay.ir import Expr
from tracejit.tensor.construction import from_numpy

__all__ = ["ArrayLikeHandlers"]

_WHOLE = "__array__"
"""The function by which others read an array-like object that they are given."""


class ArrayLikeHandlers(PrologueArrayHandlers):
    """Moves readings of array-like objects into the prologue."""

    def _model(self, value: Any) -> ArrayLikeModel | None:
        """The model of an object from outside; None for other values."""
        return array_like_model(type(value)) if self.recorder.is_outside(value) else None

    def _holds_array_like(self, value: Any) -> bool:
        return any(map(self._holds_array_like, value)) if type(value) in (tuple, list) else self._model(value) is not None

    # -- methods and properties
    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of a method of a class that has a model, and of the function of a property; None for others."""
        is_method = type(function) is FunctionType and any(model.has(function) for model in ARRAY_LIKES)
        return self._call_of_method if is_method else None

    def _call_of_method(self, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """function(*arguments, **keywords), read by the prologue if the model names the function."""
        recorder, owner = self.recorder, arguments[0] if arguments else None
        model = self._model(owner)
        if model is None:
            return recorder.calls.instrumented(function, arguments, keywords)
        name, others = function.__name__, (*arguments[1:], *keywords.values())
        looks, called = model.looks_at_elements(name, others), f"{model.name}.{name}"
        if name not in model.structure | model.contents:
            recorder.stop("array_like", called)
        elif not all(map(self._is_known_in_prologue, others)) or any(is_a(v, type) and is_python_class(v) for v in others):
            recorder.stop("array_like", f"{called}, given what the prologue does not have,")
        elif looks and not self._runs_no_code_of_program(model, owner, name):
            recorder.stop("array_like", f"{called}, of other elements than numbers,")
        elif any(map(self._holds_changed, (owner, *others) if looks else others)) or self._has_changed_state(owner):
            recorder.stop("read_after_change", f"a {model.name}")
        if not recorder.stopped:
            result = self._called_before(function, arguments, keywords, attempt_reading)
            if result is not FAILED:
                return result
            recorder.stop("array_like", f"{called}, which raises an error or warns,")
        return recorder.run(function, arguments, keywords)

    def _runs_no_code_of_program(self, model: ArrayLikeModel, value: Any, name: str) -> bool:
        """Whether the function `name` of an array-like object runs no code of the program; if so, with a guard on it."""
        recorder = self.recorder
        if recorder.unwatched(lambda: model.is_pure(value, name)) is not True:
            return False
        recorder.miss_if(recorder.constant(model.is_pure).call(recorder.sources[id(value)], name).is_not(True))
        return True

    def _has_changed_state(self, value: Any) -> bool:
        """Whether the call has stored attributes of an array-like object, or changed what these lead to."""
        effects, state = self.recorder.effects, instance_dictionary(value)
        owners = [getattr(effect, "owner", getattr(effect, "container", None)) for effect in effects.in_order]
        return any(owner is state or keeps_alive(value, owner) for owner in owners if owner is not None)

    # -- arguments of NumPy, and of the functions that make tensors
    def array_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        recorder, keywords = self.recorder, keywords or {}
        values = (*arguments, *keywords.values())
        if recorder.stopped or not any(map(self._holds_array_like, values)):
            return super().array_call(function, arguments, keywords)
        if not self._computes_in_prologue(function, arguments, keywords) or not all(map(self._is_known_in_prologue, values)):
            recorder.stop("array_like", f"NumPy's {function.__name__}()")
        elif any(map(self._holds_changed, values)):
            recorder.stop("read_after_change", "an array-like object")
        if not recorder.stopped:
            result = self._called_before(function, arguments, keywords, attempt_reading)
            if result is not FAILED:
                return result
            recorder.stop("array_like", f"NumPy's {function.__name__}(), which raises an error or warns,")
        return recorder.run(function, arguments, keywords)

    def tensor_of_arrays(self, function: Any, data: Any, dtype: Any = None, requires_grad: Any = False) -> Any:
        if function is from_numpy or self._model(data) is None:
            return super().tensor_of_arrays(function, data, dtype, requires_grad)
        if self._is_known_in_prologue(data):
            return self._copied_before(data, dtype, requires_grad)
        self.recorder.stop("array_like", f"{function.__name__}() of a {type(data).__name__} of other elements than numbers")
        return None

    def _has_arrays(self, value: Any) -> bool:
        return super()._has_arrays(value) or self._model(value) is not None

    def _is_known_in_prologue(self, value: Any) -> bool:
        model = self._model(value)
        return super()._is_known_in_prologue(value) if model is None else self._runs_no_code_of_program(model, value, _WHOLE)

    def _holds_changed(self, value: Any) -> bool:
        if self._model(value) is None:
            return super()._holds_changed(value)
        return self.memory_is_written() or self._has_changed_state(value)

    def _prologue_argument(self, value: Any) -> Expr:
        return super()._prologue_argument(value) if self._model(value) is None else self.recorder.sources[id(value)]

    # -- results
    def _is_new_memory(self, result: Any, values: tuple[Any, ...]) -> bool:
        """An array-like object may give the memory that it has."""
        return super()._is_new_memory(result, values) and not any(map(self._holds_array_like, values))

    def _prologue_result(self, expression: Expr, value: Any) -> Any:
        recorder = self.recorder
        is_known = is_a(value, np.ndarray) and (recorder.is_outside(value) or recorder.is_created(value))
        if is_known or is_a(value, np.dtype) or array_like_model(type(value)) is not None:
            return recorder.read(value, recorder.define(expression))
        return super()._prologue_result(expression, value)
