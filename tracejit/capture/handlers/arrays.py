"""NumPy arrays inside a compiled function: arrays that share memory with tensors, arrays of constants, and computations with
them.

* `t.numpy()` is a *post-program array*: it shares the memory of a tensor that the program returns.  NumPy's computations with it
  are repeated by each call after the program, provided that they cannot raise for other contents of the same shapes.  Arrays that
  result are post-program arrays, too.  Their shapes and dtypes are those of the recording.  Their contents differ from call to
  call: code that needs these stops the recording.
* An array that NumPy computed from constants alone is *fixed*: it has the same contents in each call.

NumPy scalars that result are post-program numbers (extracted_numbers.py), like Python's.  Invariant: a post-program array is used
by the handlers of this module only; `read_content` stops the recording at any other use of it.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.call_sites import called_from, calling_frame, may_be_error
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.post_program import MOST_ELEMENTS, PostProgramValue, is_post_program
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import SymbolicNumber
from tracejit.capture.handlers.try_blocks import is_in_try_block
from tracejit.capture.policies import PRIMITIVE_TYPES, is_a
from tracejit.capture.recording.journal import Topic
from tracejit.capture.syntax.convert import is_instrumented
from tracejit.core.dtypes import FROM_NUMPY, as_dtype
from tracejit.cpython.call_hook import allow
from tracejit.replay.ir import Constant, Expr, ListOf, TupleOf
from tracejit.tensor import Tensor
from tracejit.tensor.construction import from_numpy, tensor
from tracejit.tensor.sharing import shared_array

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "CALM",
    "CALM_METHODS",
    "KINDS",
    "OF_SEVERAL",
    "OPERATORS",
    "ArrayHandlers",
    "is_memory_of_tensor",
    "is_pure_array_function",
    "of_numpy",
    "writes_to_argument",
]

_CALM_NAMES = frozenset(
    {
        "abs", "absolute", "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "argsort", "array", "array_equal",
        "array_split", "asanyarray", "asarray", "ascontiguousarray", "atleast_1d", "atleast_2d", "around", "broadcast_to",
        "clip", "column_stack", "concatenate", "copy", "count_nonzero", "cumprod", "cumsum", "diag", "diagonal",
        "diff", "dot", "dstack", "expand_dims", "flip", "fliplr", "flipud", "full_like", "hstack", "inner", "interp", "isclose", "max",
        "mean", "median", "min", "moveaxis", "nan_to_num", "nanmean", "nanstd", "nansum", "nanvar", "ones_like", "outer",
        "percentile", "prod", "ptp", "quantile", "ravel", "repeat", "reshape", "roll", "round", "shape", "size", "sort",
        "split", "squeeze", "stack", "std", "sum", "swapaxes", "tensordot", "tile", "trace", "transpose", "trapezoid", "tril",
        "triu", "var", "vdot", "vstack", "zeros_like",
    }
)  # fmt: skip
"""Functions of NumPy that raise, and whose results have shapes, depending on the shapes of arguments and not on contents."""
CALM_METHODS = frozenset(
    {
        "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "conj", "conjugate", "copy", "cumprod", "cumsum",
        "diagonal", "dot", "flatten", "item", "max", "mean", "min", "prod", "ravel", "repeat", "reshape", "round", "squeeze",
        "std", "sum", "swapaxes", "tolist", "trace", "transpose", "var", "view",
    }
)  # fmt: skip
_STATIC = frozenset({"shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "flags"})
_SHARING = frozenset({"T", "real", "imag", "mT"})
_LOUD = frozenset(
    {
        "load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap",
        "seterr", "geterr", "seterrcall", "geterrcall", "setbufsize", "getbufsize", "set_printoptions", "get_printoptions",
        "printoptions", "errstate", "frompyfunc", "vectorize", "apply_along_axis", "apply_over_axes", "piecewise",
        "fromfunction", "fromiter", "info", "test", "show_config", "show_runtime", "get_include", "nditer", "nested_iters",
        "shares_memory", "may_share_memory",
    }
)  # fmt: skip
"""Names of NumPy's functions that depend on more than their arguments, have effects, or call functions that they are given."""
_OUT_POSITIONS: dict[str, int] = {
    **dict.fromkeys(("all", "amax", "amin", "any", "argmax", "argmin", "around", "concatenate", "dot", "max", "median", "min"), 2),
    **dict.fromkeys(("outer", "ptp", "round", "stack"), 2),
    **dict.fromkeys(("clip", "compress", "cumprod", "cumsum", "mean", "nanmean", "nanstd", "nansum", "nanvar", "percentile"), 3),
    **dict.fromkeys(("prod", "quantile", "std", "sum", "take", "var"), 3), "trace": 5,
}  # fmt: skip
"""The position at which functions of NumPy, and unbound methods, take the array that they write to."""
_RAISING_UFUNCS = frozenset({np.left_shift, np.right_shift})
_POWERS = frozenset({np.power, operator.pow})
"""They raise for negative exponents of integers."""
_CALM_BUILTINS = frozenset(
    {builtins.abs, builtins.round, builtins.float, builtins.len, builtins.str, builtins.repr, operator.getitem}
)
OPERATORS: frozenset[Any] = frozenset(
    {
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.matmul, operator.eq,
        operator.ne, operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_, operator.xor,
        operator.neg, operator.pos, operator.invert,
    }
)  # fmt: skip
_CONVERTING: frozenset[Any] = frozenset(
    {np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.stack, np.concatenate, np.vstack}
)
"""Functions that only convert tensors to arrays."""
OF_SEVERAL: frozenset[Any] = frozenset(
    {
        np.where,
        np.interp,
        np.clip,
        np.dot,
        np.inner,
        np.outer,
        np.vdot,
        np.tensordot,
        np.isclose,
        np.allclose,
        np.array_equal,
        operator.getitem,
    }
)
"""Functions of which any argument may be an array."""
_SILENT: frozenset[Any] = _CALM_BUILTINS | _CONVERTING | {
    operator.getitem, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_,
    operator.xor, operator.invert, operator.pos,
}  # fmt: skip
_SILENT_METHODS = frozenset(
    {
        "all", "any", "argmax", "argmin", "argsort", "copy", "diagonal", "flatten", "item", "max", "min", "ravel", "repeat", "reshape",
        "squeeze", "swapaxes", "tolist", "transpose", "view",
    }
)  # fmt: skip
"""Functions and methods that never warn, whatever the numbers."""
KINDS: tuple[type, ...] = (np.ndarray, np.memmap)
"""Classes of arrays that behave as plain arrays do."""
_DISPATCHERS: tuple[type, ...] = (type(np.mean), BuiltinFunctionType, FunctionType)


