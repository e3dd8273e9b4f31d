"""Operations written in the program that are primitives here: `custom_op`.

Such an operation is an `Op` like those of the library, of kind OPAQUE: eager mode calls its body, and a program calls it on the host
between its segments, on the arrays that it is given (`explain()` names it).  Its backward pass is a second one.  So both are Python code
of the program that recordings do not look into.  It must be a function of its arguments alone: it is called whenever the program runs,
and again where that leaves for eager mode.

What the body sees are tensors without a position on the tape, which share memory with its arguments.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.core.interpreter import pushed, state
from tracejit.core.lazy import lazy_module
from tracejit.core.missing import missing_names
from tracejit.core.namespaces import namespace_of
from tracejit.core.numbers import settled
from tracejit.core.op import Effect, Kind, Op
from tracejit.core.symbolic import concretise_sizes
from tracejit.tensor import Tensor, wrap

__all__ = ["CustomOpDef", "custom_op", "impl_abstract", "register_autograd", "register_fake", "register_kernel"]

numba = lazy_module("numba")
_serial = itertools.count().__next__
Arguments = tuple[Any, ...]


class _TensorPlaceholder:
    """Stands for tensor number `number` in a description of arguments or results."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TensorPlaceholder) and other.number == self.number

    def __hash__(self) -> int:
        return hash((_TensorPlaceholder, self.number))

    def __repr__(self) -> str:
        return f"tensor {self.number}"


