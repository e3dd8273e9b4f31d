"""NumPy inside a compiled function: arrays of tensors that leave the program, arrays of constants, and what NumPy computes from them.

* `t.numpy()` is a *left* array: it shares the memory of a tensor that the program returns.  What NumPy computes from it is computed
  again by each call, after the program, if it cannot raise for other contents of the same shapes; arrays and scalars that come out are
  left as well.  Their shapes and dtypes are those of the recording, their contents are known to nobody: what asks for them stops it.
* An array that NumPy made of constants alone is a *fixed* one: it holds in each call what it holds in this one.

Scalars of NumPy that are left are post-program numbers (extracted_numbers.py), as are those of Python.  Invariant: a left array is used by
what is written here, or by nobody: `read_content` stops the recording at any other use of an array.
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
"""Functions of NumPy that raise, and that make arrays of shapes, by the shapes of their arguments, and not by their contents."""
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
"""Names of NumPy that are not functions of their arguments alone, or call functions that they are given."""
_RAISING_UFUNCS = frozenset({np.left_shift, np.right_shift})
_POWERS = frozenset({np.power, operator.pow})
"""Of integers they raise."""
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
"""Functions that make arrays of tensors, and nothing else of them."""
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
"""Functions of whose arguments each may be an array."""
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
"""What warns for no numbers."""
KINDS: tuple[type, ...] = (np.ndarray, np.memmap)
"""Arrays that do what arrays do."""
_DISPATCHERS: tuple[type, ...] = (type(np.mean), BuiltinFunctionType, FunctionType)


def _functions(*modules: Any) -> dict[Any, str]:
    found = {}
    for module in modules:
        names = vars(module)
        for name in module.__all__:
            value = names.get(name)  # what is imported when it is asked for (numpy.testing) is no function
            if isinstance(value, _DISPATCHERS) and name not in _LOUD:
                found[value] = name
    return found


_FUNCTIONS = _functions(np, np.linalg, np.fft)
CALM: frozenset[Any] = (
    frozenset({*(getattr(np, name) for name in _CALM_NAMES if hasattr(np, name)), np.linalg.norm}) | _CALM_BUILTINS
)


def is_memory_of_tensor(value: Any, read_only: bool = False) -> bool:
    """Whether it is an array whose memory a tensor can share.  read_only: one that cannot be written to will do."""
    if type(value) not in KINDS or not (read_only or value.flags.writeable) or value.dtype not in FROM_NUMPY:
        return False
    return value.dtype is FROM_NUMPY[value.dtype].numpy


def is_pure_array_function(function: Any) -> bool:
    """Whether it is a function of Python that asks an array, or a scalar of NumPy, for nothing but what NumPy computes."""
    return type(function) is BuiltinFunctionType and function in _CALM_BUILTINS


def of_numpy(function: Any) -> bool:
    """Whether `function` is one of NumPy's that does nothing but compute."""
    return isinstance(function, np.ufunc) or (type(function) in _DISPATCHERS and function in _FUNCTIONS)