def _functions(*modules: Any) -> dict[Any, str]:
    """The names of all functions in `modules` that do nothing but compute from their arguments."""
    functions = {}
    for module in modules:
        names = vars(module)
        for name in module.__all__:
            value = names.get(name)  # None for a submodule that is imported on first use (numpy.testing)
            if isinstance(value, _DISPATCHERS) and name not in _LOUD:
                functions[value] = name
    return functions


_FUNCTIONS = _functions(np, np.linalg, np.fft)
CALM: frozenset[Any] = (
    frozenset({*(getattr(np, name) for name in _CALM_NAMES if hasattr(np, name)), np.linalg.norm}) | _CALM_BUILTINS
)


def is_memory_of_tensor(value: Any, read_only: bool = False) -> bool:
    """Whether `value` is an array whose memory a tensor can share.  read_only: whether it need not be writeable."""
    if type(value) not in KINDS or not (read_only or value.flags.writeable) or value.dtype not in FROM_NUMPY:
        return False
    return value.dtype is FROM_NUMPY[value.dtype].numpy


def is_pure_array_function(function: Any) -> bool:
    """Whether `function` is a builtin that, given a NumPy array or scalar, only computes from it (`abs`, `float`, `len`)."""
    return type(function) is BuiltinFunctionType and function in _CALM_BUILTINS