class CustomOpDef:
    """An operation made by `custom_op`, called as its body; `register_fake`, `register_autograd` and `register_kernel` tell more of it."""

    def __init__(self, name: str, body: Callable[..., Any], mutates_args: Iterable[str]) -> None:
        if not re.fullmatch(r"\w+::\w+(\.\w+)?", name):
            raise ValueError(f"custom_op(): expected a name of the form 'namespace::name', got {name!r}")
        self._qualname = name
        self._body = body
        self._changed = tuple(mutates_args)
        self._names = _argument_names(body)
        self._fake: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None
        self._seen: dict[Any, tuple[Aval, ...]] = {}
        self._results: Any = None  # what the result is made of, known from the first call on
        functools.update_wrapper(self, body)
        unique = f"{re.sub(r'[^0-9a-zA-Z]+', '_', name)}_{_serial()}"
        self._op = Op(
            unique,
            Kind.OPAQUE,
            self._evaluate,
            infer=self._infer,
            multiple=True,
            effect=Effect.RANDOM,
            traits=frozenset(("raises", "own code")),
        )
        self._op.named("".join(w.capitalize() for w in name.split("::")[-1].split("_")) + "Backward")
        self._adjoint = Op(
            f"{unique}_backward",
            Kind.OPAQUE,
            self._evaluate_adjoint,
            infer=self._infer_adjoint,
            multiple=True,
            traits=frozenset(("raises", "not differentiable", "own code")),
        )

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    @property
    def default(self) -> CustomOpDef:
        """The operation itself, where PyTorch has an overload."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors: list[Tensor] = []
        given = _described(self._qualname, (args, tuple(sorted(kwargs.items()))), tensors)
        changed = self._positions(args, kwargs) if self._changed else ()
        outputs = self._op(*tensors, given=given)
        for position, value in zip(changed, outputs[len(outputs) - len(changed) :], strict=True):
            tensors[position].copy_(value)
        return _built(self._results, outputs)

    # ---- what may be told about it ------------------------------------------------------------------------------------
    def register_fake(self, fn: Callable[..., Any] | None = None, /) -> Any:
        """The shapes and dtypes of the results: a function of the arguments that returns tensors of any contents.  Without one they are
        what was seen on first use."""
        if fn is None:
            return self.register_fake
        self._fake = fn
        return fn

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """The derivative: backward(ctx, *gradients of the results) returns one gradient, or None, for each argument;
        setup_context(ctx, inputs, output), called in the backward pass, puts into ctx what that needs.

        All tensors that the operation was given and gave are kept until then, and must not have been changed."""
        if self._changed:
            raise ValueError(f"{self._qualname}: an operation that changes its arguments has no derivative")
        self._backward, self._setup = backward, setup_context

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Another body.  For "cpu" (or None) it is called as the first one was; for "numba" with NumPy arrays in place of tensors, compiled
        by Numba when it is first used, and returns an array or a tuple of them."""
        if fn is None:
            return lambda body: self.register_kernel(device_types, body)
        kinds = {device_types} if isinstance(device_types, str) or device_types is None else set(device_types)
        if not kinds <= {"cpu", "numba", None}:
            raise ValueError(f"{self._qualname}: expected kernels for 'cpu' or 'numba', got {sorted(map(str, kinds))}")
        self._body = _with_arrays(fn) if "numba" in kinds else fn
        return fn

    # ---- the primitive --------------------------------------------------------------------------------------------------
    def _evaluate(self, *arrays: Any, given: Any) -> tuple[Any, ...]:
        changed: Sequence[int] = ()
        if self._changed:
            args, kwargs = _arguments(given, range(len(arrays)))
            changed = self._positions(args, kwargs, plain=True)
            arrays = tuple([np.array(a) if i in changed else a for i, a in enumerate(arrays)])
        tensors = [wrap(a) for a in arrays]
        args, kwargs = _arguments(given, tensors)
        with pushed(state.base), no_grad():
            result = self._body(*args, **kwargs)
        outputs: list[Tensor] = []
        described = _described(self._qualname, result, outputs)
        found = [_own(y._array, arrays) for y in outputs] + [arrays[i] for i in changed]
        if self._results is None:
            self._results = described
            self._op.vjp("0: " + " ".join(f"out{i}" for i in range(len(found))))(self._vjp)
        elif self._results != described:
            raise RuntimeError(
                f"{self._qualname}: expected results of the structure of the first call, {self._results}, got {described}"
            )
        self._remember(given, arrays, tuple([_aval(a) for a in found]))
        return tuple(found)

    def _remember(self, given: Any, arrays: Sequence[Any], results: tuple[Aval, ...]) -> None:
        """Note of what kind the results were; the first time that arguments of this kind are met the fake must say the same."""
        avals = tuple(map(_aval, arrays))
        if self._seen.get((given, avals)) == results:
            return
        told = results if self._fake is None else self._results_of_fake(given, avals)
        if told != results:
            raise RuntimeError(
                f"{self._qualname}: its fake says that the results are {', '.join(map(str, told))}; "
                f"they are {', '.join(map(str, results))}"
            )
        while len(self._seen) > _MOST_SEEN:
            self._seen.pop(next(iter(self._seen)), None)
        self._seen[given, avals] = results

    def _infer(self, *avals: Aval, given: Any) -> tuple[Aval, ...]:
        if self._fake is not None:
            return self._results_of_fake(given, avals)
        seen = self._seen.get((given, avals))
        if seen is None:
            raise RuntimeError(
                f"{self._qualname}: the shapes of its results for arguments of shapes {[list(a.shape) for a in avals]} are not known; "
                "tell them by register_fake"
            )
        return seen

    def _results_of_fake(self, given: Any, avals: Sequence[Aval]) -> tuple[Aval, ...]:
        """What the fake says of the results."""
        assert self._fake is not None
        shapes = [concretise_sizes(a.shape) for a in avals]  # what a function of the program decides by a size is not known
        tensors = [wrap(np.broadcast_to(np.zeros((), a.dtype.numpy), shape)) for a, shape in zip(avals, shapes, strict=True)]
        args, kwargs = _arguments(concretise_sizes(given), tensors)
        with pushed(state.base), no_grad():
            result = self._fake(*args, **kwargs)
        outputs: list[Tensor] = []
        _described(self._qualname, result, outputs)
        changed = self._positions(*_arguments(given, range(len(avals))), plain=True) if self._changed else []
        return (*[_aval(y._array) for y in outputs], *[avals[i] for i in changed])

    def _positions(self, args: Any, kwargs: Any, plain: bool = False) -> list[int]:
        """The numbers of the tensors that are changed, among all that are given."""
        found: list[int] = []
        number = 0
        for name, x in [*zip(self._names, args, strict=False), *sorted(kwargs.items())]:
            parts = x if isinstance(x, tuple | list) else (x,)
            count = sum(isinstance(p, Tensor) or (plain and isinstance(p, int)) for p in parts)
            if name in self._changed:
                found += range(number, number + count)
            number += count
        return found

    # ---- its derivative ---------------------------------------------------------------------------------------------------
    def _vjp(self, c: Any, *cotangents: Any) -> tuple[Any, ...]:
        given, count = c.attributes["given"], len(cotangents)
        values = (*c.inputs, *c.outputs[:count])
        first = next(x for x in values if x is not None)
        if isinstance(first, Tensor) and state.grad_enabled and state.top is state.base:
            return self._gradients(given, c.inputs, c.outputs[:count], cotangents)
        present = tuple([g is not None for g in cotangents])
        wanted = tuple([n and a.dtype.is_floating_point for n, a in zip(c.needs, c.avals, strict=True)])
        there = [g for g in cotangents if g is not None]
        found: Iterator[Any] = iter(self._adjoint.of(*values, *there, given=given, present=present, wanted=wanted))
        return tuple([next(found) if want else None for want in wanted])

    def _gradients(
        self, given: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor], cotangents: Sequence[Any]
    ) -> tuple[Any, ...]:
        """What the program's backward gives for each tensor argument: a Tensor, or None."""
        if self._backward is None:
            raise RuntimeError(
                f"Trying to backward through {self._qualname} but no autograd formula was registered. "
                "Please use register_autograd to add one."
            )
        args, kwargs = _arguments(given, inputs)
        ctx = _Context()
        everything = (*args, *kwargs.values())
        ctx.needs_input_grad = tuple([isinstance(x, Tensor) and x.requires_grad for x in everything])
        output = _built(self._results, outputs)
        if self._setup is not None:
            self._setup(ctx, everything, output)
        shaped = [
            g if g is not None else wrap(np.zeros(tuple(y.shape), y._array.dtype))
            for g, y in zip(cotangents, outputs, strict=True)
        ]
        result = self._backward(ctx, *_flat_results(self._results, shaped))
        gradients = result if isinstance(result, tuple) else (result,)
        if len(gradients) != len(everything):
            raise RuntimeError(
                f"{self._qualname}: backward returned {len(gradients)} gradients, expected {len(everything)}, one for each argument"
            )
        found: list[Any] = []
        for x, g in zip(everything, gradients, strict=True):
            if isinstance(x, Tensor):
                found.append(g)
            elif isinstance(x, tuple | list) and any(isinstance(part, Tensor) for part in x):
                parts = [None] * len(x) if g is None else list(g)
                found += [part for part, y in zip(parts, x, strict=True) if isinstance(y, Tensor)]
        for x, g in zip(inputs, found, strict=True):
            if g is not None and tuple(g.shape) != tuple(x.shape):
                raise RuntimeError(
                    f"{self._qualname}: backward returned a gradient of shape {list(g.shape)} for an argument of shape {list(x.shape)}"
                )
        return tuple(found)

    def _evaluate_adjoint(self, *arrays: Any, given: Any, present: tuple[bool, ...], wanted: tuple[bool, ...]) -> tuple[Any, ...]:
        tensors = [wrap(a) for a in arrays]
        count, results = len(wanted), len(present)
        inputs, outputs = tensors[:count], tensors[count : count + results]
        left = iter(tensors[count + results :])
        with pushed(state.base), no_grad():
            gradients = self._gradients(given, inputs, outputs, [next(left) if there else None for there in present])
        return tuple(
            [
                np.zeros(x._array.shape, x._array.dtype)
                if g is None
                else _own(g._array.astype(x._array.dtype, copy=False), arrays)
                for x, g, want in zip(inputs, gradients, wanted, strict=True)
                if want
            ]
        )

    def _infer_adjoint(self, *avals: Aval, given: Any, present: tuple[bool, ...], wanted: tuple[bool, ...]) -> tuple[Aval, ...]:
        return tuple([a for a, want in zip(avals, wanted, strict=False) if want])