class ArrayHandlers(Handlers):
    """What becomes of arrays."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.left: dict[int, SymbolicNumber] = journal.dictionary()  # by the id of an array: how each call computes it
        self._fixed: set[int] = journal.set()
        self._of_lines: dict[Any, Any] = journal.dictionary()  # functions whose warnings name a line

    # -- which arrays there are
    def define_array(self, tensor: Tensor, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`array` shares the memory of a tensor of the program."""
        late = PostProgramValue(
            None, source=tensor, access=lambda made: self.recorder.constant(shared_array).call(made), of_program=True, shared=True
        )
        return self._is_from_program(late, array)  # type: ignore[no-any-return]

    def _is_from_program(self, late: PostProgramValue, array: Any) -> Any:
        recorder = self.recorder
        number = recorder.extracted_numbers.define_post_program(late, array)
        self.left[id(array)] = number
        recorder.created[id(array)] = array
        recorder.keep.append(array)
        return array

    def is_array(self, value: Any) -> bool:
        """Whether it is an array of NumPy, or a scalar of its that each call computes."""
        return is_a(value, np.ndarray) or (type(value) is SymbolicNumber and is_a(value._value, np.generic))

    def asks_array(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the first argument is an array of this run, or one from outside that each call finds."""
        known = bool(arguments) and self.is_array(arguments[0])
        return known and (not self.recorder.is_outside(arguments[0]) or id(arguments[0]) in self.left)

    def is_of_arrays(self, left: Any, right: Any) -> bool:
        """Whether an operator between them is NumPy's."""
        if is_a(left, Tensor) or is_a(right, Tensor) or is_a(plain(left), (str, bytes)):
            return False
        scalars = (is_a(left, np.generic) and is_post_program(right)) or (is_post_program(left) and is_a(right, np.generic))
        return scalars or self.is_array(left) or self.is_array(right)

    def is_fixed(self, value: Any) -> bool:
        return id(value) in self._fixed

    def is_unaliased(self, array: Any) -> bool:
        """Whether it is a fixed array whose memory no other one has."""
        others: list[Any] = [self.recorder.created.get(i) for i in self._fixed if i != id(array)]
        return self.is_fixed(array) and array.base is None and not any(is_a(a, np.ndarray) and a.base is array for a in others)

    def forget_contents(self, array: Any) -> bool:
        """A tensor of the program takes the memory of a fixed array: from now on nobody knows what that holds.  False for other arrays."""
        known = self.is_unaliased(array)
        self._fixed.discard(id(array))
        return known

    def tensor_of_array(self, function: Any, array: Any, dtype: Any = None, *, requires_grad: Any = False) -> Any:
        """from_numpy, as_tensor or tensor of an array from outside: that of each call, whose memory is an input of the program."""
        recorder = self.recorder
        source, kind = recorder.sources[id(array)], recorder.constant(array.dtype)
        writeable = source.get("flags").get("writeable")
        recorder.miss_if(source.get("dtype").is_not(kind).otherwise(writeable.is_not(array.flags.writeable)))
        made: Any = recorder.unwatched(lambda: from_numpy(array))
        recorder.outside_tensor(made, recorder.constant(from_numpy).call(source))
        if dtype is not None and made.dtype is not as_dtype(dtype, function.__name__):
            made = made.contiguous().to(dtype)  # a copy in row-major order
        elif function is tensor:
            made = made.clone()
        return made.requires_grad_() if requires_grad else made

    def as_operand(self, value: Any) -> Any:
        """The tensor that an array from outside becomes where it meets one; anything else as it is."""
        if self.recorder.stopped or not is_memory_of_tensor(value) or not self.recorder.is_outside(value):
            return value
        return self.tensor_of_array(tensor, value)

    def as_index(self, key: Any) -> Any:
        """A part of the key of a tensor's item: a tensor or a number in the place of an array of integers or bools from outside, Python's
        number in that of an integer of NumPy that each call computes."""
        if is_post_program(key) and is_a(plain(key), np.integer):
            return self.array_call(np.generic.item, (key,))
        if type(key) not in KINDS or key.dtype.kind not in "biu" or not self.recorder.is_outside(key):
            return key
        if not key.ndim:
            return self.array_call(np.ndarray.item, (key,))
        made = self.as_operand(key)
        return made.long() if made is not key and key.dtype.kind == "i" and key.dtype != np.int64 else made

    def _is_open(self, value: Any) -> bool:
        """Whether each call computes it, or something in it, for itself."""
        if type(value) in (tuple, list):
            return any(map(self._is_open, value))
        if type(value) is slice:
            return any(map(self._is_open, (value.start, value.stop, value.step)))
        return type(value) is SymbolicNumber or id(value) in self.left

    def _leaves(self, value: Any) -> bool:
        """Whether it is known only after the program, or something in it."""
        if type(value) in (tuple, list):
            return any(map(self._leaves, value))
        return is_post_program(value) or type(value) is slice or id(value) in self.left

    # -- what is computed
    def array_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        """A function of NumPy, an operator, or a method of an array (with the array before its arguments)."""
        recorder = self.recorder
        keywords = keywords or {}
        if recorder.stopped:
            return function(*map(plain, arguments), **{k: plain(v) for k, v in keywords.items()})
        if any(map(_holds_tensors, (*arguments, *keywords.values()))):
            if function not in _CONVERTING and not (is_a(function, type) and issubclass(function, np.generic)):
                return self._of_tensors(function, arguments, keywords)
            arguments, keywords = _as_arrays(arguments), {k: _as_arrays(v) for k, v in keywords.items()}
        values = (*arguments, *keywords.values())
        if not any(map(self._is_open, values)):
            for value in values:
                recorder.contents.read_content(value, deep=True)
            return self._fixed_result(self.numpy_computes(function, arguments, keywords))
        name = getattr(function, "__name__", "")
        if not self._is_pure(function, name, arguments, keywords) and not any(map(self._leaves, values)):
            settled = (
                tuple(map(recorder.contents.concrete_contents, arguments)),
                {k: recorder.contents.concrete_contents(v) for k, v in keywords.items()},
            )
            return self.array_call(function, *settled)
        if not self._is_pure(function, name, arguments, keywords) or "out" in keywords:
            recorder.stop("tensor_contents", f"NumPy's {name}() of them")
        parts: list[Any] = []
        given = [self.argument_expression(v, parts) for v in arguments]
        named = {k: self.argument_expression(v, parts) for k, v in keywords.items()}
        plain_values = [plain_copy(v) for v in arguments], {k: plain_copy(v) for k, v in keywords.items()}
        result = self._computed_late(function, *plain_values)
        if recorder.stopped:
            return result
        called = self.placed_function(function)
        expression = recorder.constant(called).call(*given, **named)
        made = self._result(expression, tuple(parts), result, warns=called is not function)
        if is_post_program(made) and not keywords:
            made._late.make = partial(recorder.in_program.numpy_in_program, function, arguments)
        return made

    def placed_function(self, function: Any) -> Any:
        """`function`, whose warnings name the line of the program; itself where no numbers make it warn."""
        if _is_silent(function):
            return function
        frame = calling_frame()
        if not is_instrumented(frame.f_code):
            self.recorder.stop(
                "impure_call", f"a warning of {getattr(function, '__name__', 'NumPy')}(), at the line of whoever calls it,"
            )
        key = function, frame.f_code, frame.f_lineno
        if key not in self._of_lines:
            self._of_lines[key] = called_from(function, frame)
            allow(self._of_lines[key].__code__, lasting=False)
        return self._of_lines[key]

    def numpy_computes(self, function: Any, arguments: Any, keywords: dict[str, Any] | None = None) -> Any:
        """What NumPy comes to, given constants.  Where it warns, each call has to."""
        recorder = self.recorder
        call = self.placed_function(function)
        compute = lambda: call(*arguments, **(keywords or {}))  # noqa: E731
        if call is function:
            return recorder.containers.native(compute)
        try:
            return recorder.containers.native(lambda: _without_warnings(compute))
        except FloatingPointError:
            recorder.stop("impure_call", "a warning of NumPy")
        return compute()

    def _computed_late(self, function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
        """What NumPy comes to in this call, where each computes it after the program: a warning that is an error finds no handler there."""
        recorder = self.recorder
        call = self.placed_function(function)
        if call is not function and recorder.unwatched(lambda: is_in_try_block(True)):
            raises = _warnings_raise()
            recorder.miss_if(recorder.constant(_warnings_raise).call().is_not(raises))
            if raises:
                recorder.stop("impure_call", "NumPy, whose warnings may be errors that the program handles")
        return recorder.containers.native(lambda: call(*arguments, **keywords))

    def _of_tensors(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """NumPy asks tensors, which may do it by operations of their own."""
        recorder = self.recorder
        recorder.inspect_all(arguments)
        settled = (
            tuple(map(recorder.contents.concrete_contents, arguments)),
            {k: recorder.contents.concrete_contents(v) for k, v in keywords.items()},
        )
        for value in (*settled[0], *settled[1].values()):
            recorder.contents.read_content(value, deep=True)
        result = recorder.containers.native(lambda: function(*settled[0], **settled[1]))
        if not is_a(result, Tensor):
            recorder.stop("tensor_contents", f"NumPy's {function.__name__}() of them")
        return result

    def _is_pure(self, function: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether it raises nothing for other contents, and makes arrays of the same shapes."""
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
        if any(map(self._is_open, options)):
            return False
        return name in CALM_METHODS if is_a(function, MethodDescriptorType) else function in CALM

    def argument_expression(self, value: Any, parts: list[Any]) -> Expr:
        """The expression of an argument."""
        recorder = self.recorder
        number = value if type(value) is SymbolicNumber else self.left.get(id(value))
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
        """What a call has come to."""
        recorder = self.recorder
        late = PostProgramValue(expression, parts, bits=63, position=len(recorder.program.nodes), warns=warns)
        if type(value) is np.ndarray:
            return self._is_from_program(late, value)
        if is_a(value, np.generic) or type(value) in (int, float, bool, str):
            return recorder.extracted_numbers.define_post_program(late, value)
        if type(value) in (tuple, list):
            whole = recorder.extracted_numbers.define_post_program(late, value)
            return recorder.mark_created(type(value)([self._result(whole._name.at(i), (whole,), v) for i, v in enumerate(value)]))
        if value is not None:
            recorder.stop("tensor_contents", f"a {type(value).__name__} made of them")
        return value

    def _fixed_result(self, value: Any) -> Any:
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

    # -- how Python uses them
    def array_attribute(self, array: Any, name: str) -> Any:
        recorder = self.recorder
        value = plain_copy(array)
        if name == "__class__":
            return recorder.mark_fixed(type(value))
        if not hasattr(type(value), name):
            return getattr(value, name)  # it raises what is to be raised
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
        parts: list[Any] = []
        whole = self.argument_expression(array, parts)
        return self._result(whole.get(name), tuple(parts), getattr(plain_copy(array), name))

    def array_elements(self, array: Any) -> Any:
        """The elements, or rows, of an array."""
        if not array.ndim or len(array) > MOST_ELEMENTS:
            self.recorder.stop("tensor_contents", f"shape {list(array.shape)}")
            return array
        return [self.array_call(operator.getitem, (array, i)) for i in range(len(array))]

    def array_is_used(self, array: Any) -> None:
        """Something may look at the contents of an array."""
        if not self.is_fixed(array):
            self.recorder.stop("tensor_contents", f"an array of shape {list(array.shape)} that is used by other than NumPy")


def _without_warnings(compute: Callable[[], Any]) -> Any:
    """What NumPy comes to.  Raises FloatingPointError where it would warn."""
    with np.errstate(all="raise"):
        return compute()


def _warnings_raise() -> bool:
    """Whether a warning of NumPy raises."""
    return may_be_error(RuntimeWarning) or not {"raise", "call"}.isdisjoint(np.geterr().values())


def _is_silent(function: Any) -> bool:
    """Whether no numbers make it warn."""
    return function in _SILENT or (is_a(function, MethodDescriptorType) and function.__name__ in _SILENT_METHODS)


def _holds_tensors(value: Any) -> bool:
    return any(map(_holds_tensors, value)) if type(value) in (tuple, list) else is_a(value, Tensor)


def _as_arrays(value: Any) -> Any:
    """What NumPy makes of tensors, or of sequences of them."""
    if type(value) in (tuple, list):
        return type(value)(map(_as_arrays, value))
    return value.numpy() if is_a(value, Tensor) else value


def _is_floating(value: Any) -> bool:
    return is_a(value, float) or (is_a(value, (np.ndarray, np.generic)) and value.dtype.kind == "f")


def _is_plain_index(index: Any) -> bool:
    """Whether an index takes the same elements, whatever the contents."""
    parts = index if type(index) is tuple else (index,)
    kinds = (int, SymbolicNumber, type(None), type(Ellipsis))  # a number that changes has been compared with the size
    return all(type(part) in kinds or (type(part) is slice and _is_whole(part)) for part in parts)


def _is_whole(part: slice) -> bool:
    return all(type(v) in (int, type(None)) for v in (part.start, part.stop, part.step))