def writes_to_argument(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a function of NumPy may write to an array that it is given: `np.add(a, b, a)`."""
    if function is np.nan_to_num:
        return len(arguments) > 1 or "copy" in keywords
    position = function.nin if isinstance(function, np.ufunc) else _OUT_POSITIONS.get(function.__name__, len(arguments))
    return "out" in keywords or len(arguments) > position


def of_numpy(function: Any) -> bool:
    """Whether `function` is one of NumPy's that does nothing but compute from its arguments."""
    return isinstance(function, np.ufunc) or (type(function) in _DISPATCHERS and function in _FUNCTIONS)


class ArrayHandlers(Handlers):
    """Handlers of arrays and of NumPy's functions.

    epilogue_arrays: post-program arrays by id; the number is the variable of the epilogue that holds the array."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.epilogue_arrays: dict[int, SymbolicNumber] = journal.dictionary()
        self._fixed: set[int] = journal.set()  # ids of fixed arrays
        # (function, code, line) -> the function with its warnings at that line.
        self._with_user_line: dict[Any, Any] = journal.dictionary(Topic.INDEX)

    # -- kinds of arrays
    def define_array(self, tensor: Tensor, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`array`, which shares the memory of a tensor of the program, as a post-program array."""
        definition = PostProgramValue(
            None,
            source=tensor,
            access=lambda expression: self.recorder.constant(shared_array).call(expression),
            depends_on_tensors=True,
            shares_source=True,
        )
        return self._define(definition, array)  # type: ignore[no-any-return]

    def _define(self, definition: PostProgramValue, array: Any) -> Any:
        """`array`, as a post-program array that each call computes by `definition`."""
        recorder = self.recorder
        number = recorder.extracted_numbers.define_post_program(definition, array)
        self.epilogue_arrays[id(array)] = number
        recorder.created[id(array)] = array
        recorder.keep.append(array)
        return array

    def is_array(self, value: Any) -> bool:
        """Whether `value` is a NumPy array, or a symbolic NumPy scalar."""
        return is_a(value, np.ndarray) or (type(value) is SymbolicNumber and is_a(value._value, np.generic))

    def asks_array(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the first argument is an array of this run, or one from outside that is read after the program."""
        is_array = bool(arguments) and self.is_array(arguments[0])
        return is_array and (not self.recorder.is_outside(arguments[0]) or id(arguments[0]) in self.epilogue_arrays)

    def is_of_arrays(self, left: Any, right: Any) -> bool:
        """Whether NumPy does an operator between `left` and `right`."""
        if is_a(left, Tensor) or is_a(right, Tensor) or is_a(plain(left), (str, bytes)):
            return False
        scalars = (is_a(left, np.generic) and is_post_program(right)) or (is_post_program(left) and is_a(right, np.generic))
        return scalars or self.is_array(left) or self.is_array(right)

    def is_fixed(self, value: Any) -> bool:
        """Whether `value` is a fixed array."""
        return id(value) in self._fixed

    def is_unaliased(self, array: Any) -> bool:
        """Whether `array` is a fixed array that shares memory with no other array."""
        others: list[Any] = [self.recorder.created.get(i) for i in self._fixed if i != id(array)]
        return self.is_fixed(array) and array.base is None and not any(is_a(a, np.ndarray) and a.base is array for a in others)

    def forget_contents(self, array: Any) -> bool:
        """Note that a tensor of the program now uses the memory of `array`, which is no longer fixed because the tensor may be
        written to.  Returns whether the array was fixed and unaliased."""
        was_unaliased = self.is_unaliased(array)
        self._fixed.discard(id(array))
        return was_unaliased

    def tensor_of_array(self, function: Any, array: Any, dtype: Any = None, *, requires_grad: Any = False) -> Any:
        """The result of from_numpy, as_tensor or tensor for an array from outside: a tensor that each call creates before the
        program; its memory is an input of the program."""
        recorder = self.recorder
        source, kind = recorder.sources[id(array)], recorder.constant(array.dtype)
        writeable = source.get("flags").get("writeable")
        recorder.miss_if(source.get("dtype").is_not(kind).otherwise(writeable.is_not(array.flags.writeable)))
        result: Any = recorder.unwatched(lambda: from_numpy(array))
        recorder.outside_tensor(result, recorder.constant(from_numpy).call(source))
        if dtype is not None and result.dtype is not as_dtype(dtype, function.__name__):
            result = result.contiguous().to(dtype)  # a copy in row-major order
        elif function is tensor:
            result = result.clone()
        return result.requires_grad_() if requires_grad else result

    def as_operand(self, value: Any) -> Any:
        """A tensor for an array from outside that is an operand beside a tensor; any other value unchanged."""
        if self.recorder.stopped or not is_memory_of_tensor(value) or not self.recorder.is_outside(value):
            return value
        return self.tensor_of_array(tensor, value)

    def as_index(self, key: Any) -> Any:
        """A part of an index of a tensor, converted: an array of integers or bools from outside becomes a tensor or a number; a
        symbolic NumPy integer becomes one of Python; anything else is unchanged."""
        if is_post_program(key) and is_a(plain(key), np.integer):
            return self.array_call(np.generic.item, (key,))
        if type(key) not in KINDS or key.dtype.kind not in "biu" or not self.recorder.is_outside(key):
            return key
        if not key.ndim:
            return self.array_call(np.ndarray.item, (key,))
        index = self.as_operand(key)
        return index.long() if index is not key and key.dtype.kind == "i" and key.dtype != np.int64 else index

    def _varies_between_calls(self, value: Any) -> bool:
        """Whether `value`, or something in it, may be different in each call."""
        if type(value) in (tuple, list):
            return any(map(self._varies_between_calls, value))
        if type(value) is slice:
            return any(map(self._varies_between_calls, (value.start, value.stop, value.step)))
        return type(value) is SymbolicNumber or id(value) in self.epilogue_arrays

    def _is_post_program(self, value: Any) -> bool:
        """Whether `value`, or something in it, is computed after the program.  Slices count as such."""
        if type(value) in (tuple, list):
            return any(map(self._is_post_program, value))
        return is_post_program(value) or type(value) is slice or id(value) in self.epilogue_arrays

    # -- computation
    def array_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        """The result of a function of NumPy, an operator, or an unbound method of an array whose first argument is the array."""
        recorder = self.recorder
        keywords = keywords or {}
        if recorder.stopped:
            return function(*map(plain, arguments), **{k: plain(v) for k, v in keywords.items()})
        if any(map(_holds_tensors, (*arguments, *keywords.values()))):
            if function not in _CONVERTING and not (is_a(function, type) and issubclass(function, np.generic)):
                return self._of_tensors(function, arguments, keywords)
            arguments, keywords = _as_arrays(arguments), {k: _as_arrays(v) for k, v in keywords.items()}
        values = (*arguments, *keywords.values())
        if not any(map(self._varies_between_calls, values)):
            for value in values:
                recorder.contents.read_content(value, deep=True)
            return self._fixed_result(self.numpy_computes(function, arguments, keywords))
        name = getattr(function, "__name__", "")
        if not self._is_pure(function, name, arguments, keywords) and not any(map(self._is_post_program, values)):
            return self.array_call(function, *recorder.contents.concretise_arguments(arguments, keywords))
        if not self._is_pure(function, name, arguments, keywords) or writes_to_argument(function, arguments, keywords):
            recorder.stop("tensor_contents", f"NumPy's {name}() of them")
        parts: list[Any] = []
        expressions = [self.argument_expression(v, parts) for v in arguments]
        keyword_expressions = {k: self.argument_expression(v, parts) for k, v in keywords.items()}
        plain_values = [plain_copy(v) for v in arguments], {k: plain_copy(v) for k, v in keywords.items()}
        value = self._compute_post_program(function, *plain_values)
        if recorder.stopped:
            return value
        called = self.with_user_line(function)
        expression = recorder.constant(called).call(*expressions, **keyword_expressions)
        result = self._result(expression, tuple(parts), value, warns=called is not function)
        if is_post_program(result) and not keywords:
            result._post_program.make_tensor = partial(recorder.in_program.numpy_in_program, function, arguments)
        return result

    def with_user_line(self, function: Any) -> Any:
        """`function`, in a caller with which warnings name the current line of the program; itself if it never warns."""
        if _is_silent(function):
            return function
        frame = calling_frame()
        if not is_instrumented(frame.f_code):
            self.recorder.stop(
                "impure_call", f"a warning of {getattr(function, '__name__', 'NumPy')}(), at the line of whoever calls it,"
            )
        key = function, frame.f_code, frame.f_lineno
        if key not in self._with_user_line:
            self._with_user_line[key] = called_from(function, frame)
            allow(self._with_user_line[key].__code__, lasting=False)
        return self._with_user_line[key]

    def numpy_computes(self, function: Any, arguments: Any, keywords: dict[str, Any] | None = None) -> Any:
        """The result of a function of NumPy for constants.  A warning stops the recording: each call would have to give it."""
        recorder = self.recorder
        call = self.with_user_line(function)
        compute = lambda: call(*arguments, **(keywords or {}))  # noqa: E731
        if call is function:
            return recorder.containers.native(compute)
        try:
            return recorder.containers.native(lambda: _without_warnings(compute))
        except FloatingPointError:
            recorder.stop("impure_call", "a warning of NumPy")
        return compute()

    def _compute_post_program(self, function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
        """The result in this call of a function of NumPy that each call computes after the program.  If a warning may be an error
        that the program handles in a `try` block, the recording stops: after the program there is no handler."""
        recorder = self.recorder
        call = self.with_user_line(function)
        if call is not function and recorder.unwatched(lambda: is_in_try_block(True)):
            raises = _warnings_raise()
            recorder.miss_if(recorder.constant(_warnings_raise).call().is_not(raises))
            if raises:
                recorder.stop("impure_call", "NumPy, whose warnings may be errors that the program handles")
        return recorder.containers.native(lambda: call(*arguments, **keywords))

    def _of_tensors(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a function of NumPy for tensors, which may implement it by operations of their own
        (`__array_function__`).  If it is not a tensor, the recording stops."""
        recorder = self.recorder
        recorder.inspect_all(arguments)
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
        for value in (*arguments, *keywords.values()):
            recorder.contents.read_content(value, deep=True)
        result = recorder.containers.native(lambda: function(*arguments, **keywords))
        if not is_a(result, Tensor):
            recorder.stop("tensor_contents", f"NumPy's {function.__name__}() of them")
        return result

    def _is_pure(self, function: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether, for all contents of these shapes, a call does not raise and has results of the same shapes."""
        options = (*arguments[1:], *keywords.values())
        if any(is_a(plain_copy(v), np.ndarray) and plain_copy(v).dtype.kind not in "biuf" for v in arguments):
            return False
        if function is operator.getitem and not _is_plain_index(arguments[1]):
            return False
        if function in _POWERS and not _is_floating(plain_copy(arguments[0])):
            return False
        if isinstance(function, np.ufunc):
            return function not in _RAISING_UFUNCS and len(arguments) <= function.nin
        if (function is np.where and len(arguments) != 3) or (function is builtins.round and len(arguments) == 1):
            return False
        if is_a(function, type) and function not in _CALM_BUILTINS:
            return issubclass(function, np.floating)
        if function in OPERATORS or function in OF_SEVERAL:
            return True
        if any(map(self._varies_between_calls, options)):
            return False
        return name in CALM_METHODS if is_a(function, MethodDescriptorType) else function in CALM

    def argument_expression(self, value: Any, parts: list[Any]) -> Expr:
        """The expression of an argument of a call after the program.  Post-program values in it are appended to `parts`."""
        recorder = self.recorder
        number = value if type(value) is SymbolicNumber else self.epilogue_arrays.get(id(value))
        if number is not None:
            parts.append(number)
            return number._name
        if type(value) in (int, float):
            return recorder.number_expression(value)
        if type(value) in PRIMITIVE_TYPES or value is Ellipsis or is_a(value, (np.generic, np.dtype, type)):
            return recorder.constant(value)
        if type(value) in (tuple, list):
            recorder.contents.read_content(value)
            elements = tuple([self.argument_expression(v, parts) for v in value])
            return TupleOf(elements) if type(value) is tuple else ListOf(elements)
        if type(value) is slice:
            ends = [self.argument_expression(v, parts) for v in (value.start, value.stop, value.step)]
            return recorder.constant(slice).call(*ends)
        if id(value) in self._fixed:
            copy = value.copy(order="K")
            copy.flags.writeable = False
            return recorder.constant(copy)
        recorder.stop("unknown_call", f"a function of NumPy, given a {type(value).__name__}")
        return Constant(None)

    def _result(self, expression: Expr, parts: tuple[Any, ...], value: Any, warns: bool = False) -> Any:
        """The stand-in for `value`, the result of a call that each call of the function computes by `expression` from `parts`."""
        recorder = self.recorder
        definition = PostProgramValue(
            expression, parts, max_bits=63, nodes_before=len(recorder.interpreter.nodes), may_warn=warns
        )
        if type(value) is np.ndarray:
            return self._define(definition, value)
        if is_a(value, np.generic) or type(value) in (int, float, bool, str):
            return recorder.extracted_numbers.define_post_program(definition, value)
        if type(value) in (tuple, list):
            whole = recorder.extracted_numbers.define_post_program(definition, value)
            return recorder.mark_created(type(value)([self._result(whole._name.at(i), (whole,), v) for i, v in enumerate(value)]))
        if value is not None:
            recorder.stop("tensor_contents", f"a {type(value).__name__} made of them")
        return value

    def _fixed_result(self, value: Any) -> Any:
        """`value`, computed from constants alone: arrays in it are fixed."""
        recorder = self.recorder
        if type(value) is np.ndarray:
            if value.dtype.hasobject:
                recorder.stop("unbuildable", "array of objects")
            recorder.created[id(value)] = value
            self._fixed.add(id(value))
            recorder.keep.append(value)
        elif type(value) in (tuple, list):
            for part in value:
                self._fixed_result(part)
        return recorder.mark_created(value)

    # -- uses by Python
    def array_attribute(self, array: Any, name: str) -> Any:
        """The attribute `name` of an array or symbolic NumPy scalar."""
        recorder = self.recorder
        value = plain_copy(array)
        if name == "__class__":
            return recorder.mark_fixed(type(value))
        if not hasattr(type(value), name):
            return getattr(value, name)  # which raises Python's error
        if name in _STATIC or (self.is_fixed(value) and not callable(getattr(type(value), name))):
            return self._fixed_result(recorder.containers.native(lambda: getattr(value, name)))
        if name in _SHARING:
            return getattr(value, name) if recorder.stopped else self._part(array, name)
        method = getattr(type(value), name)
        if not callable(method):
            recorder.stop("tensor_contents", f".{name} of an array of them")
            return getattr(value, name)
        return recorder.mark_created(MethodType(method, array))

    def _part(self, array: Any, name: str) -> Any:
        """An attribute that is a view of a post-program array: `array.T`."""
        parts: list[Any] = []
        whole = self.argument_expression(array, parts)
        return self._result(whole.get(name), tuple(parts), getattr(plain_copy(array), name))

    def array_elements(self, array: Any) -> list[Any] | None:
        """The elements, or rows, of an array.  None where Python has to ask the array itself: it has no dimensions, which raises, or more
        elements than a recording takes, which stops the recording."""
        if not array.ndim:
            return None
        if len(array) > MOST_ELEMENTS:
            shape = list(array.shape)
            self.recorder.stop(
                "tensor_contents", f"a loop over an array of shape {shape}, more than {MOST_ELEMENTS} elements or rows"
            )
            return None
        return [self.array_call(operator.getitem, (array, i)) for i in range(len(array))]

    def array_is_used(self, array: Any) -> None:
        """Note that code which no handler sees may read an array: the recording stops unless the array is fixed."""
        if not self.is_fixed(array):
            self.recorder.stop("tensor_contents", f"an array of shape {list(array.shape)} that is used by other than NumPy")


def _without_warnings(compute: Callable[[], Any]) -> Any:
    """The result of `compute`.  Raises FloatingPointError where NumPy would warn."""
    with np.errstate(all="raise"):
        return compute()


def _warnings_raise() -> bool:
    """Whether warnings of NumPy are raised as errors, or given to a function."""
    return may_be_error(RuntimeWarning) or not {"raise", "call"}.isdisjoint(np.geterr().values())


def _is_silent(function: Any) -> bool:
    """Whether `function` never warns, whatever the numbers."""
    return function in _SILENT or (is_a(function, MethodDescriptorType) and function.__name__ in _SILENT_METHODS)


def _holds_tensors(value: Any) -> bool:
    """Whether `value` is a tensor, or a list or tuple with one."""
    return any(map(_holds_tensors, value)) if type(value) in (tuple, list) else is_a(value, Tensor)


def _as_arrays(value: Any) -> Any:
    """`value` with arrays in place of tensors."""
    if type(value) in (tuple, list):
        return type(value)(map(_as_arrays, value))
    return value.numpy() if is_a(value, Tensor) else value


def _is_floating(value: Any) -> bool:
    return is_a(value, float) or (is_a(value, (np.ndarray, np.generic)) and value.dtype.kind == "f")


def _is_plain_index(index: Any) -> bool:
    """Whether an index consists of numbers and constant slices, so that contents do not affect the shape of the result."""
    parts = index if type(index) is tuple else (index,)
    kinds = (int, SymbolicNumber, type(None), type(Ellipsis))  # a symbolic number has been compared with the size
    return all(type(part) in kinds or (type(part) is slice and _is_constant(part)) for part in parts)


def _is_constant(part: slice) -> bool:
    """Whether the bounds of a slice are plain integers or None."""
    return all(type(v) in (int, type(None)) for v in (part.start, part.stop, part.step))