_MOST_SEEN = 1024


class _Context:
    """What setup_context fills and backward reads."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Hand tensors on to backward, as `saved_tensors`."""
        self.saved_tensors = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Accepted for its name: gradients that there are none of are zeros."""


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
) -> Any:
    """Make a primitive of a function of tensors, numbers, strings and lists of them, which returns new tensors.

    name: "namespace::name"; it is also `tracejit.ops.namespace.name`, unless the library has a module of the namespace's name there, and
    `torch.ops.namespace.name` under compat.

    mutates_args: the names of arguments that it changes in place; what it gets for them are copies, which then replace their contents.
    device_types and schema are accepted.  Used as a decorator, or with the function as second argument.

    >>> import numpy, tracejit
    >>> @tracejit.library.custom_op("mine::cube", mutates_args=())
    ... def cube(x: tracejit.Tensor) -> tracejit.Tensor:
    ...     return tracejit.from_numpy(x.numpy() ** 3)
    >>> cube.register_autograd(lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g,
    ...                        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    >>> x = tracejit.tensor([2.0], requires_grad=True)
    >>> cube(x).backward(); x.grad
    tensor([12.])
    """
    if fn is None:
        return functools.partial(_defined, name, mutates_args)
    return _defined(name, mutates_args, fn)


def _defined(name: str, mutates_args: str | Iterable[str], fn: Callable[..., Any]) -> CustomOpDef:
    changed = (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
    unknown = [n for n in changed if n not in _argument_names(fn)]
    if unknown:
        raise ValueError(
            f"custom_op(): {name} has no arguments called {', '.join(unknown)}; mutates_args names those that it changes"
        )
    made = CustomOpDef(name, fn, changed)
    namespace, _, own = name.partition("::")
    setattr(namespace_of(namespace), own.partition(".")[0], made)
    return made


def _registered(name: str, op: Any) -> CustomOpDef:
    """The operation that an argument names, or is.  Raises RuntimeError for one that there is not."""
    if isinstance(op, CustomOpDef):
        return op
    namespace, _, own = str(op).partition("::")
    found = getattr(namespace_of(namespace), own.partition(".")[0], None)
    if not isinstance(found, CustomOpDef):
        raise RuntimeError(f"{name}(): there is no operation {op!r}; make it with library.custom_op() first")
    return found


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """CustomOpDef.register_fake of an operation, or of the one of that name; a decorator without `func`."""
    return _registered("register_fake", op).register_fake(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, **options: Any
) -> None:
    """CustomOpDef.register_autograd of an operation, or of the one of that name."""
    _registered("register_autograd", op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """CustomOpDef.register_kernel of an operation, or of the one of that name; a decorator without `func`."""
    return _registered("register_kernel", op).register_kernel(device_types, func)


def _argument_names(fn: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(fn).parameters)


# ---- arguments and results ----------------------------------------------------------------------------------------------
def _described(name: str, x: Any, tensors: list[Tensor]) -> Any:
    """`x` as something hashable, its tensors appended to `tensors`.  Raises TypeError for what an operation can neither take nor give."""
    if isinstance(x, Tensor):
        tensors.append(x)
        return _TensorPlaceholder(len(tensors) - 1)
    if isinstance(x, tuple | list):
        return (type(x) is list, tuple([_described(name, part, tensors) for part in x]))
    x = settled(x)
    if x is None or isinstance(x, bool | int | float | str | DType):
        return (type(x).__name__, x.hex() if isinstance(x, float) else x, x if not isinstance(x, float) else None)
    raise TypeError(f"{name}: expected tensors, numbers, strings, dtypes, None and lists of them, got {type(x).__name__}")


def _built(description: Any, tensors: Sequence[Any]) -> Any:
    """The inverse of `_described`."""
    if isinstance(description, _TensorPlaceholder):
        return tensors[description.number]
    if isinstance(description[0], bool):
        parts = [_built(part, tensors) for part in description[1]]
        return parts if description[0] else tuple(parts)
    kind, value, _ = description
    return float.fromhex(value) if kind == "float" else value


def _arguments(given: Any, tensors: Sequence[Any]) -> tuple[Arguments, dict[str, Any]]:
    args, kwargs = _built(given, tensors)
    return args, dict(kwargs)


def _flat_results(description: Any, tensors: Sequence[Any]) -> list[Any]:
    """What backward gets: one value per result."""
    if isinstance(description, tuple) and isinstance(description[0], bool):
        return [_built(part, tensors) for part in description[1]]
    return [_built(description, tensors)]


def _own(array: Any, inputs: Sequence[Any]) -> Any:
    """An array that shares no memory with the operands."""
    return np.array(array) if not array.flags.writeable or any(np.may_share_memory(array, x) for x in inputs) else array


def _aval(array: Any) -> Aval:
    tensor = wrap(array)
    return Aval(tuple(array.shape), tensor.dtype)


def _with_arrays(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A body that calls a function of arrays, compiled by Numba."""
    compiled: list[Callable[..., Any]] = []

    @functools.wraps(kernel)
    def body(*args: Any, **kwargs: Any) -> Any:
        if not compiled:
            compiled.append(kernel if isinstance(kernel, numba.core.dispatcher.Dispatcher) else numba.njit(kernel))

        def array(x: Any) -> Any:
            return x._array if isinstance(x, Tensor) else [array(p) for p in x] if isinstance(x, list) else x

        result = compiled[0](*map(array, args), **{k: array(v) for k, v in kwargs.items()})
        return tuple([wrap(np.asarray(r)) for r in result]) if isinstance(result, tuple) else wrap(np.asarray(result))

    return body


__getattr__ = missing_names(__name__)
